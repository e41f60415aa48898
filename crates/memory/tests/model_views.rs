//! Goal: a view shows a value whole or ends with an error, whatever others do meanwhile. It copies
//! nothing, holds one pin, and costs no space when it ends, fails, panics, or its process dies.
//! Method: the closure of a view changes the value that it is shown, in every way that there is,
//! and what it has seen is compared. Others run inside each of its accesses. Threads view what
//! threads change. Each access fails in turn. A container is opened again in the middle of a view,
//! as after a kill, and reloaded, as after a roll back. A memory goes back to an older state inside
//! each access of a read.

use crate::common;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::{FaultyMemory, NeverParks, Random, SwitchingMemory, errors, plain};
use fulgurite_memory::{
    AccessError, Address, Blobs, Directory, Heap, Identity, Memory, OrderedBlobs, PlainMemory, RawMemory, Region,
    Rooted, SUBPAGE_BYTES, Transactions, View, ViewMut,
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

/// A value whose bytes follow from its first eight, so that a mixture of two is found out.
fn value(number: u64, len: usize) -> Vec<u8> {
    let word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len as u64).map(|i| (word >> (i % 8 * 8)) as u8 ^ (i >> 3).wrapping_mul(word | 3) as u8).collect()
}

fn append(piece: &View<'_>, into: &mut Vec<u8>) {
    let at = into.len();
    into.resize(at + piece.len(), 0);
    piece.copy_to(0, &mut into[at..]);
}

/// What a view shows, with `meanwhile` called at each piece.
fn view<M: Memory>(
    map: &Map,
    memory: &mut M,
    key: u64,
    mut meanwhile: impl FnMut(usize),
) -> Result<Option<Vec<u8>>, AccessError> {
    let (mut seen, mut pieces) = (Vec::new(), 0);
    let len = map.view(memory, &key, |piece| {
        meanwhile(pieces);
        pieces += 1;
        append(&piece, &mut seen);
        ControlFlow::Continue(())
    })?;
    assert_eq!(len.unwrap_or(0), seen.len());
    Ok(len.map(|_| seen))
}

