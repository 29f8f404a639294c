//! Every service against a server on loopback that answers as the real one does.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_base::error::chain;
use weir_base::redact::Secret;

use crate::aws::{self, AwsCredentials};
use crate::azure::{AzureCredentials, STORAGE_RESOURCE};
use crate::gcp::{self, Federation, GcpCredentials};
use crate::github::{GitHubApp, Installation};
use crate::registry::{self, AwsRegistry};
use crate::{Environment, Requests};

const KEYS: &str = "<R><Credentials><AccessKeyId>TEMP</AccessKeyId><SecretAccessKey>s3cret</SecretAccessKey>\
    <SessionToken>session</SessionToken></Credentials></R>";

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

    fn lines(&self) -> Vec<String> {
        self.seen.lock().iter().map(|(line, _, _)| line.clone()).collect()
    }

    fn header(&self, number: usize, name: &str) -> String {
        self.seen.lock()[number].1[name].to_str().unwrap().to_owned()
    }

    fn body(&self, number: usize) -> String {
        self.seen.lock()[number].2.clone()
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// ring reads RSA keys but cannot make them; this one was made for the tests.
fn private_key() -> Secret {
    Secret::new(include_str!("test_key.pem"))
}

fn file(content: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

fn name(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

fn check_temporary(keys: &AwsCredentials) {
    assert_eq!((keys.access_key.as_str(), keys.session_token.expose()), ("TEMP", "session"));
    assert!(!format!("{keys:?}").contains("s3cret"));
}

#[tokio::test]
async fn keys_of_aws_come_from_where_the_process_runs() {
    let requests = Requests::new().unwrap();
    let found = async |environment: Environment, endpoint: Option<&str>| {
        aws::ambient_credentials(&requests, &environment, endpoint, "eu-west-1").await
    };
    let keys = Environment::of(&[("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "s3cret")]);
    assert_eq!(found(keys, None).await.unwrap().access_key, "AKID");

    // The service account of a pod.
    let (server, address) = Server::start(&[(200, json!(KEYS))]).await;
    let token = file("jwt\n");
    let role = [("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"), ("AWS_WEB_IDENTITY_TOKEN_FILE", name(&token))];
    check_temporary(&found(Environment::of(&role), Some(&address)).await.unwrap());
    assert_eq!(
        server.body(0),
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=weir&WebIdentityToken=jwt"
    );

    // The agent of a node.
    let keys = json!({"AccessKeyId": "TEMP", "SecretAccessKey": "s3cret", "Token": "session"});
    let (server, address) = Server::start(&[(200, keys.clone())]).await;
    let url = format!("{address}/v1/credentials");
    let token = file("agent");
    let agent = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", name(&token)),
    ];
    check_temporary(&found(Environment::of(&agent), None).await.unwrap());
    assert_eq!(server.header(0, "authorization"), "agent");

    // The machine.
    let (server, address) = Server::start(&[(200, json!("imds")), (200, json!("role\n")), (200, keys)]).await;
    let machine = Environment::of(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &address)]);
    check_temporary(&found(machine, None).await.unwrap());
    assert_eq!(
        server.lines(),
        [
            "PUT /latest/api/token",
            "GET /latest/meta-data/iam/security-credentials/",
            "GET /latest/meta-data/iam/security-credentials/role",
        ]
    );
    assert_eq!(server.header(2, "x-aws-ec2-metadata-token"), "imds");
}

#[tokio::test]
async fn users_of_a_directory_get_keys() {
    let refusal = "<ErrorResponse><Error><Message>LDAP user not found</Message></Error></ErrorResponse>";
    let (server, address) = Server::start(&[(200, json!(KEYS)), (403, json!(refusal))]).await;
    let requests = Requests::new().unwrap();
    let password = Secret::new("p&ss");
    check_temporary(
        &aws::assume_role_with_ldap_identity(&requests, &address, "me", &password).await.unwrap(),
    );
    assert!(server.body(0).ends_with("&LDAPUsername=me&LDAPPassword=p%26ss"));
    let refused = aws::assume_role_with_ldap_identity(&requests, &address, "me", &password).await;
    assert_eq!(refused.unwrap_err().to_string(), "403: LDAP user not found");
}

#[tokio::test]
async fn tokens_of_google_cloud() {
    let token = json!({"access_token": "t0ken", "expires_in": 3600});
    let (server, address) = Server::start(&[(200, token.clone()), (200, token.clone())]).await;
    let requests = Requests::new().unwrap();
    let account = json!({
        "type": "service_account", "client_email": "a@b", "private_key_id": "1",
        "private_key": private_key().expose(), "token_uri": format!("{address}/token"),
    });
    let credentials = GcpCredentials::from_json(account.to_string().as_bytes()).unwrap();
    let found = credentials.token(&requests, "scope", now()).await.unwrap();
    assert_eq!(found.secret.expose(), "t0ken");
    assert_eq!(found.expires_at, Some("2026-01-01T01:00:00Z".parse().unwrap()));
    let host = address.trim_start_matches("http://");
    let environment = Environment::of(&[("GCE_METADATA_HOST", host)]);
    gcp::ambient_token(&requests, &environment, "a b", now()).await.unwrap();
    assert_eq!(
        server.lines()[1],
        "GET /computeMetadata/v1/instance/service-accounts/default/token?scopes=a%2Cb"
    );
    assert_eq!(server.header(1, "metadata-flavor"), "Google");

    let other = json!({"accessToken": "impersonated", "expireTime": "2026-01-01T00:30:00Z"});
    let (server, address) = Server::start(&[(200, token), (200, other)]).await;
    let federation =
        Federation { exchange_url: format!("{address}/v1/token"), impersonation_host: address.clone() };
    let identity = Secret::new("jwt");
    let audience = "//iam.googleapis.com/projects/1/providers/p";
    let found = gcp::federated_token(&requests, &federation, audience, &identity, Some("me@p.iam"), now())
        .await
        .unwrap();
    assert_eq!(found.secret.expose(), "impersonated");
    assert!(server.body(0).contains("&subject_token=jwt"));
    assert_eq!(server.lines()[1], "POST /v1/projects/-/serviceAccounts/me@p.iam:generateAccessToken");
    assert_eq!(server.header(1, "authorization"), "Bearer t0ken");
    let evil = gcp::federated_token(&requests, &federation, audience, &identity, Some("../x"), now()).await;
    assert!(evil.is_err());
}

#[tokio::test]
async fn tokens_of_azure() {
    let answer = |seconds: Value| (200, json!({"access_token": "t0ken", "expires_in": seconds}));
    let (server, address) =
        Server::start(&[answer(json!(3600)), answer(json!("600")), answer(json!(60))]).await;
    let requests = Requests::new().unwrap();
    let assertion = file("jwt");
    let variables = [
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_AUTHORITY_HOST", address.as_str()),
        ("AZURE_FEDERATED_TOKEN_FILE", name(&assertion)),
    ];
    let federated = AzureCredentials::ambient(&Environment::of(&variables)).await.unwrap();
    let found = federated.token(&requests, STORAGE_RESOURCE, None, now()).await.unwrap();
    assert_eq!(found.expires_at, Some("2026-01-01T01:00:00Z".parse().unwrap()));
    assert_eq!(server.lines()[0], "POST /tenant/oauth2/v2.0/token");
    assert!(server.body(0).contains("client_assertion=jwt&scope=https%3A%2F%2Fstorage.azure.com%2F.default"));
    let machine = AzureCredentials::ambient(&Environment::default()).await.unwrap();
    let found = machine.token(&requests, STORAGE_RESOURCE, Some(&address), now()).await.unwrap();
    assert_eq!(found.expires_at, Some("2026-01-01T00:10:00Z".parse().unwrap()));
    assert!(!server.lines()[1].contains("client_id"));
    let variables = [&variables[..3], &[("AZURE_CLIENT_SECRET", "s3cret")]].concat();
    let password = AzureCredentials::ambient(&Environment::of(&variables)).await.unwrap();
    password.token(&requests, STORAGE_RESOURCE, None, now()).await.unwrap();
    assert!(server.body(2).contains("client_secret=s3cret"));
}

#[tokio::test]
async fn tokens_of_github_apps() {
    let token = json!({"token": "ghs_1", "expires_at": "2026-01-01T01:00:00Z"});
    let missing = (404, json!({"message": "Not Found"}));
    let (server, address) = Server::start(&[
        (201, token.clone()),
        missing.clone(),
        (200, json!({"id": 7})),
        (201, token),
        missing.clone(),
        missing,
        (401, json!({"message": "A JSON web token could not be decoded"})),
    ])
    .await;
    let requests = Requests::new().unwrap();
    let app = |installation| {
        GitHubApp::new("42", &private_key(), installation, Some(&format!("{address}/api/v3/"))).unwrap()
    };
    let by_id = app(Installation::Id("9".to_owned()));
    let found = by_id.token(&requests, now()).await.unwrap();
    assert_eq!(found.secret.expose(), "ghs_1");
    assert_eq!(found.expires_at, Some("2026-01-01T01:00:00Z".parse().unwrap()));
    let by_owner = app(Installation::Owner("me".to_owned()));
    by_owner.token(&requests, now()).await.unwrap();
    assert_eq!(
        server.lines(),
        [
            "POST /api/v3/app/installations/9/access_tokens",
            "GET /api/v3/orgs/me/installation",
            "GET /api/v3/users/me/installation",
            "POST /api/v3/app/installations/7/access_tokens",
        ]
    );
    assert!(server.header(0, "authorization").starts_with("Bearer ey"));
    let error = chain(&by_owner.token(&requests, now()).await.unwrap_err());
    assert_eq!(error, "failed to find the installation of the GitHub App: 404: Not Found");
    let error = chain(&by_id.token(&requests, now()).await.unwrap_err());
    assert_eq!(
        error,
        "failed to get an installation token of the GitHub App: 401: A JSON web token could not be decoded"
    );
    let refused = |id: &str, installation| {
        GitHubApp::new(id, &private_key(), installation, None).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(
        refused("x", Installation::Id("1".to_owned())),
        "invalid GitHub App data: the App ID is not a number"
    );
    assert_eq!(
        refused("1", Installation::Owner("../x".to_owned())),
        "invalid GitHub App data: the installation owner is not the name of an account"
    );
}

#[tokio::test]
async fn logins_of_registries() {
    let private = AwsRegistry::at("123456789012.dkr.ecr.eu-west-1.amazonaws.com").unwrap();
    let AwsRegistry::Private { region, endpoint } = &private else { panic!("{private:?}") };
    assert_eq!(
        (region.as_str(), endpoint.as_str()),
        ("eu-west-1", "https://api.ecr.eu-west-1.amazonaws.com/")
    );
    for other in
        ["123456789012.dkr.ecr.eu-west-1.amazonaws.com.example.com", "x.dkr.ecr.a.amazonaws.com", "ghcr.io"]
    {
        assert_eq!(AwsRegistry::at(other), None, "{other}");
    }
    // `AWS:pass`
    let one = json!({"authorizationData": [{"authorizationToken": "QVdTOnBhc3M="}]});
    let public = json!({"authorizationData": {"authorizationToken": "QVdTOnBhc3M="}});
    let azure = json!({"refresh_token": "refresh"});
    let (server, address) = Server::start(&[(200, one), (200, public), (200, azure)]).await;
    let requests = Requests::new().unwrap();
    let credentials = AwsCredentials {
        access_key: "AKID".to_owned(),
        secret_key: Secret::new("s3cret"),
        session_token: Secret::new(""),
    };
    for registry in [private, AwsRegistry::Public] {
        let (user, password) = registry.login(&requests, &credentials, Some(&address), now()).await.unwrap();
        assert_eq!((user.as_str(), password.expose()), ("AWS", "pass"));
    }
    assert!(server.header(0, "authorization").contains("/eu-west-1/ecr/aws4_request"));
    assert!(server.header(1, "authorization").contains("/us-east-1/ecr-public/aws4_request"));
    let token = Secret::new("t0ken");
    let (user, password) =
        registry::azure_login(&requests, "acc.azurecr.io", &token, Some(&address)).await.unwrap();
    assert_eq!((user.len(), password.expose()), (36, "refresh"));
    assert_eq!(server.body(2), "grant_type=access_token&service=acc.azurecr.io&access_token=t0ken");
    // A token goes to nobody else.
    for other in ["evil.example.com", "evil/azurecr.io", "azurecr.io"] {
        assert!(registry::azure_login(&requests, other, &token, Some(&address)).await.is_err(), "{other}");
    }
    assert!(registry::is_gcp("europe-docker.pkg.dev") && registry::is_gcp("eu.gcr.io"));
    assert!(!registry::is_gcp("evilgcr.io") && !registry::is_gcp("pkg.dev.example.com"));
}
