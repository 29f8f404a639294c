//! Watches: streams of events that read on in the log of the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};

use crate::cluster::Inner;
use crate::error::ApiError;
use crate::faults::Effect;
use crate::kinds::Kind;
use crate::negotiate::Form;
use crate::reply::{Include, partial};
use crate::selector::{FieldSelector, LabelSelector};
use crate::store::{Change, Event, Read, Stored};
use crate::table;

/// Bookmarks come that often when nothing else does.
const BOOKMARK_SECONDS: u64 = 60;
/// A watch without a limit of its own ends after that long.
const TIMEOUT_SECONDS_DEFAULT: u64 = 45 * 60;

/// Which objects a list or watch shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) namespace: String,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Filter {
    pub(crate) fn matches(&self, cluster: &Inner, kind: &Kind, object: &Stored) -> bool {
        if !self.namespace.is_empty() && *self.namespace != *object.namespace {
            return false;
        }
        if self.fields.name().is_some_and(|name| name != &*object.name) {
            return false;
        }
        if !self.labels.matches(|key| object.label(key)) {
            return false;
        }
        let simple = |key: &str| matches!(key, "metadata.name" | "metadata.namespace");
        let mut tree: Option<Value> = None;
        self.fields.0.iter().all(|(key, wanted, equal)| {
            let found = match key.as_str() {
                "metadata.name" => object.name.to_string(),
                "metadata.namespace" => object.namespace.to_string(),
                key => {
                    debug_assert!(!simple(key), "handled above");
                    field(tree.get_or_insert_with(|| cluster.value_as(kind, object)), key)
                }
            };
            (found == *wanted) == *equal
        })
    }
}

/// The value of a field as selectors compare it.
fn field(object: &Value, key: &str) -> String {
    let (object, key) = match key {
        "source" => (&object["source"], "component"),
        "status.successful" => (&object["status"], "succeeded"),
        _ => (object, key),
    };
    let found = key.split('.').fold(object, |value, name| &value[name]);
    match (found, key) {
        (Value::String(text), _) => text.clone(),
        (Value::Null, "spec.unschedulable" | "spec.hostNetwork") => "false".to_owned(),
        (Value::Null, "status.replicas" | "succeeded") => "0".to_owned(),
        (Value::Null, _) => String::new(),
        (other, _) => other.to_string(),
    }
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// With all objects there are, perhaps with a bookmark behind the last one.
    Now { marks_end: bool },
    /// With the events after a revision.
    After(u64),
}

/// A watch that was asked for.
pub(crate) struct Plan {
    pub(crate) kind: Arc<Kind>,
    pub(crate) filter: Filter,
    pub(crate) start: Start,
    pub(crate) bookmarks: bool,
    pub(crate) timeout_seconds: Option<u64>,
}

struct State {
    cluster: Arc<Inner>,
    kind: Arc<Kind>,
    filter: Filter,
    form: Form,
    include: Include,
    bookmarks: bool,
    seen: u64,
    epoch: u64,
    ready: VecDeque<Bytes>,
    wake: tokio::sync::watch::Receiver<u64>,
    end: tokio::time::Instant,
    ended: bool,
    with_columns: bool,
    /// Events until the connection breaks.
    breaks_after: Option<u32>,
}

