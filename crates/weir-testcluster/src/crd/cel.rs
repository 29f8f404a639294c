//! `x-kubernetes-validations`: rules in CEL.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use cel::objects::{Key, Map as CelMap};
use cel::{Context, Env, ExecutionError, Program, Value as CelValue};
use parking_lot::Mutex;
use serde_json::Value;

use super::validate::cause;
use crate::fields::walk::element_of;
use crate::schema::{ListType, Schema, Type};
use crate::status::{Cause, CauseReason};

/// Compiled rules, kept for the life of the process.
const PROGRAMS_MAX: usize = 4096;

/// Runs all rules of a schema.
pub(crate) fn check(value: &Value, old: Option<&Value>, schema: &Schema, found: &mut Vec<Cause>) {
    if has_rules(schema) {
        walk(value, old, schema, &mut String::new(), found);
    }
}

/// The value of an expression over named values.
///
/// # Errors
/// Why it has none.
pub(crate) fn evaluate(expression: &str, variables: &[(&str, &Value)]) -> Result<Value, String> {
    let compiled = program(expression)?;
    let mut context = Context::with_env(environment());
    for (name, value) in variables {
        context.add_variable_from_value(*name, to_cel(value, None));
    }
    let value = compiled.execute(&context).map_err(|error| match &error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        other => other.to_string(),
    })?;
    Ok(from_cel(&value))
}

/// A value of CEL as JSON; what has no form there is null.
fn from_cel(value: &CelValue) -> Value {
    match value {
        CelValue::Bool(flag) => Value::Bool(*flag),
        CelValue::Int(number) => Value::from(*number),
        CelValue::UInt(number) => Value::from(*number),
        CelValue::Float(number) => Value::from(*number),
        CelValue::String(text) => Value::String(text.to_string()),
        CelValue::List(items) => Value::Array(items.iter().map(from_cel).collect()),
        CelValue::Map(map) => {
            let fields = map.map.iter().map(|(key, value)| (key.to_string(), from_cel(value)));
            Value::Object(fields.collect())
        }
        _ => Value::Null,
    }
}

/// The first field that a rule names and a type does not have.
pub(crate) fn undefined_field(rule: &str, schema: &Value) -> Option<String> {
    // What stands in quotes is no code.
    let mut code = String::with_capacity(rule.len());
    let mut quote = None;
    for c in rule.chars() {
        match quote {
            Some(end) => {
                if c == end {
                    quote = None;
                }
                code.push(' ');
            }
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                code.push(' ');
            }
            None => code.push(c),
        }
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (place, word) in code.match_indices("self") {
        let before = code[..place].chars().next_back();
        if before.is_some_and(|c| is_word(c) || c == '.') {
            continue;
        }
        let mut rest = &code[place + word.len()..];
        let mut node = schema;
        while let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|c: char| !is_word(c)).unwrap_or(after.len());
            let (name, left) = after.split_at(end);
            if name.is_empty() || left.trim_start().starts_with('(') {
                break;
            }
            let open = !node["additionalProperties"].is_null()
                || node["x-kubernetes-preserve-unknown-fields"] == true
                || node["x-kubernetes-embedded-resource"] == true
                || node["type"] != "object";
            let found = node["properties"]
                .as_object()
                .and_then(|fields| fields.iter().find(|(known, _)| escape(known) == name));
            match found {
                // What every object has is not described.
                _ if matches!(name, "metadata" | "apiVersion" | "kind") => break,
                Some((_, below)) => node = below,
                None if open => break,
                None => return Some(name.to_owned()),
            }
            rest = left;
        }
    }
    None
}

/// Whether a rule can be compiled; else what is wrong.
pub(crate) fn compile_error(rule: &str) -> Option<String> {
    program(rule).err()
}

fn has_rules(schema: &Schema) -> bool {
    schema.rules.as_ref().is_some_and(|rules| !rules.cel.is_empty())
        || schema.fields.as_ref().is_some_and(|fields| fields.properties.values().any(has_rules))
        || schema.items.as_deref().is_some_and(has_rules)
        || schema.additional.as_deref().is_some_and(has_rules)
}

