//! Servers that hang, reset, truncate, alter and refuse, at every stage of every protocol.

use std::path::Path;

use serde_json::{Value, json};
use weir_source::oci::HELM_CHART_CONTENT;
use weir_testkit::git::Server;
use weir_testkit::objects::{self, Objects};
use weir_testkit::proxy::{Cut, Fault, HttpProxy, Rule, TcpProxy};
use weir_testkit::sshd::{SSHD, Sshd, run};
use weir_testkit::web::Site;

use crate::world::{World, chart, condition, index, is_ready, layer, text};

const LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
const CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";

/// One object with a server of its own that will break.
struct Case {
    kind: &'static str,
    name: String,
    proxy: HttpProxy,
    rule: Rule,
}

/// What messages say of a fault; one of these.
fn causes(fault: Fault) -> &'static [&'static str] {
    match fault {
        Fault::Hang | Fault::Stall => &["context deadline exceeded"],
        Fault::Reset | Fault::ResetMidway | Fault::Truncate => &[
            "error sending request",
            "error decoding response body",
            "connection reset",
            "end of file before message length reached",
            "EOF",
            "unexpected end",
        ],
        Fault::Corrupt => {
            &["digest", "pack", "checksum", "Checksum", "hash", "decode", "zlib", "corrupt", "invalid"]
        }
        Fault::Refuse(429) => &["429"],
        Fault::Refuse(500) => &["500"],
        Fault::Refuse(_) => &["503"],
    }
}

/// Longer than any healthy exchange needs, where nothing has to run out.
fn timeout(fault: Fault) -> &'static str {
    if matches!(fault, Fault::Hang | Fault::Stall) { "2s" } else { "2m" }
}

fn name(stage: &str, fault: Fault) -> String {
    let text = format!("{stage}-{fault:?}").to_lowercase();
    text.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect::<String>()
        .trim_matches('-')
        .to_owned()
}

