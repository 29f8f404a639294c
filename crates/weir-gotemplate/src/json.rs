//! JSON as Go's `encoding/json` writes and reads it.

use crate::deep;
use crate::strconv;
use crate::text::Text;
use crate::value::{Element, Entries, List, Map, NESTING_LEVELS_MAX, PRINTED_BYTES_MAX, Value};

/// How JSON is written.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Two spaces per level and one entry per line.
    pub pretty: bool,
    /// `<`, `>` and `&` as escapes.
    pub escape_html: bool,
}

/// The JSON text of a value; maps are sorted by key, bytes are base64.
///
/// Fails on NaN and infinities, as Go does, and on nesting beyond [`NESTING_LEVELS_MAX`].
pub fn encode(value: &Value, style: Style) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    write(&mut out, value, style, 0)?;
    Ok(out)
}

fn newline(out: &mut Vec<u8>, style: Style, level: usize) {
    if style.pretty {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', level * 2));
    }
}

fn write(out: &mut Vec<u8>, value: &Value, style: Style, level: usize) -> Result<(), String> {
    if level > NESTING_LEVELS_MAX {
        return Err("json: unsupported value: nested too deeply".to_owned());
    }
    if out.len() > PRINTED_BYTES_MAX {
        return Err(format!("json: unsupported value: more than {PRINTED_BYTES_MAX} bytes"));
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::Bool(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Value::Int(number) | Value::Int64(number) => {
            out.extend_from_slice(number.to_string().as_bytes());
        }
        Value::Uint8(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Uint64(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Float(number) => out.extend_from_slice(float(*number)?.as_bytes()),
        Value::String(text) => string(out, text, style.escape_html),
        Value::Bytes(bytes) => {
            out.push(b'"');
            out.extend_from_slice(crate::base64::encode(bytes).as_bytes());
            out.push(b'"');
        }
        Value::List(list) if list.is_nil() => out.extend_from_slice(b"null"),
        Value::Map(map) if map.is_nil() => out.extend_from_slice(b"null"),
        Value::List(list) => {
            out.push(b'[');
            for (index, item) in list.items().iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                newline(out, style, level + 1);
                deep(|| write(out, item, style, level + 1))?;
            }
            if !list.items().is_empty() {
                newline(out, style, level);
            }
            out.push(b']');
        }
        Value::Map(map) => {
            out.push(b'{');
            let entries = map.borrow();
            for (index, (key, item)) in entries.iter().flat_map(|entries| entries.iter()).enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                newline(out, style, level + 1);
                string(out, key, style.escape_html);
                out.push(b':');
                if style.pretty {
                    out.push(b' ');
                }
                deep(|| write(out, item, style, level + 1))?;
            }
            if !map.is_empty() {
                newline(out, style, level);
            }
            out.push(b'}');
        }
        Value::Object(object) => {
            let plain = object.json()?;
            deep(|| write(out, &plain, style, level + 1))?;
        }
    }
    Ok(())
}

/// A float as Go's JSON writes it: exponents only below 1e-6 and from 1e21 on.
pub fn float(number: f64) -> Result<String, String> {
    if !number.is_finite() {
        let shown = strconv::format_float(number, b'g', None);
        return Err(format!("json: unsupported value: {shown}"));
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = strconv::format_float(number, b'e', None);
        // A one-digit negative exponent is written without its leading zero.
        return Ok(match text.split_once("e-0") {
            Some((mantissa, digit)) => format!("{mantissa}e-{digit}"),
            None => text,
        });
    }
    Ok(strconv::format_float(number, b'f', None))
}

fn string(out: &mut Vec<u8>, text: &[u8], escape_html: bool) {
    out.push(b'"');
    let mut rest = text;
    while !rest.is_empty() {
        let (character, length) = strconv::decode_rune(rest);
        match character {
            Some('"') => out.extend_from_slice(b"\\\""),
            Some('\\') => out.extend_from_slice(b"\\\\"),
            Some('\n') => out.extend_from_slice(b"\\n"),
            Some('\r') => out.extend_from_slice(b"\\r"),
            Some('\t') => out.extend_from_slice(b"\\t"),
            Some('\x08') => out.extend_from_slice(b"\\b"),
            Some('\x0c') => out.extend_from_slice(b"\\f"),
            Some(c @ ('<' | '>' | '&')) if escape_html => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            Some(c) if c < ' ' || c == '\u{2028}' || c == '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            Some(_) => out.extend_from_slice(&rest[..length]),
            None => out.extend_from_slice(b"\\ufffd"),
        }
        rest = &rest[length..];
    }
    out.push(b'"');
}

/// The value of a JSON text: numbers are `float64`, objects `map[string]interface {}`.
///
/// The errors are Go's.
pub fn decode(text: &[u8]) -> Result<Value, String> {
    let mut reader = Reader { text, position: 0 };
    reader.space();
    let value = reader.value(0)?;
    reader.space();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.unexpected("after top-level value")),
    }
}

struct Reader<'a> {
    text: &'a [u8],
    position: usize,
}

