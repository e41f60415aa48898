//! What a client's commands become on the flash, and what it is answered: the second thread of a
//! client, which owns its queue.
//!
//! A command is a row of subpages that are moved one by one, as many at a time as the queue takes.
//! Commands take turns, so that a long one (zeros over a gigabyte) delays no other for long. A
//! subpage that changes only in part is read, changed and written back. Replies go out as commands
//! end, in any order.
//!
//! Invariants: a command is replied to once, when nothing of it is in flight. A write holds a
//! subpage's place ([`WriteLocks`]) from before its first request for it until the completion of
//! its last. A reply to a write with FUA, and to a flush, follows a flush that was submitted when
//! all the writes that it speaks of had completed. Nothing is kept in between: what a reply has
//! acknowledged is what every other client reads, so that several connections of one client see one
//! device. While a client takes no replies, what it has on the flash ends nevertheless, so that no
//! task waits for places that it holds. It begins nothing new.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_flash::{Completion, Flash, FlashError, Op, Queue, Request};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Notifier};

use crate::counters::Counters;
use crate::exchange::{Command, Exchange, Kind};
use crate::reader::Span;
use crate::stream::Stream;
use crate::wire::{self, Errno};
use crate::write_locks::WriteLocks;

/// The frame that is always zero.
pub(crate) const ZERO_FRAME: u32 = 0;
/// Requests that a command may submit before the next one has its turn.
const TURN: usize = 64;

/// How often the requests of a client that takes no replies are polled.
const CHECK: Duration = Duration::from_millis(1);

/// What a tag says in addition to the command's slot: a flush.
const STEP_FLUSH: u32 = u32::MAX;
/// The subpage is read, to be changed and written back.
const STEP_OLD: u32 = 1 << 31;

/// One command under way.
struct Task {
    command: Command,
    span: Span,
    /// Subpages that requests were submitted for.
    begun: u32,
    in_flight: u32,
    /// The flush that it needs: not yet, due, submitted.
    flush: FlushState,
    error: Option<Errno>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FlushState {
    None,
    Wanted,
    Submitted,
}

impl Task {
    fn new(command: Command) -> Task {
        let moves = matches!(command.kind, Kind::Read | Kind::Write | Kind::WriteZeroes);
        let span = Span::of(command.offset, command.length);
        let flush = if command.kind == Kind::Flush || command.fua { FlushState::Wanted } else { FlushState::None };
        let begun = if moves { 0 } else { span.subpages() };
        let error = if let Kind::Refuse { error, .. } = command.kind { Some(error) } else { None };
        Task { command, span, begun, in_flight: 0, flush, error }
    }
    /// The frame of the payload's `index`th subpage.
    fn frame(&self, index: u32) -> u32 {
        match self.command.kind {
            Kind::WriteZeroes => ZERO_FRAME,
            _ => self.command.frames[index as usize],
        }
    }
    /// The frame in which the `index`th subpage, which changes in part, is put together.
    fn whole(&self, index: u32) -> u32 {
        let second = index > 0 && self.span.is_partial(0);
        let payload = if self.command.kind == Kind::WriteZeroes { 0 } else { self.span.subpages() as usize };
        self.command.frames[payload + usize::from(second)]
    }
    fn changes(&self) -> bool {
        matches!(self.command.kind, Kind::Write | Kind::WriteZeroes)
    }
    /// Whether it has more to submit now.
    fn has_more(&self) -> bool {
        self.error.is_none() && (self.begun < self.span.subpages() || self.flush_is_due())
    }
    fn flush_is_due(&self) -> bool {
        self.error.is_none()
            && self.flush == FlushState::Wanted
            && self.in_flight == 0
            && self.begun == self.span.subpages()
    }
    fn has_ended(&self) -> bool {
        self.in_flight == 0 && !self.has_more()
    }
}

/// The engine of one client.
pub(crate) struct Engine {
    pub(crate) flash: Arc<dyn Flash>,
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) frames: Arc<Arena>,
    pub(crate) wake: Arc<Notifier>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) locks: Arc<WriteLocks>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stream: Stream,
    pub(crate) structured: bool,
    pub(crate) stall: Duration,
}

/// What changes while it runs.
#[derive(Default)]
struct Work {
    tasks: Vec<Option<Task>>,
    vacant: Vec<u32>,
    /// Tasks that have more to submit, each once.
    ready: VecDeque<u32>,
    /// Subpages that were read and changed, and are to be written back.
    changed: VecDeque<(u32, u32)>,
    replies: Vec<u8>,
    completions: Vec<Completion>,
    /// The client takes no more replies.
    gone: bool,
}

