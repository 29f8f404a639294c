//! Numbers and quoted strings as Go writes and reads them.

use std::borrow::Cow;

/// Whether Go considers the character printable (`strconv.IsPrint`).
pub fn is_print(character: char) -> bool {
    if character.is_ascii() {
        return (' '..='~').contains(&character);
    }
    // Debug formatting of a character that is not first in a string escapes exactly the
    // non-printable ones; the table behind it is not public.
    let mut text = String::with_capacity(8);
    text.push('a');
    text.push(character);
    text.escape_debug().nth(1) == Some(character)
}

/// Decimal digits of a float: `0.d1d2d3… × 10^point`.
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    point: i32,
}

fn digits_of(scientific: &str) -> Decimal {
    let (negative, rest) = match scientific.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, scientific),
    };
    let (mantissa, exponent) = rest.split_once('e').unwrap_or((rest, "0"));
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    Decimal { negative, digits, point: exponent.parse::<i32>().unwrap_or(0) + 1 }
}

fn write_exponent(out: &mut String, letter: char, exponent: i32) {
    out.push(letter);
    out.push(if exponent < 0 { '-' } else { '+' });
    let exponent = exponent.unsigned_abs();
    if exponent < 10 {
        out.push('0');
    }
    out.push_str(&exponent.to_string());
}

fn write_scientific(out: &mut String, digits: &[u8], exponent: i32, letter: char) {
    out.push(char::from(digits.first().copied().unwrap_or(b'0')));
    if digits.len() > 1 {
        out.push('.');
        out.extend(digits[1..].iter().map(|digit| char::from(*digit)));
    }
    write_exponent(out, letter, exponent);
}

fn write_positional(out: &mut String, digits: &[u8], point: i32) {
    if point <= 0 {
        out.push_str("0.");
        for _ in point..0 {
            out.push('0');
        }
        out.extend(digits.iter().map(|digit| char::from(*digit)));
        return;
    }
    let point = point as usize;
    for index in 0..point.max(digits.len()) {
        if index == point {
            out.push('.');
        }
        out.push(char::from(digits.get(index).copied().unwrap_or(b'0')));
    }
}

/// `strconv.FormatFloat(value, format, precision, 64)`; no precision means the shortest text that
/// reads back as the same value. Formats: `e E f F g G b x X`.
pub fn format_float(value: f64, format: u8, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let mut out = String::new();
    match format {
        b'e' | b'E' => {
            let text = match precision {
                Some(precision) => format!("{value:.precision$e}"),
                None => format!("{value:e}"),
            };
            let digits = digits_of(&text);
            if digits.negative {
                out.push('-');
            }
            let exponent = if value == 0.0 { 0 } else { digits.point - 1 };
            write_scientific(&mut out, &digits.digits, exponent, char::from(format));
        }
        b'f' | b'F' => match precision {
            Some(precision) => out = format!("{value:.precision$}"),
            None => out = format!("{value}"),
        },
        b'g' | b'G' => {
            let text = match precision {
                Some(precision) => {
                    let after_point = precision.max(1) - 1;
                    format!("{value:.after_point$e}")
                }
                None => format!("{value:e}"),
            };
            let mut digits = digits_of(&text);
            while digits.digits.len() > 1 && digits.digits.last() == Some(&b'0') {
                digits.digits.pop();
            }
            if digits.negative {
                out.push('-');
            }
            if value == 0.0 {
                out.push('0');
                return out;
            }
            let count = digits.digits.len() as i32;
            // The shortest form counts as six digits for the choice of notation.
            let threshold = match precision {
                None => 6,
                Some(precision) => {
                    let precision = precision.max(1) as i32;
                    if precision > count && count >= digits.point { count } else { precision }
                }
            };
            let exponent = digits.point - 1;
            if exponent < -4 || exponent >= threshold {
                let letter = if format == b'g' { 'e' } else { 'E' };
                write_scientific(&mut out, &digits.digits, exponent, letter);
            } else {
                write_positional(&mut out, &digits.digits, digits.point);
            }
        }
        b'b' => {
            let bits = value.to_bits();
            let exponent = ((bits >> 52) & 0x7ff) as i64;
            let fraction = bits & ((1 << 52) - 1);
            let (mantissa, exponent) =
                if exponent == 0 { (fraction, 1 - 1075) } else { (fraction | (1 << 52), exponent - 1075) };
            if value.is_sign_negative() {
                out.push('-');
            }
            out.push_str(&format!("{mantissa}p{}{}", if exponent < 0 { "" } else { "+" }, exponent));
        }
        _ => {
            format_hex_float(&mut out, value, precision);
            if format == b'X' {
                out.make_ascii_uppercase();
            }
        }
    }
    out
}

