use proptest::prelude::*;
use weir_base::tree::File;

use super::*;
use crate::digest::Algorithm;
use crate::unpack::{Limits, Symlinks, unpack};

fn gunzip(archive: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    io::Read::read_to_end(&mut flate2::read::GzDecoder::new(archive), &mut plain).unwrap();
    plain
}

/// The digests are those of the streams Go's `archive/tar` writes for the same entries; they were
/// recorded with `tests/golden/tar/main.go`.
#[track_caller]
fn check(paths: &[(&str, Option<&str>)], expected: &str) {
    let mut writer = ArchiveWriter::new(Vec::new()).unwrap();
    for (path, content) in paths {
        match content {
            None => writer.directory(path.as_bytes()).unwrap(),
            Some(content) => {
                let executable = content.starts_with("#!");
                writer.file(path.as_bytes(), executable, content.as_bytes()).unwrap();
            }
        }
    }
    let plain = gunzip(&writer.finish().unwrap());
    assert_eq!(Algorithm::Sha256.digest(&plain).hex(), expected);
}

#[test]
fn plain_tree_equals_go() {
    check(
        &[("a", None), ("a/x", Some("hello\n")), ("a.b", Some("")), ("run.sh", Some("#!/bin/sh\n"))],
        PLAIN,
    );
}

#[test]
fn names_that_need_a_prefix_or_a_record_equal_go() {
    let long_directory = "d".repeat(99);
    let prefixed = format!("{long_directory}/{}", "f".repeat(90));
    let too_long = format!("{long_directory}/{}", "g".repeat(120));
    let deep = format!("{}x", "h/".repeat(130));
    check(
        &[
            (&long_directory, None),
            (&prefixed, Some("1")),
            (&too_long, Some("22")),
            (&deep, Some("333")),
            ("grüße/ä", Some("4444")),
        ],
        LONG,
    );
}

const PLAIN: &str = "ea6e4fb5a7d0f779975cd2e9814efac51ab0586d64605197d5fdc1b4e6334b66";
const LONG: &str = "9e7a9b970c7c1533122be31fc998836817709b9e14a06ae7589f9e1afb6b4575";

#[test]
fn gzip_header_is_fixed() {
    let archive = archive_tree(&MemoryTree::new()).unwrap();
    assert_eq!(archive[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
}

#[test]
fn children_follow_their_directory() {
    let mut paths = ["a.b", "a/x", "b", "a", "a-", "a/x/y"];
    paths.sort_by(|left, right| compare_paths(left.as_bytes(), right.as_bytes()));
    assert_eq!(paths, ["a", "a/x", "a/x/y", "a-", "a.b", "b"]);
}

fn trees() -> impl Strategy<Value = MemoryTree> {
    let name = "[a-cä.]{1,3}|[d-e]{60,120}";
    let path = prop::collection::vec(name, 1..4).prop_map(|parts| parts.join("/"));
    let file = (path, prop::collection::vec(any::<u8>(), 0..600), any::<bool>());
    prop::collection::vec(file, 0..12).prop_map(|files| {
        let mut tree = MemoryTree::new();
        for (path, data, executable) in files {
            use weir_base::tree::{Files, Kind};
            let blocked = tree.kind(&path).is_some()
                || path.match_indices('/').any(|(slash, _)| tree.kind(&path[..slash]) == Some(Kind::File));
            if !blocked {
                // Paths with `.` or `..` components are refused, which is fine here.
                let _ = tree.insert(&path, File { data: data.into(), executable });
            }
        }
        tree
    })
}

proptest! {
    #[test]
    fn unpacking_returns_the_tree_and_bytes_are_stable(tree in trees()) {
        let archive = archive_tree(&tree).unwrap();
        prop_assert_eq!(&archive, &archive_tree(&tree.clone()).unwrap());
        prop_assert_eq!(unpack(&archive, Limits::default(), Symlinks::Refuse).unwrap(), tree);
    }
}
