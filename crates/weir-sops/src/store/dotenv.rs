//! Lines of `KEY=value`.

use crate::store::FormatError;
use crate::tree::{Branch, Item, Key, Value, plain_text};

pub(crate) fn load(data: &[u8]) -> Result<Branch, FormatError> {
    let mut branch = Branch::new();
    for (number, line) in data.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        if let Some(comment) = line.strip_prefix(b"#") {
            branch.push(Item::comment(comment, false));
            continue;
        }
        let sign = line.iter().position(|byte| *byte == b'=').ok_or(FormatError::Dotenv(number + 1))?;
        let key = String::from_utf8_lossy(&line[..sign]).into_owned();
        branch.push(Item::new(key, Value::Text(replace(&line[sign + 1..], b"\\n", b"\n"))));
    }
    Ok(branch)
}

pub(crate) fn emit(branch: &Branch) -> Result<Vec<u8>, FormatError> {
    let mut text = Vec::new();
    for item in branch {
        let key = match &item.key {
            Key::Comment(comment) => {
                text.push(b'#');
                text.extend(&comment.text);
                text.push(b'\n');
                continue;
            }
            Key::Text(key) => key,
            Key::Other { text, .. } => text,
        };
        if matches!(item.value, Value::List(_) | Value::Map(_)) {
            return Err(FormatError::Complex(key.clone()));
        }
        text.extend(key.as_bytes());
        text.push(b'=');
        match &item.value {
            Value::Text(value) => text.extend(replace(value, b"\n", b"\\n")),
            other => text.extend(plain_text(other)),
        }
        text.push(b'\n');
    }
    Ok(text)
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        replaced.extend(&rest[..at]);
        replaced.extend(to);
        rest = &rest[at + from.len()..];
    }
    replaced.extend(rest);
    replaced
}
