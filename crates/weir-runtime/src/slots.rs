//! The `--concurrent` workers of a kind.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// How many runs of a kind may wait without a worker at the same time; more wait with theirs.
const PARKED_MAX: usize = 4096;

/// A fixed number of workers, and the runs that wait without one.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    workers: Arc<Semaphore>,
    parked: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Slots {
    /// `stop` ends the runs that wait without a worker.
    pub(crate) fn new(workers: usize, stop: CancellationToken) -> Self {
        Self {
            workers: Arc::new(Semaphore::new(workers.max(1))),
            parked: Arc::new(Semaphore::new(PARKED_MAX)),
            stop,
        }
    }

    /// Waits for a free worker.
    pub(crate) async fn acquire(&self) -> Slot {
        let permit = Arc::clone(&self.workers).acquire_owned().await.ok();
        Slot {
            slots: self.clone(),
            permit: parking_lot::Mutex::new(permit),
            aborted: CancellationToken::new(),
        }
    }
}

/// A worker held by one run.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    permit: parking_lot::Mutex<Option<OwnedSemaphorePermit>>,
    aborted: CancellationToken,
}

impl Slot {
    /// Completes when the run must be dropped because it waits during shutdown.
    pub(crate) async fn aborted(&self) {
        self.aborted.cancelled().await;
    }

    pub(crate) async fn without_worker<T>(&self, future: impl Future<Output = T> + Send) -> T {
        let waiting = async {
            let Ok(_parked) = self.slots.parked.try_acquire() else {
                return future.await;
            };
            // Nested or concurrent calls find the worker already given back.
            let permit = self.permit.lock().take();
            let held = permit.is_some();
            drop(permit);
            let result = future.await;
            if held {
                let permit = Arc::clone(&self.slots.workers).acquire_owned().await.ok();
                *self.permit.lock() = permit;
            }
            result
        };
        tokio::select! {
            biased;
            () = self.slots.stop.cancelled() => {
                self.aborted.cancel();
                std::future::pending().await
            }
            result = waiting => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn a_waiting_run_lets_others_work() {
        let slots = Slots::new(1, CancellationToken::new());
        let waiting = slots.acquire().await;
        let started = Instant::now();
        let other = async {
            let slot = slots.acquire().await;
            let acquired_after = started.elapsed();
            sleep(Duration::from_secs(30)).await;
            drop(slot);
            acquired_after
        };
        let waiter = async {
            waiting.without_worker(sleep(Duration::from_secs(10))).await;
            started.elapsed()
        };
        let (resumed_after, acquired_after) = tokio::join!(waiter, other);
        assert_eq!(acquired_after, Duration::ZERO);
        // The wait was over after ten seconds, but the one worker was busy until thirty.
        assert_eq!(resumed_after, Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_ends_a_wait() {
        let stop = CancellationToken::new();
        let slots = Slots::new(1, stop.clone());
        let slot = slots.acquire().await;
        let wait = slot.without_worker(sleep(Duration::from_hours(1)));
        tokio::select! {
            () = wait => panic!("the wait must not return"),
            () = slot.aborted() => {}
            () = async { sleep(Duration::from_secs(1)).await; stop.cancel(); std::future::pending().await } => {}
        }
    }
}
