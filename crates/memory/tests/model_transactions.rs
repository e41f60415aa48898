//! Goal: transactions over containers of every kind happen at one moment each, or not at all, while
//! others make transactions and single operations, whatever fails, and a panic in one does nothing.
//! Method: another operation runs inside each access of a transaction, and results and contents
//! must be what one order or the other gives. Every access fails in turn, after which nothing has
//! changed and every object of the heap is accounted for. Threads move amounts between accounts in
//! containers of all kinds, and readers add them up. Bugs that are planted in transactions must be
//! found. Elements of an array are reached by index and by pointer.

use crate::common;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{FaultyMemory, Random, errors, interleave, plain};
use fulgurite_memory::{
    AccessError, Address, Array, BPlusTree, Blobs, HashMap, Heap, Masstree, Memory, OrderedBlobs, PAGE_BYTES,
    PlainMemory, Region, Transaction, TransactionBug, Transactions, VersionLatch,
};
use fulgurite_testkit as trials;

const PAGE: u64 = PAGE_BYTES as u64;
/// Keys of each container: the blocks of some share a subpage, and a latch.
const KEYS: u64 = 12;
const KINDS: u64 = 6;
/// Bytes of a node of the B+-tree.
const NODE_BYTES: usize = 128;

/// Where a number is kept: which container, and its key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct NumberKey {
    kind: u64,
    key: u64,
}

/// All the numbers there are. Elements of the array are always there.
type Model = BTreeMap<NumberKey, u64>;

struct Data {
    heap: Arc<Heap>,
    array: Array<u64>,
    map: Arc<HashMap<u64, u64, VersionLatch>>,
    tree: Arc<BPlusTree<u64, VersionLatch>>,
    trie: Arc<Masstree<VersionLatch>>,
    blobs: Arc<Blobs<u64>>,
    strings: Arc<OrderedBlobs>,
    transactions: Transactions,
}

/// Numbers for blobs that are objects: fewer than keys, so that some are in the heap.
const OBJECTS: u64 = 8;

/// A blob that says which number it is, and is longer for some.
fn bytes(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat([1, 2, 300, 700][number as usize % 4])
}
fn number(bytes: &[u8]) -> u64 {
    assert!(bytes.chunks(8).all(|chunk| chunk == &bytes[..8]), "a torn blob");
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}
fn text(key: u64) -> Vec<u8> {
    format!("a key that is long enough for a second layer {key:02}").into_bytes()
}

