//! Goal: memory of a page buffer behaves as the kernel's own would, in much less DRAM. Method:
//! several threads read and write four times the frames by plain accesses and compare with what
//! they wrote last. Mappings are dropped, protected and unmapped between. System calls get
//! addresses of missing pages. All of it is done with each backend that finds missing pages. Where
//! the machine gives no userfaultfd, the tests say so.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulgurite_backing::Medium;
use fulgurite_fault::{Access, Error, Fault, FaultOutcome, PageBuffer, Settings, Wanted};
use fulgurite_sys::faults::{self, HandlerStack};
use fulgurite_testkit::Random;

const PAGE: usize = 4096;

/// Page buffers of this process whose faults are signals.
static BUFFERS: [AtomicPtr<PageBuffer>; 32] = [const { AtomicPtr::new(null_mut()) }; 32];

fn handle_fault(fault: &Fault) -> FaultOutcome {
    let buffers = BUFFERS.iter().map(|buffer| buffer.load(Ordering::Acquire)).take_while(|buffer| !buffer.is_null());
    // SAFETY: a page buffer is stored once it is whole, and lives as long as the process.
    let mut outcomes = buffers.map(|buffer| unsafe { &*buffer }.handle_fault(fault));
    outcomes.find(|outcome| *outcome != FaultOutcome::NotMine).unwrap_or(FaultOutcome::NotMine)
}

/// A page buffer over flash of `flash_mib` MiB, for frames of about `frames_mib` MiB in addition to
/// what this process uses.
fn buffer(backend: Wanted, flash_mib: u64, frames_mib: u64) -> Option<&'static PageBuffer> {
    let directory = tempfile::tempdir().unwrap();
    let opened = Medium::new_file(directory.path().join("flash"), flash_mib << 20).open(&Default::default()).unwrap();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    let dram_bytes = resident * PAGE as u64 + ((frames_mib + 4) << 20);
    match PageBuffer::start(&Settings {
        opened,
        dram_bytes,
        backend,
        notices: Default::default(),
        json: false,
        stats_ms: 0,
    }) {
        Ok(buffer) => {
            println!("{}", buffer.describe());
            let buffer = Box::leak(Box::new(buffer));
            if buffer.is_in_line() {
                let is_free = |place: &&AtomicPtr<PageBuffer>| {
                    place.compare_exchange(null_mut(), &raw mut *buffer, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                };
                BUFFERS.iter().find(is_free).expect("there is room for all of these tests");
                faults::handle_by(buffer.signal(), handle_fault, HandlerStack::Alternate).unwrap();
                equip();
            }
            Some(buffer)
        }
        Err(error) => panic!("{error}"),
    }
}

/// A cap is of the whole process: tests that share one take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const BACKENDS: [Wanted; 4] = [Wanted::Any, Wanted::InLine, Wanted::Guards, Wanted::Protection];

/// Gives this thread a stack for signals that is large enough for a fault handler.
fn equip() {
    let stack = faults::SignalStack::new(64 << 10).unwrap();
    stack.use_here().unwrap();
}

fn write(address: usize, value: u64) {
    // SAFETY: the tests pass addresses of mapped, aligned words that one thread uses.
    unsafe { (address as *mut u64).write_volatile(value) }
}
fn read(address: usize) -> u64 {
    // SAFETY: as above.
    unsafe { (address as *const u64).read_volatile() }
}

#[test]
fn threads_find_what_they_wrote_in_four_times_the_frames() {
    let _turn = turn();
    for backend in BACKENDS {
        if let Some(buffer) = buffer(backend, 64, 8) {
            threads_find_what_they_wrote_in_four_times_the_frames_in(buffer);
        }
    }
}

