//! Why a Bucket could not be reconciled, with the condition and reason Flux gives it.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use weir_api::names::condition::{FETCH_FAILED, STORAGE_OPERATION_FAILED};
use weir_artifact::storage::StorageError;
use weir_cloud::{CloudError, HttpError, InvalidCredentials};
use weir_runtime::{Class, Classify};
use weir_source::bucket::BucketError;
use weir_source::connection::ConnectionError;

use crate::identity::IdentityError;
use crate::source::SourceError;
use crate::source::secrets::{CertificateError, SecretError};
use crate::source::storage::{CheckError, RemoveError};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage step failed.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The token service does not go with the store.
    #[error("{0}")]
    TokenService(String),
    /// The address of the token service is not one.
    #[error("failed to parse STS endpoint '{endpoint}'")]
    TokenServiceUrl {
        /// The address.
        endpoint: String,
        /// What is wrong with it.
        #[source]
        source: Option<url::ParseError>,
    },
    /// An identity is asked for that the feature gate forbids.
    #[error(
        "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller"
    )]
    FeatureGate,
    /// The store cannot be asked.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The store does not say whether there is such a bucket.
    #[error("failed to confirm existence of '{bucket}' bucket")]
    Exists {
        /// The bucket.
        bucket: String,
        /// Why not.
        #[source]
        source: Box<BucketError>,
    },
    /// There is no such bucket.
    #[error("bucket '{0}' not found")]
    NotFound(String),
    /// The objects cannot be listed.
    #[error("listing objects from bucket '{bucket}' failed")]
    List {
        /// The bucket.
        bucket: String,
        /// Why not.
        #[source]
        source: Box<BucketError>,
    },
    /// The objects cannot be downloaded.
    #[error("fetch from bucket failed")]
    Fetch(#[source] Box<BucketError>),
    /// The time of a step is up.
    #[error("context deadline exceeded: the operation did not finish within {}s", .0.as_secs_f64())]
    Deadline(Duration),
    /// The directory of the object could not be made.
    #[error("failed to create artifact directory")]
    CreateDirectory(#[source] StorageError),
    /// The lock could not be taken.
    #[error("failed to acquire lock for artifact")]
    Lock(#[source] StorageError),
    /// The artifact could not be written to the storage.
    #[error("unable to archive artifact to storage")]
    Store(#[source] StorageError),
    /// The archive could not be made.
    #[error("unable to archive artifact to storage")]
    Archive(#[source] io::Error),
    /// What a deleted object stored could not be removed.
    #[error("garbage collection for deleted resource failed")]
    GarbageCollection(#[source] StorageError),
    /// The process shuts down.
    #[error("the operation was aborted")]
    Aborted,
}

/// Why the store cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The Secret cannot be read.
    #[error("failed to get secret '{name}'")]
    Secret {
        /// Its namespace and name.
        name: String,
        /// Why not.
        #[source]
        source: SecretError,
    },
    /// The Secret lacks what the provider needs, or has something broken.
    #[error("invalid '{name}' secret data: {what}")]
    Data {
        /// The name of the Secret.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The credentials in the Secret are broken.
    #[error("invalid '{name}' secret data")]
    Credentials {
        /// The name of the Secret.
        name: String,
        /// What is wrong with them.
        #[source]
        source: InvalidCredentials,
    },
    /// The certificate Secret cannot be used.
    #[error("failed to get TLS config")]
    Certificates(#[from] CertificateError),
    /// The proxy Secret cannot be used.
    #[error("failed to get proxy address")]
    Proxy(#[source] SecretError),
    /// The client of a token service cannot be built.
    #[error("failed to create STS client")]
    TokenClient(#[source] ConnectionError),
    /// The token service refused.
    #[error("failed to get credentials from the STS endpoint")]
    TokenService(#[source] HttpError),
    /// An identity of the cloud is not there.
    #[error("failed to get credentials of the provider")]
    Identity(#[from] IdentityError),
    /// A token of the cloud is not there.
    #[error("failed to get credentials of the provider")]
    Cloud(#[from] CloudError),
    /// The client cannot be built.
    #[error("failed to construct bucket client")]
    Client(#[source] Box<BucketError>),
}

impl SourceError for Error {
    fn condition(&self) -> Option<&'static str> {
        match self {
            Self::FeatureGate
            | Self::TokenService(_)
            | Self::TokenServiceUrl { .. }
            | Self::Access(_)
            | Self::Exists { .. }
            | Self::NotFound(_)
            | Self::List { .. }
            | Self::Fetch(_)
            | Self::Deadline(_) => Some(FETCH_FAILED),
            Self::CreateDirectory(_) | Self::Store(_) | Self::Archive(_) => Some(STORAGE_OPERATION_FAILED),
            Self::Check(_) | Self::Lock(_) | Self::GarbageCollection(_) | Self::Aborted => None,
        }
    }

    fn is_event(&self) -> bool {
        !matches!(self, Self::Check(_))
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::FeatureGate | Self::TokenService(_) | Self::TokenServiceUrl { .. } => Class::Terminal,
            Self::Check(_)
            | Self::Access(_)
            | Self::Exists { .. }
            | Self::NotFound(_)
            | Self::List { .. }
            | Self::Fetch(_)
            | Self::Deadline(_)
            | Self::CreateDirectory(_)
            | Self::Lock(_)
            | Self::Store(_)
            | Self::Archive(_)
            | Self::GarbageCollection(_)
            | Self::Aborted => Class::Backoff,
        }
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Check(_) | Self::Lock(_) | Self::Aborted => "Failed",
            Self::TokenService(_) => "InvalidSTSConfiguration",
            Self::TokenServiceUrl { .. } => "URLInvalid",
            Self::FeatureGate => "FeatureGateDisabled",
            Self::Access(_) => "AuthenticationFailed",
            Self::Exists { .. }
            | Self::NotFound(_)
            | Self::List { .. }
            | Self::Fetch(_)
            | Self::Deadline(_) => "BucketOperationFailed",
            Self::CreateDirectory(_) => "DirectoryCreationFailed",
            Self::Store(_) | Self::Archive(_) => "ArchiveOperationFailed",
            Self::GarbageCollection(_) => "GarbageCollectionFailed",
        })
    }
}

impl From<RemoveError> for Error {
    fn from(error: RemoveError) -> Self {
        match error {
            RemoveError::Storage(error) => Self::GarbageCollection(error),
            RemoveError::Aborted => Self::Aborted,
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_base::error::chain;

    use super::*;

    #[test]
    fn texts_reasons_and_classes() {
        #[track_caller]
        fn check(error: &Error, text: &str, reason: &str, class: Class) {
            assert_eq!(chain(error), text);
            assert_eq!((error.reason().as_ref(), error.class()), (reason, class));
        }
        check(
            &Error::NotFound("b".to_owned()),
            "bucket 'b' not found",
            "BucketOperationFailed",
            Class::Backoff,
        );
        check(
            &Error::Access(AccessError::Data {
                name: "s".to_owned(),
                what: "required fields 'accesskey' and 'secretkey'",
            }),
            "invalid 's' secret data: required fields 'accesskey' and 'secretkey'",
            "AuthenticationFailed",
            Class::Backoff,
        );
        check(&Error::TokenService("no".to_owned()), "no", "InvalidSTSConfiguration", Class::Terminal);
        let refused = BucketError::Refused {
            method: http::Method::HEAD,
            url: "https://minio/b/".to_owned(),
            status: http::StatusCode::FORBIDDEN,
            code: String::new(),
            what: "Access Denied.".to_owned(),
        };
        check(
            &Error::Exists { bucket: "b".to_owned(), source: Box::new(refused) },
            "failed to confirm existence of 'b' bucket: HEAD https://minio/b/: Access Denied.",
            "BucketOperationFailed",
            Class::Backoff,
        );
    }
}
