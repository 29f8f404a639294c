//! Every provider with every type of event: what is sent, recorded, and whether the service would take it.
//!
//! `tests/cases` has a Provider and its Secret per file, and what the documentation of the service asks of a request:
//! paths, headers, a schema of the body, limits. It is written from that documentation, not from the code.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod case;
mod check;
mod failures;
mod identities;
mod mock;
mod nats;

use std::fmt::Write as _;

use case::{Case, event};
use mock::Mock;
use weir_notify::provider::{Answer, Request, Step, next};

const EVENTS: [&str; 5] = ["success", "error", "progressing", "trace", "update"];

/// The requests of a delivery when the service answers as its documentation says.
fn requests(case: &Case, event_name: &str) -> Result<Vec<Request>, String> {
    let job = case.job("https://service.example.com", event(event_name));
    let (mut sent, mut answers) = (Vec::new(), Vec::new());
    loop {
        match next(&job, &answers).map_err(|error| error.to_string())? {
            Step::Done => return Ok(sent),
            Step::Send(request) => {
                let rule = case.rule(request.method.as_str(), &path_and_query(&request));
                let rule =
                    rule.unwrap_or_else(|| panic!("{}: no rule for {}", case.name, path_and_query(&request)));
                answers.push(Answer { status: rule.status, body: rule.body.clone().into_bytes() });
                sent.push(*request);
            }
        }
    }
}

fn path_and_query(request: &Request) -> String {
    let query = request.url.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{query}", request.url.path())
}

fn show(request: &Request) -> String {
    let mut text = format!("{} {}\n", request.method.as_str(), request.url);
    for (name, value) in &request.headers {
        let _ = writeln!(text, "{name}: {value}");
    }
    if !request.body.is_empty() {
        let body = String::from_utf8(request.body.clone()).unwrap_or_else(|bytes| hex(bytes.as_bytes()));
        let _ = writeln!(text, "\n{body}");
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn payloads_are_the_recorded_ones() {
    for case in Case::all() {
        let mut text = String::new();
        for name in EVENTS {
            let _ = writeln!(text, "=== {name}");
            match requests(&case, name) {
                Ok(requests) if requests.is_empty() => text.push_str("nothing is sent\n"),
                Ok(requests) => text.push_str(&requests.iter().map(show).collect::<Vec<_>>().join("---\n")),
                Err(error) => {
                    let _ = writeln!(text, "error: {error}");
                }
            }
            text.push('\n');
        }
        insta::with_settings!({snapshot_suffix => case.name.as_str(), prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!("payload", text);
        });
    }
}

#[tokio::test]
async fn services_take_what_is_sent() {
    for case in Case::all() {
        let mock = Mock::start(&case).await;
        for name in EVENTS {
            let job = case.job(&mock.base, event(name));
            let expected = next(&job, &[]);
            let outcome = mock.sender().deliver(job).await;
            match (expected, outcome) {
                (Ok(_), Ok(())) | (Err(_), Err(_)) => {}
                (expected, outcome) => panic!("{} {name}: {expected:?} {outcome:?}", case.name),
            }
            mock.assert_clean(&format!("{} {name}", case.name));
        }
        assert!(mock.requests() > 0, "{}", case.name);
    }
}

#[tokio::test]
async fn long_messages_and_metadata_are_cut_to_what_services_take() {
    let mut problems = Vec::new();
    for case in Case::all() {
        let mock = Mock::start(&case).await;
        for name in ["success", "error"] {
            let mut event = event(name);
            // Markup grows when it is escaped, and some characters take two units.
            event.message = "<&*🚀ü_line of a long message\n".repeat(4000);
            for number in 0..40 {
                event.metadata.insert(format!("key_{number:02}"), "<välue & 🚀>".repeat(100));
            }
            event.involved_object.name = "n".repeat(253);
            event.involved_object.namespace = "s".repeat(63);
            let outcome = mock.sender().deliver(case.job(&mock.base, event)).await;
            let violations = mock.take_violations();
            if outcome.is_err() || !violations.is_empty() {
                problems.push(format!("{} {name}: {outcome:?} {}", case.name, violations.join("; ")));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_type_has_a_case() {
    let covered: Vec<_> = Case::all().iter().map(|case| case.spec.type_).collect();
    for kind in weir_api::notification::ProviderType::ALL {
        // NATS is not HTTP and has tests of its own.
        assert!(covered.contains(kind) || kind.as_str() == "nats", "{kind}");
    }
}
