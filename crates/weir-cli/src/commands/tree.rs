//! `weir tree`: the objects an object manages, as far down as they are known.

use std::collections::BTreeSet;
use std::io::Read as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::{Args, Subcommand, ValueEnum};
use flate2::read::GzDecoder;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use weir_api::names::label::{HELM_NAME, HELM_NAMESPACE};
use weir_manifest::ObjectId;

use crate::connection::Connection;
use crate::error::{Error, is_not_found};
use crate::kind::Kind;
use crate::{output, view};

/// Levels of Kustomizations and HelmReleases that are followed.
const DEPTH_MAX: usize = 32;
/// Largest release that is read, unpacked.
const RELEASE_BYTES_MAX: u64 = 64 << 20;

/// Arguments of `weir tree`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// A Kustomization
    #[command(visible_alias = "ks")]
    Kustomization(Tree),
    /// An artifact generator
    #[command(subcommand)]
    Artifact(Artifact),
}

#[derive(Debug, Subcommand)]
enum Artifact {
    /// An ArtifactGenerator
    Generator(Format),
}

#[derive(Debug, Args)]
struct Tree {
    #[command(flatten)]
    format: Format,
    /// Show only objects of Flux
    #[arg(long)]
    compact: bool,
}

#[derive(Debug, Args)]
struct Format {
    /// Name of the object
    name: String,
    /// Print the tree as data instead of a drawing
    #[arg(short, long, value_enum)]
    output: Option<Data>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Data {
    Json,
    Yaml,
}

/// An object and what it manages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    id: ObjectId,
    children: Vec<Node>,
}

/// Prints the tree.
pub(crate) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Error> {
    let (root, format) = match &arguments.target {
        Target::Kustomization(Tree { format, compact }) => {
            let object = connection.get(Kind::Kustomization, &format.name).await?;
            let id = id(Kind::Kustomization, &object);
            let mut path = BTreeSet::from([key(&id)]);
            let children = managed_by(connection, &object, *compact, &mut path).await?;
            (Node { id, children }, format)
        }
        Target::Artifact(Artifact::Generator(format)) => {
            let object = connection.get(Kind::ArtifactGenerator, &format.name).await?;
            let produced =
                object.pointer("/status/inventory").and_then(Value::as_array).into_iter().flatten();
            let children = produced
                .map(|entry| Node {
                    id: ObjectId {
                        group: Kind::ExternalArtifact.resource().group,
                        kind: Kind::ExternalArtifact.name().to_owned(),
                        namespace: view::text(entry, "/namespace").to_owned(),
                        name: view::text(entry, "/name").to_owned(),
                    },
                    children: Vec::new(),
                })
                .collect();
            (Node { id: id(Kind::ArtifactGenerator, &object), children }, format)
        }
    };
    output::data(&match format.output {
        None => draw(&root),
        Some(Data::Json) => format!("{:#}\n", data(&root)),
        Some(Data::Yaml) => weir_manifest::to_yaml(&data(&root)),
    })
}

/// The objects in the inventory of a Kustomization; `path` holds the objects above, so that a cycle ends.
fn managed_by<'a>(
    connection: &'a Connection,
    object: &'a Value,
    compact: bool,
    path: &'a mut BTreeSet<String>,
) -> BoxFuture<'a, Result<Vec<Node>, Error>> {
    async move {
        let remote = object.pointer("/spec/kubeConfig").is_some();
        let mut nodes = Vec::new();
        for id in inventory(object) {
            if path.contains(&key(&id)) || (compact && !id.group.contains("toolkit.fluxcd.io")) {
                continue;
            }
            let children = if remote || path.len() >= DEPTH_MAX {
                Vec::new()
            } else {
                children_of(connection, &id, compact, path).await?
            };
            nodes.push(Node { id, children });
        }
        Ok(nodes)
    }
    .boxed()
}

async fn children_of(
    connection: &Connection,
    id: &ObjectId,
    compact: bool,
    path: &mut BTreeSet<String>,
) -> Result<Vec<Node>, Error> {
    let is = |kind: Kind| id.kind == kind.name() && id.group == kind.resource().group;
    if is(Kind::Kustomization) {
        let connection = connection.in_namespace(&id.namespace);
        let Some(object) =
            connection.find(&Kind::Kustomization.resource(), Some(&id.namespace), &id.name).await?
        else {
            return Ok(Vec::new());
        };
        path.insert(key(id));
        let children = managed_by(&connection, &object, compact, path).await;
        path.remove(&key(id));
        return children;
    }
    if is(Kind::HelmRelease) {
        let Some(object) =
            connection.find(&Kind::HelmRelease.resource(), Some(&id.namespace), &id.name).await?
        else {
            return Ok(Vec::new());
        };
        let mut ids = released_by(connection, &object).await?;
        ids.extend(definitions_of(connection, &object).await?);
        ids.retain(|id| !compact || id.group.contains("toolkit.fluxcd.io"));
        return Ok(ids.into_iter().map(|id| Node { id, children: Vec::new() }).collect());
    }
    Ok(Vec::new())
}

