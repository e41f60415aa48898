//! Several media as one: an extent is on one of them, the next extent is on the next.
//!
//! ```text
//! band of 3 rows over A, B, C     extent 0 1 2 3 4 5 6 7 8      A: 0 3 6    B: 1 4 7    C: 2 5 8
//! band of 2 rows over A, C               9 10 11 12             A: 9 11                 C: 10 12
//! ```
//!
//! A band is never moved: a pool that grows gets another one behind it, or more rows of its last.
//! So a queue goes on with the layout that it knows, and looks for a newer one only for a flash
//! page that this does not have.
//!
//! Invariants: a request for a flash page is passed on to the member that has it. A flush is passed
//! on to all members and ends with the last, with the first error. After a failed flush on one of
//! them no write and no flush reaches any.
//!
//! What this file does not do: it keeps no copies (a pool that loses a member is lost), and it does
//! not check which file is which.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use fulgurite_format::SubpageIndex;
use fulgurite_sys::{Arena, Notifier};

use crate::slots::Slots;
use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenedQueue, Queue, QueueFull, QueueUser, Request,
    Switches, Traits, Tuning, check_depth, check_range, frame_count,
};

/// How long one member is waited for while another may be first.
const CHECK: Duration = Duration::from_micros(100);

/// A member's part of a band.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Which member.
    pub member: u32,
    /// Its first extent there.
    pub first: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Band {
    /// The first extent of the whole.
    first: u32,
    rows: u32,
    columns: Vec<Column>,
}

/// Where the extents of a striped medium are stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeLayout {
    extent_pages: u32,
    bands: Vec<Band>,
    extents: u32,
}

impl StripeLayout {
    /// Of no extents yet.
    ///
    /// # Panics
    /// When an extent has no flash pages.
    #[must_use]
    pub fn new(extent_pages: u32) -> StripeLayout {
        assert!(extent_pages > 0, "an extent has flash pages");
        StripeLayout { extent_pages, bands: Vec::new(), extents: 0 }
    }
    /// Appends `rows` extents on each of these.
    ///
    /// # Panics
    /// When there are more than 2^32 - 1 flash pages then, or no columns.
    pub fn push(&mut self, rows: u32, columns: Vec<Column>) {
        assert!(!columns.is_empty(), "a band has a column");
        let extents = u64::from(self.extents) + u64::from(rows) * columns.len() as u64;
        assert!(extents * u64::from(self.extent_pages) <= u64::from(u32::MAX), "{extents} extents are too many");
        self.bands.push(Band { first: self.extents, rows, columns });
        self.extents = extents as u32;
    }
    /// Extents in all.
    #[must_use]
    pub fn extents(&self) -> u32 {
        self.extents
    }
    /// Flash pages of an extent.
    #[must_use]
    pub fn extent_pages(&self) -> u32 {
        self.extent_pages
    }
    /// Extents that a member has, those before its first band included.
    #[must_use]
    pub fn extents_of(&self, member: u32) -> u32 {
        let columns = self.bands.iter().flat_map(|b| b.columns.iter().map(|c| (c, b.rows)));
        columns.filter(|(c, _)| c.member == member).map(|(c, rows)| c.first + rows).max().unwrap_or(0)
    }
    /// Flash pages in all.
    fn pages(&self) -> u32 {
        self.extents * self.extent_pages
    }
    /// Whether each extent of another layout is stored where it was.
    fn continues(&self, before: &StripeLayout) -> bool {
        let same = |extent: u32| self.find(extent * self.extent_pages) == before.find(extent * self.extent_pages);
        // Of a band, the first and the last row say where all of it is.
        let ends = |band: &Band| {
            let wide = band.columns.len() as u32;
            (0..wide.min(wide * band.rows))
                .all(|at| same(band.first + at) && same(band.first + (band.rows - 1) * wide + at))
        };
        self.extent_pages == before.extent_pages && self.extents >= before.extents && before.bands.iter().all(ends)
    }
    /// The member that has a flash page, and which of its own that is.
    #[must_use]
    pub fn find(&self, page: u32) -> Option<(u32, u32)> {
        let (extent, index) = (page / self.extent_pages, page % self.extent_pages);
        if extent >= self.extents {
            return None;
        }
        let band = &self.bands[self.bands.partition_point(|band| band.first <= extent) - 1];
        let (within, wide) = (extent - band.first, band.columns.len() as u32);
        let column = band.columns[(within % wide) as usize];
        Some((column.member, (column.first + within / wide) * self.extent_pages + index))
    }
}

