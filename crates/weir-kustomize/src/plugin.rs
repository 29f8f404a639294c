//! Builtin generators and transformers configured by objects in `generators`, `transformers` and `validators`.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::config::field_specs;
use crate::error::{Context as _, Error, Result};
use crate::fieldspec::split_path;
use crate::generator::{Generated, generate};
use crate::kustomization::{
    FIELD_SPEC, FieldSpecConfig, GENERATOR_OPTIONS, GeneratorArguments, IMAGE, Image, PATCH, Patch,
    REPLACEMENT, REPLICA, Replacement, Replica, SELECTOR, Selector, decode, read_config,
};
use crate::node::{Map, Node, Scalar, wrong_kind};
use crate::origin::{ConfiguredBy, Origin};
use crate::replacement::Replacements;
use crate::resource::Resource;
use crate::resources::Resources;
use crate::schema::Schema;
use crate::selector::ResourceSelector;
use crate::shape::{Mode, Shape, normalize};
use crate::transform::{
    Affix, ImageName, JsonTarget, NamespaceOptions, Patches, StrategicMerges, SubjectMode, Transformer,
};

const TEXT_LIST: Shape = Shape::List(&Shape::Text);

/// All fields any builtin configuration object may have; each kind looks at its own.
const CONFIG: Shape = Shape::Object(
    "Plugin",
    &[
        ("metadata", Shape::Object("ObjectMeta", &[("name", Shape::Text), ("namespace", Shape::Text)])),
        ("fieldSpecs", Shape::List(&FIELD_SPEC)),
        ("behavior", Shape::Text),
        ("literals", TEXT_LIST),
        ("files", TEXT_LIST),
        ("envs", TEXT_LIST),
        ("env", Shape::Text),
        ("options", Shape::Any),
        ("type", Shape::Text),
        ("annotations", Shape::Texts),
        ("labels", Shape::Texts),
        ("unsetOnly", Shape::Flag),
        ("setRoleBindingSubjects", Shape::Text),
        ("prefix", Shape::Text),
        ("suffix", Shape::Text),
        ("imageTag", IMAGE),
        ("replica", REPLICA),
        ("path", Shape::Text),
        ("patch", Shape::Text),
        ("paths", TEXT_LIST),
        ("patches", Shape::Text),
        ("jsonOp", Shape::Text),
        ("target", SELECTOR),
        ("replacements", Shape::List(&REPLACEMENT)),
        ("value", Shape::Text),
        ("targets", Shape::List(&VALUE_TARGET)),
        ("targetFilePath", Shape::Text),
        ("cloud", Shape::Text),
        (
            "kubernetesService",
            Shape::Object("KubernetesService", &[("namespace", Shape::Text), ("name", Shape::Text)]),
        ),
        (
            "serviceAccount",
            Shape::Object("ServiceAccount", &[("name", Shape::Text), ("projectId", Shape::Text)]),
        ),
    ],
);

