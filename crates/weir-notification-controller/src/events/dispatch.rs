//! What is sent where for an event and an Alert.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, Resource, ResourceExt as _};
use parking_lot::Mutex;
use rand::RngExt as _;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{Instrument as _, Span, error, info};
use weir_api::notification::{Alert, Provider};
use weir_apply::expression::{Expression, ExpressionError, Numbers, Output, Variables};
use weir_base::clock::Clock;
use weir_base::redact::Secret as Hidden;
use weir_notify::delivery::{ClientError, Clients, DeliveryError, Sender};
use weir_notify::event::{CHANGE_REQUEST, COMMIT, COMMIT_STATUS, COMMIT_STATUS_UPDATE, Event, Severity};
use weir_notify::identity::{Environment, Identities, ServiceAccounts, TokenLimits, Tokens};
use weir_notify::provider::{self, AlertIdentity, Endpoints, Job};
use weir_notify::target::{
    SecretData, Secrets, Target, TargetError, is_change_request, is_commit_status, is_generic,
};
use weir_runtime::{ObjectKey, Recorder, Runtime, Store};

use super::metrics::DeliveryMetrics;
use super::outbox::{Delivery, Outbox};
use crate::receiver::api_message;
use crate::settings::Settings;
use crate::wiring::Stores;

const CONFLICTS: &str = "metadata key conflicts detected (please refer to the Alert API docs and Flux RFC 0008 for more information)";
const GATE: &str = "ObjectLevelWorkloadIdentity";
/// How long the Secrets of a Provider are used without asking for them again.
const TARGET_AGE_MAX: Duration = Duration::from_secs(5);
/// How many Providers with their Secrets are held.
const TARGETS_MAX: usize = 1000;
/// How long tokens of service accounts are good for.
const ACCOUNT_TOKEN_SECONDS: i64 = 3600;

/// The event server cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("unable to set up the delivery of events")]
pub struct SetupError(#[source] ClientError);

/// Why nothing is sent for an Alert. Texts show no credentials.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum DispatchError {
    #[error(
        "discarding event, access denied to cross-namespace sources: alert '{alert}' can't process event from '{object}', cross-namespace references have been blocked"
    )]
    OtherNamespace { alert: String, object: String },
    #[error("failed to read provider: providers.notification.toolkit.fluxcd.io \"{0}\" not found")]
    NoProvider(String),
    #[error(
        "to use spec.serviceAccountName for provider authentication please enable the {GATE} feature gate in the controller"
    )]
    Gate,
    #[error(
        "failed to create commit status: failed to evaluate the spec.commitStatusExpr CEL expression for the event: {0}"
    )]
    CommitStatus(String),
    #[error("failed to initialize notifier for provider '{provider}': {cause}")]
    Settings { provider: String, cause: String },
}

/// What became of an event for an Alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dispatched {
    /// It is on its way.
    Queued,
    /// The Provider is suspended, or does not take such events.
    Dropped,
    /// The Provider sets commit statuses, and the event names no commit.
    NoCommit,
    /// The Provider comments on change requests, and the event names none.
    NoChangeRequest,
}

/// Sends events.
pub(super) struct Dispatcher {
    client: Client,
    providers: Store<Provider>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    no_cross_namespace_refs: bool,
    has_identities: bool,
    endpoints: Endpoints,
    sender: Arc<Sender>,
    outbox: Outbox,
    metrics: DeliveryMetrics,
    targets: Mutex<HashMap<ObjectKey, Held>>,
}

/// A Provider with its Secrets as they were a moment ago.
struct Held {
    version: Option<String>,
    read: Instant,
    target: Arc<Target>,
}

/// Tells people about a problem with an Alert.
pub(super) fn tell(recorder: &Recorder, alert: &Alert, reason: &'static str, message: String) {
    recorder.record(alert, &super::warning(reason, message));
}