/// What all queues of a striped medium see.
struct Shared {
    layout: RwLock<Arc<StripeLayout>>,
    /// Flash pages of that layout.
    pages: AtomicU32,
    /// A flush has failed on one of the members.
    poisoned: AtomicBool,
}

impl Shared {
    fn layout(&self) -> Arc<StripeLayout> {
        self.layout.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Several media as one.
pub struct StripedFlash {
    members: Vec<Arc<dyn Flash>>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for StripedFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StripedFlash").field("layout", &self.layout()).finish_non_exhaustive()
    }
}

impl StripedFlash {
    /// Of these, in this order.
    ///
    /// # Panics
    /// When there are none, or the layout names what they do not have.
    #[must_use]
    pub fn new(members: Vec<Arc<dyn Flash>>, layout: StripeLayout) -> StripedFlash {
        assert!(!members.is_empty(), "a striped medium has a member");
        fits(&members, &layout);
        let pages = AtomicU32::new(layout.pages());
        let shared = Shared { layout: RwLock::new(Arc::new(layout)), pages, poisoned: AtomicBool::new(false) };
        StripedFlash { members, shared: Arc::new(shared) }
    }
    /// The members.
    #[must_use]
    pub fn members(&self) -> &[Arc<dyn Flash>] {
        &self.members
    }
    /// Where its extents are stored.
    #[must_use]
    pub fn layout(&self) -> Arc<StripeLayout> {
        self.shared.layout()
    }
    /// It has more extents from now on. Requests go on meanwhile.
    ///
    /// # Panics
    /// When an existing extent would move, or the members do not have what it names.
    pub fn grow(&self, layout: StripeLayout) {
        fits(&self.members, &layout);
        let mut now = self.shared.layout.write().unwrap_or_else(PoisonError::into_inner);
        assert!(layout.continues(&now), "{layout:?} is not {now:?} with more behind it");
        let pages = layout.pages();
        *now = Arc::new(layout);
        // Release: an observer of the size finds the layout.
        self.shared.pages.store(pages, Ordering::Release);
    }
}

/// Whether the members have what a layout names.
fn fits(members: &[Arc<dyn Flash>], layout: &StripeLayout) {
    for column in layout.bands.iter().flat_map(|band| &band.columns) {
        assert!((column.member as usize) < members.len(), "there is no member {}", column.member);
    }
    for (member, flash) in members.iter().enumerate() {
        let needed = u64::from(layout.extents_of(member as u32)) * u64::from(layout.extent_pages);
        assert!(needed <= u64::from(flash.subpages()), "member {member} has fewer than {needed} flash pages");
    }
}

impl Flash for StripedFlash {
    fn subpages(&self) -> u32 {
        self.shared.pages.load(Ordering::Acquire)
    }
    fn describe(&self) -> String {
        let each: Vec<String> = self.members.iter().map(|flash| flash.describe()).collect();
        format!("striped over {}: {}", each.len(), each.join("; "))
    }
    fn traits(&self) -> Traits {
        let all = self.members.iter().map(|flash| flash.traits());
        all.reduce(|all, one| Traits {
            dram_bytes: all.dram_bytes + one.dram_bytes,
            shares_frames: all.shares_frames | one.shares_frames,
            patience: all.patience.max(one.patience),
            gathers: all.gathers.max(one.gathers),
            holds_writes: all.holds_writes.max(one.holds_writes),
            trims: all.trims | one.trims,
            serves_callers: all.serves_callers & one.serves_callers,
            tuning: Tuning {
                submit_batch: all.tuning.submit_batch.max(one.tuning.submit_batch),
                spin: all.tuning.spin.max(one.tuning.spin),
            },
        })
        .expect("there are members")
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.members.iter().map(|flash| flash.staging_bytes(frames)).sum()
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        check_depth(depth)?;
        let one = |flash: &Arc<dyn Flash>| flash.open_queue_for(user, frames.clone(), depth, wake.clone());
        let queues: Result<Vec<_>, _> = self.members.iter().map(one).collect();
        Ok(Box::new(StripedQueue {
            queues: queues?,
            layout: self.layout(),
            shared: self.shared.clone(),
            frame_count: frame_count(&frames),
            slots: Slots::new(depth),
            pending: vec![Pending { op: Op::Flush, left: 0, result: Ok(()) }; depth].into(),
            ended: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
            turn: 0,
        }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())?;
        let (mut at, end, layout) = (first.0, first.0 + count, self.layout());
        while at < end {
            // One extent at a time, because the next one is stored elsewhere.
            let next = (at - at % layout.extent_pages + layout.extent_pages).min(end);
            let (member, own) = layout.find(at).ok_or(FlashError::OutOfRange)?;
            self.members[member as usize].trim(SubpageIndex(own), next - at)?;
            at = next;
        }
        Ok(())
    }
    /// None: what a member permits or names is of that member alone.
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    /// Of all members; a flush of all of them counts once.
    fn counters(&self) -> DeviceCounters {
        self.members.iter().map(|flash| flash.counters()).fold(DeviceCounters::default(), |all, one| DeviceCounters {
            reads: all.reads + one.reads,
            writes: all.writes + one.writes,
            write_requests: all.write_requests + one.write_requests,
            read_requests: all.read_requests + one.read_requests,
            flushes: all.flushes.max(one.flushes),
            errors: all.errors + one.errors,
            device_cpu_ns: all.device_cpu_ns + one.device_cpu_ns,
            late: all.late + one.late,
            lateness_ns_total: all.lateness_ns_total + one.lateness_ns_total,
            lateness_ns_max: all.lateness_ns_max.max(one.lateness_ns_max),
        })
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Pending {
    op: Op,
    /// Members whose answer is still to come.
    left: u32,
    result: Result<(), FlashError>,
}

struct StripedQueue {
    queues: Vec<Box<dyn Queue>>,
    /// As of when a flash page was last looked for in vain.
    layout: Arc<StripeLayout>,
    shared: Arc<Shared>,
    frame_count: u32,
    /// The caller's tags; the members see slots.
    slots: Slots,
    pending: Box<[Pending]>,
    /// Ended without a member's doing.
    ended: Vec<(u32, FlashError)>,
    arrived: Vec<Completion>,
    /// The member that is waited for next.
    turn: usize,
}

impl StripedQueue {
    fn pass_on(&mut self, member: usize, request: Request) {
        // As deep as this one, and each request here is at most one there.
        self.queues[member].submit(request).expect("a member's queue has room for every request of the whole");
    }
    fn find(&mut self, page: u32) -> Option<(u32, u32)> {
        if page >= self.layout.pages() {
            self.layout = self.shared.layout();
        }
        self.layout.find(page)
    }
}

impl Queue for StripedQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        let Request { op, subpage, frame, .. } = request;
        let request = Request { tag: slot.into(), ..request };
        let pending = |left| Pending { op, left, result: Ok(()) };
        if op != Op::Read && self.shared.poisoned.load(Ordering::Acquire) {
            self.ended.push((slot, FlashError::Poisoned));
        } else if op == Op::Flush {
            self.pending[slot as usize] = pending(self.queues.len() as u32);
            for member in 0..self.queues.len() {
                self.pass_on(member, Request { subpage: SubpageIndex(0), ..request });
            }
        } else if let Some((member, page)) = self.find(subpage.0).filter(|_| frame.0 < self.frame_count) {
            self.pending[slot as usize] = pending(1);
            self.pass_on(member as usize, Request { subpage: SubpageIndex(page), ..request });
        } else {
            self.ended.push((slot, FlashError::OutOfRange));
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        // All of them get theirs, whatever the first says.
        self.queues.iter_mut().map(|queue| queue.flush()).fold(Ok(()), Result::and)
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        let mut arrived = std::mem::take(&mut self.arrived);
        for queue in &mut self.queues {
            queue.poll(&mut arrived);
        }
        for completion in arrived.drain(..) {
            let slot = completion.tag as u32;
            let pending = &mut self.pending[slot as usize];
            if pending.op == Op::Flush && completion.result.is_err() {
                self.shared.poisoned.store(true, Ordering::Release);
            }
            pending.result = pending.result.and(completion.result);
            pending.left -= 1;
            if pending.left == 0 {
                let (tag, result) = (self.slots.release(slot), pending.result);
                completions.push(Completion { tag, result, checksum: completion.checksum });
            }
        }
        self.arrived = arrived;
        for (slot, error) in self.ended.drain(..) {
            completions.push(Completion { tag: self.slots.release(slot), result: Err(error), checksum: 0 });
        }
        completions.len() - before
    }
    fn will_poll(&self) {
        self.queues.iter().for_each(|queue| queue.will_poll());
    }
    fn switch(&mut self, to: Switches) -> Switches {
        // Asked of all: those that make checksums for nothing do no harm.
        let heeded = self.queues.iter_mut().map(|queue| queue.switch(to));
        heeded
            .reduce(|all, one| Switches {
                gather_reads: all.gather_reads | one.gather_reads,
                checksums: all.checksums & one.checksums,
                hold_writes: all.hold_writes | one.hold_writes,
                own_work: all.own_work | one.own_work,
                notifies: all.notifies & one.notifies,
            })
            .unwrap_or_default()
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        self.queues.iter_mut().for_each(|queue| queue.use_frames(frames.clone()));
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        if !self.ended.is_empty() {
            return;
        }
        let busy: Vec<usize> = (0..self.queues.len()).filter(|i| self.queues[*i].in_flight() > 0).collect();
        match busy[..] {
            [] => self.queues[0].wait(timeout),
            [only] => self.queues[only].wait(timeout),
            // Which of them will be first is unknown, so each is polled for a moment.
            _ => {
                self.turn = self.turn.wrapping_add(1);
                let one = busy[self.turn % busy.len()];
                self.queues[one].wait(Some(timeout.map_or(CHECK, |timeout| timeout.min(CHECK))));
            }
        }
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        let own = self.slots.bytes() + self.pending.len() * (size_of::<Pending>() + 32);
        own + self.queues.iter().map(|queue| queue.bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(all: &[(u32, u32)]) -> Vec<Column> {
        all.iter().map(|(member, first)| Column { member: *member, first: *first }).collect()
    }
    #[test]
    fn every_flash_page_has_one_place() {
        let mut layout = StripeLayout::new(4);
        layout.push(3, columns(&[(0, 0), (1, 1), (2, 1)]));
        layout.push(2, columns(&[(0, 3), (2, 4)]));
        layout.push(0, columns(&[(1, 4)]));
        layout.push(1, columns(&[(1, 4)]));
        assert_eq!(layout.extents(), 14);
        assert_eq!([0, 1, 2].map(|m| layout.extents_of(m)), [5, 5, 6]);
        let mut seen = std::collections::HashSet::new();
        for page in 0..14 * 4 {
            let (member, own) = layout.find(page).unwrap();
            assert!(own / 4 < layout.extents_of(member) && own % 4 == page % 4, "{page}");
            assert!(seen.insert((member, own)), "{page} shares {own} of member {member}");
        }
        assert_eq!(layout.find(14 * 4), None);
        assert_eq!([layout.find(0), layout.find(5), layout.find(12)], [Some((0, 0)), Some((1, 5)), Some((0, 4))]);
        assert_eq!([layout.find(36), layout.find(40), layout.find(52)], [Some((0, 12)), Some((2, 16)), Some((1, 16))]);
    }
    #[test]
    fn a_layout_goes_on_only_where_nothing_moves() {
        let of = |bands: &[(u32, &[(u32, u32)])]| {
            let mut layout = StripeLayout::new(4);
            bands.iter().for_each(|(rows, all)| layout.push(*rows, columns(all)));
            layout
        };
        let before = of(&[(3, &[(0, 0), (1, 1)]), (2, &[(1, 4)])]);
        for after in [
            before.clone(),
            of(&[(3, &[(0, 0), (1, 1)]), (9, &[(1, 4)])]),
            of(&[(3, &[(0, 0), (1, 1)]), (2, &[(1, 4)]), (7, &[(0, 3), (1, 6)])]),
        ] {
            assert!(after.continues(&before), "{after:?}");
            assert!(after == before || !before.continues(&after), "{after:?}");
        }
        for after in [
            of(&[(4, &[(0, 0), (1, 1)]), (2, &[(1, 5)])]),
            of(&[(3, &[(0, 0), (1, 1)]), (2, &[(0, 3)])]),
            of(&[(8, &[(0, 0), (1, 1)])]),
        ] {
            assert!(!after.continues(&before), "{after:?}");
        }
    }
}
