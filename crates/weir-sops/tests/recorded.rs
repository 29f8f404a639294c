//! Documents that the real sops encrypted decrypt to what it decrypts them to, byte for byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use weir_sops::{DataKey, Document, Format, LocalKeys};

const FORMATS: [(&str, Format); 5] = [
    ("yaml", Format::Yaml),
    ("json", Format::Json),
    ("dotenv", Format::Dotenv),
    ("ini", Format::Ini),
    ("binary", Format::Binary),
];

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn key(name: &str) -> String {
    fs::read_to_string(tests().join("keys").join(name)).unwrap()
}

fn keys() -> LocalKeys {
    let mut keys = LocalKeys::default();
    for name in ["age.agekey", "second.agekey", "ssh_ed25519", "ssh_rsa"] {
        keys.age.import(&key(name)).unwrap();
    }
    for name in ["pgp_rsa.asc", "pgp_curve.asc"] {
        keys.pgp.import(key(name).as_bytes()).unwrap();
    }
    keys
}

struct Case {
    name: String,
    directory: PathBuf,
    format: Format,
    encrypted: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = fs::read_dir(tests().join("golden"))
        .unwrap()
        .map(|entry| {
            let directory = entry.unwrap().path();
            let (extension, format) = FORMATS
                .into_iter()
                .find(|(extension, _)| directory.join(format!("encrypted.{extension}")).exists())
                .unwrap();
            Case {
                name: directory.file_name().unwrap().to_string_lossy().into_owned(),
                encrypted: fs::read(directory.join(format!("encrypted.{extension}"))).unwrap(),
                directory,
                format,
            }
        })
        .collect();
    cases.sort_by(|left, right| left.name.cmp(&right.name));
    cases
}

fn unlock(document: &Document, keys: &LocalKeys) -> Result<DataKey, String> {
    futures::executor::block_on(document.data_key(keys)).map_err(|error| error.to_string())
}

/// Outputs of a case that differ from the recording.
fn differences(case: &Case, keys: &LocalKeys, report: &mut String) -> usize {
    let document = Document::parse(&case.encrypted, case.format).unwrap();
    if Format::detect(&case.encrypted) != Some(marked(case.format)) {
        writeln!(report, "{}: not recognised as encrypted", case.name).unwrap();
    }
    if case.directory.join("refused").exists() {
        return 0;
    }
    let key = unlock(&document, keys).unwrap();
    let decrypted = document.decrypt(&key).unwrap();
    if let Err(error) = decrypted.verify(&key) {
        writeln!(report, "{}: {error}", case.name).unwrap();
    }
    let mut compared = 0;
    for (extension, format) in FORMATS {
        let Ok(want) = fs::read(case.directory.join(format!("want.{extension}"))) else {
            continue;
        };
        compared += 1;
        match decrypted.emit(format) {
            Err(error) => writeln!(report, "{} as {extension}: {error}", case.name).unwrap(),
            Ok(got) if got != want => {
                let (got, want) = (String::from_utf8_lossy(&got), String::from_utf8_lossy(&want));
                writeln!(report, "{} as {extension}:\n{}", case.name, first_difference(&got, &want)).unwrap();
            }
            Ok(_) => {}
        }
    }
    compared
}

fn marked(format: Format) -> Format {
    if format == Format::Binary { Format::Json } else { format }
}

fn first_difference(got: &str, want: &str) -> String {
    let (mut got_lines, mut want_lines) = (got.split('\n'), want.split('\n'));
    for number in 1.. {
        let (got, want) = (got_lines.next(), want_lines.next());
        if got != want {
            return format!("  line {number}\n    want {want:?}\n    got  {got:?}");
        }
    }
    String::new()
}

#[test]
fn documents_decrypt_as_sops_decrypts_them() {
    let keys = keys();
    let mut report = String::new();
    let compared: usize = cases().iter().map(|case| differences(case, &keys, &mut report)).sum();
    assert!(report.is_empty(), "{report}");
    assert!(compared > 90, "only {compared} outputs compared");
}

