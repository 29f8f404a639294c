//! Health rules written by users as CEL expressions.

use serde_json::Value;

use super::{Assessment, Status, integer};
use crate::expression::{Expression, ExpressionError, Numbers};
use crate::object::{ObjectRef, split_api_version};

/// One rule, for one kind or a whole group.
#[derive(Debug)]
pub struct CustomCheck {
    group: String,
    kind: Option<String>,
    current: Expression,
    in_progress: Option<Expression>,
    failed: Option<Expression>,
}

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCheck {
    /// An expression does not parse.
    #[error("failed to create custom status evaluator for healthchecks[{index}]: {source}")]
    Expression {
        /// Position in the list.
        index: usize,
        /// The cause.
        source: ExpressionError,
    },
    /// The required expression is missing.
    #[error(
        "failed to create custom status evaluator for healthchecks[{index}]: expression Current not specified"
    )]
    NoCurrent {
        /// Position in the list.
        index: usize,
    },
    /// Two rules are for the same kind.
    #[error("duplicate custom health check for GroupKind {group_kind} at healthchecks[{index}]")]
    Duplicate {
        /// `Kind.group`.
        group_kind: String,
        /// Position in the list.
        index: usize,
    },
}

/// One rule as written: API version, kind, and the expressions; empty means absent.
#[derive(Debug, Clone, Default)]
pub struct Source<'a> {
    /// `group/version`; the version does not matter.
    pub api_version: &'a str,
    /// The kind, or empty for every kind of the group.
    pub kind: &'a str,
    /// True when the object is ready.
    pub current: &'a str,
    /// True while it is on its way.
    pub in_progress: &'a str,
    /// True when it will not get there.
    pub failed: &'a str,
}

/// The custom rules in force.
#[derive(Debug, Default)]
pub struct CustomChecks {
    checks: Vec<CustomCheck>,
    /// Whether custom rules come before the built-in rule for Jobs.
    pub before_jobs: bool,
}

impl CustomChecks {
    /// Compiles rules.
    ///
    /// # Errors
    /// When an expression does not parse, `current` is missing, or a kind has two rules.
    pub fn compile<'a>(sources: impl IntoIterator<Item = Source<'a>>) -> Result<Self, InvalidCheck> {
        let mut checks: Vec<CustomCheck> = Vec::new();
        for (index, source) in sources.into_iter().enumerate() {
            let parse = |text: &str| {
                Expression::parse(text).map_err(|source| InvalidCheck::Expression { index, source })
            };
            let optional = |text: &str| (!text.is_empty()).then(|| parse(text)).transpose();
            if source.current.is_empty() {
                return Err(InvalidCheck::NoCurrent { index });
            }
            let check = CustomCheck {
                group: split_api_version(source.api_version).0.to_owned(),
                kind: (!source.kind.is_empty()).then(|| source.kind.to_owned()),
                current: parse(source.current)?,
                in_progress: optional(source.in_progress)?,
                failed: optional(source.failed)?,
            };
            if checks.iter().any(|known| known.group == check.group && known.kind == check.kind) {
                let kind = ObjectRef {
                    group: check.group,
                    kind: check.kind.unwrap_or_default(),
                    ..ObjectRef::default()
                };
                return Err(InvalidCheck::Duplicate { group_kind: kind.group_kind(), index });
            }
            checks.push(check);
        }
        Ok(Self { checks, before_jobs: false })
    }

    /// The rule for an object: the one for its kind, else the one for its group.
    pub fn find(&self, object: &ObjectRef) -> Option<&CustomCheck> {
        let of_group = || self.checks.iter().filter(|check| check.group == object.group);
        of_group()
            .find(|check| check.kind.as_deref() == Some(object.kind.as_str()))
            .or_else(|| of_group().find(|check| check.kind.is_none()))
    }
}

impl CustomCheck {
    pub(super) fn assess(&self, live: &Value) -> Assessment {
        let generation = integer(live, &["metadata", "generation"]);
        let observed = integer(live, &["status", "observedGeneration"]);
        if let (Some(generation), Some(observed)) = (generation, observed)
            && generation != observed
        {
            return Assessment::new(
                Status::InProgress,
                format!("generation is {generation}, but latest observed generation is {observed}"),
            );
        }
        let rules = [
            (self.in_progress.as_ref(), Status::InProgress),
            (self.failed.as_ref(), Status::Failed),
            (Some(&self.current), Status::Current),
        ];
        for (expression, status) in rules {
            let Some(expression) = expression else {
                continue;
            };
            let variables = live.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value));
            match expression.evaluate(variables, Numbers::Integers) {
                Ok(true) => {
                    return Assessment::new(
                        status,
                        format!("custom status {status}: {}", expression.source()),
                    );
                }
                Ok(false) => {}
                Err(error) => return Assessment::new(Status::Unknown, error.to_string()),
            }
        }
        Assessment::new(Status::InProgress, "no custom health check expression is true")
    }
}
