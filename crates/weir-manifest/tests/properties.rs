//! What holds for any text and any value.

use proptest::prelude::*;
use serde_json::Value;
use weir_manifest::{
    ErrorKind, NodeLayout, ReadOptions, natural_order, read_documents, read_documents_with, read_nodes,
    to_yaml, to_yaml_stream, write_nodes,
};

/// Text of pieces that mean something to a YAML parser.
fn yaml_like() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z0-9]{1,3}",
        "[ ]{1,4}",
        "\n[ ]{0,4}",
        prop::sample::select(vec![
            "- ",
            ": ",
            "? ",
            ", ",
            "[",
            "]",
            "{",
            "}",
            "&x ",
            "*x",
            "!!str ",
            "!a ",
            "|\n",
            ">-\n",
            "'",
            "\"",
            "#c",
            " #c",
            "<<: ",
            "---\n",
            "...\n",
            "%YAML 1.1\n",
            "\t",
            "\r\n",
            "\\",
            "é",
            "\u{2028}",
            "\u{85}",
            "\u{feff}",
            "~",
            "0x",
            "1e3",
            "@",
            "`",
            "%",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-z0-9 ]{0,12}",
        "[ -~\n\t]{0,24}",
        // Line breaks of other scripts are not kept by the reference either.
        "[^\u{85}\u{2028}\u{2029}\u{FEFF}\u{0}-\u{8}\u{B}-\u{1F}]{0,12}",
        "[0-9_.eExob+:-]{1,8}",
        "([a-z]{1,9} ){1,30}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i32>().prop_map(|number| Value::from(f64::from(number) + 0.25)),
        text.clone().prop_map(Value::from),
    ];
    let key = text.prop_filter("a key << is a merge key when it is read again", |key| key != "<<");
    leaf.prop_recursive(5, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_bytes_make_the_readers_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = read_documents(&bytes, "");
        let _ = read_nodes(&bytes, "");
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in yaml_like()) {
        let _ = read_documents_with(text.as_bytes(), "", ReadOptions { strict: true });
        if let Ok(documents) = read_nodes(text.as_bytes(), "") {
            let _ = write_nodes(&documents, NodeLayout::FOUR);
        }
    }

    #[test]
    fn errors_have_a_place_inside_the_text(text in yaml_like()) {
        if let Err(error) = read_documents(text.as_bytes(), "a.yaml") {
            let lines = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
            prop_assert!((1..=lines + 1).contains(&error.line()), "{error}");
            prop_assert!(error.column() >= 1, "{error}");
            prop_assert!(error.to_string().starts_with("a.yaml:"), "{error}");
        }
    }

    #[test]
    fn what_is_written_reads_as_the_same(value in value()) {
        let text = to_yaml(&value);
        let read = read_documents_with(text.as_bytes(), "", ReadOptions { strict: true }).unwrap();
        prop_assert_eq!(&read, &[value], "{}", text);
    }

    #[test]
    fn documents_of_a_stream_stay_apart(values in prop::collection::vec(value(), 1..4)) {
        let text = to_yaml_stream(&values);
        prop_assert_eq!(read_documents_with(text.as_bytes(), "", ReadOptions::default()).unwrap(), values);
    }

    #[test]
    fn nodes_read_as_they_were_written(value in value()) {
        let text = to_yaml(&value);
        // With four columns the reference writes some blocks that nobody can read, and so do we.
        for layout in [NodeLayout::WIDE, NodeLayout::COMPACT] {
            let written = write_nodes(&read_nodes(text.as_bytes(), "").unwrap(), layout);
            prop_assert_eq!(&read_documents_with(written.as_bytes(), "", ReadOptions::default()).unwrap(), std::slice::from_ref(&value), "{}", written);
        }
    }

    #[test]
    fn the_order_of_keys_does_not_depend_on_the_side(left in "[a-c0-2._-]{0,6}", right in "[a-c0-2._-]{0,6}") {
        prop_assert_eq!(natural_order(&left, &right), natural_order(&right, &left).reverse());
    }
}

