//! Goal: a handle of one memory that is used in another one, of the same layout, fails at once with
//! [`AccessError::OtherMemory`], at every entry point, and neither memory has changed. So does a
//! handle of a memory that was closed and opened again. Method: two pools are made by the same
//! steps, so that both have the same data structures at the same addresses. Each operation of each
//! container of the first runs in jobs and transactions of the second. Then all contents are
//! compared and checked, at once and after both pools were opened again.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite::latches::VersionLatch;
use fulgurite::{
    AccessError, Array, BPlusTree, Blobs, Context, Error, Fulgurite, HashMap, Heap, Medium, OrderedBlobs, Rooted,
    Transactions,
    containers::{Layout, Masstree},
};

/// A pool of its own and all that it has, with values that name it.
struct Pool {
    memory: Fulgurite,
    map: Arc<Rooted<HashMap<u64, u64, VersionLatch>>>,
    tree: Arc<Rooted<BPlusTree<u64, VersionLatch>>>,
    trie: Arc<Rooted<Masstree<VersionLatch>>>,
    blobs: Arc<Rooted<Blobs<u64>>>,
    ordered: Arc<Rooted<OrderedBlobs>>,
    array: Array<u64>,
    large: Array<[u64; 4]>,
    heap: Arc<Heap>,
    unnamed: Arc<HashMap<u64, u64, VersionLatch>>,
    transactions: Arc<Transactions>,
}

impl Pool {
    fn start(path: &Path, objects: u64) -> Pool {
        let mut medium = Medium::pool_or_new(path, "32M");
        if objects > 0 {
            medium = medium.objects(objects);
        }
        let builder = Fulgurite::builder(medium).dram("16M").with(|runtime| runtime.stack(128 << 10).fibers(16));
        let memory = builder.start().unwrap();
        Pool {
            map: memory.named("map").hash_map(1000).unwrap(),
            tree: memory.named("tree").b_plus_tree("1M").unwrap(),
            trie: memory.named("trie").masstree("1M").unwrap(),
            blobs: memory.named("blobs").blobs(1000, "1M").unwrap(),
            ordered: memory.named("ordered").ordered_blobs(1000, "1M").unwrap(),
            array: memory.named("array").array(1000, |_| 0).unwrap(),
            large: memory.named("large").array(100, |_| [0; 4]).unwrap(),
            heap: memory.named("heap").heap("1M").unwrap(),
            unnamed: memory.hash_map(100).unwrap(),
            transactions: memory.transactions(),
            memory,
        }
    }

    fn fill(&self, with: u64) {
        let value = [with as u8; 5000];
        let filled = self.memory.run(|m| {
            for key in 0..100 {
                self.map.insert(m, &key, with)?;
                self.tree.insert(m, key, with)?;
                self.trie.insert(m, &key.to_be_bytes(), with)?;
                let len = if key % 3 == 0 { value.len() } else { key as usize };
                self.blobs.put(m, &key, &value[..len])?;
                self.ordered.put(m, &key.to_be_bytes(), &value[..len])?;
                self.array.set(m, key, with)?;
                self.large.set(m, key, [with; 4])?;
            }
            Ok(())
        });
        filled.unwrap();
        self.memory.transaction(|t| t.put(&self.array, &0, &with)).unwrap();
        self.memory.sync().unwrap();
    }

    /// Whether all of it is as it was filled.
    fn assert_holds(&self, with: u64) {
        let value = [with as u8; 5000];
        let checked = self.memory.run(|m| {
            self.map.check(m)?;
            self.tree.check(m)?;
            self.trie.check(m)?;
            self.blobs.check(m)?;
            self.ordered.check(m)?;
            self.heap.check(m)?;
            let mut found = Vec::new();
            for key in 0..100 {
                let words = [
                    self.map.get(m, &key)?,
                    self.tree.get(m, key)?,
                    self.trie.get(m, &key.to_be_bytes())?,
                    Some(self.array.get(m, key)?),
                    Some(self.large.get(m, key)?[3]),
                ];
                assert_eq!(words, [Some(with); 5], "key {key}");
                let len = if key % 3 == 0 { value.len() } else { key as usize };
                assert!(self.blobs.get(m, &key, &mut found)? && found == value[..len], "key {key}");
                assert!(self.ordered.get(m, &key.to_be_bytes(), &mut found)? && found == value[..len], "key {key}");
            }
            assert_eq!(self.heap.used_bytes(), 0);
            self.map.len(m)
        });
        assert_eq!(checked.unwrap(), 100);
    }
}

