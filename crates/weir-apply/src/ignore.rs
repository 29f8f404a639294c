//! Rules that take fields out of the comparison, and out of the payload when they differ.

use regex::Regex;
use serde_json::Value;

use crate::managers::escape;
use crate::object::{self, ObjectRef};

/// Which objects a rule is for; an empty field matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// Anchored regular expression on the API group.
    pub group: String,
    /// Anchored regular expression on the API version.
    pub version: String,
    /// Anchored regular expression on the kind.
    pub kind: String,
    /// Anchored regular expression on the name.
    pub name: String,
    /// Anchored regular expression on the namespace.
    pub namespace: String,
    /// Label selector on the labels.
    pub label_selector: String,
    /// Label selector on the annotations.
    pub annotation_selector: String,
}

/// One entry of `spec.ignore`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// JSON pointers of the ignored fields.
    pub paths: Vec<String>,
    /// Which objects; `None` means all.
    pub target: Option<Target>,
}

/// A rule that could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to create ignore rule selector: {0}")]
pub struct InvalidRule(pub String);

#[derive(Debug)]
struct Compiled {
    expressions: [Option<Regex>; 5],
    labels: Selector,
    annotations: Selector,
    paths: Vec<String>,
}

/// Compiled rules.
///
/// Of several rules without a target only the last one counts, as in the reference.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Compiled>,
}

impl Rules {
    /// Compiles rules.
    ///
    /// # Errors
    /// When a regular expression or selector does not parse.
    pub fn compile(rules: &[Rule]) -> Result<Self, InvalidRule> {
        let last_without_target = rules.iter().rposition(|rule| rule.target.is_none());
        let mut compiled = Vec::new();
        for (position, rule) in rules.iter().enumerate() {
            if rule.target.is_none() && last_without_target != Some(position) {
                continue;
            }
            let target = rule.target.clone().unwrap_or_default();
            compiled.push(Compiled {
                expressions: [
                    expression(&target.group)?,
                    expression(&target.version)?,
                    expression(&target.kind)?,
                    expression(&target.name)?,
                    expression(&target.namespace)?,
                ],
                labels: Selector::parse(&target.label_selector)?,
                annotations: Selector::parse(&target.annotation_selector)?,
                paths: rule.paths.clone(),
            });
        }
        Ok(Self { rules: compiled })
    }

    /// The pointers ignored on `object`, each once.
    pub fn paths(&self, object: &Value) -> Vec<&str> {
        let reference = ObjectRef::of(object);
        let mut paths: Vec<&str> = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.matches(&reference, object)) {
            for path in &rule.paths {
                if !paths.contains(&path.as_str()) {
                    paths.push(path);
                }
            }
        }
        paths
    }
}

impl Compiled {
    fn matches(&self, reference: &ObjectRef, object: &Value) -> bool {
        let fields =
            [&reference.group, &reference.version, &reference.kind, &reference.name, &reference.namespace];
        self.expressions.iter().zip(fields).all(|(expression, field)| {
            expression.as_ref().is_none_or(|expression| expression.is_match(field))
        }) && self.labels.matches(|key| object::label(object, key))
            && self.annotations.matches(|key| object::annotation(object, key))
    }
}

fn expression(pattern: &str) -> Result<Option<Regex>, InvalidRule> {
    if pattern.is_empty() {
        return Ok(None);
    }
    Regex::new(&format!("^(?:{pattern})$")).map(Some).map_err(|error| InvalidRule(error.to_string()))
}

/// A Kubernetes label selector: `a=b,c!=d,e in (f, g),h notin (i),j,!k`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

