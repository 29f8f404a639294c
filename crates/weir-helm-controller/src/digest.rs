//! The digests by which the controller knows its releases, byte for byte those of the reference. Pure.

use std::fmt;

use serde_json::{Map, Value as Json, json};
use sha1::Digest as _;
use weir_api::common::CommonMetadata;
use weir_api::helm::PostRenderer;
use weir_helm::release::{Info, Record, RecordHook};

/// A digest algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Algorithm {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
    Blake3,
}

impl Algorithm {
    const ALL: [Self; 5] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512, Self::Blake3];

    /// The name in digests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
            Self::Blake3 => "blake3",
        }
    }

    /// The algorithm of that name.
    ///
    /// # Errors
    /// A name that is none of them.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        found.ok_or_else(|| {
            format!("unsupported digest algorithm '{name}', want sha1, sha256, sha384, sha512 or blake3")
        })
    }

    /// `<algorithm>:<hex>` of bytes.
    pub fn digest(self, bytes: &[u8]) -> String {
        let hex = match self {
            Self::Sha1 => hex::encode(sha1::Sha1::digest(bytes)),
            Self::Sha256 => hex::encode(sha2::Sha256::digest(bytes)),
            Self::Sha384 => hex::encode(sha2::Sha384::digest(bytes)),
            Self::Sha512 => hex::encode(sha2::Sha512::digest(bytes)),
            Self::Blake3 => blake3::hash(bytes).to_hex().to_string(),
        };
        format!("{}:{hex}", self.name())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The algorithm of a digest and the digest, if it is one.
fn split(digest: &str) -> Option<Algorithm> {
    let (algorithm, hex) = digest.split_once(':')?;
    let algorithm = Algorithm::parse(algorithm).ok()?;
    let length = match algorithm {
        Algorithm::Sha1 => 40,
        Algorithm::Sha256 | Algorithm::Blake3 => 64,
        Algorithm::Sha384 => 96,
        Algorithm::Sha512 => 128,
    };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (hex.len() == length && hex.bytes().all(is_hex)).then_some(algorithm)
}

/// The digest of release values.
pub fn values(algorithm: Algorithm, values: &Map<String, Json>) -> String {
    algorithm.digest(values_text(values).as_bytes())
}

/// Whether values have a digest.
pub fn is_of_values(digest: &str, given: &Map<String, Json>) -> bool {
    split(digest).is_some_and(|algorithm| values(algorithm, given) == digest)
}

fn values_text(values: &Map<String, Json>) -> String {
    if values.is_empty() {
        return String::new();
    }
    let mut tree = Json::Object(values.clone());
    with_integers(&mut tree);
    weir_manifest::to_yaml_with_sorted_keys(&tree)
}

/// Floats without a fraction become integers, as they are written in YAML.
fn with_integers(value: &mut Json) {
    match value {
        Json::Array(items) => items.iter_mut().for_each(with_integers),
        Json::Object(map) => map.values_mut().for_each(with_integers),
        Json::Number(number) if number.is_f64() => {
            let Some(float) = number.as_f64() else { return };
            // The bounds are exact powers of two, so the casts are exact as well.
            if float.fract() == 0.0
                && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float)
            {
                *value = Json::from(float as i64);
            } else if float.fract() == 0.0 && (0.0..18_446_744_073_709_551_616.0).contains(&float) {
                *value = Json::from(float as u64);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The digest of `spec.postRenderers`; empty if there are none.
pub fn post_renderers(renderers: &[PostRenderer]) -> String {
    if renderers.is_empty() {
        return String::new();
    }
    let mut text = String::from("[");
    for (index, renderer) in renderers.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&post_renderer(renderer));
    }
    text.push_str("]\n");
    Algorithm::Sha256.digest(text.as_bytes())
}

fn post_renderer(renderer: &PostRenderer) -> String {
    let Some(kustomize) = &renderer.kustomize else { return "{}".to_owned() };
    let mut inner = Fields::default();
    if !kustomize.patches.is_empty() {
        let patches: Vec<String> = kustomize
            .patches
            .iter()
            .map(|patch| {
                let mut fields = Fields::default();
                fields.raw("patch", &go_json(&Json::String(patch.patch.clone())));
                if let Some(target) = &patch.target {
                    let target = serde_json::to_value(target).unwrap_or_default();
                    let mut selector = Fields::default();
                    for key in [
                        "group",
                        "version",
                        "kind",
                        "namespace",
                        "name",
                        "annotationSelector",
                        "labelSelector",
                    ] {
                        selector.text(key, target[key].as_str().unwrap_or_default());
                    }
                    fields.raw("target", &selector.end());
                }
                fields.end()
            })
            .collect();
        inner.raw("patches", &format!("[{}]", patches.join(",")));
    }
    if !kustomize.images.is_empty() {
        let images: Vec<String> = kustomize
            .images
            .iter()
            .map(|image| {
                let mut fields = Fields::default();
                fields.raw("name", &go_json(&Json::String(image.name.clone())));
                fields.text("newName", image.new_name.as_deref().unwrap_or_default());
                fields.text("newTag", image.new_tag.as_deref().unwrap_or_default());
                fields.text("digest", image.digest.as_deref().unwrap_or_default());
                fields.end()
            })
            .collect();
        inner.raw("images", &format!("[{}]", images.join(",")));
    }
    let mut outer = Fields::default();
    outer.raw("kustomize", &inner.end());
    outer.end()
}

/// The digest of `spec.commonMetadata`; empty if there is none.
pub fn common_metadata(metadata: Option<&CommonMetadata>) -> String {
    let Some(metadata) = metadata else { return String::new() };
    let metadata = serde_json::to_value(metadata).unwrap_or_default();
    let mut fields = Fields::default();
    for key in ["annotations", "labels"] {
        if metadata[key].as_object().is_some_and(|map| !map.is_empty()) {
            fields.raw(key, &go_json(&metadata[key]));
        }
    }
    Algorithm::Sha256.digest(format!("{}\n", fields.end()).as_bytes())
}

/// The digest of what was observed of a release; `oci_digest` is left out if empty.
pub fn release(algorithm: Algorithm, record: &Record, oci_digest: &str) -> String {
    algorithm.digest(release_text(record, oci_digest).as_bytes())
}

/// Whether a digest is that of a release.
///
/// # Errors
/// A digest that cannot be one.
pub fn is_of_release(digest: &str, record: &Record, oci_digest: &str) -> Result<bool, String> {
    match split(digest) {
        Some(algorithm) => Ok(release(algorithm, record, oci_digest) == digest),
        None => Err(format!("invalid checksum digest format: '{digest}'")),
    }
}

fn release_text(record: &Record, oci_digest: &str) -> String {
    let mut fields = Fields::default();
    fields.raw("name", &go_json(&record.name.clone().into()));
    fields.raw("version", &record.version.to_string());
    fields.raw("info", &info_text(&record.info));
    let metadata = serde_json::to_string(&record.chart.metadata).unwrap_or_default();
    fields.raw("chartMetadata", &escape_html(&metadata));
    let config = if record.config.is_empty() {
        "null".to_owned()
    } else {
        go_json(&Json::Object(record.config.clone()))
    };
    fields.raw("config", &config);
    fields.raw("manifest", &go_json(&record.manifest.clone().into()));
    let hooks: Vec<String> = record.hooks.iter().filter(|hook| !is_test(hook)).map(hook_text).collect();
    let hooks = if hooks.is_empty() { "null".to_owned() } else { format!("[{}]", hooks.join(",")) };
    fields.raw("hooks", &hooks);
    fields.raw("namespace", &go_json(&record.namespace.clone().into()));
    fields.text("ociDigest", oci_digest);
    format!("{}\n", fields.end())
}

fn info_text(info: &Info) -> String {
    let mut fields = Fields::default();
    fields.text("first_deployed", &info.first_deployed);
    fields.text("last_deployed", &info.last_deployed);
    fields.text("deleted", &info.deleted);
    fields.text("description", &info.description);
    let status = info.status.name();
    fields.text("status", status);
    fields.text("notes", &info.notes);
    fields.end()
}

/// Whether a hook belongs to the tests, which do not count.
pub fn is_test(hook: &RecordHook) -> bool {
    hook.events.iter().any(|event| event == "test")
}

fn hook_text(hook: &RecordHook) -> String {
    let mut fields = Fields::default();
    fields.text("name", &hook.name);
    fields.text("kind", &hook.kind);
    fields.text("path", &hook.path);
    fields.text("manifest", &hook.manifest);
    if !hook.events.is_empty() {
        fields.raw("events", &go_json(&json!(hook.events)));
    }
    let mut run = Fields::default();
    run.text("started_at", &hook.last_run.started_at);
    run.text("completed_at", &hook.last_run.completed_at);
    run.raw("phase", &go_json(&hook.last_run.phase.clone().into()));
    fields.raw("last_run", &run.end());
    if hook.weight != 0 {
        fields.raw("weight", &hook.weight.to_string());
    }
    if !hook.delete_policies.is_empty() {
        fields.raw("delete_policies", &go_json(&json!(hook.delete_policies)));
    }
    if !hook.output_log_policies.is_empty() {
        fields.raw("output_log_policies", &go_json(&json!(hook.output_log_policies)));
    }
    fields.end()
}

/// A JSON object whose fields keep their order.
#[derive(Default)]
struct Fields(String);

impl Fields {
    fn raw(&mut self, key: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        for part in ["\"", key, "\":", value] {
            self.0.push_str(part);
        }
    }

    /// A text, left out if empty.
    fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.raw(key, &go_json(&value.into()));
        }
    }

    fn end(self) -> String {
        format!("{{{}}}", self.0)
    }
}

/// JSON as Go writes it: keys sorted, `<`, `>`, `&` and the line separators escaped, floats in Go's form.
fn go_json(value: &Json) -> String {
    match value {
        Json::Null | Json::Bool(_) => value.to_string(),
        Json::String(_) => escape_html(&value.to_string()),
        Json::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => weir_manifest::format_json_float(float).unwrap_or_default(),
            None => number.to_string(),
        },
        Json::Array(items) => {
            format!("[{}]", items.iter().map(go_json).collect::<Vec<_>>().join(","))
        }
        Json::Object(map) => {
            let entries = map.iter().map(|(key, value)| {
                format!("{}:{}", escape_html(&Json::String(key.clone()).to_string()), go_json(value))
            });
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
    }
}

fn escape_html(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests;
