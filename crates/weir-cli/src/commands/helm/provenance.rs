//! Signatures of chart archives.

use std::env;
use std::fs;
use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};

use weir_base::clock::{Clock as _, SystemClock};
use weir_base::redact::Secret;
use weir_source::helm::provenance::{self, ProvenanceError, Signer};

use super::go_error;
use crate::error::Error;

/// The key ring of GnuPG's first version, which is where Helm looks.
fn default_keyring() -> PathBuf {
    let home = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    home("GNUPGHOME").unwrap_or_else(|| home("HOME").unwrap_or_default().join(".gnupg")).join("pubring.gpg")
}

fn read_keyring(keyring: Option<&Path>) -> Result<Vec<u8>, Error> {
    let path = keyring.map_or_else(default_keyring, Path::to_path_buf);
    let shown = path.display().to_string();
    fs::read(&path)
        .map_err(|error| Error::Helm(format!("failed to load keyring: {}", go_error("open", &shown, &error))))
}

/// Checks an archive that was fetched together with its signature.
pub(super) fn verify(
    archive: &[u8],
    signature: &[u8],
    name: &str,
    keyring: Option<&Path>,
) -> Result<Signer, Error> {
    let keyring = read_keyring(keyring)?;
    provenance::verify(archive, signature, name, &keyring, SystemClock.now().as_second())
        .map_err(|error| Error::Helm(error.to_string()))
}

/// Checks an archive of this machine, beside which its signature lies.
pub(super) fn verify_file(path: &Path, keyring: Option<&Path>) -> Result<Signer, Error> {
    let fail = |text: &str| Err(Error::Helm(text.to_owned()));
    if path.is_dir() {
        return fail("unpacked charts cannot be verified");
    }
    if !path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tgz")) {
        return fail("chart must be a tgz file");
    }
    let beside = format!("{}.prov", path.display());
    let signature = fs::read(&beside).map_err(|error| {
        let cause = go_error("stat", &beside, &error);
        Error::Helm(format!("could not load provenance file {beside}: {cause}"))
    })?;
    let archive =
        fs::read(path).map_err(|source| Error::File { path: path.display().to_string(), source })?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    verify(&archive, &signature, &name, keyring)
}

/// Why an archive is not signed: told in the words of the library or of this command.
struct SignError(Error);

impl From<ProvenanceError> for SignError {
    fn from(error: ProvenanceError) -> Self {
        Self(Error::Helm(error.to_string()))
    }
}

/// The text of the file that goes beside an archive.
pub(super) fn sign(
    archive: &[u8],
    name: &str,
    metadata: &str,
    key: &str,
    keyring: Option<&Path>,
    passphrase_file: Option<&str>,
) -> Result<String, Error> {
    let keyring = read_keyring(keyring)?;
    let now = u32::try_from(SystemClock.now().as_second()).unwrap_or_default();
    let passphrase = |owner: &str| read_passphrase(owner, passphrase_file).map_err(SignError);
    provenance::sign(archive, name, metadata, &keyring, key, now, passphrase)
        .map_err(|SignError(error)| error)
}

/// The first line of the file, or of stdin for `-`.
fn read_passphrase(owner: &str, file: Option<&str>) -> Result<Secret, Error> {
    let Some(file) = file.filter(|file| !file.is_empty()) else {
        return Err(Error::Helm(format!(
            "the key of {owner:?} is locked: name a file with its passphrase, or - for stdin, by --passphrase-file"
        )));
    };
    let mut line = String::new();
    if file == "-" {
        let read = io::stdin().lock().read_line(&mut line);
        read.map_err(|source| Error::File { path: "-".to_owned(), source })?;
    } else {
        line = fs::read_to_string(file).map_err(|error| Error::Helm(go_error("open", file, &error)))?;
    }
    Ok(Secret::new(line.lines().next().unwrap_or_default()))
}
