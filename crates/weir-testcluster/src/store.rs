//! Objects in memory, their revisions, and the log of events that watches read.
//!
//! An object is kept as the bytes of its JSON without `apiVersion` and `kind`, which depend on the version it is read
//! in. Watches have no queue: each remembers the revision it has seen and reads on in the shared log.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

/// Events kept for each kind of object.
const LOG_EVENTS_MAX: usize = 8192;

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: String,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) blocks: bool,
}

/// One state of an object.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) revision: u64,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    pub(crate) owners: Box<[Owner]>,
    pub(crate) finalizers: Box<[Box<str>]>,
    /// `metadata.deletionTimestamp` is set.
    pub(crate) deleting: bool,
    /// Without `apiVersion` and `kind`.
    pub(crate) json: Bytes,
}

impl Stored {
    fn new(value: &Value, revision: u64) -> Self {
        let metadata = &value["metadata"];
        let text = |name: &str| -> Box<str> { metadata[name].as_str().unwrap_or_default().into() };
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten().map(|owner| {
            let text = |name: &str| owner[name].as_str().unwrap_or_default().to_owned();
            Owner {
                uid: text("uid"),
                api_version: text("apiVersion"),
                kind: text("kind"),
                name: text("name"),
                blocks: owner["blockOwnerDeletion"] == true,
            }
        });
        let labels = metadata["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()));
        let finalizers =
            metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into);
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            revision,
            labels: labels.collect(),
            owners: owners.collect(),
            finalizers: finalizers.collect(),
            deleting: metadata["deletionTimestamp"].is_string(),
            json: Bytes::from(serde_json::to_vec(value).unwrap_or_default()),
        }
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| &**name == key).map(|(_, value)| &**value)
    }

    /// The tree, without `apiVersion` and `kind`.
    pub(crate) fn value(&self) -> Value {
        // The bytes were written by this module.
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// The place within its kind.
    pub(crate) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }
}

/// The place of an object within its kind, in the order of lists.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One entry of the log.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) change: Change,
    /// The state after the event; of a deletion, the last one.
    pub(crate) object: Arc<Stored>,
    /// The state before the event.
    pub(crate) previous: Option<Arc<Stored>>,
}

struct Table {
    objects: BTreeMap<String, Arc<Stored>>,
    log: VecDeque<Event>,
    /// Events up to this revision are gone from the log.
    forgotten: u64,
    wake: watch::Sender<u64>,
}

impl Table {
    fn new(revision: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            forgotten: revision,
            wake: watch::Sender::new(revision),
        }
    }

    fn record(&mut self, event: Event) {
        if self.log.len() >= LOG_EVENTS_MAX
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = oldest.revision;
        }
        let revision = event.revision;
        self.log.push_back(event);
        self.wake.send_replace(revision);
    }
}

/// Where an object is: its table and its key.
pub(crate) type Place = (Arc<str>, String);

struct Inner {
    revision: u64,
    tables: HashMap<Arc<str>, Table>,
    /// Dependents by the uid of their owner.
    dependents: HashMap<Box<str>, HashSet<Place>>,
    places: HashMap<Box<str>, Place>,
    /// Counts restarts: watches of an older epoch end.
    epoch: u64,
    /// What happened up to this revision is forgotten in all tables.
    floor: u64,
}

/// All objects.
pub(crate) struct Store {
    inner: Mutex<Inner>,
}

/// Why a write did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clash {
    /// There is an object of that name.
    Exists,
    /// There is none.
    Missing,
    /// Somebody else wrote in between.
    Modified,
}

/// A list at one revision.
pub(crate) struct Listing {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Stored>>,
}

/// The asked revision is too old or lies ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unavailable {
    Forgotten { oldest: u64 },
    Ahead { current: u64 },
}

