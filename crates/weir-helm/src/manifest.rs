//! From rendered files to manifests and hooks.

use std::collections::BTreeMap;

use crate::metadata::scalar_text;
use serde_json::Value as Json;
use weir_manifest::{helm_install_order, helm_uninstall_order};

/// Where one document of a file ends and the next begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitRule {
    /// A `---` at the start of a line, with all the white space around it: all versions of Helm but one.
    #[default]
    SwallowSpace,
    /// A `---` at the start of a line with the blanks behind it: Helm 4.2.2 only.
    KeepSpace,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}

/// The documents of a file, without leading white space, blank ones left out.
pub fn split(text: &str, rule: SplitRule) -> Vec<&str> {
    let text = text.trim_start();
    let bytes = text.as_bytes();
    let mut documents = Vec::new();
    let mut start = 0;
    let mut from = 0;
    while let Some(offset) = text[from..].find("---") {
        let dashes = from + offset;
        // A line break that an earlier marker has swallowed does not start a line any more.
        let starts_line =
            dashes == 0 || bytes[dashes - 1] == b'\n' && (rule == SplitRule::KeepSpace || dashes > start);
        if !starts_line {
            from = dashes + 1;
            continue;
        }
        let mut end = dashes;
        if rule == SplitRule::SwallowSpace {
            while end > start && is_space(bytes[end - 1]) {
                end -= 1;
            }
        }
        documents.push(&text[start..end]);
        let mut next = dashes + 3;
        while next < bytes.len()
            && (is_space(bytes[next]) && rule == SplitRule::SwallowSpace
                || matches!(bytes[next], b' ' | b'\t'))
        {
            next += 1;
        }
        start = next;
        from = next;
    }
    documents.push(&text[start..]);
    documents.retain(|document| !document.trim().is_empty());
    documents.into_iter().map(str::trim_start).collect()
}

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum HookEvent {
    PreInstall,
    PostInstall,
    PreDelete,
    PostDelete,
    PreUpgrade,
    PostUpgrade,
    PreRollback,
    PostRollback,
    Test,
}

impl HookEvent {
    /// The event of that name; `test-success` is an old name of `test`.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "pre-install" => Self::PreInstall,
            "post-install" => Self::PostInstall,
            "pre-delete" => Self::PreDelete,
            "post-delete" => Self::PostDelete,
            "pre-upgrade" => Self::PreUpgrade,
            "post-upgrade" => Self::PostUpgrade,
            "pre-rollback" => Self::PreRollback,
            "post-rollback" => Self::PostRollback,
            "test" | "test-success" => Self::Test,
            _ => return None,
        })
    }

    /// The name in annotations and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreInstall => "pre-install",
            Self::PostInstall => "post-install",
            Self::PreDelete => "pre-delete",
            Self::PostDelete => "post-delete",
            Self::PreUpgrade => "pre-upgrade",
            Self::PostUpgrade => "post-upgrade",
            Self::PreRollback => "pre-rollback",
            Self::PostRollback => "post-rollback",
            Self::Test => "test",
        }
    }
}

/// A document that is not part of the release but runs at certain moments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// `metadata.name`
    pub name: String,
    /// `kind`
    pub kind: String,
    /// The file it comes from.
    pub path: String,
    /// Its text.
    pub manifest: String,
    /// When it runs.
    pub events: Vec<HookEvent>,
    /// Hooks of one event run in the order of their weights.
    pub weight: i64,
    /// When it is deleted: `before-hook-creation`, `hook-succeeded`, `hook-failed`.
    pub delete_policies: Vec<String>,
    /// When its output is logged.
    pub output_log_policies: Vec<String>,
}

/// A document that is part of the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The file it comes from.
    pub path: String,
    /// Its text.
    pub content: String,
    /// `kind`
    pub kind: String,
    /// `metadata.name`
    pub name: String,
}

/// What a release consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Hooks in the order of their kinds.
    pub hooks: Vec<Hook>,
    /// Everything else in the order it is installed.
    pub manifests: Vec<Manifest>,
}

