//! Waiting for conditions with a deadline.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long a condition may take to come true, unless a scenario says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(90);

const PAUSE: Duration = Duration::from_millis(100);

/// Calls `check` until it gives a value, and returns that.
///
/// # Errors
/// After `deadline`, with what the last call said was missing.
pub async fn eventually<T, F, Fut>(deadline: Duration, what: &str, mut check: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let start = Instant::now();
    loop {
        match check().await {
            Ok(value) => return Ok(value),
            Err(missing) if start.elapsed() > deadline => {
                bail!("not within {deadline:?}: {what}: {missing:#}");
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Calls `check` for the whole of `period`; every call must succeed.
///
/// # Errors
/// The first error of `check`, and when it came.
pub async fn holds<F, Fut>(period: Duration, what: &str, mut check: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let start = Instant::now();
    while start.elapsed() < period {
        if let Err(error) = check().await {
            bail!("did not hold for {period:?} but ended after {:?}: {what}: {error:#}", start.elapsed());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
