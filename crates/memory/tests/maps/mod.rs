//! The model suite of all containers that lead from keys to values: each operation is compared with
//! a `BTreeMap`, with accesses that fail, with other fibers at any access, and with threads. An
//! array leads from indexes to elements.

use std::collections::BTreeMap;
use std::fmt::Debug;

use fulgurite_memory::{AccessError, Heap, Memory, PlainMemory};

use super::common::{FaultyMemory, Random, errors, interleave};

/// What an operation found.
pub type Found<V> = Result<Option<V>, AccessError>;

/// The entries that a scan showed.
pub type Scanned<K, V> = Result<Vec<(K, V)>, AccessError>;

/// A container under test.
pub trait Map: Sync {
    type Key: Ord + Clone + Debug + Send + Sync;
    type Value: Copy + PartialEq + Debug + Send + Sync;
    /// Whether entries are found in the order of their keys.
    const ORDERED: bool = true;
    /// Whether entries come and go.
    const GROWS: bool = true;
    /// Entries of a scan that are of one state of the container.
    const SCANNED: usize = 1;
    /// Whether it is checked after each operation.
    const CHECKED: bool = false;
    /// The most pins that an operation may hold at once.
    const PINS: u64 = u64::MAX;

    fn get<M: Memory>(&self, memory: &mut M, key: &Self::Key) -> Found<Self::Value>;
    fn insert<M: Memory>(&self, memory: &mut M, key: &Self::Key, value: Self::Value) -> Found<Self::Value>;
    fn remove<M: Memory>(&self, memory: &mut M, key: &Self::Key) -> Found<Self::Value>;
    /// Returns the value before.
    fn update<M: Memory>(
        &self,
        memory: &mut M,
        key: &Self::Key,
        change: impl FnMut(&mut Self::Value),
    ) -> Found<Self::Value>;
    /// Up to `limit` entries from `from` on, in their order. Where there is none: all of them.
    fn scan<M: Memory>(&self, memory: &mut M, from: &Self::Key, limit: usize) -> Scanned<Self::Key, Self::Value>;
    /// The last entry up to `key`, where the container can be asked for that.
    fn last<M: Memory>(&self, _: &mut M, _: &Self::Key) -> Option<Found<(Self::Key, Self::Value)>> {
        None
    }
    /// How many entries it has, which are all whole.
    fn check<M: Memory>(&self, memory: &mut M) -> u64;
}

/// What is done with a container: keys by number, so that few of them meet often, and values by
/// number.
pub struct Plan<'p, C: Map> {
    pub random: Random,
    /// The lowest key.
    pub first: C::Key,
    pub key: &'p (dyn Fn(u64) -> C::Key + Sync),
    pub value: &'p (dyn Fn(u64) -> C::Value + Sync),
    /// How many different numbers of keys there are.
    pub keys: u64,
    pub steps: u64,
}

type Model<C> = BTreeMap<<C as Map>::Key, <C as Map>::Value>;

/// All that a container holds.
fn contents<C: Map, M: Memory>(map: &C, memory: &mut M, first: &C::Key) -> Model<C> {
    let all = map.scan(memory, first, usize::MAX).unwrap();
    assert!(!C::ORDERED || all.is_sorted_by(|a, b| a.0 < b.0), "out of order: {all:?}");
    let count = all.len();
    let all: Model<C> = all.into_iter().collect();
    assert_eq!(all.len(), count, "a key was found twice");
    all
}

/// A container is whole, and has what the model has.
pub fn assert_same<C: Map, M: Memory>(map: &C, memory: &mut M, first: &C::Key, model: &Model<C>) {
    assert_eq!(map.check(memory), model.len() as u64);
    assert_eq!(&contents(map, memory, first), model);
}

fn after<C: Map>(model: &Model<C>, from: &C::Key, limit: usize) -> Vec<(C::Key, C::Value)> {
    model.range(from.clone()..).take(limit).map(|(key, value)| (key.clone(), *value)).collect()
}

