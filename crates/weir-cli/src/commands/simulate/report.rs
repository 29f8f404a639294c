//! What became of a fleet's objects, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::adjust::OFFLINE;
use super::change::Change;
use super::pods;
use crate::kind::Kind;
use crate::view;

/// How an object ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Ready,
    Failed,
    /// It was not finished when the time was up, or waits for something that never came.
    Waiting,
    /// It needs something that is not fetched here.
    Blocked,
    /// It is not fetched here.
    Skipped,
}

impl Verdict {
    /// As reports write it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
            Self::Skipped => "skipped",
        }
    }

    /// Whether it makes the simulation fail.
    pub(crate) fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::Waiting)
    }
}

/// One object of the controllers' kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// `Kind/namespace/name`.
    pub(crate) id: String,
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// In a few words, why it is not ready; empty for those that are.
    pub(crate) diagnosis: String,
    /// What it names as its source and its dependencies.
    pub(crate) needs: Vec<String>,
    /// The Kustomization that made it.
    pub(crate) owner: String,
    /// Objects it manages.
    pub(crate) entries: usize,
}

/// The outcome of a simulation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) revision: String,
    pub(crate) path: String,
    pub(crate) took: Duration,
    /// The time that passed within the simulation.
    pub(crate) simulated: Duration,
    /// Nothing moved any more when it ended.
    pub(crate) settled: bool,
    pub(crate) rows: Vec<Row>,
    /// Objects that depend on each other in a circle.
    pub(crate) cycles: Vec<Vec<String>>,
    /// Steps: what stands in one needs only what stands in those before.
    pub(crate) order: Vec<Vec<String>>,
    /// Kinds that no definition brings, with their versions.
    pub(crate) missing_kinds: BTreeSet<String>,
    pub(crate) notes: Vec<String>,
    /// Compared with the base; none without one.
    pub(crate) base: Option<String>,
    pub(crate) changes: Vec<Change>,
}

impl Report {
    /// Says of health checks that failed what pods wait for.
    pub(crate) fn look_at_pods(&mut self, all: &[Value]) {
        for row in self.rows.iter_mut().filter(|row| row.message.contains("timeout waiting for: [")) {
            for line in pods::waiting(all, &row.message) {
                if !row.message.contains(&line) {
                    row.message.push('\n');
                    row.message.push_str(&line);
                }
            }
        }
    }

    /// Reads the objects as they are at the end.
    pub(crate) fn new(objects: &[Value]) -> Self {
        let mut rows: Vec<Row> = objects.iter().map(row).collect();
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        block(&mut rows);
        explain(&mut rows);
        let (order, cycles) = order(&rows);
        let missing_kinds = rows.iter().flat_map(|row| missing_kinds(&row.message)).collect();
        // A chart that is ready says nothing that its release does not say.
        rows.retain(|row| !row.id.starts_with("HelmChart/") || row.verdict != Verdict::Ready);
        Self { rows, cycles, order, missing_kinds, ..Self::default() }
    }

    /// How many objects have a verdict.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Whether the fleet works as far as can be told here.
    pub(crate) fn is_good(&self) -> bool {
        !self.rows.is_empty() && self.cycles.is_empty() && !self.rows.iter().any(|row| row.verdict.is_bad())
    }

    /// The report as data.
    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "id": row.id, "verdict": row.verdict.word(), "reason": row.reason, "message": row.message,
                    "diagnosis": row.diagnosis, "needs": row.needs, "owner": row.owner, "objects": row.entries,
                })
            })
            .collect();
        let changes: Vec<Value> = self
            .changes
            .iter()
            .map(|change| json!({"id": change.id, "change": change.kind.word(), "diff": change.diff}))
            .collect();
        json!({
            "revision": self.revision, "path": self.path, "seconds": self.took.as_secs_f64(),
            "simulatedSeconds": self.simulated.as_secs_f64(),
            "settled": self.settled, "good": self.is_good(), "objects": rows, "order": self.order,
            "cycles": self.cycles, "missingKinds": self.missing_kinds, "notes": self.notes,
            "base": self.base, "changes": changes,
        })
    }
}

/// `Kind/namespace/name`.
fn id(object: &Value) -> String {
    format!("{}/{}/{}", view::text(object, "/kind"), view::namespace(object), view::name(object))
}

/// What an object refers to: a kind, a namespace of its own or the object's, a name.
fn reference(object: &Value, reference: &Value, kind: &str) -> Option<String> {
    let name = reference["name"].as_str()?;
    let kind = reference["kind"].as_str().unwrap_or(kind);
    let namespace = reference["namespace"].as_str().unwrap_or_else(|| view::namespace(object));
    Some(format!("{kind}/{namespace}/{name}"))
}

