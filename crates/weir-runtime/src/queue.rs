//! Which object runs next. No IO and no clock of its own: time comes in, so tests set it.
//!
//! # Guarantees
//! - An object is handed out at most once until it is given back with [`Queue::done`].
//! - Requests for the same object are merged: the earliest time and the highest priority win. A
//!   request for an object that is running makes it run once more afterwards.
//! - Among objects that are due, the higher priority goes first, then the one that waited longest;
//!   every [`FAIRNESS`]th pick goes to the longest waiting of any priority, so nothing starves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::{ObjectKey, Trigger};

/// One pick in this many ignores priorities.
const FAIRNESS: u64 = 8;

/// How urgent a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Work nobody waits for: the first list, the interval.
    Periodic,
    /// A retry or a wait that is over.
    Retry,
    /// Something the object depends on has changed, such as a new revision.
    Event,
    /// The user changed the object or asked for a run.
    User,
}

impl Priority {
    const ALL: [Self; 4] = [Self::Periodic, Self::Retry, Self::Event, Self::User];
}

#[derive(Debug, Clone, Copy)]
struct Planned {
    at: Instant,
    priority: Priority,
}

impl Planned {
    fn merge(self, other: Self) -> Self {
        Self { at: self.at.min(other.at), priority: self.priority.max(other.priority) }
    }
}

#[derive(Debug)]
enum State {
    /// Not due before a time.
    Delayed(Planned),
    /// Due; `since` orders it.
    Due { priority: Priority, since: (Instant, u64) },
    /// Handed out; `again` was asked for meanwhile.
    Running { started: Instant, again: Option<Planned>, notify: tokio::sync::watch::Sender<Option<Trigger>> },
}

/// An object handed out to run.
#[derive(Debug)]
pub(crate) struct Picked {
    pub(crate) key: ObjectKey,
    /// How long it was due.
    pub(crate) waited: Duration,
    /// Filled when the object is asked for again during the run.
    pub(crate) requeued: tokio::sync::watch::Receiver<Option<Trigger>>,
}

/// What happens to an object after its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until it is asked for.
    Idle,
    /// It is due after this time; resets the failures.
    After(Duration, Priority),
    /// It is due after its back-off; one more failure.
    Backoff,
    /// It is due now; keeps the failures.
    Now,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Queue {
    states: HashMap<ObjectKey, State>,
    failures: HashMap<ObjectKey, u32>,
    delayed: BTreeSet<(Instant, ObjectKey)>,
    due: BTreeMap<Priority, BTreeMap<(Instant, u64), ObjectKey>>,
    sequence: u64,
    picks: u64,
    retry_delay_min: Duration,
    retry_delay_max: Duration,
    /// How many requests were made and how many of them were retries, for the metrics.
    pub(crate) adds: u64,
    pub(crate) retries: u64,
}

impl Queue {
    pub(crate) fn new(retry_delay_min: Duration, retry_delay_max: Duration) -> Self {
        Self {
            states: HashMap::new(),
            failures: HashMap::new(),
            delayed: BTreeSet::new(),
            due: Priority::ALL.into_iter().map(|priority| (priority, BTreeMap::new())).collect(),
            sequence: 0,
            picks: 0,
            retry_delay_min,
            retry_delay_max,
            adds: 0,
            retries: 0,
        }
    }

    /// Asks for a run of `key` now.
    pub(crate) fn add(&mut self, key: &ObjectKey, priority: Priority, trigger: &Trigger, now: Instant) {
        self.plan(key, Planned { at: now, priority }, Some(trigger), now);
    }

    fn plan(&mut self, key: &ObjectKey, planned: Planned, trigger: Option<&Trigger>, now: Instant) {
        self.adds += 1;
        let merged = match self.states.get_mut(key) {
            Some(State::Running { again, notify, .. }) => {
                *again = Some(again.map_or(planned, |before| before.merge(planned)));
                if let Some(trigger) = trigger {
                    notify.send_if_modified(|held| {
                        let first = held.is_none();
                        if first {
                            *held = Some(trigger.clone());
                        }
                        first
                    });
                }
                return;
            }
            Some(State::Due { priority, .. }) if *priority >= planned.priority => return,
            Some(State::Due { priority, since }) => {
                // Keeps its place in time, moves up in priority.
                let (before, since) = (*priority, *since);
                self.due.entry(before).or_default().remove(&since);
                self.due.entry(planned.priority).or_default().insert(since, key.clone());
                self.states.insert(key.clone(), State::Due { priority: planned.priority, since });
                return;
            }
            Some(State::Delayed(before)) => {
                let before = *before;
                self.delayed.remove(&(before.at, key.clone()));
                // A request that makes it due brings its own priority; the delayed one was not due.
                if planned.at <= now { planned } else { before.merge(planned) }
            }
            None => planned,
        };
        if merged.at <= now {
            self.make_due(key.clone(), merged.priority, now);
        } else {
            self.delayed.insert((merged.at, key.clone()));
            self.states.insert(key.clone(), State::Delayed(merged));
        }
    }

