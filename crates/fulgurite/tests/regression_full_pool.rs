//! Goal: where a pool has no more room than a sync needs, whoever changes something is told, and nobody else: readers go on however many
//! frames are dirty, and a sync can be made, and makes room.
//! Method: pools in memory, with extents of 16 flash pages and of 256, with more room beside the data than DRAM and with less. All of it is
//! written and synced, so that nothing that is overwritten is free before the next sync; then many jobs write until they are told, with
//! fewer frames than data, while others read all of it; on one worker and on two, which save something with each sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulgurite::{AccessError, Address, Context, Durable, JobOptions, Memory, Ptr, Runtime};
use fulgurite_flash::{Flash, FlashError, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

const JOBS: u32 = 64;
/// Written by each sync.
const SAVED: u32 = 16;

fn word(subpage: u32) -> Ptr<u64> {
    Ptr::new(Address::from_linear(u64::from(subpage) * 4096))
}

/// Changes a few subpages with each sync.
struct Saves(AtomicU64);

impl Durable for Saves {
    fn save(&self, context: &mut Context) -> Result<(), AccessError> {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        (0..SAVED).try_for_each(|n| context.store(word(n), count))
    }
    fn reload(&self, _: &mut Context) -> Result<(), AccessError> {
        Ok(())
    }
}

fn only_writers_are_told(extent_pages: u32, data: u32, dram: u64, workers: usize) {
    let what = format!("extents of {extent_pages}, {data} subpages of data, {dram} bytes of DRAM, {workers} workers");
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(8192).unwrap());
    let geometry = Geometry::new(8192, extent_pages, Some(data)).unwrap();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    let flash = Pool::open(medium, StoreConfig::default()).unwrap().0.into_flash();
    let pool = flash.layer().clone();
    let builder = Runtime::builder(Arc::new(flash)).workers(workers).fibers(2 * JOBS as usize).dram(dram);
    let runtime = builder.existing(u64::from(data) * 4096).build().unwrap();
    runtime.keep(Arc::new(Saves(AtomicU64::new(0))));
    pool.leave_for_sync(runtime.frames());
    // With syncs in between, as it may be more than there is room for.
    for first in (0..data).step_by(64) {
        let write = move |m: &mut Context| (first..data.min(first + 64)).try_for_each(|n| m.store(word(n), 1));
        if runtime.run(write).is_err() {
            pool.sync_begins();
            pool.sync_ended(runtime.sync().is_ok());
            runtime.run(write).unwrap_or_else(|e| panic!("{what}: {e} after a sync"));
        }
    }
    pool.sync_begins();
    let mut last = runtime.sync().unwrap().token;
    pool.sync_ended(true);
    for round in 2..5 {
        let begin = |job: u32, writes: bool| {
            let options = JobOptions::new().name("job").worker(job as usize % workers);
            let job = runtime.submit_with(&options, move |m| -> Result<(), AccessError> {
                for n in SAVED..data {
                    // All of it, but not all at the same place.
                    let at = word(SAVED.max((n + job * (data / JOBS)) % data));
                    if writes {
                        m.store(at, round)?;
                    } else {
                        m.load(at)?;
                    }
                    m.yield_now()?;
                }
                Ok(())
            });
            job.unwrap()
        };
        let jobs: Vec<_> = (0..JOBS).map(|job| (begin(job, true), begin(job, false))).collect();
        let (mut told, mut changed) = (0, 0);
        for (writer, reader) in jobs {
            match writer.wait().unwrap() {
                Ok(()) => changed += 1,
                Err(AccessError::Flash { source: FlashError::NoSpace, .. }) => told += 1,
                Err(other) => panic!("{what}: {other}"),
            }
            reader.wait().unwrap().unwrap_or_else(|e| panic!("{what}, round {round}: a reader was told {e}"));
        }
        assert_eq!((told, changed), (JOBS, 0), "{what}: each writes as much as there is data");
        pool.sync_begins();
        let synced = runtime.sync();
        pool.sync_ended(synced.is_ok());
        let token = synced.unwrap_or_else(|e| panic!("{what}, round {round}: a sync was told {e}")).token;
        assert!(token > last);
        last = token;
        runtime.run(move |m| m.store(word(SAVED), round)).unwrap_or_else(|e| panic!("{what}: {e} after a sync"));
    }
    assert!(pool.audit().is_empty(), "{:?}", pool.audit());
}

#[test]
fn with_large_extents_and_more_room_than_dram() {
    only_writers_are_told(256, 4096, 13 << 20, 1);
    only_writers_are_told(256, 4096, 13 << 20, 2);
}
#[test]
fn with_tiny_extents_and_more_room_than_dram() {
    only_writers_are_told(16, 4096, 16 << 20, 1);
    only_writers_are_told(16, 4096, 16 << 20, 2);
}
#[test]
fn with_less_room_than_dram() {
    only_writers_are_told(64, 6400, 20 << 20, 1);
    only_writers_are_told(64, 6400, 20 << 20, 2);
}
