//! From files to a package: blocking work without network.

use bytes::Bytes;
use serde_json::Value;
use weir_api::Artifact;
use weir_artifact::storage::{Storage, StorageError};
use weir_base::tree::{Files, Kind, MemoryTree};
use weir_helm::chart::Chart;
use weir_helm::metadata::Metadata;
use weir_helm::package;
use weir_helm::values::{self, Table};

use super::error::{BuildFailure, Cause, Error, Reason};
use crate::source::storage::{self, StoreError};

/// A chart that is to be stored, or is.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) name: String,
    pub(super) version: String,
    /// What was merged into the default values.
    pub(super) values_files: Vec<String>,
    /// Whether the package was made here.
    pub(super) packaged: bool,
    pub(super) resolved_dependencies: usize,
    pub(super) content: Content,
}

/// Where the package is.
#[derive(Debug)]
pub(super) enum Content {
    /// In the storage: it is the current artifact.
    Stored,
    /// Here.
    Package(Bytes),
}

impl Build {
    /// What is told about it.
    pub(super) fn summary(&self) -> String {
        let action = if self.packaged { "packaged" } else { "pulled" };
        let summary = format!("{action} '{}' chart with version '{}'", self.name, self.version);
        if self.values_files.is_empty() {
            summary
        } else {
            format!("{summary} and merged values files [{}]", self.values_files.join(" "))
        }
    }

    /// The reason of conditions and events.
    pub(super) fn reason(&self) -> &'static str {
        if self.packaged { "ChartPackageSucceeded" } else { "ChartPullSucceeded" }
    }
}

fn failed(reason: Reason) -> impl Fn(Cause) -> BuildFailure {
    move |cause| BuildFailure::new(reason, cause)
}

/// The path without `.` and with `..` held back at the root, as if the source were a file system of its own.
pub(super) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Makes what a chart of a repository is stored as: the package itself, or one with other values.
pub(super) fn from_package(
    bytes: Bytes,
    name: String,
    version: String,
    values_files: &[String],
) -> Result<Build, BuildFailure> {
    let repackage =
        !matches!(values_files, []) && !matches!(values_files, [only] if clean(only) == "values.yaml");
    if !repackage {
        // Loading it is the proof that it is a chart.
        Chart::from_archive(&bytes).map_err(|error| failed(Reason::ChartPull)(Cause::Downloaded(error)))?;
        let content = Content::Package(bytes);
        let values_files = Vec::new();
        return Ok(Build { name, version, values_files, packaged: false, resolved_dependencies: 0, content });
    }
    let mut chart = Chart::from_archive(&bytes)
        .map_err(|error| failed(Reason::ChartPackage)(Cause::LoadDownloaded(error)))?;
    version.clone_into(&mut chart.metadata.version);
    let merged = merge_inside(&chart, values_files).map_err(failed(Reason::ValuesFiles))?;
    let replaced = replace_values(&mut chart, merged).map_err(failed(Reason::ValuesFiles))?;
    let values_files = if replaced { values_files.to_vec() } else { Vec::new() };
    let content = Content::Package(pack(&chart)?);
    Ok(Build { name, version, values_files, packaged: true, resolved_dependencies: 0, content })
}

/// Values files within the chart, merged in their order.
fn merge_inside(chart: &Chart, files: &[String]) -> Result<Table, Cause> {
    let mut merged = Table::new();
    for path in files {
        let clean = clean(path);
        let over = if clean == "values.yaml" {
            chart.values.clone()
        } else {
            let file = chart.files.iter().find(|file| file.name == clean);
            let file = file.ok_or_else(|| Cause::NoValuesInChart(path.clone()))?;
            values::read(&file.data).map_err(|source| Cause::Values { path: path.clone(), source })?
        };
        values::merge_over(&mut merged, over);
    }
    Ok(merged)
}

/// Values files of a source, merged in their order, with those that were there.
fn merge_outside(
    tree: &MemoryTree,
    files: &[String],
    ignore_missing: bool,
) -> Result<(Table, Vec<String>), Cause> {
    let (mut merged, mut used) = (Table::new(), Vec::new());
    for path in files {
        let found = clean(path);
        let Some(text) = tree.read(&found) else {
            if ignore_missing && tree.kind(&found).is_none() {
                continue;
            }
            return Err(Cause::NoValues { found: format!("/{found}"), reference: path.clone() });
        };
        let over = values::read(&text).map_err(|source| Cause::Values { path: path.clone(), source })?;
        values::merge_over(&mut merged, over);
        used.push(path.clone());
    }
    Ok((merged, used))
}

