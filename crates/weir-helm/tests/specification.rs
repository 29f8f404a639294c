//! What Helm was recorded to make of small charts: the numbered behaviour cases of the specification
//! and what else is easily got wrong. `hack/record/helm-charts` makes the records from its `cases.txt`.
#![expect(clippy::unwrap_used, reason = "failing here means failing the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Deserialize;
use weir_base::tree::MemoryTree;
use weir_gotemplate::{FixedHost, Limits};
use weir_helm::capabilities::{Capabilities, KubeVersion};
use weir_helm::chart::Chart;
use weir_helm::manifest::{self, Order, SplitRule};
use weir_helm::render::{self, ReleaseInfo, RenderInput};
use weir_helm::values::{self, Mode};
use weir_helm::{dependencies, schema};

/// Numbered cases of the specification that no record can show, and the tests that do.
const ELSEWHERE: &[(u32, &str)] = &[(118, "resource_policies_keep_objects")];
/// How many numbered cases there are.
const CASES: u32 = 140;
/// Cases whose outcome differs, with the outcome here.
const DIFFERENT: &str = include_str!("specification-different.txt");

/// How errors about values begin.
const SCHEMA: &str = "values don't meet the specifications of the schema(s)";

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    case: String,
    files: BTreeMap<String, String>,
    #[serde(default)]
    values: String,
    #[serde(default)]
    upgrade: bool,
    #[serde(default)]
    sort: bool,
    #[serde(default)]
    rendered: BTreeMap<String, String>,
    #[serde(default)]
    manifests: Vec<String>,
    #[serde(default)]
    hooks: Vec<String>,
    #[serde(default)]
    error: String,
}

#[derive(Default, PartialEq, Debug)]
struct Outcome {
    rendered: BTreeMap<String, String>,
    manifests: Vec<String>,
    hooks: Vec<String>,
}

fn run(record: &Record) -> Result<Outcome, String> {
    let tree: MemoryTree =
        record.files.iter().map(|(path, text)| (path.as_str(), bytes::Bytes::from(text.clone()))).collect();
    let mut chart = Chart::from_tree(&tree, "").map_err(|error| error.to_string())?;
    let given = values::read(record.values.as_bytes()).map_err(|error| error.to_string())?;
    dependencies::process(&mut chart, &given).map_err(|error| error.to_string())?;
    let all = values::coalesce(&chart, &given, Mode::Coalesce).map_err(|error| error.to_string())?;
    schema::validate(&chart, &all, &schema::Documents::Missing).map_err(|error| error.to_string())?;
    let release = ReleaseInfo {
        name: "rel".to_owned(),
        namespace: "ns".to_owned(),
        revision: if record.upgrade { 2 } else { 1 },
        is_upgrade: record.upgrade,
    };
    let capabilities =
        Capabilities { kube_version: KubeVersion::parse("v1.33.1").unwrap(), ..Capabilities::default() };
    let input = RenderInput {
        release: &release,
        capabilities: &capabilities,
        host: Box::new(FixedHost::default()),
        limits: Limits::default(),
    };
    let mut outcome = Outcome {
        rendered: render::render(&chart, &all, input).map_err(|error| error.to_string())?,
        ..Outcome::default()
    };
    if record.sort {
        let mut rendered = outcome.rendered.clone();
        render::take_notes(&chart, &mut rendered);
        let sorted = manifest::sort(&rendered, SplitRule::SwallowSpace, Order::Install)
            .map_err(|error| error.to_string())?;
        outcome.manifests =
            sorted.manifests.iter().map(|manifest| manifest::text(std::slice::from_ref(manifest))).collect();
        outcome.hooks = sorted
            .hooks
            .iter()
            .map(|hook| {
                let events: Vec<&str> = hook.events.iter().map(|event| event.name()).collect();
                format!(
                    "{} {} [{}] weight {} delete [{}]",
                    hook.kind,
                    hook.name,
                    events.join(" "),
                    hook.weight,
                    hook.delete_policies.join(" ")
                )
            })
            .collect();
    }
    Ok(outcome)
}

fn records() -> Vec<Record> {
    serde_json::from_str(include_str!("recorded/charts.json")).unwrap()
}

/// The cases that differ, each with the outcome it has here.
fn different() -> BTreeMap<&'static str, &'static str> {
    DIFFERENT
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(" => ").unwrap())
        .collect()
}

#[test]
fn charts_give_what_helm_gives() {
    let different = different();
    let (mut report, mut failed) = (String::new(), 0);
    for record in records() {
        let want = if record.error.is_empty() {
            Ok(Outcome {
                rendered: record.rendered.clone(),
                manifests: record.manifests.clone(),
                hooks: record.hooks.clone(),
            })
        } else {
            Err(record.error.clone())
        };
        let got = run(&record);
        let same = match (&got, &want) {
            // Problems with values are listed in no particular order.
            (Err(got), Err(want)) if want.starts_with(SCHEMA) => sorted(got) == sorted(want),
            (got, want) => got == want,
        };
        let expected = match different.get(record.case.as_str()) {
            None => same,
            Some(here) => {
                let shown = match &got {
                    Ok(outcome) => outcome.rendered.get("c/templates/t.yaml").cloned().unwrap_or_default(),
                    Err(error) => error.clone(),
                };
                !same && shown.replace('\n', "⏎") == **here
            }
        };
        if !expected {
            failed += 1;
            let _ = writeln!(report, "{}\n  want {want:?}\n  got  {got:?}", record.case);
        }
    }
    assert_eq!(failed, 0, "cases that differ:\n{report}");
}

#[test]
fn every_numbered_case_has_a_test() {
    let records = records();
    let recorded: BTreeSet<u32> = records
        .iter()
        .filter_map(|record| record.case.split_once(' ')?.0.parse().ok())
        .chain(ELSEWHERE.iter().map(|(number, _)| *number))
        .collect();
    let missing: Vec<u32> = (1..=CASES).filter(|number| !recorded.contains(number)).collect();
    assert_eq!(missing, Vec::<u32>::new());
    let names: BTreeSet<&str> = records.iter().map(|record| record.case.as_str()).collect();
    assert_eq!(names.len(), records.len(), "two cases have one name");
    for case in different().keys() {
        assert!(names.contains(case), "there is no case {case}");
    }
}
