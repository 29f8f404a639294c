//! Requests made by people and tools through annotations.

use std::collections::BTreeMap;

use crate::names::annotation::{FORCE_AT, RECONCILE_ONCE_AT, REQUESTED_AT};

/// Annotations of an object.
pub type Annotations = BTreeMap<String, String>;

/// The token of the current reconcile request, if there is one. Its content has no meaning.
pub fn requested_at(annotations: Option<&Annotations>) -> Option<&str> {
    annotations?.get(REQUESTED_AT).map(String::as_str)
}

/// Whether an update carries a new reconcile request; removing the annotation is none.
pub fn is_newly_requested(old: Option<&Annotations>, new: Option<&Annotations>) -> bool {
    match requested_at(new) {
        Some(token) => requested_at(old) != Some(token),
        None => false,
    }
}

/// What became of a request that goes along with a reconcile request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handled {
    /// Whether to act on it now.
    pub act: bool,
    /// What the status must say was handled last: the annotation, whether acted upon or not.
    pub last_handled: Option<String>,
}

/// Decides about a request annotation such as [`FORCE_AT`], which counts only together with an equal reconcile request.
///
/// Call it *before* `lastHandledReconcileAt` is overwritten; `last_handled` is the status field that belongs to `annotation`.
pub fn handle(
    annotations: Option<&Annotations>,
    annotation: &str,
    last_handled_reconcile_at: Option<&str>,
    last_handled: Option<&str>,
) -> Handled {
    let token = annotations.and_then(|annotations| annotations.get(annotation)).map(String::as_str);
    let requested = requested_at(annotations);
    let act = token.is_some()
        && token == requested
        && requested != last_handled_reconcile_at
        && token != last_handled;
    Handled { act, last_handled: token.or(last_handled).map(str::to_owned) }
}

/// Decides about a force request. See [`handle`].
pub fn handle_force(
    annotations: Option<&Annotations>,
    last_handled_reconcile_at: Option<&str>,
    last_handled_force_at: Option<&str>,
) -> Handled {
    handle(annotations, FORCE_AT, last_handled_reconcile_at, last_handled_force_at)
}

/// Whether a suspended object is to run once: asked together with a reconcile request that was not handled yet.
pub fn is_asked_once(annotations: Option<&Annotations>, last_handled_reconcile_at: Option<&str>) -> bool {
    handle(annotations, RECONCILE_ONCE_AT, last_handled_reconcile_at, None).act
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(requested: &str, forced: &str) -> Annotations {
        [(REQUESTED_AT, requested), (FORCE_AT, forced)]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn new_requests() {
        #[track_caller]
        fn check(old: &str, new: &str, expected: bool) {
            assert_eq!(
                is_newly_requested(Some(&annotations(old, "")), Some(&annotations(new, ""))),
                expected
            );
        }
        check("", "", false);
        check("", "a", true);
        check("a", "a", false);
        check("a", "b", true);
        check("a", "", false);
        assert!(!is_newly_requested(None, None));
        assert!(is_newly_requested(None, Some(&annotations("a", ""))));
    }

    #[test]
    fn force_counts_only_with_an_equal_new_request() {
        #[track_caller]
        fn check(
            requested: &str,
            forced: &str,
            last_reconcile: &str,
            last_force: &str,
            act: bool,
            last: Option<&str>,
        ) {
            let some = |text: &'static str| if text.is_empty() { None } else { Some(text) };
            let (last_reconcile, last_force): (&'static str, &'static str) =
                (last_reconcile.to_owned().leak(), last_force.to_owned().leak());
            assert_eq!(
                handle_force(Some(&annotations(requested, forced)), some(last_reconcile), some(last_force)),
                Handled { act, last_handled: last.map(str::to_owned) }
            );
        }
        check("", "", "", "", false, None);
        check("a", "", "", "", false, None);
        check("a", "a", "", "", true, Some("a"));
        check("a", "b", "", "", false, Some("b"));
        check("", "a", "", "", false, Some("a"));
        check("a", "a", "a", "", false, Some("a"));
        check("a", "a", "", "a", false, Some("a"));
        check("b", "b", "a", "a", true, Some("b"));
        check("b", "", "a", "a", false, Some("a"));
    }
}
