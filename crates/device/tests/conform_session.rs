//! Goal: a program that names the states of a device's store has it for itself, and nothing else
//! names one: flushes are refused, and driver and firmware make none. What it has not named when it
//! leaves is gone before another program comes. What had been acknowledged to others before it came
//! stays. Without a store, or while other programs are there, there is no such session.
//! Method: hosts over real sockets come one after the other, by queues and by commands, to a device
//! over a store in memory. Each reads what the one before it has left. A server that is started
//! anew over the recovered store plays the device's process.

use crate::common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::Arena;

/// Flash pages below the store.
const PAGES: u32 = 2048;
const EOPNOTSUPP: i32 = 95;

fn formatted() -> Arc<dyn Flash> {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(PAGES).unwrap());
    Pool::format(&medium, Geometry::new(PAGES, 32, None).unwrap(), PoolId([5; 16]), 0).unwrap();
    medium
}

fn serve(medium: &Arc<dyn Flash>, socket: &Path) -> Server {
    let mut config = StoreConfig::default();
    config.keep_tokens = 8;
    let (pool, _) = Pool::open(medium.clone(), config).unwrap();
    let device = Device::start_store(pool.into_flash(), DeviceConfig::default()).unwrap();
    Server::start(Arc::new(device), socket, ServerConfig::default()).unwrap()
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("device.sock");
    (directory, socket)
}

/// A host that waits for a device, and keeps `copies` copies.
fn patient(copies: usize) -> HostConfig {
    HostConfig {
        copies: true,
        reattach: Duration::from_secs(60),
        unflushed_bytes: copies * SECTOR_BYTES,
        ..HostConfig::default()
    }
}

