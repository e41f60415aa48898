//! A part of a medium, as one of its own, each from its subpage 0 on: independent programs share
//! it.
//!
//! Requests and trims are moved by the begin of the part, and refused beyond its end. A flush is
//! the whole medium's, and so are its counters. A part has no states with names: a roll back would
//! undo other programs' writes.
//!
//! Invariant: nothing outside the part is named to the medium.

use std::sync::Arc;

use fulgurite_format::SubpageIndex;
use fulgurite_sys::{Arena, Notifier};

use crate::moved::MovedQueue;
use crate::{
    Backing, DeviceCounters, Flash, FlashError, Objects, OpenedQueue, QueueUser, Traits, Versions, check_range,
};

/// A run of consecutive subpages of a medium, from one of them on.
pub struct PartOfFlash {
    inner: Arc<dyn Flash>,
    first: u32,
    count: u32,
}

impl std::fmt::Debug for PartOfFlash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

impl PartOfFlash {
    /// `count` subpages from `first` on; none where the medium does not have them all.
    #[must_use]
    pub fn new(inner: Arc<dyn Flash>, first: u32, count: u32) -> Option<PartOfFlash> {
        let inside = first.checked_add(count).is_some_and(|end| end <= inner.subpages());
        inside.then_some(PartOfFlash { inner, first, count })
    }
}

impl Flash for PartOfFlash {
    fn subpages(&self) -> u32 {
        self.count
    }
    fn describe(&self) -> String {
        format!("{} subpages from {} on of {}", self.count, self.first, self.inner.describe())
    }
    fn traits(&self) -> Traits {
        self.inner.traits()
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        let inner = self.inner.open_queue_for(user, frames, depth, wake)?;
        let (first, count) = (self.first, self.count);
        let to = move |subpage: u32| (subpage < count).then(|| first + subpage);
        Ok(Box::new(MovedQueue { inner, to }))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        check_range(first, count, self.count)?;
        self.inner.trim(SubpageIndex(self.first + first.0), count)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.inner.backing().map(|_| self as &dyn Backing)
    }
    fn counters(&self) -> DeviceCounters {
        self.inner.counters()
    }
}

/// The backing of the medium, moved by where the part begins.
impl Backing for PartOfFlash {
    fn may(&self, subpage: u32, write: bool) -> bool {
        subpage >= self.count || self.inner.backing().is_none_or(|backing| backing.may(self.first + subpage, write))
    }
    fn asks(&self) -> bool {
        self.inner.backing().is_some_and(Backing::asks)
    }
    fn begin_change(&self, subpage: u32, for_sync: bool) -> Result<(), FlashError> {
        self.inner.backing().map_or(Ok(()), |backing| backing.begin_change(self.first + subpage, for_sync))
    }
    fn waits_for_room(&self) -> bool {
        self.inner.backing().is_some_and(Backing::waits_for_room)
    }
    fn versions(&self) -> Option<&dyn Versions> {
        None
    }
    /// Their numbers would have to be changed on the way.
    fn objects(&self) -> Option<&dyn Objects> {
        None
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_format::{FrameIndex, SUBPAGE_BYTES};
    use fulgurite_sys::Backed;

    use super::*;
    use crate::{MemoryFlash, Op, Request};

    #[test]
    fn parts_of_one_medium_do_not_meet() {
        let whole = Arc::new(MemoryFlash::new(12).unwrap());
        assert!(
            PartOfFlash::new(whole.clone(), 8, 5).is_none() && PartOfFlash::new(whole.clone(), u32::MAX, 1).is_none()
        );
        let parts = [0, 4, 8].map(|first| PartOfFlash::new(whole.clone(), first, 4).unwrap());
        let frames = Arc::new(Arena::anonymous(2 * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let run = |part: &PartOfFlash, op, subpage| {
            let mut queue = part.open_queue(frames.clone(), 1, Arc::new(Notifier::new().unwrap())).unwrap();
            queue.submit(Request { tag: 7, op, subpage: SubpageIndex(subpage), frame: FrameIndex(0) }).unwrap();
            queue.flush().unwrap();
            let mut ended = Vec::new();
            while queue.poll(&mut ended) == 0 {}
            assert_eq!(ended[0].tag, 7);
            ended[0].result
        };
        for (number, part) in parts.iter().enumerate() {
            for subpage in 0..4 {
                frames.write(0, &[(10 * number as u8) + subpage as u8 + 1; SUBPAGE_BYTES]);
                assert_eq!(run(part, Op::Write, subpage), Ok(()));
            }
            for subpage in [4, 8, u32::MAX - 3, u32::MAX] {
                assert_eq!(run(part, Op::Write, subpage), Err(FlashError::OutOfRange), "{subpage}");
                assert_eq!(part.trim(SubpageIndex(subpage), 1), Err(FlashError::OutOfRange));
            }
            assert_eq!(run(part, Op::Flush, 99), Ok(()));
            assert_eq!(part.trim(SubpageIndex(3), 2), Err(FlashError::OutOfRange));
        }
        for (number, part) in parts.iter().enumerate() {
            for subpage in 0..4 {
                assert_eq!(run(part, Op::Read, subpage), Ok(()));
                let mut byte = [0];
                frames.read(9, &mut byte);
                assert_eq!(usize::from(byte[0]), 10 * number + subpage as usize + 1);
            }
        }
        // Memory does trim: its own part, and nothing else.
        assert!(parts[1].traits().trims);
        parts[1].trim(SubpageIndex(0), 4).unwrap();
        for (number, subpage) in [(0, 3), (2, 0)] {
            assert_eq!(run(&parts[number], Op::Read, subpage), Ok(()));
            let mut byte = [0];
            frames.read(9, &mut byte);
            assert_eq!(usize::from(byte[0]), 10 * number + subpage as usize + 1);
        }
    }
}
