//! Commands of several sectors: the mode of the paper's own driver (5.3, 5.4), in addition to the
//! queue that the runtime uses.
//!
//! A large request is split. A command holds its range of the data buffer from beginning to end,
//! and its data move on one side only when all are there on the other. A large chunk leaves the
//! medium idle while it is copied, and a small one costs more commands. Trying finds the right
//! size, "the smallest one that makes the underlying storage medium all busy" (5.4): see
//! [`Chunks`].
//!
//! Copies are pipelined: while one chunk is copied here, the device works on the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fulgurite_flash::{FlashError, OpenError};
use fulgurite_sys::{Clock, Notifier};

use super::buddy::Buddy;
use super::chunks::Chunks;
use super::link::{HostConfig, Want, died_again, patiently};
use super::pair::{LET_GO_NS, LIES_MAX, Opening, Pair};
use super::shared::{Covers, Met, Shared, keeps};
use crate::entry::{Command, Ended, Opcode, SECTOR_BYTES, Status};
use crate::hosts::HostIdentity;
use crate::identity::Identity;

/// A command that has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// What [`Commands::begin`] returned.
    pub id: u16,
    /// How it went.
    pub status: Status,
    /// By opcode.
    pub result: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// The device has it.
    Running,
    /// It has ended, and the caller still has its range of the buffer.
    Ended,
    /// Its caller gave it up; the range is free when the device says that it has ended.
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    buffer: u32,
    count: u32,
    /// Of a write: where to.
    written: Option<u32>,
}

/// A queue pair for commands of several sectors, with its data buffer. For one thread at a time.
pub struct Commands {
    pair: Pair,
    buddy: Buddy,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Those that ended while somebody waited for another one.
    ended: VecDeque<Done>,
    config: HostConfig,
    shared: Arc<Shared>,
    wake: Arc<Notifier>,
    clock: Clock,
    chunks: Chunks,
    sectors: u32,
    /// Sectors of the largest block of the whole data buffer.
    block_sectors: u32,
    command_sectors: u32,
    /// What is written is kept until a flush covers it.
    keeps: bool,
    /// What is written was acknowledged before.
    replays: bool,
    /// Only its program names states: it never flushes by itself.
    names_states: bool,
    /// Completions in a row that were not believed.
    lies: u32,
    /// The device broke the protocol, or another one was met since: nothing more is asked of it.
    broken: bool,
}

impl std::fmt::Debug for Commands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commands").field("buddy", &self.buddy).field("chunks", &self.chunks).finish_non_exhaustive()
    }
}

/// When a command that has not ended is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ends {
    /// By [`HostConfig::timeout`].
    ByTime,
    /// When the device's heartbeat has stood still for as long.
    WithoutBeats,
}

/// What is asked for would wait for its caller to release commands that have ended.
const EBUSY: i32 = 16;
/// How long an empty completion queue is polled before the caller sleeps.
const SPIN_NS: u64 = 50_000;

