//! Artifacts in container registries: which digest a reference stands for, and its layers.

mod keychain;
mod registry;

use std::fmt;

use regex::Regex;
use weir_base::version::{Constraint, ConstraintError, Version};

pub use keychain::{Keychain, KeychainError};
pub use registry::{Access, Descriptor, Image, OciError, Session};

/// The media type of Helm charts, whose tags write `+` as `_`.
pub const HELM_CHART_CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// A repository in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The host and port as in the URL; `index.docker.io` for Docker Hub.
    pub registry: String,
    /// The name below it.
    pub name: String,
}

/// Why a URL does not name a repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme.
    #[error("URL must be in format 'oci://<domain>/<org>/<repo>'")]
    Scheme,
    /// A tag or digest in the URL.
    #[error("URL must not contain a tag; remove ':{0}'")]
    Tag(String),
    /// A name registries do not allow.
    #[error("could not parse reference: {0}")]
    Name(String),
}

impl Repository {
    /// Reads `oci://<registry>/<name>`.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        const NAME_BYTES_MAX: usize = 255;
        let text = url.strip_prefix("oci://").ok_or(UrlError::Scheme)?;
        if let Some((_, digest)) = text.split_once('@') {
            return Err(UrlError::Tag(digest.to_owned()));
        }
        let (registry, name) = match text.split_once('/') {
            Some((host, name)) if host.contains(['.', ':']) || host == "localhost" => (host, name),
            _ => ("index.docker.io", text),
        };
        if let Some((_, tag)) = name.rsplit('/').next().unwrap_or_default().split_once(':') {
            return Err(UrlError::Tag(tag.to_owned()));
        }
        let registry = if registry == "docker.io" { "index.docker.io" } else { registry };
        let allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-./".contains(&byte);
        let components = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let host = !registry.is_empty() && !registry.contains(['@', '?', '#', '\\', ' ']);
        if !(host && components && name.bytes().all(allowed) && (2..=NAME_BYTES_MAX).contains(&name.len())) {
            return Err(UrlError::Name(text.to_owned()));
        }
        let name = if registry == "index.docker.io" && !name.contains('/') {
            format!("library/{name}")
        } else {
            name.to_owned()
        };
        Ok(Self { registry: registry.to_owned(), name })
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.registry, self.name)
    }
}

/// What is to be pulled.
#[derive(Debug, Clone)]
pub enum Target {
    /// A manifest by its digest.
    Digest(String),
    /// The highest version among the tags that satisfies a constraint.
    Semver {
        /// The constraint as written.
        expression: String,
        /// The constraint.
        constraint: Constraint,
        /// Tags must match this.
        filter: Option<Regex>,
        /// Whether `_` in tags stands for `+`.
        is_chart: bool,
    },
    /// A tag.
    Tag(String),
}

/// Why no tag can be chosen.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The version range is malformed.
    #[error("semver parse error")]
    Semver(#[source] ConstraintError),
    /// The filter is malformed.
    #[error("failed to compile regex '{pattern}'")]
    Filter {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        #[source]
        source: Box<regex::Error>,
    },
    /// No tag satisfies the range.
    #[error("no match found for semver: {0}")]
    NoVersion(String),
}

impl Target {
    /// A digest wins over a version range, and that over a tag. Without any it is `latest`.
    pub fn new(
        digest: Option<&str>,
        semver: Option<&str>,
        filter: Option<&str>,
        tag: Option<&str>,
        layer_type: Option<&str>,
    ) -> Result<Self, SelectError> {
        let given = |field: Option<&str>| field.filter(|value| !value.is_empty()).map(str::to_owned);
        if let Some(digest) = given(digest) {
            return Ok(Self::Digest(digest));
        }
        if let Some(expression) = given(semver) {
            let constraint = Constraint::parse(&expression).map_err(SelectError::Semver)?;
            let filter = given(filter)
                .map(|pattern| {
                    Regex::new(&pattern)
                        .map_err(|source| SelectError::Filter { pattern, source: Box::new(source) })
                })
                .transpose()?;
            let is_chart = layer_type == Some(HELM_CHART_CONTENT);
            return Ok(Self::Semver { expression, constraint, filter, is_chart });
        }
        Ok(Self::Tag(given(tag).unwrap_or_else(|| "latest".to_owned())))
    }
}

