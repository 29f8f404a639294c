//! `weir build`: what a controller would apply, made from files of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use weir_api::helm::HelmRelease;
use weir_api::kustomize::{Kustomization, KustomizationSpec, SubstituteStrategy};
use weir_api::names::label::{KUSTOMIZE_NAME, KUSTOMIZE_NAMESPACE};
use weir_artifact::disk::DiskTree;
use weir_base::tree::Files;
use weir_kustomize::{Generation, ImageOverride, Options, PatchOverride, Remote, Substitution, Variables};

use super::debug;
use crate::arguments::GlobalArguments;
use crate::connection::Connection;
use crate::disk::WithFile;
use crate::error::Error;
use crate::kind::Kind;
use crate::{output, remote, view};

/// What stands for values that are encrypted.
const MASK: &str = "**SOPS**";

/// Arguments of `weir build`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// The objects of a Kustomization
    #[command(visible_alias = "ks")]
    Kustomization(KustomizationArguments),
    /// The objects of a HelmRelease: its chart with its values, post-rendered
    #[command(name = "helmrelease", visible_alias = "hr")]
    HelmRelease(HelmReleaseArguments),
}

#[derive(Debug, Args)]
struct HelmReleaseArguments {
    /// Name of the HelmRelease
    name: String,
    /// File with the HelmRelease, and with the ConfigMaps and Secrets its values come from
    #[arg(long, value_name = "PATH")]
    helmrelease_file: PathBuf,
    /// The chart: a directory or an archive
    #[arg(long, value_name = "PATH")]
    chart: PathBuf,
}

#[derive(Debug, Args)]
struct KustomizationArguments {
    /// Name of the Kustomization
    name: String,
    /// Directory to build
    #[arg(long, value_name = "PATH")]
    path: PathBuf,
    /// File with the Kustomization; read from the cluster when left out
    #[arg(long, value_name = "PATH")]
    kustomization_file: Option<PathBuf>,
    /// Do not connect to the cluster; variables of ConfigMaps and Secrets are then not known
    #[arg(long, requires = "kustomization_file")]
    dry_run: bool,
    /// Fail if a variable is not set and has no default
    #[arg(long)]
    strict_substitute: bool,
    /// Accepted for compatibility: nothing is ever written to the disk
    #[arg(long, hide = true)]
    in_memory_build: bool,
}

/// Prints the objects as a YAML stream.
pub(crate) async fn run(global: &GlobalArguments, arguments: &Arguments) -> Result<(), Error> {
    let arguments = match &arguments.target {
        Target::Kustomization(arguments) => arguments,
        Target::HelmRelease(arguments) => return helm_release(global, arguments).await,
    };
    let directory = DiskTree::directory(&arguments.path)
        .ok_or_else(|| Error::Directory { path: arguments.path.display().to_string() })?;
    let (object, variables) = if arguments.dry_run {
        let object = described(arguments, &global.namespace)?.unwrap_or_default();
        let variables = debug::inline(&object["spec"]["postBuild"]);
        (object, variables)
    } else {
        let connection = Connection::new(global).await?;
        let object = match described(arguments, &connection.namespace)? {
            Some(object) => object,
            None => connection.get(Kind::Kustomization, &arguments.name).await?,
        };
        let variables = match object.pointer("/spec/postBuild") {
            Some(_) => debug::variables(&connection, &object).await?,
            None => std::collections::BTreeMap::new(),
        };
        (object, variables)
    };
    let kustomization: Kustomization = serde_json::from_value(object)
        .map_err(|error| Error::Malformed { what: "Kustomization", source: Box::new(error) })?;
    let strict = arguments.strict_substitute;
    let variables: Variables = variables.into_iter().collect();
    let objects = remote::with_session(move |remote| {
        build(&DiskTree::whole(), &directory, &kustomization, &variables, strict, remote)
    })
    .await?;
    output::data(&weir_manifest::to_yaml_stream(&objects))
}

/// Prints what a HelmRelease would install.
async fn helm_release(global: &GlobalArguments, arguments: &HelmReleaseArguments) -> Result<(), Error> {
    let (object, others) =
        described_release(&arguments.helmrelease_file, &arguments.name, &global.namespace)?;
    let chart = super::helm::load(&arguments.chart)?;
    let built = weir_helm_controller::offline::build(&object, chart, &others).await.map_err(Error::Helm)?;
    output::data(&built)
}

/// The HelmRelease of this name in a file, and all objects of the file.
pub(super) fn described_release(
    path: &Path,
    name: &str,
    namespace: &str,
) -> Result<(HelmRelease, Vec<Value>), Error> {
    let origin = path.display().to_string();
    let text = fs::read(path).map_err(|source| Error::File { path: origin.clone(), source })?;
    let object = find(&text, path, Kind::HelmRelease, name, namespace)?;
    let object: HelmRelease = serde_json::from_value(object)
        .map_err(|error| Error::Malformed { what: "HelmRelease", source: Box::new(error) })?;
    let others = weir_manifest::read_documents(&text, &origin)
        .map_err(|error| Error::Malformed { what: "file", source: Box::new(error) })?;
    Ok((object, others))
}

