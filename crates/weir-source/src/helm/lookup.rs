//! One chart in a stored index, and the version to take.

use std::collections::HashMap;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_base::version::{Constraint, ConstraintError, Version};

/// A chart version of an index, as far as it is needed to fetch it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ChartVersion {
    /// The chart.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it can be downloaded; may be relative to the repository.
    pub urls: Option<Vec<String>>,
    /// When it was packaged.
    pub created: String,
    /// The SHA-256 digest of the package in hex, if the index says so.
    pub digest: String,
}

/// Why no chart version can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The file is not a stored index.
    #[error("failed to load index")]
    Broken,
    /// There is no chart of that name.
    #[error("no chart name found")]
    NoChart,
    /// The chart has no versions.
    #[error("no chart version found")]
    NoVersions,
    /// The range is malformed.
    #[error(transparent)]
    Range(#[from] ConstraintError),
    /// No version lies in the range.
    #[error("no '{name}' chart with version matching '{range}' found")]
    NoMatch {
        /// The chart.
        name: String,
        /// The range.
        range: String,
    },
    /// No tag lies in the range.
    #[error("could not locate a version matching provided version string {0}")]
    NoTag(String),
}

/// Where each chart is in a stored index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table(HashMap<Box<str>, Range<usize>>);

impl Table {
    /// Finds the charts of a stored index. The text is passed over once; nothing but the places is kept.
    ///
    /// # Errors
    /// The text is not a JSON index.
    pub fn of(index: &str) -> Result<Self, LookupError> {
        #[derive(Deserialize)]
        struct Top<'a> {
            #[serde(borrow)]
            entries: Option<HashMap<String, &'a RawValue>>,
        }
        let top: Top<'_> = serde_json::from_str(index).map_err(|_| LookupError::Broken)?;
        let start = index.as_ptr().addr();
        let places = top.entries.unwrap_or_default().into_iter().map(|(name, raw)| {
            let offset = raw.get().as_ptr().addr() - start;
            (name.into_boxed_str(), offset..offset + raw.get().len())
        });
        Ok(Self(places.collect()))
    }

    /// Where the versions of a chart are.
    pub fn place(&self, chart: &str) -> Option<Range<usize>> {
        self.0.get(chart).cloned()
    }

    /// About how much memory it takes.
    pub fn size_bytes(&self) -> usize {
        self.0.keys().map(|name| name.len() + 64).sum()
    }
}

impl ChartVersion {
    /// The versions at one place of a stored index.
    ///
    /// # Errors
    /// The text is not a list of chart versions.
    pub fn list(text: &str) -> Result<Vec<Self>, LookupError> {
        serde_json::from_str(text).map_err(|_| LookupError::Broken)
    }

    fn created_at(&self) -> Option<jiff::Timestamp> {
        self.created.parse().ok()
    }
}

/// The version to take of a chart: the one of exactly that name, or the highest in the range. Of equal ones, which
/// differ in build metadata alone, the latest wins.
///
/// # Errors
/// There are no versions, none fits, or the range is malformed.
pub fn choose<'v>(
    versions: &'v [ChartVersion],
    name: &str,
    range: &str,
) -> Result<&'v ChartVersion, LookupError> {
    if versions.is_empty() {
        return Err(LookupError::NoVersions);
    }
    if let Some(exact) = versions.iter().find(|version| !range.is_empty() && version.version == range) {
        return Ok(exact);
    }
    let constraint = constraint(range)?;
    let mut best: Option<(Version, &ChartVersion)> = None;
    for candidate in versions {
        let Ok(version) = Version::parse_complete(&candidate.version) else { continue };
        if !constraint.matches(&version) {
            continue;
        }
        let wins = best.as_ref().is_none_or(|(held, other)| {
            version.cmp(held).then_with(|| candidate.created_at().cmp(&other.created_at())).is_gt()
        });
        if wins {
            best = Some((version, candidate));
        }
    }
    best.map(|(_, chosen)| chosen)
        .ok_or_else(|| LookupError::NoMatch { name: name.to_owned(), range: range.to_owned() })
}

