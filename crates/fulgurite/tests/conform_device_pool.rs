//! Goal: over the store of a device a program has what it has over a pool of its own: the state of
//! an old token next to the live one, permissions, temporary pages. They hold when the device dies
//! and returns, when the program ends, and when it is killed. Method: programs over a device behind
//! a real socket, whose store is in memory that outlives it. The device is replaced by another one
//! over the same medium while the program lives. A program's end that names nothing plays its kill.
//! (`crash_device_pool` kills real ones.)

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite::{
    AccessError, Array, Error, Fulgurite, HashMap, Medium, Memory, Region, SyncError,
    latches::NoLatch,
    media::VersionError,
    pool::{PAGE_BYTES, Permissions, PoolError},
    views::Ptr,
};
use fulgurite_device::{Device, DeviceConfig, DeviceFlash, HostConfig, Server, ServerConfig, SocketLink};
use fulgurite_flash::{Flash, FlashError, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

/// Flash pages: 32 MiB.
const PAGES: u32 = 8 << 10;
const KEPT: usize = 4;
const PAGE: u64 = PAGE_BYTES as u64;
const ONLY_READ: Permissions = Permissions { write: false, ..Permissions::DEFAULT };
const NOTHING: Permissions = Permissions { read: false, write: false, permanent: true };
const TEMPORARY: Permissions = Permissions { permanent: false, ..Permissions::DEFAULT };

struct DeviceFixture {
    _directory: tempfile::TempDir,
    socket: PathBuf,
    medium: Arc<dyn Flash>,
}

impl DeviceFixture {
    fn new() -> DeviceFixture {
        let directory = tempfile::tempdir().unwrap();
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(PAGES).unwrap());
        Pool::format(&medium, Geometry::new(PAGES, 64, None).unwrap(), PoolId([5; 16]), 0).unwrap();
        DeviceFixture { socket: directory.path().join("device.sock"), _directory: directory, medium }
    }
    fn serve(&self) -> Server {
        self.serve_with(true)
    }
    fn serve_with(&self, temporary_stays: bool) -> Server {
        let mut config = StoreConfig::default();
        (config.keep_tokens, config.temporary_stays) = (KEPT, temporary_stays);
        let pool = Pool::open(self.medium.clone(), config).unwrap().0;
        let device = Device::start_store(pool.into_flash(), DeviceConfig::default()).unwrap();
        Server::start(Arc::new(device), &self.socket, ServerConfig::default()).unwrap()
    }
    fn start(&self) -> Fulgurite {
        start(&self.socket)
    }
    /// One that comes after another one, which may have to be gone first; its own end names
    /// nothing.
    fn strange(&self) -> DeviceFlash {
        let begun = Instant::now();
        loop {
            let link = SocketLink::connect(&self.socket, false).unwrap().names_states().unwrap();
            let flash = DeviceFlash::over(Arc::new(link), HostConfig { copies: true, ..HostConfig::default() });
            match flash.begin() {
                Ok(()) => return flash,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn start(socket: &Path) -> Fulgurite {
    let medium = Medium::device_pool(socket);
    Fulgurite::builder(medium).dram("8M").with(|runtime| runtime.fibers(8)).start().unwrap()
}

/// A word of each subpage.
fn words(region: Region) -> impl Iterator<Item = Ptr<u64>> + Clone + Send {
    (0..region.bytes / 4096).map(move |n| Ptr::new(region.base.add(n * 4096 + 8)))
}
fn write(memory: &Fulgurite, region: Region, value: u64) -> Result<(), AccessError> {
    memory.run(move |m| words(region).try_for_each(|word| m.store(word, value)))
}
/// The value of all words, which must be equal.
fn read(memory: &Fulgurite, region: Region) -> Result<u64, AccessError> {
    let values = memory.run(move |m| words(region).map(|word| m.load(word)).collect::<Result<Vec<u64>, _>>())?;
    assert!(values.windows(2).all(|two| two[0] == two[1]), "{values:?}");
    Ok(values[0])
}
fn refused(done: Result<impl std::fmt::Debug, AccessError>, write: bool) {
    match done {
        Err(AccessError::NotPermitted { write: found, .. }) if found == write => {}
        other => panic!("{other:?}"),
    }
}

const WORDS: u64 = 256 << 10;

#[test]
fn an_old_token_is_read_next_to_the_live_state() {
    let fixture = DeviceFixture::new();
    let mut server = fixture.serve();
    let memory = fixture.start();
    let map = memory.named("map").hash_map::<u64, u64>(100).unwrap();
    let array: Array<u64> = memory.named("array").array(WORDS, |_| 0).unwrap();
    let value = memory.named("value").value(0u64).unwrap();
    let name = |n: u64| {
        let map = map.clone();
        let changed = memory.run(move |m| {
            map.insert(m, &n, n * n)?;
            (0..WORDS).step_by(512).try_for_each(|at| array.set(m, at, n))?;
            m.store(value, n)
        });
        changed.unwrap();
        memory.sync().unwrap()
    };
    let (first, second) = (name(1), name(2));
    let reader = memory.open_token(second, 4 << 20).unwrap();
    assert_eq!(reader.token(), second);
    let look = |n: u64| {
        let map = reader.container::<HashMap<u64, u64, NoLatch>>("map").unwrap();
        let array = reader.container::<Array<u64>>("array").unwrap();
        assert_eq!(reader.value::<u64>("value").unwrap(), n);
        let found = reader.run(move |m| {
            // More than there are frames for: it is read from the device, each time.
            (0..WORDS).step_by(512).try_for_each(|at| {
                assert_eq!(array.get(m, at)?, n, "word {at}");
                Ok::<(), AccessError>(())
            })?;
            (0..20).map(|key| map.get(m, &key)).collect::<Result<Vec<_>, _>>()
        });
        let expected: Vec<Option<u64>> = (0..20).map(|key| (1..=n).contains(&key).then_some(key * key)).collect();
        assert_eq!(found.unwrap(), expected);
    };
    look(2);
    // The live state goes on, and would have let go of it long since.
    for n in 3..12 {
        let newest = name(n);
        let kept = memory.tokens().unwrap();
        assert!(kept.contains(&second) && kept.contains(&newest) && kept.len() <= KEPT + 1, "{kept:?}");
        if n % 4 == 0 {
            look(2);
        }
    }
    // What was not kept is gone, and what never was is not there. A reader prevents the loss of its
    // token.
    let missing = memory.sync().unwrap() + 1000;
    for token in [first, missing] {
        let told = memory.open_token(token, 4 << 20).map(drop);
        assert!(
            matches!(&told, Err(Error::Pool(PoolError::NoToken { token: of, kept })) if *of == token && kept.contains(&second)),
            "{told:?}"
        );
    }
    // It is for reading.
    let array_of_old = reader.container::<Array<u64>>("array").unwrap();
    refused(reader.run(move |m| array_of_old.set(m, 0, 7)), true);
    // The device dies and returns: both states go on.
    drop(server);
    server = fixture.serve();
    look(2);
    for n in 12..18 {
        name(n);
    }
    look(2);
    assert!(memory.tokens().unwrap().contains(&second));
    drop(reader);
    name(18);
    assert!(!memory.tokens().unwrap().contains(&second), "nobody reads it any more");
    let map = map.clone();
    assert_eq!(memory.run(move |m| map.get(m, &17)).unwrap(), Some(289));
    drop((memory, server));
}

#[test]
fn a_reader_is_in_the_way_of_a_roll_back_and_goes_with_its_program() {
    let fixture = DeviceFixture::new();
    let _server = fixture.serve();
    let memory = fixture.start();
    let value = memory.named("value").value(0u64).unwrap();
    let named = [1, 2].map(|n: u64| {
        memory.run(move |m| m.store(value, n)).unwrap();
        memory.sync().unwrap()
    });
    let reader = memory.open_token(named[1], 4 << 20).unwrap();
    let told = memory.roll_back(named[0]);
    assert!(
        matches!(told, Err(Error::Pool(PoolError::TokenInUse { token, read }) ) if [token, read] == named),
        "{told:?}"
    );
    // The program ends, and its reader does before all is closed.
    drop((reader, memory));
    let memory = fixture.start();
    memory.roll_back(named[0]).unwrap();
    assert_eq!(memory.run(move |m| m.load(value)).unwrap(), 1);
}

#[test]
fn permissions_hold_and_are_part_of_the_state() {
    let fixture = DeviceFixture::new();
    let mut server = fixture.serve();
    let mut memory = fixture.start();
    let region = memory.alloc(3, Permissions::DEFAULT).unwrap();
    let middle = Region::new(region.base.add(PAGE), PAGE);
    assert_eq!(memory.permissions(middle.base).unwrap(), Some(Permissions::DEFAULT));
    assert_eq!(memory.permissions(region.base.add(3 * PAGE)).unwrap(), None);
    write(&memory, region, 5).unwrap();
    let open = memory.sync().unwrap();
    // What is in DRAM and not written back yet is not lost by it.
    write(&memory, region, 6).unwrap();
    memory.set_permissions(middle, ONLY_READ).unwrap();
    assert_eq!(memory.permissions(middle.base).unwrap(), Some(ONLY_READ));
    assert_eq!(read(&memory, region).unwrap(), 6);
    refused(write(&memory, middle, 7), true);
    let beside = Region::new(region.base.add(2 * PAGE), PAGE);
    write(&memory, beside, 6).unwrap();
    assert!(matches!(memory.delete(region), Err(Error::Pool(PoolError::NotPermitted { .. }))));
    let closed = memory.sync().unwrap();
    memory.set_permissions(middle, NOTHING).unwrap();
    refused(read(&memory, middle), false);
    refused(write(&memory, middle, 7), false);
    // Their owner may give the permission again.
    memory.set_permissions(middle, Permissions::DEFAULT).unwrap();
    write(&memory, middle, 8).unwrap();
    assert_eq!(read(&memory, middle).unwrap(), 8);
    // They go back with the data, this way and that.
    memory.roll_back(closed).unwrap();
    refused(write(&memory, middle, 9), true);
    assert_eq!(read(&memory, region).unwrap(), 6);
    memory.roll_back(open).unwrap();
    write(&memory, middle, 5).unwrap();
    assert_eq!(read(&memory, region).unwrap(), 5);
    memory.set_permissions(middle, ONLY_READ).unwrap();
    memory.sync().unwrap();
    // The device dies; then the program ends.
    drop(server);
    server = fixture.serve();
    refused(write(&memory, middle, 9), true);
    assert_eq!(read(&memory, region).unwrap(), 5);
    drop(memory);
    memory = fixture.start();
    refused(write(&memory, middle, 9), true);
    assert_eq!(memory.permissions(middle.base).unwrap(), Some(ONLY_READ));
    memory.set_permissions(middle, Permissions::DEFAULT).unwrap();
    memory.delete(region).unwrap();
    // As they are handed out.
    let region = memory.alloc(2, ONLY_READ).unwrap();
    assert_eq!(read(&memory, region).unwrap(), 0);
    refused(write(&memory, region, 9), true);
    memory.sync().unwrap();
    // Roots are nobody's to close.
    let value = memory.named("value").value(0u64).unwrap();
    let of_root = Region::new(fulgurite::Address::from_linear(value.address().linear() / PAGE * PAGE), PAGE);
    assert!(matches!(memory.set_permissions(of_root, NOTHING), Err(Error::Root(_))));
    memory.run(move |m| m.store(value, 1)).unwrap();
    drop((memory, server));
}

#[test]
fn temporary_pages_go_with_their_program_and_not_with_the_device() {
    let fixture = DeviceFixture::new();
    let mut server = fixture.serve();
    for (round, named) in [false, true, true, false].into_iter().enumerate() {
        let what = format!("round {round}");
        let memory = fixture.start();
        let value = memory.named("value").value(0u64).unwrap();
        assert_eq!(memory.run(move |m| m.load(value)).unwrap(), if round == 0 { 0 } else { 1 }, "{what}");
        let before = if round == 0 { memory.sync().unwrap() } else { *memory.tokens().unwrap().last().unwrap() };
        let region = memory.alloc(2, TEMPORARY).unwrap();
        assert_eq!(memory.permissions(region.base).unwrap(), Some(TEMPORARY), "{what}");
        assert_eq!(read(&memory, region).unwrap(), 0, "{what}: nothing of the one before");
        write(&memory, region, 7).unwrap();
        memory.run(move |m| m.store(value, 1)).unwrap();
        memory.sync().unwrap();
        // The device alone dies: they are this program's, which lives.
        drop(server);
        server = fixture.serve();
        assert_eq!(read(&memory, region).unwrap(), 7, "{what}");
        assert_eq!(memory.permissions(region.base).unwrap(), Some(TEMPORARY), "{what}");
        if named {
            // So they do by a roll back to a state of this program, and go by one to a state of the
            // one before.
            write(&memory, region, 8).unwrap();
            let own = memory.sync().unwrap();
            write(&memory, region, 9).unwrap();
            memory.roll_back(own).unwrap();
            assert_eq!(read(&memory, region).unwrap(), 8, "{what}");
            memory.roll_back(before).unwrap();
            assert_eq!(memory.permissions(region.base).unwrap(), None, "{what}");
            let again = memory.alloc(2, TEMPORARY).unwrap();
            assert_eq!(again.base, region.base, "{what}: its addresses are free");
            write(&memory, again, 9).unwrap();
            memory.sync().unwrap();
        }
        drop(memory);
        if round % 2 == 1 {
            // The device dies as well before anybody comes.
            drop(fixture.strange());
            drop(server);
            server = fixture.serve();
        }
        // The next program finds neither pages nor addresses that are taken. One that names nothing
        // changes nothing of that.
        assert_eq!(fixture.strange().permissions(pages_of(region)).unwrap(), None, "{what}");
        let memory = fixture.start();
        assert_eq!(memory.permissions(region.base).unwrap(), None, "{what}");
        let permanent = memory.alloc(2, Permissions::DEFAULT).unwrap();
        assert_eq!((permanent.base, read(&memory, permanent).unwrap()), (region.base, 0), "{what}");
        memory.delete(permanent).unwrap();
    }
    drop(server);
    let pool = Pool::open(fixture.medium.clone(), StoreConfig::default()).unwrap().0;
    assert_eq!(pool.audit(), Vec::<String>::new());
}

fn pages_of(region: Region) -> u32 {
    (region.base.linear() / PAGE) as u32
}

/// A program that deletes them as it starts says so, and the program that lives gets an error
/// rather than zeros.
#[test]
fn a_program_whose_temporary_pages_went_with_the_device_gets_an_error() {
    let fixture = DeviceFixture::new();
    let server = fixture.serve_with(false);
    let memory = fixture.start();
    let region = memory.alloc(1, TEMPORARY).unwrap();
    write(&memory, region, 7).unwrap();
    memory.sync().unwrap();
    drop(server);
    let _server = fixture.serve_with(false);
    let told = memory.run(move |m| {
        // Not in DRAM any more.
        words(Region::new(region.base.add(64 * PAGE), 128 * PAGE)).try_for_each(|word| m.store(word, 1))
    });
    assert!(matches!(told, Err(AccessError::Flash { source: FlashError::Poisoned, .. })), "{told:?}");
    assert!(matches!(memory.sync(), Err(Error::Sync(SyncError::Version(VersionError::Flash(_))))));
    drop(memory);
    let memory = fixture.start();
    assert_eq!(memory.alloc(1, TEMPORARY).unwrap().base, region.base);
}
