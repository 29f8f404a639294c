//! Remote files and bases of kustomizations, built by the engine.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use weir_base::tree::MemoryTree;
use weir_kustomize::{Options, build_with};
use weir_source::bases::{Access, Bases, Limits};

use weir_testkit::git::{Behaviour, Server, git};

const CONTROLLER: Access = Access { repositories: true, local_repositories: false };

fn bases() -> Arc<Bases> {
    Arc::new(Bases::new(Limits::default()))
}

/// Builds a kustomization with these resources; the objects as text, or the error.
async fn build(bases: &Arc<Bases>, access: Access, resources: &[&str]) -> Result<String, String> {
    build_file(bases, access, &format!("resources:\n- {}\n", resources.join("\n- "))).await
}

async fn build_file(bases: &Arc<Bases>, access: Access, kustomization: &str) -> Result<String, String> {
    let tree: MemoryTree = [("kustomization.yaml", kustomization.to_owned())].into_iter().collect();
    let session = bases.session(tokio::runtime::Handle::current(), access, Duration::from_mins(2));
    let build = move || {
        build_with(&tree, "", &Options::default(), &session)
            .map(|output| output.to_yaml())
            .map_err(|error| error.to_string())
    };
    tokio::task::spawn_blocking(build).await.unwrap()
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

/// A repository with a base, as it was at the tag `v1` and as it is on `main`; the commit of the tag.
fn with_base(server: &Server) -> (weir_testkit::git::Repository, String) {
    let repository = server.repository();
    repository.write("deploy/base/kustomization.yaml", "resources: [../shared/a.yaml]\nnamePrefix: one-\n");
    repository.write("deploy/shared/a.yaml", &config_map("x"));
    repository.write("deploy/shared/kustomization.yaml", "resources: [a.yaml]\n");
    let commit = repository.commit("first");
    repository.tag(&["-a", "v1", "-m", "annotated"]);
    repository.write("deploy/base/kustomization.yaml", "resources: [../shared]\nnamePrefix: two-\n");
    repository.commit("second");
    (repository, commit)
}

#[tokio::test]
async fn bases_are_cloned_at_what_the_url_names() {
    let server = Server::start().await;
    let (repository, commit) = with_base(&server);
    repository.write("deploy/base/kustomization.yaml", "resources: [../shared]\nnamePrefix: one-\n");
    let one = repository.commit("third");
    repository.git(&["push", "-q", "origin", "HEAD:refs/heads/feature/x"]);
    git(&repository.bare, &["config", "uploadpack.allowAnySHA1InWant", "true"]);
    repository.write("deploy/base/kustomization.yaml", "resources: [../shared]\nnamePrefix: two-\n");
    repository.commit("fourth");
    let bases = bases();
    let url = server.url();
    for (suffix, expected) in [
        ("//deploy/base", "two-x"),
        ("/deploy/base?ref=main", "two-x"),
        ("//deploy/base?ref=refs/heads/main&timeout=90", "two-x"),
        ("//deploy/base?ref=feature/x", "one-x"),
        ("//deploy/shared?ref=v1", "x"),
        ("//deploy/shared/?version=v1&submodules=false", "x"),
        (&format!("//deploy/base?ref={one}"), "one-x"),
    ] {
        for prefix in ["", "git::"] {
            let resource = format!("{prefix}{url}{suffix}");
            let built = build(&bases, CONTROLLER, &[&resource]).await;
            assert_eq!(built, Ok(config_map(expected)), "{resource}");
        }
    }
    // In a clone, files are only read below the kustomization that names them.
    let error = build(&bases, CONTROLLER, &[&format!("{url}//deploy/base?ref={commit}")]).await.unwrap_err();
    assert!(error.contains("security; file") && error.contains("is not in or below"), "{error}");
    let error = build(&bases, CONTROLLER, &[&format!("{url}//deploy/base?ref=nothing")]).await.unwrap_err();
    assert!(error.contains(&format!("failed to clone '{url}' at 'nothing'")), "{error}");
    assert!(error.contains("couldn't find remote ref \"nothing\""), "{error}");
    let error = build(&bases, CONTROLLER, &[&format!("{url}//deploy/gone")]).await.unwrap_err();
    assert!(error.contains("deploy/gone: no such file or directory"), "{error}");
    let error = build(&bases, CONTROLLER, &[&format!("{url}//deploy/shared/a.yaml")]).await.unwrap_err();
    assert!(error.contains("refers to file 'a.yaml'; expecting directory"), "{error}");
}

#[tokio::test]
async fn a_repository_that_has_not_moved_is_listed_and_not_transferred() {
    let server = Server::start().await;
    let (_repository, commit) = with_base(&server);
    let bases = bases();
    let resources =
        [&*format!("{}//deploy/base", server.url()), &*format!("{}//deploy/shared", server.url())];
    let wants = || server.take_seen().iter().filter(|seen| seen.body.contains("want ")).count();
    let first = build(&bases, CONTROLLER, &resources).await.unwrap();
    assert_eq!(wants(), 1, "both bases come from one transfer");
    assert_eq!(build(&bases, CONTROLLER, &resources).await.unwrap(), first);
    let seen = server.take_seen();
    assert!(seen.iter().any(|seen| seen.body.contains("ls-refs")));
    assert!(!seen.iter().any(|seen| seen.body.contains("want ")));
    // A commit never moves.
    let fixed = format!("{}//deploy/shared?ref={commit}", server.url());
    build(&bases, CONTROLLER, &[&fixed]).await.unwrap();
    server.take_seen();
    build(&bases, CONTROLLER, &[&fixed]).await.unwrap();
    assert!(server.take_seen().iter().all(|seen| !seen.path.contains("upload-pack") && seen.body.is_empty()));
}

#[tokio::test]
async fn a_server_that_does_not_answer_costs_the_time_of_the_url() {
    let server = Server::start().await;
    with_base(&server);
    server.behave(Behaviour { hang_on: Some("command=fetch"), ..Behaviour::default() });
    let error = build(&bases(), CONTROLLER, &[&format!("{}//deploy/base?timeout=1", server.url())])
        .await
        .unwrap_err();
    assert!(error.contains(&format!("hit 1s timeout cloning '{}' at 'HEAD'", server.url())), "{error}");
}

#[tokio::test]
async fn links_of_a_repository_are_followed_within_it() {
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("real/kustomization.yaml", "resources: [a.yaml, ../other]\n");
    repository.write("real/target.yaml", &config_map("a"));
    repository.write("other/kustomization.yaml", "resources: [b.yaml]\n");
    repository.write("other/b.yaml", &config_map("b"));
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, repository.work.join(at)).unwrap();
    link("target.yaml", "real/a.yaml");
    std::fs::create_dir(repository.work.join("deep")).unwrap();
    link("../real", "deep/link");
    link("/etc", "outside");
    repository.commit("links");
    let built = build(&bases(), CONTROLLER, &[&format!("{}//deep/link", server.url())]).await;
    assert_eq!(built, Ok(format!("{}---\n{}", config_map("a"), config_map("b"))));
    let error = build(&bases(), CONTROLLER, &[&format!("{}//outside", server.url())]).await.unwrap_err();
    assert!(error.contains("no such file or directory"), "{error}");
}