fn environment() -> Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    ENVIRONMENT
        .get_or_init(|| {
            let mut env = Env::stdlib().with_optional_support(true);
            // The names do not clash: each extension is added once.
            let _ = env.add_extension(cel::extensions::strings);
            let _ = env.add_extension(cel::extensions::lists);
            Arc::new(env)
        })
        .clone()
}

fn program(rule: &str) -> Result<Arc<Program>, String> {
    static PROGRAMS: OnceLock<Mutex<HashMap<String, Arc<Program>>>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(Mutex::default);
    if let Some(known) = programs.lock().get(rule) {
        return Ok(known.clone());
    }
    let compiled = environment().compile(rule).map(Arc::new).map_err(|error| error.to_string())?;
    let mut programs = programs.lock();
    if programs.len() >= PROGRAMS_MAX {
        programs.clear();
    }
    programs.insert(rule.to_owned(), compiled.clone());
    Ok(compiled)
}

fn walk(value: &Value, old: Option<&Value>, schema: &Schema, path: &mut String, found: &mut Vec<Cause>) {
    if let Some(rules) = &schema.rules {
        for rule in &rules.cel {
            let compares = uses_old(&rule.rule);
            if compares && old.is_none() {
                continue;
            }
            if let Some(problem) = run(rule, value, old.filter(|_| compares), schema, path) {
                found.push(problem);
            }
        }
    }
    let length = path.len();
    match value {
        Value::Object(map) => {
            for (name, below) in map {
                let Some(type_of) = schema.field(name) else { continue };
                if !has_rules(type_of) {
                    continue;
                }
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                walk(below, old.and_then(|old| old.get(name)), type_of, path, found);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let Some(type_of) = schema.items.as_deref().filter(|items| has_rules(items)) else { return };
            for (index, item) in items.iter().enumerate() {
                let _ = write!(path, "[{index}]");
                walk(item, matching(old, item, schema), type_of, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// The element of the old list that a transition rule compares with.
fn matching<'v>(old: Option<&'v Value>, item: &Value, schema: &Schema) -> Option<&'v Value> {
    if !matches!(schema.list, ListType::Map(_)) {
        return None;
    }
    let key = element_of(item, schema, 0)?;
    old?.as_array()?.iter().find(|other| element_of(other, schema, 0).as_ref() == Some(&key))
}

fn uses_old(rule: &str) -> bool {
    rule.match_indices("oldSelf").any(|(place, word)| {
        let boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        boundary(rule[..place].chars().next_back()) && boundary(rule[place + word.len()..].chars().next())
    })
}

fn run(
    rule: &crate::schema::CelRule,
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &str,
) -> Option<Cause> {
    let field = if rule.field_path.is_empty() {
        path.to_owned()
    } else if path.is_empty() {
        rule.field_path.trim_start_matches('.').to_owned()
    } else {
        format!("{path}{}", rule.field_path)
    };
    let reason = match rule.reason.as_str() {
        "FieldValueRequired" => CauseReason::Required,
        "FieldValueForbidden" => CauseReason::Forbidden,
        "FieldValueDuplicate" => CauseReason::Duplicate,
        _ => CauseReason::Invalid,
    };
    let shown = match (reason, value) {
        (_, Value::Object(_) | Value::Array(_)) => None,
        (CauseReason::Invalid | CauseReason::Duplicate, _) => Some(super::validate::show(value)),
        _ => None,
    };
    let named = match value {
        Value::Object(_) => Some("\"object\"".to_owned()),
        Value::Array(_) => Some("\"array\"".to_owned()),
        other => Some(super::validate::show(other)),
    };
    let compiled = match program(&rule.rule) {
        Ok(compiled) => compiled,
        Err(error) => {
            let detail = format!("rule compile error: compilation failed: {error}");
            return Some(cause(&field, CauseReason::Invalid, shown, detail));
        }
    };
    let mut context = Context::with_env(environment());
    context.add_variable_from_value("self", to_cel(value, Some(schema)));
    if let Some(old) = old {
        context.add_variable_from_value("oldSelf", to_cel(old, Some(schema)));
    }
    match compiled.execute(&context) {
        // A function of Kubernetes that is not known here restricts nothing.
        Ok(CelValue::Bool(true))
        | Err(ExecutionError::UndeclaredReference(_) | ExecutionError::NoSuchOverload(_)) => None,
        Err(error) => {
            let what = match &error {
                ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
                other => other.to_string(),
            };
            let rule = if rule.message.is_empty() { &rule.rule } else { &rule.message };
            Some(cause(path, CauseReason::Invalid, named, format!("{what} evaluating rule: {rule}")))
        }
        Ok(_) => {
            let written = (!rule.message_expression.is_empty())
                .then(|| program(&rule.message_expression).ok()?.execute(&context).ok())
                .flatten();
            let detail = match written {
                Some(CelValue::String(text)) => text.to_string(),
                _ if rule.message.is_empty() => format!("failed rule: {}", rule.rule),
                _ => rule.message.clone(),
            };
            Some(cause(&field, reason, shown, detail))
        }
    }
}

/// The value as CEL sees it by its type.
fn to_cel(value: &Value, schema: Option<&Schema>) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match (schema.map(|schema| schema.ty), number.as_i64()) {
            (Some(Type::Number), _) | (_, None) => CelValue::Float(number.as_f64().unwrap_or_default()),
            (_, Some(whole)) => CelValue::Int(whole),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => {
            let type_of = schema.and_then(|schema| schema.items.as_deref());
            CelValue::List(Arc::new(items.iter().map(|item| to_cel(item, type_of)).collect()))
        }
        Value::Object(map) => {
            let entries = map.iter().map(|(name, below)| {
                let type_of = schema.and_then(|schema| schema.field(name));
                let is_field = schema.is_some_and(|schema| schema.named_field(name).is_some());
                let name = if is_field { escape(name) } else { name.clone() };
                (Key::String(Arc::new(name)), to_cel(below, type_of))
            });
            CelValue::Map(CelMap { map: Arc::new(entries.collect()) })
        }
    }
}

/// The name of a field as rules write it.
fn escape(name: &str) -> String {
    const KEYWORDS: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
    ];
    if KEYWORDS.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use super::super::schema::convert;
    use super::*;
    use serde_json::json;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn check_rule(rule: Value, value: Value, old: Option<Value>, want: &[&str]) {
        let schema = convert(&json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"}, "m": {"type": "integer"}, "s": {"type": "string"},
                "l": {"type": "array", "items": {"type": "string"}},
                "my-name": {"type": "string"}, "namespace": {"type": "string"},
            },
            "x-kubernetes-validations": [rule],
        }}}));
        let mut found = Vec::new();
        let old = old.map(|old| json!({"spec": old}));
        check(&json!({"spec": value}), old.as_ref(), &schema, &mut found);
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
    }

    #[test]
    fn rules_on_values() {
        check_rule(json!({"rule": "self.n <= self.m"}), json!({"n": 1, "m": 2}), None, &[]);
        check_rule(
            json!({"rule": "self.n <= self.m"}),
            json!({"n": 3, "m": 2}),
            None,
            &["spec: Invalid value: failed rule: self.n <= self.m"],
        );
        check_rule(
            json!({"rule": "!has(self.s) || self.s.startsWith('a')", "message": "must begin with a"}),
            json!({"s": "b"}),
            None,
            &["spec: Invalid value: must begin with a"],
        );
        check_rule(json!({"rule": "self.l.all(x, x.size() < 3)"}), json!({"l": ["a", "bb"]}), None, &[]);
        check_rule(
            json!({"rule": "self.my__dash__name == self.__namespace__"}),
            json!({"my-name": "a", "namespace": "a"}),
            None,
            &[],
        );
        check_rule(
            json!({"rule": "self.n == 1", "messageExpression": "'n is ' + string(self.n)"}),
            json!({"n": 2}),
            None,
            &["spec: Invalid value: n is 2"],
        );
    }

    #[test]
    fn transition_rules_need_an_old_state() {
        let rule = json!({"rule": "self.s == oldSelf.s", "message": "s is immutable"});
        check_rule(rule.clone(), json!({"s": "a"}), None, &[]);
        check_rule(rule.clone(), json!({"s": "a"}), Some(json!({"s": "a"})), &[]);
        check_rule(
            rule,
            json!({"s": "a"}),
            Some(json!({"s": "b"})),
            &["spec: Invalid value: s is immutable"],
        );
    }
}
