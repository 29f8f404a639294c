//! Decrypts a document value by value, and computes its checksum on the way.

use sha2::{Digest, Sha512};

use crate::cipher::{self, CipherError};
use crate::keys::DataKey;
use crate::rules::Rule;
use crate::tree::{Branch, Comment, Key, Value, long_float};

/// What a checksum over encrypted values alone begins with.
const ONLY_ENCRYPTED_START: [u8; 32] = [
    0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b, 0x0b,
    0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
];

/// Why a document cannot be decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalkError {
    /// A value could not be decrypted.
    #[error("Error walking tree: Could not decrypt value: {source} (at '{path}')")]
    Value {
        /// The keys above the value, joined by dots.
        path: String,
        /// The cause.
        source: CipherError,
    },
    /// Something that must be an encrypted text is none.
    #[error("Error walking tree: Expected encrypted value as string, but got {kind} (at '{path}')")]
    NotText {
        /// The keys above the value, joined by dots.
        path: String,
        /// What it is instead.
        kind: &'static str,
    },
    /// A key is no text.
    #[error(
        "Error walking tree: Tree contains a non-string key (type {kind}): {text}. Only string keys are supported"
    )]
    Key {
        /// Its type.
        kind: &'static str,
        /// Its text.
        text: String,
    },
    /// A value of a type SOPS does not know.
    #[error("Error walking tree: Cannot walk value, unknown type: {0}")]
    UnknownType(&'static str),
}

/// Decrypts `branches` in place and gives the checksum of what they hold now.
pub(crate) fn decrypt(
    branches: &mut [Branch],
    rule: &Rule,
    checks_only_encrypted: bool,
    key: &DataKey,
) -> Result<String, WalkError> {
    let mut walk = Walk { rule, checks_only_encrypted, key, checksum: Sha512::new(), comments: Vec::new() };
    if checks_only_encrypted {
        walk.checksum.update(ONLY_ENCRYPTED_START);
    }
    for branch in branches {
        walk.branch(branch, &mut Vec::new())?;
    }
    let digest = walk.checksum.finalize();
    Ok(digest.iter().fold(String::with_capacity(128), |mut text, byte| {
        let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
        text
    }))
}

struct Walk<'a> {
    rule: &'a Rule,
    checks_only_encrypted: bool,
    key: &'a DataKey,
    checksum: Sha512,
    /// The comments right before the current place, for every level above it.
    comments: Vec<Vec<String>>,
}

impl Walk<'_> {
    fn branch(&mut self, branch: &mut Branch, path: &mut Vec<String>) -> Result<(), WalkError> {
        self.comments.push(Vec::new());
        for item in branch {
            match &mut item.key {
                Key::Comment(comment) => {
                    self.note(comment);
                    match self.comment(comment, path) {
                        Value::Comment(decrypted) => *comment = decrypted,
                        Value::Text(text) => comment.text = text,
                        _ => {}
                    }
                    continue;
                }
                Key::Other { kind, text } => return Err(WalkError::Key { kind, text: text.clone() }),
                Key::Text(key) => path.push(key.clone()),
            }
            self.value(&mut item.value, path)?;
            path.pop();
            self.forget();
        }
        self.comments.pop();
        Ok(())
    }

    fn list(&mut self, list: &mut [Value], path: &mut Vec<String>) -> Result<(), WalkError> {
        self.comments.push(Vec::new());
        for value in list {
            if let Value::Comment(comment) = value {
                self.note(comment);
                *value = self.comment(&comment.clone(), path);
                continue;
            }
            self.value(value, path)?;
            self.forget();
        }
        self.comments.pop();
        Ok(())
    }

    /// A comment holds for what follows it.
    fn note(&mut self, comment: &Comment) {
        if let Some(level) = self.comments.last_mut() {
            level.push(String::from_utf8_lossy(&comment.text).into_owned());
        }
    }

    fn forget(&mut self) {
        if let Some(level) = self.comments.last_mut() {
            level.clear();
        }
    }

    fn is_encrypted(&self, path: &[String], is_comment: bool) -> bool {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        self.rule.encrypts(&path, &self.comments, is_comment)
    }

    fn place(path: &[String]) -> String {
        format!("{}:", path.join(":"))
    }

    /// Comments may have been left in the clear; those stay as they are.
    fn comment(&self, comment: &Comment, path: &[String]) -> Value {
        if !self.is_encrypted(path, true) {
            return Value::Comment(comment.clone());
        }
        std::str::from_utf8(&comment.text)
            .ok()
            .and_then(|text| cipher::decrypt(text, self.key, &Self::place(path)).ok())
            .unwrap_or_else(|| Value::Comment(comment.clone()))
    }

    fn value(&mut self, value: &mut Value, path: &mut Vec<String>) -> Result<(), WalkError> {
        match value {
            Value::Map(branch) => return self.branch(branch, path),
            Value::List(list) => return self.list(list, path),
            Value::Null => return Ok(()),
            Value::Unsigned(_) => return Err(WalkError::UnknownType("uint64")),
            _ => {}
        }
        let encrypted = self.is_encrypted(path, false);
        if encrypted {
            let at = || path.join(".");
            let Value::Text(text) = &*value else {
                return Err(WalkError::NotText { path: at(), kind: value.kind() });
            };
            let text = std::str::from_utf8(text)
                .map_err(|_| WalkError::Value { path: at(), source: CipherError::NotEncrypted })?;
            *value = cipher::decrypt(text, self.key, &Self::place(path))
                .map_err(|source| WalkError::Value { path: at(), source })?;
        }
        if encrypted || !self.checks_only_encrypted {
            match value {
                Value::Text(bytes) | Value::Bytes(bytes) => self.checksum.update(&*bytes),
                Value::Int(number) => self.checksum.update(number.to_string()),
                Value::Float(number) => self.checksum.update(long_float(*number)),
                Value::Bool(true) => self.checksum.update("True"),
                Value::Bool(false) => self.checksum.update("False"),
                Value::Time(text) => self.checksum.update(&*text),
                // Comments do not count, even those that were encrypted as items of a list.
                Value::Comment(_) | Value::Null | Value::List(_) | Value::Map(_) | Value::Unsigned(_) => {}
            }
        }
        Ok(())
    }
}
