//! Waiting: for the gate, for a time, for a latch, for a future; and giving way.

use std::future::Future;
use std::pin::Pin as FuturePin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Wake as WakeTrait, Waker};
use std::time::Duration;

use fulgurite_cache::Writer;
use parking_lot::Mutex;

use super::Context;
use crate::config::nanos;
use crate::error::AccessError;
use crate::mailbox::Wake;
use crate::object_user::LOOK_AGAIN;
use crate::parking;
use crate::shared::Shared;
use crate::state::{FiberState, WaitsFor};

impl Context {
    /// Begins a write section: a token has all that is written until the guard is dropped, or none
    /// ([`Runtime::sync`] cuts between sections). Sections nest. Waits while a sync closes the
    /// gate, so begin it before taking a latch that other sections may wait for. Where a pool has
    /// hardly any room for changes, it also waits for the sync that makes some.
    ///
    /// A section isolates nothing: other jobs see its writes at once, and an error leaves them. It
    /// is for authors of containers. Programs use transactions.
    ///
    /// [`Runtime::sync`]: crate::Runtime::sync
    ///
    /// # Errors
    /// When the job was cancelled, its deadline has passed, or the runtime is dropped while it
    /// waited.
    #[inline]
    pub fn write_section(&mut self) -> Result<WriteSection, AccessError> {
        if !self.state.in_section() {
            self.wait_for_room()?;
        }
        self.write_section_now()
    }

    /// As [`Context::write_section`] where the pool has hardly any room for changes, without a wait
    /// for the sync that makes some. It is for a job that this sync waits for.
    ///
    /// # Errors
    /// As [`Context::write_section`].
    #[inline]
    pub fn write_section_now(&mut self) -> Result<WriteSection, AccessError> {
        if !self.state.in_section() {
            let gate = &self.shared.gates[self.state.worker as usize];
            if gate.closed.load(Ordering::Relaxed) {
                self.pass_gate()?;
            }
            self.shared.gates[self.state.worker as usize].enter();
        }
        self.state.sections.set(self.state.sections.get() + 1);
        Ok(WriteSection { state: self.state.clone() })
    }

    /// Waits while the pool has hardly any room for changes, and a sync is on its way that makes
    /// some. Not in a section, which that sync waits for.
    ///
    /// # Errors
    /// When the job must end.
    fn wait_for_room(&mut self) -> Result<(), AccessError> {
        let waits = |context: &Context| {
            context.cache.backing().is_some_and(|backing| backing.is_low() && backing.waits_for_room())
        };
        while !self.is_own_job() && waits(self) {
            self.sleep(LOOK_AGAIN)?;
        }
        Ok(())
    }

    /// What a change in this job is to a sync. A sync that has closed the gate waits for the open
    /// sections, so what is in one must not wait for the room that this sync makes.
    pub(super) fn writer(&self) -> Writer {
        let gate = &self.shared.gates[self.state.worker as usize];
        match self.state.in_section() && gate.closed.load(Ordering::Relaxed) {
            _ if self.is_own_job() => Writer::OfSync,
            true => Writer::HoldsUpSync,
            false => Writer::MayWait,
        }
    }

    /// Waits until the gate is open. The runtime's own jobs do not: they run because it is closed.
    #[cold]
    fn pass_gate(&mut self) -> Result<(), AccessError> {
        if self.is_own_job() {
            return Ok(());
        }
        let index = self.state.index;
        let begun = self.shared.clock.now_ns();
        while self.shared.gates[self.state.worker as usize].closed.load(Ordering::Relaxed) {
            self.verdict()?;
            self.with_fibers(|fibers| {
                let ticket = fibers.will_wait(index, WaitsFor::Latch, begun);
                fibers.until_deadline(index, ticket);
                fibers.gate_waiters.push((index, ticket));
            });
            self.suspend();
            self.after_wait()?;
        }
        self.with_fibers(|fibers| {
            fibers.statistics.counts.gate_waits += 1;
            fibers.statistics.counts.gate_wait_ns += fibers.shared.clock.now_ns() - begun;
        });
        Ok(())
    }

    /// Gives the core to other runnable fibers.
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed.
    pub fn yield_now(&mut self) -> Result<(), AccessError> {
        self.verdict()?;
        let index = self.state.index;
        self.with_fibers(|fibers| fibers.will_yield(index));
        self.suspend();
        Ok(())
    }

    /// Waits for `time`, while others run.
    ///
    /// # Errors
    /// When the job was cancelled, its deadline has passed, or the runtime is dropped.
    pub fn sleep(&mut self, time: Duration) -> Result<(), AccessError> {
        self.verdict()?;
        let until = self.shared.clock.now_ns().saturating_add(nanos(time));
        let index = self.state.index;
        self.with_fibers(|fibers| {
            if fibers.stopping() {
                return Err(AccessError::ShuttingDown);
            }
            let ticket = fibers.will_sleep(index, until);
            fibers.until_deadline(index, ticket);
            Ok(())
        })?;
        self.suspend();
        self.after_wait()
    }