fn format_hex_float(out: &mut String, value: f64, precision: Option<usize>) {
    if value.is_sign_negative() {
        out.push('-');
    }
    out.push_str("0x");
    if value == 0.0 {
        out.push('0');
        if let Some(precision) = precision.filter(|precision| *precision > 0) {
            out.push('.');
            out.extend(std::iter::repeat_n('0', precision));
        }
        out.push_str("p+00");
        return;
    }
    let bits = value.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i32;
    let mut mantissa = bits & ((1 << 52) - 1);
    if exponent == 0 {
        exponent = -1022;
        while mantissa & (1 << 52) == 0 {
            mantissa <<= 1;
            exponent -= 1;
        }
    } else {
        mantissa |= 1 << 52;
        exponent -= 1023;
    }
    // One integer digit and 13 hexadecimal digits after the point.
    if let Some(precision) = precision.filter(|precision| *precision < 13) {
        let drop = (13 - precision) * 4;
        let half = 1_u64 << (drop - 1);
        let rest = mantissa & ((1 << drop) - 1);
        mantissa >>= drop;
        if rest > half || (rest == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
        mantissa <<= drop;
        if mantissa >= 1 << 53 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    out.push('1');
    let mut fraction = format!("{:013x}", mantissa & ((1 << 52) - 1));
    match precision {
        None => fraction.truncate(fraction.trim_end_matches('0').len()),
        Some(precision) => {
            while fraction.len() < precision {
                fraction.push('0');
            }
            fraction.truncate(precision);
        }
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(&fraction);
    }
    write_exponent(out, 'p', exponent);
}

/// One step of decoding UTF-8 as Go does: a character and its length, or `None` and 1 for an
/// invalid byte. The slice must not be empty.
pub fn decode_rune(bytes: &[u8]) -> (Option<char>, usize) {
    let length = match bytes.first() {
        Some(byte) if *byte < 0x80 => return (Some(char::from(*byte)), 1),
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => return (None, 1),
    };
    bytes
        .get(..length)
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .and_then(|text| text.chars().next())
        .map_or((None, 1), |character| (Some(character), length))
}

fn push_escaped(out: &mut Vec<u8>, character: char, quote: u8, ascii_only: bool) {
    if character == char::from(quote) || character == '\\' {
        out.push(b'\\');
        out.push(character as u8);
        return;
    }
    if (character.is_ascii() || !ascii_only) && is_print(character) {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        return;
    }
    let named = match character {
        '\x07' => b'a',
        '\x08' => b'b',
        '\x0c' => b'f',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\x0b' => b'v',
        _ => {
            let code = u32::from(character);
            let text = if code < 0x20 || code == 0x7f {
                format!("\\x{code:02x}")
            } else if code < 0x1_0000 {
                format!("\\u{code:04x}")
            } else {
                format!("\\U{code:08x}")
            };
            out.extend_from_slice(text.as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', named]);
}

/// `strconv.Quote` (or `QuoteToASCII`) of any bytes.
pub fn quote(bytes: &[u8], ascii_only: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    out.push(b'"');
    let mut rest = bytes;
    while !rest.is_empty() {
        let (character, length) = decode_rune(rest);
        match character {
            Some(character) => push_escaped(&mut out, character, b'"', ascii_only),
            None => out.extend_from_slice(format!("\\x{:02x}", rest[0]).as_bytes()),
        }
        rest = &rest[length..];
    }
    out.push(b'"');
    out
}

/// [`quote`] as text, for error messages.
pub fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes(), false)).into_owned()
}

/// `strconv.QuoteRune`
pub fn quote_rune(code: i64, ascii_only: bool) -> Vec<u8> {
    let character = u32::try_from(code).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
    let mut out = vec![b'\''];
    push_escaped(&mut out, character, b'\'', ascii_only);
    out.push(b'\'');
    out
}

/// Whether the text can be written between back quotes unchanged.
pub fn can_backquote(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| {
        text.chars().all(|c| c != '\u{feff}' && c != '`' && c != '\x7f' && (c >= ' ' || c == '\t'))
    })
}

/// Reads one escaped or plain character of a quoted literal; returns the bytes it stands for (and
/// its code) and the rest.
fn unquote_char(text: &str, quote: char) -> Option<(Vec<u8>, i64, &str)> {
    let mut characters = text.chars();
    let first = characters.next()?;
    if first == quote && (quote == '\'' || quote == '"') {
        return None;
    }
    if first != '\\' {
        let mut buffer = [0; 4];
        return Some((
            first.encode_utf8(&mut buffer).as_bytes().to_vec(),
            i64::from(u32::from(first)),
            characters.as_str(),
        ));
    }
    let escape = characters.next()?;
    let rest = characters.as_str();
    let simple = |byte: u8| Some((vec![byte], i64::from(byte), rest));
    match escape {
        'a' => simple(7),
        'b' => simple(8),
        'f' => simple(12),
        'n' => simple(b'\n'),
        'r' => simple(b'\r'),
        't' => simple(b'\t'),
        'v' => simple(11),
        '\\' => simple(b'\\'),
        '\'' | '"' if escape == quote => simple(escape as u8),
        'x' | 'u' | 'U' => {
            let count = match escape {
                'x' => 2,
                'u' => 4,
                _ => 8,
            };
            let hex = rest.get(..count).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))?;
            let code = u32::from_str_radix(hex, 16).ok()?;
            if escape == 'x' {
                return Some((vec![code as u8], i64::from(code), &rest[count..]));
            }
            let character = char::from_u32(code)?;
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes().to_vec();
            Some((bytes, i64::from(code), &rest[count..]))
        }
        '0'..='7' => {
            let octal = text.get(1..4).filter(|t| t.bytes().all(|b| (b'0'..=b'7').contains(&b)))?;
            let code = u32::from_str_radix(octal, 8).ok().filter(|code| *code <= 255)?;
            Some((vec![code as u8], i64::from(code), &text[4..]))
        }
        _ => None,
    }
}

