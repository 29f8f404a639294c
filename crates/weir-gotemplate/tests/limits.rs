//! Templates that would not end, or grow without bound, end in an error that names the limit and its unit,
//! and do not take much more memory than the limits say.

use std::fmt::Write as _;

use weir_gotemplate::{Execution, FixedHost, Functions, Limits, MissingKey, Options, Set, Value};

const LIMITS: Limits = Limits {
    steps_max: 3_000_000,
    produced_bytes_max: 48 << 20,
    value_bytes_max: 8 << 20,
    list_items_max: 100_000,
    template_levels_max: 4_000,
};

/// Memory one execution may take under [`LIMITS`], in MiB: a small multiple of the bytes it may produce,
/// as the allocator keeps what grows in larger pieces.
const MEMORY_MEBIBYTES_MAX: u64 = 320;

fn render(source: &str) -> Result<usize, String> {
    let mut set = Set::new(Functions::helm());
    set.parse("t", source).map_err(|error| error.to_string())?;
    let options = Options { limits: LIMITS, missing_key: MissingKey::Zero };
    let mut execution = Execution::new(set, Box::new(FixedHost::default()), options);
    let data = Value::map([("text", Value::from("x".repeat(1 << 20)))]);
    execution.execute("t", &data).map(|output| output.len()).map_err(|error| error.to_string())
}

/// The most memory the process has had, in MiB, where the system tells.
fn peak_mebibytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? >> 10)
}

const STEPS: &str = "exceeds the limit of 3000000 steps";
const PRODUCED: &str = "more than the limit of 50331648 bytes";
const VALUE: &str = "exceeds the limit of 8388608 bytes";
const ITEMS: &str = "exceeds the limit of 100000 items";

