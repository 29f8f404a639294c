//! `weir helm`: charts, handled as the `helm` command does.

use std::fs;
use std::io::{self, Read as _};
use std::net::ToSocketAddrs as _;
use std::path::Path;

use clap::{Args, Subcommand};
use rand::Rng as _;
use weir_base::clock::{Clock as _, SystemClock};
use weir_gotemplate::Host;
use weir_helm::chart::Chart;
use weir_helm::set::{self, Reader};
use weir_helm::values::{self, Table};

use crate::arguments::GlobalArguments;
use crate::error::Error;

mod dependency;
mod fetch;
mod jsonpath;
mod lint;
mod package;
mod provenance;
mod repositories;
mod show;
mod template;
mod tree;

/// Arguments of `weir helm`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Helm,
    /// Print what was rendered even if it is not valid
    #[arg(long, global = true)]
    debug: bool,
}

#[derive(Debug, Subcommand)]
enum Helm {
    /// Render the templates of a chart
    Template(Box<template::Arguments>),
    /// Check whether charts are well-formed
    Lint(lint::Arguments),
    /// Print what is in a chart
    #[command(visible_alias = "inspect")]
    Show(show::Arguments),
    /// Make archives of chart directories
    Package(package::Arguments),
    /// Handle the charts a chart needs
    #[command(visible_aliases = ["dep", "dependencies"])]
    Dependency(dependency::Arguments),
}

/// Runs the sub-command.
pub(crate) fn run(global: &GlobalArguments, arguments: &Arguments) -> Result<(), Error> {
    match &arguments.command {
        Helm::Template(template) => template::run(global, template, arguments.debug),
        Helm::Lint(lint) => lint::run(global, lint),
        Helm::Show(show) => show::run(show),
        Helm::Package(package) => package::run(package),
        Helm::Dependency(dependency) => dependency::run(dependency),
    }
}

/// Flags with values for a chart. Later kinds win over earlier ones: files, JSON, typed, text, files as text, literal.
#[derive(Debug, Args)]
pub(crate) struct ValueArguments {
    /// File or address with values, or - for stdin; may be repeated
    #[arg(short = 'f', long = "values", value_name = "FILE", value_delimiter = ',')]
    files: Vec<String>,
    /// Set values: a.b=1,c=x; may be repeated
    #[arg(long = "set", value_name = "ASSIGNMENTS")]
    typed: Vec<String>,
    /// Set values that stay text
    #[arg(long = "set-string", value_name = "ASSIGNMENTS")]
    text: Vec<String>,
    /// Set values to the content of files
    #[arg(long = "set-file", value_name = "ASSIGNMENTS")]
    content: Vec<String>,
    /// Set values to JSON: a.b={"c":1}, or a whole {"a":{"b":1}}
    #[arg(long = "set-json", value_name = "ASSIGNMENTS")]
    json: Vec<String>,
    /// Set one value to all that follows the equals sign
    #[arg(long = "set-literal", value_name = "ASSIGNMENT")]
    literal: Vec<String>,
}

impl ValueArguments {
    /// All values together.
    fn merge(&self) -> Result<Table, Error> {
        let mut all = Table::new();
        for path in &self.files {
            let text = read_values(path).map_err(Error::Helm)?;
            let values = values::read_stream(&text)
                .map_err(|error| Error::Helm(format!("failed to parse {path}: {error}")))?;
            values::merge_over(&mut all, values);
        }
        for text in &self.json {
            if text.trim_start().starts_with('{') {
                let values = serde_json::from_str(text.trim())
                    .map_err(|_| Error::Helm(format!("failed parsing --set-json data JSON: {text}")))?;
                if let serde_json::Value::Object(values) = values::with_floats(values) {
                    values::merge_over(&mut all, values);
                }
            } else {
                set::apply(&mut all, text, &Reader::Json)
                    .map_err(|_| Error::Helm(format!("failed parsing --set-json data {text}")))?;
            }
        }
        let content = |path: &str| read_values(path).map(|data| String::from_utf8_lossy(&data).into_owned());
        let kinds = [
            ("set", &self.typed, Reader::Typed),
            ("set-string", &self.text, Reader::Text),
            ("set-file", &self.content, Reader::File(&content)),
            ("set-literal", &self.literal, Reader::Literal),
        ];
        for (flag, texts, reader) in kinds {
            for text in texts {
                set::apply(&mut all, text, &reader)
                    .map_err(|error| Error::Helm(format!("failed parsing --{flag} data: {error}")))?;
            }
        }
        Ok(all)
    }
}

