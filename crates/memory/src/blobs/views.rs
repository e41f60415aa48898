//! Views: values where they are stored, without a copy.
//!
//! ```text
//!  view:    find the value, register | pin, look, let go | pin, look, let go | .. | free the old
//!  writer:                                  put, swing, the old value waits, noted
//! ```
//!
//! A value that is viewed does not change. Its writers put another one in its place, as always, and
//! what nothing leads to any more waits until the last view of it ends. While it waits it is noted
//! as a value that is written in parts is, so that a kill loses no space. There are 32 notes for
//! both. Beyond them a kill loses the space of what waits. A change in place is written elsewhere
//! meanwhile.
//!
//! Invariants:
//! * No pin is held where a job may wait. So a roll back waits for no view, and finds none in the
//!   middle of a piece.
//! * After a roll back, or when its container was removed, a view shows nothing more.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_runtime::AccessError;
use zerocopy::IntoBytes;

use super::readers::{Reading, Waiting};
use super::values::{AHEAD, Span, YIELD_BYTES, subpage_of};
use super::{BlobIndex, BlobMap};
use crate::{Allocator, ByKind, Heap, Memory, Pinned, View};

/// A value as `look` found it.
struct Found {
    span: Span,
    /// One that is an object, which is copied.
    copied: Vec<u64>,
}

