//! One worker's queue on a file, through io_uring.
//!
//! Reads go straight into the kernel's ring and are handed over in batches. Writes, and gathered
//! reads, wait for the end of the batch, where neighbours become one request of the kernel, a run.
//! Where the frames of a run are scattered, a stage gathers their bytes first. One piece costs a
//! device and the kernel a fraction of many (a virtual disk writes 256 KiB in 64 pieces at half its
//! rate).
//!
//! Completions are polled in shared memory. Short transfers and put-off requests are tried again
//! here. A run that the kernel did not do whole is taken apart, so that an error hits only its own
//! writes.
//!
//! Invariants: a request waits in a batch, is alone in the ring, or is linked into a run whose
//! first one names it there. A stage is free, or belongs to one run that the kernel has not ended.
//! A request that the kernel has taken ends only by its completion. When the ring itself fails,
//! nothing new is taken. What the kernel has stays in flight until its completion is found or the
//! queue is dropped. What it never took ends by the ring's error, once it has nothing else.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::uring::{RingFull, Uring};
use fulgurite_sys::{Arena, Notifier};

use super::medium::{EAGAIN, EINTR, ENOMEM, OpenFile, Tries, pause};
use super::runs;
use crate::slots::Slots;
use crate::{Completion, FlashError, Op, Queue, QueueFull, Request, Switches, frame_count};

const EBUSY: i32 = 16;
/// Bytes of a stage: the longest run. And how many there are, so that they fill a huge page.
const STAGE_BYTES: usize = runs::RUN_MAX * SUBPAGE_BYTES;
const STAGES: u32 = 8;
/// DRAM of all stages of a queue.
pub(super) const STAGING_BYTES: usize = STAGES as usize * STAGE_BYTES;
/// From how many frames on a queue has stages: at most a 32nd of the frames.
pub(super) const STAGING_FROM: u32 = (32 * STAGING_BYTES / SUBPAGE_BYTES) as u32;
/// A run is copied when its pieces are no longer than this by mean, in subpages.
const PIECE_MAX: usize = 4;
/// How often in a row the kernel may refuse the batch for want of room (`EAGAIN`, `ENOMEM`): with
/// the pauses between, two and a half seconds. Longer than a request may be put off, as it ends all
/// of them.
pub(super) const REFUSED_MAX: u8 = 255;
/// How long at most a queue sleeps whose ring has failed and cannot be slept on.
const NAP: Duration = Duration::from_millis(1);

pub(super) struct UringQueue {
    medium: Arc<OpenFile>,
    ring: Uring,
    wake: Arc<Notifier>,
    slots: Slots,
    /// By slot: what is under way.
    under_way: Box<[UnderWay]>,
    /// Writes of this batch: place and slot.
    batch: Vec<(u32, u32)>,
    /// Reads that wait for the end of the batch, where reads are gathered.
    reads: Vec<(u32, u32)>,
    gathers_reads: bool,
    /// The ring notifies `wake` at each end.
    notifies: bool,
    /// Reads pushed singly, and not counted yet.
    uncounted: u64,
    /// Results of one poll, as the ring gave them.
    ended: Vec<(u32, i32)>,
    /// To be tried again: when the ring has room for them, and after their pause.
    again: Vec<u32>,
    /// Stages that no run has; empty where there are none.
    stages: Vec<u32>,
    /// Whether stages were made, or could not be.
    staged: bool,
    /// Refused here, to be reported by the next poll.
    refused: Vec<Completion>,
    /// The ring takes nothing more.
    failed: Option<FlashError>,
    /// How often in a row the kernel had no room for the batch.
    refused_in_row: u8,
    /// When the kernel is asked again for a batch that it did not take, by the medium's clock.
    hand_over_at: Option<u64>,
    frame_count: u32,
}

#[derive(Clone, Copy)]
struct UnderWay {
    op: Op,
    subpage: SubpageIndex,
    frame: FrameIndex,
    tries: Tries,
    /// Not tried again before, in nanoseconds of the medium's clock.
    due: Option<u64>,
    /// The next request of the same run, or [`LAST`].
    next: u32,
    /// Of the first one of a run: its stage, or [`LAST`].
    stage: u32,
}
/// No slot: the end of a run, and of what is alone. And no stage.
const LAST: u32 = u32::MAX;

