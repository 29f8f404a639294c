//! Numbers as Go reads and prints them.

/// The text of a float as Go's `strconv.FormatFloat(f, 'g', -1, 64)` prints it, with YAML's words for the odd values.
///
/// The shortest digits that read back as the same number; exponent form below `1e-04` and from `1e+06`.
pub fn format_float(value: f64) -> String {
    general(&shortest(value), value.is_sign_negative(), value.is_nan(), value.is_infinite())
}

/// The same for a float that is rounded to 32 bits first, as the Go library does with map keys.
pub(crate) fn format_float32(value: f64) -> String {
    let value = value as f32;
    general(&format!("{value:e}"), value.is_sign_negative(), value.is_nan(), value.is_infinite())
}

fn general(exponent_form: &str, negative: bool, nan: bool, infinite: bool) -> String {
    if nan {
        return ".nan".to_owned();
    }
    if infinite {
        return if negative { "-.inf" } else { ".inf" }.to_owned();
    }
    let (digits, exponent) = split(exponent_form);
    let mut text = String::new();
    if negative {
        text.push('-');
    }
    if (-4..6).contains(&exponent) {
        push_positional(&mut text, &digits, exponent);
    } else {
        push_exponent_form(&mut text, &digits, exponent, 2);
    }
    text
}

/// The text of a float in JSON as Go's `encoding/json` writes it; none for infinities and NaN.
pub fn format_json_float(value: f64) -> Option<String> {
    if !value.is_finite() {
        return None;
    }
    let (digits, exponent) = split(&shortest(value));
    let mut text = String::new();
    if value.is_sign_negative() {
        text.push('-');
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        push_exponent_form(&mut text, &digits, exponent, if exponent < 0 { 1 } else { 2 });
    } else {
        push_positional(&mut text, &digits, exponent);
    }
    Some(text)
}

/// The shortest digits that read back as the same number, in exponent form; of two equally near ones the even one.
fn shortest(value: f64) -> String {
    let text = format!("{value:e}");
    let digits = text.bytes().take_while(|b| *b != b'e').filter(u8::is_ascii_digit).count();
    // Fewer digits cannot be half-way between two numbers.
    if digits < 15 {
        return text;
    }
    let rounded = format!("{value:.*e}", digits - 1);
    if rounded.parse() == Ok(value) { rounded } else { text }
}

/// Digits without point and sign, and the exponent of the first of them.
fn split(exponent_form: &str) -> (String, i32) {
    let (mantissa, exponent) = exponent_form.split_once('e').unwrap_or((exponent_form, "0"));
    let digits = mantissa.chars().filter(char::is_ascii_digit).collect();
    (digits, exponent.parse().unwrap_or(0))
}

fn push_exponent_form(text: &mut String, digits: &str, exponent: i32, exponent_digits: usize) {
    let (first, rest) = digits.split_at(1.min(digits.len()));
    text.push_str(first);
    if !rest.is_empty() {
        text.push('.');
        text.push_str(rest);
    }
    text.push('e');
    text.push(if exponent < 0 { '-' } else { '+' });
    let exponent = exponent.unsigned_abs().to_string();
    for _ in exponent.len()..exponent_digits {
        text.push('0');
    }
    text.push_str(&exponent);
}

fn push_positional(text: &mut String, digits: &str, exponent: i32) {
    if exponent < 0 {
        text.push_str("0.");
        for _ in 1..-exponent {
            text.push('0');
        }
        text.push_str(digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        text.push_str(digits);
        for _ in digits.len()..whole {
            text.push('0');
        }
    } else {
        text.push_str(&digits[..whole]);
        text.push('.');
        text.push_str(&digits[whole..]);
    }
}

/// A number as the Go resolvers find it in a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Fits a signed 64-bit integer.
    Int(i64),
    /// Only fits an unsigned 64-bit integer.
    Uint(u64),
    /// Anything else.
    Float(f64),
}

/// Go's `strconv.ParseInt(text, 0, 64)` and `ParseUint` for text whose underscores have been taken out.
pub(crate) fn parse_integer(text: &str) -> Option<Number> {
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (Some('-'), &text[1..]),
        b'+' => (Some('+'), &text[1..]),
        _ => (None, text),
    };
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &unsigned[2..]),
        [b'0', b'b' | b'B', _, ..] => (2, &unsigned[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    parse_radix(sign, digits, radix)
}

/// Digits with a sign that has been split off. A `+` is allowed for signed integers only.
pub(crate) fn parse_radix(sign: Option<char>, digits: &str, radix: u32) -> Option<Number> {
    // The standard parser would accept a second sign.
    if !digits.as_bytes().first()?.is_ascii_alphanumeric() {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match sign {
        Some('-') => 0_i64.checked_sub_unsigned(magnitude).map(Number::Int),
        _ => match i64::try_from(magnitude) {
            Ok(value) => Some(Number::Int(value)),
            Err(_) if sign.is_none() => Some(Number::Uint(magnitude)),
            Err(_) => None,
        },
    }
}

/// A decimal float written `[-+]digits[.digits][e[-+]digits]`; none if it is not one or too large.
pub(crate) fn parse_yaml_float(text: &str) -> Option<f64> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if whole == 0 && digits == 0 {
            return None;
        }
        rest = &fraction[digits..];
    } else if whole == 0 {
        return None;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
    } else if !rest.is_empty() {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}
