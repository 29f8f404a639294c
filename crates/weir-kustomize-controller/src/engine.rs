//! The build engine, told what the spec says.

use bytes::Bytes;
use serde_json::Value;
use weir_api::kustomize::{Kustomization, KustomizationSpec};
use weir_base::tree::{Entry, Files, Kind, MemoryTree};
use weir_kustomize::{Generated, Generation, ImageOverride, Options, PatchOverride, generate};

/// Builds `directory` with the kustomization file that the spec makes of it.
///
/// # Errors
/// What the engine says.
pub(crate) fn build(
    files: &MemoryTree,
    directory: &str,
    object: &Kustomization,
) -> Result<Vec<Value>, String> {
    let generated =
        generate(files, directory, &generation(&object.spec)?).map_err(|error| error.to_string())?;
    let tree = WithFile::new(files, generated);
    let output = weir_kustomize::build(&tree, directory, &Options::default())
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

/// A tree with one file put over it; the tree itself is shared and stays as it is.
struct WithFile<'a> {
    tree: &'a MemoryTree,
    directory: String,
    name: String,
    path: String,
    content: Bytes,
}

impl<'a> WithFile<'a> {
    fn new(tree: &'a MemoryTree, generated: Generated) -> Self {
        let (directory, name) = generated.path.rsplit_once('/').unwrap_or(("", &generated.path));
        Self {
            tree,
            directory: directory.to_owned(),
            name: name.to_owned(),
            path: generated.path.clone(),
            content: Bytes::from(generated.content),
        }
    }
}

impl Files for WithFile<'_> {
    fn kind(&self, path: &str) -> Option<Kind> {
        if path == self.path { Some(Kind::File) } else { self.tree.kind(path) }
    }

    fn read(&self, path: &str) -> Option<Bytes> {
        if path == self.path { Some(self.content.clone()) } else { self.tree.read(path) }
    }

    fn list(&self, path: &str) -> Option<Vec<Entry>> {
        let mut entries = self.tree.list(path)?;
        if path == self.directory {
            let entry = Entry { name: self.name.clone(), directory: false };
            if let Err(position) = entries.binary_search(&entry) {
                entries.insert(position, entry);
            }
        }
        Some(entries)
    }
}
