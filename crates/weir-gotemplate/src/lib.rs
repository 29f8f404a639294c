//! Go's `text/template` with the Sprig functions and Helm's own.
//!
//! Pure: the clock, randomness, cluster lookups and name resolution come from a [`Host`]. Templates
//! are compiled once into flat instructions ([`Set::parse`]) and run by an [`Execution`], which
//! bounds steps, output, nesting and the size of values ([`Limits`]). Values keep Go's types apart
//! ([`Value`]); what templates print and the errors they raise are those of the Go packages, held
//! by recordings of the real ones.

mod error;
mod exec;
pub mod format;
mod function;
mod functions;
mod host;
mod lex;
mod object;
mod parse;
mod set;
pub mod strconv;
mod text;
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
pub use value::{Element, Entries, Kind, List, Map, NESTING_LEVELS_MAX, NamedType, Value};

/// When less stack than this is left, in bytes, deep recursion continues on a new segment.
const STACK_RED_ZONE_BYTES: usize = 128 << 10;
/// The size of such a segment, in bytes.
const STACK_SEGMENT_BYTES: usize = 2 << 20;
