//! Loads and renders charts. `hack/bench/helm` runs this beside Helm's Go packages.
//!
//! `cargo bench -p weir-helm --bench charts -- one DIR ROUNDS` does one chart again and again, `all DIR` every
//! chart in DIR once. Prints one line: charts, failures, bytes rendered, milliseconds per round, peak memory in
//! KiB; with `VERBOSE` set also errors and what each phase took. `print DIR` prints the manifests of one chart, to be
//! compared with `helm template` as a whole process.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a command line tool")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_base::tree::MemoryTree;
use weir_gotemplate::FixedHost;
use weir_helm::capabilities::Capabilities;
use weir_helm::chart::Chart;
use weir_helm::manifest::{self, Order, SplitRule};
use weir_helm::render::{self, Limits, ReleaseInfo, RenderInput};
use weir_helm::values::{self, Mode, Table};
use weir_helm::{dependencies, schema};

// As in the controllers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn read(directory: &Path, within: &str, files: &mut Vec<(String, bytes::Bytes)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory.join(within))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = if within.is_empty() { name } else { format!("{within}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read(directory, &name, files)?;
        } else if kind.is_file() {
            files.push((name, std::fs::read(entry.path())?.into()));
        }
    }
    Ok(())
}

/// What the phases took.
#[derive(Default)]
struct Spent {
    load: Duration,
    values: Duration,
    schema: Duration,
    render: Duration,
}

fn render(tree: &MemoryTree, spent: &mut Spent) -> Result<usize, String> {
    render_files(tree, spent).map(|files| files.values().map(String::len).sum())
}

/// The manifests as one text.
fn manifests(tree: &MemoryTree) -> Result<String, String> {
    let mut files = render_files(tree, &mut Spent::default())?;
    files.retain(|path, _| !path.ends_with("NOTES.txt"));
    let sorted = manifest::sort(&files, SplitRule::SwallowSpace, Order::Install);
    sorted.map(|sorted| manifest::text(&sorted.manifests)).map_err(|error| error.to_string())
}

fn render_files(tree: &MemoryTree, spent: &mut Spent) -> Result<BTreeMap<String, String>, String> {
    let start = Instant::now();
    let mut chart = Chart::from_tree(tree, "").map_err(|error| error.to_string())?;
    let loaded = Instant::now();
    spent.load += loaded - start;
    let given = Table::new();
    dependencies::process(&mut chart, &given).map_err(|error| error.to_string())?;
    let all = values::coalesce(&chart, &given, Mode::Coalesce).map_err(|error| error.to_string())?;
    let coalesced = Instant::now();
    spent.values += coalesced - loaded;
    schema::validate(&chart, &all, &schema::Documents::Missing).map_err(|error| error.to_string())?;
    let valid = Instant::now();
    spent.schema += valid - coalesced;
    let release =
        ReleaseInfo { name: "rel".to_owned(), namespace: "ns".to_owned(), revision: 1, is_upgrade: false };
    let input = RenderInput {
        release: &release,
        capabilities: &Capabilities::default(),
        host: Box::new(FixedHost::default()),
        limits: Limits::default(),
    };
    let rendered = render::render(&chart, &all, input).map_err(|error| error.to_string())?;
    drop((all, chart));
    spent.render += valid.elapsed();
    Ok(rendered)
}

/// The most memory the process has had, in KiB.
fn peak_kib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().unwrap_or("0").to_owned()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo bench` adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let (mode, directory, rounds) = match arguments.as_slice() {
        [mode, directory] => (mode.as_str(), PathBuf::from(directory), 1),
        [mode, directory, rounds] => (mode.as_str(), PathBuf::from(directory), rounds.parse()?),
        _ => return Ok(()),
    };
    if mode == "print" {
        let mut files = Vec::new();
        read(&directory, "", &mut files)?;
        print!("{}", manifests(&files.into_iter().collect())?);
        return Ok(());
    }
    let mut directories = vec![directory.clone()];
    if mode == "all" {
        directories = std::fs::read_dir(&directory)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.join("Chart.yaml").is_file())
            .collect();
        directories.sort();
    }
    let verbose = std::env::var_os("VERBOSE").is_some();
    let (mut total, mut failed, mut size, mut phases) = (Duration::ZERO, 0, 0, Spent::default());
    for directory in &directories {
        let mut files = Vec::new();
        read(directory, "", &mut files)?;
        let tree: MemoryTree = files.into_iter().collect();
        let start = Instant::now();
        for _ in 0..rounds {
            match render(&tree, &mut phases) {
                Ok(bytes) => size += bytes,
                Err(error) => {
                    failed += 1;
                    if verbose {
                        eprintln!("{}: {error}", directory.display());
                    }
                }
            }
        }
        total += start.elapsed();
    }
    let milliseconds = |spent: Duration| spent.as_secs_f64() * 1000.0 / f64::from(rounds);
    if verbose {
        eprintln!(
            "load {:.3} ms, values {:.3} ms, schemas {:.3} ms, render {:.3} ms",
            milliseconds(phases.load),
            milliseconds(phases.values),
            milliseconds(phases.schema),
            milliseconds(phases.render)
        );
    }
    println!(
        "{} {} {} {:.3} {}",
        directories.len(),
        failed / rounds,
        size / rounds as usize,
        milliseconds(total),
        peak_kib()
    );
    Ok(())
}
