//! `weir reconcile`: asks a controller to work on an object now, and waits for the result.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use weir_api::names::annotation::{FORCE_AT, RECONCILE_ONCE_AT, REQUESTED_AT, RESET_AT};

use super::target::ImageTarget;
use crate::connection::Connection;
use crate::error::Error;
use crate::kind::Kind;
use crate::{output, view, wait};

/// Arguments of `weir reconcile`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    target: Target,
    /// Run once although the object is suspended; it stays suspended (not with the controllers of Flux)
    #[arg(long, global = true)]
    once: bool,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// A Kustomization
    #[command(visible_alias = "ks")]
    Kustomization(WithSource),
    /// A HelmRelease
    #[command(visible_alias = "hr")]
    Helmrelease(Release),
    /// A source
    #[command(subcommand)]
    Source(Source),
    /// An image scan, policy or update
    #[command(subcommand)]
    Image(ImageTarget<Name>),
    /// A webhook receiver
    Receiver(Name),
}

#[derive(Debug, Subcommand)]
enum Source {
    /// A GitRepository
    Git(Name),
    /// An OCIRepository
    Oci(Name),
    /// A Bucket
    Bucket(Name),
    /// A HelmRepository
    Helm(Name),
    /// A HelmChart
    Chart(WithSource),
}

#[derive(Debug, Args)]
struct Name {
    /// Name of the object
    name: String,
}

#[derive(Debug, Args)]
struct WithSource {
    /// Name of the object
    name: String,
    /// Reconcile its source first
    #[arg(long)]
    with_source: bool,
}

#[derive(Debug, Args)]
struct Release {
    #[command(flatten)]
    object: WithSource,
    /// Install or upgrade even if nothing changed
    #[arg(long)]
    force: bool,
    /// Reset the number of failures, so that retries start again
    #[arg(long)]
    reset: bool,
}

/// An object to reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    kind: Kind,
    name: String,
    with_source: bool,
    annotations: Vec<&'static str>,
}

/// Reconciles the object.
pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<(), Error> {
    reconcile(connection, &arguments.request()).await
}

impl Arguments {
    fn request(self) -> Request {
        let once = self.once;
        let mut request = self.plain_request();
        if once {
            request.annotations.push(RECONCILE_ONCE_AT);
        }
        request
    }

    fn plain_request(self) -> Request {
        let plain = |kind: Kind, name: String| Request {
            kind,
            name,
            with_source: false,
            annotations: vec![REQUESTED_AT],
        };
        match self.target {
            Target::Kustomization(WithSource { name, with_source }) => {
                Request { with_source, ..plain(Kind::Kustomization, name) }
            }
            Target::Helmrelease(Release { object, force, reset }) => {
                let mut request =
                    Request { with_source: object.with_source, ..plain(Kind::HelmRelease, object.name) };
                request.annotations.extend(
                    [(force, FORCE_AT), (reset, RESET_AT)]
                        .into_iter()
                        .filter_map(|(on, key)| on.then_some(key)),
                );
                request
            }
            Target::Source(Source::Git(Name { name })) => plain(Kind::GitRepository, name),
            Target::Source(Source::Oci(Name { name })) => plain(Kind::OciRepository, name),
            Target::Source(Source::Bucket(Name { name })) => plain(Kind::Bucket, name),
            Target::Source(Source::Helm(Name { name })) => plain(Kind::HelmRepository, name),
            Target::Source(Source::Chart(WithSource { name, with_source })) => {
                Request { with_source, ..plain(Kind::HelmChart, name) }
            }
            Target::Image(target) => {
                let (kind, Name { name }) = target.split();
                plain(kind, name)
            }
            Target::Receiver(Name { name }) => plain(Kind::Receiver, name),
        }
    }
}

/// Reconciles the sources of an object, if wanted, from the far end of the chain, and then the object itself.
async fn reconcile(connection: &Connection, request: &Request) -> Result<(), Error> {
    let mut chain = vec![(connection.clone(), request.clone())];
    while let Some((connection, request)) = chain.last() {
        let object = connection.get(request.kind, &request.name).await?;
        if view::is_static(request.kind, &object) {
            output::success("reconciliation not supported by the object");
            chain.pop();
            break;
        }
        if view::is_suspended(&object) && !request.annotations.contains(&RECONCILE_ONCE_AT) {
            return Err(Error::Suspended {
                human: request.kind.human(),
                name: request.name.clone(),
                namespace: connection.namespace.clone(),
            });
        }
        if !request.with_source {
            break;
        }
        let source = source_of(request.kind, &object)?;
        let next = connection.in_namespace(&source.namespace);
        // A chart without its source would see nothing new.
        let with_source = source.kind == Kind::HelmChart;
        let annotations = vec![REQUESTED_AT];
        chain.push((next, Request { kind: source.kind, name: source.name, with_source, annotations }));
    }
    while let Some((connection, request)) = chain.pop() {
        trigger(&connection, &request).await?;
    }
    Ok(())
}

