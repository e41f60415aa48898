//! Goal: whatever safe code does, it reaches no memory that is not its own to reach, and no address
//! of another owner. Method: this file forbids unsafe code and does what no reasonable program
//! does: uses a region in another runtime, implements `Memory` wrongly, writes through null and
//! through addresses of other controllers. Each must end in an error or a panic.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fulgurite_flash::MemoryFlash;
use fulgurite_memory::{
    AccessError, Address, Memory, OwnedRegion, Pinned, PlainMemory, PlainPin, Ptr, RawMemory, SUBPAGE_BYTES, View,
    ViewMut, WriteSet,
};
use fulgurite_runtime::{JobOptions, Runtime};
use fulgurite_sys::Backed;

fn runtime() -> Runtime {
    let flash = Arc::new(MemoryFlash::new(1024).unwrap());
    Runtime::builder(flash).dram(16 << 20).workers(2).owned(1 << 20).build().unwrap()
}

#[test]
fn an_owned_region_is_refused_in_another_runtime() {
    let (one, two) = (runtime(), runtime());
    let foreign = OwnedRegion::reserve(&one, 0, 4096).unwrap();
    let own = OwnedRegion::reserve(&two, 1, 4096).unwrap();
    // Both have equal addresses: only the runtime distinguishes them.
    assert_eq!((foreign.region(), foreign.worker(), own.worker()), (own.region(), 0, 1));
    let at = Ptr::<u64>::new(own.region().base);
    let refused = Some(AccessError::NotOwner { at: at.address(), owner: 0 });
    let job = two.submit_with(&JobOptions::new().worker(0), move |m| {
        [foreign.get(m, at).err(), foreign.get_mut(m, at).err(), foreign.pin(m, at).err()]
    });
    assert_eq!(job.unwrap().wait().unwrap(), [refused; 3]);
    let job = two.submit_with(&JobOptions::new().worker(1), move |m| {
        *own.get_mut(m, at)? = 7;
        *own.pin(m, at)?.get_mut(m) += 1;
        own.get(m, at).copied()
    });
    assert_eq!(job.unwrap().wait().unwrap(), Ok(8));
    // Nor once the other is gone, whatever a later one has of its memory.
    drop(one);
    let three = runtime();
    let job = three.submit_with(&JobOptions::new().worker(0), move |m| foreign.get(m, at).err());
    assert_eq!(job.unwrap().wait().unwrap(), refused);
}

/// Views of `len` bytes, `skip` bytes further on than asked for.
struct Wrong {
    inner: PlainMemory,
    skip: usize,
    len: usize,
}

impl RawMemory for Wrong {
    type Pin = PlainPin;
    type Section = ();
    type Inner = Self;
    fn identity(&self) -> fulgurite_memory::Identity<'_> {
        self.inner.identity()
    }
    fn view(&mut self, at: Address, _: usize) -> Result<View<'_>, AccessError> {
        Ok(self.inner.view(at, self.skip + self.len)?.slice(self.skip, self.len))
    }
    fn view_mut(&mut self, at: Address, _: usize) -> Result<ViewMut<'_>, AccessError> {
        self.inner.view_mut(at.add(self.skip as u64), self.len)
    }
    fn pin(&mut self, at: Address) -> Result<PlainPin, AccessError> {
        self.inner.pin(at)
    }
    fn park(&mut self, _: &AtomicU64, _: u64) -> Result<(), AccessError> {
        Ok(())
    }
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
}

fn wrong(skip: usize, len: usize) -> Wrong {
    Wrong { inner: PlainMemory::new(Backed::BasePages).unwrap(), skip, len }
}

const FIRST: Ptr<u64> = Ptr::new(Address::from_linear(0));

#[test]
#[should_panic(expected = "of a view of 1")]
fn a_load_from_a_view_that_is_too_short_panics() {
    let _ = wrong(0, 1).load(FIRST);
}
#[test]
#[should_panic(expected = "of a view of 4")]
fn a_store_to_a_view_that_is_too_short_panics() {
    let _ = wrong(0, 4).store(FIRST, 1);
}
#[test]
#[should_panic(expected = "is not aligned")]
fn a_load_from_a_view_that_is_not_aligned_panics() {
    let _ = wrong(1, 8).load(FIRST);
}
#[test]
#[should_panic(expected = "is not aligned")]
fn a_store_to_a_view_that_is_not_aligned_panics() {
    let _ = wrong(1, 8).store(FIRST, 1);
}