/// A rendered file is not what Kubernetes understands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("YAML parse error on {path}: {message}")]
pub struct ManifestError {
    /// The file.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

struct Head {
    kind: String,
    name: String,
    annotations: BTreeMap<String, String>,
}

fn kind_name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn head(text: &str) -> Result<Head, String> {
    let document =
        weir_manifest::read_first_document(text.as_bytes(), "", weir_manifest::ReadOptions::default())
            .map_err(|error| format!("error converting YAML to JSON: {}", error.reference_text()))?;
    let wrong = |value: &Json, place: &str, wanted: &str| {
        format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go {place} of type {wanted}",
            kind_name(value)
        )
    };
    let mut head = Head { kind: String::new(), name: String::new(), annotations: BTreeMap::new() };
    let object = match &document {
        Json::Null => return Ok(head),
        Json::Object(object) => object,
        other => {
            return Err(format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type util.SimpleHead",
                kind_name(other)
            ));
        }
    };
    // Scalars become text where text is wanted.
    let text = |value: Option<&Json>, field: &str| match value {
        None => Ok(String::new()),
        Some(value) => {
            scalar_text(value).ok_or_else(|| wrong(value, &format!("struct field {field}"), "string"))
        }
    };
    text(object.get("apiVersion"), "SimpleHead.apiVersion")?;
    head.kind = text(object.get("kind"), "SimpleHead.kind")?;
    let metadata = match object.get("metadata") {
        None | Some(Json::Null) => return Ok(head),
        Some(Json::Object(metadata)) => metadata,
        Some(other) => {
            return Err(wrong(
                other,
                "struct field SimpleHead.metadata",
                "struct { Name string \"json:\\\"name\\\"\"; Annotations map[string]string \"json:\\\"annotations\\\"\" }",
            ));
        }
    };
    head.name = text(metadata.get("name"), ".metadata.name")?;
    match metadata.get("annotations") {
        None | Some(Json::Null) => {}
        Some(Json::Object(annotations)) => {
            for (key, value) in annotations {
                let text = text(Some(value), ".metadata.annotations")?;
                head.annotations.insert(key.clone(), text);
            }
        }
        Some(other) => {
            return Err(wrong(other, "struct field .metadata.annotations", "map[string]string"));
        }
    }
    Ok(head)
}

fn policies(head: &Head, annotation: &str) -> Vec<String> {
    head.annotations
        .get(annotation)
        .map(|list| list.split(',').map(|policy| policy.trim().to_lowercase()).collect())
        .unwrap_or_default()
}

/// In which order kinds come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// What others need comes first.
    Install,
    /// The other way round.
    Uninstall,
}

fn compare(order: Order, left: &str, right: &str) -> std::cmp::Ordering {
    match order {
        Order::Install => helm_install_order(left, right),
        Order::Uninstall => helm_uninstall_order(left, right),
    }
}

/// Sorts rendered files into hooks and manifests.
///
/// Partials and blank files are skipped; a document whose hook annotation names an unknown event is
/// dropped.
pub fn sort(
    rendered: &BTreeMap<String, String>,
    rule: SplitRule,
    order: Order,
) -> Result<Sorted, ManifestError> {
    let mut sorted = Sorted::default();
    for (path, content) in rendered {
        let base = path.rsplit('/').next().unwrap_or(path);
        if base.starts_with('_') || content.trim().is_empty() {
            continue;
        }
        for document in split(content, rule) {
            let head = head(document).map_err(|message| ManifestError { path: path.clone(), message })?;
            let Some(events) = head.annotations.get("helm.sh/hook") else {
                sorted.manifests.push(Manifest {
                    path: path.clone(),
                    content: document.to_owned(),
                    kind: head.kind,
                    name: head.name,
                });
                continue;
            };
            let events: Option<Vec<HookEvent>> =
                events.split(',').map(|event| HookEvent::parse(&event.trim().to_lowercase())).collect();
            let Some(events) = events else { continue };
            let weight = head
                .annotations
                .get("helm.sh/hook-weight")
                .and_then(|weight| weir_gotemplate::strconv::parse_int(weight, 10).ok())
                .unwrap_or(0);
            sorted.hooks.push(Hook {
                delete_policies: policies(&head, "helm.sh/hook-delete-policy"),
                output_log_policies: policies(&head, "helm.sh/hook-output-log-policy"),
                name: head.name,
                kind: head.kind,
                path: path.clone(),
                manifest: document.to_owned(),
                events,
                weight,
            });
        }
    }
    sorted.manifests.sort_by(|left, right| compare(order, &left.kind, &right.kind));
    sorted.hooks.sort_by(|left, right| compare(order, &left.kind, &right.kind));
    Ok(sorted)
}

/// The hooks of an event in the order they run: by weight, then by name.
pub fn hooks_of(hooks: &[Hook], event: HookEvent) -> Vec<&Hook> {
    let mut chosen: Vec<&Hook> = hooks.iter().filter(|hook| hook.events.contains(&event)).collect();
    chosen.sort_by(|left, right| left.weight.cmp(&right.weight).then_with(|| left.name.cmp(&right.name)));
    chosen
}

