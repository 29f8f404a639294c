//! What is known of managed objects, and what follows from what watches see of them. No IO; time
//! comes in.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;
use weir_apply::object::ObjectRef;
use weir_runtime::ObjectKey;

/// The first pause before drift is undone again; it doubles while the drift comes back.
const FIGHT_DELAY_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const FIGHT_DELAY_MAX: Duration = Duration::from_mins(10);
/// Drift that comes back after this long is no fight.
const FIGHT_OVER_AFTER: Duration = Duration::from_mins(1);
/// Of how many objects that nobody has recorded it is remembered what was seen.
const UNCLAIMED_MAX: usize = 10_000;
/// From how many rounds on people are told.
pub(super) const FIGHT_TOLD_FROM: u32 = 3;

pub(super) use weir_apply::apply::{Identity, identity};

/// What is known of a managed object.
#[derive(Debug, Clone)]
struct Tracked {
    owner: ObjectKey,
    fingerprint: u64,
    version: Option<u64>,
    /// A run has been asked for since the object was applied.
    marked: bool,
}

/// What a watch has seen of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// `None`: it is gone.
    pub(super) fingerprint: Option<u64>,
    pub(super) version: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Fight {
    rounds: u32,
    last: Instant,
}

/// A run after which everything was as it should be.
#[derive(Debug)]
struct Settled {
    /// What was applied: generation and artifact.
    key: String,
    at: Instant,
    /// What the health of the owner depends on, in the versions in which it was ready.
    targets: Vec<Healthy>,
}

/// An object that was ready, and its version then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Healthy {
    pub(super) object: ObjectRef,
    pub(super) version: Option<u64>,
}

/// What need not be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Untouched {
    /// The objects that are as they were.
    pub(super) objects: HashSet<Identity>,
    /// Those of them that were ready, and have not changed at all since.
    pub(super) healthy: Vec<Healthy>,
    /// When everything was compared.
    pub(super) since: Instant,
}

/// Compares what watches see with what was applied.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    objects: HashMap<Identity, Tracked>,
    owned: HashMap<ObjectKey, HashSet<Identity>>,
    /// Owners that are being applied, and what was seen of their objects meanwhile.
    running: HashMap<ObjectKey, HashMap<Identity, Seen>>,
    /// What was seen, while somebody was applied, of objects that nobody has recorded: perhaps one of them is applied
    /// for the first time, or changes hands.
    unclaimed: HashMap<Identity, Seen>,
    fights: HashMap<Identity, Fight>,
    settled: HashMap<ObjectKey, Settled>,
    /// Owners that wait for a definition, by its API group.
    awaited: HashMap<String, HashSet<ObjectKey>>,
}

/// An owner that has to run, and when.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Drifted {
    pub(super) owner: ObjectKey,
    pub(super) object: Identity,
    pub(super) delay: Duration,
    /// How often it was undone before in this fight.
    pub(super) rounds: u32,
}

impl Tracker {
    pub(super) fn begin(&mut self, owner: &ObjectKey) {
        self.running.entry(owner.clone()).or_default();
        self.settled.remove(owner);
    }

    /// Everything was as it should be, and is until something drifts.
    pub(super) fn settle(&mut self, owner: &ObjectKey, key: String, targets: Vec<Healthy>, now: Instant) {
        self.settled.insert(owner.clone(), Settled { key, at: now, targets });
    }

    /// Objects of a settled owner were found ready again.
    pub(super) fn still_healthy(&mut self, owner: &ObjectKey, healthy: Vec<Healthy>) {
        let Some(settled) = self.settled.get_mut(owner) else { return };
        for healthy in healthy {
            if let Some(known) = settled.targets.iter_mut().find(|known| known.object == healthy.object) {
                known.version = healthy.version;
            }
        }
    }

