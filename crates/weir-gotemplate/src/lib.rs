//! Go's `text/template` with the Sprig functions and Helm's own.
//!
//! Pure: the clock, randomness, cluster lookups and name resolution come from a [`Host`]. Templates
//! are compiled once into flat instructions ([`Set::parse`]) and run by an [`Execution`], which
//! bounds steps, output, nesting and the size of values ([`Limits`]). Values keep Go's types apart
//! ([`Value`]); what templates print and the errors they raise are those of the Go packages, held
//! by recordings of the real ones.

#![expect(clippy::unnecessary_wraps, reason = "the bodies of template functions share one signature")]
#![expect(clippy::format_push_string, reason = "rare paths, where the text is short")]
#![expect(clippy::naive_bytecount, reason = "lines are counted in short texts and for errors only")]

mod base64;
mod error;
mod exec;
pub mod format;
mod function;
mod functions;
pub mod helm;
mod host;
pub mod json;
mod lex;
mod object;
mod parse;
mod set;
pub mod strconv;
mod text;
mod time;
mod toml;
mod tree;
mod value;

pub use error::{Error, Fault, ParseError};
pub use exec::{Context, Limits, MissingKey, Options};
pub use function::{Function, Method, Param, Run};
pub use functions::Functions;
pub use host::{FixedHost, Host};
pub use object::Object;
pub use set::{Execution, Set};
pub use text::Text;
pub use value::{
    Element, Entries, Kind, List, Map, NESTING_LEVELS_MAX, NamedType, PRINTED_BYTES_MAX, VISITED_VALUES_MAX,
    Value,
};

/// When less stack than this is left, in bytes, deep recursion continues on a new segment.
const STACK_RED_ZONE_BYTES: usize = 128 << 10;
/// The size of such a segment, in bytes.
const STACK_SEGMENT_BYTES: usize = 2 << 20;

/// Runs a step of deep recursion, on new stack if little is left.
fn deep<R>(step: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(STACK_RED_ZONE_BYTES, STACK_SEGMENT_BYTES, step)
}
