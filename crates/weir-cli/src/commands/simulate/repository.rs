//! The files of a repository: as they lie there, or of a revision.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::SimulateError;
use crate::error::Error;
use crate::local::files::{self, File, Files};
use crate::local::{FLEET, NAMESPACE};
use crate::view;

/// The source by which a fleet refers to its own repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The URL under which it is known; empty if nothing says.
    pub(crate) url: String,
}

/// The files of a revision, or those that lie there, and what to call them.
///
/// # Errors
/// They cannot be read, or there is no such revision.
pub(crate) fn read(repository: &Path, revision: Option<&str>) -> Result<(Files, String), Error> {
    let Some(revision) = revision else {
        return Ok((files::read(repository)?, "working tree".to_owned()));
    };
    let commit = format!("{revision}^{{commit}}");
    let id = git(repository, &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit], &[])
        .map_err(|_| SimulateError::NoRevision(revision.to_owned()))?;
    let id = String::from_utf8_lossy(&id).trim().to_owned();
    let listed = git(repository, &["ls-tree", "-r", "-z", "--full-tree", &id], &[])?;
    let mut entries = Vec::new();
    let mut wanted = Vec::new();
    for entry in listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let entry = String::from_utf8_lossy(entry).into_owned();
        let Some((facts, path)) = entry.split_once('\t') else { continue };
        let mut facts = facts.split(' ');
        let (mode, kind, blob) = (facts.next(), facts.next(), facts.next());
        // Links and submodules have no content of their own.
        if kind != Some("blob") || mode == Some("120000") {
            continue;
        }
        wanted.extend_from_slice(blob.unwrap_or_default().as_bytes());
        wanted.push(b'\n');
        entries.push((path.to_owned(), mode == Some("100755")));
    }
    let contents = git(repository, &["cat-file", "--batch"], &wanted)?;
    let mut files = Files::new();
    let mut rest = contents.as_slice();
    for (path, executable) in entries {
        let Some((content, left)) = next_blob(rest) else {
            return Err(SimulateError::Git { command: "cat-file".to_owned(), text: String::new() }.into());
        };
        files.insert(path, File { content: content.to_vec(), executable });
        rest = left;
    }
    Ok((files, format!("{revision} ({})", id.get(..12).unwrap_or(&id))))
}

/// The next object of `git cat-file --batch`: a line that ends with its size, its content, a line end.
fn next_blob(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let header = std::str::from_utf8(&bytes[..end]).ok()?;
    let size: usize = header.rsplit(' ').next()?.parse().ok()?;
    let (content, rest) = bytes[end + 1..].split_at_checked(size)?;
    Some((content, rest.strip_prefix(b"\n")?))
}

