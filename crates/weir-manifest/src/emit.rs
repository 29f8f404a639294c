//! The lower half of the writer: scalars and indicators on lines, as the Go YAML libraries lay them out.

use crate::chars::{break_width, byte, is_blank, is_break, is_printable, is_white_or_end, width};
use crate::scan::{Dialect, ScalarStyle};

/// Where a scalar stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Inside `[…]` or `{…}`.
    pub(crate) flow: bool,
    /// A key that is followed by `:` on the same line.
    pub(crate) simple_key: bool,
    /// An item of a block sequence.
    pub(crate) item: bool,
}

/// How a document is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) dialect: Dialect,
    /// Columns per level of mappings.
    pub(crate) indent: i32,
    /// Texts are folded at the first space behind this column.
    pub(crate) width: usize,
    /// Sequences start in the column of the key they belong to.
    pub(crate) compact_sequences: bool,
}

/// What a text contains that decides how it may be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScalarFacts {
    pub(crate) multiline: bool,
    flow_plain_allowed: bool,
    block_plain_allowed: bool,
    single_quoted_allowed: bool,
    block_allowed: bool,
}

/// For each ASCII byte: letters, digits and signs that never decide anything.
const HARMLESS: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 128 {
        let byte = at as u8;
        table[at] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'.' | b'/'
                    | b'_'
                    | b'-'
                    | b'+'
                    | b'='
                    | b'('
                    | b')'
                    | b';'
                    | b'$'
                    | b'^'
                    | b'<'
                    | b'~'
                    | b'\\'
            );
        at += 1;
    }
    table
};

impl ScalarFacts {
    pub(crate) fn of(text: &str, dialect: Dialect) -> Self {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Self {
                multiline: false,
                flow_plain_allowed: false,
                block_plain_allowed: true,
                single_quoted_allowed: true,
                block_allowed: false,
            };
        }
        let mut block_indicators = bytes.starts_with(b"---") || bytes.starts_with(b"...");
        let mut flow_indicators = block_indicators;
        let (mut line_breaks, mut special, mut tabs) = (false, false, false);
        let (mut edge_white, mut trailing_space) = (false, false);
        let (mut break_space, mut space_break) = (false, false);
        let (mut previous_space, mut previous_break) = (false, false);
        let mut preceded_by_white = true;

        let mut at = 0;
        while at < bytes.len() {
            let character = bytes[at];
            if HARMLESS[character as usize] && at > 0 {
                (previous_space, previous_break, preceded_by_white) = (false, false, false);
                at += 1;
                continue;
            }
            let length = width(character);
            let next = at + length;
            let followed_by_white = next >= bytes.len() || is_blank(bytes[next]);
            if at == 0 {
                match character {
                    b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\''
                    | b'"' | b'%' | b'@' | b'`' => {
                        (flow_indicators, block_indicators) = (true, true);
                    }
                    b'?' | b':' => {
                        flow_indicators = true;
                        block_indicators |= followed_by_white;
                    }
                    b'-' if followed_by_white => (flow_indicators, block_indicators) = (true, true),
                    _ => {}
                }
            } else {
                match character {
                    b',' | b'?' | b'[' | b']' | b'{' | b'}' => flow_indicators = true,
                    b':' => {
                        flow_indicators = true;
                        block_indicators |= followed_by_white;
                    }
                    b'#' if preceded_by_white => (flow_indicators, block_indicators) = (true, true),
                    _ => {}
                }
            }
            if character == b'\t' && dialect == Dialect::V3 {
                tabs = true;
            } else if !is_printable(bytes, at) {
                special = true;
            }
            let is_edge = at == 0 || next == bytes.len();
            if character == b' ' {
                edge_white |= is_edge;
                trailing_space |= next == bytes.len();
                break_space |= previous_break;
                (previous_space, previous_break) = (true, false);
            } else if is_break(bytes, at) {
                line_breaks = true;
                edge_white |= is_edge;
                space_break |= previous_space;
                (previous_space, previous_break) = (false, true);
            } else {
                (previous_space, previous_break) = (false, false);
            }
            preceded_by_white = is_white_or_end(bytes, at);
            at = next;
        }

