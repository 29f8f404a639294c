//! Compiled templates: flat arrays of instructions with resolved functions and variables, and the
//! source text of each instruction for error messages.

use std::rc::Rc;

use crate::function::Function;
use crate::strconv;
use crate::text::Text;

/// The index of an instruction within its body.
pub(crate) type NodeId = u32;

/// A part of one of the tables of a body, or of its source.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// A number literal and the kinds it can stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number {
    /// How it is written, within the source.
    pub(crate) text: Span,
    pub(crate) int: Option<i64>,
    pub(crate) uint: Option<u64>,
    pub(crate) float: Option<f64>,
    /// Whether it is a float where nothing else decides.
    pub(crate) ideal_float: bool,
}

/// One instruction. Children, texts, numbers and declarations are in tables of the body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    List(Span),
    /// Text as it stands in the source.
    Text(Span),
    Action(NodeId),
    Break,
    Continue,
    If {
        pipe: NodeId,
        list: NodeId,
        otherwise: Option<NodeId>,
    },
    With {
        pipe: NodeId,
        list: NodeId,
        otherwise: Option<NodeId>,
    },
    Range {
        pipe: NodeId,
        list: NodeId,
        otherwise: Option<NodeId>,
    },
    Template {
        name: u32,
        pipe: Option<NodeId>,
    },
    Pipe {
        declared: Span,
        assign: bool,
        commands: Span,
    },
    Command(Span),
    Identifier(&'static Function),
    Dot,
    Nil,
    Bool(bool),
    /// Within the table of numbers.
    Number(u32),
    String {
        /// As it is written in the source.
        quoted: Span,
        text: u32,
    },
    Field(Span),
    Variable {
        slot: Option<u32>,
        name: u32,
        fields: Span,
    },
    Chain {
        node: NodeId,
        fields: Span,
    },
}

/// A variable a pipeline declares or assigns; no slot if it assigns to an unknown one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declared {
    pub(crate) name: u32,
    pub(crate) slot: Option<u32>,
}

/// A compiled template: where its instructions begin in the text it was parsed from.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The name it is defined under.
    pub(crate) name: Text,
    pub(crate) body: Rc<Body>,
    pub(crate) root: NodeId,
    /// How many variable slots a run needs.
    pub(crate) slots: u32,
    /// Whether it holds nothing but space and comments.
    pub(crate) empty: bool,
}

/// A compiled text: the instructions of the text itself and of all definitions in it.
#[derive(Debug)]
pub(crate) struct Body {
    /// The name of the text.
    pub(crate) parse_name: Rc<str>,
    pub(crate) source: Rc<str>,
    pub(crate) nodes: Box<[Node]>,
    pub(crate) positions: Box<[u32]>,
    /// Lists of instructions.
    pub(crate) children: Box<[NodeId]>,
    /// Names and string literals.
    pub(crate) texts: Box<[Text]>,
    pub(crate) numbers: Box<[Number]>,
    pub(crate) declared: Box<[Declared]>,
}

impl Body {
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(crate) fn children(&self, span: Span) -> &[NodeId] {
        &self.children[span.range()]
    }

    pub(crate) fn texts(&self, span: Span) -> &[Text] {
        &self.texts[span.range()]
    }

    pub(crate) fn text(&self, index: u32) -> &Text {
        &self.texts[index as usize]
    }

    pub(crate) fn number(&self, index: u32) -> &Number {
        &self.numbers[index as usize]
    }

    pub(crate) fn declared(&self, span: Span) -> &[Declared] {
        &self.declared[span.range()]
    }

    /// A part of the source.
    pub(crate) fn written(&self, span: Span) -> &str {
        &self.source[span.range()]
    }

