//! Any bytes as a chart archive, and as the inside of one; what loads is rendered.
#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use weir_gotemplate::FixedHost;
use weir_helm::capabilities::Capabilities;
use weir_helm::chart::Chart;
use weir_helm::content::{self, ContentOptions};
use weir_helm::render::{Limits, ReleaseInfo, RenderInput};
use weir_helm::values::Table;

const NAMES: &[&str] = &[
    "c/Chart.yaml",
    "c/values.yaml",
    "c/values.schema.json",
    "c/templates/a.yaml",
    "c/templates/_h.tpl",
    "c/templates/NOTES.txt",
    "c/charts/s/Chart.yaml",
    "c/charts/s/values.yaml",
    "c/charts/s/templates/a.yaml",
    "c/requirements.yaml",
    "c/Chart.lock",
    "c/crds/x.yaml",
    "c/.helmignore",
    "c/../x",
    "/c/x",
];

fn compressed(tar: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(tar).expect("writing to memory works");
    encoder.finish().expect("writing to memory works")
}

/// A well-formed archive whose files are pieces of the input, each after a byte that names it.
fn archive_of(input: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for piece in input.split(|byte| *byte == 0xff) {
        let Some((first, data)) = piece.split_first() else { continue };
        let name = NAMES[usize::from(*first) % NAMES.len()];
        let mut header = tar::Header::new_ustar();
        if name.contains("..") || name.starts_with('/') {
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        } else {
            header.set_path(name).expect("the names fit");
        }
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, data).expect("writing to memory works");
    }
    tar.into_inner().expect("writing to memory works")
}

fn render(archive: &[u8]) {
    let Ok(chart) = Chart::from_archive(archive) else { return };
    let release =
        ReleaseInfo { name: "r".to_owned(), namespace: "n".to_owned(), revision: 1, is_upgrade: false };
    let limits = Limits {
        steps_max: 20_000,
        produced_bytes_max: 4 << 20,
        value_bytes_max: 1 << 20,
        list_items_max: 10_000,
        template_levels_max: 200,
    };
    let input = RenderInput {
        release: &release,
        capabilities: &Capabilities::default(),
        host: Box::new(FixedHost::default()),
        limits,
    };
    let _ = chart.crds();
    let _ = content::make(chart, &Table::new(), input, &ContentOptions::default());
}

fuzz_target!(|bytes: &[u8]| {
    let _ = Chart::from_archive(bytes);
    let _ = Chart::from_archive(&compressed(bytes));
    render(&compressed(&archive_of(bytes)));
});
