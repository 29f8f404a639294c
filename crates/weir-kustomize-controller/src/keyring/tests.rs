//! Which keys are imported from where.

use serde_json::json;

use super::*;
use crate::world::{World, keyring};

const AGE: &str = include_str!("../../../weir-sops/tests/keys/age.agekey");
const PGP: &str = include_str!("../../../weir-sops/tests/keys/pgp_curve.asc");

fn put_secret(world: &World, namespace: &str, entries: &[(&str, &str)]) {
    let data: serde_json::Map<String, Value> =
        entries.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
    world.cluster.put(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": namespace}, "data": data,
    }));
}

fn world(decryption: &Value) -> World {
    World::new(json!({"decryption": decryption}), &[])
}

async fn keys(world: &World) -> Result<Keys, String> {
    let reconciler = &world.reconciler;
    let keys = reconciler.keyring.keys(&reconciler.clusters, &world.object).await;
    keys.map_err(|error| error.to_string()).map(Option::unwrap)
}

#[tokio::test]
async fn entries_are_keys_by_their_names() {
    let world = world(&json!({"provider": "sops", "secretRef": {"name": "keys"}}));
    put_secret(
        &world,
        "flux-system",
        &[
            ("a.agekey", AGE),
            ("b.asc", PGP),
            ("sops.vault-token", " token \n"),
            ("sops.aws-kms", "aws_access_key_id: a\naws_secret_access_key: b\n"),
            ("sops.azure-kv", "clientId: c\n"),
            ("other.aws-kms", "["),
            ("anything", "["),
        ],
    );
    let keys = keys(&world).await.unwrap();
    assert!(!keys.local.age.is_empty() && keys.aws.is_some() && keys.azure.is_some() && keys.gcp.is_none());
    assert_eq!(format!("{:?}", keys.local.pgp), "PgpKeys(1)");
    assert_eq!(keys.vault.unwrap().token("http://vault").await.unwrap().expose(), "token");
}

#[tokio::test]
async fn what_cannot_be_used_is_named_without_being_shown() {
    let world = world(&json!({"provider": "sops", "secretRef": {"name": "keys"}}));
    assert_eq!(keys(&world).await.unwrap_err(), "secrets \"keys\" not found");
    for (name, content, expected) in [
        ("a.agekey", "s3cret", "failed to parse and add to age identities: unknown identity type (line 1)"),
        ("a.asc", "s3cret", "failed to import armored key data into GnuPG keyring: "),
        ("sops.aws-kms", "s3cret", "failed to parse AWS credentials file: "),
        ("sops.azure-kv", "s3cret", "invalid data: requires a 'clientId' field"),
        ("sops.gcp-kms", "s3cret", "the credentials are not JSON"),
    ] {
        put_secret(&world, "flux-system", &[(name, content)]);
        let error = keys(&world).await.unwrap_err();
        let expected = format!(
            "failed to import '{name}' data from sops decryption Secret 'flux-system/keys': {expected}"
        );
        assert!(error.starts_with(&expected) && !error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn the_global_secret_is_for_those_that_name_none() {
    let mut world = world(&json!({"provider": "sops"}));
    world.reconciler.keyring =
        Keyring { namespace: Some("controllers".to_owned()), age_secret: "keys".to_owned(), ..keyring() };
    assert_eq!(keys(&world).await.unwrap_err(), "secrets \"keys\" not found");
    put_secret(&world, "controllers", &[("a.agekey", AGE), ("sops.aws-kms", "["), ("b.asc", "[")]);
    let found = keys(&world).await.unwrap();
    assert!(!found.local.age.is_empty() && found.aws.is_none(), "age keys alone");
    world.reconciler.keyring.namespace = None;
    assert!(keys(&world).await.unwrap().local.age.is_empty(), "off without a namespace");

    world.object.spec.decryption.as_mut().unwrap().secret_ref =
        Some(weir_api::reference::LocalObjectReference { name: "keys".to_owned() });
    world.reconciler.keyring.namespace = Some("controllers".to_owned());
    put_secret(&world, "flux-system", &[("a", "")]);
    assert!(keys(&world).await.unwrap().local.age.is_empty(), "the own Secret alone counts");
}

#[tokio::test]
async fn keys_of_the_process_step_in_for_missing_ones() {
    let mut world = world(&json!({"provider": "sops"}));
    world.reconciler.keyring.process_age.import(AGE).unwrap();
    world.reconciler.keyring.process_vault_token = Some(Secret::new("token"));
    let keys = keys(&world).await.unwrap();
    assert!(!keys.local.age.is_empty());
    assert_eq!(keys.vault.unwrap().token("http://vault").await.unwrap().expose(), "token");
}

#[tokio::test]
async fn vault_servers_must_be_listed() {
    let mut world = world(&json!({"provider": "sops"}));
    world.reconciler.keyring = Keyring {
        namespace: Some("controllers".to_owned()),
        vault_config_map: "vault".to_owned(),
        process_vault_token: Some(Secret::new("token")),
        ..keyring()
    };
    let config = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vault", "namespace": "controllers"},
            "data": {"config.yaml": text},
        })
    };
    let error = async |world: &World| {
        let vault = keys(world).await.unwrap().vault.unwrap();
        vault.token("http://vault").await.unwrap_err().to_string()
    };
    assert_eq!(
        error(&world).await,
        "failed to get Vault ConfigMap 'controllers/vault': configmaps \"vault\" not found"
    );
    world.cluster.put(config("instances: [{address: 'http://other', loginPath: p}]\n"));
    assert_eq!(
        error(&world).await,
        "no Vault login path configured for address 'http://vault' in ConfigMap 'controllers/vault'"
    );
    world.cluster.put(config("instances: [{address: 'http://vault', loginPath: p}]\n"));
    assert_eq!(
        error(&world).await,
        "failed to issue Kubernetes token for Vault authentication: no tokens here"
    );
}

#[test]
fn roles_come_from_the_subject_of_the_token() {
    let token = |claims: &str| format!("x.{}.y", URL_SAFE_NO_PAD.encode(claims));
    assert_eq!(role(&token(r#"{"sub": "system:serviceaccount:ns:sa"}"#)).as_deref(), Ok("ns_sa"));
    assert_eq!(role(&token(r#"{"sub": "admin"}"#)), Err("unexpected token subject"));
    assert_eq!(role(&token("[")), Err("failed to unmarshal token payload"));
    assert_eq!(role("x.y"), Err("not a JWT"));
}
