//! Any text as a template, with a helper to call, run on a little data with tight limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_gotemplate::{Execution, FixedHost, Functions, Limits, MissingKey, Options, Set, Value, helm};

fuzz_target!(|source: &str| {
    // Password hashing is slow by design and says nothing about the engine.
    if ["bcrypt", "htpasswd", "gen", "derivePassword", "buildCustomCert"].iter().any(|slow| source.contains(slow)) {
        return;
    }
    let mut set = Set::new(Functions::helm());
    if set.parse("t", source).is_err() {
        return;
    }
    let _ = set.parse("h", "{{ define \"h\" }}<{{ . }}>{{ end }}");
    let limits = Limits {
        steps_max: 20_000,
        produced_bytes_max: 4 << 20,
        value_bytes_max: 1 << 20,
        list_items_max: 10_000,
        template_levels_max: 200,
    };
    let data = Value::map([
        ("s", Value::from("text")),
        ("n", Value::Float(3.0)),
        ("l", Value::list(vec![Value::Float(1.0), Value::from("a"), Value::Nil])),
        ("m", Value::map([("k", Value::from("v"))])),
    ]);
    let options = Options { limits, missing_key: MissingKey::Zero };
    let mut execution = Execution::new(set, Box::new(FixedHost::default()), options);
    match execution.execute("t", &data) {
        Ok(output) => {
            assert!(output.len() <= 4 << 20);
            let _ = helm::without_no_value(output);
        }
        Err(error) => {
            let _ = helm::render_error("t", &error);
        }
    }
});
