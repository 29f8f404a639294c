//! Whether a chart is well-formed, as `helm lint` sees it.

use serde_json::Value as Json;
use weir_base::tree::{Files, Kind};
use weir_base::version::{Constraint, Version};
use weir_gotemplate::Host;
use weir_gotemplate::helm::quoted;

use crate::capabilities::{Capabilities, KubeVersion};
use crate::chart::{Chart, File};
use crate::metadata::{Fields, Metadata};
use crate::render::{Limits, ReleaseInfo, RenderInput};
use crate::schema::{self, Documents};
use crate::values::{self, Mode, Table};
use crate::{dependencies, deprecations, render};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Against conventions; it will probably work.
    Warning,
    /// It will probably not work.
    Error,
}

/// Something a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file or directory it is about.
    pub path: String,
    /// What is wrong.
    pub text: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let severity = match self.severity {
            Severity::Info => "INFO",
            Severity::Warning => "WARNING",
            Severity::Error => "ERROR",
        };
        write!(formatter, "[{severity}] {}: {}", self.path, self.text)
    }
}

/// What the checks need besides the chart.
pub struct LintInput<'a> {
    /// The values that were given.
    pub values: &'a Table,
    /// The namespace templates see.
    pub namespace: &'a str,
    /// The version of Kubernetes; the default of the engine without it.
    pub kube_version: Option<&'a KubeVersion>,
    /// Whether values go unchecked.
    pub skip_schema: bool,
    /// The documents that schemas refer to.
    pub documents: &'a Documents,
    /// What findings about the chart as a whole name as their place.
    pub chart_directory: &'a str,
    /// Clock and randomness; its [`Host::lint`] should be true, so that `required` and `fail` do not end the run.
    pub host: Box<dyn Host>,
}

/// Checks the chart in the directory `root` of a tree; findings come in the order of the checks.
pub fn lint(tree: &dyn Files, root: &str, input: LintInput<'_>) -> Vec<Finding> {
    let mut lint = Lint { tree, root, findings: Vec::new() };
    lint.chart_file();
    lint.values_file(&input);
    let directory = input.chart_directory.to_owned();
    lint.templates(input);
    lint.dependencies(&directory);
    lint.crds();
    lint.findings
}

struct Lint<'a> {
    tree: &'a dyn Files,
    root: &'a str,
    findings: Vec<Finding>,
}

