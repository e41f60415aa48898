//! Goal: a device on the store takes writes without a flush for ever: unflushed writes never fill
//! it.
//! Method: the device's flash is written many times at random, in a store that is as full as may
//! be, by queues and commands without a flush. Then everything is read back. Seeds are printed.

use crate::common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

/// Flash pages below the store.
const PAGES: u32 = 1024;

#[test]
fn a_host_that_never_flushes_never_hears_that_there_is_no_space() {
    let seed = seed();
    println!("seed {seed}");
    // As many sectors as the flash has room for, and fewer.
    let most = Geometry::new(PAGES, 32, None).unwrap().subpages;
    for sectors in [most, most / 2] {
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(PAGES).unwrap());
        Pool::format(&medium, Geometry::new(PAGES, 32, Some(sectors)).unwrap(), PoolId([5; 16]), 0).unwrap();
        let (pool, _) = Pool::open(medium, StoreConfig::default()).unwrap();
        let flash =
            DeviceFlash::start_store(pool.into_flash(), DeviceConfig::default(), HostConfig::default()).unwrap();
        let frames = arena(8);
        let mut queue = Driver::new(&flash, &frames, 8);
        let mut commands = flash.commands(2, 8).unwrap();
        let (mut random, mut written) = (Random(seed), BTreeMap::new());
        // All of it belongs to the state of a flush, which stays until there is another one.
        for sector in 0..sectors {
            fill(&frames, 0, u64::from(sector) + 1);
            queue.one(Op::Write, sector, 0).unwrap();
            written.insert(sector, u64::from(sector) + 1);
        }
        queue.one(Op::Flush, 0, 0).unwrap();
        for round in 0..1000 {
            for frame in 0..8 {
                let (sector, stamp) = (random.below(sectors) / 8 * 8 + frame, random.next());
                if sector < sectors {
                    fill(&frames, frame, stamp);
                    queue.submit(Op::Write, sector, frame);
                    written.insert(sector, stamp);
                }
            }
            let ended = queue.finish_all();
            assert!(ended.values().all(|result| result.is_ok()), "{sectors} sectors, round {round}: {ended:?}");
            let (sector, stamp) = (random.below(sectors), random.next());
            fill(&frames, 0, stamp);
            let mut bytes = [0; SECTOR_BYTES];
            frames.read(0, &mut bytes);
            assert_eq!(commands.write(sector, &bytes), Ok(()), "{sectors} sectors, round {round}");
            written.insert(sector, stamp);
        }
        for (&sector, &stamp) in &written {
            queue.one(Op::Read, sector, 0).unwrap();
            assert_eq!(stamp_of(&frames, 0), Some(stamp), "sector {sector}");
        }
    }
}
