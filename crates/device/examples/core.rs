//! What the device's own core costs: requests a second that it can serve when nothing else limits
//! them.
//!
//! ```text
//! core [SECONDS [CORE_OF_THE_HOST CORE_OF_THE_DEVICE]]
//! ```
//!
//! A host keeps a fixed number of requests in flight: reads of random subpages, each followed by a
//! write of another one. The media behind the protocol are memory; NAND whose times are almost
//! zero, which leaves the cost of the model; the journaled store over that, 60% full; and both over
//! SLC NAND in real time, 80% full.

use std::sync::Arc;

use fulgurite_device::{DeviceConfig, DeviceFlash, HostConfig, SECTOR_BYTES};
use fulgurite_flash::{Flash, MemoryFlash, Mover, NandFlash, Op, Slot};
use fulgurite_format::PoolId;
use fulgurite_nand::{FilConfig, Profile};
use fulgurite_store::{Durability, Geometry, Pool, StoreConfig};
use fulgurite_sys::{Clock, affinity};

type Failure = Box<dyn std::error::Error>;

/// Bytes of the NAND.
const BYTES: u64 = 1 << 30;

fn main() -> Result<(), Failure> {
    let cores = affinity::cores();
    let seconds = std::env::args().nth(1).map_or(Ok(1.0), |s| s.parse::<f64>())?;
    let core = |i: usize| std::env::args().nth(i + 2).map_or(Ok(cores[i % cores.len()]), |c| c.parse());
    let (host, core) = (core(0)?, core(1)?);
    affinity::pin(host)?;
    let config = || DeviceConfig { core: Some(core), ..DeviceConfig::default() };
    println!(
        "{:<34} {:>6} {:>8} {:>12} {:>12}",
        "behind the protocol", "depth", "writes", "requests/s", "ns a request"
    );
    let show = |what: &str, flash: &DeviceFlash, subpages: u32| -> Result<(), Failure> {
        for (depth, write_every) in [(32, 0), (128, 0), (128, 2)] {
            let rate = run(flash, subpages, depth, write_every, seconds)?;
            let writes = if write_every == 0 { "none" } else { "half" };
            println!("{what:<34} {depth:>6} {writes:>8} {rate:>12.0} {:>12.0}", 1e9 / rate);
        }
        Ok(())
    };
    let memory = || MemoryFlash::new((BYTES / SECTOR_BYTES as u64) as u32 * 5 / 4).map(Arc::new);
    let flat = DeviceFlash::start(memory()?, config(), HostConfig::default())?;
    fill(&flat, 1 << 16)?;
    show("memory", &flat, 1 << 16)?;
    drop(flat);
    let mut quick = Profile::built_in("slc")?.scaled(BYTES, 64)?;
    (quick.timing.command_ns, quick.timing.read_ns) = (1, 1);
    (quick.timing.program_ns, quick.timing.erase_ns) = (1, 1);
    quick.timing.bus_bytes_per_second = 1_000_000_000_000;
    let slc = Profile::built_in("slc")?.scaled(BYTES, 256)?;
    for (what, profile, share) in [("quick NAND", quick, 60), ("SLC NAND, 256 planes", slc, 80)] {
        let config_of_fil = FilConfig { planes_per_extent: 32, ..FilConfig::default() };
        let nand = || NandFlash::new(memory()?, profile, config_of_fil).map(Arc::new);
        if share < 80 {
            // Only reads: what is written in any order is no work for bare NAND.
            let bare = DeviceFlash::start(nand()?, config(), HostConfig::default())?;
            fill(&bare, 1 << 16)?;
            for depth in [32, 128] {
                let rate = run(&bare, 1 << 16, depth, 0, seconds)?;
                println!("{what:<34} {depth:>6} {:>8} {rate:>12.0} {:>12.0}", "none", 1e9 / rate);
            }
        }
        let nand = nand()?;
        let subpages = (u64::from(nand.subpages()) * share / 100) as u32 / 16 * 16;
        let medium: Arc<dyn Flash> = nand.clone();
        let geometry = Geometry::new(medium.subpages(), nand.extent_pages(), Some(subpages))?;
        Pool::format(&medium, geometry, PoolId([7; 16]), 0)?;
        let mut of_store = StoreConfig::default();
        of_store.durability = Durability::Cache;
        let store = Pool::open(medium, of_store)?.0.into_flash();
        let device = DeviceFlash::start(Arc::new(store), config(), HostConfig::default())?;
        fill(&device, subpages)?;
        let before = device.counters();
        show(&format!("store over {what}"), &device, subpages)?;
        let after = device.counters();
        println!(
            "{:<34} moved {} reads and {} writes of flash pages",
            "",
            after.reads - before.reads,
            after.writes - before.writes
        );
    }
    Ok(())
}

fn fill(flash: &DeviceFlash, subpages: u32) -> Result<(), Failure> {
    let mut places = 0..subpages;
    Mover::with_depth(flash, 256)?.run(
        1,
        |_| Ok(places.next().map(|place| (Op::Write, place))),
        |ended| Ok(ended.result?),
    )
}

/// Requests a second.
fn run(flash: &DeviceFlash, subpages: u32, depth: usize, write_every: u64, seconds: f64) -> Result<f64, Failure> {
    let clock = Clock::get();
    let (mut random, mut count, mut done) = (1_u64, 0_u64, 0_u64);
    let mut mover = Mover::with_depth(flash, depth)?;
    let begun = clock.now_ns();
    let end = begun + (seconds * 1e9) as u64;
    let next = |_: Slot<'_>| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        count += 1;
        let op = if write_every > 0 && count.is_multiple_of(write_every) { Op::Write } else { Op::Read };
        let subpage = (((random >> 32) * u64::from(subpages)) >> 32) as u32;
        Ok((clock.now_ns() < end).then_some((op, subpage)))
    };
    mover.run(1, next, |ended| {
        done += 1;
        Ok::<_, Failure>(ended.result?)
    })?;
    Ok(done as f64 * 1e9 / (clock.now_ns() - begun) as f64)
}
