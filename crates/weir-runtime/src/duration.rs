//! Durations as Go prints and parses them, for messages and flags.

use std::time::Duration;

/// Prints a duration as Go's `time.Duration.String` does: `1m30s`, `250ms`, `10m0s`, `0s`.
pub fn go(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < 1_000 {
        return format!("{nanos}ns");
    }
    if nanos < 1_000_000 {
        return format!("{}µs", decimal(nanos, 1_000));
    }
    if nanos < 1_000_000_000 {
        return format!("{}ms", decimal(nanos, 1_000_000));
    }
    let minutes = nanos / 60_000_000_000;
    let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    if hours > 0 {
        format!("{hours}h{minutes}m{seconds}s")
    } else if minutes > 0 {
        format!("{minutes}m{seconds}s")
    } else {
        format!("{seconds}s")
    }
}

/// `value / unit` with as many decimals as it takes to be exact.
fn decimal(value: u128, unit: u128) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// A text that is not a Go duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration '{0}': want a number with a unit such as '30s', '1m30s' or '750ms'")]
pub struct InvalidDuration(pub String);

/// Parses what Go's `time.ParseDuration` accepts, except negative durations.
///
/// # Errors
/// Empty text, a number without unit, an unknown unit, a negative or too long duration.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(invalid)?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        rest = tail;
        let scale: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(invalid()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(invalid());
        }
        if !whole.is_empty() {
            let whole: u128 = whole.parse().map_err(|_| invalid())?;
            nanos = nanos
                .checked_add(whole.checked_mul(scale).ok_or_else(invalid)?)
                .ok_or_else(invalid)?;
        }
        if !fraction.is_empty() {
            // More digits than a nanosecond has cannot change the result.
            let digits = &fraction[..fraction.len().min(15)];
            let value: u128 = digits.parse().map_err(|_| invalid())?;
            nanos += value * scale / 10_u128.pow(digits.len() as u32);
        }
    }
    // Go's durations end at the largest signed 64-bit number of nanoseconds.
    if nanos > i64::MAX as u128 {
        return Err(invalid());
    }
    Ok(Duration::from_nanos(nanos as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_go_does() {
        for (nanos, want) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (750_000_000, "750ms"),
            (1_200_000_000, "1.2s"),
            (600_000_000_000, "10m0s"),
            (90_000_000_000, "1m30s"),
            (3_600_000_000_000, "1h0m0s"),
            (5_400_000_000_001, "1h30m0.000000001s"),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(go(duration), want);
            assert_eq!(parse(want), Ok(duration));
        }
    }

    #[test]
    fn parses_what_go_parses_and_nothing_else() {
        assert_eq!(parse("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse(".5s"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("+1m"), Ok(Duration::from_secs(60)));
        for bad in ["", "1", "s", "1x", "-1s", "1.2.3s", ".s", "3000000h", "1d"] {
            assert_eq!(parse(bad), Err(InvalidDuration(bad.to_owned())), "{bad}");
        }
    }
}
