//! The build engine, told what the spec says.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use weir_api::kustomize::{Kustomization, KustomizationSpec};
use weir_base::tree::{Entry, Files, Kind, MemoryTree};
use weir_kustomize::{Generated, Generation, ImageOverride, Options, PatchOverride, Remote, generate};

/// The tree with the kustomization file that the spec makes of the one in `directory`.
///
/// # Errors
/// What the engine says.
pub(crate) fn prepare(
    files: Arc<MemoryTree>,
    directory: &str,
    object: &Kustomization,
) -> Result<Overlay, String> {
    let generated =
        generate(&*files, directory, &generation(&object.spec)?).map_err(|error| error.to_string())?;
    Ok(Overlay::new(files, generated))
}

/// Builds `directory` of a prepared tree.
///
/// # Errors
/// What the engine says.
pub(crate) fn build(files: &Overlay, directory: &str, remote: &dyn Remote) -> Result<Vec<Value>, String> {
    let output = weir_kustomize::build_with(files, directory, &Options::default(), remote)
        .map_err(|error| format!("kustomize build failed: {error}"))?;
    Ok(output.objects)
}

/// What the spec adds to the kustomization file.
fn generation(spec: &KustomizationSpec) -> Result<Generation, String> {
    let patches = spec
        .patches
        .iter()
        .map(|patch| {
            let target = patch.target.as_ref().map(serde_json::to_value).transpose();
            Ok(PatchOverride {
                patch: patch.patch.clone(),
                target: target.map_err(|error| error.to_string())?,
            })
        })
        .collect::<Result<Vec<_>, String>>()?;
    let build_metadata = serde_json::to_value(&spec.build_metadata)
        .and_then(serde_json::from_value::<Vec<String>>)
        .map_err(|error| error.to_string())?;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Ok(Generation {
        target_namespace: spec.target_namespace.clone(),
        name_prefix: spec.name_prefix.clone(),
        name_suffix: spec.name_suffix.clone(),
        patches,
        components: spec.components.clone(),
        ignore_missing_components: spec.ignore_missing_components,
        images: spec
            .images
            .iter()
            .map(|image| ImageOverride {
                name: image.name.clone(),
                new_name: text(&image.new_name),
                new_tag: text(&image.new_tag),
                digest: text(&image.digest),
            })
            .collect(),
        build_metadata,
    })
}

/// A tree with files put over it; the tree itself is shared and stays as it is.
#[derive(Debug)]
pub struct Overlay {
    tree: Arc<MemoryTree>,
    /// The directory and name of the one file that the tree may lack.
    added: (String, Entry),
    files: BTreeMap<String, Bytes>,
}

impl Overlay {
    fn new(tree: Arc<MemoryTree>, generated: Generated) -> Self {
        let (directory, name) = generated.path.rsplit_once('/').unwrap_or(("", &generated.path));
        let added = (directory.to_owned(), Entry { name: name.to_owned(), directory: false });
        let files = BTreeMap::from([(generated.path.clone(), Bytes::from(generated.content))]);
        Self { tree, added, files }
    }

    /// Puts other contents in the place of files of the tree.
    pub(crate) fn replace(&mut self, files: BTreeMap<String, Bytes>) {
        self.files.extend(files);
    }
}

impl Files for Overlay {
    fn kind(&self, path: &str) -> Option<Kind> {
        if self.files.contains_key(path) { Some(Kind::File) } else { self.tree.kind(path) }
    }

    fn read(&self, path: &str) -> Option<Bytes> {
        self.files.get(path).cloned().or_else(|| self.tree.read(path))
    }

    fn real(&self, path: &str) -> Option<String> {
        if self.files.contains_key(path) { Some(path.to_owned()) } else { self.tree.real(path) }
    }

    fn list(&self, path: &str) -> Option<Vec<Entry>> {
        let mut entries = self.tree.list(path)?;
        let (directory, entry) = &self.added;
        if path == directory
            && let Err(position) = entries.binary_search(entry)
        {
            entries.insert(position, entry.clone());
        }
        Some(entries)
    }
}