#[test]
fn a_view_shows_subpages_in_order_until_it_breaks() {
    let mut memory = FaultyMemory::new();
    let (_, map) = create(&mut memory, 16 << 20);
    for (key, len) in [0, 1, 8, 100, 4095, 4096, 4097, 9000, MIB, 3 * MIB + 5].into_iter().enumerate() {
        let (key, new) = (key as u64, value(key as u64, len));
        map.put(&mut memory, &key, &new).unwrap();
        let mut lens = Vec::new();
        let shown = map.view(&mut memory, &key, |piece| {
            lens.push(piece.len());
            ControlFlow::Continue(())
        });
        assert_eq!(shown, Ok(Some(len)));
        assert_eq!(lens.len(), len.div_ceil(SUBPAGE_BYTES));
        assert!(lens.iter().rev().skip(1).all(|piece| *piece == SUBPAGE_BYTES), "{len}: {lens:?}");
        memory.take_most_pins();
        assert!(view(&map, &mut memory, key, |_| ()).unwrap().unwrap() == new, "{len} bytes");
        assert_eq!(memory.take_most_pins(), u64::from(len > 0), "one pin at a time");
        let mut pieces = 0;
        let broken = map.view(&mut memory, &key, |_| {
            pieces += 1;
            if pieces == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((broken, pieces), (Ok(Some(len)), lens.len().min(2)));
    }
    assert_eq!(view(&map, &mut memory, 99, |_| ()), Ok(None));
    map.check(&mut memory).unwrap();

    // Keys in order, and values that are objects: of a memory without such, they are subpages.
    let heap = Region::new(Address::from_linear(1 << 31), 4 << 20);
    let heap = Arc::new(Heap::create(&mut memory, heap).unwrap());
    let mut files: OrderedBlobs = OrderedBlobs::create(&mut memory, heap, 4).unwrap();
    let objects = Region::new(Address::from_linear(1 << 32), 1 << 20);
    files.make_objects(&mut memory, objects).unwrap();
    for len in [0, 1, 13, 4096, 4097] {
        let new = value(7, len);
        files.put(&mut memory, b"a file", &new).unwrap();
        let mut seen = Vec::new();
        let shown = files.view(&mut memory, b"a file", |piece| {
            append(&piece, &mut seen);
            ControlFlow::Continue(())
        });
        assert!(shown == Ok(Some(len)) && seen == new, "{len} bytes: {shown:?}");
    }
    assert_eq!(files.view(&mut memory, b"another", |_| ControlFlow::Continue(())), Ok(None));
}

/// Every way to change a value.
fn changes(map: &Arc<Map>, old: &[u8], memory: &mut PlainMemory, way: usize) -> Option<Vec<u8>> {
    let (new, len) = (value(2, old.len()), old.len());
    match way {
        0 => {
            map.put(memory, &1, &new).unwrap();
            Some(new)
        }
        1 => {
            // The space of the first one must not be taken by the second.
            map.put(memory, &1, &value(3, len)).unwrap();
            map.put(memory, &1, &new).unwrap();
            map.put(memory, &2, &value(4, len)).unwrap();
            map.remove(memory, &2).unwrap();
            Some(new)
        }
        2 => {
            map.remove(memory, &1).unwrap();
            None
        }
        3 => {
            assert_eq!(map.write_at(memory, &1, len / 2, b"a change"), Ok(true));
            let mut changed = old.to_vec();
            changed[len / 2..][..8].copy_from_slice(b"a change");
            Some(changed)
        }
        4 => {
            assert_eq!(map.append(memory, &1, b"more"), Ok(len + 4));
            Some([old, b"more"].concat())
        }
        5 => {
            assert_eq!(map.update(memory, &1, |value| value.reverse()), Ok(Some(())));
            Some(old.iter().rev().copied().collect())
        }
        6 => {
            assert_eq!(map.compare_and_put(memory, &1, Some(old), &new), Ok(true));
            Some(new)
        }
        7 => {
            let transactions = Transactions::new();
            transactions.run(memory, |t| t.put(map, &1, &new[..])).unwrap();
            transactions.run(memory, |t| t.put(map, &2, &value(5, len)[..])).unwrap();
            transactions.run(memory, |t| t.remove(map, &2).map(drop)).unwrap();
            Some(new)
        }
        _ => {
            let (mut writer, half) = (map.writer(memory, len).unwrap(), len / 2);
            writer.write(memory, &new[..half]).unwrap();
            writer.write(memory, &new[half..]).unwrap();
            writer.finish(memory, &1).unwrap();
            Some(new)
        }
    }
}

#[test]
fn what_is_viewed_stays_whatever_changes_it() {
    let mut memory = plain();
    let (_, map) = create(&mut memory, 32 << 20);
    let empty = map.heap().used_bytes();
    for len in [100, 4096, 9000, MIB + 100] {
        let pieces = len.div_ceil(SUBPAGE_BYTES);
        for way in 0..9 {
            for at in [0, pieces / 2, pieces - 1] {
                let old = value(1, len);
                map.put(&mut memory, &1, &old).unwrap();
                let mut expected = None;
                let mut other = memory.clone();
                let seen = view(&map, &mut memory, 1, |piece| {
                    if piece == at {
                        expected = Some(changes(&map, &old, &mut other, way));
                        // Another view of the new one begins and ends in this one.
                        assert!(view(&map, &mut other, 1, |_| ()).unwrap() == expected.clone().unwrap());
                    }
                });
                assert!(seen.unwrap().unwrap() == old, "change {way} at piece {at} of {len} bytes is seen");
                assert!(view(&map, &mut memory, 1, |_| ()).unwrap() == expected.unwrap(), "change {way}");
                map.check(&mut memory).unwrap();
                map.remove(&mut memory, &1).unwrap();
                assert_eq!(map.heap().used_bytes(), empty, "change {way} at piece {at} of {len} bytes loses space");
            }
        }
    }
}

#[test]
fn a_value_waits_for_the_last_view() {
    let mut memory = plain();
    let (_, map) = create(&mut memory, 8 << 20);
    let empty = map.heap().used_bytes();
    let old = value(1, 9000);
    map.put(&mut memory, &1, &old).unwrap();
    let (mut inner, mut writer) = (memory.clone(), memory.clone());
    let outer = view(&map, &mut memory, 1, |piece| {
        if piece == 1 {
            let used = map.heap().used_bytes();
            let seen = view(&map, &mut inner, 1, |piece| {
                if piece == 1 {
                    map.remove(&mut writer, &1).unwrap();
                }
            });
            assert!(seen.unwrap().unwrap() == old);
            assert_eq!(map.heap().used_bytes(), used, "one view is left");
        }
    });
    assert!(outer.unwrap().unwrap() == old);
    assert_eq!(map.heap().used_bytes(), empty);
    // More values wait than there are notes.
    let keys = 40;
    for key in 0..keys {
        map.put(&mut memory, &key, &value(key, 5000)).unwrap();
    }
    fn nest(map: &Map, memory: &PlainMemory, key: u64, keys: u64) {
        if key == keys {
            (0..keys).for_each(|key| assert_eq!(map.remove(&mut memory.clone(), &key), Ok(true)));
            return;
        }
        let seen = view(map, &mut memory.clone(), key, |piece| {
            if piece == 0 {
                nest(map, memory, key + 1, keys);
            }
        });
        assert!(seen.unwrap().unwrap() == value(key, 5000));
    }
    nest(&map, &memory, 0, keys);
    assert_eq!(map.heap().used_bytes(), empty);
    map.check(&mut memory).unwrap();
}

#[test]
fn others_run_inside_each_access_of_a_view() {
    let memory = plain();
    let (_, map) = create(&mut memory.clone(), 8 << 20);
    let whole = |bytes: &[u8]| (0..1000).any(|number| bytes[..8] == value(number, 8) && bytes == value(number, 9000));
    map.put(&mut memory.clone(), &1, &value(0, 9000)).unwrap();
    let used = map.heap().used_bytes();
    let mut came = 0;
    for round in 0..300 {
        let mut other = |memory: &mut NeverParks| {
            came += 1;
            // Where the view holds a latch, nothing is changed.
            for number in [2 * round, 2 * round + 1] {
                let put = map.put(memory, &1, &value(number, 9000));
                assert!(put == Ok(true) || put == Err(AccessError::Cancelled), "{put:?}");
            }
        };
        let mut outer = SwitchingMemory::new(memory.clone(), round % 10, &mut other);
        let seen = view(&map, &mut outer, 1, |_| ()).unwrap().unwrap();
        assert!(whole(&seen), "round {round}");
    }
    assert!(came > 150, "only {came}");
    assert_eq!(map.heap().used_bytes(), used);
    map.check(&mut memory.clone()).unwrap();
}

/// A number, a stamp twice, and what follows from the number.
fn stamped(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = value(number, len);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..24].fill(number as u8);
    bytes
}

/// Counts one down when it is dropped.
struct Done<'a>(&'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[test]
fn threads_view_what_threads_change() {
    const SHARED: u64 = 4;
    // Views of each thread that find a value. The writers go on until all of them have been made.
    const VIEWS: u64 = 1000;
    let lens = [24, 100, 4096, 4097, 9000, 40_000];
    let memory = plain();
    let (_, map) = create(&mut memory.clone(), 64 << 20);
    let empty = map.heap().used_bytes();
    let random = Random::seeded("views, threads", 6);
    let (viewing, transactions) = (AtomicU64::new(3), Transactions::new());
    // Also for views that are done before the first change.
    for key in 0..SHARED {
        map.put(&mut memory.clone(), &key, &stamped(key << 2, 100)).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (mut memory, mut random) = (memory.clone(), random.split(thread));
            let (map, transactions, viewing) = (&map, &transactions, &viewing);
            scope.spawn(move || {
                for number in 0u64.. {
                    if number >= 1500 && viewing.load(Relaxed) == 0 {
                        break;
                    }
                    let (key, number) = (random.below(SHARED), number << 2 | thread);
                    let new = stamped(number, lens[random.below(lens.len())]);
                    match random.below(8) {
                        0 => drop(map.remove(&mut memory, &key).unwrap()),
                        1 => drop(map.update(&mut memory, &key, |now| *now = new).unwrap()),
                        2 => transactions.run(&mut memory, |t| t.put(map, &key, &new[..])).unwrap(),
                        // In place, which no view sees half way.
                        3 | 4 => drop(map.write_at(&mut memory, &key, 8, &[number as u8; 16]).unwrap()),
                        _ => drop(map.put(&mut memory, &key, &new).unwrap()),
                    }
                }
            });
        }
        for thread in 3..6u64 {
            let (mut memory, mut random, map, viewing) = (memory.clone(), random.split(thread), &map, &viewing);
            scope.spawn(move || {
                // Also where it panics, so that the writers end.
                let _done = Done(viewing);
                let mut seen = 0;
                while seen < VIEWS {
                    let (key, mut bytes) = (random.below(SHARED), Vec::new());
                    let len = map.view(&mut memory, &key, |piece| {
                        let from = bytes.len();
                        append(&piece, &mut bytes);
                        std::thread::yield_now();
                        let mut again = Vec::new();
                        append(&piece, &mut again);
                        assert!(again == bytes[from..], "{key} changed while it was viewed");
                        ControlFlow::Continue(())
                    });
                    let Some(len) = len.unwrap() else { continue };
                    assert!(bytes[8..24].iter().all(|stamp| *stamp == bytes[8]), "torn stamp of {key}");
                    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    assert!(bytes[24..] == stamped(number, len)[24..], "torn: {len} bytes of {key}");
                    seen += 1;
                }
            });
        }
    });
    let mut memory = memory;
    map.check(&mut memory).unwrap();
    for key in 0..SHARED {
        map.remove(&mut memory, &key).unwrap();
    }
    assert_eq!(map.heap().used_bytes(), empty, "nothing is lost among threads");
}