fn threads_find_what_they_wrote_in_four_times_the_frames_in(buffer: &'static PageBuffer) {
    let (threads, pages) = (4, 48 << 20 >> 12);
    let base = buffer.map(pages * PAGE, None, Access::ReadWrite).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                equip();
                let mut random = Random::seeded("page_buffer", thread as u64);
                let mine = pages / threads;
                let mut model = vec![0u64; mine];
                for step in 1..20_000u64 {
                    let page = random.below(mine as u64) as usize;
                    // Pages of all threads are neighbours.
                    let address = base + (page * threads + thread) * PAGE + page % 512 * 8;
                    assert_eq!(read(address), model[page], "thread {thread}, step {step}, page {page}");
                    if random.below(2) == 0 {
                        model[page] = step << 8 | thread as u64;
                        write(address, model[page]);
                    }
                }
            });
        }
    });
    let summary = buffer.statistics().summary();
    assert!(summary.evicted_dirty > 500 && summary.reads > 500 && summary.evicted_clean > 50, "{summary:?}");
    assert_eq!(summary.errors, 0);
}

#[test]
fn no_write_is_lost_of_threads_that_share_words_while_pages_leave() {
    let _turn = turn();
    for backend in BACKENDS {
        if let Some(buffer) = buffer(backend, 64, 4) {
            no_write_is_lost_of_threads_that_share_words_while_pages_leave_in(buffer);
        }
    }
}