/// The tag with the highest version that satisfies the constraint.
fn choose_tag(
    tags: &[String],
    expression: &str,
    constraint: &Constraint,
    filter: Option<&Regex>,
    is_chart: bool,
) -> Result<String, SelectError> {
    tags.iter()
        .filter(|tag| filter.is_none_or(|filter| filter.is_match(tag)))
        .filter_map(|tag| {
            let text = if is_chart { tag.replace('_', "+") } else { tag.clone() };
            let version = Version::parse_complete(&text).ok()?;
            constraint.matches(&version).then_some((version, tag))
        })
        .max_by(|(left, _), (right, _)| left.cmp(right))
        .map(|(_, tag)| tag.clone())
        .ok_or_else(|| SelectError::NoVersion(expression.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_url(url: &str, expected: Result<&str, &str>) {
        let found = Repository::parse(url).map(|repository| repository.to_string());
        assert_eq!(
            found.map_err(|error| error.to_string()),
            expected.map(str::to_owned).map_err(str::to_owned)
        );
    }

    #[test]
    fn urls() {
        check_url("oci://ghcr.io/org/app", Ok("ghcr.io/org/app"));
        check_url("oci://localhost:5000/app", Ok("localhost:5000/app"));
        check_url("oci://docker.io/nginx", Ok("index.docker.io/library/nginx"));
        check_url("oci://org/app", Ok("index.docker.io/org/app"));
        check_url("https://ghcr.io/org/app", Err("URL must be in format 'oci://<domain>/<org>/<repo>'"));
        check_url("oci://ghcr.io/org/app:1.0", Err("URL must not contain a tag; remove ':1.0'"));
        check_url("oci://ghcr.io/org/App", Err("could not parse reference: ghcr.io/org/App"));
        check_url("oci://ghcr.io/org/../app", Err("could not parse reference: ghcr.io/org/../app"));
        check_url("oci://ghcr.io/", Err("could not parse reference: ghcr.io/"));
    }

    #[track_caller]
    fn check_tag(semver: &str, filter: Option<&str>, is_chart: bool, expected: Result<&str, &str>) {
        let tags = ["latest", "1.0.0", "v1.2.0", "1.3.0-rc.1", "1.1.0_build", "2.0", "1.0.0-alpine"];
        let tags = tags.map(str::to_owned);
        let layer = is_chart.then_some(HELM_CHART_CONTENT);
        let found = Target::new(None, Some(semver), filter, None, layer).and_then(|target| match target {
            Target::Semver { expression, constraint, filter, is_chart } => {
                choose_tag(&tags, &expression, &constraint, filter.as_ref(), is_chart)
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(
            found.map_err(|error| weir_base::error::chain(&error)),
            expected.map(str::to_owned).map_err(str::to_owned)
        );
    }

    #[test]
    fn tags() {
        check_tag("1.x", None, false, Ok("v1.2.0"));
        check_tag(">=1.0.0-0", None, false, Ok("1.3.0-rc.1"));
        check_tag(">=1.0.0-0", Some(".*-alpine$"), false, Ok("1.0.0-alpine"));
        check_tag("~1.1", None, true, Ok("1.1.0_build"));
        check_tag("2.x", None, false, Err("no match found for semver: 2.x"));
        check_tag("x y", None, false, Err("semver parse error: improper constraint: \"x y\""));
    }

    #[test]
    fn precedence() {
        let target = |digest, semver, tag| Target::new(digest, semver, None, tag, None).unwrap();
        assert!(matches!(target(Some("sha256:1"), Some("1.x"), Some("a")), Target::Digest(_)));
        assert!(matches!(target(None, Some("1.x"), Some("a")), Target::Semver { .. }));
        assert!(matches!(target(None, None, Some("a")), Target::Tag(tag) if tag == "a"));
        assert!(matches!(target(None, None, Some("")), Target::Tag(tag) if tag == "latest"));
    }
}
