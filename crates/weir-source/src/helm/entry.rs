//! One chart version of an index: what the reference's types make of it, and how they write it.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use weir_base::version::Version;

/// Whether the index was YAML, where unknown fields are errors and scalars become text, or JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Yaml,
    Json,
}

/// A value in the order it is written.
pub(super) enum Out {
    Value(Value),
    Object(Vec<(&'static str, Out)>),
    List(Vec<Out>),
}

/// A chart version that was read.
pub(super) enum Entry {
    /// It breaks a rule of charts and does not count.
    Invalid,
    /// It counts.
    Valid { version: Version, fields: Vec<(&'static str, Out)> },
}

/// The fields of a mapping, taken out one by one; what is left is unknown.
struct Fields {
    map: Map<String, Value>,
    form: Form,
    /// How scalars become text. In the reference's reader, the fields that a chart version shares with `Chart.yaml` are
    /// one level too deep for scalars of YAML to become text.
    scalars: Form,
}

type Read<T> = Result<T, String>;

impl Fields {
    fn new(value: Value, form: Form, wanted: &str) -> Read<Self> {
        match value {
            Value::Object(map) => Ok(Self { map, form, scalars: Form::Json }),
            other => Err(mismatch(&other, wanted)),
        }
    }

    /// By name, or by name in other case as Go's reader does.
    fn take(&mut self, name: &str) -> Value {
        if let Some(value) = self.map.remove(name) {
            return value;
        }
        let other = self.map.keys().find(|key| key.eq_ignore_ascii_case(name)).cloned();
        other.and_then(|key| self.map.remove(&key)).unwrap_or(Value::Null)
    }

    fn text(&mut self, name: &'static str) -> Read<String> {
        text(self.take(name), self.scalars, name)
    }

    fn texts(&mut self, name: &'static str) -> Read<Option<Vec<String>>> {
        match self.take(name) {
            Value::Null => Ok(None),
            Value::Array(items) => {
                items.into_iter().map(|item| text(item, self.scalars, name)).collect::<Read<_>>().map(Some)
            }
            other => Err(mismatch(&other, name)),
        }
    }

    fn flag(&mut self, name: &'static str) -> Read<bool> {
        match self.take(name) {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(flag),
            other => Err(mismatch(&other, name)),
        }
    }

    fn list(&mut self, name: &'static str) -> Read<Vec<Value>> {
        match self.take(name) {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => Ok(items),
            other => Err(mismatch(&other, name)),
        }
    }

    fn end(self) -> Read<()> {
        match (self.form, self.map.keys().next()) {
            (Form::Yaml, Some(key)) => Err(format!("json: unknown field {key:?}")),
            _ => Ok(()),
        }
    }
}

fn mismatch(value: &Value, field: &str) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {kind} into field {field}")
}

/// Text; of YAML, numbers and flags become text, floats after a detour over 32 bits.
pub(super) fn text(value: Value, form: Form, field: &str) -> Read<String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        Value::Bool(flag) if form == Form::Yaml => Ok(flag.to_string()),
        Value::Number(number) if form == Form::Yaml => Ok(match number.as_f64() {
            Some(float) if number.is_f64() => {
                let shortest: f64 = (float as f32).to_string().parse().unwrap_or_default();
                general(shortest)
            }
            _ => number.to_string(),
        }),
        other => Err(mismatch(&other, field)),
    }
}

/// A float as Go prints it in the shortest way.
fn general(value: f64) -> String {
    // Exponents begin at 1e+21 here, not where YAML has them.
    match weir_manifest::format_json_float(value) {
        Some(text) if value.abs() >= 1e-4 || value == 0.0 => text,
        _ => weir_manifest::format_float(value),
    }
}

/// Spaces for anything like a space; what cannot be printed goes.
fn sanitized(text: String) -> String {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text;
    }
    text.chars()
        .filter_map(|character| {
            if character.is_whitespace() {
                Some(' ')
            } else if is_printable(character) {
                Some(character)
            } else {
                None
            }
        })
        .collect()
}

