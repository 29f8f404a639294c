use weir_base::error::chain;

use super::*;

fn tree(entries: &[(&str, &str)]) -> Arc<MemoryTree> {
    let files = entries.iter().map(|(path, text)| ((*path).to_owned(), Bytes::from((*text).to_owned())));
    Arc::new(files.collect())
}

fn sources() -> Sources {
    let git = tree(&[
        ("README.md", "# docs"),
        ("apps/db/kustomization.yaml", "db"),
        ("apps/web/README.md", "web docs"),
        ("apps/web/kustomization.yaml", "web"),
        ("apps/web/test/x.yaml", "test"),
        ("values.yaml", "a: 1\nb: {c: [1, 2], d: 1}\n"),
    ]);
    let over =
        tree(&[("list.yaml", "- 1\n"), ("values.yaml", "b: {c: [3], e: 2}\n---\nb: {e: 5}\nz: null\n")]);
    [("git".to_owned(), git), ("over".to_owned(), over)].into()
}

fn operation(from: &str, to: &str) -> CopyOperation {
    CopyOperation { from: from.to_owned(), to: to.to_owned(), ..CopyOperation::default() }
}

fn excluding(from: &str, to: &str, exclude: &[&str]) -> CopyOperation {
    CopyOperation { exclude: exclude.iter().map(|one| (*one).to_owned()).collect(), ..operation(from, to) }
}

fn with(strategy: CopyStrategy, from: &str, to: &str) -> CopyOperation {
    CopyOperation { strategy: Some(strategy), ..operation(from, to) }
}

/// The paths that result, with what is in them.
fn copied(operations: &[CopyOperation]) -> Result<Vec<String>, String> {
    let tree = apply(operations, &sources()).map_err(|error| chain(&error))?;
    Ok(tree.files().map(|(path, file)| format!("{path}={}", String::from_utf8_lossy(&file.data))).collect())
}

#[track_caller]
fn check(operations: &[CopyOperation], expected: &[&str]) {
    assert_eq!(copied(operations).unwrap(), expected);
}

#[track_caller]
fn refused(operation: CopyOperation, expected: &str) {
    let (from, to) = (operation.from.clone(), operation.to.clone());
    let error = copied(&[operation]).unwrap_err();
    assert_eq!(error, format!("failed to apply copy operation from '{from}' to '{to}': {expected}"));
}

#[test]
fn files_are_copied_as_cp_does() {
    check(&[operation("@git/README.md", "@artifact/docs.md")], &["docs.md=# docs"]);
    check(&[operation("@git/README.md", "@artifact/docs/")], &["docs/README.md=# docs"]);
    check(&[operation("@git/README.md", "@artifact/")], &["README.md=# docs"]);
    check(
        &[operation("@git/apps/db", "@artifact/x"), operation("@git/README.md", "@artifact/x")],
        &["x/README.md=# docs", "x/db/kustomization.yaml=db"],
    );
    // The last one wins.
    check(
        &[
            operation("@git/README.md", "@artifact/a"),
            operation("@git/apps/db/kustomization.yaml", "@artifact/a"),
        ],
        &["a=db"],
    );
}

#[test]
fn directories_keep_their_name_and_globs_their_path() {
    check(&[operation("@git/apps/db/", "@artifact/")], &["db/kustomization.yaml=db"]);
    check(&[operation("@git/apps/db/**", "@artifact/x")], &["x/kustomization.yaml=db"]);
    check(&[operation("@git/apps/d*", "@artifact/x")], &["x/apps/db/kustomization.yaml=db"]);
    check(&[operation("@git/*.md", "@artifact/")], &["README.md=# docs"]);
    assert_eq!(copied(&[operation("@git/", "@artifact/")]).unwrap().len(), 6);
    assert_eq!(copied(&[operation("@git/**", "@artifact/all")]).unwrap().len(), 6);
}

