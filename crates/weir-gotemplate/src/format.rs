//! Printing values as Go's `fmt` does: `Sprint`, `Sprintln` and `Sprintf` with every verb.

use crate::deep;
use crate::strconv;
use crate::value::{Kind, List, Map, NESTING_LEVELS_MAX, PRINTED_BYTES_MAX, Value};

/// Widths and precisions beyond this count as absent, in characters.
const WIDTH_MAX: i64 = 1_000_000;

/// `fmt.Sprint`: a space only between operands when neither is a string.
pub fn sprint(values: &[Value]) -> Vec<u8> {
    let mut printer = Printer::default();
    let mut previous_string = true;
    for (index, value) in values.iter().enumerate() {
        let string = matches!(value, Value::String(_));
        if index > 0 && !string && !previous_string {
            printer.out.push(b' ');
        }
        printer.argument(value, 'v');
        previous_string = string;
    }
    printer.out
}

/// `fmt.Sprintln`: spaces between all operands and a newline at the end.
pub fn sprintln(values: &[Value]) -> Vec<u8> {
    let mut printer = Printer::default();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            printer.out.push(b' ');
        }
        printer.argument(value, 'v');
    }
    printer.out.push(b'\n');
    printer.out
}

/// The `%v` form of one value, appended to `out`; cut off behind [`PRINTED_BYTES_MAX`].
pub fn print_to(out: &mut Vec<u8>, value: &Value) {
    if let Value::String(text) = value {
        out.extend_from_slice(text);
        return;
    }
    let start = out.len();
    let mut printer = Printer { out: std::mem::take(out), start, ..Printer::default() };
    printer.argument(value, 'v');
    *out = printer.out;
}

/// The `%v` form of one value.
pub fn display(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    print_to(&mut out, value);
    out
}

/// [`display`] as text, for messages.
pub fn display_text(value: &Value) -> String {
    String::from_utf8_lossy(&display(value)).into_owned()
}

/// `fmt.Sprintf`; mistakes in the format show up in the output as in Go.
pub fn sprintf(format: &[u8], values: &[Value]) -> Vec<u8> {
    let mut printer = Printer::default();
    printer.format(format, values);
    printer.out
}

#[derive(Default, Clone, Copy)]
struct Flags {
    width: Option<usize>,
    precision: Option<usize>,
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    plus_v: bool,
    sharp_v: bool,
}

#[derive(Default)]
struct Printer {
    out: Vec<u8>,
    /// Where the output of this printer begins.
    start: usize,
    flags: Flags,
    reordered: bool,
    good_argument: bool,
}

fn rune_count(bytes: &[u8]) -> usize {
    let mut count = 0;
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[strconv::decode_rune(rest).1..];
        count += 1;
    }
    count
}

/// Reads decimal digits at `start`; the number if there was one, and where reading stopped.
fn parse_number(format: &[u8], start: usize, end: usize) -> (Option<i64>, usize) {
    let mut index = start;
    let mut number: i64 = 0;
    let mut found = false;
    while index < end && format[index].is_ascii_digit() {
        if number > WIDTH_MAX {
            return (None, end);
        }
        number = number * 10 + i64::from(format[index] - b'0');
        found = true;
        index += 1;
    }
    (found.then_some(number), index)
}

impl Printer {
    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn padding(&mut self, count: usize) {
        let byte = if self.flags.zero && !self.flags.minus { b'0' } else { b' ' };
        let count = if self.is_full() { 0 } else { count };
        self.out.extend(std::iter::repeat_n(byte, count));
    }

    /// Whether so much has been printed that nothing more is: the caller finds the result too long.
    fn is_full(&self) -> bool {
        self.out.len() - self.start > PRINTED_BYTES_MAX
    }

    fn pad(&mut self, bytes: &[u8]) {
        let Some(width) = self.flags.width.filter(|width| *width > 0) else {
            self.out.extend_from_slice(bytes);
            return;
        };
        let missing = width.saturating_sub(rune_count(bytes));
        if self.flags.minus {
            self.out.extend_from_slice(bytes);
            self.padding(missing);
        } else {
            self.padding(missing);
            self.out.extend_from_slice(bytes);
        }
    }

    fn pad_without_zero(&mut self, bytes: &[u8]) {
        let zero = std::mem::replace(&mut self.flags.zero, false);
        self.pad(bytes);
        self.flags.zero = zero;
    }

