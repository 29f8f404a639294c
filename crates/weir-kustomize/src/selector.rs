//! Selectors of patches and replacements: anchored regular expressions and label selectors.

use regex::Regex;

use crate::error::{Context as _, Error, Result};
use crate::id::Gvk;
use crate::kustomization::Selector;
use crate::node::Node;
use crate::resource::Resource;
use crate::schema::Schema;

/// A pattern that must match the whole text; an empty one matches everything.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Option<Matcher>);

#[derive(Debug, Clone)]
enum Matcher {
    /// The pattern has no special characters.
    Literal(String),
    Regex(Regex),
}

impl Pattern {
    pub(crate) fn new(pattern: &str) -> Result<Self> {
        if pattern.is_empty() {
            return Ok(Self(None));
        }
        if pattern.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
            return Ok(Self(Some(Matcher::Literal(pattern.to_owned()))));
        }
        Ok(Self(Some(Matcher::Regex(compile(&format!("^(?:{pattern})$"))?))))
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        match &self.0 {
            None => true,
            Some(Matcher::Literal(literal)) => literal == text,
            Some(Matcher::Regex(regex)) => regex.is_match(text),
        }
    }
}

/// Compiles a pattern in RE2 syntax.
pub(crate) fn compile(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| {
        let text = error.to_string();
        let cause = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Error::message(format!("error parsing regexp: `{pattern}`: {cause}"))
    })
}

/// A compiled selector.
#[derive(Debug, Clone)]
pub(crate) struct ResourceSelector {
    pub(crate) group: Pattern,
    pub(crate) version: Pattern,
    pub(crate) kind: Pattern,
    pub(crate) name: Pattern,
    pub(crate) namespace: Pattern,
    pub(crate) labels: LabelSelector,
    pub(crate) annotations: LabelSelector,
}

impl ResourceSelector {
    pub(crate) fn new(selector: &Selector) -> Result<Self> {
        Ok(Self {
            group: Pattern::new(&selector.group)?,
            version: Pattern::new(&selector.version)?,
            kind: Pattern::new(&selector.kind)?,
            name: Pattern::new(&selector.name)?,
            namespace: Pattern::new(&selector.namespace)?,
            labels: LabelSelector::parse(&selector.label_selector)?,
            annotations: LabelSelector::parse(&selector.annotation_selector)?,
        })
    }

    pub(crate) fn matches_gvk(&self, gvk: &Gvk) -> bool {
        self.kind.matches(&gvk.kind) && self.group.matches(&gvk.group) && self.version.matches(&gvk.version)
    }

    /// Whether a patch with this target applies: the type as it is now, name and namespace as they are
    /// now or were first.
    pub(crate) fn selects(&self, resource: &Resource, schema: &Schema) -> bool {
        let current = resource.current_id(schema);
        if !self.matches_gvk(&current.gvk) {
            return false;
        }
        let original = resource.previous.first();
        let name = self.name.matches(&current.name) || original.is_some_and(|id| self.name.matches(&id.name));
        let namespace = self.namespace.matches(current.effective_namespace())
            || original.is_some_and(|id| self.namespace.matches(&id.namespace));
        name && namespace && self.matches_metadata(&resource.node)
    }

    pub(crate) fn matches_metadata(&self, object: &Node) -> bool {
        let metadata = object.get("metadata");
        self.labels.matches(metadata.and_then(|map| map.get("labels")))
            && self.annotations.matches(metadata.and_then(|map| map.get("annotations")))
    }
}

#[derive(Debug, Clone)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
    Greater(String, i64),
    Less(String, i64),
}

