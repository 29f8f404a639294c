//! Random kustomizations, the same for the same seed.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::bail;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::{first_difference, note, ours, say, theirs, unpack};

/// Compares `count` cases from `first` on.
pub(crate) fn run(first: u64, count: u64, print: bool, verbose: bool) -> anyhow::Result<()> {
    let (mut equal, mut both_fail, mut other_error) = (0, 0, 0);
    let mut different = Vec::new();
    for seed in first..first + count {
        let files = Case::new(seed).files();
        if print {
            for (name, content) in &files {
                say(&format!("-- {name} --\n{content}"));
            }
            continue;
        }
        let scratch = tempfile::tempdir()?;
        unpack(&files, scratch.path())?;
        let root = scratch.path().join("overlay");
        match (ours(&root), theirs(&root)?) {
            (Ok(left), Ok(right)) if left == right => equal += 1,
            (Err(left), Err(right)) => {
                both_fail += 1;
                if left != right {
                    other_error += 1;
                    if verbose {
                        say(&format!("seed {seed}: errors\n  ours:   {left}\n  theirs: {right}"));
                    }
                }
            }
            (left, right) => {
                different.push(seed);
                let told = match (&left, &right) {
                    (Ok(left), Ok(right)) => first_difference(left, right),
                    (Err(left), _) => format!("only ours fails: {left}"),
                    (_, Err(right)) => format!("only theirs fails: {right}"),
                };
                say(&format!("seed {seed}: {told}"));
            }
        }
    }
    if print {
        return Ok(());
    }
    note(&format!(
        "{equal} equal, {both_fail} fail in both ({other_error} with another text), {} different",
        different.len()
    ));
    if !different.is_empty() {
        bail!("seeds that differ: {different:?}");
    }
    Ok(())
}

struct Case {
    random: StdRng,
}

