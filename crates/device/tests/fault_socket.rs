//! Goal: a device's socket is its owner's alone, replaces only what is dead, and stands what
//! programs do to it: nonsense, floods, and their own death. Programs stand a socket that is no
//! device's.
//! Method: servers and programs in one process, over real sockets; messages written by hand.

use crate::common;
use crate::suite;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_sys::{Arena, Notifier};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use suite::{SUBPAGES, conform};

fn device(config: FirmwareConfig) -> Arc<Device> {
    let config = DeviceConfig { firmware: config, ..DeviceConfig::default() };
    Arc::new(Device::start(Arc::new(MemoryFlash::new(SUBPAGES).unwrap()), config).unwrap())
}

fn serve(path: &Path) -> Server {
    Server::start(device(FirmwareConfig::default()), path, ServerConfig::default()).unwrap()
}

fn over(path: &Path, copies: bool) -> DeviceFlash {
    let link = Arc::new(SocketLink::connect(path, !copies).unwrap());
    DeviceFlash::over(link, HostConfig { copies, ..HostConfig::default() })
}

fn raw(path: &Path) -> OwnedFd {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// A program without room gets that as its error, and not that the connection broke.
#[test]
fn who_is_turned_away_learns_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let device = Device::start(Arc::new(MemoryFlash::new(16).unwrap()), DeviceConfig::default()).unwrap();
    let config = ServerConfig { connections_max: 0, ..ServerConfig::default() };
    let _server = Server::start(Arc::new(device), &path, config).unwrap();
    // A silent connection has no queue pair, and there is room for a few of them.
    let _silent: Vec<_> = (0..16).map(|_| raw(&path)).collect();
    for _ in 0..100 {
        let reported = SocketLink::connect(&path, false).unwrap_err();
        assert!(reported.to_string().contains("no room"), "{reported}");
    }
}

#[test]
fn devices_over_a_socket_conform() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let server = serve(&path);
    let flash = over(&path, true);
    conform(&flash, seed());
    // Queue pairs go with their programs.
    let begun = Instant::now();
    while server.connections() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn frames_that_are_sealed_memory_need_no_copy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let config = FirmwareConfig { moves_by_cpu: true, ..FirmwareConfig::default() };
    let _server = Server::start(device(config), &path, ServerConfig::default()).unwrap();
    let flash = over(&path, false);
    let open = |frames: Arc<Arena>| flash.open_queue(frames, 4, Arc::new(Notifier::new().unwrap()));
    for frames in [Arc::new(Arena::sealed_memfd("frames", 4 * 4096).unwrap()), arena(4)] {
        let mut queue = open(frames.clone()).unwrap();
        for (op, frame) in [(Op::Write, 0), (Op::Read, 1)] {
            fill(&frames, 0, 77);
            queue.submit(request(1, op, 9, frame)).unwrap();
            let mut ended = Vec::new();
            while queue.poll(&mut ended) == 0 {
                queue.wait(None);
            }
            assert_eq!(ended[0].result, Ok(()));
        }
        assert_eq!(stamp_of(&frames, 1), Some(77));
        // Where there is nothing to copy, there is no data buffer.
        assert_eq!(queue.bytes() < 4 * 4096, frames.file().is_some(), "{} bytes", queue.bytes());
    }
    // What could be taken away from under the device is refused.
    assert!(open(Arc::new(Arena::memfd("frames", 4 * 4096).unwrap())).is_err());
}

