//! From files to objects. Pure: what it needs from the cluster comes as an argument.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};
use weir_api::kustomize::{Kustomization, KustomizationSpec};
use weir_apply::normalise::{is_encrypted_secret, normalise};
use weir_apply::object::{ObjectRef, set_metadata};
use weir_base::tree::{Files, Kind, MemoryTree, join};
use weir_kustomize::{Remote, Substitution, Variables};

use crate::decide::{self, GROUP};
pub use crate::engine::Overlay;
use crate::error::Cause;

/// How different a directory name may be to be suggested for a misspelt one.
const SUGGESTION_DISTANCE_MAX: usize = 3;

/// Why manifests could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The build engine failed.
    #[error("{0}")]
    Kustomize(String),
    /// Variables could not be substituted in an object.
    #[error("post build failed for '{object}': {message}")]
    Substitute {
        /// `Kind.version.group/name`.
        object: String,
        /// The cause.
        message: String,
    },
    /// The source of variables could not be read.
    #[error("post build failed for '{object}': substitute from '{reference}' error: {message}")]
    Variables {
        /// `Kind.version.group/name`.
        object: String,
        /// `ConfigMap/name` or `Secret/name`.
        reference: String,
        /// The cause.
        message: String,
    },
    /// An object without the fields every object needs.
    #[error("failed to decode Kubernetes apiVersion, kind and name from: {0}")]
    Incomplete(String),
    /// The keys for decryption cannot be used.
    #[error("{0}")]
    Keys(String),
    /// A file that the build reads could not be decrypted.
    #[error("error decrypting sources: {0}")]
    Sources(String),
    /// An object could not be decrypted.
    #[error("decryption failed for '{object}': {message}")]
    Encrypted {
        /// `Kind.version.group/name`.
        object: String,
        /// The cause.
        message: String,
    },
}

/// The directory to build in the tree.
///
/// # Errors
/// [`Cause::NoPath`], with a similar name if there is one.
pub fn directory(files: &dyn Files, object: &Kustomization, revision: &str) -> Result<String, Cause> {
    let path = object.spec.path.as_deref().unwrap_or_default();
    let source = decide::source_name(object);
    // The path cannot leave the artifact: one that tries to ends at its root, as in the reference.
    let clean = secure_join(path);
    match files.kind(&clean) {
        Some(Kind::Directory) => Ok(clean),
        Some(Kind::File) | None => Err(Cause::NoPath {
            path: path.to_owned(),
            artifact: format!("{}/{}/{} at {revision}", source.kind, source.namespace, source.name),
            hint: suggestion(files, &clean)
                .map(|near| format!("; did you mean './{near}'?"))
                .unwrap_or_default(),
        }),
    }
}

/// `path` below the root, with every `..` that would leave it dropped.
pub(crate) fn secure_join(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The directory next to the first missing part of `path` whose name is most alike.
fn suggestion(files: &dyn Files, path: &str) -> Option<String> {
    let mut parent = String::new();
    for part in path.split('/') {
        let here = join(&parent, part)?;
        if files.kind(&here) == Some(Kind::Directory) {
            parent = here;
            continue;
        }
        return files
            .list(&parent)?
            .into_iter()
            .filter(|entry| entry.directory)
            .map(|entry| (distance(&entry.name, part), entry.name))
            .filter(|(distance, name)| *distance <= SUGGESTION_DISTANCE_MAX && *distance < name.len())
            .min()
            .and_then(|(_, name)| join(&parent, &name));
    }
    None
}

/// The number of single-character edits between two names.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to) in right.iter().enumerate() {
            let above = row[column + 1];
            let replaced = diagonal + usize::from(from != *to);
            row[column + 1] = replaced.min(above + 1).min(row[column] + 1);
            diagonal = above;
        }
    }
    row[right.len()]
}

/// Makes the tree ready for the build of a directory.
///
/// # Errors
/// A spec that cannot be merged into the kustomization file, or files that are no manifests.
pub fn prepare(
    files: Arc<MemoryTree>,
    directory: &str,
    object: &Kustomization,
) -> Result<Overlay, BuildError> {
    crate::engine::prepare(files, directory, object).map_err(BuildError::Kustomize)
}