#[tokio::test]
async fn submodules_are_part_of_a_base_unless_the_url_says_no() {
    let server = Server::start().await;
    let (repository, commit) = with_base(&server);
    git(&repository.bare, &["config", "uploadpack.allowAnySHA1InWant", "true"]);
    let root = repository.bare.parent().unwrap();
    git(root, &["clone", "-q", "--bare", "repo.git", "outer.git"]);
    let work = root.parent().unwrap().join("outer");
    git(root, &["clone", "-q", "outer.git", work.to_str().unwrap()]);
    std::fs::write(work.join(".gitmodules"), "[submodule \"m\"]\n\tpath = modules/m\n\turl = ../repo.git\n")
        .unwrap();
    git(&work, &["update-index", "--add", "--cacheinfo", &format!("160000,{commit},modules/m")]);
    std::fs::write(work.join("kustomization.yaml"), "resources: [modules/m/deploy/shared]\n").unwrap();
    git(&work, &["add", ".gitmodules", "kustomization.yaml"]);
    git(&work, &["commit", "-q", "-m", "with a submodule"]);
    git(&work, &["push", "-q", "origin", "HEAD:main"]);
    let url = format!("http://{}/outer.git", server.address);
    assert_eq!(build(&bases(), CONTROLLER, &[&url]).await, Ok(config_map("x")));
    let error = build(&bases(), CONTROLLER, &[&format!("{url}?submodules=0")]).await.unwrap_err();
    assert!(error.contains("modules/m/deploy/shared: no such file or directory"), "{error}");
    // What a repository says must not make the machine's own files readable.
    let local =
        format!("[submodule \"m\"]\n\tpath = modules/m\n\turl = file://{}\n", repository.bare.display());
    std::fs::write(work.join(".gitmodules"), local).unwrap();
    git(&work, &["add", ".gitmodules"]);
    git(&work, &["commit", "-q", "-m", "a local submodule"]);
    git(&work, &["push", "-q", "origin", "HEAD:main"]);
    let everything = Access { repositories: true, local_repositories: true };
    let error = build(&bases(), everything, &[&url]).await.unwrap_err();
    assert!(error.contains("only http:// and https:// are supported"), "{error}");
}

