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

use suite::Suite;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_of_the_server_of_kubeconfig() {
    let Some(path) = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) else {
        println!("SKIPPED conformance of a real server: KUBECONFIG is not set");
        return;
    };
    let endpoint = endpoint::Endpoint::of_kubeconfig(std::path::Path::new(&path)).await;
    let suite = Suite::read();
    if std::env::var_os("WEIR_CONFORMANCE_RECORD").is_some() {
        suite.record(&endpoint).await;
    } else {
        suite.check(&endpoint, &std::collections::BTreeSet::new()).await;
    }
}
