//! What differs from the real cluster: where sources are fetched from, and how long things may take.
//!
//! Objects are changed on their way into the cluster, as a mutating webhook does, so that the controllers see nothing
//! unusual.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use weir_api::GoDuration;

use super::repository::Source;
use crate::local::git::BRANCH;
use crate::view;

/// Says that a source is not fetched because of `--offline`.
pub(crate) const OFFLINE: &str = "simulate.weir.dev/offline";
/// Failed Kustomizations are tried again this soon: nobody waits for intervals in a simulation.
const RETRY: Duration = Duration::from_secs(2);
/// Sources are looked at once: what time passes in a simulation changes nothing about them.
const SOURCE_INTERVAL: Duration = Duration::from_hours(24);

/// The changes of one simulation.
#[derive(Debug, Clone)]
pub(crate) struct Adjustments {
    pub(crate) source: Source,
    /// Where the fleet is served.
    pub(crate) fleet_url: String,
    /// Where charts of a cache are served.
    pub(crate) charts_url: Option<String>,
    /// The same as a registry.
    pub(crate) registry_url: Option<String>,
    /// The charts of the cache.
    pub(crate) chart_names: Vec<String>,
    pub(crate) any_chart_version: bool,
    pub(crate) offline: bool,
    /// The longest time for health checks and Helm actions.
    pub(crate) wait: Duration,
    /// The definitions of the controllers' own kinds by name: a fleet that brings older ones does not replace them.
    pub(crate) definitions: BTreeMap<String, Value>,
}

impl Adjustments {
    /// Changes an object.
    pub(crate) fn apply(&self, object: &mut Value) {
        let is_source = view::text(object, "/apiVersion").starts_with("source.toolkit.fluxcd.io/");
        if is_source && object["spec"]["interval"].is_string() {
            lengthen(&mut object["spec"]["interval"]);
        }
        let (group, _) = weir_manifest::split_api_version(view::text(object, "/apiVersion"));
        match (group, view::text(object, "/kind")) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                if let Some(own) = self.definitions.get(view::name(object)) {
                    object["spec"] = own["spec"].clone();
                }
            }
            ("source.toolkit.fluxcd.io", "GitRepository") if self.is_fleet(object) => self.serve(object),
            ("source.toolkit.fluxcd.io", "HelmRepository") => match &self.charts_url {
                Some(url) => {
                    object["spec"]["url"] = json!(url);
                    drop_fields(object, &["type", "provider", "secretRef", "certSecretRef", "insecure"]);
                }
                None if self.offline => stub(object),
                None => {}
            },
            ("source.toolkit.fluxcd.io", "OCIRepository") => {
                match (&self.registry_url, self.cached(object)) {
                    (Some(registry), Some(name)) => {
                        object["spec"]["url"] = json!(format!("{registry}/{name}"));
                        object["spec"]["insecure"] = json!(true);
                        drop_fields(
                            object,
                            &[
                                "provider",
                                "secretRef",
                                "certSecretRef",
                                "proxySecretRef",
                                "verify",
                                "serviceAccountName",
                            ],
                        );
                        if self.any_chart_version {
                            object["spec"]["ref"] = json!({"semver": "*-0"});
                        }
                    }
                    _ if self.offline => stub(object),
                    _ => {}
                }
            }
            ("source.toolkit.fluxcd.io", "GitRepository" | "Bucket") if self.offline => stub(object),
            ("kustomize.toolkit.fluxcd.io", "Kustomization") => {
                let interval = object["spec"]["interval"].clone();
                self.shorten(object, &interval);
                let retry = GoDuration::from(RETRY);
                if !longest(&object["spec"]["retryInterval"], RETRY) {
                    object["spec"]["retryInterval"] = json!(retry.to_string());
                }
            }
            ("helm.toolkit.fluxcd.io", "HelmRelease") => {
                self.shorten(object, &json!("5m"));
                if object["spec"]["chart"]["spec"].is_object() {
                    lengthen(&mut object["spec"]["chart"]["spec"]["interval"]);
                }
                if self.any_chart_version && object["spec"]["chart"]["spec"].is_object() {
                    object["spec"]["chart"]["spec"]["version"] = json!("*-0");
                }
            }
            _ => {}
        }
    }

    /// Whether a source is the fleet itself, by its name or by its URL.
    fn is_fleet(&self, object: &Value) -> bool {
        let url = view::text(object, "/spec/url");
        view::name(object) == self.source.name && view::namespace(object) == self.source.namespace
            || !self.source.url.is_empty() && plain(url) == plain(&self.source.url)
            || url == self.fleet_url
    }

    /// The chart of the cache that an OCIRepository means: the last part of its URL.
    fn cached(&self, object: &Value) -> Option<String> {
        let name = view::text(object, "/spec/url").trim_end_matches('/').rsplit('/').next()?.to_owned();
        self.chart_names.contains(&name).then_some(name)
    }

    fn serve(&self, object: &mut Value) {
        object["spec"]["url"] = json!(self.fleet_url);
        object["spec"]["ref"] = json!({"branch": BRANCH});
        drop_fields(
            object,
            &["secretRef", "verify", "proxySecretRef", "provider", "recurseSubmodules", "serviceAccountName"],
        );
    }

    fn shorten(&self, object: &mut Value, default: &Value) {
        let given = &object["spec"]["timeout"];
        let given = if given.is_null() { default } else { given };
        if !longest(given, self.wait) {
            object["spec"]["timeout"] = json!(GoDuration::from(self.wait).to_string());
        }
    }
}

