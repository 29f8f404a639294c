//! Git checkouts against the real `git http-backend` and `sshd`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "failing is what tests do")]

mod bases;
mod ssh;
mod submodules;
mod tls;
mod verify;

use std::io::Write as _;
use std::time::Duration;

use tempfile::TempDir;
use weir_artifact::unpack::{Limits as UnpackLimits, Symlinks, unpack};
use weir_base::error::chain;
use weir_base::redact::{RedactedUrl, Secret};
use weir_base::tree::MemoryTree;
use weir_source::git::{
    Authorization, Checkout, Credentials, Git, GitError, Limits, Outcome, Reference, Request, Target,
};

use weir_testkit::git::{Behaviour, Server};

/// Says on the terminal that a test does not run, which captured output would hide.
fn skipped(missing: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {missing} is not installed");
}

/// Whether a program can be started; says so if not.
fn is_installed(program: &str) -> bool {
    let there = std::process::Command::new(program).arg("--version").output().is_ok();
    if !there {
        skipped(program);
    }
    there
}

/// A client with an own cache, and requests for one repository.
struct Client {
    git: Git,
    cache: TempDir,
    url: String,
    credentials: Credentials,
    timeout: Duration,
    with_tag: bool,
    with_submodules: bool,
}

impl Client {
    fn new(url: &str) -> Self {
        Self::with_limits(url, Limits::default())
    }

    fn with_limits(url: &str, limits: Limits) -> Self {
        let cache = TempDir::new().unwrap();
        Self {
            git: Git::new(cache.path().join("git"), limits).unwrap(),
            cache,
            url: url.to_owned(),
            credentials: Credentials::default(),
            timeout: Duration::from_mins(2),
            with_tag: false,
            with_submodules: false,
        }
    }

    async fn checkout(&self, reference: &[(&str, &str)], known: Option<&str>) -> Result<Outcome, GitError> {
        let mut wanted = Reference::default();
        for (field, value) in reference {
            let value = Some((*value).to_owned());
            match *field {
                "branch" => wanted.branch = value,
                "tag" => wanted.tag = value,
                "semver" => wanted.semver = value,
                "name" => wanted.name = value,
                "commit" => wanted.commit = value,
                other => panic!("{other}"),
            }
        }
        self.git
            .checkout(Request {
                cache_key: "default/repo".to_owned(),
                url: RedactedUrl::parse(&self.url).unwrap(),
                credentials: self.credentials.clone(),
                target: Target::new(&wanted)?,
                known_revision: known.map(str::to_owned),
                with_tag: self.with_tag,
                with_submodules: self.with_submodules,
                timeout: self.timeout,
            })
            .await
    }

    async fn changed(&self, reference: &[(&str, &str)]) -> Checkout {
        match self.checkout(reference, None).await {
            Ok(Outcome::Changed(checkout)) => *checkout,
            other => panic!("{other:?}"),
        }
    }

    async fn error(&self, reference: &[(&str, &str)]) -> String {
        chain(&self.checkout(reference, None).await.unwrap_err())
    }
}

fn files(checkout: &Checkout) -> MemoryTree {
    archive(checkout, None)
}

fn archive(checkout: &Checkout, ignore: Option<&str>) -> MemoryTree {
    let rules = checkout.worktree.rules(ignore).unwrap();
    let mut bytes = Vec::new();
    checkout.worktree.write_archive(&rules, &mut bytes).unwrap();
    unpack(&bytes, UnpackLimits::default(), Symlinks::Refuse).unwrap()
}

fn names(tree: &MemoryTree) -> Vec<&str> {
    tree.files().map(|(path, _)| path).collect()
}

const MAIN: &[(&str, &str)] = &[("branch", "main")];

#[tokio::test]
async fn a_branch_is_checked_out_without_history_and_without_a_work_tree() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("a.yaml", "1");
    repository.commit("first");
    repository.write("deploy/run.sh", "#!/bin/sh\n");
    repository.git(&["update-index", "--add", "--chmod=+x", "deploy/run.sh"]);
    std::fs::set_permissions(
        repository.work.join("deploy/run.sh"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    std::os::unix::fs::symlink("a.yaml", repository.work.join("link.yaml")).unwrap();
    let commit = repository.commit("second\n\nwith a body");

    let client = Client::new(&server.url());
    let checkout = client.changed(MAIN).await;
    assert_eq!(checkout.revision, format!("main@sha1:{commit}"));
    assert_eq!(checkout.subject(), "second");
    let tree = files(&checkout);
    assert_eq!(names(&tree), ["a.yaml", "deploy/run.sh"]);
    assert!(tree.files().any(|(path, file)| path == "deploy/run.sh" && file.executable));
    assert!(checkout.worktree.contains("./deploy") && checkout.worktree.contains("link.yaml"));
    assert!(!checkout.worktree.contains("missing") && !checkout.worktree.contains("../deploy"));

    let seen = server.take_seen();
    let paths: Vec<&str> = seen.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["/repo.git/info/refs", "/repo.git/git-upload-pack", "/repo.git/git-upload-pack"]);
    assert!(seen[1].body.contains("ref-prefix refs/heads/main\n"), "{}", seen[1].body);
    assert!(seen[2].body.contains("deepen 1"), "{}", seen[2].body);
}

