//! `sync` and `roll_back` as callers see them: from a thread that is no worker, one at a time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use fulgurite_cache::StillThere;
use fulgurite_flash::{FlashError, VersionError, Versions};
use fulgurite_format::{Address, SUBPAGE_BYTES};

use crate::context::Context;
use crate::error::{AccessError, SyncError};
use crate::guest::seats::HaltedThreads;
use crate::halt::{Decision, Halt, HaltReport, Halted};
use crate::job::JobError;
use crate::mailbox::Message;
use crate::objects::{Objects, PlantedInObjects};
use crate::runtime::{Runtime, result_of};
use crate::thread::assert_foreign;

/// State in DRAM that belongs to the data in flash: an allocator's free lists, the root of a tree.
pub trait Durable: Send + Sync {
    /// Writes the state to where [`Durable::reload`] finds it. Called in every sync, while no write
    /// section is open.
    ///
    /// # Errors
    /// Whatever the memory says; the sync then fails with it.
    fn save(&self, context: &mut Context) -> Result<(), AccessError>;
    /// The memory was rolled back to this token, and no job has gone on yet: those that noted
    /// something of the state before must find out. Called on the thread that rolls back, before
    /// [`Durable::reload`]. There is no context, and no lock that is held across an access may be
    /// taken.
    fn rolled_back(&self, _token: u64) {}
    /// Takes up the memory's state, and forgets its own. Called after every roll back, before any
    /// write section begins.
    ///
    /// # Errors
    /// Whatever the memory says; the roll back has then failed half way ([`SyncError::Poisoned`]).
    fn reload(&self, context: &mut Context) -> Result<(), AccessError>;
}

/// What a sync did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Synced {
    /// Names the state. Survives a crash from now on.
    pub token: u64,
    /// Subpages that had to be written for it.
    pub subpages: u64,
    /// Of these, copied during the halt, because they are pinned.
    pub copied: u64,
    /// How long no write section could begin.
    pub gate: Duration,
    /// Of that, how long open sections took to end.
    pub drain: Duration,
    /// How long the worker that waited the longest stood still.
    pub halt: Duration,
    /// All of it, until the token was durable.
    pub took: Duration,
}

/// While it lives, no sync and no roll back begins. See [`Runtime::hold_state`].
pub struct StateHeld<'r> {
    runtime: &'r Runtime,
    _turn: parking_lot::MutexGuard<'r, ()>,
}

impl std::fmt::Debug for StateHeld<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateHeld")
    }
}

impl StateHeld<'_> {
    /// As [`Runtime::run`], on a fiber of the runtime's own. Jobs may hold all others until the
    /// state changes, which it cannot now.
    ///
    /// # Errors
    /// As [`Runtime::run`].
    ///
    /// # Panics
    /// As [`Runtime::run`].
    pub fn run<'env, T, F>(&self, code: F) -> Result<T, AccessError>
    where
        T: Send + 'env,
        F: FnOnce(&mut Context) -> Result<T, AccessError> + Send + 'env,
    {
        result_of(self.runtime.run_own("changes of a held state", code))
    }

    /// Takes a range of whole subpages out of DRAM, with its changes written back or dropped. Later
    /// accesses ask the medium anew. Concurrent accesses may bring it in again.
    ///
    /// # Errors
    /// [`SyncError::Busy`] when pins on it are not dropped in time.
    ///
    /// # Panics
    /// Inside a job.
    pub fn take_out(&self, at: Address, bytes: u64, write_back: bool) -> Result<(), SyncError> {
        assert_foreign("take memory out of DRAM");
        if write_back {
            self.runtime.write_objects()?;
        }
        let range = subpages_of(at, bytes);
        if let Some((objects, pool)) = self.runtime.objects() {
            objects.settle(pool, self.runtime.patience())?;
            objects.forget_range(&range);
        }
        self.take_frames_out(&[range], write_back, self.runtime.shared.config.gate_timeout)
    }

    /// Takes ascending ranges of whole subpages without objects out of DRAM, with their changes
    /// dropped. Waits for pins up to `patience`, and no longer than the time-out of the gate.
    ///
    /// # Errors
    /// As [`StateHeld::take_out`].
    ///
    /// # Panics
    /// Inside a job.
    pub fn drop_changes(
        &self,
        ranges: impl IntoIterator<Item = (Address, u64)>,
        patience: Duration,
    ) -> Result<(), SyncError> {
        assert_foreign("take memory out of DRAM");
        let ranges: Vec<_> = ranges.into_iter().map(|(at, bytes)| subpages_of(at, bytes)).collect();
        self.take_frames_out(&ranges, false, patience.min(self.runtime.shared.config.gate_timeout))
    }

    fn take_frames_out(&self, ranges: &[Range<u32>], write_back: bool, patience: Duration) -> Result<(), SyncError> {
        let (shared, ranges) = (&self.runtime.shared, Arc::<[Range<u32>]>::from(ranges));
        let end_ns = shared.clock.after(patience);
        loop {
            let replies = shared.ask(|reply| Message::TakeOut { ranges: ranges.clone(), write_back, reply });
            let still: Vec<StillThere> =
                replies.into_iter().map(|answer| answer.recv().expect("workers outlive their runtime")).collect();
            if still.iter().all(|s| s.count == 0) {
                return Ok(());
            }
            if shared.clock.now_ns() > end_ns {
                return Err(SyncError::Busy { pins: still.iter().map(|s| s.pinned).sum() });
            }
            shared.clock.sleep(Duration::from_micros(50));
        }
    }
}

