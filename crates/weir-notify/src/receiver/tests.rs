use std::collections::BTreeMap;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::json;

use super::*;

const TOKEN: &str = "It's a Secret to Everybody";

/// One request as a service documents it (`tests/webhooks`), without the signature, which is made here.
#[derive(Deserialize)]
struct Case {
    receiver: Value,
    /// How the body is signed.
    sign: Option<Sign>,
    /// The header that holds the token itself.
    token: Option<String>,
    /// The header that names the event.
    event: Option<EventHeader>,
    headers: BTreeMap<String, String>,
    /// The field of the form that holds the body.
    form: Option<String>,
    /// Whether a body that is no JSON is refused.
    #[serde(default)]
    json: bool,
    log: Option<String>,
    body: Value,
}

#[derive(Deserialize)]
struct Sign {
    header: String,
    algorithm: String,
}

#[derive(Deserialize)]
struct EventHeader {
    header: String,
    value: String,
}

impl Case {
    fn all() -> Vec<(String, Self)> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/webhooks");
        let mut cases: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                (name, serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
            })
            .collect();
        cases.sort_by(|a: &(String, Self), b| a.0.cmp(&b.0));
        assert!(cases.len() >= 14, "{}", cases.len());
        cases
    }

    fn spec(&self) -> ReceiverSpec {
        let mut spec = self.receiver.clone();
        spec["resources"] = json!([]);
        spec["secretRef"] = json!({"name": "token"});
        serde_json::from_value(spec).unwrap()
    }

    fn body(&self) -> Vec<u8> {
        let body = match &self.body {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        match &self.form {
            Some(field) => {
                url::form_urlencoded::Serializer::new(String::new()).append_pair(field, &body).finish()
            }
            None => body,
        }
        .into_bytes()
    }

    /// The headers of a request with this body, made by somebody who knows `token`.
    fn headers(&self, token: &str, body: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut add = |name: &str, value: &str| {
            headers.insert(
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        };
        for (name, value) in &self.headers {
            add(name, value);
        }
        if let Some(sign) = &self.sign {
            let (name, code) = match sign.algorithm.as_str() {
                "sha1" => ("sha1=", code::<Hmac<sha1::Sha1>>(token, body)),
                "bare-sha1" => ("", code::<Hmac<sha1::Sha1>>(token, body)),
                "sha256" => ("sha256=", code::<Hmac<sha2::Sha256>>(token, body)),
                "sha512" => ("sha512=", code::<Hmac<sha2::Sha512>>(token, body)),
                other => panic!("{other}"),
            };
            add(&sign.header, &format!("{name}{code}"));
        }
        if let Some(header) = &self.token {
            add(header, token);
        }
        if let Some(event) = &self.event {
            add(&event.header, &event.value);
        }
        headers
    }
}

fn code<M: Mac + KeyInit>(token: &str, body: &[u8]) -> String {
    let mut mac = <M as KeyInit>::new_from_slice(token.as_bytes()).unwrap();
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}

fn credentials(token: &str) -> Credentials {
    Credentials { token: token.as_bytes().to_vec(), ..Credentials::default() }
}

fn check<'a>(spec: &ReceiverSpec, headers: &HeaderMap, body: &'a [u8]) -> Result<Accepted<'a>, String> {
    check_with(spec, TOKEN, headers, body)
}

fn check_with<'a>(
    spec: &ReceiverSpec,
    token: &str,
    headers: &HeaderMap,
    body: &'a [u8],
) -> Result<Accepted<'a>, String> {
    check_shared_secret(spec.type_, spec, &credentials(token), headers, body)
        .map_err(|rejected| weir_base::error::chain(&rejected))
}

#[test]
fn requests_as_services_document_them_are_accepted() {
    for (name, case) in Case::all() {
        let body = case.body();
        let accepted = check(&case.spec(), &case.headers(TOKEN, &body), &body);
        let accepted = accepted.unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Some(log) = &case.log {
            assert_eq!(accepted.about, *log, "{name}");
        }
        match &case.body {
            Value::String(text) => assert_eq!(accepted.body, text.as_bytes(), "{name}"),
            value => {
                let seen: Value = serde_json::from_slice(&accepted.body).unwrap();
                assert_eq!((&seen, accepted.is_json), (value, true), "{name}");
            }
        }
        // The same once more: replays are accepted, they only reconcile once more.
        check(&case.spec(), &case.headers(TOKEN, &body), &body).unwrap();
    }
}