fn link(socket: &Path) -> SocketLink {
    SocketLink::connect(socket, false).unwrap()
}
fn session(socket: &Path, copies: usize) -> DeviceFlash {
    let flash = DeviceFlash::over(Arc::new(link(socket).names_states().unwrap()), patient(copies));
    flash.begin().unwrap();
    flash
}
/// A host that shares it. One that had it alone may have to be gone first.
fn sharing(socket: &Path) -> DeviceFlash {
    let begun = Instant::now();
    loop {
        let flash = DeviceFlash::over(Arc::new(link(socket)), patient(64));
        match flash.begin() {
            Ok(()) => return flash,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn write(queue: &mut Driver, frames: &Arena, sector: u32, stamp: u64) {
    fill(frames, 0, stamp);
    queue.one(Op::Write, sector, 0).unwrap();
}
/// None: it was never written.
fn read(queue: &mut Driver, frames: &Arena, sector: u32) -> Option<u64> {
    queue.one(Op::Read, sector, 1).unwrap();
    stamp_of(frames, 1).filter(|stamp| *stamp != 0)
}

#[test]
fn what_a_program_has_not_named_is_gone_when_it_leaves() {
    let (_directory, socket) = directory();
    let _server = serve(&formatted(), &socket);
    let frames = arena(2);
    {
        // Acknowledged, and not flushed: it has no name yet.
        let flash = sharing(&socket);
        write(&mut Driver::new(&flash, &frames, 2), &frames, 1, 11);
    }
    let token = {
        let flash = session(&socket, 64);
        let versions = flash.versions().unwrap();
        assert_eq!(versions.tokens().len(), 1, "what was there has a name");
        let mut queue = Driver::new(&flash, &frames, 2);
        assert_eq!(read(&mut queue, &frames, 1), Some(11));
        write(&mut queue, &frames, 1, 12);
        write(&mut queue, &frames, 2, 22);
        let token = versions.name_state().unwrap();
        versions.wait_durable(token).unwrap();
        write(&mut queue, &frames, 2, 23);
        write(&mut queue, &frames, 3, 33);
        flash.delete_pages(0..1).unwrap();
        assert_eq!(read(&mut queue, &frames, 2), None);
        token
    };
    // The next ones, at once: another such program, and one that shares it.
    for names_states in [true, false] {
        let flash = if names_states { session(&socket, 64) } else { sharing(&socket) };
        let mut queue = Driver::new(&flash, &frames, 2);
        let found = [1, 2, 3].map(|sector| read(&mut queue, &frames, sector));
        assert_eq!(found, [Some(12), Some(22), None], "a session: {names_states}");
        assert_eq!(flash.versions().unwrap().tokens().last(), Some(&token), "nothing else was named");
    }
}

#[test]
fn nothing_else_is_named_while_a_program_names_the_states() {
    let (_directory, socket) = directory();
    let medium = formatted();
    let _server = serve(&medium, &socket);
    let flash = session(&socket, 8);
    let frames = arena(2);
    let mut queue = Driver::new(&flash, &frames, 2);
    // All of it has a name, and stays until something else has one.
    let sectors = flash.subpages();
    (0..sectors).for_each(|sector| write(&mut queue, &frames, sector, 5));
    let versions = flash.versions().unwrap();
    versions.wait_durable(versions.name_state().unwrap()).unwrap();
    let before = flash.kept_tokens().unwrap();
    assert_eq!(queue.one(Op::Flush, 0, 0), Err(FlashError::Io(EOPNOTSUPP)));
    let mut commands = flash.commands(2, 4).unwrap();
    assert_eq!(commands.flush(), Err(FlashError::Io(EOPNOTSUPP)));
    // More than has copies, and more than the flash has room for next to named states: nothing
    // flushes.
    let mut full = None;
    for i in 0..4 * sectors {
        fill(&frames, 0, u64::from(i) + 1);
        full = queue.one(Op::Write, i % sectors, 0).err();
        if full.is_some() {
            break;
        }
        if i < 16 {
            commands.write(i, &[7; 2 * SECTOR_BYTES]).unwrap();
        }
    }
    assert_eq!(full, Some(FlashError::NoSpace), "the writer gets its error at once");
    assert_eq!((flash.kept_tokens().unwrap(), flash.host_counters().own_flushes), (before.clone(), 0));
    // Nor in the end.
    drop((queue, commands, flash));
    let flash = session(&socket, 8);
    assert_eq!(flash.kept_tokens().unwrap(), before);
    assert_eq!(read(&mut Driver::new(&flash, &frames, 2), &frames, 5), Some(5));
}

#[test]
fn a_session_is_had_alone_over_a_store() {
    let (_directory, socket) = directory();
    {
        let flat = Device::start(Arc::new(MemoryFlash::new(64).unwrap()), DeviceConfig::default()).unwrap();
        let _server = Server::start(Arc::new(flat), &socket, ServerConfig::default()).unwrap();
        let reported = link(&socket).names_states().unwrap_err();
        assert!(matches!(reported, SocketError::NoStates { .. }), "{reported}");
    }
    let _server = serve(&formatted(), &socket);
    let impatient = |link: SocketLink| {
        let flash = DeviceFlash::over(Arc::new(link), HostConfig::default());
        flash.begin().map(|()| flash)
    };
    let first = impatient(link(&socket).names_states().unwrap()).unwrap();
    for other in [link(&socket).names_states().unwrap(), link(&socket).alone(), link(&socket)] {
        let reported = impatient(other).unwrap_err();
        assert!(reported.to_string().contains("in use by another program"), "{reported}");
    }
    drop(first);
    let shared = sharing(&socket);
    shared.begin().unwrap();
    assert!(impatient(link(&socket).names_states().unwrap()).is_err());
    drop(shared);
    impatient(link(&socket).names_states().unwrap()).unwrap();
}

/// The first one that comes and one that comes later.
#[test]
fn a_device_that_dies_in_a_session_returns_with_what_was_not_named() {
    let (_directory, socket) = directory();
    let medium = formatted();
    let mut server = serve(&medium, &socket);
    // No more copies are kept than there are frames.
    let frames = arena(64);
    for round in 0..3 {
        let flash = session(&socket, 64);
        let versions = flash.versions().unwrap();
        let mut queue = Driver::new(&flash, &frames, 2);
        let stamp = |i: u32| u64::from(100 * round + i + 1);
        write(&mut queue, &frames, 1, stamp(1));
        let token = versions.name_state().unwrap();
        versions.wait_durable(token).unwrap();
        (2..40).for_each(|sector| write(&mut queue, &frames, sector, stamp(sector)));
        drop(server);
        server = serve(&medium, &socket);
        for sector in 1..40 {
            assert_eq!(read(&mut queue, &frames, sector), Some(stamp(sector)), "round {round}, sector {sector}");
        }
        assert_eq!(flash.host_counters().restored, 38, "what was named has no copies any more");
        // And has lost what it had no copies of.
        (0..200).for_each(|sector| write(&mut queue, &frames, sector, stamp(0)));
        drop(server);
        server = serve(&medium, &socket);
        assert_eq!(queue.one(Op::Read, 1, 1), Err(FlashError::Poisoned));
        assert!(versions.name_state().is_err());
        drop((queue, flash));
        // A new opening finds the state that was named.
        let flash = session(&socket, 64);
        let mut queue = Driver::new(&flash, &frames, 2);
        assert_eq!(read(&mut queue, &frames, 1), Some(stamp(1)));
        assert_eq!(read(&mut queue, &frames, 2), None, "of no round was it named");
        assert_eq!(flash.kept_tokens().unwrap().last(), Some(&token));
    }
}

/// All queue pairs of a live program are lost at once: the device rolls back, as another instance.
#[test]
fn a_program_whose_session_ended_behind_its_back_writes_once_more() {
    let (_directory, socket) = directory();
    let (pool, _) = Pool::open(formatted(), StoreConfig::default()).unwrap();
    let device = Arc::new(Device::start_store(pool.into_flash(), DeviceConfig::default()).unwrap());
    let server = Server::start(device.clone(), &socket, ServerConfig::default()).unwrap();
    let (flash, frames) = (session(&socket, 64), arena(2));
    let mut queue = Driver::new(&flash, &frames, 2);
    write(&mut queue, &frames, 1, 11);
    // The device itself lives on.
    drop(server);
    let _server = Server::start(device, &socket, ServerConfig::default()).unwrap();
    // There is a copy of it, so that it is there again on what the device went back to.
    assert_eq!(read(&mut queue, &frames, 1), Some(11));
    assert_eq!(flash.host_counters().restored, 1);
}

/// It sleeps while the device dies, belongs to another program, and dies again.
#[test]
fn a_program_does_not_write_its_copies_over_the_states_of_another_one() {
    let (_directory, socket) = directory();
    let medium = formatted();
    let frames = arena(64);
    for others_name in [false, true] {
        let mut server = serve(&medium, &socket);
        let flash = session(&socket, 64);
        let mut queue = Driver::new(&flash, &frames, 2);
        write(&mut queue, &frames, 1, 11);
        drop(server);
        server = serve(&medium, &socket);
        {
            let other = session(&socket, 64);
            let mut its_queue = Driver::new(&other, &frames, 2);
            write(&mut its_queue, &frames, 1, 21);
            if others_name {
                let versions = other.versions().unwrap();
                versions.wait_durable(versions.name_state().unwrap()).unwrap();
            }
        }
        drop(server);
        let _server = serve(&medium, &socket);
        let found = queue.one(Op::Read, 1, 1).map(|()| stamp_of(&frames, 1));
        // What the other one has not named was never there.
        assert_eq!(found, if others_name { Err(FlashError::Poisoned) } else { Ok(Some(11)) });
    }
}

/// While a program has the device for itself, another one only observes, unnoticed.
#[test]
fn who_only_observes_disturbs_nobody_and_changes_nothing() {
    const DENIED: FlashError = FlashError::Io(13);
    let (_directory, socket) = directory();
    let _server = serve(&formatted(), &socket);
    let look = || {
        let flash = DeviceFlash::over(Arc::new(link(&socket).only_observes()), HostConfig::default());
        flash.commands(1, 8).unwrap()
    };
    // While nobody has named anything, this does not.
    assert_eq!(look().tokens().unwrap(), []);
    assert_eq!(look().standing().unwrap().uncommitted, 0);
    let flash = session(&socket, 64);
    let frames = arena(2);
    let mut queue = Driver::new(&flash, &frames, 2);
    write(&mut queue, &frames, 1, 11);
    let versions = flash.versions().unwrap();
    let token = versions.name_state().unwrap();
    versions.wait_durable(token).unwrap();
    flash.pin_token(token, true).unwrap();
    write(&mut queue, &frames, 1, 12);
    let mut looks = look();
    assert_eq!((looks.tokens().unwrap().last(), looks.pinned().unwrap()), (Some(&token), vec![token]));
    assert_eq!(looks.standing().unwrap().uncommitted, 1);
    assert_eq!(looks.permissions(0).unwrap(), Some(fulgurite_store::Permissions::DEFAULT));
    assert!(looks.identify().is_ok());
    let mut sector = [0; SECTOR_BYTES];
    assert_eq!(looks.read(1, &mut sector), Err(DENIED));
    assert_eq!(looks.write(1, &sector), Err(DENIED));
    assert_eq!(looks.flush(), Err(DENIED));
    assert_eq!(looks.read_at(token, 1, &mut sector), Err(DENIED.into()));
    assert_eq!(looks.sync(), Err(DENIED.into()));
    assert_eq!(looks.pin(token, false), Err(DENIED.into()));
    assert_eq!((looks.delete(0..1), looks.trim(0, 16)), (Err(DENIED), Err(DENIED)));
    assert_eq!(looks.set_permissions(0..1, fulgurite_store::Permissions::DEFAULT), Err(DENIED));
    assert_eq!(read(&mut queue, &frames, 1), Some(12));
    // It stays while the program leaves and another one comes.
    let kept = looks.tokens().unwrap();
    drop((queue, flash));
    let flash = session(&socket, 64);
    assert_eq!(read(&mut Driver::new(&flash, &frames, 2), &frames, 1), Some(11));
    assert_eq!((flash.kept_tokens().unwrap(), looks.tokens().unwrap()), (kept.clone(), kept));
}

/// Of a store that is opened to leave them: a dead device does not know yet whether its program
/// returns.
#[test]
fn temporary_pages_are_gone_for_whoever_comes_next() {
    let temporary = fulgurite_store::Permissions { permanent: false, ..fulgurite_store::Permissions::DEFAULT };
    let (_directory, socket) = directory();
    let medium = formatted();
    let serve = || {
        let mut config = StoreConfig::default();
        (config.keep_tokens, config.temporary_stays) = (8, true);
        let (pool, _) = Pool::open(medium.clone(), config).unwrap();
        let device = Device::start_store(pool.into_flash(), DeviceConfig::default()).unwrap();
        Server::start(Arc::new(device), &socket, ServerConfig::default()).unwrap()
    };
    let frames = arena(2);
    let mut server = serve();
    for (dies, names_states) in [(false, true), (true, true), (false, false), (true, false)] {
        let flash = session(&socket, 64);
        assert_eq!(flash.take_dropped_temporary().unwrap(), [], "all of them were reported before");
        let mut queue = Driver::new(&flash, &frames, 2);
        flash.set_permissions(2..4, temporary).unwrap();
        write(&mut queue, &frames, 35, 7);
        let versions = flash.versions().unwrap();
        versions.wait_durable(versions.name_state().unwrap()).unwrap();
        drop((queue, flash));
        if dies {
            drop(server);
            server = serve();
        }
        let next = if names_states { session(&socket, 64) } else { sharing(&socket) };
        assert_eq!(
            (next.permissions(2), next.permissions(3)),
            (Ok(None), Ok(None)),
            "dies {dies}, names {names_states}"
        );
        assert_eq!(read(&mut Driver::new(&next, &frames, 2), &frames, 35), None);
        drop(next);
        // A program with a list of what was handed out is notified, also after a program without
        // one.
        let next = session(&socket, 64);
        assert_eq!(next.take_dropped_temporary().unwrap(), [2, 3], "dies {dies}, names {names_states}");
        let versions = next.versions().unwrap();
        versions.wait_durable(versions.name_state().unwrap()).unwrap();
    }
}
