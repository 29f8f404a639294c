//! Creating and changing objects.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::GroupVersionKind;
use crate::admit::Request;
use crate::body::{self, Decoded};
use crate::call::{Call, FieldValidation};
use crate::cluster::Inner;
use crate::edit::{Edit, check_kind, patch_error, patched, read_patch, restore_text, warn_duplicates};
use crate::error::{ApiError, Subject};
use crate::fields::check;
use crate::fields::managers::{self, Managed, Write};
use crate::kinds::Kind;
use crate::meta;
use crate::reply::{Content, Reply};
use crate::rules;
use crate::status::{Cause, CauseReason};
use crate::store::{self, Clash, Stored};

/// How often a change is tried again when somebody else wrote in between.
const TRIES_MAX: usize = 16;

impl Inner {
    /// Creates an object of a request.
    pub(crate) fn create(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let decoded = body::read_object(&call.content_type, &call.body, &kind.gvk.kind)?;
        let mut object = self.expect(call, kind, &kind.gvk, decoded)?;
        let name = meta::text(&object, "name").to_owned();
        if !meta::text(&object, "resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(500, "", message));
        }
        rules::set_defaults(kind, &mut object);
        self.check_namespace(kind, &call.target.namespace, &name)?;
        self.check_definition(kind, &name)?;
        if !kind.is_builtin() {
            for finalizer in meta::finalizers(&object).iter().filter(|name| !name.contains('/')) {
                call.warn(format!(
                    "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
                ));
            }
        }
        let taken = managers::take(&mut object);
        let managed = managers::live_or_new(None, taken.as_ref(), "");
        let manager = call.manager();
        let now = self.now();
        let managed = self
            .with_write(kind, "", &manager, &now, |write| managers::update(None, &object, managed, write));
        let stored = self.insert(kind, object, managed, call.is_dry_run())?;
        Ok(Reply { code: 201, content: Content::Object { kind: kind.clone(), json: stored } })
    }

    /// Creates an object for the server itself, with a field manager if one is named.
    pub(crate) fn create_object(
        &self,
        kind: &Arc<Kind>,
        mut object: Value,
        manager: Option<&str>,
    ) -> Result<Bytes, ApiError> {
        rules::decode(kind, &mut object).map_err(ApiError::bad_request)?;
        rules::set_defaults(kind, &mut object);
        let now = self.now();
        let managed = match manager {
            Some(manager) => self.with_write(kind, "", manager, &now, |write| {
                managers::update(None, &object, Managed::default(), write)
            }),
            None => Managed::default(),
        };
        self.insert(kind, object, managed, false)
    }

    /// The last steps of a creation: identity, preparation, validation, storing.
    fn insert(
        &self,
        kind: &Arc<Kind>,
        mut object: Value,
        managed: Managed,
        dry_run: bool,
    ) -> Result<Bytes, ApiError> {
        let generated =
            meta::text(&object, "name").is_empty() && !meta::text(&object, "generateName").is_empty();
        let prefix: String = meta::text(&object, "generateName").chars().take(58).collect();
        for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid", "resourceVersion"]
        {
            meta::set_or_remove(&mut object, name, None);
        }
        meta::set(&mut object, "uid", json!(self.new_uid()));
        meta::set(&mut object, "creationTimestamp", json!(self.now()));
        if let Some(mutate) = &self.mutate {
            mutate(&mut object);
        }
        self.admit_pod(kind, &mut object)?;
        rules::prepare_create(kind, &mut object);
        if generated {
            meta::set(&mut object, "name", json!(format!("{prefix}{}", self.new_suffix())));
        }
        if kind.is_builtin() {
            crate::builtin::encode(&kind.gvk, &mut object);
        }
        let name = meta::text(&object, "name").to_owned();
        let mut causes = meta::validate(kind, &object);
        causes.extend(rules::validate_create(kind, &object));
        if !causes.is_empty() {
            return Err(ApiError::invalid(kind.subject_kind(&name), &causes));
        }
        self.admit(&Request { operation: "CREATE", kind, object: &object, old: &Value::Null, dry_run })?;
        managers::put(&mut object, managed);
        let key = store::key(meta::text(&object, "namespace"), &name);
        if let Some(found) = self.store.get(&kind.table, &key) {
            let mut error = ApiError::already_exists(kind.subject(&name));
            if found.deleting {
                error.message = format!("object is being deleted: {}", error.message);
            }
            return Err(error);
        }
        self.allocate(kind, &mut object, None, dry_run)?;
        if dry_run {
            return Ok(to_bytes(&object));
        }
        let event = self
            .store
            .put(&kind.table, &key, None, self.to_stored(kind, object))
            .map_err(|_| ApiError::already_exists(kind.subject(&name)))?;
        let bytes = self.bytes_as(kind, &event.object);
        self.after(&event, &kind.table);
        Ok(bytes)
    }

