//! Goal: objects in pages of their own keep what was written, through the page buffer, the object
//! cache and the log, in a fraction of the DRAM. Freed ones are garbage, and overruns are found.
//! Method: threads allocate, change, check and free objects of several sizes, far more than DRAM
//! has room for, over flash in memory that fails on request. Both modes run. Where the machine
//! gives no userfaultfd, the tests say so.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use allocator_api2::boxed::Box as FlashBox;
use fulgurite_alloc::{
    BadSize, FreeError, Mode, OBJECT_BYTES_MAX, OBJECT_STRIDE, ObjectAllocator, ObjectArray, ObjectSettings, Overrun,
    StartError,
};
use fulgurite_backing::Medium;
use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, Flash, FlashError, MemoryFlash, Op, When};
use fulgurite_sys::userfault::Access;
use fulgurite_sys::{Region, workers};
use fulgurite_testkit::Random;

const MODES: [Mode; 2] = [Mode::Compatible, Mode::InLine];

/// Settings for `objects_max` objects with `dram_kib` KiB of DRAM, over flash that a test opens.
fn settings(mode: Mode, dram_kib: u64, objects_max: u32) -> ObjectSettings {
    let mut settings = ObjectSettings::new(Medium::new_file("unused", 1 << 30), dram_kib << 10, objects_max);
    settings.mode = mode;
    settings.page_buffer_bytes = Some(1 << 20);
    settings
}