impl Selector {
    /// Parses a selector; the empty one matches everything.
    ///
    /// # Errors
    /// When a requirement has no key or an unknown form.
    pub fn parse(text: &str) -> Result<Self, InvalidRule> {
        let mut requirements = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            requirements.push(
                parse_requirement(part)
                    .ok_or_else(|| InvalidRule(format!("unable to parse requirement: '{part}'")))?,
            );
        }
        Ok(Self { requirements })
    }

    /// Whether the values `get` returns by key satisfy every requirement.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => get(key).is_some_and(|value| values.iter().any(|v| v == value)),
            Requirement::NotIn(key, values) => get(key).is_none_or(|value| values.iter().all(|v| v != value)),
            Requirement::Exists(key) => get(key).is_some(),
            Requirement::Missing(key) => get(key).is_none(),
        })
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_u32);
    for (position, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_requirement(part: &str) -> Option<Requirement> {
    let key = |text: &str| {
        let text = text.trim();
        (!text.is_empty() && !text.contains(char::is_whitespace)).then(|| text.to_owned())
    };
    if let Some(missing) = part.strip_prefix('!') {
        return Some(Requirement::Missing(key(missing)?));
    }
    if let Some((name, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let name = name.trim();
        if let Some(name) = name.strip_suffix(" notin") {
            return Some(Requirement::NotIn(key(name)?, values));
        }
        return Some(Requirement::In(key(name.strip_suffix(" in")?)?, values));
    }
    for (separator, negated) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((name, value)) = part.split_once(separator) {
            let values = vec![value.trim().to_owned()];
            let name = key(name)?;
            return Some(if negated {
                Requirement::NotIn(name, values)
            } else {
                Requirement::In(name, values)
            });
        }
    }
    Some(Requirement::Exists(key(part)?))
}

/// Removes the value at a JSON pointer; a negative list index counts from the end. Missing is fine.
pub fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return;
    };
    let Some(parent) = find_mut(value, parent) else {
        return;
    };
    match parent {
        Value::Object(map) => {
            map.remove(&unescape(last));
        }
        Value::Array(items) => {
            if let Some(index) = list_index(last, items.len()) {
                items.remove(index);
            }
        }
        _ => {}
    }
}

/// The value at a JSON pointer.
pub fn get<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut current = value;
    for token in tokens(pointer) {
        current = match current {
            Value::Object(map) => map.get(&token)?,
            Value::Array(items) => items.get(list_index(&token, items.len())?)?,
            _ => return None,
        };
    }
    Some(current)
}

