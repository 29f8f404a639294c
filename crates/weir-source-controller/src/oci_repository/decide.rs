//! What is to be done: pure.

use weir_api::condition;
use weir_api::names::condition::SOURCE_VERIFIED;
use weir_api::source::{LayerOperation, OCIRepository};
use weir_source::oci::{Descriptor, Image, Repository, SelectError, Target};

use super::error::Error;
use crate::source::verify::Wanted;

/// A revision and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The manifest digest.
    pub(super) digest: String,
    /// `<tag>@<digest>`, or the digest alone.
    pub(super) revision: String,
    /// The repository with tag or digest.
    pub(super) reference: String,
}

impl Resolved {
    pub(super) fn new(url: &str, tag: Option<String>, digest: String) -> Self {
        let repository = url.strip_prefix("oci://").unwrap_or(url);
        match tag {
            Some(tag) => {
                Self { revision: format!("{tag}@{digest}"), reference: format!("{repository}:{tag}"), digest }
            }
            None => Self { revision: digest.clone(), reference: format!("{repository}@{digest}"), digest },
        }
    }
}

/// What must be verified, if anything.
pub(super) fn wanted(object: &OCIRepository) -> Option<Wanted<'_>> {
    let verify = object.spec.verify.as_ref()?;
    Some(Wanted {
        provider: verify.provider,
        keys: verify.secret_ref.as_ref(),
        root: verify.trusted_root_secret_ref.as_ref(),
        identities: &verify.match_oidc_identity,
    })
}

/// Whether the revision has to be verified: it is another one, or what was verified is not what is asked for now.
pub(super) fn is_unverified(working: &OCIRepository, revision: &str) -> bool {
    let Some(status) = &working.status else { return true };
    let is_stored = status.artifact.as_ref().is_some_and(|artifact| artifact.revision == revision);
    let is_verified = condition::get(&status.conditions, SOURCE_VERIFIED).is_some_and(|verified| {
        verified.status == condition::ConditionStatus::True
            && Some(verified.observed_generation) == working.metadata.generation
    });
    !(is_stored && is_verified)
}

/// The repository the URL names.
pub(super) fn repository(object: &OCIRepository) -> Result<Repository, Error> {
    let url = &object.spec.url;
    Repository::parse(url).map_err(|source| Error::Url { url: url.clone(), source })
}

/// What to pull.
pub(super) fn target(object: &OCIRepository) -> Result<Target, SelectError> {
    let reference = object.spec.reference.clone().unwrap_or_default();
    Target::new(
        reference.digest.as_deref(),
        reference.semver.as_deref(),
        reference.semver_filter.as_deref(),
        reference.tag.as_deref(),
        media_type(object),
    )
}

/// The target once the tag of a version range is known.
pub(super) fn with_tag(target: Target, tag: String) -> Target {
    match target {
        Target::Digest(digest) => Target::Digest(digest),
        Target::Semver { .. } | Target::Tag(_) => Target::Tag(tag),
    }
}

fn media_type(object: &OCIRepository) -> Option<&str> {
    let selector = object.spec.layer_selector.as_ref()?;
    selector.media_type.as_deref().filter(|media_type| !media_type.is_empty())
}

/// What is done with the layer.
pub(super) fn operation(object: &OCIRepository) -> LayerOperation {
    object
        .spec
        .layer_selector
        .as_ref()
        .and_then(|selector| selector.operation)
        .unwrap_or(LayerOperation::Extract)
}

/// The layer the specification asks for.
pub(super) fn layer<'a>(object: &OCIRepository, image: &'a Image) -> Result<&'a Descriptor, Error> {
    match media_type(object) {
        _ if image.layers.is_empty() => Err(Error::NoLayers),
        None => image.layers.first().ok_or(Error::NoLayers),
        Some(media_type) => image
            .layers
            .iter()
            .find(|layer| layer.media_type == media_type)
            .ok_or_else(|| Error::NoLayer(media_type.to_owned())),
    }
}