    fn truncated<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(precision) = self.flags.precision else { return bytes };
        let mut end = 0;
        for _ in 0..precision {
            if end >= bytes.len() {
                break;
            }
            end += strconv::decode_rune(&bytes[end..]).1;
        }
        &bytes[..end]
    }

    fn bad_verb(&mut self, verb: char, value: &Value, level: usize) {
        self.text("%!");
        self.out.extend_from_slice(verb.encode_utf8(&mut [0; 4]).as_bytes());
        self.out.push(b'(');
        if matches!(value, Value::Nil) {
            self.text("<nil>");
        } else {
            self.text(&value.type_name());
            self.out.push(b'=');
            self.value(value, 'v', level);
        }
        self.out.push(b')');
    }

    fn argument(&mut self, value: &Value, verb: char) {
        match (value, verb) {
            (Value::Nil, 'T' | 'v') => self.pad(b"<nil>"),
            (Value::Nil, _) => self.bad_verb(verb, value, 0),
            (_, 'T') => {
                let name = value.type_name();
                let name = self.truncated(name.as_bytes()).to_vec();
                self.pad(&name);
            }
            (Value::Map(_) | Value::List(_) | Value::Bytes(_), 'p') => self.address('p'),
            (_, 'p') => self.bad_verb(verb, value, 0),
            _ => self.value(value, verb, 0),
        }
    }

    /// Addresses differ from run to run in Go; here all are the same.
    fn address(&mut self, verb: char) {
        let sharp = self.flags.sharp;
        self.flags.sharp = verb != 'p' || !sharp;
        self.integer(0xc0_0000_0000, false, 16, 'v', false);
        self.flags.sharp = sharp;
    }

    fn value(&mut self, value: &Value, verb: char, level: usize) {
        if level > NESTING_LEVELS_MAX {
            self.text("<nesting too deep>");
            return;
        }
        if self.is_full() {
            return;
        }
        match value {
            Value::Nil => {
                self.text(if self.flags.sharp_v { "interface {}(nil)" } else { "<nil>" });
            }
            Value::Bool(flag) => match verb {
                't' | 'v' => self.pad(if *flag { b"true" } else { b"false" }),
                _ => self.bad_verb(verb, value, level),
            },
            Value::Int(number) | Value::Int64(number) => {
                self.number(*number as u64, true, verb, value, level);
            }
            Value::Uint8(number) => self.number(u64::from(*number), false, verb, value, level),
            Value::Uint64(number) => self.number(*number, false, verb, value, level),
            Value::Float(number) => self.float(*number, verb, value, level),
            Value::String(text) => self.string(text, verb, value, level),
            Value::Bytes(bytes) => self.bytes(bytes, verb, value, level),
            Value::List(list) => deep(|| self.list(list, verb, level)),
            Value::Map(map) => deep(|| self.map(map, verb, level)),
            Value::Object(object) => {
                if !self.flags.sharp_v
                    && matches!(verb, 'v' | 's' | 'x' | 'X' | 'q')
                    && let Some(text) = object.text()
                {
                    self.string(text.as_bytes(), verb, value, level);
                    return;
                }
                if let Some(number) = object.integer() {
                    self.number(number as u64, true, verb, value, level);
                    return;
                }
                let mut name = object.type_name();
                if object.kind() == Kind::Ptr {
                    if level > 0 {
                        self.address('v');
                        return;
                    }
                    self.out.push(b'&');
                    name = name.trim_start_matches('*');
                }
                if self.flags.sharp_v {
                    self.text(name);
                }
                self.out.push(b'{');
                for (index, (field, item)) in object.fields().into_iter().enumerate() {
                    self.separator(index);
                    if self.flags.plus_v || self.flags.sharp_v {
                        self.text(field);
                        self.out.push(b':');
                    }
                    self.value(&item, verb, level + 1);
                }
                self.out.push(b'}');
            }
        }
    }

    fn separator(&mut self, index: usize) {
        if index > 0 {
            self.text(if self.flags.sharp_v { ", " } else { " " });
        }
    }

    fn list(&mut self, list: &List, verb: char, level: usize) {
        if self.flags.sharp_v {
            self.text(&list.type_name());
            if list.is_nil() {
                self.text("(nil)");
                return;
            }
        }
        self.out.push(if self.flags.sharp_v { b'{' } else { b'[' });
        for (index, item) in list.items().iter().enumerate() {
            self.separator(index);
            self.value(item, verb, level + 1);
        }
        self.out.push(if self.flags.sharp_v { b'}' } else { b']' });
    }

    fn map(&mut self, map: &Map, verb: char, level: usize) {
        if self.flags.sharp_v {
            self.text(&map.type_name());
            if map.is_nil() {
                self.text("(nil)");
                return;
            }
            self.out.push(b'{');
        } else {
            self.text("map[");
        }
        if let Some(entries) = map.borrow() {
            for (index, (key, item)) in entries.iter().enumerate() {
                self.separator(index);
                self.value(&Value::String(key.clone()), verb, level + 1);
                self.out.push(b':');
                self.value(item, verb, level + 1);
            }
        }
        self.out.push(if self.flags.sharp_v { b'}' } else { b']' });
    }

    fn number(&mut self, number: u64, signed: bool, verb: char, value: &Value, level: usize) {
        match verb {
            'v' if self.flags.sharp_v && !signed => {
                let sharp = std::mem::replace(&mut self.flags.sharp, true);
                self.integer(number, false, 16, verb, false);
                self.flags.sharp = sharp;
            }
            'v' | 'd' => self.integer(number, signed, 10, verb, false),
            'b' => self.integer(number, signed, 2, verb, false),
            'o' | 'O' => self.integer(number, signed, 8, verb, false),
            'x' => self.integer(number, signed, 16, verb, false),
            'X' => self.integer(number, signed, 16, verb, true),
            'c' => {
                let character = u32::try_from(number).ok().and_then(char::from_u32);
                let mut buffer = [0; 4];
                let text = character.unwrap_or('\u{fffd}').encode_utf8(&mut buffer);
                self.pad(text.as_bytes());
            }
            'q' => {
                let code = i64::try_from(number).unwrap_or(-1);
                let text = strconv::quote_rune(code, self.flags.plus);
                self.pad(&text);
            }
            'U' => self.unicode(number),
            _ => self.bad_verb(verb, value, level),
        }
    }

    fn unicode(&mut self, number: u64) {
        let width = self.flags.precision.unwrap_or(4).max(4);
        let mut text = format!("U+{number:0width$X}");
        if self.flags.sharp
            && let Some(character) = u32::try_from(number).ok().and_then(char::from_u32)
            && strconv::is_print(character)
        {
            text.push_str(&format!(" '{character}'"));
        }
        self.pad_without_zero(text.as_bytes());
    }

    fn integer(&mut self, number: u64, signed: bool, base: u32, verb: char, upper: bool) {
        let negative = signed && (number as i64) < 0;
        let magnitude = if negative { number.wrapping_neg() } else { number };
        let mut digits_min = 0;
        if let Some(precision) = self.flags.precision {
            digits_min = precision;
            if precision == 0 && magnitude == 0 {
                let zero = std::mem::replace(&mut self.flags.zero, false);
                self.padding(self.flags.width.unwrap_or(0));
                self.flags.zero = zero;
                return;
            }
        } else if self.flags.zero && !self.flags.minus {
            digits_min = self.flags.width.unwrap_or(0);
            if (negative || self.flags.plus || self.flags.space) && digits_min > 0 {
                digits_min -= 1;
            }
        }
        let digits = match base {
            2 => format!("{magnitude:b}"),
            8 => format!("{magnitude:o}"),
            16 if upper => format!("{magnitude:X}"),
            16 => format!("{magnitude:x}"),
            _ => magnitude.to_string(),
        };
        let mut text = String::new();
        if negative {
            text.push('-');
        } else if self.flags.plus {
            text.push('+');
        } else if self.flags.space {
            text.push(' ');
        }
        if verb == 'O' {
            text.push_str("0o");
        }
        let zeros = digits_min.saturating_sub(digits.len());
        if self.flags.sharp {
            match base {
                2 => text.push_str("0b"),
                8 if zeros == 0 && !digits.starts_with('0') => text.push('0'),
                16 => text.push_str(if upper { "0X" } else { "0x" }),
                _ => {}
            }
        }
        text.extend(std::iter::repeat_n('0', zeros));
        text.push_str(&digits);
        self.pad_without_zero(text.as_bytes());
    }

    fn float(&mut self, number: f64, verb: char, value: &Value, level: usize) {
        let (format, default) = match verb {
            'v' => (b'g', None),
            'b' | 'g' | 'G' | 'x' | 'X' => (verb as u8, None),
            'f' | 'e' | 'E' => (verb as u8, Some(6)),
            'F' => (b'f', Some(6)),
            _ => return self.bad_verb(verb, value, level),
        };
        let precision = self.flags.precision.or(default);
        let mut text = strconv::format_float(number, format, precision);
        if !text.starts_with(['-', '+']) {
            text.insert(0, '+');
        }
        if self.flags.space && text.starts_with('+') && !self.flags.plus {
            text.replace_range(..1, " ");
        }
        if !number.is_finite() {
            if number.is_nan() && !self.flags.space && !self.flags.plus {
                text.remove(0);
            }
            self.pad_without_zero(text.as_bytes());
            return;
        }
        if self.flags.sharp && format != b'b' {
            text = with_decimal_point(&text, format, precision);
        }
        if self.flags.plus || !text.starts_with('+') {
            let width = self.flags.width.unwrap_or(0);
            if self.flags.zero && !self.flags.minus && width > text.len() {
                self.out.push(text.as_bytes()[0]);
                self.padding(width - text.len());
                self.text(&text[1..]);
                return;
            }
            self.pad(text.as_bytes());
            return;
        }
        self.pad(&text.as_bytes()[1..]);
    }

    fn string(&mut self, text: &[u8], verb: char, value: &Value, level: usize) {
        match verb {
            'v' if !self.flags.sharp_v => {
                let text = self.truncated(text);
                self.pad(text);
            }
            's' => {
                let text = self.truncated(text);
                self.pad(text);
            }
            'v' | 'q' => {
                let text = self.truncated(text);
                if self.flags.sharp && strconv::can_backquote(text) {
                    let quoted = [b"`", text, b"`"].concat();
                    self.pad(&quoted);
                } else {
                    let quoted = strconv::quote(text, self.flags.plus);
                    self.pad(&quoted);
                }
            }
            'x' | 'X' => self.hexadecimal(text, verb == 'X'),
            _ => self.bad_verb(verb, value, level),
        }
    }

    fn hexadecimal(&mut self, bytes: &[u8], upper: bool) {
        let length = bytes.len().min(self.flags.precision.unwrap_or(usize::MAX));
        if length == 0 {
            self.padding(self.flags.width.unwrap_or(0));
            return;
        }
        let prefix = if upper { "0X" } else { "0x" };
        let mut text = String::new();
        for (index, byte) in bytes[..length].iter().enumerate() {
            if self.flags.space && index > 0 {
                text.push(' ');
            }
            if self.flags.sharp && (index == 0 || self.flags.space) {
                text.push_str(prefix);
            }
            text.push_str(&if upper { format!("{byte:02X}") } else { format!("{byte:02x}") });
        }
        self.pad(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8], verb: char, value: &Value, level: usize) {
        match verb {
            'v' | 'd' => {
                if self.flags.sharp_v {
                    self.text("[]byte{");
                } else {
                    self.out.push(b'[');
                }
                for (index, byte) in bytes.iter().enumerate() {
                    self.separator(index);
                    if self.flags.sharp_v {
                        self.number(u64::from(*byte), false, 'v', value, level);
                    } else {
                        self.integer(u64::from(*byte), false, 10, verb, false);
                    }
                }
                self.out.push(if self.flags.sharp_v { b'}' } else { b']' });
            }
            's' | 'x' | 'X' | 'q' => self.string(bytes, verb, value, level),
            _ => {
                self.out.push(b'[');
                for (index, byte) in bytes.iter().enumerate() {
                    self.separator(index);
                    self.value(&Value::Uint8(*byte), verb, level + 1);
                }
                self.out.push(b']');
            }
        }
    }

    /// The argument number given as `[n]` at `index`, if any: next argument, next index, found.
    fn argument_number(
        &mut self,
        argument: usize,
        format: &[u8],
        index: usize,
        count: usize,
    ) -> (usize, usize, bool) {
        if format.get(index) != Some(&b'[') {
            return (argument, index, false);
        }
        self.reordered = true;
        let rest = &format[index..];
        let close = rest.iter().position(|byte| *byte == b']').filter(|_| rest.len() >= 3);
        let Some(close) = close else {
            self.good_argument = false;
            return (argument, index + 1, false);
        };
        let (number, stop) = parse_number(rest, 1, close);
        match number {
            Some(number) if stop == close => match usize::try_from(number - 1) {
                Ok(position) if position < count => (position, index + close + 1, true),
                _ => {
                    self.good_argument = false;
                    (argument, index + close + 1, true)
                }
            },
            _ => {
                self.good_argument = false;
                (argument, index + close + 1, false)
            }
        }
    }

    /// The integer argument of a `*`: `None` if it is missing, no integer or too large.
    fn star(values: &[Value], argument: &mut usize) -> Option<i64> {
        let value = values.get(*argument)?;
        *argument += 1;
        let number =
            value.as_int().or_else(|| value.as_uint().and_then(|number| i64::try_from(number).ok()))?;
        (-WIDTH_MAX..=WIDTH_MAX).contains(&number).then_some(number)
    }

    fn format(&mut self, format: &[u8], values: &[Value]) {
        let end = format.len();
        let mut argument = 0;
        let mut after_index = false;
        let mut index = 0;
        while index < end {
            self.good_argument = true;
            let percent = format[index..].iter().position(|byte| *byte == b'%');
            let stop = percent.map_or(end, |offset| index + offset);
            self.out.extend_from_slice(&format[index..stop]);
            if stop >= end {
                break;
            }
            index = stop + 1;
            self.flags = Flags::default();
            while index < end {
                match format[index] {
                    b'#' => self.flags.sharp = true,
                    b'0' => self.flags.zero = true,
                    b'+' => self.flags.plus = true,
                    b'-' => self.flags.minus = true,
                    b' ' => self.flags.space = true,
                    _ => break,
                }
                index += 1;
            }
            (argument, index, after_index) = self.argument_number(argument, format, index, values.len());
            if format.get(index) == Some(&b'*') {
                index += 1;
                match Self::star(values, &mut argument) {
                    Some(width) => {
                        self.flags.width = Some(width.unsigned_abs() as usize);
                        if width < 0 {
                            self.flags.minus = true;
                            self.flags.zero = false;
                        }
                    }
                    None => self.text("%!(BADWIDTH)"),
                }
                after_index = false;
            } else {
                let (width, next) = parse_number(format, index, end);
                self.flags.width = width.map(|width| width as usize);
                index = next;
                if after_index && width.is_some() {
                    self.good_argument = false;
                }
            }
            if format.get(index) == Some(&b'.') {
                index += 1;
                if after_index {
                    self.good_argument = false;
                }
                (argument, index, after_index) = self.argument_number(argument, format, index, values.len());
                if format.get(index) == Some(&b'*') {
                    index += 1;
                    let precision = Self::star(values, &mut argument).filter(|number| *number >= 0);
                    self.flags.precision = precision.map(|precision| precision as usize);
                    if precision.is_none() {
                        self.text("%!(BADPREC)");
                    }
                    after_index = false;
                } else {
                    let (precision, next) = parse_number(format, index, end);
                    self.flags.precision = Some(precision.unwrap_or(0) as usize);
                    index = next;
                }
            }
            if !after_index {
                (argument, index, after_index) = self.argument_number(argument, format, index, values.len());
            }
            if index >= end {
                self.text("%!(NOVERB)");
                break;
            }
            let (verb, size) = strconv::decode_rune(&format[index..]);
            let verb = verb.unwrap_or('\u{fffd}');
            index += size;
            if verb == '%' {
                self.out.push(b'%');
            } else if !self.good_argument {
                self.text(&format!("%!{verb}(BADINDEX)"));
            } else if let Some(value) = values.get(argument) {
                if verb == 'v' || verb == 'w' {
                    self.flags.sharp_v = std::mem::take(&mut self.flags.sharp);
                    self.flags.plus_v = std::mem::take(&mut self.flags.plus);
                }
                self.argument(value, verb);
                argument += 1;
            } else {
                self.text(&format!("%!{verb}(MISSING)"));
            }
        }
        let _ = after_index;
        if !self.reordered && argument < values.len() {
            self.flags = Flags::default();
            self.text("%!(EXTRA ");
            for (index, value) in values[argument..].iter().enumerate() {
                if index > 0 {
                    self.text(", ");
                }
                if matches!(value, Value::Nil) {
                    self.text("<nil>");
                } else {
                    self.text(&value.type_name());
                    self.out.push(b'=');
                    self.argument(value, 'v');
                }
            }
            self.out.push(b')');
        }
    }
}

/// The `#` flag of floats: a decimal point always, trailing zeros kept for `%g`.
fn with_decimal_point(text: &str, format: u8, precision: Option<usize>) -> String {
    let mut digits = match format {
        b'g' | b'G' | b'x' => precision.map_or(6, |precision| precision as i64),
        _ => 0,
    };
    let hexadecimal = matches!(format, b'x' | b'X');
    let tail_at = text.find(|c| matches!(c, 'p' | 'P') || (!hexadecimal && matches!(c, 'e' | 'E')));
    let (number, tail) = text.split_at(tail_at.unwrap_or(text.len()));
    let mut number = number.to_owned();
    let mut seen_nonzero = false;
    let mut point = false;
    for character in number[1..].chars() {
        if character == '.' {
            point = true;
            continue;
        }
        seen_nonzero |= character != '0';
        if seen_nonzero {
            digits -= 1;
        }
    }
    if !point {
        if number.len() == 2 && number.ends_with('0') {
            digits -= 1;
        }
        number.push('.');
    }
    while digits > 0 {
        number.push('0');
        digits -= 1;
    }
    number + tail
}
