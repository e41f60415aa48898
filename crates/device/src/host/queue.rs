//! One worker's queue on a device: steps 1, 2, 7, 8 and 9 of the protocol.
//!
//! Budget: submit, flush and poll together are what a miss costs the worker. A batch is written
//! entry by entry, and then the doorbell word is read once. An empty poll is one load.
//!
//! The device is not believed. An id that is not in flight is counted and passed over. After a
//! damaged entry the driver closes the queue pair, waits until the device has let go of it, and
//! opens another one, as after the device's death. Checksums find damage in the data buffer, where
//! they travel along ([`HostConfig::checks_data`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fulgurite_flash::{Completion, FlashError, Op, OpenError, Queue, QueueFull, ReadOnly, Request, Switches};
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::{Arena, Clock, Notifier};

use super::attach::{Attached, Attempt};
use super::link::{died_again, patiently};
use super::pair::{LET_GO_NS, LIES_MAX, Opening, Pair};
use super::shared::{Covers, Met, keeps};
use crate::entry::{Command, Ended, NO_ID, Opcode, SAY_CHECKSUM, SECTOR_BYTES, Status, VERIFY_CHECKSUM};
use crate::firmware::checksum_of;

/// One in how many empty polls asks whether the device has ended, and looks for overdue requests.
const CHECK: u32 = 128;
/// How often the device's presence is checked, where that is a system call.
const CHECK_NS: u64 = 1_000_000;
/// How long after a failed try to attach again the next one comes, at least.
const TRY_AGAIN_NS: u64 = 1_000_000;
/// The interval after it has failed for a long time.
const TRY_AGAIN_MAX_NS: u64 = 50_000_000;
/// The least time for a device to answer a new attachment, whatever the host's patience is.
const ANSWER_NS: u64 = 1_000_000_000;
/// Queue pairs opened in a row on which no command completes, before the device is given up.
const FRUITLESS_MAX: u32 = 8;
/// The longest sleep: a bell that was scribbled over costs no more than this.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The longest spin before a sleep: about what being woken costs.
const SPIN_MAX_NS: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Free,
    /// Submitted; in the batch, or handed over.
    Request,
    /// Its request has ended by time, and the device may still complete it.
    Late,
}

/// A command id and what it is used for.
#[derive(Clone, Copy)]
struct Slot {
    tag: u64,
    since_ns: u64,
    subpage: u32,
    frame: u32,
    op: Op,
    used: Use,
    /// The device has an entry with this id, and has not ended it.
    sent: bool,
    /// What a flush covers that was sent under this id.
    covers: Option<Covers>,
    /// A place is promised for the copy of this write; there is none, and it is sent without.
    promised: bool,
    unkept: bool,
    /// A flush of the queue's own has the id of this write, which waits for a place for its copy.
    flushing: bool,
    /// The data of this read were damaged on their way, and it was sent once more.
    again: bool,
}

const FREE: Slot = Slot {
    tag: 0,
    since_ns: 0,
    subpage: 0,
    frame: 0,
    op: Op::Flush,
    used: Use::Free,
    sent: false,
    covers: None,
    promised: false,
    unkept: false,
    flushing: false,
    again: false,
};

/// On lines of its own, because the memory next to it may be the device's.
#[repr(align(128))]
pub(super) struct DeviceQueue {
    pair: Pair,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Submitted, not handed over.
    batch: Vec<u16>,
    /// Completions that arose here, which the next poll returns.
    ended: Vec<Completion>,
    opening: Opening,
    frames: Arc<Arena>,
    wake: Arc<Notifier>,
    clock: Clock,
    frame_count: u32,
    sectors: u32,
    flags: u8,
    polls: u32,
    /// Requests whose time is over and that the device has not completed.
    late: usize,
    /// When time-outs are looked for again.
    look_ns: u64,
    timeout_ns: u64,
    /// When it is asked again whether the device is there.
    check_ns: u64,
    /// The pair must be opened anew: since when, and when to try next.
    broken: Option<(u64, u64)>,
    /// That is being tried.
    attempt: Option<Attempt>,
    fruitless: u32,
    /// Completions in a row that were not believed.
    lies: u32,
    /// Writes that have completed since that was said.
    placed: u64,
    /// Writes are kept until a flush covers them.
    keeps: bool,
    /// A flush of the queue's own is under way.
    flushing: bool,
    /// Only its program names states: it never flushes by itself.
    names_states: bool,
    /// Nothing more will come of the device.
    dead: Option<FlashError>,
    /// The device is on another core: to spin for it may pay.
    spins: bool,
    spin_ns: u64,
}