impl Dispatcher {
    pub(super) fn new(
        runtime: &mut Runtime,
        settings: &Settings,
        stores: &Stores,
    ) -> Result<Self, SetupError> {
        let client = runtime.standby_client();
        let metrics = DeliveryMetrics::new(&runtime.metrics());
        let gone = metrics.clone();
        stores.providers.on_change(move |change| {
            if let weir_runtime::Change::Deleted(provider) = change {
                gone.forget(&provider.namespace().unwrap_or_default(), &provider.name_any());
            }
        });
        let lost = metrics.clone();
        let outbox = Outbox::new(move |loss| lost.lost(loss));
        let cache = metrics.clone();
        let limits =
            TokenLimits { count: settings.token_cache_max_size, duration: settings.token_cache_max_duration };
        let tokens = Tokens::new(limits, move |event| cache.token(event));
        let accounts = Arc::new(Accounts { client: client.clone() });
        let environment = environment(settings);
        let identities =
            Identities::new(environment, Some(accounts), tokens, runtime.clock()).map_err(SetupError)?;
        let (closing, stop) = (outbox.clone(), runtime.stop());
        runtime.always(async move {
            stop.cancelled().await;
            closing.close().await;
        });
        Ok(Self {
            client,
            providers: stores.providers.clone(),
            clock: runtime.clock(),
            recorder: runtime.recorder(),
            no_cross_namespace_refs: settings.no_cross_namespace_refs,
            has_identities: settings.gates.enabled(GATE),
            endpoints: endpoints(),
            sender: Sender::new(Clients::new(), identities),
            outbox,
            metrics,
            targets: Mutex::default(),
        })
    }

    /// Sends an event on its way for one Alert.
    pub(super) async fn dispatch(
        &self,
        event: &Arc<Event>,
        alert: &Arc<Alert>,
    ) -> Result<Dispatched, DispatchError> {
        let (namespace, name) = (alert.namespace().unwrap_or_default(), alert.name_any());
        if self.no_cross_namespace_refs && event.involved_object.namespace != namespace {
            return Err(DispatchError::OtherNamespace {
                alert: format!("{namespace}/{name}"),
                object: event.involved_object.identity(),
            });
        }
        let key = ObjectKey::new(namespace.as_str(), alert.spec.provider_ref.name.as_str());
        let provider = self.providers.get(&key);
        let provider =
            provider.ok_or_else(|| DispatchError::NoProvider(alert.spec.provider_ref.name.clone()))?;
        if let Some(dropped) = drops(event, &provider) {
            return Ok(dropped);
        }
        let account = provider.spec.service_account_name.as_deref().unwrap_or_default();
        if !account.is_empty() && !self.has_identities {
            return Err(DispatchError::Gate);
        }
        let mut event = (**event).clone();
        let authored = self.combine(&mut event, alert);
        let commit_status = commit_status(&event, alert, &provider)
            .map_err(|error| DispatchError::CommitStatus(weir_base::error::chain(&error)))?;
        let failed = |cause: String| DispatchError::Settings { provider: provider.name_any(), cause };
        let target = self.target(&key, &provider).await.map_err(failed)?;
        let job = Job {
            target: Arc::clone(&target),
            event,
            authored,
            alert: AlertIdentity { namespace, name, uid: alert.uid().unwrap_or_default() },
            commit_status,
            now: self.clock.now(),
            random: rand::rng().random(),
            access: None,
            endpoints: self.endpoints.clone(),
        };
        // What the settings alone make impossible is told at once.
        match provider::next(&job, &[]) {
            Err(error) if error.is_setting() => return Err(failed(target.redact(&error.to_string()))),
            _ => {}
        }
        self.queue(&key, job, alert);
        Ok(Dispatched::Queued)
    }

    fn queue(&self, key: &ObjectKey, job: Job, alert: &Arc<Alert>) {
        let metadata: usize = job.event.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        let bytes = job.event.message.len() + metadata + 1024;
        let (sender, recorder) = (Arc::clone(&self.sender), self.recorder.clone());
        let (metrics, alert) = (self.metrics.clone(), Arc::clone(alert));
        let work = async move {
            let (target, object) = (Arc::clone(&job.target), job.event.involved_object.identity());
            let started = Instant::now();
            let outcome = sender.deliver(job).await;
            metrics.delivered(target.kind.as_str(), outcome.is_ok(), started.elapsed());
            if let Err(failed) = outcome {
                report(&recorder, &alert, &target, &object, &failed);
            }
        };
        self.outbox.push(key, Delivery { work: Box::pin(work.instrument(Span::current())), bytes });
        self.metrics.waiting(self.outbox.waiting());
    }

