//! Goal: whoever writes to a pool that is truly full is told, each of many that write at the same time; a sync has room all the same, and
//! after it all of them go on.
//! Method: a pool in memory, all of which was written and synced, so that nothing that is overwritten is free before the next sync; many
//! jobs that write until they are told, with a few frames, all of which are dirty before long; on one worker and on two.

use std::sync::Arc;

use fulgurite::{AccessError, Address, JobOptions, Memory, Ptr, Runtime};
use fulgurite_flash::{Flash, FlashError, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

const JOBS: u32 = 64;

fn word(subpage: u32) -> Ptr<u64> {
    Ptr::new(Address::from_linear(u64::from(subpage) * 4096))
}

fn all_are_told(workers: usize) {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(8192).unwrap());
    // A quarter of it is room to write in between two syncs.
    let geometry = Geometry::new(8192, 16, Some(6144)).unwrap();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    let flash = Pool::open(medium, StoreConfig::default()).unwrap().0.into_flash();
    let pool = flash.layer().clone();
    let builder = Runtime::builder(Arc::new(flash)).workers(workers).fibers(JOBS as usize).dram(5 << 20);
    let runtime = builder.existing(u64::from(geometry.subpages) * 4096).build().unwrap();
    runtime.run(move |m| (0..geometry.subpages).try_for_each(|n| m.store(word(n), 1))).unwrap();
    let first = runtime.sync().unwrap().token;
    pool.leave_for_sync(runtime.frames());
    for round in 2..5 {
        let begin = |job: u32| {
            let options = JobOptions::new().name("writes").worker(job as usize % workers);
            let job = runtime.submit_with(&options, move |m| -> Result<(), AccessError> {
                for n in 0..geometry.subpages {
                    // No two write to the same one at a time.
                    m.store(word((n * JOBS + job) % geometry.subpages), round)?;
                    m.yield_now()?;
                }
                Ok(())
            });
            job.unwrap()
        };
        let jobs: Vec<_> = (0..JOBS).map(begin).collect();
        for job in jobs {
            let told = job.wait().unwrap();
            let full = matches!(told, Err(AccessError::Flash { source: FlashError::NoSpace, .. }));
            assert!(full, "each writes as much as there is data: {told:?}");
        }
        pool.set_syncing(true);
        let synced = runtime.sync();
        pool.set_syncing(false);
        assert!(synced.unwrap().token > first);
        runtime.run(move |m| m.store(word(0), round)).unwrap();
    }
    assert!(pool.audit().is_empty(), "{:?}", pool.audit());
    // What the runtime writes at its end was left for it.
    pool.set_syncing(true);
}

#[test]
fn who_writes_to_a_full_pool_is_told_and_goes_on_after_a_sync() {
    all_are_told(1);
    all_are_told(2);
}