    /// Waits until [`Context::unpark_all`] is called for the same word. Returns at once when the
    /// word is not `expected`, which is checked under the same lock. May return early.
    ///
    /// # Errors
    /// When the job was cancelled or its deadline has passed, or when the runtime was dropped long
    /// ago and no call has woken the fiber since.
    pub fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.verdict()?;
        let key = std::ptr::from_ref(word) as usize;
        let index = self.state.index;
        let ticket = {
            let mut parked = PARKED[shard(key)].lock();
            if word.load(std::sync::atomic::Ordering::Relaxed) != expected {
                return Ok(());
            }
            let now = self.shared.clock.now_ns();
            let (worker, ticket) = self.with_fibers(|fibers| {
                let ticket = fibers.will_wait(index, WaitsFor::Latch, now);
                fibers.until_deadline(index, ticket);
                (fibers.id, ticket)
            });
            parked.push(Parked { key, shared: self.shared.clone(), worker, fiber: index, ticket });
            ticket
        };
        self.suspend();
        let ended = self.after_wait();
        if ended.is_err() {
            // Nobody has unparked it, perhaps.
            let mine = |p: &Parked| p.fiber == index && p.ticket == ticket && Arc::ptr_eq(&p.shared, &self.shared);
            let worker = self.worker() as u32;
            PARKED[shard(key)].lock().retain(|p| p.worker != worker || !mine(p));
        }
        ended
    }

    /// What a wait for something other than flash ends in.
    fn after_wait(&self) -> Result<(), AccessError> {
        if self.state.wake.get() == Wake::ShutDown { Err(AccessError::ShuttingDown) } else { self.verdict() }
    }

    /// Wakes all fibers and threads that are parked on `word`, of any runtime, from any thread.
    pub fn unpark_all(word: &AtomicU64) {
        parking::unpark_all(word);
    }

    /// Wakes the fibers that are parked on `word`.
    pub(crate) fn unpark_fibers(word: &AtomicU64) {
        let key = std::ptr::from_ref(word) as usize;
        let mut woken = Vec::new();
        {
            let mut parked = PARKED[shard(key)].lock();
            let mut i = 0;
            while i < parked.len() {
                // Order is kept among those that stay and those that go: first come, first woken.
                if parked[i].key == key { woken.push(parked.remove(i)) } else { i += 1 }
            }
        }
        for Parked { shared, worker, fiber, ticket, .. } in woken {
            shared.wake(worker, fiber, ticket);
        }
    }

    /// Runs a future to its end on this fiber; others run while it waits.
    ///
    /// # Errors
    /// When the job was cancelled, its deadline has passed, or the runtime was dropped while it
    /// waited.
    pub fn await_future<F: Future>(&mut self, future: F) -> Result<F::Output, AccessError> {
        let mut future = std::pin::pin!(future);
        let worker = self.worker() as u32;
        let alarm = Arc::new(Alarm {
            state: Mutex::new(AlarmState { woken: false, ticket: None }),
            shared: self.shared.clone(),
            worker,
            fiber: self.state.index,
        });
        let waker = Waker::from(alarm.clone());
        loop {
            let poll = FuturePin::as_mut(&mut future).poll(&mut std::task::Context::from_waker(&waker));
            if let Poll::Ready(output) = poll {
                return Ok(output);
            }
            {
                let mut state = alarm.state.lock();
                if std::mem::take(&mut state.woken) {
                    drop(state);
                    // A future that wakes itself yields by it: others get their turn.
                    self.yield_now()?;
                    continue;
                }
                // Under the lock: a wake-up finds the fiber waiting or sets the flag.
                let (index, now) = (self.state.index, self.shared.clock.now_ns());
                state.ticket = Some(self.with_fibers(|fibers| {
                    if fibers.stopping() {
                        return Err(AccessError::ShuttingDown);
                    }
                    let ticket = fibers.will_wait(index, WaitsFor::Outside, now);
                    fibers.until_deadline(index, ticket);
                    Ok(ticket)
                })?);
            }
            self.suspend();
            *alarm.state.lock() = AlarmState { woken: false, ticket: None };
            self.after_wait()?;
        }
    }
}

/// Keeps a write section open until it is dropped. See [`Context::write_section`].
#[must_use = "the section ends when this is dropped"]
pub struct WriteSection {
    state: Rc<FiberState>,
}

impl std::fmt::Debug for WriteSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteSection").field("open", &self.state.sections.get()).finish()
    }
}

impl Drop for WriteSection {
    #[inline]
    fn drop(&mut self) {
        let open = self.state.sections.get() - 1;
        self.state.sections.set(open);
        if open == 0 {
            self.state.shared.gates[self.state.worker as usize].leave();
        }
    }
}

/// A fiber that waits for a key.
struct Parked {
    key: usize,
    shared: Arc<Shared>,
    worker: u32,
    fiber: u32,
    ticket: u32,
}

/// The waiters, by key. They are few at any time: a list each.
static PARKED: [Mutex<Vec<Parked>>; 64] = [const { Mutex::new(Vec::new()) }; 64];

fn shard(key: usize) -> usize {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - 6)
}

/// Wakes the fiber that awaits a future.
struct Alarm {
    state: Mutex<AlarmState>,
    shared: Arc<Shared>,
    worker: u32,
    fiber: u32,
}

struct AlarmState {
    woken: bool,
    /// The wait that a wake-up ends. Wakers outlive futures and jobs, and would otherwise end a
    /// later wait.
    ticket: Option<u32>,
}

impl WakeTrait for Alarm {
    fn wake(self: Arc<Self>) {
        let ticket = {
            let mut state = self.state.lock();
            state.woken = true;
            state.ticket.take()
        };
        if let Some(ticket) = ticket {
            self.shared.wake(self.worker, self.fiber, ticket);
        }
    }
}
