//! Characters to tokens, as the Go YAML libraries see them.
//!
//! Block structure becomes explicit tokens here (`BlockMappingStart` … `BlockEnd`), and a scalar that turns out to be a
//! key gets its `Key` token inserted before it once its `:` has been seen.

mod property;
mod scalar;

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::chars::{break_width, byte, is_break, is_white_or_end, line_end};
use crate::comments::{CommentLog, Surroundings};
use crate::error::{Error, ErrorKind};
use crate::node::Comments;

/// Block collections and flow collections each may nest this deep.
pub(crate) const DEPTH_MAX: usize = 1_000;

/// A key without `?` must end within this many characters.
const SIMPLE_KEY_CHARS_MAX: usize = 1024;

/// A place in the text: byte offset, line and byte column, all counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Bytes from the start of the text.
    pub offset: u32,
    /// Lines from the start of the text.
    pub line: u32,
    /// Bytes from the start of the line.
    pub column: u32,
}

/// Whose habits to follow: the Go library has two major versions in use that differ in small ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `go.yaml.in/yaml/v2`, used by `sigs.k8s.io/yaml`, kubectl, Helm and the API machinery.
    V2,
    /// `go.yaml.in/yaml/v3`, used by kustomize for resources.
    V3,
}

impl Dialect {
    /// How many tokens wait in the queue before the first is handed out; decides which of two mistakes is met first.
    fn lookahead(self) -> usize {
        match self {
            Self::V2 => 1,
            Self::V3 => 3,
        }
    }

    /// The line, counted from 0, that the library blames; none for the first one.
    pub(crate) fn reference_line(self, problem: usize, context: usize) -> Option<usize> {
        let (first, second) = match self {
            Self::V2 => (problem, context),
            Self::V3 => (context, problem),
        };
        [first, second].into_iter().find(|&line| line != 0)
    }
}

/// How a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScalarStyle {
    /// Without quotes.
    Plain,
    /// `'…'`
    SingleQuoted,
    /// `"…"`
    DoubleQuoted,
    /// `|`
    Literal,
    /// `>`
    Folded,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenKind<'a> {
    StreamEnd,
    VersionDirective { major: u8, minor: u8 },
    TagDirective { handle: &'a str, prefix: Cow<'a, str> },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'a str),
    Anchor(&'a str),
    Tag { handle: &'a str, suffix: Cow<'a, str> },
    Scalar { value: Cow<'a, str>, style: ScalarStyle },
}

#[derive(Debug, Clone)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind<'a>,
    pub(crate) start: Mark,
    pub(crate) end: Mark,
}

/// What the search for comments must know of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenClass {
    Value,
    FlowEntry,
    BlockEntry,
    BlockSequenceStart,
    Other,
}

impl Token<'_> {
    fn class(&self) -> (TokenClass, Mark) {
        let class = match self.kind {
            TokenKind::Value => TokenClass::Value,
            TokenKind::FlowEntry => TokenClass::FlowEntry,
            TokenKind::BlockEntry => TokenClass::BlockEntry,
            TokenKind::BlockSequenceStart => TokenClass::BlockSequenceStart,
            _ => TokenClass::Other,
        };
        (class, if self.kind == TokenKind::BlockEnd { self.end } else { self.start })
    }
}

/// A place where a key without `?` may have begun.
#[derive(Debug, Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    required: bool,
    token_number: usize,
    mark: Mark,
}

pub(crate) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    offset: usize,
    line: usize,
    line_start: usize,
    tokens: VecDeque<Token<'a>>,
    tokens_taken: usize,
    dialect: Dialect,
    head_ready: bool,
    finished: bool,
    /// Column of the innermost block collection, -1 outside of all.
    indent: i32,
    indents: Vec<i32>,
    simple_key_allowed: bool,
    simple_keys: Vec<SimpleKey>,
    /// Comments, if anyone wants them, and the last two tokens that have been taken, which they may belong to.
    comments: Option<Box<CommentLog>>,
    taken: [Option<(TokenClass, Mark)>; 2],
    /// (token number, flow level) of keys that may still be possible, by token number.
    pending_keys: VecDeque<(usize, usize)>,
}

