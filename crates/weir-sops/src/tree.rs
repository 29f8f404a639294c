//! Documents as SOPS sees them: ordered entries, comments among them, typed values.

/// A document: entries and comments in their order.
pub(crate) type Branch = Vec<Item>;

/// One entry of a map, or a comment between entries.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) key: Key,
    pub(crate) value: Value,
}

impl Item {
    pub(crate) fn new(key: impl Into<String>, value: Value) -> Self {
        Self { key: Key::Text(key.into()), value }
    }

    pub(crate) fn comment(text: impl Into<Vec<u8>>, inline: bool) -> Self {
        Self { key: Key::Comment(Comment { text: text.into(), inline }), value: Value::Null }
    }
}

/// What stands in front of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Key {
    Text(String),
    /// The entry is a comment; its value is null.
    Comment(Comment),
    /// YAML has keys that are no texts; SOPS refuses them when it meets them.
    Other {
        kind: &'static str,
        text: String,
    },
}

/// A comment without its sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) text: Vec<u8>,
    /// On the line of a value rather than on a line of its own.
    pub(crate) inline: bool,
}

/// A value. Texts are bytes: what was encrypted need not be UTF-8.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    /// RFC 3339, as Go prints it.
    Time(String),
    /// In a list, between its items.
    Comment(Comment),
    List(Vec<Value>),
    Map(Branch),
    /// A number SOPS has no type for.
    Unsigned(u64),
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into().into_bytes())
    }

    /// The name of the type in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::Bytes(_) => "[]uint8",
            Self::Time(_) => "time.Time",
            Self::Comment(_) => "sops.Comment",
            Self::List(_) => "[]interface {}",
            Self::Map(_) => "sops.TreeBranch",
            Self::Unsigned(_) => "uint64",
        }
    }
}

/// A value on one line, for formats without types.
pub(crate) fn plain_text(value: &Value) -> Vec<u8> {
    match value {
        Value::Text(text) => text.clone(),
        Value::Bool(value) => value.to_string().into_bytes(),
        Value::Int(value) => value.to_string().into_bytes(),
        Value::Unsigned(value) => value.to_string().into_bytes(),
        Value::Float(value) => short_float(*value).into_bytes(),
        Value::Time(text) => seconds(text).into_bytes(),
        Value::Bytes(bytes) => {
            let numbers: Vec<String> = bytes.iter().map(ToString::to_string).collect();
            format!("[{}]", numbers.join(" ")).into_bytes()
        }
        Value::Null => b"<nil>".to_vec(),
        Value::Comment(comment) => comment.text.clone(),
        // As Go prints slices and structures.
        Value::List(list) => bracketed(list.iter().map(plain_text)),
        Value::Map(branch) => bracketed(branch.iter().map(|item| {
            let key = match &item.key {
                Key::Text(text) | Key::Other { text, .. } => text.as_bytes(),
                Key::Comment(comment) => &comment.text,
            };
            [b"{", key, b" ", &plain_text(&item.value), b"}"].concat()
        })),
    }
}

fn bracketed(parts: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let parts: Vec<Vec<u8>> = parts.collect();
    [b"[".as_slice(), &parts.join(&b' '), b"]"].concat()
}

/// RFC 3339 without fractions of seconds.
pub(crate) fn seconds(text: &str) -> String {
    let Some(point) = text.find('.') else { return text.to_owned() };
    let digits = text[point + 1..].bytes().take_while(u8::is_ascii_digit).count();
    format!("{}{}", &text[..point], &text[point + 1 + digits..])
}

/// The shortest digits of a float, with an exponent where `%G` has one, never to be taken for an integer.
fn short_float(value: f64) -> String {
    if !value.is_finite() {
        return long_float(value);
    }
    let text = weir_manifest::format_float(value).to_ascii_uppercase();
    if text.contains('.') || text.contains('E') { text } else { format!("{value:.1}") }
}

/// The digits of a float without an exponent, as they enter ciphertexts and checksums.
pub(crate) fn long_float(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else {
        // The shortest digits that read back as the same number, all of them written out.
        format!("{value}")
    }
}