#[track_caller]
fn check_limit(text: &str, problem: &str) {
    let errors = [read_documents(text.as_bytes(), "").err(), read_nodes(text.as_bytes(), "").err()];
    for error in errors {
        let error = error.expect("the limit is exceeded");
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        assert_eq!(error.problem(), problem);
    }
}

#[test]
fn nesting_is_bounded() {
    let too_deep = "exceeded max depth of 1000";
    check_limit(&"[".repeat(100_000), too_deep);
    check_limit(&"{a: ".repeat(100_000), too_deep);
    check_limit(&"- ".repeat(100_000), too_deep);
    check_limit(&"? ".repeat(100_000), too_deep);
    let fine = "[".repeat(900) + &"]".repeat(900);
    assert_eq!(read_documents(fine.as_bytes(), "").unwrap().len(), 1);
}

#[test]
fn aliases_cannot_blow_a_document_up() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = level - 1;
        let items = vec![format!("*a{before}"); 9].join(", ");
        text.extend([format!("a{level}: &a{level} [{items}]\n")]);
    }
    let error = read_documents(text.as_bytes(), "bomb.yaml").unwrap_err();
    assert_eq!(error.to_string(), "bomb.yaml:4:25: document contains excessive aliasing");
    assert_eq!(error.kind(), ErrorKind::Limit);
    // Nodes keep aliases as they are.
    assert!(read_nodes(text.as_bytes(), "").is_ok());
}

#[test]
fn anchors_cannot_keep_or_repeat_much_text() {
    let long = "x".repeat(1 << 20);
    let repeated = format!("a: &a {long}\nb: [{}]\n", vec!["*a"; 500].join(", "));
    let error = read_documents(repeated.as_bytes(), "").expect_err("500 MiB of text");
    assert_eq!((error.kind(), error.problem()), (ErrorKind::Limit, "document contains excessive aliasing"));
    let anchors: Vec<String> = (0..500).map(|level| format!("&a{level} [")).collect();
    let nested = anchors.concat();
    let nested = format!("{nested}{long}{}", "]".repeat(500));
    let error = read_documents(nested.as_bytes(), "").expect_err("500 copies of 1 MiB");
    assert_eq!((error.kind(), error.problem()), (ErrorKind::Limit, "anchors keep too much text"));
}

#[test]
fn errors_name_file_line_and_column() {
    let error = read_documents("kind: A\n---\nkind: B\nspec: x: y\n".as_bytes(), "apps/b.yaml").unwrap_err();
    assert_eq!(error.to_string(), "apps/b.yaml:4:8: mapping values are not allowed in this context");
    assert_eq!(error.reference_text(), "yaml: line 4: mapping values are not allowed in this context");
    let error = read_documents("é: 'é\n".as_bytes(), "").unwrap_err();
    assert_eq!(error.to_string(), "line 2, column 1: found unexpected end of stream");
    let error = read_documents(b"a: b\nc: \xFF\n", "c.yaml").unwrap_err();
    assert_eq!(
        (error.to_string(), error.kind()),
        ("c.yaml:2:4: invalid leading UTF-8 octet".to_owned(), ErrorKind::Encoding)
    );
    let error = read_documents("a: {{ x }}\n".as_bytes(), "t.yaml").unwrap_err();
    assert_eq!(
        error.to_string(),
        "t.yaml:1:5: invalid map key: a mapping cannot be a key; text that begins with '{' must be quoted"
    );
}

#[test]
fn utf16_with_a_byte_order_mark_is_text_too() {
    let mut bytes = vec![0xFF, 0xFE];
    bytes.extend("a: é😀\n".encode_utf16().flat_map(u16::to_le_bytes));
    assert_eq!(read_documents(&bytes, "").unwrap(), [serde_json::json!({"a": "é😀"})]);
}
