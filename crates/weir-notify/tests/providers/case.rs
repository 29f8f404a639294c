//! Providers and what their services ask for, read from files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use regex::Regex;
use serde_json::Value;
use url::Url;
use weir_api::notification::ProviderSpec;
use weir_base::redact::Secret;
use weir_notify::event::Event;
use weir_notify::provider::{Access, AlertIdentity, Endpoints, Job};
use weir_notify::target::{Secrets, Target};

pub(crate) const UID: &str = "0c9c2e41-ad30-4bd2-8b1b-7c5f0b3f2d11";

fn read(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path);
    let text = std::fs::read(&path).unwrap();
    weir_manifest::read_first_document(&text, &path.to_string_lossy(), weir_manifest::ReadOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn event(name: &str) -> Event {
    serde_json::from_value(read(&format!("events/{name}.yaml"))).unwrap()
}

/// What a service asks of one of its requests, and what it answers.
pub(crate) struct Rule {
    pub(crate) method: String,
    pub(crate) path: Regex,
    pub(crate) demands: Value,
    pub(crate) status: u16,
    pub(crate) body: String,
}

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) spec: ProviderSpec,
    pub(crate) secret: BTreeMap<String, String>,
    pub(crate) access: Option<String>,
    pub(crate) rules: Vec<Rule>,
}

impl Case {
    pub(crate) fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names.iter().map(|name| Self::named(name.strip_suffix(".yaml").unwrap())).collect()
    }

    pub(crate) fn named(name: &str) -> Self {
        let value = read(&format!("cases/{name}.yaml"));
        let rule = |value: &Value| Rule {
            method: value["method"].as_str().unwrap().to_owned(),
            path: Regex::new(value["path"].as_str().unwrap()).unwrap(),
            demands: value.clone(),
            status: value["answer"]["status"].as_u64().unwrap().try_into().unwrap(),
            body: value["answer"]["body"].as_str().unwrap_or_default().to_owned(),
        };
        Self {
            name: name.to_owned(),
            spec: serde_json::from_value(value["spec"].clone()).unwrap(),
            secret: serde_json::from_value(value["secret"].clone()).unwrap_or_default(),
            access: value["access"].as_str().map(str::to_owned),
            rules: value["service"].as_array().unwrap().iter().map(rule).collect(),
        }
    }

    pub(crate) fn rule(&self, method: &str, path: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.method == method && rule.path.is_match(path))
    }

    pub(crate) fn target(&self, base: &str) -> Target {
        let (scheme, host) = base.split_once("://").unwrap();
        let fill =
            |text: &str| text.replace("{base}", base).replace("{scheme}", scheme).replace("{host}", host);
        let mut spec = self.spec.clone();
        spec.address = spec.address.as_deref().map(fill);
        let data = self.secret.iter().map(|(key, value)| (key.clone(), fill(value).into_bytes())).collect();
        let main = (!self.secret.is_empty()).then_some(data);
        let secrets = Secrets { main, ..Secrets::default() };
        Target::new(["flux-system", "provider", UID], &spec, &secrets).unwrap()
    }

    pub(crate) fn job(&self, base: &str, event: Event) -> Job {
        let is_mock = base.starts_with("http:");
        let at = |path: &str| Url::parse(&format!("{base}{path}")).unwrap();
        let endpoints = if is_mock {
            Endpoints {
                bitbucket: at("/2.0/"),
                github: at("/"),
                pub_sub: at("/"),
                telegram: at("/"),
                event_hub: Some(at("/")),
                ..Endpoints::default()
            }
        } else {
            Endpoints::default()
        };
        let target = self.target(base);
        let status = format!("kustomization/web-front/{}", UID.split('-').next().unwrap());
        Job {
            commit_status: if weir_notify::target::is_commit_status(target.kind) {
                status
            } else {
                String::new()
            },
            target: Arc::new(target),
            event,
            authored: BTreeSet::from(["summary".to_owned()]),
            alert: AlertIdentity {
                namespace: "flux-system".to_owned(),
                name: "alert".to_owned(),
                uid: "9d6bd3d0-0000-4000-8000-000000000000".to_owned(),
            },
            now: "2026-03-04T05:06:08Z".parse().unwrap(),
            random: *b"0123456789abcdef01234567",
            access: self.access.as_deref().map(|token| Access { token: Secret::new(token), app_slug: None }),
            endpoints,
        }
    }
}
