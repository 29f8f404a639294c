//! The structural type model that built-in kinds and custom resources share.
//!
//! It says what merging, pruning, defaulting and printing need to know; value rules of custom resources (patterns,
//! limits, CEL) are kept beside it in [`Schema::rules`].

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// The type of a value and how it merges.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// What values look like.
    pub ty: Type,
    /// `int32`, `byte`, `date-time`…; empty for none.
    pub format: Box<str>,
    /// The fields of a struct; shared between all places that use the struct. `None` for anything but structs.
    pub fields: Option<Arc<Fields>>,
    /// The type of the elements of an array.
    pub items: Option<Arc<Schema>>,
    /// The type of the values of a map with free keys.
    pub additional: Option<Arc<Schema>>,
    /// What a missing value becomes. For built-in kinds an empty object says that the field is a struct that is always
    /// there, if only as `{}`.
    pub default: Option<Value>,
    /// How arrays merge.
    pub list: ListType,
    /// `x-kubernetes-map-type: atomic`: an object is replaced as a whole.
    pub atomic_map: bool,
    /// `x-kubernetes-patch-strategy`, for strategic merge patches.
    pub patch: PatchStrategy,
    /// `x-kubernetes-patch-merge-key`, for strategic merge patches.
    pub patch_merge_key: Option<Box<str>>,
    /// `x-kubernetes-preserve-unknown-fields`: fields without a schema stay.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`: the value is an object with its own `apiVersion`, `kind` and `metadata`.
    pub embedded_resource: bool,
    /// `null` is a value of its own.
    pub nullable: bool,
    /// Rules about values, for custom resources.
    pub rules: Option<Arc<Rules>>,
}

/// The fields of a struct.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    /// By name.
    pub properties: BTreeMap<Box<str>, Schema>,
    /// Names of fields that must be there.
    pub required: Vec<Box<str>>,
}

/// What values look like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Type {
    /// Anything: no type was given.
    #[default]
    Any,
    /// A struct, a map, or both.
    Object,
    /// A list.
    Array,
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A whole number or text.
    IntOrString,
}

/// How arrays merge (`x-kubernetes-list-type`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// As a whole.
    #[default]
    Atomic,
    /// By value.
    Set,
    /// By the fields named.
    Map(Vec<Box<str>>),
}

/// `x-kubernetes-patch-strategy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists merge, by key or by value.
    pub merge: bool,
    /// Maps lose the keys that `$retainKeys` does not name.
    pub retain_keys: bool,
    /// Maps are replaced.
    pub replace: bool,
}

/// Rules about values (`OpenAPI` v3 validation), as the definition wrote them.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The node of `openAPIV3Schema` without `properties`, `items` and `additionalProperties`.
    pub node: Value,
    /// Checks written in CEL.
    pub cel: Vec<CelRule>,
}

/// An entry of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default)]
pub struct CelRule {
    /// The expression.
    pub rule: String,
    /// What is said when it is false; empty for the expression itself.
    pub message: String,
    /// An expression that gives the message; empty for none.
    pub message_expression: String,
    /// `FieldValueInvalid` and the like; empty for `FieldValueInvalid`.
    pub reason: String,
    /// The path that is blamed, relative to the value; empty for the value itself.
    pub field_path: String,
}

impl Schema {
    /// A schema of that type and nothing more.
    pub fn of(ty: Type) -> Self {
        Self { ty, ..Self::default() }
    }

    /// The type of a field: of the struct, or else of the map's values.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.fields.as_ref().and_then(|fields| fields.properties.get(name)).or(self.additional.as_deref())
    }

    /// The type of a named field of the struct.
    pub fn named_field(&self, name: &str) -> Option<&Schema> {
        self.fields.as_ref().and_then(|fields| fields.properties.get(name))
    }

    /// Whether the struct says that the field must be there.
    pub fn is_required(&self, name: &str) -> bool {
        self.fields.as_ref().is_some_and(|fields| fields.required.iter().any(|field| &**field == name))
    }

    /// The type at the end of a path of field names; lists are passed through.
    pub fn at(&self, path: &[&str]) -> Option<&Schema> {
        let mut schema = self;
        for name in path {
            while let Some(items) = &schema.items {
                schema = items;
            }
            schema = schema.field(name)?;
        }
        Some(schema)
    }
}
