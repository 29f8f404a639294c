use std::time::Duration;

use serde_json::{Value, json};
use weir_api::condition::Condition;

use super::*;

fn receiver(spec: &Value, status: &Value) -> Receiver {
    serde_json::from_value(json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver",
        "metadata": {"name": "fleet", "namespace": "apps", "generation": 3},
        "spec": spec, "status": status,
    }))
    .unwrap()
}

fn github() -> Value {
    json!({
        "type": "github", "secretRef": {"name": "token"},
        "resources": [{"kind": "GitRepository", "name": "fleet"}],
    })
}

fn ended() -> Ended {
    Ended { now: "2026-03-01T12:00:00Z".parse().unwrap(), elapsed: Duration::ZERO }
}

fn told(conditions: &[Condition]) -> Vec<String> {
    let tell = |condition: &Condition| {
        format!("{}={:?} {}: {}", condition.type_, condition.status, condition.reason, condition.message)
    };
    conditions.iter().map(tell).collect()
}

fn notices(conclusion: &Conclusion) -> Vec<String> {
    let tell = |notice: &Notice| format!("{:?} {}: {}", notice.severity, notice.reason, notice.message);
    conclusion.notices.iter().map(tell).collect()
}

#[test]
fn the_path_is_that_of_the_reference() {
    // printf '%s' 'tokenfleetapps' | sha256sum
    assert_eq!(
        webhook_path(b"token", "fleet", "apps"),
        format!("/hook/{}", hex::encode(Sha256::digest("tokenfleetapps")))
    );
    assert_ne!(webhook_path(b"token\n", "fleet", "apps"), webhook_path(b"token", "fleet", "apps"));
    assert_eq!(webhook_path(b"", "fleet", "apps"), webhook_path(b"fle", "et", "apps"));
}

#[test]
fn success_shows_the_path() {
    let mut object = receiver(&github(), &json!({"observedGeneration": -1}));
    let path = "/hook/abc".to_owned();
    let conclusion = conclude(&mut object, &Pass::Reconciled(Ok(&path)), ended());
    assert_eq!(told(object.conditions()), ["Ready=True Succeeded: Receiver initialized for path: /hook/abc"]);
    let status = object.status.unwrap();
    assert_eq!((status.observed_generation, status.webhook_path.as_deref()), (3, Some("/hook/abc")));
    assert_eq!(conclusion.requeue, Requeue::Interval(Duration::from_mins(10)));
    assert_eq!(notices(&conclusion), ["Info Succeeded: Reconciliation finished, next run in 10m0s"]);
}

#[test]
fn a_missing_token_closes_the_door_and_is_tried_again() {
    let before = json!({"observedGeneration": 2, "webhookPath": "/hook/abc", "conditions": [{
        "type": "Ready", "status": "True", "reason": "Succeeded", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2,
    }]});
    let mut object = receiver(&github(), &before);
    let failed =
        Failed::Error(ReceiverError::Token(CredentialsError::NoToken { secret: "apps/token".to_owned() }));
    let conclusion = conclude(&mut object, &Pass::Reconciled(Err(&failed)), ended());
    assert_eq!(
        told(object.conditions()),
        [
            "Reconciling=True ProgressingWithRetry: Reconciliation in progress",
            "Ready=False TokenNotFound: invalid 'apps/token' secret data: required fields 'token'",
        ]
    );
    let status = object.status.unwrap();
    assert_eq!((status.observed_generation, status.webhook_path), (2, None));
    assert_eq!(conclusion.requeue, Requeue::Backoff);
    assert_eq!(
        notices(&conclusion),
        ["Error Failed: invalid 'apps/token' secret data: required fields 'token'"]
    );
}

