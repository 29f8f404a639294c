//! The values templates work on, with Go's types kept apart wherever output depends on them.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use crate::deep;
use crate::function::Method;
use crate::object::Object;
use crate::text::Text;

/// A Go value. Cloning is cheap; maps are shared, so a change through one clone is seen by all.
#[derive(Clone, Default)]
pub enum Value {
    /// Untyped nil.
    #[default]
    Nil,
    /// `bool`
    Bool(bool),
    /// `int`: literals, `len`, `int`.
    Int(i64),
    /// `int64`: most of Sprig's arithmetic.
    Int64(i64),
    /// `uint8`: an element of a string or of bytes.
    Uint8(u8),
    /// `uint64`: parts of semantic versions.
    Uint64(u64),
    /// `float64`: every number that comes from YAML or JSON.
    Float(f64),
    /// `string`
    String(Text),
    /// `[]byte`
    Bytes(Text),
    /// A slice.
    List(List),
    /// A map with string keys.
    Map(Map),
    /// A struct, a pointer to one, or a named scalar with methods.
    Object(Rc<dyn Object>),
}

/// The element type of a slice or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `interface {}`
    Any,
    /// `string`
    String,
    /// `int`
    Int,
    /// `[]byte`
    Bytes,
    /// `[]interface {}`
    Anys,
    /// `map[string]interface {}`
    AnyMap,
}

/// A named slice or map type and its methods.
#[derive(Debug)]
pub struct NamedType {
    /// The name as `%T` prints it.
    pub name: &'static str,
    /// The methods templates can call.
    pub methods: &'static [Method],
}

/// A slice: immutable and shared.
#[derive(Clone)]
pub struct List {
    items: Option<Rc<Items>>,
    element: Element,
    named: Option<&'static NamedType>,
}

/// The items of a list; dropping deeply nested ones must not overflow the stack.
struct Items(Vec<Value>);

impl Drop for Items {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            deep(|| self.0.clear());
        }
    }
}

/// What makes the entries of a map when they are needed.
type Fill = Box<dyn FnOnce() -> Entries>;

/// The entries of a map; dropping deeply nested ones must not overflow the stack.
struct Shared {
    entries: RefCell<Entries>,
    pending: RefCell<Option<Fill>>,
}

impl Shared {
    fn new(entries: Entries) -> Rc<Self> {
        Rc::new(Self { entries: RefCell::new(entries), pending: RefCell::new(None) })
    }

    fn entries(&self) -> &RefCell<Entries> {
        if self.pending.borrow().is_some()
            && let Some(fill) = self.pending.take()
        {
            *self.entries.borrow_mut() = fill();
        }
        &self.entries
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.entries.get_mut().is_empty() {
            deep(|| self.entries.get_mut().clear());
        }
    }
}

/// The entries of a map, sorted as Go prints and ranges over them.
pub type Entries = BTreeMap<Text, Value>;

/// A map with string keys: shared and mutable through every clone.
#[derive(Clone)]
pub struct Map {
    entries: Option<Rc<Shared>>,
    element: Element,
    named: Option<&'static NamedType>,
}

/// Go's `reflect.Kind`, as far as values here have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Go's")]
pub enum Kind {
    Invalid,
    Bool,
    Int,
    Int64,
    Uint8,
    Uint64,
    Float64,
    String,
    Slice,
    Map,
    Struct,
    Ptr,
}

impl Kind {
    /// The name as `kindOf` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int64 => "int64",
            Self::Uint8 => "uint8",
            Self::Uint64 => "uint64",
            Self::Float64 => "float64",
            Self::String => "string",
            Self::Slice => "slice",
            Self::Map => "map",
            Self::Struct => "struct",
            Self::Ptr => "ptr",
        }
    }
}

impl Element {
    /// The name of the type as Go prints it.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::String => "string",
            Self::Int => "int",
            Self::Bytes => "[]uint8",
            Self::Anys => "[]interface {}",
            Self::AnyMap => "map[string]interface {}",
        }
    }

    /// The zero value of the type.
    pub fn zero(self) -> Value {
        match self {
            Self::Any => Value::Nil,
            Self::String => Value::String(Text::default()),
            Self::Int => Value::Int(0),
            Self::Bytes => Value::Bytes(Text::default()),
            Self::Anys => Value::List(List::nil(Self::Any)),
            Self::AnyMap => Value::Map(Map::nil()),
        }
    }
}

