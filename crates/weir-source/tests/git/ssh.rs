//! Git over SSH against a real `sshd`, run without privileges on the loopback. Skipped where there is none.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use weir_base::redact::Secret;
use weir_source::git::{IdentityError, KnownHosts, Outcome, SshAlgorithms, SshCredentials};

use crate::{Client, MAIN, files, is_installed, names, skipped};
use weir_testkit::git::{Repository, Server};
use weir_testkit::sshd::{SSHD, Sshd, generate, run, text};

/// Whether there is an `sshd`; says so if not.
fn available() -> bool {
    let there = Path::new(SSHD).exists();
    if !there {
        skipped(SSHD);
    }
    there
}

/// A client that logs in with a key.
fn log_in(sshd: &Sshd, repository: &Repository, identity: &str, password: &str, known_hosts: &str) -> Client {
    let user = run("id", &["-un"]);
    let path = repository.bare.to_str().unwrap();
    let mut client = Client::new(&format!("ssh://{user}@127.0.0.1:{}{path}", sshd.port));
    let password = Secret::new(password);
    let known_hosts = KnownHosts::parse(known_hosts).unwrap();
    let ssh = SshCredentials::new(&Secret::new(identity), Some(&password), known_hosts).unwrap();
    client.credentials.ssh = Some(ssh);
    client
}

/// A repository with one commit.
async fn repository() -> (Server, Repository, String) {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("a.yaml", "1");
    let commit = repository.commit("first");
    (server, repository, commit)
}

#[tokio::test]
async fn all_kinds_of_keys_log_in() {
    if !available() {
        return;
    }
    let (_server, repository, commit) = repository().await;
    let sshd = Sshd::start(&["ed25519", "ecdsa", "rsa"], "AcceptEnv GIT_PROTOCOL");
    for (kind, password, more) in [
        ("ed25519", "", &[][..]),
        ("ed25519", "pass word", &["-a", "4"][..]),
        ("ecdsa", "", &["-b", "384"][..]),
        ("ecdsa", "secret", &["-b", "256", "-a", "4"][..]),
        ("rsa", "", &["-b", "2048"][..]),
        ("rsa", "secret", &["-b", "2048", "-a", "4"][..]),
    ] {
        let identity = sshd.identity(kind, password, more);
        let client = log_in(&sshd, &repository, &identity, password, &sshd.known_hosts());
        let checkout = client.changed(MAIN).await;
        assert_eq!(checkout.revision, format!("main@sha1:{commit}"), "{kind} {more:?}");
        assert_eq!(names(&files(&checkout)), ["a.yaml"]);
    }
}

#[tokio::test]
async fn updates_and_unmoved_references() {
    if !available() {
        return;
    }
    let (_server, repository, commit) = repository().await;
    let sshd = Sshd::start(&["ed25519"], "AcceptEnv GIT_PROTOCOL");
    let identity = sshd.identity("ed25519", "", &[]);
    let client = log_in(&sshd, &repository, &identity, "", &sshd.known_hosts());
    client.changed(MAIN).await;
    let known = format!("main@sha1:{commit}");
    let same = client.checkout(MAIN, Some(&known)).await.unwrap();
    assert!(matches!(same, Outcome::Unchanged { revision } if revision == known));
    repository.write("b.yaml", "2");
    repository.commit("second");
    repository.tag(&["-a", "-m", "t", "1.2.0"]);
    assert_eq!(names(&files(&client.changed(MAIN).await)), ["a.yaml", "b.yaml"]);
    let chosen = client.changed(&[("semver", "1.x")]).await;
    assert!(chosen.revision.starts_with("1.2.0@sha1:"), "{}", chosen.revision);
    // A checkout keeps its cache for itself.
    drop(chosen);
    let first = client.changed(&[("commit", &commit)]).await;
    assert_eq!(names(&files(&first)), ["a.yaml"]);
    drop(first);
    let missing = client.error(&[("branch", "other")]).await;
    assert!(missing.contains("couldn't find remote ref \"refs/heads/other\""), "{missing}");
}

#[tokio::test]
async fn servers_of_an_older_protocol() {
    if !available() {
        return;
    }
    let (_server, repository, commit) = repository().await;
    // Without the variable the server does not know that it may speak the newer one.
    let sshd = Sshd::start(&["rsa"], "");
    let identity = sshd.identity("ed25519", "", &[]);
    let client = log_in(&sshd, &repository, &identity, "", &sshd.known_hosts());
    assert_eq!(client.changed(MAIN).await.revision, format!("main@sha1:{commit}"));
    repository.write("b.yaml", "2");
    repository.commit("second");
    assert_eq!(names(&files(&client.changed(MAIN).await)), ["a.yaml", "b.yaml"]);
}

