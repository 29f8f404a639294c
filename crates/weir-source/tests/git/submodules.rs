//! Submodules, also in submodules.

use std::path::Path;

use weir_base::redact::Secret;
use weir_source::git::Authorization;

use crate::{Client, MAIN, files, names};
use weir_testkit::git::{Repository, Server, git};

/// Another repository on the server, with one file, and its commit.
fn library(
    server: &Server,
    repository: &Repository,
    name: &str,
    modules: &str,
    link: Option<&str>,
) -> String {
    let _ = server;
    let bare = repository.bare.with_file_name(name);
    let work = repository.work.with_file_name(format!("{name}-work"));
    git(Path::new("/"), &["init", "-q", "--bare", "-b", "main", bare.to_str().unwrap()]);
    git(Path::new("/"), &["init", "-q", "-b", "main", work.to_str().unwrap()]);
    let library = Repository { work, bare };
    library.git(&["remote", "add", "origin", library.bare.to_str().unwrap()]);
    git(&library.bare, &["config", "uploadpack.allowAnySHA1InWant", "true"]);
    library.write("lib.yaml", name);
    if !modules.is_empty() {
        library.write(".gitmodules", modules);
    }
    add_link(&library, "inner", link);
    library.commit("library")
}

fn add_link(repository: &Repository, path: &str, commit: Option<&str>) {
    repository.git(&["add", "-A"]);
    if let Some(commit) = commit {
        std::fs::create_dir_all(repository.work.join(path)).unwrap();
        repository.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},{path}")]);
    }
}

fn modules(path: &str, url: &str) -> String {
    format!("[submodule \"x\"]\n\tpath = {path}\n\turl = {url}\n")
}

/// Commits what is staged: adding everything would drop the link.
fn commit(repository: &Repository) -> String {
    repository.git(&["commit", "-q", "-m", "with a submodule"]);
    repository.git(&["push", "-q", "--force", "origin", "HEAD"]);
    repository.git(&["rev-parse", "HEAD"])
}

#[tokio::test]
async fn submodules_are_fetched_where_they_belong() {
    let server = Server::start().await;
    let repository = server.repository();
    let inner = library(&server, &repository, "inner.git", "", None);
    let outer = {
        let bare = repository.bare.with_file_name("outer.git");
        let work = repository.work.with_file_name("outer-work");
        git(Path::new("/"), &["init", "-q", "--bare", "-b", "main", bare.to_str().unwrap()]);
        git(Path::new("/"), &["init", "-q", "-b", "main", work.to_str().unwrap()]);
        let outer = Repository { work, bare };
        outer.git(&["remote", "add", "origin", outer.bare.to_str().unwrap()]);
        outer.write("lib.yaml", "outer");
        outer.write(".gitmodules", &modules("inner", "../inner.git"));
        add_link(&outer, "inner", Some(&inner));
        commit(&outer)
    };
    repository.write("a.yaml", "1");
    repository.write(".gitmodules", &modules("libs/outer", "../outer.git"));
    add_link(&repository, "libs/outer", Some(&outer));
    let commit = commit(&repository);

    let mut client = Client::new(&server.url());
    let plain = client.changed(MAIN).await;
    assert_eq!(names(&files(&plain)), ["a.yaml"]);
    // A checkout keeps its cache for itself.
    drop(plain);
    client.with_submodules = true;
    let checkout = client.changed(MAIN).await;
    assert_eq!(checkout.revision, format!("main@sha1:{commit}"));
    let tree = files(&checkout);
    assert_eq!(names(&tree), ["a.yaml", "libs/outer/inner/lib.yaml", "libs/outer/lib.yaml"]);
    assert!(tree.files().any(|(path, file)| path == "libs/outer/lib.yaml" && &*file.data == b"outer"));
    // Nothing moved: one listing, as without submodules.
    server.take_seen();
    let revision = checkout.revision.clone();
    drop(checkout);
    client.checkout(MAIN, Some(&revision)).await.unwrap();
    assert_eq!(server.take_seen().len(), 2);
}

#[tokio::test]
async fn submodules_that_cannot_be_fetched() {
    let server = Server::start().await;
    let repository = server.repository();
    let inner = library(&server, &repository, "inner.git", "", None);
    let mut client = Client::new(&server.url());
    client.with_submodules = true;
    for (text, expected) in [
        (modules("other", "../inner.git"), "no url found for submodule path 'inner' in .gitmodules"),
        (modules("inner", "file:///etc"), "unsupported url of submodule 'inner' in .gitmodules"),
        (modules("inner", "../gone.git"), "unable to fetch submodule 'inner': "),
    ] {
        repository.write(".gitmodules", &text);
        add_link(&repository, "inner", Some(&inner));
        commit(&repository);
        let error = client.error(MAIN).await;
        assert!(error.starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn credentials_do_not_follow_to_other_hosts() {
    let server = Server::start().await;
    let repository = server.repository();
    let other = Server::start().await;
    let library = other.repository();
    library.write("lib.yaml", "other");
    let commit_of_library = library.commit("library");
    git(&library.bare, &["config", "uploadpack.allowAnySHA1InWant", "true"]);
    repository.write(".gitmodules", &modules("inner", &other.url()));
    add_link(&repository, "inner", Some(&commit_of_library));
    commit(&repository);
    let mut client = Client::new(&server.url());
    client.with_submodules = true;
    client.credentials.authorization =
        Authorization::Basic { username: "me".to_owned(), password: Secret::new("secret") };
    assert_eq!(names(&files(&client.changed(MAIN).await)), ["inner/lib.yaml"]);
    assert!(server.take_seen().iter().all(|seen| seen.authorization.is_some()));
    assert!(other.take_seen().iter().all(|seen| seen.authorization.is_none()));
}