impl Data {
    fn new<M: Memory>(memory: &mut M, bug: Option<TransactionBug>) -> Data {
        let region = |page, pages| Region::new(Address::from_linear(page * PAGE), pages * PAGE);
        let heap = Arc::new(Heap::create(memory, region(1, 200)).unwrap());
        let transactions = Transactions::new();
        let mut blobs = Blobs::<u64>::create(memory, region(203, 1), heap.clone(), 4, 4).unwrap();
        blobs
            .make_objects(memory, Region::new(region(204, 1).base, Blobs::<u64>::object_bytes_needed(OBJECTS)))
            .unwrap();
        Data {
            array: Array::create(memory, region(201, 1), KEYS, |_| 0).unwrap(),
            map: HashMap::create_growing(memory, region(202, 1), heap.clone(), 40, 4).unwrap().into(),
            tree: BPlusTree::create_with_nodes(memory, heap.clone(), 4, NODE_BYTES).unwrap().into(),
            trie: Masstree::create(memory, heap.clone(), 4).unwrap().into(),
            blobs: blobs.into(),
            strings: OrderedBlobs::create(memory, heap.clone(), 4).unwrap().into(),
            transactions: match bug {
                Some(bug) => transactions.plant(bug),
                None => transactions,
            },
            heap,
        }
    }
    /// By its index or by a pointer.
    fn get_element<M: Memory>(&self, t: &mut Transaction<'_, M>, key: u64) -> Result<Option<u64>, AccessError> {
        if key.is_multiple_of(2) {
            t.get(&self.array, &key)
        } else {
            t.get(&self.array.ptr(key).expect("a key is an index"), &())
        }
    }
    fn put_element<M: Memory>(&self, t: &mut Transaction<'_, M>, key: u64, value: u64) -> Result<(), AccessError> {
        if key.is_multiple_of(3) {
            t.put(&self.array, &key, &value)
        } else {
            t.put(&self.array.ptr(key).expect("a key is an index"), &(), &value)
        }
    }
    fn get<M: Memory>(&self, t: &mut Transaction<'_, M>, at: NumberKey) -> Result<Option<u64>, AccessError> {
        match at.kind {
            0 => Ok(self.get_element(t, at.key)?.filter(|number| *number != 0)),
            1 => t.get(&self.map, &at.key),
            2 => t.get(&self.tree, &at.key),
            3 => t.get(&self.trie, &at.key.to_be_bytes()),
            4 => Ok(t.get(&self.blobs, &at.key)?.as_deref().map(number)),
            _ => Ok(t.get(&self.strings, &text(at.key))?.as_deref().map(number)),
        }
    }
    fn put<M: Memory>(&self, t: &mut Transaction<'_, M>, at: NumberKey, value: u64) -> Result<(), AccessError> {
        match at.kind {
            0 => self.put_element(t, at.key, value),
            1 => t.put(&self.map, &at.key, &value),
            2 => t.put(&self.tree, &at.key, &value),
            3 => t.put(&self.trie, &at.key.to_be_bytes(), &value),
            4 => t.put(&self.blobs, &at.key, &bytes(value)),
            _ => t.put(&self.strings, &text(at.key), &bytes(value)),
        }
    }
    fn remove<M: Memory>(&self, t: &mut Transaction<'_, M>, at: NumberKey) -> Result<bool, AccessError> {
        match at.kind {
            0 => {
                let found = self.get(t, at)?.is_some();
                self.put_element(t, at.key, 0)?;
                Ok(found)
            }
            1 => t.remove(&self.map, &at.key),
            2 => t.remove(&self.tree, &at.key),
            3 => t.remove(&self.trie, &at.key.to_be_bytes()),
            4 => t.remove(&self.blobs, &at.key),
            _ => t.remove(&self.strings, &text(at.key)),
        }
    }
    /// Puts without a transaction, not into an array.
    fn put_alone<M: Memory>(&self, memory: &mut M, at: NumberKey, value: u64) -> Result<(), AccessError> {
        match at.kind {
            0 | 1 => self.map.insert(memory, &at.key, value).map(drop),
            2 => self.tree.insert(memory, at.key, value).map(drop),
            3 => self.trie.insert(memory, &at.key.to_be_bytes(), value).map(drop),
            4 => self.blobs.put(memory, &at.key, &bytes(value)).map(drop),
            _ => self.strings.put(memory, &text(at.key), &bytes(value)).map(drop),
        }
    }
    /// Bytes of the heap that are not nodes of the B+-tree. An insert splits full nodes first, each
    /// in a change of its own, which stays when the insert then fails.
    fn used_beside_nodes<M: Memory>(&self, memory: &mut M) -> u64 {
        let shape = self.tree.check(memory).unwrap();
        self.heap.used_bytes() - (shape.leaves + shape.inner_nodes) * NODE_BYTES as u64
    }
    fn contents<M: Memory>(&self, memory: &mut M) -> Model {
        let read = |t: &mut Transaction<'_, M>| {
            let mut model = Model::new();
            for kind in 0..KINDS {
                for key in 0..KEYS {
                    let at = NumberKey { kind, key };
                    if let Some(value) = self.get(t, at)? {
                        model.insert(at, value);
                    }
                }
            }
            Ok::<_, AccessError>(model)
        };
        let model = Transactions::new().run(memory, read).unwrap();
        self.map.check(memory).unwrap();
        self.tree.check(memory).unwrap();
        self.trie.check(memory).unwrap();
        self.blobs.check(memory).unwrap();
        self.strings.check(memory).unwrap();
        model
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Moves an amount, if there is that amount.
    Move(NumberKey, NumberKey, u64),
    /// Reads some places.
    Read([NumberKey; 3]),
    /// Writes what it read of one place to two others.
    Copy(NumberKey, [NumberKey; 2]),
    Put([NumberKey; 2], u64),
    Remove([NumberKey; 2]),
    /// Up to this number of keys of an ordered container from one on, and then the first of them is
    /// removed.
    TakeFrom(NumberKey, usize),
    /// Changes a place and returns an error.
    Fail(NumberKey),
    /// Not a transaction.
    Alone(NumberKey, u64),
}

