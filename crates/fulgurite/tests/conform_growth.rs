//! Goal: a pool grows while it is open, by itself up to a limit or when it is asked to. A kill at
//! any moment leaves a pool that opens with all that a sync had named. What cannot grow says so.
//! Method: blobs put into pools of 16 MiB until there are several times as many. Sizes of zero,
//! smaller, past all limits, not aligned and unreadable. A file system of 32 MiB that fills. A loop
//! device. A process that grows its pool while it is killed at random moments. All of it with pools
//! that pack objects, and with pools over three files, with small and large values at a time.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite::{AccessError, Blobs, Error, Fulgurite, Medium, Rooted, pool::PoolError};
use fulgurite_flash::{FileConfig, FileFlash, Flash, OpenError, Shortage};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Members, Pool, ResizeError};
use fulgurite_testkit as trials;
use trials::Random;

const MIB: u64 = 1 << 20;
/// Bytes of each blob.
const BYTES: usize = 100_000;

type Values = Arc<Rooted<Blobs<u64>>>;

/// Values of up to `bytes` bytes.
fn values(memory: &Fulgurite, bytes: u64) -> Values {
    memory.named("values").blobs(1 << 10, bytes).unwrap()
}
fn value(key: u64) -> Vec<u8> {
    let mut random = Random(key + 1);
    let tail = random.bytes(64);
    [vec![key as u8; BYTES - tail.len()], tail].concat()
}
fn put(memory: &Fulgurite, values: &Values, key: u64) -> Result<(), AccessError> {
    memory.run(|m| values.put(m, &key, &value(key)).map(drop))
}
fn check(memory: &Fulgurite, values: &Values, keys: std::ops::Range<u64>) {
    for key in keys {
        let mut found = Vec::new();
        assert!(memory.run(|m| values.get(m, &key, &mut found)).unwrap(), "{key} is missing");
        assert!(found == value(key), "{key} has another value");
    }
}

#[test]
fn a_pool_grows_by_itself_up_to_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let builder = Fulgurite::builder(Medium::new_pool(&path, 16 * MIB)).dram("16M").growing(64 * MIB);
    let memory = builder.start().unwrap();
    let of = values(&memory, 44 * MIB);
    assert_eq!(memory.size().unwrap(), 16 * MIB);
    // More than twice what it had room for.
    for key in 0..300 {
        put(&memory, &of, key).unwrap_or_else(|e| panic!("{key}: {e}"));
    }
    check(&memory, &of, 0..300);
    let size = memory.size().unwrap();
    assert!(size > 32 * MIB && size <= 64 * MIB, "{size}");
    assert_eq!(path.metadata().unwrap().len(), size);
    memory.sync().unwrap();
    let full = (300..).find_map(|key| put(&memory, &of, key).err()).unwrap();
    assert!(matches!(full, AccessError::PoolFull { .. } | AccessError::NoSpace { .. }), "{full}");
    assert!(memory.size().unwrap() <= 64 * MIB);
    memory.sync().unwrap();
    drop(memory);
    // Any program opens it.
    let memory = Fulgurite::builder(Medium::pool(&path)).dram("16M").start().unwrap();
    check(&memory, &values(&memory, 0), 0..300);
}

#[test]
fn a_pool_that_was_made_without_a_limit_grows_when_it_is_opened_with_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = Fulgurite::builder(Medium::new_pool(&path, 16 * MIB)).dram("8M").start().unwrap();
    let word = memory.named("word").value(7u64).unwrap();
    drop(memory);
    let memory = Fulgurite::builder(Medium::pool(&path)).dram("16M").growing("64M").start().unwrap();
    assert_eq!(memory.run(|m| fulgurite::Memory::load(m, word)), Ok(7));
    let of: Values = memory.named("values").blobs(1 << 10, 40 * MIB).unwrap();
    for key in 0..300 {
        put(&memory, &of, key).unwrap_or_else(|e| panic!("{key}: {e}"));
    }
    check(&memory, &of, 0..300);
}

