//! `Chart.yaml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use weir_base::version::{Constraint, Version};

/// What `Chart.yaml` says. The JSON form is that of release records.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name; the alias once a dependency has been given one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The project's home page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub home: String,
    /// Where the sources are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// The version of the chart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// One sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Search words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// Who maintains it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub maintainers: Vec<Maintainer>,
    /// The URL of an icon.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub icon: String,
    /// `v1` or `v2`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// A condition of a chart as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// Tags of a chart as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tags: String,
    /// The version of what the chart installs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub app_version: String,
    /// Whether the chart is deprecated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// Anything else.
    #[serde(skip_serializing_if = "no_annotations")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// The Kubernetes versions the chart works with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kube_version: String,
    /// The charts this one needs; absent where `Chart.yaml` does not have the list.
    #[serde(skip_serializing_if = "no_dependencies")]
    pub dependencies: Option<Vec<Dependency>>,
    /// `application`, `library` or nothing.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
}

#[expect(clippy::ref_option, reason = "serde passes references")]
fn no_annotations(annotations: &Option<BTreeMap<String, String>>) -> bool {
    annotations.as_ref().is_none_or(BTreeMap::is_empty)
}

#[expect(clippy::ref_option, reason = "serde passes references")]
fn no_dependencies(dependencies: &Option<Vec<Dependency>>) -> bool {
    dependencies.as_ref().is_none_or(Vec::is_empty)
}

/// A person or team.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Maintainer {
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// A page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// An entry of the dependency list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Dependency {
    /// The name of the chart, later its alias.
    pub name: String,
    /// The range of versions.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Where it comes from.
    pub repository: String,
    /// Paths in the values that switch it on or off.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// Names under `tags` in the values that switch it on or off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Whether it takes part; decided from values.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
    /// Values to take from it.
    #[serde(rename = "import-values", skip_serializing_if = "Vec::is_empty")]
    pub import_values: Vec<Json>,
    /// The name it goes by here.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alias: String,
}

/// What is wrong with `Chart.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The file is not YAML.
    #[error("{0}")]
    Yaml(String),
    /// A field has the wrong kind.
    #[error("json: cannot unmarshal {found} into Go struct field Metadata.{field} of type {wanted}")]
    Kind {
        /// What was found.
        found: &'static str,
        /// The field.
        field: String,
        /// What was wanted.
        wanted: &'static str,
    },
    /// A rule of charts is broken.
    #[error("validation: {0}")]
    Invalid(String),
}

/// A scalar as the text a Go string field gets.
pub(crate) fn scalar_text(value: &Json) -> Option<String> {
    match value {
        Json::Null => Some(String::new()),
        Json::String(text) => Some(text.clone()),
        Json::Bool(flag) => Some(flag.to_string()),
        Json::Number(number) if number.is_f64() => {
            // Floats pass through 32 bits: `1.10` becomes `1.1`, long ones lose digits.
            let narrow = number.as_f64().unwrap_or(0.0) as f32;
            let shortest: f64 = narrow.to_string().parse().unwrap_or(0.0);
            Some(weir_gotemplate::strconv::format_float(shortest, b'g', None))
        }
        Json::Number(number) => Some(number.to_string()),
        Json::Array(_) | Json::Object(_) => None,
    }
}