#[test]
fn a_view_that_fails_or_panics_leaves_nothing_pinned_and_loses_nothing() {
    let mut memory = FaultyMemory::new();
    let (_, map) = create(&mut memory, 16 << 20);
    let empty = map.heap().used_bytes();
    let (old, new) = (value(1, 20_000), value(2, 20_000));
    let mut other = memory.clone();
    let mut failures = 0;
    for count in 0..40 {
        map.put(&mut memory, &1, &old).unwrap();
        let error = errors()[count as usize % 3];
        memory.fail_after(count, error);
        let seen = view(&map, &mut memory, 1, |piece| {
            if piece == 1 {
                map.put(&mut other, &1, &new).unwrap();
            }
        });
        let met = !memory.heal();
        match seen {
            Ok(seen) => assert!(seen.unwrap() == old),
            Err(got) => {
                failures += 1;
                assert!(met && got == error, "{got}");
            }
        }
        memory.take_most_pins();
        assert_eq!(memory.take_most_pins(), 0, "a pin is left");
        // What could not be freed is, before the next long value is written.
        drop(map.writer(&mut memory, 0).unwrap());
        map.remove(&mut memory, &1).unwrap();
        assert_eq!(map.heap().used_bytes(), empty, "access {count}");
    }
    assert!(failures > 5, "only {failures}");

    map.put(&mut memory, &1, &old).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        view(&map, &mut memory, 1, |piece| {
            if piece == 2 {
                map.remove(&mut other, &1).unwrap();
                panic!("of the program");
            }
        })
    }));
    assert!(panicked.is_err());
    memory.take_most_pins();
    assert_eq!(memory.take_most_pins(), 0, "a pin is left");
    assert_eq!(map.heap().used_bytes(), empty);
    assert_eq!(map.put(&mut memory, &1, &new), Ok(false));
    assert!(view(&map, &mut memory, 1, |_| ()).unwrap().unwrap() == new);
    map.check(&mut memory).unwrap();
}

