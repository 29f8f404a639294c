//! `weir stats`: how many objects there are, and how they are.

use clap::Args;
use serde_json::Value;

use crate::connection::{Connection, Filter};
use crate::error::Error;
use crate::kind::Kind;
use crate::{output, table, view};

/// Arguments of `weir stats`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Count the objects of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

const KINDS: [Kind; 13] = [
    Kind::GitRepository,
    Kind::OciRepository,
    Kind::HelmRepository,
    Kind::HelmChart,
    Kind::Bucket,
    Kind::Kustomization,
    Kind::HelmRelease,
    Kind::Alert,
    Kind::Provider,
    Kind::Receiver,
    Kind::ImageUpdateAutomation,
    Kind::ImagePolicy,
    Kind::ImageRepository,
];

/// Prints the counts; kinds the cluster does not know count zero.
pub(crate) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Error> {
    let filter = Filter { all_namespaces: arguments.all_namespaces, ..Filter::default() };
    let mut rows = Vec::new();
    for kind in KINDS {
        rows.push(row(kind, &connection.list_if_known(kind, &filter).await?));
    }
    output::data(&table::render(&["Reconcilers", "Running", "Failing", "Suspended", "Storage"], &rows))
}

fn row(kind: Kind, objects: &[Value]) -> Vec<String> {
    let count = |test: &dyn Fn(&Value) -> bool| objects.iter().filter(|object| test(object)).count();
    let suspended = count(&view::is_suspended);
    let failing = count(&|object| {
        view::condition(object, "Ready").is_some_and(|ready| view::text(ready, "/status") == "False")
    });
    let bytes: i64 = objects.iter().map(|object| view::number(object, "/status/artifact/size")).sum();
    vec![
        kind.name().to_owned(),
        (objects.len() - suspended).to_string(),
        failing.to_string(),
        suspended.to_string(),
        size(bytes),
    ]
}

/// A number of bytes in binary units with one decimal.
fn size(bytes: i64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes == 0 {
        return "-".to_owned();
    }
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts() {
        let objects = [
            json!({"spec": {"suspend": true}, "status": {"artifact": {"size": 1024}}}),
            json!({"status": {"artifact": {"size": 1024}, "conditions": [{"type": "Ready", "status": "False"}]}}),
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        ];
        assert_eq!(row(Kind::GitRepository, &objects), ["GitRepository", "2", "1", "1", "2.0 KiB"]);
        assert_eq!(row(Kind::Bucket, &[]), ["Bucket", "0", "0", "0", "-"]);
    }

    #[test]
    fn sizes() {
        #[track_caller]
        fn check(bytes: i64, expected: &str) {
            assert_eq!(size(bytes), expected);
        }
        check(0, "-");
        check(1023, "1023 B");
        check(1024, "1.0 KiB");
        check(1536 * 1024, "1.5 MiB");
        check(5 * 1024 * 1024 * 1024, "5.0 GiB");
    }
}
