//! Runs compiled templates with Go's scoping, conversions and error texts.

mod evaluate;

use std::collections::HashMap;
use std::rc::Rc;

use crate::error::{Error, Fault};
use crate::format;
use crate::function::Param;
use crate::host::Host;
use crate::set::Set;
use crate::strconv;
use crate::text::Text;
use crate::tree::{Body, Declared, Node, NodeId, Tree};
use crate::value::{Element, PRINTED_BYTES_MAX, Value};

/// What a missing map key yields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// Nothing, printed as `<no value>`.
    #[default]
    Default,
    /// The zero value of the map's element type.
    Zero,
    /// An error.
    Error,
}

/// Bytes an entry of a map takes besides its key, roughly.
pub(crate) const ENTRY_BYTES: usize = 96;

/// Bounds of one execution; reaching one ends it with an error that names the bound.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Instructions run, all templates together.
    pub steps_max: u64,
    /// Bytes written and produced by functions, all together; what an execution keeps in memory at a time
    /// is not more than a small multiple.
    pub produced_bytes_max: u64,
    /// Bytes of one string a function may produce; not more than [`PRINTED_BYTES_MAX`].
    pub value_bytes_max: u64,
    /// Items of one list a function may produce.
    pub list_items_max: u64,
    /// Templates running inside one another, in levels.
    pub template_levels_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps_max: 200_000_000,
            produced_bytes_max: 1 << 30,
            value_bytes_max: PRINTED_BYTES_MAX as u64,
            list_items_max: 4 << 20,
            template_levels_max: 20_000,
        }
    }
}

/// How templates are executed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What a missing map key yields.
    pub missing_key: MissingKey,
    /// The bounds.
    pub limits: Limits,
}

/// A value and whether Go would hold it as `interface {}` here: that decides between the error
/// texts for nil and for wrong types.
#[derive(Clone, Default)]
struct Operand {
    value: Value,
    interface: bool,
}

impl Operand {
    fn of(value: Value) -> Self {
        Self { value, interface: false }
    }

    fn element(value: Value, element: Element) -> Self {
        Self { value, interface: element == Element::Any }
    }

    /// Go's `!IsValid()`.
    fn is_invalid(&self) -> bool {
        !self.interface && matches!(self.value, Value::Nil)
    }

    fn type_name(&self) -> String {
        if self.interface { "interface {}".to_owned() } else { self.value.type_name() }
    }
}

/// What all templates of one execution share.
pub(crate) struct Shared {
    pub(crate) host: Box<dyn Host>,
    pub(crate) options: Options,
    pub(crate) caches: crate::functions::Caches,
    pub(crate) included: HashMap<Text, u32>,
    slots: Vec<Operand>,
    steps: u64,
    produced_bytes: u64,
    level: u32,
}

impl Shared {
    pub(crate) fn new(host: Box<dyn Host>, options: Options) -> Self {
        Self {
            host,
            options,
            caches: crate::functions::Caches::default(),
            included: HashMap::new(),
            slots: Vec::new(),
            steps: 0,
            produced_bytes: 0,
            level: 0,
        }
    }

    pub(crate) fn produce(&mut self, bytes: usize) -> Result<(), Fault> {
        self.produced_bytes += bytes as u64;
        if self.produced_bytes > self.options.limits.produced_bytes_max {
            let limit = self.options.limits.produced_bytes_max;
            return Err(Fault::Limit(Error::new(format!(
                "templates produce more than the limit of {limit} bytes"
            ))));
        }
        Ok(())
    }
}

/// What a function sees of the execution that calls it.
pub struct Context<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) set: Rc<Set>,
    /// One bit per argument: set where Go would pass no value at all rather than a nil interface.
    pub(crate) invalid: u64,
    /// How the first argument of `call` is written.
    pub(crate) callee: String,
}