/// `strconv.Unquote` for `"…"` and `` `…` `` literals.
pub fn unquote(literal: &str) -> Option<Vec<u8>> {
    unquote_literal(literal).map(Cow::into_owned)
}

/// [`unquote`], without a copy where the text stands as it is.
pub(crate) fn unquote_literal(literal: &str) -> Option<Cow<'_, [u8]>> {
    if literal.len() < 2 {
        return None;
    }
    let quote = literal.chars().next()?;
    let body = literal.get(1..)?.strip_suffix(quote)?;
    if quote == '`' {
        return match memchr::memchr2(b'`', b'\r', body.as_bytes()) {
            None => Some(Cow::Borrowed(body.as_bytes())),
            Some(_) if body.contains('`') => None,
            Some(_) => Some(Cow::Owned(body.bytes().filter(|byte| *byte != b'\r').collect())),
        };
    }
    if quote != '"' {
        return None;
    }
    match memchr::memchr3(b'\\', b'"', b'\n', body.as_bytes()) {
        None => return Some(Cow::Borrowed(body.as_bytes())),
        Some(_) if body.contains('\n') => return None,
        Some(_) => {}
    }
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while !rest.is_empty() {
        let (bytes, _, after) = unquote_char(rest, quote)?;
        out.extend_from_slice(&bytes);
        rest = after;
    }
    Some(Cow::Owned(out))
}

/// The code of a `'c'` literal; `Err(true)` if the quoting is wrong, `Err(false)` if it holds more
/// than one character.
pub fn unquote_rune(literal: &str) -> Result<i64, bool> {
    let (_, code, rest) = unquote_char(&literal[1..], '\'').ok_or(true)?;
    if rest == "'" { Ok(code) } else { Err(false) }
}

/// What is wrong with the text of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberError {
    /// `invalid syntax`
    Syntax,
    /// `value out of range`
    Range,
}

impl NumberError {
    /// The text Go prints.
    pub fn text(self) -> &'static str {
        match self {
            Self::Syntax => "invalid syntax",
            Self::Range => "value out of range",
        }
    }
}

fn underscores_ok(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let bytes = text.as_bytes();
    let mut index = 0;
    let mut last = b'^';
    let mut hexadecimal = false;
    if bytes.len() >= 2 && bytes[0] == b'0' {
        let base = bytes[1].to_ascii_lowercase();
        if matches!(base, b'b' | b'o' | b'x') {
            index = 2;
            last = b'0';
            hexadecimal = base == b'x';
        }
    }
    for byte in &bytes[index..] {
        if byte.is_ascii_digit() || (hexadecimal && byte.is_ascii_hexdigit()) {
            last = b'0';
        } else if *byte == b'_' {
            if last != b'0' {
                return false;
            }
            last = b'_';
        } else {
            if last == b'_' {
                return false;
            }
            last = b'!';
        }
    }
    last != b'_'
}

