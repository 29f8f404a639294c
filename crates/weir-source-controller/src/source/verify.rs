//! What signatures are checked against: keys, or identities and who is trusted to know them.

use weir_api::common::{OidcIdentityMatch, VerificationProvider};
use weir_api::reference::LocalObjectReference;
use weir_source::cosign::{CosignError, Identity, KeyError, Policy, PublicKey, RootError, TrustedRoot};

use super::secrets::{self, Data, SecretError};

/// The key of a trusted root in its Secret.
const TRUSTED_ROOT: &str = "trusted_root.json";

/// Why something is not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A Secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A Secret has no keys.
    #[error("no public keys found in secret '{0}'")]
    NoKeys(String),
    /// A key in a Secret is broken.
    #[error("failed to parse public key '{key}' of secret '{secret}'")]
    Key {
        /// The namespace and name of the Secret.
        secret: String,
        /// The key in it.
        key: String,
        /// What is wrong.
        #[source]
        source: KeyError,
    },
    /// The trusted root or an identity is broken.
    #[error(transparent)]
    Root(#[from] RootError),
    /// Nobody is trusted.
    #[error(
        "keyless verification needs a trusted root: put the 'trusted_root.json' of your Sigstore into a Secret and name it in spec.verify.trustedRootSecretRef"
    )]
    NoRoot,
    /// The tool is not supported.
    #[error("provider 'notation' (spec.verify.provider) is not supported yet")]
    Notation,
    /// There is no good signature.
    #[error(transparent)]
    Cosign(#[from] CosignError),
}

/// What a specification asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) provider: VerificationProvider,
    pub(crate) keys: Option<&'a LocalObjectReference>,
    pub(crate) root: Option<&'a LocalObjectReference>,
    pub(crate) identities: &'a [OidcIdentityMatch],
}

impl Wanted<'_> {
    /// The tool, as messages name it.
    pub(crate) fn tool(&self) -> &'static str {
        match (self.provider, self.keys) {
            (VerificationProvider::Cosign, Some(_)) => "cosign",
            (VerificationProvider::Cosign, None) => "cosign keyless",
            (VerificationProvider::Notation, _) => "notation",
        }
    }
}

/// Reads everything a verification needs.
pub(crate) async fn policy(
    client: &kube::Client,
    namespace: &str,
    wanted: &Wanted<'_>,
) -> Result<Policy, VerifyError> {
    if wanted.provider == VerificationProvider::Notation {
        return Err(VerifyError::Notation);
    }
    // A root has no effect on keys, but must be there if it is named.
    let root = match wanted.root {
        None => None,
        Some(reference) => Some(read_root(client, namespace, &reference.name).await?),
    };
    if let Some(reference) = wanted.keys {
        let data = secrets::find(client, namespace, &reference.name).await?;
        return public_keys(&data, &format!("{namespace}/{}", reference.name)).map(Policy::Keys);
    }
    let root = Box::new(root.ok_or(VerifyError::NoRoot)?);
    let identities = wanted.identities.iter().map(|one| Identity::new(&one.issuer, &one.subject));
    Ok(Policy::Keyless { root, identities: identities.collect::<Result<_, _>>()? })
}

async fn read_root(client: &kube::Client, namespace: &str, name: &str) -> Result<TrustedRoot, VerifyError> {
    let data = secrets::find(client, namespace, name).await?;
    let missing = || SecretError::MissingKey {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        key: TRUSTED_ROOT,
    };
    Ok(TrustedRoot::parse(data.get(TRUSTED_ROOT).ok_or_else(missing)?)?)
}

/// All values whose key ends in `.pub`.
fn public_keys(data: &Data, secret: &str) -> Result<Vec<PublicKey>, VerifyError> {
    let keys = data.iter().filter(|(name, _)| name.strip_suffix(".pub").is_some()).map(|(name, pem)| {
        PublicKey::from_pem(pem).map_err(|source| VerifyError::Key {
            secret: secret.to_owned(),
            key: name.clone(),
            source,
        })
    });
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() { Err(VerifyError::NoKeys(secret.to_owned())) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use weir_base::error::chain;

    use super::*;

    #[test]
    fn keys_in_secrets() {
        let keys = |entries: &[(&str, &str)]| {
            let data =
                entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
            public_keys(&data, "apps/keys").map(|keys| keys.len()).map_err(|error| chain(&error))
        };
        let pem = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEkeJQhYP2K2cKWP5JzMHfOLj5WoRL
QR45UqtPmYGp06iaoUApnu/X2bH3ldE6Asy4Ht2ZdFXixx1kQvZPVPXMGw==
-----END PUBLIC KEY-----
";
        assert_eq!(keys(&[("a.pub", pem), ("b.pub", pem), ("c.txt", "x")]), Ok(2));
        assert_eq!(keys(&[("c.txt", "x")]).unwrap_err(), "no public keys found in secret 'apps/keys'");
        assert_eq!(
            keys(&[("a.pub", "x")]).unwrap_err(),
            "failed to parse public key 'a.pub' of secret 'apps/keys': PEM decoding failed"
        );
    }
}