#[test]
fn a_wrong_spec_is_terminal() {
    let mut object = receiver(&github(), &json!({"observedGeneration": 2, "webhookPath": "/hook/abc"}));
    let failed = Failed::Error(ReceiverError::Spec(InvalidSpec::Expression("invalid x".to_owned())));
    let conclusion = conclude(&mut object, &Pass::Reconciled(Err(&failed)), ended());
    let message = "Reconciliation failed terminally due to configuration error: invalid x";
    assert_eq!(
        told(object.conditions()),
        [
            format!("Stalled=True InvalidCELExpression: {message}"),
            format!("Ready=False InvalidCELExpression: {message}"),
        ]
    );
    assert_eq!(object.status.as_ref().unwrap().observed_generation, 3);
    assert_eq!(conclusion.requeue, Requeue::Never);
    assert_eq!(notices(&conclusion), [format!("Error InvalidCELExpression: {message}")]);
    // And when it is right again, nothing of that is left.
    let path = "/hook/abc".to_owned();
    conclude(&mut object, &Pass::Reconciled(Ok(&path)), ended());
    assert_eq!(told(object.conditions()), ["Ready=True Succeeded: Receiver initialized for path: /hook/abc"]);
}

#[test]
fn a_suspended_object_stays_as_it_is() {
    let before = json!({"observedGeneration": 2, "webhookPath": "/hook/abc", "conditions": [{
        "type": "Ready", "status": "True", "reason": "Succeeded", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2,
    }]});
    let mut object = receiver(&github(), &before);
    let conclusion = conclude(&mut object, &Pass::Suspended, ended());
    assert_eq!(told(object.conditions()), ["Ready=True Succeeded: m"]);
    assert_eq!(object.status.unwrap().observed_generation, 3);
    assert_eq!((conclusion.requeue, conclusion.notices.len()), (Requeue::Never, 0));
}

#[track_caller]
fn check(change: &Value, expected: &str) {
    let mut spec = github();
    for (key, value) in change.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let result = validate(&receiver(&spec, &json!({})).spec);
    assert_eq!(result.map_err(|error| error.to_string()), Err(expected.to_owned()), "{change}");
}

#[test]
fn specs_the_api_server_should_have_refused() {
    assert_eq!(validate(&receiver(&github(), &json!({})).spec), Ok(()));
    check(&json!({"secretRef": null}), "secretRef is required when type is not generic-oidc");
    check(
        &json!({"type": "generic-oidc", "secretRef": null}),
        "generic-oidc receiver requires at least one oidcProvider",
    );
    let provider = json!({"issuerURL": "https://a", "validations": [{"expression": "true", "message": "m"}]});
    check(&json!({"oidcProviders": [provider]}), "oidcProviders can only be set when type is generic-oidc");
    check(
        &json!({"type": "generic-oidc", "oidcProviders": [provider]}),
        "secretRef cannot be set when type is generic-oidc",
    );
    let oidc = |providers: Value, expected: &str| {
        check(&json!({"type": "generic-oidc", "secretRef": null, "oidcProviders": providers}), expected);
    };
    oidc(json!([{"issuerURL": "", "validations": []}]), "oidcProviders[0]: issuerURL is required");
    oidc(
        json!([{"issuerURL": "ftp://a", "validations": []}]),
        "oidcProviders[0]: issuerURL \"ftp://a\" must start with http:// or https://",
    );
    oidc(json!([provider, provider]), "oidcProviders[1]: duplicate issuerURL \"https://a\"");
    oidc(
        json!([{"issuerURL": "https://a", "validations": []}]),
        "oidcProviders[0] (issuerURL=\"https://a\"): at least one validation is required; \
         without one, anybody who gets a token of this issuer can trigger the Receiver",
    );
    oidc(
        json!([{"issuerURL": "https://a", "validations": [{"expression": "claims.ok", "message": "m"}]}]),
        "oidcProviders[0] (issuerURL=\"https://a\"): invalid expression for validation \"m\": \
         CEL expression output type mismatch: expected bool, got dyn",
    );
    check(
        &json!({"resourceFilter": "req.ok"}),
        "invalid resourceFilter expression: CEL expression output type mismatch: expected bool, got dyn",
    );
}
