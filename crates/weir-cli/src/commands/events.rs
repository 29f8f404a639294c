//! `weir events`: what the controllers have to say about objects.

use std::collections::BTreeSet;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde_json::Value;

use crate::connection::Connection;
use crate::error::Error;
use crate::kind::Kind;
use crate::{output, table, view};

/// Events per page of a list.
const PAGE_EVENTS_MAX: u32 = 500;

/// Arguments of `weir events`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Show the events of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Go on and print new events
    #[arg(short, long)]
    watch: bool,
    /// Only events of this object, or of all objects of a kind, and of the sources they use
    #[arg(long = "for", value_name = "KIND[/NAME]")]
    subject: Option<String>,
    /// Only events of these types
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
}

/// Objects whose events are shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    kind: &'static str,
    /// All objects of the kind if none.
    name: Option<String>,
    /// Every namespace if none.
    namespace: Option<String>,
}

/// Prints the events, oldest first.
pub(crate) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Error> {
    let subjects = subjects(connection, arguments).await?;
    let elsewhere = subjects.iter().any(|subject| {
        subject.namespace.as_ref().is_some_and(|namespace| *namespace != connection.namespace)
    });
    let show_namespace = arguments.all_namespaces || elsewhere;
    let api: Api<Event> = if show_namespace {
        Api::all(connection.client())
    } else {
        Api::namespaced(connection.client(), &connection.namespace)
    };
    let failed = |source: kube::Error| Error::Api { action: "list events".to_owned(), source };
    let wanted = |event: &Event| is_wanted(event, &subjects, &arguments.types);

    let mut parameters = ListParams::default().limit(PAGE_EVENTS_MAX);
    let mut events = Vec::new();
    let resource_version = loop {
        let page = api.list(&parameters).await.map_err(failed)?;
        events.extend(page.items.into_iter().filter(wanted));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => break page.metadata.resource_version.unwrap_or_default(),
        }
    };
    events.sort_by_key(last_seen);
    if events.is_empty() && !arguments.watch {
        let scope = if arguments.all_namespaces { "any" } else { &connection.namespace };
        output::failure(&format!("No events found in {scope} namespace."));
        return Ok(());
    }
    let now = Timestamp::now();
    let rows: Vec<Vec<String>> = events.iter().map(|event| row(event, now, show_namespace)).collect();
    output::data(&table::render(&headers(show_namespace), &rows))?;
    if !arguments.watch {
        return Ok(());
    }
    let watch = async {
        let parameters = WatchParams::default().disable_bookmarks();
        let mut stream = api.watch(&parameters, &resource_version).await.map_err(failed)?.boxed();
        while let Some(change) = stream.try_next().await.map_err(failed)? {
            match change {
                WatchEvent::Added(event) | WatchEvent::Modified(event) if wanted(&event) => {
                    output::data(&table::render(&[], &[row(&event, Timestamp::now(), show_namespace)]))?;
                }
                WatchEvent::Error(status) => return Err(failed(kube::Error::Api(status))),
                WatchEvent::Added(_)
                | WatchEvent::Modified(_)
                | WatchEvent::Deleted(_)
                | WatchEvent::Bookmark(_) => {}
            }
        }
        Ok(())
    };
    tokio::time::timeout(connection.timeout.to_std(), watch).await.unwrap_or(Ok(()))
}

/// The objects the user asked for and the sources they use; every known kind if the user did not ask.
async fn subjects(connection: &Connection, arguments: &Arguments) -> Result<BTreeSet<Subject>, Error> {
    let namespace = (!arguments.all_namespaces).then(|| connection.namespace.clone());
    let Some(text) = &arguments.subject else {
        let all =
            Kind::ALL.into_iter().map(|kind| Subject { kind: kind.name(), name: None, namespace: None });
        return Ok(all.collect());
    };
    let (kind, name) = match text.split_once('/') {
        Some((kind, name)) => (kind, Some(name)),
        None => (text.as_str(), None),
    };
    let kind = Kind::meant(kind).ok_or_else(|| Error::Reference(text.clone()))?;
    let mut subjects = BTreeSet::from([Subject {
        kind: kind.name(),
        name: name.map(str::to_owned),
        namespace: namespace.clone(),
    }]);
    if let (Some(name), false) = (name, arguments.all_namespaces) {
        let object = connection.get(kind, name).await?;
        subjects.extend(used_by(kind, &object));
    }
    Ok(subjects)
}

