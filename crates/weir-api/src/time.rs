//! Times as the API stores them: UTC, whole seconds.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time with whole seconds, written as RFC 3339 in UTC, as `metav1.Time` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

impl Time {
    /// The time with its fraction of a second cut off.
    pub fn new(timestamp: Timestamp) -> Self {
        Self(
            Timestamp::from_second(timestamp.as_nanosecond().div_euclid(1_000_000_000) as i64)
                .unwrap_or(timestamp),
        )
    }

    /// The time as a timestamp.
    pub const fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        Self::new(timestamp)
    }
}

impl FromStr for Time {
    type Err = jiff::Error;

    /// Reads RFC 3339 with any offset; a fraction of a second is cut off.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Timestamp>().map(Self::new)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(text.parse::<Time>().unwrap().to_string(), expected);
    }

    #[test]
    fn reads_any_offset_and_writes_utc_seconds() {
        check("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z");
        check("2026-01-02T03:04:05.999Z", "2026-01-02T03:04:05Z");
        check("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z");
        check("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59Z");
    }

    #[test]
    fn refuses_other_text() {
        for text in ["", "yesterday", "2026-01-02", "2026-13-02T03:04:05Z"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }
}