impl Context<'_> {
    /// The host: clock, randomness, lookups.
    pub fn host(&mut self) -> &mut dyn Host {
        self.shared.host.as_mut()
    }

    /// Fails if a string of that many bytes may not be made.
    pub fn check_bytes(&self, bytes: u64) -> Result<(), Fault> {
        let limit = self.shared.options.limits.value_bytes_max;
        if bytes > limit {
            return Err(Fault::Limit(Error::new(format!(
                "a string of {bytes} bytes exceeds the limit of {limit} bytes"
            ))));
        }
        Ok(())
    }

    /// Fails if a list of that many items may not be made.
    pub fn check_items(&self, items: u64) -> Result<(), Fault> {
        let limit = self.shared.options.limits.list_items_max;
        if items > limit {
            return Err(Fault::Limit(Error::new(format!(
                "a list of {items} items exceeds the limit of {limit} items"
            ))));
        }
        Ok(())
    }

    /// Counts memory a function uses beyond the bytes of what it returns.
    pub(crate) fn produce(&mut self, bytes: usize) -> Result<(), Fault> {
        self.shared.produce(bytes)
    }

    /// Runs a template of the current set with its own output.
    pub fn execute(&mut self, name: &[u8], data: &Value) -> Result<Vec<u8>, Fault> {
        let Some(tree) = self.set.lookup(name) else {
            return Err(Fault::Failed(Error::new(no_template(name))));
        };
        run(self.shared, &self.set, &tree, data)
    }
}

pub(crate) fn no_template(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(&strconv::quote(name, false)).into_owned();
    format!("template: no template {name} associated with template \"gotpl\"")
}

/// Runs one template from its root with `data` as dot and `$`.
pub(crate) fn run(
    shared: &mut Shared,
    set: &Rc<Set>,
    tree: &Rc<Tree>,
    data: &Value,
) -> Result<Vec<u8>, Fault> {
    let mut state = State {
        set: Rc::clone(set),
        tree: Rc::clone(tree),
        at: None,
        base: shared.slots.len(),
        out: Vec::new(),
        shared,
    };
    let dot = Operand::of(data.clone());
    let result = state.invoke(&dot);
    let base = state.base;
    let out = std::mem::take(&mut state.out);
    shared.slots.truncate(base);
    result.map(|()| out).map_err(|fault| *fault)
}

/// How a list of instructions ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

type Outcome<T> = Result<T, Box<Fault>>;

struct State<'a> {
    shared: &'a mut Shared,
    set: Rc<Set>,
    tree: Rc<Tree>,
    at: Option<NodeId>,
    base: usize,
    out: Vec<u8>,
}

/// What is being called and with which parameters.
struct Signature<'a> {
    name: &'a str,
    params: &'a [Param],
    variadic: Option<Param>,
}

