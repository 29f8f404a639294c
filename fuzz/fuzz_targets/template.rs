//! Any text as a template, run on a little data with tight limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_gotemplate::{Execution, FixedHost, Functions, Limits, Options, Set, Value};

fuzz_target!(|source: &str| {
    let mut set = Set::new(Functions::helm());
    if set.parse("t", source).is_err() {
        return;
    }
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
    let options = Options { limits, ..Options::default() };
    let mut execution = Execution::new(set, Box::new(FixedHost::default()), options);
    let _ = execution.execute("t", &data);
});
