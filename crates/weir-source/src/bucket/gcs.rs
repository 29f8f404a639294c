//! Google Cloud Storage, through its JSON interface.

use std::fmt;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use url::Url;
use weir_base::redact::Secret;

use super::http::{Answer, encode, exchange, query};
use super::{Access, BucketError, Fetched, Listed, OBJECTS_MAX};

const HOST: &str = "https://storage.googleapis.com";
const PAGE_BYTES_MAX: u64 = 16 << 20;
/// What a token must allow.
pub const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_only";

/// A bucket of Google Cloud Storage.
pub struct Gcs {
    client: reqwest::Client,
    host: String,
    bucket: String,
    token: Option<Secret>,
}

impl fmt::Debug for Gcs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Gcs({})", self.bucket)
    }
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    name: String,
    #[serde(default)]
    etag: String,
    #[serde(default)]
    generation: String,
}

impl Gcs {
    /// Prepares requests; nothing is sent yet. `host` replaces the address of the service, for an emulator.
    ///
    /// # Errors
    /// A certificate or the proxy cannot be used.
    pub fn new(
        bucket: &str,
        token: Option<Secret>,
        host: Option<&str>,
        access: &Access,
    ) -> Result<Self, BucketError> {
        let host = match host {
            None => HOST.to_owned(),
            Some(host) if host.starts_with("http://") || host.starts_with("https://") => {
                host.trim_end_matches('/').to_owned()
            }
            Some(host) => format!("http://{host}"),
        };
        Ok(Self { client: super::http::client(access)?, host, bucket: bucket.to_owned(), token })
    }

    async fn send(&self, path: &str, query: &str, bytes_max: u64) -> Result<Answer, BucketError> {
        let text = format!("{}/storage/v1/b/{}{path}?{query}", self.host, encode(&self.bucket));
        exchange(&self.client, bytes_max, || {
            let url = Url::parse(&text)
                .map_err(|_| BucketError::Endpoint { endpoint: self.host.clone(), why: "it is not a URL" })?;
            let mut request = reqwest::Request::new(Method::GET, url);
            if let Some(token) = &self.token {
                let value = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
                let mut value = value.map_err(|_| BucketError::Answer {
                    url: self.host.clone(),
                    what: "the access token has characters that headers cannot have",
                })?;
                value.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, value);
            }
            Ok(request)
        })
        .await
    }

    pub(super) async fn exists(&self) -> Result<bool, BucketError> {
        let answer = self.send("", "fields=name", PAGE_BYTES_MAX).await?;
        match answer.status {
            status if status.is_success() => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(refusal(answer)),
        }
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Listed>, BucketError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            #[serde(default)]
            items: Vec<Item>,
            next_page_token: Option<String>,
        }
        let mut found = Vec::new();
        let mut next = String::new();
        loop {
            let mut pairs = vec![("fields", "items(name,etag,generation),nextPageToken"), ("prefix", prefix)];
            if !next.is_empty() {
                pairs.push(("pageToken", &next));
            }
            let answer = self.send("/o", &query(&pairs), PAGE_BYTES_MAX).await?;
            if !answer.status.is_success() {
                return Err(refusal(answer));
            }
            let page: Page = serde_json::from_slice(&answer.body)
                .map_err(|_| answer.unexpected("the answer is not a listing"))?;
            found.extend(page.items.into_iter().map(|item| Listed { key: item.name, etag: item.etag }));
            if found.len() > OBJECTS_MAX {
                return Err(BucketError::TooMany(OBJECTS_MAX));
            }
            match page.next_page_token.filter(|token| !token.is_empty()) {
                Some(token) if token == next => {
                    return Err(answer.unexpected("the listing does not say how it goes on"));
                }
                Some(token) => next = token,
                None => return Ok(found),
            }
        }
    }

    /// The tag that goes with a content is in the metadata of its generation.
    pub(super) async fn get(&self, key: &str, bytes_max: u64) -> Result<Option<Fetched>, BucketError> {
        let path = format!("/o/{}", encode(key));
        let metadata = self.send(&path, "fields=etag,generation", PAGE_BYTES_MAX).await?;
        let item: Item = match metadata.status {
            status if status.is_success() => serde_json::from_slice(&metadata.body)
                .map_err(|_| metadata.unexpected("the answer is not the metadata of an object"))?,
            StatusCode::NOT_FOUND => return Ok(None),
            _ => return Err(refusal(metadata)),
        };
        let mut pairs = vec![("alt", "media")];
        if !item.generation.is_empty() {
            pairs.push(("generation", &item.generation));
        }
        let answer = self.send(&path, &query(&pairs), bytes_max).await?;
        match answer.status {
            status if status.is_success() => Ok(Some(Fetched { data: answer.body, etag: item.etag })),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(refusal(answer)),
        }
    }
}

fn refusal(answer: Answer) -> BucketError {
    #[derive(Deserialize, Default)]
    struct Outer {
        error: Inner,
    }
    #[derive(Deserialize, Default)]
    struct Inner {
        #[serde(default)]
        message: String,
    }
    let outer: Outer = serde_json::from_slice(&answer.body).unwrap_or_default();
    answer.refusal(Method::GET, String::new(), &outer.error.message)
}
