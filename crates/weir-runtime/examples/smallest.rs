//! The smallest controller: every Kustomization becomes ready. Shows the wiring of a program, and
//! serves to try the runtime against a real API server:
//!
//! ```console
//! $ RUNTIME_NAMESPACE=demo cargo run -p weir-runtime --example smallest -- \
//!     --watch-all-namespaces=false --enable-leader-election --metrics-addr=:18080 --health-addr=:19440
//! ```

use std::borrow::Cow;
use std::convert::Infallible;
use std::process::ExitCode;

use clap::Parser;
use weir_api::FluxObject as _;
use weir_api::condition::{self, Stamp};
use weir_api::kustomize::Kustomization;
use weir_runtime::{
    Class, Classify, Conclusion, Ended, Notice, Pass, Program, Reconciler, Requeue, Run, Severity, flags,
};

const PROGRAM: Program = Program {
    name: "smallest-controller",
    version: env!("CARGO_PKG_VERSION"),
    field_manager: "smallest-controller",
    concurrent: None,
    environment: &[],
    feature_gates: &[],
};

#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: flags::Common,
    #[command(flatten)]
    sharding: flags::Sharding,
    #[command(flatten)]
    jitter: flags::Jitter,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot happen")]
struct Never(Infallible);

impl Classify for Never {
    fn class(&self) -> Class {
        match self.0 {}
    }

    fn reason(&self) -> Cow<'_, str> {
        match self.0 {}
    }
}

struct Smallest;

impl Reconciler for Smallest {
    type Object = Kustomization;
    type Done = ();
    type Error = Never;

    async fn reconcile(&self, _: &Run<Kustomization>, _: &Kustomization) -> Result<(), Never> {
        Ok(())
    }

    async fn finalize(&self, _: &Run<Kustomization>, _: &Kustomization) -> Result<(), Never> {
        Ok(())
    }

    fn conclude(&self, object: &mut Kustomization, pass: Pass<'_, (), Never>, ended: Ended) -> Conclusion {
        if !matches!(pass, Pass::Reconciled(Ok(()))) {
            return Conclusion::default();
        }
        let interval = object.spec.interval;
        let stamp = Stamp { generation: object.generation(), now: ended.now.into() };
        condition::mark_true(object.conditions_mut(), "Ready", "ReconciliationSucceeded", "Seen", stamp);
        object.set_observed_generation(stamp.generation);
        let message = format!("Reconciliation finished, next run in {interval}");
        Conclusion {
            requeue: Requeue::Interval(interval.to_std()),
            notices: vec![Notice::new(Severity::Info, "ReconciliationSucceeded", message)],
        }
    }
}

fn main() -> ExitCode {
    let args: Args = flags::parse(&PROGRAM);
    weir_runtime::run(
        &PROGRAM,
        &args.common,
        |settings| settings.with_sharding(&args.sharding).with_jitter(&args.jitter),
        async |runtime| {
            let store = runtime.watch_primary::<Kustomization>();
            runtime.controller(&store, Smallest, |_| {});
            Ok(())
        },
    )
}
