//! From bytes to a text that may be YAML: encodings, size, characters that are never allowed.

use std::borrow::Cow;

use crate::chars::width;
use crate::error::{Error, ErrorKind};

/// The text of `bytes`, without a byte order mark; control characters and broken encodings are refused.
pub(crate) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, Error> {
    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => Cow::Owned(decode_utf16(rest, u16::from_le_bytes)?),
        [0xFE, 0xFF, rest @ ..] => Cow::Owned(decode_utf16(rest, u16::from_be_bytes)?),
        [0xEF, 0xBB, 0xBF, rest @ ..] => Cow::Borrowed(decode_utf8(rest)?),
        _ => Cow::Borrowed(decode_utf8(bytes)?),
    };
    check_text(&text)?;
    Ok(text)
}

/// Texts longer than this are refused: offsets have 32 bits.
pub const SIZE_BYTES_MAX: usize = 1 << 30;

pub(crate) fn check_text(text: &str) -> Result<(), Error> {
    if text.len() > SIZE_BYTES_MAX {
        let problem = format!("text of {} bytes is longer than 1 GiB", text.len());
        return Err(Error::new(ErrorKind::Limit, problem));
    }
    match find_control_character(text.as_bytes()) {
        None => Ok(()),
        Some(at) => {
            let before = text.get(..at).unwrap_or_default();
            Err(encoding_error("control characters are not allowed", before))
        }
    }
}

fn encoding_error(problem: &str, before: &str) -> Error {
    let line = before.bytes().filter(|&b| b == b'\n').count();
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    Error::new(ErrorKind::Encoding, problem).at(line + 1, column + 1)
}

fn decode_utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|error| {
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        let problem = match rest {
            [0x80..=0xBF | 0xF8..=0xFF, ..] => "invalid leading UTF-8 octet",
            [first, ..] if rest.len() < width(*first) => "incomplete UTF-8 octet sequence",
            [first, tail @ ..] if tail.iter().take(width(*first) - 1).any(|b| b & 0xC0 != 0x80) => {
                "invalid trailing UTF-8 octet"
            }
            [0xC0 | 0xC1, ..] | [0xE0, 0x80..=0x9F, ..] | [0xF0, 0x80..=0x8F, ..] => {
                "invalid length of a UTF-8 sequence"
            }
            _ => "invalid Unicode character",
        };
        encoding_error(problem, std::str::from_utf8(valid).unwrap_or_default())
    })
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, Error> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| unit(*pair));
    let mut text = String::with_capacity(bytes.len());
    for character in char::decode_utf16(units) {
        match character {
            Ok(character) => text.push(character),
            Err(error) => {
                let problem = if error.unpaired_surrogate() < 0xDC00 {
                    "expected low surrogate area"
                } else {
                    "unexpected low surrogate area"
                };
                return Err(encoding_error(problem, &text));
            }
        }
    }
    if rest.is_empty() { Ok(text) } else { Err(encoding_error("incomplete UTF-16 character", &text)) }
}

/// The offset of the first character YAML forbids: controls but tab, LF, CR and NEL; U+FFFE and U+FFFF.
fn find_control_character(text: &[u8]) -> Option<usize> {
    const SUSPECT: [bool; 256] = {
        let mut table = [false; 256];
        let mut at = 0;
        while at < 0x20 {
            table[at] = at != 0x09 && at != 0x0A && at != 0x0D;
            at += 1;
        }
        table[0x7F] = true;
        table[0xC2] = true;
        table[0xEF] = true;
        table
    };
    let mut from = 0;
    while let Some(length) = text.get(from..)?.iter().position(|&b| SUSPECT[b as usize]) {
        let at = from + length;
        let harmless = match text.get(at..)? {
            [0xC2, second, ..] => *second >= 0xA0 || *second == 0x85,
            [0xEF, second, third, ..] => !(*second == 0xBF && *third >= 0xBE),
            _ => false,
        };
        if !harmless {
            return Some(at);
        }
        from = at + 2;
    }
    None
}
