//! The format of `cases/*.yaml`.
//!
//! Each file is a list of cases, each case a name (`case`) and a list of `steps`. A case has a namespace and an API
//! group of its own, `{ns}` and `{group}` in all texts. What a case creates outside its namespace is deleted after it.
//!
//! A step is a request: its first key is the verb (`GET`, `POST`, `PUT`, `PATCH`, `DELETE`; `APPLY` for a
//! server-side apply, `WATCH` for a stream of events, `CRD` to install a definition and wait for it), its value the path:
//!
//! | path | meaning |
//! | --- | --- |
//! | `configmaps/a` | `/api/v1/namespaces/{ns}/configmaps/a` |
//! | `apps/v1:deployments/a` | `/apis/apps/v1/namespaces/{ns}/deployments/a` |
//! | `cr:things/a`, `cr/v2:things/a` | `/apis/{group}/v1/namespaces/{ns}/things/a`, the same in version `v2` |
//! | `/api/v1/nodes` | as it is |
//!
//! Other keys: `body` or `raw` (text as it is), `type` (content type or its short name), `accept`, `as` and `groups`
//! (impersonation), `headers`, `manager` and `force` (for `APPLY`), `save` (names the answer for `{name.path.to.field}`),
//! `each` (a list: the step runs once for each, as `{each}`), `until` (repeats until `code`, or until the field `at`
//! `is` a value), `take` (events to read), and what of the answer is compared: `keep` (only these paths), `drop` (not
//! these), `managed: true` (managed fields too), `quiet: true` (nothing, but it must succeed). `bare: true` sends the
//! body as it is, otherwise `apiVersion`, `kind` and, for `PUT` and `APPLY`, `metadata.name` are filled in.

use std::path::Path;

use serde_json::{Map, Value, json};

/// One row of a file of cases.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Name of the file without its ending.
    pub(crate) area: String,
    pub(crate) name: String,
    pub(crate) namespace: bool,
    pub(crate) steps: Vec<Step>,
}

/// One request and what of its answer counts.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) verb: Verb,
    pub(crate) path: String,
    pub(crate) fields: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
    Apply,
    Watch,
    Crd,
}

const VERBS: &[(&str, Verb)] = &[
    ("GET", Verb::Get),
    ("POST", Verb::Post),
    ("PUT", Verb::Put),
    ("PATCH", Verb::Patch),
    ("DELETE", Verb::Delete),
    ("APPLY", Verb::Apply),
    ("WATCH", Verb::Watch),
    ("CRD", Verb::Crd),
];

const FIELDS: &[&str] = &[
    "body",
    "raw",
    "type",
    "accept",
    "as",
    "groups",
    "headers",
    "manager",
    "force",
    "save",
    "each",
    "until",
    "take",
    "keep",
    "drop",
    "managed",
    "quiet",
    "bare",
    "kind",
    "schema",
    "scope",
    "subresources",
    "columns",
    "versions",
    "method",
];

impl Verb {
    /// The method on the wire.
    pub(crate) fn method(self) -> http::Method {
        match self {
            Self::Get | Self::Watch => http::Method::GET,
            Self::Post | Self::Crd => http::Method::POST,
            Self::Put => http::Method::PUT,
            Self::Patch | Self::Apply => http::Method::PATCH,
            Self::Delete => http::Method::DELETE,
        }
    }
}

impl Step {
    fn read(mut fields: Map<String, Value>, place: &str) -> Self {
        let (name, verb) = *VERBS
            .iter()
            .find(|(name, _)| fields.contains_key(*name))
            .unwrap_or_else(|| panic!("{place}: a step without a verb: {fields:?}"));
        let path = fields.remove(name).unwrap();
        let path = path.as_str().unwrap_or_else(|| panic!("{place}: {name} needs a path")).to_owned();
        for field in fields.keys() {
            assert!(FIELDS.contains(&field.as_str()), "{place}: unknown field '{field}' in {name} {path}");
        }
        Self { verb, path, fields }
    }

    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }

    pub(crate) fn is_set(&self, field: &str) -> bool {
        self.fields.get(field).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn texts(&self, field: &str) -> Option<Vec<String>> {
        let list = self.fields.get(field)?.as_array()?;
        Some(list.iter().map(|item| item.as_str().unwrap().to_owned()).collect())
    }
}

/// Reads one file of cases.
pub(crate) fn read(file: &Path) -> Vec<Case> {
    let area = file.file_stem().unwrap().to_str().unwrap().to_owned();
    let bytes = std::fs::read(file).unwrap();
    let documents = weir_manifest::read_documents(&bytes, &file.display().to_string())
        .unwrap_or_else(|error| panic!("{error}"));
    let mut cases = Vec::new();
    for row in documents.iter().filter_map(Value::as_array).flatten() {
        let name = row["case"].as_str().unwrap_or_else(|| panic!("{area}: a case without a name: {row}"));
        let place = format!("{area}: {name}");
        let steps = row["steps"].as_array().unwrap_or_else(|| panic!("{place}: no steps"));
        cases.push(Case {
            area: area.clone(),
            name: name.to_owned(),
            namespace: row.get("namespace").and_then(Value::as_bool).unwrap_or(true),
            steps: steps
                .iter()
                .map(|step| {
                    Step::read(step.as_object().unwrap_or_else(|| panic!("{place}: {step}")).clone(), &place)
                })
                .collect(),
        });
    }
    cases
}