fn git(repository: &Path, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, SimulateError> {
    let command = arguments.first().copied().unwrap_or_default().to_owned();
    let failed = |text: String| SimulateError::Git { command: command.clone(), text };
    let mut child = Command::new("git")
        .arg("-C")
        .arg(repository)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // Written beside the reading: both pipes are finite.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    });
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

/// The documents of all YAML files below a folder; what cannot be read is left to the controllers.
fn documents(files: &Files, folder: &str) -> Vec<Value> {
    let prefix = folder.trim_start_matches("./").trim_matches('/');
    let below = |path: &str| {
        prefix.is_empty()
            || prefix == "."
            || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
    };
    files
        .iter()
        .filter(|(path, _)| {
            let extension = Path::new(path).extension();
            below(path) && extension.is_some_and(|extension| extension == "yaml" || extension == "yml")
        })
        .filter_map(|(path, file)| weir_manifest::read_documents(&file.content, path).ok())
        .flatten()
        .collect()
}

fn is_of(document: &Value, kind: &str, group: &str) -> bool {
    document["kind"] == kind && view::text(document, "/apiVersion").starts_with(group)
}

/// The source by which the fleet refers to itself: that of the Kustomization of the folder, or the usual one.
pub(crate) fn source(files: &Files, path: &str) -> Source {
    let normal = |path: &str| path.trim_start_matches("./").trim_matches('/').to_owned();
    let all = documents(files, path);
    let own = all.iter().find(|document| {
        is_of(document, "Kustomization", "kustomize.toolkit.fluxcd.io/")
            && normal(view::text(document, "/spec/path")) == normal(path)
            && view::text(document, "/spec/sourceRef/kind") == "GitRepository"
    });
    let (namespace, name) = match own {
        Some(own) => {
            let namespace = match view::text(own, "/spec/sourceRef/namespace") {
                "" => view::namespace(own),
                namespace => namespace,
            };
            let namespace = if namespace.is_empty() { NAMESPACE } else { namespace };
            (namespace.to_owned(), view::text(own, "/spec/sourceRef/name").to_owned())
        }
        None => (NAMESPACE.to_owned(), FLEET.to_owned()),
    };
    let url = all
        .iter()
        .find(|document| {
            is_of(document, "GitRepository", "source.toolkit.fluxcd.io/")
                && view::name(document) == name
                && ["", namespace.as_str()].contains(&view::namespace(document))
        })
        .map(|document| view::text(document, "/spec/url").to_owned())
        .unwrap_or_default();
    Source { namespace, name, url }
}

/// The folders that clusters sync, as the fleet's own Kustomizations say.
pub(crate) fn cluster_folders(files: &Files) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (path, file) in files.iter().filter(|(path, _)| path.ends_with("gotk-sync.yaml")) {
        let documents = weir_manifest::read_documents(&file.content, path).unwrap_or_default();
        for document in documents {
            if is_of(&document, "Kustomization", "kustomize.toolkit.fluxcd.io/") {
                found.insert(view::text(&document, "/spec/path").to_owned());
            }
        }
    }
    found.into_iter().collect()
}

/// Definitions that hold anything, for kinds of the files that no definition among them brings.
///
/// Nothing in the files says whether such a kind has namespaces: it has unless its name begins with `Cluster`.
pub(crate) fn stand_in_definitions(files: &Files) -> Vec<Value> {
    let all = documents(files, "");
    let defined: BTreeSet<(&str, &str)> = all
        .iter()
        .filter(|document| document["kind"] == "CustomResourceDefinition")
        .map(|document| (view::text(document, "/spec/group"), view::text(document, "/spec/names/kind")))
        .collect();
    let mut kinds: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for document in &all {
        let (group, version) = weir_manifest::split_api_version(view::text(document, "/apiVersion"));
        let kind = view::text(document, "/kind");
        let is_own = [".k8s.io", ".fluxcd.io", ".config.k8s.io"].iter().any(|end| group.ends_with(end));
        let is_known = is_own && !group.ends_with(".networking.k8s.io");
        let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
        if !group.contains('.')
            || is_known
            || defined.contains(&(group, kind))
            || !is_name(kind)
            || !is_name(version)
        {
            continue;
        }
        kinds.entry((group.to_owned(), kind.to_owned())).or_default().insert(version.to_owned());
    }
    kinds.into_iter().map(|((group, kind), versions)| stand_in(&group, &kind, &versions)).collect()
}

fn stand_in(group: &str, kind: &str, versions: &BTreeSet<String>) -> Value {
    let singular = kind.to_lowercase();
    let plural = match singular.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if singular.ends_with(['s', 'x']) || singular.ends_with("ch") => format!("{singular}es"),
        _ => format!("{singular}s"),
    };
    let scope = if kind.starts_with("Cluster") { "Cluster" } else { "Namespaced" };
    let newest = versions.last().cloned().unwrap_or_default();
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            json!({
                "name": version, "served": true, "storage": *version == newest,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope, "versions": versions,
            "names": {"plural": plural, "singular": singular, "kind": kind},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter()
            .map(|(path, text)| {
                ((*path).to_owned(), File { content: text.as_bytes().to_vec(), executable: false })
            })
            .collect()
    }

    const SYNC: &str = "apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: home, namespace: gitops}
spec: {url: ssh://git@git.example/home}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: cluster, namespace: gitops}
spec: {path: ./clusters/prod, sourceRef: {kind: GitRepository, name: home}}
";

    #[test]
    fn a_fleet_says_how_it_refers_to_itself() {
        let files = files(&[("clusters/prod/flux/gotk-sync.yaml", SYNC), ("clusters/prod/bad.yaml", "a: [")]);
        let found = source(&files, "clusters/prod/");
        assert_eq!(
            found,
            Source {
                namespace: "gitops".to_owned(),
                name: "home".to_owned(),
                url: "ssh://git@git.example/home".to_owned()
            }
        );
        assert_eq!(cluster_folders(&files), ["./clusters/prod"]);
        let usual = source(&files, "./other");
        assert_eq!((usual.namespace.as_str(), usual.name.as_str()), ("flux-system", "flux-system"));
    }

    #[test]
    fn kinds_that_nothing_defines_get_stand_ins() {
        let files = files(&[(
            "a.yaml",
            "apiVersion: example.com/v1\nkind: Policy\n---\napiVersion: example.com/v1beta1\nkind: Policy\n---\napiVersion: example.com/v1\nkind: ClusterBox\n---\napiVersion: apps/v1\nkind: Deployment\n---\napiVersion: example.com/v1\nkind: Known\n---\nkind: CustomResourceDefinition\nspec: {group: example.com, names: {kind: Known}}\n",
        )]);
        let made = stand_in_definitions(&files);
        let names: Vec<(&str, &str)> =
            made.iter().map(|one| (view::name(one), view::text(one, "/spec/scope"))).collect();
        assert_eq!(names, [("clusterboxes.example.com", "Cluster"), ("policies.example.com", "Namespaced")]);
        assert_eq!(made[1]["spec"]["versions"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn revisions_are_read_from_git() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let run = |arguments: &[&str]| {
            let options =
                ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"];
            let arguments: Vec<&str> = options.iter().chain(arguments).copied().collect();
            git(root, &arguments, &[]).unwrap();
        };
        run(&["init", "--quiet", "--initial-branch=main"]);
        std::fs::create_dir(root.join("a")).unwrap();
        std::fs::write(root.join("a/x.yaml"), "one\n").unwrap();
        std::fs::write(root.join("empty"), "").unwrap();
        run(&["add", "."]);
        run(&["commit", "--quiet", "-m", "one"]);
        std::fs::write(root.join("a/x.yaml"), "two\n").unwrap();
        let (old, name) = read(root, Some("HEAD")).unwrap();
        assert_eq!(old["a/x.yaml"].content, b"one\n");
        assert_eq!(old.keys().collect::<Vec<_>>(), ["a/x.yaml", "empty"]);
        assert!(name.starts_with("HEAD ("), "{name}");
        let (now, _) = read(root, None).unwrap();
        assert_eq!(now["a/x.yaml"].content, b"two\n");
        let error = read(root, Some("gone")).unwrap_err();
        assert_eq!(error.to_string(), "there is no revision 'gone'");
    }
}
