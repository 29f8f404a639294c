//! Passing rendered files through a post-renderer and getting files back.
//!
//! All documents become one stream in which each carries the name of its file as an annotation; what comes back is
//! sorted into files by that annotation. Everything is written anew on the way, as kyaml writes it.

use std::collections::{BTreeMap, HashMap};

use weir_manifest::{Content, Document, Node, NodeLayout, ScalarStyle, write_nodes};

use crate::manifest::{self, ManifestError, Order, SplitRule};

/// The annotation that holds the file of a document while a post-renderer sees it.
pub const FILE_ANNOTATION: &str = "postrenderer.helm.sh/postrender-filename";

/// How many nodes the aliases of a document may expand to.
const EXPANDED_NODES_MAX: usize = 1_000_000;

/// What the post-renderer sees of hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Hooks and manifests in one stream.
    #[default]
    Combined,
    /// Hooks in a stream of their own, before that of the manifests.
    Separate,
    /// Manifests alone; hooks stay as they are.
    NoHooks,
}

/// Why post-rendering fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostRenderError {
    /// A rendered file is no manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A rendered file cannot become part of the stream.
    #[error("error merging {group}: {action} {file}: {message}")]
    Merge {
        /// `manifests` or `hooks`.
        group: &'static str,
        /// What was attempted.
        action: &'static str,
        /// The file.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// The post-renderer fails.
    #[error("error while running post render on {group}: {message}")]
    Run {
        /// `files`, `manifests` or `hooks`.
        group: &'static str,
        /// What it says.
        message: String,
    },
    /// What came back is not YAML.
    #[error("error while parsing post rendered output{group}: {message}")]
    Output {
        /// ` for manifests`, ` for hooks` or nothing.
        group: &'static str,
        /// What is wrong.
        message: String,
    },
}

/// The rendered files after `run` has seen them; notes must have been taken out.
///
/// Documents that come back without the annotation get files of their own. `run` is called once for each stream.
pub fn post_render(
    rendered: &BTreeMap<String, String>,
    strategy: Strategy,
    rule: SplitRule,
    run: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<BTreeMap<String, String>, PostRenderError> {
    if strategy == Strategy::Combined {
        let merged = merge(rendered, rule, "manifests")?;
        let output = run(&merged).map_err(|message| PostRenderError::Run { group: "files", message })?;
        return split(&output, "").map_err(|message| PostRenderError::Output { group: "", message });
    }
    let sorted = manifest::sort(rendered, rule, Order::Install)?;
    let mut hooks = BTreeMap::new();
    for hook in &sorted.hooks {
        add(&mut hooks, &hook.path, &hook.manifest);
    }
    let mut manifests = BTreeMap::new();
    for manifest in &sorted.manifests {
        add(&mut manifests, &manifest.path, &manifest.content);
    }
    let mut files = BTreeMap::new();
    let groups = [
        ("hooks", " for hooks", hooks, strategy == Strategy::Separate),
        ("manifests", " for manifests", manifests, true),
    ];
    for (group, suffix, members, seen) in groups {
        if members.is_empty() {
            continue;
        }
        let members = if seen {
            let merged = merge(&members, rule, group)?;
            let output = run(&merged).map_err(|message| PostRenderError::Run { group, message })?;
            split(&output, group).map_err(|message| PostRenderError::Output { group: suffix, message })?
        } else {
            members
        };
        for (path, text) in &members {
            add(&mut files, path, text);
        }
    }
    Ok(files)
}

fn add(files: &mut BTreeMap<String, String>, path: &str, text: &str) {
    let file = files.entry(path.to_owned()).or_default();
    if !file.is_empty() {
        file.push_str("\n---\n");
    }
    file.push_str(text);
}

/// All documents as one stream.
fn merge(
    files: &BTreeMap<String, String>,
    rule: SplitRule,
    group: &'static str,
) -> Result<String, PostRenderError> {
    let mut merged = Vec::new();
    for (path, text) in files {
        let base = path.rsplit('/').next().unwrap_or(path);
        if base.starts_with('_') || text.trim().is_empty() {
            continue;
        }
        let fail = |action: &'static str, message: String| PostRenderError::Merge {
            group,
            action,
            file: path.clone(),
            message,
        };
        for document in manifest::split(text, rule) {
            for mut document in parse(document).map_err(|message| fail("parsing", message))? {
                annotate(&mut document.root, path).map_err(|message| fail("annotating", message))?;
                merged.push(document);
            }
        }
    }
    Ok(write_nodes(&merged, NodeLayout::COMPACT))
}

