//! Splits template text into tokens.

use crate::strconv;

/// What a token is. Keywords come after [`TokenKind::Variable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TokenKind {
    Error,
    Bool,
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    End,
    Field,
    Identifier,
    LeftDelimiter,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelimiter,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    KeywordBlock,
    KeywordBreak,
    KeywordContinue,
    Dot,
    KeywordDefine,
    KeywordElse,
    KeywordEnd,
    KeywordIf,
    KeywordNil,
    KeywordRange,
    KeywordTemplate,
    KeywordWith,
}

/// A token and where it starts. That of an error is empty: the lexer keeps its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) position: usize,
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

impl Token<'_> {
    pub(crate) fn none() -> Self {
        Self { kind: TokenKind::End, position: 0, text: "", line: 0 }
    }

    /// The token as error messages show it.
    pub(crate) fn describe(&self) -> String {
        match self.kind {
            TokenKind::End => "EOF".to_owned(),
            kind if kind > TokenKind::Variable => format!("<{}>", self.text),
            _ if self.text.len() > 10 => {
                let start: String = self.text.chars().take(10).collect();
                format!("{}...", strconv::quoted(&start))
            }
            _ => strconv::quoted(self.text),
        }
    }
}

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

pub(crate) struct Lexer<'a> {
    input: &'a str,
    position: usize,
    start: usize,
    line: usize,
    start_line: usize,
    inside_action: bool,
    paren_depth: usize,
    problem: String,
}

/// The ASCII bytes of names.
const WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'_';
        byte += 1;
    }
    table
};

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn is_alphanumeric(character: char) -> bool {
    match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => true,
        character => !character.is_ascii() && character.is_alphanumeric(),
    }
}

fn has_left_trim(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 2 && bytes[0] == b'-' && is_space(char::from(bytes[1]))
}

fn has_right_trim(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 2 && is_space(char::from(bytes[0])) && bytes[1] == b'-'
}

fn unicode_name(character: Option<char>) -> String {
    let Some(character) = character else { return "U+FFFD".to_owned() };
    let code = u32::from(character);
    if strconv::is_print(character) { format!("U+{code:04X} '{character}'") } else { format!("U+{code:04X}") }
}

