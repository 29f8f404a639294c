//! Does single actions on releases, one JSON object a line on standard input, and answers each with one.
//! Called by `hack/compare/helm-lifecycle`.
//!
//! ```json
//! {"action": "upgrade", "namespace": "a", "release": "web", "chart": "web-1.0.0.tgz", "values": {"x": 1}}
//! ```

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::Cluster;
use serde_json::{Map, Value, json};
use weir_apply::health::CustomChecks;
use weir_apply::kubernetes::KubernetesCluster;
use weir_apply::write::{Propagation, WriteCluster};
use weir_base::clock::{Clock, SystemClock};
use weir_helm::action::{
    ActionError, Context, CrdPolicy, Install, Rollback, TestFilter, Uninstall, Upgrade, WaitRules,
    WaitStrategy, apply_crds, install, rollback, test, uninstall, upgrade,
};
use weir_helm::chart::Chart;
use weir_helm::storage::Storage;
use weir_helm_controller::content::Maker;

/// The field manager of what is written unless a request names another.
const MANAGER: &str = "release-actions";
const HISTORY_MAX: usize = 10;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let client = Cluster::connect().await?.context("KUBECONFIG is not set")?.client();
    let cluster: Arc<dyn WriteCluster> = Arc::new(KubernetesCluster::new(client));
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let error = Box::pin(act(&cluster, &request)).await?.err().map(|error| error.to_string());
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", json!({ "error": error }))?;
        out.flush()?;
    }
    Ok(())
}

/// One action; the outer error is one of the request itself.
async fn act(cluster: &Arc<dyn WriteCluster>, request: &Value) -> Result<Result<(), ActionError>> {
    let text = |field: &str| request[field].as_str().unwrap_or_default();
    let flag = |field: &str| request[field] == true;
    let server_side = request["serverSide"].as_bool();
    let (namespace, release) = (text("namespace"), text("release"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let manager = request["manager"].as_str().unwrap_or(MANAGER);
    let storage = Storage::new(&**cluster, &*clock, namespace, release, manager);
    let checks = CustomChecks::default();
    let strategy = match text("wait") {
        "status" => WaitStrategy::Status,
        "legacy" => WaitStrategy::Legacy,
        _ => WaitStrategy::HooksOnly,
    };
    let context = Context {
        cluster: &**cluster,
        storage: &storage,
        clock: &*clock,
        manager,
        log: &|_| {},
        wait: WaitRules {
            timeout: Duration::from_secs(request["timeout"].as_u64().unwrap_or(60)),
            strategy,
            jobs: strategy != WaitStrategy::HooksOnly,
            checks: &checks,
        },
    };
    let maker = Maker {
        cluster: Arc::clone(cluster),
        clock: Arc::clone(&clock),
        dns: false,
        skip_schema: false,
        offline: false,
        capabilities: None,
    };
    let make = maker.make(Ok);
    let values: Map<String, Value> = request["values"].as_object().cloned().unwrap_or_default();
    Ok(match text("action") {
        "install" => {
            let options = Install {
                namespace,
                create_namespace: false,
                replace: false,
                take_ownership: false,
                server_side: server_side.unwrap_or(true),
                strict: true,
                disable_hooks: flag("disableHooks"),
            };
            let chart = load(text("chart"))?;
            // Missing definitions are created first, as `helm install` does.
            match apply_crds(&context, &chart, CrdPolicy::Create, false, &|_| {}).await {
                Ok(_) => Box::pin(install(&context, &options, chart, values, &make)).await.map(|_| ()),
                Err(error) => Err(error),
            }
        }
        "upgrade" => {
            let options = Upgrade {
                history_max: HISTORY_MAX,
                take_ownership: false,
                server_side,
                replace: false,
                strict: true,
                reuse_values: flag("reuseValues"),
                clean_up_on_fail: flag("cleanUpOnFail"),
                disable_hooks: flag("disableHooks"),
            };
            Box::pin(upgrade(&context, options, load(text("chart"))?, values, &make)).await.map(|_| ())
        }
        "rollback" => {
            let options = Rollback {
                version: request["version"].as_i64().context("rollback needs a version")?,
                history_max: HISTORY_MAX,
                server_side,
                replace: false,
                clean_up_on_fail: false,
                disable_hooks: flag("disableHooks"),
            };
            Box::pin(rollback(&context, options)).await.map(|_| ())
        }
        "uninstall" => {
            let options = Uninstall {
                keep_history: flag("keepHistory"),
                disable_hooks: flag("disableHooks"),
                propagation: Propagation::Background,
            };
            Box::pin(uninstall(&context, options)).await.map(|_| ())
        }
        "test" => Box::pin(test(&context, &TestFilter::default())).await.map(|_| ()),
        other => anyhow::bail!("unknown action '{other}'"),
    })
}

fn load(path: &str) -> Result<Chart> {
    let bytes = std::fs::read(path).with_context(|| format!("read chart '{path}'"))?;
    Chart::from_archive(&bytes).with_context(|| format!("load chart '{path}'"))
}
