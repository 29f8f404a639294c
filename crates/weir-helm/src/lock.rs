//! `Chart.lock`: the versions that were chosen for the dependencies of a chart.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::metadata::{Dependency, Fields, Metadata, MetadataError};

/// What `Chart.lock` says. The JSON form is that of release records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    /// When the versions were chosen, as RFC 3339 text.
    pub generated: String,
    /// The digest over what was wanted and what was chosen.
    pub digest: String,
    /// What was chosen.
    pub dependencies: Option<Vec<Dependency>>,
}

impl Default for Lock {
    fn default() -> Self {
        Self { generated: "0001-01-01T00:00:00Z".to_owned(), digest: String::new(), dependencies: None }
    }
}

impl Lock {
    /// Reads `Chart.lock` or `requirements.lock`; unknown fields are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetadataError> {
        let document = crate::metadata::read(bytes)?;
        let object = match &document {
            Json::Null => return Ok(Self::default()),
            Json::Object(object) => object,
            other => {
                return Err(MetadataError::Kind {
                    found: crate::metadata::kind_name(other),
                    field: String::new(),
                    wanted: "v2.Lock",
                });
            }
        };
        let fields = Fields(object);
        let mut lock =
            Self { digest: fields.text("digest")?, dependencies: fields.dependencies()?, ..Self::default() };
        if fields.get("generated").is_some_and(|value| !value.is_null()) {
            lock.generated = go_time(&fields.text("generated")?);
        }
        Ok(lock)
    }

    /// The text of `Chart.lock`.
    pub fn to_yaml(&self) -> String {
        weir_manifest::to_yaml(&serde_json::to_value(self).unwrap_or_default())
    }

    /// Checks that the lock was made for the dependencies of `metadata` as they are now.
    pub fn check(&self, metadata: &Metadata) -> Result<(), OutOfSync> {
        let wanted = metadata.dependencies.as_deref();
        if digest(wanted, self.dependencies.as_deref()) == self.digest {
            return Ok(());
        }
        if metadata.api_version != "v1" {
            return Err(OutOfSync::Lock);
        }
        // Locks of that time were made over the wanted versions alone.
        if digest_of_requirements(wanted) == self.digest { Ok(()) } else { Err(OutOfSync::Requirements) }
    }
}

/// A lock was made for other dependencies than those of the chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfSync {
    /// `Chart.lock`
    #[error(
        "the lock file (Chart.lock) is out of sync with the dependencies file (Chart.yaml). Please update the \
         dependencies with 'helm dependency update'"
    )]
    Lock,
    /// `requirements.lock`
    #[error(
        "the lock file (requirements.lock) is out of sync with the dependencies file (requirements.yaml). Please \
         update the dependencies"
    )]
    Requirements,
}

/// The digest that a lock carries: over the dependencies wanted and those chosen.
pub fn digest(wanted: Option<&[Dependency]>, chosen: Option<&[Dependency]>) -> String {
    sha256(&go_json(&[wanted, chosen]))
}

/// The digest of `requirements.lock` as the second major version of Helm wrote it.
fn digest_of_requirements(wanted: Option<&[Dependency]>) -> String {
    #[derive(Serialize)]
    struct Requirements<'a> {
        dependencies: Option<&'a [Dependency]>,
    }
    sha256(&go_json(&Requirements { dependencies: wanted }))
}

fn sha256(text: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(text.as_bytes())))
}

/// JSON with the characters escaped that are special in HTML, as Go writes it.
fn go_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    out
}

/// An RFC 3339 text as it is written again: no zeros at the end of the fraction, `Z` for UTC.
fn go_time(text: &str) -> String {
    let zone = text.len() - text.bytes().rev().take_while(|byte| !matches!(byte, b'+' | b'-' | b'Z')).count();
    let Some(zone) = zone.checked_sub(1).filter(|zone| *zone > 10) else { return text.to_owned() };
    let (time, zone) = text.split_at(zone);
    let time = match time.split_once('.') {
        Some((seconds, fraction)) if fraction.trim_end_matches('0').is_empty() => seconds.to_owned(),
        Some((seconds, fraction)) => format!("{seconds}.{}", fraction.trim_end_matches('0')),
        None => time.to_owned(),
    };
    let zone = if matches!(zone, "+00:00" | "-00:00") { "Z" } else { zone };
    format!("{time}{zone}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(dependencies: &str) -> Metadata {
        Metadata::parse(
            format!("apiVersion: v2\nname: c\nversion: 1.0.0\ndependencies:\n{dependencies}").as_bytes(),
        )
        .unwrap()
    }

    #[test]
    fn digests_are_those_of_helm() {
        // Written by `helm dependency update` for this list.
        let wanted = metadata(
            "- name: one\n  version: \">=1.0.0 <2\"\n  repository: file://../one\n  alias: first\n  condition: a&b\n  tags: [x]\n  import-values:\n  - data\n  - child: a.b\n    parent: c\n",
        );
        let lock = Lock::parse(
            b"dependencies:\n- name: one\n  repository: file://../one\n  version: 1.2.3\ndigest: DIGEST\ngenerated: \"2026-11-30T10:20:30.123456789Z\"\n",
        )
        .unwrap();
        assert_eq!(
            digest(wanted.dependencies.as_deref(), lock.dependencies.as_deref()),
            "sha256:739c42fb9629d0c5ddb0b300dc99a5e68345c8f2b63f40f9dd3d120e08a4d344"
        );
        assert_eq!(lock.check(&wanted), Err(OutOfSync::Lock));
        assert!(OutOfSync::Lock.to_string().starts_with("the lock file (Chart.lock) is out of sync with"));
    }

    #[test]
    fn times_are_written_as_go_does() {
        for (text, expected) in [
            ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
            ("2024-01-02T03:04:05.120Z", "2024-01-02T03:04:05.12Z"),
            ("2024-01-02T03:04:05.000+00:00", "2024-01-02T03:04:05Z"),
            ("2024-01-02T03:04:05.5-07:00", "2024-01-02T03:04:05.5-07:00"),
            ("soon", "soon"),
        ] {
            assert_eq!(go_time(text), expected);
        }
    }

    #[test]
    fn locks_survive_writing() {
        let text = "dependencies:\n- name: a\n  repository: https://charts.example.com\n  version: 1.2.3\ndigest: sha256:00\ngenerated: \"2024-01-02T03:04:05Z\"\n";
        assert_eq!(Lock::parse(text.as_bytes()).unwrap().to_yaml(), text);
    }
}
