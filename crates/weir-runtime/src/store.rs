//! The objects of a kind, kept up to date by a watch and shared by everyone who reads them.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use kube::Resource;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::ObjectKey;

/// What happened to an object of a [`Store`].
#[derive(Debug)]
pub enum Change<K> {
    /// It is new here; `initial` while the first list is read in.
    Added {
        /// The object.
        object: Arc<K>,
        /// Whether it was there before this process started to watch.
        initial: bool,
    },
    /// It was changed.
    Updated {
        /// Before.
        old: Arc<K>,
        /// After.
        new: Arc<K>,
    },
    /// It is gone; the last state that was seen.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The newest state of the object.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added { object, .. } | Self::Updated { new: object, .. } | Self::Deleted(object) => object,
        }
    }
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: Arc::clone(object), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: Arc::clone(old), new: Arc::clone(new) },
            Self::Deleted(object) => Self::Deleted(Arc::clone(object)),
        }
    }
}

type Subscriber<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;
type KeysOf<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

struct IndexData<K> {
    keys_of: KeysOf<K>,
    entries: HashMap<String, BTreeSet<ObjectKey>>,
}

impl<K> IndexData<K> {
    fn insert(&mut self, key: &ObjectKey, object: &K) {
        for value in (self.keys_of)(object) {
            self.entries.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &ObjectKey, object: &K) {
        for value in (self.keys_of)(object) {
            if let Some(keys) = self.entries.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.entries.remove(&value);
                }
            }
        }
    }
}

struct Data<K> {
    objects: HashMap<ObjectKey, Arc<K>>,
    indexes: Vec<IndexData<K>>,
}

impl<K> Data<K> {
    fn set(&mut self, key: &ObjectKey, object: &Arc<K>) -> Option<Arc<K>> {
        let old = self.objects.insert(key.clone(), Arc::clone(object));
        for index in &mut self.indexes {
            if let Some(old) = &old {
                index.remove(key, old);
            }
            index.insert(key, object);
        }
        old
    }

    fn unset(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        for index in &mut self.indexes {
            index.remove(key, &old);
        }
        Some(old)
    }
}

struct Shared<K> {
    data: RwLock<Data<K>>,
    /// Held while a change is made and told, so that subscribers see changes in order.
    subscribers: Mutex<Vec<Subscriber<K>>>,
    synced: watch::Sender<bool>,
}

/// The objects of a kind. Cloning gives another handle to the same objects.
///
/// [`Runtime::watch`](crate::Runtime::watch) keeps a store up to date; tests fill one by hand.
pub struct Store<K>(Arc<Shared<K>>);

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Store({} objects)", self.0.data.read().objects.len())
    }
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self(Arc::new(Shared {
            data: RwLock::new(Data { objects: HashMap::new(), indexes: Vec::new() }),
            subscribers: Mutex::new(Vec::new()),
            synced: watch::Sender::new(false),
        }))
    }
}

impl<K> Store<K> {
    /// The object with this key, if there is one.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.0.data.read().objects.get(key).cloned()
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.0.data.read().objects.values().cloned().collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.data.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the first list has been read in.
    pub async fn synced(&self) {
        // The sender lives in `self`, so it cannot go away while this waits.
        let _ = self.0.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Whether the first list has been read in.
    pub fn is_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// Calls `subscriber` for every change from now on, in order, on the task that made the change.
    ///
    /// It must return quickly, may read any store, and must not change this one.
    pub fn on_change(&self, subscriber: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.0.subscribers.lock().push(Arc::new(subscriber));
    }
}

impl<K: 'static> Store<K> {
    /// Looks up objects by a value computed from them, such as the source a Kustomization refers to.
    pub fn index(&self, keys_of: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Index<K> {
        let mut data = self.0.data.write();
        let mut index = IndexData { keys_of: Box::new(keys_of), entries: HashMap::new() };
        for (key, object) in &data.objects {
            index.insert(key, object);
        }
        data.indexes.push(index);
        Index { store: self.clone(), position: data.indexes.len() - 1 }
    }
}

impl<K: Resource> Store<K> {
    /// Adds or replaces an object. An object whose resource version is known and not newer than the
    /// one held is ignored.
    pub fn apply(&self, object: K) {
        self.change(object, Origin::Watch);
    }

    /// Replaces an object that is still here by what the API server answered to a write, so that
    /// the next run does not start from an older state. Does not bring back a deleted object.
    pub(crate) fn apply_written(&self, object: K) {
        self.change(object, Origin::Write);
    }

    fn change(&self, mut object: K, origin: Origin) {
        object.meta_mut().managed_fields = None;
        let key = ObjectKey::of(&object);
        let subscribers = self.0.subscribers.lock();
        let change = {
            let mut data = self.0.data.write();
            let held = data.objects.get(&key);
            let same_object = held.is_some_and(|held| held.meta().uid == object.meta().uid);
            if let Some(held) = held
                && same_object
                && !origin.supersedes(
                    held.meta().resource_version.as_deref(),
                    object.meta().resource_version.as_deref(),
                )
            {
                return;
            }
            if origin == Origin::Write && !same_object {
                return;
            }
            let new = Arc::new(object);
            match data.set(&key, &new) {
                Some(old) if old.meta().uid == new.meta().uid => Change::Updated { old, new },
                _ => Change::Added { object: new, initial: !self.is_synced() },
            }
        };
        for subscriber in subscribers.iter() {
            subscriber(&change);
        }
    }

    /// Removes an object.
    pub fn remove(&self, key: &ObjectKey) {
        let subscribers = self.0.subscribers.lock();
        let Some(old) = self.0.data.write().unset(key) else {
            return;
        };
        let change = Change::Deleted(old);
        for subscriber in subscribers.iter() {
            subscriber(&change);
        }
    }