impl Lint<'_> {
    fn path(&self, name: &str) -> String {
        if self.root.is_empty() { name.to_owned() } else { format!("{}/{name}", self.root) }
    }

    /// Notes what a check found; whether it found nothing.
    fn note(&mut self, severity: Severity, path: &str, found: Option<String>) -> bool {
        let fine = found.is_none();
        self.findings.extend(found.map(|text| Finding { severity, path: path.to_owned(), text }));
        fine
    }

    fn error(&mut self, path: &str, found: Option<String>) -> bool {
        self.note(Severity::Error, path, found)
    }

    fn chart_file(&mut self) {
        const FILE: &str = "Chart.yaml";
        let path = self.path(FILE);
        let directory = self.tree.kind(&path) == Some(Kind::Directory);
        self.error(FILE, directory.then(|| "should be a file, not a directory".to_owned()));
        let data = self.tree.read(&path).unwrap_or_default();
        let metadata = match Metadata::parse(&data) {
            Ok(metadata) if !directory => metadata,
            Ok(_) => return,
            Err(error) => {
                self.error(FILE, Some(format!("unable to parse YAML\n\t{error}")));
                return;
            }
        };
        let strict = weir_manifest::ReadOptions { strict: true };
        let found = match weir_manifest::read_first_document(&data, "", strict) {
            Err(error) => Some(format!("error converting YAML to JSON: {}", error.reference_text())),
            Ok(document) => unknown_field(&document).map(|field| {
                format!(
                    "error unmarshaling JSON: while decoding JSON: json: unknown field {}",
                    quoted(&field)
                )
            }),
        };
        let found = found.map(|error| format!("failed to strictly parse chart metadata file\n\t{error}"));
        self.note(Severity::Warning, FILE, found);
        let document = weir_manifest::read_first_document(&data, "", weir_manifest::ReadOptions::default())
            .unwrap_or(Json::Null);
        self.error(FILE, name_problem(&metadata.name));
        self.error(FILE, api_version_problem(&metadata.api_version));
        self.error(FILE, type_problem(&document, "version"));
        self.error(FILE, version_problem(&metadata.version));
        self.error(FILE, type_problem(&document, "appVersion"));
        self.error(FILE, maintainer_problem(&metadata));
        let bad_source = metadata.sources.iter().find(|source| !is_request_url(source));
        self.error(FILE, bad_source.map(|source| format!("invalid source URL '{source}'")));
        let icon = &metadata.icon;
        self.note(Severity::Info, FILE, icon.is_empty().then(|| "icon is recommended".to_owned()));
        let bad_icon = !icon.is_empty() && !is_request_url(icon);
        self.error(FILE, bad_icon.then(|| format!("invalid icon URL '{icon}'")));
        let api_version = &metadata.api_version;
        let old = api_version != "v2";
        let bad_kind = old && !metadata.kind.is_empty();
        self.error(
            FILE,
            bad_kind.then(|| {
                format!(
                    "chart type is not valid in apiVersion '{api_version}'. It is valid in apiVersion 'v2'"
                )
            }),
        );
        let misplaced = old && metadata.dependencies.as_ref().is_some_and(|list| !list.is_empty());
        self.error(FILE, misplaced.then(|| format!("dependencies are not valid in the Chart file with apiVersion '{api_version}'. They are valid in apiVersion 'v2'")));
        let version = &metadata.version;
        let found =
            (!is_strict_version(version)).then(|| format!("version '{version}' is not a valid SemVerV2"));
        self.note(Severity::Warning, FILE, found);
    }

    fn values_file(&mut self, input: &LintInput<'_>) {
        const FILE: &str = "values.yaml";
        let path = self.path(FILE);
        let missing = self.tree.kind(&path).is_none();
        if !self.note(Severity::Info, FILE, missing.then(|| "file does not exist".to_owned())) {
            return;
        }
        let defaults = match values::read(&self.tree.read(&path).unwrap_or_default()) {
            Ok(defaults) => defaults,
            Err(error) => {
                self.error(FILE, Some(format!("unable to parse YAML: {error}")));
                return;
            }
        };
        let schema = self.tree.read(&self.path("values.schema.json")).unwrap_or_default();
        if schema.is_empty() || input.skip_schema {
            return;
        }
        let mut all = input.values.clone();
        values::coalesce_tables(&mut all, defaults, Mode::Coalesce);
        let found = schema::validate_single(&schema, &all, input.documents).err();
        self.error(FILE, found);
    }

    fn templates(&mut self, input: LintInput<'_>) {
        const DIRECTORY: &str = "templates/";
        let kind = self.tree.kind(&self.path("templates"));
        let missing = kind.is_none();
        if !self.note(Severity::Warning, DIRECTORY, missing.then(|| "directory does not exist".to_owned())) {
            return;
        }
        let file = kind == Some(Kind::File);
        if !self.error(DIRECTORY, file.then(|| "not a directory".to_owned())) {
            return;
        }
        let mut chart = match Chart::from_tree(self.tree, self.root) {
            Ok(chart) => chart,
            Err(error) => {
                self.error(DIRECTORY, Some(error.to_string()));
                return;
            }
        };
        if dependencies::process(&mut chart, input.values).is_err() {
            return;
        }
        let Ok(coalesced) = values::coalesce(&chart, input.values, Mode::Coalesce) else { return };
        let Ok(coalesced) = values::coalesce(&chart, &coalesced, Mode::Coalesce) else { return };
        if !input.skip_schema
            && let Err(error) = schema::validate(&chart, &coalesced, input.documents)
        {
            self.error(DIRECTORY, Some(error.to_string()));
            return;
        }
        let mut capabilities = Capabilities::default();
        if let Some(version) = input.kube_version {
            capabilities.kube_version = version.clone();
        }
        let release = ReleaseInfo {
            name: "test-release".to_owned(),
            namespace: input.namespace.to_owned(),
            revision: 0,
            is_upgrade: false,
        };
        let render_input = RenderInput {
            release: &release,
            capabilities: &capabilities,
            host: input.host,
            limits: Limits::default(),
        };
        // Linting does not ask whether the chart is for this version of Kubernetes.
        chart.metadata.kube_version = String::new();
        let rendered = match render::render(&chart, &coalesced, render_input) {
            Ok(rendered) => rendered,
            Err(error) => {
                self.error(DIRECTORY, Some(error.to_string()));
                return;
            }
        };
        let number = |text: &str| text.parse().unwrap_or(0);
        let kube = (number(&capabilities.kube_version.major), number(&capabilities.kube_version.minor));
        for template in &chart.templates {
            let text = rendered.get(&format!("{}/{}", chart.name(), template.name));
            if !self.template(template, text.map_or("", String::as_str), kube) {
                return;
            }
        }
    }

    /// Checks a rendered template of the chart itself; whether to go on.
    fn template(&mut self, template: &File, text: &str, kube: (u32, u32)) -> bool {
        let name = &template.name;
        let base = name.rsplit('/').next().unwrap_or(name);
        let extension = base.rfind('.').map_or("", |dot| &base[dot..]);
        let known = matches!(extension, ".yaml" | ".yml" | ".tpl" | ".txt");
        self.error(
            name,
            (!known).then(|| {
                format!(
                    "file extension '{extension}' not valid. Valid extensions are .yaml, .yml, .tpl, or .txt"
                )
            }),
        );
        if !matches!(extension.to_ascii_lowercase().as_str(), ".yaml" | ".yml") || text.trim().is_empty() {
            return true;
        }
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let indented = first.starts_with([' ', '\t']);
        self.note(
            Severity::Warning,
            name,
            indented.then(|| {
                format!(
                    "document starts with an illegal indent: {}, which may cause parsing problems",
                    quoted(first)
                )
            }),
        );
        let documents = match values::documents(text) {
            Ok(documents) => documents,
            Err(error) => return self.error(name, Some(format!("unable to parse YAML: {error}"))),
        };
        for document in documents {
            let read = weir_manifest::read_first_document(
                document.as_bytes(),
                "",
                weir_manifest::ReadOptions::default(),
            );
            let object = match read
                .map_err(|error| format!("error converting YAML to JSON: {}", error.reference_text()))
                .and_then(|value| Head::of(&value))
            {
                Ok(Some(head)) => head,
                Ok(None) => continue,
                Err(error) => return self.error(name, Some(format!("unable to parse YAML: {error}"))),
            };
            self.note(Severity::Warning, name, name_of_object_problem(&object));
            self.note(
                Severity::Warning,
                name,
                deprecations::warning(&object.api_version, &object.kind, kube),
            );
            let selects = text.contains("matchLabels") || text.contains("matchExpressions");
            let needs_selector =
                matches!(&*object.kind, "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet");
            self.error(
                name,
                (needs_selector && !selects).then(|| {
                    format!(
                        "a {} must contain matchLabels or matchExpressions, and {} does not",
                        object.kind,
                        quoted(&object.name)
                    )
                }),
            );
            if object.kind == "List" {
                let first = weir_manifest::read_first_document(
                    text.as_bytes(),
                    "",
                    weir_manifest::ReadOptions::default(),
                )
                .unwrap_or(Json::Null);
                let items = first["items"].as_array().cloned().unwrap_or_default();
                let kept = items
                    .iter()
                    .any(|item| item.pointer("/metadata/annotations/helm.sh~1resource-policy").is_some());
                self.error(
                    name,
                    kept.then(|| {
                        "annotation 'helm.sh/resource-policy' within List objects are ignored".to_owned()
                    }),
                );
            }
        }
        true
    }

    fn dependencies(&mut self, directory: &str) {
        let chart = match Chart::from_tree(self.tree, self.root) {
            Ok(chart) => chart,
            Err(error) => {
                self.error("", Some(format!("unable to load chart\n\t{error}")));
                return;
            }
        };
        let wanted = chart.metadata.dependencies.as_deref().unwrap_or_default();
        let there: Vec<&str> = chart.dependencies.iter().map(Chart::name).collect();
        let unlisted: Vec<&str> =
            there.iter().filter(|name| !wanted.iter().any(|one| one.name == **name)).copied().collect();
        let found = (!unlisted.is_empty())
            .then(|| format!("chart metadata is missing these dependencies: {}", unlisted.join(",")));
        self.error(directory, found);
        let missing: Vec<&str> =
            wanted.iter().map(|one| one.name.as_str()).filter(|name| !there.contains(name)).collect();
        let found = (!missing.is_empty())
            .then(|| format!("chart directory is missing these dependencies: {}", missing.join(",")));
        self.note(Severity::Warning, directory, found);
    }

    fn crds(&mut self) {
        const DIRECTORY: &str = "crds/";
        let kind = self.tree.kind(&self.path("crds"));
        if kind.is_none()
            || !self.error(DIRECTORY, (kind == Some(Kind::File)).then(|| "not a directory".to_owned()))
        {
            return;
        }
        let chart = match Chart::from_tree(self.tree, self.root) {
            Ok(chart) => chart,
            Err(error) => {
                self.error(DIRECTORY, Some(error.to_string()));
                return;
            }
        };
        for (_, file) in chart.crds_with_paths() {
            let text = String::from_utf8_lossy(&file.data);
            let documents = match values::documents(&text) {
                Ok(documents) => documents,
                Err(error) => {
                    self.error(&file.name, Some(format!("unable to parse YAML: {error}")));
                    return;
                }
            };
            for document in documents {
                let read = weir_manifest::read_first_document(
                    document.as_bytes(),
                    "",
                    weir_manifest::ReadOptions::default(),
                )
                .map_err(|error| format!("error converting YAML to JSON: {}", error.reference_text()))
                .and_then(|value| Head::of(&value));
                let head = match read {
                    Ok(Some(head)) => head,
                    Ok(None) => continue,
                    Err(error) => {
                        self.error(&file.name, Some(format!("unable to parse YAML: {error}")));
                        return;
                    }
                };
                let foreign = !head.api_version.starts_with("apiextensions.k8s.io");
                self.error(
                    &file.name,
                    foreign.then(|| "apiVersion is not in 'apiextensions.k8s.io'".to_owned()),
                );
                let other = head.kind != "CustomResourceDefinition";
                self.error(
                    &file.name,
                    other.then(|| "object kind is not 'CustomResourceDefinition'".to_owned()),
                );
            }
        }
    }
}

