//! Reading: get, list, and what a watch shall show.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::call::Call;
use crate::cluster::Inner;
use crate::error::{ApiError, Subject};
use crate::kinds::Kind;
use crate::reply::{Content, List, Reply};
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::{Cause, CauseReason};
use crate::store::{self, Stored, Unavailable};
use crate::watch::{Filter, Plan, Start};

/// Fields that selectors of built-in kinds may use, besides name and namespace.
const FIELDS: &[(&str, &str, &[&str])] = &[
    (
        "",
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    ),
    (
        "",
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    ("", "secrets", &["type"]),
    ("", "namespaces", &["status.phase"]),
    ("", "nodes", &["spec.unschedulable"]),
    ("", "services", &["spec.clusterIP", "spec.type"]),
    ("", "replicationcontrollers", &["status.replicas"]),
    ("apps", "replicasets", &["status.replicas"]),
    ("batch", "jobs", &["status.successful"]),
    ("certificates.k8s.io", "certificatesigningrequests", &["spec.signerName"]),
];

impl Inner {
    /// One object.
    pub(crate) fn get(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let name = &call.target.name;
        let stored = self
            .store
            .get(&kind.table, &store::key(&call.target.namespace, name))
            .ok_or_else(|| ApiError::not_found(kind.subject(name)))?;
        let json = self.bytes_as(kind, &stored);
        Ok(Reply { code: 200, content: Content::Object { kind: kind.clone(), json } })
    }

    /// What a list or watch of a request shows.
    #[expect(clippy::unused_self, reason = "called beside methods that need the cluster")]
    pub(crate) fn filter(&self, call: &Call, kind: &Arc<Kind>) -> Result<Filter, ApiError> {
        let labels = LabelSelector::parse(call.query.get("labelSelector"))?;
        let mut fields = FieldSelector::parse(call.query.get("fieldSelector"))?;
        for (key, _, _) in &fields.0 {
            let known = matches!(key.as_str(), "metadata.name" | "metadata.namespace")
                || FIELDS.iter().any(|(group, plural, list)| {
                    *group == kind.gvk.group && *plural == kind.plural && list.contains(&key.as_str())
                })
                || kind.custom.as_ref().is_some_and(|version| version.selectable.contains(key));
            if !known {
                let has_own = !kind.is_builtin()
                    || FIELDS
                        .iter()
                        .any(|(group, plural, _)| *group == kind.gvk.group && *plural == kind.plural);
                let text = if has_own {
                    format!("field label not supported: {key}")
                } else {
                    format!(
                        "{key:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )
                };
                return Err(ApiError::bad_request(text));
            }
        }
        if !call.target.name.is_empty() {
            fields.0.push(("metadata.name".to_owned(), call.target.name.clone(), true));
        }
        Ok(Filter { namespace: call.target.namespace.clone(), labels, fields })
    }

    /// Many objects.
    pub(crate) fn list(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let filter = self.filter(call, kind)?;
        let limit = call.query.get("limit");
        let limit: usize = if limit.is_empty() {
            0
        } else {
            let number: i64 = limit.parse().map_err(|_| {
                ApiError::bad_request(format!("strconv.ParseInt: parsing {limit:?}: invalid syntax"))
            })?;
            usize::try_from(number).unwrap_or_default()
        };
        if call.query.has("sendInitialEvents") {
            let cause = Cause {
                field: "sendInitialEvents".to_owned(),
                reason: CauseReason::Forbidden,
                value: None,
                detail: "sendInitialEvents is forbidden for list".to_owned(),
            };
            let subject = Subject { group: "meta.k8s.io", word: "ListOptions", name: "" };
            return Err(ApiError::invalid(subject, &[cause]));
        }
        let matching = call.query.get("resourceVersionMatch");
        let asked = call.query.get("resourceVersion");
        let token = call.query.get("continue");
        check_list_options(asked, matching, token)?;
        let (at, start) = if token.is_empty() {
            let exact = matching == "Exact";
            let revision = parse_revision(asked)?;
            if let (Some(revision), false) = (revision, exact) {
                let current = self.store.revision();
                if revision > current {
                    return Err(too_large(revision, current));
                }
            }
            (if exact { revision } else { None }, String::new())
        } else {
            let (revision, start) = parse_token(token)?;
            (Some(revision).filter(|revision| *revision > 0), start)
        };
        let listing = match at {
            None => self.store.list(&kind.table, &filter.namespace),
            Some(revision) => {
                self.store.list_at(&kind.table, &filter.namespace, revision).map_err(|error| match error {
                    Unavailable::Ahead { current } => too_large(revision, current),
                    Unavailable::Forgotten { .. } if !token.is_empty() => ApiError::expired(
                        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                    ),
                    Unavailable::Forgotten { .. } => {
                        ApiError::expired("The resourceVersion for the provided list is too old.")
                    }
                })?
            }
        };
        let revision = listing.revision;
        let mut objects: Vec<Arc<Stored>> = listing
            .objects
            .into_iter()
            .filter(|object| start.is_empty() || object.key() >= start)
            .filter(|object| filter.matches(self, kind, object))
            .collect();
        let mut next = String::new();
        let mut remaining = None;
        if limit > 0 && objects.len() > limit {
            if filter.labels.is_empty() && filter.fields.is_empty() {
                remaining = Some(objects.len() - limit);
            }
            next = make_token(revision, &objects[limit].key());
            objects.truncate(limit);
        }
        let list = List { kind: kind.clone(), objects, revision, next, remaining };
        Ok(Reply { code: 200, content: Content::List(list) })
    }

    /// Begins a watch.
    pub(crate) fn watch(&self, call: &Call, kind: &Arc<Kind>) -> Result<Reply, ApiError> {
        let filter = self.filter(call, kind)?;
        let asked = call.query.get("resourceVersion");
        let matching = call.query.get("resourceVersionMatch");
        let sends_initial = call.query.get("sendInitialEvents");
        let bookmarks = call.query.is_true("allowWatchBookmarks");
        let options = Subject { group: "meta.k8s.io", word: "ListOptions", name: "" };
        let forbidden = |field: &str, detail: &str| {
            let cause = Cause {
                field: field.to_owned(),
                reason: CauseReason::Forbidden,
                value: None,
                detail: detail.to_owned(),
            };
            ApiError::invalid(options, &[cause])
        };
        if sends_initial.is_empty() && !matching.is_empty() {
            return Err(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if !sends_initial.is_empty() && matching != "NotOlderThan" {
            let mut causes = vec![Cause {
                field: "resourceVersionMatch".to_owned(),
                reason: CauseReason::Forbidden,
                value: None,
                detail: "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan".to_owned(),
            }];
            if !matching.is_empty() {
                causes.push(Cause {
                    field: "resourceVersionMatch".to_owned(),
                    reason: CauseReason::NotSupported,
                    value: Some(json!(matching).to_string()),
                    detail: "supported values: \"NotOlderThan\"".to_owned(),
                });
            }
            return Err(ApiError::invalid(options, &causes));
        }
        let revision = parse_revision(asked)?;
        let start = if sends_initial == "true" {
            Start::Now { marks_end: bookmarks }
        } else if sends_initial == "false" && revision.is_none() {
            Start::After(self.store.revision())
        } else {
            match revision {
                None => Start::Now { marks_end: false },
                Some(revision) => Start::After(revision),
            }
        };
        let timeout = call.query.get("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0);
        let plan = Plan { kind: kind.clone(), filter, start, bookmarks, timeout_seconds: timeout };
        Ok(Reply { code: 200, content: Content::Watch(plan) })
    }
}

/// A revision of a query; `0` and nothing are no particular one.
fn parse_revision(text: &str) -> Result<Option<u64>, ApiError> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        ApiError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

fn check_list_options(revision: &str, matching: &str, token: &str) -> Result<(), ApiError> {
    let options = Subject { group: "meta.k8s.io", word: "ListOptions", name: "" };
    let refuse = |field: &str, reason, value: Option<String>, detail: &str| {
        let cause = Cause { field: field.to_owned(), reason, value, detail: detail.to_owned() };
        Err(ApiError::invalid(options, &[cause]))
    };
    match matching {
        "" | "NotOlderThan" | "Exact" => {}
        other => {
            return refuse(
                "resourceVersionMatch",
                CauseReason::NotSupported,
                Some(json!(other).to_string()),
                "supported values: \"Exact\", \"NotOlderThan\", \"\"",
            );
        }
    }
    if !matching.is_empty() && revision.is_empty() {
        return refuse(
            "resourceVersionMatch",
            CauseReason::Forbidden,
            None,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
    }
    if !matching.is_empty() && !token.is_empty() {
        return refuse(
            "resourceVersionMatch",
            CauseReason::Forbidden,
            None,
            "resourceVersionMatch is forbidden when continue is provided",
        );
    }
    if matching == "Exact" && revision == "0" {
        return refuse(
            "resourceVersionMatch",
            CauseReason::Forbidden,
            None,
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        );
    }
    if !token.is_empty() && !revision.is_empty() && revision != "0" {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(())
}

fn too_large(asked: u64, current: u64) -> ApiError {
    ApiError::new(504, "Timeout", format!("Too large resource version: {asked}, current: {current}"))
        .with_details(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
}

fn make_token(revision: u64, start: &str) -> String {
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn parse_token(token: &str) -> Result<(u64, String), ApiError> {
    let wrong = |what: &str| {
        ApiError::bad_request(format!("invalid continue token: continue key is not valid: {what}"))
    };
    let bytes =
        URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|error| wrong(&error.to_string()))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| {
        wrong(&match bytes.first() {
            Some(b'{') => error.to_string(),
            Some(first) => {
                format!("invalid character '{}' looking for beginning of value", quoted(*first))
            }
            None => "unexpected end of JSON input".to_owned(),
        })
    })?;
    if value["v"] != "meta.k8s.io/v1" {
        return Err(wrong("server does not recognize this encoded version"));
    }
    let revision = value["rv"].as_u64().unwrap_or_default();
    Ok((revision, value["start"].as_str().unwrap_or_default().to_owned()))
}

/// A byte as Go quotes a character.
fn quoted(byte: u8) -> String {
    if byte.is_ascii_graphic() || byte == b' ' || byte >= 0xa1 {
        char::from(byte).to_string()
    } else if byte < 0x80 {
        format!("\\x{byte:02x}")
    } else {
        format!("\\u{byte:04x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        assert_eq!(parse_token(&make_token(7, "a/b")).unwrap(), (7, "a/b".to_owned()));
        assert!(parse_token("!").is_err());
    }

    #[test]
    fn list_options() {
        for (revision, matching, token, good) in [
            ("", "", "", true),
            ("5", "Exact", "", true),
            ("", "Exact", "", false),
            ("0", "Exact", "", false),
            ("0", "NotOlderThan", "", true),
            ("5", "Other", "", false),
            ("5", "", "t", false),
        ] {
            assert_eq!(
                check_list_options(revision, matching, token).is_ok(),
                good,
                "{revision} {matching} {token}"
            );
        }
    }
}
