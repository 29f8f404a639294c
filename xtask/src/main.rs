//! Repository automation: `cargo xtask <command>`.

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
    /// Checks the rules of the repository that no other tool checks.
    Tidy,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Tidy => tidy::run(&root()),
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}