/// The objects an object gets its content from.
fn used_by(kind: Kind, object: &Value) -> Vec<Subject> {
    let own = view::namespace(object);
    let subject = |kind: &str, name: &str, namespace: &str| {
        Kind::named(kind).map(|kind| Subject {
            kind: kind.name(),
            name: Some(name.to_owned()),
            namespace: Some(if namespace.is_empty() { own } else { namespace }.to_owned()),
        })
    };
    let reference = |pointer: &str, default_kind: &'static str| {
        let reference = object.pointer(pointer)?;
        let kind =
            Some(view::text(reference, "/kind")).filter(|kind| !kind.is_empty()).unwrap_or(default_kind);
        subject(kind, view::text(reference, "/name"), view::text(reference, "/namespace"))
    };
    let used = match kind {
        Kind::Kustomization | Kind::HelmChart | Kind::ImageUpdateAutomation | Kind::ExternalArtifact => {
            vec![reference("/spec/sourceRef", "")]
        }
        Kind::HelmRelease => match reference("/spec/chart/spec/sourceRef", "") {
            Some(source) => {
                let chart = format!("{own}-{}", view::name(object));
                let namespace = source.namespace.clone().unwrap_or_default();
                vec![Some(source), subject(Kind::HelmChart.name(), &chart, &namespace)]
            }
            None => vec![reference("/spec/chartRef", "")],
        },
        Kind::Alert => vec![reference("/spec/providerRef", Kind::Provider.name())],
        Kind::ImagePolicy => vec![reference("/spec/imageRepositoryRef", Kind::ImageRepository.name())],
        Kind::OciRepository
        | Kind::Bucket
        | Kind::GitRepository
        | Kind::HelmRepository
        | Kind::ImageRepository
        | Kind::Receiver
        | Kind::Provider
        | Kind::ArtifactGenerator => Vec::new(),
    };
    used.into_iter().flatten().collect()
}

fn is_wanted(event: &Event, subjects: &BTreeSet<Subject>, types: &[String]) -> bool {
    let object = &event.involved_object;
    let equals = |wanted: Option<&String>, found: Option<&String>| wanted.is_none() || wanted == found;
    let type_ = event.type_.as_deref().unwrap_or_default();
    (types.is_empty() || types.iter().any(|wanted| wanted.eq_ignore_ascii_case(type_)))
        && is_flux(object.api_version.as_deref().unwrap_or_default())
        && subjects.iter().any(|subject| {
            object.kind.as_deref() == Some(subject.kind)
                && equals(subject.name.as_ref(), object.name.as_ref())
                && equals(subject.namespace.as_ref(), object.namespace.as_ref())
        })
}

/// Whether an API version belongs to the toolkit; other APIs have kinds of the same name.
fn is_flux(api_version: &str) -> bool {
    api_version.split('/').next().is_some_and(|group| group.ends_with(".fluxcd.io"))
}

fn last_seen(event: &Event) -> Option<Timestamp> {
    let series =
        event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    series
        .or(event.last_timestamp.as_ref().map(|time| time.0))
        .or(event.event_time.as_ref().map(|time| time.0))
}

fn headers(show_namespace: bool) -> Vec<&'static str> {
    let mut headers = if show_namespace { vec!["Namespace"] } else { Vec::new() };
    headers.extend(["Last seen", "Type", "Reason", "Object", "Message"]);
    headers
}

fn row(event: &Event, now: Timestamp, show_namespace: bool) -> Vec<String> {
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    let mut row = Vec::new();
    if show_namespace {
        row.push(text(event.metadata.namespace.as_ref()));
    }
    let object = &event.involved_object;
    row.extend([
        interval(event, now),
        text(event.type_.as_ref()),
        text(event.reason.as_ref()),
        format!("{}/{}", text(object.kind.as_ref()), text(object.name.as_ref())),
        text(event.message.as_ref()),
    ]);
    row
}