#[tokio::test]
async fn bases_can_be_disabled_without_disabling_files() {
    let server = Server::start().await;
    with_base(&server);
    let files = file_server().await;
    let access = Access { repositories: false, local_repositories: false };
    let base = format!("{}//deploy/base", server.url());
    let error = build(&bases(), access, &[&base]).await.unwrap_err();
    assert!(error.contains("remote bases are disabled (--no-remote-bases)"), "{error}");
    assert!(!server.take_seen().iter().any(|seen| seen.path.ends_with("/info/refs")), "nothing is cloned");
    let file = format!("http://{files}/org/repo/a.yaml");
    assert_eq!(build(&bases(), access, &[&file]).await, Ok(config_map("remote")));
}

#[tokio::test]
async fn repositories_of_the_machine_are_for_the_command_line() {
    let server = Server::start().await;
    let (repository, commit) = with_base(&server);
    let command_line = Access { repositories: true, local_repositories: true };
    let path = repository.bare.display();
    for (url, expected) in [
        (format!("file://{path}//deploy/base"), "two-x"),
        (format!("file://{path}/deploy/shared?ref=v1"), "x"),
        (format!("file://{path}//deploy/shared?ref={commit}"), "x"),
        (format!("file://{}//deploy/base?ref=main", repository.work.display()), "two-x"),
    ] {
        assert_eq!(build(&bases(), command_line, &[&url]).await, Ok(config_map(expected)), "{url}");
    }
    let error = build(&bases(), CONTROLLER, &[&format!("file://{path}//deploy/base")]).await.unwrap_err();
    assert!(error.contains("repositories of the machine are not available here"), "{error}");
    let error =
        build(&bases(), command_line, &[&format!("file://{path}//deploy/base?ref=gone")]).await.unwrap_err();
    assert!(error.contains("couldn't find remote ref gone"), "{error}");
}

#[tokio::test]
async fn bases_over_ssh_are_refused_in_words() {
    for url in ["git@github.com:org/repo//base?ref=v1", "ssh://git@host.example/org/repo//base"] {
        let error = build(&bases(), CONTROLLER, &[url]).await.unwrap_err();
        assert!(error.contains("git over SSH needs a key"), "{error}");
    }
}

