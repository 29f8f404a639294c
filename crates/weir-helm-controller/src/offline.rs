//! What a HelmRelease would install, without a cluster.

use std::sync::Arc;

use serde_json::Value as Json;
use weir_api::helm::HelmRelease;
use weir_apply::cluster::Cluster;
use weir_apply::memory::MemoryCluster;
use weir_apply::write::WriteCluster;
use weir_base::clock::{Clock, SystemClock};
use weir_helm::action::ContentFailed;
use weir_helm::capabilities::Capabilities;
use weir_helm::chart::Chart;
use weir_helm::content::Content;
use weir_helm::manifest::SplitRule;
use weir_helm::postrender::post_render;
use weir_helm::render::ReleaseInfo;
use weir_helm::values::Table;
use weir_kms::Requests;
use weir_runtime::FeatureGates;

use crate::content::Maker;
use crate::settings::PROGRAM;
use crate::{observe, post_render as changes, spec};

/// The manifests and then the hooks that a first installation of `chart` would consist of, as YAML.
///
/// Values are put together and manifests changed as the controller does. `others` are the ConfigMaps and Secrets that the
/// HelmRelease refers to, the decryption Secret among them; templates that look objects up see these alone, and the default capabilities of Helm.
///
/// # Errors
/// Values that are not there or do not fit, and charts that do not render; the texts are those of the controller.
pub async fn build(object: &HelmRelease, chart: Chart, others: &[Json]) -> Result<String, String> {
    let cluster = MemoryCluster::new();
    for other in others {
        cluster.put(plain_data(other, spec::namespace(object)));
    }
    let given = given(object, &cluster).await?;
    let info = ReleaseInfo {
        name: spec::release_name(object),
        namespace: spec::release_namespace(object).to_owned(),
        revision: 1,
        is_upgrade: false,
    };
    let content =
        content(object, chart, given, info, Arc::new(cluster), Some(Capabilities::default())).await?;
    let mut text = content.manifest;
    for hook in &content.sorted.hooks {
        text.push_str("---\n");
        text.push_str(hook.manifest.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// The values of a HelmRelease, from ConfigMaps and Secrets of `sources`.
pub(crate) async fn given(object: &HelmRelease, sources: &dyn Cluster) -> Result<Table, String> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let requests = Requests::new().map_err(|error| error.to_string())?;
    observe::values(sources, object, &requests, &clock).await.map_err(|error| error.to_string())
}

/// The content of a release as the controller makes it.
pub(crate) async fn content(
    object: &HelmRelease,
    chart: Chart,
    given: Table,
    info: ReleaseInfo,
    cluster: Arc<dyn WriteCluster>,
    capabilities: Option<Capabilities>,
) -> Result<Content, String> {
    let maker = Maker {
        cluster,
        clock: Arc::new(SystemClock),
        dns: false,
        skip_schema: object.spec.install.as_ref().is_some_and(|install| install.disable_schema_validation),
        offline: capabilities.is_some(),
        capabilities,
    };
    let gates = FeatureGates::with(PROGRAM.feature_gates, &[]);
    let strategy = changes::strategy(spec::post_render_strategy(object, &gates));
    let post_rendered = Arc::new(object.clone());
    let make = maker.make(move |files| {
        let mut run = |text: &str| changes::run(&post_rendered, text);
        post_render(&files, strategy, SplitRule::default(), &mut run)
            .map_err(|error| ContentFailed(error.to_string()))
    });
    make(info, chart, given).await.map_err(|error| error.to_string())
}

/// An object of a file as the API server would keep it: in a namespace, `stringData` as data.
pub(crate) fn plain_data(object: &Json, namespace: &str) -> Json {
    use base64::Engine as _;
    let mut object = object.clone();
    if object["metadata"]["namespace"].as_str().is_none_or(str::is_empty) {
        object["metadata"]["namespace"] = namespace.into();
    }
    let texts = object.as_object_mut().and_then(|map| map.remove("stringData"));
    for (key, value) in texts.as_ref().and_then(Json::as_object).into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        object["data"][key] = base64::engine::general_purpose::STANDARD.encode(text).into();
    }
    object
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;
    use weir_base::tree::{File, MemoryTree};

    use super::*;

    pub(crate) fn chart() -> Chart {
        let mut tree = MemoryTree::default();
        let files = [
            ("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
            ("values.yaml", "a: default\nb: default\n"),
            (
                "templates/config.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {a: {{ .Values.a }}, b: {{ .Values.b }}, c: {{ .Values.c | default \"none\" }}}\n",
            ),
            (
                "templates/hook.yaml",
                "apiVersion: v1\nkind: Pod\nmetadata: {name: hook, annotations: {helm.sh/hook: pre-install}}\n",
            ),
        ];
        for (path, text) in files {
            tree.insert(path, File { data: text.as_bytes().to_vec().into(), executable: false }).unwrap();
        }
        Chart::from_tree(&tree, "").unwrap()
    }

    pub(crate) fn release(spec: Json) -> HelmRelease {
        let mut spec = spec;
        spec["interval"] = "1m".into();
        let object = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app", "namespace": "apps"}, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    #[tokio::test]
    async fn values_patches_and_labels_are_those_of_the_controller() {
        let object = release(json!({
            "values": {"a": "inline"},
            "valuesFrom": [{"kind": "Secret", "name": "values"}, {"kind": "ConfigMap", "name": "gone", "optional": true}],
            "commonMetadata": {"labels": {"team": "web"}},
        }));
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "values"},
            "stringData": {"values.yaml": "a: secret\nc: secret\n"},
        });
        let text = build(&object, chart(), &[secret]).await.unwrap();
        let documents = weir_manifest::read_documents(text.as_bytes(), "").unwrap();
        assert_eq!(documents.len(), 2, "{text}");
        assert_eq!(documents[0]["data"], json!({"a": "inline", "b": "default", "c": "secret"}));
        let labels = &documents[0]["metadata"]["labels"];
        assert_eq!((&labels["team"], &labels["helm.toolkit.fluxcd.io/name"]), (&json!("web"), &json!("app")));
        assert_eq!(documents[1]["metadata"]["name"], "hook");
    }

    #[tokio::test]
    async fn values_that_are_missing_are_told() {
        let object = release(json!({"valuesFrom": [{"kind": "Secret", "name": "values"}]}));
        assert_eq!(
            build(&object, chart(), &[]).await.unwrap_err(),
            "could not resolve Secret chart values reference 'apps/values' with key 'values.yaml': resource not found"
        );
    }
}
