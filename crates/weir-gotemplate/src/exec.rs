//! Runs compiled templates with Go's scoping, conversions and error texts.

use std::collections::HashMap;
use std::rc::Rc;

use crate::error::{Error, Fault};
use crate::format;
use crate::function::{Function, Method, Param};
use crate::host::Host;
use crate::set::Set;
use crate::strconv;
use crate::text::Text;
use crate::tree::{Declared, Node, NodeId, Tree};
use crate::value::{Element, List, Map, PRINTED_BYTES_MAX, Value};

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
                self.tree.location(at),
                strconv::quoted(&name),
                self.tree.print(at),
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
            self.walk(&tree, dot, tree.root)
        });
        self.shared.level -= 1;
        result.map(|_| ())
    }

    fn walk(&mut self, tree: &Tree, dot: &Operand, id: NodeId) -> Outcome<Flow> {
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

    fn walk_deep(&mut self, tree: &Tree, dot: &Operand, id: NodeId) -> Outcome<Flow> {
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

    fn set_slot(&mut self, tree: &Tree, declared: &Declared, operand: Operand) -> Outcome<()> {
        let Some(slot) = declared.slot else {
            return self.fail(&format!("undefined variable: {}", tree.text(declared.name)));
        };
        let index = self.base + slot as usize;
        self.shared.slots[index] = operand;
        Ok(())
    }

    fn range(
        &mut self,
        tree: &Tree,
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
        tree: &Tree,
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

    fn template(&mut self, tree: &Tree, dot: &Operand, name: &Text, pipe: Option<NodeId>) -> Outcome<()> {
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

    fn pipeline(&mut self, tree: &Tree, dot: &Operand, id: NodeId) -> Outcome<Operand> {
        let Node::Pipe { declared, commands, .. } = tree.node(id) else {
            return Ok(Operand::default());
        };
        self.at = Some(id);
        let mut value = None;
        for command in tree.children(*commands) {
            let mut next = self.command(tree, dot, *command, value.take())?;
            next.interface = false;
            value = Some(next);
        }
        let value = value.unwrap_or_default();
        for variable in tree.declared(*declared) {
            self.set_slot(tree, variable, value.clone())?;
        }
        Ok(value)
    }

    fn not_a_function(&self, tree: &Tree, arguments: &[NodeId], last: Option<&Operand>) -> Outcome<()> {
        if arguments.len() > 1 || last.is_some() {
            let first = arguments.first().map(|first| print_argument(tree, *first));
            let first = first.unwrap_or_else(|| "%!s(<nil>)".to_owned());
            return self.fail(&format!("can't give argument to non-function {first}"));
        }
        Ok(())
    }

    fn command(&mut self, tree: &Tree, dot: &Operand, id: NodeId, last: Option<Operand>) -> Outcome<Operand> {
        self.step()?;
        let Node::Command(arguments) = tree.node(id) else { return Ok(Operand::default()) };
        let arguments = tree.children(*arguments);
        let first = arguments[0];
        match tree.node(first) {
            Node::Field(fields) => {
                self.at = Some(first);
                self.field_chain(tree, dot, dot.clone(), first, tree.texts(*fields), Some(arguments), last)
            }
            Node::Chain { node, fields } => {
                self.chain(tree, dot, first, *node, tree.texts(*fields), Some(arguments), last)
            }
            Node::Identifier(function) => {
                self.at = Some(first);
                self.call(tree, dot, function, id, Some(arguments), last)
            }
            Node::Pipe { .. } => {
                self.not_a_function(tree, arguments, last.as_ref())?;
                self.pipeline_deep(tree, dot, first)
            }
            Node::Variable { slot, name, fields } => {
                self.at = Some(first);
                let value = self.variable(tree, *slot, *name)?;
                if fields.len == 0 {
                    self.not_a_function(tree, arguments, last.as_ref())?;
                    return Ok(value);
                }
                self.field_chain(tree, dot, value, first, tree.texts(*fields), Some(arguments), last)
            }
            constant => {
                self.at = Some(first);
                self.not_a_function(tree, arguments, last.as_ref())?;
                match constant {
                    Node::Dot => Ok(dot.clone()),
                    Node::Nil => self.fail("nil is not a command"),
                    _ => self.constant(tree, first),
                }
            }
        }
    }

    fn pipeline_deep(&mut self, tree: &Tree, dot: &Operand, id: NodeId) -> Outcome<Operand> {
        stacker::maybe_grow(crate::STACK_RED_ZONE_BYTES, crate::STACK_SEGMENT_BYTES, || {
            self.pipeline(tree, dot, id)
        })
    }

    fn variable(&self, tree: &Tree, slot: Option<u32>, name: u32) -> Outcome<Operand> {
        match slot {
            Some(slot) => Ok(self.shared.slots[self.base + slot as usize].clone()),
            None => self.fail(&format!("undefined variable: {}", tree.text(name))),
        }
    }

    /// A literal where nothing says which type is wanted.
    fn constant(&mut self, tree: &Tree, id: NodeId) -> Outcome<Operand> {
        self.at = Some(id);
        let value = match tree.node(id) {
            Node::Bool(value) => Value::Bool(*value),
            Node::String { text, .. } => Value::String(tree.text(*text).clone()),
            Node::Number(number) => match (number.float, number.int) {
                (Some(float), _) if number.ideal_float => Value::Float(float),
                (_, Some(int)) => Value::Int(int),
                _ => return self.fail(&format!("{} overflows int", tree.written(number.text))),
            },
            _ => return self.fail("can't evaluate command"),
        };
        Ok(Operand::of(value))
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one evaluation, passed on")]
    fn chain(
        &mut self,
        tree: &Tree,
        dot: &Operand,
        id: NodeId,
        node: NodeId,
        fields: &[Text],
        arguments: Option<&[NodeId]>,
        last: Option<Operand>,
    ) -> Outcome<Operand> {
        self.at = Some(id);
        if matches!(tree.node(node), Node::Nil) {
            let text = tree.print(id);
            return self.fail(&format!("indirection through explicit nil in {text}"));
        }
        self.at = Some(node);
        let receiver = match tree.node(node) {
            Node::Pipe { .. } => self.pipeline_deep(tree, dot, node)?,
            Node::Identifier(function) => self.call(tree, dot, function, node, None, None)?,
            Node::Field(inner) => {
                self.field_chain(tree, dot, dot.clone(), node, tree.texts(*inner), None, None)?
            }
            Node::Variable { slot, name, .. } => self.variable(tree, *slot, *name)?,
            _ => return self.fail("can't evaluate command"),
        };
        self.field_chain(tree, dot, receiver, id, fields, arguments, last)
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one evaluation, passed on")]
    fn field_chain(
        &mut self,
        tree: &Tree,
        dot: &Operand,
        receiver: Operand,
        node: NodeId,
        fields: &[Text],
        arguments: Option<&[NodeId]>,
        mut last: Option<Operand>,
    ) -> Outcome<Operand> {
        let mut receiver = receiver;
        for (index, field) in fields.iter().enumerate() {
            let is_last = index + 1 == fields.len();
            let arguments = if is_last { arguments } else { None };
            let last = if is_last { last.take() } else { None };
            receiver = self.field(tree, dot, field, node, arguments, last, &receiver)?;
        }
        Ok(receiver)
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one evaluation, passed on")]
    fn field(
        &mut self,
        tree: &Tree,
        dot: &Operand,
        name: &Text,
        node: NodeId,
        arguments: Option<&[NodeId]>,
        last: Option<Operand>,
        receiver: &Operand,
    ) -> Outcome<Operand> {
        if receiver.is_invalid() {
            if self.shared.options.missing_key == MissingKey::Error {
                let key = String::from_utf8_lossy(&strconv::quote(name, false)).into_owned();
                return self.fail(&format!("nil data; no entry for key {key}"));
            }
            return Ok(Operand::default());
        }
        if matches!(receiver.value, Value::Nil) {
            return self.fail(&format!("nil pointer evaluating interface {{}}.{name}"));
        }
        let methods: &[Method] = match &receiver.value {
            Value::Map(map) => map.named_type().map_or(&[], |named| named.methods),
            Value::List(list) => list.named_type().map_or(&[], |named| named.methods),
            Value::Object(object) => object.methods(),
            _ => &[],
        };
        if let Some(method) = methods.iter().find(|method| method.name.as_bytes() == &**name) {
            let signature = Signature { name: method.name, params: method.params, variadic: None };
            let (values, _) = self.arguments(tree, dot, &signature, arguments, last)?;
            return match (method.run)(&receiver.value, &values) {
                Ok(value) => Ok(Operand::of(value)),
                Err(fault) => self.call_failed(node, method.name, fault),
            };
        }
        let has_arguments = arguments.is_some_and(|list| list.len() > 1) || last.is_some();
        match &receiver.value {
            Value::Map(map) => {
                if has_arguments {
                    return self.fail(&format!("{name} is not a method but has arguments"));
                }
                let element = map.element();
                if let Some(value) = map.get(name) {
                    return Ok(Operand::element(value, element));
                }
                match self.shared.options.missing_key {
                    MissingKey::Default => Ok(Operand::default()),
                    MissingKey::Zero => Ok(Operand::element(element.zero(), element)),
                    MissingKey::Error => {
                        let key = String::from_utf8_lossy(&strconv::quote(name, false)).into_owned();
                        self.fail(&format!("map has no entry for key {key}"))
                    }
                }
            }
            Value::Object(object) => {
                if let Some(value) = name.as_str().and_then(|name| object.field(name)) {
                    if has_arguments {
                        return self.fail(&format!("{name} has arguments but cannot be invoked as function"));
                    }
                    return Ok(Operand::of(value));
                }
                let receiver_type = receiver.type_name();
                self.fail(&format!("can't evaluate field {name} in type {receiver_type}"))
            }
            _ => {
                let receiver_type = receiver.type_name();
                self.fail(&format!("can't evaluate field {name} in type {receiver_type}"))
            }
        }
    }

    fn call_failed<T>(&mut self, node: NodeId, name: &str, fault: Fault) -> Outcome<T> {
        match fault {
            Fault::Failed(cause) => {
                self.at = Some(node);
                let message = format!("error calling {name}: {}", cause.text());
                Err(Box::new(Fault::Failed(self.error(&message, Some(cause)))))
            }
            limit @ Fault::Limit(_) => Err(Box::new(limit)),
        }
    }

    fn call(
        &mut self,
        tree: &Tree,
        dot: &Operand,
        function: &'static Function,
        node: NodeId,
        arguments: Option<&[NodeId]>,
        last: Option<Operand>,
    ) -> Outcome<Operand> {
        let signature =
            Signature { name: function.name, params: function.params, variadic: function.variadic };
        if let Some(stop_at) = match function.name {
            "and" => Some(false),
            "or" => Some(true),
            _ => None,
        } {
            self.check_arity(&signature, arguments, last.as_ref())?;
            let mut value = Operand::default();
            for argument in arguments.unwrap_or(&[]).iter().skip(1) {
                value = self.argument_operand(tree, dot, Param::Reflect, *argument)?;
                if value.value.truth() == stop_at {
                    return Ok(value);
                }
            }
            if let Some(last) = last {
                value = last;
            }
            return Ok(value);
        }
        let (values, invalid) = self.arguments(tree, dot, &signature, arguments, last)?;
        let callee = match (function.name, arguments) {
            // The one function whose error tells how its argument is written.
            ("call", Some([_, first, ..])) => tree.print(*first),
            ("call", _) => match values.first() {
                Some(Value::String(text)) => text.to_string(),
                value => format!("<{} Value>", value.map_or_else(String::new, Value::type_name)),
            },
            _ => String::new(),
        };
        let mut context = Context { shared: &mut *self.shared, set: Rc::clone(&self.set), invalid, callee };
        let result = (function.run)(&mut context, &values);
        match result {
            Ok(value) => {
                let bytes = match &value {
                    Value::String(text) | Value::Bytes(text) => text.len(),
                    Value::List(list) => size_of_val(list.items()),
                    _ => 0,
                };
                self.check_length(bytes)?;
                self.shared.produce(bytes).map_err(Box::new)?;
                Ok(Operand::of(value))
            }
            Err(fault) => self.call_failed(node, function.name, fault),
        }
    }

    fn check_arity(
        &self,
        signature: &Signature<'_>,
        arguments: Option<&[NodeId]>,
        last: Option<&Operand>,
    ) -> Outcome<()> {
        let given = arguments.map_or(0, |list| list.len().saturating_sub(1));
        let all = given + usize::from(last.is_some());
        let name = signature.name;
        let fixed = signature.params.len();
        if signature.variadic.is_some() {
            if all < fixed {
                return self
                    .fail(&format!("wrong number of args for {name}: want at least {fixed} got {given}"));
            }
        } else if all != fixed {
            return self.fail(&format!("wrong number of args for {name}: want {fixed} got {all}"));
        }
        Ok(())
    }

    fn arguments(
        &mut self,
        tree: &Tree,
        dot: &Operand,
        signature: &Signature<'_>,
        arguments: Option<&[NodeId]>,
        last: Option<Operand>,
    ) -> Outcome<(Vec<Value>, u64)> {
        self.check_arity(signature, arguments, last.as_ref())?;
        let given = arguments.map_or(&[][..], |list| list.get(1..).unwrap_or(&[]));
        let mut values = Vec::with_capacity(given.len() + usize::from(last.is_some()));
        let mut invalid = 0_u64;
        let param_at =
            |index: usize| signature.params.get(index).copied().or(signature.variadic).unwrap_or(Param::Any);
        for (index, argument) in given.iter().enumerate() {
            let operand = self.argument_operand(tree, dot, param_at(index), *argument)?;
            if operand.is_invalid() && index < 64 {
                invalid |= 1 << index;
            }
            values.push(operand.value);
        }
        if let Some(last) = last {
            let index = values.len();
            let operand = self.validate(last, param_at(index))?;
            if operand.is_invalid() && index < 64 {
                invalid |= 1 << index;
            }
            values.push(operand.value);
        }
        Ok((values, invalid))
    }

    fn argument_operand(&mut self, tree: &Tree, dot: &Operand, param: Param, id: NodeId) -> Outcome<Operand> {
        self.at = Some(id);
        let operand = match tree.node(id) {
            Node::Dot => dot.clone(),
            Node::Nil => {
                return match zero_of(param) {
                    Some(value) => Ok(Operand::of(value)),
                    None => self.fail(&format!("cannot assign nil to {}", param.type_name())),
                };
            }
            Node::Field(fields) => {
                self.field_chain(tree, dot, dot.clone(), id, tree.texts(*fields), None, None)?
            }
            Node::Variable { slot, name, fields } => {
                let value = self.variable(tree, *slot, *name)?;
                if fields.len == 0 {
                    value
                } else {
                    self.field_chain(tree, dot, value, id, tree.texts(*fields), None, None)?
                }
            }
            Node::Pipe { .. } => self.pipeline_deep(tree, dot, id)?,
            Node::Identifier(function) => self.call(tree, dot, function, id, None, None)?,
            Node::Chain { node, fields } => {
                self.chain(tree, dot, id, *node, tree.texts(*fields), None, None)?
            }
            _ => return self.literal(tree, param, id),
        };
        self.validate(operand, param)
    }

    /// A literal as an argument of a known type.
    fn literal(&mut self, tree: &Tree, param: Param, id: NodeId) -> Outcome<Operand> {
        let node = tree.node(id);
        let number = match node {
            Node::Number(number) => Some(number),
            _ => None,
        };
        let found = |wanted: &str| format!("expected {wanted}; found {}", tree.print(id));
        let value = match param {
            Param::Any | Param::Reflect => return self.constant(tree, id),
            Param::Bool => match node {
                Node::Bool(value) => Value::Bool(*value),
                _ => return self.fail(&found("bool")),
            },
            Param::String => match node {
                Node::String { text, .. } => Value::String(tree.text(*text).clone()),
                _ => return self.fail(&found("string")),
            },
            Param::Int | Param::Int64 => match number.and_then(|number| number.int) {
                Some(int) if param == Param::Int => Value::Int(int),
                Some(int) => Value::Int64(int),
                None => return self.fail(&found("integer")),
            },
            Param::Uint32 => match number.and_then(|number| number.uint) {
                Some(uint) => Value::Uint64(u64::from(uint as u32)),
                None => return self.fail(&found("unsigned integer")),
            },
            Param::Float => match number.and_then(|number| number.float) {
                Some(float) => Value::Float(float),
                None => return self.fail(&found("float")),
            },
            Param::Map | Param::List | Param::Strings | Param::Bytes | Param::Object(_) => {
                let text = tree.print(id);
                return self.fail(&format!("can't handle {text} for arg of type {}", param.type_name()));
            }
        };
        Ok(Operand::of(value))
    }

    /// Checks a value against a parameter and converts it where Go assigns implicitly.
    fn validate(&self, operand: Operand, param: Param) -> Outcome<Operand> {
        if operand.is_invalid() {
            return match zero_of(param) {
                Some(value) => Ok(Operand::of(value)),
                None => self.fail(&format!("invalid value; expected {}", param.type_name())),
            };
        }
        let assignable = match (&operand.value, param) {
            (_, Param::Any | Param::Reflect) => return Ok(operand),
            (Value::String(_), Param::String)
            | (Value::Bool(_), Param::Bool)
            | (Value::Int(_), Param::Int)
            | (Value::Int64(_), Param::Int64)
            | (Value::Float(_), Param::Float)
            | (Value::Bytes(_), Param::Bytes) => true,
            (Value::Map(map), Param::Map) => {
                if map.element() == Element::Any {
                    return Ok(Operand::of(Value::Map(map.clone().plain())));
                }
                false
            }
            (Value::List(list), Param::List) => list.element() == Element::Any,
            (Value::List(list), Param::Strings) => list.element() == Element::String,
            (Value::Object(object), Param::Object(name)) => {
                object.type_name() == name || object.type_name().strip_prefix('*') == Some(name)
            }
            _ => false,
        };
        if assignable {
            return Ok(Operand::of(operand.value));
        }
        let got = match &operand.value {
            Value::Nil => "interface {}".to_owned(),
            value => value.type_name(),
        };
        self.fail(&format!("wrong type for value; expected {}; got {got}", param.type_name()))
    }
}

/// The zero value nil stands for, if the type can be nil.
fn zero_of(param: Param) -> Option<Value> {
    match param {
        Param::Any | Param::Reflect => Some(Value::Nil),
        Param::Map => Some(Value::Map(Map::nil())),
        Param::List => Some(Value::List(List::nil(Element::Any))),
        Param::Strings => Some(Value::List(List::nil(Element::String))),
        Param::Bytes => Some(Value::Bytes(Text::default())),
        Param::String
        | Param::Bool
        | Param::Int
        | Param::Int64
        | Param::Uint32
        | Param::Float
        | Param::Object(_) => None,
    }
}

fn print_argument(tree: &Tree, id: NodeId) -> String {
    tree.print(id)
}
