//! What `hack/record/yaml` answers, asked of this crate.

use serde_json::Value;
use std::fmt::Write as _;

use weir_manifest::{
    Comments, Content, Document, Error, Node, NodeLayout, ReadOptions, ScalarStyle, read_documents_with,
    read_first_document, read_first_node, to_yaml, to_yaml_pretty, write_nodes,
};

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
        "write-pretty" => {
            let value: Value = serde_json::from_str(input).map_err(|error| error.to_string())?;
            Ok(to_yaml_pretty(&value))
        }
        "nodes" | "nodes-comments" => {
            let mut out = String::new();
            if let Some(document) = read_first_node(bytes, "").map_err(words)? {
                dump_document(&mut out, &document, op == "nodes-comments");
            } else {
                out.push_str(if op == "nodes" { "none  0 0:0 \"\"\n" } else { "none\n" });
            }
            Ok(out)
        }
        "rewrite-2" => rewrite(bytes, NodeLayout::WIDE),
        "rewrite-4" => rewrite(bytes, NodeLayout::FOUR),
        "rewrite-compact" => rewrite(bytes, NodeLayout::COMPACT),
        _ => Err(format!("no such operation: {op}")),
    }
}

fn rewrite(bytes: &[u8], layout: NodeLayout) -> Outcome {
    match read_first_node(bytes, "").map_err(|error| error.reference_text())? {
        Some(document) => Ok(write_nodes(&[document], layout)),
        None => Ok("null\n".to_owned()),
    }
}

fn dump_document(out: &mut String, document: &Document, comments: bool) {
    let Document { root, line, column, comments: around } = document;
    out.push_str("document");
    if comments {
        dump_comments(out, around);
    } else {
        let _ = writeln!(out, "  0 {line}:{column} \"\"");
    }
    dump(out, root, 1, comments);
}

/// A JSON string as Go writes it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn dump_comments(out: &mut String, comments: &Comments) {
    for (name, text) in [("head", &comments.head), ("line", &comments.line), ("foot", &comments.foot)] {
        if !text.is_empty() {
            let _ = write!(out, " {name}={}", quoted(text));
        }
    }
    out.push('\n');
}

fn dump(out: &mut String, node: &Node, depth: usize, comments: bool) {
    let (kind, text, style) = match &node.content {
        Content::Scalar { text, style } => {
            let style = match style {
                ScalarStyle::Plain => 0,
                ScalarStyle::DoubleQuoted => 2,
                ScalarStyle::SingleQuoted => 4,
                ScalarStyle::Literal => 8,
                ScalarStyle::Folded => 16,
            };
            ("scalar", text.as_str(), style)
        }
        Content::Sequence { flow, .. } => ("sequence", "", if *flow { 32 } else { 0 }),
        Content::Mapping { flow, .. } => ("mapping", "", if *flow { 32 } else { 0 }),
        Content::Alias(name) => ("alias", name.as_str(), 0),
    };
    out.push_str(&" ".repeat(depth));
    out.push_str(kind);
    if comments {
        if kind == "scalar" {
            let _ = write!(out, " {}", quoted(text));
        }
        dump_comments(out, &node.comments);
    } else {
        let style = style + i32::from(node.tagged);
        let _ = write!(out, " {} {style} {}:{}", node.tag, node.line, node.column);
        if let Some(anchor) = &node.anchor {
            let _ = write!(out, " &{anchor}");
        }
        let _ = writeln!(out, " {}", quoted(text));
    }
    match &node.content {
        Content::Sequence { items, .. } => items.iter().for_each(|item| dump(out, item, depth + 1, comments)),
        Content::Mapping { entries, .. } => {
            for (key, value) in entries {
                dump(out, key, depth + 1, comments);
                dump(out, value, depth + 1, comments);
            }
        }
        _ => {}
    }
}

/// Why the two outcomes differ, if they do. JSON is compared by value, errors by their words if `words` is set.
pub(crate) fn difference(op: &str, ours: &Outcome, theirs: &Outcome, words: bool) -> Option<String> {
    let same = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if op.starts_with("read") => json(ours) == json(theirs),
        (Ok(ours), Ok(theirs)) if ours == theirs => true,
        (Err(ours), Err(theirs)) => !words || op.starts_with("write") || reduced(ours) == reduced(theirs),
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

/// The operations that random inputs are compared with.
#[allow(dead_code, reason = "used by one of the programs that include this file")]
pub(crate) const ALL: &[&str] = &[
    "read",
    "read-strict",
    "write",
    "write-pretty",
    "nodes",
    "nodes-comments",
    "rewrite-2",
    "rewrite-4",
    "rewrite-compact",
];
