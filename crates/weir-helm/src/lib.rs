//! Helm charts: loading ([`chart`]), values ([`values`], [`set`]), dependencies ([`dependencies`]),
//! locks ([`lock`], [`requirements`]), archives ([`package`]), schemas ([`schema`]), rendering
//! ([`render`]), manifests ([`manifest`]) and release records ([`release`]); [`content`]
//! puts them together, [`postrender`] lets others change what was rendered, [`lint`] looks for mistakes.
//!
//! All of that is pure: bytes and values in, text and values out. [`storage`] and [`action`] are not: they keep
//! records in a cluster and make releases there. Clock, randomness and cluster lookups
//! come from the [`weir_gotemplate::Host`] given to [`render::render`]. Numbers from YAML are floats
//! in values, as in the Go engine; only those of `--set` are integers.

#![expect(clippy::unnecessary_wraps, reason = "methods of template objects share one signature")]

pub mod action;
pub mod capabilities;
pub mod chart;
pub mod content;
pub mod dependencies;
mod deprecations;
mod files;
mod glob;
mod ignore;
mod legacy;
pub mod lint;
pub mod lock;
pub mod manifest;
pub mod metadata;
pub mod package;
pub mod postrender;
pub mod release;
pub mod render;
pub mod requirements;
pub mod schema;
pub mod set;
pub mod storage;
pub mod values;
