//! The kustomize engine against the reference, `kubectl kustomize`: recorded cases, real trees, random trees.

#[path = "../../crates/weir-kustomize/tests/golden/archive.rs"]
#[expect(unreachable_pub, reason = "shared with the tests of the engine")]
mod archive;
mod golden;
mod random;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use weir_artifact::disk::DiskTree;
use weir_kustomize::{Options, build};

pub(crate) use golden::run as golden;

/// Where the reference is found unless `KUBECTL` names it.
const REFERENCE: &str = "kubectl";

#[derive(Subcommand)]
pub(crate) enum Kustomize {
    /// Builds every kustomization below a directory with both programs and compares the output.
    Compare {
        /// The directory.
        directory: PathBuf,
        /// Prints the first differing lines of each difference.
        #[arg(long)]
        verbose: bool,
    },
    /// Builds random kustomizations with both programs and compares the output.
    Random {
        /// The first seed; each case has its own.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many cases.
        #[arg(long, default_value_t = 1000)]
        count: u64,
        /// Prints the files of the case instead of comparing.
        #[arg(long)]
        print: bool,
        /// Also prints errors whose texts differ.
        #[arg(long)]
        verbose: bool,
    },
    /// Writes the trees that hack/bench/kustomize measures.
    Trees {
        /// Where.
        directory: PathBuf,
    },
    /// Builds one directory, for a look at the engine alone.
    Build {
        /// The directory.
        directory: PathBuf,
        /// How often; the time of the fastest run is printed.
        #[arg(long, default_value_t = 1)]
        times: u32,
    },
}

/// Runs a sub-command.
pub(crate) fn run(command: Kustomize) -> anyhow::Result<()> {
    match command {
        Kustomize::Compare { directory, verbose } => compare(&directory, verbose),
        Kustomize::Random { seed, count, print, verbose } => random::run(seed, count, print, verbose),
        Kustomize::Trees { directory } => trees(&directory),
        Kustomize::Build { directory, times } => {
            let mut fastest = Duration::MAX;
            let mut text = String::new();
            for _ in 0..times {
                let start = Instant::now();
                text = ours(&directory).map_err(anyhow::Error::msg)?;
                fastest = fastest.min(start.elapsed());
            }
            say(&text);
            if times > 1 {
                note(&format!("fastest of {times}: {fastest:?}"));
            }
            Ok(())
        }
    }
}

#[expect(clippy::print_stdout, reason = "a command of the repository talks to its terminal")]
fn say(text: &str) {
    println!("{}", text.trim_end());
}

#[expect(clippy::print_stderr, reason = "a command of the repository talks to its terminal")]
fn note(text: &str) {
    eprintln!("{text}");
}

/// What the engine makes of a directory, or the error.
fn ours(directory: &Path) -> Result<String, String> {
    let directory = directory.canonicalize().map_err(|error| error.to_string())?;
    build(&DiskTree::whole(), &directory.to_string_lossy(), &Options::command_line())
        .map(|output| output.to_yaml())
        .map_err(|error| error.to_string())
}

/// What the reference makes of a directory, or the error.
fn theirs(directory: &Path) -> anyhow::Result<Result<String, String>> {
    let program = std::env::var("KUBECTL").unwrap_or_else(|_| REFERENCE.to_owned());
    let output = Command::new(&program)
        .arg("kustomize")
        .arg(directory)
        .output()
        .with_context(|| format!("cannot run '{program}'; set KUBECTL to the path of kubectl 1.37"))?;
    Ok(if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(without_warnings(&String::from_utf8_lossy(&output.stderr)))
    })
}

fn without_warnings(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# Warning:")).collect();
    let text = lines.join("\n");
    text.trim_start_matches("error: ").trim().to_owned()
}

/// Writes files below a directory.
fn unpack<D: AsRef<[u8]>>(files: &[(String, D)], directory: &Path) -> anyhow::Result<()> {
    for (name, content) in files {
        let path = directory.join(name);
        let parent = path.parent().context("a file has a directory")?;
        std::fs::create_dir_all(parent)?;
        std::fs::write(&path, content).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Which version the reference says it is.
fn reference_version() -> anyhow::Result<String> {
    let program = std::env::var("KUBECTL").unwrap_or_else(|_| REFERENCE.to_owned());
    let output = Command::new(&program)
        .args(["version", "--client"])
        .output()
        .with_context(|| format!("cannot run '{program}'; set KUBECTL to the path of kubectl 1.37"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|line| line.strip_prefix("Kustomize Version: "));
    Ok(version.context("the reference does not say its kustomize version")?.trim().to_owned())
}

/// The first lines that differ.
fn first_difference(ours: &str, theirs: &str) -> String {
    let mut left = ours.lines();
    let mut right = theirs.lines();
    for number in 1.. {
        match (left.next(), right.next()) {
            (None, None) => break,
            (left, right) if left == right => {}
            (left, right) => {
                return format!(
                    "line {number}\n  ours:   {}\n  theirs: {}",
                    left.unwrap_or("(end)"),
                    right.unwrap_or("(end)")
                );
            }
        }
    }
    "only line ends differ".to_owned()
}

fn kustomizations(directory: &Path, found: &mut Vec<PathBuf>) {
    let names = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
    if names.iter().any(|name| directory.join(name).is_file()) {
        found.push(directory.to_owned());
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(directory)
        .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
        .unwrap_or_default();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.is_symlink() && path.file_name().is_none_or(|name| name != ".git") {
            kustomizations(&path, found);
        }
    }
}

fn compare(directory: &Path, verbose: bool) -> anyhow::Result<()> {
    let mut found = Vec::new();
    kustomizations(directory, &mut found);
    let (mut equal, mut failed_both, mut different, mut skipped) = (0, 0, 0, 0);
    for path in &found {
        let shown = path.strip_prefix(directory).unwrap_or(path).display();
        match (ours(path), theirs(path)?) {
            (Ok(left), Ok(right)) if left == right => equal += 1,
            (Ok(left), Ok(right)) => {
                different += 1;
                say(&format!("DIFFERENT {shown}: {}", first_difference(&left, &right)));
            }
            (Err(left), Err(right)) => {
                failed_both += 1;
                if verbose {
                    say(&format!("BOTH FAIL {shown}\n  ours:   {left}\n  theirs: {right}"));
                }
            }
            (Err(left), Ok(_)) => {
                if left.contains("remote") {
                    skipped += 1;
                } else {
                    different += 1;
                    say(&format!("DIFFERENT {shown}: only ours fails: {left}"));
                }
            }
            (Ok(_), Err(right)) => {
                different += 1;
                say(&format!("DIFFERENT {shown}: only theirs fails: {right}"));
            }
        }
    }
    let judged = equal + different;
    let share = if judged == 0 { 100.0 } else { 100.0 * f64::from(equal) / f64::from(judged) };
    say(&format!(
        "{} kustomizations: {equal} byte-equal, {different} different ({share:.1} % equal), {failed_both} fail in both, {skipped} skipped for remote content",
        found.len()
    ));
    if different > 0 {
        bail!("{different} kustomizations differ");
    }
    Ok(())
}

fn trees(directory: &Path) -> anyhow::Result<()> {
    random::small_overlay(&directory.join("small"))?;
    for count in [100, 1_000, 10_000] {
        random::many_deployments(&directory.join(count.to_string()), count)?;
    }
    Ok(())
}
