//! Goal: a path that an ended process held is opened as soon as the kernel lets go of it, also
//! after seconds. One that a running process holds is refused soon.
//! Method: a locked file that no process has open, as its only descriptor is on its way between two
//! sockets, until these are closed after three times the former wait.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fulgurite_flash::{OpenError, claim};
use rustix::fs::{FlockOperation, flock};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

/// Longer than the half second after which a file was said to be in use.
const ENDS: Duration = Duration::from_millis(1500);

#[test]
fn what_no_process_has_open_any_more_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(4096).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd()];
    assert!(rights.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&one, &[IoSlice::new(b"x")], &mut rights, SendFlags::empty()).unwrap();
    drop(file);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(ENDS);
            drop((one, other));
        });
        claim(&path).unwrap_or_else(|e| panic!("after {:?}: {e}", begun.elapsed()));
    });
    assert!(begun.elapsed() >= ENDS, "it was locked");

    let holder = claim(&path).unwrap();
    let begun = Instant::now();
    assert!(matches!(claim(&path), Err(OpenError::InUse { .. })));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(holder);
    claim(&path).unwrap();
}
