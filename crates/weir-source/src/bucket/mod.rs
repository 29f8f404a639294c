//! Buckets of object stores: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage.
//!
//! A listing gives every object with its entity tag; the digest of that [`Index`] is the revision, so an unchanged
//! bucket costs the listing alone. Requests are signed here; none of the vendors' client libraries is used.

mod azure;
mod gcs;
mod http;
mod s3;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ::http::{Method, StatusCode};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use weir_artifact::digest::{Algorithm, Digest};
use weir_base::tree::{File, Files as _, InvalidPath, MemoryTree};

use crate::connection::{ClientCertificate, ConnectionError, Proxy};
use crate::ignore::{IGNORE_FILE, Rules};

pub use azure::{Azure, AzureLogin, account_of};
pub use gcs::{Gcs, SCOPE as GCS_SCOPE};
pub use s3::{S3, S3Options};

/// Objects that are downloaded at the same time.
const DOWNLOADS_MAX: usize = 100;
/// Objects a bucket may have below the prefix.
const OBJECTS_MAX: usize = 500_000;
/// The largest ignore file.
const IGNORE_BYTES_MAX: u64 = 1 << 20;
/// The sum of all objects that are downloaded for one artifact.
pub const BUCKET_BYTES_MAX: u64 = 1 << 30;

/// How to reach a store.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// PEM certificates of authorities to trust besides those of the system.
    pub certificate_authority: Option<Vec<u8>>,
    /// PEM client certificate and private key.
    pub client_certificate: Option<ClientCertificate>,
    /// A proxy that replaces those of the environment.
    pub proxy: Option<Proxy>,
}

impl Access {
    /// A client for the services that give credentials for the store; it follows no redirects.
    ///
    /// # Errors
    /// A certificate or the proxy cannot be used.
    pub fn requests(&self) -> Result<weir_cloud::Requests, ConnectionError> {
        http::client(self).map(weir_cloud::Requests::with_client)
    }
}

/// Why an exchange with an object store failed. No text has a query, where signatures are.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The client cannot be built.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The endpoint is not what it should be.
    #[error("invalid endpoint '{endpoint}': {why}")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The store cannot be reached or broke off.
    #[error("{method} {url}")]
    Network {
        /// The request method.
        method: Method,
        /// The URL, without query.
        url: String,
        /// The details.
        #[source]
        source: reqwest::Error,
    },
    /// The store refused.
    #[error("{method} {url}: {what}")]
    Refused {
        /// The request method.
        method: Method,
        /// The URL, without query.
        url: String,
        /// The status.
        status: StatusCode,
        /// The code of the error, or empty.
        code: String,
        /// The error in the answer, or the status.
        what: String,
    },
    /// An answer that is not what the protocol promises.
    #[error("{url}: {what}")]
    Answer {
        /// The URL, without query.
        url: String,
        /// What is wrong.
        what: &'static str,
    },
    /// More bytes than allowed.
    #[error("{url}: the objects are larger than {bytes_max} bytes in sum")]
    TooLarge {
        /// The URL of the object with which the limit was passed, without query.
        url: String,
        /// The limit.
        bytes_max: u64,
    },
    /// More objects than allowed.
    #[error("the bucket has more than {0} objects")]
    TooMany(usize),
    /// An object whose key is not a path.
    #[error("object '{key}' cannot be stored as a file: {why}")]
    Key {
        /// The key.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// An object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The key.
    pub key: String,
    /// The entity tag in the form the revision is made of.
    pub etag: String,
}

/// A downloaded object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The content.
    pub data: Bytes,
    /// The entity tag of the content.
    pub etag: String,
}

/// A bucket of a store.
#[derive(Debug)]
pub enum Bucket {
    /// S3, or what speaks its protocol.
    S3(S3),
    /// Google Cloud Storage.
    Gcs(Gcs),
    /// Azure Blob Storage.
    Azure(Azure),
}

impl Bucket {
    /// Whether there is such a bucket.
    ///
    /// # Errors
    /// The store cannot be reached or refuses to say.
    pub async fn exists(&self) -> Result<bool, BucketError> {
        match self {
            Self::S3(store) => store.exists().await,
            Self::Gcs(store) => store.exists().await,
            Self::Azure(store) => store.exists().await,
        }
    }

    /// All objects whose key starts with `prefix`.
    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, BucketError> {
        match self {
            Self::S3(store) => store.list(prefix).await,
            Self::Gcs(store) => store.list(prefix).await,
            Self::Azure(store) => store.list(prefix).await,
        }
    }

    /// An object, or `None` if there is none with this key (any more).
    async fn get(&self, key: &str, bytes_max: u64) -> Result<Option<Fetched>, BucketError> {
        match self {
            Self::S3(store) => store.get(key, bytes_max).await,
            Self::Gcs(store) => store.get(key, bytes_max).await,
            Self::Azure(store) => store.get(key, bytes_max).await,
        }
    }

    /// The objects below `prefix` that neither the ignore file of the bucket nor the patterns of the specification
    /// leave out.
    ///
    /// # Errors
    /// The store cannot be reached or refuses, or there are more than half a million objects.
    pub async fn index(&self, prefix: &str, ignore: Option<&str>) -> Result<Index, BucketError> {
        let ignore_file = self.get(IGNORE_FILE, IGNORE_BYTES_MAX).await?.map(|fetched| fetched.data);
        let lines = ignore_file.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        let rules = Rules::without_defaults(&lines, ignore);
        let mut etags = BTreeMap::new();
        for Listed { key, etag } in self.list(prefix).await? {
            if key.is_empty() || key.ends_with('/') || key == IGNORE_FILE || rules.excludes(&key, false) {
                continue;
            }
            etags.insert(key, etag);
        }
        Ok(Index { etags, ignore_file })
    }

