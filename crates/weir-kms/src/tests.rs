//! Every service against a server on loopback that answers as the real one does.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_base::clock::FixedClock;
use weir_base::redact::Secret;
use weir_sops::{KeyService, MasterKey, Place};

use super::*;

/// `the data key`
const KEY: &str = "dGhlIGRhdGEga2V5";

#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<Vec<(u16, String)>>>,
    seen: Arc<Mutex<Vec<(String, HeaderMap, String)>>>,
}

async fn answer(
    State(server): State<Server>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let body = String::from_utf8_lossy(&body).into_owned();
    server.seen.lock().push((format!("{method} {uri}"), headers, body));
    let (status, body) = server.answers.lock().remove(0);
    (StatusCode::from_u16(status).unwrap(), body)
}

impl Server {
    /// Serves `answers`, one for each request; the address.
    async fn start(answers: &[(u16, Value)]) -> (Self, String) {
        let server = Self::default();
        *server.answers.lock() = answers
            .iter()
            .map(|(status, body)| (*status, body.as_str().map_or_else(|| body.to_string(), str::to_owned)))
            .collect();
        let router = Router::new().fallback(answer).with_state(server.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, address)
    }

    fn request(&self, number: usize) -> (String, HeaderMap, String) {
        self.seen.lock()[number].clone()
    }
}

fn keys() -> Keys {
    let clock = FixedClock("2026-01-01T00:00:00Z".parse().unwrap());
    Keys::new(Requests::new().unwrap(), Arc::new(clock))
}

fn key(place: Place) -> MasterKey {
    MasterKey { place, encrypted: "c2VhbGVk".to_owned() }
}

async fn unlocked(keys: &Keys, place: Place) -> Result<String, String> {
    let result = keys.unlock(&key(place)).await;
    result.map(|key| String::from_utf8_lossy(key.expose()).into_owned()).map_err(|error| error.to_string())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

fn private_key() -> String {
    // ring reads RSA keys but cannot make them; this one was made for the test.
    include_str!("test_key.pem").to_owned()
}

fn aws_place(role: &str) -> Place {
    Place::AwsKms {
        arn: "arn:aws:kms:eu-west-1:1:key/x".to_owned(),
        role: role.to_owned(),
        context: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        profile: String::new(),
    }
}

fn aws_credentials() -> AwsCredentials {
    AwsCredentials {
        access_key: "AKID".to_owned(),
        secret_key: Secret::new("s3cret"),
        session_token: Secret::new("session"),
    }
}

#[tokio::test]
async fn aws_decrypts_with_the_context_of_the_key() {
    let (server, address) = Server::start(&[(200, json!({"Plaintext": KEY}))]).await;
    let mut keys = keys();
    keys.aws = Some(aws_credentials());
    keys.endpoints.aws_kms = Some(address);
    assert_eq!(unlocked(&keys, aws_place("")).await.as_deref(), Ok("the data key"));
    let (line, headers, body) = server.request(0);
    assert_eq!(line, "POST /");
    assert_eq!(header(&headers, "x-amz-target"), "TrentService.Decrypt");
    assert_eq!(header(&headers, "x-amz-security-token"), "session");
    assert!(header(&headers, "authorization").starts_with(
        "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu-west-1/kms/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, Signature="
    ));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({"KeyId": "arn:aws:kms:eu-west-1:1:key/x", "CiphertextBlob": "c2VhbGVk", "EncryptionContext": {"app": "web"}})
    );
}

