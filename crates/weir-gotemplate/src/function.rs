//! How functions and methods are declared.

use crate::error::Fault;
use crate::exec::Context;
use crate::value::Value;

/// The Go type of a parameter; decides what the executor accepts and how it complains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// `interface {}`
    Any,
    /// `reflect.Value`: like `interface {}`, used by the built-in functions.
    Reflect,
    /// `string`
    String,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `int64`
    Int64,
    /// `uint32`
    Uint32,
    /// `float64`
    Float,
    /// `map[string]interface {}`
    Map,
    /// `[]interface {}`
    List,
    /// `[]string`
    Strings,
    /// `[]byte`
    Bytes,
    /// A struct type, by the name Go prints.
    Object(&'static str),
}

impl Param {
    /// The name of the type as Go prints it.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::Reflect => "reflect.Value",
            Self::String => "string",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int64 => "int64",
            Self::Uint32 => "uint32",
            Self::Float => "float64",
            Self::Map => "map[string]interface {}",
            Self::List => "[]interface {}",
            Self::Strings => "[]string",
            Self::Bytes => "[]uint8",
            Self::Object(name) => name,
        }
    }
}

/// What a function does: its arguments have been checked against the parameters.
pub type Run = fn(&mut Context<'_>, &[Value]) -> Result<Value, Fault>;

/// A function templates can call.
#[derive(Debug)]
pub struct Function {
    /// The name.
    pub name: &'static str,
    /// The fixed parameters.
    pub params: &'static [Param],
    /// The type of the variadic parameter, if there is one.
    pub variadic: Option<Param>,
    /// The body.
    pub run: Run,
}

impl Function {
    /// A function with fixed parameters.
    pub const fn new(name: &'static str, params: &'static [Param], run: Run) -> Self {
        Self { name, params, variadic: None, run }
    }

    /// A function whose last parameter may repeat.
    pub const fn variadic(name: &'static str, params: &'static [Param], rest: Param, run: Run) -> Self {
        Self { name, params, variadic: Some(rest), run }
    }
}

/// A method of an object or named type; the receiver is passed before the arguments.
#[derive(Debug)]
pub struct Method {
    /// The name.
    pub name: &'static str,
    /// The parameters, without the receiver.
    pub params: &'static [Param],
    /// The body.
    pub run: fn(&Value, &[Value]) -> Result<Value, Fault>,
}
