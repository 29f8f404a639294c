//! The list of resources being built, with an index by identity so that its size does not matter.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::id::{IdKey, ResourceId};
use crate::resource::{Behavior, Resource};
use crate::schema::Schema;

/// Resources in order of accumulation.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    list: Vec<Resource>,
    current: RefCell<Option<HashMap<IdKey, Vec<usize>>>>,
    any: RefCell<Option<HashMap<IdKey, Vec<usize>>>>,
}

impl Resources {
    pub(crate) fn list(&self) -> &[Resource] {
        &self.list
    }

    /// The resources for changes that may touch names, namespaces or types.
    pub(crate) fn list_mut(&mut self) -> &mut Vec<Resource> {
        self.forget_index();
        &mut self.list
    }

    /// The resources for changes that leave every identity as it is.
    pub(crate) fn list_mut_same_ids(&mut self) -> &mut [Resource] {
        &mut self.list
    }

    pub(crate) fn into_list(self) -> Vec<Resource> {
        self.list
    }

    fn forget_index(&mut self) {
        self.current.get_mut().take();
        self.any.get_mut().take();
    }

    /// Resources whose current identity equals `id`, in order.
    pub(crate) fn with_current_id(&self, id: &ResourceId, schema: &Schema) -> Vec<usize> {
        self.with_current_index(schema, |index| index.get(&id.key()).cloned().unwrap_or_default())
    }

    fn with_current_index<T>(
        &self,
        schema: &Schema,
        look: impl FnOnce(&HashMap<IdKey, Vec<usize>>) -> T,
    ) -> T {
        let mut index = self.current.borrow_mut();
        look(index.get_or_insert_with(|| {
            let mut index: HashMap<IdKey, Vec<usize>> = HashMap::with_capacity(self.list.len());
            for (position, resource) in self.list.iter().enumerate() {
                index.entry(resource.current_id(schema).key()).or_default().push(position);
            }
            index
        }))
    }

    /// Checks that no two resources have the same current identity.
    pub(crate) fn check_unique(&self, schema: &Schema) -> Result<()> {
        let second = self.with_current_index(schema, |index| {
            if index.len() == self.list.len() {
                return None;
            }
            index.values().filter_map(|positions| positions.get(1)).min().copied()
        });
        match second {
            None => Ok(()),
            Some(position) => Err(Error::message(format!(
                "may not add resource with an already registered id: {}",
                self.list[position].current_id(schema)
            ))),
        }
    }

    /// Resources that have or had the identity, in order.
    pub(crate) fn with_any_id(&self, id: &ResourceId, schema: &Schema) -> Vec<usize> {
        let mut index = self.any.borrow_mut();
        let index = index.get_or_insert_with(|| {
            let mut index: HashMap<IdKey, Vec<usize>> = HashMap::with_capacity(self.list.len());
            for (position, resource) in self.list.iter().enumerate() {
                if resource.is_empty() {
                    continue;
                }
                let ids = resource.previous_ids().chain([resource.current_id(schema)]);
                for id in ids {
                    let positions = index.entry(id.key()).or_default();
                    if positions.last() != Some(&position) {
                        positions.push(position);
                    }
                }
            }
            index
        });
        index.get(&id.key()).cloned().unwrap_or_default()
    }

    /// The only resource that has or had the identity.
    pub(crate) fn find_unique(&self, id: &ResourceId, schema: &Schema) -> Result<usize> {
        match self.with_any_id(id, schema).as_slice() {
            [position] => Ok(*position),
            found => Err(Error::message(format!(
                "{} matches for Id {id}; failed to find unique target for patch {id}",
                if found.is_empty() { "no" } else { "multiple" }
            ))),
        }
    }

    /// Adds a resource at the end.
    ///
    /// # Errors
    /// One with the same current identity is there already.
    pub(crate) fn append(&mut self, resource: Resource, schema: &Schema) -> Result<()> {
        let id = resource.current_id(schema);
        if !self.with_current_id(&id, schema).is_empty() {
            return Err(Error::message(format!("may not add resource with an already registered id: {id}")));
        }
        let position = self.list.len();
        if let Some(index) = self.current.get_mut() {
            index.entry(id.key()).or_default().push(position);
        }
        if let Some(index) = self.any.get_mut() {
            for id in resource.previous_ids().chain([id]) {
                let positions = index.entry(id.key()).or_default();
                if positions.last() != Some(&position) {
                    positions.push(position);
                }
            }
        }
        self.list.push(resource);
        Ok(())
    }

    pub(crate) fn append_all(&mut self, resources: Vec<Resource>, schema: &Schema) -> Result<()> {
        resources.into_iter().try_for_each(|resource| self.append(resource, schema))
    }

    /// Removes resources whose tree is gone.
    pub(crate) fn drop_empty(&mut self) {
        if self.list.iter().any(Resource::is_empty) {
            self.list_mut().retain(|resource| !resource.is_empty());
        }
    }

    /// Takes in a generated object: appended, merged into or put in place of an equal one.
    pub(crate) fn absorb(&mut self, mut new: Resource, schema: &Schema) -> Result<()> {
        let id = new.current_id(schema);
        let behavior = new.behavior;
        match self.with_any_id(&id, schema).as_slice() {
            [] => match behavior {
                Behavior::Merge | Behavior::Replace => {
                    Err(Error::message(format!("id {id} does not exist; cannot merge or replace")))
                }
                _ => self.append(new, schema),
            },
            [position] => {
                let position = *position;
                let old = &self.list[position];
                match behavior {
                    Behavior::Replace => new.take_metadata_from(old),
                    Behavior::Merge => {
                        new.take_metadata_from(old);
                        new.merge_data_from(old, "data");
                        new.merge_data_from(old, "binaryData");
                        if old.origin.is_some() {
                            new.origin.clone_from(&old.origin);
                        }
                    }
                    other => {
                        return Err(Error::message(format!(
                            "id {id} exists; can not use behavior: '{}', behavior must be merge or replace",
                            other.name()
                        )));
                    }
                }
                self.list_mut()[position] = new;
                Ok(())
            }
            many => {
                let ids: Vec<String> =
                    many.iter().map(|position| self.list[*position].current_id(schema).to_string()).collect();
                Err(Error::message(format!(
                    "found multiple objects [{}] that could accept merge of {id}",
                    ids.join(" ")
                )))
            }
        }
    }
}