/// Where the next left delimiter is.
fn find_left(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    memchr::memchr_iter(b'{', bytes).find(|position| bytes.get(position + 1) == Some(&b'{'))
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(input: &'a str) -> Self {
        Self {
            input,
            position: 0,
            start: 0,
            line: 1,
            start_line: 1,
            inside_action: false,
            paren_depth: 0,
            problem: String::new(),
        }
    }

    /// What was wrong where an error token was given.
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }

    fn rest(&self) -> &'a str {
        &self.input[self.position..]
    }

    #[inline]
    fn peek(&self) -> Option<char> {
        match self.input.as_bytes().get(self.position) {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            Some(_) => self.rest().chars().next(),
            None => None,
        }
    }

    #[inline]
    fn advance(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.position += character.len_utf8();
        if character == '\n' {
            self.line += 1;
        }
        Some(character)
    }

    fn accept(&mut self, valid: &str) -> bool {
        let accepted = self.peek().is_some_and(|character| valid.contains(character));
        if accepted {
            self.advance();
        }
        accepted
    }

    fn accept_run(&mut self, valid: &str) {
        while self.accept(valid) {}
    }

    fn token(&mut self, kind: TokenKind) -> Token<'a> {
        let token = Token {
            kind,
            position: self.start,
            text: &self.input[self.start..self.position],
            line: self.start_line,
        };
        self.start = self.position;
        self.start_line = self.line;
        token
    }

    /// Moves to `position`, counting the lines passed since the start of the token.
    fn skip_to(&mut self, position: usize) {
        self.position = position;
        self.line = self.start_line + newlines(&self.input[self.start..position]);
    }

    fn ignore(&mut self) {
        self.start = self.position;
        self.start_line = self.line;
    }

    fn error(&mut self, message: impl Into<String>) -> Token<'a> {
        let token = Token { kind: TokenKind::Error, position: self.start, text: "", line: self.start_line };
        self.problem = message.into();
        self.input = "";
        self.start = 0;
        self.position = 0;
        token
    }

    /// Whether a right delimiter follows, and whether it trims the text after it.
    fn at_right_delimiter(&self) -> Option<bool> {
        let rest = self.rest();
        if has_right_trim(rest) && rest[2..].starts_with(RIGHT) {
            return Some(true);
        }
        rest.starts_with(RIGHT).then_some(false)
    }

    pub(crate) fn next_token(&mut self) -> Token<'a> {
        if self.inside_action {
            return self.inside_action();
        }
        loop {
            if let Some(token) = self.text() {
                return token;
            }
        }
    }

    /// Text up to the next action, or the start of the action; `None` after a comment.
    fn text(&mut self) -> Option<Token<'a>> {
        let Some(offset) = find_left(self.rest()) else {
            if self.input.len() > self.start {
                self.skip_to(self.input.len());
                return Some(self.token(TokenKind::Text));
            }
            return Some(self.token(TokenKind::End));
        };
        if offset > 0 {
            let delimiter = self.position + offset;
            let text = &self.input[self.start..delimiter];
            let kept = if has_left_trim(&self.input[delimiter + LEFT.len()..]) {
                text.trim_end_matches(SPACES).len()
            } else {
                text.len()
            };
            self.skip_to(self.start + kept);
            let token = self.token(TokenKind::Text);
            self.skip_to(delimiter);
            self.ignore();
            if !token.text.is_empty() {
                return Some(token);
            }
        }
        let after = self.position + LEFT.len();
        let marker = if has_left_trim(&self.input[after..]) { 2 } else { 0 };
        if self.input[after + marker..].starts_with("/*") {
            return self.comment(after + marker);
        }
        self.position = after;
        let token = self.token(TokenKind::LeftDelimiter);
        self.inside_action = true;
        self.skip_to(after + marker);
        self.ignore();
        self.paren_depth = 0;
        Some(token)
    }

    fn comment(&mut self, start: usize) -> Option<Token<'a>> {
        self.skip_to(start);
        self.ignore();
        let Some(length) = self.input[start + 2..].find("*/") else {
            return Some(self.error("unclosed comment"));
        };
        self.skip_to(start + 2 + length + 2);
        let Some(trim) = self.at_right_delimiter() else {
            return Some(self.error("comment ends before closing delimiter"));
        };
        self.ignore();
        self.after_right_delimiter(trim);
        None
    }

    fn after_right_delimiter(&mut self, trim: bool) {
        let mut end = self.position + RIGHT.len() + if trim { 2 } else { 0 };
        if trim {
            let rest = &self.input[end..];
            end += rest.len() - rest.trim_start_matches(SPACES).len();
        }
        self.skip_to(end);
        self.ignore();
    }

    fn end_action(&mut self, trim: bool) -> Token<'a> {
        if self.paren_depth == 0 { self.right_delimiter(trim) } else { self.error("unclosed left paren") }
    }

    fn right_delimiter(&mut self, trim: bool) -> Token<'a> {
        if trim {
            self.skip_to(self.position + 2);
            self.ignore();
        }
        self.position += RIGHT.len();
        let token = self.token(TokenKind::RightDelimiter);
        if trim {
            let rest = self.rest();
            let spaces = rest.len() - rest.trim_start_matches(SPACES).len();
            self.skip_to(self.position + spaces);
            self.ignore();
        }
        self.inside_action = false;
        token
    }

    fn inside_action(&mut self) -> Token<'a> {
        let bytes = self.input.as_bytes();
        let Some(&first) = bytes.get(self.position) else { return self.error("unclosed action") };
        let after = bytes.get(self.position + 1).copied();
        match first {
            b' ' | b'\t' | b'\r' | b'\n' => {
                let trims = after == Some(b'-') && self.rest()[2..].starts_with(RIGHT);
                return if trims { self.end_action(true) } else { self.space() };
            }
            b'}' if after == Some(b'}') => return self.end_action(false),
            b'+' | b'-' | b'0'..=b'9' => return self.number(),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => return self.identifier(),
            _ => {}
        }
        let Some(character) = self.peek() else { return self.error("unclosed action") };
        if is_alphanumeric(character) {
            return self.identifier();
        }
        self.advance();
        match character {
            '=' => self.token(TokenKind::Assign),
            ':' => {
                if self.advance() == Some('=') {
                    self.token(TokenKind::Declare)
                } else {
                    self.error("expected :=")
                }
            }
            '|' => self.token(TokenKind::Pipe),
            '"' => self.quoted('"', "unterminated quoted string", TokenKind::String),
            '\'' => self.quoted('\'', "unterminated character constant", TokenKind::CharConstant),
            '`' => match self.rest().find('`') {
                Some(length) => {
                    self.skip_to(self.position + length + 1);
                    self.token(TokenKind::RawString)
                }
                None => self.error("unterminated raw quoted string"),
            },
            '$' => {
                if self.at_terminator() {
                    self.token(TokenKind::Variable)
                } else {
                    self.word(TokenKind::Variable)
                }
            }
            '.' => {
                if self.peek().is_some_and(|next| next.is_ascii_digit()) {
                    self.position -= 1;
                    return self.number();
                }
                if self.peek().is_none() {
                    // A lone dot at the end of the input reads as a number.
                    self.position -= 1;
                    return self.number();
                }
                if self.at_terminator() { self.token(TokenKind::Dot) } else { self.word(TokenKind::Field) }
            }
            '(' => {
                self.paren_depth += 1;
                self.token(TokenKind::LeftParen)
            }
            ')' => {
                let Some(depth) = self.paren_depth.checked_sub(1) else {
                    return self.error("unexpected right paren");
                };
                self.paren_depth = depth;
                self.token(TokenKind::RightParen)
            }
            character if (' '..='~').contains(&character) => self.token(TokenKind::Char),
            character => {
                let name = unicode_name(Some(character));
                self.error(format!("unrecognized character in action: {name}"))
            }
        }
    }

    fn space(&mut self) -> Token<'a> {
        let bytes = self.input.as_bytes();
        let mut end = self.position;
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = bytes.get(end) {
            self.line += usize::from(bytes[end] == b'\n');
            end += 1;
        }
        // The last space may belong to a trimming right delimiter; a single one has been seen to.
        if bytes[end..].starts_with(b"-}}") {
            end -= 1;
            self.line -= usize::from(bytes[end] == b'\n');
        }
        self.position = end;
        self.token(TokenKind::Space)
    }

    fn at_terminator(&self) -> bool {
        match self.peek() {
            None | Some('.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(character) if is_space(character) => true,
            Some(_) => self.rest().starts_with(RIGHT),
        }
    }

    fn word(&mut self, kind: TokenKind) -> Token<'a> {
        let bytes = self.input.as_bytes();
        let mut end = self.position;
        while bytes.get(end).is_some_and(|byte| WORD[usize::from(*byte)]) {
            end += 1;
        }
        self.position = end;
        match bytes.get(end) {
            None | Some(b' ' | b'\t' | b'\r' | b'\n' | b'.' | b',' | b'|' | b':' | b')' | b'(') => {
                return self.token(kind);
            }
            Some(byte) if byte.is_ascii() => {}
            Some(_) => {
                while self.peek().is_some_and(is_alphanumeric) {
                    self.advance();
                }
            }
        }
        if !self.at_terminator() {
            let name = unicode_name(self.peek());
            return self.error(format!("bad character {name}"));
        }
        self.token(kind)
    }

    fn identifier(&mut self) -> Token<'a> {
        let mut token = self.word(TokenKind::Identifier);
        if token.kind == TokenKind::Identifier {
            token.kind = match token.text {
                "block" => TokenKind::KeywordBlock,
                "break" => TokenKind::KeywordBreak,
                "continue" => TokenKind::KeywordContinue,
                "define" => TokenKind::KeywordDefine,
                "else" => TokenKind::KeywordElse,
                "end" => TokenKind::KeywordEnd,
                "if" => TokenKind::KeywordIf,
                "range" => TokenKind::KeywordRange,
                "nil" => TokenKind::KeywordNil,
                "template" => TokenKind::KeywordTemplate,
                "with" => TokenKind::KeywordWith,
                "true" | "false" => TokenKind::Bool,
                _ => TokenKind::Identifier,
            };
        }
        token
    }

    fn quoted(&mut self, quote: char, unterminated: &str, kind: TokenKind) -> Token<'a> {
        loop {
            let rest = &self.input.as_bytes()[self.position..];
            let plain = |byte: &u8| *byte != quote as u8 && *byte != b'\\' && *byte != b'\n';
            self.position += rest.iter().take_while(|byte| plain(byte)).count();
            match self.advance() {
                Some('\\') => {
                    if matches!(self.advance(), None | Some('\n')) {
                        return self.error(unterminated);
                    }
                }
                None | Some('\n') => return self.error(unterminated),
                Some(character) if character == quote => return self.token(kind),
                Some(_) => {}
            }
        }
    }

    fn number(&mut self) -> Token<'a> {
        if !self.scan_number() {
            return self.bad_number();
        }
        if matches!(self.peek(), Some('+' | '-')) {
            if !self.scan_number() || !self.input[..self.position].ends_with('i') {
                return self.bad_number();
            }
            return self.token(TokenKind::Complex);
        }
        self.token(TokenKind::Number)
    }

    fn bad_number(&mut self) -> Token<'a> {
        let text = strconv::quoted(&self.input[self.start..self.position]);
        self.error(format!("bad number syntax: {text}"))
    }

    fn scan_number(&mut self) -> bool {
        self.accept("+-");
        let mut digits = "0123456789_";
        if self.accept("0") {
            if self.accept("xX") {
                digits = "0123456789abcdefABCDEF_";
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        let exponent = match digits.len() {
            11 => self.accept("eE"),
            23 => self.accept("pP"),
            _ => false,
        };
        if exponent {
            self.accept("+-");
            self.accept_run("0123456789_");
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.advance();
            return false;
        }
        true
    }
}

fn newlines(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count()
}
