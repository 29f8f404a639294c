//! Reports as people and programs read them.

use std::fmt::Write as _;

use super::change::{self, Kind};
use super::report::{Report, Row, Verdict};
use crate::local::seconds;

/// Levels of the tree.
const DEPTH_MAX: usize = 16;
/// The longest diff in Markdown: comments on pull requests are limited to 65,536 bytes.
const MARKDOWN_BYTES_MAX: usize = 60_000;

fn glyph(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ready => "✔",
        Verdict::Failed => "✗",
        Verdict::Waiting => "◎",
        Verdict::Blocked | Verdict::Skipped => "–",
    }
}

/// The result in one line.
pub(crate) fn summary(report: &Report) -> String {
    let mut parts = Vec::new();
    for verdict in [Verdict::Ready, Verdict::Failed, Verdict::Waiting, Verdict::Blocked, Verdict::Skipped] {
        let count = report.count(verdict);
        if count > 0 || verdict == Verdict::Ready {
            parts.push(format!("{count} {}", verdict.word()));
        }
    }
    let end = if report.settled { "" } else { ", stopped by the deadline" };
    let took = seconds(report.took);
    let simulated = report.simulated.saturating_sub(report.took).as_secs();
    let took = if simulated > 0 { format!("{took} ({} simulated)", seconds(report.simulated)) } else { took };
    format!("{} of {}: {} in {took}{end}", report.path, report.revision, parts.join(", "))
}

fn add(report: &Report, owner: &str, depth: usize, out: &mut String) {
    if depth > DEPTH_MAX {
        return;
    }
    let known = |id: &str| report.rows.iter().any(|row| row.id == id);
    for row in &report.rows {
        let is_root = row.owner.is_empty() || !known(&row.owner) || row.owner == row.id;
        if if owner.is_empty() { !is_root } else { is_root || row.owner != owner } {
            continue;
        }
        let name = format!("{}{}", "  ".repeat(depth), row.id);
        let note = match row.verdict {
            Verdict::Ready if row.entries > 0 => format!("{} objects", row.entries),
            Verdict::Ready => String::new(),
            _ => row.diagnosis.clone(),
        };
        let line = format!("{} {name:<56} {note}", glyph(row.verdict));
        out.push_str(line.trim_end());
        out.push('\n');
        if row.id.starts_with("Kustomization/") {
            add(report, &row.id, depth + 1, out);
        }
    }
}

fn problems(report: &Report) -> Vec<&Row> {
    let mut rows: Vec<&Row> = report.rows.iter().filter(|row| row.verdict.is_bad()).collect();
    rows.sort_by_key(|row| (row.verdict, row.id.clone()));
    rows
}

/// The tree of objects, the problems, and what changed.
pub(crate) fn tree(report: &Report) -> String {
    let mut out = String::new();
    add(report, "", 0, &mut out);
    let rows = problems(report);
    if !rows.is_empty() {
        out.push_str("\nProblems:\n");
        for row in rows {
            let _ = writeln!(out, "{} {}: {}", glyph(row.verdict), row.id, row.diagnosis);
            for line in row.message.lines() {
                let _ = writeln!(out, "    {line}");
            }
        }
    }
    for cycle in &report.cycles {
        let first = cycle.first().map_or("", String::as_str);
        let _ = writeln!(out, "\nDependency cycle: {} -> {first}", cycle.join(" -> "));
    }
    if !report.missing_kinds.is_empty() {
        let list: Vec<&str> = report.missing_kinds.iter().map(String::as_str).collect();
        let _ = writeln!(out, "\nMissing definitions: {}", list.join(", "));
    }
    if report.order.len() > 1 {
        out.push_str("\nOrder:\n");
        for (index, step) in report.order.iter().enumerate() {
            let _ = writeln!(out, "{:>3}. {}", index + 1, step.join(", "));
        }
    }
    for note in &report.notes {
        let _ = writeln!(out, "\nNote: {note}");
    }
    if let Some(base) = &report.base {
        let _ = writeln!(out, "\nChanges from {base}: {}", change_counts(report));
        for change in &report.changes {
            let sign = match change.kind {
                Kind::Added => '+',
                Kind::Changed => '~',
                Kind::Removed => '-',
            };
            let _ = writeln!(out, "  {sign} {}", change.id);
        }
    }
    let _ = writeln!(out, "\n{}", summary(report));
    out
}