/// The files of a stream.
fn split(stream: &str, group: &str) -> Result<BTreeMap<String, String>, String> {
    let documents = parse(stream).map_err(|message| format!("error parsing YAML: {message}"))?;
    let mut files: BTreeMap<String, Vec<Document>> = BTreeMap::new();
    for (number, mut document) in documents.into_iter().enumerate() {
        let named = ["apiVersion", "kind", "metadata"].iter().any(|key| document.root.get(key).is_some());
        if !named {
            return Err("getting metadata: missing Resource metadata".to_owned());
        }
        let file = match clear_annotation(&mut document.root) {
            Some(file) if !file.is_empty() => file,
            _ if group.is_empty() => format!("generated-by-postrender-{number}.yaml"),
            _ => format!("generated-by-postrender-{group}-{number}.yaml"),
        };
        files.entry(file).or_default().push(document);
    }
    Ok(files
        .into_iter()
        .map(|(file, documents)| (file, write_nodes(&documents, NodeLayout::COMPACT)))
        .collect())
}

/// The documents of a text as kyaml reads them: aliases resolved, empty ones left out, a single list taken apart.
fn parse(text: &str) -> Result<Vec<Document>, String> {
    let text = text.replace("\r\n", "\n");
    let parts = split_at_markers(&text)?;
    let single = parts.len() == 1;
    let mut documents = Vec::new();
    for part in parts {
        let found = weir_manifest::read_first_node(part.as_bytes(), "")
            .map_err(|error| format!("MalformedYAMLError: {}", error.reference_text()))?;
        let Some(mut document) = found else { continue };
        if document.root.tag == "!!null" {
            continue;
        }
        expand(&mut document.root)?;
        let kind = document.root.get("kind").and_then(Node::text).unwrap_or_default();
        let is_list = matches!(kind, "List" | "ResourceList");
        if single && is_list && document.root.get("items").is_some() {
            if let Some(Node { content: Content::Sequence { items, .. }, .. }) = document.root.get("items") {
                documents.extend(items.iter().map(|item| Document {
                    root: item.clone(),
                    line: item.line,
                    column: item.column,
                    comments: weir_manifest::Comments::default(),
                }));
            }
            continue;
        }
        documents.push(document);
    }
    Ok(documents)
}

/// Splits at lines that begin with `---`.
fn split_at_markers(text: &str) -> Result<Vec<String>, String> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut from = 0;
    while let Some(offset) = text[from..].find("\n---") {
        let marker = from + offset;
        let after = marker + 4;
        let Some(length) = text[after..].find('\n') else { break };
        let rest = text[after..after + length].trim();
        if !rest.is_empty() && !rest.starts_with('#') {
            return Err(format!("invalid document separator: ---{}", text[after..after + length].trim_end()));
        }
        parts.push(format!("{}\n", &text[start..marker]));
        start = after + length + 1;
        from = start;
    }
    parts.push(text[start..].to_owned());
    Ok(parts)
}

fn entries_of(node: &mut Node) -> Result<&mut Vec<(Node, Node)>, String> {
    let kind = match &node.content {
        Content::Scalar { .. } => "ScalarNode",
        Content::Sequence { .. } => "SequenceNode",
        Content::Alias(_) => "AliasNode",
        Content::Mapping { .. } => "MappingNode",
    };
    match &mut node.content {
        Content::Mapping { entries, .. } => Ok(entries),
        _ => Err(format!("wrong node kind: expected MappingNode but was {kind}")),
    }
}

fn empty_mapping() -> Node {
    Node {
        content: Content::Mapping { entries: Vec::new(), flow: false },
        tag: "!!map".to_owned(),
        ..Node::default()
    }
}

/// The mapping at a key; made if there is none.
fn mapping_at<'a>(node: &'a mut Node, key: &str) -> Result<&'a mut Node, String> {
    let entries = entries_of(node)?;
    let position = entries.iter().position(|(name, _)| name.text() == Some(key)).unwrap_or_else(|| {
        entries.push((Node::scalar(key, ScalarStyle::Plain), empty_mapping()));
        entries.len() - 1
    });
    let value = &mut entries[position].1;
    if value.tag == "!!null" {
        *value = empty_mapping();
    }
    Ok(value)
}

fn is_empty(node: &Node) -> bool {
    match &node.content {
        Content::Mapping { entries, .. } => entries.is_empty(),
        Content::Sequence { items, .. } => items.is_empty(),
        _ => true,
    }
}

