//! Source clients: a specification and credentials in, a revision and files out.
//!
//! - [`bases`]: the remote files and repositories of kustomizations,
//! - [`bucket`]: buckets of object stores,
//! - [`cosign`]: signatures of what is in registries,
//! - [`git`]: Git repositories over HTTP(S), without a work tree and without a Git binary,
//! - [`oci`]: artifacts in container registries,
//! - [`helm`]: chart repositories,
//! - [`ignore`]: which files of a source stay out of its artifact,
//! - [`connection`]: own certificates and proxies.
//!
//! Nothing here knows Kubernetes.

pub mod bases;
pub mod bucket;
pub mod connection;
pub mod cosign;
pub mod git;
pub mod helm;
pub mod ignore;
pub mod oci;
