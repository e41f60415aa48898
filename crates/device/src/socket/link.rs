//! The program's side of a device in another process.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use fulgurite_flash::{DeviceCounters, OpenError};
use fulgurite_sys::descriptors::above_standard;
use fulgurite_sys::{Arena, Clock, Notifier, socket_path};
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::{
    AT_IT, BOOT, INFO, Message, OCCUPIED, OPEN, REFUSED, SHARED, STARTING, SocketBell, SocketError, foreign, receive,
    send,
};
use crate::device::Life;
use crate::dram::DeviceDram;
use crate::firmware::Wake;
use crate::host::{Hold, Link, Linked, Want};
use crate::region::{Features, Region};

/// How long a device may take to answer when it is attached to.
const ANSWER: Duration = Duration::from_secs(10);
/// The time allowed while the device says that it is at work: a session begins with a sync of what
/// others have written.
const ANSWER_AT_IT: Duration = Duration::from_secs(300);
/// The time allowed where a caller only asks for the device's state.
const ANSWER_SOON: Duration = Duration::from_secs(1);
/// How often one that starts is asked again.
const CHECK: Duration = Duration::from_millis(10);
/// Messages that are taken from a device at a time.
const DRAIN_MAX: usize = 64;
/// How long a program that has the device for itself may take to be gone after its end.
const LEAVING: Duration = Duration::from_secs(2);

/// A device that listens at a path.
#[derive(Debug)]
pub struct SocketLink {
    path: PathBuf,
    sectors: u32,
    description: String,
    dram: DeviceDram,
    features: Features,
    /// Hands frames over, where they are sealed memory and the device takes them.
    share_frames: bool,
    /// This program's number where it wants the device for itself; else 0.
    program: u64,
    /// This program names the states of the store there.
    names_states: bool,
    /// It asks only for what changes nothing.
    only_observes: bool,
    /// What it has counted, when it was asked last.
    newest: Mutex<DeviceCounters>,
    /// By instance: all queue pairs of one device live and die together.
    lives: Mutex<Lives>,
    /// The other process answers in real time.
    clock: Clock,
}

/// The lives of the devices that answered at the path.
#[derive(Debug, Default)]
struct Lives {
    by_instance: HashMap<u64, Weak<Life>>,
    /// Those after which another one has answered, newest last: a late answer of theirs says
    /// nothing of the newer one.
    past: VecDeque<u64>,
}

/// As many instances as may be asked about late.
const PAST_MAX: usize = 1024;

