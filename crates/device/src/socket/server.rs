//! The device's side: accepts programs, makes a region for each queue pair, and closes it when they
//! go.
//!
//! It listens before there is a device. Until then it gives the boot region, and answers all else
//! with "starting".
//!
//! One thread accepts, and one for each connection waits for its bytes. The device's own thread
//! only sends single bytes without waiting.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use fulgurite_sys::descriptors::moved;
use fulgurite_sys::{Arena, Clock, SocketPath, SocketPathError};
use rustix::net::{Shutdown, SocketFlags, SocketType, sockopt};

use super::{
    AT_IT, BOOT, INFO, Message, OCCUPIED, OPEN, REFUSED, SHARED, STARTING, SocketBell, SocketError, foreign, receive,
    send,
};
use crate::boot::BootImage;
use crate::device::{Attachment, Device};
use crate::hosts::{HostIdentity, Refusal};
use crate::region::{Capability, DeviceStatus, Features, Region};

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Connections at a time: a queue pair each. 256.
    pub connections_max: usize,
    /// Most bytes of shared memory of one queue pair. 1 GiB.
    pub region_bytes_max: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig { connections_max: 256, region_bytes_max: 1 << 30 }
    }
}

/// How long a program may take to say what it wants.
const QUESTION: Duration = Duration::from_secs(5);
/// How often a program that waits for a session is notified that it begins.
const REPORTS: Duration = Duration::from_secs(1);
/// Connections in addition to the queue pairs' connections, so that questions about the device find
/// one.
const UNHEARD_MAX: usize = 16;
/// How often a connection checks whether its device is still there.
const CHECK: Duration = Duration::from_millis(100);

struct Shared {
    /// None as long as it starts.
    device: OnceLock<Arc<Device>>,
    /// What is in the boot region until then; after that, it is the device's.
    boot: BootImage,
    config: ServerConfig,
    stop: AtomicBool,
    sessions: Mutex<Vec<Session>>,
}

struct Session {
    socket: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, Vec<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a device at a path. Dropping it removes the socket and closes all connections.
pub struct Server {
    shared: Arc<Shared>,
    path: PathBuf,
    /// None when it ends.
    place: Option<SocketPath>,
    listener: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("path", &self.path)
            .field("device", &self.shared.device.get())
            .finish_non_exhaustive()
    }
}

/// In this crate's words.
fn of_path(path: &Path, error: SocketPathError) -> SocketError {
    let path = path.to_owned();
    match error {
        SocketPathError::InUse => SocketError::InUse { path },
        SocketPathError::NotASocket { kind } => SocketError::NotASocket { path, kind },
        SocketPathError::System { what, source } => SocketError::Listen { what, path, source },
        error => SocketError::Listen { what: "take the place", path, source: io::Error::other(error) },
    }
}

/// A server without a device yet: it gives the boot region, and says "starting" otherwise. Dropping
/// it removes the socket.
#[derive(Debug)]
pub struct Listening(Server);

impl Listening {
    /// Listens at a path, before there is a device.
    ///
    /// # Errors
    /// When another device listens at the path, something else is there, or the kernel refuses.
    pub fn at(path: &Path, boot: BootImage, config: ServerConfig) -> Result<Listening, SocketError> {
        let listening = SocketPath::listen(path, SocketType::SEQPACKET);
        let (listener, place) = listening.map_err(|error| of_path(path, error))?;
        let listener = Arc::new(listener);
        let (sessions, device, stop) = (Mutex::default(), OnceLock::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { device, boot, config, stop, sessions });
        let (of_thread, accepting) = (shared.clone(), listener.clone());
        let thread = std::thread::Builder::new()
            .name("device-accept".into())
            .spawn(move || accept(&of_thread, accepting.as_fd()))
            .map_err(|source| SocketError::Socket { what: "start a thread for", path: path.to_owned(), source })?;
        Ok(Listening(Server { shared, path: path.to_owned(), place: Some(place), listener, thread: Some(thread) }))
    }
    /// Serves this device from now on.
    #[must_use]
    pub fn serve(self, device: Arc<Device>) -> Server {
        // Nobody else has this to set it.
        let _ = self.0.shared.device.set(device);
        self.0
    }
}