impl UringQueue {
    pub(super) fn new(medium: Arc<OpenFile>, ring: Uring, frames: &Arena, depth: usize, wake: Arc<Notifier>) -> Self {
        let (subpage, frame) = (SubpageIndex(0), FrameIndex(0));
        let idle =
            UnderWay { op: Op::Read, subpage, frame, tries: Tries::default(), due: None, next: LAST, stage: LAST };
        UringQueue {
            medium,
            ring,
            wake,
            slots: Slots::new(depth),
            under_way: vec![idle; depth].into(),
            batch: Vec::with_capacity(depth),
            reads: Vec::new(),
            gathers_reads: false,
            notifies: false,
            uncounted: 0,
            ended: Vec::with_capacity(depth),
            again: Vec::with_capacity(depth),
            stages: Vec::new(),
            staged: false,
            refused: Vec::new(),
            failed: None,
            refused_in_row: 0,
            hand_over_at: None,
            frame_count: frame_count(frames),
        }
    }

    fn push(&mut self, slot: u32) -> Result<(), RingFull> {
        let UnderWay { op, subpage, frame, .. } = self.under_way[slot as usize];
        let (place, offset) = (subpage.linear(), frame.index() * SUBPAGE_BYTES);
        match op {
            Op::Read => self.ring.push_read(place, offset, SUBPAGE_BYTES as u32, slot.into()),
            Op::Write => self.ring.push_write(place, offset, SUBPAGE_BYTES as u32, slot.into()),
            Op::Flush => self.ring.push_sync(slot.into()),
        }
    }

    /// Puts what waits for the end of the batch into the ring, neighbours as one request.
    fn push_batch(&mut self) {
        let mut reads = std::mem::take(&mut self.reads);
        let mut requests = std::mem::take(&mut self.uncounted);
        for run in runs::runs(&mut reads, |read| read.0) {
            requests += self.push_run(Op::Read, run);
        }
        reads.clear();
        self.reads = reads;
        self.medium.counters.read_requests.add(requests);
        if !self.batch.is_empty() {
            self.push_writes();
        }
    }
    fn push_writes(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        if self.medium.is_poisoned() {
            // A flush has failed since they were submitted.
            for (_, slot) in batch.drain(..) {
                let completion = self.ended_with(slot, Err(FlashError::Poisoned));
                self.refused.push(completion);
            }
        }
        let mut requests = 0;
        for run in runs::runs(&mut batch, |write| write.0) {
            requests += self.push_run(Op::Write, run);
        }
        batch.clear();
        self.batch = batch;
        self.medium.counters.write_requests.add(requests);
    }
    /// Returns how many requests that takes.
    fn push_run(&mut self, op: Op, run: &[(u32, u32)]) -> u64 {
        let &[(place, first), .., (_, last)] = run else {
            return self.push_singly(run);
        };
        let frame_of = |(_, slot): &(u32, u32)| self.under_way[*slot as usize].frame.index();
        let offsets = run.iter().map(|write| frame_of(write) * SUBPAGE_BYTES);
        let place = SubpageIndex(place).linear();
        let pieces = 1 + run.windows(2).filter(|pair| frame_of(&pair[0]) + 1 != frame_of(&pair[1])).count();
        let staged = op == Op::Write && pieces > 1 && pieces * PIECE_MAX >= run.len();
        let stage = if staged { self.stages.pop() } else { None };
        let pushed = match stage {
            Some(stage) => {
                let at = stage as usize * STAGE_BYTES;
                self.ring.push_staged_write(place, at, offsets, SUBPAGE_BYTES as u32, first.into())
            }
            None if run.len() > self.ring.gather_room() => Err(RingFull),
            None if op == Op::Read => self.ring.push_scattered_read(place, offsets, SUBPAGE_BYTES as u32, first.into()),
            None => self.ring.push_gathered_write(place, offsets, SUBPAGE_BYTES as u32, first.into()),
        };
        if pushed.is_err() {
            self.stages.extend(stage);
            return self.push_singly(run);
        }
        self.under_way[first as usize].stage = stage.unwrap_or(LAST);
        for pair in run.windows(2) {
            self.under_way[pair[0].1 as usize].next = pair[1].1;
        }
        debug_assert_eq!(self.under_way[last as usize].next, LAST);
        1
    }
    fn push_singly(&mut self, requests: &[(u32, u32)]) -> u64 {
        for &(_, slot) in requests {
            if self.push(slot).is_err() {
                // The ring has room for as many as there are slots, so this is never seen. The next
                // poll tries again.
                self.again.push(slot);
            }
        }
        requests.len() as u64
    }