#[test]
fn a_pool_becomes_as_large_as_it_is_asked_to_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = Fulgurite::builder(Medium::new_pool(&path, 16 * MIB)).dram("8M").start().unwrap();
    let of: Values = memory.named("values").blobs(1 << 8, 8 * MIB).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..400).try_for_each(|n| put(&memory, &of, n % 60)));
        for size in [17 * MIB, 20 * MIB, 40 * MIB] {
            memory.set_size(size).unwrap();
        }
        writer.join().unwrap().unwrap();
    });
    assert_eq!(memory.size().unwrap(), 40 * MIB);
    memory.sync().unwrap();
    // Not whole extents: rounded down to them, which is what it has.
    memory.set_size(40 * MIB + 4097).unwrap();
    assert_eq!((memory.size().unwrap(), path.metadata().unwrap().len()), (40 * MIB, 40 * MIB));
    for smaller in [0, 1, 16 * MIB] {
        let refused = memory.set_size(smaller).unwrap_err();
        assert!(matches!(refused, Error::Pool(PoolError::Resize(ResizeError::Smaller(_)))), "{refused}");
        assert!(refused.to_string().contains("40.0 MiB"), "{refused}");
    }
    let refused = memory.set_size(1u64 << 60).unwrap_err();
    assert!(matches!(refused, Error::Pool(PoolError::Resize(ResizeError::TooLarge))), "{refused}");
    assert!(matches!(memory.set_size("much"), Err(Error::Unit(_))));
    assert_eq!(path.metadata().unwrap().len(), 40 * MIB);
    check(&memory, &of, 0..60);
    drop(memory);
    let memory = Fulgurite::builder(Medium::pool(&path)).dram("8M").start().unwrap();
    assert_eq!(memory.size().unwrap(), 40 * MIB);
    check(&memory, &memory.named("values").blobs(1 << 8, 8 * MIB).unwrap(), 0..60);
}

#[test]
fn what_cannot_grow_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let flat = Fulgurite::builder(Medium::memory("16M")).dram("8M").start().unwrap();
    assert!(matches!(flat.set_size("32M"), Err(Error::NoPool { .. })));
    assert!(matches!(flat.size(), Err(Error::NoPool { .. })));
    let refused = |medium: Medium, limit: &str| {
        Fulgurite::builder(medium).dram("8M").growing(limit).start().err().expect("it cannot grow")
    };
    let error = refused(Medium::memory("16M"), "32M");
    assert!(matches!(error, Error::NotHonoured { setting: "growing", .. }), "{error}");
    assert!(matches!(refused(Medium::new_pool(&path, "16M"), "much"), Error::Unit(_)));
    assert!(!path.exists());
    // The addresses are too many, or their tables too large for the DRAM.
    let error = refused(Medium::new_pool(&path, "16M"), "15T");
    assert!(matches!(error, Error::Geometry(_) | Error::Build(_)), "{error}");
    let _ = std::fs::remove_file(&path);
    // No pool of objects is as large as others may be.
    let error = refused(Medium::new_pool(&path, "16M").objects(1000), "9T");
    assert!(matches!(error, Error::Geometry(_) | Error::Build(_)), "{error}");
    let _ = std::fs::remove_file(&path);
    let medium = Medium::new_pool(&path, "16M").objects(1000);
    let memory = Fulgurite::builder(medium).dram("16M").start().unwrap();
    let error = memory.set_size("9T").unwrap_err();
    assert!(matches!(error, Error::Pool(PoolError::Resize(ResizeError::Geometry(_)))), "{error}");
    assert_eq!(path.metadata().unwrap().len(), 16 * MIB);
}

/// The table of where objects are stored may be on flash alone. The table of whole subpages may
/// not, so the DRAM bounds how large such a pool becomes.
#[test]
fn a_pool_whose_tables_are_on_flash_grows_as_far_as_its_dram() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let open = |medium: Medium, dram: &str| Fulgurite::builder(medium).dram(dram).start().unwrap();
    let memory = open(Medium::new_pool(&path, 16 * MIB).objects(2_000_000), "64M");
    let of = memory.named("values").blobs::<u64>(1 << 12, 4 * MIB).unwrap();
    let put = |memory: &Fulgurite, of: &Values, key: u64| memory.run(|m| of.put(m, &key, &[key as u8; 500]).map(drop));
    (0..2000).for_each(|key| put(&memory, &of, key).unwrap());
    memory.set_size(32 * MIB).unwrap();
    let error = memory.set_size(64 << 30).unwrap_err();
    assert!(matches!(error, Error::Pool(PoolError::Resize(ResizeError::Dram { .. }))), "{error}");
    assert_eq!((memory.size().unwrap(), path.metadata().unwrap().len()), (32 * MIB, 32 * MIB));
    (2000..4000).for_each(|key| put(&memory, &of, key).unwrap());
    drop((of, memory));
    let memory = open(Medium::pool(&path), "80M");
    let of = values(&memory, 0);
    for key in 0..4000 {
        let mut found = Vec::new();
        assert!(memory.run(|m| of.get(m, &key, &mut found)).unwrap() && found == [key as u8; 500], "{key}");
    }
}