#[test]
fn what_is_excluded() {
    check(&[excluding("@git/apps/web", "@artifact/", &["*.md", "test/**"])], &["web/kustomization.yaml=web"]);
    check(&[excluding("@git/apps/**", "@artifact/", &["apps/web"])], &["db/kustomization.yaml=db"]);
    check(&[excluding("@git/README.md", "@artifact/", &["**/*.{md,txt}"])], &[]);
    refused(
        excluding("@git/*.md", "@artifact/", &["README*"]),
        "all files matching pattern '*.md' in source 'git' were excluded",
    );
    refused(
        excluding("@git/*.md", "@artifact/", &["[a"]),
        "invalid exclude pattern '[a': syntax error in pattern",
    );
}

#[test]
fn values_are_merged() {
    let first = operation("@git/values.yaml", "@artifact/");
    check(
        &[first.clone(), with(CopyStrategy::Merge, "@over/values.yaml", "@artifact/values.yaml")],
        &["values.yaml=a: 1\nb:\n  c:\n  - 3\n  d: 1\n  e: 5\nz: null\n"],
    );
    // Nothing to merge with: copied.
    check(&[with(CopyStrategy::Merge, "@git/README.md", "@artifact/values.yaml")], &["values.yaml=# docs"]);
    refused(with(CopyStrategy::Merge, "@nowhere/x", "@artifact/"), "source alias 'nowhere' not found");
    let error = copied(&[first, with(CopyStrategy::Merge, "@over/list.yaml", "@artifact/values.yaml")]);
    assert!(error.unwrap_err().ends_with("failed to merge 'list.yaml': cannot unmarshal YAML document"));
}

#[test]
fn archives_are_extracted() {
    let chart =
        weir_artifact::archive::archive_tree(&tree(&[("chart/Chart.yaml", "name: c"), ("chart/x/y", "z")]));
    let mut all = sources();
    let mut charts = MemoryTree::new();
    charts.insert("deep/er/chart.TGZ", File { data: chart.unwrap(), executable: false }).unwrap();
    charts.insert("deep/notes.txt", File { data: Bytes::from_static(b"x"), executable: false }).unwrap();
    all.insert("charts".to_owned(), Arc::new(charts));
    let paths = |operation| {
        apply(&[operation], &all)
            .map(|tree| tree.files().map(|(path, _)| path.to_owned()).collect::<Vec<_>>())
            .map_err(|error| chain(&error))
    };
    let extract = |from, to| paths(with(CopyStrategy::Extract, from, to));
    let expected = ["out/chart/Chart.yaml", "out/chart/x/y"];
    assert_eq!(extract("@charts/**/*", "@artifact/out").unwrap(), expected);
    assert_eq!(extract("@charts/deep/er/chart.TGZ", "@artifact/out/").unwrap(), expected);
    let error = extract("@charts/deep/notes.txt", "@artifact/").unwrap_err();
    assert!(
        error.ends_with("extract strategy requires tarball file (.tar.gz or .tgz), got 'deep/notes.txt'")
    );
    let error = extract("@charts/deep", "@artifact/").unwrap_err();
    assert!(error.ends_with("extract strategy is not supported for directories, got 'deep'"), "{error}");
}

#[test]
fn nothing_leaves_its_root() {
    refused(operation("@git/../x", "@artifact/"), "source '../x' leads out of the source directory");
    refused(operation("@git/no", "@artifact/"), "source 'no' does not exist");
    refused(
        operation("@git/README.md", "@artifact/../x"),
        "invalid copy destination '@artifact/../x': destination path must stay within the artifact root",
    );
    refused(
        operation("@git/README.md", "@artifact/a/../../x"),
        "invalid copy destination '@artifact/a/../../x': destination path must stay within the artifact root",
    );
    refused(operation("@git/no*", "@artifact/"), "no files match pattern 'no*' in source 'git'");
    refused(operation("@git/[", "@artifact/"), "invalid glob pattern '[': syntax error in pattern");
    let below_file =
        [operation("@git/README.md", "@artifact/a"), operation("@git/README.md", "@artifact/a/b")];
    assert!(copied(&below_file).unwrap_err().ends_with("a file and a directory have the same path"));
}
