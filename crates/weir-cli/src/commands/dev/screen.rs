//! The tree of the fleet's objects: what is shown, and how it replaces what was shown before.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use serde_json::Value;

use crate::kind::Kind;
use crate::view;

/// Label of the Kustomization an object came from.
const OWNER_NAME: &str = "/metadata/labels/kustomize.toolkit.fluxcd.io~1name";
const OWNER_NAMESPACE: &str = "/metadata/labels/kustomize.toolkit.fluxcd.io~1namespace";
/// Levels of the tree.
const DEPTH_MAX: usize = 16;
/// Longest message that is shown.
const MESSAGE_BYTES_MAX: usize = 100;

/// How far an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    Ready,
    Failed,
    Waiting,
}

/// One object of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) depth: usize,
    /// `Kind/namespace/name`.
    pub(crate) name: String,
    pub(crate) progress: Progress,
    pub(crate) message: String,
    /// Objects it manages.
    pub(crate) entries: usize,
}

/// `Kind/namespace/name` of an object.
pub(crate) fn identity(object: &Value) -> String {
    format!("{}/{}/{}", view::text(object, "/kind"), view::namespace(object), view::name(object))
}

/// The tree: sources first, below each Kustomization those it made, in the order of names.
pub(crate) fn tree(objects: &[Value]) -> Vec<Row> {
    let mut children: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    let known: Vec<String> = objects.iter().map(identity).collect();
    for object in objects {
        let (name, namespace) = (view::text(object, OWNER_NAME), view::text(object, OWNER_NAMESPACE));
        let owner = format!("Kustomization/{namespace}/{name}");
        let parent = if known.contains(&owner) && owner != identity(object) { owner } else { String::new() };
        children.entry(parent).or_default().push(object);
    }
    let mut rows = Vec::new();
    add(&children, "", 0, &mut rows);
    rows
}

fn add(children: &BTreeMap<String, Vec<&Value>>, parent: &str, depth: usize, rows: &mut Vec<Row>) {
    let Some(list) = children.get(parent).filter(|_| depth < DEPTH_MAX) else { return };
    let mut list = list.clone();
    list.sort_by_key(|object| (object["kind"] == "Kustomization", identity(object)));
    for object in list {
        let name = identity(object);
        let (progress, message) = state(object);
        let entries =
            object.pointer("/status/inventory/entries").and_then(Value::as_array).map_or(0, Vec::len);
        rows.push(Row { depth, name: name.clone(), progress, message, entries });
        add(children, &name, depth + 1, rows);
    }
}

fn state(object: &Value) -> (Progress, String) {
    let is_static =
        Kind::named(view::text(object, "/kind")).is_some_and(|kind| view::is_static(kind, object));
    if is_static || view::is_suspended(object) {
        return (Progress::Ready, String::new());
    }
    let current = object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation");
    let Some(ready) = view::condition(object, "Ready").filter(|_| current) else {
        return (Progress::Waiting, "waiting for its controller".to_owned());
    };
    let line = |condition: &Value| {
        let text = view::text(condition, "/message").lines().next().unwrap_or_default().to_owned();
        weir_base::error::truncate(&text, MESSAGE_BYTES_MAX)
    };
    match view::text(ready, "/status") {
        "True" => (Progress::Ready, line(ready)),
        "False" if view::text(ready, "/reason") == "DependencyNotReady" => (Progress::Waiting, line(ready)),
        "False" => (Progress::Failed, line(ready)),
        _ => (Progress::Waiting, view::condition(object, "Reconciling").map_or_else(|| line(ready), line)),
    }
}

/// Whether everything is ready and every Kustomization of the source has its revision.
pub(crate) fn is_settled(objects: &[Value], source: &str, revision: &str) -> bool {
    let rows = tree(objects);
    let mut kustomizations = objects.iter().filter(|object| object["kind"] == "Kustomization").peekable();
    kustomizations.peek().is_some()
        && rows.iter().all(|row| row.progress == Progress::Ready)
        && kustomizations.all(|object| {
            view::text(object, "/spec/sourceRef/name") != source
                || view::text(object, "/status/lastAppliedRevision") == revision
        })
}

/// The lines of the tree, with the time each object took.
pub(crate) fn render(rows: &[Row], times: &BTreeMap<String, Duration>) -> Vec<String> {
    rows.iter()
        .map(|row| {
            let glyph = match row.progress {
                Progress::Ready => "✔",
                Progress::Failed => "✗",
                Progress::Waiting => "◎",
            };
            let time = times
                .get(&row.name)
                .filter(|_| row.progress == Progress::Ready)
                .map_or_else(String::new, |time| format!("{:.1}s", time.as_secs_f64()));
            let name = format!("{}{}", "  ".repeat(row.depth), row.name);
            let count = if row.entries == 0 { String::new() } else { format!("{} objects  ", row.entries) };
            let message = if row.progress == Progress::Ready { count } else { row.message.clone() };
            format!("{glyph} {time:>6}  {name:<50} {message}").trim_end().to_owned()
        })
        .collect()
}

