//! Tables of ownership rules.

use serde_json::{Value, json};

use super::compare::compare;
use super::managers::{Managed, Operation, Write, apply, conflict_text, update};
use super::merge::merge;
use super::set::FieldSet;
use crate::schema::{Fields, ListType, Schema, Type};
use std::sync::Arc;

fn object(properties: &[(&str, Schema)]) -> Schema {
    let fields = Fields {
        properties: properties.iter().map(|(name, schema)| ((*name).into(), schema.clone())).collect(),
        required: Vec::new(),
    };
    Schema { fields: Some(Arc::new(fields)), ..Schema::of(Type::Object) }
}

fn map_of(schema: Schema) -> Schema {
    Schema { additional: Some(Arc::new(schema)), ..Schema::of(Type::Object) }
}

fn list_of(list: ListType, items: Schema) -> Schema {
    Schema { list, items: Some(Arc::new(items)), ..Schema::of(Type::Array) }
}

fn schema() -> Schema {
    let text = || Schema::of(Type::String);
    let item = object(&[
        ("name", text()),
        ("image", text()),
        ("protocol", Schema { default: Some(json!("TCP")), ..text() }),
    ]);
    object(&[
        ("metadata", object(&[("labels", map_of(text())), ("finalizers", list_of(ListType::Set, text()))])),
        (
            "spec",
            object(&[
                ("replicas", Schema::of(Type::Integer)),
                ("items", list_of(ListType::Map(vec!["name".into()]), item)),
                ("args", list_of(ListType::Atomic, text())),
                ("selector", Schema { atomic_map: true, ..map_of(text()) }),
                ("free", map_of(map_of(text()))),
            ]),
        ),
    ])
}

struct World {
    schema: Schema,
    live: Option<Value>,
    managed: Managed,
}

impl World {
    fn new() -> Self {
        Self { schema: schema(), live: None, managed: Managed::default() }
    }

