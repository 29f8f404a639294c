//! A process that is killed while it publishes: at every step, the storage then has the old artifact or the new one,
//! whole, and the next process goes on from there.
#![expect(clippy::unwrap_used, clippy::panic, reason = "failing is what tests do")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use weir_artifact::digest::Algorithm;
use weir_artifact::probe::{Probe, Step};
use weir_artifact::storage::{Options, PublishError, Storage};
use weir_base::clock::Clock;

const ROOT: &str = "WEIR_TEST_KILL_ROOT";
const STEP: &str = "WEIR_TEST_KILL_STEP";
const NTH: &str = "WEIR_TEST_KILL_NTH";
/// Longer than the buffer of the writer, so that there are several writes.
const LENGTH: usize = 300 << 10;
const FILE: &str = "bucket/apps/fleet/rev.tar.gz";
const OLD: &str = "bucket/apps/fleet/old.tar.gz";

/// An hour after the files were written: what is not current is garbage.
struct Later;

impl Clock for Later {
    fn now(&self) -> Timestamp {
        Timestamp::now() + Duration::from_hours(1)
    }
}

fn open(root: &Path, clock: Arc<dyn Clock>) -> Storage {
    let options = Options {
        root: root.to_owned(),
        host: "sc.".to_owned(),
        retention_ttl: Duration::from_mins(1),
        retention_records: 2,
        algorithm: Algorithm::Sha256,
    };
    Storage::open(options, clock).unwrap()
}

fn content(filler: u8) -> Vec<u8> {
    vec![filler; LENGTH]
}

/// What a run does: store, link, collect.
fn publish(storage: &Storage, path: &str, filler: u8) {
    storage.create_directory_for(path).unwrap();
    let _lock = storage.lock(path).unwrap();
    let written: Result<_, PublishError<std::io::Error>> = storage
        .publish(path, |output| content(filler).chunks(1000).try_for_each(|part| output.write_all(part)));
    written.unwrap();
    storage.link_latest(path, "latest.tar.gz").unwrap();
    storage.collect_garbage(path).unwrap();
}

/// The process that dies before its `nth` step of a kind.
fn die(root: &str) -> ! {
    let (step, nth): (String, usize) =
        (std::env::var(STEP).unwrap(), std::env::var(NTH).unwrap().parse().unwrap());
    let count = AtomicUsize::new(0);
    let probe = Probe::new(move |found, _| {
        if format!("{found:?}") == step && count.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
        }
        Ok(())
    });
    let storage = open(Path::new(root), Arc::new(Later)).with_probe(probe);
    publish(&storage, FILE, b'n');
    std::process::exit(7)
}

#[test]
fn killed_at_every_step() {
    if let Ok(root) = std::env::var(ROOT) {
        die(&root);
    }
    let mut killed = 0;
    for existing in [None, Some(FILE), Some(OLD)] {
        for step in Step::ALL {
            for nth in 1_usize.. {
                let directory = tempfile::TempDir::new().unwrap();
                let before = open(directory.path(), Arc::new(weir_base::clock::SystemClock));
                if let Some(path) = existing {
                    publish(&before, path, b'o');
                }
                let status = Command::new(std::env::current_exe().unwrap())
                    .args(["killed_at_every_step", "--exact", "--nocapture", "--test-threads=1"])
                    .env(ROOT, directory.path())
                    .env(STEP, format!("{step:?}"))
                    .env(NTH, nth.to_string())
                    .output()
                    .unwrap()
                    .status;
                if status.code() == Some(7) {
                    assert!(nth > 1 || step == Step::Remove, "{step:?} is part of every publication");
                    break;
                }
                assert_eq!(status.signal(), Some(9), "{step:?} {nth}");
                killed += 1;
                check(directory.path(), existing, &format!("{existing:?}, killed before {step:?} {nth}"));
            }
        }
    }
    assert!(killed >= 3 * 11, "{killed} kills");
}

/// What is under a name is whole, and the next process publishes, links and cleans up.
fn check(root: &Path, existing: Option<&str>, what: &str) {
    let storage = open(root, Arc::new(Later));
    let (old, new) = (Algorithm::Sha256.digest(&content(b'o')), Algorithm::Sha256.digest(&content(b'n')));
    for path in [FILE, OLD] {
        if storage.exists(path) {
            let is =
                |digest: &weir_artifact::digest::Digest| storage.verify(path, &digest.to_string()).is_ok();
            assert!(is(&old) || is(&new), "{what}: {path} is neither the old artifact nor the new one");
        } else if existing == Some(path) && path == FILE {
            panic!("{what}: the old artifact is gone");
        }
    }
    let link = root.join("bucket/apps/fleet/latest.tar.gz");
    if let Ok(through) = std::fs::read(&link) {
        assert!(
            through == content(b'o') || through == content(b'n'),
            "{what}: the link leads to something else"
        );
    }
    publish(&storage, FILE, b'n');
    storage.verify(FILE, &new.to_string()).unwrap();
    assert_eq!(std::fs::read(&link).unwrap(), content(b'n'), "{what}");
    let mut left: Vec<String> = std::fs::read_dir(link.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let is_no_lock = |name: &String| !name.contains(".lock");
    left.retain(is_no_lock);
    assert_eq!(left, ["latest.tar.gz", "rev.tar.gz"], "{what}: something was left behind");
}
