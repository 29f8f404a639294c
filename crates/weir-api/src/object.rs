//! What the kinds have in common, for code that serves any of them.

use std::fmt::Debug;

use kube::{CustomResourceExt, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::names::annotation::{
    DISABLED, EXTENSIONS_RECONCILE, OPERATOR_RECONCILE, OPERATOR_RECONCILE_EVERY,
};
use crate::{extensions, helm, image, kustomize, notification, operator, request, source};

/// A kind that is reconciled and reports conditions.
///
/// Setters create the status when there is none. Kinds without a field ignore its setter and answer `None`.
pub trait FluxObject:
    Resource<DynamicType = ()>
    + CustomResourceExt
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The status of the kind.
    type Status: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The status, if one was written.
    fn status(&self) -> Option<&Self::Status>;

    /// The status, created when there is none.
    fn status_mut(&mut self) -> &mut Self::Status;

    /// The conditions; none without a status.
    fn conditions(&self) -> &[Condition];

    /// The conditions, to change them with the functions of [`crate::condition`].
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;

    /// The generation that was handled last; -1 if none was, `None` if the kind does not say.
    fn observed_generation(&self) -> Option<i64>;

    /// Sets the generation that was handled last.
    fn set_observed_generation(&mut self, generation: i64);

    /// The token of the reconcile request that was handled last.
    fn last_handled_reconcile_at(&self) -> Option<&str>;

    /// Sets the token of the reconcile request that was handled last.
    fn set_last_handled_reconcile_at(&mut self, token: String);

    /// Whether reconciliation is suspended.
    fn is_suspended(&self) -> bool;

    /// Time between two reconciliations, if the object says so.
    fn interval(&self) -> Option<GoDuration>;

    /// The token of the current reconcile request.
    fn requested_at(&self) -> Option<&str> {
        request::requested_at(self.meta().annotations.as_ref())
    }

    /// The generation of the object; 0 before it is stored.
    fn generation(&self) -> i64 {
        self.meta().generation.unwrap_or_default()
    }
}

macro_rules! observed_generation {
    (observed) => {
        fn observed_generation(&self) -> Option<i64> {
            Some(self.status.as_ref().map_or(-1, |status| status.observed_generation))
        }

        fn set_observed_generation(&mut self, generation: i64) {
            self.status_mut().observed_generation = generation;
        }
    };
    (unobserved) => {
        fn observed_generation(&self) -> Option<i64> {
            None
        }

        fn set_observed_generation(&mut self, _: i64) {}
    };
}

macro_rules! last_handled {
    (handled) => {
        fn last_handled_reconcile_at(&self) -> Option<&str> {
            self.status.as_ref()?.last_handled_reconcile_at.as_deref()
        }

        fn set_last_handled_reconcile_at(&mut self, token: String) {
            self.status_mut().last_handled_reconcile_at = Some(token);
        }
    };
    (unhandled) => {
        fn last_handled_reconcile_at(&self) -> Option<&str> {
            None
        }

        fn set_last_handled_reconcile_at(&mut self, _: String) {}
    };
}

macro_rules! flux_object {
    ($kind:ty, $status:ty, $observed:ident, $handled:ident, $suspended:expr, $interval:expr) => {
        impl FluxObject for $kind {
            type Status = $status;

            fn status(&self) -> Option<&Self::Status> {
                self.status.as_ref()
            }

            fn status_mut(&mut self) -> &mut Self::Status {
                self.status.get_or_insert_with(Self::Status::default)
            }

            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| status.conditions.as_slice())
            }

            fn conditions_mut(&mut self) -> &mut Vec<Condition> {
                &mut self.status_mut().conditions
            }

            observed_generation!($observed);
            last_handled!($handled);

            fn is_suspended(&self) -> bool {
                let suspended: fn(&Self) -> bool = $suspended;
                suspended(self)
            }

            fn interval(&self) -> Option<GoDuration> {
                let interval: fn(&Self) -> Option<GoDuration> = $interval;
                interval(self)
            }
        }
    };
}

fn is_disabled(object: &impl ResourceExt, annotation: &str) -> bool {
    object.annotations().get(annotation).is_some_and(|value| value.eq_ignore_ascii_case(DISABLED))
}

fn annotated_interval(object: &impl ResourceExt) -> Option<GoDuration> {
    object.annotations().get(OPERATOR_RECONCILE_EVERY)?.parse().ok()
}

