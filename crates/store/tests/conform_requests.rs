//! Goal: the log pays: what a pool is given to write at one time reaches the kernel as few
//! requests, wherever the subpages belong, and so does what its reclaim copies, and what it reads
//! for that. Method: a pool on a file, through a ring and through threads; batches as an evictor
//! hands them over, of subpages from all over; the number of the medium's requests is compared with
//! the number of subpages. What was written is read back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{FileBackend, FileConfig, FileFlash, Flash, Op, Request, Switches};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Durability, Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Clock, Notifier};

const POOL: PoolId = PoolId([3; 16]);
/// What a worker that is alone evicts at a time.
const BATCH: u32 = 16;
/// Distinct places in the batches: far more than one extent holds.
const SUBPAGES: u32 = 5000;

/// Subpages and kernel requests written so far.
fn written(medium: &dyn Flash) -> (u64, u64) {
    (medium.counters().writes, medium.counters().write_requests)
}

fn batches(backend: FileBackend, extents: u32, subpages_a_request: u64) {
    let directory = tempfile::tempdir().unwrap();
    let geometry = Geometry::new(extents * 64, 64, Some(SUBPAGES)).unwrap();
    let file = FileConfig::create(directory.path().join("pool"), u64::from(geometry.flash_pages()) << 12);
    let medium: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig { backend, ..file }).unwrap());
    Pool::format(&medium, geometry, POOL, 0).unwrap();
    let mut config = StoreConfig::default();
    config.durability = Durability::Cache;
    let flash = Pool::open(medium.clone(), config).unwrap().0.into_flash();
    let frames = Arc::new(Arena::anonymous(BATCH as usize * SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let wake = Arc::new(Notifier::new().unwrap());
    let mut queue = flash.open_queue(frames.clone(), BATCH as usize, wake).unwrap();
    let mut run = |requests: Vec<(Op, u32, u64)>| {
        let mut ended = Vec::new();
        for (frame, (op, subpage, value)) in requests.iter().enumerate() {
            frames.write(frame * SUBPAGE_BYTES, &if *op == Op::Write { *value } else { u64::MAX }.to_le_bytes());
            let (subpage, frame_index) = (SubpageIndex(*subpage), FrameIndex(frame as u32));
            queue.submit(Request { tag: frame as u64, op: *op, subpage, frame: frame_index }).unwrap();
        }
        queue.flush().unwrap();
        while queue.in_flight() > 0 {
            if queue.poll(&mut ended) == 0 {
                queue.wait(Some(Duration::from_millis(10)));
            }
        }
        for completion in ended {
            let (_, subpage, value) = requests[completion.tag as usize];
            let mut got = [0; 8];
            frames.read(completion.tag as usize * SUBPAGE_BYTES, &mut got);
            assert_eq!((completion.result, u64::from_le_bytes(got)), (Ok(()), value), "subpage {subpage}");
        }
    };

    let (count, mut expected, before) = (1000, HashMap::new(), written(&*medium));
    for batch in 0..count {
        // Some are written again and again, so that there are streams of several degrees.
        let subpage =
            |i: u32| if i < 4 { i * 1000 + batch % 50 } else { (batch * BATCH + i).wrapping_mul(1237) % SUBPAGES };
        let mut writes: Vec<(Op, u32, u64)> = Vec::new();
        for i in 0..BATCH {
            if writes.iter().all(|(_, other, _)| *other != subpage(i)) {
                writes.push((Op::Write, subpage(i), u64::from(batch * BATCH + i)));
            }
        }
        expected.extend(writes.iter().map(|(_, subpage, value)| (*subpage, *value)));
        run(writes);
    }
    let after = written(&*medium);
    let (subpages, requests) = (after.0 - before.0, after.1 - before.1);
    println!("{extents} extents, {backend:?}: {subpages} subpages in {requests} requests for {count} batches");
    assert!(subpages > u64::from(count * 15), "{subpages}");
    assert!(requests * subpages_a_request < subpages, "{subpages} subpages in {requests} requests");

    // What reclaim has under way by itself comes to its end first.
    flash.layer().checkpoint().unwrap();
    let (before, copied) = (written(&*medium), flash.layer().counters().copied);
    let reads = medium.counters().read_requests;
    for _ in 0..8 {
        flash.layer().reclaim_one().unwrap();
    }
    let (after, copied) = (written(&*medium), flash.layer().counters().copied - copied);
    let (subpages, requests) = (after.0 - before.0, after.1 - before.1);
    let reads = medium.counters().read_requests - reads;
    println!("reclaim copied {copied} in {reads} reads: {subpages} subpages in {requests} requests");
    // Threads read each by itself, and do not count them.
    assert!(reads * 2 < copied, "{copied} copies in {reads} reads");
    assert!(copied > 0 && requests * 2 < subpages, "{subpages} subpages in {requests} requests");

    let expected: Vec<(u32, u64)> = expected.into_iter().collect();
    for some in expected.chunks(BATCH as usize) {
        run(some.iter().map(|(subpage, value)| (Op::Read, *subpage, *value)).collect());
    }
    assert_eq!(flash.layer().audit(), Vec::<String>::new());
}

#[test]
fn conform_a_batch_of_a_small_pool_is_few_requests() {
    for backend in [FileBackend::Auto, FileBackend::Threads(2)] {
        batches(backend, 120, 4);
    }
}

#[test]
fn conform_a_batch_of_a_pool_with_streams_by_heat_is_few_requests() {
    for backend in [FileBackend::Auto, FileBackend::UringUnregistered] {
        batches(backend, 160, 2);
    }
}

#[test]
fn conform_writes_that_may_be_kept_back_go_out_together_and_all_go_out() {
    const FRAMES: u32 = 1024;
    let directory = tempfile::tempdir().unwrap();
    let geometry = Geometry::new(120 * 64, 64, Some(SUBPAGES)).unwrap();
    let file = FileConfig::create(directory.path().join("pool"), u64::from(geometry.flash_pages()) << 12);
    let medium: Arc<dyn Flash> = Arc::new(FileFlash::open(&file).unwrap());
    Pool::format(&medium, geometry, POOL, 0).unwrap();
    let mut config = StoreConfig::default();
    config.durability = Durability::Cache;
    let flash = Pool::open(medium.clone(), config).unwrap().0.into_flash();
    assert!(flash.traits().holds_writes > 1, "a file makes one request of neighbours");
    let frames = Arc::new(Arena::anonymous(FRAMES as usize * SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let mut queue = flash.open_queue(frames, 64, Arc::new(Notifier::new().unwrap())).unwrap();
    queue.use_frames(0..FRAMES);
    let mut next = 0;
    let mut requests = |may_hold: bool, writes: u32, sleep: bool| {
        queue.switch(Switches { hold_writes: may_hold, ..Switches::default() });
        let before = written(&*medium);
        for _ in 0..writes {
            let (subpage, frame) = (SubpageIndex(next * 7 % SUBPAGES), FrameIndex(next % 64));
            queue.submit(Request { tag: next.into(), op: Op::Write, subpage, frame }).unwrap();
            // Each is handed over by itself.
            queue.flush().unwrap();
            next += 1;
        }
        let mut ended = Vec::new();
        while queue.in_flight() > 0 {
            if queue.poll(&mut ended) == 0 && sleep {
                queue.wait(Some(Duration::from_secs(5)));
            }
        }
        assert!(ended.iter().all(|c| c.result.is_ok()) && ended.len() == writes as usize);
        let after = written(&*medium);
        (after.0 - before.0, after.1 - before.1)
    };
    for sleep in [false, true] {
        let (subpages, apart) = requests(false, 16, sleep);
        assert!(subpages >= 16 && apart >= 16, "{subpages} subpages in {apart} requests");
        let (subpages, together) = requests(true, 16, sleep);
        println!("sleeping {sleep}: 16 writes were {apart} requests, and {together} where they may wait");
        assert!(subpages >= 16 && together * 2 < apart, "{together} requests, and {apart} where they may not wait");
        // Too few for a batch, and no others come: they go out all the same, by the time or by a
        // wait.
        assert!(requests(true, 3, sleep).0 >= 3);
    }
}

#[test]
fn conform_writes_are_kept_back_for_exactly_as_long_as_they_may_be() {
    const FRAMES: u32 = 1024;
    // As long as `HOLD` in the layer.
    const HOLD: Duration = Duration::from_micros(500);
    let directory = tempfile::tempdir().unwrap();
    let geometry = Geometry::new(120 * 64, 64, Some(SUBPAGES)).unwrap();
    let file = FileConfig::create(directory.path().join("pool"), u64::from(geometry.flash_pages()) << 12);
    let medium: Arc<dyn Flash> = Arc::new(FileFlash::open(&file).unwrap());
    Pool::format(&medium, geometry, POOL, 0).unwrap();
    let (clock, time) = Clock::simulated();
    let flash = Pool::open_with_clock(medium.clone(), StoreConfig::default(), clock).unwrap().0.into_flash();
    let frames = Arc::new(Arena::anonymous(FRAMES as usize * SUBPAGE_BYTES, Backed::BasePages).unwrap());
    let mut queue = flash.open_queue(frames, 64, Arc::new(Notifier::new().unwrap())).unwrap();
    queue.use_frames(0..FRAMES);
    queue.switch(Switches { hold_writes: true, ..Switches::default() });
    let mut ended = Vec::new();
    for round in 0..3 {
        let before = written(&*medium).0;
        for i in 0..3 {
            let (subpage, frame) = (SubpageIndex(round * 3 + i), FrameIndex(i));
            queue.submit(Request { tag: i.into(), op: Op::Write, subpage, frame }).unwrap();
            queue.flush().unwrap();
        }
        for passes in [Duration::ZERO, HOLD - Duration::from_nanos(1)] {
            time.advance(passes);
            (0..1000).for_each(|_| _ = queue.poll(&mut ended));
            queue.flush().unwrap();
            assert!(ended.is_empty() && written(&*medium).0 == before, "they went out before their time");
        }
        time.advance(Duration::from_nanos(1));
        while queue.in_flight() > 0 {
            queue.poll(&mut ended);
        }
        assert!(ended.drain(..).all(|c| c.result.is_ok()) && written(&*medium).0 >= before + 3);
    }
}
