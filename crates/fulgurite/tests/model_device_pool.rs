//! Goal: over the store of a device a program has what it has over a pool: roots by name and type,
//! sync, roll back, tokens, pins, pages; a second program finds them. A device that dies meanwhile
//! takes nothing with it. What is not to be had there is refused by name. Method: random operations
//! on containers, mirrored in models, over a device behind a real socket whose store is in memory
//! that outlives it. A sync keeps a copy of the model under its token; the program ends and comes
//! again; the device is replaced by another one over the same medium while the program lives. After
//! each step all must equal the model. Seeds are printed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fulgurite::{
    Array, Durability, Error, Fulgurite, HashMap, Medium, Memory, Region, Rooted,
    containers::RootError,
    latches::VersionLatch,
    pool::{PAGE_BYTES, Permissions, PoolError},
    views::Ptr,
};
use fulgurite_device::{Device, DeviceConfig, Server, ServerConfig};
use fulgurite_flash::{Flash, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

use fulgurite_testkit as trials;

use trials::Random;

/// Flash pages: 64 MiB.
const PAGES: u32 = 16 << 10;
/// Words of the array: more than fits in DRAM.
const WORDS: u64 = 1 << 20;
const KEYS: u64 = 2000;

fn formatted() -> Arc<dyn Flash> {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(PAGES).unwrap());
    Pool::format(&medium, Geometry::new(PAGES, 64, None).unwrap(), PoolId([5; 16]), 0).unwrap();
    medium
}
fn serve(medium: &Arc<dyn Flash>, socket: &Path) -> Server {
    let mut config = StoreConfig::default();
    config.keep_tokens = 16;
    config.temporary_stays = true;
    let pool = Pool::open(medium.clone(), config).unwrap().0;
    let device = Device::start_store(pool.into_flash(), DeviceConfig::default()).unwrap();
    Server::start(Arc::new(device), socket, ServerConfig::default()).unwrap()
}
fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("device.sock");
    (directory, socket)
}
fn builder(socket: &Path, share_frames: bool) -> fulgurite::Builder {
    let medium = Medium::device_pool(socket).share_frames(share_frames);
    Fulgurite::builder(medium).dram("10M").with(|runtime| runtime.fibers(8))
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    map: BTreeMap<u64, u64>,
    array: BTreeMap<u64, u64>,
    value: u64,
}

#[derive(Clone)]
struct Data {
    map: Arc<Rooted<HashMap<u64, u64, VersionLatch>>>,
    array: Array<u64>,
    value: Ptr<u64>,
}

impl Data {
    fn of(memory: &Fulgurite) -> Data {
        Data {
            map: memory.named("map").hash_map(KEYS).unwrap(),
            array: memory.named("array").array(WORDS, |_| 0).unwrap(),
            value: memory.named("value").value(0).unwrap(),
        }
    }
    fn work(&self, memory: &Fulgurite, model: &mut Model, random: &mut Random) {
        let (data, mut its, mut its_random) = (self.clone(), model.clone(), random.clone());
        (*model, *random) = memory
            .run(move |m| {
                for _ in 0..its_random.below(200) {
                    let (key, value) = (its_random.below(KEYS), its_random.next() | 1);
                    match its_random.below(4) {
                        0 => assert_eq!(data.map.insert(m, &key, value)?, its.map.insert(key, value)),
                        1 => assert_eq!(data.map.remove(m, &key)?, its.map.remove(&key)),
                        2 => {
                            let at = key * (WORDS / KEYS);
                            data.array.set(m, at, value)?;
                            its.array.insert(at, value);
                        }
                        _ => {
                            m.store(data.value, value)?;
                            its.value = value;
                        }
                    }
                }
                Ok((its, its_random))
            })
            .unwrap();
    }
    fn check(&self, memory: &Fulgurite, model: &Model) {
        let data = self.clone();
        let found = memory.run(move |m| {
            let mut found = Model { value: m.load(data.value)?, ..Model::default() };
            data.map.check(m)?;
            data.map.for_each(m, |&key, &value| found.map.extend([(key, value)]))?;
            for at in (0..KEYS).map(|key| key * (WORDS / KEYS)) {
                found.array.extend(Some((at, data.array.get(m, at)?)).filter(|(_, value)| *value != 0));
            }
            Ok(found)
        });
        assert_eq!(found.unwrap(), *model);
    }
}

fn run(seed: u64, share_frames: bool, durability: Durability) {
    let (_directory, socket) = directory();
    let medium = formatted();
    let mut server = serve(&medium, &socket);
    let start = || builder(&socket, share_frames).durability(durability).start().unwrap();
    let mut memory = start();
    let mut data = Data::of(&memory);
    let (mut model, mut random) = (Model::default(), Random(seed));
    let mut states = vec![(memory.sync().unwrap(), model.clone())];
    for step in 0..20 {
        data.work(&memory, &mut model, &mut random);
        match random.below(5) {
            0 | 1 => {
                let token = memory.sync().unwrap();
                assert!(states.iter().all(|(older, _)| *older < token));
                assert!(memory.tokens().unwrap().contains(&token));
                states.push((token, model.clone()));
            }
            2 => {
                // A thread that syncs by itself names states of its own.
                let kept = memory.tokens().unwrap();
                let known = states.iter().filter(|(token, _)| kept.contains(token)).cloned();
                let known: Vec<(u64, Model)> = known.collect();
                if let Some((token, then)) = known.get(random.below(known.len().max(1) as u64) as usize) {
                    memory.roll_back(*token).unwrap();
                    states.retain(|(kept, _)| kept <= token);
                    model.clone_from(then);
                    // A thread that syncs by itself may have named another one by now.
                    let newest = memory.tokens().unwrap().last().copied();
                    assert!(newest == Some(*token) || durability != Durability::Sync && newest > Some(*token));
                }
            }
            3 => {
                // The end of a program is a sync.
                drop(memory);
                memory = start();
                data = Data::of(&memory);
            }
            _ => {
                drop(server);
                server = serve(&medium, &socket);
            }
        }
        eprintln!("step {step}");
        data.check(&memory, &model);
    }
    drop(memory);
    drop(server);
    // And what the device has left is a pool as any other.
    assert_eq!(Pool::open(medium, StoreConfig::default()).unwrap().0.audit(), Vec::<String>::new());
}