impl Engine {
    /// Serves until no more commands come and all that came are done.
    pub(crate) fn run(mut self) {
        let mut work = Work::default();
        let mut incoming = VecDeque::new();
        let mut more_may_come = true;
        loop {
            if more_may_come {
                more_may_come = self.exchange.receive(&mut incoming);
            }
            let mut progress = !incoming.is_empty();
            for command in incoming.drain(..) {
                self.begin(&mut work, command);
            }
            progress |= self.submit(&mut work);
            progress |= self.take_completions(&mut work);
            self.send(&mut work);
            if progress {
                continue;
            }
            let idle = work.tasks.len() == work.vacant.len();
            if idle && (!more_may_come || work.gone) {
                break;
            }
            // With requests in flight, `wait` ends with the first completion. Otherwise by the
            // reader, or by the command that frees a place.
            if !more_may_come || self.exchange.may_sleep(more_may_come) {
                self.queue.wait(None);
            }
        }
    }

    /// Hands over what was submitted, and takes what has ended. Returns whether there was anything.
    fn take_completions(&mut self, work: &mut Work) -> bool {
        // A medium that takes no more requests completes them all with errors.
        let _ = self.queue.flush();
        let mut completions = std::mem::take(&mut work.completions);
        let progress = self.queue.poll(&mut completions) > 0;
        for completion in completions.drain(..) {
            self.complete(work, &completion);
        }
        work.completions = completions;
        progress
    }

    /// Waits until nothing is in flight, and no place is held.
    fn settle(&mut self, work: &mut Work) {
        loop {
            self.submit_changed(work);
            self.take_completions(work);
            if self.queue.in_flight() == 0 && work.changed.is_empty() {
                return;
            }
            self.queue.wait(Some(CHECK));
        }
    }

    fn begin(&mut self, work: &mut Work, command: Command) {
        let mut task = Task::new(command);
        if task.command.kind == Kind::Trim && !work.gone {
            // Rare, and short compared with what it spares. But it may wait for the store, and
            // others must not wait for it.
            self.settle(work);
            let (first, count) = task.span.whole();
            let trimmed = if count == 0 { Ok(()) } else { self.flash.trim(SubpageIndex(first), count) };
            task.error = trimmed.err().map(errno);
        }
        if work.gone && task.error.is_none() {
            task.error = Some(Errno::Io);
        }
        let slot = work.vacant.pop().unwrap_or_else(|| {
            work.tasks.push(None);
            work.tasks.len() as u32 - 1
        });
        if task.has_more() {
            work.ready.push_back(slot);
        }
        let ended = task.has_ended();
        work.tasks[slot as usize] = Some(task);
        if ended {
            self.end(work, slot);
        }
    }

    /// Submits the second halves of what changes subpages in part. Returns whether there was any,
    /// and whether the queue took them all.
    fn submit_changed(&mut self, work: &mut Work) -> (bool, bool) {
        let mut progress = false;
        while let Some(&(slot, index)) = work.changed.front() {
            let Some(task) = &mut work.tasks[slot as usize] else { break };
            let subpage = task.span.first + index;
            let request = request(slot, index, Op::Write, subpage, task.whole(index));
            if self.queue.submit(request).is_err() {
                return (progress, false);
            }
            work.changed.pop_front();
            progress = true;
        }
        (progress, true)
    }

    /// Submits what there is and the queue takes. Returns whether there was anything.
    fn submit(&mut self, work: &mut Work) -> bool {
        let (mut progress, all) = self.submit_changed(work);
        if !all {
            return progress;
        }
        // Each once: a command that cannot continue because a place is taken is woken later.
        for _ in 0..work.ready.len() {
            let Some(slot) = work.ready.pop_front() else { break };
            let Some(task) = &mut work.tasks[slot as usize] else { continue };
            let mut full = false;
            for _ in 0..TURN {
                if !task.has_more() {
                    break;
                }
                if self.queue.in_flight() == self.queue.depth() {
                    full = true;
                    break;
                }
                if !advance(&mut *self.queue, &self.locks, &self.wake, slot, task) {
                    break;
                }
                progress = true;
            }
            if task.has_more() {
                if full {
                    work.ready.push_front(slot);
                } else {
                    work.ready.push_back(slot);
                }
            } else if task.has_ended() {
                self.end(work, slot);
            }
            if full {
                break;
            }
        }
        progress
    }

    fn complete(&mut self, work: &mut Work, completion: &Completion) {
        let (slot, step) = ((completion.tag >> 32) as u32, completion.tag as u32);
        let Some(Some(task)) = work.tasks.get_mut(slot as usize) else { return };
        let index = step & !STEP_OLD;
        let had_more = task.has_more();
        if step != STEP_FLUSH && step & STEP_OLD != 0 && completion.result.is_ok() {
            // The old bytes are here: put the new ones among them, and write all back. The place
            // stays taken.
            let within = task.span.within(index);
            let into = task.whole(index) as usize * SUBPAGE_BYTES + within.start;
            if task.command.kind == Kind::WriteZeroes {
                self.frames.zero(into, within.len());
            } else {
                let from = task.frame(index) as usize * SUBPAGE_BYTES + within.start;
                self.frames.copy_within(from, into, within.len());
            }
            work.changed.push_back((slot, index));
            return;
        }
        task.in_flight -= 1;
        if step != STEP_FLUSH && task.changes() {
            self.locks.free(task.span.first + index);
        }
        if let Err(error) = completion.result {
            self.counters.errors.add(1);
            task.error.get_or_insert(errno(error));
        }
        if !had_more && task.has_more() {
            work.ready.push_back(slot);
        }
        // One that was in `ready` and failed is found there, unless it ends here. A stale entry is
        // passed over.
        if task.has_ended() {
            self.end(work, slot);
        }
    }

