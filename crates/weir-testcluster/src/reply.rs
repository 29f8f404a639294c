//! Answers before they take the form that the client wants.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use crate::cluster::Inner;
use crate::kinds::Kind;
use crate::negotiate::Form;
use crate::store::Stored;
use crate::table;

/// An answer.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) content: Content,
}

/// What an answer holds.
pub(crate) enum Content {
    /// One object of a kind.
    Object { kind: Arc<Kind>, json: Bytes },
    /// Many objects of a kind.
    List(List),
    /// Something that has one form only, as a `Status`.
    Value(Value),
    /// A watch begins.
    Watch(crate::watch::Plan),
    /// Bytes of another type.
    Raw { content_type: &'static str, bytes: Bytes },
}

/// Objects of a kind at a revision.
pub(crate) struct List {
    pub(crate) kind: Arc<Kind>,
    pub(crate) objects: Vec<Arc<Stored>>,
    pub(crate) revision: u64,
    pub(crate) next: String,
    pub(crate) remaining: Option<usize>,
}

impl List {
    fn metadata(&self) -> Value {
        let mut out = json!({"resourceVersion": self.revision.to_string()});
        if !self.next.is_empty() || !self.kind.is_builtin() {
            out["continue"] = json!(self.next);
        }
        if let Some(remaining) = self.remaining {
            out["remainingItemCount"] = json!(remaining);
        }
        out
    }
}

impl Reply {
    pub(crate) fn value(code: u16, value: Value) -> Self {
        Self { code, content: Content::Value(value) }
    }
}

/// The bytes of an object in a form.
pub(crate) fn render_object(
    cluster: &Inner,
    kind: &Kind,
    json: &Bytes,
    form: Form,
    include: Include,
) -> Bytes {
    match form {
        Form::Json | Form::Discovery => json.clone(),
        Form::Yaml => {
            let value: Value = serde_json::from_slice(json).unwrap_or_default();
            Bytes::from(weir_manifest::to_yaml(&value))
        }
        Form::Metadata => {
            let value: Value = serde_json::from_slice(json).unwrap_or_default();
            to_bytes(&partial(&value))
        }
        Form::Table => {
            let value: Value = serde_json::from_slice(json).unwrap_or_default();
            let revision = value["metadata"]["resourceVersion"].clone();
            let mut table =
                table::table(kind, std::slice::from_ref(&value), include, cluster.timestamp(), true);
            table["metadata"] = json!({"resourceVersion": revision});
            to_bytes(&table)
        }
    }
}

/// How much of the objects the rows of a table hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "None" => Self::Nothing,
            "Object" => Self::Object,
            _ => Self::Metadata,
        }
    }
}

/// The metadata of an object.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// The bytes of a list in a form.
pub(crate) fn render_list(cluster: &Inner, list: &List, form: Form, include: Include) -> Bytes {
    let kind = &list.kind;
    match form {
        Form::Json | Form::Discovery | Form::Yaml => {
            let size: usize =
                list.objects.iter().map(|object| object.json.len() + kind.prefix.len() + 1).sum();
            let mut out = BytesMut::with_capacity(size + 256);
            out.put_slice(
                format!(
                    "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
                    json!(kind.list_kind),
                    json!(kind.gvk.api_version()),
                    list.metadata()
                )
                .as_bytes(),
            );
            let converts = cluster.needs_conversion(kind);
            for (index, object) in list.objects.iter().enumerate() {
                if index > 0 {
                    out.put_u8(b',');
                }
                if converts {
                    out.put_slice(&cluster.bytes_as(kind, object));
                } else if kind.is_builtin() {
                    // A real server leaves the kind out within lists of built-in kinds.
                    out.put_slice(&object.json);
                } else {
                    out.put_slice(&kind.prefix);
                    out.put_slice(object.json.get(1..).unwrap_or_default());
                }
            }
            out.put_slice(b"]}");
            if form == Form::Yaml {
                let value: Value = serde_json::from_slice(&out).unwrap_or_default();
                return Bytes::from(weir_manifest::to_yaml(&value));
            }
            out.freeze()
        }
        Form::Metadata => {
            let items: Vec<Value> = list.objects.iter().map(|object| partial(&object.value())).collect();
            to_bytes(&json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": list.metadata(),
                "items": items,
            }))
        }
        Form::Table => {
            let objects: Vec<Value> =
                list.objects.iter().map(|object| cluster.value_as(kind, object)).collect();
            let mut table = table::table(kind, &objects, include, cluster.timestamp(), true);
            table["metadata"] = list.metadata();
            to_bytes(&table)
        }
    }
}

fn to_bytes(value: &Value) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}
