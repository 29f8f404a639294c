//! Decrypts what a build reads, and what it gives.
//!
//! Generators and patches need plain files, so these are decrypted before the build. Everything else is decrypted
//! after it, when names, namespaces and patches have found their places. Checksums are not compared, as in the
//! reference: a build may rightly change an encrypted document.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use weir_base::tree::{Files, Kind};
use weir_manifest::ReadOptions;
use weir_sops::{Format, KeyService, decrypt};

use crate::build::{BuildError, full_name, secure_join};
use crate::decide::GROUP;

/// The largest file that is decrypted.
const FILE_BYTES_MAX: usize = 5 << 20;
const KUSTOMIZATION_FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The plain contents of the encrypted files that generators and patches read, in `directory` and all directories its
/// kustomization includes.
///
/// # Errors
/// [`BuildError::Sources`]: a file that cannot be decrypted, or a directory without exactly one kustomization file.
pub async fn sources(
    files: &dyn Files,
    directory: &str,
    keys: &dyn KeyService,
) -> Result<BTreeMap<String, Bytes>, BuildError> {
    let mut plain = BTreeMap::new();
    let mut seen = BTreeSet::new();
    // Depth first, in the order of the kustomizations, so that the first mistake is the one that is reported.
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        if files.kind(&directory) != Some(Kind::Directory) || !seen.insert(directory.clone()) {
            continue;
        }
        let kustomization = kustomization(files, &directory).map_err(BuildError::Sources)?;
        for (path, format) in references(&kustomization) {
            let path = resolve(&directory, &path);
            if plain.contains_key(&path) {
                continue;
            }
            if let Some(decrypted) = file(files, &path, format, keys).await.map_err(BuildError::Sources)? {
                plain.insert(path, decrypted);
            }
        }
        let included = ["resources", "components"].into_iter().flat_map(|field| texts(&kustomization, field));
        let included: Vec<String> = included.map(|path| resolve(&directory, path)).collect();
        directories.extend(included.into_iter().rev());
    }
    Ok(plain)
}

/// A path of a kustomization, from the root of the tree. It cannot leave the tree.
fn resolve(directory: &str, path: &str) -> String {
    if path.starts_with('/') { secure_join(path) } else { secure_join(&format!("{directory}/{path}")) }
}

fn kustomization(files: &dyn Files, directory: &str) -> Result<Value, String> {
    let path = |name: &str| resolve(directory, name);
    let mut found = KUSTOMIZATION_FILES.into_iter().filter(|name| files.kind(&path(name)).is_some());
    let name = found.next().ok_or("no kustomization file found")?;
    if found.next().is_some() {
        return Err("found multiple kustomization files".to_owned());
    }
    let path = path(name);
    let content = files.read(&path).ok_or_else(|| format!("expected {name} to be a regular file"))?;
    weir_manifest::read_first_document(&content, "", ReadOptions::default())
        .map_err(|error| format!("failed to unmarshal kustomization file from '{path}': {error}"))
}

fn texts<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    value.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The files a kustomization generates from and patches with, and the format each would have if it were encrypted.
fn references(kustomization: &Value) -> Vec<(String, Format)> {
    let list = |field: &str| kustomization.get(field).and_then(Value::as_array).into_iter().flatten();
    let mut found = Vec::new();
    for generator in list("secretGenerator") {
        for entry in texts(generator, "files") {
            let (key, path) = entry.split_once('=').unwrap_or((entry, entry));
            found.push((path.to_owned(), Format::of_path(key)));
        }
        for path in texts(generator, "envs") {
            let format = match Format::of_path(path) {
                Format::Binary => Format::Dotenv,
                other => other,
            };
            found.push((path.to_owned(), format));
        }
    }
    for patch in list("patches") {
        let path = patch.get("path").and_then(Value::as_str).unwrap_or_default();
        let is_remote = path.split_once("://").is_some_and(|(scheme, rest)| {
            !scheme.is_empty() && !scheme.contains('/') && !rest.is_empty() && !rest.starts_with('/')
        });
        if !path.is_empty() && !is_remote {
            found.push((path.to_owned(), Format::of_path(path)));
        }
    }
    found
}

/// The plain content of a file; `None` if it is not encrypted.
async fn file(
    files: &dyn Files,
    path: &str,
    format: Format,
    keys: &dyn KeyService,
) -> Result<Option<Bytes>, String> {
    let content = match files.kind(path) {
        None => return Err(format!("lstat {path}: no such file or directory")),
        Some(Kind::Directory) => {
            return Err(format!(
                "cannot decrypt irregular file as it has file mode type bits set: '{path}' is a directory"
            ));
        }
        Some(Kind::File) => files.read(path).unwrap_or_default(),
    };
    if content.len() > FILE_BYTES_MAX {
        return Err(format!(
            "cannot decrypt file with size ({} bytes) exceeding limit ({FILE_BYTES_MAX}): '{path}'",
            content.len()
        ));
    }
    if !format.marks(&content) {
        return Ok(None);
    }
    let plain =
        decrypt(&content, format, format, keys).await.map_err(|error| format!("'{path}': {error}"))?;
    Ok(Some(plain.into()))
}

/// Decrypts the objects of a build in place: whole documents, and values of Secrets that hold encrypted files.
///
/// # Errors
/// [`BuildError::Encrypted`]: the first object that cannot be decrypted.
pub async fn objects(objects: &mut [Value], keys: &dyn KeyService) -> Result<(), BuildError> {
    for object in objects {
        if let Err(message) = decrypt_object(object, keys).await {
            return Err(BuildError::Encrypted { object: full_name(object), message });
        }
    }
    Ok(())
}

async fn decrypt_object(object: &mut Value, keys: &dyn KeyService) -> Result<(), String> {
    let opted_out = weir_apply::object::annotation(object, &format!("{GROUP}/decrypt"))
        .is_some_and(|value| value.eq_ignore_ascii_case("disabled"));
    if opted_out {
        return Ok(());
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, kind) = (format!("{}/{}", text("/metadata/namespace"), text("/metadata/name")), text("/kind"));
    if !text("/sops/mac").is_empty() {
        let plain = decrypt(object.to_string().as_bytes(), Format::Json, Format::Json, keys)
            .await
            .map_err(|error| format!("failed to decrypt and format '{name}' {kind} data: {error}"))?;
        *object = serde_json::from_slice(&plain)
            .map_err(|_| format!("failed to unmarshal decrypted '{name}' {kind} to JSON"))?;
        return Ok(());
    }
    if kind != "Secret" {
        return Ok(());
    }
    let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) else { return Ok(()) };
    for (key, value) in data {
        // What is no base64 is left for the API server to refuse.
        let Some(content) = value.as_str().and_then(|text| STANDARD.decode(text).ok()) else { continue };
        let Some(format) = Format::detect(&content) else { continue };
        let plain = decrypt(&content, format, Format::of_path(key), keys).await.map_err(|error| {
            format!("failed to decrypt and format '{name}' Secret field '{key}': {error}")
        })?;
        *value = STANDARD.encode(plain).into();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
