//! Goal: several hosts of one device take nothing from each other when it dies and returns. No
//! replay of one undoes a flush of another. A host that wants the device for itself gets it or an
//! error, and a question about the device is answered.
//! Method: two drivers over one socket, as two programs have them. The device is ended and started
//! again over the same store, with and without the other host, in each order.

use crate::common;
use crate::tapped;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_format::{PoolId, SubpageIndex};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::Arena;
use tapped::Tapped;

const PAGES: u32 = 2048;

struct Bench {
    medium: Arc<MemoryFlash>,
    store: bool,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new(store: bool) -> Bench {
        let medium = Arc::new(MemoryFlash::new(PAGES).unwrap());
        if store {
            let below: Arc<dyn Flash> = medium.clone();
            Pool::format(&below, Geometry::new(PAGES, 32, Some(512)).unwrap(), PoolId([5; 16]), 0).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        Bench { medium, store, path: directory.path().join("socket"), _directory: directory }
    }
    fn device(&self) -> Arc<Device> {
        Arc::new(if self.store {
            let pool = Pool::open(self.medium.clone(), StoreConfig::default()).unwrap().0;
            Device::start_store(pool.into_flash(), DeviceConfig::default()).unwrap()
        } else {
            let firmware = FirmwareConfig { keeps_writes: true, ..FirmwareConfig::default() };
            Device::start(self.medium.clone(), DeviceConfig { firmware, ..DeviceConfig::default() }).unwrap()
        })
    }
    fn serve(&self) -> Server {
        Server::start(self.device(), &self.path, ServerConfig::default()).unwrap()
    }
    fn link(&self) -> SocketLink {
        link(&self.path)
    }
    /// Ends what has a queue pair, and waits until the device has seen it.
    fn leaves<T>(server: &Server, host: T) {
        drop(host);
        let begun = std::time::Instant::now();
        while server.connections() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "the device does not see that a host has gone");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn link(path: &Path) -> SocketLink {
    SocketLink::connect(path, false).unwrap()
}

struct Host {
    flash: DeviceFlash,
    frames: Arc<Arena>,
    queue: Driver,
}

impl Host {
    fn try_on(link: Arc<dyn Link>) -> Result<Host, OpenError> {
        let config = HostConfig { copies: true, reattach: Duration::from_secs(20), ..HostConfig::default() };
        let flash = DeviceFlash::over(link, config);
        let frames = arena(2);
        let queue = Driver::open(&flash, &frames, 2)?;
        Ok(Host { flash, frames, queue })
    }
    fn on(link: SocketLink) -> Host {
        Host::try_on(Arc::new(link)).unwrap()
    }
    fn write(&mut self, sector: u32, stamp: u64) -> Result<(), FlashError> {
        fill(&self.frames, 0, stamp);
        self.queue.one(Op::Write, sector, 0)
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        self.queue.one(Op::Flush, 0, 0)
    }
    fn read(&mut self, sector: u32) -> Result<Option<u64>, FlashError> {
        self.queue.one(Op::Read, sector, 1).map(|()| stamp_of(&self.frames, 1))
    }
}

/// The other host was there before the death, comes after it, or has gone: before this one came, or
/// while it had copies, but no queue.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Other {
    First,
    Meanwhile,
    Before,
    BeforeAndGone,
    After,
    None,
}

#[test]
fn what_another_host_has_flushed_is_not_undone_by_what_is_written_once_more() {
    for other in [Other::First, Other::Meanwhile, Other::Before, Other::BeforeAndGone, Other::After, Other::None] {
        let bench = Bench::new(true);
        let server = bench.serve();
        if other == Other::First {
            let mut host = Host::on(bench.link());
            host.write(7, 2).unwrap();
            host.flush().unwrap();
            Bench::leaves(&server, host);
        }
        let mut a = Host::on(bench.link());
        // Acknowledged, and flushed by nobody yet.
        a.write(7, 1).unwrap();
        let mut b = None;
        if other == Other::Meanwhile {
            let Host { flash, frames, queue } = a;
            Bench::leaves(&server, queue);
            let mut host = Host::on(bench.link());
            host.write(7, 2).unwrap();
            host.flush().unwrap();
            Bench::leaves(&server, host);
            let queue = Driver::open(&flash, &frames, 2).unwrap();
            a = Host { flash, frames, queue };
            assert_eq!(a.read(7), Ok(Some(2)));
        }
        if matches!(other, Other::Before | Other::BeforeAndGone) {
            let mut host = Host::on(bench.link());
            host.write(7, 2).unwrap();
            host.flush().unwrap();
            assert_eq!(a.read(7), Ok(Some(2)));
            b = Some(host).filter(|_| other == Other::Before);
        }
        drop(server);
        let _server = bench.serve();
        if other == Other::After {
            let mut host = Host::on(bench.link());
            host.write(7, 2).unwrap();
            host.flush().unwrap();
            b = Some(host);
        }
        // By A, what is older is not written, and the host gets an error because something may be
        // gone.
        let alone = matches!(other, Other::None | Other::First);
        let expected = if alone { Ok(Some(1)) } else { Err(FlashError::Poisoned) };
        assert_eq!(a.read(7), expected, "{other:?}");
        assert_eq!(a.flash.host_counters().restored, u64::from(alone), "{other:?}");
        if !alone {
            let mut reader = b.unwrap_or_else(|| Host::on(bench.link()));
            assert_eq!(reader.read(7), Ok(Some(2)), "{other:?}");
        }
    }
}

/// A host that had flushed all continues next to others, and so does one that came after others.
#[test]
fn who_has_nothing_at_risk_continues_next_to_others() {
    let bench = Bench::new(true);
    let server = bench.serve();
    let (mut a, mut b) = (Host::on(bench.link()), Host::on(bench.link()));
    for (host, sector, stamp) in [(&mut a, 3, 30), (&mut b, 4, 40)] {
        host.write(sector, stamp).unwrap();
        host.flush().unwrap();
    }
    drop(server);
    let _server = bench.serve();
    for host in [&mut a, &mut b] {
        assert_eq!([host.read(3), host.read(4)], [Ok(Some(30)), Ok(Some(40))]);
    }
}

#[test]
fn who_had_the_device_for_itself_learns_that_another_one_has_had_it_since() {
    for other in [false, true] {
        let bench = Bench::new(false);
        let server = bench.serve();
        let mut a = Host::on(bench.link().alone());
        a.write(7, 1).unwrap();
        a.flush().unwrap();
        drop(server);
        let _server = bench.serve();
        if other {
            let mut b = Host::on(bench.link().alone());
            b.write(7, 2).unwrap();
        }
        assert_eq!(a.read(7), if other { Err(FlashError::Poisoned) } else { Ok(Some(1)) });
    }
}

#[test]
fn nobody_in_the_device_s_own_process_is_let_in_to_who_is_alone_either() {
    let bench = Bench::new(false);
    let device = bench.device();
    let _server = Server::start(device.clone(), &bench.path, ServerConfig::default()).unwrap();
    let alone = Host::on(bench.link().alone());
    assert!(Host::try_on(device.clone()).is_err());
    drop(alone);
    // It is gone when the device has seen that.
    let begun = std::time::Instant::now();
    let within = loop {
        match Host::try_on(device.clone()) {
            Ok(host) => break host,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
    };
    assert!(Host::try_on(Arc::new(bench.link().alone())).is_err());
    drop(within);
    Host::on(bench.link().alone());
}

/// As the NBD server of `device serve`, which stays and trims when a client asks.
#[test]
fn who_has_trimmed_next_to_others_keeps_the_device_from_nobody() {
    let bench = Bench::new(true);
    let device = bench.device();
    let _server = Server::start(device.clone(), &bench.path, ServerConfig::default()).unwrap();
    let hosts =
        [device as Arc<dyn Link>, Arc::new(bench.link())].map(|link| DeviceFlash::over(link, HostConfig::default()));
    for host in &hosts {
        assert!(host.traits().trims);
        host.trim(SubpageIndex(0), 16).unwrap();
        let mut alone = Host::on(bench.link().alone());
        alone.write(7, 1).unwrap();
    }
    // One that has the device for itself opens no queue pair for each trim.
    let tapped = Tapped::new(bench.link().alone());
    let alone =
        DeviceFlash::over(tapped.clone(), HostConfig { reattach: Duration::from_secs(20), ..HostConfig::default() });
    (0..3).for_each(|_| alone.trim(SubpageIndex(0), 16).unwrap());
    assert_eq!(tapped.opened.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn who_asks_how_the_device_stands_needs_no_queue_pair() {
    let bench = Bench::new(false);
    let config = ServerConfig { connections_max: 1, ..ServerConfig::default() };
    let server = Server::start(bench.device(), &bench.path, config).unwrap();
    let mut host = Host::on(bench.link());
    host.write(7, 1).unwrap();
    assert_eq!(host.flash.counters().writes, 1);
    let other = bench.link();
    assert_eq!(other.sectors(), PAGES);
    assert!(Host::try_on(Arc::new(other)).is_err());
    // What was counted stays while nobody answers.
    drop(server);
    assert_eq!(host.flash.counters().writes, 1);
}