fn row(object: &Value) -> Row {
    let spec = &object["spec"];
    let kind = view::text(object, "/kind");
    let mut needs = Vec::new();
    needs.extend(reference(object, &spec["sourceRef"], kind));
    needs.extend(reference(object, &spec["chartRef"], "HelmChart"));
    needs.extend(reference(object, &spec["chart"]["spec"]["sourceRef"], "HelmRepository"));
    if let Some((namespace, name)) = view::text(object, "/status/helmChart").split_once('/') {
        needs.push(format!("HelmChart/{namespace}/{name}"));
    }
    for dependency in spec["dependsOn"].as_array().into_iter().flatten() {
        needs.extend(reference(object, dependency, kind));
    }
    let known = Kind::named(kind);
    let is_static = known.is_some_and(|kind| view::is_static(kind, object));
    let ready = view::condition(object, "Ready");
    let current = object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation");
    let (verdict, reason, message) = if object["metadata"]["annotations"][OFFLINE].is_string() {
        (Verdict::Skipped, "Offline", "not fetched (--offline)")
    } else if view::is_suspended(object) {
        (Verdict::Ready, "Suspended", "suspended")
    } else if is_static {
        (Verdict::Ready, "", "")
    } else {
        match ready {
            None => (Verdict::Waiting, "", "its controller has not looked at it"),
            Some(ready) => {
                let (reason, message) = (view::text(ready, "/reason"), view::text(ready, "/message"));
                match view::text(ready, "/status") {
                    "True" if current => (Verdict::Ready, reason, message),
                    "False" if reason != "DependencyNotReady" => (Verdict::Failed, reason, message),
                    _ => (Verdict::Waiting, reason, message),
                }
            }
        }
    };
    let owner =
        match object.pointer("/metadata/labels/kustomize.toolkit.fluxcd.io~1name").and_then(Value::as_str) {
            Some(name) => {
                let namespace = view::text(object, "/metadata/labels/kustomize.toolkit.fluxcd.io~1namespace");
                format!("Kustomization/{namespace}/{name}")
            }
            None => String::new(),
        };
    Row {
        id: id(object),
        verdict,
        reason: reason.to_owned(),
        message: message.to_owned(),
        diagnosis: String::new(),
        needs,
        owner,
        entries: object.pointer("/status/inventory/entries").and_then(Value::as_array).map_or(0, Vec::len),
    }
}

