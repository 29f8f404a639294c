//! What the driver needs to know about a kind.

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use weir_api::FluxObject;

/// A namespaced kind that a controller reconciles: every [`FluxObject`] is one.
pub trait Object: FluxObject + Resource<DynamicType = (), Scope = NamespaceResourceScope> {}

impl<K: FluxObject + Resource<DynamicType = (), Scope = NamespaceResourceScope>> Object for K {}

/// What the driver needs to know about a kind it watches.
pub trait Watched:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + serde::de::DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static
{
}
