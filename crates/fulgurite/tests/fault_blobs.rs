//! Goal: a pool that fills up in the middle of a put leaves the old value, readers go on, and after
//! a sync there is room again. Method: values far larger than DRAM are replaced without a sync
//! until the pool says that it is full, in the middle of a value, and everything is read and
//! compared. Then a sync, and all is written once more.

use fulgurite::{AccessError, Fulgurite, Medium};

const KEYS: u64 = 4;
const BYTES: usize = 3 << 20;

fn value(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().repeat(BYTES / 8)
}

#[test]
fn a_full_pool_leaves_the_old_value() {
    let directory = tempfile::tempdir().unwrap();
    let medium = Medium::new_pool(directory.path().join("pool"), "48M");
    let memory = Fulgurite::builder(medium).dram("8M").start().unwrap();
    let blobs = memory.named("blobs").blobs::<u64>(100, 24 << 20).unwrap();
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
    assert_eq!(refused, 3, "the pool filled up in each round");
    let its = blobs.clone();
    assert_eq!(memory.run(move |m| its.check(m)), Ok((KEYS, KEYS * BYTES as u64)));
}