    /// Gives the event the metadata providers see; the keys the Alert's author wrote.
    fn combine(&self, event: &mut Event, alert: &Alert) -> BTreeSet<String> {
        let summary = alert.spec.summary.as_deref().filter(|summary| !summary.is_empty());
        if summary.is_some() {
            info!(
                "warning: specifying an alert summary with '.spec.summary' is deprecated, use '.spec.eventMetadata.summary' instead"
            );
        }
        let combined = event.combine(&alert.spec.event_metadata, summary);
        if !combined.conflicts.is_empty() {
            info!(conflictingKeys = ?combined.conflicts, "warning: {CONFLICTS}");
            let mut notice = super::warning("MetadataAppendFailed", CONFLICTS.to_owned());
            for (key, sources) in &combined.conflicts {
                notice = notice.with(key.clone(), sources.join(", "));
            }
            self.recorder.record(alert, &notice);
        }
        let own = |key: &str| event.own_metadata(key).is_some();
        let written = alert.spec.event_metadata.keys().map(String::as_str);
        let written = written.chain(summary.map(|_| weir_notify::event::SUMMARY));
        let authored = written.filter(|key| !own(key)).map(str::to_owned).collect();
        if !combined.metadata.is_empty() {
            event.metadata = combined.metadata;
        }
        authored
    }

    /// The Provider with its Secrets, which are read again every few seconds.
    async fn target(&self, key: &ObjectKey, provider: &Provider) -> Result<Arc<Target>, String> {
        let version = provider.resource_version();
        {
            let targets = self.targets.lock();
            let held = targets
                .get(key)
                .filter(|held| held.version == version && held.read.elapsed() < TARGET_AGE_MAX);
            if let Some(held) = held {
                return Ok(Arc::clone(&held.target));
            }
        }
        let namespace = key.namespace();
        let spec = &provider.spec;
        let secrets = Secrets {
            main: self.secret(namespace, spec.secret_ref.as_ref().map(|secret| secret.name.as_str())).await?,
            proxy: self
                .secret(namespace, spec.proxy_secret_ref.as_ref().map(|secret| secret.name.as_str()))
                .await?,
            certificates: self
                .secret(namespace, spec.cert_secret_ref.as_ref().map(|secret| secret.name.as_str()))
                .await?,
        };
        let uid = provider.uid().unwrap_or_default();
        let target = Target::new([namespace, key.name(), &uid], spec, &secrets);
        let target = Arc::new(target.map_err(|error: TargetError| error.to_string())?);
        for warning in &target.deprecated {
            error!(provider = %key, error = *warning, "deprecated settings");
        }
        let mut targets = self.targets.lock();
        if targets.len() >= TARGETS_MAX {
            targets.retain(|_, held| held.read.elapsed() < TARGET_AGE_MAX);
        }
        if targets.len() < TARGETS_MAX {
            let held = Held { version, read: Instant::now(), target: Arc::clone(&target) };
            targets.insert(key.clone(), held);
        }
        Ok(target)
    }

    async fn secret(&self, namespace: &str, name: Option<&str>) -> Result<Option<SecretData>, String> {
        let Some(name) = name else { return Ok(None) };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = api.get(name).await;
        let secret = secret
            .map_err(|error| format!("failed to get secret '{namespace}/{name}': {}", api_message(&error)))?;
        let data = secret.data.unwrap_or_default();
        Ok(Some(data.into_iter().map(|(key, value)| (key, value.0)).collect()))
    }