    fn make_due(&mut self, key: ObjectKey, priority: Priority, since: Instant) {
        self.sequence += 1;
        let since = (since, self.sequence);
        self.due.entry(priority).or_default().insert(since, key.clone());
        self.states.insert(key, State::Due { priority, since });
    }

    /// The next object to run, if one is due.
    pub(crate) fn pick(&mut self, now: Instant) -> Option<Picked> {
        while let Some((at, key)) = self.delayed.first()
            && *at <= now
        {
            let (at, key) = (*at, key.clone());
            self.delayed.remove(&(at, key.clone()));
            if let Some(State::Delayed(planned)) = self.states.get(&key) {
                let priority = planned.priority;
                self.make_due(key, priority, at);
            }
        }
        let oldest_first = (self.picks + 1).is_multiple_of(FAIRNESS);
        let (priority, since) = if oldest_first {
            self.due
                .iter()
                .filter_map(|(priority, waiting)| Some((*priority, *waiting.first_key_value()?.0)))
                .min_by_key(|(_, since)| *since)?
        } else {
            self.due
                .iter()
                .rev()
                .find_map(|(priority, waiting)| Some((*priority, *waiting.first_key_value()?.0)))?
        };
        let key = self.due.get_mut(&priority)?.remove(&since)?;
        self.picks += 1;
        let (notify, requeued) = tokio::sync::watch::channel(None);
        self.states.insert(key.clone(), State::Running { started: now, again: None, notify });
        Some(Picked { key, waited: now.saturating_duration_since(since.0), requeued })
    }

    /// Gives an object back after its run.
    pub(crate) fn done(&mut self, key: &ObjectKey, next: Next, now: Instant) {
        let Some(State::Running { again, .. }) = self.states.remove(key) else {
            return;
        };
        let planned = match next {
            Next::Idle => {
                self.failures.remove(key);
                None
            }
            Next::After(time, priority) => {
                self.failures.remove(key);
                Some(Planned { at: now + time, priority })
            }
            Next::Backoff => {
                self.retries += 1;
                Some(Planned { at: now + self.next_backoff(key), priority: Priority::Retry })
            }
            Next::Now => Some(Planned { at: now, priority: Priority::Event }),
        };
        for request in [planned, again].into_iter().flatten() {
            self.plan(key, request, None, now);
        }
    }

