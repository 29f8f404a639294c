//! The Kubernetes client: configuration, throttling, counting, impersonation, and the gate that
//! stops writes when the lease is lost.

use std::sync::Arc;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::Metrics;

/// The longest a request other than a watch may take until its answer begins.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// How many requests of one client wait for the beginning of their answer at the same time. Hundreds of objects that wait
/// without a worker would otherwise ask a slow server for more and more, until nothing is answered in time.
const IN_FLIGHT_MAX: usize = 32;
/// How often a request is sent if the server is busy and says when to come back.
const BUSY_ATTEMPTS_MAX: u32 = 5;
/// The longest time a busy server is waited for.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(10);
/// The header by which an API server shows that it does priority and fairness.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";

/// The client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No usable configuration, neither a kubeconfig nor that of a pod.
    #[error("failed to read the Kubernetes client configuration")]
    Config(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The configuration cannot be used.
    #[error("failed to set up the Kubernetes client")]
    Setup(#[source] Box<kube::Error>),
    /// The user agent or user is not a header value.
    #[error("'{0}' cannot be sent as a header")]
    Header(String),
}

/// Why a write was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process no longer holds the lease; the write was not sent")]
pub struct NotLeading;

/// No answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the Kubernetes API within {}", weir_api::GoDuration::from(REQUEST_TIMEOUT))]
pub struct NoAnswer;

/// Whether this process may write. Cloning gives another handle to the same gate.
#[derive(Debug, Clone, Default)]
pub struct WriteGate(Arc<Mutex<Gate>>);

#[derive(Debug, Clone, Copy, Default)]
enum Gate {
    /// There is no lease to hold.
    #[default]
    Open,
    /// Open until the lease must have been renewed.
    Until(Instant),
    /// Another process may lead.
    Closed,
}

impl WriteGate {
    /// Whether a write may be sent now.
    pub fn is_open(&self) -> bool {
        match *self.0.lock() {
            Gate::Open => true,
            Gate::Until(end) => Instant::now() < end,
            Gate::Closed => false,
        }
    }

    pub(crate) fn open_until(&self, end: Instant) {
        *self.0.lock() = Gate::Until(end);
    }

    pub(crate) fn close(&self) {
        *self.0.lock() = Gate::Closed;
    }
}

/// A token bucket: `rate` requests per second on average, `burst` at once.
#[derive(Debug)]
struct Throttle {
    interval: Duration,
    burst: u32,
    /// When the bucket would be full again.
    full_at: Mutex<Instant>,
}

impl Throttle {
    fn new(rate: f32, burst: u32) -> Option<Self> {
        (rate > 0.0).then(|| Self {
            interval: Duration::from_secs_f32(1.0 / rate),
            burst: burst.max(1),
            full_at: Mutex::new(Instant::now()),
        })
    }

    async fn wait(&self) {
        let go_at = {
            let mut full_at = self.full_at.lock();
            *full_at = (*full_at).max(Instant::now()) + self.interval;
            full_at.checked_sub(self.interval * self.burst)
        };
        if let Some(go_at) = go_at {
            sleep_until(go_at).await;
        }
    }
}

/// Reads the configuration of the client: `KUBECONFIG` if it is set, then that of a pod, then the
/// kubeconfig of the user.
///
/// # Errors
/// [`ClientError::Config`] if none can be used.
pub(crate) async fn config(user_agent: &str) -> Result<Config, ClientError> {
    let boxed = |error: Box<dyn std::error::Error + Send + Sync>| ClientError::Config(error);
    let in_pod =
        std::env::var_os("KUBECONFIG").is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let mut config = if in_pod {
        Config::incluster().map_err(|error| boxed(error.into()))?
    } else {
        Config::infer().await.map_err(|error| boxed(error.into()))?
    };
    let agent = HeaderValue::from_str(user_agent).map_err(|_| ClientError::Header(user_agent.to_owned()))?;
    // Its retries would go on after the gate has closed; `send` has its own.
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, agent));
    Ok(config)
}

/// What happens to every request of a client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wrapping {
    pub(crate) gate: Option<WriteGate>,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) host: String,
    pub(crate) rate: f32,
    pub(crate) burst: u32,
}

