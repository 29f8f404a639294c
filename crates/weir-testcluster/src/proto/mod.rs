//! Reading the protobuf bodies that clients written in Go send for some built-in kinds.
//!
//! Options, reviews and subresources are described here; all other kinds by recorded numbers of their fields. Answers are
//! JSON, which every client accepts.

mod messages;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The bytes that each body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// The body is not readable as one of the known kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// What a field holds.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Number,
    Flag,
    Time,
    MicroTime,
    Message(&'static [Field]),
    Texts,
    Messages(&'static [Field]),
    TextMap,
    BytesMap,
}

struct Field(u64, &'static str, Type);

const OWNER: &[Field] = &[
    Field(1, "kind", Type::Text),
    Field(3, "name", Type::Text),
    Field(4, "uid", Type::Text),
    Field(5, "apiVersion", Type::Text),
    Field(6, "controller", Type::Flag),
    Field(7, "blockOwnerDeletion", Type::Flag),
];

const METADATA: &[Field] = &[
    Field(1, "name", Type::Text),
    Field(2, "generateName", Type::Text),
    Field(3, "namespace", Type::Text),
    Field(5, "uid", Type::Text),
    Field(6, "resourceVersion", Type::Text),
    Field(7, "generation", Type::Number),
    Field(8, "creationTimestamp", Type::Time),
    Field(9, "deletionTimestamp", Type::Time),
    Field(10, "deletionGracePeriodSeconds", Type::Number),
    Field(11, "labels", Type::TextMap),
    Field(12, "annotations", Type::TextMap),
    Field(13, "ownerReferences", Type::Messages(OWNER)),
    Field(14, "finalizers", Type::Texts),
];

const REFERENCE: &[Field] = &[
    Field(1, "kind", Type::Text),
    Field(2, "namespace", Type::Text),
    Field(3, "name", Type::Text),
    Field(4, "uid", Type::Text),
    Field(5, "apiVersion", Type::Text),
    Field(6, "resourceVersion", Type::Text),
    Field(7, "fieldPath", Type::Text),
];

const DELETE_OPTIONS: &[Field] = &[
    Field(1, "gracePeriodSeconds", Type::Number),
    Field(
        2,
        "preconditions",
        Type::Message(&[Field(1, "uid", Type::Text), Field(2, "resourceVersion", Type::Text)]),
    ),
    Field(3, "orphanDependents", Type::Flag),
    Field(4, "propagationPolicy", Type::Text),
    Field(5, "dryRun", Type::Texts),
];

/// The spec of a review about oneself or others.
const ACCESS: &[Field] = &[
    Field(
        1,
        "resourceAttributes",
        Type::Message(&[
            Field(1, "namespace", Type::Text),
            Field(2, "verb", Type::Text),
            Field(3, "group", Type::Text),
            Field(4, "version", Type::Text),
            Field(5, "resource", Type::Text),
            Field(6, "subresource", Type::Text),
            Field(7, "name", Type::Text),
        ]),
    ),
    Field(
        2,
        "nonResourceAttributes",
        Type::Message(&[Field(1, "path", Type::Text), Field(2, "verb", Type::Text)]),
    ),
    Field(3, "user", Type::Text),
    Field(4, "groups", Type::Texts),
    Field(6, "uid", Type::Text),
];

const REVIEW: &[Field] =
    &[Field(1, "metadata", Type::Message(METADATA)), Field(2, "spec", Type::Message(ACCESS))];

/// The known kinds.
const KINDS: &[(&str, &str, &[Field])] = &[
    (
        "v1",
        "Secret",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(2, "data", Type::BytesMap),
            Field(3, "type", Type::Text),
            Field(4, "stringData", Type::TextMap),
            Field(5, "immutable", Type::Flag),
        ],
    ),
    (
        "v1",
        "ConfigMap",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(2, "data", Type::TextMap),
            Field(3, "binaryData", Type::BytesMap),
            Field(4, "immutable", Type::Flag),
        ],
    ),
    (
        "v1",
        "Namespace",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(2, "spec", Type::Message(&[Field(1, "finalizers", Type::Texts)])),
            Field(3, "status", Type::Message(&[Field(1, "phase", Type::Text)])),
        ],
    ),
    (
        "v1",
        "ServiceAccount",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(2, "secrets", Type::Messages(REFERENCE)),
            Field(3, "imagePullSecrets", Type::Messages(&[Field(1, "name", Type::Text)])),
            Field(4, "automountServiceAccountToken", Type::Flag),
        ],
    ),
    (
        "coordination.k8s.io/v1",
        "Lease",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(
                2,
                "spec",
                Type::Message(&[
                    Field(1, "holderIdentity", Type::Text),
                    Field(2, "leaseDurationSeconds", Type::Number),
                    Field(3, "acquireTime", Type::MicroTime),
                    Field(4, "renewTime", Type::MicroTime),
                    Field(5, "leaseTransitions", Type::Number),
                    Field(6, "strategy", Type::Text),
                    Field(7, "preferredHolder", Type::Text),
                ]),
            ),
        ],
    ),
    (
        "v1",
        "Event",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(2, "involvedObject", Type::Message(REFERENCE)),
            Field(3, "reason", Type::Text),
            Field(4, "message", Type::Text),
            Field(
                5,
                "source",
                Type::Message(&[Field(1, "component", Type::Text), Field(2, "host", Type::Text)]),
            ),
            Field(6, "firstTimestamp", Type::Time),
            Field(7, "lastTimestamp", Type::Time),
            Field(8, "count", Type::Number),
            Field(9, "type", Type::Text),
            Field(10, "eventTime", Type::MicroTime),
            Field(12, "action", Type::Text),
            Field(13, "related", Type::Message(REFERENCE)),
            Field(14, "reportingComponent", Type::Text),
            Field(15, "reportingInstance", Type::Text),
        ],
    ),
    ("v1", "DeleteOptions", DELETE_OPTIONS),
    (
        "v1",
        "Binding",
        &[Field(1, "metadata", Type::Message(METADATA)), Field(2, "target", Type::Message(REFERENCE))],
    ),
    (
        "policy/v1",
        "Eviction",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(2, "deleteOptions", Type::Message(DELETE_OPTIONS)),
        ],
    ),
    (
        "autoscaling/v1",
        "Scale",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(2, "spec", Type::Message(&[Field(1, "replicas", Type::Number)])),
        ],
    ),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", REVIEW),
    ("authorization.k8s.io/v1", "SubjectAccessReview", REVIEW),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview", REVIEW),
    (
        "authorization.k8s.io/v1",
        "SelfSubjectRulesReview",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(2, "spec", Type::Message(&[Field(1, "namespace", Type::Text)])),
        ],
    ),
    ("authentication.k8s.io/v1", "SelfSubjectReview", &[Field(1, "metadata", Type::Message(METADATA))]),
    (
        "authentication.k8s.io/v1",
        "TokenReview",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(
                2,
                "spec",
                Type::Message(&[Field(1, "token", Type::Text), Field(2, "audiences", Type::Texts)]),
            ),
        ],
    ),
    (
        "authentication.k8s.io/v1",
        "TokenRequest",
        &[
            Field(1, "metadata", Type::Message(METADATA)),
            Field(
                2,
                "spec",
                Type::Message(&[
                    Field(1, "audiences", Type::Texts),
                    Field(
                        3,
                        "boundObjectRef",
                        Type::Message(&[
                            Field(1, "kind", Type::Text),
                            Field(2, "apiVersion", Type::Text),
                            Field(3, "name", Type::Text),
                            Field(4, "uid", Type::Text),
                        ]),
                    ),
                    Field(4, "expirationSeconds", Type::Number),
                ]),
            ),
        ],
    ),
];

