//! What type an expression gives, as far as that can be told without values.
//!
//! The reference checks the types of some expressions before it accepts them, and there every field of an object has
//! the type `dyn`. An expression that only reads a field is refused where a boolean is asked for, because nobody knows
//! what the field will hold; a comparison of it is accepted.

use std::fmt;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Null,
    List,
    Map,
    Optional,
    /// Known only when there are values.
    Dyn,
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Null => "null_type",
            Self::List => "list(dyn)",
            Self::Map => "map(string, dyn)",
            Self::Optional => "optional_type(dyn)",
            Self::Dyn => "dyn",
        })
    }
}

/// The type an expression gives.
pub(super) fn of(expression: &IdedExpr) -> Type {
    match &expression.expr {
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => Type::Bool,
            LiteralValue::Bytes(_) => Type::Bytes,
            LiteralValue::Double(_) => Type::Double,
            LiteralValue::Int(_) => Type::Int,
            LiteralValue::Null => Type::Null,
            LiteralValue::String(_) => Type::String,
            LiteralValue::UInt(_) => Type::Uint,
        },
        Expr::Select(select) if select.test => Type::Bool,
        Expr::List(_) => Type::List,
        Expr::Map(_) | Expr::Struct(_) => Type::Map,
        // `all`, `exists` and `exists_one`, `map` and `filter`: what is gathered, or a test of it.
        Expr::Comprehension(comprehension) => match &comprehension.result.expr {
            Expr::Ident(name) if *name == comprehension.accu_var => of(&comprehension.accu_init),
            _ => of(&comprehension.result),
        },
        Expr::Call(call) => of_call(call),
        Expr::Select(_) | Expr::Ident(_) | Expr::Unspecified => Type::Dyn,
    }
}

fn of_call(call: &CallExpr) -> Type {
    let argument = |index: usize| call.args.get(index).map_or(Type::Dyn, of);
    match call.func_name.as_str() {
        operators::CONDITIONAL => {
            let (yes, no) = (argument(1), argument(2));
            if yes == no { yes } else { Type::Dyn }
        }
        operators::ADD => match (argument(0), argument(1)) {
            (Type::Dyn, Type::Dyn) => Type::Dyn,
            // What is added to a text can only be a text, and so for the other types.
            (Type::Dyn, known) | (known, _) => known,
        },
        operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO => {
            match (argument(0), argument(1)) {
                (Type::Dyn, known) | (known, _) => known,
            }
        }
        operators::NEGATE => argument(0),
        operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | operators::EQUALS
        | operators::NOT_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::IN
        | operators::NOT_STRICTLY_FALSE
        | "startsWith"
        | "endsWith"
        | "contains"
        | "matches"
        | "hasValue"
        | "bool"
        // `sets.contains` and its kin are methods of what looks like a variable, or functions.
        | "equivalent"
        | "intersects"
        | "sets.contains"
        | "sets.equivalent"
        | "sets.intersects" => Type::Bool,
        "size" | "indexOf" | "lastIndexOf" | "int" | "getFullYear" | "getMonth" | "getDate" | "getHours"
        | "getMinutes" | "getSeconds" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" | "lowerAscii" | "upperAscii" | "replace" | "substring" | "trim" | "join" | "charAt"
        | "format" | "quote" | "strings.quote" | "reverse" | "encode" | "base64.encode" => Type::String,
        "bytes" | "decode" | "base64.decode" => Type::Bytes,
        "split" => Type::List,
        operators::OPT_INDEX | operators::OPT_SELECT => Type::Optional,
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: Type) {
        let program = super::super::ENVIRONMENT.compile(source).unwrap();
        assert_eq!(of(program.expression()), expected, "{source}");
    }

    #[test]
    fn comparisons_are_boolean_and_fields_are_anything() {
        for source in [
            "true",
            "req.action == 'push'",
            "req.number > 3 && has(req.tag)",
            "!req.deleted",
            "req.ref.startsWith('refs/heads/')",
            "req.tag in ['a', 'b']",
            "req.tags.exists(t, t == 'latest')",
            "req.tags.all(t, t.matches('^v'))",
            "req.tags.exists_one(t, t == 'latest')",
            "has(req.tag) ? req.tag == 'a' : false",
            "sets.contains(req.tags, ['a'])",
            "bool(req.flag)",
        ] {
            check(source, Type::Bool);
        }
        for source in
            ["req", "req.deleted", "req.tags[0]", "has(req.a) ? req.a : false", "req.?a.orValue(true)"]
        {
            check(source, Type::Dyn);
        }
    }

    #[test]
    fn concatenations_are_text() {
        for source in [
            "'a'",
            "'a' + req.b",
            "req.a + '/' + req.b",
            "(req.a + '/' + req.b).lowerAscii()",
            "string(req.number)",
            "true ? 'a' : 'b'",
            "['a', 'b'].join('/')",
        ] {
            check(source, Type::String);
        }
        check("req.a + req.b", Type::Dyn);
        check("1 + 2", Type::Int);
        check("req.a.size()", Type::Int);
        check("['a'].map(x, x + 'b')", Type::List);
        check("{'a': 1}", Type::Map);
        check("b'a'", Type::Bytes);
        check("1.5", Type::Double);
        check("null", Type::Null);
        check("req.?a", Type::Optional);
    }
}