/// The Kustomization in the given file; none if no file is given.
fn described(arguments: &KustomizationArguments, namespace: &str) -> Result<Option<Value>, Error> {
    let Some(path) = &arguments.kustomization_file else { return Ok(None) };
    let text = fs::read(path).map_err(|source| Error::File { path: path.display().to_string(), source })?;
    find(&text, path, Kind::Kustomization, &arguments.name, namespace).map(Some)
}

/// The first object of this kind and name in a YAML file, with the namespace filled in.
fn find(text: &[u8], path: &Path, kind: Kind, name: &str, namespace: &str) -> Result<Value, Error> {
    let origin = path.display().to_string();
    let documents = weir_manifest::read_documents(text, &origin)
        .map_err(|error| Error::Malformed { what: "file", source: Box::new(error) })?;
    let group = kind.resource().group;
    let found = documents.into_iter().find(|document| {
        view::text(document, "/kind") == kind.name()
            && view::text(document, "/apiVersion").split('/').next() == Some(&group)
            && view::name(document) == name
            && ["", namespace].contains(&view::namespace(document))
    });
    let Some(mut object) = found else {
        return Err(Error::ObjectNotFound {
            subject: format!("{}/{name} in '{origin}'", kind.name()),
            scope: format!("{namespace:?}"),
        });
    };
    object["metadata"]["namespace"] = Value::from(namespace);
    Ok(object)
}

/// What the controller would apply, with encrypted values masked.
fn build(
    files: &dyn Files,
    directory: &str,
    object: &Kustomization,
    variables: &Variables,
    strict: bool,
    remote: &dyn Remote,
) -> Result<Vec<Value>, Error> {
    let spec = &object.spec;
    let generated = weir_kustomize::generate(files, directory, &generation(spec)?).map_err(Error::Build)?;
    let tree = WithFile::new(files, generated.path, generated.content);
    let mut objects = weir_kustomize::build_with(&tree, directory, &Options::default(), remote)
        .map_err(Error::Build)?
        .objects;
    if let Some(post_build) = &spec.post_build {
        let always = post_build.substitute_strategy == Some(SubstituteStrategy::Always);
        for built in &mut objects {
            if let Some(substituted) =
                weir_kustomize::substitute(built, variables, Substitution { strict, always })
                    .map_err(Error::Build)?
            {
                *built = substituted;
            }
        }
    }
    let metadata = &object.metadata;
    let owner = [
        (KUSTOMIZE_NAME, metadata.name.as_deref().unwrap_or_default()),
        (KUSTOMIZE_NAMESPACE, metadata.namespace.as_deref().unwrap_or_default()),
    ];
    let common = spec.common_metadata.clone().unwrap_or_default();
    for built in &mut objects {
        set(built, "labels", owner);
        set(built, "labels", common.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        set(
            built,
            "annotations",
            common.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())),
        );
        mask(built);
    }
    Ok(objects)
}

/// Sets entries of a map in the metadata.
fn set<'a>(object: &mut Value, field: &str, entries: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let mut entries = entries.into_iter().peekable();
    if entries.peek().is_none() {
        return;
    }
    let map = &mut object["metadata"][field];
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    for (key, value) in entries {
        map[key] = Value::from(value);
    }
}

/// Hides what SOPS encrypted in a Secret: it cannot be read here, and changes with every encryption.
fn mask(object: &mut Value) {
    if view::text(object, "/kind") != "Secret" {
        return;
    }
    let whole = object.as_object_mut().is_some_and(|map| map.remove("sops").is_some());
    let hide = |field: &str, shown: &str, is_encrypted: &dyn Fn(&str) -> bool, object: &mut Value| {
        for value in
            object.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(|map| map.values_mut())
        {
            if whole || value.as_str().is_some_and(is_encrypted) {
                *value = Value::from(shown);
            }
        }
    };
    let decoded = |value: &str| {
        let bytes = BASE64_STANDARD.decode(value).unwrap_or_default();
        is_encrypted(&String::from_utf8_lossy(&bytes))
    };
    if view::text(object, "/type") == "kubernetes.io/dockerconfigjson" {
        let shown = BASE64_STANDARD.encode(format!("{{\"mask\":\"{MASK}\"}}"));
        hide("data", &shown, &decoded, object);
    } else {
        hide("data", &BASE64_STANDARD.encode(MASK), &decoded, object);
    }
    hide("stringData", MASK, &is_encrypted, object);
}

/// Whether a text carries the mark of SOPS, in any of its formats.
fn is_encrypted(text: &str) -> bool {
    ["mac: ENC[", "\"mac\": \"ENC[", "\"mac\":\"ENC[", "sops_mac=ENC[", "[sops]"]
        .iter()
        .any(|mark| text.contains(mark))
}

