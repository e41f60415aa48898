//! Goal: a host may send any command of the store's with any fields. Each whole entry is answered
//! once, nothing outside the sectors or the data buffer succeeds, and the store stays sound for the
//! next host.
//! Method: seeded streams of all commands with odd ranges, tokens, checksums and flags to a device
//! with a store, many in flight. What must fail follows from the fields. Then an honest host
//! writes, syncs and reads, and the store is audited. For `FULGURITE_FUZZ_SECONDS`, with ever new
//! seeds, which are printed.

use crate::common;
use crate::fuzz;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Driver, Random, arena, fill, stamp_of};
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_store::{Geometry, Permissions, Pool, StoreConfig};
use fulgurite_sys::Notifier;

const DEPTH: usize = 16;
const BUFFER: u32 = 32;
const SECTORS: u32 = 1024;
const PAGE_SECTORS: u64 = 16;

fn store() -> (Layered<Pool>, Arc<Pool>) {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let geometry = Geometry::new(4096, 64, Some(SECTORS)).unwrap();
    Pool::format(&medium, geometry, fulgurite_format::PoolId([7; 16]), 0).unwrap();
    let mut config = StoreConfig::default();
    config.keep_tokens = 4;
    let store = Pool::open(medium, config).unwrap().0.into_flash();
    let pool = store.layer().clone();
    (store, pool)
}

/// A number of 32 bits that a field may be meant to break with, or a sound one.
fn odd(random: &mut Random, sound: u64) -> u32 {
    match random.below(12) {
        0 => u32::MAX - random.below(4) as u32,
        1 => 1 << random.below(32),
        2 => random.next() as u32,
        _ => random.below(sound) as u32,
    }
}

fn any(random: &mut Random, token: u64) -> Command {
    let opcode = match random.below(20) {
        0 => random.next() as u8,
        _ => Opcode::ALL[random.below(Opcode::ALL.len() as u64) as usize] as u8,
    };
    Command {
        id: random.below(DEPTH as u64) as u16,
        opcode,
        flags: if random.below(8) == 0 { random.next() as u8 & 0x7F } else { 0 },
        sector: if random.below(12) == 0 { random.next() } else { u64::from(odd(random, SECTORS.into())) },
        count: odd(random, 2 * PAGE_SECTORS + 1),
        buffer: odd(random, BUFFER.into()),
        // A token, permissions, a checksum.
        argument: match random.below(4) {
            0 => random.next(),
            1 => random.below(8),
            _ => token.saturating_sub(random.below(6)),
        },
    }
}

/// Whether a command cannot succeed, by its fields alone.
fn must_fail(c: &Command) -> bool {
    let (count, sector, buffer) = (u128::from(c.count), u128::from(c.sector), u128::from(c.buffer));
    let sectors = sector + count > SECTORS.into();
    let in_buffer = buffer + count > BUFFER.into();
    match Opcode::of(c.opcode) {
        None => true,
        Some(_) if c.flags & !(SAY_CHECKSUM | VERIFY_CHECKSUM) != 0 => true,
        Some(Opcode::Read | Opcode::Write | Opcode::ReadAt) => count == 0 || sectors || in_buffer,
        Some(Opcode::Trim | Opcode::Allocate | Opcode::Delete | Opcode::SetPermissions) => count == 0 || sectors,
        Some(Opcode::Pages) => count == 0 || sector >= SECTORS.into() || in_buffer,
        Some(Opcode::Identify | Opcode::Standing) => count != 1 || in_buffer,
        Some(Opcode::Tokens | Opcode::Pinned | Opcode::Dropped) => count == 0 || in_buffer,
        Some(_) => false,
    }
}

/// Waits for an answer; returns none where nothing is under way.
fn ended(
    completions: &mut Consumer<COMPLETION_WORDS>,
    under_way: &mut HashMap<u16, Command>,
    what: &str,
) -> Option<(Command, Ended)> {
    let begun = Instant::now();
    while !under_way.is_empty() {
        if let Some(entry) = completions.pop() {
            let ended = Ended::unpack(entry.expect("the device writes whole entries"));
            let command = under_way.remove(&ended.id).unwrap_or_else(|| panic!("{what}: {ended:?} was not under way"));
            return Some((command, ended));
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}: never answered: {under_way:?}");
        std::thread::yield_now();
    }
    None
}

fn commands(seed: u64) -> u64 {
    const STEPS: u32 = 2000;
    let what = format!("seed {seed}");
    let (layered, pool) = store();
    let device = Arc::new(Device::start_store(layered, DeviceConfig::default()).unwrap());
    let wake = Arc::new(Notifier::new().unwrap());
    let linked = Link::open(
        &*device,
        &Want { depth: DEPTH, buffer_sectors: BUFFER, frames: None, wake: &wake, identity: HostIdentity::default() },
    )
    .unwrap();
    let (mut submissions, mut completions) = linked.region.host_ends(linked.pair);
    let (mut random, mut under_way) = (Random(seed), HashMap::new());
    let (mut token, mut succeeded, mut sent) = (0, 0, 0);
    for _ in 0..STEPS {
        let command = any(&mut random, token);
        if under_way.len() < DEPTH && !under_way.contains_key(&command.id) {
            submissions.push(command.pack());
            linked.doorbell.wake();
            under_way.insert(command.id, command);
            sent += 1;
            continue;
        }
        let Some((command, ended)) = ended(&mut completions, &mut under_way, &what) else { continue };
        let done = ended.status == Status::SUCCESS;
        assert!(!(done && must_fail(&command)), "{what}: {command:?} succeeded");
        succeeded += u32::from(done);
        if done && matches!(Opcode::of(command.opcode), Some(Opcode::Sync | Opcode::Name)) {
            token = token.max(ended.result);
        }
    }
    while ended(&mut completions, &mut under_way, &what).is_some() {}
    assert!(completions.pop().is_none() && succeeded > 100, "{what}: {succeeded} succeeded");
    drop(linked);
    // The next host finds a store that works.
    let flash = DeviceFlash::over(device, HostConfig::default());
    let frames = arena(2);
    let mut memory = flash.commands(2, 16).unwrap();
    memory
        .set_permissions(0..SECTORS / PAGE_SECTORS as u32, Permissions::DEFAULT)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    memory.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut queue = Driver::new(&flash, &frames, 2);
    for sector in [0, 5, SECTORS - 1] {
        fill(&frames, 0, u64::from(sector) + 1);
        queue.one(Op::Write, sector, 0).unwrap_or_else(|e| panic!("{what}: {e}"));
        queue.one(Op::Read, sector, 1).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(stamp_of(&frames, 1), Some(u64::from(sector) + 1), "{what}");
    }
    memory.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(pool.audit().is_empty(), "{what}: {:?}", pool.audit());
    sent
}

#[test]
fn any_command_of_the_store_is_answered_and_leaves_it_sound() {
    fuzz::fuzz("commands of a hostile host to a store", commands);
}
