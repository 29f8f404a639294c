//! Builds that need not be made again: what came out of the same artifact, spec and variables.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weir_api::kustomize::Kustomization;
use weir_runtime::ObjectKey;

/// How much the kept builds may take in all.
const BYTES_MAX: usize = 32 << 20;
/// The largest build that is kept.
const BUILD_BYTES_MAX: usize = 4 << 20;

/// Everything a build depends on, as a digest.
pub type BuildKey = [u8; 32];

/// What a build of `object` depends on besides `artifact_digest` and `variables_digest`; `None` if it depends on
/// more than is known beforehand, as keys for decryption.
pub fn build_key(
    object: &Kustomization,
    artifact_digest: &str,
    variables_digest: &str,
    strict: bool,
) -> Option<BuildKey> {
    if object.spec.decryption.is_some() || artifact_digest.is_empty() {
        return None;
    }
    let inputs = json!({
        "artifact": artifact_digest,
        "variables": variables_digest,
        "strict": strict,
        "name": object.metadata.name,
        "namespace": object.metadata.namespace,
        "spec": serde_json::to_value(&object.spec).ok()?,
    });
    Some(Sha256::digest(inputs.to_string().as_bytes()).into())
}

/// A finished build.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The digest of what was built.
    pub digest: String,
    /// The objects to apply.
    pub objects: Vec<Value>,
}

struct Entry {
    key: BuildKey,
    digest: String,
    /// The objects as JSON, which takes a fraction of what trees take.
    text: Bytes,
    used: u64,
}

#[derive(Default)]
struct State {
    entries: HashMap<ObjectKey, Entry>,
    bytes: usize,
    uses: u64,
}

impl State {
    fn remove(&mut self, owner: &ObjectKey) {
        if let Some(entry) = self.entries.remove(owner) {
            self.bytes -= entry.text.len();
        }
    }
}

/// The last build of each Kustomization, within a bound; the ones not used for longest go first.
#[derive(Default)]
pub struct Builds(Mutex<State>);

impl Builds {
    /// The build of a Kustomization, if nothing it depends on has changed.
    pub fn find(&self, owner: &ObjectKey, key: &BuildKey) -> Option<Kept> {
        let (digest, text) = {
            let mut state = self.0.lock();
            state.uses += 1;
            let uses = state.uses;
            let entry = state.entries.get_mut(owner).filter(|entry| entry.key == *key)?;
            entry.used = uses;
            (entry.digest.clone(), entry.text.clone())
        };
        let objects = serde_json::from_slice(&text).ok()?;
        Some(Kept { digest, objects })
    }

    /// Keeps the build of a Kustomization instead of the one before.
    pub fn keep(&self, owner: &ObjectKey, key: BuildKey, digest: &str, objects: &[Value]) {
        let Ok(text) = serde_json::to_vec(objects) else { return };
        let mut state = self.0.lock();
        state.remove(owner);
        if text.len() > BUILD_BYTES_MAX {
            return;
        }
        while state.bytes + text.len() > BYTES_MAX {
            let oldest = state.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(owner) = oldest.map(|(owner, _)| owner.clone()) else { break };
            state.remove(&owner);
        }
        state.bytes += text.len();
        state.uses += 1;
        let used = state.uses;
        let entry = Entry { key, digest: digest.to_owned(), text: text.into(), used };
        state.entries.insert(owner.clone(), entry);
    }

    /// Forgets the build of a Kustomization.
    pub fn forget(&self, owner: &ObjectKey) {
        self.0.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> ObjectKey {
        ObjectKey::new("apps", name)
    }

    fn object(spec: &Value) -> Kustomization {
        let mut object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn everything_that_goes_in_counts() {
        let key = |spec: Value, artifact: &str, variables: &str, strict: bool| {
            build_key(&object(&spec), artifact, variables, strict)
        };
        let base = key(json!({}), "sha256:1", "", true);
        assert!(base.is_some());
        assert_eq!(base, key(json!({}), "sha256:1", "", true));
        assert_ne!(base, key(json!({}), "sha256:2", "", true));
        assert_ne!(base, key(json!({}), "sha256:1", "x", true));
        assert_ne!(base, key(json!({}), "sha256:1", "", false));
        assert_ne!(base, key(json!({"path": "./b"}), "sha256:1", "", true));
        assert_eq!(key(json!({"decryption": {"provider": "sops"}}), "sha256:1", "", true), None);
    }

    #[test]
    fn only_the_same_inputs_find_a_build() {
        let builds = Builds::default();
        let objects = vec![json!({"kind": "ConfigMap"})];
        builds.keep(&owner("a"), [1; 32], "d", &objects);
        assert_eq!(builds.find(&owner("a"), &[1; 32]), Some(Kept { digest: "d".into(), objects }));
        assert_eq!(builds.find(&owner("a"), &[2; 32]), None);
        assert_eq!(builds.find(&owner("b"), &[1; 32]), None);
        builds.forget(&owner("a"));
        assert_eq!(builds.find(&owner("a"), &[1; 32]), None);
        assert_eq!(builds.0.lock().bytes, 0);
    }

    #[test]
    fn memory_is_bounded() {
        let builds = Builds::default();
        let large = vec![json!({"data": "x".repeat(BUILD_BYTES_MAX - 64)})];
        let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        for name in &names {
            builds.keep(&owner(name), [1; 32], "d", &large);
            assert!(builds.find(&owner("0"), &[1; 32]).is_some(), "used all the time");
        }
        assert!(builds.0.lock().bytes <= BYTES_MAX);
        assert!(builds.find(&owner("1"), &[1; 32]).is_none(), "not used for longest");
        assert!(builds.find(&owner("11"), &[1; 32]).is_some());
        builds.keep(&owner("11"), [1; 32], "d", &[json!("x".repeat(BUILD_BYTES_MAX))]);
        assert!(builds.find(&owner("11"), &[1; 32]).is_none(), "too large");
    }
}