#[test]
fn a_write_set_goes_nowhere_through_null() {
    let runtime = runtime();
    let (direct, one, two, first) = runtime
        .run(|m| {
            let direct = m.store(Ptr::<u64>::NULL, 5);
            let mut set = WriteSet::new();
            set.store(Ptr::<u64>::NULL, 5).unwrap();
            let one = set.commit(m);
            // With a second subpage it takes the other way, which pins.
            set.store(Ptr::new(Address::from_linear(8192)), 5u64).unwrap();
            let two = set.commit(m);
            Ok((direct, one, two, [m.load(FIRST)?, m.load(Ptr::new(Address::from_linear(8192)))?]))
        })
        .unwrap();
    let refused = Err(AccessError::OutOfRange { at: Address::NULL });
    assert_eq!((direct, one, two), (refused, refused, refused));
    assert_eq!(first, [0, 0], "nothing was written, at the first byte least of all");
}

#[test]
fn a_write_set_tells_controllers_apart() {
    let (here, there) = (FIRST, Ptr::<u64>::new(Address::new(2, 0, 0)));
    let mut set = WriteSet::new();
    set.store(here, 1).unwrap();
    set.store(there, 2).unwrap();
    let (mut at_here, mut at_there, mut beside) = (0, 0, 9);
    set.overlay(here, &mut at_here);
    set.overlay(there, &mut at_there);
    set.overlay(Ptr::new(Address::NULL), &mut beside);
    assert_eq!((at_here, at_there, beside), (1, 2, 9));
    // Two subpages, though they are the same bytes of plain memory.
    assert_eq!(set.pins(), 2);
    set.commit(&mut PlainMemory::new(Backed::BasePages).unwrap()).unwrap();
}

#[test]
fn staged_bytes_cover_values_wherever_they_meet() {
    let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
    let last = Address::from_bits(u64::MAX - 15);
    for base in [Address::from_linear(8192), Address::from_linear(SUBPAGE_BYTES as u64 - 16), last] {
        for start in 0..16u64 {
            for len in 1..=(16 - start) as usize {
                let staged: Vec<u8> = (1..=len as u8).collect();
                memory.write_bytes(base, &[0xFF; 16]).unwrap();
                let mut set = WriteSet::new();
                set.write_bytes(base.add(start), &staged);
                let at = Ptr::<[u8; 8]>::new(base.add(4));
                let before = set.load(&mut memory, at).unwrap();
                set.commit(&mut memory).unwrap();
                assert_eq!(Ok(before), memory.load(at), "{len} bytes at {start}");
            }
        }
    }
}

#[test]
fn who_parks_on_a_word_that_has_changed_does_not_sleep() {
    let word = Arc::new(AtomicU64::new(1));
    let mut plain = PlainMemory::new(Backed::BasePages).unwrap();
    plain.park(&word, 2).unwrap();
    let (runtime, mine) = (runtime(), word.clone());
    runtime.run(move |m| RawMemory::park(m, &mine, 2)).unwrap();
    let mine = word.clone();
    let sleeper = runtime.submit(move |m| {
        while mine.load(Relaxed) == 1 {
            RawMemory::park(m, &mine, 1)?;
        }
        Ok::<_, AccessError>(())
    });
    let thread = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while word.load(Relaxed) == 1 {
                plain.park(&word, 1).unwrap();
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        word.store(2, Relaxed);
        PlainMemory::unpark_all(&word);
        sleeper.join()
    });
    assert!(thread.is_ok());
    fulgurite_runtime::Context::unpark_all(&word);
    assert_eq!(sleeper.unwrap().wait().unwrap(), Ok(()));
}

#[test]
fn a_pin_shows_its_subpage_only() {
    let pin = PlainMemory::new(Backed::BasePages).unwrap().pin(Address::from_linear(5000)).unwrap();
    for (offset, len) in [(4096, 1), (0, 4097), (usize::MAX, 2), (1, usize::MAX)] {
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pin.view(offset, len).len()));
        assert!(outside.is_err(), "{offset}..+{len}");
    }
    assert_eq!(pin.view(4096, 0).len(), 0);
}
