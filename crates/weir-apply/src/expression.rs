//! CEL expressions over objects: readiness and health rules written by users.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program, Value as CelValue, extensions};
use serde_json::Value;

/// How the integers of an object appear in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// As integers.
    Integers,
    /// As doubles, the way a protobuf `Struct` holds them.
    Doubles,
}

/// An expression that gives a boolean.
pub struct Expression {
    source: String,
    program: Program,
}

/// Why an expression cannot be used, or gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// It does not parse.
    #[error("failed to parse the CEL expression '{expression}': {message}")]
    Parse {
        /// The expression.
        expression: String,
        /// The cause.
        message: String,
    },
    /// It could not be evaluated, for example because a field is missing.
    #[error("failed to evaluate the CEL expression '{expression}': {message}")]
    Evaluate {
        /// The expression.
        expression: String,
        /// The cause.
        message: String,
    },
    /// It gave something other than a boolean.
    #[error("failed to evaluate CEL expression as boolean: '{expression}'")]
    NotBoolean {
        /// The expression.
        expression: String,
    },
}

/// The standard library with strings, encoders and (through functions) sets.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    for (name, added) in [
        ("strings", environment.add_extension(extensions::strings)),
        ("encoders", environment.add_extension(extensions::encoders)),
    ] {
        if let Err(error) = added {
            tracing::error!(extension = name, error = %error, "CEL extension is not available");
        }
    }
    Arc::new(environment)
});

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// When it does not parse. Types are found out only when it is evaluated.
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        let program = ENVIRONMENT.compile(source).map_err(|error| ExpressionError::Parse {
            expression: source.to_owned(),
            message: one_line(&error.to_string()),
        })?;
        Ok(Self { source: source.to_owned(), program })
    }

    /// The expression as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates the expression with the given variables.
    ///
    /// # Errors
    /// When a field or function is missing, types do not fit, or the result is no boolean.
    pub fn evaluate<'a>(
        &self,
        variables: impl IntoIterator<Item = (&'a str, &'a Value)>,
        numbers: Numbers,
    ) -> Result<bool, ExpressionError> {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for (name, value) in variables {
            context.add_variable_from_value(name, convert(value, numbers));
        }
        let failed = |message: String| ExpressionError::Evaluate { expression: self.source.clone(), message };
        add_set_functions(&mut context).map_err(|error| failed(error.to_string()))?;
        match self.program.execute(&context) {
            Ok(CelValue::Bool(answer)) => Ok(answer),
            Ok(_) => Err(ExpressionError::NotBoolean { expression: self.source.clone() }),
            Err(error) => Err(failed(one_line(&error.to_string()))),
        }
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Expression").field(&self.source).finish()
    }
}

fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn convert(value: &Value, numbers: Numbers) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => match (number.as_i64(), numbers) {
            (Some(integer), Numbers::Integers) => CelValue::Int(integer),
            _ => CelValue::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => CelValue::from(text.as_str()),
        Value::Array(items) => {
            CelValue::List(Arc::new(items.iter().map(|item| convert(item, numbers)).collect()))
        }
        Value::Object(map) => {
            let map: HashMap<String, CelValue> =
                map.iter().map(|(key, value)| (key.clone(), convert(value, numbers))).collect();
            CelValue::from(map)
        }
    }
}

type Items = Arc<Vec<CelValue>>;

fn add_set_functions(context: &mut Context<'_, '_>) -> Result<(), cel::DeclarationError> {
    fn contains(list: &[CelValue], part: &[CelValue]) -> bool {
        part.iter().all(|item| list.contains(item))
    }
    context.add_function("sets.contains", |list: Items, part: Items| contains(&list, &part))?;
    context.add_function("sets.equivalent", |left: Items, right: Items| {
        contains(&left, &right) && contains(&right, &left)
    })?;
    context.add_function("sets.intersects", |left: Items, right: Items| {
        left.iter().any(|item| right.contains(item))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(source: &str, object: &Value, expected: bool) {
        let expression = Expression::parse(source).unwrap();
        let variables = || object.as_object().unwrap().iter().map(|(key, value)| (key.as_str(), value));
        for numbers in [Numbers::Integers, Numbers::Doubles] {
            assert_eq!(expression.evaluate(variables(), numbers), Ok(expected), "{source} {numbers:?}");
        }
    }

    #[test]
    fn expressions_users_write() {
        let object = json!({
            "metadata": {"generation": 2, "labels": {"app": "Web"}},
            "status": {"observedGeneration": 2, "replicas": 3, "phase": "Ready", "list": ["a", "b"],
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "Synced", "status": "False"}]},
        });
        check("status.conditions.filter(e, e.type == 'Ready').all(e, e.status == 'True')", &object, true);
        check("status.conditions.exists(e, e.type == 'Synced' && e.status == 'True')", &object, false);
        check("metadata.generation == status.observedGeneration", &object, true);
        check("status.replicas >= 3", &object, true);
        check("has(status.ready) ? status.ready : false", &object, false);
        check("status.phase in ['Ready', 'Succeeded']", &object, true);
        check("metadata.labels.app.lowerAscii() == 'web'", &object, true);
        check("metadata.labels['app'].startsWith('W')", &object, true);
        check("sets.contains(status.list, ['a'])", &object, true);
        check("sets.equivalent(status.list, ['b', 'a', 'a'])", &object, true);
        check("sets.intersects(status.list, ['x'])", &object, false);
        check("status.?missing.orValue('none') == 'none'", &object, true);
        check("size(status.conditions) == 2", &object, true);
    }

    #[test]
    fn failures_name_the_expression() {
        let error = Expression::parse("status.").unwrap_err();
        assert!(error.to_string().starts_with("failed to parse the CEL expression 'status.': "), "{error}");
        let object = json!({});
        let evaluate = |source: &str| {
            Expression::parse(source)
                .unwrap()
                .evaluate([("data", &object)], Numbers::Integers)
                .unwrap_err()
                .to_string()
        };
        assert!(
            evaluate("status.ready").starts_with("failed to evaluate the CEL expression 'status.ready': ")
        );
        assert_eq!(evaluate("1 + 1"), "failed to evaluate CEL expression as boolean: '1 + 1'");
    }
}
