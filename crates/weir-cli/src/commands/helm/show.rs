//! `weir helm show`: prints what is in a chart, as `helm show` does.

use clap::{Args, Subcommand};
use weir_helm::chart::Chart;
use weir_helm::package;

use super::fetch::{self, ChartArguments};
use super::jsonpath;
use crate::error::Error;
use crate::output;

/// Arguments of `weir helm show`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Print Chart.yaml, values, README and CRDs
    All(Reference),
    /// Print Chart.yaml
    Chart(Reference),
    /// Print the CRDs
    Crds(Reference),
    /// Print the README
    Readme(Reference),
    /// Print values.yaml
    Values(Values),
}

#[derive(Debug, Args)]
struct Reference {
    /// The chart: a directory, an archive, REPOSITORY/CHART, or the address of an archive or in a registry
    #[arg(value_name = "CHART")]
    chart: String,
    #[command(flatten)]
    origin: ChartArguments,
}

#[derive(Debug, Args)]
struct Values {
    #[command(flatten)]
    reference: Reference,
    /// Print only what this JSONPath template gives
    #[arg(long, value_name = "TEMPLATE")]
    jsonpath: Option<String>,
}

/// Prints the wanted part.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let (Part::All(reference)
    | Part::Chart(reference)
    | Part::Crds(reference)
    | Part::Readme(reference)
    | Part::Values(Values { reference, .. })) = &arguments.part;
    let chart = fetch::locate(&reference.chart, &reference.origin)?.load()?;
    if let Part::Values(Values { jsonpath: Some(template), .. }) = &arguments.part {
        let values = serde_json::Value::Object(chart.values);
        return output::data(&jsonpath::print(template, &values).map_err(Error::Helm)?);
    }
    output::data(&text(&chart, &arguments.part))
}

fn text(chart: &Chart, part: &Part) -> String {
    let all = matches!(part, Part::All(_));
    let mut text = String::new();
    if all || matches!(part, Part::Chart(_)) {
        text.push_str(&package::metadata_text(&chart.metadata));
        text.push('\n');
    }
    if let Some(values) = chart.values_text.as_ref().filter(|_| all || matches!(part, Part::Values(_))) {
        text.push_str(if all { "---\n" } else { "" });
        text.push_str(&String::from_utf8_lossy(values));
        text.push('\n');
    }
    let readme = chart.files.iter().find(|file| {
        ["readme.md", "readme.txt", "readme"].iter().any(|name| file.name.eq_ignore_ascii_case(name))
    });
    if let Some(readme) = readme.filter(|_| all || matches!(part, Part::Readme(_))) {
        text.push_str(if all { "---\n" } else { "" });
        text.push_str(&String::from_utf8_lossy(&readme.data));
        text.push('\n');
    }
    if all || matches!(part, Part::Crds(_)) {
        for (_, file) in chart.crds_with_paths() {
            text.push_str(if file.data.starts_with(b"---") { "" } else { "---\n" });
            text.push_str(&String::from_utf8_lossy(&file.data));
            text.push('\n');
        }
    }
    text
}
