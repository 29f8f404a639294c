//! Parses what stands within actions: declarations, pipelines, commands and their operands.

use super::{Parsed, Parser, span};
use crate::lex::{Token, TokenKind};
use crate::strconv;
use crate::tree::{Declared, Node, NodeId, Number, Span};

/// How deeply parentheses may be nested within one action, in levels.
const PAREN_LEVELS_MAX: usize = 10_000;

impl<'a> Parser<'a> {
    fn reserve_slot(&mut self) -> u32 {
        let slot = self.state.slots_used;
        self.state.slots_used += 1;
        self.state.slots_max = self.state.slots_max.max(self.state.slots_used);
        slot
    }

    /// The variable in scope, with the slot it has unless it was only ever assigned to.
    fn lookup(&self, name: &str) -> Option<&(&'a str, Option<u32>)> {
        let variables = &self.state.variables;
        variables.iter().rev().find(|(variable, _)| *variable == name)
    }

    /// The variables a pipeline declares or assigns, and whether it assigns.
    ///
    /// The new variables come into scope at once, so their slots are handed out here; those of an
    /// assignment are the existing ones.
    fn declarations(&mut self, context: &str) -> Parsed<(Vec<&'a str>, bool)> {
        let mut names = Vec::new();
        loop {
            if self.peek_non_space().kind != TokenKind::Variable {
                return Ok((names, false));
            }
            let at = self.cursor;
            let variable = self.next();
            let next = self.peek_non_space();
            match next.kind {
                TokenKind::Assign | TokenKind::Declare => {
                    self.next_non_space();
                    names.push(variable.text);
                    return Ok((names, next.kind == TokenKind::Assign));
                }
                TokenKind::Char if next.text == "," => {
                    self.next_non_space();
                    names.push(variable.text);
                    if context == "range" && names.len() < 2 {
                        match self.peek_non_space().kind {
                            TokenKind::Variable | TokenKind::RightDelimiter | TokenKind::RightParen => {
                                continue;
                            }
                            _ => return self.error("range can only initialize variables"),
                        }
                    }
                    return self.error(format!("too many declarations in {context}"));
                }
                _ => self.cursor = at,
            }
            return Ok((names, false));
        }
    }

    pub(super) fn pipeline(&mut self, context: &str, end: TokenKind) -> Parsed<NodeId> {
        let position = self.peek_non_space().position;
        let (names, assign) = self.declarations(context)?;
        // Within its own pipeline a new variable's name still means the one it will shadow.
        let mut declared: Vec<(usize, Declared)> = Vec::with_capacity(names.len());
        for name in names {
            let shadowed = self.lookup(name).and_then(|(_, slot)| *slot);
            let slot = if assign { shadowed } else { Some(self.reserve_slot()) };
            let entry = self.state.variables.len();
            self.state.variables.push((name, shadowed));
            let name = self.names.get(name.as_bytes());
            declared.push((entry, Declared { name: self.tables.text(name), slot }));
        }
        let from = self.pending.len();
        loop {
            let token = self.next_non_space();
            if token.kind == end {
                break;
            }
            match token.kind {
                TokenKind::Bool
                | TokenKind::CharConstant
                | TokenKind::Complex
                | TokenKind::Dot
                | TokenKind::Field
                | TokenKind::Identifier
                | TokenKind::Number
                | TokenKind::KeywordNil
                | TokenKind::RawString
                | TokenKind::String
                | TokenKind::Variable
                | TokenKind::LeftParen => {
                    self.backup();
                    let command = self.command()?;
                    self.pending.push(command);
                }
                _ => return self.unexpected(&token, context),
            }
        }
        for (entry, variable) in &declared {
            self.state.variables[*entry].1 = variable.slot;
        }
        if self.pending.len() == from {
            return self.error(format!("missing value for {context}"));
        }
        for (index, command) in self.pending[from..].iter().enumerate().skip(1) {
            let Node::Command(arguments) = self.tables.nodes[*command as usize] else { continue };
            let first = self.tables.children[arguments.start as usize];
            if let Node::Bool(_) | Node::Dot | Node::Nil | Node::Number(_) | Node::String { .. } =
                self.tables.nodes[first as usize]
            {
                let stage = index + 1;
                return self.error(format!("non executable command in pipeline stage {stage}"));
            }
        }
        let commands = self.list_since(from);
        let table = &mut self.tables.declared;
        let start = table.len() as u32;
        table.extend(declared.iter().map(|(_, variable)| *variable));
        let declared = Span { start, len: declared.len() as u32 };
        Ok(self.tables.push(Node::Pipe { declared, assign, commands }, position))
    }

    fn command(&mut self) -> Parsed<NodeId> {
        let position = self.peek_non_space().position;
        let from = self.pending.len();
        loop {
            self.peek_non_space();
            if let Some(operand) = self.operand()? {
                self.pending.push(operand);
            }
            let token = self.next();
            match token.kind {
                TokenKind::Space => continue,
                TokenKind::RightDelimiter | TokenKind::RightParen => self.backup(),
                TokenKind::Pipe => {}
                _ => return self.unexpected(&token, "operand"),
            }
            break;
        }
        if self.pending.len() == from {
            return self.error("empty command");
        }
        let arguments = self.list_since(from);
        Ok(self.tables.push(Node::Command(arguments), position))
    }

