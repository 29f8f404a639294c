//! What is decrypted, when, and into what. The documents are the ones the real sops encrypted for `weir-sops`.

use std::sync::Arc;

use serde_json::json;
use weir_base::tree::MemoryTree;
use weir_sops::LocalKeys;

use super::*;

macro_rules! golden {
    ($path:literal) => {
        include_str!(concat!("../../../weir-sops/tests/golden/", $path))
    };
}

const AGE: &str = include_str!("../../../weir-sops/tests/keys/age.agekey");

fn keys() -> LocalKeys {
    let mut keys = LocalKeys::default();
    keys.age.import(AGE).unwrap();
    keys
}

fn tree(files: &[(&str, &str)]) -> MemoryTree {
    files.iter().map(|(path, content)| (*path, (*content).to_owned())).collect()
}

async fn plain(files: &[(&str, &str)], directory: &str) -> Result<Vec<(String, String)>, String> {
    let decrypted = sources(&tree(files), directory, &keys()).await.map_err(|error| error.to_string())?;
    Ok(decrypted
        .into_iter()
        .map(|(path, content)| (path, String::from_utf8_lossy(&content).into_owned()))
        .collect())
}

const DOTENV: &str = golden!("dotenv/encrypted.dotenv");
const BINARY: &str = golden!("binary-text/encrypted.binary");
const JSON: &str = golden!("json-dockerconfig/encrypted.json");
const PATCH: &str = golden!("yaml-patch/encrypted.yaml");
const INI: &str = golden!("ini-simple/encrypted.ini");

