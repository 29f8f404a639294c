//! What `hack/record/yaml` answers, asked of this crate.

use serde_json::Value;
use weir_manifest::{Error, ReadOptions, read_documents_with, read_first_document, to_yaml};

/// The outcome of an operation: text, or the words of an error.
pub(crate) type Outcome = Result<String, String>;

/// What this crate makes of `input`.
pub(crate) fn answer(op: &str, input: &str) -> Outcome {
    let bytes = input.as_bytes();
    let words = |error: Error| error.reference_text();
    match op {
        "read" => read_first_document(bytes, "", ReadOptions::default())
            .map(|value| value.to_string())
            .map_err(words),
        "read-strict" => read_first_document(bytes, "", ReadOptions { strict: true })
            .map(|value| value.to_string())
            .map_err(words),
        "read-stream" => read_documents_with(bytes, "", ReadOptions::default())
            .map(|values| Value::from(values).to_string())
            .map_err(words),
        "write" => {
            let value: Value = serde_json::from_str(input).map_err(|error| error.to_string())?;
            Ok(to_yaml(&value))
        }
        _ => Err(format!("no such operation: {op}")),
    }
}

/// Why the two outcomes differ, if they do. JSON is compared by value, errors by their words if `words` is set.
pub(crate) fn difference(op: &str, ours: &Outcome, theirs: &Outcome, words: bool) -> Option<String> {
    let same = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if op.starts_with("read") => json(ours) == json(theirs),
        (Ok(ours), Ok(theirs)) if ours == theirs => true,
        (Err(ours), Err(theirs)) => !words || reduced(ours) == reduced(theirs),
        // The reference takes the way through JSON text, where it fails or loses text that we write escaped.
        (Ok(ours), Err(_)) if op.starts_with("write") => ours.contains(r"\x") || ours.contains(r"\N"),
        (Ok(ours), Ok(_)) if op.starts_with("write") && ours.contains(r"\N") => true,
        _ => false,
    };
    (!same).then(|| format!("reference: {theirs:?}\n     ours: {ours:?}"))
}

/// An error without the Go syntax of values in it.
fn reduced(words: &str) -> &str {
    for start in [
        "yaml: invalid map key",
        "unsupported map key of type: uint64",
        "unsupported map key of type: %!s(<nil>)",
    ] {
        if words.starts_with(start) {
            return start;
        }
    }
    words
}

/// A JSON text as a value, in which -0 is the integer 0.
fn json(text: &str) -> Option<Value> {
    fn normalise(value: &mut Value) {
        match value {
            Value::Number(number) if number.as_f64() == Some(0.0) => *value = Value::from(0),
            Value::Array(items) => items.iter_mut().for_each(normalise),
            Value::Object(entries) => entries.values_mut().for_each(normalise),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(text).ok()?;
    normalise(&mut value);
    Some(value)
}