impl Server {
    /// Begins to serve a device that is there.
    ///
    /// # Errors
    /// When another device listens at the path, something else is there, or the kernel refuses.
    pub fn start(device: Arc<Device>, path: &Path, config: ServerConfig) -> Result<Server, SocketError> {
        let boot = device.backend().config.boot.clone();
        Ok(Listening::at(path, boot, config)?.serve(device))
    }
    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.sessions().iter().filter(|session| !session.thread.is_finished()).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.place = None;
        let _ = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let sessions = std::mem::take(&mut *self.shared.sessions());
        for session in &sessions {
            // Its thread hears of it. The program must not, before the device has let go of its
            // frames: the thread says so in the end.
            let _ = rustix::net::shutdown(&*session.socket, Shutdown::Read);
        }
        for session in sessions {
            let _ = session.thread.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: BorrowedFd<'_>) {
    loop {
        let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        // No descriptors left, or the program is gone again: others may come.
        let Ok(socket) = socket.and_then(moved) else {
            Clock::get().sleep(Duration::from_millis(1));
            continue;
        };
        let socket = Arc::new(socket);
        let mut sessions = shared.sessions();
        sessions.retain(|session| !session.thread.is_finished());
        let foreign = foreign(socket.as_fd()).ok() != Some(None);
        if foreign || sessions.len() >= shared.config.connections_max + UNHEARD_MAX {
            let mut message = Message::default();
            message.words[1] = REFUSED;
            let why = if foreign { "it is another user's" } else { "it has no room for more" };
            message.text = why.to_owned();
            let _ = send(socket.as_fd(), &message, None);
            continue;
        }
        let (of_thread, connection) = (shared.clone(), socket.clone());
        let spawned = std::thread::Builder::new().name("device-session".into()).spawn(move || {
            serve(&of_thread, connection.as_fd());
            let _ = rustix::net::shutdown(&*connection, Shutdown::Both);
        });
        if let Ok(thread) = spawned {
            sessions.push(Session { socket, thread });
        }
    }
}

/// One connection, to its end.
fn serve(shared: &Shared, socket: BorrowedFd<'_>) {
    let timeout = |time| sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(time)).is_ok();
    if !timeout(QUESTION) {
        return;
    }
    let Ok(Some((bytes, descriptor))) = receive(socket) else { return };
    let Some(question) = Message::of(&bytes) else { return };
    let mut answer = Message::default();
    answer.words[0] = question.words[0];
    match (question.words[0], shared.device.get()) {
        (BOOT, device) => {
            let region = boot_region(&shared.boot, device.is_some());
            let region = region.map_err(|text| (answer.words[1], answer.text) = (REFUSED, text)).ok();
            let _ = send(socket, &answer, region.as_ref().and_then(|region| region.arena().file()));
        }
        (INFO | OPEN, None) => {
            (answer.words[1], answer.text) = (STARTING, "it is starting; ask again".to_owned());
            let _ = send(socket, &answer, None);
        }
        (INFO, Some(device)) => {
            inform(device, &mut answer);
            let _ = send(socket, &answer, None);
        }
        (OPEN, Some(device)) => serve_pair(shared, device, socket, &question, descriptor, answer),
        _ => {
            (answer.words[1], answer.text) = (REFUSED, "there is no such question".to_owned());
            let _ = send(socket, &answer, None);
        }
    }
}

/// A queue pair, from its opening until the device has let go of it.
fn serve_pair(
    shared: &Shared,
    device: &Device,
    socket: BorrowedFd<'_>,
    question: &Message,
    descriptor: Option<OwnedFd>,
    mut answer: Message,
) {
    let [program, host, restores, names_states, only_observes, since] =
        [5, 6, 7, 8, 9, 10].map(|word| question.words[word]);
    let identity = HostIdentity { host, program, restores: restores != 0, names_states: names_states != 0, since };
    // A program that only observes disturbs no other.
    let admit = || (only_observes == 0).then(|| device.admit(identity, shared.config.connections_max)).transpose();
    let admitted = if identity.names_states { while_reporting(socket, &answer, admit) } else { admit() };
    let place = match admitted {
        Ok(place) => place,
        Err(refusal) => {
            answer.words[1] = match refusal {
                Refusal::Occupied => OCCUPIED,
                Refusal::Restoring | Refusal::TakingBack => STARTING,
                Refusal::Shared => SHARED,
                _ => REFUSED,
            };
            answer.text = refusal.to_string();
            let _ = send(socket, &answer, None);
            return;
        }
    };
    match open(shared, device, socket, question, descriptor) {
        Ok((region, attachment, shares)) => {
            place.as_ref().inspect(|place| place.set_region(&region));
            answer.words[4] = shares.into();
            (answer.words[8], answer.words[9]) = device.session_stands();
            if send(socket, &answer, region.arena().file()).is_ok()
                && sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(CHECK)).is_ok()
            {
                ring_on(socket, &attachment);
            }
            attachment.close();
            while !attachment.has_let_go() {
                device.clock().sleep(Duration::from_micros(100));
            }
        }
        Err(text) => {
            (answer.words[1], answer.text) = (REFUSED, text);
            let _ = send(socket, &answer, None);
        }
    }
}

/// Does what may take long, and reports to the program all the while that it is being done.
fn while_reporting<T>(socket: BorrowedFd<'_>, answer: &Message, work: impl FnOnce() -> T) -> T {
    let mut message = answer.clone();
    message.words[1] = AT_IT;
    let (ends, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Without a thread for it, the program waits no longer than for any answer.
        let _ = std::thread::Builder::new().name("device-reporting".into()).spawn_scoped(scope, move || {
            // Another process waits, in real time.
            let clock = Clock::get();
            while clock.receive_until(&ended, clock.after(REPORTS)) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = send(socket, &message, None);
            }
        });
        let done = work();
        drop(ends);
        done
    })
}