/// An operation on a container, by the numbers of a key and a value.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(u64),
    Insert(u64, u64),
    Remove(u64),
    Update(u64, u64),
    /// The n-th entry from this key on.
    Nth(u64, usize),
    Last(u64),
}

impl Operation {
    /// A random one: of eight, `inserts` insert and `removes` remove.
    fn any<C: Map>(random: &mut Random, keys: u64, (inserts, removes): (u64, u64)) -> Operation {
        let (key, value) = (random.below(keys), random.next());
        match random.below(8_u64) {
            n if n < inserts => Operation::Insert(key, value),
            n if n < inserts + removes && C::GROWS => Operation::Remove(key),
            _ => match random.below(4_u64) {
                0 => Operation::Get(key),
                1 if C::ORDERED => Operation::Nth(key, random.below(30)),
                2 if C::ORDERED => Operation::Last(key),
                _ => Operation::Update(key, value),
            },
        }
    }
    fn run<C: Map, M: Memory>(self, plan: &Plan<'_, C>, map: &C, memory: &mut M) -> Found<(C::Key, C::Value)> {
        let with = |key: &C::Key, found: Found<C::Value>| found.map(|found| found.map(|value| (key.clone(), value)));
        match self {
            Operation::Get(n) => with(&(plan.key)(n), map.get(memory, &(plan.key)(n))),
            Operation::Insert(n, v) => with(&(plan.key)(n), map.insert(memory, &(plan.key)(n), (plan.value)(v))),
            Operation::Remove(n) => with(&(plan.key)(n), map.remove(memory, &(plan.key)(n))),
            Operation::Update(n, v) => {
                with(&(plan.key)(n), map.update(memory, &(plan.key)(n), |now| *now = (plan.value)(v)))
            }
            Operation::Nth(n, nth) => Ok(map.scan(memory, &(plan.key)(n), nth + 1)?.into_iter().nth(nth)),
            Operation::Last(n) => map.last(memory, &(plan.key)(n)).unwrap_or(Ok(None)),
        }
    }
    /// Runs the operation on a model. `asks`: whether the container can be asked for the last
    /// entry.
    fn apply<C: Map>(self, plan: &Plan<'_, C>, model: &mut Model<C>, asks: bool) -> Option<(C::Key, C::Value)> {
        let with = |key: C::Key, found: Option<C::Value>| found.map(|value| (key, value));
        match self {
            Operation::Get(n) => with((plan.key)(n), model.get(&(plan.key)(n)).copied()),
            Operation::Insert(n, v) => with((plan.key)(n), model.insert((plan.key)(n), (plan.value)(v))),
            Operation::Remove(n) => with((plan.key)(n), model.remove(&(plan.key)(n))),
            Operation::Update(n, v) => {
                let now = model.get_mut(&(plan.key)(n));
                with((plan.key)(n), now.map(|now| std::mem::replace(now, (plan.value)(v))))
            }
            Operation::Nth(n, nth) => after::<C>(model, &(plan.key)(n), nth + 1).into_iter().nth(nth),
            Operation::Last(n) if asks => {
                model.range(..=(plan.key)(n)).next_back().map(|(key, value)| (key.clone(), *value))
            }
            Operation::Last(_) => None,
        }
    }
}

/// Whether a container grows at this step, rather than shrinks.
fn grows(step: u64, steps: u64) -> bool {
    (step * 8 / steps).is_multiple_of(2)
}

fn asks<C: Map, M: Memory>(map: &C, memory: &mut M, plan: &Plan<'_, C>) -> bool {
    map.last(memory, &plan.first).is_some()
}

