//! Schedules of cron jobs.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// A schedule such as `*/5 * * * *`, `@daily` or `@every 1h`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Minutes, hours, days, months and weekdays as bits, and whether days and weekdays are restricted.
    Fields { sets: [u64; 5], any_day: bool, any_weekday: bool },
    /// A fixed distance.
    Every { seconds: i64 },
}

const FIELDS: [(&str, u32, u32); 5] =
    [("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6)];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// What a real server says of a schedule it cannot read.
pub(crate) fn problem(text: &str) -> Option<String> {
    Schedule::parse(text).err()
}

impl Schedule {
    /// Reads a schedule.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(every) = text.strip_prefix("@every ") {
            let seconds = read_duration(every).ok_or_else(|| {
                format!("failed to parse duration {text}: time: invalid duration {every:?}")
            })?;
            return Ok(Self::Every { seconds: seconds.max(1) });
        }
        if text.starts_with('@') {
            return Err(format!("unrecognized descriptor: {text}"));
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        if fields.len() != 5 {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        }
        let mut sets = [0; 5];
        for (index, field) in fields.iter().enumerate() {
            sets[index] = read_field(field, index)?;
        }
        let star = |field: &str| field.starts_with('*') || field.starts_with('?');
        Ok(Self::Fields { sets, any_day: star(fields[2]), any_weekday: star(fields[4]) })
    }

    /// The first time after `after`; none within five years.
    pub(crate) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let (sets, any_day, any_weekday) = match self {
            Self::Every { seconds } => return after.checked_add((*seconds).seconds()).ok(),
            Self::Fields { sets, any_day, any_weekday } => (sets, *any_day, *any_weekday),
        };
        let has = |field: usize, value: i8| sets[field] & (1 << value) != 0;
        let start = after.to_zoned(zone.clone()).datetime().checked_add(1.minute()).ok()?;
        let mut date: Date = start.date();
        let mut first = Some(start.time());
        for _ in 0..366 * 5 {
            let weekday = date.weekday().to_sunday_zero_offset();
            let (day, week) = (has(2, date.day()), has(4, weekday));
            let fits = if any_day || any_weekday { day && week } else { day || week };
            if fits && has(3, date.month()) {
                let (from_hour, from_minute) = first.map_or((0, 0), |time| (time.hour(), time.minute()));
                for hour in (from_hour..24).filter(|hour| has(1, *hour)) {
                    let from = if hour == from_hour { from_minute } else { 0 };
                    for minute in (from..60).filter(|minute| has(0, *minute)) {
                        let found = DateTime::from_parts(date, jiff::civil::time(hour, minute, 0, 0));
                        if let Ok(zoned) = found.to_zoned(zone.clone()) {
                            return Some(zoned.timestamp());
                        }
                    }
                }
            }
            first = None;
            date = date.tomorrow().ok()?;
        }
        None
    }
}

fn read_field(field: &str, index: usize) -> Result<u64, String> {
    field.split(',').map(|part| read_part(part, index)).try_fold(0, |all, part| Ok(all | part?))
}

fn read_part(part: &str, index: usize) -> Result<u64, String> {
    let (_, low, high) = FIELDS[index];
    let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
    if part.matches('/').count() > 1 {
        return Err(format!("too many slashes: {part}"));
    }
    let (start, mut end) = if range == "*" || range == "?" {
        (low, high)
    } else {
        let (first, last) = range.split_once('-').map_or((range, None), |(first, last)| (first, Some(last)));
        if range.matches('-').count() > 1 {
            return Err(format!("too many hyphens: {part}"));
        }
        let start = read_number(first, index)?;
        (start, last.map_or(Ok(start), |last| read_number(last, index))?)
    };
    let step = match step {
        None => 1,
        Some(step) => {
            // `3/5` goes on to the end.
            if !range.contains('-') && range != "*" && range != "?" {
                end = high;
            }
            read_number(step, usize::MAX)?
        }
    };
    if start < low {
        return Err(format!("beginning of range ({start}) below minimum ({low}): {part}"));
    }
    // Sunday may be written as 7 by nobody: a real server refuses it too.
    if end > high {
        return Err(format!("end of range ({end}) above maximum ({high}): {part}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok((start..=end).step_by(step as usize).fold(0, |set, value| set | 1 << value))
}

fn read_number(text: &str, index: usize) -> Result<u32, String> {
    let lower = text.to_lowercase();
    let named = match index {
        3 => MONTHS.iter().position(|name| *name == lower).map(|position| position + 1),
        4 => WEEKDAYS.iter().position(|name| *name == lower),
        _ => None,
    };
    if let Some(value) = named {
        return Ok(value as u32);
    }
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })
}

/// Go's notation of durations, in whole seconds.
pub(crate) fn read_duration(text: &str) -> Option<i64> {
    Some(read_duration_ms(text)? / 1000)
}

/// Go's notation of durations, in milliseconds.
pub(crate) fn read_duration_ms(text: &str) -> Option<i64> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "ms" => 1.0,
                "s" => 1000.0,
                "m" => 60_000.0,
                "h" => 3_600_000.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Some(total as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: &str, after: &str, expected: &str) {
        let schedule = Schedule::parse(schedule).unwrap();
        let next = schedule.next(after.parse().unwrap(), &TimeZone::UTC).unwrap();
        assert_eq!(next.to_string(), expected);
    }

    #[test]
    fn the_next_time_comes_after_the_last() {
        check("*/5 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z");
        check("0 3 * * *", "2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z");
        check("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z");
        check("0 12 * * mon-fri", "2026-01-02T13:00:00Z", "2026-01-05T12:00:00Z");
        check("0 0 1 * 0", "2026-01-01T00:00:30Z", "2026-01-04T00:00:00Z");
        check("@every 1h30m", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z");
        check("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    }

    #[test]
    fn bad_schedules_are_explained() {
        assert_eq!(problem("nonsense").as_deref(), Some("expected exactly 5 fields, found 1: [nonsense]"));
        assert_eq!(problem("70 * * * *").as_deref(), Some("end of range (70) above maximum (59): 70"));
        assert!(problem("x * * * *").unwrap().starts_with("failed to parse int from x"));
        assert_eq!(problem("0 3 * * *"), None);
    }

    #[test]
    fn durations_are_written_as_in_go() {
        assert_eq!(read_duration_ms("1m30s"), Some(90_000));
        assert_eq!(read_duration_ms("300ms"), Some(300));
        assert_eq!(read_duration_ms("soon"), None);
    }
}
