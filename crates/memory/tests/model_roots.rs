//! Goal: what has a name is found again, as what it was, after the program has ended and after a
//! roll back; and nothing is handed out twice. Method: containers of every kind under roots in
//! plain memory. A sync saves the heaps and copies all bytes; a roll back puts the bytes of some
//! earlier sync back and reloads what is open; a restart puts the bytes of the last sync back and
//! opens everything anew. In between, random operations, mirrored in models that are copied and put
//! back in the same way. After each of these all containers pass their checks and equal their
//! models. Objects of a heap are filled with what only their owner knows. Seeds are printed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::catch_unwind;
use std::sync::Arc;

use fulgurite_format::{NotDirectory, ROOTS_MAX};
use fulgurite_memory::{
    AccessError, Address, Array, BPlusTree, Container, Directory, HashMap, Heap, Masstree, Memory, PlainMemory, Ptr,
    Region, RootError, Rooted, Stored, VersionLatch,
};
use fulgurite_sys::Backed;
use fulgurite_testkit::Random;

const PAGE: u64 = 64 << 10;
const SPACE: u64 = 160 * PAGE;
const LATCHES: usize = 16;
/// Keys go from 0 to here.
const KEYS: u64 = 300;

type Hashed = HashMap<u64, [u64; 3], VersionLatch>;
type Tree = BPlusTree<u64, VersionLatch>;
type Trie = Masstree<VersionLatch>;

fn memory() -> PlainMemory {
    PlainMemory::new(Backed::BasePages).unwrap()
}
fn bytes(memory: &mut PlainMemory) -> Vec<u8> {
    let mut all = vec![0; SPACE as usize];
    memory.read_bytes(Address::from_linear(0), &mut all).unwrap();
    all
}
fn put_back(memory: &mut PlainMemory, all: &[u8]) {
    memory.write_bytes(Address::from_linear(0), all).unwrap();
}

/// What the containers should hold.
#[derive(Clone, Default, Debug, PartialEq)]
struct Model {
    hashed: BTreeMap<u64, u64>,
    tree: BTreeMap<u64, u64>,
    trie: BTreeMap<Vec<u8>, u64>,
    array: Vec<u64>,
    /// Objects of the heap: where, how many bytes, what they are filled with.
    objects: Vec<(Address, usize, u64)>,
    value: u64,
    /// Temporary roots, by name.
    extra: BTreeMap<String, u64>,
}

/// The containers, open.
struct Open {
    directory: Directory,
    hashed: Rooted<Hashed>,
    tree: Rooted<Tree>,
    trie: Rooted<Trie>,
    array: Rooted<Array<u64>>,
    heap: Rooted<()>,
    value: Ptr<u64>,
}

fn key_of(key: u64) -> Vec<u8> {
    format!("a key of many layers {:03}", key).into_bytes()
}

impl Open {
    fn create(m: &mut PlainMemory) -> Result<Open, RootError> {
        let directory = Directory::open(m, SPACE)?;
        let hashed = Rooted::create(m, &directory, "hashed", (1 << 18, Hashed::bytes_needed(100)), |m, heap, data| {
            Hashed::create(m, data, heap.clone(), 100, LATCHES)
        })?;
        let tree = Rooted::create(m, &directory, "tree", (1 << 19, 0), |m, heap, _| {
            Tree::create_with_nodes(m, heap.clone(), LATCHES, 128)
        })?;
        let trie =
            Rooted::create(m, &directory, "trie", (1 << 19, 0), |m, heap, _| Trie::create(m, heap.clone(), LATCHES))?;
        let array = Rooted::create(m, &directory, "array", (0, Array::<u64>::bytes_needed(KEYS)), |m, _, data| {
            Array::create(m, data, KEYS, |_| 0)
        })?;
        let heap = Rooted::create(m, &directory, "heap", (1 << 20, 0), |_, _, _| Ok(()))?;
        let value = directory.create_root(m, "value", 0u64)?;
        Ok(Open { directory, hashed, tree, trie, array, heap, value })
    }
    fn again(m: &mut PlainMemory) -> Result<Open, RootError> {
        let directory = Directory::open(m, SPACE)?;
        Ok(Open {
            hashed: Rooted::open(m, &directory, "hashed", LATCHES)?,
            tree: Rooted::open(m, &directory, "tree", LATCHES)?,
            trie: Rooted::open(m, &directory, "trie", LATCHES)?,
            array: Rooted::open(m, &directory, "array", LATCHES)?,
            heap: Rooted::open(m, &directory, "heap", LATCHES)?,
            value: directory.root(m, "value")?,
            directory,
        })
    }
    fn heaps(&self) -> [&Arc<Heap>; 5] {
        [self.hashed.heap(), self.tree.heap(), self.trie.heap(), self.array.heap(), self.heap.heap()]
    }
    fn save(&self, m: &mut PlainMemory) {
        self.heaps().into_iter().for_each(|heap| heap.save(m).unwrap());
    }
    fn reload(&self, m: &mut PlainMemory) {
        self.directory.reload(m).unwrap();
        let there = [
            self.hashed.reload(m, &self.directory),
            self.tree.reload(m, &self.directory),
            self.trie.reload(m, &self.directory),
            self.array.reload(m, &self.directory),
            self.heap.reload(m, &self.directory),
        ];
        assert_eq!(there, [const { Ok(true) }; 5]);
    }