/// Annotates an object and waits until the controller has handled the request.
async fn trigger(connection: &Connection, request: &Request) -> Result<(), Error> {
    let kind = request.kind.name();
    let before = connection.get(request.kind, &request.name).await?;
    let last_handled = view::text(&before, "/status/lastHandledReconcileAt").to_owned();
    output::action(&format!("annotating {kind} {} in {} namespace", request.name, connection.namespace));
    let token = k8s_openapi::jiff::Timestamp::now().to_string();
    connection.patch(request.kind, &request.name, &annotation_patch(&request.annotations, &token)).await?;
    output::success(&format!("{kind} annotated"));
    output::waiting(&format!("waiting for {kind} reconciliation"));
    let object =
        wait::until(connection, request.kind, &request.name, |object| wait::handled(object, &last_handled))
            .await?;
    output::success(&view::success(request.kind, &object));
    Ok(())
}

fn annotation_patch(annotations: &[&str], token: &str) -> Value {
    let annotations: Map<String, Value> =
        annotations.iter().map(|key| ((*key).to_owned(), Value::from(token))).collect();
    json!({"metadata": {"annotations": annotations}})
}

/// Where an object gets its content from.
#[derive(Debug, PartialEq, Eq)]
struct SourceReference {
    kind: Kind,
    name: String,
    namespace: String,
}

