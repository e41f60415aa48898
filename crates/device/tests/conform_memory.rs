//! Goal: the memory operations of the store mean the same through the device: pages, permissions,
//! tokens, pins, roll back, reads of old states, trim; in this process and over a socket. A device
//! without a store refuses them by name.
//! Method: each operation against what it must leave; fields out of range by hand.

use crate::common;
use crate::hand;

use fulgurite_flash::Backing;
use std::sync::Arc;

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_store::{Geometry, Permissions, Pool, StoreConfig};
use hand::command;

fn store() -> Layered<Pool> {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(4096).unwrap());
    let geometry = Geometry::new(4096, 64, Some(1024)).unwrap();
    Pool::format(&medium, geometry, fulgurite_format::PoolId([7; 16]), 0).unwrap();
    let mut config = StoreConfig::default();
    config.keep_tokens = 8;
    Pool::open(medium, config).unwrap().0.into_flash()
}

fn everything(flash: &DeviceFlash) {
    let frames = arena(2);
    let mut queue = Driver::new(flash, &frames, 2);
    let mut commands = flash.commands(2, 16).unwrap();
    let mut write = |sector, stamp| {
        fill(&frames, 0, stamp);
        queue.one(Op::Write, sector, 0)
    };
    // Three states.
    write(5, 11).unwrap();
    let first = commands.sync().unwrap();
    write(5, 12).unwrap();
    write(40, 13).unwrap();
    let second = commands.sync().unwrap();
    assert!(second > first);
    write(5, 14).unwrap();
    assert!(commands.tokens().unwrap().ends_with(&[first, second]));
    let mut queue = Driver::new(flash, &frames, 2);
    let mut now = |sector| queue.one(Op::Read, sector, 1).map(|()| stamp_of(&frames, 1));
    // An old state is read while the live one is there.
    let old = |commands: &mut Commands, token, sector| {
        let mut bytes = [0; SECTOR_BYTES];
        commands.read_at(token, sector, &mut bytes).map(|()| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
    };
    assert_eq!(old(&mut commands, first, 5), Ok(11));
    assert_eq!(old(&mut commands, second, 5), Ok(12));
    assert_eq!(old(&mut commands, first, 40), Ok(0));
    assert_eq!(now(5), Ok(Some(14)));
    // Tokens that there are not.
    let missing = second + 100;
    for result in [commands.pin(missing, true), old(&mut commands, missing, 5).map(|_| ())] {
        assert!(matches!(result, Err(VersionError::NoToken { token, .. }) if token == missing), "{result:?}");
    }
    commands.pin(first, true).unwrap();
    assert_eq!(commands.pinned().unwrap(), [first]);
    commands.pin(first, false).unwrap();
    assert_eq!(commands.pinned().unwrap(), []);
    let standing = commands.standing().unwrap();
    let parts = standing.extents_free + standing.extents_data + standing.extents_metadata + standing.extents_retired;
    assert_eq!((standing.sectors, standing.extents), (flash.subpages().into(), parts));
    assert!(standing.live >= 2 && standing.uncommitted >= 1, "{standing:?}");
    // Through the trait that the runtime uses.
    let versions = flash.versions().unwrap();
    assert_eq!(versions.can_roll_back(first), Ok(()));
    assert!(matches!(versions.can_roll_back(missing), Err(VersionError::NoToken { .. })));
    assert!(matches!(versions.roll_back(missing), Err(VersionError::NoToken { .. })));
    // What is pinned does not go away unasked.
    commands.pin(second, true).unwrap();
    let pinned = Err(VersionError::Pinned { token: first, pinned: second });
    assert_eq!((versions.can_roll_back(first), versions.roll_back(first)), (pinned.clone(), pinned));
    assert_eq!((versions.can_roll_back(second), now(5)), (Ok(()), Ok(Some(14))));
    commands.pin(second, false).unwrap();
    assert_eq!(versions.roll_back(second), Ok(()));
    assert_eq!((now(5), now(40)), (Ok(Some(12)), Ok(Some(13))));
    assert_eq!(versions.roll_back(first), Ok(()));
    assert_eq!(now(5), Ok(Some(11)));
    assert!(!versions.tokens().contains(&second));
    let named = versions.name_state().unwrap();
    assert_eq!(versions.wait_durable(named), Ok(()));
    assert!(versions.wait_durable(named + 1000).is_err(), "nobody waits for what nobody named");

    // Pages. Page 0 has sectors 0 to 15.
    let only_read = Permissions { write: false, ..Permissions::DEFAULT };
    const EXISTS: FlashError = FlashError::Io(17);
    const DENIED: FlashError = FlashError::Io(13);
    assert_eq!(commands.allocate(0..1, only_read), Err(EXISTS));
    assert_eq!(commands.allocate(10..12, Permissions::DEFAULT), Ok(()));
    assert_eq!(commands.allocate(9..11, Permissions::DEFAULT), Err(EXISTS));
    commands.set_permissions(0..1, only_read).unwrap();
    let found = commands.permissions_from(0).unwrap();
    let all: Vec<Option<Permissions>> =
        (0..flash.subpages() / 16).map(|page| commands.permissions(page).unwrap()).collect();
    assert_eq!(found, all);
    assert_eq!(
        (found[0], &found[9..13]),
        (Some(only_read), &[None, Some(Permissions::DEFAULT), Some(Permissions::DEFAULT), None][..])
    );
    assert_eq!(commands.permissions_from(11).unwrap(), found[11..]);
    assert_eq!(commands.permissions_from(flash.subpages() / 16), Err(FlashError::OutOfRange));
    let mut queue = Driver::new(flash, &frames, 2);
    assert_eq!(queue.one(Op::Write, 5, 0), Err(DENIED));
    assert_eq!(commands.write(4, &[1; 4 * SECTOR_BYTES]), Err(DENIED));
    assert_eq!(now(5), Ok(Some(11)));
    assert_eq!(commands.delete(0..1), Err(DENIED));
    assert_eq!(commands.trim(0, 16), Err(DENIED));
    commands.set_permissions(0..1, Permissions { read: false, ..only_read }).unwrap();
    assert_eq!(now(5), Err(DENIED));
    commands.set_permissions(0..1, Permissions::DEFAULT).unwrap();
    // A trim takes whole pages only.
    commands.trim(1, 30).unwrap();
    assert_eq!(now(5), Ok(Some(11)));
    commands.trim(0, 17).unwrap();
    queue.one(Op::Read, 5, 1).unwrap();
    assert_eq!(stamp_of(&frames, 1), None, "zeros are no stamp");
    commands.delete(10..12).unwrap();
    assert_eq!(commands.allocate(10..12, Permissions::DEFAULT), Ok(()));
    let pages = flash.subpages() / 16;
    for range in [pages..pages + 1, 0..pages + 1, u32::MAX - 1..u32::MAX] {
        assert_eq!(commands.delete(range.clone()), Err(FlashError::OutOfRange), "{range:?}");
    }
}

#[test]
fn in_this_process() {
    let device = Arc::new(Device::start_store(store(), DeviceConfig::default()).unwrap());
    for copies in [false, true] {
        everything(&DeviceFlash::on(device.clone(), HostConfig { copies, ..HostConfig::default() }));
        DeviceFlash::on(device.clone(), HostConfig::default()).commands(1, 1).unwrap().delete(10..12).unwrap();
    }
}

#[test]
fn permissions_can_be_left_to_a_host_of_the_same_process() {
    let (first, second) = (5, 40);
    for heeds_permissions in [true, false] {
        let firmware = FirmwareConfig { heeds_permissions, ..FirmwareConfig::default() };
        let config = DeviceConfig { firmware, ..DeviceConfig::default() };
        let flash = DeviceFlash::start_store(store(), config, HostConfig::default()).unwrap();
        let frames = arena(2);
        let mut queue = Driver::new(&flash, &frames, 2);
        fill(&frames, 0, 21);
        queue.one(Op::Write, first, 0).unwrap();
        let only_read = Permissions { write: false, ..Permissions::DEFAULT };
        flash.commands(1, 1).unwrap().set_permissions(0..1, only_read).unwrap();
        // The caller learns it in any case.
        assert!(flash.backing().is_some());
        assert_eq!(
            [first, second].map(|sector| (flash.may(sector, false), flash.may(sector, true))),
            [(true, false), (true, true)]
        );
        // A caller that does not ask is refused, or believed to have asked.
        fill(&frames, 0, 22);
        let written = queue.one(Op::Write, first, 0);
        assert_eq!(written, if heeds_permissions { Err(FlashError::Io(13)) } else { Ok(()) });
        queue.one(Op::Read, first, 1).unwrap();
        assert_eq!(stamp_of(&frames, 1), Some(if heeds_permissions { 21 } else { 22 }));
    }
}

#[test]
fn over_a_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let device = Arc::new(Device::start_store(store(), DeviceConfig::default()).unwrap());
    let _server = Server::start(device, &path, ServerConfig::default()).unwrap();
    let link = Arc::new(SocketLink::connect(&path, false).unwrap());
    everything(&DeviceFlash::over(link, HostConfig { copies: true, ..HostConfig::default() }));
}

