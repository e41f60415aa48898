//! Goal: where a pool has no more room than a sync needs, only changes are refused: readers
//! continue however many frames are dirty, and a sync can be made, and makes room. Method: pools in
//! memory, with extents of 16 flash pages and of 256, with more room next to the data than DRAM and
//! with less. All of it is written and synced, so that nothing overwritten is free before the next
//! sync. Then many jobs write until they are refused, with fewer frames than data, while others
//! read all of it, on one worker and on two, which save something with each sync. Then a worker
//! that was idle since there was room for everything, and whose frames were not asked about yet.
//! And two threads that sync one after the other, each of which saves more than is kept for that at
//! first, while jobs write whenever they may.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fulgurite::{
    AccessError, Address, Context, JobOptions, Memory,
    runtime::{Durable, Runtime},
    views::Ptr,
};
use fulgurite_flash::{Backing, Flash, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

const JOBS: u32 = 64;
/// Written by each sync.
const SAVED: u32 = 16;

fn word(subpage: u32) -> Ptr<u64> {
    Ptr::new(Address::from_linear(u64::from(subpage) * 4096))
}

/// Changes some subpages with each sync.
struct Saves {
    subpages: u32,
    count: AtomicU64,
}

impl Saves {
    fn new(subpages: u32) -> Arc<Saves> {
        Arc::new(Saves { subpages, count: AtomicU64::new(0) })
    }
}

impl Durable for Saves {
    fn save(&self, context: &mut Context) -> Result<(), AccessError> {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        (0..self.subpages).try_for_each(|n| context.store(word(n), count))
    }
    fn reload(&self, _: &mut Context) -> Result<(), AccessError> {
        Ok(())
    }
}

/// Writes all of it. With syncs in between, as it may be more than there is room for.
fn fill(runtime: &Runtime, data: u32, what: &str) {
    for first in (0..data).step_by(64) {
        let write = move |m: &mut Context| (first..data.min(first + 64)).try_for_each(|n| m.store(word(n), 1));
        if runtime.run(write).is_err() {
            let _ = runtime.sync();
            runtime.run(write).unwrap_or_else(|e| panic!("{what}: {e} after a sync"));
        }
    }
}

fn only_writers_get_errors(extent_pages: u32, data: u32, dram: u64, workers: usize) {
    let what = format!("extents of {extent_pages}, {data} subpages of data, {dram} bytes of DRAM, {workers} workers");
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(8192).unwrap());
    let geometry = Geometry::new(8192, extent_pages, Some(data)).unwrap();
    Pool::format(&medium, geometry, PoolId([9; 16]), 0).unwrap();
    let flash = Pool::open(medium, StoreConfig::default()).unwrap().0.into_flash();
    let pool = flash.layer().clone();
    let builder =
        Runtime::builder(Arc::new(flash)).workers(workers).fibers(2 * JOBS as usize).stack(32 << 10).dram(dram);
    let runtime = builder.existing(u64::from(data) * 4096).build().unwrap();
    runtime.keep(Saves::new(SAVED));
    pool.leave_for_sync(runtime.frames());
    fill(&runtime, data, &what);
    let mut last = runtime.sync().unwrap().token;
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
                Err(AccessError::PoolFull { uncommitted: Some(1..), .. }) => told += 1,
                Err(other) => panic!("{what}: {other}"),
            }
            reader.wait().unwrap().unwrap_or_else(|e| panic!("{what}, round {round}: a reader was told {e}"));
        }
        assert_eq!((told, changed), (JOBS, 0), "{what}: each writes as much as there is data");
        let token = runtime.sync().unwrap_or_else(|e| panic!("{what}, round {round}: a sync was told {e}")).token;
        assert!(token > last);
        last = token;
        runtime.run(move |m| m.store(word(SAVED), round)).unwrap_or_else(|e| panic!("{what}: {e} after a sync"));
    }
    assert!(pool.audit().is_empty(), "{:?}", pool.audit());
}

#[test]
fn with_large_extents_and_more_room_than_dram() {
    only_writers_get_errors(256, 4096, 13 << 20, 1);
    only_writers_get_errors(256, 4096, 13 << 20, 2);
}
#[test]
fn with_tiny_extents_and_more_room_than_dram() {
    only_writers_get_errors(16, 4096, 16 << 20, 1);
    only_writers_get_errors(16, 4096, 16 << 20, 2);
}
#[test]
fn with_less_room_than_dram() {
    only_writers_get_errors(64, 6400, 20 << 20, 1);
    only_writers_get_errors(64, 6400, 20 << 20, 2);
}