/// How deeply Go's decoder lets arrays and objects nest.
const DECODE_LEVELS_MAX: usize = 10_000;

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.position += 1;
        }
    }

    fn unexpected(&self, context: &str) -> String {
        // Where a space would be accepted, the end of the text is what is wrong; elsewhere the end
        // counts as a space.
        let inside = ["in ", "after decimal"].iter().any(|start| context.starts_with(start));
        let byte = match self.peek() {
            Some(byte) => byte,
            None if inside => b' ',
            None => return "unexpected end of JSON input".to_owned(),
        };
        let shown = match byte {
            b'\'' => r"'\''".to_owned(),
            b'"' => "'\"'".to_owned(),
            byte => {
                // Bytes are shown as the character of the same number.
                let quoted = strconv::quote(char::from(byte).to_string().as_bytes(), false);
                let inner = String::from_utf8_lossy(&quoted[1..quoted.len() - 1]).into_owned();
                format!("'{inner}'")
            }
        };
        format!("invalid character {shown} {context}")
    }

    fn value(&mut self, level: usize) -> Result<Value, String> {
        if level > DECODE_LEVELS_MAX {
            return Err("exceeded max depth".to_owned());
        }
        match self.peek() {
            Some(b'{') => deep(|| self.object(level)),
            Some(b'[') => deep(|| self.array(level)),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            Some(b'n') => self.word(b"null", Value::Nil),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn word(&mut self, word: &[u8], value: Value) -> Result<Value, String> {
        for (index, expected) in word.iter().enumerate() {
            if self.peek() != Some(*expected) {
                let name = String::from_utf8_lossy(word);
                let expected = char::from(*expected);
                let context = format!("in literal {name} (expecting '{expected}')");
                debug_assert!(index > 0, "the first byte has been looked at");
                return Err(self.unexpected(&context));
            }
            self.position += 1;
        }
        Ok(value)
    }

    fn digits(&mut self) -> usize {
        let start = self.position;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.position += 1;
        }
        self.position - start
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.position;
        if self.peek() == Some(b'-') {
            self.position += 1;
            if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.unexpected("in numeric literal"));
            }
        }
        if self.peek() == Some(b'0') {
            self.position += 1;
        } else {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            if self.digits() == 0 {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            if self.digits() == 0 {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
        }
        let text = String::from_utf8_lossy(&self.text[start..self.position]).into_owned();
        match strconv::parse_float(&text) {
            Ok(number) => Ok(Value::Float(number)),
            Err(_) => Err(format!("json: cannot unmarshal number {text} into Go value of type float64")),
        }
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.position += 1;
        }
        Ok(code)
    }

    fn string(&mut self) -> Result<Text, String> {
        self.position += 1;
        let mut out = Vec::new();
        loop {
            let Some(byte) = self.peek() else {
                return Err("unexpected end of JSON input".to_owned());
            };
            match byte {
                b'"' => {
                    self.position += 1;
                    return Ok(Text::from(out));
                }
                b'\\' => {
                    self.position += 1;
                    let escape = self.peek();
                    let plain = match escape {
                        Some(b'"') => b'"',
                        Some(b'\\') => b'\\',
                        Some(b'/') => b'/',
                        Some(b'b') => 8,
                        Some(b'f') => 12,
                        Some(b'n') => b'\n',
                        Some(b'r') => b'\r',
                        Some(b't') => b'\t',
                        Some(b'u') => {
                            self.position += 1;
                            let character = self.unicode_escape()?;
                            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                            continue;
                        }
                        _ => return Err(self.unexpected("in string escape code")),
                    };
                    self.position += 1;
                    out.push(plain);
                }
                0..0x20 => return Err(self.unexpected("in string literal")),
                _ => {
                    let (character, length) = strconv::decode_rune(&self.text[self.position..]);
                    let character = character.unwrap_or('\u{fffd}');
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    self.position += length;
                }
            }
        }
    }

    /// The rest of `\uXXXX`, with a second one if both make a surrogate pair.
    fn unicode_escape(&mut self) -> Result<char, String> {
        let code = self.hex4()?;
        if let Some(character) = char::from_u32(code) {
            return Ok(character);
        }
        if (0xd800..0xdc00).contains(&code) && self.text[self.position..].starts_with(b"\\u") {
            let back = self.position;
            self.position += 2;
            let low = self.hex4()?;
            if (0xdc00..0xe000).contains(&low) {
                let combined = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(combined).unwrap_or('\u{fffd}'));
            }
            self.position = back;
        }
        Ok('\u{fffd}')
    }

    fn array(&mut self, level: usize) -> Result<Value, String> {
        self.position += 1;
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.position += 1;
            return Ok(Value::List(List::typed(items, Element::Any)));
        }
        loop {
            self.space();
            items.push(self.value(level + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b']') => {
                    self.position += 1;
                    return Ok(Value::List(List::typed(items, Element::Any)));
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn object(&mut self, level: usize) -> Result<Value, String> {
        self.position += 1;
        let mut entries = Entries::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.position += 1;
            return Ok(Value::Map(Map::new(entries)));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.position += 1;
            self.space();
            let value = self.value(level + 1)?;
            entries.insert(key, value);
            self.space();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b'}') => {
                    self.position += 1;
                    return Ok(Value::Map(Map::new(entries)));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }
}
