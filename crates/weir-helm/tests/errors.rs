//! Broken charts and values: the messages of Helm, recorded by `hack/record/helm-errors`.

use std::collections::BTreeMap;

use serde::Deserialize;
use weir_base::tree::MemoryTree;
use weir_gotemplate::{FixedHost, Limits};
use weir_helm::capabilities::Capabilities;
use weir_helm::chart::Chart;
use weir_helm::content::{self, ContentOptions};
use weir_helm::render::{ReleaseInfo, RenderInput};
use weir_helm::{requirements, values};

#[derive(Deserialize)]
struct Case {
    name: String,
    files: BTreeMap<String, String>,
    values: String,
    message: String,
}

/// The message about a chart; nothing if it is fine.
fn message(case: &Case) -> Result<(), String> {
    let tree: MemoryTree =
        case.files.iter().map(|(path, text)| (path, bytes::Bytes::from(text.clone()))).collect();
    let given = values::read_stream(case.values.as_bytes())?;
    let chart = Chart::from_tree(&tree, "").map_err(|error| error.to_string())?;
    requirements::check_present(&chart).map_err(|error| error.to_string())?;
    let release =
        ReleaseInfo { name: "rel".to_owned(), namespace: "ns".to_owned(), revision: 1, is_upgrade: false };
    let input = RenderInput {
        release: &release,
        capabilities: &Capabilities::default(),
        host: Box::new(FixedHost::default()),
        limits: Limits::default(),
    };
    content::make(chart, &given, input, &ContentOptions::default())
        .map(|_| ())
        .map_err(|error| error.to_string())
}

#[test]
fn messages_are_those_of_helm() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("errors/recorded.json")).unwrap();
    assert!(cases.len() >= 100);
    let mut different = Vec::new();
    for case in &cases {
        let ours = message(case).err().unwrap_or_default();
        // The command says which step it was in.
        let theirs = case.message.trim_start_matches("chart dependencies processing failed: ");
        if ours.trim() != theirs {
            different.push(format!("{}\n  helm: {theirs}\n  weir: {ours}", case.name));
        }
    }
    assert!(different.is_empty(), "{} of {}:\n{}", different.len(), cases.len(), different.join("\n"));
}
