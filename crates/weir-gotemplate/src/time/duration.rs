//! Durations: how Go prints and reads them.

use super::quoted;

/// `time.Duration.String`
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let magnitude = nanoseconds.unsigned_abs();
    let decimal = |value: u64, unit: u64, digits: usize| {
        let mut text = (value / unit).to_string();
        let fraction = format!("{:0digits$}", value % unit);
        let fraction = fraction.trim_end_matches('0');
        if !fraction.is_empty() {
            text.push('.');
            text.push_str(fraction);
        }
        text
    };
    if magnitude < 1_000 {
        return format!("{sign}{magnitude}ns");
    }
    if magnitude < 1_000_000 {
        return format!("{sign}{}µs", decimal(magnitude, 1_000, 3));
    }
    if magnitude < 1_000_000_000 {
        return format!("{sign}{}ms", decimal(magnitude, 1_000_000, 6));
    }
    let seconds = decimal(magnitude % 60_000_000_000, 1_000_000_000, 9);
    let minutes = magnitude / 60_000_000_000;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// `time.ParseDuration` in nanoseconds; the errors are Go's.
pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    let shown = quoted(text);
    let invalid = || format!("time: invalid duration {shown}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u128 = if whole == 0 { 0 } else { rest[..whole].parse().map_err(|_| invalid())? };
        rest = &rest[whole..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            fraction = &after[..digits];
            rest = &after[digits..];
        }
        if whole == 0 && fraction.is_empty() {
            return Err(invalid());
        }
        let unit_length = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        if unit_length == 0 {
            return Err(format!("time: missing unit in duration {shown}"));
        }
        let unit = match &rest[..unit_length] {
            "ns" => 1_u128,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            unknown => {
                let unknown = quoted(unknown);
                return Err(format!("time: unknown unit {unknown} in duration {shown}"));
            }
        };
        rest = &rest[unit_length..];
        if number > i64::MAX as u128 {
            return Err(invalid());
        }
        total += number * unit;
        if !fraction.is_empty() {
            let digits = &fraction[..fraction.len().min(18)];
            let scale = 10_f64.powi(digits.len() as i32);
            let value: u64 = digits.parse().unwrap_or(0);
            total += (value as f64 * (unit as f64 / scale)) as u128;
        }
        if total > 1 << 63 {
            return Err(invalid());
        }
    }
    match (negative, i64::try_from(total)) {
        (true, Ok(value)) => Ok(-value),
        (true, Err(_)) => Ok(i64::MIN),
        (false, Ok(value)) => Ok(value),
        (false, Err(_)) => Err(invalid()),
    }
}
