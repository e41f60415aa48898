//! The firmware: takes commands from all queue pairs, checks them, and drives any flash with them.
//!
//! ```text
//!   submission queues ──> HIL: check, split into sectors ──> flash::Queue ──> medium: the store
//!   completion queues <── HIL: put together, say how     <──                    over NAND, a file,
//!                                                                              plain memory
//! ```
//!
//! This is the paper's host interface layer (4.2). Its flash translation layer is the store, which
//! comes from outside as the medium. One [`Firmware::turn`] polls every queue pair once and never
//! waits, so that a thread can drive it, or a test step by step.
//!
//! Invariants: each command that was taken is completed exactly once. Nothing outside a queue
//! pair's data buffer is read or written, whatever its entries say. A queue pair that breaks the
//! protocol hurts only itself. No input makes it panic.

mod counters;
pub(crate) mod memory;
mod port;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite_flash::{Flash, Layer, OpenError};
use fulgurite_store::Pool;
use fulgurite_sys::{Arena, Notifier};

use memory::Memory;

use crate::boot::BootImage;
use crate::entry::{DEPTH_MAX, Status};
use crate::planted::PlantedPanic;
use crate::region::{Capability, Features, Region};
use crate::session::Session;

pub use counters::FirmwareCounters;
pub(crate) use port::checksum_of;
pub use port::{Closing, Port, Wake};

/// How a firmware behaves.
#[derive(Clone, Debug)]
pub struct FirmwareConfig {
    /// The largest number of sectors of one command. 1024 is 4 MiB, eight times the paper's largest
    /// chunk.
    pub command_sectors: u32,
    /// Reads and writes complete once they are checked, and no data move: only the protocol is left
    /// (6.2 of the paper). For measurements: a read returns what was in the buffer.
    pub bypass: bool,
    /// Requests of one queue pair that the medium has at a time, one for each sector of a command.
    pub requests_max: usize,
    /// What programs find in the boot region.
    pub boot: BootImage,
    /// A completed write survives the end of this process: so it is with a file, not with memory or
    /// a store.
    pub keeps_writes: bool,
    /// Nothing survives the end of this process, flushed or not: the medium is memory.
    pub forgets: bool,
    /// Sectors of a volatile write buffer ([`crate::CachedFlash`]). 0: the medium completes writes.
    pub write_cache: u32,
    /// No device behind the medium writes to memory by itself, as a disk would.
    pub moves_by_cpu: bool,
    /// Refuses requests that the permissions of pages forbid. A runtime of the same process asks
    /// before each access, and can still write back what it wrote while it might.
    pub heeds_permissions: bool,
    /// A store makes unflushed writes durable before they take all of its space. Not where a
    /// runtime of the same process names its states.
    pub flushes_itself: bool,
    /// For tests of the tests.
    #[doc(hidden)]
    pub planted: Option<PlantedPanic>,
}

impl Default for FirmwareConfig {
    fn default() -> Self {
        FirmwareConfig {
            command_sectors: 1024,
            bypass: false,
            requests_max: 4096,
            boot: BootImage::default(),
            keeps_writes: false,
            forgets: false,
            write_cache: 0,
            moves_by_cpu: false,
            heeds_permissions: true,
            flushes_itself: true,
            planted: None,
        }
    }
}

