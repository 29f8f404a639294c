use serde_json::json;
use weir_helm::release::{HookRun, Status};

use super::*;

fn table(value: &Json) -> Map<String, Json> {
    value.as_object().unwrap().clone()
}

#[test]
fn no_values_are_the_digest_of_nothing() {
    let digest = values(Algorithm::Sha256, &Map::new());
    assert_eq!(digest, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn values_are_written_with_keys_in_byte_order_and_folded() {
    let given = table(
        &json!({"a10": 1.0, "a2": 2.5, "B": [{"y": "n", "x": 1e3}], "long": "word ".repeat(20).trim()}),
    );
    let folded = "long: word word word word word word word word word word word word word word word word\n  word word word word\n";
    let text = "B:\n- x: 1000\n  \"y\": \"n\"\na10: 1\na2: 2.5\n";
    assert_eq!(values_text(&given), text.to_owned() + folded);
}

#[test]
fn integers_and_integral_floats_are_the_same() {
    let digest = |value: Json| values(Algorithm::Sha256, &table(&json!({"a": value})));
    assert_eq!(digest(json!(1)), digest(json!(1.0)));
    assert_ne!(digest(json!(1)), digest(json!("1")));
    assert!(is_of_values(&digest(json!(1)), &table(&json!({"a": 1.0}))));
    assert!(!is_of_values("sha256:xyz", &table(&json!({"a": 1.0}))));
    assert_eq!(values_text(&table(&json!({"a": 1e19}))), "a: 10000000000000000000\n");
}

#[test]
fn each_algorithm_is_known_by_its_name() {
    for algorithm in Algorithm::ALL {
        let digest = algorithm.digest(b"abc");
        assert_eq!(split(&digest), Some(algorithm), "{digest}");
    }
    assert!(Algorithm::parse("md5").unwrap_err().contains("md5"));
}

#[test]
fn a_release_is_written_as_the_reference_does() {
    let mut record =
        Record { name: "app".to_owned(), namespace: "apps".to_owned(), version: 3, ..Record::default() };
    record.info.status = Status::Deployed;
    record.info.first_deployed = "2026-01-02T03:04:05.6Z".to_owned();
    record.info.description = "a < b".to_owned();
    record.chart.metadata.name = "podinfo".to_owned();
    record.chart.metadata.version = "1.0.0".to_owned();
    record.chart.metadata.api_version = "v2".to_owned();
    record.manifest = "---\nx".to_owned();
    record.config = table(&json!({"b": 1e21, "a": 1.5}));
    let hook = |name: &str, event: &str| RecordHook {
        name: name.to_owned(),
        kind: "Job".to_owned(),
        path: "p".to_owned(),
        manifest: "m".to_owned(),
        events: vec![event.to_owned()],
        last_run: HookRun { started_at: "2026-01-02T03:04:05Z".to_owned(), ..HookRun::default() },
        ..RecordHook::default()
    };
    record.hooks = vec![hook("t", "test"), hook("h", "pre-install")];
    assert_eq!(
        release_text(&record, ""),
        concat!(
            r#"{"name":"app","version":3,"info":{"first_deployed":"2026-01-02T03:04:05.6Z","description":"a \u003c b","status":"deployed"},"#,
            r#""chartMetadata":{"name":"podinfo","version":"1.0.0","apiVersion":"v2"},"config":{"a":1.5,"b":1e+21},"#,
            r#""manifest":"---\nx","hooks":[{"name":"h","kind":"Job","path":"p","manifest":"m","events":["pre-install"],"#,
            r#""last_run":{"started_at":"2026-01-02T03:04:05Z","phase":""}}],"namespace":"apps"}"#,
            "\n"
        )
    );
    record.hooks.truncate(1);
    record.config.clear();
    let text = release_text(&record, "sha256:x");
    assert!(text.contains(r#""config":null"#) && text.contains(r#""hooks":null"#), "{text}");
    assert!(text.ends_with("\"namespace\":\"apps\",\"ociDigest\":\"sha256:x\"}\n"), "{text}");
}

#[test]
fn post_renderers_and_metadata() {
    assert_eq!(post_renderers(&[]), "");
    assert_eq!(common_metadata(None), "");
    let renderers: Vec<PostRenderer> = serde_json::from_value(json!([
        {"kustomize": {"patches": [{"patch": "a&b", "target": {"kind": "Deployment", "name": "x"}}], "images": [{"name": "n", "newTag": "1"}]}},
        {}
    ]))
    .unwrap();
    let text = concat!(
        r#"[{"kustomize":{"patches":[{"patch":"a\u0026b","target":{"kind":"Deployment","name":"x"}}],"#,
        r#""images":[{"name":"n","newTag":"1"}]}},{}]"#,
        "\n"
    );
    assert_eq!(post_renderers(&renderers), Algorithm::Sha256.digest(text.as_bytes()));
    let metadata: CommonMetadata = serde_json::from_value(json!({"labels": {"b": "2", "a": "1"}})).unwrap();
    let text = "{\"labels\":{\"a\":\"1\",\"b\":\"2\"}}\n";
    assert_eq!(common_metadata(Some(&metadata)), Algorithm::Sha256.digest(text.as_bytes()));
}