/// Templates and what their error says.
fn cases() -> Vec<(String, &'static str)> {
    let mut cases: Vec<(String, &str)> = [
        // Endless loops and recursion.
        ("{{ range 999999999 }}{{ end }}", STEPS),
        ("{{ range until 90000 }}{{ range until 90000 }}{{ end }}{{ end }}", PRODUCED),
        (
            "{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}",
            "exceeded maximum template depth (4000)",
        ),
        (
            "{{ define \"a\" }}{{ include \"b\" . }}{{ end }}{{ define \"b\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}",
            "rendering template has a nested reference name",
        ),
        (
            "{{ define \"a\" }}{{ tpl \"{{ include \\\"a\\\" . }}\" . }}{{ end }}{{ include \"a\" . }}",
            "rendering template has a nested reference name",
        ),
        (
            "{{ $t := \"{{ tpl .t . }}\" }}{{ tpl $t (dict \"t\" $t) }}",
            "exceeded maximum template depth (4000)",
        ),
        // Exploding output.
        ("{{ range until 100 }}{{ $.text }}{{ end }}", PRODUCED),
        ("{{ define \"a\" }}{{ .text }}{{ end }}{{ range until 100 }}{{ include \"a\" $ }}{{ end }}", PRODUCED),
        ("{{ range until 100 }}{{ toYaml $.text }}{{ end }}", PRODUCED),
        // Exploding values.
        ("{{ repeat 100 .text }}", VALUE),
        ("{{ repeat 999999999999 \"x\" }}", VALUE),
        ("{{ $x := .text }}{{ range until 99 }}{{ $x = print $x $x }}{{ end }}", VALUE),
        ("{{ $x := .text }}{{ range until 99 }}{{ $x = replace \"x\" \"xxxxxxxxxx\" $x }}{{ end }}", VALUE),
        ("{{ indent 99999999 \"a\" }}", VALUE),
        ("{{ randAlphaNum 99999999 }}", VALUE),
        ("{{ .text | b64enc | b64enc | b64enc | b64enc | b64enc | b64enc | b64enc | b64enc | b64enc }}", VALUE),
        ("{{ until 99999999 }}", ITEMS),
        ("{{ untilStep 0 99999999 1 }}", ITEMS),
        ("{{ splitList \"\" .text }}", ITEMS),
        ("{{ split \"\" .text }}", ITEMS),
        ("{{ regexFindAll \"x\" .text -1 }}", ITEMS),
        ("{{ regexSplit \"x\" .text -1 }}", ITEMS),
        ("{{ $l := list }}{{ range until 99999 }}{{ $l = append $l \"x\" }}{{ end }}", PRODUCED),
        ("{{ $l := list 1 }}{{ range until 99 }}{{ $l = concat $l $l }}{{ end }}", ITEMS),
        (
            "{{ $d := dict }}{{ range $i := until 90000 }}{{ range $j := until 90000 }}{{ $_ := set $d (print $i $j) 1 }}{{ end }}{{ end }}",
            PRODUCED,
        ),
        (
            "{{ $d := dict }}{{ range $i := until 90000 }}{{ range $j := until 90000 }}{{ $_ := set $d (print $i $j) (dict \"a\" (dict)) }}{{ end }}{{ end }}",
            PRODUCED,
        ),
        (
            "{{ $d := dict }}{{ range $i := until 90000 }}{{ range $j := until 90000 }}{{ $d = merge (dict (print $i $j) $d) $d }}{{ end }}{{ end }}",
            PRODUCED,
        ),
        (
            "{{ $d := dict \"a\" (until 50000) }}{{ $l := list }}{{ range until 90000 }}{{ $l = append $l (deepCopy $d) }}{{ end }}",
            PRODUCED,
        ),
        (
            "{{ $y := printf \"[%s0]\" (repeat 200000 \"[],\") }}{{ $d := dict }}{{ range $i := until 90000 }}{{ $_ := set $d (toString $i) (fromYamlArray $y) }}{{ end }}",
            PRODUCED,
        ),
        (
            "{{ $y := printf \"[%s0]\" (repeat 200000 \"{},\") }}{{ $d := dict }}{{ range $i := until 90000 }}{{ $_ := set $d (toString $i) (fromJsonArray $y) }}{{ end }}",
            PRODUCED,
        ),
        // Values that contain themselves, or one another so often that they stand for more than there is.
        ("{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ toJson $d | fail }}", ""),
        ("{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ mustToJson $d }}", "nested too deeply"),
        ("{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ deepCopy $d }}", "nested too deeply"),
        ("{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ $e := dict }}{{ $_ := set $e \"d\" $e }}{{ merge $d $e }}", ""),
        (
            "{{ $x := list 1 }}{{ range until 60 }}{{ $x = list $x $x }}{{ end }}{{ mustToJson $x }}",
            "more than",
        ),
    ]
    .into_iter()
    .map(|(template, error)| (template.to_owned(), error))
    .collect();
    cases.push((
        format!("{{{{ {}1{} }}}}", "(".repeat(20_000), ")".repeat(20_000)),
        "max expression depth exceeded",
    ));
    cases.push((
        format!("{}{}", "{{ if 1 }}".repeat(20_000), "{{ end }}".repeat(20_000)),
        "control structures are nested too deeply",
    ));
    cases
}

#[test]
fn hostile_templates_end_in_an_error_that_names_the_limit() {
    let mut report = String::new();
    for (template, expected) in cases() {
        let shown = &template[..template.len().min(160)];
        match render(&template) {
            Err(error) if error.contains(expected) => {}
            Err(error) => {
                let _ =
                    writeln!(report, "{shown}\n  want {expected}\n  got  {}", &error[..error.len().min(400)]);
            }
            Ok(size) if expected.is_empty() => assert!(size < 1 << 20),
            Ok(size) => {
                let _ = writeln!(report, "{shown}\n  want {expected}\n  got  {size} bytes");
            }
        }
        if let Some(peak) = peak_mebibytes()
            && peak > MEMORY_MEBIBYTES_MAX
        {
            let _ = writeln!(report, "{shown}\n  {peak} MiB of memory");
            break;
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn the_bounds_of_the_controllers_leave_room_for_real_charts() {
    let limits = Limits::default();
    assert!(limits.steps_max >= 100_000_000);
    assert!(limits.produced_bytes_max >= 1 << 30);
    assert!(limits.value_bytes_max >= 32 << 20);
}
