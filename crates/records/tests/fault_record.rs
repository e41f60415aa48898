//! Goal: no bytes make parsing panic, and none pass as a record that was not written with this
//! seed. Method: random records of which bits are flipped, bytes are changed or the end is cut off,
//! random bytes, and each seed that differs in one bit.

use fulgurite_records::{BadRecord, Head, Record, Seed, TableId};
use fulgurite_testkit::{Random, each_seed};

use crate::model_record::any;

fn written(random: &mut Random) -> (Vec<u8>, Seed) {
    let (key, value) = (random.bytes(random.0 as usize % 40), random.bytes(random.0 as usize % 300));
    let seed = Seed(random.next());
    let mut bytes = Vec::new();
    any(random, &key, &value).append(seed, &mut bytes).unwrap();
    (bytes, seed)
}

#[test]
fn changed_bytes_are_refused() {
    each_seed(1, 4000, |seed| {
        let mut random = Random(seed);
        let (bytes, seed) = written(&mut random);
        // CRC32C finds every change of up to three bits at these lengths.
        let mut changed = bytes.clone();
        for _ in 0..=random.below(3) {
            changed[random.below(bytes.len())] ^= 1 << random.below(8);
        }
        let parsed = Record::parse(seed, &changed);
        assert!(parsed.is_err() || changed == bytes, "{parsed:?}");
        let mut wild = bytes.clone();
        for _ in 0..random.below(20) {
            wild[random.below(bytes.len())] = random.next() as u8;
        }
        assert!(Record::parse(seed, &wild).is_err() || wild == bytes);
        let _ = (Record::view(&wild), Head::read(&wild));
    });
}

#[test]
fn a_record_that_is_cut_off_is_short() {
    each_seed(1, 400, |seed| {
        let (bytes, seed) = written(&mut Random(seed));
        for length in 0..bytes.len() {
            match Record::parse(seed, &bytes[..length]) {
                Err(BadRecord::Short { expected, got }) => assert!(got == length && expected > length),
                other => panic!("{other:?} of {length} bytes"),
            }
        }
    });
}

#[test]
fn random_bytes_are_no_record() {
    each_seed(1, 20_000, |seed| {
        let mut random = Random(seed);
        let mut bytes = random.bytes(random.0 as usize % 120);
        // Most would fail at the bits.
        if bytes.len() > 4 && random.below(4) > 0 {
            bytes[4] &= 0x1F;
        }
        assert!(Record::parse(Seed(random.next()), &bytes).is_err());
        let _ = (Record::view(&bytes), Head::read(&bytes));
    });
    assert!(Record::parse(Seed(0), &[0; 4096]).is_err(), "flash that was never written");
    assert!(Record::parse(Seed(0), &[0xFF; 4096]).is_err(), "flash that was erased");
}

#[test]
fn another_seed_is_refused() {
    each_seed(1, 1000, |seed| {
        let mut random = Random(seed);
        let (bytes, seed) = written(&mut random);
        for bit in 0..64 {
            let other = Record::parse(Seed(seed.0 ^ 1 << bit), &bytes);
            assert!(matches!(other, Err(BadRecord::Checksum { .. })), "{other:?}");
        }
    });
}

#[test]
fn numbers_have_one_form() {
    let mut bytes = Vec::new();
    Record::new(TableId(1), b"", b"").append(Seed(0), &mut bytes).unwrap();
    let long = [&bytes[..5], &[0x81, 0], &bytes[6..]].concat();
    let expected = BadRecord::BadNumber { what: "table", at: 5, expected: 32 };
    assert_eq!(Record::view(&long), Err(expected));
    let large = [&bytes[..5], &[0xFF, 0xFF, 0xFF, 0xFF, 0x1F], &bytes[6..]].concat();
    assert_eq!(Record::view(&large), Err(expected));
    let unknown = [&bytes[..4], &[0x20], &bytes[5..]].concat();
    assert_eq!(Record::view(&unknown), Err(BadRecord::UnknownBits { expected: 0x1F, got: 0x20 }));
}
