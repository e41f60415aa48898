//! Scanning the trie in the order of its keys.

use std::ops::ControlFlow;

use super::border::{CAPACITY, LAYER};
use super::{Address, Entry, Masstree, SUFFIX, position, slice_of};
use crate::tree::node::next;
use crate::tree::{Seen, Stop, again};
use crate::{AccessError, Latch, Memory};

/// A scan inside one layer: the entries of `border` from `index` on come next.
struct Frame {
    border: Seen,
    index: usize,
}

/// Where a scan goes on: at the keys from `key` on, or after it.
struct Bound {
    key: Vec<u8>,
    after: bool,
}

impl<L: Latch> Masstree<L> {
    /// Shows `visit` up to `limit` keys from `from` on and their values, ascending, until it
    /// breaks, and returns how many. Each was there when it was shown. Different ones may be of
    /// different times.
    ///
    /// # Errors
    /// As [`Masstree::get`]. What was shown before was right.
    pub fn scan<M: Memory>(
        &self,
        memory: &mut M,
        from: &[u8],
        limit: usize,
        mut visit: impl FnMut(&[u8], u64) -> ControlFlow<()>,
    ) -> Result<usize, AccessError> {
        self.nodes.memory.check(memory.id())?;
        let mut bound = Bound { key: from.to_vec(), after: false };
        let mut shown = 0;
        if limit == 0 {
            return Ok(0);
        }
        // The path to what comes next, and the key's bytes above the lowest layer of it.
        let (mut frames, mut prefix) = (Vec::new(), Vec::new());
        again(|| {
            frames.clear();
            prefix.clear();
            self.enter_at(memory, &bound, &mut frames, &mut prefix)?;
            while let Some(frame) = frames.last_mut() {
                let (view, head) = self.nodes.view_leaf(memory, &frame.border)?;
                if frame.index >= head.count.min(CAPACITY) {
                    let next = next(&view);
                    self.nodes.validate(&frame.border)?;
                    if next.is_null() {
                        frames.pop();
                        prefix.truncate(8 * frames.len().saturating_sub(1));
                    } else {
                        let following = self.nodes.begin(memory, next)?;
                        self.nodes.validate(&frame.border)?;
                        *frame = Frame { border: following, index: 0 };
                    }
                    continue;
                }
                let entry = Entry::read(&view, frame.index);
                let border = frame.border;
                frame.index += 1;
                self.nodes.validate(&border)?;
                if entry.kind == LAYER {
                    let below = self.nodes.begin(memory, Address::from_bits(entry.value))?;
                    self.nodes.validate(&border)?;
                    prefix.extend_from_slice(&entry.slice.to_be_bytes());
                    let border = self.nodes.find_leaf(memory, below, 0)?;
                    frames.push(Frame { border, index: 0 });
                    continue;
                }
                let above = prefix.len();
                prefix.extend_from_slice(&entry.slice.to_be_bytes());
                let mut value = entry.value;
                if entry.kind < SUFFIX {
                    prefix.truncate(above + usize::from(entry.kind));
                } else {
                    value = self.append_suffix(memory, &border, entry, &mut prefix)?;
                }
                // The first entry may be one whose slice is the bound's and whose suffix is not.
                let wanted = if bound.after { prefix > bound.key } else { prefix >= bound.key };
                if wanted {
                    shown += 1;
                    let flow = visit(&prefix, value);
                    bound.key.clone_from(&prefix);
                    bound.after = true;
                    if flow.is_break() || shown == limit {
                        return Ok(());
                    }
                }
                prefix.truncate(above);
            }
            Ok(())
        })?;
        Ok(shown)
    }

    /// Puts the path to the first entry that may be at or after the bound into `frames`.
    fn enter_at<M: Memory>(
        &self,
        memory: &mut M,
        bound: &Bound,
        frames: &mut Vec<Frame>,
        prefix: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let mut root = self.nodes.begin(memory, self.root.root)?;
        loop {
            let (slice, rank) = slice_of(&bound.key[prefix.len()..]);
            let border = self.nodes.find_leaf(memory, root, slice)?;
            let (view, head) = self.nodes.view_leaf(memory, &border)?;
            let index = position(&view, head.count, slice, rank);
            let entry = (index < head.count).then(|| Entry::read(&view, index));
            self.nodes.validate(&border)?;
            match entry.filter(|e| e.slice == slice && e.kind == LAYER && rank == SUFFIX) {
                None => {
                    frames.push(Frame { border, index });
                    return Ok(());
                }
                Some(entry) => {
                    root = self.nodes.begin(memory, Address::from_bits(entry.value))?;
                    self.nodes.validate(&border)?;
                    frames.push(Frame { border, index: index + 1 });
                    prefix.extend_from_slice(&slice.to_be_bytes());
                }
            }
        }
    }
}
