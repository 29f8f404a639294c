//! What plain YAML scalars mean to the reader of resources, and how Go prints numbers.

use base64::Engine as _;
use serde_json::{Number, Value};

use crate::node::Tag;

/// A resolved scalar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Resolved<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    String(&'a str),
    /// A string that is not the source text: a decoded timestamp or binary.
    Owned(String),
    Merge,
    /// The text does not fit its explicit tag.
    Invalid,
}

/// The tag a plain scalar gets when it is read.
pub(crate) fn tag_of(text: &str) -> Tag {
    let Some(first) = text.bytes().next() else { return Tag::Null };
    match first {
        b'+' | b'-' | b'0'..=b'9' | b'.' => {
            if parse_timestamp(text).is_some() {
                return Tag::Timestamp;
            }
            match resolve_number(text) {
                Some(Resolved::Float(_)) => Tag::Float,
                Some(_) => Tag::Int,
                None => Tag::String,
            }
        }
        b'~' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'<' => match keyword(text) {
            Some(Resolved::Null) => Tag::Null,
            Some(Resolved::Bool(_)) => Tag::Bool,
            Some(_) => Tag::Merge,
            None => Tag::String,
        },
        _ => Tag::String,
    }
}

/// The value of a plain scalar without tag.
pub(crate) fn resolve(text: &str) -> Resolved<'_> {
    let Some(first) = text.bytes().next() else { return Resolved::Null };
    match first {
        b'+' | b'-' | b'0'..=b'9' | b'.' => {
            if let Some(timestamp) = parse_timestamp(text) {
                return Resolved::Owned(timestamp);
            }
            resolve_number(text).unwrap_or(Resolved::String(text))
        }
        b'~' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'<' => {
            keyword(text).unwrap_or(Resolved::String(text))
        }
        _ => Resolved::String(text),
    }
}

/// The value of a scalar with a tag that differs from what its text alone would give.
pub(crate) fn resolve_as(text: &str, tag: Tag) -> Resolved<'_> {
    match (tag, resolve(text)) {
        (Tag::Float, Resolved::Int(number)) => Resolved::Float(number as f64),
        (Tag::Float, Resolved::Unsigned(number)) => Resolved::Float(number as f64),
        (Tag::Null, value @ Resolved::Null)
        | (Tag::Bool, value @ Resolved::Bool(_))
        | (Tag::Int, value @ (Resolved::Int(_) | Resolved::Unsigned(_)))
        | (Tag::Float, value @ Resolved::Float(_))
        | (Tag::Timestamp, value @ Resolved::Owned(_)) => value,
        _ => Resolved::Invalid,
    }
}

fn keyword(text: &str) -> Option<Resolved<'static>> {
    Some(match text {
        "~" | "null" | "Null" | "NULL" => Resolved::Null,
        "true" | "True" | "TRUE" => Resolved::Bool(true),
        "false" | "False" | "FALSE" => Resolved::Bool(false),
        "<<" => Resolved::Merge,
        _ => return None,
    })
}

fn resolve_number(text: &str) -> Option<Resolved<'static>> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Some(Resolved::Float(f64::INFINITY));
        }
        "-.inf" | "-.Inf" | "-.INF" => return Some(Resolved::Float(f64::NEG_INFINITY)),
        ".nan" | ".NaN" | ".NAN" => return Some(Resolved::Float(f64::NAN)),
        _ => {}
    }
    let without_underscores;
    let plain = if text.contains('_') && !text.starts_with('.') {
        without_underscores = text.replace('_', "");
        without_underscores.as_str()
    } else {
        text
    };
    if let Some(number) = parse_integer(plain) {
        return Some(number);
    }
    if is_float(plain) {
        // What overflows is text, as Go refuses to parse it.
        return plain.parse().ok().filter(|number: &f64| number.is_finite()).map(Resolved::Float);
    }
    None
}

