//! Tokens to events: the grammar of the Go YAML libraries as a pull parser without recursion.
//!
//! For those who need more than [`crate::read_documents`] gives: styles, tags, anchors, order, duplicate keys, positions.

use std::borrow::Cow;

use crate::decode::check_text;
use crate::error::{Error, ErrorKind};
use crate::node::Comments;
use crate::scan::{DEPTH_MAX, Dialect, Mark, ScalarStyle, Scanner, Token, TokenKind};

/// The namespace of the tags written `!!int`, `!!str` and so on.
pub(crate) const CORE_TAG_PREFIX: &str = "tag:yaml.org,2002:";

/// A step through a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind<'a> {
    /// After the last document.
    StreamEnd,
    /// Before the one node of a document.
    DocumentStart,
    /// After the one node of a document.
    DocumentEnd,
    /// `*name`
    Alias(&'a str),
    /// A leaf. `implicit` is set when its text decides what it means: no quotes and no tag, or the tag `!`.
    Scalar {
        /// Anchor and tag.
        properties: Properties<'a>,
        /// The text, escapes and folding undone.
        value: Cow<'a, str>,
        /// How it is written.
        style: ScalarStyle,
        /// Whether the text decides what it means.
        implicit: bool,
    },
    /// Items follow.
    SequenceStart {
        /// Anchor and tag.
        properties: Properties<'a>,
        /// Written `[…]`.
        flow: bool,
    },
    /// No more items.
    SequenceEnd,
    /// Keys and values follow in turn.
    MappingStart {
        /// Anchor and tag.
        properties: Properties<'a>,
        /// Written `{…}`.
        flow: bool,
    },
    /// No more keys.
    MappingEnd,
}

/// What may stand before a node: an anchor and a tag in its long form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties<'a> {
    /// The name behind `&`.
    pub anchor: Option<&'a str>,
    /// The tag in its long form, such as `tag:yaml.org,2002:str` for `!!str`.
    pub tag: Option<Cow<'a, str>>,
}

/// A step through a text and where it is. The start of a node is that of its anchor or tag, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// What happens.
    pub kind: EventKind<'a>,
    /// Where the node or indicator starts.
    pub start: Mark,
    /// Where it ends; for block scalars this is behind the line breaks that follow them.
    pub end: Mark,
    /// The comments that belong to it, for a parser that was told to look for them.
    pub comments: Option<Box<Comments>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    ImplicitDocumentStart,
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockSequenceEntry { first: bool },
    IndentlessSequenceEntry,
    BlockMappingKey { first: bool },
    BlockMappingValue,
    FlowSequenceEntry { first: bool },
    FlowPairKey,
    FlowPairValue,
    FlowPairEnd,
    FlowMappingKey { first: bool },
    FlowMappingValue { empty: bool },
    End,
}

/// Reads a text event by event.
///
/// Depth is bounded by 1000 levels; aliases are not resolved, so bounding their expansion is the caller's duty.
pub struct Parser<'a> {
    scanner: Scanner<'a>,
    dialect: Dialect,
    state: State,
    states: Vec<State>,
    marks: Vec<Mark>,
    tag_directives: Vec<(&'a str, Cow<'a, str>)>,
    depth: usize,
    /// Why the text cannot be parsed at all.
    refused: Option<Error>,
    /// Comments whose node has not been seen yet.
    comments: Comments,
    /// Comments before the sign of an item that is itself a block.
    stem: String,
}

type Parsed<T> = Result<T, Error>;

impl<'a> Parser<'a> {
    /// A parser at the start of `text`.
    ///
    /// A byte order mark at the start is skipped. Forbidden characters anywhere make the first event an error.
    pub fn new(text: &'a str, dialect: Dialect) -> Self {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let refused = check_text(text).err();
        Self { refused, ..Self::new_unchecked(text, dialect) }
    }

    /// A parser for a text that [`check_text`] has found acceptable.
    pub(crate) fn new_unchecked(text: &'a str, dialect: Dialect) -> Self {
        Self {
            scanner: Scanner::new(text, dialect),
            dialect,
            state: State::ImplicitDocumentStart,
            states: Vec::new(),
            marks: Vec::new(),
            tag_directives: Vec::new(),
            depth: 0,
            refused: None,
            comments: Comments::default(),
            stem: String::new(),
        }
    }