    /// Gives a service its addresses and ports.
    fn allocate(
        &self,
        kind: &Kind,
        object: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        if &*kind.table != "/services" {
            return Ok(());
        }
        let mut services = self.services.lock();
        let outcome =
            if dry_run { services.clone().allocate(object, old) } else { services.allocate(object, old) };
        outcome.map_err(|causes| ApiError::invalid(kind.subject_kind(meta::text(object, "name")), &causes))
    }

    /// Changes an object.
    pub(crate) fn edit(
        &self,
        call: &Call,
        kind: &Arc<Kind>,
        subresource: &str,
        edit: &Edit,
    ) -> Result<Reply, ApiError> {
        let target = &call.target;
        let key = store::key(&target.namespace, &target.name);
        for _ in 0..TRIES_MAX {
            let Some(stored) = self.store.get(&kind.table, &key) else {
                return match edit {
                    Edit::Apply(config) if subresource.is_empty() => {
                        match self.create_by_apply(call, kind, config.clone()) {
                            Err(error) if error.reason == "AlreadyExists" => continue,
                            other => other,
                        }
                    }
                    _ => Err(ApiError::not_found(kind.subject(&target.name))),
                };
            };
            if let Some(reply) = self.edit_once(call, kind, subresource, edit, &key, &stored)? {
                return Ok(reply);
            }
        }
        Err(ApiError::modified(kind.subject(&target.name)))
    }

    fn create_by_apply(&self, call: &Call, kind: &Arc<Kind>, mut config: Value) -> Result<Reply, ApiError> {
        self.check_config(call, kind, &mut config)?;
        self.check_namespace(kind, &call.target.namespace, &call.target.name)?;
        let uid = meta::text(&config, "uid");
        if !uid.is_empty() {
            let cause = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(ApiError::conflict(kind.subject(&call.target.name), &cause));
        }
        let manager = call.manager();
        let now = self.now();
        let applied = self
            .with_write(kind, "", &manager, &now, |write| {
                managers::apply(None, &config, Managed::default(), true, write)
            })
            .map_err(|conflicts| conflict_error(&conflicts))?;
        let mut object = applied.object.unwrap_or(config);
        self.shape(call, kind, &mut object, Vec::new(), None)?;
        rules::set_defaults(kind, &mut object);
        let json = self.insert(kind, object, applied.managed, call.is_dry_run())?;
        Ok(Reply { code: 201, content: Content::Object { kind: kind.clone(), json } })
    }