#[tokio::test]
async fn files_of_secret_generators_and_patches_are_decrypted_before_the_build() {
    let kustomization = "
secretGenerator:
- name: a
  envs: [.env, other]
  files: [token, .dockerconfigjson=docker, settings.ini, plain.txt]
configMapGenerator:
- name: b
  files: [left]
patches:
- path: patch.yaml
- path: https://example.com/patch.yaml
resources: [../base, list.yaml, https://example.com/x]
components: [part]
";
    let part = "secretGenerator: [{name: c, files: [../token, key=/apps/deep]}]\n";
    let files = [
        ("apps/kustomization.yaml", kustomization),
        ("apps/.env", DOTENV),
        ("apps/other", DOTENV),
        ("apps/token", BINARY),
        ("apps/docker", JSON),
        ("apps/settings.ini", INI),
        ("apps/plain.txt", "nothing to hide"),
        ("apps/left", BINARY),
        ("apps/patch.yaml", PATCH),
        ("apps/list.yaml", PATCH),
        ("apps/deep", BINARY),
        ("apps/part/kustomization.yml", part),
        ("base/Kustomization", "resources: [../apps]\n"),
    ];
    assert_eq!(
        plain(&files, "apps").await.unwrap(),
        [
            ("apps/.env", golden!("dotenv/want.dotenv")),
            ("apps/deep", golden!("binary-text/want.binary")),
            ("apps/docker", golden!("json-dockerconfig/want.json")),
            ("apps/other", golden!("dotenv/want.dotenv")),
            ("apps/patch.yaml", golden!("yaml-patch/want.yaml")),
            ("apps/settings.ini", golden!("ini-simple/want.ini")),
            ("apps/token", golden!("binary-text/want.binary")),
        ]
        .map(|(path, content)| (path.to_owned(), content.to_owned()))
    );
}

#[tokio::test]
async fn mistakes_in_sources_name_the_file() {
    async fn check(files: &[(&str, &str)], expected: &str) {
        let error = plain(files, "").await.unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let generator = "secretGenerator: [{name: a, files: [token]}]\n";
    check(
        &[("kustomization.yaml", generator)],
        "error decrypting sources: lstat token: no such file or directory",
    )
    .await;
    check(
        &[("kustomization.yaml", generator), ("token/x", "")],
        "error decrypting sources: cannot decrypt irregular file as it has file mode type bits set",
    )
    .await;
    check(
        &[("kustomization.yaml", "resources: [a]\n"), ("a/b.yaml", "")],
        "error decrypting sources: no kustomization file found",
    )
    .await;
    check(
        &[("kustomization.yaml", ""), ("Kustomization", "")],
        "error decrypting sources: found multiple kustomization files",
    )
    .await;
    check(
        &[("kustomization.yaml", generator), ("token", "\"mac\": \"ENC[")],
        "error decrypting sources: 'token': failed to load encrypted binary data: Could not unmarshal input data: ",
    )
    .await;
    let large = format!("{BINARY}{}", " ".repeat(FILE_BYTES_MAX));
    check(
        &[("kustomization.yaml", generator), ("token", &large)],
        "error decrypting sources: cannot decrypt file with size (",
    )
    .await;
    let locked = golden!("key-pgp-rsa/encrypted.yaml");
    check(
        &[("kustomization.yaml", "patches: [{path: p.yaml}]\n"), ("p.yaml", locked)],
        "error decrypting sources: 'p.yaml': cannot get sops data key: Failed to get the data key required to decrypt the SOPS file.\n\nGroup 0: FAILED\n",
    )
    .await;
}

async fn decrypted(object: &Value) -> Result<Value, String> {
    let mut list = [object.clone()];
    objects(&mut list, &keys()).await.map_err(|error| error.to_string())?;
    let [object] = list;
    Ok(object)
}

fn secret(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": data})
}

#[tokio::test]
async fn whole_objects_are_decrypted_even_when_the_build_has_changed_them() {
    let documents =
        weir_manifest::read_documents(golden!("yaml-encrypted-regex/encrypted.yaml").as_bytes(), "").unwrap();
    let mut object = documents[0].clone();
    object["metadata"]["namespace"] = json!("added-by-the-build");
    let plain = decrypted(&object).await.unwrap();
    assert_eq!(plain["stringData"]["user"], "admin");
    assert_eq!(plain["stringData"]["multi"], "line one\nline two\n");
    assert_eq!(plain["metadata"]["namespace"], "added-by-the-build");
    assert_eq!(plain.get("sops"), None);
    let mut kept = object.clone();
    kept["metadata"]["annotations"] = json!({"kustomize.toolkit.fluxcd.io/decrypt": "Disabled"});
    assert_eq!(decrypted(&kept).await.unwrap(), kept, "an annotation opts out");
    let mut labelled = object.clone();
    labelled["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/decrypt": "disabled"});
    assert_eq!(decrypted(&labelled).await.unwrap().get("sops"), None, "a label does not");
    let mut without = object;
    without["sops"]["mac"] = json!("");
    assert_eq!(decrypted(&without).await.unwrap(), without, "without a checksum it is no SOPS document");
}

#[tokio::test]
async fn values_of_secrets_are_decrypted_into_the_format_of_their_key() {
    let encode = |text: &str| json!(STANDARD.encode(text));
    let object = secret(&json!({
        "config.json": encode(JSON), ".env": encode(DOTENV), "app.yaml": encode(PATCH), "token": encode(BINARY),
        "plain": encode("x"), "broken": "%%%",
    }));
    let plain = decrypted(&object).await.unwrap();
    assert_eq!(
        plain["data"],
        json!({
            "config.json": encode(golden!("json-dockerconfig/want.json")),
            ".env": encode(golden!("dotenv/want.dotenv")),
            "app.yaml": encode(golden!("yaml-patch/want.yaml")),
            "token": encode(golden!("binary-text/want.binary")),
            "plain": encode("x"), "broken": "%%%",
        })
    );
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": encode(BINARY)}});
    assert_eq!(decrypted(&config).await.unwrap(), config, "only Secrets");
    let mut string_data = secret(&json!({}));
    string_data["stringData"] = json!({"a": BINARY});
    assert_eq!(decrypted(&string_data).await.unwrap(), string_data, "only data");
}

#[tokio::test]
async fn mistakes_in_objects_name_the_object_and_the_key() {
    let object = secret(&json!({"a.yaml": STANDARD.encode("x: 1\nsops:\n    mac: ENC[x]\n")}));
    assert_eq!(
        decrypted(&object).await.unwrap_err(),
        "decryption failed for 'Secret.v1.[noGrp]/s': failed to decrypt and format 'n/s' Secret field 'a.yaml': failed to load encrypted YAML data: parsing time \"\" as \"2006-01-02T15:04:05Z07:00\" failed"
    );
    let binary = secret(&json!({"a": STANDARD.encode(PATCH)}));
    assert_eq!(
        decrypted(&binary).await.unwrap_err(),
        "decryption failed for 'Secret.v1.[noGrp]/s': failed to decrypt and format 'n/s' Secret field 'a': failed to emit encrypted YAML file as decrypted binary: error emitting binary store: no binary data found in tree"
    );
}

#[tokio::test]
async fn generated_secrets_hold_the_plain_text() {
    let kustomization =
        "secretGenerator: [{name: a, files: [token], options: {disableNameSuffixHash: true}}]\n";
    let files = Arc::new(tree(&[("kustomization.yaml", kustomization), ("token", BINARY)]));
    let object = serde_json::from_value(json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "a"},
        "spec": {"interval": "1m", "prune": true, "sourceRef": {"kind": "Bucket", "name": "a"}},
    }))
    .unwrap();
    let mut prepared = crate::build::prepare(files, "", &object).unwrap();
    prepared.replace(sources(&prepared, "", &keys()).await.unwrap());
    let built = crate::build::objects(&prepared, "", &weir_kustomize::NoRemote).unwrap();
    assert_eq!(built[0]["data"]["token"], STANDARD.encode(golden!("binary-text/want.binary")));
}
