//! Which form of an answer the client wants.

use crate::error::ApiError;

/// What is said to a client that knows none of the server's media types.
pub(crate) const NOT_ACCEPTABLE: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Yaml,
    /// Rows and columns.
    Table,
    /// `PartialObjectMetadata` and its list.
    Metadata,
    /// Discovery of all groups in one document.
    Discovery,
}

/// Picks the first form of the `Accept` header that the server has.
pub(crate) fn form(accept: &str) -> Result<Form, ApiError> {
    if accept.trim().is_empty() {
        return Ok(Form::Json);
    }
    let mut knows_one = false;
    for part in accept.split(',') {
        let mut params = part.split(';').map(str::trim);
        let media = params.next().unwrap_or_default().to_ascii_lowercase();
        let (mut kind, mut group, mut version) = ("", "", "");
        for param in params {
            match param.split_once('=') {
                Some(("as", value)) => kind = value,
                Some(("g", value)) => group = value,
                Some(("v", value)) => version = value,
                _ => {}
            }
        }
        let plain = match media.as_str() {
            "application/json" | "*/*" | "application/*" => Form::Json,
            "application/yaml" => Form::Yaml,
            other => {
                knows_one |= matches!(other, "application/vnd.kubernetes.protobuf" | "application/cbor");
                continue;
            }
        };
        knows_one = true;
        match (kind, group, version) {
            ("", _, _) => return Ok(plain),
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => return Ok(Form::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => {
                return Ok(Form::Metadata);
            }
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => return Ok(Form::Discovery),
            _ => {}
        }
    }
    let mut error = ApiError::not_acceptable();
    if !knows_one {
        NOT_ACCEPTABLE.clone_into(&mut error.message);
        error = error.with_details(serde_json::json!({}));
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_form_wins() {
        for (accept, want) in [
            ("", Form::Json),
            ("*/*", Form::Json),
            ("application/json, */*", Form::Json),
            ("application/vnd.kubernetes.protobuf,application/json", Form::Json),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Form::Table),
            ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Form::Json),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Form::Metadata,
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Form::Discovery,
            ),
        ] {
            assert_eq!(form(accept).unwrap(), want, "{accept}");
        }
        assert_eq!(form("application/cbor").unwrap_err().code, 406);
    }
}