    /// One try; `None` when somebody else wrote in between.
    fn edit_once(
        &self,
        call: &Call,
        kind: &Arc<Kind>,
        subresource: &str,
        edit: &Edit,
        key: &str,
        stored: &Stored,
    ) -> Result<Option<Reply>, ApiError> {
        let name = call.target.name.as_str();
        let mut old = self.value_as(kind, stored);
        let old_list = managers::take(&mut old);
        let manager = call.manager();
        let now = self.now();
        let (mut new, managed) = match edit {
            Edit::Apply(config) => {
                let mut config = config.clone();
                self.check_config(call, kind, &mut config)?;
                check_revision(kind, &config, &old, name)?;
                let managed = Managed::decode(old_list.as_ref()).unwrap_or_default();
                let applied = self
                    .with_write(kind, subresource, &manager, &now, |write| {
                        managers::apply(Some(&old), &config, managed, call.query.is_true("force"), write)
                    })
                    .map_err(|conflicts| conflict_error(&conflicts))?;
                let mut new = match applied.object {
                    Some(object) => object,
                    None => old.clone(),
                };
                self.shape(call, kind, &mut new, Vec::new(), None)?;
                rules::set_defaults(kind, &mut new);
                (new, applied.managed)
            }
            other => {
                let mut new = if let Edit::Put(object) = other {
                    object.clone()
                } else {
                    let mut whole = old.clone();
                    if let Some(list) = &old_list {
                        meta::set(&mut whole, "managedFields", list.clone());
                    }
                    patched(kind, other, whole, call, subresource)?
                };
                if !matches!(other, Edit::Put(_)) {
                    let duplicates = Vec::new();
                    self.shape(call, kind, &mut new, duplicates, Some(other))?;
                    rules::set_defaults(kind, &mut new);
                }
                if meta::text(&new, "name").is_empty() {
                    meta::set(&mut new, "name", json!(name));
                }
                let taken = managers::take(&mut new);
                let uid = meta::text(&new, "uid");
                if !uid.is_empty() && uid != meta::text(&old, "uid") {
                    if !matches!(other, Edit::Put(_)) {
                        return Err(ApiError::invalid(kind.subject_kind(name), &[immutable("uid", &new)]));
                    }
                    let cause = format!(
                        "StorageError: invalid object, Code: 4, Key: /registry/{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                        kind.plural,
                        meta::text(&old, "uid")
                    );
                    return Err(ApiError::conflict(kind.subject(name), &cause));
                }
                let deletion = &new["metadata"]["deletionTimestamp"];
                if !deletion.is_null() && *deletion != old["metadata"]["deletionTimestamp"] {
                    let cause = immutable("deletionTimestamp", &new);
                    return Err(ApiError::invalid(kind.subject_kind(name), &[cause]));
                }
                if matches!(other, Edit::Put(_)) && meta::text(&new, "resourceVersion").is_empty() {
                    if !kind.is_builtin() {
                        let cause = Cause {
                            field: "metadata.resourceVersion".to_owned(),
                            reason: CauseReason::Invalid,
                            value: Some("0".to_owned()),
                            detail: "must be specified for an update".to_owned(),
                        };
                        return Err(ApiError::invalid(kind.subject(name), &[cause]));
                    }
                    meta::set(&mut new, "resourceVersion", old["metadata"]["resourceVersion"].clone());
                }
                check_revision(kind, &new, &old, name)?;
                carry_metadata(&mut new, &old);
                let managed = managers::live_or_new(old_list.as_ref(), taken.as_ref(), subresource);
                let managed = self.with_write(kind, subresource, &manager, &now, |write| {
                    managers::update(Some(&old), &new, managed, write)
                });
                (new, managed)
            }
        };
        carry_metadata(&mut new, &old);
        if subresource.is_empty()
            && let Some(mutate) = &self.mutate
        {
            mutate(&mut new);
        }
        rules::prepare_update(kind, &mut new, &old, subresource);
        if kind.is_builtin() {
            crate::builtin::encode(&kind.gvk, &mut new);
        }
        meta::set(&mut new, "resourceVersion", old["metadata"]["resourceVersion"].clone());
        let managed_list = managed.encode();
        let unchanged = new == old && same_but_times(managed_list.as_ref(), old_list.as_ref());
        let reply = |json: Bytes| {
            Ok(Some(Reply { code: 200, content: Content::Object { kind: kind.clone(), json } }))
        };
        if unchanged {
            return reply(self.bytes_as(kind, stored));
        }
        let mut causes = meta::validate_update(&new, &old);
        if new["metadata"] != old["metadata"] {
            causes.extend(meta::validate(kind, &new));
        }
        causes.extend(rules::validate_update(kind, &new, &old, subresource));
        if !causes.is_empty() {
            return Err(ApiError::invalid(kind.subject_kind(name), &causes));
        }
        if subresource.is_empty() {
            let dry_run = call.is_dry_run();
            self.admit(&Request { operation: "UPDATE", kind, object: &new, old: &old, dry_run })?;
        }
        meta::set_or_remove(&mut new, "managedFields", managed_list);
        if subresource.is_empty() {
            self.allocate(kind, &mut new, Some(&old), call.is_dry_run())?;
        }
        if call.is_dry_run() {
            return reply(to_bytes(&new));
        }
        let gone = stored.deleting
            && meta::finalizers(&new).is_empty()
            && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
            && (!rules::is_namespace(kind)
                || crate::crd::schema::texts(&new["spec"]["finalizers"]).is_empty());
        let written = if gone {
            let body = to_bytes(&new);
            self.store.remove(&kind.table, key, stored.revision).map(|event| (event, Some(body)))
        } else {
            self.store
                .put(&kind.table, key, Some(stored.revision), self.to_stored(kind, new))
                .map(|event| (event, None))
        };
        match written {
            Ok((event, body)) => {
                let bytes = body.unwrap_or_else(|| self.bytes_as(kind, &event.object));
                self.after(&event, &kind.table);
                reply(bytes)
            }
            Err(Clash::Missing) => Err(ApiError::not_found(kind.subject(name))),
            Err(Clash::Exists | Clash::Modified) => Ok(None),
        }
    }

