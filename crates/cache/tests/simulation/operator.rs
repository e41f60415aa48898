//! What comes to the simulated machine from outside: jobs, and an operator that reads old tokens,
//! pins, rolls back, and makes room.

use std::sync::Arc;

use fulgurite_flash::{FlashError, VersionError, Versions};
use fulgurite_store::{PoolError, View};

use super::fibers::random_job;
use super::machine::Machine;
use super::world::{Contents, Reader, World};

/// Turns in which a roll back waits for jobs that hold pins, before it is given up.
const BUSY_MAX: u32 = 2_000;
/// Syncs that fail one after the other for want of space, before what was not synced is given up.
const SYNCS_IN_VAIN: u32 = 3;

/// An old token that is being read.
struct OldState {
    token: u64,
    contents: Contents,
    reader: Reader,
    /// Dropped after the queue over it.
    _view: Arc<View>,
}

pub struct Operator {
    jobs_left: u32,
    next_job_ns: u64,
    next_event_ns: u64,
    /// The machine is to be rolled back to this token: no write section begins until then.
    roll_back_to: Option<u64>,
    /// No job begins any more until then.
    drains: bool,
    /// Turns in which that was tried, and jobs held pins.
    busy: u32,
    wants_sync: bool,
    in_vain: u32,
    /// The pool takes no more changes.
    pub is_poisoned: bool,
    pub last_sync: Option<Result<(), FlashError>>,
    old: Option<OldState>,
    pub ticks: bool,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator")
            .field("jobs_left", &self.jobs_left)
            .field("roll_back_to", &self.roll_back_to)
            .field("wants_sync", &self.wants_sync)
            .field("in_vain", &self.in_vain)
            .finish_non_exhaustive()
    }
}

impl Operator {
    pub fn new(world: &mut World) -> Operator {
        let now = world.disk.now_ns();
        Operator {
            jobs_left: 20 + world.random.below(80),
            next_job_ns: now,
            next_event_ns: now + 500_000,
            roll_back_to: None,
            drains: false,
            busy: 0,
            wants_sync: false,
            in_vain: 0,
            is_poisoned: false,
            last_sync: None,
            old: None,
            ticks: world.random.one_in(4),
        }
    }
    pub fn next_ns(&self) -> u64 {
        let event = if self.roll_back_to.is_some() { u64::MAX } else { self.next_event_ns };
        if self.jobs_left > 0 { self.next_job_ns.min(event) } else { event }
    }
    pub fn is_done(&self, machine: &Machine) -> bool {
        self.jobs_left == 0 && machine.jobs.is_empty() && machine.is_still() && self.roll_back_to.is_none()
    }
    /// Whether no job may begin.
    pub fn drains(&self) -> bool {
        self.drains
    }
    /// The last write-back that failed says that there is no room, or that nothing can be written
    /// any more.
    pub fn write_failed(&mut self, error: FlashError) {
        self.wants_sync |= error == FlashError::NoSpace;
        self.is_poisoned |= error == FlashError::Poisoned;
    }
    pub fn rolled_back(&mut self) {
        self.wants_sync = false;
    }
    pub fn forget_old(&mut self) {
        self.old = None;
    }
    fn goes_back_to(&mut self, token: u64, drains: bool) {
        (self.roll_back_to, self.drains, self.busy) = (Some(token), drains, 0);
    }
    pub fn sync_ended(&mut self, result: Result<(), FlashError>) {
        self.last_sync = Some(result);
        self.in_vain = if result.is_ok() { 0 } else { self.in_vain + 1 };
        self.wants_sync = result == Err(FlashError::NoSpace);
    }
}