impl Commands {
    pub(super) fn open(opening: &Opening, depth: usize, buffer_sectors: u32) -> Result<Commands, OpenError> {
        let Opening { link, shared, config, .. } = opening;
        patiently(config, || {
            let mut commands = Commands::link(opening, shared.identity(false), depth, buffer_sectors)?;
            commands.keeps = keeps(&**link, &commands.config, commands.pair.linked.region.capability().features);
            match commands.shared.meets(link, &commands.config, &commands.pair.linked, &AtomicBool::new(false)) {
                Met::Whole => Ok(commands),
                Met::Again => Err(died_again()),
                Met::Lost => Err(OpenError::System {
                    what: "attach to the device",
                    source: std::io::Error::other("unflushed writes were lost when the device died; reopen it"),
                }),
            }
        })
    }
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }
    /// For what was acknowledged by a device that has died, and is written to the next one.
    pub(super) fn for_replay(opening: &Opening, depth: usize) -> Result<Commands, OpenError> {
        let mut commands = Commands::link(opening, opening.shared.identity(true), depth, depth as u32)?;
        commands.replays = true;
        Ok(commands)
    }
    fn link(
        opening: &Opening,
        identity: HostIdentity,
        depth: usize,
        buffer_sectors: u32,
    ) -> Result<Commands, OpenError> {
        let Opening { link, shared, config, .. } = opening.clone();
        let wake = Notifier::new().map_err(|source| OpenError::System { what: "make an eventfd", source })?;
        let wake = Arc::new(wake);
        let want = Want { depth, buffer_sectors: buffer_sectors.max(1), frames: None, wake: &wake, identity };
        let (linked, names_states) = (link.open(&want)?, link.names_states());
        let capability = *linked.region.capability();
        let refused = |what: &'static str| {
            Err(OpenError::System { what: "attach to the device", source: std::io::Error::other(what) })
        };
        if (capability.depth as usize) < depth || capability.buffer_sectors < buffer_sectors.max(1) {
            return refused("its queues or data buffer are smaller than was asked for");
        }
        if capability.sectors != link.sectors() {
            return refused("it has another size than before");
        }
        if linked.shares_frames {
            return refused("it took frames that it was not given");
        }
        let buddy = Buddy::new(buffer_sectors.max(1));
        Ok(Commands {
            pair: Pair::of(linked, shared.clone()),
            slots: vec![Slot { state: State::Free, buffer: 0, count: 0, written: None }; depth].into(),
            free: (0..depth as u16).rev().collect(),
            ended: VecDeque::new(),
            // A chunk is one block of the buffer.
            chunks: Chunks::new(capability.command_sectors.min(buddy.largest()), depth),
            block_sectors: buddy.largest(),
            buddy,
            sectors: capability.sectors,
            command_sectors: capability.command_sectors,
            clock: config.clock.clone(),
            keeps: false,
            replays: false,
            names_states,
            lies: 0,
            broken: false,
            config,
            shared,
            wake,
        })
    }
    /// Which start of the device it is.
    pub(super) fn instance(&self) -> u64 {
        self.pair.linked.region.capability().instance
    }
    /// Whether it is of a device that has not died since, and that keeps to the protocol.
    pub(super) fn is_there(&self) -> bool {
        self.pair.linked.hold.check();
        !self.broken && !self.pair.linked.life.has_ended()
    }
    /// Whether what is written is kept until a flush covers it.
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }
    /// Waits for the end of any command, and releases it.
    pub(super) fn end_any(&mut self) -> Result<(), FlashError> {
        let done = self.wait()?;
        self.release(done.id);
        done.status.to_result()
    }
    /// Capacity of the device, in sectors.
    #[must_use]
    pub fn sectors(&self) -> u32 {
        self.sectors
    }
    /// Sectors of the data buffer that are free.
    #[must_use]
    pub fn free_sectors(&self) -> u32 {
        self.buddy.free_sectors()
    }
    /// Sectors of the largest block of the data buffer that is free.
    pub(super) fn largest_free(&self) -> u32 {
        self.buddy.largest()
    }
    /// Sectors that one command may name: no more are split off at a time.
    #[must_use]
    pub fn command_sectors(&self) -> u32 {
        self.command_sectors
    }
    /// The sizes of chunks that are tried, and what they gave.
    #[must_use]
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }
    /// From now on splits into chunks of `sectors` sectors; none finds the size by trying.
    pub fn set_chunk(&mut self, sectors: Option<u32>) {
        self.chunks.fix(sectors);
    }

    fn at(&self, buffer: u32) -> usize {
        let first = self.pair.buffer.expect("a data buffer was asked for");
        (first + buffer) as usize * SECTOR_BYTES
    }
    /// Steps 1 and 2: takes a range of the data buffer, fills it with `data`, submits the command
    /// and returns its id. None when no id or range is free: poll, take and release first.
    pub fn begin(&mut self, opcode: Opcode, sector: u64, count: u32, data: Option<&[u8]>) -> Option<u16> {
        self.begin_with(opcode, sector, count, data, 0)
    }
    /// Begins a command as `begin` does, with an argument.
    pub fn begin_with(
        &mut self,
        opcode: Opcode,
        sector: u64,
        count: u32,
        data: Option<&[u8]>,
        argument: u64,
    ) -> Option<u16> {
        let &id = self.free.last()?;
        let buffer = if count == 0 { 0 } else { self.buddy.take(count)? };
        self.free.pop();
        if let Some(data) = data {
            let bytes = data.len().min(count as usize * SECTOR_BYTES);
            self.pair.linked.region.arena().write(self.at(buffer), &data[..bytes]);
        }
        // Of sectors that there are not nothing is kept, whatever the device says of them.
        let inside = sector.checked_add(count.into()).is_some_and(|end| end <= self.sectors.into());
        let written = (opcode == Opcode::Write && inside).then_some(sector as u32);
        self.slots[usize::from(id)] = Slot { state: State::Running, buffer, count, written };
        self.submit(Command { id, opcode: opcode as u8, flags: 0, sector, count, buffer, argument });
        Some(id)
    }
    /// Steps 7 and 8: a command that has ended, if there is one. It keeps its range of the buffer
    /// until [`Commands::release`].
    pub fn poll(&mut self) -> Option<Done> {
        self.ended.pop_front().or_else(|| self.poll_ring())
    }
    fn poll_ring(&mut self) -> Option<Done> {
        if self.shared.is_lost() {
            self.broken = true;
            return None;
        }
        loop {
            let Ok(words) = self.pair.completions.pop()? else {
                self.shared.seen.broken.add(1);
                self.broken = true;
                return None;
            };
            let Ended { id, status, result } = Ended::unpack(words);
            match self.slots.get_mut(usize::from(id)) {
                Some(slot) if slot.state == State::Running => {
                    self.lies = 0;
                    slot.state = State::Ended;
                    let slot = *slot;
                    if let Some(sector) = slot.written
                        && !self.record_write(sector, slot, status)
                    {
                        self.broken = true;
                        return None;
                    }
                    return Some(Done { id, status, result });
                }
                Some(slot) if slot.state == State::Abandoned => {
                    self.lies = 0;
                    slot.state = State::Ended;
                    self.release(id);
                }
                _ => {
                    self.shared.seen.broken.add(1);
                    self.lies += 1;
                    self.broken |= id == crate::NO_ID || self.lies > LIES_MAX;
                    if self.broken {
                        return None;
                    }
                }
            }
        }
    }
    /// As the queue's: notes a completed write that no flush covers, and keeps a copy where there
    /// is room. Returns whether it may be acknowledged.
    fn record_write(&self, sector: u32, slot: Slot, status: Status) -> bool {
        if self.pair.keeps_writes || self.replays {
            return true;
        }
        let linked = &self.pair.linked;
        if self.keeps && status == Status::SUCCESS {
            let read = |i: u32, into: &mut [u8]| linked.region.arena().read(self.at(slot.buffer + i), into);
            if let Some(kept) = self.shared.keep_all(self.instance(), sector, slot.count, read) {
                return kept;
            }
        }
        self.shared.record_write(&linked.life)
    }
    /// Step 9: copies what a command that has ended read.
    ///
    /// # Panics
    /// When it has not ended, or `into` is longer than its range.
    pub fn copy_out(&self, id: u16, into: &mut [u8]) {
        let slot = self.slots[usize::from(id)];
        assert!(slot.state == State::Ended, "command {id} has not ended");
        assert!(into.len() <= slot.count as usize * SECTOR_BYTES, "command {id} has read {} sectors", slot.count);
        self.pair.linked.region.arena().read(self.at(slot.buffer), into);
    }
    /// Gives back the id and the buffer of a command that has ended.
    ///
    /// # Panics
    /// When it has not.
    pub fn release(&mut self, id: u16) {
        let slot = &mut self.slots[usize::from(id)];
        assert!(slot.state == State::Ended, "command {id} has not ended");
        let Slot { buffer, count, .. } = std::mem::replace(slot, Slot { state: State::Free, ..*slot });
        if count > 0 {
            self.buddy.give(buffer, count);
        }
        self.free.push(id);
    }
    /// Waits for the end of any command.
    ///
    /// # Errors
    /// [`FlashError::TimedOut`] by [`HostConfig::timeout`], [`FlashError::Closed`] when the device
    /// has ended or broke the protocol.
    pub fn wait(&mut self) -> Result<Done, FlashError> {
        if let Some(done) = self.ended.pop_front() {
            return Ok(done);
        }
        self.wait_for_ring(Ends::ByTime)
    }
    /// Waits for the end of this command. The ends of other commands stay for [`Commands::wait`].
    fn wait_for(&mut self, id: u16, ends: Ends) -> Result<Done, FlashError> {
        loop {
            let done = self.wait_for_ring(ends).inspect_err(|_| self.abandon(id))?;
            if done.id == id {
                return Ok(done);
            }
            self.ended.push_back(done);
        }
    }
    fn wait_for_ring(&mut self, ends: Ends) -> Result<Done, FlashError> {
        loop {
            if let Some(done) = self.wait_for_ring_or_room(usize::MAX, ends)? {
                return Ok(done);
            }
        }
    }
    /// Ids or buffer are wanted, and others have them: waits for the end of one of those.
    fn wait_for_room(&mut self) -> Result<(), FlashError> {
        if !self.slots.iter().any(|slot| matches!(slot.state, State::Running | State::Abandoned)) {
            // The caller has all of them, and has not released them.
            return Err(FlashError::Io(EBUSY));
        }
        let done = self.wait_for_ring_or_room(self.free.len(), Ends::ByTime)?;
        self.ended.extend(done);
        Ok(())
    }
    /// The end of any command, or none as soon as more than `free` ids are free.
    fn wait_for_ring_or_room(&mut self, free: usize, ends: Ends) -> Result<Option<Done>, FlashError> {
        let (mut begun, mut beats) = (self.clock.now_ns(), self.pair.linked.region.beats());
        let timeout = self.config.timeout.map_or(u64::MAX, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX));
        let mut polls = 0u32;
        loop {
            if let Some(done) = self.poll_ring() {
                return Ok(Some(done));
            }
            if self.free.len() > free {
                return Ok(None);
            }
            polls = polls.wrapping_add(1);
            self.clock.relax();
            if !polls.is_multiple_of(64) {
                continue;
            }
            if self.broken || self.pair.linked.life.has_ended() {
                // What it completed before it ended was seen by then.
                let lost = self.shared.is_lost();
                return self.poll_ring().map(Some).ok_or(if lost { FlashError::Poisoned } else { FlashError::Closed });
            }
            let waited = self.clock.now_ns() - begun;
            if polls.is_multiple_of(1 << 16) || waited > SPIN_NS {
                self.pair.linked.hold.check();
            }
            if waited >= timeout {
                let now = self.pair.linked.region.beats();
                if ends == Ends::ByTime || now == beats {
                    return Err(FlashError::TimedOut);
                }
                (begun, beats) = (self.clock.now_ns(), now);
                continue;
            }
            if waited > SPIN_NS {
                self.pair.bell.goes_to_sleep();
                if !self.pair.completions.ready() && !self.pair.linked.life.has_ended() {
                    let left = Duration::from_nanos(timeout - waited).min(Duration::from_millis(100));
                    self.pair.linked.hold.sleep(&self.wake, left);
                }
                self.pair.bell.mark_awake();
            }
        }
    }
    /// After an error: if it is under way, it is let go of as it ends.
    fn abandon(&mut self, id: u16) {
        let slot = &mut self.slots[usize::from(id)];
        if slot.state == State::Running {
            slot.state = State::Abandoned;
        }
    }

    /// Reads sectors from `sector` on into all of `into`, a multiple of 4096 bytes. Other commands
    /// stay under way.
    ///
    /// # Errors
    /// What the device says; [`FlashError::OutOfRange`] when there are no such sectors, or the
    /// length is no multiple; `EBUSY` when commands that their caller has yet to release have all
    /// ids or all of the buffer. `into` is undefined then.
    pub fn read(&mut self, sector: u32, into: &mut [u8]) -> Result<(), FlashError> {
        let sectors = self.range(sector, into.len())?;
        self.split(sectors, |host, first, count| host.begin(Opcode::Read, (sector + first).into(), count, None), {
            |host, id, first, count| {
                let from = first as usize * SECTOR_BYTES;
                host.copy_out(id, &mut into[from..from + count as usize * SECTOR_BYTES]);
            }
        })
    }
    /// Writes all of `from`, a multiple of 4096 bytes, to sectors from `sector` on. Other commands
    /// stay under way.
    ///
    /// # Errors
    /// As [`Commands::read`]. Any of the sectors may have been written then.
    pub fn write(&mut self, sector: u32, from: &[u8]) -> Result<(), FlashError> {
        let sectors = self.range(sector, from.len())?;
        let (room, limit) =
            if self.keeps && !self.names_states { self.shared.room() } else { (usize::MAX, usize::MAX) };
        if room < sectors as usize && room < limit {
            self.flush_own()?;
        }
        let begin = |host: &mut Commands, first: u32, count: u32| {
            let at = first as usize * SECTOR_BYTES;
            let data = &from[at..at + count as usize * SECTOR_BYTES];
            host.begin(Opcode::Write, (sector + first).into(), count, Some(data))
        };
        let result = self.split(sectors, begin, |_, _, _, _| {});
        // More than may be kept is kept by the device.
        if limit < sectors as usize { result.and_then(|()| self.flush_own()) } else { result }
    }
    fn flush_own(&mut self) -> Result<(), FlashError> {
        self.shared.seen.own_flushes.add(1);
        self.flush()
    }
    /// Makes all that was written before durable.
    ///
    /// # Errors
    /// What the device says.
    pub fn flush(&mut self) -> Result<(), FlashError> {
        let covers = self.begins_flush();
        let result = self.one(Opcode::Flush, 0, 0, 0).map(|_| ());
        self.ended_flush(covers, result.is_ok());
        result
    }
    /// What the device is.
    ///
    /// # Errors
    /// What the device says; an answer that cannot be one is [`FlashError::Corrupt`].
    pub fn identify(&mut self) -> Result<Identity, FlashError> {
        let mut bytes = [0; SECTOR_BYTES];
        self.one_with_answer(Opcode::Identify, 0, 1, 0, &mut bytes)?;
        Identity::of(&bytes).ok_or(FlashError::Corrupt)
    }
    /// One command, to its end. Returns its result.
    ///
    /// # Errors
    /// What the device says.
    pub fn one(&mut self, opcode: Opcode, sector: u64, count: u32, argument: u64) -> Result<u64, FlashError> {
        self.one_with_answer(opcode, sector, count, argument, &mut [])
    }
    fn one_with_answer(
        &mut self,
        opcode: Opcode,
        sector: u64,
        count: u32,
        argument: u64,
        into: &mut [u8],
    ) -> Result<u64, FlashError> {
        let ended = self.run(opcode, sector, count, argument, into)?;
        ended.status.to_result().map(|()| ended.result)
    }
    /// Runs a command and returns the status as the device said it.
    pub(crate) fn run(
        &mut self,
        opcode: Opcode,
        sector: u64,
        count: u32,
        argument: u64,
        into: &mut [u8],
    ) -> Result<Done, FlashError> {
        // What others have of the buffer is waited for.
        if count > self.block_sectors {
            return Err(FlashError::OutOfRange);
        }
        let id = loop {
            match self.begin_with(opcode, sector, count, None, argument) {
                Some(id) => break id,
                None => self.wait_for_room()?,
            }
        };
        let ended = self.wait_for(id, Ends::ByTime)?;
        if ended.status == Status::SUCCESS {
            self.copy_out(id, into);
        }
        self.release(id);
        Ok(ended)
    }

    /// Runs a command whose count is no range of the data buffer.
    pub(super) fn run_without_buffer(
        &mut self,
        opcode: Opcode,
        sector: u64,
        count: u32,
        argument: u64,
    ) -> Result<Done, FlashError> {
        let id = loop {
            match self.free.pop() {
                Some(id) => break id,
                None => self.wait_for_room()?,
            }
        };
        self.slots[usize::from(id)] = Slot { state: State::Running, buffer: 0, count: 0, written: None };
        self.submit(Command { id, opcode: opcode as u8, flags: 0, sector, count, buffer: 0, argument });
        // Its time depends on how much of the store it changes or writes, which is unknown here.
        let ended = self.wait_for(id, Ends::WithoutBeats);
        if ended.is_err() && opcode.changes_without_data() && !self.pair.linked.life.has_ended() {
            // The device may do it at any time from now on, and undo what is written after it.
            self.shared.loses();
        }
        let ended = ended?;
        self.release(id);
        Ok(ended)
    }
    fn submit(&mut self, command: Command) {
        self.pair.submissions.push(command.pack());
        if self.pair.doorbell.must_wake() {
            self.pair.linked.doorbell.wake();
        }
    }
    pub(super) fn begins_flush(&self) -> Covers {
        self.shared.begins_flush(None)
    }
    pub(super) fn ended_flush(&self, covers: Covers, well: bool) {
        self.shared.ended_flush(covers, well);
    }
    /// Something else than a write will change sectors: their copies must not be replayed.
    pub(super) fn will_change(&self, gone: impl Fn(u32) -> bool) {
        self.shared.forget(&self.pair.linked.life, gone);
    }
    /// Something has changed that no flush covers, and of which there is no copy.
    pub(super) fn record_change(&self) -> Result<(), FlashError> {
        let there = self.pair.keeps_writes || self.shared.record_write(&self.pair.linked.life);
        if there { Ok(()) } else { Err(FlashError::Closed) }
    }

    fn range(&self, sector: u32, bytes: usize) -> Result<u32, FlashError> {
        let sectors = u32::try_from(bytes / SECTOR_BYTES).map_err(|_| FlashError::OutOfRange)?;
        let inside = sector <= self.sectors && sectors <= self.sectors - sector;
        if inside && bytes.is_multiple_of(SECTOR_BYTES) { Ok(sectors) } else { Err(FlashError::OutOfRange) }
    }
    /// Begins chunks while there is room, ends them as they come, and begins the next. After an
    /// error, those under way are let go of as they end.
    fn split(
        &mut self,
        sectors: u32,
        begin: impl Fn(&mut Commands, u32, u32) -> Option<u16>,
        mut end: impl FnMut(&Commands, u16, u32, u32),
    ) -> Result<(), FlashError> {
        // By id: where in the request its chunk begins.
        let mut firsts = vec![None; self.slots.len()];
        let result = self.split_into(sectors, &mut firsts, begin, &mut end);
        if result.is_err() {
            let begun = (0..).zip(&firsts).filter(|(_, first)| first.is_some());
            begun.for_each(|(id, _)| self.abandon(id));
        }
        result
    }
    fn split_into(
        &mut self,
        sectors: u32,
        firsts: &mut [Option<u32>],
        begin: impl Fn(&mut Commands, u32, u32) -> Option<u16>,
        end: &mut impl FnMut(&Commands, u16, u32, u32),
    ) -> Result<(), FlashError> {
        let started = self.clock.now_ns();
        let chunk = self.chunks.choose(sectors);
        let (mut begun, mut under_way) = (0, 0);
        loop {
            while begun < sectors {
                let count = chunk.min(sectors - begun);
                let Some(id) = begin(self, begun, count) else { break };
                firsts[usize::from(id)] = Some(begun);
                (begun, under_way) = (begun + count, under_way + 1);
            }
            if under_way == 0 {
                if begun == sectors {
                    return Ok(());
                }
                // Others have the ids, or the buffer.
                self.wait_for_room()?;
                continue;
            }
            let done = self.wait_for_ring(Ends::ByTime)?;
            let Some(first) = firsts[usize::from(done.id)].take() else {
                self.ended.push_back(done);
                continue;
            };
            let result = done.status.to_result();
            if result.is_ok() {
                end(self, done.id, first, self.slots[usize::from(done.id)].count);
            }
            self.release(done.id);
            under_way -= 1;
            result?;
            if begun == sectors && under_way == 0 {
                self.chunks.gave(chunk, sectors, self.clock.now_ns() - started);
                return Ok(());
            }
        }
    }
}

impl Commands {
    /// Closes the queue pair, and waits until the device has let go of what it holds, for at most
    /// [`LET_GO_NS`].
    pub(super) fn close_and_wait(mut self) {
        self.pair.close();
        let end = self.clock.after(Duration::from_nanos(LET_GO_NS));
        while !self.pair.linked.hold.has_let_go() && self.clock.now_ns() < end {
            self.clock.sleep(Duration::from_micros(50));
        }
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // The data buffer is the region's, which the device keeps mapped as long as it touches it.
        self.pair.close();
    }
}
