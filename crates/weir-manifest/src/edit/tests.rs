use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[track_caller]
fn check(text: &str, path: &str, words: &str, expected: &str) {
    let all = scalars(text.as_bytes(), "a.yaml").unwrap();
    let scalar = all.iter().find(|scalar| path_text(&scalar.path) == path);
    let scalar =
        scalar.unwrap_or_else(|| panic!("no {path} among {:?}", all.iter().map(|s| path_text(&s.path))));
    let edited = replace_scalars(text.as_bytes(), &[(scalar, words)], "a.yaml").unwrap();
    assert_eq!(String::from_utf8(edited).unwrap(), expected);
}

#[test]
fn a_plain_scalar_stays_plain_if_it_stays_a_string() {
    check("image: nginx:1.0 # c\n", "image", "nginx:1.1", "image: nginx:1.1 # c\n");
    check("tag: 1.0.0\n", "tag", "1.10", "tag: \"1.10\"\n");
    check("tag: v1\n", "tag", "on", "tag: \"on\"\n");
    check("tag: v1\n", "tag", "", "tag: \"\"\n");
    check("tag: v1\n", "tag", "a: b", "tag: 'a: b'\n");
    check("tag: v1\n", "tag", "a\nb", "tag: \"a\\nb\"\n");
    check("tag: a\n  b\nx: 1\n", "tag", "c", "tag: c\nx: 1\n");
}

#[test]
fn quotes_are_kept() {
    check("a: 'x'\n", "a", "y", "a: 'y'\n");
    check("a: 'x'\n", "a", "it's", "a: 'it''s'\n");
    check("a: 'x'\n", "a", "a\tb", "a: \"a\\tb\"\n");
    check("a: \"x\"\n", "a", "say \"y\"", "a: \"say \\\"y\\\"\"\n");
    check("a: \"x\"\n", "a", "1", "a: \"1\"\n");
}

#[test]
fn everything_around_stays() {
    let before = "\u{FEFF}# head\r\n\r\n---\r\na:   1   # one\r\n\r\nb:\r\n    -   'x'   # two\r\n...\r\n";
    let after = "\u{FEFF}# head\r\n\r\n---\r\na:   1   # one\r\n\r\nb:\r\n    -   'y'   # two\r\n...\r\n";
    check(before, "b[0]", "y", after);
    check("a: &x 1\nb: *x\n", "a", "v", "a: &x v\nb: *x\n");
    check("a: !!str &x 1\n", "a", "2", "a: !!str &x \"2\"\n");
    check("{a: [1, b ], c: d}\n", "a[1]", "x, y", "{a: [1, 'x, y' ], c: d}\n");
    check("{\"a\": \"b\"}\n", "a", "c", "{\"a\": \"c\"}\n");
}

#[test]
fn nothing_becomes_something() {
    check("a:\nb: 1\n", "a", "x", "a: x\nb: 1\n");
    check("a: # c\n", "a", "x", "a: x # c\n");
    check("a:\n-\n- b\n", "a[0]", "x", "a:\n- x\n- b\n");
    check("a: ~\n", "a", "x", "a: x\n");
}

#[test]
fn blocks_stay_blocks_where_they_can() {
    check("a: |\n    x\n    y\n\nb: 1\n", "a", "z\n\nw\n", "a: |\n    z\n\n    w\n\nb: 1\n");
    check("a: |- # c\n  x\nb: 1\n", "a", "z", "a: |- # c\n  z\nb: 1\n");
    check("a: |- # c\n  x\nb: 1\n", "a", "z\n", "a: \"z\\n\" # c\nb: 1\n");
    check("a: >\n  x\n  y\n", "a", "z", "a: z\n");
    check("a: |\r\n  x\r\nb: 1\r\n", "a", "z\n", "a: |\r\n  z\r\nb: 1\r\n");
    check("a: |\n  x", "a", "z", "a: z");
}

