//! Goal: accesses to missing pages wait until the page is there, and a page that moves keeps what
//! it holds. Method: real regions of userfaultfd, with threads that touch pages while they move.

use super::*;
use crate::{Backed, threads};

/// None where the machine gives no userfaultfd that serves the kernel, which is said.
fn watched(pages: usize) -> Option<(Userfault, Region, Arena)> {
    let userfault = match Userfault::open() {
        Ok(userfault) => userfault,
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    let region = Region::reserve(pages * PAGE).unwrap();
    userfault.watch(&region).unwrap();
    let arena = Arena::anonymous(pages * PAGE, Backed::BasePages).unwrap();
    userfault.take_back_to(&arena).unwrap();
    Some((userfault, region, arena))
}

#[test]
fn a_page_moves_in_and_out_with_what_it_holds() {
    let Some((userfault, region, arena)) = watched(4) else { return };
    region.allow(0, 4 * PAGE, Access::ReadWrite).unwrap();
    arena.write(PAGE, b"moved");
    userfault.move_in(&arena, PAGE, &region, 2 * PAGE).unwrap();
    let mut bytes = [1; 5];
    arena.read(PAGE, &mut bytes);
    assert_eq!(bytes, [0; 5], "the page has left the arena");
    assert_eq!(userfault.move_in(&arena, PAGE, &region, 2 * PAGE), Err(NotMoved::Exists));
    // The page at its old place was made by the read of it.
    assert_eq!(userfault.move_out(&region, 2 * PAGE, &arena, PAGE), Err(NotMoved::Exists));
    userfault.move_out(&region, 2 * PAGE, &arena, 3 * PAGE).unwrap();
    arena.read(3 * PAGE, &mut bytes);
    assert_eq!(&bytes, b"moved");
    assert_eq!(userfault.move_out(&region, 2 * PAGE, &arena, 2 * PAGE), Err(NotMoved::Missing));
}

#[test]
fn a_place_that_is_taken_or_not_mapped_is_reported() {
    let Some((mut userfault, region, arena)) = watched(4) else { return };
    userfault.watch_writes(&region).unwrap();
    region.allow(0, 4 * PAGE, Access::ReadWrite).unwrap();
    arena.write(0, b"first");
    for protected in [false, true] {
        let to = usize::from(protected) * PAGE;
        userfault.copy_in(&arena, 0, &region, to, protected).unwrap();
        assert_eq!(userfault.copy_in(&arena, PAGE, &region, to, protected), Err(NotMoved::Exists));
    }
    // SAFETY: the page is the region's. Nothing refers to it.
    unsafe { libc::munmap((region.base() + 3 * PAGE) as *mut libc::c_void, PAGE) };
    assert_eq!(userfault.copy_in(&arena, 0, &region, 3 * PAGE, false), Err(NotMoved::Access));
    assert_eq!(userfault.move_in(&arena, 0, &region, 3 * PAGE), Err(NotMoved::Missing));
    assert_eq!(userfault.move_out(&region, 3 * PAGE, &arena, 3 * PAGE), Err(NotMoved::Missing));
    let mut bytes = [0; 5];
    arena.read(0, &mut bytes);
    assert_eq!(&bytes, b"first", "what was not moved is still there");
    // Without knowledge of what is there, a place is made empty before.
    userfault.pagemap = None;
    userfault.move_out(&region, 0, &arena, 0).unwrap();
    userfault.move_in(&arena, 0, &region, 2 * PAGE).unwrap();
    assert_eq!(userfault.move_in(&arena, 0, &region, PAGE), Err(NotMoved::Missing), "it has left");
    arena.write(PAGE, b"stale");
    userfault.move_out(&region, 2 * PAGE, &arena, PAGE).unwrap();
    arena.read(PAGE, &mut bytes);
    assert_eq!(&bytes, b"first");
}

#[test]
fn what_may_not_be_written_to_gets_a_copy() {
    let Some((userfault, region, arena)) = watched(2) else { return };
    region.allow(0, PAGE, Access::Read).unwrap();
    arena.write(0, b"kept");
    assert_eq!(userfault.move_in(&arena, 0, &region, 0), Err(NotMoved::Access));
    userfault.copy_in(&arena, 0, &region, 0, false).unwrap();
    let mut bytes = [0; 4];
    arena.read(0, &mut bytes);
    assert_eq!(&bytes, b"kept");
    region.unmap_pages(0, PAGE).unwrap();
    userfault.copy_in(&arena, 0, &region, 0, false).unwrap();
}

#[test]
fn the_first_write_to_a_protected_page_waits_and_others_are_dropped_together() {
    let Some((userfault, region, arena)) = watched(8) else { return };
    userfault.watch_writes(&region).unwrap();
    region.allow(0, 8 * PAGE, Access::ReadWrite).unwrap();
    for page in 0..8 {
        arena.write(page * PAGE, &[page as u8 + 1]);
        userfault.copy_in(&arena, page * PAGE, &region, page * PAGE, true).unwrap();
    }
    arena.discard_pages([1, 6].into_iter().map(|page| page * PAGE));
    let mut byte = [9];
    arena.read(6 * PAGE, &mut byte);
    assert_eq!(byte, [0]);
    arena.discard(0, 8 * PAGE);
    let base = region.base();
    // SAFETY: pages of the region, which are there.
    let read = move |page: usize| unsafe { ((base + page * PAGE) as *const u8).read_volatile() };
    let writes = std::thread::spawn(move || {
        let before = read(3);
        // SAFETY: as above.
        unsafe { ((base + 3 * PAGE) as *mut u8).write_volatile(before + 40) };
        threads::thread()
    });
    let mut faults = Vec::new();
    while userfault.read(&mut faults) == 0 {
        std::thread::yield_now();
    }
    let thread = faults[0].thread;
    assert_eq!(faults, [Waiting { address: base + 3 * PAGE, is_write: true, is_protected: true, thread }]);
    assert_eq!(read(3), 4, "it waits");
    userfault.unprotect(&region, 3 * PAGE).unwrap();
    assert_eq!(writes.join().unwrap(), thread);
    // One more than a call takes, most of which were dropped before.
    let offsets: Vec<_> = (0..65).map(|index| [0, 2, 4, 5, 6, 7][index % 6] * PAGE).collect();
    region.drop_pages(&offsets, |index| panic!("page {index} is still there"));
    userfault.move_out(&region, 3 * PAGE, &arena, 3 * PAGE).unwrap();
    arena.read(3 * PAGE, &mut byte);
    assert_eq!(byte, [44]);
    userfault.move_out(&region, PAGE, &arena, PAGE).unwrap();
    for page in [0, 2, 4, 5, 6, 7] {
        assert_eq!(userfault.move_out(&region, page * PAGE, &arena, page * PAGE), Err(NotMoved::Missing));
    }
    // What is locked can be dropped as well.
    // SAFETY: the range is the region's. Locking on a fault touches no page.
    unsafe { libc::syscall(libc::SYS_mlock2, base, 8 * PAGE, libc::MLOCK_ONFAULT) };
    userfault.copy_in(&arena, 0, &region, 0, true).unwrap();
    userfault.copy_in(&arena, 0, &region, PAGE, true).unwrap();
    region.drop_pages(&[0, PAGE], |index| panic!("page {index} is still there"));
    // What is not mapped cannot.
    // SAFETY: the pages are the region's. Nothing refers to them.
    unsafe { libc::munmap((base + 4 * PAGE) as *mut libc::c_void, PAGE) };
    let mut failed = Vec::new();
    region.drop_pages(&[3 * PAGE, 4 * PAGE, 5 * PAGE], |index| failed.push(index));
    assert_eq!(failed, [1]);
}

#[test]
fn a_page_that_the_program_locked_moves_all_the_same() {
    let Some((userfault, region, arena)) = watched(4) else { return };
    region.allow(0, 4 * PAGE, Access::ReadWrite).unwrap();
    arena.write(0, b"locked");
    // SAFETY: the range is the region's. Locking on a fault touches no page.
    let locked = unsafe { libc::syscall(libc::SYS_mlock2, region.base(), 4 * PAGE, libc::MLOCK_ONFAULT) };
    assert_eq!(locked, 0, "{}", io::Error::last_os_error());
    userfault.move_in(&arena, 0, &region, PAGE).unwrap();
    // SAFETY: the page is the region's, there, and writable.
    unsafe { ((region.base() + PAGE) as *mut u8).write_volatile(b'L') };
    assert!(userfault.has_unlocked());
    // SAFETY: as above. Both pages are there.
    assert_eq!(unsafe { libc::mlock((region.base() + PAGE) as *const libc::c_void, PAGE) }, 0);
    userfault.move_out(&region, PAGE, &arena, 0).unwrap();
    let mut bytes = [0; 6];
    arena.read(0, &mut bytes);
    assert_eq!(&bytes, b"Locked");
}

#[test]
fn an_access_waits_until_its_page_is_there_also_one_of_the_kernel() {
    let Some((userfault, region, arena)) = watched(2) else { return };
    region.allow(0, 2 * PAGE, Access::ReadWrite).unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let base = region.base();
    let waits = std::thread::spawn(move || {
        // SAFETY: the page is mapped by the time that the call returns, and lives until the
        // thread is joined.
        let written = unsafe { libc::write(writer.as_raw_fd(), (base + PAGE) as *const libc::c_void, 6) };
        assert_eq!(written, 6);
        threads::thread()
    });
    let mut faults = Vec::new();
    while userfault.read(&mut faults) == 0 {
        std::thread::yield_now();
    }
    let thread = faults[0].thread;
    assert_eq!(faults, [Waiting { address: base + PAGE, is_write: false, is_protected: false, thread }]);
    arena.write(0, b"waited");
    userfault.move_in(&arena, 0, &region, PAGE).unwrap();
    assert_eq!(waits.join().unwrap(), thread);
    let mut bytes = [0; 6];
    rustix::io::read(&reader, &mut bytes).unwrap();
    assert_eq!(&bytes, b"waited");
}

/// Moves a page out and in while its entry changes. The kernel clears that it was touched, as
/// where it looks for pages to swap out, and a touch sets it. Returns what went wrong.
fn moves_while_touched(userfault: &Userfault, region: &Region, arena: &Arena) -> Option<String> {
    const MOVES: usize = 20_000;
    let (base, is_over) = (region.base(), AtomicBool::new(false));
    arena.write(0, &[7; PAGE]);
    userfault.move_in(arena, 0, region, 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: the page is the region's. What it holds stays.
                let _ = unsafe { rustix::mm::madvise(base as *mut libc::c_void, PAGE, Advice::LinuxCold) };
                // SAFETY: as above. The page is there, or comes.
                unsafe { (base as *const u8).read_volatile() };
            }
        });
        let wrong = (0..MOVES).find_map(|number| {
            let out = userfault.move_out(region, 0, arena, 0);
            let mut bytes = [0; PAGE];
            arena.read(0, &mut bytes);
            let into = userfault.move_in(arena, 0, region, 0);
            let is_right = out.is_ok() && into.is_ok() && bytes == [7; PAGE];
            (!is_right).then(|| format!("move {number}: {out:?}, {}, {into:?}", bytes[0]))
        });
        is_over.store(true, Ordering::Relaxed);
        if wrong.is_some() {
            // The thread may wait for it.
            arena.write(0, &[0; PAGE]);
            let _ = userfault.move_in(arena, 0, region, 0);
            userfault.wake(region, 0);
        }
        wrong
    })
}

#[test]
fn a_page_whose_entry_changes_while_it_moves_is_where_the_move_says() {
    for looks in [true, false] {
        let Some((mut userfault, region, arena)) = watched(1) else { return };
        region.allow(0, PAGE, Access::ReadWrite).unwrap();
        if !looks {
            userfault.pagemap = None;
        }
        assert_eq!(moves_while_touched(&userfault, &region, &arena), None, "looks: {looks}");
    }
}

#[test]
fn a_region_knows_its_addresses() {
    let region = Region::reserve(3 * PAGE).unwrap();
    assert_eq!(region.offset_of(region.base() + PAGE), Some(PAGE));
    assert_eq!(region.offset_of(region.base() + region.len()), None);
    assert_eq!(region.offset_of(region.base() - 1), None);
    assert_eq!(region.base() % TABLE, 0);
}
#[test]
#[should_panic(expected = "outside a region")]
fn beyond_the_region() {
    let region = Region::reserve(PAGE).unwrap();
    let _ = region.allow(PAGE, PAGE, Access::Read);
}
