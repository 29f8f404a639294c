//! A proxy in front of the API server that counts what one controller asks of it, and fails on request.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderName, Method, StatusCode, header};
use kube::Client;
use rand::RngExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One sort of request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// As in RBAC: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: &'static str,
    /// Plural and sub-resource, `deployments` or `kustomizations/status`; the path for other requests.
    pub resource: String,
    /// Whether the server was asked not to store anything.
    pub dry_run: bool,
}

impl Call {
    /// The sort of a request.
    pub fn classify(method: &Method, path: &str, query: &str) -> Self {
        let parameter = |name: &str, value: &str| {
            query
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .any(|(key, found)| key == name && found == value)
        };
        let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let prefix = match segments.first() {
            Some(&"api") => 2,
            Some(&"apis") => 3,
            _ => usize::MAX,
        };
        let verb = |named: bool| match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if named => "delete",
            Method::DELETE => "deletecollection",
            _ if parameter("watch", "true") || parameter("watch", "1") => "watch",
            _ if named => "get",
            _ => "list",
        };
        if segments.len() <= prefix {
            return Self { verb: verb(true), resource: path.to_owned(), dry_run: false };
        }
        segments.drain(..prefix);
        if segments[0] == "namespaces" && segments.len() > 2 && !["status", "finalize"].contains(&segments[2])
        {
            segments.drain(..2);
        }
        let resource = if segments.len() > 2 {
            format!("{}/{}", segments[0], segments[2..].join("/"))
        } else {
            segments[0].to_owned()
        };
        Self { verb: verb(segments.len() > 1), resource, dry_run: parameter("dryRun", "All") }
    }

    /// Whether it asks for a change of what is stored.
    pub fn is_write(&self) -> bool {
        let reviews = self.resource.ends_with("reviews"); // questions that are asked by creating
        !self.dry_run && !reviews && !matches!(self.verb, "get" | "list" | "watch")
    }

    /// Whether it is about an event or a lease, which say nothing about the managed objects.
    pub fn is_bookkeeping(&self) -> bool {
        matches!(self.resource.as_str(), "events" | "leases")
    }
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{} {}", self.verb, if self.dry_run { " (dry run)" } else { "" }, self.resource)
    }
}

/// How many requests of each sort were made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<Call, u64>);

impl Counts {
    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |(call, count): (&Call, &u64)| {
            let more = count - earlier.0.get(call).copied().unwrap_or(0);
            (more > 0).then(|| (call.clone(), more))
        };
        Self(self.0.iter().filter_map(difference).collect())
    }

    /// Every sort of request, and how many there were.
    pub fn sorts(&self) -> impl Iterator<Item = (&Call, &u64)> {
        self.0.iter()
    }

    /// The number of requests that pass a test.
    pub fn count(&self, test: impl Fn(&Call) -> bool) -> u64 {
        self.0.iter().filter(|(call, _)| test(call)).map(|(_, count)| count).sum()
    }

    /// Requests that change stored objects, events and leases aside.
    pub fn writes(&self) -> u64 {
        self.count(|call| call.is_write() && !call.is_bookkeeping())
    }

    /// Requests that change nothing, dry runs included, watches and leases aside.
    pub fn reads(&self) -> u64 {
        self.count(|call| !call.is_write() && call.verb != "watch" && !call.is_bookkeeping())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} writes, {} reads", self.writes(), self.reads())?;
        let mut separator = ": ";
        for (call, count) in &self.0 {
            write!(formatter, "{separator}{count} {call}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// What goes wrong between a controller and the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// The server is gone: running answers, watches too, are cut off, and requests are answered with 503.
    pub outage: bool,
    /// How many of 100 requests are answered with 503 and do not reach the server.
    pub refused_percent: u8,
    /// How many of 100 writes succeed, but are answered with 503.
    pub lost_answers_percent: u8,
}

#[derive(Clone)]
struct Upstream {
    client: Client,
    counts: Arc<Mutex<Counts>>,
    faults: watch::Receiver<Faults>,
}

/// A plain HTTP listener that forwards to the API server with the rights of the kubeconfig.
pub struct ApiProxy {
    address: SocketAddr,
    counts: Arc<Mutex<Counts>>,
    faults: watch::Sender<Faults>,
    server: JoinHandle<()>,
}

impl ApiProxy {
    /// Starts a proxy on a free loopback port.
    ///
    /// # Errors
    /// There is none.
    pub async fn start(client: Client) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Mutex::new(Counts::default()));
        let (faults, watched) = watch::channel(Faults::default());
        let upstream = Upstream { client, counts: Arc::clone(&counts), faults: watched };
        let router = Router::new().fallback(forward).with_state(upstream);
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, counts, faults, server })
    }

    /// From now on these faults happen.
    pub fn set_faults(&self, faults: Faults) {
        self.faults.send_replace(faults);
    }

    /// What was asked so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A kubeconfig that leads through this proxy.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: proxy\nclusters:\n- name: proxy\n  cluster:\n    \
             server: http://{}\ncontexts:\n- name: proxy\n  context:\n    cluster: proxy\n    user: proxy\nusers:\n\
             - name: proxy\n  user: {{}}\n",
            self.address
        )
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Headers that belong to one connection, not to the request.
const HOP_BY_HOP: [HeaderName; 5] =
    [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::CONTENT_LENGTH];

