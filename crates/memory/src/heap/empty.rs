//! Pages that are wholly free: found among the free objects of all classes, and taken out of them,
//! so that they can serve other sizes, and the pool gets their space back.
//!
//! ```text
//! 1. walk all lists:  free bytes of each page       a page with 64 KiB of them is empty
//! 2. walk them again: objects of empty pages go     the others are stacked into new batches
//! ```
//!
//! DRAM is needed for the count of each page with a free object, and not for the objects. A limited
//! number of pages is counted at a time, the lowest that were not counted. The turns of all classes
//! are held. So what has free objects in DRAM or an uncut slab goes on, and others wait. Objects
//! freed meanwhile are not counted.
//!
//! The work is worth it once enough was freed since the last time ([`Heap::look_for_freed`]). So an
//! object that is free is counted at most some ten times, however long it stays free.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;

use fulgurite_format::{Address, PAGE_BYTES};
use fulgurite_runtime::AccessError;

use super::size_class::{CLASSES, class_bytes};
use super::{Heap, SUBPAGE, hold};
use crate::{Latch, Memory, Pinned, Region};

const PAGE: u64 = PAGE_BYTES as u64;
/// Less is not worth a walk: 16 pages.
const LEAST: u64 = 16 * PAGE;
/// This part of the space handed out has to become free between two walks.
const SHARE: u64 = 8;
/// Pages that are counted at a time: some 1 MiB of DRAM for 1 GiB of memory.
const COUNTED_MOST: usize = 16 << 10;
/// Batches between two points where other work may run.
const AT_ONCE: u64 = 64;

/// Whole pages, by their linear numbers.
type Run = Range<u64>;
/// A bit for each class.
type Classes = [u64; CLASSES.div_ceil(64)];

/// Free bytes of the pages of free objects.
struct Pages {
    /// The pages that are counted. They end where there are too many. A larger object is in the
    /// window with its first whole page.
    window: Run,
    most: usize,
    /// Of each page that has a free object, or the end of one, with the classes of these.
    free: BTreeMap<u64, (u64, Classes)>,
    /// The first of the whole pages of each larger object, where that is in the window.
    larger: BTreeSet<u64>,
    /// Classes with objects in empty pages.
    classes: Classes,
    /// Inside of larger objects that were taken.
    inside: Vec<Run>,
    /// What is left of these next to their empty pages.
    rests: Vec<Region>,
}

/// The pages of an object: parts of one at its front and its end, and whole ones.
struct Spread {
    front: Option<(u64, u64)>,
    whole: Run,
    end: Option<(u64, u64)>,
}

/// An object's bytes by page, with the tail of a subpage that no object of the class fits into.
fn spread(at: Address, size: u64) -> Spread {
    let linear = at.linear();
    if size < SUBPAGE {
        let tail = SUBPAGE % size;
        let is_last = at.subpage_offset() as u64 + size + tail == SUBPAGE;
        let front = Some((linear / PAGE, size + if is_last { tail } else { 0 }));
        return Spread { front, whole: 0..0, end: None };
    }
    let (first, last) = (linear / PAGE, (linear + size) / PAGE);
    let (behind, over) = (linear % PAGE, (linear + size) % PAGE);
    if first == last {
        return Spread { front: Some((first, size)), whole: 0..0, end: None };
    }
    Spread {
        front: (behind > 0).then(|| (first, PAGE - behind)),
        whole: first + u64::from(behind > 0)..last,
        end: (over > 0).then_some((last, over)),
    }
}