/// A medium and how to drive it: what all queue pairs share.
pub struct Backend {
    pub(crate) flash: Arc<dyn Flash>,
    pub(crate) config: FirmwareConfig,
    pub(crate) counters: FirmwareCounters,
    pub(crate) sectors: u32,
    pub(crate) restricts: bool,
    /// The store, where the medium is one: for memory operations.
    pool: Option<Arc<Pool>>,
    /// In which one program names its states, while there is such a session.
    session: Option<Arc<Session>>,
    instance: Arc<AtomicU64>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend")
            .field("flash", &self.flash.describe())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Backend {
    /// Over a medium. `instance` names this opening of it: another one tells a host that unflushed
    /// writes may be gone.
    #[must_use]
    pub fn new(flash: Arc<dyn Flash>, config: FirmwareConfig, instance: u64) -> Backend {
        Backend {
            sectors: flash.subpages(),
            restricts: config.heeds_permissions && flash.backing().is_some(),
            flash,
            pool: None,
            session: None,
            config,
            counters: FirmwareCounters::default(),
            instance: Arc::new(AtomicU64::new(instance)),
        }
    }
    /// As `new`, with the store that the medium is, so that there are memory operations.
    #[must_use]
    pub fn with_pool(self, pool: Arc<Pool>) -> Backend {
        pool.publish_room();
        Backend { pool: Some(pool), ..self }
    }
    /// As `with_pool`, with sessions of programs that name the store's states.
    pub(crate) fn with_session(self, session: Arc<Session>, instance: Arc<AtomicU64>) -> Backend {
        Backend { session: Some(session.clone()), instance, ..self.with_pool(session.pool().clone()) }
    }
    /// The store is about to get a name for its state.
    pub(crate) fn tick(&self) {
        self.pool.as_deref().inspect(|pool| pool.tick());
    }
    fn in_session(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_open())
    }
    /// The medium.
    #[must_use]
    pub fn flash(&self) -> &Arc<dyn Flash> {
        &self.flash
    }
    /// What has been done so far.
    #[must_use]
    pub fn counters(&self) -> &FirmwareCounters {
        &self.counters
    }
    /// Whether no device behind the medium writes to memory by itself.
    #[must_use]
    pub fn moves_by_cpu(&self) -> bool {
        self.config.moves_by_cpu
    }
    /// What it can do.
    #[must_use]
    pub fn features(&self) -> Features {
        Features::default()
            .with(Features::KEEPS_WRITES, self.config.keeps_writes && self.config.write_cache == 0)
            .with(Features::FORGETS, self.config.forgets)
            .with(Features::CACHED_WRITES, self.config.write_cache > 0)
            .with(Features::MOVES_BY_CPU, self.config.moves_by_cpu)
            .with(Features(Features::PAGES.0 | Features::TOKENS.0 | Features::ROOM.0), self.pool.is_some())
            .with(Features::SESSIONS, self.session.is_some())
    }
    /// What the registers of a region say, by its queue pairs, their depth and the sectors of a
    /// buffer.
    #[must_use]
    pub fn capability(&self, pairs: u32, depth: usize, buffer_sectors: u32) -> Capability {
        Capability {
            sectors: self.sectors,
            pairs,
            depth: u32::try_from(depth).unwrap_or(u32::MAX),
            buffer_sectors,
            boot_sectors: self.config.boot.sectors(),
            features: self.features(),
            instance: self.instance.load(Ordering::SeqCst),
            command_sectors: self.config.command_sectors.max(1),
        }
    }
    /// Opens the device's side of a queue pair. Its data buffer is the region's, or all of
    /// `frames`. The medium notifies `wake` of news, and `host` wakes a host that sleeps.
    ///
    /// # Errors
    /// When the medium opens no queue.
    pub fn open_port(
        &self,
        region: &Arc<Region>,
        pair: u32,
        frames: Option<Arc<Arena>>,
        wake: &Arc<Notifier>,
        host: Arc<dyn Wake>,
    ) -> Result<Port, OpenError> {
        let capability = *region.capability();
        let (arena, first, count) = match frames {
            Some(frames) => {
                let count = u32::try_from(frames.len() / crate::SECTOR_BYTES).unwrap_or(u32::MAX);
                (frames, 0, count)
            }
            None => (region.arena().clone(), region.buffer_first(pair), capability.buffer_sectors),
        };
        // Each command has sectors of the data buffer for itself, so there are no more requests
        // than sectors. Where frames are shared a command is mostly one sector.
        let sectors = if capability.buffer_sectors == 0 { capability.depth } else { count };
        let requests = self.config.requests_max.min(sectors as usize);
        let requests = requests.max(capability.depth as usize).min(DEPTH_MAX);
        let queue = self.flash.open_queue(arena.clone(), requests, wake.clone())?;
        Ok(Port::new(region, pair, port::Buffer { arena, first, count }, queue, host, self.pool.clone()))
    }
}

/// All queue pairs and the medium behind them: what the device's thread turns.
#[derive(Debug)]
pub struct Firmware {
    backend: Arc<Backend>,
    /// Places of queue pairs; a place is used again when its pair has gone.
    ports: Vec<Option<Port>>,
    /// Behind the ports, so that it is dropped after them: it waits for its jobs.
    memory: Option<Memory>,
    /// The store, where it is flushed without a request, and such a flush under way.
    flushed: Option<(Arc<Pool>, Option<u64>)>,
    turns: u32,
}

/// One turn in this many checks whether the store must be flushed. Writes that wait for a flush
/// wait for milliseconds in any case.
const CHECK: u32 = 256;

