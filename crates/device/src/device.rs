//! A device in this process: a thread, pinned to a core, that turns a firmware.
//!
//! The thread spins while commands are in flight or were a moment ago, then sleeps. The doorbell
//! word of each region says so, and is all that a submitter reads.
//!
//! Invariants: when a [`Life`] has ended, nothing behind the device touches any memory that it was
//! given. An attached queue pair is served until it is closed or its life ends. A device that has
//! ended can start again over the same medium: to its hosts it died and came back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use fulgurite_flash::{Flash, Layered, OpenError};
use fulgurite_store::Pool;
use fulgurite_sys::{Arena, Clock, Notifier, affinity, arch, clock, planted};

use crate::cached::CachedFlash;
use crate::dram::{Budget, DeviceDram, Share};
use crate::firmware::{Backend, Closing, Firmware, FirmwareConfig, Port, Wake};
use crate::hosts::{HostIdentity, Hosts, OpenPair, Refusal};
use crate::region::{DeviceStatus, Region};
use crate::session::Session;

/// How often the device publishes its CPU time, which is a system call, and its heartbeat.
const BEAT_NS: u64 = 1_000_000;
/// The longest sleep: the bound for a scribbled doorbell word and for a medium with work of its
/// own.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The first one. Each that ends with nothing to do is followed by one twice as long.
const SLEEP_MIN: Duration = Duration::from_millis(1);
/// How long a device that has no core to itself sleeps at a time while the medium has requests.
const SLEEP_BUSY: Duration = Duration::from_micros(50);

/// How a device's thread behaves.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// The core to run on; none leaves it to the kernel.
    pub core: Option<usize>,
    /// How long it spins after the last command before it sleeps. 1 ms: longer than the pauses of a
    /// worker at a tenth of its load, whose latency would else include waking the device.
    pub spin: Duration,
    /// What the firmware does.
    pub firmware: FirmwareConfig,
    /// The most DRAM in bytes for the medium's tables and buffers and for queue pairs. A pair that
    /// does not fit is refused. What the medium sets aside must fit. `usize::MAX`: no bound.
    pub dram_bytes: usize,
    /// What the device's thread has the time from.
    pub clock: Clock,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        let firmware = FirmwareConfig::default();
        DeviceConfig {
            core: None,
            spin: Duration::from_millis(1),
            firmware,
            dram_bytes: usize::MAX,
            clock: Clock::get(),
        }
    }
}

/// Whether a device is still there.
#[derive(Debug, Default)]
pub struct Life {
    ended: AtomicBool,
}

impl Life {
    /// Whether it has ended: nothing more will complete, and nothing more is touched.
    #[inline]
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
    /// Says that it has.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct State {
    stop: AtomicBool,
    /// A queue pair came or went.
    changed: AtomicBool,
}

/// A queue pair that is new to the thread, and what to wake when the device ends.
struct Arrival(Port, Arc<dyn Wake>);

/// One run of the thread.
struct Run {
    state: CachePadded<State>,
    life: Arc<Life>,
    doorbell: Arc<Notifier>,
    backend: Arc<Backend>,
    arrivals: Mutex<Vec<Arrival>>,
    cpu_ns: AtomicU64,
}