fn subpages_of(at: Address, bytes: u64) -> Range<u32> {
    let subpage = |linear: u64| u32::try_from(linear / SUBPAGE_BYTES as u64).unwrap_or(u32::MAX);
    subpage(at.linear())..subpage(at.linear().saturating_add(bytes))
}

/// Opens all gates when it is dropped.
struct ClosedGate<'a>(&'a Runtime);

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        self.0.shared.seats.open_gate();
        self.0.shared.mailboxes.iter().for_each(|m| m.send(Message::OpenGate));
    }
}

/// A sync under way. What it holds up continues when it ends, also by a panic of the medium.
struct Underway<'a> {
    runtime: &'a Runtime,
    versions: &'a dyn Versions,
    made: bool,
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        // While refused writers still wait.
        self.runtime.count_changes();
        self.runtime.shared.cache.cut.over();
        self.versions.sync_ended(self.made);
    }
}

/// Until it is dropped, no object is written except for the sync.
struct HeldObjects<'a>(&'a Runtime);

impl<'a> HeldObjects<'a> {
    fn begin(runtime: &'a Runtime) -> HeldObjects<'a> {
        runtime.shared.objects.iter().for_each(|objects| objects.hold(true));
        HeldObjects(runtime)
    }
}

impl Drop for HeldObjects<'_> {
    fn drop(&mut self) {
        self.0.shared.objects.iter().for_each(|objects| objects.hold(false));
    }
}

/// What is written until it is dropped belongs to the token, or waits.
struct OpenCut<'a>(&'a Runtime);

impl Drop for OpenCut<'_> {
    fn drop(&mut self) {
        self.0.shared.cache.cut.end();
        // Waiters for a frame that was held back are notified.
        self.0.shared.mailboxes.iter().for_each(|m| m.send(Message::Nudge));
    }
}

/// Workers halted for a roll back. Dropped before its end was decided, it means that the medium has
/// panicked in the middle.
struct HeldWorkers<'a> {
    runtime: &'a Runtime,
    halt: &'a Halt,
    threads: &'a HaltedThreads<'a>,
    decided: bool,
}

impl HeldWorkers<'_> {
    /// Lets them go on.
    fn decide(mut self, decision: Decision) {
        self.decided = true;
        if decision == Decision::Forget {
            self.runtime.forget_objects();
            self.runtime.shared.roll_backs.fetch_add(1, Ordering::Release);
        }
        self.make_known(decision);
    }
    /// Threads stand still until all workers have done it.
    fn make_known(&self, decision: Decision) {
        self.halt.decide(decision);
        if decision == Decision::Forget {
            self.halt.wait_until_forgotten(self.runtime.workers());
            self.threads.forget();
        }
    }
    /// Lets them continue in a poisoned memory. Returns the error that its users get.
    fn poison(self, cause: SyncError) -> SyncError {
        let poisoned = self.runtime.poison(cause);
        self.decide(Decision::Forget);
        poisoned
    }
}

