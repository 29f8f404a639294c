//! Signatures made by the real `gpg` and `ssh-keygen`. Skipped where they are missing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use weir_source::git::{Signed, SigningKeys};

use crate::{Client, is_installed};
use weir_testkit::git::{Repository, Server};

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Signs by `gpg` with keys of its own.
struct Gpg(TempDir);

impl Drop for Gpg {
    fn drop(&mut self) {
        let _ = Command::new("gpgconf").args(["--kill", "all"]).env("GNUPGHOME", self.0.path()).output();
    }
}

impl Gpg {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        Self(directory)
    }

    fn gpg(&self, arguments: &[&str]) -> String {
        let home = self.0.path();
        run(Command::new("gpg")
            .args(["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""])
            .args(arguments)
            .env("GNUPGHOME", home))
    }

    /// A new key; returns its public part and its id.
    fn generate(&self, name: &str, algorithm: &str, lasts: &str) -> (String, String) {
        let address = format!("{name}@example.com");
        self.gpg(&["--quick-generate-key", &address, algorithm, "sign", lasts]);
        let listed = self.gpg(&["--with-colons", "--list-keys", &address]);
        let id = listed.lines().find(|line| line.starts_with("pub:")).unwrap().split(':').nth(4).unwrap();
        (self.gpg(&["--armor", "--export", &address]), id.to_owned())
    }
}

fn signed_commit(repository: &Repository, config: &[(&str, &str)], home: Option<&Path>, message: &str) {
    for (key, value) in config {
        repository.git(&["config", key, value]);
    }
    repository.git(&["add", "-A"]);
    let mut command = Command::new("git");
    command.current_dir(&repository.work).args(["commit", "-q", "--allow-empty", "-S", "-m", message]);
    finish(&mut command, home);
    repository.git(&["push", "-q", "--force", "origin", "HEAD"]);
}

fn signed_tag(repository: &Repository, home: Option<&Path>, name: &str) {
    let mut command = Command::new("git");
    command.current_dir(&repository.work).args(["tag", "-s", "-m", "a tag", name]);
    finish(&mut command, home);
    repository.git(&["push", "-q", "--tags", "origin"]);
}

fn finish(command: &mut Command, home: Option<&Path>) {
    for (key, value) in [("NAME", "A"), ("EMAIL", "a@example.com")] {
        command.env(format!("GIT_AUTHOR_{key}"), value).env(format!("GIT_COMMITTER_{key}"), value);
    }
    if let Some(home) = home {
        command.env("GNUPGHOME", home);
    }
    run(command);
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

fn keys(entries: &[(&str, &str)]) -> SigningKeys {
    let mut keys = SigningKeys::default();
    for (name, value) in entries {
        keys.add(name, value.as_bytes());
    }
    keys
}

#[tokio::test]
async fn commits_and_tags_signed_with_gpg() {
    if !is_installed("gpg") {
        return;
    }
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("a.yaml", "1");
    let gpg = Gpg::new();
    for (index, algorithm) in ["ed25519", "rsa2048", "nistp256"].into_iter().enumerate() {
        let (public, id) =
            gpg.generate(&format!("signer-{index}"), algorithm, if index == 0 { "1d" } else { "never" });
        let (other, _) = gpg.generate(&format!("other-{index}"), "ed25519", "never");
        let home = Some(gpg.0.path());
        signed_commit(
            &repository,
            &[("user.signingkey", &id), ("gpg.program", "gpg")],
            home,
            "signed\n\nwith a body\n\ngpgsig is no field here\n more",
        );
        signed_tag(&repository, home, &format!("1.0.{index}"));
        let mut client = Client::new(&server.url());
        client.with_tag = true;
        let checkout = client.changed(&[("tag", &format!("1.0.{index}"))]).await;
        let commit = Signed::commit(&checkout.raw_commit);
        assert_eq!(keys(&[("a.asc", &public)]).verify(&commit, now()).as_deref(), Ok(&*id), "{algorithm}");
        let both = [("x.asc", "broken"), ("o.asc", &*other), ("a.asc", &*public)];
        assert_eq!(keys(&both).verify(&commit, now()).as_deref(), Ok(&*id));
        let tag = checkout.tag.unwrap();
        assert_eq!(tag.name, format!("1.0.{index}"));
        let raw = tag.raw.unwrap();
        let signed = Signed::tag(&raw);
        assert_eq!(keys(&[("a.asc", &public)]).verify(&signed, now()).as_deref(), Ok(&*id));
        // Neither another key nor another text is accepted.
        let error = keys(&[("o.asc", &other)]).verify(&commit, now()).unwrap_err();
        assert_eq!(error.to_string(), "unable to verify payload with any of the given key rings");
        let mut changed = commit.clone();
        changed.payload.push(b'x');
        assert!(keys(&[("a.asc", &public)]).verify(&changed, now()).is_err());
        // A year later the key that lasts a day has expired.
        let later = now() + jiff::SignedDuration::from_hours(24 * 365);
        assert_eq!(keys(&[("a.asc", &public)]).verify(&commit, later).is_ok(), index != 0);
        let error = keys(&[("k.sshpub", "ssh-ed25519 AAAA")]).verify(&commit, now()).unwrap_err();
        assert!(
            error.to_string().starts_with("PGP signature detected but no PGP public keys found"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn commits_signed_with_ssh_keys() {
    if !is_installed("ssh-keygen") {
        return;
    }
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("a.yaml", "1");
    let directory = TempDir::new().unwrap();
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let path = directory.path().join(kind);
        let key = path.to_str().unwrap();
        run(Command::new("ssh-keygen").args(["-q", "-t", kind, "-N", "", "-C", "me", "-f", key]));
        let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
        signed_commit(&repository, &[("gpg.format", "ssh"), ("user.signingkey", key)], None, "signed");
        let checkout = Client::new(&server.url()).changed(crate::MAIN).await;
        let commit = Signed::commit(&checkout.raw_commit);
        let id = keys(&[("me.sshpub", &public)]).verify(&commit, now()).unwrap();
        let listed = run(Command::new("ssh-keygen").args(["-l", "-f", &format!("{key}.pub")]));
        assert!(listed.contains(&id), "{listed} {id}");
        assert!(keys(&[("me.sshpub", &format!("{public}broken\n"))]).verify(&commit, now()).is_err());
        let mut changed = commit.clone();
        changed.payload[0] ^= 1;
        assert!(keys(&[("me.sshpub", &public)]).verify(&changed, now()).is_err());
    }
    repository.git(&["config", "commit.gpgsign", "false"]);
    repository.commit("unsigned");
    let checkout = Client::new(&server.url()).changed(crate::MAIN).await;
    let error = keys(&[]).verify(&Signed::commit(&checkout.raw_commit), now()).unwrap_err();
    assert_eq!(error.to_string(), "unsupported signature type: empty");
    assert_eq!(checkout.tag, None);
}
