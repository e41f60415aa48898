//! Misses: what one costs the worker's core, compared with the same work on resident data.
//!
//! A phase is a service whose requests compute for about 2 µs and touch one word of one subpage. On
//! all data, in an order without early repetition, every access misses. On a few subpages none
//! does. The difference of the worker's CPU time is the price of misses with eviction. The device's
//! thread has its own core.
//!
//! An idle worker polls, which is no cost of a miss. With 64 fibers of 2 µs and a device of 50 µs
//! that is rare, and happens only after an access with all fibers busy. Such accesses and their CPU
//! time are left out, and their share is reported.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fulgurite_flash::Flash;
use fulgurite_memory::{AccessError, Address, Memory, Ptr};
use fulgurite_policy::PrefetchPolicy;
use fulgurite_runtime::{Context, Counts, DEFAULT_FIBERS, Next, Runtime, Service, WorkerStatistics};
use fulgurite_sys::clock::thread_cpu;

use crate::medium::TestBed;
use fulgurite_flash::Mover;
use fulgurite_harness::child;

pub const FIBERS: u32 = DEFAULT_FIBERS as u32;
const WORK: Duration = Duration::from_micros(2);
/// Planes of an emulated device, far from their limit, which would charge misses for waiting. A
/// read and a dirty victim's write keep a plane for 150 µs, so a miss every 2.3 µs would fill 64
/// planes.
pub const PLANES: usize = 512;
/// The share of a phase's accesses that must be left for the cost of a miss to be known.
const COUNTED_MIN: f64 = 0.01;
/// Subpages of the phases that hit.
const RESIDENT: u64 = 256;

/// What the requests of a phase do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nothing at all, not even the computing.
    Empty,
    Hit,
    /// Load data in flash; every victim is clean.
    Miss,
    /// Store to data in flash; every victim is dirty.
    MissDirty,
}

#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub requests: u64,
    pub cpu_ns: u64,
    /// Requests at whose access all fibers were busy.
    pub crowded: u64,
    /// CPU time from these accesses to whatever ran next: polling, and the price of a miss.
    pub crowded_ns: u64,
    pub miss_ratio: f64,
    /// Counts of the whole phase, the warm-up included.
    pub counts: Counts,
    pub statistics: Option<WorkerStatistics>,
}

impl Measured {
    pub fn cpu_ns_each(&self) -> f64 {
        self.cpu_ns as f64 / self.requests as f64
    }
    /// CPU nanoseconds that a miss adds to `hit`. None where too few accesses are left.
    pub fn cpu_ns_per_miss(&self, hit: f64) -> Option<f64> {
        let counted = (self.requests - self.crowded) as f64;
        if counted < self.requests as f64 * COUNTED_MIN || counted < 1.0 {
            return None;
        }
        let extra = self.cpu_ns as f64 - self.crowded_ns as f64 - hit * counted;
        Some(extra / (counted * self.miss_ratio))
    }
    /// The share of accesses that were left out.
    pub fn crowded_share(&self) -> f64 {
        self.crowded as f64 / self.requests as f64
    }
    /// CPU time between a crowded access and the next request, for each request of the phase.
    pub fn crowded_ns_each(&self) -> f64 {
        self.crowded_ns as f64 / self.requests as f64
    }
}

/// A worker, its DRAM, and the flash behind it.
pub struct Misses {
    runtime: Runtime,
    flash: Arc<dyn Flash>,
    subpages: u64,
    work: u64,
    /// Where the next phase continues in the order of the subpages.
    next: u64,
}

/// What a rig is made of.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub data_bytes: u64,
    pub dram_bytes: u64,
    pub worker_core: usize,
}

/// How many subpages are written between two checks whether to go on.
const FILL_CHECK: u32 = 4096;

/// The word that is touched in a subpage, on a line that differs from subpage to subpage.
fn word_of(subpage: u64) -> u64 {
    subpage * 4096 + subpage % 64 * 64
}

/// Element `place` of a permutation of 0..`subpages` (a power of two) without pattern.
fn shuffled(place: u64, subpages: u64) -> u64 {
    let (mask, half) = (subpages - 1, subpages.trailing_zeros() / 2);
    let mut x = place & mask;
    for odd in [0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93, 0xA076_1D64_78BD_642F_u64] {
        x = x.wrapping_mul(odd | 1) & mask;
        x ^= x >> half;
    }
    x
}

/// Iterations of the computing that take `time` here.
fn iterations(time: Duration) -> u64 {
    const TRY: u64 = 200_000;
    (time.as_nanos() as u64 * TRY / child::time_work(TRY).max(1)).max(1)
}