impl SocketLink {
    /// Finds the device that listens at a path. Waits at most 10 s for one that starts.
    ///
    /// With `share_frames`, frames that are a sealed memfd are handed to it and nothing is copied,
    /// if no device behind it moves data by itself. The caller trusts the device's process with the
    /// frames as its own: it could write to them at any time.
    ///
    /// # Errors
    /// When nothing listens there, it runs as another user, or does not speak as a device.
    pub fn connect(path: &Path, share_frames: bool) -> Result<SocketLink, SocketError> {
        let mut link = SocketLink { share_frames, ..SocketLink::of(path) };
        let end_ns = link.clock.after(ANSWER);
        let info = loop {
            match link.info(ANSWER) {
                Err(SocketError::Starting { .. }) if link.clock.now_ns() < end_ns => link.clock.sleep(CHECK),
                info => break info?,
            }
        };
        let sectors = u32::try_from(info.words[2]).ok().filter(|&sectors| sectors > 0);
        link.newest = Mutex::new(counters_of(&info));
        link.sectors = sectors.ok_or_else(|| link.protocol("it has no sectors"))?;
        let bound = Some(info.words[16]).filter(|&bound| bound > 0);
        link.dram = DeviceDram { taken: info.words[15], set_aside: info.words[3], bound };
        (link.description, link.features) = (info.text, Features(info.words[14]));
        Ok(link)
    }
    /// Wants the device for this program alone: its queues exclude the queues of all other
    /// programs.
    #[must_use]
    pub fn alone(self) -> SocketLink {
        // Any number that no other program comes to.
        SocketLink { program: RandomState::new().build_hasher().finish() | 1, ..self }
    }
    /// Wants the device's store for this program alone, which names its states itself
    /// ([`fulgurite_flash::Versions`]). The session begins with the first queue pair, and names
    /// what is there then. When the last one has gone, also by a kill, the store goes back to the
    /// newest named state. Flushes are refused.
    ///
    /// # Errors
    /// [`SocketError::NoStates`] when the device has no store, or none that can go back by itself.
    pub fn names_states(self) -> Result<SocketLink, SocketError> {
        self.keeps_states()?;
        Ok(SocketLink { names_states: true, ..self.alone() })
    }
    /// Whether the device has a store that a program may have for itself.
    ///
    /// # Errors
    /// [`SocketError::NoStates`] when it has not.
    pub fn keeps_states(&self) -> Result<(), SocketError> {
        let needed = Features(Features::TOKENS.0 | Features::PAGES.0 | Features::SESSIONS.0);
        if self.features.has(needed) { Ok(()) } else { Err(SocketError::NoStates { path: self.path.clone() }) }
    }
    /// Only observes: nothing but [`crate::Opcode::only_observes`] is asked for. Its queue pairs
    /// may be open next to any others, also next to a program that has the device alone, and they
    /// change nothing.
    #[must_use]
    pub fn only_observes(self) -> SocketLink {
        SocketLink { only_observes: true, ..self }
    }
    /// Reads the boot region of the device at a path, also while the device starts
    /// ([`Region::read_boot`], [`Region::status`]). No driver is needed.
    ///
    /// # Errors
    /// As [`SocketLink::connect`], and [`SocketError::Refused`] when it has none.
    pub fn boot(path: &Path) -> Result<Region, SocketError> {
        let (link, mut message) = (SocketLink::of(path), Message::default());
        message.words[0] = BOOT;
        let (_, region) = link.ask(link.socket(ANSWER)?.as_fd(), &message, None, ANSWER)?;
        link.region(region)
    }
    fn of(path: &Path) -> SocketLink {
        SocketLink {
            path: path.to_owned(),
            sectors: 0,
            description: String::new(),
            dram: DeviceDram::default(),
            features: Features::default(),
            share_frames: false,
            program: 0,
            names_states: false,
            only_observes: false,
            newest: Mutex::default(),
            lives: Mutex::default(),
            clock: Clock::get(),
        }
    }
    /// The region that came with an answer.
    fn region(&self, region: Option<OwnedFd>) -> Result<Region, SocketError> {
        let region = region.ok_or_else(|| self.protocol("no memory came with its answer"))?;
        let arena = Arena::shared_sealed(File::from(region)).map_err(|_| self.protocol("its memory is not sealed"))?;
        let refused =
            |error: crate::RegionError| SocketError::Refused { path: self.path.clone(), text: error.to_string() };
        Region::attach(Arc::new(arena)).map_err(refused)
    }
    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// DRAM of the device's own process when it was found, which is no part of this program's
    /// budget.
    #[must_use]
    pub fn device_dram(&self) -> DeviceDram {
        self.dram
    }
    fn protocol(&self, what: &'static str) -> SocketError {
        SocketError::Protocol { path: self.path.clone(), what }
    }
    /// A connection on which nothing takes longer than that.
    fn socket(&self, patience: Duration) -> Result<OwnedFd, SocketError> {
        let error = |what| {
            move |source: rustix::io::Errno| SocketError::Socket {
                what,
                path: self.path.clone(),
                source: source.into(),
            }
        };
        if let Some(kind) = socket_path::not_a_socket(&self.path) {
            return Err(SocketError::NotASocket { path: self.path.clone(), kind });
        }
        let open = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = above_standard(open).map_err(error("make a socket for"))?;
        // Where nobody accepts, to connect takes as long as to send.
        for way in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
            sockopt::set_socket_timeout(&socket, way, Some(patience)).map_err(error("set up"))?;
        }
        let address = SocketAddrUnix::new(&self.path).map_err(error("connect to"))?;
        rustix::net::connect(&socket, &address).map_err(|source| match source {
            rustix::io::Errno::AGAIN => SocketError::TimedOut { path: self.path.clone(), after: patience },
            source => error("connect to")(source),
        })?;
        let found = foreign(socket.as_fd()).map_err(|source| SocketError::Socket {
            what: "ask who listens at",
            path: self.path.clone(),
            source,
        })?;
        if let Some(found) = found {
            let expected = rustix::process::geteuid().as_raw();
            return Err(SocketError::Foreign { path: self.path.clone(), found, expected });
        }
        Ok(socket)
    }
    fn ask(
        &self,
        socket: BorrowedFd<'_>,
        message: &Message,
        descriptor: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> Result<(Message, Option<OwnedFd>), SocketError> {
        let error = |what| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::WouldBlock => SocketError::TimedOut { path: self.path.clone(), after: patience },
                _ => SocketError::Socket { what, path: self.path.clone(), source },
            }
        };
        match send(socket, message, descriptor) {
            // A device that turns a connection away says why, and may be gone before it is asked.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            sent => sent.map_err(error("speak to the device at"))?,
        }
        let end_ns = self.clock.after(ANSWER_AT_IT);
        let (answer, descriptor) = loop {
            let answer = match receive(socket) {
                // It hung up with the question unread. This is reported before what it had said.
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => receive(socket),
                answer => answer,
            };
            let hung_up = || io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up");
            let (bytes, descriptor) =
                answer.and_then(|answer| answer.ok_or_else(hung_up)).map_err(error("hear from the device at"))?;
            let answer = Message::of(&bytes).ok_or_else(|| self.protocol("another message"))?;
            if answer.words[..2] != [OPEN, AT_IT] || message.words[0] != OPEN {
                break (answer, descriptor);
            }
            if self.clock.now_ns() >= end_ns {
                return Err(SocketError::TimedOut { path: self.path.clone(), after: ANSWER_AT_IT });
            }
        };
        // A device that turns a connection away has not heard its question.
        let unheard = answer.words[0] == 0 && answer.words[1] == REFUSED;
        if answer.words[0] != message.words[0] && !unheard {
            return Err(self.protocol("an answer to another question"));
        }
        if answer.words[1] == STARTING {
            return Err(SocketError::Starting { path: self.path.clone() });
        }
        if answer.words[1] == OCCUPIED {
            return Err(SocketError::Occupied { path: self.path.clone() });
        }
        if answer.words[1] == SHARED {
            return Err(SocketError::Shared { path: self.path.clone() });
        }
        if answer.words[1] != 0 {
            return Err(SocketError::Refused { path: self.path.clone(), text: answer.text });
        }
        Ok((answer, descriptor))
    }
    fn info(&self, patience: Duration) -> Result<Message, SocketError> {
        let mut message = Message::default();
        message.words[0] = INFO;
        Ok(self.ask(self.socket(patience)?.as_fd(), &message, None, patience)?.0)
    }
    fn life_of(&self, instance: u64) -> Arc<Life> {
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        let life = Arc::new(Life::default());
        if lives.past.contains(&instance) {
            life.end();
            return life;
        }
        // A device that answers as another one has died meanwhile, also for queues that have not
        // heard of it: it acknowledges nothing more.
        let Lives { by_instance, past } = &mut *lives;
        by_instance.retain(|&of, its| {
            if of != instance {
                its.upgrade().inspect(|life| life.end());
                past.push_back(of);
            }
            of == instance
        });
        past.drain(..past.len().saturating_sub(PAST_MAX));
        // One that has ended was of an earlier run of the device's thread.
        if let Some(life) = by_instance.get(&instance).and_then(Weak::upgrade).filter(|life| !life.has_ended()) {
            return life;
        }
        by_instance.insert(instance, Arc::downgrade(&life));
        life
    }
    fn open_pair(&self, want: &Want<'_>) -> Result<Linked, SocketError> {
        let socket = self.socket(ANSWER)?;
        let frames = want.frames.filter(|_| self.share_frames).and_then(|frames| frames.file());
        let mut message = Message::default();
        message.words[0] = OPEN;
        message.words[2] = want.depth as u64;
        message.words[3] = want.buffer_sectors.into();
        message.words[4] = frames.is_some().into();
        (message.words[5], message.words[6]) = (self.program, want.identity.host);
        (message.words[7], message.words[8]) = (want.identity.restores.into(), self.names_states.into());
        (message.words[9], message.words[10]) = (self.only_observes.into(), want.identity.since);
        let (answer, region) = self.ask(socket.as_fd(), &message, frames, ANSWER)?;
        if self.names_states && answer.words[8] == 0 {
            // Another device than the one that was asked what it can do.
            return Err(SocketError::NoStates { path: self.path.clone() });
        }
        let region = Arc::new(self.region(region)?);
        let life = self.life_of(region.capability().instance);
        let shares_frames = frames.is_some() && answer.words[4] != 0;
        let doorbell = socket.try_clone().map_err(|source| SocketError::Socket {
            what: "copy the connection to",
            path: self.path.clone(),
            source,
        })?;
        let doorbell: Arc<dyn Wake> = Arc::new(SocketBell(doorbell));
        let hold = Box::new(SocketHold { socket, life: life.clone(), closed: false });
        let (newest_token, has_temporary) = (answer.words[8], answer.words[9] != 0);
        Ok(Linked {
            region,
            pair: 0,
            doorbell,
            life,
            shares_frames,
            newest_token,
            has_temporary,
            device_bytes: 0,
            hold,
        })
    }
}

