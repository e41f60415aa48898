//! The device: requests go in with the time, and come out when they have ended.
//!
//! ```text
//!  submit ──> FTL queue ──> die queue, by plane ──> command on bus ──> array ──> register ──> done
//!             (unbounded)   (bounded)                                  (tR)        data on bus
//! ```
//!
//! A request waits in the FTL queue until its die's queue has room. Only the head of the FTL queue
//! is considered, so that one busy die blocks requests for all others (NVMM, "Nonvolatile Main
//! Memory System Architecture"); with [`crate::Queues::reorder`] requests pass those whose die's
//! queue is full. At a die, planes work independently of each other, each in the order of its
//! requests.
//!
//! A plane has an array and one or two registers. With two, the cache register sends what was read,
//! or receives what is to be programmed, while the array works with the other one. A bus carries
//! one thing at a time: a command with its addresses, with what is to be programmed behind it, or
//! what was read. With [`crate::Timing::commands_first`] the short commands (read, erase) go before
//! data.
//!
//! Invariants: an array does one thing at a time, and so does a bus. Requests of one plane reach
//! its array in the order in which they were submitted. Each ends exactly once. Pages of a block
//! are programmed from the first on, leaving none out, once between erases.
//!
//! Not here: program or erase suspension, operations of several planes at once with one command,
//! and data.

use crate::blocks::{Blocks, Correction};
use crate::counters::NandCounters;
use crate::events::{EventKind, Events};
use crate::geometry::{Block, Geometry, NandPage, Plane};
use crate::profile::Profile;
pub use crate::request::{Command, Done, NandOp, Resource, Span, Status, SubmitError, Violation};
use crate::slots::{Links, List, NONE, Slots};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Kind {
    #[default]
    Read,
    Program,
    Erase,
}

