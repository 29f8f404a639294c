//! Charts that would unpack, multiply or nest without bound end in an error.
#![expect(clippy::unwrap_used, reason = "failing here means failing the test")]

use std::fmt::Write as _;
use std::io::Write as _;

use weir_base::tree::MemoryTree;
use weir_helm::chart::{ARCHIVE_BYTES_MAX, Chart, ChartError, FILE_BYTES_MAX};
use weir_helm::values::{Table, ValuesError};
use weir_helm::{dependencies, set, values};

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, data) in files {
        let mut header = tar::Header::new_ustar();
        header.set_path(name).unwrap();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, *data).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

const CHART: &[u8] = b"apiVersion: v2\nname: c\nversion: 1.0.0\n";

#[test]
fn archives_are_bounded() {
    let large = vec![0; FILE_BYTES_MAX as usize + 1];
    let error = Chart::from_archive(&archive(&[("c/Chart.yaml", CHART), ("c/x", &large)])).unwrap_err();
    assert_eq!(error, ChartError::FileTooLarge("c/x".to_owned()));

    let whole = &large[1..];
    let names: Vec<String> =
        (0..=ARCHIVE_BYTES_MAX / FILE_BYTES_MAX).map(|number| format!("c/{number}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), whole)).collect();
    assert_eq!(Chart::from_archive(&archive(&files)).unwrap_err(), ChartError::ArchiveTooLarge);
}

#[test]
fn archives_within_archives_share_one_bound() {
    let whole = vec![0; FILE_BYTES_MAX as usize];
    let names: Vec<String> = (0..18).map(|number| format!("c/{number}")).collect();
    let mut files: Vec<(&str, &[u8])> = vec![("c/Chart.yaml", CHART)];
    files.extend(names.iter().map(|name| (name.as_str(), &whole[..])));
    let inner = archive(&files);
    let names: Vec<String> = (0..6).map(|number| format!("c/charts/{number}.tgz")).collect();
    let mut files: Vec<(&str, &[u8])> = vec![("c/Chart.yaml", CHART)];
    files.extend(names.iter().map(|name| (name.as_str(), &inner[..])));
    let error = Chart::from_archive(&archive(&files)).unwrap_err();
    assert!(error.to_string().contains("larger than the maximum size"), "{error}");
}

#[test]
fn charts_within_charts_are_bounded() {
    let mut path = String::new();
    let mut files = Vec::new();
    for _ in 0..60 {
        files.push((format!("{path}Chart.yaml"), bytes::Bytes::from_static(CHART)));
        path.push_str("charts/c/");
    }
    let tree: MemoryTree = files.into_iter().collect();
    let error = Chart::from_tree(&tree, "").unwrap_err();
    assert!(error.to_string().contains("levels deep"), "{error}");

    let mut inner = archive(&[("c/Chart.yaml", CHART)]);
    for _ in 0..60 {
        inner = archive(&[("c/Chart.yaml", CHART), ("c/charts/c.tgz", &inner)]);
    }
    assert!(Chart::from_archive(&inner).unwrap_err().to_string().contains("levels deep"));
}

#[test]
fn entries_stay_within_the_chart() {
    let raw = |name: &str| {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(1);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, &b"x"[..]).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&tar.into_inner().unwrap()).unwrap();
        Chart::from_archive(&encoder.finish().unwrap()).unwrap_err()
    };
    for name in ["c/../../x", "c/..", "c//x", "c\\..\\..\\x", "c/c:/x"] {
        assert!(matches!(raw(name), ChartError::Escape(_)), "{name}: {}", raw(name));
    }
    assert_eq!(raw("Chart.yaml"), ChartError::NotInBaseDirectory);
}

/// A chart whose dependencies name its one subchart `copies` times, at each of `levels`.
fn multiplied(copies: usize, levels: usize) -> Chart {
    let mut chart = Chart::default();
    "leaf".clone_into(&mut chart.metadata.name);
    "1.0.0".clone_into(&mut chart.metadata.version);
    for level in 0..levels {
        let mut text = format!("apiVersion: v2\nname: n{level}\nversion: 1.0.0\ndependencies:\n");
        for copy in 0..copies {
            let name = &chart.metadata.name;
            writeln!(text, "- name: {name}\n  version: 1.0.0\n  alias: a{copy}").unwrap();
        }
        let metadata = weir_helm::metadata::Metadata::parse(text.as_bytes()).unwrap();
        chart = Chart { metadata, dependencies: vec![chart], ..Chart::default() };
    }
    chart
}

#[test]
fn aliases_do_not_multiply_charts_without_bound() {
    assert_eq!(dependencies::process(&mut multiplied(20, 2), &Table::new()), Ok(()));
    let result = dependencies::process(&mut multiplied(30, 6), &Table::new());
    assert_eq!(result, Err(ValuesError::TooManyCharts));
}

#[test]
fn assignments_are_bounded() {
    let mut table = Table::new();
    let nested = format!("{}=1", vec!["a"; 40].join("."));
    assert!(set::apply(&mut table, &nested, &set::Reader::Typed).is_err());
    assert!(set::apply(&mut table, "a[99999999]=1", &set::Reader::Typed).is_err());
}

#[test]
fn deeply_nested_values_are_refused() {
    let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(values::read(format!("a: {nested}").as_bytes()).is_err());
    let nested = format!("{}1{}", "{a: ".repeat(100_000), "}".repeat(100_000));
    assert!(values::read(nested.as_bytes()).is_err());
}
