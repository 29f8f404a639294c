//! Repository automation: `cargo xtask <command>`.

mod codegen;
mod crd_compat;
mod kustomize;
mod reference;
mod tidy;

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Repository automation for Weir")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the files that are made from the code.
    Codegen {
        /// Only check that they are up to date.
        #[arg(long)]
        check: bool,
    },
    /// Compares our CustomResourceDefinitions with those in a directory.
    CrdCompat {
        /// Directory with YAML files.
        directory: PathBuf,
    },
    /// Checks the rules of the repository that no other tool checks.
    Tidy,
    /// Checks the recorded answers of the references, or records them anew.
    Golden {
        /// Records instead of checking.
        #[arg(long)]
        record: bool,
    },
    /// Plays a controller on the embedded API server while everything goes wrong that a seed says.
    Sim {
        /// The seed to play, with a log of what the controller does.
        #[arg(long, conflicts_with = "seeds")]
        seed: Option<u64>,
        /// Seeds to play, as FROM..TO.
        #[arg(long, value_name = "FROM..TO", default_value = "0..100")]
        seeds: String,
    },
    /// The kustomize engine against the reference.
    #[command(subcommand)]
    Kustomize(kustomize::Kustomize),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Codegen { check } => codegen::run(&root(), check),
        Command::CrdCompat { directory } => crd_compat::run(&directory),
        Command::Tidy => tidy::run(&root()),
        Command::Golden { record } => kustomize::golden(&root(), record),
        Command::Sim { seed, seeds } => simulate(seed, &seeds),
        Command::Kustomize(command) => kustomize::run(command),
    }
}

/// The simulation is a test of the crate it is about; the seeds reach it through its environment.
fn simulate(seed: Option<u64>, seeds: &str) -> anyhow::Result<()> {
    let mut command = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args([
        "test",
        "--package",
        "weir-kustomize-controller",
        "--test",
        "simulation",
    ]);
    command.args(["--", "--nocapture"]);
    match seed {
        Some(seed) => command
            .env("WEIR_SIM_SEEDS", format!("{seed}..{}", seed.saturating_add(1)))
            .env("WEIR_SIM_LOG", "1"),
        None => command.env("WEIR_SIM_SEEDS", seeds),
    };
    anyhow::ensure!(command.status()?.success(), "the simulation failed");
    Ok(())
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}