/// Whether the stored artifact is that of the revision, made the way it would be made now.
pub(super) fn is_stored(working: &OCIRepository, revision: &str) -> bool {
    working.status.as_ref().is_some_and(|status| {
        status.artifact.as_ref().is_some_and(|artifact| artifact.revision == revision)
            && status.observed_ignore == working.spec.ignore
            && status.observed_layer_selector == working.spec.layer_selector
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: serde_json::Value, status: &serde_json::Value) -> OCIRepository {
        let mut spec = spec;
        spec["interval"] = json!("1m");
        spec["url"] = json!("oci://example.com/app");
        serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
            "metadata": {"name": "r", "namespace": "apps"}, "spec": spec, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn revisions() {
        let resolved = Resolved::new("oci://example.com/app", Some("1.0".to_owned()), "sha256:1".to_owned());
        assert_eq!(resolved.revision, "1.0@sha256:1");
        assert_eq!(resolved.reference, "example.com/app:1.0");
        let resolved = Resolved::new("oci://example.com/app", None, "sha256:1".to_owned());
        assert_eq!(resolved.revision, "sha256:1");
        assert_eq!(resolved.reference, "example.com/app@sha256:1");
    }

    #[test]
    fn layers() {
        let image: Image = serde_json::from_value(json!({
            "layers": [{"mediaType": "a", "digest": "sha256:1"}, {"mediaType": "b", "digest": "sha256:2"}]
        }))
        .unwrap();
        let choose = |spec| {
            layer(&object(spec, &json!({})), &image)
                .map(|layer| layer.digest.clone())
                .map_err(|error| error.to_string())
        };
        assert_eq!(choose(json!({})).as_deref(), Ok("sha256:1"));
        assert_eq!(choose(json!({"layerSelector": {"mediaType": "b"}})).as_deref(), Ok("sha256:2"));
        assert_eq!(
            choose(json!({"layerSelector": {"mediaType": "c"}})).unwrap_err(),
            "failed to find layer with media type 'c' in artifact"
        );
        let error = layer(&object(json!({}), &json!({})), &Image::default()).unwrap_err();
        assert_eq!(error.to_string(), "no layers found in artifact");
    }

    #[test]
    fn what_is_verified_already() {
        let status = |generation: i64, status: &str| {
            json!({
                "artifact": {
                    "revision": "1@sha256:1", "digest": "sha256:2", "path": "p", "url": "u",
                    "lastUpdateTime": "2026-01-01T00:00:00Z",
                },
                "conditions": [{
                    "type": "SourceVerified", "status": status, "reason": "Succeeded", "message": "m",
                    "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            })
        };
        let check = |status: &serde_json::Value, revision: &str| {
            let mut object = object(json!({"verify": {"provider": "cosign"}}), status);
            object.metadata.generation = Some(2);
            is_unverified(&object, revision)
        };
        assert!(!check(&status(2, "True"), "1@sha256:1"));
        assert!(check(&status(2, "True"), "2@sha256:2"));
        assert!(check(&status(1, "True"), "1@sha256:1"));
        assert!(check(&status(2, "False"), "1@sha256:1"));
        assert!(check(&json!({}), "1@sha256:1"));
    }

    #[test]
    fn the_artifact_is_stored_if_it_would_be_made_the_same_way() {
        #[track_caller]
        fn check(spec: serde_json::Value, observed: serde_json::Value, expected: bool) {
            let mut status = observed;
            status["artifact"] = json!({
                "revision": "1@sha256:1", "digest": "sha256:2", "path": "p", "url": "u",
                "lastUpdateTime": "2026-01-01T00:00:00Z",
            });
            let object = object(spec, &status);
            assert_eq!(is_stored(&object, "1@sha256:1"), expected);
            assert!(!is_stored(&object, "1@sha256:3"));
        }
        check(json!({}), json!({}), true);
        check(json!({"ignore": "a"}), json!({}), false);
        let selector = json!({"operation": "copy"});
        check(json!({"layerSelector": selector}), json!({}), false);
        check(json!({"layerSelector": selector}), json!({"observedLayerSelector": selector}), true);
        assert!(!is_stored(&object(json!({}), &json!({})), "1@sha256:1"));
    }
}