impl DeviceQueue {
    pub(super) fn open(
        opening: Opening,
        frames: Arc<Arena>,
        depth: usize,
        wake: Arc<Notifier>,
    ) -> Result<DeviceQueue, OpenError> {
        let (pair, met) = patiently(&opening.config, || {
            let pair = opening.link(&frames, depth, &wake)?;
            if keeps(&*opening.link, &opening.config, pair.linked.region.capability().features) {
                // Between two states that its program names, more is written than there are frames.
                let frames = if opening.link.names_states() { usize::MAX } else { frames.len() / SUBPAGE_BYTES };
                opening.shared.keeps_for(&opening.config, frames);
            }
            match opening.shared.meets(&opening.link, &opening.config, &pair.linked, &AtomicBool::new(false)) {
                Met::Again => Err(died_again()),
                met => Ok((pair, met)),
            }
        })?;
        let capability = *pair.linked.region.capability();
        let queue = DeviceQueue {
            slots: vec![FREE; depth].into(),
            free: (0..depth as u16).rev().collect(),
            batch: Vec::with_capacity(depth),
            ended: Vec::new(),
            frame_count: u32::try_from(frames.len() / SUBPAGE_BYTES).unwrap_or(u32::MAX),
            sectors: capability.sectors,
            clock: opening.config.clock.clone(),
            flags: 0,
            polls: 0,
            late: 0,
            look_ns: 0,
            check_ns: 0,
            timeout_ns: opening.config.timeout.map_or(u64::MAX, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX)),
            broken: None,
            attempt: None,
            fruitless: 0,
            lies: 0,
            placed: 0,
            keeps: keeps(&*opening.link, &opening.config, capability.features),
            flushing: false,
            names_states: opening.link.names_states(),
            dead: (met == Met::Lost).then_some(FlashError::Poisoned),
            spins: opening.link.has_own_core(),
            spin_ns: SPIN_MAX_NS,
            pair,
            opening,
            frames,
            wake,
        };
        queue.count_frames();
        Ok(queue)
    }

    /// Step 2: the entry of a slot. Where data are copied, also step 1.
    #[inline]
    fn send(&mut self, id: u16) {
        let Slot { op, subpage, frame, .. } = self.slots[usize::from(id)];
        let (opcode, count) = match op {
            Op::Read => (Opcode::Read, 1),
            Op::Write => (Opcode::Write, 1),
            Op::Flush => (Opcode::Flush, 0),
        };
        let (mut flags, mut argument) = (if op == Op::Flush { 0 } else { self.flags }, 0);
        let buffer = match self.pair.buffer {
            None => frame,
            Some(first) => {
                if op == Op::Write {
                    let at = (first as usize + usize::from(id)) * SECTOR_BYTES;
                    Arena::copy(
                        &self.frames,
                        frame as usize * SUBPAGE_BYTES,
                        self.pair.linked.region.arena(),
                        at,
                        SECTOR_BYTES,
                    );
                    if self.opening.config.checks_data {
                        flags |= VERIFY_CHECKSUM;
                        argument = self.checksum(frame).into();
                    }
                } else if op == Op::Read && self.checks_reads() {
                    flags |= SAY_CHECKSUM;
                }
                id.into()
            }
        };
        let opcode = self.opening.at.as_ref().map_or(opcode, |held| {
            argument = held.token();
            Opcode::ReadAt
        });
        self.slots[usize::from(id)].sent = true;
        let command = Command { id, opcode: opcode as u8, flags, sector: subpage.into(), count, buffer, argument };
        self.pair.submissions.push(command.pack());
    }
    /// Whether reads are compared with the device's checksum. A read of an old state has none.
    #[inline]
    fn checks_reads(&self) -> bool {
        self.opening.config.checks_data && self.pair.buffer.is_some() && self.opening.at.is_none()
    }
    /// Of a frame's content.
    fn checksum(&self, frame: u32) -> u32 {
        checksum_of(1, |_, bytes| self.frames.read(frame as usize * SUBPAGE_BYTES, bytes))
    }
    /// Step 9: brings the data of a read into the frame. Returns whether they match the device's
    /// checksum, where that is checked.
    #[inline]
    fn brings(&self, id: u16, frame: u32, said: u64) -> bool {
        let Some(first) = self.pair.buffer else { return true };
        let at = (first as usize + usize::from(id)) * SECTOR_BYTES;
        let into = frame as usize * SUBPAGE_BYTES;
        Arena::copy(self.pair.linked.region.arena(), at, &self.frames, into, SECTOR_BYTES);
        !self.checks_reads() || said == u64::from(self.checksum(frame))
    }
    fn ring(&self) {
        if self.pair.doorbell.must_wake() {
            self.pair.linked.doorbell.wake();
        }
    }
    /// Steps 7 to 9: takes the completions that are there.
    #[inline]
    fn take(&mut self, completions: &mut Vec<Completion>) {
        let mut again = false;
        if self.opening.shared.is_lost() {
            self.loses();
            if self.broken.is_some() {
                return;
            }
        }
        while let Some(entry) = self.pair.completions.pop() {
            let Ok(words) = entry else {
                self.opening.shared.seen.broken.add(1);
                return self.mark_broken();
            };
            let Ended { id, status, result: said } = Ended::unpack(words);
            // What waits in the batch is not in flight: its end is as little believed as one of a
            // free id.
            let slot = self.slots.get_mut(usize::from(id)).filter(|slot| slot.used != Use::Free && slot.sent);
            let Some(slot) = slot else {
                self.opening.shared.seen.broken.add(1);
                self.lies += 1;
                if id == NO_ID || self.lies > LIES_MAX {
                    return self.mark_broken();
                }
                continue;
            };
            self.lies = 0;
            slot.sent = false;
            let slot = *slot;
            if slot.flushing {
                again |= self.own_flush_ended(id, status);
                if slot.used == Use::Request {
                    continue;
                }
            } else if slot.op == Op::Write && slot.used == Use::Request && !self.record_write(id, status) {
                // Not acknowledged: it is sent once more.
                continue;
            }
            let mut result = status.to_result();
            if slot.op == Op::Read && slot.used == Use::Request && result.is_ok() && !self.brings(id, slot.frame, said)
            {
                if !slot.again {
                    self.slots[usize::from(id)].again = true;
                    self.batch.push(id);
                    again = true;
                    continue;
                }
                result = Err(FlashError::Corrupt);
            }
            self.slots[usize::from(id)].used = Use::Free;
            self.free.push(id);
            if slot.used == Use::Late {
                self.late -= 1;
                // What waits for it may go now.
                again |= !self.batch.is_empty();
                continue;
            }
            self.fruitless = 0;
            match slot.op {
                Op::Read => {}
                Op::Write => self.placed += u64::from(result.is_ok()),
                Op::Flush => self.record_flush(slot.covers, status),
            }
            let checksum = if slot.op == Op::Flush || self.flags == 0 { 0 } else { said as u32 };
            completions.push(Completion { tag: slot.tag, result, checksum });
        }
        if again {
            let _ = self.flush();
        }
    }
    /// Notes that a write has completed that no flush covers yet, and keeps a copy. Without one it
    /// notes a failed write, too, as that may have changed something. Returns whether to
    /// acknowledge it: a device that died since and kept no writes cannot vouch for it.
    #[inline]
    fn record_write(&mut self, id: u16, status: Status) -> bool {
        if self.names_states {
            self.opening.shared.unnamed.fetch_add(1, Ordering::Relaxed);
        }
        if self.pair.keeps_writes {
            // It was promised a place when it was sent to a device that did not keep writes.
            self.breaks_promise(id.into());
            return true;
        }
        let slot = &mut self.slots[usize::from(id)];
        let (shared, linked) = (&self.opening.shared, &self.pair.linked);
        if !slot.promised {
            return shared.record_write(&linked.life);
        }
        if status != Status::SUCCESS {
            shared.give_back();
            slot.promised = false;
            return true;
        }
        let at = slot.frame as usize * SUBPAGE_BYTES;
        let instance = linked.region.capability().instance;
        slot.promised = !shared.keep(instance, slot.subpage, |into| self.frames.read(at, into));
        if slot.promised && !linked.life.has_ended() {
            // Another queue has met another device.
            self.mark_broken();
            return false;
        }
        !slot.promised
    }
    fn count_frames(&self) {
        self.opening.shared.seen.with_frames.add(self.pair.linked.shares_frames.into());
    }
    fn record_flush(&self, covers: Option<Covers>, status: Status) {
        if let Some(covers) = covers {
            self.opening.shared.ended_flush(covers, status == Status::SUCCESS);
        }
    }
    /// A flush of the queue's own has ended. Its id goes back to the write that waits; returns
    /// whether that still does. Without a place for its copy now, it is sent without.
    fn own_flush_ended(&mut self, id: u16, status: Status) -> bool {
        self.flushing = false;
        let slot = &mut self.slots[usize::from(id)];
        slot.flushing = false;
        let (covers, waits) = (slot.covers.take(), slot.used == Use::Request);
        self.record_flush(covers, status);
        if waits {
            let there = self.opening.shared.promise();
            let slot = &mut self.slots[usize::from(id)];
            (slot.promised, slot.unkept) = (there, !there);
            self.batch.insert(0, id);
        }
        !self.batch.is_empty()
    }
    /// Gives back what a write that will not be acknowledged was promised.
    fn breaks_promise(&mut self, id: usize) {
        if std::mem::take(&mut self.slots[id].promised) {
            self.opening.shared.give_back();
        }
    }
    /// Whether an overdue write of the same sector is still at the device, which would be done
    /// after this.
    #[cold]
    fn is_behind_late(&self, id: u16) -> bool {
        let Slot { op, subpage, .. } = self.slots[usize::from(id)];
        let mut late = self.slots.iter().filter(|slot| slot.used == Use::Late);
        op == Op::Write && late.any(|slot| slot.op == Op::Write && slot.subpage == subpage)
    }
    /// Writes wait because no more copies may be kept: flushes, by the id of one of them.
    #[cold]
    fn flush_own(&mut self) {
        if self.flushing {
            return;
        }
        let id = self.batch.remove(0);
        self.flushing = true;
        let covers = self.opening.shared.begins_flush(None);
        let slot = &mut self.slots[usize::from(id)];
        (slot.flushing, slot.sent, slot.covers) = (true, true, Some(covers));
        self.opening.shared.seen.own_flushes.add(1);
        let command =
            Command { id, opcode: Opcode::Flush as u8, flags: 0, sector: 0, count: 0, buffer: 0, argument: 0 };
        self.pair.submissions.push(command.pack());
    }
    #[cold]
    fn mark_broken(&mut self) {
        if self.broken.is_none() {
            let now = self.clock.now_ns();
            self.broken = Some((now, now));
            self.pair.close();
        }
    }

    /// What was acknowledged is gone, or changes, so no further completion of it is reported. A
    /// device that has frames has to let go of them first.
    #[cold]
    fn loses(&mut self) {
        match self.dead {
            Some(_) => {}
            None if self.pair.buffer.is_some() => self.fail_all(FlashError::Poisoned),
            None => self.mark_broken(),
        }
    }

    /// What is seldom: the device has died, an entry was damaged, a request has taken too long.
    #[cold]
    fn check_rarely(&mut self) {
        if self.opening.shared.is_lost() {
            self.loses();
        }
        let now = self.clock.now_ns();
        if now >= self.check_ns {
            self.check_ns = now + CHECK_NS;
            self.pair.linked.hold.check();
        }
        if self.in_use() > 0 && self.broken.is_none() && self.pair.linked.life.has_ended() {
            // Its completions were taken by the caller. Dying is no breach of the protocol, however
            // often.
            self.mark_broken();
            self.fruitless = self.fruitless.saturating_sub(1);
        }
        if let Some((since, next)) = self.broken
            && now >= next
        {
            self.relink(since, now);
        }
        if self.timeout_ns != u64::MAX && now >= self.look_ns {
            self.look_ns = now + self.timeout_ns / 8;
            self.give_up_late(now);
        }
    }
    /// Goes on with attaching again, one step at a time, none of which waits.
    fn relink(&mut self, since: u64, now: u64) {
        let patience = u64::try_from(self.opening.config.reattach.as_nanos()).unwrap_or(u64::MAX);
        let waited = now.saturating_sub(since);
        if let Some(attempt) = &self.attempt {
            match attempt.take() {
                Some(attached) => {
                    self.attempt = None;
                    self.finish_attach(attached, since, patience);
                }
                None if waited >= patience.max(ANSWER_NS) && attempt.give_up() => {
                    self.attempt = None;
                    self.fail_all(FlashError::Closed);
                }
                None => {}
            }
            return;
        }
        if !self.pair.linked.hold.has_let_go() {
            // What it still has could be done after what follows. Frames that it may write to are
            // waited for without end.
            if self.pair.buffer.is_some() && waited >= patience.max(LET_GO_NS) {
                return self.fail_all(FlashError::Closed);
            }
            self.broken = Some((since, now + TRY_AGAIN_NS / 20));
            return;
        }
        if self.fruitless >= FRUITLESS_MAX {
            return self.fail_all(FlashError::Closed);
        }
        let (opening, frames, depth) = (self.opening.clone(), self.frames.clone(), self.slots.len());
        self.attempt = Some(Attempt::begin(opening, frames, depth, self.wake.clone()));
    }
    /// Sends what was in flight once more by another queue pair, if there is one.
    fn finish_attach(&mut self, attached: Attached, since: u64, patience: u64) {
        // It may have taken a while.
        let now = self.clock.now_ns();
        let (pair, met) = match attached {
            Ok((pair, met @ (Met::Whole | Met::Lost))) => (pair, met),
            _ if now.saturating_sub(since) < patience => {
                // A thread and a connection each time: seldom, where it has been away for long.
                let pause = (now.saturating_sub(since) / 8).clamp(TRY_AGAIN_NS, TRY_AGAIN_MAX_NS);
                self.broken = Some((since, now + pause));
                return;
            }
            _ => return self.fail_all(FlashError::Closed),
        };
        self.broken = None;
        self.fruitless += 1;
        self.lies = 0;
        self.keeps = keeps(&*self.opening.link, &self.opening.config, pair.linked.region.capability().features);
        self.pair = pair;
        self.count_frames();
        if met == Met::Lost {
            return self.fail_all(FlashError::Poisoned);
        }
        self.opening.shared.seen.relinked.add(1);
        // All that was handed over goes back into the batch, with what had not been.
        self.batch.clear();
        self.flushing = false;
        for id in 0..self.slots.len() as u16 {
            let slot = &mut self.slots[usize::from(id)];
            (slot.since_ns, slot.sent) = (0, false);
            if std::mem::take(&mut slot.flushing) {
                let covers = slot.covers.take();
                self.record_flush(covers, Status::ABORTED);
            }
            match self.slots[usize::from(id)].used {
                Use::Free => {}
                Use::Request => self.batch.push(id),
                Use::Late => {
                    self.slots[usize::from(id)].used = Use::Free;
                    self.free.push(id);
                    self.late -= 1;
                }
            }
        }
        self.opening.shared.seen.replayed.add(self.batch.len() as u64);
        let _ = self.flush();
        self.opening.shared.replay_late(&self.opening.link, &self.opening.config);
    }
    /// Ends all that is in flight, and all that will be.
    fn fail_all(&mut self, error: FlashError) {
        (self.dead, self.broken) = (Some(error), None);
        self.batch.clear();
        self.flushing = false;
        for id in 0..self.slots.len() as u16 {
            self.breaks_promise(id.into());
            let slot = self.slots[usize::from(id)];
            if slot.used == Use::Free {
                continue;
            }
            self.slots[usize::from(id)].used = Use::Free;
            self.free.push(id);
            self.record_flush(slot.covers, Status::ABORTED);
            if slot.used == Use::Request {
                self.ended.push(Completion { tag: slot.tag, result: Err(error), checksum: 0 });
            }
        }
        self.late = 0;
    }
    /// Ends requests whose time is over, where the device has no frames of theirs.
    fn give_up_late(&mut self, now: u64) {
        if self.pair.buffer.is_none() {
            return;
        }
        for id in 0..self.slots.len() {
            let slot = &mut self.slots[id];
            if slot.used != Use::Request || slot.since_ns == 0 || now.saturating_sub(slot.since_ns) < self.timeout_ns {
                continue;
            }
            // The queue's own flush is no request: what it covers is known when it ends.
            let (tag, covers) = (slot.tag, if slot.flushing { None } else { slot.covers.take() });
            if let Some(at) = self.batch.iter().position(|waits| usize::from(*waits) == id) {
                // It waits for a place for its copy, or for a late write of its sector, and was
                // never sent.
                self.batch.remove(at);
                slot.used = Use::Free;
                self.free.push(id as u16);
            } else {
                slot.used = Use::Late;
                self.late += 1;
            }
            self.breaks_promise(id);
            self.opening.shared.seen.timed_out.add(1);
            self.record_flush(covers, Status::TIMED_OUT);
            self.ended.push(Completion { tag, result: Err(FlashError::TimedOut), checksum: 0 });
        }
    }
    fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    fn ready(&self) -> bool {
        self.pair.completions.ready() || !self.ended.is_empty() || self.broken.is_some()
    }
    /// Looks for completions for as long as that has paid lately. Returns whether there is one.
    fn spin(&mut self) -> bool {
        let end = self.clock.now_ns() + self.spin_ns;
        while self.clock.now_ns() < end {
            if self.ready() {
                self.spin_ns = SPIN_MAX_NS;
                return true;
            }
            for _ in 0..16 {
                self.clock.relax();
            }
        }
        // In vain: half as long next time, and now and then the full time, as the device may have
        // become faster.
        self.spin_ns = if self.spin_ns < 200 { SPIN_MAX_NS } else { self.spin_ns / 2 };
        false
    }
}

