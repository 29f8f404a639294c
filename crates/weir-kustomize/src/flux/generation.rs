//! The kustomization Flux writes into a directory before it builds it.

use serde_json::{Map, Value, json};
use weir_base::tree::{Files, Kind, join};
use weir_manifest::to_yaml;

use crate::error::{Context as _, Error};
use crate::kustomization::{FILE_NAMES, KUSTOMIZATION, read_config};
use crate::manifest::read_resources;
use crate::shape::{Mode, normalize};

/// What the spec of a Flux Kustomization adds to the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Generation {
    /// Replaces `namespace`.
    pub target_namespace: Option<String>,
    /// Replaces `namePrefix`.
    pub name_prefix: Option<String>,
    /// Replaces `nameSuffix`.
    pub name_suffix: Option<String>,
    /// Appended to `patches`.
    pub patches: Vec<PatchOverride>,
    /// Appended to `components`; paths relative to the directory.
    pub components: Vec<String>,
    /// Leaves out components that do not exist.
    pub ignore_missing_components: bool,
    /// Merged into `images` by name.
    pub images: Vec<ImageOverride>,
    /// Replaces `buildMetadata` unless empty.
    pub build_metadata: Vec<String>,
}

/// A patch of the spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchOverride {
    /// The patch itself.
    pub patch: String,
    /// The selector as in the spec: `group`, `version`, `kind`, `name`, `namespace`, `labelSelector`,
    /// `annotationSelector`.
    pub target: Option<Value>,
}

/// An image of the spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageOverride {
    /// The image it applies to.
    pub name: String,
    /// The new name, or empty.
    pub new_name: String,
    /// The new tag, or empty.
    pub new_tag: String,
    /// The new digest, or empty.
    pub digest: String,
}

/// The file to put in the tree before the build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// Its path in the tree.
    pub path: String,
    /// Its content.
    pub content: String,
    /// Whether the directory had no kustomization file.
    pub created: bool,
}

/// Makes the kustomization file of `directory`: the one that is there, or one that lists all manifests below
/// it, with what the spec says merged in. The tree is not changed.
///
/// Unknown fields of a file that is there are dropped, and numbers and booleans become strings where strings
/// are expected, as Flux does for this file and no other.
///
/// # Errors
/// The file is no YAML or has values of the wrong type, a manifest below the directory is no Kubernetes YAML,
/// or a component is not local and relative.
pub fn generate(files: &dyn Files, directory: &str, spec: &Generation) -> Result<Generated, Error> {
    let directory = directory.trim_matches('/');
    let existing = FILE_NAMES.iter().find_map(|name| {
        let path = child(directory, name);
        (files.kind(&path) == Some(Kind::File)).then_some(path)
    });
    let created = existing.is_none();
    let (path, mut fields) = match existing {
        Some(path) => {
            let content = files.read(&path).unwrap_or_default();
            let fields = read_existing(&content)?;
            (path, fields)
        }
        None => (child(directory, FILE_NAMES[0]), list_manifests(files, directory)?),
    };
    for (field, default) in [("apiVersion", "kustomize.config.k8s.io/v1beta1"), ("kind", "Kustomization")] {
        fields.entry(field).or_insert_with(|| Value::from(default));
    }
    if !created && list_of(&fields, "resources").is_empty() {
        fields.insert("buildMetadata".to_owned(), json!(["originAnnotations"]));
    }
    for (field, value) in [
        ("namespace", &spec.target_namespace),
        ("namePrefix", &spec.name_prefix),
        ("nameSuffix", &spec.name_suffix),
    ] {
        if let Some(value) = value {
            fields.insert(field.to_owned(), Value::from(value.as_str()));
        }
    }
    append(&mut fields, "patches", spec.patches.iter().map(patch_value));
    let mut components = Vec::new();
    for component in &spec.components {
        if !is_local_relative(component) {
            return Err(Error::message(format!("component path '{component}' must be local and relative")));
        }
        let exists = join(directory, component).is_some_and(|path| files.kind(&path).is_some());
        if exists || !spec.ignore_missing_components {
            components.push(Value::from(component.as_str()));
        }
    }
    append(&mut fields, "components", components);
    merge_images(&mut fields, &spec.images);
    if !spec.build_metadata.is_empty() {
        fields.insert("buildMetadata".to_owned(), Value::from(spec.build_metadata.clone()));
    }
    fields.retain(|_, value| !is_zero(value));
    Ok(Generated { path, content: to_yaml(&Value::Object(fields)), created })
}