/// Random operations agree with a model, while the container grows and shrinks again and again.
/// Now and then `reopen` opens it anew. All entries are removed in the end.
pub fn agrees_with_a_model<C: Map>(
    mut map: C,
    memory: &mut PlainMemory,
    mut plan: Plan<'_, C>,
    heap: Option<&Heap>,
    reopen: impl Fn(&mut PlainMemory, C) -> C,
) -> C {
    let (mut model, asks) = (Model::<C>::new(), asks(&map, memory, &plan));
    if !C::GROWS {
        model = contents(&map, memory, &plan.first);
    }
    for step in 0..plan.steps {
        let growing = grows(step, plan.steps);
        let mut operation = Operation::any::<C>(&mut plan.random, plan.keys, if growing { (4, 1) } else { (1, 4) });
        if let (Operation::Remove(n), true) = (operation, C::ORDERED && step % 2 == 0) {
            // A key that is there, rather than any.
            if let Some((key, _)) = after::<C>(&model, &(plan.key)(n), 1).pop() {
                assert_eq!(map.remove(memory, &key), Ok(model.remove(&key)));
            }
            operation = Operation::Get(n);
        }
        let found = operation.run(&plan, &map, memory).unwrap();
        assert_eq!(found, operation.apply(&plan, &mut model, asks), "step {step}: {operation:?}");
        if C::CHECKED {
            assert_eq!(map.check(memory), model.len() as u64, "step {step}");
        }
        if step % (plan.steps / 16).max(1) == 0 {
            assert_same(&map, memory, &plan.first, &model);
            if let Some(heap) = heap {
                heap.check(memory).unwrap();
            }
            map = reopen(memory, map);
        }
    }
    assert_same(&map, memory, &plan.first, &model);
    if C::GROWS {
        for key in model.into_keys() {
            assert!(map.remove(memory, &key).unwrap().is_some());
        }
        assert_eq!(map.check(memory), 0);
    }
    map
}

/// Every access of every operation fails in turn, after which the container is what it was before.
/// All entries are removed in the end.
pub fn survives_failed_accesses<C: Map>(map: &C, memory: &mut FaultyMemory, mut plan: Plan<'_, C>, least: u64) {
    let (mut model, mut failures) = (contents(map, memory, &plan.first), 0);
    for step in 0..plan.steps {
        let growing = grows(step, plan.steps);
        let operation = Operation::any::<C>(&mut plan.random, plan.keys, if growing { (4, 2) } else { (2, 4) });
        if matches!(operation, Operation::Get(_) | Operation::Nth(..) | Operation::Last(_)) {
            continue;
        }
        for good in 0.. {
            let error = errors()[(good % 3) as usize];
            memory.fail_after(good, error);
            let found = operation.run(&plan, map, memory);
            let met = !memory.heal();
            assert!(memory.take_most_pins() <= C::PINS, "{operation:?} holds too many pins");
            match found {
                Err(got) => {
                    assert!(met && got == error, "{got}");
                    failures += 1;
                    assert_eq!(map.check(memory), model.len() as u64);
                    if good % 4 == 0 {
                        assert_same(map, memory, &plan.first, &model);
                    }
                }
                Ok(found) => {
                    assert_eq!(found, operation.apply(&plan, &mut model, true));
                    break;
                }
            }
        }
        if step % 50 == 0 {
            assert_same(map, memory, &plan.first, &model);
        }
    }
    assert!(failures > least, "only {failures} failures");
    if C::GROWS {
        for key in model.into_keys() {
            assert!(map.remove(memory, &key).unwrap().is_some());
        }
    }
}

/// An operation with another one inside, at any of its first accesses, is as if one came after the
/// other. `mix` says how many in eight insert and remove. `look` is called between two rounds.
pub fn lets_others_run<C: Map>(
    map: &C,
    memory: &PlainMemory,
    plan: &Plan<'_, C>,
    accesses: u64,
    mix: (u64, u64),
    look: impl Fn(&mut PlainMemory),
) {
    let mut own = memory.clone();
    let asks = asks(map, &mut own, plan);
    interleave(
        plan.steps,
        accesses,
        memory,
        plan.random.split(1),
        contents(map, &mut own, &plan.first),
        |random| match Operation::any::<C>(random, plan.keys, mix) {
            Operation::Nth(key, nth) => Operation::Nth(key, nth % C::SCANNED),
            other => other,
        },
        |model: &mut Model<C>, operation| operation.apply(plan, model, asks),
        |memory, operation| operation.run(plan, map, memory),
        |memory, operation| operation.run(plan, map, memory),
        |memory| {
            look(memory);
            map.check(memory);
            contents(map, memory, &plan.first)
        },
    );
}

