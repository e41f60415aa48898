//! Goal: pages that are handed out show nothing of what somebody wrote to their addresses before. A
//! reader of a token leaves nothing pinned behind when the process is killed. A roll back takes
//! away no token that is pinned. Method: store where nothing is handed out, in DRAM alone and in
//! the pool, and hand it out. Copy the file of a pool while a reader is open, as a kill would leave
//! it, and open the copy. Pin, and roll back behind that. With the store in the process and in a
//! device.

use std::path::Path;

use fulgurite::{
    AccessError, Error, Fulgurite, Medium, Memory, Region,
    pool::{Permissions, PoolError},
    views::Ptr,
};

const PAGE: u64 = 64 << 10;

fn start(medium: Medium, on_device: bool) -> Fulgurite {
    let builder = Fulgurite::builder(medium).dram("12M").workers(2).keep_tokens(4);
    let builder = if on_device { builder.on_device(None) } else { builder };
    builder.start().unwrap()
}
fn new_pool(path: &Path, on_device: bool) -> Fulgurite {
    start(Medium::new_pool(path, 16 << 20), on_device)
}

/// A word of each subpage.
fn words(region: Region) -> impl Iterator<Item = Ptr<u64>> + Clone + Send {
    (0..region.bytes / 4096).map(move |n| Ptr::new(region.base.add(n * 4096 + 8)))
}
fn write(memory: &Fulgurite, region: Region, value: u64) -> Result<(), AccessError> {
    memory.run(move |m| words(region).try_for_each(|word| m.store(word, value)))
}
fn sum(memory: &Fulgurite, region: Region) -> u64 {
    memory.run(move |m| words(region).try_fold(0, |sum, word| Ok(sum + m.load(word)?))).unwrap()
}

#[test]
fn nobody_reads_what_was_written_before_pages_were_theirs() {
    let directory = tempfile::tempdir().unwrap();
    for on_device in [false, true] {
        let path = directory.path().join(format!("pool {on_device}"));
        let memory = new_pool(&path, on_device);
        let was = memory.alloc(3, Permissions::DEFAULT).unwrap();
        write(&memory, was, 7).unwrap();
        memory.sync().unwrap();
        for (round, in_flash) in [false, true, false, true].into_iter().enumerate() {
            let region = Region::new(was.base, 3 * PAGE);
            memory.delete(region).unwrap();
            // By a pointer that should have been forgotten, or one that never led anywhere.
            write(&memory, region, 1000).unwrap();
            if in_flash {
                memory.sync().unwrap();
                assert_eq!(memory.permissions(region.base).unwrap(), Some(Permissions::DEFAULT), "a page was made");
            }
            let again = if round < 2 {
                memory.alloc(3, Permissions::DEFAULT).unwrap()
            } else {
                memory.region(3 * PAGE).unwrap()
            };
            assert_eq!(again, region, "addresses are used again");
            assert_eq!(sum(&memory, again), 0, "round {round}: what somebody else wrote");
            write(&memory, again, 1).unwrap();
            memory.sync().unwrap();
            assert_eq!(sum(&memory, again), 48);
        }
        // So it is after a crash.
        memory.delete(was).unwrap();
        write(&memory, was, 1000).unwrap();
        memory.sync().unwrap();
        let only_read = Permissions { write: false, ..Permissions::DEFAULT };
        assert_eq!(memory.alloc(2, only_read).unwrap().base, was.base);
        memory.sync().unwrap();
        let copy = directory.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        drop(memory);
        let memory = start(Medium::pool(copy), on_device);
        assert_eq!(memory.permissions(was.base).unwrap(), Some(only_read));
        assert_eq!(sum(&memory, Region::new(was.base, 2 * PAGE)), 0);
    }
}

#[test]
fn a_reader_leaves_nothing_pinned() {
    let directory = tempfile::tempdir().unwrap();
    for on_device in [false, true] {
        let path = directory.path().join(format!("pool {on_device}"));
        let memory = new_pool(&path, on_device);
        let value = memory.named("value").value(0u64).unwrap();
        let save = |n: u64| {
            memory.run(move |m| m.store(value, n)).unwrap();
            memory.sync().unwrap()
        };
        let (by_user, token) = (save(1), save(2));
        memory.pin_token(by_user, true).unwrap();
        let readers = [by_user, token].map(|token| memory.open_token(token, 8 << 20).unwrap());
        for n in 3..12 {
            save(n);
        }
        // Both stay, in addition to the newest four, and are what they were.
        let kept = memory.tokens().unwrap();
        assert_eq!((kept.len(), &kept[..2]), (6, &[by_user, token][..]));
        assert_eq!(readers.each_ref().map(|reader| reader.value::<u64>("value").unwrap()), [1, 2]);
        let copy = directory.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        // In the pool of a process that was killed, the next sync lets go of what its reader kept.
        let after = start(Medium::pool(copy), on_device);
        after.sync().unwrap();
        let left = after.tokens().unwrap();
        assert!(left.contains(&by_user) && !left.contains(&token) && left.len() == 5, "{left:?}");
        drop((readers, after));
        save(20);
        let left = memory.tokens().unwrap();
        assert!(left.contains(&by_user) && !left.contains(&token) && left.len() == 5, "{left:?}");
    }
}

#[test]
fn a_roll_back_takes_no_pinned_token_away() {
    let directory = tempfile::tempdir().unwrap();
    for on_device in [false, true] {
        let memory = new_pool(&directory.path().join(format!("pool {on_device}")), on_device);
        let value = memory.named("value").value(0u64).unwrap();
        let save = |n: u64| {
            memory.run(move |m| m.store(value, n)).unwrap();
            memory.sync().unwrap()
        };
        let [first, second, third] = [1, 2, 3].map(save);
        memory.pin_token(second, true).unwrap();
        memory.run(move |m| m.store(value, 4)).unwrap();
        let refused = memory.roll_back(first).unwrap_err();
        assert!(
            matches!(&refused, Error::Pool(PoolError::TokenPinned { token, pinned })
            if (*token, *pinned) == (first, second)),
            "{refused:?}"
        );
        assert!(refused.to_string().contains(&format!("token {second} is pinned")), "{refused}");
        // Nothing was changed, in DRAM either.
        assert_eq!(memory.run(move |m| m.load(value)), Ok(4));
        assert!([first, second, third].iter().all(|token| memory.tokens().unwrap().contains(token)));
        // To itself, it does.
        memory.roll_back(second).unwrap();
        assert_eq!(memory.run(move |m| m.load(value)), Ok(2));
        memory.pin_token(second, false).unwrap();
        memory.roll_back(first).unwrap();
        assert_eq!(memory.run(move |m| m.load(value)), Ok(1));
    }
}