        let unquotable = edge_white || break_space || space_break || tabs || special || line_breaks;
        Self {
            multiline: line_breaks,
            flow_plain_allowed: !unquotable && !flow_indicators,
            block_plain_allowed: !unquotable && !block_indicators,
            single_quoted_allowed: !break_space && !space_break && !tabs && !special,
            block_allowed: !trailing_space && !space_break && !special,
        }
    }

    /// The style in which the text is written when `wanted` is asked for.
    pub(crate) fn style(self, wanted: ScalarStyle, empty: bool, place: Place) -> ScalarStyle {
        let mut style = wanted;
        if place.simple_key && self.multiline {
            style = ScalarStyle::DoubleQuoted;
        }
        if style == ScalarStyle::Plain {
            let allowed = if place.flow { self.flow_plain_allowed } else { self.block_plain_allowed };
            if !allowed || (empty && (place.flow || place.simple_key)) {
                style = ScalarStyle::SingleQuoted;
            }
        }
        if style == ScalarStyle::SingleQuoted && !self.single_quoted_allowed {
            style = ScalarStyle::DoubleQuoted;
        }
        let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        if block && (!self.block_allowed || place.flow || place.simple_key) {
            style = ScalarStyle::DoubleQuoted;
        }
        style
    }
}

/// Text being written, with what the layout depends on: column, indentation, and whether white space came last.
pub(crate) struct Emitter {
    pub(crate) out: String,
    pub(crate) layout: Layout,
    pub(crate) column: usize,
    pub(crate) indent: i32,
    indents: Vec<i32>,
    pub(crate) whitespace: bool,
    /// Only indentation and indicators are on the line so far.
    pub(crate) indention: bool,
    /// A comment ended in this column of indentation; an empty line must follow.
    pub(crate) foot_indent: i32,
    /// A comment that goes to the end of the current line.
    pub(crate) line_comment: String,
}

impl Emitter {
    pub(crate) fn new(layout: Layout, capacity: usize) -> Self {
        Self {
            out: String::with_capacity(capacity),
            layout,
            column: 0,
            indent: -1,
            indents: Vec::new(),
            whitespace: true,
            indention: true,
            foot_indent: -1,
            line_comment: String::new(),
        }
    }

    pub(crate) fn push_indent(&mut self, indent: i32) {
        self.indents.push(self.indent);
        self.indent = indent;
    }

    pub(crate) fn pop_indent(&mut self) {
        self.indent = self.indents.pop().unwrap_or(-1);
    }

    fn put(&mut self, character: char) {
        self.out.push(character);
        self.column += 1;
    }

