//! Goal: reclaim on a medium that gathers reads dead flash pages along with live ones; that one of
//! either cannot be read costs no data and stops nothing. Method: a pool on a file behind a wrapper
//! that makes one read in N fail, by seed; batches are overwritten until extents are half dead, and
//! extents are reclaimed while reads fail. The wrapper's record shows that pages were read along.
//! Then nothing fails any more: all that was written is read back, and the pool's own audit finds
//! nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{
    Fault, FaultPlan, FaultyFlash, FileBackend, FileConfig, FileFlash, Flash, FlashError, Op, Queue, Request, Rule,
    Switches, When,
};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Durability, Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};

const BATCH: u32 = 16;
const SUBPAGES: u32 = 3000;
const EIO: FlashError = FlashError::Io(5);

/// Does one operation on all these subpages at once; what they hold is in the first bytes of the
/// frames.
fn all(queue: &mut dyn Queue, frames: &Arena, op: Op, requests: &[(u32, u64)]) {
    for (frame, (subpage, value)) in requests.iter().enumerate() {
        frames.write(frame * SUBPAGE_BYTES, &if op == Op::Write { *value } else { u64::MAX }.to_le_bytes());
        let (subpage, frame_index) = (SubpageIndex(*subpage), FrameIndex(frame as u32));
        queue.submit(Request { tag: frame as u64, op, subpage, frame: frame_index }).unwrap();
    }
    queue.flush().unwrap();
    let mut ended = Vec::new();
    while queue.in_flight() > 0 {
        if queue.poll(&mut ended) == 0 {
            queue.wait(Some(Duration::from_millis(10)));
        }
    }
    for completion in ended {
        let (subpage, value) = requests[completion.tag as usize];
        let mut got = [0; 8];
        frames.read(completion.tag as usize * SUBPAGE_BYTES, &mut got);
        assert_eq!((completion.result, u64::from_le_bytes(got)), (Ok(()), value), "{op:?} of subpage {subpage}");
    }
}

#[test]
fn fault_a_read_of_reclaim_that_fails_costs_nothing() {
    let mut failed = 0;
    for (seed, one_in) in [(1, 3), (2, 5), (3, 20), (4, 100)] {
        let directory = tempfile::tempdir().unwrap();
        let geometry = Geometry::new(120 * 64, 64, Some(SUBPAGES)).unwrap();
        let file = FileConfig::create(directory.path().join("pool"), u64::from(geometry.flash_pages()) << 12);
        let inner = FileFlash::open(&FileConfig { backend: FileBackend::Auto, ..file }).unwrap();
        let faulty = Arc::new(FaultyFlash::new(inner, FaultPlan::default()));
        let medium: Arc<dyn Flash> = faulty.clone();
        let frames = Arc::new(Arena::anonymous(BATCH as usize * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let wake = Arc::new(Notifier::new().unwrap());
        // Where the kernel offers no ring, reads are not gathered.
        let gathers = faulty
            .open_queue(frames.clone(), 1, wake.clone())
            .unwrap()
            .switch(Switches { gather_reads: true, ..Switches::default() })
            .gather_reads;
        Pool::format(&medium, geometry, PoolId([4; 16]), 0).unwrap();
        let mut config = StoreConfig::default();
        config.durability = Durability::Cache;
        let flash = Pool::open(medium, config).unwrap().0.into_flash();
        let mut queue = flash.open_queue(frames.clone(), BATCH as usize, wake).unwrap();

        let mut expected = HashMap::new();
        for batch in 0..400u32 {
            let of = |i: u32| ((batch * BATCH + i).wrapping_mul(1237) % SUBPAGES, u64::from(batch * BATCH + i));
            let writes: Vec<(u32, u64)> = (0..BATCH).map(of).collect();
            expected.extend(writes.iter().copied());
            all(&mut *queue, &frames, Op::Write, &writes);
        }
        flash.layer().checkpoint().unwrap();

        let fails = Rule { op: Some(Op::Read), when: When::OneIn(one_in), fault: Fault::Fails(EIO) };
        faulty.set_plan(FaultPlan { seed, rules: vec![fails], record: true, ..FaultPlan::default() });
        let (copied, errors) = (flash.layer().counters().copied, faulty.counters().errors);
        for _ in 0..8 {
            // What cannot be read now stays where it is.
            let _ = flash.layer().reclaim_one();
        }
        // Of data: summaries are behind it in each extent.
        let of_data = |place: SubpageIndex| place.0 % geometry.extent_pages < geometry.data_pages();
        let reads = faulty.record().iter().filter(|(op, place)| *op == Op::Read && of_data(*place)).count() as u64;
        let (copied, errors) = (flash.layer().counters().copied - copied, faulty.counters().errors - errors);
        println!("seed {seed}: {errors} of {reads} reads failed, {copied} copies");
        failed += errors;
        if gathers {
            assert!(reads > copied + errors, "seed {seed}: none was read along: {reads} reads for {copied} copies");
        }

        faulty.set_plan(FaultPlan::default());
        for _ in 0..8 {
            flash.layer().reclaim_one().unwrap();
        }
        let expected: Vec<(u32, u64)> = expected.into_iter().collect();
        for some in expected.chunks(BATCH as usize) {
            all(&mut *queue, &frames, Op::Read, some);
        }
        assert_eq!(flash.layer().audit(), Vec::<String>::new(), "seed {seed}");
    }
    assert!(failed > 20, "{failed} reads failed");
}
