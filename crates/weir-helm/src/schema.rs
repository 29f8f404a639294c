//! Checking values against the schemas of charts.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, Retrieve, Uri, ValidationError};
use serde_json::{Map, Value as Json};

use crate::chart::Chart;
use crate::values::Table;

/// Gets a document by its URL.
pub type Fetch = Arc<dyn Fn(&str) -> Result<Json, String> + Send + Sync>;

/// The documents beyond a schema that it refers to by URL.
#[derive(Clone, Default)]
pub enum Documents {
    /// There are none: a schema that needs one cannot be used.
    #[default]
    Missing,
    /// They are not looked at: what refers to one allows anything.
    Ignored,
    /// They are got when a schema needs them.
    Fetched(Fetch),
}

/// Values do not satisfy the schemas of a chart or its subcharts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("values don't meet the specifications of the schema(s) in the following chart(s):\n{0}")]
pub struct SchemaError(pub String);

struct Source(Fetch);

impl Retrieve for Source {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Json, Box<dyn std::error::Error + Send + Sync>> {
        (self.0)(uri.as_str()).map_err(Into::into)
    }
}

/// Checks the values templates would see against the schema of the chart, and those of each subchart
/// against its schema.
pub fn validate(chart: &Chart, values: &Table, documents: &Documents) -> Result<(), SchemaError> {
    let mut report = String::new();
    check_chart(chart, values, documents, &mut report);
    if report.is_empty() { Ok(()) } else { Err(SchemaError(report)) }
}

/// Checks values against one schema; what is wrong, one line for each problem, each with a line break.
///
/// What is wrong with the schema itself comes without a line break, as from Helm.
pub fn validate_single(schema: &[u8], values: &Table, documents: &Documents) -> Result<(), String> {
    check(schema, values, documents)
}

fn check_chart(chart: &Chart, values: &Table, documents: &Documents, report: &mut String) {
    if let Some(schema) = &chart.schema
        && let Err(problems) = check(schema, values, documents)
    {
        let _ = write!(report, "{}:\n{problems}", chart.name());
    }
    for subchart in &chart.dependencies {
        match values.get(subchart.name()) {
            None | Some(Json::Null) => {}
            Some(Json::Object(inner)) => check_chart(subchart, inner, documents, report),
            Some(other) => {
                let found = crate::render::engine_value(other).type_name();
                let _ = write!(
                    report,
                    "{}:\ninvalid type for values: expected object (map), got {found}\n",
                    subchart.name()
                );
            }
        }
    }
}

/// Whole floats as integers, which is what they are to a schema.
fn with_integers(value: &Json) -> Json {
    match value {
        Json::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(0.0);
            if float.fract() == 0.0 && float.abs() < 9.0e15 {
                Json::from(float as i64)
            } else {
                value.clone()
            }
        }
        Json::Array(items) => Json::Array(items.iter().map(with_integers).collect()),
        Json::Object(entries) => Json::Object(
            entries.iter().map(|(key, item)| (key.clone(), with_integers(item))).collect::<Map<_, _>>(),
        ),
        other => other.clone(),
    }
}

fn check(schema: &[u8], values: &Table, documents: &Documents) -> Result<(), String> {
    let mut schema: Json = serde_json::from_slice(schema)
        .map_err(|error| if error.is_eof() { "unexpected EOF".to_owned() } else { error.to_string() })?;
    let instance = with_integers(&Json::Object(values.clone()));
    let mut options = jsonschema::options();
    if schema.get("$schema").is_none() {
        options = options.with_draft(Draft::Draft202012);
    }
    let missing = || -> Fetch { Arc::new(|uri: &str| Err(format!("no document is available for '{uri}'"))) };
    let fetch = match documents {
        Documents::Missing => missing(),
        Documents::Ignored => {
            let mut own = BTreeSet::new();
            identifiers(&schema, &mut own);
            drop_foreign_references(&mut schema, &own);
            missing()
        }
        Documents::Fetched(fetch) => Arc::clone(fetch),
    };
    let validator = options
        .with_retriever(Source(fetch))
        .build(&schema)
        .map_err(|error| format!("schema cannot be used: {error}"))?;
    let errors: Vec<ValidationError<'_>> = validator.iter_errors(&instance).collect();
    if errors.is_empty() {
        return Ok(());
    }
    let mut lines = Vec::new();
    describe(&errors, &mut lines);
    lines.push(String::new());
    Err(lines.join("\n"))
}

