//! `weir simulate` and `weir dev` as programs, over the example fleet and over one that is broken in several ways.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap()
}

fn example() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet").display().to_string()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn the_example_fleet_becomes_ready() {
    let output = weir(&["simulate", &example(), "--output", "json", "--offline"]);
    let report = report(&output);
    assert_eq!(report["good"], true, "{report:#}");
    assert!(output.status.success());
    assert_eq!(report["path"], "./clusters/local");
    assert!(report["order"].as_array().unwrap().len() > 3, "{}", report["order"]);
}

/// A Kustomization of the fleet with a path of its own and more fields.
fn kustomization(name: &str, more: &str) -> String {
    format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: {name}, namespace: flux-system}}
spec:
  interval: 1h
  prune: true
  path: ./{name}
  sourceRef: {{kind: GitRepository, name: flux-system}}
{more}---
"
    )
}

fn git(root: &Path, arguments: &[&str]) {
    let options = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"];
    let status = Command::new("git").arg("-C").arg(root).args(options).args(arguments).status().unwrap();
    assert!(status.success(), "git {arguments:?}");
}

#[test]
fn a_broken_fleet_says_what_is_broken_and_what_changed() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let map = |value: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings, namespace: default}}\ndata: {{level: {value}}}\n"
        )
    };
    write("clusters/local/all.yaml", &kustomization("good", ""));
    write("good/map.yaml", &map("low"));
    git(root, &["init", "--quiet", "--initial-branch=main"]);
    git(root, &["add", "."]);
    git(root, &["commit", "--quiet", "--message", "good"]);

    let depends = |on: &str| format!("  dependsOn: [{{name: {on}}}]\n");
    let all = [
        kustomization("good", ""),
        kustomization("typo", ""),
        kustomization("one", &depends("two")),
        kustomization("two", &depends("one")),
        kustomization("lost", &depends("nobody")),
        kustomization("foreign", ""),
    ];
    write("clusters/local/all.yaml", &all.concat());
    write("good/map.yaml", &map("high"));
    for name in ["one", "two", "lost"] {
        write(&format!("{name}/map.yaml"), &map("x").replace("settings", name));
    }
    write(
        "foreign/thing.yaml",
        "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a, namespace: default}\n",
    );
    let path = root.display().to_string();
    let output = weir(&["simulate", &path, "--base", "main", "--output", "json", "--offline"]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1));
    let found = |name: &str| {
        let id = format!("Kustomization/flux-system/{name}");
        let row = report["objects"].as_array().unwrap().iter().find(|row| row["id"] == *id);
        let row = row.unwrap_or_else(|| panic!("no {id} in {report:#}"));
        (row["verdict"].as_str().unwrap().to_owned(), row["diagnosis"].as_str().unwrap().to_owned())
    };
    let is = |verdict: &str, diagnosis: &str| (verdict.to_owned(), diagnosis.to_owned());
    assert_eq!(found("good"), is("ready", ""));
    assert_eq!(found("typo"), is("failed", "its path does not exist"));
    assert_eq!(found("one"), is("waiting", "waits for Kustomization/flux-system/two"));
    assert_eq!(found("lost"), is("waiting", "needs Kustomization/flux-system/nobody, which does not exist"));
    assert_eq!(found("foreign"), is("failed", "no definition of Thing (example.com/v1)"));
    assert_eq!(report["cycles"], json!([["Kustomization/flux-system/one", "Kustomization/flux-system/two"]]));
    assert_eq!(report["missingKinds"], json!(["Thing (example.com/v1)"]));
    let changes = report["changes"].as_array().unwrap();
    let settings = changes.iter().find(|change| change["id"] == "ConfigMap/default/settings").unwrap();
    assert_eq!(settings["change"], "changed");
    assert!(settings["diff"].as_str().unwrap().contains("-  level: low\n+  level: high\n"), "{settings}");
}

