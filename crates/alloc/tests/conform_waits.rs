//! Goal: system calls of a program that wait are not ended early by the allocators' requests, as by
//! a signal. Method: a thread that resolves its own faults changes blocks or objects, far more than
//! DRAM has room for, over a file, and then waits for bytes that never come. Each wait must end by
//! its own time. io_uring notifies the thread that handed a request over when it ends, which would
//! interrupt it.

use std::alloc::Layout;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use fulgurite_alloc::{Allocator, Mode, ObjectAllocator, ObjectSettings, StartError};
use fulgurite_backing::Medium;

const ROUNDS: usize = 300;
/// The most changes before a wait.
const CHANGES: usize = 8;

/// Changes words, and waits. Returns how many waits were ended early.
fn ended_early(count: usize, word: impl Fn(usize) -> *mut u64) -> usize {
    let change = |index: usize| {
        // SAFETY: each word is in a block or an object of this thread, and aligned.
        unsafe { word(index).write_volatile(word(index).read_volatile() + 1) };
    };
    (0..count).for_each(change);
    let (mut waits, _silent) = UnixStream::pair().unwrap();
    waits.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut early = 0;
    for round in 0..ROUNDS {
        (0..=round % CHANGES).for_each(|step| change((round * CHANGES + step) * 7919 % count));
        let error = waits.read(&mut [0]).expect_err("nothing is sent");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted), "{error}");
        early += usize::from(error.kind() == ErrorKind::Interrupted);
    }
    early
}

fn memory_page(directory: &Path) -> Result<(), StartError> {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    let medium = Medium::new_file(directory.join("pages"), 64u64 << 20);
    let allocator = Allocator::start_in(Mode::InLine, medium, resident * 4096 + (14 << 20))?;
    let pages = 8 << 10;
    let block = allocator.allocate(Layout::from_size_align(pages * 4096, 4096).unwrap()).unwrap();
    let early = ended_early(pages, |page| block.as_ptr().wrapping_add(page * 4096).cast());
    let summary = allocator.summary();
    assert!(summary.evicted_dirty > pages as u64 / 2, "pages leave: {summary:?}");
    assert_eq!(early, 0, "{}: {summary:?}", allocator.describe());
    Ok(())
}

fn objects(directory: &Path) -> Result<(), StartError> {
    const COUNT: u32 = 36_000;
    let medium = Medium::new_file(directory.join("objects"), 16u64 << 20);
    let mut settings = ObjectSettings::new(medium, 5 << 20, COUNT);
    (settings.mode, settings.page_buffer_bytes) = (Mode::InLine, Some(1 << 20));
    let allocator = ObjectAllocator::start(&settings)?;
    let array = allocator.array(COUNT, 128).unwrap();
    let early = ended_early(COUNT as usize, |index| array.at(index as u32).as_ptr().cast());
    let summary = allocator.summary();
    assert!(summary.reads > 500 && summary.bytes_written > 1 << 20, "objects leave: {summary:?}");
    assert_eq!(early, 0, "{}: {summary:?}", allocator.describe());
    Ok(())
}

#[test]
fn what_waits_is_not_interrupted_by_memory_that_leaves() {
    let directory = tempfile::tempdir().unwrap();
    for (what, run) in [("pages", memory_page as fn(&_) -> _), ("objects", objects)] {
        match run(directory.path()) {
            Ok(()) => {}
            Err(StartError::PageBuffer(fulgurite_fault::Error::Userfault(error))) => {
                println!("skipped, {what}: {error}");
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}
