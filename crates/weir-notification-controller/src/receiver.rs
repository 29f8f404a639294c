//! Receivers: which webhooks reconcile what.

mod validate;

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};
use sha2::{Digest as _, Sha256};
use weir_api::FluxObject as _;
use weir_api::condition::{self, Stamp};
use weir_api::names::{condition as types, reason};
use weir_api::notification::Receiver;
use weir_notify::receiver::Credentials;
use weir_runtime::{
    Class, Classify, Conclusion, Ended, Failed, Notice, Pass, Reconciler, Requeue, Run, Severity,
};

pub use validate::{InvalidSpec, validate};

/// What every webhook path begins with.
pub const PATH_PREFIX: &str = "/hook/";

const TOKEN_NOT_FOUND: &str = "TokenNotFound";
const VALIDATION_FAILED: &str = "ValidationFailed";
const TERMINALLY: &str = "Reconciliation failed terminally due to configuration error";
const IN_PROGRESS: &str = "Reconciliation in progress";

/// Gives Receivers their path.
pub struct ReceiverReconciler {
    /// Reads Secrets.
    pub client: Client,
}

/// Why a Receiver takes no requests.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// Nothing but another spec helps.
    #[error(transparent)]
    Spec(#[from] InvalidSpec),
    /// The token cannot be read.
    #[error(transparent)]
    Token(#[from] CredentialsError),
}

impl Classify for ReceiverError {
    fn class(&self) -> Class {
        match self {
            Self::Spec(_) => Class::Terminal,
            Self::Token(_) => Class::Backoff,
        }
    }

    fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Spec(InvalidSpec::Rule(_)) => VALIDATION_FAILED,
            Self::Spec(InvalidSpec::Expression(_)) => reason::INVALID_CEL_EXPRESSION,
            Self::Token(_) => TOKEN_NOT_FOUND,
        })
    }
}

/// The Secret of a Receiver cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CredentialsError {
    /// It cannot be read.
    #[error("unable to read token from secret '{secret}' error: {message}")]
    Read {
        /// Namespace and name.
        secret: String,
        /// Why not.
        message: String,
    },
    /// It has no token, or an empty one, which anybody could guess.
    #[error("invalid '{secret}' secret data: required fields 'token'")]
    NoToken {
        /// Namespace and name.
        secret: String,
    },
}

/// Reads what the Secret of a Receiver holds; nothing for one without a Secret.
///
/// # Errors
/// A Secret that cannot be read or has no token.
pub async fn read_credentials(client: &Client, receiver: &Receiver) -> Result<Credentials, CredentialsError> {
    let Some(reference) = &receiver.spec.secret_ref else { return Ok(Credentials::default()) };
    let namespace = receiver.namespace().unwrap_or_default();
    let name = format!("{namespace}/{}", reference.name);
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let secret = api
        .get(&reference.name)
        .await
        .map_err(|error| CredentialsError::Read { secret: name.clone(), message: api_message(&error) })?;
    let mut data = secret.data.unwrap_or_default();
    let text = |bytes: Option<k8s_openapi::ByteString>| {
        bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
    };
    let token = data.remove("token").map(|bytes| bytes.0).filter(|token| !token.is_empty());
    Ok(Credentials {
        token: token.ok_or(CredentialsError::NoToken { secret: name })?,
        email: text(data.remove("email")),
        audience: text(data.remove("audience")),
    })
}

/// The words of the API server, or what went wrong on the way to it.
pub(crate) fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => weir_base::error::chain(error),
    }
}

/// The path of a Receiver: nobody who does not know the token can tell it. Without a token, which only
/// identity tokens make up for, it follows from the name.
pub fn webhook_path(token: &[u8], name: &str, namespace: &str) -> String {
    let mut digest = Sha256::new();
    digest.update(token);
    digest.update(name);
    digest.update(namespace);
    format!("{PATH_PREFIX}{}", hex::encode(digest.finalize()))
}

impl Reconciler for ReceiverReconciler {
    type Object = Receiver;
    type Done = String;
    type Error = ReceiverError;

    async fn reconcile(&self, _: &Run<Receiver>, object: &Receiver) -> Result<String, ReceiverError> {
        validate(&object.spec)?;
        let credentials = read_credentials(&self.client, object).await?;
        Ok(webhook_path(&credentials.token, &object.name_any(), &object.namespace().unwrap_or_default()))
    }

    async fn finalize(&self, _: &Run<Receiver>, _: &Receiver) -> Result<(), ReceiverError> {
        Ok(())
    }

    fn conclude(
        &self,
        object: &mut Receiver,
        pass: Pass<'_, String, ReceiverError>,
        ended: Ended,
    ) -> Conclusion {
        conclude(object, &pass, ended)
    }
}

/// Conditions, events and what follows from a run. Pure.
fn conclude(object: &mut Receiver, pass: &Pass<'_, String, ReceiverError>, ended: Ended) -> Conclusion {
    let generation = object.generation();
    let stamp = Stamp { generation, now: ended.now.into() };
    match pass {
        Pass::Suspended => {
            if condition::is_true(object.conditions(), types::READY) {
                object.set_observed_generation(generation);
            }
            Conclusion::default()
        }
        Pass::Finalized(_) => Conclusion::default(),
        Pass::Reconciled(Ok(path)) => {
            let message = format!("Receiver initialized for path: {path}");
            let conditions = object.conditions_mut();
            condition::delete(conditions, types::RECONCILING);
            condition::delete(conditions, types::STALLED);
            condition::mark_true(conditions, types::READY, reason::SUCCEEDED, &message, stamp);
            object.status_mut().webhook_path = Some((*path).clone());
            object.set_observed_generation(generation);
            let interval = object.spec.interval;
            let message = format!("Reconciliation finished, next run in {interval}");
            Conclusion {
                requeue: Requeue::Interval(interval.to_std()),
                notices: vec![Notice::new(Severity::Info, reason::SUCCEEDED, message)],
            }
        }
        Pass::Reconciled(Err(failed)) => failure(object, failed, stamp),
    }
}

fn failure(object: &mut Receiver, failed: &Failed<ReceiverError>, stamp: Stamp) -> Conclusion {
    let found = failed.reason().into_owned();
    let requeue = Requeue::for_class(failed.class());
    if failed.class() == Class::Terminal {
        let message = format!("{TERMINALLY}: {failed}");
        let conditions = object.conditions_mut();
        condition::mark_false(conditions, types::READY, &found, &message, stamp);
        condition::mark_stalled(conditions, &found, &message, stamp);
        object.set_observed_generation(stamp.generation);
        let notice = Notice::new(Severity::Error, found, message).logged_as(TERMINALLY);
        return Conclusion { requeue, notices: vec![notice] };
    }
    let message = failed.to_string();
    let conditions = object.conditions_mut();
    condition::mark_reconciling(conditions, reason::PROGRESSING_WITH_RETRY, IN_PROGRESS, stamp);
    condition::mark_false(conditions, types::READY, &found, &message, stamp);
    if matches!(failed, Failed::Error(ReceiverError::Token(_))) {
        object.status_mut().webhook_path = None;
    }
    Conclusion { requeue, notices: vec![Notice::new(Severity::Error, reason::FAILED, message)] }
}

#[cfg(test)]
mod tests;
