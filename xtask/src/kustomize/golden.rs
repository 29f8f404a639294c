//! Recording of the golden cases: what the reference answers is committed next to the input.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use weir_base::tree::MemoryTree;
use weir_kustomize::{Options, Output, build};

use super::archive::{self, File};
use super::{reference_version, say, theirs, unpack};

const CASES: &str = "crates/weir-kustomize/tests/golden";

/// Checks that the recorded answers are current, or records them.
pub(crate) fn run(root: &Path, record: bool) -> anyhow::Result<()> {
    let directory = root.join(CASES);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&directory)
        .with_context(|| directory.display().to_string())?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txtar"))
        .filter(|path| path.file_name().is_some_and(|name| name != "fixtures.txtar"))
        .collect();
    paths.sort();
    let fixtures = std::fs::read_to_string(directory.join("fixtures.txtar"))?;
    let fixtures = archive::files(&fixtures);
    let version = reference_version()?;
    let (mut stale, mut cases) = (0, 0);
    for path in &paths {
        let old = std::fs::read_to_string(path)?;
        let new = recorded(&old, &fixtures, &mut cases)?;
        if old == new {
            continue;
        }
        stale += 1;
        say(&format!("{} {}", if record { "recorded" } else { "stale" }, path.display()));
        if record {
            std::fs::write(path, new)?;
        }
    }
    if record {
        std::fs::write(directory.join("VERSION"), format!("kustomize {version}\n"))?;
    } else if stale > 0 {
        bail!("{stale} files are stale; run cargo xtask golden --record and read every change");
    }
    say(&format!("{cases} cases in {} files, kustomize {version}", paths.len()));
    Ok(())
}

/// What the engine answers, as the test asks it.
fn own_answer(case: &archive::Case<'_>, fixtures: &[File<'_>]) -> Result<Output, weir_kustomize::Error> {
    let tree: MemoryTree = case.input(fixtures).into_iter().collect();
    let options = Options { tree_name: "/case".to_owned(), ..Options::command_line() };
    build(&tree, case.setting("root").unwrap_or(""), &options)
}

/// A text without the addresses of memory the reference prints, which differ from run to run.
fn without_addresses(text: &str) -> String {
    const START: &str = "&{0x";
    let mut parts = text.split(START);
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        result.push_str(START);
        result.push('…');
        result.push_str(part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()));
    }
    result
}

/// The text of a file of cases with the answers of the reference.
fn recorded(text: &str, fixtures: &[File<'_>], cases: &mut usize) -> anyhow::Result<String> {
    let start = text.find("=== ").unwrap_or(text.len());
    let mut result = text[..start].to_owned();
    for case in archive::cases(&text[start..]) {
        *cases += 1;
        let scratch = tempfile::tempdir()?;
        unpack(&case.input(fixtures), scratch.path())?;
        let root = scratch.path().join(case.setting("root").unwrap_or("."));
        let answer = theirs(&root)?;
        let mut put = |text: &str| result.push_str(text);
        put("=== ");
        put(case.name);
        put("\n");
        put(case.head);
        for file in case.files.iter().filter(|file| !file.path.starts_with("want.")) {
            put(file.header);
            put(file.content);
        }
        match answer {
            Ok(output) => {
                put("-- want.yaml --\n");
                put(&output);
            }
            Err(error) => {
                let shown = scratch.path().to_string_lossy().into_owned();
                let canonical = scratch.path().canonicalize()?.to_string_lossy().into_owned();
                put("-- want.error --\n");
                // A crash of the reference ends with the state of its threads.
                let error = error.split("\n\ngoroutine ").next().unwrap_or_default();
                let place = |text: &str| {
                    without_addresses(&text.replace(&canonical, "/case").replace(&shown, "/case"))
                };
                put(&place(error));
                put("\n");
                if case.setting("phrase").is_some()
                    && let Err(own) = own_answer(&case, fixtures)
                {
                    put("-- want.ours --\n");
                    put(&own.to_string());
                    put("\n");
                }
            }
        }
    }
    Ok(result)
}