impl List {
    /// `[]interface {}` with these items.
    pub fn new(items: Vec<Value>) -> Self {
        Self::typed(items, Element::Any)
    }

    /// A slice of the given element type; the caller passes items of that type.
    pub fn typed(items: Vec<Value>, element: Element) -> Self {
        Self { items: Some(Rc::new(Items(items))), element, named: None }
    }

    /// `[]string`
    pub fn strings<T: Into<Text>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::typed(items.into_iter().map(|item| Value::String(item.into())).collect(), Element::String)
    }

    /// The nil slice of an element type.
    pub fn nil(element: Element) -> Self {
        Self { items: None, element, named: None }
    }

    /// The same slice as a value of a named type.
    #[must_use]
    pub fn named(mut self, named: &'static NamedType) -> Self {
        self.named = Some(named);
        self
    }

    /// The items.
    pub fn items(&self) -> &[Value] {
        self.items.as_ref().map_or(&[], |items| items.0.as_slice())
    }

    /// Whether it is the nil slice (which prints like an empty one but is `null` in JSON).
    pub fn is_nil(&self) -> bool {
        self.items.is_none()
    }

    /// The type of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The named type, if it has one.
    pub fn named_type(&self) -> Option<&'static NamedType> {
        self.named
    }

    /// The type as `%T` prints it.
    pub fn type_name(&self) -> String {
        self.named.map_or_else(|| format!("[]{}", self.element.type_name()), |n| n.name.to_owned())
    }
}

impl Map {
    /// `map[string]interface {}` with these entries.
    pub fn new(entries: Entries) -> Self {
        Self::typed(entries, Element::Any)
    }

    /// A map of the given element type; the caller passes entries of that type.
    pub fn typed(entries: Entries, element: Element) -> Self {
        Self { entries: Some(Shared::new(entries)), element, named: None }
    }

    /// A map whose entries are made when something first looks at them.
    pub fn lazy(element: Element, fill: impl FnOnce() -> Entries + 'static) -> Self {
        let shared = Shared { entries: RefCell::default(), pending: RefCell::new(Some(Box::new(fill))) };
        Self { entries: Some(Rc::new(shared)), element, named: None }
    }

    /// The nil `map[string]interface {}`: reads as empty, cannot be written.
    pub fn nil() -> Self {
        Self { entries: None, element: Element::Any, named: None }
    }

    /// The same map, still sharing its entries, as a value of a named type.
    #[must_use]
    pub fn named(mut self, named: &'static NamedType) -> Self {
        self.named = Some(named);
        self
    }

    /// The same map, still sharing its entries, as a value of the plain type.
    #[must_use]
    pub fn plain(mut self) -> Self {
        self.named = None;
        self
    }

    /// Whether it is the nil map.
    pub fn is_nil(&self) -> bool {
        self.entries.is_none()
    }

