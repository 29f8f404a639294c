//! What the driver needs to know about a kind.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The annotation whose value asks for a run; the value is an opaque token.
pub const RECONCILE_REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// A kind that a controller reconciles.
///
/// The few fields the driver itself reads and writes; everything else is the business of the
/// [`Reconciler`](crate::Reconciler).
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Whether the user has suspended the object (`spec.suspend`).
    fn is_suspended(&self) -> bool {
        false
    }

    /// `status.lastHandledReconcileAt`.
    fn last_handled_reconcile_at(&self) -> Option<&str>;

    /// Sets `status.lastHandledReconcileAt`; the driver calls it at the end of every run.
    fn set_last_handled_reconcile_at(&mut self, token: String);
}

/// The value of `reconcile.fluxcd.io/requestedAt`, if the object has one.
pub fn reconcile_requested_at<K: Resource>(object: &K) -> Option<&str> {
    object
        .meta()
        .annotations
        .as_ref()?
        .get(RECONCILE_REQUESTED_AT)
        .map(String::as_str)
}

/// The `apiVersion` of a kind.
pub fn api_version<K: Resource<DynamicType = ()>>() -> String {
    K::api_version(&()).into_owned()
}
