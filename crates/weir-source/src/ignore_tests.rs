use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(lines: &str, path: &str, is_directory: bool, excluded: bool) {
    let rules = Rules::assemble([("", lines)], None);
    assert_eq!(rules.excludes(path, is_directory), excluded, "{lines:?} {path}");
}

#[test]
fn names_match_any_component() {
    check("foo", "foo", false, true);
    check("foo", "a/foo", false, true);
    check("foo", "foo/a/b", false, true);
    check("foo", "foobar", false, false);
    check("*.md", "docs/README.md", false, true);
    check("foo/", "foo", false, false);
    check("foo/", "foo", true, true);
    check("foo/", "a/foo/b", false, true);
}

#[test]
fn paths_match_from_their_directory() {
    check("/foo", "foo", false, true);
    check("/foo", "a/foo", false, false);
    check("a/b", "a/b/c/d", false, true);
    check("a/b", "x/a/b", false, false);
    check("a/*/c", "a/b/c", false, true);
    check("a/*/c", "a/b/x/c", false, false);
    check("a/b/", "a/b", false, false);
    check("a/b/", "a/b/c", false, true);
}

#[test]
fn double_stars() {
    check("**/foo", "a/b/foo", false, true);
    check("**/foo", "foo", false, true);
    check("a/**/z", "a/b/c/z", false, true);
    check("a/**/z", "a/z", false, true);
    check("foo/**", "foo/a", false, true);
    check("foo/**", "bar/a", false, false);
    check("a/b**", "a/bc", false, false);
    check("**/a/b", "a/x/a/b", false, false);
}

#[test]
fn the_last_match_decides_and_files_can_be_taken_back() {
    let lines = "/*\n!/deploy\n";
    check(lines, "README.md", false, true);
    check(lines, "deploy/app.yaml", false, false);
    check("foo\n!foo/keep", "foo/keep", false, false);
    check("foo\n!foo/keep", "foo/other", false, true);
}

#[test]
fn lines() {
    check("# foo\n\n  \n", "foo", false, false);
    check("foo   ", "foo", false, true);
    check("foo\\ ", "foo ", false, true);
    check(" foo", "foo", false, false);
    check("foo\r\nbar", "foo", false, true);
    check("\\#foo", "#foo", false, true);
    check("\\!foo", "!foo", false, true);
}

#[test]
fn shell_patterns() {
    for (pattern, name, expected) in [
        ("a*c", "abbc", true),
        ("*", "", true),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXbYbZ", false),
        ("?", "ä", true),
        ("?", "", false),
        ("[a-c]x", "bx", true),
        ("[^a-c]x", "bx", false),
        ("[!a]x", "bx", false),
        ("[]a]", "]", false),
        ("[\\]]", "]", true),
        ("[a", "a", false),
        ("a[", "a", false),
        ("\\*", "*", true),
        ("\\*", "x", false),
        ("\\", "\\", false),
        ("*.tar.gz", "x.tar.gz", true),
    ] {
        assert_eq!(glob(pattern, name), expected, "{pattern} {name}");
    }
}

#[test]
fn defaults_apply_only_without_own_patterns() {
    let none = Rules::assemble([], None);
    let comment = Rules::assemble([("", "# nothing")], Some(""));
    assert_eq!(none, comment);
    for path in [".git/config", "a/.gitignore", "logo.png", ".github/x.yml", "a/.sops.yaml"] {
        assert!(none.excludes(path, false), "{path}");
    }
    assert!(!none.excludes(".sourceignore", false));
    let nested = Rules::assemble([("deep/er", "x")], None);
    assert!(!nested.excludes("logo.png", false));
    assert!(nested.excludes(".gitignore", false));
    assert!(nested.excludes("deep/er/x", false));
    assert!(!nested.excludes("deep/x", false));
    assert!(!nested.excludes("deep/error/x", false));
    let taken_back = Rules::assemble([], Some("!.gitignore"));
    assert!(!taken_back.excludes(".gitignore", false));
}

#[test]
fn the_specification_wins_over_files_and_deeper_files_over_higher_ones() {
    let rules = Rules::assemble([("", "*.yaml"), ("a", "!keep.yaml")], Some("/a/b.yaml\n!/c.yaml"));
    assert!(rules.excludes("x.yaml", false));
    assert!(!rules.excludes("a/keep.yaml", false));
    assert!(rules.excludes("keep.yaml", false));
    assert!(rules.excludes("a/b.yaml", false));
    assert!(!rules.excludes("c.yaml", false));
}

proptest! {
    #[test]
    fn any_pattern_and_path_give_an_answer(
        lines in "[a-c*?!/\\[\\]^\\-\\\\ .#\n]{0,40}", path in "[a-c.]{1,3}(/[a-c.]{1,3}){0,3}"
    ) {
        let _ = Rules::assemble([("", lines.as_str())], None).excludes(&path, false);
    }
}
