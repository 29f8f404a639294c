//! Directives, anchors and tags.

use std::borrow::Cow;

use super::{Mark, Scanned, Scanner, Token, TokenKind};
use crate::chars::{byte, is_blank, is_break_or_end, is_white_or_end, is_word};

impl<'a> Scanner<'a> {
    pub(super) fn fetch_directive(&mut self) -> Scanned<()> {
        self.unroll_indent(-1, self.mark());
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        self.offset += 1;
        let name = self.read_word();
        if name.is_empty() {
            return Err(self.error("could not find expected directive name", start));
        }
        if !is_white_or_end(self.bytes, self.offset) {
            return Err(self.error("found unexpected non-alphabetical character", start));
        }
        let (kind, end) = match name {
            "YAML" => {
                self.skip_blanks();
                let major = self.read_version_number(start)?;
                if byte(self.bytes, self.offset) != b'.' {
                    return Err(self.error("did not find expected digit or '.' character", start));
                }
                self.offset += 1;
                let minor = self.read_version_number(start)?;
                (TokenKind::VersionDirective { major, minor }, self.mark())
            }
            "TAG" => {
                self.skip_blanks();
                let handle = self.read_tag_handle(true, start)?;
                if !is_blank(byte(self.bytes, self.offset)) {
                    return Err(self.error("did not find expected whitespace", start));
                }
                self.skip_blanks();
                let prefix = self.read_tag_uri("", start)?;
                if !is_white_or_end(self.bytes, self.offset) {
                    return Err(self.error("did not find expected whitespace or line break", start));
                }
                (TokenKind::TagDirective { handle, prefix }, self.mark())
            }
            _ => return Err(self.error("found unknown directive name", start)),
        };
        self.skip_rest_of_line(start)?;
        self.tokens.push_back(Token { kind, start, end });
        Ok(())
    }

    /// Skips blanks, a comment and the line break; anything else is an error.
    pub(super) fn skip_rest_of_line(&mut self, context: Mark) -> Scanned<()> {
        self.skip_blanks();
        if byte(self.bytes, self.offset) == b'#' {
            self.skip_comment();
        }
        if !is_break_or_end(self.bytes, self.offset) {
            return Err(self.error("did not find expected comment or line break", context));
        }
        self.skip_break();
        Ok(())
    }

    pub(super) fn skip_blanks(&mut self) {
        while is_blank(byte(self.bytes, self.offset)) {
            self.offset += 1;
        }
    }