impl<I: BlobIndex> BlobMap<I> {
    /// Shows `each` the value of `key` where it is stored, piece by piece and in order, until it
    /// breaks. Returns the length of the whole value. `None` without the key.
    ///
    /// A value of up to a subpage is one piece, and the empty value none. Of a longer one each
    /// subpage is a piece. All are of one state, whatever others change meanwhile. Their space is
    /// used again when the view has ended. Nothing is copied, but for a value that is an object. A
    /// panic of `each` ends the view.
    ///
    /// The job has one pin while `each` has a piece, and its worker does nothing else. So `each`
    /// should not block.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use fulgurite_memory::{Address, Blobs, Heap, PlainMemory, Region};
    /// use fulgurite_sys::Backed;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut memory = PlainMemory::new(Backed::BasePages)?;
    /// # let (heap, buckets) = Region::new(Address::from_linear(1 << 20), 8 << 20).split(4 << 20);
    /// # let heap = Heap::create(&mut memory, heap)?.into();
    /// # let films = Blobs::<u64>::create(&mut memory, buckets, heap, 1000, 64)?;
    /// films.put(&mut memory, &1, &[7; 10_000])?;
    /// let (mut pieces, mut sum) = (0, 0);
    /// let len = films.view(&mut memory, &1, |piece| {
    ///     pieces += 1;
    ///     sum += (0..piece.len()).map(|i| u64::from(piece.load::<u8>(i))).sum::<u64>();
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!((len, pieces, sum), (Some(10_000), 3, 70_000));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`BlobMap::get`] and [`pin`](crate::RawMemory::pin). [`AccessError::ValueGone`] after a
    /// roll back, or when the map was removed. What was shown before was right.
    pub fn view<M: Memory>(
        &self,
        memory: &mut M,
        key: &I::Key,
        mut each: impl FnMut(View<'_>) -> ControlFlow<()>,
    ) -> Result<Option<usize>, AccessError> {
        let mut reading = None;
        let found = self.look_up(memory, key, |memory, span, _| {
            // Ends the view of a read that saw two states.
            self.end_view(memory, reading.take());
            let mut copied = Vec::new();
            if span.object {
                copied = vec![0; span.len.div_ceil(size_of::<u64>())];
                memory.read_object(span.at, span.len, |bytes| {
                    copied.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
                })?;
            } else if span.len > 0 {
                reading = Some(self.parts.readers.begin(span.at, true));
            }
            Ok(Found { span, copied })
        });
        let shown = catch_unwind(AssertUnwindSafe(|| {
            let Some(found) = found? else { return Ok(None) };
            self.show(memory, &found, reading.as_deref(), &mut each)?;
            Ok(Some(found.span.len))
        }));
        self.end_view(memory, reading.take());
        shown.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Shows the pieces of a value, which stays if it is `reading`.
    fn show<M: Memory>(
        &self,
        memory: &mut M,
        found: &Found,
        reading: Option<&Reading>,
        each: &mut impl FnMut(View<'_>) -> ControlFlow<()>,
    ) -> Result<(), AccessError> {
        let (span, state) = (found.span, memory.roll_backs());
        let Some(reading) = reading else {
            if span.len > 0 {
                let _ = each(View::over(&found.copied, span.len));
            }
            return Ok(());
        };
        let ends = span.at.subpage_offset() + span.len;
        for ahead in (SUBPAGE_BYTES..ends).step_by(SUBPAGE_BYTES).take(AHEAD) {
            memory.prefetch(subpage_of(span.at).add(ahead as u64));
        }
        let mut done = 0;
        while done < span.len {
            let here = span.at.add(done as u64);
            let len = (span.len - done).min(SUBPAGE_BYTES - here.subpage_offset());
            if done > 0 && done + AHEAD * SUBPAGE_BYTES < ends {
                memory.prefetch(here.add((AHEAD * SUBPAGE_BYTES) as u64));
            }
            let pin = memory.pin(here)?;
            // No job waits from here on until the pin is dropped, so no roll back comes.
            if reading.is_gone() || memory.roll_backs() != state {
                return Err(AccessError::ValueGone { at: span.at });
            }
            if each(pin.view(here.subpage_offset(), len)).is_break() {
                return Ok(());
            }
            drop(pin);
            done += len;
            if done < span.len && done.is_multiple_of(YIELD_BYTES) {
                memory.yield_now()?;
            }
        }
        Ok(())
    }

    fn end_view<M: Memory>(&self, memory: &mut M, reading: Option<Arc<Reading>>) {
        let Some(reading) = reading else { return };
        for waiting in self.parts.readers.end(&reading) {
            let freed = self.free_waiting(memory, &waiting);
            if freed.is_err() && self.parts.is_after(waiting.roll_backs) {
                self.parts.leave(waiting.place, waiting.span);
            }
        }
    }
    fn free_waiting<M: Memory>(&self, memory: &mut M, waiting: &Waiting) -> Result<(), AccessError> {
        let _section = memory.write_section()?;
        // In a section: no roll back comes before its end.
        if self.parts.is_after(waiting.roll_backs) {
            self.parts.forget(memory, waiting.place)?;
            self.values.free(memory, waiting.span);
        }
        Ok(())
    }

    /// Gives the space of a value back that nothing leads to any more, at once or when it is no
    /// more viewed. The caller is in a write section.
    pub(super) fn release<M: Memory>(&self, memory: &mut M, span: Span) {
        if span.len == 0 || span.object {
            return self.values.free(memory, span);
        }
        if memory.free_tracked(self, span.at, span.len) {
            return;
        }
        if self.parts.readers.notify(span.at) {
            let (place, roll_backs) = (self.note_waiting(memory, span), self.parts.roll_backs());
            match self.parts.readers.wait(Waiting { span, place, roll_backs }) {
                Ok(()) => return,
                // The last view has just ended.
                Err(Waiting { place, .. }) => {
                    if self.parts.forget(memory, place).is_err() {
                        return self.parts.leave(place, span);
                    }
                }
            }
        }
        self.values.free(memory, span);
    }
}

/// What a transaction frees: values that were reached.
impl<I: BlobIndex> Allocator for BlobMap<I> {
    fn room_of(bytes: usize) -> usize {
        Heap::room(bytes)
    }
    fn take<M: Memory>(&self, memory: &mut M, bytes: usize) -> Result<Address, AccessError> {
        self.values.heap.allocate(memory, bytes)
    }
    fn give_back<M: Memory>(&self, memory: &mut M, at: Address, bytes: usize) -> Result<(), AccessError> {
        self.release(memory, Span { at, len: bytes, object: false });
        Ok(())
    }
}
