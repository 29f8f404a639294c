//! What a document says about its own encryption.

use std::collections::BTreeMap;

use crate::flatten::{FlattenError, unflatten};
use crate::keys::{KeyGroup, MasterKey, Place};
use crate::rules::{Rule, pattern};
use crate::tree::{Branch, Item, Key, Value, plain_text, seconds};

/// The entry that holds the metadata.
const NAME: &str = "sops";

/// Why the metadata of a document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// There is none.
    #[error("sops metadata not found")]
    Missing,
    /// There is more than one.
    #[error("Found duplicate sops entry")]
    Duplicate,
    /// It is no map.
    #[error("Found sops entry that is not a mapping")]
    NotMap,
    /// A field holds something else than expected.
    #[error("'{field}' expected {expected}")]
    Field {
        /// The name of the field.
        field: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The time of the last change is no time.
    #[error("parsing time \"{0}\" as \"2006-01-02T15:04:05Z07:00\" failed")]
    Time(String),
    /// More than one rule says what is encrypted.
    #[error(
        "Cannot use more than one of encrypted_suffix, unencrypted_suffix, encrypted_regex, unencrypted_regex, encrypted_comment_regex, or unencrypted_comment_regex in the same file"
    )]
    Rules,
    /// Nobody can decrypt the document.
    #[error("No keys found in file")]
    NoKeys,
    /// Flat entries contradict each other.
    #[error(transparent)]
    Flatten(#[from] FlattenError),
}

/// Where a format keeps its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A map named `sops`.
    Nested,
    /// A flat map named `sops`, line breaks written as `\n`.
    FlatSection,
    /// Entries whose names begin with `sops_`.
    Flat,
}

#[derive(Debug, Clone)]
pub(crate) struct Metadata {
    pub(crate) groups: Vec<KeyGroup>,
    pub(crate) threshold: usize,
    pub(crate) rule: Rule,
    pub(crate) checks_only_encrypted: bool,
    pub(crate) checksum: String,
    /// What the checksum is bound to.
    pub(crate) last_modified: String,
}

/// Takes the metadata out of the documents of a file.
pub(crate) fn extract(branches: &mut [Branch], layout: Layout) -> Result<Metadata, MetadataError> {
    let found = if layout == Layout::Flat { take_flat(branches) } else { take_nested(branches)? };
    let mut tree = found.ok_or(MetadataError::Missing)?;
    if layout == Layout::FlatSection {
        for item in &mut tree {
            if let Value::Text(text) = &mut item.value {
                *text = String::from_utf8_lossy(text).replace("\\n", "\n").into_bytes();
            }
        }
    }
    if layout != Layout::Nested {
        tree = unflatten(tree)?;
    }
    read(&Fields::new(&tree))
}

fn take_nested(branches: &mut [Branch]) -> Result<Option<Branch>, MetadataError> {
    let mut found = None;
    for (number, branch) in branches.iter_mut().enumerate() {
        let is_metadata = |item: &mut Item| matches!(&item.key, Key::Text(key) if key == NAME);
        for item in branch.extract_if(.., is_metadata) {
            // Every document of a file has a copy; the first one counts.
            if number > 0 {
                continue;
            }
            let Value::Map(map) = item.value else { return Err(MetadataError::NotMap) };
            if found.replace(map).is_some() {
                return Err(MetadataError::Duplicate);
            }
        }
    }
    Ok(found)
}

fn take_flat(branches: &mut [Branch]) -> Option<Branch> {
    let prefixed = |item: &Item| match &item.key {
        Key::Text(key) => key.strip_prefix("sops_").map(str::to_owned),
        _ => None,
    };
    let branch = branches.first_mut()?;
    let found: Branch = branch
        .extract_if(.., |item| prefixed(item).is_some())
        .filter_map(|item| prefixed(&item).map(|key| Item::new(key, item.value)))
        .collect();
    (!found.is_empty()).then_some(found)
}

/// The fields of a map; numbers and booleans are taken for texts and the other way round.
struct Fields<'a>(BTreeMap<&'a str, &'a Value>);

impl<'a> Fields<'a> {
    fn new(map: &'a Branch) -> Self {
        Self(
            map.iter()
                .filter_map(|item| match &item.key {
                    Key::Text(key) => Some((key.as_str(), &item.value)),
                    _ => None,
                })
                .collect(),
        )
    }