/// A client that sends through `inner` what passes the gate and the throttle, and counts it.
pub(crate) fn wrap(inner: Client, wrapping: Wrapping) -> Client {
    let namespace = inner.default_namespace().to_owned();
    let throttle = Throttle::new(wrapping.rate, wrapping.burst).map(Arc::new);
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let wrapping = Arc::new(wrapping);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, throttle, wrapping) = (inner.clone(), throttle.clone(), Arc::clone(&wrapping));
        let in_flight = Arc::clone(&in_flight);
        async move {
            if let Some(throttle) = &throttle {
                throttle.wait().await;
            }
            send(&inner, request, &wrapping, &in_flight).await
        }
    });
    Client::new(service, namespace)
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn send(
    inner: &Client,
    request: Request<Body>,
    wrapping: &Wrapping,
    in_flight: &Semaphore,
) -> Result<Response<Body>, BoxError> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let streams = is_stream(request.uri().query().unwrap_or_default());
    let (parts, body) = request.into_parts();
    let body = body.collect_bytes().await?.to_vec();
    let mut attempt = 1;
    loop {
        // A stream may begin when something happens, long after it was asked for.
        let place = if streams { None } else { in_flight.acquire().await.ok() };
        if !reads && wrapping.gate.as_ref().is_some_and(|gate| !gate.is_open()) {
            return Err(NotLeading.into());
        }
        let answer = inner.send(Request::from_parts(parts.clone(), Body::from(body.clone())));
        let answer = if streams {
            answer.await
        } else {
            timeout(REQUEST_TIMEOUT, answer)
                .await
                .unwrap_or_else(|_| Err(kube::Error::Service(NoAnswer.into())))
        };
        drop(place);
        if let Some(metrics) = &wrapping.metrics {
            let code = match &answer {
                Ok(response) => response.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            metrics.request(&code, &wrapping.host, parts.method.as_str());
        }
        let response = answer?;
        match busy_for(&response) {
            Some(wait) if attempt < BUSY_ATTEMPTS_MAX => {
                attempt += 1;
                sleep(wait).await;
            }
            _ => return Ok(response),
        }
    }
}

/// How long the server asks to wait: it does so when it is overloaded, starting or stopping.
fn busy_for(response: &Response<Body>) -> Option<Duration> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(BUSY_WAIT_MAX))
}

fn is_stream(query: &str) -> bool {
    query.split('&').any(|part| matches!(part, "watch=true" | "watch=1" | "follow=true"))
}

/// A client that acts as another user, over the same connections.
///
/// # Errors
/// [`ClientError::Header`] if the user name cannot be sent.
pub fn impersonate(client: &Client, user: &str) -> Result<Client, ClientError> {
    const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
    let value = HeaderValue::from_str(user).map_err(|_| ClientError::Header(user.to_owned()))?;
    let namespace = client.default_namespace().to_owned();
    let inner = client.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let inner = inner.clone();
        request.headers_mut().insert(IMPERSONATE_USER, value.clone());
        async move { inner.send(request).await }
    });
    Ok(Client::new(service, namespace))
}