/// Puts values in the place of the chart's own; `false` if they are the same.
fn replace_values(chart: &mut Chart, merged: Table) -> Result<bool, Cause> {
    let text = if merged.is_empty() {
        Bytes::new()
    } else {
        Bytes::from(weir_manifest::to_yaml(&whole_numbers(Value::Object(merged.clone()))))
    };
    match &chart.values_text {
        None => Err(Cause::NoDefaultValues),
        Some(old) if *old == text => Ok(false),
        Some(_) => {
            chart.values = merged;
            chart.values_text = Some(text);
            Ok(true)
        }
    }
}

/// Floats without a fraction as integers, which is how the reference writes them.
fn whole_numbers(value: Value) -> Value {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT_MAX => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(items) => Value::Array(items.into_iter().map(whole_numbers).collect()),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| (key, whole_numbers(value))).collect())
        }
        other => other,
    }
}

/// A chart in a source, before it is read in whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) is_directory: bool,
    pub(super) name: String,
    pub(super) version: String,
}

/// Finds the chart at a path of a source.
pub(super) fn look(tree: &MemoryTree, path: &str) -> Result<Seen, BuildFailure> {
    let failed = failed(Reason::ChartReference);
    if path.is_empty() {
        return Err(failed(Cause::NoPath));
    }
    let path = clean(path);
    let is_directory = match tree.kind(&path) {
        Some(Kind::Directory) => true,
        Some(Kind::File) => false,
        None => return Err(failed(Cause::NoChart(format!("/{path}")))),
    };
    let metadata = if is_directory {
        let inside = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        let text =
            tree.read(&inside("Chart.yaml")).ok_or_else(|| failed(Cause::NoMetadata(format!("/{path}"))))?;
        let mut metadata = Metadata::parse(&text).map_err(|error| failed(Cause::Metadata(error)))?;
        if let Some(requirements) = tree.read(&inside("requirements.yaml")) {
            metadata.merge(&requirements).map_err(|error| failed(Cause::Metadata(error)))?;
        }
        if metadata.api_version.is_empty() {
            "v1".clone_into(&mut metadata.api_version);
        }
        metadata.validate().map_err(|error| failed(Cause::Invalid(error)))?;
        metadata
    } else {
        let bytes = tree.read(&path).unwrap_or_default();
        Chart::from_archive(&bytes).map_err(|error| failed(Cause::Load(error)))?.metadata
    };
    Ok(Seen { path, is_directory, name: metadata.name, version: metadata.version })
}

/// What to make of a chart in a source.
pub(super) struct Order {
    pub(super) chart: Seen,
    /// The version with what is added to it.
    pub(super) version: String,
    /// Whether a package in the source must be made anew.
    pub(super) repackage: bool,
    pub(super) values_files: Vec<String>,
    pub(super) merge_values: bool,
    pub(super) ignore_missing: bool,
}

/// A chart of a source with its values merged, before its dependencies are complete.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) path: String,
    pub(super) is_directory: bool,
    pub(super) chart: Chart,
    pub(super) version: String,
    pub(super) values_files: Vec<String>,
    pub(super) resolved_dependencies: usize,
    /// The package of the source, if it can stay as it is.
    as_it_is: Option<Bytes>,
}

/// Reads the chart in.
pub(super) fn load(tree: &MemoryTree, order: Order) -> Result<Loaded, BuildFailure> {
    let Seen { path, is_directory, .. } = order.chart;
    let bytes = tree.read(&path).unwrap_or_default();
    let mut loaded = Loaded {
        path,
        is_directory,
        chart: Chart::default(),
        version: order.version,
        values_files: Vec::new(),
        resolved_dependencies: 0,
        as_it_is: None,
    };
    let failed_load = |error| failed(Reason::ChartPackage)(Cause::Load(error));
    if !is_directory && !order.repackage {
        loaded.chart = Chart::from_archive(&bytes).map_err(failed_load)?;
        loaded.as_it_is = Some(bytes);
        return Ok(loaded);
    }
    let merged = if order.merge_values {
        Some(
            merge_outside(tree, &order.values_files, order.ignore_missing)
                .map_err(failed(Reason::ValuesFiles))?,
        )
    } else {
        None
    };
    loaded.chart =
        if is_directory { Chart::from_tree(tree, &loaded.path) } else { Chart::from_archive(&bytes) }
            .map_err(failed_load)?;
    loaded.version.clone_into(&mut loaded.chart.metadata.version);
    if let Some((merged, used)) = merged
        && replace_values(&mut loaded.chart, merged).map_err(failed(Reason::ValuesFiles))?
    {
        loaded.values_files = used;
    }
    Ok(loaded)
}

