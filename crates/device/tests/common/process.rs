//! A device in a process of its own, which tests stop, kill and start again.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_device::{
    Device, DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, Server, ServerConfig, SocketLink,
};
use fulgurite_flash::{FileConfig, FileFlash, Flash, MemoryFlash, NandFlash, OpenError};
use fulgurite_nand::{Fil, FilConfig, Parts, Profile};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::Arena;

use crate::common::arena;

pub const SECTORS: u32 = 2048;
const SOCKET: &str = "FULGURITE_TEST_SOCKET";
const DATA: &str = "FULGURITE_TEST_DATA";
const OVER: &str = "FULGURITE_TEST_OVER";

/// What the device is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    File,
    /// A file's pages in memory, which only the processor moves: the device has the host's frames.
    Memory,
    Store,
    /// The store over NAND, whose cells are in the file.
    Nand,
}

impl Over {
    fn has_store(self) -> bool {
        matches!(self, Over::Store | Over::Nand)
    }
}

/// 4 planes of 80 blocks of 8 pages, in times that a test can wait for.
fn nand() -> (Profile, FilConfig) {
    let mut profile = Profile::built_in("slc").unwrap();
    let parts = Parts {
        channels: 2,
        packages_per_channel: 1,
        dies_per_package: 1,
        planes_per_die: 2,
        blocks_per_plane: 80,
        pages_per_block: 8,
        page_bytes: 4096,
    };
    profile.geometry = fulgurite_nand::Geometry::new(parts).unwrap();
    profile.wear.factory_bad = 0.0;
    (profile.timing.read_ns, profile.timing.program_ns, profile.timing.erase_ns) = (10_000, 20_000, 50_000);
    (profile, FilConfig { log_blocks: 4, spare_blocks: 2, hold_ns: 2_000, ..FilConfig::default() })
}

/// Where the wear of the NAND in this file is kept.
fn wear(data: &str) -> PathBuf {
    PathBuf::from(format!("{data}.nand"))
}

/// What this program does as a device. It ends by being killed, or with its parent.
#[test]
#[ignore = "the device's process; the tests start it"]
fn be_the_device() {
    let Ok(socket) = std::env::var(SOCKET) else { return };
    let data = std::env::var(DATA).unwrap();
    let over = std::env::var(OVER).unwrap();
    let is = |what: Over| over == format!("{what:?}");
    let firmware = FirmwareConfig { keeps_writes: !is(Over::Store) && !is(Over::Nand), ..FirmwareConfig::default() };
    let mut worn = None;
    let config = DeviceConfig { firmware, spin: Duration::from_micros(50), ..DeviceConfig::default() };
    let device = if is(Over::Memory) {
        let file = std::fs::File::options().read(true).write(true).open(data).unwrap();
        let medium = MemoryFlash::over(Arc::new(Arena::shared(file).unwrap()), SECTORS).unwrap();
        let firmware = FirmwareConfig { moves_by_cpu: true, ..config.firmware };
        Device::start(Arc::new(medium), DeviceConfig { firmware, ..config }).unwrap()
    } else {
        let config_of_file = FileConfig::existing(&data);
        // The kernel may hold the lock of the one that was killed until its ring is taken down.
        let begun = Instant::now();
        let medium = loop {
            match FileFlash::open(&config_of_file) {
                Err(OpenError::InUse { .. }) if begun.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => break Arc::new(opened.unwrap()),
            }
        };
        let store = |medium: Arc<dyn Flash>| {
            let (pool, _) = Pool::open(medium, StoreConfig::default()).unwrap();
            Device::start_store(pool.into_flash(), config.clone()).unwrap()
        };
        if is(Over::Store) {
            store(medium)
        } else if is(Over::Nand) {
            let (profile, config) = nand();
            let state = std::fs::read(wear(&data)).ok();
            let nand = Arc::new(NandFlash::reopened_with(medium, profile, config, state.as_deref()).unwrap());
            worn = Some((nand.clone(), wear(&data)));
            store(nand)
        } else {
            Device::start(medium, config).unwrap()
        }
    };
    let _server = Server::start(Arc::new(device), Path::new(&socket), ServerConfig::default()).unwrap();
    if let Some((nand, path)) = worn {
        std::thread::spawn(move || {
            let new = path.with_extension("new");
            loop {
                std::fs::write(&new, nand.state()).unwrap();
                std::fs::rename(&new, &path).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }
    // The end of the input is the end of the parent.
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

/// A device's process.
pub struct Process {
    pub child: Child,
    socket: PathBuf,
    data: PathBuf,
    over: Over,
}

impl Process {
    pub fn start(directory: &Path, over: Over) -> Process {
        let (socket, data) = (directory.join("socket"), directory.join("data"));
        if !data.exists() {
            let (profile, config) = nand();
            let fil = Fil::new(profile, config).unwrap();
            let (pages, extent_pages) = match over {
                Over::Nand => (fil.flash_pages(), fil.extent_pages()),
                _ => (SECTORS, 32),
            };
            let create = FileConfig::create(&data, u64::from(pages) * 4096);
            let mut medium: Arc<dyn Flash> = Arc::new(FileFlash::open(&create).unwrap());
            if over == Over::Nand {
                medium = Arc::new(NandFlash::new(medium, profile, config).unwrap());
            }
            if over.has_store() {
                let geometry = Geometry::new(pages, extent_pages, Some(512)).unwrap();
                Pool::format(&medium, geometry, fulgurite_format::PoolId([3; 16]), 0).unwrap();
            }
        }
        let child = Process::spawn(&socket, &data, over);
        Process { child, socket, data, over }
    }
    fn spawn(socket: &Path, data: &Path, over: Over) -> Child {
        let mut command = fulgurite_testkit::again(module_path!(), "be_the_device");
        command.env(SOCKET, socket).env(DATA, data).env(OVER, format!("{over:?}"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }
    pub fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Process::spawn(&self.socket, &self.data, self.over);
    }
    pub fn connect(&self) -> SocketLink {
        let begun = Instant::now();
        loop {
            match SocketLink::connect(&self.socket, self.over == Over::Memory) {
                Ok(link) => return link,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    pub fn flash(&self, timeout: Option<Duration>) -> DeviceFlash {
        self.flash_with(HostConfig { timeout, ..host(8 << 20) })
    }
    pub fn flash_with(&self, host: HostConfig) -> DeviceFlash {
        let flash =
            DeviceFlash::over(Arc::new(self.connect()), HostConfig { copies: self.over != Over::Memory, ..host });
        assert_eq!(flash.traits().shares_frames, self.over == Over::Memory);
        flash
    }
    /// `count` frames, in memory that the device may be given.
    pub fn frames(&self, count: u32) -> Arc<Arena> {
        match self.over {
            Over::Memory => Arc::new(Arena::sealed_memfd("frames", count as usize * 4096).unwrap()),
            _ => arena(count),
        }
    }
}

/// A process that is stopped. It continues when this is dropped, or earlier when it is asked to.
pub struct Stopped(rustix::process::Pid);

impl Process {
    /// Stops it; returns when all of its threads have heard of it.
    pub fn stop(&self) -> Stopped {
        use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::STOP).unwrap();
        while !waitpid(Some(id), WaitOptions::UNTRACED).unwrap().unwrap().1.stopped() {}
        Stopped(id)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A patient host that keeps this many bytes of what was not flushed.
pub fn host(unflushed_bytes: usize) -> HostConfig {
    HostConfig { copies: true, reattach: Duration::from_secs(60), unflushed_bytes, ..HostConfig::default() }
}
