use std::convert::Infallible;
use std::fs::FileTimes;

use proptest::prelude::*;
use tempfile::TempDir;
use weir_base::clock::SystemClock;

use super::*;

fn storage(directory: &TempDir) -> Storage {
    let options = Options {
        root: directory.path().to_owned(),
        host: "source-controller.flux-system.svc.cluster.local.".to_owned(),
        retention_ttl: Duration::from_mins(1),
        retention_records: 2,
        algorithm: Algorithm::Sha256,
    };
    Storage::open(options, Arc::new(SystemClock)).unwrap()
}

fn publish(storage: &Storage, path: &str, content: &str) -> Stored {
    storage.create_directory_for(path).unwrap();
    let _lock = storage.lock(path).unwrap();
    storage
        .publish::<Infallible>(path, |output| {
            output.write_all(content.as_bytes()).unwrap();
            Ok(())
        })
        .unwrap()
}

fn set_age(storage: &Storage, path: &str, seconds: u64) {
    let file = fs::File::options().write(true).open(storage.local_path(path).unwrap()).unwrap();
    let time = SystemTime::now() - Duration::from_secs(seconds);
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

const PATH: &str = "gitrepository/apps/podinfo/1.tar.gz";

#[test]
fn published_files_verify_and_changed_ones_do_not() {
    let directory = TempDir::new().unwrap();
    let storage = storage(&directory);
    let stored = publish(&storage, PATH, "abc");
    assert_eq!(stored.digest, Algorithm::Sha256.digest(b"abc"));
    assert_eq!(stored.size_bytes, 3);
    assert!(storage.exists(PATH));
    let local = storage.local_path(PATH).unwrap();
    assert_eq!(fs::metadata(&local).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(local.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let digest = stored.digest.to_string();
    storage.verify(PATH, &digest).unwrap();
    assert_eq!(storage.find_digest(&digest).as_deref(), Some(PATH));

    fs::write(&local, "abd").unwrap();
    let error = storage.verify(PATH, &digest).unwrap_err();
    assert_eq!(error.to_string(), format!("computed digest doesn't match '{digest}'"));
    assert_eq!(storage.verify(PATH, "").unwrap_err().to_string(), "artifact has no digest");
    assert!(matches!(storage.verify(PATH, "sha256:12"), Err(VerifyError::Parse { .. })));
    storage.remove(PATH).unwrap();
    assert!(!storage.exists(PATH));
    assert!(matches!(storage.verify(PATH, &digest), Err(VerifyError::Storage(_))));
}

#[derive(Debug, thiserror::Error)]
#[error("broken")]
struct Broken;

#[test]
fn a_failed_publication_leaves_the_old_file_and_nothing_else() {
    let directory = TempDir::new().unwrap();
    let storage = storage(&directory);
    let stored = publish(&storage, PATH, "abc");
    let result = storage.publish(PATH, |output| {
        output.write_all(b"half").unwrap();
        Err(Broken)
    });
    assert!(matches!(result, Err(PublishError::Content(Broken))));
    storage.verify(PATH, &stored.digest.to_string()).unwrap();
    let mut names: Vec<_> = fs::read_dir(storage.local_path(PATH).unwrap().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["1.tar.gz", "1.tar.gz.lock"]);
}

#[test]
fn paths_stay_in_the_root() {
    let directory = TempDir::new().unwrap();
    let storage = storage(&directory);
    for path in ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/./b", "a\0"] {
        assert!(matches!(storage.local_path(path), Err(StorageError::InvalidPath(_))), "{path}");
    }
    symlink("/etc", directory.path().join("kind")).unwrap();
    assert!(matches!(storage.local_path("kind/passwd"), Err(StorageError::InvalidPath(_))));
    assert!(!storage.exists("kind/passwd"));
}

#[test]
fn urls() {
    let directory = TempDir::new().unwrap();
    let mut storage = storage(&directory);
    assert_eq!(storage.url(PATH), format!("http://source-controller.flux-system.svc.cluster.local./{PATH}"));
    storage.options.host = "https://files.example.com".to_owned();
    assert_eq!(storage.url(PATH), format!("https://files.example.com/{PATH}"));
}

#[test]
fn the_latest_link_follows() {
    let directory = TempDir::new().unwrap();
    let storage = storage(&directory);
    publish(&storage, PATH, "abc");
    let other = "gitrepository/apps/podinfo/2.tar.gz";
    publish(&storage, other, "def");
    let url = storage.link_latest(PATH, "latest.tar.gz").unwrap();
    assert!(url.ends_with("/gitrepository/apps/podinfo/latest.tar.gz"), "{url}");
    storage.link_latest(other, "latest.tar.gz").unwrap();
    let link = directory.path().join("gitrepository/apps/podinfo/latest.tar.gz");
    assert_eq!(fs::read(&link).unwrap(), b"def");
    assert!(!storage.exists("gitrepository/apps/podinfo/latest.tar.gz"));
}

#[test]
fn old_files_go_whatever_their_number_and_young_ones_beyond_the_records() {
    let directory = TempDir::new().unwrap();
    let storage = storage(&directory);
    let path = |name: &str| format!("gitrepository/apps/podinfo/{name}.tar.gz");
    for (name, age) in [("old", 3600), ("y1", 30), ("y2", 20), ("current", 7200)] {
        publish(&storage, &path(name), name);
        set_age(&storage, &path(name), age);
    }
    storage.link_latest(&path("current"), "latest.tar.gz").unwrap();
    assert_eq!(storage.collect_garbage(&path("current")).unwrap(), 2);
    let left: Vec<bool> =
        ["old", "y1", "y2", "current"].iter().map(|name| storage.exists(&path(name))).collect();
    assert_eq!(left, [false, false, true, true]);
    assert!(!storage.local_path(&path("old")).unwrap().with_extension("gz.lock").exists());
    assert!(storage.local_path(&path("y2")).unwrap().with_extension("gz.lock").exists());
    assert_eq!(storage.collect_garbage(&path("current")).unwrap(), 0);
    assert!(directory.path().join("gitrepository/apps/podinfo/latest.tar.gz").exists());
}

#[test]
fn removing_an_object_removes_its_directory_only() {
    let directory = TempDir::new().unwrap();
    let storage = storage(&directory);
    publish(&storage, PATH, "abc");
    publish(&storage, "gitrepository/apps/other/1.tar.gz", "abc");
    assert!(storage.remove_directory("gitrepository/apps/podinfo").unwrap());
    assert!(!storage.remove_directory("gitrepository/apps/podinfo").unwrap());
    assert!(storage.exists("gitrepository/apps/other/1.tar.gz"));
}

#[test]
fn a_lock_is_exclusive() {
    let directory = TempDir::new().unwrap();
    let storage = Arc::new(storage(&directory));
    storage.create_directory_for(PATH).unwrap();
    let held = storage.lock(PATH).unwrap();
    let other = Arc::clone(&storage);
    let (sender, receiver) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let _lock = other.lock(PATH).unwrap();
        sender.send(()).unwrap();
    });
    assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err());
    drop(held);
    receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    waiter.join().unwrap();
}