/// What checks look at in an object.
struct Head {
    api_version: String,
    kind: String,
    name: String,
}

impl Head {
    /// Nothing for an empty document.
    fn of(document: &Json) -> Result<Option<Self>, String> {
        let wrong = |error: crate::metadata::MetadataError| {
            format!("error unmarshaling JSON: while decoding JSON: {error}")
                .replace("Metadata.", "k8sYamlStruct.")
        };
        let kind_name = crate::metadata::kind_name;
        let object = match document {
            Json::Null => return Ok(None),
            Json::Object(object) => object,
            other => {
                return Err(format!(
                    "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type rules.k8sYamlStruct",
                    kind_name(other)
                ));
            }
        };
        let fields = Fields(object);
        let name = match fields.get("metadata") {
            None | Some(Json::Null) => String::new(),
            Some(Json::Object(metadata)) => {
                let fields = Fields(metadata);
                fields.text("namespace").map_err(wrong)?;
                fields.text("name").map_err(wrong)?
            }
            Some(other) => {
                return Err(format!(
                    "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go struct field k8sYamlStruct.Metadata of type rules.k8sYamlMetadata",
                    kind_name(other)
                ));
            }
        };
        let api_version = fields.text("apiVersion").map_err(wrong)?;
        Ok(Some(Self { api_version, kind: fields.text("kind").map_err(wrong)?, name }))
    }
}

