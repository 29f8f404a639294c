//! The HTTP file server consumers download artifacts from.
//!
//! `GET` and `HEAD` of everything below the storage root: files with range and conditional
//! requests, directories as a list of links. Besides, `/digest/<algorithm>:<hex>` answers with the
//! artifact of that digest, whatever its name. No authentication and no TLS, as in Flux: what is
//! published here is protected by network policy.

use std::fmt::Write as _;
use std::fs::Metadata;
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, LOCATION, RANGE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::net::TcpListener;
use tokio_util::io::ReaderStream;

use crate::storage::Storage;

/// How long open downloads may go on after shutdown was asked for.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
const CHUNK_BYTES: usize = 64 << 10;
const PATH_SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// Serves `storage` on `listener` until `shutdown` resolves, plus a grace of five seconds for open
/// downloads.
///
/// Errors: only those of the listener itself. Cancelling drops all connections.
pub async fn serve(
    listener: TcpListener,
    storage: Arc<Storage>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let server = axum::serve(listener, router(storage)).with_graceful_shutdown(async move {
        shutdown.await;
        let _ = stopping.send(());
    });
    tokio::select! {
        result = async { server.await } => result,
        () = async {
            // An error means that the server ended first, which the other branch reports.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(SHUTDOWN_GRACE).await;
        } => Ok(()),
    }
}

/// The file server as a router, for tests and for hosting it next to other routes.
pub fn router(storage: Arc<Storage>) -> Router {
    Router::new().fallback(answer).with_state(storage)
}

async fn answer(State(storage): State<Arc<Storage>>, request: Request) -> Response {
    let head = request.method() == Method::HEAD;
    if !head && request.method() != Method::GET {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let path = request.uri().path();
    let mut response = match locate(&storage, path).await {
        Found::Nothing => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        Found::Redirect(target) => redirect(&target),
        Found::Directory(local) => list(&local, path == "/").await,
        Found::File { local, meta, digest } => {
            send(&local, &meta, digest.as_deref(), request.headers()).await
        }
    };
    if head {
        *response.body_mut() = Body::empty();
    }
    response
}

enum Found {
    Nothing,
    Redirect(String),
    Directory(PathBuf),
    File { local: PathBuf, meta: Metadata, digest: Option<String> },
}

/// What a request path stands for. Nothing outside the storage root is ever found.
async fn locate(storage: &Storage, path: &str) -> Found {
    let Ok(decoded) = percent_decode_str(path).decode_utf8() else {
        return Found::Nothing;
    };
    let mut digest = None;
    let relative = match decoded.strip_prefix("/digest/") {
        Some(wanted) => match storage.find_digest(wanted) {
            Some(path) => {
                digest = Some(wanted.to_owned());
                path
            }
            None => return Found::Nothing,
        },
        None => decoded.trim_start_matches('/').to_owned(),
    };
    if relative.contains('\0') || relative.split('/').any(|part| matches!(part, "." | "..")) {
        return Found::Nothing;
    }
    // Resolves the `latest` links, and shows where every other link leads.
    let Ok(local) = tokio::fs::canonicalize(storage.root().join(&relative)).await else {
        return Found::Nothing;
    };
    if !local.starts_with(storage.root()) {
        return Found::Nothing;
    }
    match tokio::fs::metadata(&local).await {
        Ok(meta) if meta.is_dir() => {
            if decoded.ends_with('/') {
                Found::Directory(local)
            } else {
                let name = decoded.rsplit('/').next().unwrap_or_default();
                Found::Redirect(format!("{}/", utf8_percent_encode(name, PATH_SEGMENT)))
            }
        }
        Ok(meta) if meta.is_file() && !decoded.ends_with('/') => Found::File { local, meta, digest },
        _ => Found::Nothing,
    }
}

async fn list(local: &Path, is_root: bool) -> Response {
    let mut names = Vec::new();
    let Ok(mut entries) = tokio::fs::read_dir(local).await else {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let mut name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().await.is_ok_and(|kind| kind.is_dir()) {
            name.push('/');
        }
        names.push(name);
    }
    names.sort();
    let mut page =
        String::from("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n");
    if !is_root {
        page.push_str("<a href=\"../\">../</a>\n");
    }
    for name in names {
        let plain = name.trim_end_matches('/');
        let slash = &name[plain.len()..];
        let link = utf8_percent_encode(plain, PATH_SEGMENT);
        let shown = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        // `./` keeps a name with a colon from being read as a scheme.
        let _ = writeln!(page, "<a href=\"./{link}{slash}\">{shown}</a>");
    }
    page.push_str("</pre>\n");
    respond(StatusCode::OK, "text/html; charset=utf-8", Body::from(page))
}

async fn send(local: &Path, meta: &Metadata, digest: Option<&str>, request: &HeaderMap) -> Response {
    let length = meta.len();
    let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let entity = match digest {
        Some(digest) => format!("\"{digest}\""),
        None => entity_tag(length, modified),
    };
    let modified_seconds = seconds(modified);
    let mut response = match precondition(request, &entity, modified_seconds) {
        Precondition::Failed => {
            return text(StatusCode::PRECONDITION_FAILED, "precondition failed\n");
        }
        Precondition::NotModified => respond_empty(StatusCode::NOT_MODIFIED),
        Precondition::Proceed => {
            let Ok(range) = requested_range(request, &entity, modified_seconds, length) else {
                let mut response = text(StatusCode::RANGE_NOT_SATISFIABLE, "range not satisfiable\n");
                header(&mut response, CONTENT_RANGE, &format!("bytes */{length}"));
                return response;
            };
            match open_range(local, range, length).await {
                Ok(response) => response,
                // Collected between the look and the opening.
                Err(_) => return text(StatusCode::NOT_FOUND, "404 page not found\n"),
            }
        }
    };
    header(&mut response, ETAG, &entity);
    if let Some(date) = http_date(modified_seconds) {
        header(&mut response, LAST_MODIFIED, &date);
    }
    if digest.is_some() {
        header(&mut response, CACHE_CONTROL, "public, max-age=31536000, immutable");
    }
    response
}

async fn open_range(local: &Path, range: Option<(u64, u64)>, length: u64) -> std::io::Result<Response> {
    let mut file = tokio::fs::File::open(local).await?;
    let (start, size) = match range {
        Some((first, last)) => (first, last - first + 1),
        None => (0, length),
    };
    if start > 0 {
        file.seek(SeekFrom::Start(start)).await?;
    }
    let body = Body::from_stream(ReaderStream::with_capacity(file.take(size), CHUNK_BYTES));
    let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = respond(status, content_type(local), body);
    header(&mut response, CONTENT_LENGTH, &size.to_string());
    header(&mut response, ACCEPT_RANGES, "bytes");
    if let Some((first, last)) = range {
        header(&mut response, CONTENT_RANGE, &format!("bytes {first}-{last}/{length}"));
    }
    Ok(response)
}

enum Precondition {
    Proceed,
    NotModified,
    Failed,
}

/// RFC 9110 section 13.2.2.
fn precondition(request: &HeaderMap, entity: &str, modified_seconds: i64) -> Precondition {
    if let Some(wanted) = request.get(IF_MATCH) {
        if !matches_entity(wanted, entity) {
            return Precondition::Failed;
        }
    } else if let Some(since) = date_header(request, &IF_UNMODIFIED_SINCE)
        && modified_seconds > since
    {
        return Precondition::Failed;
    }
    if let Some(known) = request.get(IF_NONE_MATCH) {
        if matches_entity(known, entity) {
            return Precondition::NotModified;
        }
    } else if let Some(since) = date_header(request, &IF_MODIFIED_SINCE)
        && modified_seconds <= since
    {
        return Precondition::NotModified;
    }
    Precondition::Proceed
}

fn matches_entity(header: &HeaderValue, entity: &str) -> bool {
    header.to_str().is_ok_and(|list| {
        list.split(',')
            .map(str::trim)
            .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == entity)
    })
}

