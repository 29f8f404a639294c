use serde_json::json;
use weir_api::common::ValuesSourceKind;

use super::*;

fn reference(path: Option<&str>, literal: bool) -> ValuesReference {
    ValuesReference {
        kind: ValuesSourceKind::Secret,
        literal,
        name: "values".to_owned(),
        optional: false,
        target_path: path.map(ToOwned::to_owned),
        values_key: None,
    }
}

fn data(text: &str) -> Found {
    Found::Data(text.as_bytes().to_vec())
}

/// Rows of path (empty for a whole file) and text.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
fn check(inline: Json, references: &[(&str, &str)], expected: Json) {
    let references: Vec<_> = references
        .iter()
        .map(|(path, text)| (reference((!path.is_empty()).then_some(*path), false), data(text)))
        .collect();
    let composed = compose("apps", Some(&inline), &references).unwrap();
    let floats = values_with_floats(expected.as_object().unwrap().clone());
    let composed = values_with_floats(composed);
    assert_eq!(composed, floats);
}

#[test]
fn later_files_win_and_the_spec_wins_over_all() {
    check(
        json!({"a": 3}),
        &[("", "a: 1\nb: 1\nc: {d: 1}"), ("", "b: 2\nc: {e: 2}")],
        json!({"a": 3, "b": 2, "c": {"d": 1, "e": 2}}),
    );
    check(json!({"a": null}), &[("", "a: 1")], json!({"a": null}));
    check(json!({"a": [1]}), &[("", "a: [1, 2, 3]")], json!({"a": [1]}));
    check(json!({"a": 1}), &[("", "a: {b: 1}")], json!({"a": 1}));
}

#[test]
fn a_path_wins_over_the_spec_only_where_its_table_is_shared() {
    check(json!({"a": 1}), &[("a", "x")], json!({"a": 1}));
    check(json!({"a": {"b": 1}}), &[("a.b", "x")], json!({"a": {"b": "x"}}));
    check(json!({"a": {"b": 1}}), &[("", "a: {c: 2}"), ("a.b", "x")], json!({"a": {"b": 1, "c": 2}}));
    check(json!({"m": {"l": ["p", "q"]}}), &[("m.l[0]", "x")], json!({"m": {"l": ["x", "q"]}}));
    check(json!({"m": {"l": ["p"]}}), &[("m.l[2]", "x")], json!({"m": {"l": ["p", null, "x"]}}));
    check(json!({}), &[("a.b", "x")], json!({"a": {"b": "x"}}));
}

#[test]
fn a_file_after_a_path_wins_over_it() {
    check(json!({}), &[("a", "x"), ("", "a: z")], json!({"a": "z"}));
}

#[test]
fn values_of_paths_are_typed_unless_quoted() {
    check(
        json!({}),
        &[("a", "true"), ("b", "7"), ("c", "007"), ("d", "1.5"), ("e", "null")],
        json!({"a": true, "b": 7, "c": "007", "d": "1.5", "e": null}),
    );
    check(json!({}), &[("a", "'true'"), ("b", "\"7\"")], json!({"a": "true", "b": "7"}));
    check(json!({}), &[("a", "{x,1}")], json!({"a": ["x", 1]}));
    check(json!({}), &[("a", "true\n")], json!({"a": "true\n"}));
}

#[test]
fn literal_values_stay_as_they_are() {
    let text = "a,b\\c[0]{d}";
    let references = [(reference(Some("x.y"), true), data(text))];
    let composed = compose("apps", None, &references).unwrap();
    assert_eq!(Json::Object(composed), json!({"x": {"y": text}}));
}

#[test]
fn errors_name_the_reference() {
    let failing = [(reference(Some("a"), false), data("a,b"))];
    assert_eq!(
        compose("apps", None, &failing).unwrap_err().to_string(),
        "could not resolve Secret chart values reference 'apps/values' with key 'values.yaml': key \"b\" has no value"
    );
    let broken =
        ValuesReference { optional: true, values_key: Some("k".to_owned()), ..reference(None, false) };
    let error = compose("apps", None, &[(broken, data("a: ["))]).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "could not resolve optional Secret chart values reference 'apps/values' with key 'k': "
        ),
        "{error}"
    );
}

#[test]
fn what_is_optional_and_missing_is_left_out() {
    let references = [(reference(None, false), Found::Nothing), (reference(None, false), data("a: 1"))];
    assert_eq!(Json::Object(compose("apps", None, &references).unwrap()), json!({"a": 1.0}));
}
