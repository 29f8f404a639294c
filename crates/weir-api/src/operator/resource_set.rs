//! The ResourceSet kind.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::common::CommonMetadata;
use crate::common::ResourceInventory;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::history::Snapshot;
use crate::reference::LabelSelector;
use crate::schema::string_enum;

/// Objects made from templates and inputs.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fluxcd.controlplane.io",
    version = "v1",
    kind = "ResourceSet",
    plural = "resourcesets",
    singular = "resourceset",
    namespaced,
    status = "ResourceSetStatus",
    derive = "PartialEq",
    shortname = "rset",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-appliers",
    doc = "Makes and applies objects from templates and inputs.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "steps is mutually exclusive with resources and resourcesTemplate", "rule": "!has(self.steps) || (!has(self.resources) && !has(self.resourcesTemplate))"},
        {"message": "at least one of steps, resources or resourcesTemplate must be set", "rule": "has(self.steps) || has(self.resources) || has(self.resourcesTemplate)"},
    ]))]
pub struct ResourceSetSpec {
    /// Labels and annotations set on every object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// Objects that must exist or be ready first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceSetDependency>,
    /// How several inputs are combined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_strategy: Option<InputStrategy>,
    /// Sets of input values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::any_map_list")]
    pub inputs: Vec<BTreeMap<String, Value>>,
    /// Objects that provide sets of input values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs_from: Vec<InputProviderReference>,
    /// Objects to create, as templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::object_list")]
    pub resources: Vec<Value>,
    /// Multi-document YAML template of objects to create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_template: Option<String>,
    /// ServiceAccount impersonated for everything done to the managed objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Groups of objects that are applied one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-validations" = [
    {"message": "step names must be unique", "rule": "self.all(s, self.exists_one(t, t.name == s.name))"},
]))]
    pub steps: Vec<ResourceSetStep>,
    /// Waits until the applied objects are ready.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub wait: bool,
}

/// An object that must exist or be ready first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSetDependency {
    /// API version of the dependency.
    pub api_version: String,
    /// Kind of the dependency.
    pub kind: String,
    /// Name of the dependency.
    pub name: String,
    /// Namespace of the object; the namespace of the referring object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Requires that the dependency is ready, not only that it exists.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub ready: bool,
    /// CEL expression that decides whether the dependency is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_expr: Option<String>,
}

/// How several inputs are combined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "includeEmptyProviders only applies when name is Permute", "rule": "!has(self.includeEmptyProviders) || self.name == 'Permute'"},
    ]))]
pub struct InputStrategy {
    /// Whether providers without inputs make the product empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_empty_providers: Option<bool>,
    /// Name of the strategy.
    pub name: InputStrategyName,
}

string_enum! {
    /// How several inputs are combined.
    pub enum InputStrategyName {
        /// Written `Flatten`.
        Flatten = "Flatten",
        /// Written `Permute`.
        Permute = "Permute",
    }
}

/// Objects that provide inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "at least one of name or selector must be set for input provider references", "rule": "has(self.name) || has(self.selector)"},
        {"message": "cannot set both name and selector for input provider references", "rule": "!has(self.name) || !has(self.selector)"},
    ]))]
pub struct InputProviderReference {
    /// API version of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<InputProviderApiVersion>,
    /// Kind of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<InputProviderKind>,
    /// Name of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels of the providers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

string_enum! {
    /// API versions of input providers.
    pub enum InputProviderApiVersion {
        /// Written `fluxcd.controlplane.io/v1`.
        V1 = "fluxcd.controlplane.io/v1",
    }
}

string_enum! {
    /// Kinds of input providers.
    pub enum InputProviderKind {
        /// Written `ResourceSetInputProvider`.
        ResourceSetInputProvider = "ResourceSetInputProvider",
    }
}

/// A group of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "at least one of resources or resourcesTemplate must be set", "rule": "has(self.resources) || has(self.resourcesTemplate)"},
    ]))]
pub struct ResourceSetStep {
    /// Name of the step.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63))]
    pub name: String,
    /// Objects to create, as templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::object_list")]
    pub resources: Vec<Value>,
    /// Multi-document YAML template of objects to create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_template: Option<String>,
    /// Longest time the step may take to become ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

/// What was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSetStatus {
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Objects whose content takes part in checksums, watched for changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external_checksum_refs: Vec<String>,
    /// The latest outcomes, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Snapshot>,
    /// Objects managed by this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// Revision that was applied successfully last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
