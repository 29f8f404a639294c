//! Sets of templates that can call one another, and their execution.

use std::collections::HashMap;
use std::rc::Rc;

use crate::error::{Error, Fault, ParseError};
use crate::exec::{self, Options, Shared};
use crate::functions::Functions;
use crate::host::Host;
use crate::parse;
use crate::text::Text;
use crate::tree::Tree;
use crate::value::Value;

/// A set of compiled templates sharing one name space.
///
/// ```
/// use weir_gotemplate::{Execution, FixedHost, Functions, Options, Set, Value};
///
/// let mut set = Set::new(Functions::helm());
/// set.parse("hello", "Hello {{ .name | upper }}!")?;
/// let data = Value::map([("name", Value::from("world"))]);
/// let mut execution = Execution::new(set, Box::new(FixedHost::default()), Options::default());
/// assert_eq!(execution.execute("hello", &data)?, b"Hello WORLD!");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Set {
    functions: Rc<Functions>,
    trees: HashMap<Text, Rc<Tree>, foldhash::fast::RandomState>,
    names: parse::Names,
    parent: Option<Rc<Set>>,
}

impl Set {
    /// An empty set whose templates can call these functions.
    pub fn new(functions: Functions) -> Self {
        Self {
            functions: Rc::new(functions),
            trees: HashMap::default(),
            names: parse::Names::default(),
            parent: None,
        }
    }

    /// An empty set on top of another: it sees all templates of the other and can override them.
    pub(crate) fn on_top(parent: &Rc<Set>) -> Self {
        Self {
            functions: Rc::clone(&parent.functions),
            trees: HashMap::default(),
            names: parse::Names::default(),
            parent: Some(Rc::clone(parent)),
        }
    }

    /// Compiles `source` as the template `name`, with the definitions it contains.
    ///
    /// Later definitions replace earlier ones of the same name, except that an empty one (nothing
    /// but space and comments) never replaces one that is not.
    pub fn parse(&mut self, name: &str, source: &str) -> Result<(), ParseError> {
        for tree in parse::parse(name, source, &self.functions, &mut self.names)? {
            self.add(&Rc::new(tree));
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, tree: &Rc<Tree>) {
        if tree.empty && self.lookup(&tree.name).is_some() {
            return;
        }
        self.trees.insert(tree.name.clone(), Rc::clone(tree));
    }

    pub(crate) fn functions(&self) -> &Rc<Functions> {
        &self.functions
    }

    pub(crate) fn lookup(&self, name: &[u8]) -> Option<Rc<Tree>> {
        let mut set = self;
        loop {
            if let Some(tree) = set.trees.get(name) {
                return Some(Rc::clone(tree));
            }
            set = set.parent.as_deref()?;
        }
    }

    /// Whether a template of that name is defined.
    pub fn contains(&self, name: &str) -> bool {
        self.lookup(name.as_bytes()).is_some()
    }
}

/// Runs templates of one set; limits and include counters span all of them.
pub struct Execution {
    set: Rc<Set>,
    shared: Shared,
}

impl Execution {
    /// Prepares to run templates of `set`.
    pub fn new(set: Set, host: Box<dyn Host>, options: Options) -> Self {
        Self { set: Rc::new(set), shared: Shared::new(host, options) }
    }

    /// The output of the template `name` with `data` as dot.
    ///
    /// Errors have the text Go gives them; reaching one of the [limits](crate::Limits) is an error
    /// as well.
    pub fn execute(&mut self, name: &str, data: &Value) -> Result<Vec<u8>, Error> {
        let Some(tree) = self.set.lookup(name.as_bytes()) else {
            return Err(Error::new(exec::no_template(name.as_bytes())));
        };
        exec::run(&mut self.shared, &self.set, &tree, data).map_err(|fault| match fault {
            Fault::Failed(error) | Fault::Limit(error) => error,
        })
    }
}
