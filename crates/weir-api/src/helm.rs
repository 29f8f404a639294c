//! Kinds of `helm.toolkit.fluxcd.io`.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::common::CommonMetadata;
use crate::common::CustomHealthCheck;
use crate::common::IgnoreRule;
use crate::common::Image;
use crate::common::Patch;
use crate::common::ResourceInventory;
use crate::common::ValuesSourceKind;
use crate::common::VerificationProvider;
use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::reference::DependencyReference;
use crate::reference::KubeConfigReference;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;
use crate::source::ChartSourceKind;
use crate::source::ReconcileStrategy;
use crate::time::Time;

/// Which chart to release, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "helm.toolkit.fluxcd.io",
    version = "v2",
    kind = "HelmRelease",
    plural = "helmreleases",
    singular = "helmrelease",
    namespaced,
    status = "HelmReleaseStatus",
    derive = "PartialEq",
    shortname = "hr",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-appliers",
    doc = "Installs and upgrades a Helm chart.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}"#,
    printcolumn = r#"{"jsonPath": ".status.conditions[?(@.type==\"Ready\")].message", "name": "Status", "type": "string"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "either chart or chartRef must be set", "rule": "(has(self.chart) && !has(self.chartRef)) || (!has(self.chart) && has(self.chartRef))"},
    ]))]
pub struct HelmReleaseSpec {
    /// Chart to install, from which a HelmChart object is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<HelmChartTemplate>,
    /// Existing object that provides the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart_ref: Option<ChartReference>,
    /// Labels and annotations set on every object of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// HelmReleases that must be ready first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependencyReference>,
    /// Whether and where changes made by others are found and undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_detection: Option<DriftDetection>,
    /// CEL expressions that judge the health of custom kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_check_exprs: Vec<CustomHealthCheck>,
    /// Settings of the install action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<Install>,
    /// Time between two reconciliations; a small jitter is added by the controller.
    pub interval: GoDuration,
    /// Target cluster, when it is not the local one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,
    /// Number of release revisions kept in storage; 0 keeps all, 5 when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::without_format)]
    pub max_history: Option<i64>,
    /// Keeps one cluster client during an action; true when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_client: Option<bool>,
    /// Whether and how post renderers see chart hooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_render_strategy: Option<PostRenderStrategy>,
    /// Changes to the rendered manifests, applied in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_renderers: Vec<PostRenderer>,
    /// Name of the release; made from target namespace and name when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 53))]
    pub release_name: Option<String>,
    /// Settings of the rollback action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// ServiceAccount impersonated for everything done to the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Namespace of the release storage; the namespace of this object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Namespace to install into; the namespace of this object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub target_namespace: Option<String>,
    /// Settings of the chart tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<Test>,
    /// Longest time for one Helm action; 5 minutes when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Settings of the uninstall action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uninstall: Option<Uninstall>,
    /// Settings of the upgrade action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// Values for the chart; they win over `valuesFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any")]
    pub values: Option<Value>,
    /// ConfigMaps and Secrets with values, merged in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_from: Vec<ValuesReference>,
    /// How readiness of the released objects is determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_strategy: Option<WaitStrategy>,
}

/// Template of a HelmChart object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplate {
    /// Labels and annotations of the HelmChart object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<CommonMetadata>,
    /// Spec of the HelmChart object.
    pub spec: HelmChartTemplateSpec,
}

/// Chart of a HelmChart template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplateSpec {
    /// Name of the chart, or its path inside the source.
    #[schemars(length(min = 1, max = 2048))]
    pub chart: String,
    /// Skips values files that do not exist instead of failing.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub ignore_missing_values_files: bool,
    /// Time between two checks; the interval of the release when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// What counts as a change: a new chart version or any new source revision.
    #[serde(default)]
    pub reconcile_strategy: ReconcileStrategy,
    /// The source object to use.
    pub source_ref: HelmChartTemplateSourceRef,
    /// Values files inside the source, merged in this order over each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// Signature check that must succeed before the content is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<HelmChartTemplateVerification>,
    /// Version or version range.
    #[serde(default = "default_version")]
    pub version: String,
}

/// Source of a chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartTemplateSourceRef {
    /// API version of the object; chosen by the controller when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: ChartSourceKind,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the object; the namespace of the referring object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// Signature check of a chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["provider"]))]
