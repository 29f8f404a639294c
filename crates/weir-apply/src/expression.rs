//! CEL expressions over objects: readiness and health rules, webhook filters and status names written by users.

mod types;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr};
use cel::{Context, Env, Program, Value as CelValue, extensions};
use serde_json::Value;

/// In how many brackets a part of an expression may be.
const NESTING_MAX: usize = 40;
/// The stack of the thread that parses.
const PARSER_STACK_BYTES: usize = 32 << 20;
/// How many signs and spaces may follow each other.
const SIGNS_MAX: usize = 1000;

/// How the integers of an object appear in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// As integers.
    Integers,
    /// As doubles, the way a protobuf `Struct` holds them.
    Doubles,
}

/// What an expression must give, found out before it is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A boolean.
    Boolean,
    /// A text.
    Text,
    /// Anything.
    Any,
}

/// Values for the variables of expressions, converted once for any number of evaluations.
#[derive(Debug, Clone, Default)]
pub struct Variables(Vec<(String, CelValue)>);

impl Variables {
    /// Variables with these values.
    pub fn new<'a>(values: impl IntoIterator<Item = (&'a str, &'a Value)>, numbers: Numbers) -> Self {
        let convert = |(name, value): (&str, &Value)| (name.to_owned(), convert(value, numbers));
        Self(values.into_iter().map(convert).collect())
    }

    /// The same with one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: &Value, numbers: Numbers) -> Self {
        self.0.push((name.to_owned(), convert(value, numbers)));
        self
    }
}

/// An expression over variables.
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
    /// It gives another type than it must, or nobody can tell which it gives.
    #[error("CEL expression output type mismatch: expected {expected}, got {found}")]
    OutputType {
        /// What it must give.
        expected: &'static str,
        /// What it gives.
        found: String,
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
        let failed = |message: String| ExpressionError::Parse { expression: source.to_owned(), message };
        if is_nested_too_deeply(source) {
            return Err(failed(format!("the expression is nested in more than {NESTING_MAX} brackets")));
        }
        // The parser takes tens of kilobytes of stack for each bracket.
        let program = std::thread::scope(|scope| {
            let parser = std::thread::Builder::new().stack_size(PARSER_STACK_BYTES);
            let parser = parser.spawn_scoped(scope, || ENVIRONMENT.compile(source));
            parser.map_err(|error| error.to_string())?.join().map_err(|_| "the parser failed".to_owned())
        });
        let program = program.map_err(failed)?.map_err(|error| failed(one_line(&error.to_string())))?;
        Ok(Self { source: source.to_owned(), program })
    }

    /// Parses an expression and checks that it reads no variables but these, and gives what it must.
    ///
    /// # Errors
    /// When it does not parse, reads something else, or does not surely give what it must: a field
    /// of a variable may hold anything, so an expression that is nothing but a field is refused
    /// unless [`Output::Any`] is asked for.
    pub fn compile(source: &str, output: Output, variables: &[&str]) -> Result<Self, ExpressionError> {
        let expression = Self::parse(source)?;
        let references = expression.program.references();
        let mut read = references.variables();
        read.sort_unstable();
        // Functions such as `sets.contains` look like methods of a variable; macros have variables of their own.
        let unknown = read.into_iter().find(|name| {
            !variables.contains(name)
                && !name.starts_with('@')
                && !["sets", "strings", "base64", "optional"].contains(name)
                && !binds(&expression.program.expression().expr, name)
        });
        if let Some(name) = unknown {
            return Err(ExpressionError::Parse {
                expression: source.to_owned(),
                message: format!("undeclared reference to '{name}' (in container '')"),
            });
        }
        let expected = match output {
            Output::Boolean => types::Type::Bool,
            Output::Text => types::Type::String,
            Output::Any => return Ok(expression),
        };
        let found = types::of(expression.program.expression());
        if found == expected {
            return Ok(expression);
        }
        let expected = if output == Output::Boolean { "bool" } else { "string" };
        Err(ExpressionError::OutputType { expected, found: found.to_string() })
    }

    /// The expression as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the expression calls a function or method of this name.
    pub fn calls(&self, function: &str) -> bool {
        self.program.references().has_function(function)
    }

    /// How deep loops (`exists`, `all`, `map`, `filter`) are inside of each other: an evaluation takes at
    /// most as many steps as the longest list has elements, to the power of this, times the
    /// length of the expression. For callers that evaluate what others wrote over what others sent.
    pub fn nesting(&self) -> u32 {
        nesting(&self.program.expression().expr)
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
        self.evaluate_boolean(&Variables::new(variables, numbers))
    }

    /// Evaluates the expression to a boolean.
    ///
    /// # Errors
    /// When a field or function is missing, types do not fit, or the result is no boolean.
    pub fn evaluate_boolean(&self, variables: &Variables) -> Result<bool, ExpressionError> {
        match self.execute(variables)? {
            CelValue::Bool(answer) => Ok(answer),
            _ => Err(ExpressionError::NotBoolean { expression: self.source.clone() }),
        }
    }

    /// Evaluates the expression to a text.
    ///
    /// # Errors
    /// When a field or function is missing, types do not fit, or the result is no text.
    pub fn evaluate_text(&self, variables: &Variables) -> Result<String, ExpressionError> {
        match self.execute(variables)? {
            CelValue::String(text) => Ok(text.to_string()),
            _ => Err(self.failed("the result is no string".to_owned())),
        }
    }

    /// Evaluates the expression to whatever it gives, as JSON.
    ///
    /// # Errors
    /// When a field or function is missing, types do not fit, or the result has no place in JSON.
    pub fn evaluate_value(&self, variables: &Variables) -> Result<Value, ExpressionError> {
        let value = self.execute(variables)?;
        to_json(&value).ok_or_else(|| self.failed("the result has no place in JSON".to_owned()))
    }

    fn execute(&self, variables: &Variables) -> Result<CelValue, ExpressionError> {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for (name, value) in &variables.0 {
            context.add_variable_from_value(name.as_str(), value.clone());
        }
        add_set_functions(&mut context).map_err(|error| self.failed(error.to_string()))?;
        self.program.execute(&context).map_err(|error| self.failed(one_line(&error.to_string())))
    }

    fn failed(&self, message: String) -> ExpressionError {
        ExpressionError::Evaluate { expression: self.source.clone(), message }
    }
}