impl Firmware {
    /// Without queue pairs. `wake` is notified when a memory operation has ended.
    ///
    /// # Errors
    /// When the kernel refuses a thread for memory operations.
    pub fn new(backend: Arc<Backend>, wake: &Arc<Notifier>) -> Result<Firmware, OpenError> {
        let start = |pool: &Arc<Pool>| {
            Memory::start(pool.clone(), backend.session.clone(), wake.clone(), backend.config.planted)
        };
        let memory = backend.pool.as_ref().map(start).transpose()?;
        let flushed = backend.pool.clone().filter(|_| backend.config.flushes_itself).map(|pool| {
            match &backend.session {
                Some(session) => session.firmware_starts(),
                // No dirty data are held in DRAM, so a sync needs no room for them.
                None => pool.set_syncs_for_writers(Some(0)),
            }
            (pool, None)
        });
        Ok(Firmware { backend, ports: Vec::new(), memory, flushed, turns: 0 })
    }
    /// What is shared.
    #[must_use]
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }
    /// From now on serves this one, too. Returns its place.
    pub fn add(&mut self, port: Port) -> usize {
        match self.ports.iter().position(Option::is_none) {
            Some(place) => {
                self.ports[place] = Some(port);
                place
            }
            None => {
                self.ports.push(Some(port));
                self.ports.len() - 1
            }
        }
    }
    /// Lets go of these queue pairs, after what they have under way at the medium has ended.
    pub fn remove(&mut self, mut gone: impl FnMut(&Port) -> bool) {
        for port in &mut self.ports {
            if port.as_ref().is_some_and(&mut gone) {
                // Dropping its queue waits for the medium.
                *port = None;
            }
        }
    }
    /// Its queue pairs.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().flatten()
    }
    /// Polls every queue pair once: takes what was submitted, hands it to the medium, and completes
    /// what has ended. Never waits. Returns how many entries were taken or written.
    #[inline]
    pub fn turn(&mut self) -> usize {
        let mut done = 0;
        for port in self.ports.iter_mut().flatten() {
            done += port.turn(&self.backend, self.memory.as_ref());
        }
        for place in 0..self.ports.len() {
            let ended = self.ports[place].as_mut().map(Port::take_ends).unwrap_or_default();
            if !ended.is_empty() {
                done += self.end_jobs(place, &ended);
            }
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(CHECK) {
            self.flush_for_space();
        }
        done
    }
    /// Completes memory operations of one queue pair. All regions hear of the new room before: a
    /// named state must not be seen without the room that it made.
    #[cold]
    fn end_jobs(&mut self, place: usize, ended: &[(u16, Status, u64)]) -> usize {
        self.ports.iter_mut().flatten().for_each(Port::say_room);
        if let Some(port) = &mut self.ports[place] {
            port.end_jobs(ended, &self.backend);
        }
        ended.len()
    }
    /// Begins a flush where writes wait for the space that it gives back; one at a time.
    fn flush_for_space(&mut self) {
        // This thread takes the commands as well: nothing of a session is written between here and
        // the flush.
        if self.backend.in_session() {
            return;
        }
        let Some((pool, under_way)) = &mut self.flushed else { return };
        if under_way.is_some_and(|flush| matches!(pool.is_flushed(flush), Ok(false))) {
            return;
        }
        // The writers learn of one that cannot begin.
        *under_way = if pool.wants_sync() { pool.begin_flush().ok() } else { None };
    }
    /// Whether memory operations have ended by a panic of their thread. The state of the store is
    /// unknown then. After one more turn, which answers what they had, this firmware must do no
    /// more.
    #[inline]
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.memory.as_ref().is_some_and(Memory::has_failed)
    }
    /// Whether the medium has requests of any queue pair.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.ports().any(|port| port.in_flight() > 0)
    }
    /// Says whether the device sleeps. After saying so it must not sleep when
    /// [`Firmware::has_news`].
    pub fn set_sleeping(&self, sleeping: bool) {
        for port in self.ports() {
            if sleeping { port.doorbell().goes_to_sleep() } else { port.doorbell().mark_awake() }
        }
    }
    /// Whether anything was submitted that was not taken.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.ports().any(Port::has_news)
    }
    /// Lets media do background work, and sleeps for at most `timeout` while requests are in
    /// flight.
    pub fn wait(&mut self, timeout: std::time::Duration) {
        let busy = self.ports.iter().flatten().filter(|port| port.in_flight() > 0).count();
        for port in self.ports.iter_mut().flatten() {
            if busy == 0 {
                port.wait(std::time::Duration::ZERO);
            } else if port.in_flight() > 0 {
                port.wait(timeout / u32::try_from(busy).unwrap_or(u32::MAX));
            }
        }
    }
}
