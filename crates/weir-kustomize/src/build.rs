//! The evaluation of a tree of kustomizations.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;
use weir_base::tree::Files;
use weir_manifest::to_yaml;

use crate::config::{field_specs, load_configurations, load_crds};
use crate::error::{Context as _, Error, Result};
use crate::fieldspec::{FieldSpec, merge_all, merge_one};
use crate::generator::{Generated, generate};
use crate::id::Gvk;
use crate::kustomization::{
    FILE_NAMES, GeneratorArguments, Kustomization, Label, SortOptions, merge_options, read_config,
};
use crate::loader::Loader;
use crate::manifest::read_resources;
use crate::origin::Origin;
use crate::remote::Remote;
use crate::replacement::Replacements;
use crate::resource::{Resource, Tracking};
use crate::resources::Resources;
use crate::schema::Schema;
use crate::tables::Tables;
use crate::transform::{
    Affix, ImageName, JsonTarget, NamespaceOptions, Patches, StrategicMerges, SubjectMode, Transformer,
    append_hashes,
};
use crate::{Options, Order, Output, nameref, order, plugin, vars};

/// Kustomizations may nest this deep.
const DEPTH_MAX: usize = 256;

/// What `managedByLabel` writes.
const MANAGED_BY: &str = "kustomize-v5.8.1";

/// What has been gathered so far.
struct Accumulator {
    resources: Resources,
    tables: Arc<Tables>,
    vars: Vec<crate::kustomization::Var>,
}

impl Accumulator {
    fn new() -> Self {
        Self { resources: Resources::default(), tables: Arc::new(Tables::default()), vars: Vec::new() }
    }
}

/// One kustomization with its place.
struct Target<'a> {
    kustomization: Kustomization,
    file_name: &'static str,
    loader: Rc<Loader<'a>>,
    /// Set when origins are tracked.
    origin: Option<Origin>,
    depth: usize,
    /// The entries as read, for error texts.
    raw: Value,
}

struct Builder<'a> {
    options: &'a Options,
    schema: Schema,
}

/// Builds the kustomization at `root`.
pub(crate) fn build(files: &dyn Files, root: &str, options: &Options, remote: &dyn Remote) -> Result<Output> {
    let loader = Loader::new(files, root, options, remote)?;
    let mut builder = Builder { options, schema: Schema::default() };
    let mut target = Builder::load(loader, 0)?;
    builder.set_schema(&target)?;
    let metadata = target.kustomization.build_metadata.clone();
    target.origin = (!metadata.is_empty()).then(Origin::default);
    let mut accumulator = builder.accumulate(&target, Accumulator::new())?;
    let schema = &builder.schema;
    append_hashes(&mut accumulator.resources, schema)?;
    nameref::fix(&mut accumulator.resources, &accumulator.tables.name_reference, schema)?;
    vars::resolve(&mut accumulator.resources, &accumulator.vars, &accumulator.tables.var_reference, schema)?;
    let mut resources = accumulator.resources.into_list();
    for resource in &resources {
        crate::manifest::check_metadata(&resource.node)?;
    }
    resources.retain(|resource| !resource.is_local());
    // Patches may have made identities equal.
    let mut unique = Resources::default();
    unique.append_all(resources, schema)?;
    let mut resources = unique.into_list();
    let default_order = SortOptions { order: "legacy".to_owned(), legacy_sort_options: None };
    match (&target.kustomization.sort_options, options.order) {
        (Some(sort_options), _) => order::sort(&mut resources, sort_options, schema)?,
        (None, Order::Legacy) => order::sort(&mut resources, &default_order, schema)?,
        (None, Order::AsFound) => {}
    }
    if metadata.iter().any(|value| value == "managedByLabel") {
        add_managed_by(&mut resources)?;
    }
    let wanted = |name: &str| metadata.iter().any(|value| value == name);
    let tracking =
        Tracking { origin: wanted("originAnnotations"), transformations: wanted("transformerAnnotations") };
    let mut objects = Vec::with_capacity(resources.len());
    for mut resource in resources {
        resource.finish_annotations(tracking);
        objects.push(resource.node.to_json()?);
    }
    Ok(Output { objects })
}

fn add_managed_by(resources: &mut [Resource]) -> Result<()> {
    let labels = FieldSpec::new(Gvk::default(), "metadata/labels", true);
    for resource in resources {
        labels.visit(&mut resource.node, Some(crate::fieldspec::Create::Map), &mut |node| {
            if let crate::node::Node::Map(map) = node {
                map.set_scalar("app.kubernetes.io/managed-by", crate::node::Scalar::string(MANAGED_BY));
            }
            Ok(())
        })?;
    }
    Ok(())
}

