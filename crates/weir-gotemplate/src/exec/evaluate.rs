//! Evaluates pipelines: commands, fields, calls, arguments and their conversion.

use std::rc::Rc;

use super::{Context, MissingKey, Operand, Outcome, Signature, State};
use crate::error::Fault;
use crate::function::{Function, Method, Param};
use crate::strconv;
use crate::text::Text;
use crate::tree::{Body, Node, NodeId};
use crate::value::{Element, List, Map, Value};

impl State<'_> {
    pub(super) fn pipeline(&mut self, tree: &Body, dot: &Operand, id: NodeId) -> Outcome<Operand> {
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

    fn not_a_function(&self, tree: &Body, arguments: &[NodeId], last: Option<&Operand>) -> Outcome<()> {
        if arguments.len() > 1 || last.is_some() {
            let first = arguments.first().map(|first| print_argument(tree, *first));
            let first = first.unwrap_or_else(|| "%!s(<nil>)".to_owned());
            return self.fail(&format!("can't give argument to non-function {first}"));
        }
        Ok(())
    }

    fn command(&mut self, tree: &Body, dot: &Operand, id: NodeId, last: Option<Operand>) -> Outcome<Operand> {
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

    fn pipeline_deep(&mut self, tree: &Body, dot: &Operand, id: NodeId) -> Outcome<Operand> {
        stacker::maybe_grow(crate::STACK_RED_ZONE_BYTES, crate::STACK_SEGMENT_BYTES, || {
            self.pipeline(tree, dot, id)
        })
    }

    fn variable(&self, tree: &Body, slot: Option<u32>, name: u32) -> Outcome<Operand> {
        match slot {
            Some(slot) => Ok(self.shared.slots[self.base + slot as usize].clone()),
            None => self.fail(&format!("undefined variable: {}", tree.text(name))),
        }
    }

    /// A literal where nothing says which type is wanted.
    fn constant(&mut self, tree: &Body, id: NodeId) -> Outcome<Operand> {
        self.at = Some(id);
        let value = match tree.node(id) {
            Node::Bool(value) => Value::Bool(*value),
            Node::String { text, .. } => Value::String(tree.text(*text).clone()),
            Node::Number(number) => {
                let number = tree.number(*number);
                match (number.float, number.int) {
                    (Some(float), _) if number.ideal_float => Value::Float(float),
                    (_, Some(int)) => Value::Int(int),
                    _ => return self.fail(&format!("{} overflows int", tree.written(number.text))),
                }
            }
            _ => return self.fail("can't evaluate command"),
        };
        Ok(Operand::of(value))
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one evaluation, passed on")]
    fn chain(
        &mut self,
        tree: &Body,
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
        tree: &Body,
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
        tree: &Body,
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
                if let Some(value) = map.get_field(name) {
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
        tree: &Body,
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
        tree: &Body,
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

    fn argument_operand(&mut self, tree: &Body, dot: &Operand, param: Param, id: NodeId) -> Outcome<Operand> {
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
    fn literal(&mut self, tree: &Body, param: Param, id: NodeId) -> Outcome<Operand> {
        let node = tree.node(id);
        let number = match node {
            Node::Number(number) => Some(tree.number(*number)),
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

fn print_argument(tree: &Body, id: NodeId) -> String {
    tree.print(id)
}
