//! The Bucket kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;

/// What to fetch from an object store, and how.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "Bucket",
    plural = "buckets",
    singular = "bucket",
    namespaced,
    status = "BucketStatus",
    derive = "PartialEq",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    doc = "Fetches objects of an object store and publishes them as an artifact.",
    printcolumn = r#"{"jsonPath": ".spec.endpoint", "name": "Endpoint", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "STS configuration is only supported for the 'aws' and 'generic' Bucket providers", "rule": "self.provider == 'aws' || self.provider == 'generic' || !has(self.sts)"},
        {"message": "'aws' is the only supported STS provider for the 'aws' Bucket provider", "rule": "self.provider != 'aws' || !has(self.sts) || self.sts.provider == 'aws'"},
        {"message": "'ldap' is the only supported STS provider for the 'generic' Bucket provider", "rule": "self.provider != 'generic' || !has(self.sts) || self.sts.provider == 'ldap'"},
        {"message": "spec.sts.secretRef is not required for the 'aws' STS provider", "rule": "!has(self.sts) || self.sts.provider != 'aws' || !has(self.sts.secretRef)"},
        {"message": "spec.sts.certSecretRef is not required for the 'aws' STS provider", "rule": "!has(self.sts) || self.sts.provider != 'aws' || !has(self.sts.certSecretRef)"},
        {"message": "ServiceAccountName is not supported for the 'generic' Bucket provider", "rule": "self.provider != 'generic' || !has(self.serviceAccountName)"},
        {"message": "cannot set both .spec.secretRef and .spec.serviceAccountName", "rule": "!has(self.secretRef) || !has(self.serviceAccountName)"},
    ]))]
pub struct BucketSpec {
    /// Name of the bucket.
    pub bucket_name: String,
    /// Secret with `ca.crt` and, for client certificates, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Host and port of the object store.
    pub endpoint: String,
    /// Patterns in gitignore syntax that replace the default exclusions of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Allows plain HTTP instead of TLS.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub insecure: bool,
    /// Time between two reconciliations; a small jitter is added by the controller.
    pub interval: GoDuration,
    /// Only objects whose key starts with this prefix are fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Where credentials come from when no Secret is given.
    #[serde(default)]
    pub provider: BucketProvider,
    /// Secret with the `address` of a proxy and, if needed, its `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Region of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Secret in the namespace of this object that holds the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount in the namespace of this object whose identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Token service that exchanges credentials for temporary ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sts: Option<BucketSts>,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Longest time one operation may take.
    #[serde(default = "default_timeout")]
    #[schemars(default = "default_timeout_text", regex(pattern = crate::duration::SHORT_PATTERN))]
    pub timeout: GoDuration,
}

string_enum! {
    /// Kind of object store.
    #[derive(Default)]
    pub enum BucketProvider {
        /// Written `generic`.
        #[default]
        Generic = "generic",
        /// Written `aws`.
        Aws = "aws",
        /// Written `gcp`.
        Gcp = "gcp",
        /// Written `azure`.
        Azure = "azure",
    }
}

/// Token service of an object store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketSts {
    /// Secret with `ca.crt` and, for client certificates, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Address of the token service.
    #[schemars(regex(pattern = r"^(http|https)://.*$"))]
    pub endpoint: String,
    /// Kind of token service.
    pub provider: StsProvider,
    /// Secret in the namespace of this object that holds the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
}

string_enum! {
    /// Kind of token service.
    pub enum StsProvider {
        /// Written `aws`.
        Aws = "aws",
        /// Written `ldap`.
        Ldap = "ldap",
    }
}

/// What was fetched from an object store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketStatus {
    /// The latest artifact produced from this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
    /// Value of `spec.ignore` used for the current artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// Address at which the latest artifact is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

const fn default_timeout() -> GoDuration {
    GoDuration::from_secs(60)
}

/// The default as the definition spells it.
const fn default_timeout_text() -> &'static str {
    "60s"
}
