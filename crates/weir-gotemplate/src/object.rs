//! Structs and named scalars that templates can look into: times, versions, certificates,
//! capabilities.

use std::any::Any;

use crate::function::Method;
use crate::value::{Kind, Value};

/// A Go struct, a pointer to one, or a scalar of a named type.
pub trait Object: 'static {
    /// The type as `%T` prints it (`time.Time`, `*semver.Version`).
    fn type_name(&self) -> &str;

    /// [`Kind::Struct`], [`Kind::Ptr`], or the kind of the named scalar.
    fn kind(&self) -> Kind {
        Kind::Struct
    }

    /// The exported field, if there is one of that name.
    fn field(&self, name: &str) -> Option<Value> {
        self.fields().into_iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// All fields in order, as `%v` prints them.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The methods templates can call.
    fn methods(&self) -> &'static [Method] {
        &[]
    }

    /// The text of `String()` or `Error()`, if the type has one.
    fn text(&self) -> Option<String> {
        None
    }

    /// The text an action prints where that differs from `%v`: Go finds `String` methods of pointers
    /// only where it can take an address.
    fn action_text(&self) -> Option<String> {
        None
    }

    /// The integer of a named integer type.
    fn integer(&self) -> Option<i64> {
        None
    }

    /// The truth of the value: structs are always true.
    fn truth(&self) -> bool {
        self.integer().is_none_or(|value| value != 0)
    }

    /// A plain value whose JSON is that of the object.
    fn json(&self) -> Result<Value, String> {
        if let Some(value) = self.integer() {
            return Ok(Value::Int64(value));
        }
        Ok(Value::map(self.fields()))
    }

    /// Equality of two objects of the same type.
    fn equal(&self, other: &dyn Object) -> bool;

    /// For functions that know the concrete type.
    fn as_any(&self) -> &dyn Any;
}