#[tokio::test]
async fn an_unmoved_reference_costs_one_listing() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("a.yaml", "1");
    let commit = repository.commit("first");
    repository.tag(&["1.0.0"]);
    let client = Client::new(&server.url());
    let name = [("name", "refs/heads/main")];
    let cases: [(&[(&str, &str)], String); 5] = [
        (MAIN, format!("main@sha1:{commit}")),
        (&[("tag", "1.0.0")], format!("1.0.0@sha1:{commit}")),
        (&[("semver", "1.x")], format!("1.0.0@sha1:{commit}")),
        (&name, format!("refs/heads/main@sha1:{commit}")),
        (&[("commit", &commit)], format!("sha1:{commit}")),
    ];
    for (reference, known) in cases {
        server.take_seen();
        let outcome = client.checkout(reference, Some(&known)).await.unwrap();
        assert!(matches!(outcome, Outcome::Unchanged { revision } if revision == known));
        let seen = server.take_seen();
        assert_eq!(seen.len(), 2, "{reference:?}");
        assert!(seen.iter().all(|one| !one.body.contains("want ")));
    }
}

#[tokio::test]
async fn the_next_fetch_transfers_what_changed() {
    let server = Server::start().await;
    let repository = server.repository();
    for index in 0..40 {
        let noise = format!("{index}\n").repeat(400 + index * 13);
        repository.write(&format!("dir{}/{index}.yaml", index % 5), &noise);
    }
    repository.commit("first");
    let client = Client::new(&server.url());
    client.changed(MAIN).await;
    let first = server.take_seen().last().unwrap().answer_bytes;
    repository.write("dir1/1.yaml", "changed");
    let commit = repository.commit("second");
    let checkout = client.changed(MAIN).await;
    assert_eq!(checkout.commit, commit);
    assert_eq!(names(&files(&checkout)).len(), 40);
    let seen = server.take_seen();
    let second = seen.last().unwrap().answer_bytes;
    assert!(seen.last().unwrap().body.contains("have "));
    assert!(second * 3 < first, "first {first} bytes, then {second}");

    // The same commit again, for instance because the ignore rules changed, needs no pack.
    drop(checkout);
    client.changed(MAIN).await;
    assert!(server.take_seen().iter().all(|one| !one.body.contains("want ")));
}

#[tokio::test]
async fn all_kinds_of_references() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    let first = repository.commit("first");
    repository.tag(&["1.0.0"]);
    repository.tag(&["-a", "v1.1.0", "-m", "annotated"]);
    repository.tag(&["-a", "-f", "nested", "-m", "tag of a tag", "v1.1.0"]);
    repository.write("v", "2");
    let second = repository.commit("second");
    repository.tag(&["2.0.0-rc.1"]);
    repository.git(&["push", "-q", "origin", "HEAD:refs/pull/7/head", "HEAD:refs/heads/feature/x"]);
    repository.write("v", "3");
    let third = repository.commit("third");
    let client = Client::new(&server.url());
    for (reference, label, commit) in [
        (vec![("branch", "main")], "main@", &third),
        (vec![("branch", "feature/x")], "feature/x@", &second),
        (vec![("tag", "1.0.0")], "1.0.0@", &first),
        (vec![("tag", "v1.1.0")], "v1.1.0@", &first),
        (vec![("tag", "nested")], "nested@", &first),
        (vec![("semver", ">=1.0.0")], "v1.1.0@", &first),
        (vec![("semver", ">=1.0.0-0")], "2.0.0-rc.1@", &second),
        (vec![("name", "refs/pull/7/head")], "refs/pull/7/head@", &second),
        (vec![("name", "refs/tags/v1.1.0^{}")], "refs/tags/v1.1.0^{}@", &first),
        (vec![("name", "HEAD")], "HEAD@", &third),
        (vec![("commit", second.as_str())], "", &second),
        (vec![("commit", first.as_str()), ("branch", "main")], "main@", &first),
    ] {
        let checkout = client.changed(&reference).await;
        assert_eq!(checkout.revision, format!("{label}sha1:{commit}"), "{reference:?}");
        let tree = files(&checkout);
        let expected = if *commit == first {
            "1"
        } else if *commit == second {
            "2"
        } else {
            "3"
        };
        assert_eq!(tree.files().next().unwrap().1.data, expected, "{reference:?}");
    }
}

