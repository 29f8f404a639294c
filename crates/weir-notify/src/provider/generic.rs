//! Webhooks that take events as they are.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{Answer, Job, ProviderError, Request, Step, once};

/// The header that names the controller.
const COMPONENT: &str = "Gotk-Component";
/// The header of the signature.
const SIGNATURE: &str = "X-Signature";

pub(super) fn next(job: &Job, answers: &[Answer], signed: bool) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = job.url("hook")?;
        let key = job.target.token.expose();
        if signed && key.is_empty() {
            return Err(ProviderError::setting("HMAC key is empty"));
        }
        let mut request =
            Request::message(url, &job.event).header(COMPONENT, job.event.reporting_controller.as_str());
        for (name, value) in &job.target.headers {
            request = request.header(name, value.expose());
        }
        if signed {
            // A key of any length is taken.
            let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.as_bytes()) else {
                return Err(ProviderError::setting("HMAC key is empty"));
            };
            mac.update(&request.body);
            let signature = hex::encode(mac.finalize().into_bytes());
            request = request.header(SIGNATURE, format!("sha256={signature}"));
        }
        Ok(request)
    })
}
