//! The sub-commands, one file each.

pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod debug;
pub(crate) mod delete;
pub(crate) mod dev;
pub(crate) mod diff;
pub(crate) mod envsubst;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod get;
pub(crate) mod helm;
pub(crate) mod kustomize;
pub(crate) mod logs;
pub(crate) mod reconcile;
pub(crate) mod resume;
pub(crate) mod simulate;
pub(crate) mod stats;
pub(crate) mod suspend;
mod target;
pub(crate) mod trace;
pub(crate) mod tree;
pub(crate) mod version;

use crate::arguments::{Arguments, Command};
use crate::connection::Connection;
use crate::error::Error;

/// Runs the sub-command.
///
/// Commands that work offline are matched first, so that they need no kubeconfig.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Error> {
    let global = &arguments.global;
    match arguments.command {
        Command::Kustomize(arguments) => kustomize::run(&arguments).await,
        Command::Build(arguments) => build::run(global, &arguments).await,
        Command::Diff(arguments) => Box::pin(diff::run(global, &arguments)).await,
        Command::Helm(arguments) => helm::run(global, &arguments),
        Command::Dev(arguments) => Box::pin(dev::run(global, arguments)).await,
        Command::Simulate(arguments) => simulate::run(global, &arguments),
        Command::Envsubst(arguments) => envsubst::run(&arguments),
        Command::Version(arguments) => version::run(global, &arguments).await,
        Command::Check(arguments) => check::run(&Connection::new(global).await?, &arguments).await,
        Command::Get(arguments) => get::run(&Connection::new(global).await?, &arguments).await,
        Command::Reconcile(arguments) => reconcile::run(&Connection::new(global).await?, arguments).await,
        Command::Suspend(arguments) => suspend::run(&Connection::new(global).await?, arguments).await,
        Command::Resume(arguments) => resume::run(&Connection::new(global).await?, arguments).await,
        Command::Delete(arguments) => delete::run(&Connection::new(global).await?, arguments).await,
        Command::Trace(arguments) => trace::run(&Connection::new(global).await?, &arguments).await,
        Command::Debug(arguments) => debug::run(&Connection::new(global).await?, &arguments).await,
        Command::Logs(arguments) => logs::run(&Connection::new(global).await?, &arguments).await,
        Command::Tree(arguments) => tree::run(&Connection::new(global).await?, &arguments).await,
        Command::Events(arguments) => events::run(&Connection::new(global).await?, &arguments).await,
        Command::Stats(arguments) => stats::run(&Connection::new(global).await?, &arguments).await,
        Command::Export(arguments) => export::run(&Connection::new(global).await?, arguments).await,
    }
}
