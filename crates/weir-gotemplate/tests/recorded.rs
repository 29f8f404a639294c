//! What Helm's engine was recorded to make of several thousand templates; see `hack/record/gotemplate`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use weir_gotemplate::{Execution, FixedHost, Functions, MissingKey, Options, Set, Value, helm, strconv};

const DATA: &str = include_str!("recorded/data.json");
const HELPERS: &str = include_str!("recorded/helpers.tpl");
/// Templates whose outcome differs, each with its reason in the line above.
const DIFFERENT: &str = include_str!("different.txt");

fn render(template: &str) -> Result<Vec<u8>, String> {
    let file = "c/templates/t.yaml";
    let mut set = Set::new(Functions::helm());
    for (name, source) in [(file, template), ("c/templates/_h.tpl", HELPERS)] {
        set.parse(name, source).map_err(|error| helm::parse_error(name, &error))?;
    }
    let json: serde_json::Value = serde_json::from_str(DATA).expect("the recorded data is JSON");
    let data = Value::map([("Values", Value::from_json(&json))]);
    let options = Options { missing_key: MissingKey::Zero, ..Options::default() };
    let mut execution = Execution::new(set, Box::new(FixedHost::default()), options);
    execution
        .execute(file, &data)
        .map(helm::without_no_value)
        .map_err(|error| helm::render_error(file, &error))
}

#[track_caller]
fn check(recorded: &str, records_min: usize) {
    let different: BTreeSet<&str> =
        DIFFERENT.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")).collect();
    let (mut records, mut mismatches, mut report) = (0, 0, String::new());
    for line in recorded.lines() {
        let fields: Vec<&str> = line.splitn(3, '\t').collect();
        assert_eq!(fields.len(), 3, "not a record: {line}");
        let (template, mark, quoted) = (fields[0], fields[1], fields[2]);
        records += 1;
        let expected = strconv::unquote(quoted).expect("outcomes are quoted strings");
        let outcome = render(&template.replace('⏎', "\n"));
        let same = match (&outcome, mark) {
            (Ok(output), "=") => *output == expected,
            (Err(error), "!") => error.as_bytes() == expected,
            _ => false,
        };
        if same == different.contains(template) {
            mismatches += 1;
            let shown = match &outcome {
                Ok(output) => format!("= {}", String::from_utf8_lossy(&strconv::quote(output, false))),
                Err(error) => format!("! {}", strconv::quoted(error)),
            };
            let _ = writeln!(report, "{template}\n  want {mark} {quoted}\n  got  {shown}");
        }
    }
    assert!(records >= records_min, "only {records} records");
    assert_eq!(mismatches, 0, "of {records} records:\n{report}");
}

#[test]
fn the_language() {
    check(include_str!("recorded/language.txt"), 280);
}

#[test]
fn the_functions() {
    check(include_str!("recorded/functions.txt"), 200);
}

#[test]
fn common_functions_on_every_kind_of_value() {
    check(include_str!("recorded/matrix.txt"), 3000);
}

#[test]
fn other_functions_on_every_kind_of_value() {
    check(include_str!("recorded/matrix-more.txt"), 4900);
}

/// Functions whose outcome is random or depends on the clock; other tests look at their shape.
const NOT_RECORDED: &[&str] = &["ago"];

#[test]
fn every_function_is_recorded() {
    let records = [
        include_str!("recorded/language.txt"),
        include_str!("recorded/functions.txt"),
        include_str!("recorded/matrix.txt"),
        include_str!("recorded/matrix-more.txt"),
    ];
    let words: BTreeSet<&str> = records
        .iter()
        .flat_map(|records| records.lines())
        .filter_map(|record| record.split('\t').next())
        .flat_map(|template| template.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
        .collect();
    let functions = Functions::helm();
    let missing: Vec<&str> =
        functions.names().filter(|name| !words.contains(name) && !NOT_RECORDED.contains(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}
