//! `cargo xtask tidy`: crate layers, forbidden dependencies, and the text rules of the repository.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// Layers from bottom to top; a crate depends only on crates of lower layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Base,
    Engine,
    Effect,
    Runtime,
    Control,
    Edge,
    /// Test support and tools, outside the stack.
    Aside,
}

/// The layer of every crate; a crate that is not here fails the check.
const LAYERS: &[(&str, Layer)] = &[
    ("weir-base", Layer::Base),
    ("weir-api", Layer::Base),
    ("weir-manifest", Layer::Base),
    ("weir-gotemplate", Layer::Engine),
    ("weir-kustomize", Layer::Engine),
    ("weir-sops", Layer::Engine),
    ("weir-artifact", Layer::Effect),
    ("weir-source", Layer::Effect),
    ("weir-apply", Layer::Effect),
    ("weir-helm", Layer::Effect),
    ("weir-cloud", Layer::Effect),
    ("weir-kms", Layer::Effect),
    ("weir-notify", Layer::Effect),
    ("weir-runtime", Layer::Runtime),
    ("weir-source-controller", Layer::Control),
    ("weir-source-watcher", Layer::Control),
    ("weir-kustomize-controller", Layer::Control),
    ("weir-helm-controller", Layer::Control),
    ("weir-notification-controller", Layer::Control),
    ("weir-image-controller", Layer::Control),
    ("weir-web", Layer::Control),
    ("weir-operator", Layer::Control),
    ("weir-cli", Layer::Edge),
    ("weir-testcluster", Layer::Aside),
    ("weir-testkit", Layer::Aside),
    ("e2e", Layer::Aside),
    ("xtask", Layer::Aside),
];

/// The only edges within a layer.
const SAME_LAYER: &[(&str, &str)] = &[
    ("weir-api", "weir-base"),
    ("weir-manifest", "weir-base"),
    ("weir-kustomize", "weir-sops"),
    ("weir-helm", "weir-apply"),
    ("weir-source", "weir-artifact"),
    ("weir-kms", "weir-cloud"),
    ("weir-source", "weir-cloud"),
    ("weir-operator", "weir-web"),
    // Signed assertions and access tokens of Google.
    ("weir-notify", "weir-cloud"),
];

/// Crates that only dev-dependencies may name, with the crates that are exempt.
const DEVELOPMENT_ONLY: &[(&str, &[&str])] =
    &[("weir-testkit", &[]), ("weir-testcluster", &["weir-cli", "weir-testkit", "e2e", "xtask"])];

/// External crates that bring IO; base and engine crates are pure.
const EFFECTFUL: &[&str] =
    &["axum", "gix", "hyper", "hyper-util", "kube", "reqwest", "rustix", "tokio", "tower"];

/// `weir-api` derives its CRDs with kube, which needs no client for that.
const EFFECTFUL_ALLOWED: &[(&str, &str)] = &[("weir-api", "kube")];

/// Text that must not appear in source files of pure crates.
const IMPURE_TEXT: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net::Tcp",
    "std::net::Udp",
    "ToSocketAddrs",
    "std::process",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
];

/// The one place where base code reads the machine's clock.
const IMPURE_ALLOWED: &[(&str, &str)] = &[("crates/weir-base/src/clock.rs", "Timestamp::now")];

const CHANGELOG_KINDS: &[&str] = &["feature", "fix", "breaking", "security"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    description: Option<String>,
    license: Option<String>,
    source: Option<String>,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// Runs all checks and prints every violation before failing.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let mut found = Vec::new();
    let metadata = metadata(root)?;
    check_crates(&metadata, &mut found);
    for file in tracked_files(root)? {
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else { continue };
        check_text(&file, &text, &mut found);
    }
    if found.is_empty() {
        return Ok(());
    }
    let mut report = String::new();
    for violation in &found {
        let _ = writeln!(report, "  {violation}");
    }
    bail!("{} violation(s) of the repository's rules:\n{report}", found.len())
}

fn metadata(root: &Path) -> anyhow::Result<Metadata> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cannot read the output of cargo metadata")
}