/// A pool over three files, or one.
fn laid_on(directory: &Path, files: usize) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..files).map(|at| directory.join(format!("part {at}"))).collect();
    let create = |path: &PathBuf| -> Arc<dyn Flash> {
        Arc::new(FileFlash::open(&FileConfig::create(path, 18 * MIB / files as u64)).unwrap())
    };
    let flash: Arc<dyn Flash> = if let [only] = &paths[..] {
        create(only)
    } else {
        let ids: Vec<PoolId> = (1..=files as u8).map(|n| PoolId([n; 16])).collect();
        let members = paths.iter().map(|path| (path.clone(), create(path))).collect();
        Members::create(members, &ids, 32, PoolId([9; 16])).unwrap().flash()
    };
    Pool::format(&flash, Geometry::new(flash.subpages(), 32, None).unwrap(), PoolId([9; 16]), 0).unwrap();
    paths
}
fn bytes_of(paths: &[PathBuf]) -> Vec<u64> {
    paths.iter().map(|path| path.metadata().unwrap().len()).collect()
}
/// The medium over these files, with objects or without.
fn over(path: &Path, objects: bool) -> Medium {
    if objects { Medium::pool(path).objects(20_000) } else { Medium::pool(path) }
}
/// Until the pool has grown: on a busy disk that may take longer than writers wait for it.
fn patiently(what: &str, mut put: impl FnMut() -> Result<(), AccessError>) {
    let begun = Instant::now();
    while let Err(error) = put() {
        assert!(matches!(error, AccessError::PoolFull { .. }), "{what}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: it does not grow");
        std::thread::sleep(Duration::from_millis(50));
    }
}
/// A value that is an object of the pool where it packs them.
fn small(key: u64) -> Vec<u8> {
    Random(key + 1).bytes(200 + key as usize % 3000)
}

#[test]
fn pools_of_objects_and_of_several_files_grow_while_they_are_written() {
    for (files, objects) in [(1, true), (3, false), (3, true)] {
        let directory = tempfile::tempdir().unwrap();
        let paths = laid_on(directory.path(), files);
        let memory = Fulgurite::builder(over(&paths[0], objects)).dram("12M").growing("64M").start().unwrap();
        let before = memory.size().unwrap();
        let (of, smalls) = (values(&memory, 20 * MIB), memory.named("small").blobs::<u64>(1 << 10, 16 * MIB).unwrap());
        let what = format!("{files} files, objects: {objects}");
        let put_small = |key: u64| memory.run(|m| smalls.put(m, &key, &small(key)).map(drop));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..4000).for_each(|key| patiently(&what, || put_small(key))));
            scope.spawn(|| (0..100).for_each(|key| patiently(&what, || put(&memory, &of, key))));
        });
        memory.sync().unwrap();
        let grown = memory.size().unwrap();
        assert!(grown > before + 4 * MIB && grown <= 64 * MIB, "{what}: {before} became {grown}");
        let check_all = |memory: &Fulgurite| {
            let smalls = memory.named("small").blobs::<u64>(1, 0).unwrap();
            check(memory, &values(memory, 0), 0..100);
            for key in 0..4000 {
                let mut found = Vec::new();
                assert!(memory.run(|m| smalls.get(m, &key, &mut found)).unwrap() && found == small(key), "{key}");
            }
        };
        check_all(&memory);
        // All of its files, about as much each.
        let bytes = bytes_of(&paths);
        assert!(bytes.iter().sum::<u64>() >= grown && bytes.iter().max().unwrap() - bytes.iter().min().unwrap() <= MIB);
        // And as it is asked to.
        memory.set_size(70 * MIB + 5000).unwrap();
        assert_eq!(memory.size().unwrap(), 70 * MIB);
        (0..100).for_each(|key| patiently(&what, || put(&memory, &of, key)));
        drop((of, smalls, memory));
        // Any of them opens it, also as one that does not grow.
        let memory = Fulgurite::builder(Medium::pool(paths.last().unwrap())).dram("12M").start().unwrap();
        check_all(&memory);
    }
}