/// The names that a schema gives itself and its parts.
fn identifiers(schema: &Json, out: &mut BTreeSet<String>) {
    match schema {
        Json::Object(entries) => {
            if let Some(Json::String(id)) = entries.get("$id") {
                out.insert(id.trim_end_matches('#').to_owned());
            }
            entries.values().for_each(|inner| identifiers(inner, out));
        }
        Json::Array(items) => items.iter().for_each(|inner| identifiers(inner, out)),
        _ => {}
    }
}

/// Takes out references to other documents than the schema itself.
fn drop_foreign_references(schema: &mut Json, own: &BTreeSet<String>) {
    match schema {
        Json::Object(entries) => {
            let is_foreign = |reference: &Json| {
                let document = reference.as_str().and_then(|text| text.split('#').next()).unwrap_or_default();
                !document.is_empty() && !own.contains(document)
            };
            for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
                if entries.get(key).is_some_and(is_foreign) {
                    entries.remove(key);
                }
            }
            // A dialect of its own is a document as well.
            let is_dialect =
                |value: &Json| value.as_str().is_some_and(|url| !url.contains("json-schema.org/"));
            if entries.get("$schema").is_some_and(is_dialect) {
                entries.remove("$schema");
            }
            entries.values_mut().for_each(|inner| drop_foreign_references(inner, own));
        }
        Json::Array(items) => items.iter_mut().for_each(|inner| drop_foreign_references(inner, own)),
        _ => {}
    }
}

/// A problem and what it consists of.
struct Problem {
    place: String,
    text: String,
    causes: Vec<Problem>,
}

impl Problem {
    fn write(&self, level: usize, lines: &mut Vec<String>) {
        lines.push(format!("{}- at '{}': {}", "  ".repeat(level), self.place, self.text));
        for cause in &self.causes {
            cause.write(level + 1, lines);
        }
    }
}

fn describe(errors: &[ValidationError<'_>], lines: &mut Vec<String>) {
    let errors: Vec<&ValidationError<'_>> = errors.iter().collect();
    for problem in problems(&errors, "") {
        problem.write(0, lines);
    }
}

/// Several problems with one part of the values are shown as one that consists of them.
fn together(place: &str, mut problems: Vec<Problem>) -> Option<Problem> {
    if problems.len() < 2 {
        return problems.pop();
    }
    Some(Problem { place: place.to_owned(), text: "validation failed".to_owned(), causes: problems })
}

/// The problems at a place: first those with the value itself, then those with its parts. A value of the
/// wrong type has no other problem.
fn problems(errors: &[&ValidationError<'_>], place: &str) -> Vec<Problem> {
    let (own, below): (Vec<&ValidationError<'_>>, Vec<&ValidationError<'_>>) =
        errors.iter().copied().partition(|error| error.instance_path().as_str().len() <= place.len());
    if let Some(error) = own.iter().find(|error| matches!(error.kind(), ValidationErrorKind::Type { .. })) {
        return vec![problem(error, &own)];
    }
    let mut found: Vec<Problem> = Vec::new();
    let mut all_of: Vec<Problem> = Vec::new();
    let mut required = false;
    for error in &own {
        if matches!(error.kind(), ValidationErrorKind::Required { .. }) {
            // Missing properties share a line.
            if required {
                continue;
            }
            required = true;
        }
        let nested = error.schema_path().as_str().contains("/allOf/");
        if nested { &mut all_of } else { &mut found }.push(problem(error, &own));
    }
    if !all_of.is_empty() {
        found.push(Problem { place: place.to_owned(), text: "'allOf' failed".to_owned(), causes: all_of });
    }
    let mut parts: Vec<(&str, Vec<&ValidationError<'_>>)> = Vec::new();
    for error in below {
        let path = error.instance_path().as_str();
        let end = path[place.len() + 1..].find('/').map_or(path.len(), |end| place.len() + 1 + end);
        match parts.iter_mut().find(|(part, _)| *part == &path[..end]) {
            Some((_, errors)) => errors.push(error),
            None => parts.push((&path[..end], vec![error])),
        }
    }
    found.extend(parts.iter().filter_map(|(part, errors)| together(part, problems(errors, part))));
    found
}

/// One problem, with the missing properties of its neighbours where it is about one.
fn problem(error: &ValidationError<'_>, neighbours: &[&ValidationError<'_>]) -> Problem {
    let place = error.instance_path().as_str();
    let mut causes = Vec::new();
    let text = match error.kind() {
        ValidationErrorKind::Required { .. } => {
            let missing: Vec<String> = neighbours
                .iter()
                .filter_map(|neighbour| match neighbour.kind() {
                    ValidationErrorKind::Required { property } => {
                        Some(quoted(property.as_str().unwrap_or_default()))
                    }
                    _ => None,
                })
                .collect();
            let noun = if missing.len() == 1 { "property" } else { "properties" };
            format!("missing {noun} {}", missing.join(", "))
        }
        ValidationErrorKind::PropertyNames { error } => {
            causes = problems(&[error], place);
            format!("invalid propertyName {}", quoted(error.instance().as_str().unwrap_or_default()))
        }
        kind => {
            if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } =
                kind
            {
                causes = context
                    .iter()
                    .filter_map(|branch| {
                        let branch: Vec<&ValidationError<'_>> = branch.iter().collect();
                        together(place, problems(&branch, place))
                    })
                    .collect();
            }
            reason(kind, error.instance())
        }
    };
    Problem { place: place.to_owned(), text, causes }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => quoted(text),
        other => other.to_string(),
    }
}

fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn length(value: &Json) -> usize {
    match value {
        Json::String(text) => text.chars().count(),
        Json::Array(items) => items.len(),
        Json::Object(entries) => entries.len(),
        _ => 0,
    }
}

fn reason(kind: &ValidationErrorKind, instance: &Json) -> String {
    let bound =
        |keyword: &str, limit: &Json| format!("{keyword}: got {}, want {}", shown(instance), shown(limit));
    let count = |keyword: &str, limit: u64| format!("{keyword}: got {}, want {limit}", length(instance));
    match kind {
        ValidationErrorKind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(kind) => kind.to_string(),
                TypeKind::Multiple(kinds) => {
                    kinds.into_iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or ")
                }
            };
            format!("got {}, want {wanted}", type_of(instance))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            format!("additional properties {} not allowed", listed(unexpected))
        }
        ValidationErrorKind::Minimum { limit } => bound("minimum", limit),
        ValidationErrorKind::Maximum { limit } => bound("maximum", limit),
        ValidationErrorKind::ExclusiveMinimum { limit } => bound("exclusiveMinimum", limit),
        ValidationErrorKind::ExclusiveMaximum { limit } => bound("exclusiveMaximum", limit),
        ValidationErrorKind::MultipleOf { multiple_of } => {
            format!("multipleOf: got {}, want {multiple_of}", shown(instance))
        }
        ValidationErrorKind::MinLength { limit } => count("minLength", *limit),
        ValidationErrorKind::MaxLength { limit } => count("maxLength", *limit),
        ValidationErrorKind::MinItems { limit } => count("minItems", *limit),
        ValidationErrorKind::MaxItems { limit } => count("maxItems", *limit),
        ValidationErrorKind::MinProperties { limit } => count("minProperties", *limit),
        ValidationErrorKind::MaxProperties { limit } => count("maxProperties", *limit),
        ValidationErrorKind::Pattern { pattern } => {
            format!("{} does not match pattern {}", shown(instance), quoted(pattern))
        }
        ValidationErrorKind::Format { format } => {
            format!("{} is not valid {format}", shown(instance))
        }
        ValidationErrorKind::Enum { options } => match options.as_array() {
            Some(options) if options.len() == 1 => format!("value must be {}", shown(&options[0])),
            Some(options) => {
                format!("value must be one of {}", options.iter().map(shown).collect::<Vec<_>>().join(", "))
            }
            None => "enum failed".to_owned(),
        },
        ValidationErrorKind::Constant { expected_value } => {
            format!("value must be {}", shown(expected_value))
        }
        ValidationErrorKind::AnyOf { .. } => "'anyOf' failed".to_owned(),
        ValidationErrorKind::OneOfNotValid { .. } => "'oneOf' failed, none matched".to_owned(),
        ValidationErrorKind::OneOfMultipleValid { context } => {
            let valid: Vec<String> = context
                .iter()
                .enumerate()
                .filter(|(_, errors)| errors.is_empty())
                .map(|(index, _)| index.to_string())
                .collect();
            format!("'oneOf' failed, subschemas {} matched", valid.join(", "))
        }
        ValidationErrorKind::Not { .. } => "'not' failed".to_owned(),
        ValidationErrorKind::FalseSchema => "false schema".to_owned(),
        ValidationErrorKind::UniqueItems => {
            let items = instance.as_array().map_or(&[][..], Vec::as_slice);
            let pair = items.iter().enumerate().find_map(|(later, item)| {
                items[..later].iter().position(|earlier| earlier == item).map(|earlier| (earlier, later))
            });
            let (earlier, later) = pair.unwrap_or_default();
            format!("items at {earlier} and {later} are equal")
        }
        ValidationErrorKind::Contains => "no items match contains schema".to_owned(),
        other => format!("{} failed", other.keyword()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn report(schema: &str, values: &str) -> String {
        let mut chart = Chart { schema: Some(schema.to_owned().into()), ..Chart::default() };
        "c".clone_into(&mut chart.metadata.name);
        let values = crate::values::read(values.as_bytes()).unwrap();
        validate(&chart, &values, &Documents::Missing).err().map(|error| error.0).unwrap_or_default()
    }

    #[test]
    fn documents_elsewhere_are_fetched_ignored_or_missed() {
        let schema = r##"{"$id":"https://a.example/values.json","properties":{
            "near":{"$ref":"#/$defs/near"},"far":{"$ref":"https://b.example/far.json"},
            "beside":{"$ref":"beside.json#/x"},"own":{"$ref":"https://a.example/values.json#/$defs/near"}},
            "$defs":{"near":{"type":"integer"}}}"##;
        let values = crate::values::read(b"{near: x, far: x, own: x}").unwrap();
        let missing = validate_single(schema.as_bytes(), &values, &Documents::Missing).unwrap_err();
        assert!(missing.contains("no document is available for 'https://"), "{missing}");
        let ignored = validate_single(schema.as_bytes(), &values, &Documents::Ignored).unwrap_err();
        assert_eq!(
            ignored,
            "- at '/near': got string, want integer\n- at '/own': got string, want integer\n"
        );
        let fetch: Fetch = Arc::new(|uri| match uri {
            "https://b.example/far.json" => Ok(serde_json::json!({"type": "boolean"})),
            "https://a.example/beside.json" => Ok(serde_json::json!({"x": {}})),
            other => Err(format!("unexpected {other}")),
        });
        let fetched = validate_single(schema.as_bytes(), &values, &Documents::Fetched(fetch)).unwrap_err();
        assert!(fetched.contains("- at '/far': got string, want boolean"), "{fetched}");
    }

    #[test]
    fn reasons_read_as_the_reference_words_them() {
        let schema = r#"{"type":"object","required":["a","b"],"properties":{
            "num":{"type":"integer","minimum":0},"s":{"enum":["x","y"]},"p":{"pattern":"^a$"}},
            "additionalProperties":false}"#;
        assert_eq!(report(schema, "a: 1\nb: 2"), "c:\n- at '': additional properties 'a', 'b' not allowed\n");
        let open = schema.replace(r#""additionalProperties":false"#, r#""title":"t""#);
        assert_eq!(report(&open, "{}"), "c:\n- at '': missing properties 'a', 'b'\n");
        assert_eq!(report(&open, "{a: 1, b: 1, num: 3.0}"), "");
        assert_eq!(report(&open, "{a: 1, b: 1, num: \"3\"}"), "c:\n- at '/num': got string, want integer\n");
        assert_eq!(report(&open, "{a: 1, b: 1, num: -5}"), "c:\n- at '/num': minimum: got -5, want 0\n");
        assert_eq!(report(&open, "{a: 1, b: 1, s: z}"), "c:\n- at '/s': value must be one of 'x', 'y'\n");
        assert_eq!(report(&open, "{a: 1, b: 1, p: b}"), "c:\n- at '/p': 'b' does not match pattern '^a$'\n");
    }
}
