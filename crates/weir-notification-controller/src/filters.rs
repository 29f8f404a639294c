//! The CEL expressions of a Receiver: which objects a request concerns, and whose identity tokens count. Pure.

use std::fmt;

use serde_json::{Map, Value};
use weir_api::notification::{OidcProvider, ReceiverSpec, ReceiverType};
use weir_apply::expression::{Expression, ExpressionError, Numbers, Output, Variables};

/// JSON numbers are doubles here, as in the reference.
const NUMBERS: Numbers = Numbers::Doubles;
/// The most steps loops of a filter may take. Users write filters and strangers send what they loop
/// over, and an evaluation cannot be stopped.
const STEPS_MAX: u64 = 1_000_000_000;

/// An expression of a Receiver that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExpression {
    /// The filter for all resources.
    #[error("invalid resourceFilter expression: {0}")]
    ResourceFilter(ExpressionError),
    /// The filter of one resource.
    #[error("invalid filter expression for resources[{index}] (kind={kind:?}, name={name:?}): {error}")]
    Filter {
        /// Which resource.
        index: usize,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// What is wrong.
        error: ExpressionError,
    },
    /// A named expression of an identity provider.
    #[error("invalid expression for variable {name:?}: {error}")]
    Variable {
        /// The name.
        name: String,
        /// What is wrong.
        error: ExpressionError,
    },
    /// A check of an identity provider.
    #[error("invalid expression for validation {message:?}: {error}")]
    Validation {
        /// The message of the check.
        message: String,
        /// What is wrong.
        error: ExpressionError,
    },
}

/// The filters of a Receiver.
#[derive(Debug)]
pub struct Filters {
    all: Option<Expression>,
    each: Vec<Option<Expression>>,
}

impl Filters {
    /// The filters of a spec.
    ///
    /// # Errors
    /// The first expression that cannot be used.
    pub fn new(spec: &ReceiverSpec) -> Result<Self, InvalidExpression> {
        let variables: &[&str] =
            if spec.type_ == ReceiverType::GenericOidc { &["res", "req", "claims"] } else { &["res", "req"] };
        let compile = |source: &str| Expression::compile(source, Output::Boolean, variables);
        let all = spec.resource_filter.as_deref().filter(|filter| !filter.is_empty());
        let all = all.map(compile).transpose().map_err(InvalidExpression::ResourceFilter)?;
        let each = spec.resources.iter().enumerate().map(|(index, resource)| {
            let filter = resource.filter.as_deref().filter(|filter| !filter.is_empty());
            filter.map(compile).transpose().map_err(|error| InvalidExpression::Filter {
                index,
                kind: resource.kind.to_string(),
                name: resource.name.clone(),
                error,
            })
        });
        Ok(Self { each: each.collect::<Result<_, _>>()?, all })
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.each.iter().all(Option::is_none)
    }

    /// Whether there is one for a resource of the spec.
    pub fn concern(&self, resource: usize) -> bool {
        self.all.is_some() || self.each.get(resource).is_some_and(Option::is_some)
    }

    /// Whether an object of a resource passes; `object` is its metadata, with apiVersion and kind.
    ///
    /// # Errors
    /// A filter that gives no answer, for example because a field is missing, or that might take too long.
    pub fn pass(&self, resource: usize, request: &Sent, object: &Value) -> Result<bool, NoAnswer> {
        let variables = request.variables.clone().with("res", object, NUMBERS);
        let size = request.size.max(Size::of(object));
        let own = self.each.get(resource).and_then(Option::as_ref);
        for filter in [self.all.as_ref(), own].into_iter().flatten() {
            let longest = if filter.calls("split") { size.list.max(size.text) } else { size.list };
            if longest.checked_pow(filter.nesting()).is_none_or(|steps| steps > STEPS_MAX) {
                return Err(NoAnswer::TooLong);
            }
            if !filter.evaluate_boolean(&variables)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A filter that does not say whether an object passes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// It cannot be evaluated.
    #[error(transparent)]
    Evaluation(#[from] ExpressionError),
    /// Loops inside of loops over what was sent might go on for ever.
    #[error("the filter loops too often over a request of this size")]
    TooLong,
}

/// What was sent, as filters see it.
#[derive(Debug, Clone)]
pub struct Sent {
    variables: Variables,
    size: Size,
}

/// The length of the longest list or object in a value, and of the longest text, which can be split into a list.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    list: u64,
    text: u64,
}

impl Size {
    fn of(value: &Value) -> Self {
        match value {
            Value::Array(items) => {
                items.iter().map(Self::of).fold(Self { list: items.len() as u64, text: 0 }, Self::max)
            }
            Value::Object(map) => {
                map.values().map(Self::of).fold(Self { list: map.len() as u64, text: 0 }, Self::max)
            }
            Value::String(text) => Self { list: 0, text: text.len() as u64 },
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::default(),
        }
    }

    fn max(self, other: Self) -> Self {
        Self { list: self.list.max(other.list), text: self.text.max(other.text) }
    }
}

/// A body that should be JSON and is not.
#[derive(Debug, thiserror::Error)]
#[error("failed to parse request body as JSON")]
pub struct NotJson(#[source] serde_json::Error);

impl Sent {
    /// A body that says it is JSON, or any other, of which filters see nothing; and the claims of the sender.
    ///
    /// # Errors
    /// A body that says it is JSON and is no JSON object.
    pub fn new(body: &[u8], is_json: bool, claims: Option<&Value>) -> Result<Self, NotJson> {
        let body = if is_json {
            let mut deserializer = serde_json::Deserializer::from_slice(body);
            serde::Deserialize::deserialize(&mut deserializer).map_err(NotJson)?
        } else {
            Map::new()
        };
        let body = Value::Object(body);
        let size = Size::of(&body).max(claims.map(Size::of).unwrap_or_default());
        let variables = Variables::new([("req", &body)], NUMBERS);
        let variables = match claims {
            Some(claims) => variables.with("claims", claims, NUMBERS),
            None => variables,
        };
        Ok(Self { variables, size })
    }
}

/// What an identity provider of a Receiver asks of the claims of a token.
#[derive(Debug)]
pub struct ClaimsRules {
    variables: Vec<(String, Expression)>,
    validations: Vec<(String, Expression)>,
}

/// Claims that are not those asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedClaims {
    /// A variable that gives no value.
    Variable(String, ExpressionError),
    /// A check that gives no answer.
    Validation(ExpressionError),
    /// The messages of the checks that failed.
    Failed(Vec<String>),
}

impl fmt::Display for RefusedClaims {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name, error) => write!(formatter, "failed to evaluate variable {name:?}: {error}"),
            Self::Validation(error) => write!(formatter, "failed to evaluate validation: {error}"),
            Self::Failed(messages) => write!(formatter, "token validation failed: {}", messages.join("; ")),
        }
    }
}

