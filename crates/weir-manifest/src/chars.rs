//! Classes of characters, asked byte by byte at a position of a UTF-8 text.
//!
//! Positions past the end read as NUL, which cannot occur inside a text: the reader refuses control characters.

/// The byte at `at`, or 0 past the end.
#[inline]
pub(crate) fn byte(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or(0)
}

/// Whether `byte` may be part of an anchor, a tag handle or a directive name.
#[inline]
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[inline]
pub(crate) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// The width in bytes of the line break at `at`: LF, CR, CR LF, NEL, LS or PS; 0 if there is none.
#[inline]
pub(crate) fn break_width(text: &[u8], at: usize) -> usize {
    match byte(text, at) {
        b'\n' => 1,
        b'\r' => {
            if byte(text, at + 1) == b'\n' {
                2
            } else {
                1
            }
        }
        0xC2 if byte(text, at + 1) == 0x85 => 2,
        0xE2 if byte(text, at + 1) == 0x80 && matches!(byte(text, at + 2), 0xA8 | 0xA9) => 3,
        _ => 0,
    }
}

#[inline]
pub(crate) fn is_break(text: &[u8], at: usize) -> bool {
    break_width(text, at) != 0
}

/// Whether a line break or the end of the text is at `at`.
#[inline]
pub(crate) fn is_break_or_end(text: &[u8], at: usize) -> bool {
    byte(text, at) == 0 || is_break(text, at)
}

/// Where the line that `at` lies in ends: at its line break or at the end of the text.
pub(crate) fn line_end(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let rest = &rest[..memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len())];
    // NEL, LS and PS are rare, but their first bytes are not where texts are not English.
    let other = memchr::memchr2_iter(0xC2, 0xE2, rest).find(|place| is_break(text, at + place));
    at + other.unwrap_or(rest.len())
}

/// Whether a blank, a line break or the end of the text is at `at`.
#[inline]
pub(crate) fn is_white_or_end(text: &[u8], at: usize) -> bool {
    match byte(text, at) {
        b' ' | b'\t' | b'\r' | b'\n' | 0 => true,
        0xC2 | 0xE2 => is_break(text, at),
        _ => false,
    }
}

/// Whether the Go emitter writes the character at `at` as it is.
///
/// Its notion is narrower than YAML's: a tab and all characters beyond the basic plane (emoji) are not printable.
#[inline]
pub(crate) fn is_printable(text: &[u8], at: usize) -> bool {
    match byte(text, at) {
        0x0A | 0x20..=0x7E | 0xC3..=0xEC | 0xEE => true,
        0xC2 => byte(text, at + 1) >= 0xA0,
        0xED => byte(text, at + 1) < 0xA0,
        0xEF => {
            let (second, third) = (byte(text, at + 1), byte(text, at + 2));
            !matches!((second, third), (0xBB, 0xBF) | (0xBF, 0xBE..))
        }
        _ => false,
    }
}

/// The length in bytes of the UTF-8 character that starts with `first`.
#[inline]
pub(crate) fn width(first: u8) -> usize {
    match first {
        0..=0x7F => 1,
        0x80..=0xDF => 2,
        0xE0..=0xEF => 3,
        _ => 4,
    }
}
