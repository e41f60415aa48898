//! Goal: a file is driven as well as the process is allowed to: without registered frames where
//! memory may not be locked, by threads where there is no io_uring. It works, and says what it
//! lacks.
//! Method: this program runs itself again, as a user without rights and with the limit in question
//! at zero, or with no file descriptor left when the ring is made.

use crate::common;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::*;
use fulgurite_flash::*;
use fulgurite_sys::Notifier;

/// Set in the child.
const CHILD: &str = "FULGURITE_TEST_WITHOUT_RIGHTS";
/// A user that has no rights of its own.
const NOBODY: u32 = 65_534;

/// By a process of its own: another test's forked child would have the copy open for writing, and
/// such a program is not executed.
fn copy_of_this_program(to: &Path) {
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(to).status().unwrap();
    assert!(copied.success(), "cp: {copied}");
}

/// Runs the test of this name once more under `limit`, a command of the shell, and returns its
/// output.
fn again(test: &str, limit: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    // Where the other user can find it.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("program");
    copy_of_this_program(&program);
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{limit} && exec \"$0\" \"$@\"")).arg(&program);
    command.args(fulgurite_testkit::arguments(module_path!(), test)).env(CHILD, "1");
    if fs::metadata(directory.path()).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
    text
}

/// Writes and reads through a file that is driven as well as it can be, after `starve`. Prints the
/// warnings.
fn use_a_file<T>(starve: impl FnOnce() -> T) {
    let directory = tempfile::tempdir().unwrap();
    let flash = FileFlash::open(&FileConfig::create(directory.path().join("flash"), 16 << 12)).unwrap();
    let (frames, wake) = (arena(2), Arc::new(Notifier::new().unwrap()));
    let starved = starve();
    let mut queue = flash.open_queue(frames.clone(), 2, wake).unwrap();
    drop(starved);
    let mut ended = Vec::new();
    for (op, frame) in [(Op::Write, 0), (Op::Read, 1)] {
        fill(&frames, 0, 5);
        queue.submit(request(1, op, 7, frame)).unwrap();
        while queue.poll(&mut ended) == 0 {
            queue.wait(None);
        }
    }
    assert_eq!(ended, [Completion { tag: 1, result: Ok(()), checksum: 0 }; 2]);
    assert_eq!(stamp_of(&frames, 1), Some(5));
    println!("warnings: {:?}", flash.warnings());
}

#[test]
fn frames_that_may_not_be_locked_are_not_registered() {
    if std::env::var_os(CHILD).is_some() {
        return use_a_file(|| ());
    }
    let said = again("frames_that_may_not_be_locked_are_not_registered", "ulimit -l 0");
    if said.contains("io_uring is not available") {
        return println!("not tested here: {said}");
    }
    assert!(said.contains("cannot be registered with io_uring"), "{said}");
}

#[test]
fn threads_drive_a_file_where_no_ring_can_be_made() {
    if std::env::var_os(CHILD).is_some() {
        return use_a_file(|| (0..).map_while(|_| File::open("/dev/null").ok()).collect::<Vec<_>>());
    }
    let said = again("threads_drive_a_file_where_no_ring_can_be_made", "ulimit -n 64");
    assert!(said.contains("io_uring is not available") && said.contains("threads a queue"), "{said}");
}
