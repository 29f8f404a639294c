//! Keys that were given to the process instead of to a Kustomization.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use weir_base::redact::Secret;
use weir_sops::AgeIdentities;

/// Where keys are below the configuration directory of the user.
const USER_KEYS: &str = "sops/age/keys.txt";

/// The age keys of the environment, in the places SOPS looks at. Keys that cannot be used are logged and left out.
pub(crate) fn age() -> AgeIdentities {
    let mut identities = AgeIdentities::default();
    if let Ok(keys) = env::var("SOPS_AGE_KEY") {
        let lines: Vec<&str> = keys
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(str::split_ascii_whitespace)
            .collect();
        import(&mut identities, "SOPS_AGE_KEY", &lines.join("\n"));
    }
    for variable in ["SOPS_AGE_KEY_FILE", "SOPS_AGE_SSH_PRIVATE_KEY_FILE"] {
        if let Some(path) = env::var_os(variable) {
            import_file(&mut identities, variable, Path::new(&path), true);
        }
    }
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    if let Some(home) = &home {
        for name in [".ssh/id_ed25519", ".ssh/id_rsa"] {
            import_file(&mut identities, name, &home.join(name), false);
        }
    }
    let configuration = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(directory) = configuration.or_else(|| home.map(|home| home.join(".config"))) {
        import_file(&mut identities, USER_KEYS, &directory.join(USER_KEYS), false);
    }
    identities
}

fn import_file(identities: &mut AgeIdentities, place: &str, path: &Path, must_exist: bool) {
    match fs::read_to_string(path) {
        Ok(text) => import(identities, place, &text),
        Err(error) if must_exist || error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(place, error = %error, "unable to read age keys");
        }
        Err(_) => {}
    }
}

fn import(identities: &mut AgeIdentities, place: &str, text: &str) {
    if let Err(error) = identities.import(text) {
        tracing::warn!(place, error = %error, "unable to use age keys");
    }
}

/// The Vault token of the environment.
pub(crate) fn vault_token() -> Option<Secret> {
    env::var("VAULT_TOKEN").ok().filter(|token| !token.is_empty()).map(Secret::new)
}
