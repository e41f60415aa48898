//! Goal: values that are read and written in parts are whole or not there, whatever happens between
//! two parts. A reader whose value is freed gets an error and no foreign byte. A writer that does
//! not come to its end, or whose process dies, costs no space.
//! Method: values of several MiB in a heap with little more room than they take. Between the parts
//! of a reader and a writer, the value is replaced, removed, changed, grown or part of a
//! transaction. Each access of a long put fails in turn. A container is opened again from what lay
//! there in the middle of a write, as after a kill, and reloaded, as after a roll back. Long
//! compare-and-puts and appends run with another change inside, and must be as if one came first. A
//! memory counts what is touched in each section.

use crate::common;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use common::{FaultyMemory, Random, errors, interleave, plain};
use fulgurite_memory::{
    AccessError, Address, Blobs, Directory, Memory, PlainMemory, RawMemory, Rooted, Transactions, VALUE_BYTES_MAX,
    View, ViewMut,
};

const SPACE: u64 = 1 << 30;
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
        // A long put is made in parts, too.
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

/// Plain memory that counts the bytes that it is asked for in each outermost section.
struct SectionMemory {
    inner: PlainMemory,
    open: Arc<Open>,
    most: usize,
}

#[derive(Default)]
struct Open {
    sections: AtomicUsize,
    bytes: AtomicUsize,
}

struct Section(Arc<Open>);

impl Drop for Section {
    fn drop(&mut self) {
        self.0.sections.fetch_sub(1, Relaxed);
    }
}

impl SectionMemory {
    fn count(&mut self, len: usize) {
        if self.open.sections.load(Relaxed) > 0 {
            let bytes = self.open.bytes.fetch_add(len, Relaxed) + len;
            self.most = self.most.max(bytes);
        }
    }
}

impl RawMemory for SectionMemory {
    type Pin = <PlainMemory as RawMemory>::Pin;
    type Section = Section;
    type Inner = Self;
    fn identity(&self) -> fulgurite_memory::Identity<'_> {
        self.inner.identity()
    }
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.count(len);
        self.inner.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.count(len);
        self.inner.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<Self::Pin, AccessError> {
        self.inner.pin(at)
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.inner.park(word, expected)
    }
    fn write_section(&mut self) -> Result<Section, AccessError> {
        if self.open.sections.fetch_add(1, Relaxed) == 0 {
            self.open.bytes.store(0, Relaxed);
        }
        Ok(Section(self.open.clone()))
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        self.inner.yield_now()
    }
}

