//! An HTTP server that reads requests within limits and hands them, complete, to a [`Handler`].
//!
//! The limits of size and time are those of the reference. On top of them the memory of all bodies
//! together and the number of connections are bounded, so that neither many slow senders nor many
//! large ones cost more than a fixed amount.

mod metrics;

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error};

pub use metrics::HttpMetrics;

/// How long to wait before the next try when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server takes.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest body, in bytes.
    pub body_bytes_max: usize,
    /// The largest request line with headers, in bytes.
    pub header_bytes_max: usize,
    /// The most headers.
    pub headers_max: usize,
    /// The longest time until all headers are there, and how long a connection may idle.
    pub header_timeout: Duration,
    /// The longest time until the whole request is there.
    pub read_timeout: Duration,
    /// The most connections at a time; others wait to be accepted.
    pub connections_max: usize,
    /// The most bytes all bodies together may take up at a time.
    pub buffered_bytes_max: usize,
    /// How long requests may go on after the process was told to stop.
    pub stop_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 3 << 20,
            header_bytes_max: 256 << 10,
            headers_max: 1000,
            header_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(30),
            connections_max: 2048,
            buffered_bytes_max: 64 << 20,
            stop_grace: Duration::from_secs(5),
        }
    }
}

/// A request that was read completely.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path with the query, as the client wrote it.
    pub target: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// What is answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// An answer without a body.
    pub fn status(status: StatusCode) -> Self {
        Self { status, ..Self::default() }
    }

    /// An answer with a line of text, as Go's `http.Error` writes it.
    pub fn text(status: StatusCode, text: &str) -> Self {
        let mut answer = Self::status(status);
        answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        answer.headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        answer.body = Bytes::from(format!("{text}\n"));
        answer
    }
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Decides by the path with the query, before the body is read, whether the request is answered
    /// without it.
    fn admit(&self, target: &str) -> impl Future<Output = Result<(), Answer>> + Send {
        let _ = target;
        std::future::ready(Ok(()))
    }

    /// Answers a complete request.
    ///
    /// # Cancellation
    /// Dropped when the client goes away.
    fn handle(&self, request: Request) -> impl Future<Output = Answer> + Send;
}

/// Serves until `stop`; then lets requests in progress end for a while.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    handler: Arc<H>,
    limits: Limits,
    metrics: HttpMetrics,
    stop: CancellationToken,
) {
    let server = Arc::new(Server {
        handler,
        metrics,
        connections: Arc::new(Semaphore::new(limits.connections_max)),
        buffered: Semaphore::new(limits.buffered_bytes_max),
        limits,
        stop: stop.clone(),
    });
    let tracker = TaskTracker::new();
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = Arc::clone(&server).accept(&listener, &tracker) => {}
    }
    drop(listener);
    tracker.close();
    if timeout(server.limits.stop_grace, tracker.wait()).await.is_err() {
        debug!(connections = tracker.len(), "dropping connections that did not end in time");
    }
}

struct Server<H> {
    handler: Arc<H>,
    metrics: HttpMetrics,
    connections: Arc<Semaphore>,
    buffered: Semaphore,
    limits: Limits,
    stop: CancellationToken,
}

/// Why there is no body.
enum Unread {
    TooLarge,
    Broken,
    /// Too many bytes are held by other requests.
    Busy,
}

impl<H: Handler> Server<H> {
    async fn accept(self: Arc<Self>, listener: &TcpListener, tracker: &TaskTracker) {
        loop {
            // Never closed, so there always is a permit sooner or later.
            let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let server = Arc::clone(&self);
                    tracker.spawn(async move {
                        server.connection(stream).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    debug!(%error, "failed to accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // A latency of a few packets; without it the connection works as well.
        let _ = stream.set_nodelay(true);
        let (stop, limits) = (self.stop.clone(), self.limits.clone());
        let service = service_fn(move |request| {
            let server = Arc::clone(&self);
            async move { Ok::<_, Infallible>(server.request(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(limits.header_bytes_max)
            .max_headers(limits.headers_max)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, "connection ended");
        }
    }

    async fn request(&self, request: http::Request<Incoming>) -> http::Response<Full<Bytes>> {
        let observed = self.metrics.start(request.method(), request.uri().path());
        let (answer, is_read) = self.answer(request).await;
        observed.end(answer.status, answer.body.len());
        let mut response = http::Response::new(Full::new(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        if !is_read {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The answer, and whether the request was read to its end.
    async fn answer(&self, request: http::Request<Incoming>) -> (Answer, bool) {
        let target = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
        let declared = declared_length(request.headers());
        if declared.is_some_and(|length| length > self.limits.body_bytes_max as u64) {
            return (Answer::status(StatusCode::PAYLOAD_TOO_LARGE), false);
        }
        if let Err(answer) = self.handler.admit(&target).await {
            return (answer, request.body().is_end_stream());
        }
        let (parts, body) = request.into_parts();
        let read = timeout(self.limits.read_timeout, self.read(body)).await.unwrap_or(Err(Unread::Broken));
        let (body, _held) = match read {
            Ok(read) => read,
            Err(unread) => {
                let status = match unread {
                    Unread::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                    Unread::Broken => StatusCode::BAD_REQUEST,
                    Unread::Busy => StatusCode::SERVICE_UNAVAILABLE,
                };
                return (Answer::status(status), false);
            }
        };
        let request = Request { method: parts.method, target, headers: parts.headers, body };
        let handled = AssertUnwindSafe(self.handler.handle(request)).catch_unwind().await;
        let answer = handled.unwrap_or_else(|_| {
            error!(error = "the handler panicked", "failed to answer a request");
            Answer::status(StatusCode::INTERNAL_SERVER_ERROR)
        });
        (answer, true)
    }

    /// The body, and the hold on the bytes it takes up.
    async fn read(
        &self,
        mut body: Incoming,
    ) -> Result<(Bytes, Option<tokio::sync::SemaphorePermit<'_>>), Unread> {
        let mut held = None::<tokio::sync::SemaphorePermit<'_>>;
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
            if read.len() + data.len() > self.limits.body_bytes_max {
                return Err(Unread::TooLarge);
            }
            // Bytes are held as they come: who only announces many holds none.
            let length = u32::try_from(data.len()).map_err(|_| Unread::TooLarge)?;
            let more = self.buffered.try_acquire_many(length).map_err(|_| Unread::Busy)?;
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
            read.extend_from_slice(&data);
        }
        Ok((read.freeze(), held))
    }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