async fn forward(State(upstream): State<Upstream>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let call = Call::classify(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
    *upstream.counts.lock().unwrap_or_else(PoisonError::into_inner).0.entry(call.clone()).or_default() += 1;
    let faults = *upstream.faults.borrow();
    let happens = |percent: u8| percent > 0 && rand::rng().random_range(0..100) < percent;
    let (refused, lost) = (
        faults.outage || happens(faults.refused_percent),
        call.is_write() && happens(faults.lost_answers_percent),
    );
    let failed = |error: String| (StatusCode::BAD_GATEWAY, error).into_response();
    let unavailable = || (StatusCode::SERVICE_UNAVAILABLE, "the proxy was told to fail").into_response();
    if refused {
        return unavailable();
    }
    let body = match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => return failed(error.to_string()),
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut forwarded = http::Request::builder().method(parts.method).uri(path);
    for (name, value) in &parts.headers {
        if !HOP_BY_HOP.contains(name) {
            forwarded = forwarded.header(name, value);
        }
    }
    let forwarded = match forwarded.body(kube::client::Body::from(body.to_vec())) {
        Ok(forwarded) => forwarded,
        Err(error) => return failed(error.to_string()),
    };
    match upstream.client.send(forwarded).await {
        Ok(_) if lost => unavailable(),
        Ok(answer) => {
            let (mut parts, body) = answer.into_parts();
            for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
                parts.headers.remove(name);
            }
            let data = Body::new(body).into_data_stream().map_err(std::io::Error::other);
            let cut = futures::stream::once(outage(upstream.faults));
            let body =
                futures::stream::select(data.map(Some).chain(futures::stream::iter([None])), cut.map(Some));
            Response::from_parts(
                parts,
                Body::from_stream(
                    body.take_while(|item| std::future::ready(item.is_some())).filter_map(std::future::ready),
                ),
            )
        }
        Err(error) => failed(error.to_string()),
    }
}

/// An error, once the server is gone.
async fn outage(mut faults: watch::Receiver<Faults>) -> Result<Bytes, std::io::Error> {
    if faults.wait_for(|faults| faults.outage).await.is_err() {
        std::future::pending::<()>().await; // the scenario is over
    }
    Err(std::io::Error::other("the proxy was told to fail"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &Method, path: &str, query: &str, expected: &str, write: bool) {
        let call = Call::classify(method, path, query);
        assert_eq!((call.to_string().as_str(), call.is_write()), (expected, write));
    }

    #[test]
    fn requests_are_named_as_in_rbac() {
        check(&Method::GET, "/api/v1/namespaces/a/configmaps/b", "", "get configmaps", false);
        check(&Method::GET, "/api/v1/namespaces/a", "", "get namespaces", false);
        check(&Method::GET, "/api/v1/namespaces", "labelSelector=a%3Db", "list namespaces", false);
        check(&Method::GET, "/apis/apps/v1/deployments", "watch=true", "watch deployments", false);
        check(
            &Method::PATCH,
            "/apis/apps/v1/namespaces/a/deployments/b",
            "dryRun=All&force=true",
            "patch (dry run) deployments",
            false,
        );
        check(
            &Method::PATCH,
            "/apis/apps/v1/namespaces/a/deployments/b",
            "force=true",
            "patch deployments",
            true,
        );
        check(&Method::PATCH, "/apis/g.x/v1/namespaces/a/things/b/status", "", "patch things/status", true);
        check(&Method::POST, "/api/v1/namespaces/a/events", "", "create events", true);
        check(&Method::PUT, "/api/v1/namespaces/a/finalize", "", "update namespaces/finalize", true);
        check(&Method::DELETE, "/api/v1/namespaces/a/secrets", "", "deletecollection secrets", true);
        check(&Method::DELETE, "/api/v1/namespaces/a/secrets/b", "", "delete secrets", true);
        check(
            &Method::POST,
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "",
            "create selfsubjectaccessreviews",
            false,
        );
        check(&Method::GET, "/version", "", "get /version", false);
        check(&Method::HEAD, "/livez/ping", "", "get /livez/ping", false);
    }

    #[test]
    fn counts_subtract() {
        let call = Call::classify(&Method::GET, "/api/v1/namespaces", "");
        let (before, after) = (Counts([(call.clone(), 2)].into()), Counts([(call, 5)].into()));
        assert_eq!(after.since(&before).to_string(), "0 writes, 3 reads: 3 list namespaces");
    }
}
