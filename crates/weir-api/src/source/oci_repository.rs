//! The OCIRepository kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::common::OidcIdentityMatch;
use crate::common::RegistryProvider;
use crate::common::VerificationProvider;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;

/// What to fetch from an OCI registry, and how.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "OCIRepository",
    plural = "ocirepositories",
    singular = "ocirepository",
    namespaced,
    status = "OCIRepositoryStatus",
    derive = "PartialEq",
    shortname = "ocirepo",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-sources",
    doc = "Fetches an OCI artifact and publishes it inside the cluster.",
    printcolumn = r#"{"jsonPath": ".spec.url", "name": "URL", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct OCIRepositorySpec {
    /// Secret with `ca.crt` and, for client certificates, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Patterns in gitignore syntax that replace the default exclusions of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Allows plain HTTP instead of TLS.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub insecure: bool,
    /// Time between two reconciliations; a small jitter is added by the controller.
    pub interval: GoDuration,
    /// Which layer of the artifact is used, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_selector: Option<OciLayerSelector>,
    /// Where credentials come from when no Secret is given.
    #[serde(default)]
    pub provider: RegistryProvider,
    /// Secret with the `address` of a proxy and, if needed, its `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Tag, version range or digest; tag `latest` when empty.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<OCIRepositoryRef>,
    /// Secret of type `kubernetes.io/dockerconfigjson` with the registry credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount in the namespace of this object whose identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Longest time one operation may take.
    #[serde(default = "default_timeout")]
    #[schemars(default = "default_timeout_text", regex(pattern = crate::duration::SHORT_PATTERN))]
    pub timeout: GoDuration,
    /// Address of the repository, starting with `oci://`, without tag or digest.
    #[schemars(regex(pattern = r"^oci://.*$"))]
    pub url: String,
    /// Signature check that must succeed before the content is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<OCIRepositoryVerification>,
}

/// Choice of a layer of an OCI artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciLayerSelector {
    /// Media type of the layer to use; the first layer when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// What is done with the selected layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<LayerOperation>,
}

string_enum! {
    /// What is done with a layer.
    pub enum LayerOperation {
        /// Written `extract`.
        Extract = "extract",
        /// Written `copy`.
        Copy = "copy",
    }
}

/// Version of an OCI artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCIRepositoryRef {
    /// Digest to use; wins over everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Version range over tags; wins over the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    /// Regular expression tags must match before the version range is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver_filter: Option<String>,
    /// Tag to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Signature check of an OCI artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["provider"]))]
pub struct OCIRepositoryVerification {
    /// Accepted identities for keyless signatures; one match is enough.
    #[serde(rename = "matchOIDCIdentity", default, skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<OidcIdentityMatch>,
    /// Tool the signature was made with.
    #[serde(default)]
    pub provider: VerificationProvider,
    /// Secret with the accepted public keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Secret with the trusted root (`trusted_root.json`) of a private Sigstore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_root_secret_ref: Option<LocalObjectReference>,
}

/// What was fetched from an OCI registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCIRepositoryStatus {
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
    /// Value of `spec.layerSelector` used for the current artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_layer_selector: Option<OciLayerSelector>,
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
