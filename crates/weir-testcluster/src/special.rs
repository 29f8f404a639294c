//! Requests that are no plain reads or writes: scale, tokens, evictions, bindings, reviews.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::GroupVersionKind;
use crate::auth::Identity;
use crate::body;
use crate::call::Call;
use crate::cluster::Inner;
use crate::crd::ScalePaths;
use crate::crd::schema::{at, set_at};
use crate::delete::Options;
use crate::edit::{Edit, check_kind, read_patch};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::meta;
use crate::patch;
use crate::rbac::Action;
use crate::reply::Reply;
use crate::store;

const TOKEN_SECONDS_DEFAULT: i64 = 3600;

impl Inner {
    /// A request for a subresource other than the status.
    pub(crate) fn subresource(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let name = call.target.subresource.as_str();
        let known = kind.subresource(name).is_some();
        match (name, call.verb) {
            ("scale", "get" | "update" | "patch") if known => self.scale(call, kind),
            ("token", "create") if known => self.token(call, kind),
            ("eviction", "create") if known => self.evict(call, kind),
            ("binding", "create") if known => self.bind(call, kind),
            ("log", "get") if known => {
                self.get(call, kind)?;
                Ok(Reply {
                    code: 200,
                    content: crate::reply::Content::Raw {
                        content_type: "text/plain",
                        bytes: bytes::Bytes::new(),
                    },
                })
            }
            (_, "get") if known => self.get(call, kind),
            (_, "update") if known => self.put(call, kind, name),
            (_, "patch") if known => self.patch(call, kind, name),
            _ if known => Err(ApiError::method_not_allowed()),
            _ => Err(ApiError::no_such_resource()),
        }
    }

    /// Reads or changes the number of replicas.
    fn scale(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let target = &call.target;
        let paths = match kind.custom.as_ref().and_then(|version| version.scale.clone()) {
            Some(paths) => paths,
            None => builtin_scale(kind),
        };
        let stored = self
            .store
            .get(&kind.table, &store::key(&target.namespace, &target.name))
            .ok_or_else(|| ApiError::not_found(kind.subject(&target.name)))?;
        let object = self.value_as(kind, &stored);
        let current = scale_of(&object, &paths);
        if call.verb == "get" {
            return Ok(Reply::value(200, current));
        }
        let scale_kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
        let mut wanted = if call.verb == "update" {
            body::read_object(&call.content_type, &call.body, "")?.value
        } else {
            let mut wanted = current.clone();
            match read_patch(call, true)? {
                Edit::Json(operations) => patch::json::apply(&mut wanted, &operations).map_err(|_| {
                    ApiError::new(
                        422,
                        "Invalid",
                        "the server rejected our request due to an error in our request",
                    )
                    .with_details(json!({}))
                })?,
                Edit::Merge(over) | Edit::Apply(over) => patch::merge::apply(&mut wanted, &over),
                Edit::Strategic(over) => {
                    patch::strategic::apply(&mut wanted, &over, None)
                        .map_err(|error| ApiError::new(error.code, error.reason, error.message))?;
                }
                Edit::Put(_) => {}
            }
            wanted
        };
        check_kind(&scale_kind, true, &mut wanted)?;
        let name = meta::text(&wanted, "name");
        if name != target.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        let revision = meta::text(&wanted, "resourceVersion");
        if !revision.is_empty() && revision != stored.revision.to_string() {
            return Err(ApiError::modified(kind.subject(&target.name)));
        }
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or_default();
        if replicas < 0 {
            let cause = crate::Cause {
                field: "spec.replicas".to_owned(),
                reason: crate::CauseReason::Invalid,
                value: Some(replicas.to_string()),
                detail: "must be greater than or equal to 0".to_owned(),
            };
            let subject = crate::error::Subject { group: "autoscaling", word: "Scale", name: &target.name };
            return Err(ApiError::invalid(subject, &[cause]));
        }
        let mut over = json!({});
        set_at(&mut over, &paths.spec, json!(replicas));
        if at(&object, &paths.spec).and_then(Value::as_i64) != Some(replicas) {
            self.edit(call, kind, "scale", &Edit::Merge(over))?;
        }
        let stored = self
            .store
            .get(&kind.table, &store::key(&target.namespace, &target.name))
            .ok_or_else(|| ApiError::not_found(kind.subject(&target.name)))?;
        Ok(Reply::value(200, scale_of(&self.value_as(kind, &stored), &paths)))
    }

