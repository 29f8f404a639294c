//! How objects reach a cluster and stay there: normalise, stage, dry-run, diff, apply, inventory,
//! prune, health.
//!
//! The rules are pure functions over JSON values; the few functions that need a cluster take the
//! [`cluster::Cluster`] trait, implemented by [`kubernetes::KubernetesCluster`] on a real API
//! server and by [`memory::MemoryCluster`] without one.
//!
//! # Invariants
//! - An object that already is as desired is never written.
//! - What has been applied is reported even when a later object fails.
//! - Nothing is deleted whose live labels do not name the owner.
//! - Values of Secrets do not reach error texts.

pub mod apply;
pub mod change;
pub mod cluster;
pub mod dependencies;
pub mod described;
pub mod drift;
pub mod expression;
pub mod health;
pub mod ignore;
pub mod inventory;
pub mod kubeconfig;
pub mod kubernetes;
pub mod managers;
pub mod mask;
pub mod memory;
pub mod normalise;
pub mod object;
pub mod order;
pub mod policy;
pub mod prune;
pub mod quantity;
pub mod tokens;
pub mod write;
