//! What is shown of an object: rows of tables and success messages.

use serde_json::Value;
use weir_api::names::annotation::{DISABLED, EXTENSIONS_RECONCILE};

use crate::digest::shorten;
use crate::kind::Kind;

/// The text at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a JSON pointer; zero if there is none.
pub(crate) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The namespace of an object.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// The conditions of an object.
pub(crate) fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

/// The condition of a type.
pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    conditions(object).find(|condition| text(condition, "/type") == type_)
}

/// Whether the object is suspended.
pub(crate) fn is_suspended(object: &Value) -> bool {
    object.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or_default()
}

/// Whether objects like this one are not reconciled at all and always count as ready.
pub(crate) fn is_static(kind: Kind, object: &Value) -> bool {
    match kind {
        Kind::Alert | Kind::Provider => true,
        Kind::HelmRepository => text(object, "/spec/type") == "oci",
        Kind::OciRepository
        | Kind::Bucket
        | Kind::GitRepository
        | Kind::HelmChart
        | Kind::ExternalArtifact
        | Kind::ImageRepository
        | Kind::ImagePolicy
        | Kind::ImageUpdateAutomation
        | Kind::HelmRelease
        | Kind::Kustomization
        | Kind::Receiver
        | Kind::ArtifactGenerator => false,
    }
}

/// What the table of a kind shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Columns {
    /// Begins with the namespace.
    pub(crate) namespace: bool,
    /// Puts the kind before the name.
    pub(crate) kind: bool,
    /// Shows the source, for kinds that have one.
    pub(crate) source: bool,
}

/// The headers of the table of a kind.
pub(crate) fn headers(kind: Kind, columns: Columns) -> Vec<&'static str> {
    let mut headers = if columns.namespace { vec!["Namespace", "Name"] } else { vec!["Name"] };
    match kind {
        Kind::Kustomization | Kind::HelmRelease => {
            if columns.source {
                headers.push("Source");
            }
            headers.extend(["Revision", "Suspended"]);
        }
        Kind::GitRepository | Kind::OciRepository | Kind::Bucket | Kind::HelmRepository | Kind::HelmChart => {
            headers.extend(["Revision", "Suspended"]);
        }
        Kind::ExternalArtifact => headers.extend(["Revision", "Source"]),
        Kind::ImageRepository => headers.extend(["Last scan", "Suspended"]),
        Kind::ImagePolicy => headers.extend(["Image", "Tag"]),
        Kind::ImageUpdateAutomation => headers.extend(["Last run", "Suspended"]),
        Kind::ArtifactGenerator | Kind::Receiver | Kind::Alert => headers.push("Suspended"),
        Kind::Provider => {}
    }
    headers.extend(["Ready", "Message"]);
    headers
}

/// The row of an object, as long as the headers of its kind.
pub(crate) fn row(kind: Kind, object: &Value, columns: Columns) -> Vec<String> {
    let mut row = Vec::new();
    if columns.namespace {
        row.push(namespace(object).to_owned());
    }
    row.push(if columns.kind {
        format!("{}/{}", kind.name().to_lowercase(), name(object))
    } else {
        name(object).to_owned()
    });
    let suspended = || capitalised(is_suspended(object));
    let artifact = || text(object, "/status/artifact/revision");
    match kind {
        Kind::Kustomization => {
            if columns.source {
                row.push(reference(object, "/spec/sourceRef"));
            }
            row.extend([shorten(text(object, "/status/lastAppliedRevision")), suspended()]);
        }
        Kind::HelmRelease => {
            if columns.source {
                let pointer = if object.pointer("/spec/chartRef").is_some() {
                    "/spec/chartRef"
                } else {
                    "/spec/chart/spec/sourceRef"
                };
                row.push(reference(object, pointer));
            }
            row.extend([release_revision(object).to_owned(), suspended()]);
        }
        Kind::GitRepository | Kind::OciRepository | Kind::Bucket | Kind::HelmRepository => {
            row.extend([shorten(artifact()), suspended()]);
        }
        Kind::HelmChart => row.extend([artifact().to_owned(), suspended()]),
        Kind::ExternalArtifact => row.extend([shorten(artifact()), reference(object, "/spec/sourceRef")]),
        Kind::ImageRepository => {
            row.extend([text(object, "/status/lastScanResult/scanTime").to_owned(), suspended()]);
        }
        Kind::ImagePolicy => row.extend([
            text(object, "/status/latestRef/name").to_owned(),
            text(object, "/status/latestRef/tag").to_owned(),
        ]),
        Kind::ImageUpdateAutomation => {
            row.extend([text(object, "/status/lastAutomationRunTime").to_owned(), suspended()]);
        }
        Kind::ArtifactGenerator => {
            let annotations = object.pointer("/metadata/annotations");
            let value = annotations.and_then(|map| map.get(EXTENSIONS_RECONCILE)).and_then(Value::as_str);
            row.push(capitalised(value.is_some_and(|value| value.eq_ignore_ascii_case(DISABLED))));
        }
        Kind::Receiver | Kind::Alert => row.push(suspended()),
        Kind::Provider => {}
    }
    row.extend(readiness(kind, object));
    row
}

