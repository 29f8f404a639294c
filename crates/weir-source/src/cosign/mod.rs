//! Signatures of cosign: by a known key, or by an identity that a trusted authority vouched for.
//!
//! Signatures are looked for as bundles that refer to the image, then under the tag `sha256-<hex>.sig`. With a key,
//! transparency logs are not asked; without one, the certificate must be of a trusted authority, at a time a trusted
//! log recorded, and in a trusted certificate log if the root names any. Nothing but the registry is asked.

mod bundle;
mod der;
mod keys;
mod trust;

use bundle::Signature;

use crate::oci::{Descriptor, Image, OciError, Session};

pub use keys::{KeyError, PublicKey};
pub use trust::{Distrust, Identity, RootError, TrustedRoot};

/// Signatures of one image that are looked at.
const SIGNATURES_MAX: usize = 64;
/// The largest payload or bundle.
const SIGNATURE_BYTES_MAX: u64 = 4 << 20;
const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle";

/// Whose signatures count.
#[derive(Debug, Clone)]
pub enum Policy {
    /// Those of one of these keys.
    Keys(Vec<PublicKey>),
    /// Those of one of these identities, or of any if there are none.
    Keyless {
        /// Who is trusted to know.
        root: Box<TrustedRoot>,
        /// Who may sign.
        identities: Vec<Identity>,
    },
}

/// Why an image is not verified.
#[derive(Debug, thiserror::Error)]
pub enum CosignError {
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] OciError),
    /// No signature counts.
    #[error("no matching signatures were found for '{reference}'")]
    NoMatch {
        /// The image.
        reference: String,
        /// Why the last signature does not count, if there is one.
        #[source]
        source: Option<Distrust>,
    },
}

/// Looks for a signature of the image that counts.
///
/// # Errors
/// The registry fails, or there is no such signature.
pub async fn verify(
    session: &Session,
    digest: &str,
    reference: &str,
    policy: &Policy,
) -> Result<(), CosignError> {
    let mut last = None;
    for signature in bundles(session, digest).await {
        match check(&signature, policy) {
            Ok(()) => return Ok(()),
            Err(distrust) => last = Some(distrust),
        }
    }
    for signature in tagged(session, digest).await? {
        match check(&signature, policy) {
            Ok(()) => return Ok(()),
            Err(distrust) => last = Some(distrust),
        }
    }
    Err(CosignError::NoMatch { reference: reference.to_owned(), source: last })
}

/// Signatures in bundles that refer to the image. A registry that cannot say has none.
async fn bundles(session: &Session, digest: &str) -> Vec<Signature> {
    let Ok(referrers) = session.referrers(digest).await else { return Vec::new() };
    let mut found = Vec::new();
    for referrer in referrers.into_iter().filter(is_bundle).take(SIGNATURES_MAX) {
        let Ok(image) = session.image(&referrer.digest).await else { continue };
        let Some(layer) = image.layers.first().filter(|layer| layer.media_type.starts_with(BUNDLE_TYPE))
        else {
            continue;
        };
        let Ok(json) = session.blob(layer, SIGNATURE_BYTES_MAX).await else { continue };
        found.extend(bundle::of_bundle(&json, digest));
    }
    found
}

fn is_bundle(descriptor: &Descriptor) -> bool {
    descriptor.artifact_type.is_empty() || descriptor.artifact_type.starts_with(BUNDLE_TYPE)
}

/// Signatures under the tag of the image.
async fn tagged(session: &Session, digest: &str) -> Result<Vec<Signature>, OciError> {
    let tag = format!("{}.sig", digest.replace(':', "-"));
    let Some(image) = session.tagged(&tag).await? else { return Ok(Vec::new()) };
    let Image { layers, .. } = image;
    let mut found = Vec::new();
    for layer in layers.iter().filter(|layer| layer.media_type == PAYLOAD_TYPE).take(SIGNATURES_MAX) {
        let payload = session.blob(layer, SIGNATURE_BYTES_MAX).await?;
        found.extend(bundle::of_layer(&payload, &layer.annotations, digest));
    }
    Ok(found)
}

fn check(signature: &Signature, policy: &Policy) -> Result<(), Distrust> {
    match policy {
        Policy::Keys(keys) => {
            if keys.iter().any(|key| key.verifies(&signature.message, &signature.bytes)) {
                return Ok(());
            }
            Err(Distrust("the signature is not by a known key"))
        }
        Policy::Keyless { root, identities } => {
            let certificate =
                signature.certificate.as_deref().ok_or(Distrust("the signature has no certificate"))?;
            let entry = signature
                .entry
                .as_ref()
                .ok_or(Distrust("the signature has no promise of a transparency log"))?;
            root.check_promise(entry)?;
            entry.check_about(&signature.content, &signature.bytes, certificate)?;
            let key =
                root.check_certificate(certificate, &signature.chain, entry.integrated_time, identities)?;
            if key.verifies(&signature.message, &signature.bytes) {
                Ok(())
            } else {
                Err(Distrust("the signature is not by the key of the certificate"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
