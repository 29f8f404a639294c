//! Identity tokens: signed by an issuer of our own, on a port of this machine.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac as _};
use jiff::Timestamp;
use parking_lot::Mutex;
use reqwest::header::HeaderMap;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use sha2::Sha256;
use weir_base::clock::Clock;

use super::super::*;

const NOW: i64 = 1_800_000_000;

/// A clock that stands where it is put.
#[derive(Debug)]
struct At(Mutex<Timestamp>);

impl Clock for At {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

struct Signer {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        Self { pair: pair.unwrap(), id }
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "alg": "ES256",
            "x": encode(&point[1..33]), "y": encode(&point[33..])})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        token(header, claims, |signed| {
            self.pair.sign(&SystemRandom::new(), signed).unwrap().as_ref().to_vec()
        })
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "ES256", "kid": self.id}), claims)
    }
}

/// A token, signed in some way.
fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = sign(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Signs as Google does.
struct GoogleSigner(RsaKeyPair);

impl GoogleSigner {
    fn new() -> Self {
        let pem = include_str!("../../../tests/providers/app.pem").lines();
        let encoded: String = pem.filter(|line| !line.starts_with("-----")).collect();
        Self(RsaKeyPair::from_der(&STANDARD.decode(encoded).unwrap()).unwrap())
    }

    fn public(&self) -> Value {
        let components = RsaPublicKeyComponents::<Vec<u8>>::from(self.0.public_key());
        let (n, e) = (URL_SAFE_NO_PAD.encode(components.n), URL_SAFE_NO_PAD.encode(components.e));
        json!({"kty": "RSA", "kid": "g", "use": "sig", "alg": "RS256", "n": n, "e": e})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        token(header, claims, |signed| {
            let mut signature = vec![0; self.0.public().modulus_len()];
            self.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed, &mut signature).unwrap();
            signature
        })
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "RS256", "kid": "g"}), claims)
    }
}

/// An issuer that publishes keys and counts how often they are fetched.
struct Issuer {
    address: SocketAddr,
    keys: Arc<Mutex<Vec<Value>>>,
    fetched: Arc<AtomicUsize>,
}

impl Issuer {
    async fn start(keys: Vec<Value>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let keys = Arc::new(Mutex::new(keys));
        let fetched = Arc::new(AtomicUsize::new(0));
        let discovery = json!({
            "issuer": format!("http://{address}"),
            "jwks_uri": format!("http://{address}/keys"),
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        });
        let (served, counted) = (Arc::clone(&keys), Arc::clone(&fetched));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(|| async move { discovery.to_string() }))
            .route(
                "/keys",
                get(|| async move {
                    counted.fetch_add(1, Ordering::SeqCst);
                    json!({"keys": served.lock().clone()}).to_string()
                }),
            );
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, keys, fetched }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn claims(&self) -> Value {
        json!({"iss": self.url(), "aud": "notification-controller", "exp": NOW + 60, "sub": "repo:acme/fleet"})
    }

    fn spec(&self) -> ReceiverSpec {
        let provider =
            json!({"issuerURL": self.url(), "validations": [{"expression": "true", "message": "m"}]});
        serde_json::from_value(json!({"type": "generic-oidc", "resources": [], "oidcProviders": [provider]}))
            .unwrap()
    }
}

struct World {
    issuer: Issuer,
    checker: Checker,
    clock: Arc<At>,
}

impl World {
    async fn start(keys: Vec<Value>) -> Self {
        let issuer = Issuer::start(keys).await;
        let clock = Arc::new(At(Mutex::new(Timestamp::from_second(NOW).unwrap())));
        let keys = KeySource::new().unwrap().with_google_keys(format!("{}/keys", issuer.url()));
        let checker = Checker::new(keys, Arc::clone(&clock) as Arc<dyn Clock>);
        Self { issuer, checker, clock }
    }

    async fn check(&self, token: &str) -> Result<Option<Value>, String> {
        self.check_with(&self.issuer.spec(), token, |_, _| Ok(())).await
    }