fn annotate(root: &mut Node, file: &str) -> Result<(), String> {
    let metadata = mapping_at(root, "metadata")?;
    entries_of(metadata)?.retain(|(name, value)| name.text() != Some("annotations") || !is_empty(value));
    let annotations = entries_of(mapping_at(metadata, "annotations")?)?;
    let value = Node { tag: "!!str".to_owned(), ..Node::scalar(file, ScalarStyle::SingleQuoted) };
    match annotations.iter_mut().find(|(name, _)| name.text() == Some(FILE_ANNOTATION)) {
        Some((_, old)) => *old = value,
        None => annotations.push((Node::scalar(FILE_ANNOTATION, ScalarStyle::Plain), value)),
    }
    Ok(())
}

/// Takes the annotation out and gives what it said.
fn clear_annotation(root: &mut Node) -> Option<String> {
    let at = |node: &mut Node, key: &str| -> Option<usize> {
        entries_of(node).ok()?.iter().position(|(name, _)| name.text() == Some(key))
    };
    let metadata_position = at(root, "metadata")?;
    let metadata = &mut entries_of(root).ok()?[metadata_position].1;
    let annotations_position = at(metadata, "annotations")?;
    let annotations = &mut entries_of(metadata).ok()?[annotations_position].1;
    let file = at(annotations, FILE_ANNOTATION).and_then(|position| {
        let (_, value) = entries_of(annotations).ok()?.remove(position);
        value.text().map(str::to_owned)
    });
    if is_empty(annotations) {
        entries_of(metadata).ok()?.remove(annotations_position);
    }
    file
}

/// Puts the nodes in place of the aliases that name them, and merges what `<<` wants merged.
fn expand(root: &mut Node) -> Result<(), String> {
    let mut anchors = HashMap::new();
    let mut budget = EXPANDED_NODES_MAX;
    expand_node(root, &mut anchors, &mut budget)
}

fn expand_node(
    node: &mut Node,
    anchors: &mut HashMap<String, Node>,
    budget: &mut usize,
) -> Result<(), String> {
    *budget = budget.checked_sub(1).ok_or("aliases expand to too many nodes")?;
    if let Content::Alias(name) = &node.content {
        let target = anchors.get(name).ok_or_else(|| format!("unknown anchor '{name}' referenced"))?;
        *budget = budget.checked_sub(count(target)).ok_or("aliases expand to too many nodes")?;
        *node = target.clone();
        return Ok(());
    }
    match &mut node.content {
        Content::Sequence { items, .. } => {
            for item in items {
                expand_node(item, anchors, budget)?;
            }
        }
        Content::Mapping { entries, .. } => {
            for (_, value) in entries.iter_mut() {
                expand_node(value, anchors, budget)?;
            }
            merge_keys(entries);
        }
        Content::Scalar { .. } | Content::Alias(_) => {}
    }
    if let Some(anchor) = node.anchor.take() {
        anchors.insert(anchor, node.clone());
    }
    Ok(())
}

fn count(node: &Node) -> usize {
    1 + match &node.content {
        Content::Sequence { items, .. } => items.iter().map(count).sum(),
        Content::Mapping { entries, .. } => entries.iter().map(|(_, value)| 1 + count(value)).sum(),
        Content::Scalar { .. } | Content::Alias(_) => 0,
    }
}