/// Threads of [`serves_threads`].
pub const THREADS: u64 = 4;
/// Numbers below this are of counters.
pub const COUNTERS: u64 = 8;

/// The number of a key of a thread, or of those that all threads fight over.
fn own(n: u64, thread: u64) -> u64 {
    COUNTERS + n * (THREADS + 1) + thread
}

/// Four threads lose nothing and see whole values. They add to counters, use keys of their own
/// between the keys of the others, and fight over some. `add` adds one to a value, and `count` says
/// how many were added to one, which is whole.
pub fn serves_threads<C: Map>(
    map: &C,
    memory: &PlainMemory,
    plan: &Plan<'_, C>,
    add: impl Fn(&mut C::Value) + Sync,
    count: impl Fn(&C::Value) -> u64 + Sync,
) {
    let mut memory = memory.clone();
    for n in 0..COUNTERS {
        map.insert(&mut memory, &(plan.key)(n), (plan.value)(0)).unwrap();
    }
    let work = |mut memory: PlainMemory, thread: u64| {
        let mut random = plan.random.split(thread);
        let (mut mine, mut balance) = (Model::<C>::new(), 0);
        for step in 0..plan.steps {
            let shared = (plan.key)(random.below(COUNTERS));
            assert!(map.update(&mut memory, &shared, &add).unwrap().is_some(), "nobody removes these");
            count(&map.get(&mut memory, &shared).unwrap().expect("nobody removes these"));
            let n = random.below(plan.keys);
            let (key, value) = ((plan.key)(own(n, thread)), (plan.value)(step));
            let growing = grows(step, plan.steps);
            match random.below(8_u64) {
                0..4 if growing => assert_eq!(map.insert(&mut memory, &key, value), Ok(mine.insert(key, value))),
                0..4 => assert_eq!(map.remove(&mut memory, &key), Ok(mine.remove(&key))),
                4 | 5 if C::ORDERED => {
                    let shown = map.scan(&mut memory, &key, 20).unwrap();
                    assert!(shown.is_sorted_by(|a, b| a.0 < b.0));
                    shown.iter().for_each(|(_, value)| _ = count(value));
                    // Its own between the first and the last that were shown are all there.
                    if let Some((last, _)) = shown.last() {
                        let expected = mine.range(key.clone()..=last.clone());
                        let own = shown.iter().filter(|(key, _)| mine.contains_key(key));
                        assert!(own.map(|(key, value)| (key, value)).eq(expected));
                    }
                    if let Some(found) = map.last(&mut memory, &key) {
                        let found = found.unwrap().map(|(key, _)| key);
                        let least = mine.range(..=key.clone()).next_back().map(|(key, _)| key);
                        assert!(found.as_ref() >= least && found.is_none_or(|found| found <= key));
                    }
                }
                6 => assert_eq!(map.get(&mut memory, &key), Ok(mine.get(&key).copied())),
                _ => {
                    let contested = (plan.key)(own(n % 20, THREADS));
                    balance += match random.below(2_u64) {
                        0 => i64::from(map.insert(&mut memory, &contested, value).unwrap().is_none()),
                        _ => -i64::from(map.remove(&mut memory, &contested).unwrap().is_some()),
                    };
                }
            }
        }
        (mine, balance)
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let start = |thread| {
            scope.spawn({
                let (memory, work) = (memory.clone(), &work);
                move || work(memory, thread)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let found = contents(map, &mut memory, &plan.first);
    assert_eq!(map.check(&mut memory), found.len() as u64);
    let sum: u64 = (0..COUNTERS).map(|n| count(&found[&(plan.key)(n)])).sum();
    assert_eq!(sum, THREADS * plan.steps, "nothing that was added is lost");
    let mut entries = COUNTERS as i64;
    for (mine, balance) in all {
        entries += mine.len() as i64 + balance;
        assert!(mine.iter().all(|(key, value)| found.get(key) == Some(value)));
    }
    assert_eq!(found.len() as i64, entries);
}