    async fn check_with(
        &self,
        spec: &ReceiverSpec,
        token: &str,
        rules: impl Fn(&OidcProvider, &Value) -> Result<(), String> + Send,
    ) -> Result<Option<Value>, String> {
        let headers = authorization(&format!("Bearer {token}"));
        let checked = self.checker.check(spec, &Credentials::default(), &headers, b"{}", rules).await;
        checked.map(|accepted| accepted.claims).map_err(|rejected| weir_base::error::chain(&rejected))
    }
}

fn authorization(value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, value.parse().unwrap());
    headers
}

fn changed(claims: &Value, key: &str, value: Value) -> Value {
    let mut claims = claims.clone();
    claims[key] = value;
    claims
}

#[tokio::test]
async fn a_token_of_the_issuer_is_accepted_and_its_claims_are_told() {
    let signer = Signer::new("1");
    let world = World::start(vec![json!({"kty": "new kind"}), signer.public()]).await;
    let claims = world.issuer.claims();
    assert_eq!(world.check(&signer.token(&claims)).await, Ok(Some(claims.clone())));
    let several = changed(&claims, "aud", json!(["other", "notification-controller"]));
    assert!(world.check(&signer.token(&several)).await.is_ok());
    let refused = world
        .check_with(&world.issuer.spec(), &signer.token(&claims), |_, _| {
            Err("token validation failed: m".into())
        })
        .await;
    assert_eq!(refused, Err("token validation failed: m".to_owned()));
}

#[tokio::test]
async fn a_token_that_proves_nothing_is_refused() {
    let (signer, stranger) = (Signer::new("1"), Signer::new("1"));
    let world = World::start(vec![signer.public()]).await;
    let claims = world.issuer.claims();
    let good = signer.token(&claims);
    let (signed, _) = good.rsplit_once('.').unwrap();
    let none =
        format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), good.split('.').nth(1).unwrap());
    // The public key taken as a shared secret: the classic confusion.
    let confused = {
        use hmac::{Hmac, KeyInit as _, Mac as _};
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"1"}"#);
        let signed = format!("{header}.{}", good.split('.').nth(1).unwrap());
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(signer.public().to_string().as_bytes()).unwrap();
        mac.update(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    };
    for (token, error) in [
        (stranger.token(&claims), "failed to verify token signature"),
        (format!("{signed}."), "failed to verify token signature"),
        (none, "unexpected algorithm"),
        (confused, "unexpected algorithm"),
        (signer.token(&changed(&claims, "exp", json!(NOW - 1))), "token is expired"),
        (signer.token(&changed(&claims, "exp", json!(null))), "token is expired"),
        (signer.token(&changed(&claims, "nbf", json!(NOW + 600))), "token is not valid yet"),
        (signer.token(&changed(&claims, "aud", json!("other"))), "token audience is"),
        (signer.token(&changed(&claims, "aud", json!(null))), "token audience is"),
        (
            signer.token(&changed(&claims, "iss", json!("https://other.example.com"))),
            "no oidcProvider configured",
        ),
        (signer.token(&changed(&claims, "iss", json!(null))), "missing the 'iss' claim"),
        (
            signer.sign(&json!({"alg": "ES256", "kid": "1", "crit": ["x"]}), &claims),
            "critical header parameters",
        ),
        ("a.b".to_owned(), "token is not a JWT"),
        ("a.b.c".to_owned(), "token is not a JWT"),
        (format!("{good}.x"), "token is not a JWT"),
        (format!("{good}{}", "x".repeat(20_000)), "token is not a JWT"),
    ] {
        let refused = world.check(&token).await.unwrap_err();
        assert!(refused.contains(error), "want '{error}', got '{refused}'");
    }
    for header in ["", "Basic abc", "bearer abc", "Bearer ", "Bearer"] {
        let checked = world
            .checker
            .check(&world.issuer.spec(), &Credentials::default(), &authorization(header), b"", |_, _| Ok(()))
            .await;
        let refused = checked.unwrap_err().to_string();
        assert!(refused.contains("Authorization header is missing or malformed"), "{refused}");
    }
}

