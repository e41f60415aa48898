//! Goal: a program over a device of another process finds what it has written, also when the device
//! dies and returns meanwhile; it has the device for itself; and what cannot be had there is
//! refused with words. Method: devices behind real sockets, with a store and without one; programs
//! start and end, two at a time; the device is replaced by another one over the same medium while a
//! program writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fulgurite::{Array, Error, Fulgurite, Medium};
use fulgurite_device::{Device, DeviceConfig, DeviceFlash, HostConfig, Server, ServerConfig, SocketLink};
use fulgurite_flash::{Flash, MemoryFlash, OpenError};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Notifier};

/// Flash pages: 32 MiB.
const PAGES: u32 = 8192;

fn flat() -> Arc<dyn Flash> {
    Arc::new(MemoryFlash::new(PAGES).unwrap())
}

fn formatted() -> Arc<dyn Flash> {
    let medium = flat();
    Pool::format(&medium, Geometry::new(PAGES, 64, None).unwrap(), PoolId([5; 16]), 0).unwrap();
    medium
}

fn serve(device: Device, socket: &Path) -> Server {
    Server::start(Arc::new(device), socket, ServerConfig::default()).unwrap()
}

fn serve_flat(medium: &Arc<dyn Flash>, socket: &Path) -> Server {
    serve(Device::start(medium.clone(), DeviceConfig::default()).unwrap(), socket)
}

fn serve_store(medium: &Arc<dyn Flash>, socket: &Path) -> Server {
    let pool = Pool::open(medium.clone(), StoreConfig::default()).unwrap().0;
    serve(Device::start_store(pool.into_flash(), DeviceConfig::default()).unwrap(), socket)
}

fn try_start(socket: &Path, share_frames: bool) -> Result<Fulgurite, Error> {
    Fulgurite::builder(Medium::device(socket).share_frames(share_frames)).dram("8M").workers(2).start()
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("device.sock");
    (directory, socket)
}

fn array(memory: &Fulgurite, len: u64) -> Array<u64> {
    let region = memory.region(Array::<u64>::bytes_needed(len)).unwrap();
    memory.run(move |m| Array::create(m, region, len, |_| 0)).unwrap()
}

#[test]
fn what_a_program_writes_it_finds_whether_data_are_copied_or_not() {
    let (_directory, socket) = directory();
    assert!(matches!(try_start(&socket, false), Err(Error::Device(_))), "nobody listens");
    let _server = serve_flat(&flat(), &socket);
    // Twice what there are frames for, which the reads show.
    const LEN: u64 = 2_000_000;
    for share_frames in [false, true] {
        let memory = try_start(&socket, share_frames).unwrap();
        let words = array(&memory, LEN);
        memory.run(move |m| (0..LEN).try_for_each(|i| words.set(m, i, !i))).unwrap();
        let wrong = memory.run(move |m| {
            let mut wrong = 0;
            for i in 0..LEN {
                wrong += u64::from(words.get(m, i)? != !i);
            }
            Ok(wrong)
        });
        assert_eq!(wrong.unwrap(), 0, "frames shared: {share_frames}");
        let reads = memory.statistics().device.reads;
        assert!(reads > Array::<u64>::bytes_needed(LEN) / 4096, "{reads} reads");
        // It keeps nothing, and says so.
        assert!(matches!(memory.sync(), Err(Error::NoPool { .. })));
        assert!(matches!(memory.named("x").heap(1 << 20), Err(Error::NoPool { .. })));
    }
}

/// A device may be away for half a minute: the runtime gives up requests later than its medium
/// does, but requests to other media no later than ever.
#[test]
fn a_runtime_waits_longer_for_a_device_than_that_may_be_away() {
    let (_directory, socket) = directory();
    let _server = serve_flat(&flat(), &socket);
    for share_frames in [false, true] {
        let over = try_start(&socket, share_frames).unwrap();
        assert_eq!(over.runtime().device_timeout(), Duration::from_secs(30 + 10));
    }
    let memory = || Fulgurite::builder(Medium::memory(1 << 20)).dram("8M");
    for builder in [memory(), memory().on_device(None)] {
        assert_eq!(builder.start().unwrap().runtime().device_timeout(), Duration::from_secs(10));
    }
    let short = memory().with(|runtime| runtime.device_timeout(Duration::from_secs(1))).start().unwrap();
    assert_eq!(short.runtime().device_timeout(), Duration::from_secs(1));
}

#[test]
fn one_program_has_the_device_at_a_time() {
    let (_directory, socket) = directory();
    let _server = serve_flat(&flat(), &socket);
    let memory = try_start(&socket, false).unwrap();
    let words = array(&memory, 1_000_000);
    let told = try_start(&socket, false).err().unwrap();
    assert!(told.to_string().contains("in use by another program"), "{told}");
    // Nor does a second program that would share it.
    let sharing = || {
        let link = Arc::new(SocketLink::connect(&socket, false).unwrap());
        let flash = DeviceFlash::over(link, HostConfig::default());
        flash.open_queue(Arc::new(Arena::memfd("frames", 1 << 16).unwrap()), 4, Arc::new(Notifier::new().unwrap()))
    };
    let told = sharing().err().unwrap();
    assert!(
        matches!(&told, OpenError::System { source, .. } if source.to_string().contains("in use by another")),
        "{told}"
    );
    memory.run(move |m| (0..words.len()).try_for_each(|i| words.set(m, i, i))).unwrap();
    assert_eq!(memory.run(move |m| words.get(m, 999_999)).unwrap(), 999_999);
    drop(memory);
    // And a program that wants to be alone waits for those to go that share it, but not for long.
    let shared = [sharing().unwrap(), sharing().unwrap()];
    assert!(try_start(&socket, false).is_err());
    let leaving = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(shared);
    });
    drop(try_start(&socket, false).unwrap());
    leaving.join().unwrap();
}

fn dies_and_returns(medium: &Arc<dyn Flash>, serve: impl Fn(&Arc<dyn Flash>, &Path) -> Server) {
    const WORDS: u64 = 1 << 20;
    let (_directory, socket) = directory();
    let mut server = serve(medium, &socket);
    let memory = try_start(&socket, false).unwrap();
    let array = array(&memory, WORDS);
    for round in 1..=5 {
        let writer = memory
            .submit(move |m| (0..WORDS).step_by(64).try_for_each(|i| array.set(m, i, round * WORDS + i)))
            .unwrap();
        // Whatever it is at then.
        drop(server);
        server = serve(medium, &socket);
        writer.wait().unwrap().unwrap();
        let wrong = memory.run(move |m| {
            let mut wrong = None;
            for i in (0..WORDS).step_by(64) {
                let found = array.get(m, i)?;
                wrong = wrong.or((found != round * WORDS + i).then_some((i, found)));
            }
            Ok(wrong)
        });
        assert_eq!(wrong.unwrap(), None, "round {round}");
    }
}

#[test]
fn a_device_that_dies_and_returns_takes_nothing_with_it() {
    dies_and_returns(&flat(), serve_flat);
    dies_and_returns(&formatted(), serve_store);
}