impl<'a> Builder<'a> {
    fn load(loader: Rc<Loader<'a>>, depth: usize) -> Result<Target<'a>> {
        let mut found = None;
        for name in FILE_NAMES {
            if let Ok(content) = loader.load(name)
                && found.replace((name, content)).is_some()
            {
                return Err(Error::message(format!(
                    "Found multiple kustomization files under: {}\n",
                    loader.shown_root()
                )));
            }
        }
        let Some((file_name, content)) = found else {
            return Err(Error::message(format!(
                "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
                loader.shown_root()
            )));
        };
        if depth > DEPTH_MAX {
            return Err(Error::message(format!("kustomizations nest deeper than {DEPTH_MAX}")));
        }
        let raw = read_config(&content).unwrap_or(Value::Null);
        let kustomization = Kustomization::read(&content, &loader.shown_root())?;
        for (field, instead) in kustomization.deprecations() {
            tracing::debug!(directory = %loader.shown_root(), field, instead, "deprecated kustomization field");
        }
        Ok(Target { kustomization, file_name, loader, origin: None, depth, raw })
    }

    fn set_schema(&mut self, target: &Target<'_>) -> Result<()> {
        let openapi = &target.kustomization.openapi;
        let document = match openapi.get("path") {
            Some(path) => {
                let content = target.loader.load(path)?;
                let value = if content.first() == Some(&b'{') {
                    serde_json::from_slice(&content)
                        .map_err(|error| Error::message(format!("invalid schema file: {error}")))?
                } else {
                    read_config(&content).context(|| "invalid schema file".to_owned())?
                };
                Some(value)
            }
            None => None,
        };
        let version = openapi.get("version").map(String::as_str);
        self.schema.set(version, document.as_ref(), self.options.custom_schema_adds)
    }

    /// Everything one kustomization contributes, on top of what is there already.
    fn accumulate(&mut self, target: &Target<'a>, accumulator: Accumulator) -> Result<Accumulator> {
        let kustomization = &target.kustomization;
        let mut accumulator = self
            .accumulate_resources(target, accumulator, &kustomization.resources)
            .context(|| "accumulating resources".to_owned())?;
        let mut load = |path: &str| target.loader.load(path);
        let tables = load_configurations(&kustomization.configurations, &mut load)?;
        accumulator.tables =
            Tables::merged(&accumulator.tables, &tables).context(|| "merging config".to_owned())?;
        let crds = load_crds(&kustomization.crds, &mut load)
            .context(|| format!("loading CRDs [{}]", kustomization.crds.join(" ")))?;
        accumulator.tables =
            Tables::merged(&accumulator.tables, &crds).context(|| "merging CRDs".to_owned())?;
        self.run_generators(target, &mut accumulator)?;
        let mut accumulator = self
            .accumulate_components(target, accumulator)
            .context(|| "accumulating components".to_owned())?;
        let transformers = self.transformers(target, &accumulator.tables)?;
        self.transform(&transformers, &mut accumulator.resources)?;
        self.validate(target, &mut accumulator.resources)?;
        let merged = vars::bind(&mut accumulator.resources, &kustomization.vars, &self.schema)
            .and_then(|()| vars::merge(&mut accumulator.vars, &kustomization.vars));
        merged.context(|| "merging vars".to_owned())?;
        Ok(accumulator)
    }

    fn accumulate_resources(
        &mut self,
        target: &Target<'a>,
        mut accumulator: Accumulator,
        paths: &[String],
    ) -> Result<Accumulator> {
        for path in paths {
            let Err(as_file) = self.accumulate_file(target, &mut accumulator, path) else { continue };
            if as_file.is_http() {
                return Err(as_file);
            }
            let attempt = format!("accumulation err='{as_file}'");
            let loader = match target.loader.enter(path) {
                Ok(loader) => loader,
                Err(error) if as_file.is_malformed_yaml() && !error.is_timeout() => {
                    return Err(as_file);
                }
                Err(error) => return Err(error.within(attempt)),
            };
            let origin = target.origin.as_ref().map(|origin| origin.append(path));
            accumulator =
                self.accumulate_directory(target, accumulator, loader, origin, false).context(|| attempt)?;
        }
        Ok(accumulator)
    }

    fn accumulate_file(&self, target: &Target<'a>, accumulator: &mut Accumulator, path: &str) -> Result<()> {
        let load = || {
            let content = target.loader.load(path)?;
            let resources = read_resources(&content).map_err(|error| error.in_file(path))?;
            // Equal objects within the file are refused before it is merged.
            let mut own = Resources::default();
            own.append_all(resources, &self.schema)?;
            Ok(own.into_list())
        };
        let mut resources = load().context(|| format!("accumulating resources from '{path}'"))?;
        if let Some(origin) = &target.origin {
            let origin = origin.append(path);
            for resource in &mut resources {
                resource.origin = Some(origin.clone());
            }
        }
        // On a clash nothing of the file stays behind, as the build fails anyway.
        accumulator
            .resources
            .append_all(resources, &self.schema)
            .context(|| format!("merging resources from '{path}'"))
    }

    fn accumulate_components(
        &mut self,
        target: &Target<'a>,
        mut accumulator: Accumulator,
    ) -> Result<Accumulator> {
        for path in &target.kustomization.components {
            let loader = target
                .loader
                .enter(path)
                .map_err(|error| Error::message(format!("loader.New \"{error}\"")))?;
            let origin = target.origin.as_ref().map(|origin| origin.append(path));
            accumulator = self
                .accumulate_directory(target, accumulator, loader, origin, true)
                .map_err(|error| Error::message(format!("accumulateDirectory: \"{error}\"")))?;
        }
        Ok(accumulator)
    }

    fn accumulate_directory(
        &mut self,
        parent: &Target<'a>,
        mut accumulator: Accumulator,
        loader: Rc<Loader<'a>>,
        origin: Option<Origin>,
        is_component: bool,
    ) -> Result<Accumulator> {
        let root = loader.shown_root();
        let mut target = Self::load(loader, parent.depth + 1)
            .context(|| format!("couldn't make target for path '{root}'"))?;
        target.origin = origin;
        self.set_schema(&target)?;
        let kind = target.kustomization.kind.as_str();
        if is_component && kind != "Component" {
            return Err(Error::message(format!(
                "expected kind 'Component' for path '{root}' but got '{kind}'"
            )));
        }
        if !is_component && kind == "Component" {
            return Err(Error::message(format!("expected kind != 'Component' for path '{root}'")));
        }
        let recursed = || format!("recursed accumulation of path '{root}'");
        if is_component {
            return self.accumulate(&target, accumulator).context(recursed);
        }
        let child = self.accumulate(&target, Accumulator::new()).context(recursed)?;
        let merged = accumulator
            .resources
            .append_all(child.resources.into_list(), &self.schema)
            .and_then(|()| Tables::merged(&accumulator.tables, &child.tables))
            .and_then(|tables| {
                accumulator.tables = tables;
                vars::merge(&mut accumulator.vars, &child.vars)
            });
        merged.context(|| format!("recursed merging from path '{root}'"))?;
        Ok(accumulator)
    }

    fn run_generators(&mut self, target: &Target<'a>, accumulator: &mut Accumulator) -> Result<()> {
        let kustomization = &target.kustomization;
        if !kustomization.helm_charts.is_empty() || !kustomization.helm_chart_inflation_generator.is_empty() {
            let shown = kustomization
                .helm_charts
                .first()
                .or_else(|| kustomization.helm_chart_inflation_generator.first())
                .map(to_yaml)
                .unwrap_or_default();
            return Err(Error::message("must specify --enable-helm").within(format!(
                "trouble configuring builtin HelmChartInflationGenerator with config: `\n{shown}`"
            )));
        }
        let external = self
            .plugin_objects(target, &kustomization.generators)
            .context(|| "loading generator plugins".to_owned())?;
        let mut load = |path: &str| target.loader.load(path);
        let lists: [(Generated, &str, &[GeneratorArguments]); 2] = [
            (Generated::ConfigMap, "ConfigMapGenerator", &kustomization.config_map_generator),
            (Generated::Secret, "SecretGenerator", &kustomization.secret_generator),
        ];
        for (kind, name, list) in lists {
            let origin = target.origin.as_ref().map(|origin| origin.builtin(target.file_name, name));
            for arguments in list {
                let options =
                    merge_options(arguments.options.as_ref(), kustomization.generator_options.as_ref());
                let mut resource = generate(kind, arguments, &options, &mut load)?;
                resource.origin.clone_from(&origin);
                self.absorb(resource, name, accumulator)?;
            }
        }
        for object in &external {
            let mut resource = plugin::run_generator(object, &self.schema, &mut load)
                .context(|| "loading generator plugins: failed to load generator".to_owned())?;
            resource.origin = plugin::origin_of(object);
            self.absorb(resource, object.kind(), accumulator)?;
        }
        Ok(())
    }

    fn absorb(&self, resource: Resource, generator: &str, accumulator: &mut Accumulator) -> Result<()> {
        let name = resource.name().to_owned();
        accumulator
            .resources
            .absorb(resource, &self.schema)
            .context(|| format!("merging from generator {generator} {name}"))
    }

    /// The configuration objects of `generators`, `transformers` or `validators`.
    fn plugin_objects(&mut self, target: &Target<'a>, entries: &[String]) -> Result<Vec<Resource>> {
        let mut accumulator = Accumulator::new();
        let mut paths = Vec::new();
        for entry in entries {
            match read_resources(entry.as_bytes()) {
                Ok(mut objects) => {
                    if let Some(origin) = &target.origin {
                        for object in &mut objects {
                            object.origin = Some(origin.append(target.file_name));
                        }
                    }
                    accumulator.resources.append_all(objects, &self.schema)?;
                }
                Err(_) => paths.push(entry.clone()),
            }
        }
        let accumulator = self.accumulate_resources(target, accumulator, &paths)?;
        Ok(accumulator.resources.into_list())
    }

    fn transformers(
        &mut self,
        target: &Target<'a>,
        tables: &Tables,
    ) -> Result<Vec<(Transformer, Option<Origin>)>> {
        let mut list = builtin_transformers(target, tables)?;
        list.extend(self.external_transformers(target, &target.kustomization.transformers)?);
        Ok(list)
    }

    fn external_transformers(
        &mut self,
        target: &Target<'a>,
        entries: &[String],
    ) -> Result<Vec<(Transformer, Option<Origin>)>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let objects = self.plugin_objects(target, entries)?;
        let mut load = |path: &str| target.loader.load(path);
        let mut list = Vec::new();
        for object in &objects {
            let origin = plugin::origin_of(object);
            let made = plugin::transformers(object, target.loader.directory_name(), &self.schema, &mut load)?;
            list.extend(made.into_iter().map(|transformer| (transformer, origin.clone())));
        }
        Ok(list)
    }