/// What needs something that is not fetched here is not to blame.
fn block(rows: &mut [Row]) {
    loop {
        let out_of_reach: BTreeSet<String> = rows
            .iter()
            .filter(|row| matches!(row.verdict, Verdict::Skipped | Verdict::Blocked))
            .map(|row| row.id.clone())
            .collect();
        let mut changed = false;
        for row in rows.iter_mut().filter(|row| row.verdict.is_bad()) {
            let needs = row.needs.iter().any(|need| out_of_reach.contains(need))
                || row.message.contains("the controller runs offline");
            let names = || {
                // Health checks name what they wait for; of several, all must be out of reach.
                let Some((_, list)) = row.message.split_once("timeout waiting for: [") else { return false };
                let waits: Vec<&str> = list.split(", ").filter(|part| part.contains(" status: '")).collect();
                !waits.is_empty()
                    && waits
                        .iter()
                        .all(|part| part.split(' ').next().is_some_and(|name| out_of_reach.contains(name)))
            };
            if needs || names() {
                row.verdict = Verdict::Blocked;
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

/// What messages of controllers say, in a few words: the first that fits.
const CAUSES: &[(&str, &str)] = &[
    ("values don't meet the specifications of the schema", "values do not fit the schema of the chart"),
    ("execution error at (", "a template fails"),
    ("executing \"", "a template fails"),
    ("parse error at (", "a template cannot be read"),
    ("chart with version matching", "no version of the chart fits"),
    ("chart values reference", "values from elsewhere are missing"),
    ("substitute from '", "variables to substitute are missing"),
    ("variable substitution failed", "a variable cannot be substituted"),
    ("MalformedYAMLError", "YAML cannot be read"),
    ("yaml: unmarshal errors", "YAML cannot be read"),
    ("no such file or directory", "a file is missing"),
];

fn explain(rows: &mut [Row]) {
    let known: BTreeMap<String, (Verdict, String)> =
        rows.iter().map(|row| (row.id.clone(), (row.verdict, row.message.clone()))).collect();
    for row in rows.iter_mut().filter(|row| row.verdict != Verdict::Ready) {
        let absent = row.needs.iter().find(|need| !known.contains_key(*need));
        let unready =
            row.needs.iter().find(|need| known.get(*need).is_some_and(|(v, _)| *v != Verdict::Ready));
        row.diagnosis = if row.verdict == Verdict::Skipped {
            "is not fetched offline".to_owned()
        } else if row.verdict == Verdict::Blocked {
            "needs what is not fetched offline".to_owned()
        } else if let Some(kind) = missing_kinds(&row.message).first() {
            format!("no definition of {kind}")
        } else if row.message.contains("kustomization path not found") {
            "its path does not exist".to_owned()
        } else if let Some(absent) = absent {
            format!("needs {absent}, which does not exist")
        } else if let Some((_, cause)) = CAUSES.iter().find(|(part, _)| row.message.contains(part)) {
            (*cause).to_owned()
        } else {
            match (row.reason.as_str(), unready) {
                ("BuildFailed", _) => "the build fails".to_owned(),
                ("HealthCheckFailed", _) => "does not become healthy in time".to_owned(),
                ("PruneFailed", _) => "cannot delete what is no longer wanted".to_owned(),
                ("InstallFailed" | "UpgradeFailed" | "TestFailed" | "RollbackFailed", _) => {
                    "Helm fails".to_owned()
                }
                (_, Some(need)) => format!("waits for {need}"),
                ("ReconciliationFailed", _) => "cannot be applied".to_owned(),
                _ if row.verdict == Verdict::Waiting => "is not finished".to_owned(),
                _ if row.id.starts_with("Kustomization/") || row.id.starts_with("HelmRelease/") => {
                    "fails".to_owned()
                }
                _ if ["status code 404", "MANIFEST_UNKNOWN"]
                    .iter()
                    .any(|part| row.message.contains(part)) =>
                {
                    "does not exist where it is fetched from".to_owned()
                }
                _ => "cannot be fetched".to_owned(),
            }
        };
    }
}

/// The kinds that a message misses, as `Kind (group/version)`.
fn missing_kinds(message: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in message.split("no matches for kind \"").skip(1) {
        let Some((kind, rest)) = part.split_once('"') else { continue };
        let version = rest.strip_prefix(" in version \"").and_then(|rest| rest.split('"').next());
        found.push(format!("{kind} ({})", version.unwrap_or_default()));
    }
    found
}

/// Objects by the step they can begin in, and the circles among them.
fn order(rows: &[Row]) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let reconciled = |id: &str| id.starts_with("Kustomization/") || id.starts_with("HelmRelease/");
    let mut left: BTreeMap<&str, BTreeSet<&str>> = rows
        .iter()
        .filter(|row| reconciled(&row.id))
        .map(|row| {
            // What made an object comes before it too.
            let owner = Some(row.owner.as_str()).filter(|owner| !owner.is_empty() && *owner != row.id);
            let needs = row.needs.iter().map(String::as_str).filter(|need| reconciled(need));
            (row.id.as_str(), needs.chain(owner).collect())
        })
        .collect();
    let known: BTreeSet<&str> = left.keys().copied().collect();
    for needs in left.values_mut() {
        needs.retain(|need| known.contains(need));
    }
    let mut order = Vec::new();
    loop {
        let step: Vec<&str> = left.iter().filter(|(_, needs)| needs.is_empty()).map(|(id, _)| *id).collect();
        if step.is_empty() {
            break;
        }
        for id in &step {
            left.remove(id);
        }
        for needs in left.values_mut() {
            needs.retain(|need| !step.contains(need));
        }
        order.push(step.into_iter().map(str::to_owned).collect());
    }
    let mut cycles: Vec<Vec<String>> = Vec::new();
    for start in left.keys().copied() {
        let mut path = vec![start];
        while let Some(next) = path.last().and_then(|id| left.get(id)?.first().copied()) {
            if let Some(begin) = path.iter().position(|id| *id == next) {
                let mut cycle: Vec<String> = path[begin..].iter().map(|id| (*id).to_owned()).collect();
                let smallest =
                    cycle.iter().enumerate().min_by_key(|(_, id)| (*id).clone()).map_or(0, |(at, _)| at);
                cycle.rotate_left(smallest);
                if !cycles.contains(&cycle) {
                    cycles.push(cycle);
                }
                break;
            }
            path.push(next);
        }
    }
    (order, cycles)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "rows read better without borrows")]
    pub(crate) fn object(
        kind: &str,
        name: &str,
        spec: Value,
        status: &str,
        reason: &str,
        message: &str,
    ) -> Value {
        json!({
            "kind": kind,
            "metadata": {"name": name, "namespace": "n", "generation": 1},
            "spec": spec,
            "status": {
                "observedGeneration": 1,
                "conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}],
            },
        })
    }

    fn verdicts(report: &Report) -> Vec<(&str, Verdict, &str)> {
        report.rows.iter().map(|row| (row.id.as_str(), row.verdict, row.diagnosis.as_str())).collect()
    }

    #[test]
    fn each_object_says_why_it_is_not_ready() {
        let report = Report::new(&[
            object("GitRepository", "fleet", json!({}), "True", "Succeeded", "stored artifact"),
            object(
                "Kustomization",
                "apps",
                json!({"sourceRef": {"kind": "GitRepository", "name": "fleet"}, "dependsOn": [{"name": "infra"}]}),
                "False",
                "DependencyNotReady",
                "dependency 'n/infra' is not ready",
            ),
            object(
                "Kustomization",
                "infra",
                json!({}),
                "False",
                "ReconciliationFailed",
                "Certificate/n/x dry-run failed: no matches for kind \"Certificate\" in version \"cert-manager.io/v1\"",
            ),
            object(
                "Kustomization",
                "lost",
                json!({"dependsOn": [{"name": "nobody"}]}),
                "False",
                "DependencyNotReady",
                "not found",
            ),
            object(
                "Kustomization",
                "typo",
                json!({}),
                "False",
                "BuildFailed",
                "kustomization path not found",
            ),
        ]);
        assert_eq!(
            verdicts(&report),
            [
                ("GitRepository/n/fleet", Verdict::Ready, ""),
                ("Kustomization/n/apps", Verdict::Waiting, "waits for Kustomization/n/infra"),
                (
                    "Kustomization/n/infra",
                    Verdict::Failed,
                    "no definition of Certificate (cert-manager.io/v1)"
                ),
                (
                    "Kustomization/n/lost",
                    Verdict::Waiting,
                    "needs Kustomization/n/nobody, which does not exist"
                ),
                ("Kustomization/n/typo", Verdict::Failed, "its path does not exist"),
            ]
        );
        assert_eq!(report.missing_kinds.iter().collect::<Vec<_>>(), ["Certificate (cert-manager.io/v1)"]);
        assert!(!report.is_good());
    }

    #[test]
    fn what_needs_the_network_is_not_blamed() {
        let mut repository = object("HelmRepository", "charts", json!({"suspend": true}), "False", "", "");
        repository["metadata"]["annotations"] = json!({OFFLINE: "true"});
        let chart = json!({"chart": {"spec": {"sourceRef": {"kind": "HelmRepository", "name": "charts"}}}});
        let waits =
            "health check failed after 1m0s: timeout waiting for: [HelmRelease/n/db status: 'InProgress']";
        let more = "timeout waiting for: [HelmRelease/n/db status: 'InProgress', Deployment/n/web status: 'InProgress']";
        let report = Report::new(&[
            repository,
            object("HelmRelease", "db", chart, "False", "SourceNotReady", "HelmChart 'n/n-db' is not ready"),
            object("Kustomization", "all", json!({}), "False", "HealthCheckFailed", waits),
            object("Kustomization", "more", json!({}), "False", "HealthCheckFailed", more),
        ]);
        let found: Vec<Verdict> = report.rows.iter().map(|row| row.verdict).collect();
        assert_eq!(found, [Verdict::Blocked, Verdict::Skipped, Verdict::Blocked, Verdict::Failed]);
    }

    #[test]
    fn steps_and_circles() {
        let depends = |on: &str| json!({"dependsOn": [{"name": on}]});
        let report = Report::new(&[
            object("Kustomization", "a", json!({}), "True", "", ""),
            object("Kustomization", "b", depends("a"), "True", "", ""),
            object("Kustomization", "c", depends("d"), "False", "DependencyNotReady", ""),
            object("Kustomization", "d", depends("c"), "False", "DependencyNotReady", ""),
            object("Kustomization", "e", depends("d"), "False", "DependencyNotReady", ""),
        ]);
        assert_eq!(report.order, [["Kustomization/n/a"], ["Kustomization/n/b"]]);
        assert_eq!(report.cycles, [["Kustomization/n/c", "Kustomization/n/d"]]);
        assert!(!report.is_good());
    }
}
