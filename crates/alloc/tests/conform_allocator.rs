//! Goal: an allocator over flash hands out memory that keeps what was written, in a fraction of the
//! DRAM, and its blocks may be freed by any thread. Method: threads allocate four times the frames,
//! check the words of blocks, resize some, and free those that others have allocated. Collections
//! of `allocator_api2` live in it. Where the machine gives no userfaultfd, the tests say so.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};

use allocator_api2::vec::Vec as FlashVec;
use fulgurite_alloc::{Allocator, FreeError, Mode, PermissionError, Permissions, StartError};
use fulgurite_backing::Medium;
use fulgurite_sys::workers;
use fulgurite_testkit::Random;

/// A cap is of the whole process: tests that share one take turns.
static TURN: Mutex<()> = Mutex::new(());

/// An allocator over `flash_mib` MiB of flash, with frames of about `frames_mib` MiB in addition to
/// what this process uses, and the turn.
fn allocator(flash_mib: u64, frames_mib: u64) -> Option<(&'static Allocator, MutexGuard<'static, ()>)> {
    allocator_in(Mode::Compatible, flash_mib, frames_mib)
}

fn allocator_in(mode: Mode, flash_mib: u64, frames_mib: u64) -> Option<(&'static Allocator, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    let medium = Medium::new_file(directory.path().join("flash"), flash_mib << 20);
    match Allocator::start_in(mode, medium, resident * 4096 + ((frames_mib + 8) << 20)) {
        Ok(allocator) => Some((allocator, turn)),
        Err(StartError::PageBuffer(fulgurite_fault::Error::Userfault(error))) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A block whose words are a function of its number.
struct Block {
    at: usize,
    bytes: usize,
    number: u64,
}

impl Block {
    fn words(&self) -> impl Iterator<Item = *mut u64> {
        let (at, count) = (self.at as *mut u64, self.bytes / 8);
        // The first, the last, and one in each page.
        let places = (0..count).step_by(512).chain(count.checked_sub(1));
        places.map(move |word| at.wrapping_add(word))
    }
    fn fill(&self) {
        for word in self.words() {
            // SAFETY: inside a block that this thread has, aligned to 16.
            unsafe { word.write(self.number ^ word as u64) };
        }
    }
    fn check(&self) {
        for word in self.words() {
            // SAFETY: as in `fill`.
            assert_eq!(unsafe { word.read() }, self.number ^ word as u64, "block {} of {}", self.number, self.bytes);
        }
    }
}

fn size(random: &mut Random) -> usize {
    match random.below(20) {
        0 => random.below(200_000),
        1..=4 => random.below(6000),
        _ => random.below(400),
    }
}

#[test]
fn blocks_keep_their_words_and_are_freed_by_any_thread() {
    for mode in [Mode::Compatible, Mode::InLine] {
        blocks_keep_their_words_and_are_freed_by_any_thread_in(mode);
    }
}

fn blocks_keep_their_words_and_are_freed_by_any_thread_in(mode: Mode) {
    let Some((allocator, _turn)) = allocator_in(mode, 96, 8) else { return };
    println!("{}", allocator.describe());
    let (threads, wanted) = (3, 10 << 20);
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for _ in 0..threads {
        let (sender, receiver) = channel::<Block>();
        senders.push(sender);
        receivers.push(receiver);
    }
    std::thread::scope(|scope| {
        for (thread, receiver) in receivers.into_iter().enumerate() {
            let senders = senders.clone();
            scope.spawn(move || {
                let mut random = Random::seeded("allocator", thread as u64);
                let (mut mine, mut used, mut number) = (Vec::<Block>::new(), 0, thread as u64);
                for _ in 0..6000 {
                    // What others have sent is freed here.
                    for block in receiver.try_iter() {
                        block.check();
                        // SAFETY: its sender does not have it any more.
                        unsafe { allocator.free(NonNull::new(block.at as *mut u8).unwrap()) }.unwrap();
                    }
                    if used < wanted {
                        number += threads as u64;
                        let bytes = size(&mut random);
                        let layout = Layout::from_size_align(bytes, 16).unwrap();
                        let at = allocator.allocate(layout).expect("there is room").as_ptr() as usize;
                        let block = Block { at, bytes, number };
                        block.fill();
                        used += bytes;
                        mine.push(block);
                    }
                    let index = random.below(mine.len());
                    mine[index].check();
                    if used >= wanted || random.below(4) == 0 {
                        let block = mine.swap_remove(index);
                        used -= block.bytes;
                        senders[random.below(threads)].send(block).unwrap();
                    }
                }
                drop(senders);
                for block in mine.drain(..).chain(receiver) {
                    block.check();
                    // SAFETY: as above.
                    unsafe { allocator.free(NonNull::new(block.at as *mut u8).unwrap()) }.unwrap();
                }
            });
        }
        drop(senders);
    });
    allocator.check();
    assert_eq!(allocator.usage().used_bytes, 0);
    let summary = allocator.summary();
    assert!(summary.evicted_dirty > 500 && summary.reads > 500 && summary.errors == 0, "{summary:?}");
}

#[test]
fn what_workers_wait_for_is_counted() {
    for mode in [Mode::Compatible, Mode::InLine] {
        let Some((allocator, _turn)) = allocator_in(mode, 16, 4) else { return };
        let (layout, pages) = (Layout::from_size_align(256 * 4096, 4096).unwrap(), 256u64);
        let touch = |is_worker: bool| {
            let at = allocator.allocate(layout).unwrap().as_ptr() as usize;
            let toucher = move || {
                let mark = is_worker.then(workers::mark);
                // SAFETY: a block that only this thread has.
                (0..256).for_each(|page| unsafe { ((at + page * 4096) as *mut u64).write(page as u64) });
                drop(mark);
            };
            std::thread::spawn(toucher).join().unwrap();
            allocator.summary()
        };
        let before = touch(false);
        assert!(before.faults >= pages && before.faults_of_workers == 0, "{mode:?}: {before:?}");
        assert!(!before.to_string().contains("workers"), "{before}");
        let after = touch(true);
        let counted = after.faults_of_workers;
        assert!((pages..=after.faults - before.faults).contains(&counted), "{mode:?}: {before:?}, {after:?}");
        assert!(after.to_string().contains(&format!("workers with all their jobs waited for {counted} faults")));
        assert!(after.to_json(1).contains(&format!("\"faults_of_workers\": {counted},")), "{}", after.to_json(1));
    }
}

#[test]
fn sizes_zeros_and_foreign_addresses() {
    let Some((allocator, _turn)) = allocator(32, 8) else { return };
    let layout = |bytes, alignment| Layout::from_size_align(bytes, alignment).unwrap();
    let mut block = allocator.allocate(layout(100, 8)).unwrap();
    assert_eq!(allocator.usable_size(block), Ok(112));
    // SAFETY: blocks of this test, which has them alone.
    unsafe {
        block.write_bytes(7, 112);
        for bytes in [100, 5000, 100_000, 300_000, 5000, 20] {
            let kept = allocator.usable_size(block).unwrap().min(bytes);
            block = allocator.resize(block, layout(bytes, 64)).unwrap().expect("there is room");
            assert!((block.as_ptr() as usize).is_multiple_of(64));
            assert!(kept.min(100) == 20 || block.add(99).read() == 7);
            assert_eq!(block.read(), 7);
        }
        assert_eq!(allocator.resize(block, layout(1 << 30, 8)), Ok(None), "the flash has no room");
        assert_eq!(block.read(), 7, "it is as it was");
        assert_eq!(allocator.free(block), Ok(()));
        let at = block.as_ptr() as usize;
        assert_eq!(allocator.free(block), Err(FreeError::NotABlock(at)));
        let zeroed = allocator.allocate_zeroed(layout(20, 64)).unwrap();
        assert_eq!(zeroed, block, "the slot that came free");
        assert_eq!(zeroed.cast::<[u8; 20]>().read(), [0; 20]);
        let inside = zeroed.add(1);
        assert_eq!(allocator.free(inside), Err(FreeError::NotABlock(at + 1)));
        let mut own = 0u8;
        let foreign = NonNull::from(&mut own);
        assert_eq!(allocator.free(foreign), Err(FreeError::Foreign(foreign.as_ptr() as usize)));
        assert!(!allocator.contains(&own) && allocator.contains(block.as_ptr()));
        let aligned = allocator.allocate(layout(10, 1 << 16)).unwrap();
        assert!((aligned.as_ptr() as usize).is_multiple_of(1 << 16));
        allocator.free(aligned).unwrap();
        allocator.free(zeroed).unwrap();
    }
    allocator.check();
}

#[test]
fn blocks_of_pages_are_cut_joined_and_discarded() {
    let Some((allocator, _turn)) = allocator(32, 8) else { return };
    let whole = allocator.allocate(Layout::from_size_align(16 << 12, 16).unwrap()).unwrap();
    let at = |page: usize| NonNull::new(whole.as_ptr().wrapping_add(page << 12)).unwrap();
    // SAFETY: the block is this test's, and has these pages.
    unsafe {
        whole.write_bytes(7, 16 << 12);
        allocator.split(whole, 4 << 12).unwrap();
        assert_eq!(allocator.split(whole, 4 << 12), Err(FreeError::NotABlock(whole.as_ptr() as usize)));
        assert_eq!(allocator.usable_size(at(4)), Ok(12 << 12));
        assert!(allocator.discard(at(3), 2 << 12).is_err(), "it ends in another block");
        assert!(allocator.discard(at(5), 100).is_err() && allocator.discard(at(5), 0).is_err());
        allocator.discard(at(5), 2 << 12).unwrap();
        assert_eq!((at(4).read(), at(5).read(), at(6).read(), at(7).read()), (7, 0, 0, 7));
        allocator.free(at(4)).unwrap();
        assert!(allocator.join(whole, at(4)).is_err(), "it was freed");
        assert_eq!(whole.add(3 << 12).read(), 7);
        allocator.free(whole).unwrap();
    }
    allocator.check();
    assert_eq!(allocator.usage().used_bytes, 0);
}

#[test]
fn collections_live_in_flash() {
    let Some((allocator, _turn)) = allocator(64, 8) else { return };
    let mut numbers = FlashVec::new_in(allocator);
    numbers.extend(0..3_000_000u64);
    assert!(allocator.contains(numbers.as_ptr().cast()) && allocator.usage().used_bytes >= 24_000_000);
    assert_eq!(numbers.iter().sum::<u64>(), 3_000_000 * 2_999_999 / 2);
    let words: FlashVec<_, _> = {
        let mut words = FlashVec::new_in(allocator);
        words.extend((0..1000u64).map(|n| allocator_api2::boxed::Box::new_in([n; 30], allocator)));
        words
    };
    assert!(words.iter().enumerate().all(|(n, word)| **word == [n as u64; 30]));
    drop((numbers, words));
    assert_eq!(allocator.usage().used_bytes, 0);
}

#[test]
fn pages_of_blocks_have_permissions() {
    for mode in [Mode::Compatible, Mode::InLine] {
        pages_of_blocks_have_permissions_in(mode);
    }
}
fn pages_of_blocks_have_permissions_in(mode: Mode) {
    let Some((allocator, _turn)) = allocator_in(mode, 64, 8) else { return };
    let pages = 2000;
    let block = allocator.allocate(Layout::from_size_align(pages * 4096, 4096).unwrap()).unwrap();
    // SAFETY: the block has these pages, and is this test's alone.
    let page = |index: usize| unsafe { block.add(index * 4096) };
    // SAFETY: as above.
    (0..pages).for_each(|index| unsafe { page(index).cast::<usize>().write(index) });
    let may = |read, write, permanent| Permissions { read, write, permanent };
    allocator.set_permissions(page(100), 200 * 4096, may(true, false, false)).unwrap();
    allocator.set_permissions(page(1000), 4096, may(false, false, false)).unwrap();
    for index in 0..pages {
        if index != 1000 {
            // SAFETY: as above, and the page may be read, wherever it is by now.
            assert_eq!(unsafe { page(index).cast::<usize>().read() }, index, "{mode:?}");
        }
    }
    // The kernel's list of mappings shows what is not allowed, without a signal.
    let allowed = |at: NonNull<u8>| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
            (from..to).contains(&(at.as_ptr() as usize)).then(|| rest[..2].to_owned())
        });
        of.expect("it is mapped")
    };
    if mode == Mode::Compatible {
        let found = [99, 100, 299, 300, 1000].map(|index| allowed(page(index)));
        assert_eq!(found, ["rw", "r-", "r-", "rw", "--"]);
    }
    // They come back with their contents.
    allocator.set_permissions(page(0), pages * 4096, may(true, true, false)).unwrap();
    // SAFETY: as above.
    unsafe {
        assert_eq!(page(1000).cast::<usize>().read(), 1000);
        page(150).cast::<usize>().write(7);
        assert_eq!(page(150).cast::<usize>().read(), 7);
    }
    assert!(matches!(Allocator::start(Medium::pool("any"), 1 << 30), Err(StartError::NotFlat)));
    // What is refused has changed nothing.
    let mut own = [0u8; 8];
    let (small, own) = (allocator.allocate(Layout::new::<u64>()).unwrap(), NonNull::from(&mut own).cast());
    let refused = |at, bytes, permissions| allocator.set_permissions(at, bytes, permissions).unwrap_err();
    assert!(matches!(refused(page(0), 4096, may(true, true, true)), PermissionError::Permanent));
    assert!(refused(page(0), 4096, Permissions::DEFAULT).to_string().contains("objects under a name"));
    assert!(matches!(refused(page(0), 4096, may(false, true, false)), PermissionError::WriteOnly));
    assert!(matches!(refused(own, 4096, may(true, false, false)), PermissionError::Foreign(_)));
    for (at, bytes) in [(page(0), 0), (page(0), 100), (page(0), (pages + 1) * 4096), (small, 4096)] {
        assert!(matches!(refused(at, bytes, may(true, false, false)), PermissionError::NotPages { .. }));
    }
    // A block that was freed does not leave them to another one.
    allocator.set_permissions(page(0), pages * 4096, may(false, false, false)).unwrap();
    // SAFETY: nothing uses the blocks any more.
    unsafe {
        allocator.free(block).unwrap();
        allocator.free(small).unwrap();
        let again = allocator.allocate(Layout::from_size_align(pages * 4096, 4096).unwrap()).unwrap();
        (0..pages).for_each(|index| again.add(index * 4096).write(3));
        allocator.free(again).unwrap();
    }
    allocator.check();
}