type Scanned<T> = Result<T, Error>;

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str, dialect: Dialect) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            offset: 0,
            line: 0,
            line_start: 0,
            tokens: VecDeque::with_capacity(8),
            tokens_taken: 0,
            dialect,
            head_ready: false,
            finished: false,
            indent: -1,
            indents: Vec::new(),
            simple_key_allowed: true,
            simple_keys: vec![SimpleKey::default()],
            comments: None,
            taken: [None; 2],
            pending_keys: VecDeque::new(),
        }
    }

    /// The next token, which stays at the head of the queue.
    #[inline]
    pub(crate) fn peek(&mut self) -> Scanned<&Token<'a>> {
        if !self.head_ready {
            self.fetch_until_head_is_certain()?;
        }
        // After the end of the stream the last token stays in place.
        self.tokens.front().ok_or_else(|| Error::new(ErrorKind::Syntax, "read past the end of the stream"))
    }

    /// Takes the token that `peek` showed.
    pub(crate) fn take(&mut self) -> Scanned<Token<'a>> {
        self.peek()?;
        self.head_ready = false;
        self.tokens_taken += 1;
        if self.comments.is_some()
            && let Some(token) = self.tokens.front()
        {
            self.taken = [self.taken[1], Some(token.class())];
        }
        self.tokens
            .pop_front()
            .ok_or_else(|| Error::new(ErrorKind::Syntax, "read past the end of the stream"))
    }

    /// Logs comments from now on.
    pub(crate) fn log_comments(&mut self) {
        self.comments = Some(Box::default());
    }

    /// Moves the comments that belong to the token at the head of the queue to `taken`.
    #[inline]
    pub(crate) fn take_comments(&mut self, taken: &mut Comments) {
        if let (Some(comments), Some(token)) = (&mut self.comments, self.tokens.front()) {
            let ends_block = token.kind == TokenKind::BlockEnd;
            let mark = if ends_block { token.end } else { token.start };
            comments.take(mark.offset as usize, ends_block, taken);
        }
    }

    /// The last tokens but `back`, taken ones included.
    fn recent(&self, back: usize) -> Option<(TokenClass, Mark)> {
        match self.tokens.len().checked_sub(back + 1) {
            Some(place) => self.tokens.get(place).map(Token::class),
            None => {
                self.taken.get(1 + self.tokens.len() - back.min(1 + self.tokens.len())).copied().flatten()
            }
        }
    }

    /// Line breaks since the last character that is not white.
    fn newlines(&self) -> usize {
        let before = self.text.get(..self.offset).unwrap_or_default();
        let white = before.trim_end_matches([' ', '\t', '\r', '\n', '\u{85}', '\u{2028}', '\u{2029}']).len();
        let mut at = white;
        let mut lines = 0;
        while at < self.offset {
            let width = break_width(self.bytes, at);
            lines += usize::from(width > 0);
            at += width.max(1);
        }
        lines
    }

    fn scan_line_comment(&mut self, token: Mark) {
        if self.comments.is_none() || self.newlines() > 0 {
            return;
        }
        let at = self.mark();
        if let Some(comments) = &mut self.comments {
            self.offset = comments.line(self.text, at, token.offset as usize);
        }
    }

    fn scan_comments(&mut self, scanned_from: Mark) {
        let mut token = self.recent(0);
        if token.is_some_and(|(class, _)| class == TokenClass::FlowEntry) {
            token = self.recent(1).or(token);
        }
        let around = Surroundings {
            scanned_from,
            token: token
                .map_or((0, false), |(class, mark)| (mark.offset as usize, class == TokenClass::Value)),
            indent: self.indent,
            in_flow: self.in_flow(),
            newlines: self.newlines(),
        };
        let at = self.mark();
        let Some(comments) = &mut self.comments else { return };
        let end = comments.lines(self.text, at, around);
        while self.offset < end {
            if !self.skip_break() {
                self.offset += 1;
            }
        }
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    // --- the queue ---------------------------------------------------------------------------------------------------

    fn fetch_until_head_is_certain(&mut self) -> Scanned<()> {
        loop {
            let enough = self.tokens.len() >= self.dialect.lookahead() || self.finished;
            if enough && (!self.head_may_be_key()? || self.finished) {
                break;
            }
            self.fetch_token()?;
        }
        self.head_ready = true;
        Ok(())
    }

    fn head_may_be_key(&mut self) -> Scanned<bool> {
        while self.pending_keys.pop_front_if(|(number, _)| *number < self.tokens_taken).is_some() {}
        match self.pending_keys.front() {
            // The key of that level may be another one by now; the Go libraries do not notice either.
            Some(&(number, level)) if number == self.tokens_taken => self.simple_key_is_valid(level),
            _ => Ok(false),
        }
    }

    fn push(&mut self, kind: TokenKind<'a>, start: Mark) {
        let end = self.mark();
        self.tokens.push_back(Token { kind, start, end });
    }

    fn mark(&self) -> Mark {
        Mark { offset: self.offset as u32, line: self.line as u32, column: self.column() as u32 }
    }

    fn column(&self) -> usize {
        self.offset - self.line_start
    }

    fn error(&self, problem: impl Into<String>, context: Mark) -> Error {
        let column = self.text.get(self.line_start..self.offset).map_or(0, |line| line.chars().count());
        let reference = self.dialect.reference_line(self.line, context.line as usize).map(|line| line + 1);
        Error::new(ErrorKind::Syntax, problem).at(self.line + 1, column + 1).reference_line(reference)
    }

    // --- simple keys -------------------------------------------------------------------------------------------------

    fn simple_key_is_valid(&mut self, level: usize) -> Scanned<bool> {
        let key = self.simple_keys[level];
        if !key.possible {
            return Ok(false);
        }
        if (key.mark.line as usize) < self.line || self.further_than_a_key(key.mark) {
            if key.required {
                return Err(self.error("could not find expected ':'", key.mark));
            }
            self.simple_keys[level].possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    fn further_than_a_key(&self, start: Mark) -> bool {
        let start = start.offset as usize;
        self.offset - start > SIMPLE_KEY_CHARS_MAX
            && self.text.get(start..self.offset).is_some_and(|key| key.chars().count() > SIMPLE_KEY_CHARS_MAX)
    }

    fn save_simple_key(&mut self) -> Scanned<()> {
        if !self.simple_key_allowed {
            return Ok(());
        }
        self.remove_simple_key()?;
        let required = self.simple_keys.len() == 1 && self.indent == self.column() as i32;
        let level = self.simple_keys.len() - 1;
        let token_number = self.tokens_taken + self.tokens.len();
        self.simple_keys[level] = SimpleKey { possible: true, required, token_number, mark: self.mark() };
        self.pending_keys.push_back((token_number, level));
        Ok(())
    }

    fn remove_simple_key(&mut self) -> Scanned<()> {
        let level = self.simple_keys.len() - 1;
        let key = self.simple_keys[level];
        if key.possible && key.required {
            return Err(self.error("could not find expected ':'", key.mark));
        }
        self.forget_simple_key(level);
        Ok(())
    }

    fn forget_simple_key(&mut self, level: usize) {
        let key = &mut self.simple_keys[level];
        if key.possible {
            key.possible = false;
            let number = key.token_number;
            self.forget_pending_key(number);
        }
    }

    fn forget_pending_key(&mut self, number: usize) {
        if let Ok(place) = self.pending_keys.binary_search_by_key(&number, |&(number, _)| number) {
            self.pending_keys.remove(place);
        }
    }

    fn in_flow(&self) -> bool {
        self.simple_keys.len() > 1
    }

    // --- indentation -------------------------------------------------------------------------------------------------

    /// Opens a block collection at `column` if it is deeper than the current one; its token goes before `number`.
    fn roll_indent(
        &mut self,
        column: usize,
        number: Option<usize>,
        kind: TokenKind<'a>,
        mark: Mark,
    ) -> Scanned<()> {
        if self.in_flow() || self.indent >= column as i32 {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column as i32;
        if self.indents.len() > DEPTH_MAX {
            return Err(Error {
                kind: ErrorKind::Limit,
                ..self.error(format!("exceeded max depth of {DEPTH_MAX}"), mark)
            });
        }
        let token = Token { kind, start: mark, end: mark };
        self.insert(number, token);
        Ok(())
    }

    /// Puts a token before the one with a number; at the end if that one has been taken already.
    fn insert(&mut self, number: Option<usize>, token: Token<'a>) {
        match number.and_then(|number| number.checked_sub(self.tokens_taken)) {
            Some(place) if place < self.tokens.len() => self.tokens.insert(place, token),
            _ => self.tokens.push_back(token),
        }
    }

    fn unroll_indent(&mut self, column: i32, mark: Mark) {
        if self.in_flow() {
            return;
        }
        let (mut end, mut offset) = (mark, i64::from(mark.offset) - 1);
        while self.indent > column {
            if let Some(comments) = &self.comments {
                comments.block_end(&mut end, &mut offset, self.indent);
            }
            let last = Mark { offset: offset.max(0) as u32, ..end };
            self.tokens.push_back(Token { kind: TokenKind::BlockEnd, start: end, end: last });
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    // --- tokens ------------------------------------------------------------------------------------------------------

    fn fetch_token(&mut self) -> Scanned<()> {
        // The newer library says that a block ends where its last line ends, not where the next token begins.
        let last = self.mark();
        self.skip_to_token(last);
        let end = if self.dialect == Dialect::V3 { last } else { self.mark() };
        self.unroll_indent(self.column() as i32, end);

        let first = byte(self.bytes, self.offset);
        if self.offset >= self.bytes.len() {
            return self.fetch_stream_end();
        }
        if self.column() == 0 {
            if first == b'%' {
                return self.fetch_directive();
            }
            if self.document_indicator(b'-') {
                return self.fetch_document_indicator(TokenKind::DocumentStart);
            }
            if self.document_indicator(b'.') {
                return self.fetch_document_indicator(TokenKind::DocumentEnd);
            }
        }
        let in_flow = self.in_flow();
        let mut owner = self.mark();
        if self.comments.is_some() && first == if in_flow { b',' } else { b':' } {
            // What follows these signs belongs to what is before them.
            owner = self.recent(0).map_or(owner, |(_, mark)| mark);
        }
        self.fetch_content(first, in_flow)?;
        if self.comments.is_some() && self.recent(0).is_some_and(|(class, _)| class != TokenClass::BlockEntry)
        {
            self.scan_line_comment(owner);
        }
        Ok(())
    }

    fn fetch_content(&mut self, first: u8, in_flow: bool) -> Scanned<()> {
        let white_follows = is_white_or_end(self.bytes, self.offset + 1);
        match first {
            b'[' => self.fetch_flow_start(TokenKind::FlowSequenceStart),
            b'{' => self.fetch_flow_start(TokenKind::FlowMappingStart),
            b']' => self.fetch_flow_end(TokenKind::FlowSequenceEnd),
            b'}' => self.fetch_flow_end(TokenKind::FlowMappingEnd),
            b',' => self.fetch_flow_entry(),
            b'-' if white_follows => self.fetch_block_entry(),
            b'?' if in_flow || white_follows => self.fetch_key(),
            b':' if in_flow || white_follows => self.fetch_value(),
            b'*' | b'&' => self.fetch_anchor(first == b'*'),
            b'!' => self.fetch_tag(),
            b'|' | b'>' if !in_flow => self.fetch_block_scalar(first == b'|'),
            b'\'' | b'"' => self.fetch_quoted_scalar(first == b'\''),
            b'|' | b'>' | b'%' | b'@' | b'`' | b'#' | b'\t' => {
                Err(self.error("found character that cannot start any token", self.mark()))
            }
            _ => self.fetch_plain_scalar(),
        }
    }

    fn document_indicator(&self, sign: u8) -> bool {
        let at = self.offset;
        byte(self.bytes, at) == sign
            && byte(self.bytes, at + 1) == sign
            && byte(self.bytes, at + 2) == sign
            && is_white_or_end(self.bytes, at + 3)
    }

    fn at_document_indicator(&self) -> bool {
        self.column() == 0 && (self.document_indicator(b'-') || self.document_indicator(b'.'))
    }

    /// Skips blanks, comments and line breaks. A tab counts as a blank only where no block key could begin.
    fn skip_to_token(&mut self, from: Mark) {
        loop {
            loop {
                match byte(self.bytes, self.offset) {
                    b' ' => self.offset += 1,
                    b'\t' if self.in_flow() || !self.simple_key_allowed => self.offset += 1,
                    _ => break,
                }
            }
            self.move_item_comment();
            if byte(self.bytes, self.offset) == b'#' {
                if self.comments.is_some() {
                    self.scan_comments(from);
                } else {
                    self.skip_comment();
                }
            }
            if !self.skip_break() {
                return;
            }
            if !self.in_flow() {
                self.simple_key_allowed = true;
            }
        }
    }

    /// A comment behind the key of a sequence belongs to its first item, if that is where the comment was found last.
    fn move_item_comment(&mut self) {
        if self.comments.is_none() || is_break(self.bytes, self.offset) {
            return;
        }
        let recent = [1, 0].map(|back| self.recent(back).map(|(class, _)| class));
        let at = self.mark();
        if recent == [Some(TokenClass::BlockSequenceStart), Some(TokenClass::BlockEntry)]
            && let Some(comments) = &mut self.comments
        {
            comments.line_to_head(at);
        }
    }

    fn skip_comment(&mut self) {
        self.offset = line_end(self.bytes, self.offset);
    }

    fn skip_break(&mut self) -> bool {
        let width = break_width(self.bytes, self.offset);
        if width == 0 {
            return false;
        }
        self.offset += width;
        self.line += 1;
        self.line_start = self.offset;
        true
    }

    /// Skips a line break and adds what it means to `out`: LF, or LS and PS as they are.
    fn read_break(&mut self, out: &mut String) {
        let start = self.offset;
        if !self.skip_break() {
            return;
        }
        match byte(self.bytes, start) {
            0xE2 => out.push_str(self.text.get(start..self.offset).unwrap_or_default()),
            _ => out.push('\n'),
        }
    }

    fn fetch_stream_end(&mut self) -> Scanned<()> {
        if self.column() != 0 {
            self.line_start = self.offset;
            self.line += 1;
        }
        self.unroll_indent(-1, self.mark());
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push(TokenKind::StreamEnd, self.mark());
        self.finished = true;
        Ok(())
    }

    fn fetch_document_indicator(&mut self, kind: TokenKind<'a>) -> Scanned<()> {
        self.unroll_indent(-1, self.mark());
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        self.offset += 3;
        self.push(kind, start);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: TokenKind<'a>) -> Scanned<()> {
        self.save_simple_key()?;
        let mark = self.mark();
        let token_number = self.tokens_taken + self.tokens.len();
        self.simple_keys.push(SimpleKey { token_number, mark, ..SimpleKey::default() });
        if self.simple_keys.len() > DEPTH_MAX {
            return Err(Error {
                kind: ErrorKind::Limit,
                ..self.error(format!("exceeded max depth of {DEPTH_MAX}"), mark)
            });
        }
        self.simple_key_allowed = true;
        self.offset += 1;
        self.push(kind, mark);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: TokenKind<'a>) -> Scanned<()> {
        self.remove_simple_key()?;
        if self.in_flow()
            && let Some(level) = self.simple_keys.pop()
        {
            // An empty collection takes the key it may itself be out of sight, as in the Go libraries.
            self.forget_pending_key(level.token_number);
        }
        self.simple_key_allowed = false;
        let start = self.mark();
        self.offset += 1;
        self.push(kind, start);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Scanned<()> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        let start = self.mark();
        self.offset += 1;
        self.push(TokenKind::FlowEntry, start);
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Scanned<()> {
        if !self.in_flow() {
            if !self.simple_key_allowed {
                return Err(self.error("block sequence entries are not allowed in this context", self.mark()));
            }
            self.roll_indent(self.column(), None, TokenKind::BlockSequenceStart, self.mark())?;
        }
        // In flow context the parser refuses the token.
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        let start = self.mark();
        self.offset += 1;
        self.push(TokenKind::BlockEntry, start);
        Ok(())
    }

    fn fetch_key(&mut self) -> Scanned<()> {
        if !self.in_flow() {
            if !self.simple_key_allowed {
                return Err(self.error("mapping keys are not allowed in this context", self.mark()));
            }
            self.roll_indent(self.column(), None, TokenKind::BlockMappingStart, self.mark())?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = !self.in_flow();
        let start = self.mark();
        self.offset += 1;
        self.push(TokenKind::Key, start);
        Ok(())
    }

    fn fetch_value(&mut self) -> Scanned<()> {
        let level = self.simple_keys.len() - 1;
        if self.simple_key_is_valid(level)? {
            let key = self.simple_keys[level];
            let token = Token { kind: TokenKind::Key, start: key.mark, end: key.mark };
            self.insert(Some(key.token_number), token);
            let column = key.mark.column as usize;
            self.roll_indent(column, Some(key.token_number), TokenKind::BlockMappingStart, key.mark)?;
            self.forget_simple_key(level);
            self.simple_key_allowed = false;
        } else {
            if !self.in_flow() {
                if !self.simple_key_allowed {
                    return Err(self.error("mapping values are not allowed in this context", self.mark()));
                }
                self.roll_indent(self.column(), None, TokenKind::BlockMappingStart, self.mark())?;
            }
            self.simple_key_allowed = !self.in_flow();
        }
        let start = self.mark();
        self.offset += 1;
        self.push(TokenKind::Value, start);
        Ok(())
    }
}