/// None where the machine gives no userfaultfd, which is said.
fn start(flash: &dyn Flash, settings: &ObjectSettings) -> Option<&'static ObjectAllocator> {
    match ObjectAllocator::over(flash, settings) {
        Ok(allocator) => Some(allocator),
        Err(StartError::PageBuffer(fulgurite_fault::Error::Userfault(error))) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn memory(mib: u32) -> MemoryFlash {
    MemoryFlash::new(mib * 256).unwrap()
}

/// Fills an object by its number and round.
fn fill(at: NonNull<u8>, bytes: usize, number: u64, round: u64) {
    for word in 0..bytes / 8 {
        // SAFETY: the object is this thread's, and has room.
        unsafe { at.cast::<u64>().add(word).write(number << 32 | round << 10 | word as u64) };
    }
}
fn check(at: NonNull<u8>, bytes: usize, number: u64, round: u64) {
    for word in 0..bytes / 8 {
        // SAFETY: as in `fill`.
        let found = unsafe { at.cast::<u64>().add(word).read() };
        let wanted = if round == 0 { 0 } else { number << 32 | round << 10 | word as u64 };
        assert_eq!(found, wanted, "word {word} of object {number} in round {round}");
    }
}

#[test]
fn an_array_far_larger_than_dram_keeps_its_objects() {
    const COUNT: u32 = 36_000;
    for mode in MODES {
        let flash = memory(8);
        let Some(allocator) = start(&flash, &settings(mode, 5 << 10, COUNT)) else { return };
        let array: ObjectArray = allocator.array(COUNT, 128).unwrap();
        let mut random = Random::seeded("objects", 1);
        let mut rounds = vec![0u64; COUNT as usize];
        for index in 0..COUNT {
            fill(array.at(index), 128, index.into(), 1);
            rounds[index as usize] = 1;
        }
        for step in 0..70_000u64 {
            let index = random.below(COUNT);
            check(array.at(index), 128, index.into(), rounds[index as usize]);
            if step % 8 != 0 {
                rounds[index as usize] += 1;
                fill(array.at(index), 128, index.into(), rounds[index as usize]);
            }
        }
        for index in 0..COUNT {
            check(array.at(index), 128, index.into(), rounds[index as usize]);
        }
        allocator.check();
        let summary = allocator.summary();
        assert!(summary.reads > 5000 && summary.errors == 0 && summary.moved > 0, "{mode:?}: {summary:?}");
        // Far less than the pages of the objects, and not much more than the objects that changed.
        assert!(summary.bytes_written < summary.left_dirty * 128 * 3, "{mode:?}: {summary:?}");
        // SAFETY: nothing uses the array.
        unsafe { allocator.free_array(array.first()) }.unwrap();
        assert_eq!(allocator.summary().objects, 0);
        let again = allocator.array(COUNT, 64).expect("the numbers come back, for another size");
        for index in (0..COUNT).step_by(97) {
            check(again.at(index), 64, index.into(), 0);
        }
    }
}

/// Bytes of the kernel's tables of pages of this process.
fn tables() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
/// Addresses that share a table of pages.
const BLOCK: usize = 2 << 20;

/// Whether the kernel frees the tables of whole blocks: Linux 6.14, where it was built to.
fn frees_tables() -> bool {
    const BLOCKS: usize = 1024;
    let region = Region::reserve((1 + BLOCKS) * BLOCK).unwrap();
    region.allow(0, region.len(), Access::ReadWrite).unwrap();
    let (first, before) = (region.base().next_multiple_of(BLOCK) - region.base(), tables());
    for at in (first..).step_by(BLOCK).take(BLOCKS) {
        // SAFETY: the region is this function's alone.
        unsafe { ((region.base() + at) as *mut u8).write_volatile(1) };
        region.unmap_pages(at, BLOCK).unwrap();
    }
    tables() < before + (BLOCKS as u64 * 4096 / 2)
}

#[test]
fn objects_far_apart_take_few_tables_of_pages() {
    const BLOCKS: usize = 4096;
    const PER_BLOCK: usize = BLOCK / OBJECT_STRIDE;
    const COUNT: u32 = (BLOCKS * PER_BLOCK) as u32;
    if !frees_tables() {
        return eprintln!("skipped: this kernel does not free tables of pages");
    }
    for mode in MODES {
        let flash = memory(128);
        let Some(allocator) = start(&flash, &settings(mode, 16 << 10, COUNT)) else { return };
        let array = allocator.array(COUNT, 8).unwrap();
        let before = tables();
        for round in 0..3 {
            for index in (0..COUNT).step_by(PER_BLOCK) {
                check(array.at(index), 8, index.into(), round);
                fill(array.at(index), 8, index.into(), round + 1);
            }
        }
        // The tables of all blocks take 16 MiB, and the tables of the page buffer's blocks less
        // than 1 MiB.
        let taken = tables().saturating_sub(before);
        assert!(taken < 4 << 20, "{mode:?}: {taken} bytes of tables for {} pages", allocator.summary().pages);
    }
}

#[test]
fn threads_free_what_others_have_allocated() {
    for mode in MODES {
        let flash = memory(16);
        let Some(allocator) = start(&flash, &settings(mode, 6 << 10, 64 << 10)) else { return };
        let threads = 3;
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..threads).map(|_| channel::<(usize, usize, u64, u64)>()).unzip();
        std::thread::scope(|scope| {
            for (thread, receiver) in receivers.into_iter().enumerate() {
                let senders = senders.clone();
                scope.spawn(move || {
                    let mut random = Random::seeded("object threads", thread as u64);
                    let pools = [24, 128, 1000].map(|bytes| allocator.pool(bytes).unwrap());
                    let (mut mine, mut number) = (Vec::<(usize, usize, u64, u64)>::new(), thread as u64);
                    let at = |at: usize| NonNull::new(at as *mut u8).unwrap();
                    let free = |object: (usize, usize, u64, u64)| {
                        check(at(object.0), object.1, object.2, object.3);
                        // SAFETY: its sender does not have it any more.
                        unsafe { allocator.free(at(object.0)) }.unwrap();
                    };
                    for _ in 0..6000 {
                        receiver.try_iter().for_each(free);
                        if mine.len() < 2500 {
                            let pool = pools[[0, 0, 1, 1, 1, 2][random.below(6)]];
                            number += threads as u64;
                            let object = pool.allocate().expect("there is room");
                            check(object, pool.object_bytes(), number, 0);
                            fill(object, pool.object_bytes(), number, 1);
                            mine.push((object.as_ptr() as usize, pool.object_bytes(), number, 1));
                        }
                        let index = random.below(mine.len());
                        let (object, bytes, number, round) = &mut mine[index];
                        check(at(*object), *bytes, *number, *round);
                        if random.below(3) == 0 {
                            *round += 1;
                            fill(at(*object), *bytes, *number, *round);
                        }
                        if mine.len() >= 2500 || random.below(8) == 0 {
                            senders[random.below(threads)].send(mine.swap_remove(index)).unwrap();
                        }
                    }
                    drop(senders);
                    mine.drain(..).for_each(free);
                    receiver.into_iter().for_each(free);
                });
            }
            drop(senders);
        });
        allocator.check();
        let summary = allocator.summary();
        assert!(summary.objects == 0 && summary.errors == 0 && summary.left_dirty > 1000, "{summary:?}");
    }
}

#[test]
fn what_workers_wait_for_is_counted() {
    for mode in MODES {
        let flash = memory(16);
        let Some(allocator) = start(&flash, &settings(mode, 4 << 10, 8 << 10)) else { return };
        let array = allocator.array(200, 128).unwrap();
        let touch = |from: u32| (from..from + 100).for_each(|index| fill(array.at(index), 128, index.into(), 1));
        touch(0);
        let before = allocator.summary();
        assert!(before.faults >= 100 && before.faults_of_workers == 0, "{mode:?}: {before:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _mark = workers::mark();
                touch(100);
            });
        });
        let after = allocator.summary();
        let more = 100..=after.faults - before.faults;
        assert!(more.contains(&after.faults_of_workers), "{mode:?}: {before:?}, {after:?}");
    }
}

