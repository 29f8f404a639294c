//! A Bucket, a chart in it, and what goes wrong with buckets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use e2e::{DEADLINE, SOURCE, Scenario, condition, eventually, scenario, text};
use serde_json::json;

/// The objects of the bucket `fleet`, readable by everyone, and how many requests there were.
#[derive(Clone, Default)]
struct Store {
    objects: Arc<Mutex<BTreeMap<String, String>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Store {
    fn put(&self, key: &str, content: &str) -> Result<()> {
        self.objects
            .lock()
            .map_err(|_| anyhow::anyhow!("poisoned"))?
            .insert(key.to_owned(), content.to_owned());
        Ok(())
    }

    fn take_requests(&self) -> Result<Vec<String>> {
        Ok(std::mem::take(&mut *self.requests.lock().map_err(|_| anyhow::anyhow!("poisoned"))?))
    }
}

async fn answer(State(store): State<Store>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    if let Ok(mut requests) = store.requests.lock() {
        requests.push(format!("{} {path}", request.method()));
    }
    let Some(key) = path.strip_prefix("/fleet/") else { return StatusCode::NOT_FOUND.into_response() };
    let Ok(objects) = store.objects.lock() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    if !key.is_empty() {
        return match objects.get(key) {
            Some(content) => ([("etag", format!("\"{}\"", content.len()))], content.clone()).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        };
    }
    let mut page = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    for (key, content) in &*objects {
        let _ = write!(page, "<Contents><Key>{key}</Key><ETag>\"{}\"</ETag></Contents>", content.len());
    }
    page.push_str("</ListBucketResult>");
    page.into_response()
}

#[test]
fn buckets_are_fetched_and_charts_in_them_packaged() {
    scenario("buckets", |s: Arc<Scenario>| async move {
        let store = Store::default();
        store.put("charts/app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")?;
        store.put("charts/app/templates/map.yaml", "apiVersion: v1\nkind: ConfigMap\n")?;
        store.put("notes.txt", "left out")?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = listener.local_addr()?.to_string();
        let router = Router::new().fallback(answer).with_state(store.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        s.start_controllers().await?;
        let bucket = |name: &str, bucket: &str| {
            json!({
                "apiVersion": SOURCE, "kind": "Bucket",
                "metadata": { "name": name, "namespace": s.namespace },
                "spec": {
                    "bucketName": bucket, "endpoint": endpoint, "insecure": true, "interval": "1h",
                    "ignore": "*.txt", "timeout": "10s",
                },
            })
        };
        s.cluster.apply(&bucket("fleet", "fleet")).await?;
        let first = eventually(DEADLINE, "the bucket is ready", || async {
            let object = s.cluster.get(SOURCE, "Bucket", Some(&s.namespace), "fleet").await?;
            let ready = condition(&object, "Ready").context("no Ready condition")?;
            ensure!(text(ready, "/status") == "True", "{ready}");
            Ok(object)
        })
        .await?;
        let revision = text(&first, "/status/artifact/revision");
        // `printf 'charts/app/Chart.yaml 40\ncharts/app/templates/map.yaml 31\n' | sha256sum`
        ensure!(
            revision == "sha256:eb21254f2aa79b3eb219a24b50001b50cceb823c37219f45a41560d19cd6b533",
            "{revision}"
        );
        let message = text(condition(&first, "Ready").context("Ready")?, "/message");
        ensure!(message == format!("stored artifact: revision '{revision}'"), "{message}");
        ensure!(text(&first, "/status/url").ends_with("/latest.tar.gz"), "{first}");
        s.wait_event(
            "Bucket",
            "fleet",
            "Normal",
            "NewArtifact",
            &["stored artifact with 2 fetched files from 'fleet' bucket"],
        )
        .await?;

        // An unchanged bucket costs three requests and no write but the answer to the request.
        store.take_requests()?;
        let counts = s.source_api.counts();
        s.reconcile("Bucket", "fleet").await?;
        let requests = store.take_requests()?;
        ensure!(requests == ["HEAD /fleet/", "GET /fleet/.sourceignore", "GET /fleet/"], "{requests:?}");
        let quiet = s.source_api.counts().since(&counts);
        ensure!(
            quiet.count(|call: &e2e::Call| call.is_write() && call.resource != "buckets/status") == 0,
            "{quiet}"
        );

        // A chart from the bucket, and its next version without waiting for an interval.
        let chart = json!({
            "apiVersion": SOURCE, "kind": "HelmChart",
            "metadata": { "name": "app", "namespace": s.namespace },
            "spec": {
                "chart": "charts/app", "interval": "1h", "reconcileStrategy": "Revision",
                "sourceRef": { "kind": "Bucket", "name": "fleet" },
            },
        });
        s.cluster.apply(&chart).await?;
        let version = |wanted: String| {
            let s = Arc::clone(&s);
            async move {
                eventually(DEADLINE, &format!("the chart is at {wanted}"), || async {
                    let object = s.cluster.get(SOURCE, "HelmChart", Some(&s.namespace), "app").await?;
                    ensure!(text(&object, "/status/artifact/revision") == wanted, "{object}");
                    Ok(())
                })
                .await
            }
        };
        let hash =
            |revision: &str| revision.trim_start_matches("sha256:").chars().take(12).collect::<String>();
        version(format!("1.0.0+{}", hash(&revision))).await?;
        store.put("charts/app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.10.0\n")?;
        let object = s.reconcile("Bucket", "fleet").await?;
        version(format!("1.10.0+{}", hash(&text(&object, "/status/artifact/revision")))).await?;

        // What is wrong is said; the artifact of a bucket that fails stays.
        s.cluster.apply(&bucket("missing", "other")).await?;
        s.wait_failed("Bucket", "missing", "BucketOperationFailed", &["bucket 'other' not found"]).await?;
        let secret = json!({ "spec": { "secretRef": { "name": "nowhere" } } });
        s.cluster.edit(SOURCE, "Bucket", Some(&s.namespace), "fleet", "weir-e2e", &secret).await?;
        s.wait_failed("Bucket", "fleet", "AuthenticationFailed", &["secret", "not found"]).await?;
        let object = s.cluster.get(SOURCE, "Bucket", Some(&s.namespace), "fleet").await?;
        ensure!(text(&object, "/status/artifact/revision").starts_with("sha256:"), "{object}");
        // Credentials that come are used without a restart.
        s.cluster
            .apply(&json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "nowhere", "namespace": s.namespace },
                "stringData": { "accesskey": "a", "secretkey": "b" },
            }))
            .await?;
        s.wait_event("Bucket", "fleet", "Normal", "Succeeded", &["stored artifact"]).await?;

        s.cluster.delete(SOURCE, "Bucket", Some(&s.namespace), "fleet").await?;
        eventually(DEADLINE, "what is deleted is collected", || async {
            let path = s.storage().join("bucket").join(&s.namespace).join("fleet");
            ensure!(!path.exists(), "{} is still there", path.display());
            Ok(())
        })
        .await?;
        server.abort();
        Ok(())
    });
}