struct Requests {
    phase: Phase,
    subpages: u64,
    work: u64,
    next: Cell<u64>,
    left: Cell<u64>,
    measured: u64,
    /// Requests inside `run`: fibers that are busy.
    inside: Cell<u32>,
    begin: Cell<Option<Duration>>,
    crowded_since: Cell<Option<Duration>>,
    crowded: Cell<u64>,
    crowded_time: Cell<Duration>,
    failed: RefCell<Option<anyhow::Error>>,
    delivered: Arc<Mutex<Option<Result<Measured>>>>,
}

impl Requests {
    /// Delivers the result, once.
    fn deliver(&self) {
        let mut delivered = self.delivered.lock().expect("nobody panics with it");
        if delivered.is_some() {
            return;
        }
        *delivered = Some(match (self.failed.take(), self.begin.get()) {
            (Some(error), _) => Err(error),
            (None, begin) => Ok(Measured {
                requests: self.measured,
                cpu_ns: begin.map_or(0, |begin| (thread_cpu() - begin).as_nanos() as u64),
                crowded: self.crowded.get(),
                crowded_ns: self.crowded_time.get().as_nanos() as u64,
                ..Measured::default()
            }),
        });
    }

    fn touch(&self, context: &mut Context, subpage: u64) -> Result<u64, AccessError> {
        let at = Ptr::<u64>::new(Address::from_linear(word_of(subpage)));
        if self.phase == Phase::MissDirty {
            context.store(at, subpage)?;
            return Ok(subpage);
        }
        context.load(at)
    }

    #[cold]
    fn fail(&self, error: anyhow::Error) {
        self.failed.borrow_mut().get_or_insert(error);
        self.left.set(0);
    }
}

impl Service for Requests {
    fn next(&self) -> Next {
        if self.left.get() > 0 {
            return Next::Ready;
        }
        self.deliver();
        Next::Finished
    }

    fn run(&self, context: &mut Context) {
        let left = self.left.get();
        self.left.set(left - 1);
        if left == self.measured {
            self.begin.set(Some(thread_cpu()));
        }
        if self.phase == Phase::Empty {
            return;
        }
        self.inside.set(self.inside.get() + 1);
        let place = self.next.get();
        self.next.set(place + 1);
        let subpage = if self.phase == Phase::Hit { place % RESIDENT } else { shuffled(place, self.subpages) };
        child::compute(self.work);
        if self.inside.get() == FIBERS && self.begin.get().is_some() && self.left.get() > 0 {
            self.crowded_since.set(Some(thread_cpu()));
        }
        let got = self.touch(context, subpage);
        if let Some(since) = self.crowded_since.take() {
            self.crowded_time.set(self.crowded_time.get() + (thread_cpu() - since));
            self.crowded.set(self.crowded.get() + 1);
        }
        self.inside.set(self.inside.get() - 1);
        match got {
            Ok(value) if value == subpage => {}
            Ok(value) => {
                self.fail(anyhow::anyhow!("subpage {subpage} holds {value}: the data is not what was written"))
            }
            Err(error) => self.fail(error.into()),
        }
    }
}

impl Misses {
    /// Fills the flash and starts the worker.
    ///
    /// # Errors
    /// When there is no memory, a core cannot be had, the flash fails, or `progress` does.
    pub fn start(sizes: Sizes, medium: &TestBed, progress: &mut dyn FnMut(f64) -> Result<()>) -> Result<Misses> {
        let subpages = sizes.data_bytes / 4096;
        ensure!(
            subpages.is_power_of_two() && subpages >= RESIDENT,
            "data of {} bytes is no power of two",
            sizes.data_bytes
        );
        let flash = medium.open(sizes.data_bytes)?;
        let mut rest = 0..u32::try_from(subpages)?;
        Mover::new(&*flash)?.write(|page| {
            let Some(subpage) = rest.next() else { return anyhow::Ok(None) };
            page.fill(0);
            let at = (word_of(subpage.into()) % 4096) as usize;
            page[at..at + 8].copy_from_slice(&u64::from(subpage).to_ne_bytes());
            if subpage % FILL_CHECK == 0 {
                progress(f64::from(subpage) / subpages as f64)?;
            }
            Ok(Some(subpage))
        })?;
        let builder = Runtime::builder(flash.clone())
            .dram(sizes.dram_bytes)
            .existing(sizes.data_bytes)
            .cores(&[sizes.worker_core])
            .fibers(FIBERS as usize)
            .prefetch(PrefetchPolicy::Off);
        let runtime = builder.build()?;
        let work = super::primitives::on_core(sizes.worker_core, || Ok(iterations(WORK)))?;
        Ok(Misses { runtime, flash, subpages, work, next: 0 })
    }

    pub fn flash(&self) -> &dyn Flash {
        &*self.flash
    }
    pub fn frames(&self) -> u64 {
        self.runtime.frames()
    }
    pub fn work_iterations(&self) -> u64 {
        self.work
    }