#[tokio::test]
async fn keys_are_held_and_new_ones_are_found() {
    let (old, new) = (Signer::new("1"), Signer::new("2"));
    let world = World::start(vec![old.public()]).await;
    let claims = changed(&world.issuer.claims(), "exp", json!(NOW + 100_000));
    let fetched = || world.issuer.fetched.load(Ordering::SeqCst);
    let later = |seconds| {
        *world.clock.0.lock() = Timestamp::from_second(NOW + seconds).unwrap();
    };
    for _ in 0..20 {
        world.check(&old.token(&claims)).await.unwrap();
    }
    assert_eq!(fetched(), 1);
    world.issuer.keys.lock().push(new.public());
    // Invented keys must not make us ask the issuer with every request.
    for _ in 0..20 {
        world.check(&new.token(&claims)).await.unwrap_err();
    }
    assert_eq!(fetched(), 1);
    later(11);
    world.check(&new.token(&claims)).await.unwrap();
    assert_eq!(fetched(), 2);
    // A key that was taken back is not used for long.
    world.issuer.keys.lock().clear();
    later(11 + 301);
    world.check(&old.token(&claims)).await.unwrap_err();
    assert_eq!(fetched(), 3);
}

#[tokio::test]
async fn an_issuer_that_names_another_one_is_not_believed() {
    let signer = Signer::new("1");
    let world = World::start(vec![signer.public()]).await;
    let url = format!("http://localhost:{}", world.issuer.address.port());
    let mut spec = world.issuer.spec();
    spec.oidc_providers[0].issuer_url.clone_from(&url);
    let claims = changed(&world.issuer.claims(), "iss", json!(url));
    let refused = world.check_with(&spec, &signer.token(&claims), |_, _| Ok(())).await.unwrap_err();
    assert!(refused.contains("issuer did not match") || refused.contains("failed to fetch"), "{refused}");
}

#[tokio::test]
async fn an_issuer_cannot_point_at_the_services_of_the_machine() {
    let signer = Signer::new("1");
    let world = World::start(vec![signer.public()]).await;
    for url in [
        "http://169.254.169.254",
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1]",
        "http://[fd00:ec2::254]",
        "http://[64:ff9b::169.254.169.254]",
        "http://[::ffff:169.254.169.254]",
        "file:///etc/passwd",
    ] {
        let mut spec = world.issuer.spec();
        url.clone_into(&mut spec.oidc_providers[0].issuer_url);
        let claims = changed(&world.issuer.claims(), "iss", json!(url));
        let refused = world.check_with(&spec, &signer.token(&claims), |_, _| Ok(())).await.unwrap_err();
        assert!(refused.contains("not one that may be asked"), "{url}: {refused}");
    }
}

