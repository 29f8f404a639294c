//! Compiles template text: parsing, resolving variables to slots and names to functions.

use std::rc::Rc;

use crate::error::ParseError;
use crate::functions::Functions;
use crate::lex::{Lexer, Token, TokenKind};
use crate::strconv;
use crate::text::Text;
use crate::tree::{Declared, Node, NodeId, Number, Tree};

/// How deeply parentheses may be nested within one action, in levels.
const PAREN_LEVELS_MAX: usize = 10_000;
/// How deeply control structures may be nested, in levels.
const CONTROL_LEVELS_MAX: usize = 10_000;

/// Compiles `source`; the first tree is the text itself, the others are its definitions. A name is
/// defined at most once; an empty definition gives way to one that is not.
pub(crate) fn parse(name: &str, source: &str, functions: &Functions) -> Result<Vec<Tree>, ParseError> {
    let mut parser = Parser {
        lexer: Lexer::new(source),
        name: Rc::from(name),
        source: Rc::from(source),
        functions,
        trees: Vec::new(),
        state: State::default(),
        control_level: 0,
    };
    parser.top_level()?;
    let main = parser.state.finish(Text::from(name), &parser.name, &parser.source);
    let line = parser.state.tokens[0].line;
    parser.add(main, line)?;
    let main = parser.trees.iter().position(|tree| &*tree.name == name.as_bytes());
    if let Some(main) = main {
        parser.trees.swap(0, main);
    }
    Ok(parser.trees)
}

/// What belongs to the definition being parsed.
struct State {
    tokens: [Token; 3],
    peeked: usize,
    nodes: Vec<Node>,
    positions: Vec<u32>,
    /// The variables in scope and their slots.
    variables: Vec<(String, Option<u32>)>,
    slots_used: u32,
    slots_max: u32,
    action_line: usize,
    range_level: usize,
    paren_level: usize,
    root: NodeId,
    empty: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            tokens: [Token::none(), Token::none(), Token::none()],
            peeked: 0,
            nodes: Vec::new(),
            positions: Vec::new(),
            variables: vec![("$".to_owned(), Some(0))],
            slots_used: 1,
            slots_max: 1,
            action_line: 0,
            range_level: 0,
            paren_level: 0,
            root: 0,
            empty: true,
        }
    }
}

impl State {
    fn finish(&mut self, name: Text, parse_name: &Rc<str>, source: &Rc<str>) -> Tree {
        Tree {
            name,
            parse_name: Rc::clone(parse_name),
            source: Rc::clone(source),
            nodes: std::mem::take(&mut self.nodes),
            positions: std::mem::take(&mut self.positions),
            root: self.root,
            slots: self.slots_max,
            empty: self.empty,
        }
    }

    fn push(&mut self, node: Node, position: usize) -> NodeId {
        self.nodes.push(node);
        self.positions.push(position as u32);
        (self.nodes.len() - 1) as NodeId
    }

    fn is_empty_node(&self, id: NodeId) -> bool {
        match &self.nodes[id as usize] {
            Node::Text(text) => text.to_str_lossy().trim().is_empty(),
            Node::List(nodes) => nodes.iter().all(|node| self.is_empty_node(*node)),
            _ => false,
        }
    }
}

/// How an item list ended.
enum Ending {
    End,
    Else { line_position: usize },
}

/// What one item of a list is.
enum Item {
    Node(NodeId),
    Ending(Ending),
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    name: Rc<str>,
    source: Rc<str>,
    functions: &'a Functions,
    trees: Vec<Tree>,
    state: State,
    control_level: usize,
}

type Parsed<T> = Result<T, ParseError>;