fn number_key(random: &mut Random) -> NumberKey {
    NumberKey { kind: random.below(KINDS), key: random.below(KEYS) }
}

fn choose(random: &mut Random) -> Operation {
    let (a, b, c) = (number_key(random), number_key(random), number_key(random));
    let value = 1 + random.below(1000u64);
    match random.below(10) {
        0..=2 => Operation::Move(a, b, 1 + value % 50),
        3 => Operation::Read([a, b, c]),
        4 => Operation::Copy(a, [b, c]),
        5 => Operation::Put([a, b], value),
        6 => Operation::Remove([a, b]),
        7 => Operation::TakeFrom(NumberKey { kind: [2, 5][value as usize % 2], key: a.key }, 1 + value as usize % 4),
        8 => Operation::Fail(a),
        _ => Operation::Alone(NumberKey { kind: 1 + a.kind % (KINDS - 1), ..a }, value),
    }
}

/// What an operation returns, and what it does to the model.
fn apply(model: &mut Model, operation: Operation) -> Vec<u64> {
    let get = |model: &Model, at: NumberKey| model.get(&at).copied().unwrap_or(0);
    match operation {
        Operation::Move(from, to, amount) => {
            let has = get(model, from);
            if has <= amount || from == to {
                return vec![has];
            }
            model.insert(from, has - amount);
            let had = get(model, to);
            model.insert(to, had + amount);
            vec![has, had]
        }
        Operation::Read(places) => places.map(|at| get(model, at)).to_vec(),
        Operation::Copy(from, to) => {
            let value = get(model, from) + 1;
            model.extend(to.map(|at| (at, value)));
            vec![value]
        }
        Operation::Put(places, value) => {
            model.extend(places.map(|at| (at, value)));
            Vec::new()
        }
        Operation::Remove(places) => places.map(|at| u64::from(model.remove(&at).is_some())).to_vec(),
        Operation::TakeFrom(from, limit) => {
            let end = NumberKey { key: KEYS, ..from };
            let found: Vec<(NumberKey, u64)> =
                model.range(from..end).take(limit).map(|(at, value)| (*at, *value)).collect();
            if let Some((first, _)) = found.first() {
                model.remove(first);
            }
            found.iter().flat_map(|(at, value)| [at.key, *value]).collect()
        }
        Operation::Fail(_) => vec![7],
        Operation::Alone(at, value) => {
            model.insert(at, value);
            Vec::new()
        }
    }
}

/// An error of a body, and those that accesses meet.
#[derive(Debug)]
enum Failure {
    Own(u64),
    Access(AccessError),
}
impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Failure {
        Failure::Access(error)
    }
}

