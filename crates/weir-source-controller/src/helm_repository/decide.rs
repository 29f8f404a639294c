//! What is to be done: pure.

use weir_api::source::{HelmRepository, HelmRepositoryType};
use weir_source::helm::normalize_url;

use super::error::Error;

/// Whether the repository is a registry, which others read directly.
pub(crate) fn is_oci(object: &HelmRepository) -> bool {
    object.spec.type_ == Some(HelmRepositoryType::Oci)
}

/// The URL in its normal form.
pub(super) fn url(object: &HelmRepository) -> Result<String, Error> {
    let url = &object.spec.url;
    if url.starts_with("oci://") {
        return Err(Error::OciUrl);
    }
    normalize_url(url).map_err(Error::Url)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: &serde_json::Value) -> HelmRepository {
        serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository",
            "metadata": {"name": "r", "namespace": "apps"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn urls() {
        fn url_of(text: &str) -> Result<String, Error> {
            url(&object(&json!({"url": text})))
        }
        let normal = |url| url_of(url).map_err(|error| weir_base::error::chain(&error));
        assert_eq!(normal("https://example.com/charts").as_deref(), Ok("https://example.com/charts/"));
        assert_eq!(
            normal("oci://example.com/charts").unwrap_err(),
            "invalid Helm repository URL: 'oci' URL scheme cannot be used with 'default' HelmRepository type"
        );
        assert!(normal("https://").unwrap_err().starts_with("invalid Helm repository URL: "));
    }

    #[test]
    fn types() {
        assert!(is_oci(&object(&json!({"url": "oci://example.com", "type": "oci"}))));
        assert!(!is_oci(&object(&json!({"url": "https://example.com", "type": "default"}))));
        assert!(!is_oci(&object(&json!({"url": "https://example.com"}))));
    }
}
