//! The content of a release: from a chart and the given values to manifests, hooks and notes.

use std::collections::BTreeMap;

use crate::chart::Chart;
use crate::dependencies;
use crate::manifest::{self, ManifestError, Order, Sorted, SplitRule};
use crate::render::{self, RenderError, RenderInput};
use crate::schema::{self, Documents, SchemaError};
use crate::values::{self, Mode, Table, ValuesError};

/// What a release consists of, before anything is applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// The chart as it was rendered: dependencies selected and renamed, values imported. This is what
    /// release records keep.
    pub chart: Chart,
    /// The values the templates saw.
    pub values: Table,
    /// Manifests in the order they are installed, and hooks.
    pub sorted: Sorted,
    /// The text of all manifests, as release records keep it.
    pub manifest: String,
    /// The notes for the user.
    pub notes: String,
}

/// Why a chart and values do not make a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The values do not fit the chart.
    #[error(transparent)]
    Values(#[from] ValuesError),
    /// The values do not satisfy the chart's schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A template fails.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// A rendered file is no manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// How the content is made.
#[derive(Clone, Default)]
pub struct ContentOptions {
    /// Where documents end.
    pub split: SplitRule,
    /// Whether values go unchecked.
    pub skip_schema: bool,
    /// The documents that schemas refer to.
    pub documents: Documents,
}

/// Rendered files by path.
pub type Files = BTreeMap<String, String>;

/// Makes the content of a release from a chart as it was loaded and the values that were given.
pub fn make(
    chart: Chart,
    given: &Table,
    input: RenderInput<'_>,
    options: &ContentOptions,
) -> Result<Content, ContentError> {
    make_changed(chart, given, input, options, Ok)
}

/// As [`make`], with rendered files changed before they are sorted: the place of post-renderers.
///
/// # Errors
/// As [`make`], and those of `change`.
pub fn make_changed<E: From<ContentError>>(
    mut chart: Chart,
    given: &Table,
    input: RenderInput<'_>,
    options: &ContentOptions,
    change: impl FnOnce(Files) -> Result<Files, E>,
) -> Result<Content, E> {
    dependencies::process(&mut chart, given).map_err(ContentError::from)?;
    let values = values::coalesce(&chart, given, Mode::Coalesce).map_err(ContentError::from)?;
    if !options.skip_schema {
        schema::validate(&chart, &values, &options.documents).map_err(ContentError::from)?;
    }
    let mut rendered = render::render(&chart, &values, input).map_err(ContentError::from)?;
    let notes = render::take_notes(&chart, &mut rendered);
    let rendered = change(rendered)?;
    let sorted = manifest::sort(&rendered, options.split, Order::Install).map_err(ContentError::from)?;
    let manifest = manifest::text(&sorted.manifests);
    Ok(Content { chart, values, sorted, manifest, notes })
}
