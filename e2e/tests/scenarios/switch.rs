//! A cluster that the reference has managed so far is taken over: nothing may change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{Call, Controller, KUSTOMIZE, Scenario, scenario, text};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

const MANAGER: &str = "kustomize-controller";

/// Objects of many kinds, in the order in which the reference applies them.
fn objects(namespace: &str) -> Vec<Value> {
    let group = format!("{namespace}.example.com");
    let named = |name: &str| json!({ "name": name, "namespace": namespace });
    let cluster_wide = |suffix: &str| json!({ "name": format!("{namespace}-{suffix}") });
    let rbac = "rbac.authorization.k8s.io/v1";
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"] }]);
    let template = |app: &str| {
        json!({
            "metadata": { "labels": { "app": app } },
            "spec": {
                "containers": [{
                    "name": "web", "image": "registry.example.com/web:1.0",
                    "ports": [{ "containerPort": 8080 }],
                    "resources": { "limits": { "cpu": "1000m", "memory": "1024Mi" }, "requests": { "cpu": "0.5" } },
                    "env": [{ "name": "A", "value": "1" }],
                }],
            },
        })
    };
    let selector = |app: &str| json!({ "matchLabels": { "app": app } });
    let hook = |kind: &str| json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": cluster_wide("hooks"), "webhooks": [] });
    vec![
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("widgets.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": { "type": "object", "properties": {
                        "size": { "type": "integer", "default": 3 }, "names": { "type": "array", "items": { "type": "string" } },
                    } } } } } }],
            },
        }),
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": cluster_wide("extra") }),
        json!({ "apiVersion": rbac, "kind": "ClusterRole", "metadata": { "name": format!("{namespace}:reader") }, "rules": rules }),
        json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": cluster_wide("low"), "value": 10, "description": "Low" }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": cluster_wide("disk"), "provisioner": "example.com/none" }),
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": cluster_wide("web"), "spec": { "controller": "example.com/web" } }),
        json!({
            "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": { "name": format!("{namespace}:reader") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("{namespace}:reader") },
            "subjects": [{ "kind": "ServiceAccount", "name": "app", "namespace": namespace }],
        }),
        json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": named("quota"), "spec": { "hard": { "services": "50", "requests.cpu": "1000000m" } } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": named("app"), "automountServiceAccountToken": false }),
        json!({ "apiVersion": rbac, "kind": "Role", "metadata": named("reader"), "rules": rules }),
        json!({
            "apiVersion": rbac, "kind": "RoleBinding", "metadata": named("reader"),
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
            "subjects": [{ "kind": "ServiceAccount", "name": "app", "namespace": namespace }],
        }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": named("settings"), "data": { "a": "1", "text": "two\nlines\n" }, "binaryData": { "b": "AAEC" } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": named("login"), "stringData": { "user": "admin" }, "data": { "password": "eA==" } }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": named("web"), "spec": { "selector": { "app": "web" }, "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }, { "name": "dns", "port": 53, "protocol": "UDP" }] } }),
        json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": named("limits"), "spec": { "limits": [{ "type": "Container", "default": { "cpu": "1500m" }, "defaultRequest": { "cpu": "0.1" } }] } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": named("web"), "spec": { "replicas": 0, "selector": selector("web"), "template": template("web") } }),
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": named("db"),
            "spec": {
                "replicas": 0, "serviceName": "db", "selector": selector("db"), "template": template("db"),
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1024Mi" } } } }],
            },
        }),
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": named("nightly"),
            "spec": { "schedule": "0 3 * * *", "suspend": true, "jobTemplate": { "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "job", "image": "registry.example.com/job:1.0" }] } } } } },
        }),
        json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": named("web"), "spec": { "minAvailable": "50%", "selector": selector("web") } }),
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": named("files"), "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": { "requests": { "storage": "0.5Gi" } } } }),
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": named("agent"), "spec": { "selector": selector("agent"), "template": {
            "metadata": { "labels": { "app": "agent" } },
            "spec": { "nodeSelector": { "example.com/none": "true" }, "containers": [{ "name": "agent", "image": "registry.example.com/agent:1.0" }] } } } }),
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": named("web"),
            "spec": { "minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 } } }] },
        }),
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": named("once"), "spec": { "suspend": true, "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "job", "image": "registry.example.com/job:1.0" }] } } } }),
        json!({ "apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": named("one"), "spec": { "names": ["a", "b"] } }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": named("web"),
            "spec": { "rules": [{ "host": "web.example.com", "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "web", "port": { "name": "http" } } } }] } }] },
        }),
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": named("web"), "spec": { "podSelector": selector("web"), "policyTypes": ["Ingress"] } }),
        hook("MutatingWebhookConfiguration"),
        hook("ValidatingWebhookConfiguration"),
    ]
}

