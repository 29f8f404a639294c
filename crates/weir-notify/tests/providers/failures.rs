//! What happens when a service does not do what its documentation says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use weir_notify::delivery::DeliveryError;
use weir_notify::identity::Environment;
use weir_notify::provider::Job;
use weir_notify::target::{Secrets, Target};

use crate::case::{Case, UID, event};
use crate::mock::{sender, serve};

/// Requests a server has seen: method, path and the headers that are there.
type Seen = Arc<Mutex<Vec<(String, HeaderMap, usize)>>>;

/// A server that answers each request in turn, the last answer for ever.
async fn server(answers: Vec<fn() -> Response>) -> (String, Seen) {
    let seen = Seen::default();
    let (sink, number, answers) = (Arc::clone(&seen), Arc::new(AtomicUsize::new(0)), Arc::new(answers));
    let handler = move |method: Method, uri: Uri, headers: HeaderMap, body: axum::body::Bytes| {
        sink.lock().push((format!("{method} {uri}"), headers, body.len()));
        let number = number.fetch_add(1, Ordering::Relaxed);
        let answer = answers[number.min(answers.len() - 1)]();
        async move { answer }
    };
    (serve(Router::new().fallback(handler)).await, seen)
}

fn job(case: &str, base: &str, timeout: &str) -> Job {
    let mut case = Case::named(case);
    case.spec.timeout = Some(timeout.parse().unwrap());
    case.job(base, event("error"))
}

async fn outcome(job: Job) -> Result<(), String> {
    let sender = sender(Environment::default());
    let target = Arc::clone(&job.target);
    sender.deliver(job).await.map_err(|error| {
        let text = weir_base::error::chain(&error);
        assert!(!text.contains("s3cr3t"), "{text}");
        target.redact(&text)
    })
}

#[tokio::test]
async fn refusals_are_not_tried_again_and_explain_themselves() {
    let (base, seen) = server(vec![|| (StatusCode::BAD_REQUEST, "invalid_payload").into_response()]).await;
    let error = outcome(job("slack", &base, "15s")).await.unwrap_err();
    assert_eq!(
        error,
        "postMessage failed: request failed: request failed with status code 400: invalid_payload"
    );
    assert_eq!(seen.lock().len(), 1);
}

#[tokio::test]
async fn what_a_service_echoes_is_redacted_and_cut() {
    let (base, _) = server(vec![|| {
        (StatusCode::FORBIDDEN, format!("token xoxb-s3cr3t is bad {}", "x".repeat(1 << 20))).into_response()
    }])
    .await;
    let job = job("slack", &base, "15s");
    let target = Arc::clone(&job.target);
    let error = sender(Environment::default()).deliver(job).await.unwrap_err();
    let text = target.redact(&error.to_string());
    assert!(text.contains("token ***** is bad"), "{text}");
    assert!(text.len() < 1300, "{}", text.len());
}

#[tokio::test]
async fn trouble_of_the_service_is_waited_out() {
    fn busy() -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "0")], "busy").into_response()
    }
    let (base, seen) = server(vec![busy, busy, || "ok".into_response()]).await;
    outcome(job("slack", &base, "15s")).await.unwrap();
    assert_eq!(seen.lock().len(), 3);
    let (base, seen) = server(vec![busy]).await;
    let error = outcome(job("slack", &base, "15s")).await.unwrap_err();
    assert!(error.ends_with("status code 503: busy"), "{error}");
    assert_eq!(seen.lock().len(), 5);
    // What the service would do twice is not sent twice.
    let (base, seen) = server(vec![busy]).await;
    outcome(job("githubpullrequestcomment", &base, "15s")).await.unwrap_err();
    assert_eq!(seen.lock().len(), 1);
    let (base, seen) = server(vec![|| StatusCode::NOT_IMPLEMENTED.into_response()]).await;
    outcome(job("slack", &base, "15s")).await.unwrap_err();
    assert_eq!(seen.lock().len(), 1);
}

#[tokio::test]
async fn the_last_answer_is_reported_if_there_is_no_time_for_another() {
    let (base, seen) = server(vec![|| (StatusCode::BAD_GATEWAY, "down").into_response()]).await;
    let error = outcome(job("slack", &base, "1s")).await.unwrap_err();
    assert!(error.ends_with("status code 502: down"), "{error}");
    assert_eq!(seen.lock().len(), 1);
    // Longer than any clock runs.
    let for_ever = || {
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "18446744073709551615")], "down").into_response()
    };
    let (base, seen) = server(vec![for_ever]).await;
    let error = outcome(job("slack", &base, "5s")).await.unwrap_err();
    assert!(error.ends_with("status code 503: down"), "{error}");
    assert_eq!(seen.lock().len(), 1);
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_given_up() {
    let (base, _) = server(vec![|| {
        Response::new(Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>()))
    }])
    .await;
    let error = outcome(job("slack", &base, "300ms")).await.unwrap_err();
    assert_eq!(error, "failed to execute request: not delivered within 300ms");
}

