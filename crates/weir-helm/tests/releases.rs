//! Release records of Helm 3 and 4 read by Weir, and those of Weir read by them, field by field.
//! `hack/record/helm-releases` makes the records.
#![expect(clippy::unwrap_used, clippy::panic, reason = "failing here means failing the test")]

use serde_json::{Value as Json, json};
use weir_helm::release::{Info, Record, RecordHook, Status};

const V3: &str = include_str!("recorded/releases/helm-v3.txt");
const V3_FIELDS: &str = include_str!("recorded/releases/helm-v3.json");
const V3_LABELS: &str = include_str!("recorded/releases/labels-v3.json");
const V4: &str = include_str!("recorded/releases/helm-v4.txt");
const V4_FIELDS: &str = include_str!("recorded/releases/helm-v4.json");
const V4_LABELS: &str = include_str!("recorded/releases/labels-v4.json");
const WEIR: &str = include_str!("recorded/releases/weir.txt");
const WEIR_READ_BY_V3: &str = include_str!("recorded/releases/weir-read-by-v3.json");
const WEIR_READ_BY_V4: &str = include_str!("recorded/releases/weir-read-by-v4.json");

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

/// Without what Go writes for times that are not set: version 4 of Helm writes one such field always.
fn without_unset_times(value: &Json) -> Json {
    match value {
        Json::Object(fields) => fields
            .iter()
            .filter(|(name, value)| {
                !(name.ends_with("modtime")
                    || name.ends_with("_deployed")
                    || *name == "deleted"
                    || name.ends_with("_at"))
                    || !matches!(value.as_str(), Some("" | "0001-01-01T00:00:00Z"))
            })
            .map(|(name, value)| (name.clone(), without_unset_times(value)))
            .collect(),
        Json::Array(items) => items.iter().map(without_unset_times).collect(),
        // What is a float in Go and what is an integer here is the same number.
        Json::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    }
}

#[track_caller]
fn same(left: &Json, right: &Json) {
    let (left, right) = (without_unset_times(left), without_unset_times(right));
    let (Json::Object(one), Json::Object(other)) = (&left, &right) else { panic!("no objects") };
    for name in one.keys().chain(other.keys()) {
        assert_eq!(one.get(name), other.get(name), "field {name}");
    }
}

#[test]
fn records_of_helm_are_read() {
    for (stored, fields, labels) in [(V3, V3_FIELDS, V3_LABELS), (V4, V4_FIELDS, V4_LABELS)] {
        let record = Record::decode(stored).unwrap();
        same(&serde_json::to_value(&record).unwrap(), &json(fields));
        assert_eq!(record.info.status, Status::Deployed);
        assert_eq!(record.object_name(), "sh.helm.release.v1.podinfo.v3");
        let mut labels: serde_json::Map<String, Json> = serde_json::from_str(labels).unwrap();
        assert_eq!(labels.remove("team"), Some(json!("a")), "labels of the user");
        assert_eq!(serde_json::to_value(record.labels()).unwrap(), Json::Object(labels));
    }
    assert_eq!(Record::decode(V3).unwrap().apply_method, "");
    assert_eq!(Record::decode(V4).unwrap().apply_method, "ssa");
}

#[test]
fn records_of_helm_survive_being_written_again() {
    for stored in [V3, V4] {
        let record = Record::decode(stored).unwrap();
        let again = Record::decode(&record.encode().unwrap()).unwrap();
        assert_eq!(again, record);
    }
}

#[test]
fn fields_of_other_versions_are_kept() {
    let text = json!({
        "name": "a", "version": 1, "new_field": {"x": 1},
        "info": {"status": "deployed", "resources": {"v1/Pod": []}},
        "chart": {"metadata": {"name": "c", "version": "1.0.0"}, "schemamodtime": "2026-01-01T00:00:00Z",
            "templates": [{"name": "t", "data": "", "modtime": "2026-01-01T00:00:00Z"}]},
    });
    let record: Record = serde_json::from_value(text.clone()).unwrap();
    let written = serde_json::to_value(Record::decode(&record.encode().unwrap()).unwrap()).unwrap();
    for pointer in
        ["/new_field/x", "/info/resources/v1~1Pod", "/chart/schemamodtime", "/chart/templates/0/modtime"]
    {
        assert_eq!(written.pointer(pointer), text.pointer(pointer), "{pointer}");
        assert!(written.pointer(pointer).is_some(), "{pointer}");
    }
}

/// The record of Weir that the versions of Helm have read.
fn ours() -> Record {
    let mut record = Record::decode(V4).unwrap();
    record.info = Info {
        first_deployed: "2026-05-06T07:08:09.123456789Z".to_owned(),
        last_deployed: "2026-05-07T07:08:09Z".to_owned(),
        description: "Preparing upgrade with \"quotes\" <&>".to_owned(),
        status: Status::PendingUpgrade,
        ..Info::default()
    };
    record.hooks.push(RecordHook {
        name: "plain".to_owned(),
        kind: "Job".to_owned(),
        events: vec!["pre-upgrade".to_owned()],
        ..RecordHook::default()
    });
    record.version = 4;
    record
}

#[test]
fn records_of_weir_are_read_by_helm() {
    let record = ours();
    assert!(
        Record::decode(WEIR).is_ok_and(|stored| stored == record),
        "store this as recorded/releases/weir.txt and run the recorder again:\n{}",
        record.encode().unwrap()
    );
    let written = serde_json::to_value(&record).unwrap();
    same(&written, &json(WEIR_READ_BY_V4));
    // Version 3 does not know how objects were applied.
    let mut for_v3 = written;
    for_v3.as_object_mut().unwrap().remove("apply_method");
    same(&for_v3, &json(WEIR_READ_BY_V3));
}