/// Reads a body with its envelope.
pub(crate) fn decode(body: &[u8]) -> Result<Value, Unreadable> {
    const TYPE: &[Field] = &[Field(1, "apiVersion", Type::Text), Field(2, "kind", Type::Text)];
    let envelope = body.strip_prefix(MAGIC).ok_or(Unreadable)?;
    let mut kind = Value::Null;
    let mut raw: &[u8] = &[];
    for part in parts(envelope) {
        match part? {
            (1, Part::Bytes(bytes)) => kind = message(bytes, TYPE)?,
            (2, Part::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let text = |name: &str| kind[name].as_str().unwrap_or_default();
    let (api_version, name) = (text("apiVersion"), text("kind"));
    // Options are of the group they are sent to.
    let known = KINDS
        .iter()
        .find(|(version, kind, _)| *kind == name && (*version == api_version || name == "DeleteOptions"));
    let mut object = match known {
        Some(known) => message(raw, known.2)?,
        None => messages::object(api_version, name, raw).ok_or(Unreadable)??,
    };
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(name);
    Ok(object)
}

#[derive(Debug)]
enum Part<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// The fields of a message by number.
fn parts(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u64, Part<'_>), Unreadable>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let read = next_part(&mut bytes);
        if read.is_err() {
            bytes = &[];
        }
        Some(read)
    })
}

fn next_part<'b>(bytes: &mut &'b [u8]) -> Result<(u64, Part<'b>), Unreadable> {
    let tag = varint(bytes)?;
    let part = match tag & 7 {
        0 => Part::Number(varint(bytes)?),
        1 => {
            take(bytes, 8)?;
            Part::Number(0)
        }
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| Unreadable)?;
            Part::Bytes(take(bytes, length)?)
        }
        5 => {
            take(bytes, 4)?;
            Part::Number(0)
        }
        _ => return Err(Unreadable),
    };
    Ok((tag >> 3, part))
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Result<&'b [u8], Unreadable> {
    let (head, rest) = bytes.split_at_checked(length).ok_or(Unreadable)?;
    *bytes = rest;
    Ok(head)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Unreadable> {
    let mut out = 0_u64;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first().ok_or(Unreadable)?;
        *bytes = rest;
        out |= u64::from(byte & 0x7f) << (place * 7);
        if byte & 0x80 == 0 {
            return Ok(out);
        }
    }
    Err(Unreadable)
}

