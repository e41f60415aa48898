//! What each backend does at a miss, and what devices are asked for.

use fulgurite_format::SubpageIndex;
use fulgurite_policy::Replacement;

use super::device::{CLEANING, SYNC, WRITE};
use super::frames::Residency;
use super::home::NONE;
use super::log::{Found, LogIo};
use super::run::{Event, Run, Thread};
use super::system::{RuntimeCosts, SystemCosts};
use crate::planted::Planted;
use crate::time::Time;

impl<R: Replacement> Run<'_, R> {
    // ---- misses ----

    /// Takes a frame for what is to come. None: it is there, or every frame is in use.
    pub(super) fn takes(&mut self, home: u32, unit: u32, at: Time) -> Option<u32> {
        let of = &mut self.homes[home as usize];
        if u64::from(unit) >= self.system.units() || of.frames.residency(unit) != Residency::Absent {
            return None;
        }
        let (frame, victim) = of.frames.take(unit)?;
        if let Some(victim) = victim {
            if victim.prefetched {
                of.prefetcher.wasted(SubpageIndex(victim.subpage));
                self.sums.wasted += 1;
            }
            if victim.dirty {
                self.leaves(home, victim.subpage, at);
            }
        }
        Some(frame)
    }
    /// A unit that was written to goes to the evict buffer.
    pub(super) fn leaves(&mut self, home: u32, unit: u32, at: Time) {
        if self.system.planted == Planted::LostWriteBack {
            return;
        }
        self.homes[home as usize].writing += 1;
        self.sums.moved += self.system.unit();
        self.schedule(at, Event::Write(home, unit));
    }
    /// The frame of the unit that missed. There is one: see `PagingSystem::check`.
    pub(super) fn takes_own(&mut self, home: u32, unit: u32, at: Time) -> u32 {
        self.takes(home, unit, at).expect("there are more frames than threads can wait for")
    }
    pub(super) fn controller_misses(&mut self, core: u32, lookup: Time) {
        let at = self.events.now() + lookup;
        let Thread { home, unit, .. } = self.threads[self.running(core) as usize];
        let frame = self.takes_own(home, unit, at);
        self.schedule(at, Event::Ask(home, vec![(unit, u64::from(frame))]));
        let ahead = self.homes[home as usize].prefetcher.missed(SubpageIndex(unit));
        self.reads_ahead(home, ahead, at);
        self.waits(core, frame, at);
    }
    /// What is read ahead makes no miss wait: it is not read where the evict buffer has no room for
    /// a victim.
    pub(super) fn reads_ahead(&mut self, home: u32, ahead: Option<core::ops::Range<u32>>, at: Time) {
        let ahead = ahead.filter(|_| self.system.planted != Planted::LostReadAhead);
        for unit in ahead.into_iter().flatten() {
            let has_room = self.homes[home as usize].writing < self.system.buffer();
            match has_room.then(|| self.takes(home, unit, at)).flatten() {
                Some(frame) => {
                    self.homes[home as usize].frames.prefetch(frame);
                    self.sums.ahead += 1;
                    self.schedule(at, Event::Ask(home, vec![(unit, u64::from(frame))]));
                }
                None => {
                    self.homes[home as usize].prefetcher.used(SubpageIndex(unit));
                }
            }
        }
    }
    /// The first touch of what was read ahead.
    pub(super) fn use_read_ahead(&mut self, home: u32, frame: u32, unit: u32) {
        let of = &mut self.homes[home as usize];
        if of.frames.take_prefetched(frame) {
            let ahead = of.prefetcher.used(SubpageIndex(unit));
            self.reads_ahead(home, ahead, self.events.now());
        }
    }
    /// A thread is in the operating system, and has had its lock. Returns from when on.
    fn enters_system(&mut self, now: Time, costs: SystemCosts) -> Time {
        // One after another, for all cores.
        let lock = if self.system.planted == Planted::NoLock { Time::ZERO } else { self.lock };
        self.lock = (now + costs.fault).max(lock) + costs.locked;
        self.sums.software += costs.fault + costs.locked;
        self.lock
    }
    /// The thread of a core writes its page through the system, and waits for the device.
    pub(super) fn syncs(&mut self, core: u32, costs: SystemCosts) {
        let now = self.events.now();
        let number = self.running(core);
        let at = self.enters_system(now, costs) + costs.submit;
        self.sums.software += costs.submit;
        self.threads[number as usize].synced = true;
        self.cores[core as usize].running = None;
        self.schedule(at, Event::Sync(number));
        self.schedule(at, Event::Free(core));
    }
    /// The device is asked to write a thread's page.
    pub(super) fn sync(&mut self, number: u32) {
        let now = self.events.now();
        let Thread { home, unit, .. } = self.threads[number as usize];
        let place = self.place(home, unit);
        self.sums.writes += 1;
        let device = &mut self.homes[home as usize].device;
        let tag = SYNC | u64::from(number);
        self.threads[number as usize].parts = device.parts();
        if let Some(ends) = device.write(now, place, false, tag) {
            self.schedule(ends, Event::Part(home, tag));
        }
    }
    /// A fault of the operating system, in its parts.
    pub(super) fn faults(&mut self, core: u32, costs: SystemCosts) {
        let now = self.events.now();
        let Thread { home, unit, .. } = self.threads[self.running(core) as usize];
        let mut at = self.enters_system(now, costs);
        let of = &self.homes[home as usize];
        let group = |place: u32| (place - place % costs.cluster)..(place - place % costs.cluster + costs.cluster);
        let around: Vec<u32> = match &of.swap {
            None => group(unit).collect(),
            Some(swap) => {
                let slots = group(swap.of_page[unit as usize]);
                slots.filter_map(|slot| swap.page_in.get(slot as usize).copied()).filter(|page| *page != NONE).collect()
            }
        };
        let wanted = around.len().max(1);
        while self.homes[home as usize].frames.free() < wanted {
            match self.reclaims(core, home, costs, at) {
                Some(ends) => at = ends,
                None => break,
            }
        }
        at += costs.submit;
        self.sums.software += costs.submit;
        let frame = self.takes_own(home, unit, at);
        let mut pages = vec![(self.place(home, unit), u64::from(frame))];
        for other in around.into_iter().filter(|other| *other != unit) {
            if let Some(frame) = self.takes(home, other, at) {
                self.homes[home as usize].frames.prefetch(frame);
                self.sums.ahead += 1;
                pages.push((self.place(home, other), u64::from(frame)));
            }
        }
        self.schedule(at, Event::Ask(home, pages));
        self.waits(core, frame, at);
    }
    /// The core that faults reclaims a batch. Returns when it has, or none, when nothing can go.
    pub(super) fn reclaims(&mut self, core: u32, home: u32, costs: SystemCosts, begins: Time) -> Option<Time> {
        let (mut at, mut freed) = (begins, 0);
        while freed < costs.batch {
            let Some(victim) = self.homes[home as usize].frames.reclaim() else { break };
            freed += 1;
            at += costs.reclaim;
            self.sums.wasted += u64::from(victim.prefetched);
            if victim.dirty {
                at += costs.swap_out;
                self.leaves(home, victim.subpage, at);
            }
        }
        if freed == 0 {
            return None;
        }
        // Only cores on which the program runs have translations to forget.
        let mut told = 0;
        for (other, of) in self.cores.iter_mut().enumerate() {
            let runs = of.running.is_some() && self.system.planted != Planted::NoShootdown;
            if other != core as usize && runs {
                of.debt += costs.interrupted;
                self.sums.software += costs.interrupted;
                told += 1;
            }
        }
        at += costs.shootdown * told;
        self.sums.shootdowns += u64::from(told > 0);
        self.sums.software += at - begins;
        Some(at)
    }
    /// Where a page is on the device.
    pub(super) fn place(&self, home: u32, unit: u32) -> u32 {
        self.homes[home as usize].swap.as_ref().map_or(unit, |swap| swap.of_page[unit as usize])
    }
    /// SSDAlloc's runtime gets a signal.
    pub(super) fn signalled(&mut self, core: u32, costs: RuntimeCosts) {
        let at = self.events.now() + costs.signal + self.system.table(costs) + costs.dematerialize;
        self.sums.software += at - self.events.now();
        let Thread { home, unit, .. } = self.threads[self.running(core) as usize];
        let frame = self.takes_own(home, unit, at);
        if let Some(mapped) = &mut self.mapped {
            mapped.touch(u64::from(unit));
        }
        let of = &mut self.homes[home as usize];
        match of.log.as_ref().map(|log| log.find(unit)) {
            Some(Found::Page(page)) => self.schedule(at, Event::Ask(home, vec![(page, u64::from(frame))])),
            // In the page that is being filled.
            Some(Found::Filling) | None => {
                of.left[frame as usize] = 1;
                self.schedule(at, Event::Part(home, u64::from(frame)));
            }
        }
        self.waits(core, frame, at);
    }

    // ---- devices ----

    pub(super) fn ask(&mut self, home: u32, pages: &[(u32, u64)]) {
        let now = self.events.now();
        self.sums.reads += pages.len() as u64;
        let of = &mut self.homes[home as usize];
        for (_, frame) in pages {
            of.left[*frame as usize] = of.device.parts();
        }
        if let Some(there) = of.device.read(now, pages) {
            pages.iter().for_each(|(_, frame)| self.schedule(there, Event::Part(home, *frame)));
        }
    }
    /// A unit goes from the evict buffer to its device, or to the page of the log that is filled.
    pub(super) fn write(&mut self, home: u32, unit: u32) {
        let now = self.events.now();
        let mut io = std::mem::take(&mut self.io);
        io.clear();
        let of = &mut self.homes[home as usize];
        of.writing -= 1;
        let to_log = of.log.is_some();
        match (&mut of.log, &mut of.swap) {
            (Some(log), _) => log.write(unit, &mut io),
            (None, Some(swap)) => io.push(LogIo::Write(swap.leave(unit))),
            (None, None) => io.push(LogIo::Write(unit)),
        }
        for io in &io {
            let of = &mut self.homes[home as usize];
            match *io {
                LogIo::Read(page) => {
                    self.sums.reads += 1;
                    of.device.read(now, &[(page, CLEANING)]);
                }
                LogIo::Write(page) => {
                    self.sums.writes += 1;
                    of.writing += of.device.parts();
                    if let Some(ends) = of.device.write(now, page, to_log, WRITE) {
                        self.schedule(ends, Event::Part(home, WRITE));
                    }
                }
            }
        }
        self.io = io;
        self.wake_throttled(home);
    }
    /// Misses that waited for the evict buffer try again.
    pub(super) fn wake_throttled(&mut self, home: u32) {
        let now = self.events.now();
        let of = &mut self.homes[home as usize];
        if of.writing < self.system.buffer()
            && let Some(core) = of.throttled.pop_front()
        {
            self.schedule(now, Event::LookUp(core));
        }
    }
    pub(super) fn part(&mut self, home: u32, tag: u64) {
        if tag & SYNC != 0 {
            let number = tag as u32;
            let parts = &mut self.threads[number as usize].parts;
            *parts -= 1;
            if *parts == 0 {
                self.ready(number);
            }
            return;
        }
        let of = &mut self.homes[home as usize];
        if tag & WRITE != 0 {
            of.writing -= 1;
            self.wake_throttled(home);
        } else if tag & CLEANING == 0 {
            let left = &mut of.left[tag as usize];
            *left -= 1;
            if *left == 0 {
                self.data(home, tag as u32);
            }
        }
    }
    /// A frame has its contents.
    pub(super) fn data(&mut self, home: u32, frame: u32) {
        let now = self.events.now();
        self.sums.moved += self.system.unit();
        let of = &mut self.homes[home as usize];
        of.frames.arrived(frame);
        for number in std::mem::take(&mut of.waiting[frame as usize]) {
            let stalls = self.stalls();
            let thread = &mut self.threads[number as usize];
            thread.came = now.max(thread.asked);
            if stalls {
                thread.resumed = thread.came;
                let (core, ends) = (thread.core, thread.came + self.system.access);
                self.schedule(ends, Event::Done(core));
            } else {
                let ready = thread.came;
                self.schedule(ready, Event::Ready(number));
            }
        }
    }
    pub(super) fn ready(&mut self, thread: u32) {
        self.runnable.push_back(thread);
        if let Some(core) = self.idle.pop() {
            self.schedule(self.events.now(), Event::Free(core));
        }
    }
}
