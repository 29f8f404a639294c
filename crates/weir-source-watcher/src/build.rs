//! From copies to a stored artifact: blocking work.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_api::Artifact;
use weir_api::extensions::OutputArtifact;
use weir_artifact::storage::{PublishError, Storage, object_directory};
use weir_base::tree::MemoryTree;
use weir_source::ignore::{Rules, write_archive};

use crate::copy::{self, Sources};
use crate::error::BuildError;

/// The kind artifacts are stored under.
pub(crate) const KIND: &str = "externalartifact";

/// Copies the files together and stores them. The revision is left empty.
pub(crate) fn build(
    storage: &Storage,
    output: &OutputArtifact,
    sources: &Sources,
    namespace: &str,
) -> Result<Artifact, BuildError> {
    let tree = copy::apply(&output.copy, sources)?;
    let hash = content_hash(&tree, &output.name)?;
    let path = path_of(namespace, &output.name, &format!("{hash}.tar.gz"));
    storage.create_directory_for(&path).map_err(BuildError::CreateDirectory)?;
    let _lock = storage.lock(&path).map_err(BuildError::Lock)?;
    let rules = Rules::assemble([], None);
    let stored =
        storage.publish(&path, |file| write_archive(&tree, &rules, file)).map_err(|error| match error {
            PublishError::Storage(error) => BuildError::Store(error),
            PublishError::Content(error) => BuildError::Archive(error),
        })?;
    Ok(Artifact {
        digest: stored.digest.to_string(),
        last_update_time: stored.written_at.into(),
        metadata: BTreeMap::new(),
        revision: String::new(),
        size: i64::try_from(stored.size_bytes).ok(),
        url: storage.url(&path),
        path,
    })
}

/// Where an artifact is stored.
pub(crate) fn path_of(namespace: &str, name: &str, file: &str) -> String {
    format!("{}/{file}", object_directory(KIND, namespace, name))
}

/// The checksum of the names and checksums of all files; modes do not count.
fn content_hash(tree: &MemoryTree, name: &str) -> Result<u32, BuildError> {
    let mut lines: Vec<(String, u32)> =
        tree.files().map(|(path, file)| (format!("{name}/{path}"), adler32(&file.data))).collect();
    lines.sort();
    let mut text = String::new();
    for (path, sum) in lines {
        if path.contains('\n') {
            return Err(BuildError::Newline);
        }
        let _ = writeln!(text, "{sum:x}  {path}");
    }
    Ok(adler32(text.as_bytes()))
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    /// As many steps as no sum overflows in.
    const STEPS: usize = 5552;
    let (mut low, mut high) = (1_u32, 0_u32);
    for chunk in bytes.chunks(STEPS) {
        for byte in chunk {
            low += u32::from(*byte);
            high += low;
        }
        low %= MODULUS;
        high %= MODULUS;
    }
    (high << 16) | low
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;
    use weir_artifact::digest::Algorithm;
    use weir_artifact::storage::Options;
    use weir_artifact::unpack::{Limits, Symlinks, unpack};
    use weir_base::clock::SystemClock;

    use super::*;

    #[test]
    fn checksums() {
        // Of RFC 1950 and its usual example.
        assert_eq!(adler32(b""), 1);
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
        let long = vec![0xFF; 100_000];
        let (mut low, mut high) = (1_u64, 0_u64);
        for byte in &long {
            low = (low + u64::from(*byte)) % 65_521;
            high = (high + low) % 65_521;
        }
        assert_eq!(u64::from(adler32(&long)), high << 16 | low);
    }

    #[test]
    fn the_name_of_the_file_is_made_of_the_content() {
        let tree: MemoryTree = [("b/x", "Wikipedia"), ("a", "")].into_iter().collect();
        let expected = adler32(b"1  app/a\n11e60398  app/b/x\n");
        assert_eq!(content_hash(&tree, "app").unwrap(), expected);
        let tree: MemoryTree = [("a\nb", "")].into_iter().collect();
        assert!(content_hash(&tree, "app").is_err());
    }

    #[test]
    fn artifacts_leave_out_what_no_artifact_has() {
        let directory = tempfile::TempDir::new().unwrap();
        let options = Options {
            root: directory.path().to_owned(),
            host: "sw.".to_owned(),
            retention_ttl: Duration::from_mins(1),
            retention_records: 2,
            algorithm: Algorithm::Sha256,
        };
        let storage = Storage::open(options, Arc::new(SystemClock)).unwrap();
        let tree: MemoryTree =
            [("a.yaml", "1"), ("logo.png", "2"), (".sops.yaml", "3"), ("x/.github/y", "4")]
                .into_iter()
                .collect();
        let sources: Sources = [("git".to_owned(), Arc::new(tree))].into();
        let output: OutputArtifact = serde_json::from_value(json!({
            "name": "app", "copy": [{"from": "@git/**", "to": "@artifact/"}],
        }))
        .unwrap();
        let artifact = build(&storage, &output, &sources, "apps").unwrap();
        assert_eq!(artifact.url, format!("http://sw./{}", artifact.path));
        assert!(artifact.path.starts_with("externalartifact/apps/app/"));
        let stored =
            unpack(&storage.read(&artifact.path).unwrap(), Limits::default(), Symlinks::Refuse).unwrap();
        assert_eq!(stored.files().map(|(path, _)| path).collect::<Vec<_>>(), ["a.yaml"]);
        // Twice the same.
        assert_eq!(build(&storage, &output, &sources, "apps").unwrap().digest, artifact.digest);
    }
}