    fn step(&self, m: &mut PlainMemory, model: &mut Model, random: &mut Random) {
        let (key, value) = (random.below(KEYS), random.next());
        match random.below(15) {
            0 | 1 => {
                let old = self.hashed.insert(m, &key, [value; 3]).unwrap();
                assert_eq!(old, model.hashed.insert(key, value).map(|v| [v; 3]));
            }
            2 => assert_eq!(self.hashed.remove(m, &key).unwrap(), model.hashed.remove(&key).map(|v| [v; 3])),
            3 | 4 => assert_eq!(self.tree.insert(m, key, value).unwrap(), model.tree.insert(key, value)),
            5 => assert_eq!(self.tree.remove(m, key).unwrap(), model.tree.remove(&key)),
            6 | 7 => {
                assert_eq!(self.trie.insert(m, &key_of(key), value).unwrap(), model.trie.insert(key_of(key), value))
            }
            8 | 9 => assert_eq!(self.trie.remove(m, &key_of(key)).unwrap(), model.trie.remove(&key_of(key))),
            10 => {
                self.array.set(m, key, value).unwrap();
                model.array[key as usize] = value;
                let other = random.below(KEYS);
                self.array.swap(m, key, other).unwrap();
                model.array.swap(key as usize, other as usize);
            }
            11 | 12 => {
                let bytes = 8 * (1 + random.below(40) as usize);
                match self.heap.heap().allocate(m, bytes) {
                    Ok(at) => {
                        m.write_bytes(at, &value.to_le_bytes().repeat(bytes / 8)).unwrap();
                        model.objects.push((at, bytes, value));
                    }
                    Err(error) => assert!(matches!(error, AccessError::NoSpace { .. }), "{error}"),
                }
            }
            13 if !model.objects.is_empty() => {
                let (at, bytes, _) = model.objects.swap_remove(random.below(model.objects.len() as u64) as usize);
                self.heap.heap().free(m, at, bytes).unwrap();
            }
            13 => {
                m.store(self.value, value).unwrap();
                model.value = value;
            }
            _ => {
                let name = format!("extra {}", key % 8);
                match model.extra.remove(&name) {
                    Some(_) => drop(self.directory.remove(m, &name).unwrap()),
                    None => {
                        self.directory.create_root(m, &name, value).unwrap();
                        model.extra.insert(name, value);
                    }
                }
            }
        }
    }

    fn equals(&self, m: &mut PlainMemory, model: &Model) {
        self.hashed.check(m).unwrap();
        self.tree.check(m).unwrap();
        self.trie.check(m).unwrap();
        self.heaps().into_iter().for_each(|heap| heap.check(m).unwrap());
        let mut found = Model { array: (0..KEYS).map(|i| self.array.get(m, i).unwrap()).collect(), ..Model::default() };
        self.hashed.for_each(m, |&key, value| found.hashed.extend([(key, value[0])])).unwrap();
        self.tree
            .scan(m, 0, u64::MAX, |key, &value| {
                found.tree.insert(key, value);
                ControlFlow::Continue(())
            })
            .unwrap();
        self.trie
            .scan(m, b"", usize::MAX, |key, value| {
                found.trie.insert(key.to_vec(), value);
                ControlFlow::Continue(())
            })
            .unwrap();
        found.value = m.load(self.value).unwrap();
        let used: u64 = model.objects.iter().map(|o| o.1 as u64).sum();
        assert!(self.heap.heap().used_bytes() >= used);
        for &(at, bytes, value) in &model.objects {
            let mut filled = vec![0; bytes];
            m.read_bytes(at, &mut filled).unwrap();
            assert_eq!(filled, value.to_le_bytes().repeat(bytes / 8), "an object is somebody else's too");
        }
        found.objects.clone_from(&model.objects);
        for root in self.directory.roots(m).unwrap().into_iter().filter(|root| root.name.starts_with("extra")) {
            let at: Ptr<u64> = self.directory.root(m, &root.name).unwrap();
            found.extra.insert(root.name, m.load(at).unwrap());
        }
        assert_eq!(found, *model);
    }
}