impl Drop for HeldWorkers<'_> {
    fn drop(&mut self) {
        if !self.decided {
            self.runtime.poison(FlashError::Poisoned.into());
            self.runtime.forget_objects();
            self.make_known(Decision::Forget);
        }
    }
}

impl Runtime {
    /// Names the state of the whole memory between two write sections, and returns when a crash
    /// would leave it.
    ///
    /// Readers continue all the while, but for a halt of microseconds. Writers wait at the gate
    /// until open sections have ended. One sync runs at a time, and a second caller waits for the
    /// first.
    ///
    /// # Errors
    /// [`SyncError`]. No token was made; what was written is still there, in DRAM and in flash.
    ///
    /// # Panics
    /// Inside a job.
    pub fn sync(&self) -> Result<Synced, SyncError> {
        assert_foreign("sync");
        self.check_process()?;
        let shared = &self.shared;
        let versions = self.versions()?;
        let _turn = shared.sync_turn.lock();
        self.is_whole()?;
        versions.sync_begins();
        let mut underway = Underway { runtime: self, versions, made: false };
        let synced = self.sync_in_turn(versions);
        underway.made = synced.is_ok();
        drop(underway);
        synced.map_err(|error| match error {
            SyncError::Version(VersionError::Flash(FlashError::NoSpace)) => {
                SyncError::NoSpace { uncommitted: versions.uncommitted(), shortage: versions.shortage() }
            }
            error => error,
        })
    }

    /// The sync of the caller whose turn it is.
    fn sync_in_turn(&self, versions: &dyn Versions) -> Result<Synced, SyncError> {
        let shared = &self.shared;
        self.wait_for_cut()?;
        // Most of them while writers go on, so that the gate is not closed for long.
        self.write_objects()?;
        let begun_ns = shared.clock.now_ns();
        let gate = self.close_gate()?;
        let drain = shared.clock.since(begun_ns);
        let held = HeldObjects::begin(self);
        self.each_part("saved", |part, context| part.save(context))?;
        self.write_objects()?;
        *shared.cut_waits.lock() = Some(std::thread::current());
        shared.cache.cut.begin();
        let threads = shared.seats.halt();
        let mut reports = self.halt_workers(Halted::Seal).1;
        drop(threads);
        drop(gate);
        let closed = shared.clock.since(begun_ns);
        // Here and not on the worker, which serves its readers meanwhile.
        for report in &mut reports {
            let mut order = std::mem::take(&mut report.order);
            order.sort_unstable();
            shared.mailboxes[report.worker as usize].send(Message::Pump(order));
        }
        self.wait_for_cut()?;
        if shared.objects.as_ref().is_some_and(|objects| objects.has(PlantedInObjects::NotHeld)) {
            // What jobs have changed since the cut. Without that it would seldom show.
            self.write_objects()?;
        }
        let open = OpenCut(self);
        let named = match shared.cache.cut.failure() {
            Some(error) => Err(error.into()),
            None => versions.name_state(),
        };
        drop(open);
        drop(held);
        let token = named?;
        versions.wait_durable(token)?;
        Ok(Synced {
            token,
            subpages: reports.iter().map(|r| r.sealed + r.copied).sum(),
            copied: reports.iter().map(|r| r.copied).sum(),
            gate: closed,
            drain,
            halt: Duration::from_nanos(reports.iter().map(|r| r.stood_ns).max().unwrap_or(0)),
            took: shared.clock.since(begun_ns),
        })
    }

    /// Tells a medium that asks before changes how many frames differ from it. Each sync does so.
    /// Do it again when the medium begins to ask while frames may differ.
    pub fn count_changes(&self) {
        let shared = &self.shared;
        let Some(backing) = shared.flash.backing().filter(|backing| backing.asks()) else { return };
        let Some(versions) = backing.versions() else { return };
        versions.counting_begins();
        let counts = shared.ask(Message::CountChanges);
        let differ: u64 = counts.into_iter().map(|count| count.recv().expect("workers outlive their runtime")).sum();
        let differ = differ + shared.objects.as_ref().map_or(0, Objects::changes);
        // Each worker may have been allowed to change another's frame, which was counted before it
        // did.
        versions.counted(differ + shared.mailboxes.len() as u64);
    }

