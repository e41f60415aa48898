//! Goal: objects of a pool that were made permanent are found by the next process, as of the last
//! sync, under their names. Temporary ones, and all that came later, are not. Wrong names, sizes
//! and pools are errors. Method: allocators over pools in memory, each opened again while the one
//! that was left still exists but writes nothing more. Where the machine gives no userfaultfd, the
//! tests say so.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, OnceLock};

use fulgurite_alloc::{
    BadSize, Mode, NAME_BYTES_MAX, NAMES_MAX, NameError, Named, OBJECT_BYTES_MAX, ObjectAllocator, ObjectArray,
    ObjectPool, ObjectSettings, Overrun, StartError, SyncError,
};
use fulgurite_backing::{Kept, Medium, Opened};
use fulgurite_flash::{Flash, FlashError, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Durability, Geometry, Pool, StoreConfig};
use fulgurite_testkit::{Random, share};

const MODES: [Mode; 2] = [Mode::Compatible, Mode::InLine];
/// Subpages before the first chunk's, and of a chunk.
const BEFORE: u32 = 1040;
const CHUNK: u32 = 1040;
const OBJECTS: u32 = 24 << 10;

/// A pool of `mib` MiB, with addresses for [`OBJECTS`].
fn pool(mib: u32) -> Arc<dyn Flash> {
    let geometry = Geometry::with_objects(mib * 256, 64, BEFORE + OBJECTS / 1024 * CHUNK).unwrap();
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry.flash_pages()).unwrap());
    Pool::format(&medium, geometry, PoolId([7; 16]), 0).unwrap();
    medium
}
fn open(medium: &Arc<dyn Flash>) -> (Arc<Pool>, Opened) {
    open_with(medium, 2 << 20, u32::MAX)
}
/// With `history_bytes` bytes of DRAM for what the last state has and programs do not, and at most
/// `table_limit` entries of the page table.
fn open_with(medium: &Arc<dyn Flash>, history_bytes: usize, table_limit: u32) -> (Arc<Pool>, Opened) {
    let mut config = StoreConfig::default();
    config.durability = Durability::Sync;
    config.history_bytes = history_bytes;
    config.table_limit = table_limit;
    let store = Pool::open(medium.clone(), config).unwrap().0.into_flash();
    let pool = store.layer().clone();
    let kept = Some(Kept::Here(pool.clone()));
    let mut opened = Opened::flat(Arc::new(store));
    opened.kept = kept;
    (pool, opened)
}
fn settings(mode: Mode) -> ObjectSettings {
    let mut settings = ObjectSettings::new(Medium::pool("unused"), 24 << 20, OBJECTS);
    settings.mode = mode;
    settings.page_buffer_bytes = Some(1 << 20);
    settings
}
/// None where the machine gives no userfaultfd, which is said.
fn start_over(opened: &Opened, settings: &ObjectSettings) -> Option<&'static ObjectAllocator> {
    match ObjectAllocator::over_opened(opened, settings) {
        Ok(allocator) => Some(allocator),
        Err(StartError::PageBuffer(fulgurite_fault::Error::Userfault(error))) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
fn start(medium: &Arc<dyn Flash>, mode: Mode) -> Option<(Arc<Pool>, &'static ObjectAllocator)> {
    let (pool, opened) = open(medium);
    Some((pool, start_over(&opened, &settings(mode))?))
}

fn write(at: NonNull<u8>, words: usize, value: u64) {
    for word in 0..words {
        // SAFETY: the object is this test's, and has room.
        unsafe { at.cast::<u64>().add(word).write(value + word as u64) };
    }
}
/// What was written to all words of an object; 0 where nothing was.
fn read(at: NonNull<u8>, words: usize) -> u64 {
    // SAFETY: as in `write`.
    let value = unsafe { at.cast::<u64>().read() };
    for word in 1..words {
        // SAFETY: as in `write`.
        let found = unsafe { at.cast::<u64>().add(word).read() };
        assert_eq!(found, if value == 0 { 0 } else { value + word as u64 }, "word {word} of {value}");
    }
    value
}
/// A list in a pool: each object has a value and the reference of the next one, plus one.
fn push(allocator: &ObjectAllocator, list: ObjectPool, value: u64) {
    let object = list.allocate().expect("there is room");
    let next = list.root().map_or(0, |root| u64::from(allocator.reference(root).unwrap()) + 1);
    // SAFETY: as in `write`.
    unsafe { object.cast::<[u64; 2]>().write([value, next]) };
    list.set_root(Some(object)).unwrap();
}
fn pop(allocator: &ObjectAllocator, list: ObjectPool) -> u64 {
    let root = list.root().unwrap();
    // SAFETY: as in `write`.
    let [value, next] = unsafe { root.cast::<[u64; 2]>().read() };
    list.set_root(next.checked_sub(1).map(|next| allocator.object_of(next as u32).unwrap())).unwrap();
    // SAFETY: nothing leads to it any more.
    unsafe { allocator.free(root) }.unwrap();
    value
}
fn values(allocator: &ObjectAllocator, list: ObjectPool) -> Vec<u64> {
    let (mut values, mut at) = (Vec::new(), list.root());
    while let Some(object) = at {
        // SAFETY: as in `write`.
        let [value, next] = unsafe { object.cast::<[u64; 2]>().read() };
        values.push(value);
        at = next.checked_sub(1).map(|next| allocator.object_of(next as u32).unwrap());
    }
    values
}

#[test]
fn what_was_synced_is_found_and_nothing_else() {
    for mode in MODES {
        let medium = pool(24);
        let Some((_, first)) = start(&medium, mode) else { return };
        assert!(first.is_kept() && first.names().unwrap().is_empty());
        let table: ObjectArray = first.array(2400, 128).unwrap();
        let temporary = first.array(1200, 256).unwrap();
        for index in 0..2400 {
            write(table.at(index), 16, u64::from(index) + 1);
            write(temporary.at(index % 1200), 32, 99);
        }
        // Some of it is in temporary pages of the store by now.
        first.write_back();
        first.set_permanent(table.first(), "table").unwrap();
        let list = first.pool_named("list", 24).unwrap();
        (0..1200).for_each(|value| push(first, list, value));
        let token = first.sync().unwrap();
        // What comes then is not in that state.
        for index in 0..2400 {
            write(table.at(index), 16, 1_000_000);
        }
        (0..400).for_each(|_| _ = pop(first, list));
        let late = first.array_named_or_new("late", 100, 8).unwrap();
        write(late.at(0), 1, 1);
        first.write_back();
        first.check();
        assert_eq!(first.summary().own_syncs, 0, "{mode:?}");

        let (store, second) = start(&medium, mode).unwrap();
        assert_eq!(store.tokens().newest(), Some(token));
        let (table, list) = (second.array_named("table", 2400, 128).unwrap(), second.pool_named("list", 24).unwrap());
        assert_eq!(second.summary().objects, 3600, "temporary ones are gone");
        assert!(matches!(second.array_named("late", 100, 8), Err(NameError::Unknown { .. })));
        for index in 0..2400 {
            assert_eq!(read(table.at(index), 16), u64::from(index) + 1, "{mode:?}: object {index}");
        }
        assert!(values(second, list).into_iter().eq((0..1200).rev()));
        assert_eq!(list.objects().len(), 1200);
        // Numbers that come free are objects of zeros again, for whatever.
        (0..800).for_each(|_| _ = pop(second, list));
        let again = second.array(4000, 100).unwrap();
        assert!((0..4000).all(|index| read(again.at(index), 12) == 0));
        (0..4000).for_each(|index| write(again.at(index), 12, 5));
        second.set_temporary("table").unwrap();
        assert_eq!(read(table.at(7), 16), 8, "it stays as long as the process");
        second.sync().unwrap();
        second.check();
        assert_eq!(store.audit(), Vec::<String>::new());

        let (store, third) = start(&medium, mode).unwrap();
        let names = third.names().unwrap();
        assert_eq!(names, [("list".to_owned(), Named::Pool { object_bytes: 24 })]);
        assert_eq!(third.summary().objects, 400);
        let list = third.pool_named("list", 24).unwrap();
        assert!(values(third, list).into_iter().eq((0..400).rev()));
        (0..400).for_each(|_| _ = pop(third, list));
        assert!(list.root().is_none() && list.objects().is_empty());
        third.set_temporary("list").unwrap();
        third.sync().unwrap();
        third.check();
        assert_eq!((store.audit(), third.summary().objects), (Vec::new(), 0));
        // The header alone.
        assert_eq!(start(&medium, mode).unwrap().1.names().unwrap(), []);
    }
}

/// Random arrays and lists, named, unnamed, freed and synced, against a model of what is there.
#[test]
fn states_are_as_a_model_says() {
    fulgurite_testkit::each_seed(0, 10, |seed| {
        let mut random = Random::seeded("permanent", seed);
        let medium = pool(16);
        // By name: values of an array's objects, of 64 bytes.
        let mut synced: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut number = 0;
        for opening in 0..3 {
            // A process has few allocators in line.
            let mode = if seed % 4 == 0 && opening == 1 { Mode::InLine } else { Mode::Compatible };
            let Some((store, allocator)) = start(&medium, mode) else { return };
            let mut now: BTreeMap<String, (ObjectArray, Vec<u64>)> = BTreeMap::new();
            let names: Vec<String> = allocator.names().unwrap().into_iter().map(|(name, _)| name).collect();
            assert!(names.iter().eq(synced.keys()), "{names:?}");
            for (name, values) in &synced {
                let array = allocator.array_named(name, values.len() as u32, 64).unwrap();
                let found: Vec<u64> = (0..array.len()).map(|index| read(array.at(index), 8)).collect();
                assert_eq!(&found, values, "{name}");
                now.insert(name.clone(), (array, found));
            }
            let mut nameless: Vec<(ObjectArray, Vec<u64>)> = Vec::new();
            for _ in 0..60 {
                let any = |random: &mut Random, now: &BTreeMap<String, (ObjectArray, Vec<u64>)>| {
                    let at = random.below(now.len().max(1));
                    now.keys().nth(at).cloned()
                };
                match random.below(10) {
                    0 | 1 => {
                        let most = if random.one_in(4) { 2500 } else { 60 };
                        let count = 1 + random.below(most);
                        if let Some(array) = allocator.array(count, 64) {
                            nameless.push((array, vec![0; count as usize]));
                        }
                    }
                    2 | 3 if !nameless.is_empty() => {
                        let (array, values) = nameless.swap_remove(random.below(nameless.len()));
                        number += 1;
                        let name = format!("array {number}");
                        allocator.set_permanent(array.first(), &name).unwrap();
                        now.insert(name, (array, values));
                    }
                    4 => {
                        if let Some(name) = any(&mut random, &now) {
                            allocator.set_temporary(&name).unwrap();
                            nameless.extend(now.remove(&name));
                        }
                    }
                    5 => {
                        let name = any(&mut random, &now).filter(|_| random.one_in(2));
                        let gone = match name.and_then(|name| now.remove(&name)) {
                            Some((array, _)) => Some(array),
                            None if nameless.is_empty() => None,
                            None => Some(nameless.swap_remove(random.below(nameless.len())).0),
                        };
                        // SAFETY: nothing uses the array any more.
                        gone.into_iter().for_each(|array| unsafe { allocator.free_array(array.first()) }.unwrap());
                    }
                    6 => {
                        allocator.sync().unwrap();
                        synced = now.iter().map(|(name, (_, values))| (name.clone(), values.clone())).collect();
                    }
                    7 => allocator.write_back(),
                    _ => {
                        for (array, values) in now.values_mut().chain(&mut nameless) {
                            for _ in 0..random.below(40) {
                                let index = random.below(array.len());
                                number += 1;
                                assert_eq!(read(array.at(index), 8), values[index as usize]);
                                values[index as usize] = number * 16;
                                write(array.at(index), 8, number * 16);
                            }
                        }
                    }
                }
            }
            allocator.check();
            assert_eq!(allocator.summary().own_syncs, 0);
            assert_eq!(store.audit(), Vec::<String>::new());
        }
    });
}

#[test]
fn more_changes_than_the_pool_has_room_for_are_synced_by_themselves() {
    let medium = pool(16);
    let (store, opened) = open_with(&medium, 512 << 10, u32::MAX);
    let mut settings = settings(Mode::Compatible);
    settings.dram_bytes = 12 << 20;
    let Some(allocator) = start_over(&opened, &settings) else { return };
    let count = 24_000;
    let array = allocator.array_named_or_new("array", count, 200).unwrap();
    let mut rounds = 0;
    while allocator.summary().own_syncs == 0 {
        rounds += 1;
        assert!(rounds < 60, "{:?}, {:?}", allocator.summary(), store.info());
        (0..count).for_each(|index| write(array.at(index), 25, u64::from(index) + rounds * 1_000_000));
        allocator.sync().unwrap();
    }
    (0..count).for_each(|index| assert_eq!(read(array.at(index), 25), u64::from(index) + rounds * 1_000_000));
    allocator.sync().unwrap();
    assert_eq!(store.audit(), Vec::<String>::new());
    let (_, again) = start(&medium, Mode::InLine).unwrap();
    let array = again.array_named("array", count, 200).unwrap();
    (0..count).for_each(|index| assert_eq!(read(array.at(index), 25), u64::from(index) + rounds * 1_000_000));
}

#[test]
fn a_state_in_the_middle_of_a_change_has_an_array_whole_or_not_at_all() {
    let medium = pool(16);
    // The history has room for what is written here, and the table for not all changes of pages.
    let (store, opened) = open_with(&medium, 256 << 10, 2200);
    let Some(allocator) = start_over(&opened, &settings(Mode::Compatible)) else { return };
    let many = allocator.array_named_or_new("many", 8000, 64).unwrap();
    let late = allocator.array(12_000, 64).unwrap();
    for (array, base) in [(many, 1000), (late, 50_000)] {
        (0..array.len()).for_each(|index| write(array.at(index), 8, base + u64::from(index)));
    }
    allocator.sync().unwrap();
    // The objects of this one are in temporary pages.
    allocator.write_back();
    (0..300).for_each(|index| write(many.at(index), 8, 1_000_000 + u64::from(index)));
    allocator.write_back();
    assert_eq!(allocator.summary().own_syncs, 0);
    allocator.set_permanent(late.first(), "late").unwrap();
    assert!(allocator.summary().own_syncs > 0, "room was short in the middle of the change");
    assert_eq!(store.audit(), Vec::<String>::new());

    let (_, again) = start(&medium, Mode::Compatible).unwrap();
    let many = again.array_named("many", 8000, 64).unwrap();
    for index in 0..8000 {
        // As it last left DRAM.
        let found = read(many.at(index), 8) - u64::from(index);
        assert!(found == 1000 || index < 300 && found == 1_000_000, "{index}: {found}");
    }
    match again.array_named("late", 12_000, 64) {
        Ok(late) => (0..12_000).for_each(|index| assert_eq!(read(late.at(index), 8), 50_000 + u64::from(index))),
        Err(error) => assert!(matches!(error, NameError::Unknown { .. }), "{error}"),
    }
}

#[test]
fn without_own_syncs_too_many_changes_leave_the_last_state() {
    let medium = pool(16);
    let (store, opened) = open_with(&medium, 512 << 10, u32::MAX);
    let mut settings = settings(Mode::Compatible);
    // All of it stays in DRAM, so that no access needs the room.
    (settings.dram_bytes, settings.syncs_itself) = (64 << 20, false);
    let Some(allocator) = start_over(&opened, &settings) else { return };
    let count = 20_000;
    let array = allocator.array_named_or_new("array", count, 200).unwrap();
    (0..count).for_each(|index| write(array.at(index), 25, u64::from(index) + 1));
    let token = allocator.sync().unwrap();
    (0..count).for_each(|index| write(array.at(index), 25, u64::from(index) + 1_000_000));
    for _ in 0..2 {
        let error = allocator.sync().unwrap_err();
        assert!(matches!(error, SyncError::Objects(FlashError::NoSpace)), "{error}");
    }
    let summary = allocator.summary();
    assert!(summary.errors > 0 && summary.own_syncs == 0, "{summary:?}");
    // What was changed is there, and what was synced is what comes back.
    (0..count).for_each(|index| assert_eq!(read(array.at(index), 25), u64::from(index) + 1_000_000));
    assert_eq!((store.tokens().newest(), store.audit()), (Some(token), Vec::new()));
    let (_, again) = start(&medium, Mode::Compatible).unwrap();
    let array = again.array_named("array", count, 200).unwrap();
    (0..count).for_each(|index| assert_eq!(read(array.at(index), 25), u64::from(index) + 1));
}

/// Objects of an array, each of them written to behind its end, so that a function is called when
/// its page leaves.
fn write_too_far(array: ObjectArray) {
    for index in 0..array.len() {
        write(array.at(index), array.object_bytes() / 8 + 1, 7);
    }
}

#[test]
fn an_array_that_is_freed_has_no_name_while_objects_of_it_are_there() {
    static ALLOCATOR: OnceLock<&ObjectAllocator> = OnceLock::new();
    static CALLS: AtomicU32 = AtomicU32::new(0);
    fn assert_no_name(_: Overrun) {
        let allocator = ALLOCATOR.get().unwrap();
        assert!(allocator.summary().objects > 0 && allocator.names().unwrap().is_empty());
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    let medium = pool(16);
    let mut settings = settings(Mode::Compatible);
    settings.on_overrun = Some(assert_no_name);
    let (store, opened) = open(&medium);
    let Some(allocator) = start_over(&opened, &settings) else { return };
    assert!(ALLOCATOR.set(allocator).is_ok());
    let array = allocator.array_named_or_new("array", 50, 64).unwrap();
    allocator.sync().unwrap();
    write_too_far(array);
    // SAFETY: nothing uses the array any more.
    unsafe { allocator.free_array(array.first()) }.unwrap();
    assert_eq!(CALLS.load(Ordering::Relaxed), 50);
    allocator.sync().unwrap();
    allocator.check();
    assert_eq!(store.audit(), Vec::<String>::new());
    assert_eq!(start(&medium, Mode::Compatible).unwrap().1.summary().objects, 0);
}

#[test]
fn an_array_that_becomes_permanent_while_a_state_is_named_is_whole_in_it() {
    static ARRAY: OnceLock<(&ObjectAllocator, ObjectArray)> = OnceLock::new();
    fn name_it(_: Overrun) {
        let (allocator, array) = ARRAY.get().unwrap();
        allocator.set_permanent(array.first(), "late").unwrap();
    }
    let medium = pool(16);
    let mut settings = settings(Mode::Compatible);
    settings.on_overrun = Some(name_it);
    let (store, opened) = open(&medium);
    let Some(allocator) = start_over(&opened, &settings) else { return };
    let late = allocator.array(60, 64).unwrap();
    assert!(ARRAY.set((allocator, late)).is_ok());
    let first = allocator.array_named_or_new("first", 1, 64).unwrap();
    // Pages leave in any order: some of these would before that one.
    (0..60).for_each(|index| write(late.at(index), 8, 100 + u64::from(index)));
    write_too_far(first);
    allocator.sync().unwrap();
    assert_eq!(store.audit(), Vec::<String>::new());
    let (_, again) = start(&medium, Mode::Compatible).unwrap();
    let late = again.array_named("late", 60, 64).unwrap();
    (0..60).for_each(|index| assert_eq!(read(late.at(index), 8), 100 + u64::from(index)));
}

#[test]
fn threads_that_make_an_array_of_one_name_get_the_same_one() {
    let medium = pool(16);
    let Some((_, allocator)) = start(&medium, Mode::Compatible) else { return };
    let begin = Barrier::new(4);
    for round in 0..share(200) {
        let name = format!("array {round}");
        let make = || {
            begin.wait();
            allocator.array_named_or_new(&name, 3, 64)
        };
        let found: Vec<ObjectArray> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        assert!(found.iter().all(|array| *array == found[0]), "{found:?}");
        assert_eq!(allocator.summary().objects, 3);
        // SAFETY: nothing uses the array any more.
        unsafe { allocator.free_array(found[0].first()) }.unwrap();
    }
    allocator.check();
}

#[test]
fn what_cannot_be_permanent_is_refused() {
    let medium = pool(16);
    let Some((_, allocator)) = start(&medium, Mode::Compatible) else { return };
    let array = allocator.array(10, 64).unwrap();
    let object = allocator.pool(64).unwrap().allocate().unwrap();
    let told = |error: NameError| error.to_string();
    // Names.
    for name in ["", &"x".repeat(NAME_BYTES_MAX + 1)] {
        let refused = |error: NameError| assert!(matches!(error, NameError::BadName { bytes } if bytes == name.len()));
        refused(allocator.set_permanent(array.first(), name).unwrap_err());
        refused(allocator.pool_named(name, 8).unwrap_err());
    }
    allocator.set_permanent(array.first(), "array").unwrap();
    let other = allocator.array(10, 64).unwrap();
    let error = allocator.set_permanent(other.first(), "array").unwrap_err();
    assert!(matches!(error, NameError::Exists { .. }) && told(error).contains("array of 10 objects of 64 bytes"));
    let error = allocator.set_permanent(array.first(), "another").unwrap_err();
    assert!(matches!(&error, NameError::Named { name } if name == "array"), "{error}");
    // What is no array.
    let foreign = NonNull::from(&mut 0u8);
    for no_array in [object, array.at(1), foreign] {
        let error = allocator.set_permanent(no_array, "object").unwrap_err();
        assert!(matches!(error, NameError::NotAnArray(at) if at == no_array.as_ptr() as usize), "{error}");
    }
    // Wrong sizes, counts and kinds.
    let list = allocator.pool_named("list", 24).unwrap();
    for (count, bytes) in [(10, 65), (11, 64), (9, 64)] {
        let wanted = Named::Array { count, object_bytes: bytes };
        let error = allocator.array_named("array", count, bytes).unwrap_err();
        assert!(matches!(error, NameError::Differs { wanted: told, .. } if told == wanted), "{error}");
        let error = allocator.array_named_or_new("array", count, bytes).unwrap_err();
        assert!(matches!(error, NameError::Differs { .. }), "{error}");
    }
    assert!(matches!(allocator.array_named("list", 1, 24), Err(NameError::Differs { .. })));
    assert!(matches!(allocator.pool_named("list", 25), Err(NameError::Differs { .. })));
    assert!(matches!(allocator.pool_named("array", 64), Err(NameError::Differs { .. })));
    assert!(matches!(allocator.array_named("none", 1, 1), Err(NameError::Unknown { .. })));
    assert!(matches!(allocator.set_temporary("none"), Err(NameError::Unknown { .. })));
    let size = OBJECT_BYTES_MAX + 1;
    assert!(matches!(allocator.pool_named("large", size), Err(NameError::BadSize(BadSize(told))) if told == size));
    assert!(matches!(allocator.array_named_or_new("large", 1, size), Err(NameError::BadSize(_))));
    assert!(matches!(allocator.array_named_or_new("large", u32::MAX, 8), Err(NameError::NoRoom { .. })));
    // Roots.
    let node = list.allocate().unwrap();
    for no_node in [object, array.first(), foreign] {
        assert!(matches!(list.set_root(Some(no_node)), Err(NameError::NotOfPool(_))));
    }
    list.set_root(Some(node)).unwrap();
    assert_eq!(list.root(), Some(node));
    let nameless = allocator.pool(24).unwrap();
    assert!(matches!(nameless.set_root(None), Err(NameError::NoName)) && nameless.root().is_none());
    allocator.set_temporary("list").unwrap();
    assert!(matches!(list.set_root(None), Err(NameError::NoName)) && list.root().is_none());
    // As many names as there may be. An array that is freed gives its own back.
    let one = allocator.pool_named("one", 8).unwrap();
    let more = (2..).take_while(|n| allocator.pool_named(&format!("{n}"), 8).is_ok()).count();
    assert_eq!(more, NAMES_MAX as usize - 2);
    assert!(matches!(allocator.set_permanent(other.first(), "other"), Err(NameError::Full { .. })));
    // SAFETY: nothing uses the array.
    unsafe { allocator.free_array(array.first()) }.unwrap();
    allocator.set_permanent(other.first(), "other").unwrap();
    assert!(one.allocate().is_some());
    allocator.sync().unwrap();
    let (_, again) = start(&medium, Mode::InLine).unwrap();
    assert_eq!(again.names().unwrap().len(), NAMES_MAX as usize);
    // Flash that keeps nothing.
    let flat = MemoryFlash::new(8 * 256).unwrap();
    let flat = ObjectAllocator::over(&flat, &settings(Mode::Compatible)).unwrap();
    let array = flat.array(10, 64).unwrap();
    assert!(!flat.is_kept() && matches!(flat.set_permanent(array.first(), "array"), Err(NameError::NotKept)));
    assert!(matches!(flat.array_named("array", 10, 64), Err(NameError::NotKept)));
    assert!(matches!(flat.pool_named("array", 64), Err(NameError::NotKept)));
    assert!(matches!(flat.names(), Err(NameError::NotKept)) && matches!(flat.sync(), Err(SyncError::NotKept)));
}

#[test]
fn a_child_after_fork_cannot_sync() {
    let medium = pool(16);
    let Some((_, allocator)) = start(&medium, Mode::InLine) else { return };
    let array = allocator.array_named_or_new("array", 10, 64).unwrap();
    write(array.at(3), 8, 7);
    // SAFETY: the child makes one call, and an alarm ends it if that hangs.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: plain calls.
        unsafe {
            libc::alarm(20);
            libc::_exit(i32::from(!matches!(allocator.sync(), Err(SyncError::Forked))));
        }
    }
    let mut status = -1;
    // SAFETY: the child is this test's.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    allocator.sync().unwrap();
    let (_, again) = start(&medium, Mode::InLine).unwrap();
    assert_eq!(read(again.array_named("array", 10, 64).unwrap().at(3), 8), 7);
}

#[test]
fn pools_of_other_things_are_left_alone() {
    let refused = |medium: &Arc<dyn Flash>, settings: &ObjectSettings| {
        let (pool, opened) = open(medium);
        let error = ObjectAllocator::over_opened(&opened, settings).unwrap_err();
        assert_eq!(pool.uncommitted(), 0, "{error}");
        error
    };
    let usual = settings(Mode::Compatible);
    // Data of something else, at the front and elsewhere.
    for subpage in [0, 5000] {
        let medium = pool(16);
        let (pool, _opened) = open(&medium);
        pool.write_objects(&[(subpage, b"something else")]).unwrap();
        pool.sync().unwrap();
        assert!(matches!(refused(&medium, &usual), StartError::NotOfObjects));
    }
    // A pool without objects, and one with few addresses.
    let geometry = Geometry::new(4096, 64, None).unwrap();
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry.flash_pages()).unwrap());
    Pool::format(&medium, geometry, PoolId([7; 16]), 0).unwrap();
    assert!(matches!(refused(&medium, &usual), StartError::NotOfObjects));
    let medium = pool(16);
    let mut many = usual.clone();
    many.objects_max = OBJECTS + 1;
    let few = refused(&medium, &many);
    assert!(matches!(few, StartError::FewAddresses { objects } if objects == u64::from(OBJECTS)), "{few}");
    // What is known of objects is of a later program, or makes no sense.
    let Some((_, allocator)) = start(&medium, Mode::Compatible) else { return };
    let array = allocator.array_named_or_new("array", 2000, 8).unwrap();
    write(array.at(0), 1, 1);
    allocator.sync().unwrap();
    let write_at = |subpage: u32, bytes: &[u8]| {
        let (pool, _opened) = open(&medium);
        let mut before = [0; 4096];
        let length = pool.read_object(subpage, &mut before).unwrap();
        pool.write_objects(&[(subpage, bytes)]).unwrap();
        pool.sync().unwrap();
        before[..length].to_vec()
    };
    for (subpage, bytes, is_right) in [
        (
            0,
            &b"FLGOBJPP\x09\0\0\0"[..],
            (|error| matches!(error, StartError::Newer { version: 9 })) as fn(&StartError) -> bool,
        ),
        (16, b"no name", |error| matches!(error, StartError::Damaged { what: "name", at: 0 })),
        (BEFORE, b"no record", |error| matches!(error, StartError::Damaged { what: "record", at: 0 })),
        // The second chunk of the array is not there.
        (BEFORE + CHUNK, b"", |error| matches!(error, StartError::Damaged { what: "array", at: 0 })),
    ] {
        let before = write_at(subpage, bytes);
        let error = refused(&medium, &usual);
        assert!(is_right(&error), "{subpage}: {error}");
        write_at(subpage, &before);
    }
    let (_, allocator) = start(&medium, Mode::Compatible).unwrap();
    assert_eq!(read(allocator.array_named("array", 2000, 8).unwrap().at(0), 1), 1);
}