fn perform<M: Memory>(data: &Data, memory: &mut M, operation: Operation) -> Result<Vec<u64>, AccessError> {
    if let Operation::Alone(at, value) = operation {
        data.put_alone(memory, at, value)?;
        return Ok(Vec::new());
    }
    let result = data.transactions.run(memory, |t| {
        Ok(match operation {
            Operation::Move(from, to, amount) => {
                let has = data.get(t, from)?.unwrap_or(0);
                if has <= amount || from == to {
                    return Ok(vec![has]);
                }
                data.put(t, from, has - amount)?;
                let had = data.get(t, to)?.unwrap_or(0);
                data.put(t, to, had + amount)?;
                vec![has, had]
            }
            Operation::Read(places) => {
                let mut found = Vec::new();
                for at in places {
                    found.push(data.get(t, at)?.unwrap_or(0));
                }
                found
            }
            Operation::Copy(from, to) => {
                let value = data.get(t, from)?.unwrap_or(0) + 1;
                for at in to {
                    data.put(t, at, value)?;
                }
                vec![value]
            }
            Operation::Put(places, value) => {
                for at in places {
                    data.put(t, at, value)?;
                }
                Vec::new()
            }
            Operation::Remove(places) => {
                let mut found = Vec::new();
                for at in places {
                    found.push(u64::from(data.remove(t, at)?));
                }
                found
            }
            Operation::TakeFrom(from, limit) => {
                let found: Vec<(u64, u64)> = if from.kind == 2 {
                    t.range(&data.tree, &from.key, limit)?
                } else {
                    let found = t.range(&data.strings, &text(from.key), limit)?;
                    let key = |text: &[u8]| std::str::from_utf8(&text[text.len() - 2..]).unwrap().parse().unwrap();
                    found.iter().map(|(text, bytes)| (key(text), number(bytes))).collect()
                };
                if let Some((key, _)) = found.first() {
                    data.remove(t, NumberKey { key: *key, ..from })?;
                }
                found.iter().flat_map(|(key, value)| [*key, *value]).collect()
            }
            Operation::Fail(at) => {
                data.put(t, at, 5)?;
                return Err(Failure::Own(7));
            }
            Operation::Alone(..) => unreachable!("done above"),
        })
    });
    match result {
        Ok(found) => Ok(found),
        Err(Failure::Own(what)) => Ok(vec![what]),
        Err(Failure::Access(error)) => Err(error),
    }
}

fn interleaved(rounds: u64, bug: Option<TransactionBug>, random: Random) {
    let memory = plain();
    let data = Data::new(&mut memory.clone(), bug);
    interleave(
        rounds,
        16,
        &memory,
        random,
        Model::new(),
        choose,
        apply,
        |memory, operation| perform(&data, memory, operation),
        |memory, operation| perform(&data, memory, operation),
        |memory| data.contents(memory),
    );
}

#[test]
fn transactions_inside_each_other_happen_one_after_the_other() {
    interleaved(trials::share(20_000), None, Random::seeded("transactions inside each other", trials::seed()));
}

#[test]
fn planted_bugs_are_found() {
    // Without a bug the same runs find nothing.
    (1..4).for_each(|seed| interleaved(2000, None, Random(seed)));
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = TransactionBug::ALL
        .map(|bug| (bug, (1..10).any(|seed| catch_unwind(|| interleaved(2000, Some(bug), Random(seed))).is_err())));
    std::panic::set_hook(quiet);
    assert!(found.iter().all(|(_, found)| *found), "{found:?}");
    trials::figure(21, "bugs planted in transactions that are found", found.len() as u64);
}

#[test]
fn a_failed_access_changes_nothing() {
    let mut random = Random::seeded("failing transactions", trials::seed());
    let mut memory = FaultyMemory::new();
    let data = Data::new(&mut memory, None);
    let mut model = Model::new();
    let mut failures = 0;
    for round in 0..trials::share(1500) {
        let (operation, error) = (choose(&mut random), errors()[random.below(3usize)]);
        for count in 0.. {
            let (used, beside) = (data.heap.used_bytes(), data.used_beside_nodes(&mut memory));
            memory.fail_after(count, error);
            let result = perform(&data, &mut memory, operation);
            if memory.heal() {
                assert_eq!(result.as_ref(), Ok(&apply(&mut model, operation)), "round {round}: {operation:?}");
                break;
            }
            match result {
                // What failed was not needed, or what was allocated was given back.
                Ok(found) => {
                    assert_eq!(found, apply(&mut model, operation), "round {round}: {operation:?}");
                    break;
                }
                Err(got) => {
                    failures += 1;
                    assert_eq!(got, error, "round {round}: {operation:?} at access {count}");
                    let beside_now = data.used_beside_nodes(&mut memory);
                    assert_eq!(beside_now, beside, "round {round}: {operation:?} at access {count}");
                    if !matches!(operation, Operation::Alone(..)) {
                        assert_eq!(data.heap.used_bytes(), used, "round {round}: {operation:?} at access {count}");
                    }
                }
            }
        }
        assert_eq!(data.contents(&mut memory), model, "round {round}: {operation:?}");
    }
    assert!(failures > 1000, "only {failures}");
}

