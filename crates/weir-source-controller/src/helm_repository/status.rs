//! What people see of a HelmRepository besides what all sources show. Pure.

use jiff::Timestamp;
use weir_api::condition::{self, Summary};
use weir_api::names::condition::{FETCH_FAILED, STORAGE_OPERATION_FAILED};
use weir_api::source::HelmRepository;
use weir_api::{Artifact, FluxObject as _};

use super::publish::Published;
use crate::source::Source;
use crate::source::status::{UNVERIFIED, stored};

impl Source for HelmRepository {
    const SUMMARY: Summary<'static> = UNVERIFIED;
    const FAILURES: &'static [&'static str] = &[FETCH_FAILED, STORAGE_OPERATION_FAILED];

    fn artifact(&self) -> Option<&Artifact> {
        self.status.as_ref()?.artifact.as_ref()
    }

    fn artifact_mut(&mut self) -> Option<&mut Artifact> {
        self.status.as_mut()?.artifact.as_mut()
    }

    fn forget_artifact(&mut self) {
        if let Some(status) = &mut self.status {
            status.artifact = None;
            status.url = None;
        }
    }

    fn stored_message(revision: &str) -> String {
        format!("stored artifact: revision '{revision}'")
    }
}

/// An artifact was stored.
pub(super) fn published(object: &mut HelmRepository, published: Published, now: Timestamp) {
    let revision = published.artifact.revision.clone();
    let status = object.status_mut();
    status.artifact = Some(published.artifact);
    status.url = published.url.or(status.url.take());
    condition::delete(&mut status.conditions, STORAGE_OPERATION_FAILED);
    stored(object, &revision, now);
}

/// What is told about a stored artifact.
pub(super) fn stored_from(object: &HelmRepository) -> String {
    let size = object.artifact().and_then(|artifact| artifact.size);
    let size = size.map_or_else(|| "unknown size".to_owned(), |size| format!("size {}", human_size(size)));
    format!("stored fetched index of {size} from '{}'", without_credentials(&object.spec.url))
}

/// Four digits and a decimal unit.
fn human_size(bytes: i64) -> String {
    let mut size = bytes as f64;
    let mut units = ["B", "kB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while size >= 1000.0
        && let Some(next) = units.next()
    {
        size /= 1000.0;
        unit = next;
    }
    let decimals = match size {
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    };
    let text = format!("{size:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// The URL as written unless it holds a password.
fn without_credentials(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(parsed) if !parsed.username().is_empty() || parsed.password().is_some() => {
            let mut shown = parsed;
            let _ = shown.set_username("");
            let _ = shown.set_password(None);
            shown.to_string()
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_are_for_people() {
        for (bytes, expected) in [
            (0, "0B"),
            (999, "999B"),
            (1000, "1kB"),
            (40_512, "40.51kB"),
            (40_500, "40.5kB"),
            (123_456_789, "123.5MB"),
            (30_000_000, "30MB"),
        ] {
            assert_eq!(human_size(bytes), expected);
        }
    }

    #[test]
    fn what_is_told_about_a_stored_index() {
        let mut object: HelmRepository = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
            "metadata": {"name": "r", "namespace": "apps", "generation": 1},
            "spec": {"url": "https://me:secret@example.com/charts"},
        }))
        .unwrap();
        assert_eq!(
            stored_from(&object),
            "stored fetched index of unknown size from 'https://example.com/charts'"
        );
        let artifact: Artifact = serde_json::from_value(json!({
            "revision": "sha256:1", "digest": "sha256:2", "path": "p", "url": "u", "size": 1234,
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        let stored = Published { artifact, url: Some("http://x/index.yaml".to_owned()), not_linked: None };
        published(&mut object, stored, "2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(object.conditions()[0].message, "stored artifact: revision 'sha256:1'");
        "https://example.com".clone_into(&mut object.spec.url);
        assert_eq!(stored_from(&object), "stored fetched index of size 1.234kB from 'https://example.com'");
        object.forget_artifact();
        assert_eq!(object.status.as_ref().unwrap().url, None);
    }
}