pub struct HelmChartTemplateVerification {
    /// Tool the signature was made with.
    #[serde(default)]
    pub provider: VerificationProvider,
    /// Secret with the accepted public keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
}

/// Object that provides a chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChartReference {
    /// API version of the object; chosen by the controller when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the source.
    pub kind: ChartReferenceKind,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the object; the namespace of the referring object when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

string_enum! {
    /// Kinds that can provide a chart.
    pub enum ChartReferenceKind {
        /// Written `OCIRepository`.
        OCIRepository = "OCIRepository",
        /// Written `HelmChart`.
        HelmChart = "HelmChart",
        /// Written `ExternalArtifact`.
        ExternalArtifact = "ExternalArtifact",
    }
}

/// Handling of changes made by others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftDetection {
    /// Fields in which differences do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<IgnoreRule>,
    /// What happens when drift is found; nothing when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<DriftDetectionMode>,
}

string_enum! {
    /// What happens when drift is found.
    pub enum DriftDetectionMode {
        /// Written `enabled`.
        Enabled = "enabled",
        /// Written `warn`.
        Warn = "warn",
        /// Written `disabled`.
        Disabled = "disabled",
    }
}

/// Settings of the install action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Install {
    /// What happens to the CustomResourceDefinitions of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crds: Option<CrdsPolicy>,
    /// Creates the target namespace when it is missing.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub create_namespace: bool,
    /// Does not run chart hooks.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_hooks: bool,
    /// Does not validate manifests against the API schema of the cluster.
    #[serde(rename = "disableOpenAPIValidation", default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_openapi_validation: bool,
    /// Does not validate values against the JSON schema of the chart.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_schema_validation: bool,
    /// Fails on objects that belong to another release instead of taking them over.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_take_ownership: bool,
    /// Does not wait until the objects are ready.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_wait: bool,
    /// Does not wait until Jobs have completed.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_wait_for_jobs: bool,
    /// What to do when the action fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<InstallRemediation>,
    /// Reuses the name of a deleted release.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub replace: bool,
    /// Whether server-side apply is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<bool>,
    /// Former way to skip the CustomResourceDefinitions of the chart.
    #[serde(rename = "skipCRDs", default, skip_serializing_if = "crate::schema::is_false")]
    pub skip_crds: bool,
    /// How a failed install is handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<InstallStrategy>,
    /// Longest time for the action; the timeout of the release when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

string_enum! {
    /// What happens to the CustomResourceDefinitions of a chart.
    pub enum CrdsPolicy {
        /// Written `Skip`.
        Skip = "Skip",
        /// Written `Create`.
        Create = "Create",
        /// Written `CreateReplace`.
        CreateReplace = "CreateReplace",
    }
}

/// What to do when an install fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallRemediation {
    /// Does not count failed chart tests as a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_test_failures: Option<bool>,
    /// Remediates also after the last retry has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediate_last_failure: Option<bool>,
    /// Number of retries; negative means without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::without_format)]
    pub retries: Option<i64>,
}

/// How a failed install is handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": ".retryInterval cannot be set when .name is 'RemediateOnFailure'", "rule": "!has(self.retryInterval) || self.name != 'RemediateOnFailure'"},
    ]))]
pub struct InstallStrategy {
    /// Name of the strategy.
    pub name: ActionStrategyName,
    /// Time until a failed attempt is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,
}

string_enum! {
    /// How a failed action is handled.
    pub enum ActionStrategyName {
        /// Written `RemediateOnFailure`.
        RemediateOnFailure = "RemediateOnFailure",
        /// Written `RetryOnFailure`.
        RetryOnFailure = "RetryOnFailure",
    }
}

string_enum! {
    /// Whether post renderers see hooks.
    pub enum PostRenderStrategy {
        /// Written `nohooks`.
        Nohooks = "nohooks",
        /// Written `combined`.
        Combined = "combined",
        /// Written `separate`.
        Separate = "separate",
    }
}

/// A change to rendered manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostRenderer {
    /// Patches and images as in a kustomization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kustomize: Option<KustomizePostRenderer>,
}

/// Patches and images for rendered manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KustomizePostRenderer {
    /// Image names, tags and digests to replace in the rendered manifests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Strategic merge or JSON patches to apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
}