    /// The objects whose health has to be looked at of a settled owner, which are those that changed since they
    /// were ready; `None` if everything has to be looked at: after `age_max`, with another key, when something
    /// drifted, or when a kind is not watched.
    pub(super) fn settled(
        &self,
        owner: &ObjectKey,
        key: &str,
        age_max: Duration,
        now: Instant,
        is_watched: impl Fn(&str, &str) -> bool,
    ) -> Option<Vec<ObjectRef>> {
        let settled = self.settled.get(owner)?;
        let owned = self.owned.get(owner)?;
        let quiet = owned.iter().all(|identity| self.is_untouched(owner, identity, &is_watched));
        if !quiet || settled.key != key || now.duration_since(settled.at) >= age_max {
            return None;
        }
        let changed = |target: &&Healthy| {
            let tracked = self.objects.get(&identity(&target.object));
            target.version.is_none() || tracked.is_none_or(|tracked| tracked.version != target.version)
        };
        Some(settled.targets.iter().filter(changed).map(|target| target.object.clone()).collect())
    }

    /// What of an owner need not be looked at, because nobody has touched it since everything was compared; `None`
    /// under the conditions under which [`Tracker::settled`] gives nothing, but for drift.
    pub(super) fn untouched(
        &self,
        owner: &ObjectKey,
        key: &str,
        age_max: Duration,
        now: Instant,
        is_watched: impl Fn(&str, &str) -> bool,
    ) -> Option<Untouched> {
        let settled = self.settled.get(owner)?;
        if settled.key != key || now.duration_since(settled.at) >= age_max {
            return None;
        }
        let is_untouched = |identity: &&Identity| self.is_untouched(owner, identity, &is_watched);
        let objects: HashSet<Identity> =
            self.owned.get(owner)?.iter().filter(is_untouched).cloned().collect();
        let is_healthy = |target: &&Healthy| {
            let identity = identity(&target.object);
            let tracked = self.objects.get(&identity).filter(|_| objects.contains(&identity));
            target.version.is_some() && tracked.is_some_and(|tracked| tracked.version == target.version)
        };
        let healthy = settled.targets.iter().filter(is_healthy).cloned().collect();
        Some(Untouched { objects, healthy, since: settled.at })
    }

    /// Whether an object is watched and still as its owner applied it.
    fn is_untouched(
        &self,
        owner: &ObjectKey,
        identity: &Identity,
        is_watched: &impl Fn(&str, &str) -> bool,
    ) -> bool {
        let is_ours = |tracked: &Tracked| tracked.owner == *owner && !tracked.marked;
        is_watched(&identity.0, &identity.1) && self.objects.get(identity).is_some_and(is_ours)
    }

    /// An owner waits until a kind of this API group is defined.
    pub(super) fn await_group(&mut self, owner: &ObjectKey, group: &str) {
        self.awaited.entry(group.to_owned()).or_default().insert(owner.clone());
    }

    /// The owners that wait for this API group; they are told once.
    pub(super) fn take_awaiting(&mut self, group: &str) -> HashSet<ObjectKey> {
        self.awaited.remove(group).unwrap_or_default()
    }

    /// Takes in what was applied; `complete` if that, and the `untouched` rest, is everything the owner has.
    pub(super) fn record(
        &mut self,
        owner: &ObjectKey,
        applied: impl IntoIterator<Item = (Identity, Seen)>,
        untouched: impl IntoIterator<Item = Identity>,
        complete: bool,
    ) {
        let mut listed: HashSet<Identity> = untouched.into_iter().collect();
        for (identity, seen) in applied {
            listed.insert(identity.clone());
            let Some(fingerprint) = seen.fingerprint else { continue };
            let tracked = Tracked { owner: owner.clone(), fingerprint, version: seen.version, marked: false };
            if let (Some(missed), Some(pending)) =
                (self.unclaimed.remove(&identity), self.running.get_mut(owner))
            {
                pending.entry(identity.clone()).or_insert(missed);
            }
            self.objects.insert(identity, tracked);
        }
        let owned = self.owned.entry(owner.clone()).or_default();
        if complete {
            for gone in owned.difference(&listed) {
                if self.objects.get(gone).is_some_and(|tracked| tracked.owner == *owner) {
                    self.objects.remove(gone);
                    self.fights.remove(gone);
                }
            }
            *owned = listed;
        } else {
            owned.extend(listed);
        }
    }

    /// The run is over: looks at what was seen meanwhile.
    pub(super) fn end(&mut self, owner: &ObjectKey, now: Instant) -> Option<Drifted> {
        let pending = self.running.remove(owner)?;
        if self.running.is_empty() {
            self.unclaimed.clear();
        }
        let mut first = None;
        for (identity, seen) in pending {
            // All of them are marked, though one is enough to make the owner run: a run touches what is marked alone.
            let drifted = self.see(&identity, seen, now);
            first = first.or(drifted);
        }
        first
    }

