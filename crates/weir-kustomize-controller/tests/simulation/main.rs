//! The whole controller on the embedded API server in paused time, with everything going wrong that a seed says, and
//! judges that know the rules and not the code.
//!
//! The normal test run plays a few seeds. `cargo xtask sim --seed N` plays one, `--seeds FROM..TO` many.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod checks;
mod events;
mod fleet;
mod scenario;
mod world;

use std::ops::Range;
use std::time::Duration;

/// The seeds of the normal test run.
const SEEDS: Range<u64> = 0..6;

/// The seeds that the environment asks for.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("WEIR_SIM_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("WEIR_SIM_SEEDS is FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn the_rules_hold_whatever_goes_wrong() {
    if std::env::var_os("WEIR_SIM_LOG").is_some() {
        weir_runtime::logs::init(
            weir_runtime::logs::level_from_flag("debug"),
            weir_runtime::logs::Encoding::from_flag("console"),
        );
    }
    let seeds = seeds();
    let mut failed = Vec::new();
    let (mut actions, mut deaths, mut writes, mut slowest) = (0, 0, 0, Duration::ZERO);
    for seed in seeds.clone() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        match runtime.block_on(scenario::run(seed)) {
            Ok(summary) => {
                actions += summary.actions;
                deaths += summary.deaths;
                writes += summary.writes;
                slowest = slowest.max(summary.converged_after);
            }
            Err(error) => {
                println!("seed {seed}: {error}\nto repeat it: cargo xtask sim --seed {seed}");
                failed.push(seed);
            }
        }
    }
    println!(
        "{} seeds: {actions} actions, {deaths} deaths of processes, {writes} writes, converged after at most {slowest:?}",
        seeds.count()
    );
    assert!(failed.is_empty(), "rules were broken by the seeds {failed:?}");
}