    fn text(&self, name: &str) -> Result<String, MetadataError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::List(_) | Value::Map(_)) => {
                Err(MetadataError::Field { field: name.to_owned(), expected: "a text" })
            }
            Some(value) => Ok(String::from_utf8_lossy(&plain_text(value)).into_owned()),
        }
    }

    fn maps(&self, name: &str) -> Result<Vec<Fields<'a>>, MetadataError> {
        let wrong = || MetadataError::Field { field: name.to_owned(), expected: "a list of maps" };
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Map(map)) if map.is_empty() => Ok(Vec::new()),
            Some(Value::Map(map)) => Ok(vec![Fields::new(map)]),
            Some(Value::List(list)) => list
                .iter()
                .filter(|item| !matches!(item, Value::Comment(_)))
                .map(|item| match item {
                    Value::Map(map) => Ok(Fields::new(map)),
                    _ => Err(wrong()),
                })
                .collect(),
            Some(Value::Text(text)) if text.is_empty() => Ok(Vec::new()),
            Some(_) => Err(wrong()),
        }
    }

    fn texts(&self, name: &str) -> Result<BTreeMap<String, String>, MetadataError> {
        match self.0.get(name) {
            Some(Value::Map(map)) => {
                let fields = Fields::new(map);
                let names = fields.0.keys().copied();
                names.map(|name| Ok((name.to_owned(), fields.text(name)?))).collect()
            }
            _ => Ok(BTreeMap::new()),
        }
    }

    fn flag(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(Value::Bool(value)) => *value,
            Some(Value::Int(number)) => *number != 0,
            Some(Value::Text(text)) => {
                matches!(text.as_slice(), b"1" | b"t" | b"T" | b"TRUE" | b"true" | b"True")
            }
            _ => false,
        }
    }
}

fn read(fields: &Fields<'_>) -> Result<Metadata, MetadataError> {
    let last_modified = fields.text("lastmodified")?;
    if last_modified.parse::<jiff::Timestamp>().is_err() {
        return Err(MetadataError::Time(last_modified));
    }
    let threshold = fields.text("shamir_threshold")?;
    let threshold = if threshold.is_empty() {
        0
    } else {
        let wrong = || MetadataError::Field { field: "shamir_threshold".to_owned(), expected: "a number" };
        threshold.parse().map_err(|_| wrong())?
    };
    Ok(Metadata {
        groups: groups(fields)?,
        threshold,
        rule: rule(fields)?,
        checks_only_encrypted: fields.flag("mac_only_encrypted"),
        checksum: fields.text("mac")?,
        last_modified: seconds(&last_modified),
    })
}

fn rule(fields: &Fields<'_>) -> Result<Rule, MetadataError> {
    let mut rules = Vec::new();
    let mut add = |name: &str, rule: fn(String) -> Rule| {
        fields.text(name).map(|text| {
            if !text.is_empty() {
                rules.push(rule(text));
            }
        })
    };
    add("unencrypted_suffix", Rule::UnencryptedSuffix)?;
    add("encrypted_suffix", Rule::EncryptedSuffix)?;
    add("unencrypted_regex", |text| Rule::UnencryptedRegex(pattern(&text)))?;
    add("encrypted_regex", |text| Rule::EncryptedRegex(pattern(&text)))?;
    add("unencrypted_comment_regex", |text| Rule::UnencryptedCommentRegex(pattern(&text)))?;
    add("encrypted_comment_regex", |text| Rule::EncryptedCommentRegex(pattern(&text)))?;
    if rules.len() > 1 {
        return Err(MetadataError::Rules);
    }
    Ok(rules.pop().unwrap_or_default())
}

fn groups(fields: &Fields<'_>) -> Result<Vec<KeyGroup>, MetadataError> {
    let top = group(fields)?;
    if !top.keys.is_empty() {
        return Ok(vec![top]);
    }
    let groups = fields.maps("key_groups")?;
    if groups.is_empty() {
        return Err(MetadataError::NoKeys);
    }
    groups.iter().map(group).collect()
}

/// The keys of a group in the order in which they are tried, but for age and PGP, which go first.
fn group(fields: &Fields<'_>) -> Result<KeyGroup, MetadataError> {
    let mut keys = Vec::new();
    let mut add = |name: &str, place: &dyn Fn(&Fields<'_>) -> Result<Place, MetadataError>| {
        for key in fields.maps(name)? {
            keys.push(MasterKey { place: place(&key)?, encrypted: key.text("enc")? });
        }
        Ok::<_, MetadataError>(())
    };
    add("age", &|key| Ok(Place::Age { recipient: key.text("recipient")? }))?;
    add("pgp", &|key| Ok(Place::Pgp { fingerprint: key.text("fp")? }))?;
    add("kms", &|key| {
        Ok(Place::AwsKms {
            arn: key.text("arn")?,
            role: key.text("role")?,
            context: key.texts("context")?,
            profile: key.text("aws_profile")?,
        })
    })?;
    add("gcp_kms", &|key| Ok(Place::GcpKms { resource: key.text("resource_id")? }))?;
    add("hckms", &|key| Ok(Place::HuaweiKms { key: key.text("key_id")? }))?;
    add("azure_kv", &|key| {
        Ok(Place::AzureKeyVault {
            vault: key.text("vault_url")?,
            name: key.text("name")?,
            version: key.text("version")?,
        })
    })?;
    add("hc_vault", &|key| {
        Ok(Place::Vault {
            address: key.text("vault_address")?,
            engine: key.text("engine_path")?,
            name: key.text("key_name")?,
        })
    })?;
    Ok(KeyGroup { keys })
}
