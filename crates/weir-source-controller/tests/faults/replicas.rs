//! Replicas that wait for the lease, on a storage they share with the one that has it.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use weir_artifact::probe::Probe;
use weir_runtime::{LeaseOptions, Runtime, Settings, flags};
use weir_source_controller::{Flags, PROGRAM, set_up};
use weir_testkit::web::Site;

use crate::world::{NAMESPACE, World, index, text};

struct Replica {
    name: &'static str,
    address: String,
    process: JoinHandle<()>,
}

impl Replica {
    async fn start(world: &World, name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let arguments = [
            "source-controller".to_owned(),
            "--storage-shared".to_owned(),
            format!("--storage-path={}", world.storage().display()),
            format!("--storage-addr={address}"),
            "--storage-adv-addr=sc.".to_owned(),
        ];
        let flags: Flags = flags::try_parse(&PROGRAM, arguments).unwrap();
        let lease = LeaseOptions {
            namespace: NAMESPACE.to_owned(),
            name: "source-controller-leader-election".to_owned(),
            identity: name.to_owned(),
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(200),
            release_on_cancel: true,
        };
        let settings = Settings::new(&PROGRAM, &flags.common).unwrap();
        let mut runtime = Runtime::new(settings, world.client()).with_leader_election(lease);
        set_up(&mut runtime, &flags).unwrap();
        let process = tokio::spawn(async move { drop(runtime.run().await) });
        Self { name, address, process }
    }

    /// What it answers to a request for a file: the status, and the body.
    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address).await.ok()?;
        let request = format!("GET /{path} HTTP/1.1\r\nhost: sc.\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Waits until it answers at all.
    async fn is_serving(&self) {
        while self.get("").await.is_none() {
            tokio::task::yield_now().await;
        }
    }
}

fn leader(world: &World) -> String {
    let leases = world.cluster.objects();
    let lease = leases.iter().find(|object| object["kind"] == "Lease");
    lease.map(|lease| text(lease, "/spec/holderIdentity")).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn standbys_serve_and_take_over() {
    let world = World::without_process(Probe::default()).await;
    let site = Site::default();
    site.put("/index.yaml", "text/yaml", index("1.0.0", "one"));
    let spec = json!({"url": format!("http://{}", site.serve().await)});
    world.create_source("HelmRepository", "fleet", &spec).await;
    let first = Replica::start(&world, "first").await;
    let object = world.until_content("HelmRepository", "fleet", "one").await;
    assert_eq!(leader(&world), first.name);
    let second = Replica::start(&world, "second").await;
    second.is_serving().await;
    let path = text(&object, "/status/artifact/path");
    let served = std::fs::read_to_string(world.file(&object)).unwrap();
    // `GET /` is the readiness probe.
    for replica in [&first, &second] {
        assert_eq!(replica.get("").await.unwrap().0, 200, "{}", replica.name);
        assert_eq!(replica.get(&path).await.unwrap(), (200, served.clone()), "{}", replica.name);
    }
    assert_eq!(leader(&world), first.name, "the second waits");
    // The leader dies. Nothing is lost, and artifacts are there all the time.
    first.process.abort();
    site.put("/index.yaml", "text/yaml", index("1.1.0", "two"));
    while leader(&world) != second.name {
        assert_eq!(second.get(&path).await.unwrap(), (200, served.clone()));
    }
    world.request("HelmRepository", "fleet").await;
    let object = world.until_content("HelmRepository", "fleet", "two").await;
    let (status, body) = second.get(&text(&object, "/status/artifact/path")).await.unwrap();
    assert_eq!((status, body), (200, std::fs::read_to_string(world.file(&object)).unwrap()));
    second.process.abort();
    world.check();
}