/// A buffer has blocks of powers of two, and commands have a bound: no answer is larger than fits.
#[test]
fn answers_fit_into_a_data_buffer_of_any_size() {
    for command_sectors in [1, 3, 1024] {
        let firmware = FirmwareConfig { command_sectors, ..FirmwareConfig::default() };
        let config = DeviceConfig { firmware, ..DeviceConfig::default() };
        let flash = DeviceFlash::start_store(store(), config, HostConfig::default()).unwrap();
        let token = flash.commands(1, 1).unwrap().sync().unwrap();
        for buffer in 1..=17 {
            let what = format!("{buffer} sectors of buffer, commands of {command_sectors}");
            let mut commands = flash.commands(2, buffer).unwrap();
            commands.pin(token, true).unwrap();
            assert_eq!(commands.tokens(), Ok(vec![token]), "{what}");
            assert_eq!(commands.pinned(), Ok(vec![token]), "{what}");
            let pages = commands.permissions_from(0).map(|found| found.len());
            assert_eq!(pages, Ok(flash.subpages() as usize / 16), "{what}");
            assert!(commands.standing().is_ok() && commands.identify().is_ok(), "{what}");
            // This runs next to a command that has a sector of it.
            let begun = commands.begin(Opcode::Read, 0, 1, None).unwrap();
            if buffer > 1 {
                assert_eq!(commands.tokens(), Ok(vec![token]), "{what}");
            }
            assert_eq!(commands.wait().unwrap().id, begun, "{what}");
            commands.release(begun);
            assert_eq!(commands.free_sectors(), buffer, "{what}");
        }
    }
}

