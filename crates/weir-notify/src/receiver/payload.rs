//! The bodies of registries.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Accepted, Rejected, quoted, shortened};

/// The first JSON value of a body: an object of this shape, or `null`. What follows it is ignored, as the reference does.
fn decode<T: DeserializeOwned + Default>(service: &'static str, body: &[u8]) -> Result<T, Rejected> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let decoded = Option::<T>::deserialize(&mut deserializer);
    Ok(decoded.map_err(|source| Rejected::Payload { service, source })?.unwrap_or_default())
}

fn text(text: Option<&String>) -> String {
    shortened(text.map_or("", String::as_str))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerHub {
    push_data: Option<DockerHubPush>,
    repository: Option<DockerHubRepository>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerHubPush {
    tag: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerHubRepository {
    repo_url: Option<String>,
}

pub(super) fn docker_hub(body: &[u8]) -> Result<String, Rejected> {
    let event: DockerHub = decode("DockerHub", body)?;
    let repository = text(event.repository.and_then(|repository| repository.repo_url).as_ref());
    let tag = text(event.push_data.and_then(|push| push.tag).as_ref());
    Ok(format!("handling DockerHub event from {repository} for tag {tag}"))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Quay {
    docker_url: Option<String>,
    #[serde(rename = "updated_tags")]
    _updated_tags: Option<Vec<Option<String>>>,
}

pub(super) fn quay(body: &[u8]) -> Result<String, Rejected> {
    let event: Quay = decode("Quay", body)?;
    Ok(format!("handling Quay event from {}", text(event.docker_url.as_ref())))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Nexus {
    #[serde(rename = "action")]
    _action: Option<String>,
    repository_name: Option<String>,
}

pub(super) fn nexus(body: &[u8]) -> Result<String, Rejected> {
    let event: Nexus = decode("Nexus", body)?;
    Ok(format!("handling Nexus event from {}", text(event.repository_name.as_ref())))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Acr {
    #[serde(rename = "action")]
    _action: Option<String>,
    target: Option<AcrTarget>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AcrTarget {
    repository: Option<String>,
    tag: Option<String>,
}

pub(super) fn acr(body: &[u8]) -> Result<String, Rejected> {
    let event: Acr = decode("ACR", body)?;
    let target = event.target.unwrap_or_default();
    let (repository, tag) = (text(target.repository.as_ref()), text(target.tag.as_ref()));
    Ok(format!("handling ACR event from {repository} for tag {tag}"))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PubSub {
    message: Option<PubSubMessage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PubSubMessage {
    data: Option<String>,
}

/// The event inside a message of Pub/Sub; filters see exactly these keys.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Gcr {
    #[serde(deserialize_with = "or_empty")]
    action: String,
    #[serde(deserialize_with = "or_empty")]
    digest: String,
    #[serde(deserialize_with = "or_empty")]
    tag: String,
}

fn or_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

pub(super) fn gcr(body: &[u8]) -> Result<Accepted<'_>, Rejected> {
    let message = decode::<PubSub>("GCR", body)?.message.unwrap_or_default();
    let inner = STANDARD.decode(message.data.unwrap_or_default()).unwrap_or_default();
    let event: Gcr = decode("GCR", &inner)?;
    // A struct of strings always serialises.
    let inner = serde_json::to_vec(&event).unwrap_or_default();
    Ok(Accepted {
        about: format!(
            "handling GCR event from {} for tag {}",
            shortened(&event.digest),
            shortened(&event.tag)
        ),
        body: Cow::Owned(inner),
        is_json: true,
        claims: None,
    })
}

/// Checks that Google's token was made for the account that pushes messages.
pub(super) fn check_google_account(claims: &Value, email: &str) -> Result<(), String> {
    let text = |name: &str| claims[name].as_str().unwrap_or_default();
    let issuer = text("iss");
    if issuer != "accounts.google.com" && issuer != "https://accounts.google.com" {
        return Err(format!(
            "token issuer is {}, want 'accounts.google.com' or 'https://accounts.google.com'",
            quoted(issuer)
        ));
    }
    if text("email") != email {
        return Err(format!("token email is {}, want '{email}'", quoted(text("email"))));
    }
    if claims["email_verified"] != Value::Bool(true) {
        return Err(format!("token email '{email}' is not verified"));
    }
    Ok(())
}