const METADATA_FIELDS: &[&str] = &[
    "name",
    "home",
    "sources",
    "version",
    "description",
    "keywords",
    "maintainers",
    "icon",
    "apiVersion",
    "condition",
    "tags",
    "appVersion",
    "deprecated",
    "annotations",
    "kubeVersion",
    "dependencies",
    "type",
];
const MAINTAINER_FIELDS: &[&str] = &["name", "email", "url"];
const DEPENDENCY_FIELDS: &[&str] =
    &["name", "version", "repository", "condition", "tags", "enabled", "import-values", "alias"];

/// The first field of `Chart.yaml` that means nothing.
fn unknown_field(document: &Json) -> Option<String> {
    fn unknown(key: &str, known: &[&str]) -> bool {
        !known.iter().any(|name| name.eq_ignore_ascii_case(key))
    }
    fn within(value: &Json, known: &[&str]) -> Option<String> {
        let items = value.as_array()?;
        items
            .iter()
            .filter_map(Json::as_object)
            .flat_map(|item| item.keys())
            .find(|key| unknown(key, known))
            .cloned()
    }
    document.as_object()?.iter().find_map(|(key, value)| {
        if unknown(key, METADATA_FIELDS) {
            return Some(key.clone());
        }
        match key.to_ascii_lowercase().as_str() {
            "maintainers" => within(value, MAINTAINER_FIELDS),
            "dependencies" => within(value, DEPENDENCY_FIELDS),
            _ => None,
        }
    })
}

