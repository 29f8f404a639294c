//! Tries again what was given up, once the cause may have gone.
//!
//! The reference gives up for good when the retries of a HelmRelease are used up: until its spec, chart or values change
//! or somebody asks. Often the cause was elsewhere and has gone: a Secret came, an image was pushed, a quota was raised.
//! If it is switched on, a HelmRelease that was given up is looked at every interval. It stays `Stalled` meanwhile.

use std::time::Duration;

use jiff::Timestamp;
use weir_api::helm::{HelmRelease, ReleaseAction};
use weir_api::names::condition as types;
use weir_api::{FluxObject as _, condition};
use weir_apply::cluster::Cluster;
use weir_apply::health::{CustomChecks, Status as Health, assess};
use weir_apply::object::ObjectRef;
use weir_helm::action::read_manifest;
use weir_helm::release::{Record, Status};
use weir_runtime::FeatureGates;

use crate::spec;

/// The feature gate that switches it on for all HelmReleases.
pub const GATE: &str = "RecoverExhaustedReleases";
/// The annotation that switches it on (`enabled`) or off for one. Flux ignores it.
pub const RECOVER: &str = "weir.dev/recover";
/// The longest wait before another attempt, unless the interval is longer.
const DELAY_MAX: Duration = Duration::from_hours(6);
/// More doublings than this make no difference.
const DOUBLINGS_MAX: u32 = 16;

/// Whether a HelmRelease that was given up is looked at again.
pub fn is_on(object: &HelmRelease, gates: &FeatureGates) -> bool {
    match object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(RECOVER)) {
        Some(value) => value.eq_ignore_ascii_case("enabled"),
        None => gates.enabled(GATE),
    }
}

/// When a HelmRelease that was given up is tried again whatever its objects say: after its interval, then after twice
/// as long, and so on. `None` if it was not given up.
pub fn due(object: &HelmRelease) -> Option<Timestamp> {
    let stalled = condition::get(object.conditions(), types::STALLED)?;
    if !["RetriesExceeded", "MissingRollbackTarget"].contains(&stalled.reason.as_str()) {
        return None;
    }
    let last_action = object.status.as_ref().and_then(|status| status.last_attempted_release_action);
    let remediation = match last_action {
        Some(ReleaseAction::Upgrade) => spec::upgrade_remediation(object),
        Some(ReleaseAction::Install) | None => spec::install_remediation(object),
    };
    let attempts = remediation.failures - remediation.retries.max(0) - 1;
    let doublings = u32::try_from(attempts).unwrap_or(0).min(DOUBLINGS_MAX);
    let interval = object.spec.interval.to_std();
    let delay = interval.saturating_mul(1 << doublings).min(DELAY_MAX.max(interval));
    stalled.last_transition_time.timestamp().checked_add(delay).ok()
}

/// Whether all objects of a release that failed are there and well by now.
pub async fn is_healed(
    cluster: &dyn Cluster,
    record: &Record,
    checks: &CustomChecks,
    now: Timestamp,
) -> bool {
    if record.info.status != Status::Failed {
        return false;
    }
    let Ok(items) = read_manifest(cluster, &record.manifest, &record.namespace).await else { return false };
    for item in &items {
        match cluster.get(&ObjectRef::of(item)).await {
            Ok(Some(live)) if assess(&live, checks, now).status == Health::Current => {}
            _ => return false,
        }
    }
    !items.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::PROGRAM;

    fn given_up(reason: &str, failures: i64) -> HelmRelease {
        let object = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app", "namespace": "apps", "generation": 1},
            "spec": {"interval": "10m", "upgrade": {"remediation": {"retries": 1}}},
            "status": {
                "lastAttemptedReleaseAction": "upgrade", "upgradeFailures": failures,
                "conditions": [{
                    "type": "Stalled", "status": "True", "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
                }],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn attempts_get_rarer() {
        #[track_caller]
        fn check(reason: &str, failures: i64, expected: Option<&str>) {
            assert_eq!(due(&given_up(reason, failures)), expected.map(|time| time.parse().unwrap()));
        }
        check("RetriesExceeded", 2, Some("2026-01-01T00:10:00Z"));
        check("RetriesExceeded", 3, Some("2026-01-01T00:20:00Z"));
        check("RetriesExceeded", 4, Some("2026-01-01T00:40:00Z"));
        check("RetriesExceeded", 1000, Some("2026-01-01T06:00:00Z"));
        check("MissingRollbackTarget", 1, Some("2026-01-01T00:10:00Z"));
        check("AccessDenied", 2, None);
    }

    #[test]
    fn the_annotation_wins_over_the_gate() {
        let gates = |on: bool| FeatureGates::with(PROGRAM.feature_gates, &[(GATE, on)]);
        let mut object = given_up("RetriesExceeded", 2);
        assert_eq!((is_on(&object, &gates(false)), is_on(&object, &gates(true))), (false, true));
        object.metadata.annotations =
            serde_json::from_value::<Option<_>>(json!({RECOVER: "disabled"})).unwrap();
        assert!(!is_on(&object, &gates(true)));
        object.metadata.annotations =
            serde_json::from_value::<Option<_>>(json!({RECOVER: "enabled"})).unwrap();
        assert!(is_on(&object, &gates(false)));
    }
}
