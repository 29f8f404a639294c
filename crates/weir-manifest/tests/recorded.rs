//! Agreement with the Go libraries, case by case. The cases are recorded by `hack/record/yaml`.

mod ops;

use serde::Deserialize;

#[derive(Deserialize)]
struct Exchange {
    op: String,
    #[serde(default, rename = "in")]
    input: String,
    out: Option<String>,
    err: Option<String>,
}

#[track_caller]
fn check(recorded: &str) {
    let mut differences = Vec::new();
    let mut cases = 0;
    for line in recorded.lines() {
        let Exchange { op, input, out, err } = serde_json::from_str(line).expect("a recorded line is JSON");
        let theirs = out.ok_or_else(|| err.unwrap_or_default());
        let ours = ops::answer(&op, &input);
        cases += 1;
        differences
            .extend(ops::difference(&op, &ours, &theirs, true).map(|why| format!("{op} {input:?}\n{why}")));
    }
    assert!(cases > 0);
    assert!(differences.is_empty(), "{} of {cases} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn reads_as_the_reference() {
    check(include_str!("recorded/read.jsonl"));
}

#[test]
fn writes_as_the_reference() {
    check(include_str!("recorded/write.jsonl"));
}

#[test]
fn builds_and_writes_nodes_as_the_reference() {
    check(include_str!("recorded/nodes.jsonl"));
}
