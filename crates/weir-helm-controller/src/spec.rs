//! What the fields of a HelmRelease mean, with their defaults. Pure.

use std::time::Duration;
use weir_runtime::FeatureGates;

use sha1::Digest as _;
use weir_api::helm::{
    ActionStrategyName, ChartNameChangeStrategy, CrdsPolicy, DeletionPropagation, DriftDetectionMode,
    HelmRelease, PostRenderStrategy, ReleaseAction, RemediationStrategy, ServerSideApplyMode,
    WaitStrategyName,
};
use weir_api::{FluxObject as _, GoDuration};
use weir_apply::write::Propagation;
use weir_helm::action::{CrdPolicy, TestFilter, WaitStrategy};

const TIMEOUT: Duration = Duration::from_mins(5);
const RETRY_INTERVAL: Duration = Duration::from_mins(5);
const HISTORY_MAX: i64 = 5;
/// The longest name of a release, and how one that is longer is cut.
const NAME_BYTES_MAX: usize = 53;
const NAME_KEPT: usize = 40;
const NAME_HASH: usize = 12;

/// The namespace of the object.
pub fn namespace(object: &HelmRelease) -> &str {
    object.metadata.namespace.as_deref().unwrap_or_default()
}

/// The name of the object.
pub fn name(object: &HelmRelease) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

/// The namespace the release is installed into.
pub fn release_namespace(object: &HelmRelease) -> &str {
    object.spec.target_namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(namespace(object))
}

/// The namespace of the records.
pub fn storage_namespace(object: &HelmRelease) -> &str {
    object.spec.storage_namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(namespace(object))
}

/// The name of the release as the spec has it, which may be too long.
pub fn full_release_name(object: &HelmRelease) -> String {
    match (&object.spec.release_name, &object.spec.target_namespace) {
        (Some(name), _) if !name.is_empty() => name.clone(),
        (_, Some(target)) if !target.is_empty() => format!("{target}-{}", name(object)),
        _ => name(object).to_owned(),
    }
}

/// A name short enough for a release.
pub fn shortened(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let hash = hex::encode(sha2::Sha256::digest(name.as_bytes()));
    format!("{}-{}", &name[..name.floor_char_boundary(NAME_KEPT)], &hash[..NAME_HASH])
}

/// The name of the release.
pub fn release_name(object: &HelmRelease) -> String {
    shortened(&full_release_name(object))
}

/// The limit of single operations.
pub fn timeout(object: &HelmRelease) -> Duration {
    object.spec.timeout.map_or(TIMEOUT, GoDuration::to_std)
}

/// How many revisions stay on record; 0 for all.
pub fn history_max(object: &HelmRelease) -> usize {
    usize::try_from(object.spec.max_history.unwrap_or(HISTORY_MAX)).unwrap_or(0)
}

/// What an action waits for and how it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Common {
    /// The limit of each wait.
    pub timeout: Duration,
    /// What is waited for.
    pub wait: WaitStrategy,
    /// Whether Jobs have to complete.
    pub wait_for_jobs: bool,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
}

fn common(
    object: &HelmRelease,
    gates: &FeatureGates,
    timeout: Option<GoDuration>,
    disable: [bool; 3],
) -> Common {
    let [disable_wait, disable_wait_for_jobs, disable_hooks] = disable;
    Common {
        timeout: timeout.map_or_else(|| self::timeout(object), GoDuration::to_std),
        wait: if disable_wait { WaitStrategy::HooksOnly } else { wait_strategy(object, gates) },
        wait_for_jobs: !disable_wait_for_jobs,
        disable_hooks,
    }
}

fn wait_strategy(object: &HelmRelease, gates: &FeatureGates) -> WaitStrategy {
    match object.spec.wait_strategy.as_ref().map(|strategy| strategy.name) {
        Some(WaitStrategyName::Legacy) => WaitStrategy::Legacy,
        None if gates.enabled("UseHelm3Defaults") => WaitStrategy::Legacy,
        Some(WaitStrategyName::Poller) | None => WaitStrategy::Status,
    }
}

/// Common options of an installation.
pub fn install(object: &HelmRelease, gates: &FeatureGates) -> Common {
    let install = object.spec.install.clone().unwrap_or_default();
    let disable = [install.disable_wait, install.disable_wait_for_jobs, install.disable_hooks];
    common(object, gates, install.timeout, disable)
}

