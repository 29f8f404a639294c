//! Compiles template text: parsing, resolving variables to slots and names to functions.

use std::collections::HashSet;
use std::rc::Rc;

use crate::error::ParseError;
use crate::functions::Functions;
use crate::lex::{Lexer, Token, TokenKind};
use crate::strconv;
use crate::text::Text;
use crate::tree::{Body, Declared, Node, NodeId, Number, Span, Tree};

/// How deeply parentheses may be nested within one action, in levels.
const PAREN_LEVELS_MAX: usize = 10_000;
/// How deeply control structures may be nested, in levels.
const CONTROL_LEVELS_MAX: usize = 10_000;

/// Longer texts are not looked up among those already known.
const SHARED_TEXT_BYTES_MAX: usize = 64;

/// Names and short literals, each kept once for all templates of a set, and memory to parse in.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashSet<Text, foldhash::fast::RandomState>,
    spare: Tables,
}

impl Clone for Names {
    fn clone(&self) -> Self {
        Self { known: self.known.clone(), spare: Tables::default() }
    }
}

impl Names {
    fn get(&mut self, text: &[u8]) -> Text {
        if text.len() > SHARED_TEXT_BYTES_MAX {
            return Text::from(text);
        }
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let new = Text::from(text);
        self.known.insert(new.clone());
        new
    }
}

/// Compiles `source`; the first tree is the text itself, the others are its definitions. A name is
/// defined at most once; an empty definition gives way to one that is not.
pub(crate) fn parse(
    name: &str,
    source: &str,
    functions: &Functions,
    names: &mut Names,
) -> Result<Vec<Tree>, ParseError> {
    let tables = std::mem::take(&mut names.spare);
    let mut parser = Parser {
        lexer: Lexer::new(source),
        name,
        source,
        functions,
        names,
        trees: Vec::new(),
        tables,
        state: State::default(),
        pending: Vec::new(),
        control_level: 0,
    };
    let parsed = parser.text();
    let Parser { mut trees, mut tables, .. } = parser;
    if let Err(error) = parsed {
        tables.clear();
        names.spare = tables;
        return Err(error);
    }
    let body = Rc::new(tables.take(name, source));
    names.spare = tables;
    let main = trees.iter().position(|tree| &*tree.name == name.as_bytes());
    if let Some(main) = main {
        trees.swap(0, main);
    }
    let tree = |tree: Finished| Tree {
        name: tree.name,
        body: Rc::clone(&body),
        root: tree.root,
        slots: tree.slots,
        empty: tree.empty,
    };
    Ok(trees.into_iter().map(tree).collect())
}

/// A definition that has been parsed.
struct Finished {
    name: Text,
    root: NodeId,
    slots: u32,
    empty: bool,
}

/// The tables of a body while it grows; used again for the next.
#[derive(Debug, Default)]
struct Tables {
    nodes: Vec<Node>,
    positions: Vec<u32>,
    children: Vec<NodeId>,
    texts: Vec<Text>,
    numbers: Vec<Number>,
    declared: Vec<Declared>,
}

impl Tables {
    fn clear(&mut self) {
        self.nodes.clear();
        self.positions.clear();
        self.children.clear();
        self.texts.clear();
        self.numbers.clear();
        self.declared.clear();
    }

    /// The body, its tables exactly as large as needed.
    fn take(&mut self, name: &str, source: &str) -> Body {
        let body = Body {
            parse_name: Rc::from(name),
            source: Rc::from(source),
            nodes: Box::from(self.nodes.as_slice()),
            positions: Box::from(self.positions.as_slice()),
            children: Box::from(self.children.as_slice()),
            texts: self.texts.drain(..).collect(),
            numbers: Box::from(self.numbers.as_slice()),
            declared: Box::from(self.declared.as_slice()),
        };
        self.clear();
        body
    }

    fn push(&mut self, node: Node, position: usize) -> NodeId {
        self.nodes.push(node);
        self.positions.push(position as u32);
        (self.nodes.len() - 1) as NodeId
    }

    /// Adds a text to the table.
    fn text(&mut self, text: Text) -> u32 {
        self.texts.push(text);
        (self.texts.len() - 1) as u32
    }

    fn number(&mut self, number: Number) -> u32 {
        self.numbers.push(number);
        (self.numbers.len() - 1) as u32
    }