    fn operand(&mut self) -> Parsed<Option<NodeId>> {
        let Some(node) = self.term()? else { return Ok(None) };
        if self.peek_kind() != TokenKind::Field {
            return Ok(Some(node));
        }
        let position = self.peek().position;
        let start = self.tables.texts.len() as u32;
        let mut len = 0;
        while self.peek_kind() == TokenKind::Field {
            let token = self.next();
            let name = self.names.get(&token.text.as_bytes()[1..]);
            self.tables.text(name);
            len += 1;
        }
        // More fields on a field or variable extend it (they follow its own in the table); its position
        // moves to the extension.
        let extended = match &mut self.tables.nodes[node as usize] {
            Node::Field(first) | Node::Variable { fields: first, .. } => {
                first.len += len;
                true
            }
            Node::Bool(_) | Node::String { .. } | Node::Number(_) | Node::Nil | Node::Dot => {
                let term = self.print_term(node);
                return self.error(format!("unexpected . after term {}", strconv::quoted(&term)));
            }
            _ => false,
        };
        if extended {
            self.tables.positions[node as usize] = position;
            return Ok(Some(node));
        }
        Ok(Some(self.tables.push(Node::Chain { node, fields: Span { start, len } }, position)))
    }

    fn written(&self, span: Span) -> &str {
        &self.source[span.start as usize..][..span.len as usize]
    }

    fn print_term(&self, id: NodeId) -> String {
        match &self.tables.nodes[id as usize] {
            Node::Bool(value) => value.to_string(),
            Node::String { quoted, .. } => self.written(*quoted).to_owned(),
            Node::Number(number) => self.written(self.tables.numbers[*number as usize].text).to_owned(),
            Node::Nil => "nil".to_owned(),
            _ => ".".to_owned(),
        }
    }

    fn term(&mut self) -> Parsed<Option<NodeId>> {
        let token = self.next_non_space();
        let node = match token.kind {
            TokenKind::Identifier => {
                if let Some(function) = self.functions.get(token.text) {
                    Node::Identifier(function)
                } else {
                    let name = strconv::quoted(token.text);
                    return self.error(format!("function {name} not defined"));
                }
            }
            TokenKind::Dot => Node::Dot,
            TokenKind::KeywordNil => Node::Nil,
            TokenKind::Variable => {
                if let Some((_, slot)) = self.lookup(token.text) {
                    let slot = *slot;
                    let name = self.names.get(token.text.as_bytes());
                    let name = self.tables.text(name);
                    Node::Variable { slot, name, fields: Span { start: name + 1, len: 0 } }
                } else {
                    let name = strconv::quoted(token.text);
                    return self.error(format!("undefined variable {name}"));
                }
            }
            TokenKind::Field => {
                let name = self.names.get(&token.text.as_bytes()[1..]);
                Node::Field(Span { start: self.tables.text(name), len: 1 })
            }
            TokenKind::Bool => Node::Bool(token.text == "true"),
            TokenKind::CharConstant | TokenKind::Complex | TokenKind::Number => match number(&token) {
                Ok(number) => Node::Number(self.tables.number(number)),
                Err(message) => return self.error(message),
            },
            TokenKind::LeftParen => {
                if self.state.paren_level >= PAREN_LEVELS_MAX {
                    return self.error("max expression depth exceeded");
                }
                self.state.paren_level += 1;
                let pipe =
                    stacker::maybe_grow(crate::STACK_RED_ZONE_BYTES, crate::STACK_SEGMENT_BYTES, || {
                        self.pipeline("parenthesized pipeline", TokenKind::RightParen)
                    });
                self.state.paren_level -= 1;
                return pipe.map(Some);
            }
            TokenKind::String | TokenKind::RawString => match strconv::unquote_literal(token.text) {
                Some(text) => {
                    let text = self.names.get(&text);
                    Node::String { quoted: span(&token), text: self.tables.text(text) }
                }
                None => return self.error("invalid syntax"),
            },
            _ => {
                self.backup();
                return Ok(None);
            }
        };
        Ok(Some(self.tables.push(node, token.position)))
    }
}

#[expect(clippy::float_cmp, reason = "whether a float is exactly an integer")]
fn number(token: &Token<'_>) -> Result<Number, String> {
    let (text, kind) = (token.text, token.kind);
    let mut number = Number { text: span(token), int: None, uint: None, float: None, ideal_float: false };
    if kind == TokenKind::CharConstant {
        let code = strconv::unquote_rune(text).map_err(|syntax| {
            if syntax { "invalid syntax".to_owned() } else { format!("malformed character constant: {text}") }
        })?;
        number.int = Some(code);
        number.uint = u64::try_from(code).ok();
        number.float = Some(code as f64);
        return Ok(number);
    }
    if kind == TokenKind::Complex || text.ends_with('i') {
        return Err(format!("complex numbers are not supported: {}", strconv::quoted(text)));
    }
    number.uint = strconv::parse_uint(text, 0).ok();
    number.int = strconv::parse_int(text, 0).ok();
    if number.int == Some(0) {
        number.uint = Some(0);
    }
    if let Some(int) = number.int {
        number.float = Some(int as f64);
    } else if let Some(uint) = number.uint {
        number.float = Some(uint as f64);
    } else if let Ok(float) = strconv::parse_float(text) {
        if !text.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {}", strconv::quoted(text)));
        }
        number.float = Some(float);
        let int = float as i64;
        if int as f64 == float && float.abs() < 9.3e18 {
            number.int = Some(int);
        }
        let uint = float as u64;
        if uint as f64 == float && (0.0..1.9e19).contains(&float) {
            number.uint = Some(uint);
        }
    }
    if number.int.is_none() && number.uint.is_none() && number.float.is_none() {
        return Err(format!("illegal number syntax: {}", strconv::quoted(text)));
    }
    let hexadecimal_integer =
        text.len() > 2 && text[..2].eq_ignore_ascii_case("0x") && !text.contains(['p', 'P']);
    number.ideal_float =
        number.float.is_some() && !hexadecimal_integer && text.contains(['.', 'e', 'E', 'p', 'P']);
    Ok(number)
}
