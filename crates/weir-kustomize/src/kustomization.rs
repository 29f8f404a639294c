//! The kustomization file: its fields, how it is read, and the fix-ups every reader applies.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use weir_manifest::{ReadOptions, read_first_document};

use crate::error::{Error, Result};
use crate::shape::{Mode, Shape, normalize};

/// The names a kustomization file may have, in the order they are tried.
pub(crate) const FILE_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

const KUSTOMIZATION_VERSION: &str = "kustomize.config.k8s.io/v1beta1";
const COMPONENT_VERSION: &str = "kustomize.config.k8s.io/v1alpha1";

/// Selects resources; empty parts select everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the fields are named as in the file")]
pub(crate) struct Selector {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) label_selector: String,
    pub(crate) annotation_selector: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PatchOptions {
    pub(crate) allow_name_change: bool,
    pub(crate) allow_kind_change: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the fields are named as in the file")]
pub(crate) struct Patch {
    pub(crate) path: String,
    pub(crate) patch: String,
    pub(crate) target: Option<Selector>,
    pub(crate) options: Option<PatchOptions>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) new_name: String,
    pub(crate) tag_suffix: String,
    pub(crate) new_tag: String,
    pub(crate) digest: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) count: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FieldSpecConfig {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) path: String,
    pub(crate) create: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Label {
    pub(crate) pairs: BTreeMap<String, String>,
    pub(crate) include_selectors: bool,
    pub(crate) include_templates: bool,
    pub(crate) fields: Vec<FieldSpecConfig>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GeneratorOptions {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) disable_name_suffix_hash: bool,
    pub(crate) immutable: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GeneratorArguments {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) behavior: String,
    pub(crate) literals: Vec<String>,
    pub(crate) files: Vec<String>,
    pub(crate) envs: Vec<String>,
    pub(crate) env: String,
    pub(crate) options: Option<GeneratorOptions>,
    /// Of Secrets only.
    #[serde(rename = "type")]
    pub(crate) secret_type: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct FieldOptions {
    pub(crate) delimiter: String,
    pub(crate) index: i64,
    pub(crate) create: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ReplacementSource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) field_path: String,
    pub(crate) options: Option<FieldOptions>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ReplacementTarget {
    pub(crate) select: Option<Selector>,
    pub(crate) reject: Vec<Selector>,
    pub(crate) field_paths: Vec<String>,
    pub(crate) options: Option<FieldOptions>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Replacement {
    pub(crate) path: String,
    pub(crate) source: Option<ReplacementSource>,
    pub(crate) source_value: Option<String>,
    pub(crate) targets: Option<Vec<ReplacementTarget>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct VarTarget {
    pub(crate) api_version: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct VarField {
    pub(crate) field_path: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Var {
    pub(crate) name: String,
    pub(crate) objref: VarTarget,
    pub(crate) fieldref: VarField,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LegacySortOptions {
    pub(crate) order_first: Vec<String>,
    pub(crate) order_last: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SortOptions {
    pub(crate) order: String,
    pub(crate) legacy_sort_options: Option<LegacySortOptions>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Kustomization {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) openapi: BTreeMap<String, String>,
    pub(crate) name_prefix: String,
    pub(crate) name_suffix: String,
    pub(crate) namespace: String,
    pub(crate) common_labels: BTreeMap<String, String>,
    pub(crate) labels: Vec<Label>,
    pub(crate) common_annotations: BTreeMap<String, String>,
    pub(crate) patches_strategic_merge: Vec<String>,
    pub(crate) patches_json6902: Vec<Patch>,
    pub(crate) patches: Vec<Patch>,
    pub(crate) images: Vec<Image>,
    pub(crate) image_tags: Vec<Image>,
    pub(crate) replacements: Vec<Replacement>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) vars: Vec<Var>,
    pub(crate) sort_options: Option<SortOptions>,
    pub(crate) resources: Vec<String>,
    pub(crate) components: Vec<String>,
    pub(crate) crds: Vec<String>,
    pub(crate) bases: Vec<String>,
    pub(crate) config_map_generator: Vec<GeneratorArguments>,
    pub(crate) secret_generator: Vec<GeneratorArguments>,
    pub(crate) generator_options: Option<GeneratorOptions>,
    pub(crate) helm_charts: Vec<Value>,
    pub(crate) helm_chart_inflation_generator: Vec<Value>,
    pub(crate) configurations: Vec<String>,
    pub(crate) generators: Vec<String>,
    pub(crate) transformers: Vec<String>,
    pub(crate) validators: Vec<String>,
    pub(crate) build_metadata: Vec<String>,
}

const TEXT_LIST: Shape = Shape::List(&Shape::Text);

pub(crate) const SELECTOR: Shape = Shape::Object("Selector", SELECTOR_FIELDS);
const SELECTOR_FIELDS: &[(&str, Shape)] = &[
    ("group", Shape::Text),
    ("version", Shape::Text),
    ("kind", Shape::Text),
    ("name", Shape::Text),
    ("namespace", Shape::Text),
    ("labelSelector", Shape::Text),
    ("annotationSelector", Shape::Text),
];

pub(crate) const PATCH: Shape = Shape::Object(
    "Patch",
    &[
        ("path", Shape::Text),
        ("patch", Shape::Text),
        ("target", SELECTOR),
        (
            "options",
            Shape::Object("PatchArgs", &[("allowNameChange", Shape::Flag), ("allowKindChange", Shape::Flag)]),
        ),
    ],
);

pub(crate) const IMAGE: Shape = Shape::Object(
    "Image",
    &[
        ("name", Shape::Text),
        ("newName", Shape::Text),
        ("tagSuffix", Shape::Text),
        ("newTag", Shape::Text),
        ("digest", Shape::Text),
    ],
);

pub(crate) const REPLICA: Shape =
    Shape::Object("Replica", &[("name", Shape::Text), ("count", Shape::Integer)]);

pub(crate) const FIELD_SPEC: Shape = Shape::Object(
    "FieldSpec",
    &[
        ("group", Shape::Text),
        ("version", Shape::Text),
        ("kind", Shape::Text),
        ("path", Shape::Text),
        ("create", Shape::Flag),
    ],
);

pub(crate) const GENERATOR_OPTIONS: Shape = Shape::Object(
    "GeneratorOptions",
    &[
        ("labels", Shape::Texts),
        ("annotations", Shape::Texts),
        ("disableNameSuffixHash", Shape::Flag),
        ("immutable", Shape::Flag),
    ],
);

const CONFIG_MAP_ARGUMENTS: Shape = Shape::Object(
    "ConfigMapArgs",
    &[
        ("namespace", Shape::Text),
        ("name", Shape::Text),
        ("behavior", Shape::Text),
        ("literals", TEXT_LIST),
        ("files", TEXT_LIST),
        ("envs", TEXT_LIST),
        ("env", Shape::Text),
        ("options", GENERATOR_OPTIONS),
    ],
);

const SECRET_ARGUMENTS: Shape = Shape::Object(
    "SecretArgs",
    &[
        ("namespace", Shape::Text),
        ("name", Shape::Text),
        ("behavior", Shape::Text),
        ("literals", TEXT_LIST),
        ("files", TEXT_LIST),
        ("envs", TEXT_LIST),
        ("env", Shape::Text),
        ("options", GENERATOR_OPTIONS),
        ("type", Shape::Text),
    ],
);

const FIELD_OPTIONS: Shape = Shape::Object(
    "FieldOptions",
    &[
        ("delimiter", Shape::Text),
        ("index", Shape::Integer),
        ("encoding", Shape::Text),
        ("create", Shape::Flag),
    ],
);

pub(crate) const REPLACEMENT: Shape = Shape::Object(
    "ReplacementField",
    &[
        ("path", Shape::Text),
        (
            "source",
            Shape::Object(
                "SourceSelector",
                &[
                    ("group", Shape::Text),
                    ("version", Shape::Text),
                    ("kind", Shape::Text),
                    ("name", Shape::Text),
                    ("namespace", Shape::Text),
                    ("fieldPath", Shape::Text),
                    ("options", FIELD_OPTIONS),
                ],
            ),
        ),
        ("sourceValue", Shape::Text),
        (
            "targets",
            Shape::List(&Shape::Object(
                "TargetSelector",
                &[
                    ("select", SELECTOR),
                    ("reject", Shape::List(&SELECTOR)),
                    ("fieldPaths", TEXT_LIST),
                    ("options", FIELD_OPTIONS),
                ],
            )),
        ),
    ],
);

const VAR: Shape = Shape::Object(
    "Var",
    &[
        ("name", Shape::Text),
        (
            "objref",
            Shape::Object(
                "Target",
                &[
                    ("apiVersion", Shape::Text),
                    ("group", Shape::Text),
                    ("version", Shape::Text),
                    ("kind", Shape::Text),
                    ("name", Shape::Text),
                    ("namespace", Shape::Text),
                ],
            ),
        ),
        ("fieldref", Shape::Object("FieldSelector", &[("fieldPath", Shape::Text)])),
    ],
);

const HELM_CHART: Shape = Shape::Object(
    "HelmChart",
    &[
        ("name", Shape::Text),
        ("version", Shape::Text),
        ("repo", Shape::Text),
        ("releaseName", Shape::Text),
        ("namespace", Shape::Text),
        ("additionalValuesFiles", TEXT_LIST),
        ("valuesFile", Shape::Text),
        ("valuesInline", Shape::Any),
        ("valuesMerge", Shape::Text),
        ("includeCRDs", Shape::Flag),
        ("skipHooks", Shape::Flag),
        ("apiVersions", TEXT_LIST),
        ("kubeVersion", Shape::Text),
        ("nameTemplate", Shape::Text),
        ("skipTests", Shape::Flag),
        ("debug", Shape::Flag),
        ("devel", Shape::Flag),
    ],
);

const OLD_HELM_CHART: Shape = Shape::Object(
    "HelmChartArgs",
    &[
        ("chartName", Shape::Text),
        ("chartVersion", Shape::Text),
        ("chartRepoUrl", Shape::Text),
        ("chartHome", Shape::Text),
        ("chartRepoName", Shape::Text),
        ("helmBin", Shape::Text),
        ("helmHome", Shape::Text),
        ("values", Shape::Text),
        ("valuesLocal", Shape::Any),
        ("valuesMerge", Shape::Text),
        ("releaseName", Shape::Text),
        ("releaseNamespace", Shape::Text),
        ("extraArgs", TEXT_LIST),
    ],
);

/// All fields of a kustomization or component.
pub(crate) const KUSTOMIZATION: Shape = Shape::Object(
    "Kustomization",
    &[
        ("apiVersion", Shape::Text),
        ("kind", Shape::Text),
        (
            "metadata",
            Shape::Object(
                "ObjectMeta",
                &[
                    ("name", Shape::Text),
                    ("namespace", Shape::Text),
                    ("labels", Shape::Texts),
                    ("annotations", Shape::Texts),
                ],
            ),
        ),
        ("openapi", Shape::Texts),
        ("namePrefix", Shape::Text),
        ("nameSuffix", Shape::Text),
        ("namespace", Shape::Text),
        ("commonLabels", Shape::Texts),
        (
            "labels",
            Shape::List(&Shape::Object(
                "Label",
                &[
                    ("pairs", Shape::Texts),
                    ("includeSelectors", Shape::Flag),
                    ("includeTemplates", Shape::Flag),
                    ("fields", Shape::List(&FIELD_SPEC)),
                ],
            )),
        ),
        ("commonAnnotations", Shape::Texts),
        ("patchesStrategicMerge", TEXT_LIST),
        ("patchesJson6902", Shape::List(&PATCH)),
        ("patches", Shape::List(&PATCH)),
        ("images", Shape::List(&IMAGE)),
        ("imageTags", Shape::List(&IMAGE)),
        ("replacements", Shape::List(&REPLACEMENT)),
        ("replicas", Shape::List(&REPLICA)),
        ("vars", Shape::List(&VAR)),
        (
            "sortOptions",
            Shape::Object(
                "SortOptions",
                &[
                    ("order", Shape::Text),
                    (
                        "legacySortOptions",
                        Shape::Object(
                            "LegacySortOptions",
                            &[("orderFirst", TEXT_LIST), ("orderLast", TEXT_LIST)],
                        ),
                    ),
                ],
            ),
        ),
        ("resources", TEXT_LIST),
        ("components", TEXT_LIST),
        ("crds", TEXT_LIST),
        ("bases", TEXT_LIST),
        ("configMapGenerator", Shape::List(&CONFIG_MAP_ARGUMENTS)),
        ("secretGenerator", Shape::List(&SECRET_ARGUMENTS)),
        ("generatorOptions", GENERATOR_OPTIONS),
        (
            "helmGlobals",
            Shape::Object("HelmGlobals", &[("chartHome", Shape::Text), ("configHome", Shape::Text)]),
        ),
        ("helmCharts", Shape::List(&HELM_CHART)),
        ("helmChartInflationGenerator", Shape::List(&OLD_HELM_CHART)),
        ("configurations", TEXT_LIST),
        ("generators", TEXT_LIST),
        ("transformers", TEXT_LIST),
        ("validators", TEXT_LIST),
        ("buildMetadata", TEXT_LIST),
    ],
);

/// Decodes a normalized value; shapes and structs agree, so a failure is a mistake in this file.
pub(crate) fn decode<T: for<'de> Deserialize<'de>>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| Error::message(format!("json: {error}")))
}

/// The first document of a file as JSON, in the reading of configuration files.
pub(crate) fn read_config(bytes: &[u8]) -> Result<Value> {
    read_json(bytes).map_err(|error| error.within("error converting YAML to JSON"))
}

fn read_json(bytes: &[u8]) -> Result<Value> {
    read_first_document(bytes, "", ReadOptions::default())
        .map_err(|error| Error::message(error.reference_text()))
}

impl Kustomization {
    /// Reads the file and applies the fix-ups; `root` names its directory in errors.
    ///
    /// # Errors
    /// Broken YAML, unknown fields, wrong types, wrong kind or version, nothing set.
    pub(crate) fn read(bytes: &[u8], root: &str) -> Result<Self> {
        let value = read_json(bytes).map_err(invalid)?;
        let value = match value {
            Value::Null => Value::Object(serde_json::Map::new()),
            value => value,
        };
        let value = normalize(value, KUSTOMIZATION, Mode::Strict).map_err(invalid)?;
        if is_empty(&value) {
            return Err(Error::message("kustomization.yaml is empty"));
        }
        let mut kustomization: Self = decode(value)?;
        kustomization.fix();
        kustomization.check(root)?;
        Ok(kustomization)
    }

    fn fix(&mut self) {
        if self.kind.is_empty() {
            "Kustomization".clone_into(&mut self.kind);
        }
        if self.api_version.is_empty() {
            self.expected_version().clone_into(&mut self.api_version);
        }
        self.resources.append(&mut self.bases);
        self.images.append(&mut self.image_tags);
        for generator in self.config_map_generator.iter_mut().chain(&mut self.secret_generator) {
            if !generator.env.is_empty() {
                generator.envs.push(std::mem::take(&mut generator.env));
            }
        }
    }

    fn expected_version(&self) -> &'static str {
        if self.kind == "Component" { COMPONENT_VERSION } else { KUSTOMIZATION_VERSION }
    }

    fn check(&self, root: &str) -> Result<()> {
        let mut problems = Vec::new();
        if !matches!(self.kind.as_str(), "Kustomization" | "Component") {
            problems.push("kind should be Kustomization or Component".to_owned());
        }
        if self.api_version != self.expected_version() {
            problems.push(format!("apiVersion for {} should be {}", self.kind, self.expected_version()));
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::message(format!(
            "Failed to read kustomization file under {root}:\n{}",
            problems.join("\n")
        )))
    }

    /// The deprecated fields in use and what replaces them.
    pub(crate) fn deprecations(&self) -> Vec<(&'static str, &'static str)> {
        let mut found = Vec::new();
        for (used, field, instead) in [
            (!self.bases.is_empty(), "bases", "resources"),
            (!self.common_labels.is_empty(), "commonLabels", "labels"),
            (!self.image_tags.is_empty(), "imageTags", "images"),
            (!self.patches_json6902.is_empty(), "patchesJson6902", "patches"),
            (!self.patches_strategic_merge.is_empty(), "patchesStrategicMerge", "patches"),
            (!self.vars.is_empty(), "vars", "replacements"),
        ] {
            if used {
                found.push((field, instead));
            }
        }
        found
    }
}

fn invalid(error: Error) -> Error {
    error.within("invalid Kustomization")
}

/// Whether nothing but version and kind is set; an empty list counts as set.
fn is_empty(value: &Value) -> bool {
    value.as_object().is_none_or(|object| {
        object.iter().all(|(key, value)| match value {
            _ if key == "apiVersion" || key == "kind" => true,
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            _ => false,
        })
    })
}

/// Adds global generator options under the local ones.
pub(crate) fn merge_options(
    local: Option<&GeneratorOptions>,
    global: Option<&GeneratorOptions>,
) -> GeneratorOptions {
    let mut merged = local.cloned().unwrap_or_default();
    if let Some(global) = global {
        for (key, value) in &global.labels {
            merged.labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for (key, value) in &global.annotations {
            merged.annotations.entry(key.clone()).or_insert_with(|| value.clone());
        }
        merged.disable_name_suffix_hash |= global.disable_name_suffix_hash;
        merged.immutable |= global.immutable;
    }
    merged
}