/// A client that acts as a service account, as `spec.serviceAccountName` asks for.
///
/// # Errors
/// [`ClientError::Header`] if the names cannot be sent.
pub fn impersonate_service_account(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Client, ClientError> {
    impersonate(client, &format!("system:serviceaccount:{namespace}:{name}"))
}

/// Whether the API server does priority and fairness, so that clients need not hold back.
///
/// # Errors
/// When the server cannot be asked.
pub async fn has_priority_and_fairness(client: &Client) -> Result<bool, kube::Error> {
    let request = Request::head("/livez/ping").body(Body::empty()).map_err(kube::Error::HttpError)?;
    let response = client.send(request).await?;
    Ok(response.headers().contains_key(FLOW_SCHEMA))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{DeleteParams, ListParams};

    /// A server that answers everything and notes what came.
    fn server(seen: Arc<Mutex<Vec<String>>>, header: Option<&'static str>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let user =
                request.headers().get("impersonate-user").map(|user| user.to_str().unwrap().to_owned());
            seen.lock().push(format!(
                "{} {}{}",
                request.method(),
                request.uri().path(),
                user.map(|user| format!(" as {user}")).unwrap_or_default()
            ));
            let mut response = Response::new(Body::from(
                br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}"#.to_vec(),
            ));
            if let Some(header) = header {
                response.headers_mut().insert(header, HeaderValue::from_static("x"));
            }
            async move { Ok::<_, BoxError>(response) }
        });
        Client::new(service, "default")
    }

    async fn list(client: &Client) -> Result<(), kube::Error> {
        let api: Api<ConfigMap> = Api::all(client.clone());
        api.list(&ListParams::default()).await.map(drop)
    }

    #[tokio::test]
    async fn a_closed_gate_stops_writes_and_nothing_else() {
        let seen = Arc::default();
        let gate = WriteGate::default();
        let wrapping = Wrapping { gate: Some(gate.clone()), ..Wrapping::default() };
        let client = wrap(server(Arc::clone(&seen), None), wrapping);
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "apps");
        gate.close();
        let error = api.delete("a", &DeleteParams::default()).await.unwrap_err();
        assert!(error.to_string().contains("no longer holds the lease"), "{error}");
        list(&client).await.unwrap();
        assert_eq!(*seen.lock(), ["GET /api/v1/configmaps"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_gate_closes_by_itself_when_the_lease_is_not_renewed() {
        let gate = WriteGate::default();
        gate.open_until(Instant::now() + Duration::from_secs(30));
        assert!(gate.is_open());
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(!gate.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_throttled_after_the_burst() {
        let wrapping = Wrapping { rate: 10.0, burst: 5, ..Wrapping::default() };
        let client = wrap(server(Arc::default(), None), wrapping);
        let started = Instant::now();
        for _ in 0..5 {
            list(&client).await.unwrap();
        }
        assert!(started.elapsed() < Duration::from_millis(5), "{:?}", started.elapsed());
        for _ in 0..10 {
            list(&client).await.unwrap();
        }
        let elapsed = started.elapsed();
        assert!((990..1020).contains(&elapsed.as_millis()), "{elapsed:?}");
    }

    #[tokio::test]
    async fn requests_are_counted() {
        let metrics = Metrics::new();
        let wrapping = Wrapping {
            metrics: Some(metrics.clone()),
            host: "10.0.0.1:443".to_owned(),
            ..Wrapping::default()
        };
        list(&wrap(server(Arc::default(), None), wrapping)).await.unwrap();
        let text = metrics.encode();
        let want = "rest_client_requests_total{code=\"200\",host=\"10.0.0.1:443\",method=\"GET\"} 1";
        assert!(text.contains(want), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_is_asked_again_when_it_says_but_not_after_the_gate_has_closed() {
        let sent = Arc::new(Mutex::new(0));
        let count = Arc::clone(&sent);
        let service = tower::service_fn(move |_: Request<Body>| {
            *count.lock() += 1;
            let body = r#"{"kind":"Status","status":"Failure","code":429,"message":"busy","reason":"TooManyRequests"}"#;
            let response = Response::builder().status(429).header("Retry-After", "2");
            let response = response.body(Body::from(body.as_bytes().to_vec()));
            async move { response.map_err(BoxError::from) }
        });
        let gate = WriteGate::default();
        let wrapping = Wrapping { gate: Some(gate.clone()), ..Wrapping::default() };
        let client = wrap(Client::new(service, "default"), wrapping);
        let started = Instant::now();
        list(&client).await.unwrap_err();
        assert_eq!((*sent.lock(), started.elapsed()), (5, Duration::from_secs(8)));
        gate.open_until(Instant::now() + Duration::from_secs(3));
        let api: Api<ConfigMap> = Api::namespaced(client, "apps");
        let error = api.delete("a", &DeleteParams::default()).await.unwrap_err();
        assert!(error.to_string().contains("no longer holds the lease"), "{error}");
        assert_eq!(*sent.lock(), 7);
    }

    #[tokio::test]
    async fn an_impersonating_client_names_the_user() {
        let seen = Arc::default();
        let client = server(Arc::clone(&seen), None);
        list(&impersonate_service_account(&client, "apps", "deployer").unwrap()).await.unwrap();
        list(&client).await.unwrap();
        assert_eq!(
            *seen.lock(),
            ["GET /api/v1/configmaps as system:serviceaccount:apps:deployer", "GET /api/v1/configmaps"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_given_up() {
        let service =
            tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>());
        let client = wrap(Client::new(service, "default"), Wrapping::default());
        let error = list(&client).await.unwrap_err();
        assert!(error.to_string().contains("no answer"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_is_not_asked_for_everything_at_once() {
        let now_and_most = Arc::new(Mutex::new((0_usize, 0_usize)));
        let count = Arc::clone(&now_and_most);
        let service = tower::service_fn(move |_: Request<Body>| {
            let count = Arc::clone(&count);
            async move {
                {
                    let mut count = count.lock();
                    count.0 += 1;
                    count.1 = count.1.max(count.0);
                }
                sleep(Duration::from_secs(1)).await;
                count.lock().0 -= 1;
                let body = br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}"#;
                Ok::<_, BoxError>(Response::new(Body::from(body.to_vec())))
            }
        });
        let client = wrap(Client::new(service, "default"), Wrapping::default());
        let started = Instant::now();
        let requests = (0..10 * IN_FLIGHT_MAX).map(|_| list(&client));
        futures::future::try_join_all(requests).await.unwrap();
        assert_eq!(now_and_most.lock().1, IN_FLIGHT_MAX);
        assert_eq!(started.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test]
    async fn priority_and_fairness_is_seen_in_a_header() {
        assert!(has_priority_and_fairness(&server(Arc::default(), Some(FLOW_SCHEMA))).await.unwrap());
        assert!(!has_priority_and_fairness(&server(Arc::default(), None)).await.unwrap());
    }
}
