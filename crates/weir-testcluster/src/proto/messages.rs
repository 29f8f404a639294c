//! Messages of all built-in kinds, read by the recorded numbers of their fields.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::DeflateDecoder;
use serde_json::{Map, Value, json};

use super::{Part, Unreadable, parts, text, time, varint};

static PACKED: &[u8] = include_bytes!("../builtin/data/protobuf.deflate");
/// Messages within messages.
const DEPTH_MAX: usize = 64;

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Text,
    Number,
    Flag,
    Fraction,
    Bytes,
    Time,
    MicroTime,
    Duration,
    Quantity,
    NumberOrText,
    Raw,
    Message(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    One,
    Many,
    Map,
    /// Its fields stand in the object itself.
    Inline,
}

struct Field {
    name: &'static str,
    form: Form,
    ty: Type,
}

struct Messages {
    all: Vec<HashMap<u64, Field>>,
    /// The message of an API version and kind.
    kinds: HashMap<(String, &'static str), usize>,
}

fn messages() -> &'static Messages {
    static READ: OnceLock<Messages> = OnceLock::new();
    READ.get_or_init(|| {
        let mut text = String::new();
        // The data is part of the program; a test reads all of it.
        let _ = DeflateDecoder::new(PACKED).read_to_string(&mut text);
        read(Box::leak(text.into_boxed_str()))
    })
}

fn read(text: &'static str) -> Messages {
    let mut out = Messages { all: Vec::new(), kinds: HashMap::new() };
    for (index, line) in text.lines().enumerate() {
        let mut parts = line.split('\t');
        let name = parts.next().unwrap_or_default();
        if let Some((api_version, kind)) = kind_of(name) {
            out.kinds.insert((api_version, kind), index);
        }
        out.all.push(parts.filter_map(field).collect());
    }
    out
}

fn field(text: &'static str) -> Option<(u64, Field)> {
    let mut words = text.split(' ');
    let (number, name, ty) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let (form, ty) = match ty.as_bytes().first()? {
        b'*' => (Form::Many, &ty[1..]),
        b'%' => (Form::Map, &ty[1..]),
        b'!' => (Form::Inline, &ty[1..]),
        _ => (Form::One, ty),
    };
    let ty = match ty {
        "s" => Type::Text,
        "n" => Type::Number,
        "b" => Type::Flag,
        "f" => Type::Fraction,
        "y" => Type::Bytes,
        "t" => Type::Time,
        "u" => Type::MicroTime,
        "d" => Type::Duration,
        "q" => Type::Quantity,
        "i" => Type::NumberOrText,
        "r" => Type::Raw,
        index => Type::Message(index.parse().ok()?),
    };
    Some((number, Field { name, form, ty }))
}

/// The API version and kind of a message such as `k8s.io.api.apps.v1.Deployment`.
fn kind_of(name: &'static str) -> Option<(String, &'static str)> {
    let mut parts = name.strip_prefix("k8s.io.api.")?.split('.');
    let (package, version, kind) = (parts.next()?, parts.next()?, parts.next()?);
    let group = match package {
        "core" => return Some((version.to_owned(), kind)),
        "apps" | "batch" | "autoscaling" | "policy" => package.to_owned(),
        "rbac" => "rbac.authorization.k8s.io".to_owned(),
        "flowcontrol" => "flowcontrol.apiserver.k8s.io".to_owned(),
        other => format!("{other}.k8s.io"),
    };
    Some((format!("{group}/{version}"), kind))
}

/// Reads an object of a kind; nothing when the kind is not known.
///
/// # Errors
/// The bytes are no message of the kind, or have a field that is not known: it would be lost.
pub(super) fn object(api_version: &str, kind: &str, bytes: &[u8]) -> Option<Result<Value, Unreadable>> {
    let messages = messages();
    let found = messages.kinds.iter().find(|((version, name), _)| version == api_version && *name == kind)?;
    let mut out = Map::new();
    Some(fill(messages, *found.1, bytes, &mut out, 0).map(|()| Value::Object(out)))
}

fn fill(
    messages: &Messages,
    message: usize,
    bytes: &[u8],
    out: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), Unreadable> {
    let fields = messages.all.get(message).filter(|_| depth < DEPTH_MAX).ok_or(Unreadable)?;
    for part in parts(bytes) {
        let (number, part) = part?;
        let field = fields.get(&number).ok_or(Unreadable)?;
        match (field.form, &part) {
            (Form::Inline, Part::Bytes(bytes)) => {
                let Type::Message(below) = field.ty else { return Err(Unreadable) };
                fill(messages, below, bytes, out, depth + 1)?;
            }
            (Form::One, _) => {
                if let Some(value) = value(messages, field.ty, &part, depth)? {
                    out.insert(field.name.to_owned(), value);
                }
            }
            // Numbers of a list may be packed.
            (Form::Many, Part::Bytes(packed)) if field.ty == Type::Number => {
                let mut packed = *packed;
                while !packed.is_empty() {
                    let number = varint(&mut packed)?;
                    push(out, field.name, json!(number as i64));
                }
            }
            (Form::Many, _) => {
                let item = value(messages, field.ty, &part, depth)?.unwrap_or_else(|| json!(""));
                push(out, field.name, item);
            }
            (Form::Map, Part::Bytes(bytes)) => {
                let (mut key, mut item) = (String::new(), json!(""));
                for part in parts(bytes) {
                    match part? {
                        (1, Part::Bytes(bytes)) => key = text(bytes)?,
                        (2, part) => {
                            if let Some(found) = value(messages, field.ty, &part, depth)? {
                                item = found;
                            }
                        }
                        _ => return Err(Unreadable),
                    }
                }
                if let Value::Object(map) = out.entry(field.name).or_insert_with(|| json!({})) {
                    map.insert(key, item);
                }
            }
            (Form::Inline | Form::Map, Part::Number(_)) => return Err(Unreadable),
        }
    }
    Ok(())
}

