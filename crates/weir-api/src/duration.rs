//! Durations that parse and print as Go's `time.Duration` does.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Pattern of durations in the API.
pub const PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";
/// Pattern of durations in the API that do not allow hours.
pub const SHORT_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$";

const NANOSECOND: i64 = 1;
const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// Sums stay below this at every step; exactly this much is the smallest duration when negative.
const LIMIT: u64 = 1 << 63;

/// A signed duration in nanoseconds, about 292 years at most.
///
/// Text form and limits are those of Go's [`time.Duration`](https://pkg.go.dev/time#Duration), so that what a user wrote
/// for Flux means the same here and messages look the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// A text that is no duration. The messages are those of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// Not a number followed by a unit, or too large.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit that does not exist.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit as written.
        unit: String,
        /// The whole text.
        text: String,
    },
}

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A duration of whole seconds; the largest or smallest duration if it does not fit.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// A duration of whole milliseconds; the largest or smallest duration if it does not fit.
    pub const fn from_millis(milliseconds: i64) -> Self {
        Self(milliseconds.saturating_mul(MILLISECOND))
    }

    /// A duration of nanoseconds.
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// The length in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The length in seconds, with a fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / SECOND as f64
    }

    /// Whether the duration is exactly zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The same length for use with timers; zero if negative.
    pub const fn to_std(self) -> Duration {
        if self.0 <= 0 { Duration::ZERO } else { Duration::from_nanos(self.0.unsigned_abs()) }
    }

    /// The duration rounded to a multiple of `unit`, half away from zero; unchanged if `unit` is not positive.
    #[must_use]
    pub const fn round(self, unit: Self) -> Self {
        let unit = unit.0;
        if unit <= 0 {
            return self;
        }
        let rest = self.0 % unit;
        let truncated = self.0 - rest;
        if rest.unsigned_abs() < unit.unsigned_abs() - rest.unsigned_abs() {
            return Self(truncated);
        }
        Self(if self.0 < 0 { truncated.saturating_sub(unit) } else { truncated.saturating_add(unit) })
    }
}

impl From<Duration> for GoDuration {
    /// The same length; the largest duration if it does not fit.
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ParseDurationError::Invalid(text.to_owned());
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (whole, after) = split_digits(rest);
            let mut value: u64 = 0;
            for digit in whole.bytes() {
                value = value
                    .checked_mul(10)
                    .and_then(|value| value.checked_add(u64::from(digit - b'0')))
                    .filter(|value| *value <= LIMIT)
                    .ok_or_else(invalid)?;
            }
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => split_digits(after),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (unit_text, after) = after.split_at(end);
            let unit = match unit_text {
                "" => return Err(ParseDurationError::MissingUnit(text.to_owned())),
                "ns" => NANOSECOND,
                "us" | "µs" | "μs" => MICROSECOND,
                "ms" => MILLISECOND,
                "s" => SECOND,
                "m" => MINUTE,
                "h" => HOUR,
                unit => {
                    return Err(ParseDurationError::UnknownUnit {
                        unit: unit.to_owned(),
                        text: text.to_owned(),
                    });
                }
            };
            let nanoseconds = value
                .checked_mul(unit.unsigned_abs())
                .and_then(|value| value.checked_add(fraction_of(fraction, unit)))
                .filter(|value| *value <= LIMIT)
                .ok_or_else(invalid)?;
            total = total.checked_add(nanoseconds).filter(|total| *total <= LIMIT).ok_or_else(invalid)?;
            rest = after;
        }
        match (negative, i64::try_from(total)) {
            (true, Ok(total)) => Ok(Self(-total)),
            (true, Err(_)) => Ok(Self(i64::MIN)),
            (false, Ok(total)) => Ok(Self(total)),
            (false, Err(_)) => Err(invalid()),
        }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The nanoseconds of the digits after the point, computed in floating point as Go does; digits that no longer fit are dropped.
fn fraction_of(digits: &str, unit: i64) -> u64 {
    let mut value: u64 = 0;
    let mut scale = 1.0_f64;
    for digit in digits.bytes() {
        let Some(next) = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(digit - b'0')))
            .filter(|value| *value < LIMIT)
        else {
            break;
        };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

impl fmt::Display for GoDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.unsigned_abs();
        let sign = if self.0 < 0 { "-" } else { "" };
        let text = match length {
            0 => "0s".to_owned(),
            1..1_000 => format!("{sign}{length}ns"),
            1_000..1_000_000 => format!("{sign}{}µs", decimal(length, 3)),
            1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(length, 6)),
            _ => {
                let minutes = length / MINUTE.unsigned_abs();
                let seconds = decimal(length % MINUTE.unsigned_abs(), 9);
                match (minutes / 60, minutes % 60) {
                    (0, 0) => format!("{sign}{seconds}s"),
                    (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                    (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
                }
            }
        };
        formatter.pad(&text)
    }
}