/// What a watch reads next.
pub(crate) enum Read {
    Events(Vec<Event>),
    /// Nothing new; the revision that was seen.
    Nothing(u64),
    Forgotten {
        oldest: u64,
    },
    /// The server was restarted.
    Ended,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                revision: 1,
                tables: HashMap::new(),
                dependents: HashMap::new(),
                places: HashMap::new(),
                epoch: 0,
                floor: 0,
            }),
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.inner.lock().revision
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.inner.lock().epoch
    }

    pub(crate) fn get(&self, table: &str, key: &str) -> Option<Arc<Stored>> {
        self.inner.lock().tables.get(table)?.objects.get(key).cloned()
    }

    /// Writes a state. `expected` is the revision the object must have now, `None` for no object.
    pub(crate) fn put(
        &self,
        table: &Arc<str>,
        key: &str,
        expected: Option<u64>,
        mut value: Value,
    ) -> Result<Event, Clash> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let floor = inner.floor;
        let entry = inner.tables.entry(table.clone()).or_insert_with(|| Table::new(floor));
        let previous = entry.objects.get(key).cloned();
        match (&previous, expected) {
            (Some(_), None) => return Err(Clash::Exists),
            (None, Some(_)) => return Err(Clash::Missing),
            (Some(previous), Some(expected)) if previous.revision != expected => return Err(Clash::Modified),
            _ => {}
        }
        inner.revision += 1;
        let revision = inner.revision;
        set_revision(&mut value, revision);
        let object = Arc::new(Stored::new(&value, revision));
        let place = || (table.clone(), key.to_owned());
        if previous.as_ref().is_none_or(|previous| previous.owners != object.owners) {
            for owner in previous.iter().flat_map(|previous| previous.owners.iter()) {
                if let Some(set) = inner.dependents.get_mut(owner.uid.as_str()) {
                    set.remove(&place());
                }
            }
            for owner in &object.owners {
                inner.dependents.entry(owner.uid.as_str().into()).or_default().insert(place());
            }
        }
        if previous.is_none() {
            inner.places.insert(object.uid.clone(), place());
        }
        entry.objects.insert(key.to_owned(), object.clone());
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        let event = Event { revision, change, object, previous };
        entry.record(event.clone());
        Ok(event)
    }

    /// Removes an object, which must have the expected revision.
    pub(crate) fn remove(&self, table: &str, key: &str, expected: u64) -> Result<Event, Clash> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let entry = inner.tables.get_mut(table).ok_or(Clash::Missing)?;
        let previous = entry.objects.get(key).cloned().ok_or(Clash::Missing)?;
        if previous.revision != expected {
            return Err(Clash::Modified);
        }
        entry.objects.remove(key);
        inner.revision += 1;
        let revision = inner.revision;
        let mut value = previous.value();
        set_revision(&mut value, revision);
        let object = Arc::new(Stored::new(&value, revision));
        inner.places.remove(&object.uid);
        for owner in &object.owners {
            if let Some(set) = inner.dependents.get_mut(owner.uid.as_str()) {
                set.retain(|(other, name)| &**other != table || name != key);
                if set.is_empty() {
                    inner.dependents.remove(owner.uid.as_str());
                }
            }
        }
        let event = Event { revision, change: Change::Deleted, object, previous: Some(previous) };
        entry.record(event.clone());
        Ok(event)
    }

    /// All objects of a table in order; of one namespace when `prefix` is not empty.
    pub(crate) fn list(&self, table: &str, namespace: &str) -> Listing {
        let inner = self.inner.lock();
        let objects =
            inner.tables.get(table).map(|table| within(&table.objects, namespace)).unwrap_or_default();
        Listing { revision: inner.revision, objects }
    }

    /// As [`Store::list`] at an earlier revision.
    pub(crate) fn list_at(
        &self,
        table: &str,
        namespace: &str,
        revision: u64,
    ) -> Result<Listing, Unavailable> {
        let inner = self.inner.lock();
        if revision > inner.revision {
            return Err(Unavailable::Ahead { current: inner.revision });
        }
        let Some(table) = inner.tables.get(table) else {
            return Ok(Listing { revision, objects: Vec::new() });
        };
        if revision < table.forgotten {
            return Err(Unavailable::Forgotten { oldest: table.forgotten });
        }
        if table.log.back().is_none_or(|event| event.revision <= revision) {
            return Ok(Listing { revision, objects: within(&table.objects, namespace) });
        }
        let mut objects = table.objects.clone();
        for event in table.log.iter().rev().take_while(|event| event.revision > revision) {
            match &event.previous {
                Some(previous) => objects.insert(previous.key(), previous.clone()),
                None => objects.remove(&event.object.key()),
            };
        }
        Ok(Listing { revision, objects: within(&objects, namespace) })
    }

    /// Where a watch waits for news of a table.
    pub(crate) fn subscribe(&self, table: &Arc<str>) -> watch::Receiver<u64> {
        let mut inner = self.inner.lock();
        let floor = inner.floor;
        inner.tables.entry(table.clone()).or_insert_with(|| Table::new(floor)).wake.subscribe()
    }

    /// The events of a table after a revision.
    pub(crate) fn read(&self, table: &str, after: u64, epoch: u64) -> Read {
        let inner = self.inner.lock();
        if inner.epoch != epoch {
            return Read::Ended;
        }
        let Some(table) = inner.tables.get(table) else { return Read::Nothing(inner.revision) };
        if after < table.forgotten {
            return Read::Forgotten { oldest: table.forgotten };
        }
        let start = table.log.partition_point(|event| event.revision <= after);
        if start == table.log.len() {
            return Read::Nothing(inner.revision.max(after));
        }
        Read::Events(table.log.range(start..).cloned().collect())
    }

    /// Where the dependents of an owner are.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Place> {
        let mut out: Vec<Place> =
            self.inner.lock().dependents.get(uid).into_iter().flatten().cloned().collect();
        out.sort();
        out
    }

    pub(crate) fn place(&self, uid: &str) -> Option<Place> {
        self.inner.lock().places.get(uid).cloned()
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().tables.values().map(|table| table.objects.len()).sum()
    }

    /// The revision of the last event of some tables: it moves when one of them changes.
    pub(crate) fn last_change(&self, tables: &[&str]) -> u64 {
        let inner = self.inner.lock();
        tables
            .iter()
            .filter_map(|name| inner.tables.get(*name))
            .map(|table| table.log.back().map_or(table.forgotten, |event| event.revision))
            .max()
            .unwrap_or_default()
    }

    /// Objects of one namespace in all tables.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<(Arc<str>, Arc<Stored>)> {
        let inner = self.inner.lock();
        let mut out = Vec::new();
        for (name, table) in &inner.tables {
            out.extend(within(&table.objects, namespace).into_iter().map(|object| (name.clone(), object)));
        }
        out.sort_by(|(a, x), (b, y)| (a, &x.name).cmp(&(b, &y.name)));
        out
    }

    /// Ends all watches; with `forget` the log is lost as well, so that old revisions are gone.
    pub(crate) fn restart(&self, forget: bool) {
        let mut inner = self.inner.lock();
        inner.epoch += 1;
        let revision = inner.revision;
        if forget {
            inner.floor = revision;
        }
        for table in inner.tables.values_mut() {
            if forget {
                table.log.clear();
                table.forgotten = revision;
            }
            table.wake.send_replace(revision);
        }
    }

    /// Everything, for a snapshot: the revision and each object with its table.
    #[expect(clippy::type_complexity, reason = "a pair that is taken apart at once")]
    pub(crate) fn dump(&self) -> (u64, Vec<(Arc<str>, Arc<Stored>)>) {
        let inner = self.inner.lock();
        let mut out = Vec::new();
        for (name, table) in &inner.tables {
            out.extend(table.objects.values().map(|object| (name.clone(), object.clone())));
        }
        (inner.revision, out)
    }

    /// Puts the objects of a snapshot in place of all others.
    pub(crate) fn load(&self, revision: u64, objects: Vec<(Arc<str>, Value)>) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.epoch += 1;
        inner.revision = revision.max(inner.revision);
        inner.dependents.clear();
        inner.places.clear();
        let revision = inner.revision;
        inner.floor = revision;
        for table in inner.tables.values_mut() {
            table.objects.clear();
            table.log.clear();
            table.forgotten = revision;
        }
        for (table, value) in objects {
            let own = value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
            let object = Arc::new(Stored::new(&value, own.unwrap_or(revision)));
            let place = (table.clone(), object.key());
            for owner in &object.owners {
                inner.dependents.entry(owner.uid.as_str().into()).or_default().insert(place.clone());
            }
            inner.places.insert(object.uid.clone(), place.clone());
            let entry = inner.tables.entry(table).or_insert_with(|| Table::new(revision));
            entry.objects.insert(place.1, object);
        }
        for table in inner.tables.values_mut() {
            table.wake.send_replace(revision);
        }
    }
}

