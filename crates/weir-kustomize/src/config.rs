//! Field specs users add: `configurations` files, and the annotated OpenAPI definitions of `crds`.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Context as _, Error, Result};
use crate::fieldspec::{FieldSpec, FieldSpecs, merge_one};
use crate::id::Gvk;
use crate::kustomization::{FIELD_SPEC, FieldSpecConfig, decode, read_config};
use crate::shape::{Mode, Shape, normalize};
use crate::tables::{NameReference, Tables};

const SPECS: Shape = Shape::List(&FIELD_SPEC);

const CONFIGURATION: Shape = Shape::Object(
    "TransformerConfig",
    &[
        ("namePrefix", SPECS),
        ("nameSuffix", SPECS),
        ("namespace", SPECS),
        ("commonLabels", SPECS),
        ("labels", SPECS),
        ("templateLabels", SPECS),
        ("commonAnnotations", SPECS),
        (
            "nameReference",
            Shape::List(&Shape::Object(
                "NameBackReferences",
                &[
                    ("group", Shape::Text),
                    ("version", Shape::Text),
                    ("kind", Shape::Text),
                    ("fieldSpecs", SPECS),
                ],
            )),
        ),
        ("varReference", SPECS),
        ("images", SPECS),
        ("replicas", SPECS),
    ],
);

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ReferenceConfig {
    group: String,
    version: String,
    kind: String,
    field_specs: Vec<FieldSpecConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Configuration {
    name_prefix: Vec<FieldSpecConfig>,
    name_suffix: Vec<FieldSpecConfig>,
    namespace: Vec<FieldSpecConfig>,
    common_labels: Vec<FieldSpecConfig>,
    labels: Vec<FieldSpecConfig>,
    template_labels: Vec<FieldSpecConfig>,
    common_annotations: Vec<FieldSpecConfig>,
    name_reference: Vec<ReferenceConfig>,
    var_reference: Vec<FieldSpecConfig>,
    images: Vec<FieldSpecConfig>,
    replicas: Vec<FieldSpecConfig>,
}

/// Field specs as written in a file.
pub(crate) fn field_specs(configs: &[FieldSpecConfig]) -> FieldSpecs {
    configs
        .iter()
        .map(|config| {
            FieldSpec::new(
                Gvk::new(&config.group, &config.version, &config.kind),
                &config.path,
                config.create,
            )
        })
        .collect()
}

/// The builtin tables with those of the listed files.
pub(crate) fn load_configurations(
    paths: &[String],
    load: &mut dyn FnMut(&str) -> Result<Bytes>,
) -> Result<Arc<Tables>> {
    let builtin = Tables::builtin();
    if paths.is_empty() {
        return Ok(builtin);
    }
    let mut own = Arc::new(Tables::default());
    for path in paths {
        let content = load(path)?;
        own = Tables::merged(&own, &Arc::new(read_configuration(&content)?))?;
    }
    Tables::merged(&builtin, &own)
}

fn read_configuration(content: &[u8]) -> Result<Tables> {
    let value = match read_config(content)? {
        Value::Null => Value::Object(Map::new()),
        value => value,
    };
    let value = normalize(value, CONFIGURATION, Mode::Strict)
        .context(|| "error unmarshaling JSON: while decoding JSON".to_owned())?;
    let configuration: Configuration = decode(value)?;
    Ok(Tables {
        name_prefix: field_specs(&configuration.name_prefix),
        name_suffix: field_specs(&configuration.name_suffix),
        namespace: field_specs(&configuration.namespace),
        common_labels: field_specs(&configuration.common_labels),
        labels: field_specs(&configuration.labels),
        template_labels: field_specs(&configuration.template_labels),
        common_annotations: field_specs(&configuration.common_annotations),
        name_reference: configuration
            .name_reference
            .iter()
            .map(|reference| NameReference {
                target: Gvk::new(&reference.group, &reference.version, &reference.kind),
                referrers: field_specs(&reference.field_specs),
            })
            .collect(),
        var_reference: field_specs(&configuration.var_reference),
        images: field_specs(&configuration.images),
        replicas: field_specs(&configuration.replicas),
    })
}

/// Tables derived from OpenAPI definitions with kustomize's extensions.
pub(crate) fn load_crds(
    paths: &[String],
    load: &mut dyn FnMut(&str) -> Result<Bytes>,
) -> Result<Arc<Tables>> {
    let mut tables = Tables::default();
    for path in paths {
        let content = load(path)?;
        let problem = || format!("unable to parse open API definition from '{path}'");
        let value = if content.first() == Some(&b'{') {
            serde_json::from_slice(&content)
                .map_err(|error| Error::message(error.to_string()))
                .context(problem)?
        } else {
            read_config(&content).context(problem)?
        };
        let Value::Object(types) = value else {
            return Err(Error::message(format!("{}: the file is empty or no map of types", problem())));
        };
        for (name, definition) in &types {
            if !definition.is_object() {
                return Err(Error::message(format!(
                    "{}: json: cannot unmarshal '{name}' into a type definition; a CustomResourceDefinition manifest does not belong in 'crds'",
                    problem()
                )));
            }
        }
        for (name, definition) in &types {
            let properties = properties(definition);
            let is_object = ["kind", "apiVersion", "metadata"]
                .iter()
                .all(|field| properties.is_some_and(|map| map.contains_key(*field)));
            if is_object {
                let kind = name.rsplit('.').next().unwrap_or(name);
                let mut visited = vec![name.clone()];
                collect(&mut tables, kind, &types, name, &[], &mut visited)?;
            }
        }
    }
    Ok(Arc::new(tables))
}

fn properties(definition: &Value) -> Option<&Map<String, Value>> {
    let schema = definition.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case("schema"))?.1;
    schema.get("properties")?.as_object()
}

fn collect(
    tables: &mut Tables,
    kind: &str,
    types: &Map<String, Value>,
    name: &str,
    path: &[&str],
    visited: &mut Vec<String>,
) -> Result<()> {
    let Some(properties) = types.get(name).and_then(properties) else { return Ok(()) };
    for (field, property) in properties {
        let mut below = path.to_vec();
        below.push(field);
        let spec = |parts: &[&str]| FieldSpec::new(Gvk::new("", "", kind), &parts.join("/"), false);
        let text = |key: &str| property.get(key).and_then(Value::as_str);
        if text("x-kubernetes-annotation").is_some() {
            merge_one(&mut tables.common_annotations, &spec(&below))?;
        }
        if text("x-kubernetes-label-selector").is_some() {
            merge_one(&mut tables.common_labels, &spec(&below))?;
        }
        if text("x-kubernetes-identity").is_some() {
            merge_one(&mut tables.name_prefix, &spec(&below))?;
        }
        if let (Some(version), Some(target)) =
            (text("x-kubernetes-object-ref-api-version"), text("x-kubernetes-object-ref-kind"))
        {
            let mut referrer = below.clone();
            referrer.push(text("x-kubernetes-object-ref-name-key").unwrap_or("name"));
            tables.add_name_reference(&NameReference {
                target: Gvk::new("", version, target),
                referrers: vec![spec(&referrer)],
            })?;
        }
        if let Some(reference) = text("$ref")
            && !visited.iter().any(|name| name == reference)
        {
            visited.push(reference.to_owned());
            collect(tables, kind, types, reference, &below, visited)?;
            visited.pop();
        }
    }
    Ok(())
}