#[tokio::test]
async fn nobody_listening_is_an_error_without_the_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = outcome(job("slack", &base, "1s")).await.unwrap_err();
    assert!(error.starts_with("postMessage failed: failed to execute request: connection failed"), "{error}");
    assert!(!error.contains("services/T00000000"), "{error}");
}

#[tokio::test]
async fn lists_have_a_limit() {
    let (base, _) = server(vec![|| "[".repeat(9 << 20).into_response()]).await;
    let error = outcome(job("github", &base, "15s")).await.unwrap_err();
    assert_eq!(error, "could not list commit statuses: the answer has more than 8 MiB");
    let (base, _) = server(vec![|| "<html>".into_response()]).await;
    let error = outcome(job("github", &base, "15s")).await.unwrap_err();
    assert_eq!(error, "could not list commit statuses: unexpected answer of the service");
}

/// A redirect from one server to another, or to itself.
async fn redirected(case: &str, status: u16, to_other: bool) -> (Result<(), String>, Seen) {
    let (other, other_seen) = server(vec![|| "ok".into_response()]).await;
    let seen = Seen::default();
    let sink = Arc::clone(&seen);
    let handler = move |method: Method, uri: Uri, headers: HeaderMap, body: axum::body::Bytes| {
        let (sink, other) = (Arc::clone(&sink), other.clone());
        async move {
            if uri.path().starts_with("/moved") {
                sink.lock().push((format!("{method} {uri}"), headers, body.len()));
                return "ok".into_response();
            }
            let to = if to_other { format!("{other}/moved") } else { "/moved".to_owned() };
            (StatusCode::from_u16(status).unwrap(), [("location", to)]).into_response()
        }
    };
    let base = serve(Router::new().fallback(handler)).await;
    let result = outcome(job(case, &base, "15s")).await;
    (result, if to_other { other_seen } else { seen })
}

#[tokio::test]
async fn redirects_to_other_hosts_take_no_credentials_along() {
    for status in [301, 302, 303] {
        let (result, seen) = redirected("slack", status, true).await;
        result.unwrap();
        let seen = seen.lock();
        let (request, headers, length) = &seen[0];
        assert_eq!((request.as_str(), *length), ("GET /moved", 0));
        assert!(!headers.contains_key("authorization"), "{headers:?}");
    }
    for status in [307, 308] {
        let (result, seen) = redirected("slack", status, true).await;
        let error = result.unwrap_err();
        assert!(
            error.ends_with("the service redirects the message to another host; set its address instead"),
            "{error}"
        );
        assert!(seen.lock().is_empty());
    }
    // Headers of the Secret and of services are credentials as well.
    for case in ["generic", "datadog", "gitlab"] {
        let (_, seen) = redirected(case, 302, true).await;
        for (_, headers, _) in seen.lock().iter() {
            for name in ["x-auth", "dd-api-key", "private-token", "gotk-component"] {
                assert!(!headers.contains_key(name), "{case} {name}");
            }
        }
    }
}

#[tokio::test]
async fn redirects_within_a_host_are_followed() {
    let (result, seen) = redirected("slack", 307, false).await;
    result.unwrap();
    let seen = seen.lock();
    let (request, headers, length) = &seen[0];
    assert_eq!(request, "POST /moved");
    assert_eq!(headers["authorization"], "Bearer xoxb-s3cr3t");
    assert!(*length > 0);
}

#[tokio::test]
async fn circles_end() {
    let handler = || async { (StatusCode::FOUND, [("location", "/again")]) };
    let base = serve(Router::new().fallback(handler)).await;
    let error = outcome(job("slack", &base, "15s")).await.unwrap_err();
    assert!(error.ends_with("stopped after 10 redirects"), "{error}");
}

