//! Goal: a start that is refused for want of DRAM names a budget that suffices, whatever was
//! tried, and leaves no pool, nor does one that fails for another reason. With that budget, a
//! transaction with the defaults works. Method: pools for few and for two million objects, started
//! with too little, then with what was named.

use std::path::Path;

use fulgurite::{Durability, Error, Fulgurite, Medium, runtime::BuildError};

fn start(path: &Path, objects: u64, dram: u64) -> Result<Fulgurite, Error> {
    let mut medium = Medium::new_pool(path, "48M");
    if objects > 0 {
        medium = medium.objects(objects);
    }
    Fulgurite::builder(medium).dram(dram).start()
}

fn least(path: &Path, objects: u64, dram: u64) -> u64 {
    match start(path, objects, dram).map(drop) {
        Err(Error::Build(BuildError::TooSmall { least, .. })) => least,
        other => panic!("{objects} objects, {dram} bytes: {other:?}"),
    }
}

#[test]
fn the_least_budget_that_is_named_suffices() {
    let directory = tempfile::tempdir().unwrap();
    for objects in [0, 10_000, 2_000_000] {
        let path = directory.path().join(format!("{objects}"));
        let named = least(&path, objects, 3 << 20);
        println!("{objects} objects: {named} bytes");
        let again = least(&path, objects, named / 2);
        assert!(again.abs_diff(named) <= named / 32, "whatever was tried: {again}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
        let memory = start(&path, objects, named.min(again)).unwrap();
        let map = memory.named("map").hash_map::<u64, u64>(100).unwrap();
        memory.transaction(|t| t.put(&map, &1, &2)).unwrap();
        drop((map, memory));
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let is_empty = || std::fs::read_dir(directory.path()).unwrap().count() == 0;
    let media = || [Medium::new_pool(&path, "16M"), Medium::pool_or_new(&path, "16M"), Medium::new_file(&path, "16M")];
    for (kind, medium) in ["new", "or new", "flat"].into_iter().zip(media()) {
        // More pins than there may be, no worker, and cores that there are not.
        let failed = [
            Fulgurite::builder(medium.clone()).dram("1M").start().err(),
            Fulgurite::builder(medium.clone()).dram("8M").workers(0).start().err(),
            Fulgurite::builder(medium.clone()).dram("8M").with(|runtime| runtime.cores(&[9999])).start().err(),
            Fulgurite::builder(medium.clone()).dram("8M").with(|runtime| runtime.pool(1 << 40)).start().err(),
        ];
        for (n, error) in failed.into_iter().enumerate() {
            assert!(error.is_some() && is_empty(), "{kind}, {n}: {error:?}");
        }
        let memory = Fulgurite::builder(medium).dram("8M").start().unwrap();
        assert!(path.exists(), "{kind}");
        drop(memory);
        std::fs::remove_file(&path).unwrap();
    }
    let refused = Fulgurite::builder(Medium::new_file(&path, "16M")).durability(Durability::Sync).start();
    assert!(refused.is_err() && is_empty());
}