/// Adds the entries of `<<` that the mapping does not have itself; earlier sources go first.
fn merge_keys(entries: &mut Vec<(Node, Node)>) {
    let mut sources = Vec::new();
    entries.retain(|(key, value)| {
        let merged = key.tag == "!!merge";
        if merged {
            match &value.content {
                Content::Sequence { items, .. } => sources.extend(items.iter().cloned()),
                _ => sources.push(value.clone()),
            }
        }
        !merged
    });
    for source in sources {
        let Content::Mapping { entries: added, .. } = source.content else { continue };
        for (key, value) in added {
            if !entries.iter().any(|(own, _)| own.text() == key.text()) {
                entries.push((key, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOOK: &str = "kind: Job\nmetadata:\n  name: h\n  annotations:\n    helm.sh/hook: pre-install\n";

    fn files(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    /// What the post-renderer saw, and the files that came back, if it changes nothing.
    fn run(entries: &[(&str, &str)], strategy: Strategy) -> (Vec<String>, BTreeMap<String, String>) {
        let mut seen = Vec::new();
        let result = post_render(&files(entries), strategy, SplitRule::default(), &mut |stream| {
            seen.push(stream.to_owned());
            Ok(stream.to_owned())
        });
        (seen, result.unwrap())
    }

    #[test]
    fn documents_carry_their_file_and_come_back_to_it() {
        let text =
            "# top\nkind: A\nmetadata:\n  name: a # here\nspec:\n  l:\n    - 1\n---\nkind: B\nmetadata: {}\n";
        let (seen, back) = run(
            &[("c/templates/a.yaml", text), ("c/templates/_p.tpl", "x"), ("c/b.yaml", " \n")],
            Strategy::Combined,
        );
        assert_eq!(
            seen,
            [
                "# top\nkind: A\nmetadata:\n  name: a # here\n  annotations:\n    postrenderer.helm.sh/postrender-filename: 'c/templates/a.yaml'\nspec:\n  l:\n  - 1\n---\nkind: B\nmetadata: {annotations: {postrenderer.helm.sh/postrender-filename: 'c/templates/a.yaml'}}\n"
            ]
        );
        assert_eq!(
            back,
            files(&[(
                "c/templates/a.yaml",
                "# top\nkind: A\nmetadata:\n  name: a # here\nspec:\n  l:\n  - 1\n---\nkind: B\nmetadata: {}\n"
            )])
        );
    }

    #[test]
    fn hooks_may_be_apart_or_left_alone() {
        let entries = [("c/a.yaml", "kind: A\nmetadata:\n  name: a\n"), ("c/h.yaml", HOOK)];
        let (seen, _) = run(&entries, Strategy::Combined);
        assert_eq!(seen.len(), 1);
        let (seen, back) = run(&entries, Strategy::Separate);
        assert_eq!((seen.len(), back.len()), (2, 2));
        assert!(seen[0].contains("kind: Job") && seen[1].contains("kind: A"));
        let (seen, back) = run(&entries, Strategy::NoHooks);
        assert_eq!(seen.len(), 1);
        assert!(seen[0].contains("kind: A"));
        assert_eq!(back["c/h.yaml"], HOOK);
    }

    #[test]
    fn new_documents_get_files_of_their_own() {
        let mut renderer = |stream: &str| Ok(format!("{stream}---\nkind: New\n"));
        let entries = files(&[("c/a.yaml", "kind: A\n")]);
        let back = post_render(&entries, Strategy::Combined, SplitRule::default(), &mut renderer).unwrap();
        assert_eq!(back["generated-by-postrender-1.yaml"], "kind: New\n");
        let back = post_render(&entries, Strategy::Separate, SplitRule::default(), &mut renderer).unwrap();
        assert_eq!(back["generated-by-postrender-manifests-1.yaml"], "kind: New\n");
    }

    #[test]
    fn lists_are_taken_apart_and_aliases_resolved() {
        let list =
            "kind: List\nitems:\n- kind: A\n  a: &x {b: 1}\n  c: *x\n  d:\n    <<: *x\n    e: 2\n- kind: B\n";
        let (_, back) = run(&[("c/a.yaml", list)], Strategy::Combined);
        assert_eq!(
            back["c/a.yaml"],
            "kind: A\na: {b: 1}\nc: {b: 1}\nd:\n  e: 2\n  b: 1\nmetadata: {}\n---\nkind: B\nmetadata: {}\n"
        );
    }

    #[track_caller]
    fn check_error(text: &str, output: Result<&str, &str>, expected: &str) {
        let mut renderer = |_: &str| output.map(str::to_owned).map_err(str::to_owned);
        let result = post_render(
            &files(&[("c/a.yaml", text)]),
            Strategy::Combined,
            SplitRule::default(),
            &mut renderer,
        );
        assert_eq!(result.unwrap_err().to_string(), expected);
    }

    #[test]
    fn errors_name_the_step() {
        check_error("kind: A\n", Err("no"), "error while running post render on files: no");
        check_error(
            "just text\n",
            Ok(""),
            "error merging manifests: annotating c/a.yaml: wrong node kind: expected MappingNode but was ScalarNode",
        );
        check_error(
            "kind: A\n",
            Ok("a: 1\n"),
            "error while parsing post rendered output: getting metadata: missing Resource metadata",
        );
        let mut renderer = |_: &str| Ok("a: [".to_owned());
        let result = post_render(
            &files(&[("c/a.yaml", "a: [")]),
            Strategy::Combined,
            SplitRule::default(),
            &mut renderer,
        );
        let text = result.unwrap_err().to_string();
        assert!(
            text.starts_with("error merging manifests: parsing c/a.yaml: MalformedYAMLError: yaml: "),
            "{text}"
        );
    }
}
