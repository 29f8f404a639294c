//! The CEL expressions of a Receiver: which objects a request concerns, and whose identity tokens count. Pure.

use std::fmt;

use serde_json::{Map, Value};
use weir_api::notification::{OidcProvider, ReceiverSpec, ReceiverType};
use weir_apply::expression::{Expression, ExpressionError, Numbers, Output, Variables};

/// JSON numbers are doubles here, as in the reference.
const NUMBERS: Numbers = Numbers::Doubles;

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
    /// A filter that gives no answer, for example because a field is missing.
    pub fn pass(&self, resource: usize, request: &Sent, object: &Value) -> Result<bool, ExpressionError> {
        let variables = request.0.clone().with("res", object, NUMBERS);
        for filter in
            [self.all.as_ref(), self.each.get(resource).and_then(Option::as_ref)].into_iter().flatten()
        {
            if !filter.evaluate_boolean(&variables)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What was sent, as filters see it.
#[derive(Debug, Clone)]
pub struct Sent(Variables);

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
        let variables = Variables::new([("req", &Value::Object(body))], NUMBERS);
        Ok(Self(match claims {
            Some(claims) => variables.with("claims", claims, NUMBERS),
            None => variables,
        }))
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
