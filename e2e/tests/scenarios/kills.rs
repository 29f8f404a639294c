//! Controllers die, and the API server fails, at random moments.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{DEADLINE, Faults, Scenario, eventually, scenario};
use rand::RngExt as _;
use serde_json::json;

use crate::fleet::{Fleet, STAGES};

const KILLS: u32 = 10;
/// The longest time between two kills.
const PAUSE_MS_MAX: u64 = 2500;
/// How long a fleet may take to settle after the last kill.
const SETTLE: Duration = Duration::from_secs(150);

#[test]
fn killed_controllers_converge_and_leak_nothing() {
    scenario("kills", |s: Arc<Scenario>| async move {
        let fleet = Fleet::new(&s.namespace);
        let changed = fleet.changed();
        let repository = s.git.create("fleet")?;
        repository.replace(&fleet.files())?;
        repository.commit("First state")?;
        s.start_controllers().await?;
        fleet.install(&s, repository.url(), &json!({})).await?;

        let mut random = s.random();
        let mut revision = String::new();
        for kill in 0..KILLS {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            if kill == KILLS / 2 {
                repository.replace(&changed.files())?;
                revision = repository.commit("Second state")?;
                s.request("GitRepository", "fleet").await?;
            }
            let victim = if random.random() { &s.source } else { &s.kustomize };
            let mut victim = victim.lock().await;
            let controller = victim.as_mut().context("the controllers were started")?;
            controller.kill().await?;
            controller.spawn()?;
        }
        s.report(&format!("{KILLS} kills, seed {}", s.seed()))?;
        for (name, _) in STAGES {
            s.wait_ready_within(SETTLE, "Kustomization", name, &revision).await?;
        }
        eventually(DEADLINE, "the cluster is as the second commit", || changed.matches(&s.cluster)).await?;

        // One more turn of both, which clears what the dead left behind.
        s.reconcile("GitRepository", "fleet").await?;
        for (name, _) in STAGES {
            s.reconcile("Kustomization", name).await?;
        }
        changed.matches(&s.cluster).await?;
        eventually(DEADLINE, "no files are left behind", || async { no_leftovers(&s) }).await
    });
}

#[test]
fn an_unreliable_api_server_delays_but_harms_nothing() {
    scenario("faults", |s: Arc<Scenario>| async move {
        let fleet = Fleet::new(&s.namespace);
        let changed = fleet.changed();
        let repository = s.git.create("fleet")?;
        repository.replace(&fleet.files())?;
        repository.commit("First state")?;
        s.start_controllers().await?;
        fleet.install(&s, repository.url(), &json!({})).await?;

        let mut random = s.random();
        let mut revision = String::new();
        let (calm, shaky) =
            (Faults::default(), Faults { refused_percent: 10, lost_answers_percent: 10, outage: false });
        let outage = Faults { outage: true, ..calm };
        for (round, faults) in [shaky, outage, shaky, shaky, outage, shaky].into_iter().enumerate() {
            if round == 3 {
                repository.replace(&changed.files())?;
                revision = repository.commit("Second state")?;
                s.request("GitRepository", "fleet").await?;
            }
            for api in [&s.source_api, &s.kustomize_api] {
                api.set_faults(faults);
                tokio::time::sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            }
        }
        for api in [&s.source_api, &s.kustomize_api] {
            api.set_faults(calm);
        }
        for (name, _) in STAGES {
            s.wait_ready_within(SETTLE, "Kustomization", name, &revision).await?;
        }
        eventually(DEADLINE, "the cluster is as the second commit", || changed.matches(&s.cluster)).await
    });
}

fn no_leftovers(s: &Scenario) -> Result<()> {
    for directory in s.temporary() {
        // The cache of fetched Git objects is bounded and kept; a fetch that was cut off is not.
        let cache = directory.join("source-controller/git").display().to_string();
        let finished = |path: &String| {
            let name = path.rsplit('/').next().unwrap_or_default();
            let cached =
                ["pack-", "origin", "commits", "shallow"].iter().any(|known| name.starts_with(known));
            path.starts_with(&cache)
                && cached
                && Path::new(&name).extension().is_none_or(|extension| extension != "lock")
        };
        let left: Vec<String> = files(&directory)?.into_iter().filter(|path| !finished(path)).collect();
        ensure!(left.is_empty(), "temporary files: {left:?}");
    }
    let stored = files(&s.storage())?;
    let archives = stored.iter().filter(|path| path.ends_with(".tar.gz")).count();
    ensure!((1..=2).contains(&archives), "the current artifact and at most the one before: {stored:?}");
    let partial: Vec<_> =
        stored.iter().filter(|path| path.contains(".tmp") || path.contains("partial")).collect();
    ensure!(partial.is_empty(), "unfinished files: {partial:?}");
    Ok(())
}

/// All files below a folder.
fn files(directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path.display().to_string());
        }
    }
    Ok(found)
}
