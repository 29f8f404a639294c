//! An S3 server that checks signatures.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use parking_lot::Mutex;
use s3s::auth::SimpleAuth;
use s3s::dto::{
    ETag, GetObjectInput, GetObjectOutput, HeadBucketInput, HeadBucketOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, StreamingBlob,
};
use s3s::service::S3ServiceBuilder;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use sha1::Digest as _;
use tokio::net::TcpListener;

/// Objects with their content and tag.
#[derive(Debug, Clone, Default)]
pub struct Objects(Arc<Mutex<BTreeMap<String, (String, String)>>>);

impl Objects {
    /// These keys and contents.
    pub fn of(entries: &[(&str, &str)]) -> Self {
        let objects = Self::default();
        for (key, content) in entries {
            objects.put(key, content);
        }
        objects
    }

    /// Writes an object.
    pub fn put(&self, key: &str, content: &str) {
        let etag = hex::encode(sha1::Sha1::digest(content.as_bytes()));
        self.0.lock().insert(key.to_owned(), (content.to_owned(), etag));
    }

    /// Removes an object.
    pub fn remove(&self, key: &str) {
        self.0.lock().remove(key);
    }

    /// The content and the tag of an object.
    pub fn get(&self, key: &str) -> Option<(String, String)> {
        self.0.lock().get(key).cloned()
    }

    /// Two keys and tags after a key, and whether there are more.
    pub fn page(&self, prefix: &str, after: &str) -> (Vec<(String, String)>, bool) {
        let all: Vec<(String, String)> = self
            .0
            .lock()
            .iter()
            .filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after)
            .map(|(key, (_, etag))| (key.clone(), etag.clone()))
            .collect();
        let more = all.len() > 2;
        (all.into_iter().take(2).collect(), more)
    }
}

#[derive(Clone)]
struct Store(Objects);

#[async_trait::async_trait]
impl S3 for Store {
    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        if request.input.bucket == "fleet" {
            Ok(S3Response::new(HeadBucketOutput::default()))
        } else {
            Err(s3_error!(NoSuchBucket))
        }
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let after = input.continuation_token.unwrap_or_default();
        let (page, more) = self.0.page(&input.prefix.unwrap_or_default(), &after);
        let next = page.last().map(|(key, _)| key.clone()).filter(|_| more);
        let contents = page.into_iter().map(|(key, etag)| Object {
            key: Some(key),
            e_tag: Some(ETag::Strong(etag)),
            ..Object::default()
        });
        Ok(S3Response::new(ListObjectsV2Output {
            contents: Some(contents.collect()),
            is_truncated: Some(more),
            next_continuation_token: next,
            ..ListObjectsV2Output::default()
        }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let (content, etag) = self.0.get(&request.input.key).ok_or_else(|| s3_error!(NoSuchKey))?;
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(content.len() as i64),
            body: Some(StreamingBlob::from(s3s::Body::from(content))),
            e_tag: Some(ETag::Strong(etag)),
            ..GetObjectOutput::default()
        }))
    }
}

/// Serves `objects` as the bucket `fleet` and returns host and port. Requests are signed
/// with the key `AKID` and `s3cret`, or `AKID2` and `s3cret2`.
pub async fn serve(objects: &Objects) -> String {
    let mut builder = S3ServiceBuilder::new(Store(objects.clone()));
    let mut keys = SimpleAuth::from_single("AKID", "s3cret");
    keys.register("AKID2".to_owned(), "s3cret2".into());
    builder.set_auth(keys);
    let service = axum::error_handling::HandleError::new(builder.build(), async |error: s3s::HttpError| {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}"))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let router = Router::new().fallback_service(service);
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}