    fn is_empty_node(&self, id: NodeId, source: &str) -> bool {
        match &self.nodes[id as usize] {
            Node::Text(text) => source[text.start as usize..][..text.len as usize].trim().is_empty(),
            Node::List(nodes) => self.children[nodes.start as usize..][..nodes.len as usize]
                .iter()
                .all(|node| self.is_empty_node(*node, source)),
            _ => false,
        }
    }
}

/// What belongs to the definition being parsed.
struct State<'a> {
    tokens: [Token<'a>; 3],
    peeked: usize,
    /// The variables in scope and their slots.
    variables: Vec<(&'a str, Option<u32>)>,
    slots_used: u32,
    slots_max: u32,
    action_line: usize,
    range_level: usize,
    paren_level: usize,
    root: NodeId,
    empty: bool,
}

impl Default for State<'_> {
    fn default() -> Self {
        Self {
            tokens: [Token::none(), Token::none(), Token::none()],
            peeked: 0,
            variables: vec![("$", Some(0))],
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
    name: &'a str,
    source: &'a str,
    functions: &'a Functions,
    names: &'a mut Names,
    trees: Vec<Finished>,
    tables: Tables,
    state: State<'a>,
    /// Instructions of lists that are not complete yet.
    pending: Vec<NodeId>,
    control_level: usize,
}

type Parsed<T> = Result<T, ParseError>;

/// Where a token stands in the source.
fn span(token: &Token<'_>) -> Span {
    Span { start: token.position as u32, len: token.text.len() as u32 }
}

impl<'a> Parser<'a> {
    /// Makes a list of the instructions collected since `from`.
    fn list_since(&mut self, from: usize) -> Span {
        let start = self.tables.children.len() as u32;
        self.tables.children.extend_from_slice(&self.pending[from..]);
        let len = (self.pending.len() - from) as u32;
        self.pending.truncate(from);
        Span { start, len }
    }

    fn error<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(ParseError {
            name: self.name.to_string(),
            line: self.state.tokens[0].line,
            message: message.into(),
        })
    }

    fn next(&mut self) -> Token<'a> {
        let state = &mut self.state;
        if state.peeked > 0 {
            state.peeked -= 1;
        } else {
            state.tokens[0] = self.lexer.next_token();
        }
        state.tokens[state.peeked]
    }

    fn backup(&mut self) {
        self.state.peeked += 1;
    }

    /// Backs up two tokens; the zeroth is already there.
    fn backup2(&mut self, token: Token<'a>) {
        self.state.tokens[1] = token;
        self.state.peeked = 2;
    }

    /// Backs up three tokens, given in reverse order; the zeroth is already there.
    fn backup3(&mut self, second: Token<'a>, first: Token<'a>) {
        self.state.tokens[1] = first;
        self.state.tokens[2] = second;
        self.state.peeked = 3;
    }

    fn peek(&mut self) -> Token<'a> {
        let state = &mut self.state;
        if state.peeked > 0 {
            return state.tokens[state.peeked - 1];
        }
        state.peeked = 1;
        state.tokens[0] = self.lexer.next_token();
        state.tokens[0]
    }

    fn peek_kind(&mut self) -> TokenKind {
        let state = &mut self.state;
        if state.peeked == 0 {
            state.peeked = 1;
            state.tokens[0] = self.lexer.next_token();
        }
        state.tokens[state.peeked - 1].kind
    }

    fn next_non_space(&mut self) -> Token<'a> {
        loop {
            let token = self.next();
            if token.kind != TokenKind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> Token<'a> {
        let token = self.next_non_space();
        self.backup();
        token
    }

    fn unexpected<T>(&self, token: &Token<'_>, context: &str) -> Parsed<T> {
        if token.kind == TokenKind::Error {
            let mut extra = String::new();
            let line = self.state.action_line;
            if line != 0 && line != token.line {
                let verb = if self.lexer.problem().ends_with(" action") { "" } else { " in action" };
                extra = format!("{verb} started at {}:{line}", self.name);
            }
            return self.error(format!("{}{extra}", self.lexer.problem()));
        }
        self.error(format!("unexpected {} in {context}", token.describe()))
    }

    fn expect(&mut self, kind: TokenKind, context: &str) -> Parsed<Token<'a>> {
        let token = self.next_non_space();
        if token.kind == kind { Ok(token) } else { self.unexpected(&token, context) }
    }

    /// Takes a finished definition in.
    fn add(&mut self, tree: Finished, line: usize) -> Parsed<()> {
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

    fn finished(&self, name: Text) -> Finished {
        Finished { name, root: self.state.root, slots: self.state.slots_max, empty: self.state.empty }
    }

    /// The text as a whole.
    fn text(&mut self) -> Parsed<()> {
        self.top_level()?;
        let main = self.finished(Text::from(self.name));
        let line = self.state.tokens[0].line;
        self.add(main, line)
    }

    fn top_level(&mut self) -> Parsed<()> {
        let position = self.peek().position;
        let from = self.pending.len();
        while self.peek_kind() != TokenKind::End {
            if self.peek_kind() == TokenKind::LeftDelimiter {
                let delimiter = self.next();
                if self.next_non_space().kind == TokenKind::KeywordDefine {
                    let outer = self.begin();
                    self.definition()?;
                    self.finish(outer);
                    continue;
                }
                self.backup2(delimiter);
            }
            match self.text_or_action()? {
                Item::Node(node) => self.pending.push(node),
                Item::Ending(Ending::End) => return self.error("unexpected {{end}}"),
                Item::Ending(Ending::Else { .. }) => return self.error("unexpected {{else}}"),
            }
        }
        let nodes = self.list_since(from);
        self.state.root = self.tables.push(Node::List(nodes), position);
        self.state.empty = self.tables.is_empty_node(self.state.root, self.source);
        Ok(())
    }

    /// Begins a definition of its own; gives the state of the one around it.
    fn begin(&mut self) -> State<'a> {
        std::mem::take(&mut self.state)
    }

    /// Goes on with the definition around the one that has ended.
    fn finish(&mut self, outer: State<'a>) {
        self.state = outer;
    }

    fn definition(&mut self) -> Parsed<()> {
        let context = "define clause";
        let token = self.next_non_space();
        if !matches!(token.kind, TokenKind::String | TokenKind::RawString) {
            return self.unexpected(&token, context);
        }
        let Some(name) = strconv::unquote(token.text) else { return self.error("invalid syntax") };
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
        self.state.empty = self.tables.is_empty_node(root, self.source);
        let line = self.state.tokens[0].line;
        let tree = self.finished(name);
        self.add(tree, line)
    }

    fn item_list(&mut self) -> Parsed<(NodeId, Ending)> {
        let position = self.peek_non_space().position;
        let from = self.pending.len();
        while self.peek_non_space().kind != TokenKind::End {
            match self.text_or_action()? {
                Item::Node(node) => self.pending.push(node),
                Item::Ending(ending) => {
                    let nodes = self.list_since(from);
                    let list = self.tables.push(Node::List(nodes), position);
                    return Ok((list, ending));
                }
            }
        }
        self.error("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Parsed<Item> {
        let token = self.next_non_space();
        match token.kind {
            TokenKind::Text => Ok(Item::Node(self.tables.push(Node::Text(span(&token)), token.position))),
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
                self.tables.push(Node::Action(pipe), position)
            }
        };
        Ok(Item::Node(node))
    }

    fn jump(&mut self, token: &Token<'_>, node: Node, word: &str) -> Parsed<NodeId> {
        let next = self.next_non_space();
        if next.kind != TokenKind::RightDelimiter {
            return self.unexpected(&next, &format!("{{{{{word}}}}}"));
        }
        if self.state.range_level == 0 {
            return self.error(format!("{{{{{word}}}}} outside {{{{range}}}}"));
        }
        Ok(self.tables.push(node, token.position))
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
        let position = self.tables.positions[pipe as usize] as usize;
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
                    self.pending.push(inner);
                    let nodes = self.list_since(self.pending.len() - 1);
                    Some(self.tables.push(Node::List(nodes), line_position))
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
        Ok(self.tables.push(node, position))
    }

    fn template_name(&mut self, token: &Token<'_>, context: &str) -> Parsed<Text> {
        match token.kind {
            TokenKind::String | TokenKind::RawString => match strconv::unquote(token.text) {
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
        let name = self.tables.text(name);
        Ok(self.tables.push(Node::Template { name, pipe }, token.position))
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
        let outer = self.begin();
        stacker::maybe_grow(crate::STACK_RED_ZONE_BYTES, crate::STACK_SEGMENT_BYTES, || {
            self.body(name.clone(), context)
        })?;
        self.control_level -= 1;
        self.finish(outer);
        let name = self.tables.text(name);
        Ok(self.tables.push(Node::Template { name, pipe: Some(pipe) }, token.position))
    }

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
            self.tables.positions[node as usize] = position as u32;
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