/// Integers with Go's base prefixes; a leading zero means octal.
fn parse_integer(text: &str) -> Option<Resolved<'static>> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| (byte as char).is_digit(radix)) {
        return None;
    }
    let magnitude = u128::from_str_radix(digits, radix).ok()?;
    if negative {
        let value = i64::try_from(-i128::try_from(magnitude).ok()?).ok()?;
        return Some(Resolved::Int(value));
    }
    if let Ok(value) = i64::try_from(magnitude) {
        return Some(Resolved::Int(value));
    }
    // A sign is not accepted for the unsigned range.
    if text.starts_with('+') {
        return None;
    }
    u64::try_from(magnitude).ok().map(Resolved::Unsigned)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let mut rest = &text[whole..];
    if let Some(after) = rest.strip_prefix('.') {
        let fraction = digits(after);
        if whole == 0 && fraction == 0 {
            return false;
        }
        rest = &after[fraction..];
    } else if whole == 0 {
        return false;
    }
    if let Some(after) = rest.strip_prefix(['e', 'E']) {
        let after = after.strip_prefix(['-', '+']).unwrap_or(after);
        let exponent = digits(after);
        return exponent > 0 && exponent == after.len();
    }
    rest.is_empty()
}

/// The RFC 3339 text of a YAML timestamp, or `None` if the text is none.
pub(crate) fn parse_timestamp(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    // Quick rejection: four digits and a dash start every timestamp.
    if bytes.len() < 8 || !bytes[..4].iter().all(u8::is_ascii_digit) || bytes[4] != b'-' {
        return None;
    }
    let mut cursor = Cursor { bytes, at: 5 };
    let year: u32 = text[..4].parse().ok()?;
    let month = cursor.number(1, 2)?;
    cursor.expect(b'-')?;
    let day = cursor.number(1, 2)?;
    if !(1..=12).contains(&month) || day == 0 || day > days_in(year, month) {
        return None;
    }
    if cursor.done() {
        return Some(format!("{year:04}-{month:02}-{day:02}T00:00:00Z"));
    }
    let separator = cursor.next()?;
    if !matches!(separator, b'T' | b't' | b' ') {
        return None;
    }
    let hour = cursor.number(1, 2)?;
    cursor.expect(b':')?;
    let minute = cursor.number(1, 2)?;
    cursor.expect(b':')?;
    let second = cursor.number(1, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut fraction = "";
    if cursor.peek() == Some(b'.') {
        cursor.at += 1;
        let start = cursor.at;
        while cursor.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            cursor.at += 1;
        }
        if cursor.at == start {
            return None;
        }
        fraction = text[start..cursor.at.min(start + 9)].trim_end_matches('0');
    }
    let offset = if separator == b' ' {
        if !cursor.done() {
            return None;
        }
        "Z".to_owned()
    } else {
        match cursor.next()? {
            b'Z' if cursor.done() => "Z".to_owned(),
            sign @ (b'+' | b'-') => {
                let hours = cursor.number(2, 2)?;
                cursor.expect(b':')?;
                let minutes = cursor.number(2, 2)?;
                if !cursor.done() || hours > 24 || minutes > 60 {
                    return None;
                }
                if hours == 0 && minutes == 0 {
                    "Z".to_owned()
                } else {
                    format!("{}{hours:02}:{minutes:02}", sign as char)
                }
            }
            _ => return None,
        }
    };
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{dot}{fraction}{offset}"))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn done(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn number(&mut self, digits_min: usize, digits_max: usize) -> Option<u32> {
        let mut value = 0;
        let mut count = 0;
        while count < digits_max && self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            value = value * 10 + u32::from(self.next()? - b'0');
            count += 1;
        }
        (count >= digits_min).then_some(value)
    }
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Decodes `!!binary` text to the string it stands for.
pub(crate) fn decode_binary(text: &str) -> Resolved<'static> {
    let compact: String = text.chars().filter(|character| !character.is_whitespace()).collect();
    match base64::engine::general_purpose::STANDARD.decode(compact) {
        Ok(bytes) => Resolved::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        Err(_) => Resolved::Invalid,
    }
}

/// Whether a YAML 1.1 reader takes the plain text for something other than a string.
pub(crate) fn is_old_non_string(text: &str) -> bool {
    if text.is_empty() || text.contains('\n') {
        return false;
    }
    tag_of(text) != Tag::String
        || is_old_bool_or_base_60(text)
        || text.starts_with(['{', '[', '#'])
        || text.contains(": ")
        || text.ends_with(':')
        || text.starts_with("- ")
        || text == "-"
}