fn nesting(expression: &Expr) -> u32 {
    let deepest =
        |inner: &[IdedExpr]| inner.iter().map(|inner| nesting(&inner.expr)).max().unwrap_or_default();
    let entry = |entry: &IdedEntryExpr| match &entry.expr {
        EntryExpr::MapEntry(entry) => nesting(&entry.key.expr).max(nesting(&entry.value.expr)),
        EntryExpr::StructField(field) => nesting(&field.value.expr),
    };
    match expression {
        Expr::Call(call) => {
            deepest(&call.args).max(call.target.as_ref().map_or(0, |target| nesting(&target.expr)))
        }
        Expr::Comprehension(inner) => {
            let each = [&inner.loop_cond, &inner.loop_step].map(|inner| nesting(&inner.expr));
            let once = [&inner.iter_range, &inner.accu_init, &inner.result].map(|inner| nesting(&inner.expr));
            // What a loop gathers may be longer than what it goes through, so a loop over a loop counts as two.
            let range = nesting(&inner.iter_range.expr);
            (1 + each.into_iter().max().unwrap_or_default() + range)
                .max(once.into_iter().max().unwrap_or_default())
        }
        Expr::List(list) => deepest(&list.elements),
        Expr::Map(map) => map.entries.iter().map(entry).max().unwrap_or_default(),
        Expr::Struct(object) => object.entries.iter().map(entry).max().unwrap_or_default(),
        Expr::Select(select) => nesting(&select.operand.expr),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
    }
}

