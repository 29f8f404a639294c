//! One artifact for each directory that a path pattern matches. Pure.

use std::collections::BTreeMap;

use regex::Regex;
use weir_api::extensions::{ArtifactGeneratorSpec, CopyOperation, OutputArtifact};
use weir_artifact::archive::compare_paths;

use crate::copy::{Sources, split_alias};
use crate::decide::is_object_name;

/// An artifact to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) output: OutputArtifact,
    /// What the pattern captured, as labels.
    pub(crate) labels: BTreeMap<String, String>,
}

/// A pattern, or what comes of it, that only a change of the specification or the source repairs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The pattern is broken.
    #[error("pathPattern \"{pattern}\": {what}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        what: String,
    },
    /// A name or path of an artifact is broken.
    #[error("pathPattern \"{pattern}\": failed to render artifact {name} for match {path}: {what}")]
    Render {
        /// The pattern.
        pattern: String,
        /// The name of the artifact.
        name: String,
        /// The directory.
        path: String,
        /// What is wrong.
        what: String,
    },
}

/// The artifacts of the specification, once for every directory that the path pattern matches.
pub(crate) fn requests(spec: &ArtifactGeneratorSpec, sources: &Sources) -> Result<Vec<Request>, ExpandError> {
    let Some(pattern) = spec.path_pattern.as_deref().filter(|pattern| !pattern.is_empty()) else {
        let plain = |output: &OutputArtifact| Request { output: output.clone(), labels: BTreeMap::new() };
        return Ok(spec.artifacts.iter().map(plain).collect());
    };
    let broken = |what: String| ExpandError::Pattern { pattern: pattern.to_owned(), what };
    let (alias, text) =
        split_alias(pattern).ok_or_else(|| broken("invalid pathPattern format".to_owned()))?;
    let tree = sources
        .get(alias)
        .ok_or_else(|| broken(format!("source alias {alias} not found in local sources")))?;
    let names = captures(text).map_err(&broken)?;
    let matcher =
        matcher(text).map_err(|error| broken(format!("failed to compile path pattern: {error}")))?;
    let mut directories: Vec<&str> = tree.directories().collect();
    directories.sort_by(|left, right| compare_paths(left.as_bytes(), right.as_bytes()));
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    let mut requests = Vec::new();
    for path in directories {
        let Some(found) = matcher.captures(path) else { continue };
        let raw: BTreeMap<String, String> = names
            .iter()
            .map(|name| {
                (name.clone(), found.name(name).map(|text| text.as_str().to_owned()).unwrap_or_default())
            })
            .collect();
        let lower: BTreeMap<String, String> =
            raw.iter().map(|(name, value)| (name.clone(), value.to_lowercase())).collect();
        for (name, value) in &lower {
            if !is_label_value(value) {
                return Err(broken(format!(
                    "captured value \"{value}\" for variable \"{name}\" is not a valid Kubernetes label value"
                )));
            }
        }
        for output in &spec.artifacts {
            let output = render(output, &lower, &raw).map_err(|what| ExpandError::Render {
                pattern: pattern.to_owned(),
                name: output.name.clone(),
                path: path.to_owned(),
                what,
            })?;
            if !is_object_name(&output.name) {
                return Err(broken(format!(
                    "rendered artifact name \"{}\" is not a valid Kubernetes object name",
                    output.name
                )));
            }
            if let Some(other) = seen.insert(output.name.clone(), path) {
                return Err(broken(format!(
                    "directories \"{other}\" and \"{path}\" both resolve to artifact name \"{}\"",
                    output.name
                )));
            }
            requests.push(Request { output, labels: lower.clone() });
        }
    }
    Ok(requests)
}

fn is_capture_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The parts of a text: literal ones and names in braces.
enum Part<'a> {
    Literal(&'a str),
    Name(&'a str),
}

fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let brace = rest.find(['{', '}']).unwrap_or(rest.len());
        let at = text.len() - rest.len() + brace;
        if brace > 0 {
            parts.push(Part::Literal(&rest[..brace]));
        }
        rest = &rest[brace..];
        if rest.starts_with('}') {
            return Err(format!("capture ending at offset {at} is missing opening brace"));
        }
        let Some(open) = rest.strip_prefix('{') else { break };
        let Some((name, behind)) = open.split_once('}') else {
            return Err(format!("capture starting at offset {at} is missing closing brace"));
        };
        if name.is_empty() {
            return Err("empty capture variable".to_owned());
        }
        if !is_capture_name(name) {
            return Err(format!(
                "capture variable \"{name}\" must be a valid capture name matching [A-Za-z_][A-Za-z0-9_]*"
            ));
        }
        parts.push(Part::Name(name));
        rest = behind;
    }
    Ok(parts)
}