/// The annotation that decides what uninstalling does with an object.
pub const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// What uninstalling a release does with its objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uninstall<'a> {
    /// Objects to delete.
    pub delete: Vec<&'a Manifest>,
    /// Objects with the policy `keep`, of which the user is told.
    pub keep: Vec<&'a Manifest>,
}

/// Which of the manifests uninstalling deletes and which it keeps, in the order given.
///
/// Objects with any other [`RESOURCE_POLICY`] than `keep` are in neither list: as in Helm they stay, and
/// nobody is told. Fails on a manifest that cannot be read.
pub fn uninstall(manifests: &[Manifest]) -> Result<Uninstall<'_>, ManifestError> {
    let mut lists = Uninstall::default();
    for manifest in manifests {
        let head = head(&manifest.content)
            .map_err(|message| ManifestError { path: manifest.path.clone(), message })?;
        match head.annotations.get(RESOURCE_POLICY) {
            None => lists.delete.push(manifest),
            Some(policy) if policy.trim().eq_ignore_ascii_case("keep") => lists.keep.push(manifest),
            Some(_) => {}
        }
    }
    Ok(lists)
}

/// The text of a release: every document with the file it comes from.
pub fn text(manifests: &[Manifest]) -> String {
    let mut out = String::new();
    for manifest in manifests {
        out.push_str("---\n# Source: ");
        out.push_str(&manifest.path);
        out.push('\n');
        out.push_str(&manifest.content);
        out.push('\n');
    }
    out
}

