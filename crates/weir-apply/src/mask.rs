//! Keeps the values of Secrets out of error texts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::cluster::ClusterError;
use crate::object::{self, ObjectRef};

/// Values shorter than this are too likely to be part of ordinary words.
const MASKED_BYTES_MIN: usize = 4;

/// The error with every value of `object`, if it is a Secret, replaced by `***`.
pub fn error(object: &Value, error: ClusterError) -> ClusterError {
    if !ObjectRef::of(object).is_kind("", "Secret") {
        return error;
    }
    match error {
        ClusterError::Api { code, reason, message } => {
            ClusterError::Api { code, reason, message: text(object, message) }
        }
        ClusterError::Transport { request, message } => {
            ClusterError::Transport { request, message: text(object, message) }
        }
        other @ (ClusterError::NoMatch { .. } | ClusterError::TimedOut { .. }) => other,
    }
}

/// `message` with every value of the Secret replaced by `***`.
fn text(secret: &Value, mut message: String) -> String {
    let mut values: Vec<String> = Vec::new();
    for field in ["data", "stringData"] {
        let Some(map) = secret.get(field).and_then(Value::as_object) else {
            continue;
        };
        for value in map.values().filter_map(Value::as_str) {
            values.push(value.to_owned());
            let decoded = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            values.extend(decoded);
        }
    }
    if let Some(applied) = object::annotation(secret, "kubectl.kubernetes.io/last-applied-configuration") {
        values.push(applied.to_owned());
    }
    values.retain(|value| value.len() >= MASKED_BYTES_MIN);
    // Longest first, so that a value that is part of another does not leave a rest behind.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    for value in &values {
        message = message.replace(value, "***");
    }
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secrets_do_not_reach_errors() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "data": {"a": "aHVudGVyMg=="}, "stringData": {"b": "swordfish", "c": "no"}});
        let api = |message: &str| ClusterError::Api {
            code: 422,
            reason: "Invalid".into(),
            message: message.into(),
        };
        let masked = error(&secret, api("data: Invalid value: hunter2 aHVudGVyMg== swordfish, no key"));
        assert_eq!(masked, api("data: Invalid value: *** *** ***, no key"));
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "swordfish"}});
        assert_eq!(error(&config, api("swordfish")), api("swordfish"));
    }
}