/// Settings of the rollback action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// Deletes objects created by the failed action.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub cleanup_on_fail: bool,
    /// Does not run chart hooks.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_hooks: bool,
    /// Does not wait until the objects are ready.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_wait: bool,
    /// Does not wait until Jobs have completed.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_wait_for_jobs: bool,
    /// Replaces objects that cannot be updated in place.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub force: bool,
    /// Restarts pods; has no effect any more.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub recreate: bool,
    /// Whether server-side apply is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<ServerSideApplyMode>,
    /// Longest time for the action; the timeout of the release when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

string_enum! {
    /// Whether server-side apply is used.
    pub enum ServerSideApplyMode {
        /// Written `enabled`.
        Enabled = "enabled",
        /// Written `disabled`.
        Disabled = "disabled",
        /// Written `auto`.
        Auto = "auto",
    }
}

/// Settings of chart tests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Test {
    /// Runs the tests of the chart after install and upgrade.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub enable: bool,
    /// Tests to run or to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<TestFilter>,
    /// Does not count failed tests as a failed release.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub ignore_failures: bool,
    /// Longest time for the tests; the timeout of the release when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

/// Includes or excludes a chart test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestFilter {
    /// Leaves this test out.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub exclude: bool,
    /// Name of the test.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Settings of the uninstall action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Uninstall {
    /// How dependents of the deleted objects are deleted.
    #[serde(default)]
    pub deletion_propagation: DeletionPropagation,
    /// Does not run chart hooks.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_hooks: bool,
    /// Does not wait until the objects are ready.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_wait: bool,
    /// Keeps the release storage.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub keep_history: bool,
    /// Longest time for the action; the timeout of the release when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

string_enum! {
    /// How dependents are deleted.
    #[derive(Default)]
    pub enum DeletionPropagation {
        /// Written `background`.
        #[default]
        Background = "background",
        /// Written `foreground`.
        Foreground = "foreground",
        /// Written `orphan`.
        Orphan = "orphan",
    }
}

/// Settings of the upgrade action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// What happens when the release switches to a chart of another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart_name_change_strategy: Option<ChartNameChangeStrategy>,
    /// Deletes objects created by the failed action.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub cleanup_on_fail: bool,
    /// What happens to the CustomResourceDefinitions of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crds: Option<CrdsPolicy>,
    /// Does not run chart hooks.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_hooks: bool,
    /// Does not validate manifests against the API schema of the cluster.
    #[serde(rename = "disableOpenAPIValidation", default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_openapi_validation: bool,
    /// Does not validate values against the JSON schema of the chart.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_schema_validation: bool,
    /// Fails on objects that belong to another release instead of taking them over.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_take_ownership: bool,
    /// Does not wait until the objects are ready.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_wait: bool,
    /// Does not wait until Jobs have completed.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub disable_wait_for_jobs: bool,
    /// Replaces objects that cannot be updated in place.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub force: bool,
    /// Reuses the values of the previous release below the new ones.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub preserve_values: bool,
    /// What to do when the action fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<UpgradeRemediation>,
    /// Whether server-side apply is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<ServerSideApplyMode>,
    /// How a failed upgrade is handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpgradeStrategy>,
    /// Longest time for the action; the timeout of the release when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

string_enum! {
    /// What happens when the chart name changes.
    pub enum ChartNameChangeStrategy {
        /// Written `InPlaceUpdate`.
        InPlaceUpdate = "InPlaceUpdate",
        /// Written `Reinstall`.
        Reinstall = "Reinstall",
    }
}

/// What to do when an upgrade fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRemediation {
    /// Does not count failed chart tests as a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_test_failures: Option<bool>,
    /// Remediates also after the last retry has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediate_last_failure: Option<bool>,
    /// Number of retries; negative means without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::without_format)]
    pub retries: Option<i64>,
    /// How a failed upgrade is remedied; by rollback when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RemediationStrategy>,
}

string_enum! {
    /// How a failed upgrade is remedied.
    pub enum RemediationStrategy {
        /// Written `rollback`.
        Rollback = "rollback",
        /// Written `uninstall`.
        Uninstall = "uninstall",
    }
}

