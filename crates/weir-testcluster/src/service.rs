//! The server as a service: requests in, answers out. It works in process and behind a port.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::TryStreamExt as _;
use http::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, USER_AGENT, WARNING};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use serde_json::{Value, json};

use crate::auth::{Identity, impersonated};
use crate::call::{Call, Query, Target};
use crate::cluster::{Inner, TestCluster};
use crate::discovery;
use crate::error::{ApiError, Subject};
use crate::faults::Effect;
use crate::negotiate::{Form, NOT_ACCEPTABLE, form};
use crate::openapi;
use crate::rbac::{Action, refusal};
use crate::reply::{Content, Include, Reply, render_list, render_object};
use crate::selector::FieldSelector;
use crate::watch;

/// The largest body that is read.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// The API server as a `tower` service, for `kube::Client::new` and for ports.
///
/// An error is a broken connection, which only faults cause.
#[derive(Clone)]
pub struct Service {
    cluster: Arc<Inner>,
    /// Who sends requests without credentials of their own; `None` reads the request.
    identity: Option<Identity>,
}

/// Who a connection belongs to, as its client certificate says.
#[derive(Debug, Clone)]
pub(crate) struct Peer(pub(crate) Option<Identity>);

impl TestCluster {
    /// The server for clients in this process, which act as administrator unless they say otherwise.
    pub fn service(&self) -> Service {
        self.service_as(Identity::administrator())
    }

    /// The server for clients in this process that act as somebody.
    pub fn service_as(&self, identity: Identity) -> Service {
        Service { cluster: self.inner.clone(), identity: Some(identity) }
    }

    /// The server for connections, which must say who they are.
    pub(crate) fn service_for_connections(&self) -> Service {
        Service { cluster: self.inner.clone(), identity: None }
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Display + Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            match Limited::new(body, BODY_BYTES_MAX).collect().await {
                Ok(body) => service.answer(&parts, body.to_bytes()).await,
                Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                    let error = ApiError::new(
                        413,
                        "RequestEntityTooLarge",
                        format!("Request entity too large: limit is {BODY_BYTES_MAX}"),
                    );
                    Ok(error_response(&error))
                }
                Err(error) => Err(std::io::Error::other(error.to_string())),
            }
        })
    }
}

