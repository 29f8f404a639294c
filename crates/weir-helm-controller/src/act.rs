//! Runs one action on a release and tells what it left on record.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value as Json;
use weir_api::helm::HelmRelease;
use weir_apply::health::CustomChecks;
use weir_apply::write::WriteCluster;
use weir_base::clock::Clock;
use weir_helm::action::{
    ActionError, ContentFailed, Context, Install, Rollback, Uninstall, Upgrade, WaitRules, WaitStrategy,
    apply_crds, go_time, install, rollback, test, uninstall, upgrade,
};
use weir_helm::chart::Chart;
use weir_helm::content::Content;
use weir_helm::dependencies;
use weir_helm::manifest::SplitRule;
use weir_helm::postrender::post_render;
use weir_helm::release::{Record, Status};
use weir_helm::render::ReleaseInfo;
use weir_helm::storage::Storage;
use weir_helm::values::Table;

use crate::content::Maker;
use crate::settings::Settings;
use crate::{diagnosis, post_render as changes, spec};

/// The field manager of everything that is written.
pub const MANAGER: &str = "helm-controller";
/// How many lines of the log go into an event.
const LOG_LINES_MAX: usize = 10;

/// Runs an action with a context of its own and tells what it did.
macro_rules! act {
    ($work:ident, $common:ident, $context:ident => $action:block) => {{
        let storage = $work.storage();
        let log = LogBuffer::default();
        let append = |line: String| log.append(go_time($work.clock.now()), line);
        let $context = $work.context(&storage, &append, $common);
        // Boxed: an action is large for the stack of a worker.
        let result = Box::pin(async $action).await;
        let written = storage.take_written();
        let log = diagnosis::masked(&log.text(), written.last());
        Outcome { written, result, log }
    }};
}

/// What is needed to act on a release.
pub struct Work {
    /// The HelmRelease as it was at the start of the run.
    pub object: Arc<HelmRelease>,
    /// What the flags say.
    pub settings: Settings,
    /// Where the release is made.
    pub cluster: Arc<dyn WriteCluster>,
    /// Rules of the user for the health of objects.
    pub checks: Arc<CustomChecks>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// The namespace of the records.
    pub storage_namespace: String,
    /// The name of the release.
    pub release_name: String,
}

/// What an action did.
pub struct Outcome {
    /// The records it wrote, each as it was written last.
    pub written: Vec<Record>,
    /// How it ended.
    pub result: Result<(), ActionError>,
    /// What people may want to read after a failure; may be empty.
    pub log: String,
}

