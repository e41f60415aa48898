//! Goal: values that are read and written in parts are whole or not there, whatever happens between
//! two parts. A reader whose value goes gets an error and no foreign byte. A writer that does not
//! come to its end, or whose process dies, costs no space.
//! Method: values of several MiB in a heap with little more room than they take. Between the parts
//! of a reader and a writer, the value is replaced, removed, changed, grown or part of a
//! transaction. Each access of a long put fails in turn. A container is opened again from what lay
//! there in the middle of a write, as after a kill, and reloaded, as after a roll back.

use crate::common;

use std::sync::Arc;

use common::{FaultyMemory, Random, errors, plain};
use fulgurite_memory::{AccessError, Blobs, Directory, Memory, PlainMemory, Rooted, Transactions, VALUE_BYTES_MAX};

const SPACE: u64 = 64 << 20;
const MIB: usize = 1 << 20;
type Map = Rooted<Blobs<u64>>;

fn create<M: Memory>(memory: &mut M, heap_bytes: u64) -> (Directory, Arc<Map>) {
    let directory = Directory::open(memory, SPACE).unwrap();
    let bytes = (heap_bytes, Blobs::<u64>::bytes_needed(100));
    let map = Rooted::create(memory, &directory, "films", bytes, |m, heap, data| {
        Blobs::create(m, data, heap.clone(), 100, 4)
    });
    (directory, Arc::new(map.unwrap()))
}

fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (i % 8 * 8)) as u8 ^ (i >> 3) as u8)
        .collect()
}

