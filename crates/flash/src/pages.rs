//! Some pages of 64 KiB of a medium, side by side as a medium of their own, which keeps nothing.
//!
//! Invariants: nothing outside of the pages is named to the medium. A flush is refused, because
//! over a store it would name a state with what is in them. A page is discarded when each of its
//! subpages is trimmed or was never written.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use fulgurite_format::{SUBPAGE_BYTES, SubpageIndex, subpages_per_page};
use fulgurite_sys::{Arena, Notifier};

use crate::moved::MovedQueue;
use crate::{Backing, DeviceCounters, Flash, FlashError, Op, OpenedQueue, QueueUser, Traits, check_range};

/// Subpages in a page.
const IN_PAGE: u32 = subpages_per_page(SUBPAGE_BYTES);
const _: () = assert!(IN_PAGE <= u16::BITS, "a bit for each of them");

/// Discards pages of the medium within.
pub type Discard = Box<dyn Fn(Range<u32>) + Send + Sync>;

/// See the module.
pub struct PagesOfFlash {
    inner: Arc<dyn Flash>,
    pages: Box<[u32]>,
    /// Subpages that may have been written and are not trimmed.
    used: Box<[AtomicU16]>,
    discard: Discard,
    dram_bytes: usize,
}

impl std::fmt::Debug for PagesOfFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} pages of {}", self.pages.len(), self.inner.describe())
    }
}

impl PagesOfFlash {
    /// These pages of a medium. `discard` is called with pages of the medium that hold nothing any
    /// more. `dram_bytes`: what the medium keeps in DRAM for them.
    ///
    /// # Panics
    /// When the medium does not have one of the pages.
    #[must_use]
    pub fn new(inner: Arc<dyn Flash>, pages: Vec<u32>, dram_bytes: usize, discard: Discard) -> Arc<PagesOfFlash> {
        assert!(pages.iter().all(|page| *page < inner.subpages() / IN_PAGE), "the medium has each page");
        let used = pages.iter().map(|_| AtomicU16::new(0)).collect();
        Arc::new(PagesOfFlash { inner, pages: pages.into(), used, discard, dram_bytes })
    }
    /// Where a subpage lies in the medium within.
    fn place(&self, subpage: u32) -> Option<u32> {
        let page = self.pages.get((subpage / IN_PAGE) as usize)?;
        Some(page * IN_PAGE + subpage % IN_PAGE)
    }
}

impl Flash for Arc<PagesOfFlash> {
    fn subpages(&self) -> u32 {
        self.pages.len() as u32 * IN_PAGE
    }
    fn describe(&self) -> String {
        format!("{self:?}")
    }
    fn traits(&self) -> Traits {
        let own = self.pages.len() * (size_of::<u32>() + size_of::<u16>());
        Traits { trims: true, dram_bytes: self.dram_bytes + own, ..self.inner.traits() }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        let inner = self.inner.open_queue_for(user, frames, depth, wake)?;
        let pages = self.clone();
        let to = move |op, subpage| match op {
            Op::Flush => None,
            Op::Read => pages.place(subpage),
            Op::Write => pages.place(subpage).inspect(|_| {
                pages.used[(subpage / IN_PAGE) as usize].fetch_or(1 << (subpage % IN_PAGE), Ordering::Relaxed);
            }),
        };
        Ok(Box::new(MovedQueue { inner, to, flushes: false }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.subpages())?;
        let mut gone: Option<Range<u32>> = None;
        for subpage in first.0..first.0 + count {
            let (index, bit) = ((subpage / IN_PAGE) as usize, 1 << (subpage % IN_PAGE));
            // Only the last of a page's subpages discards it.
            if self.used[index].fetch_and(!bit, Ordering::Relaxed) != bit {
                continue;
            }
            let page = self.pages[index];
            match &mut gone {
                Some(range) if range.end == page => range.end += 1,
                gone => {
                    if let Some(range) = gone.replace(page..page + 1) {
                        (self.discard)(range);
                    }
                }
            }
        }
        gone.into_iter().for_each(&self.discard);
        Ok(())
    }
    fn backing(&self) -> Option<&dyn Backing> {
        None
    }
    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use fulgurite_format::FrameIndex;
    use fulgurite_sys::Backed;

    use super::*;
    use crate::{MemoryFlash, Request};

    #[test]
    fn pages_are_side_by_side_and_discarded_when_nothing_is_left_of_them() {
        let whole = Arc::new(MemoryFlash::new(6 * IN_PAGE).unwrap());
        let discarded = Arc::new(Mutex::new(Vec::new()));
        let told = discarded.clone();
        let discard = Box::new(move |pages: Range<u32>| told.lock().unwrap().push((pages.start, pages.end)));
        let pages = PagesOfFlash::new(whole.clone(), vec![1, 2, 5], 7, discard);
        assert_eq!(pages.subpages(), 3 * IN_PAGE);
        let frames = Arc::new(Arena::anonymous(SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let run = |flash: &dyn Flash, op, subpage| {
            let wake = Arc::new(Notifier::new().unwrap());
            let mut queue = flash.open_queue_for(QueueUser::OneThread, frames.clone(), 1, wake).unwrap();
            queue.submit(Request { tag: 7, op, subpage: SubpageIndex(subpage), frame: FrameIndex(0) }).unwrap();
            queue.flush().unwrap();
            let mut ended = Vec::new();
            while queue.poll(&mut ended) == 0 {}
            let mut byte = [0];
            frames.read(9, &mut byte);
            ended[0].result.map(|()| byte[0])
        };
        for subpage in 0..3 * IN_PAGE {
            frames.write(0, &[subpage as u8 + 1; SUBPAGE_BYTES]);
            run(&pages, Op::Write, subpage).unwrap();
        }
        let within = [IN_PAGE, 2 * IN_PAGE, 5 * IN_PAGE + 3].map(|subpage| run(&*whole, Op::Read, subpage).unwrap());
        assert_eq!(within, [1, IN_PAGE as u8 + 1, 2 * IN_PAGE as u8 + 4]);
        assert_eq!(run(&*whole, Op::Read, 0), Ok(0), "nothing beside the pages is touched");
        assert_eq!(run(&pages, Op::Write, 3 * IN_PAGE), Err(FlashError::OutOfRange));
        assert_eq!(run(&pages, Op::Flush, 0), Err(FlashError::OutOfRange));
        assert_eq!(pages.trim(SubpageIndex(1), 3 * IN_PAGE), Err(FlashError::OutOfRange));

        pages.trim(SubpageIndex(1), 3 * IN_PAGE - 2).unwrap();
        assert_eq!(std::mem::take(&mut *discarded.lock().unwrap()), [(2, 3)]);
        pages.trim(SubpageIndex(0), 3 * IN_PAGE).unwrap();
        assert_eq!(std::mem::take(&mut *discarded.lock().unwrap()), [(1, 2), (5, 6)]);
        // A second time there is nothing to discard.
        pages.trim(SubpageIndex(0), 3 * IN_PAGE).unwrap();
        assert!(discarded.lock().unwrap().is_empty());
        for subpage in 0..2 * IN_PAGE {
            run(&pages, Op::Write, subpage).unwrap();
        }
        pages.trim(SubpageIndex(0), 2 * IN_PAGE).unwrap();
        assert_eq!(*discarded.lock().unwrap(), [(1, 3)], "neighbours go together");
    }
}