flux_object!(
    source::GitRepository,
    source::GitRepositoryStatus,
    observed,
    handled,
    |o| o.spec.suspend,
    |o| Some(o.spec.interval)
);
flux_object!(
    source::OCIRepository,
    source::OCIRepositoryStatus,
    observed,
    handled,
    |o| o.spec.suspend,
    |o| Some(o.spec.interval)
);
flux_object!(source::Bucket, source::BucketStatus, observed, handled, |o| o.spec.suspend, |o| Some(
    o.spec.interval
));
flux_object!(
    source::HelmRepository,
    source::HelmRepositoryStatus,
    observed,
    handled,
    |o| o.spec.suspend,
    |o| o.spec.interval
);
flux_object!(source::HelmChart, source::HelmChartStatus, observed, handled, |o| o.spec.suspend, |o| Some(
    o.spec.interval
));
flux_object!(
    source::ExternalArtifact,
    source::ExternalArtifactStatus,
    unobserved,
    unhandled,
    |_| false,
    |_| None
);
flux_object!(
    kustomize::Kustomization,
    kustomize::KustomizationStatus,
    observed,
    handled,
    |o| o.spec.suspend,
    |o| Some(o.spec.interval)
);
flux_object!(helm::HelmRelease, helm::HelmReleaseStatus, observed, handled, |o| o.spec.suspend, |o| Some(
    o.spec.interval
));
flux_object!(
    notification::Receiver,
    notification::ReceiverStatus,
    observed,
    handled,
    |o| o.spec.suspend,
    |o| Some(o.spec.interval)
);
flux_object!(
    image::ImageRepository,
    image::ImageRepositoryStatus,
    observed,
    handled,
    |o| o.spec.suspend,
    |o| Some(o.spec.interval)
);
flux_object!(image::ImagePolicy, image::ImagePolicyStatus, observed, handled, |o| o.spec.suspend, |o| o
    .spec
    .interval);
flux_object!(
    image::ImageUpdateAutomation,
    image::ImageUpdateAutomationStatus,
    observed,
    handled,
    |o| o.spec.suspend,
    |o| Some(o.spec.interval)
);
flux_object!(
    extensions::ArtifactGenerator,
    extensions::ArtifactGeneratorStatus,
    unobserved,
    handled,
    |o| is_disabled(o, EXTENSIONS_RECONCILE),
    |_| None
);
flux_object!(
    operator::FluxInstance,
    operator::FluxInstanceStatus,
    unobserved,
    handled,
    |o| is_disabled(o, OPERATOR_RECONCILE),
    |o| annotated_interval(o)
);
flux_object!(
    operator::FluxReport,
    operator::FluxReportStatus,
    unobserved,
    handled,
    |o| is_disabled(o, OPERATOR_RECONCILE),
    |o| annotated_interval(o)
);
flux_object!(
    operator::ResourceSet,
    operator::ResourceSetStatus,
    unobserved,
    handled,
    |o| is_disabled(o, OPERATOR_RECONCILE),
    |o| annotated_interval(o)
);
flux_object!(
    operator::ResourceSetInputProvider,
    operator::ResourceSetInputProviderStatus,
    unobserved,
    handled,
    |o| is_disabled(o, OPERATOR_RECONCILE),
    |o| annotated_interval(o)
);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kustomization(extra: &serde_json::Value) -> kustomize::Kustomization {
        let mut object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": "apps", "namespace": "default", "generation": 3},
            "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        });
        for (key, value) in extra.as_object().unwrap() {
            object[key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn an_object_without_status() {
        let mut object = kustomization(&json!({}));
        assert_eq!(object.observed_generation(), Some(-1));
        assert_eq!(object.generation(), 3);
        assert!(object.conditions().is_empty());
        assert_eq!(object.interval(), Some(GoDuration::from_secs(600)));
        assert!(!object.is_suspended());
        object.set_observed_generation(3);
        object.set_last_handled_reconcile_at("now".to_owned());
        assert_eq!(
            serde_json::to_value(&object.status).unwrap(),
            json!({
                "observedGeneration": 3, "lastHandledReconcileAt": "now",
            })
        );
    }

    #[test]
    fn annotations_suspend_operator_kinds() {
        #[track_caller]
        fn check(value: &str, every: &str, suspended: bool, interval: Option<GoDuration>) {
            let set: operator::ResourceSet = serde_json::from_value(json!({
                "apiVersion": "fluxcd.controlplane.io/v1", "kind": "ResourceSet", "spec": {"resourcesTemplate": ""},
                "metadata": {"name": "apps", "annotations": {OPERATOR_RECONCILE: value, OPERATOR_RECONCILE_EVERY: every}},
            }))
            .unwrap();
            assert_eq!((set.is_suspended(), set.interval()), (suspended, interval));
        }
        check("disabled", "5m", true, Some(GoDuration::from_secs(300)));
        check("enabled", "often", false, None);
    }
}