/// Accounts in containers of all kinds, from which threads move amounts.
fn bank(bug: Option<TransactionBug>, transfers: u64) -> Result<(), String> {
    const FIRST: u64 = 1000;
    let memory = plain();
    let data = Data::new(&mut memory.clone(), bug);
    let all = (0..KINDS).flat_map(|kind| (0..KEYS).map(move |key| NumberKey { kind, key })).collect::<Vec<_>>();
    let filled = data.transactions.run(&mut memory.clone(), |t| {
        all.iter().try_for_each(|at| data.put(t, *at, FIRST))?;
        Ok::<_, AccessError>(())
    });
    filled.map_err(|error| error.to_string())?;
    let (total, ended, wrong) = (all.len() as u64 * FIRST, AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (data, all, mut memory) = (&data, &all, memory.clone());
                scope.spawn(move || {
                    let mut random = Random(writer + 1);
                    for _ in 0..transfers {
                        let (from, to) = (all[random.below(all.len())], all[random.below(all.len())]);
                        perform(data, &mut memory, Operation::Move(from, to, 1 + random.below(9u64))).unwrap();
                    }
                })
            })
            .collect();
        let (data, all, mut memory, ended, wrong) = (&data, &all, memory.clone(), &ended, &wrong);
        scope.spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                let sum = data.transactions.run(&mut memory, |t| {
                    let mut sum = 0;
                    for at in all {
                        sum += data.get(t, *at)?.unwrap_or(0);
                    }
                    Ok::<u64, AccessError>(sum)
                });
                match sum {
                    Ok(sum) => _ = wrong.fetch_add(u64::from(sum != total), Ordering::SeqCst),
                    // It reads everything, while two others write all the time.
                    Err(AccessError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ended.store(true, Ordering::SeqCst);
        results.into_iter().for_each(|result| result.unwrap());
    });
    let sum: u64 = data.contents(&mut memory.clone()).values().sum();
    match wrong.into_inner() {
        0 if sum == total => Ok(()),
        wrong => Err(format!("{sum} instead of {total}, and {wrong} wrong sums on the way")),
    }
}

#[test]
fn threads_keep_the_sum() {
    bank(None, trials::share(50_000)).unwrap();
}

#[test]
fn what_conflicts_for_ever_is_reported() {
    let mut memory = plain();
    let data = Data::new(&mut memory, None);
    let (at, mut runs) = (NumberKey { kind: 1, key: 3 }, 0);
    let result = data.transactions.run(&mut memory.clone(), |t| {
        let now = data.get(t, at)?.unwrap_or(0);
        data.put_alone(&mut memory, at, now + 1)?;
        runs += 1;
        data.put(t, at, 0)
    });
    assert_eq!(result, Err(AccessError::Conflict { runs }));
    assert!(runs > 100);
    assert_eq!(data.map.get(&mut memory, &at.key), Ok(Some(u64::from(runs))));
}