fn run(seed: u64) {
    let (mut m, mut random) = (memory(), Random(seed));
    let mut open = Open::create(&mut m).unwrap();
    let mut model = Model { array: vec![0; KEYS as usize], ..Model::default() };
    // What each sync named.
    let mut states: Vec<(Vec<u8>, Model)> = Vec::new();
    for _ in 0..30 {
        for _ in 0..random.below(400) {
            open.step(&mut m, &mut model, &mut random);
        }
        match random.below(if states.is_empty() { 1 } else { 4 }) {
            0 | 1 => {
                open.save(&mut m);
                states.push((bytes(&mut m), model.clone()));
            }
            2 => {
                states.truncate(1 + random.below(states.len() as u64) as usize);
                let (all, then) = states.last().unwrap();
                put_back(&mut m, all);
                open.reload(&mut m);
                model.clone_from(then);
            }
            _ => {
                let (all, then) = states.last().unwrap();
                // Another process: nothing is left in DRAM, nor in memory that the pool did not
                // have.
                m = memory();
                put_back(&mut m, all);
                open = Open::again(&mut m).unwrap();
                model.clone_from(then);
            }
        }
        open.equals(&mut m, &model);
    }
}

#[test]
fn everything_is_found_again_and_rolls_back_together() {
    let runs = fulgurite_testkit::runs(15);
    let first = fulgurite_testkit::first_seed(1);
    for seed in first..first + runs {
        if let Err(panic) = catch_unwind(|| run(seed)) {
            eprintln!("FULGURITE_SEED={seed} FULGURITE_RUNS=1 repeats it");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_root_that_is_leaving_has_no_name_and_keeps_its_pages() {
    let mut m = memory();
    let directory = Directory::open(&mut m, SPACE).unwrap();
    directory.create_root(&mut m, "one", 1u64).unwrap();
    let one = directory.find(&mut m, "one").unwrap();
    let leaving = directory.leave(&mut m, "one").unwrap();
    assert_eq!((leaving.address, leaving.bytes), (one.address, one.bytes));
    assert_eq!(directory.roots(&mut m), Ok(vec![]));
    assert_eq!(directory.leaving(&mut m), Ok(vec![leaving.clone()]));
    for unknown in [directory.find(&mut m, "one"), directory.leave(&mut m, "one"), directory.remove(&mut m, "one")] {
        assert!(matches!(unknown, Err(RootError::Unknown { .. })), "{unknown:?}");
    }
    // Its name is free, and its addresses are not.
    directory.create_root(&mut m, "one", 2u64).unwrap();
    let region = Region::new(one.address, one.bytes);
    assert_ne!(directory.find(&mut m, "one").unwrap().address, one.address);
    assert_eq!(directory.has_handed_out(&mut m, region), Ok(true));
    // Another process finds it.
    let directory = Directory::open(&mut m, SPACE).unwrap();
    assert_eq!(directory.leaving(&mut m), Ok(vec![leaving.clone()]));
    assert_eq!(directory.remove(&mut m, &leaving.name), Ok(leaving));
    assert_eq!(directory.leaving(&mut m), Ok(vec![]));
    assert_eq!(directory.has_handed_out(&mut m, region), Ok(false));
}

#[test]
fn who_uses_what_a_roll_back_took_away_gets_an_error() {
    let mut m = memory();
    let directory = Directory::open(&mut m, SPACE).unwrap();
    let before = bytes(&mut m);
    let make = |m: &mut PlainMemory, directory: &Directory| {
        Rooted::<Hashed>::create(m, directory, "map", (1 << 17, Hashed::bytes_needed(10)), |m, heap, data| {
            Hashed::create(m, data, heap.clone(), 10, 1)
        })
    };
    let map = make(&mut m, &directory).unwrap();
    map.insert(&mut m, &1, [1; 3]).unwrap();
    put_back(&mut m, &before);
    assert_eq!(map.reload(&mut m, &directory), Ok(false));
    // Another one, at the same place.
    let other = make(&mut m, &directory).unwrap();
    assert_eq!(other.address(), map.address());
    assert_eq!(map.get(&mut m, &1), Err(AccessError::Poisoned));
    assert_eq!(map.insert(&mut m, &1, [1; 3]), Err(AccessError::Poisoned));
    assert_eq!(map.heap().allocate(&mut m, 64), Err(AccessError::Poisoned));
    assert!(map.heap().free(&mut m, map.heap().region().base.add(8192), 64).is_err());
    map.heap().save(&mut m).unwrap();
    other.check(&mut m).unwrap();
    other.heap().check(&mut m).unwrap();
    assert_eq!(other.reload(&mut m, &directory), Ok(true));
    assert_eq!(other.get(&mut m, &1), Ok(None));
}

#[test]
fn a_heap_that_was_not_saved_is_opened_without_handing_anything_out_twice() {
    let mut m = memory();
    let region = Region::new(Address::from_linear(0), 8 << 20);
    let heap = Heap::create(&mut m, region).unwrap();
    let kept: Vec<Address> = (0..100).map(|_| heap.allocate(&mut m, 200).unwrap()).collect();
    heap.reload(&mut m).unwrap();
    for _ in 0..1000 {
        let new = heap.allocate(&mut m, 200).unwrap();
        assert!(!kept.contains(&new), "{new} was handed out before");
    }
}

#[test]
fn another_type_or_layout_is_refused_and_both_are_named() {
    #[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
    #[repr(C)]
    struct Old([u64; 2]);
    impl Stored for Old {
        const TYPE: &'static str = "shop.Order";
    }
    #[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
    #[repr(C)]
    struct New([u32; 6]);
    impl Stored for New {
        const TYPE: &'static str = "shop.Order";
    }
    let mut m = memory();
    let directory = Directory::open(&mut m, SPACE).unwrap();
    directory.create_root(&mut m, "order", Old([1, 2])).unwrap();
    let text = |error: Option<RootError>| error.expect("it is refused").to_string();

    let wrong = text(directory.root::<_, u64>(&mut m, "order").err());
    assert!(wrong.contains("\"shop.Order\"") && wrong.contains("\"u64\""), "{wrong}");
    let wrong = text(directory.root::<_, New>(&mut m, "order").err());
    assert!(wrong.contains("16 bytes aligned to 8") && wrong.contains("24 bytes aligned to 4"), "{wrong}");
    let wrong = text(Rooted::<Tree>::open(&mut m, &directory, "order", 1).err());
    assert!(wrong.contains("B+-tree of u64") && wrong.contains("shop.Order"), "{wrong}");
    let wrong = text(directory.root::<_, Old>(&mut m, "orders").err());
    assert!(wrong.contains("no root \"orders\""), "{wrong}");
    let again = directory.create_root(&mut m, "order", Old([3, 4]));
    assert_eq!(again.err(), Some(RootError::Exists { name: "order".into() }));
    let at = directory.root::<_, Old>(&mut m, "order").unwrap();
    assert_eq!(m.load(at).unwrap().0, [1, 2]);
}

#[test]
fn names_that_do_not_fit_are_refused() {
    let mut m = memory();
    let directory = Directory::open(&mut m, SPACE).unwrap();
    let (before, longest) = (bytes(&mut m), "n".repeat(96));
    for name in ["", &"n".repeat(97), &"ü".repeat(49)] {
        let refused = directory.create_root(&mut m, name, 1u64);
        assert!(matches!(refused, Err(RootError::BadName { .. })), "{name}");
        assert!(matches!(directory.find(&mut m, name), Err(RootError::BadName { .. })), "{name}");
    }
    type Deep = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[u8; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1];
        1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1]; 1];
    assert!(<Deep as Stored>::type_name().len() > 120);
    let refused = directory.create_root::<_, Deep>(&mut m, "deep", zerocopy::FromZeros::new_zeroed());
    assert!(matches!(refused, Err(RootError::BadTypeName { .. })));
    assert_eq!(bytes(&mut m), before, "nothing was changed");
    directory.create_root(&mut m, &longest, 1u64).unwrap();
    assert_eq!(directory.find(&mut m, &longest).unwrap().name, longest);
}

#[test]
fn a_full_directory_and_a_full_space_say_so_and_change_nothing() {
    let mut m = memory();
    let directory = Directory::open(&mut m, 1000 * PAGE).unwrap();
    for i in 0..ROOTS_MAX {
        directory.create_root(&mut m, &format!("root {i}"), i as u64).unwrap();
    }
    let before = bytes(&mut m);
    let refused = directory.create_root(&mut m, "one more", 0u64);
    assert_eq!(refused.err(), Some(RootError::Full { name: "one more".into() }));
    assert_eq!(bytes(&mut m), before, "the page that was taken for it is given back");
    directory.remove(&mut m, "root 7").unwrap();
    directory.create_root(&mut m, "one more", 5u64).unwrap();
    for i in (0..ROOTS_MAX).filter(|i| *i != 7) {
        let at: Ptr<u64> = directory.root(&mut m, &format!("root {i}")).unwrap();
        assert_eq!(m.load(at).unwrap(), i as u64);
    }

    let mut m = memory();
    let directory = Directory::open(&mut m, 4 * PAGE).unwrap();
    let two = directory.reserve(&mut m, PAGE + 1).unwrap();
    assert_eq!((two.base.linear(), two.bytes), (PAGE, 2 * PAGE));
    assert_eq!(directory.reserve(&mut m, 2 * PAGE).err(), Some(RootError::NoSpace { pages: 2, free: 1 }));
    assert_eq!(directory.reserve(&mut m, u64::MAX).err(), Some(RootError::NoSpace { pages: 1 << 48, free: 1 }));
    for wrong in
        [Region::new(two.base, PAGE / 2), Region::new(two.base, 3 * PAGE), Region::new(Address::from_linear(0), PAGE)]
    {
        assert!(matches!(directory.give_back(&mut m, wrong), Err(RootError::NotHandedOut { .. })), "{wrong:?}");
    }
    directory.give_back(&mut m, two).unwrap();
    assert_eq!(directory.reserve(&mut m, 3 * PAGE).unwrap().base, two.base);
    let smaller = Directory::open(&mut m, 3 * PAGE);
    assert_eq!(smaller.err(), Some(RootError::TooSmall { next: 4, pages: 3 }));
}

#[test]
fn damage_is_found_and_what_is_not_damaged_is_there() {
    let mut m = memory();
    let directory = Directory::open(&mut m, SPACE).unwrap();
    for name in ["a", "b", "c"] {
        directory.create_root(&mut m, name, 1u64).unwrap();
    }
    let good = bytes(&mut m);
    let mut random = Random(3);
    for _ in 0..300 {
        // The entry of "b" is the second one.
        let (at, bit) = (4096 + 256 + random.below(256), random.below(8));
        let byte: u8 = m.load(Ptr::new(Address::from_linear(at))).unwrap();
        m.store(Ptr::new(Address::from_linear(at)), byte ^ 1 << bit).unwrap();
        assert!(directory.root::<_, u64>(&mut m, "a").is_ok() && directory.root::<_, u64>(&mut m, "c").is_ok());
        for name in ["b", "d"] {
            let found = directory.find(&mut m, name);
            assert!(matches!(found, Err(RootError::Damaged { .. })), "byte {at} bit {bit}: {found:?}");
        }
        assert!(matches!(directory.create_root(&mut m, "d", 0u64), Err(RootError::Damaged { .. })));
        put_back(&mut m, &good);
    }
    for _ in 0..300 {
        let (at, bit) = (random.below(4096), random.below(8));
        let byte: u8 = m.load(Ptr::new(Address::from_linear(at))).unwrap();
        m.store(Ptr::new(Address::from_linear(at)), byte ^ 1 << bit).unwrap();
        assert!(matches!(Directory::open(&mut m, SPACE), Err(RootError::Damaged { .. })), "byte {at} bit {bit}");
        put_back(&mut m, &good);
    }
    put_back(&mut m, &vec![0xA5; SPACE as usize]);
    let other = Directory::open(&mut m, SPACE);
    let at = Address::from_linear(0);
    assert_eq!(other.err(), Some(RootError::Damaged { at, source: NotDirectory::Magic }));
}

#[test]
fn a_container_that_cannot_be_made_leaves_nothing() {
    let mut m = memory();
    let directory = Directory::open(&mut m, SPACE).unwrap();
    let free = |m: &mut PlainMemory| {
        let mut pages = 0;
        while directory.reserve(m, PAGE).is_ok() {
            pages += 1;
        }
        pages
    };
    let before = bytes(&mut m);
    let all = free(&mut m);
    put_back(&mut m, &before);
    let failed =
        Rooted::<Tree>::create(&mut m, &directory, "tree", (1 << 18, 0), |_, _, _| Err(AccessError::Cancelled));
    assert_eq!(failed.err(), Some(RootError::Access(AccessError::Cancelled)));
    assert!(matches!(directory.find(&mut m, "tree"), Err(RootError::Unknown { .. })));
    assert_eq!(free(&mut m), all);
    assert_eq!(<Hashed as Container>::type_name(), "hash map of u64 to [u64; 3]");
}