fn tool(arguments: &[&str]) -> Result<String, String> {
    let done = Command::new(arguments[0]).args(&arguments[1..]).output().map_err(|e| e.to_string())?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() { Ok(said(&done.stdout)) } else { Err(said(&done.stderr)) }
}

#[test]
fn a_pool_on_a_block_device_grows_as_far_as_the_device_has() {
    struct Loop(String);
    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = tool(&["losetup", "--detach", &self.0]);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(16 * MIB).unwrap();
    let device = match tool(&["losetup", "--find", "--show", image.to_str().unwrap()]) {
        Ok(device) => Loop(device),
        Err(error) => return println!("NOT TESTED: there is no loop device: {error}"),
    };
    let path = Path::new(&device.0);
    let flash: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::existing(path)).unwrap());
    Pool::format(&flash, Geometry::usual(flash.subpages()).unwrap(), PoolId([5; 16]), 0).unwrap();
    drop(flash);
    let error = Fulgurite::builder(Medium::pool(path)).dram("8M").growing("32M").start().err().unwrap();
    assert!(matches!(error, Error::Open(OpenError::FixedSize { .. })), "{error}");
    let memory = Fulgurite::builder(Medium::pool(path)).dram("8M").start().unwrap();
    let error = memory.set_size("32M").unwrap_err();
    assert!(matches!(error, Error::Open(OpenError::FixedSize { .. })), "{error}");
    assert!(error.to_string().contains("block device, and has 16.0 MiB; make the device larger first"), "{error}");

    // The device becomes larger under the open pool, as a logical volume does.
    let of = values(&memory, 4 * MIB);
    (0..10).for_each(|key| put(&memory, &of, key).unwrap());
    let enlarge = |bytes: u64| {
        file.set_len(bytes).unwrap();
        tool(&["losetup", "--set-capacity", &device.0]).unwrap();
    };
    enlarge(32 * MIB);
    assert_eq!(memory.size().unwrap(), 16 * MIB);
    memory.set_size("32M").unwrap();
    assert_eq!(memory.size().unwrap(), 32 * MIB);
    assert!(memory.set_size("32M").is_ok());
    let error = memory.set_size("64M").unwrap_err();
    assert!(matches!(error, Error::Open(OpenError::FixedSize { bytes, .. }) if bytes == 32 * MIB), "{error}");
    (10..20).for_each(|key| put(&memory, &of, key).unwrap());
    memory.sync().unwrap();
    drop((of, memory));

    // And by itself, up to a limit that the device has.
    enlarge(96 * MIB);
    let error = Fulgurite::builder(Medium::pool(path)).dram("8M").growing("97M").start().err().unwrap();
    assert!(matches!(error, Error::Open(OpenError::FixedSize { .. })), "{error}");
    let memory = Fulgurite::builder(Medium::pool(path)).dram("8M").growing("96M").start().unwrap();
    let (old, of) = (values(&memory, 4 * MIB), memory.named("more").blobs::<u64>(1 << 10, 44 * MIB).unwrap());
    check(&memory, &old, 0..20);
    (0..300).for_each(|key| put(&memory, &of, key).unwrap());
    memory.sync().unwrap();
    let size = memory.size().unwrap();
    assert!(size > 32 * MIB && size <= 96 * MIB, "{size}");
    drop((old, of, memory));
    let memory = Fulgurite::builder(Medium::pool(path)).dram("8M").start().unwrap();
    // It may have grown once more before it was closed.
    assert!((size..=96 * MIB).contains(&memory.size().unwrap()), "{size}");
    check(&memory, &values(&memory, 4 * MIB), 0..20);
    check(&memory, &memory.named("more").blobs::<u64>(1 << 10, 44 * MIB).unwrap(), 0..300);
}