fn name_problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("name is required".to_owned());
    }
    name.contains('/').then(|| format!("chart name {} is invalid", quoted(name)))
}

fn api_version_problem(api_version: &str) -> Option<String> {
    match api_version {
        "v1" | "v2" => None,
        "" => Some(r#"apiVersion is required. The value must be either "v1" or "v2""#.to_owned()),
        other => Some(format!(r#"apiVersion '{other}' is not valid. The value must be either "v1" or "v2""#)),
    }
}

fn type_problem(document: &Json, key: &str) -> Option<String> {
    let found = match document.get(key)? {
        Json::String(_) => return None,
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(_) => "float64",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    Some(format!("{key} should be of type string but it's of type {found}"))
}

fn version_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("version is required".to_owned());
    }
    let Ok(version) = Version::parse(text) else {
        return Some(format!("version '{text}' is not a valid SemVer"));
    };
    let lowest = Constraint::parse(">0.0.0-0").ok()?;
    (!lowest.matches(&version)).then(|| format!("version {version} is less than or equal to 0.0.0-0"))
}

/// Three numbers without leading zeros, perhaps a pre-release and metadata.
fn is_strict_version(text: &str) -> bool {
    let numbers = text.split(['-', '+']).next().unwrap_or(text);
    let parts: Vec<&str> = numbers.split('.').collect();
    let number = |part: &&str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part.len() == 1 || !part.starts_with('0'))
    };
    parts.len() == 3 && parts.iter().all(number) && Version::parse(text).is_ok()
}

fn maintainer_problem(metadata: &Metadata) -> Option<String> {
    metadata.maintainers.iter().find_map(|person| {
        let (name, email, url) = (&person.name, &person.email, &person.url);
        if name.is_empty() {
            Some("each maintainer requires a name".to_owned())
        } else if !email.is_empty() && !is_email(email) {
            Some(format!("invalid email '{email}' for maintainer '{name}'"))
        } else if !url.is_empty() && !is_url(url) {
            Some(format!("invalid url '{url}' for maintainer '{name}'"))
        } else {
            None
        }
    })
}

/// A letter as mail addresses have them: those of other scripts count as well.
fn is_mail_letter(letter: char) -> bool {
    letter.is_ascii_alphabetic()
        || matches!(letter, '\u{a0}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{ffef}')
}

/// A local part, which may be quoted, and a domain of at least two labels. The domain is judged as loosely as by Helm,
/// which takes several dots in a row and a dot at the end.
fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let plain = |c: char| is_mail_letter(c) || c.is_ascii_digit() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let atoms = local.split('.').all(|atom| !atom.is_empty() && atom.chars().all(plain));
    let local_ok = atoms || is_quoted_local(local);
    local_ok && (is_mail_domain(domain) || domain.strip_suffix('.').is_some_and(is_mail_domain))
}

/// A quoted local part as Helm's expression has it: each character follows a quote of its own.
fn is_quoted_local(local: &str) -> bool {
    const BLANKS: [char; 2] = [' ', '\t'];
    let Some(mut rest) = local.strip_suffix('"') else { return false };
    while let Some(after) = rest.strip_prefix('"') {
        let mut characters = after.trim_start_matches(BLANKS).chars();
        match characters.next() {
            None | Some('"' | '\\' | '\0' | '\n' | '\r') => return false,
            Some(c) if !(c.is_ascii() || is_mail_letter(c)) => return false,
            Some(_) => rest = characters.as_str(),
        }
    }
    rest.trim_start_matches(BLANKS).is_empty()
}

fn is_mail_domain(domain: &str) -> bool {
    let Some((before, top)) = domain.rsplit_once('.') else { return false };
    let edge = |c: Option<char>| c.is_some_and(|c| is_mail_letter(c) || c.is_ascii_digit());
    let inner = |c: char| edge(Some(c)) || "-_~".contains(c);
    edge(before.chars().next())
        && edge(before.chars().next_back())
        && before.chars().all(|c| inner(c) || c == '.')
        && top.chars().next().is_some_and(is_mail_letter)
        && top.chars().next_back().is_some_and(is_mail_letter)
        && top.chars().all(inner)
}

