//! The functions templates can call.

mod builtin;
mod case;
mod certificates;
mod convert;
mod crypto;
mod dates;
mod der;
mod dicts;
mod encoding;
mod general;
mod helm;
mod lists;
mod numeric;
mod regex;
mod semver;
mod strings;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use crate::error::Fault;
use crate::function::Function;
use crate::text::Text;
use crate::tree::Tree;
use crate::value::Value;

/// What a function body returns.
type Outcome = Result<Value, Fault>;

type Table = HashMap<&'static str, &'static Function, foldhash::fast::RandomState>;

/// The functions a [`Set`](crate::Set) of templates can call, by name. Clones share one table.
#[derive(Debug, Clone)]
pub struct Functions(Arc<Table>);

/// The table of [`Functions::helm`], made once.
static HELM: LazyLock<Functions> = LazyLock::new(|| Functions::sprig().with(helm::FUNCTIONS));

impl Functions {
    /// The functions of Go's `text/template` itself.
    pub fn builtin() -> Self {
        Self(Arc::default()).with(builtin::FUNCTIONS)
    }

    /// [`Functions::builtin`] and all of Sprig v3 but `env` and `expandenv`.
    pub fn sprig() -> Self {
        Self::builtin()
            .with(strings::FUNCTIONS)
            .with(numeric::FUNCTIONS)
            .with(lists::FUNCTIONS)
            .with(dicts::FUNCTIONS)
            .with(general::FUNCTIONS)
            .with(encoding::FUNCTIONS)
            .with(dates::FUNCTIONS)
            .with(regex::FUNCTIONS)
            .with(semver::FUNCTIONS)
            .with(crypto::FUNCTIONS)
            .with(certificates::FUNCTIONS)
    }

    /// [`Functions::sprig`] and those of Helm, which replace some of Sprig's.
    pub fn helm() -> Self {
        HELM.clone()
    }

    /// These functions and more; later ones replace earlier ones of the same name.
    #[must_use]
    pub fn with(mut self, functions: &'static [Function]) -> Self {
        Arc::make_mut(&mut self.0).extend(functions.iter().map(|function| (function.name, function)));
        self
    }

    /// The function of that name.
    pub fn get(&self, name: &str) -> Option<&'static Function> {
        self.0.get(name).copied()
    }

    /// All names, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}

/// What functions keep from call to call.
#[derive(Default)]
pub(crate) struct Caches {
    /// Compiled texts of `tpl`.
    pub(crate) texts: HashMap<Text, Rc<Vec<Rc<Tree>>>>,
    pub(crate) names: crate::parse::Names,
    /// Compiled regular expressions, or why they do not compile.
    pub(crate) expressions: HashMap<Text, Result<Rc<::regex::bytes::Regex>, String>>,
}

/// The argument at `index`; nil if there are fewer.
fn argument(arguments: &[Value], index: usize) -> &Value {
    arguments.get(index).unwrap_or(&Value::Nil)
}

/// The bytes of a string argument.
fn bytes(arguments: &[Value], index: usize) -> &[u8] {
    match arguments.get(index) {
        Some(Value::String(text) | Value::Bytes(text)) => text,
        _ => b"",
    }
}

/// The text of a string argument, invalid bytes replaced.
fn text(arguments: &[Value], index: usize) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes(arguments, index))
}

/// An integer argument.
fn int(arguments: &[Value], index: usize) -> i64 {
    arguments.get(index).and_then(Value::as_int).unwrap_or(0)
}