#[test]
fn a_full_disk_is_reported_and_the_pool_goes_on_in_its_size() {
    struct Mounted<'p>(&'p str);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = tool(&["umount", self.0]);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().to_str().unwrap();
    if let Err(error) = tool(&["mount", "-t", "tmpfs", "-o", "size=32M", "fulgurite-test", at]) {
        return println!("NOT TESTED: nothing can be mounted: {error}");
    }
    let mounted = Mounted(at);
    let path = directory.path().join("pool");
    let memory = Fulgurite::builder(Medium::new_pool(&path, 16 * MIB)).dram("8M").growing("64M").start().unwrap();
    let of = values(&memory, 40 * MIB);
    let error = memory.set_size("40M").unwrap_err();
    assert!(matches!(error, Error::Open(OpenError::NoSpace { .. })), "{error}");
    assert_eq!((memory.size().unwrap(), path.metadata().unwrap().len()), (16 * MIB, 16 * MIB));
    let mut last = 0;
    let full = loop {
        match put(&memory, &of, last) {
            Ok(()) => last += 1,
            Err(error) => break error,
        }
    };
    let AccessError::PoolFull { shortage: Some(shortage), .. } = full else { panic!("{full}") };
    assert_eq!(shortage, Shortage::Space, "{full}");
    assert!(memory.size().unwrap() <= 32 * MIB);
    memory.sync().unwrap();
    check(&memory, &of, 0..last);
    drop(memory);
    let memory = Fulgurite::builder(Medium::pool(&path)).dram("8M").start().unwrap();
    check(&memory, &values(&memory, 0), 0..last);
    drop(memory);
    drop(mounted);
}

const CHILD: &str = "FULGURITE_TEST_GROWTH";
const OBJECTS: &str = "FULGURITE_TEST_GROWTH_OBJECTS";

/// The process that is killed: it says how many values each sync has named.
#[test]
#[ignore = "a child of the next test"]
fn grower() {
    let path = std::env::var(CHILD).expect("a child");
    let objects = std::env::var(OBJECTS).is_ok();
    let memory = Fulgurite::builder(over(path.as_ref(), objects)).dram("16M").growing("96M").start().unwrap();
    let of = values(&memory, 0);
    for key in 0..600 {
        put(&memory, &of, key).unwrap();
        if key % 4 == 3 {
            memory.sync().unwrap();
            println!("named {}", key + 1);
        }
    }
}

#[test]
fn a_kill_while_it_grows_leaves_a_pool_with_all_that_was_named() {
    killed_while_it_grows(20, 1, false);
}

#[test]
fn a_kill_while_several_files_grow_leaves_a_pool_with_all_that_was_named() {
    killed_while_it_grows(6, 3, false);
}

#[test]
fn a_kill_while_a_pool_of_objects_grows_leaves_a_pool_with_all_that_was_named() {
    killed_while_it_grows(4, 1, true);
    killed_while_it_grows(4, 3, true);
}

fn killed_while_it_grows(seeds: u64, files: usize, objects: bool) {
    let mut grown = 0;
    trials::each_seed(1, seeds, |seed| {
        let mut random = Random(seed);
        let directory = tempfile::tempdir().unwrap();
        let paths = laid_on(directory.path(), files);
        let memory = Fulgurite::builder(over(&paths[0], objects)).dram("16M").growing("96M").start().unwrap();
        let before = memory.size().unwrap();
        // Made for one value, so that its heap grows as well.
        values(&memory, BYTES as u64);
        drop(memory);
        let mut child = trials::again(module_path!(), "grower");
        if objects {
            child.env(OBJECTS, "");
        }
        let mut child = child.env(CHILD, &paths[0]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = random.below(600u64);
        let mut named = 0;
        for line in lines {
            let line = line.unwrap();
            let Some(count) = line.strip_prefix("named ") else { continue };
            named = count.parse().unwrap();
            if named >= enough {
                break;
            }
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000u64)));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().unwrap();
        let path = &paths[random.below(files as u64) as usize];
        let memory = Fulgurite::builder(Medium::pool(path)).dram("16M").start().unwrap();
        let of = values(&memory, 0);
        check(&memory, &of, 0..named);
        let size = memory.size().unwrap();
        assert!(bytes_of(&paths).iter().sum::<u64>() >= size);
        grown += u32::from(size > before);
        // It goes on.
        memory.set_size(size + 16 * MIB).unwrap();
        put(&memory, &of, named).unwrap();
        memory.sync().unwrap();
    });
    assert!(grown > 0 || trials::runs(seeds) < 4, "none was killed after it had grown");
}

