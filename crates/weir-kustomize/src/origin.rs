//! Where a resource came from and what changed it, as `buildMetadata` reports it.

use serde_json::Value;
use weir_manifest::to_yaml;

/// The source of a resource, or the configuration of the generator or transformer behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    pub(crate) path: String,
    pub(crate) repo: String,
    pub(crate) reference: String,
    pub(crate) configured_in: String,
    pub(crate) configured_by: Option<ConfiguredBy>,
}

/// The plugin configuration object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConfiguredBy {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

impl Origin {
    /// The origin of what `path`, found in a kustomization of this origin, names.
    pub(crate) fn append(&self, path: &str) -> Self {
        let mut origin = self.clone();
        if let Some(spec) = crate::remote::RepoSpec::parse(path) {
            origin.repo = weir_base::redact::hide_passwords(&spec.clone_url).into_owned();
            origin.reference = spec.reference.unwrap_or_default();
            origin.path = spec.path;
        } else {
            origin.path = join(&origin.path, path);
        }
        origin
    }

    /// A builtin generator or transformer configured in `file` of the kustomization of this origin.
    pub(crate) fn builtin(&self, file: &str, kind: &str) -> Self {
        Self {
            repo: self.repo.clone(),
            reference: self.reference.clone(),
            configured_in: join(&self.path, file),
            configured_by: Some(ConfiguredBy {
                api_version: "builtin".to_owned(),
                kind: kind.to_owned(),
                ..ConfiguredBy::default()
            }),
            path: String::new(),
        }
    }

    /// The lines of the YAML text, in the order the reference writes them.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut put = |indent: &str, key: &str, text: &str| {
            if !text.is_empty() {
                let value = to_yaml(&Value::from(text));
                lines.push(format!("{indent}{key}: {}", value.trim_end()));
            }
        };
        put("", "path", &self.path);
        put("", "repo", &self.repo);
        put("", "ref", &self.reference);
        put("", "configuredIn", &self.configured_in);
        if let Some(by) = &self.configured_by {
            let mut inner = Vec::new();
            for (key, text) in [
                ("apiVersion", &by.api_version),
                ("kind", &by.kind),
                ("name", &by.name),
                ("namespace", &by.namespace),
            ] {
                if !text.is_empty() {
                    inner.push((key, text.as_str()));
                }
            }
            lines.push("configuredBy:".to_owned());
            for (key, text) in inner {
                lines.push(format!("  {key}: {}", to_yaml(&Value::from(text)).trim_end()));
            }
        }
        lines
    }

    /// The text of the origin annotation.
    pub(crate) fn to_yaml(&self) -> String {
        self.lines().into_iter().map(|line| line + "\n").collect()
    }

    /// The text of one item of the transformations annotation.
    pub(crate) fn to_yaml_item(&self) -> String {
        let mut text = String::new();
        for (position, line) in self.lines().into_iter().enumerate() {
            text.push_str(if position == 0 { "- " } else { "  " });
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// Joins and cleans a path; one that leaves the start keeps its `..`.
pub(crate) fn join(base: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(relative.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}