    fn next_backoff(&mut self, key: &ObjectKey) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let delay = 2_u32
            .checked_pow(*failures)
            .and_then(|factor| self.retry_delay_min.checked_mul(factor))
            .map_or(self.retry_delay_max, |delay| delay.min(self.retry_delay_max));
        *failures = failures.saturating_add(1);
        delay
    }

    /// Forgets an object that no longer exists; a run that goes on is not disturbed.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.failures.remove(key);
        match self.states.get_mut(key) {
            Some(State::Running { again, .. }) => *again = None,
            Some(State::Delayed(planned)) => {
                let at = planned.at;
                self.delayed.remove(&(at, key.clone()));
                self.states.remove(key);
            }
            Some(State::Due { priority, since }) => {
                let (priority, since) = (*priority, *since);
                self.due.entry(priority).or_default().remove(&since);
                self.states.remove(key);
            }
            None => {}
        }
    }

    /// When the next delayed object becomes due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// How many objects are due, by priority.
    pub(crate) fn depth(&self) -> impl Iterator<Item = (Priority, usize)> + '_ {
        self.due.iter().map(|(priority, waiting)| (*priority, waiting.len()))
    }

    /// Whether an object is running, due, or will be due.
    #[cfg(test)]
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        self.states.contains_key(key)
    }

    /// Since when each running object runs.
    pub(crate) fn running(&self) -> impl Iterator<Item = Instant> + '_ {
        self.states.values().filter_map(|state| match state {
            State::Running { started, .. } => Some(*started),
            State::Delayed(_) | State::Due { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("apps", name)
    }

    fn trigger(name: &str) -> Trigger {
        Trigger { kind: "GitRepository".to_owned(), key: key(name) }
    }

    fn queue() -> (Queue, Instant) {
        (Queue::new(Duration::from_millis(750), Duration::from_mins(15)), Instant::now())
    }

    impl Queue {
        fn ask(&mut self, name: &str, priority: Priority, now: Instant) {
            self.add(&key(name), priority, &trigger("infra"), now);
        }

        fn names(&mut self, now: Instant) -> Vec<String> {
            std::iter::from_fn(|| Some(self.pick(now)?.key.name().to_owned())).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn user_requests_go_before_events_and_periodic_work() {
        let (mut queue, now) = queue();
        queue.ask("periodic", Priority::Periodic, now);
        queue.ask("retry", Priority::Retry, now);
        queue.ask("event", Priority::Event, now);
        queue.ask("user", Priority::User, now);
        assert_eq!(queue.names(now), ["user", "event", "retry", "periodic"]);
    }

    #[tokio::test(start_paused = true)]
    async fn periodic_work_does_not_starve() {
        let (mut queue, now) = queue();
        queue.ask("old", Priority::Periodic, now);
        for number in 0..20 {
            queue.ask(&format!("user-{number:02}"), Priority::User, now);
        }
        assert_eq!(queue.names(now).iter().position(|name| name == "old"), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_for_one_object_merge_and_move_up() {
        let (mut queue, now) = queue();
        queue.ask("a", Priority::Periodic, now);
        queue.ask("b", Priority::Event, now);
        queue.ask("a", Priority::User, now);
        queue.ask("a", Priority::Periodic, now);
        assert_eq!(queue.names(now), ["a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_never_runs_twice_at_once() {
        let (mut queue, now) = queue();
        queue.ask("a", Priority::User, now);
        let picked = queue.pick(now).unwrap();
        queue.add(&key("a"), Priority::Event, &trigger("first"), now);
        queue.add(&key("a"), Priority::Event, &trigger("second"), now);
        assert!(queue.pick(now).is_none());
        assert_eq!(*picked.requeued.borrow(), Some(trigger("first")));
        queue.done(&key("a"), Next::After(Duration::from_mins(10), Priority::Periodic), now);
        assert_eq!(queue.names(now), ["a"]);
        queue.done(&key("a"), Next::Idle, now);
        assert!(!queue.contains(&key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn back_off_doubles_up_to_the_limit_and_is_reset_by_success() {
        let (mut queue, mut now) = queue();
        queue.ask("a", Priority::User, now);
        let mut waits = Vec::new();
        for _ in 0..13 {
            assert!(queue.pick(now).is_some());
            queue.done(&key("a"), Next::Backoff, now);
            let due = queue.next_due().unwrap();
            waits.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(
            waits,
            [750, 1500, 3000, 6000, 12000, 24000, 48000, 96000, 192_000, 384_000, 768_000, 900_000, 900_000]
        );
        assert!(queue.pick(now).is_some());
        queue.done(&key("a"), Next::After(Duration::from_mins(1), Priority::Periodic), now);
        now += Duration::from_mins(1);
        assert!(queue.pick(now).is_some());
        queue.done(&key("a"), Next::Backoff, now);
        assert_eq!(queue.next_due(), Some(now + Duration::from_millis(750)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_does_not_wait_for_the_back_off() {
        let (mut queue, now) = queue();
        queue.ask("a", Priority::Event, now);
        queue.pick(now).unwrap();
        queue.done(&key("a"), Next::Backoff, now);
        assert!(queue.pick(now).is_none());
        queue.ask("a", Priority::User, now);
        assert_eq!(queue.names(now), ["a"]);
        assert_eq!(queue.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_object_does_not_come_back() {
        let (mut queue, now) = queue();
        for name in ["delayed", "due", "running"] {
            queue.ask(name, Priority::User, now);
        }
        let order = [queue.pick(now).unwrap().key, queue.pick(now).unwrap().key];
        assert_eq!(order, [key("delayed"), key("due")]);
        queue.done(&key("delayed"), Next::Backoff, now);
        queue.done(&key("due"), Next::Now, now);
        assert_eq!(queue.pick(now).unwrap().key, key("running"));
        queue.ask("running", Priority::User, now);
        for name in ["delayed", "due", "running"] {
            queue.forget(&key(name));
        }
        queue.done(&key("running"), Next::Idle, now);
        assert!(queue.names(now + Duration::from_hours(1)).is_empty());
    }

    proptest::proptest! {
        /// Whatever is asked and given back in whatever order: no object is out twice, and none that
        /// was asked for is lost.
        #[test]
        fn nothing_is_lost_and_nothing_runs_twice(steps in proptest::collection::vec((0_u8..5, 0_u8..6, 0_u64..2000), 1..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _guard = runtime.enter();
            let (mut queue, mut now) = queue();
            let mut running = BTreeSet::new();
            let mut wanted = BTreeSet::new();
            for (action, object, millis) in steps {
                let name = format!("o{object}");
                match action {
                    0 | 1 => {
                        let priority = Priority::ALL[usize::from(object) % 4];
                        queue.ask(&name, priority, now);
                        wanted.insert(name);
                    }
                    2 => {
                        if let Some(picked) = queue.pick(now) {
                            wanted.remove(picked.key.name());
                            assert!(running.insert(picked.key.name().to_owned()), "handed out twice");
                        }
                    }
                    3 => {
                        if running.remove(&name) {
                            queue.done(&key(&name), [Next::Idle, Next::Backoff, Next::Now][(millis % 3) as usize], now);
                        }
                    }
                    _ => now += Duration::from_millis(millis),
                }
            }
            for name in running {
                queue.done(&key(&name), Next::Idle, now);
            }
            let left: BTreeSet<String> = queue.names(now).into_iter().collect();
            assert!(wanted.is_subset(&left), "{wanted:?} was asked for, {left:?} came");
        }
    }
}
