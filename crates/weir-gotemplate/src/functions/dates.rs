//! Sprig's date functions. The local zone is UTC, as in the controllers' containers.

use super::{Outcome, argument, text};
use crate::exec::Context;
use crate::function::{Function, Param};
use crate::strconv;
use crate::time::{Time, Zone, duration_text, parse_duration};
use crate::value::Value;

use Param::{Any, String as Str};

const SECOND: u64 = 1_000_000_000;

const TIME: Param = Param::Object("time.Time");

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("now", &[], |context, _| {
        let mut now = now(context);
        now.monotonic = true;
        Ok(Value::object(now))
    }),
    Function::new("date", &[Str, Any], |context, arguments| {
        in_zone(context, &text(arguments, 0), argument(arguments, 1), "Local")
    }),
    Function::new("dateInZone", &[Str, Any, Str], |context, arguments| {
        in_zone(context, &text(arguments, 0), argument(arguments, 1), &text(arguments, 2))
    }),
    Function::new("date_in_zone", &[Str, Any, Str], |context, arguments| {
        in_zone(context, &text(arguments, 0), argument(arguments, 1), &text(arguments, 2))
    }),
    Function::new("htmlDate", &[Any], |context, arguments| {
        in_zone(context, "2006-01-02", argument(arguments, 0), "Local")
    }),
    Function::new("htmlDateInZone", &[Any, Str], |context, arguments| {
        in_zone(context, "2006-01-02", argument(arguments, 0), &text(arguments, 1))
    }),
    Function::new("dateModify", &[Str, TIME], |_, arguments| modified(arguments, false)),
    Function::new("date_modify", &[Str, TIME], |_, arguments| modified(arguments, false)),
    Function::new("mustDateModify", &[Str, TIME], |_, arguments| modified(arguments, true)),
    Function::new("must_date_modify", &[Str, TIME], |_, arguments| modified(arguments, true)),
    Function::new("toDate", &[Str, Str], |_, arguments| {
        let parsed = Time::parse(&text(arguments, 0), &text(arguments, 1));
        Ok(Value::object(parsed.unwrap_or_else(|_| Time::zero())))
    }),
    Function::new("mustToDate", &[Str, Str], |_, arguments| {
        Ok(Value::object(Time::parse(&text(arguments, 0), &text(arguments, 1))?))
    }),
    Function::new("ago", &[Any], |context, arguments| {
        let now = now(context);
        let then = instant(context, argument(arguments, 0));
        let nanoseconds = now.since(&then);
        // Rounded to seconds, halves away from zero.
        let half = if nanoseconds < 0 { -500_000_000 } else { 500_000_000 };
        let rounded = nanoseconds.saturating_add(half) / 1_000_000_000 * 1_000_000_000;
        Ok(Value::string(duration_text(rounded)))
    }),
    Function::new("duration", &[Any], |_, arguments| {
        let seconds = match argument(arguments, 0) {
            Value::String(text) => {
                strconv::parse_int(&text.to_str_lossy(), 10).unwrap_or_else(|error| match error {
                    strconv::NumberError::Syntax => 0,
                    strconv::NumberError::Range if text.first() == Some(&b'-') => i64::MIN,
                    strconv::NumberError::Range => i64::MAX,
                })
            }
            Value::Int64(seconds) => *seconds,
            _ => 0,
        };
        Ok(Value::string(duration_text(seconds.wrapping_mul(1_000_000_000))))
    }),
    Function::new("durationRound", &[Any], |context, arguments| {
        let nanoseconds = match argument(arguments, 0) {
            Value::String(text) => parse_duration(&text.to_str_lossy()).unwrap_or(0),
            Value::Int64(nanoseconds) => *nanoseconds,
            value @ Value::Object(_) if time(value).is_some() => {
                let then = instant(context, value);
                now(context).since(&then)
            }
            _ => 0,
        };
        let magnitude = nanoseconds.unsigned_abs();
        let units = [
            (365 * 24 * 3600 * SECOND, "y"),
            (30 * 24 * 3600 * SECOND, "mo"),
            (24 * 3600 * SECOND, "d"),
            (3600 * SECOND, "h"),
            (60 * SECOND, "m"),
            (SECOND, "s"),
        ];
        let largest = units.iter().find(|(unit, _)| magnitude > *unit);
        Ok(Value::string(match largest {
            Some((unit, name)) => format!("{}{name}", magnitude / unit),
            None => "0s".to_owned(),
        }))
    }),
    Function::new("unixEpoch", &[TIME], |_, arguments| {
        let seconds = time(argument(arguments, 0)).map_or(0, |time| time.seconds);
        Ok(Value::string(seconds.to_string()))
    }),
];

fn now(context: &mut Context<'_>) -> Time {
    let (seconds, nanoseconds) = context.host().now();
    Time::new(seconds, nanoseconds, Zone::Utc)
}

fn time(value: &Value) -> Option<&Time> {
    match value {
        Value::Object(object) => object.as_any().downcast_ref(),
        _ => None,
    }
}

/// The instant a value stands for; anything that is no time and no integer stands for now.
fn instant(context: &mut Context<'_>, value: &Value) -> Time {
    match value {
        Value::Int(seconds) | Value::Int64(seconds) => Time::new(*seconds, 0, Zone::Utc),
        value => time(value).cloned().unwrap_or_else(|| now(context)),
    }
}

fn in_zone(context: &mut Context<'_>, layout: &str, value: &Value, zone: &str) -> Outcome {
    let zone = Zone::load(zone).unwrap_or(Zone::Utc);
    Ok(Value::string(instant(context, value).in_zone(zone).format(layout)))
}

fn modified(arguments: &[Value], strict: bool) -> Outcome {
    let Some(time) = time(argument(arguments, 1)) else { return Ok(Value::Nil) };
    match parse_duration(&text(arguments, 0)) {
        Ok(duration) => Ok(Value::object(time.add(duration))),
        Err(error) if strict => Err(error.into()),
        Err(_) => Ok(Value::object(time.clone())),
    }
}