impl Link for SocketLink {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        let (gone_ns, started_ns) = (self.clock.after(LEAVING), self.clock.after(ANSWER));
        let opened = loop {
            match self.open_pair(want) {
                Err(SocketError::Occupied { .. }) if self.clock.now_ns() < gone_ns => self.clock.sleep(CHECK),
                // Its store goes back to the last session's state.
                Err(SocketError::Starting { .. }) if self.clock.now_ns() < started_ns => self.clock.sleep(CHECK),
                opened => break opened,
            }
        };
        opened.map_err(|error| {
            let kind = match &error {
                SocketError::Shared { .. } => io::ErrorKind::ResourceBusy,
                error if error.is_away() => io::ErrorKind::NotConnected,
                _ => io::ErrorKind::Other,
            };
            OpenError::System { what: "attach to the device", source: io::Error::new(kind, error) }
        })
    }
    fn describe(&self) -> String {
        format!("{} at {}", self.description, self.path.display())
    }
    fn sectors(&self) -> u32 {
        self.sectors
    }
    fn features(&self) -> Features {
        self.features
    }
    fn is_alone(&self) -> bool {
        self.program != 0
    }
    fn names_states(&self) -> bool {
        self.names_states
    }
    fn takes_frames(&self) -> bool {
        self.share_frames && self.features.has(Features::MOVES_BY_CPU)
    }
    fn counters(&self) -> DeviceCounters {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is away, or has no time: as it was.
        if let Ok(info) = self.info(ANSWER_SOON) {
            *newest = counters_of(&info);
        }
        *newest
    }
}