#[test]
fn too_few_unlocked_groups_are_reported_as_sops_reports_them() {
    let keys = keys();
    let document = Document::parse(
        &fs::read(tests().join("golden/key-groups-locked-yaml/encrypted.yaml")).unwrap(),
        Format::Yaml,
    )
    .unwrap();
    let report = unlock(&document, &keys).unwrap_err();
    insta::with_settings!({filters => vec![("age1[a-z0-9]+", "[recipient]")]}, {
        insta::assert_snapshot!(report, @r"
        Failed to get the data key required to decrypt the SOPS file.

        Group 0: SUCCESS

        Group 1: FAILED
          [recipient]: FAILED
            - | failed to create reader for decrypting sops data key with
              | age: no identity matched any of the recipients

        Group 2: FAILED
          [recipient]: FAILED
            - | failed to create reader for decrypting sops data key with
              | age: no identity matched any of the recipients

        Recovery failed because the file was encrypted with a Shamir threshold of
        2, but only 1 part(s) were successfully recovered, one for each successful
        key group. In order for SOPS to recover the file, at least 2 groups have to
        be successful. In order for a group to be successful, decryption has to
        succeed with any of the keys in that key group.
        ");
    });
}

#[test]
fn changed_documents_do_not_verify() {
    let keys = keys();
    let text = fs::read_to_string(tests().join("golden/yaml-default-suffix/encrypted.yaml")).unwrap();
    let changed = text.replace("a_unencrypted: 1", "a_unencrypted: 2");
    assert_ne!(text, changed);
    let document = Document::parse(changed.as_bytes(), Format::Yaml).unwrap();
    let key = unlock(&document, &keys).unwrap();
    let decrypted = document.decrypt(&key).unwrap();
    let error = decrypted.verify(&key).unwrap_err().to_string();
    assert!(error.starts_with("failed to verify sops data integrity: expected mac '"), "{error}");
}

#[test]
fn moved_values_do_not_decrypt() {
    let keys = keys();
    let text = fs::read_to_string(tests().join("golden/yaml-default-suffix/encrypted.yaml")).unwrap();
    let moved = text.replace("\nb: ENC", "\nc: ENC");
    assert_ne!(text, moved);
    let document = Document::parse(moved.as_bytes(), Format::Yaml).unwrap();
    let key = unlock(&document, &keys).unwrap();
    assert_eq!(
        document.decrypt(&key).unwrap_err().to_string(),
        "Error walking tree: Could not decrypt value: Could not decrypt with AES_GCM: cipher: message authentication failed (at 'c')"
    );
}

#[test]
fn errors_do_not_show_values() {
    let keys = keys();
    let text = fs::read_to_string(tests().join("golden/yaml-default-suffix/encrypted.yaml")).unwrap();
    let (_, metadata) = text.split_once("sops:").unwrap();
    let document =
        Document::parse(format!("password: s3cret\nsops:{metadata}").as_bytes(), Format::Yaml).unwrap();
    let key = unlock(&document, &keys).unwrap();
    let error = document.decrypt(&key).unwrap_err().to_string();
    assert!(error.contains("at 'password'") && !error.contains("s3cret"), "{error}");
    assert_eq!(
        Document::parse(b"A=1\ns3cret\n", Format::Dotenv).unwrap_err().to_string(),
        "invalid dotenv input line: line 2"
    );
    let error = Document::parse(b"{\"a\": s3cret}", Format::Json).unwrap_err().to_string();
    assert!(!error.contains("s3cret"), "{error}");
    assert_eq!(
        Document::parse(b"a: s3cret\n", Format::Yaml).unwrap_err().to_string(),
        "sops metadata not found"
    );
    let mut keys = LocalKeys::default();
    let error = keys.age.import("# fine\nAGE-SECRET-KEY-1S3CRET\n").unwrap_err().to_string();
    assert_eq!(error, "failed to parse and add to age identities: malformed secret key (line 2)");
    assert!(keys.pgp.import(b"s3cret").is_err());
}

#[test]
fn without_a_key_the_tried_ones_are_named() {
    let text = fs::read(tests().join("golden/key-age-two/encrypted.yaml")).unwrap();
    let document = Document::parse(&text, Format::Yaml).unwrap();
    let mut keys = LocalKeys::default();
    keys.age.import(&key("missing.agekey")).unwrap();
    let report = unlock(&document, &keys).unwrap_err();
    insta::with_settings!({filters => vec![("age1[a-z0-9]+", "[recipient]")]}, {
        insta::assert_snapshot!(report, @r"
        Failed to get the data key required to decrypt the SOPS file.

        Group 0: FAILED
          [recipient]: FAILED
            - | failed to create reader for decrypting sops data key with
              | age: no identity matched any of the recipients

          [recipient]: FAILED
            - | failed to create reader for decrypting sops data key with
              | age: no identity matched any of the recipients

        Recovery failed because no master key was able to decrypt the file. In
        order for SOPS to recover the file, at least one key has to be successful,
        but none were.
        ");
    });
}