#[tokio::test]
async fn of_equal_versions_the_newest_commit_wins() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    let commit = |message: &str, date: &str| {
        repository.git(&["add", "-A"]);
        let output = std::process::Command::new("git")
            .current_dir(&repository.work)
            .args(["-c", "user.name=A", "-c", "user.email=a@example.com"])
            .args(["commit", "-q", "--allow-empty", "-m", message])
            .env("GIT_COMMITTER_DATE", date)
            .output()
            .unwrap();
        assert!(output.status.success());
    };
    commit("older", "2024-01-01T00:00:00Z");
    repository.tag(&["1.0.0+z"]);
    commit("newer", "2025-01-01T00:00:00Z");
    repository.tag(&["1.0.0+a"]);
    let client = Client::new(&server.url());
    let checkout = client.changed(&[("semver", "1.x")]).await;
    assert!(checkout.revision.starts_with("1.0.0+a@"), "{}", checkout.revision);
    let revision = checkout.revision.clone();
    drop(checkout);
    let outcome = client.checkout(&[("semver", "1.x")], Some(&revision)).await.unwrap();
    assert!(matches!(outcome, Outcome::Unchanged { .. }));
}

#[tokio::test]
async fn forced_moved_and_deleted_references() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    let first = repository.commit("first");
    repository.write("v", "2");
    let second = repository.commit("second");
    let client = Client::new(&server.url());
    assert_eq!(client.changed(MAIN).await.commit, second);
    repository.git(&["reset", "-q", "--hard", &first]);
    repository.write("v", "other");
    let third = repository.commit("third");
    let checkout = client.changed(MAIN).await;
    assert_eq!(checkout.commit, third);
    assert_eq!(files(&checkout).files().next().unwrap().1.data, "other");
    drop(checkout);
    // Back to a commit the server has collected in between.
    weir_testkit::git::git(&repository.bare, &["reflog", "expire", "--expire=now", "--all"]);
    weir_testkit::git::git(&repository.bare, &["gc", "-q", "--prune=now"]);
    repository.git(&["reset", "-q", "--hard", &second]);
    repository.git(&["push", "-q", "--force", "origin", "HEAD"]);
    assert_eq!(client.changed(MAIN).await.commit, second);

    repository.git(&["push", "-q", "origin", "HEAD:other"]);
    repository.git(&["push", "-q", "origin", ":main"]);
    assert_eq!(
        client.error(MAIN).await,
        format!("unable to clone '{}': couldn't find remote ref \"refs/heads/main\"", server.url())
    );
}

#[tokio::test]
async fn missing_things_are_named() {
    let server = Server::start().await;
    let repository = server.repository();
    let client = Client::new(&server.url());
    assert!(matches!(client.checkout(MAIN, None).await.unwrap(), Outcome::Empty));
    repository.write("v", "1");
    let commit = repository.commit("first");
    let tree = repository.git(&["rev-parse", "HEAD^{tree}"]);
    repository.git(&["tag", "tree", &tree]);
    repository.git(&["push", "-q", "--tags", "origin"]);
    let url = server.url();
    let unknown = "1234567890123456789012345678901234567890";
    for (reference, expected) in [
        (("tag", "1.0"), format!("unable to clone '{url}': couldn't find remote ref \"refs/tags/1.0\"")),
        (("semver", "1.x"), "no match found for semver: 1.x".to_owned()),
        (("name", "refs/x"), "unable to resolve ref 'refs/x' to a specific commit".to_owned()),
        (
            ("tag", "tree"),
            format!("unable to resolve commit object for '{tree}': the object is not a commit"),
        ),
    ] {
        assert_eq!(client.error(&[reference]).await, expected, "{reference:?}");
    }
    let error = client.error(&[("commit", unknown)]).await;
    assert!(error.starts_with(&format!("unable to resolve commit object for '{unknown}': ")), "{error}");
    let other = Client::new(&url.replace("repo.git", "missing.git"));
    assert_eq!(
        other.error(MAIN).await,
        format!(
            "unable to clone: repository not found: git repository: '{}'",
            url.replace("repo.git", "missing.git")
        )
    );
    // A wrong commit does no harm to the next request.
    assert_eq!(client.changed(MAIN).await.commit, commit);
}