impl State<'_> {
    fn fail<T>(&self, message: &str) -> Outcome<T> {
        Err(Box::new(Fault::Failed(self.error(message, None))))
    }

    fn error(&self, message: &str, cause: Option<Error>) -> Error {
        let name = self.tree.name.to_str_lossy();
        let text = match self.at {
            None => format!("template: {name}: {message}"),
            Some(at) => format!(
                "template: {}: executing {} at <{}>: {message}",
                self.tree.body.location(at),
                strconv::quoted(&name),
                self.tree.body.print(at),
            ),
        };
        Error::executing(text, cause)
    }

    fn step(&mut self) -> Outcome<()> {
        self.shared.steps += 1;
        if self.shared.steps > self.shared.options.limits.steps_max {
            let limit = self.shared.options.limits.steps_max;
            let message = format!("template execution exceeds the limit of {limit} steps");
            return Err(Box::new(Fault::Limit(self.error(&message, None))));
        }
        Ok(())
    }

    /// Ends the execution if one value is longer than allowed.
    fn check_length(&self, bytes: usize) -> Outcome<()> {
        let limit = self.shared.options.limits.value_bytes_max.min(PRINTED_BYTES_MAX as u64);
        if bytes as u64 > limit {
            let message = format!("a value of {bytes} bytes exceeds the limit of {limit} bytes");
            return Err(Box::new(Fault::Limit(self.error(&message, None))));
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.shared.produce(bytes.len()).map_err(Box::new)?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Runs the current tree from its root; its variables go on top of the shared slots.
    fn invoke(&mut self, dot: &Operand) -> Outcome<()> {
        let tree = Rc::clone(&self.tree);
        if self.shared.level >= self.shared.options.limits.template_levels_max {
            let limit = self.shared.options.limits.template_levels_max;
            return self.fail(&format!("exceeded maximum template depth ({limit})"));
        }
        self.shared.level += 1;
        self.base = self.shared.slots.len();
        let slots = self.base + tree.slots as usize;
        self.shared.slots.resize_with(slots, Operand::default);
        self.shared.slots[self.base] = dot.clone();
        let result = stacker::maybe_grow(crate::STACK_RED_ZONE_BYTES, crate::STACK_SEGMENT_BYTES, || {
            self.walk(&tree.body, dot, tree.root)
        });
        self.shared.level -= 1;
        result.map(|_| ())
    }

    fn walk(&mut self, tree: &Body, dot: &Operand, id: NodeId) -> Outcome<Flow> {
        self.step()?;
        self.at = Some(id);
        match tree.node(id) {
            Node::List(nodes) => {
                for node in tree.children(*nodes) {
                    let flow = self.walk(tree, dot, *node)?;
                    if flow != Flow::Next {
                        return Ok(flow);
                    }
                }
            }
            Node::Text(text) => self.write(tree.written(*text).as_bytes())?,
            Node::Action(pipe) => {
                let value = self.pipeline(tree, dot, *pipe)?;
                let declares = match tree.node(*pipe) {
                    Node::Pipe { declared, .. } => declared.len > 0,
                    _ => false,
                };
                if !declares {
                    self.at = Some(id);
                    self.print(&value)?;
                }
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
            Node::If { pipe, list, otherwise } => {
                let value = self.pipeline(tree, dot, *pipe)?;
                if value.value.truth() {
                    return self.walk_deep(tree, dot, *list);
                } else if let Some(otherwise) = otherwise {
                    return self.walk_deep(tree, dot, *otherwise);
                }
            }
            Node::With { pipe, list, otherwise } => {
                let value = self.pipeline(tree, dot, *pipe)?;
                if value.value.truth() {
                    return self.walk_deep(tree, &value, *list);
                } else if let Some(otherwise) = otherwise {
                    return self.walk_deep(tree, dot, *otherwise);
                }
            }
            Node::Range { pipe, list, otherwise } => {
                return self.range(tree, dot, *pipe, *list, *otherwise);
            }
            Node::Template { name, pipe } => self.template(tree, dot, tree.text(*name), *pipe)?,
            _ => return self.fail("unknown instruction"),
        }
        Ok(Flow::Next)
    }

    fn walk_deep(&mut self, tree: &Body, dot: &Operand, id: NodeId) -> Outcome<Flow> {
        stacker::maybe_grow(crate::STACK_RED_ZONE_BYTES, crate::STACK_SEGMENT_BYTES, || {
            self.walk(tree, dot, id)
        })
    }

    fn print(&mut self, operand: &Operand) -> Outcome<()> {
        match &operand.value {
            Value::Nil if operand.interface => self.write(b"<nil>"),
            Value::Nil => self.write(b"<no value>"),
            Value::String(text) => self.write(text),
            Value::Object(object) if object.action_text().is_some() => {
                let text = object.action_text().unwrap_or_default();
                self.write(text.as_bytes())
            }
            Value::Object(object) if object.kind() == crate::value::Kind::Ptr => {
                // Pointers without a text of their own are printed as what they point to.
                let mut bytes = format::display(&operand.value);
                if object.text().is_none() && bytes.first() == Some(&b'&') {
                    bytes.remove(0);
                }
                self.write(&bytes)
            }
            value => {
                let before = self.out.len();
                format::print_to(&mut self.out, value);
                let written = self.out.len() - before;
                self.check_length(written)?;
                self.shared.produce(written).map_err(Box::new)
            }
        }
    }

    fn set_slot(&mut self, tree: &Body, declared: &Declared, operand: Operand) -> Outcome<()> {
        let Some(slot) = declared.slot else {
            return self.fail(&format!("undefined variable: {}", tree.text(declared.name)));
        };
        let index = self.base + slot as usize;
        self.shared.slots[index] = operand;
        Ok(())
    }

    fn range(
        &mut self,
        tree: &Body,
        dot: &Operand,
        pipe: NodeId,
        list: NodeId,
        otherwise: Option<NodeId>,
    ) -> Outcome<Flow> {
        let Node::Pipe { declared, .. } = tree.node(pipe) else { return Ok(Flow::Next) };
        let declared = tree.declared(*declared);
        let range = self.at;
        let value = self.pipeline(tree, dot, pipe)?;
        let _ = range;
        let mut ran = false;
        match &value.value {
            Value::Nil => {}
            Value::List(items) => {
                let element = items.element();
                for (index, item) in items.items().iter().enumerate() {
                    ran = true;
                    let item = Operand::element(item.clone(), element);
                    let index = Operand::of(Value::Int(index as i64));
                    if self.iteration(tree, declared, list, index, &item)? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Bytes(bytes) => {
                for (index, byte) in bytes.iter().enumerate() {
                    ran = true;
                    let item = Operand::of(Value::Uint8(*byte));
                    let index = Operand::of(Value::Int(index as i64));
                    if self.iteration(tree, declared, list, index, &item)? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                let element = map.element();
                // The body may change the map: Go ranges over what was there at the start.
                for (key, item) in map.to_entries() {
                    ran = true;
                    let item = Operand::element(item, element);
                    let key = Operand::of(Value::String(key));
                    if self.iteration(tree, declared, list, key, &item)? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Int(_) | Value::Int64(_) | Value::Uint8(_) | Value::Uint64(_) => {
                let count = value
                    .value
                    .as_int()
                    .unwrap_or_else(|| i64::try_from(value.value.as_uint().unwrap_or(0)).unwrap_or(i64::MAX));
                if declared.len() > 1 {
                    let text = format::display_text(&value.value);
                    return self.fail(&format!("can't use {text} to iterate over more than one variable"));
                }
                for number in 0..count.max(0) {
                    ran = true;
                    let item = match &value.value {
                        Value::Int64(_) => Value::Int64(number),
                        Value::Uint8(_) => Value::Uint8(number as u8),
                        Value::Uint64(_) => Value::Uint64(number as u64),
                        _ => Value::Int(number),
                    };
                    let item = Operand::of(item);
                    if self.iteration(tree, declared, list, Operand::default(), &item)? == Flow::Break {
                        break;
                    }
                }
            }
            other => {
                let text = format::display_text(other);
                return self.fail(&format!("range can't iterate over {text}"));
            }
        }
        if let Some(otherwise) = otherwise.filter(|_| !ran) {
            return self.walk_deep(tree, dot, otherwise);
        }
        Ok(Flow::Next)
    }

    fn iteration(
        &mut self,
        tree: &Body,
        declared: &[Declared],
        list: NodeId,
        index: Operand,
        item: &Operand,
    ) -> Outcome<Flow> {
        match declared {
            [] => {}
            [only] => self.set_slot(tree, only, item.clone())?,
            [first, second, ..] => {
                self.set_slot(tree, first, index)?;
                self.set_slot(tree, second, item.clone())?;
            }
        }
        self.walk_deep(tree, item, list)
    }

    fn template(&mut self, tree: &Body, dot: &Operand, name: &Text, pipe: Option<NodeId>) -> Outcome<()> {
        let Some(target) = self.set.lookup(name) else {
            let name = String::from_utf8_lossy(&strconv::quote(name, false)).into_owned();
            return self.fail(&format!("template {name} not defined"));
        };
        let data = match pipe {
            Some(pipe) => self.pipeline(tree, dot, pipe)?,
            None => Operand::default(),
        };
        let own = (std::mem::replace(&mut self.tree, target), self.at, self.base);
        let result = self.invoke(&data);
        let base = self.base;
        if result.is_ok() {
            (self.tree, self.at, self.base) = own;
            self.shared.slots.truncate(base);
        }
        result
    }
}
