//! Buckets against servers on loopback: S3 against a real implementation of the protocol that checks signatures,
//! Google Cloud Storage and Azure against servers that check what is sent and sign anew what they got.

#![expect(clippy::unwrap_used, reason = "a broken server is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use weir_artifact::digest::Algorithm;
use weir_base::clock::SystemClock;
use weir_base::redact::Secret;
use weir_base::tree::Files as _;
use weir_cloud::aws::AwsCredentials;
use weir_source::bucket::{Access, Azure, AzureLogin, Bucket, BucketError, Gcs, S3 as S3Client, S3Options};
use weir_testkit::objects::{Objects, serve as s3_server};

/// The keys that are hard to sign and to write.
const FLEET: &[(&str, &str)] = &[
    (".sourceignore", "*.txt\n!keep.txt\n"),
    ("apps/a b+c/ä(1)'.yaml", "special"),
    ("apps/web.yaml", "web"),
    ("apps/", ""),
    ("drop.txt", "x"),
    ("infra/db.yaml", "db"),
    ("keep.txt", "kept"),
];

fn etag(content: &str) -> String {
    Algorithm::Sha1.digest(content.as_bytes()).hex().to_owned()
}

/// What the revision of the fleet must be, with the form of the tags.
fn revision(form: impl Fn(&str) -> String) -> String {
    let lines = [
        ("apps/a b+c/ä(1)'.yaml", "special"),
        ("apps/web.yaml", "web"),
        ("infra/db.yaml", "db"),
        ("keep.txt", "kept"),
    ];
    let lines = lines.map(|(key, content)| format!("{key} {}\n", form(&etag(content))));
    let text = lines.concat();
    Algorithm::Sha256.digest(text.as_bytes()).to_string()
}

/// Lists and downloads the fleet and looks at everything that comes of it.
#[track_caller]
fn check_fleet(fetched: Result<(String, weir_base::tree::MemoryTree), BucketError>, expected: &str) {
    let (found, tree) = fetched.unwrap();
    assert_eq!(found, expected);
    let paths: Vec<&str> = tree.files().map(|(path, _)| path).collect();
    assert_eq!(
        paths,
        [".sourceignore", "apps/a b+c/ä(1)'.yaml", "apps/web.yaml", "infra/db.yaml", "keep.txt"]
    );
    assert_eq!(tree.read("apps/a b+c/ä(1)'.yaml").unwrap(), "special");
}

