use serde_json::{Value, json};

use weir_kustomize::NoRemote;

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
fn kustomization(spec: Value) -> Kustomization {
    let mut object = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "apps", "namespace": "prod"},
        "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn tree(files: &[(&str, &'static str)]) -> MemoryTree {
    files.iter().map(|(path, content)| (*path, *content)).collect()
}

fn prepared_objects(
    files: &MemoryTree,
    directory: &str,
    object: &Kustomization,
) -> Result<Vec<Value>, BuildError> {
    objects(&prepare(Arc::new(files.clone()), directory, object)?, directory, &NoRemote)
}

#[track_caller]
fn check_directory(path: &str, expected: Result<&str, &str>) {
    let files = tree(&[("apps/prod/a.yaml", ""), ("apps/staging/a.yaml", ""), ("file.yaml", "")]);
    let object = kustomization(json!({"path": path}));
    let got = directory(&files, &object, "main@sha1:4f2c").map_err(|cause| cause.to_string());
    assert_eq!(got.as_deref().map_err(String::as_str), expected);
}

#[test]
fn paths_stay_in_the_artifact_and_must_exist() {
    check_directory("", Ok(""));
    check_directory("./apps/prod/", Ok("apps/prod"));
    check_directory("/apps/prod", Ok("apps/prod"));
    check_directory("../../apps/prod", Ok("apps/prod"));
    check_directory(
        "./apps/prd",
        Err(
            "kustomization path not found: stat ./apps/prd: no such file or directory (GitRepository/prod/fleet at main@sha1:4f2c); did you mean './apps/prod'?",
        ),
    );
    check_directory(
        "./else/where",
        Err(
            "kustomization path not found: stat ./else/where: no such file or directory (GitRepository/prod/fleet at main@sha1:4f2c)",
        ),
    );
    check_directory(
        "file.yaml",
        Err(
            "kustomization path not found: stat file.yaml: no such file or directory (GitRepository/prod/fleet at main@sha1:4f2c)",
        ),
    );
}

const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: ${VALUE}\n";

#[test]
fn a_plain_directory_is_built_with_what_the_spec_says() {
    let files = tree(&[
        ("apps/a.yaml", CONFIG),
        ("apps/sub/b.yml", "apiVersion: v1\nkind: Service\nmetadata: {name: b}\n"),
        ("apps/README.md", "x"),
    ]);
    let object = kustomization(json!({
        "targetNamespace": "team", "namePrefix": "x-",
        "patches": [{"patch": "- op: add\n  path: /metadata/labels\n  value: {patched: 'yes'}", "target": {"kind": "Service"}}],
        "commonMetadata": {"labels": {"env": "test"}, "annotations": {"note": "n"}},
        "postBuild": {"substitute": {"VALUE": "1"}},
    }));
    let mut built = prepared_objects(&files, "apps", &object).unwrap();
    let first = first_substituted(&object.spec, &built).unwrap();
    assert_eq!(full_name(first), "ConfigMap.v1.[noGrp]/x-a");
    let variables: Variables = [("VALUE", "1")].into_iter().collect();
    substitute(&mut built, &variables, Substitution { strict: true, always: false }).unwrap();
    let finished = finish(&object, built).unwrap();
    let owner = json!({"env": "test", "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "prod"});
    assert_eq!(
        finished[0]["metadata"],
        json!({"name": "x-a", "namespace": "team", "labels": owner, "annotations": {"note": "n"}})
    );
    assert_eq!(finished[1]["metadata"]["labels"]["patched"], "yes");
    assert_eq!(finished.len(), 2);
}

#[test]
fn mistakes_name_the_file() {
    let files = tree(&[("a.yaml", "kind: [")]);
    let error = prepared_objects(&files, "", &kustomization(json!({}))).unwrap_err().to_string();
    assert!(error.contains("a.yaml"), "{error}");
    let files = tree(&[("kustomization.yaml", "resources: [missing.yaml]")]);
    let error = prepared_objects(&files, "", &kustomization(json!({}))).unwrap_err().to_string();
    assert!(error.starts_with("kustomize build failed: ") && error.contains("missing.yaml"), "{error}");
}

#[test]
fn unset_variables_fail_with_the_name_of_the_object() {
    let files = tree(&[("a.yaml", CONFIG)]);
    let mut built = prepared_objects(&files, "", &kustomization(json!({}))).unwrap();
    let variables: Variables = [("OTHER", "1")].into_iter().collect();
    let error = substitute(&mut built, &variables, Substitution { strict: true, always: false }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "post build failed for 'ConfigMap.v1.[noGrp]/a': envsubst error: variable substitution failed: variable not set (strict mode): \"VALUE\""
    );
}

#[test]
fn encrypted_data_is_never_applied() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: ENC}\nsops: {mac: 'ENC[x]'}\n";
    let files = tree(&[("s.yaml", secret)]);
    let plain = kustomization(json!({}));
    let built = prepared_objects(&files, "", &plain).unwrap();
    assert_eq!(
        finish(&plain, built).unwrap_err().to_string(),
        "Secret/s is SOPS encrypted, configuring decryption is required for this secret to be reconciled"
    );
    let mut kept = prepared_objects(&files, "", &plain).unwrap();
    kept[0]["metadata"]["annotations"] = json!({"kustomize.toolkit.fluxcd.io/decrypt": "Disabled"});
    assert!(finish(&plain, kept).is_ok(), "an annotation says that this is meant");
}

#[test]
fn lists_are_taken_apart_and_kustomization_files_left_out() {
    let object = kustomization(json!({}));
    let item = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let finished = finish(
        &object,
        vec![
            json!({"apiVersion": "v1", "kind": "List", "items": [item("a"), item("b")]}),
            json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "kustomization", "metadata": {"name": "k"}}),
        ],
    )
    .unwrap();
    let names: Vec<String> = finished.iter().map(|object| ObjectRef::of(object).to_string()).collect();
    assert_eq!(names, ["ConfigMap/a", "ConfigMap/b"]);
}

#[test]
fn the_digest_covers_the_text_of_the_build() {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"b": "1", "a": "2"}});
    let text = "apiVersion: v1\ndata:\n  a: \"2\"\n  b: \"1\"\nkind: ConfigMap\n";
    assert_eq!(
        digest(&[object.clone(), object]),
        format!("sha256:{}", hex::encode(Sha256::digest(format!("{text}---\n{text}"))))
    );
}

#[test]
fn opting_out_of_substitution_depends_on_the_case() {
    let object = kustomization(json!({"postBuild": {"substitute": {"VALUE": "1"}}}));
    let config = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a",
            "annotations": {"kustomize.toolkit.fluxcd.io/substitute": value}}, "data": {"k": "${VALUE}"}})
    };
    let is_substituted = |value: &str| first_substituted(&object.spec, &[config(value)]).is_some();
    assert!(!is_substituted("disabled"));
    assert!(is_substituted("Disabled") && is_substituted("enabled"));
}
