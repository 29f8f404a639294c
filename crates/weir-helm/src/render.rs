//! Rendering a chart: the context templates see, the order they run in, and the files that result.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value as Json;
use weir_gotemplate::{
    Entries, Execution, Fault, Functions, Host, Map, Method, MissingKey, NamedType, Options, Param, Set,
    Text, Value, helm,
};

use crate::capabilities::Capabilities;
use crate::chart::Chart;
use crate::files;
use crate::metadata::in_range;
use crate::values::Table;

pub use weir_gotemplate::Limits;

/// `.Release`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseInfo {
    /// The name of the release.
    pub name: String,
    /// The namespace it is installed into.
    pub namespace: String,
    /// Its revision; 0 where there is none, which is neither an installation nor an upgrade.
    pub revision: i64,
    /// Whether it is an upgrade, not an installation.
    pub is_upgrade: bool,
}

/// Why a chart does not render.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The chart is not for this version of Kubernetes.
    #[error("chart requires kubeVersion: {required} which is incompatible with Kubernetes {version}")]
    KubeVersion {
        /// What the chart wants.
        required: String,
        /// What there is.
        version: String,
    },
    /// A template does not parse or run; the text is Helm's.
    #[error("{0}")]
    Template(String),
}

/// The value templates get for plain data: floats stay floats, integers (of `--set`) are `int64`.
pub fn engine_value(value: &Json) -> Value {
    match value {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(integer) if !number.is_f64() => Value::Int64(integer),
            _ => Value::Float(number.as_f64().unwrap_or(0.0)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::list(items.iter().map(engine_value).collect()),
        Json::Object(entries) => {
            Value::map(entries.iter().map(|(key, item)| (key.as_str(), engine_value(item))))
        }
    }
}

fn string_argument(arguments: &[Value]) -> String {
    match arguments.first() {
        Some(Value::String(text)) => text.to_string(),
        _ => String::new(),
    }
}

fn table_at(map: &Map, path: &str) -> Result<Map, Fault> {
    let mut table = map.clone();
    for key in path.split('.') {
        match table.get(key.as_bytes()) {
            Some(Value::Map(inner)) => table = inner,
            _ => return Err(format!("\"{key}\" is not a table").into()),
        }
    }
    Ok(table.named(&VALUES))
}

static VALUES: NamedType = NamedType {
    name: "common.Values",
    methods: &[
        Method {
            name: "AsMap",
            params: &[],
            run: |values, _| match values {
                Value::Map(map) if !map.is_empty() => Ok(Value::Map(map.clone().plain())),
                _ => Ok(Value::Map(Map::new(Entries::new()))),
            },
        },
        Method {
            name: "YAML",
            params: &[],
            run: |values, _| {
                let plain = helm::to_plain(values)?;
                Ok(Value::string(weir_manifest::to_yaml(&plain)))
            },
        },
        Method {
            name: "Table",
            params: &[Param::String],
            run: |values, arguments| {
                let Value::Map(map) = values else { return Ok(Value::Nil) };
                table_at(map, &string_argument(arguments)).map(Value::Map)
            },
        },
        Method {
            name: "PathValue",
            params: &[Param::String],
            run: |values, arguments| {
                let Value::Map(map) = values else { return Ok(Value::Nil) };
                let path = string_argument(arguments);
                if path.is_empty() {
                    return Err("YAML path cannot be empty".into());
                }
                let (parent, key) = path.rsplit_once('.').unwrap_or(("", &path));
                let table = if parent.is_empty() { Ok(map.clone()) } else { table_at(map, parent) };
                match table.ok().and_then(|table| table.get(key.as_bytes())) {
                    Some(value) if !matches!(value, Value::Map(_)) => Ok(value),
                    _ => Err(format!("\"{key}\" is not a value").into()),
                }
            },
        },
        Method { name: "Encode", params: &[Param::Object("io.Writer")], run: |_, _| Ok(Value::Nil) },
    ],
};

fn texts(items: &[String]) -> Value {
    Value::list(items.iter().map(|item| Value::from(item.as_str())).collect())
}

/// `.Chart`
fn chart_value(chart: &Chart, root: bool) -> Value {
    let metadata = &chart.metadata;
    let text = |text: &String| Value::from(text.as_str());
    let maintainers = metadata.maintainers.iter().map(|maintainer| {
        Value::map([
            ("Name", text(&maintainer.name)),
            ("Email", text(&maintainer.email)),
            ("URL", text(&maintainer.url)),
        ])
    });
    let dependencies = metadata.dependencies.iter().flatten().map(|dependency| {
        Value::map([
            ("Name", text(&dependency.name)),
            ("Version", text(&dependency.version)),
            ("Repository", text(&dependency.repository)),
            ("Condition", text(&dependency.condition)),
            ("Tags", texts(&dependency.tags)),
            ("Enabled", Value::Bool(dependency.enabled)),
            ("ImportValues", Value::list(dependency.import_values.iter().map(engine_value).collect())),
            ("Alias", text(&dependency.alias)),
        ])
    });
    let annotations: Entries = metadata
        .annotations
        .iter()
        .flatten()
        .map(|(key, value)| (Text::from(key.as_str()), text(value)))
        .collect();
    let annotations = Map::typed(annotations, weir_gotemplate::Element::String);
    Value::map([
        ("Name", text(&metadata.name)),
        ("Home", text(&metadata.home)),
        ("Sources", texts(&metadata.sources)),
        ("Version", text(&metadata.version)),
        ("Description", text(&metadata.description)),
        ("Keywords", texts(&metadata.keywords)),
        ("Maintainers", Value::list(maintainers.collect())),
        ("Icon", text(&metadata.icon)),
        ("APIVersion", text(&metadata.api_version)),
        ("Condition", text(&metadata.condition)),
        ("Tags", text(&metadata.tags)),
        ("AppVersion", text(&metadata.app_version)),
        ("Deprecated", Value::Bool(metadata.deprecated)),
        ("Annotations", Value::Map(annotations)),
        ("KubeVersion", text(&metadata.kube_version)),
        ("Dependencies", Value::list(dependencies.collect())),
        ("Type", text(&metadata.kind)),
        ("IsRoot", Value::Bool(root)),
    ])
}

/// A template file with the context of its chart.
struct Template {
    source: Bytes,
    context: Map,
    base_path: String,
}

/// Collects the templates of a chart and its subcharts; gives the context of the chart.
fn collect(
    chart: &Chart,
    path: &str,
    values: &Map,
    shared: &[(&'static str, Value)],
    templates: &mut BTreeMap<String, Template>,
) -> Value {
    let root = !path.contains('/');
    let subcharts = Map::new(Entries::new());
    let context: Map = [
        ("Chart", chart_value(chart, root)),
        ("Files", files::to_value(&chart.files)),
        ("Values", Value::Map(values.clone())),
        ("Subcharts", Value::Map(subcharts.clone())),
    ]
    .into_iter()
    .chain(shared.iter().cloned())
    .collect();
    for subchart in &chart.dependencies {
        let name = subchart.name();
        let own = table_at(values, name).unwrap_or_else(|_| Map::new(Entries::new()).named(&VALUES));
        let path = format!("{path}/charts/{name}");
        let inner = collect(subchart, &path, &own, shared, templates);
        subcharts.insert(name, inner);
    }
    for file in &chart.templates {
        let base = file.name.rsplit('/').next().unwrap_or(&file.name);
        if chart.metadata.is_library() && !base.starts_with('_') {
            continue;
        }
        templates.insert(
            format!("{path}/{}", file.name),
            Template {
                source: file.data.clone(),
                context: context.clone(),
                base_path: format!("{path}/templates"),
            },
        );
    }
    Value::Map(context)
}

/// Everything rendering needs besides the chart and its values.
pub struct RenderInput<'a> {
    /// `.Release`
    pub release: &'a ReleaseInfo,
    /// `.Capabilities`
    pub capabilities: &'a Capabilities,
    /// Clock, randomness, lookups.
    pub host: Box<dyn Host>,
    /// Bounds of the execution.
    pub limits: Limits,
}

/// The rendered files by path, `NOTES.txt` included, partials not.
///
/// `chart` must have been [processed](crate::dependencies::process) and `values`
/// [coalesced](crate::values::coalesce). All templates share one name space: deeper ones are parsed
/// and run first, and at one depth in reverse order of their names.
pub fn render(
    chart: &Chart,
    values: &Table,
    input: RenderInput<'_>,
) -> Result<BTreeMap<String, String>, RenderError> {
    let required = &chart.metadata.kube_version;
    let kube = &input.capabilities.kube_version;
    if !required.is_empty() && !in_range(required, &kube.normalized) {
        return Err(RenderError::KubeVersion { required: required.clone(), version: kube.version.clone() });
    }
    let release = input.release;
    let release = Value::map([
        ("Name", Value::from(release.name.as_str())),
        ("Namespace", Value::from(release.namespace.as_str())),
        ("IsUpgrade", Value::Bool(release.is_upgrade)),
        ("IsInstall", Value::Bool(!release.is_upgrade && release.revision != 0)),
        ("Revision", Value::Int(release.revision)),
        ("Service", Value::from("Helm")),
    ]);
    let shared = [("Release", release), ("Capabilities", input.capabilities.to_value())];
    let values: Map = values.iter().map(|(key, value)| (key.as_str(), engine_value(value))).collect();
    let mut templates = BTreeMap::new();
    collect(chart, chart.name(), &values.named(&VALUES), &shared, &mut templates);

    let mut order: Vec<&String> = templates.keys().collect();
    let depth = |path: &str| path.bytes().filter(|byte| *byte == b'/').count();
    order.sort_by_cached_key(|path| std::cmp::Reverse((depth(path), *path)));
    let mut set = Set::new(Functions::helm());
    for path in &order {
        let Some(template) = templates.get(*path) else { continue };
        let source = match std::str::from_utf8(&template.source) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(&template.source),
        };
        set.parse(path, &source).map_err(|error| RenderError::Template(helm::parse_error(path, &error)))?;
    }
    let options = Options { missing_key: MissingKey::Zero, limits: input.limits };
    let mut execution = Execution::new(set, input.host, options);
    let mut rendered = BTreeMap::new();
    for path in &order {
        let Some(template) = templates.get(*path) else { continue };
        if path.rsplit('/').next().is_some_and(|base| base.starts_with('_')) {
            continue;
        }
        let own: Map =
            [("Name", Value::from(path.as_str())), ("BasePath", Value::from(template.base_path.as_str()))]
                .into_iter()
                .collect();
        template.context.insert("Template", Value::Map(own.named(&VALUES)));
        let output = execution
            .execute(path, &Value::Map(template.context.clone().named(&VALUES).plain()))
            .map_err(|error| RenderError::Template(helm::render_error(path, &error)))?;
        let output = helm::without_no_value(output);
        let text = String::from_utf8(output)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        rendered.insert((*path).clone(), text);
    }
    Ok(rendered)
}

/// The notes for the user: the `NOTES.txt` of the chart itself. Those of subcharts are dropped; all
/// are taken out of `rendered`.
pub fn take_notes(chart: &Chart, rendered: &mut BTreeMap<String, String>) -> String {
    let own = format!("{}/templates/NOTES.txt", chart.name());
    let notes = rendered.get(&own).cloned().unwrap_or_default();
    rendered.retain(|path, _| !path.ends_with("NOTES.txt"));
    notes
}
