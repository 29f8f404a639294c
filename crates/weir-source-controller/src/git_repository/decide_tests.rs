use serde_json::json;

use super::*;

fn object(spec: serde_json::Value, status: &serde_json::Value) -> GitRepository {
    let mut spec = spec;
    spec["interval"] = json!("1m");
    if spec.get("url").is_none() {
        spec["url"] = json!("https://example.com/r.git");
    }
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": "r", "namespace": "apps"}, "spec": spec, "status": status,
    }))
    .unwrap()
}

fn data(entries: &[(&str, &str)]) -> Data {
    entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
}

#[track_caller]
fn check_credentials(url: &str, entries: &[(&str, &str)], expected: Result<&str, &str>) {
    let url = RedactedUrl::parse(url).unwrap();
    let found = parse_credentials(&url, &data(entries), None).map(|credentials| {
        let authorization = match credentials.authorization {
            Authorization::None => "none".to_owned(),
            Authorization::Basic { username, password } => format!("{username}:{}", password.expose()),
            Authorization::Bearer(token) => format!("bearer {}", token.expose()),
        };
        let authority = credentials.certificate_authority.map(|pem| String::from_utf8(pem).unwrap());
        let pair = credentials.client_certificate.is_some();
        format!("{authorization} ca={} pair={pair}", authority.unwrap_or_default())
    });
    assert_eq!(found.map_err(|error| error.to_string()), expected.map(str::to_owned).map_err(str::to_owned));
}

#[test]
fn keys_from_secrets() {
    const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
QyNTUxOQAAACCzPq7zfqLffKoBDe/eo04kH2XxtSmk9D7RQyf1xUqrYgAAAJgAIAxdACAM
XQAAAAtzc2gtZWQyNTUxOQAAACCzPq7zfqLffKoBDe/eo04kH2XxtSmk9D7RQyf1xUqrYg
AAAEC2BsIi0QwW2uFscKTUUXNHLsYX4FxlaSDSblbAj7WR7bM+rvN+ot98qgEN796jTiQf
ZfG1KaT0PtFDJ/XFSqtiAAAAEHVzZXJAZXhhbXBsZS5jb20BAgMEBQ==
-----END OPENSSH PRIVATE KEY-----
";
    const HOST: &str =
        "github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    #[track_caller]
    fn check(entries: &[(&str, &str)], expected: Result<(), &str>) {
        let found = parse_ssh(&data(entries), None, || "apps/key".to_owned());
        let found = found.map(|credentials| assert!(credentials.ssh.is_some()));
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }
    check(&[("identity", KEY), ("known_hosts", HOST)], Ok(()));
    check(&[("known_hosts", HOST)], Err("invalid 'ssh' auth option: 'identity' is required"));
    check(&[("identity", KEY)], Err("invalid 'ssh' auth option: 'known_hosts' is required"));
    check(&[("identity", "x"), ("known_hosts", HOST)], Err("unable to parse private key"));
    check(
        &[("identity", KEY), ("known_hosts", "github.com")],
        Err("knownhosts: line 1: missing host pattern or key"),
    );
    check(
        &[
            ("identity", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----"),
            ("known_hosts", HOST),
        ],
        Err("SSH identity key is encrypted but no 'password' field was provided in the secret 'apps/key'"),
    );
}

#[test]
fn credentials_from_secrets() {
    let https = "https://example.com/r.git";
    check_credentials(https, &[], Ok("none ca= pair=false"));
    check_credentials(https, &[("username", "u"), ("password", "p")], Ok("u:p ca= pair=false"));
    check_credentials(https, &[("username", "u")], Ok("u: ca= pair=false"));
    check_credentials(
        https,
        &[("bearerToken", "t"), ("username", "u"), ("ca.crt", "A")],
        Ok("bearer t ca=A pair=false"),
    );
    check_credentials(https, &[("caFile", "B")], Ok("none ca=B pair=false"));
    check_credentials(https, &[("caFile", "B"), ("ca.crt", "A")], Ok("none ca=A pair=false"));
    check_credentials(
        "http://example.com/r.git",
        &[("tls.crt", "C"), ("tls.key", "K")],
        Ok("none ca= pair=true"),
    );
    check_credentials("https://u@example.com/r.git", &[("password", "p")], Ok(":p ca= pair=false"));
    check_credentials(
        https,
        &[("password", "p")],
        Err("invalid 'https' auth option: 'password' requires 'username' to be set"),
    );
    check_credentials(https, &[("tls.crt", "C")], Err("secret contains 'tls.crt' but missing 'tls.key'"));
}

#[test]
fn a_github_app_needs_its_provider() {
    let object = object(json!({"secretRef": {"name": "app"}}), &json!({}));
    let url = url(&object).unwrap();
    let error = credentials(&object, &url, Some(&data(&[("githubAppID", "1")])), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "secretRef 'apps/app' has github app data but provider is not set to github"
    );
}

fn artifact(revision: &str, digest: &str) -> serde_json::Value {
    json!({
        "revision": revision, "digest": digest, "path": "p", "url": "u",
        "lastUpdateTime": "2026-01-01T00:00:00Z",
    })
}

fn included(name: &str, revision: &str, digest: &str) -> Included {
    Included {
        spec: serde_json::from_value(json!({"repository": {"name": name}})).unwrap(),
        artifact: serde_json::from_value(artifact(revision, digest)).unwrap(),
    }
}

fn in_storage(mut status: serde_json::Value) -> serde_json::Value {
    status["artifact"] = artifact("main@sha1:1", "sha256:1");
    status["conditions"] = json!([{
        "type": "ArtifactInStorage", "status": "True", "reason": "Succeeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    status
}

#[test]
fn the_known_revision_is_one_that_would_be_made_the_same_way() {
    #[track_caller]
    fn check(spec: serde_json::Value, status: serde_json::Value, includes: &[Included], known: bool) {
        let object = object(spec, &in_storage(status));
        assert_eq!(known_revision(&object, includes).is_some(), known);
        assert_eq!(is_stored(&object, "main@sha1:1", includes), known);
        assert!(!is_stored(&object, "main@sha1:2", includes));
    }
    check(json!({}), json!({}), &[], true);
    check(json!({"ignore": ""}), json!({}), &[], false);
    check(json!({"ignore": "a"}), json!({"observedIgnore": "a"}), &[], true);
    check(json!({"sparseCheckout": ["a", "b"]}), json!({"observedSparseCheckout": ["b", "a"]}), &[], false);
    let include = json!([{"repository": {"name": "x"}}]);
    let same = json!({"observedInclude": include, "includedArtifacts": [artifact("r", "sha256:1")]});
    check(json!({"include": include}), same.clone(), &[included("x", "r", "sha256:1")], true);
    check(json!({"include": include}), same.clone(), &[included("x", "r", "sha256:2")], false);
    check(json!({"include": include}), same.clone(), &[included("x", "s", "sha256:1")], false);
    check(json!({"include": include}), json!({}), &[included("x", "r", "sha256:1")], false);
    check(json!({}), same, &[], false);
    assert_eq!(known_revision(&object(json!({}), &json!({})), &[]), None);
}

#[test]
fn broken_urls_do_not_show_passwords() {
    let object = object(json!({"url": "https://user:hunter2@exa mple.com/r"}), &json!({}));
    let error = url(&object).unwrap_err();
    assert_eq!(
        weir_base::error::chain(&error),
        "failed to parse url 'exa mple.com/r': invalid international domain name"
    );
}