/// Rings the device's bell for each byte, until either side has gone.
fn ring_on(socket: BorrowedFd<'_>, attachment: &Attachment) {
    let mut bytes = [0; 64];
    while !attachment.life().has_ended() {
        match rustix::net::recv(socket, &mut bytes[..], rustix::net::RecvFlags::empty()) {
            Ok((0, _)) => return,
            Ok(_) => attachment.doorbell().notify(),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn inform(device: &Device, answer: &mut Message) {
    let flash = device.flash();
    let counters = flash.counters();
    let dram = device.dram();
    let cpu = u64::try_from(device.cpu().as_nanos()).unwrap_or(u64::MAX);
    let words = [
        u64::from(flash.subpages()),
        dram.set_aside,
        counters.reads,
        counters.writes,
        counters.flushes,
        counters.errors,
        counters.device_cpu_ns.saturating_add(cpu),
        counters.late,
        counters.lateness_ns_total,
        counters.lateness_ns_max,
        counters.write_requests,
        counters.read_requests,
        device.backend().features().0,
        dram.taken,
        dram.bound.unwrap_or(0),
    ];
    answer.words[2..2 + words.len()].copy_from_slice(&words);
    answer.text = flash.describe();
}

/// Makes a region and a queue pair as asked for.
fn open(
    shared: &Shared,
    device: &Device,
    socket: BorrowedFd<'_>,
    question: &Message,
    descriptor: Option<OwnedFd>,
) -> Result<(Arc<Region>, Attachment, bool), String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let backend = device.backend();
    let depth = usize::try_from(question.words[2]).map_err(|e| words(&e))?;
    let buffer = u32::try_from(question.words[3]).map_err(|e| words(&e))?;
    let shares = question.words[4] != 0 && backend.moves_by_cpu();
    let frames = match descriptor.filter(|_| shares) {
        Some(file) => Some(Arc::new(Arena::shared_sealed(File::from(file)).map_err(|e| words(&e))?)),
        None if shares => return Err("no frames came with the question".to_owned()),
        None => None,
    };
    let capability = backend.capability(1, depth, if shares { 0 } else { buffer });
    if depth > crate::DEPTH_MAX || buffer as usize > shared.config.region_bytes_max / crate::SECTOR_BYTES {
        return Err(format!("a queue of depth {depth} with {buffer} sectors of buffer is too large"));
    }
    let region = Arc::new(Region::create(capability, true).map_err(|e| words(&e))?);
    let interrupt = Arc::new(SocketBell(socket.try_clone_to_owned().map_err(|e| words(&e))?));
    let only_observes = question.words[9] != 0;
    let attachment = device.attach_as(&region, 0, frames, interrupt, only_observes).map_err(|e| words(&e))?;
    debug_assert_eq!(region.status(), DeviceStatus::Ready);
    // Up to here the region is empty and takes no memory. The image is copied once the budget has
    // room for it, before the answer is sent.
    backend.config.boot.fill(&region);
    Ok((region, attachment, shares))
}

/// A region with only a boot region and a final status register.
fn boot_region(boot: &BootImage, ready: bool) -> Result<Region, String> {
    if boot.sectors() == 0 {
        return Err("it has no boot region (`device serve --boot FILE`)".to_owned());
    }
    let capability = Capability {
        sectors: boot.sectors(),
        pairs: 1,
        depth: 1,
        buffer_sectors: 0,
        boot_sectors: boot.sectors(),
        features: Features::default(),
        instance: 0,
        command_sectors: 1,
    };
    let region = Region::create(capability, true).map_err(|error| error.to_string())?;
    boot.fill(&region);
    region.set_status(if ready { DeviceStatus::Ready } else { DeviceStatus::Starting });
    Ok(region)
}

#[cfg(test)]
mod tests {
    use rustix::net::AddressFamily;

    use super::*;

    #[test]
    fn a_program_is_notified_that_the_device_is_at_it_and_then_no_more() {
        let (own, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut answer = Message::default();
        answer.words[0] = OPEN;
        sockopt::set_socket_timeout(&other, sockopt::Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
        // It takes until the program was notified.
        let reported = while_reporting(own.as_fd(), &answer, || receive(other.as_fd()).unwrap().unwrap().0);
        assert_eq!(Message::of(&reported).unwrap().words[..2], [OPEN, AT_IT]);
        // What comes behind, if the machine was slow, is the same again, and then nothing.
        drop(own);
        while let Some((again, _)) = receive(other.as_fd()).unwrap() {
            assert_eq!(again, reported);
        }
        // A panicking thread is not waited for.
        let (own, _other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let panics = || while_reporting(own.as_fd(), &answer, || panic!("planted"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    }
}