/// Makes the package.
pub(super) fn package(loaded: Loaded) -> Result<Build, BuildFailure> {
    let packaged = loaded.as_it_is.is_none();
    let bytes = match loaded.as_it_is {
        Some(bytes) => bytes,
        None => pack(&loaded.chart)?,
    };
    Ok(Build {
        name: loaded.chart.metadata.name,
        version: loaded.version,
        values_files: loaded.values_files,
        packaged,
        resolved_dependencies: loaded.resolved_dependencies,
        content: Content::Package(bytes),
    })
}

/// The same chart always gives the same package: entries have no times.
fn pack(chart: &Chart) -> Result<Bytes, BuildFailure> {
    package::archive(chart, &|_| 0).map_err(|error| failed(Reason::ChartPackage)(Cause::Package(error)))
}

/// Stores a package and points the link to the latest one at it.
pub(super) fn store(
    storage: &Storage,
    path: String,
    version: String,
    bytes: &Bytes,
) -> Result<(Artifact, Result<String, StorageError>), Error> {
    let stored = storage::store(storage, path, version, |output| output.write_all(bytes));
    let artifact = stored.map_err(|error: StoreError<std::io::Error>| match error {
        StoreError::CreateDirectory(error) => Error::CreateDirectory(error),
        StoreError::Lock(error) => Error::Lock(error),
        StoreError::Write(error) => Error::Store(error),
        StoreError::Content(error) => Error::Write(error),
    })?;
    let url = storage.link_latest(&artifact.path, "latest.tar.gz");
    Ok((artifact, url))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, &str)]) -> MemoryTree {
        let mut all = vec![
            ("charts/app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n"),
            ("charts/app/values.yaml", "a: 1\nb: {c: 2}\n"),
            ("charts/app/templates/t.yaml", "x: {{ .Values.a }}\n"),
        ];
        all.extend_from_slice(entries);
        all.into_iter().map(|(path, text)| (path.to_owned(), Bytes::from(text.to_owned()))).collect()
    }

    fn order(tree: &MemoryTree, values: &[&str], ignore_missing: bool) -> Order {
        Order {
            chart: look(tree, "./charts/app/").unwrap(),
            version: "1.0.0+3".to_owned(),
            repackage: true,
            values_files: values.iter().map(|path| (*path).to_owned()).collect(),
            merge_values: !values.is_empty(),
            ignore_missing,
        }
    }

    fn built(tree: &MemoryTree, values: &[&str], ignore_missing: bool) -> Result<(Build, Chart), String> {
        let build = load(tree, order(tree, values, ignore_missing))
            .and_then(package)
            .map_err(|error| weir_base::error::chain(&error))?;
        let Content::Package(bytes) = &build.content else { panic!("not built") };
        let chart = Chart::from_archive(bytes).unwrap();
        Ok((build, chart))
    }

    #[test]
    fn a_directory_becomes_a_package() {
        let tree = tree(&[]);
        let (build, chart) = built(&tree, &[], false).unwrap();
        assert_eq!(build.summary(), "packaged 'app' chart with version '1.0.0+3'");
        assert_eq!(build.reason(), "ChartPackageSucceeded");
        assert_eq!(chart.metadata.version, "1.0.0+3");
        assert_eq!(chart.templates[0].name, "templates/t.yaml");
        // Twice the same.
        let Content::Package(first) = build.content else { panic!("not built") };
        let Content::Package(second) = built(&tree, &[], false).unwrap().0.content else {
            panic!("not built")
        };
        assert_eq!(first, second);
    }

    #[test]
    fn values_files_of_the_source_replace_the_defaults() {
        let tree = tree(&[("x/one.yaml", "b: {d: 5}\ncount: 3000000\n"), ("two.yaml", "b: {d: null}\n")]);
        let (build, chart) = built(&tree, &["./x/one.yaml", "/two.yaml"], false).unwrap();
        assert_eq!(
            build.summary(),
            "packaged 'app' chart with version '1.0.0+3' and merged values files [./x/one.yaml /two.yaml]"
        );
        assert_eq!(chart.values_text.as_deref(), Some(&b"b:\n  d: null\ncount: 3000000\n"[..]));
        let error = built(&tree, &["no.yaml"], false).unwrap_err();
        assert_eq!(
            error,
            "values files merge error: no values file found at path '/no.yaml' (reference 'no.yaml')"
        );
        let (build, _) = built(&tree, &["no.yaml", "two.yaml"], true).unwrap();
        assert_eq!(build.values_files, ["two.yaml"]);
        // A directory is not a missing file.
        assert!(built(&tree, &["x"], true).is_err());
        // Nothing leaves the source.
        assert!(built(&tree, &["../../two.yaml"], false).is_ok());
    }

    #[test]
    fn charts_that_are_not_there() {
        let tree = tree(&[("docs/README.md", "x")]);
        let refused = |path| weir_base::error::chain(&look(&tree, path).unwrap_err());
        assert_eq!(
            refused("charts/other"),
            "invalid chart reference: no chart found at path '/charts/other'"
        );
        assert_eq!(
            refused("docs"),
            "invalid chart reference: failed to load chart metadata: no Chart.yaml found at path '/docs'"
        );
        assert!(refused("docs/README.md").starts_with("invalid chart reference: failed to load chart: "));
        assert_eq!(refused(""), "invalid chart reference: no path set for local chart reference");
        assert_eq!(look(&tree, "../../charts/app").unwrap().path, "charts/app");
    }

    fn archive() -> Bytes {
        let tree = tree(&[("charts/app/extra.yaml", "a: 9\n")]);
        let mut order = order(&tree, &[], false);
        "1.0.0".clone_into(&mut order.version);
        let Content::Package(bytes) = load(&tree, order).and_then(package).unwrap().content else {
            panic!("not built")
        };
        bytes
    }

    #[test]
    fn a_package_of_a_repository_stays_as_it_is() {
        let bytes = archive();
        let build = from_package(bytes.clone(), "app".to_owned(), "1.0.0".to_owned(), &[]).unwrap();
        assert_eq!(build.summary(), "pulled 'app' chart with version '1.0.0'");
        assert!(matches!(build.content, Content::Package(stored) if stored == bytes));
        let error = from_package(Bytes::from_static(b"<html>"), "app".to_owned(), "1.0.0".to_owned(), &[])
            .unwrap_err();
        let error = weir_base::error::chain(&error);
        assert!(
            error.starts_with("chart pull error: failed to load chart metadata from written chart: "),
            "{error}"
        );
    }

    #[test]
    fn values_files_within_a_package() {
        let merge = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|path| (*path).to_owned()).collect();
            let build = from_package(archive(), "app".to_owned(), "1.0.0+4".to_owned(), &files)
                .map_err(|error| weir_base::error::chain(&error))?;
            let Content::Package(bytes) = build.content else { panic!("not built") };
            let chart = Chart::from_archive(&bytes).unwrap();
            Ok::<_, String>((
                chart.metadata.version,
                String::from_utf8_lossy(&chart.values_text.unwrap()).into_owned(),
            ))
        };
        assert_eq!(
            merge(&["values.yaml", "extra.yaml"]),
            Ok(("1.0.0+4".to_owned(), "a: 9\nb:\n  c: 2\n".to_owned()))
        );
        assert_eq!(
            merge(&["no.yaml"]).unwrap_err(),
            "values files merge error: failed to merge chart values: no values file found at path 'no.yaml'"
        );
    }

    #[test]
    fn a_package_within_a_source() {
        let mut tree = tree(&[]);
        let data = archive();
        tree.insert("app.tgz", weir_base::tree::File { data: data.clone(), executable: false }).unwrap();
        let seen = look(&tree, "app.tgz").unwrap();
        assert_eq!((seen.name.as_str(), seen.version.as_str(), seen.is_directory), ("app", "1.0.0", false));
        let mut order = order(&tree, &[], false);
        order.chart = seen;
        order.repackage = false;
        "1.0.0".clone_into(&mut order.version);
        let build = load(&tree, order).and_then(package).unwrap();
        assert_eq!(build.summary(), "pulled 'app' chart with version '1.0.0'");
        assert!(matches!(build.content, Content::Package(stored) if stored == data));
    }
}