impl Machine {
    /// Nothing runs, and nothing is under way.
    pub fn is_still(&self) -> bool {
        let still = |w: &super::machine::Worker| w.idle.len() == w.fibers.len() && w.cache.in_flight() == 0;
        self.workers.iter().all(still) && self.cut.is_none() && self.shared.cut.left() == 0
    }
    /// An error of a change of the pool.
    fn allow(&mut self, world: &mut World, what: &str, error: PoolError) {
        match error {
            PoolError::Flash(error) => {
                world.allow(what, error);
                self.operator.is_poisoned = true;
            }
            PoolError::Write(error) => {
                let error = FlashError::from(error);
                world.allow(what, error);
                self.operator.is_poisoned |= error != FlashError::NoSpace;
            }
            other => panic!("{what}: {other}"),
        }
    }
    pub fn operate(&mut self, world: &mut World) {
        let now = world.disk.now_ns();
        if self.operator.jobs_left > 0 && now >= self.operator.next_job_ns {
            self.operator.jobs_left -= 1;
            let gap = if world.random.one_in(2) { 100_000 } else { 1_000_000 };
            self.operator.next_job_ns = now + world.random.below(gap);
            let job = random_job(&mut world.random, world.now.len() as u32, now);
            let oldest_wait_ns = self.jobs.front().map_or(0, |job| now - job.arrived_ns);
            match self.admission.admit(now, oldest_wait_ns) {
                Ok(()) => self.jobs.push_back(job),
                Err(refused) => {
                    assert_eq!(refused.wait_ns, oldest_wait_ns);
                    world.report.refused_jobs += 1;
                }
            }
        }
        if let Some(error) = self.write_failure() {
            self.operator.write_failed(error);
        }
        if self.operator.roll_back_to.is_some() {
            if self.cut.is_none() {
                self.gate_closed = true;
                if self.is_drained() {
                    self.try_to_roll_back(world);
                }
            }
            return;
        }
        if self.operator.in_vain >= SYNCS_IN_VAIN {
            self.give_up_what_was_not_synced(world);
        } else if self.operator.wants_sync && self.cut.is_none() {
            if self.operator.in_vain > 0 {
                self.make_space(world);
            }
            self.begin_cut(world, None);
        }
        if now >= self.operator.next_event_ns {
            self.operator.next_event_ns = now + 100_000 + world.random.below(4_000_000);
            self.event(world);
        }
    }
    fn event(&mut self, world: &mut World) {
        let event = world.random.below(12u64);
        world.note(&[13, event]);
        if !world.keeps() && !(3..=6).contains(&event) {
            return;
        }
        let kept: Vec<u64> = Versions::tokens(&*self.pool);
        let some = |world: &mut World| {
            let count = kept.len() as u32;
            if count == 0 { None } else { Some(kept[world.random.below(count) as usize]) }
        };
        match event {
            0..=2 => self.look_at_old_state(world, &kept),
            3 | 4 => match self.pool.reclaim_one() {
                Ok(reclaimed) => world.report.reclaimed += u64::from(reclaimed),
                Err(error) => self.allow(world, "reclaiming", error),
            },
            5 => match self.pool.checkpoint() {
                Ok(()) => world.report.checkpoints += 1,
                Err(error) => self.allow(world, "a checkpoint", error),
            },
            6 => self.check(world),
            7 => {
                if let Some(token) = some(world) {
                    self.change_pin(world, token);
                }
            }
            8 => {
                if let Some(token) = some(world) {
                    self.operator.goes_back_to(token, world.random.one_in(2));
                }
            }
            9 => {
                if let Err(error) = self.pool.drop_tokens(1) {
                    self.allow(world, "dropping tokens", error);
                }
            }
            _ => self.operator.wants_sync = true,
        }
    }
    fn change_pin(&mut self, world: &mut World, token: u64) {
        let pinned = !world.pinned.contains(&token);
        // One at a time, so that the pool is not full of them; and not one that its reader pins.
        if pinned && !world.pinned.is_empty() || self.operator.old.is_some() {
            return;
        }
        // Not kept any more, or not yet, until that has ended.
        world.pinned.remove(&token);
        match self.pool.pin(token, pinned) {
            Ok(()) if pinned => _ = world.pinned.insert(token),
            Ok(()) => {}
            Err(error) => {
                world.perhaps_pinned.insert(token);
                self.allow(world, "pinning", error);
            }
        }
    }
    fn look_at_old_state(&mut self, world: &mut World, kept: &[u64]) {
        if let Some(mut old) = self.operator.old.take() {
            let subpages: Vec<u32> =
                (0..1 + world.random.below(12)).map(|_| world.random.below(world.now.len() as u32)).collect();
            world.report.views += 1;
            let read = old.reader.read(world, &subpages, &old.contents);
            if read && !world.random.one_in(3) {
                self.operator.old = Some(old);
            } else {
                self.close(world, old);
            }
            return;
        }
        if kept.is_empty() {
            return;
        }
        let token = kept[world.random.below(kept.len() as u32) as usize];
        match self.pool.view(token) {
            Ok(view) => {
                let contents = world.tokens[&token].clone();
                let view = Arc::new(view);
                let reader = Reader::new(world, &fulgurite_flash::Layered::new(view.clone()));
                self.operator.old = Some(OldState { token, contents, reader, _view: view });
            }
            Err(error) => self.allow(world, "reading an old token", error),
        }
    }
    fn close(&mut self, world: &mut World, old: OldState) {
        drop(old);
        // What it pinned may go by now.
        world.settle(&self.pool);
    }
    fn close_old(&mut self, world: &mut World) {
        if let Some(old) = self.operator.old.take() {
            self.close(world, old);
        }
    }
    /// All that keeps older versions is removed, except for the newest token.
    fn make_space(&mut self, world: &mut World) {
        self.close_old(world);
        for token in std::mem::take(&mut world.pinned) {
            if let Err(error) = self.pool.pin(token, false) {
                world.perhaps_pinned.insert(token);
                self.allow(world, "unpinning", error);
            }
        }
        if world.keeps()
            && let Err(error) = self.pool.drop_tokens(1)
        {
            self.allow(world, "dropping tokens", error);
        }
    }
    /// More was written than there is room for, and not synced: back to the newest token.
    fn give_up_what_was_not_synced(&mut self, world: &mut World) {
        self.make_space(world);
        self.operator.in_vain = 0;
        match Versions::tokens(&*self.pool).last() {
            Some(token) => self.operator.goes_back_to(*token, true),
            // There is none: the next life begins with an empty pool.
            None => self.operator.is_poisoned = true,
        }
    }
    /// Tries to go back to the token that was chosen. Whatever comes of it but that jobs hold pins,
    /// it is over then.
    fn try_to_roll_back(&mut self, world: &mut World) {
        let token = self.operator.roll_back_to.expect("it was said where to");
        let kept = Versions::tokens(&*self.pool);
        let may = Versions::can_roll_back(&*self.pool, token);
        if !kept.contains(&token) {
            let said = matches!(may, Err(VersionError::NoToken { .. } | VersionError::Flash(_)));
            assert!(said, "{may:?}, with {kept:?}");
        }
        // It is tried nevertheless where it will be refused: nothing may come of that.
        if kept.contains(&token)
            && world.random.one_in(2)
            && let Some(old) = self.operator.old.take()
        {
            let in_use = matches!(may, Err(VersionError::InUse { .. }));
            // A device that is dead says that first.
            let said = !matches!(may, Err(VersionError::Flash(_)));
            assert!(!said || in_use == (old.token > token), "{may:?}, while {} is read", old.token);
            self.close(world, old);
        }
        // What a user has pinned is never taken away.
        if let Err(VersionError::Pinned { pinned, .. }) = may {
            assert!(
                pinned > token && (world.pinned.contains(&pinned) || world.perhaps_pinned.contains(&pinned)),
                "{pinned} of {:?}, back to {token}",
                world.pinned
            );
        }
        if world.disk.is_dead() {
            return;
        }
        self.operator.busy += 1;
        if self.roll_back(world, token) || self.operator.busy > BUSY_MAX && !self.operator.drains {
            (self.operator.roll_back_to, self.operator.drains) = (None, false);
            self.open_gate(world);
        }
    }
    /// Nothing fails any more: all that is written can be synced, or at least be given up, and is
    /// there.
    pub fn come_to_rest(&mut self, world: &mut World) {
        self.make_space(world);
        self.operator.last_sync = None;
        while self.operator.last_sync != Some(Ok(())) && !self.operator.is_poisoned {
            self.operator.wants_sync |= self.operator.roll_back_to.is_none();
            self.turn(world);
        }
        if self.operator.is_poisoned {
            let info = self.pool.info();
            // What a pool promises it has room for, unless flash pages have failed or it has no
            // token to go back to.
            let may = world.keeps() && Versions::tokens(&*self.pool).is_empty() || info.bad_pages > 0;
            assert!(may && self.pool_is_only_full(), "the pool cannot be used any more: {info:?}");
            return;
        }
        while !self.is_still() || self.operator.roll_back_to.is_some() {
            self.turn(world);
        }
        let clean = self.workers.iter().all(|w| w.cache.dirty_subpages().next().is_none());
        if clean {
            let pool = self.pool.clone();
            assert!(world.read_all(&pool));
        }
    }
    fn pool_is_only_full(&self) -> bool {
        self.write_failure().is_none_or(|error| error == FlashError::NoSpace)
    }
}
