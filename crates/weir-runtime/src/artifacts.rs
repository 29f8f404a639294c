//! The storage of artifacts and its file server, of controllers that publish some.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tracing::{error, info};
use weir_artifact::digest::Algorithm;
use weir_artifact::{server, storage};
use weir_base::error::chain;

use crate::flags::{boolean, go_duration};
use crate::{ListenError, Runtime};

/// `--storage-*` and `--artifact-*`.
#[derive(Debug, Clone, Args)]
pub struct ArtifactFlags {
    /// The directory artifacts are stored in; it must exist.
    #[arg(long, value_name = "DIRECTORY", default_value = "/data")]
    pub storage_path: String,
    /// The address the artifact file server binds to.
    #[arg(long, value_name = "ADDRESS", default_value = ":9090")]
    pub storage_addr: String,
    /// The host in artifact URLs; derived from --storage-addr if empty.
    #[arg(long, value_name = "HOST", default_value = "")]
    pub storage_adv_addr: String,
    /// All replicas have the same storage directory, on a volume they share: those that wait for the lease serve what is
    /// in it, too, and are ready.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = boolean)]
    pub storage_shared: bool,
    /// How long artifacts are kept after they were written, the current ones aside.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = go_duration)]
    pub artifact_retention_ttl: Duration,
    /// How many artifacts younger than the retention time are kept per source.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    pub artifact_retention_records: usize,
    /// The algorithm of artifact digests: sha1, sha256, sha384, sha512 or blake3.
    #[arg(long, value_name = "ALGORITHM", default_value = "sha256", value_parser = str::parse::<Algorithm>)]
    pub artifact_digest_algo: Algorithm,
}

/// Why artifacts cannot be stored or served.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactsError {
    /// The directory cannot be used.
    #[error("unable to configure storage provider")]
    Storage(#[from] storage::StorageError),
    /// No address can be told under which the artifacts are served.
    #[error("unable to determine advertised storage address from '{0}'")]
    AdvertisedAddress(String),
    /// The artifacts cannot be served.
    #[error("unable to listen on --storage-addr '{address}'")]
    Listen {
        /// The address of the flag.
        address: String,
        /// Why not.
        #[source]
        source: ListenError,
    },
}

/// Opens the storage the flags name, and has it served: by the instance that leads, or, if it is shared, by all.
///
/// # Errors
/// The directory does not exist, or no address can be told. Failures of the server end the process.
pub fn artifacts(
    runtime: &mut Runtime,
    flags: &ArtifactFlags,
) -> Result<Arc<storage::Storage>, ArtifactsError> {
    let host = runtime.settings().host.clone();
    let host_name = || std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()).unwrap_or(host);
    let host = storage::advertised_host(&flags.storage_adv_addr, &flags.storage_addr, host_name)
        .ok_or_else(|| ArtifactsError::AdvertisedAddress(flags.storage_addr.clone()))?;
    let options = storage::Options {
        root: PathBuf::from(&flags.storage_path),
        host,
        retention_ttl: flags.artifact_retention_ttl,
        retention_records: flags.artifact_retention_records,
        algorithm: flags.artifact_digest_algo,
    };
    let storage = Arc::new(storage::Storage::open(options, runtime.clock())?);
    let (address, served, stop) = (flags.storage_addr.clone(), Arc::clone(&storage), runtime.stop());
    let serve = async move {
        // Bound only now: the open port tells the readiness probe that this instance serves.
        let listener = match crate::listen(&address).await {
            Ok(listener) => listener,
            Err(source) => {
                let error = ArtifactsError::Listen { address, source };
                error!(error = chain(&error), "artifact file server error");
                stop.cancel();
                return;
            }
        };
        info!("starting file server");
        if let Err(error) = server::serve(listener, served, stop.clone().cancelled_owned()).await {
            error!(error = chain(&error), "artifact file server error");
            stop.cancel();
        }
    };
    // Instances that wait change nothing in the storage; whatever they serve was complete when it got its name.
    if flags.storage_shared {
        runtime.always(serve);
    } else {
        runtime.while_leading(serve);
    }
    Ok(storage)
}