/// A Kubernetes label selector; empty selects everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser { text, at: 0 };
        let mut requirements = Vec::new();
        parser.skip_blanks();
        if parser.rest().is_empty() {
            return Ok(Self::default());
        }
        loop {
            requirements.push(parser.requirement().context(|| format!("unable to parse selector '{text}'"))?);
            parser.skip_blanks();
            if parser.rest().is_empty() {
                return Ok(Self { requirements });
            }
            if !parser.eat(",") {
                return Err(Error::message(format!(
                    "unable to parse selector '{text}': found '{}', expected: ',' or 'end of string'",
                    parser.rest()
                )));
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels or annotations, if any, fit.
    pub(crate) fn matches(&self, labels: Option<&Node>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = |key: &str| labels.and_then(|map| map.get(key)).map(Node::text);
            match requirement {
                Requirement::In(key, values) => {
                    value(key).is_some_and(|value| values.iter().any(|wanted| wanted == value))
                }
                Requirement::NotIn(key, values) => {
                    value(key).is_none_or(|value| values.iter().all(|wanted| wanted != value))
                }
                Requirement::Exists(key) => value(key).is_some(),
                Requirement::Missing(key) => value(key).is_none(),
                Requirement::Greater(key, bound) => {
                    value(key).and_then(|value| value.parse::<i64>().ok()).is_some_and(|value| value > *bound)
                }
                Requirement::Less(key, bound) => {
                    value(key).and_then(|value| value.parse::<i64>().ok()).is_some_and(|value| value < *bound)
                }
            }
        })
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn word(&mut self) -> &'a str {
        self.skip_blanks();
        let rest = self.rest();
        let end = rest
            .find(|character: char| {
                character.is_whitespace() || matches!(character, '=' | '!' | '(' | ')' | ',' | '<' | '>')
            })
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn requirement(&mut self) -> Result<Requirement> {
        if self.eat("!") {
            return Ok(Requirement::Missing(self.key()?));
        }
        let key = self.key()?;
        self.skip_blanks();
        if self.rest().is_empty() || self.rest().starts_with(',') {
            return Ok(Requirement::Exists(key));
        }
        for (token, equal) in [("!=", false), ("==", true), ("=", true)] {
            if self.eat(token) {
                let value = self.word().to_owned();
                return Ok(if equal {
                    Requirement::In(key, vec![value])
                } else {
                    Requirement::NotIn(key, vec![value])
                });
            }
        }
        for (token, greater) in [(">", true), ("<", false)] {
            if self.eat(token) {
                let word = self.word();
                let bound = word.parse().map_err(|_| {
                    Error::message(format!(
                        "for 'Gt', 'Lt' operators, the value must be an integer, not '{word}'"
                    ))
                })?;
                return Ok(if greater {
                    Requirement::Greater(key, bound)
                } else {
                    Requirement::Less(key, bound)
                });
            }
        }
        match self.word() {
            "in" => Ok(Requirement::In(key, self.values()?)),
            "notin" => Ok(Requirement::NotIn(key, self.values()?)),
            other => Err(Error::message(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt"))),
        }
    }

    fn key(&mut self) -> Result<String> {
        let key = self.word();
        let name = key.rsplit('/').next().unwrap_or_default();
        let fine = |text: &str| {
            text.starts_with(|first: char| first.is_ascii_alphanumeric())
                && text.ends_with(|last: char| last.is_ascii_alphanumeric())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        if fine(name) && name.len() <= 63 && key.matches('/').count() <= 1 && !key.starts_with('/') {
            Ok(key.to_owned())
        } else {
            Err(Error::message(format!(
                "found '{}', expected: !, identifier, or 'end of string'",
                self.rest()
            )))
        }
    }

    fn values(&mut self) -> Result<Vec<String>> {
        if !self.eat("(") {
            return Err(Error::message(format!("found '{}' expected: '('", self.rest())));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.word().to_owned());
            if self.eat(")") {
                return Ok(values);
            }
            if !self.eat(",") {
                return Err(Error::message(format!("found '{}', expected: ',' or ')'", self.rest())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Map;

    #[track_caller]
    fn check(selector: &str, expected: bool) {
        let mut labels = Map::default();
        labels.push("env", Node::string("a"));
        labels.push("n", Node::string("5"));
        let selector = LabelSelector::parse(selector).unwrap();
        assert_eq!(selector.matches(Some(&Node::Map(labels))), expected);
    }

    #[test]
    fn label_selectors() {
        check("", true);
        check("env=a", true);
        check("env == b", false);
        check("env!=b,n", true);
        check("env in (a, b)", true);
        check("env notin (a,b)", false);
        check("!other", true);
        check("n>4,n<6", true);
        check("other!=x", true);
        assert!(LabelSelector::parse("env in a").is_err());
        assert!(LabelSelector::parse("=a").is_err());
    }

    #[test]
    fn patterns_match_the_whole_text() {
        let pattern = Pattern::new("nginx.*|web").unwrap();
        assert!(pattern.matches("nginx-2") && pattern.matches("web") && !pattern.matches("web-2"));
        assert!(!Pattern::new("nginx").unwrap().matches("nginx-2"));
        assert!(Pattern::new("(").is_err());
    }
}