/// The version to take among the tags of a chart in a registry, with `+` where tags have `_`.
///
/// # Errors
/// No tag fits, or the range is malformed.
pub fn choose_tag(tags: &[String], range: &str) -> Result<String, LookupError> {
    // Only versions in the strict form count, so `latest` and `v1.0.0` do not.
    let versions: Vec<String> = tags
        .iter()
        .map(|tag| tag.replace('_', "+"))
        .filter(|tag| !tag.starts_with('v') && Version::parse_complete(tag).is_ok())
        .collect();
    if versions.iter().any(|version| version == range) {
        return Ok(range.to_owned());
    }
    let constraint = constraint(range)?;
    versions
        .into_iter()
        .filter_map(|text| Some((Version::parse_complete(&text).ok()?, text)))
        .filter(|(version, _)| constraint.matches(version))
        .max_by(|(left, _), (right, _)| left.cmp(right))
        .map(|(_, text)| text)
        .ok_or_else(|| LookupError::NoTag(range.to_owned()))
}

fn constraint(range: &str) -> Result<Constraint, ConstraintError> {
    Constraint::parse(if range.is_empty() { "*" } else { range })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(version: &str, created: &str) -> ChartVersion {
        ChartVersion {
            name: "a".to_owned(),
            version: version.to_owned(),
            created: created.to_owned(),
            ..ChartVersion::default()
        }
    }

    #[track_caller]
    fn check(range: &str, expected: Result<(&str, &str), &str>) {
        let versions = [
            version("2.0.0-rc.1", ""),
            version("1.3.0", "2024-01-01T00:00:00Z"),
            version("1.3.0+build", "2024-01-02T00:00:00Z"),
            version("1.2", ""),
            version("strange", ""),
            version("0.9.0", ""),
        ];
        let found =
            choose(&versions, "a", range).map(|found| (found.version.as_str(), found.created.as_str()));
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{range}");
    }

    #[test]
    fn versions() {
        check("", Ok(("1.3.0+build", "2024-01-02T00:00:00Z")));
        check("*", Ok(("1.3.0+build", "2024-01-02T00:00:00Z")));
        check("1.3.0", Ok(("1.3.0", "2024-01-01T00:00:00Z")));
        check("strange", Ok(("strange", "")));
        check("1.2", Ok(("1.2", "")));
        check("<1.0.0", Ok(("0.9.0", "")));
        check(">=1.0.0-0", Ok(("2.0.0-rc.1", "")));
        check(">9", Err("no 'a' chart with version matching '>9' found"));
        check("a b", Err("improper constraint: \"a b\""));
        assert_eq!(choose(&[], "a", "*"), Err(LookupError::NoVersions));
    }

    #[test]
    fn tags() {
        let tags = ["latest", "v3.0.0", "1.0.0", "1.1.0_b", "2.0.0-rc.1", "1.2"].map(str::to_owned);
        assert_eq!(choose_tag(&tags, "*").as_deref(), Ok("1.1.0+b"));
        assert_eq!(choose_tag(&tags, "1.1.0+b").as_deref(), Ok("1.1.0+b"));
        assert_eq!(choose_tag(&tags, "~1.0").as_deref(), Ok("1.0.0"));
        assert_eq!(choose_tag(&tags, ">=2").unwrap_err(), LookupError::NoTag(">=2".to_owned()));
    }

    #[test]
    fn one_chart_is_read_from_its_place() {
        let text = r#"{"apiVersion": "v1", "entries": {"b": [], "a": [{"name": "a", "version": "1.0.0", "x": {}}]}}"#;
        let table = Table::of(text).unwrap();
        let place = table.place("a").unwrap();
        let versions = ChartVersion::list(&text[place]).unwrap();
        assert_eq!(versions, [version("1.0.0", "")]);
        assert_eq!(ChartVersion::list(&text[table.place("b").unwrap()]), Ok(Vec::new()));
        assert_eq!(table.place("c"), None);
        assert_eq!(Table::of("apiVersion: v1"), Err(LookupError::Broken));
    }
}
