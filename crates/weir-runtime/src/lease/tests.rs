use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_base::clock::FixedClock;

use super::*;

/// An API server that knows one Lease.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    writes: usize,
    broken: bool,
}

impl Server {
    fn client(&self) -> kube::Client {
        let server = self.clone();
        kube::Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move { server.answer(request).await }
            }),
            "flux-system",
        )
    }

    async fn answer(
        self,
        request: Request<Body>,
    ) -> Result<Response<Body>, Box<dyn std::error::Error + Send + Sync>> {
        let method = request.method().clone();
        let body = request.into_body().collect().await?.to_bytes();
        let mut state = self.0.lock();
        let (code, answer) = if state.broken {
            (500, failure(500, "InternalError"))
        } else if method == Method::GET {
            match &state.lease {
                Some(lease) => (200, lease.clone()),
                None => (404, failure(404, "NotFound")),
            }
        } else {
            let mut sent: Value = serde_json::from_slice(&body)?;
            let held = state.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
            if held.is_some_and(|held| held != sent["metadata"]["resourceVersion"]) {
                (409, failure(409, "Conflict"))
            } else {
                state.version += 1;
                state.writes += 1;
                sent["metadata"]["resourceVersion"] = json!(state.version.to_string());
                state.lease = Some(sent.clone());
                (200, sent)
            }
        };
        Ok(Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?))?)
    }

    fn spec(&self) -> Value {
        self.0.lock().lease.as_ref().map(|lease| lease["spec"].clone()).unwrap_or_default()
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason})
}

fn options(identity: &str) -> LeaseOptions {
    LeaseOptions {
        namespace: "flux-system".to_owned(),
        name: "kustomize-controller-leader-election".to_owned(),
        identity: identity.to_owned(),
        lease_duration: Duration::from_secs(35),
        renew_deadline: Duration::from_secs(30),
        retry_period: Duration::from_secs(5),
        release_on_cancel: true,
    }
}

fn election(server: &Server, identity: &str) -> Election {
    let clock = FixedClock("2026-01-01T00:00:00Z".parse().unwrap());
    Election::new(server.client(), options(identity), WriteGate::default(), Arc::new(clock))
}

#[tokio::test(start_paused = true)]
async fn the_first_process_creates_the_lease_and_the_second_waits() {
    let server = Server::default();
    let mut first = election(&server, "first");
    first.acquire().await;
    assert!(first.gate.is_open());
    assert_eq!(
        server.spec(),
        json!({
            "holderIdentity": "first",
            "leaseDurationSeconds": 35,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        })
    );
    let mut second = election(&server, "second");
    // The holder is silent, so the second takes over, but not before the lease has expired.
    let started = Instant::now();
    second.acquire().await;
    let waited = started.elapsed();
    assert!(waited > Duration::from_secs(35) && waited < Duration::from_secs(45), "{waited:?}");
    assert_eq!(server.spec()["holderIdentity"], "second");
    assert_eq!(server.spec()["leaseTransitions"], 1);
    // By then the first must have stopped writing by itself.
    assert!(!first.gate.is_open());
    assert!(second.gate.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_held_lease_is_renewed_and_given_up_at_the_end() {
    let server = Server::default();
    let mut first = election(&server, "first");
    first.acquire().await;
    let stop = CancellationToken::new();
    let end = stop.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(101)).await;
        end.cancel();
    });
    first.hold(&stop).await.unwrap();
    assert!(first.gate.is_open());
    assert_eq!(server.0.lock().writes, 21);
    first.release().await;
    assert!(!first.gate.is_open());
    assert_eq!(server.spec()["holderIdentity"], "");
    let mut second = election(&server, "second");
    let started = Instant::now();
    second.acquire().await;
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_is_lost_before_others_may_take_it() {
    let server = Server::default();
    let mut first = election(&server, "first");
    first.acquire().await;
    server.0.lock().broken = true;
    let started = Instant::now();
    let error = first.hold(&CancellationToken::new()).await.unwrap_err();
    assert_eq!(started.elapsed(), Duration::from_secs(30));
    assert!(!first.gate.is_open());
    assert_eq!(
        error.to_string(),
        "leader election lost: lease 'flux-system/kustomize-controller-leader-election' was not renewed in time"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_someone_else_took_is_lost_at_once() {
    let server = Server::default();
    let mut first = election(&server, "first");
    first.acquire().await;
    if let Some(lease) = &mut server.0.lock().lease {
        lease["spec"]["holderIdentity"] = json!("second");
        lease["metadata"]["resourceVersion"] = json!("99");
    }
    let started = Instant::now();
    first.hold(&CancellationToken::new()).await.unwrap_err();
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    first.release().await;
    assert_eq!(server.spec()["holderIdentity"], "second");
}

#[tokio::test(start_paused = true)]
async fn a_short_failure_of_the_server_is_survived() {
    let server = Server::default();
    let mut first = election(&server, "first");
    first.acquire().await;
    let stop = CancellationToken::new();
    let (end, flaky) = (stop.clone(), server.clone());
    tokio::spawn(async move {
        flaky.0.lock().broken = true;
        sleep(Duration::from_secs(22)).await;
        flaky.0.lock().broken = false;
        sleep(Duration::from_mins(1)).await;
        end.cancel();
    });
    first.hold(&stop).await.unwrap();
    assert!(first.gate.is_open());
}

#[test]
fn shards_have_their_own_lease() {
    assert_eq!(lease_name("source-controller", ""), "source-controller-leader-election");
    // printf 'sharding.fluxcd.io/key=shard1' | sha256sum
    assert_eq!(
        lease_name("source-controller", "sharding.fluxcd.io/key=shard1"),
        "source-controller-leader-election-73fdc1be"
    );
}