/// An object for every stage and fault, all with the first revision, well and ready.
async fn cases(
    world: &World,
    kind: &'static str,
    upstream: &str,
    stages: &[(&'static str, &[Fault])],
    spec: impl Fn(&str) -> Value,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for (stage, without) in stages {
        for fault in Fault::ALL.into_iter().filter(|fault| !without.contains(fault)) {
            let proxy = HttpProxy::start(upstream).await;
            let mut spec = spec(&proxy.address);
            spec["timeout"] = json!(timeout(fault));
            let name = name(stage, fault);
            world.create_source(kind, &name, &spec).await;
            cases.push(Case { kind, name, proxy, rule: Rule { on: stage, fault } });
        }
    }
    for case in &cases {
        world.until_content(case.kind, &case.name, "one").await;
    }
    cases
}

/// The second revision is there, but cannot be had. What is stored stays, the cause is told, and the second revision
/// comes when the fault goes.
async fn check(world: &World, cases: Vec<Case>, publish: impl AsyncFnOnce()) {
    for case in &cases {
        case.proxy.set(Some(case.rule));
    }
    publish().await;
    for case in &cases {
        world.request(case.kind, &case.name).await;
    }
    for Case { kind, name, rule, proxy } in &cases {
        let causes = causes(rule.fault);
        let told = |object: &Value| {
            let failed = condition(object, "FetchFailed").filter(|(status, _, _)| status == "True");
            failed.is_some_and(|(_, _, message)| causes.iter().any(|cause| message.contains(cause)))
        };
        let broken = world.until(kind, name, &format!("failing because of one of {causes:?}"), told).await;
        assert!(proxy.hits() > 0, "{kind} {name}");
        let (status, _, message) = condition(&broken, "Ready").unwrap();
        assert_eq!((status.as_str(), message), ("False", condition(&broken, "FetchFailed").unwrap().2));
        assert_eq!(world.content(&broken), "one", "{kind} {name}: what is stored stays");
        assert!(!message_leaks(&broken), "{broken:#}");
    }
    for case in &cases {
        case.proxy.set(None);
    }
    for case in &cases {
        world.until_content(case.kind, &case.name, "two").await;
    }
    world.check();
}

fn message_leaks(object: &Value) -> bool {
    object["status"].to_string().contains("s3cret")
}

/// A digest proves nothing of what is named by a tag or has none.
const NOT_NOTICED: &[Fault] = &[Fault::Corrupt];
/// An answer without a body cannot be cut.
const HEAD_ALONE: &[Fault] = &[Fault::Corrupt, Fault::Stall, Fault::ResetMidway, Fault::Truncate];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn git_over_http() {
    let world = World::new().await;
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("content", "one");
    repository.commit("one");
    let stages: &[(&str, &[Fault])] =
        &[("info/refs", NOT_NOTICED), ("command=ls-refs", NOT_NOTICED), ("command=fetch", &[])];
    let spec = |address: &str| json!({"url": format!("http://user:s3cret@{address}/repo.git"), "ref": {"branch": "main"}});
    let cases = cases(&world, "GitRepository", &server.address, stages, spec).await;
    check(&world, cases, async || {
        repository.write("content", "two");
        repository.commit("two");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn registries() {
    let world = World::new().await;
    let site = Site::default();
    let put = |content: &str| site.put_image("fleet", "latest", LAYER, CONFIG, &layer(content));
    put("one");
    let address = site.serve().await;
    let stages: &[(&str, &[Fault])] =
        &[("manifests/latest", HEAD_ALONE), ("manifests/sha256", &[]), ("blobs/", &[])];
    let spec = |address: &str| json!({"url": format!("oci://{address}/fleet"), "insecure": true});
    let cases = cases(&world, "OCIRepository", &address, stages, spec).await;
    check(&world, cases, async || drop(put("two"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn chart_repositories() {
    let world = World::new().await;
    let site = Site::default();
    site.put("/index.yaml", "text/yaml", index("1.0.0", "one"));
    let address = site.serve().await;
    let spec = |address: &str| json!({"url": format!("http://{address}/?token=s3cret")});
    let cases = cases(&world, "HelmRepository", &address, &[("index.yaml", NOT_NOTICED)], spec).await;
    check(&world, cases, async || site.put("/index.yaml", "text/yaml", index("1.1.0", "two"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn charts_of_registries() {
    let world = World::new().await;
    let site = Site::default();
    let put = |version: &str, content: &str| {
        site.put_image("charts/web", version, HELM_CHART_CONTENT, CHART_CONFIG, &chart(version, content));
        let tags = if version == "1.0.0" { "[\"1.0.0\"]" } else { "[\"1.0.0\",\"1.1.0\"]" };
        site.put("/v2/charts/web/tags/list", "application/json", format!("{{\"tags\":{tags}}}"));
    };
    put("1.0.0", "one");
    let address = site.serve().await;
    let mut all = Vec::new();
    let stages: &[(&str, &[Fault])] = &[
        ("tags/list", NOT_NOTICED),
        ("manifests/1.1.0", HEAD_ALONE),
        ("manifests/sha256", &[]),
        ("blobs/", &[]),
    ];
    for (stage, without) in stages {
        for fault in Fault::ALL.into_iter().filter(|fault| !without.contains(fault)) {
            let proxy = HttpProxy::start(&address).await;
            let name = name(stage, fault);
            let spec = json!({
                "url": format!("oci://{}/charts", proxy.address), "type": "oci", "insecure": true,
                "timeout": timeout(fault),
            });
            world.create_source("HelmRepository", &name, &spec).await;
            let spec = json!({
                "chart": "web", "version": "1.x", "sourceRef": {"kind": "HelmRepository", "name": name},
            });
            world.create_source("HelmChart", &name, &spec).await;
            all.push(Case { kind: "HelmChart", name, proxy, rule: Rule { on: stage, fault } });
        }
    }
    for case in &all {
        world.until_content(case.kind, &case.name, "one").await;
    }
    check(&world, all, async || put("1.1.0", "two")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn charts_of_web_servers() {
    let world = World::new().await;
    let site = Site::default();
    let put = |version: &str, content: &str| {
        site.put("/index.yaml", "text/yaml", index(version, content));
        site.put(&format!("/web-{version}.tgz"), "application/gzip", chart(version, content));
    };
    put("1.0.0", "one");
    let address = site.serve().await;
    let mut all = Vec::new();
    for fault in Fault::ALL {
        let proxy = HttpProxy::start(&address).await;
        let name = name("chart", fault);
        let spec = json!({"url": format!("http://{}", proxy.address), "timeout": timeout(fault)});
        world.create_source("HelmRepository", &name, &spec).await;
        let spec =
            json!({"chart": "web", "version": "1.x", "sourceRef": {"kind": "HelmRepository", "name": name}});
        world.create_source("HelmChart", &name, &spec).await;
        all.push(Case { kind: "HelmChart", name, proxy, rule: Rule { on: "web-1.1.0.tgz", fault } });
    }
    for case in &all {
        world.until_content(case.kind, &case.name, "one").await;
    }
    check(&world, all, async || {
        put("1.1.0", "two");
        for fault in Fault::ALL {
            world.request("HelmRepository", &name("chart", fault)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn buckets() {
    let world = World::new().await;
    let objects = Objects::of(&[("content", "one")]);
    let address = objects::serve(&objects).await;
    world.put_secret("keys", &[("accesskey", "AKID"), ("secretkey", "s3cret")]).await;
    // What a bucket has is known by the tags of its objects, which do not prove their content.
    let stages: &[(&str, &[Fault])] =
        &[("HEAD", HEAD_ALONE), ("list-type=2", NOT_NOTICED), ("GET /fleet/content", NOT_NOTICED)];
    let spec = |address: &str| json!({"endpoint": address, "bucketName": "fleet", "insecure": true, "secretRef": {"name": "keys"}});
    let cases = cases(&world, "Bucket", &address, stages, spec).await;
    check(&world, cases, async || objects.put("content", "two")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn git_over_ssh() {
    assert!(Path::new(SSHD).exists(), "install openssh-server");
    let world = World::new().await;
    let server = Server::start().await;
    let repository = server.repository();
    repository.write("content", "one");
    repository.commit("one");
    let sshd = Sshd::start(&["ed25519"], "AcceptEnv GIT_PROTOCOL\nMaxStartups 100");
    let identity = sshd.identity("ed25519", "s3cret", &["-a", "4"]);
    let user = run("id", &["-un"]);
    let path = repository.bare.to_str().unwrap();
    let mut all = Vec::new();
    // Before the banner, within it, within the key exchange, at the login, and within the answers of Git.
    for (stage, after_bytes) in
        [("banner", 0), ("name", 10), ("keys", 600), ("login", 1600), ("list", 2300), ("pack", 2900)]
    {
        for hangs in [false, true] {
            let proxy = TcpProxy::start(&format!("127.0.0.1:{}", sshd.port)).await;
            let name = format!("{stage}-{}", if hangs { "hang" } else { "reset" });
            let known_hosts = sshd.known_hosts().replace(&sshd.port.to_string(), &proxy.port.to_string());
            let data = [
                ("identity", identity.as_str()),
                ("password", "s3cret"),
                ("known_hosts", known_hosts.as_str()),
            ];
            world.put_secret(&name, &data).await;
            let spec = json!({
                "url": format!("ssh://{user}@127.0.0.1:{}{path}", proxy.port), "ref": {"branch": "main"},
                "secretRef": {"name": name}, "timeout": if hangs { "3s" } else { "2m" },
            });
            world.create_source("GitRepository", &name, &spec).await;
            all.push((name, proxy, Cut { after_bytes, hangs }));
        }
    }
    for (name, proxy, cut) in &all {
        world.until_content("GitRepository", name, "one").await;
        proxy.set(Some(*cut));
    }
    repository.write("content", "two");
    repository.commit("two");
    for (name, _, _) in &all {
        world.request("GitRepository", name).await;
    }
    for (name, _, cut) in &all {
        let causes: &[&str] =
            if cut.hangs { &["context deadline exceeded"] } else { &["ssh", "reset", "EOF", "disconnect"] };
        let told = |object: &Value| {
            let failed = condition(object, "FetchFailed").filter(|(status, _, _)| status == "True");
            failed.is_some_and(|(_, _, message)| causes.iter().any(|cause| message.contains(cause)))
        };
        let broken =
            world.until("GitRepository", name, &format!("failing because of {causes:?}"), told).await;
        assert!(!is_ready(&broken));
        assert_eq!(world.content(&broken), "one");
        assert!(!text(&broken, "/status").contains("s3cret"));
    }
    for (name, proxy, _) in &all {
        proxy.set(None);
        world.until_content("GitRepository", name, "two").await;
    }
    world.check();
}
