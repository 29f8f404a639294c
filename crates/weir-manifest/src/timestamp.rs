//! Dates and times as the Go YAML libraries recognise them in plain scalars.

use std::fmt;

/// A date, or a date and time, that a plain scalar spells.
///
/// `Display` prints RFC 3339 as Go does: `2020-01-01T00:00:00Z`, fractions of seconds without trailing zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    year: u16,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    nanosecond: u32,
    offset_minutes: i16,
}

impl Timestamp {
    /// Reads `2001-12-14`, `2001-12-14T21:59:43.10-05:00`, `2001-12-14t…` or `2001-12-14 21:59:43.10`; months, days,
    /// hours, minutes and seconds may have one digit. Anything else, or a day the calendar does not have, is none.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() < 8 || bytes[4] != b'-' || !bytes[..4].iter().all(u8::is_ascii_digit) {
            return None;
        }
        let mut cursor = Cursor { rest: &bytes[5..] };
        let year = bytes[..4].iter().fold(0, |year, digit| year * 10 + u16::from(digit - b'0'));
        let month = cursor.number()?;
        cursor.expect(b'-')?;
        let day = cursor.number()?;
        let mut found =
            Self { year, month, day, hour: 0, minute: 0, second: 0, nanosecond: 0, offset_minutes: 0 };
        match cursor.next() {
            None => {}
            Some(separator @ (b'T' | b't' | b' ')) => {
                found.hour = cursor.number()?;
                cursor.expect(b':')?;
                found.minute = cursor.number()?;
                cursor.expect(b':')?;
                found.second = cursor.number()?;
                found.nanosecond = cursor.fraction();
                if separator != b' ' {
                    found.offset_minutes = cursor.zone()?;
                }
                if !cursor.rest.is_empty() {
                    return None;
                }
            }
            Some(_) => return None,
        }
        found.is_in_calendar().then_some(found)
    }

    fn is_in_calendar(&self) -> bool {
        let leap =
            self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        let days = match self.month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return false,
        };
        (1..=days).contains(&self.day) && self.hour < 24 && self.minute < 60 && self.second < 60
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second, nanosecond, offset_minutes } = *self;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if nanosecond != 0 {
            let digits = format!("{nanosecond:09}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        if offset_minutes == 0 {
            return write!(f, "Z");
        }
        let sign = if offset_minutes < 0 { '-' } else { '+' };
        let minutes = offset_minutes.unsigned_abs();
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// One or two digits.
    fn number(&mut self) -> Option<u8> {
        let first = self.next().filter(u8::is_ascii_digit)? - b'0';
        match self.rest.first() {
            Some(second) if second.is_ascii_digit() => {
                self.rest = &self.rest[1..];
                Some(first * 10 + (second - b'0'))
            }
            _ => Some(first),
        }
    }

    /// A fraction of a second in nanoseconds, cut after nine digits; 0 if there is none.
    fn fraction(&mut self) -> u32 {
        let [b'.' | b',', digits @ ..] = self.rest else {
            return 0;
        };
        let length = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
        if length == 0 {
            return 0;
        }
        self.rest = &digits[length..];
        let padded = digits[..length].iter().copied().chain(std::iter::repeat(b'0')).take(9);
        padded.fold(0, |value, digit| value * 10 + u32::from(digit - b'0'))
    }

    /// `Z` or `±hh:mm`, in minutes.
    fn zone(&mut self) -> Option<i16> {
        match *self.rest {
            [b'Z', ..] => {
                self.rest = &self.rest[1..];
                Some(0)
            }
            [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ref rest @ ..] => {
                let digits = [h1, h2, m1, m2];
                if !digits.iter().all(u8::is_ascii_digit) {
                    return None;
                }
                let [h1, h2, m1, m2] = digits.map(|digit| i16::from(digit - b'0'));
                let (hours, minutes) = (h1 * 10 + h2, m1 * 10 + m2);
                if hours > 24 || minutes > 60 {
                    return None;
                }
                self.rest = rest;
                let total = hours * 60 + minutes;
                Some(if sign == b'-' { -total } else { total })
            }
            _ => None,
        }
    }
}
