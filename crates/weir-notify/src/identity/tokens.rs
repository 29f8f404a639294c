//! Tokens kept in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::provider::Access;

/// What happened in the cache, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheEvent<'a> {
    /// A token of the Provider was there.
    Hit {
        /// The namespace of the Provider.
        namespace: &'a str,
        /// The name of the Provider.
        name: &'a str,
    },
    /// A token of the Provider was not there.
    Miss {
        /// The namespace of the Provider.
        namespace: &'a str,
        /// The name of the Provider.
        name: &'a str,
    },
    /// A token made room for another.
    Evicted,
    /// How many tokens there are.
    Held(usize),
}

/// How many tokens are kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenLimits {
    /// How many; 0 keeps none.
    pub count: usize,
    /// For how long at most.
    pub duration: Duration,
}

/// Tokens by what makes them different, with the time until which they are used.
type Held = HashMap<[u8; 32], (Access, Timestamp)>;
type Observer = Arc<dyn Fn(CacheEvent<'_>) + Send + Sync>;

/// Tokens kept until most of their lifetime is over.
#[derive(Clone)]
pub struct Tokens {
    limits: TokenLimits,
    held: Arc<Mutex<Held>>,
    observer: Observer,
}

impl Tokens {
    /// An empty cache that tells `observer` what happens.
    pub fn new(limits: TokenLimits, observer: impl Fn(CacheEvent<'_>) + Send + Sync + 'static) -> Self {
        Self { limits, held: Arc::default(), observer: Arc::new(observer) }
    }

    pub(crate) fn get(&self, key: [u8; 32], namespace: &str, name: &str, now: Timestamp) -> Option<Access> {
        if self.limits.count == 0 {
            return None;
        }
        let found =
            self.held.lock().get(&key).filter(|(_, until)| *until > now).map(|(access, _)| access.clone());
        (self.observer)(match found {
            Some(_) => CacheEvent::Hit { namespace, name },
            None => CacheEvent::Miss { namespace, name },
        });
        found
    }

    pub(crate) fn put(&self, key: [u8; 32], access: Access, now: Timestamp, lifetime: Duration) {
        // A token is used for four fifths of its life, so that it does not expire on the way.
        let lifetime = lifetime.min(self.limits.duration) * 4 / 5;
        let Ok(until) = now.checked_add(lifetime) else { return };
        if self.limits.count == 0 || lifetime.is_zero() {
            return;
        }
        let mut held = self.held.lock();
        held.retain(|_, (_, until)| *until > now);
        if held.len() >= self.limits.count
            && !held.contains_key(&key)
            && let Some(oldest) = held.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key)
        {
            held.remove(&oldest);
            (self.observer)(CacheEvent::Evicted);
        }
        held.insert(key, (access, until));
        (self.observer)(CacheEvent::Held(held.len()));
    }
}

#[cfg(test)]
mod tests {
    use weir_base::redact::Secret;

    use super::*;

    #[test]
    fn tokens_are_kept_for_most_of_their_life() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let limits = TokenLimits { count: 2, duration: Duration::from_hours(1) };
        let tokens = Tokens::new(limits, move |event| sink.lock().push(format!("{event:?}")));
        let access = || Access { token: Secret::new("t"), app_slug: None };
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(tokens.get([0; 32], "a", "p", at(0)).is_none());
        tokens.put([0; 32], access(), at(0), Duration::from_secs(100));
        assert!(tokens.get([0; 32], "a", "p", at(79)).is_some());
        assert!(tokens.get([0; 32], "a", "p", at(80)).is_none());
        tokens.put([0; 32], access(), at(0), Duration::from_secs(100));
        tokens.put([1; 32], access(), at(0), Duration::from_secs(200));
        tokens.put([2; 32], access(), at(0), Duration::from_mins(5));
        assert!(tokens.get([0; 32], "a", "p", at(1)).is_none());
        assert!(tokens.get([2; 32], "a", "p", at(1)).is_some());
        let seen = seen.lock();
        assert_eq!(seen.iter().filter(|event| event.starts_with("Evicted")).count(), 1);
        assert!(seen.contains(&"Held(2)".to_owned()), "{seen:?}");
        assert!(seen[0].starts_with("Miss"), "{seen:?}");
    }
}
