use std::convert::Infallible;

use http_body_util::BodyExt as _;
use tempfile::TempDir;
use weir_base::clock::SystemClock;

use super::*;
use crate::digest::Algorithm;
use crate::storage::Options;

const PATH: &str = "gitrepository/apps/podinfo/1.tar.gz";

struct Server {
    storage: Arc<Storage>,
    digest: String,
    _directory: TempDir,
}

impl Server {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("outside"), "secret").unwrap();
        let root = directory.path().join("data");
        std::fs::create_dir(&root).unwrap();
        let options = Options {
            root,
            host: "localhost:9090".to_owned(),
            retention_ttl: Duration::from_mins(1),
            retention_records: 2,
            algorithm: Algorithm::Sha256,
        };
        let storage = Arc::new(Storage::open(options, Arc::new(SystemClock)).unwrap());
        storage.create_directory_for(PATH).unwrap();
        let stored = storage
            .publish::<Infallible>(PATH, |output| {
                output.write_all(b"0123456789").unwrap();
                Ok(())
            })
            .unwrap();
        storage.link_latest(PATH, "latest.tar.gz").unwrap();
        Self { storage, digest: stored.digest.to_string(), _directory: directory }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (StatusCode, HeaderMap, String) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = answer(State(Arc::clone(&self.storage)), request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, String::from_utf8_lossy(&body).into_owned())
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let (status, _, body) = self.request(Method::GET, path, headers).await;
        (status.as_u16(), body)
    }
}

#[tokio::test]
async fn files_links_and_digests() {
    let server = Server::new();
    let whole = (200, "0123456789".to_owned());
    assert_eq!(server.get(&format!("/{PATH}"), &[]).await, whole);
    assert_eq!(server.get("/gitrepository/apps/podinfo/latest.tar.gz", &[]).await, whole);
    assert_eq!(server.get(&format!("/digest/{}", server.digest), &[]).await, whole);
    assert_eq!(server.get("/digest/sha256:00", &[]).await.0, 404);
    let (status, headers, body) = server.request(Method::HEAD, &format!("/{PATH}"), &[]).await;
    assert_eq!((status.as_u16(), body.as_str()), (200, ""));
    assert_eq!(headers[CONTENT_LENGTH], "10");
    assert_eq!(headers[CONTENT_TYPE], "application/gzip");
    assert_eq!(server.request(Method::POST, "/", &[]).await.0.as_u16(), 405);
}

#[tokio::test]
async fn directories_are_listed() {
    let server = Server::new();
    let (status, body) = server.get("/", &[]).await;
    assert_eq!(status, 200);
    assert!(body.contains("<a href=\"./gitrepository/\">gitrepository/</a>"), "{body}");
    let (status, headers, _) = server.request(Method::GET, "/gitrepository", &[]).await;
    assert_eq!((status.as_u16(), &headers[LOCATION]), (301, &HeaderValue::from_static("gitrepository/")));
    assert!(server.get("/gitrepository/apps/podinfo/", &[]).await.1.contains("1.tar.gz"));
}

#[tokio::test]
async fn nothing_outside_the_root_is_found() {
    let server = Server::new();
    std::os::unix::fs::symlink("../outside", server.storage.root().join("leak")).unwrap();
    for path in [
        "/../outside",
        "/%2e%2e/outside",
        "/gitrepository/../../outside",
        "/gitrepository/%2e%2e%2f%2e%2e%2foutside",
        "/leak",
        "/%00",
        "/missing",
        "//etc/passwd",
    ] {
        assert_eq!(server.get(path, &[]).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn ranges() {
    let server = Server::new();
    let path = format!("/{PATH}");
    for (range, status, body) in [
        ("bytes=2-4", 206, "234"),
        ("bytes=7-", 206, "789"),
        ("bytes=-3", 206, "789"),
        ("bytes=-30", 206, "0123456789"),
        ("bytes=5-100", 206, "56789"),
        ("bytes=0-0,2-3", 200, "0123456789"),
        ("bytes=x", 200, "0123456789"),
        ("lines=1-2", 200, "0123456789"),
        ("bytes=10-", 416, "range not satisfiable\n"),
        ("bytes=-0", 416, "range not satisfiable\n"),
    ] {
        let found = server.get(&path, &[("range", range)]).await;
        assert_eq!(found, (status, body.to_owned()), "{range}");
    }
    let (_, headers, _) = server.request(Method::GET, &path, &[("range", "bytes=2-4")]).await;
    assert_eq!(headers[CONTENT_RANGE], "bytes 2-4/10");
}

#[tokio::test]
async fn conditions() {
    let server = Server::new();
    let path = format!("/{PATH}");
    let (_, headers, _) = server.request(Method::GET, &path, &[]).await;
    let entity = headers[ETAG].to_str().unwrap();
    let modified = headers[LAST_MODIFIED].to_str().unwrap();
    let long_ago = "Mon, 01 Jan 2001 00:00:00 GMT";
    for (header, value, status) in [
        ("if-none-match", entity, 304),
        ("if-none-match", "\"other\"", 200),
        ("if-modified-since", modified, 304),
        ("if-modified-since", long_ago, 200),
        ("if-match", entity, 200),
        ("if-match", "\"other\"", 412),
        ("if-unmodified-since", long_ago, 412),
    ] {
        assert_eq!(server.get(&path, &[(header, value)]).await.0, status, "{header}: {value}");
    }
    for (condition, status) in [(entity, 206), (modified, 206), ("\"other\"", 200), (long_ago, 200)] {
        let headers = [("range", "bytes=1-2"), ("if-range", condition)];
        assert_eq!(server.get(&path, &headers).await.0, status, "{condition}");
    }
}

#[tokio::test]
async fn serves_until_shutdown() {
    let server = Server::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/{PATH}", listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(serve(listener, Arc::clone(&server.storage), async move {
        let _ = stopped.await;
    }));
    let body = crate::fetch::test_client().get(url).send().await.unwrap().text().await.unwrap();
    assert_eq!(body, "0123456789");
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