fn no_write_is_lost_of_threads_that_share_words_while_pages_leave_in(buffer: &'static PageBuffer) {
    let (threads, pages, steps) = (4, 8192, 8000);
    let base = buffer.map(pages * PAGE, None, Access::ReadWrite).unwrap();
    // SAFETY: the word is in the mapping, aligned, and reached as an atomic only.
    let word = move |page: usize| unsafe { AtomicU64::from_ptr((base + page * PAGE) as *mut u64) };
    let add = move |thread: usize| {
        equip();
        let mut random = Random::seeded("shared words", thread as u64);
        let mut added = 0;
        for step in 0..steps {
            let page = random.below(pages as u64) as usize;
            // First pages are read, which protects them, and most of them are not written to. Later
            // most are.
            word(page).load(Ordering::Relaxed);
            if random.below(8) < if step < steps / 2 { 1 } else { 6 } {
                word(page).fetch_add(1, Ordering::Relaxed);
                added += 1;
            }
        }
        added
    };
    let added: u64 = std::thread::scope(|scope| {
        let all = Vec::from_iter((0..threads).map(|thread| scope.spawn(move || add(thread))));
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((0..pages).map(|page| word(page).load(Ordering::Relaxed)).sum::<u64>(), added);
    // The kernel writes as well.
    let file: File = tempfile::tempfile().unwrap();
    file.write_all_at(&[7; 8], 0).unwrap();
    for page in (0..pages).step_by(8) {
        let before = read(base + page * PAGE);
        let at = base + page * PAGE + 8;
        let held = if buffer.is_in_line() { Some(buffer.hold(at, 8)) } else { None };
        // SAFETY: the bytes are mapped, and nothing else reaches them.
        file.read_exact_at(unsafe { std::slice::from_raw_parts_mut(at as *mut u8, 8) }, 0).unwrap();
        if let Some(held) = held {
            buffer.let_go(held);
        }
        assert_eq!(read(base + page * PAGE), before, "page {page}");
    }
    for page in 0..pages {
        let written = if page % 8 == 0 { 0x0707_0707_0707_0707 } else { 0 };
        assert_eq!(read(base + page * PAGE + 8), written, "page {page}");
    }
    let summary = buffer.statistics().summary();
    assert!(summary.evicted_clean > 500 && summary.evicted_dirty > 500 && summary.errors == 0, "{summary:?}");
}

#[test]
fn dropped_and_unmapped_memory_reads_as_zero_when_it_is_there_again() {
    let _turn = turn();
    for backend in BACKENDS {
        if let Some(buffer) = buffer(backend, 64, 4) {
            dropped_and_unmapped_memory_reads_as_zero_when_it_is_there_again_in(buffer);
        }
    }
}

fn dropped_and_unmapped_memory_reads_as_zero_when_it_is_there_again_in(buffer: &'static PageBuffer) {
    let pages = 4096;
    let base = buffer.map(pages * PAGE, None, Access::ReadWrite).unwrap();
    for page in 0..pages {
        write(base + page * PAGE, page as u64 + 1);
    }
    // Half of them are on flash.
    buffer.drop_contents(base + 100 * PAGE, 3000 * PAGE).unwrap();
    for page in 0..pages {
        let expected = if (100..3100).contains(&page) { 0 } else { page as u64 + 1 };
        assert_eq!(read(base + page * PAGE), expected, "page {page}");
    }
    buffer.unmap(base + 50 * PAGE, 50 * PAGE).unwrap();
    assert!(!buffer.is_mapped(base, 100 * PAGE) && buffer.is_mapped(base, 50 * PAGE));
    // The lowest place that is large enough.
    assert_eq!(buffer.map(50 * PAGE, None, Access::ReadWrite), Ok(base + 50 * PAGE));
    assert_eq!((read(base + 49 * PAGE), read(base + 50 * PAGE), read(base + 3100 * PAGE)), (50, 0, 3101));
    assert_eq!(buffer.map(1 << 30, None, Access::ReadWrite), Err(libc_enomem()));
    assert_eq!(buffer.map(PAGE, Some(base), Access::ReadWrite), Err(libc_enomem()), "it is taken");
}

#[test]
fn memory_that_a_thread_holds_is_dropped_and_unmapped_at_once() {
    let _turn = turn();
    for backend in [Wanted::InLine, Wanted::Guards, Wanted::Protection] {
        if let Some(buffer) = buffer(backend, 64, 4) {
            memory_that_a_thread_holds_is_dropped_and_unmapped_at_once_in(buffer);
        }
    }
}

fn memory_that_a_thread_holds_is_dropped_and_unmapped_at_once_in(buffer: &'static PageBuffer) {
    let pages = 4096;
    let base = buffer.map(pages * PAGE, None, Access::ReadWrite).unwrap();
    let last = base + (pages - 4) * PAGE;
    for page in 0..pages {
        write(base + page * PAGE, page as u64 + 1);
    }
    let held = buffer.hold(last, 4 * PAGE);
    assert_eq!(held.len(), 4);
    buffer.drop_contents(last, PAGE).unwrap();
    assert_eq!((read(last), read(last + PAGE)), (0, pages as u64 - 2));
    // Whose hold ends first makes no difference.
    let again = buffer.hold(last, 2 * PAGE);
    assert_eq!(again.len(), 2);
    buffer.unmap(last, 4 * PAGE).unwrap();
    assert_eq!(buffer.map(4 * PAGE, None, Access::ReadWrite), Ok(last));
    for page in 0..4 {
        assert_eq!(read(last + page * PAGE), 0);
        write(last + page * PAGE, 7);
    }
    let third = buffer.hold(last, 4 * PAGE);
    buffer.let_go(again);
    for page in 0..pages - 4 {
        assert_eq!(read(base + page * PAGE), page as u64 + 1);
    }
    buffer.let_go(third);
    buffer.let_go(held);
    // They leave DRAM as all others, and come back.
    for page in 0..pages {
        let expected = if page < pages - 4 { page as u64 + 1 } else { 7 };
        assert_eq!(read(base + page * PAGE), expected, "page {page}");
    }
    assert_eq!(buffer.statistics().summary().errors, 0);
}

fn libc_enomem() -> i32 {
    rustix_errno(std::io::ErrorKind::OutOfMemory)
}
fn rustix_errno(kind: std::io::ErrorKind) -> i32 {
    (1..200).find(|errno| std::io::Error::from_raw_os_error(*errno).kind() == kind).unwrap()
}

#[test]
fn what_may_only_be_read_keeps_what_it_holds() {
    let _turn = turn();
    for backend in BACKENDS {
        if let Some(buffer) = buffer(backend, 32, 4) {
            what_may_only_be_read_keeps_what_it_holds_in(buffer);
        }
    }
}

fn what_may_only_be_read_keeps_what_it_holds_in(buffer: &'static PageBuffer) {
    let pages = 2048;
    let base = buffer.map(pages * PAGE, None, Access::ReadWrite).unwrap();
    for round in 1..4u64 {
        for page in 0..pages {
            write(base + page * PAGE + 8, round * page as u64);
        }
        buffer.protect(base, pages * PAGE, Access::Read).unwrap();
        for page in (0..pages).rev() {
            assert_eq!(read(base + page * PAGE + 8), round * page as u64, "page {page}");
        }
        buffer.protect(base, pages * PAGE, Access::None).unwrap();
        buffer.protect(base, pages * PAGE, Access::ReadWrite).unwrap();
        for page in 0..pages {
            assert_eq!(read(base + page * PAGE + 8), round * page as u64, "page {page}");
        }
    }
    assert_eq!(buffer.protect(base, 2 * pages * PAGE, Access::Read), Err(libc_enomem()), "not all of it is mapped");
}

#[test]
fn system_calls_find_missing_pages() {
    let _turn = turn();
    for backend in BACKENDS {
        if let Some(buffer) = buffer(backend, 32, 4) {
            system_calls_find_missing_pages_in(buffer);
        }
    }
}

fn system_calls_find_missing_pages_in(buffer: &'static PageBuffer) {
    // Replacement may keep some of the first, and DRAM that tests before this one held is free now.
    let pages = 6144;
    let base = buffer.map(pages * PAGE, None, Access::ReadWrite).unwrap();
    for page in 0..pages {
        write(base + page * PAGE, page as u64);
    }
    let file: File = tempfile::tempfile().unwrap();
    // SAFETY: the memory is mapped, and no other thread writes to it.
    let all = unsafe { std::slice::from_raw_parts_mut(base as *mut u8, pages * PAGE) };
    if buffer.is_in_line() {
        return held_pages_stay(buffer, base, pages, &file);
    }
    file.write_all_at(all, 0).unwrap();
    buffer.drop_contents(base, pages * PAGE).unwrap();
    assert_eq!(read(base + 77 * PAGE), 0);
    // SAFETY: as above; the bytes have just changed past the compiler.
    let all = unsafe { std::slice::from_raw_parts_mut(base as *mut u8, pages * PAGE) };
    file.read_exact_at(all, 0).unwrap();
    for page in 0..pages {
        assert_eq!(read(base + page * PAGE), page as u64);
    }
    assert!(file.as_raw_fd() >= 0);
}

/// What the kernel is passed is held.
fn held_pages_stay(buffer: &PageBuffer, base: usize, pages: usize, file: &File) {
    // SAFETY: the memory is mapped, and no other thread writes to it.
    let piece = |page: usize| unsafe { std::slice::from_raw_parts_mut((base + page * PAGE) as *mut u8, 8 * PAGE) };
    let has_left = |page: usize| file.write_all_at(piece(page), 0).is_err();
    assert!((0..pages).step_by(8).any(has_left), "none has left DRAM");
    for page in (0..pages).step_by(8) {
        let held = buffer.hold(base + page * PAGE + 1, 8 * PAGE - 1);
        assert_eq!(held.len(), 8);
        file.write_all_at(piece(page), (page * PAGE) as u64).unwrap();
        buffer.let_go(held);
    }
    buffer.drop_contents(base, pages * PAGE).unwrap();
    let held = buffer.hold(base + 40 * PAGE, 8 * PAGE);
    // All others pass through.
    for page in 0..pages {
        write(base + page * PAGE + 8, 5);
    }
    file.read_exact_at(piece(40), 40 * PAGE as u64).unwrap();
    buffer.let_go(held);
    for page in 0..pages {
        let expected = if (40..48).contains(&page) { (page as u64, 0) } else { (0, 5) };
        assert_eq!((read(base + page * PAGE), read(base + page * PAGE + 8)), expected, "page {page}");
    }
    buffer.protect(base, PAGE, Access::None).unwrap();
    let none = buffer.hold(base, PAGE);
    assert!(none.is_empty() && buffer.hold(1 << 20, PAGE).is_empty());
    buffer.let_go(none);
}

#[test]
fn a_cap_that_leaves_no_frames_is_refused() {
    let _turn = turn();
    let directory = tempfile::tempdir().unwrap();
    let opened = Medium::new_file(directory.path().join("flash"), 32u64 << 20).open(&Default::default()).unwrap();
    let refused = PageBuffer::start(&Settings {
        opened,
        dram_bytes: 1 << 20,
        backend: Wanted::Any,
        notices: Default::default(),
        json: false,
        stats_ms: 0,
    });
    let Err(Error::TooSmall { cap, taken, least }) = refused else { panic!("1 MiB is not enough") };
    assert!(cap < taken && taken < least);
}