#[test]
fn what_is_no_object_is_refused() {
    let flash = memory(8);
    let Some(allocator) = start(&flash, &settings(Mode::Compatible, 6 << 10, 2048)) else { return };
    assert_eq!(allocator.pool(0).unwrap_err(), BadSize(0));
    assert_eq!(allocator.pool(OBJECT_BYTES_MAX + 1).unwrap_err(), BadSize(OBJECT_BYTES_MAX + 1));
    assert!(allocator.array(0, 8).is_none() && allocator.array(4096, 8).is_none(), "there are 2048 numbers");
    let pool = allocator.pool(OBJECT_BYTES_MAX).unwrap();
    let object = pool.allocate().unwrap();
    let address = object.as_ptr() as usize;
    assert!(address.is_multiple_of(OBJECT_STRIDE) && allocator.contains(object.as_ptr()));
    assert_eq!(allocator.size_of(object), Ok(OBJECT_BYTES_MAX));
    let (mut own, inside) = (0u8, NonNull::new((address + 8) as *mut u8).unwrap());
    let foreign = NonNull::from(&mut own);
    // SAFETY: nothing uses the object, and the others are refused.
    unsafe {
        assert_eq!(allocator.free(foreign), Err(FreeError::Foreign(foreign.as_ptr() as usize)));
        assert_eq!(allocator.free(inside), Err(FreeError::NotABlock(address + 8)));
        assert_eq!(allocator.free_array(object), Err(FreeError::NotABlock(address)));
        object.write_bytes(9, OBJECT_BYTES_MAX);
        assert_eq!(allocator.free(object), Ok(()));
        assert_eq!(allocator.free(object), Err(FreeError::NotABlock(address)));
    }
    let again = pool.allocate().unwrap();
    assert_eq!(again, object);
    // SAFETY: the object is this test's.
    assert_eq!(unsafe { again.cast::<[u8; OBJECT_BYTES_MAX]>().read() }, [0; OBJECT_BYTES_MAX]);
    let mut count = 1;
    while pool.allocate().is_some() {
        count += 1;
    }
    // A page of flash each, in four fifths of 8 MiB less what cleaning needs.
    assert_eq!(count, 1228, "the flash has no room for more");
    for (dram, objects_max, flash_mib) in [(1, 1024, 8), (6 << 10, 0, 8), (6 << 10, 1024, 2)] {
        let error = ObjectAllocator::over(&memory(flash_mib), &settings(Mode::Compatible, dram, objects_max));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("ask for") || error.contains("say how many") || error.contains("choose"), "{error}");
    }
}

#[test]
fn a_list_of_boxes_lives_in_objects() {
    struct Node {
        value: u64,
        next: Option<FlashBox<Node, fulgurite_alloc::ObjectPool>>,
    }
    let flash = memory(8);
    let Some(allocator) = start(&flash, &settings(Mode::InLine, 6 << 10, 32 << 10)) else { return };
    let pool = allocator.pool(size_of::<Node>()).unwrap();
    let mut list = None;
    for value in 0..20_000 {
        list = Some(FlashBox::new_in(Node { value, next: list }, pool));
    }
    let mut wanted = 20_000;
    while let Some(node) = list {
        wanted -= 1;
        assert_eq!(node.value, wanted);
        list = FlashBox::into_inner(node).next;
    }
    assert_eq!((wanted, allocator.summary().objects), (0, 0));
}

#[test]
fn a_write_past_the_end_is_found() {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    static WHERE: AtomicUsize = AtomicUsize::new(0);
    fn found(overrun: Overrun) {
        assert_eq!((overrun.size, overrun.at), (100, 104));
        WHERE.store(overrun.object, Ordering::SeqCst);
        FOUND.fetch_add(1, Ordering::SeqCst);
    }
    let flash = memory(8);
    let mut settings = settings(Mode::Compatible, 6 << 10, 4096);
    settings.on_overrun = Some(found);
    let Some(allocator) = start(&flash, &settings) else { return };
    let array = allocator.array(1000, 100).unwrap();
    // SAFETY: the array is this test's. The byte behind an object is of its page.
    unsafe { array.at(7).add(104).write(1) };
    for index in 0..1000 {
        fill(array.at(index), 100, index.into(), 1);
    }
    for index in 0..1000 {
        check(array.at(index), 100, index.into(), 1);
    }
    assert_eq!((FOUND.load(Ordering::SeqCst), allocator.summary().overruns), (1, 1));
    assert_eq!(WHERE.load(Ordering::SeqCst), array.at(7).as_ptr() as usize);
}

#[test]
fn failed_writes_lose_nothing_and_are_tried_again() {
    let plan = FaultPlan::rule(Some(Op::Write), When::Every(400), Fault::Fails(FlashError::Io(5)));
    let flash = FaultyFlash::new(memory(16), plan);
    let Some(allocator) = start(&flash, &settings(Mode::Compatible, 6 << 10, 40_000)) else { return };
    let array = allocator.array(40_000, 128).unwrap();
    for index in 0..40_000 {
        fill(array.at(index), 128, index.into(), 1);
    }
    for index in 0..40_000 {
        check(array.at(index), 128, index.into(), 1);
    }
    let summary = allocator.summary();
    assert!(summary.errors > 0 && summary.reads > 0, "{summary:?}");
}
