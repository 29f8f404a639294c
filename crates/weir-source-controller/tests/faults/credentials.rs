//! Credentials that expire and are replaced, and servers that change theirs, without a restart.

use std::path::Path;

use serde_json::{Value, json};
use weir_testkit::git::Server;
use weir_testkit::objects::{self, Objects};
use weir_testkit::proxy::HttpProxy;
use weir_testkit::sshd::{SSHD, Sshd, run};
use weir_testkit::web::Site;

use crate::world::{World, condition, index, is_ready, layer};

const LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
const CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
/// `user:s3cret1` and `user:s3cret2`.
const FIRST: &str = "Basic dXNlcjpzM2NyZXQx";
const SECOND: &str = "Basic dXNlcjpzM2NyZXQy";

fn basic(password: &str) -> [(&'static str, &str); 2] {
    [("username", "user"), ("password", password)]
}

/// The server takes other credentials from now on; the Secret follows when the failure has been seen.
async fn check(
    world: &World,
    kind: &str,
    cause: &str,
    expire: impl FnOnce(),
    publish: impl FnOnce(),
    rotate: impl AsyncFnOnce(),
) {
    world.until_content(kind, "fleet", "one").await;
    expire();
    publish();
    world.request(kind, "fleet").await;
    let told = |object: &Value| {
        condition(object, "FetchFailed")
            .is_some_and(|(status, _, message)| status == "True" && message.contains(cause))
    };
    let broken = world.until(kind, "fleet", &format!("failing because of {cause:?}"), told).await;
    assert!(!is_ready(&broken));
    assert_eq!(world.content(&broken), "one", "what is stored stays");
    assert!(!broken["status"].to_string().contains("s3cret"), "{broken:#}");
    rotate().await;
    // Nobody asks for it: failures are tried again.
    world.until_content(kind, "fleet", "two").await;
    world.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn passwords_of_git_servers() {
    let world = World::new().await;
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("content", "one");
    repository.commit("one");
    let proxy = HttpProxy::start(&server.address).await;
    proxy.require(FIRST);
    world.put_secret("login", &basic("s3cret1")).await;
    let spec = json!({
        "url": format!("http://{}/repo.git", proxy.address), "ref": {"branch": "main"}, "secretRef": {"name": "login"},
    });
    world.create_source("GitRepository", "fleet", &spec).await;
    let publish = || {
        repository.write("content", "two");
        repository.commit("two");
    };
    let rotate = async || world.put_secret("login", &basic("s3cret2")).await;
    check(&world, "GitRepository", "authentication required", || proxy.require(SECOND), publish, rotate)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn passwords_of_registries() {
    let world = World::new().await;
    let site = Site::default();
    site.put_image("fleet", "latest", LAYER, CONFIG, &layer("one"));
    let proxy = HttpProxy::start(&site.serve().await).await;
    proxy.require(FIRST);
    let config = |password: &str| {
        let auths = json!({"auths": {proxy.address.as_str(): {"username": "user", "password": password}}});
        auths.to_string()
    };
    let put = async |password: &str| {
        world
            .create_or_replace(&json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
                "metadata": {"name": "pull", "namespace": crate::world::NAMESPACE},
                "stringData": {".dockerconfigjson": config(password)},
            }))
            .await;
    };
    put("s3cret1").await;
    let spec = json!({
        "url": format!("oci://{}/fleet", proxy.address), "insecure": true, "secretRef": {"name": "pull"},
    });
    world.create_source("OCIRepository", "fleet", &spec).await;
    let publish = || drop(site.put_image("fleet", "latest", LAYER, CONFIG, &layer("two")));
    check(&world, "OCIRepository", "401", || proxy.require(SECOND), publish, async || put("s3cret2").await)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn passwords_of_chart_repositories() {
    let world = World::new().await;
    let site = Site::default();
    site.put("/index.yaml", "text/yaml", index("1.0.0", "one"));
    let proxy = HttpProxy::start(&site.serve().await).await;
    proxy.require(FIRST);
    world.put_secret("login", &basic("s3cret1")).await;
    let spec = json!({"url": format!("http://{}", proxy.address), "secretRef": {"name": "login"}});
    world.create_source("HelmRepository", "fleet", &spec).await;
    let publish = || site.put("/index.yaml", "text/yaml", index("1.1.0", "two"));
    let rotate = async || world.put_secret("login", &basic("s3cret2")).await;
    check(&world, "HelmRepository", "401 Unauthorized", || proxy.require(SECOND), publish, rotate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_of_object_stores() {
    let world = World::new().await;
    let objects = Objects::of(&[("content", "one")]);
    let proxy = HttpProxy::start(&objects::serve(&objects).await).await;
    proxy.require("Credential=AKID/");
    world.put_secret("keys", &[("accesskey", "AKID"), ("secretkey", "s3cret")]).await;
    let spec = json!({
        "endpoint": proxy.address, "bucketName": "fleet", "insecure": true, "secretRef": {"name": "keys"},
    });
    world.create_source("Bucket", "fleet", &spec).await;
    let rotate = async || world.put_secret("keys", &[("accesskey", "AKID2"), ("secretkey", "s3cret2")]).await;
    let expire = || proxy.require("Credential=AKID2/");
    check(&world, "Bucket", "401", expire, || objects.put("content", "two"), rotate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_of_ssh_servers() {
    assert!(Path::new(SSHD).exists(), "install openssh-server");
    let world = World::new().await;
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("content", "one");
    repository.commit("one");
    let sshd = Sshd::start(&["ed25519"], "AcceptEnv GIT_PROTOCOL");
    let first = sshd.identity("ed25519", "s3cret", &["-a", "4"]);
    let put = async |identity: &str, known_hosts: &str| {
        let data = [("identity", identity), ("password", "s3cret"), ("known_hosts", known_hosts)];
        world.put_secret("login", &data).await;
    };
    put(&first, &sshd.known_hosts()).await;
    let (user, path) = (run("id", &["-un"]), repository.bare.to_str().unwrap());
    let url = format!("ssh://{user}@127.0.0.1:{}{path}", sshd.port);
    let spec = json!({"url": url, "ref": {"branch": "main"}, "secretRef": {"name": "login"}});
    world.create_source("GitRepository", "fleet", &spec).await;
    let publish = || {
        repository.write("content", "two");
        repository.commit("two");
    };
    let expire = || std::fs::write(sshd.path("authorized_keys"), "").unwrap();
    let rotate = async || {
        let second = sshd.identity("ecdsa", "s3cret", &["-a", "4"]);
        put(&second, &sshd.known_hosts()).await;
    };
    check(&world, "GitRepository", "unable to authenticate", expire, publish, rotate).await;
    // Another machine answers under the same name: it is refused until its key is known.
    let other = Sshd::start(&["ecdsa", "ed25519"], "AcceptEnv GIT_PROTOCOL");
    let identity = other.identity("ed25519", "s3cret", &["-a", "4"]);
    let known = sshd.known_hosts().replace(&sshd.port.to_string(), &other.port.to_string());
    put(&identity, &known).await;
    let url = format!("ssh://{user}@127.0.0.1:{}{path}", other.port);
    let spec = json!({"url": url, "ref": {"branch": "main"}, "secretRef": {"name": "login"}});
    world.create_source("GitRepository", "moved", &spec).await;
    let mismatch = |object: &Value| {
        condition(object, "FetchFailed")
            .is_some_and(|(_, _, message)| message.contains("knownhosts: key mismatch"))
    };
    world.until("GitRepository", "moved", "refused", mismatch).await;
    put(&identity, &other.known_hosts()).await;
    world.until_content("GitRepository", "moved", "two").await;
}
