//! The engine gives what the reference was recorded to give; see `cargo xtask golden`.

#[path = "golden/archive.rs"]
#[expect(unreachable_pub, reason = "shared with xtask")]
mod archive;

use std::path::Path;

use weir_base::tree::MemoryTree;
use weir_kustomize::{Options, build};

#[test]
fn every_case_answers_as_recorded() {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let fixtures = read(&directory.join("fixtures.txtar"));
    let fixtures = archive::files(&fixtures);
    let mut count = 0;
    let mut failures = Vec::new();
    let mut paths: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name == "fixtures.txtar" || path.extension().is_none_or(|extension| extension != "txtar") {
            continue;
        }
        let text = read(&path);
        for case in archive::cases(&text) {
            count += 1;
            if let Err(failure) = check(&case, &fixtures) {
                failures.push(format!("{name}: {}\n{failure}", case.name));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases:\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(count >= 300, "only {count} cases were found");
}

/// The recorded answer of a case.
fn answer<'a>(case: &archive::Case<'a>, path: &str) -> Option<&'a str> {
    case.files.iter().find(|file| file.path == path).map(|file| file.content)
}

fn check(case: &archive::Case<'_>, fixtures: &[archive::File<'_>]) -> Result<(), String> {
    let tree: MemoryTree = case.input(fixtures).into_iter().collect();
    let options = Options { tree_name: "/case".to_owned(), ..Options::command_line() };
    let built = build(&tree, case.setting("root").unwrap_or(""), &options)
        .map(|output| output.to_yaml())
        .map_err(|error| error.to_string());
    match (built, answer(case, "want.yaml"), answer(case, "want.error")) {
        (Ok(got), Some(want), None) if got == want => Ok(()),
        (Ok(got), Some(want), None) => Err(format!("--- want\n{want}\n--- got\n{got}")),
        (Err(got), None, Some(want)) => {
            // Where the reference prints addresses or its own types, the case names the telling part.
            let same = case.setting("phrase").map_or_else(
                || got.trim_end() == want.trim_end(),
                |phrase| got.contains(phrase) && want.contains(phrase),
            );
            if same { Ok(()) } else { Err(format!("--- want error\n{want}\n--- got error\n{got}")) }
        }
        (got, ..) => Err(format!("--- recorded otherwise\n--- got\n{got:?}")),
    }
}
