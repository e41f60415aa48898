//! Goal: a pool that fills up in the middle of a put leaves the old value, readers go on, and after
//! a sync there is room again. Method: values far larger than DRAM are replaced without a sync
//! until the pool says that it is full, in the middle of a value, and everything is read and
//! compared. Then a sync, and all is written once more. Syncs and roll backs come in the middle of
//! values that are written in parts, which no reader sees then, and which cost no space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::{AccessError, Blobs, Durability, Fulgurite, Medium, Rooted};

type Map = Arc<Rooted<Blobs<u64>>>;

const KEYS: u64 = 4;
const BYTES: usize = 3 << 20;

fn value(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().repeat(BYTES / 8)
}

#[test]
fn a_full_pool_leaves_the_old_value() {
    let directory = tempfile::tempdir().unwrap();
    let medium = Medium::new_pool(directory.path().join("pool"), "32M");
    // Only the test syncs.
    let memory = Fulgurite::builder(medium).dram("8M").durability(Durability::Sync).start().unwrap();
    let blobs = memory.named("blobs").blobs::<u64>(100, 16 << 20).unwrap();
    let mut current = [0; KEYS as usize];
    let put = |key: u64, number: u64| {
        let blobs = blobs.clone();
        memory.run(move |m| blobs.put(m, &key, &value(number)))
    };
    for key in 0..KEYS {
        assert_eq!(put(key, key), Ok(false));
        current[key as usize] = key;
    }
    memory.sync().unwrap();
    let mut refused = 0;
    for round in 1..4 {
        for number in (round * 100..).take(40) {
            let key = number % KEYS;
            match put(key, number) {
                Ok(replaced) => {
                    assert!(replaced);
                    current[key as usize] = number;
                }
                Err(AccessError::PoolFull { .. }) => {
                    refused += 1;
                    break;
                }
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        for (key, number) in current.iter().enumerate() {
            let its = blobs.clone();
            let found = memory.run(move |m| {
                let mut found = Vec::new();
                its.get(m, &(key as u64), &mut found)?;
                Ok(found)
            });
            assert!(found.unwrap() == value(*number), "round {round}: key {key} is not what was put last");
        }
        memory.sync().unwrap();
    }
    // How often depends on what the syncs between have given back.
    println!("the pool filled up in {refused} rounds of three");
    assert!(refused > 0, "the pool never filled up");
    let its = blobs.clone();
    assert_eq!(memory.run(move |m| its.check(m)), Ok((KEYS, KEYS * BYTES as u64)));
}

/// A job writes half of a value, waits until it is notified, and goes on. Returns what became of
/// it.
fn in_halves(memory: &Fulgurite, blobs: &Map, number: u64, between: impl FnOnce()) -> Result<bool, AccessError> {
    let (half, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let job = {
        let (blobs, half, go_on) = (blobs.clone(), half.clone(), go_on.clone());
        memory.submit(move |m| {
            let new = value(number);
            let mut writer = blobs.writer(m, new.len())?;
            writer.write(m, &new[..BYTES / 2])?;
            half.store(true, Ordering::SeqCst);
            while !go_on.load(Ordering::SeqCst) {
                m.yield_now()?;
            }
            writer.write(m, &new[BYTES / 2..])?;
            writer.finish(m, &1)
        })
    };
    let job = job.unwrap();
    while !half.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    between();
    go_on.store(true, Ordering::SeqCst);
    job.wait().unwrap()
}

#[test]
fn a_sync_and_a_roll_back_wait_for_no_value_that_is_written_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let open = |medium| {
        let memory = Fulgurite::builder(medium).dram("8M").start().unwrap();
        let blobs: Map = memory.named("blobs").blobs::<u64>(100, 16 << 20).unwrap();
        (memory, blobs)
    };
    let (memory, blobs) = open(Medium::new_pool(&path, "64M"));
    let is = |memory: &Fulgurite, blobs: &Map, number: u64| {
        let mut found = Vec::new();
        memory.run(|m| blobs.get(m, &1, &mut found)).unwrap() && found == value(number)
    };
    memory.run(|m| blobs.put(m, &1, &value(1))).unwrap();
    let put = in_halves(&memory, &blobs, 2, || {
        memory.sync().unwrap();
        assert!(is(&memory, &blobs, 1), "nobody sees a half");
    });
    assert_eq!(put, Ok(true));
    assert!(is(&memory, &blobs, 2));
    let used = blobs.heap().used_bytes();
    let put = in_halves(&memory, &blobs, 3, || {
        let token = memory.sync().unwrap();
        memory.roll_back(token).unwrap();
    });
    assert!(matches!(put, Err(AccessError::ValueGone { .. })), "{put:?}");
    assert!(is(&memory, &blobs, 2));
    let put = in_halves(&memory, &blobs, 4, || _ = memory.sync().unwrap());
    assert_eq!(put, Ok(true));
    memory.sync().unwrap();
    drop((memory, blobs));
    let (memory, blobs) = open(Medium::pool(&path));
    let reads = || memory.runtime().statistics().device.reads;
    let before = reads();
    const PUTS: u64 = 20;
    for number in 5..5 + PUTS {
        memory.run(|m| blobs.put(m, &1, &value(number))).unwrap();
        memory.sync().unwrap();
    }
    // Half a subpage read for each that was written would mean that what is overwritten is read.
    let (read, written) = (reads() - before, PUTS * BYTES as u64 / 4096);
    assert!(read < written / 2, "{read} subpages read, {written} overwritten");
    assert!(is(&memory, &blobs, 4 + PUTS));
    assert_eq!(blobs.heap().used_bytes(), used);
    assert_eq!(memory.run(|m| blobs.check(m)), Ok((1, BYTES as u64)));
}