    /// Replaces an object.
    pub(crate) fn put(&self, call: &Call, kind: &Arc<Kind>, subresource: &str) -> Result<Reply, ApiError> {
        let decoded = body::read_object(&call.content_type, &call.body, &kind.gvk.kind)?;
        let mut object = self.expect(call, kind, &kind.gvk, decoded)?;
        let name = meta::text(&object, "name");
        if name.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.target.name
            )));
        }
        if name != call.target.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.target.name
            )));
        }
        rules::set_defaults(kind, &mut object);
        self.edit(call, kind, subresource, &Edit::Put(object))
    }

    /// Patches an object by the type of the body.
    pub(crate) fn patch(&self, call: &Call, kind: &Arc<Kind>, subresource: &str) -> Result<Reply, ApiError> {
        let edit = read_patch(call, kind.is_builtin())?;
        self.edit(call, kind, subresource, &edit)
    }

    /// Reads an object that must be of the given kind, in its namespace, and gives it its form.
    pub(crate) fn expect(
        &self,
        call: &Call,
        kind: &Kind,
        gvk: &GroupVersionKind,
        decoded: Decoded,
    ) -> Result<Value, ApiError> {
        let Decoded { value: mut object, duplicates, yaml_duplicates } = decoded;
        if !yaml_duplicates.is_empty() {
            match call.field_validation() {
                FieldValidation::Ignore => {}
                FieldValidation::Warn => warn_duplicates(call, &yaml_duplicates),
                FieldValidation::Strict => {
                    return Err(ApiError::bad_request(format!(
                        "{} in version {:?} cannot be handled as a {}: strict decoding error: {yaml_duplicates}",
                        kind.gvk.kind, kind.gvk.version, kind.gvk.kind
                    )));
                }
            }
        }
        check_kind(gvk, kind.is_builtin(), &mut object)?;
        let namespace = meta::text(&object, "namespace").to_owned();
        if kind.namespaced {
            if namespace.is_empty() {
                meta::set(&mut object, "namespace", json!(call.target.namespace));
            } else if namespace != call.target.namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        }
        if !kind.namespaced {
            meta::set_or_remove(&mut object, "namespace", None);
        }
        self.shape(call, kind, &mut object, duplicates, None)?;
        Ok(object)
    }

    /// Decodes by the kind's type and tells about fields that it does not know.
    #[expect(clippy::unused_self, reason = "called beside methods that need the cluster")]
    fn shape(
        &self,
        call: &Call,
        kind: &Kind,
        object: &mut Value,
        duplicates: Vec<String>,
        patch: Option<&Edit>,
    ) -> Result<(), ApiError> {
        // What a refusal of a patch shows.
        let before = if patch.is_some() { object.clone() } else { Value::Null };
        let refuse = |what: &str| match patch {
            None => ApiError::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: {what}",
                kind.gvk.kind, kind.gvk.version, kind.gvk.kind
            )),
            Some(edit @ Edit::Strategic(_)) => patch_error(edit, &before, &restore_text(what)),
            Some(edit) => patch_error(edit, &before, what),
        };
        let unknown = rules::decode(kind, object).map_err(|error| refuse(&error))?;
        let mut texts: Vec<String> =
            duplicates.into_iter().map(|path| format!("duplicate field {path:?}")).collect();
        texts.extend(unknown.into_iter().map(|path| format!("unknown field {path:?}")));
        if texts.is_empty() {
            return Ok(());
        }
        match call.field_validation() {
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                for text in texts {
                    call.warn(text);
                }
                Ok(())
            }
            FieldValidation::Strict => Err(refuse(&format!("strict decoding error: {}", texts.join(", ")))),
        }
    }

    /// Whether an applied configuration is of the kind and fits its type.
    #[expect(clippy::unused_self, reason = "called beside methods that need the cluster")]
    fn check_config(&self, call: &Call, kind: &Kind, config: &mut Value) -> Result<(), ApiError> {
        let api_version = config["apiVersion"].as_str().unwrap_or_default();
        let word = config["kind"].as_str().unwrap_or_default();
        if api_version != kind.gvk.api_version() || word != kind.gvk.kind {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            return Err(ApiError::bad_request(format!(
                "invalid object type: {group}/{version}, Kind={word}"
            )));
        }
        let written_namespace = meta::text(config, "namespace").to_owned();
        let name = meta::text(config, "name").to_owned();
        if !name.is_empty() && name != call.target.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.target.name
            )));
        }
        if config["metadata"].get("managedFields").is_some_and(|list| !list.is_null()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        meta::set(config, "name", json!(call.target.name));
        if kind.namespaced {
            let namespace = meta::text(config, "namespace");
            if !namespace.is_empty() && namespace != call.target.namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            meta::set(config, "namespace", json!(call.target.namespace));
        } else {
            meta::set_or_remove(config, "namespace", None);
        }
        let mistakes = check::check(config, kind.schema());
        if mistakes.is_empty() {
            return Ok(());
        }
        let place = format!("{written_namespace}/{}", call.target.name);
        let list = match mistakes.as_slice() {
            [only] => only.clone(),
            all => format!("errors:\n  {}", all.join("\n  ")),
        };
        Err(ApiError::new(
            500,
            "",
            format!(
                "failed to create typed patch object ({place}; {}/{}, Kind={}): {list}",
                kind.gvk.group, kind.gvk.version, kind.gvk.kind
            ),
        ))
    }

    /// Runs with what a write of this kind is measured by.
    pub(crate) fn with_write<T>(
        &self,
        kind: &Kind,
        subresource: &str,
        manager: &str,
        now: &str,
        act: impl FnOnce(&Write<'_>) -> T,
    ) -> T {
        let kinds = self.kinds();
        let api_version = kind.gvk.api_version();
        let ignored = if subresource == "status" { &kind.reset_status } else { &kind.reset };
        act(&Write {
            schema: kind.schema(),
            api_version: &api_version,
            subresource,
            manager,
            ignored,
            now,
            empty: kind.empty(),
            is_served: &|version| kinds.has_group_version(version),
        })
    }

    /// Whether something may be created in a namespace.
    pub(crate) fn check_namespace(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), ApiError> {
        if !kind.namespaced {
            return Ok(());
        }
        let Some(found) = self.store.get(crate::cluster::NAMESPACES_TABLE, namespace) else {
            return Err(ApiError::not_found(Subject { group: "", word: "namespaces", name: namespace }));
        };
        if !found.deleting {
            return Ok(());
        }
        let mut error = ApiError::forbidden(
            kind.subject(name),
            &format!("unable to create new content in namespace {namespace} because it is being terminated"),
        );
        if let Some(details) = error.details.as_mut() {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        Err(error)
    }

    /// Whether objects of a kind may still be created.
    fn check_definition(&self, kind: &Kind, name: &str) -> Result<(), ApiError> {
        if kind.is_builtin() {
            return Ok(());
        }
        match self.store.get(crate::cluster::DEFINITIONS, &kind.qualified()) {
            Some(found) if found.deleting => Err(ApiError::forbidden(
                kind.subject(name),
                "create not allowed while custom resource definition is terminating",
            )),
            _ => Ok(()),
        }
    }

    #[expect(clippy::unused_self, reason = "called beside methods that need the cluster")]
    pub(crate) fn warn_deprecated(&self, call: &Call, kind: &Kind) {
        if kind.is_builtin() && kind.gvk.group.is_empty() {
            match kind.plural.as_str() {
                "endpoints" => {
                    call.warn("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice");
                }
                "componentstatuses" if kind.has_verb(call.verb) => {
                    call.warn("v1 ComponentStatus is deprecated in v1.19+");
                }
                _ => {}
            }
        }
        if let Some(text) = kind.custom.as_ref().and_then(|version| version.deprecation.as_ref()) {
            call.warn(text.clone());
        }
    }
}

fn immutable(field: &str, object: &Value) -> Cause {
    Cause {
        field: format!("metadata.{field}"),
        reason: CauseReason::Invalid,
        value: Some(object["metadata"][field].to_string()),
        detail: "field is immutable".to_owned(),
    }
}

/// Whether the revision that a write names is the current one.
fn check_revision(kind: &Kind, new: &Value, old: &Value, name: &str) -> Result<(), ApiError> {
    let revision = meta::text(new, "resourceVersion");
    if !revision.is_empty() && revision != meta::text(old, "resourceVersion") {
        return Err(ApiError::modified(kind.subject(name)));
    }
    Ok(())
}

/// What no write changes.
fn carry_metadata(new: &mut Value, old: &Value) {
    for name in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"]
    {
        meta::set_or_remove(new, name, old["metadata"].get(name).cloned());
    }
    meta::set_or_remove(new, "selfLink", None);
    if let Some(namespace) = old["metadata"].get("namespace")
        && meta::text(new, "namespace").is_empty()
    {
        meta::set(new, "namespace", namespace.clone());
    }
}

fn same_but_times(a: Option<&Value>, b: Option<&Value>) -> bool {
    let timeless = |list: Option<&Value>| -> Vec<Value> {
        let mut list = list.and_then(Value::as_array).cloned().unwrap_or_default();
        for entry in &mut list {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        list.sort_by_key(ToString::to_string);
        list
    };
    timeless(a) == timeless(b)
}

fn conflict_error(conflicts: &[managers::Conflict]) -> ApiError {
    let count =
        if conflicts.len() == 1 { "1 conflict".to_owned() } else { format!("{} conflicts", conflicts.len()) };
    let message = format!("Apply failed with {count}: {}", managers::conflict_text(conflicts));
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.manager),
                "field": conflict.field,
            })
        })
        .collect();
    ApiError::new(409, "Conflict", message).with_details(json!({"causes": causes}))
}

pub(crate) fn to_bytes(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}