fn find_mut<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    let mut current = value;
    for token in tokens(pointer) {
        current = match current {
            Value::Object(map) => map.get_mut(&token)?,
            Value::Array(items) => {
                let index = list_index(&token, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    Some(current)
}

fn tokens(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(unescape)
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn list_index(token: &str, length: usize) -> Option<usize> {
    let index: i64 = token.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { length + index } else { index };
    (0..length).contains(&index).then_some(index as usize)
}

/// Whether a manager other than `manager` owns the field through server-side apply.
fn applied_by_other(live: &Value, pointer: &str, manager: &str) -> bool {
    let Some(entries) = get(live, "/metadata/managedFields").and_then(Value::as_array) else {
        return false;
    };
    entries
        .iter()
        .filter(|entry| {
            object::text(entry, "operation") == "Apply"
                && object::text(entry, "subresource").is_empty()
                && object::text(entry, "manager") != manager
        })
        .filter_map(|entry| entry.get("fieldsV1"))
        .any(|fields| owns(fields, live, pointer))
}

/// Whether a `fieldsV1` set holds the field at `pointer`, list items being looked up in `live` for their keys.
fn owns(fields: &Value, live: &Value, pointer: &str) -> bool {
    let mut fields = fields;
    let mut current = live;
    for token in tokens(pointer) {
        let Some(map) = fields.as_object() else {
            return false;
        };
        match current {
            Value::Object(object) => {
                let Some(next) = map.get(&format!("f:{token}")) else {
                    return false;
                };
                fields = next;
                current = object.get(&token).unwrap_or(&Value::Null);
            }
            Value::Array(items) => {
                let Some(item) = list_index(&token, items.len()).and_then(|index| items.get(index)) else {
                    return false;
                };
                let Some(next) = map.iter().find_map(|(key, next)| item_matches(key, item).then_some(next))
                else {
                    return false;
                };
                fields = next;
                current = item;
            }
            _ => return false,
        }
    }
    true
}

fn item_matches(key: &str, item: &Value) -> bool {
    let Some(keys) = key.strip_prefix("k:") else {
        return false;
    };
    let Ok(Value::Object(keys)) = serde_json::from_str::<Value>(keys) else {
        return false;
    };
    !keys.is_empty() && keys.iter().all(|(name, value)| item.get(name) == Some(value))
}

/// The payload in which each ignored field that differs is settled: given up when another manager
/// applies it, else set to its live value.
///
/// # Errors
/// When a field to be set is absent from the payload.
pub fn settle(
    payload: &Value,
    live: &Value,
    dry_run: &Value,
    paths: &[&str],
    manager: &str,
) -> Result<Value, UnsettledPath> {
    let mut payload = payload.clone();
    let mut given_up = Vec::new();
    for path in paths {
        let (is, would) = (get(live, path), get(dry_run, path));
        if is == would {
            continue;
        }
        match is {
            Some(is) if !applied_by_other(live, path, manager) => {
                let field = find_mut(&mut payload, path).ok_or_else(|| UnsettledPath((*path).to_owned()))?;
                *field = is.clone();
            }
            Some(_) | None => given_up.push(*path),
        }
    }
    for path in given_up.into_iter().rev() {
        remove(&mut payload, path);
    }
    Ok(payload)
}

/// An ignored field that differs and that the manifest does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to replace ignored path '{0}': the manifest has no such field")]
pub struct UnsettledPath(pub String);

/// A JSON pointer of keys, for messages.
pub fn pointer<'a>(keys: impl IntoIterator<Item = &'a str>) -> String {
    keys.into_iter().fold(String::new(), |mut path, key| {
        path.push('/');
        path.push_str(&escape(key));
        path
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(target: Option<Target>, paths: &[&str]) -> Rule {
        Rule { paths: paths.iter().map(ToString::to_string).collect(), target }
    }

    #[test]
    fn only_the_last_rule_without_target_counts() {
        let rules = Rules::compile(&[
            rule(None, &["/spec/a"]),
            rule(Some(Target { kind: "Deploy.*".into(), ..Target::default() }), &["/spec/replicas"]),
            rule(None, &["/spec/b"]),
        ])
        .unwrap();
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}});
        assert_eq!(rules.paths(&deployment), ["/spec/replicas", "/spec/b"]);
        let other = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}});
        assert_eq!(rules.paths(&other), ["/spec/b"]);
    }

    #[test]
    fn expressions_are_anchored() {
        let rules =
            Rules::compile(&[rule(Some(Target { name: "web|api".into(), ..Target::default() }), &["/x"])])
                .unwrap();
        let named = |name: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}});
        assert_eq!(rules.paths(&named("api")), ["/x"]);
        assert!(rules.paths(&named("api2")).is_empty());
        assert!(
            Rules::compile(&[rule(Some(Target { name: "(".into(), ..Target::default() }), &[])]).is_err()
        );
    }

    #[track_caller]
    fn check_selector(selector: &str, labels: &[(&str, &'static str)], expected: bool) {
        let selector = Selector::parse(selector).unwrap();
        let get = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        assert_eq!(selector.matches(get), expected);
    }

    #[test]
    fn selectors() {
        check_selector("", &[], true);
        check_selector("a=b", &[("a", "b")], true);
        check_selector("a==b,c!=d", &[("a", "b")], true);
        check_selector("a==b,c!=d", &[("a", "b"), ("c", "d")], false);
        check_selector("a in (x, y),!z", &[("a", "y")], true);
        check_selector("a notin (x,y)", &[("a", "y")], false);
        check_selector("a", &[("a", "")], true);
        check_selector("!a", &[("a", "")], false);
        assert!(Selector::parse("a b").is_err());
        assert!(Selector::parse("=b").is_err());
    }

    #[test]
    fn pointers_remove_by_key_and_index() {
        let mut value = json!({"a": {"x/y": 1}, "l": [1, 2, 3]});
        remove(&mut value, "/a/x~1y");
        remove(&mut value, "/l/-1");
        remove(&mut value, "/l/7");
        remove(&mut value, "/nope/x");
        assert_eq!(value, json!({"a": {}, "l": [1, 2]}));
    }

    #[test]
    fn differing_ignored_fields_are_adopted_or_given_up() {
        let live = json!({"spec": {"replicas": 5, "containers": [{"name": "c", "image": "live"}]}, "metadata": {"managedFields": [
            {"manager": "autoscaler", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "updater", "operation": "Apply",
             "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}}]}});
        let payload = json!({"spec": {"replicas": 1, "containers": [{"name": "c", "image": "git"}]}});
        let settled =
            settle(&payload, &live, &payload, &["/spec/replicas", "/spec/containers/0/image"], "me").unwrap();
        assert_eq!(settled, json!({"spec": {"replicas": 5, "containers": [{"name": "c"}]}}));
    }

    #[test]
    fn a_field_missing_from_the_manifest_cannot_be_adopted() {
        let live = json!({"spec": {"replicas": 5}});
        let error =
            settle(&json!({"spec": {}}), &live, &json!({"spec": {}}), &["/spec/replicas"], "me").unwrap_err();
        assert!(error.to_string().contains("/spec/replicas"), "{error}");
    }
}
