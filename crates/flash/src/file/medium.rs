//! What all queues of a file share: the open file, what the kernel's results mean, and whether a
//! flush has failed.

use std::sync::Arc;
#[cfg(test)]
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::{Clock, DirectFile};

use super::name::Name;
#[cfg(test)]
use super::nth::Nth;
use crate::counters::Counters;
#[cfg(test)]
use crate::lock;
use crate::{DeviceCounters, FlashError, Op};

/// What all queues of a file share.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub file: Arc<DirectFile>,
    name: Name,
    subpages: AtomicU32,
    pub clock: Clock,
    pub poisoned: AtomicBool,
    pub counters: Counters,
    /// For tests: the results that the kernel is made to have returned, one for each of the next
    /// requests.
    #[cfg(test)]
    pub script: Mutex<std::collections::VecDeque<i32>>,
    /// For tests: results of the kernel by the number of the request.
    #[cfg(test)]
    pub nth: Mutex<Nth>,
    /// For tests: errors with which the kernel refuses to be entered, one for each of the next
    /// attempts.
    #[cfg(test)]
    pub refusals: Mutex<std::collections::VecDeque<i32>>,
}

impl OpenFile {
    /// Over an open file of `subpages` subpages.
    pub fn new(name: Name, file: DirectFile, subpages: u32, clock: Clock) -> OpenFile {
        OpenFile {
            name,
            file: Arc::new(file),
            subpages: AtomicU32::new(subpages),
            clock,
            poisoned: AtomicBool::new(false),
            counters: Counters::default(),
            #[cfg(test)]
            script: Mutex::default(),
            #[cfg(test)]
            nth: Mutex::default(),
            #[cfg(test)]
            refusals: Mutex::default(),
        }
    }
    /// Its size.
    pub fn subpages(&self) -> u32 {
        self.subpages.load(Ordering::Relaxed)
    }
    /// The file has grown to this number of subpages.
    pub fn grow_to(&self, subpages: u32) {
        self.subpages.store(subpages, Ordering::Release);
    }
    /// Whether a flush has failed: nothing is written any more.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    /// Why a request is refused before it is tried, if it is.
    pub fn refusal(&self, request: &crate::Request, frame_count: u32) -> Option<FlashError> {
        if request.op != Op::Read && self.is_poisoned() {
            return Some(FlashError::Poisoned);
        }
        let inside = request.subpage.0 < self.subpages() && request.frame.0 < frame_count;
        (!inside && request.op != Op::Flush).then_some(FlashError::OutOfRange)
    }

    /// What the kernel's result means for a request, as [`judge`] has it.
    pub fn judge(&self, op: Op, result: i32, tries: &mut Tries) -> Option<Result<(), FlashError>> {
        let judged = judge(op, self.scripted(result, Some(op)), tries);
        #[cfg(test)]
        {
            tries.no_room &= !lock(&self.nth).has_plan();
        }
        // A flush promises that the data is found again, and the data of a file without its name is
        // not.
        if op == Op::Flush && judged == Some(Ok(())) && self.name.is_lost(&self.file) {
            return Some(Err(FlashError::Unlinked));
        }
        judged
    }
    /// Whether a request of `count` subpages moved all of them. If not, each is to be tried by
    /// itself, because only that can tell which of them the kernel would not move, and which only
    /// failed together with their neighbours.
    pub fn all_moved(&self, count: usize, result: i32) -> bool {
        self.scripted(result, None) == (count * SUBPAGE_BYTES) as i32
    }
    #[cfg(test)]
    fn scripted(&self, result: i32, op: Option<Op>) -> i32 {
        let result = lock(&self.nth).say(result, op);
        lock(&self.script).pop_front().unwrap_or(result)
    }
    #[cfg(not(test))]
    fn scripted(&self, result: i32, _: Option<Op>) -> i32 {
        result
    }

    /// An error that a test has the kernel refuse to be entered with.
    #[cfg(test)]
    pub fn scripted_refusal(&self) -> Option<std::io::Error> {
        lock(&self.refusals).pop_front().map(std::io::Error::from_raw_os_error)
    }
    #[cfg(not(test))]
    pub fn scripted_refusal(&self) -> Option<std::io::Error> {
        None
    }

    /// Counts a request that has ended, and poisons the medium if it was a flush that failed.
    pub fn account(&self, op: Op, result: Result<(), FlashError>) {
        if op == Op::Flush && result.is_err() {
            self.poisoned.store(true, Ordering::Relaxed);
        }
        let mut done = DeviceCounters::default();
        done.ended(op, result);
        self.counters.add(&done);
    }
}