fn push(out: &mut Map<String, Value>, name: &str, item: Value) {
    if let Value::Array(items) = out.entry(name).or_insert_with(|| json!([])) {
        items.push(item);
    }
}

/// The value of a field; none for texts and times that nobody set.
fn value(messages: &Messages, ty: Type, part: &Part<'_>, depth: usize) -> Result<Option<Value>, Unreadable> {
    Ok(Some(match (ty, part) {
        (Type::Text, Part::Bytes(b"")) => return Ok(None),
        (Type::Text, Part::Bytes(bytes)) => json!(text(bytes)?),
        (Type::Number, Part::Number(number)) => json!(*number as i64),
        (Type::Flag, Part::Number(number)) => json!(*number != 0),
        (Type::Bytes, Part::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Type::Time | Type::MicroTime, Part::Bytes(bytes)) => {
            return Ok(time(bytes, ty == Type::MicroTime)?.map(|time| json!(time)));
        }
        (Type::Quantity, Part::Bytes(bytes)) => match single(bytes, 1)? {
            Some(Part::Bytes(bytes)) => json!(text(bytes)?),
            _ => json!("0"),
        },
        (Type::Duration, Part::Bytes(bytes)) => match single(bytes, 1)? {
            Some(Part::Number(nanoseconds)) => json!(format!("{}ns", nanoseconds as i64)),
            _ => json!("0s"),
        },
        (Type::NumberOrText, Part::Bytes(bytes)) => {
            let is_text = matches!(single(bytes, 1)?, Some(Part::Number(1)));
            match (is_text, single(bytes, if is_text { 3 } else { 2 })?) {
                (true, Some(Part::Bytes(bytes))) => json!(text(bytes)?),
                (true, _) => json!(""),
                (false, Some(Part::Number(number))) => json!(number as i64),
                (false, _) => json!(0),
            }
        }
        (Type::Raw, Part::Bytes(bytes)) => match single(bytes, 1)? {
            Some(Part::Bytes(raw)) => serde_json::from_slice(raw).map_err(|_| Unreadable)?,
            _ => return Ok(None),
        },
        (Type::Message(below), Part::Bytes(bytes)) => {
            let mut out = Map::new();
            fill(messages, below, bytes, &mut out, depth + 1)?;
            Value::Object(out)
        }
        _ => return Err(Unreadable),
    }))
}

/// One field of a small message.
fn single(bytes: &[u8], wanted: u64) -> Result<Option<Part<'_>>, Unreadable> {
    for part in parts(bytes) {
        let (number, part) = part?;
        if number == wanted {
            return Ok(Some(part));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        out.extend_from_slice(content);
        out
    }

    #[test]
    fn every_message_can_be_read() {
        let messages = messages();
        assert!(messages.all.len() > 400);
        for message in &messages.all {
            for field in message.values() {
                if let Type::Message(below) = field.ty {
                    assert!(below < messages.all.len(), "{}", field.name);
                }
            }
        }
        for (api_version, kind) in [
            ("apps/v1", "Deployment"),
            ("v1", "Pod"),
            ("rbac.authorization.k8s.io/v1", "Role"),
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ] {
            assert_eq!(object(api_version, kind, b"").unwrap().unwrap(), json!({}), "{kind}");
        }
        assert!(object("example.com/v1", "Thing", b"").is_none());
    }

    #[test]
    fn a_deployment_is_read() {
        let metadata = bytes(1, &bytes(1, b"web"));
        let limits = bytes(1, &[bytes(1, b"cpu"), bytes(2, &bytes(1, b"10m"))].concat());
        let port = bytes(2, &[0x08, 0x01, 0x1a, 0x04, b'h', b't', b't', b'p']);
        let probe = bytes(10, &bytes(1, &bytes(2, &[bytes(1, b"/"), port].concat())));
        let container = bytes(2, &[bytes(1, b"c"), bytes(8, &limits), probe].concat());
        let template = bytes(3, &bytes(2, &container));
        let spec = bytes(2, &[vec![0x08, 0x02], template].concat());
        let found = object("apps/v1", "Deployment", &[metadata, spec].concat()).unwrap().unwrap();
        assert_eq!(
            found,
            json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "template": {"spec": {"containers": [{
                "name": "c", "resources": {"limits": {"cpu": "10m"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
            }]}}}})
        );
    }

    #[test]
    fn a_field_nobody_knows_is_refused() {
        assert_eq!(object("apps/v1", "Deployment", &[0xf8, 0x07, 0x01]).unwrap(), Err(Unreadable));
    }
}
