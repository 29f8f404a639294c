//! The Provider kind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;
use crate::reference::LocalObjectReference;
use crate::schema::string_enum;

/// Receiver of events.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "notification.toolkit.fluxcd.io",
    version = "v1beta3",
    kind = "Provider",
    plural = "providers",
    singular = "provider",
    namespaced,
    derive = "PartialEq",
    category = "all",
    category = "fluxcd",
    category = "fluxcd-notifications",
    doc = "A receiver of events.",
    printcolumn = r#"{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        {"message": "spec.commitStatusExpr is only supported for the 'github', 'gitlab', 'gitea', 'bitbucketserver', 'bitbucket', 'azuredevops' provider types", "rule": "self.type == 'github' || self.type == 'gitlab' || self.type == 'gitea' || self.type == 'bitbucketserver' || self.type == 'bitbucket' || self.type == 'azuredevops' || !has(self.commitStatusExpr)"},
    ]))]
pub struct ProviderSpec {
    /// Address events are sent to; the Secret may hold it instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub address: Option<String>,
    /// Secret with `ca.crt` and, for client certificates, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Channel or topic to post to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub channel: Option<String>,
    /// CEL expression that gives the identifier of the commit status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_status_expr: Option<String>,
    /// Former interval; has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// Former proxy address; use `proxySecretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(http|https)://.*$"), length(max = 2048))]
    pub proxy: Option<String>,
    /// Secret with the `address` of a proxy and, if needed, its `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Secret with `address`, `token`, `username`, `password` or `headers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount in the namespace of this object whose identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Stops reconciliation while true; what exists stays as it is.
    #[serde(default, skip_serializing_if = "crate::schema::is_false")]
    pub suspend: bool,
    /// Longest time one operation may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::duration::SHORT_PATTERN))]
    pub timeout: Option<GoDuration>,
    /// Kind of receiver of the events.
    pub type_: ProviderType,
    /// Name to post under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub username: Option<String>,
}

string_enum! {
    /// Kinds of event receivers.
    pub enum ProviderType {
        /// Written `slack`.
        Slack = "slack",
        /// Written `discord`.
        Discord = "discord",
        /// Written `msteams`.
        Msteams = "msteams",
        /// Written `rocket`.
        Rocket = "rocket",
        /// Written `generic`.
        Generic = "generic",
        /// Written `generic-hmac`.
        GenericHmac = "generic-hmac",
        /// Written `github`.
        Github = "github",
        /// Written `gitlab`.
        Gitlab = "gitlab",
        /// Written `gitea`.
        Gitea = "gitea",
        /// Written `giteapullrequestcomment`.
        Giteapullrequestcomment = "giteapullrequestcomment",
        /// Written `bitbucketserver`.
        Bitbucketserver = "bitbucketserver",
        /// Written `bitbucket`.
        Bitbucket = "bitbucket",
        /// Written `azuredevops`.
        Azuredevops = "azuredevops",
        /// Written `googlechat`.
        Googlechat = "googlechat",
        /// Written `googlepubsub`.
        Googlepubsub = "googlepubsub",
        /// Written `webex`.
        Webex = "webex",
        /// Written `sentry`.
        Sentry = "sentry",
        /// Written `azureeventhub`.
        Azureeventhub = "azureeventhub",
        /// Written `telegram`.
        Telegram = "telegram",
        /// Written `lark`.
        Lark = "lark",
        /// Written `matrix`.
        Matrix = "matrix",
        /// Written `opsgenie`.
        Opsgenie = "opsgenie",
        /// Written `alertmanager`.
        Alertmanager = "alertmanager",
        /// Written `grafana`.
        Grafana = "grafana",
        /// Written `githubdispatch`.
        Githubdispatch = "githubdispatch",
        /// Written `githubpullrequestcomment`.
        Githubpullrequestcomment = "githubpullrequestcomment",
        /// Written `gitlabmergerequestcomment`.
        Gitlabmergerequestcomment = "gitlabmergerequestcomment",
        /// Written `pagerduty`.
        Pagerduty = "pagerduty",
        /// Written `datadog`.
        Datadog = "datadog",
        /// Written `nats`.
        Nats = "nats",
        /// Written `zulip`.
        Zulip = "zulip",
        /// Written `otel`.
        Otel = "otel",
        /// Written `zoom`.
        Zoom = "zoom",
        /// Written `incident.io`.
        IncidentIo = "incident.io",
    }
}
