//! Nothing changes, so nothing is written.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{Call, Controller, DEADLINE, Scenario, eventually, scenario};
use serde_json::json;

use crate::fleet::{Fleet, STAGES};

/// Short enough that several reconciles are seen, long enough that they end.
const INTERVAL: &str = "5s";

/// How often kustomize-controller says that it has finished.
async fn runs(s: &Scenario) -> usize {
    let log = s.kustomize.lock().await.as_ref().map(Controller::log).unwrap_or_default();
    log.lines().filter(|line| line.contains("next run in") && line.contains("Kustomization")).count()
}

#[test]
fn an_unchanged_source_is_reconciled_without_writes() {
    scenario("quiet", |s: Arc<Scenario>| async move {
        let fleet = Fleet::new(&s.namespace);
        let repository = s.git.create("fleet")?;
        repository.replace(&fleet.files())?;
        let revision = repository.commit("The only state")?;
        s.start_controllers().await?;
        fleet.install(&s, repository.url(), &json!({ "interval": INTERVAL })).await?;
        s.git_repository("fleet", repository.url(), &json!({ "spec": { "interval": INTERVAL } })).await?;
        for (name, _) in STAGES {
            s.wait_ready("Kustomization", name, &revision).await?;
        }
        // The reconciles that were under way when the last one became ready.
        tokio::time::sleep(Duration::from_secs(3)).await;

        let (git, source, kustomize) = (s.git.requests(), s.source_api.counts(), s.kustomize_api.counts());
        let runs_before = runs(&s).await;
        let wanted = 3 * STAGES.len();
        eventually(DEADLINE, "three more reconciles of everything", || async {
            let more = runs(&s).await - runs_before;
            ensure!(more >= wanted, "{more} of {wanted}");
            Ok(())
        })
        .await?;
        let (source, kustomize) =
            (s.source_api.counts().since(&source), s.kustomize_api.counts().since(&kustomize));
        let (now, reconciles) = (s.git.requests(), runs(&s).await - runs_before);
        s.report(&format!("source-controller: {source}"))?;
        s.report(&format!(
            "kustomize-controller, {reconciles} reconciles of {} objects: {kustomize}",
            fleet.expected().len()
        ))?;
        s.report(&format!("reads per Kustomization: {:.1}", kustomize.reads() as f64 / reconciles as f64))?;
        s.report(&format!(
            "Git: {} advertisements, {} ref listings, {} fetches",
            now.advertisements - git.advertisements,
            now.ref_listings - git.ref_listings,
            now.fetches - git.fetches,
        ))?;
        for (name, controller) in [("source", &s.source), ("kustomize", &s.kustomize)] {
            let resident = controller.lock().await.as_ref().and_then(Controller::resident_kib);
            s.report(&format!("{name}-controller: {} MiB resident", resident.unwrap_or_default() / 1024))?;
        }
        ensure!(now.fetches == git.fetches, "an unchanged branch is not fetched again");
        ensure!(source.writes() == 0, "source-controller wrote: {source}");
        let managed = kustomize.count(|call: &Call| {
            call.is_write() && !call.is_bookkeeping() && call.resource != "kustomizations/status"
        });
        ensure!(managed == 0, "kustomize-controller wrote to managed objects: {kustomize}");
        ensure!(kustomize.writes() == 0, "kustomize-controller wrote its own status: {kustomize}");
        fleet.matches(&s.cluster).await
    });
}

#[test]
fn a_stopped_controller_exits_cleanly_and_resumes_without_writes() {
    scenario("resume", |s: Arc<Scenario>| async move {
        let repository = s.git.create("fleet")?;
        repository.write("one.yaml", &crate::fleet::config_map(&s.namespace, "one", "one"))?;
        let revision = repository.commit("The only state")?;
        s.start_controllers().await?;
        s.git_repository("fleet", repository.url(), &json!({})).await?;
        s.kustomization("all", "./", &json!({})).await?;
        s.wait_ready("Kustomization", "all", &revision).await?;
        restart(&s).await?;
        let before = s.kustomize_api.counts();
        s.reconcile("Kustomization", "all").await?;
        let after = s.kustomize_api.counts().since(&before);
        s.report(&format!("one requested reconcile: {after}"))?;
        let managed = after.count(|call: &Call| call.is_write() && call.resource == "configmaps");
        ensure!(managed == 0, "nothing changed, but: {after}");
        Ok(())
    });
}

async fn restart(s: &Scenario) -> Result<()> {
    for controller in [&s.source, &s.kustomize] {
        if let Some(controller) = controller.lock().await.as_mut() {
            controller.stop().await?;
            controller.spawn()?;
            controller.wait_ready().await?;
        }
    }
    Ok(())
}