    /// The labels of the object of an event, if it can be read.
    pub(super) async fn labels(&self, event: &Event) -> Option<BTreeMap<String, String>> {
        let object = &event.involved_object;
        // All of it comes from whoever posts events, and becomes a path.
        let is_name = |text: &str| {
            !text.is_empty()
                && text.len() <= 253
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
                && !text.contains("..")
        };
        let (group, version) = object.api_version.split_once('/').unwrap_or(("", &object.api_version));
        let parts = [version, &object.kind, &object.namespace, &object.name];
        if !parts.into_iter().all(is_name) || !group.is_empty() && !is_name(group) {
            return None;
        }
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &object.kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &object.namespace, &resource);
        match api.get_metadata(&object.name).await {
            Ok(found) => Some(found.metadata.labels.unwrap_or_default()),
            Err(error) => {
                error!(error = %api_message(&error), "error getting the involved object");
                None
            }
        }
    }
}

/// Why an event is not sent to a Provider, if it is not.
fn drops(event: &Event, provider: &Provider) -> Option<Dispatched> {
    let kind = provider.spec.type_;
    let is_update = event.own_metadata(COMMIT_STATUS) == Some(COMMIT_STATUS_UPDATE);
    let has = |key: &str| event.annotation(key).is_some_and(|value| !value.is_empty());
    if provider.spec.suspend || is_update && !is_commit_status(kind) && !is_generic(kind) {
        return Some(Dispatched::Dropped);
    }
    if is_commit_status(kind) && !has(COMMIT) && !is_update && event.severity != Severity::Error {
        return Some(Dispatched::NoCommit);
    }
    if is_change_request(kind) && !has(CHANGE_REQUEST) {
        return Some(Dispatched::NoChangeRequest);
    }
    None
}

/// What tells the commit status of the event apart from others.
fn commit_status(event: &Event, alert: &Alert, provider: &Provider) -> Result<String, ExpressionError> {
    if !is_commit_status(provider.spec.type_) {
        return Ok(String::new());
    }
    if let Some(source) = provider.spec.commit_status_expr.as_deref().filter(|source| !source.is_empty()) {
        let expression = Expression::compile(source, Output::Text, &["event", "alert", "provider"])?;
        let value = |object: Result<Value, serde_json::Error>| object.unwrap_or_default();
        let (event, alert, provider) = (
            value(serde_json::to_value(event)),
            value(serde_json::to_value(alert)),
            value(serde_json::to_value(provider)),
        );
        let variables = Variables::new(
            [("event", &event), ("alert", &alert), ("provider", &provider)],
            Numbers::Integers,
        );
        return expression.evaluate_text(&variables);
    }
    let uid = provider.uid().unwrap_or_default();
    let object = &event.involved_object;
    let first = uid.split('-').next().unwrap_or_default();
    Ok(format!("{}/{}/{first}", object.kind, object.name).to_lowercase())
}

/// Tells about a delivery that failed.
fn report(recorder: &Recorder, alert: &Alert, target: &Target, object: &str, failed: &DeliveryError) {
    let text = target.redact(&weir_base::error::chain(failed));
    let (log, what) = if failed.is_setting() {
        ("failed to dispatch notification", "dispatch")
    } else {
        ("failed to send notification", "send")
    };
    let text = if failed.is_setting() {
        format!("failed to initialize notifier for provider '{}': {text}", target.name)
    } else {
        text
    };
    error!(alert = %format!("{}/{}", alert.namespace().unwrap_or_default(), alert.name_any()), error = %text, "{log}");
    tell(
        recorder,
        alert,
        "NotificationDispatchFailed",
        format!("failed to {what} notification for {object}: {text}"),
    );
}