fn run_all(share_frames: bool, durability: Durability) {
    trials::each_seed(1, 2, |seed| run(seed, share_frames, durability));
}

#[test]
fn the_store_of_a_device_is_what_its_model_is() {
    run_all(false, Durability::Sync);
}
#[test]
fn so_it_is_where_the_device_has_the_frames() {
    run_all(true, Durability::Sync);
}
#[test]
fn so_it_is_where_a_thread_syncs_by_itself() {
    run_all(false, Durability::Lazy { every: Duration::from_millis(5), bytes: 64 << 20 });
}

#[test]
fn what_has_a_name_is_found_as_what_it_is_and_pages_come_and_go() {
    const PAGE: u64 = PAGE_BYTES as u64;
    let (_directory, socket) = directory();
    let _server = serve(&formatted(), &socket);
    let (region, first) = {
        let memory = builder(&socket, false).start().unwrap();
        let data = Data::of(&memory);
        memory.run(move |m| data.map.insert(m, &7, 49)).unwrap();
        let region = memory.alloc(3, Permissions::DEFAULT).unwrap();
        memory.run(move |m| m.write_bytes(region.base, &[9; 8])).unwrap();
        let first = memory.sync().unwrap();
        memory.pin_token(first, true).unwrap();
        assert!(matches!(memory.pin_token(first + 1000, true), Err(Error::Pool(PoolError::NoToken { .. }))));
        (region, first)
    };
    let memory = builder(&socket, false).start().unwrap();
    let names: Vec<String> = {
        let mut names: Vec<String> = memory.roots().unwrap().into_iter().map(|root| root.name).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names, ["array", "map", "value"]);
    let wrong = memory.named("map").hash_map::<u64, u32>(KEYS);
    assert!(matches!(wrong, Err(Error::Root(RootError::WrongType { .. }))));
    let map = Data::of(&memory).map;
    assert_eq!(memory.run(move |m| map.get(m, &7)).unwrap(), Some(49));
    let bytes = move |memory: &Fulgurite, region: Region| {
        memory
            .run(move |m| {
                let mut bytes = [1; 8];
                m.read_bytes(region.base, &mut bytes)?;
                Ok(bytes)
            })
            .unwrap()
    };
    assert_eq!(bytes(&memory, region), [9; 8]);
    memory.delete(region).unwrap();
    let again = memory.alloc(3, Permissions::DEFAULT).unwrap();
    assert_eq!((again.base, bytes(&memory, again)), (region.base, [0; 8]));
    assert!(matches!(
        memory.delete(Region::new(region.base, 4 * PAGE)),
        Err(Error::Root(RootError::NotHandedOut { .. }))
    ));
    for _ in 0..20 {
        memory.sync().unwrap();
    }
    // Only what is pinned is older than the newest sixteen.
    let kept = memory.tokens().unwrap();
    assert_eq!((kept.len(), kept[0]), (17, first));
    memory.pin_token(first, false).unwrap();
    memory.named("map").remove().unwrap();
    memory.sync().unwrap();
    memory.roll_back(kept[16]).unwrap();
    assert_eq!(memory.named("map").hash_map::<u64, u64>(KEYS).map(|_| ()).ok(), Some(()));
    assert!(matches!(memory.roll_back(first), Err(Error::Pool(PoolError::NoToken { .. }))));
}

#[test]
fn what_a_device_does_not_do_is_refused_by_name() {
    let (_directory, socket) = directory();
    let _server = serve(&formatted(), &socket);
    let refused = |started: Result<Fulgurite, Error>| match started {
        Err(Error::NotHonoured { setting, .. }) => setting,
        other => panic!("{:?}", other.err()),
    };
    let each = || builder(&socket, false);
    assert_eq!(refused(each().durability(Durability::Cache).start()), "Durability::Cache");
    assert_eq!(refused(each().keep_tokens(2).start()), "keep_tokens");
    assert_eq!(refused(each().keep_age(Duration::from_secs(1)).start()), "keep_age");
    assert_eq!(refused(each().keep_space("1M").start()), "keep_space");
    assert_eq!(refused(each().on_device(None).start()), "on_device");
    let memory = each().start().unwrap();
    // One program has it, and the others get an error.
    let told = each().start().err().unwrap();
    assert!(told.to_string().contains("in use by another program"), "{told}");
    drop(memory);
    each().start().unwrap();
}