    /// Runs a phase of a number of requests, after a warm-up that fills the frames as the phase
    /// keeps them.
    ///
    /// # Errors
    /// When an access failed, or read what was not written.
    pub fn phase(&mut self, phase: Phase, requests: u64) -> Result<Measured> {
        let warm = match phase {
            Phase::Empty => 0,
            Phase::Hit => RESIDENT * 4,
            Phase::Miss => self.frames().min(4096),
            Phase::MissDirty => self.frames() * 5 / 4,
        };
        let delivered = Arc::new(Mutex::new(None));
        let (subpages, work, next, answer) = (self.subpages, self.work, self.next, delivered.clone());
        let _ = self.runtime.take_statistics();
        self.runtime.serve(move |_| Requests {
            phase,
            subpages,
            work,
            next: Cell::new(next),
            left: Cell::new(warm + requests),
            measured: requests,
            inside: Cell::new(0),
            begin: Cell::new(None),
            crowded_since: Cell::new(None),
            crowded: Cell::new(0),
            crowded_time: Cell::new(Duration::ZERO),
            failed: RefCell::new(None),
            delivered: answer.clone(),
        })?;
        let total = self.runtime.take_statistics().total();
        let result = delivered.lock().expect("nobody panics with it").take();
        let mut measured = result.context("the service ended without a result")??;
        measured.counts = total.counts;
        measured.miss_ratio = (total.counts.misses + total.counts.misses_joined) as f64 / (warm + requests) as f64;
        measured.statistics = Some(total);
        if matches!(phase, Phase::Miss | Phase::MissDirty) {
            self.next += warm + requests;
            if measured.miss_ratio < 0.5 {
                bail!(
                    "only {:.1}% of the accesses missed; the data is too small for this DRAM",
                    measured.miss_ratio * 100.0
                );
            }
        }
        if phase == Phase::MissDirty {
            // The next phase must not pay for these.
            self.runtime.write_back()?;
        }
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::{CheckedMedium, Holds};
    use crate::values::FlashChoice;
    use fulgurite_harness::checks::Wanted;
    use fulgurite_term::interrupt::Interrupt;
    use fulgurite_term::machine::Machine;

    #[test]
    fn a_miss_costs_what_those_accesses_say_that_are_left() {
        let measured =
            Measured { requests: 1000, cpu_ns: 3_000_000, crowded: 500, crowded_ns: 1_000_000, ..Measured::default() };
        let of = |crowded| Measured { crowded, miss_ratio: 1.0, ..measured.clone() }.cpu_ns_per_miss(2_000.0);
        // Two milliseconds for 500 requests, of which a hit takes two microseconds.
        assert_eq!(of(500), Some(2_000.0));
        assert_eq!((of(991), of(1000)), (None, None));
    }
    #[test]
    fn the_order_visits_every_subpage_once() {
        for bits in [8, 9, 16] {
            let subpages = 1 << bits;
            let mut seen = vec![false; subpages as usize];
            (0..subpages).for_each(|place| seen[shuffled(place, subpages) as usize] = true);
            assert!(seen.iter().all(|s| *s));
            let steps = (1..subpages).filter(|p| shuffled(p - 1, subpages) + 1 == shuffled(*p, subpages)).count();
            assert!(steps < subpages as usize / 16, "{steps} of {subpages} are in sequence");
        }
    }
    #[test]
    fn phases_hit_and_miss_as_they_say() {
        let cores = fulgurite_sys::affinity::cores();
        let sizes = Sizes { data_bytes: 64 << 20, dram_bytes: 6 << 20, worker_core: cores[0] };
        let wanted = Wanted { flash: &FlashChoice::Emulated, create: false, force: false, share_frames: false };
        let judged = CheckedMedium::new(wanted, Holds::Data, sizes.data_bytes, 0, &Machine::describe()).unwrap();
        let medium = judged.planes(PLANES).make(&Interrupt::default()).unwrap();
        let mut misses = Misses::start(sizes, &medium, &mut |_| Ok(())).unwrap();
        let hit = misses.phase(Phase::Hit, 2000).unwrap();
        assert!(hit.miss_ratio < 0.2 && hit.cpu_ns > 0 && hit.requests == 2000);
        let miss = misses.phase(Phase::Miss, 2000).unwrap();
        assert!(miss.miss_ratio > 0.95, "{miss:?}");
        let dirty = misses.phase(Phase::MissDirty, 2000).unwrap();
        assert!(dirty.miss_ratio > 0.9 && dirty.counts.evicted_dirty >= 2000, "{dirty:?}");
        assert!(misses.phase(Phase::Empty, 2000).unwrap().cpu_ns > 0);
    }
}
