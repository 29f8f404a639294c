//! A request, taken apart.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;

use crate::auth::Identity;

/// What a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) plural: String,
    pub(crate) name: String,
    /// What follows the name, as in `status`; `proxy` and the like may have more.
    pub(crate) subresource: String,
    /// A path of the old form `/api/v1/watch/…`.
    pub(crate) watch: bool,
}

impl Target {
    /// The resource of a path; `None` for paths of discovery and others.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/').filter(|part| !part.is_empty());
        let mut out = Self::default();
        match parts.next()? {
            "api" => {}
            "apis" => out.group = decode(parts.next()?),
            _ => return None,
        }
        out.version = decode(parts.next()?);
        let mut rest: Vec<String> = parts.map(decode).collect();
        if rest.first().is_some_and(|part| part == "watch") && rest.len() > 1 {
            out.watch = true;
            rest.remove(0);
        }
        if rest.is_empty() {
            return None;
        }
        if rest[0] == "namespaces" && rest.len() > 2 && !matches!(rest[2].as_str(), "status" | "finalize") {
            out.namespace.clone_from(&rest[1]);
            rest.drain(..2);
        }
        let mut rest = rest.into_iter();
        out.plural = rest.next()?;
        out.name = rest.next().unwrap_or_default();
        out.subresource = rest.collect::<Vec<_>>().join("/");
        Some(out)
    }
}

/// Percent-decoding of one part of a path or query.
fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The parameters of a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
        });
        Self(pairs.collect())
    }

    /// The value; empty for none.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        matches!(self.get(key), "true" | "1" | "True" | "TRUE" | "t" | "T")
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
}

/// How unknown and duplicate fields are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// A request for a resource.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) identity: Identity,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
    /// Texts for `Warning` headers.
    pub(crate) warnings: RefCell<Vec<String>>,
}

impl Call {
    pub(crate) fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.warnings.borrow_mut();
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.query.get("dryRun") == "All"
    }

    pub(crate) fn field_validation(&self) -> FieldValidation {
        match self.query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        }
    }

    /// The field manager: as named, or the first part of the user agent.
    pub(crate) fn manager(&self) -> String {
        let named = self.query.get("fieldManager");
        if !named.is_empty() {
            return named.to_owned();
        }
        let agent = self.user_agent.split('/').next().unwrap_or_default();
        let clean: String = agent.chars().filter(|c| !c.is_control()).take(128).collect();
        if clean.is_empty() { "unknown".to_owned() } else { clean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &[&str; 6]) {
        let target = Target::parse(path).unwrap();
        let found = [
            &*target.group,
            &*target.version,
            &*target.namespace,
            &*target.plural,
            &*target.name,
            &*target.subresource,
        ];
        assert_eq!(&found, expected, "{path}");
    }

    #[test]
    fn paths() {
        check("/api/v1/pods", &["", "v1", "", "pods", "", ""]);
        check("/api/v1/namespaces/a", &["", "v1", "", "namespaces", "a", ""]);
        check("/api/v1/namespaces/a/finalize", &["", "v1", "", "namespaces", "a", "finalize"]);
        check("/api/v1/namespaces/a/pods/b/status", &["", "v1", "a", "pods", "b", "status"]);
        check("/apis/apps/v1/namespaces/a/deployments/b", &["apps", "v1", "a", "deployments", "b", ""]);
        check(
            "/apis/rbac/v1/clusterroles/system%3Anode",
            &["rbac", "v1", "", "clusterroles", "system:node", ""],
        );
        assert_eq!(Target::parse("/apis/apps/v1"), None);
        assert_eq!(Target::parse("/healthz"), None);
    }

    #[test]
    fn queries() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=true&force");
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert!(query.is_true("watch"));
        assert!(query.has("force") && !query.is_true("force"));
    }
}
