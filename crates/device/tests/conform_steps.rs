//! Goal: the protocol has the nine steps of the paper's figure 2, in this order, each done by its
//! side. Each field out of range is refused by the right code.
//! Method: a firmware is turned by hand, one step at a time, and the memory is read in between.

use crate::hand as common;

use std::sync::atomic::Ordering;

use common::*;
use fulgurite_device::*;

#[test]
fn nine_steps() {
    let flash = memory();
    let mut bench = Bench::new(flash.clone(), FirmwareConfig::default());
    let stored = |sector: u32| {
        let mut byte = [0];
        flash.storage().read(sector as usize * SECTOR_BYTES, &mut byte);
        byte[0]
    };
    // 1: the data of a write, before 2: its entry.
    bench.put(3, 0xA5);
    bench.submit(command(2, Opcode::Write, 7, 1, 3));
    assert_eq!((stored(7), bench.completions.ready()), (0, false), "nothing happens before the device polls");
    // 3 to 5. Nobody sleeps, so that 6 is nothing.
    assert!(bench.firmware.has_news());
    bench.firmware.turn();
    assert!(!bench.firmware.has_news());
    assert_eq!((stored(7), bench.woken.0.load(Ordering::Relaxed)), (0xA5, 0));
    // 7 and 8.
    assert_eq!(bench.ended(), Some(Ended { id: 2, status: Status::SUCCESS, result: 0 }));
    assert_eq!(bench.ended(), None);
    // A read, by a host that sleeps: it is woken (6) after the completion is there (5), once.
    bench.submit(command(0, Opcode::Read, 7, 1, 0));
    bench.region.host_bell(0).goes_to_sleep();
    assert_eq!(bench.get(0), 0);
    bench.firmware.turn();
    assert_eq!(bench.woken.0.load(Ordering::Relaxed), 1);
    assert!(bench.completions.ready());
    bench.firmware.turn();
    assert_eq!(bench.woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(bench.ended().map(|ended| ended.status), Some(Status::SUCCESS));
    // 9: the data are there when the completion is.
    assert_eq!(bench.get(0), 0xA5);
}

#[test]
fn the_doorbell_is_for_who_sleeps() {
    let bench = Bench::new(memory(), FirmwareConfig::default());
    let doorbell = bench.region.doorbell();
    assert!(!doorbell.must_wake());
    bench.firmware.set_sleeping(true);
    assert!(doorbell.must_wake(), "the device sleeps");
    assert!(!doorbell.must_wake(), "it was rung for already");
    bench.firmware.set_sleeping(true);
    bench.firmware.set_sleeping(false);
    assert!(!doorbell.must_wake(), "it is awake");
}

#[test]
fn commands_of_several_sectors_are_split_and_put_together() {
    // A medium that takes four at a time: the fifth sector waits.
    let config = FirmwareConfig { requests_max: 1, ..FirmwareConfig::default() };
    let mut bench = Bench::new(memory(), config);
    for sector in 0..BUFFER {
        bench.put(sector, 10 + sector as u8);
    }
    assert_eq!(bench.run(command(0, Opcode::Write, 20, BUFFER, 0)).status, Status::SUCCESS);
    for sector in 0..BUFFER {
        bench.put(sector, 0);
    }
    assert_eq!(bench.run(command(1, Opcode::Read, 21, 5, 2)).status, Status::SUCCESS);
    let read: Vec<u8> = (0..BUFFER).map(|sector| bench.get(sector)).collect();
    assert_eq!(read, [0, 0, 11, 12, 13, 14, 15, 0]);
    assert_eq!(bench.firmware.backend().counters().sectors_read(), 5);
    assert_eq!(bench.firmware.backend().counters().sectors_written(), u64::from(BUFFER));
}

#[test]
fn each_field_is_refused_by_its_code() {
    let config = FirmwareConfig { command_sectors: 6, ..FirmwareConfig::default() };
    let mut bench = Bench::new(memory(), config);
    let end = u64::from(SECTORS);
    for (sector, count, buffer, status) in [
        (0, 0, 0, Status::INVALID_FIELD),
        (0, 7, 0, Status::INVALID_FIELD),
        (0, u32::MAX, 0, Status::INVALID_FIELD),
        (end, 1, 0, Status::SECTOR_RANGE),
        (end - 1, 2, 0, Status::SECTOR_RANGE),
        (u64::MAX, 1, 0, Status::SECTOR_RANGE),
        (u64::MAX - 1, 6, 0, Status::SECTOR_RANGE),
        (1 << 32, 1, 0, Status::SECTOR_RANGE),
        (0, 1, BUFFER, Status::BUFFER_RANGE),
        (0, 2, BUFFER - 1, Status::BUFFER_RANGE),
        (0, 6, u32::MAX, Status::BUFFER_RANGE),
        (0, 1, u32::MAX, Status::BUFFER_RANGE),
        (end - 1, 1, BUFFER - 1, Status::SUCCESS),
    ] {
        for opcode in [Opcode::Read, Opcode::Write] {
            let ended = bench.run(command(1, opcode, sector, count, buffer));
            assert_eq!((ended.id, ended.status), (1, status), "{opcode:?} of {count} at {sector}, buffer {buffer}");
        }
    }
    for opcode in [0x03, 0x7F, 0xFF] {
        let ended = bench.run(Command { opcode, ..command(3, Opcode::Read, 0, 1, 0) });
        assert_eq!((ended.id, ended.status), (3, Status::INVALID_OPCODE));
    }
    for flags in [4, 0x40, 0x7F] {
        let ended = bench.run(Command { flags, ..command(3, Opcode::Read, 0, 1, 0) });
        assert_eq!(ended.status, Status::INVALID_FIELD);
    }
    // Ids that are too large cannot be answered by themselves.
    for id in [DEPTH as u16, NO_ID, NO_ID - 1] {
        let ended = bench.run(command(id, Opcode::Read, 0, 1, 0));
        assert_eq!(ended, Ended { id: NO_ID, status: Status::ID_CONFLICT, result: id.into() });
    }
}

#[test]
fn an_id_in_use_is_refused_and_the_command_that_has_it_goes_on() {
    use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, MemoryFlash, Rule, When};
    let late = Rule { op: None, when: When::Nth(1), fault: Fault::Late { polls: 3 } };
    let plan = FaultPlan { rules: vec![late], ..FaultPlan::default() };
    let flash = FaultyFlash::new(MemoryFlash::new(SECTORS).unwrap(), plan);
    let mut bench = Bench::new(std::sync::Arc::new(flash), FirmwareConfig::default());
    bench.submit(command(2, Opcode::Read, 0, 1, 0));
    bench.submit(command(2, Opcode::Read, 1, 1, 1));
    bench.firmware.turn();
    assert_eq!(bench.ended(), Some(Ended { id: NO_ID, status: Status::ID_CONFLICT, result: 2 }));
    assert_eq!(bench.ended(), None);
    for _ in 0..5 {
        bench.firmware.turn();
    }
    assert_eq!(bench.ended(), Some(Ended { id: 2, status: Status::SUCCESS, result: 0 }));
    // By then it is free.
    assert_eq!(bench.run(command(2, Opcode::Read, 1, 1, 1)).status, Status::SUCCESS);
}