    /// `name:line:column` of an instruction; the column counts bytes from 0.
    pub(crate) fn location(&self, id: NodeId) -> String {
        let position = self.positions[id as usize] as usize;
        let before = &self.source.as_bytes()[..position.min(self.source.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = match before.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => before.len() - newline - 1,
            None => before.len(),
        };
        format!("{}:{line}:{column}", self.parse_name)
    }

    /// The instruction printed as template text, with normalised spacing.
    pub(crate) fn print(&self, id: NodeId) -> String {
        let mut out = String::new();
        self.print_to(&mut out, id);
        out
    }

    fn print_to(&self, out: &mut String, id: NodeId) {
        stacker::maybe_grow(crate::STACK_RED_ZONE_BYTES, crate::STACK_SEGMENT_BYTES, || {
            self.print_node(out, id);
        });
    }

    fn print_control(
        &self,
        out: &mut String,
        word: &str,
        pipe: NodeId,
        list: NodeId,
        otherwise: Option<NodeId>,
    ) {
        out.push_str("{{");
        out.push_str(word);
        out.push(' ');
        self.print_to(out, pipe);
        out.push_str("}}");
        self.print_to(out, list);
        if let Some(otherwise) = otherwise {
            out.push_str("{{else}}");
            self.print_to(out, otherwise);
        }
        out.push_str("{{end}}");
    }

    fn print_node(&self, out: &mut String, id: NodeId) {
        match self.node(id) {
            Node::List(nodes) => self.children(*nodes).iter().for_each(|node| self.print_to(out, *node)),
            Node::Text(text) => out.push_str(self.written(*text)),
            Node::Action(pipe) => {
                out.push_str("{{");
                self.print_to(out, *pipe);
                out.push_str("}}");
            }
            Node::Break => out.push_str("{{break}}"),
            Node::Continue => out.push_str("{{continue}}"),
            Node::If { pipe, list, otherwise } => {
                self.print_control(out, "if", *pipe, *list, *otherwise);
            }
            Node::With { pipe, list, otherwise } => {
                self.print_control(out, "with", *pipe, *list, *otherwise);
            }
            Node::Range { pipe, list, otherwise } => {
                self.print_control(out, "range", *pipe, *list, *otherwise);
            }
            Node::Template { name, pipe } => {
                out.push_str("{{template ");
                out.push_str(&String::from_utf8_lossy(&strconv::quote(self.text(*name), false)));
                if let Some(pipe) = pipe {
                    out.push(' ');
                    self.print_to(out, *pipe);
                }
                out.push_str("}}");
            }
            Node::Pipe { declared, assign, commands } => {
                for (index, variable) in self.declared(*declared).iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    out.push_str(&self.text(variable.name).to_str_lossy());
                }
                if declared.len > 0 {
                    out.push_str(if *assign { " = " } else { " := " });
                }
                for (index, command) in self.children(*commands).iter().enumerate() {
                    if index > 0 {
                        out.push_str(" | ");
                    }
                    self.print_to(out, *command);
                }
            }
            Node::Command(arguments) => {
                for (index, argument) in self.children(*arguments).iter().enumerate() {
                    if index > 0 {
                        out.push(' ');
                    }
                    self.print_operand(out, *argument);
                }
            }
            Node::Identifier(function) => out.push_str(function.name),
            Node::Dot => out.push('.'),
            Node::Nil => out.push_str("nil"),
            Node::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Node::Number(number) => out.push_str(self.written(self.number(*number).text)),
            Node::String { quoted, .. } => out.push_str(self.written(*quoted)),
            Node::Field(fields) => print_fields(out, self.texts(*fields)),
            Node::Variable { name, fields, .. } => {
                out.push_str(&self.text(*name).to_str_lossy());
                print_fields(out, self.texts(*fields));
            }
            Node::Chain { node, fields } => {
                self.print_operand(out, *node);
                print_fields(out, self.texts(*fields));
            }
        }
    }

    /// An argument: pipelines get their parentheses back.
    fn print_operand(&self, out: &mut String, id: NodeId) {
        if matches!(self.node(id), Node::Pipe { .. }) {
            out.push('(');
            self.print_to(out, id);
            out.push(')');
        } else {
            self.print_to(out, id);
        }
    }
}

fn print_fields(out: &mut String, fields: &[Text]) {
    for field in fields {
        out.push('.');
        out.push_str(&field.to_str_lossy());
    }
}
