//! Which events repeat others and are held back.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// How many different events are remembered; about 100 bytes each.
const EVENTS_MAX: usize = 500_000;

/// Lets the first of equal events through in each window of time.
///
/// Windows of an event begin with the first of its kind and follow each other without a gap, also while events are held
/// back; an event that did not come for two windows is forgotten.
#[derive(Debug)]
pub(crate) struct Limiter {
    interval: Duration,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    entries: HashMap<[u8; 32], Entry>,
    swept: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    first: Timestamp,
    window: u128,
    last: Timestamp,
}

/// What the limiter says about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Whether the event is let through.
    pub(crate) allowed: bool,
    /// When the window ends.
    pub(crate) reset: Timestamp,
}

impl Limiter {
    /// A limiter with windows of this length; events of no length at all are never held back.
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, held: Mutex::default() }
    }

    /// Takes note of an event.
    pub(crate) fn take(&self, fingerprint: [u8; 32], now: Timestamp) -> Verdict {
        let interval = self.interval.as_nanos();
        if interval == 0 {
            return Verdict { allowed: true, reset: now };
        }
        let mut held = self.held.lock();
        self.sweep(&mut held, now);
        let is_full = held.entries.len() >= EVENTS_MAX;
        let window_of = |first: Timestamp| elapsed(first, now).as_nanos() / interval;
        let (allowed, entry) = if let Some(entry) = held.entries.get_mut(&fingerprint) {
            let window = window_of(entry.first);
            let allowed = window > entry.window;
            entry.window = entry.window.max(window);
            entry.last = now;
            (allowed, *entry)
        } else {
            let entry = Entry { first: now, window: 0, last: now };
            // Rather a repeated message than a lost one, or memory without end.
            if !is_full {
                held.entries.insert(fingerprint, entry);
            }
            (true, entry)
        };
        let windows = u32::try_from(entry.window + 1).unwrap_or(u32::MAX);
        let length =
            SignedDuration::try_from(self.interval.saturating_mul(windows)).unwrap_or(SignedDuration::MAX);
        let reset = entry.first.checked_add(length).unwrap_or(Timestamp::MAX);
        Verdict { allowed, reset }
    }

    /// Forgets, once per interval, what has not come for two of them.
    fn sweep(&self, held: &mut Held, now: Timestamp) {
        let due = held.swept.is_none_or(|swept| elapsed(swept, now) >= self.interval);
        if due {
            held.swept = Some(now);
            let idle = self.interval.saturating_mul(2);
            held.entries.retain(|_, entry| elapsed(entry.last, now) <= idle);
        }
    }
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// The time as HTTP headers of Go programs have it.
pub(crate) fn rfc1123(time: Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_261_600 + second).unwrap()
    }

    #[test]
    fn windows_follow_the_first_event() {
        let limiter = Limiter::new(Duration::from_mins(5));
        let allowed = |second| limiter.take([1; 32], at(second)).allowed;
        assert!(allowed(0));
        assert!(!allowed(10));
        // Held back events do not make the window longer.
        assert!(!allowed(299));
        assert!(allowed(301));
        assert!(!allowed(599));
        // Windows go on by the clock of the first event: this one ends at 900.
        assert!(allowed(890));
        assert!(allowed(901));
        assert!(limiter.take([2; 32], at(0)).allowed);
    }

    #[test]
    fn forgotten_events_begin_anew() {
        let limiter = Limiter::new(Duration::from_mins(1));
        assert!(limiter.take([1; 32], at(0)).allowed);
        assert!(limiter.take([2; 32], at(200)).allowed);
        assert_eq!(limiter.held.lock().entries.len(), 1);
        assert!(limiter.take([1; 32], at(201)).allowed);
        assert_eq!(limiter.take([1; 32], at(202)), Verdict { allowed: false, reset: at(261) });
    }

    #[test]
    fn no_window_holds_nothing_back() {
        let limiter = Limiter::new(Duration::ZERO);
        assert!(limiter.take([1; 32], at(0)).allowed && limiter.take([1; 32], at(0)).allowed);
    }

    #[test]
    fn times_are_written_as_go_does() {
        assert_eq!(rfc1123(at(0)), "Thu, 01 Jan 2026 10:00:00 UTC");
    }
}