pub(crate) fn kind_name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// The fields of an object, found by name with the case ignored where there is no exact match.
pub(crate) struct Fields<'a>(pub(crate) &'a serde_json::Map<String, Json>);

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a Json> {
        self.0
            .get(name)
            .or_else(|| self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
    }

    pub(crate) fn text(&self, name: &str) -> Result<String, MetadataError> {
        let Some(value) = self.get(name) else { return Ok(String::new()) };
        scalar_text(value).ok_or_else(|| MetadataError::Kind {
            found: kind_name(value),
            field: name.to_owned(),
            wanted: "string",
        })
    }

    fn flag(&self, name: &str) -> Result<bool, MetadataError> {
        match self.get(name) {
            None | Some(Json::Null) => Ok(false),
            Some(Json::Bool(flag)) => Ok(*flag),
            Some(other) => {
                Err(MetadataError::Kind { found: kind_name(other), field: name.to_owned(), wanted: "bool" })
            }
        }
    }

    fn items(&self, name: &str) -> Result<Option<&'a Vec<Json>>, MetadataError> {
        match self.get(name) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::Array(items)) => Ok(Some(items)),
            Some(other) => Err(MetadataError::Kind {
                found: kind_name(other),
                field: name.to_owned(),
                wanted: "[]string",
            }),
        }
    }

    /// The dependency list of `Chart.yaml` and `Chart.lock`.
    pub(crate) fn dependencies(&self) -> Result<Option<Vec<Dependency>>, MetadataError> {
        let Some(items) = self.items("dependencies")? else { return Ok(None) };
        let mut dependencies = Vec::new();
        for item in items {
            let Json::Object(object) = item else {
                return Err(MetadataError::Invalid(
                    "dependencies must not contain empty or null nodes".to_owned(),
                ));
            };
            let fields = Fields(object);
            dependencies.push(Dependency {
                name: fields.text("name")?,
                version: fields.text("version")?,
                repository: fields.text("repository")?,
                condition: fields.text("condition")?,
                tags: fields.texts("tags")?,
                enabled: fields.flag("enabled")?,
                import_values: fields.items("import-values")?.cloned().unwrap_or_default(),
                alias: fields.text("alias")?,
            });
        }
        Ok(Some(dependencies))
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, MetadataError> {
        let items = self.items(name)?.map_or(&[][..], Vec::as_slice);
        items
            .iter()
            .map(|item| {
                scalar_text(item).ok_or_else(|| MetadataError::Kind {
                    found: kind_name(item),
                    field: name.to_owned(),
                    wanted: "string",
                })
            })
            .collect()
    }
}

/// The first document of a text.
pub(crate) fn read(bytes: &[u8]) -> Result<Json, MetadataError> {
    weir_manifest::read_first_document(bytes, "", weir_manifest::ReadOptions::default()).map_err(|error| {
        MetadataError::Yaml(format!("error converting YAML to JSON: {}", error.reference_text()))
    })
}

/// White space as blanks, without what cannot be printed.
fn sanitize(text: &mut String) {
    let printable = |character: char| match character {
        ' ' => Some(' '),
        other if other.is_whitespace() => Some(' '),
        other => weir_gotemplate::strconv::is_print(other).then_some(other),
    };
    if !text.bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
        *text = text.chars().filter_map(printable).collect();
    }
}

