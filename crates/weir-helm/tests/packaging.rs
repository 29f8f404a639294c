//! Charts as archives, byte for byte those of Helm.

#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::io::Read;

use sha2::{Digest, Sha256};
use weir_base::tree::MemoryTree;
use weir_helm::chart::Chart;
use weir_helm::package;

const MODIFIED: u64 = 1_700_000_000;

fn chart(files: &[(&str, &str)]) -> Chart {
    let tree: MemoryTree =
        files.iter().map(|(path, text)| (*path, bytes::Bytes::from((*text).to_owned()))).collect();
    Chart::from_tree(&tree, "").unwrap()
}

fn unzipped(archive: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(archive).read_to_end(&mut tar).unwrap();
    tar
}

fn entries(archive: &[u8]) -> Vec<(String, String)> {
    let tar = unzipped(archive);
    let mut archive = tar::Archive::new(&tar[..]);
    archive
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (path, text)
        })
        .collect()
}

/// Subcharts, long paths, paths beyond ASCII, a lock, texts to clean: everything headers depend on.
fn example() -> Chart {
    let long = format!("templates/{}/{}.yaml", "d".repeat(80), "e".repeat(80));
    let longest = format!("templates/{}.yaml", "f".repeat(120));
    let mut chart = chart(&[
        (
            "Chart.yaml",
            "apiVersion: v2\nname: par\nversion: 1.0.0\nicon: https://example.com/a.png\ndependencies:\n- name: one\n  version: \">=1.0.0 <2\"\n  repository: file://../one\n  alias: first\n  condition: a&b\n  tags: [x]\n  import-values:\n  - data\n  - child: a.b\n    parent: c\n",
        ),
        (
            "Chart.lock",
            "dependencies:\n- name: one\n  repository: file://../one\n  version: 1.2.3\ndigest: sha256:739c42fb9629d0c5ddb0b300dc99a5e68345c8f2b63f40f9dd3d120e08a4d344\ngenerated: \"2023-11-14T22:13:20Z\"\n",
        ),
        ("values.yaml", "a: 1\n"),
        ("templates/a.yaml", "x: {{ .Values.a }}\n"),
        (&long, "# x\n"),
        ("templates/ü.yaml", "# x\n"),
        (&longest, "# x\n"),
    ]);
    chart.dependencies.push(one());
    chart
}

fn one() -> Chart {
    chart(&[(
        "Chart.yaml",
        "apiVersion: v2\nname: one\nversion: 1.2.3\ndescription: \"a\n  b\"\nappVersion: 1.10\nmaintainers:\n- name: A & B <x>\nannotations: {}\n",
    )])
}

#[test]
fn archives_unpack_to_the_bytes_of_the_reference() {
    let chart = example();
    let archive = package::archive(&chart, &|_| MODIFIED).unwrap();
    assert_eq!(package::file_name(&chart), "par-1.0.0.tgz");
    // The digest of what `helm package` 4.2.3 wrote for these files, unzipped.
    assert_eq!(
        hex::encode(Sha256::digest(unzipped(&archive))),
        "ac1d13ebaeef0d1ce9bb0fd5de5be7c63161bb690a9e4f734a7b5823f1e6d445"
    );
    let header = b"\x1f\x8b\x08\x14\0\0\0\0\0\xff\x29\x00+aHR0cHM6Ly95b3V0dS5iZS96OVV6MWljandyTQo=Helm\0";
    assert_eq!(&archive[..header.len()], header);
}

#[test]
fn an_archive_is_the_chart_again() {
    let mut chart = example();
    let archive = package::archive(&chart, &|_| MODIFIED).unwrap();
    // What is empty is not written.
    chart.dependencies[0].metadata.annotations = None;
    let mut again = Chart::from_archive(&archive).unwrap();
    assert_eq!(again.dependencies.len(), 1);
    again.templates.sort_by(|left, right| left.name.cmp(&right.name));
    let mut templates = chart.templates.clone();
    templates.sort_by(|left, right| left.name.cmp(&right.name));
    assert_eq!((again.metadata, again.lock), (chart.metadata.clone(), chart.lock.clone()));
    assert_eq!((again.templates, again.dependencies), (templates, chart.dependencies.clone()));
}

#[test]
fn charts_of_the_first_version_keep_requirements_apart() {
    let chart = chart(&[
        ("Chart.yaml", "name: old\nversion: 1.0.0\n"),
        ("requirements.yaml", "dependencies:\n- name: a\n  version: 1.0.0\n  repository: file://../a\n"),
        ("requirements.lock", "dependencies: []\ndigest: x\ngenerated: \"2023-11-14T22:13:20Z\"\n"),
        ("README.md", "read me\n"),
    ]);
    let archive = package::archive(&chart, &|_| MODIFIED).unwrap();
    let entries = entries(&archive);
    let paths: Vec<&str> = entries.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["old/Chart.yaml", "old/README.md", "old/requirements.lock", "old/requirements.yaml"]);
    assert_eq!(entries[0].1, "apiVersion: v1\nname: old\nversion: 1.0.0\n");
}

#[test]
fn charts_that_break_rules_are_refused() {
    let mut bad = one();
    "two".clone_into(&mut bad.metadata.version);
    let refused = package::archive(&bad, &|_| MODIFIED).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "chart validation: validation: chart.metadata.version \"two\" is invalid"
    );
    let mut bad = one();
    bad.schema = Some("{".into());
    let refused = package::archive(&bad, &|_| MODIFIED).unwrap_err();
    assert_eq!(refused.to_string(), "invalid JSON in values.schema.json");
}
