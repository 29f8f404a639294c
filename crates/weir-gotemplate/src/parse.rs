//! Compiles template text: parsing, resolving variables to slots and names to functions.

mod pipeline;

use std::collections::HashSet;
use std::rc::Rc;

use crate::error::ParseError;
use crate::functions::Functions;
use crate::lex::{Lexer, Token, TokenKind};
use crate::strconv;
use crate::text::Text;
use crate::tree::{Body, Declared, Node, NodeId, Number, Span, Tree};

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
        tokens: Vec::new(),
        cursor: 0,
        seen: 0,
        latest: None,
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

    fn push(&mut self, node: Node, position: u32) -> NodeId {
        self.nodes.push(node);
        self.positions.push(position);
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
    /// The variables in scope and their slots.
    variables: Vec<(&'a str, Option<u32>)>,
    slots_used: u32,
    slots_max: u32,
    /// Where the action at hand starts.
    action: Option<u32>,
    range_level: usize,
    paren_level: usize,
    root: NodeId,
    empty: bool,
}

impl Default for State<'_> {
    fn default() -> Self {
        Self {
            variables: vec![("$", Some(0))],
            slots_used: 1,
            slots_max: 1,
            action: None,
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
    Else { position: u32 },
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
    /// The tokens of the text and action at hand, the next one to read, and how many have been looked at.
    tokens: Vec<Token<'a>>,
    cursor: usize,
    seen: usize,
    /// Where the latest token starts that this definition has looked at: the place errors name.
    latest: Option<u32>,
    state: State<'a>,
    /// Instructions of lists that are not complete yet.
    pending: Vec<NodeId>,
    control_level: usize,
}

type Parsed<T> = Result<T, ParseError>;

/// Where a token stands in the source.
fn span(token: &Token<'_>) -> Span {
    Span { start: token.position, len: token.text.len() as u32 }
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

    /// The line at a position, counted from 1; 0 where there is no position.
    fn line(&self, position: Option<u32>) -> usize {
        position.map_or(0, |position| {
            let before = &self.source.as_bytes()[..position as usize];
            1 + memchr::memchr_iter(b'\n', before).count()
        })
    }

    fn error<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(ParseError { name: self.name.to_string(), line: self.line(self.latest), message: message.into() })
    }

    /// The next token, which stays the next one.
    #[inline]
    fn peek(&mut self) -> Token<'a> {
        if self.cursor == self.tokens.len() {
            self.tokens.clear();
            self.lexer.fill(&mut self.tokens);
            (self.cursor, self.seen) = (0, 0);
        }
        let token = self.tokens[self.cursor];
        if self.cursor >= self.seen {
            self.seen = self.cursor + 1;
            self.latest = Some(token.position);
        }
        token
    }

    #[inline]
    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.cursor += 1;
        token
    }

    /// Goes back by one token. Those of one action stay until all of them have been read.
    #[inline]
    fn backup(&mut self) {
        self.cursor -= 1;
    }

    #[inline]
    fn peek_kind(&mut self) -> TokenKind {
        self.peek().kind
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
            let line = self.line(self.state.action);
            if line != 0 && line != self.line(Some(token.position)) {
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
    fn add(&mut self, tree: Finished) -> Parsed<()> {
        if let Some(position) = self.trees.iter().position(|other| other.name == tree.name) {
            if self.trees[position].empty {
                self.trees[position] = tree;
            } else if !tree.empty {
                let name = String::from_utf8_lossy(&strconv::quote(&tree.name, false)).into_owned();
                return self.error(format!("template: multiple definition of template {name}"));
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
        self.add(main)
    }

    fn top_level(&mut self) -> Parsed<()> {
        let position = self.peek().position;
        let from = self.pending.len();
        while self.peek_kind() != TokenKind::End {
            if self.peek_kind() == TokenKind::LeftDelimiter {
                let delimiter = self.cursor;
                self.next();
                if self.next_non_space().kind == TokenKind::KeywordDefine {
                    let outer = self.begin();
                    self.definition()?;
                    self.finish(outer);
                    continue;
                }
                self.cursor = delimiter;
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
    fn begin(&mut self) -> (State<'a>, Option<u32>) {
        (std::mem::take(&mut self.state), self.latest.take())
    }

    /// Goes on with the definition around the one that has ended.
    fn finish(&mut self, outer: (State<'a>, Option<u32>)) {
        (self.state, self.latest) = outer;
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
        let tree = self.finished(name);
        self.add(tree)
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
                self.state.action = Some(token.position);
                let item = self.action();
                if item.is_ok() {
                    self.state.action = None;
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
                return Ok(Item::Ending(Ending::Else { position }));
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
        let position = self.tables.positions[pipe as usize];
        let range = word == "range";
        self.state.range_level += usize::from(range);
        let (list, ending) = self.item_list()?;
        self.state.range_level -= usize::from(range);
        let otherwise = match ending {
            Ending::End => None,
            Ending::Else { position } => {
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
                    Some(self.tables.push(Node::List(nodes), position))
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
}