/// How a failed upgrade is handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": ".retryInterval can only be set when .name is 'RetryOnFailure'", "rule": "!has(self.retryInterval) || self.name == 'RetryOnFailure'"},
    ]))]
pub struct UpgradeStrategy {
    /// Name of the strategy.
    pub name: ActionStrategyName,
    /// Time until a failed attempt is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<GoDuration>,
}

/// ConfigMap or Secret with values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesReference {
    /// Kind of the referenced object.
    pub kind: ValuesSourceKind,
    /// Takes the value at `targetPath` as it is, without parsing.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub literal: bool,
    /// Name of the referenced object, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Accepts that the referenced object does not exist.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub optional: bool,
    /// Dotted path at which the value is placed; the root when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([a-zA-Z0-9_\-.\\\/]|\[[0-9]{1,5}\])+$"), length(max = 250))]
    pub target_path: Option<String>,
    /// Key inside the referenced object; `values.yaml` when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[\-._a-zA-Z0-9]+$"), length(max = 253))]
    pub values_key: Option<String>,
}

/// How readiness is determined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitStrategy {
    /// Name of the strategy.
    pub name: WaitStrategyName,
}

string_enum! {
    /// How readiness is determined.
    pub enum WaitStrategyName {
        /// Written `poller`.
        Poller = "poller",
        /// Written `legacy`.
        Legacy = "legacy",
    }
}

/// State of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmReleaseStatus {
    /// Observed state as a list of conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Failures since the last success of the current spec.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub failures: i64,
    /// HelmChart object of this release, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_chart: Option<String>,
    /// The latest outcomes, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<ReleaseSnapshot>,
    /// Failed installs of the current spec.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub install_failures: i64,
    /// Objects managed by this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<ResourceInventory>,
    /// Digest of the values of the latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_config_digest: Option<String>,
    /// Generation of the latest attempt.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub last_attempted_generation: i64,
    /// Action of the latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_release_action: Option<ReleaseAction>,
    /// How long the latest action took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_attempted_release_action_duration: Option<GoDuration>,
    /// Chart version of the latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// Digest of the OCI chart of the latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision_digest: Option<String>,
    /// Former SHA-1 checksum of the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_values_checksum: Option<String>,
    /// Value of the last handled force request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_force_at: Option<String>,
    /// Value of the last handled reconcile request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Value of the last handled reset request annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reset_at: Option<String>,
    /// Former number of the latest release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::without_format)]
    pub last_release_revision: Option<i64>,
    /// Digest of the common metadata of the latest release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_common_metadata_digest: Option<String>,
    /// Generation of the spec that was handled last.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub observed_generation: i64,
    /// Digest of the post renderers of the latest release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_post_renderers_digest: Option<String>,
    /// Namespace of the release storage of the current release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,
    /// Failed upgrades of the current spec.
    #[serde(default, skip_serializing_if = "crate::schema::is_zero")]
    pub upgrade_failures: i64,
}

/// What is known about one release revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSnapshot {
    /// Action that made this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Version of the snapshot format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Application version of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// Name of the chart.
    pub chart_name: String,
    /// Version of the chart.
    pub chart_version: String,
    /// Digest of the values.
    pub config_digest: String,
    /// Time the release was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Time>,
    /// Digest of the stored release.
    pub digest: String,
    /// Time of the first deployment.
    pub first_deployed: Time,
    /// Time of the latest deployment.
    pub last_deployed: Time,
    /// Name of the release.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
    /// Digest of the OCI artifact of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_digest: Option<String>,
    /// Status of the release.
    pub status: String,
    /// Outcome of the chart tests by hook name; absent until they were run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_hooks: Option<BTreeMap<String, TestHookStatus>>,
    /// Number of the release revision.
    #[schemars(transform = crate::schema::without_format)]
    pub version: i64,
}

/// Outcome of a chart test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestHookStatus {
    /// Time the test ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_completed: Option<Time>,
    /// Time the test began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_started: Option<Time>,
    /// Phase the test is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

string_enum! {
    /// A release action.
    pub enum ReleaseAction {
        /// Written `install`.
        Install = "install",
        /// Written `upgrade`.
        Upgrade = "upgrade",
    }
}

fn default_version() -> String {
    "*".to_owned()
}
