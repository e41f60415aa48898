//! The device's side of one queue pair: its commands and their progress.
//!
//! Every field of an entry comes from the other side, which may be hostile. It is in a copy of the
//! entry (see `ring`), and is checked here against private state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fulgurite_flash::{Completion, Op, Queue, Request, Switches};
use fulgurite_format::{FrameIndex, SubpageIndex, crc32c};
use fulgurite_store::Pool;
use fulgurite_sys::{Arena, Notifier};

use super::Backend;
use super::counters::Turned;
use super::memory::{Ends, Job, Memory};
use crate::bell::Bell;
use crate::entry::{
    COMPLETION_WORDS, Command, Ended, NO_ID, Opcode, SAY_CHECKSUM, SECTOR_BYTES, SUBMISSION_WORDS, Status,
    VERIFY_CHECKSUM,
};
use crate::identity::Identity;
use crate::region::Region;
use crate::ring::{Consumer, Producer};

/// Entries taken from one queue pair before the next one is polled.
const TAKE_MAX: usize = 64;
/// Sectors of the entries taken before the next pair's turn: 1 MiB. Data are checksummed as they
/// are taken, and many a medium moves them as it is asked.
const TAKE_SECTORS: u64 = 256;

/// Wakes a host that sleeps. Must not block.
pub trait Wake: Send + Sync {
    /// Wakes it.
    fn wake(&self);
}

impl Wake for Notifier {
    fn wake(&self) {
        self.notify();
    }
}

/// The data buffer of a queue pair: sectors of an arena.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) arena: Arc<Arena>,
    pub(super) first: u32,
    pub(super) count: u32,
}

/// A command that was taken and not completed.
#[derive(Clone, Copy)]
struct Running {
    sector: u32,
    /// The first frame of the arena.
    frame: u32,
    count: u32,
    /// Sectors that the medium was asked for.
    passed: u32,
    /// Sectors that have ended.
    ended: u32,
    checksum: u32,
    status: Status,
    op: Op,
    flags: u8,
    active: bool,
}

const IDLE: Running = Running {
    sector: 0,
    frame: 0,
    count: 0,
    passed: 0,
    ended: 0,
    checksum: 0,
    status: Status::SUCCESS,
    op: Op::Flush,
    flags: 0,
    active: false,
};

/// The device's side of one queue pair. On lines of its own.
#[repr(align(128))]
pub struct Port {
    region: Arc<Region>,
    submissions: Consumer<SUBMISSION_WORDS>,
    completions: Producer<COMPLETION_WORDS>,
    doorbell: Bell,
    host_bell: Bell,
    host: Arc<dyn Wake>,
    buffer: Buffer,
    queue: Box<dyn Queue>,
    /// By command id.
    running: Box<[Running]>,
    /// Commands of which the medium was not asked for all sectors, oldest first.
    partly: VecDeque<u16>,
    arrived: Vec<Completion>,
    /// The medium has requests that were not handed over.
    unflushed: bool,
    posted: bool,
    /// The medium says checksums.
    medium_checks: Option<bool>,
    commands_active: u32,
    /// Memory operations that the other thread has, among these, and those that it has ended.
    jobs: u32,
    ends: Arc<Ends>,
    turned: Turned,
    /// Where there is a store, whose room the region says, and what it said last.
    store: Option<Arc<Pool>>,
    room: u64,
    only_observes: bool,
    /// The last field, so that what it says when it is dropped is true: the queue has gone by then.
    closing: Arc<ReleaseNotice>,
}

/// How a queue pair ends, known to both sides of the device's wall.
#[derive(Debug, Default)]
pub struct Closing {
    closed: AtomicBool,
    gone: AtomicBool,
}

impl Closing {
    /// The host has gone, or wants no more of it.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
    /// Whether it has.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
    /// Whether nothing of the device touches the pair's memory any more.
    #[must_use]
    pub fn has_let_go(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// Says, with the drop of its last owner, that the device no longer touches the pair's memory.
#[derive(Debug)]
pub(super) struct ReleaseNotice(Arc<Closing>);

impl Drop for ReleaseNotice {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Release);
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("buffer", &self.buffer)
            .field("active", &self.commands_active)
            .finish_non_exhaustive()
    }
}