/// `value / 10^digits` without trailing zeros.
fn decimal(value: u64, digits: usize) -> String {
    let divisor = 10_u64.pow(digits as u32);
    let (whole, rest) = (value / divisor, value % divisor);
    if rest == 0 {
        return whole.to_string();
    }
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": PATTERN})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn parses(text: &str, nanoseconds: i64) {
        assert_eq!(text.parse(), Ok(GoDuration(nanoseconds)), "{text}");
    }

    #[track_caller]
    fn fails(text: &str, message: &str) {
        assert_eq!(text.parse::<GoDuration>().unwrap_err().to_string(), message);
    }

    #[track_caller]
    fn prints(nanoseconds: i64, text: &str) {
        assert_eq!(GoDuration(nanoseconds).to_string(), text);
    }

    #[test]
    fn parses_what_go_parses() {
        parses("0", 0);
        parses("-0", 0);
        parses("0s", 0);
        parses("5s", 5 * SECOND);
        parses("+5s", 5 * SECOND);
        parses("-5s", -5 * SECOND);
        parses("1m30s", 90 * SECOND);
        parses("10m", 10 * MINUTE);
        parses("1.5h", 90 * MINUTE);
        parses(".5s", SECOND / 2);
        parses("5.s", 5 * SECOND);
        parses("3h30m0.5s", 3 * HOUR + 30 * MINUTE + SECOND / 2);
        parses("10ns", 10);
        parses("11us", 11_000);
        parses("12µs", 12_000);
        parses("12μs", 12_000);
        parses("13ms", 13 * MILLISECOND);
        parses("1s1h", HOUR + SECOND);
        parses("0.3333333333333333333h", 20 * MINUTE);
        parses("0.830103483285477580700h", 49 * MINUTE + 48 * SECOND + 372_539_827);
        parses("9007199254.740993s", 9_007_199_254_740_993_000);
        parses("9223372036854775807ns", i64::MAX);
        parses("-9223372036854775808ns", i64::MIN);
        parses("2562047h47m16.854775807s", i64::MAX);
    }

    #[test]
    fn refuses_what_go_refuses() {
        fails("", "time: invalid duration \"\"");
        fails("3", "time: missing unit in duration \"3\"");
        fails("-", "time: invalid duration \"-\"");
        fails("s", "time: invalid duration \"s\"");
        fails(".", "time: invalid duration \".\"");
        fails("-.s", "time: invalid duration \"-.s\"");
        fails("1d", "time: unknown unit \"d\" in duration \"1d\"");
        fails("10 m", "time: unknown unit \" m\" in duration \"10 m\"");
        fails("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\"");
        fails("-9223372036854775809ns", "time: invalid duration \"-9223372036854775809ns\"");
        fails("3000000h", "time: invalid duration \"3000000h\"");
    }

    #[test]
    fn prints_as_go_prints() {
        prints(0, "0s");
        prints(1, "1ns");
        prints(1_100, "1.1µs");
        prints(850_000, "850µs");
        prints(2_200_000, "2.2ms");
        prints(1_500 * MILLISECOND, "1.5s");
        prints(90 * SECOND, "1m30s");
        prints(10 * MINUTE, "10m0s");
        prints(HOUR, "1h0m0s");
        prints(4 * MINUTE + 5_001 * MILLISECOND, "4m5.001s");
        prints(5 * HOUR + 6 * MINUTE + 7_001 * MILLISECOND, "5h6m7.001s");
        prints(-90 * SECOND, "-1m30s");
        prints(i64::MAX, "2562047h47m16.854775807s");
        prints(i64::MIN, "-2562047h47m16.854775808s");
    }

    #[test]
    fn rounds_half_away_from_zero() {
        let round = |text: &str, unit: &str| {
            text.parse::<GoDuration>().unwrap().round(unit.parse().unwrap()).to_string()
        };
        assert_eq!(round("1.2345s", "1ms"), "1.235s");
        assert_eq!(round("-1.2345s", "1ms"), "-1.235s");
        assert_eq!(round("1.4s", "1s"), "1s");
        assert_eq!(round("1.4s", "0s"), "1.4s");
    }

    #[test]
    fn is_a_string_in_json() {
        assert_eq!(serde_json::to_string(&GoDuration::from_secs(600)).unwrap(), "\"10m0s\"");
        assert_eq!(serde_json::from_str::<GoDuration>("\"1m\"").unwrap(), GoDuration::from_secs(60));
        assert!(serde_json::from_str::<GoDuration>("60").is_err());
    }

    proptest! {
        #[test]
        fn printing_then_parsing_is_identity(nanoseconds in any::<i64>()) {
            let duration = GoDuration(nanoseconds);
            prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
