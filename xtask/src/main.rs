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
        Command::Kustomize(command) => kustomize::run(command),
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}
