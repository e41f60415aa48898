//! Goal: every path that cannot be flash is a typed error before anything is created or changed.
//! Method: each kind of bad path in a temporary directory is tried, and the directory stays as it
//! was.

use crate::common;

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use common::*;
use fulgurite_flash::*;

fn open(path: &Path) -> Result<FileFlash, OpenError> {
    FileFlash::open(&FileConfig::existing(path))
}

fn file(path: &Path, bytes: u64) {
    fs::File::create_new(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn existing_paths_that_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);

    assert!(matches!(open(&at("missing")), Err(OpenError::Missing { .. })));
    assert!(matches!(open(Path::new("")), Err(OpenError::Missing { .. })));
    assert!(matches!(open(directory.path()), Err(OpenError::WrongKind { kind: "directory", .. })));
    assert!(matches!(open(Path::new("/dev/null")), Err(OpenError::WrongKind { kind: "character device", .. })));

    file(&at("good"), 8192);
    symlink(at("good"), at("link")).unwrap();
    let error = open(&at("link")).unwrap_err();
    assert!(matches!(error, OpenError::WrongKind { .. }) && error.to_string().contains("symbolic link"), "{error}");

    let made = std::process::Command::new("mkfifo").arg(at("fifo")).status();
    if made.is_ok_and(|s| s.success()) {
        assert!(fs::symlink_metadata(at("fifo")).unwrap().file_type().is_fifo());
        assert!(matches!(open(&at("fifo")), Err(OpenError::WrongKind { kind: "FIFO", .. })));
    }
    std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    assert!(matches!(open(&at("socket")), Err(OpenError::WrongKind { kind: "socket", .. })));

    file(&at("read-only"), 8192);
    fs::set_permissions(at("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
    assert!(matches!(open(&at("read-only")), Err(OpenError::Denied { .. })));

    file(&at("linked"), 8192);
    fs::hard_link(at("linked"), at("twin")).unwrap();
    assert!(matches!(open(&at("linked")), Err(OpenError::WrongKind { .. })));

    let window = open(Path::new("/proc/self/mem")).unwrap_err();
    assert!(matches!(window, OpenError::WrongKind { kind: "file without a size", .. }), "{window}");

    file(&at("empty"), 0);
    assert!(matches!(open(&at("empty")), Err(OpenError::Size { bytes: 0 })));
    file(&at("odd"), 8191);
    assert!(matches!(open(&at("odd")), Err(OpenError::NotAMultiple { bytes: 8191 })));

    let mut wanted = FileConfig::existing(at("good"));
    wanted.mode = FileMode::Existing { bytes: Some(16384) };
    assert!(matches!(FileFlash::open(&wanted), Err(OpenError::TooSmall { needed: 16384, found: 8192, .. })));
    wanted.mode = FileMode::Existing { bytes: Some(4096) };
    assert_eq!(FileFlash::open(&wanted).unwrap().subpages(), 1);
}

#[test]
fn a_file_in_use_is_refused_until_it_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    file(&path, 8192);
    for _ in 0..2 {
        let first = open(&path).unwrap();
        let mut queue = Driver::new(&first, &arena(1), 1);
        assert!(queue.one(Op::Read, 0, 0).is_ok());
        let in_use = open(&path).unwrap_err();
        assert!(matches!(in_use, OpenError::InUse { here: true, .. }), "{in_use}");
        assert!(in_use.to_string().contains("in use by this process already"), "{in_use}");
        drop(first);
        assert!(matches!(open(&path), Err(OpenError::InUse { .. })), "a queue keeps the file");
        drop(queue);
        // At once, though the kernel closes a ring some time later.
        assert_eq!(open(&path).unwrap().subpages(), 2);
    }
    // A lock that disappears while it is waited for, as after a kill, is no error.
    let first = open(&path).unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        drop(first);
    });
    assert!(open(&path).is_ok());
    holder.join().unwrap();
}

#[test]
fn a_file_that_somebody_writes_to_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    file(&path, 8192);
    let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    if !fulgurite_sys::DirectFile::open(&path).unwrap().open_elsewhere() {
        return eprintln!("SKIPPED: no leases on this file system");
    }
    assert!(matches!(claim(&path), Err(OpenError::InUse { .. })));
    drop(writer);
    assert_eq!(claim(&path).unwrap().bytes().unwrap(), 8192);
}

#[test]
fn creations_that_are_refused_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new");
    let create = |path: &Path, bytes| FileFlash::open(&FileConfig::create(path, bytes));
    assert!(matches!(create(&path, 0), Err(OpenError::Size { .. })));
    assert!(matches!(create(&path, 4097), Err(OpenError::NotAMultiple { .. })));
    assert!(matches!(create(&path, 1 << 60), Err(OpenError::Size { .. })));
    // More than any file system has free, less than the address space.
    assert!(matches!(create(&path, 15 << 40), Err(OpenError::NoSpace { .. })));
    assert!(matches!(create(&directory.path().join("no/where"), 4096), Err(OpenError::Missing { .. })));
    let stop = &mut |_, _| ControlFlow::Break(());
    let stopped = FileFlash::open_with_progress(&FileConfig::create(&path, 4096), stop);
    assert!(matches!(stopped, Err(OpenError::Stopped { .. })));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something was left");

    file(&path, 10);
    assert!(matches!(create(&path, 4096), Err(OpenError::Exists { .. })));
    assert_eq!(fs::metadata(&path).unwrap().len(), 10, "the file that was there is as it was");
    let dangling = directory.path().join("dangling");
    symlink("/nowhere", &dangling).unwrap();
    assert!(matches!(create(&dangling, 4096), Err(OpenError::Exists { .. })));
    assert!(matches!(create(&path.join("below"), 4096), Err(OpenError::Path { .. })));
}

#[test]
fn a_created_file_is_whole_private_and_zero() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new");
    let bytes = 20 << 20;
    let mut reported = Vec::new();
    let flash = FileFlash::open_with_progress(&FileConfig::create(&path, bytes), &mut |done, all| {
        reported.push((done, all));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(reported, [(8 << 20, bytes), (16 << 20, bytes), (bytes, bytes)]);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o777), (bytes, 0o600));
    assert!(metadata.blocks() * 512 >= bytes, "all of it was written");
    let frames = arena(1);
    fill(&frames, 0, 1);
    assert!(Driver::new(&flash, &frames, 1).one(Op::Read, (bytes / 4096 - 1) as u32, 0).is_ok());
    let mut got = [1; 4096];
    frames.read(0, &mut got);
    assert_eq!(got, [0; 4096]);
}

#[test]
fn a_file_of_another_user_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    file(&path, 8192);
    // Only root may give a file away; without, there is nothing to test.
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(open(&path), Err(OpenError::WrongKind { kind: "file of another user", .. })));
    }
}

#[test]
fn a_file_that_is_cut_gives_short_reads() {
    let directory = tempfile::tempdir().unwrap();
    for backend in [FileBackend::Auto, FileBackend::Threads(2)] {
        let path = directory.path().join(format!("{backend:?}"));
        file(&path, 8 * 4096);
        let flash = FileFlash::open(&FileConfig { backend, ..FileConfig::existing(&path) }).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4 * 4096).unwrap();
        let mut queue = Driver::new(&flash, &arena(1), 4);
        assert_eq!(queue.one(Op::Read, 6, 0), Err(FlashError::Short));
        assert_eq!(queue.one(Op::Read, 3, 0), Ok(()), "the rest goes on");
        assert_eq!(flash.counters().errors, 1);
    }
}