impl Parser<'_> {
    fn error<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(ParseError {
            name: self.name.to_string(),
            line: self.state.tokens[0].line,
            message: message.into(),
        })
    }

    fn next(&mut self) -> Token {
        let state = &mut self.state;
        if state.peeked > 0 {
            state.peeked -= 1;
        } else {
            state.tokens[0] = self.lexer.next_token();
        }
        state.tokens[state.peeked].clone()
    }

    fn backup(&mut self) {
        self.state.peeked += 1;
    }

    /// Backs up two tokens; the zeroth is already there.
    fn backup2(&mut self, token: Token) {
        self.state.tokens[1] = token;
        self.state.peeked = 2;
    }

    /// Backs up three tokens, given in reverse order; the zeroth is already there.
    fn backup3(&mut self, second: Token, first: Token) {
        self.state.tokens[1] = first;
        self.state.tokens[2] = second;
        self.state.peeked = 3;
    }

    fn peek(&mut self) -> Token {
        let state = &mut self.state;
        if state.peeked > 0 {
            return state.tokens[state.peeked - 1].clone();
        }
        state.peeked = 1;
        state.tokens[0] = self.lexer.next_token();
        state.tokens[0].clone()
    }

    fn peek_kind(&mut self) -> TokenKind {
        let state = &mut self.state;
        if state.peeked == 0 {
            state.peeked = 1;
            state.tokens[0] = self.lexer.next_token();
        }
        state.tokens[state.peeked - 1].kind
    }

    fn next_non_space(&mut self) -> Token {
        loop {
            let token = self.next();
            if token.kind != TokenKind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> Token {
        let token = self.next_non_space();
        self.backup();
        token
    }

    fn unexpected<T>(&self, token: &Token, context: &str) -> Parsed<T> {
        if token.kind == TokenKind::Error {
            let mut extra = String::new();
            let line = self.state.action_line;
            if line != 0 && line != token.line {
                let verb = if token.text.ends_with(" action") { "" } else { " in action" };
                extra = format!("{verb} started at {}:{line}", self.name);
            }
            return self.error(format!("{}{extra}", token.describe()));
        }
        self.error(format!("unexpected {} in {context}", token.describe()))
    }

    fn expect(&mut self, kind: TokenKind, context: &str) -> Parsed<Token> {
        let token = self.next_non_space();
        if token.kind == kind { Ok(token) } else { self.unexpected(&token, context) }
    }

    /// Takes a finished definition in.
    fn add(&mut self, tree: Tree, line: usize) -> Parsed<()> {
        if let Some(position) = self.trees.iter().position(|other| other.name == tree.name) {
            if self.trees[position].empty {
                self.trees[position] = tree;
            } else if !tree.empty {
                let name = String::from_utf8_lossy(&strconv::quote(&tree.name, false)).into_owned();
                return Err(ParseError {
                    name: self.name.to_string(),
                    line,
                    message: format!("template: multiple definition of template {name}"),
                });
            }
        } else {
            self.trees.push(tree);
        }
        Ok(())
    }

    fn top_level(&mut self) -> Parsed<()> {
        let position = self.peek().position;
        let mut nodes = Vec::new();
        while self.peek_kind() != TokenKind::End {
            if self.peek_kind() == TokenKind::LeftDelimiter {
                let delimiter = self.next();
                if self.next_non_space().kind == TokenKind::KeywordDefine {
                    let outer = std::mem::take(&mut self.state);
                    let defined = self.definition();
                    if defined.is_ok() {
                        self.state = outer;
                    }
                    defined?;
                    continue;
                }
                self.backup2(delimiter);
            }
            match self.text_or_action()? {
                Item::Node(node) => nodes.push(node),
                Item::Ending(Ending::End) => return self.error("unexpected {{end}}"),
                Item::Ending(Ending::Else { .. }) => return self.error("unexpected {{else}}"),
            }
        }
        self.state.root = self.state.push(Node::List(nodes.into()), position);
        self.state.empty = self.state.is_empty_node(self.state.root);
        Ok(())
    }

    fn definition(&mut self) -> Parsed<()> {
        let context = "define clause";
        let token = self.next_non_space();
        if !matches!(token.kind, TokenKind::String | TokenKind::RawString) {
            return self.unexpected(&token, context);
        }
        let Some(name) = strconv::unquote(&token.text) else { return self.error("invalid syntax") };
        self.expect(TokenKind::RightDelimiter, context)?;
        self.body(Text::from(name), context)
    }

    /// The body of a definition or block, up to its end.
    fn body(&mut self, name: Text, context: &str) -> Parsed<()> {
        let (root, ending) = self.item_list()?;
        if let Ending::Else { .. } = ending {
            return self.error(format!("unexpected {{{{else}}}} in {context}"));
        }
        self.state.root = root;
        self.state.empty = self.state.is_empty_node(root);
        let line = self.state.tokens[0].line;
        let tree = self.state.finish(name, &self.name, &self.source);
        self.add(tree, line)
    }

    fn item_list(&mut self) -> Parsed<(NodeId, Ending)> {
        let position = self.peek_non_space().position;
        let mut nodes = Vec::new();
        while self.peek_non_space().kind != TokenKind::End {
            match self.text_or_action()? {
                Item::Node(node) => nodes.push(node),
                Item::Ending(ending) => {
                    let list = self.state.push(Node::List(nodes.into()), position);
                    return Ok((list, ending));
                }
            }
        }
        self.error("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        match token.kind {
            TokenKind::Text => {
                let text = Node::Text(Text::from(token.text));
                Ok(Item::Node(self.state.push(text, token.position)))
            }
            TokenKind::LeftDelimiter => {
                self.state.action_line = token.line;
                let item = self.action();
                if item.is_ok() {
                    self.state.action_line = 0;
                }
                item
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    fn action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        let node = match token.kind {
            TokenKind::KeywordBlock => self.block()?,
            TokenKind::KeywordBreak => self.jump(&token, Node::Break, "break")?,
            TokenKind::KeywordContinue => self.jump(&token, Node::Continue, "continue")?,
            TokenKind::KeywordElse => {
                let peek = self.peek_non_space();
                let position = if matches!(peek.kind, TokenKind::KeywordIf | TokenKind::KeywordWith) {
                    peek.position
                } else {
                    self.expect(TokenKind::RightDelimiter, "else")?.position
                };
                return Ok(Item::Ending(Ending::Else { line_position: position }));
            }
            TokenKind::KeywordEnd => {
                self.expect(TokenKind::RightDelimiter, "end")?;
                return Ok(Item::Ending(Ending::End));
            }
            TokenKind::KeywordIf => self.control("if")?,
            TokenKind::KeywordRange => self.control("range")?,
            TokenKind::KeywordWith => self.control("with")?,
            TokenKind::KeywordTemplate => self.template()?,
            _ => {
                self.backup();
                let position = self.peek().position;
                let pipe = self.pipeline("command", TokenKind::RightDelimiter)?;
                self.state.push(Node::Action(pipe), position)
            }
        };
        Ok(Item::Node(node))
    }

    fn jump(&mut self, token: &Token, node: Node, word: &str) -> Parsed<NodeId> {
        let next = self.next_non_space();
        if next.kind != TokenKind::RightDelimiter {
            return self.unexpected(&next, &format!("{{{{{word}}}}}"));
        }
        if self.state.range_level == 0 {
            return self.error(format!("{{{{{word}}}}} outside {{{{range}}}}"));
        }
        Ok(self.state.push(node, token.position))
    }

    fn control(&mut self, word: &str) -> Parsed<NodeId> {
        self.control_level += 1;
        if self.control_level > CONTROL_LEVELS_MAX {
            return self.error("control structures are nested too deeply");
        }
        let node = stacker::maybe_grow(crate::STACK_RED_ZONE_BYTES, crate::STACK_SEGMENT_BYTES, || {
            self.control_body(word)
        });
        self.control_level -= 1;
        node
    }

    fn control_body(&mut self, word: &str) -> Parsed<NodeId> {
        let scope = self.state.variables.len();
        let slots = self.state.slots_used;
        let pipe = self.pipeline(word, TokenKind::RightDelimiter)?;
        let position = self.state.positions[pipe as usize] as usize;
        let range = word == "range";
        self.state.range_level += usize::from(range);
        let (list, ending) = self.item_list()?;
        self.state.range_level -= usize::from(range);
        let otherwise = match ending {
            Ending::End => None,
            Ending::Else { line_position } => {
                let next = self.peek_kind();
                let chained = match (word, next) {
                    ("if", TokenKind::KeywordIf) => Some("if"),
                    ("with", TokenKind::KeywordWith) => Some("with"),
                    _ => None,
                };
                if let Some(chained) = chained {
                    self.next();
                    let inner = self.control(chained)?;
                    Some(self.state.push(Node::List([inner].into()), line_position))
                } else {
                    let (list, ending) = self.item_list()?;
                    if let Ending::Else { .. } = ending {
                        return self.error("expected end; found {{else}}");
                    }
                    Some(list)
                }
            }
        };
        self.state.variables.truncate(scope);
        self.state.slots_used = slots;
        let node = match word {
            "if" => Node::If { pipe, list, otherwise },
            "with" => Node::With { pipe, list, otherwise },
            _ => Node::Range { pipe, list, otherwise },
        };
        Ok(self.state.push(node, position))
    }

    fn template_name(&mut self, token: &Token, context: &str) -> Parsed<Text> {
        match token.kind {
            TokenKind::String | TokenKind::RawString => match strconv::unquote(&token.text) {
                Some(name) => Ok(Text::from(name)),
                None => self.error("invalid syntax"),
            },
            _ => self.unexpected(token, context),
        }
    }

    fn template(&mut self) -> Parsed<NodeId> {
        let context = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, context)?;
        let mut pipe = None;
        if self.next_non_space().kind != TokenKind::RightDelimiter {
            self.backup();
            pipe = Some(self.pipeline(context, TokenKind::RightDelimiter)?);
        }
        Ok(self.state.push(Node::Template { name, pipe }, token.position))
    }

    fn block(&mut self) -> Parsed<NodeId> {
        let context = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, context)?;
        let pipe = self.pipeline(context, TokenKind::RightDelimiter)?;
        self.control_level += 1;
        if self.control_level > CONTROL_LEVELS_MAX {
            return self.error("control structures are nested too deeply");
        }
        let outer = std::mem::take(&mut self.state);
        let defined = stacker::maybe_grow(crate::STACK_RED_ZONE_BYTES, crate::STACK_SEGMENT_BYTES, || {
            self.body(name.clone(), context)
        });
        self.control_level -= 1;
        if defined.is_ok() {
            self.state = outer;
        }
        defined?;
        Ok(self.state.push(Node::Template { name, pipe: Some(pipe) }, token.position))
    }

    fn reserve_slot(&mut self) -> u32 {
        let slot = self.state.slots_used;
        self.state.slots_used += 1;
        self.state.slots_max = self.state.slots_max.max(self.state.slots_used);
        slot
    }

    /// The variable in scope, with the slot it has unless it was only ever assigned to.
    fn lookup(&self, name: &str) -> Option<&(String, Option<u32>)> {
        let variables = &self.state.variables;
        variables.iter().rev().find(|(variable, _)| variable == name)
    }

    /// The variables a pipeline declares or assigns, and whether it assigns.
    ///
    /// The new variables come into scope at once, so their slots are handed out here; those of an
    /// assignment are the existing ones.
    fn declarations(&mut self, context: &str) -> Parsed<(Vec<String>, bool)> {
        let mut names = Vec::new();
        loop {
            if self.peek_non_space().kind != TokenKind::Variable {
                return Ok((names, false));
            }
            let variable = self.next();
            let after = self.peek();
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
                _ if after.kind == TokenKind::Space => self.backup3(variable, after),
                _ => self.backup2(variable),
            }
            return Ok((names, false));
        }
    }

    fn pipeline(&mut self, context: &str, end: TokenKind) -> Parsed<NodeId> {
        let position = self.peek_non_space().position;
        let (names, assign) = self.declarations(context)?;
        // Within its own pipeline a new variable's name still means the one it will shadow.
        let mut declared = Vec::with_capacity(names.len());
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let shadowed = self.lookup(&name).and_then(|(_, slot)| *slot);
            let slot = if assign { shadowed } else { Some(self.reserve_slot()) };
            entries.push(self.state.variables.len());
            self.state.variables.push((name.clone(), shadowed));
            declared.push(Declared { name: name.into(), slot });
        }
        let mut commands: Vec<NodeId> = Vec::new();
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
                    commands.push(self.command()?);
                }
                _ => return self.unexpected(&token, context),
            }
        }
        for (entry, variable) in entries.into_iter().zip(&declared) {
            self.state.variables[entry].1 = variable.slot;
        }
        if commands.is_empty() {
            return self.error(format!("missing value for {context}"));
        }
        for (index, command) in commands.iter().enumerate().skip(1) {
            let Node::Command(arguments) = &self.state.nodes[*command as usize] else { continue };
            let first = arguments.first().map(|first| &self.state.nodes[*first as usize]);
            if let Some(Node::Bool(_) | Node::Dot | Node::Nil | Node::Number(_) | Node::String { .. }) = first
            {
                let stage = index + 1;
                return self.error(format!("non executable command in pipeline stage {stage}"));
            }
        }
        let pipe = Node::Pipe { declared: declared.into(), assign, commands: commands.into() };
        Ok(self.state.push(pipe, position))
    }

    fn command(&mut self) -> Parsed<NodeId> {
        let position = self.peek_non_space().position;
        let mut arguments = Vec::new();
        loop {
            self.peek_non_space();
            if let Some(operand) = self.operand()? {
                arguments.push(operand);
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
        if arguments.is_empty() {
            return self.error("empty command");
        }
        Ok(self.state.push(Node::Command(arguments.into()), position))
    }

    fn operand(&mut self) -> Parsed<Option<NodeId>> {
        let Some(node) = self.term()? else { return Ok(None) };
        if self.peek_kind() != TokenKind::Field {
            return Ok(Some(node));
        }
        let position = self.peek().position;
        let mut fields = Vec::new();
        while self.peek_kind() == TokenKind::Field {
            fields.push(Text::from(&self.next().text[1..]));
        }
        // More fields on a field or variable extend it; its position moves to the extension.
        let extended = match &mut self.state.nodes[node as usize] {
            Node::Field(first) | Node::Variable { fields: first, .. } => {
                let mut all = std::mem::take(first).into_vec();
                all.append(&mut fields);
                *first = all.into();
                true
            }
            Node::Bool(_) | Node::String { .. } | Node::Number(_) | Node::Nil | Node::Dot => {
                let term = self.print_term(node);
                return self.error(format!("unexpected . after term {}", strconv::quoted(&term)));
            }
            _ => false,
        };
        if extended {
            self.state.positions[node as usize] = position as u32;
            return Ok(Some(node));
        }
        Ok(Some(self.state.push(Node::Chain { node, fields: fields.into() }, position)))
    }

    fn print_term(&self, id: NodeId) -> String {
        match &self.state.nodes[id as usize] {
            Node::Bool(value) => value.to_string(),
            Node::String { quoted, .. } => quoted.to_string(),
            Node::Number(number) => number.text.to_string(),
            Node::Nil => "nil".to_owned(),
            _ => ".".to_owned(),
        }
    }

    fn term(&mut self) -> Parsed<Option<NodeId>> {
        let token = self.next_non_space();
        let node = match token.kind {
            TokenKind::Identifier => {
                if let Some(function) = self.functions.get(&token.text) {
                    Node::Identifier(function)
                } else {
                    let name = strconv::quoted(&token.text);
                    return self.error(format!("function {name} not defined"));
                }
            }
            TokenKind::Dot => Node::Dot,
            TokenKind::KeywordNil => Node::Nil,
            TokenKind::Variable => {
                if let Some((_, slot)) = self.lookup(&token.text) {
                    Node::Variable { slot: *slot, name: token.text.clone().into(), fields: Box::default() }
                } else {
                    let name = strconv::quoted(&token.text);
                    return self.error(format!("undefined variable {name}"));
                }
            }
            TokenKind::Field => Node::Field([Text::from(&token.text[1..])].into()),
            TokenKind::Bool => Node::Bool(token.text == "true"),
            TokenKind::CharConstant | TokenKind::Complex | TokenKind::Number => {
                match number(&token.text, token.kind) {
                    Ok(number) => Node::Number(number),
                    Err(message) => return self.error(message),
                }
            }
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
            TokenKind::String | TokenKind::RawString => match strconv::unquote(&token.text) {
                Some(text) => Node::String { quoted: token.text.clone().into(), text: text.into() },
                None => return self.error("invalid syntax"),
            },
            _ => {
                self.backup();
                return Ok(None);
            }
        };
        Ok(Some(self.state.push(node, token.position)))
    }
}

#[expect(clippy::float_cmp, reason = "whether a float is exactly an integer")]
fn number(text: &str, kind: TokenKind) -> Result<Number, String> {
    let mut number = Number { text: text.into(), int: None, uint: None, float: None, ideal_float: false };
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
