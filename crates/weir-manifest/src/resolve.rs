//! What a scalar without quotes means: null, bool, number, timestamp or string.

use crate::error::{Error, ErrorKind};
use crate::number::{Number, parse_integer, parse_radix, parse_yaml_float};
use crate::parse::CORE_TAG_PREFIX;
use crate::scan::Dialect;
use crate::timestamp::Timestamp;

/// The meaning of a scalar. A merge key `<<` is a string here; only its place makes it one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Resolved {
    /// `null`, `~` or nothing.
    Null,
    /// `true`, `false` and, for readers of YAML 1.1, `yes`, `no`, `on`, `off`, `y`, `n`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A date, with or without a time.
    Timestamp(Timestamp),
    /// The text itself.
    String,
}

impl Resolved {
    /// The short tag of the meaning, such as `!!int`.
    pub fn short_tag(&self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Number(Number::Float(_)) => "!!float",
            Self::Number(_) => "!!int",
            Self::Timestamp(_) => "!!timestamp",
            Self::String => "!!str",
        }
    }
}

/// The meaning of plain text for readers of YAML 1.1: `sigs.k8s.io/yaml`, kubectl, Helm.
pub fn resolve_yaml11(text: &str) -> Resolved {
    resolve(Dialect::V2, text, true)
}

/// The meaning of plain text for kustomize's reader of resources, where `yes` and `on` are strings.
pub fn resolve_core(text: &str) -> Resolved {
    resolve(Dialect::V3, text, true)
}

/// A short tag such as `!!int` for a tag of the core schema, any other tag as it is.
pub(crate) fn short_tag(tag: &str) -> std::borrow::Cow<'_, str> {
    match tag.strip_prefix(CORE_TAG_PREFIX) {
        Some(rest) => format!("!!{rest}").into(),
        None => tag.into(),
    }
}

/// The meaning of a scalar that carries an explicit tag. Tags outside the core schema make strings.
pub(crate) fn resolve_tagged(dialect: Dialect, tag: &str, text: &str) -> Result<Resolved, Error> {
    let tag = short_tag(tag);
    if !matches!(&*tag, "!!str" | "!!bool" | "!!int" | "!!float" | "!!null" | "!!timestamp") || tag == "!!str"
    {
        return Ok(Resolved::String);
    }
    let resolved = resolve(dialect, text, tag == "!!timestamp");
    match resolved {
        _ if resolved.short_tag() == tag => Ok(resolved),
        Resolved::Number(Number::Int(value)) if tag == "!!float" => {
            Ok(Resolved::Number(Number::Float(value as f64)))
        }
        _ => Err(Error::new(
            ErrorKind::Content,
            format!("cannot decode {} `{text}` as a {tag}", resolved.short_tag()),
        )),
    }
}

fn resolve(dialect: Dialect, text: &str, timestamps: bool) -> Resolved {
    let Some(first) = text.bytes().next() else {
        return Resolved::Null;
    };
    match first {
        b'0'..=b'9' | b'+' | b'-' => resolve_number(dialect, text, timestamps),
        b'.' => match text {
            ".nan" | ".NaN" | ".NAN" => Resolved::Number(Number::Float(f64::NAN)),
            ".inf" | ".Inf" | ".INF" => Resolved::Number(Number::Float(f64::INFINITY)),
            _ => match parse_dotted_float(text) {
                Some(value) => Resolved::Number(Number::Float(value)),
                None => Resolved::String,
            },
        },
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' if text.len() <= 5 => {
            resolve_word(dialect, text)
        }
        _ => Resolved::String,
    }
}

fn resolve_word(dialect: Dialect, text: &str) -> Resolved {
    match text {
        "~" | "null" | "Null" | "NULL" => Resolved::Null,
        "true" | "True" | "TRUE" => Resolved::Bool(true),
        "false" | "False" | "FALSE" => Resolved::Bool(false),
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" if dialect == Dialect::V2 => {
            Resolved::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" if dialect == Dialect::V2 => {
            Resolved::Bool(false)
        }
        _ => Resolved::String,
    }
}

fn resolve_number(dialect: Dialect, text: &str, timestamps: bool) -> Resolved {
    match text {
        "+.inf" | "+.Inf" | "+.INF" => return Resolved::Number(Number::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Number(Number::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    if timestamps && let Some(timestamp) = Timestamp::parse(text) {
        return Resolved::Timestamp(timestamp);
    }
    let without_underscores;
    let text = if text.contains('_') {
        without_underscores = text.replace('_', "");
        &without_underscores
    } else {
        text
    };
    // The longest number of use is far shorter; the parsers below would only reject slowly what is longer.
    let number = parse_integer(text)
        .or_else(|| parse_yaml_float(text).map(Number::Float))
        .or_else(|| parse_prefixed(dialect, text));
    number.map_or(Resolved::String, Resolved::Number)
}

/// A float that begins with its point. Unlike elsewhere, underscores must stand between digits.
fn parse_dotted_float(text: &str) -> Option<f64> {
    if !text.contains('_') {
        return parse_yaml_float(text);
    }
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let between_digits = |at: usize| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    let well_placed = bytes.iter().enumerate().all(|(at, b)| *b != b'_' || between_digits(at));
    well_placed.then(|| parse_yaml_float(&text.replace('_', "")))?
}

/// `-0b…` and, in the newer library, `-0o…` with a second sign, which its lenient parsing lets through.
fn parse_prefixed(dialect: Dialect, text: &str) -> Option<Number> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (Some('-'), unsigned),
        None => (None, text),
    };
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'b', ..] => (2, &unsigned[2..]),
        [b'0', b'o', ..] if dialect == Dialect::V3 => (8, &unsigned[2..]),
        _ => return None,
    };
    match (sign, digits.as_bytes().first()?) {
        (None, b'-') => parse_radix(Some('-'), &digits[1..], radix),
        (None, b'+') => parse_radix(Some('+'), &digits[1..], radix),
        _ => parse_radix(sign, digits, radix),
    }
}