    fn run<T>(&self, manager: &str, act: impl FnOnce(&Write<'_>) -> T) -> T {
        act(&Write {
            schema: Some(&self.schema),
            api_version: "v1",
            subresource: "",
            manager,
            ignored: &FieldSet::default(),
            now: "2026-01-01T00:00:00Z",
            empty: &json!({}),
            is_served: &|_| true,
        })
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn apply(&mut self, manager: &str, config: Value, force: bool) -> Result<(), String> {
        let live = self.live.clone();
        let managed = self.managed.clone();
        match self.run(manager, |write| apply(live.as_ref(), &config, managed, force, write)) {
            Ok(applied) => {
                if let Some(object) = applied.object {
                    self.live = Some(object);
                }
                self.managed = applied.managed;
                Ok(())
            }
            Err(conflicts) => Err(conflict_text(&conflicts)),
        }
    }

    fn update(&mut self, manager: &str, new: Value) {
        let live = self.live.clone();
        let managed = self.managed.clone();
        self.managed = self.run(manager, |write| update(live.as_ref(), &new, managed, write));
        self.live = Some(new);
    }

    #[track_caller]
    fn owns(&self, manager: &str, paths: &[&str]) {
        let mut found: Vec<String> = self
            .managed
            .0
            .iter()
            .filter(|entry| entry.manager == manager)
            .flat_map(|e| e.set.paths())
            .collect();
        found.sort();
        let mut wanted: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        wanted.sort();
        assert_eq!(found, wanted, "fields of {manager}");
    }

    #[track_caller]
    fn is(&self, want: Value) {
        assert_eq!(self.live, Some(want));
    }
}

#[test]
fn an_applier_owns_what_it_names_and_removes_what_it_no_longer_names() {
    let mut world = World::new();
    world.apply("a", json!({"spec": {"replicas": 1, "args": ["x"], "selector": {"k": "v"}}}), false).unwrap();
    world.owns("a", &[".spec.args", ".spec.replicas", ".spec.selector"]);
    world.apply("a", json!({"spec": {"replicas": 1}}), false).unwrap();
    world.is(json!({"spec": {"replicas": 1}}));
    world.owns("a", &[".spec.replicas"]);
}

#[test]
fn another_value_conflicts_until_forced() {
    let mut world = World::new();
    world.apply("a", json!({"spec": {"replicas": 1, "args": ["x"]}}), false).unwrap();
    let config = json!({"spec": {"replicas": 2, "args": ["y"]}});
    assert_eq!(
        world.apply("b", config.clone(), false).unwrap_err(),
        "conflicts with \"a\":\n- .spec.args\n- .spec.replicas"
    );
    world.apply("b", config, true).unwrap();
    world.owns("a", &[]);
    world.owns("b", &[".spec.args", ".spec.replicas"]);
}

#[test]
fn the_same_value_is_shared_and_stays_until_the_last_owner_lets_go() {
    let mut world = World::new();
    world.apply("a", json!({"spec": {"replicas": 1}}), false).unwrap();
    world.apply("b", json!({"spec": {"replicas": 1}}), false).unwrap();
    world.apply("a", json!({}), false).unwrap();
    world.is(json!({"spec": {"replicas": 1}}));
    world.apply("b", json!({"kind": "K"}), false).unwrap();
    world.is(json!({"kind": "K"}));
}

#[test]
fn elements_of_keyed_lists_have_their_own_owners() {
    let mut world = World::new();
    world.apply("a", json!({"spec": {"items": [{"name": "x", "image": "1"}]}}), false).unwrap();
    world.apply("b", json!({"spec": {"items": [{"name": "y", "image": "2"}]}}), false).unwrap();
    world.is(json!({"spec": {"items": [{"name": "x", "image": "1"}, {"name": "y", "image": "2"}]}}));
    world.owns(
        "b",
        &[".spec.items[name=\"y\"]", ".spec.items[name=\"y\"].image", ".spec.items[name=\"y\"].name"],
    );
    world.apply("a", json!({"spec": {"items": []}}), false).unwrap();
    world.is(json!({"spec": {"items": [{"name": "y", "image": "2"}]}}));
}

#[test]
fn an_update_takes_the_fields_it_changes() {
    let mut world = World::new();
    world.apply("a", json!({"metadata": {"labels": {"k": "v"}}, "spec": {"replicas": 1}}), false).unwrap();
    world.update("u", json!({"metadata": {"labels": {"k": "w", "l": "m"}}, "spec": {"replicas": 1}}));
    world.owns("a", &[".spec.replicas"]);
    world.owns("u", &[".metadata.labels.k", ".metadata.labels.l"]);
    assert_eq!(
        world
            .apply("a", json!({"metadata": {"labels": {"k": "v"}}, "spec": {"replicas": 1}}), false)
            .unwrap_err(),
        "conflict with \"u\" using v1: .metadata.labels.k"
    );
}

#[test]
fn an_object_nobody_owns_belongs_to_the_past_when_first_applied() {
    let mut world = World::new();
    world.live = Some(json!({"spec": {"replicas": 3}}));
    let conflict = world.apply("a", json!({"spec": {"replicas": 1}}), false).unwrap_err();
    assert_eq!(conflict, "conflict with \"before-first-apply\" using v1: .spec.replicas");
}

#[test]
fn an_unchanged_apply_keeps_the_time() {
    let mut world = World::new();
    world.apply("a", json!({"spec": {"replicas": 1}}), false).unwrap();
    world.managed.0[0].time = Some("2020-01-01T00:00:00Z".into());
    world.apply("a", json!({"spec": {"replicas": 1}}), false).unwrap();
    assert_eq!(world.managed.0[0].time.as_deref(), Some("2020-01-01T00:00:00Z"));
    assert_eq!(world.managed.0[0].operation, Operation::Apply);
}

#[test]
fn sets_of_fields_survive_their_notation() {
    let text = json!({
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {"v:\"x\"": {}}},
        "f:spec": {"f:items": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}},
    });
    assert_eq!(FieldSet::from_json(&text).unwrap().to_json(), text);
}

#[test]
fn a_creation_owns_new_maps_as_well_as_their_keys() {
    let new = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"items": [{"name": "c"}]}});
    let changes = compare(&json!({"metadata": {}, "spec": {}}), &new, Some(&schema()));
    assert_eq!(
        changes.added.to_json(),
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:items": {".": {}, "k:{\"name\":\"c\"}": {".": {}, "f:name": {}}}},
        })
    );
}

#[test]
fn merged_lists_take_the_order_of_the_configuration() {
    let list = list_of(ListType::Set, Schema::of(Type::String));
    for (live, config, want) in [
        (json!(["a", "b"]), json!(["b", "a"]), json!(["b", "a"])),
        (json!(["a", "b", "c"]), json!(["c"]), json!(["a", "b", "c"])),
        (json!(["a", "b"]), json!(["x", "b"]), json!(["a", "x", "b"])),
        (json!([]), json!(["x"]), json!(["x"])),
        (json!(["a"]), json!([]), json!(["a"])),
    ] {
        assert_eq!(merge(Some(&live), Some(&config), Some(&list)), want, "{live} + {config}");
    }
}
