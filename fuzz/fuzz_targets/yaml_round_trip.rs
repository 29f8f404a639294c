//! What the writer makes of a value reads as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use weir_manifest::{NodeLayout, ReadOptions, read_documents_with, read_nodes, to_yaml, write_nodes};

/// The writers are those of the Go libraries, which lose some text: unusual line breaks, and the key `<<`.
fn keeps(value: &Value) -> bool {
    let text = |text: &str| !text.contains(['\u{85}', '\u{2028}', '\u{2029}', '\u{FEFF}', '\r']);
    match value {
        Value::String(string) => text(string),
        Value::Array(items) => items.iter().all(keeps),
        Value::Object(entries) => entries.iter().all(|(key, value)| key != "<<" && text(key) && keeps(value)),
        _ => true,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(values) = read_documents_with(bytes, "", ReadOptions::default()) else { return };
    for value in values.into_iter().filter(keeps) {
        let text = to_yaml(&value);
        let read = read_documents_with(text.as_bytes(), "", ReadOptions { strict: true });
        assert_eq!(read.as_deref(), Ok(std::slice::from_ref(&value)), "{text}");
        let nodes = read_nodes(text.as_bytes(), "").expect("what is written can be read");
        let text = write_nodes(&nodes, NodeLayout::COMPACT);
        let read = read_documents_with(text.as_bytes(), "", ReadOptions::default());
        assert_eq!(read.as_deref(), Ok(std::slice::from_ref(&value)), "{text}");
    }
});
