//! Rings on files: reads and writes, and what hangs, is dropped or goes to another thread.

use super::*;
use crate::Backed;

/// A ring on an unlinked file of `pages` pages, or none where io_uring is missing.
fn ring(name: &str, pages: usize, depth: usize) -> Option<(Uring, Arc<Arena>, Arc<Notifier>)> {
    let path = std::env::temp_dir().join(format!("fulgurite-uring-{name}-{}", std::process::id()));
    let file = Arc::new(DirectFile::create(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let arena = Arc::new(Arena::anonymous(pages * 4096, Backed::BasePages).unwrap());
    for page in 0..pages {
        arena.write(page * 4096, &[page as u8 + 1; 4096]);
        file.write_at(page as u64 * 4096, &arena, page * 4096, 4096).unwrap();
    }
    let wake = Arc::new(Notifier::new().unwrap());
    let mut ring = Uring::new(depth, file, arena.clone(), wake.clone(), true, RingUser::OneThread).ok()?;
    ring.register(0..arena.len());
    Some((ring, arena, wake))
}

#[test]
fn reads_on_another_thread_than_it_was_made_on() {
    let Some((mut ring, arena, _)) = ring("reads", 8, 4) else { return };
    std::thread::spawn(move || {
        for i in 0..100u64 {
            ring.push_read(i % 8 * 4096, 0, 4096, i).unwrap();
            ring.submit().unwrap();
            let mut got = Vec::new();
            while got.is_empty() {
                ring.wait(None).unwrap();
                ring.reap(|user, result| got.push((user, result)));
            }
            assert_eq!(got, [(i, 4096)]);
            let mut bytes = [0; 4096];
            arena.read(0, &mut bytes);
            assert_eq!(bytes, [(i % 8) as u8 + 1; 4096]);
        }
    })
    .join()
    .unwrap();
}
// The sanitizer would call what is left on purpose a leak.
#[cfg(not(sanitized))]
#[test]
fn a_ring_whose_device_hangs_can_be_dropped() {
    let Some((mut ring, arena, _)) = ring("hangs", 2, 4) else { return };
    // An operation that never ends: this pipe has no writer.
    let (reader, _writer) = std::io::pipe().unwrap();
    let poll = opcode::PollAdd::new(types::Fd(reader.as_fd().as_raw_fd()), libc::POLLIN as u32);
    // SAFETY: a poll has no buffer.
    unsafe { ring.ring.submission().push(&poll.build().user_data(1)) }.unwrap();
    ring.pushed += 1;
    ring.in_flight += 1;
    ring.submit().unwrap();
    ring.drain_limit = Duration::from_millis(50);
    let holders = Arc::strong_count(&arena);
    let begun = Instant::now();
    drop(ring);
    assert!(begun.elapsed() >= Duration::from_millis(50), "it waits first");
    assert_eq!(Arc::strong_count(&arena), holders, "the device may still move something: the arena stays for good");
}
#[test]
fn memory_that_was_given_back_is_not_the_rings_any_more() {
    let Some((mut ring, arena, _)) = ring("discard", 8, 4) else { return };
    let read = |ring: &mut Uring, page: usize| {
        ring.push_read(page as u64 * 4096, page * 4096, 4096, 0).unwrap();
        let mut ended = 0;
        while ended == 0 {
            ring.wait(None).unwrap();
            ring.reap(|_, result| ended = result);
        }
        let mut bytes = [0; 4096];
        arena.read(page * 4096, &mut bytes);
        assert_eq!((ended, bytes), (4096, [page as u8 + 1; 4096]), "page {page}");
    };
    for registered in [8, 3, 8, 0, 1] {
        // First the ring lets go, then the kernel gets the memory back.
        ring.register(0..registered * 4096);
        arena.discard(registered * 4096, (8 - registered) * 4096);
        (0..8).for_each(|page| read(&mut ring, page));
    }
}
#[test]
fn a_wake_up_ends_a_wait_and_is_kept() {
    let Some((mut ring, _, wake)) = ring("wake", 1, 1) else { return };
    for _ in 0..3 {
        wake.notify();
        ring.wait(None).unwrap();
        ring.reap(|_, _| panic!("nothing was asked for"));
        ring.wait(Some(Duration::from_millis(1))).unwrap();
    }
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        wake.notify();
    });
    while !ring.notified {
        ring.wait(None).unwrap();
        ring.reap(|_, _| {});
    }
    other.join().unwrap();
}
#[test]
fn a_wake_up_that_nobody_reaps_ends_one_wait_and_not_all() {
    let Some((mut ring, _, wake)) = ring("idle", 1, 1) else { return };
    ring.wait(Some(Duration::from_millis(1))).unwrap();
    wake.notify();
    let begin = std::time::Instant::now();
    let mut waits = 0;
    while begin.elapsed() < Duration::from_millis(50) {
        ring.wait(Some(Duration::from_millis(10))).unwrap();
        waits += 1;
    }
    assert!(waits <= 10, "{waits} waits of 10 ms in 50 ms");
}
/// A program's thread waits elsewhere while its requests end.
#[test]
fn requests_that_end_interrupt_no_system_call() {
    let Some((mut ring, ..)) = ring("interrupts", 64, 64) else { return };
    if !ring.deferred() {
        return println!("not tested here: before Linux 6.1 completions interrupt the thread");
    }
    let (mut waits, _silent) = std::os::unix::net::UnixStream::pair().unwrap();
    waits.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    for round in 0..50 {
        for page in 0..16 {
            let offset = page as usize * 4096;
            match (round + page) % 2 {
                0 => ring.push_read(page * 4096, offset, 4096, page).unwrap(),
                _ => ring.push_write(page * 4096, offset, 4096, page).unwrap(),
            }
        }
        ring.push_sync(16).unwrap();
        ring.submit().unwrap();
        let error = std::io::Read::read(&mut waits, &mut [0]).expect_err("nothing is sent");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "round {round}");
        while ring.in_flight() > 0 {
            ring.wait(None).unwrap();
            ring.reap(|_, result| assert!(result >= 0, "{result}"));
        }
    }
}
#[test]
fn it_is_bounded_and_drains_when_dropped() {
    let Some((mut ring, _, _)) = ring("drop", 64, 64) else { return };
    let mut pushed = 0;
    while ring.push_read(0, pushed % 64 * 4096, 4096, pushed as u64).is_ok() {
        pushed += 1;
        assert!(pushed < 1000);
    }
    assert!(pushed >= 64);
    assert_eq!(ring.push_sync(0), Err(RingFull));
    ring.submit().unwrap();
    drop(ring);
}
#[test]
fn pieces_from_all_over_the_arena_become_one_write() {
    let Some((mut ring, arena, _)) = ring("gathered", 16, 8) else { return };
    if ring.gather_room() == 0 {
        return println!("not tested here: the kernel cannot gather");
    }
    for registered in [16, 5, 0] {
        ring.register(0..registered * 4096);
        // Scattered. Neighbours, of which some are side by side. A plain range. One alone.
        for (pages, listed) in [(&[9, 2, 4, 0][..], 4), (&[5, 6, 7, 1], 2), (&[3, 4, 5], 0), (&[8], 0)] {
            for page in 0..16 {
                arena.write(page * 4096, &[page as u8 + 1; 4096]);
            }
            let before = ring.gather_room();
            ring.push_gathered_write(4096, pages.iter().map(|page| page * 4096), 4096, 7).unwrap();
            assert_eq!(before - ring.gather_room(), listed, "{pages:?}");
            let mut ended = Vec::new();
            while ended.is_empty() {
                ring.wait(None).unwrap();
                ring.reap(|user, result| ended.push((user, result)));
            }
            assert_eq!(ended, [(7, pages.len() as i32 * 4096)], "{registered} registered");
            for (i, page) in pages.iter().enumerate() {
                ring.file.read_at((i as u64 + 1) * 4096, &arena, 15 * 4096, 4096).unwrap();
                let mut got = [0; 4096];
                arena.read(15 * 4096, &mut got);
                assert_eq!(got, [*page as u8 + 1; 4096], "{pages:?}, piece {i}, {registered} registered");
            }
        }
    }
}
#[test]
fn a_staged_write_has_the_bytes_that_there_were_when_it_was_pushed() {
    let Some((mut ring, arena, _)) = ring("staged", 16, 8) else { return };
    let before = ring.bytes();
    for _ in 0..2 {
        ring.make_staging(8 * 4096).unwrap();
        assert_eq!(ring.bytes() - before, 8 * 4096, "made once");
    }
    for (stage, pages) in [(0, &[9, 2, 4, 0][..]), (4, &[5, 6, 7, 1])] {
        for page in 0..16 {
            arena.write(page * 4096, &[page as u8 + 1; 4096]);
        }
        ring.push_staged_write(4096, stage * 4096, pages.iter().map(|page| page * 4096), 4096, 7).unwrap();
        // The arena may change at once.
        arena.zero(0, arena.len());
        let mut ended = Vec::new();
        while ended.is_empty() {
            ring.wait(None).unwrap();
            ring.reap(|user, result| ended.push((user, result)));
        }
        assert_eq!(ended, [(7, pages.len() as i32 * 4096)]);
        for (i, page) in pages.iter().enumerate() {
            ring.file.read_at((i as u64 + 1) * 4096, &arena, 15 * 4096, 4096).unwrap();
            let mut got = [0; 4096];
            arena.read(15 * 4096, &mut got);
            assert_eq!(got, [*page as u8 + 1; 4096], "{pages:?}, piece {i}");
        }
    }
}
#[test]
fn lists_of_pieces_are_bounded_until_the_kernel_has_taken_them() {
    let Some((mut ring, ..)) = ring("lists", 16, 8) else { return };
    let room = ring.gather_room();
    let scattered = |count: usize| (0..count).map(|i| i * 2 % 16 * 4096);
    assert_eq!(ring.push_gathered_write(0, scattered(room + 1), 4096, 0), Err(RingFull));
    assert_eq!((ring.gather_room(), ring.in_flight()), (room, 0), "what was refused takes nothing");
    for round in 0..20 {
        ring.push_gathered_write(0, scattered(room), 4096, round).unwrap();
        assert_eq!(ring.push_gathered_write(0, scattered(2), 4096, 0), Err(RingFull));
        ring.push_gathered_write(0, [4096, 8192], 4096, 99).expect("neighbours need no list");
        ring.submit().unwrap();
        assert_eq!(ring.gather_room(), room, "the kernel has a copy");
        while ring.in_flight() > 0 {
            ring.wait(None).unwrap();
            ring.reap(|user, result| {
                assert_eq!(result, if user == 99 { 8192 } else { room as i32 * 4096 });
            });
        }
    }
}
#[test]
fn another_thread_may_drop_it() {
    let Some((mut ring, _, _)) = ring("elsewhere", 8, 8) else { return };
    ring.push_read(0, 0, 4096, 1).unwrap();
    ring.submit().unwrap();
    std::thread::spawn(move || drop(ring)).join().unwrap();
}