/// Each break of the fleet in `fleets/broken`: the object, its verdict, the cause in a few words, and what the message
/// must name: the file or object, and what is wrong with it.
const BREAKS: &[(&str, &str, &str, &[&str])] = &[
    ("Kustomization/flux-system/wrong-path", "failed", "its path does not exist", &["./wrong-path"]),
    (
        "Kustomization/flux-system/missing-definition",
        "failed",
        "no definition of Thing (example.com/v1)",
        &["Thing/default/thing"],
    ),
    (
        "Kustomization/flux-system/substitution",
        "failed",
        "a variable cannot be substituted",
        &["ConfigMap.v1.[noGrp]/substitution", "missing closing brace"],
    ),
    (
        "Kustomization/flux-system/missing-variables",
        "failed",
        "variables to substitute are missing",
        &["'Secret/cluster-settings'", "not found"],
    ),
    (
        "Kustomization/flux-system/syntax",
        "failed",
        "YAML cannot be read",
        &["syntax/settings.yaml", "line 6"],
    ),
    ("Kustomization/flux-system/resource-gone", "failed", "a file is missing", &["gone.yaml"]),
    (
        "Kustomization/flux-system/refused",
        "failed",
        "cannot be applied",
        &["Deployment/default/refused", "`selector` does not match template `labels`"],
    ),
    (
        "Kustomization/flux-system/pod-secret",
        "failed",
        "does not become healthy in time",
        &["Deployment/default/pod-secret", "secret \"not-there\" not found"],
    ),
    (
        "Kustomization/flux-system/one",
        "waiting",
        "waits for Kustomization/flux-system/two",
        &["'flux-system/two' is not ready"],
    ),
    (
        "Kustomization/flux-system/after",
        "waiting",
        "needs Kustomization/flux-system/nobody, which does not exist",
        &["'flux-system/nobody' not found"],
    ),
    (
        "HelmRelease/default/wrong-value",
        "failed",
        "values do not fit the schema of the chart",
        &["web@1.2.0", "at '/replicas': got string, want integer"],
    ),
    (
        "HelmRelease/default/template-fails",
        "failed",
        "a template fails",
        &["web/templates/settings.yaml:7:14", "a message is needed"],
    ),
    (
        "HelmRelease/default/chart-version",
        "failed",
        "no version of the chart fits",
        &["no 'web' chart with version matching '9.x' found"],
    ),
    (
        "HelmRelease/default/missing-values",
        "failed",
        "values from elsewhere are missing",
        &["'default/web-values'", "not found"],
    ),
];

#[test]
fn every_break_is_told_with_its_object_place_and_cause() {
    let fleet = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fleets/broken");
    let charts = tempfile::tempdir().unwrap();
    let chart = fleet.join("charts/web").display().to_string();
    let cache = charts.path().display().to_string();
    assert!(weir(&["helm", "package", &chart, "--destination", &cache]).status.success());
    let fleet = fleet.display().to_string();
    let output = weir(&["simulate", &fleet, "--offline", "--charts", &cache, "--output", "json"]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report["settled"], true);
    let rows = report["objects"].as_array().unwrap();
    for (id, verdict, diagnosis, parts) in BREAKS {
        let row =
            rows.iter().find(|row| row["id"] == **id).unwrap_or_else(|| panic!("no {id} in {report:#}"));
        assert_eq!(
            (row["verdict"].as_str(), row["diagnosis"].as_str()),
            (Some(*verdict), Some(*diagnosis)),
            "{row:#}"
        );
        let message = row["message"].as_str().unwrap();
        for part in *parts {
            assert!(message.contains(part), "{id}: no {part:?} in: {message}");
        }
    }
    assert_eq!(report["cycles"], json!([["Kustomization/flux-system/one", "Kustomization/flux-system/two"]]));
    let good = rows.iter().find(|row| row["id"] == "HelmRelease/default/good").unwrap();
    assert_eq!(good["verdict"], "ready", "a schema elsewhere is not asked for offline: {good:#}");
    let waited = report["simulatedSeconds"].as_f64().unwrap();
    assert!(waited >= 60.0, "the health check had its minute: {waited}");
}

#[test]
fn a_development_cluster_comes_and_goes() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().display().to_string();
    let output = weir(&["dev", "up", "--once", "--git", &example(), "--state-dir", &state]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("everything is ready after"), "{text}");
    assert!(directory.path().join("kubeconfig").exists());
    assert!(directory.path().join("objects").exists(), "the objects are kept");
    let again = weir(&["dev", "up", "--once", "--git", &example(), "--state-dir", &state]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let down = weir(&["dev", "down", "--state-dir", &state]);
    assert!(!down.status.success());
    assert!(String::from_utf8_lossy(&down.stderr).contains("no development cluster runs"));
    assert!(weir(&["dev", "reset", "--state-dir", &state]).status.success());
    assert!(!directory.path().join("objects").exists());
}