    /// Returns the memory to a token's state. Later writes and newer tokens are gone.
    ///
    /// Running jobs continue, and find the older contents at their next access. They must forget
    /// pointers that they hold. Returns when a crash would leave this state. A crash during it
    /// leaves either state, whole.
    ///
    /// # Errors
    /// [`SyncError::Poisoned`] when it failed half way, now or earlier: the memory is unusable.
    /// After other errors nothing was changed: [`SyncError::Busy`] while jobs hold pins,
    /// [`SyncError::SectionOpen`], and [`SyncError::Version`] when the medium refuses, takes no
    /// more changes, or did not finish its requests.
    ///
    /// # Panics
    /// Inside a job.
    pub fn roll_back(&self, token: u64) -> Result<(), SyncError> {
        assert_foreign("roll back");
        self.check_process()?;
        let shared = self.shared.clone();
        let versions = self.versions()?;
        let _turn = shared.sync_turn.lock();
        self.is_whole()?;
        self.wait_for_cut()?;
        versions.can_roll_back(token)?;
        let _gate = self.close_gate()?;
        // What is under way would be recorded after it.
        if let Some((objects, pool)) = self.objects() {
            objects.settle(pool, self.patience())?;
        }
        let threads = shared.seats.halt();
        let pins = shared.seats.pins();
        if pins > 0 {
            return Err(SyncError::Busy { pins });
        }
        let (halt, reports) = self.halt_workers(Halted::RollBack);
        if let Some(pins) = reports.iter().map(|r| r.pins).max().filter(|&pins| pins > 0) {
            return Err(SyncError::Busy { pins });
        }
        if let Some(error) = reports.iter().find_map(|r| r.failure) {
            return Err(error.into());
        }
        let held = HeldWorkers { runtime: self, halt: &halt, threads: &threads, decided: false };
        // Writes while sections ended may have cost the token. Now nothing writes, and the medium
        // decides and changes in one step. Frames are forgotten after that, so a whole state exists
        // at any time.
        let rolled_back = match versions.can_roll_back(token) {
            Ok(()) => versions.roll_back(token),
            Err(error) => {
                held.decide(Decision::Keep);
                return Err(error.into());
            }
        };
        match rolled_back {
            Ok(()) => {
                self.parts.lock().iter().for_each(|part| part.rolled_back(token));
                held.decide(Decision::Forget);
            }
            Err(error) if error.is_refusal() => {
                held.decide(Decision::Keep);
                return Err(error.into());
            }
            Err(error) => return Err(held.poison(error.into())),
        }
        drop(threads);
        self.each_part("reloaded", |part, context| part.reload(context)).map_err(|error| {
            let poisoned = self.poison(error);
            let threads = shared.seats.halt();
            self.forget_objects();
            self.halt_workers(Halted::Poison);
            threads.forget();
            poisoned
        })
    }

    /// Whether anything of the memory may be used.
    fn is_whole(&self) -> Result<(), SyncError> {
        self.shared.poisoned.get().map_or(Ok(()), |poisoned| Err(poisoned.clone()))
    }
    /// Poisons the memory after its workers have forgotten their frames. Returns the error that its
    /// users get.
    fn poison(&self, cause: SyncError) -> SyncError {
        self.shared.poisoned.get_or_init(|| SyncError::Poisoned { cause: Box::new(cause) }).clone()
    }

    fn objects(&self) -> Option<(&Objects, &dyn fulgurite_flash::Objects)> {
        Some((self.shared.objects.as_ref()?, self.shared.flash.backing()?.objects()?))
    }
    /// Writes the objects that are dirty now, and waits.
    fn write_objects(&self) -> Result<(), SyncError> {
        let Some((objects, pool)) = self.objects() else { return Ok(()) };
        objects.write_all(pool, self.patience()).map_err(|error| VersionError::Flash(error).into())
    }
    /// Objects are read from flash from now on.
    fn forget_objects(&self) {
        self.shared.objects.iter().for_each(Objects::forget);
    }
    /// A pause that fails when nothing has changed for as long as a request may take.
    fn patience(&self) -> impl FnMut(usize) -> Result<(), FlashError> {
        let (clock, limit) = (self.shared.clock.clone(), self.shared.config.device_timeout);
        let mut seen = (usize::MAX, clock.now_ns());
        move |waits| {
            if waits != seen.0 {
                seen = (waits, clock.now_ns());
            } else if clock.since(seen.1) > limit {
                return Err(FlashError::TimedOut);
            }
            clock.sleep(Duration::from_micros(20));
            Ok(())
        }
    }