impl Work {
    /// The records of the release.
    pub fn storage(&self) -> Storage<'_> {
        Storage::new(&*self.cluster, &*self.clock, &self.storage_namespace, &self.release_name, MANAGER)
    }

    /// What an action needs, as `common` has it.
    fn context<'a>(
        &'a self,
        storage: &'a Storage<'a>,
        log: &'a (dyn Fn(String) + Sync),
        common: spec::Common,
    ) -> Context<'a> {
        Context {
            cluster: &*self.cluster,
            storage,
            clock: &*self.clock,
            manager: MANAGER,
            log,
            wait: WaitRules {
                timeout: common.timeout,
                strategy: common.wait,
                jobs: common.wait_for_jobs,
                checks: &self.checks,
            },
        }
    }

    /// Installs the chart.
    pub async fn install(&self, chart: &Chart, given: &Table) -> Outcome {
        let object = &self.object;
        let install_spec = object.spec.install.clone().unwrap_or_default();
        let common = spec::install(object, &self.settings.gates);
        let server_side = spec::install_is_server_side(object, &self.settings.gates);
        let has_target =
            object.spec.target_namespace.as_deref().is_some_and(|namespace| !namespace.is_empty());
        let namespace = spec::release_namespace(object);
        let options = Install {
            namespace,
            create_namespace: install_spec.create_namespace && has_target,
            replace: install_spec.replace,
            take_ownership: !install_spec.disable_take_ownership,
            server_side,
            strict: !install_spec.disable_openapi_validation,
            disable_hooks: common.disable_hooks,
        };
        let policy = spec::crd_policy(install_spec.crds);
        let make = self.content(install_spec.disable_schema_validation);
        act!(self, common, context => {
            self.crds(&context, chart, given, policy, server_side).await?;
            install(&context, &options, chart.clone(), given.clone(), &make).await.map(|_| ())
        })
    }

    /// Upgrades to the chart; `last` is the last revision on record.
    pub async fn upgrade(&self, chart: &Chart, given: &Table, last: Option<&Record>) -> Outcome {
        let object = &self.object;
        let upgrade_spec = object.spec.upgrade.clone().unwrap_or_default();
        let common = spec::upgrade(object, &self.settings.gates);
        let server_side = spec::server_side(upgrade_spec.server_side_apply);
        let options = Upgrade {
            history_max: spec::history_max(object),
            take_ownership: !upgrade_spec.disable_take_ownership,
            server_side,
            replace: upgrade_spec.force,
            strict: !upgrade_spec.disable_openapi_validation,
            reuse_values: upgrade_spec.preserve_values,
            clean_up_on_fail: upgrade_spec.cleanup_on_fail,
            disable_hooks: common.disable_hooks,
        };
        let policy = spec::crd_policy(upgrade_spec.crds);
        let by_server = server_side.unwrap_or_else(|| last.is_some_and(Record::is_server_side));
        let make = self.content(upgrade_spec.disable_schema_validation);
        act!(self, common, context => {
            self.crds(&context, chart, given, policy, by_server).await?;
            upgrade(&context, options, chart.clone(), given.clone(), &make).await.map(|_| ())
        })
    }

    /// Goes back to a revision.
    pub async fn rollback(&self, version: i64) -> Outcome {
        let object = &self.object;
        let rollback_spec = object.spec.rollback.clone().unwrap_or_default();
        let common = spec::rollback(object, &self.settings.gates);
        let options = Rollback {
            version,
            history_max: spec::history_max(object),
            server_side: spec::server_side(rollback_spec.server_side_apply),
            replace: rollback_spec.force,
            clean_up_on_fail: rollback_spec.cleanup_on_fail,
            disable_hooks: common.disable_hooks,
        };
        act!(self, common, context => { rollback(&context, options).await.map(|_| ()) })
    }

    /// Takes the release away.
    pub async fn uninstall(&self) -> Outcome {
        let object = &self.object;
        let common = spec::uninstall(object, &self.settings.gates);
        let options = Uninstall {
            keep_history: object.spec.uninstall.as_ref().is_some_and(|uninstall| uninstall.keep_history),
            disable_hooks: common.disable_hooks,
            propagation: spec::propagation(object),
        };
        act!(self, common, context => { uninstall(&context, options).await.map(|_| ()) })
    }

    /// Runs the tests.
    pub async fn test(&self) -> Outcome {
        let common = spec::test(&self.object, &self.settings.gates);
        let filter = spec::test_filter(&self.object);
        act!(self, common, context => { test(&context, &filter).await.map(|_| ()) })
    }

    /// Ends an action that was cut off: its record becomes a failed one.
    pub async fn unlock(&self, mut record: Record) -> Outcome {
        let common = spec::Common {
            timeout: Duration::ZERO,
            wait: WaitStrategy::HooksOnly,
            wait_for_jobs: false,
            disable_hooks: true,
        };
        let was = record.info.status.name();
        record.info.status = Status::Failed;
        record.info.description = format!("Release unlocked from stale '{was}' state");
        act!(self, common, context => { Ok(context.storage.update(&record).await?) })
    }

    async fn crds(
        &self,
        context: &Context<'_>,
        chart: &Chart,
        given: &Table,
        policy: weir_helm::action::CrdPolicy,
        server_side: bool,
    ) -> Result<(), ActionError> {
        let mut chart = chart.clone();
        dependencies::process(&mut chart, given).map_err(|error| ContentFailed(error.to_string()))?;
        let mark = |definition: &mut Json| changes::origin(&self.object, definition);
        apply_crds(context, &chart, policy, server_side, &mark).await.map(|_| ())
    }

    /// How the content of the release is made.
    fn content(
        &self,
        skip_schema: bool,
    ) -> impl Fn(ReleaseInfo, Chart, Table) -> BoxFuture<'static, Result<Content, ContentFailed>>
    + Send
    + Sync
    + use<> {
        let gates = &self.settings.gates;
        let maker = Maker {
            cluster: Arc::clone(&self.cluster),
            clock: Arc::clone(&self.clock),
            dns: gates.enabled("AllowDNSLookups"),
            skip_schema,
            offline: self.settings.offline,
            capabilities: None,
        };
        let object = Arc::clone(&self.object);
        let strategy = changes::strategy(spec::post_render_strategy(&object, gates));
        maker.make(move |files| {
            let mut run = |text: &str| changes::run(&object, text);
            post_render(&files, strategy, SplitRule::default(), &mut run)
                .map_err(|error| ContentFailed(error.to_string()))
        })
    }
}

/// The last lines of a log, equal ones counted.
#[derive(Default)]
struct LogBuffer(Mutex<Vec<(String, String, usize)>>);

impl LogBuffer {
    fn append(&self, time: String, line: String) {
        let mut lines = self.0.lock();
        if let Some(last) = lines.last_mut()
            && last.1 == line
        {
            last.2 += 1;
            return;
        }
        if lines.len() == LOG_LINES_MAX {
            lines.remove(0);
        }
        lines.push((time, line, 0));
    }

    fn text(&self) -> String {
        let mut text = Vec::new();
        for (time, line, repeated) in self.0.lock().iter() {
            text.push(format!("{time}: {line}"));
            if *repeated > 1 {
                text.push(format!("{time}: {line} ({} duplicate lines omitted)", repeated - 1));
            } else if *repeated == 1 {
                text.push(format!("{time}: {line}"));
            }
        }
        text.join("\n")
    }
}