impl Metadata {
    /// Reads `Chart.yaml`; unknown fields are ignored and scalars become text where text is wanted.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetadataError> {
        let mut metadata = Self::default();
        metadata.merge(bytes)?;
        Ok(metadata)
    }

    /// Reads more fields over these, as `requirements.yaml` does.
    pub fn merge(&mut self, bytes: &[u8]) -> Result<(), MetadataError> {
        let document = read(bytes)?;
        let object = match &document {
            Json::Null => return Ok(()),
            Json::Object(object) => object,
            other => {
                return Err(MetadataError::Kind {
                    found: kind_name(other),
                    field: String::new(),
                    wanted: "v2.Metadata",
                });
            }
        };
        let fields = Fields(object);
        let text = |name: &str, target: &mut String| -> Result<(), MetadataError> {
            if fields.get(name).is_some() {
                *target = fields.text(name)?;
            }
            Ok(())
        };
        text("name", &mut self.name)?;
        text("home", &mut self.home)?;
        text("version", &mut self.version)?;
        text("description", &mut self.description)?;
        text("icon", &mut self.icon)?;
        text("apiVersion", &mut self.api_version)?;
        text("condition", &mut self.condition)?;
        text("tags", &mut self.tags)?;
        text("appVersion", &mut self.app_version)?;
        text("kubeVersion", &mut self.kube_version)?;
        text("type", &mut self.kind)?;
        if fields.get("sources").is_some() {
            self.sources = fields.texts("sources")?;
        }
        if fields.get("keywords").is_some() {
            self.keywords = fields.texts("keywords")?;
        }
        if fields.get("deprecated").is_some() {
            self.deprecated = fields.flag("deprecated")?;
        }
        if let Some(items) = fields.items("maintainers")? {
            self.maintainers.clear();
            for item in items {
                let Json::Object(object) = item else {
                    return Err(MetadataError::Invalid(
                        "maintainers must not contain empty or null nodes".to_owned(),
                    ));
                };
                let fields = Fields(object);
                self.maintainers.push(Maintainer {
                    name: fields.text("name")?,
                    email: fields.text("email")?,
                    url: fields.text("url")?,
                });
            }
        }
        match fields.get("annotations") {
            None | Some(Json::Null) => {}
            Some(Json::Object(object)) => {
                let entries = Fields(object);
                let annotations = object
                    .keys()
                    .map(|key| Ok((key.clone(), entries.text(key)?)))
                    .collect::<Result<_, MetadataError>>()?;
                self.annotations = Some(annotations);
            }
            Some(other) => {
                return Err(MetadataError::Kind {
                    found: kind_name(other),
                    field: "annotations".to_owned(),
                    wanted: "map[string]string",
                });
            }
        }
        if let Some(dependencies) = fields.dependencies()? {
            self.dependencies = Some(dependencies);
        }
        Ok(())
    }

    /// Makes the texts single lines of printable characters, as is done with every chart that is loaded.
    pub fn sanitize(&mut self) {
        let single = [
            &mut self.name,
            &mut self.description,
            &mut self.home,
            &mut self.icon,
            &mut self.condition,
            &mut self.tags,
            &mut self.app_version,
            &mut self.kube_version,
        ];
        let people = self
            .maintainers
            .iter_mut()
            .flat_map(|maintainer| [&mut maintainer.name, &mut maintainer.email, &mut maintainer.url]);
        let charts = self.dependencies.iter_mut().flatten().flat_map(|dependency| {
            [
                &mut dependency.name,
                &mut dependency.version,
                &mut dependency.repository,
                &mut dependency.condition,
            ]
            .into_iter()
            .chain(&mut dependency.tags)
        });
        let all = single.into_iter().chain(&mut self.sources).chain(&mut self.keywords);
        all.chain(people).chain(charts).for_each(sanitize);
    }

    /// Checks the rules every chart must keep.
    pub fn validate(&self) -> Result<(), MetadataError> {
        let invalid = |text: String| Err(MetadataError::Invalid(text));
        if self.api_version.is_empty() {
            return invalid("chart.metadata.apiVersion is required".to_owned());
        }
        if self.name.is_empty() {
            return invalid("chart.metadata.name is required".to_owned());
        }
        if matches!(self.name.as_str(), "." | "..") {
            let name = weir_gotemplate::helm::quoted(&self.name);
            return invalid(format!("chart.metadata.name {name} is not allowed"));
        }
        if self.name.contains('/') {
            let name = weir_gotemplate::helm::quoted(&self.name);
            return invalid(format!("chart.metadata.name {name} is invalid"));
        }
        if self.version.is_empty() {
            return invalid("chart.metadata.version is required".to_owned());
        }
        if Version::parse(&self.version).is_err() {
            let version = weir_gotemplate::helm::quoted(&self.version);
            return invalid(format!("chart.metadata.version {version} is invalid"));
        }
        if !matches!(self.kind.as_str(), "" | "application" | "library") {
            return invalid("chart.metadata.type must be application or library".to_owned());
        }
        let mut names = std::collections::BTreeSet::new();
        for dependency in self.dependencies.iter().flatten() {
            let alias_valid = dependency
                .alias
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
            if !alias_valid {
                let name = weir_gotemplate::helm::quoted(&dependency.name);
                return invalid(format!("dependency {name} has disallowed characters in the alias"));
            }
            let key = if dependency.alias.is_empty() { &dependency.name } else { &dependency.alias };
            if !names.insert(key) {
                return invalid(format!("more than one dependency with name or alias \"{key}\""));
            }
        }
        Ok(())
    }

    /// Whether the chart only provides definitions for others.
    pub fn is_library(&self) -> bool {
        self.kind.eq_ignore_ascii_case("library")
    }
}

/// Whether `version` lies in `range`; `false` if either cannot be read.
pub fn in_range(range: &str, version: &str) -> bool {
    match (Constraint::parse(range), Version::parse(version)) {
        (Ok(range), Ok(version)) => range.matches(&version),
        _ => false,
    }
}