const VALUE_TARGET: Shape = Shape::Object(
    "Target",
    &[("selector", SELECTOR), ("fieldPath", Shape::Text), ("filePathPosition", Shape::Integer)],
);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedService {
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CloudAccount {
    name: String,
    project_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    metadata: Metadata,
    field_specs: Option<Vec<FieldSpecConfig>>,
    behavior: String,
    literals: Vec<String>,
    files: Vec<String>,
    envs: Vec<String>,
    env: String,
    options: Option<Value>,
    #[serde(rename = "type")]
    secret_type: String,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    unset_only: bool,
    set_role_binding_subjects: String,
    prefix: String,
    suffix: String,
    image_tag: Image,
    replica: Replica,
    path: String,
    patch: String,
    paths: Vec<String>,
    patches: String,
    json_op: String,
    target: Option<Selector>,
    replacements: Vec<Replacement>,
    value: String,
    targets: Vec<ValueTarget>,
    target_file_path: String,
    cloud: String,
    kubernetes_service: NamedService,
    service_account: CloudAccount,
}

/// Names of the builtin kinds that generate.
const GENERATORS: [&str; 4] =
    ["ConfigMapGenerator", "SecretGenerator", "IAMPolicyGenerator", "HelmChartInflationGenerator"];

/// Names of the builtin kinds that transform.
const TRANSFORMERS: [&str; 15] = [
    "AnnotationsTransformer",
    "HashTransformer",
    "ImageTagTransformer",
    "LabelTransformer",
    "NamespaceTransformer",
    "PatchJson6902Transformer",
    "PatchStrategicMergeTransformer",
    "PatchTransformer",
    "PrefixSuffixTransformer",
    "PrefixTransformer",
    "ReplacementTransformer",
    "ReplicaCountTransformer",
    "SuffixTransformer",
    "ValueAddTransformer",
    "SortOrderTransformer",
];

/// Checks that the object configures a builtin plugin of the wanted sort.
fn check_kind(object: &Resource, wanted: &[&str], sort: &str, schema: &Schema) -> Result<()> {
    if object.api_version() != "builtin" {
        return Err(Error::message(format!(
            "external plugins disabled; unable to load external plugin '{}'",
            object.kind()
        )));
    }
    let kind = object.kind();
    let known =
        (GENERATORS.contains(&kind) || TRANSFORMERS.contains(&kind)) && kind != "SortOrderTransformer";
    if !known {
        return Err(Error::message(format!("unable to load builtin {}", object.gvk())));
    }
    if !wanted.contains(&kind) {
        return Err(Error::message(format!("plugin {} not a {sort}", object.original_id(schema))));
    }
    Ok(())
}

fn read(object: &Resource) -> Result<(Config, Value)> {
    let raw = object.node.to_json()?;
    let config = decode(normalize(raw.clone(), CONFIG, Mode::Lenient)?)?;
    Ok((config, raw))
}

/// The origin recorded for what a configuration object makes or changes.
pub(crate) fn origin_of(object: &Resource) -> Option<Origin> {
    let origin = object.origin.as_ref()?;
    Some(Origin {
        repo: origin.repo.clone(),
        reference: origin.reference.clone(),
        configured_in: origin.path.clone(),
        configured_by: Some(ConfiguredBy {
            api_version: object.api_version().to_owned(),
            kind: object.kind().to_owned(),
            name: object.name().to_owned(),
            namespace: object.namespace().to_owned(),
        }),
        path: String::new(),
    })
}

/// The object a configured generator makes.
pub(crate) fn run_generator(
    object: &Resource,
    schema: &Schema,
    load: &mut dyn FnMut(&str) -> Result<Bytes>,
) -> Result<Resource> {
    check_kind(object, &GENERATORS, "generator", schema)?;
    let fails = || format!("plugin {} fails configuration", object.original_id(schema));
    let (config, _) = read(object).context(fails)?;
    let kind = match object.kind() {
        "ConfigMapGenerator" => Generated::ConfigMap,
        "SecretGenerator" => Generated::Secret,
        "IAMPolicyGenerator" => return cloud_account(&config),
        _ => return Err(Error::message("must specify --enable-helm").within(fails())),
    };
    let options = match config.options {
        Some(value) => decode(normalize(value, GENERATOR_OPTIONS, Mode::Lenient)?)?,
        None => crate::kustomization::GeneratorOptions::default(),
    };
    let mut envs = config.envs;
    if !config.env.is_empty() {
        envs.push(config.env);
    }
    let arguments = GeneratorArguments {
        namespace: config.metadata.namespace,
        name: config.metadata.name,
        behavior: config.behavior,
        literals: config.literals,
        files: config.files,
        envs,
        env: String::new(),
        options: None,
        secret_type: config.secret_type,
    };
    generate(kind, &arguments, &options, load)
}

fn cloud_account(config: &Config) -> Result<Resource> {
    if config.cloud != "gke" {
        return Err(Error::message(format!("cloud provider {} not supported yet", config.cloud)));
    }
    let mut annotations = Map::with_capacity(1);
    annotations.push(
        "iam.gke.io/gcp-service-account",
        Node::string(format!(
            "{}@{}.iam.gserviceaccount.com",
            config.service_account.name, config.service_account.project_id
        )),
    );
    let mut metadata = Map::with_capacity(3);
    metadata.push("annotations", Node::Map(annotations));
    metadata.push("name", Node::string(config.kubernetes_service.name.as_str()));
    if !config.kubernetes_service.namespace.is_empty() {
        metadata.push("namespace", Node::string(config.kubernetes_service.namespace.as_str()));
    }
    let mut account = Map::with_capacity(3);
    account.push("apiVersion", Node::string("v1"));
    account.push("kind", Node::string("ServiceAccount"));
    account.push("metadata", Node::Map(metadata));
    Ok(Resource::new(Node::Map(account)))
}

/// The transformers an object configures; a prefix and suffix in one object are two.
pub(crate) fn transformers(
    object: &Resource,
    directory_name: &str,
    schema: &Schema,
    load: &mut dyn FnMut(&str) -> Result<Bytes>,
) -> Result<Vec<Transformer>> {
    check_kind(object, &TRANSFORMERS, "transformer", schema)?;
    let fails = || format!("plugin {} fails configuration", object.original_id(schema));
    configure(object, directory_name, load).context(fails)
}

fn configure(
    object: &Resource,
    directory_name: &str,
    load: &mut dyn FnMut(&str) -> Result<Bytes>,
) -> Result<Vec<Transformer>> {
    let (config, raw) = read(object)?;
    let specs = field_specs(config.field_specs.as_deref().unwrap_or_default());
    let name_specs = || {
        config
            .field_specs
            .as_ref()
            .map(|_| specs.clone())
            .ok_or_else(|| Error::message("fieldSpecs is not expected to be nil"))
    };
    let one = match object.kind() {
        "AnnotationsTransformer" => Transformer::Annotations { annotations: config.annotations, specs },
        "LabelTransformer" => Transformer::Labels { labels: config.labels, specs },
        "HashTransformer" => Transformer::Hash,
        "ImageTagTransformer" => Transformer::Image {
            name: ImageName::new(&config.image_tag.name)?,
            image: config.image_tag,
            specs,
        },
        "NamespaceTransformer" => Transformer::Namespace(NamespaceOptions {
            namespace: config.metadata.namespace,
            specs,
            unset_only: config.unset_only,
            subjects: SubjectMode::parse(&config.set_role_binding_subjects)?,
        }),
        "PrefixTransformer" => {
            Transformer::Name { affix: Affix::Prefix, text: config.prefix.clone(), specs: name_specs()? }
        }
        "SuffixTransformer" => {
            Transformer::Name { affix: Affix::Suffix, text: config.suffix.clone(), specs: name_specs()? }
        }
        "PrefixSuffixTransformer" => {
            let specs = name_specs()?;
            let mut both = Vec::new();
            for (affix, text) in [(Affix::Prefix, &config.prefix), (Affix::Suffix, &config.suffix)] {
                if !text.is_empty() {
                    both.push(Transformer::Name { affix, text: text.clone(), specs: specs.clone() });
                }
            }
            return Ok(both);
        }
        "ReplicaCountTransformer" => Transformer::Replicas { replica: config.replica, specs },
        "PatchTransformer" => {
            let options = match config.options {
                Some(value) => {
                    let entry = serde_json::json!({ "options": value });
                    decode::<Patch>(normalize(entry, PATCH, Mode::Lenient)?)?.options
                }
                None => None,
            };
            let entry = Patch { path: config.path, patch: config.patch, target: config.target, options };
            Transformer::Patch(Box::new(Patches::new(&entry, &weir_manifest::to_yaml(&raw), load)?))
        }
        "PatchStrategicMergeTransformer" => {
            Transformer::StrategicMerge(StrategicMerges::new(&config.paths, &config.patches, load)?)
        }
        "PatchJson6902Transformer" => Transformer::Json(Box::new(JsonTarget::new(
            config.target.as_ref(),
            &config.path,
            &config.json_op,
            load,
        )?)),
        "ReplacementTransformer" => Transformer::Replacements(Replacements::new(&config.replacements, load)?),
        _ => Transformer::ValueAdd(ValueAdd::new(config, directory_name, load)?),
    };
    Ok(vec![one])
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ValueTarget {
    selector: Option<Selector>,
    field_path: String,
    file_path_position: i64,
}

/// Writes a value into fields, as a whole or as a part of the path they hold.
#[derive(Debug)]
pub(crate) struct ValueAdd {
    value: String,
    targets: Vec<ValueTarget>,
}

impl ValueAdd {
    fn new(
        config: Config,
        directory_name: &str,
        load: &mut dyn FnMut(&str) -> Result<Bytes>,
    ) -> Result<Self> {
        let value = match config.value.trim() {
            "" => directory_name.to_owned(),
            value => value.to_owned(),
        };
        let mut targets = config.targets;
        if !config.target_file_path.is_empty() {
            let content = load(&config.target_file_path)?;
            let more = normalize(read_config(&content)?, CONFIG, Mode::Lenient)?;
            targets.extend(decode::<Config>(more)?.targets);
        }
        if targets.is_empty() {
            return Err(Error::message("must specify at least one target"));
        }
        for target in &targets {
            if target.field_path.is_empty() {
                return Err(Error::message("fieldPath cannot be empty"));
            }
            if target.file_path_position < 0 {
                return Err(Error::message(format!(
                    "value of FilePathPosition ({}) cannot be negative",
                    target.file_path_position
                )));
            }
        }
        Ok(Self { value, targets })
    }

    pub(crate) fn apply(&self, resources: &mut Resources, schema: &Schema) -> Result<()> {
        for target in &self.targets {
            let selector = target.selector.as_ref().map(ResourceSelector::new).transpose()?;
            for resource in resources.list_mut() {
                if selector.as_ref().is_some_and(|selector| !selector.selects(resource, schema)) {
                    continue;
                }
                if target.field_path == "metadata/namespace" && schema.is_cluster_scoped(&resource.gvk()) {
                    continue;
                }
                let parts: Vec<String> = split_path(&target.field_path);
                self.set(&mut resource.node, &parts, target.file_path_position)?;
            }
        }
        Ok(())
    }

    fn set(&self, object: &mut Node, parts: &[String], position: i64) -> Result<()> {
        let set = &mut |node: &mut Node| {
            let Node::Scalar(scalar) = &*node else { return Err(wrong_kind("ScalarNode", node)) };
            let text = if position > 0 {
                insert_part(&scalar.text, position as usize - 1, &self.value)
            } else {
                self.value.clone()
            };
            if scalar.is_null() {
                *node = Node::Scalar(Scalar::untyped(text));
                return Ok(());
            }
            node.set_scalar(text, crate::node::Tag::Unset)
        };
        crate::path::visit(object, parts, Some(crate::path::Leaf::Scalar), set).map(drop)
    }
}

/// Inserts a directory into a path; a position behind the end appends.
fn insert_part(path: &str, position: usize, part: &str) -> String {
    let rest = path.strip_prefix('/').unwrap_or(path);
    let mut parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    parts.insert(position.min(parts.len()), part);
    format!("{}{}", if path.starts_with('/') { "/" } else { "" }, parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::insert_part;

    #[test]
    fn parts_are_inserted_into_paths() {
        for (path, position, expected) in [
            ("", 0, "X"),
            ("/", 0, "/X"),
            ("pie", 0, "X/pie"),
            ("/raw", 9, "/raw/X"),
            ("/a/b/c", 2, "/a/b/X/c"),
        ] {
            assert_eq!(insert_part(path, position, "X"), expected);
        }
    }
}
