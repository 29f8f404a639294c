//! Logs as the reference writes them: one JSON object per line on stderr, with the keys that
//! `flux logs` and people's queries know.

use std::fmt;
use std::io::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Scope};
use tracing_subscriber::util::SubscriberInitExt as _;

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// One JSON object per line.
    Json,
    /// Time, level, message and fields, separated by tabs.
    Console,
}

impl Encoding {
    /// The encoding of `--log-encoding`; anything but `console` is JSON, as in the reference.
    pub fn from_flag(text: &str) -> Self {
        if text == "console" { Self::Console } else { Self::Json }
    }
}

/// The level of `--log-level`; an unknown one is `info`, as in the reference.
pub fn level_from_flag(text: &str) -> Level {
    match text {
        "trace" => Level::TRACE,
        "debug" => Level::DEBUG,
        "error" => Level::ERROR,
        _ => Level::INFO,
    }
}

/// Sends all logs of the process to stderr from now on, panics too. Does nothing if logs already go
/// somewhere.
pub fn init(level: Level, encoding: Encoding) {
    let layer = layer(level, encoding, std::io::stderr);
    if tracing_subscriber::registry().with(layer).try_init().is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let location = panic.location().map(ToString::to_string).unwrap_or_default();
            let text = panic.payload_as_str().unwrap_or("unknown panic");
            tracing::error!(error = text, location, "panic");
        }));
    }
}

/// The layer behind [`init`], for another writer.
pub fn layer<S, W>(level: Level, encoding: Encoding, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    Lines { encoding, writer }.with_filter(filter_fn(move |metadata| wanted(metadata, level)))
}

/// Our own lines from the chosen level, those of libraries only if they are warnings; all at trace.
fn wanted(metadata: &Metadata<'_>, level: Level) -> bool {
    let threshold = if is_ours(metadata.target()) {
        level
    } else if level == Level::TRACE {
        Level::DEBUG
    } else if tells_us_anyway(metadata.target()) && level < Level::DEBUG {
        return false;
    } else {
        Level::WARN.min(level)
    };
    metadata.is_span() && is_ours(metadata.target()) || *metadata.level() <= threshold
}

/// Libraries that log an error and return it too.
fn tells_us_anyway(target: &str) -> bool {
    ["kube", "tower_http"].iter().any(|library| target.starts_with(library))
}

fn is_ours(target: &str) -> bool {
    target.starts_with("weir")
}

struct Lines<W> {
    encoding: Encoding,
    writer: W,
}

