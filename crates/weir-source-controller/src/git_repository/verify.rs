//! Whether commits and tags are signed by known keys. Pure.

use std::fmt::Write as _;

use jiff::Timestamp;
use weir_api::source::{GitRepository, GitRepositoryVerification, GitVerificationMode};
use weir_source::git::{Checkout, Signed, SigningKeys};

use super::error::Error;

/// The current spelling of a mode.
pub(super) fn current(mode: GitVerificationMode) -> GitVerificationMode {
    match mode {
        GitVerificationMode::LegacyHead => GitVerificationMode::Head,
        mode => mode,
    }
}

fn includes_tag(mode: GitVerificationMode) -> bool {
    matches!(mode, GitVerificationMode::Tag | GitVerificationMode::TagAndHEAD)
}

fn includes_head(mode: GitVerificationMode) -> bool {
    mode != GitVerificationMode::Tag
}

/// Whether the object of the tag is needed.
pub(super) fn wants_tag(object: &GitRepository) -> bool {
    object.spec.verify.as_ref().is_some_and(|verify| includes_tag(verify.mode))
}

/// Whether more must be checked than was checked for the stored artifact.
pub(super) fn is_due(working: &GitRepository) -> bool {
    let Some(verify) = &working.spec.verify else { return false };
    let done = working.status.as_ref().and_then(|status| status.source_verification_mode.as_deref());
    match done {
        None => true,
        Some("Tag") => includes_head(verify.mode),
        Some("HEAD" | "head") => includes_tag(verify.mode),
        Some(_) => false,
    }
}

/// Checks what the specification asks for and says which keys signed.
pub(super) fn check(
    verify: &GitRepositoryVerification,
    checkout: &Checkout,
    keys: &SigningKeys,
    now: Timestamp,
) -> Result<String, Error> {
    let mut message = "verified signature of".to_owned();
    if includes_tag(verify.mode) {
        let tag = checkout.tag.as_ref().ok_or(Error::NoTagReference)?;
        let name = format!("{}@{}", tag.name, tag.id);
        let signed = tag.raw.as_deref().map(Signed::tag).filter(|signed| !signed.signature.is_empty());
        let Some(signed) = signed else { return Err(Error::UnsignedTag(name)) };
        match keys.verify(&signed, now) {
            Ok(key) => {
                let _ = write!(message, "\n\t- tag '{name}' with key '{key}'");
            }
            Err(source) => return Err(Error::TagSignature { tag: name, source }),
        }
    }
    if includes_head(verify.mode) {
        let commit = checkout.commit.clone();
        match keys.verify(&Signed::commit(&checkout.raw_commit), now) {
            Ok(key) => {
                let _ = write!(message, "\n\t- commit '{commit}' with key '{key}'");
            }
            Err(source) => return Err(Error::CommitSignature { commit, source }),
        }
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_due(mode: &str, done: Option<&str>, expected: bool) {
        let object: GitRepository = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "r", "namespace": "apps"},
            "spec": {"url": "https://example.com/r", "interval": "1m",
                     "verify": {"mode": mode, "secretRef": {"name": "keys"}}},
            "status": {"sourceVerificationMode": done},
        }))
        .unwrap();
        assert_eq!(is_due(&object), expected, "{mode} {done:?}");
        assert_eq!(wants_tag(&object), mode.starts_with("Tag"));
    }

    #[test]
    fn a_mode_that_asks_for_more_checks_again() {
        check_due("HEAD", None, true);
        check_due("head", Some("HEAD"), false);
        check_due("Tag", Some("HEAD"), true);
        check_due("TagAndHEAD", Some("HEAD"), true);
        check_due("HEAD", Some("Tag"), true);
        check_due("Tag", Some("Tag"), false);
        check_due("HEAD", Some("TagAndHEAD"), false);
    }
}