    /// Issues a token of a service account.
    fn token(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let target = &call.target;
        let account = self
            .store
            .get(&kind.table, &store::key(&target.namespace, &target.name))
            .ok_or_else(|| ApiError::not_found(kind.subject(&target.name)))?;
        let mut request = body::read_object(&call.content_type, &call.body, "")?.value;
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_SECONDS_DEFAULT);
        if seconds < 600 {
            let cause = crate::Cause {
                field: "spec.expirationSeconds".to_owned(),
                reason: crate::CauseReason::Invalid,
                value: Some(seconds.to_string()),
                detail: "may not specify a duration less than 10 minutes".to_owned(),
            };
            let subject =
                crate::error::Subject { group: "authentication.k8s.io", word: "TokenRequest", name: "" };
            return Err(ApiError::invalid(subject, &[cause]));
        }
        let audiences = match &request["spec"]["audiences"] {
            Value::Array(list) if !list.is_empty() => json!(list),
            _ => json!(["https://kubernetes.default.svc"]),
        };
        let now = self.timestamp();
        let end = now + jiff::SignedDuration::from_secs(seconds);
        let subject = Identity::service_account(&target.namespace, &target.name).user;
        let claims = json!({
            "aud": audiences,
            "exp": end.as_second(),
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "iss": "https://kubernetes.default.svc",
            "jti": self.new_uid(),
            "sub": subject,
            "kubernetes.io": {
                "namespace": target.namespace,
                "serviceaccount": {"name": target.name, "uid": &*account.uid},
            },
        });
        request["apiVersion"] = json!("authentication.k8s.io/v1");
        request["kind"] = json!("TokenRequest");
        request["metadata"] = json!({
            "name": target.name, "namespace": target.namespace, "creationTimestamp": self.now(),
        });
        request["spec"]["audiences"] = audiences;
        request["spec"]["expirationSeconds"] = json!(seconds);
        if request["spec"].get("boundObjectRef").is_none() {
            request["spec"]["boundObjectRef"] = Value::Null;
        }
        request["status"] = json!({
            "token": self.tokens.issue(&claims),
            "expirationTimestamp": end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        Ok(Reply::value(201, request))
    }

    /// Deletes a pod, if no disruption budget forbids it.
    fn evict(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let target = &call.target;
        let pod = self
            .store
            .get(&kind.table, &store::key(&target.namespace, &target.name))
            .ok_or_else(|| ApiError::not_found(kind.subject(&target.name)))?;
        let request = body::read_object(&call.content_type, &call.body, "")?.value;
        for budget in self.store.list("policy/poddisruptionbudgets", &target.namespace).objects {
            let value = budget.value();
            let labels = &value["spec"]["selector"]["matchLabels"];
            let selects = labels
                .as_object()
                .is_some_and(|labels| labels.iter().all(|(key, value)| pod.label(key) == value.as_str()));
            let allowed = value["status"]["disruptionsAllowed"].as_i64().unwrap_or_default();
            if selects && allowed <= 0 {
                return Err(ApiError::new(
                    429,
                    "TooManyRequests",
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                )
                .with_details(json!({"causes": [{
                    "reason": "DisruptionBudget",
                    "message": format!(
                        "The disruption budget {} needs {} healthy pods and has {} currently",
                        budget.name,
                        value["status"]["desiredHealthy"].as_i64().unwrap_or_default(),
                        value["status"]["currentHealthy"].as_i64().unwrap_or_default(),
                    ),
                }]})));
            }
        }
        let options = Options {
            grace_seconds: request["deleteOptions"]["gracePeriodSeconds"].as_i64(),
            dry_run: call.is_dry_run(),
            ..Options::default()
        };
        self.delete_object(kind, &target.namespace, &target.name, &options)?;
        Ok(Reply::value(
            201,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        ))
    }

    /// Puts a pod on a node.
    fn bind(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let target = &call.target;
        let pod = self
            .store
            .get(&kind.table, &store::key(&target.namespace, &target.name))
            .ok_or_else(|| ApiError::not_found(kind.subject(&target.name)))?;
        let request = body::read_object(&call.content_type, &call.body, "")?.value;
        let node = request["target"]["name"].clone();
        let now = self.now();
        if let Some(bound) = pod.value()["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) {
            let cause = format!("pod {} is already assigned to node {bound:?}", target.name);
            return Err(ApiError::conflict(
                crate::error::Subject { group: "", word: "pods/binding", name: &target.name },
                &cause,
            ));
        }
        self.amend(kind, &pod, |value| {
            value["spec"]["nodeName"] = node.clone();
            let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
            let list = value["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let mut list: Vec<Value> = list.into_iter().filter(|c| c["type"] != "PodScheduled").collect();
            list.push(condition);
            value["status"]["conditions"] = json!(list);
        });
        Ok(Reply::value(
            201,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        ))
    }

    /// Answers a review: a creation that stores nothing. `None` for kinds that are none.
    pub(crate) fn review(&self, call: &Call, kind: &Kind) -> Option<Result<Reply, ApiError>> {
        let who = &call.identity;
        let answer = |status: Value| -> Result<Reply, ApiError> {
            let mut request = body::read_object(&call.content_type, &call.body, "")?.value;
            check_kind(&kind.gvk, true, &mut request)?;
            request["status"] = status;
            meta::metadata(&mut request);
            Ok(Reply::value(201, request))
        };
        let spec = || {
            body::read_object(&call.content_type, &call.body, "").map(|decoded| decoded.value["spec"].clone())
        };
        Some(match (kind.gvk.group.as_str(), kind.plural.as_str()) {
            ("authentication.k8s.io", "selfsubjectreviews") => answer(json!({"userInfo": who.to_json()})),
            ("authentication.k8s.io", "tokenreviews") => spec().and_then(|spec| {
                let token = spec["token"].as_str().unwrap_or_default();
                match self.tokens.identity(token, self.timestamp().as_second()) {
                    Some(found) => answer(json!({
                        "authenticated": true,
                        "user": found.to_json(),
                        "audiences": ["https://kubernetes.default.svc"],
                    })),
                    None => answer(json!({"user": {}, "error": "[invalid bearer token, token lookup failed]"})),
                }
            }),
            ("authorization.k8s.io", "selfsubjectaccessreviews") => spec().and_then(|spec| {
                check_review(&spec, true, "")?;
                answer(self.judge(who, &spec))
            }),
            ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews") => {
                spec().and_then(|spec| {
                    check_review(&spec, false, &call.target.namespace)?;
                    let other = Identity {
                        user: spec["user"].as_str().unwrap_or_default().to_owned(),
                        groups: crate::crd::schema::texts(&spec["groups"]),
                        ..Identity::default()
                    };
                    answer(self.judge(&other, &spec))
                })
            }
            ("authorization.k8s.io", "selfsubjectrulesreviews") => spec().and_then(|spec| {
                let namespace = spec["namespace"].as_str().unwrap_or_default();
                let policy = self.policy();
                let (mut resources, mut paths) = (Vec::new(), Vec::new());
                for rule in policy.rules(who, namespace) {
                    if rule.paths.is_empty() {
                        let mut out = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
                        if !rule.names.is_empty() {
                            out["resourceNames"] = json!(rule.names);
                        }
                        resources.push(out);
                    } else {
                        paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths}));
                    }
                }
                answer(json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}))
            }),
            _ => return None,
        })
    }

    fn judge(&self, who: &Identity, spec: &Value) -> Value {
        let attributes = &spec["resourceAttributes"];
        let text = |node: &Value, name: &str| node[name].as_str().unwrap_or_default().to_owned();
        let action = if attributes.is_object() {
            Action {
                verb: text(attributes, "verb"),
                group: text(attributes, "group"),
                version: text(attributes, "version"),
                resource: text(attributes, "resource"),
                subresource: text(attributes, "subresource"),
                namespace: text(attributes, "namespace"),
                name: text(attributes, "name"),
                path: String::new(),
            }
        } else {
            Action {
                verb: text(&spec["nonResourceAttributes"], "verb"),
                path: text(&spec["nonResourceAttributes"], "path"),
                ..Action::default()
            }
        };
        json!({"allowed": self.may(who, &action)})
    }
}