/// The objects of the current release of a HelmRelease, read from the release storage.
async fn released_by(connection: &Connection, object: &Value) -> Result<Vec<ObjectId>, Error> {
    let (namespace, release) =
        (view::text(object, "/status/storageNamespace"), object.pointer("/status/history/0"));
    let (Some(release), false) = (release, object.pointer("/spec/kubeConfig").is_some()) else {
        return Ok(Vec::new());
    };
    let name =
        format!("sh.helm.release.v1.{}.v{}", view::text(release, "/name"), view::number(release, "/version"));
    let api: Api<Secret> = Api::namespaced(connection.client(), namespace);
    let secret = match api.get(&name).await {
        Ok(secret) => secret,
        Err(error) if is_not_found(&error) => return Ok(Vec::new()),
        Err(source) => return Err(Error::Api { action: format!("read Secret '{name}'"), source }),
    };
    let data = secret.data.unwrap_or_default();
    let stored = data.get("release").map(|bytes| bytes.0.as_slice()).unwrap_or_default();
    release_objects(stored, view::text(release, "/namespace")).map_err(|problem| Error::Release {
        subject: format!("HelmRelease/{}/{}", view::namespace(object), view::name(object)),
        problem,
    })
}

/// The objects of a stored release: base64 over optional gzip over JSON with the manifest.
fn release_objects(stored: &[u8], namespace: &str) -> Result<Vec<ObjectId>, String> {
    let bytes = BASE64_STANDARD.decode(stored).map_err(|error| error.to_string())?;
    let json = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        GzDecoder::new(bytes.as_slice())
            .take(RELEASE_BYTES_MAX)
            .read_to_end(&mut unpacked)
            .map_err(|error| error.to_string())?;
        unpacked
    } else {
        bytes
    };
    let release: Value = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    let manifest = view::text(&release, "/manifest");
    let objects =
        weir_manifest::read_documents(manifest.as_bytes(), "manifest").map_err(|error| error.to_string())?;
    Ok(objects
        .iter()
        .filter(|object| object.is_object())
        .map(|object| {
            let mut id = ObjectId::of(object);
            if id.namespace.is_empty() && !is_cluster_scoped(&id) {
                namespace.clone_into(&mut id.namespace);
            }
            id
        })
        .collect())
}

/// Kinds that have no namespace and are found in charts; what is not listed here gets the namespace of the release.
fn is_cluster_scoped(id: &ObjectId) -> bool {
    matches!(
        (id.group.as_str(), id.kind.as_str()),
        ("", "Namespace" | "Node" | "PersistentVolume")
            | ("rbac.authorization.k8s.io", "ClusterRole" | "ClusterRoleBinding")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService")
            | ("storage.k8s.io", "StorageClass" | "CSIDriver" | "VolumeAttachment")
            | ("scheduling.k8s.io", "PriorityClass")
            | ("node.k8s.io", "RuntimeClass")
            | ("networking.k8s.io", "IngressClass")
            | ("policy", "PodSecurityPolicy")
            | (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
            )
    )
}

/// The CustomResourceDefinitions a HelmRelease has installed beside its release.
async fn definitions_of(connection: &Connection, object: &Value) -> Result<Vec<ObjectId>, Error> {
    let skipped = |pointer: &str| view::text(object, pointer) == "Skip";
    if object.pointer("/spec/kubeConfig").is_some()
        || (skipped("/spec/install/crds") && skipped("/spec/upgrade/crds"))
    {
        return Ok(Vec::new());
    }
    let api: Api<CustomResourceDefinition> = Api::all(connection.client());
    let selector = format!("{HELM_NAME}={},{HELM_NAMESPACE}={}", view::name(object), view::namespace(object));
    let definitions = api
        .list_metadata(&ListParams::default().labels(&selector))
        .await
        .map_err(|source| Error::Api { action: "list CustomResourceDefinitions".to_owned(), source })?;
    Ok(definitions
        .iter()
        .map(|definition| ObjectId {
            group: "apiextensions.k8s.io".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            namespace: String::new(),
            name: definition.name_any(),
        })
        .collect())
}

/// The identities in the inventory of a status.
fn inventory(object: &Value) -> Vec<ObjectId> {
    let entries = object.pointer("/status/inventory/entries").and_then(Value::as_array).into_iter().flatten();
    entries.filter_map(|entry| ObjectId::from_inventory_id(view::text(entry, "/id"))).collect()
}