/// Common options of an upgrade.
pub fn upgrade(object: &HelmRelease, gates: &FeatureGates) -> Common {
    let upgrade = object.spec.upgrade.clone().unwrap_or_default();
    let disable = [upgrade.disable_wait, upgrade.disable_wait_for_jobs, upgrade.disable_hooks];
    common(object, gates, upgrade.timeout, disable)
}

/// Common options of a rollback.
pub fn rollback(object: &HelmRelease, gates: &FeatureGates) -> Common {
    let rollback = object.spec.rollback.clone().unwrap_or_default();
    let disable = [rollback.disable_wait, rollback.disable_wait_for_jobs, rollback.disable_hooks];
    common(object, gates, rollback.timeout, disable)
}

/// Common options of a test.
pub fn test(object: &HelmRelease, gates: &FeatureGates) -> Common {
    let timeout = object.spec.test.as_ref().and_then(|test| test.timeout);
    let common = common(object, gates, timeout, [false; 3]);
    Common { wait: WaitStrategy::Status, ..common }
}

/// Common options of an uninstallation.
pub fn uninstall(object: &HelmRelease, gates: &FeatureGates) -> Common {
    let uninstall = object.spec.uninstall.as_ref();
    let disable_wait = uninstall.is_some_and(|uninstall| uninstall.disable_wait);
    let disable_hooks = uninstall.is_some_and(|uninstall| uninstall.disable_hooks);
    let timeout = uninstall.and_then(|uninstall| uninstall.timeout);
    common(object, gates, timeout, [disable_wait, false, disable_hooks])
}

/// What becomes of objects owned by those of an uninstalled release.
pub fn propagation(object: &HelmRelease) -> Propagation {
    match object.spec.uninstall.as_ref().map(|uninstall| uninstall.deletion_propagation) {
        Some(DeletionPropagation::Foreground) => Propagation::Foreground,
        Some(DeletionPropagation::Orphan) => Propagation::Orphan,
        Some(DeletionPropagation::Background) | None => Propagation::Background,
    }
}

/// What happens to the definitions of a chart; the same default for installation and upgrade.
pub fn crd_policy(policy: Option<CrdsPolicy>) -> CrdPolicy {
    match policy {
        Some(CrdsPolicy::Skip) => CrdPolicy::Skip,
        Some(CrdsPolicy::CreateReplace) => CrdPolicy::CreateReplace,
        Some(CrdsPolicy::Create) | None => CrdPolicy::Create,
    }
}

/// Whether an installation is by server-side apply.
pub fn install_is_server_side(object: &HelmRelease, gates: &FeatureGates) -> bool {
    let given = object.spec.install.as_ref().and_then(|install| install.server_side_apply);
    given.unwrap_or(!gates.enabled("UseHelm3Defaults"))
}

/// Whether a change is by server-side apply; `None` for as before.
pub fn server_side(mode: Option<ServerSideApplyMode>) -> Option<bool> {
    match mode {
        Some(ServerSideApplyMode::Enabled) => Some(true),
        Some(ServerSideApplyMode::Disabled) => Some(false),
        Some(ServerSideApplyMode::Auto) | None => None,
    }
}

/// How post-renderers see hooks.
pub fn post_render_strategy(object: &HelmRelease, gates: &FeatureGates) -> PostRenderStrategy {
    object.spec.post_render_strategy.unwrap_or(if gates.enabled("UseHelm3Defaults") {
        PostRenderStrategy::Nohooks
    } else {
        PostRenderStrategy::Combined
    })
}

/// Whether another name of the chart means a new release.
pub fn reinstalls_on_chart_name(object: &HelmRelease) -> bool {
    let strategy = object.spec.upgrade.as_ref().and_then(|upgrade| upgrade.chart_name_change_strategy);
    strategy != Some(ChartNameChangeStrategy::InPlaceUpdate)
}

/// Whether tests run.
pub fn tests_enabled(object: &HelmRelease) -> bool {
    object.spec.test.as_ref().is_some_and(|test| test.enable)
}