    /// Keeps syncs and roll backs away until it is dropped, for changes of the medium that belong
    /// together.
    ///
    /// # Errors
    /// When a sync that was given up is still being written; [`SyncError::Poisoned`].
    pub fn hold_state(&self) -> Result<StateHeld<'_>, SyncError> {
        self.check_process()?;
        let turn = self.shared.sync_turn.lock();
        self.is_whole()?;
        self.wait_for_cut()?;
        Ok(StateHeld { runtime: self, _turn: turn })
    }

    /// The tokens that are kept, ascending; none where the medium keeps no versions.
    pub fn tokens(&self) -> Vec<u64> {
        self.shared.flash.versions().map(Versions::tokens).unwrap_or_default()
    }

    /// From now on, every sync saves this, and every roll back reloads it, in the order of these
    /// calls.
    pub fn keep(&self, part: Arc<dyn Durable>) {
        self.parts.lock().push(part);
    }

    fn versions(&self) -> Result<&dyn Versions, SyncError> {
        self.shared.flash.versions().ok_or_else(|| SyncError::NoVersions { medium: self.shared.flash.describe() })
    }

    /// Waits until what a cut left to be written has been, as long as the medium goes on with it.
    fn wait_for_cut(&self) -> Result<(), FlashError> {
        let (cut, clock) = (&self.shared.cache.cut, &self.shared.clock);
        let patience = self.shared.config.device_timeout;
        let (mut left, mut since) = (cut.left(), clock.now_ns());
        while left > 0 {
            std::thread::park_timeout(Duration::from_millis(5));
            let now = cut.left();
            if now != left {
                (left, since) = (now, clock.now_ns());
            } else if clock.since(since) > patience {
                cut.abandon();
                return Err(FlashError::TimedOut);
            }
        }
        Ok(())
    }

    /// Closes the gate, and waits for the sections that are open.
    fn close_gate(&self) -> Result<ClosedGate<'_>, SyncError> {
        let clock = &self.shared.clock;
        let begun_ns = clock.now_ns();
        let end_ns = clock.after(self.shared.config.gate_timeout);
        let gate = ClosedGate(self);
        self.shared.seats.close_gate();
        let drained = self.shared.ask(Message::CloseGate);
        for (worker, answer) in drained.into_iter().enumerate() {
            if clock.receive_until(&answer, end_ns).is_err() {
                return Err(SyncError::SectionOpen { worker, waited: clock.since(begun_ns) });
            }
        }
        match self.shared.seats.drain(|| clock.now_ns() > end_ns) {
            Some(_) => Err(SyncError::SectionOpenInThread { waited: clock.since(begun_ns) }),
            None => Ok(gate),
        }
    }

    /// Halts all workers.
    fn halt_workers(&self, what: Halted) -> (Arc<Halt>, Vec<HaltReport>) {
        let workers = self.shared.mailboxes.len();
        let (reports, reported) = mpsc::channel();
        let halt = Halt::new(what, workers, reports);
        self.shared.mailboxes.iter().for_each(|m| m.send(Message::Halt(halt.clone())));
        let all = (0..workers).map(|_| reported.recv().expect("workers outlive their runtime")).collect();
        (halt, all)
    }

    /// Calls something of each part. All fibers of jobs may wait at the gate.
    fn each_part(
        &self,
        what: &'static str,
        call: impl Fn(&dyn Durable, &mut Context) -> Result<(), AccessError> + Send,
    ) -> Result<(), SyncError> {
        let parts = self.parts.lock().clone();
        if parts.is_empty() {
            return Ok(());
        }
        let called = self
            .run_own("parts of the runtime", move |context| parts.iter().try_for_each(|part| call(&**part, context)));
        match called {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(SyncError::Part { what, source }),
            Err(JobError::Panicked { message, .. }) => Err(SyncError::PartDied { what, message }),
            Err(error) => Err(SyncError::PartDied { what, message: error.to_string() }),
        }
    }
}
