//! Any text with expressions, strict and not; what is replaced stays bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_kustomize::substitute_text;

fuzz_target!(|text: &str| {
    let lookup = |name: &str| match name {
        "empty" => Some(String::new()),
        "a" => Some("value".to_owned()),
        "long_name" => Some("Ünï ${a} \\ \" ' \n x".to_owned()),
        _ => None,
    };
    for strict in [false, true] {
        let _ = substitute_text(text, &lookup, strict);
    }
});