impl Pages {
    /// From this page on, at most `most`.
    fn from(first: u64, most: usize) -> Pages {
        let (window, classes) = (first..u64::MAX, Classes::default());
        let (free, larger) = (BTreeMap::new(), BTreeSet::new());
        Pages { window, most, free, larger, classes, inside: Vec::new(), rests: Vec::new() }
    }
    /// Where the next search begins: 0 if all to the end were counted.
    fn next(&self) -> u64 {
        if self.window.end == u64::MAX { 0 } else { self.window.end }
    }
    fn add(&mut self, class: usize, at: Address) {
        let Spread { front, whole, end } = spread(at, class_bytes(class));
        for (page, bytes) in front.into_iter().chain(end) {
            self.add_to(page, bytes, class);
        }
        if !whole.is_empty() && self.window.contains(&whole.start) {
            self.classes[class / 64] |= 1 << (class % 64);
            self.larger.insert(whole.start);
            self.narrow();
        }
    }
    /// Ends the window before what is too much, the highest first.
    fn narrow(&mut self) {
        while self.free.len() + self.larger.len() > self.most
            && let Some(last) = self.free.keys().next_back().copied().max(self.larger.last().copied())
        {
            self.free.remove(&last);
            self.larger.remove(&last);
            self.window.end = last;
        }
    }
    fn add_to(&mut self, page: u64, bytes: u64, class: usize) {
        if !self.window.contains(&page) {
            return;
        }
        let (free, classes) = self.free.entry(page).or_default();
        *free += bytes;
        classes[class / 64] |= 1 << (class % 64);
        self.narrow();
    }
    /// From now on these are the empty ones.
    fn only_empty(&mut self) {
        self.free.retain(|_, (bytes, _)| *bytes == PAGE);
        for (_, classes) in self.free.values() {
            self.classes.iter_mut().zip(classes).for_each(|(all, its)| *all |= its);
        }
    }
    /// Whether something of the class may be in an empty page.
    fn has(&self, class: usize) -> bool {
        self.classes[class / 64] & 1 << (class % 64) != 0
    }
    /// Takes a free object that is in an empty page, or has one inside. Returns whether it is or
    /// has.
    fn take(&mut self, at: Address, size: u64) -> bool {
        let Spread { front, whole, end } = spread(at, size);
        let parts = [front, end];
        let has_inside = !whole.is_empty() && self.window.contains(&whole.start);
        if !has_inside && !parts.iter().flatten().any(|(page, _)| self.free.contains_key(page)) {
            return false;
        }
        for (i, (page, bytes)) in parts.into_iter().enumerate().filter_map(|(i, part)| Some((i, part?))) {
            match self.free.entry(page) {
                Entry::Occupied(mut free) => free.get_mut().0 -= bytes,
                // The rest of a large object, whole subpages: its front, or its end.
                Entry::Vacant(_) => {
                    let from = if i == 0 { at } else { at.add(size - bytes) };
                    self.rests.push(Region { base: from, bytes });
                }
            }
        }
        if !whole.is_empty() {
            self.inside.push(whole);
        }
        true
    }
    /// Takes the rest of a slab that is in an empty page. Returns whether it is.
    fn take_rest(&mut self, Rest { page, bytes, .. }: Rest) -> bool {
        let Some((left, _)) = self.free.get_mut(&page) else { return false };
        *left -= bytes;
        true
    }
    /// The pages of which everything was taken, and bytes that were taken of others.
    fn end(self) -> (Vec<Run>, Vec<Region>, u64) {
        let mut runs = self.inside;
        let mut lost = 0;
        for (page, (left, _)) in self.free {
            if left == 0 {
                runs.push(page..page + 1);
            } else {
                lost += PAGE - left;
            }
        }
        runs.sort_unstable_by_key(|run| run.start);
        let mut merged: Vec<Run> = Vec::new();
        for run in runs {
            match merged.last_mut().filter(|last| last.end == run.start) {
                Some(last) => last.end = run.end,
                None => merged.push(run),
            }
        }
        (merged, self.rests, lost)
    }
}

/// A list of batches that is made anew while the old one is read. Its last batch is written at the
/// end, because that leads to what is left of the old list.
struct Stack<P> {
    head: Address,
    /// Objects in it.
    count: u64,
    last: Option<(P, Vec<u64>)>,
}

/// What is not cut yet of a slab, in one page.
#[derive(Clone, Copy)]
struct Rest {
    at: Address,
    bytes: u64,
    page: u64,
}

/// Free space that is not in a list in flash: each class's cached objects, and rest of a slab.
struct Loose {
    cached: Vec<Address>,
    rest: Option<Rest>,
}