    /// Ends a run that the kernel did whole. Else its requests are to be tried again, each by
    /// itself.
    fn settle_run(&mut self, first: u32, result: i32, again: &mut Vec<u32>, completions: &mut Vec<Completion>) {
        let (mut count, mut slot) = (0, first);
        while slot != LAST {
            count += 1;
            slot = self.under_way[slot as usize].next;
        }
        let whole = self.medium.all_moved(count, result);
        let stage = std::mem::replace(&mut self.under_way[first as usize].stage, LAST);
        self.stages.extend((stage != LAST).then_some(stage));
        let mut slot = first;
        while slot != LAST {
            let next = std::mem::replace(&mut self.under_way[slot as usize].next, LAST);
            if whole {
                self.end(slot, Ok(()), completions);
            } else {
                again.push(slot);
            }
            slot = next;
        }
    }

    fn end(&mut self, slot: u32, result: Result<(), FlashError>, completions: &mut Vec<Completion>) {
        completions.push(self.ended_with(slot, result));
    }
    fn ended_with(&mut self, slot: u32, result: Result<(), FlashError>) -> Completion {
        self.medium.account(self.under_way[slot as usize].op, result);
        Completion { tag: self.slots.release(slot), result, checksum: 0 }
    }

    /// Ends what the kernel has ended, or tries it again.
    fn settle(&mut self, completions: &mut Vec<Completion>) {
        let (mut ended, mut again) = (std::mem::take(&mut self.ended), std::mem::take(&mut self.again));
        for (slot, result) in ended.drain(..) {
            let request = &mut self.under_way[slot as usize];
            if request.next != LAST {
                self.settle_run(slot, result, &mut again, completions);
                continue;
            }
            match self.medium.judge(request.op, result, &mut request.tries) {
                Some(result) => self.end(slot, result, completions),
                None => {
                    let pause = request.tries.pause();
                    request.due = (!pause.is_zero()).then(|| self.medium.clock.after(pause));
                    again.push(slot);
                }
            }
        }
        self.ended = ended;
        if self.medium.is_poisoned() {
            // A retry is handed over once more, and that is refused since a flush has failed.
            again.retain(|&slot| {
                let reads = self.under_way[slot as usize].op == Op::Read;
                if !reads {
                    self.end(slot, Err(FlashError::Poisoned), completions);
                }
                reads
            });
        }
        if !again.is_empty() {
            match self.failed {
                // The kernel has ended these, and gets no more.
                Some(error) => again.drain(..).for_each(|slot| self.end(slot, Err(error), completions)),
                None => {
                    let (now, mut pushed) = (self.medium.clock.now_ns(), false);
                    again.retain(|&slot| {
                        let UnderWay { op, due, .. } = self.under_way[slot as usize];
                        if due.is_some_and(|due| now < due) || self.push(slot).is_err() {
                            return true;
                        }
                        pushed = true;
                        match op {
                            Op::Write => self.medium.counters.write_requests.add(1),
                            Op::Read => self.medium.counters.read_requests.add(1),
                            Op::Flush => {}
                        }
                        false
                    });
                    if pushed {
                        let _ = self.hand_over();
                    }
                }
            }
        }
        self.again = again;
    }

    /// Hands over what is in the ring, unless the kernel is paused: then a poll or a wait does it.
    fn hand_over(&mut self) -> Result<(), FlashError> {
        if self.hand_over_at.is_some_and(|at| self.medium.clock.now_ns() < at) {
            return Ok(());
        }
        let result = self.medium.scripted_refusal().map_or_else(|| self.ring.submit(), Err);
        self.entered(result)
    }