impl Case {
    fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed) }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn pick<'t>(&mut self, choices: &[&'t str]) -> &'t str {
        choices[self.random.random_range(0..choices.len())]
    }

    fn number(&mut self, below: usize) -> usize {
        self.random.random_range(0..below)
    }

    fn files(&mut self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        let bases = 1 + self.number(2);
        for base in 0..bases {
            self.layer(&format!("base{base}"), &[], &mut files);
        }
        let mut below: Vec<String> = (0..bases).map(|base| format!("../base{base}")).collect();
        if self.chance(40) {
            let names: Vec<&str> = below.iter().map(String::as_str).collect();
            self.layer("middle", &names, &mut files);
            below = vec!["../middle".to_owned()];
        }
        let names: Vec<&str> = below.iter().map(String::as_str).collect();
        self.layer("overlay", &names, &mut files);
        files
    }

    fn layer(&mut self, directory: &str, below: &[&str], files: &mut Vec<(String, String)>) {
        let mut text = String::new();
        let mut resources: Vec<String> = below.iter().map(|path| (*path).to_owned()).collect();
        let own = if below.is_empty() { 1 + self.number(4) } else { self.number(3) };
        for position in 0..own {
            let object = self.object(&format!("{directory}-{position}"));
            let name = format!("r{position}.yaml");
            files.push((format!("{directory}/{name}"), object));
            resources.push(name);
        }
        if !resources.is_empty() {
            text.push_str("resources:\n");
            for resource in &resources {
                let _ = writeln!(text, "- {resource}");
            }
        }
        if self.chance(30) {
            let _ = writeln!(text, "namePrefix: {}", self.pick(&["p-", "dev-", "x"]));
        }
        if self.chance(20) {
            let _ = writeln!(text, "nameSuffix: {}", self.pick(&["-s", "-v2"]));
        }
        if self.chance(30) {
            let _ = writeln!(text, "namespace: {}", self.pick(&["apps", "default", "team-a"]));
        }
        if self.chance(25) {
            let _ = writeln!(text, "commonLabels:\n  app: {}", self.pick(&["web", "\"1\"", "\"yes\""]));
        }
        if self.chance(25) {
            let flags = self.pick(&["", "\n  includeSelectors: true", "\n  includeTemplates: true"]);
            let _ = writeln!(text, "labels:\n- pairs:\n    team: {}{flags}", self.pick(&["a", "\"true\""]));
        }
        if self.chance(20) {
            let _ =
                writeln!(text, "commonAnnotations:\n  note: {}", self.pick(&["hello", "'a: b'", "\"2\""]));
        }
        if directory == "base0" || self.chance(40) {
            self.generators(directory, files, &mut text);
        }
        if self.chance(30) {
            let _ = writeln!(
                text,
                "images:\n- name: {}\n  {}",
                self.pick(&["nginx", "redis", "registry.example/app"]),
                self.pick(&["newTag: v9", "newName: other/name", "digest: sha256:abcd", "tagSuffix: -x"])
            );
        }
        if self.chance(1) {
            let _ = writeln!(text, "replicas:\n- name: web\n  count: {}", self.number(9));
        }
        if self.chance(45) {
            self.patches(&mut text);
        }
        if self.chance(8) {
            self.replacements(&mut text);
        }
        if self.chance(15) {
            let _ = writeln!(text, "sortOptions:\n  order: {}", self.pick(&["fifo", "legacy"]));
        }
        if self.chance(10) {
            let _ = writeln!(
                text,
                "buildMetadata: [{}]",
                self.pick(&[
                    "originAnnotations",
                    "transformerAnnotations",
                    "managedByLabel",
                    "originAnnotations, transformerAnnotations"
                ])
            );
        }
        files.push((format!("{directory}/kustomization.yaml"), text));
    }

    fn generators(&mut self, directory: &str, files: &mut Vec<(String, String)>, text: &mut String) {
        if directory == "base0" || self.chance(60) {
            let above = !directory.starts_with("base");
            let name = match (directory, above && self.chance(50)) {
                ("base0", _) | (_, true) => "settings",
                _ => "env",
            };
            let _ = writeln!(
                text,
                "configMapGenerator:\n- name: {name}{}",
                if name == "env" { format!("-{directory}") } else { String::new() }
            );
            if above && name == "settings" {
                let _ = writeln!(text, "  behavior: {}", self.pick(&["merge", "merge", "replace"]));
            }
            let _ = writeln!(
                text,
                "  literals:\n  - A={}\n  - {}=2",
                self.pick(&["x", "1", "true", "a b", "\"q\"", "<&>"]),
                self.pick(&["B", "c.d", "E_F"])
            );
            if self.chance(30) {
                files.push((
                    format!("{directory}/file.txt"),
                    self.pick(&["line\n", "two\nlines\n", "no end", " lead\n", "\n\nblank\n", "tab\there\n"])
                        .to_owned(),
                ));
                text.push_str("  files:\n  - file.txt\n");
            }
            if self.chance(20) {
                let _ = writeln!(text, "  options:\n    disableNameSuffixHash: true");
            }
        }
        if self.chance(40) {
            let _ = writeln!(
                text,
                "secretGenerator:\n- name: creds-{directory}\n  literals:\n  - password={}",
                self.pick(&[
                    "x",
                    "a-rather-long-password-that-needs-more-than-one-line-of-base64-text-to-be-written",
                    "1"
                ])
            );
        }
        if self.chance(15) {
            let _ = writeln!(
                text,
                "generatorOptions:\n  labels:\n    made: \"yes\"\n  immutable: {}",
                self.pick(&["true", "false"])
            );
        }
    }

    fn patches(&mut self, text: &mut String) {
        text.push_str("patches:\n");
        for _ in 0..=self.number(2) {
            match self.number(6) {
                0 => {
                    let value = self.pick(&["5", "\"5\"", "null", "true", "1.50", "0644"]);
                    let _ = writeln!(
                        text,
                        "- target:\n    kind: {}\n  patch: |-\n    - op: add\n      path: /spec/extra\n      value: {value}",
                        self.pick(&["Deployment", "Service", "Widget", "Deployment|Widget"])
                    );
                }
                1 => {
                    let _ = writeln!(
                        text,
                        "- target:\n    kind: Deployment\n  patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata:\n      name: any\n      annotations:\n        patched: {}\n    spec:\n      template:\n        spec:\n          containers:\n          - name: {}\n            image: {}\n            env:\n            - name: {}\n              value: {}",
                        self.pick(&["yes", "'1'", "null"]),
                        self.pick(&["main", "side", "fresh"]),
                        self.pick(&["nginx:2", "busybox"]),
                        self.pick(&["A", "B", "Z"]),
                        self.pick(&["one", "\"2\"", "3"])
                    );
                }
                2 => {
                    let _ = writeln!(
                        text,
                        "- target:\n    kind: Deployment\n    name: {}\n  patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata:\n      name: any\n    spec:\n      template:\n        spec:\n          containers:\n          - name: main\n            ports:\n            - containerPort: {}\n              {}: {}\n          volumes:\n          - name: data\n            {}",
                        self.pick(&["web", ".*", "w.b", "nothing"]),
                        self.pick(&["80", "8080", "9090"]),
                        self.pick(&["protocol", "name"]),
                        self.pick(&["TCP", "UDP", "http"]),
                        self.pick(&["emptyDir: {}", "$patch: delete", "emptyDir: null"])
                    );
                }
                3 => {
                    let _ = writeln!(
                        text,
                        "- target:\n    kind: {}\n  patch: |-\n    kind: X\n    metadata:\n      name: any\n    spec:\n      list:\n      - {}\n      map:\n        {}",
                        self.pick(&["Widget", "Service"]),
                        self.pick(&["a", "{name: x}", "1"]),
                        self.pick(&["k: null", "k: 1", "$patch: replace", "$patch: delete"])
                    );
                }
                4 => {
                    let _ = writeln!(
                        text,
                        "- target:\n    labelSelector: {}\n  patch: |-\n    - op: replace\n      path: /metadata/name\n      value: {}",
                        self.pick(&["app=web", "team", "!team", "app in (a,b)"]),
                        self.pick(&["renamed", "web"])
                    );
                }
                _ => {
                    let _ = writeln!(
                        text,
                        "- target:\n    kind: Service\n  patch: |-\n    apiVersion: v1\n    kind: Service\n    metadata:\n      name: any\n    spec:\n      ports:\n      - port: {}\n        {}: {}",
                        self.pick(&["80", "81", "443"]),
                        self.pick(&["targetPort", "protocol", "name"]),
                        self.pick(&["8080", "TCP", "UDP", "web"])
                    );
                }
            }
        }
    }

    fn replacements(&mut self, text: &mut String) {
        let _ = writeln!(
            text,
            "replacements:\n- source:\n    kind: {}\n    fieldPath: {}\n  targets:\n  - select:\n      kind: {}\n    fieldPaths:\n    - {}\n    options:\n      create: {}",
            self.pick(&["ConfigMap", "ConfigMap", "ConfigMap", "Service"]),
            self.pick(&["metadata.name", "metadata.name", "data.A", "kind"]),
            self.pick(&["Deployment", "Widget"]),
            self.pick(&[
                "metadata.annotations.copied",
                "spec.template.spec.containers.*.env.[name=A].value",
                "spec.size",
                "spec.template.metadata.labels.x"
            ]),
            self.pick(&["true", "true", "true", "false"]),
        );
    }

    fn object(&mut self, unique: &str) -> String {
        let name = if self.chance(20) { self.pick(&["web", "api"]).to_owned() } else { unique.to_owned() };
        let namespace = if self.chance(20) {
            format!("\n  namespace: {}", self.pick(&["default", "apps", "other"]))
        } else {
            String::new()
        };
        let labels = if self.chance(50) {
            format!("\n  labels:\n    app: {}", self.pick(&["web", "a", "\"1\"", "no"]))
        } else {
            String::new()
        };
        let annotations = if self.chance(30) {
            format!("\n  annotations:\n    k: {}", self.pick(&["v", "2020-01-01", "1", "~", "", "'x'"]))
        } else {
            String::new()
        };
        let head = |version: &str, kind: &str| {
            format!(
                "apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: {name}{namespace}{labels}{annotations}\n"
            )
        };
        match self.number(9) {
            0 | 1 => {
                let container = self.container("main");
                let second = if self.chance(40) { self.container("side") } else { String::new() };
                format!(
                    "{}spec:\n  replicas: {}\n  selector:\n    matchLabels:\n      app: x\n  template:\n    metadata:\n      labels:\n        app: x\n    spec:\n      serviceAccountName: {}\n      containers:\n{container}{second}      volumes:\n      - name: data\n        configMap:\n          name: {}\n      - name: other\n        secret:\n          secretName: creds-base0\n",
                    head("apps/v1", "Deployment"),
                    self.number(5),
                    self.pick(&["web", "api", "default"]),
                    self.pick(&["settings", "env", "web"]),
                )
            }
            2 => format!(
                "{}spec:\n  selector:\n    app: x\n  ports:\n  - port: 80\n    targetPort: {}\n  - port: 443\n    protocol: {}\n",
                head("v1", "Service"),
                self.pick(&["8080", "http", "\"80\""]),
                self.pick(&["TCP", "UDP"])
            ),
            3 => format!(
                "{}data:\n  a: {}\n  b: |\n    text\n    more\n  c: {}\n",
                head("v1", "ConfigMap"),
                self.pick(&[
                    "x",
                    "\"1\"",
                    "'yes'",
                    "\"\"",
                    "a long text with many words that goes on and on until it is wider than eighty columns"
                ]),
                self.pick(&["\"0x1\"", "'null'", "plain", "\"tab\\there\"", "'# no comment'", "\"a: b\""])
            ),
            4 => head("v1", "ServiceAccount"),
            5 => format!(
                "{}roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {}\n  name: {}\nsubjects:\n- kind: ServiceAccount\n  name: {}{}\n",
                head("rbac.authorization.k8s.io/v1", self.pick(&["RoleBinding", "ClusterRoleBinding"])),
                self.pick(&["Role", "ClusterRole"]),
                self.pick(&["web", "api"]),
                self.pick(&["web", "api", "default"]),
                self.pick(&["", "\n  namespace: default", "\n  namespace: apps"]),
            ),
            6 => format!(
                "{}rules:\n- apiGroups: ['']\n  resources: [configmaps]\n  resourceNames: [settings, web]\n  verbs: [get]\n",
                head("rbac.authorization.k8s.io/v1", self.pick(&["Role", "ClusterRole"]))
            ),
            7 => format!(
                "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {}\n",
                self.pick(&["apps", "one"])
            ),
            _ => format!(
                "{}spec:\n  size: {}\n  list: [{}]\n  map: {{{}}}\n  empty:\n  date: {}\n  containers:\n  - image: {}\n",
                head("example.com/v1", "Widget"),
                self.pick(&["5", "1e3", "0x10", "1.0", "1.50", "big"]),
                self.pick(&["", "a, b", "1, 2", "{name: x}, {name: y}"]),
                self.pick(&["", "k: v", "k: null", "a10: 1, a2: 2"]),
                self.pick(&["2020-01-01", "'2020-01-01'", "12:30", "on"]),
                self.pick(&["nginx", "nginx:1", "redis@sha256:ab"])
            ),
        }
    }

    fn container(&mut self, name: &str) -> String {
        let mut text = format!(
            "      - name: {name}\n        image: {}\n",
            self.pick(&["nginx:1.2", "redis", "registry.example/app:1@sha256:aa", "nginx"])
        );
        if self.chance(60) {
            let _ = writeln!(
                text,
                "        env:\n        - name: A\n          value: {}\n        - name: B\n          valueFrom:\n            {}",
                self.pick(&["x", "\"1\"", "\"true\"", "$(VAR)"]),
                self.pick(&[
                    "configMapKeyRef: {name: settings, key: a}",
                    "secretKeyRef: {name: creds-base0, key: password}",
                    "fieldRef: {fieldPath: metadata.name}"
                ])
            );
        }
        if self.chance(50) {
            let _ = writeln!(
                text,
                "        ports:\n        - containerPort: 80\n{}        - containerPort: 8080\n",
                self.pick(&["", "          protocol: TCP\n", "          name: http\n"])
            );
        }
        if self.chance(20) {
            text.push_str("        envFrom:\n        - configMapRef:\n            name: env\n");
        }
        text
    }
}