impl Heap {
    /// Takes the free space of a class that is at hand. Its caller has the class's turn.
    fn take_loose(&self, class: usize) -> Loose {
        let mut state = hold(&self.classes[class].state);
        state.moving += state.cached.len() as u64;
        let cached = state.cached.drain(..).collect();
        let (at, bytes) = (state.next, state.end.bits() - state.next.bits());
        let page = at.linear() / PAGE;
        let is_one = bytes > 0 && (at.linear() + bytes).div_ceil(PAGE) == page + 1;
        if is_one {
            (state.next, state.end) = (Address::NULL, Address::NULL);
        }
        Loose { cached, rest: is_one.then_some(Rest { at, bytes, page }) }
    }
    /// Gives it back, without what is in empty pages.
    fn return_loose(&self, class: usize, loose: Loose, pages: &mut Pages) {
        let (size, count) = (class_bytes(class), loose.cached.len());
        let kept: Vec<Address> = loose.cached.into_iter().filter(|at| !pages.take(*at, size)).collect();
        let rest = loose.rest.filter(|rest| !pages.take_rest(*rest));
        let mut state = hold(&self.classes[class].state);
        state.moving -= count as u64;
        state.cut -= (count - kept.len()) as u64;
        for at in kept.into_iter().rev() {
            state.cached.push_front(at);
        }
        if let Some(Rest { at, bytes, .. }) = rest {
            (state.next, state.end) = (at, at.add(bytes));
        }
    }

    /// Bytes of free objects.
    fn freed_bytes(&self) -> u64 {
        let of = |class: usize| {
            let state = hold(&self.classes[class].state);
            (state.cached.len() as u64 + state.listed + state.moving) * class_bytes(class)
        };
        (0..CLASSES).map(of).sum()
    }
    /// What is free now was counted, or is not worth it: [`Heap::look_for_freed`] says so only when
    /// more was freed.
    pub fn note_freed(&self) {
        self.looked_at.store(self.freed_bytes(), Ordering::Relaxed);
    }
    /// Whether enough was freed since the last [`Heap::take_empty`] that pages may be empty: a
    /// mebibyte, and an eighth of what was handed out.
    pub fn look_for_freed(&self) -> bool {
        let freed = self.freed_bytes();
        let before = self.looked_at.fetch_min(freed, Ordering::Relaxed).min(freed);
        freed - before >= LEAST.max(hold(&self.supply).next / SHARE)
    }