fn read_all(memory: &mut PlainMemory, map: &Map, key: u64, part: usize) -> Result<Option<Vec<u8>>, AccessError> {
    let Some(mut reader) = map.reader(memory, &key)? else { return Ok(None) };
    let (mut all, mut buffer) = (Vec::new(), vec![0; part]);
    loop {
        assert_eq!(reader.position(), all.len());
        match reader.read(memory, &mut buffer)? {
            0 => break,
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
    assert_eq!(all.len(), reader.len());
    Ok(Some(all))
}

#[test]
fn what_is_written_in_parts_is_read_in_parts() {
    let mut memory = plain();
    let (_, map) = create(&mut memory, 16 << 20);
    let mut random = Random::seeded("values in parts", 1);
    for (key, len) in [0, 1, 4096, 4097, 100_000, MIB, 3 * MIB + 5].into_iter().enumerate() {
        let (key, new) = (key as u64, value(key as u64, len));
        let mut writer = map.writer(&mut memory, len).unwrap();
        let mut rest = &new[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(1 + random.below(2 * MIB)));
            writer.write(&mut memory, now).unwrap();
            rest = later;
        }
        assert_eq!(map.value_len(&mut memory, &key), Ok(None), "nobody sees it before its end");
        assert_eq!((writer.written(), writer.len()), (len, len));
        let one_more = writer.write(&mut memory, b"x");
        assert!(matches!(one_more, Err(AccessError::TooLong { .. })), "{one_more:?}");
        assert_eq!(writer.finish(&mut memory, &key), Ok(false));
        for part in [4096, 5000, 2 * MIB] {
            assert!(read_all(&mut memory, &map, key, part).unwrap().unwrap() == new, "{len} bytes");
        }
        // A long put goes the same way.
        assert_eq!(map.put(&mut memory, &key, &new), Ok(true));
        assert!(read_all(&mut memory, &map, key, MIB).unwrap().unwrap() == new, "{len} bytes");
    }
    assert_eq!(read_all(&mut memory, &map, 99, 10), Ok(None));
    let mut reader = map.reader(&mut memory, &4).unwrap().unwrap();
    let mut part = [0; 10];
    reader.seek(99_995);
    assert_eq!(reader.read(&mut memory, &mut part), Ok(5));
    reader.seek(usize::MAX);
    assert_eq!(reader.read(&mut memory, &mut part), Ok(0));
    let too_long = map.writer(&mut memory, VALUE_BYTES_MAX + 1).map(drop);
    assert!(matches!(too_long, Err(AccessError::TooLong { .. })), "{too_long:?}");
    let mut unfinished = map.writer(&mut memory, 100).unwrap();
    unfinished.write(&mut memory, &[1; 99]).unwrap();
    let unfinished = unfinished.finish(&mut memory, &1);
    assert_eq!(unfinished, Err(AccessError::Unfinished { written: 99, bytes: 100 }));
    map.check(&mut memory).unwrap();
}

#[test]
fn a_reader_notices_that_its_value_goes() {
    let mut memory = plain();
    let (_, map) = create(&mut memory, 16 << 20);
    let transactions = Transactions::new();
    type Change<'a> = &'a dyn Fn(&mut PlainMemory);
    const LEN: usize = 2 * MIB - 100;
    let other = value(2, LEN);
    let changes: [(&str, bool, Change<'_>); 7] = [
        ("removed", true, &|m| _ = map.remove(m, &1).unwrap()),
        ("replaced", true, &|m| _ = map.put(m, &1, &other).unwrap()),
        // Its place has the same key's value again.
        ("replaced twice", true, &|m| {
            map.put(m, &1, b"short").unwrap();
            map.put(m, &1, &other).unwrap();
        }),
        ("changed in place", true, &|m| assert_eq!(map.write_at(m, &1, 5, b"x"), Ok(true))),
        ("replaced by a transaction", true, &|m| {
            transactions.run(m, |t| t.put(&map, &1, b"short".as_slice())).unwrap();
            map.put(m, &1, &other).unwrap();
        }),
        ("grown in place", false, &|m| assert_eq!(map.append(m, &1, b"more"), Ok(LEN + 4))),
        ("another key", false, &|m| _ = map.put(m, &2, &other).unwrap()),
    ];
    for (what, goes, change) in changes {
        // With some room behind it.
        let old = value(1, LEN);
        map.put(&mut memory, &1, &old).unwrap();
        let mut reader = map.reader(&mut memory, &1).unwrap().unwrap();
        let (mut part, mut all) = (vec![0; 100_000], Vec::new());
        let mut read = |memory: &mut PlainMemory| {
            let read = reader.read(memory, &mut part)?;
            all.extend_from_slice(&part[..read]);
            Ok::<usize, AccessError>(read)
        };
        read(&mut memory).unwrap();
        change(&mut memory);
        let after = loop {
            match read(&mut memory) {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        if goes {
            assert!(matches!(after, Err(AccessError::ValueGone { .. })), "{what}: {after:?}");
        } else {
            assert!(after.is_ok() && all == old, "{what}: {after:?}");
        }
        map.remove(&mut memory, &1).unwrap();
        map.remove(&mut memory, &2).unwrap();
    }
    map.check(&mut memory).unwrap();
}

#[test]
fn a_writer_that_is_dropped_costs_no_space() {
    let mut memory = plain();
    let (_, map) = create(&mut memory, 8 << 20);
    let mut used = Vec::new();
    for round in 0..50 {
        let mut writer = map.writer(&mut memory, 2 * MIB).unwrap();
        writer.write(&mut memory, &vec![1; MIB]).unwrap();
        if round % 3 == 0 {
            let _ = writer.finish(&mut memory, &1);
        }
        used.push(map.heap().used_bytes());
    }
    assert_eq!(used.iter().max(), Some(&used[1]), "{used:?}");
    map.check(&mut memory).unwrap();
}

#[test]
fn a_long_put_that_fails_leaves_the_old_value_and_no_space_is_lost() {
    let mut memory = FaultyMemory::new();
    let (_, map) = create(&mut memory, 16 << 20);
    let (old, new) = (value(1, 1_200_000), value(2, 1_300_000));
    map.put(&mut memory, &1, &old).unwrap();
    map.put(&mut memory, &1, &old).unwrap();
    let (used, begun) = (map.heap().used_bytes(), memory.accesses);
    map.put(&mut memory, &1, &old).unwrap();
    let total = memory.accesses - begun;
    let mut failures = 0;
    // All accesses near both ends, and some between.
    for count in (0..25).chain((25..total - 40).step_by(97)).chain(total - 40..total + 100) {
        let error = errors()[count as usize % 3];
        memory.fail_after(count, error);
        let result = map.put(&mut memory, &1, &new);
        memory.heal();
        let mut found = Vec::new();
        assert!(map.get(&mut memory, &1, &mut found).unwrap());
        match result {
            Err(got) => {
                failures += 1;
                assert_eq!(got, error, "access {count}");
                assert!(found == old, "access {count}");
            }
            Ok(_) => {
                assert!(found == new, "access {count}");
                map.put(&mut memory, &1, &old).unwrap();
            }
        }
    }
    assert!(failures > 50, "only {failures}");
    map.put(&mut memory, &1, &old).unwrap();
    assert_eq!(map.heap().used_bytes(), used);
    map.check(&mut memory).unwrap();
}

#[test]
fn a_full_heap_leaves_the_old_value() {
    let mut memory = plain();
    let (_, map) = create(&mut memory, 4 << 20);
    let old = value(1, 2 * MIB);
    map.put(&mut memory, &1, &old).unwrap();
    let full = map.put(&mut memory, &1, &value(2, 3 * MIB));
    assert!(matches!(full, Err(AccessError::NoSpace { .. })), "{full:?}");
    assert!(read_all(&mut memory, &map, 1, MIB).unwrap().unwrap() == old);
}

#[test]
fn what_a_kill_or_a_roll_back_leaves_of_a_write_is_free() {
    let mut memory = plain();
    let (directory, map) = create(&mut memory, 8 << 20);
    map.put(&mut memory, &1, &value(1, 2 * MIB)).unwrap();
    let used = map.heap().used_bytes();
    let mut writer = map.writer(&mut memory, 3 * MIB).unwrap();
    writer.write(&mut memory, &vec![9; 2 * MIB]).unwrap();
    // A sync, and later that state again.
    map.save(&mut memory).unwrap();
    assert_eq!(map.reload(&mut memory, &directory), Ok(true));
    let gone = writer.write(&mut memory, &[9; 10]);
    assert!(matches!(gone, Err(AccessError::ValueGone { .. })), "{gone:?}");
    drop(writer);
    assert!(map.heap().used_bytes() > used);
    drop(map.writer(&mut memory, 3 * MIB).unwrap());
    map.writer(&mut memory, 0).unwrap();
    assert_eq!(map.heap().used_bytes(), used);

    let mut writer = map.writer(&mut memory, 3 * MIB).unwrap();
    writer.write(&mut memory, &vec![9; 2 * MIB]).unwrap();
    map.save(&mut memory).unwrap();
    // A kill: another process opens it.
    std::mem::forget(writer);
    let again = Map::open(&mut memory, &directory, "films", 4).unwrap();
    assert!(again.heap().used_bytes() > used);
    let film = value(3, 3 * MIB);
    again.put(&mut memory, &2, &film).unwrap();
    assert!(read_all(&mut memory, &again, 2, MIB).unwrap().unwrap() == film);
    again.remove(&mut memory, &2).unwrap();
    assert_eq!(again.heap().used_bytes(), used);
    again.check(&mut memory).unwrap();
}