impl Port {
    pub(super) fn new(
        region: &Arc<Region>,
        pair: u32,
        buffer: Buffer,
        queue: Box<dyn Queue>,
        host: Arc<dyn Wake>,
        store: Option<Arc<Pool>>,
    ) -> Port {
        let depth = region.capability().depth as usize;
        let (submissions, completions) = region.device_ends(pair);
        let room = store.as_ref().map_or(0, |store| store.room());
        region.set_room(room);
        Port {
            store,
            room,
            submissions,
            completions,
            doorbell: region.doorbell(),
            host_bell: region.host_bell(pair),
            region: region.clone(),
            host,
            buffer,
            arrived: Vec::with_capacity(queue.depth()),
            queue,
            running: vec![IDLE; depth].into(),
            partly: VecDeque::with_capacity(depth),
            unflushed: false,
            posted: false,
            medium_checks: None,
            commands_active: 0,
            turned: Turned::default(),
            ends: Arc::default(),
            jobs: 0,
            only_observes: false,
            closing: Arc::new(ReleaseNotice(Arc::default())),
        }
    }
    /// From now on its host only reads what changes nothing ([`Opcode::only_observes`]).
    pub(crate) fn set_only_observes(&mut self) {
        self.only_observes = true;
    }
    /// How it ends.
    #[must_use]
    pub fn closing(&self) -> &Arc<Closing> {
        &self.closing.0
    }
    /// The region that it is of.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
    /// DRAM of its tables and of its queue on the medium.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Port>()
            + self.queue.bytes()
            + self.running.len() * (size_of::<Running>() + 2)
            + self.arrived.capacity() * size_of::<Completion>()
    }
    /// Commands taken and not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.commands_active as usize
    }
    pub(super) fn doorbell(&self) -> &Bell {
        &self.doorbell
    }
    pub(super) fn has_news(&self) -> bool {
        self.submissions.ready()
    }
    pub(super) fn wait(&mut self, timeout: Duration) {
        self.queue.wait(Some(timeout));
    }

    /// Steps 3 to 6 of the protocol, for all that is there.
    #[inline]
    pub(super) fn turn(&mut self, backend: &Backend, memory: Option<&Memory>) -> usize {
        let mut done = 0;
        // Step 3: fetch.
        let mut sectors = 0;
        while done < TAKE_MAX && sectors < TAKE_SECTORS {
            let Some(entry) = self.submissions.pop() else { break };
            done += 1;
            match entry {
                Ok(words) => {
                    let command = Command::unpack(words);
                    sectors += u64::from(command.count);
                    self.take(command, backend, memory);
                }
                Err(damaged) => self.broken(Status::DAMAGED_ENTRY, damaged.position),
            }
        }
        if done > 0 {
            self.submissions.fetch();
        }
        // Step 4: execute.
        self.pass_on();
        if std::mem::take(&mut self.unflushed) {
            // A medium that takes nothing more ends what is in flight, with errors.
            let _ = self.queue.flush();
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        if self.queue.poll(&mut arrived) > 0 {
            done += arrived.len();
            for completion in arrived.drain(..) {
                self.sector_ended(completion);
            }
        }
        self.arrived = arrived;
        self.say_room();
        self.notify(backend);
        done
    }
    /// Step 6: notify, if the host sleeps.
    #[inline]
    fn notify(&mut self, backend: &Backend) {
        if std::mem::take(&mut self.posted) {
            if self.host_bell.must_wake() {
                self.host.wake();
                self.turned.interrupts += 1;
            }
            backend.counters.add(&std::mem::take(&mut self.turned));
        }
    }

    /// Says what room there is now, where that has changed.
    #[inline]
    pub(super) fn say_room(&mut self) {
        let Some(store) = &self.store else { return };
        let room = store.room();
        if room != self.room {
            self.room = room;
            self.region.set_room(room);
        }
    }
    /// Step 5: complete.
    #[inline]
    fn post(&mut self, ended: Ended) {
        // Before: a host that sees the end of a write must not count its place as room.
        self.say_room();
        self.turned.completed += 1;
        self.turned.failed += u64::from(ended.status != Status::SUCCESS);
        self.completions.push(ended.pack());
        self.posted = true;
    }
    /// Answers an entry whose id cannot be believed.
    #[cold]
    fn broken(&mut self, status: Status, result: u64) {
        self.turned.broken += 1;
        self.post(Ended { id: NO_ID, status, result });
    }
    #[cold]
    fn refuse(&mut self, id: u16, status: Status) {
        self.post(Ended { id, status, result: 0 });
    }

    /// Checks a command, and begins it.
    #[inline]
    fn take(&mut self, command: Command, backend: &Backend, memory: Option<&Memory>) {
        self.turned.commands += 1;
        let id = command.id;
        match self.running.get(usize::from(id)) {
            Some(running) if !running.active => {}
            // To complete it by this id could complete another command.
            _ => return self.broken(Status::ID_CONFLICT, id.into()),
        }
        let Some(opcode) = Opcode::of(command.opcode) else { return self.refuse(id, Status::INVALID_OPCODE) };
        if self.only_observes && !opcode.only_observes() {
            return self.refuse(id, Status::ACCESS_DENIED);
        }
        if command.flags & !(SAY_CHECKSUM | VERIFY_CHECKSUM) != 0 {
            return self.refuse(id, Status::INVALID_FIELD);
        }
        match opcode {
            Opcode::Read => self.begin_data(command, Op::Read, backend),
            Opcode::Write => self.begin_data(command, Op::Write, backend),
            Opcode::Flush => self.begin_flush(id, backend),
            Opcode::Identify => self.identify(command, backend),
            _ => match memory {
                Some(memory) => self.begin_job(command, opcode, backend, memory),
                None => self.refuse(id, Status::INVALID_OPCODE),
            },
        }
    }
    /// A flush of a store names its state. In a session only the program's own commands do that.
    fn begin_flush(&mut self, id: u16, backend: &Backend) {
        if backend.in_session() {
            return self.refuse(id, Status::IN_SESSION);
        }
        backend.tick();
        self.begin(id, Running { op: Op::Flush, count: 1, ..IDLE });
    }
    /// Checks the ranges of a memory operation, and gives it to the other thread.
    #[cold]
    fn begin_job(&mut self, command: Command, opcode: Opcode, backend: &Backend, memory: &Memory) {
        let Command { id, flags, sector, count, .. } = command;
        let of_sectors = matches!(
            opcode,
            Opcode::Allocate | Opcode::Delete | Opcode::SetPermissions | Opcode::Trim | Opcode::ReadAt
        );
        let of_buffer = opcode == Opcode::ReadAt
            || matches!(opcode, Opcode::Tokens | Opcode::Pinned | Opcode::Standing | Opcode::Pages | Opcode::Dropped);
        if flags != 0
            || (of_sectors || of_buffer) && count == 0
            || of_buffer && count > backend.config.command_sectors
            || opcode == Opcode::Standing && count != 1
        {
            return self.refuse(id, Status::INVALID_FIELD);
        }
        let sectors = u64::from(backend.sectors);
        if of_sectors && (sector >= sectors || u64::from(count) > sectors - sector)
            || opcode == Opcode::Pages && sector >= sectors
        {
            return self.refuse(id, Status::SECTOR_RANGE);
        }
        if of_buffer && !self.in_buffer(&command) {
            return self.refuse(id, Status::BUFFER_RANGE);
        }
        let at = if of_buffer { (self.buffer.first + command.buffer) as usize * SECTOR_BYTES } else { 0 };
        let (arena, ends, _held) = (self.buffer.arena.clone(), self.ends.clone(), self.closing.clone());
        self.running[usize::from(id)] = Running { active: true, ..IDLE };
        self.commands_active += 1;
        self.jobs += 1;
        memory.send(Job { command, opcode, arena, at, ends, answered: false, _held });
    }
    /// Memory operations that have ended since this was asked last.
    #[inline]
    pub(super) fn take_ends(&mut self) -> Vec<(u16, Status, u64)> {
        if self.jobs > 0 { self.ends.take() } else { Vec::new() }
    }
    /// Completes them.
    #[cold]
    pub(super) fn end_jobs(&mut self, ended: &[(u16, Status, u64)], backend: &Backend) {
        for &(id, status, result) in ended {
            self.running[usize::from(id)].active = false;
            self.commands_active -= 1;
            self.jobs -= 1;
            self.post(Ended { id, status, result });
        }
        self.notify(backend);
    }
    /// Whether a range in the data buffer is all inside it.
    fn in_buffer(&self, command: &Command) -> bool {
        u64::from(command.buffer) + u64::from(command.count) <= u64::from(self.buffer.count)
    }
    #[inline]
    fn begin_data(&mut self, command: Command, op: Op, backend: &Backend) {
        let Command { id, flags, sector, count, buffer, argument, .. } = command;
        if count == 0 || count > backend.config.command_sectors {
            return self.refuse(id, Status::INVALID_FIELD);
        }
        let sectors = u64::from(backend.sectors);
        if sector >= sectors || u64::from(count) > sectors - sector {
            return self.refuse(id, Status::SECTOR_RANGE);
        }
        if !self.in_buffer(&command) {
            return self.refuse(id, Status::BUFFER_RANGE);
        }
        // Both fit by now.
        let (sector, frame) = (sector as u32, self.buffer.first + buffer);
        if backend.restricts
            && let Some(backing) = backend.flash.backing()
            && !(sector..sector + count).all(|s| backing.may(s, op == Op::Write))
        {
            return self.refuse(id, Status::ACCESS_DENIED);
        }
        if flags & VERIFY_CHECKSUM != 0 {
            if op == Op::Read {
                return self.refuse(id, Status::INVALID_FIELD);
            }
            if u64::from(self.checksum(frame, count)) != argument {
                return self.refuse(id, Status::WRONG_CHECKSUM);
            }
        }
        if flags & SAY_CHECKSUM != 0 && self.medium_checks.is_none() {
            let wanted = Switches { checksums: true, ..Switches::default() };
            self.medium_checks = Some(self.queue.switch(wanted).checksums);
        }
        if backend.config.bypass {
            let result = if flags & SAY_CHECKSUM == 0 { 0 } else { self.checksum(frame, count).into() };
            return self.post(Ended { id, status: Status::SUCCESS, result });
        }
        self.begin(id, Running { sector, frame, count, op, flags, ..IDLE });
    }
    #[inline]
    fn begin(&mut self, id: u16, running: Running) {
        self.running[usize::from(id)] = Running { active: true, ..running };
        self.commands_active += 1;
        // Oldest first: what is partly passed on goes on before anything new.
        if !self.partly.is_empty() || !self.pass(id) {
            self.partly.push_back(id);
        }
    }
    /// Asks the medium for what is left of a command. Returns whether that was all of it.
    #[inline]
    fn pass(&mut self, id: u16) -> bool {
        let running = &mut self.running[usize::from(id)];
        while running.passed < running.count {
            let request = Request {
                tag: id.into(),
                op: running.op,
                subpage: SubpageIndex(running.sector + running.passed),
                frame: FrameIndex(running.frame + running.passed),
            };
            if self.queue.submit(request).is_err() {
                return false;
            }
            self.unflushed = true;
            running.passed += 1;
        }
        true
    }
    fn pass_on(&mut self) {
        while let Some(&id) = self.partly.front() {
            if !self.pass(id) {
                return;
            }
            self.partly.pop_front();
        }
    }
    /// A sector of a command has ended.
    #[inline]
    fn sector_ended(&mut self, completion: Completion) {
        let id = completion.tag as u16;
        let running = &mut self.running[usize::from(id)];
        running.ended += 1;
        running.checksum = completion.checksum;
        if let Err(error) = completion.result
            && running.status == Status::SUCCESS
        {
            running.status = Status::of(Err(error));
        }
        if running.ended < running.count {
            return;
        }
        running.active = false;
        self.commands_active -= 1;
        let Running { op, count, frame, flags, status, checksum, .. } = *running;
        match op {
            Op::Read => self.turned.sectors_read += u64::from(count),
            Op::Write => self.turned.sectors_written += u64::from(count),
            Op::Flush => self.turned.flushes += u64::from(status == Status::SUCCESS),
        }
        let result = if flags & SAY_CHECKSUM == 0 || status != Status::SUCCESS {
            0
        } else if self.medium_checks == Some(true) && count == 1 {
            checksum
        } else {
            self.checksum(frame, count)
        };
        self.post(Ended { id, status, result: result.into() });
    }
    /// The checksum of sectors in the data buffer: CRC32C of one; of several, CRC32C of theirs, 4
    /// bytes each, little-endian, in order.
    fn checksum(&self, frame: u32, count: u32) -> u32 {
        checksum_of(count, |i, bytes| self.buffer.arena.read((frame + i) as usize * SECTOR_BYTES, bytes))
    }
    fn identify(&mut self, command: Command, backend: &Backend) {
        if command.count != 1 {
            return self.refuse(command.id, Status::INVALID_FIELD);
        }
        if !self.in_buffer(&command) {
            return self.refuse(command.id, Status::BUFFER_RANGE);
        }
        let identity =
            Identity::new(self.region.capability(), &backend.flash.describe(), backend.flash.traits().dram_bytes);
        let at = (self.buffer.first + command.buffer) as usize * SECTOR_BYTES;
        self.buffer.arena.write(at, &identity.to_bytes());
        self.post(Ended { id: command.id, status: Status::SUCCESS, result: 0 });
    }
}

/// The checksum of `count` sectors, each of which `read` brings.
pub(crate) fn checksum_of(count: u32, mut read: impl FnMut(u32, &mut [u8; SECTOR_BYTES])) -> u32 {
    let mut sector = Sector([0; SECTOR_BYTES]);
    if count == 1 {
        read(0, &mut sector.0);
        return crc32c(&sector.0);
    }
    let mut sums = Vec::with_capacity(count as usize * 4);
    for i in 0..count {
        read(i, &mut sector.0);
        sums.extend_from_slice(&crc32c(&sector.0).to_le_bytes());
    }
    crc32c(&sums)
}

#[repr(align(64))]
struct Sector([u8; SECTOR_BYTES]);
