//! Goal: whatever a container writes, it writes in a write section; so a state that a sync names
//! has each of its operations whole or not at all. Method: a plain memory that knows how many
//! sections are open, and refuses to be written, through views or pins, while there is none. Random
//! operations on all containers over it, compared with nothing: what counts is that none of them is
//! refused, and that each operation is one outermost section, which is over when the operation is.
//! Seeds are printed.

use crate::common;

use std::sync::Arc;

use common::{Random, Strict};
use fulgurite_memory::{
    AccessError, Array, BPlusTree, Directory, HashMap, Heap, Masstree, Memory, NoLatch, Ptr, RawMemory, Rooted,
    WriteSet,
};

/// What `make` makes, in a section of the test's own: nobody sees a container that is being made.
fn made<T>(m: &mut Strict, make: impl FnOnce(&mut Strict) -> Result<T, AccessError>) -> T {
    let _section = m.write_section().unwrap();
    make(m).unwrap()
}

#[test]
fn containers_write_in_sections_only() {
    let m = &mut Strict::new();
    let directory = Directory::open(m, 1 << 24).unwrap();
    let region = |m: &mut Strict, bytes| directory.reserve(m, bytes).unwrap();
    let heap_region = region(m, 4 << 20);
    let heap = Arc::new(made(m, |m| Heap::create(m, heap_region)));
    type Map = HashMap<u64, [u64; 3], NoLatch>;
    let buckets = region(m, Map::bytes_needed(50));
    let map = made(m, |m| Map::create(m, buckets, heap.clone(), 50, 1));
    let tree = made(m, |m| BPlusTree::<[u64; 2], NoLatch>::create_with_nodes(m, heap.clone(), 1, 256));
    let trie = made(m, |m| Masstree::<NoLatch>::create(m, heap.clone(), 1));
    let rows = region(m, 1 << 16);
    let array = made(m, |m| Array::<[u64; 4]>::create(m, rows, 500, |i| [i; 4]));
    let mut objects = Vec::new();

    let seeds = Random::seeded("sections", 1);
    for round in 0..3 {
        let mut random = seeds.split(round);
        for step in 0..20_000u64 {
            // Grows, then shrinks: splits and merges.
            let growing = step % 4000 < 2500;
            let (key, value, add) = (random.below(400), random.next(), random.below(4) < if growing { 3 } else { 1 });
            let name = format!("a long key with a long prefix {key}");
            let (what, begun) = (random.below(8), m.begun);
            match what {
                0 if add => map.insert(m, &key, [value; 3]).map(|_| ()).unwrap(),
                0 => map.remove(m, &key).map(|_| ()).unwrap(),
                1 if add => tree.insert(m, key, [value; 2]).map(|_| ()).unwrap(),
                1 => tree.remove(m, key).map(|_| ()).unwrap(),
                2 if add => trie.insert(m, name.as_bytes(), value).map(|_| ()).unwrap(),
                2 => trie.remove(m, name.as_bytes()).map(|_| ()).unwrap(),
                3 => {
                    map.update(m, &key, |value| value[0] += 1).unwrap();
                    tree.update(m, key, |value| value[0] += 1).unwrap();
                    trie.update(m, name.as_bytes(), |value| *value += 1).unwrap();
                }
                4 => {
                    array.set(m, key, [value; 4]).unwrap();
                    array.swap(m, key, random.below(400)).unwrap();
                }
                5 if add && objects.len() < 400 => {
                    let bytes = 8 + random.below(5000) as usize;
                    let at = heap.allocate(m, bytes).unwrap();
                    m.write_bytes(at, &[7; 8]).unwrap();
                    objects.push((at, bytes));
                }
                5 => {
                    if let Some((at, bytes)) = objects.pop() {
                        heap.free(m, at, bytes).unwrap();
                    }
                }
                6 => {
                    let mut set = WriteSet::new();
                    for i in 0..3 {
                        set.store(Ptr::new(rows.base.add(4096 * i + 8 * random.below(500))), value).unwrap();
                    }
                    set.commit(m).unwrap();
                }
                _ if step % 40 == 0 => {
                    heap.save(m).unwrap();
                    let (name, known) = (format!("root {}", key % 20), directory.roots(m).unwrap());
                    if known.iter().any(|root| root.name == name) {
                        directory.remove(m, &name).unwrap();
                    } else if add {
                        directory.create_root(m, &name, [value; 4]).unwrap();
                    } else {
                        Rooted::create(m, &directory, &name, (1 << 16, 0), |m, heap, _| {
                            BPlusTree::<u64, NoLatch>::create(m, heap.clone(), 1)
                        })
                        .unwrap();
                    }
                }
                _ => {}
            }
            assert_eq!(m.open(), 0, "a section is left open");
            // One for each operation that this step made.
            let most = [1, 1, 1, 3, 2, 2, 1, 2][what as usize];
            assert!(m.begun - begun <= most, "operation {what}: {} sections", m.begun - begun);
        }
    }
    map.check(m).unwrap();
    tree.check(m).unwrap();
    trie.check(m).unwrap();
    heap.check(m).unwrap();
}