fn tracked_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .context("cannot run git ls-files")?;
    Ok(output
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

fn check_crates(metadata: &Metadata, found: &mut Vec<String>) {
    let layers: BTreeMap<&str, Layer> = LAYERS.iter().copied().collect();
    for package in &metadata.packages {
        if !metadata.workspace_members.contains(&package.id) {
            if let Some(source) = &package.source
                && !source.starts_with("registry+https://github.com/rust-lang/crates.io-index")
            {
                found.push(format!("{}: comes from {source}, not from crates.io", package.name));
            }
            continue;
        }
        let name = package.name.as_str();
        let Some(layer) = layers.get(name).copied() else {
            found.push(format!("{name}: has no layer in xtask/src/tidy.rs"));
            continue;
        };
        if package.version != "0.0.0" {
            found.push(format!("{name}: version is {}, expected 0.0.0", package.version));
        }
        if package.license.as_deref() != Some("Apache-2.0") {
            found.push(format!("{name}: licence must be Apache-2.0"));
        }
        if package.description.is_none() {
            found.push(format!("{name}: has no description"));
        }
        match std::fs::read_to_string(&package.manifest_path) {
            Ok(text) if text.contains("[lints]\nworkspace = true") => {}
            _ => found.push(format!("{name}: Cargo.toml does not take the workspace's lints")),
        }
        for dependency in &package.dependencies {
            let development = dependency.kind.as_deref() == Some("dev");
            check_dependency(name, layer, &dependency.name, development, &layers, found);
        }
    }
}

fn check_dependency(
    name: &str,
    layer: Layer,
    dependency: &str,
    development: bool,
    layers: &BTreeMap<&str, Layer>,
    found: &mut Vec<String>,
) {
    if development {
        return;
    }
    if let Some((_, exempt)) = DEVELOPMENT_ONLY.iter().find(|(crate_name, _)| *crate_name == dependency) {
        if !exempt.contains(&name) {
            found.push(format!("{name}: may name {dependency} only in dev-dependencies"));
        }
        return;
    }
    if let Some(lower) = layers.get(dependency) {
        let allowed = layer == Layer::Aside || *lower < layer || SAME_LAYER.contains(&(name, dependency));
        if !allowed {
            found.push(format!(
                "{name} ({layer:?}) depends on {dependency} ({lower:?}): dependencies point down only"
            ));
        }
    }
    if layer <= Layer::Engine
        && EFFECTFUL.contains(&dependency)
        && !EFFECTFUL_ALLOWED.contains(&(name, dependency))
    {
        found.push(format!("{name} ({layer:?}) depends on {dependency}: crates of this layer are pure"));
    }
}

fn check_text(file: &str, text: &str, found: &mut Vec<String>) {
    if file == "xtask/src/tidy.rs" {
        return;
    }
    if let Some(name) = file.strip_prefix("changelog.d/")
        && name != "README.md"
    {
        let kind = name.strip_suffix(".md").and_then(|stem| stem.rsplit_once('.')).map(|(_, kind)| kind);
        if !kind.is_some_and(|kind| CHANGELOG_KINDS.contains(&kind)) {
            found.push(format!("{file}: expected <slug>.<{}>.md", CHANGELOG_KINDS.join("|")));
        }
    }
    for (number, line) in text.lines().enumerate() {
        let mut report = |what: &str| found.push(format!("{file}:{}: {what}", number + 1));
        for path in ["/work/", "/root/", "/home/"] {
            if line.contains(path) && !file.contains("/tests/") && !file.contains("/testdata/") {
                report(&format!("machine path '{path}'"));
            }
        }
        if Path::new(file).extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        if line.contains("#[ignore") {
            report("ignored test: assert today's answer and say what is right");
        }
        if line.contains("todo!(") || line.contains("unimplemented!(") {
            report("unfinished code");
        }
    }
    check_purity(file, text, found);
}

/// Base and engine crates do not reach for files, the environment, the network or the clock.
fn check_purity(file: &str, text: &str, found: &mut Vec<String>) {
    let Some(crate_name) =
        file.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")).map(|(name, _)| name)
    else {
        return;
    };
    let pure = LAYERS.iter().any(|(name, layer)| *name == crate_name && *layer <= Layer::Engine);
    let is_test = file.ends_with("tests.rs") || file.contains("/tests/");
    if !pure || is_test {
        return;
    }
    for (number, line) in text.lines().enumerate() {
        // Unit tests at the end of a file may read their data from disk.
        if line.trim() == "#[cfg(test)]" {
            break;
        }
        for impure in IMPURE_TEXT {
            let allowed = IMPURE_ALLOWED.contains(&(file, impure));
            if line.contains(impure) && !allowed && !line.trim_start().starts_with("//") {
                found.push(format!("{file}:{}: '{impure}' in a pure crate", number + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, dependency: &str, violations: usize) {
        let layers: BTreeMap<&str, Layer> = LAYERS.iter().copied().collect();
        let mut found = Vec::new();
        check_dependency(name, layers[name], dependency, false, &layers, &mut found);
        assert_eq!(found.len(), violations, "{name} -> {dependency}: {found:?}");
    }

    #[test]
    fn dependencies_point_down_only() {
        check("weir-kustomize", "weir-manifest", 0);
        check("weir-manifest", "weir-kustomize", 1);
        check("weir-helm", "weir-apply", 0);
        check("weir-apply", "weir-helm", 1);
        check("weir-source-controller", "weir-kustomize-controller", 1);
        check("weir-kustomize", "tokio", 1);
        check("weir-api", "kube", 0);
        check("weir-apply", "weir-testkit", 1);
        check("weir-cli", "weir-testcluster", 0);
    }

    #[test]
    fn text_rules() {
        let lines = |file: &str, text: &str| {
            let mut found = Vec::new();
            check_text(file, text, &mut found);
            found
        };
        assert_eq!(lines("crates/weir-base/src/x.rs", "use std::fs;").len(), 1);
        assert_eq!(lines("crates/weir-runtime/src/x.rs", "use std::fs;").len(), 0);
        assert_eq!(lines("changelog.d/a.feature.md", "").len(), 0);
        assert_eq!(lines("changelog.d/a.md", "").len(), 1);
        assert_eq!(lines("docs/x.md", "see /work/y").len(), 1);
        assert_eq!(lines("crates/weir-base/src/x.rs", "    todo!()").len(), 1);
    }
}
