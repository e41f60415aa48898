//! Goal: commands under way keep their ends, ids and data buffer while the same program waits for
//! another one.
//! Method: reads are begun and left under way; then everything that waits for an end of its own is
//! called.

use std::sync::Arc;

use fulgurite_device::{DeviceConfig, DeviceFlash, HostConfig, Opcode, SECTOR_BYTES};
use fulgurite_flash::{FlashError, MemoryFlash};

const SECTORS: u32 = 64;
const DEPTH: usize = 6;
const BUFFER: u32 = 16;

#[test]
fn ends_of_others_are_kept_for_them() {
    let medium = Arc::new(MemoryFlash::new(SECTORS).unwrap());
    for sector in 0..SECTORS as usize {
        medium.storage().write(sector * SECTOR_BYTES, &[sector as u8 + 1; SECTOR_BYTES]);
    }
    let flash = DeviceFlash::start(medium, DeviceConfig::default(), HostConfig::default()).unwrap();
    let mut commands = flash.commands(DEPTH, BUFFER).unwrap();
    let begun = [5, 9].map(|sector: u32| (commands.begin(Opcode::Read, sector.into(), 1, None).unwrap(), sector));
    // Each of these ends after the two, which were there first.
    commands.flush().unwrap();
    assert_eq!(commands.identify().unwrap().sectors, SECTORS);
    let mut data = vec![0; 8 * SECTOR_BYTES];
    commands.read(20, &mut data).unwrap();
    assert!(data.chunks(SECTOR_BYTES).zip(21u8..).all(|(sector, value)| sector.iter().all(|byte| *byte == value)));
    commands.write(30, &data).unwrap();
    assert!(commands.read(60, &mut data).is_err(), "there are no such sectors");
    assert_eq!(commands.free_sectors(), BUFFER - 2);
    let mut left = begun.to_vec();
    while !left.is_empty() {
        let done = commands.wait().unwrap();
        let at = left.iter().position(|(id, _)| *id == done.id).expect("one of the two, once");
        let (id, sector) = left.remove(at);
        let mut read = [0; SECTOR_BYTES];
        commands.copy_out(id, &mut read);
        assert_eq!(read, [sector as u8 + 1; SECTOR_BYTES]);
        commands.release(id);
    }
    assert!(commands.poll().is_none());
    assert_eq!(commands.free_sectors(), BUFFER);
    // All ids can be had again.
    let all: Vec<_> = (0..DEPTH).map(|_| commands.begin(Opcode::Read, 0, 1, None).unwrap()).collect();
    assert!(commands.begin(Opcode::Read, 0, 1, None).is_none());
    for _ in all {
        let id = commands.wait().unwrap().id;
        commands.release(id);
    }
}

/// Where the caller's own commands have every id, or the buffer, they are waited for; at their end
/// the waiting call gets its result.
#[test]
fn who_has_everything_is_waited_for_and_then_refused() {
    let medium = Arc::new(MemoryFlash::new(SECTORS).unwrap());
    let flash = DeviceFlash::start(medium, DeviceConfig::default(), HostConfig::default()).unwrap();
    // All ids; then all of the buffer.
    for (depth, buffer, begun) in [(4, 16, 4), (8, 8, 4)] {
        let mut commands = flash.commands(depth, buffer).unwrap();
        let ids: Vec<u16> = (0..begun).map(|_| commands.begin(Opcode::Read, 0, 2, None).unwrap()).collect();
        let mut data = vec![0; 4 * SECTOR_BYTES];
        assert_eq!(commands.read(8, &mut data), Err(FlashError::Io(16)), "depth {depth}");
        // A flush needs an id and no buffer.
        assert_eq!(commands.flush().is_ok(), depth > begun, "depth {depth}");
        // What needs both gets the same error, and not the answer that there is no such thing.
        assert_eq!(commands.identify().unwrap_err(), FlashError::Io(16), "depth {depth}");
        for _ in &ids {
            let id = commands.poll().expect("it has ended").id;
            assert!(ids.contains(&id));
            commands.release(id);
        }
        commands.read(8, &mut data).unwrap();
        commands.flush().unwrap();
        commands.identify().unwrap();
        // More than there is at all is no matter of time.
        assert_eq!(commands.one(Opcode::Read, 0, buffer + 1, 0), Err(FlashError::OutOfRange), "depth {depth}");
    }
}
