//! A few objects behind the API of a cluster, in memory, for tests of commands.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use weir_api::GoDuration;

use crate::connection::Connection;
use crate::view;

/// Answers GET, LIST, DELETE and merge PATCH; after each write a controller may change the object.
#[derive(Clone)]
pub(crate) struct Cluster {
    state: Arc<Mutex<State>>,
    controller: fn(&mut Value),
}

struct State {
    objects: Vec<Value>,
    writes: Vec<String>,
}

impl Cluster {
    /// A cluster with these objects and this controller.
    pub(crate) fn new(objects: Vec<Value>, controller: fn(&mut Value)) -> Self {
        Self { state: Arc::new(Mutex::new(State { objects, writes: Vec::new() })), controller }
    }

    /// A connection to namespace `flux-system` with a short timeout.
    pub(crate) fn connection(&self) -> Connection {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                Ok::<_, kube::Error>(cluster.answer(&parts.method, &parts.uri, &body))
            }
        });
        Connection::with_client(Client::new(service, "default"), "flux-system", GoDuration::from_millis(100))
    }

    /// Methods, plurals and names of all writes.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.state.lock().unwrap().writes.clone()
    }

    /// The object with this name.
    pub(crate) fn object(&self, name: &str) -> Value {
        self.state.lock().unwrap().objects.iter().find(|object| view::name(object) == name).cloned().unwrap()
    }

    fn answer(&self, method: &Method, uri: &http::Uri, body: &Value) -> Response<Body> {
        let mut state = self.state.lock().unwrap();
        let segments: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let at = segments.iter().position(|segment| *segment == "namespaces").unwrap();
        let (namespace, plural, name) = (segments[at + 1], segments[at + 2], segments.get(at + 3));
        let matches = |object: &Value| {
            view::namespace(object) == namespace && plural_of(view::text(object, "/kind")) == plural
        };
        let Some(name) = name else {
            let items: Vec<&Value> = state.objects.iter().filter(|object| matches(object)).collect();
            return respond(
                StatusCode::OK,
                &json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}),
            );
        };
        let Some(index) =
            state.objects.iter().position(|object| matches(object) && view::name(object) == *name)
        else {
            let status = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "not found"});
            return respond(StatusCode::NOT_FOUND, &status);
        };
        if method == Method::PATCH {
            state.writes.push(format!("PATCH {plural}/{name}"));
            merge(&mut state.objects[index], body);
            (self.controller)(&mut state.objects[index]);
        }
        if method == Method::DELETE {
            state.writes.push(format!("DELETE {plural}/{name}"));
            let object = state.objects.remove(index);
            return respond(StatusCode::OK, &object);
        }
        respond(StatusCode::OK, &state.objects[index])
    }
}

fn plural_of(kind: &str) -> String {
    let kind = kind.to_lowercase();
    kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"))
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

fn respond(status: StatusCode, value: &Value) -> Response<Body> {
    Response::builder().status(status).body(Body::from(serde_json::to_vec(value).unwrap())).unwrap()
}
