//! The formats documents come in.

mod dotenv;
mod ini;
mod json;
mod yaml;

use crate::metadata::Layout;
use crate::tree::{Branch, Item, Key, Value};

/// A format of encrypted files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Any bytes; when encrypted, a JSON object with the one key `data`.
    Binary,
    /// Lines of `KEY=value`.
    Dotenv,
    /// Sections of `key = value`.
    Ini,
    /// A JSON object.
    Json,
    /// YAML documents whose roots are maps.
    Yaml,
}

/// A text that is not in its format, or a tree that a format cannot express.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The text is no YAML.
    #[error("Error unmarshaling input YAML: {0}")]
    Yaml(String),
    /// The text is no JSON object.
    #[error("Could not unmarshal input data: {0}")]
    Json(String),
    /// The text is no INI.
    #[error("Could not unmarshal input data: {0}")]
    Ini(String),
    /// A line is no assignment. The line itself may be secret.
    #[error("invalid dotenv input line: line {0}")]
    Dotenv(usize),
    /// A list or map where the format has none.
    #[error("cannot use complex value in dotenv file; offending key {0}")]
    Complex(String),
    /// A top-level value that is no section.
    #[error("Error marshaling to INI: Error encoding section: Section values should always be TreeBranches")]
    NoSection,
    /// A comment that INI cannot hold, or a key without a name.
    #[error("Error marshaling to INI: {0}")]
    IniContent(&'static str),
    /// A number JSON has no notation for.
    #[error("Error marshaling to json: json: unsupported value: {0}")]
    Number(&'static str),
    /// A key that is no text.
    #[error("a key of type {0} is not supported")]
    Key(&'static str),
    /// The format holds exactly one document.
    #[error("there must be exactly one tree branch")]
    OneDocument,
    /// The binary payload is missing.
    #[error("error emitting binary store: no binary data found in tree")]
    NoData,
    /// The binary payload is no text.
    #[error("error emitting binary store: 'data' key in tree does not have a string value")]
    DataType,
}

impl Format {
    /// The format a file has by its name: an unknown one is [`Format::Binary`].
    pub fn of_path(path: &str) -> Self {
        let ends = |suffix: &str| path.ends_with(suffix);
        if ends(".dockerconfigjson") || ends(".json") {
            Self::Json
        } else if ends(".yaml") || ends(".yml") {
            Self::Yaml
        } else if ends(".env") {
            Self::Dotenv
        } else if ends(".ini") {
            Self::Ini
        } else {
            Self::Binary
        }
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Dotenv => "dotenv",
            Self::Ini => "INI",
            Self::Json => "JSON",
            Self::Yaml => "YAML",
        }
    }

    fn marker(self) -> &'static [u8] {
        match self {
            Self::Binary | Self::Json => b"\"mac\": \"ENC[",
            Self::Dotenv => b"sops_mac=ENC[",
            Self::Ini => b"[sops]",
            Self::Yaml => b"mac: ENC[",
        }
    }

    /// Whether a file of this format bears the mark of encryption.
    pub fn marks(self, data: &[u8]) -> bool {
        let marker = self.marker();
        data.windows(marker.len()).any(|window| window == marker)
    }

    /// The format of encrypted data, by its mark; `None` if it bears none.
    pub fn detect(data: &[u8]) -> Option<Self> {
        [Self::Json, Self::Yaml, Self::Dotenv, Self::Ini].into_iter().find(|format| format.marks(data))
    }

    pub(crate) fn layout(self) -> Layout {
        match self {
            Self::Binary | Self::Json | Self::Yaml => Layout::Nested,
            Self::Ini => Layout::FlatSection,
            Self::Dotenv => Layout::Flat,
        }
    }

    /// The documents of an encrypted file, with their metadata.
    pub(crate) fn load(self, data: &[u8]) -> Result<Vec<Branch>, FormatError> {
        match self {
            Self::Binary | Self::Json => json::load(data).map(|branch| vec![branch]),
            Self::Yaml => yaml::load(data),
            Self::Dotenv => dotenv::load(data).map(|branch| vec![branch]),
            Self::Ini => ini::load(data).map(|branch| vec![branch]),
        }
    }

    /// The text of decrypted documents.
    pub(crate) fn emit(self, branches: &[Branch]) -> Result<Vec<u8>, FormatError> {
        let first = || branches.first().ok_or(FormatError::OneDocument);
        match self {
            Self::Yaml => yaml::emit(branches),
            Self::Json => json::emit(first()?),
            Self::Dotenv => dotenv::emit(first()?),
            Self::Ini => ini::emit(branches),
            Self::Binary => match branches {
                [branch] => binary(branch),
                _ => Err(FormatError::OneDocument),
            },
        }
    }
}

fn binary(branch: &Branch) -> Result<Vec<u8>, FormatError> {
    let is_data = |item: &&Item| matches!(&item.key, Key::Text(key) if key == "data");
    match branch.iter().find(is_data).map(|item| &item.value) {
        Some(Value::Text(bytes)) => Ok(bytes.clone()),
        Some(_) => Err(FormatError::DataType),
        None => Err(FormatError::NoData),
    }
}