/// The columns `Ready` and `Message`.
fn readiness(kind: Kind, object: &Value) -> [String; 2] {
    if is_static(kind, object) {
        let subject = match kind {
            Kind::HelmRepository => "Helm repository",
            other => other.name(),
        };
        return ["True".to_owned(), format!("{subject} is Ready")];
    }
    let Some(ready) = condition(object, "Ready") else {
        return ["False".to_owned(), "waiting to be reconciled".to_owned()];
    };
    let message = text(ready, "/message");
    let shortened = match kind {
        Kind::HelmRelease | Kind::ImageRepository | Kind::ImagePolicy | Kind::ImageUpdateAutomation => {
            message.to_owned()
        }
        Kind::OciRepository
        | Kind::Bucket
        | Kind::GitRepository
        | Kind::HelmRepository
        | Kind::HelmChart
        | Kind::ExternalArtifact
        | Kind::Kustomization
        | Kind::Receiver
        | Kind::Provider
        | Kind::Alert
        | Kind::ArtifactGenerator => shorten(message),
    };
    [text(ready, "/status").to_owned(), shortened]
}

/// The text shown when a reconciliation succeeded.
pub(crate) fn success(kind: Kind, object: &Value) -> String {
    match kind {
        Kind::OciRepository | Kind::Bucket | Kind::GitRepository | Kind::HelmRepository | Kind::HelmChart => {
            match text(object, "/status/artifact/revision") {
                "" => format!("{} is Ready", kind.name()),
                revision => format!("fetched revision {revision}"),
            }
        }
        Kind::Kustomization => format!("applied revision {}", text(object, "/status/lastAppliedRevision")),
        Kind::HelmRelease => format!("applied revision {}", release_revision(object)),
        Kind::ImageRepository => {
            format!("scan fetched {} tags", number(object, "/status/lastScanResult/tagCount"))
        }
        Kind::ImagePolicy => format!(
            "selected ref {}:{}",
            text(object, "/status/latestRef/name"),
            text(object, "/status/latestRef/tag")
        ),
        Kind::ImageUpdateAutomation => match text(object, "/status/lastPushCommit") {
            "" => format!("last run {}", text(object, "/status/lastAutomationRunTime")),
            commit => {
                format!("committed and pushed commit '{commit}' at {}", text(object, "/status/lastPushTime"))
            }
        },
        Kind::Receiver => format!("generated webhook URL {}", text(object, "/status/webhookPath")),
        Kind::Alert | Kind::Provider | Kind::ExternalArtifact | Kind::ArtifactGenerator => {
            format!("{} is Ready", kind.name())
        }
    }
}

fn release_revision(object: &Value) -> &str {
    match text(object, "/status/history/0/chartVersion") {
        "" => text(object, "/status/lastAttemptedRevision"),
        version => version,
    }
}

/// A reference as `Kind/namespace/name`; empty if there is none.
fn reference(object: &Value, pointer: &str) -> String {
    let Some(reference) = object.pointer(pointer) else { return String::new() };
    let namespace = match text(reference, "/namespace") {
        "" => namespace(object),
        namespace => namespace,
    };
    format!("{}/{namespace}/{}", text(reference, "/kind"), text(reference, "/name"))
}