/// The fields of a span, kept while it lives.
struct SpanFields(Map<String, Value>);

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Map::new();
        attributes.record(&mut Collect(&mut fields));
        add_object(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(SpanFields(fields)) = span.extensions_mut().get_mut()
        {
            values.record(&mut Collect(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Map::new();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(SpanFields(of_span)) = span.extensions().get() {
                fields.extend(of_span.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
        }
        event.record(&mut Collect(&mut fields));
        let message = match fields.remove("message") {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let metadata = event.metadata();
        if !is_ours(metadata.target()) {
            fields.insert("logger".to_owned(), Value::from("runtime"));
        }
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        let line = match self.encoding {
            Encoding::Json => json_line(&time, *metadata.level(), message, fields),
            Encoding::Console => console_line(&time, *metadata.level(), &message, &fields),
        };
        // There is nowhere to report that stderr is closed.
        let _ = self.writer.make_writer_for(metadata).write_all(line.as_bytes());
    }
}

/// The reference names the object once more under its kind.
fn add_object(fields: &mut Map<String, Value>) {
    let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
    if let (Some(kind), Some(namespace), Some(name)) =
        (text("controllerKind"), text("namespace"), text("name"))
    {
        fields.insert(kind, serde_json::json!({"name": name, "namespace": namespace}));
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        // The reference has no warnings.
        Level::WARN | Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

fn json_line(time: &str, level: Level, message: String, mut fields: Map<String, Value>) -> String {
    let mut line = String::from("{");
    let logger = fields.remove("logger");
    let head = [
        ("level", Some(Value::from(level_name(level)))),
        ("ts", Some(Value::from(time))),
        ("logger", logger),
        ("msg", Some(Value::from(message))),
    ];
    let head = head.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    for (key, value) in head.chain(fields) {
        if line.len() > 1 {
            line.push(',');
        }
        line.push_str(&Value::from(key).to_string());
        line.push(':');
        line.push_str(&value.to_string());
    }
    line.push_str("}\n");
    line
}

fn console_line(time: &str, level: Level, message: &str, fields: &Map<String, Value>) -> String {
    let level = level_name(level).to_uppercase();
    if fields.is_empty() {
        return format!("{time}\t{level}\t{message}\n");
    }
    format!("{time}\t{level}\t{message}\t{}\n", Value::from(fields.clone()))
}

struct Collect<'a>(&'a mut Map<String, Value>);

impl Collect<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        let name = field.name();
        self.0.insert(name.strip_prefix("r#").unwrap_or(name).to_owned(), value);
    }
}

impl Visit for Collect<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::from(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::from(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, Value::from(weir_base::error::chain(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What `work` logs, with the time cut out.
    fn logged(level: Level, encoding: Encoding, work: impl FnOnce()) -> Vec<String> {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::registry().with(layer(level, encoding, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, work);
        let text = String::from_utf8(sink.0.lock().clone()).unwrap();
        text.lines()
            .map(|line| match line.find("20") {
                Some(start) => format!("{}TIME{}", &line[..start], &line[start + 24..]),
                None => line.to_owned(),
            })
            .collect()
    }

    #[test]
    fn a_line_carries_the_keys_of_the_reference() {
        let lines = logged(Level::INFO, Encoding::Json, || {
            let span = tracing::info_span!(
                "reconcile",
                controller = "kustomization",
                controllerGroup = "kustomize.toolkit.fluxcd.io",
                controllerKind = "Kustomization",
                namespace = "flux-system",
                name = "apps",
                reconcileID = "b3",
            );
            let _entered = span.enter();
            tracing::info!(revision = "main@sha1:4f2c", changed = 3, "server-side apply completed");
            tracing::error!(error = "boom", "Reconciliation failed");
        });
        assert_eq!(
            lines,
            [
                r#"{"level":"info","ts":"TIME","msg":"server-side apply completed","Kustomization":{"name":"apps","namespace":"flux-system"},"changed":3,"controller":"kustomization","controllerGroup":"kustomize.toolkit.fluxcd.io","controllerKind":"Kustomization","name":"apps","namespace":"flux-system","reconcileID":"b3","revision":"main@sha1:4f2c"}"#,
                r#"{"level":"error","ts":"TIME","msg":"Reconciliation failed","Kustomization":{"name":"apps","namespace":"flux-system"},"controller":"kustomization","controllerGroup":"kustomize.toolkit.fluxcd.io","controllerKind":"Kustomization","error":"boom","name":"apps","namespace":"flux-system","reconcileID":"b3"}"#,
            ]
        );
    }

    #[test]
    fn libraries_are_quiet_unless_they_warn() {
        let lines = logged(Level::DEBUG, Encoding::Json, || {
            tracing::debug!(target: "hyper::client", "connecting");
            tracing::warn!(target: "hyper::client", "odd");
            tracing::debug!("ours");
        });
        assert_eq!(
            lines,
            [
                r#"{"level":"info","ts":"TIME","logger":"runtime","msg":"odd"}"#,
                r#"{"level":"debug","ts":"TIME","msg":"ours"}"#,
            ]
        );
    }

    #[test]
    fn an_error_that_is_also_returned_is_not_logged_twice() {
        let work = || tracing::error!(target: "kube_client::client::builder", "failed with status 503");
        assert!(logged(Level::INFO, Encoding::Json, work).is_empty());
        assert_eq!(logged(Level::DEBUG, Encoding::Json, work).len(), 1);
    }

    #[test]
    fn an_error_level_shows_only_errors() {
        let lines = logged(Level::ERROR, Encoding::Console, || {
            tracing::warn!(target: "hyper::client", "odd");
            tracing::info!("quiet");
            tracing::error!(objects = 2, "loud");
        });
        assert_eq!(lines, ["TIME\tERROR\tloud\t{\"objects\":2}"]);
    }

    #[test]
    fn unknown_levels_and_encodings_fall_back() {
        assert_eq!(level_from_flag("verbose"), Level::INFO);
        assert_eq!(Encoding::from_flag("xml"), Encoding::Json);
    }
}
