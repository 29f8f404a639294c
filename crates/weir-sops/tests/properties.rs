//! No text makes a reader panic, whatever it says about itself.

use std::fmt::Write as _;

use proptest::prelude::*;
use weir_sops::{DataKey, Document, Format};

const FORMATS: [Format; 5] = [Format::Yaml, Format::Json, Format::Dotenv, Format::Ini, Format::Binary];

fn exercise(data: &[u8]) {
    for format in FORMATS {
        let Ok(document) = Document::parse(data, format) else { continue };
        let key = DataKey::new(vec![7; 32]);
        let Ok(decrypted) = document.decrypt(&key) else { continue };
        assert!(decrypted.verify(&key).is_err());
        for format in FORMATS {
            drop(decrypted.emit(format));
        }
    }
}

const METADATA: &str = "sops:\n  lastmodified: '2026-01-01T00:00:00Z'\n  mac: ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]\n  encrypted_regex: ^none$\n  age:\n  - recipient: a\n    enc: b\n";

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn bytes(data: Vec<u8>) {
        exercise(&data);
    }

    #[test]
    fn lines(data in "([a-z\\[\\]\"'`#;=:,{}&*\\- ]{0,12}\n){0,12}") {
        exercise(data.as_bytes());
    }

    #[test]
    fn documents(data in "([a-z]{1,3}: ?[a-z0-9\\[\\]\"'#,{}&* -]{0,12}( # [a-z]{1,3})?\n){0,8}") {
        exercise(format!("{data}{METADATA}").as_bytes());
    }

    #[test]
    fn sections(data in "(\\[?[a-z`\"=; ]{1,6}[\\]=:] ?[a-z`\"'#;\\\\]{0,6}\n){0,8}") {
        let metadata = "[sops]\nlastmodified = 2026-01-01T00:00:00Z\nmac = x\nencrypted_regex = ^none$\nage__list_0__map_enc = b\n";
        exercise(format!("{data}{metadata}").as_bytes());
    }
}

#[test]
fn aliases_do_not_multiply_without_bound() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        let items = vec![before; 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{items}]").unwrap();
    }
    let error = Document::parse(text.as_bytes(), Format::Yaml).unwrap_err();
    assert!(error.to_string().contains("excessive aliasing"), "{error}");
}

#[test]
fn aliases_do_not_nest_without_bound() {
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..5000 {
        writeln!(text, "a{level}: &a{level} [*a{}]", level - 1).unwrap();
    }
    let error = Document::parse(text.as_bytes(), Format::Yaml).unwrap_err();
    assert!(error.to_string().contains("exceeded max depth"), "{error}");
    let nested = format!("a: {}{}\n", "[".repeat(900), "]".repeat(900));
    assert!(Document::parse(nested.as_bytes(), Format::Yaml).is_err());
}
