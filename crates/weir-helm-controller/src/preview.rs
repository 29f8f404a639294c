//! What a HelmRelease would change in a cluster, without changing it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value as Json;
use weir_api::helm::HelmRelease;
use weir_apply::cluster::ApplyMode;
use weir_apply::memory::MemoryCluster;
use weir_apply::object::{self, ObjectRef};
use weir_apply::write::WriteCluster;
use weir_base::clock::{Clock, SystemClock};
use weir_helm::action::read_manifest;
use weir_helm::chart::Chart;
use weir_helm::release::Status;
use weir_helm::render::ReleaseInfo;
use weir_helm::storage::Storage;

use crate::act::MANAGER;
use crate::{decrypt, drift, offline, spec};

/// The annotation of objects that Helm leaves behind.
const KEEP: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// One object before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The object in the cluster; `None` if it is not there.
    pub before: Option<Json>,
    /// The object as it would be; `None` if it would be deleted.
    pub after: Option<Json>,
}

/// The objects that the next release of `chart` would create, change and delete, each with what the API server makes of
/// it in a dry-run. Hooks and definitions of `crds/` are not looked at.
///
/// `others` are ConfigMaps and Secrets with values that come before those of the cluster.
///
/// # Errors
/// Values and charts that do not fit, and objects the API server refuses; values of Secrets are masked.
pub async fn changes(
    cluster: Arc<dyn WriteCluster>,
    object: &HelmRelease,
    chart: Chart,
    others: &[Json],
) -> Result<Vec<Change>, String> {
    let namespace = spec::namespace(object);
    let sources = MemoryCluster::new();
    for other in others {
        sources.put(offline::plain_data(other, namespace));
    }
    let references = object.spec.values_from.iter().map(|found| (found.kind.as_str(), found.name.as_str()));
    let secret = decrypt::secret_name(object).map(|name| ("Secret", name));
    for (kind, name) in references.chain(secret) {
        let reference = ObjectRef::core(kind, namespace, name);
        if sources.peek(&reference).is_none()
            && let Some(live) = cluster.get(&reference).await.map_err(|error| error.to_string())?
        {
            sources.put(live);
        }
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let name = spec::release_name(object);
    let storage = Storage::new(&*cluster, &*clock, spec::storage_namespace(object), &name, MANAGER);
    let records = storage.history().await.map_err(|error| error.to_string())?;
    let release_namespace = spec::release_namespace(object).to_owned();
    let info = ReleaseInfo {
        name: name.clone(),
        namespace: release_namespace.clone(),
        revision: records.last().map_or(1, |record| record.version + 1),
        is_upgrade: !records.is_empty(),
    };
    let given = offline::given(object, &sources).await?;
    let content = offline::content(object, chart, given, info, Arc::clone(&cluster), None).await?;
    let mut found = Vec::new();
    let mut kept = BTreeSet::new();
    for item in read_manifest(&*cluster, &content.manifest, &release_namespace).await? {
        let desired = drift::desired(item, &name, &release_namespace)?;
        let reference = ObjectRef::of(&desired);
        let failed = |error| format!("{reference}: {}", weir_apply::mask::error(&desired, error));
        let before = cluster.get(&reference).await.map_err(failed)?;
        let after = match &before {
            // The namespace may not be there yet, so an object that is new is shown as rendered.
            None => desired.clone(),
            Some(_) => cluster
                .apply(&desired, ApplyMode { manager: MANAGER, dry_run: true })
                .await
                .map_err(failed)?,
        };
        kept.insert(reference.clone());
        found.push(Change { before, after: Some(after) });
    }
    let last = records.iter().rev().find(|record| record.info.status == Status::Deployed).or(records.last());
    if let Some(last) = last {
        for item in read_manifest(&*cluster, &last.manifest, &last.namespace).await? {
            let reference = ObjectRef::of(&item);
            if kept.contains(&reference) || object::annotation(&item, KEEP.0) == Some(KEEP.1) {
                continue;
            }
            let before = cluster.get(&reference).await.map_err(|error| format!("{reference}: {error}"))?;
            if before.is_some() {
                found.push(Change { before, after: None });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::offline::tests::{chart, release};

    #[tokio::test]
    async fn objects_are_compared_with_the_cluster() {
        let cluster = Arc::new(MemoryCluster::new());
        let object = release(json!({"valuesFrom": [{"kind": "ConfigMap", "name": "values"}]}));
        cluster.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "values", "namespace": "apps"},
            "data": {"values.yaml": "a: cluster\n"},
        }));
        let seen = || Arc::clone(&cluster) as Arc<dyn WriteCluster>;
        let first = changes(seen(), &object, chart(), &[]).await.unwrap();
        assert_eq!((first.len(), &first[0].before), (1, &None), "hooks are left out: {first:?}");
        assert_eq!(first[0].after.as_ref().unwrap()["data"]["a"], "cluster");
        let mut live = first[0].after.clone().unwrap();
        live["data"]["a"] = "edited".into();
        cluster.put(live);
        let second = changes(seen(), &object, chart(), &[]).await.unwrap();
        assert_eq!(second[0].before.as_ref().unwrap()["data"]["a"], "edited");
        assert_eq!(second[0].after.as_ref().unwrap()["data"]["a"], "cluster");
        // A file wins over the cluster.
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "values"}, "data": {"values.yaml": "a: file\n"}});
        let third = changes(seen(), &object, chart(), &[other]).await.unwrap();
        assert_eq!(third[0].after.as_ref().unwrap()["data"]["a"], "file");
        assert_eq!(
            cluster.peek(&ObjectRef::core("ConfigMap", "apps", "app")).unwrap()["data"]["a"],
            "edited"
        );
    }
}
