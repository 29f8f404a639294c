//! Decrypts values that were encrypted with SOPS: those of ConfigMaps and Secrets, and those of the spec.
//!
//! An annotation of the HelmRelease names the Secret with the keys. Without it nothing is decrypted, and encrypted
//! values reach the chart as they are.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use weir_api::helm::{HelmRelease, ValuesReference};
use weir_apply::cluster::Cluster;
use weir_apply::object::ObjectRef;
use weir_base::clock::Clock;
use weir_kms::{Keys, Requests};
use weir_sops::{Format, KeyService};

use crate::error::Error;
use crate::spec;
use crate::values;

/// The annotation that names the Secret with the keys, in the namespace of the HelmRelease. Its entries are those of
/// the decryption Secret of a Kustomization. Flux ignores it.
pub const DECRYPTION_SECRET: &str = "weir.dev/decryption-secret";

/// The name of the Secret with the keys of a HelmRelease.
pub fn secret_name(object: &HelmRelease) -> Option<&str> {
    let annotations = object.metadata.annotations.as_ref()?;
    annotations.get(DECRYPTION_SECRET).map(|name| name.trim()).filter(|name| !name.is_empty())
}

/// The keys a HelmRelease decrypts with; `None` if it does not decrypt.
///
/// # Errors
/// [`Error::Values`]: the Secret does not exist, or has an entry that cannot be used.
pub async fn keys(
    local: &dyn Cluster,
    object: &HelmRelease,
    requests: &Requests,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Keys>, Error> {
    let Some(name) = secret_name(object) else { return Ok(None) };
    let namespace = spec::namespace(object);
    let failed =
        |why: &str| Error::Values(format!("cannot get sops decryption Secret '{namespace}/{name}': {why}"));
    let secret = match local.get(&ObjectRef::core("Secret", namespace, name)).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return Err(failed(&format!("secrets \"{name}\" not found"))),
        Err(error) => return Err(failed(&error.to_string())),
    };
    let mut keys = Keys::new(requests.clone(), Arc::clone(clock));
    for (entry, value) in secret["data"].as_object().into_iter().flatten() {
        let Some(content) = value.as_str().and_then(|text| STANDARD.decode(text).ok()) else { continue };
        keys.import(entry, &content).map_err(|error| {
            let place = format!("sops decryption Secret '{namespace}/{name}'");
            Error::Values(format!("failed to import '{entry}' data from {place}: {error}"))
        })?;
    }
    Ok(Some(keys))
}

/// The plain form of what a reference leads to; data that bears no mark of encryption stays as it is.
///
/// # Errors
/// What cannot be decrypted; the text shows neither values nor keys.
pub async fn referenced(
    reference: &ValuesReference,
    data: Vec<u8>,
    keys: &dyn KeyService,
) -> Result<Vec<u8>, String> {
    let Some(format) = Format::detect(&data) else { return Ok(data) };
    let has_target = reference.target_path.as_deref().is_some_and(|path| !path.is_empty());
    let wanted = if has_target { Format::of_path(values::key(reference)) } else { Format::Yaml };
    weir_sops::decrypt(&data, format, wanted, keys).await.map_err(|error| error.to_string())
}

/// The plain form of the values of a spec; `None` if they are not encrypted.
///
/// # Errors
/// [`Error::Values`]: they cannot be decrypted.
pub async fn inline(given: Option<&Json>, keys: &dyn KeyService) -> Result<Option<Json>, Error> {
    let Some(given) = given else { return Ok(None) };
    if given.pointer("/sops/mac").and_then(Json::as_str).is_none_or(str::is_empty) {
        return Ok(None);
    }
    let failed = |why: String| Error::Values(format!("could not decrypt spec.values: {why}"));
    let plain = weir_sops::decrypt(given.to_string().as_bytes(), Format::Json, Format::Json, keys)
        .await
        .map_err(|error| failed(error.to_string()))?;
    let plain = serde_json::from_slice(&plain);
    plain.map(Some).map_err(|_| failed("the decrypted values are no JSON".to_owned()))
}