#[tokio::test]
async fn servers_must_be_known() {
    if !available() {
        return;
    }
    let (_server, repository, _) = repository().await;
    let sshd = Sshd::start(&["ed25519"], "AcceptEnv GIT_PROTOCOL");
    let identity = sshd.identity("ed25519", "", &[]);
    let error =
        async |known_hosts: &str| log_in(&sshd, &repository, &identity, "", known_hosts).error(MAIN).await;
    let other = sshd.path("other");
    generate(&other, "ed25519", "", &[]);
    let changed = format!("[127.0.0.1]:{} {}", sshd.port, text(&other.with_extension("pub")));
    let refused = error(&changed).await;
    assert!(refused.ends_with("ssh: handshake failed: knownhosts: key mismatch"), "{refused}");
    let refused = error(&sshd.known_hosts().replace("127.0.0.1", "example.com")).await;
    assert!(refused.ends_with("ssh: handshake failed: knownhosts: key is unknown"), "{refused}");
    // As ssh-keygen hides the names of hosts.
    let hashed = sshd.path("hashed");
    std::fs::write(&hashed, sshd.known_hosts()).unwrap();
    run("ssh-keygen", &["-q", "-H", "-f", hashed.to_str().unwrap()]);
    assert!(text(&hashed).starts_with("|1|"));
    let client = log_in(&sshd, &repository, &identity, "", &text(&hashed));
    client.changed(MAIN).await;
}

#[tokio::test]
async fn wrong_keys_and_missing_repositories() {
    if !available() {
        return;
    }
    let (_server, mut repository, _) = repository().await;
    let sshd = Sshd::start(&["ed25519"], "AcceptEnv GIT_PROTOCOL");
    let stranger = sshd.path("stranger");
    generate(&stranger, "ed25519", "", &[]);
    let client = log_in(&sshd, &repository, &text(&stranger), "", &sshd.known_hosts());
    let refused = client.error(MAIN).await;
    assert!(refused.contains("ssh: unable to authenticate, attempted methods [none publickey]"), "{refused}");
    let identity = sshd.identity("ed25519", "secret", &["-a", "4"]);
    let known_hosts = || KnownHosts::parse(&sshd.known_hosts()).unwrap();
    let load = |password: Option<&str>| {
        let password = password.map(Secret::new);
        SshCredentials::new(&Secret::new(&*identity), password.as_ref(), known_hosts()).map(|_| ())
    };
    assert_eq!(load(None), Err(IdentityError::Encrypted));
    assert_eq!(load(Some("wrong")), Err(IdentityError::Unreadable));
    assert_eq!(load(Some("secret")), Ok(()));
    repository.bare = repository.bare.with_file_name("it's not there.git");
    let client = log_in(&sshd, &repository, &identity, "secret", &sshd.known_hosts());
    let missing = client.error(MAIN).await;
    assert!(
        missing.starts_with("unable to clone: repository not found: git repository: 'ssh://"),
        "{missing}"
    );
}

#[tokio::test]
async fn algorithms_can_be_chosen() {
    if !available() {
        return;
    }
    let (_server, repository, commit) = repository().await;
    let sshd = Sshd::start(
        &["ed25519", "rsa"],
        "AcceptEnv GIT_PROTOCOL\nKexAlgorithms ecdh-sha2-nistp256,diffie-hellman-group14-sha256",
    );
    let identity = sshd.identity("ed25519", "", &[]);
    let algorithms = |kex: &str, host_keys: &str| {
        let list = |text: &str| {
            text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        SshAlgorithms::new(&list(kex), &list(host_keys)).unwrap()
    };
    let with = |algorithms: SshAlgorithms| {
        let mut client = log_in(&sshd, &repository, &identity, "", &sshd.known_hosts());
        client.git = client.git.clone().with_algorithms(algorithms);
        client
    };
    for (kex, host_keys) in [
        ("", ""),
        ("diffie-hellman-group14-sha256", ""),
        ("ecdh-sha2-nistp256", "rsa-sha2-256"),
        ("", "rsa-sha2-512"),
    ] {
        let checkout = with(algorithms(kex, host_keys)).changed(MAIN).await;
        assert_eq!(checkout.revision, format!("main@sha1:{commit}"), "{kex} {host_keys}");
    }
    let refused = with(algorithms("curve25519-sha256", "")).error(MAIN).await;
    assert!(refused.contains("ssh: handshake failed: "), "{refused}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepting = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    let mut client = Client::new(&format!("ssh://git@127.0.0.1:{port}/repo.git"));
    client.timeout = Duration::from_millis(300);
    let error = client.error(MAIN).await;
    assert!(error.ends_with("ssh: no private key is given"), "{error}");
    let directory = TempDir::new().unwrap();
    let key = directory.path().join("key");
    if is_installed("ssh-keygen") {
        generate(&key, "ed25519", "", &[]);
        let ssh = SshCredentials::new(&Secret::new(text(&key)), None, KnownHosts::default()).unwrap();
        client.credentials.ssh = Some(ssh);
        let error = client.error(MAIN).await;
        assert!(error.contains("context deadline exceeded"), "{error}");
    }
    accepting.abort();
}