#[test]
fn the_socket_is_its_owners_and_replaces_only_what_is_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let server = serve(&path);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let start = |path: &Path| Server::start(device(FirmwareConfig::default()), path, ServerConfig::default());
    assert!(matches!(start(&path), Err(SocketError::InUse { .. })));
    assert!(SocketLink::connect(&path, false).is_ok(), "the first is still there");
    drop(server);
    assert!(!path.exists());
    assert!(matches!(SocketLink::connect(&path, false), Err(SocketError::Socket { .. })));
    // What a device left that was killed.
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    drop(socket);
    drop(start(&path).unwrap());
    // One that was removed is no more the first one's to remove.
    let first = serve(&path);
    std::fs::remove_file(&path).unwrap();
    let second = serve(&path);
    drop(first);
    assert!(SocketLink::connect(&path, false).is_ok(), "the second is still there");
    drop(second);
    // A locked directory is an error only where something must be taken away.
    let locked = std::fs::File::open(directory.path()).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    drop(start(&path).unwrap());
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    drop(socket);
    assert!(matches!(start(&path), Err(SocketError::Listen { .. })));
    drop(locked);
    // Nothing else is replaced, and no link is followed.
    let file = directory.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path().join("elsewhere"), &link).unwrap();
    for (path, kind) in [(&file, "regular file"), (&link, "symbolic link"), (&directory.path().to_owned(), "directory")]
    {
        for error in [start(path).unwrap_err(), SocketLink::connect(path, false).unwrap_err()] {
            assert!(matches!(error, SocketError::NotASocket { kind: found, .. } if found == kind), "{error}");
        }
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    assert!(!directory.path().join("elsewhere").exists());
    assert!(start(&directory.path().join("none/socket")).is_err());
    assert!(start(&directory.path().join("x".repeat(200))).is_err());
}

#[test]
fn nonsense_from_programs_is_refused_and_others_are_served() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random(seed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let config = ServerConfig { connections_max: 8, region_bytes_max: 1 << 20 };
    let _server = Server::start(device(FirmwareConfig::default()), &path, config).unwrap();
    let flash = over(&path, true);
    let frames = arena(1);
    let mut honest = Driver::new(&flash, &frames, 1);
    let magic = u64::from_le_bytes(*b"FULGSOK1");
    for round in 0..300 {
        let socket = raw(&path);
        let mut words: Vec<u64> =
            (0..21).map(|_| if random.below(2) == 0 { random.next() } else { random.below(4) }).collect();
        if random.below(4) > 0 {
            words[0] = magic;
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(if random.below(4) == 0 { random.below(169) as usize } else { 168 });
        let _ = rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL);
        // Some flood, some wait, most go.
        for _ in 0..random.below(20) {
            let _ = rustix::net::send(&socket, &[0; 100], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        drop(socket);
        if round % 20 == 0 {
            fill(&frames, 0, round + 1);
            honest.one(Op::Write, 3, 0).unwrap();
            honest.one(Op::Read, 3, 0).unwrap();
            assert_eq!(stamp_of(&frames, 0), Some(round + 1));
        }
    }
    // Too large, and too many.
    for (depth, buffer) in [(0, 1), (fulgurite_device::DEPTH_MAX + 1, 1), (1, 1 << 20)] {
        let refused = flash.commands(depth, buffer);
        assert!(refused.is_err(), "depth {depth}, {buffer} sectors");
    }
    let begun = Instant::now();
    let mut many = Vec::new();
    while many.len() < 7 && begun.elapsed() < Duration::from_secs(20) {
        // Those before may not have been seen to have gone yet.
        many.extend(flash.commands(1, 1));
    }
    assert_eq!(many.len(), 7);
    assert!(flash.commands(1, 1).is_err());
    assert!(many[6].identify().is_ok());
}

#[test]
fn what_is_no_device_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    let answers: [&[u8]; 3] = [b"", b"hello", &[0xFF; 168]];
    let player = std::thread::spawn(move || {
        for answer in answers {
            let socket = rustix::net::accept(listener.as_fd()).unwrap();
            let _ = rustix::net::recv(&socket, &mut [0; 1024][..], rustix::net::RecvFlags::empty());
            let _ = rustix::net::send(&socket, answer, SendFlags::NOSIGNAL);
        }
    });
    for answer in answers {
        match SocketLink::connect(&path, false) {
            // As one that dies before it answers, which may come again.
            Err(SocketError::Socket { source, .. }) if answer.is_empty() => {
                assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof);
            }
            other => assert!(matches!(other, Err(SocketError::Protocol { .. })) && !answer.is_empty()),
        }
    }
    player.join().unwrap();
}