#[test]
fn what_has_grown_past_its_capacity_rolls_back_and_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let open = |medium: Medium| {
        let memory = Fulgurite::builder(medium).dram("8M").start().unwrap();
        let map = memory.named("map").hash_map::<u64, [u64; 4]>(100).unwrap();
        let of = memory.named("values").blobs::<u64>(10, BYTES as u64).unwrap();
        (memory, map, of)
    };
    let (memory, map, of) = open(Medium::new_pool(&path, 64 * MIB));
    let fill = |keys: std::ops::Range<u64>, number: u64| {
        for key in keys.clone().step_by(400) {
            put(&memory, &of, key).unwrap();
        }
        memory.run(|m| keys.clone().try_for_each(|key| map.insert(m, &key, [number; 4]).map(drop))).unwrap();
    };
    let holds = |memory: &Fulgurite, keys: u64, number: u64| {
        let map = memory.named("map").hash_map::<u64, [u64; 4]>(100).unwrap();
        let of = values(memory, 0);
        assert_eq!(memory.run(|m| map.check(m)), Ok(keys));
        for key in 0..keys {
            assert_eq!(memory.run(|m| map.get(m, &key)), Ok(Some([number; 4])), "{key}");
        }
        (0..keys).step_by(400).for_each(|key| check(memory, &of, key..key + 1));
        memory.run(|m| of.check(m)).unwrap();
    };
    fill(0..500, 1);
    let before = memory.sync().unwrap();
    // Two hundred times its capacity, and its ranges with it. Then again, where they had been.
    for number in [2, 3] {
        fill(0..20_000, number);
        holds(&memory, 20_000, number);
        memory.roll_back(before).unwrap();
        holds(&memory, 500, 1);
    }
    fill(0..20_000, 4);
    memory.sync().unwrap();
    drop((map, of, memory));
    let (memory, map, of) = open(Medium::pool(&path));
    holds(&memory, 20_000, 4);
    // Removed, they leave their ranges to others.
    drop((map, of));
    for _ in 0..10 {
        memory.named("map").remove().unwrap();
        memory.named("values").remove().unwrap();
        memory.sync().unwrap();
        let (map, of) = (memory.named("map").hash_map::<u64, [u64; 4]>(100).unwrap(), values(&memory, 0));
        memory.run(|m| (0..20_000).try_for_each(|key| map.insert(m, &key, [5; 4]).map(drop))).unwrap();
        (0..100).for_each(|key| put(&memory, &of, key).unwrap());
    }
}

/// Two versions of a record, under one name of the type.
mod versions {
    pub mod old {
        use fulgurite::Stored;
        use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};

        #[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, Stored)]
        #[zerocopy(crate = "fulgurite::zerocopy")]
        #[stored(name = "shop.Order/1")]
        #[repr(C)]
        pub struct Order {
            pub number: u64,
            pub cents: u32,
            pub parts: u32,
        }
    }
    pub mod new {
        use fulgurite::Stored;
        use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};

        #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Stored)]
        #[zerocopy(crate = "fulgurite::zerocopy")]
        #[stored(name = "shop.Order/1")]
        #[repr(C)]
        pub struct Order {
            pub number: u64,
            pub parts: u32,
            pub cents: u32,
        }
    }
}

#[test]
fn another_version_of_a_record_under_the_same_name_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let memory = Fulgurite::builder(Medium::new_pool(&path, 16 * MIB)).dram("8M").start().unwrap();
    let order = versions::old::Order { number: 1, cents: 995, parts: 3 };
    let map = memory.named("orders").hash_map::<u64, versions::old::Order>(10).unwrap();
    memory.run(|m| map.insert(m, &1, order)).unwrap();
    memory.sync().unwrap();
    drop((map, memory));
    let memory = Fulgurite::builder(Medium::pool(&path)).dram("8M").start().unwrap();
    let refused = memory.named("orders").hash_map::<u64, versions::new::Order>(10).err().unwrap();
    assert!(refused.to_string().contains("shop.Order/1"), "{refused}");
    assert!(matches!(refused, Error::Root(fulgurite::containers::RootError::WrongType { .. })), "{refused}");
    let map = memory.named("orders").hash_map::<u64, versions::old::Order>(10).unwrap();
    assert_eq!(memory.run(|m| map.get(m, &1)), Ok(Some(order)));
}