/// Whether a review asks for something.
fn check_review(spec: &Value, own: bool, namespace: &str) -> Result<(), ApiError> {
    let refuse = |field: &str, value: &Value, detail: &str| {
        let cause = crate::Cause {
            field: field.to_owned(),
            reason: crate::CauseReason::Invalid,
            value: Some(value.to_string()),
            detail: detail.to_owned(),
        };
        let subject = crate::error::Subject { group: "authorization.k8s.io", word: "", name: "" };
        Err(ApiError::invalid(subject, &[cause]))
    };
    let asked = &spec["resourceAttributes"]["namespace"];
    if spec["resourceAttributes"].is_object() == spec["nonResourceAttributes"].is_object() {
        return refuse(
            "spec",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        );
    }
    let nobody = spec["user"].as_str().unwrap_or_default().is_empty()
        && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if !own && nobody {
        return refuse("spec.user", &json!(""), "at least one of user or group must be specified");
    }
    if !namespace.is_empty() && asked != namespace {
        return refuse("spec.resourceAttributes.namespace", asked, "must match metadata.namespace");
    }
    Ok(())
}

fn builtin_scale(kind: &Kind) -> ScalePaths {
    let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let _ = kind;
    ScalePaths { spec: path("spec.replicas"), status: path("status.replicas"), selector: None }
}

/// The `Scale` of an object.
fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let metadata = &object["metadata"];
    let mut shown = json!({});
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(name) {
            shown[name] = value.clone();
        }
    }
    let number = |path: &[String]| at(object, path).and_then(Value::as_i64).unwrap_or_default();
    let mut spec = json!({});
    if number(&paths.spec) != 0 {
        spec["replicas"] = json!(number(&paths.spec));
    }
    let mut status = json!({"replicas": number(&paths.status)});
    let selector = match &paths.selector {
        Some(path) => at(object, path).and_then(Value::as_str).unwrap_or_default().to_owned(),
        None => selector_text(&object["spec"]["selector"]),
    };
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown, "spec": spec, "status": status})
}

/// A selector as text.
fn selector_text(selector: &Value) -> String {
    let labels = match selector.get("matchLabels") {
        Some(labels) => labels,
        None if selector.get("matchExpressions").is_some() => &Value::Null,
        None => selector,
    };
    let mut parts: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = crate::crd::schema::texts(&expression["values"]).join(",");
        parts.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.join(",")
}