    /// Takes in what a watch saw.
    pub(super) fn see(&mut self, identity: &Identity, seen: Seen, now: Instant) -> Option<Drifted> {
        let Some(tracked) = self.objects.get_mut(identity) else {
            if !self.running.is_empty() && self.unclaimed.len() < UNCLAIMED_MAX {
                self.unclaimed.insert(identity.clone(), seen);
            }
            return None;
        };
        if let Some(pending) = self.running.get_mut(&tracked.owner) {
            pending.insert(identity.clone(), seen);
            return None;
        }
        if tracked.marked {
            return None;
        }
        let is_old = matches!((seen.version, tracked.version), (Some(seen), Some(known)) if seen <= known);
        if is_old {
            return None;
        }
        if seen.fingerprint == Some(tracked.fingerprint) {
            tracked.version = seen.version;
            return None;
        }
        tracked.marked = true;
        let owner = tracked.owner.clone();
        let rounds = self.fight(identity, now);
        Some(Drifted { owner, object: identity.clone(), delay: delay_of(rounds), rounds })
    }

    /// How often the object was undone before in the same fight.
    fn fight(&mut self, identity: &Identity, now: Instant) -> u32 {
        let fight = self.fights.entry(identity.clone()).or_insert(Fight { rounds: 0, last: now });
        if now.duration_since(fight.last) > FIGHT_OVER_AFTER.max(delay_of(fight.rounds) * 2) {
            fight.rounds = 0;
        }
        let rounds = fight.rounds;
        fight.rounds = rounds.saturating_add(1);
        fight.last = now;
        rounds
    }

    pub(super) fn forget(&mut self, owner: &ObjectKey) {
        for identity in self.owned.remove(owner).unwrap_or_default() {
            if self.objects.get(&identity).is_some_and(|tracked| tracked.owner == *owner) {
                self.objects.remove(&identity);
                self.fights.remove(&identity);
            }
        }
        self.running.remove(owner);
        self.settled.remove(owner);
    }

    /// The objects of a kind that are known, to find out which are gone after a new list.
    pub(super) fn of_kind(&self, group: &str, kind: &str) -> Vec<Identity> {
        self.objects.keys().filter(|(g, k, _, _)| g == group && k == kind).cloned().collect()
    }
}