fn within(objects: &BTreeMap<String, Arc<Stored>>, namespace: &str) -> Vec<Arc<Stored>> {
    if namespace.is_empty() {
        return objects.values().cloned().collect();
    }
    let start = format!("{namespace}/");
    // '0' follows '/'.
    let end = format!("{namespace}0");
    objects.range(start..end).map(|(_, object)| object.clone()).collect()
}

fn set_revision(value: &mut Value, revision: u64) {
    let Some(object) = value.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, data: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "data": data})
    }

    #[test]
    fn earlier_lists_are_rebuilt_from_the_log() {
        let store = Store::new();
        let table: Arc<str> = "t".into();
        let first = store.put(&table, "a/x", None, object("x", "1")).unwrap();
        let second = store.put(&table, "a/y", None, object("y", "1")).unwrap();
        store.put(&table, "a/x", Some(first.revision), object("x", "2")).unwrap();
        store.remove("t", "a/y", second.revision).unwrap();
        let then = store.list_at("t", "a", second.revision).unwrap();
        let seen: Vec<(String, Value)> =
            then.objects.iter().map(|o| (o.name.to_string(), o.value()["data"].clone())).collect();
        assert_eq!(seen, [("x".to_owned(), json!("1")), ("y".to_owned(), json!("1"))]);
        assert_eq!(store.list("t", "a").objects.len(), 1);
        assert_eq!(store.list("t", "b").objects.len(), 0);
    }

    #[test]
    fn writes_need_the_revision_they_saw() {
        let store = Store::new();
        let table: Arc<str> = "t".into();
        let first = store.put(&table, "a/x", None, object("x", "1")).unwrap();
        assert_eq!(store.put(&table, "a/x", None, object("x", "1")).unwrap_err(), Clash::Exists);
        assert_eq!(store.put(&table, "a/x", Some(1), object("x", "1")).unwrap_err(), Clash::Modified);
        assert_eq!(store.put(&table, "a/y", Some(1), object("y", "1")).unwrap_err(), Clash::Missing);
        assert_eq!(store.remove("t", "a/x", first.revision + 1).unwrap_err(), Clash::Modified);
    }

    #[test]
    fn a_full_log_forgets_and_says_so() {
        let store = Store::new();
        let table: Arc<str> = "t".into();
        let mut revision = store.put(&table, "a/x", None, object("x", "")).unwrap().revision;
        let begin = revision;
        for _ in 0..LOG_EVENTS_MAX {
            revision = store.put(&table, "a/x", Some(revision), object("x", "")).unwrap().revision;
        }
        assert!(matches!(store.read("t", begin - 1, 0), Read::Forgotten { .. }));
        assert!(matches!(store.read("t", revision - 1, 0), Read::Events(events) if events.len() == 1));
    }

    #[test]
    fn dependents_follow_owner_references() {
        let store = Store::new();
        let table: Arc<str> = "t".into();
        let mut child = object("c", "");
        child["metadata"]["ownerReferences"] = json!([{"uid": "u", "kind": "K", "name": "n"}]);
        let event = store.put(&table, "a/c", None, child).unwrap();
        assert_eq!(store.dependents("u").len(), 1);
        store.put(&table, "a/c", Some(event.revision), object("c", "")).unwrap();
        assert!(store.dependents("u").is_empty());
    }
}
