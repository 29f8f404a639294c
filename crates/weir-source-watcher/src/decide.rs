//! What is to be done: pure.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};
use weir_api::Artifact;
use weir_api::extensions::{ArtifactGenerator, ArtifactGeneratorSource, ExternalArtifactReference};
use weir_api::names::condition::READY;
use weir_api::source::ExternalArtifact;
use weir_api::{FluxObject as _, condition};

use crate::error::Error;

/// The annotation artifacts carry the revision of their origin in.
pub(crate) const ORIGIN_REVISION: &str = "org.opencontainers.image.revision";

/// A source with its artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) alias: String,
    pub(crate) artifact: Artifact,
}

/// The namespace of an object.
pub(crate) fn namespace_of(object: &ArtifactGenerator) -> &str {
    object.metadata.namespace.as_deref().unwrap_or_default()
}

/// The namespace of a source.
pub(crate) fn source_namespace<'a>(
    object: &'a ArtifactGenerator,
    source: &'a ArtifactGeneratorSource,
) -> &'a str {
    source.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or_else(|| namespace_of(object))
}

/// A source as `Kind/namespace/name`.
pub(crate) fn source_key(object: &ArtifactGenerator, source: &ArtifactGeneratorSource) -> String {
    format!("{}/{}/{}", source.kind, source_namespace(object, source), source.name)
}

/// Whether the specification makes sense.
pub(crate) fn validate(object: &ArtifactGenerator, no_cross_namespace_refs: bool) -> Result<(), Error> {
    let spec = &object.spec;
    let mut aliases = BTreeSet::new();
    for source in &spec.sources {
        if !aliases.insert(source.alias.as_str()) {
            return Err(Error::Invalid(format!("duplicate source alias '{}' found", source.alias)));
        }
        if no_cross_namespace_refs && source_namespace(object, source) != namespace_of(object) {
            return Err(Error::AccessDenied(source_key(object, source)));
        }
    }
    let is_pattern = spec.path_pattern.as_deref().is_some_and(|pattern| !pattern.is_empty());
    let mut names = BTreeSet::new();
    for artifact in &spec.artifacts {
        if !names.insert(artifact.name.as_str()) {
            return Err(Error::Invalid(format!("duplicate artifact name '{}' found", artifact.name)));
        }
        if !is_pattern && !is_object_name(&artifact.name) {
            return Err(Error::Invalid(format!(
                "artifact name '{}' is not a valid Kubernetes object name",
                artifact.name
            )));
        }
        for (field, reference) in
            [("revision", &artifact.revision), ("originRevision", &artifact.origin_revision)]
        {
            let Some(alias) = reference.as_deref().filter(|alias| !alias.is_empty()) else { continue };
            if !aliases.contains(alias.trim_start_matches('@')) {
                return Err(Error::Invalid(format!(
                    "artifact '{}' {field} source alias '{}' not found",
                    artifact.name,
                    alias.trim_start_matches('@')
                )));
            }
        }
    }
    Ok(())
}

/// Whether an object can have the name: lower-case words with dots and dashes, at most 253 characters.
pub(crate) fn is_object_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let ends =
            |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        ends(word.as_bytes().first())
            && ends(word.as_bytes().last())
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_word)
}

/// What the sources are at the moment, as one digest.
pub(crate) fn sources_digest(sources: &[Observed]) -> String {
    let mut parts: Vec<String> = sources
        .iter()
        .map(|source| {
            let Artifact { digest, revision, url, .. } = &source.artifact;
            format!("{}=[digest={digest},revision={revision},url={url}]", source.alias)
        })
        .collect();
    parts.sort();
    format!("sha256:{}", hex::encode(Sha256::digest(parts.join("|").as_bytes())))
}

/// Why something has to be built; `None` if all is as it was left, as far as the object and the cluster tell.
pub(crate) fn drift(
    object: &ArtifactGenerator,
    sources_digest: &str,
    existing: &[ExternalArtifact],
) -> Option<&'static str> {
    let status = object.status.clone().unwrap_or_default();
    let Some(ready) = condition::get(&status.conditions, READY) else { return Some("it never ran") };
    if ready.status != condition::ConditionStatus::True {
        return Some("it is not ready");
    }
    if ready.observed_generation != object.generation() {
        return Some("its specification changed");
    }
    if status.observed_sources_digest.as_deref() != Some(sources_digest) {
        return Some("a source changed");
    }
    let is_pattern = object.spec.path_pattern.as_deref().is_some_and(|pattern| !pattern.is_empty());
    if !is_pattern && status.inventory.len() != object.spec.artifacts.len() {
        return Some("the number of artifacts changed");
    }
    if existing.len() != status.inventory.len() {
        return Some("the number of ExternalArtifacts changed");
    }
    let digests: BTreeMap<&str, &str> =
        status.inventory.iter().map(|entry| (entry.name.as_str(), entry.digest.as_str())).collect();
    let differs = existing.iter().any(|artifact| {
        let name = artifact.metadata.name.as_deref().unwrap_or_default();
        let digest = artifact.status.as_ref().and_then(|status| status.artifact.as_ref());
        digest.map(|artifact| artifact.digest.as_str()) != digests.get(name).copied()
    });
    differs.then_some("an ExternalArtifact changed")
}

/// What an artifact is called: its source's revision, or its own digest.
///
/// The same content keeps its revision, whoever compressed it: the name of the file is made of the content.
pub(crate) fn revision(
    wanted: Option<&str>,
    sources: &[Observed],
    artifact: &Artifact,
    before: Option<&Artifact>,
) -> String {
    if let Some(source) = find(wanted, sources) {
        return source.artifact.revision.clone();
    }
    match before {
        Some(before) if before.path == artifact.path && before.revision.starts_with("latest@") => {
            before.revision.clone()
        }
        Some(_) | None => format!("latest@{}", artifact.digest),
    }
}

/// The revision of what a source was made of, or of the source itself.
pub(crate) fn origin_revision(wanted: Option<&str>, sources: &[Observed]) -> Option<String> {
    let artifact = &find(wanted, sources)?.artifact;
    let own = artifact.metadata.get(ORIGIN_REVISION).filter(|revision| !revision.is_empty());
    Some(own.unwrap_or(&artifact.revision).clone())
}

fn find<'a>(wanted: Option<&str>, sources: &'a [Observed]) -> Option<&'a Observed> {
    let alias = wanted?.trim_start_matches('@');
    sources.iter().find(|source| source.alias == alias)
}

/// What was made before and is not any more.
pub(crate) fn orphans(
    before: &[ExternalArtifactReference],
    now: &[ExternalArtifactReference],
) -> Vec<ExternalArtifactReference> {
    let is_gone = |old: &&ExternalArtifactReference| {
        !now.iter().any(|new| new.name == old.name && new.namespace == old.namespace)
    };
    before.iter().filter(is_gone).cloned().collect()
}

/// What is told about artifacts that are new; `None` if none is.
pub(crate) fn news(
    before: &[ExternalArtifactReference],
    now: &[ExternalArtifactReference],
) -> Option<String> {
    let is_new = |new: &&ExternalArtifactReference| {
        !before
            .iter()
            .any(|old| old.name == new.name && old.namespace == new.namespace && old.digest == new.digest)
    };
    let lines: Vec<String> = now
        .iter()
        .filter(is_new)
        .map(|new| format!("{}/{} ({})", new.namespace, new.name, new.digest))
        .collect();
    (!lines.is_empty()).then(|| format!("external artifacts reconciled: {}", lines.join("\n")))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