    /// Replaces everything by a complete list: what is not in it is deleted. Marks the store as
    /// synced.
    pub fn replace(&self, objects: Vec<K>) {
        let listed: BTreeSet<ObjectKey> = objects.iter().map(ObjectKey::of).collect();
        let gone: Vec<ObjectKey> = {
            let data = self.0.data.read();
            data.objects.keys().filter(|key| !listed.contains(key)).cloned().collect()
        };
        for key in gone {
            self.remove(&key);
        }
        for object in objects {
            self.change(object, Origin::List);
        }
        self.0.synced.send_replace(true);
    }
}

/// Where a state of an object comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A watch event; may lag behind our own writes.
    Watch,
    /// The answer to a write.
    Write,
    /// A complete list; true even if the versions went back, as after a restored etcd backup.
    List,
}

impl Origin {
    /// Whether the resource version `new` replaces `old`. Versions that cannot be ordered replace
    /// each other unless they are equal.
    fn supersedes(self, old: Option<&str>, new: Option<&str>) -> bool {
        let (Some(old), Some(new)) = (old, new) else {
            return true;
        };
        if self == Self::List {
            return old != new;
        }
        match (old.parse::<u128>(), new.parse::<u128>()) {
            (Ok(old), Ok(new)) => new > old,
            _ => old != new,
        }
    }
}

/// A lookup of the objects of a [`Store`] by a computed value.
#[derive(Debug, Clone)]
pub struct Index<K> {
    store: Store<K>,
    position: usize,
}

impl<K> Index<K> {
    /// The objects that have this value, ordered by key.
    pub fn get(&self, value: &str) -> Vec<Arc<K>> {
        let data = self.store.0.data.read();
        let Some(keys) = data.indexes[self.position].entries.get(value) else {
            return Vec::new();
        };
        keys.iter().filter_map(|key| data.objects.get(key).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn object(name: &str, uid: &str, version: &str, label: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("apps".to_owned()),
                name: Some(name.to_owned()),
                uid: Some(uid.to_owned()),
                resource_version: Some(version.to_owned()),
                labels: Some([("source".to_owned(), label.to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    fn recording(store: &Store<ConfigMap>) -> Arc<Mutex<Vec<String>>> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        store.on_change(move |change| {
            let word = match change {
                Change::Added { initial: true, .. } => "initial",
                Change::Added { initial: false, .. } => "added",
                Change::Updated { .. } => "updated",
                Change::Deleted(_) => "deleted",
            };
            let meta = &change.object().metadata;
            sink.lock().push(format!(
                "{word} {}@{}",
                meta.name.as_deref().unwrap(),
                meta.resource_version.as_deref().unwrap()
            ));
        });
        seen
    }

    #[test]
    fn changes_are_told_in_order_and_once() {
        let store = Store::default();
        let seen = recording(&store);
        store.replace(vec![object("a", "1", "10", "x")]);
        store.apply(object("a", "1", "10", "x"));
        store.apply(object("a", "1", "12", "x"));
        // An older state arrives late: the watch lags behind our own write.
        store.apply(object("a", "1", "11", "x"));
        store.apply(object("b", "2", "13", "x"));
        store.remove(&ObjectKey::new("apps", "a"));
        store.remove(&ObjectKey::new("apps", "a"));
        assert_eq!(*seen.lock(), ["initial a@10", "updated a@12", "added b@13", "deleted a@12"]);
    }

    #[test]
    fn a_new_list_deletes_what_is_not_in_it() {
        let store = Store::default();
        store.replace(vec![object("a", "1", "10", "x"), object("b", "2", "10", "x")]);
        let seen = recording(&store);
        store.replace(vec![object("b", "2", "10", "x"), object("c", "3", "14", "x")]);
        assert_eq!(*seen.lock(), ["deleted a@10", "added c@14"]);
    }

    #[test]
    fn a_recreated_object_is_new_even_with_the_same_name() {
        let store = Store::default();
        store.replace(vec![object("a", "1", "10", "x")]);
        let seen = recording(&store);
        store.apply(object("a", "2", "11", "x"));
        assert_eq!(*seen.lock(), ["added a@11"]);
    }

    #[test]
    fn the_answer_to_a_write_does_not_bring_back_a_deleted_object() {
        let store = Store::default();
        store.replace(vec![object("a", "1", "10", "x")]);
        store.apply_written(object("a", "1", "11", "x"));
        assert_eq!(
            store.get(&ObjectKey::new("apps", "a")).unwrap().metadata.resource_version.as_deref(),
            Some("11")
        );
        store.remove(&ObjectKey::new("apps", "a"));
        store.apply_written(object("a", "1", "12", "x"));
        assert!(store.is_empty());
    }

    #[test]
    fn an_index_follows_every_change() {
        let store = Store::default();
        store.replace(vec![object("a", "1", "10", "x")]);
        let index = store
            .index(|map: &ConfigMap| map.metadata.labels.iter().flatten().map(|(_, v)| v.clone()).collect());
        let names = |value: &str| -> Vec<String> {
            index.get(value).iter().map(|map| ObjectKey::of(&**map).to_string()).collect()
        };
        store.apply(object("b", "2", "11", "x"));
        assert_eq!(names("x"), ["apps/a", "apps/b"]);
        store.apply(object("a", "1", "12", "y"));
        assert_eq!(names("x"), ["apps/b"]);
        assert_eq!(names("y"), ["apps/a"]);
        store.remove(&ObjectKey::new("apps", "b"));
        assert!(names("x").is_empty());
    }
}
