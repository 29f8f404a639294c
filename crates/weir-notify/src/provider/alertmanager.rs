//! Prometheus Alertmanager.

use serde_json::{Value, json};

use super::{Answer, Job, ProviderError, Request, Step, ZERO_TIME, once};
use crate::event::SUMMARY;

pub(super) fn next(job: &Job, answers: &[Answer]) -> Result<Step, ProviderError> {
    once(answers, || {
        let url = job.url("Alertmanager")?;
        let request = Request::message(url, &payload(job));
        Ok(super::grafana::authorized(request, job, true))
    })
}

fn payload(job: &Job) -> Value {
    let event = &job.event;
    let object = &event.involved_object;
    let mut annotations = json!({"message": event.message});
    let mut labels = event.metadata.clone();
    if let Some(summary) = labels.remove(SUMMARY) {
        annotations[SUMMARY] = summary.into();
    }
    let name = format!("Flux{}{}", object.kind, title_case(&event.reason));
    for (key, value) in [
        ("alertname", name.as_str()),
        ("severity", job.severity()),
        ("reason", &event.reason),
        ("kind", &object.kind),
        ("name", &object.name),
        ("namespace", &object.namespace),
        ("reportingcontroller", &event.reporting_controller),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    json!([{
        "status": "firing", "labels": labels, "annotations": annotations,
        "startsAt": job.time(), "endsAt": ZERO_TIME,
    }])
}

/// Every word with a capital letter first and small ones behind it.
fn title_case(text: &str) -> String {
    let mut in_word = false;
    let mut cased = String::with_capacity(text.len());
    for character in text.chars() {
        if in_word {
            cased.extend(character.to_lowercase());
        } else {
            cased.extend(character.to_uppercase());
        }
        in_word = character.is_alphanumeric() || matches!(character, '_' | '\'') && in_word;
    }
    cased
}

#[cfg(test)]
mod tests {
    #[test]
    fn reasons_are_cased_as_words() {
        let check = |text: &str, expected: &str| assert_eq!(super::title_case(text), expected);
        check("ReconciliationFailed", "Reconciliationfailed");
        check("two words", "Two Words");
        check("2fast", "2fast");
    }
}