    fn transform(
        &self,
        transformers: &[(Transformer, Option<Origin>)],
        resources: &mut Resources,
    ) -> Result<()> {
        for (transformer, origin) in transformers {
            transformer.apply(resources, &self.schema)?;
            if let Some(origin) = origin {
                for resource in resources.list_mut_same_ids() {
                    resource.rewrite_annotations();
                    if resource.origin.is_none() {
                        resource.origin = Some(origin.clone());
                    } else {
                        resource.transformations.push(origin.clone());
                    }
                }
            }
            resources.drop_empty();
        }
        Ok(())
    }

    fn validate(&mut self, target: &Target<'a>, resources: &mut Resources) -> Result<()> {
        let validators = self.external_transformers(target, &target.kustomization.validators)?;
        for (validator, _) in &validators {
            let before: Vec<Value> =
                resources.list().iter().map(|resource| resource.node.to_json()).collect::<Result<_>>()?;
            validator.apply(resources, &self.schema)?;
            let after: Vec<Value> = resources
                .list()
                .iter()
                .map(|resource| {
                    let mut resource = resource.clone();
                    let mut labels = resource.texts("labels");
                    if labels.remove("validated-by").is_some() {
                        resource.set_texts("labels", labels);
                    }
                    resource.node.to_json()
                })
                .collect::<Result<_>>()?;
            if before != after {
                return Err(Error::message("validator shouldn't modify the resource map"));
            }
        }
        Ok(())
    }
}