#[test]
fn checksums_travel_in_the_entries() {
    let mut bench = Bench::new(memory(), FirmwareConfig::default());
    bench.put(0, 1);
    bench.put(1, 2);
    let sum = |byte| fulgurite_format::crc32c(&[byte; SECTOR_BYTES]);
    let both: Vec<u8> = [sum(1), sum(2)].into_iter().flat_map(u32::to_le_bytes).collect();
    let (one, two) = (u64::from(sum(1)), u64::from(fulgurite_format::crc32c(&both)));
    let flags = SAY_CHECKSUM | VERIFY_CHECKSUM;
    for (count, checksum) in [(1, one), (2, two)] {
        let write = Command { flags, argument: checksum, ..command(0, Opcode::Write, 4, count, 0) };
        assert_eq!(bench.run(write), Ended { id: 0, status: Status::SUCCESS, result: checksum });
        let read = Command { flags: SAY_CHECKSUM, ..command(1, Opcode::Read, 4, count, 4) };
        assert_eq!(bench.run(read), Ended { id: 1, status: Status::SUCCESS, result: checksum });
        // A wrong one: nothing is written.
        bench.put(7, 9);
        let wrong = Command { flags, argument: checksum, ..command(0, Opcode::Write, 4, 1, 7) };
        assert_eq!(bench.run(wrong).status, Status::WRONG_CHECKSUM);
        assert_eq!(bench.run(read), Ended { id: 1, status: Status::SUCCESS, result: checksum });
        // A read has nothing to verify.
        let read = Command { flags: VERIFY_CHECKSUM, ..command(1, Opcode::Read, 4, 1, 4) };
        assert_eq!(bench.run(read).status, Status::INVALID_FIELD);
    }
}

#[test]
fn the_device_says_who_it_is() {
    let mut bench = Bench::new(memory(), FirmwareConfig::default());
    assert_eq!(bench.run(command(0, Opcode::Identify, 0, 1, 5)).status, Status::SUCCESS);
    let mut bytes = [0; SECTOR_BYTES];
    bench.region.arena().read(bench.at(5), &mut bytes);
    let identity = Identity::of(&bytes).unwrap();
    assert_eq!((identity.sectors, identity.instance), (SECTORS, 1));
    assert!(identity.description.starts_with("memory"));
    for (count, buffer, status) in
        [(0, 0, Status::INVALID_FIELD), (2, 0, Status::INVALID_FIELD), (1, BUFFER, Status::BUFFER_RANGE)]
    {
        assert_eq!(bench.run(command(0, Opcode::Identify, 0, count, buffer)).status, status);
    }
    assert_eq!(bench.run(command(0, Opcode::Flush, 0, 0, 0)).status, Status::SUCCESS);
    assert_eq!(bench.firmware.backend().counters().flushes(), 1);
}