#[test]
fn without_the_token_nothing_is_accepted() {
    for (name, case) in Case::all() {
        let (spec, body) = (case.spec(), case.body());
        let headers = case.headers(TOKEN, &body);
        assert!(check_with(&spec, "", &headers, &body).is_err(), "{name}: a Receiver without a token");
        let Some(header) = case.sign.as_ref().map(|sign| &sign.header).or(case.token.as_ref()) else {
            continue;
        };
        for token in ["wrong", "It's a Secret to Everybodx", "It's a Secret to Everybody "] {
            assert!(check(&spec, &case.headers(token, &body), &body).is_err(), "{name}: {token}");
        }
        let mut bare = headers.clone();
        bare.remove(header.as_str());
        assert!(check(&spec, &bare, &body).is_err(), "{name}: no {header}");
        let mut empty = headers.clone();
        empty.insert(header.parse::<HeaderName>().unwrap(), HeaderValue::from_static(""));
        assert!(check(&spec, &empty, &body).is_err(), "{name}: empty {header}");
    }
}

#[test]
fn a_signature_holds_for_its_body_alone() {
    for (name, case) in Case::all() {
        let Some(sign) = &case.sign else { continue };
        let (spec, body) = (case.spec(), case.body());
        let headers = case.headers(TOKEN, &body);
        let truncated = &body[..body.len() - 1];
        assert!(check(&spec, &headers, truncated).is_err(), "{name}: truncated");
        let longer = [body.as_slice(), b" "].concat();
        assert!(check(&spec, &headers, &longer).is_err(), "{name}: longer");
        assert!(check(&spec, &headers, b"").is_err(), "{name}: no body");
        let good = headers[sign.header.as_str()].to_str().unwrap().to_owned();
        let digits = good.rsplit('=').next().unwrap();
        for bad in [
            digits.to_owned() + "00",
            format!("md5={digits}"),
            format!("SHA256={digits}"),
            format!("sha256={}", &digits[..digits.len() - 2]),
            "sha256=".to_owned(),
            "sha256=zz".to_owned(),
            "=".to_owned(),
            format!(" {good}"),
            format!("{good},{good}"),
        ] {
            let mut headers = headers.clone();
            headers.insert(sign.header.parse::<HeaderName>().unwrap(), HeaderValue::from_str(&bad).unwrap());
            assert!(check(&spec, &headers, &body).is_err(), "{name}: {bad}");
        }
    }
}