/// `yes`, `on`, `n`… and sexagesimal numbers, which only YAML 1.1 gives a meaning.
pub(crate) fn is_old_bool_or_base_60(text: &str) -> bool {
    matches!(
        text,
        "y" | "Y"
            | "yes"
            | "Yes"
            | "YES"
            | "on"
            | "On"
            | "ON"
            | "n"
            | "N"
            | "no"
            | "No"
            | "NO"
            | "off"
            | "Off"
            | "OFF"
    ) || is_base_60(text)
}

/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`
fn is_base_60(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !text.starts_with(|character: char| character.is_ascii_digit()) {
        return false;
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
        return false;
    }
    let mut parts = whole.split(':');
    let head = parts.next().unwrap_or_default();
    let mut groups = 0;
    for part in parts {
        let fine = match part.as_bytes() {
            [digit] => digit.is_ascii_digit(),
            [tens, digit] => (b'0'..=b'5').contains(tens) && digit.is_ascii_digit(),
            _ => false,
        };
        if !fine {
            return false;
        }
        groups += 1;
    }
    groups > 0 && head.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// Whether the writer may leave the text unquoted, as far as its characters go.
pub(crate) fn plain_allowed(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    if matches!(first, b' ' | b'\t') || matches!(last, b' ' | b'\t' | b':') {
        return false;
    }
    match first {
        b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"' | b'%'
        | b'@' | b'`' => return false,
        b'-' | b'?' | b':' if bytes.len() == 1 || matches!(bytes[1], b' ' | b'\t') => {
            return false;
        }
        _ => {}
    }
    if text.starts_with("---") || text.starts_with("...") {
        return false;
    }
    !text.contains(": ") && !text.contains(" #") && !text.chars().any(char::is_control)
}

/// A float as Go's `encoding/json` and then the YAML reader see it; `None` if it is not finite.
pub(crate) fn float_to_json(number: f64) -> Option<Value> {
    if !number.is_finite() {
        return None;
    }
    if number.fract() == 0.0 && number.abs() < 1e21 {
        let digits = format!("{number:.0}");
        if let Ok(integer) = digits.parse::<i64>() {
            return Some(Value::from(integer));
        }
        if let Ok(integer) = digits.parse::<u64>() {
            return Some(Value::from(integer));
        }
    }
    Number::from_f64(number).map(Value::Number)
}

/// Go's shortest `%g`: exponent form below `1e-4` and from `1e+06` on.
pub(crate) fn format_general(number: f64) -> String {
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_have_the_types_of_the_resource_reader() {
        for (text, expected) in [
            ("0644", Resolved::Int(420)),
            ("0o644", Resolved::Int(420)),
            ("0x1F", Resolved::Int(31)),
            ("0b11", Resolved::Int(3)),
            ("1_000", Resolved::Int(1000)),
            ("-5", Resolved::Int(-5)),
            ("18446744073709551615", Resolved::Unsigned(u64::MAX)),
            ("1.50", Resolved::Float(1.5)),
            ("1e3", Resolved::Float(1000.0)),
            ("09", Resolved::Float(9.0)),
            ("yes", Resolved::String("yes")),
            ("TRUE", Resolved::Bool(true)),
            ("~", Resolved::Null),
            ("", Resolved::Null),
            ("1.2.3", Resolved::String("1.2.3")),
            ("1:30", Resolved::String("1:30")),
            ("2020-01-01", Resolved::Owned("2020-01-01T00:00:00Z".to_owned())),
            ("2020-13-01", Resolved::String("2020-13-01")),
            ("2020-01-01T10:00:00.50+02:00", Resolved::Owned("2020-01-01T10:00:00.5+02:00".into())),
        ] {
            assert_eq!(resolve(text), expected, "{text}");
        }
    }

    #[test]
    fn floats_print_as_go_prints_them() {
        for (number, expected) in [
            (1_000_000.0, "1e+06"),
            (100_000.0, "100000"),
            (8080.0, "8080"),
            (123_456_789.0, "1.23456789e+08"),
            (0.00001, "1e-05"),
            (0.0001, "0.0001"),
            (1.5, "1.5"),
            (-20.25, "-20.25"),
        ] {
            assert_eq!(format_general(number), expected);
        }
    }
}
