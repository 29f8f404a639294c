//! What is to be done: pure.

use weir_api::source::{Bucket, BucketProvider, StsProvider};
use weir_artifact::digest::Digest;
use weir_source::bucket::Index;

use super::error::Error;

/// Whether the token service goes with the store. The API server refuses other combinations, too.
pub(super) fn token_service(object: &Bucket) -> Result<(), Error> {
    let Some(service) = &object.spec.sts else { return Ok(()) };
    let invalid = |text: &str| Err(Error::TokenService(text.to_owned()));
    match (object.spec.provider, service.provider) {
        (BucketProvider::Aws, StsProvider::Aws) => {
            if service.secret_ref.is_some() {
                return invalid("spec.sts.secretRef is not supported for the 'aws' STS provider");
            }
            if service.cert_secret_ref.is_some() {
                return invalid("spec.sts.certSecretRef is not supported for the 'aws' STS provider");
            }
        }
        (BucketProvider::Generic, StsProvider::Ldap) => {}
        (BucketProvider::Aws, StsProvider::Ldap) => {
            return invalid("STS provider 'ldap' is not supported for the 'aws' bucket provider");
        }
        (BucketProvider::Generic, StsProvider::Aws) => {
            return invalid("STS provider 'aws' is not supported for the 'generic' bucket provider");
        }
        (BucketProvider::Gcp | BucketProvider::Azure, _) => {
            return invalid("STS configuration is not supported for this bucket provider");
        }
    }
    match url::Url::parse(&service.endpoint) {
        Ok(url) if url.has_host() => Ok(()),
        Ok(_) => Err(Error::TokenServiceUrl { endpoint: service.endpoint.clone(), source: None }),
        Err(source) => {
            Err(Error::TokenServiceUrl { endpoint: service.endpoint.clone(), source: Some(source) })
        }
    }
}

/// The revision of the stored artifact, if it is that of the index.
pub(super) fn stored_revision(working: &Bucket, index: &Index) -> Option<String> {
    let revision = &working.status.as_ref()?.artifact.as_ref()?.revision;
    let stored: Digest = revision.parse().ok()?;
    (index.digest(stored.algorithm()) == stored).then(|| revision.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_artifact::digest::Algorithm;

    use super::*;

    fn object(spec: serde_json::Value, revision: &str) -> Bucket {
        let mut spec = spec;
        spec["interval"] = json!("1m");
        spec["bucketName"] = json!("fleet");
        spec["endpoint"] = json!("minio:9000");
        let artifact = json!({
            "revision": revision, "digest": "sha256:2", "path": "p", "url": "u",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
            "metadata": {"name": "b", "namespace": "apps"}, "spec": spec, "status": {"artifact": artifact},
        }))
        .unwrap()
    }

    #[test]
    fn token_services() {
        #[track_caller]
        fn check(provider: &str, sts: &serde_json::Value, expected: Result<(), &str>) {
            let found = token_service(&object(json!({"provider": provider, "sts": sts}), ""));
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
        }
        let ldap = json!({"provider": "ldap", "endpoint": "https://minio:9000"});
        let aws = json!({"provider": "aws", "endpoint": "https://sts.example.com"});
        check("generic", &ldap, Ok(()));
        check("aws", &aws, Ok(()));
        check("aws", &ldap, Err("STS provider 'ldap' is not supported for the 'aws' bucket provider"));
        check("generic", &aws, Err("STS provider 'aws' is not supported for the 'generic' bucket provider"));
        check("gcp", &aws, Err("STS configuration is not supported for this bucket provider"));
        check(
            "aws",
            &json!({"provider": "aws", "endpoint": "https://x", "secretRef": {"name": "s"}}),
            Err("spec.sts.secretRef is not supported for the 'aws' STS provider"),
        );
        check(
            "generic",
            &json!({"provider": "ldap", "endpoint": "http://"}),
            Err("failed to parse STS endpoint 'http://'"),
        );
    }

    #[test]
    fn a_revision_holds_for_its_algorithm() {
        let index = Index::default();
        for algorithm in [Algorithm::Sha256, Algorithm::Blake3] {
            let revision = index.digest(algorithm).to_string();
            assert_eq!(stored_revision(&object(json!({}), &revision), &index), Some(revision));
        }
        assert_eq!(stored_revision(&object(json!({}), "sha256:x"), &index), None);
        let other = Algorithm::Sha256.digest(b"x").to_string();
        assert_eq!(stored_revision(&object(json!({}), &other), &index), None);
    }
}