/// `strconv.ParseUint(text, base, 64)`; base 0 looks at the prefix.
pub fn parse_uint(text: &str, base: u32) -> Result<u64, NumberError> {
    let mut digits = text;
    let mut radix = base;
    if base == 0 {
        radix = 10;
        if let Some(after) = text.strip_prefix('0') {
            let lower = after.as_bytes().first().map(u8::to_ascii_lowercase);
            match lower {
                Some(b'b') if text.len() >= 3 => (radix, digits) = (2, &text[2..]),
                Some(b'o') if text.len() >= 3 => (radix, digits) = (8, &text[2..]),
                Some(b'x') if text.len() >= 3 => (radix, digits) = (16, &text[2..]),
                _ => (radix, digits) = (8, after),
            }
            if digits.is_empty() {
                return if text == "0" { Ok(0) } else { Err(NumberError::Syntax) };
            }
        }
    }
    if digits.is_empty() {
        return Err(NumberError::Syntax);
    }
    let mut value: u64 = 0;
    let mut overflow = false;
    let mut underscore = false;
    for byte in digits.bytes() {
        if byte == b'_' && base == 0 {
            underscore = true;
            continue;
        }
        let digit = char::from(byte).to_digit(36).filter(|d| *d < radix);
        let Some(digit) = digit else { return Err(NumberError::Syntax) };
        match value.checked_mul(u64::from(radix)).and_then(|v| v.checked_add(u64::from(digit))) {
            Some(next) => value = next,
            None => overflow = true,
        }
    }
    if underscore && !underscores_ok(text) {
        return Err(NumberError::Syntax);
    }
    if overflow { Err(NumberError::Range) } else { Ok(value) }
}

/// `strconv.ParseInt(text, base, 64)`
pub fn parse_int(text: &str, base: u32) -> Result<i64, NumberError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let value = parse_uint(digits, base)?;
    if negative {
        if value > 1 << 63 { Err(NumberError::Range) } else { Ok((value as i64).wrapping_neg()) }
    } else {
        i64::try_from(value).map_err(|_| NumberError::Range)
    }
}

/// `strconv.ParseFloat(text, 64)`
pub fn parse_float(text: &str) -> Result<f64, NumberError> {
    let (negative, body) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let signed = |value: f64| if negative { -value } else { value };
    match body.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => return Ok(signed(f64::INFINITY)),
        "nan" if text.len() == 3 => return Ok(f64::NAN),
        _ => {}
    }
    let hexadecimal = body.len() > 2 && body.as_bytes()[..2].eq_ignore_ascii_case(b"0x");
    if body.contains('_') && !underscores_ok(text) {
        return Err(NumberError::Syntax);
    }
    let body = body.replace('_', "");
    if hexadecimal {
        return parse_hex_float(&body[2..]).map(signed);
    }
    let valid = body.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !valid || body.is_empty() {
        return Err(NumberError::Syntax);
    }
    let value: f64 = body.parse().map_err(|_| NumberError::Syntax)?;
    if value.is_infinite() { Err(NumberError::Range) } else { Ok(signed(value)) }
}

fn parse_hex_float(body: &str) -> Result<f64, NumberError> {
    let (mantissa, exponent) = body.split_once(['p', 'P']).ok_or(NumberError::Syntax)?;
    let exponent: i64 = exponent.parse().map_err(|_| NumberError::Syntax)?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(NumberError::Syntax);
    }
    let mut value = 0.0_f64;
    for byte in whole.bytes().chain(fraction.bytes()) {
        let digit = char::from(byte).to_digit(16).ok_or(NumberError::Syntax)?;
        value = value * 16.0 + f64::from(digit);
    }
    let exponent = exponent - 4 * fraction.len() as i64;
    let exponent = i32::try_from(exponent.clamp(-5000, 5000)).unwrap_or(0);
    // Two steps keep intermediate powers within range.
    let half = exponent / 2;
    let value = value * 2.0_f64.powi(half) * 2.0_f64.powi(exponent - half);
    if value.is_infinite() { Err(NumberError::Range) } else { Ok(value) }
}