    /// The type of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The named type, if it has one.
    pub fn named_type(&self) -> Option<&'static NamedType> {
        self.named
    }

    /// The type as `%T` prints it.
    pub fn type_name(&self) -> String {
        self.named
            .map_or_else(|| format!("map[string]{}", self.element.type_name()), |named| named.name.to_owned())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| entries.entries().borrow().len())
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at `key`.
    pub fn get(&self, key: &[u8]) -> Option<Value> {
        self.entries.as_ref()?.entries().borrow().get(key).cloned()
    }

    /// [`Map::get`] for a name that a template has: quicker.
    pub(crate) fn get_field(&self, key: &Text) -> Option<Value> {
        self.entries.as_ref()?.entries().borrow().get(key).cloned()
    }

    /// Whether there is an entry at `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.entries.as_ref().is_some_and(|entries| entries.entries().borrow().contains_key(key))
    }

    /// Sets an entry for every holder of the map; `false` if the map is nil.
    pub fn insert(&self, key: impl Into<Text>, value: Value) -> bool {
        let Some(entries) = &self.entries else { return false };
        entries.entries().borrow_mut().insert(key.into(), value);
        true
    }

    /// Removes an entry for every holder of the map.
    pub fn remove(&self, key: &[u8]) {
        if let Some(entries) = &self.entries {
            entries.entries().borrow_mut().remove(key);
        }
    }

    /// A copy of the entries (values are shared).
    pub fn to_entries(&self) -> Entries {
        self.entries.as_ref().map(|entries| entries.entries().borrow().clone()).unwrap_or_default()
    }

    /// The entries, borrowed; `None` for the nil map. Do not hold it while templates run.
    pub fn borrow(&self) -> Option<Ref<'_, Entries>> {
        self.entries.as_ref().map(|entries| entries.entries().borrow())
    }

    /// The entries for changing; `None` for the nil map. Do not hold it while templates run.
    pub fn borrow_mut(&self) -> Option<RefMut<'_, Entries>> {
        self.entries.as_ref().map(|entries| entries.entries().borrow_mut())
    }

    /// Whether both are the same map (not: have the same entries).
    pub fn same(&self, other: &Self) -> bool {
        match (&self.entries, &other.entries) {
            (Some(left), Some(right)) => Rc::ptr_eq(left, right),
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

impl<K: Into<Text>> FromIterator<(K, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(entries: I) -> Self {
        Self::new(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }
}

/// How deeply values may be nested before conversions and printing give up, in levels.
pub const NESTING_LEVELS_MAX: usize = 1000;

/// How many values a conversion, copy or comparison visits before it gives up: shared values can stand
/// for far more than the memory they take.
pub const VISITED_VALUES_MAX: u64 = 2_000_000;

/// Bytes printing or encoding one value may give before it gives up.
pub const PRINTED_BYTES_MAX: usize = 32 << 20;

impl Value {
    /// A string value.
    pub fn string(text: impl Into<Text>) -> Self {
        Self::String(text.into())
    }

    /// `[]interface {}`
    pub fn list(items: Vec<Value>) -> Self {
        Self::List(List::new(items))
    }

    /// `map[string]interface {}`
    pub fn map<K: Into<Text>>(entries: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Map(entries.into_iter().collect())
    }

    /// A struct or named scalar.
    pub fn object(object: impl Object) -> Self {
        Self::Object(Rc::new(object))
    }

    /// The value JSON text decodes to in Go: all numbers are `float64`.
    pub fn from_json(json: &serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Nil,
            serde_json::Value::Bool(value) => Self::Bool(*value),
            serde_json::Value::Number(number) => Self::Float(number.as_f64().unwrap_or(0.0)),
            serde_json::Value::String(text) => Self::string(text.as_str()),
            serde_json::Value::Array(items) => Self::list(items.iter().map(Self::from_json).collect()),
            serde_json::Value::Object(entries) => {
                Self::map(entries.iter().map(|(key, item)| (key.as_str(), Self::from_json(item))))
            }
        }
    }

    /// Go's `reflect.Kind` of the value.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Nil => Kind::Invalid,
            Self::Bool(_) => Kind::Bool,
            Self::Int(_) => Kind::Int,
            Self::Int64(_) => Kind::Int64,
            Self::Uint8(_) => Kind::Uint8,
            Self::Uint64(_) => Kind::Uint64,
            Self::Float(_) => Kind::Float64,
            Self::String(_) => Kind::String,
            Self::Bytes(_) | Self::List(_) => Kind::Slice,
            Self::Map(_) => Kind::Map,
            Self::Object(object) => object.kind(),
        }
    }

    /// The type as `%T` prints it.
    pub fn type_name(&self) -> String {
        match self {
            Self::Nil => "<nil>".to_owned(),
            Self::Bool(_) => "bool".to_owned(),
            Self::Int(_) => "int".to_owned(),
            Self::Int64(_) => "int64".to_owned(),
            Self::Uint8(_) => "uint8".to_owned(),
            Self::Uint64(_) => "uint64".to_owned(),
            Self::Float(_) => "float64".to_owned(),
            Self::String(_) => "string".to_owned(),
            Self::Bytes(_) => "[]uint8".to_owned(),
            Self::List(list) => list.type_name(),
            Self::Map(map) => map.type_name(),
            Self::Object(object) => object.type_name().to_owned(),
        }
    }

    /// The truth of `if`, `with`, `and`, `or` and `not`.
    pub fn truth(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value) | Self::Int64(value) => *value != 0,
            Self::Uint8(value) => *value != 0,
            Self::Uint64(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::String(text) | Self::Bytes(text) => !text.is_empty(),
            Self::List(list) => !list.items().is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Object(object) => object.truth(),
        }
    }

    /// The integer of an `int` or `int64` kind.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) | Self::Int64(value) => Some(*value),
            Self::Object(object) => object.integer(),
            _ => None,
        }
    }

    /// The integer of a `uint` kind.
    pub fn as_uint(&self) -> Option<u64> {
        match self {
            Self::Uint8(value) => Some(u64::from(*value)),
            Self::Uint64(value) => Some(*value),
            _ => None,
        }
    }

    /// The items if it is a slice (bytes give `uint8` items).
    pub fn slice_items(&self) -> Option<std::borrow::Cow<'_, [Value]>> {
        match self {
            Self::List(list) => Some(std::borrow::Cow::Borrowed(list.items())),
            Self::Bytes(bytes) => {
                Some(std::borrow::Cow::Owned(bytes.iter().map(|byte| Self::Uint8(*byte)).collect()))
            }
            _ => None,
        }
    }

    /// Whether it is nil of any type (`v == nil` after `reflect`'s `IsNil`).
    pub fn is_nil(&self) -> bool {
        match self {
            Self::Nil => true,
            Self::List(list) => list.is_nil(),
            Self::Map(map) => map.is_nil(),
            _ => false,
        }
    }

    /// `reflect.DeepEqual`: equal types and equal contents; NaN differs from itself.
    pub fn deep_equal(&self, other: &Self) -> bool {
        self.deep_equal_at(other, 0, &mut 0)
    }

    fn deep_equal_at(&self, other: &Self, level: usize, visited: &mut u64) -> bool {
        *visited += 1;
        if level > NESTING_LEVELS_MAX || *visited > VISITED_VALUES_MAX {
            return false;
        }
        match (self, other) {
            (Self::Nil, Self::Nil) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::Int(left), Self::Int(right)) | (Self::Int64(left), Self::Int64(right)) => left == right,
            (Self::Uint8(left), Self::Uint8(right)) => left == right,
            (Self::Uint64(left), Self::Uint64(right)) => left == right,
            #[expect(clippy::float_cmp, reason = "Go compares exactly")]
            (Self::Float(left), Self::Float(right)) => left == right,
            (Self::String(left), Self::String(right)) | (Self::Bytes(left), Self::Bytes(right)) => {
                left == right
            }
            (Self::List(left), Self::List(right)) => {
                left.is_nil() == right.is_nil()
                    && left.type_name() == right.type_name()
                    && left.items().len() == right.items().len()
                    && left
                        .items()
                        .iter()
                        .zip(right.items())
                        .all(|(left, right)| deep(|| left.deep_equal_at(right, level + 1, visited)))
            }
            (Self::Map(left), Self::Map(right)) => {
                if left.is_nil() != right.is_nil() || left.type_name() != right.type_name() {
                    return false;
                }
                if left.same(right) {
                    return true;
                }
                let (Some(left), Some(right)) = (left.borrow(), right.borrow()) else {
                    return true;
                };
                left.len() == right.len()
                    && left.iter().zip(right.iter()).all(|(left, right)| {
                        left.0 == right.0 && deep(|| left.1.deep_equal_at(right.1, level + 1, visited))
                    })
            }
            (Self::Object(left), Self::Object(right)) => {
                left.type_name() == right.type_name() && left.equal(right.as_ref())
            }
            _ => false,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = crate::format::sprintf(b"%#v", std::slice::from_ref(self));
        formatter.write_str(&String::from_utf8_lossy(&text))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::string(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::string(text)
    }
}
