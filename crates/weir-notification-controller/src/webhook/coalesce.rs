//! Many who ask for the same thing at the same time share the answer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// Runs one piece of work per key at a time; those who ask meanwhile share the next one.
///
/// # Guarantees
/// Whoever asks gets the result of work that began after they asked, so a flood of requests costs
/// the API server little and yet nobody gets an answer from before their request.
///
/// # Cancellation
/// Work that is cancelled is begun anew by the next one who waits for it.
#[derive(Debug)]
pub(super) struct Coalescer<K, V> {
    entries: Mutex<HashMap<K, Arc<Entry<V>>>>,
}

#[derive(Debug)]
struct Entry<V> {
    turn: tokio::sync::Mutex<()>,
    /// The work that has not begun.
    next: Mutex<Arc<OnceLock<V>>>,
}

impl<V> Default for Entry<V> {
    fn default() -> Self {
        Self { turn: tokio::sync::Mutex::new(()), next: Mutex::default() }
    }
}

impl<K, V> Default for Coalescer<K, V> {
    fn default() -> Self {
        Self { entries: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Coalescer<K, V> {
    /// The result of `work`, done by this call or by another one with the same key.
    pub(super) async fn run(&self, key: &K, work: impl Future<Output = V>) -> V {
        let entry = Arc::clone(self.entries.lock().entry(key.clone()).or_default());
        let joined = Joined { coalescer: self, key, entry };
        let entry = &*joined.entry;
        let shared = Arc::clone(&*entry.next.lock());
        let _turn = entry.turn.lock().await;
        if let Some(done) = shared.get() {
            return done.clone();
        }
        {
            let mut next = entry.next.lock();
            // From here on it is too late to join.
            if Arc::ptr_eq(&next, &shared) {
                *next = Arc::default();
            }
        }
        let result = work.await;
        // Set once only: the turn is ours.
        let _ = shared.set(result.clone());
        result
    }
}

/// Forgets the entry when nobody uses it any more, also when the call is cancelled.
struct Joined<'a, K: Eq + Hash, V> {
    coalescer: &'a Coalescer<K, V>,
    key: &'a K,
    entry: Arc<Entry<V>>,
}

impl<K: Eq + Hash, V> Drop for Joined<'_, K, V> {
    fn drop(&mut self) {
        let mut entries = self.coalescer.entries.lock();
        // Held by the map and by this call alone.
        if Arc::strong_count(&self.entry) == 2 {
            entries.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::FutureExt as _;
    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn those_who_ask_while_it_runs_share_the_next_one() {
        let (coalescer, runs, go) = (Coalescer::default(), AtomicU32::new(0), Semaphore::new(0));
        let ask = || {
            coalescer.run(&"a", async {
                let number = runs.fetch_add(1, Ordering::SeqCst) + 1;
                go.acquire().await.unwrap().forget();
                number
            })
        };
        let mut first = Box::pin(ask());
        assert!((&mut first).now_or_never().is_none(), "it runs");
        let mut others = Box::pin(join_all((0..1000).map(|_| ask())));
        assert!((&mut others).now_or_never().is_none());
        go.add_permits(2);
        assert_eq!(first.await, 1);
        assert_eq!(others.await, vec![2; 1000], "all began to wait before the second run began");
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert!(coalescer.entries.lock().is_empty(), "nothing is left");
    }

    #[tokio::test]
    async fn cancelled_work_is_done_by_the_next_one() {
        let (coalescer, go) = (&Coalescer::default(), &Semaphore::new(0));
        let ask = |number: u32| {
            coalescer.run(&"a", async move {
                go.acquire().await.unwrap().forget();
                number
            })
        };
        let mut cancelled = Box::pin(ask(1));
        assert!((&mut cancelled).now_or_never().is_none());
        let mut waiting = Box::pin(ask(2));
        assert!((&mut waiting).now_or_never().is_none());
        drop(cancelled);
        go.add_permits(1);
        assert_eq!(waiting.await, 2);
    }

    #[tokio::test]
    async fn different_keys_do_not_wait_for_each_other() {
        let coalescer = Coalescer::default();
        let mut hangs = Box::pin(coalescer.run(&"a", std::future::pending::<u32>()));
        assert!((&mut hangs).now_or_never().is_none());
        assert_eq!(coalescer.run(&"b", async { 1 }).await, 1);
    }
}
