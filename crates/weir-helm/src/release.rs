//! Release records: what Helm keeps in a Secret or ConfigMap for every revision.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::chart::{Chart, File};
use crate::metadata::Metadata;

/// The type of the Secrets that hold records.
pub const SECRET_TYPE: &str = "helm.sh/release.v1";
/// The key of the record in the Secret or ConfigMap.
pub const DATA_KEY: &str = "release";
/// Bytes a record may unpack to.
pub const RECORD_BYTES_MAX: u64 = 512 << 20;

/// Where a release stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are Helm's")]
pub enum Status {
    #[default]
    Unknown,
    Deployed,
    Uninstalled,
    Superseded,
    Failed,
    Uninstalling,
    PendingInstall,
    PendingUpgrade,
    PendingRollback,
}

impl Status {
    /// The text in records and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
        }
    }

    /// Whether an operation is under way.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }
}

/// When and how a revision came about. Times are RFC 3339 texts; empty ones count as absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Info {
    /// When the first revision was deployed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub first_deployed: String,
    /// When this one was.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_deployed: String,
    /// When it was uninstalled.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deleted: String,
    /// One sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where it stands.
    #[serde(skip_serializing_if = "is_unknown")]
    pub status: Status,
    /// The rendered notes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Fields of other versions of Helm, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_unknown(status: &Status) -> bool {
    *status == Status::Unknown
}

/// A file in a record; the data is base64 there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordFile {
    /// The path.
    pub name: String,
    /// The content.
    #[serde(with = "bytes_as_base64")]
    pub data: Vec<u8>,
    /// Fields of other versions of Helm, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

mod bytes_as_base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(data))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        STANDARD.decode(text.unwrap_or_default()).map_err(serde::de::Error::custom)
    }
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// No files are `null`, as in the records of Helm.
fn empty_as_null<S: serde::Serializer>(files: &[RecordFile], serializer: S) -> Result<S::Ok, S::Error> {
    if files.is_empty() { serializer.serialize_none() } else { files.serialize(serializer) }
}

/// The chart in a record, without its subcharts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordChart {
    /// `Chart.yaml`
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: Metadata,
    /// `Chart.lock`
    pub lock: Option<Json>,
    /// The templates.
    #[serde(deserialize_with = "null_as_default", serialize_with = "empty_as_null")]
    pub templates: Vec<RecordFile>,
    /// The default values.
    #[serde(deserialize_with = "null_as_default")]
    pub values: Map<String, Json>,
    /// The schema, base64.
    pub schema: Option<String>,
    /// All other files.
    #[serde(deserialize_with = "null_as_default", serialize_with = "empty_as_null")]
    pub files: Vec<RecordFile>,
    /// Fields of other versions of Helm, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

impl From<&Chart> for RecordChart {
    fn from(chart: &Chart) -> Self {
        let files = |files: &[File]| {
            files
                .iter()
                .map(|file| RecordFile {
                    name: file.name.clone(),
                    data: file.data.to_vec(),
                    other: Map::new(),
                })
                .collect()
        };
        Self {
            metadata: chart.metadata.clone(),
            lock: chart.lock.as_ref().and_then(|lock| serde_json::to_value(lock).ok()),
            templates: files(&chart.templates),
            values: chart.values.clone(),
            schema: chart.schema.as_ref().map(|schema| STANDARD.encode(schema)),
            files: files(&chart.files),
            other: Map::new(),
        }
    }
}

/// How the last run of a hook went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HookRun {
    /// When it began.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub started_at: String,
    /// When it ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub completed_at: String,
    /// `Running`, `Succeeded`, `Failed`, `Unknown` or nothing.
    pub phase: String,
}

/// A hook in a record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordHook {
    /// `metadata.name`
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `kind`
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The file it comes from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Its text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// When it runs.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub events: Vec<String>,
    /// Its last run.
    pub last_run: HookRun,
    /// Its weight.
    #[serde(skip_serializing_if = "is_zero")]
    pub weight: i64,
    /// When it is deleted.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub delete_policies: Vec<String>,
    /// When its output is logged.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub output_log_policies: Vec<String>,
    /// Fields of other versions of Helm, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl From<&crate::manifest::Hook> for RecordHook {
    fn from(hook: &crate::manifest::Hook) -> Self {
        Self {
            name: hook.name.clone(),
            kind: hook.kind.clone(),
            path: hook.path.clone(),
            manifest: hook.manifest.clone(),
            events: hook.events.iter().map(|event| event.name().to_owned()).collect(),
            last_run: HookRun::default(),
            weight: hook.weight,
            delete_policies: hook.delete_policies.clone(),
            output_log_policies: hook.output_log_policies.clone(),
            other: Map::new(),
        }
    }
}

