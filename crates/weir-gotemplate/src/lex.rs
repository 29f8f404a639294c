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
    pub(crate) position: u32,
    pub(crate) text: &'a str,
}

impl Token<'_> {
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

const RIGHT: &[u8] = b"}}";
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// Goes through a text action by action: [`Lexer::fill`] gives all tokens of one at a time.
pub(crate) struct Lexer<'a> {
    input: &'a str,
    position: usize,
    /// Where the token at hand starts.
    start: usize,
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

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_alphanumeric(character: char) -> bool {
    match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => true,
        character => !character.is_ascii() && character.is_alphanumeric(),
    }
}

/// What an identifier is if it is no name.
fn word_kind(text: &str) -> TokenKind {
    match text {
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
    }
}

fn unicode_name(character: Option<char>) -> String {
    let Some(character) = character else { return "U+FFFD".to_owned() };
    let code = u32::from(character);
    if strconv::is_print(character) { format!("U+{code:04X} '{character}'") } else { format!("U+{code:04X}") }
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(input: &'a str) -> Self {
        Self { input, position: 0, start: 0, paren_depth: 0, problem: String::new() }
    }

    /// What was wrong where an error token was given.
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }

    /// Adds at least one token to `tokens`: the text before the next action and the action itself, or the text to
    /// the end and the end. An error is the last token there is.
    pub(crate) fn fill(&mut self, tokens: &mut Vec<Token<'a>>) {
        loop {
            let from = self.position;
            let Some(delimiter) = self.find_left() else {
                self.position = self.input.len();
                if self.position > from {
                    tokens.push(self.token(TokenKind::Text));
                }
                tokens.push(self.token(TokenKind::End));
                return;
            };
            let bytes = self.input.as_bytes();
            let after = delimiter + 2;
            let trims = bytes.get(after) == Some(&b'-') && bytes.get(after + 1).is_some_and(|b| is_space(*b));
            if delimiter > from {
                self.position = if trims {
                    from + self.input[from..delimiter].trim_end_matches(SPACES).len()
                } else {
                    delimiter
                };
                if self.position > from {
                    tokens.push(self.token(TokenKind::Text));
                }
            }
            let inside = after + if trims { 2 } else { 0 };
            self.start = delimiter;
            if bytes[inside..].starts_with(b"/*") {
                match self.comment(inside) {
                    None if tokens.is_empty() => continue,
                    None => return,
                    Some(error) => {
                        tokens.push(error);
                        return;
                    }
                }
            }
            self.position = after;
            tokens.push(self.token(TokenKind::LeftDelimiter));
            self.skip_to(inside);
            self.paren_depth = 0;
            loop {
                let token = self.inside_action();
                tokens.push(token);
                if matches!(token.kind, TokenKind::RightDelimiter | TokenKind::Error) {
                    return;
                }
            }
        }
    }

    /// Where the next left delimiter is.
    fn find_left(&self) -> Option<usize> {
        let bytes = self.input.as_bytes();
        let mut from = self.position;
        loop {
            from += memchr::memchr(b'{', &bytes[from..])?;
            if bytes.get(from + 1) == Some(&b'{') {
                return Some(from);
            }
            from += 1;
        }
    }

    fn peek(&self) -> Option<char> {
        match self.input.as_bytes().get(self.position) {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            Some(_) => self.input[self.position..].chars().next(),
            None => None,
        }
    }

    fn advance(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.position += character.len_utf8();
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

    #[inline]
    fn token(&mut self, kind: TokenKind) -> Token<'a> {
        let token = Token { kind, position: self.start as u32, text: &self.input[self.start..self.position] };
        self.start = self.position;
        token
    }

    /// Moves to `position`; what was passed belongs to no token.
    fn skip_to(&mut self, position: usize) {
        self.position = position;
        self.start = position;
    }

    /// The last token there is: nothing follows an error.
    fn error(&mut self, message: impl Into<String>) -> Token<'a> {
        let token = Token { kind: TokenKind::Error, position: self.start as u32, text: "" };
        self.problem = message.into();
        self.skip_to(self.input.len());
        token
    }

    /// Whether a right delimiter follows, and whether it trims the text after it.
    fn at_right_delimiter(&self) -> Option<bool> {
        match &self.input.as_bytes()[self.position..] {
            [b'}', b'}', ..] => Some(false),
            [space, b'-', b'}', b'}', ..] if is_space(*space) => Some(true),
            _ => None,
        }
    }

    /// Skips a comment and the right delimiter behind it.
    fn comment(&mut self, start: usize) -> Option<Token<'a>> {
        self.skip_to(start);
        let Some(length) = memchr::memmem::find(&self.input.as_bytes()[start + 2..], b"*/") else {
            return Some(self.error("unclosed comment"));
        };
        self.position = start + 2 + length + 2;
        let Some(trims) = self.at_right_delimiter() else {
            return Some(self.error("comment ends before closing delimiter"));
        };
        let end = self.position + RIGHT.len() + if trims { 2 } else { 0 };
        self.skip_to(if trims { self.after_spaces(end) } else { end });
        None
    }

    /// The end of the spaces at `position`.
    fn after_spaces(&self, position: usize) -> usize {
        let spaces = self.input.as_bytes()[position..].iter().take_while(|byte| is_space(**byte));
        position + spaces.count()
    }

    fn right_delimiter(&mut self, trims: bool) -> Token<'a> {
        if self.paren_depth != 0 {
            return self.error("unclosed left paren");
        }
        if trims {
            self.skip_to(self.position + 2);
        }
        self.position += RIGHT.len();
        let token = self.token(TokenKind::RightDelimiter);
        if trims {
            self.skip_to(self.after_spaces(self.position));
        }
        token
    }

    #[inline]
    fn inside_action(&mut self) -> Token<'a> {
        let bytes = self.input.as_bytes();
        let Some(&first) = bytes.get(self.position) else { return self.error("unclosed action") };
        match first {
            b' ' | b'\t' | b'\r' | b'\n' => {
                let trims = bytes[self.position + 1..].starts_with(b"-}}");
                return if trims { self.right_delimiter(true) } else { self.space() };
            }
            b'}' if bytes.get(self.position + 1) == Some(&b'}') => return self.right_delimiter(false),
            b'+' | b'-' | b'0'..=b'9' => return self.number(),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => return self.identifier(),
            b'.' => {
                // A lone dot at the end of the input reads as a number.
                if bytes.get(self.position + 1).is_none_or(u8::is_ascii_digit) {
                    return self.number();
                }
                self.position += 1;
                return if self.at_terminator() {
                    self.token(TokenKind::Dot)
                } else {
                    self.word(TokenKind::Field)
                };
            }
            b'$' => {
                self.position += 1;
                return if self.at_terminator() {
                    self.token(TokenKind::Variable)
                } else {
                    self.word(TokenKind::Variable)
                };
            }
            b'"' => return self.quoted(b'"', "unterminated quoted string", TokenKind::String),
            b'\'' => return self.quoted(b'\'', "unterminated character constant", TokenKind::CharConstant),
            b'`' => {
                return match memchr::memchr(b'`', &bytes[self.position + 1..]) {
                    Some(length) => {
                        self.position += length + 2;
                        self.token(TokenKind::RawString)
                    }
                    None => self.error("unterminated raw quoted string"),
                };
            }
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

    #[inline]
    fn space(&mut self) -> Token<'a> {
        let bytes = self.input.as_bytes();
        let mut end = self.position;
        while bytes.get(end).is_some_and(|byte| is_space(*byte)) {
            end += 1;
        }
        // The last space may belong to a trimming right delimiter; a single one has been seen to.
        if bytes.get(end) == Some(&b'-') && bytes[end + 1..].starts_with(RIGHT) {
            end -= 1;
        }
        self.position = end;
        self.token(TokenKind::Space)
    }

    #[inline]
    fn at_terminator(&self) -> bool {
        match &self.input.as_bytes()[self.position..] {
            [] | [b' ' | b'\t' | b'\r' | b'\n' | b'.' | b',' | b'|' | b':' | b')' | b'(', ..] => true,
            rest => rest.starts_with(RIGHT),
        }
    }

    /// The rest of a name.
    #[inline]
    fn word(&mut self, kind: TokenKind) -> Token<'a> {
        let bytes = self.input.as_bytes();
        let mut end = self.position;
        while bytes.get(end).is_some_and(|byte| WORD[usize::from(*byte)]) {
            end += 1;
        }
        self.position = end;
        if bytes.get(end).is_some_and(|byte| !byte.is_ascii()) {
            while self.peek().is_some_and(is_alphanumeric) {
                self.advance();
            }
        }
        if !self.at_terminator() {
            let name = unicode_name(self.peek());
            return self.error(format!("bad character {name}"));
        }
        self.token(kind)
    }

    #[inline]
    fn identifier(&mut self) -> Token<'a> {
        let mut token = self.word(TokenKind::Identifier);
        if token.kind == TokenKind::Identifier {
            token.kind = word_kind(token.text);
        }
        token
    }

    fn quoted(&mut self, quote: u8, unterminated: &str, kind: TokenKind) -> Token<'a> {
        let bytes = self.input.as_bytes();
        let mut end = self.position + 1;
        loop {
            match bytes.get(end) {
                Some(byte) if *byte == quote => break,
                None | Some(b'\n') => return self.error(unterminated),
                Some(b'\\') if matches!(bytes.get(end + 1), None | Some(b'\n')) => {
                    return self.error(unterminated);
                }
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
            }
        }
        self.position = end + 1;
        self.token(kind)
    }

    fn number(&mut self) -> Token<'a> {
        let bytes = self.input.as_bytes();
        let digits = self.position + usize::from(matches!(bytes[self.position], b'+' | b'-'));
        let end = digits + bytes[digits..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if end > digits && matches!(bytes.get(end), Some(b' ' | b'\t' | b'\r' | b'\n' | b')' | b'}' | b'|')) {
            self.position = end;
            return self.token(TokenKind::Number);
        }
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
