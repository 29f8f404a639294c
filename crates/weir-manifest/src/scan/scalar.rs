//! Scalars: literal and folded blocks, quoted and plain.

use std::borrow::Cow;

use super::{Mark, ScalarStyle, Scanned, Scanner, Token, TokenKind};
use crate::chars::{byte, is_blank, is_break, is_white_or_end, line_end, width};

/// Bytes that never end a plain scalar.
const ORDINARY: [bool; 256] = {
    let mut table = [true; 256];
    let ending = b"\0 \t\n\r:,?[]{}\xC2\xE2";
    let mut at = 0;
    while at < ending.len() {
        table[ending[at] as usize] = false;
        at += 1;
    }
    table
};

impl Scanner<'_> {
    pub(super) fn fetch_block_scalar(&mut self, literal: bool) -> Scanned<()> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        let start = self.mark();
        self.offset += 1;

        let mut chomping = None;
        let mut increment = 0;
        // One digit and one chomping sign, in either order.
        for _ in 0..2 {
            match byte(self.bytes, self.offset) {
                sign @ (b'+' | b'-') if chomping.is_none() => {
                    chomping = Some(sign);
                    self.offset += 1;
                }
                b'0' if increment == 0 => {
                    return Err(self.error("found an indentation indicator equal to 0", start));
                }
                digit @ b'1'..=b'9' if increment == 0 => {
                    increment = i32::from(digit - b'0');
                    self.offset += 1;
                }
                _ => break,
            }
        }
        self.skip_blanks();
        if byte(self.bytes, self.offset) == b'#' {
            self.scan_line_comment(start);
        }
        self.skip_rest_of_line(start)?;
        let mut end = self.mark();

        let mut indent = if increment > 0 { self.indent.max(0) + increment } else { 0 };
        let mut value = String::new();
        let mut breaks = String::new();
        let mut leading_break = String::new();
        self.read_block_breaks(&mut indent, &mut breaks, start, &mut end)?;

        let mut leading_blank = false;
        while self.column() as i32 == indent && self.offset < self.bytes.len() {
            let blank = is_blank(byte(self.bytes, self.offset));
            if !literal && !leading_blank && !blank && leading_break.starts_with('\n') {
                if breaks.is_empty() {
                    value.push(' ');
                }
            } else {
                value.push_str(&leading_break);
            }
            leading_break.clear();
            value.push_str(&breaks);
            breaks.clear();
            leading_blank = blank;
            let from = self.offset;
            self.offset = line_end(self.bytes, from);
            value.push_str(self.text.get(from..self.offset).unwrap_or_default());
            self.read_break(&mut leading_break);
            self.read_block_breaks(&mut indent, &mut breaks, start, &mut end)?;
        }
        if chomping != Some(b'-') {
            value.push_str(&leading_break);
        }
        if chomping == Some(b'+') {
            value.push_str(&breaks);
        }
        let style = if literal { ScalarStyle::Literal } else { ScalarStyle::Folded };
        let kind = TokenKind::Scalar { value: Cow::Owned(value), style };
        self.tokens.push_back(Token { kind, start, end });
        Ok(())
    }

    /// Eats indentation and empty lines; decides the indentation if it is not known yet (0).
    fn read_block_breaks(
        &mut self,
        indent: &mut i32,
        breaks: &mut String,
        start: Mark,
        end: &mut Mark,
    ) -> Scanned<()> {
        *end = self.mark();
        let mut deepest = 0;
        loop {
            while (*indent == 0 || (self.column() as i32) < *indent) && byte(self.bytes, self.offset) == b' '
            {
                self.offset += 1;
            }
            deepest = deepest.max(self.column() as i32);
            if (*indent == 0 || (self.column() as i32) < *indent) && byte(self.bytes, self.offset) == b'\t' {
                return Err(self.error("found a tab character where an indentation space is expected", start));
            }
            if !is_break(self.bytes, self.offset) {
                break;
            }
            self.read_break(breaks);
            *end = self.mark();
        }
        if *indent == 0 {
            *indent = deepest.max(self.indent + 1).max(1);
        }
        Ok(())
    }

    pub(super) fn fetch_quoted_scalar(&mut self, single: bool) -> Scanned<()> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        self.offset += 1;
        let quote = if single { b'\'' } else { b'"' };

        // Most quoted scalars hold no escape and no line break: their value is a slice of the text.
        let from = self.offset;
        let plain_part = self.bytes[from..]
            .iter()
            .position(|&b| b == quote || b == b'\\' || b == b'\n' || b == b'\r' || b == 0xC2 || b == 0xE2);
        if let Some(length) = plain_part {
            let at = from + length;
            let doubled = single && byte(self.bytes, at + 1) == b'\'';
            if byte(self.bytes, at) == quote && !doubled {
                self.offset = at + 1;
                let value = Cow::Borrowed(self.text.get(from..at).unwrap_or_default());
                let style = if single { ScalarStyle::SingleQuoted } else { ScalarStyle::DoubleQuoted };
                self.push(TokenKind::Scalar { value, style }, start);
                return Ok(());
            }
        }

        let mut value = String::new();
        let mut leading_break = String::new();
        let mut trailing_breaks = String::new();
        loop {
            if self.at_document_indicator() {
                return Err(self.error("found unexpected document indicator", start));
            }
            if self.offset >= self.bytes.len() {
                return Err(self.error("found unexpected end of stream", start));
            }
            let mut after_break = false;
            let mut run = self.offset;
            while !is_white_or_end(self.bytes, self.offset) {
                let next = byte(self.bytes, self.offset);
                if next == quote {
                    if single && byte(self.bytes, self.offset + 1) == b'\'' {
                        value.push_str(self.text.get(run..=self.offset).unwrap_or_default());
                        self.offset += 2;
                        run = self.offset;
                        continue;
                    }
                    break;
                }
                if single || next != b'\\' {
                    self.offset += width(next);
                    continue;
                }
                value.push_str(self.text.get(run..self.offset).unwrap_or_default());
                if is_break(self.bytes, self.offset + 1) {
                    self.offset += 1;
                    self.skip_break();
                    after_break = true;
                    run = self.offset;
                    break;
                }
                self.read_escape(&mut value, start)?;
                run = self.offset;
            }
            value.push_str(self.text.get(run..self.offset).unwrap_or_default());
            if byte(self.bytes, self.offset) == quote {
                break;
            }
            // Blanks and line breaks: folded, or kept when they stay on one line.
            let blanks = self.offset;
            let mut blanks_end = self.offset;
            loop {
                if is_blank(byte(self.bytes, self.offset)) {
                    self.offset += 1;
                    if !after_break {
                        blanks_end = self.offset;
                    }
                } else if is_break(self.bytes, self.offset) {
                    if after_break {
                        self.read_break(&mut trailing_breaks);
                    } else {
                        self.read_break(&mut leading_break);
                        after_break = true;
                    }
                } else {
                    break;
                }
            }
            if after_break {
                join_lines(&mut value, &mut leading_break, &mut trailing_breaks);
            } else {
                value.push_str(self.text.get(blanks..blanks_end).unwrap_or_default());
            }
        }
        self.offset += 1;
        let style = if single { ScalarStyle::SingleQuoted } else { ScalarStyle::DoubleQuoted };
        self.push(TokenKind::Scalar { value: Cow::Owned(value), style }, start);
        Ok(())
    }

    fn read_escape(&mut self, value: &mut String, start: Mark) -> Scanned<()> {
        let mut digits = 0;
        match byte(self.bytes, self.offset + 1) {
            b'0' => value.push('\0'),
            b'a' => value.push('\x07'),
            b'b' => value.push('\x08'),
            b't' | b'\t' => value.push('\t'),
            b'n' => value.push('\n'),
            b'v' => value.push('\x0B'),
            b'f' => value.push('\x0C'),
            b'r' => value.push('\r'),
            b'e' => value.push('\x1B'),
            b' ' => value.push(' '),
            b'"' => value.push('"'),
            b'\'' => value.push('\''),
            b'\\' => value.push('\\'),
            b'N' => value.push('\u{85}'),
            b'_' => value.push('\u{A0}'),
            b'L' => value.push('\u{2028}'),
            b'P' => value.push('\u{2029}'),
            b'x' => digits = 2,
            b'u' => digits = 4,
            b'U' => digits = 8,
            _ => return Err(self.error("found unknown escape character", start)),
        }
        self.offset += 2;
        if digits == 0 {
            return Ok(());
        }
        let mut code = 0_u32;
        for at in self.offset..self.offset + digits {
            match char::from(byte(self.bytes, at)).to_digit(16) {
                Some(digit) => code = (code << 4) | digit,
                None => return Err(self.error("did not find expected hexdecimal number", start)),
            }
        }
        match char::from_u32(code) {
            Some(character) => value.push(character),
            None => return Err(self.error("found invalid Unicode character escape code", start)),
        }
        self.offset += digits;
        Ok(())
    }

    pub(super) fn fetch_plain_scalar(&mut self) -> Scanned<()> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        let in_flow = self.in_flow();
        let indent = self.indent + 1;

        // The value so far is `first` as long as everything is on one line, else it has been copied to `joined`.
        let mut first: Option<(usize, usize)> = None;
        let mut joined: Option<String> = None;
        let mut leading_break = String::new();
        let mut trailing_breaks = String::new();
        let mut after_break = false;
        let mut end = self.mark();
        loop {
            if self.at_document_indicator() || byte(self.bytes, self.offset) == b'#' {
                break;
            }
            let run = self.offset;
            loop {
                while self.bytes.get(self.offset).is_some_and(|byte| ORDINARY[usize::from(*byte)]) {
                    self.offset += 1;
                }
                let next = byte(self.bytes, self.offset);
                let stop = match next {
                    b' ' | b'\t' | b'\n' | b'\r' | 0 => true,
                    0xC2 | 0xE2 => is_break(self.bytes, self.offset),
                    b':' => is_white_or_end(self.bytes, self.offset + 1),
                    b',' | b'?' | b'[' | b']' | b'{' | b'}' => in_flow,
                    _ => false,
                };
                if stop {
                    break;
                }
                self.offset += 1;
            }
            if self.offset > run {
                if after_break {
                    let joined = joined.get_or_insert_with(|| {
                        first.and_then(|(from, to)| self.text.get(from..to)).unwrap_or_default().to_owned()
                    });
                    join_lines(joined, &mut leading_break, &mut trailing_breaks);
                    joined.push_str(self.text.get(run..self.offset).unwrap_or_default());
                    after_break = false;
                } else if let Some(joined) = &mut joined {
                    joined.push_str(self.text.get(end.offset as usize..self.offset).unwrap_or_default());
                } else {
                    first = Some((first.map_or(run, |(from, _)| from), self.offset));
                }
                end = self.mark();
            }
            if !is_blank(byte(self.bytes, self.offset)) && !is_break(self.bytes, self.offset) {
                break;
            }
            loop {
                let next = byte(self.bytes, self.offset);
                if is_blank(next) {
                    if after_break && next == b'\t' && (self.column() as i32) < indent {
                        return Err(self.error("found a tab character that violates indentation", start));
                    }
                    self.offset += 1;
                } else if is_break(self.bytes, self.offset) {
                    if after_break {
                        self.read_break(&mut trailing_breaks);
                    } else {
                        self.read_break(&mut leading_break);
                        after_break = true;
                    }
                } else {
                    break;
                }
            }
            if !in_flow && (self.column() as i32) < indent {
                break;
            }
        }
        let value = match (joined, first) {
            (Some(joined), _) => Cow::Owned(joined),
            (None, Some((from, to))) => Cow::Borrowed(self.text.get(from..to).unwrap_or_default()),
            (None, None) => Cow::Borrowed(""),
        };
        self.tokens.push_back(Token {
            kind: TokenKind::Scalar { value, style: ScalarStyle::Plain },
            start,
            end,
        });
        if after_break {
            self.simple_key_allowed = true;
        }
        Ok(())
    }
}

/// Adds to `value` what a run of line breaks inside a scalar means: one break is a space, more are kept less one.
fn join_lines(value: &mut String, leading_break: &mut String, trailing_breaks: &mut String) {
    if leading_break.starts_with('\n') {
        if trailing_breaks.is_empty() {
            value.push(' ');
        } else {
            value.push_str(trailing_breaks);
        }
    } else {
        value.push_str(leading_break);
        value.push_str(trailing_breaks);
    }
    leading_break.clear();
    trailing_breaks.clear();
}
