//! Patches: strategic merge or JSON, told apart by what they are.

use std::collections::HashSet;

use bytes::Bytes;

use crate::error::{Context as _, Error, Result};
use crate::id::IdKey;
use crate::jsonpatch::JsonPatch;
use crate::kustomization::{Patch, PatchOptions, Selector};
use crate::manifest::read_resources;
use crate::merge;
use crate::node::{Map, Node};
use crate::resource::{INTERNAL_PREFIX, Resource};
use crate::resources::Resources;
use crate::schema::Schema;
use crate::selector::ResourceSelector;

/// One entry of `patches`.
#[derive(Debug)]
pub(crate) struct Patches {
    source: String,
    content: Content,
    target: Option<Selector>,
    options: PatchOptions,
}

#[derive(Debug)]
enum Content {
    Nothing,
    Merge(Vec<Resource>),
    Json(JsonPatch),
}

impl Patches {
    /// Reads the patch of an entry; `config` is the entry as shown in errors.
    pub(crate) fn new(
        entry: &Patch,
        config: &str,
        load: &mut dyn FnMut(&str) -> Result<Bytes>,
    ) -> Result<Self> {
        let inline = entry.patch.trim();
        let (text, source) = match (inline.is_empty(), entry.path.is_empty()) {
            (true, true) => {
                return Err(Error::message(format!("must specify one of patch and path in\n{config}")));
            }
            (false, false) => {
                return Err(Error::message(format!(
                    "patch and path can't be set at the same time\n{config}"
                )));
            }
            (false, true) => (Bytes::copy_from_slice(inline.as_bytes()), format!("[patch: {inline:?}]")),
            (true, false) => {
                let text = load(&entry.path)
                    .context(|| format!("failed to get the patch file from path({})", entry.path))?;
                (text, format!("[path: {:?}]", entry.path))
            }
        };
        let merges = read_resources(&text);
        let json = JsonPatch::parse(&String::from_utf8_lossy(&text));
        let content = match (merges, json) {
            (Ok(merges), Ok(json)) if !merges.is_empty() && !json.is_empty() => {
                return Err(Error::message(format!(
                    "illegally qualifies as both an SM and JSON patch: {source}"
                )));
            }
            (Err(_), Err(_)) => {
                return Err(Error::message(format!("unable to parse SM or JSON patch from {source}")));
            }
            (Ok(merges), _) if merges.is_empty() => Content::Nothing,
            (Ok(merges), _) => Content::Merge(merges),
            (Err(_), Ok(json)) => Content::Json(json),
        };
        Ok(Self {
            source,
            content,
            target: entry.target.clone(),
            options: entry.options.clone().unwrap_or_default(),
        })
    }

    pub(crate) fn apply(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        match (&self.content, &self.target) {
            (Content::Nothing, _) => Ok(()),
            (Content::Merge(patches), Some(target)) => {
                let [patch] = patches.as_slice() else {
                    return Err(Error::message(format!(
                        "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` field: {}",
                        self.source
                    )));
                };
                let selected = select(resources, target, schema)
                    .context(|| "unable to find patch target in `resources`".to_owned())?;
                apply_to_selected(resources, &selected, patch, &self.options, schema)
            }
            (Content::Merge(patches), None) => {
                for patch in patches {
                    let id = patch.original_id(schema);
                    let position = resources
                        .find_unique(&id, schema)
                        .context(|| format!("no resource matches strategic merge patch \"{id}\""))?;
                    let changes = self.options.allow_name_change || self.options.allow_kind_change;
                    let resource = if changes {
                        &mut resources.list_mut()[position]
                    } else {
                        &mut resources.list_mut_same_ids()[position]
                    };
                    merge_into(resource, &patch.node, &self.options, schema)?;
                    if resource.is_empty() {
                        resources.list_mut();
                    }
                }
                Ok(())
            }
            (Content::Json(_), None) => {
                Err(Error::message(format!("must specify a target for JSON patch {}", self.source)))
            }
            (Content::Json(patch), Some(target)) => {
                for position in select(resources, target, schema)? {
                    let resource = &mut resources.list_mut()[position];
                    resource.store_previous_id(schema);
                    apply_json(resource, patch)?;
                }
                Ok(())
            }
        }
    }
}

fn select(resources: &Resources, target: &Selector, schema: &Schema) -> Result<Vec<usize>> {
    let selector = ResourceSelector::new(target)?;
    Ok(resources
        .list()
        .iter()
        .enumerate()
        .filter(|(_, resource)| selector.selects(resource, schema))
        .map(|(position, _)| position)
        .collect())
}

/// Merges a patch into one resource, keeping what a patch may not change.
fn merge_into(resource: &mut Resource, patch: &Node, options: &PatchOptions, schema: &Schema) -> Result<()> {
    let (name, namespace, kind) =
        (resource.name().to_owned(), resource.namespace().to_owned(), resource.kind().to_owned());
    if options.allow_name_change || options.allow_kind_change {
        resource.store_previous_id(schema);
    }
    let object = std::mem::replace(&mut resource.node, Node::null());
    let Some(merged) = merge::apply(object, patch, schema)? else { return Ok(()) };
    if merged.is_null_or_empty() {
        return Ok(());
    }
    resource.node = merged;
    if !options.allow_kind_change {
        resource.set_kind(&kind);
    }
    if !options.allow_name_change {
        resource.set_name(&name);
    }
    resource.set_namespace(&namespace);
    resource.settle_links();
    Ok(())
}