impl Service {
    async fn answer(&self, parts: &Parts, body: Bytes) -> Result<Response<Body>, std::io::Error> {
        let identity = match self.identify(parts) {
            Ok(identity) => identity,
            Err(error) => return Ok(error_response(&error)),
        };
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let header = |name: http::HeaderName| {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let accept = header(ACCEPT);
        let Some(target) = Target::parse(parts.uri.path()) else {
            return Ok(self.plain_path(parts, &identity, &query, &accept));
        };
        let Some(verb) = verb(&parts.method, &target, &query) else {
            return Ok(error_response(&ApiError::method_not_allowed()));
        };
        let effects = self.cluster.faults.hit(verb, &target.plural, &target.name);
        for effect in &effects {
            match effect {
                Effect::Delay(time) => tokio::time::sleep(*time).await,
                Effect::Refuse { code, reason, message } => {
                    return Ok(error_response(&ApiError::new(*code, reason, message.clone())));
                }
                Effect::LoseRequest => return Err(std::io::ErrorKind::ConnectionReset.into()),
                Effect::LoseAnswer | Effect::BreakWatch { .. } | Effect::ExpireWatch => {}
            }
        }
        let call = Call {
            verb,
            target,
            query,
            identity,
            content_type: header(CONTENT_TYPE),
            user_agent: header(USER_AGENT),
            body,
            warnings: std::cell::RefCell::default(),
        };
        let response = self.resource(call, &accept, &effects);
        if effects.contains(&Effect::LoseAnswer) {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        Ok(response)
    }

    /// Who sends the request.
    fn identify(&self, parts: &Parts) -> Result<Identity, ApiError> {
        let bearer = parts
            .headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        let sender = match (bearer, &self.identity) {
            (Some(token), _) => {
                let now = self.cluster.timestamp().as_second();
                self.cluster.tokens.identity(token.trim(), now).ok_or_else(ApiError::unauthorized)?
            }
            (None, Some(identity)) => identity.clone(),
            (None, None) => parts
                .extensions
                .get::<Peer>()
                .and_then(|peer| peer.0.clone())
                .unwrap_or_else(Identity::anonymous),
        };
        let Some(other) = impersonated(&parts.headers)? else { return Ok(sender) };
        let check = |group: &str, resource: &str, namespace: &str, name: &str| {
            let action = Action {
                verb: "impersonate".to_owned(),
                group: group.to_owned(),
                resource: resource.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                ..Action::default()
            };
            if self.cluster.may(&sender, &action) {
                return Ok(());
            }
            Err(ApiError::forbidden(Subject { group, word: resource, name }, &refusal(&sender, &action)))
        };
        match other.user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
            Some((namespace, name)) => check("", "serviceaccounts", namespace, name)?,
            None => check("", "users", "", &other.user)?,
        }
        for value in parts.headers.get_all("impersonate-group") {
            check("", "groups", "", value.to_str().unwrap_or_default())?;
        }
        Ok(other)
    }

    fn resource(&self, call: Call, accept: &str, effects: &[Effect]) -> Response<Body> {
        let include = Include::parse(call.query.get("includeObject"));
        let outcome = form(accept).and_then(|form| {
            let wanted = call.query.get("includeObject");
            if form == Form::Table && !["", "None", "Metadata", "Object"].contains(&wanted) {
                return Err(ApiError::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {wanted:?}: must be 'Metadata', 'Object', 'None', or empty"
                )));
            }
            let reply = self.run(&call)?;
            if let (Form::Metadata, Content::List(list)) = (form, &reply.content)
                && !accept.contains("PartialObjectMetadataList") {
                    let package = call.target.group.split('.').next().filter(|word| !word.is_empty());
                    return Err(ApiError::new(
                        406,
                        "NotAcceptable",
                        format!(
                            "you requested PartialObjectMetadata, but the requested object is a list (*{}.{})",
                            package.unwrap_or("core"),
                            list.kind.list_kind
                        ),
                    ));
                }
            Ok((form, reply))
        });
        let mut response = match outcome {
            Ok((form, reply)) => self.render(reply, form, include, effects),
            Err(error) if !error.plain && matches!(form(accept), Ok(Form::Yaml)) => {
                let text = weir_manifest::to_yaml(&error.status());
                response(error.code, "application/yaml", full(Bytes::from(text)))
            }
            Err(error) => error_response(&error),
        };
        for text in call.warnings.into_inner() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(WARNING, value);
            }
        }
        response
    }

    fn run(&self, call: &Call) -> Result<Reply, ApiError> {
        let target = &call.target;
        let kinds = self.cluster.kinds();
        self.authorize(call)?;
        let kind = self.cluster.find_kind(&kinds, &target.group, &target.version, &target.plural)?;
        if !kind.namespaced && !target.namespace.is_empty() {
            return Err(if kind.is_builtin() {
                ApiError::no_such_resource()
            } else {
                ApiError::no_such_path()
            });
        }
        self.cluster.warn_deprecated(call, &kind);
        let needs_namespace = !matches!(call.verb, "list" | "watch");
        if kind.namespaced && target.namespace.is_empty() && needs_namespace {
            return Err(if target.name.is_empty() {
                ApiError::method_not_allowed()
            } else {
                ApiError::no_such_resource()
            });
        }
        let word = match call.verb {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            "patch" => "PatchOptions",
            _ => "DeleteOptions",
        };
        let validation = call.query.get("fieldValidation");
        if !["", "Ignore", "Strict", "Warn"].contains(&validation) {
            let cause = crate::Cause {
                field: "fieldValidation".to_owned(),
                reason: crate::CauseReason::NotSupported,
                value: Some(json!(validation).to_string()),
                detail: "supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"".to_owned(),
            };
            return Err(ApiError::invalid(Subject { group: "meta.k8s.io", word, name: "" }, &[cause]));
        }
        let writes = !matches!(call.verb, "get" | "list" | "watch");
        let fits = !call.query.has("dryRun") || call.query.get("dryRun") == "All" || !writes;
        if !fits {
            let cause = crate::Cause {
                field: "dryRun".to_owned(),
                reason: crate::CauseReason::NotSupported,
                value: Some(json!([call.query.get("dryRun")]).to_string()),
                detail: "supported values: \"All\"".to_owned(),
            };
            return Err(ApiError::invalid(Subject { group: "meta.k8s.io", word, name: "" }, &[cause]));
        }
        let of_collection = target.name.is_empty() && matches!(call.verb, "update" | "patch");
        if of_collection || call.verb == "create" && !target.name.is_empty() && target.subresource.is_empty()
        {
            return Err(ApiError::method_not_allowed());
        }
        if call.verb == "create"
            && let Some(answer) = self.cluster.review(call, &kind)
        {
            return answer;
        }
        if !target.subresource.is_empty() && target.subresource != "status" {
            return self.cluster.subresource(call, &kind);
        }
        if target.subresource == "status" && kind.subresource("status").is_none() {
            return Err(if kind.is_builtin() {
                ApiError::no_such_resource()
            } else {
                ApiError::not_found(kind.subject(&target.name))
            });
        }
        if !kind.has_verb(call.verb) {
            return Err(ApiError::method_not_allowed());
        }
        let subresource = target.subresource.as_str();
        match call.verb {
            "get" => self.cluster.get(call, &kind),
            "list" => self.cluster.list(call, &kind),
            "watch" => self.cluster.watch(call, &kind),
            "create" if subresource.is_empty() => self.cluster.create(call, &kind),
            "update" => self.cluster.put(call, &kind, subresource),
            "patch" => self.cluster.patch(call, &kind, subresource),
            "delete" if subresource.is_empty() => self.cluster.delete(call, &kind),
            "deletecollection" => self.cluster.delete_collection(call, &kind),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn authorize(&self, call: &Call) -> Result<(), ApiError> {
        if !self.cluster.rbac {
            return Ok(());
        }
        let target = &call.target;
        let namespace = if target.plural == "namespaces" && target.group.is_empty() {
            target.name.clone()
        } else {
            target.namespace.clone()
        };
        let mut name = target.name.clone();
        if name.is_empty() && matches!(call.verb, "list" | "watch" | "deletecollection") {
            let selected = FieldSelector::parse(call.query.get("fieldSelector"));
            name = selected.ok().and_then(|fields| fields.name().map(str::to_owned)).unwrap_or_default();
        }
        let action = Action {
            verb: call.verb.to_owned(),
            group: target.group.clone(),
            version: target.version.clone(),
            resource: target.plural.clone(),
            subresource: target.subresource.clone(),
            namespace,
            name,
            path: String::new(),
        };
        if self.cluster.may(&call.identity, &action) {
            return Ok(());
        }
        let subject = Subject { group: &target.group, word: &target.plural, name: &target.name };
        Err(ApiError::forbidden(subject, &refusal(&call.identity, &action)))
    }

    fn render(&self, reply: Reply, form: Form, include: Include, effects: &[Effect]) -> Response<Body> {
        let cluster = &self.cluster;
        let kind_of_form = if form == Form::Yaml { "application/yaml" } else { "application/json" };
        let (content_type, bytes) = match reply.content {
            Content::Object { kind, json } => {
                (kind_of_form, render_object(cluster, &kind, &json, form, include))
            }
            Content::List(list) => (kind_of_form, render_list(cluster, &list, form, include)),
            Content::Value(value) if form == Form::Yaml => {
                (kind_of_form, Bytes::from(weir_manifest::to_yaml(&value)))
            }
            Content::Value(value) => {
                ("application/json", Bytes::from(serde_json::to_vec(&value).unwrap_or_default()))
            }
            Content::Raw { content_type, bytes } => (content_type, bytes),
            Content::Watch(plan) => {
                let lines = watch::stream(cluster.clone(), plan, form, include, effects);
                let body = StreamBody::new(lines.map_ok(Frame::data)).boxed_unsync();
                return response(200, "application/json", body);
            }
        };
        response(reply.code, content_type, full(bytes))
    }

    /// Paths that are no resource.
    fn plain_path(&self, parts: &Parts, who: &Identity, query: &Query, accept: &str) -> Response<Body> {
        let path = parts.uri.path();
        let verb = parts.method.as_str().to_lowercase();
        let action = Action { verb, path: path.to_owned(), ..Action::default() };
        if !self.cluster.may(who, &action) {
            let message = format!("forbidden: {}", refusal(who, &action));
            return error_response(&ApiError::new(403, "Forbidden", message).with_details(json!({})));
        }
        let form = match form(accept) {
            Ok(form) => form,
            Err(mut error) => {
                NOT_ACCEPTABLE.clone_into(&mut error.message);
                return error_response(&error.with_details(json!({})));
            }
        };
        let kinds = self.cluster.kinds();
        let address = parts.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        let words: Vec<&str> = path.trim_matches('/').split('/').filter(|word| !word.is_empty()).collect();
        let found: Option<Value> = match words.as_slice() {
            [] => Some(openapi::paths(&kinds)),
            ["version"] => Some(crate::builtin::version().clone()),
            ["healthz" | "livez" | "readyz", ..] => {
                let text = if query.has("verbose") {
                    format!("[+]ping ok\n{} check passed\n", words[0])
                } else {
                    "ok".to_owned()
                };
                return response(200, "text/plain; charset=utf-8", full(Bytes::from(text)));
            }
            ["api"] if form == Form::Discovery => Some(discovery::aggregated(&kinds, true)),
            ["apis"] if form == Form::Discovery => Some(discovery::aggregated(&kinds, false)),
            ["api"] => Some(discovery::core_versions(address)),
            ["apis"] => Some(discovery::groups(&kinds)),
            ["api", version] => discovery::resources(&kinds, "", version),
            ["apis", group] => kinds.groups.iter().find(|own| own.name == *group).map(|group| {
                let mut value = discovery::group(group);
                value["kind"] = json!("APIGroup");
                value["apiVersion"] = json!("v1");
                value
            }),
            ["apis", group, version] => discovery::resources(&kinds, group, version),
            ["openapi", "v2"] => Some(openapi::version_2(&kinds)),
            ["openapi", "v3"] => Some(openapi::index(&kinds)),
            ["openapi", "v3", "api", version] => openapi::version_3(&kinds, "", version),
            ["openapi", "v3", "apis", group, version] => openapi::version_3(&kinds, group, version),
            _ => None,
        };
        match found {
            None => error_response(&ApiError::no_such_path()),
            Some(value) => {
                let aggregated = form == Form::Discovery && matches!(words.as_slice(), ["api" | "apis"]);
                let content_type = if words == ["openapi", "v3"] {
                    "text/plain; charset=utf-8"
                } else if aggregated {
                    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                } else {
                    "application/json"
                };
                response(200, content_type, full(Bytes::from(serde_json::to_vec(&value).unwrap_or_default())))
            }
        }
    }
}

/// What a request does, in the words of roles.
fn verb(method: &Method, target: &Target, query: &Query) -> Option<&'static str> {
    Some(match *method {
        Method::GET | Method::HEAD if target.watch || query.is_true("watch") => "watch",
        Method::GET | Method::HEAD if target.name.is_empty() => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if target.name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        _ => return None,
    })
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn response(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn error_response(error: &ApiError) -> Response<Body> {
    if error.plain {
        return response(error.code, "text/plain; charset=utf-8", full(Bytes::from(error.message.clone())));
    }
    // The line of a watch ends, and this may be the answer to one.
    let bytes = Bytes::from(format!("{}\n", error.status()));
    let mut response = response(error.code, "application/json", full(bytes));
    let seconds = error.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
    if let Some(seconds) = seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs() {
        for (method, path, query, want) in [
            (Method::GET, "/api/v1/pods", "", "list"),
            (Method::GET, "/api/v1/pods", "watch=1", "watch"),
            (Method::GET, "/api/v1/watch/pods", "", "watch"),
            (Method::GET, "/api/v1/namespaces/a/pods/b", "", "get"),
            (Method::DELETE, "/api/v1/namespaces/a/pods", "", "deletecollection"),
            (Method::DELETE, "/api/v1/namespaces/a/pods/b", "", "delete"),
        ] {
            let target = Target::parse(path).unwrap();
            assert_eq!(verb(&method, &target, &Query::parse(query)), Some(want), "{path}");
        }
    }
}
