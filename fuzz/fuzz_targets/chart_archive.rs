//! Any bytes as a chart archive.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = weir_helm::chart::Chart::from_archive(bytes);
});
