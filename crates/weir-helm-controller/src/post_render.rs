//! What happens to rendered manifests before they are installed: patches and images of the spec, common
//! metadata, and the labels that name the HelmRelease. Pure.

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};
use weir_api::helm::{HelmRelease, PostRenderStrategy, PostRenderer};
use weir_api::names::label;
use weir_apply::object;
use weir_base::tree::{File, MemoryTree};
use weir_helm::postrender::Strategy;

use crate::spec;

/// The file that holds the rendered manifests.
const INPUT: &str = "helm-output.yaml";

/// How hooks are treated.
pub fn strategy(strategy: PostRenderStrategy) -> Strategy {
    match strategy {
        PostRenderStrategy::Nohooks => Strategy::NoHooks,
        PostRenderStrategy::Combined => Strategy::Combined,
        PostRenderStrategy::Separate => Strategy::Separate,
    }
}

/// The manifests as the spec wants them.
///
/// # Errors
/// What the build engine says.
pub fn run(object: &HelmRelease, manifests: &str) -> Result<String, String> {
    let mut text = manifests.to_owned();
    for renderer in &object.spec.post_renderers {
        if renderer.kustomize.is_some() {
            text = kustomize(&text, Some(renderer))?.to_yaml();
        }
    }
    // Always a build, whatever the spec has: texts are written anew and lists are opened up.
    let mut output = kustomize(&text, None)?;
    for item in &mut output.objects {
        mark(object, item);
    }
    Ok(output.to_yaml())
}

/// Puts common metadata and the labels of the HelmRelease on an object.
pub fn mark(object: &HelmRelease, item: &mut Json) {
    if let Some(metadata) = &object.spec.common_metadata {
        let metadata = serde_json::to_value(metadata).unwrap_or_default();
        for field in ["labels", "annotations"] {
            let entries = metadata[field].as_object().into_iter().flatten();
            let entries = entries.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
            object::set_metadata(item, field, entries);
        }
    }
    origin(object, item);
}

/// Puts the labels of the HelmRelease on an object.
pub fn origin(object: &HelmRelease, item: &mut Json) {
    let labels = [(label::HELM_NAME, spec::name(object)), (label::HELM_NAMESPACE, spec::namespace(object))];
    object::set_metadata(item, "labels", labels);
}

fn kustomize(manifests: &str, renderer: Option<&PostRenderer>) -> Result<weir_kustomize::Output, String> {
    let mut kustomization = Map::new();
    kustomization.insert("apiVersion".to_owned(), "kustomize.config.k8s.io/v1beta1".into());
    kustomization.insert("kind".to_owned(), "Kustomization".into());
    kustomization.insert("resources".to_owned(), json!([INPUT]));
    if let Some(kustomize) = renderer.and_then(|renderer| renderer.kustomize.as_ref()) {
        let list = |value: Result<Json, serde_json::Error>| value.map_err(|error| error.to_string());
        if !kustomize.images.is_empty() {
            kustomization.insert("images".to_owned(), list(serde_json::to_value(&kustomize.images))?);
        }
        if !kustomize.patches.is_empty() {
            kustomization.insert("patches".to_owned(), list(serde_json::to_value(&kustomize.patches))?);
        }
    }
    let mut files = MemoryTree::default();
    let insert = |files: &mut MemoryTree, path: &str, content: Vec<u8>| {
        files
            .insert(path, File { data: Bytes::from(content), executable: false })
            .map_err(|error| error.to_string())
    };
    insert(&mut files, INPUT, manifests.as_bytes().to_vec())?;
    insert(&mut files, "kustomization.yaml", Json::Object(kustomization).to_string().into_bytes())?;
    weir_kustomize::build(&files, "", &weir_kustomize::Options::default()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