impl ClaimsRules {
    /// The rules of a provider.
    ///
    /// # Errors
    /// The first expression that cannot be used.
    pub fn new(provider: &OidcProvider) -> Result<Self, InvalidExpression> {
        let names = &["claims", "vars"];
        let variables = provider.variables.iter().map(|variable| {
            let compiled = Expression::compile(&variable.expression, Output::Any, names);
            let name = variable.name.clone();
            match compiled {
                Ok(expression) => Ok((name, expression)),
                Err(error) => Err(InvalidExpression::Variable { name, error }),
            }
        });
        let validations = provider.validations.iter().map(|validation| {
            let compiled = Expression::compile(&validation.expression, Output::Boolean, names);
            let message = validation.message.clone();
            match compiled {
                Ok(expression) => Ok((message, expression)),
                Err(error) => Err(InvalidExpression::Validation { message, error }),
            }
        });
        Ok(Self {
            variables: variables.collect::<Result<_, _>>()?,
            validations: validations.collect::<Result<_, _>>()?,
        })
    }

    /// Checks claims.
    ///
    /// # Errors
    /// All checks that failed, or the first expression that could not be evaluated. No checks at all
    /// refuse everything.
    pub fn check(&self, claims: &Value) -> Result<(), RefusedClaims> {
        if self.validations.is_empty() {
            return Err(RefusedClaims::Failed(vec!["the provider has no validations".to_owned()]));
        }
        let given = Variables::new([("claims", claims)], NUMBERS);
        let mut values = Map::new();
        let with_values =
            |values: &Map<String, Value>| given.clone().with("vars", &Value::Object(values.clone()), NUMBERS);
        for (name, expression) in &self.variables {
            let value = expression.evaluate_value(&with_values(&values));
            let value = value.map_err(|error| RefusedClaims::Variable(name.clone(), error))?;
            values.insert(name.clone(), value);
        }
        let variables = with_values(&values);
        let mut failed = Vec::new();
        for (message, expression) in &self.validations {
            if !expression.evaluate_boolean(&variables).map_err(RefusedClaims::Validation)? {
                failed.push(message.clone());
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(RefusedClaims::Failed(failed)) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_api::notification::Receiver;

    use super::*;

    fn spec(spec: &Value) -> ReceiverSpec {
        serde_json::from_value::<Receiver>(json!({"metadata": {}, "spec": spec})).unwrap().spec
    }

    fn image_push(filter: &str, all: &str) -> ReceiverSpec {
        spec(&json!({
            "type": "dockerhub", "secretRef": {"name": "s"}, "resourceFilter": all,
            "resources": [{"kind": "ImageRepository", "name": "*", "matchLabels": {}, "filter": filter}],
        }))
    }

    #[track_caller]
    fn check(filter: &str, all: &str, expected: Result<bool, &str>) {
        let filters = Filters::new(&image_push(filter, all)).unwrap();
        let body = br#"{"push_data": {"tag": "v1"}, "repository": {"repo_name": "team/web"}, "n": 2}"#;
        let sent = Sent::new(body, true, None).unwrap();
        let object = json!({"kind": "ImageRepository", "metadata": {"name": "web", "labels": {"team": "a"}}});
        let passes = filters.pass(0, &sent, &object);
        assert_eq!(passes.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[test]
    fn both_filters_must_let_an_object_pass() {
        check("req.repository.repo_name == 'team/' + res.metadata.name", "", Ok(true));
        check("", "res.metadata.labels.team == 'b'", Ok(false));
        check("res.kind == 'ImageRepository'", "req.n == 2.0 && req.n == 2", Ok(true));
        check("res.kind == 'ImageRepository'", "req.n > 3", Ok(false));
        check("has(req.missing) && req.missing == 'x'", "true", Ok(false));
        // The first one that says no is enough.
        check("req.missing == 'x'", "false", Ok(false));
    }

    #[test]
    fn a_missing_field_is_an_error() {
        let filters = Filters::new(&image_push("", "req.missing == 'x'")).unwrap();
        let sent = Sent::new(b"{}", true, None).unwrap();
        filters.pass(0, &sent, &json!({})).unwrap_err();
    }

    #[test]
    fn a_filter_that_might_go_on_for_ever_is_not_begun() {
        let body = json!({"a": vec![1; 40_000], "b": [1, 2]}).to_string();
        let sent = Sent::new(body.as_bytes(), true, None).unwrap();
        let pass = |filter: &str| Filters::new(&image_push("", filter)).unwrap().pass(0, &sent, &json!({}));
        assert_eq!(pass("req.a.all(x, x == 1.0)"), Ok(true));
        assert_eq!(pass("req.a.all(x, req.a.all(y, x == y))"), Err(NoAnswer::TooLong));
        let long = json!({"text": "x".repeat(40_000)}).to_string();
        let long = Sent::new(long.as_bytes(), true, None).unwrap();
        let pass_long =
            |filter: &str| Filters::new(&image_push("", filter)).unwrap().pass(0, &long, &json!({}));
        assert_eq!(pass_long("['x'].exists(x, ['y'].exists(y, req.text.startsWith(x)))"), Ok(true));
        let split = "req.text.split('').all(x, req.text.split('').all(y, x == y))";
        assert_eq!(pass_long(split), Err(NoAnswer::TooLong));
        assert_eq!(pass("req.a.map(x, req.a.map(y, x)).exists(x, true)"), Err(NoAnswer::TooLong));
        let small = Sent::new(br#"{"a": [1, 2, 3]}"#, true, None).unwrap();
        let filters =
            Filters::new(&image_push("", "req.a.exists(x, req.a.exists(y, x + y == 6.0))")).unwrap();
        assert_eq!(filters.pass(0, &small, &json!({})), Ok(true));
    }

    #[test]
    fn invalid_expressions_are_named() {
        let error = |filter: &str, all: &str| Filters::new(&image_push(filter, all)).unwrap_err().to_string();
        assert_eq!(
            error("", "req.ok"),
            "invalid resourceFilter expression: CEL expression output type mismatch: expected bool, got dyn"
        );
        assert_eq!(
            error("'a'", ""),
            "invalid filter expression for resources[0] (kind=\"ImageRepository\", name=\"*\"): \
             CEL expression output type mismatch: expected bool, got string"
        );
        assert!(error("", "claims.sub == 'a'").contains("undeclared reference to 'claims'"));
    }

    #[test]
    fn only_json_is_seen() {
        let filters = Filters::new(&image_push("", "size(req) == 0")).unwrap();
        assert!(filters.pass(0, &Sent::new(b"not json", false, None).unwrap(), &json!({})).unwrap());
        for body in ["", "not json", "[1]", "\"text\""] {
            assert!(Sent::new(body.as_bytes(), true, None).is_err(), "{body}");
        }
    }

    fn provider(provider: &Value) -> OidcProvider {
        serde_json::from_value(provider.clone()).unwrap()
    }

    #[test]
    fn claims_are_checked_with_named_values() {
        let rules = ClaimsRules::new(&provider(&json!({
            "issuerURL": "https://issuer.example.com",
            "variables": [
                {"name": "owner", "expression": "claims.repository.split('/')[0]"},
                {"name": "full", "expression": "vars.owner + '@' + claims.ref"},
            ],
            "validations": [
                {"expression": "vars.owner == 'acme'", "message": "wrong owner"},
                {"expression": "vars.full == 'acme@main'", "message": "wrong branch"},
            ],
        })))
        .unwrap();
        assert_eq!(rules.check(&json!({"repository": "acme/fleet", "ref": "main"})), Ok(()));
        let refused = rules.check(&json!({"repository": "other/fleet", "ref": "main"})).unwrap_err();
        assert_eq!(refused.to_string(), "token validation failed: wrong owner; wrong branch");
        let refused = rules.check(&json!({"repository": "acme/fleet"})).unwrap_err();
        assert!(refused.to_string().starts_with("failed to evaluate variable \"full\": "), "{refused}");
        let none =
            ClaimsRules::new(&provider(&json!({"issuerURL": "https://a", "validations": []}))).unwrap();
        assert!(none.check(&json!({})).is_err(), "no checks refuse everything");
    }
}
