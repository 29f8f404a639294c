//! Providers: where events are sent. They have the finalizer, as with the reference, and no status.

use weir_api::notification::Provider;

use crate::finalizers::Wanted;

/// What is to happen to the finalizer of a Provider.
pub(crate) fn finalizer(provider: &Provider) -> Wanted {
    if provider.metadata.deletion_timestamp.is_some() { Wanted::Remove } else { Wanted::Add }
}
