//! Goal: a host stays usable after its device died and something silent answers for it. Polls come
//! back during an attachment, requests end with a typed error when the host's patience is over, and
//! go on when a device answers. Opening a queue without a device waits for as long.
//! Method: a device over a socket is stopped, and a socket that accepts and never answers takes its
//! place. Everything runs in one thread, so that a poll that waited for an answer would show.

use crate::common;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_sys::Notifier;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};

const SUBPAGES: u32 = 64;
/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn serve(medium: &Arc<MemoryFlash>, path: &Path) -> Server {
    let device = Device::start(medium.clone(), DeviceConfig::default()).unwrap();
    Server::start(Arc::new(device), path, ServerConfig::default()).unwrap()
}

/// Accepts, and says nothing.
struct Mute {
    listener: OwnedFd,
    accepted: Vec<OwnedFd>,
}

impl Mute {
    fn at(path: &Path) -> Mute {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::listen(&listener, 16).unwrap();
        Mute { listener, accepted: Vec::new() }
    }
    /// Takes connections that are there. Returns whether somebody waits for an answer.
    fn poll_asked(&mut self) -> bool {
        while let Ok(socket) = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
            self.accepted.push(socket);
        }
        // After the question there is nothing to read, or the end.
        self.accepted.retain(|socket| {
            let read = || rustix::net::recv(socket, &mut [0u8; 4096][..], RecvFlags::DONTWAIT);
            let after = std::iter::repeat_with(read).find(|read| !matches!(read, Ok((1.., _))));
            matches!(after, Some(Err(Errno::AGAIN)))
        });
        !self.accepted.is_empty()
    }
}

struct Host {
    queue: Box<dyn Queue>,
    frames: Arc<fulgurite_sys::Arena>,
    ended: Vec<Completion>,
}

impl Host {
    fn new(path: &Path, reattach: Duration) -> Host {
        let link = Arc::new(SocketLink::connect(path, false).unwrap());
        let flash = DeviceFlash::over(link, HostConfig { copies: true, reattach, ..HostConfig::default() });
        let frames = arena(4);
        let queue = flash.open_queue(frames.clone(), 4, Arc::new(Notifier::new().unwrap())).unwrap();
        Host { queue, frames, ended: Vec::new() }
    }
    fn begin(&mut self, op: Op, subpage: u32, frame: u32) {
        self.queue.submit(request(1, op, subpage, frame)).unwrap();
        self.queue.flush().unwrap();
    }
    fn end(&mut self) -> Result<(), FlashError> {
        let begun = Instant::now();
        while self.ended.is_empty() && self.queue.poll(&mut self.ended) == 0 {
            assert!(begun.elapsed() < LONG, "nothing ends");
            self.queue.wait(Some(Duration::from_millis(1)));
        }
        self.ended.pop().unwrap().result
    }
}

#[test]
fn polls_come_back_while_nobody_answers_and_requests_go_on_when_somebody_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let medium = Arc::new(MemoryFlash::new(SUBPAGES).unwrap());
    let server = serve(&medium, &path);
    let mut host = Host::new(&path, LONG);
    fill(&host.frames, 0, 77);
    host.begin(Op::Write, 9, 0);
    host.end().unwrap();
    host.begin(Op::Flush, 0, 0);
    host.end().unwrap();
    drop(server);
    let mut mute = Mute::at(&path);
    host.begin(Op::Read, 9, 1);
    let begun = Instant::now();
    while !mute.poll_asked() {
        assert!(begun.elapsed() < LONG, "it does not attach again");
        assert_eq!(host.queue.poll(&mut host.ended), 0);
    }
    // By one that has not been answered.
    for polls in 0..1000 {
        assert_eq!(host.queue.poll(&mut host.ended), 0);
        assert!(mute.poll_asked(), "it waited for the answer, and gave it up, at poll {polls}");
    }
    // What is submitted meanwhile is handled as all the rest.
    host.begin(Op::Read, 9, 2);
    drop(mute);
    std::fs::remove_file(&path).unwrap();
    let _server = serve(&medium, &path);
    for _ in 0..2 {
        host.end().unwrap();
    }
    assert_eq!([1, 2].map(|frame| stamp_of(&host.frames, frame)), [Some(77); 2]);
}

#[test]
fn who_is_never_answered_gets_an_error_when_its_patience_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let medium = Arc::new(MemoryFlash::new(SUBPAGES).unwrap());
    let server = serve(&medium, &path);
    let mut host = Host::new(&path, Duration::ZERO);
    drop(server);
    let mut mute = Mute::at(&path);
    host.begin(Op::Read, 9, 1);
    assert_eq!(host.end(), Err(FlashError::Closed));
    // Not because the one that it had asked let go, or the socket's own time was over.
    assert!(mute.poll_asked());
    host.begin(Op::Read, 9, 1);
    assert_eq!(host.end(), Err(FlashError::Closed));
    // Nobody waits for the thread that is still asking.
    drop(host);
    assert!(mute.poll_asked());
}

/// A missing path, a dead one, and a starting device are waited for, and no other mistake is.
#[test]
fn who_opens_while_the_device_is_away_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let medium = Arc::new(MemoryFlash::new(SUBPAGES).unwrap());
    let server = serve(&medium, &path);
    let over = |reattach| {
        let link = Arc::new(SocketLink::connect(&path, false).unwrap());
        DeviceFlash::over(link, HostConfig { copies: true, reattach, ..HostConfig::default() })
    };
    let (patient, hasty) = (over(LONG), over(Duration::ZERO));
    drop(server);
    let frames = arena(4);
    let queue = |flash: &DeviceFlash| Driver::open(flash, &frames, 4);
    let kind = |error| match error {
        OpenError::System { source, .. } => source.kind(),
        other => panic!("{other}"),
    };
    assert!(!path.exists());
    assert_eq!(kind(queue(&hasty).err().unwrap()), std::io::ErrorKind::NotConnected);
    assert_eq!(kind(hasty.commands(2, 2).err().unwrap()), std::io::ErrorKind::NotConnected);
    // Which no waiting changes.
    assert!(matches!(Driver::open(&patient, &frames, 0), Err(OpenError::Depth { depth: 0 })));
    std::thread::scope(|scope| {
        let queues = scope.spawn(|| queue(&patient));
        let commands = scope.spawn(|| patient.commands(2, 2));
        let all_wait = |at: &str| {
            std::thread::sleep(Duration::from_millis(30));
            assert!(!queues.is_finished() && !commands.is_finished(), "{at}");
        };
        all_wait("nothing is there");
        let flags = SocketFlags::CLOEXEC;
        let deaf = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::bind(&deaf, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        all_wait("nobody listens");
        std::fs::remove_file(&path).unwrap();
        let listening = Listening::at(&path, BootImage::default(), ServerConfig::default()).unwrap();
        all_wait("it starts");
        let device = Device::start(medium.clone(), DeviceConfig::default()).unwrap();
        let _server = listening.serve(Arc::new(device));
        let (mut queue, mut commands) = (queues.join().unwrap().unwrap(), commands.join().unwrap().unwrap());
        fill(&frames, 0, 5);
        queue.one(Op::Write, 3, 0).unwrap();
        let mut bytes = [0; 4096];
        commands.read(3, &mut bytes).unwrap();
        frames.write(4096, &bytes);
        assert_eq!(stamp_of(&frames, 1), Some(5));
        // What the device refuses is reported, however patient the host is.
        assert_ne!(kind(patient.commands(2, u32::MAX).err().unwrap()), std::io::ErrorKind::NotConnected);
    });
}