/// The text of a file of values.
fn read_values(path: &str) -> Result<Vec<u8>, String> {
    if path.trim() == "-" {
        let mut data = Vec::new();
        io::stdin().lock().read_to_end(&mut data).map_err(|error| error.to_string())?;
        return Ok(data);
    }
    if path.starts_with("http://") || path.starts_with("https://") || path.starts_with("oci://") {
        return fetch::values(path);
    }
    fs::read(path).map_err(|error| go_error("open", path, &error))
}

/// An error of the file system in Go's words.
fn go_error(action: &str, path: &str, error: &io::Error) -> String {
    let cause = match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        io::ErrorKind::AlreadyExists => "file exists".to_owned(),
        _ => error.to_string(),
    };
    format!("{action} {path}: {cause}")
}

/// Loads a chart directory or archive.
pub(super) fn load(path: &Path) -> Result<Chart, Error> {
    let chart = if path.is_dir() { load_directory(path) } else { load_archive(path) };
    chart.map_err(Error::Helm)
}

fn load_archive(path: &Path) -> Result<Chart, String> {
    let shown = path.display().to_string();
    let data = fs::read(path).map_err(|error| go_error("open", &shown, &error))?;
    Chart::from_archive(&data).map_err(|error| error.to_string())
}

fn load_directory(path: &Path) -> Result<Chart, String> {
    let shown = path.display().to_string();
    let path = std::path::absolute(path).map_err(|error| go_error("stat", &shown, &error))?;
    let root = path.to_str().ok_or_else(|| format!("path {shown:?} is not UTF-8"))?;
    Chart::from_tree(&tree::Machine, root.trim_matches('/')).map_err(|error| error.to_string())
}

/// The namespace templates see: the flag, `HELM_NAMESPACE`, that of the kubeconfig context, or `default`.
fn namespace(global: &GlobalArguments) -> String {
    if global.namespace_given {
        return global.namespace.clone();
    }
    if let Some(namespace) = std::env::var("HELM_NAMESPACE").ok().filter(|name| !name.is_empty()) {
        return namespace;
    }
    context_namespace(global).filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned())
}

fn context_namespace(global: &GlobalArguments) -> Option<String> {
    let config = match &global.kubeconfig {
        Some(path) => kube::config::Kubeconfig::read_from(path).ok()?,
        None => kube::config::Kubeconfig::read().ok()?,
    };
    let name = global.context.clone().or(config.current_context)?;
    config.contexts.into_iter().find(|context| context.name == name)?.context?.namespace
}

/// Clock, randomness and name resolution of this machine.
struct Machine {
    resolve_names: bool,
    lint: bool,
}

impl Host for Machine {
    fn now(&mut self) -> (i64, u32) {
        let now = SystemClock.now();
        (now.as_second(), u32::try_from(now.subsec_nanosecond()).unwrap_or_default())
    }

    fn random(&mut self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }

    fn resolve(&mut self, name: &str) -> Result<String, String> {
        if !self.resolve_names {
            return Ok(String::new());
        }
        let mut addresses = (name, 0).to_socket_addrs().map_err(|error| error.to_string())?;
        Ok(addresses.next().map(|address| address.ip().to_string()).unwrap_or_default())
    }

    fn lint(&self) -> bool {
        self.lint
    }
}