/// The object as the reference sends it: with the labels of its owner, and what it fills in.
fn as_sent(object: &Value, namespace: &str) -> Value {
    let mut sent = object.clone();
    sent["metadata"]["labels"] = json!({
        "kustomize.toolkit.fluxcd.io/name": "all", "kustomize.toolkit.fluxcd.io/namespace": namespace,
    });
    if let Some(plain) = sent.as_object_mut().and_then(|map| map.remove("stringData")) {
        // "admin"
        ensure_single(&plain);
        sent["data"]["user"] = "YWRtaW4=".into();
    }
    for ports in ["/spec/ports", "/spec/template/spec/containers/0/ports"] {
        for port in sent.pointer_mut(ports).and_then(Value::as_array_mut).into_iter().flatten() {
            if port.get("protocol").is_none() {
                port["protocol"] = "TCP".into();
            }
        }
    }
    if let Some(resources) = sent.pointer_mut("/spec/template/spec/containers/0/resources") {
        *resources = json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m" } });
    }
    sent
}

fn ensure_single(plain: &Value) {
    assert_eq!(*plain, json!({ "user": "admin" }), "the encoded value below belongs to this one");
}

/// The inventory entry of an object.
fn entry(object: &Value) -> Value {
    let api_version = text(object, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let (namespace, name, kind) =
        (text(object, "/metadata/namespace"), text(object, "/metadata/name"), text(object, "/kind"));
    json!({ "id": format!("{namespace}_{}_{group}_{kind}", name.replace(':', "__")), "v": version })
}

fn api(s: &Scenario, object: &Value) -> Api<DynamicObject> {
    let api_version = text(object, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text(object, "/kind")));
    match object.pointer("/metadata/namespace").and_then(Value::as_str) {
        Some(namespace) => Api::namespaced_with(s.cluster.client(), namespace, &resource),
        None => Api::all_with(s.cluster.client(), &resource),
    }
}

