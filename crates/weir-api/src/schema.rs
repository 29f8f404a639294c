//! Pieces of schema that derive alone cannot express.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Declares an enum whose values are fixed strings of the API.
///
/// Besides serde and schema it gives `ALL`, `as_str` and `Display`.
macro_rules! string_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the CRD.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value as it is written in objects.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "enum": [$($text),+]})
            }
        }
    };
}
pub(crate) use string_enum;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
pub(crate) const fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// A Go `int`: an integer without a format.
pub(crate) fn without_format(schema: &mut Schema) {
    schema.remove("format");
}

/// Any value at all.
pub(crate) fn any(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// A map of any values.
pub(crate) fn any_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": true}})
}

/// A list of maps of any values.
pub(crate) fn any_map_list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": any_map(generator)})
}

/// A list of objects of any shape.
pub(crate) fn object_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
}