#[test]
fn comments_are_found_beside_and_above() {
    let text = "a: x # {\"k\": \"v\"}\nb:\n  # one\n  #  two\n  - y\n  # three\n  - z # four\nc: [p, # five\n  q]  # six\nd: | # seven\n  t\n";
    let all = scalars(text.as_bytes(), "").unwrap();
    let comment = |path: &str| {
        let scalar = all.iter().find(|scalar| path_text(&scalar.path) == path).unwrap();
        (scalar.line_comment.clone().unwrap_or_default(), scalar.head_comment.join("|"))
    };
    assert_eq!(comment("a"), ("{\"k\": \"v\"}".to_owned(), String::new()));
    assert_eq!(comment("b[0]"), (String::new(), "one|two".to_owned()));
    assert_eq!(comment("b[1]"), ("four".to_owned(), "three".to_owned()));
    assert_eq!(comment("c[0]"), ("five".to_owned(), String::new()));
    assert_eq!(comment("c[1]"), (String::new(), String::new()));
    assert_eq!(comment("d"), ("seven".to_owned(), String::new()));
}

#[test]
fn scalars_of_several_documents_and_equal_keys_are_told_apart() {
    let text = b"a: 1\n---\na: 2\na: 3\n";
    let all = scalars(text, "").unwrap();
    let places: Vec<_> = all.iter().map(|s| (s.document, s.line, s.column, s.value.as_str())).collect();
    assert_eq!(places, [(0, 1, 4, "1"), (1, 3, 4, "2"), (1, 4, 4, "3")]);
    let edited = replace_scalars(text, &[(&all[2], "x"), (&all[0], "w")], "").unwrap();
    assert_eq!(edited, b"a: w\n---\na: 2\na: x\n");
    let edited = replace_at(text, 1, &[Step::Key("a".to_owned())], "z", "").unwrap();
    assert_eq!(edited, b"a: 1\n---\na: z\na: 3\n");
}

#[test]
fn impossible_edits_are_refused() {
    let text = b"{a}\n";
    let all = scalars(text, "").unwrap();
    let error = replace_scalars(text, &[(&all[0], "x")], "a.yaml").unwrap_err();
    assert_eq!(error.to_string(), "a.yaml:1:3: the scalar cannot be replaced in place");
    let error = replace_scalars(b"other: text\n", &[(&all[0], "x")], "a.yaml").unwrap_err();
    assert_eq!(error.to_string(), "a.yaml:1:3: the scalar to replace is not in this text");
    let error = replace_at(text, 0, &[Step::Key("b".to_owned()), Step::Item(1)], "x", "a.yaml").unwrap_err();
    assert_eq!(error.to_string(), "a.yaml: no scalar at 'b[1]'");
    let error = scalars(b"a: [\n", "a.yaml").unwrap_err();
    assert_eq!(error.to_string(), "a.yaml:2:1: did not find expected node content");
}

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a-z ]{0,12}", "\\PC{0,8}", "[ -~\n\t#:'\"-]{0,20}"];
    let leaf = prop_oneof![text.prop_map(Value::from), any::<i32>().prop_map(Value::from), Just(Value::Null)];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z1#:]{1,4}", inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn only_the_bytes_of_the_scalar_change(value in value(), words in "\\PC{0,12}|[ -~\n\t]{0,20}", pick: prop::sample::Index) {
        let text = crate::to_yaml(&value);
        let all = scalars(text.as_bytes(), "").unwrap();
        prop_assume!(!all.is_empty());
        let scalar = pick.get(&all);
        let edited = replace_scalars(text.as_bytes(), &[(scalar, &words)], "").unwrap();
        prop_assert!(edited.starts_with(&text.as_bytes()[..scalar.bytes.start]));
        prop_assert!(edited.ends_with(&text.as_bytes()[scalar.bytes.end..]));
        let new = scalars(&edited, "").unwrap();
        let place = all.iter().position(|other| other == scalar).unwrap();
        prop_assert_eq!(&new[place].value, &words);
        // A string stays a string for readers of YAML 1.1.
        let reread = crate::read_first_document(&edited, "", crate::ReadOptions::default()).unwrap();
        let mut at = &reread;
        for step in &scalar.path {
            at = match step {
                Step::Key(key) => &at[key],
                Step::Item(number) => &at[number],
            };
        }
        prop_assert!(at.is_string() || words == scalar.value, "{at}");
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-c:\\[\\]{}&*!|>'\"#\n -]{0,40}", words in "\\PC{0,5}") {
        if let Ok(all) = scalars(text.as_bytes(), "") {
            for scalar in &all {
                if let Ok(edited) = replace_scalars(text.as_bytes(), &[(scalar, &words)], "") {
                    prop_assert!(edited.starts_with(&text.as_bytes()[..scalar.bytes.start]));
                    prop_assert!(edited.ends_with(&text.as_bytes()[scalar.bytes.end..]));
                }
            }
        }
    }
}