#[tokio::test]
async fn servers_with_the_old_protocol() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    let first = repository.commit("first");
    repository.write("v", "2");
    let second = repository.commit("second");
    server.behave(Behaviour { old_protocol: true, ..Behaviour::default() });
    let client = Client::new(&server.url());
    assert_eq!(client.changed(MAIN).await.commit, second);
    repository.write("v", "3");
    let third = repository.commit("third");
    assert_eq!(client.changed(MAIN).await.commit, third);
    // The commit is not listed, so the whole branch is fetched to find it.
    let checkout = client.changed(&[("commit", &first), ("branch", "main")]).await;
    assert_eq!(files(&checkout).files().next().unwrap().1.data, "1");
}

#[tokio::test]
async fn credentials_are_sent_and_failures_do_not_show_them() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    repository.commit("first");
    let mut client = Client::new(&server.url());
    let basic = "Basic dXNlcjpodW50ZXIy";
    let accept = |text: &str| Behaviour { authorization: Some(text.to_owned()), ..Behaviour::default() };
    server.behave(accept(basic));
    assert_eq!(
        client.error(MAIN).await,
        format!("unable to clone '{}': authentication required: who are you?", server.url())
    );
    client.credentials.authorization =
        Authorization::Basic { username: "user".to_owned(), password: Secret::new("hunter2") };
    client.changed(MAIN).await;
    assert!(server.take_seen().iter().skip(1).all(|one| one.authorization.as_deref() == Some(basic)));

    client.credentials.authorization = Authorization::Bearer(Secret::new("token"));
    assert!(client.error(MAIN).await.contains("authentication required"));
    server.behave(accept("Bearer token"));
    client.changed(MAIN).await;

    server.behave(accept(basic));
    client.credentials.authorization = Authorization::None;
    client.url = format!("http://user:hunter2@{}/repo.git", server.address);
    client.changed(MAIN).await;
    server.behave(Behaviour { refuse: Some((403, "not for you")), ..Behaviour::default() });
    let error = client.error(MAIN).await;
    assert_eq!(error, format!("unable to clone '{}': authorization failed: not for you", server.url()));
    server.behave(Behaviour { refuse: Some((500, "hunter2 is broken")), ..Behaviour::default() });
    let error = client.checkout(MAIN, Some("main@sha1:0")).await.unwrap_err();
    assert_eq!(
        chain(&error),
        format!(
            "unable to list remote for '{}': unexpected client error: unexpected requesting \
             \"{}/info/refs?service=git-upload-pack\" status code: 500: hunter2 is broken",
            server.url(),
            server.url()
        )
    );
}

#[tokio::test]
async fn redirects_are_followed_without_credentials_for_other_hosts() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    let commit = repository.commit("first");
    let front = Server::start().await;
    front.behave(Behaviour {
        redirect: Some((301, format!("http://{}", server.address))),
        ..Behaviour::default()
    });
    let mut client = Client::new(&front.url());
    client.credentials.authorization =
        Authorization::Basic { username: "user".to_owned(), password: Secret::new("hunter2") };
    assert_eq!(client.changed(MAIN).await.commit, commit);
    let front_seen = front.take_seen();
    assert_eq!(front_seen.len(), 1, "later requests go to the new place");
    assert!(front_seen[0].authorization.is_some());
    let seen = server.take_seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|one| one.authorization.is_none()), "{seen:?}");

    front.behave(Behaviour { redirect: Some((302, "ftp://example.com".to_owned())), ..Behaviour::default() });
    assert!(client.error(MAIN).await.contains("the scheme is not supported"));
    front.behave(Behaviour {
        redirect: Some((302, format!("http://{}", front.address))),
        ..Behaviour::default()
    });
    assert!(client.error(MAIN).await.contains("there are too many of them"));
}

