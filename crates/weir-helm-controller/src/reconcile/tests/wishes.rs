//! What the reference does not have: encrypted values, and another try after all retries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use weir_runtime::Requeue;

use super::*;
use crate::decrypt::DECRYPTION_SECRET;
use crate::recover::RECOVER;

macro_rules! sops {
    ($path:literal) => {
        include_str!(concat!("../../../../weir-sops/tests/", $path))
    };
}

const AGE: &str = sops!("keys/age.agekey");
const TEXT: &str = sops!("golden/binary-text/encrypted.binary");
const FILE: &str = sops!("golden/yaml-default-suffix/encrypted.yaml");
const INLINE: &str = sops!("golden/json-types/encrypted.json");
const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata:\n  file: {{ .Values.b | quote }}\n  text: {{ .Values.text | quote }}\n  inline: {{ .Values.map.nested.deep | quote }}\n";

fn annotate(world: &mut World, key: &str, value: &str) {
    world.object.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
}

fn encrypted() -> World {
    let inline: Json = serde_json::from_str(INLINE).unwrap();
    let world = World::new(json!({
        "values": inline,
        "valuesFrom": [
            {"kind": "ConfigMap", "name": "values"},
            {"kind": "Secret", "name": "token", "valuesKey": "token", "targetPath": "text", "literal": true},
        ],
    }));
    world.publish("1.0.0", 'a', &[("templates/config.yaml", TEMPLATE)]);
    let object = |kind: &str, name: &str, data: Json| {
        json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "apps"}, "data": data,
        })
    };
    world.cluster.put(object("ConfigMap", "values", json!({"values.yaml": FILE})));
    world.cluster.put(object("Secret", "token", json!({"token": STANDARD.encode(TEXT)})));
    world.cluster.put(object("Secret", "keys", json!({"a.agekey": STANDARD.encode(AGE)})));
    world
}

#[tokio::test]
async fn encrypted_values_are_decrypted_if_an_annotation_names_the_keys() {
    let mut world = encrypted();
    annotate(&mut world, DECRYPTION_SECRET, "keys");
    world.run().await.unwrap();
    assert_eq!(
        world.config_map().unwrap()["data"],
        json!({"file": "2", "text": "just text\nwith lines\n", "inline": "value"})
    );
    // Decrypted once more they are the same values.
    world.writes();
    world.run().await.unwrap();
    assert_eq!((world.writes(), world.history()), (Vec::new(), vec!["1:deployed".to_owned()]));
}

#[tokio::test]
async fn without_the_annotation_encrypted_values_are_passed_on() {
    let mut world = encrypted();
    world.run().await.unwrap();
    let data = world.config_map().unwrap()["data"].clone();
    for key in ["file", "inline"] {
        assert!(data[key].as_str().unwrap().starts_with("ENC["), "{data}");
    }
    assert!(data["text"].as_str().unwrap().contains("sops"), "{data}");
}

#[tokio::test]
async fn what_cannot_be_decrypted_is_told_without_values() {
    let mut world = encrypted();
    annotate(&mut world, DECRYPTION_SECRET, "gone");
    let missing = "cannot get sops decryption Secret 'apps/gone': secrets \"gone\" not found";
    assert_eq!(world.run().await.unwrap_err(), missing);
    assert_eq!(world.ready(), "False/ValuesError");
    world.cluster.put(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gone", "namespace": "apps"},
        "data": {"a.agekey": STANDARD.encode("AGE-SECRET-KEY-NONE")},
    }));
    let error = world.run().await.unwrap_err();
    assert!(error.starts_with("failed to import 'a.agekey' data from"), "{error}");
    world.cluster.put(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gone", "namespace": "apps"}, "data": {},
    }));
    let error = world.run().await.unwrap_err();
    assert!(error.contains("'apps/values' with key 'values.yaml': cannot get sops data key"), "{error}");
    assert!(!error.contains("ENC["), "{error}");
}

/// A release whose upgrade failed, with no retries left.
async fn given_up() -> World {
    let mut world = World::new(json!({}));
    world.run().await.unwrap();
    world.change(|object| object.spec.values = Some(json!({"value": "two"})));
    let refused = ClusterError::Api { code: 403, reason: "Forbidden".to_owned(), message: "no".to_owned() };
    world.cluster.fail(Verb::Apply, "ConfigMap/apps/app", refused, 1);
    assert_eq!(world.run().await.unwrap_err(), "Failed to upgrade after 1 attempt(s)");
    assert!(condition::is_stalled(world.object.conditions()));
    world
}

#[tokio::test]
async fn a_release_that_was_given_up_is_upgraded_when_its_objects_are_well() {
    let mut world = given_up().await;
    // Off: nothing is done, however well the objects are.
    world.writes();
    world.run().await.unwrap_err();
    assert_eq!(world.writes(), Vec::<String>::new());
    annotate(&mut world, RECOVER, "enabled");
    world.run().await.unwrap();
    assert_eq!(world.ready(), "True/UpgradeSucceeded");
    assert_eq!(world.config_map().unwrap()["data"]["value"], "two");
    assert!(!condition::is_stalled(world.object.conditions()));
    assert_eq!(world.object.status.as_ref().unwrap().upgrade_failures, 0);
}

#[tokio::test]
async fn a_release_that_was_given_up_is_tried_again_after_a_while() {
    let mut world = given_up().await;
    annotate(&mut world, RECOVER, "enabled");
    world.cluster.take(&ObjectRef::core("ConfigMap", "apps", "app"));
    world.writes();
    assert_eq!(world.run().await.unwrap_err(), "Failed to upgrade after 1 attempt(s)");
    assert_eq!(world.writes(), Vec::<String>::new(), "the object is not there, and it is too early");
    let ended = Ended { now: Timestamp::UNIX_EPOCH, elapsed: std::time::Duration::ZERO };
    let failed = Failed::Error(Error::NoTarget);
    let conclusion =
        world.reconciler.conclude(&mut world.object.clone(), Pass::Reconciled(Err(&failed)), ended);
    assert_eq!(conclusion.requeue, Requeue::Interval(std::time::Duration::from_mins(1)));
    let later = Timestamp::UNIX_EPOCH.checked_add(std::time::Duration::from_mins(1)).unwrap();
    world.reconciler.clock = Arc::new(FixedClock(later));
    world.run().await.unwrap();
    assert_eq!(world.ready(), "True/UpgradeSucceeded");
    assert_eq!(world.config_map().unwrap()["data"]["value"], "two");
}
