//! A harness for scenarios against a real Kubernetes API server.
//!
//! [`scenario`] gives a test namespaces of its own, a Git server, and the two controllers as child
//! processes whose API requests are counted. It dumps the state of all objects and the logs when the
//! test fails, and removes what the test made. Without `KUBECONFIG` a test says that it is skipped.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `KUBECONFIG` | the cluster; `hack/testenv/testenv start` makes one |
//! | `WEIR_BIN_DIR` | where the controllers' binaries are; default: where cargo puts them |
//! | `WEIR_E2E_KEEP` | when set, namespaces and files of a scenario are kept |
//! | `WEIR_E2E_SEED` | the seed of random choices, as a failed run printed it |

mod artifact;
mod cluster;
mod controller;
mod git;
mod post;
mod proxy;
mod scenario;
mod wait;

pub use artifact::ArtifactServer;
pub use cluster::{
    Cluster, EXTENSIONS, HELM, KUSTOMIZE, NOTIFICATION, NOTIFICATION_BETA, SOURCE, condition, text,
};
pub use controller::{Controller, Launch, free_address};
pub use git::{GitRequests, GitServer, Repository};
pub use post::post;
pub use proxy::{ApiProxy, Call, Counts, Faults};
pub use scenario::{Scenario, scenario};
pub use wait::{DEADLINE, eventually, holds};
