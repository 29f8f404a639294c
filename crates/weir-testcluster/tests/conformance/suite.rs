//! All cases, their recorded answers, and the report.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use futures::StreamExt as _;
use serde_json::{Map, Value, json};

use crate::case::{self, Case};
use crate::endpoint::Endpoint;
use crate::run::{Outcome, run};

/// Cases that run at the same time.
const CONCURRENT: usize = 8;

pub(crate) struct Suite {
    cases: Vec<Case>,
    /// Area and name to the list of answers.
    answers: BTreeMap<(String, String), Vec<Value>>,
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name)
}

impl Suite {
    /// The committed cases and answers, restricted to what `WEIR_CONFORMANCE_ONLY` names.
    pub(crate) fn read() -> Self {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(directory("cases")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let only = std::env::var("WEIR_CONFORMANCE_ONLY").unwrap_or_default();
        let mut cases = Vec::new();
        let mut answers = BTreeMap::new();
        for file in files {
            let read = case::read(&file);
            let area = read.first().map(|case| case.area.clone()).unwrap_or_default();
            for case in read {
                let key = (area.clone(), case.name.clone());
                assert!(answers.insert(key, Vec::new()).is_none(), "{area}: two cases named '{}'", case.name);
                if area.contains(&only) || case.name.contains(&only) {
                    cases.push(case);
                }
            }
            for (name, list) in read_answers(&area) {
                match answers.get_mut(&(area.clone(), name.clone())) {
                    Some(known) => known.clone_from(list.as_array().unwrap()),
                    // The next recording removes it.
                    None => println!("answers/{area}.yaml: no case '{name}'"),
                }
            }
        }
        Self { cases, answers }
    }

    async fn outcomes(&self, endpoint: &Endpoint) -> Vec<(&Case, Outcome)> {
        let mut outcomes: Vec<(usize, Outcome)> = futures::stream::iter(self.cases.iter().enumerate())
            .map(|(index, case)| async move { (index, run(endpoint, case).await) })
            .buffer_unordered(CONCURRENT)
            .collect()
            .await;
        outcomes.sort_by_key(|(index, _)| *index);
        outcomes.into_iter().map(|(index, outcome)| (&self.cases[index], outcome)).collect()
    }

    /// Runs all cases and fails with a report if one outside of `gaps` differs.
    pub(crate) async fn check(&self, endpoint: &Endpoint, gaps: &BTreeSet<String>) {
        let started = Instant::now();
        let mut failed = Vec::new();
        let mut closed = Vec::new();
        let mut known = 0;
        for (case, outcome) in self.outcomes(endpoint).await {
            let title = format!("{}: {}", case.area, case.name);
            let wanted = &self.answers[&(case.area.clone(), case.name.clone())];
            match (difference(&outcome, wanted), gaps.contains(&title)) {
                (None, false) => {}
                (None, true) => closed.push(title),
                (Some(report), true) => {
                    known += 1;
                    if std::env::var_os("WEIR_CONFORMANCE_GAPS").is_some() {
                        println!("\n=== gap: {title}\n{report}");
                    }
                }
                (Some(report), false) => failed.push((title, report)),
            }
        }
        for (title, report) in &failed {
            println!("\n=== {title}\n{report}");
        }
        let agreed = self.cases.len() - failed.len() - known;
        println!(
            "\n{agreed} of {} cases agree, {known} known gaps, {} failed, in {:.1?}",
            self.cases.len(),
            failed.len(),
            started.elapsed()
        );
        for (title, _) in &failed {
            println!("  failed: {title}");
        }
        if let Some(file) = std::env::var_os("WEIR_CONFORMANCE_FAILED") {
            let titles: Vec<&str> = failed.iter().map(|(title, _)| title.as_str()).collect();
            std::fs::write(file, titles.join("\n")).unwrap();
        }
        for title in &closed {
            println!("  agrees, though it is listed as a gap: {title}");
        }
        assert!(failed.is_empty(), "the server's answers differ from the recorded ones");
    }

    /// Runs all cases twice and writes down the answers of those that were the same both times.
    pub(crate) async fn record(&self, endpoint: &Endpoint) {
        let first = self.outcomes(endpoint).await;
        let second = self.outcomes(endpoint).await;
        let mut areas: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for ((area, name), answers) in &self.answers {
            areas.entry(area.clone()).or_default().insert(name.clone(), json!(answers));
        }
        let mut unstable = 0;
        for ((case, first), (_, second)) in first.into_iter().zip(second) {
            if let Some(why) = difference(&second, &first.answers).or(first.broken) {
                unstable += 1;
                println!("\n=== not recorded: {}: {}\n{why}", case.area, case.name);
                continue;
            }
            areas.get_mut(&case.area).unwrap().insert(case.name.clone(), Value::Array(first.answers));
        }
        for (area, answers) in areas {
            let text = weir_manifest::to_yaml(&Value::Object(answers));
            std::fs::write(directory("answers").join(format!("{area}.yaml")), text).unwrap();
        }
        assert!(unstable == 0, "{unstable} of {} cases were not recorded", self.cases.len());
    }
}

fn read_answers(area: &str) -> Map<String, Value> {
    let file = directory("answers").join(format!("{area}.yaml"));
    let Ok(bytes) = std::fs::read(&file) else { return Map::new() };
    let documents = weir_manifest::read_documents(&bytes, area).unwrap_or_else(|error| panic!("{error}"));
    documents.into_iter().next().and_then(|document| document.as_object().cloned()).unwrap_or_default()
}

/// What differs, readable; none when nothing does.
fn difference(outcome: &Outcome, wanted: &[Value]) -> Option<String> {
    let mut report = String::new();
    for (index, (request, got)) in outcome.requests.iter().zip(&outcome.answers).enumerate() {
        let wanted = wanted.get(index).cloned().unwrap_or_else(|| "<nothing recorded>".into());
        if *got == wanted {
            continue;
        }
        let (old, new) = (weir_manifest::to_yaml(&wanted), weir_manifest::to_yaml(got));
        let diff = similar::TextDiff::from_lines(&old, &new);
        let diff = diff.unified_diff().context_radius(4).header("expected", "got").to_string();
        let _ = write!(report, "{request}\n{diff}\n");
    }
    if let Some(why) = &outcome.broken {
        let _ = writeln!(report, "cannot go on: {why}");
    } else if wanted.len() > outcome.answers.len() {
        let _ = writeln!(report, "{} answers expected, {} got", wanted.len(), outcome.answers.len());
    }
    (!report.is_empty()).then_some(report)
}