fn id(kind: Kind, object: &Value) -> ObjectId {
    ObjectId {
        group: kind.resource().group,
        kind: kind.name().to_owned(),
        namespace: view::namespace(object).to_owned(),
        name: view::name(object).to_owned(),
    }
}

fn key(id: &ObjectId) -> String {
    format!("{}/{}", id.group, label(id))
}

fn label(id: &ObjectId) -> String {
    if id.namespace.is_empty() {
        format!("{}/{}", id.kind, id.name)
    } else {
        format!("{}/{}/{}", id.kind, id.namespace, id.name)
    }
}

/// The tree as lines of text.
fn draw(root: &Node) -> String {
    fn children(node: &Node, indent: &str, text: &mut String) {
        for (index, child) in node.children.iter().enumerate() {
            let last = index + 1 == node.children.len();
            text.extend([indent, if last { "└── " } else { "├── " }, &label(&child.id), "\n"]);
            children(child, &format!("{indent}{}", if last { "    " } else { "│   " }), text);
        }
    }
    let mut text = format!("{}\n", label(&root.id));
    children(root, "", &mut text);
    text
}

/// The tree as data.
fn data(node: &Node) -> Value {
    let mut value = json!({
        "resource": {
            "Namespace": node.id.namespace, "Name": node.id.name,
            "GroupKind": {"Group": node.id.group, "Kind": node.id.kind},
        },
    });
    if !node.children.is_empty() {
        value["resources"] = node.children.iter().map(data).collect();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Cluster;

    fn kustomization(name: &str, ids: &[&str]) -> Value {
        let entries: Vec<Value> = ids.iter().map(|id| json!({"id": id, "v": "v1"})).collect();
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "flux-system"}, "spec": {},
            "status": {"inventory": {"entries": entries}},
        })
    }

    async fn tree(objects: Vec<Value>, compact: bool) -> Node {
        let cluster = Cluster::new(objects, |_| {});
        let connection = cluster.connection();
        let object = connection.get(Kind::Kustomization, "root").await.unwrap();
        let id = id(Kind::Kustomization, &object);
        let mut path = BTreeSet::from([key(&id)]);
        let children = managed_by(&connection, &object, compact, &mut path).await.unwrap();
        Node { id, children }
    }

    fn objects() -> Vec<Value> {
        vec![
            kustomization(
                "root",
                &[
                    "flux-system_root_kustomize.toolkit.fluxcd.io_Kustomization",
                    "_apps__Namespace",
                    "flux-system_apps_kustomize.toolkit.fluxcd.io_Kustomization",
                    "flux-system_gone_kustomize.toolkit.fluxcd.io_Kustomization",
                ],
            ),
            kustomization(
                "apps",
                &[
                    "apps_web_apps_Deployment",
                    // A cycle must end.
                    "flux-system_root_kustomize.toolkit.fluxcd.io_Kustomization",
                    "apps_system__reader_rbac.authorization.k8s.io_Role",
                ],
            ),
        ]
    }

    #[tokio::test]
    async fn drawing() {
        insta::assert_snapshot!(draw(&tree(objects(), false).await), @r"
        Kustomization/flux-system/root
        ├── Namespace/apps
        ├── Kustomization/flux-system/apps
        │   ├── Deployment/apps/web
        │   └── Role/apps/system:reader
        └── Kustomization/flux-system/gone
        ");
        insta::assert_snapshot!(draw(&tree(objects(), true).await), @r"
        Kustomization/flux-system/root
        ├── Kustomization/flux-system/apps
        └── Kustomization/flux-system/gone
        ");
    }

    #[tokio::test]
    async fn as_data() {
        let node = tree(vec![kustomization("root", &["_apps__Namespace"])], false).await;
        assert_eq!(
            data(&node),
            json!({
                "resource": {
                    "GroupKind": {"Group": "kustomize.toolkit.fluxcd.io", "Kind": "Kustomization"},
                    "Name": "root", "Namespace": "flux-system",
                },
                "resources": [{"resource": {"GroupKind": {"Group": "", "Kind": "Namespace"}, "Name": "apps", "Namespace": ""}}],
            })
        );
    }

    #[test]
    fn a_stored_release() {
        let manifest = concat!(
            "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\n",
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: other\n",
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: web\n",
        );
        let json = json!({ "manifest": manifest }).to_string();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut packed, json.as_bytes()).unwrap();
        for bytes in [json.clone().into_bytes(), packed.finish().unwrap()] {
            let ids = release_objects(BASE64_STANDARD.encode(bytes).as_bytes(), "apps").unwrap();
            let labels: Vec<String> = ids.iter().map(label).collect();
            assert_eq!(labels, ["Service/apps/web", "Deployment/other/web", "ClusterRole/web"]);
        }
        assert!(release_objects(b"not base64!", "apps").is_err());
    }
}
