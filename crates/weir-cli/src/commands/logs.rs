//! `weir logs`: what the controllers log, filtered by object.

use std::pin::Pin;

use clap::{Args, ValueEnum};
use futures::{AsyncBufReadExt as _, Stream, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, LogParams};
use kube::core::Selector;
use serde_json::Value;
use weir_api::GoDuration;

use crate::connection::Connection;
use crate::error::{self, Error};
use crate::{output, view};

/// Label all objects of an installation carry.
const PART_OF: &str = "app.kubernetes.io/part-of=flux";
/// Container of a controller, if its pod has several.
const CONTAINER: &str = "manager";

/// Arguments of `weir logs`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only lines of this level
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// Only lines about objects of this kind
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    kind: String,
    /// Only lines about objects with this name
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    name: String,
    /// Go on and print new lines
    #[arg(short, long)]
    follow: bool,
    /// Number of lines of each controller to begin with; all if negative
    #[arg(long, value_name = "LINES", default_value_t = -1, allow_negative_numbers = true)]
    tail: i64,
    /// Namespace of the controllers
    #[arg(long, value_name = "NAME", default_value = "flux-system")]
    flux_namespace: String,
    /// Lines about objects of all namespaces, and lines about none
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only lines not older than this
    #[arg(long, value_name = "DURATION", conflicts_with = "since_time")]
    since: Option<GoDuration>,
    /// Only lines not older than this time, in RFC 3339
    #[arg(long, value_name = "TIME")]
    since_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    Debug,
    Info,
    Error,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Error => "error",
        }
    }
}

type Lines = Pin<Box<dyn Stream<Item = Result<String, Error>> + Send>>;

/// Prints the lines of all controllers, one controller after the other, or as they come when following.
pub(crate) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Error> {
    let pods = pods(connection, &arguments.flux_namespace).await?;
    if pods.is_empty() {
        return Err(Error::NoControllers { namespace: arguments.flux_namespace.clone() });
    }
    let mut streams = Vec::new();
    for (pod, container) in pods {
        match lines(connection, arguments, &pod, container).await {
            Ok(lines) => streams.push(lines),
            Err(error) => output::failure(&error::text(&error)),
        }
    }
    if streams.is_empty() {
        return Err(Error::Reported);
    }
    let filter = Filter {
        level: arguments.level.map(Level::name),
        kind: &arguments.kind,
        name: &arguments.name,
        namespace: (!arguments.all_namespaces).then_some(connection.namespace.as_str()),
    };
    let print = |line: Result<String, Error>| match line {
        Ok(line) => match filter.render(&line) {
            Some(text) => output::data(&text),
            None => Ok(()),
        },
        Err(error) => Err(error),
    };
    if !arguments.follow {
        for mut lines in streams {
            while let Some(line) = lines.next().await {
                print(line)?;
            }
        }
        return Ok(());
    }
    let mut all = stream::select_all(streams);
    let follow = async {
        while let Some(line) = all.next().await {
            print(line)?;
        }
        Ok(())
    };
    // The end of the time is the regular end of following.
    tokio::time::timeout(connection.timeout.to_std(), follow).await.unwrap_or(Ok(()))
}

/// One pod of each controller, a running one if there is one, and the container to read if there are several.
async fn pods(
    connection: &Connection,
    namespace: &str,
) -> Result<Vec<(String, Option<&'static str>)>, Error> {
    let failed =
        |source| Error::Api { action: format!("list the controllers in {namespace} namespace"), source };
    let deployments: Api<Deployment> = Api::namespaced(connection.client(), namespace);
    let pods: Api<Pod> = Api::namespaced(connection.client(), namespace);
    let mut found = Vec::new();
    for deployment in deployments.list(&ListParams::default().labels(PART_OF)).await.map_err(failed)? {
        let labels =
            deployment.spec.template.metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
        let selector: Selector = labels.into_iter().collect();
        let list = pods.list(&ListParams::default().labels_from(&selector)).await.map_err(failed)?;
        let is_running =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        if let Some(pod) = list.iter().find(|pod| is_running(pod)).or_else(|| list.iter().next()) {
            let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
            found.push((pod.name_any(), (containers > 1).then_some(CONTAINER)));
        }
    }
    Ok(found)
}