#[test]
fn advertised_hosts() {
    let host = |advertised, listen| advertised_host(advertised, listen, || "pod-1".to_owned());
    assert_eq!(host("sc.svc.", ":9090").as_deref(), Some("sc.svc."));
    assert_eq!(host("", ":9090").as_deref(), Some("localhost:9090"));
    assert_eq!(host("", "0.0.0.0:9090").as_deref(), Some("pod-1:9090"));
    assert_eq!(host("", "127.0.0.1:80").as_deref(), Some("127.0.0.1:80"));
    assert_eq!(host("", "localhost"), None);
}

proptest! {
    #[test]
    fn garbage_never_contains_the_current_file(
        ages in prop::collection::vec(0_u64..200, 0..20), current in 0_usize..20, records in 0_usize..5
    ) {
        let mut files: Vec<_> = ages
            .iter()
            .enumerate()
            .map(|(index, age)| (Duration::from_secs(*age), PathBuf::from(index.to_string())))
            .collect();
        files.sort_by(|left, right| right.cmp(left));
        let current = PathBuf::from(current.to_string());
        let gone = garbage(&files, &current, Duration::from_mins(1), records);
        prop_assert!(!gone.contains(&current.as_path()));
        let left: Vec<_> =
            files.iter().filter(|(_, path)| !gone.contains(&path.as_path())).collect();
        prop_assert!(left.len() <= records.max(1));
        prop_assert!(left.iter().all(|(age, path)| *path == current || age.as_secs() <= 60));
    }
}