async fn fetch(bucket: &Bucket, prefix: &str) -> Result<(String, weir_base::tree::MemoryTree), BucketError> {
    let mut index = bucket.index(prefix, None).await?;
    let listed = index.digest(Algorithm::Sha256).to_string();
    let tree = bucket.fetch(&mut index).await?;
    // A listing has the same tags as downloads: an unchanged bucket is not downloaded again.
    assert_eq!(index.digest(Algorithm::Sha256).to_string(), listed);
    Ok((listed, tree))
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

// S3

fn s3(endpoint: &str, bucket: &str, secret: Option<&str>) -> Bucket {
    let credentials = secret.map(|secret| AwsCredentials {
        access_key: "AKID".to_owned(),
        secret_key: Secret::new(secret),
        session_token: Secret::new(""),
    });
    let options = S3Options {
        endpoint: endpoint.to_owned(),
        bucket: bucket.to_owned(),
        region: None,
        insecure: true,
        credentials,
    };
    Bucket::S3(S3Client::new(options, &Access::default(), Arc::new(SystemClock)).unwrap())
}

#[tokio::test]
async fn s3_lists_and_downloads_with_signed_requests() {
    let objects = Objects::of(FLEET);
    let address = s3_server(&objects).await;
    let bucket = s3(&address, "fleet", Some("s3cret"));
    assert!(bucket.exists().await.unwrap());
    check_fleet(fetch(&bucket, "").await, &revision(str::to_owned));
    // The ignore file is that of the whole bucket, whatever the prefix.
    let (_, tree) = fetch(&bucket, "infra/").await.unwrap();
    assert_eq!(tree.files().map(|(path, _)| path).collect::<Vec<_>>(), [".sourceignore", "infra/db.yaml"]);
    // Patterns of the specification come last.
    let index = bucket.index("", Some("!drop.txt\napps/")).await.unwrap();
    assert_eq!(index.len(), 3);
}

#[tokio::test]
async fn s3_says_what_is_wrong() {
    let address = s3_server(&Objects::of(FLEET)).await;
    assert!(!s3(&address, "other", Some("s3cret")).exists().await.unwrap());
    let error = s3(&address, "fleet", Some("wr0ng")).exists().await.unwrap_err().to_string();
    assert_eq!(error, format!("HEAD http://{address}/fleet/: Access Denied."));
    let error = s3(&address, "fleet", Some("wr0ng")).index("", None).await.unwrap_err().to_string();
    assert!(error.contains("SignatureDoesNotMatch"), "{error}");
    assert!(!error.contains("wr0ng"));
    assert!(s3(&address, "fleet", None).exists().await.is_err(), "anonymous");
}

#[tokio::test]
async fn objects_that_change_while_they_are_fetched() {
    let objects = Objects::of(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let address = s3_server(&objects).await;
    let bucket = s3(&address, "fleet", Some("s3cret"));
    let mut index = bucket.index("", None).await.unwrap();
    objects.put("a", "new");
    objects.remove("b");
    let tree = bucket.fetch(&mut index).await.unwrap();
    assert_eq!(tree.read("a").unwrap(), "new");
    let lines = format!("a {}\nc {}\n", etag("new"), etag("3"));
    assert_eq!(index.digest(Algorithm::Sha256), Algorithm::Sha256.digest(lines.as_bytes()));
}

#[tokio::test]
async fn keys_that_lead_out_are_refused_before_anything_is_downloaded() {
    let objects = Objects::of(&[("../../etc/passwd", "x"), ("a", "1")]);
    let address = s3_server(&objects).await;
    let bucket = s3(&address, "fleet", Some("s3cret"));
    let mut index = bucket.index("", None).await.unwrap();
    let error = bucket.fetch(&mut index).await.unwrap_err().to_string();
    assert_eq!(error, "object '../../etc/passwd' cannot be stored as a file: it leads out of its directory");
}

// A busy store, and one in another region

#[tokio::test]
async fn busy_stores_are_asked_again_and_other_regions_found() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let answer = async move |request: Request| -> Response {
        let authorization = request.headers().get("authorization").unwrap().to_str().unwrap().to_owned();
        match seen.fetch_add(1, Ordering::Relaxed) {
            0 => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "0")], "").into_response(),
            1 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")], "").into_response(),
            2 => (StatusCode::MOVED_PERMANENTLY, [("x-amz-bucket-region", "eu-north-1")], "").into_response(),
            _ => {
                assert!(authorization.contains("/eu-north-1/s3/aws4_request"), "{authorization}");
                StatusCode::OK.into_response()
            }
        }
    };
    let address = serve(Router::new().fallback(answer)).await;
    assert!(s3(&address, "fleet", Some("s3cret")).exists().await.unwrap());
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn redirects_are_not_followed_with_credentials() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let other = serve(Router::new().fallback(async move || {
        count.fetch_add(1, Ordering::Relaxed);
        "stolen"
    }))
    .await;
    let location = format!("http://{other}/fleet/");
    let address = serve(Router::new().fallback(async move || {
        (StatusCode::TEMPORARY_REDIRECT, [("location", location.clone())], "").into_response()
    }))
    .await;
    assert!(s3(&address, "fleet", Some("s3cret")).exists().await.is_err());
    assert!(s3(&address, "fleet", Some("s3cret")).index("", None).await.is_err());
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn listings_that_never_end_are_refused() {
    let page = "<ListBucketResult><IsTruncated>true</IsTruncated>\
        <NextContinuationToken>again</NextContinuationToken></ListBucketResult>";
    let address = serve(Router::new().fallback(async move |request: Request| {
        if request.uri().path() == "/fleet/" {
            page.into_response()
        } else {
            StatusCode::NOT_FOUND.into_response()
        }
    }))
    .await;
    let error = s3(&address, "fleet", None).index("", None).await.unwrap_err().to_string();
    assert!(error.ends_with("the listing does not say how it goes on"), "{error}");
}

