//! The Receiver kind.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::notification::EventSourceKind;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;

/// Which requests reconcile which objects.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "notification.toolkit.fluxcd.io",
    version = "v1",
    kind = "Receiver",
    plural = "receivers",
    singular = "receiver",
    namespaced,
    status = "ReceiverStatus",
    derive = "PartialEq",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-notifications",
    doc = "Reconciles objects when a webhook request arrives.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "generic-oidc receivers must define at least one oidcProvider", "rule": "self.type != 'generic-oidc' || (has(self.oidcProviders) && size(self.oidcProviders) > 0)"},
        {"message": "oidcProviders can only be set when type is generic-oidc", "rule": "self.type == 'generic-oidc' || !has(self.oidcProviders) || size(self.oidcProviders) == 0"},
        {"message": "secretRef cannot be set when type is generic-oidc", "rule": "self.type != 'generic-oidc' || !has(self.secretRef)"},
        {"message": "secretRef is required when type is not generic-oidc", "rule": "self.type == 'generic-oidc' || has(self.secretRef)"},
    ]))]
pub struct ReceiverSpec {
    /// Events that are accepted; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Time between two reconciliations.
    #[serde(default = "default_interval")]
    #[schemars(default = "default_interval_text")]
    pub interval: GoDuration,
    /// Accepted issuers of identity tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["issuerURL"]))]
    pub oidc_providers: Vec<OidcProvider>,
    /// CEL expression that decides per object whether to act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_filter: Option<String>,
    /// Objects to reconcile when a request arrives.
    pub resources: Vec<ReceiverResource>,
    /// Secret with the `token` requests are checked with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Kind of sender; decides how requests are checked.
    pub type_: ReceiverType,
}

/// Accepted issuer of identity tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcProvider {
    /// Audience tokens must be made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Issuer of the tokens.
    #[serde(rename = "issuerURL")]
    #[schemars(regex(pattern = r"^https?://"))]
    pub issuer_url: String,
    /// Checks of the token claims that must all hold.
    #[schemars(length(min = 1))]
    pub validations: Vec<OidcValidation>,
    /// Named expressions usable in the checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<OidcVariable>,
}

/// A check of token claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcValidation {
    /// CEL expression.
    pub expression: String,
    /// Text shown when the check fails.
    pub message: String,
}

/// A named expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcVariable {
    /// CEL expression.
    pub expression: String,
    /// Name of the variable.
    pub name: String,
}

/// Objects to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverResource {
    /// API version of the object; chosen by the controller when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// CEL expression that decides per object whether to act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Kind of the object.
    pub kind: EventSourceKind,
    /// Labels the object must have when the name is `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Name of the object, or `*` for all.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the object; the namespace of the referring object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
}

string_enum! {
    /// Kinds of webhook senders.
    pub enum ReceiverType {
        /// Written `generic`.
        Generic = "generic",
        /// Written `generic-hmac`.
        GenericHmac = "generic-hmac",
        /// Written `generic-oidc`.
        GenericOidc = "generic-oidc",
        /// Written `github`.
        Github = "github",
        /// Written `gitlab`.
        Gitlab = "gitlab",
        /// Written `bitbucket`.
        Bitbucket = "bitbucket",
        /// Written `harbor`.
        Harbor = "harbor",
        /// Written `dockerhub`.
        Dockerhub = "dockerhub",
        /// Written `quay`.
        Quay = "quay",
        /// Written `gcr`.
        Gcr = "gcr",
        /// Written `nexus`.
        Nexus = "nexus",
        /// Written `acr`.
        Acr = "acr",
        /// Written `cdevents`.
        Cdevents = "cdevents",
    }
}

/// State of a webhook receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverStatus {
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
    /// Path at which requests are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_path: Option<String>,
}

const fn default_interval() -> GoDuration {
    GoDuration::from_secs(600)
}

/// The default as the definition spells it.
const fn default_interval_text() -> &'static str {
    "10m"
}