/// Whether a macro in the expression, such as `exists`, brings a variable of this name.
fn binds(expression: &Expr, name: &str) -> bool {
    let any = |inner: &[IdedExpr]| inner.iter().any(|inner| binds(&inner.expr, name));
    let entry = |entry: &IdedEntryExpr| match &entry.expr {
        EntryExpr::MapEntry(entry) => binds(&entry.key.expr, name) || binds(&entry.value.expr, name),
        EntryExpr::StructField(field) => binds(&field.value.expr, name),
    };
    match expression {
        Expr::Call(call) => {
            any(&call.args) || call.target.as_ref().is_some_and(|target| binds(&target.expr, name))
        }
        Expr::Comprehension(inner) => {
            inner.iter_var == name
                || inner.accu_var == name
                || inner.iter_var2.as_deref() == Some(name)
                || [&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
                    .iter()
                    .any(|inner| binds(&inner.expr, name))
        }
        Expr::List(list) => any(&list.elements),
        Expr::Map(map) => map.entries.iter().any(entry),
        Expr::Struct(object) => object.entries.iter().any(entry),
        Expr::Select(select) => binds(&select.operand.expr, name),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => false,
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Expression").field(&self.source).finish()
    }
}

/// Whether the parser, which calls itself for every bracket and sign, might run out of stack.
fn is_nested_too_deeply(source: &str) -> bool {
    let (mut depth, mut signs) = (0_usize, 0_usize);
    for letter in source.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        signs = if matches!(letter, '!' | '-' | ' ') { signs + 1 } else { 0 };
        if depth > NESTING_MAX || signs > SIGNS_MAX {
            return true;
        }
    }
    false
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

fn to_json(value: &CelValue) -> Option<Value> {
    Some(match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(value) => Value::Bool(*value),
        CelValue::Int(number) => Value::from(*number),
        CelValue::UInt(number) => Value::from(*number),
        CelValue::Float(number) => Value::from(*number),
        CelValue::String(text) => Value::String(text.to_string()),
        CelValue::List(items) => Value::Array(items.iter().map(to_json).collect::<Option<_>>()?),
        CelValue::Map(map) => {
            let entry = |(key, value): (_, &CelValue)| Some((format!("{key}"), to_json(value)?));
            Value::Object(map.map.iter().map(entry).collect::<Option<_>>()?)
        }
        _ => return None,
    })
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
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("size({}1{}) == 1", "[".repeat(depth), "]".repeat(depth));
        assert!(Expression::parse(&nested(20)).is_ok());
        assert!(Expression::parse(&nested(1_000_000)).is_err());
        assert!(Expression::parse(&"!".repeat(1_000_000)).is_err());
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

    #[track_caller]
    fn check_compile(source: &str, output: Output, expected: Result<(), &str>) {
        let compiled = Expression::compile(source, output, &["req", "res"]).map(drop);
        assert_eq!(compiled.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{source}");
    }

    #[test]
    fn types_and_variables_are_checked_before_anything_is_evaluated() {
        check_compile("req.tag == res.metadata.name", Output::Boolean, Ok(()));
        check_compile("req.tags.exists(t, t == res.metadata.name)", Output::Boolean, Ok(()));
        check_compile("sets.contains(req.tags, ['a'])", Output::Boolean, Ok(()));
        check_compile("req.a + '/' + res.b", Output::Text, Ok(()));
        check_compile("req.a", Output::Any, Ok(()));
        let mismatch = "CEL expression output type mismatch: expected bool, got dyn";
        check_compile("req.ok", Output::Boolean, Err(mismatch));
        let mismatch = "CEL expression output type mismatch: expected string, got dyn";
        check_compile("req.a", Output::Text, Err(mismatch));
        let mismatch = "CEL expression output type mismatch: expected bool, got string";
        check_compile("'a'", Output::Boolean, Err(mismatch));
        let unknown = "failed to parse the CEL expression 'claims.sub == 'a'': undeclared reference to 'claims' (in container '')";
        check_compile("claims.sub == 'a'", Output::Boolean, Err(unknown));
    }

    #[test]
    fn loops_inside_of_loops_are_counted() {
        for (source, expected) in [
            ("req.a == 'b'", 0),
            ("req.a.exists(x, x == 'b') || req.b.all(x, x == 'b')", 1),
            ("req.a.exists(x, req.b.exists(y, x == y))", 2),
            ("req.a.filter(x, x != 'a').exists(x, x == 'b')", 2),
            ("req.a.all(x, {'k': [req.a.all(y, req.a.all(z, z == x + y))]}.k[0])", 3),
        ] {
            assert_eq!(Expression::parse(source).unwrap().nesting(), expected, "{source}");
        }
    }

    #[test]
    fn results_are_text_or_any_value() {
        let req = json!({"a": "x", "list": [1, 2], "n": 3});
        let variables = Variables::new([("req", &req)], Numbers::Doubles);
        let any = |source| Expression::compile(source, Output::Any, &["req"]).unwrap();
        assert_eq!(any("req.a + '/b'").evaluate_text(&variables).unwrap(), "x/b");
        assert!(any("req.n").evaluate_text(&variables).is_err());
        assert_eq!(any("req.list.map(x, x * 2.0)").evaluate_value(&variables).unwrap(), json!([2.0, 4.0]));
        let more = variables.clone().with("vars", &json!({"b": "c"}), Numbers::Doubles);
        let read = Expression::compile("vars.b == 'c'", Output::Boolean, &["vars"]).unwrap();
        assert_eq!(read.evaluate_boolean(&more), Ok(true));
    }
}
