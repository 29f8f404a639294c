//! Why a HelmChart could not be reconciled, with the condition and reason Flux gives it.

use std::borrow::Cow;
use std::time::Duration;

use weir_api::names::condition::{BUILD_FAILED, FETCH_FAILED, SOURCE_VERIFIED, STORAGE_OPERATION_FAILED};
use weir_api::source::ChartSourceKind;
use weir_artifact::storage::StorageError;
use weir_artifact::unpack::UnpackError;
use weir_base::version::{ConstraintError, VersionError};
use weir_helm::chart::ChartError;
use weir_helm::metadata::MetadataError;
use weir_helm::package::PackageError;
use weir_helm::values::ValuesError;
use weir_runtime::{Class, Classify};

use super::remote::RemoteError;
use crate::helm_repository::AccessError;
use crate::source::SourceError;
use crate::source::storage::{CheckError, RemoveError};
use crate::source::verify::VerifyError;

/// The wait for a source that has nothing stored; it wakes the chart when it has.
const SOURCE_WAIT: Duration = Duration::from_secs(30);
/// Words in error texts that mean a refused login.
const LOGIN_WORDS: [&str; 5] =
    ["401", "unauthorized", "authentication required", "tls", "unknown certificate authority"];

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage step failed.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The source does not exist.
    #[error("failed to get source: {}.source.toolkit.fluxcd.io \"{name}\" not found", plural(*kind))]
    SourceUnavailable {
        /// Its kind.
        kind: ChartSourceKind,
        /// Its name.
        name: String,
    },
    /// The source has nothing stored.
    #[error("no artifact available for {kind} source '{name}'")]
    NoArtifact {
        /// Its kind.
        kind: ChartSourceKind,
        /// Its name.
        name: String,
    },
    /// The Secrets of the repository cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The URL of the repository or the client for it is broken.
    #[error(transparent)]
    Client(RemoteError),
    /// The repository refuses the login.
    #[error("failed to authenticate with the Helm repository")]
    Login(#[source] BuildFailure),
    /// The artifact of the source cannot be read.
    #[error("failed to open source artifact")]
    OpenSource(#[source] StorageError),
    /// The artifact of the source cannot be unpacked.
    #[error("artifact untar error")]
    Unpack(#[source] UnpackError),
    /// The chart cannot be had.
    #[error(transparent)]
    Build(BuildFailure),
    /// The directory of the object could not be made.
    #[error("failed to create artifact directory")]
    CreateDirectory(#[source] StorageError),
    /// The lock could not be taken.
    #[error("failed to acquire lock for artifact")]
    Lock(#[source] StorageError),
    /// The package could not be written.
    #[error("unable to copy Helm chart to storage")]
    Store(#[source] StorageError),
    /// The package could not be written.
    #[error("unable to copy Helm chart to storage")]
    Write(#[source] std::io::Error),
    /// What a deleted object stored could not be removed.
    #[error("garbage collection for deleted resource failed")]
    GarbageCollection(#[source] StorageError),
    /// The process shuts down.
    #[error("the operation was aborted")]
    Aborted,
}

impl Error {
    /// The error for something a repository answered.
    pub(super) fn remote(reason: Reason, cause: Cause) -> Self {
        let failure = BuildFailure::new(reason, cause);
        let text = weir_base::error::chain(&failure).to_lowercase();
        if LOGIN_WORDS.iter().any(|word| text.contains(word)) {
            Self::Login(failure)
        } else {
            Self::Build(failure)
        }
    }
}

fn plural(kind: ChartSourceKind) -> &'static str {
    match kind {
        ChartSourceKind::HelmRepository => "helmrepositories",
        ChartSourceKind::GitRepository => "gitrepositories",
        ChartSourceKind::Bucket => "buckets",
    }
}

/// Which step of a build failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// There is no such chart.
    ChartReference,
    /// The chart cannot be fetched.
    ChartPull,
    /// Its version cannot be extended.
    MetadataPatch,
    /// Values files cannot be merged.
    ValuesFiles,
    /// Dependencies cannot be had.
    DependencyBuild,
    /// The package cannot be made.
    ChartPackage,
    /// Nobody who may signed it.
    Verification,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::ChartReference => "InvalidChartReference",
            Self::ChartPull => "ChartPullError",
            Self::MetadataPatch => "MetadataPatchError",
            Self::ValuesFiles => "ValuesFilesError",
            Self::DependencyBuild => "DependencyBuildError",
            Self::ChartPackage => "ChartPackageError",
            Self::Verification => "ChartVerificationError",
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Self::ChartReference => "invalid chart reference",
            Self::ChartPull => "chart pull error",
            Self::MetadataPatch => "chart metadata patch error",
            Self::ValuesFiles => "values files merge error",
            Self::DependencyBuild => "dependency build error",
            Self::ChartPackage => "chart package error",
            Self::Verification => "chart verification error",
        }
    }

    /// Whether trying again does not help.
    fn is_persistent(self) -> bool {
        match self {
            Self::ChartReference | Self::MetadataPatch | Self::ValuesFiles => true,
            Self::ChartPull | Self::DependencyBuild | Self::ChartPackage | Self::Verification => false,
        }
    }

    fn is_fetch(self) -> bool {
        matches!(self, Self::ChartReference | Self::ChartPull)
    }
}

/// A build that failed.
#[derive(Debug, thiserror::Error)]
#[error("{}", reason.summary())]
pub struct BuildFailure {
    reason: Reason,
    #[source]
    cause: Box<Cause>,
}

impl BuildFailure {
    pub(super) fn new(reason: Reason, cause: Cause) -> Self {
        Self { reason, cause: Box::new(cause) }
    }
}

/// What a build failed at.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    /// No chart is named.
    #[error("no name set for remote chart reference")]
    NoName,
    /// A name no chart has.
    #[error(
        "invalid chart name '{0}': a valid name must be lower case letters and numbers and MAY be separated with \
         dashes (-), slashes (/) or periods (.)"
    )]
    Name(String),
    /// No path is given.
    #[error("no path set for local chart reference")]
    NoPath,
    /// Charts of web servers have no signatures that are looked at.
    #[error("not implemented")]
    NoSignatures,
    /// Nobody who may signed it.
    #[error(transparent)]
    Verify(Box<VerifyError>),
    /// No version of the chart was found.
    #[error("failed to get chart version for remote reference")]
    FindRemote(#[source] Box<RemoteError>),
    /// The package was not downloaded.
    #[error("failed to download chart for remote reference")]
    DownloadRemote(#[source] Box<RemoteError>),
    /// There is no chart at a path.
    #[error("no chart found at path '{0}'")]
    NoChart(String),
    /// `Chart.yaml` is missing in a directory.
    #[error("failed to load chart metadata: no Chart.yaml found at path '{0}'")]
    NoMetadata(String),
    /// `Chart.yaml` is broken.
    #[error("failed to load chart metadata")]
    Metadata(#[source] MetadataError),
    /// `Chart.yaml` breaks a rule.
    #[error(transparent)]
    Invalid(MetadataError),
    /// A package is broken.
    #[error("failed to load chart metadata from written chart")]
    Downloaded(#[source] ChartError),
    /// A package is broken.
    #[error("failed to load downloaded chart")]
    LoadDownloaded(#[source] ChartError),
    /// A chart is broken.
    #[error("failed to load chart")]
    Load(#[source] ChartError),
    /// A version is not one.
    #[error("failed to parse version from chart metadata as SemVer")]
    Version(#[source] VersionError),
    /// Build metadata that a version cannot have.
    #[error("failed to set SemVer metadata on chart version: invalid metadata string '{0}'")]
    VersionMetadata(String),
    /// A values file of a package is missing.
    #[error("failed to merge chart values: no values file found at path '{0}'")]
    NoValuesInChart(String),
    /// A values file is missing.
    #[error("no values file found at path '{found}' (reference '{reference}')")]
    NoValues {
        /// The path within the source.
        found: String,
        /// The path as written.
        reference: String,
    },
    /// A values file is broken.
    #[error("unmarshaling values from '{path}' failed")]
    Values {
        /// The path as written.
        path: String,
        /// What is wrong.
        #[source]
        source: ValuesError,
    },
    /// The chart has no values to replace.
    #[error("failed to locate values file: values.yaml")]
    NoDefaultValues,
    /// The package cannot be made.
    #[error("failed to package chart")]
    Package(#[source] PackageError),
    /// A dependency cannot be added.
    #[error("failed to add {place} dependency '{name}'")]
    Dependency {
        /// `local` or `remote`.
        place: &'static str,
        /// The dependency.
        name: String,
        /// Why not.
        #[source]
        source: Box<DependencyError>,
    },
}

/// Why a dependency cannot be added.
#[derive(Debug, thiserror::Error)]
pub(super) enum DependencyError {
    /// There is no chart in the place.
    #[error("no chart found at '{found}' (reference '{reference}')")]
    NoChart {
        /// The path within the source.
        found: String,
        /// The repository as written.
        reference: String,
    },
    /// The range of versions is malformed.
    #[error("invalid version/constraint format '{range}'")]
    Range {
        /// The range.
        range: String,
        /// What is wrong with it.
        #[source]
        source: ConstraintError,
    },
    /// The chart is broken.
    #[error("failed to load chart from '{found}' (reference '{reference}')")]
    Load {
        /// The path within the source.
        found: String,
        /// The repository as written.
        reference: String,
        /// What is wrong.
        #[source]
        source: Box<ChartError>,
    },
    /// The version of the chart is not one.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The version of the chart does not lie in the range.
    #[error("can't get a valid version for constraint '{0}'")]
    NotInRange(String),
    /// The name of a repository instead of its URL.
    #[error("aliased repository dependency is not supported")]
    Alias,
    /// The repository cannot be used.
    #[error("failed to get chart repository for URL '{url}'")]
    Repository {
        /// The URL.
        url: String,
        /// Why not.
        #[source]
        source: Box<Error>,
    },
    /// No version was found.
    #[error("failed to get chart '{name}' version '{range}' from '{url}'")]
    Find {
        /// The chart.
        name: String,
        /// The range of versions.
        range: String,
        /// The repository.
        url: String,
        /// Why not.
        #[source]
        source: Box<RemoteError>,
    },
    /// The package was not downloaded.
    #[error("chart download of version '{version}' failed")]
    Download {
        /// The version.
        version: String,
        /// Why not.
        #[source]
        source: Box<RemoteError>,
    },
    /// The package is broken.
    #[error("failed to load downloaded archive of version '{version}'")]
    LoadDownloaded {
        /// The version.
        version: String,
        /// What is wrong.
        #[source]
        source: Box<ChartError>,
    },
}

impl SourceError for Error {
    fn condition(&self) -> Option<&'static str> {
        match self {
            Self::SourceUnavailable { .. }
            | Self::NoArtifact { .. }
            | Self::Access(_)
            | Self::Client(_)
            | Self::Login(_)
            | Self::OpenSource(_)
            | Self::Unpack(_) => Some(FETCH_FAILED),
            Self::Build(failure) if failure.reason.is_fetch() => Some(FETCH_FAILED),
            Self::Build(_) => Some(BUILD_FAILED),
            Self::CreateDirectory(_) | Self::Lock(_) | Self::Store(_) | Self::Write(_) => {
                Some(STORAGE_OPERATION_FAILED)
            }
            Self::Check(_) | Self::GarbageCollection(_) | Self::Aborted => None,
        }
    }

    fn is_event(&self) -> bool {
        !matches!(self, Self::Check(_))
    }

    fn ends(&self) -> &'static [&'static str] {
        match self {
            Self::Build(failure) if failure.reason.is_fetch() => &[BUILD_FAILED],
            Self::Build(failure) if failure.reason == Reason::Verification => &[FETCH_FAILED],
            Self::Build(_) => &[FETCH_FAILED, SOURCE_VERIFIED],
            Self::Access(_) | Self::Client(_) | Self::Login(_) | Self::OpenSource(_) | Self::Unpack(_) => {
                &[BUILD_FAILED]
            }
            _ => &[],
        }
    }

    fn negates(&self) -> Option<&'static str> {
        let is_verification = matches!(self, Self::Build(failure) if failure.reason == Reason::Verification);
        is_verification.then_some(SOURCE_VERIFIED)
    }

    fn shown_false(&self) -> Option<&'static str> {
        self.negates().map(|_| "VerificationError")
    }

    fn shown(&self, reason: &str, message: &str) -> (String, String) {
        match self {
            // As in the reference: what does not come from the build itself is not known to the condition.
            Self::Access(_) | Self::Client(_) | Self::Login(_) | Self::OpenSource(_) | Self::Unpack(_) => {
                ("Unknown".to_owned(), format!("unknown build error: {message}"))
            }
            _ => (reason.to_owned(), message.to_owned()),
        }
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Client(_) => Class::Terminal,
            Self::NoArtifact { .. } => Class::Waiting(SOURCE_WAIT),
            Self::Build(failure) if failure.reason.is_persistent() => Class::Terminal,
            Self::Check(_)
            | Self::SourceUnavailable { .. }
            | Self::Access(_)
            | Self::Login(_)
            | Self::OpenSource(_)
            | Self::Unpack(_)
            | Self::Build(_)
            | Self::CreateDirectory(_)
            | Self::Lock(_)
            | Self::Store(_)
            | Self::Write(_)
            | Self::GarbageCollection(_)
            | Self::Aborted => Class::Backoff,
        }
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Check(_) | Self::Aborted | Self::Unpack(_) => "Failed",
            Self::Client(_) => "URLInvalid",
            Self::SourceUnavailable { .. } => "SourceUnavailable",
            Self::NoArtifact { .. } => "NoSourceArtifact",
            Self::Access(_) | Self::Login(_) => "AuthenticationFailed",
            Self::OpenSource(_) => "ReadOperationFailed",
            Self::Build(failure) => failure.reason.name(),
            Self::CreateDirectory(_) => "DirectoryCreationFailed",
            Self::Lock(_) => "AcquireLockFailed",
            Self::Store(_) | Self::Write(_) => "ArchiveOperationFailed",
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
    use weir_source::helm::LookupError;

    use super::*;

    #[track_caller]
    fn check(error: &Error, condition: &str, class: Class, reason: &str, shown: (&str, &str)) {
        assert_eq!(error.condition(), Some(condition));
        assert_eq!(error.class(), class);
        assert_eq!(error.reason(), reason);
        let found = error.shown(reason, &weir_base::error::chain(error));
        assert_eq!((found.0.as_str(), found.1.as_str()), shown);
    }

    #[test]
    fn what_people_see() {
        let none = RemoteError::Lookup(LookupError::NoMatch { name: "a".to_owned(), range: ">9".to_owned() });
        check(
            &Error::remote(Reason::ChartReference, Cause::FindRemote(Box::new(none))),
            FETCH_FAILED,
            Class::Terminal,
            "InvalidChartReference",
            (
                "InvalidChartReference",
                "invalid chart reference: failed to get chart version for remote reference: no 'a' chart with \
                 version matching '>9' found",
            ),
        );
        check(
            &Error::NoArtifact { kind: ChartSourceKind::GitRepository, name: "s".to_owned() },
            FETCH_FAILED,
            Class::Waiting(SOURCE_WAIT),
            "NoSourceArtifact",
            ("NoSourceArtifact", "no artifact available for GitRepository source 's'"),
        );
        check(
            &Error::SourceUnavailable { kind: ChartSourceKind::Bucket, name: "s".to_owned() },
            FETCH_FAILED,
            Class::Backoff,
            "SourceUnavailable",
            ("SourceUnavailable", "failed to get source: buckets.source.toolkit.fluxcd.io \"s\" not found"),
        );
        let refused = RemoteError::Registry("unauthorized: no".to_owned());
        check(
            &Error::remote(Reason::ChartPull, Cause::DownloadRemote(Box::new(refused))),
            FETCH_FAILED,
            Class::Backoff,
            "AuthenticationFailed",
            (
                "Unknown",
                "unknown build error: failed to authenticate with the Helm repository: chart pull error: failed \
                 to download chart for remote reference: unauthorized: no",
            ),
        );
        let cause = Cause::Dependency {
            place: "remote",
            name: "d".to_owned(),
            source: Box::new(DependencyError::Alias),
        };
        check(
            &Error::Build(BuildFailure::new(Reason::DependencyBuild, cause)),
            BUILD_FAILED,
            Class::Backoff,
            "DependencyBuildError",
            (
                "DependencyBuildError",
                "dependency build error: failed to add remote dependency 'd': aliased repository dependency is \
                 not supported",
            ),
        );
    }
}