#[test]
fn a_device_without_a_store_has_none() {
    let memory = Arc::new(MemoryFlash::new(64).unwrap());
    let flash = DeviceFlash::start(memory, DeviceConfig::default(), HostConfig::default()).unwrap();
    assert!(flash.versions().is_none());
    let mut commands = flash.commands(1, 8).unwrap();
    const NOT_THERE: FlashError = FlashError::Io(95);
    assert_eq!(commands.trim(0, 16), Err(NOT_THERE));
    assert_eq!(commands.delete(0..1), Err(NOT_THERE));
    assert_eq!(commands.tokens(), Err(NOT_THERE));
    assert_eq!(commands.sync(), Err(NOT_THERE.into()));
}

#[test]
fn each_field_is_refused_by_its_code() {
    let store = store();
    let pool = store.layer().clone();
    let wake = Arc::new(fulgurite_sys::Notifier::new().unwrap());
    let flash: Arc<dyn Flash> = Arc::new(store);
    let sectors = u64::from(flash.subpages());
    let backend = Arc::new(Backend::new(flash, FirmwareConfig::default(), 1).with_pool(pool.clone()));
    let region = Arc::new(Region::create(backend.capability(1, 4, 8), false).unwrap());
    let mut firmware = Firmware::new(backend.clone(), &wake).unwrap();
    firmware.add(backend.open_port(&region, 0, None, &wake, wake.clone()).unwrap());
    let (mut submissions, mut completions) = region.host_ends(0);
    let mut run = |command: Command| {
        submissions.push(command.pack());
        loop {
            firmware.turn();
            if let Some(entry) = completions.pop() {
                return Ended::unpack(entry.unwrap()).status;
            }
        }
    };
    for opcode in [Opcode::Allocate, Opcode::Delete, Opcode::SetPermissions, Opcode::Trim] {
        for (sector, count, status) in [
            (0, 0, Status::INVALID_FIELD),
            (sectors, 16, Status::SECTOR_RANGE),
            (u64::MAX, 16, Status::SECTOR_RANGE),
            (16, u32::MAX, Status::SECTOR_RANGE),
        ] {
            assert_eq!(run(command(0, opcode, sector, count, 0)), status, "{opcode:?} {sector} {count}");
        }
        if opcode != Opcode::Trim {
            assert_eq!(run(command(0, opcode, 1, 16, 0)), Status::INVALID_FIELD);
            assert_eq!(run(command(0, opcode, 0, 15, 0)), Status::INVALID_FIELD);
        }
        assert_eq!(run(Command { flags: 1, ..command(0, opcode, 0, 16, 0) }), Status::INVALID_FIELD);
    }
    for argument in [8, u64::MAX] {
        let odd = Command { argument, ..command(0, Opcode::SetPermissions, 0, 16, 0) };
        assert_eq!(run(odd), Status::INVALID_FIELD);
    }
    assert_eq!(run(command(1, Opcode::Standing, 0, 2, 0)), Status::INVALID_FIELD);
    assert_eq!(run(command(1, Opcode::Pages, sectors, 1, 0)), Status::SECTOR_RANGE);
    for opcode in [Opcode::ReadAt, Opcode::Tokens, Opcode::Pinned, Opcode::Standing, Opcode::Pages, Opcode::Dropped] {
        assert_eq!(run(command(1, opcode, 0, 0, 0)), Status::INVALID_FIELD);
        let many = if opcode == Opcode::Standing { Status::INVALID_FIELD } else { Status::BUFFER_RANGE };
        assert_eq!(run(command(1, opcode, 0, 9, 0)), many);
        assert_eq!(run(command(1, opcode, 0, 1, 8)), Status::BUFFER_RANGE);
        assert_eq!(run(command(1, opcode, 0, 1, u32::MAX)), Status::BUFFER_RANGE);
        assert_eq!(run(command(1, opcode, 0, u32::MAX, 0)), Status::INVALID_FIELD);
    }
    for opcode in
        [Opcode::ReadAt, Opcode::Sync, Opcode::RollBack, Opcode::MayRollBack, Opcode::Pin, Opcode::Unpin, Opcode::Hold]
    {
        let odd = Command { argument: u64::MAX, ..command(2, opcode, 0, 1, 0) };
        assert_eq!(run(odd), Status::NO_TOKEN, "{opcode:?}");
    }
    assert_eq!(run(command(3, Opcode::Sync, 0, 0, 0)), Status::SUCCESS);
    // A queue pair holds a bounded number of tokens, each once, until it is closed.
    let mut held = Vec::new();
    loop {
        assert_eq!(run(command(3, Opcode::Sync, 0, 0, 0)), Status::SUCCESS);
        let token = pool.tokens().newest().unwrap();
        let hold = Command { argument: token, ..command(3, Opcode::Hold, 0, 0, 0) };
        let status = run(hold);
        if status != Status::SUCCESS {
            assert_eq!((status, held.len()), (Status::INVALID_FIELD, 64));
            break;
        }
        assert_eq!(run(hold), Status::SUCCESS);
        held.push(token);
    }
    assert!(held.iter().all(|token| pool.tokens().contains(*token)));
    firmware.remove(|_| true);
    // Dropping the pair does not wait for anything but its jobs, of which there are none.
    pool.sync().unwrap();
    assert!(!pool.tokens().contains(held[0]) && pool.tokens().as_slice().len() <= 8);
}
