//! Syncs and roll backs, as the runtime has them: the gate is closed, sections end, all workers
//! halt, and frames are sealed or forgotten. The caches write what differs. Later writes stay off
//! flash until the state is named. A sync waits until its token is durable.

use std::rc::Rc;

use fulgurite_flash::{Backing, FlashError, Layer, VersionError, Versions};

use super::fibers::Wake;
use super::machine::{DEVICE_TIMEOUT_NS, Machine, Mail, divided, wait_for_device};
use super::world::{Contents, Harness, World};

/// How far a sync is.
#[derive(Debug)]
enum Phase {
    /// The gate is closed: until no section is open.
    Closing,
    /// Until all that was sealed is on flash: how much was left, and since when.
    Writing(Contents, u64, u64),
    /// The state is named: until that is durable.
    Named(u64),
}

#[derive(Debug)]
pub struct Cut {
    phase: Phase,
    waiter: Option<(usize, u32)>,
}

pub fn flash_error(error: VersionError) -> FlashError {
    match error {
        VersionError::Flash(error) => error,
        other => panic!("a sync ends with \"{other}\""),
    }
}

impl Machine {
    pub fn begin_cut(&mut self, world: &mut World, waiter: Option<(usize, u32)>) {
        assert!(self.cut.is_none());
        Versions::sync_begins(&*self.pool);
        self.gate_closed = true;
        self.cut = Some(Cut { phase: Phase::Closing, waiter });
        world.note(&[10]);
    }
    /// Whether the gate may be kept closed: it is not while a section is open, or what an earlier
    /// cut left is not written.
    pub fn is_drained(&self) -> bool {
        self.open_sections == 0 && self.shared.cut.left() == 0
    }
    pub fn open_gate(&mut self, world: &World) {
        self.gate_closed = false;
        for (worker, fiber) in std::mem::take(&mut self.gate_waiters) {
            self.wake(world, worker, fiber, Wake::Retry);
        }
    }
    /// Every worker stands between two fibers.
    pub fn halt(&mut self, world: &mut World) {
        for worker in 0..self.workers.len() {
            if let Some(at) = self.workers[worker].at_frame {
                let request_ns = self.workers[worker].fibers[at.fiber as usize].request_ns();
                self.use_frame(world, worker);
                let now = world.disk.now_ns();
                self.workers[worker].scheduler.yielded(fulgurite_policy::FiberIndex(at.fiber), request_ns, now);
            }
            self.slots.clear(worker);
        }
    }
    fn seal(&mut self, world: &mut World) {
        self.halt(world);
        self.shared.cut.begin();
        self.shared.cut.hold_back();
        let contents = Rc::new(world.now.clone());
        let disk = world.disk.clone();
        let sealed: Vec<_> = self.workers.iter_mut().map(|w| w.cache.seal()).collect();
        for (worker, mut sealed) in sealed.into_iter().enumerate() {
            let (here, mut others) = divided(&mut self.workers, worker);
            let mut wait = |cache: &mut _| wait_for_device(&disk, cache, &mut others);
            here.write_pinned(&sealed.pinned, disk.now_ns(), &mut wait);
            sealed.order.sort_unstable();
            here.begin_pump(sealed.order);
            world.note(&[15, sealed.sealed, sealed.pinned.len() as u64]);
        }
        (0..self.workers.len()).for_each(|worker| self.deliver(world, worker));
        self.open_gate(world);
        let left = self.shared.cut.left();
        self.cut.as_mut().expect("it is made").phase = Phase::Writing(contents, left, disk.now_ns());
    }
    pub fn advance_cut(&mut self, world: &mut World) {
        let Some(cut) = &mut self.cut else { return };
        let now = world.disk.now_ns();
        match &mut cut.phase {
            Phase::Closing => {
                if self.is_drained() {
                    self.seal(world);
                }
            }
            Phase::Writing(contents, seen, since) => {
                let left = self.shared.cut.left();
                if left > 0 {
                    if left != *seen {
                        (*seen, *since) = (left, now);
                    } else if now - *since > DEVICE_TIMEOUT_NS {
                        self.shared.cut.abandon();
                        world.allow("writing a cut", FlashError::TimedOut);
                        self.end_cut(world, Err(FlashError::TimedOut));
                    }
                    return;
                }
                let contents = contents.clone();
                let named = match self.shared.cut.failure() {
                    Some(error) => Err(error),
                    None => Versions::name_state(&*self.pool).map_err(flash_error),
                };
                self.shared.cut.end();
                match named {
                    Ok(_) if !world.keeps() => self.end_cut(world, Ok(())),
                    Ok(token) => {
                        assert!(world.tokens.insert(token, contents).is_none(), "token {token} was named twice");
                        self.cut.as_mut().expect("seen above").phase = Phase::Named(token);
                        world.note(&[11, token]);
                    }
                    Err(error) => {
                        world.allow("writing and naming a state", error);
                        self.end_cut(world, Err(error));
                    }
                }
            }
            Phase::Named(token) => {
                let token = *token;
                self.finish_if_durable(world, token);
            }
        }
    }
    fn finish_if_durable(&mut self, world: &mut World, token: u64) {
        let durable = if world.random.one_in(16) {
            Versions::wait_durable(&*self.pool, token).map(|()| true).map_err(flash_error)
        } else {
            self.pool.work();
            self.pool.is_flushed(token)
        };
        match durable {
            Ok(false) if !world.has(Harness::EarlySync) => {}
            Ok(_) => {
                world.acknowledged = token;
                world.report.syncs += 1;
                self.end_cut(world, Ok(()));
            }
            Err(error) => {
                world.allow("making a token durable", error);
                self.operator.is_poisoned = true;
                self.end_cut(world, Err(error));
            }
        }
    }
    fn end_cut(&mut self, world: &mut World, result: Result<(), FlashError>) {
        world.note(&[12, u64::from(result.is_ok())]);
        world.report.failed_syncs += u64::from(result.is_err());
        self.count_changes();
        self.shared.cut.over();
        Versions::sync_ended(&*self.pool, result.is_ok());
        self.operator.sync_ended(result);
        let cut = self.cut.take().expect("it ends");
        if let Some((worker, fiber)) = cut.waiter {
            self.wake(world, worker, fiber, result.map_or_else(Wake::Failed, |()| Wake::Synced));
        }
        for (worker, fiber) in std::mem::take(&mut self.cut_waiters) {
            self.wake(world, worker, fiber, Wake::Retry);
        }
    }
    /// Tells a pool that asks before changes how many frames differ.
    fn count_changes(&mut self) {
        if !self.flash.backing().is_some_and(Backing::asks) {
            return;
        }
        Versions::counting_begins(&*self.pool);
        let differ: u64 = self.workers.iter_mut().map(|w| w.cache.count_changes()).sum();
        Versions::counted(&*self.pool, differ + self.workers.len() as u64);
    }