/// The names in a pattern, each of which is there once and can be a label.
fn captures(text: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for part in parts(text)? {
        let Part::Name(name) = part else { continue };
        if names.iter().any(|seen| seen == name) {
            return Err(format!("duplicate capture variable \"{name}\""));
        }
        if !is_label_value(name) {
            return Err(format!("capture variable \"{name}\" is not a valid Kubernetes label key"));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn matcher(text: &str) -> Result<Regex, String> {
    let mut pattern = "^".to_owned();
    for part in parts(text)? {
        match part {
            Part::Literal(literal) => pattern.push_str(&regex::escape(literal)),
            Part::Name(name) => {
                pattern.push_str("(?P<");
                pattern.push_str(name);
                pattern.push_str(">[^/]+)");
            }
        }
    }
    pattern.push('$');
    Regex::new(&pattern).map_err(|error| error.to_string())
}

/// At most 63 characters, alphanumeric at both ends.
fn is_label_value(value: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= 63
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Names are lower-cased, paths are as they were found.
fn render(
    output: &OutputArtifact,
    lower: &BTreeMap<String, String>,
    raw: &BTreeMap<String, String>,
) -> Result<OutputArtifact, String> {
    let copy = output.copy.iter().map(|copy| {
        Ok(CopyOperation { from: fill(&copy.from, raw)?, to: fill(&copy.to, raw)?, ..copy.clone() })
    });
    let copy = copy.collect::<Result<_, String>>()?;
    Ok(OutputArtifact { name: fill(&output.name, lower)?, copy, ..output.clone() })
}

fn fill(template: &str, values: &BTreeMap<String, String>) -> Result<String, String> {
    let invalid = |what: String| format!("invalid template \"{template}\": {what}");
    let mut filled = String::new();
    for part in parts(template).map_err(invalid)? {
        match part {
            Part::Literal(literal) => filled.push_str(literal),
            Part::Name(name) => {
                let value = values.get(name).ok_or_else(|| {
                    invalid(format!("capture variable \"{name}\" is not defined by pathPattern"))
                })?;
                filled.push_str(value);
            }
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use weir_base::tree::MemoryTree;

    use super::*;

    fn expand(pattern: &str, name: &str, from: &str, paths: &[&str]) -> Result<Vec<String>, String> {
        let spec: ArtifactGeneratorSpec = serde_json::from_value(json!({
            "sources": [{"alias": "git", "kind": "GitRepository", "name": "fleet"}],
            "pathPattern": pattern,
            "artifacts": [{"name": name, "copy": [{"from": from, "to": "@artifact/"}]}],
        }))
        .unwrap();
        let tree: MemoryTree = paths.iter().map(|path| (format!("{path}/x.yaml"), "x")).collect();
        let sources: Sources = [("git".to_owned(), Arc::new(tree))].into();
        let requests = requests(&spec, &sources).map_err(|error| error.to_string())?;
        Ok(requests
            .iter()
            .map(|request| {
                let labels: Vec<String> =
                    request.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("{} {} {}", request.output.name, request.output.copy[0].from, labels.join(","))
            })
            .collect())
    }

    #[test]
    fn every_match_becomes_an_artifact() {
        let paths = ["apps/Web/envs/prod", "apps/web2/envs/prod", "apps/web/other", "apps.x/a/envs/b"];
        let found =
            expand("@git/apps/{app}/envs/{env}", "{app}-{env}", "@git/apps/{app}/envs/{env}/**", &paths);
        assert_eq!(
            found.unwrap(),
            [
                "web-prod @git/apps/Web/envs/prod/** app=web,env=prod",
                "web2-prod @git/apps/web2/envs/prod/** app=web2,env=prod",
            ]
        );
        assert_eq!(expand("@git/none/{a}", "{a}", "@git/", &paths).unwrap(), Vec::<String>::new());
        assert_eq!(expand("@git/apps/v{a}x", "{a}", "@git/", &["apps/v1x"]).unwrap(), ["1 @git/ a=1"]);
    }

    #[test]
    fn what_cannot_become_an_artifact() {
        #[track_caller]
        fn check(pattern: &str, name: &str, paths: &[&str], expected: &str) {
            let error = expand(pattern, name, "@git/", paths).unwrap_err();
            assert!(error.ends_with(expected), "{error}");
        }
        check("@git/{a}/{a}", "{a}", &[], "duplicate capture variable \"a\"");
        check("@git/{a", "a", &[], "capture starting at offset 0 is missing closing brace");
        check("@git/a}", "a", &[], "capture ending at offset 1 is missing opening brace");
        check("@git/{}", "a", &[], "empty capture variable");
        check("@git/{1a}", "a", &[], "must be a valid capture name matching [A-Za-z_][A-Za-z0-9_]*");
        check("@other/{a}", "a", &[], "source alias other not found in local sources");
        check("@git/{a}", "{b}", &["x"], "capture variable \"b\" is not defined by pathPattern");
        check(
            "@git/{a}",
            "{a}",
            &["x", "X"],
            "directories \"X\" and \"x\" both resolve to artifact name \"x\"",
        );
        check("@git/{a}", "n", &["a b"], "for variable \"a\" is not a valid Kubernetes label value");
        check(
            "@git/{a}",
            "{a}_",
            &["x"],
            "rendered artifact name \"x_\" is not a valid Kubernetes object name",
        );
    }
}
