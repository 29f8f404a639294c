//! Semantic versions and constraints.

use std::any::Any;

use weir_base::version::{Constraint, Version};

use super::{Outcome, text};
use crate::error::Fault;
use crate::function::{Function, Method, Param};
use crate::object::Object;
use crate::value::{Kind, Value};

use Param::String as Str;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("semver", &[Str], |_, arguments| Ok(Value::object(SemVer(parse(&text(arguments, 0))?)))),
    Function::new("semverCompare", &[Str, Str], |_, arguments| {
        let constraint = Constraint::parse(&text(arguments, 0)).map_err(|error| error.to_string())?;
        let version = parse(&text(arguments, 1))?;
        Ok(Value::Bool(constraint.matches(&version)))
    }),
];

fn parse(text: &str) -> Result<Version, Fault> {
    Version::parse(text).map_err(|error| error.to_string().into())
}

/// `*semver.Version`
struct SemVer(Version);

fn receiver(value: &Value) -> Option<&Version> {
    match value {
        Value::Object(object) => object.as_any().downcast_ref::<SemVer>().map(|semver| &semver.0),
        _ => None,
    }
}

fn read(value: &Value, read: fn(&Version) -> Value) -> Outcome {
    Ok(receiver(value).map_or(Value::Nil, read))
}

fn compare(value: &Value, arguments: &[Value], test: fn(std::cmp::Ordering) -> Value) -> Outcome {
    let other = arguments.first().and_then(receiver);
    let (Some(left), Some(right)) = (receiver(value), other) else {
        return Err(super::lists::NIL_POINTER.into());
    };
    Ok(test(left.cmp(right)))
}

fn next(value: &Value, next: fn(&Version) -> (u64, u64, u64)) -> Outcome {
    let Some(version) = receiver(value) else { return Ok(Value::Nil) };
    let (major, minor, patch) = next(version);
    let prefix = if version.original().starts_with('v') { "v" } else { "" };
    let next = parse(&format!("{prefix}{major}.{minor}.{patch}"))?;
    Ok(Value::object(SemVer(next)))
}

const VERSION: Param = Param::Object("*semver.Version");

static METHODS: &[Method] = &[
    Method { name: "Major", params: &[], run: |v, _| read(v, |v| Value::Uint64(v.major)) },
    Method { name: "Minor", params: &[], run: |v, _| read(v, |v| Value::Uint64(v.minor)) },
    Method { name: "Patch", params: &[], run: |v, _| read(v, |v| Value::Uint64(v.patch)) },
    Method { name: "Prerelease", params: &[], run: |v, _| read(v, |v| Value::string(v.pre.as_str())) },
    Method { name: "Metadata", params: &[], run: |v, _| read(v, |v| Value::string(v.build.as_str())) },
    Method { name: "Original", params: &[], run: |v, _| read(v, |v| Value::string(v.original())) },
    Method { name: "String", params: &[], run: |v, _| read(v, |v| Value::string(v.to_string())) },
    Method {
        name: "Compare",
        params: &[VERSION],
        run: |v, arguments| compare(v, arguments, |order| Value::Int(order as i64)),
    },
    Method {
        name: "Equal",
        params: &[VERSION],
        run: |v, arguments| compare(v, arguments, |order| Value::Bool(order.is_eq())),
    },
    Method {
        name: "LessThan",
        params: &[VERSION],
        run: |v, arguments| compare(v, arguments, |order| Value::Bool(order.is_lt())),
    },
    Method {
        name: "LessThanEqual",
        params: &[VERSION],
        run: |v, arguments| compare(v, arguments, |order| Value::Bool(order.is_le())),
    },
    Method {
        name: "GreaterThan",
        params: &[VERSION],
        run: |v, arguments| compare(v, arguments, |order| Value::Bool(order.is_gt())),
    },
    Method {
        name: "GreaterThanEqual",
        params: &[VERSION],
        run: |v, arguments| compare(v, arguments, |order| Value::Bool(order.is_ge())),
    },
    Method { name: "IncMajor", params: &[], run: |v, _| next(v, |v| (v.major.wrapping_add(1), 0, 0)) },
    Method { name: "IncMinor", params: &[], run: |v, _| next(v, |v| (v.major, v.minor.wrapping_add(1), 0)) },
    Method {
        name: "IncPatch",
        params: &[],
        run: |v, _| {
            // A pre-release or build comes before the patch it belongs to.
            next(v, |v| {
                let bump = u64::from(v.pre.is_empty() && v.build.is_empty());
                (v.major, v.minor, v.patch.wrapping_add(bump))
            })
        },
    },
];

impl Object for SemVer {
    fn type_name(&self) -> &'static str {
        "*semver.Version"
    }

    fn kind(&self) -> Kind {
        Kind::Ptr
    }

    fn field(&self, _: &str) -> Option<Value> {
        None
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("major", Value::Uint64(self.0.major)),
            ("minor", Value::Uint64(self.0.minor)),
            ("patch", Value::Uint64(self.0.patch)),
            ("pre", Value::string(self.0.pre.as_str())),
            ("metadata", Value::string(self.0.build.as_str())),
            ("original", Value::string(self.0.original())),
        ]
    }

    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn text(&self) -> Option<String> {
        Some(self.0.to_string())
    }

    fn json(&self) -> Result<Value, String> {
        Ok(Value::string(self.0.to_string()))
    }

    fn equal(&self, other: &dyn Object) -> bool {
        std::ptr::addr_eq(other.as_any(), self.as_any())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
