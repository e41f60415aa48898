//! The server: it listens, lets clients in, and runs each on threads of its own.
//!
//! Invariants: at most `clients_max` clients at a time, each with a buffer of `buffer_bytes` and no
//! more. A client that ends, however, leaves the others alone. Dropping the server ends all
//! connections, waits (no longer than `stall`) until what they had on the flash is done, and
//! removes the socket.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fulgurite_flash::Flash;
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::{Arena, Backed, Notifier};
use rustix::event::{PollFd, PollFlags, poll};

use crate::address::Listener;
use crate::counters::{Counters, NbdCounters};
use crate::engine::Engine;
use crate::exchange::Exchange;
use crate::negotiate::{Agreed, Export, negotiate};
use crate::reader::{May, Reader};
use crate::stream::{Incoming, Stream};
use crate::write_locks::WriteLocks;
use crate::{NbdAddress, NbdError};

/// How a server serves.
#[derive(Clone, Debug)]
pub struct NbdConfig {
    /// Where it listens.
    pub address: NbdAddress,
    /// What the export is called, at most 256 bytes. It is the default export too, whose name is
    /// empty.
    pub export: String,
    /// Whether clients may only read.
    pub read_only: bool,
    /// Requests that a client may have in flight on the flash, and commands that it may have sent
    /// and not been answered.
    pub depth: usize,
    /// Clients at a time. More are turned away.
    pub clients_max: usize,
    /// The most DRAM that a client's payloads take; as much again is taken for replies on their
    /// way. Untouched, it costs nothing.
    pub buffer_bytes: usize,
    /// The longest read or write that is taken: a power of two from 64 KiB on, at most half the
    /// buffer.
    pub request_bytes_max: u32,
    /// How long a client may take over one command once it has begun to send it, or over taking
    /// replies, before it is given up.
    pub stall: Duration,
    /// How long a client may take over the handshake.
    pub handshake: Duration,
}

