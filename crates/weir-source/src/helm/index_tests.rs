use super::*;

fn written(bytes: &[u8]) -> Result<String, String> {
    let index = Index::parse(bytes).map_err(|error| error.to_string())?;
    let mut output = Vec::new();
    index.write(&mut output).unwrap();
    Ok(String::from_utf8(output).unwrap())
}

const SMALL: &str = "\
apiVersion: v1
generated: 2024-05-01T10:00:00.5Z
entries:
  beta: []
  alpha:
  - name: alpha
    version: 1.2.0
    urls: [alpha-1.2.0.tgz]
    created: 2024-05-01T10:00:00Z
  - apiVersion: v2
    name: alpha
    version: 1.10.0
    annotations:
      note: |
        a < b
    urls:
    - https://example.com/alpha-1.10.0.tgz
    digest: abc
  - name: alpha
    version: not a version
  -
";

const SMALL_JSON: &str = r#"{
  "apiVersion": "v1",
  "generated": "2024-05-01T10:00:00.5Z",
  "entries": {
    "alpha": [
      {
        "name": "alpha",
        "version": "1.10.0",
        "apiVersion": "v2",
        "annotations": {
          "note": "a \u003c b\n"
        },
        "urls": [
          "https://example.com/alpha-1.10.0.tgz"
        ],
        "created": "0001-01-01T00:00:00Z",
        "digest": "abc"
      },
      {
        "name": "alpha",
        "version": "1.2.0",
        "apiVersion": "v1",
        "urls": [
          "alpha-1.2.0.tgz"
        ],
        "created": "2024-05-01T10:00:00Z"
      }
    ],
    "beta": []
  }
}"#;

#[test]
fn an_index_is_written_as_helm_writes_it() {
    assert_eq!(written(SMALL.as_bytes()).as_deref(), Ok(SMALL_JSON));
    // What was written reads as the same index.
    assert_eq!(written(SMALL_JSON.as_bytes()).as_deref(), Ok(SMALL_JSON));
}

#[test]
fn anchors_are_read_too() {
    let text = SMALL.replace("digest: abc", "digest: &digest abc").replace("not a version", "*digest");
    assert_eq!(written(text.as_bytes()).as_deref(), Ok(SMALL_JSON));
}

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    assert_eq!(written(text.as_bytes()).err().as_deref(), Some(expected), "{text}");
}

#[test]
fn what_is_refused() {
    check_refused("", "empty index.yaml file");
    check_refused("entries: {}\n", "no API version specified");
    check_refused("{\"entries\": {}}", "no API version specified");
    check_refused(
        "apiVersion: v1\nentires: {}\n",
        "error unmarshaling JSON: while decoding JSON: json: unknown field \"entires\"",
    );
    check_refused(
        "apiVersion: v1\nentries:\n  a: []\n  a: []\n",
        "error converting YAML to JSON: yaml: unmarshal errors:\n  line 4: key \"a\" already set in map",
    );
    assert!(written(b"apiVersion: v1\nentries:\n  a: [\n").is_err());
    assert!(written(b"apiVersion: v1\nentries: []\n").is_err());
    assert!(written(b"<html></html>").is_err());
    // JSON has room for fields of others.
    assert!(written(b"{\"apiVersion\": \"v1\", \"entires\": 1}").is_ok());
}

#[test]
fn absent_charts_are_null() {
    let text =
        "{\n  \"apiVersion\": \"v1\",\n  \"generated\": \"0001-01-01T00:00:00Z\",\n  \"entries\": null\n}";
    assert_eq!(written(b"apiVersion: v1").as_deref(), Ok(text));
    assert_eq!(written(b"{\"apiVersion\": \"v1\", \"entries\": null}").as_deref(), Ok(text));
}

#[test]
fn many_chart_versions_take_memory_once() {
    use std::fmt::Write as _;
    let mut text = String::from("apiVersion: v1\nentries:\n");
    for chart in 0..50 {
        let _ = writeln!(text, "  chart-{chart}:");
        for patch in 0..200 {
            let _ = writeln!(
                text,
                "  - name: chart-{chart}\n    version: 1.0.{patch}\n    description: {}\n    urls:\n    - chart-{chart}-1.0.{patch}.tgz",
                "x".repeat(200)
            );
        }
    }
    let index = Index::parse(text.as_bytes()).unwrap();
    assert_eq!(index.len(), 10_000);
    // Text is kept once: the pieces are no larger than what is written.
    let mut output = Vec::new();
    index.write(&mut output).unwrap();
    assert!(index.text.len() < output.len());
    assert!(index.text.capacity() < 2 * output.len());
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = Index::parse(&bytes);
    }

    #[test]
    fn no_text_makes_it_panic(text in "(apiVersion: v1\n)?entries:\n( {2}a:\n( {2}- ?(name|version|urls|created|x)?: ?[a-z0-9.\\[{\"'&*!]{0,5}\n){0,4}){0,3}") {
        let _ = Index::parse(text.as_bytes());
    }
}
