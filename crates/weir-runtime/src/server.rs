//! The metrics and the health listener.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::Metrics;

/// An address could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not `host:port` or `:port`.
    #[error("invalid address '{0}': want 'host:port' or ':port'")]
    Address(String),
    /// The port is taken or may not be used.
    #[error("failed to listen on '{address}'")]
    Bind {
        /// The address as given.
        address: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Listens on an address as Go writes it: `:8080` is all addresses, IPv6 and IPv4.
///
/// # Errors
/// [`ListenError`] if the address does not parse, does not resolve or is taken.
pub async fn listen(address: &str) -> Result<TcpListener, ListenError> {
    let bind = |source| ListenError::Bind { address: address.to_owned(), source };
    let (host, port) = address.rsplit_once(':').ok_or_else(|| ListenError::Address(address.to_owned()))?;
    if !host.is_empty() {
        return TcpListener::bind(address).await.map_err(bind);
    }
    let port: u16 = port.parse().map_err(|_| ListenError::Address(address.to_owned()))?;
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => Ok(listener),
        // A machine without IPv6.
        Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await.map_err(bind),
    }
}

/// `/metrics`.
pub(crate) fn metrics(metrics: Metrics) -> Router {
    Router::new().route(
        "/metrics",
        get(move || async move {
            ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.encode())
        }),
    )
}

/// `/healthz` and `/readyz`: the process is up.
pub(crate) fn health() -> Router {
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(|| async { "ok" }))
}

/// Serves until `stop`.
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = served {
        error!(%error, "failed to serve");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    async fn get_text(router: Router, path: &str) -> (u16, String) {
        let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn probes_answer() {
        assert_eq!(get_text(health(), "/healthz").await, (200, "ok".to_owned()));
        assert_eq!(get_text(health(), "/readyz").await, (200, "ok".to_owned()));
    }

    #[tokio::test]
    async fn metrics_are_served_as_text() {
        let (status, text) = get_text(super::metrics(Metrics::new()), "/metrics").await;
        assert_eq!(status, 200);
        assert!(text.contains("# TYPE process_resident_memory_bytes gauge"), "{text}");
    }

    #[tokio::test]
    async fn a_bad_address_is_named() {
        assert_eq!(
            listen("8080").await.unwrap_err().to_string(),
            "invalid address '8080': want 'host:port' or ':port'"
        );
        assert_eq!(
            listen(":http").await.unwrap_err().to_string(),
            "invalid address ':http': want 'host:port' or ':port'"
        );
    }
}