/// How long ago it was last seen and, if it was seen more than once, since when.
fn interval(event: &Event, now: Timestamp) -> String {
    let age = |time: Option<Timestamp>| {
        time.map_or_else(|| "<unknown>".to_owned(), |time| human_duration(now, time))
    };
    let first =
        event.first_timestamp.as_ref().map(|time| time.0).or(event.event_time.as_ref().map(|time| time.0));
    let count = event.series.as_ref().and_then(|series| series.count).or(event.count).unwrap_or(1);
    if count > 1 {
        format!("{} (x{count} over {})", age(last_seen(event)), age(first))
    } else {
        age(last_seen(event).or(first))
    }
}

/// The time between two moments as kubectl prints ages: two units at most, one when large.
fn human_duration(now: Timestamp, then: Timestamp) -> String {
    let seconds = (now.as_second() - then.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |major: i64, major_unit: &str, minor: i64, minor_unit: &str| {
        if minor == 0 {
            format!("{major}{major_unit}")
        } else {
            format!("{major}{major_unit}{minor}{minor_unit}")
        }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        two(days, "d", hours % 24, "h")
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        two(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(kind: &str, name: &str, count: i32) -> Event {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "apps"},
            "involvedObject": {
                "kind": kind, "name": name, "namespace": "apps", "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            },
            "type": "Normal", "reason": "Progressing", "message": "working", "count": count,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:05:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn rows() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(
            row(&event("Kustomization", "web", 3), now, true),
            ["apps", "5m (x3 over 10m)", "Normal", "Progressing", "Kustomization/web", "working"]
        );
        assert_eq!(row(&event("Kustomization", "web", 1), now, false)[0], "5m");
    }

    #[test]
    fn only_wanted_events() {
        let subject = |kind: &'static str, name: Option<&str>| {
            BTreeSet::from([Subject {
                kind,
                name: name.map(str::to_owned),
                namespace: Some("apps".to_owned()),
            }])
        };
        let event = event("Kustomization", "web", 1);
        assert!(is_wanted(&event, &subject("Kustomization", None), &[]));
        assert!(is_wanted(&event, &subject("Kustomization", Some("web")), &["normal".to_owned()]));
        assert!(!is_wanted(&event, &subject("Kustomization", Some("api")), &[]));
        assert!(!is_wanted(&event, &subject("GitRepository", None), &[]));
        assert!(!is_wanted(&event, &subject("Kustomization", None), &["Warning".to_owned()]));
        assert!(!is_flux("example.org/v1"));
    }

    #[test]
    fn sources_of_an_object() {
        #[track_caller]
        fn check(kind: Kind, spec: &Value, expected: &[&str]) {
            let object = json!({"metadata": {"name": "web", "namespace": "apps"}, "spec": spec});
            let used: Vec<String> = used_by(kind, &object)
                .into_iter()
                .map(|s| format!("{}/{}/{}", s.kind, s.namespace.unwrap(), s.name.unwrap()))
                .collect();
            assert_eq!(used, expected);
        }
        check(
            Kind::Kustomization,
            &json!({"sourceRef": {"kind": "GitRepository", "name": "fleet", "namespace": "flux-system"}}),
            &["GitRepository/flux-system/fleet"],
        );
        check(
            Kind::HelmRelease,
            &json!({"chart": {"spec": {"sourceRef": {"kind": "HelmRepository", "name": "charts"}}}}),
            &["HelmRepository/apps/charts", "HelmChart/apps/apps-web"],
        );
        check(
            Kind::HelmRelease,
            &json!({"chartRef": {"kind": "OCIRepository", "name": "charts"}}),
            &["OCIRepository/apps/charts"],
        );
        check(Kind::Alert, &json!({"providerRef": {"name": "chat"}}), &["Provider/apps/chat"]);
        check(Kind::GitRepository, &json!({}), &[]);
    }

    #[test]
    fn ages() {
        #[track_caller]
        fn check(seconds: i64, expected: &str) {
            let then = Timestamp::from_second(0).unwrap();
            assert_eq!(human_duration(Timestamp::from_second(seconds).unwrap(), then), expected);
        }
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(125, "2m5s");
        check(3599, "59m");
        check(3 * 3600 + 60, "3h1m");
        check(47 * 3600, "47h");
        check(50 * 3600, "2d2h");
        check(30 * 86_400, "30d");
        check(3 * 365 * 86_400 + 86_400, "3y1d");
        check(-5, "0s");
    }
}
