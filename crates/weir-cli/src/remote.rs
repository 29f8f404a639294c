//! Remote files and bases of kustomizations.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use weir_kustomize::Remote;
use weir_source::bases::{Access, Bases, Limits};

use crate::error::Error;

/// How long all remote content of a build may take together.
const TIME_MAX: Duration = Duration::from_mins(30);

/// Runs a build with access to what it refers to on other machines and in repositories of this one. Nothing is kept.
pub(crate) async fn with_session<T: Send + 'static>(
    build: impl FnOnce(&dyn Remote) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let bases = Arc::new(Bases::new(Limits::default()));
    let access = Access { repositories: true, local_repositories: true };
    let session = bases.session(Handle::current(), access, TIME_MAX);
    // The build waits for its downloads, which a thread of the runtime must not.
    match tokio::task::spawn_blocking(move || build(&session)).await {
        Ok(result) => result,
        Err(_) => Err(Error::Aborted),
    }
}