#[test]
fn no_section_of_a_long_change_has_more_than_a_part() {
    let mut memory = SectionMemory { inner: plain(), open: Arc::default(), most: 0 };
    let (_, map) = create(&mut memory, 64 << 20);
    let (first, second) = (vec![1; 5 * MIB], vec![2; 4 * MIB]);
    let mut found = Vec::new();
    memory.most = 0;
    assert_eq!(map.put(&mut memory, &1, &first), Ok(false));
    // Values differ at their beginnings, at their ends, and by their lengths.
    assert_eq!(map.compare_and_put(&mut memory, &1, None, &second), Ok(false));
    assert_eq!(map.compare_and_put(&mut memory, &1, Some(&second), &second), Ok(false));
    let mut last = first.clone();
    last[5 * MIB - 1] = 0;
    assert_eq!(map.compare_and_put(&mut memory, &1, Some(&last), &second), Ok(false));
    assert_eq!(map.compare_and_put(&mut memory, &1, Some(&first), &second), Ok(true));
    assert_eq!(map.append(&mut memory, &1, &first), Ok(9 * MIB));
    assert_eq!(map.append(&mut memory, &1, &[3; 10]), Ok(9 * MIB + 10));
    assert_eq!(map.append(&mut memory, &2, &first), Ok(5 * MIB));
    assert_eq!(map.compare_and_put(&mut memory, &2, Some(&first), &[4]), Ok(true));
    assert_eq!(map.compare_and_put(&mut memory, &2, Some(&[4]), &first), Ok(true));
    assert_eq!(map.compare_and_put(&mut memory, &3, None, &second), Ok(true));
    assert!(map.get(&mut memory, &1, &mut found).unwrap());
    assert!(found == [&second[..], &first, &[3; 10]].concat());
    assert!(map.get(&mut memory, &2, &mut found).unwrap() && found == first);
    assert!(map.get(&mut memory, &3, &mut found).unwrap() && found == second);
    for (offset, len) in [(5, 3 * MIB), (MIB - 1, 20_000), (4 * MIB - 16_390, 16_390), (4 * MIB - 20_000, 20_001)] {
        let changed = map.write_at(&mut memory, &3, offset, &vec![9; len]).unwrap();
        assert_eq!(changed, offset + len <= 4 * MIB);
        let mut expected = found.clone();
        if changed {
            expected[offset..offset + len].fill(9);
        }
        assert!(map.get(&mut memory, &3, &mut found).unwrap() && found == expected, "{len} bytes at {offset}");
    }
    assert!(memory.most >= MIB && memory.most <= MIB + (64 << 10), "{} bytes in a section", memory.most);
    // A few bytes of a value that is viewed.
    let mut other = SectionMemory { inner: memory.inner.clone(), open: Arc::default(), most: 0 };
    let mut pieces = 0;
    let len = map.view(&mut memory, &3, |piece| {
        if pieces == 0 {
            assert_eq!(map.write_at(&mut other, &3, MIB - 5, &[8; 10]), Ok(true));
        }
        if pieces == (MIB - 5) / 4096 {
            assert_eq!(piece.load::<u8>((MIB - 5) % 4096), found[MIB - 5]);
        }
        pieces += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((len, pieces), (Ok(Some(4 * MIB)), MIB / 1024));
    found[MIB - 5..MIB + 5].fill(8);
    let mut now = Vec::new();
    assert!(map.get(&mut memory, &3, &mut now).unwrap() && now == found);
    assert!(other.most >= MIB && other.most <= MIB + (64 << 10), "{} bytes in a section", other.most);
    let long = map.append(&mut memory, &1, &vec![0; VALUE_BYTES_MAX]);
    assert!(matches!(long, Err(AccessError::TooLong { .. })), "{long:?}");
    map.check(&mut memory).unwrap();
}

const SHORT: usize = 100;
const LONG: usize = MIB + 5000;

/// A change of the one key. Values are a byte, repeated.
#[derive(Clone, Copy, Debug)]
enum Change {
    Put(u8, usize),
    Remove,
    CompareAndPut(Option<(u8, usize)>, u8, usize),
    Append(u8, usize),
    WriteAt(u8),
    /// More than is changed in place, from the third byte on.
    WriteMore(u8),
}

/// Bytes of such a change.
const MORE: usize = MIB + 100;

fn choose(random: &mut Random) -> Change {
    let len = |random: &mut Random| [SHORT, LONG, LONG][random.below(3) as usize];
    let byte = |random: &mut Random| random.below(2) as u8;
    match random.below(12) {
        0..3 => Change::Put(byte(random), len(random)),
        3 => Change::Remove,
        4..7 => {
            let expected = (random.below(4) > 0).then(|| (byte(random), len(random)));
            Change::CompareAndPut(expected, byte(random), len(random))
        }
        7..10 => Change::Append(byte(random), len(random)),
        10 => Change::WriteMore(byte(random)),
        _ => Change::WriteAt(byte(random)),
    }
}

/// What a change does to the value, and what it returns.
fn apply(now: &mut Option<Vec<u8>>, change: Change) -> usize {
    let was = now.is_some();
    match change {
        Change::Put(byte, len) => *now = Some(vec![byte; len]),
        Change::Remove => *now = None,
        Change::CompareAndPut(expected, byte, len) => {
            let same = *now == expected.map(|(byte, len)| vec![byte; len]);
            if same {
                *now = Some(vec![byte; len]);
            }
            return same.into();
        }
        Change::Append(byte, len) => {
            let value = now.get_or_insert_default();
            value.resize(value.len() + len, byte);
            return value.len();
        }
        Change::WriteAt(byte) => now.iter_mut().for_each(|value| value[0] = byte),
        Change::WriteMore(byte) => {
            let Some(value) = now.as_mut().filter(|value| value.len() >= MORE + 3) else { return 0 };
            value[3..MORE + 3].fill(byte);
        }
    }
    was.into()
}

fn run<M: Memory>(map: &Map, memory: &mut M, change: Change) -> Result<usize, AccessError> {
    match change {
        Change::Put(byte, len) => map.put(memory, &1, &vec![byte; len]).map(usize::from),
        Change::Remove => map.remove(memory, &1).map(usize::from),
        Change::CompareAndPut(expected, byte, len) => {
            let expected = expected.map(|(byte, len)| vec![byte; len]);
            map.compare_and_put(memory, &1, expected.as_deref(), &vec![byte; len]).map(usize::from)
        }
        Change::Append(byte, len) => map.append(memory, &1, &vec![byte; len]),
        Change::WriteAt(byte) => map.write_at(memory, &1, 0, &[byte]).map(usize::from),
        Change::WriteMore(byte) => map.write_at(memory, &1, 3, &vec![byte; MORE]).map(usize::from),
    }
}

#[test]
fn long_changes_of_one_key_are_in_one_order() {
    let mut memory = plain();
    let (_, map) = create(&mut memory, 512 << 20);
    interleave(
        150,
        400,
        &memory,
        Random::seeded("long changes", 1),
        None,
        choose,
        apply,
        |memory, change| run(&map, memory, change),
        |memory, change| run(&map, memory, change),
        |memory| {
            let mut value = Vec::new();
            map.get(memory, &1, &mut value).unwrap().then_some(value)
        },
    );
    map.check(&mut memory).unwrap();
}

#[test]
fn long_changes_that_fail_leave_the_old_value_and_no_space_is_lost() {
    let old = value(1, 1_200_000);
    // More than the old value has room for.
    let (added, put) = (value(2, 300_000), value(3, 1_300_000));
    let appended = [&old[..], &added].concat();
    let changed = [&old[..100], &added, &old[300_100..]].concat();
    for way in 0..3 {
        let mut memory = FaultyMemory::new();
        let (_, map) = create(&mut memory, 16 << 20);
        map.put(&mut memory, &1, &old).unwrap();
        map.put(&mut memory, &1, &old).unwrap();
        let (used, begun) = (map.heap().used_bytes(), memory.accesses);
        let change = |memory: &mut FaultyMemory| match way {
            0 => map.append(memory, &1, &added).map(drop),
            1 => map.compare_and_put(memory, &1, Some(&old), &put).map(|same| assert!(same)),
            _ => map.write_at(memory, &1, 100, &added).map(|inside| assert!(inside)),
        };
        let expected = [&appended, &put, &changed][way];
        change(&mut memory).unwrap();
        let total = memory.accesses - begun;
        map.put(&mut memory, &1, &old).unwrap();
        let mut failures = 0;
        for count in (0..25).chain((25..total - 40).step_by(97)).chain(total - 40..total + 40) {
            let error = errors()[count as usize % 3];
            memory.fail_after(count, error);
            let result = change(&mut memory);
            memory.heal();
            let mut found = Vec::new();
            assert!(map.get(&mut memory, &1, &mut found).unwrap());
            match result {
                Err(got) => {
                    failures += 1;
                    assert_eq!(got, error, "access {count}");
                    assert!(found == old, "access {count}");
                }
                Ok(()) => {
                    assert!(found == *expected, "access {count}");
                    map.put(&mut memory, &1, &old).unwrap();
                }
            }
        }
        assert!(failures > 50, "only {failures}");
        map.put(&mut memory, &1, &old).unwrap();
        assert_eq!(map.heap().used_bytes(), used);
        map.check(&mut memory).unwrap();
    }
}
