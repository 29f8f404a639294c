//! Deliveries on their way: parallel, and bounded per Provider, so that one that does not answer delays no other.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use tracing::error;
use weir_runtime::ObjectKey;

/// How many deliveries to one Provider are under way at a time.
const RUNNING_MAX: usize = 8;
/// How many wait for that.
const WAITING_MAX: usize = 1000;
/// How many bytes of events wait for one Provider.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// How many bytes of events wait for all Providers together.
const ALL_BYTES_MAX: usize = 64 << 20;
/// How long an event waits; older ones are no news.
const AGE_MAX: Duration = Duration::from_mins(2);
/// How often a Provider that loses events is named in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How long deliveries under way may go on after the process was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Why an event is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Too many others wait for the same Provider, or for all.
    Full,
    /// It waited too long.
    Old,
}

impl Loss {
    /// As metrics name it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Full => "queue_full",
            Self::Old => "too_old",
        }
    }
}

/// One delivery.
pub(crate) struct Delivery {
    /// What is done.
    pub(crate) work: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// About how many bytes it holds.
    pub(crate) bytes: usize,
}

struct Waiting {
    delivery: Delivery,
    since: Instant,
}

#[derive(Default)]
struct Lane {
    running: usize,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    logged: Option<Instant>,
    lost: u64,
}

#[derive(Default)]
struct Lanes {
    by_provider: HashMap<ObjectKey, Lane>,
    bytes: usize,
    waiting: usize,
}

impl Lanes {
    /// One delivery fewer is under way.
    fn leave(&mut self, provider: &ObjectKey) {
        let Some(lane) = self.by_provider.get_mut(provider) else { return };
        lane.running -= 1;
        if lane.running == 0 && lane.waiting.is_empty() {
            self.by_provider.remove(provider);
        }
    }
}

/// Takes deliveries and never blocks. Cloning gives another handle to the same one.
#[derive(Clone)]
pub(crate) struct Outbox {
    lanes: Arc<Mutex<Lanes>>,
    tasks: TaskTracker,
    lost: Arc<dyn Fn(Loss) + Send + Sync>,
}

impl Outbox {
    /// An empty outbox that tells `lost` about every event that is not delivered.
    pub(crate) fn new(lost: impl Fn(Loss) + Send + Sync + 'static) -> Self {
        Self { lanes: Arc::default(), tasks: TaskTracker::new(), lost: Arc::new(lost) }
    }

    /// How many deliveries wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lanes.lock().waiting
    }

    /// Begins a delivery to a Provider, or lets it wait for its turn; drops it if too many wait.
    pub(crate) fn push(&self, provider: &ObjectKey, delivery: Delivery) {
        let mut lanes = self.lanes.lock();
        let all_bytes = lanes.bytes;
        let lane = lanes.by_provider.entry(provider.clone()).or_default();
        if lane.running < RUNNING_MAX {
            lane.running += 1;
            drop(lanes);
            self.tasks.spawn(self.clone().run(provider.clone(), delivery));
            return;
        }
        let bytes = delivery.bytes;
        let fits = lane.waiting.len() < WAITING_MAX
            && lane.bytes + bytes <= WAITING_BYTES_MAX
            && all_bytes + bytes <= ALL_BYTES_MAX;
        if !fits {
            self.lose(provider, lane, Loss::Full);
            return;
        }
        lane.bytes += bytes;
        lane.waiting.push_back(Waiting { delivery, since: Instant::now() });
        lanes.bytes += bytes;
        lanes.waiting += 1;
    }

    fn lose(&self, provider: &ObjectKey, lane: &mut Lane, loss: Loss) {
        (self.lost)(loss);
        lane.lost += 1;
        let now = Instant::now();
        if lane.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_INTERVAL) {
            lane.logged = Some(now);
            error!(
                provider = %provider,
                lost = lane.lost,
                error = "the provider takes events more slowly than they come",
                "dropping notifications"
            );
            lane.lost = 0;
        }
    }

    /// Runs one delivery after the other until none waits for the Provider.
    async fn run(self, provider: ObjectKey, first: Delivery) {
        let mut place = Place { outbox: self.clone(), provider: provider.clone(), is_held: true };
        first.work.await;
        while let Some(next) = self.next(&provider) {
            next.work.await;
        }
        place.is_held = false;
    }

    /// The next delivery; with none, the place is given back in the same moment, so that none is left waiting.
    fn next(&self, provider: &ObjectKey) -> Option<Delivery> {
        let mut lanes = self.lanes.lock();
        let lanes = &mut *lanes;
        let lane = lanes.by_provider.get_mut(provider)?;
        while let Some(waiting) = lane.waiting.pop_front() {
            lane.bytes -= waiting.delivery.bytes;
            lanes.bytes -= waiting.delivery.bytes;
            lanes.waiting -= 1;
            if waiting.since.elapsed() <= AGE_MAX {
                return Some(waiting.delivery);
            }
            self.lose(provider, lane, Loss::Old);
        }
        lanes.leave(provider);
        None
    }

    /// Waits until all deliveries have ended.
    #[cfg(test)]
    pub(crate) async fn settled(&self) {
        while !self.tasks.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// Lets deliveries under way end for a while.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        if timeout(STOP_GRACE, self.tasks.wait()).await.is_err() {
            error!(error = "some deliveries did not end in time", "dropping notifications");
        }
    }
}