async fn apply_as(s: &Scenario, object: &Value, manager: &str) -> Result<()> {
    let name = text(object, "/metadata/name");
    let mut result = Ok(());
    // A kind is not served the moment its definition is there.
    for _ in 0..50 {
        let parameters = PatchParams::apply(manager).force();
        match api(s, object).patch(&name, &parameters, &Patch::Apply(object)).await {
            Ok(_) => return Ok(()),
            Err(error) => result = Err(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    result.with_context(|| format!("apply {} '{name}'", text(object, "/kind")))
}

/// What counts of an object: its version where nobody else writes, and what its managers hold besides the status.
async fn states(s: &Scenario, objects: &[Value]) -> Result<BTreeMap<String, Value>> {
    let mut states = BTreeMap::new();
    for object in objects {
        let found = api(s, object).get(&text(object, "/metadata/name")).await?;
        let mut found = serde_json::to_value(found)?;
        let kind = text(object, "/kind");
        let others_write = [
            "Deployment",
            "StatefulSet",
            "DaemonSet",
            "CronJob",
            "Job",
            "PodDisruptionBudget",
            "HorizontalPodAutoscaler",
            "ResourceQuota",
            "PersistentVolumeClaim",
            "Namespace",
            "CustomResourceDefinition",
        ];
        let managers: Vec<Value> = found["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|entry| entry.get("subresource").is_none())
            .cloned()
            .collect();
        let version = if others_write.contains(&kind.as_str()) {
            Value::Null
        } else {
            found["metadata"]["resourceVersion"].clone()
        };
        let generation = found["metadata"]["generation"].take();
        states.insert(
            format!("{kind}/{}", text(object, "/metadata/name")),
            json!([version, generation, managers]),
        );
    }
    Ok(states)
}

#[test]
fn what_the_reference_has_applied_is_taken_over_as_it_is() {
    scenario("switch", |s: Arc<Scenario>| async move {
        let objects = objects(&s.namespace);
        let repository = s.git.create("fleet")?;
        let manifests: Vec<String> = objects.iter().map(ToString::to_string).collect();
        repository.write("all.yaml", &manifests.join("\n---\n"))?;
        let revision = repository.commit("Everything")?;
        s.start_controllers().await?;
        s.git_repository("fleet", repository.url(), &json!({})).await?;
        s.wait_ready("GitRepository", "fleet", &revision).await?;
        if let Some(controller) = s.kustomize.lock().await.as_mut() {
            controller.stop().await?;
        }

        // The reference at work.
        for object in &objects {
            apply_as(&s, &as_sent(object, &s.namespace), MANAGER).await?;
        }
        let change =
            json!({ "metadata": { "finalizers": ["finalizers.fluxcd.io"] }, "spec": { "wait": false } });
        s.kustomization("all", "./", &change).await?;
        let kustomization = s.toolkit("Kustomization", "all").await?;
        let generation = kustomization["metadata"]["generation"].clone();
        let entries: Vec<Value> = objects.iter().map(entry).collect();
        let status = json!({
            "observedGeneration": generation, "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
            "inventory": { "entries": entries },
            "conditions": [{ "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "observedGeneration": generation,
                "message": format!("Applied revision: {revision}"), "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        });
        s.cluster.edit_status(KUSTOMIZE, "Kustomization", &s.namespace, "all", &status).await?;
        // What the controllers of the cluster have to say about new objects.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = states(&s, &objects).await?;
        let status_before = s.toolkit("Kustomization", "all").await?["status"].clone();

        // The switch.
        let counts = s.kustomize_api.counts();
        if let Some(controller) = s.kustomize.lock().await.as_mut() {
            controller.spawn()?;
            controller.wait_ready().await?;
        }
        e2e::eventually(e2e::DEADLINE, "the first run", || async {
            let log = s.kustomize.lock().await.as_ref().map(Controller::log).unwrap_or_default();
            ensure!(log.contains("next run in"), "not yet");
            Ok(())
        })
        .await?;
        let counts = s.kustomize_api.counts().since(&counts);
        s.report(&format!("first run over {} objects of {} kinds: {counts}", objects.len(), objects.len()))?;
        let is_managed = |call: &Call| {
            call.is_write() && !call.is_bookkeeping() && !call.resource.starts_with("kustomizations")
        };
        ensure!(counts.count(is_managed) == 0, "objects were written: {counts}");
        ensure!(states(&s, &objects).await? == before, "objects have changed");
        let status = s.toolkit("Kustomization", "all").await?["status"].clone();
        ensure!(status == status_before, "the status has changed from {status_before} to {status}");

        // A run that is asked for is recorded, and changes nothing else either.
        s.reconcile("Kustomization", "all").await?;
        ensure!(states(&s, &objects).await? == before, "objects have changed in the second run");
        let status = s.toolkit("Kustomization", "all").await?["status"].clone();
        ensure!(
            status["inventory"] == status_before["inventory"],
            "another inventory: {}",
            status["inventory"]
        );

        // What the specification says changes: traces of kubectl go, and one manager is left.
        let traced = json!({ "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}" } }, "data": { "added": "by hand" } });
        s.cluster
            .edit("v1", "ConfigMap", Some(&s.namespace), "settings", "kubectl-client-side-apply", &traced)
            .await?;
        s.reconcile("Kustomization", "all").await?;
        let settings = s.cluster.get("v1", "ConfigMap", Some(&s.namespace), "settings").await?;
        ensure!(settings["data"].get("added").is_none(), "what came by hand is still there: {settings}");
        ensure!(
            settings["metadata"].get("annotations").is_none(),
            "the annotation is still there: {settings}"
        );
        let managers = settings["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
        ensure!(managers == 1, "{managers} managers are left: {settings}");
        let mut after = states(&s, &objects).await?;
        let mut untouched = before;
        after.remove("ConfigMap/settings");
        untouched.remove("ConfigMap/settings");
        ensure!(after == untouched, "other objects have changed with it");
        Ok(())
    });
}