/// A request under way.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tag: u64,
    submitted: u64,
    issued: u64,
    /// A page, or a block for an erase.
    target: u32,
    plane: u32,
    offset: u32,
    bytes: u32,
    kind: Kind,
    status: Status,
    reclaim: bool,
    empty: bool,
    blocked_by_reclaim: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Array {
    Idle,
    /// It works for a request, or the request's command is on the bus.
    Busy(u32),
    /// It has read what cannot leave its register, as the cache register is taken.
    Holding(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cache {
    Free,
    /// What was read waits for the bus, or is being sent.
    Out(u32),
    /// What is to be programmed arrives.
    In(u32),
    /// It has arrived.
    Loaded(u32),
}

#[derive(Clone, Copy, Debug)]
struct PlaneState {
    /// Requests of its die's queue.
    queue: List,
    array: Array,
    cache: Cache,
    /// It waits for the bus with a command.
    wants: bool,
    /// Requests of reclaim whose array time has not ended.
    reclaims: u32,
}

#[derive(Clone, Copy, Debug)]
struct DieState {
    queued: u32,
    /// What passes others does not wait in the one FTL queue but in its die's part of it.
    ftl: List,
}

#[derive(Clone, Copy, Debug)]
struct BusState {
    /// Turns: 2 x plane for a command, 2 x plane + 1 for data that is sent.
    commands: List,
    data: List,
    free_at: u64,
    /// An event comes when it is free.
    wakes: bool,
}

/// The device.
#[derive(Debug)]
pub struct Nand {
    profile: Profile,
    blocks: Blocks,
    slots: Slots<Slot>,
    /// Of slots in queues.
    links: Links,
    /// Of turns for buses.
    turns: Links,
    planes: Vec<PlaneState>,
    dies: Vec<DieState>,
    buses: Vec<BusState>,
    ftl: List,
    /// The head of the FTL queue was counted as blocked.
    head_counted: bool,
    events: Events,
    now: u64,
    done: Vec<Done>,
    /// Channels on which something may be begun.
    kicked: Vec<u32>,
    counters: NandCounters,
    spans: Option<Vec<Span>>,
    /// Transfer times of a flash page and of a page.
    page_transfer_ns: u64,
}

impl Nand {
    /// A device of a profile, all of whose blocks are erased, for at most `depth` requests at a
    /// time. All that is random about it follows from `seed`.
    ///
    /// # Panics
    /// When `depth` is 0 or does not fit in 31 bits.
    #[must_use]
    pub fn new(profile: Profile, depth: usize, seed: u64) -> Nand {
        assert!(depth > 0 && depth < 1 << 31, "a device takes at least one request");
        let g = profile.geometry;
        let plane =
            PlaneState { queue: List::EMPTY, array: Array::Idle, cache: Cache::Free, wants: false, reclaims: 0 };
        let bus = BusState { commands: List::EMPTY, data: List::EMPTY, free_at: 0, wakes: false };
        let (planes, channels) = (g.planes() as usize, g.channels() as usize);
        Nand {
            blocks: Blocks::new(&profile, seed),
            slots: Slots::new(depth),
            links: Links::new(depth),
            turns: Links::new(2 * planes),
            planes: vec![plane; planes],
            dies: vec![DieState { queued: 0, ftl: List::EMPTY }; g.dies() as usize],
            buses: vec![bus; channels],
            ftl: List::EMPTY,
            head_counted: false,
            // At most one for each array and bus.
            events: Events::with_capacity(planes + 2 * channels),
            now: 0,
            done: Vec::with_capacity(depth),
            kicked: Vec::with_capacity(2 * channels + 8),
            counters: NandCounters::default(),
            spans: None,
            page_transfer_ns: profile.timing.transfer_ns(g.page_bytes()),
            profile,
        }
    }

    // ---- what it is ----

    /// Its profile.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }
    /// How it divides.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.profile.geometry
    }
    /// The page of a block that must be programmed next, by its number in the block, as many as it
    /// has pages when it is full.
    #[must_use]
    pub fn next_page(&self, block: Block) -> u32 {
        self.blocks.next(block)
    }
    /// Whether a block is bad, from the beginning or since.
    #[must_use]
    pub fn is_bad(&self, block: Block) -> bool {
        self.blocks.is_bad(block)
    }
    /// Whether a block was bad from the beginning.
    #[must_use]
    pub fn is_factory_bad(&self, block: Block) -> bool {
        self.blocks.is_factory_bad(block)
    }
    /// How often a block was erased.
    #[must_use]
    pub fn erases(&self, block: Block) -> u32 {
        self.blocks.erases(block)
    }
    /// How many bits of a codeword in a block are wrong when it is read, on average. A real device
    /// does not know that.
    #[must_use]
    pub fn wrong_bits(&self, block: Block) -> f32 {
        self.blocks.wrong_bits(block)
    }
    /// After how many erases a block fails. A real device does not know that.
    #[must_use]
    pub fn limit(&self, block: Block) -> u32 {
        self.blocks.limit(block)
    }
    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> &NandCounters {
        &self.counters
    }
    /// DRAM that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.bytes()
            + self.events.bytes()
            + self.slots.room().saturating_add(self.slots.taken()) * (size_of::<Slot>() + size_of::<Done>() + 8)
            + self.planes.len() * (size_of::<PlaneState>() + 8)
            + self.dies.len() * size_of::<DieState>()
    }
    /// Requests that have not ended, or whose end was not fetched.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.taken() + self.done.len()
    }
    /// Requests that it would take now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.room()
    }
    /// The time up to which it has worked.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now
    }
    /// The first pages of a block were programmed before this model was made: for a device that is
    /// opened again, or simulated from the middle of its life. Nothing may be under way in the
    /// block.
    ///
    /// # Panics
    /// When a block has fewer pages.
    pub fn assume_programmed(&mut self, block: Block, pages: u32) {
        assert!(pages <= self.profile.geometry.pages_per_block(), "a block has no more pages");
        self.blocks.assume(block, pages);
    }
    /// A block was erased so often before this model was made, and has failed or not.
    pub(crate) fn assume_worn(&mut self, block: Block, erases: u32, failed: bool) {
        self.blocks.assume_worn(block, erases, failed);
    }
    /// From now on notes what is busy when, or no longer.
    pub fn record_spans(&mut self, record: bool) {
        self.spans = record.then(Vec::new);
    }
    /// What was busy since this was asked last, in the order of when it began on each resource.
    pub fn take_spans(&mut self) -> Vec<Span> {
        self.spans.as_mut().map(std::mem::take).unwrap_or_default()
    }

    // ---- requests ----

    /// Takes one request at a time. A time before an earlier call's time counts as that time.
    ///
    /// # Errors
    /// When it breaks a rule of NAND, which is counted, or there is no room. Nothing has happened
    /// then.
    pub fn submit(&mut self, now_ns: u64, command: Command) -> Result<(), SubmitError> {
        self.run_until(now_ns);
        let slot = match self.slot_of(command) {
            Ok(slot) => slot,
            Err(violation) => {
                self.counters.violations += 1;
                return Err(violation.into());
            }
        };
        let kind = slot.kind;
        let (plane, block) = (slot.plane, self.block_of(&slot));
        let Some(number) = self.slots.take(slot) else { return Err(SubmitError::Full) };
        match kind {
            Kind::Read => {}
            Kind::Program => self.blocks.will_program(block),
            Kind::Erase => self.blocks.will_erase(block),
        }
        let state = &mut self.planes[plane as usize];
        state.reclaims += u32::from(slot.reclaim);
        self.enqueue(number);
        self.begin_all();
        Ok(())
    }
    /// Works up to a time, and appends what has ended until then, in the order of the ends.
    pub fn advance(&mut self, now_ns: u64, done: &mut Vec<Done>) {
        self.run_until(now_ns);
        done.append(&mut self.done);
    }
    /// Works up to a time, or to when the first requests have ended if that is earlier. Appends
    /// these. Returns whether there are any.
    pub fn advance_to_next(&mut self, now_ns: u64, done: &mut Vec<Done>) -> bool {
        while self.done.is_empty() && self.step(now_ns) {}
        // All that end at the same time come together.
        while !self.done.is_empty() && self.step(self.now) {}
        if self.done.is_empty() {
            self.now = self.now.max(now_ns);
            return false;
        }
        done.append(&mut self.done);
        true
    }
    /// When to call [`Nand::advance`] again: something may have ended then. None while nothing is
    /// under way.
    #[must_use]
    pub fn next_event_ns(&self) -> Option<u64> {
        if self.done.is_empty() { self.events.next_time() } else { Some(self.now) }
    }
    /// Checks that what it keeps agrees.
    ///
    /// # Panics
    /// When it does not.
    pub fn check(&self) {
        let dies = self.profile.geometry.dies();
        let mut held = 0;
        for (number, plane) in self.planes.iter().enumerate() {
            if let (Array::Holding(_), Cache::Free) = (plane.array, plane.cache) {
                panic!("plane {number} holds what could leave its register");
            }
            if let (Array::Idle, Cache::Loaded(_)) = (plane.array, plane.cache) {
                panic!("plane {number} does not program what it has");
            }
            held += u32::from(plane.array != Array::Idle) + u32::from(plane.cache != Cache::Free);
        }
        for (number, die) in self.dies.iter().enumerate() {
            assert!(die.queued <= self.profile.queues.die_queue, "die {number} has more than its queue holds");
        }
        assert!(held as usize <= self.slots.taken(), "what is held is under way");
        assert!(dies as usize == self.dies.len());
        assert!(self.kicked.is_empty(), "all that could begin has begun");
    }

    fn slot_of(&self, command: Command) -> Result<Slot, Violation> {
        let g = self.profile.geometry;
        let out_of_range = || Violation::OutOfRange(command.op);
        let slot = Slot {
            tag: command.tag,
            submitted: self.now,
            issued: self.now,
            reclaim: command.reclaim,
            ..Slot::default()
        };
        let (slot, plane) = match command.op {
            NandOp::Read { page, offset, bytes } => {
                let end = offset.checked_add(bytes).ok_or_else(out_of_range)?;
                if page.0 >= g.pages() || bytes == 0 || end > g.page_bytes() {
                    return Err(out_of_range());
                }
                let block = g.block_of(page);
                let empty = g.index_of(page) >= self.blocks.next(block);
                (Slot { kind: Kind::Read, target: page.0, offset, bytes, empty, ..slot }, g.plane_of(block))
            }
            NandOp::Program { page } => {
                if page.0 >= g.pages() {
                    return Err(out_of_range());
                }
                let block = g.block_of(page);
                let (index, next) = (g.index_of(page), self.blocks.next(block));
                if index < next {
                    return Err(Violation::NotErased { page, block, next });
                }
                if index > next {
                    return Err(Violation::OutOfOrder { page, block, next });
                }
                let bytes = g.page_bytes();
                (Slot { kind: Kind::Program, target: page.0, bytes, ..slot }, g.plane_of(block))
            }
            NandOp::Erase { block } => {
                if block.0 >= g.blocks() {
                    return Err(out_of_range());
                }
                (Slot { kind: Kind::Erase, target: block.0, reclaim: true, ..slot }, g.plane_of(block))
            }
        };
        let state = &self.planes[plane.0 as usize];
        Ok(Slot { plane: plane.0, blocked_by_reclaim: state.reclaims > 0, ..slot })
    }
    fn block_of(&self, slot: &Slot) -> Block {
        match slot.kind {
            Kind::Erase => Block(slot.target),
            Kind::Read | Kind::Program => self.profile.geometry.block_of(NandPage(slot.target)),
        }
    }

    // ---- queues ----

    #[inline]
    fn channel_of(&self, plane: u32) -> u32 {
        self.profile.geometry.channel_of(Plane(plane))
    }
    #[inline]
    fn die_of(&self, plane: u32) -> usize {
        self.profile.geometry.die_of(Plane(plane)) as usize
    }
    /// Puts a new request where it waits.
    fn enqueue(&mut self, number: u32) {
        let die = self.die_of(self.slots[number].plane);
        if self.profile.queues.reorder {
            self.dies[die].ftl.push(&mut self.links, number);
            self.feed_die(die);
        } else {
            self.ftl.push(&mut self.links, number);
            self.feed();
        }
    }
    /// Moves requests from the FTL queue to the dies' queues, until its head has to wait.
    fn feed(&mut self) {
        while let Some(number) = self.ftl.head() {
            let die = self.die_of(self.slots[number].plane);
            if self.dies[die].queued >= self.profile.queues.die_queue {
                if !std::mem::replace(&mut self.head_counted, true) {
                    self.counters.head_blocked += 1;
                }
                return;
            }
            self.head_counted = false;
            self.ftl.pop(&self.links);
            self.queue_at_die(die, number);
        }
    }
    fn feed_die(&mut self, die: usize) {
        while self.dies[die].queued < self.profile.queues.die_queue {
            let Some(number) = self.dies[die].ftl.pop(&self.links) else { return };
            self.queue_at_die(die, number);
        }
    }
    fn queue_at_die(&mut self, die: usize, number: u32) {
        self.dies[die].queued += 1;
        let slot = &self.slots[number];
        if slot.kind == Kind::Read {
            self.counters.read_ftl_queue_ns += self.now - slot.submitted;
        }
        let plane = slot.plane;
        self.planes[plane as usize].queue.push(&mut self.links, number);
        self.ask(plane);
    }

    // ---- buses ----

    /// Lets a plane wait for the bus with its next command, if it can take it.
    fn ask(&mut self, plane: u32) {
        let state = &self.planes[plane as usize];
        let Some(number) = state.queue.head() else { return };
        if state.wants {
            return;
        }
        let program = self.slots[number].kind == Kind::Program;
        let one_register = self.profile.timing.registers == 1;
        let ready = match (state.array, state.cache) {
            (Array::Idle, Cache::Free) => true,
            // The next access begins while the last one's data leaves the other register.
            (Array::Idle, Cache::Out(_)) => !program && !one_register,
            // What arrives now is programmed next. Behind a read the register would be in its way.
            (Array::Busy(other), Cache::Free) => program && !one_register && self.slots[other].kind != Kind::Read,
            _ => false,
        };
        if !ready {
            return;
        }
        let channel = self.channel_of(plane);
        let bus = &mut self.buses[channel as usize];
        let list = if program || !self.profile.timing.commands_first { &mut bus.data } else { &mut bus.commands };
        list.push(&mut self.turns, 2 * plane);
        self.planes[plane as usize].wants = true;
        self.kick(plane);
    }
    /// Lets what was read wait for the bus.
    fn send(&mut self, plane: u32) {
        let channel = self.channel_of(plane);
        let bus = &mut self.buses[channel as usize];
        bus.data.push(&mut self.turns, 2 * plane + 1);
        self.kick(plane);
    }
    fn kick(&mut self, plane: u32) {
        self.kicked.push(self.channel_of(plane));
    }
    /// Begins all that can begin now.
    fn begin_all(&mut self) {
        while let Some(channel) = self.kicked.pop() {
            while self.begin(channel) {}
            let bus = &mut self.buses[channel as usize];
            if !(bus.wakes || bus.commands.is_empty() && bus.data.is_empty()) {
                bus.wakes = true;
                self.events.at(bus.free_at, EventKind::BusFree, channel);
            }
        }
    }
    /// Gives a free bus to the next that waits for it.
    fn begin(&mut self, channel: u32) -> bool {
        let bus = &mut self.buses[channel as usize];
        if bus.free_at > self.now {
            return false;
        }
        let turn = bus.commands.pop(&self.turns).or_else(|| bus.data.pop(&self.turns));
        let Some(turn) = turn else { return false };
        if turn % 2 == 0 {
            self.begin_command(channel, turn / 2);
        } else {
            self.begin_sending(channel, turn / 2);
        }
        true
    }
    fn hold_bus(&mut self, channel: u32, duration: u64, wakes: bool, tag: u64) -> u64 {
        let end = self.now + duration;
        let bus = &mut self.buses[channel as usize];
        (bus.free_at, bus.wakes) = (end, bus.wakes || wakes);
        self.counters.bus_busy_ns += duration;
        if let Some(spans) = &mut self.spans {
            spans.push(Span { resource: Resource::Bus(channel), begin_ns: self.now, end_ns: end, tag });
        }
        end
    }
    fn begin_command(&mut self, channel: u32, plane: u32) {
        let state = &mut self.planes[plane as usize];
        state.wants = false;
        let number = state.queue.pop(&self.links).expect("it waited with a command");
        let slot = &mut self.slots[number];
        slot.issued = self.now;
        let Slot { tag, kind, .. } = *slot;
        let timing = self.profile.timing;
        match kind {
            Kind::Read => {
                let begin = self.hold_bus(channel, timing.command_ns, false, tag);
                self.work(plane, number, begin, timing.read_ns, EventKind::ReadDone);
            }
            Kind::Erase => {
                let begin = self.hold_bus(channel, timing.command_ns, false, tag);
                self.work(plane, number, begin, timing.erase_ns, EventKind::EraseDone);
            }
            Kind::Program => {
                self.planes[plane as usize].cache = Cache::In(number);
                let bytes = u64::from(self.profile.geometry.page_bytes());
                self.counters.bus_bytes += bytes;
                self.counters.transfer_pj += bytes * self.profile.energy.transfer_pj;
                let end = self.hold_bus(channel, timing.command_ns + self.page_transfer_ns, true, tag);
                self.events.at(end, EventKind::Loaded, plane);
            }
        }
        let die = self.die_of(plane);
        self.dies[die].queued -= 1;
        if self.profile.queues.reorder {
            self.feed_die(die);
        } else {
            self.feed();
        }
        self.ask(plane);
    }
    fn begin_sending(&mut self, channel: u32, plane: u32) {
        let Cache::Out(number) = self.planes[plane as usize].cache else { unreachable!("it waited with data") };
        let Slot { tag, bytes, .. } = self.slots[number];
        self.counters.bus_bytes += u64::from(bytes);
        self.counters.transfer_pj += u64::from(bytes) * self.profile.energy.transfer_pj;
        let end = self.hold_bus(channel, self.profile.timing.transfer_ns(bytes), true, tag);
        self.events.at(end, EventKind::Sent, plane);
    }

    // ---- planes ----

    /// An array works for a request.
    fn work(&mut self, plane: u32, number: u32, begin: u64, duration: u64, ends: EventKind) {
        self.planes[plane as usize].array = Array::Busy(number);
        self.counters.array_busy_ns += duration;
        if let Some(spans) = &mut self.spans {
            let (resource, tag) = (Resource::Array(Plane(plane)), self.slots[number].tag);
            spans.push(Span { resource, begin_ns: begin, end_ns: begin + duration, tag });
        }
        self.events.at(begin + duration, ends, plane);
    }
    fn run_until(&mut self, now_ns: u64) {
        while self.step(now_ns) {}
        self.now = self.now.max(now_ns);
    }
    /// Lets the next thing happen, if it is not later than that.
    fn step(&mut self, limit: u64) -> bool {
        let Some((time, what, to)) = self.events.pop_until(limit) else { return false };
        self.now = self.now.max(time);
        match what {
            EventKind::ReadDone | EventKind::ProgramDone | EventKind::EraseDone => self.array_done(to),
            EventKind::Loaded => self.loaded(to),
            EventKind::Sent => self.sent(to),
            EventKind::BusFree => {
                self.buses[to as usize].wakes = false;
                self.kicked.push(to);
            }
        }
        self.begin_all();
        true
    }
    fn array_done(&mut self, plane: u32) {
        let Array::Busy(number) = self.planes[plane as usize].array else { unreachable!("an array that worked") };
        let slot = self.slots[number];
        let block = self.block_of(&slot);
        let bad = self.blocks.is_bad(block);
        let status = match slot.kind {
            Kind::Read => {
                self.counters.reads += 1;
                self.counters.read_pj += self.profile.energy.read_pj;
                self.read_status(&slot)
            }
            Kind::Program => {
                self.counters.programs += 1;
                self.counters.program_pj += self.profile.energy.program_pj;
                if self.blocks.program(NandPage(slot.target)) { Status::Ok } else { Status::ProgramFailed }
            }
            Kind::Erase => {
                self.counters.erases += 1;
                self.counters.erase_pj += self.profile.energy.erase_pj;
                if self.blocks.erase(block) { Status::Ok } else { Status::EraseFailed }
            }
        };
        self.counters.program_failures += u64::from(status == Status::ProgramFailed);
        self.counters.grown_bad_blocks += u64::from(!bad && self.blocks.is_bad(block));
        self.slots[number].status = status;
        let state = &mut self.planes[plane as usize];
        state.reclaims -= u32::from(slot.reclaim);
        state.array = Array::Idle;
        if slot.kind != Kind::Read {
            self.end(number);
            self.begin_loaded(plane);
        } else if state.cache == Cache::Free {
            state.cache = Cache::Out(number);
            self.send(plane);
        } else {
            state.array = Array::Holding(number);
        }
        self.ask(plane);
    }
    fn read_status(&mut self, slot: &Slot) -> Status {
        if slot.empty {
            return Status::Empty;
        }
        match self.blocks.read(NandPage(slot.target), slot.offset, slot.bytes) {
            Correction::Corrected(0) => Status::Ok,
            Correction::Corrected(bits) => Status::Corrected(bits),
            Correction::Uncorrectable => {
                self.counters.uncorrectable += 1;
                Status::Uncorrectable
            }
        }
    }
    /// What has arrived is programmed, as soon as the array is free.
    fn begin_loaded(&mut self, plane: u32) {
        let state = &mut self.planes[plane as usize];
        if let (Array::Idle, Cache::Loaded(number)) = (state.array, state.cache) {
            // With one register that stays taken: the array is busy as long.
            state.cache = Cache::Free;
            self.work(plane, number, self.now, self.profile.timing.program_ns, EventKind::ProgramDone);
        }
    }
    fn loaded(&mut self, plane: u32) {
        self.bus_is_free(plane);
        let state = &mut self.planes[plane as usize];
        let Cache::In(number) = state.cache else { unreachable!("a register that was being filled") };
        state.cache = Cache::Loaded(number);
        self.begin_loaded(plane);
        self.ask(plane);
    }
    fn sent(&mut self, plane: u32) {
        self.bus_is_free(plane);
        let Cache::Out(number) = self.planes[plane as usize].cache else { unreachable!("a register that was emptied") };
        self.end(number);
        let state = &mut self.planes[plane as usize];
        state.cache = Cache::Free;
        if let Array::Holding(next) = state.array {
            (state.array, state.cache) = (Array::Idle, Cache::Out(next));
            self.send(plane);
        }
        self.ask(plane);
    }
    fn bus_is_free(&mut self, plane: u32) {
        let channel = self.channel_of(plane);
        self.buses[channel as usize].wakes = false;
        self.kicked.push(channel);
    }
    fn end(&mut self, number: u32) {
        let slot = self.slots[number];
        self.slots.give_back(number);
        if slot.kind == Kind::Read {
            self.counters.reads_blocked_by_reclaim += u64::from(slot.blocked_by_reclaim);
        }
        self.done.push(Done {
            tag: slot.tag,
            status: slot.status,
            submitted_ns: slot.submitted,
            issued_ns: slot.issued,
            done_ns: self.now,
            blocked_by_reclaim: slot.blocked_by_reclaim,
        });
    }
}

const _: () = assert!(size_of::<Slot>() <= 64, "a request's state is one cache line");
const _: () = assert!(NONE == u32::MAX);