/// Builds the directory into objects; remote files and bases come through `remote`.
///
/// # Errors
/// Anything in the files that cannot be built.
pub fn objects(files: &Overlay, directory: &str, remote: &dyn Remote) -> Result<Vec<Value>, BuildError> {
    let objects = crate::engine::build(files, directory, remote).map_err(BuildError::Kustomize)?;
    for built in &objects {
        let reference = ObjectRef::of(built);
        if reference.name.is_empty() || reference.kind.is_empty() || reference.version.is_empty() {
            return Err(BuildError::Incomplete(built.to_string()));
        }
    }
    Ok(objects)
}

/// `Kind.version.group/name`, with `[noGrp]` for the core group: how the build names objects in errors.
pub fn full_name(object: &Value) -> String {
    let reference = ObjectRef::of(object);
    let group = if reference.group.is_empty() { "[noGrp]" } else { &reference.group };
    format!("{}.{}.{group}/{}", reference.kind, reference.version, reference.name)
}

/// The objects whose variables are substituted, if the spec asks for it at all.
pub fn first_substituted<'a>(spec: &KustomizationSpec, objects: &'a [Value]) -> Option<&'a Value> {
    spec.post_build.as_ref()?;
    objects.iter().find(|object| !weir_kustomize::opts_out(object))
}

/// Substitutes variables in every object that does not opt out.
///
/// # Errors
/// A variable that is not set (in strict mode), a name that is not valid, or text that does not parse.
pub fn substitute(
    objects: &mut [Value],
    variables: &Variables,
    substitution: Substitution,
) -> Result<(), BuildError> {
    for object in objects {
        match weir_kustomize::substitute(object, variables, substitution) {
            Ok(Some(substituted)) => *object = substituted,
            Ok(None) => {}
            Err(error) => {
                return Err(BuildError::Substitute { object: full_name(object), message: error.to_string() });
            }
        }
    }
    Ok(())
}

/// Makes built objects ready to be sent: owner labels, normal form, common metadata.
///
/// # Errors
/// An object that cannot be sent, or a Secret that is still encrypted.
pub fn finish(object: &Kustomization, objects: Vec<Value>) -> Result<Vec<Value>, Cause> {
    let owner = decide::owner(object);
    let common = object.spec.common_metadata.clone().unwrap_or_default();
    flatten(objects)
        .filter(is_applied)
        .map(|mut built| {
            // Before the normal form, which drops the field that tells.
            if is_encrypted_secret(&built, GROUP) {
                return Err(Cause::EncryptedSecret(ObjectRef::of(&built).to_string()));
            }
            owner.mark(&mut built);
            let mut built = normalise(built).map_err(|error| Cause::Normalise(Box::new(error)))?;
            for (field, entries) in [("labels", &common.labels), ("annotations", &common.annotations)] {
                set_metadata(
                    &mut built,
                    field,
                    entries.iter().map(|(key, value)| (key.as_str(), value.as_str())),
                );
            }
            Ok(built)
        })
        .collect()
}

/// `sha256:` and the digest of the objects as one YAML stream.
pub fn digest(objects: &[Value]) -> String {
    let text = weir_manifest::to_yaml_stream(objects);
    format!("sha256:{}", hex::encode(Sha256::digest(text.as_bytes())))
}

/// The items of lists in place of the lists.
fn flatten(objects: Vec<Value>) -> impl Iterator<Item = Value> {
    objects.into_iter().flat_map(|object| {
        let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
        match object {
            Value::Object(mut map) if is_list && map.get("items").is_some_and(Value::is_array) => {
                match map.remove("items") {
                    Some(Value::Array(items)) => items,
                    _ => Vec::new(),
                }
            }
            object => vec![object],
        }
    })
}

/// Kustomization files that ended up among the objects are not meant for the cluster.
fn is_applied(object: &Value) -> bool {
    let reference = ObjectRef::of(object);
    let kustomization =
        reference.group == "kustomize.config.k8s.io" && reference.kind.eq_ignore_ascii_case("Kustomization");
    !kustomization
        && !reference.kind.is_empty()
        && !reference.version.is_empty()
        && !reference.name.is_empty()
}

#[cfg(test)]
mod tests;
