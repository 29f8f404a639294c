//! Resource quantities: reading, the one way a server writes each, comparing.

use std::cmp::Ordering;

/// A number with the notation it was written in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantity {
    nano: i128,
    notation: Notation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    Decimal,
    Binary,
    Exponent,
}

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// What a server says about text that is no quantity.
pub(crate) const FORMAT_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_ERROR: &str = "unable to parse quantity's suffix";
const NUMBER_ERROR: &str = "unable to parse numeric part of quantity";
const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// Reads text such as `100m`, `1.5Gi`, `1e3`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(digits);
        if number.is_empty() || !suffix.chars().all(|c| c.is_ascii_digit() || "eEinumkKMGTP+-".contains(c)) {
            return Err(FORMAT_ERROR);
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(if fraction.contains('.') { FORMAT_ERROR } else { NUMBER_ERROR });
        }
        let (notation, base, power) = read_suffix(suffix)?;
        let mut nano = scaled(whole, fraction, base, power);
        if text.starts_with('-') {
            nano = -nano;
        }
        // No number is larger than that; larger ones are capped.
        let limit = i128::from(i64::MAX) * NANO;
        Ok(Self { nano: nano.clamp(-limit, limit), notation })
    }

    /// Whether it is below zero.
    pub(crate) fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Whether it is zero.
    pub(crate) fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Whether it has no fraction.
    pub(crate) fn is_whole(self) -> bool {
        self.nano % NANO == 0
    }
}

/// Whether a quantity is above another; what is no quantity is above nothing.
pub(crate) fn exceeds(value: &serde_json::Value, bound: &serde_json::Value) -> bool {
    let read = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => Quantity::parse(text).ok(),
        serde_json::Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    };
    matches!((read(value), read(bound)), (Some(value), Some(bound)) if value > bound)
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.nano.cmp(&other.nano))
    }
}

fn read_suffix(suffix: &str) -> Result<(Notation, i128, i32), &'static str> {
    if let Some(index) = BINARY.iter().skip(1).position(|s| *s == suffix) {
        return Ok((Notation::Binary, 1024, index as i32 + 1));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Ok((Notation::Decimal, 10, *power));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(SUFFIX_ERROR)?;
    let power: i32 = exponent.parse().map_err(|_| SUFFIX_ERROR)?;
    Ok((Notation::Exponent, 10, power))
}

/// The number in billionths, rounded away from zero.
fn scaled(whole: &str, fraction: &str, base: i128, power: i32) -> i128 {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.len() > 28 {
        return i128::from(i64::MAX) * NANO;
    }
    let mut value: i128 = digits.parse().unwrap_or_default();
    let mut shift = 9 - fraction.len() as i32;
    if base == 10 {
        shift += power;
    } else {
        for _ in 0..power {
            value = value.saturating_mul(base);
        }
    }
    if value == 0 {
        return 0;
    }
    for _ in 0..shift.clamp(0, 40) {
        value = value.saturating_mul(10);
    }
    for _ in shift..0 {
        value = value / 10 + i128::from(value % 10 != 0);
    }
    value
}

impl std::fmt::Display for Quantity {
    /// The one way a server writes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let small = self.nano.abs() < 1024 * NANO || self.nano % NANO != 0;
        match self.notation {
            Notation::Binary if !small => {
                let (mut value, mut steps) = (self.nano / NANO, 0);
                while value % 1024 == 0 && steps < 6 {
                    value /= 1024;
                    steps += 1;
                }
                write!(f, "{value}{}", BINARY[steps])
            }
            Notation::Binary | Notation::Decimal => {
                let (value, power) = thousands(self.nano);
                let suffix = DECIMAL.iter().find(|(_, p)| *p == power).map_or("", |(s, _)| *s);
                write!(f, "{value}{suffix}")
            }
            Notation::Exponent => {
                let (value, power) = thousands(self.nano);
                if power == 0 { write!(f, "{value}") } else { write!(f, "{value}e{power}") }
            }
        }
    }
}

/// The number without trailing groups of three zeros, and the power of ten that was taken out.
fn thousands(nano: i128) -> (i128, i32) {
    let (mut value, mut power) = (nano, -9);
    while value % 1000 == 0 && power < 18 {
        value /= 1000;
        power += 3;
    }
    (value, power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, written: &str) {
        assert_eq!(Quantity::parse(text).map(|q| q.to_string()), Ok(written.to_owned()), "{text}");
    }

    #[test]
    fn quantities_are_written_in_one_way() {
        for (text, written) in [
            ("1", "1"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1.5", "1500m"),
            ("1024Mi", "1Gi"),
            ("1000Mi", "1000Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("0.1Gi", "107374182400m"),
            ("2000", "2k"),
            ("1e3", "1e3"),
            ("12E6", "12e6"),
            ("100e2", "10e3"),
            ("0", "0"),
            ("0Gi", "0"),
            ("-5", "-5"),
            ("+5", "5"),
            (".5", "500m"),
            ("5.", "5"),
            ("0.0000000001", "1n"),
            ("1E", "1E"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
        ] {
            check(text, written);
        }
    }

    #[test]
    fn what_is_no_quantity_is_said() {
        for (text, error) in
            [("", FORMAT_ERROR), ("abc", FORMAT_ERROR), ("1GB", FORMAT_ERROR), ("1mm", SUFFIX_ERROR)]
        {
            assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text}");
        }
        assert!(Quantity::parse("1Gi").unwrap() > Quantity::parse("1G").unwrap());
    }
}