#[test]
fn a_kill_or_a_roll_back_in_the_middle_of_a_view_costs_no_space() {
    let mut memory = plain();
    let (directory, map) = create(&mut memory, 16 << 20);
    let (old, new) = (value(1, MIB), value(2, MIB));
    map.put(&mut memory, &1, &old).unwrap();
    let used = map.heap().used_bytes();
    let mut other = memory.clone();
    // A roll back to the state in which the value waits.
    let seen = view(&map, &mut memory, 1, |piece| {
        assert!(piece < 100, "nothing is shown after a roll back");
        if piece == 99 {
            map.put(&mut other, &1, &new).unwrap();
            map.save(&mut other).unwrap();
            assert_eq!(map.reload(&mut other, &directory), Ok(true));
        }
    });
    assert!(matches!(seen, Err(AccessError::ValueGone { .. })), "{seen:?}");
    assert!(view(&map, &mut memory, 1, |_| ()).unwrap().unwrap() == new);
    assert!(map.heap().used_bytes() > used, "the old value waits in that state");
    map.put(&mut memory, &1, &value(3, 2 * MIB)).unwrap();
    map.put(&mut memory, &1, &new).unwrap();
    assert_eq!(map.heap().used_bytes(), used);
    map.check(&mut memory).unwrap();

    // A kill: another process opens what a sync has named in the middle of a view.
    let mut again = None;
    let seen = view(&map, &mut memory, 1, |piece| {
        if piece == 7 {
            map.remove(&mut other, &1).unwrap();
            map.save(&mut other).unwrap();
            again = Some(Map::open(&mut other, &directory, "films", 4).unwrap());
            // The first process does nothing more.
            map.abandon();
        }
    });
    assert!(matches!(seen, Err(AccessError::ValueGone { .. })), "{seen:?}");
    let again = again.unwrap();
    assert!(again.heap().used_bytes() >= used);
    drop(again.writer(&mut memory, 0).unwrap());
    assert_eq!(again.heap().used_bytes() + MIB as u64, used);
    again.check(&mut memory).unwrap();
}