// Google Cloud Storage

async fn gcs_answer(State(objects): State<Objects>, request: Request) -> Response {
    if request.headers().get("authorization").is_none_or(|value| value != "Bearer t0ken") {
        let body = r#"{"error": {"code": 401, "message": "Invalid Credentials"}}"#;
        return (StatusCode::UNAUTHORIZED, body).into_response();
    }
    let query: BTreeMap<String, String> =
        url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    let path = request.uri().path();
    let Some(rest) = path.strip_prefix("/storage/v1/b/fleet") else {
        return (StatusCode::NOT_FOUND, "{}").into_response();
    };
    let item = |key: &str, etag: &str| serde_json::json!({"name": key, "etag": format!("{etag}="), "generation": "7"});
    match rest {
        "" => r#"{"name": "fleet"}"#.into_response(),
        "/o" => {
            let after = query.get("pageToken").cloned().unwrap_or_default();
            let (page, more) = objects.page(&query["prefix"], &after);
            let token = page.last().map(|(key, _)| key.clone()).filter(|_| more);
            let items: Vec<_> = page.iter().map(|(key, etag)| item(key, etag)).collect();
            serde_json::json!({"items": items, "nextPageToken": token}).to_string().into_response()
        }
        object => {
            // One segment: slashes in keys are encoded.
            let key = object.strip_prefix("/o/").unwrap();
            assert!(!key.contains('/'), "{key}");
            let key = percent_encoding::percent_decode_str(key).decode_utf8().unwrap();
            let Some((content, etag)) = objects.get(&key) else {
                return (StatusCode::NOT_FOUND, "No such object").into_response();
            };
            match query.get("alt") {
                Some(_) => {
                    assert_eq!(query["generation"], "7");
                    content.into_response()
                }
                None => item(&key, &etag).to_string().into_response(),
            }
        }
    }
}

#[tokio::test]
async fn google_cloud_storage() {
    let objects = Objects::of(FLEET);
    let address = serve(Router::new().fallback(gcs_answer).with_state(objects)).await;
    let store = |bucket: &str, token: &str| {
        Bucket::Gcs(Gcs::new(bucket, Some(Secret::new(token)), Some(&address), &Access::default()).unwrap())
    };
    let bucket = store("fleet", "t0ken");
    assert!(bucket.exists().await.unwrap());
    assert!(!store("other", "t0ken").exists().await.unwrap());
    check_fleet(fetch(&bucket, "").await, &revision(|etag| format!("{etag}=")));
    let error = store("fleet", "wr0ng").exists().await.unwrap_err().to_string();
    assert_eq!(error, format!("GET http://{address}/storage/v1/b/fleet: Invalid Credentials"));
}

// Azure Blob Storage

const ACCOUNT_KEY: &str = "YWNjb3VudCBrZXk=";

/// What the account signs: written from the documentation of the service, apart from the client.
fn shared_key(path: &str, query: &str, headers: &HeaderMap) -> String {
    let value = |name: &str| headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
    let standard = [
        "content-encoding",
        "content-language",
        "content-length",
        "content-md5",
        "content-type",
        "date",
        "if-modified-since",
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "range",
    ];
    let mut lines = vec!["GET".to_owned()];
    lines.extend(standard.iter().map(|name| value(name).to_owned()));
    let mut own: Vec<&str> =
        headers.keys().map(axum::http::HeaderName::as_str).filter(|name| name.starts_with("x-ms-")).collect();
    own.sort_unstable();
    lines.extend(own.into_iter().map(|name| format!("{name}:{}", value(name))));
    lines.push(format!("/acc{path}"));
    let mut parameters: Vec<(String, String)> =
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    parameters.sort();
    lines.extend(parameters.into_iter().map(|(name, value)| format!("{name}:{value}")));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&STANDARD.decode(ACCOUNT_KEY).unwrap()).unwrap();
    mac.update(lines.join("\n").as_bytes());
    format!("SharedKey acc:{}", STANDARD.encode(mac.finalize().into_bytes()))
}

