//! Go strings: immutable bytes that are usually, but not always, UTF-8.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// A Go string: shared immutable bytes, cheap to clone.
///
/// Go strings may hold any bytes (`trunc` can cut a character in half, `b64dec` can yield a binary
/// file), so this is not `str`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(Rc<[u8]>);

impl Ord for Text {
    /// The order of bytes. Most keys that are compared differ in the first one.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0.first(), other.0.first()) {
            (Some(left), Some(right)) if left != right => left.cmp(right),
            _ => self.0.cmp(&other.0),
        }
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Text {
    /// The bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text with invalid bytes replaced by U+FFFD.
    ///
    /// Each invalid byte becomes one U+FFFD, as in Go.
    pub fn to_str_lossy(&self) -> Cow<'_, str> {
        if let Ok(text) = std::str::from_utf8(&self.0) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(self.0.len());
        let mut rest = &self.0[..];
        while !rest.is_empty() {
            let (character, length) = crate::strconv::decode_rune(rest);
            out.push(character.unwrap_or('\u{fffd}'));
            rest = &rest[length..];
        }
        Cow::Owned(out)
    }

    /// The text if it is valid UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Default for Text {
    fn default() -> Self {
        Self(Rc::from([].as_slice()))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Rc::from(text.as_bytes()))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Rc::from(text.into_bytes()))
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self(Rc::from(bytes))
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Rc::from(bytes))
    }
}

impl fmt::Display for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_str_lossy())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_str_lossy(), formatter)
    }
}