fn trouble(kind: &str, config: &str) -> String {
    format!("trouble configuring builtin {kind} with config: `\n{config}`")
}

/// The transformers the fields of a kustomization ask for, in their fixed order.
fn builtin_transformers(target: &Target<'_>, tables: &Tables) -> Result<Vec<(Transformer, Option<Origin>)>> {
    let kustomization = &target.kustomization;
    let mut load = |path: &str| target.loader.load(path);
    let mut list: Vec<(Transformer, &'static str)> = Vec::new();
    let entry = |field: &str, position: usize| {
        target.raw.get(field).and_then(|list| list.get(position)).map(to_yaml).unwrap_or_default()
    };
    if !kustomization.patches_strategic_merge.is_empty() {
        const KIND: &str = "PatchStrategicMergeTransformer";
        let merges =
            StrategicMerges::new(&kustomization.patches_strategic_merge, "", &mut load).context(|| {
                let paths = Value::from(kustomization.patches_strategic_merge.clone());
                trouble(KIND, &to_yaml(&serde_json::json!({ "paths": paths })))
            })?;
        list.push((Transformer::StrategicMerge(merges), KIND));
    }
    for (position, patch) in kustomization.patches.iter().enumerate() {
        const KIND: &str = "PatchTransformer";
        let config = entry("patches", position);
        let patches = Patches::new(patch, &config, &mut load).context(|| trouble(KIND, &config))?;
        list.push((Transformer::Patch(Box::new(patches)), KIND));
    }
    if !kustomization.namespace.is_empty() {
        list.push((
            Transformer::Namespace(NamespaceOptions {
                namespace: kustomization.namespace.clone(),
                specs: tables.namespace.clone(),
                unset_only: false,
                subjects: SubjectMode::DefaultOnly,
            }),
            "NamespaceTransformer",
        ));
    }
    for (affix, text, specs, kind) in [
        (Affix::Prefix, &kustomization.name_prefix, &tables.name_prefix, "PrefixTransformer"),
        (Affix::Suffix, &kustomization.name_suffix, &tables.name_suffix, "SuffixTransformer"),
    ] {
        if !text.is_empty() {
            let specs = specs.clone();
            list.push((Transformer::Name { affix, text: text.clone(), specs }, kind));
        }
    }
    if !kustomization.labels.is_empty() || !kustomization.common_labels.is_empty() {
        const KIND: &str = "LabelTransformer";
        for label in &kustomization.labels {
            let specs = label_specs(label, tables).context(|| "failed to merge labels".to_owned())?;
            list.push((Transformer::Labels { labels: label.pairs.clone(), specs }, KIND));
        }
        list.push((
            Transformer::Labels {
                labels: kustomization.common_labels.clone(),
                specs: tables.common_labels.clone(),
            },
            KIND,
        ));
    }
    if !kustomization.common_annotations.is_empty() {
        list.push((
            Transformer::Annotations {
                annotations: kustomization.common_annotations.clone(),
                specs: tables.common_annotations.clone(),
            },
            "AnnotationsTransformer",
        ));
    }
    for (position, patch) in kustomization.patches_json6902.iter().enumerate() {
        const KIND: &str = "PatchJson6902Transformer";
        let json =
            JsonTarget::new(patch.target.as_ref(), &patch.path, &patch.patch, &mut load).context(|| {
                let mut config = target.raw["patchesJson6902"][position].clone();
                if let Some(operations) = config.as_object_mut().and_then(|entry| entry.remove("patch")) {
                    config["jsonOp"] = operations;
                }
                trouble(KIND, &to_yaml(&config))
            })?;
        list.push((Transformer::Json(Box::new(json)), KIND));
    }
    for replica in &kustomization.replicas {
        let specs = tables.replicas.clone();
        list.push((Transformer::Replicas { replica: replica.clone(), specs }, "ReplicaCountTransformer"));
    }
    for image in &kustomization.images {
        let name = ImageName::new(&image.name).context(|| format!("image name '{}'", image.name))?;
        let specs = tables.images.clone();
        list.push((Transformer::Image { image: image.clone(), name, specs }, "ImageTagTransformer"));
    }
    if !kustomization.replacements.is_empty() {
        const KIND: &str = "ReplacementTransformer";
        let replacements = Replacements::new(&kustomization.replacements, &mut load).context(|| {
            let config = target.raw.get("replacements").cloned().unwrap_or_default();
            trouble(KIND, &to_yaml(&serde_json::json!({ "Replacements": config })))
        })?;
        list.push((Transformer::Replacements(replacements), KIND));
    }
    Ok(list
        .into_iter()
        .map(|(transformer, kind)| {
            let origin = target.origin.as_ref().map(|origin| origin.builtin(target.file_name, kind));
            (transformer, origin)
        })
        .collect())
}

fn label_specs(label: &Label, tables: &Tables) -> Result<Vec<FieldSpec>> {
    let mut specs = field_specs(&label.fields);
    merge_all(&mut specs, &tables.labels)?;
    if label.include_selectors {
        merge_all(&mut specs, &tables.common_labels)?;
    } else {
        if label.include_templates {
            merge_all(&mut specs, &tables.template_labels)
                .context(|| "failed to merge template fieldSpec".to_owned())?;
        }
        merge_one(&mut specs, &FieldSpec::new(Gvk::default(), "metadata/labels", true))?;
    }
    Ok(specs)
}
