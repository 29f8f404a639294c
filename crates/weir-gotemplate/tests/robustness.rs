//! Nothing a template or its data contains makes the engine panic, hang or grow without bound.

use proptest::prelude::*;
use weir_gotemplate::{Execution, FixedHost, Functions, Limits, Options, Set, Value, format, json, strconv};

fn render(source: &str, data: &Value) -> Result<Vec<u8>, String> {
    let mut set = Set::new(Functions::helm());
    set.parse("t", source).map_err(|error| error.to_string())?;
    let limits = Limits {
        steps_max: 20_000,
        produced_bytes_max: 4 << 20,
        value_bytes_max: 1 << 20,
        list_items_max: 10_000,
        template_levels_max: 500,
    };
    let options = Options { limits, ..Options::default() };
    let mut execution = Execution::new(set, Box::new(FixedHost::default()), options);
    execution.execute("t", data).map_err(|error| error.to_string())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int64),
        any::<f64>().prop_map(Value::Float),
        proptest::collection::vec(any::<u8>(), 0..8).prop_map(|bytes| Value::String(bytes.into())),
        "[a-z0-9 .:/%-]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::list),
            proptest::collection::vec(("[a-c]", inner), 0..4).prop_map(Value::map),
        ]
    })
}

/// Functions that only cost time here.
const SLOW: &[&str] = &[
    "genPrivateKey",
    "genCA",
    "genCAWithKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "bcrypt",
    "htpasswd",
    "derivePassword",
];

proptest! {
    #[test]
    fn any_text_parses_or_fails(source in "\\PC{0,40}|(\\{\\{[- ]?[a-z.$()|:=\" 0-9]{0,20}[ -]?\\}\\}){0,4}") {
        let _ = render(&source, &Value::Nil);
    }

    #[test]
    fn any_function_takes_any_value(
        index in 0..10_000_usize,
        arguments in proptest::collection::vec(value(), 0..5),
    ) {
        let functions = Functions::helm();
        let mut names: Vec<&str> = functions.names().filter(|name| !SLOW.contains(name)).collect();
        names.sort_unstable();
        let name = names[index % names.len()];
        let count = arguments.len();
        let data = Value::list(arguments);
        let call = (0..count).map(|at| format!(" (index . {at})")).collect::<Vec<_>>().concat();
        let _ = render(&format!("{{{{ {name}{call} }}}}"), &data);
        let _ = render(&format!("{{{{ range . }}}}{{{{ . | {name} }}}}{{{{ end }}}}"), &data);
    }

    #[test]
    fn any_format_prints(template in "[%a-zA-Z0-9.*+# \\[\\]-]{0,12}", values in proptest::collection::vec(value(), 0..3)) {
        let _ = format::sprintf(template.as_bytes(), &values);
    }

    #[test]
    fn json_survives_a_round_trip(value in value()) {
        let style = json::Style { pretty: false, escape_html: true };
        if let Ok(text) = json::encode(&value, style) {
            let again = json::decode(&text).expect("what was written can be read");
            prop_assert_eq!(json::encode(&again, style), json::encode(&json::decode(&text).expect("as before"), style));
        }
    }

    #[test]
    fn quoting_is_undone_by_unquoting(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
        let quoted = String::from_utf8(strconv::quote(&bytes, false)).expect("quoted text is UTF-8");
        prop_assert_eq!(strconv::unquote(&quoted), Some(bytes));
    }

    #[test]
    fn floats_are_read_back_as_they_were(number in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
        let text = strconv::format_float(number, b'g', None);
        prop_assert_eq!(strconv::parse_float(&text), Ok(number));
    }
}

#[test]
fn hostile_templates_end() {
    let data = Value::map([("s", Value::from("x"))]);
    for source in [
        "{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}",
        "{{ repeat 1000000000 \"x\" }}",
        "{{ until 1000000000 }}",
        "{{ range until 9000 }}{{ range until 9000 }}x{{ end }}{{ end }}",
        "{{ $x := list }}{{ range until 5000 }}{{ $x = list $x }}{{ end }}{{ $x | toJson | len }}",
        "{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ toYaml $d }}{{ toJson $d }}{{ $d }}{{ deepCopy $d }}",
        "{{ $s := \"xxxxxxxxxx\" }}{{ range until 100 }}{{ $s = replace \"x\" \"xxxxxxxxxx\" $s }}{{ end }}",
        "{{ $x := list 1 }}{{ range until 60 }}{{ $x = list $x $x }}{{ end }}{{ print $x | len }}",
        "{{ $x := list 1 }}{{ range until 60 }}{{ $x = list $x $x }}{{ end }}{{ toJson $x | len }}{{ deepEqual $x (list $x) }}",
        "{{ indent 1000000000 \"a\\nb\" }}",
        "{{ tpl (printf \"{{ tpl %q . }}\" \"{{ tpl .s . }}\") . }}",
        "{{ printf \"%1000000d%1000000d%1000000d%1000000d%1000000d\" 1 1 1 1 1 }}",
        "{{ regexReplaceAll \"(a*)*b\" \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" \"\" }}",
    ] {
        let _ = render(source, &data);
    }
    let deep = format!("{}1{}", "(".repeat(20_000), ")".repeat(20_000));
    assert!(render(&format!("{{{{ {deep} }}}}"), &data).is_err());
    let nested = format!("{}x{}", "{{ if true }}".repeat(3_000), "{{ end }}".repeat(3_000));
    assert_eq!(render(&nested, &data).as_deref(), Ok(&b"x"[..]));
}
