//! An emulated flash device: a thread on another core moves real subpages after realistic
//! latencies.
//!
//! ```text
//!  worker               shared memory                            device thread
//!  submit: batch                                                 scan submission rings
//!  flush:  batch ──> [ submission ring: 4 entries a line ] ──>   due = max(now, free) + latency
//!                                                                when due: move 4 KiB
//!  poll:   tags  <── [ completion ring: 8 entries a line ] <──   post; wake a sleeping worker
//! ```
//!
//! Neither direction needs a system call while both sides are awake. The device spins while
//! requests are in flight or were a moment ago (1 ms), then sleeps. A submitter checks only the
//! flag that says so.
//!
//! Invariants: a completion is posted only after the data was moved, and never before the latency
//! has passed since the device saw the request. Requests for one subpage are served in order. The
//! device touches a queue's frames only while that queue exists. Erase, wear and bus are the NAND
//! model's.

mod device;
mod queue;

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crossbeam_utils::CachePadded;
use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Notifier, affinity, barrier, planted};

use crate::cells::Cells;
use crate::counters::Counters;
use crate::latency::{EmulatedConfig, Planes, describe};
use crate::{Backing, DeviceCounters, Flash, FlashError, OpenError, OpenedQueue, QueueUser, Traits, check_range};

/// An emulated flash device. Dropping it ends its thread; remaining queues report
/// [`crate::FlashError::Closed`].
#[derive(Debug)]
pub struct EmulatedFlash {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    config: EmulatedConfig,
}

/// What the device thread and all queues see.
#[derive(Debug)]
struct Shared {
    state: CachePadded<State>,
    counters: CachePadded<Counters>,
    /// Wakes the device.
    doorbell: Notifier,
    /// Queues that the device has not seen yet.
    arrivals: Mutex<Vec<device::Port>>,
    cells: Cells,
}

/// Written rarely, read by every flush and every empty poll: it stays in everybody's cache.
#[derive(Debug, Default)]
struct State {
    /// The device sleeps, or is about to and will poll the rings once more.
    sleeping: AtomicBool,
    /// The device was asked to end.
    stop: AtomicBool,
    /// The device has ended: nothing more will complete.
    stopped: AtomicBool,
    /// A queue came or went.
    changed: AtomicBool,
    /// `membarrier` is there: the cheap side of the sleep protocol is a compiler fence.
    expedited: bool,
}

impl Shared {
    /// Wakes the device if it sleeps. The device sees all earlier stores: before it sleeps it sets
    /// `sleeping`, makes every thread execute a barrier, and polls the rings.
    #[inline]
    fn ring_doorbell(&self) {
        if self.state.expedited {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        if self.state.sleeping.load(Ordering::Relaxed) && self.state.sleeping.swap(false, Ordering::SeqCst) {
            self.doorbell.notify();
        }
    }
    fn stopped(&self) -> bool {
        self.state.stopped.load(Ordering::Acquire)
    }
}

impl EmulatedFlash {
    /// Starts a device.
    ///
    /// # Errors
    /// When it has no subpages or planes, the storage is too small, or the kernel refuses a
    /// resource.
    pub fn new(config: EmulatedConfig) -> Result<EmulatedFlash, OpenError> {
        let cells = Cells::new(config.subpages, config.storage.clone(), Backed::HugePages)?;
        let planes = Planes::new(&config)?;
        let doorbell =
            Notifier::new().map_err(|source| OpenError::System { what: "make an eventfd for the device", source })?;
        let shared = Arc::new(Shared {
            state: CachePadded::new(State { expedited: barrier::register(), ..State::default() }),
            counters: CachePadded::default(),
            doorbell,
            arrivals: Mutex::default(),
            cells,
        });
        let device = device::Device::new(shared.clone(), planes, &config);
        let core = config.core;
        let (report, pinned) = std::sync::mpsc::channel();
        let start = |source| OpenError::System { what: "start the device thread", source };
        planted::start_thread().map_err(start)?;
        let thread = std::thread::Builder::new()
            .name("flash-device".into())
            .spawn(move || {
                let result = core.map_or(Ok(()), affinity::pin);
                let refused = result.is_err();
                let _ = report.send(result);
                if !refused {
                    device.run();
                }
            })
            .map_err(start)?;
        let pinned = pinned.recv().unwrap_or_else(|gone| Err(std::io::Error::other(gone)));
        pinned.map_err(|source| OpenError::System {
            what: "pin the device thread to the core asked for (does it exist, and is it allowed to this process?)",
            source,
        })?;
        Ok(EmulatedFlash { shared, thread: Some(thread), config })
    }
    /// What it stores: subpage i at i x 4096. Change it only while no request is in flight.
    #[must_use]
    pub fn storage(&self) -> &Arc<Arena> {
        &self.shared.cells.memory
    }
    /// Fills the storage with a prepared image. Only while no request is in flight.
    ///
    /// # Panics
    /// When `image` is the storage itself.
    pub fn copy_from(&self, image: &Arena) {
        let bytes = image.len().min(self.subpages() as usize * SUBPAGE_BYTES);
        Arena::copy(image, 0, self.storage(), 0, bytes);
    }
}

impl Flash for EmulatedFlash {
    fn subpages(&self) -> u32 {
        self.shared.cells.subpages
    }
    fn describe(&self) -> String {
        describe("device", &self.config)
    }
    fn traits(&self) -> Traits {
        Traits::PLAIN
    }
    fn staging_bytes(&self, _: u32) -> usize {
        0
    }
    fn open_queue_for(&self, _: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        self.shared.cells.check_queue(&frames, depth)?;
        let (queue, port) = queue::EmulatedQueue::new(self.shared.clone(), frames, depth, wake);
        self.shared.arrivals.lock().expect("the device thread does not panic").push(port);
        self.shared.state.changed.store(true, Ordering::SeqCst);
        self.shared.ring_doorbell();
        Ok(Box::new(queue))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn counters(&self) -> DeviceCounters {
        self.shared.counters.read()
    }
}

impl Drop for EmulatedFlash {
    fn drop(&mut self) {
        self.shared.state.stop.store(true, Ordering::SeqCst);
        self.shared.ring_doorbell();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
