//! Some extents of a medium, side by side as a medium of their own, which keeps nothing.
//!
//! ```text
//! medium:   | extent 0 | 1 | 2 | 3 | 4 | 5 | ..       extents 1, 2 and 5 of it:   | 0 | 1 | 2 |
//! ```
//!
//! Invariants: nothing outside of the extents is named to the medium. It passes no trim on, because
//! processes that share it may have written there again.

use std::sync::Arc;

use fulgurite_format::SubpageIndex;
use fulgurite_sys::{Arena, Notifier};

use crate::moved::MovedQueue;
use crate::{Backing, DeviceCounters, Flash, FlashError, OpenedQueue, QueueUser, Traits};

/// See the module.
pub struct ExtentsOfFlash {
    inner: Arc<dyn Flash>,
    /// Subpages in each of them.
    length: u32,
    extents: Box<[u32]>,
    count: u32,
}

impl std::fmt::Debug for ExtentsOfFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} extents of {}", self.extents.len(), self.inner.describe())
    }
}

impl ExtentsOfFlash {
    /// These extents of a medium, of `length` subpages each, and at most `most` subpages of them.
    ///
    /// # Panics
    /// When the medium does not have one of the extents.
    #[must_use]
    pub fn new(inner: Arc<dyn Flash>, length: u32, extents: Vec<u32>, most: u32) -> Arc<ExtentsOfFlash> {
        assert!(extents.iter().all(|extent| *extent < inner.subpages() / length), "the medium has each extent");
        let count = u32::try_from(extents.len() as u64 * u64::from(length)).map_or(most, |count| count.min(most));
        Arc::new(ExtentsOfFlash { inner, length, extents: extents.into(), count })
    }
    /// Where a subpage is in the medium within.
    fn place(&self, subpage: u32) -> Option<u32> {
        if subpage >= self.count {
            return None;
        }
        let extent = self.extents.get((subpage / self.length) as usize)?;
        Some(extent * self.length + subpage % self.length)
    }
}

impl Flash for Arc<ExtentsOfFlash> {
    fn subpages(&self) -> u32 {
        self.count
    }
    fn describe(&self) -> String {
        format!("{self:?}")
    }
    fn traits(&self) -> Traits {
        let traits = self.inner.traits();
        let own = self.extents.len() * size_of::<u32>();
        Traits { trims: false, dram_bytes: traits.dram_bytes + own, ..traits }
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        let inner = self.inner.open_queue_for(user, frames, depth, wake)?;
        let extents = self.clone();
        Ok(Box::new(MovedQueue { inner, to: move |subpage| extents.place(subpage) }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        crate::check_range(first, count, self.subpages())
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
    use fulgurite_format::{FrameIndex, SUBPAGE_BYTES};
    use fulgurite_sys::Backed;

    use super::*;
    use crate::{MemoryFlash, Op, Request};

    #[test]
    fn extents_are_side_by_side_and_nothing_else_is_touched() {
        let whole = Arc::new(MemoryFlash::new(6 * 8 + 3).unwrap());
        let extents = ExtentsOfFlash::new(whole.clone(), 8, vec![1, 2, 5], 23);
        assert_eq!(extents.subpages(), 23);
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
        for subpage in 0..23 {
            frames.write(0, &[subpage as u8 + 1; SUBPAGE_BYTES]);
            run(&extents, Op::Write, subpage).unwrap();
        }
        let within: Vec<u8> = (0..51).map(|subpage| run(&*whole, Op::Read, subpage).unwrap()).collect();
        let expected = |subpage: u32| match subpage / 8 {
            1 | 2 => subpage as u8 - 7,
            5 if subpage < 47 => subpage as u8 - 23,
            _ => 0,
        };
        assert_eq!(within, (0..51).map(expected).collect::<Vec<u8>>());
        assert_eq!(run(&extents, Op::Write, 23), Err(FlashError::OutOfRange));
        assert_eq!(run(&extents, Op::Read, u32::MAX), Err(FlashError::OutOfRange));
        assert_eq!(run(&extents, Op::Flush, 0).map(drop), Ok(()));
        assert_eq!(extents.trim(SubpageIndex(20), 5), Err(FlashError::OutOfRange));
        extents.trim(SubpageIndex(0), 23).unwrap();
        assert_eq!(run(&extents, Op::Read, 22), Ok(23), "it may be another process's");
    }
}