async fn azure_answer(State(objects): State<Objects>, request: Request) -> Response {
    let error = |status: StatusCode, code: &str| {
        let body = format!(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code>\
             <Message>Server says {code}.\nRequestId:1</Message></Error>"
        );
        (status, [("x-ms-error-code", code)], body).into_response()
    };
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let headers = request.headers();
    assert!(headers.contains_key("x-ms-version"));
    let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let is_let_in = match authorization.as_deref() {
        Some("Bearer t0ken") => true,
        Some(key) => key == shared_key(&path, &query, headers),
        None => query.contains("sig=s%2Big"),
    };
    if !is_let_in {
        return error(StatusCode::FORBIDDEN, "AuthenticationFailed");
    }
    let Some(rest) = path.strip_prefix("/fleet") else {
        return error(StatusCode::NOT_FOUND, "ContainerNotFound");
    };
    let pairs: BTreeMap<String, String> =
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    if rest.is_empty() {
        assert_eq!((pairs["restype"].as_str(), pairs["comp"].as_str()), ("container", "list"));
        let none = String::new();
        let (prefix, marker) = (pairs.get("prefix").unwrap_or(&none), pairs.get("marker").unwrap_or(&none));
        let (page, more) = objects.page(prefix, marker);
        let next = page.last().map(|(key, _)| key.clone()).filter(|_| more).unwrap_or_default();
        let blobs: Vec<String> = page
            .iter()
            .map(|(key, etag)| {
                format!("<Blob><Name>{key}</Name><Properties><Etag>{etag}</Etag></Properties></Blob>")
            })
            .collect();
        let blobs = blobs.concat();
        let body = format!(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>{blobs}</Blobs>\
             <NextMarker>{next}</NextMarker></EnumerationResults>"
        );
        return body.into_response();
    }
    let key = percent_encoding::percent_decode_str(rest.trim_start_matches('/')).decode_utf8().unwrap();
    match objects.get(&key) {
        Some((content, etag)) => {
            Response::builder().header("etag", format!("\"{etag}\"")).body(Body::from(content)).unwrap()
        }
        None => error(StatusCode::NOT_FOUND, "BlobNotFound"),
    }
}

#[tokio::test]
async fn azure_blob_storage() {
    let objects = Objects::of(FLEET);
    let address = serve(Router::new().fallback(azure_answer).with_state(objects)).await;
    let store = |container: &str, login: AzureLogin| {
        let endpoint = format!("http://{address}");
        let clock = Arc::new(SystemClock);
        Bucket::Azure(Azure::new(&endpoint, container, login, &Access::default(), clock).unwrap())
    };
    let key = |key: &str| AzureLogin::AccountKey { account: "acc".to_owned(), key: Secret::new(key) };
    let shared = |text: &str| AzureLogin::SharedAccess(Secret::new(text));
    let expected = revision(|etag| format!("\"{etag}\""));
    for login in [key(ACCOUNT_KEY), AzureLogin::Token(Secret::new("t0ken")), shared("sv=1&sig=s%2Big")] {
        let bucket = store("fleet", login.clone());
        assert!(bucket.exists().await.unwrap(), "{login:?}");
        check_fleet(fetch(&bucket, "").await, &expected);
        assert!(!store("other", login).exists().await.unwrap());
    }
    let error = store("fleet", key("d3Jvbmc=")).exists().await.unwrap_err().to_string();
    assert_eq!(error, format!("GET http://{address}/fleet: Server says AuthenticationFailed."));
    assert!(store("fleet", AzureLogin::Anonymous).exists().await.is_err());
    let error = store("fleet", shared("sig=wr0ng")).index("", None).await.unwrap_err().to_string();
    assert!(!error.contains("wr0ng"), "{error}");
}