/// Serves single files.
async fn file_server() -> String {
    async fn file(Path(path): Path<String>) -> Response {
        match path.as_str() {
            "org/repo/a.yaml" => config_map("remote").into_response(),
            "patch.yaml" => format!("{}data: {{k: patched}}\n", config_map("remote")).into_response(),
            "settings.env" => "A=1\nB=2\n".into_response(),
            "moved.yaml" => Redirect::temporary("/org/repo/a.yaml").into_response(),
            "large.yaml" => "#".repeat(5_000).into_response(),
            "page" => "<html><body>: not: yaml</body></html>".into_response(),
            "org/repo" => (StatusCode::INTERNAL_SERVER_ERROR, "broken").into_response(),
            _ => (StatusCode::NOT_FOUND, "nothing here").into_response(),
        }
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let router = Router::new().route("/{*path}", get(file));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test]
async fn files_are_downloaded_wherever_a_file_may_be_named() {
    let host = file_server().await;
    let kustomization = format!(
        "resources: ['http://{host}/moved.yaml']\npatches: [{{path: 'http://{host}/patch.yaml'}}]\n\
         configMapGenerator:\n- name: settings\n  envs: ['http://{host}/settings.env']\n  \
         options: {{disableNameSuffixHash: true}}\n"
    );
    let expected = "apiVersion: v1\ndata:\n  k: patched\nkind: ConfigMap\nmetadata:\n  name: remote\n---\n\
                    apiVersion: v1\ndata:\n  A: \"1\"\n  B: \"2\"\nkind: ConfigMap\nmetadata:\n  name: settings\n";
    assert_eq!(build_file(&bases(), CONTROLLER, &kustomization).await.as_deref(), Ok(expected));
}

#[tokio::test]
async fn what_keeps_a_file_from_being_downloaded_is_said() {
    let host = file_server().await;
    let error = |path: &str| {
        let url = format!("http://{host}/{path}");
        async move { build(&bases(), CONTROLLER, &[&url]).await.unwrap_err() }
    };
    let text = error("gone.yaml").await;
    assert!(text.contains("HTTP Error: status code 404 (Not Found)"), "{text}");
    assert!(!text.contains("clone"), "{text}");
    let text = error("org/repo").await;
    assert!(text.contains("URL is a git repository") && text.contains("failed to clone"), "{text}");
    let limits = Limits { file_bytes_max: 4_000, ..Limits::default() };
    let small = Arc::new(Bases::new(limits));
    let text = build(&small, CONTROLLER, &[&format!("http://{host}/large.yaml")]).await.unwrap_err();
    assert!(text.contains("the file is larger than 4000 bytes"), "{text}");
    let text = build(&bases(), CONTROLLER, &["http://127.0.0.1:1/x.yaml"]).await.unwrap_err();
    assert!(text.contains("Get \"http://127.0.0.1:1/x.yaml\": ") && text.contains("onnect"), "{text}");
}

#[tokio::test]
async fn passwords_in_urls_stay_hidden() {
    let host = file_server().await;
    for url in [
        format!("http://user:hunter2@{host}/gone.yaml"),
        format!("http://user:hunter2@{host}/org/repo//base?ref=x"),
        "http://user:hunter2@127.0.0.1:1/org/repo//base".to_owned(),
        "ssh://user:hunter2@host.example/org/repo//base".to_owned(),
    ] {
        let text = build(&bases(), CONTROLLER, &[&url]).await.unwrap_err();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("user:***@"), "{text}");
    }
}

#[tokio::test]
async fn a_build_asks_for_a_limited_number_of_things() {
    let host = file_server().await;
    let bases = Arc::new(Bases::new(Limits { requests_max: 2, ..Limits::default() }));
    let urls: Vec<String> = ["org/repo/a.yaml", "moved.yaml", "patch.yaml"]
        .iter()
        .map(|path| format!("http://{host}/{path}"))
        .collect();
    let kustomization = format!(
        "resources: ['{}']\npatches: [{{path: '{}'}}]\nconfigMapGenerator:\n- name: s\n  files: ['{}']\n",
        urls[0], urls[2], urls[1]
    );
    let text = build_file(&bases, CONTROLLER, &kustomization).await.unwrap_err();
    assert!(text.contains("more than 2 remote files and bases"), "{text}");
}