/// What the spec adds to the kustomization file.
fn generation(spec: &KustomizationSpec) -> Result<Generation, Error> {
    let malformed =
        |error: serde_json::Error| Error::Malformed { what: "Kustomization", source: Box::new(error) };
    let patches = spec.patches.iter().map(|patch| {
        let target = patch.target.as_ref().map(serde_json::to_value).transpose().map_err(malformed)?;
        Ok(PatchOverride { patch: patch.patch.clone(), target })
    });
    let images = spec.images.iter().map(|image| ImageOverride {
        name: image.name.clone(),
        new_name: image.new_name.clone().unwrap_or_default(),
        new_tag: image.new_tag.clone().unwrap_or_default(),
        digest: image.digest.clone().unwrap_or_default(),
    });
    Ok(Generation {
        target_namespace: spec.target_namespace.clone(),
        name_prefix: spec.name_prefix.clone(),
        name_suffix: spec.name_suffix.clone(),
        patches: patches.collect::<Result<_, Error>>()?,
        components: spec.components.clone(),
        ignore_missing_components: spec.ignore_missing_components,
        images: images.collect(),
        build_metadata: spec.build_metadata.iter().map(|item| item.as_str().to_owned()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use weir_kustomize::NoRemote;

    use super::*;
    use bytes::Bytes;
    use serde_json::json;
    use weir_base::tree::{File, MemoryTree};

    fn tree(files: &[(&str, &str)]) -> MemoryTree {
        let mut tree = MemoryTree::new();
        for (path, text) in files {
            tree.insert(path, File { data: Bytes::from((*text).to_owned()), executable: false }).unwrap();
        }
        tree
    }

    fn kustomization(spec: &Value) -> Kustomization {
        let mut object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "apps", "namespace": "flux-system"},
            "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        });
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn objects_as_the_controller_applies_them() {
        let files = tree(&[
            (
                "apps/map.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  region: ${REGION}\n  zone: ${ZONE:=a}\n",
            ),
            ("other/map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: other\n"),
        ]);
        let object = kustomization(&json!({
            "targetNamespace": "web", "namePrefix": "prod-", "commonMetadata": {"labels": {"team": "web"}},
            "postBuild": {"substitute": {"REGION": "eu"}},
        }));
        let variables = [("REGION", "eu")].into_iter().collect();
        let objects = build(&files, "apps", &object, &variables, false, &NoRemote).unwrap();
        insta::assert_snapshot!(weir_manifest::to_yaml_stream(&objects), @r"
        apiVersion: v1
        data:
          region: eu
          zone: a
        kind: ConfigMap
        metadata:
          labels:
            kustomize.toolkit.fluxcd.io/name: apps
            kustomize.toolkit.fluxcd.io/namespace: flux-system
            team: web
          name: prod-settings
          namespace: web
        ");
        let error = build(&files, "apps", &object, &Variables::new(), true, &NoRemote);
        assert!(error.is_ok(), "nothing to substitute with");
    }

    #[test]
    fn encrypted_values_are_masked() {
        #[track_caller]
        fn check(mut secret: Value, expected: &Value) {
            secret["kind"] = json!("Secret");
            mask(&mut secret);
            secret.as_object_mut().unwrap().remove("kind");
            assert_eq!(&secret, expected);
        }
        let encrypted = BASE64_STANDARD.encode("a: ENC[x]\nsops:\n  mac: ENC[y]\n");
        check(json!({"data": {"a": "eA=="}}), &json!({"data": {"a": "eA=="}}));
        check(json!({"data": {"a": "eA=="}, "sops": {}}), &json!({"data": {"a": "KipTT1BTKio="}}));
        check(
            json!({"data": {"a": "eA==", "b": encrypted}}),
            &json!({"data": {"a": "eA==", "b": "KipTT1BTKio="}}),
        );
        check(json!({"stringData": {"a": "x"}, "sops": {}}), &json!({"stringData": {"a": "**SOPS**"}}));
        check(
            json!({"type": "kubernetes.io/dockerconfigjson", "data": {"a": "eA=="}, "sops": {}}),
            &json!({"type": "kubernetes.io/dockerconfigjson", "data": {"a": BASE64_STANDARD.encode("{\"mask\":\"**SOPS**\"}")}}),
        );
    }

    #[test]
    fn the_kustomization_of_a_file() {
        let text = concat!(
            "apiVersion: kustomize.config.k8s.io/v1\nkind: Kustomization\nmetadata:\n  name: apps\n---\n",
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n  name: apps\n  namespace: other\n---\n",
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n  name: apps\nspec:\n  prune: true\n",
        );
        let found =
            find(text.as_bytes(), Path::new("ks.yaml"), Kind::Kustomization, "apps", "flux-system").unwrap();
        assert_eq!((view::namespace(&found), found["spec"]["prune"].clone()), ("flux-system", json!(true)));
        let error = find(text.as_bytes(), Path::new("ks.yaml"), Kind::Kustomization, "web", "flux-system")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "Kustomization/web in 'ks.yaml' not found in \"flux-system\" namespace");
    }
}