fn source_of(kind: Kind, object: &Value) -> Result<SourceReference, Error> {
    let own = view::namespace(object);
    let read = |pointer: &str, accepted: &[Kind]| {
        let reference = object.pointer(pointer)?;
        let name = view::text(reference, "/kind");
        Some(match Kind::named(name).filter(|kind| accepted.contains(kind)) {
            Some(kind) => Ok(SourceReference {
                kind,
                name: view::text(reference, "/name").to_owned(),
                namespace: match view::text(reference, "/namespace") {
                    "" => own.to_owned(),
                    namespace => namespace.to_owned(),
                },
            }),
            None => Err(Error::SourceKind(name.to_owned())),
        })
    };
    let found = match kind {
        Kind::Kustomization => {
            read("/spec/sourceRef", &[Kind::GitRepository, Kind::OciRepository, Kind::Bucket])
        }
        Kind::HelmChart => {
            read("/spec/sourceRef", &[Kind::GitRepository, Kind::HelmRepository, Kind::Bucket])
        }
        Kind::HelmRelease => match read("/spec/chartRef", &[Kind::HelmChart, Kind::OciRepository]) {
            None => {
                read("/spec/chart/spec/sourceRef", &[Kind::GitRepository, Kind::HelmRepository, Kind::Bucket])
                    .map(|source| {
                        // The release has its own chart object beside the source.
                        let name = format!("{own}-{}", view::name(object));
                        source.map(|source| SourceReference { kind: Kind::HelmChart, name, ..source })
                    })
            }
            found => found,
        },
        _ => None,
    };
    found.unwrap_or_else(|| {
        let subject = format!("{}/{own}/{}", kind.name(), view::name(object));
        Err(Error::FieldMissing { field: "spec.sourceRef", subject })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error;
    use crate::testing::Cluster;

    #[track_caller]
    fn check_source(kind: Kind, spec: &Value, expected: &str) {
        let object = json!({"metadata": {"name": "web", "namespace": "apps"}, "spec": spec});
        let found = match source_of(kind, &object) {
            Ok(source) => format!("{}/{}/{}", source.kind.name(), source.namespace, source.name),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn sources() {
        let git = json!({"kind": "GitRepository", "name": "fleet", "namespace": "flux-system"});
        check_source(Kind::Kustomization, &json!({"sourceRef": git}), "GitRepository/flux-system/fleet");
        check_source(
            Kind::Kustomization,
            &json!({"sourceRef": {"kind": "Bucket", "name": "b"}}),
            "Bucket/apps/b",
        );
        check_source(
            Kind::Kustomization,
            &json!({"sourceRef": {"kind": "ExternalArtifact", "name": "e"}}),
            "cannot reconcile source of kind ExternalArtifact",
        );
        check_source(
            Kind::HelmRelease,
            &json!({"chart": {"spec": {"sourceRef": git}}}),
            "HelmChart/flux-system/apps-web",
        );
        check_source(
            Kind::HelmRelease,
            &json!({"chartRef": {"kind": "OCIRepository", "name": "charts"}}),
            "OCIRepository/apps/charts",
        );
        check_source(
            Kind::HelmRelease,
            &json!({"chartRef": {"kind": "ExternalArtifact", "name": "x"}}),
            "cannot reconcile source of kind ExternalArtifact",
        );
        check_source(Kind::HelmChart, &json!({}), "'spec.sourceRef' is missing in HelmChart/apps/web");
    }

    #[test]
    fn all_annotations_carry_the_same_token() {
        assert_eq!(
            annotation_patch(&[REQUESTED_AT, FORCE_AT], "now"),
            json!({"metadata": {"annotations": {REQUESTED_AT: "now", FORCE_AT: "now"}}})
        );
    }

    fn kustomization(suspend: bool) -> Value {
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "apps", "namespace": "flux-system", "generation": 1},
            "spec": {"suspend": suspend, "sourceRef": {"kind": "GitRepository", "name": "fleet"}},
        })
    }

    fn repository() -> Value {
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "fleet", "namespace": "flux-system", "generation": 1}, "spec": {},
        })
    }

    /// A controller that handles every request at once.
    fn handle(object: &mut Value, status: &str) {
        let token = object.pointer("/metadata/annotations").and_then(|map| map.get(REQUESTED_AT)).cloned();
        if let Some(token) = token {
            object["status"] = json!({
                "lastHandledReconcileAt": token, "observedGeneration": 1, "lastAppliedRevision": "main@sha1:abc",
                "conditions": [{"type": "Ready", "status": status, "reason": "Because", "message": "it is so"}],
            });
        }
    }

    fn request(with_source: bool) -> Request {
        Request {
            kind: Kind::Kustomization,
            name: "apps".to_owned(),
            with_source,
            annotations: vec![REQUESTED_AT],
        }
    }

    #[tokio::test]
    async fn the_source_comes_first() {
        let cluster = Cluster::new(vec![kustomization(false), repository()], |object| handle(object, "True"));
        reconcile(&cluster.connection(), &request(true)).await.unwrap();
        assert_eq!(cluster.writes(), ["PATCH gitrepositories/fleet", "PATCH kustomizations/apps"]);
    }

    #[tokio::test]
    async fn without_source_only_the_object() {
        let cluster = Cluster::new(vec![kustomization(false), repository()], |object| handle(object, "True"));
        reconcile(&cluster.connection(), &request(false)).await.unwrap();
        assert_eq!(cluster.writes(), ["PATCH kustomizations/apps"]);
    }

    #[tokio::test]
    async fn a_suspended_object_can_be_asked_to_run_once() {
        let cluster = Cluster::new(vec![kustomization(true)], |object| handle(object, "True"));
        let mut request = request(false);
        request.annotations.push(RECONCILE_ONCE_AT);
        reconcile(&cluster.connection(), &request).await.unwrap();
        assert_eq!(cluster.writes(), ["PATCH kustomizations/apps"]);
    }

    #[tokio::test]
    async fn failures_are_told() {
        #[track_caller]
        fn check(result: Result<(), Error>, expected: &str) {
            assert_eq!(error::text(&result.unwrap_err()), expected);
        }
        let cluster = Cluster::new(vec![kustomization(true)], |_| {});
        check(reconcile(&cluster.connection(), &request(false)).await, "resource is suspended");
        assert!(cluster.writes().is_empty());

        let cluster = Cluster::new(vec![], |_| {});
        check(
            reconcile(&cluster.connection(), &request(false)).await,
            "Kustomization object 'apps' not found in \"flux-system\" namespace",
        );

        let cluster = Cluster::new(vec![kustomization(false)], |object| handle(object, "False"));
        check(
            reconcile(&cluster.connection(), &request(false)).await,
            "Kustomization reconciliation failed: 'it is so'",
        );

        let cluster = Cluster::new(vec![kustomization(false)], |_| {});
        check(
            reconcile(&cluster.connection(), &request(false)).await,
            "context deadline exceeded: waited 100ms for Kustomization/flux-system/apps: the request was not handled yet",
        );
    }
}
