//! What templates can call on instants, durations, months and weekdays.

use std::any::Any;

use super::{DAYS, MONTHS, Time, Wall, ZERO_SECONDS, Zone, duration_text};
use crate::error::Fault;
use crate::function::{Method, Param};
use crate::object::Object;
use crate::value::{Kind, Value};

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
pub(super) struct Named {
    pub(super) type_name: &'static str,
    pub(super) number: i64,
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