/// Each operation on a handle of `own`, in a job of another memory: its name, and what it said.
fn operations(own: &Pool, m: &mut Context) -> Vec<(&'static str, AccessError)> {
    let mut refused = Vec::new();
    macro_rules! refuse {
        ($($operation:expr),* $(,)?) => { $(
            match $operation {
                Err(error) => refused.push((stringify!($operation), error)),
                Ok(_) => panic!("{} was done in another memory", stringify!($operation)),
            }
        )* };
    }
    let Pool { map, tree, trie, blobs, ordered, array, large, heap, unnamed, .. } = own;
    let (mut value, key) = (Vec::new(), 7u64.to_be_bytes());
    refuse![
        map.get(m, &7),
        map.contains_key(m, &7),
        map.update(m, &7, |value| *value += 1),
        map.insert(m, &7, 1),
        map.insert(m, &7000, 1),
        map.remove(m, &7),
        map.for_each(m, |_, _| ()),
        map.len(m),
        map.check(m),
        map.buckets(m),
        map.save(m),
        unnamed.get(m, &7),
        unnamed.insert(m, &7, 1),
        tree.get(m, 7),
        tree.insert(m, 7, 1),
        tree.update(m, 7, |value| *value += 1),
        tree.remove(m, 7),
        tree.scan(m, 0, 9, |_, _| ControlFlow::Continue(())),
        tree.first_at_or_after(m, 7),
        tree.last_at_or_before(m, 7),
        tree.bulk_load(m, [(1, 1)], 0.7),
        tree.check(m),
        trie.get(m, &key),
        trie.insert(m, &key, 1),
        trie.update(m, &key, |value| *value += 1),
        trie.remove(m, &key),
        trie.scan(m, &[], 9, |_, _| ControlFlow::Continue(())),
        trie.check(m),
        array.get(m, 7),
        array.set(m, 7, 1),
        array.swap(m, 7, 8),
        large.get(m, 7),
        large.set(m, 7, [1; 4]),
        heap.allocate(m, 100),
        heap.free(m, heap.region().base.add(8192), 100),
        heap.reserve(m, 100, 10, Layout::Clustered),
        heap.take_empty(m),
        heap.save(m),
        heap.check(m),
        HashMap::<u64, u64, VersionLatch>::create(m, heap.region(), heap.clone(), 10, 1),
        HashMap::<u64, u64, VersionLatch>::create_growing(m, heap.region(), heap.clone(), 10, 1),
        BPlusTree::<u64, VersionLatch>::create(m, heap.clone(), 1),
        BPlusTree::<u64, VersionLatch>::open(m, heap.clone(), tree.root(), 1),
        Masstree::<VersionLatch>::create(m, heap.clone(), 1),
        Masstree::<VersionLatch>::open(m, heap.clone(), trie.root(), 1),
        Blobs::<u64>::create(m, heap.region(), heap.clone(), 10, 1),
        <OrderedBlobs>::create(m, heap.clone(), 1),
    ];
    macro_rules! refuse_blobs {
        ($blobs:expr, $key:expr) => {
            refuse![
                $blobs.get(m, $key, &mut value),
                $blobs.read_at(m, $key, 1, &mut [0; 9]),
                $blobs.copy_to(m, $key, &mut [0; 9]),
                $blobs.value_len(m, $key),
                $blobs.put(m, $key, b"other"),
                $blobs.put(m, $key, &[1; 3 << 20]),
                $blobs.remove(m, $key),
                $blobs.compare_and_put(m, $key, None, b"other"),
                $blobs.update(m, $key, |value| value.clear()),
                $blobs.append(m, $key, b"other"),
                $blobs.write_at(m, $key, 0, b"o"),
                $blobs.reader(m, $key),
                $blobs.writer(m, 10),
                $blobs.view(m, $key, |_| ControlFlow::Continue(())),
                $blobs.check(m),
            ]
        };
    }
    refuse_blobs!(blobs, &7);
    refuse_blobs!(ordered, &key);
    refuse![
        blobs.for_each_key(m, |_, _| ()),
        ordered.keys(m, &[], 9),
        ordered.scan(m, &[], 9, |_, _| ControlFlow::Continue(())),
        own.transactions.run(m, |t| t.get(array, &7)),
    ];
    refused
}

fn two(directory: &Path, objects: u64) -> [(PathBuf, Pool); 2] {
    [1, 2].map(|number| {
        let path = directory.join(format!("{number}.pool"));
        let pool = Pool::start(&path, objects);
        pool.fill(number);
        (path, pool)
    })
}