/// The definition a `CRD` step installs.
pub(crate) fn definition(step: &Step, group: &str) -> Value {
    let plural = step.path.as_str();
    let singular = plural.strip_suffix('s').unwrap_or(plural);
    let kind = step
        .text("kind")
        .map_or_else(|| format!("{}{}", singular[..1].to_uppercase(), &singular[1..]), str::to_owned);
    let versions = step.fields.get("versions").cloned().unwrap_or_else(|| {
        let schema = step
            .fields
            .get("schema")
            .cloned()
            .unwrap_or_else(|| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
        let mut version =
            json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        if let Some(subresources) = step.fields.get("subresources") {
            version["subresources"] = subresources.clone();
        }
        if let Some(columns) = step.fields.get("columns") {
            version["additionalPrinterColumns"] = columns.clone();
        }
        json!([version])
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": step.text("scope").unwrap_or("Namespaced"),
            "names": {
                "plural": plural,
                "singular": singular,
                "kind": kind,
                "listKind": format!("{kind}List"),
            },
            "versions": versions,
        },
    })
}

/// Kinds of the resources whose bodies need not name them.
const KINDS: &[(&str, &str)] = &[
    ("configmaps", "ConfigMap"),
    ("secrets", "Secret"),
    ("services", "Service"),
    ("pods", "Pod"),
    ("namespaces", "Namespace"),
    ("nodes", "Node"),
    ("serviceaccounts", "ServiceAccount"),
    ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ("persistentvolumes", "PersistentVolume"),
    ("endpoints", "Endpoints"),
    ("limitranges", "LimitRange"),
    ("resourcequotas", "ResourceQuota"),
    ("replicationcontrollers", "ReplicationController"),
    ("deployments", "Deployment"),
    ("statefulsets", "StatefulSet"),
    ("daemonsets", "DaemonSet"),
    ("replicasets", "ReplicaSet"),
    ("controllerrevisions", "ControllerRevision"),
    ("jobs", "Job"),
    ("cronjobs", "CronJob"),
    ("horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("ingresses", "Ingress"),
    ("ingressclasses", "IngressClass"),
    ("networkpolicies", "NetworkPolicy"),
    ("poddisruptionbudgets", "PodDisruptionBudget"),
    ("roles", "Role"),
    ("rolebindings", "RoleBinding"),
    ("clusterroles", "ClusterRole"),
    ("clusterrolebindings", "ClusterRoleBinding"),
    ("storageclasses", "StorageClass"),
    ("priorityclasses", "PriorityClass"),
    ("leases", "Lease"),
    ("events", "Event"),
    ("endpointslices", "EndpointSlice"),
    ("runtimeclasses", "RuntimeClass"),
    ("customresourcedefinitions", "CustomResourceDefinition"),
    ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("selfsubjectreviews", "SelfSubjectReview"),
    ("subjectaccessreviews", "SubjectAccessReview"),
    ("localsubjectaccessreviews", "LocalSubjectAccessReview"),
    ("tokenreviews", "TokenReview"),
    ("certificatesigningrequests", "CertificateSigningRequest"),
    ("apiservices", "APIService"),
    ("things", "Thing"),
];

/// The whole path of the short form described at the top.
pub(crate) fn whole_path(path: &str, namespace: &str, group: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let (prefix, rest) = match path.split_once(':') {
        Some((group_version, rest)) if !group_version.contains(['/', '?']) && group_version != "cr" => {
            (format!("/apis/{group_version}"), rest)
        }
        Some(("cr", rest)) => (format!("/apis/{group}/v1"), rest),
        Some((group_version, rest))
            if group_version.matches('/').count() == 1 && !group_version.contains('?') =>
        {
            let (name, version) = group_version.split_once('/').unwrap();
            let name = if name == "cr" { group } else { name };
            (format!("/apis/{name}/{version}"), rest)
        }
        _ => ("/api/v1".to_owned(), path),
    };
    format!("{prefix}/namespaces/{namespace}/{rest}")
}

/// Group and version, resource, and name of a whole path, where it has them.
pub(crate) fn parts(path: &str) -> (String, Option<String>, Option<String>) {
    let path = path.split('?').next().unwrap();
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group_version, mut rest) = match segments.first() {
        Some(&"api") => (segments.get(1).copied().unwrap_or_default().to_owned(), segments.get(2..)),
        _ => (segments.get(1..3).map(|parts| parts.join("/")).unwrap_or_default(), segments.get(3..)),
    };
    if let Some([first, _, inner @ ..]) = rest
        && *first == "namespaces"
        && !inner.is_empty()
        && !matches!(inner[0], "status" | "finalize")
    {
        rest = Some(inner);
    }
    let rest = rest.unwrap_or_default();
    (group_version, rest.first().map(|text| (*text).to_owned()), rest.get(1).map(|text| (*text).to_owned()))
}

/// Fills in what the path says and the body does not.
pub(crate) fn complete(body: &mut Value, path: &str, with_name: bool) {
    let (group_version, resource, name) = parts(path);
    let Some(body) = body.as_object_mut() else { return };
    let Some(resource) = resource else { return };
    let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == resource) else { return };
    if !body.contains_key("kind") && !body.contains_key("apiVersion") {
        body.insert("apiVersion".into(), group_version.into());
        body.insert("kind".into(), (*kind).into());
    }
    if let Some(name) = name.filter(|_| with_name) {
        let metadata = body.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.entry("name").or_insert_with(|| name.into());
        }
    }
}
