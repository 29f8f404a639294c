//! What shall go wrong.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The verbs it is about, as in `patch`; empty for all.
    pub verbs: Vec<String>,
    /// The plurals it is about, as in `deployments`; empty for all.
    pub resources: Vec<String>,
    /// The name of the object; empty for all.
    pub name: String,
    /// How many requests it lets pass first.
    pub skip: u32,
    /// How many requests it hits; `None` for all.
    pub times: Option<u32>,
    /// What happens.
    pub effect: Effect,
}

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It is answered late.
    Delay(Duration),
    /// It is refused with a code and reason, as in 409 and `Conflict`.
    Refuse {
        /// The HTTP code.
        code: u16,
        /// The reason of the `Status`.
        reason: &'static str,
        /// The message of the `Status`.
        message: String,
    },
    /// It is done, but the connection breaks before the answer.
    LoseAnswer,
    /// The connection breaks before it is done.
    LoseRequest,
    /// A watch ends after that many events.
    BreakWatch {
        /// Events that still come.
        after_events: u32,
    },
    /// A watch says that its revision is too old.
    ExpireWatch,
}

impl Fault {
    /// A fault that hits each request.
    pub fn new(effect: Effect) -> Self {
        Self { verbs: Vec::new(), resources: Vec::new(), name: String::new(), skip: 0, times: None, effect }
    }

    /// Only these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: &[&str]) -> Self {
        self.verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        self
    }

    /// Only these plurals.
    #[must_use]
    pub fn resources(mut self, plurals: &[&str]) -> Self {
        self.resources = plurals.iter().map(|plural| (*plural).to_owned()).collect();
        self
    }

    /// Only that many requests.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Not the first ones.
    #[must_use]
    pub fn skip(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }
}

/// The faults of a cluster, which may change while it runs. Copies share them.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    plan: Arc<Mutex<Vec<Fault>>>,
}

impl Faults {
    /// Adds one.
    pub fn add(&self, fault: Fault) {
        self.plan.lock().push(fault);
    }

    /// Removes all.
    pub fn clear(&self) {
        self.plan.lock().clear();
    }

    /// What happens to this request; counts down.
    pub(crate) fn hit(&self, verb: &str, plural: &str, name: &str) -> Vec<Effect> {
        let mut plan = self.plan.lock();
        if plan.is_empty() {
            return Vec::new();
        }
        let mut out = Vec::new();
        for fault in plan.iter_mut() {
            let fits = |list: &[String], word: &str| list.is_empty() || list.iter().any(|own| own == word);
            let of_watch = matches!(fault.effect, Effect::BreakWatch { .. } | Effect::ExpireWatch);
            if !fits(&fault.verbs, verb)
                || !fits(&fault.resources, plural)
                || !(fault.name.is_empty() || fault.name == name)
                || of_watch && verb != "watch"
            {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            match &mut fault.times {
                Some(0) => continue,
                Some(times) => *times -= 1,
                None => {}
            }
            out.push(fault.effect.clone());
        }
        plan.retain(|fault| fault.times != Some(0));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_hit_what_they_are_about_and_run_out() {
        let faults = Faults::default();
        faults.add(Fault::new(Effect::LoseAnswer).verbs(&["patch"]).resources(&["pods"]).skip(1).times(1));
        assert!(faults.hit("get", "pods", "a").is_empty());
        assert!(faults.hit("patch", "pods", "a").is_empty());
        assert_eq!(faults.hit("patch", "pods", "a"), [Effect::LoseAnswer]);
        assert!(faults.hit("patch", "pods", "a").is_empty());
    }
}
