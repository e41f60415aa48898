//! A queue that is kept busy: as many requests at a time as it is deep, each with its own frame.

use std::marker::PhantomData;
use std::sync::Arc;

use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Notifier};

use crate::busy::{Asks, keep_busy};
use crate::{Completion, Flash, FlashError, Op, OpenError, Queue, Request, Switches};

/// Requests in flight, unless the caller sets another number.
const DEPTH: usize = 64;

/// A queue and its frames.
pub struct Mover {
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
    /// By frame: what it is in use for.
    asked: Vec<(Op, u32)>,
}

/// A frame of a [`Mover`] that no request uses at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'m> {
    frames: &'m Arena,
    /// Which of them it is, from 0 to the mover's depth.
    pub index: usize,
}

impl Slot<'_> {
    /// Copies from its first bytes.
    pub fn read(&self, bytes: &mut [u8]) {
        self.frames.read(self.index * SUBPAGE_BYTES, bytes);
    }
    /// Copies to its first bytes.
    pub fn write(&self, bytes: &[u8]) {
        self.frames.write(self.index * SUBPAGE_BYTES, bytes);
    }
}

/// The end of a request of a [`Mover`].
#[derive(Clone, Copy, Debug)]
pub struct Moved<'m> {
    /// What it was to do.
    pub op: Op,
    /// Its place on flash.
    pub subpage: u32,
    /// Its frame, which holds what was read.
    pub slot: Slot<'m>,
    /// How it went.
    pub result: Result<(), FlashError>,
    /// As of [`Completion`].
    pub checksum: u32,
}

/// The end of a read: which subpage, and its content.
pub type Read<'r> = (u32, Result<&'r [u8], FlashError>);