/// The pause after a number of rounds: none for the first two, then doubling.
fn delay_of(rounds: u32) -> Duration {
    match rounds.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => FIGHT_DELAY_MIN.saturating_mul(1 << doublings.min(16)).min(FIGHT_DELAY_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> ObjectKey {
        ObjectKey::new("flux-system", "apps")
    }

    fn config(name: &str) -> Identity {
        (String::new(), "ConfigMap".into(), "n".into(), name.into())
    }

    fn seen(fingerprint: u64, version: u64) -> Seen {
        Seen { fingerprint: Some(fingerprint), version: Some(version) }
    }

    #[test]
    fn only_what_drifted_is_touched() {
        let mut tracker = Tracker::default();
        let (now, hour) = (Instant::now(), Duration::from_hours(1));
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("a"), seen(1, 1)), (config("b"), seen(1, 2))], [], true);
        tracker.end(&owner(), now);
        assert_eq!(tracker.untouched(&owner(), "k", hour, now, |_, _| true), None, "not settled yet");
        let healthy = |name: &str, version: u64| Healthy {
            object: ObjectRef::core("ConfigMap", "n", name),
            version: Some(version),
        };
        let both = vec![healthy("a", 1), healthy("b", 2)];
        tracker.settle(&owner(), "k".into(), both, now);
        assert!(tracker.see(&config("a"), seen(2, 3), now).is_some());
        let untouched = tracker.untouched(&owner(), "k", hour, now, |_, _| true).unwrap();
        assert_eq!(untouched.healthy, [healthy("b", 2)]);
        let untouched = |tracker: &Tracker, key: &str, watched: bool| {
            tracker.untouched(&owner(), key, hour, now, |_, _| watched).map(|untouched| untouched.objects)
        };
        assert_eq!(untouched(&tracker, "k", true), Some(HashSet::from([config("b")])));
        assert_eq!(untouched(&tracker, "k", false), Some(HashSet::new()));
        assert_eq!(untouched(&tracker, "other", true), None);
        assert_eq!(tracker.untouched(&owner(), "k", hour, now + hour, |_, _| true), None, "too long ago");
        // The run that puts it right keeps what it did not touch.
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("a"), seen(1, 4))], [config("b")], true);
        tracker.end(&owner(), now);
        tracker.settle(&owner(), "k".into(), Vec::new(), now);
        assert_eq!(untouched(&tracker, "k", true), Some(HashSet::from([config("a"), config("b")])));
        assert!(tracker.see(&config("b"), seen(9, 9), now).is_some(), "the rest is still watched");
    }

    fn gone(version: u64) -> Seen {
        Seen { fingerprint: None, version: Some(version) }
    }

    fn recorded() -> Tracker {
        let mut tracker = Tracker::default();
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("a"), seen(1, 10))], [], true);
        assert_eq!(tracker.end(&owner(), Instant::now()), None);
        tracker
    }

    #[track_caller]
    fn check(tracker: &mut Tracker, name: &str, seen: Seen, drifts: bool) {
        assert_eq!(tracker.see(&config(name), seen, Instant::now()).is_some(), drifts);
    }

    #[tokio::test(start_paused = true)]
    async fn only_changes_of_what_we_own_are_drift() {
        let mut tracker = recorded();
        check(&mut tracker, "a", seen(1, 10), false);
        check(&mut tracker, "a", seen(1, 12), false);
        check(&mut tracker, "a", seen(2, 11), false);
        check(&mut tracker, "unknown", seen(2, 13), false);
        check(&mut tracker, "a", seen(2, 13), true);
        check(&mut tracker, "a", gone(14), false);
        check(&mut recorded(), "a", gone(14), true);
        check(&mut recorded(), "a", Seen { fingerprint: None, version: None }, true);
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_writes_are_not_drift() {
        let mut tracker = recorded();
        tracker.begin(&owner());
        check(&mut tracker, "a", seen(2, 20), false);
        tracker.record(&owner(), [(config("a"), seen(2, 20))], [], true);
        assert_eq!(tracker.end(&owner(), Instant::now()), None);
        check(&mut tracker, "a", seen(2, 20), false);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_during_a_run_is_found_at_its_end() {
        let mut tracker = recorded();
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("a"), seen(2, 20))], [], true);
        check(&mut tracker, "a", seen(3, 21), false);
        assert_eq!(tracker.end(&owner(), Instant::now()).unwrap().object, config("a"));
    }

    #[test]
    fn all_changes_during_a_run_are_touched_by_the_next() {
        let (now, hour) = (Instant::now(), Duration::from_hours(1));
        let names: Vec<String> = (0..20).map(|number| format!("object-{number}")).collect();
        let mut tracker = Tracker::default();
        tracker.begin(&owner());
        let applied = names.iter().map(|name| (config(name), seen(1, 10)));
        tracker.record(&owner(), applied, [], true);
        for name in &names[1..] {
            assert_eq!(tracker.see(&config(name), gone(20), now), None);
        }
        tracker.settle(&owner(), "k".into(), Vec::new(), now);
        assert!(tracker.end(&owner(), now).is_some());
        let untouched = tracker.untouched(&owner(), "k", hour, now, |_, _| true).unwrap();
        assert_eq!(untouched.objects, HashSet::from([config(&names[0])]));
    }

    #[tokio::test(start_paused = true)]
    async fn pruned_objects_are_not_missed() {
        let mut tracker = recorded();
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("b"), seen(5, 20))], [], true);
        check(&mut tracker, "a", gone(21), false);
        assert_eq!(tracker.end(&owner(), Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_changes_hands_is_missed_by_its_new_owner() {
        let other = ObjectKey::new("flux-system", "other");
        let mut tracker = recorded();
        tracker.begin(&owner());
        tracker.begin(&other);
        // The other one has applied the object when the first one, which no longer wants it, deletes it.
        tracker.record(&owner(), [], [], true);
        check(&mut tracker, "a", gone(21), false);
        tracker.record(&other, [(config("a"), seen(1, 20))], [], true);
        assert_eq!(tracker.end(&owner(), Instant::now()), None);
        assert_eq!(tracker.end(&other, Instant::now()).unwrap().owner, other);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_run_keeps_what_it_did_not_reach() {
        let mut tracker = recorded();
        tracker.begin(&owner());
        tracker.record(&owner(), [(config("b"), seen(5, 20))], [], false);
        assert_eq!(tracker.end(&owner(), Instant::now()), None);
        check(&mut tracker, "a", seen(2, 13), true);
        tracker.forget(&owner());
        check(&mut tracker, "a", seen(3, 14), false);
        check(&mut tracker, "b", seen(3, 24), false);
    }

    #[tokio::test(start_paused = true)]
    async fn fights_slow_down_and_end() {
        let mut tracker = recorded();
        let mut delays = Vec::new();
        for version in 20..25 {
            let drifted = tracker.see(&config("a"), seen(2, version), Instant::now()).unwrap();
            delays.push(drifted.delay.as_secs());
            let again = tracker.see(&config("a"), seen(3, version), Instant::now());
            assert_eq!(again, None, "one run is asked for");
            tracker.record(&owner(), [(config("a"), seen(1, version))], [], true);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(delays, [0, 0, 1, 2, 4]);
        tokio::time::advance(Duration::from_mins(3)).await;
        assert_eq!(tracker.see(&config("a"), seen(2, 30), Instant::now()).unwrap().delay, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn settled_owners_need_no_look_until_something_happens() {
        let hour = Duration::from_hours(1);
        let settled = |tracker: &Tracker, key: &str, watched: bool| {
            tracker.settled(&owner(), key, hour, Instant::now(), |_, _| watched).is_some()
        };
        let mut tracker = recorded();
        assert!(!settled(&tracker, "1/r1", true), "never settled");
        tracker.settle(&owner(), "1/r1".into(), Vec::new(), Instant::now());
        assert!(settled(&tracker, "1/r1", true));
        assert!(!settled(&tracker, "1/r2", true), "another artifact");
        assert!(!settled(&tracker, "1/r1", false), "not watched");
        check(&mut tracker, "a", seen(2, 20), true);
        assert!(!settled(&tracker, "1/r1", true), "drifted");

        let mut tracker = recorded();
        tracker.settle(&owner(), "1/r1".into(), Vec::new(), Instant::now());
        tokio::time::advance(hour).await;
        assert!(!settled(&tracker, "1/r1", true), "too long ago");
        tracker.settle(&owner(), "1/r1".into(), Vec::new(), Instant::now());
        tracker.begin(&owner());
        assert!(!settled(&tracker, "1/r1", true), "being applied");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_changed_since_it_was_ready_has_to_be_looked_at_for_health() {
        let target = |name: &str| ObjectRef::core("ConfigMap", "n", name);
        let healthy = |name: &str, version: Option<u64>| Healthy { object: target(name), version };
        let mut tracker = recorded();
        tracker.settle(
            &owner(),
            "k".into(),
            vec![healthy("a", Some(10)), healthy("elsewhere", Some(7))],
            Instant::now(),
        );
        let look = |tracker: &Tracker| {
            tracker.settled(&owner(), "k", Duration::from_hours(1), Instant::now(), |_, _| true).unwrap()
        };
        assert_eq!(look(&tracker), [target("elsewhere")], "what is not watched is always looked at");
        check(&mut tracker, "a", seen(1, 12), false);
        assert_eq!(look(&tracker), [target("a"), target("elsewhere")], "its status may have changed");
        tracker.still_healthy(&owner(), vec![healthy("a", Some(12))]);
        assert_eq!(look(&tracker), [target("elsewhere")]);
        tracker.still_healthy(&owner(), vec![healthy("a", None)]);
        assert_eq!(look(&tracker).len(), 2);
    }

    #[test]
    fn a_definition_wakes_who_waits_for_its_group() {
        let mut tracker = Tracker::default();
        tracker.await_group(&owner(), "example.com");
        assert!(tracker.take_awaiting("other.com").is_empty());
        assert_eq!(tracker.take_awaiting("example.com").len(), 1);
        assert!(tracker.take_awaiting("example.com").is_empty());
    }
}