#[tokio::test]
async fn messages_of_google_are_unwrapped() {
    let (signer, google) = (Signer::new("1"), GoogleSigner::new());
    let world = World::start(vec![signer.public(), google.public()]).await;
    let spec: ReceiverSpec =
        serde_json::from_value(json!({"type": "gcr", "resources": [], "secretRef": {"name": "s"}})).unwrap();
    let credentials = Credentials {
        token: b"t".to_vec(),
        email: "push@acme.iam.gserviceaccount.com".to_owned(),
        audience: "https://flux.example.com/hook/abc".to_owned(),
    };
    let inner = r#"{"action": "INSERT", "digest": "gcr.io/acme/web@sha256:6ec1", "tag": "gcr.io/acme/web:v1", "more": 1}"#;
    let body = json!({"message": {"data": STANDARD.encode(inner), "messageId": "1"}, "subscription": "s"})
        .to_string();
    let claims = json!({
        "iss": "https://accounts.google.com", "aud": credentials.audience, "exp": NOW + 60,
        "email": credentials.email, "email_verified": true,
    });
    let check = |token: String| {
        let (world, spec, credentials, body) = (&world, &spec, &credentials, &body);
        async move {
            let headers = authorization(&format!("Bearer {token}"));
            let checked =
                world.checker.check(spec, credentials, &headers, body.as_bytes(), |_, _| Ok(())).await;
            checked.map_err(|refused| weir_base::error::chain(&refused))
        }
    };
    let accepted = check(google.token(&claims)).await.unwrap();
    let seen: Value = serde_json::from_slice(&accepted.body).unwrap();
    let expected =
        json!({"action": "INSERT", "digest": "gcr.io/acme/web@sha256:6ec1", "tag": "gcr.io/acme/web:v1"});
    assert_eq!((seen, accepted.is_json), (expected, true));
    assert_eq!(payload::check_google_account(&claims, &credentials.email), Ok(()));
    for (key, value) in [
        ("iss", json!("https://accounts.example.com")),
        ("email", json!("other@acme.iam.gserviceaccount.com")),
        ("email_verified", json!("true")),
        ("email_verified", json!(false)),
    ] {
        let refused = payload::check_google_account(&changed(&claims, key, value), &credentials.email);
        assert!(refused.is_err(), "{key}");
    }
    for (key, value, expected) in [
        ("iss", json!("https://accounts.example.com"), "token issuer is"),
        ("aud", json!("https://flux.example.com/hook/other"), "token audience is"),
        ("exp", json!(NOW - 1), "token is expired"),
        ("email", json!("other@acme.iam.gserviceaccount.com"), "token email is"),
        ("email_verified", json!(false), "is not verified"),
    ] {
        let refused = check(google.token(&changed(&claims, key, value))).await.unwrap_err();
        assert!(refused.contains(expected), "{key}: {refused}");
    }
    // Other algorithms than Google's, none at all, the public key as a shared secret, a key nobody published.
    let modulus = URL_SAFE_NO_PAD.decode(google.public()["n"].as_str().unwrap()).unwrap();
    let shared = |signed: &[u8]| {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&modulus).unwrap();
        mac.update(signed);
        mac.finalize().into_bytes().to_vec()
    };
    for (token, expected) in [
        (signer.token(&claims), "unexpected algorithm"),
        (token(&json!({"alg": "none"}), &claims, |_| Vec::new()), "unexpected algorithm"),
        (token(&json!({"alg": "HS256", "kid": "g"}), &claims, shared), "unexpected algorithm"),
        (token(&json!({"alg": "RS256", "kid": "g"}), &claims, shared), "failed to verify token signature"),
        (google.sign(&json!({"alg": "RS256", "kid": "x"}), &claims), "failed to verify token signature"),
    ] {
        let refused = check(token).await.unwrap_err();
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
    for body in ["", "[]", r#"{"message": {"data": "bm90IGpzb24="}}"#, r#"{"message": {"data": "%%"}}"#] {
        assert!(payload::gcr(body.as_bytes()).is_err(), "{body}");
    }
    for incomplete in [
        Credentials { email: String::new(), ..credentials.clone() },
        Credentials { audience: String::new(), ..credentials.clone() },
        Credentials { token: Vec::new(), ..credentials.clone() },
    ] {
        let headers = authorization(&format!("Bearer {}", google.token(&claims)));
        let refused = world.checker.check(&spec, &incomplete, &headers, body.as_bytes(), |_, _| Ok(())).await;
        assert!(refused.is_err());
    }
}

/// RFC 7515, appendix A.2: a token signed with RS256.
#[test]
fn the_known_answer_of_the_standard() {
    let header = "eyJhbGciOiJSUzI1NiJ9";
    let claims =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let key: jwt::Key = serde_json::from_value(json!({
        "kty": "RSA", "e": "AQAB",
        "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
    }))
    .unwrap();
    let text = format!("{header}.{claims}.{signature}");
    let token = jwt::Token::parse(&text).unwrap();
    assert!(key.may_have_signed(&token) && key.verifies(&token));
    let other = format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(r#"{"iss":"joe"}"#));
    assert!(!key.verifies(&jwt::Token::parse(&other).unwrap()));
}
