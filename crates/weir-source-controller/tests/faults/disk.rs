//! A disk that is full, files that change or go, a clock that jumps, a process that dies.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_artifact::probe::{Probe, Step};
use weir_testcluster::{Effect, Fault};
use weir_testkit::git::{Repository, Server};
use weir_testkit::objects::{self, Objects};
use weir_testkit::web::Site;

use crate::world::{World, chart, condition, index, is_ready, layer, text};

const LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
const CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
const KINDS: [&str; 5] = ["GitRepository", "OCIRepository", "HelmRepository", "HelmChart", "Bucket"];

type Damage = fn(&Path);

/// One object of every kind, all called `fleet`, with the same content.
struct Fleet {
    server: Server,
    repository: Repository,
    site: Site,
    objects: Objects,
    releases: usize,
}

impl Fleet {
    async fn new(world: &World) -> Self {
        let server = Server::start().await;
        let repository = server.repository();
        let mut fleet =
            Self { server, repository, site: Site::default(), objects: Objects::default(), releases: 0 };
        fleet.publish("one");
        let web = fleet.site.serve().await;
        let store = objects::serve(&fleet.objects).await;
        world.put_secret("keys", &[("accesskey", "AKID"), ("secretkey", "s3cret")]).await;
        let specs = [
            json!({"url": fleet.server.url(), "ref": {"branch": "main"}}),
            json!({"url": format!("oci://{web}/fleet"), "insecure": true}),
            json!({"url": format!("http://{web}")}),
            json!({"chart": "web", "version": "1.x", "sourceRef": {"kind": "HelmRepository", "name": "fleet"}}),
            json!({"endpoint": store, "bucketName": "fleet", "insecure": true, "secretRef": {"name": "keys"}}),
        ];
        for (kind, spec) in KINDS.iter().zip(&specs) {
            world.create_source(kind, "fleet", spec).await;
        }
        fleet.is_published(world, "one").await;
        fleet
    }

    /// The next revision everywhere.
    fn publish(&mut self, content: &str) {
        let version = format!("1.{}.0", self.releases);
        self.releases += 1;
        self.repository.write("content", content);
        self.repository.commit(content);
        self.site.put_image("fleet", "latest", LAYER, CONFIG, &layer(content));
        self.site.put(&format!("/web-{version}.tgz"), "application/gzip", chart(&version, content));
        self.site.put("/index.yaml", "text/yaml", index(&version, content));
        self.objects.put("content", content);
    }

    async fn request(&self, world: &World) {
        for kind in KINDS {
            world.request(kind, "fleet").await;
        }
    }

