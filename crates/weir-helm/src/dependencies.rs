//! Which subcharts take part, under which names, and the values they pass up.

use serde_json::Value as Json;

use crate::chart::Chart;
use crate::metadata::{Dependency, in_range};
use crate::values::{self, Mode, Table, ValuesError};

/// Charts that may take part in one release; aliases within aliases multiply them.
pub const CHARTS_MAX: usize = 10_000;

/// Selects, renames and removes subcharts as `Chart.yaml` and the values say, and takes over the values
/// that are to be imported. Done once, before values are coalesced for rendering.
pub fn process(chart: &mut Chart, given: &Table) -> Result<(), ValuesError> {
    select(chart, given, "", &mut 0)?;
    import_values(chart)
}

fn select(chart: &mut Chart, given: &Table, path: &str, charts: &mut usize) -> Result<(), ValuesError> {
    let Some(mut requirements) = chart.metadata.dependencies.take() else { return Ok(()) };
    let fits = |subchart: &Chart, requirement: &Dependency| {
        subchart.name() == requirement.name && in_range(&requirement.version, &subchart.metadata.version)
    };
    let (mut wanted, mut selected) = (Vec::new(), Vec::new());
    for subchart in std::mem::take(&mut chart.dependencies) {
        if requirements.iter().any(|requirement| fits(&subchart, requirement)) {
            wanted.push(Some(subchart));
        } else {
            selected.push(subchart);
        }
    }
    let place = |requirement: &Dependency| {
        wanted.iter().position(|subchart| subchart.as_ref().is_some_and(|chart| fits(chart, requirement)))
    };
    let places: Vec<Option<usize>> = requirements.iter().map(place).collect();
    for (number, requirement) in requirements.iter_mut().enumerate() {
        // A chart that takes part several times, under aliases, is copied.
        let again = places[number + 1..].contains(&places[number]);
        let subchart =
            places[number].and_then(|place| if again { wanted[place].clone() } else { wanted[place].take() });
        if let Some(mut subchart) = subchart {
            *charts += count(&subchart);
            if *charts > CHARTS_MAX {
                return Err(ValuesError::TooManyCharts);
            }
            if !requirement.alias.is_empty() {
                subchart.metadata.name.clone_from(&requirement.alias);
            }
            selected.push(subchart);
        }
        if !requirement.alias.is_empty() {
            requirement.name.clone_from(&requirement.alias);
        }
        requirement.enabled = true;
    }
    chart.dependencies = selected;
    chart.metadata.dependencies = Some(requirements);
    let all = values::coalesce(chart, given, Mode::Coalesce)?;
    let mut requirements = chart.metadata.dependencies.take().unwrap_or_default();
    by_tags(&mut requirements, &all);
    by_conditions(&mut requirements, &all, path);
    let removed: Vec<String> = requirements
        .iter()
        .filter(|requirement| !requirement.enabled)
        .map(|requirement| requirement.name.clone())
        .collect();
    chart.dependencies.retain(|subchart| !removed.iter().any(|name| name == subchart.name()));
    requirements.retain(|requirement| !removed.contains(&requirement.name));
    for subchart in &mut chart.dependencies {
        let path = format!("{path}{}.", subchart.name());
        select(subchart, &all, &path, charts)?;
    }
    // A list that has become empty counts as absent.
    chart.metadata.dependencies = (!requirements.is_empty()).then_some(requirements);
    Ok(())
}

/// The chart and those in it.
fn count(chart: &Chart) -> usize {
    1 + chart.dependencies.iter().map(count).sum::<usize>()
}

fn by_tags(requirements: &mut [Dependency], all: &Table) {
    let Some(tags) = values::table(all, "tags") else { return };
    for requirement in requirements {
        let flags = || requirement.tags.iter().filter_map(|tag| tags.get(tag)?.as_bool());
        requirement.enabled = flags().any(|flag| flag) || flags().all(|flag| flag);
    }
}

fn by_conditions(requirements: &mut [Dependency], all: &Table, path: &str) {
    for requirement in requirements {
        let decided = requirement
            .condition
            .trim()
            .split(',')
            .filter(|condition| !condition.is_empty())
            .find_map(|condition| values::path_value(all, &format!("{path}{condition}"))?.as_bool());
        if let Some(enabled) = decided {
            requirement.enabled = enabled;
        }
    }
}

fn import_values(chart: &mut Chart) -> Result<(), ValuesError> {
    for subchart in &mut chart.dependencies {
        import_values(subchart)?;
    }
    if chart.metadata.dependencies.is_none() {
        return Ok(());
    }
    let mut merged = values::coalesce(chart, &Table::new(), Mode::Merge)?;
    let mut imported = Table::new();
    for requirement in chart.metadata.dependencies.iter_mut().flatten() {
        let mut rewritten = Vec::new();
        for import in &requirement.import_values {
            let (child, parent) = match import {
                Json::String(name) => (format!("exports.{name}"), ".".to_owned()),
                Json::Object(import) => (shown(import.get("child")), shown(import.get("parent"))),
                _ => continue,
            };
            rewritten.push(serde_json::json!({ "child": child, "parent": parent }));
            let Some(table) = values::table(&merged, &format!("{}.{child}", requirement.name)) else {
                continue;
            };
            let mut table = table.clone();
            if parent != "." {
                for key in parent.rsplit('.') {
                    table = Table::from_iter([(key.to_owned(), Json::Object(table))]);
                }
            }
            values::coalesce_tables(&mut imported, table, Mode::Merge);
        }
        requirement.import_values = rewritten;
    }
    values::coalesce_tables(&mut merged, imported, Mode::Merge);
    chart.values = merged;
    Ok(())
}

/// How `%v` prints a value.
fn shown(value: Option<&Json>) -> String {
    let value = value.map_or(weir_gotemplate::Value::Nil, crate::render::engine_value);
    String::from_utf8_lossy(&weir_gotemplate::format::display(&value)).into_owned()
}