fn child(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

fn read_existing(content: &[u8]) -> Result<Map<String, Value>, Error> {
    match read_config(content)? {
        Value::Null => Ok(Map::new()),
        value => match normalize(value, KUSTOMIZATION, Mode::Lenient)
            .context(|| "error unmarshaling JSON: while decoding JSON".to_owned())?
        {
            Value::Object(fields) => Ok(fields),
            _ => Ok(Map::new()),
        },
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}

/// The fields of a kustomization that lists every manifest below the directory.
fn list_manifests(files: &dyn Files, directory: &str) -> Result<Map<String, Value>, Error> {
    let mut found = Vec::new();
    walk(files, directory, ".", &mut found)?;
    let mut fields = Map::new();
    if found.is_empty() {
        fields.insert("namespace".to_owned(), Value::from("_placeholder"));
    } else {
        fields.insert("resources".to_owned(), Value::from(found));
    }
    Ok(fields)
}

fn walk(files: &dyn Files, directory: &str, shown: &str, found: &mut Vec<String>) -> Result<(), Error> {
    for entry in files.list(directory).unwrap_or_default() {
        let path = child(directory, &entry.name);
        let shown = format!("{shown}/{}", entry.name);
        if entry.directory {
            let has_kustomization =
                FILE_NAMES.iter().any(|name| files.kind(&child(&path, name)) == Some(Kind::File));
            if has_kustomization {
                found.push(shown);
            } else {
                walk(files, &path, &shown, found)?;
            }
            continue;
        }
        let extension = entry.name.rsplit_once('.').map(|(_, extension)| extension);
        if !matches!(extension, Some("yaml" | "yml")) {
            continue;
        }
        let content = files.read(&path).unwrap_or_default();
        read_resources(&content).context(|| format!("failed to decode Kubernetes YAML from {path}"))?;
        found.push(shown);
    }
    Ok(())
}

fn list_of(fields: &Map<String, Value>, field: &str) -> Vec<Value> {
    fields.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn append(fields: &mut Map<String, Value>, field: &str, more: impl IntoIterator<Item = Value>) {
    let mut list = list_of(fields, field);
    list.extend(more);
    fields.insert(field.to_owned(), Value::Array(list));
}

fn patch_value(patch: &PatchOverride) -> Value {
    let mut value = Map::new();
    value.insert("patch".to_owned(), Value::from(patch.patch.as_str()));
    if let Some(target) = &patch.target {
        value.insert("target".to_owned(), target.clone());
    }
    Value::Object(value)
}

fn merge_images(fields: &mut Map<String, Value>, images: &[ImageOverride]) {
    if images.is_empty() {
        return;
    }
    let mut list = list_of(fields, "images");
    for image in images {
        let set = |map: &mut Map<String, Value>, field: &str, text: &str| {
            if text.is_empty() {
                map.remove(field);
            } else {
                map.insert(field.to_owned(), Value::from(text));
            }
        };
        let existing = list
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .find(|entry| entry.get("name").and_then(Value::as_str).unwrap_or_default() == image.name);
        if let Some(entry) = existing {
            if !image.new_name.is_empty() {
                set(entry, "newName", &image.new_name);
            }
            // Tag and digest both choose the version: setting one clears the other.
            if !image.new_tag.is_empty() || !image.digest.is_empty() {
                set(entry, "newTag", &image.new_tag);
                set(entry, "digest", &image.digest);
            }
            continue;
        }
        let mut entry = Map::new();
        for (field, text) in [
            ("name", &image.name),
            ("newName", &image.new_name),
            ("newTag", &image.new_tag),
            ("digest", &image.digest),
        ] {
            set(&mut entry, field, text);
        }
        list.push(Value::Object(entry));
    }
    fields.insert("images".to_owned(), Value::Array(list));
}

/// Whether a component path is neither absolute nor remote.
fn is_local_relative(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let remote = ["git::", "gh:", "ssh://", "https://", "http://", "git@", "github.com:", "github.com/"];
    !path.starts_with('/')
        && !lower.starts_with("file:///")
        && !remote.iter().any(|prefix| lower.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::tree::MemoryTree;

    fn tree(files: &[(&str, &'static str)]) -> MemoryTree {
        files.iter().map(|(path, content)| (*path, content.as_bytes())).collect()
    }

    const POD: &str = "kind: Pod\nmetadata: {name: a}\n";

    #[test]
    fn directories_without_file_list_their_manifests() {
        let tree = tree(&[
            ("d/a.yaml", POD),
            ("d/b/c.yml", POD),
            ("d/b/readme.md", "x"),
            ("d/k/kustomization.yml", "resources: []"),
            ("d/k/ignored.yaml", "not: manifest"),
            ("other/x.yaml", POD),
        ]);
        let generated = generate(&tree, "d", &Generation::default()).unwrap();
        assert!(generated.created);
        assert_eq!(generated.path, "d/kustomization.yaml");
        assert_eq!(
            generated.content,
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- ./a.yaml\n- ./b/c.yml\n- ./k\n"
        );
    }

    #[test]
    fn empty_directories_get_a_placeholder_and_bad_manifests_are_named() {
        let generated = generate(&tree(&[("d/x.txt", "")]), "d", &Generation::default()).unwrap();
        assert!(generated.content.ends_with("namespace: _placeholder\n"));
        let error = generate(&tree(&[("d/values.yaml", "a: b")]), "d", &Generation::default());
        assert_eq!(
            error.unwrap_err().to_string(),
            "failed to decode Kubernetes YAML from d/values.yaml: missing Resource metadata"
        );
    }

    #[test]
    fn the_spec_is_merged_into_the_file() {
        let tree = tree(&[
            (
                "kustomization.yaml",
                "unknown: 1\ncommonLabels: {v: 1}\nimages:\n- {name: x, newTag: '1', digest: sha256:a}\ncomponents: [c0]\n",
            ),
            ("c1/kustomization.yaml", "kind: Component"),
        ]);
        let spec = Generation {
            target_namespace: Some("apps".to_owned()),
            components: vec!["c1".to_owned(), "missing".to_owned()],
            ignore_missing_components: true,
            images: vec![
                ImageOverride { name: "x".into(), new_tag: "2".into(), ..ImageOverride::default() },
                ImageOverride { name: "y".into(), new_name: "z".into(), ..ImageOverride::default() },
            ],
            patches: vec![PatchOverride { patch: "p".into(), target: Some(json!({"kind": "Pod"})) }],
            ..Generation::default()
        };
        let generated = generate(&tree, "", &spec).unwrap();
        assert!(!generated.created);
        assert_eq!(
            generated.content,
            indoc::indoc! {"
                apiVersion: kustomize.config.k8s.io/v1beta1
                buildMetadata:
                - originAnnotations
                commonLabels:
                  v: \"1\"
                components:
                - c0
                - c1
                images:
                - name: x
                  newTag: \"2\"
                - name: \"y\"
                  newName: z
                kind: Kustomization
                namespace: apps
                patches:
                - patch: p
                  target:
                    kind: Pod
            "}
        );
    }

    #[test]
    fn components_must_be_local() {
        for path in ["/abs", "https://x/y", "git@h:x", "GitHub.com/o/r", "file:///x"] {
            let spec = Generation { components: vec![path.to_owned()], ..Generation::default() };
            let error = generate(&tree(&[("kustomization.yaml", "")]), "", &spec).unwrap_err();
            assert_eq!(error.to_string(), format!("component path '{path}' must be local and relative"));
        }
    }
}