/// The documents of a release whose file matches one of the patterns, pattern by pattern.
///
/// Patterns match the path within the chart; `*` stays within one directory.
///
/// # Errors
/// The first pattern that matches no file.
pub fn show_only<'p>(text: &str, patterns: &'p [String], rule: SplitRule) -> Result<String, &'p str> {
    const SOURCE: &str = "# Source: ";
    let documents = split(text, rule);
    let path = |document: &str| {
        let mut rest = document;
        loop {
            let start = rest.find(SOURCE)? + SOURCE.len();
            rest = &rest[start..];
            let line = rest.lines().next().unwrap_or_default();
            if let Some((chart, path)) = line.split_once('/')
                && !chart.is_empty()
                && !path.is_empty()
            {
                return Some(path.to_owned());
            }
        }
    };
    let mut shown = String::new();
    for pattern in patterns {
        let matching = documents.iter().filter(|document| {
            path(document).is_some_and(|path| crate::ignore::matches(pattern, &path) == Some(true))
        });
        let before = shown.len();
        for document in matching {
            shown.push_str("---\n");
            shown.push_str(document);
            shown.push('\n');
        }
        if shown.len() == before {
            return Err(pattern);
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_policies_keep_objects() {
        let manifest = |name: &str, policy: &str| {
            let annotations =
                if policy.is_empty() { String::new() } else { format!("{{{RESOURCE_POLICY}: {policy}}}") };
            Manifest {
                path: "a".to_owned(),
                content: format!("kind: A\nmetadata:\n  name: {name}\n  annotations: {annotations}\n"),
                kind: "A".to_owned(),
                name: name.to_owned(),
            }
        };
        let manifests = [
            manifest("plain", ""),
            manifest("kept", "' Keep '"),
            manifest("left", "delete"),
            manifest("b", ""),
        ];
        let lists = uninstall(&manifests).unwrap();
        let names =
            |list: &[&Manifest]| list.iter().map(|manifest| manifest.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&lists.delete), ["plain", "b"]);
        assert_eq!(names(&lists.keep), ["kept"]);
        assert!(uninstall(&[manifest("x", "[1]")]).is_err());
    }

    #[track_caller]
    fn check_split(text: &str, expected: &[&str]) {
        assert_eq!(split(text, SplitRule::SwallowSpace), expected, "{text:?}");
    }

    #[test]
    fn documents_end_at_dashes_at_the_start_of_a_line() {
        check_split("---\na: 1\n---\nb: 2\n", &["a: 1", "b: 2\n"]);
        check_split("a: 1---\nb: 2", &["a: 1---\nb: 2"]);
        check_split("a: 1\n---b: 2", &["a: 1", "b: 2"]);
        check_split("\n\n---\n\n---\n", &["---\n"]);
        check_split("\n\n---\n", &[]);
        check_split("a: 1\n  \n---  \n\n  b: 2\n", &["a: 1", "b: 2\n"]);
        check_split("a: |\n  x\n---\n", &["a: |\n  x"]);
        check_split("a\n------\nb", &["a", "---\nb"]);
        assert_eq!(split("a: 1\n\n---\n\nb: 2\n", SplitRule::KeepSpace), ["a: 1\n\n", "b: 2\n"]);
    }

    fn files(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn kinds_are_sorted_and_unknown_ones_come_last() {
        let text = ["Deployment", "Service", "Foo", "ConfigMap", "Bar"]
            .map(|kind| format!("kind: {kind}"))
            .join("\n---\n");
        let sorted =
            sort(&files(&[("c/templates/a.yaml", &text)]), SplitRule::default(), Order::Install).unwrap();
        let kinds: Vec<&str> = sorted.manifests.iter().map(|manifest| manifest.kind.as_str()).collect();
        assert_eq!(kinds, ["ConfigMap", "Service", "Deployment", "Bar", "Foo"]);
    }

    #[test]
    fn hooks_are_taken_out_and_unknown_events_drop_the_document() {
        let hook = |name: &str, events: &str, weight: &str| {
            format!(
                "kind: Job\nmetadata:\n  name: {name}\n  annotations:\n    helm.sh/hook: {events}\n    helm.sh/hook-weight: \"{weight}\"\n"
            )
        };
        let text = [
            hook("b", "pre-install, POST-upgrade", "0"),
            hook("a", "pre-install", "x"),
            hook("c", "pre-install", "-5"),
            hook("d", "pre-install,unknown", "0"),
        ]
        .join("---\n");
        let sorted =
            sort(&files(&[("c/templates/h.yaml", &text)]), SplitRule::default(), Order::Install).unwrap();
        assert!(sorted.manifests.is_empty());
        let order: Vec<&str> = hooks_of(&sorted.hooks, HookEvent::PreInstall)
            .into_iter()
            .map(|hook| hook.name.as_str())
            .collect();
        assert_eq!(order, ["c", "a", "b"]);
        assert_eq!(hooks_of(&sorted.hooks, HookEvent::PostUpgrade).len(), 1);
    }

    #[test]
    fn documents_are_chosen_by_file() {
        let text = "---\n# Source: c/templates/a.yaml\na: 1\n---\n# Source: c/charts/s/templates/b.yaml\nb: 1\n---\n# Source: c/templates/a.yaml\na: 2\n";
        let only = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|one| (*one).to_owned()).collect();
            show_only(text, &patterns, SplitRule::default()).map_err(str::to_owned)
        };
        let both = "---\n# Source: c/templates/a.yaml\na: 1\n---\n# Source: c/templates/a.yaml\na: 2\n\n";
        assert_eq!(only(&["templates/a.yaml"]).unwrap(), both);
        assert_eq!(only(&["templates/*"]).unwrap(), both);
        assert_eq!(
            only(&["charts/*/templates/b.yaml"]).unwrap(),
            "---\n# Source: c/charts/s/templates/b.yaml\nb: 1\n"
        );
        assert_eq!(only(&["templates/a.yaml", "x"]).unwrap_err(), "x");
    }

    #[test]
    fn scalars_of_annotations_become_text() {
        let text =
            "kind: A\nmetadata:\n  annotations:\n    helm.sh/hook: pre-install\n    helm.sh/hook-weight: 5\n";
        let sorted = sort(&files(&[("c/t.yaml", text)]), SplitRule::default(), Order::Install).unwrap();
        assert_eq!(sorted.hooks[0].weight, 5);
        let text = "kind: A\nmetadata:\n  annotations:\n    x: [1]\n";
        let error = sort(&files(&[("c/t.yaml", text)]), SplitRule::default(), Order::Install).unwrap_err();
        assert!(
            error.to_string().ends_with(
                "cannot unmarshal array into Go struct field .metadata.annotations of type string"
            ),
            "{error}"
        );
    }

    #[test]
    fn annotations_must_be_scalars() {
        let text = |value: &str| format!("kind: A\nmetadata:\n  annotations:\n    x: {value}\n");
        let sorted =
            |value: &str| sort(&files(&[("c/t.yaml", &text(value))]), SplitRule::default(), Order::Install);
        assert!(sorted("1").is_ok());
        let error = sorted("[1]").unwrap_err();
        assert!(error.to_string().starts_with("YAML parse error on c/t.yaml: "), "{error}");
        assert!(error.to_string().contains("cannot unmarshal array"), "{error}");
    }
}