/// An address of the web, perhaps without its scheme.
fn is_url(text: &str) -> bool {
    if text.len() < 3 || text.len() > 2082 || text.starts_with('.') || text.contains(char::is_whitespace) {
        return false;
    }
    let rest = match text.split_once("://") {
        Some((scheme, rest))
            if matches!(
                scheme.to_ascii_lowercase().as_str(),
                "ftp" | "tcp" | "udp" | "ws" | "wss" | "http" | "https"
            ) =>
        {
            rest
        }
        Some(_) => return false,
        None => text,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host
        .rsplit_once(':')
        .map_or(host, |(host, port)| if port.bytes().all(|byte| byte.is_ascii_digit()) { host } else { "" });
    host == "localhost"
        || (host.contains('.') && !host.starts_with('.') && host.split('.').all(|label| !label.is_empty()))
}

/// An absolute address.
fn is_request_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut letters = scheme.chars();
    let scheme_ok = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let authority = rest.strip_prefix("//").and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or("");
    scheme_ok
        && rest.starts_with('/')
        && !text.chars().any(char::is_control)
        && !authority.contains(|c: char| c.is_whitespace() || "<>\"^`{}|\\".contains(c))
}

const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const OLD_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| plain(*byte))
        && bytes.last().is_some_and(|byte| plain(*byte))
        && bytes.iter().all(|byte| plain(*byte) || *byte == b'-')
}

fn name_of_object_problem(object: &Head) -> Option<String> {
    let name = object.name.as_str();
    let mut problems: Vec<String> = Vec::new();
    let mut check = |bytes_max: usize, valid: bool, rule: &str| {
        if name.len() > bytes_max {
            problems.push(format!("must be no more than {bytes_max} characters"));
        }
        if !valid {
            problems.push(rule.to_owned());
        }
    };
    match object.kind.to_lowercase().as_str() {
        "service" => {
            check(63, is_label(name) && !name.starts_with(|c: char| c.is_ascii_digit()), OLD_LABEL);
        }
        "namespace" => check(63, is_label(name), LABEL),
        "certificatesigningrequest" => {}
        "role" | "clusterrole" | "rolebinding" | "clusterrolebinding" => match name {
            "." | ".." => problems.push(format!("may not be '{name}'")),
            _ => problems.extend(
                ['/', '%']
                    .iter()
                    .filter(|one| name.contains(**one))
                    .map(|one| format!("may not contain '{one}'")),
            ),
        },
        _ => check(253, !name.is_empty() && name.split('.').all(is_label), SUBDOMAIN),
    }
    let name = quoted(name);
    let mut lines: Vec<String> = problems
        .into_iter()
        .map(|problem| format!("metadata.name: Invalid value: {name}: {problem}"))
        .collect();
    let text = match lines.len() {
        0 => return None,
        1 => lines.remove(0),
        _ => format!("[{}]", lines.join(", ")),
    };
    Some(format!("object name does not conform to Kubernetes naming requirements: {name}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("a@example.com", true),
            ("a.b+c@sub.example.com", true),
            ("a@example", false),
            ("a", false),
            ("@example.com", false),
            ("a..b@example.com", false),
            ("a.@example.com", false),
            ("\"a b\"@example.com", false),
            ("\"a@b\"@example.com", false),
            ("\"a\"@example.com", true),
            ("a@-example.com", false),
            ("a@example.c0m", true),
            ("a@example.com0", false),
            ("a@example.com.", true),
            ("a@ex..ample.com", true),
            ("a@ex_ample.com", true),
            ("a@_example.com", false),
            ("ä@exämple.de", true),
            ("a@example.de-", false),
            ("a@1.de", true),
            ("a b@example.com", false),
            ("a@exa~mple.com", true),
        ] {
            assert_eq!(is_email(text), expected, "{text}");
        }
        for (text, expected) in [
            ("https://example.com/x y", true),
            ("https://exa mple.com", false),
            ("example.com/x", false),
            ("mailto:a@example.com", false),
            ("data:image/png;base64,xx", false),
        ] {
            assert_eq!(is_request_url(text), expected, "{text}");
        }
        for (text, expected) in
            [("https://example.com", true), ("example.com/x", true), ("example", false), ("https://", false)]
        {
            assert_eq!(is_url(text), expected, "{text}");
        }
    }

    #[test]
    fn versions() {
        for (text, expected) in
            [("1.2.3", true), ("1.2.3-rc.1+b", true), ("v1.2.3", false), ("1.2", false), ("01.2.3", false)]
        {
            assert_eq!(is_strict_version(text), expected, "{text}");
        }
    }
}
