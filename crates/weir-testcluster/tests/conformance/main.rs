//! One suite for two servers: the answers in `answers/` were recorded from the real API server, and the embedded
//! server, or the server of `KUBECONFIG`, has to give the same ones.
//!
//! A case is a row in `cases/*.yaml`; see `case.rs` for the format. To add one, write its requests, then record with
//! `WEIR_CONFORMANCE_RECORD=1 KUBECONFIG=… cargo test -p weir-testcluster --test conformance kubeconfig` and read the
//! answer. `WEIR_CONFORMANCE_ONLY=TEXT` restricts a run to the cases whose area or name contains the text.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a broken case or an unreachable server ends the test, and what was skipped must be seen"
)]

mod answer;
mod case;
mod endpoint;
mod run;
mod suite;
mod variables;

use std::collections::BTreeSet;
use std::time::Duration;

use kube::config::Kubeconfig;
use suite::Suite;
use weir_testcluster::TestCluster;

/// The garbage collector of the real control plane learns of a new kind only when it next looks at what is served,
/// every 30 s.
const REAL_PATIENCE: Duration = Duration::from_secs(90);
/// Long, so that a busy machine changes nothing: only a wrong answer takes this time.
const EMBEDDED_PATIENCE: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_of_the_embedded_server() {
    let cluster = TestCluster::builder().rbac(true).controllers(true).build().unwrap();
    let running = cluster.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(running.kubeconfig()).unwrap();
    let endpoint = endpoint::Endpoint::new(kubeconfig, EMBEDDED_PATIENCE).await;
    let known: BTreeSet<String> = include_str!("gaps.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    Suite::read().check(&endpoint, &known).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_of_the_server_of_kubeconfig() {
    let Some(path) = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) else {
        println!("SKIPPED conformance of a real server: KUBECONFIG is not set");
        return;
    };
    let kubeconfig = Kubeconfig::read_from(std::path::PathBuf::from(path)).unwrap();
    let endpoint = endpoint::Endpoint::new(kubeconfig, REAL_PATIENCE).await;
    let suite = Suite::read();
    if std::env::var_os("WEIR_CONFORMANCE_RECORD").is_some() {
        suite.record(&endpoint).await;
    } else {
        suite.check(&endpoint, &BTreeSet::new()).await;
    }
}
