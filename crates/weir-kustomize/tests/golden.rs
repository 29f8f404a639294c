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
            // Where the reference prints addresses or its own types, the case names the telling part, and our text
            // stands beside it.
            let same = match case.setting("phrase") {
                None => got.trim_end() == want.trim_end(),
                Some(phrase) => {
                    got.contains(phrase)
                        && want.contains(phrase)
                        && answer(case, "want.ours").is_some_and(|ours| got.trim_end() == ours.trim_end())
                }
            };
            if same { Ok(()) } else { Err(format!("--- want error\n{want}\n--- got error\n{got}")) }
        }
        (got, ..) => Err(format!("--- recorded otherwise\n--- got\n{got:?}")),
    }
}

/// Controllers read files outside of the kustomization's directory, never outside of the artifact (cases 38 and 154 of
/// the behaviour list).
#[test]
fn controllers_stay_in_their_tree() {
    let check = |kustomization: &str| {
        let tree: MemoryTree = [
            ("a/b/kustomization.yaml", kustomization),
            ("a/b/r.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: r}\n"),
            ("shared/patch.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: r}\ndata: {k: v}\n"),
        ]
        .map(|(path, text)| (path, text.to_owned()))
        .into_iter()
        .collect();
        let options = Options { tree_name: "/source".to_owned(), ..Options::default() };
        build(&tree, "a/b", &options).map(|output| output.to_yaml()).map_err(|error| error.to_string())
    };
    let patched = check("resources: [r.yaml]\npatches: [{path: ../../shared/patch.yaml}]\n").unwrap();
    assert!(patched.contains("k: v"), "{patched}");
    for resource in ["../../../x.yaml", "../../../other", "/etc/passwd"] {
        let error = check(&format!("resources: ['{resource}']\n")).unwrap_err();
        assert!(error.contains("fs-security-constraint read /"), "{error}");
        assert!(error.contains("is not in or below '/source'"), "{error}");
    }
}