/// Merges a patch into the resources with the identities of the selected ones. Labels and annotations of
/// the patch become strings first, so a null there is the text `null`.
fn apply_to_selected(
    resources: &mut Resources,
    selected: &[usize],
    patch: &Resource,
    options: &PatchOptions,
    schema: &Schema,
) -> Result<()> {
    let ids: HashSet<IdKey> =
        selected.iter().map(|position| resources.list()[*position].current_id(schema).key()).collect();
    let mut copy = patch.clone();
    for field in ["labels", "annotations"] {
        let texts = copy.texts(field);
        copy.set_texts(field, texts);
    }
    let changes = options.allow_name_change || options.allow_kind_change;
    let mut deleted = false;
    for position in 0..resources.list().len() {
        if !ids.contains(&resources.list()[position].current_id(schema).key()) {
            continue;
        }
        let resource = if changes {
            &mut resources.list_mut()[position]
        } else {
            &mut resources.list_mut_same_ids()[position]
        };
        let api_version = resource.api_version().to_owned();
        copy.set_api_version(&api_version);
        merge_into(resource, &copy.node, options, schema)?;
        deleted |= resource.is_empty();
    }
    if deleted {
        resources.drop_empty();
    }
    // This patch or an earlier one may have made identities equal.
    resources.check_unique(schema)
}

fn apply_json(resource: &mut Resource, patch: &JsonPatch) -> Result<()> {
    let internal: Vec<_> = resource
        .texts("annotations")
        .into_iter()
        .filter(|(key, _)| key.starts_with(INTERNAL_PREFIX))
        .collect();
    if resource.is_tracked()
        && let Some(metadata) = resource.node.map_or_create("metadata")
        && metadata.get("annotations").is_none_or(Node::is_null)
    {
        // The tracking annotations of kustomize make the map; patches rely on it being there.
        metadata.remove("annotations");
        metadata.push("annotations", Node::Map(Map::default()));
    }
    resource.node = patch.apply(&resource.node)?;
    let mut annotations = resource.texts("annotations");
    annotations.extend(internal);
    resource.set_texts("annotations", annotations);
    Ok(())
}

/// The patches of `patchesStrategicMerge`.
#[derive(Debug)]
pub(crate) struct StrategicMerges(Vec<Resource>);

impl StrategicMerges {
    /// Each entry is tried as content, then as the path of a file.
    pub(crate) fn new(
        paths: &[String],
        inline: &str,
        load: &mut dyn FnMut(&str) -> Result<Bytes>,
    ) -> Result<Self> {
        if paths.is_empty() && inline.is_empty() {
            return Err(Error::message("empty file path and empty patch content"));
        }
        let mut patches = Vec::new();
        for path in paths {
            if let Ok(found) = read_resources(path.as_bytes()) {
                patches.extend(found);
            } else {
                let content = load(path)?;
                patches.extend(read_resources(&content).map_err(|error| error.in_file(path))?);
            }
        }
        if !inline.is_empty() {
            patches.extend(read_resources(inline.as_bytes())?);
        }
        if patches.is_empty() {
            return Err(Error::message(format!(
                "patch appears to be empty; files=[{}], Patch={inline}",
                paths.join(" ")
            )));
        }
        Ok(Self(patches))
    }

    pub(crate) fn apply(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        for patch in &self.0 {
            let position = resources.find_unique(&patch.original_id(schema), schema)?;
            apply_to_selected(resources, &[position], patch, &PatchOptions::default(), schema)?;
        }
        Ok(())
    }
}

/// An entry of `patchesJson6902`.
#[derive(Debug)]
pub(crate) struct JsonTarget {
    target: Selector,
    patch: JsonPatch,
}

impl JsonTarget {
    pub(crate) fn new(
        target: Option<&Selector>,
        path: &str,
        operations: &str,
        load: &mut dyn FnMut(&str) -> Result<Bytes>,
    ) -> Result<Self> {
        let target = target
            .filter(|target| !target.name.is_empty())
            .ok_or_else(|| Error::message("must specify the target name"))?;
        let text = match (path.is_empty(), operations.is_empty()) {
            (true, true) => return Err(Error::message("empty file path and empty jsonOp")),
            (false, false) => {
                return Err(Error::message("must specify a file path or jsonOp, not both"));
            }
            (true, false) => operations.to_owned(),
            (false, true) => {
                let content = load(path)?;
                if content.is_empty() {
                    return Err(Error::message(format!("patch file '{path}' empty seems to be empty")));
                }
                String::from_utf8_lossy(&content).into_owned()
            }
        };
        let patch = JsonPatch::parse(&text).context(|| format!("decoding {text}"))?;
        if patch.is_empty() {
            return Err(Error::message(format!("patch appears to be empty; file={path}, JsonOp={text}")));
        }
        Ok(Self { target: target.clone(), patch })
    }

    pub(crate) fn apply(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        for position in select(resources, &self.target, schema)? {
            apply_json(&mut resources.list_mut()[position], &self.patch)?;
        }
        Ok(())
    }
}