impl Queue for DeviceQueue {
    #[inline]
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight() >= self.slots.len() {
            return Err(QueueFull);
        }
        let inside = request.subpage.0 < self.sectors && request.frame.0 < self.frame_count;
        let refused = if !inside && request.op != Op::Flush { Some(FlashError::OutOfRange) } else { self.dead };
        let refused = refused.or_else(|| self.free.is_empty().then_some(FlashError::TimedOut));
        if self.opening.at.is_some() && request.op != Op::Read {
            // Nothing was written that a flush could be for.
            let result = if request.op == Op::Write { Err(ReadOnly::ERROR) } else { refused.map_or(Ok(()), Err) };
            self.ended.push(Completion { tag: request.tag, result, checksum: 0 });
            return Ok(());
        }
        if let Some(error) = refused {
            self.ended.push(Completion { tag: request.tag, result: Err(error), checksum: 0 });
            return Ok(());
        }
        let id = self.free.pop().expect("seen above");
        self.slots[usize::from(id)] = Slot {
            tag: request.tag,
            subpage: if request.op == Op::Flush { 0 } else { request.subpage.0 },
            frame: if request.op == Op::Flush { 0 } else { request.frame.0 },
            op: request.op,
            used: Use::Request,
            ..FREE
        };
        self.batch.push(id);
        Ok(())
    }
    #[inline]
    fn flush(&mut self) -> Result<(), FlashError> {
        if self.batch.is_empty() || self.broken.is_some() {
            // What waits for another queue pair is submitted to that pair.
            return Ok(());
        }
        let now = if self.timeout_ns == u64::MAX { 0 } else { self.clock.now_ns() };
        let (mut waiting, mut full) = (0, false);
        for i in 0..self.batch.len() {
            let id = self.batch[i];
            let behind_late = self.late > 0 && self.is_behind_late(id);
            let slot = &mut self.slots[usize::from(id)];
            if slot.since_ns == 0 {
                slot.since_ns = now;
            }
            if behind_late {
                self.batch[waiting] = id;
                waiting += 1;
                continue;
            }
            if slot.op == Op::Write && self.keeps && !slot.promised && !slot.unkept {
                if self.opening.shared.promise() {
                    slot.promised = true;
                } else if self.names_states {
                    // A flush would name a state: it goes without a copy.
                    slot.unkept = true;
                } else {
                    self.batch[waiting] = id;
                    waiting += 1;
                    full = true;
                    continue;
                }
            }
            if slot.op == Op::Flush {
                slot.covers = Some(self.opening.shared.begins_flush(slot.covers));
            }
            self.send(id);
        }
        self.batch.truncate(waiting);
        if full {
            self.flush_own();
        }
        self.ring();
        Ok(())
    }
    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.polls = self.polls.wrapping_add(1);
        let (before, looks) = (completions.len(), self.polls.is_multiple_of(CHECK));
        // A broken pair reports nothing any more, whatever is still in its ring.
        let news = self.pair.completions.ready() || !self.ended.is_empty();
        if self.broken.is_some() || !news {
            // As most polls.
            if !looks && self.broken.is_none() {
                return 0;
            }
            self.check_rarely();
        }
        if self.broken.is_none() {
            self.take(completions);
            self.opening.shared.placed(std::mem::take(&mut self.placed));
            if news && looks {
                // However much the others bring, one of them may hang.
                self.check_rarely();
            }
        }
        completions.append(&mut self.ended);
        completions.len() - before
    }
    #[inline]
    fn will_poll(&self) {
        self.pair.completions.fetch();
    }
    fn switch(&mut self, to: Switches) -> Switches {
        // Of an old state the store has compared those that it has.
        let checksums = to.checksums && self.opening.at.is_none();
        self.flags = if checksums { SAY_CHECKSUM } else { 0 };
        Switches { checksums, ..Switches::default() }
    }
    fn use_frames(&mut self, _: std::ops::Range<u32>) {}
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        if self.ready() || self.spins && self.spin() {
            if self.broken.is_some() {
                self.wake.wait(Some(Duration::from_micros(100)));
                self.check_rarely();
            }
            return;
        }
        self.pair.bell.goes_to_sleep();
        let dead = self.in_use() > 0 && self.pair.linked.life.has_ended();
        if !self.ready() && !dead {
            let timeout = timeout.map_or(SLEEP_MAX, |t| t.min(SLEEP_MAX));
            self.pair.linked.hold.sleep(&self.wake, timeout);
        }
        self.pair.bell.mark_awake();
        if !self.ready() {
            self.check_rarely();
        }
    }
    fn in_flight(&self) -> usize {
        self.in_use() - self.late + self.ended.len()
    }
    fn depth(&self) -> usize {
        self.slots.len()
    }
    fn bytes(&self) -> usize {
        let linked = &self.pair.linked;
        linked.region.arena().len() + linked.device_bytes + self.slots.len() * (size_of::<Slot>() + 4)
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        for id in std::mem::take(&mut self.batch) {
            self.breaks_promise(id.into());
            self.slots[usize::from(id)].used = Use::Free;
            self.free.push(id);
        }
        let mut lost = Vec::new();
        // What was handed over ends, unless the device has died or breaks the protocol.
        while self.in_flight() > self.ended.len() && self.broken.is_none() && !self.pair.linked.life.has_ended() {
            if self.poll(&mut lost) == 0 {
                self.wait(Some(Duration::from_millis(10)));
            }
            lost.clear();
        }
        for id in 0..self.slots.len() {
            self.breaks_promise(id);
            if self.slots[id].used != Use::Free {
                self.record_flush(self.slots[id].covers, Status::ABORTED);
            }
        }
        self.pair.close();
        while self.pair.buffer.is_none() && !self.pair.linked.hold.has_let_go() {
            self.clock.sleep(Duration::from_micros(50));
        }
    }
}