#[tokio::test]
async fn silent_servers_are_given_up_on() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    repository.commit("first");
    let mut client = Client::new(&server.url());
    client.timeout = Duration::from_millis(700);
    for place in ["info/refs", "ls-refs", "want "] {
        server.behave(Behaviour { hang_on: Some(place), ..Behaviour::default() });
        let started = std::time::Instant::now();
        let error = client.error(MAIN).await;
        assert_eq!(
            error,
            format!(
                "unable to clone '{}': context deadline exceeded: the operation did not finish within 0.7s",
                server.url()
            ),
            "{place}"
        );
        assert!(started.elapsed() < Duration::from_secs(10), "{place}");
    }
    server.behave(Behaviour::default());
    client.timeout = Duration::from_mins(2);
    client.changed(MAIN).await;
}

#[tokio::test]
async fn broken_answers_are_errors_and_leave_the_cache_usable() {
    let server = Server::start().await;
    let repository = server.repository();
    for index in 0..20 {
        repository.write(&format!("{index}.yaml"), &format!("{index}\n").repeat(900 + index));
    }
    repository.commit("first");
    let client = Client::new(&server.url());
    let mut length = 1;
    while length < 3000 {
        server.behave(Behaviour { cut_packs_at: Some(length), ..Behaviour::default() });
        let error = client.error(MAIN).await;
        assert!(error.starts_with("unable to clone"), "cut at {length}: {error}");
        length = length * 3 + 7;
    }
    server.behave(Behaviour { content_type: Some("text/html"), ..Behaviour::default() });
    let error = client.error(MAIN).await;
    assert!(error.contains("application/x-git-upload-pack-advertisement"), "{error}");
    server.behave(Behaviour::default());
    let checkout = client.changed(MAIN).await;
    assert_eq!(names(&files(&checkout)).len(), 20);
    let error = Client::new("http://127.0.0.1:1/repo.git").error(MAIN).await;
    assert!(error.starts_with("unable to clone 'http://127.0.0.1:1/repo.git': failed to reach"), "{error}");
}

#[tokio::test]
async fn damaged_caches_are_rebuilt() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    repository.commit("first");
    let client = Client::new(&server.url());
    client.changed(MAIN).await;
    repository.write("v", "2");
    let second = repository.commit("second");
    for entry in walk(client.cache.path()) {
        if entry.extension().is_some_and(|extension| extension == "pack") {
            let mut permissions = std::fs::metadata(&entry).unwrap().permissions();
            #[expect(clippy::permissions_set_readonly_false, reason = "a file of this test")]
            permissions.set_readonly(false);
            std::fs::set_permissions(&entry, permissions).unwrap();
            std::fs::write(&entry, "garbage").unwrap();
        }
        if entry.file_name().is_some_and(|name| name == "shallow") {
            std::fs::write(entry.with_extension("lock"), "").unwrap();
        }
    }
    let checkout = client.changed(MAIN).await;
    assert_eq!(checkout.commit, second);
    assert_eq!(files(&checkout).files().next().unwrap().1.data, "2");
    drop(checkout);
    client.git.forget("default/repo").await;
    assert_eq!(walk(client.cache.path()).len(), 0);
    client.changed(MAIN).await;
}

fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files
}

#[tokio::test]
async fn sizes_are_bounded() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("a/b", "1");
    repository.write("c", &"noise".repeat(3000));
    repository.commit("first");
    for index in 0..300 {
        std::fs::write(
            repository.bare.join(format!("refs/tags/{index}")),
            repository.git(&["rev-parse", "HEAD"]),
        )
        .unwrap();
    }
    let check = async |limits: Limits, reference: &[(&str, &str)], expected: &str| {
        let error = Client::with_limits(&server.url(), limits).error(reference).await;
        assert!(error.contains(expected), "{error}");
    };
    let limits = Limits::default();
    check(Limits { list_bytes_max: 5000, ..limits }, &[("semver", "1.x")], "larger than 5000 bytes").await;
    check(Limits { pack_bytes_max: 100, ..limits }, MAIN, "larger than 100 bytes").await;
    check(Limits { entries_max: 2, ..limits }, MAIN, "the tree has more than 2 entries").await;
    // Other references do not count.
    Client::with_limits(&server.url(), Limits { list_bytes_max: 5000, ..limits }).changed(MAIN).await;
    let small = Client::with_limits(&server.url(), Limits { cache_packs_max: 2, ..limits });
    for index in 0..6 {
        repository.write("c", &index.to_string());
        let commit = repository.commit("next");
        assert_eq!(small.changed(MAIN).await.commit, commit);
        let packs = walk(small.cache.path())
            .iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "pack"))
            .count();
        assert!(packs <= 3, "{packs}");
    }
}