async fn lines(
    connection: &Connection,
    arguments: &Arguments,
    pod: &str,
    container: Option<&str>,
) -> Result<Lines, Error> {
    let action = format!("read the log of pod '{pod}'");
    let parameters = LogParams {
        container: container.map(str::to_owned),
        follow: arguments.follow,
        tail_lines: (arguments.tail >= 0).then_some(arguments.tail),
        since_seconds: arguments.since.map(|since| since.as_nanos() / 1_000_000_000),
        since_time: arguments.since_time,
        ..LogParams::default()
    };
    let api: Api<Pod> = Api::namespaced(connection.client(), &arguments.flux_namespace);
    let reader = api
        .log_stream(pod, &parameters)
        .await
        .map_err(|source| Error::Api { action: action.clone(), source })?;
    let lines = reader.lines().map_err(move |source| Error::File { path: action.clone(), source });
    Ok(Box::pin(lines))
}

/// Which lines are shown.
struct Filter<'a> {
    level: Option<&'a str>,
    kind: &'a str,
    name: &'a str,
    /// Every namespace, and no namespace, if none.
    namespace: Option<&'a str>,
}

impl Filter<'_> {
    /// The line as it is shown; none if it is not wanted or not made by a controller.
    fn render(&self, line: &str) -> Option<String> {
        let entry: Value = serde_json::from_str(line).ok().filter(Value::is_object)?;
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = match text("controllerKind") {
            "" => text("reconciler kind"),
            kind => kind,
        };
        let level = view::text(&entry, "/level");
        let wanted = self.level.is_none_or(|wanted| wanted == level)
            && (self.kind.is_empty() || self.kind.eq_ignore_ascii_case(kind))
            && (self.name.is_empty() || self.name.eq_ignore_ascii_case(text("name")))
            && self.namespace.is_none_or(|namespace| namespace.eq_ignore_ascii_case(text("namespace")));
        if !wanted {
            return None;
        }
        let kind = if kind.is_empty() { text("logger") } else { kind };
        let object = match text("name") {
            "" => String::new(),
            name => format!("/{name}.{}", text("namespace")),
        };
        Some(format!("{} {level} {kind}{object} - {} {}\n", text("ts"), text("msg"), text("error")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"ts":"2026-01-01T00:00:00.000Z","level":"info","msg":"done","controllerKind":"Kustomization","name":"web","namespace":"apps"}"#;
    const FAILED: &str = r#"{"ts":"2026-01-01T00:00:00.000Z","level":"error","msg":"Reconciler error","error":"bad","reconciler kind":"Bucket","name":"b","namespace":"flux-system"}"#;
    const SETUP: &str =
        r#"{"ts":"2026-01-01T00:00:00.000Z","level":"info","logger":"setup","msg":"starting"}"#;

    #[test]
    fn lines_are_filtered_and_shown() {
        #[track_caller]
        fn check(line: &str, filter: &Filter<'_>, expected: Option<&str>) {
            assert_eq!(filter.render(line).as_deref(), expected);
        }
        let all = || Filter { level: None, kind: "", name: "", namespace: None };
        let run = "2026-01-01T00:00:00.000Z info Kustomization/web.apps - done \n";
        check(RUN, &all(), Some(run));
        check(
            FAILED,
            &all(),
            Some("2026-01-01T00:00:00.000Z error Bucket/b.flux-system - Reconciler error bad\n"),
        );
        check(SETUP, &all(), Some("2026-01-01T00:00:00.000Z info setup - starting \n"));
        check("plain text", &all(), None);
        check("[1]", &all(), None);
        check(RUN, &Filter { namespace: Some("apps"), ..all() }, Some(run));
        check(RUN, &Filter { namespace: Some("flux-system"), ..all() }, None);
        check(SETUP, &Filter { namespace: Some("flux-system"), ..all() }, None);
        check(RUN, &Filter { kind: "kustomization", name: "WEB", ..all() }, Some(run));
        check(RUN, &Filter { level: Some("error"), ..all() }, None);
        check(RUN, &Filter { kind: "Bucket", ..all() }, None);
    }
}