    // ---- roll back ----

    /// Goes back to a token, in the midst of jobs, where the gate is closed and no section is open.
    /// False when that cannot be yet, because jobs hold pins or the device does not answer.
    pub fn roll_back(&mut self, world: &mut World, token: u64) -> bool {
        self.halt(world);
        if self.workers.iter().flat_map(|w| &w.fibers).any(|fiber| fiber.pins() > 0) {
            return false;
        }
        let disk = world.disk.clone();
        let mut ended = true;
        for worker in 0..self.workers.len() {
            let (here, mut others) = divided(&mut self.workers, worker);
            ended &= here.let_everything_end(&mut |cache| wait_for_device(&disk, cache, &mut others)).is_ok();
        }
        (0..self.workers.len()).for_each(|worker| self.deliver(world, worker));
        if !ended || disk.is_dead() {
            return ended;
        }
        // Nobody writes any more: what is refused now has changed nothing.
        if Versions::can_roll_back(&*self.pool, token).is_err() {
            world.report.refused_roll_backs += 1;
            return true;
        }
        // From now on either may be there after a crash.
        world.acknowledged = world.acknowledged.min(token);
        world.pinned.retain(|t| *t <= token);
        match Versions::roll_back(&*self.pool, token) {
            Ok(()) => {
                world.report.roll_backs += 1;
                world.note(&[14, token]);
                world.acknowledged = token;
                world.now.clone_from(&world.tokens[&token]);
                world.tokens.retain(|t, _| *t <= token);
                self.operator.rolled_back();
                self.forget();
            }
            Err(VersionError::Flash(error)) => {
                world.allow("rolling back", error);
                self.operator.is_poisoned = true;
            }
            Err(error) => panic!("rolling back to {token}: {error}"),
        }
        true
    }
    /// What is in frames is of the state before.
    fn forget(&mut self) {
        for worker in &mut self.workers {
            let wakes = worker.fibers.iter_mut().filter_map(|fiber| fiber.wake.as_mut());
            let mailed = worker.mail.iter_mut().filter_map(|mail| match mail {
                Mail::Wake { wake, .. } => Some(wake),
                Mail::Join { .. } => None,
            });
            wakes.chain(mailed).filter(|wake| **wake == Wake::Pinned).for_each(|wake| *wake = Wake::Retry);
            worker.cache.forget(false);
        }
    }
}