#[tokio::test]
async fn link_local_addresses_are_out_of_reach() {
    let error = outcome(job("generic", "http://169.254.169.254", "1s")).await.unwrap_err();
    assert!(error.ends_with("events are not sent to link-local addresses"), "{error}");
    let error = outcome(job("generic", "http://[::ffff:a9fe:a9fe]", "1s")).await.unwrap_err();
    assert!(error.ends_with("events are not sent to link-local addresses"), "{error}");
    let handler =
        || async { (StatusCode::FOUND, [("location", "http://169.254.169.254/latest/meta-data/")]) };
    let base = serve(Router::new().fallback(handler)).await;
    let error = outcome(job("slack", &base, "1s")).await.unwrap_err();
    assert!(error.ends_with("events are not sent to link-local addresses"), "{error}");
}

#[tokio::test]
async fn certificates_that_are_not_trusted_end_it_at_once() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .await;
                let _ = stream.shutdown().await;
            });
        }
    });
    let with = |certificates: Option<String>| {
        let case = Case::named("generic-hmac");
        let mut spec = case.spec.clone();
        spec.address = Some(format!("{base}/hook"));
        let secrets = Secrets {
            main: Some([("token".to_owned(), b"s3cr3t-key".to_vec())].into()),
            certificates: certificates.map(|pem| [("ca.crt".to_owned(), pem.into_bytes())].into()),
            ..Secrets::default()
        };
        let target = Target::new(["flux-system", "provider", UID], &spec, &secrets).unwrap();
        Job { target: Arc::new(target), ..case.job("http://localhost", event("error")) }
    };
    let error = outcome(with(None)).await.unwrap_err();
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    outcome(with(Some(made.cert.pem()))).await.unwrap();
}

#[test]
fn authorities_of_providers_are_not_trusted_with_the_identity_of_the_controller() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificates = Some([("ca.crt".to_owned(), made.cert.pem().into_bytes())].into());
    let secrets = Secrets { certificates, ..Secrets::default() };
    for (name, expected) in
        [("github", true), ("azuredevops", false), ("azureeventhub", false), ("googlepubsub", false)]
    {
        let mut spec = Case::named(name).spec;
        spec.address = spec.address.map(|address| address.replace("{base}", "https://git.example.com"));
        spec.proxy = Some("http://127.0.0.1:1".to_owned());
        let target = Target::new(["flux-system", "provider", UID], &spec, &secrets).unwrap();
        let connection = &target.token_connection;
        assert_eq!((connection.tls.is_some(), connection.proxy.is_some()), (expected, true), "{name}");
    }
}

#[test]
fn headers_cannot_be_injected() {
    let case = Case::named("generic");
    for value in ["a\r\nX-Other: b", "a\nb"] {
        let headers = serde_json::to_string(&serde_json::json!({"X-Auth": value})).unwrap();
        let secrets = Secrets {
            main: Some([("headers".to_owned(), headers.into_bytes())].into()),
            ..Secrets::default()
        };
        let error = Target::new(["n", "p", UID], &case.spec, &secrets).unwrap_err();
        assert_eq!(
            error.to_string(),
            "failed to read headers from secret: 'X-Auth' has a name or value that is not allowed in HTTP"
        );
    }
    // The controller's name and tokens come from outside as well.
    let mut event = event("success");
    event.reporting_controller = "x\r\nX-Other: 1".to_owned();
    let error = weir_notify::provider::next(&case.job("https://h", event), &[]).unwrap_err();
    assert_eq!(error.to_string(), "the value of header 'Gotk-Component' is not allowed in HTTP");
}

#[tokio::test]
async fn errors_say_whether_the_settings_are_to_blame() {
    let mut job = job("opsgenie", "http://127.0.0.1:9", "1s");
    let target = Arc::get_mut(&mut job.target).unwrap();
    target.token = weir_base::redact::Secret::new("");
    let error: DeliveryError = sender(Environment::default()).deliver(job).await.unwrap_err();
    assert!(error.is_setting());
    assert_eq!(error.to_string(), "empty Opsgenie apikey/token");
}

#[tokio::test]
async fn slack_says_in_its_answer_what_went_wrong() {
    use weir_notify::provider::{Answer, Step, next};
    let mut job = job("slack", "https://slack.com", "1s");
    Arc::get_mut(&mut job.target).unwrap().address =
        weir_base::redact::Secret::new("https://slack.com/api/chat.postMessage");
    let answer = |status, body: &str| [Answer { status, body: body.as_bytes().to_vec() }];
    assert_eq!(next(&job, &answer(200, r#"{"ok":true}"#)), Ok(Step::Done));
    let error = next(&job, &answer(200, r#"{"ok":false,"error":"channel_not_found"}"#)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "postMessage failed: request failed: Slack responded with error: channel_not_found"
    );
    assert!(next(&job, &answer(502, "<html>")).is_err());
}