/// Shows the tree: on a terminal in place, otherwise a line for every object that becomes ready or fails.
pub(crate) struct Screen {
    terminal: bool,
    shown: Vec<String>,
    told: BTreeMap<String, (Progress, String)>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: Vec::new(), told: BTreeMap::new() }
    }

    /// Shows how things are now.
    pub(crate) fn show(&mut self, rows: &[Row], times: &BTreeMap<String, Duration>) {
        let lines = render(rows, times);
        let mut text = String::new();
        if self.terminal {
            if lines == self.shown {
                return;
            }
            if !self.shown.is_empty() {
                // Up to the first line, then clear to the end of the screen.
                text = format!("\x1b[{}A\x1b[J", self.shown.len());
            }
            // Long lines end at the edge of the screen: a line takes one row, which the way up relies on.
            text.push_str("\x1b[?7l");
            for line in &lines {
                text.push_str(line);
                text.push('\n');
            }
            text.push_str("\x1b[?7h");
            self.shown = lines;
        } else {
            for (row, line) in rows.iter().zip(&lines) {
                let state = (row.progress.clone(), row.message.clone());
                if row.progress != Progress::Waiting && self.told.get(&row.name) != Some(&state) {
                    text.push_str(line);
                    text.push('\n');
                }
                self.told.insert(row.name.clone(), state);
            }
        }
        // There is nowhere to report that stderr is gone.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// What is printed next stays where it is.
    pub(crate) fn keep(&mut self) {
        self.shown.clear();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, name: &str, owner: Option<&str>, status: &str, reason: &str) -> Value {
        let labels = owner.map_or_else(
            || json!({}),
            |owner| {
                json!({
                    "kustomize.toolkit.fluxcd.io/name": owner,
                    "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
                })
            },
        );
        json!({
            "kind": kind,
            "metadata": {"name": name, "namespace": "flux-system", "generation": 1, "labels": labels},
            "spec": {"sourceRef": {"name": "flux-system"}},
            "status": {
                "observedGeneration": 1,
                "lastAppliedRevision": "main@sha1:1",
                "conditions": [{"type": "Ready", "status": status, "reason": reason, "message": format!("{name} says\nmore")}],
                "inventory": {"entries": [1, 2]},
            },
        })
    }

    #[test]
    fn objects_stand_below_the_kustomization_that_made_them() {
        let objects = [
            object("Kustomization", "apps", Some("flux-system"), "Unknown", "Progressing"),
            object("Kustomization", "flux-system", None, "True", "ReconciliationSucceeded"),
            object("GitRepository", "flux-system", None, "True", "Succeeded"),
            object("Kustomization", "broken", Some("flux-system"), "False", "BuildFailed"),
        ];
        let times = BTreeMap::from([(
            "GitRepository/flux-system/flux-system".to_owned(),
            Duration::from_millis(1250),
        )]);
        assert_eq!(
            render(&tree(&objects), &times),
            [
                "✔   1.2s  GitRepository/flux-system/flux-system              2 objects",
                "✔         Kustomization/flux-system/flux-system              2 objects",
                "◎           Kustomization/flux-system/apps                   apps says",
                "✗           Kustomization/flux-system/broken                 broken says",
            ]
        );
    }

    #[test]
    fn an_old_status_does_not_count() {
        let mut old = object("Kustomization", "apps", None, "True", "ReconciliationSucceeded");
        old["metadata"]["generation"] = 2.into();
        assert_eq!(tree(&[old])[0].progress, Progress::Waiting);
    }

    #[test]
    fn settled_means_ready_at_the_revision() {
        let ready = object("Kustomization", "apps", None, "True", "ReconciliationSucceeded");
        assert!(is_settled(std::slice::from_ref(&ready), "flux-system", "main@sha1:1"));
        assert!(!is_settled(std::slice::from_ref(&ready), "flux-system", "main@sha1:2"));
        assert!(is_settled(std::slice::from_ref(&ready), "other", "main@sha1:2"));
        let waiting = object("Kustomization", "more", None, "False", "DependencyNotReady");
        assert!(!is_settled(&[ready, waiting], "flux-system", "main@sha1:1"));
        assert!(!is_settled(&[], "flux-system", "main@sha1:1"));
    }

    #[test]
    fn an_object_that_claims_to_be_its_own_owner_is_shown_once() {
        let own = object("Kustomization", "apps", Some("apps"), "True", "ReconciliationSucceeded");
        assert_eq!(tree(&[own]).len(), 1);
    }
}