    /// Downloads what the index names, several objects at a time. Objects that have gone meanwhile leave the index;
    /// those that have changed get their new tag.
    ///
    /// # Errors
    /// The store cannot be reached or refuses; the objects have more than a gigabyte in sum; a key is no path.
    pub async fn fetch(&self, index: &mut Index) -> Result<MemoryTree, BucketError> {
        let paths = index.etags.keys().map(|key| Ok((key.clone(), path_of(key)?)));
        let paths: Vec<(String, String)> = paths.collect::<Result<_, BucketError>>()?;
        let left = AtomicU64::new(BUCKET_BYTES_MAX);
        let downloads = futures::stream::iter(paths).map(|(key, path)| {
            let left = &left;
            async move {
                let fetched = self.get(&key, left.load(Ordering::Relaxed)).await?;
                let length = fetched.as_ref().map_or(0, |fetched| fetched.data.len() as u64);
                let take = |left: u64| left.checked_sub(length);
                if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
                    return Err(BucketError::TooLarge { url: key, bytes_max: BUCKET_BYTES_MAX });
                }
                Ok((key, path, fetched))
            }
        });
        let downloads: Vec<_> = downloads.buffer_unordered(DOWNLOADS_MAX).try_collect().await?;
        let mut tree = MemoryTree::new();
        if let Some(data) = &index.ignore_file {
            insert(&mut tree, IGNORE_FILE, IGNORE_FILE, data.clone())?;
        }
        for (key, path, fetched) in downloads {
            match fetched {
                None => {
                    index.etags.remove(&key);
                }
                Some(Fetched { data, etag }) => {
                    insert(&mut tree, &key, &path, data)?;
                    index.etags.insert(key, etag);
                }
            }
        }
        Ok(tree)
    }
}

/// The file an object becomes.
fn path_of(key: &str) -> Result<String, BucketError> {
    let refused = |why| BucketError::Key { key: key.to_owned(), why };
    if key.contains(['\0', '\\']) {
        return Err(refused("it has characters that paths cannot have"));
    }
    let parts: Vec<&str> = key.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return Err(refused("it leads out of its directory"));
    }
    Ok(parts.join("/"))
}

fn insert(tree: &mut MemoryTree, key: &str, path: &str, data: Bytes) -> Result<(), BucketError> {
    let refused = |why| BucketError::Key { key: key.to_owned(), why };
    let below_file = path.match_indices('/').any(|(slash, _)| tree.read(&path[..slash]).is_some());
    if below_file || tree.kind(path).is_some() {
        return Err(refused("another object has the same path, or a part of it"));
    }
    tree.insert(path, File { data, executable: false })
        .map_err(|InvalidPath(_)| refused("it has characters that paths cannot have"))
}

/// The objects of a bucket with their entity tags, and its ignore file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    etags: BTreeMap<String, String>,
    ignore_file: Option<Bytes>,
}

impl Index {
    /// The number of objects.
    pub fn len(&self) -> usize {
        self.etags.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.etags.is_empty()
    }

    /// The digest of the keys and tags, which is the revision of the bucket.
    pub fn digest(&self, algorithm: Algorithm) -> Digest {
        let mut hasher = algorithm.hasher();
        for (key, etag) in &self.etags {
            hasher.update(key.as_bytes());
            hasher.update(b" ");
            hasher.update(etag.as_bytes());
            hasher.update(b"\n");
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_those_of_flux() {
        let index = |etags: &[(&str, &str)]| Index {
            etags: etags.iter().map(|(key, etag)| ((*key).to_owned(), (*etag).to_owned())).collect(),
            ignore_file: None,
        };
        let digest = |etags: &[(&str, &str)]| index(etags).digest(Algorithm::Sha256).to_string();
        assert_eq!(digest(&[]), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        // `printf 'bar.txt b\nfoo/x.txt a\n' | sha256sum`
        assert_eq!(
            digest(&[("foo/x.txt", "a"), ("bar.txt", "b")]),
            digest(&[("bar.txt", "b"), ("foo/x.txt", "a")])
        );
        assert_eq!(
            digest(&[("foo/x.txt", "a"), ("bar.txt", "b")]),
            Algorithm::Sha256.digest(b"bar.txt b\nfoo/x.txt a\n").to_string()
        );
    }

    #[test]
    fn keys_are_paths_or_refused() {
        #[track_caller]
        fn check(key: &str, expected: Option<&str>) {
            assert_eq!(path_of(key).ok().as_deref(), expected, "{key}");
        }
        check("a/b.yaml", Some("a/b.yaml"));
        check("/a//b.yaml", Some("a/b.yaml"));
        check("a/../../etc/passwd", None);
        check("..", None);
        check("a\\..\\b", None);
        check("..a/b..", Some("..a/b.."));
        let mut tree = MemoryTree::new();
        insert(&mut tree, "a/b", "a/b", Bytes::new()).unwrap();
        for path in ["a", "a/b/c", "a/b"] {
            assert!(insert(&mut tree, path, path, Bytes::new()).is_err(), "{path}");
        }
    }
}