/// A base with three objects and an overlay with the usual changes.
pub(crate) fn small_overlay(directory: &Path) -> anyhow::Result<()> {
    let files = vec![
        (
            "base/kustomization.yaml",
            "resources: [deployment.yaml, service.yaml]\nconfigMapGenerator:\n- name: settings\n  literals: [A=1]\n",
        ),
        (
            "base/deployment.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 1\n  selector:\n    matchLabels:\n      app: web\n  template:\n    metadata:\n      labels:\n        app: web\n    spec:\n      containers:\n      - name: web\n        image: nginx:1\n        envFrom:\n        - configMapRef:\n            name: settings\n",
        ),
        (
            "base/service.yaml",
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  selector:\n    app: web\n  ports:\n  - port: 80\n",
        ),
        (
            "overlay/kustomization.yaml",
            "resources: [../base]\nnamePrefix: dev-\nnamespace: dev\nimages:\n- name: nginx\n  newTag: v2\npatches:\n- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata:\n      name: web\n    spec:\n      replicas: 3\n",
        ),
    ];
    let files: Vec<(String, String)> =
        files.into_iter().map(|(name, content)| (name.to_owned(), content.to_owned())).collect();
    unpack(&files, directory)
}

/// Deployments with prefix, labels, images and 50 patches.
pub(crate) fn many_deployments(directory: &Path, count: usize) -> anyhow::Result<()> {
    let mut all = String::new();
    for number in 0..count {
        let _ = write!(
            all,
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-{number}\nspec:\n  replicas: 1\n  selector:\n    matchLabels:\n      app: web-{number}\n  template:\n    metadata:\n      labels:\n        app: web-{number}\n    spec:\n      containers:\n      - name: web\n        image: nginx:1\n        env:\n        - name: A\n          value: \"1\"\n        - name: B\n          valueFrom:\n            configMapKeyRef:\n              name: settings\n              key: A\n        ports:\n        - containerPort: 80\n"
        );
    }
    let mut patches = String::new();
    for number in 0..50.min(count) {
        let _ = write!(
            patches,
            "- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata:\n      name: web-{number}\n    spec:\n      replicas: {number}\n      template:\n        spec:\n          containers:\n          - name: web\n            env:\n            - name: C\n              value: x\n"
        );
    }
    let files = vec![
        (
            "base/kustomization.yaml".to_owned(),
            "resources: [all.yaml]\nconfigMapGenerator:\n- name: settings\n  literals: [A=1]\n".to_owned(),
        ),
        ("base/all.yaml".to_owned(), all),
        (
            "overlay/kustomization.yaml".to_owned(),
            format!(
                "resources: [../base]\nnamePrefix: dev-\nlabels:\n- pairs:\n    team: a\n  includeSelectors: true\nimages:\n- name: nginx\n  newTag: v2\npatches:\n{patches}"
            ),
        ),
    ];
    unpack(&files, directory)
}
