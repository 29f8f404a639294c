//! No bytes make the YAML readers panic, hang or take much memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_manifest::{ReadOptions, edit, read_documents_with, read_nodes};

fuzz_target!(|bytes: &[u8]| {
    let _ = read_documents_with(bytes, "", ReadOptions { strict: false });
    let _ = read_documents_with(bytes, "", ReadOptions { strict: true });
    let _ = read_nodes(bytes, "");
    let _ = edit::scalars(bytes, "");
});