    /// Judges a call into the kernel: done, put off, or the end. The ring keeps what was not taken.
    fn entered(&mut self, result: std::io::Result<()>) -> Result<(), FlashError> {
        let Err(error) = result else {
            (self.hand_over_at, self.refused_in_row) = (None, 0);
            return Ok(());
        };
        let pause = match error.raw_os_error() {
            Some(EINTR | EBUSY) => Duration::ZERO,
            Some(EAGAIN | ENOMEM) if self.refused_in_row < REFUSED_MAX => {
                self.refused_in_row += 1;
                pause(self.refused_in_row)
            }
            errno => {
                let error = FlashError::Io(errno.unwrap_or(5));
                (self.failed, self.hand_over_at) = (Some(error), None);
                return Err(error);
            }
        };
        self.hand_over_at = Some(self.medium.clock.after(pause));
        Ok(())
    }

    /// When there is something to do that no completion tells of: a pause has ended.
    fn next_pause_ends(&self) -> Option<u64> {
        let dues = self.again.iter().filter_map(|slot| self.under_way[*slot as usize].due);
        dues.chain(self.hand_over_at).min()
    }
}

/// Whether the kernel may be entered later, where it was not now.
fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EINTR | EBUSY | EAGAIN | ENOMEM))
}

impl Queue for UringQueue {
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        if self.in_flight() >= self.slots.depth() {
            return Err(QueueFull);
        }
        let refusal = self.failed.or_else(|| self.medium.refusal(&request, self.frame_count));
        if let Some(error) = refusal {
            self.medium.account(request.op, Err(error));
            self.refused.push(Completion { tag: request.tag, result: Err(error), checksum: 0 });
            return Ok(());
        }
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        let Request { op, subpage, frame, .. } = request;
        self.under_way[slot as usize] =
            UnderWay { op, subpage, frame, tries: Tries::default(), due: None, next: LAST, stage: LAST };
        if op == Op::Write {
            self.batch.push((subpage.0, slot));
        } else if op == Op::Read && self.gathers_reads {
            self.reads.push((subpage.0, slot));
        } else if self.push(slot).is_err() {
            self.slots.release(slot);
            return Err(QueueFull);
        } else if op == Op::Read {
            self.uncounted += 1;
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.push_batch();
        self.hand_over()
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        if let Some(error) = self.failed {
            // It never sees what was not even pushed.
            while let Some((_, slot)) = self.batch.pop().or_else(|| self.reads.pop()) {
                self.end(slot, Err(error), completions);
            }
            // What was pushed and not handed over: the kernel may take it after all, unless it says
            // that this thread must not ask.
            let submitted = self.medium.scripted_refusal().map_or_else(|| self.ring.submit(), Err);
            let is_denied = submitted.is_err_and(|error| !is_passing(&error));
            if is_denied && self.slots.in_use() > 0 && self.ring.abandon() {
                self.again.clear();
                for slot in self.slots.taken() {
                    self.end(slot, Err(error), completions);
                }
            }
        }
        let ended = &mut self.ended;
        self.ring.reap(|slot, result| ended.push((slot as u32, result)));
        if !self.ended.is_empty() || !self.again.is_empty() {
            self.settle(completions);
        }
        if self.hand_over_at.is_some() {
            let _ = self.hand_over();
        }
        completions.append(&mut self.refused);
        completions.len() - before
    }
    fn will_poll(&self) {}
    fn switch(&mut self, to: Switches) -> Switches {
        if to.gather_reads {
            self.reads.reserve(self.slots.depth());
        }
        self.gathers_reads = to.gather_reads;
        if to.notifies != self.notifies && self.ring.notify_each(to.notifies).is_ok() {
            self.notifies = to.notifies;
        }
        Switches { gather_reads: to.gather_reads, notifies: self.notifies, ..Switches::default() }
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        let end = frames.end.min(self.frame_count) as usize;
        self.ring.register((frames.start as usize).min(end) * SUBPAGE_BYTES..end * SUBPAGE_BYTES);
        if frames.len() >= STAGING_FROM as usize && !std::mem::replace(&mut self.staged, true) {
            // Without memory for them, runs go out in pieces.
            let made = self.ring.make_staging(STAGING_BYTES).is_ok();
            self.stages.extend((0..STAGES).filter(|_| made));
        }
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        if self.failed.is_none() {
            self.push_batch();
        }
        let unseen = !self.batch.is_empty() || !self.reads.is_empty();
        if !self.refused.is_empty() || self.failed.is_some() && unseen {
            return;
        }
        if self.failed.is_some() {
            self.wake.wait(Some(timeout.map_or(NAP, |t| t.min(NAP))));
            return;
        }
        let left = self.next_pause_ends().map(|at| self.medium.clock.until(at));
        let timeout = timeout.into_iter().chain(left).min();
        let only_pauses = !self.again.is_empty() && self.again.len() == self.slots.in_use();
        if self.hand_over_at.is_some() || only_pauses {
            // The ring cannot be slept on without handing its batch over, which the next poll does.
            // Or it is empty.
            self.medium.clock.wait(&self.wake, timeout);
        } else {
            let result = self.medium.scripted_refusal().map_or_else(|| self.ring.wait(timeout), Err);
            let _ = self.entered(result);
        }
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use() + self.refused.len()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        self.ring.bytes()
            + self.slots.bytes()
            + self.under_way.len() * size_of::<UnderWay>()
            + (self.batch.capacity() + self.reads.capacity()) * 8
            + self.ended.capacity() * 8
            + (self.again.capacity() + self.stages.capacity()) * 4
            + self.refused.capacity() * size_of::<Completion>()
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_sys::{Backed, RingUser};

    use super::*;
    use crate::file::{FileConfig, FileFlash};

    #[test]
    fn model_runs_of_scattered_frames_reach_their_places() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flash");
        let subpages = 2048;
        let flash = FileFlash::open(&FileConfig::create(&path, u64::from(subpages) << 12)).unwrap();
        let arena = Arc::new(Arena::anonymous(STAGING_FROM as usize * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let (file, depth) = (flash.medium.file.clone(), 1024);
        let wake = Arc::new(Notifier::new().unwrap());
        let ring = Uring::new(depth, file, arena.clone(), wake.clone(), true, RingUser::OneThread);
        let Ok(ring) = ring else { return println!("not tested here: there is no io_uring") };
        let mut queue = UringQueue::new(flash.medium.clone(), ring, &arena, depth, wake);
        queue.use_frames(0..STAGING_FROM);
        let seed = 0x9E37_79B9_7F4A_7C15_u64;
        println!("seed {seed:#x}");
        let mut state = fulgurite_testkit::Random(seed);
        let mut below = |n: u32| state.below(n);
        let (mut model, mut version, mut copied) = (vec![0; subpages as usize], 0, 0);
        for round in 0..60 {
            // Runs with gaps, of scattered or contiguous frames, and more of them than there are
            // stages.
            let (mut place, mut frame) = (below(40), below(STAGING_FROM));
            while place < subpages && queue.in_flight() < depth {
                for _ in 0..1 + below(80) {
                    if place == subpages || queue.in_flight() == depth {
                        break;
                    }
                    version += 1;
                    frame = (frame + if round % 4 == 0 { 1 } else { 17 }) % STAGING_FROM;
                    arena.write(frame as usize * SUBPAGE_BYTES, &u32::to_le_bytes(version));
                    let (subpage, frame) = (SubpageIndex(place), FrameIndex(frame));
                    queue.submit(Request { tag: place.into(), op: Op::Write, subpage, frame }).unwrap();
                    model[place as usize] = version;
                    place += 1;
                }
                place += 1 + below(20);
            }
            queue.flush().unwrap();
            copied += STAGES as usize - queue.stages.len();
            let mut ended = Vec::new();
            while queue.in_flight() > 0 {
                if queue.poll(&mut ended) == 0 {
                    queue.wait(Some(Duration::from_secs(5)));
                }
            }
            assert!(ended.iter().all(|c| c.result.is_ok()));
            let mut stages = queue.stages.clone();
            stages.sort_unstable();
            assert_eq!(stages, Vec::from_iter(0..STAGES), "round {round}: each is free again, once");
        }
        assert!(copied > 100, "{copied} runs were copied");
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.chunks(SUBPAGE_BYTES).map(|page| u32::from_le_bytes(page[..4].try_into().unwrap()));
        assert_eq!(found.collect::<Vec<u32>>(), model);
    }
}
