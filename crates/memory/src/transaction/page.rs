//! A transaction's own copy of a subpage: what it has written there, over what the memory holds.

use std::cell::{RefCell, UnsafeCell};
use std::ptr::NonNull;

use fulgurite_format::SUBPAGE_BYTES;

use crate::{View, ViewMut};

const WORD: usize = 8;
const WORDS: usize = SUBPAGE_BYTES / WORD;

/// A copy of a subpage, of which only what was written counts.
pub(super) struct Page(Option<Box<Copied>>);

struct Copied {
    bytes: UnsafeCell<[u64; WORDS]>,
    /// A bit for each byte that was written, with the bits of a word side by side.
    written: [u8; WORDS],
}

/// Pages that a thread keeps for its next transactions: 288 KiB.
const KEPT: usize = 64;

thread_local! {
    /// Pages of transactions that have ended.
    static POOL: RefCell<Vec<Box<Copied>>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Page {
    fn drop(&mut self) {
        let Some(copied) = self.0.take() else { return };
        // A thread that ends has no pool any more.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < KEPT {
                pool.push(copied);
            }
        });
    }
}

/// The bits of the bytes `from..to` of a word.
fn bits(from: usize, to: usize) -> u8 {
    (((1u16 << to) - 1) & !((1u16 << from) - 1)) as u8
}

/// The words that `len` bytes at `offset` touch, and which bytes of each.
fn words(offset: usize, len: usize) -> impl Iterator<Item = (usize, u8)> {
    let end = offset + len;
    (offset / WORD..end.div_ceil(WORD)).map(move |word| {
        let first = word * WORD;
        (word, bits(offset.max(first) - first, end.min(first + WORD) - first))
    })
}

impl Page {
    /// A copy of which nothing is written. What else is in it is left from another.
    pub fn new() -> Page {
        let mut copied = POOL
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(|| Box::new(Copied { bytes: UnsafeCell::new([0; WORDS]), written: [0; WORDS] }));
        copied.written.fill(0);
        Page(Some(copied))
    }
    fn copied(&self) -> &Copied {
        self.0.as_ref().expect("the copy is there until the page is dropped")
    }

    /// `len` bytes of the copy, from `offset` on.
    pub fn view(&self, offset: usize, len: usize) -> View<'_> {
        *self.view_mut(offset, len)
    }
    fn view_mut(&self, offset: usize, len: usize) -> ViewMut<'_> {
        assert!(offset + len <= SUBPAGE_BYTES);
        // SAFETY: inside the box (asserted), which lives as long as the view, and whose bytes are
        // reached by views only.
        unsafe { ViewMut::from_raw(NonNull::new_unchecked(self.copied().bytes.get().cast::<u8>().add(offset)), len) }
    }

    /// Takes over what the memory holds from `offset` on, except for what was written.
    pub fn refresh(&mut self, offset: usize, now: &View<'_>) {
        let own = self.view_mut(0, SUBPAGE_BYTES);
        for (word, wanted) in words(offset, now.len()) {
            let at = word * WORD;
            match wanted & !self.copied().written[word] {
                0 => {}
                0xFF => own.store(at, now.load::<u64>(at - offset)),
                bits => (at..at + WORD).filter(|at| bits & (1 << (at % WORD)) != 0).for_each(|at| {
                    own.store(at, now.load::<u8>(at - offset));
                }),
            }
        }
    }

    /// `len` bytes of the copy, from `offset` on, which are about to be written.
    pub fn write(&mut self, offset: usize, len: usize) -> ViewMut<'_> {
        let copied = self.0.as_mut().expect("the copy is there until the page is dropped");
        words(offset, len).for_each(|(word, bits)| copied.written[word] |= bits);
        self.view_mut(offset, len)
    }

    /// Copies what was written to the whole subpage, each word in one piece where all of it was
    /// written.
    pub fn install(&self, subpage: &ViewMut<'_>) {
        let own = self.view(0, SUBPAGE_BYTES);
        for (word, &bits) in self.copied().written.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            let at = word * WORD;
            match bits {
                0xFF => subpage.store(at, own.load::<u64>(at)),
                0x0F => subpage.store(at, own.load::<u32>(at)),
                0xF0 => subpage.store(at + 4, own.load::<u32>(at + 4)),
                _ => (at..at + WORD).filter(|at| bits & (1 << (at % WORD)) != 0).for_each(|at| {
                    subpage.store(at, own.load::<u8>(at));
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Memory, PlainMemory, RawMemory};
    use fulgurite_sys::Backed;

    #[test]
    fn what_was_written_covers_what_the_memory_holds() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let at = Address::from_linear(0);
        let fill = |memory: &mut PlainMemory, byte: u8| memory.write_bytes(at, &[byte; SUBPAGE_BYTES]).unwrap();
        fill(&mut memory, 1);
        let mut page = Page::new();
        page.refresh(0, &memory.view(at, SUBPAGE_BYTES).unwrap());
        page.write(5, 14).copy_from(0, &[9; 14]);
        page.write(64, 2).store(0, 0x0707u16);
        fill(&mut memory, 2);
        page.refresh(3, &memory.view(at.add(3), 70).unwrap());
        let mut seen = [0; 80];
        page.view(0, 80).copy_to(0, &mut seen);
        let mut expected = [2; 80];
        expected[..3].fill(1);
        expected[73..].fill(1);
        expected[5..19].fill(9);
        expected[64..66].fill(7);
        assert_eq!(seen, expected);

        fill(&mut memory, 3);
        page.install(&memory.view_mut(at, SUBPAGE_BYTES).unwrap());
        let mut installed = [0; 80];
        memory.read_bytes(at, &mut installed).unwrap();
        let mut expected = [3; 80];
        expected[5..19].fill(9);
        expected[64..66].fill(7);
        assert_eq!(installed, expected);
    }
}
