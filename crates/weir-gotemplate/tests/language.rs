//! The template language: parsing, scoping, truth, errors.

use weir_gotemplate::{Execution, FixedHost, Functions, Limits, MissingKey, Options, Set, Value};

fn render_with(source: &str, data: &Value, missing_key: MissingKey) -> Result<String, String> {
    let mut set = Set::new(Functions::helm());
    set.parse("t", source).map_err(|error| error.to_string())?;
    let options = Options { missing_key, ..Options::default() };
    let mut execution = Execution::new(set, Box::new(FixedHost::default()), options);
    execution
        .execute("t", data)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .map_err(|error| error.to_string())
}

fn data() -> Value {
    Value::map([
        ("n", Value::Float(3.0)),
        ("s", Value::from("text")),
        ("l", Value::list(vec![Value::Float(1.0), Value::from("two"), Value::Nil])),
        ("m", Value::map([("b", Value::Float(1.0)), ("a", Value::Float(2.0))])),
        ("f", Value::Bool(false)),
    ])
}

#[track_caller]
fn check(source: &str, expected: &str) {
    assert_eq!(render_with(source, &data(), MissingKey::Zero).as_deref(), Ok(expected), "{source}");
}

#[track_caller]
fn check_error(source: &str, expected: &str) {
    let error = render_with(source, &data(), MissingKey::Zero).expect_err(source);
    assert_eq!(error, expected, "{source}");
}

#[test]
fn text_is_trimmed_only_around_marked_delimiters() {
    check("a {{- \" b \" -}} c", "a b c");
    check("a {{ 1 }} b", "a 1 b");
    check("a\n{{- /* note */ -}}\nb", "ab");
    check("{{-3}}", "-3");
    check("x{{/* a\nb */}}y", "xy");
}

#[test]
fn variables_are_scoped_to_their_block() {
    check("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2");
    check("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1");
    check("{{ $x := 1 }}{{ $x := print $x 2 }}{{ $x }}", "1 2");
    check("{{ range $i, $e := .l }}{{ $i }}={{ $e }};{{ end }}", "0=1;1=two;2=<no value>;");
    check("{{ range $k, $v := .m }}{{ $k }}={{ $v }};{{ end }}", "a=2;b=1;");
    check("{{ with $y := .s }}{{ $y }}{{ . }}{{ $.n }}{{ end }}", "texttext3");
}

#[test]
fn control_flow() {
    check("{{ range .l }}{{ if eq (print .) \"two\" }}{{ break }}{{ end }}{{ . }}{{ end }}", "1");
    check("{{ range 3 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ . }}{{ end }}", "02");
    check("{{ if .f }}a{{ else if .n }}b{{ else }}c{{ end }}", "b");
    check("{{ with .x }}a{{ else with .s }}{{ . }}{{ else }}c{{ end }}", "text");
    check("{{ range .missing }}a{{ else }}none{{ end }}", "none");
    check("{{ block \"b\" .s }}<{{ . }}>{{ end }}{{ template \"b\" .n }}", "<text><3>");
}

#[test]
fn missing_values_and_parentheses() {
    check("{{ .x }}|{{ (.a).b }}", "<no value>|<no value>");
    check("{{ and true \"\" \"x\" }}|{{ or \"\" \"x\" }}|{{ not .f }}", "|x|true");
    check("{{ print 1 2 \"a\" 3 }}{{ printf \"%d %s\" .n .x }}", "1 2a3%!d(float64=3) %!s(<nil>)");
    assert_eq!(
        render_with("{{ .x }}", &data(), MissingKey::Error).unwrap_err(),
        "template: t:1:3: executing \"t\" at <.x>: map has no entry for key \"x\""
    );
}

#[test]
fn execution_errors_say_where() {
    check_error(
        "{{ .a.b }}",
        "template: t:1:5: executing \"t\" at <.a.b>: nil pointer evaluating interface {}.b",
    );
    check_error(
        "a\n {{ .s.b }}",
        "template: t:2:6: executing \"t\" at <.s.b>: can't evaluate field b in type interface {}",
    );
    check_error(
        "{{ range .n }}{{ end }}",
        "template: t:1:9: executing \"t\" at <.n>: range can't iterate over 3",
    );
    check_error(
        "{{ template \"q\" . }}",
        "template: t:1:12: executing \"t\" at <{{template \"q\" .}}>: template \"q\" not defined",
    );
    check_error(
        "{{ index .l 9 }}",
        "template: t:1:3: executing \"t\" at <index .l 9>: error calling index: index out of range: 9",
    );
    check_error(
        "{{ printf .n }}",
        "template: t:1:10: executing \"t\" at <.n>: wrong type for value; expected string; got float64",
    );
    check_error(
        "{{ eq .n 1 }}",
        "template: t:1:3: executing \"t\" at <eq .n 1>: error calling eq: incompatible types for comparison: float64 and int",
    );
}

#[test]
fn parse_errors_say_where() {
    check_error("{{ if true }}", "template: t:1: unexpected EOF");
    check_error("{{ nope }}", "template: t:1: function \"nope\" not defined");
    check_error("\n{{ $x }}", "template: t:2: undefined variable \"$x\"");
    check_error("{{ .a-b }}", "template: t:1: bad character U+002D '-'");
    check_error("{{ 1 | 2 }}", "template: t:1: non executable command in pipeline stage 2");
    check_error("{{ \"a }}", "template: t:1: unterminated quoted string");
    check_error("{{ break }}", "template: t:1: {{break}} outside {{range}}");
    check_error("{{ /* c */ }}", "template: t:1: unexpected \"/\" in command");
    check_error("{{end}}", "template: t:1: unexpected {{end}}");
}

#[test]
fn limits_end_endless_templates() {
    let error = render_with(
        "{{ define \"r\" }}{{ template \"r\" . }}{{ end }}{{ template \"r\" . }}",
        &data(),
        MissingKey::Zero,
    )
    .unwrap_err();
    assert!(error.contains("exceeded maximum template depth (20000)"), "{error}");
    let mut set = Set::new(Functions::helm());
    set.parse("t", "{{ range 9999999999 }}{{ end }}").unwrap();
    let limits = Limits { steps_max: 10_000, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let mut execution = Execution::new(set, Box::new(FixedHost::default()), options);
    let error = execution.execute("t", &data()).unwrap_err();
    assert!(error.text().contains("exceeds the limit of 10000 steps"), "{error}");
}