    async fn is_published(&self, world: &World, content: &str) {
        for kind in KINDS {
            world.until_content(kind, "fleet", content).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_disk_is_full() {
    let full: Arc<Mutex<Option<Step>>> = Arc::default();
    let asked = Arc::clone(&full);
    let probe =
        Probe::new(
            move |step, _| {
                if *asked.lock() == Some(step) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
            },
        );
    let world = World::with_probe(probe).await;
    let mut fleet = Fleet::new(&world).await;
    let mut stored = "one".to_owned();
    for step in Step::ALL {
        let content = format!("{step:?}");
        *full.lock() = Some(step);
        fleet.publish(&content);
        fleet.request(&world).await;
        for kind in KINDS {
            // Charts follow their repository, which could not be stored.
            if matches!(step, Step::Link | Step::PublishLink | Step::Remove) {
                world.until_content(kind, "fleet", &content).await;
            } else if kind != "HelmChart" {
                let told = |object: &Value| {
                    let failed = condition(object, "StorageOperationFailed");
                    let told = failed.is_some_and(|(status, _, message)| {
                        status == "True" && message.to_lowercase().contains("no space left")
                            || message.contains("no storage space")
                    });
                    // The reference has no condition for the lock.
                    told || step == Step::Lock && condition(object, "ArtifactOutdated").is_some()
                };
                let broken = world.until(kind, "fleet", &format!("full at {step:?}"), told).await;
                assert!(!is_ready(&broken), "{kind} {step:?}");
                assert_eq!(world.content(&broken), stored, "{kind} {step:?}: what is stored stays");
            }
        }
        *full.lock() = None;
        fleet.is_published(&world, &content).await;
        stored = content;
    }
    world.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_change_or_go() {
    let world = World::new().await;
    let fleet = Fleet::new(&world).await;
    let damages: [(&str, Damage); 5] = [
        ("a file is gone", |path| std::fs::remove_file(path).unwrap()),
        ("a file is shorter", |path| {
            let length = std::fs::metadata(path).unwrap().len();
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length / 2).unwrap();
        }),
        ("a bit is another", |path| {
            let mut bytes = std::fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }),
        ("a link is in its place", |path| {
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", path).unwrap();
        }),
        ("a directory is in its place", |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }),
    ];
    for (what, damage) in damages {
        for kind in KINDS {
            let before = world.get(kind, "fleet");
            damage(&world.file(&before));
            world.request(kind, "fleet").await;
            let token =
                text(&world.get(kind, "fleet"), "/metadata/annotations/reconcile.fluxcd.io~1requestedAt");
            let after = world
                .until(kind, "fleet", &format!("repaired after {what}"), |object| {
                    is_ready(object) && text(object, "/status/lastHandledReconcileAt") == token
                })
                .await;
            assert_eq!(world.content(&after), "one", "{kind}: {what}");
            assert_eq!(
                text(&after, "/status/artifact/revision"),
                text(&before, "/status/artifact/revision"),
                "{kind}: {what}"
            );
        }
    }
    drop(fleet);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_clock_jumps() {
    let world = World::new().await;
    let mut fleet = Fleet::new(&world).await;
    let day = 24 * 60 * 60;
    for (content, days) in [("later", 4000), ("much earlier", -9000), ("now", 5000)] {
        world.clock.jump(days * day);
        if content == "now" {
            // What the store refused to give while the clock was wrong.
            world.request("Bucket", "fleet").await;
            world.until_content("Bucket", "fleet", "much earlier").await;
        }
        // What is stored is neither collected nor forgotten.
        for kind in KINDS {
            let before = world.get(kind, "fleet");
            world.request(kind, "fleet").await;
            let token =
                text(&world.get(kind, "fleet"), "/metadata/annotations/reconcile.fluxcd.io~1requestedAt");
            let after = world
                .until(kind, "fleet", "run", |object| text(object, "/status/lastHandledReconcileAt") == token)
                .await;
            assert_eq!(before["status"]["artifact"], after["status"]["artifact"], "{kind} {days}");
            assert!(world.file(&after).exists(), "{kind} {days}");
        }
        fleet.publish(content);
        fleet.request(&world).await;
        for kind in KINDS {
            // Stores refuse signatures of another time, and say so.
            if kind == "Bucket" && content != "now" {
                let refused = |object: &Value| {
                    condition(object, "FetchFailed")
                        .is_some_and(|(_, _, message)| message.contains("Access Denied"))
                };
                world.until(kind, "fleet", "refused", refused).await;
            } else {
                world.until_content(kind, "fleet", content).await;
            }
        }
    }
    world.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_process_dies() {
    let mut world = World::new().await;
    let mut fleet = Fleet::new(&world).await;
    // The artifact is stored, but nobody could be told.
    world.cluster.faults().add(Fault::new(Effect::LoseRequest).verbs(&["patch"]));
    fleet.publish("two");
    for kind in KINDS {
        let path = world.file(&world.get(kind, "fleet"));
        if kind == "HelmChart" {
            continue;
        }
        let directory = path.parent().unwrap().to_owned();
        wait(|| std::fs::read_dir(&directory).unwrap().count() > 0).await;
    }
    world.kill().await;
    world.cluster.faults().clear();
    for kind in KINDS {
        assert_eq!(
            world.content(&world.get(kind, "fleet")),
            "one",
            "{kind}: what is advertised is still there"
        );
    }
    world.start();
    fleet.request(&world).await;
    fleet.is_published(&world, "two").await;
    // The disk is a new one.
    world.kill().await;
    for kind in KINDS {
        let path = world.file(&world.get(kind, "fleet"));
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
    world.start();
    fleet.is_published(&world, "two").await;
    world.check();
}

async fn wait(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}
