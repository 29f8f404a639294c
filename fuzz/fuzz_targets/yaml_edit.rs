//! Replacing a scalar changes its bytes and no others.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_manifest::edit::{replace_scalars, scalars};

fuzz_target!(|input: (u8, &str, &str)| {
    let (pick, words, text) = input;
    let Ok(all) = scalars(text.as_bytes(), "") else { return };
    let Some(scalar) = all.get(usize::from(pick) % all.len().max(1)) else { return };
    let Ok(edited) = replace_scalars(text.as_bytes(), &[(scalar, words)], "") else { return };
    assert!(edited.starts_with(&text.as_bytes()[..scalar.bytes.start]));
    assert!(edited.ends_with(&text.as_bytes()[scalar.bytes.end..]));
    let again = scalars(&edited, "").expect("the edited text can be read");
    assert_eq!(again.len(), all.len());
});
