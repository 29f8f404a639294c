use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::response::IntoResponse;
use http::HeaderMap;
use weir_base::tree::Files as _;

use super::*;
use crate::archive::archive_tree;
use crate::digest::Algorithm;

/// A server that gives the next of the answers to each request, the last one for ever.
struct Server {
    url: String,
    requests: Arc<AtomicU32>,
}

async fn serve(answers: Vec<(u16, Vec<u8>)>) -> Server {
    let requests = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&requests);
    let answer = move || {
        let index = counter.fetch_add(1, Ordering::SeqCst) as usize;
        let (status, body) = answers[index.min(answers.len() - 1)].clone();
        async move {
            let mut headers = HeaderMap::new();
            if status == 503 {
                headers.insert(RETRY_AFTER, "0".parse().unwrap());
            }
            (StatusCode::from_u16(status).unwrap(), headers, body).into_response()
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a.tar.gz", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    Server { url, requests }
}

fn fetcher(change: impl FnOnce(&mut Options)) -> Fetcher {
    let mut options = Options {
        retries: 3,
        retry_wait_min: Duration::from_millis(1),
        retry_wait_max: Duration::from_millis(2),
        ..Options::default()
    };
    change(&mut options);
    Fetcher::new(options).unwrap()
}

fn archive() -> (Vec<u8>, String) {
    let tree: MemoryTree = [("a/b.yaml", "hello")].into_iter().collect();
    let bytes = archive_tree(&tree).unwrap().to_vec();
    let digest = Algorithm::Sha256.digest(&bytes).to_string();
    (bytes, digest)
}

#[tokio::test]
async fn one_download_and_one_tree_for_all() {
    let (bytes, digest) = archive();
    let server = serve(vec![(200, bytes)]).await;
    let fetcher = fetcher(|_| {});
    let all = (0..8).map(|_| fetcher.fetch(&server.url, &digest));
    let trees: Vec<_> = futures::future::join_all(all).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(trees[0].read("a/b.yaml").as_deref(), Some(b"hello".as_slice()));
    assert!(trees.iter().all(|tree| Arc::ptr_eq(tree, &trees[0])));
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
    drop(trees);
    fetcher.fetch(&server.url, &digest).await.unwrap();
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn without_room_unused_trees_are_dropped() {
    let (bytes, digest) = archive();
    let server = serve(vec![(200, bytes)]).await;
    let fetcher = fetcher(|options| options.cache_bytes_max = 0);
    let first = fetcher.fetch(&server.url, &digest).await.unwrap();
    fetcher.fetch(&server.url, &digest).await.unwrap();
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
    drop(first);
    fetcher.fetch(&server.url, &digest).await.unwrap();
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn server_errors_are_retried() {
    let (bytes, digest) = archive();
    let server = serve(vec![(500, vec![]), (503, vec![]), (429, vec![]), (200, bytes)]).await;
    fetcher(|_| {}).fetch(&server.url, &digest).await.unwrap();
    assert_eq!(server.requests.load(Ordering::SeqCst), 4);
}

#[track_caller]
fn check_requests(server: &Server, expected: u32) {
    assert_eq!(server.requests.load(Ordering::SeqCst), expected);
}

#[tokio::test]
async fn final_answers_are_not_retried() {
    let (_, digest) = archive();
    let server = serve(vec![(404, vec![])]).await;
    let error = fetcher(|_| {}).fetch(&server.url, &digest).await.unwrap_err();
    assert!(error.is_not_found());
    check_requests(&server, 1);
    for status in [403, 501] {
        let server = serve(vec![(status, vec![])]).await;
        let error = fetcher(|_| {}).fetch(&server.url, &digest).await.unwrap_err();
        assert!(matches!(error, FetchError::Status { .. }), "{error}");
        check_requests(&server, 1);
    }
}

#[tokio::test]
async fn retries_end() {
    let (_, digest) = archive();
    let server = serve(vec![(502, vec![])]).await;
    let error = fetcher(|_| {}).fetch(&server.url, &digest).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("failed to download archive from {} (status: 502 Bad Gateway)", server.url)
    );
    check_requests(&server, 4);
    let error = fetcher(|options| options.retries = 1)
        .fetch("http://127.0.0.1:1/a.tar.gz", &digest)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to download archive: GET http://127.0.0.1:1/a.tar.gz giving up after 2 attempt(s)"
    );
}

#[tokio::test]
async fn wrong_bytes_are_refused_before_unpacking() {
    let (bytes, digest) = archive();
    let server = serve(vec![(200, b"something else".to_vec())]).await;
    let error = fetcher(|_| {}).fetch(&server.url, &digest).await.unwrap_err();
    let found = Algorithm::Sha256.digest(b"something else");
    assert_eq!(
        error.to_string(),
        format!(
            "failed to verify archive: computed digest doesn't match provided '{digest}': got '{found}' after 14 bytes"
        )
    );
    for bad in ["", "md5:12", "12"] {
        let error = fetcher(|_| {}).fetch(&server.url, bad).await.unwrap_err();
        assert!(matches!(error, FetchError::InvalidDigest { .. }), "{bad}");
    }
    let server = serve(vec![(200, bytes)]).await;
    let plain = digest.trim_start_matches("sha256:").to_owned();
    fetcher(|_| {}).fetch(&server.url, &plain).await.unwrap();
}

#[tokio::test]
async fn limits_and_broken_archives() {
    let (bytes, digest) = archive();
    let server = serve(vec![(200, bytes)]).await;
    let error =
        fetcher(|options| options.download_bytes_max = 10).fetch(&server.url, &digest).await.unwrap_err();
    assert_eq!(error.to_string(), "artifact is greater than the max download size of 10 bytes");
    let error = fetcher(|options| options.limits.unpacked_bytes_max = 2)
        .fetch(&server.url, &digest)
        .await
        .unwrap_err();
    assert!(matches!(error, FetchError::Unpack(UnpackError::TooLarge { .. })));
    let server = serve(vec![(200, b"no archive".to_vec())]).await;
    let digest = Algorithm::Blake3.digest(b"no archive").to_string();
    let error = fetcher(|_| {}).fetch(&server.url, &digest).await.unwrap_err();
    assert!(matches!(error, FetchError::Unpack(UnpackError::Read(_))));
    assert_eq!(fetcher(|_| {}).download(&server.url, &digest).await.unwrap(), "no archive");
}

#[test]
fn the_host_can_be_replaced() {
    let fetcher = fetcher(|options| options.host_override = Some("localhost:9090".to_owned()));
    let url = fetcher.effective_url("http://source-controller.ns.svc./a/b:c.tar.gz").unwrap();
    assert_eq!(url.as_str(), "http://localhost:9090/a/b:c.tar.gz");
    let fetcher = self::fetcher(|options| {
        options.host_override = Some("localhost:9090".to_owned());
        options.watcher_host_override = Some("localhost:9091".to_owned());
    });
    let url = fetcher.effective_url("http://source-watcher.ns.svc./a.tar.gz").unwrap();
    assert_eq!(url.as_str(), "http://localhost:9091/a.tar.gz");
    let url = fetcher.effective_url("http://source-controller.ns.svc./a.tar.gz").unwrap();
    assert_eq!(url.as_str(), "http://localhost:9090/a.tar.gz");
}
