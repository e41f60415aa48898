//! Goal: a device is a medium like any other: it keeps the contract of `Flash` and `Queue`, with
//! shared or copied frames, over memory, an emulated device and the journaled store.
//! Method: the suite that every medium passes, also under decorators. The store, whose counts are
//! its own, passes the part that compares with a map. Seeds are printed.

use crate::common;
use crate::suite;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_store::{Geometry, Pool, StoreConfig};
use suite::{SUBPAGES, conform, conform_decorated, model};

fn device(flash: impl Flash + 'static, copies: bool) -> DeviceFlash {
    // Where nothing is copied there is nothing to check.
    let host = HostConfig { copies, checks_data: true, ..HostConfig::default() };
    DeviceFlash::start(Arc::new(flash), DeviceConfig::default(), host).unwrap()
}

#[test]
fn devices_over_memory_conform() {
    for copies in [false, true] {
        conform_decorated(|subpages| device(MemoryFlash::new(subpages).unwrap(), copies), seed());
    }
}

#[test]
fn devices_over_slow_media_conform() {
    let latency = Duration::from_micros(2);
    let config = EmulatedConfig {
        read_latency: latency,
        write_latency: 2 * latency,
        planes: 3,
        ..EmulatedConfig::new(SUBPAGES)
    };
    for copies in [false, true] {
        conform(&device(EmulatedFlash::new(config.clone()).unwrap(), copies), seed());
        let plan = FaultPlan { seed: seed(), reorder: true, ..FaultPlan::default() };
        conform(&device(FaultyFlash::new(MemoryFlash::new(SUBPAGES).unwrap(), plan), copies), seed());
    }
}

#[test]
fn devices_with_a_write_buffer_conform() {
    let latency = Duration::from_micros(20);
    let config = EmulatedConfig { read_latency: latency, write_latency: 2 * latency, ..EmulatedConfig::new(SUBPAGES) };
    let make = |subpages| CachedFlash::new(Arc::new(MemoryFlash::new(subpages).unwrap()), 5).unwrap();
    conform_decorated(make, seed());
    for sectors in [1, 5, 300] {
        let firmware = FirmwareConfig { write_cache: sectors, keeps_writes: true, ..FirmwareConfig::default() };
        let device = DeviceConfig { firmware, ..DeviceConfig::default() };
        for medium in [
            Arc::new(MemoryFlash::new(SUBPAGES).unwrap()) as Arc<dyn Flash>,
            Arc::new(EmulatedFlash::new(config.clone()).unwrap()),
        ] {
            conform(&DeviceFlash::start(medium, device.clone(), HostConfig::default()).unwrap(), seed());
        }
    }
}

/// A write is acknowledged before it is programmed, a flush only afterwards. Reads come from the
/// buffer. After a failed program the flush and all that follows fail.
#[test]
fn a_buffered_write_is_durable_by_a_flush_alone() {
    let fails = Rule { op: Some(Op::Write), when: When::Nth(2), fault: Fault::Fails(FlashError::Io(5)) };
    let late = Rule { op: Some(Op::Write), when: When::Nth(1), fault: Fault::Late { polls: 50 } };
    let plan = FaultPlan { rules: vec![late, fails], ..FaultPlan::default() };
    let faulty = Arc::new(FaultyFlash::new(MemoryFlash::new(SUBPAGES).unwrap(), plan));
    let cached = CachedFlash::new(faulty.clone(), 4).unwrap();
    let frames = arena(2);
    let mut queue = Driver::new(&cached, &frames, 2);
    fill(&frames, 0, 5);
    queue.submit(Op::Write, 7, 0);
    queue.queue.flush().unwrap();
    let mut ended = Vec::new();
    assert_eq!(queue.queue.poll(&mut ended), 1, "acknowledged while it is being programmed");
    assert_eq!(queue.one(Op::Read, 7, 1), Ok(()));
    assert_eq!(stamp_of(&frames, 1), Some(5));
    assert_eq!(queue.one(Op::Flush, 0, 0), Ok(()));
    assert_eq!(cached.counters().writes, 1, "the flush waited for the program");
    // The second program fails.
    fill(&frames, 0, 6);
    assert_eq!(queue.one(Op::Write, 7, 0), Ok(()));
    assert_eq!(queue.one(Op::Flush, 0, 0), Err(FlashError::Io(5)));
    assert_eq!(queue.one(Op::Write, 8, 0), Err(FlashError::Io(5)));
    assert_eq!(queue.one(Op::Read, 7, 1), Ok(()));
    assert_eq!(stamp_of(&frames, 1), Some(6), "what was acknowledged is read");
}

/// A sync of a store would name a state that is still in the buffer.
#[test]
fn a_store_has_no_write_buffer_before_it() {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let geometry = Geometry::new(medium.subpages(), 64, Some(1024)).unwrap();
    Pool::format(&medium, geometry, fulgurite_format::PoolId([7; 16]), 0).unwrap();
    let store = || Pool::open(medium.clone(), StoreConfig::default()).unwrap().0.into_flash();
    let firmware = FirmwareConfig { write_cache: 4, ..FirmwareConfig::default() };
    let buffered = DeviceConfig { firmware, ..DeviceConfig::default() };
    let refused = DeviceFlash::start_store(store(), buffered.clone(), HostConfig::default()).unwrap_err();
    assert!(refused.to_string().contains("start it without one"), "{refused}");
    assert!(CachedFlash::new(Arc::new(store()), 4).is_err());
    assert!(DeviceFlash::start_store(store(), DeviceConfig::default(), HostConfig::default()).is_ok());
}

#[test]
fn a_device_over_a_device_conforms() {
    let inner = device(MemoryFlash::new(SUBPAGES).unwrap(), true);
    conform(&device(inner, false), seed());
}

#[test]
fn the_store_is_the_translation_layer() {
    let seed = seed();
    println!("seed {seed}");
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let geometry = Geometry::new(medium.subpages(), 64, Some(1024)).unwrap();
    Pool::format(&medium, geometry, fulgurite_format::PoolId([7; 16]), 0).unwrap();
    let (pool, _) = Pool::open(medium, StoreConfig::default()).unwrap();
    let sectors = pool.geometry().subpages;
    assert!(sectors >= SUBPAGES);
    let flash = device(pool.into_flash(), false);
    for depth in [1, 2, 64] {
        model(&flash, depth, 600, seed ^ depth as u64);
    }
    let frames = arena(2);
    let mut queue = Driver::new(&flash, &frames, 2);
    fill(&frames, 0, seed | 1);
    queue.one(Op::Write, sectors - 1, 0).unwrap();
    queue.one(Op::Flush, 0, 0).unwrap();
    queue.one(Op::Read, sectors - 1, 1).unwrap();
    assert_eq!(stamp_of(&frames, 1), Some(seed | 1));
}