/// The kernel was interrupted, or asks to come again later.
pub(super) const EINTR: i32 = 4;
pub(super) const EAGAIN: i32 = 11;
/// It has no memory at the moment.
pub(super) const ENOMEM: i32 = 12;
/// The thread has ended that began it, in a queue of several threads.
const ECANCELED: i32 = 125;

/// How often a request may be put off (`EAGAIN`, `ENOMEM`, `EINTR`) before that is an error. With
/// the pauses between, that is after half a second of a kernel that has no room.
pub(super) const PUT_OFF_MAX: u8 = 64;
/// The first pause before what the kernel had no room for is tried again. Each further one is twice
/// as long, up to the longest.
pub(super) const PAUSE_FIRST: Duration = Duration::from_micros(4);
const PAUSE_LONGEST: Duration = Duration::from_millis(10);

/// How long to leave the kernel alone that had no room, as often as `put_off` says.
pub(super) fn pause(put_off: u8) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << put_off.saturating_sub(1).min(30)).min(PAUSE_LONGEST)
}

/// How often a request was tried again.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tries {
    put_off: u8,
    short: bool,
    /// The kernel had no room for it, the last time.
    pub no_room: bool,
}

impl Tries {
    /// How long the request waits before it is tried again: only for room.
    pub fn pause(&self) -> Duration {
        if self.no_room { pause(self.put_off) } else { Duration::ZERO }
    }
}

/// What the kernel's result (bytes, or a negative errno) means for a request; none: try the whole
/// request again.
///
/// Short transfers, `EAGAIN`, `ENOMEM`, `EINTR` and `ECANCELED` are normal. A short one is tried
/// again whole (a remainder would not be aligned for `O_DIRECT`), once. What there was no room for
/// is tried again after a pause ([`Tries::pause`]), which is the caller's to keep. A flush is never
/// tried again.
fn judge(op: Op, result: i32, tries: &mut Tries) -> Option<Result<(), FlashError>> {
    tries.no_room = result == -EAGAIN || result == -ENOMEM;
    match (op, result) {
        (Op::Flush, 0..) => Some(Ok(())),
        (Op::Read | Op::Write, n) if n == SUBPAGE_BYTES as i32 => Some(Ok(())),
        (Op::Read | Op::Write, 0..) if tries.short => Some(Err(FlashError::Short)),
        (Op::Read | Op::Write, 0..) => {
            tries.short = true;
            None
        }
        (Op::Read | Op::Write, n)
            if (tries.no_room || n == -EINTR || n == -ECANCELED) && tries.put_off < PUT_OFF_MAX =>
        {
            tries.put_off += 1;
            None
        }
        (_, n) => Some(Err(FlashError::Io(-n))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_results_mean() {
        let mut tries = Tries::default();
        assert_eq!(judge(Op::Read, 4096, &mut tries), Some(Ok(())));
        assert_eq!(judge(Op::Write, -28, &mut tries), Some(Err(FlashError::Io(28))));
        assert_eq!(judge(Op::Flush, 0, &mut tries), Some(Ok(())));
        // A flush is not tried again, whatever the kernel says.
        for errno in [4, 5, 11, 12] {
            assert_eq!(judge(Op::Flush, -errno, &mut tries), Some(Err(FlashError::Io(errno))));
        }
        assert_eq!(judge(Op::Read, 512, &mut tries), None);
        assert_eq!(judge(Op::Read, 0, &mut tries), Some(Err(FlashError::Short)));
        for _ in 0..PUT_OFF_MAX {
            assert_eq!(judge(Op::Write, -11, &mut tries), None);
        }
        assert_eq!(judge(Op::Write, -11, &mut tries), Some(Err(FlashError::Io(11))));
    }
    #[test]
    fn pauses_are_for_room_and_bounded() {
        let mut tries = Tries::default();
        assert_eq!(judge(Op::Read, -EINTR, &mut tries), None);
        assert_eq!(judge(Op::Write, -ECANCELED, &mut Tries::default()), None);
        assert_eq!(tries.pause(), Duration::ZERO);
        let mut last = Duration::ZERO;
        for errno in [EAGAIN, ENOMEM].into_iter().cycle().take(usize::from(PUT_OFF_MAX) - 1) {
            assert_eq!(judge(Op::Read, -errno, &mut tries), None);
            let now = tries.pause();
            assert!(now > last || now == PAUSE_LONGEST, "{now:?} after {last:?}");
            last = now;
        }
        assert_eq!((pause(1), last, pause(u8::MAX)), (PAUSE_FIRST, PAUSE_LONGEST, PAUSE_LONGEST));
        assert_eq!(judge(Op::Read, 512, &mut tries), None);
        assert_eq!(tries.pause(), Duration::ZERO);
    }
}