/// A place among the deliveries under way, given back also if a delivery panics.
struct Place {
    outbox: Outbox,
    provider: ObjectKey,
    is_held: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_held {
            self.outbox.lanes.lock().leave(&self.provider);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn counted(lost: &Arc<AtomicUsize>) -> Outbox {
        let lost = Arc::clone(lost);
        Outbox::new(move |_| {
            lost.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn delivery(work: impl Future<Output = ()> + Send + 'static) -> Delivery {
        Delivery { work: Box::pin(work), bytes: 100 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_provider_delays_no_other_and_loses_what_does_not_fit() {
        let (lost, delivered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let outbox = counted(&lost);
        let dead = ObjectKey::new("apps", "dead");
        for _ in 0..2000 {
            outbox.push(&dead, delivery(std::future::pending()));
        }
        assert_eq!(lost.load(Ordering::Relaxed), 2000 - RUNNING_MAX - WAITING_MAX);
        assert_eq!(outbox.waiting(), WAITING_MAX);
        let started = Instant::now();
        for number in 0..100 {
            let delivered = Arc::clone(&delivered);
            let work = async move {
                delivered.fetch_add(1, Ordering::Relaxed);
            };
            outbox.push(&ObjectKey::new("apps", format!("live-{number}")), delivery(work));
        }
        while delivered.load(Ordering::Relaxed) < 100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_waited_too_long_are_no_news() {
        let lost = Arc::new(AtomicUsize::new(0));
        let outbox = counted(&lost);
        let slow = ObjectKey::new("apps", "slow");
        for _ in 0..RUNNING_MAX * 3 {
            outbox.push(&slow, delivery(tokio::time::sleep(AGE_MAX + Duration::from_secs(1))));
        }
        outbox.tasks.close();
        outbox.tasks.wait().await;
        assert_eq!(lost.load(Ordering::Relaxed), RUNNING_MAX * 2);
        assert!(outbox.lanes.lock().by_provider.is_empty());
        assert_eq!(outbox.lanes.lock().bytes, 0);
        assert_eq!(outbox.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_that_panics_gives_its_place_back() {
        let outbox = counted(&Arc::default());
        let key = ObjectKey::new("apps", "p");
        let delivered = Arc::new(AtomicUsize::new(0));
        for _ in 0..RUNNING_MAX * 2 {
            outbox.push(&key, delivery(async { panic!("on purpose") }));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let count = Arc::clone(&delivered);
        outbox.push(
            &key,
            delivery(async move {
                count.fetch_add(1, Ordering::Relaxed);
            }),
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(delivered.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_bounded_too() {
        let lost = Arc::new(AtomicUsize::new(0));
        let outbox = counted(&lost);
        let key = ObjectKey::new("apps", "p");
        for _ in 0..RUNNING_MAX + 10 {
            outbox.push(&key, Delivery { work: Box::pin(std::future::pending()), bytes: 2 << 20 });
        }
        assert_eq!(lost.load(Ordering::Relaxed), 6);
    }
}
