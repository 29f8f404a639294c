//! Helm chart repositories: their index, the choice of a chart version, and chart downloads.
//!
//! A repository is a directory on a web server with an `index.yaml`. The index is read once and kept as JSON in the
//! form Helm's libraries write it, so that the stored file has the same digest; one chart is then found in it without
//! reading the rest into memory.

mod entry;
mod index;
mod lookup;
pub mod provenance;
mod repository;
mod yaml;

pub use index::{Index, IndexError};
pub use lookup::{ChartVersion, LookupError, Table, choose, choose_tag};
pub use repository::{Access, Fetched, HelmError, Repository, Validators, chart_layer};

use url::Url;

/// The form in which URLs of chart repositories are compared: one slash at the end for `http` and `https`, none for
/// `oci`.
///
/// # Errors
/// The text is no URL.
pub fn normalize_url(text: &str) -> Result<String, url::ParseError> {
    let trimmed = text.trim_end_matches('/');
    let url = Url::parse(trimmed)?;
    if url.scheme() == "oci" {
        return Ok(trimmed.to_owned());
    }
    // A query stays behind the path.
    Ok(match trimmed.split_once('?') {
        Some((path, query)) => format!("{}/?{query}", path.trim_end_matches('/')),
        None => format!("{trimmed}/"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms() {
        for (text, expected) in [
            ("https://example.com", "https://example.com/"),
            ("https://example.com/charts//", "https://example.com/charts/"),
            ("http://example.com/charts?a=b", "http://example.com/charts/?a=b"),
            ("oci://example.com/charts/", "oci://example.com/charts"),
        ] {
            assert_eq!(normalize_url(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(normalize_url("example.com").is_err());
    }
}