fn capitalised(value: bool) -> String {
    if value { "True" } else { "False" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SHA1: &str = "0123456789abcdef0123456789abcdef01234567";

    fn object(spec: &Value, status: &Value) -> Value {
        let mut status = status.clone();
        status["conditions"] =
            json!([{"type": "Ready", "status": "True", "message": format!("stored main@sha1:{SHA1}")}]);
        json!({"metadata": {"name": "web", "namespace": "apps"}, "spec": spec, "status": status})
    }

    #[track_caller]
    fn check(kind: Kind, spec: &Value, status: &Value, columns: Columns, expected: &str) {
        let headers = headers(kind, columns).join(" | ");
        let row = row(kind, &object(spec, status), columns).join(" | ");
        assert_eq!(format!("{headers}\n{row}"), expected);
    }

    #[test]
    fn tables() {
        let plain = Columns::default();
        let revision = json!({"artifact": {"revision": format!("main@sha1:{SHA1}")}});
        check(
            Kind::GitRepository,
            &json!({"suspend": true}),
            &revision,
            plain,
            "Name | Revision | Suspended | Ready | Message\n\
             web | main@sha1:01234567 | True | True | stored main@sha1:01234567",
        );
        check(
            Kind::HelmChart,
            &json!({}),
            &json!({"artifact": {"revision": "6.5.0"}}),
            Columns { namespace: true, kind: true, source: true },
            "Namespace | Name | Revision | Suspended | Ready | Message\n\
             apps | helmchart/web | 6.5.0 | False | True | stored main@sha1:01234567",
        );
        check(
            Kind::HelmRepository,
            &json!({"type": "oci"}),
            &json!({}),
            plain,
            "Name | Revision | Suspended | Ready | Message\nweb |  | False | True | Helm repository is Ready",
        );
        check(
            Kind::ExternalArtifact,
            &json!({"sourceRef": {"kind": "ArtifactGenerator", "name": "split"}}),
            &revision,
            plain,
            "Name | Revision | Source | Ready | Message\n\
             web | main@sha1:01234567 | ArtifactGenerator/apps/split | True | stored main@sha1:01234567",
        );
        check(
            Kind::Kustomization,
            &json!({"sourceRef": {"kind": "GitRepository", "name": "fleet", "namespace": "flux-system"}}),
            &json!({"lastAppliedRevision": format!("main@sha1:{SHA1}")}),
            Columns { source: true, ..plain },
            "Name | Source | Revision | Suspended | Ready | Message\n\
             web | GitRepository/flux-system/fleet | main@sha1:01234567 | False | True | stored main@sha1:01234567",
        );
        check(
            Kind::HelmRelease,
            &json!({"chartRef": {"kind": "OCIRepository", "name": "charts"}}),
            &json!({"lastAttemptedRevision": "2.0.0", "history": [{"chartVersion": "1.0.0"}]}),
            Columns { source: true, ..plain },
            &format!(
                "Name | Source | Revision | Suspended | Ready | Message\n\
                 web | OCIRepository/apps/charts | 1.0.0 | False | True | stored main@sha1:{SHA1}"
            ),
        );
        check(
            Kind::ImagePolicy,
            &json!({}),
            &json!({"latestRef": {"name": "registry.example/web", "tag": "1.2.3"}}),
            plain,
            &format!(
                "Name | Image | Tag | Ready | Message\nweb | registry.example/web | 1.2.3 | True | stored main@sha1:{SHA1}"
            ),
        );
        check(
            Kind::Alert,
            &json!({}),
            &json!({}),
            plain,
            "Name | Suspended | Ready | Message\nweb | False | True | Alert is Ready",
        );
        check(
            Kind::Provider,
            &json!({}),
            &json!({}),
            plain,
            "Name | Ready | Message\nweb | True | Provider is Ready",
        );
    }

    #[test]
    fn rows_are_as_long_as_their_headers() {
        for kind in Kind::ALL {
            for bits in 0..8 {
                let columns = Columns { namespace: bits & 1 > 0, kind: bits & 2 > 0, source: bits & 4 > 0 };
                assert_eq!(
                    row(kind, &json!({}), columns).len(),
                    headers(kind, columns).len(),
                    "{kind:?} {columns:?}"
                );
            }
        }
    }

    #[test]
    fn an_object_nobody_has_seen() {
        assert_eq!(
            row(Kind::Kustomization, &json!({"metadata": {"name": "web"}}), Columns::default()),
            ["web", "", "False", "False", "waiting to be reconciled"]
        );
    }

    #[test]
    fn success_messages() {
        #[track_caller]
        fn check(kind: Kind, status: &Value, expected: &str) {
            assert_eq!(success(kind, &json!({ "status": status })), expected);
        }
        check(
            Kind::GitRepository,
            &json!({"artifact": {"revision": "main@sha1:abc"}}),
            "fetched revision main@sha1:abc",
        );
        check(
            Kind::Kustomization,
            &json!({"lastAppliedRevision": "main@sha1:abc"}),
            "applied revision main@sha1:abc",
        );
        check(Kind::HelmRelease, &json!({"lastAttemptedRevision": "1.0.0"}), "applied revision 1.0.0");
        check(Kind::ImageRepository, &json!({"lastScanResult": {"tagCount": 7}}), "scan fetched 7 tags");
        check(Kind::ImagePolicy, &json!({"latestRef": {"name": "web", "tag": "1"}}), "selected ref web:1");
    }
}
