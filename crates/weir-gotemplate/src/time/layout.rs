//! Layouts: writing instants in them and reading them back.

use std::rc::Rc;

use super::{DAYS, MONTHS, Time, Wall, Zone, date_of, days_in, days_of, quoted};

impl Time {
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