struct Unsatisfiable;

/// The first and last byte asked for; `None` for the whole file, which is also the answer to
/// several ranges at once and to what cannot be parsed.
fn requested_range(
    request: &HeaderMap,
    entity: &str,
    modified_seconds: i64,
    length: u64,
) -> Result<Option<(u64, u64)>, Unsatisfiable> {
    let Some(range) = request.get(RANGE).and_then(|value| value.to_str().ok()) else {
        return Ok(None);
    };
    if let Some(condition) = request.get(IF_RANGE).and_then(|value| value.to_str().ok()) {
        let unchanged = if condition.starts_with('"') {
            condition == entity
        } else {
            parse_date(condition) == Some(modified_seconds)
        };
        if !unchanged {
            return Ok(None);
        }
    }
    let Some(spec) = range.strip_prefix("bytes=").filter(|spec| !spec.contains(',')) else {
        return Ok(None);
    };
    let Some((first, last)) = spec.trim().split_once('-') else {
        return Ok(None);
    };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => (first, last.min(length.saturating_sub(1))),
        (Ok(first), Err(_)) if last.is_empty() => (first, length.saturating_sub(1)),
        (Err(_), Ok(last)) if first.is_empty() => {
            if last == 0 {
                return Err(Unsatisfiable);
            }
            (length.saturating_sub(last), length.saturating_sub(1))
        }
        _ => return Ok(None),
    };
    if range.0 >= length { Err(Unsatisfiable) } else { Ok(Some(range)) }
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz" | "tgz") => "application/gzip",
        Some("yaml" | "yml") => "application/yaml",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

fn entity_tag(length: u64, modified: SystemTime) -> String {
    let nanoseconds = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("\"{nanoseconds:x}-{length:x}\"")
}

fn seconds(time: SystemTime) -> i64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() as i64
}

fn http_date(seconds: i64) -> Option<String> {
    let timestamp = Timestamp::from_second(seconds).ok()?;
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&timestamp).ok()
}

fn parse_date(text: &str) -> Option<i64> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok().map(Timestamp::as_second)
}

fn date_header(request: &HeaderMap, name: &http::HeaderName) -> Option<i64> {
    request.get(name).and_then(|value| value.to_str().ok()).and_then(parse_date)
}

fn redirect(target: &str) -> Response {
    let mut response = respond_empty(StatusCode::MOVED_PERMANENTLY);
    header(&mut response, LOCATION, target);
    response
}

fn text(status: StatusCode, body: &'static str) -> Response {
    respond(status, "text/plain; charset=utf-8", Body::from(body))
}

fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn respond_empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn header(response: &mut Response, name: http::HeaderName, value: &str) {
    // Values are made of digits, hex, dates and percent-encoded names.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