/// The lines of a watch. An item is a line; the stream ends when the watch does.
pub(crate) fn stream(
    cluster: Arc<Inner>,
    plan: Plan,
    form: Form,
    include: Include,
    effects: &[Effect],
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static + use<> {
    let wake = cluster.store.subscribe(&plan.kind.table);
    let epoch = cluster.store.epoch();
    let seconds = plan.timeout_seconds.unwrap_or(TIMEOUT_SECONDS_DEFAULT);
    let mut state = State {
        kind: plan.kind,
        filter: plan.filter,
        form,
        include,
        bookmarks: plan.bookmarks,
        seen: 0,
        epoch,
        ready: VecDeque::new(),
        wake,
        end: tokio::time::Instant::now() + Duration::from_secs(seconds),
        ended: false,
        with_columns: true,
        breaks_after: effects.iter().find_map(|effect| match effect {
            Effect::BreakWatch { after_events } => Some(*after_events),
            _ => None,
        }),
        cluster,
    };
    if effects.contains(&Effect::ExpireWatch) {
        let error = ApiError::expired("The resourceVersion for the provided watch is too old.");
        state.push("ERROR", &error.status());
        state.ended = true;
    } else {
        match plan.start {
            Start::After(revision) => state.seen = revision,
            Start::Now { marks_end } => state.begin(marks_end),
        }
    }
    futures::stream::unfold(state, |mut state| async move {
        let item = state.next().await?;
        Some((item, state))
    })
}

impl State {
    fn begin(&mut self, marks_end: bool) {
        let listing = self.cluster.store.list(&self.kind.table, &self.filter.namespace);
        self.seen = listing.revision;
        for object in listing.objects {
            if self.filter.matches(&self.cluster, &self.kind, &object) {
                self.push_object("ADDED", &object);
            }
        }
        if marks_end {
            self.push_bookmark(true);
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                if let Some(left) = &mut self.breaks_after {
                    if *left == 0 {
                        self.ended = true;
                        self.ready.clear();
                        self.breaks_after = None;
                        return Some(Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
                    }
                    *left -= 1;
                }
                return Some(Ok(line));
            }
            if self.ended {
                return None;
            }
            // Whatever is written from here on wakes us below.
            self.wake.borrow_and_update();
            match self.cluster.store.read(&self.kind.table, self.seen, self.epoch) {
                Read::Ended => return None,
                Read::Forgotten { oldest } => {
                    let message = format!("too old resource version: {} ({oldest})", self.seen);
                    self.push("ERROR", &ApiError::expired(message).status());
                    self.ended = true;
                    continue;
                }
                Read::Events(events) => {
                    for event in events {
                        self.seen = event.revision;
                        self.push_event(&event);
                    }
                    continue;
                }
                Read::Nothing(revision) => self.seen = self.seen.max(revision),
            }
            let now = tokio::time::Instant::now();
            if now >= self.end {
                return None;
            }
            let pause = Duration::from_secs(BOOKMARK_SECONDS);
            let until = if self.bookmarks { self.end.min(now + pause) } else { self.end };
            tokio::select! {
                changed = self.wake.changed() => if changed.is_err() { return None },
                () = tokio::time::sleep_until(until) => {
                    if self.bookmarks {
                        self.push_bookmark(false);
                        self.ended = tokio::time::Instant::now() >= self.end;
                    }
                }
            }
        }
    }

    /// An object that stops to fit the selector is deleted for this watch, one that begins to is added.
    fn push_event(&mut self, event: &Event) {
        let fits = |object: &Stored| self.filter.matches(&self.cluster, &self.kind, object);
        let before = event.previous.as_deref().is_some_and(fits);
        let after = event.change != Change::Deleted && fits(&event.object);
        match (before, after) {
            (false, true) => self.push_object("ADDED", &event.object),
            (true, true) => self.push_object("MODIFIED", &event.object),
            (true, false) if event.change == Change::Deleted => self.push_object("DELETED", &event.object),
            (true, false) => {
                // The last state that fitted, at the revision of the change.
                let Some(previous) = &event.previous else { return };
                let mut value = self.cluster.value_as(&self.kind, previous);
                value["metadata"]["resourceVersion"] = json!(event.revision.to_string());
                self.push_value("DELETED", &value);
            }
            (false, false) => {}
        }
    }

    fn push_object(&mut self, change: &str, object: &Stored) {
        if self.form == Form::Json && !self.cluster.needs_conversion(&self.kind) {
            let prefix = &self.kind.prefix;
            let mut line = Vec::with_capacity(object.json.len() + prefix.len() + 48);
            line.extend_from_slice(b"{\"type\":\"");
            line.extend_from_slice(change.as_bytes());
            line.extend_from_slice(b"\",\"object\":");
            line.extend_from_slice(prefix);
            line.extend_from_slice(object.json.get(1..).unwrap_or_default());
            line.extend_from_slice(b"}\n");
            self.ready.push_back(Bytes::from(line));
        } else {
            let value = self.cluster.value_as(&self.kind, object);
            self.push_value(change, &value);
        }
    }

    fn push_value(&mut self, change: &str, value: &Value) {
        let shown = match self.form {
            Form::Metadata => partial(value),
            Form::Table => {
                let now = self.cluster.timestamp();
                let one = std::slice::from_ref(value);
                let mut table = table::table(&self.kind, one, self.include, now, self.with_columns);
                table["metadata"] = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                self.with_columns = false;
                table
            }
            Form::Json | Form::Yaml | Form::Discovery => value.clone(),
        };
        self.push(change, &shown);
    }

    fn push(&mut self, change: &str, shown: &Value) {
        let mut line = json!({"type": change, "object": shown}).to_string();
        line.push('\n');
        self.ready.push_back(Bytes::from(line));
    }

    fn push_bookmark(&mut self, ends_initial: bool) {
        let mut object = json!({
            "kind": self.kind.gvk.kind,
            "apiVersion": self.kind.gvk.api_version(),
            "metadata": {"resourceVersion": self.seen.to_string()},
        });
        if ends_initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        if self.kind.is_builtin() {
            crate::builtin::encode(&self.kind.gvk, &mut object);
        }
        match self.form {
            Form::Metadata | Form::Table => self.push_value("BOOKMARK", &object),
            _ => self.push("BOOKMARK", &object),
        }
    }
}