#[tokio::test]
async fn aws_assumes_the_role_of_the_key() {
    let credentials = "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>TEMP</AccessKeyId><SecretAccessKey>x</SecretAccessKey><SessionToken>y</SessionToken></Credentials></AssumeRoleResult></AssumeRoleResponse>";
    let (server, address) =
        Server::start(&[(200, json!(credentials)), (200, json!({"Plaintext": KEY}))]).await;
    let mut keys = keys();
    keys.aws = Some(aws_credentials());
    keys.endpoints.aws_kms = Some(address.clone());
    keys.endpoints.aws_sts = Some(address);
    assert_eq!(unlocked(&keys, aws_place("arn:aws:iam::1:role/r")).await.as_deref(), Ok("the data key"));
    assert!(server.request(0).2.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr"));
    assert!(header(&server.request(1).1, "authorization").contains("Credential=TEMP/"));
}

#[tokio::test]
async fn refusals_say_why_and_show_no_secrets() {
    let (_, address) =
        Server::start(&[(400, json!({"__type": "AccessDeniedException", "message": "not authorized"}))])
            .await;
    let mut keys = keys();
    keys.aws = Some(aws_credentials());
    keys.endpoints.aws_kms = Some(address);
    assert_eq!(
        unlocked(&keys, aws_place("")).await.unwrap_err(),
        "failed to decrypt sops data key with AWS KMS: 400: not authorized"
    );
    let vault = Place::Vault {
        address: "http://127.0.0.1:1".to_owned(),
        engine: "transit".to_owned(),
        name: "k".to_owned(),
    };
    keys.vault = Some(Arc::new(Secret::new("s3cret")));
    let error = unlocked(&keys, vault).await.unwrap_err();
    assert!(
        error.starts_with("failed to decrypt sops data key from Vault transit backend 'transit/decrypt/k': connection failed"),
        "{error}"
    );
    assert!(!error.contains("s3cret"));
}

#[tokio::test]
async fn without_credentials_nothing_is_asked() {
    let error = unlocked(&keys(), aws_place("")).await.unwrap_err();
    assert_eq!(error, "no credentials for AWS KMS");
}

#[tokio::test]
async fn gcp_exchanges_the_key_of_the_account() {
    let (server, address) = Server::start(&[
        (200, json!({"access_token": "token"})),
        (200, json!({"plaintext": KEY})),
        (403, json!({"error": {"message": "denied"}})),
    ])
    .await;
    let mut keys = keys();
    let account = json!({
        "type": "service_account", "client_email": "a@b", "private_key_id": "1",
        "private_key": private_key(), "token_uri": format!("{address}/token"),
    });
    keys.gcp = Some(GcpCredentials::from_json(account.to_string().as_bytes()).unwrap());
    keys.endpoints.gcp_kms = Some(address);
    let resource = "projects/p/locations/global/keyRings/r/cryptoKeys/k";
    let place = Place::GcpKms { resource: resource.to_owned() };
    assert_eq!(unlocked(&keys, place.clone()).await.as_deref(), Ok("the data key"));
    let (line, _, body) = server.request(0);
    assert_eq!(line, "POST /token");
    assert!(
        body.starts_with("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=ey")
    );
    let (line, headers, _) = server.request(1);
    assert_eq!(line, format!("POST /v1/{resource}:decrypt"));
    assert_eq!(header(&headers, "authorization"), "Bearer token");
    let error = unlocked(&keys, place).await.unwrap_err();
    assert_eq!(error, "cannot create GCP KMS service: cannot get an access token: 403: denied");
    let evil = Place::GcpKms { resource: "../../evil?x".to_owned() };
    assert!(unlocked(&keys, evil).await.unwrap_err().contains("not the name of a key"));
    let unknown = GcpCredentials::from_json(br#"{"type": "external_account"}"#).unwrap_err();
    assert_eq!(unknown.to_string(), "credentials of type 'external_account' are not supported");
}

fn azure_place(address: &str) -> Place {
    Place::AzureKeyVault { vault: address.to_owned(), name: "k".to_owned(), version: "1".to_owned() }
}

#[tokio::test]
async fn azure_takes_passwords_certificates_and_managed_identities() {
    let token = (200, json!({"access_token": "token"}));
    let value = (200, json!({"value": KEY}));
    let (server, address) =
        Server::start(&[token.clone(), value.clone(), token.clone(), value.clone(), token, value]).await;
    let mut keys = keys();
    keys.endpoints.azure_metadata = Some(address.clone());
    let pem = format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{}", private_key());
    let configs = [
        json!({"tenantId": "t", "clientId": "c", "clientSecret": "s3cret", "authorityHost": address}),
        json!({"tenantId": "t", "clientId": "c", "clientCertificate": pem, "authorityHost": address}),
        json!({"clientId": "c"}),
    ];
    for config in configs {
        keys.azure = Some(AzureCredentials::from_config(config.to_string().as_bytes()).unwrap());
        assert_eq!(unlocked(&keys, azure_place(&address)).await.as_deref(), Ok("the data key"));
    }
    assert_eq!(server.request(0).0, "POST /t/oauth2/v2.0/token");
    assert!(server.request(0).2.contains("client_secret=s3cret"));
    let (line, headers, body) = server.request(1);
    assert_eq!(line, "POST /keys/k/1/decrypt?api-version=7.4");
    assert_eq!(header(&headers, "authorization"), "Bearer token");
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({"alg": "RSA-OAEP-256", "value": "c2VhbGVk"})
    );
    assert!(server.request(2).2.contains("client_assertion=ey"));
    let (line, headers, _) = server.request(4);
    assert!(line.starts_with("GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource="));
    assert_eq!(header(&headers, "metadata"), "true");
}

#[tokio::test]
async fn vault_is_asked_with_a_token() {
    let (server, address) = Server::start(&[
        (200, json!({"data": {"plaintext": KEY}})),
        (200, json!({"auth": {"client_token": "vault"}})),
        (403, json!({"errors": ["permission denied"]})),
        (200, json!({"auth": null})),
    ])
    .await;
    let mut keys = keys();
    keys.vault = Some(Arc::new(Secret::new("token")));
    let place =
        Place::Vault { address: address.clone(), engine: "sops/transit".to_owned(), name: "k".to_owned() };
    assert_eq!(unlocked(&keys, place).await.as_deref(), Ok("the data key"));
    let (line, headers, body) = server.request(0);
    assert_eq!(line, "PUT /v1/sops/transit/decrypt/k");
    assert_eq!(header(&headers, "x-vault-token"), "token");
    assert_eq!(body, r#"{"ciphertext":"c2VhbGVk"}"#);
    let identity = Secret::new("jwt");
    let login = || vault_login(&keys.requests, &address, "auth/kubernetes/login", "ns_sa", &identity);
    assert_eq!(login().await.unwrap().expose(), "vault");
    assert_eq!(server.request(1).0, "PUT /v1/auth/kubernetes/login");
    assert_eq!(server.request(1).2, r#"{"jwt":"jwt","role":"ns_sa"}"#);
    assert!(login().await.unwrap_err().to_string().ends_with("as role 'ns_sa': 403: permission denied"));
    assert!(login().await.unwrap_err().to_string().contains("returned no token for login"));
}
