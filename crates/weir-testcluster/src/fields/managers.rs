//! `metadata.managedFields`: who owns which fields, and how writes change that.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::compare::compare;
use super::merge::merge;
use super::remove::prune;
use super::set::FieldSet;
use super::walk::field_set;
use crate::schema::Schema;

/// Managers by update that an object keeps; the oldest beyond that are put together.
const UPDATE_MANAGERS_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// How a manager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: Option<String>,
    pub(crate) set: FieldSet,
}

impl Entry {
    /// An applier is the same manager in every version, an updater is not.
    fn is_same_manager(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// As conflicts name a manager.
    fn title(&self) -> String {
        let mut out = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            let _ = write!(out, " with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            let _ = write!(out, " using {}", self.api_version);
            if let Some(time) = &self.time {
                let _ = write!(out, " at {time}");
            }
        }
        out
    }
}

/// All entries of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Managed(pub(crate) Vec<Entry>);

/// What a write is measured by.
pub(crate) struct Write<'a> {
    pub(crate) schema: Option<&'a Schema>,
    /// The version of the request.
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) manager: &'a str,
    /// Fields that this request cannot change, which nobody comes to own by it.
    pub(crate) ignored: &'a FieldSet,
    /// The time as `managedFields` shows it.
    pub(crate) now: &'a str,
    /// The object before it is created, as the server sees it: `apiVersion`, `kind` and the structs that are always
    /// there.
    pub(crate) empty: &'a Value,
    /// Whether a version is still served; managers of others are forgotten.
    pub(crate) is_served: &'a dyn Fn(&str) -> bool,
}

/// A field that somebody else owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// As in `"kubectl" using apps/v1`.
    pub(crate) manager: String,
    /// As in `.spec.replicas`.
    pub(crate) field: String,
}

/// The text of `managedFields` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable;

impl Managed {
    /// From the list of an object.
    pub(crate) fn decode(list: Option<&Value>) -> Result<Self, Unreadable> {
        let Some(list) = list.filter(|list| !list.is_null()) else { return Ok(Self::default()) };
        let mut out: Vec<Entry> = Vec::new();
        for item in list.as_array().ok_or(Unreadable)? {
            let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let operation = match text("operation").as_str() {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(Unreadable),
            };
            if !matches!(text("fieldsType").as_str(), "FieldsV1") {
                return Err(Unreadable);
            }
            let set = match item.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(fields) => FieldSet::from_json(fields).ok_or(Unreadable)?,
            };
            let entry = Entry {
                manager: text("manager"),
                operation,
                api_version: text("apiVersion"),
                subresource: text("subresource"),
                time: item.get("time").and_then(Value::as_str).map(str::to_owned),
                set,
            };
            match out.iter_mut().find(|other| other.is_same_manager(&entry)) {
                Some(other) => *other = entry,
                None => out.push(entry),
            }
        }
        Ok(Self(out))
    }

    /// As the list of an object, in order; `None` when nobody owns anything.
    pub(crate) fn encode(mut self) -> Option<Value> {
        self.0.retain(|entry| !entry.set.is_empty());
        if self.0.is_empty() {
            return None;
        }
        self.0.sort_by(|a, b| {
            a.operation
                .cmp(&b.operation)
                .then_with(|| a.time.cmp(&b.time))
                .then_with(|| a.manager.cmp(&b.manager))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        let entries = self.0.into_iter().map(|entry| {
            let mut out = Map::new();
            out.insert("manager".into(), json!(entry.manager));
            let operation = if entry.operation == Operation::Apply { "Apply" } else { "Update" };
            out.insert("operation".into(), json!(operation));
            out.insert("apiVersion".into(), json!(entry.api_version));
            if let Some(time) = entry.time {
                out.insert("time".into(), json!(time));
            }
            out.insert("fieldsType".into(), json!("FieldsV1"));
            out.insert("fieldsV1".into(), entry.set.to_json());
            if !entry.subresource.is_empty() {
                out.insert("subresource".into(), json!(entry.subresource));
            }
            Value::Object(out)
        });
        Some(Value::Array(entries.collect()))
    }

    fn cap_updaters(&mut self) {
        loop {
            let updaters: Vec<usize> = (0..self.0.len())
                .filter(|&place| {
                    self.0[place].operation == Operation::Update && self.0[place].subresource.is_empty()
                })
                .collect();
            if updaters.len() <= UPDATE_MANAGERS_MAX {
                return;
            }
            let oldest =
                updaters.into_iter().filter(|&place| self.0[place].manager != ANCIENT).min_by(|&a, &b| {
                    self.0[a]
                        .time
                        .cmp(&self.0[b].time)
                        .then_with(|| self.0[a].manager.cmp(&self.0[b].manager))
                });
            let Some(oldest) = oldest else { return };
            let mut entry = self.0.remove(oldest);
            ANCIENT.clone_into(&mut entry.manager);
            match self.0.iter_mut().find(|other| other.is_same_manager(&entry)) {
                Some(bucket) => {
                    bucket.set.extend(&entry.set);
                    bucket.time = entry.time;
                }
                None => self.0.push(entry),
            }
        }
    }
}

/// Fields of metadata that nobody owns.
fn unowned() -> &'static FieldSet {
    static UNOWNED: LazyLock<FieldSet> = LazyLock::new(unowned_fields);
    &UNOWNED
}

fn unowned_fields() -> FieldSet {
    let mut out = FieldSet::default();
    for path in [
        &["apiVersion"][..],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ] {
        out.insert_fields(path);
    }
    out
}

/// Takes the list out of an object.
pub(crate) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts the list into an object, or removes it.
pub(crate) fn put(object: &mut Value, managed: Managed) {
    let list = managed.encode();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        match list {
            Some(list) => metadata.insert("managedFields".into(), list),
            None => metadata.remove("managedFields"),
        };
    }
}