fn other_memory(objects: u64) {
    let directory = tempfile::tempdir().unwrap();
    let [(one_at, one), (other_at, other)] = two(directory.path(), objects);
    assert_eq!(one.array.root(), other.array.root(), "both have the same addresses");
    let refused = other.memory.run(|m| Ok(operations(&one, m))).unwrap();
    assert!(refused.len() > 80, "{refused:?}");
    let mut count = refused.len() as u64;
    for (operation, error) in refused {
        assert_eq!(error, AccessError::OtherMemory, "{operation}");
    }

    // In transactions, the first error of which nothing is done after.
    type Body<'a> = &'a (dyn Fn(&mut fulgurite::Transaction<'_>) -> Result<(), Error> + Sync);
    let bodies: [(&str, Body<'_>); 11] = [
        ("get of a map", &|t| t.get(&one.map, &7).map(drop)),
        ("put into a map", &|t| t.put(&one.map, &7, &1)),
        ("remove from a map", &|t| t.remove(&one.map, &7).map(drop)),
        ("put into a tree", &|t| t.put(&one.tree, &7, &1)),
        ("range of a tree", &|t| t.range(&one.tree, &7, 3).map(drop)),
        ("put into a trie", &|t| t.put(&one.trie, &b"key"[..], &1)),
        ("put into blobs", &|t| t.put(&one.blobs, &7, b"other")),
        ("put into ordered blobs", &|t| t.put(&one.ordered, b"key", b"other")),
        ("get of an array", &|t| t.get(&one.array, &7).map(drop)),
        ("put into an array", &|t| t.put(&one.array, &7, &1)),
        ("what goes on after an error", &|t| {
            t.put(&other.map, &7, &99)?;
            let _ = t.put(&one.map, &7, &99);
            Ok(())
        }),
    ];
    for (what, body) in bodies {
        let refused = other.memory.transaction(|t| body(t));
        assert!(matches!(refused, Err(Error::Access(AccessError::OtherMemory))), "{what}: {refused:?}");
        count += 1;
    }

    // What began in its own memory.
    let (mut reader, mut writer) =
        one.memory.run(|m| Ok((one.blobs.reader(m, &3)?.unwrap(), one.blobs.writer(m, 3)?))).unwrap();
    let reserved = one.memory.run(|m| one.heap.reserve(m, 100, 10, Layout::Clustered)).unwrap();
    other
        .memory
        .run(|m| {
            assert_eq!(reader.read(m, &mut [0; 9]), Err(AccessError::OtherMemory));
            assert_eq!(writer.write(m, b"abc"), Err(AccessError::OtherMemory));
            assert_eq!(writer.finish(m, &7), Err(AccessError::OtherMemory));
            assert_eq!(one.heap.release(m, &reserved), Err(AccessError::OtherMemory));
            Ok(())
        })
        .unwrap();
    drop(reader);
    one.memory.run(|m| one.heap.release(m, &reserved)).unwrap();

    for (pool, with) in [(&one, 1), (&other, 2)] {
        pool.assert_holds(with);
        pool.memory.sync().unwrap();
    }
    // A heap that another memory is asked to save fails that one's syncs, and is not written.
    other.memory.runtime().keep(one.heap.clone());
    let refused = other.memory.sync().map(drop);
    assert!(refused.as_ref().is_err_and(|e| e.to_string().contains("another memory")), "{refused:?}");
    drop((one, other));
    for (path, with) in [(one_at, 1), (other_at, 2)] {
        Pool::start(&path, objects).assert_holds(with);
    }
    fulgurite_testkit::figure(28, "operations on handles of another memory that were refused", count);
}

#[test]
fn a_handle_of_another_memory_is_refused() {
    other_memory(0);
}
#[test]
fn a_handle_of_another_memory_is_refused_in_pools_of_objects() {
    other_memory(2000);
}

#[test]
fn a_handle_of_a_memory_that_was_closed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let before = Pool::start(&path, 0);
    before.fill(1);
    let Pool { memory, map, array, heap, .. } = before;
    drop(memory);
    let now = Pool::start(&path, 0);
    let refused = now.memory.run(|m| Ok([map.get(m, &1).err(), array.get(m, 1).err(), heap.allocate(m, 8).err()]));
    assert_eq!(refused.unwrap(), [Some(AccessError::OtherMemory); 3]);
    now.assert_holds(1);
}
