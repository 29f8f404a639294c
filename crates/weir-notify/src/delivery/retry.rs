//! When a request is tried again.

use std::time::Duration;

use reqwest::Response;
use reqwest::header::RETRY_AFTER;

/// How often a request is tried again.
const RETRIES_MAX: u32 = 4;
const WAIT_MIN: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(30);

fn backoff(attempt: u32) -> Option<Duration> {
    (attempt < RETRIES_MAX).then(|| WAIT_MIN.saturating_mul(1 << attempt).min(WAIT_MAX))
}

/// How long to wait before the request is sent again after an answer, if it is.
pub(super) fn after_status(response: &Response, attempt: u32) -> Option<Duration> {
    let status = response.status().as_u16();
    // Not implemented does not get better.
    if status != 429 && (status < 500 || status == 501) {
        return None;
    }
    let wait = backoff(attempt)?;
    let asked = (status == 429 || status == 503)
        .then(|| response.headers().get(RETRY_AFTER)?.to_str().ok().and_then(retry_after))
        .flatten();
    Some(asked.unwrap_or(wait))
}

/// Seconds; a date would need the clock of the server, so the usual wait takes its place.
fn retry_after(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

/// How long to wait before the request is sent again after trouble on the way, if it is.
pub(super) fn after_error(error: &reqwest::Error, attempt: u32) -> Option<Duration> {
    if error.is_builder() || error.is_redirect() || is_certificate_problem(error) {
        return None;
    }
    backoff(attempt)
}

/// A certificate that is not trusted now is not trusted in two seconds. The layers between hide the type of the error.
fn is_certificate_problem(error: &reqwest::Error) -> bool {
    super::describe(error).contains("invalid peer certificate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end() {
        let waits: Vec<Option<u64>> =
            (0..6).map(|attempt| backoff(attempt).map(|wait| wait.as_secs())).collect();
        assert_eq!(waits, [Some(2), Some(4), Some(8), Some(16), None, None]);
    }

    #[test]
    fn services_say_how_long_to_wait() {
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), None);
    }
}