/// One revision of a release.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The name of the release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When and how.
    #[serde(deserialize_with = "null_as_default")]
    pub info: Info,
    /// The chart.
    #[serde(deserialize_with = "null_as_default")]
    pub chart: RecordChart,
    /// The values that were given.
    #[serde(skip_serializing_if = "Map::is_empty", deserialize_with = "null_as_default")]
    pub config: Map<String, Json>,
    /// The text that was applied.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// The hooks.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub hooks: Vec<RecordHook>,
    /// The revision.
    #[serde(skip_serializing_if = "is_zero")]
    pub version: i64,
    /// The namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// `ssa`, or nothing or `csa` for client-side apply.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub apply_method: String,
    /// Fields of other versions of Helm, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

/// Why a record cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The text is not base64.
    #[error("release record is not base64: {0}")]
    Base64(String),
    /// The compressed data is broken, or unpacks to more than [`RECORD_BYTES_MAX`].
    #[error("release record cannot be decompressed: {0}")]
    Compression(String),
    /// The data is no record.
    #[error("release record cannot be read: {0}")]
    Json(String),
}

impl Record {
    /// The text stored under [`DATA_KEY`]; in a Secret it is encoded once more by the API.
    pub fn encode(&self) -> Result<String, RecordError> {
        let json = serde_json::to_vec(self).map_err(|error| RecordError::Json(error.to_string()))?;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let compressed = encoder
            .write_all(&json)
            .and_then(|()| encoder.finish())
            .map_err(|error| RecordError::Compression(error.to_string()))?;
        Ok(STANDARD.encode(compressed))
    }

    /// Reads what [`Record::encode`] or Helm wrote; very old records are not compressed.
    pub fn decode(text: &str) -> Result<Self, RecordError> {
        let data =
            STANDARD.decode(text.trim_end()).map_err(|error| RecordError::Base64(error.to_string()))?;
        let mut json = Vec::new();
        if data.starts_with(&[0x1f, 0x8b, 0x08]) {
            let bad = |text: String| RecordError::Compression(text);
            flate2::read::GzDecoder::new(&data[..])
                .take(RECORD_BYTES_MAX + 1)
                .read_to_end(&mut json)
                .map_err(|error| bad(error.to_string()))?;
            if json.len() as u64 > RECORD_BYTES_MAX {
                return Err(bad(format!("more than {RECORD_BYTES_MAX} bytes")));
            }
        } else {
            json = data;
        }
        serde_json::from_slice(&json).map_err(|error| RecordError::Json(error.to_string()))
    }

    /// Whether the revision was made by server-side apply.
    pub fn is_server_side(&self) -> bool {
        self.apply_method == "ssa"
    }

    /// The name of the Secret or ConfigMap.
    pub fn object_name(&self) -> String {
        object_name(&self.name, self.version)
    }

    /// The labels of the Secret or ConfigMap, without the time of creation or change.
    pub fn labels(&self) -> BTreeMap<String, String> {
        [
            ("name", self.name.clone()),
            ("owner", "helm".to_owned()),
            ("status", self.info.status.name().to_owned()),
            ("version", self.version.to_string()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}

/// The name of the Secret or ConfigMap of a revision.
pub fn object_name(release: &str, revision: i64) -> String {
    format!("sh.helm.release.v1.{release}.v{revision}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_encoding() {
        let record = Record {
            name: "podinfo".to_owned(),
            info: Info {
                first_deployed: "2026-01-02T03:04:05Z".to_owned(),
                status: Status::PendingUpgrade,
                description: "Preparing upgrade".to_owned(),
                ..Info::default()
            },
            manifest: "---\n# Source: a\nkind: A\n".to_owned(),
            version: 3,
            namespace: "prod".to_owned(),
            apply_method: "ssa".to_owned(),
            ..Record::default()
        };
        let encoded = record.encode().unwrap();
        assert_eq!(Record::decode(&encoded).unwrap(), record);
        assert_eq!(record.object_name(), "sh.helm.release.v1.podinfo.v3");
        assert_eq!(record.labels()["status"], "pending-upgrade");
    }

    #[test]
    fn old_and_sparse_records_are_read() {
        let json = r#"{"name":"a","info":{"status":"deployed","deleted":""},"chart":{"metadata":null,"lock":null,"templates":null,"values":null,"schema":null,"files":null},"hooks":null,"version":1}"#;
        let record = Record::decode(&STANDARD.encode(json)).unwrap();
        assert_eq!((record.info.status, record.version), (Status::Deployed, 1));
        assert!(Record::decode("!").is_err());
        assert!(Record::decode("e30=").is_ok());
    }
}