    /// Takes the pages out of which no object is in use, ascending. They are the caller's until
    /// [`Heap::put_back`], and allocations that find no other space wait for that. No state may be
    /// named before, as it would not have them. Waits for accesses, and has one pin. Where more
    /// than 16,384 pages have free objects, the next call counts the others.
    ///
    /// # Errors
    /// What the memory says, and [`AccessError::Corrupt`] for a damaged list. Nothing was taken
    /// then. An object that was read once and cannot be read again is lost, and so are the objects
    /// of its page.
    pub fn take_empty<M: Memory>(&self, memory: &mut M) -> Result<Vec<Region>, AccessError> {
        Ok(self.take_empty_while(memory, || true, |_| true)?.unwrap_or_default())
    }
    /// Takes them as long as `go_on` says so, which is asked every 64 batches of the first walk and
    /// at its end. `has_room` is asked then, with how many subpages the second walk writes at most.
    /// Returns none when one of them said no: nothing was taken then. The second walk takes about
    /// as long as the first, and ends by itself.
    ///
    /// # Errors
    /// As [`Heap::take_empty`].
    pub fn take_empty_while<M: Memory>(
        &self,
        memory: &mut M,
        mut go_on: impl FnMut() -> bool,
        has_room: impl FnOnce(u64) -> bool,
    ) -> Result<Option<Vec<Region>>, AccessError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        if self.is_gone() {
            return Ok(Some(Vec::new()));
        }
        if self.clean.load(Ordering::Acquire) {
            self.note_change(memory)?;
        }
        let _walk = self.walk_turn.lock(memory)?;
        // In the order of classes, as all that take several.
        let turns = self.classes.iter().map(|class| class.turn.lock(memory)).collect::<Result<Vec<_>, _>>()?;
        let loose: Vec<Loose> = (0..CLASSES).map(|class| self.take_loose(class)).collect();
        let mut pages = Pages::from(self.look_from.load(Ordering::Relaxed), COUNTED_MOST);
        let mut counted = self.count_free(memory, &loose, &mut pages, &mut go_on);
        if counted == Ok(true) {
            pages.only_empty();
            counted = Ok(has_room(self.writes_to_take(&loose, &pages)));
        }
        if counted != Ok(true) {
            pages = Pages::from(0, 0);
        }
        let next = pages.next();
        let mut result = counted.map(drop);
        for (class, loose) in loose.into_iter().enumerate() {
            self.return_loose(class, loose, &mut pages);
        }
        for class in 0..CLASSES {
            if result.is_ok() && counted == Ok(true) {
                result = self.take_listed(memory, class, &mut pages);
            }
        }
        let (runs, rests, lost) = pages.end();
        {
            let mut supply = hold(&self.supply);
            supply.unaccounted += lost;
            supply.rests.extend(rests);
        }
        let region = |run: Run| Region::new(Address::from_linear(run.start * PAGE), (run.end - run.start) * PAGE);
        let regions: Vec<Region> = runs.into_iter().map(region).collect();
        if result.is_err() || counted != Ok(true) {
            // Large objects that were at hand. No allocation may miss them.
            self.divide_with_rests(&regions, None);
            drop(turns);
            if result.is_err() {
                self.note_freed();
            }
            return result.map(|()| None);
        }
        self.look_from.store(next, Ordering::Relaxed);
        if regions.is_empty() {
            self.divide_with_rests(&[], None);
        }
        self.lent.store(!regions.is_empty(), Ordering::Release);
        drop(turns);
        self.note_looked();
        Ok(Some(regions))
    }

    /// Takes pages back, which are free memory for any size then.
    pub fn put_back(&self, regions: &[Region]) {
        self.divide_with_rests(regions, None);
        self.lent.store(false, Ordering::Release);
        self.note_looked();
    }
    /// Gives regions back where those from `left` on could not be given back, for want of room.
    /// Nothing is noted as counted: the next [`Heap::take_empty`] begins there, and
    /// [`Heap::look_for_freed`] says so as soon as enough is free.
    pub fn put_back_left(&self, regions: &[Region], left: Address) {
        self.divide_with_rests(regions, Some(left));
        self.lent.store(false, Ordering::Release);
        self.look_from.store(left.linear() / PAGE, Ordering::Relaxed);
        self.looked_at.store(0, Ordering::Relaxed);
    }
    /// Makes free objects of pages, together with what is left of larger objects next to them. A
    /// search counts an object where it begins, so none begins before `left` and ends behind.
    fn divide_with_rests(&self, pages: &[Region], left: Option<Address>) {
        let split = left.map_or(u64::MAX, Address::linear);
        let behind = |region: &Region| region.bytes.min(split.saturating_sub(region.base.linear()));
        let mut all = std::mem::take(&mut hold(&self.supply).rests);
        all.extend(pages.iter().flat_map(|region| <[Region; 2]>::from(region.split(behind(region)))));
        all.retain(|region| region.bytes > 0);
        all.sort_unstable_by_key(|region| region.base);
        for joined in all.chunk_by(|a, b| a.base.add(a.bytes) == b.base && Some(b.base) != left) {
            self.divide(joined[0].base, joined.iter().map(|region| region.bytes).sum());
        }
    }
    /// Notes what is free where all pages were counted. Otherwise the others follow.
    fn note_looked(&self) {
        if self.look_from.load(Ordering::Relaxed) == 0 {
            self.note_freed();
        }
    }

    /// Adds up what is free in each page. Returns false when it was to stop.
    fn count_free<M: Memory>(
        &self,
        memory: &mut M,
        loose: &[Loose],
        pages: &mut Pages,
        go_on: &mut impl FnMut() -> bool,
    ) -> Result<bool, AccessError> {
        for (class, Loose { cached, rest }) in loose.iter().enumerate() {
            cached.iter().for_each(|at| pages.add(class, *at));
            rest.iter().for_each(|rest| pages.add_to(rest.page, rest.bytes, class));
            let (mut next, mut left) = {
                let state = hold(&self.classes[class].state);
                (state.head, state.listed)
            };
            for batch in 1_u64.. {
                if next.is_null() {
                    break;
                }
                (next, left) = self.follow(memory, class, (next, left), |at| pages.add(class, at))?;
                if batch.is_multiple_of(AT_ONCE) {
                    if !go_on() {
                        return Ok(false);
                    }
                    memory.yield_now()?;
                }
            }
        }
        Ok(go_on())
    }

    /// How many batches of objects that stay are made anew at most, when what is in empty pages is
    /// taken. Each is in one subpage.
    fn writes_to_take(&self, loose: &[Loose], pages: &Pages) -> u64 {
        let listed = |class: usize| hold(&self.classes[class].state).listed;
        let of_loose = |class: usize| {
            let Loose { cached, rest } = &loose[class];
            cached.len() as u64 * class_bytes(class) + rest.map_or(0, |rest| rest.bytes)
        };
        let classes = || (0..CLASSES).filter(|class| pages.has(*class));
        // Empty pages are whole of objects of these classes, but for the tails of subpages.
        let free: u64 = classes().map(|class| listed(class) * class_bytes(class) + of_loose(class)).sum();
        let small = classes().map(class_bytes).filter(|size| *size < SUBPAGE);
        let tail = small.map(|size| SUBPAGE % size).max().unwrap_or(0);
        let stays = free.saturating_sub(pages.free.len() as u64 * (PAGE - PAGE / SUBPAGE * tail));
        let batches = |class: usize| {
            let objects = listed(class).min(stays / class_bytes(class));
            objects / Self::batch_words(class) as u64 + 1
        };
        classes().map(batches).sum()
    }

    /// Reads the batch at the head of a list of objects, and returns what follows.
    fn follow<M: Memory>(
        &self,
        memory: &mut M,
        class: usize,
        (head, left): (Address, u64),
        mut each: impl FnMut(Address),
    ) -> Result<(Address, u64), AccessError> {
        let mut count = 1;
        let next = self.read_batch(memory, class, head, |at| {
            count += 1;
            each(at);
        })?;
        each(head);
        if left < count || next.is_null() != (left == count) {
            return Err(AccessError::Corrupt { what: "heap free list", at: head, expected: left, got: count });
        }
        Ok((next, left - count))
    }

    /// Takes what the list of a class has in empty pages. The others are listed again.
    fn take_listed<M: Memory>(&self, memory: &mut M, class: usize, pages: &mut Pages) -> Result<(), AccessError> {
        let slot = &self.classes[class];
        let (size, words) = (class_bytes(class), Self::batch_words(class));
        let (mut next, mut left) = {
            let state = hold(&slot.state);
            (state.head, state.listed)
        };
        if next.is_null() || !pages.has(class) {
            return Ok(());
        }
        let (listed, mut kept, mut found) = (left, Vec::new(), Vec::new());
        let mut stack = Stack::<M::Pin> { head: Address::NULL, count: 0, last: None };
        let mut taken = 0;
        let mut go_on = || -> Result<(), AccessError> {
            for batch in 1_u64.. {
                if next.is_null() {
                    break;
                }
                found.clear();
                (next, left) = self.follow(memory, class, (next, left), |at| found.push(at))?;
                for at in found.drain(..) {
                    if pages.take(at, size) {
                        taken += 1;
                    } else {
                        kept.push(at);
                    }
                }
                while kept.len() >= words {
                    self.stack(memory, words, &mut kept, &mut stack)?;
                }
                if batch.is_multiple_of(AT_ONCE) {
                    memory.yield_now()?;
                }
            }
            Ok(())
        };
        let result = go_on();
        let mut state = hold(&slot.state);
        (state.head, state.listed) = (next, left + stack.count);
        if let Some((pin, members)) = stack.last {
            // Pinned, so that this does not fail.
            let view = pin.view_mut(0, SUBPAGE as usize);
            let at = members[0] as usize;
            view.store(at, next.bits());
            members[1..].iter().enumerate().for_each(|(i, member)| view.store(at + (i + 1) * 8, *member));
            state.head = stack.head;
        }
        state.cut -= taken;
        debug_assert!(state.listed <= listed);
        state.cached.extend(kept);
        result
    }

    /// Lists the last `words` of what is kept, as a batch in front of the others.
    fn stack<M: Memory>(
        &self,
        memory: &mut M,
        words: usize,
        kept: &mut Vec<Address>,
        stack: &mut Stack<M::Pin>,
    ) -> Result<(), AccessError> {
        let holder = kept[kept.len() - 1];
        let members = kept.len() - words..kept.len() - 1;
        if stack.last.is_none() {
            // Whether it may be written is checked here. A pin does not ask.
            memory.view_mut(holder, words * 8)?;
            let pin = memory.pin(holder)?;
            // Where it is in its subpage, and what it lists.
            let mut last = vec![holder.subpage_offset() as u64];
            last.extend(kept[members.clone()].iter().map(|at| at.bits()));
            stack.last = Some((pin, last));
        } else {
            let view = memory.view_mut(holder, words * 8)?;
            view.store(0, stack.head.bits());
            kept[members.clone()].iter().enumerate().for_each(|(i, at)| view.store((i + 1) * 8, at.bits()));
        }
        stack.head = holder;
        stack.count += words as u64;
        kept.truncate(members.start);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::size_class::class_of;
    use super::*;

    #[test]
    fn an_object_is_spread_over_its_pages() {
        let at = |page: u64, offset: u64| Address::from_linear(page * PAGE + offset);
        // Seven of 584 bytes, and a tail of 8.
        let subpage: u64 = (0..7).map(|slot| spread(at(3, 4096 + slot * 584), 584).front.unwrap().1).sum();
        assert_eq!(subpage, SUBPAGE);
        for (from, size) in [(0, PAGE), (4096, 3 * PAGE), (8192, 4096), (PAGE - 4096, 4096), (4096, 2 * PAGE - 4096)] {
            let Spread { front, whole, end } = spread(at(5, from), size);
            let bytes: u64 = front.iter().chain(&end).map(|(_, bytes)| bytes).sum();
            assert_eq!(bytes + (whole.end - whole.start) * PAGE, size, "{from}, {size}");
            assert!(front.iter().chain(&end).all(|(page, _)| !whole.contains(page)));
        }
    }
    #[test]
    fn pages_are_counted_in_windows() {
        let class = class_of(4096).unwrap();
        let empty = |pages: &mut Pages| {
            // The highest first, and the last subpage of page 4 is in use.
            for subpage in (0..10 * PAGE / SUBPAGE).rev().filter(|subpage| *subpage != 5 * PAGE / SUBPAGE - 1) {
                pages.add(class, Address::from_linear(subpage * SUBPAGE));
            }
            pages.only_empty();
            pages.free.keys().copied().collect::<Vec<u64>>()
        };
        let (mut first, mut found) = (0, Vec::new());
        for expected in [4, 8, 0] {
            let mut pages = Pages::from(first, 4);
            found.push(empty(&mut pages));
            first = pages.next();
            assert_eq!(first, expected);
        }
        assert_eq!(found, [vec![0, 1, 2, 3], vec![5, 6, 7], vec![8, 9]]);
    }
    #[test]
    fn larger_objects_are_counted_in_windows_too() {
        let class = class_of(2 * PAGE_BYTES).unwrap();
        let objects: Vec<Address> = (1..8).map(|at| Address::from_linear(at * 2 * PAGE)).collect();
        let (mut first, mut found) = (0, Vec::new());
        for expected in [8, 14, 0] {
            let mut pages = Pages::from(first, 3);
            objects.iter().rev().for_each(|at| pages.add(class, *at));
            pages.only_empty();
            first = pages.next();
            assert_eq!(first, expected);
            found.push(objects.iter().filter(|at| pages.take(**at, 2 * PAGE)).count());
            let (runs, rests, lost) = pages.end();
            assert_eq!((runs.len(), rests.len(), lost), (1, 0, 0));
        }
        assert_eq!(found, [3, 3, 1]);
    }
    #[test]
    fn a_large_object_leaves_its_ends() {
        let mut pages = Pages::from(0, 10);
        let at = Address::from_linear(7 * PAGE + 4096);
        let class = class_of(2 * PAGE_BYTES).unwrap();
        pages.add(class, at);
        pages.only_empty();
        assert!(pages.has(class) && pages.take(at, 2 * PAGE));
        let (runs, rests, lost) = pages.end();
        assert_eq!((&runs[..], lost), (&[Run { start: 8, end: 9 }][..], 0));
        assert_eq!(rests, [Region::new(at, PAGE - 4096), Region::new(Address::from_linear(9 * PAGE), 4096)]);
    }
}