#[test]
fn only_listed_events_are_accepted_whatever_their_case() {
    for (name, case) in Case::all() {
        let Some(event) = &case.event else { continue };
        let (mut spec, body) = (case.spec(), case.body());
        let mut headers = case.headers(TOKEN, &body);
        let mut with = |value: &str, spec: &ReceiverSpec| {
            headers
                .insert(event.header.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
            check(spec, &headers, &body).map(drop)
        };
        assert!(with(&event.value.to_uppercase(), &spec).is_ok(), "{name}");
        let refused = with("other event", &spec).unwrap_err();
        assert!(refused.ends_with("event \"other event\" is not authorised"), "{name}: {refused}");
        assert!(with("", &spec).is_err(), "{name}: no event");
        spec.events.clear();
        assert!(with("other event", &spec).is_ok(), "{name}: no list");
    }
}

#[test]
fn a_body_that_must_be_json_is() {
    for (name, case) in Case::all() {
        if !case.json {
            continue;
        }
        let spec = case.spec();
        let whole = case.body();
        for body in [&whole[..whole.len() / 2], b"", b"text", b"[1]", b"\"text\""] {
            assert!(check(&spec, &case.headers(TOKEN, body), body).is_err(), "{name}: {body:?}");
        }
    }
}

/// The example of GitHub's documentation on validating deliveries.
#[test]
fn the_known_answer_of_github() {
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let check = |body: &[u8]| signature::check_hmac(signature, TOKEN.as_bytes(), body);
    assert_eq!(check(b"Hello, World!"), Ok(()));
    assert_eq!(check(b"Hello, World?"), Err(SignatureError::Mismatch));
}

#[test]
fn the_newer_signature_decides_alone() {
    let (_, case) = Case::all().into_iter().find(|(name, _)| name == "github-sha1").unwrap();
    let body = case.body();
    let mut headers = case.headers(TOKEN, &body);
    headers.insert("x-hub-signature-256", HeaderValue::from_static("sha256=00"));
    let refused = check(&case.spec(), &headers, &body).unwrap_err();
    assert_eq!(refused, "the GitHub signature header is invalid: payload signature check failed");
}

#[test]
fn content_types_services_do_not_send_are_refused() {
    let (_, case) = Case::all().into_iter().find(|(name, _)| name == "github-push").unwrap();
    let body = case.body();
    let mut headers = case.headers(TOKEN, &body);
    for type_ in ["text/plain", "", "multipart/form-data"] {
        headers.insert("content-type", HeaderValue::from_str(type_).unwrap());
        let refused = check(&case.spec(), &headers, &body).unwrap_err();
        assert!(refused.contains("unsupported Content-Type"), "{refused}");
    }
}

#[test]
fn what_is_logged_of_a_request_is_short_and_harmless() {
    let mut spec: ReceiverSpec =
        serde_json::from_value(json!({"type": "dockerhub", "resources": [], "secretRef": {"name": "a"}}))
            .unwrap();
    let url = format!("a\nlevel=error\u{1b}[31m{}", "x".repeat(1000));
    let body = json!({"repository": {"repo_url": url}, "push_data": {"tag": null}}).to_string();
    let about = check(&spec, &HeaderMap::new(), body.as_bytes()).unwrap().about;
    assert!(!about.chars().any(char::is_control) && about.len() < 300, "{about:?}");
    spec.type_ = ReceiverType::GenericHmac;
    let mut headers = HeaderMap::new();
    headers.insert("x-signature", HeaderValue::from_str(&"x".repeat(5000)).unwrap());
    let refused = check(&spec, &headers, b"").unwrap_err();
    assert!(refused.len() < 300 && !refused.contains(TOKEN), "{refused}");
    assert_eq!(format!("{:?}", credentials(TOKEN)), "Credentials");
}

#[test]
fn cdevents_are_validated() {
    let (_, case) = Case::all().into_iter().find(|(name, _)| name == "cdevents-packaged").unwrap();
    let change = |pointer: &str, value: Value| {
        let mut body = case.body.clone();
        *body.pointer_mut(pointer).unwrap() = value;
        cdevents::validate(body.to_string().as_bytes())
    };
    assert_eq!(change("/context/id", json!("x")), Ok(()));
    for (pointer, value, error) in [
        ("/context/id", json!(""), "context.id is missing"),
        ("/context/source", json!(null), "context.source is missing"),
        ("/context/timestamp", json!("yesterday"), "context.timestamp \"yesterday\" is no time"),
        (
            "/context/type",
            json!("dev.cdevents.artifact.packaged.0.1.0"),
            "unknown event type \"dev.cdevents.artifact.packaged.0.1.0\"",
        ),
        ("/context/type", json!("push"), "unknown event type \"push\""),
        ("/subject/id", json!(null), "subject.id is missing"),
        (
            "/subject/type",
            json!("change"),
            "subject.type \"change\" does not fit \"dev.cdevents.artifact.packaged.0.2.0\"",
        ),
        ("/subject/content", json!(null), "subject.content is missing"),
        ("/subject/content", json!({}), "subject.content.change is missing"),
        ("/subject/content/change", json!({}), "subject.content.change.id is missing"),
        ("/subject", json!([]), "subject is missing"),
    ] {
        assert_eq!(change(pointer, value), Err(error.to_owned()), "{pointer}");
    }
    assert_eq!(
        change("/context/type", json!("dev.cdeventsx.tool-build.thing.done.0.1.0")),
        Err("invalid type \"dev.cdeventsx.tool-build.thing.done.0.1.0\"".to_owned())
    );
    assert_eq!(change("/context/type", json!("dev.cdeventsx.tool-build.done.0.1.0")), Ok(()));
}

mod identity;