/// The entries that an update starts from: those of the request when it has any, else those of the live object.
///
/// A list of one empty entry resets them.
pub(crate) fn live_or_new(live: Option<&Value>, new: Option<&Value>, subresource: &str) -> Managed {
    let live = || Managed::decode(live).unwrap_or_default();
    if !subresource.is_empty() {
        return live();
    }
    if let Some(Value::Array(items)) = new
        && let [Value::Object(only)] = items.as_slice()
    {
        let names_nothing = |(_, value): (&String, &Value)| value.is_null() || value == "";
        if only.iter().all(names_nothing) {
            return Managed::default();
        }
    }
    match Managed::decode(new) {
        Ok(managed) if !managed.0.is_empty() => managed,
        _ => live(),
    }
}

/// Who owns what after a create, a put, or a patch that is no apply. Neither object has `managedFields`.
///
/// With `live` an object that nobody owns stays so: only its creator or an apply begins the books.
pub(crate) fn update(live: Option<&Value>, new: &Value, managed: Managed, write: &Write<'_>) -> Managed {
    if live.is_some() && managed.0.is_empty() {
        return managed;
    }
    let mut managed = update_books(live.unwrap_or(write.empty), new, managed, write);
    managed.cap_updaters();
    managed
}

fn update_books(live: &Value, new: &Value, mut managed: Managed, write: &Write<'_>) -> Managed {
    let changes = compare(live, new, write.schema).without(write.ignored);
    if changes.is_same() {
        return managed;
    }
    let written = changes.written();
    managed.0.retain(|entry| (write.is_served)(&entry.api_version));
    let own = Entry {
        manager: write.manager.to_owned(),
        operation: Operation::Update,
        api_version: write.api_version.to_owned(),
        subresource: write.subresource.to_owned(),
        time: Some(write.now.to_owned()),
        set: written.difference(&changes.removed).difference(unowned()),
    };
    for entry in &mut managed.0 {
        entry.set.subtract(&written);
        entry.set.subtract(&changes.removed);
    }
    // What the writer owned before stays its own; the loop above took it away where it was written again.
    match managed.0.iter_mut().find(|entry| entry.is_same_manager(&own)) {
        _ if own.set.is_empty() => {}
        Some(entry) => {
            entry.set.extend(&own.set);
            entry.time = own.time;
        }
        None => managed.0.push(own),
    }
    managed.0.retain(|entry| !entry.set.is_empty());
    managed
}

/// The outcome of an apply.
pub(crate) struct Applied {
    /// The object without `managedFields`; `None` when nothing but ownership changed.
    pub(crate) object: Option<Value>,
    pub(crate) managed: Managed,
}

/// Applies a configuration. `live` is the object without `managedFields`, or `None` to create it.
pub(crate) fn apply(
    live: Option<&Value>,
    config: &Value,
    mut managed: Managed,
    force: bool,
    write: &Write<'_>,
) -> Result<Applied, Vec<Conflict>> {
    if let (Some(live), true) = (live, managed.0.is_empty()) {
        let before = Write { manager: BEFORE_FIRST_APPLY, subresource: "", ..*write };
        managed = update_books(write.empty, live, managed, &before);
    }
    let base = live.unwrap_or(write.empty);
    let mut merged = merge(Some(base), Some(config), write.schema);
    let config_set = field_set(config, write.schema).recursive_difference(write.ignored);
    let mut own = Entry {
        manager: write.manager.to_owned(),
        operation: Operation::Apply,
        api_version: write.api_version.to_owned(),
        subresource: write.subresource.to_owned(),
        time: Some(write.now.to_owned()),
        set: config_set,
    };
    let place = managed.0.iter().position(|entry| entry.is_same_manager(&own));
    let last = place.map(|place| managed.0.remove(place));
    managed.0.retain(|entry| (write.is_served)(&entry.api_version));
    // What was applied last and still is cannot go.
    if let Some(last) = last.as_ref().filter(|last| !last.set.is_within(&own.set)) {
        let mut all = own.set.clone();
        for entry in &managed.0 {
            all.extend(&entry.set);
        }
        prune(&mut merged, &last.set, &all, write.schema);
    }
    let changes = compare(base, &merged, write.schema).without(write.ignored);
    let written = changes.written();
    let mut conflicts = Vec::new();
    for entry in &mut managed.0 {
        let theirs = entry.set.intersection(&written);
        if !theirs.is_empty() && !force {
            // The time is not part of a manager's name.
            let named = Entry { time: None, set: FieldSet::default(), ..entry.clone() };
            let manager = named.title();
            conflicts
                .extend(theirs.paths().into_iter().map(|field| Conflict { manager: manager.clone(), field }));
        }
        entry.set.subtract(&theirs);
        entry.set.subtract(&changes.removed);
    }
    if !conflicts.is_empty() {
        conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
        return Err(conflicts);
    }
    managed.0.retain(|entry| !entry.set.is_empty());
    let same = live.is_some() && base == &merged;
    if same {
        // Nothing was written, so there is no time of a write.
        own.time = last.and_then(|last| last.time);
    }
    own.set = own.set.difference(unowned());
    if !own.set.is_empty() {
        managed.0.push(own);
    }
    Ok(Applied { object: (!same).then_some(merged), managed })
}

/// The message of a refused apply, without its introduction.
pub(crate) fn conflict_text(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("conflict with {}: {}", only.manager, only.field);
    }
    let mut lines = Vec::new();
    let mut manager = None;
    for conflict in conflicts {
        if manager != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            manager = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.field));
    }
    lines.join("\n")
}