#[tokio::test]
async fn ignore_rules_sparse_paths_and_includes() {
    let server = Server::start().await;
    let repository = server.repository();
    for path in [
        "README.md",
        "logo.png",
        ".github/ci.yaml",
        "deploy/app.yaml",
        "deploy-old/app.yaml",
        "apps/x.yaml",
        "apps/x.txt",
    ] {
        repository.write(path, path);
    }
    repository.commit("first");
    let client = Client::new(&server.url());
    let checkout = client.changed(MAIN).await;
    assert_eq!(
        names(&files(&checkout)),
        ["README.md", "apps/x.txt", "apps/x.yaml", "deploy-old/app.yaml", "deploy/app.yaml"]
    );
    let only_deploy = archive(&checkout, Some("/*\n!/deploy"));
    assert_eq!(names(&only_deploy), ["deploy/app.yaml"]);
    drop(checkout);

    repository.write("apps/.sourceignore", "*.txt\n");
    repository.commit("second");
    let mut checkout = client.changed(MAIN).await;
    assert_eq!(
        names(&files(&checkout)),
        [
            ".github/ci.yaml",
            "README.md",
            "apps/.sourceignore",
            "apps/x.yaml",
            "deploy-old/app.yaml",
            "deploy/app.yaml",
            "logo.png"
        ]
    );
    checkout.worktree.keep_only(&["./deploy".to_owned()]);
    assert_eq!(names(&files(&checkout)), ["deploy-old/app.yaml", "deploy/app.yaml"]);

    let other: MemoryTree = [("base/b.yaml", "b"), ("c.png", "c")].into_iter().collect();
    checkout.worktree.include(&other, "", "vendor/other").unwrap();
    checkout.worktree.include(&other, "base", "/base").unwrap();
    checkout.worktree.include(&other, "base/b.yaml", "single.yaml").unwrap();
    assert_eq!(
        names(&files(&checkout)),
        ["base/b.yaml", "deploy-old/app.yaml", "deploy/app.yaml", "single.yaml", "vendor/other/base/b.yaml"]
    );
    for (from, to, expected) in [
        ("", "../x", "is outside the repository"),
        ("missing", "x", "does not exist in the included artifact"),
        ("", "deploy", "exists and is not an empty directory"),
        ("base/b.yaml", "deploy/app.yaml/x", "exists and is not an empty directory"),
    ] {
        let error = checkout.worktree.include(&other, from, to).unwrap_err();
        assert!(error.to_string().contains(expected), "{from} {to}: {error}");
    }
}

#[tokio::test]
async fn submodules_that_are_not_fetched_are_empty_directories() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("v", "1");
    let commit = repository.commit("first");
    repository.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},vendor/sub")]);
    repository.git(&["commit", "-q", "-m", "submodule"]);
    repository.git(&["push", "-q", "origin", "HEAD"]);
    let client = Client::new(&server.url());
    let tree = files(&client.changed(MAIN).await);
    assert_eq!(tree.directories().collect::<Vec<_>>(), ["vendor", "vendor/sub"]);
}

/// Where the two dialects agree, `git check-ignore` is the judge.
#[tokio::test]
async fn ignore_rules_agree_with_git() {
    let server = Server::start().await;
    let repository = server.repository();
    let paths = [
        "a",
        "b.txt",
        "c/a",
        "c/d/a",
        "c/d/b.txt",
        "e/f/g.yaml",
        "e/g.yaml",
        "x y",
        "z/.hidden",
        "k/m/n/o.log",
        "k/o.log",
    ];
    let pattern_sets = [
        "a",
        "/a",
        "*.txt",
        "c/",
        "/c/d",
        "c/d/",
        "e/*.yaml",
        "e/**/g.yaml",
        "**/d",
        "**/n/o.log",
        "k/**",
        "x y",
        "[a-c]",
        "?.txt",
        "*.log\n!k/o.log",
        ".hidden",
        "\\a",
        "c/*/a",
        "/*.txt",
        "k/*/n",
    ];
    let mut checked = 0;
    for patterns in pattern_sets {
        repository.write(".gitignore", &format!("{patterns}\n"));
        let rules = weir_source::ignore::Rules::assemble([("", patterns)], None);
        for path in paths {
            let output = std::process::Command::new("git")
                .current_dir(&repository.work)
                .args(["check-ignore", "--no-index", "-q", path])
                .output()
                .unwrap();
            let ignored = output.status.code() == Some(0);
            assert_eq!(rules.excludes(path, false), ignored, "{patterns:?} on '{path}'");
            checked += 1;
        }
    }
    assert_eq!(checked, paths.len() * pattern_sets.len());
}
