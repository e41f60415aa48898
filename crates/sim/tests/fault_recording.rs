//! Goal: no bytes make the parser of recordings panic, and none that it takes make a replay panic.
//! Method: a recording, cut at each byte of its header and at others, and with bytes changed. Then
//! the same with checksums that fit, so that the steps themselves are wrong.

use std::sync::Arc;

use fulgurite_format::crc32c;
use fulgurite_sim::cores::{CoresSystem, Front};
use fulgurite_sim::{Recording, RecordingError, RunError};
use fulgurite_testkit as trials;
use fulgurite_testkit::Random;

use crate::common::cores;

const HEADER: usize = 136;

fn system(set: &[(&str, &str)]) -> CoresSystem {
    let few = [("workload.data", "4M"), ("cache.sets", "64"), ("run.warm_up", "5"), ("run.jobs", "60")];
    cores(&[&few[..], set].concat())
}
fn recordings() -> [Vec<u8>; 2] {
    let fronts = [Front::Modelled, Front::Executed { instructions: 2000, own: 3 }];
    fronts.map(|front| system(&[("threads.count", "8")]).record(1, &front, false).unwrap().1.bytes().to_vec())
}
/// Makes both checksums fit.
fn seal(bytes: &mut [u8]) {
    let body = crc32c(&bytes[HEADER..]);
    bytes[128..132].copy_from_slice(&body.to_le_bytes());
    let header = crc32c(&bytes[..132]);
    bytes[132..HEADER].copy_from_slice(&header.to_le_bytes());
}

#[test]
fn what_is_wrong_is_reported() {
    for whole in recordings() {
        let told = |bytes: &[u8]| Recording::read(bytes.to_vec()).unwrap_err();
        assert_eq!(told(&[]), RecordingError::Empty);
        assert_eq!(told(b"0 0 0 8 1\n"), RecordingError::Other);
        for length in (1..HEADER).chain([HEADER, HEADER + 1, whole.len() / 2, whole.len() - 1]) {
            let error = told(&whole[..length]);
            assert!(matches!(error, RecordingError::Truncated { .. }), "{length}: {error}");
        }
        assert_eq!(told(&[&whole[..], b"x"].concat()), RecordingError::Surplus { surplus: 1 });
        let changed = |at: usize, by: u8| {
            let mut bytes = whole.clone();
            bytes[at] ^= by;
            bytes
        };
        assert_eq!(told(&changed(8, 2)), RecordingError::Version { found: 3 });
        assert!(matches!(told(&changed(40, 1)), RecordingError::Checksum { part: "header", .. }));
        assert!(matches!(told(&changed(HEADER + 9, 1)), RecordingError::Checksum { part: "body", .. }));
        for (at, part) in [(12, "front end"), (16, "workload"), (39, "exponent"), (48, "size of data"), (112, "zeros")]
        {
            let mut bytes = changed(at, 0x82);
            seal(&mut bytes);
            let message = told(&bytes).to_string();
            assert!(message.contains(part), "{at}: {message}");
        }
        // An executed front has bounds, and a modelled one reads none of them.
        for (at, value) in [(72, 0u32), (72, (1 << 20) + 1), (72, u32::MAX), (76, 129), (76, u32::MAX)] {
            let mut bytes = whole.clone();
            bytes[12] = 1;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            seal(&mut bytes);
            assert!(told(&bytes).to_string().contains("between two accesses"), "{at}: {value}");
        }
        for at in [80, 88, 96, 104] {
            let mut bytes = changed(at, 1);
            seal(&mut bytes);
            told(&bytes);
        }
    }
}
#[test]
fn damaged_recordings_never_panic() {
    let mut random = Random::seeded("damaged_recordings_never_panic", 27);
    let recordings = recordings();
    let mut taken = 0;
    for run in 0..trials::share(3000) {
        let mut bytes = recordings[(run % 2) as usize].clone();
        for _ in 0..1 + random.below(3u64) {
            // The header's fields as often as all the rest.
            let most = if random.one_in(2u64) { HEADER } else { bytes.len() };
            let at = random.below(most as u64) as usize;
            bytes[at] = if random.one_in(2u64) { random.next() as u8 } else { bytes[at] ^ (1 << random.below(8u64)) };
        }
        if random.one_in(8u64) {
            bytes.truncate(1 + random.below(bytes.len() as u64) as usize);
        }
        // What only happened to the bytes is found by their checksums.
        let sealed = bytes.len() >= HEADER;
        if sealed {
            seal(&mut bytes);
        }
        let Ok(recording) = Recording::read(bytes) else { continue };
        taken += 1;
        assert!(sealed && recording.jobs() > 0 && recording.summary().jobs == recording.jobs());
        if run % 8 == 0 {
            let replay = system(&[]).run_with(1, &Front::Recorded(Arc::new(recording)), false);
            assert!(!matches!(replay, Err(RunError::Nothing)), "{replay:?}");
        }
    }
    assert!(taken > 10, "no damage was left to the steps: {taken}");
}