/// Makes the interval of a source so long that it does not come in a simulation.
fn lengthen(interval: &mut Value) {
    if longest(interval, SOURCE_INTERVAL) || interval.is_null() {
        *interval = json!(GoDuration::from(SOURCE_INTERVAL).to_string());
    }
}

/// A URL without what differs between ways to reach the same repository.
fn plain(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.trim_end_matches('/').trim_end_matches(".git").replace(':', "/").to_lowercase()
}

/// Whether a duration is given and at most so long.
fn longest(value: &Value, most: Duration) -> bool {
    let given = value.as_str().and_then(|text| text.parse::<GoDuration>().ok());
    given.is_some_and(|given| given.to_std() <= most)
}

fn drop_fields(object: &mut Value, names: &[&str]) {
    if let Some(spec) = object["spec"].as_object_mut() {
        for name in names {
            spec.remove(*name);
        }
    }
}

/// A source that is not fetched.
fn stub(object: &mut Value) {
    object["spec"]["suspend"] = json!(true);
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][OFFLINE] = json!("true");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjustments(offline: bool) -> Adjustments {
        Adjustments {
            source: Source {
                namespace: "flux-system".to_owned(),
                name: "flux-system".to_owned(),
                url: "ssh://git@git.example/team/fleet.git".to_owned(),
            },
            fleet_url: "http://127.0.0.1:1/fleet.git".to_owned(),
            charts_url: None,
            registry_url: None,
            chart_names: Vec::new(),
            any_chart_version: false,
            offline,
            wait: Duration::from_mins(1),
            definitions: BTreeMap::new(),
        }
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn check(offline: bool, mut object: Value, want: Value) {
        let adjustments = adjustments(offline);
        adjustments.apply(&mut object);
        assert_eq!(object["spec"], want);
        let once = object.clone();
        adjustments.apply(&mut object);
        assert_eq!(object, once, "what was changed stays as it is");
    }

    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    fn source(kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "flux-system"}, "spec": spec
        })
    }

    #[test]
    fn the_fleet_is_served_from_here_by_whatever_name() {
        let served =
            json!({"url": "http://127.0.0.1:1/fleet.git", "ref": {"branch": "main"}, "interval": "24h0m0s"});
        let spec = |url: &str| json!({"url": url, "ref": {"tag": "v1"}, "interval": "24h0m0s", "secretRef": {"name": "key"}});
        check(
            true,
            source("GitRepository", "flux-system", spec("https://elsewhere.example/x")),
            served.clone(),
        );
        check(true, source("GitRepository", "again", spec("https://git.example/team/fleet")), served);
        let other = spec("https://git.example/team/other");
        check(false, source("GitRepository", "other", other.clone()), other);
    }

    #[test]
    fn sources_of_the_network_are_not_fetched_offline() {
        let spec = json!({"url": "oci://registry.example/x", "interval": "1m"});
        let stubbed = json!({"url": "oci://registry.example/x", "interval": "24h0m0s", "suspend": true});
        check(true, source("OCIRepository", "x", spec.clone()), stubbed);
        let looked_at_once = json!({"url": "oci://registry.example/x", "interval": "24h0m0s"});
        check(false, source("OCIRepository", "x", spec), looked_at_once);
    }

    #[test]
    fn nobody_waits_longer_than_asked() {
        let kustomization = |spec: Value| json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "a"}, "spec": spec});
        check(
            false,
            kustomization(json!({"interval": "1h"})),
            json!({"interval": "1h", "timeout": "1m0s", "retryInterval": "2s"}),
        );
        check(
            false,
            kustomization(json!({"interval": "1h", "timeout": "30s", "retryInterval": "1s"})),
            json!({"interval": "1h", "timeout": "30s", "retryInterval": "1s"}),
        );
    }
}
