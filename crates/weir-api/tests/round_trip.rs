//! Objects that use every field of their definition survive reading and writing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use weir_api::crd;
use weir_api::extensions::ArtifactGenerator;
use weir_api::helm::HelmRelease;
use weir_api::image::{ImagePolicy, ImageRepository, ImageUpdateAutomation};
use weir_api::kustomize::Kustomization;
use weir_api::notification::{Alert, Provider, Receiver};
use weir_api::operator::{FluxInstance, FluxReport, ResourceSet, ResourceSetInputProvider};
use weir_api::source::{Bucket, ExternalArtifact, GitRepository, HelmChart, HelmRepository, OCIRepository};

/// An object with every field its schema names; only required ones if `only_required`.
fn sample(field: &str, schema: &Value, only_required: bool) -> Value {
    if schema.get("x-kubernetes-preserve-unknown-fields").is_some() {
        return json!({"anything": [1, "two"]});
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.last().cloned().unwrap();
    }
    match schema["type"].as_str().unwrap() {
        "object" => match schema["properties"].as_object() {
            Some(properties) => {
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                let fields = properties
                    .iter()
                    .filter(|(name, _)| !only_required || required.contains(&Value::from(name.as_str())))
                    .map(|(name, schema)| (name.clone(), sample(name, schema, only_required)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            None => json!({"key": sample("", &schema["additionalProperties"], only_required)}),
        },
        "array" => json!([sample("", &schema["items"], only_required)]),
        "boolean" => json!(true),
        "integer" => json!(7),
        "string" if schema["format"] == "date-time" => json!("2026-01-02T03:04:05Z"),
        "string" if field.ends_with("Duration") => json!("1.5s"),
        "string" if schema["pattern"].as_str().is_some_and(|pattern| pattern.contains("(ms|s|m")) => {
            json!("1m30s")
        }
        "string" => json!(format!("a {field}")),
        other => panic!("{field} is of type {other}"),
    }
}

#[track_caller]
fn check<T: DeserializeOwned + Serialize>(kind: &str) {
    let definition = crd::definitions()
        .into_iter()
        .find(|definition| definition["spec"]["names"]["kind"] == kind)
        .unwrap();
    let (group, version) =
        (definition["spec"]["group"].as_str().unwrap(), &definition["spec"]["versions"][0]);
    let schema = &version["schema"]["openAPIV3Schema"]["properties"];
    let object = |only_required| {
        let mut object = json!({
            "apiVersion": format!("{group}/{}", version["name"].as_str().unwrap()), "kind": kind,
            "metadata": {"name": "web", "namespace": "apps", "labels": {"team": "web"}},
            "spec": sample("spec", &schema["spec"], only_required),
        });
        if let Some(status) = schema.get("status") {
            object["status"] = sample("status", status, only_required);
        }
        object
    };
    let full = object(false);
    let read: T = serde_json::from_value(full.clone()).unwrap_or_else(|error| panic!("{kind}: {error}"));
    assert_eq!(serde_json::to_value(&read).unwrap(), full, "{kind}");
    // Reading what the API server stores for a minimal object works as well.
    serde_json::from_value::<T>(object(true)).unwrap_or_else(|error| panic!("minimal {kind}: {error}"));
}

#[test]
fn every_field_of_every_kind() {
    check::<GitRepository>("GitRepository");
    check::<OCIRepository>("OCIRepository");
    check::<Bucket>("Bucket");
    check::<HelmRepository>("HelmRepository");
    check::<HelmChart>("HelmChart");
    check::<ExternalArtifact>("ExternalArtifact");
    check::<Kustomization>("Kustomization");
    check::<HelmRelease>("HelmRelease");
    check::<Alert>("Alert");
    check::<Provider>("Provider");
    check::<Receiver>("Receiver");
    check::<ImageRepository>("ImageRepository");
    check::<ImagePolicy>("ImagePolicy");
    check::<ImageUpdateAutomation>("ImageUpdateAutomation");
    check::<ArtifactGenerator>("ArtifactGenerator");
    check::<FluxInstance>("FluxInstance");
    check::<FluxReport>("FluxReport");
    check::<ResourceSet>("ResourceSet");
    check::<ResourceSetInputProvider>("ResourceSetInputProvider");
}