impl NbdConfig {
    /// What suits most, at this address: 128 requests in flight, 16 clients with 8 MiB each,
    /// requests to 4 MiB, 30 s.
    #[must_use]
    pub fn new(address: NbdAddress) -> NbdConfig {
        NbdConfig {
            address,
            export: "fulgurite".to_owned(),
            read_only: false,
            depth: 128,
            clients_max: 16,
            buffer_bytes: 8 << 20,
            request_bytes_max: 4 << 20,
            stall: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
        }
    }
    fn check(&self) -> Result<(), NbdError> {
        let limit = |what, found, allowed| Err(NbdError::Limit { what, found, allowed });
        if self.depth == 0 || self.depth > fulgurite_flash::DEPTH_MAX {
            return limit("a depth", self.depth as u64, "1 to 16384");
        }
        if self.clients_max == 0 || self.clients_max > 1024 {
            return limit("a number of clients", self.clients_max as u64, "1 to 1024");
        }
        let most = self.request_bytes_max;
        if !most.is_power_of_two() || !(64 << 10..=32 << 20).contains(&most) {
            return limit("a longest request", most.into(), "a power of two from 64 KiB to 32 MiB");
        }
        if self.buffer_bytes < 2 * most as usize || self.buffer_bytes > 1 << 30 {
            return limit("a buffer", self.buffer_bytes as u64, "twice the longest request, to 1 GiB");
        }
        if self.export.len() > 256 {
            return limit("an export's name", self.export.len() as u64, "at most 256 bytes");
        }
        if self.stall.is_zero() || self.handshake.is_zero() {
            return limit("a time-out", 0, "more than nothing");
        }
        Ok(())
    }
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct NbdServer {
    shared: Arc<Shared>,
    address: NbdAddress,
    acceptor: Option<JoinHandle<()>>,
}

/// What all threads share.
struct Shared {
    flash: Arc<dyn Flash>,
    config: NbdConfig,
    export: Export,
    locks: Arc<WriteLocks>,
    counters: Arc<Counters>,
    stopping: AtomicBool,
    stop: Notifier,
    clients: Mutex<Clients>,
    left: Condvar,
}

#[derive(Default)]
struct Clients {
    next: u64,
    /// To hang up on them.
    connected: HashMap<u64, Stream>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("flash", &self.flash.describe()).field("config", &self.config).finish()
    }
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NbdServer {
    /// Starts to serve `flash`.
    ///
    /// # Errors
    /// [`NbdError`]. Then nothing was created.
    pub fn start(flash: Arc<dyn Flash>, config: NbdConfig) -> Result<NbdServer, NbdError> {
        let system = |what| move |source| NbdError::System { what, source };
        config.check()?;
        let stop = Notifier::new().map_err(system("make an eventfd"))?;
        let listener = config.address.listen()?;
        let address = listener.address().map_err(system("ask where the socket is"))?;
        let export = Export {
            name: config.export.clone(),
            description: flash.describe(),
            bytes: u64::from(flash.subpages()) * SUBPAGE_BYTES as u64,
            read_only: config.read_only,
            request_bytes_max: config.request_bytes_max,
            trims: flash.traits().trims,
        };
        let shared = Arc::new(Shared {
            flash,
            config,
            export,
            locks: Arc::default(),
            counters: Arc::default(),
            stopping: AtomicBool::new(false),
            stop,
            clients: Mutex::default(),
            left: Condvar::new(),
        });
        let acceptor = {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("nbd-accept".into());
            thread.spawn(move || accept_all(&shared, &listener)).map_err(system("start a thread"))?
        };
        Ok(NbdServer { shared, address, acceptor: Some(acceptor) })
    }
    /// Where it listens. For port 0, with the port that it got.
    #[must_use]
    pub fn address(&self) -> &NbdAddress {
        &self.address
    }
    /// What to give to clients (`nbdinfo`, `qemu-img`, fio's `uri`): an address in the form of the
    /// NBD URI specification.
    #[must_use]
    pub fn uri(&self) -> String {
        let name = escaped(self.shared.export.name.as_bytes(), b"");
        match &self.address {
            NbdAddress::Tcp(address) => format!("nbd://{address}/{name}"),
            NbdAddress::Unix(path) => {
                format!("nbd+unix:///{name}?socket={}", escaped(path.as_os_str().as_encoded_bytes(), b"/"))
            }
        }
    }
    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> NbdCounters {
        self.shared.counters.read()
    }
    /// Clients that are connected now.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.shared.clients().connected.len()
    }
}