impl Mover {
    /// Over a medium.
    ///
    /// # Errors
    /// When there is no memory, or the medium has no queue.
    pub fn new(flash: &dyn Flash) -> Result<Mover, OpenError> {
        Mover::with_depth(flash, DEPTH)
    }
    /// As [`new`](Self::new), with `depth` requests in flight. Its frames are all zero.
    ///
    /// # Errors
    /// When there is no memory, or the medium has no queue of this depth.
    pub fn with_depth(flash: &dyn Flash, depth: usize) -> Result<Mover, OpenError> {
        let frames = Arc::new(Arena::anonymous(depth * SUBPAGE_BYTES, Backed::BasePages)?);
        let wake = Notifier::new().map_err(|source| OpenError::System { what: "make a notifier", source })?;
        Ok(Mover {
            queue: flash.open_queue(frames.clone(), depth, Arc::new(wake))?,
            frames,
            asked: vec![(Op::Flush, 0); depth],
        })
    }
    /// Sets the queue's switches; returns those that it heeds.
    pub fn switch(&mut self, to: Switches) -> Switches {
        self.queue.switch(to)
    }
    /// Most requests in flight.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.asked.len()
    }

    /// Keeps requests in flight until `next` gives none and all have ended, which `each` learns in
    /// the order of their completions. New ones go out when at least `batch` frames are free, as of
    /// [`keep_busy`].
    ///
    /// # Errors
    /// The first error of `next`, `each` or the medium, after all that was in flight has ended.
    pub fn run<E: From<FlashError>>(
        &mut self,
        batch: usize,
        next: impl FnMut(Slot<'_>) -> Result<Option<(Op, u32)>, E>,
        each: impl FnMut(Moved<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Mover { queue, frames, asked } = self;
        let depth = asked.len();
        let asks = &mut Moves { frames, asked, next, each, fails: PhantomData };
        keep_busy(&mut **queue, depth, batch, asks)
    }

    /// Reads subpages, which `each` learns in the order in which they arrive.
    ///
    /// # Errors
    /// When the medium takes no more requests, and the errors of `each`.
    pub fn read<E: From<FlashError>>(
        &mut self,
        mut subpages: impl Iterator<Item = u32>,
        mut each: impl FnMut(Read<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut page = [0; SUBPAGE_BYTES];
        self.run(
            1,
            |_| Ok(subpages.next().map(|subpage| (Op::Read, subpage))),
            |Moved { subpage, slot, result, .. }| {
                slot.read(&mut page);
                each((subpage, result.map(|()| &page[..])))
            },
        )
    }
    /// Writes subpages: `next` fills a page and says which subpage it is, until there is none.
    ///
    /// # Errors
    /// The medium's errors, and the errors of `next`.
    pub fn write<E: From<FlashError>>(
        &mut self,
        mut next: impl FnMut(&mut [u8]) -> Result<Option<u32>, E>,
    ) -> Result<(), E> {
        let mut page = [0; SUBPAGE_BYTES];
        self.run(
            1,
            |slot| {
                let subpage = next(&mut page)?;
                slot.write(&page);
                Ok(subpage.map(|subpage| (Op::Write, subpage)))
            },
            |ended| Ok(ended.result?),
        )
    }
}

/// One run of a [`Mover`].
struct Moves<'m, N, E, X> {
    frames: &'m Arena,
    asked: &'m mut [(Op, u32)],
    next: N,
    each: E,
    fails: PhantomData<X>,
}

impl<X, N, E> Asks for Moves<'_, N, E, X>
where
    X: From<FlashError>,
    N: FnMut(Slot<'_>) -> Result<Option<(Op, u32)>, X>,
    E: FnMut(Moved<'_>) -> Result<(), X>,
{
    type Error = X;

    fn next(&mut self, slot: u32) -> Result<Option<Request>, X> {
        let asked = (self.next)(Slot { frames: self.frames, index: slot as usize })?;
        Ok(asked.map(|(op, subpage)| {
            self.asked[slot as usize] = (op, subpage);
            Request { tag: slot.into(), op, subpage: SubpageIndex(subpage), frame: FrameIndex(slot) }
        }))
    }
    fn ended(&mut self, completion: Completion) -> Result<(), X> {
        let Completion { tag, result, checksum } = completion;
        let (index, (op, subpage)) = (tag as usize, self.asked[tag as usize]);
        (self.each)(Moved { op, subpage, slot: Slot { frames: self.frames, index }, result, checksum })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::{Fault, FaultPlan, FaultyFlash, MemoryFlash, Rule, When};

    #[test]
    fn what_is_written_is_read_and_the_queue_stays_within_its_depth() {
        let flash = MemoryFlash::new(100).unwrap();
        let mut mover = Mover::with_depth(&flash, 8).unwrap();
        let mut places = 0..100;
        let written = mover.write(|page| {
            let place = places.next();
            page[..4].copy_from_slice(&place.unwrap_or(0u32).to_le_bytes());
            Ok::<_, FlashError>(place)
        });
        assert_eq!(written, Ok(()));
        let mut seen = Vec::new();
        let read = mover.read((0..100).rev(), |(subpage, page)| {
            assert_eq!(page?[..4], subpage.to_le_bytes());
            seen.push(subpage);
            Ok::<_, FlashError>(())
        });
        seen.sort_unstable();
        assert_eq!((read, seen), (Ok(()), (0..100).collect()));
        assert_eq!((flash.counters().reads, flash.counters().writes), (100, 100));
    }

    #[test]
    fn new_requests_wait_until_a_batch_of_frames_is_free() {
        let plan = FaultPlan { seed: 3, reorder: true, ..FaultPlan::default() };
        let flash = FaultyFlash::new(MemoryFlash::new(8).unwrap(), plan);
        let mut mover = Mover::with_depth(&flash, 8).unwrap();
        // What came one after the other: requests, and ends.
        let events = RefCell::new(Vec::new());
        let mut left = 100;
        let next = |_: Slot<'_>| {
            left -= 1;
            events.borrow_mut().push(Op::Write);
            Ok((left >= 0).then_some((Op::Read, 1)))
        };
        let each = |ended: Moved<'_>| {
            events.borrow_mut().push(ended.op);
            ended.result
        };
        assert_eq!(mover.run(4, next, each), Ok::<_, FlashError>(()));
        assert_eq!(flash.counters().reads, 100);
        let events = events.into_inner();
        let batches = events.split(|&op| op == Op::Read).map(<[Op]>::len).filter(|&length| length > 0);
        let batches: Vec<usize> = batches.collect();
        assert!(batches.len() > 13, "{batches:?}");
        // The last one ends with the request that there is not.
        assert!(batches[..batches.len() - 1].iter().all(|length| (4..=8).contains(length)), "{batches:?}");
    }

    #[test]
    fn the_first_error_is_kept_and_nothing_is_under_way_after_it() {
        let rule =
            |n, error| Rule { op: Some(Op::Write), when: When::Nth(n), fault: Fault::Fails(FlashError::Io(error)) };
        let plan = FaultPlan { rules: vec![rule(9, 5), rule(10, 28)], ..FaultPlan::default() };
        let flash = FaultyFlash::new(MemoryFlash::new(64).unwrap(), plan);
        let mut mover = Mover::with_depth(&flash, 4).unwrap();
        let (mut begun, mut ended) = (0, 0);
        let next = |_: Slot<'_>| {
            begun += 1;
            Ok(Some((Op::Write, begun)))
        };
        let each = |end: Moved<'_>| {
            ended += 1;
            end.result
        };
        assert_eq!(mover.run(1, next, each), Err(FlashError::Io(5)));
        assert!(begun == ended && begun < 16, "{begun} begun, {ended} ended");
        // It goes on.
        assert_eq!(mover.read(0..3, |(_, page)| page.map(drop)), Ok(()));
    }
}