/// Letters, marks, numbers, punctuation and symbols.
fn is_printable(character: char) -> bool {
    let format = matches!(character,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    let private = matches!(character, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}');
    !character.is_control() && !format && !private
}

/// A time in the form Go writes it.
pub(super) fn time(value: &Value, field: &str) -> Read<String> {
    match value {
        Value::Null => Ok("0001-01-01T00:00:00Z".to_owned()),
        Value::String(text) => go_time(text)
            .ok_or_else(|| format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse")),
        other => Err(mismatch(other, field)),
    }
}

/// RFC 3339 with up to nine digits of a second and no zeros at their end.
fn go_time(text: &str) -> Option<String> {
    let (date, rest) = text.split_at_checked(11)?;
    let shape = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                other => byte == other,
            })
    };
    let (clock, rest) = rest.split_at_checked(8)?;
    if !shape(date, "0000-00-00T") || !shape(clock, "00:00:00") {
        return None;
    }
    let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
    let days = match number(&date[5..7]) {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days).contains(&number(&date[8..10]))
        || number(&clock[..2]) > 23
        || number(&clock[3..5]) > 59
        || number(&clock[6..]) > 59
    {
        return None;
    }
    let (fraction, zone) = match rest.strip_prefix(['.', ',']) {
        Some(rest) => {
            let end = rest.bytes().take_while(u8::is_ascii_digit).count();
            if end == 0 {
                return None;
            }
            rest.split_at(end)
        }
        None => ("", rest),
    };
    let fraction = fraction[..fraction.len().min(9)].trim_end_matches('0');
    let zone = match zone {
        "Z" | "+00:00" | "-00:00" => "Z",
        zone if shape(zone.get(1..)?, "00:00")
            && zone.starts_with(['+', '-'])
            && number(&zone[1..3]) <= 23
            && number(&zone[4..]) <= 59 =>
        {
            zone
        }
        _ => return None,
    };
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{date}{clock}{dot}{fraction}{zone}"))
}