/// Whether failed tests do not matter.
pub fn ignores_test_failures(object: &HelmRelease) -> bool {
    object.spec.test.as_ref().is_some_and(|test| test.ignore_failures)
}

/// Which tests run.
pub fn test_filter(object: &HelmRelease) -> TestFilter {
    let mut filter = TestFilter::default();
    for item in object.spec.test.iter().flat_map(|test| &test.filters) {
        if item.exclude {
            filter.exclude.push(item.name.clone());
        } else {
            filter.include.push(item.name.clone());
        }
    }
    filter
}

/// Whether the cluster is compared with the manifest, and whether it is corrected.
pub fn drift_mode(object: &HelmRelease) -> DriftDetectionMode {
    let mode = object.spec.drift_detection.as_ref().and_then(|drift| drift.mode);
    mode.unwrap_or(DriftDetectionMode::Disabled)
}

/// What follows from a failure: either it is remedied a number of times, or tried again for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remediation {
    /// How many retries there are; negative for no limit.
    pub retries: i64,
    /// Whether failed tests count.
    pub ignore_test_failures: bool,
    /// Whether the last failure is remedied too.
    pub remediate_last_failure: bool,
    /// How it is remedied.
    pub strategy: RemediationStrategy,
    /// How many failures of the action there were.
    pub failures: i64,
    /// Which action it is about.
    pub action: ReleaseAction,
}

impl Remediation {
    /// Whether there is no retry left.
    pub fn is_exhausted(&self) -> bool {
        self.retries >= 0 && self.failures > self.retries
    }
}

fn status_failures(object: &HelmRelease) -> (i64, i64) {
    let status = object.status.as_ref();
    status.map_or((0, 0), |status| (status.install_failures, status.upgrade_failures))
}

/// What follows from a failed installation.
pub fn install_remediation(object: &HelmRelease) -> Remediation {
    let given =
        object.spec.install.as_ref().and_then(|install| install.remediation.clone()).unwrap_or_default();
    Remediation {
        retries: given.retries.unwrap_or(0),
        ignore_test_failures: given.ignore_test_failures.unwrap_or_else(|| ignores_test_failures(object)),
        remediate_last_failure: given.remediate_last_failure.unwrap_or(false),
        strategy: RemediationStrategy::Uninstall,
        failures: status_failures(object).0,
        action: ReleaseAction::Install,
    }
}

/// What follows from a failed upgrade.
pub fn upgrade_remediation(object: &HelmRelease) -> Remediation {
    let given =
        object.spec.upgrade.as_ref().and_then(|upgrade| upgrade.remediation.clone()).unwrap_or_default();
    let retries = given.retries.unwrap_or(0);
    Remediation {
        retries,
        ignore_test_failures: given.ignore_test_failures.unwrap_or_else(|| ignores_test_failures(object)),
        remediate_last_failure: given.remediate_last_failure.unwrap_or(retries > 0),
        strategy: given.strategy.unwrap_or(RemediationStrategy::Rollback),
        failures: status_failures(object).1,
        action: ReleaseAction::Upgrade,
    }
}

/// What follows from a failure of the last action.
pub fn active_remediation(object: &HelmRelease) -> Option<Remediation> {
    if active_retry(object, None).is_some() {
        return None;
    }
    match object.status.as_ref()?.last_attempted_release_action? {
        ReleaseAction::Install => Some(install_remediation(object)),
        ReleaseAction::Upgrade => Some(upgrade_remediation(object)),
    }
}

/// The pause between attempts if failures are only retried, after the last action.
pub fn active_retry(object: &HelmRelease, gates: Option<&FeatureGates>) -> Option<Duration> {
    let by_default = gates.is_some_and(|gates| gates.enabled("DefaultToRetryOnFailure"));
    let (name, interval) = match object.status.as_ref()?.last_attempted_release_action? {
        ReleaseAction::Install => {
            let strategy = object.spec.install.as_ref().and_then(|install| install.strategy.as_ref());
            (strategy.map(|strategy| strategy.name), strategy.and_then(|strategy| strategy.retry_interval))
        }
        ReleaseAction::Upgrade => {
            let strategy = object.spec.upgrade.as_ref().and_then(|upgrade| upgrade.strategy.as_ref());
            (strategy.map(|strategy| strategy.name), strategy.and_then(|strategy| strategy.retry_interval))
        }
    };
    let retries = match name {
        Some(ActionStrategyName::RetryOnFailure) => true,
        Some(ActionStrategyName::RemediateOnFailure) => false,
        None => by_default,
    };
    retries.then(|| interval.map_or(RETRY_INTERVAL, GoDuration::to_std))
}