    fn read_word(&mut self) -> &'a str {
        let start = self.offset;
        while is_word(byte(self.bytes, self.offset)) {
            self.offset += 1;
        }
        self.text.get(start..self.offset).unwrap_or_default()
    }

    fn read_version_number(&mut self, start: Mark) -> Scanned<u8> {
        let mut value = 0_u8;
        let mut length = 0;
        while byte(self.bytes, self.offset).is_ascii_digit() {
            length += 1;
            if length > 2 {
                return Err(self.error("found extremely long version number", start));
            }
            value = value * 10 + (byte(self.bytes, self.offset) - b'0');
            self.offset += 1;
        }
        if length == 0 {
            return Err(self.error("did not find expected version number", start));
        }
        Ok(value)
    }

    pub(super) fn fetch_anchor(&mut self, alias: bool) -> Scanned<()> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        self.offset += 1;
        let name = self.read_word();
        let follows = byte(self.bytes, self.offset);
        let ends_well = is_white_or_end(self.bytes, self.offset) || b"?:,]}%@`".contains(&follows);
        if name.is_empty() || !ends_well {
            return Err(self.error("did not find expected alphabetic or numeric character", start));
        }
        self.push(if alias { TokenKind::Alias(name) } else { TokenKind::Anchor(name) }, start);
        Ok(())
    }

    pub(super) fn fetch_tag(&mut self) -> Scanned<()> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark();
        let (handle, suffix);
        if byte(self.bytes, self.offset + 1) == b'<' {
            self.offset += 2;
            handle = "";
            suffix = self.read_tag_uri("", start)?;
            if byte(self.bytes, self.offset) != b'>' {
                return Err(self.error("did not find the expected '>'", start));
            }
            self.offset += 1;
        } else {
            let first = self.read_tag_handle(false, start)?;
            if first.len() > 1 && first.ends_with('!') {
                handle = first;
                suffix = self.read_tag_uri("", start)?;
            } else {
                let rest = self.read_tag_uri(first, start)?;
                // A lone `!` is a tag of its own.
                (handle, suffix) = if rest.is_empty() { ("", Cow::Borrowed("!")) } else { ("!", rest) };
            }
        }
        if !is_white_or_end(self.bytes, self.offset) {
            return Err(self.error("did not find expected whitespace or line break", start));
        }
        self.push(TokenKind::Tag { handle, suffix }, start);
        Ok(())
    }

    fn read_tag_handle(&mut self, directive: bool, start: Mark) -> Scanned<&'a str> {
        if byte(self.bytes, self.offset) != b'!' {
            return Err(self.error("did not find expected '!'", start));
        }
        let from = self.offset;
        self.offset += 1;
        while is_word(byte(self.bytes, self.offset)) {
            self.offset += 1;
        }
        if byte(self.bytes, self.offset) == b'!' {
            self.offset += 1;
        } else if directive && self.offset - from > 1 {
            return Err(self.error("did not find expected '!'", start));
        }
        Ok(self.text.get(from..self.offset).unwrap_or_default())
    }

    /// Reads a tag's URI that begins with all but the first character of `head`, which has been read already.
    fn read_tag_uri(&mut self, head: &'a str, start: Mark) -> Scanned<Cow<'a, str>> {
        let from = self.offset;
        let mut escaped: Option<Vec<u8>> = None;
        loop {
            let next = byte(self.bytes, self.offset);
            if next == b'%' {
                let so_far = escaped.get_or_insert_with(|| self.bytes[from..self.offset].to_vec());
                let mut octets = Vec::new();
                let end = read_uri_escape(self.bytes, self.offset, &mut octets);
                so_far.extend_from_slice(&octets);
                match end {
                    Ok(end) => self.offset = end,
                    Err((at, problem)) => {
                        self.offset = at;
                        return Err(self.error(problem, start));
                    }
                }
            } else if is_word(next) || b";/?:@&=+$,.!~*'()[]".contains(&next) {
                if let Some(so_far) = &mut escaped {
                    so_far.push(next);
                }
                self.offset += 1;
            } else {
                break;
            }
        }
        if self.offset == from && head.is_empty() {
            return Err(self.error("did not find expected tag URI", start));
        }
        let head = head.get(1..).unwrap_or_default();
        match escaped {
            None if head.is_empty() => {
                Ok(Cow::Borrowed(self.text.get(from..self.offset).unwrap_or_default()))
            }
            // `head` ends where the URI begins.
            None => Ok(Cow::Borrowed(self.text.get(from - head.len()..self.offset).unwrap_or_default())),
            Some(octets) => Ok(Cow::Owned(format!("{head}{}", String::from_utf8_lossy(&octets)))),
        }
    }
}

/// Reads one percent-encoded character; gives the offset after it, or the offset and text of the problem.
fn read_uri_escape(bytes: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, (usize, &'static str)> {
    let mut left = 0_usize;
    loop {
        let digit = |at: usize| char::from(byte(bytes, at)).to_digit(16);
        let (b'%', Some(high), Some(low)) = (byte(bytes, at), digit(at + 1), digit(at + 2)) else {
            return Err((at, "did not find URI escaped octet"));
        };
        let octet = (high * 16 + low) as u8;
        if left == 0 {
            left = match octet {
                0..=0x7F => 1,
                0xC0..=0xDF => 2,
                0xE0..=0xEF => 3,
                0xF0..=0xF7 => 4,
                _ => return Err((at, "found an incorrect leading UTF-8 octet")),
            };
        } else if octet & 0xC0 != 0x80 {
            return Err((at, "found an incorrect trailing UTF-8 octet"));
        }
        out.push(octet);
        at += 3;
        left -= 1;
        if left == 0 {
            return Ok(at);
        }
    }
}
