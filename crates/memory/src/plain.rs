//! Plain memory: the same addresses in memory that is always at hand. No guard, no cap, no fiber.
//!
//! It is the denominator of every measurement (`dram-only`), and, in a memory cgroup or over a
//! mapped file, kernel paging (`os-swap`, `mmap`). The whole 16 TiB of the controller's address
//! space is reserved. So an access is a mask and an addition, and no address leaves the mapping.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fulgurite_format::{Address, SUBPAGE_BYTES};
use fulgurite_runtime::{AccessError, parking};
use fulgurite_sys::{Arena, ArenaError, Backed};

use crate::memory::{Kind, Views};
use crate::{Identity, MemoryId};
use crate::{Pinned, RawMemory, View, ViewMut, assert_inside, whole};

/// Bytes reserved: the 44 bits that a controller addresses, and a subpage for the tail of the last
/// view.
const RESERVED_BYTES: usize = (1 << 44) + SUBPAGE_BYTES;

/// Plain memory behind the [`crate::Memory`] trait. Clones share the bytes: one for each thread.
#[derive(Clone, Debug)]
pub struct PlainMemory {
    base: NonNull<u8>,
    /// Keeps the bytes mapped; none when they are for good.
    arena: Option<Arc<Arena>>,
}

// SAFETY: `base` points into an arena that is kept or was leaked. Arenas are Send and Sync, and the
// bytes are reached as atomics only.
unsafe impl Send for PlainMemory {}

impl PlainMemory {
    /// Anonymous memory, zeroed, in huge pages or not. Only what is touched is used.
    ///
    /// # Errors
    /// When the kernel refuses 16 TiB of address space (`ulimit -v`, `vm.overcommit_memory = 2`).
    pub fn new(backed: Backed) -> Result<PlainMemory, ArenaError> {
        Ok(Self::over(Arc::new(Arena::anonymous(RESERVED_BYTES, backed)?)))
    }

    /// The bytes of `arena`, which must reserve the whole address space.
    ///
    /// # Panics
    /// When it is smaller than that.
    #[must_use]
    pub fn over(arena: Arc<Arena>) -> PlainMemory {
        assert!(arena.len() >= RESERVED_BYTES, "plain memory needs the whole address space reserved");
        PlainMemory { base: arena.base(), arena: Some(arena) }
    }

    /// Keeps the bytes mapped until the process ends, so that a pin counts no users: the cost of a
    /// program's own data, for measurements.
    #[must_use]
    pub fn forever(mut self) -> PlainMemory {
        std::mem::forget(self.arena.take());
        self
    }

    /// The arena behind it; linear address 0 is its first byte.
    ///
    /// # Panics
    /// After [`PlainMemory::forever`], which gave it up.
    pub fn arena(&self) -> &Arc<Arena> {
        self.arena.as_ref().expect("memory that is kept forever has no arena to show")
    }

    /// Wakes all threads that are parked on `word`.
    pub fn unpark_all(word: &AtomicU64) {
        parking::unpark_all(word);
    }

    /// Begins to bring a cache line in.
    #[inline(always)]
    pub(crate) fn fetch(&self, at: Address) {
        fulgurite_sys::arch::prefetch(self.at(at).as_ptr());
    }

    #[inline(always)]
    fn at(&self, at: Address) -> NonNull<u8> {
        // SAFETY: `linear` is below 2^44 and the arena is longer.
        unsafe { NonNull::new_unchecked(self.base.as_ptr().add(at.linear() as usize)) }
    }
}

impl RawMemory for PlainMemory {
    type Pin = PlainPin;
    type Section = ();
    type Inner = Self;
    // SAFETY: `view` and `view_mut` return the range asked for, and an arena begins at a multiple
    // of a subpage.
    const VIEWS: Views = unsafe { Views::exact() };

    #[inline(always)]
    fn identity(&self) -> Identity<'_> {
        static NONE: AtomicU64 = AtomicU64::new(0);
        Identity::new(MemoryId::of_plain(self.base.as_ptr() as usize), &NONE)
    }
    #[inline(always)]
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        whole(at, len)?;
        // SAFETY: mapped for the life of the arena, inside one subpage (checked), and reached as
        // atomics only.
        Ok(unsafe { View::from_raw(self.at(at), len) })
    }
    #[inline(always)]
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        whole(at, len)?;
        // SAFETY: as in `view`; the mapping is writable, and plain memory has no dirty marks.
        Ok(unsafe { ViewMut::from_raw(self.at(at), len) })
    }
    fn pin(&mut self, at: Address) -> Result<PlainPin, AccessError> {
        Ok(PlainPin { memory: self.clone(), address: at.subpage().address() })
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        parking::park(word, expected);
        Ok(())
    }
    #[inline(always)]
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        std::thread::yield_now();
        Ok(())
    }
    #[inline(always)]
    fn kind(&mut self) -> Kind<'_, Self> {
        Kind::Dram(self)
    }
}

/// A pin of plain memory, which is always at hand.
#[derive(Debug)]
pub struct PlainPin {
    memory: PlainMemory,
    address: Address,
}

impl Pinned for PlainPin {
    fn address(&self) -> Address {
        self.address
    }
    fn view(&self, offset: usize, len: usize) -> View<'_> {
        assert_inside(offset, len);
        // SAFETY: mapped for the life of the arena, inside one subpage (checked), and reached as
        // atomics only.
        unsafe { View::from_raw(self.memory.at(self.address.add(offset as u64)), len) }
    }
    fn view_mut(&self, offset: usize, len: usize) -> ViewMut<'_> {
        assert_inside(offset, len);
        // SAFETY: as in `view`; the mapping is writable.
        unsafe { ViewMut::from_raw(self.memory.at(self.address.add(offset as u64)), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Ptr};

    #[test]
    fn any_address_is_safe() {
        let mut m = PlainMemory::new(Backed::BasePages).unwrap();
        let far = Ptr::<u64>::new(Address::from_linear((1 << 44) - 8));
        m.store(far, 7).unwrap();
        assert_eq!(m.load(far), Ok(7));
        assert_eq!(m.load(Ptr::<u64>::new(Address::from_bits(u64::MAX - 7))), Ok(7));
        assert!(matches!(m.load(Ptr::<u64>::new(Address::from_linear(4))), Err(AccessError::Straddles { .. })));
        assert!(matches!(m.view(Address::from_linear(4090), 8), Err(AccessError::Straddles { .. })));
    }
    #[test]
    fn bytes_cross_subpages() {
        let mut m = PlainMemory::new(Backed::BasePages).unwrap();
        let text: Vec<u8> = (0..10_000).map(|i| i as u8).collect();
        m.write_bytes(Address::from_linear(4000), &text).unwrap();
        let mut got = vec![0; text.len()];
        m.read_bytes(Address::from_linear(4000), &mut got).unwrap();
        assert_eq!(got, text);
        let pin = m.pin(Address::from_linear(5000)).unwrap();
        assert_eq!(pin.view(5000 - 4096, 1).load::<u8>(0), text[1000]);
    }
}