/// What the process is told about its cloud identity.
fn environment(settings: &Settings) -> Environment {
    let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Environment {
        azure_client: text("AZURE_CLIENT_ID"),
        azure_tenant: text("AZURE_TENANT_ID"),
        azure_token_file: text("AZURE_FEDERATED_TOKEN_FILE").map(PathBuf::from),
        azure_authority: text("AZURE_AUTHORITY_HOST").and_then(|url| url.parse().ok()),
        google_credentials: text("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from),
        google_metadata: text("GCE_METADATA_HOST").and_then(|host| format!("http://{host}/").parse().ok()),
        default_service_account: settings.default_service_account.clone(),
        ..Environment::default()
    }
}

/// The public services, as far as the environment does not name others.
fn endpoints() -> Endpoints {
    let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut endpoints = Endpoints::default();
    let authority = text("AZURE_AUTHORITY_HOST").unwrap_or_default();
    if authority.contains("chinacloudapi.cn") {
        ".servicebus.chinacloudapi.cn".clone_into(&mut endpoints.event_hub_suffix);
    } else if authority.contains("microsoftonline.us") {
        ".servicebus.usgovcloudapi.net".clone_into(&mut endpoints.event_hub_suffix);
    }
    if let Some(url) = text("BITBUCKET_API_BASE_URL").and_then(|url| url.parse().ok()) {
        endpoints.bitbucket = url;
    }
    if let Some(url) = text("PUBSUB_EMULATOR_HOST").and_then(|host| format!("http://{host}/").parse().ok()) {
        endpoints.pub_sub = url;
    }
    endpoints
}

/// Service accounts of the cluster.
struct Accounts {
    client: Client,
}

#[async_trait]
impl ServiceAccounts for Accounts {
    async fn annotations(&self, namespace: &str, name: &str) -> Result<BTreeMap<String, String>, String> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let account = api.get(name).await.map_err(|error| api_message(&error))?;
        Ok(account.meta().annotations.clone().unwrap_or_default())
    }

    async fn token(&self, namespace: &str, name: &str, audience: &str) -> Result<Hidden, String> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let spec = TokenRequestSpec {
            audiences: Some(vec![audience.to_owned()]),
            expiration_seconds: Some(ACCOUNT_TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let created = api.create_token_request(name, &PostParams::default(), &request).await;
        let created = created.map_err(|error| api_message(&error))?;
        let token = created.status.and_then(|status| status.token).filter(|token| !token.is_empty());
        token.map(Hidden::new).ok_or_else(|| "the API server gave no token".to_owned())
    }
}

#[cfg(test)]
impl Dispatcher {
    /// Waits until all deliveries have ended.
    pub(super) async fn settled(&self) {
        self.outbox.settled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(expression: Option<&str>, expected: Result<&str, &str>) {
        let meta =
            json!({"name": "p", "namespace": "apps", "uid": "0c9c2e41-ad30-4bd2", "resourceVersion": "1"});
        let provider: Provider = serde_json::from_value(json!({
            "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider", "metadata": meta,
            "spec": {"type": "github", "commitStatusExpr": expression},
        }))
        .unwrap();
        let alert: Alert = serde_json::from_value(json!({
            "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert", "metadata": meta,
            "spec": {"providerRef": {"name": "p"}, "eventSources": []},
        }))
        .unwrap();
        let event: Event = serde_json::from_value(json!({
            "involvedObject": {"kind": "Kustomization", "namespace": "gitops-system", "name": "Web"},
            "metadata": {"cluster": "prod"}, "severity": "info", "message": "m", "reason": "R",
            "timestamp": "2026-01-01T10:00:00Z", "reportingController": "c",
        }))
        .unwrap();
        let got = commit_status(&event, &alert, &provider).map_err(|error| error.to_string());
        match expected {
            Ok(expected) => assert_eq!(got.as_deref(), Ok(expected)),
            Err(part) => {
                let error = got.unwrap_err();
                assert!(error.contains(part), "{error}");
            }
        }
    }

    #[test]
    fn commit_statuses_have_ids() {
        check(None, Ok("kustomization/web/0c9c2e41"));
        check(Some("event.involvedObject.kind + '/' + event.metadata.cluster"), Ok("Kustomization/prod"));
        check(Some("'a-' + provider.metadata.name + '-' + alert.metadata.namespace"), Ok("a-p-apps"));
        check(Some("event.metadata.cluster"), Err("expected string, got dyn"));
        check(Some("event.metadata.missing + 'x'"), Err(""));
        check(Some("event."), Err(""));
    }
}
