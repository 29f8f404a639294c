//! Any file tree as a kustomization. The input is an archive as in the golden cases: a line `-- path --` starts a file.
#![no_main]

#[path = "../../crates/weir-kustomize/tests/golden/archive.rs"]
#[allow(dead_code)]
mod archive;

use libfuzzer_sys::fuzz_target;
use weir_base::tree::MemoryTree;
use weir_kustomize::{Generation, Options, build, generate};

fuzz_target!(|text: &str| {
    let tree: MemoryTree =
        archive::files(text).iter().map(|file| (file.path, file.content.to_owned())).collect();
    for options in [Options::default(), Options::command_line()] {
        if let Ok(output) = build(&tree, "", &options) {
            let _ = output.to_yaml();
            let again = build(&tree, "", &options).expect("the same input gives the same answer");
            assert_eq!(output, again);
        }
    }
    let _ = generate(&tree, "", &Generation::default());
});
