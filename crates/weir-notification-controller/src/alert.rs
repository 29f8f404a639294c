//! Alerts: which events are sent where. They are only read; what former versions left on them is removed.

use weir_api::notification::Alert;
use weir_runtime::{Notice, Recorder, Severity};

use crate::finalizers::{Wanted, is_held};

/// What is to happen to the finalizer of an Alert.
pub(crate) fn finalizer(alert: &Alert) -> Wanted {
    let is_deleting = alert.metadata.deletion_timestamp.is_some();
    if is_held(alert) && (is_deleting || !alert.spec.suspend) { Wanted::Remove } else { Wanted::Leave }
}

/// Tells that the finalizer is gone.
pub(crate) fn migrated(recorder: &Recorder, alert: &Alert) {
    if alert.metadata.deletion_timestamp.is_none() {
        let message = "removed finalizer from Alert to migrate to static Alert";
        recorder.record(alert, &Notice::new(Severity::Info, "Migration", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_finalizers_of_former_versions_are_removed() {
        let check = |held: bool, suspend: bool, deleting: bool, expected: Wanted| {
            let mut alert: Alert = serde_json::from_value(json!({
                "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert",
                "metadata": {"name": "a", "namespace": "n"},
                "spec": {"providerRef": {"name": "p"}, "eventSources": [], "suspend": suspend},
            }))
            .unwrap();
            if held {
                alert.metadata.finalizers = Some(vec![weir_runtime::FINALIZER.to_owned()]);
            }
            if deleting {
                alert.metadata.deletion_timestamp =
                    serde_json::from_value(json!("2026-01-01T10:00:00Z")).unwrap();
            }
            assert_eq!(finalizer(&alert), expected, "{held} {suspend} {deleting}");
        };
        check(false, false, false, Wanted::Leave);
        check(true, false, false, Wanted::Remove);
        check(true, true, false, Wanted::Leave);
        check(true, true, true, Wanted::Remove);
    }
}