    pub(crate) fn put_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
        if self.layout.dialect == Dialect::V3 {
            self.indention = true;
        }
    }

    /// Copies the character at `at`; gives the offset of the next one.
    fn write(&mut self, text: &str, at: usize) -> usize {
        let end = at + width(text.as_bytes()[at]);
        self.out.push_str(&text[at..end]);
        self.column += 1;
        end
    }

    /// Copies the line break at `at`; gives the offset behind it.
    fn write_break(&mut self, text: &str, at: usize) -> usize {
        if text.as_bytes()[at] == b'\n' {
            self.put_break();
            return at + 1;
        }
        let end = at + break_width(text.as_bytes(), at).max(1);
        self.out.push_str(&text[at..end]);
        self.column = 0;
        if self.layout.dialect == Dialect::V3 {
            self.indention = true;
        }
        end
    }

    /// Goes to the current indentation, on a new line unless the line is still free up to there.
    pub(crate) fn write_indent(&mut self) {
        let indent = self.indent.max(0);
        let column = indent as usize;
        if !self.indention || self.column > column || (self.column == column && !self.whitespace) {
            self.put_break();
        }
        if self.foot_indent == indent {
            self.put_break();
        }
        while self.column < column {
            self.put(' ');
        }
        self.whitespace = true;
        if self.layout.dialect == Dialect::V2 {
            self.indention = true;
        }
        self.foot_indent = -1;
    }

    pub(crate) fn write_indicator(
        &mut self,
        sign: &str,
        need_whitespace: bool,
        is_whitespace: bool,
        is_indention: bool,
    ) {
        if need_whitespace && !self.whitespace {
            self.put(' ');
        }
        self.out.push_str(sign);
        self.column += sign.len();
        self.whitespace = is_whitespace;
        self.indention = self.indention && is_indention;
    }

    pub(crate) fn write_scalar(&mut self, text: &str, style: ScalarStyle, place: Place) {
        // Scalars are indented one level deeper than what they belong to.
        let indent = if self.indent < 0 { self.layout.indent } else { self.deeper(place.item) };
        self.push_indent(indent);
        match style {
            ScalarStyle::Plain => self.write_plain(text, !place.simple_key),
            ScalarStyle::SingleQuoted => self.write_single_quoted(text, !place.simple_key),
            ScalarStyle::DoubleQuoted => self.write_double_quoted(text, !place.simple_key),
            ScalarStyle::Literal => self.write_literal(text),
            ScalarStyle::Folded => self.write_folded(text),
        }
        self.pop_indent();
    }

    /// The indentation one level below the current one, for an item of a block sequence or anything else.
    pub(crate) fn deeper(&self, item: bool) -> i32 {
        match self.layout.dialect {
            Dialect::V2 => self.indent + self.layout.indent,
            Dialect::V3 if item => self.indent + 2,
            Dialect::V3 => self.layout.indent * ((self.indent + self.layout.indent) / self.layout.indent),
        }
    }

    fn may_fold(&self, allow_breaks: bool, spaces: bool) -> bool {
        allow_breaks && !spaces && self.column > self.layout.width
    }

    fn write_plain(&mut self, text: &str, allow_breaks: bool) {
        let bytes = text.as_bytes();
        let v2 = self.layout.dialect == Dialect::V2;
        if (v2 || !text.is_empty()) && !self.whitespace {
            self.put(' ');
        }
        self.write_quotable(text, allow_breaks, |_, _| false, |_| true);
        if v2 || !bytes.is_empty() {
            self.whitespace = false;
        }
        self.indention = false;
    }

    fn write_single_quoted(&mut self, text: &str, allow_breaks: bool) {
        self.write_indicator("'", true, false, false);
        let last = text.len().saturating_sub(1);
        self.write_quotable(text, allow_breaks, |bytes, at| bytes[at] == b'\'', |at| at > 0 && at < last);
        self.write_indicator("'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    /// The body of plain and single-quoted scalars, folded at spaces where `foldable` allows.
    fn write_quotable(
        &mut self,
        text: &str,
        allow_breaks: bool,
        doubled: impl Fn(&[u8], usize) -> bool,
        foldable: impl Fn(usize) -> bool,
    ) {
        let bytes = text.as_bytes();
        let (mut spaces, mut breaks) = (false, false);
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at] == b' ' {
                if self.may_fold(allow_breaks, spaces) && foldable(at) && byte(bytes, at + 1) != b' ' {
                    self.write_indent();
                    at += 1;
                } else {
                    at = self.write(text, at);
                }
                spaces = true;
            } else if is_break(bytes, at) {
                if !breaks && bytes[at] == b'\n' {
                    self.put_break();
                }
                at = self.write_break(text, at);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if doubled(bytes, at) {
                    self.put('\'');
                    at = self.write(text, at);
                } else {
                    at = self.write_run(text, at);
                }
                self.indention = false;
                (spaces, breaks) = (false, false);
            }
        }
    }

    /// Copies one character, or as many ASCII letters and digits as follow each other.
    fn write_run(&mut self, text: &str, at: usize) -> usize {
        let length =
            text.as_bytes()[at..].iter().take_while(|&&b| HARMLESS[b as usize] && b != b'\\').count();
        if length == 0 {
            return self.write(text, at);
        }
        self.out.push_str(&text[at..at + length]);
        self.column += length;
        at + length
    }

    fn write_double_quoted(&mut self, text: &str, allow_breaks: bool) {
        let bytes = text.as_bytes();
        // The Go library asks for a byte order mark at the start of the text when it should ask at each character.
        let escape_all = text.starts_with('\u{FEFF}');
        self.write_indicator("\"", true, false, false);
        let mut spaces = false;
        let mut at = 0;
        while at < bytes.len() {
            let character = bytes[at];
            if escape_all
                || !is_printable(bytes, at)
                || is_break(bytes, at)
                || matches!(character, b'"' | b'\\')
            {
                let Some(escaped) = text[at..].chars().next() else {
                    break;
                };
                self.write_escape(escaped);
                at += escaped.len_utf8();
                spaces = false;
            } else if character == b' ' {
                if self.may_fold(allow_breaks, spaces) && at > 0 && at < bytes.len() - 1 {
                    self.write_indent();
                    if byte(bytes, at + 1) == b' ' {
                        self.put('\\');
                    }
                    at += 1;
                } else {
                    at = self.write(text, at);
                }
                spaces = true;
            } else {
                at = self.write_run(text, at);
                spaces = false;
            }
        }
        self.write_indicator("\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn write_escape(&mut self, character: char) {
        self.put('\\');
        let short = match character {
            '\0' => '0',
            '\x07' => 'a',
            '\x08' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\x0B' => 'v',
            '\x0C' => 'f',
            '\r' => 'r',
            '\x1B' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{A0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ => {
                let code = u32::from(character);
                let escape = match code {
                    0..=0xFF => format!("x{code:02X}"),
                    0x100..=0xFFFF => format!("u{code:04X}"),
                    _ => format!("U{code:08X}"),
                };
                self.column += escape.len();
                self.out.push_str(&escape);
                return;
            }
        };
        self.put(short);
    }

    /// The digit and sign behind `|` or `>` that a reader needs to get the text back.
    fn write_block_hints(&mut self, text: &str) {
        let bytes = text.as_bytes();
        if byte(bytes, 0) == b' ' || is_break(bytes, 0) {
            let indent = self.layout.indent.to_string();
            self.write_indicator(&indent, false, false, false);
        }
        let mut ends = text.chars().rev();
        let is_break = |c: char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let hint = match (ends.next(), ends.next()) {
            (Some(last), _) if !is_break(last) => "-",
            (Some(_), Some(before)) if !is_break(before) => return,
            (Some(_), _) => "+",
            (None, _) => "-",
        };
        self.write_indicator(hint, false, false, false);
    }

    fn write_literal(&mut self, text: &str) {
        self.write_indicator("|", true, false, false);
        self.write_block_hints(text);
        self.begin_block();
        let bytes = text.as_bytes();
        let mut breaks = true;
        let mut at = 0;
        while at < bytes.len() {
            if is_break(bytes, at) {
                at = self.write_break(text, at);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                let line = bytes[at..].iter().position(|&b| matches!(b, b'\n' | b'\r' | 0xC2 | 0xE2));
                if line == Some(0) {
                    at = self.write(text, at);
                } else {
                    let end = line.map_or(bytes.len(), |length| at + length);
                    self.out.push_str(&text[at..end]);
                    self.column += text[at..end].chars().count();
                    at = end;
                }
                self.indention = false;
                breaks = false;
            }
        }
    }

    fn begin_block(&mut self) {
        if self.line_comment.is_empty() {
            self.put_break();
        } else {
            self.write_line_comment();
        }
        self.indention = true;
        self.whitespace = true;
    }

    /// Writes the comment that waits for the end of the line, if there is one, and ends the line.
    pub(crate) fn write_line_comment(&mut self) {
        if self.line_comment.is_empty() {
            return;
        }
        if !self.whitespace {
            self.put(' ');
        }
        let comment = std::mem::take(&mut self.line_comment);
        self.write_comment(&comment);
    }

    /// Writes a comment of one or more lines, each with its `#`, from the current column; ends the line.
    pub(crate) fn write_comment(&mut self, comment: &str) {
        let bytes = comment.as_bytes();
        let (mut breaks, mut pound) = (false, false);
        let mut at = 0;
        while at < bytes.len() {
            if is_break(bytes, at) {
                at = self.write_break(comment, at);
                (breaks, pound) = (true, false);
            } else {
                if breaks {
                    self.write_indent();
                }
                if !pound {
                    if bytes[at] != b'#' {
                        self.put('#');
                        self.put(' ');
                    }
                    pound = true;
                }
                at = self.write(comment, at);
                self.indention = false;
                breaks = false;
            }
        }
        if !breaks {
            self.put_break();
        }
        self.whitespace = true;
    }

    fn write_folded(&mut self, text: &str) {
        self.write_indicator(">", true, false, false);
        self.write_block_hints(text);
        self.begin_block();
        let bytes = text.as_bytes();
        let (mut breaks, mut leading_spaces) = (true, true);
        let mut at = 0;
        while at < bytes.len() {
            if is_break(bytes, at) {
                if !breaks && !leading_spaces && bytes[at] == b'\n' {
                    let mut behind = 0;
                    while is_break(bytes, behind) {
                        behind += break_width(bytes, behind);
                    }
                    if !is_white_or_end(bytes, behind) {
                        self.put_break();
                    }
                }
                at = self.write_break(text, at);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                    leading_spaces = is_blank(bytes[at]);
                }
                let fold = !breaks
                    && bytes[at] == b' '
                    && byte(bytes, at + 1) != b' '
                    && self.column > self.layout.width;
                if fold {
                    self.write_indent();
                    at += 1;
                } else {
                    at = self.write(text, at);
                }
                self.indention = false;
                breaks = false;
            }
        }
    }
}