impl Run {
    fn arrivals(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn signal_change(&self) {
        self.state.changed.store(true, Ordering::SeqCst);
        self.doorbell.notify();
    }
}

/// What is behind the firmware.
struct FirmwareMedium {
    flash: Arc<dyn Flash>,
    pool: Option<Arc<Pool>>,
}

impl FirmwareMedium {
    /// DRAM that it may come to.
    fn set_aside(&self) -> usize {
        self.flash.traits().dram_bytes
    }
    /// DRAM that it has now.
    fn taken(&self) -> usize {
        self.pool.as_ref().map_or_else(|| self.flash.traits().dram_bytes, |pool| pool.dram_taken())
    }
}

/// A device in this process. Dropping it ends its thread; queues that outlive it say so.
pub struct Device {
    config: DeviceConfig,
    single_core: bool,
    medium: FirmwareMedium,
    /// Names this opening of the medium. It stays when the thread is started again, which loses no
    /// write, and changes when a session has ended.
    instance: Arc<AtomicU64>,
    /// Where there is a store.
    session: Option<Arc<Session>>,
    hosts: Arc<Hosts>,
    run: Mutex<(Arc<Run>, Option<JoinHandle<()>>)>,
    /// CPU time of runs that have ended.
    past_cpu_ns: AtomicU64,
    dram: Arc<Budget>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("flash", &self.medium.flash.describe())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// An attached queue pair, on the attaching side. Dropping it closes the pair.
pub struct Attachment {
    run: Arc<Run>,
    closing: Arc<Closing>,
    bytes: usize,
    _dram: Share,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attachment").field("life", &self.run.life).finish_non_exhaustive()
    }
}

impl Attachment {
    /// Whether the device is still there.
    #[must_use]
    pub fn life(&self) -> &Arc<Life> {
        &self.run.life
    }
    /// Closes the pair: nothing more is taken from it.
    pub fn close(&self) {
        self.closing.close();
        self.run.signal_change();
    }
    /// After that: whether nothing behind the device touches the memory of the pair any more.
    #[must_use]
    pub fn has_let_go(&self) -> bool {
        self.closing.has_let_go() || self.run.life.has_ended()
    }
    /// DRAM that the device's side of the pair takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// What wakes the device.
    #[must_use]
    pub fn doorbell(&self) -> &Arc<Notifier> {
        &self.run.doorbell
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.close();
    }
}

fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> OpenError {
    move |source| OpenError::System { what, source }
}

impl Device {
    /// Starts a device over a medium.
    ///
    /// # Errors
    /// When the kernel refuses thread, core or descriptor.
    pub fn start(flash: Arc<dyn Flash>, config: DeviceConfig) -> Result<Device, OpenError> {
        Device::over(FirmwareMedium { flash, pool: None }, config)
    }
    /// Starts a device over the journaled store, its translation layer, with memory operations.
    ///
    /// # Errors
    /// As [`Device::start`].
    pub fn start_store(store: Layered<Pool>, config: DeviceConfig) -> Result<Device, OpenError> {
        let pool = Some(store.layer().clone());
        Device::over(FirmwareMedium { flash: Arc::new(store), pool }, config)
    }
    fn over(mut medium: FirmwareMedium, config: DeviceConfig) -> Result<Device, OpenError> {
        let cached = config.firmware.write_cache;
        if cached > 0 {
            medium.flash = Arc::new(CachedFlash::new(medium.flash, cached)?);
        }
        // A number that no two starts share: time, and an address that the kernel chose at random.
        let time = config.clock.wall().as_nanos();
        let instance = (time as u64).rotate_left(20) ^ (Arc::as_ptr(&medium.flash).cast::<()>().addr() as u64);
        let instance = Arc::new(AtomicU64::new(instance));
        let of_pool = |pool: &Arc<Pool>| Session::new(pool.clone(), instance.clone(), config.firmware.flushes_itself);
        let session = medium.pool.as_ref().map(of_pool).map(Arc::new);
        let dram = Budget::new(config.dram_bytes);
        dram.holds(medium.set_aside() + config.firmware.boot.bytes()).map_err(|refused| OpenError::System {
            what: "keep the device to its DRAM",
            source: std::io::Error::other(refused),
        })?;
        let run = Device::begin(&medium, &config, &instance, session.as_ref())?;
        let single_core = Device::shares_core(&config);
        let (run, hosts, past_cpu_ns) = (Mutex::new(run), Hosts::of(session.clone()), AtomicU64::new(0));
        Ok(Device { config, single_core, medium, instance, session, hosts, run, past_cpu_ns, dram })
    }
    fn begin(
        medium: &FirmwareMedium,
        config: &DeviceConfig,
        instance: &Arc<AtomicU64>,
        session: Option<&Arc<Session>>,
    ) -> Result<(Arc<Run>, Option<JoinHandle<()>>), OpenError> {
        let doorbell = Arc::new(Notifier::new().map_err(system("make an eventfd for the device"))?);
        let backend = Backend::new(medium.flash.clone(), config.firmware.clone(), instance.load(Ordering::SeqCst));
        let backend = Arc::new(match session {
            Some(session) => backend.with_session(session.clone(), instance.clone()),
            None => backend,
        });
        let firmware = Firmware::new(backend.clone(), &doorbell)?;
        let run = Arc::new(Run {
            state: CachePadded::default(),
            life: Arc::default(),
            doorbell,
            backend,
            arrivals: Mutex::default(),
            cpu_ns: AtomicU64::new(0),
        });
        let (core, single_core) = (config.core, Device::shares_core(config));
        let spin_ns = u64::try_from(config.spin.as_nanos()).unwrap_or(u64::MAX);
        let (report, pinned) = std::sync::mpsc::channel();
        let (of_thread, clock) = (run.clone(), config.clock.clone());
        planted::start_thread().map_err(system("start the device's thread"))?;
        let thread = std::thread::Builder::new()
            .name("device".into())
            .spawn(move || {
                let result = core.map_or(Ok(()), affinity::pin);
                let refused = result.is_err();
                let _ = report.send(result);
                if !refused {
                    serve(&of_thread, firmware, &clock, single_core, spin_ns);
                }
            })
            .map_err(system("start the device's thread"))?;
        let pinned = pinned.recv().unwrap_or_else(|gone| Err(std::io::Error::other(gone)));
        pinned.map_err(system(
            "pin the device's thread to the core asked for (does it exist, and is it allowed to this process?)",
        ))?;
        Ok((run, Some(thread)))
    }
    /// Whether the starter runs on the device's core and has no other: then it sleeps rather than
    /// spin. Asked before the thread is pinned.
    fn shares_core(config: &DeviceConfig) -> bool {
        matches!(affinity::cores()[..], [only] if config.core.is_none_or(|core| core == only))
    }
    /// What it has the time from.
    pub(crate) fn clock(&self) -> &Clock {
        &self.config.clock
    }
    /// Whether it was started on a core of its own, so that a waiting host may spin.
    #[must_use]
    pub fn has_own_core(&self) -> bool {
        !self.single_core
    }
    fn run(&self) -> MutexGuard<'_, (Arc<Run>, Option<JoinHandle<()>>)> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The medium.
    #[must_use]
    pub fn flash(&self) -> &Arc<dyn Flash> {
        &self.medium.flash
    }
    /// What the firmware shares, since the last start.
    #[must_use]
    pub fn backend(&self) -> Arc<Backend> {
        self.run().0.backend.clone()
    }
    /// CPU time of the device's thread, up to about a millisecond ago.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let run = self.run().0.clone();
        Duration::from_nanos(self.past_cpu_ns.load(Ordering::Relaxed) + run.cpu_ns.load(Ordering::Relaxed))
    }
    /// DRAM of its medium and of its queue pairs.
    #[must_use]
    pub fn dram(&self) -> DeviceDram {
        let beside = self.config.firmware.boot.bytes() + self.dram.pairs();
        DeviceDram {
            taken: (self.medium.taken() + beside) as u64,
            set_aside: (self.medium.set_aside() + beside) as u64,
            bound: self.dram.bound(),
        }
    }
    /// Whether the thread has ended: it was stopped, or it, or a memory operation, panicked.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.run().0.life.has_ended()
    }
    /// Ends the thread with what is in flight: to hosts, the device dies. [`Device::restart`]
    /// revives it.
    pub fn stop(&self) {
        let mut run = self.run();
        run.0.state.stop.store(true, Ordering::SeqCst);
        run.0.doorbell.notify();
        if let Some(thread) = run.1.take() {
            // A panic of the thread has been reported already, and its life has ended in any case.
            let _ = thread.join();
            self.past_cpu_ns.fetch_add(run.0.cpu_ns.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    /// Starts the thread again after it has ended, over the same medium. Hosts attach again by
    /// themselves.
    ///
    /// # Errors
    /// As [`Device::start`], and after a panic of a memory operation: the store must be opened anew
    /// then.
    pub fn restart(&self) -> Result<(), OpenError> {
        self.stop();
        if self.session.as_ref().is_some_and(|session| session.is_spoilt()) {
            return Err(system("start the device again")(std::io::Error::other(Refusal::Spoilt)));
        }
        let new = Device::begin(&self.medium, &self.config, &self.instance, self.session.as_ref())?;
        *self.run() = new;
        Ok(())
    }
    /// Reserves a place for a queue pair in addition to the others, of which `most` may exist.
    pub(crate) fn admit(&self, identity: HostIdentity, most: usize) -> Result<OpenPair, Refusal> {
        self.hosts.admit(identity, most)
    }
    /// While a program names states, the newest named one, and 1 if its temporary pages are there.
    /// Else 0.
    pub(crate) fn session_stands(&self) -> (u64, u64) {
        let open = self.session.as_ref().filter(|session| session.is_open());
        open.map_or((0, 0), |session| (session.newest(), session.has_temporary().into()))
    }
    /// Whether its store may hold what has no name and is to get one at the end. Not in the session
    /// of a program that names states, nor after a panic of a memory operation.
    #[must_use]
    pub fn wants_last_flush(&self) -> bool {
        self.session.as_ref().is_none_or(|session| self.hosts.were_there() && !session.is_spoilt())
    }
    /// Attaches a queue pair of a region. Its data buffer is the region's, or all of `frames`;
    /// `host` wakes its host.
    ///
    /// # Errors
    /// When the medium opens no queue; when the device has ended, or has no DRAM left for it.
    pub fn attach(
        &self,
        region: &Arc<Region>,
        pair: u32,
        frames: Option<Arc<Arena>>,
        host: Arc<dyn Wake>,
    ) -> Result<Attachment, OpenError> {
        self.attach_as(region, pair, frames, host, false)
    }
    /// As `attach`; with `only_observes` its host changes nothing and reads no sectors
    /// ([`crate::Opcode::only_observes`]).
    pub(crate) fn attach_as(
        &self,
        region: &Arc<Region>,
        pair: u32,
        frames: Option<Arc<Arena>>,
        host: Arc<dyn Wake>,
        only_observes: bool,
    ) -> Result<Attachment, OpenError> {
        let run = self.run().0.clone();
        let mut port = run.backend.open_port(region, pair, frames, &run.doorbell, host.clone())?;
        if only_observes {
            port.set_only_observes();
        }
        let (closing, bytes) = (port.closing().clone(), port.bytes());
        let of_medium = || self.medium.set_aside() + self.config.firmware.boot.bytes();
        let dram = self.dram.take(region.arena().len() + bytes, of_medium).map_err(|refused| OpenError::System {
            what: "attach to the device",
            source: std::io::Error::other(refused),
        })?;
        {
            let mut arrivals = run.arrivals();
            if run.life.has_ended() {
                return Err(OpenError::System {
                    what: "attach to the device",
                    source: std::io::Error::other("it has ended; start it again"),
                });
            }
            region.set_status(DeviceStatus::Ready);
            arrivals.push(Arrival(port, host));
        }
        run.signal_change();
        Ok(Attachment { run, closing, bytes, _dram: dram })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A queue pair that is served: its region, whether it was closed, what to wake.
type Served = (Arc<Region>, Arc<Closing>, Arc<dyn Wake>);

/// Says that the device has ended, for whatever reason, and wakes all waiters.
struct Ending<'r> {
    run: &'r Run,
    firmware: Option<Firmware>,
    hosts: Vec<Served>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        // Waits until the medium has let go of all memory, before any host is notified that it has.
        self.firmware = None;
        let mut arrivals = self.run.arrivals();
        self.hosts.extend(
            arrivals.drain(..).map(|Arrival(port, host)| (port.region().clone(), port.closing().clone(), host)),
        );
        self.run.life.end();
        drop(arrivals);
        for (region, _, host) in &self.hosts {
            region.set_status(DeviceStatus::Ended);
            host.wake();
        }
    }
}

fn serve(run: &Run, firmware: Firmware, clock: &Clock, single_core: bool, spin_ns: u64) {
    let mut ending = Ending { run, firmware: Some(firmware), hosts: Vec::new() };
    let (mut active_ns, mut beat_ns, mut beats) = (clock.now_ns(), 0, 0);
    let mut sleep = SLEEP_MIN;
    while !run.state.stop.load(Ordering::Relaxed) {
        if run.state.changed.load(Ordering::Relaxed) {
            update(run, &mut ending);
        }
        let firmware = ending.firmware.as_mut().expect("taken by the end alone");
        // Before the turn that answers what it had.
        let failed = firmware.has_failed();
        let done = firmware.turn();
        if failed {
            break;
        }
        if done > 0 {
            active_ns = clock.now_ns();
            sleep = SLEEP_MIN;
            // What comes next comes soon: no pause.
            beat(run, firmware, active_ns, &mut beat_ns, &mut beats);
            continue;
        }
        let now = clock.now_ns();
        beat(run, firmware, now, &mut beat_ns, &mut beats);
        let busy = firmware.is_busy();
        if busy {
            active_ns = now;
        }
        if single_core && busy {
            firmware.wait(SLEEP_BUSY);
        } else if single_core || now.saturating_sub(active_ns) > spin_ns {
            beat_ns = 0;
            beat(run, firmware, now, &mut beat_ns, &mut beats);
            rest(run, firmware, sleep);
            sleep = (sleep * 2).min(SLEEP_MAX);
            if firmware.has_news() {
                active_ns = clock.now_ns();
            }
        } else {
            arch::relax();
        }
    }
    publish_cpu(run);
}

/// Learns of queue pairs that came, forgets those that went.
fn update(run: &Run, ending: &mut Ending<'_>) {
    run.state.changed.swap(false, Ordering::SeqCst);
    let arrivals = std::mem::take(&mut *run.arrivals());
    let firmware = ending.firmware.as_mut().expect("taken by the end alone");
    for Arrival(port, host) in arrivals {
        ending.hosts.push((port.region().clone(), port.closing().clone(), host));
        firmware.add(port);
    }
    ending.hosts.retain(|(_, closing, _)| !closing.is_closed());
    firmware.remove(|port| port.closing().is_closed());
}

/// Sleeps until a doorbell rings, at most so long.
fn rest(run: &Run, firmware: &mut Firmware, timeout: Duration) {
    // Media do what they have left to do. This may take a notification, so its cause is checked
    // afterwards.
    firmware.wait(Duration::ZERO);
    firmware.set_sleeping(true);
    let news = run.state.stop.load(Ordering::SeqCst) || run.state.changed.load(Ordering::SeqCst);
    if !news && !firmware.has_news() && !firmware.has_failed() {
        run.doorbell.wait(Some(timeout));
    }
    firmware.set_sleeping(false);
}

fn beat(run: &Run, firmware: &Firmware, now: u64, beat_ns: &mut u64, beats: &mut u64) {
    if now.saturating_sub(*beat_ns) > BEAT_NS {
        *beat_ns = now;
        *beats += 1;
        for port in firmware.ports() {
            port.region().beat(*beats);
        }
        publish_cpu(run);
    }
}

fn publish_cpu(run: &Run) {
    let cpu = u64::try_from(clock::thread_cpu().as_nanos()).unwrap_or(u64::MAX);
    run.cpu_ns.store(cpu, Ordering::Relaxed);
}
