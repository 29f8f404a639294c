use proptest::prelude::*;

use super::*;

fn build(write: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    write(&mut builder);
    gzip(&builder.into_inner().unwrap())
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut encoder, plain).unwrap();
    encoder.finish().unwrap()
}

fn entry(builder: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, data: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(data.len() as u64);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

fn unpack_default(archive: &[u8]) -> Result<MemoryTree, UnpackError> {
    unpack(archive, Limits::default(), Symlinks::Skip)
}

#[track_caller]
fn check_error(archive: &[u8], limits: Limits, expected: &str) {
    let error = unpack(archive, limits, Symlinks::Refuse).unwrap_err();
    assert_eq!(weir_base::error::chain(&error), expected);
}

#[test]
fn names_that_leave_the_root_are_refused() {
    for name in ["/etc/passwd", "../x", "a/../../x", "a/..", "a\\b"] {
        let archive = build(|builder| entry(builder, name, tar::EntryType::Regular, b"x"));
        check_error(&archive, Limits::default(), &format!("tar contained invalid name error \"{name}\""));
    }
}

#[test]
fn names_are_cleaned() {
    let archive = build(|builder| {
        entry(builder, "./", tar::EntryType::Directory, b"");
        entry(builder, "./a//b/", tar::EntryType::Directory, b"");
        entry(builder, "./a/b/c", tar::EntryType::Regular, b"x");
    });
    let tree = unpack_default(&archive).unwrap();
    assert_eq!(tree.read("a/b/c").as_deref(), Some(b"x".as_slice()));
    assert_eq!(tree.directories().collect::<Vec<_>>(), ["a", "a/b"]);
}

#[test]
fn links_and_devices() {
    let archive = build(|builder| {
        entry(builder, "link", tar::EntryType::Symlink, b"");
        entry(builder, "x", tar::EntryType::Regular, b"x");
    });
    assert_eq!(unpack_default(&archive).unwrap().files().count(), 1);
    check_error(
        &archive,
        Limits::default(),
        "tar file entry link contained unsupported file type symbolic link",
    );
    let archive = build(|builder| entry(builder, "x", tar::EntryType::Char, b""));
    assert!(matches!(unpack_default(&archive), Err(UnpackError::UnsupportedType { .. })));
}

#[test]
fn a_file_is_not_a_directory() {
    let archive = build(|builder| {
        entry(builder, "a", tar::EntryType::Regular, b"x");
        entry(builder, "a/b", tar::EntryType::Regular, b"x");
    });
    assert!(matches!(unpack_default(&archive), Err(UnpackError::Conflict(path)) if path == "a/b"));
}

#[test]
fn limits_hold() {
    let archive = build(|builder| {
        entry(builder, "a", tar::EntryType::Regular, &[0; 600]);
        entry(builder, "b", tar::EntryType::Regular, &[0; 600]);
    });
    let limits = Limits { unpacked_bytes_max: 1000, entries_max: 10 };
    check_error(&archive, limits, "tar \"b\" is bigger than max archive size of 1000 bytes");
    let limits = Limits { unpacked_bytes_max: 2000, entries_max: 1 };
    check_error(&archive, limits, "tar contains more than 1 entries");
}

#[test]
fn bombs_are_cut_off() {
    let limits = Limits { unpacked_bytes_max: 1000, entries_max: 10_000 };
    let archive = build(|builder| entry(builder, "a", tar::EntryType::XHeader, &vec![b'9'; 3 << 20]));
    check_error(&archive, limits, "failed to read the archive: an extension header is too large");
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(64 << 20);
    header.set_cksum();
    let mut plain = header.as_bytes().to_vec();
    plain.resize(64 << 20, 0);
    let error = unpack(&gzip(&plain), limits, Symlinks::Skip).unwrap_err();
    assert!(matches!(error, UnpackError::TooLarge { .. } | UnpackError::InvalidName(_)), "{error}");
}

#[test]
fn truncated_archives_are_errors() {
    let archive = build(|builder| entry(builder, "a", tar::EntryType::Regular, &[7; 6000]));
    for length in 0..archive.len() - 8 {
        assert!(unpack_default(&archive[..length]).is_err(), "{length} of {}", archive.len());
    }
}

proptest! {
    #[test]
    fn any_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = unpack_default(&bytes);
        let _ = unpack_default(&gzip(&bytes));
    }

    #[test]
    fn damaged_archives_stay_in_their_root(
        changes in prop::collection::vec((0_usize..2048, any::<u8>()), 1..20)
    ) {
        let archive = build(|builder| {
            entry(builder, "a/b", tar::EntryType::Regular, b"x");
            entry(builder, "../c", tar::EntryType::Regular, b"x");
        });
        let mut plain = Vec::new();
        GzDecoder::new(archive.as_slice()).read_to_end(&mut plain).unwrap();
        for (offset, value) in changes {
            plain[offset] = value;
        }
        if let Ok(tree) = unpack_default(&gzip(&plain)) {
            for (path, _) in tree.files() {
                prop_assert!(!path.starts_with('/') && path.split('/').all(|part| part != ".."));
            }
        }
    }
}