/// The account a release is made as; empty for the controller's own.
pub fn service_account<'a>(object: &'a HelmRelease, default: &'a str) -> &'a str {
    object.spec.service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(default)
}

/// Whether the spec was seen by the last complete run.
pub fn is_observed(object: &HelmRelease) -> bool {
    object.observed_generation() == Some(object.generation())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PROGRAM;

    fn release(spec: serde_json::Value) -> HelmRelease {
        let mut spec = spec;
        spec["interval"] = "1m".into();
        let object = serde_json::json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app", "namespace": "apps"}, "spec": spec
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn names_and_namespaces() {
        let plain = release(serde_json::json!({}));
        assert_eq!(
            (release_name(&plain).as_str(), release_namespace(&plain), storage_namespace(&plain)),
            ("app", "apps", "apps")
        );
        let target = release(serde_json::json!({"targetNamespace": "prod"}));
        // Records stay where the HelmRelease is.
        assert_eq!(
            (release_name(&target).as_str(), release_namespace(&target), storage_namespace(&target)),
            ("prod-app", "prod", "apps")
        );
        let named = release(
            serde_json::json!({"targetNamespace": "prod", "releaseName": "x", "storageNamespace": "s"}),
        );
        assert_eq!((release_name(&named).as_str(), storage_namespace(&named)), ("x", "s"));
    }

    #[test]
    fn long_names_are_cut() {
        let name = "a".repeat(54);
        let short = shortened(&name);
        assert_eq!(short.len(), 53);
        assert!(short.starts_with(&"a".repeat(40)) && short.as_bytes()[40] == b'-');
        assert_eq!(shortened(&"a".repeat(53)), "a".repeat(53));
    }

    #[test]
    fn retries_count_retries_not_attempts() {
        let mut object = release(serde_json::json!({"upgrade": {"remediation": {"retries": 2}}}));
        let status = object.status.get_or_insert_default();
        status.last_attempted_release_action = Some(ReleaseAction::Upgrade);
        status.upgrade_failures = 2;
        let remediation = active_remediation(&object).unwrap();
        assert!(!remediation.is_exhausted() && remediation.remediate_last_failure);
        object.status.as_mut().unwrap().upgrade_failures = 3;
        assert!(active_remediation(&object).unwrap().is_exhausted());
        assert!(!Remediation { retries: -1, ..remediation }.is_exhausted());
    }

    #[test]
    fn retry_on_failure_replaces_remediation() {
        let spec =
            serde_json::json!({"install": {"strategy": {"name": "RetryOnFailure", "retryInterval": "10s"}}});
        let mut object = release(spec);
        object.status.get_or_insert_default().last_attempted_release_action = Some(ReleaseAction::Install);
        assert_eq!(active_retry(&object, None), Some(Duration::from_secs(10)));
        assert_eq!(active_remediation(&object), None);
        let mut plain = release(serde_json::json!({}));
        plain.status.get_or_insert_default().last_attempted_release_action = Some(ReleaseAction::Install);
        assert_eq!(active_retry(&plain, None), None);
        let gates = FeatureGates::with(PROGRAM.feature_gates, &[("DefaultToRetryOnFailure", true)]);
        assert_eq!(active_retry(&plain, Some(&gates)), Some(RETRY_INTERVAL));
    }

    #[test]
    fn defaults_that_surprise() {
        let object = release(serde_json::json!({}));
        assert_eq!(crd_policy(None), CrdPolicy::Create);
        assert_eq!(server_side(None), None);
        assert!(install_is_server_side(&object, &FeatureGates::with(PROGRAM.feature_gates, &[])));
        assert!(!install_is_server_side(
            &object,
            &FeatureGates::with(PROGRAM.feature_gates, &[("UseHelm3Defaults", true)])
        ));
        assert_eq!(history_max(&object), 5);
        assert!(reinstalls_on_chart_name(&object));
    }
}
