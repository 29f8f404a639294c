//! Runs one case against one server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::answer::{Names, select_text};
use crate::case::{Case, Step, Verb, complete, definition, whole_path};
use crate::endpoint::{Endpoint, Received, Sent};
use crate::variables::Variables;

/// How often a condition is looked at while it does not hold.
const POLL: std::time::Duration = std::time::Duration::from_millis(40);

/// The requests of a case and their comparable answers.
pub(crate) struct Outcome {
    pub(crate) answers: Vec<Value>,
    pub(crate) requests: Vec<String>,
    /// Why the case could not be run to its end.
    pub(crate) broken: Option<String>,
}

struct Run<'a> {
    endpoint: &'a Endpoint,
    variables: Variables,
    names: Names,
    outcome: Outcome,
    /// Objects outside the namespace, in the order of their creation.
    created: Vec<String>,
}

/// Names of namespaces never repeat, neither within a run nor on a server that other runs used.
fn fresh_name() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static START: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    let start = START.get_or_init(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() % 100_000_000
    });
    format!("tc-{start:08}-{:04}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Runs the steps of a case; always cleans up.
pub(crate) async fn run(endpoint: &Endpoint, case: &Case) -> Outcome {
    let namespace = fresh_name();
    let mut run = Run {
        endpoint,
        variables: Variables { group: format!("{namespace}.weir.test"), namespace, ..Variables::default() },
        names: Names::default(),
        outcome: Outcome { answers: Vec::new(), requests: Vec::new(), broken: None },
        created: Vec::new(),
    };
    if let Err(why) = run.steps(case).await {
        run.outcome.broken = Some(why);
    }
    run.clean_up(case).await;
    run.outcome
}

impl Run<'_> {
    async fn steps(&mut self, case: &Case) -> Result<(), String> {
        if case.namespace {
            let body = json!({"metadata": {"name": self.variables.namespace}});
            let received = self.endpoint.send(&plain("POST", "/api/v1/namespaces", Some(&body))).await?;
            if received.code != 201 {
                return Err(format!("create the namespace: {} {}", received.code, received.body));
            }
        }
        for step in &case.steps {
            match step.texts("each") {
                Some(list) => {
                    for each in list {
                        self.variables.each = Some(each);
                        self.step(step).await?;
                    }
                    self.variables.each = None;
                }
                None => self.step(step).await?,
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        if step.verb == Verb::Crd {
            return self.install(step).await;
        }
        let sent = self.request(step);
        let started = Instant::now();
        let received = loop {
            let received = if step.verb == Verb::Watch {
                let take = step.fields.get("take").and_then(Value::as_u64).map(|take| take as usize);
                self.endpoint.watch(&sent, take).await
            } else {
                self.endpoint.send(&sent).await
            }
            .map_err(|why| format!("{}: {why}", line(&sent)))?;
            match step.fields.get("until") {
                Some(condition) if !holds(&self.variables.fill_value(condition), &received) => {
                    if started.elapsed() > self.endpoint.patience {
                        return Err(format!(
                            "{}: not {condition} within {:?}; last answer: {} {}",
                            line(&sent),
                            self.endpoint.patience,
                            received.code,
                            received.body
                        ));
                    }
                    tokio::time::sleep(POLL).await;
                }
                _ => break received,
            }
        };
        self.remember(step, &sent, &received);
        if step.is_set("quiet") {
            if received.code >= 300 {
                return Err(format!("{}: {} {}", line(&sent), received.code, received.body));
            }
            // Names are given in the order of appearance, so a quiet answer gives its own too.
            let _ = self.names.answer(&received, step, &self.variables);
            return Ok(());
        }
        let answer = self.names.answer(&received, step, &self.variables);
        self.outcome.requests.push(line(&sent));
        self.outcome.answers.push(answer);
        Ok(())
    }

    fn remember(&mut self, step: &Step, sent: &Sent, received: &Received) {
        if let Some(name) = step.text("save") {
            self.variables.saved.insert(name.to_owned(), received.body.clone());
        }
        let outside = !sent.path.contains("/namespaces/") && !sent.path.contains("dryRun");
        let name = received.body.pointer("/metadata/name").and_then(Value::as_str);
        if let (true, true, Some(name)) = (outside, received.code == 201, name) {
            let path = sent.path.split('?').next().unwrap();
            let path =
                if sent.method == http::Method::POST { format!("{path}/{name}") } else { path.to_owned() };
            self.created.push(path);
        }
    }

    fn request(&self, step: &Step) -> Sent {
        let mut path =
            whole_path(&self.variables.fill(&step.path), &self.variables.namespace, &self.variables.group);
        let mut query = Vec::new();
        if step.verb == Verb::Apply {
            query.push(format!("fieldManager={}", step.text("manager").unwrap_or("one")));
            if step.is_set("force") {
                query.push("force=true".to_owned());
            }
        }
        if step.verb == Verb::Watch {
            query.push("watch=true".to_owned());
        }
        if !query.is_empty() {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(&query.join("&"));
        }
        let body = if let Some(raw) = step.text("raw") {
            Some(self.variables.fill(raw))
        } else {
            step.fields.get("body").map(|body| {
                let mut body = self.variables.fill_value(body);
                if !step.is_set("bare") && matches!(step.verb, Verb::Post | Verb::Put | Verb::Apply) {
                    complete(&mut body, &path, step.verb != Verb::Post);
                }
                body.to_string()
            })
        };
        let mut headers = vec![("user-agent".to_owned(), "conformance/1.0".to_owned())];
        let content_type = match (step.text("type"), step.verb) {
            (None, Verb::Apply) => Some("application/apply-patch+yaml"),
            (None, _) => body.is_some().then_some("application/json"),
            (Some("merge"), _) => Some("application/merge-patch+json"),
            (Some("strategic"), _) => Some("application/strategic-merge-patch+json"),
            (Some("json-patch"), _) => Some("application/json-patch+json"),
            (Some("yaml"), _) => Some("application/yaml"),
            (Some(other), _) => Some(other),
        };
        if let Some(content_type) = content_type {
            headers.push(("content-type".to_owned(), content_type.to_owned()));
        }
        let accept = match step.text("accept") {
            None => "application/json",
            Some("table") => "application/json;as=Table;v=v1;g=meta.k8s.io",
            Some("partial") => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Some("partial-list") => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Some(other) => other,
        };
        headers.push(("accept".to_owned(), accept.to_owned()));
        if let Some(user) = step.text("as") {
            headers.push(("impersonate-user".to_owned(), self.variables.fill(user)));
        }
        for group in step.texts("groups").unwrap_or_default() {
            headers.push(("impersonate-group".to_owned(), self.variables.fill(&group)));
        }
        if let Some(extra) = step.fields.get("headers").and_then(Value::as_object) {
            for (name, value) in extra {
                headers.push((name.to_lowercase(), self.variables.fill(value.as_str().unwrap())));
            }
        }
        let method = step.text("method").map_or_else(|| step.verb.method(), |method| method.parse().unwrap());
        Sent { method, path, headers, body }
    }

    /// Installs a definition and waits until all its versions are served.
    async fn install(&mut self, step: &Step) -> Result<(), String> {
        let definition = definition(step, &self.variables.group);
        let definition = self.variables.fill_value(&definition);
        let collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let received = self.endpoint.send(&plain("POST", collection, Some(&definition))).await?;
        if received.code != 201 {
            return Err(format!("install the definition: {} {}", received.code, received.body));
        }
        self.created.push(format!("{collection}/{}.{}", step.path, self.variables.group));
        let started = Instant::now();
        for version in definition["spec"]["versions"].as_array().unwrap() {
            if version["served"] != true {
                continue;
            }
            let path =
                format!("/apis/{}/{}/{}", self.variables.group, version["name"].as_str().unwrap(), step.path);
            while self.endpoint.send(&plain("GET", &path, None)).await?.code != 200 {
                if started.elapsed() > self.endpoint.patience {
                    return Err(format!("'{path}' is not served"));
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }

    async fn clean_up(&self, case: &Case) {
        let mut paths: Vec<String> = self.created.iter().rev().cloned().collect();
        if case.namespace {
            paths.push(format!("/api/v1/namespaces/{}", self.variables.namespace));
        }
        for path in paths {
            // What is gone already, or cannot go, is no concern of the case.
            let _ = self.endpoint.send(&plain("DELETE", &path, None)).await;
        }
    }
}

fn holds(condition: &Value, received: &Received) -> bool {
    if let Some(code) = condition.get("code") {
        return *code == received.code;
    }
    let Some(at) = condition.get("at").and_then(Value::as_str) else { return false };
    let found = select_text(&received.body, at);
    match condition.get("is") {
        Some(Value::Null) => found.is_none(),
        Some(wanted) => found.as_ref() == Some(wanted),
        None => found.is_some(),
    }
}

fn plain(method: &str, path: &str, body: Option<&Value>) -> Sent {
    Sent {
        method: method.parse().unwrap(),
        path: path.to_owned(),
        headers: vec![
            ("user-agent".to_owned(), "conformance/1.0".to_owned()),
            ("accept".to_owned(), "application/json".to_owned()),
            ("content-type".to_owned(), "application/json".to_owned()),
        ],
        body: body.map(ToString::to_string),
    }
}

fn line(sent: &Sent) -> String {
    let mut text = format!("{} {}", sent.method, sent.path);
    for (name, value) in &sent.headers {
        if !matches!(
            (name.as_str(), value.as_str()),
            ("user-agent", _) | ("accept" | "content-type", "application/json")
        ) {
            text.push_str("\n  ");
            text.push_str(name);
            text.push_str(": ");
            text.push_str(value);
        }
    }
    if let Some(body) = &sent.body {
        text.push_str("\n  ");
        text.push_str(&body.chars().take(2000).collect::<String>());
    }
    text
}