#[test]
fn the_boot_region_is_read_by_plain_loads_before_there_is_a_device() {
    let mut image = vec![0; SECTOR_BYTES];
    image[..11].copy_from_slice(b"boot loader");
    image.extend_from_slice(b"second");
    let boot = BootImage::new(image).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listening = Listening::at(&path, boot.clone(), ServerConfig::default()).unwrap();
    let read = |region: &Region| {
        let mut bytes = [0; 11];
        assert!(region.read_boot(0, &mut bytes));
        assert_eq!(&bytes, b"boot loader");
        assert!(region.read_boot(SECTOR_BYTES, &mut bytes[..7]));
        assert_eq!(&bytes[..7], b"second\0");
        assert!(!region.read_boot(2 * SECTOR_BYTES, &mut bytes));
    };
    let region = SocketLink::boot(&path).unwrap();
    assert_eq!(region.status(), DeviceStatus::Starting);
    read(&region);
    // A host that wants the device itself waits until there is one.
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || SocketLink::connect(&path, false)
    });
    std::thread::sleep(Duration::from_millis(30));
    assert!(!waiting.is_finished());
    let firmware = FirmwareConfig { boot, ..FirmwareConfig::default() };
    let config = DeviceConfig { firmware, ..DeviceConfig::default() };
    let medium = Arc::new(MemoryFlash::new(SUBPAGES).unwrap());
    let _server = listening.serve(Arc::new(Device::start(medium, config).unwrap()));
    let link = waiting.join().unwrap().unwrap();
    let region = SocketLink::boot(&path).unwrap();
    assert_eq!(region.status(), DeviceStatus::Ready);
    read(&region);
    // What a queue pair is in has it, too.
    let (frames, wake) = (arena(1), Arc::new(Notifier::new().unwrap()));
    let want =
        Want { depth: 1, buffer_sectors: 1, frames: Some(&frames), wake: &wake, identity: HostIdentity::default() };
    read(&link.open(&want).unwrap().region);
}

#[test]
fn a_device_that_never_comes_up_leaves_no_socket_and_no_boot_region_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listening = Listening::at(&path, BootImage::default(), ServerConfig::default()).unwrap();
    assert!(matches!(SocketLink::boot(&path), Err(SocketError::Refused { .. })));
    let again = Listening::at(&path, BootImage::default(), ServerConfig::default());
    assert!(matches!(again, Err(SocketError::InUse { .. })));
    drop(listening);
    assert!(!path.exists());
}

/// What the other user is to do: `connect` or `serve`, and the path of the socket.
const AS_ANOTHER: &str = "FULGURITE_AS_ANOTHER_USER";

/// The other user: this file's own program once more.
#[test]
#[ignore = "is run by the test that follows, as another user"]
fn another_user() {
    let Ok(words) = std::env::var(AS_ANOTHER) else { return };
    let (what, path) = words.split_once(' ').unwrap();
    let path = Path::new(path);
    if what == "connect" {
        let reported = SocketLink::connect(path, false).unwrap_err();
        assert!(
            matches!(&reported, SocketError::Refused { text, .. } if text.contains("another user's")),
            "{reported}"
        );
        return;
    }
    let _server = serve(path);
    // Until its starter has seen it.
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

/// Also where the rights of the file would let the other one in. Only root can be two users.
#[test]
fn another_user_is_neither_served_nor_used() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: another user can be had by root only");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let open_to_all = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open_to_all(directory.path(), 0o777);
    // The other user may not read the directory of the program.
    let program = directory.path().join("program");
    // By a process of its own: another test's forked child must not have it open for writing.
    let copied = std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success(), "cp: {copied}");
    open_to_all(&program, 0o755);
    let as_nobody = |what: &str, path: &Path| {
        std::process::Command::new(&program)
            .args(fulgurite_testkit::arguments(module_path!(), "another_user"))
            .env(AS_ANOTHER, format!("{what} {}", path.display()))
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let path = directory.path().join("ours");
    let server = serve(&path);
    open_to_all(&path, 0o666);
    let status = as_nobody("connect", &path).wait().unwrap();
    assert!(status.success(), "the other user was not refused as such: {status}");
    assert!(SocketLink::connect(&path, false).is_ok(), "its owner is served");
    drop(server);

    let path = directory.path().join("theirs");
    let mut other = as_nobody("serve", &path);
    let begun = Instant::now();
    let reported = loop {
        match SocketLink::connect(&path, false) {
            Err(SocketError::Socket { .. }) if begun.elapsed() < Duration::from_secs(60) => {
                assert!(other.try_wait().unwrap().is_none(), "the other user's device does not come up");
                std::thread::sleep(Duration::from_millis(5));
            }
            other => break other.map(|_| ()),
        }
    };
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    assert!(matches!(reported, Err(SocketError::Foreign { found: NOBODY, .. })), "{reported:?}");
}
