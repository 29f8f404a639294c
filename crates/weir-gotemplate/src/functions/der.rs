//! The DER and PEM that certificates and keys are made of.

use crate::base64;

pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const NULL: u8 = 0x05;
pub(super) const OBJECT: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;

/// One element with its tag and length.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let significant = &bytes[length.leading_zeros() as usize / 8..];
        out.push(0x80 | significant.len() as u8);
        out.extend_from_slice(significant);
    }
    out.extend_from_slice(content);
    out
}

/// A constructed element of several parts.
pub(super) fn group(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    element(tag, &parts.concat())
}

/// A non-negative integer from its big-endian bytes.
pub(super) fn integer(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let mut content = bytes[start..].to_vec();
    if content.first().is_none_or(|byte| byte & 0x80 != 0) {
        content.insert(0, 0);
    }
    element(INTEGER, &content)
}

/// A bit string of whole bytes.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes].concat())
}

/// An element's tag, content and whole, and what follows it.
pub(super) type Split<'a> = (u8, &'a [u8], &'a [u8], &'a [u8]);

/// An element's tag, content and whole.
pub(super) type Child<'a> = (u8, &'a [u8], &'a [u8]);

/// The first element: its tag, its content, the whole of it, and what follows.
pub(super) fn split(bytes: &[u8]) -> Option<Split<'_>> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = if *first < 0x80 {
        (usize::from(*first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 || rest.len() < count {
            return None;
        }
        let length = rest[..count].iter().fold(0_usize, |all, byte| all << 8 | usize::from(*byte));
        (length, &rest[count..])
    };
    let content = rest.get(..length)?;
    let after = &rest[length..];
    Some((*tag, content, &bytes[..bytes.len() - after.len()], after))
}

/// The elements in a constructed one.
pub(super) fn children(mut content: &[u8]) -> Option<Vec<Child<'_>>> {
    let mut all = Vec::new();
    while !content.is_empty() {
        let (tag, inner, whole, after) = split(content)?;
        all.push((tag, inner, whole));
        content = after;
    }
    Some(all)
}

/// A PEM block.
pub(super) fn pem(label: &str, content: &[u8]) -> String {
    let mut out = format!("-----BEGIN {label}-----\n");
    let text = base64::encode(content);
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// The label and content of the first PEM block.
pub(super) fn read_pem(text: &str) -> Option<(String, Vec<u8>)> {
    let mut rest = text;
    loop {
        let start = rest.find("-----BEGIN ")?;
        let after = &rest[start + 11..];
        rest = after;
        let Some((label, body)) = after.split_once("-----") else { continue };
        let Some(end) = body.find(&format!("-----END {label}-----")) else { continue };
        // Headers end with an empty line.
        let body = &body[..end];
        let body = match body.find("\n\n") {
            Some(blank) if body[..blank].contains(':') => &body[blank..],
            _ => body,
        };
        let text: String = body.chars().filter(|character| !character.is_whitespace()).collect();
        if let Ok(content) = base64::decode(text.as_bytes()) {
            return Some((label.to_owned(), content));
        }
    }
}