    /// Tells the parser to attach comments to events.
    #[must_use]
    pub fn with_comments(mut self) -> Self {
        self.scanner.log_comments();
        self
    }

    /// An error about `mark`, its column counted in characters.
    pub(crate) fn error_at(&self, kind: ErrorKind, problem: impl Into<String>, mark: Mark) -> Error {
        let (line, column) = self.position(mark);
        Error::new(kind, problem).at(line, column)
    }

    /// Line and column in characters, counted from 1.
    pub fn position(&self, mark: Mark) -> (usize, usize) {
        let offset = mark.offset as usize;
        let line = self.scanner.text().get(offset.saturating_sub(mark.column as usize)..offset);
        let column = line.map_or(mark.column as usize, |line| line.chars().count());
        (mark.line as usize + 1, column + 1)
    }

    fn syntax_error(&self, problem: &str, mark: Mark, context: Option<Mark>) -> Error {
        let context = context.map_or(0, |context| context.line as usize);
        let reference = self.dialect.reference_line(mark.line as usize, context);
        self.error_at(ErrorKind::Syntax, problem, mark).reference_line(reference)
    }

    /// The next event; after the last one it is `StreamEnd` for ever.
    ///
    /// # Errors
    /// The first mistake in the text. Do not go on after an error.
    #[expect(clippy::should_implement_trait, reason = "an iterator would have to end, or repeat errors")]
    pub fn next(&mut self) -> Result<Event<'a>, Error> {
        if let Some(error) = self.refused.take() {
            self.state = State::End;
            return Err(error);
        }
        match self.state {
            State::End => {
                let mark = Mark::default();
                Ok(Event { kind: EventKind::StreamEnd, start: mark, end: mark, comments: None })
            }
            State::ImplicitDocumentStart => self.document_start(true),
            State::DocumentStart => self.document_start(false),
            State::DocumentContent => self.document_content(),
            State::DocumentEnd => self.document_end(),
            State::BlockNode => self.node(true, false),
            State::BlockSequenceEntry { first } => self.block_sequence_entry(first),
            State::IndentlessSequenceEntry => self.indentless_sequence_entry(),
            State::BlockMappingKey { first } => self.block_mapping_key(first),
            State::BlockMappingValue => self.block_mapping_value(),
            State::FlowSequenceEntry { first } => self.flow_sequence_entry(first),
            State::FlowPairKey => self.flow_pair_key(),
            State::FlowPairValue => self.flow_pair_value(),
            State::FlowPairEnd => self.flow_pair_end(),
            State::FlowMappingKey { first } => self.flow_mapping_key(first),
            State::FlowMappingValue { empty } => self.flow_mapping_value(empty),
        }
    }

    #[inline]
    fn peek(&mut self) -> Parsed<&Token<'a>> {
        self.scanner.peek()?;
        self.scanner.take_comments(&mut self.comments);
        self.scanner.peek()
    }

    fn take(&mut self) -> Parsed<Token<'a>> {
        self.peek()?;
        self.scanner.take()
    }

    /// The comments collected so far, for the node at hand.
    fn own_comments(&mut self) -> Option<Box<Comments>> {
        self.stem.clear();
        if self.comments == Comments::default() {
            return None;
        }
        Some(Box::new(std::mem::take(&mut self.comments)))
    }

    /// The comment before the sign of the item that the node at hand is.
    fn stem_comment(&mut self) -> Option<Box<Comments>> {
        if self.stem.is_empty() {
            return None;
        }
        Some(Box::new(Comments { head: std::mem::take(&mut self.stem), ..Comments::default() }))
    }

    /// Parts the comments before the sign of an item, `length` bytes, from those behind it, if the item is a block.
    fn split_stem(&mut self, length: usize) -> Parsed<()> {
        if length == 0
            || !matches!(self.peek()?.kind, TokenKind::BlockSequenceStart | TokenKind::BlockMappingStart)
        {
            return Ok(());
        }
        let rest = self.comments.head.split_off(length);
        self.stem =
            std::mem::replace(&mut self.comments.head, rest.strip_prefix('\n').unwrap_or(&rest).to_owned());
        Ok(())
    }

    // --- documents ---------------------------------------------------------------------------------------------------

    fn document_start(&mut self, implicit: bool) -> Parsed<Event<'a>> {
        if !implicit {
            while self.peek()?.kind == TokenKind::DocumentEnd {
                self.take()?;
            }
        }
        let token = self.peek()?;
        let (start, end) = (token.start, token.end);
        match token.kind {
            TokenKind::StreamEnd => {
                self.state = State::End;
                Ok(Event { kind: EventKind::StreamEnd, start, end, comments: None })
            }
            TokenKind::VersionDirective { .. }
            | TokenKind::TagDirective { .. }
            | TokenKind::DocumentStart => self.explicit_document_start(start),
            _ if implicit => {
                self.process_directives()?;
                self.states.push(State::DocumentEnd);
                self.state = State::BlockNode;
                let comments = self.document_comment();
                Ok(Event { kind: EventKind::DocumentStart, start, end, comments })
            }
            _ => self.explicit_document_start(start),
        }
    }

    /// The comments before the last empty line before the first node.
    fn document_comment(&mut self) -> Option<Box<Comments>> {
        let head = &self.comments.head;
        let bytes = head.as_bytes();
        let last = bytes.len().checked_sub(1)?;
        let end =
            (1..=last).rev().find(|&at| bytes[at] == b'\n' && (at == last || bytes[at - 1] == b'\n'))?;
        let rest = head.get(end + 1..).unwrap_or_default().to_owned();
        let mut head = std::mem::replace(&mut self.comments.head, rest);
        head.truncate(if end == last { end } else { end - 1 });
        (!head.is_empty()).then(|| Box::new(Comments { head, ..Comments::default() }))
    }

    fn explicit_document_start(&mut self, start: Mark) -> Parsed<Event<'a>> {
        self.process_directives()?;
        let token = self.peek()?;
        if token.kind != TokenKind::DocumentStart {
            let mark = token.start;
            return Err(self.syntax_error("did not find expected <document start>", mark, None));
        }
        self.states.push(State::DocumentEnd);
        self.state = State::DocumentContent;
        let end = self.take()?.end;
        Ok(Event { kind: EventKind::DocumentStart, start, end, comments: None })
    }

    fn document_content(&mut self) -> Parsed<Event<'a>> {
        let token = self.peek()?;
        match token.kind {
            TokenKind::VersionDirective { .. }
            | TokenKind::TagDirective { .. }
            | TokenKind::DocumentStart
            | TokenKind::DocumentEnd
            | TokenKind::StreamEnd => {
                let mark = token.start;
                self.pop_state();
                Ok(empty_scalar(mark))
            }
            _ => self.node(true, false),
        }
    }

    fn document_end(&mut self) -> Parsed<Event<'a>> {
        let token = self.peek()?;
        let start = token.start;
        let mut end = token.start;
        if token.kind == TokenKind::DocumentEnd {
            end = self.take()?.end;
        }
        self.tag_directives.clear();
        self.state = State::DocumentStart;
        let mut comments = self.own_comments();
        if let Some(comments) = &mut comments
            && comments.foot.is_empty()
        {
            comments.foot = std::mem::take(&mut comments.head);
        }
        Ok(Event { kind: EventKind::DocumentEnd, start, end, comments })
    }

    fn process_directives(&mut self) -> Parsed<()> {
        let mut version_seen = false;
        loop {
            self.peek()?;
            let token = self.scanner.peek()?;
            let mark = token.start;
            match &token.kind {
                TokenKind::VersionDirective { major, minor } => {
                    // The newer library refuses 1.2 as well.
                    let supported = (*major, *minor) == (1, 1);
                    if version_seen {
                        return Err(self.syntax_error("found duplicate %YAML directive", mark, None));
                    }
                    if !supported {
                        return Err(self.syntax_error("found incompatible YAML document", mark, None));
                    }
                    version_seen = true;
                }
                TokenKind::TagDirective { handle, prefix } => {
                    if self.tag_directives.iter().any(|(known, _)| known == handle) {
                        return Err(self.syntax_error("found duplicate %TAG directive", mark, None));
                    }
                    let directive = (*handle, prefix.clone());
                    self.tag_directives.push(directive);
                }
                _ => break,
            }
            self.take()?;
        }
        for (handle, prefix) in [("!", "!"), ("!!", CORE_TAG_PREFIX)] {
            if !self.tag_directives.iter().any(|(known, _)| *known == handle) {
                self.tag_directives.push((handle, Cow::Borrowed(prefix)));
            }
        }
        Ok(())
    }

    // --- nodes -------------------------------------------------------------------------------------------------------

    fn pop_state(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
    }

    fn node(&mut self, block: bool, indentless_sequence: bool) -> Parsed<Event<'a>> {
        let token = self.peek()?;
        if let TokenKind::Alias(name) = token.kind {
            let (start, end) = (token.start, token.end);
            let comments = self.own_comments();
            self.take()?;
            self.pop_state();
            return Ok(Event { kind: EventKind::Alias(name), start, end, comments });
        }
        let mut start = token.start;
        let mut end = token.start;
        let mut properties = Properties::default();
        if matches!(token.kind, TokenKind::Anchor(_) | TokenKind::Tag { .. }) {
            (properties, end) = self.properties(start)?;
        }
        let token = self.peek()?;
        let token_start = token.start;
        let has_properties = properties != Properties::default();
        if !has_properties {
            start = token_start;
        }
        match token.kind {
            TokenKind::BlockEntry if indentless_sequence => {
                let end = token.end;
                self.open(State::IndentlessSequenceEntry, start)?;
                Ok(Event {
                    kind: EventKind::SequenceStart { properties, flow: false },
                    start,
                    end,
                    comments: None,
                })
            }
            TokenKind::Scalar { .. } => {
                let comments = self.own_comments();
                let token = self.take()?;
                self.pop_state();
                Ok(Event { comments, ..scalar_event(properties, token, start) })
            }
            TokenKind::FlowSequenceStart => {
                let end = token.end;
                self.open(State::FlowSequenceEntry { first: true }, start)?;
                let comments = self.own_comments();
                Ok(Event { kind: EventKind::SequenceStart { properties, flow: true }, start, end, comments })
            }
            TokenKind::FlowMappingStart => {
                let end = token.end;
                self.open(State::FlowMappingKey { first: true }, start)?;
                let comments = self.own_comments();
                Ok(Event { kind: EventKind::MappingStart { properties, flow: true }, start, end, comments })
            }
            TokenKind::BlockSequenceStart if block => {
                let end = token.end;
                self.open(State::BlockSequenceEntry { first: true }, start)?;
                let comments = self.stem_comment();
                Ok(Event { kind: EventKind::SequenceStart { properties, flow: false }, start, end, comments })
            }
            TokenKind::BlockMappingStart if block => {
                let end = token.end;
                self.open(State::BlockMappingKey { first: true }, start)?;
                let comments = self.stem_comment();
                Ok(Event { kind: EventKind::MappingStart { properties, flow: false }, start, end, comments })
            }
            _ if has_properties => {
                let implicit = properties.tag.is_none();
                self.pop_state();
                let kind = EventKind::Scalar {
                    properties,
                    value: Cow::Borrowed(""),
                    style: ScalarStyle::Plain,
                    implicit,
                };
                Ok(Event { kind, start, end, comments: None })
            }
            _ => Err(self.syntax_error("did not find expected node content", token_start, Some(start))),
        }
    }

    fn open(&mut self, state: State, start: Mark) -> Parsed<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error_at(ErrorKind::Limit, format!("exceeded max depth of {DEPTH_MAX}"), start));
        }
        self.state = state;
        Ok(())
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.pop_state();
    }

    /// An anchor and a tag in either order, each at most once.
    fn properties(&mut self, start: Mark) -> Parsed<(Properties<'a>, Mark)> {
        let mut properties = Properties::default();
        let mut tag = None;
        let mut end = start;
        loop {
            let token = self.peek()?;
            match &token.kind {
                TokenKind::Anchor(name) if properties.anchor.is_none() => {
                    properties.anchor = Some(name);
                }
                TokenKind::Tag { .. } if tag.is_none() => {
                    let token = self.take()?;
                    end = token.end;
                    tag = Some(token);
                    continue;
                }
                _ => break,
            }
            end = token.end;
            self.take()?;
        }
        // A mistake in the token behind the tag comes before one in the tag.
        if let Some(tag) = tag {
            properties.tag = Some(self.resolve_tag(tag, start)?);
        }
        Ok((properties, end))
    }

    fn resolve_tag(&self, token: Token<'a>, start: Mark) -> Parsed<Cow<'a, str>> {
        let TokenKind::Tag { handle, suffix } = token.kind else {
            return Ok(Cow::Borrowed(""));
        };
        if handle.is_empty() {
            return Ok(suffix);
        }
        match self.tag_directives.iter().find(|(known, _)| *known == handle) {
            Some((_, prefix)) if !(prefix.is_empty() && suffix.is_empty()) => {
                Ok(Cow::Owned(format!("{prefix}{suffix}")))
            }
            _ => Err(self.syntax_error("found undefined tag handle", token.start, Some(start))),
        }
    }

    // --- block collections -------------------------------------------------------------------------------------------

    /// Takes the token that opened a collection and remembers its place for errors.
    fn enter(&mut self) -> Parsed<()> {
        let token = self.take()?;
        self.marks.push(token.start);
        Ok(())
    }

    /// Goes on with a node, and with `next` after it.
    fn node_then(&mut self, next: State, block: bool, indentless_sequence: bool) -> Parsed<Event<'a>> {
        self.states.push(next);
        self.node(block, indentless_sequence)
    }

    fn empty_then(&mut self, next: State, mark: Mark) -> Event<'a> {
        self.state = next;
        empty_scalar(mark)
    }

    fn end_collection(&mut self, kind: EventKind<'a>, comments: Option<Box<Comments>>) -> Parsed<Event<'a>> {
        self.close();
        self.marks.pop();
        let token = self.take()?;
        Ok(Event { kind, start: token.start, end: token.end, comments })
    }

    fn collection_error(&mut self, problem: &str, mark: Mark) -> Error {
        let context = self.marks.pop();
        self.syntax_error(problem, mark, context)
    }

    fn block_sequence_entry(&mut self, first: bool) -> Parsed<Event<'a>> {
        if first {
            self.enter()?;
        }
        let token = self.peek()?;
        match token.kind {
            TokenKind::BlockEntry => {
                let mark = token.end;
                let stem = self.comments.head.len();
                self.take()?;
                self.split_stem(stem)?;
                let next = State::BlockSequenceEntry { first: false };
                match self.peek()?.kind {
                    TokenKind::BlockEntry | TokenKind::BlockEnd => Ok(self.empty_then(next, mark)),
                    _ => self.node_then(next, true, false),
                }
            }
            TokenKind::BlockEnd => self.end_collection(EventKind::SequenceEnd, None),
            _ => {
                let mark = token.start;
                Err(self.collection_error("did not find expected '-' indicator", mark))
            }
        }
    }

    fn indentless_sequence_entry(&mut self) -> Parsed<Event<'a>> {
        let token = self.peek()?;
        if token.kind == TokenKind::BlockEntry {
            let mark = token.end;
            let stem = self.comments.head.len();
            self.take()?;
            self.split_stem(stem)?;
            let next = State::IndentlessSequenceEntry;
            return match self.peek()?.kind {
                TokenKind::BlockEntry | TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => {
                    Ok(self.empty_then(next, mark))
                }
                _ => self.node_then(next, true, false),
            };
        }
        let mark = token.start;
        self.close();
        Ok(Event { kind: EventKind::SequenceEnd, start: mark, end: mark, comments: None })
    }

    fn block_mapping_key(&mut self, first: bool) -> Parsed<Event<'a>> {
        if first {
            self.enter()?;
        }
        let token = self.peek()?;
        match token.kind {
            TokenKind::Key => {
                let mark = token.end;
                self.take()?;
                let next = State::BlockMappingValue;
                match self.peek()?.kind {
                    TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => {
                        Ok(self.empty_then(next, mark))
                    }
                    _ => self.node_then(next, true, true),
                }
            }
            TokenKind::BlockEnd => {
                let comments = self.own_comments();
                self.end_collection(EventKind::MappingEnd, comments)
            }
            _ => {
                let mark = token.start;
                Err(self.collection_error("did not find expected key", mark))
            }
        }
    }

    fn block_mapping_value(&mut self) -> Parsed<Event<'a>> {
        let token = self.peek()?;
        let next = State::BlockMappingKey { first: false };
        if token.kind != TokenKind::Value {
            let mark = token.start;
            return Ok(self.empty_then(next, mark));
        }
        let mark = token.end;
        self.take()?;
        match self.peek()?.kind {
            TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => Ok(self.empty_then(next, mark)),
            _ => self.node_then(next, true, true),
        }
    }

    // --- flow collections --------------------------------------------------------------------------------------------

    fn flow_sequence_entry(&mut self, first: bool) -> Parsed<Event<'a>> {
        if first {
            self.enter()?;
        }
        if !first && self.peek()?.kind != TokenKind::FlowSequenceEnd {
            self.flow_entry("did not find expected ',' or ']'")?;
        }
        let token = self.peek()?;
        match token.kind {
            TokenKind::FlowSequenceEnd => {
                let comments = self.own_comments();
                self.end_collection(EventKind::SequenceEnd, comments)
            }
            TokenKind::Key => {
                let (start, end) = (token.start, token.end);
                self.take()?;
                self.states.push(State::FlowSequenceEntry { first: false });
                self.open(State::FlowPairKey, start)?;
                let kind = EventKind::MappingStart { properties: Properties::default(), flow: true };
                Ok(Event { kind, start, end, comments: None })
            }
            _ => self.node_then(State::FlowSequenceEntry { first: false }, false, false),
        }
    }

    fn flow_entry(&mut self, problem: &str) -> Parsed<()> {
        let token = self.peek()?;
        if token.kind == TokenKind::FlowEntry {
            self.take()?;
            return Ok(());
        }
        let mark = token.start;
        Err(self.collection_error(problem, mark))
    }

    fn flow_pair_key(&mut self) -> Parsed<Event<'a>> {
        let token = self.peek()?;
        match token.kind {
            TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowSequenceEnd => {
                // The Go libraries drop this token, so that `[? , a]` and `[? : a]` read as they do there.
                let mark = token.end;
                self.take()?;
                Ok(self.empty_then(State::FlowPairValue, mark))
            }
            _ => self.node_then(State::FlowPairValue, false, false),
        }
    }

    fn flow_pair_value(&mut self) -> Parsed<Event<'a>> {
        let mark = self.peek()?.start;
        if self.peek()?.kind == TokenKind::Value {
            self.take()?;
            let next = &self.peek()?.kind;
            if !matches!(next, TokenKind::FlowEntry | TokenKind::FlowSequenceEnd) {
                return self.node_then(State::FlowPairEnd, false, false);
            }
        }
        Ok(self.empty_then(State::FlowPairEnd, mark))
    }

    fn flow_pair_end(&mut self) -> Parsed<Event<'a>> {
        let mark = self.peek()?.start;
        self.close();
        Ok(Event { kind: EventKind::MappingEnd, start: mark, end: mark, comments: None })
    }

    fn flow_mapping_key(&mut self, first: bool) -> Parsed<Event<'a>> {
        if first {
            self.enter()?;
        }
        if !first && self.peek()?.kind != TokenKind::FlowMappingEnd {
            self.flow_entry("did not find expected ',' or '}'")?;
        }
        match self.peek()?.kind {
            TokenKind::FlowMappingEnd => {
                let comments = self.own_comments();
                self.end_collection(EventKind::MappingEnd, comments)
            }
            TokenKind::Key => {
                self.take()?;
                let next = State::FlowMappingValue { empty: false };
                let token = self.peek()?;
                match token.kind {
                    TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowMappingEnd => {
                        let mark = token.start;
                        Ok(self.empty_then(next, mark))
                    }
                    _ => self.node_then(next, false, false),
                }
            }
            _ => self.node_then(State::FlowMappingValue { empty: true }, false, false),
        }
    }

    fn flow_mapping_value(&mut self, empty: bool) -> Parsed<Event<'a>> {
        let next = State::FlowMappingKey { first: false };
        let mut mark = self.peek()?.start;
        if !empty && self.peek()?.kind == TokenKind::Value {
            self.take()?;
            let token = self.peek()?;
            if !matches!(token.kind, TokenKind::FlowEntry | TokenKind::FlowMappingEnd) {
                return self.node_then(next, false, false);
            }
            mark = token.start;
        }
        Ok(self.empty_then(next, mark))
    }
}

fn scalar_event<'a>(properties: Properties<'a>, token: Token<'a>, start: Mark) -> Event<'a> {
    let end = token.end;
    let (value, style) = match token.kind {
        TokenKind::Scalar { value, style } => (value, style),
        _ => (Cow::Borrowed(""), ScalarStyle::Plain),
    };
    let implicit = match properties.tag.as_deref() {
        None => style == ScalarStyle::Plain,
        Some(tag) => tag == "!",
    };
    Event { kind: EventKind::Scalar { properties, value, style, implicit }, start, end, comments: None }
}

fn empty_scalar<'a>(mark: Mark) -> Event<'a> {
    let kind = EventKind::Scalar {
        properties: Properties::default(),
        value: Cow::Borrowed(""),
        style: ScalarStyle::Plain,
        implicit: true,
    };
    Event { kind, start: mark, end: mark, comments: None }
}