#[test]
fn a_panic_changes_nothing_and_poisons_nothing() {
    let mut memory = plain();
    let data = Data::new(&mut memory, None);
    for kind in 0..KINDS {
        let at = NumberKey { kind, key: 1 };
        perform(&data, &mut memory, Operation::Put([at; 2], 9)).unwrap();
        let used = data.heap.used_bytes();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            data.transactions.run(&mut memory.clone(), |t| {
                data.put(t, at, 700)?;
                data.put(t, NumberKey { key: 2, ..at }, 700)?;
                assert!(data.get(t, at)? != Some(700), "the body dies");
                Ok::<(), AccessError>(())
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(data.heap.used_bytes(), used);
        assert_eq!(
            perform(&data, &mut memory, Operation::Read([at, NumberKey { key: 2, ..at }, at])),
            Ok(vec![9, 0, 9])
        );
    }
    assert_eq!(data.contents(&mut memory).len() as u64, KINDS);
}

#[test]
fn a_panic_over_what_was_never_so_does_not_count() {
    let memory = plain();
    let data = Data::new(&mut memory.clone(), None);
    let (a, b) = (NumberKey { kind: 1, key: 1 }, NumberKey { kind: 2, key: 1 });
    perform(&data, &mut memory.clone(), Operation::Put([a, b], 50)).unwrap();
    let mut runs = 0;
    let sum = data.transactions.run(&mut memory.clone(), |t| {
        runs += 1;
        let first = data.get(t, a)?.unwrap();
        if runs == 1 {
            perform(&data, &mut memory.clone(), Operation::Move(a, b, 20))?;
        }
        let second = data.get(t, b)?.unwrap();
        assert_eq!(first + second, 100, "half of a transfer");
        Ok::<u64, AccessError>(first + second)
    });
    assert_eq!((sum, runs), (Ok(100), 2));
}

#[test]
fn more_than_a_transaction_may_change_is_refused() {
    let mut memory: PlainMemory = plain();
    let array = Array::create(&mut memory, Region::new(Address::from_linear(PAGE), 200 * PAGE), 3000, |_| [0u8; 4096]);
    let array = array.unwrap();
    let result = Transactions::new().run(&mut memory, |t| {
        (0..3000).try_for_each(|index| t.put(&array, &index, &[1; 4096]))?;
        Ok::<_, AccessError>(())
    });
    let most = 1024 * 4096;
    assert_eq!(result, Err(AccessError::TooLong { what: "transaction", bytes: most + 4096, most }));
    assert_eq!(array.get(&mut memory, 0), Ok([0; 4096]));
    // An index that the array does not have is an error, also where nothing is removed.
    let result = Transactions::new().run(&mut memory, |t| t.put(&array, &3000, &[1; 4096]));
    assert!(matches!(result, Err(AccessError::OutOfRange { .. })), "{result:?}");
    let result = Transactions::new().run(&mut memory, |t| t.remove(&array, &1));
    assert!(matches!(result, Err(AccessError::OutOfRange { .. })), "{result:?}");
}

#[test]
fn a_panic_in_the_change_of_a_value_changes_nothing_and_poisons_nothing() {
    let mut memory = plain();
    let data = Data::new(&mut memory, None);
    let trie = Masstree::<VersionLatch>::create(&mut memory, data.heap.clone(), 1).unwrap();
    let record = text(7);
    for key in [&b"short"[..], &record] {
        trie.insert(&mut memory, key, 5).unwrap();
    }
    data.map.insert(&mut memory, &1, 5).unwrap();
    data.tree.insert(&mut memory, 1, 5).unwrap();
    fn dies(value: &mut u64) {
        *value = 6;
        panic!("of the program");
    }
    let panics = |change: &mut dyn FnMut() -> bool| assert!(catch_unwind(AssertUnwindSafe(change)).is_err());
    let mut m = memory.clone();
    panics(&mut || data.map.update(&mut m, &1, dies).is_ok());
    panics(&mut || data.tree.update(&mut m, 1, dies).is_ok());
    panics(&mut || trie.update(&mut m, b"short", dies).is_ok());
    panics(&mut || trie.update(&mut m, &record, dies).is_ok());
    assert_eq!(data.map.insert(&mut memory, &1, 7), Ok(Some(5)));
    assert_eq!(data.tree.insert(&mut memory, 1, 7), Ok(Some(5)));
    assert_eq!(trie.insert(&mut memory, b"short", 7), Ok(Some(5)));
    assert_eq!(trie.insert(&mut memory, &record, 7), Ok(Some(5)));
}
