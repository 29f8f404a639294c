//! A fleet of 53 objects in 7 Kustomizations that depend on each other, and a later commit of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, bail};
use e2e::{Cluster, Scenario, text};
use indoc::formatdoc;
use serde_json::{Value, json};

const OWNER_NAME: &str = "kustomize.toolkit.fluxcd.io/name";
const OWNER_NAMESPACE: &str = "kustomize.toolkit.fluxcd.io/namespace";

/// `(Kustomization, what it depends on)`, in an order in which they can become ready.
pub(crate) const STAGES: [(&str, &[&str]); 7] = [
    ("namespaces", &[]),
    ("crds", &[]),
    ("access", &["namespaces"]),
    ("config", &["namespaces"]),
    ("data", &["config", "access", "crds"]),
    ("web", &["data"]),
    ("jobs", &["web"]),
];

/// Kinds that the fleet uses, and whether they are namespaced.
const KINDS: [(&str, &str); 21] = [
    ("v1", "Namespace"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "ResourceQuota"),
    ("v1", "LimitRange"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("networking.k8s.io/v1", "Ingress"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
];

/// What identifies an object: kind, namespace, name.
pub(crate) type Id = (String, String, String);

/// A state of the repository.
#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    prefix: String,
    /// Per path: the Kustomization it belongs to and the manifest.
    files: BTreeMap<String, (String, String)>,
}

impl Fleet {
    /// The first commit; all names start with `prefix`.
    pub(crate) fn new(prefix: &str) -> Self {
        let mut fleet = Self { prefix: prefix.to_owned(), files: BTreeMap::new() };
        let p = prefix;
        for part in ["infra", "data", "web"] {
            fleet.add("namespaces", part, &namespace(&format!("{p}-{part}")));
            let ns = format!("{p}-{part}");
            fleet.add("access", &format!("{part}-account"), &service_account(&ns));
            fleet.add("access", &format!("{part}-role"), &role(&ns));
            fleet.add("access", &format!("{part}-binding"), &role_binding(&ns));
            fleet.add("config", &format!("{part}-limits"), &limit_range(&ns));
            fleet.add("config", &format!("{part}-policy"), &network_policy(&ns));
        }
        fleet.add("crds", "widgets", &crd(p));
        fleet.add("access", "cluster-role", &cluster_role(p));
        fleet.add("access", "cluster-role-binding", &cluster_role_binding(p));
        for index in 0..6 {
            fleet.add(
                "config",
                &format!("settings-{index}"),
                &config_map(&format!("{p}-web"), &format!("settings-{index}"), "one"),
            );
        }
        fleet.add("config", "shared", &config_map(&format!("{p}-web"), "shared", "one"));
        fleet.add("config", "password", &secret(&format!("{p}-data"), "password"));
        fleet.add("config", "certificate", &secret(&format!("{p}-web"), "certificate"));
        fleet.add("data", "database", &stateful_set(&format!("{p}-data")));
        fleet.add("data", "database-service", &service(&format!("{p}-data"), "database"));
        fleet.add("data", "budget", &disruption_budget(&format!("{p}-data")));
        fleet.add("data", "backups", &claim(&format!("{p}-data")));
        for index in 0..3 {
            fleet.add("data", &format!("widget-{index}"), &widget(p, &format!("widget-{index}")));
        }
        for index in 0..5 {
            let name = format!("app-{index}");
            fleet.add("web", &format!("{name}/deployment"), &deployment(&format!("{p}-web"), &name, 1));
            fleet.add("web", &format!("{name}/service"), &service(&format!("{p}-web"), &name));
        }
        fleet.add("web", "ingress", &ingress(&format!("{p}-web")));
        fleet.add("web", "late", &config_map(&format!("{p}-web"), "late", "one"));
        fleet.add("jobs", "migrate", &job(&format!("{p}-web"), "migrate"));
        fleet.add("jobs", "report", &cron_job(&format!("{p}-web"), "report"));
        fleet.add("jobs", "cleanup", &cron_job(&format!("{p}-web"), "cleanup"));
        fleet.add("jobs", "agent", &daemon_set(&format!("{p}-infra")));
        fleet
    }

    /// The second commit: it changes, adds, moves and removes objects.
    pub(crate) fn changed(&self) -> Self {
        let (mut fleet, web) = (self.clone(), format!("{}-web", self.prefix));
        fleet.add("config", "settings-0", &config_map(&web, "settings-0", "two"));
        fleet.add("web", "app-0/deployment", &deployment(&web, "app-0", 3));
        fleet.add("config", "settings-6", &config_map(&web, "settings-6", "two"));
        fleet.add("web", "app-5/deployment", &deployment(&web, "app-5", 1));
        fleet.add("web", "app-5/service", &service(&web, "app-5"));
        // From a dependency to what depends on it: the old owner goes first.
        fleet.files.remove("config/shared.yaml");
        fleet.add("web", "shared", &config_map(&web, "shared", "one"));
        // The other way round: the new owner goes first, so the object is never gone.
        fleet.files.remove("web/late.yaml");
        fleet.add("config", "late", &config_map(&web, "late", "one"));
        for gone in [
            "config/settings-5.yaml",
            "web/app-4/deployment.yaml",
            "web/app-4/service.yaml",
            "jobs/cleanup.yaml",
        ] {
            assert!(fleet.files.remove(gone).is_some(), "{gone} is in the first commit");
        }
        fleet
    }

    fn add(&mut self, kustomization: &str, name: &str, manifest: &str) {
        self.files
            .insert(format!("{kustomization}/{name}.yaml"), (kustomization.to_owned(), manifest.to_owned()));
    }

    /// The files of the repository. `web` has a kustomization.yaml, the others are plain folders.
    pub(crate) fn files(&self) -> BTreeMap<String, String> {
        let mut files: BTreeMap<String, String> =
            self.files.iter().map(|(path, (_, manifest))| (path.clone(), manifest.clone())).collect();
        let mut resources =
            String::from("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n");
        for path in self.files.keys().filter_map(|path| path.strip_prefix("web/")) {
            let _ = writeln!(resources, "- {path}");
        }
        files.insert("web/kustomization.yaml".to_owned(), resources);
        files.insert("README.md".to_owned(), "A fleet for tests.\n".to_owned());
        files
    }

    /// What must be in the cluster, and which Kustomization owns it.
    pub(crate) fn expected(&self) -> BTreeMap<Id, String> {
        let identify = |(kustomization, manifest): &(String, String)| {
            let objects = parse(manifest);
            (id(&objects), kustomization.clone())
        };
        self.files.values().map(identify).collect()
    }

    /// The namespaces of the fleet.
    pub(crate) fn namespaces(&self) -> [String; 3] {
        ["infra", "data", "web"].map(|part| format!("{}-{part}", self.prefix))
    }

    /// What the Kustomizations of the scenario own in the cluster, and which one owns it.
    pub(crate) async fn owned(&self, cluster: &Cluster) -> Result<BTreeMap<Id, String>> {
        let labels = format!("{OWNER_NAMESPACE}={}", self.prefix);
        let widgets = format!("{}.example.com/v1", self.prefix);
        let mut owned = BTreeMap::new();
        for (api_version, kind) in KINDS.iter().copied().chain([(widgets.as_str(), "Widget")]) {
            let found = match cluster.list(api_version, kind, None, &labels).await {
                Ok(found) => found,
                Err(_) if kind == "Widget" => Vec::new(), // its CRD is not there
                Err(error) => return Err(error),
            };
            for object in found {
                if object.pointer("/metadata/deletionTimestamp").is_none() {
                    owned.insert(
                        id(&object),
                        text(&object, &format!("/metadata/labels/{}", OWNER_NAME.replace('/', "~1"))),
                    );
                }
            }
        }
        Ok(owned)
    }

    /// Succeeds when the cluster has exactly the objects of this state.
    pub(crate) async fn matches(&self, cluster: &Cluster) -> Result<()> {
        let (expected, owned) = (self.expected(), self.owned(cluster).await?);
        let missing: BTreeSet<_> =
            expected.iter().filter(|entry| owned.get(entry.0) != Some(entry.1)).collect();
        let surplus: BTreeSet<_> = owned.iter().filter(|entry| !expected.contains_key(entry.0)).collect();
        if !missing.is_empty() || !surplus.is_empty() {
            bail!("missing or of another owner: {missing:?}; surplus: {surplus:?}");
        }
        Ok(())
    }

    /// Creates the GitRepository and the Kustomizations.
    pub(crate) async fn install(&self, scenario: &Scenario, url: &str, change: &Value) -> Result<()> {
        scenario.git_repository("fleet", url, &json!({})).await?;
        for (name, dependencies) in STAGES {
            let depends_on: Vec<Value> = dependencies.iter().map(|name| json!({ "name": name })).collect();
            let mut spec = json!({ "dependsOn": depends_on });
            for (key, value) in change.as_object().into_iter().flatten() {
                spec[key.as_str()] = value.clone();
            }
            scenario.kustomization(name, &format!("./{name}"), &json!({ "spec": spec })).await?;
        }
        Ok(())
    }
}

fn parse(manifest: &str) -> Value {
    let mut documents =
        weir_manifest::read_documents(manifest.as_bytes(), "fleet").expect("the fleet is valid YAML");
    assert_eq!(documents.len(), 1, "one object per file");
    documents.remove(0)
}

fn id(object: &Value) -> Id {
    (text(object, "/kind"), text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")
}

fn service_account(ns: &str) -> String {
    format!("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: app\n  namespace: {ns}\n")
}

fn role(ns: &str) -> String {
    formatdoc! {"
        apiVersion: rbac.authorization.k8s.io/v1
        kind: Role
        metadata:
          name: app
          namespace: {ns}
        rules:
        - apiGroups: ['']
          resources: [configmaps]
          verbs: [get, list]
    "}
}

fn role_binding(ns: &str) -> String {
    formatdoc! {"
        apiVersion: rbac.authorization.k8s.io/v1
        kind: RoleBinding
        metadata:
          name: app
          namespace: {ns}
        roleRef:
          apiGroup: rbac.authorization.k8s.io
          kind: Role
          name: app
        subjects:
        - kind: ServiceAccount
          name: app
          namespace: {ns}
    "}
}

fn cluster_role(prefix: &str) -> String {
    formatdoc! {"
        apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRole
        metadata:
          name: {prefix}:reader
        rules:
        - apiGroups: [apps]
          resources: [deployments]
          verbs: [get, list, watch]
    "}
}

fn cluster_role_binding(prefix: &str) -> String {
    formatdoc! {"
        apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRoleBinding
        metadata:
          name: {prefix}:reader
        roleRef:
          apiGroup: rbac.authorization.k8s.io
          kind: ClusterRole
          name: {prefix}:reader
        subjects:
        - kind: ServiceAccount
          name: app
          namespace: {prefix}-web
    "}
}

fn limit_range(ns: &str) -> String {
    formatdoc! {"
        apiVersion: v1
        kind: LimitRange
        metadata:
          name: defaults
          namespace: {ns}
        spec:
          limits:
          - type: Container
            defaultRequest:
              cpu: 10m
              memory: 16Mi
    "}
}

fn network_policy(ns: &str) -> String {
    formatdoc! {"
        apiVersion: networking.k8s.io/v1
        kind: NetworkPolicy
        metadata:
          name: same-namespace
          namespace: {ns}
        spec:
          podSelector: {{}}
          ingress:
          - from:
            - podSelector: {{}}
    "}
}

fn crd(prefix: &str) -> String {
    formatdoc! {"
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata:
          name: widgets.{prefix}.example.com
        spec:
          group: {prefix}.example.com
          scope: Namespaced
          names:
            kind: Widget
            plural: widgets
          versions:
          - name: v1
            served: true
            storage: true
            schema:
              openAPIV3Schema:
                type: object
                properties:
                  spec:
                    type: object
                    properties:
                      size:
                        type: integer
                        default: 1
    "}
}

fn widget(prefix: &str, name: &str) -> String {
    formatdoc! {"
        apiVersion: {prefix}.example.com/v1
        kind: Widget
        metadata:
          name: {name}
          namespace: {prefix}-data
        spec:
          size: 3
    "}
}

/// A ConfigMap whose value tells which commit it is of.
pub(crate) fn config_map(ns: &str, name: &str, value: &str) -> String {
    formatdoc! {"
        apiVersion: v1
        kind: ConfigMap
        metadata:
          name: {name}
          namespace: {ns}
        data:
          value: {value}
          multi: |
            first line
            second line
    "}
}

fn secret(ns: &str, name: &str) -> String {
    formatdoc! {"
        apiVersion: v1
        kind: Secret
        metadata:
          name: {name}
          namespace: {ns}
        stringData:
          token: not-a-secret
    "}
}

fn claim(ns: &str) -> String {
    formatdoc! {"
        apiVersion: v1
        kind: PersistentVolumeClaim
        metadata:
          name: backups
          namespace: {ns}
        spec:
          accessModes: [ReadWriteOnce]
          resources:
            requests:
              storage: 1Gi
    "}
}

fn disruption_budget(ns: &str) -> String {
    formatdoc! {"
        apiVersion: policy/v1
        kind: PodDisruptionBudget
        metadata:
          name: database
          namespace: {ns}
        spec:
          minAvailable: 1
          selector:
            matchLabels:
              app: database
    "}
}

fn pod_template(app: &str, indent: &str) -> String {
    let template = formatdoc! {"
        template:
          metadata:
            labels:
              app: {app}
          spec:
            serviceAccountName: app
            containers:
            - name: main
              image: registry.example.com/{app}:1.0
              ports:
              - containerPort: 8080
    "};
    template.lines().fold(String::new(), |text, line| text + indent + line + "\n")
}

/// A Deployment that becomes ready.
pub(crate) fn deployment(ns: &str, name: &str, replicas: u32) -> String {
    let head = formatdoc! {"
        apiVersion: apps/v1
        kind: Deployment
        metadata:
          name: {name}
          namespace: {ns}
        spec:
          replicas: {replicas}
          selector:
            matchLabels:
              app: {name}
    "};
    head + &pod_template(name, "  ")
}

fn stateful_set(ns: &str) -> String {
    let head = formatdoc! {"
        apiVersion: apps/v1
        kind: StatefulSet
        metadata:
          name: database
          namespace: {ns}
        spec:
          replicas: 2
          serviceName: database
          selector:
            matchLabels:
              app: database
    "};
    head + &pod_template("database", "  ")
}

fn daemon_set(ns: &str) -> String {
    let head = formatdoc! {"
        apiVersion: apps/v1
        kind: DaemonSet
        metadata:
          name: agent
          namespace: {ns}
        spec:
          selector:
            matchLabels:
              app: agent
    "};
    head + &pod_template("agent", "  ")
}

fn service(ns: &str, name: &str) -> String {
    formatdoc! {"
        apiVersion: v1
        kind: Service
        metadata:
          name: {name}
          namespace: {ns}
        spec:
          selector:
            app: {name}
          ports:
          - name: http
            port: 80
            targetPort: 8080
    "}
}

fn ingress(ns: &str) -> String {
    formatdoc! {"
        apiVersion: networking.k8s.io/v1
        kind: Ingress
        metadata:
          name: web
          namespace: {ns}
        spec:
          rules:
          - host: web.example.com
            http:
              paths:
              - path: /
                pathType: Prefix
                backend:
                  service:
                    name: app-0
                    port:
                      name: http
    "}
}

fn job(ns: &str, name: &str) -> String {
    formatdoc! {"
        apiVersion: batch/v1
        kind: Job
        metadata:
          name: {name}
          namespace: {ns}
        spec:
          template:
            spec:
              restartPolicy: Never
              containers:
              - name: main
                image: registry.example.com/{name}:1.0
    "}
}

fn cron_job(ns: &str, name: &str) -> String {
    formatdoc! {"
        apiVersion: batch/v1
        kind: CronJob
        metadata:
          name: {name}
          namespace: {ns}
        spec:
          schedule: 0 3 * * *
          jobTemplate:
            spec:
              template:
                spec:
                  restartPolicy: Never
                  containers:
                  - name: main
                    image: registry.example.com/{name}:1.0
    "}
}

#[test]
fn the_fleet_is_as_large_as_promised() {
    let fleet = Fleet::new("p");
    let owners: BTreeSet<String> = fleet.expected().into_values().collect();
    assert!(fleet.expected().len() >= 50, "{} objects", fleet.expected().len());
    assert_eq!(owners.len(), STAGES.len());
    assert_eq!(fleet.changed().expected().len(), fleet.expected().len() - 1);
}