/// A URI's characters that stand for themselves, or their codes (RFC 3986, 2.3).
fn escaped(bytes: &[u8], also: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-._~".contains(b) || also.contains(b);
    bytes.iter().map(|b| if plain(b) { char::from(*b).to_string() } else { format!("%{b:02X}") }).collect()
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.stop.notify();
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let mut clients = self.shared.clients();
        for stream in clients.connected.values() {
            stream.shutdown();
        }
        // A medium that hangs holds its clients' threads. Waiting for it for ever would help
        // nobody.
        let deadline = Instant::now() + self.shared.config.stall;
        while !clients.connected.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            clients = self.shared.left.wait_timeout(clients, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn accept_all(shared: &Arc<Shared>, listener: &Listener) {
    while !shared.stopping.load(Ordering::SeqCst) {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.stop, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        match listener.accept() {
            Ok(stream) => admit(shared, stream),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                shared.counters.refused.add(1);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // No descriptors, say: the client stays in the kernel's queue, and asking at once again
            // would only burn a core.
            Err(_) => {
                shared.stop.wait(Some(Duration::from_millis(50)));
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, stream: Stream) {
    let id = {
        let mut clients = shared.clients();
        let clone = stream.try_clone().ok().filter(|_| clients.connected.len() < shared.config.clients_max);
        let Some(clone) = clone else {
            shared.counters.refused.add(1);
            return;
        };
        clients.next += 1;
        let id = clients.next;
        clients.connected.insert(id, clone);
        id
    };
    shared.counters.clients.add(1);
    let client = Client { shared: shared.clone(), id };
    // Without a thread, the closure and with it the client is dropped.
    let _ = std::thread::Builder::new().name(format!("nbd-{id}")).spawn(move || client.serve(stream));
}

/// One client that was let in. Dropping it strikes it off, also when its thread panics.
struct Client {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Client {
    fn drop(&mut self) {
        let stream = self.shared.clients().connected.remove(&self.id);
        if let Some(stream) = stream {
            stream.shutdown();
        }
        self.shared.left.notify_all();
    }
}

/// What a client needs on the flash, ready before the export is granted to it.
struct Ready {
    queue: Box<dyn fulgurite_flash::Queue>,
    frames: Arc<Arena>,
    wake: Arc<Notifier>,
}

impl Client {
    fn serve(&self, stream: Stream) {
        let Shared { config, export, counters, .. } = &*self.shared;
        let Ok(out) = stream.try_clone() else { return };
        let mut incoming = Incoming::new(stream);
        let mut ready = None;
        let mut prepare = || match self.prepare() {
            Ok(made) => {
                ready = Some(made);
                Ok(())
            }
            Err(why) => Err(why),
        };
        let agreed = match negotiate(&mut incoming, export, Instant::now() + config.handshake, &mut prepare) {
            Ok(Some(agreed)) => agreed,
            Ok(None) => return,
            Err(error) => {
                let counter = match error.kind() {
                    io::ErrorKind::InvalidData => &counters.broken,
                    io::ErrorKind::TimedOut => &counters.stalled,
                    _ => return,
                };
                counter.add(1);
                return;
            }
        };
        if let Some(ready) = ready {
            self.transmit(incoming, out, ready, agreed);
        }
    }

    fn prepare(&self) -> Result<Ready, String> {
        let config = &self.shared.config;
        // One for the zeros, and two for the ends of a request that is as long as can be and is not
        // aligned.
        let bytes = config.buffer_bytes + 4 * SUBPAGE_BYTES;
        let frames = Arc::new(Arena::anonymous(bytes, Backed::BasePages).map_err(|e| e.to_string())?);
        let wake = Arc::new(Notifier::new().map_err(|e| e.to_string())?);
        let queue = self.shared.flash.open_queue(frames.clone(), config.depth, wake.clone());
        Ok(Ready { queue: queue.map_err(|e| e.to_string())?, frames, wake })
    }

    /// Serves commands: this thread is the engine, another reads.
    fn transmit(&self, incoming: Incoming, stream: Stream, ready: Ready, agreed: Agreed) {
        let Shared { config, export, counters, locks, .. } = &*self.shared;
        let Ready { queue, frames, wake } = ready;
        let count = (frames.len() / SUBPAGE_BYTES) as u32;
        let exchange = Arc::new(Exchange::new(1..count, config.depth, wake.clone()));
        let reader = Reader {
            incoming,
            exchange: exchange.clone(),
            frames: frames.clone(),
            counters: counters.clone(),
            may: May {
                bytes: export.bytes,
                request_bytes_max: config.request_bytes_max,
                read_only: config.read_only,
                trims: export.trims,
                structured: agreed.structured,
            },
            stall: config.stall,
        };
        let engine = Engine {
            flash: self.shared.flash.clone(),
            queue,
            frames,
            wake,
            exchange,
            locks: locks.clone(),
            counters: counters.clone(),
            stream,
            structured: agreed.structured,
            stall: config.stall,
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(format!("nbd-{}-read", self.id));
            if thread.spawn_scoped(scope, || reader.run()).is_ok() {
                engine.run();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        let good = NbdConfig::new("127.0.0.1:0".parse().unwrap());
        assert!(good.check().is_ok());
        let wrong: [fn(&mut NbdConfig); 7] = [
            |c| c.depth = 0,
            |c| c.clients_max = 0,
            |c| c.request_bytes_max = 100_000,
            |c| c.buffer_bytes = 4 << 20,
            |c| c.export = "x".repeat(300),
            |c| c.stall = Duration::ZERO,
            |c| c.request_bytes_max = 64 << 20,
        ];
        for change in wrong {
            let mut config = good.clone();
            change(&mut config);
            assert!(matches!(config.check(), Err(NbdError::Limit { .. })), "{config:?}");
        }
    }

    #[test]
    fn a_uri_hides_what_would_end_it() {
        assert_eq!(escaped(b"/tmp/a b&c", b"/"), "/tmp/a%20b%26c");
    }
}
