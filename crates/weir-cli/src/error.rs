//! What can go wrong, in words for the person at the keyboard.

use std::io;

use weir_api::GoDuration;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Already told; only the exit code is left.
    #[error("failed")]
    Reported,
    #[error("failed to start")]
    Runtime(#[source] io::Error),
    #[error("failed to write the output")]
    Write(#[source] io::Error),
    #[error("namespace must be a valid DNS label: {0:?}")]
    Namespace(String),
    #[error("failed to read the kubeconfig")]
    Kubeconfig(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("failed to read '{path}'")]
    File {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("failed to write '{path}'")]
    WriteFile {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("--{flag} is not supported: {why}")]
    Refused { flag: &'static str, why: &'static str },
    /// The text is that of the `helm` command.
    #[error("{0}")]
    Helm(String),
    #[error("--{flag} is malformed: '{value}'")]
    Flag { flag: &'static str, value: String },
    #[error("failed to connect to the cluster")]
    Connect(#[source] kube::Error),
    #[error("failed to {action}")]
    Api {
        action: String,
        #[source]
        source: kube::Error,
    },
    #[error("the cluster does not know objects of kind {kind}")]
    KindUnknown { kind: &'static str },
    #[error(transparent)]
    Local(#[from] crate::local::LocalError),
    #[error(transparent)]
    Simulate(#[from] crate::commands::simulate::SimulateError),
    #[error(transparent)]
    Dev(#[from] crate::commands::dev::DevError),
    #[error("{kind} name is required")]
    NameRequired { kind: &'static str },
    #[error("no {kind} objects found in {scope} namespace")]
    NoneFound { kind: &'static str, scope: String },
    #[error("{kind} object '{name}' not found in {scope} namespace")]
    NotFound { kind: &'static str, name: String, scope: String },
    #[error("no objects found")]
    NothingToDo,
    #[error("expected status selector in type=status or type!=status format, but found: {0}")]
    StatusSelector(String),
    #[error("expected a single resource type, but found {0}")]
    WatchAll(&'static str),
    #[error("resource is suspended")]
    Suspended { human: &'static str, name: String, namespace: String },
    #[error("cannot reconcile source of kind {0}")]
    SourceKind(String),
    #[error("'{field}' is missing in {subject}")]
    FieldMissing { field: &'static str, subject: String },
    #[error("{kind} reconciliation failed: '{message}'")]
    ReconcileFailed { kind: &'static str, message: String },
    #[error("context deadline exceeded: waited {after} for {subject}: {last}")]
    DeadlineExceeded { subject: String, after: GoDuration, last: String },
    #[error("aborting")]
    Aborted,
    #[error("no controllers found in {namespace} namespace")]
    NoControllers { namespace: String },
    #[error("the server doesn't have a resource type {0:?}")]
    ResourceUnknown(String),
    #[error(
        "either `<resource>/<name>`, `<resource> <name>`, or --kind and --api-version with a name must be given"
    )]
    TraceArguments,
    #[error("{subject} not found in {scope} namespace")]
    ObjectNotFound { subject: String, scope: String },
    #[error("object not managed by Flux")]
    Unmanaged,
    #[error("no such directory: '{path}'")]
    Directory { path: String },
    #[error("malformed {what}")]
    Malformed {
        what: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("kustomize build failed")]
    Build(#[source] weir_kustomize::Error),
    #[error("failed to substitute variables in line {line}")]
    Substitute {
        line: usize,
        #[source]
        source: weir_kustomize::Error,
    },
    #[error("check failed")]
    CheckFailed,
    #[error("invalid object reference '{0}', must be <Kind> or <Kind>/<name>")]
    Reference(String),
    #[error("failed to read the release of {subject}: {problem}")]
    Release { subject: String, problem: String },
}

/// The text of an error with its causes, without what only a programmer would want to read.
pub(crate) fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let line = match cause.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => {
                text.push_str(": ");
                text.push_str(if status.message.is_empty() { &status.reason } else { &status.message });
                break;
            }
            // These only repeat the name of their variant.
            Some(kube::Error::Service(_) | kube::Error::HyperError(_)) => String::new(),
            _ => without_code(&cause.to_string()),
        };
        if !line.is_empty() && !text.ends_with(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        source = cause.source();
    }
    text
}

/// The text of an error of the operating system without its number.
fn without_code(text: &str) -> String {
    match text.rfind(" (os error ") {
        Some(start) => text[..start].to_owned(),
        None => text.to_owned(),
    }
}

/// What the user may do about an error, if there is something.
pub(crate) fn hint(error: &Error) -> Option<String> {
    let hint = match error {
        Error::NoneFound { scope, .. } | Error::NotFound { scope, .. } if scope != "any" => {
            "other namespaces are searched with --namespace NAME or --all-namespaces".to_owned()
        }
        Error::Suspended { human, name, namespace } => {
            format!("go on with it by: weir resume {human} {name} --namespace {namespace}")
        }
        Error::DeadlineExceeded { subject, .. } => {
            let (kind, rest) = subject.split_once('/')?;
            let (namespace, name) = rest.split_once('/')?;
            format!(
                "see what its controller says by: weir events --for {kind}/{name} --namespace {namespace}"
            )
        }
        Error::Api { source: kube::Error::Service(_) | kube::Error::HyperError(_), .. } => {
            "see which cluster is meant by: kubectl config view --minify".to_owned()
        }
        Error::KindUnknown { .. } => {
            "see what is installed by: kubectl get crds --selector app.kubernetes.io/part-of=flux".to_owned()
        }
        Error::WatchAll(_) => "name one kind, such as: weir get kustomizations --watch".to_owned(),
        _ => return None,
    };
    Some(hint)
}

/// Whether the API server said that the object, or its kind, does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_errors_show_the_message_of_the_server() {
        let status = kube::core::Status {
            message: "gitrepositories \"fleet\" is forbidden".to_owned(),
            reason: "Forbidden".to_owned(),
            code: 403,
            ..kube::core::Status::default()
        };
        let error = Error::Api {
            action: "read GitRepository".to_owned(),
            source: kube::Error::Api(Box::new(status)),
        };
        assert_eq!(text(&error), "failed to read GitRepository: gitrepositories \"fleet\" is forbidden");
    }

    #[test]
    fn hints_can_be_pasted() {
        let error =
            Error::Suspended { human: "source git", name: "fleet".to_owned(), namespace: "apps".to_owned() };
        assert_eq!(hint(&error).unwrap(), "go on with it by: weir resume source git fleet --namespace apps");
        let error = Error::DeadlineExceeded {
            subject: "Kustomization/apps/web".to_owned(),
            after: GoDuration::from_secs(5),
            last: String::new(),
        };
        assert_eq!(
            hint(&error).unwrap(),
            "see what its controller says by: weir events --for Kustomization/web --namespace apps"
        );
        assert_eq!(hint(&Error::NothingToDo), None);
    }

    #[test]
    fn causes_are_listed_once() {
        let source = io::Error::new(io::ErrorKind::NotFound, "no such file (os error 2)");
        let error = Error::File { path: "config".to_owned(), source };
        assert_eq!(text(&error), "failed to read 'config': no such file");
    }
}