fn counters_of(info: &Message) -> DeviceCounters {
    let mut counters = DeviceCounters::default();
    let [_, _, _, _, reads, writes, flushes, errors, cpu, late, total, max, write_requests, read_requests, ..] =
        info.words;
    (counters.reads, counters.writes, counters.flushes, counters.errors) = (reads, writes, flushes, errors);
    (counters.device_cpu_ns, counters.late) = (cpu, late);
    (counters.lateness_ns_total, counters.lateness_ns_max) = (total, max);
    (counters.write_requests, counters.read_requests) = (write_requests, read_requests);
    counters
}

/// A connection with its queue pair.
struct SocketHold {
    socket: OwnedFd,
    life: Arc<Life>,
    closed: bool,
}

impl SocketHold {
    /// Takes the bytes that have come. Returns whether the connection has ended.
    fn drain(&self) -> bool {
        // No more than may come meanwhile: a device that never ceases to send holds up nobody.
        for _ in 0..DRAIN_MAX {
            match rustix::net::recv(&self.socket, &mut [0; 16][..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
        false
    }
}

impl Hold for SocketHold {
    fn close(&mut self) {
        self.closed = true;
        // The device closes its end when it has let go.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
    }
    fn has_let_go(&self) -> bool {
        // The close of this very connection says so, by the device or, after its end, by the
        // kernel. That holds without shared frames, too: a pending write must not follow its
        // replay.
        self.drain()
    }
    fn check(&self) {
        if !self.closed && self.drain() {
            self.life.end();
        }
    }
    fn sleep(&self, wake: &Notifier, timeout: Duration) {
        wake.wait_with(self.socket.as_fd(), Some(timeout));
        self.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that takes its time, on a connection on which nothing may take longer than a
    /// second.
    #[test]
    fn a_device_that_says_it_is_at_it_is_waited_for_and_no_other() {
        const PATIENCE: Duration = Duration::from_secs(1);
        for (says, question) in [(true, OPEN), (false, OPEN), (true, INFO)] {
            let (own, other) =
                rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                    .unwrap();
            sockopt::set_socket_timeout(&own, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
            let device = std::thread::spawn(move || {
                let mut message = Message::of(&receive(other.as_fd()).unwrap().unwrap().0).unwrap();
                message.words[1] = AT_IT;
                for _ in 0..15 {
                    std::thread::sleep(PATIENCE / 10);
                    // The one that waits no longer may have gone.
                    let _ = if says { send(other.as_fd(), &message, None) } else { Ok(()) };
                }
                (message.words[1], message.words[8]) = (0, 77);
                let _ = send(other.as_fd(), &message, None);
            });
            let (link, mut message) = (SocketLink::of(Path::new("/device")), Message::default());
            message.words[0] = question;
            let reported = link.ask(own.as_fd(), &message, None, PATIENCE).map(|(answer, _)| answer.words[8]);
            match (says, question) {
                (true, OPEN) => assert_eq!(reported.unwrap(), 77),
                (true, _) => assert!(matches!(reported, Err(SocketError::Refused { .. })), "{reported:?}"),
                _ => assert!(matches!(reported, Err(SocketError::TimedOut { after: PATIENCE, .. })), "{reported:?}"),
            }
            device.join().unwrap();
        }
    }
}