    /// Replies, and gives back what the command had.
    fn end(&mut self, work: &mut Work, slot: u32) {
        let Some(mut task) = work.tasks[slot as usize].take() else { return };
        work.ready.retain(|&s| s != slot);
        work.vacant.push(slot);
        if !work.gone {
            self.reply(&mut work.replies, &task);
        }
        self.exchange.release(&mut task.command.frames);
    }

    fn reply(&self, replies: &mut Vec<u8>, task: &Task) {
        let command = &task.command;
        let reads = matches!(command.kind, Kind::Read | Kind::Refuse { read: true, .. });
        match (task.error, self.structured && reads) {
            (Some(error), true) => wire::put_error_chunk(replies, command.cookie, error),
            (None, true) => wire::put_data_chunk(replies, command.cookie, command.offset, command.length),
            (error, false) => wire::put_simple_reply(replies, command.cookie, error),
        }
        let counters = &self.counters;
        if task.error.is_some() {
            return;
        }
        match command.kind {
            Kind::Read => {
                for index in 0..task.span.subpages() {
                    let within = task.span.within(index);
                    let at = replies.len();
                    replies.resize(at + within.len(), 0);
                    self.frames.read(task.frame(index) as usize * SUBPAGE_BYTES + within.start, &mut replies[at..]);
                }
                counters.read_bytes.add(command.length.into());
            }
            Kind::Write | Kind::WriteZeroes => {
                counters.written_bytes.add(command.length.into());
            }
            Kind::Trim | Kind::Flush | Kind::Refuse { .. } => {}
        }
    }

    /// Sends the replies that there are: the replies of one turn, whose data were in frames, so
    /// that they take no more than the frames do. A client that does not take them is given up.
    fn send(&mut self, work: &mut Work) {
        while !work.replies.is_empty() {
            let mut replies = std::mem::take(&mut work.replies);
            if !work.gone && self.send_all(work, &replies).is_err() {
                self.give_up(work);
            }
            if work.gone {
                work.replies.clear();
            }
            if work.replies.is_empty() {
                replies.clear();
                work.replies = replies;
            }
        }
    }

    /// Sends these. As long as the client does not take them, what is in flight ends.
    fn send_all(&mut self, work: &mut Work, mut replies: &[u8]) -> io::Result<()> {
        let until = Instant::now() + self.stall;
        loop {
            replies = &replies[self.stream.write_some(replies)?..];
            if replies.is_empty() {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.submit_changed(work);
            self.take_completions(work);
            let busy = self.queue.in_flight() > 0 || !work.changed.is_empty();
            self.stream.wait_writable(if busy { left.min(CHECK) } else { left });
        }
    }

    /// Hangs up. What has not begun never will. What is in flight comes back.
    fn give_up(&mut self, work: &mut Work) {
        work.gone = true;
        self.stream.shutdown();
        for task in work.tasks.iter_mut().flatten() {
            task.error.get_or_insert(Errno::Io);
        }
        for slot in 0..work.tasks.len() as u32 {
            if work.tasks[slot as usize].as_ref().is_some_and(Task::has_ended) {
                self.end(work, slot);
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.exchange.end_engine();
        // The reader may sleep in a read.
        self.stream.shutdown();
    }
}

/// Submits a command's next request. False when a place is taken.
fn advance(queue: &mut dyn Queue, locks: &WriteLocks, wake: &Arc<Notifier>, slot: u32, task: &mut Task) -> bool {
    if task.flush_is_due() {
        // The caller has seen that the queue takes one more.
        if queue.submit(request(slot, STEP_FLUSH, Op::Flush, 0, ZERO_FRAME)).is_err() {
            return false;
        }
        task.flush = FlushState::Submitted;
        task.in_flight += 1;
        return true;
    }
    let index = task.begun;
    let subpage = task.span.first + index;
    let request = if !task.changes() {
        request(slot, index, Op::Read, subpage, task.frame(index))
    } else if !locks.take(subpage, wake) {
        return false;
    } else if task.span.is_partial(index) {
        request(slot, index | STEP_OLD, Op::Read, subpage, task.whole(index))
    } else {
        request(slot, index, Op::Write, subpage, task.frame(index))
    };
    if queue.submit(request).is_err() {
        if task.changes() {
            locks.free(subpage);
        }
        return false;
    }
    task.begun += 1;
    task.in_flight += 1;
    true
}

fn request(slot: u32, step: u32, op: Op, subpage: u32, frame: u32) -> Request {
    let tag = u64::from(slot) << 32 | u64::from(step);
    Request { tag, op, subpage: SubpageIndex(subpage), frame: FrameIndex(frame) }
}

/// The errno that a client gets for an error of the flash.
fn errno(error: FlashError) -> Errno {
    match error {
        FlashError::NoSpace => Errno::NoSpace,
        _ => Errno::Io,
    }
}