struct Collected(Vec<(&'static str, Out)>);

impl Collected {
    fn text(&mut self, name: &'static str, value: String) {
        if !value.is_empty() {
            self.0.push((name, Out::Value(Value::String(value))));
        }
    }

    fn texts(&mut self, name: &'static str, values: Vec<String>) {
        if !values.is_empty() {
            self.0.push((name, texts(values)));
        }
    }

    fn flag(&mut self, name: &'static str, flag: bool) {
        if flag {
            self.0.push((name, Out::Value(Value::Bool(true))));
        }
    }

    fn list(&mut self, name: &'static str, items: Vec<Out>) {
        if !items.is_empty() {
            self.0.push((name, Out::List(items)));
        }
    }
}

fn texts(values: Vec<String>) -> Out {
    Out::Value(Value::Array(values.into_iter().map(Value::String).collect()))
}

/// Reads a chart version and checks the rules of charts.
///
/// The error is that of an index that cannot be read at all.
pub(super) fn read(value: Value, form: Form) -> Read<Entry> {
    let mut fields = Fields::new(value, form, "entries")?;
    let mut valid = true;
    let name = sanitized(fields.text("name")?);
    let home = sanitized(fields.text("home")?);
    let sources = fields.texts("sources")?.unwrap_or_default();
    let version = fields.text("version")?;
    let description = sanitized(fields.text("description")?);
    let keywords = fields.texts("keywords")?.unwrap_or_default();
    let mut maintainers = Vec::new();
    for item in fields.list("maintainers")? {
        if item.is_null() {
            valid = false;
            continue;
        }
        let mut fields = Fields::new(item, form, "maintainers")?;
        let mut out = Collected(Vec::new());
        out.text("name", sanitized(fields.text("name")?));
        out.text("email", sanitized(fields.text("email")?));
        out.text("url", sanitized(fields.text("url")?));
        fields.end()?;
        maintainers.push(Out::Object(out.0));
    }
    let icon = sanitized(fields.text("icon")?);
    let mut api_version = fields.text("apiVersion")?;
    if api_version.is_empty() {
        "v1".clone_into(&mut api_version);
    }
    let condition = sanitized(fields.text("condition")?);
    let tags = sanitized(fields.text("tags")?);
    let app_version = sanitized(fields.text("appVersion")?);
    let deprecated = fields.flag("deprecated")?;
    let annotations = match fields.take("annotations") {
        Value::Null => Map::new(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| Ok((key, Value::String(text(value, Form::Json, "annotations")?))))
            .collect::<Read<Map<_, _>>>()?,
        other => return Err(mismatch(&other, "annotations")),
    };
    let kube_version = sanitized(fields.text("kubeVersion")?);
    let (dependencies, dependencies_valid) = read_dependencies(&mut fields, form)?;
    let kind = fields.text("type")?;
    fields.scalars = form;
    let urls = fields.texts("urls")?;
    let created = time(&fields.take("created"), "created")?;
    let removed = fields.flag("removed")?;
    let digest = fields.text("digest")?;
    let checksum = fields.text("checksum")?;
    let engine = fields.text("engine")?;
    let tiller_version = fields.text("tillerVersion")?;
    let url = fields.text("url")?;
    fields.end()?;

    valid = valid
        && dependencies_valid
        && !name.is_empty()
        && !name.contains('/')
        && !matches!(name.as_str(), "." | "..")
        && matches!(kind.as_str(), "" | "application" | "library");
    let Some(parsed) = Version::parse(&version).ok().filter(|_| valid) else {
        return Ok(Entry::Invalid);
    };
    let mut out = Collected(Vec::new());
    out.text("name", name);
    out.text("home", home);
    out.texts("sources", sources.into_iter().map(sanitized).collect());
    out.text("version", version);
    out.text("description", description);
    out.texts("keywords", keywords.into_iter().map(sanitized).collect());
    out.list("maintainers", maintainers);
    out.text("icon", icon);
    out.text("apiVersion", api_version);
    out.text("condition", condition);
    out.text("tags", tags);
    out.text("appVersion", app_version);
    out.flag("deprecated", deprecated);
    if !annotations.is_empty() {
        out.0.push(("annotations", Out::Value(Value::Object(annotations))));
    }
    out.text("kubeVersion", kube_version);
    out.list("dependencies", dependencies);
    out.text("type", kind);
    out.0.push(("urls", urls.map_or(Out::Value(Value::Null), texts)));
    out.0.push(("created", Out::Value(Value::String(created))));
    out.flag("removed", removed);
    out.text("digest", digest);
    out.text("checksum", checksum);
    out.text("engine", engine);
    out.text("tillerVersion", tiller_version);
    out.text("url", url);
    Ok(Entry::Valid { version: parsed, fields: out.0 })
}

/// The dependencies, and whether all of them keep the rules. Two of one name are let pass.
fn read_dependencies(fields: &mut Fields, form: Form) -> Read<(Vec<Out>, bool)> {
    let mut valid = true;
    let mut dependencies = Vec::new();
    for item in fields.list("dependencies")? {
        if item.is_null() {
            valid = false;
            continue;
        }
        let mut fields = Fields::new(item, form, "dependencies")?;
        let mut out = Collected(Vec::new());
        out.0.push(("name", Out::Value(Value::String(sanitized(fields.text("name")?)))));
        out.text("version", sanitized(fields.text("version")?));
        out.0.push(("repository", Out::Value(Value::String(sanitized(fields.text("repository")?)))));
        out.text("condition", sanitized(fields.text("condition")?));
        let tags = fields.texts("tags")?.unwrap_or_default();
        out.texts("tags", tags.into_iter().map(sanitized).collect());
        out.flag("enabled", fields.flag("enabled")?);
        let imports = fields.list("import-values")?;
        out.list("import-values", imports.into_iter().map(Out::Value).collect());
        let alias = fields.text("alias")?;
        valid &= alias.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        out.text("alias", alias);
        fields.end()?;
        dependencies.push(Out::Object(out.0));
    }
    Ok((dependencies, valid))
}

/// Writes a value as Go's JSON writer does with two spaces of indentation.
pub(super) fn write_out(output: &mut String, out: &Out, depth: usize) {
    match out {
        Out::Value(value) => write_value(output, value, depth),
        Out::Object(fields) => write_fields(output, fields, depth),
        Out::List(items) => {
            collection(output, ('[', ']'), items.iter(), depth, |output, item| {
                write_out(output, item, depth + 1);
            });
        }
    }
}

/// The same for the fields of an object.
pub(super) fn write_fields(output: &mut String, fields: &[(&'static str, Out)], depth: usize) {
    collection(output, ('{', '}'), fields.iter(), depth, |output, (name, value)| {
        write_text(output, name);
        output.push_str(": ");
        write_out(output, value, depth + 1);
    });
}

/// The same for a value.
pub(super) fn write_value(output: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => output.push_str("null"),
        Value::Bool(flag) => output.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => {
            let float = number.as_f64().filter(|_| number.is_f64());
            match float.and_then(weir_manifest::format_json_float) {
                Some(text) => output.push_str(&text),
                None => {
                    let _ = write!(output, "{number}");
                }
            }
        }
        Value::String(text) => write_text(output, text),
        Value::Array(items) => {
            collection(output, ('[', ']'), items.iter(), depth, |output, item| {
                write_value(output, item, depth + 1);
            });
        }
        Value::Object(map) => {
            collection(output, ('{', '}'), map.iter(), depth, |output, (key, value)| {
                write_text(output, key);
                output.push_str(": ");
                write_value(output, value, depth + 1);
            });
        }
    }
}

fn collection<T>(
    output: &mut String,
    (open, close): (char, char),
    items: impl ExactSizeIterator<Item = T>,
    depth: usize,
    mut write: impl FnMut(&mut String, T),
) {
    output.push(open);
    let empty = items.len() == 0;
    for (index, item) in items.enumerate() {
        if index > 0 {
            output.push(',');
        }
        new_line(output, depth + 1);
        write(output, item);
    }
    if !empty {
        new_line(output, depth);
    }
    output.push(close);
}

/// A line break with indentation.
pub(super) fn new_line(output: &mut String, depth: usize) {
    output.push('\n');
    for _ in 0..depth {
        output.push_str("  ");
    }
}

/// A JSON string with the characters escaped that Go escapes, those of HTML included.
pub(super) fn write_text(output: &mut String, text: &str) {
    output.push('"');
    for character in text.chars() {
        match character {
            '"' => output.push_str("\\\""),
            '\\' => output.push_str("\\\\"),
            '\n' => output.push_str("\\n"),
            '\r' => output.push_str("\\r"),
            '\t' => output.push_str("\\t"),
            '\u{8}' => output.push_str("\\b"),
            '\u{c}' => output.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(output, "\\u{:04x}", u32::from(character));
            }
            other => output.push(other),
        }
    }
    output.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(value: Value, form: Form) -> Result<String, String> {
        Ok(match read(value, form)? {
            Entry::Invalid => "invalid".to_owned(),
            Entry::Valid { fields, .. } => {
                let mut text = String::new();
                write_fields(&mut text, &fields, 0);
                let text: String = text.split('\n').map(str::trim).collect();
                text
            }
        })
    }

    #[track_caller]
    fn check(value: Value, form: Form, expected: Result<&str, &str>) {
        let written = written(value, form);
        assert_eq!(written.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn fields_are_written_in_the_order_of_the_reference() {
        let zero = "0001-01-01T00:00:00Z";
        check(
            json!({"urls": [1.10], "version": "1.1", "name": "a", "deprecated": true, "digest": 7}),
            Form::Yaml,
            // Not a mistake: `1.10` without quotes is a number.
            Ok(&format!(
                "{{\"name\": \"a\",\"version\": \"1.1\",\"apiVersion\": \"v1\",\"deprecated\": true,\
                 \"urls\": [\"1.1\"],\"created\": \"{zero}\",\"digest\": \"7\"}}"
            )),
        );
        check(
            json!({"name": "a", "version": "1", "description": "<a>\nb\u{200b}", "apiVersion": "v2",
                   "dependencies": [{"name": "d"}], "created": "2020-01-02T03:04:05.120+00:00"}),
            Form::Json,
            Ok(
                "{\"name\": \"a\",\"version\": \"1\",\"description\": \"\\u003ca\\u003e b\",\"apiVersion\": \"v2\",\
                \"dependencies\": [{\"name\": \"d\",\"repository\": \"\"}],\
                \"urls\": null,\"created\": \"2020-01-02T03:04:05.12Z\"}",
            ),
        );
    }

    #[test]
    fn rules_of_charts() {
        for value in [
            json!({"name": "a"}),
            json!({"version": "1"}),
            json!({"name": "a/b", "version": "1"}),
            json!({"name": "a", "version": "x.y"}),
            json!({"name": "a", "version": "1", "type": "thing"}),
            json!({"name": "a", "version": "1", "maintainers": [null]}),
            json!({"name": "a", "version": "1", "dependencies": [{"name": "d", "alias": "a.b"}]}),
        ] {
            check(value, Form::Yaml, Ok("invalid"));
        }
        let twice = json!({"name": "a", "version": "1", "dependencies": [{"name": "d"}, {"name": "d"}]});
        assert_ne!(written(twice, Form::Yaml).as_deref(), Ok("invalid"));
    }

    #[test]
    fn what_makes_an_index_unreadable() {
        check(json!({"name": "a", "nmae": "b"}), Form::Yaml, Err("json: unknown field \"nmae\""));
        check(json!({"name": "a", "nmae": "b"}), Form::Json, Ok("invalid"));
        check(json!({"version": 1}), Form::Json, Err("json: cannot unmarshal number into field version"));
        check(json!({"version": 1}), Form::Yaml, Err("json: cannot unmarshal number into field version"));
        check(json!("a"), Form::Yaml, Err("json: cannot unmarshal string into field entries"));
        assert!(written(json!({"created": "yesterday"}), Form::Yaml).is_err());
    }

    #[test]
    fn times() {
        for (text, expected) in [
            ("2016-10-06T16:23:20.499814565-06:00", Some("2016-10-06T16:23:20.499814565-06:00")),
            ("2020-01-01T00:00:00.000Z", Some("2020-01-01T00:00:00Z")),
            ("2020-01-01T00:00:00.1234567891Z", Some("2020-01-01T00:00:00.123456789Z")),
            ("2020-13-01T00:00:00Z", None),
            ("2020-04-31T00:00:00Z", None),
            ("2020-01-01", None),
            ("2020-01-01T00:00:00", None),
            ("2020-01-01 00:00:00Z", None),
        ] {
            assert_eq!(go_time(text).as_deref(), expected, "{text}");
        }
    }
}