fn change_counts(report: &Report) -> String {
    let count = |kind: Kind| report.changes.iter().filter(|change| change.kind == kind).count();
    format!(
        "{} added, {} changed, {} removed",
        count(Kind::Added),
        count(Kind::Changed),
        count(Kind::Removed)
    )
}

/// The changes as one diff.
pub(crate) fn diff(report: &Report) -> String {
    change::text(&report.changes)
}

/// The report as test results, one case for each object.
pub(crate) fn junit(report: &Report) -> String {
    let failures = report.rows.iter().filter(|row| row.verdict.is_bad()).count() + report.cycles.len();
    let skipped = report.count(Verdict::Blocked) + report.count(Verdict::Skipped);
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        out,
        "<testsuites>\n  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\" time=\"{:.3}\">",
        xml(&report.path),
        report.rows.len() + report.cycles.len(),
        report.took.as_secs_f64()
    );
    for row in &report.rows {
        let (kind, name) = row.id.split_once('/').unwrap_or(("", &row.id));
        let _ = write!(out, "    <testcase classname=\"{}\" name=\"{}\"", xml(kind), xml(name));
        match row.verdict {
            Verdict::Ready => out.push_str("/>\n"),
            Verdict::Blocked | Verdict::Skipped => {
                let _ = writeln!(out, "><skipped message=\"{}\"/></testcase>", xml(&row.diagnosis));
            }
            Verdict::Failed | Verdict::Waiting => {
                let _ = writeln!(
                    out,
                    "><failure type=\"{}\" message=\"{}\">{}</failure></testcase>",
                    xml(&row.reason),
                    xml(&row.diagnosis),
                    xml(&row.message)
                );
            }
        }
    }
    for cycle in &report.cycles {
        let text = xml(&cycle.join(" -> "));
        let _ = writeln!(
            out,
            "    <testcase classname=\"dependencies\" name=\"{text}\"><failure type=\"Cycle\" message=\"dependency cycle\">{text}</failure></testcase>"
        );
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Most control characters cannot stand in XML at all.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The report for a pull request.
pub(crate) fn markdown(report: &Report) -> String {
    let verdict = if report.is_good() { "✅" } else { "❌" };
    let mut out = format!("### {verdict} Simulation of `{}`\n\n{}\n", report.path, summary(report));
    let rows = problems(report);
    if !rows.is_empty() {
        out.push_str("\n| object | problem | message |\n| --- | --- | --- |\n");
        for row in rows {
            let _ = writeln!(out, "| `{}` | {} | {} |", row.id, cell(&row.diagnosis), cell(&row.message));
        }
    }
    for cycle in &report.cycles {
        let first = cycle.first().map_or("", String::as_str);
        let _ = writeln!(out, "\nDependency cycle: `{}` → `{first}`", cycle.join("` → `"));
    }
    if !report.missing_kinds.is_empty() {
        let list: Vec<String> = report.missing_kinds.iter().map(|kind| format!("`{kind}`")).collect();
        let _ = writeln!(out, "\nMissing definitions: {}", list.join(", "));
    }
    for note in &report.notes {
        let _ = writeln!(out, "\n> {}", cell(note));
    }
    if let Some(base) = &report.base {
        let _ = writeln!(out, "\n#### Changes from `{base}`: {}\n", change_counts(report));
        let mut left_out = 0;
        for change in &report.changes {
            let fence = "`".repeat(longest_fence(&change.diff).max(2) + 1);
            let block = format!(
                "<details><summary><code>{}</code> {}</summary>\n\n{fence}diff\n{}{fence}\n\n</details>\n",
                xml(&change.id),
                change.kind.word(),
                change.diff
            );
            if out.len() + block.len() > MARKDOWN_BYTES_MAX {
                left_out += 1;
            } else {
                out.push_str(&block);
            }
        }
        if left_out > 0 {
            let _ = writeln!(out, "\n{left_out} more changes are left out; see `--output diff`.");
        }
    }
    out
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    let one_line = text.lines().collect::<Vec<_>>().join(" ");
    let short = weir_base::error::truncate(&one_line, 500);
    short.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace('`', "'")
}

/// The longest run of backticks.
fn longest_fence(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::change::Change;
    use super::super::report::tests::object;
    use super::*;

    fn report() -> Report {
        let mut report = Report::new(&[
            object("GitRepository", "fleet", json!({}), "True", "Succeeded", "stored"),
            object(
                "Kustomization",
                "apps",
                json!({"dependsOn": [{"name": "infra"}]}),
                "False",
                "DependencyNotReady",
                "dependency 'n/infra' is not ready",
            ),
            object(
                "Kustomization",
                "infra",
                json!({}),
                "False",
                "BuildFailed",
                "accumulating <resources>:\n\"x\" | y",
            ),
        ]);
        report.path = "./clusters/prod".to_owned();
        report.revision = "HEAD (0123456789ab)".to_owned();
        report.took = Duration::from_millis(1250);
        report.settled = true;
        report.base = Some("main".to_owned());
        report.changes = vec![Change {
            id: "ConfigMap/n/a".to_owned(),
            kind: Kind::Changed,
            diff: "@@ -1 +1 @@\n-a: 1\n+a: 2\n".to_owned(),
        }];
        report
    }

    #[test]
    fn trees() {
        insta::assert_snapshot!(tree(&report()), @r#"
        ✔ GitRepository/n/fleet
        ◎ Kustomization/n/apps                                     waits for Kustomization/n/infra
        ✗ Kustomization/n/infra                                    the build fails

        Problems:
        ✗ Kustomization/n/infra: the build fails
            accumulating <resources>:
            "x" | y
        ◎ Kustomization/n/apps: waits for Kustomization/n/infra
            dependency 'n/infra' is not ready

        Order:
          1. Kustomization/n/infra
          2. Kustomization/n/apps

        Changes from main: 0 added, 1 changed, 0 removed
          ~ ConfigMap/n/a

        ./clusters/prod of HEAD (0123456789ab): 1 ready, 1 failed, 1 waiting in 1.2s
        "#);
    }

    #[test]
    fn test_results() {
        let text = junit(&report());
        assert!(
            text.contains(
                "<testsuite name=\"./clusters/prod\" tests=\"3\" failures=\"2\" skipped=\"0\" time=\"1.250\">"
            ),
            "{text}"
        );
        assert!(text.contains("<failure type=\"BuildFailed\" message=\"the build fails\">accumulating &lt;resources&gt;:\n&quot;x&quot; | y</failure>"), "{text}");
    }

    #[test]
    fn comments_on_pull_requests() {
        let text = markdown(&report());
        assert!(text.starts_with("### ❌ Simulation of `./clusters/prod`\n"), "{text}");
        assert!(
            text.contains(
                "| `Kustomization/n/infra` | the build fails | accumulating &lt;resources>: \"x\" \\| y |"
            ),
            "{text}"
        );
        assert!(
            text.contains("<details><summary><code>ConfigMap/n/a</code> changed</summary>\n\n```diff\n"),
            "{text}"
        );
        let mut long = report();
        long.changes[0].diff = "+x\n".repeat(MARKDOWN_BYTES_MAX);
        assert!(markdown(&long).contains("1 more changes are left out"));
        assert_eq!(longest_fence("a ``` b ` c"), 3);
    }

    #[test]
    fn data() {
        let value = report().json();
        assert_eq!(value["good"], false);
        assert_eq!(value["objects"][2]["verdict"], "failed");
        assert_eq!(value["changes"][0]["change"], "changed");
        assert_eq!(diff(&report()), "► ConfigMap/n/a changed\n@@ -1 +1 @@\n-a: 1\n+a: 2\n\n");
    }
}