fn text(bytes: &[u8]) -> Result<String, Unreadable> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Unreadable)
}

fn message(bytes: &[u8], fields: &'static [Field]) -> Result<Value, Unreadable> {
    let mut out = Map::new();
    for part in parts(bytes) {
        let (number, part) = part?;
        let Some(Field(_, name, ty)) = fields.iter().find(|field| field.0 == number) else { continue };
        let list = |out: &mut Map<String, Value>, item: Value| {
            if let Value::Array(items) = out.entry(*name).or_insert_with(|| json!([])) {
                items.push(item);
            }
        };
        match (ty, part) {
            // Empty texts are those that nobody set.
            (Type::Text, Part::Bytes(b"")) => {}
            (Type::Text, Part::Bytes(bytes)) => _ = out.insert((*name).to_owned(), json!(text(bytes)?)),
            (Type::Number, Part::Number(number)) => _ = out.insert((*name).to_owned(), json!(number as i64)),
            (Type::Flag, Part::Number(number)) => _ = out.insert((*name).to_owned(), json!(number != 0)),
            (Type::Time | Type::MicroTime, Part::Bytes(bytes)) => {
                if let Some(time) = time(bytes, matches!(ty, Type::MicroTime))? {
                    out.insert((*name).to_owned(), json!(time));
                }
            }
            (Type::Message(below), Part::Bytes(bytes)) => {
                out.insert((*name).to_owned(), message(bytes, below)?);
            }
            (Type::Texts, Part::Bytes(bytes)) => list(&mut out, json!(text(bytes)?)),
            (Type::Messages(below), Part::Bytes(bytes)) => list(&mut out, message(bytes, below)?),
            (Type::TextMap | Type::BytesMap, Part::Bytes(bytes)) => {
                let as_text = matches!(ty, Type::TextMap);
                let (mut key, mut value) = (String::new(), json!(""));
                for part in parts(bytes) {
                    match part? {
                        (1, Part::Bytes(bytes)) => key = text(bytes)?,
                        (2, Part::Bytes(bytes)) if as_text => value = json!(text(bytes)?),
                        (2, Part::Bytes(bytes)) => value = json!(STANDARD.encode(bytes)),
                        _ => {}
                    }
                }
                if let Value::Object(map) = out.entry(*name).or_insert_with(|| json!({})) {
                    map.insert(key, value);
                }
            }
            _ => return Err(Unreadable),
        }
    }
    Ok(Value::Object(out))
}

/// A time, if it is set.
fn time(bytes: &[u8], micro: bool) -> Result<Option<String>, Unreadable> {
    let (mut seconds, mut nanoseconds) = (0_i64, 0_i32);
    for part in parts(bytes) {
        match part? {
            (1, Part::Number(number)) => seconds = number as i64,
            (2, Part::Number(number)) => nanoseconds = number as i32,
            _ => {}
        }
    }
    // The zero time of Go lies in the year 1.
    if seconds == 0 && nanoseconds == 0 || seconds < -62_000_000_000 {
        return Ok(None);
    }
    let time = Timestamp::new(seconds, nanoseconds).map_err(|_| Unreadable)?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(Some(time.strftime(format).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
    }

    #[test]
    fn a_secret_is_read() {
        let metadata =
            [field(1, b"name"), field(3, b"ns"), field(11, &[field(1, b"k"), field(2, b"v")].concat())];
        let data = [field(1, b"key"), field(2, b"\x00\xff")].concat();
        let raw = [field(1, &metadata.concat()), field(2, &data), field(3, b"Opaque")].concat();
        let kind = [field(1, b"v1"), field(2, b"Secret")].concat();
        let body = [MAGIC.to_vec(), field(1, &kind), field(2, &raw)].concat();
        assert_eq!(
            decode(&body).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": "name", "namespace": "ns", "labels": {"k": "v"}},
                "data": {"key": "AP8="},
            })
        );
    }

    #[test]
    fn anything_else_is_refused_without_a_panic() {
        assert!(decode(b"{}").is_err());
        assert!(decode(b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
        let kind = [field(1, b"v1"), field(2, b"Thing")].concat();
        assert!(decode(&[MAGIC.to_vec(), field(1, &kind)].concat()).is_err());
    }
}
