//! An API server in memory that knows Kustomizations, one Lease and Events: enough to see what the
//! runtime does when the real one conflicts, fails, expires or goes away.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::channel::mpsc;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Hook = Box<dyn FnOnce(&Server) + Send>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    lease: Option<Value>,
    events: Vec<Value>,
    version: u64,
    watchers: Vec<mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>>,
    writes: Vec<Value>,
    write_codes: VecDeque<u16>,
    before_write: Option<Hook>,
    lease_fails: bool,
    down: bool,
}

/// See the [module](self). Cloning gives another handle to the same server.
#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<State>>);

fn failure(code: u16) -> (u16, Value) {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        _ => "InternalError",
    };
    let body =
        json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": reason});
    (code, body)
}

impl State {
    fn tell(&mut self, type_: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": type_, "object": object}));
        self.watchers
            .retain(|watcher| watcher.unbounded_send(Ok(Frame::data(Bytes::from(line.clone())))).is_ok());
    }

    fn put(&mut self, name: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let deleting = object["metadata"]["deletionTimestamp"].is_string();
        let held =
            object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if deleting && !held {
            self.objects.remove(name);
            self.tell("DELETED", &object);
        } else {
            let known = self.objects.insert(name.to_owned(), object.clone()).is_some();
            self.tell(if known { "MODIFIED" } else { "ADDED" }, &object);
        }
        object
    }

    fn merged(&mut self, name: &str, patch: &Value) -> Value {
        let mut object = self.objects[name].clone();
        let spec = object["spec"].clone();
        json_patch::merge(&mut object, patch);
        if object["spec"] != spec {
            let generation = object["metadata"]["generation"].as_i64().unwrap();
            object["metadata"]["generation"] = json!(generation + 1);
        }
        self.put(name, object)
    }
}

impl Server {
    pub(super) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        kube::Client::new(service, "flux-system")
    }

    pub(super) fn create(&self, name: &str, extra: &Value) {
        let mut object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"namespace": "flux-system", "name": name, "uid": format!("uid-{name}"), "generation": 1},
            "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        });
        json_patch::merge(&mut object, extra);
        self.0.lock().put(name, object);
    }

    pub(super) fn merge(&self, name: &str, patch: &Value) {
        self.0.lock().merged(name, patch);
    }

    pub(super) fn delete(&self, name: &str) {
        self.0.lock().merged(name, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    }

    pub(super) fn remove(&self, name: &str) {
        let mut state = self.0.lock();
        let object = state.objects.remove(name).unwrap();
        state.tell("DELETED", &object);
    }

    pub(super) fn get(&self, name: &str) -> Value {
        self.0.lock().objects[name].clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().objects.is_empty()
    }

    pub(super) fn events(&self) -> Vec<Value> {
        self.0.lock().events.clone()
    }

    pub(super) fn take_writes(&self) -> Vec<Value> {
        std::mem::take(&mut self.0.lock().writes)
    }

    /// The next writes are refused with these codes.
    pub(super) fn fail_writes(&self, codes: &[u16]) {
        self.0.lock().write_codes = codes.iter().copied().collect();
    }

    pub(super) fn before_next_write(&self, hook: impl FnOnce(&Self) + Send + 'static) {
        self.0.lock().before_write = Some(Box::new(hook));
    }

    pub(super) fn fail_lease(&self, fails: bool) {
        self.0.lock().lease_fails = fails;
    }

    pub(super) fn set_down(&self, down: bool) {
        self.0.lock().down = down;
    }

    /// Makes changes that no watcher sees, then tells all watchers that they are too old.
    pub(super) fn while_nobody_watches(&self, change: impl FnOnce(&Self)) {
        let watchers = std::mem::take(&mut self.0.lock().watchers);
        change(self);
        for watcher in watchers {
            let gone = json!({"type": "ERROR", "object": failure(410).1});
            watcher.unbounded_send(Ok(Frame::data(Bytes::from(format!("{gone}\n"))))).unwrap();
        }
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<BoxBody<Bytes, Infallible>>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        if parts.method == Method::GET && query.contains("watch=true") {
            let (sender, receiver) = mpsc::unbounded();
            let mut state = self.0.lock();
            if state.down {
                return respond(failure(503));
            }
            state.watchers.push(sender);
            return Ok(Response::new(BoxBody::new(StreamBody::new(receiver))));
        }
        let hook = if parts.method == Method::PATCH { self.0.lock().before_write.take() } else { None };
        if let Some(hook) = hook {
            hook(&self);
        }
        let sent: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? };
        let mut state = self.0.lock();
        if state.down {
            return respond(failure(503));
        }
        if path.contains("/leases") {
            return respond(state.lease(&parts.method, sent));
        }
        if path.contains("/events") {
            state.events.push(sent.clone());
            return respond((201, sent));
        }
        let mut segments =
            path.rsplit('/').take_while(|segment| *segment != "kustomizations").collect::<Vec<_>>();
        segments.reverse();
        let Some(name) = segments.first() else {
            let items: Vec<Value> = state.objects.values().cloned().collect();
            let version = state.version.to_string();
            return respond((
                200,
                json!({
                    "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
                    "kind": "KustomizationList",
                    "metadata": {"resourceVersion": version},
                    "items": items,
                }),
            ));
        };
        if parts.method == Method::GET {
            return respond(
                state.objects.get(*name).map_or_else(|| failure(404), |object| (200, object.clone())),
            );
        }
        let query = query.trim_start_matches('&');
        state.writes.push(json!({"path": format!("{}?{query}", segments.join("/")), "body": sent}));
        if let Some(code) = state.write_codes.pop_front() {
            return respond(failure(code));
        }
        let Some(held) = state.objects.get(*name) else {
            return respond(failure(404));
        };
        let version = &sent["metadata"]["resourceVersion"];
        if !version.is_null() && *version != held["metadata"]["resourceVersion"] {
            return respond(failure(409));
        }
        let patch = if segments.len() > 1 {
            json!({"status": sent["status"]})
        } else {
            let mut patch = sent;
            patch["metadata"]["resourceVersion"] = Value::Null;
            patch
        };
        let object = state.merged(name, &patch);
        respond((200, object))
    }
}

impl State {
    fn lease(&mut self, method: &Method, mut sent: Value) -> (u16, Value) {
        if self.lease_fails {
            return failure(500);
        }
        if *method == Method::GET {
            return self.lease.clone().map_or_else(|| failure(404), |lease| (200, lease));
        }
        if let Some(held) = &self.lease
            && held["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"]
        {
            return failure(409);
        }
        self.version += 1;
        sent["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(sent.clone());
        (200, sent)
    }
}

fn respond((code, body): (u16, Value)) -> Result<Response<BoxBody<Bytes, Infallible>>, BoxError> {
    let body = BoxBody::new(Full::new(Bytes::from(serde_json::to_vec(&body)?)));
    Ok(Response::builder().status(code).body(body)?)
}