/// Plain memory that goes back to an older state inside one access.
struct RolledMemory {
    inner: PlainMemory,
    older: Vec<u8>,
    countdown: u64,
    roll_backs: AtomicU64,
}

const FROM: u64 = 1 << 16;

impl RolledMemory {
    fn access(&mut self) -> Result<(), AccessError> {
        if self.countdown == 0 {
            self.inner.write_bytes(Address::from_linear(FROM), &self.older)?;
            self.roll_backs.fetch_add(1, Relaxed);
        }
        self.countdown = self.countdown.wrapping_sub(1);
        Ok(())
    }
}

impl RawMemory for RolledMemory {
    type Pin = <PlainMemory as RawMemory>::Pin;
    type Section = ();
    type Inner = Self;
    fn identity(&self) -> Identity<'_> {
        Identity::new(self.inner.id(), &self.roll_backs)
    }
    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.access()?;
        self.inner.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.access()?;
        self.inner.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<Self::Pin, AccessError> {
        self.access()?;
        self.inner.pin(at)
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.inner.park(word, expected)
    }
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
}

/// Latches are marked at the end of a roll back, and jobs go on before.
#[test]
fn no_read_with_a_roll_back_inside_is_torn() {
    let mut memory = plain();
    let (_, map) = create(&mut memory, 1 << 20);
    let (old, new) = (value(1, 20_000), value(2, 20_000));
    map.put(&mut memory, &1, &old).unwrap();
    let mut older = vec![0; 2 << 20];
    memory.read_bytes(Address::from_linear(FROM), &mut older).unwrap();
    map.remove(&mut memory, &1).unwrap();
    map.put(&mut memory, &1, &new).unwrap();
    let mut newer = vec![0; older.len()];
    memory.read_bytes(Address::from_linear(FROM), &mut newer).unwrap();
    let (mut olds, mut news, mut gone) = (0, 0, 0);
    for (count, way) in (0..12).flat_map(|count| [0, 1, 2].map(|way| (count, way))) {
        memory.write_bytes(Address::from_linear(FROM), &newer).unwrap();
        let mut rolled = RolledMemory {
            inner: memory.clone(),
            older: older.clone(),
            countdown: count,
            roll_backs: AtomicU64::new(0),
        };
        let mut seen = Vec::new();
        let result = match way {
            0 => map.get(&mut rolled, &1, &mut seen).map(|found| found.then_some(seen)),
            1 => map
                .view(&mut rolled, &1, |piece| {
                    append(&piece, &mut seen);
                    assert!(old.starts_with(&seen) || new.starts_with(&seen), "torn at access {count}");
                    ControlFlow::Continue(())
                })
                .map(|len| len.map(|_| seen)),
            _ => map.reader(&mut rolled, &1).and_then(|reader| {
                let mut reader = reader.expect("both states have it");
                seen.resize(20_000, 0);
                let read = reader.read(&mut rolled, &mut seen)?;
                assert_eq!(read, 20_000);
                Ok(Some(seen))
            }),
        };
        match result {
            Ok(Some(seen)) if seen == old => olds += 1,
            Ok(Some(seen)) if seen == new => news += 1,
            Ok(_) => panic!("torn: way {way}, access {count}"),
            Err(AccessError::ValueGone { .. }) if way > 0 => gone += 1,
            Err(error) => panic!("way {way}, access {count}: {error}"),
        }
    }
    println!("{olds} of the older state, {news} of the newer, {gone} gone");
    assert!(olds > 5 && news > 3 && gone > 3, "{olds} {news} {gone}");
}