#[test]
fn what_an_idle_worker_read_while_there_was_room_is_asked_for_too() {
    const DATA: u32 = 4096;
    // The data in the frames of the idle worker, which is the last of all.
    const IDLE: u32 = 1200;
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(9600).unwrap());
    Pool::format(&medium, Geometry::new(9600, 64, Some(DATA)).unwrap(), PoolId([9; 16]), 0).unwrap();
    let flash = Pool::open(medium, StoreConfig::default()).unwrap().0.into_flash();
    let pool = flash.layer().clone();
    let builder = Runtime::builder(Arc::new(flash)).workers(2).fibers(16).dram(13 << 20);
    let runtime = builder.existing(u64::from(DATA) * 4096).build().unwrap();
    pool.leave_for_sync(runtime.frames());
    let on = |worker: usize, subpages: std::ops::Range<u32>, value: Option<u64>| {
        let options = JobOptions::new().name("job").worker(worker);
        let job = runtime.submit_with(&options, move |m| {
            subpages.into_iter().try_for_each(|n| match value {
                Some(value) => m.store(word(n), value),
                None => m.load(word(n)).map(|_| ()),
            })
        });
        job.unwrap().wait().unwrap()
    };
    // All of it has its place, and the idle worker has its part in DRAM.
    on(1, DATA - IDLE..DATA, Some(1)).unwrap();
    on(0, 0..DATA - IDLE, Some(1)).unwrap();
    runtime.sync().unwrap();
    assert!(!pool.asks(), "there is room enough at first");
    // Until there is little, and a sync is made then.
    let mut value = 2;
    while !pool.asks() {
        let _ = on(0, 0..DATA - IDLE, Some(value));
        value += 1;
    }
    runtime.sync().unwrap();
    assert!(pool.asks(), "it was not so much that nobody is asked");
    // One worker takes all that there is; the other wants to change what it has had all the while.
    while on(0, 0..DATA - IDLE, Some(value)).is_ok() {
        value += 1;
    }
    let told = (DATA - IDLE..DATA).filter(|&n| on(1, n..n + 1, Some(value)).is_err()).count() as u32;
    runtime.sync().unwrap_or_else(|e| panic!("a sync was told {e}; of {IDLE} changes of the idle worker {told} were"));
    assert!(told > IDLE / 2, "{told} of {IDLE} changes for which there is no room were told so");
    on(1, DATA - IDLE..DATA, None).unwrap();
}

#[test]
fn two_threads_sync_next_to_writers_that_take_all_they_get() {
    const DATA: u32 = 4096;
    // More than is kept for a sync before it is known how much it saves.
    const SAVES: u32 = 200;
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(8192).unwrap());
    Pool::format(&medium, Geometry::new(8192, 64, Some(DATA)).unwrap(), PoolId([9; 16]), 0).unwrap();
    let flash = Pool::open(medium, StoreConfig::default()).unwrap().0.into_flash();
    let pool = flash.layer().clone();
    let builder = Runtime::builder(Arc::new(flash)).workers(2).fibers(64).stack(32 << 10).dram(13 << 20);
    let runtime = builder.existing(u64::from(DATA) * 4096).build().unwrap();
    runtime.keep(Saves::new(SAVES));
    pool.leave_for_sync(runtime.frames());
    fill(&runtime, DATA, "two threads");
    let stop = Arc::new(AtomicBool::new(false));
    let job = |job: u32, writes: bool| {
        let (options, stop) = (JobOptions::new().name("job").worker(job as usize % 2), stop.clone());
        let job = runtime.submit_with(&options, move |m| -> Result<u64, AccessError> {
            let (mut changed, mut n) = (0, job * 61);
            while !stop.load(Ordering::Relaxed) {
                let at = word(SAVES + n % (DATA - SAVES));
                match if writes { m.store(at, changed) } else { m.load(at).map(|_| ()) } {
                    Ok(()) => changed += 1,
                    Err(AccessError::PoolFull { .. }) if writes => {}
                    Err(error) => return Err(error),
                }
                n += 1;
                m.yield_now()?;
            }
            Ok(changed)
        });
        job.unwrap()
    };
    let jobs: Vec<_> = (0..16).flat_map(|n| [job(n, true), job(n, false)]).collect();
    // How often a sync began while there was little room.
    let asked = AtomicU64::new(0);
    let failed: Vec<_> = std::thread::scope(|scope| {
        let sync = || {
            let next = |_| {
                asked.fetch_add(pool.asks().into(), Ordering::Relaxed);
                runtime.sync().err()
            };
            (0..20).filter_map(next).collect::<Vec<_>>()
        };
        let threads = [scope.spawn(sync), scope.spawn(sync)];
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    stop.store(true, Ordering::Relaxed);
    let changed: u64 =
        jobs.into_iter().map(|job| job.wait().unwrap().unwrap_or_else(|e| panic!("a job was told {e}"))).sum();
    assert!(failed.is_empty(), "{} of 40 syncs were told: {}", failed.len(), failed[0]);
    let asked = asked.into_inner();
    assert!(asked > 0 && changed > 0, "{changed} changes, {asked} syncs while there was little room");
    assert!(pool.audit().is_empty(), "{:?}", pool.audit());
}
