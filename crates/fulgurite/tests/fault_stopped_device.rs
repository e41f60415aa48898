//! Goal: a device whose process is stopped (SIGSTOP) while it has the frames of a program in its
//! hands is a typed error to the jobs that wait for it. They get it when they have waited for as
//! long as the medium may take. When it goes on so does the program, and nothing is torn or lost.
//! Method: this program starts itself as a device over memory that takes frames, and runs jobs over
//! more data than fit in DRAM while it is stopped and continued. What is written must be there
//! whole after jobs that ended well; what a failed job wrote may be there or not.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite::{AccessError, Array, Error, Fulgurite, Medium};
use fulgurite_device::{Device, DeviceConfig, FirmwareConfig, Server, ServerConfig};
use fulgurite_flash::{FlashError, MemoryFlash};

const SOCKET: &str = "FULGURITE_TEST_SOCKET";
/// Words of the array: 16 MiB, twice what fits in DRAM.
const WORDS: u64 = 2 << 20;
/// One word of each subpage.
const STEP: usize = 512;
/// Longer than a device waits for a core on a machine with more to do.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Nothing waits longer on any machine.
const FOREVER: Duration = Duration::from_secs(60);

/// Not a test: what this program does as a device. It ends by being killed, or with its parent.
#[test]
#[ignore = "the device's process; the test starts it"]
fn be_the_device() {
    let Ok(socket) = std::env::var(SOCKET) else { return };
    let firmware = FirmwareConfig { moves_by_cpu: true, keeps_writes: true, ..FirmwareConfig::default() };
    let config = DeviceConfig { firmware, ..DeviceConfig::default() };
    let device = Device::start(Arc::new(MemoryFlash::new(8192).unwrap()), config).unwrap();
    let _server = Server::start(Arc::new(device), Path::new(&socket), ServerConfig::default()).unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

struct Process(Child);

impl Process {
    fn start(socket: &Path) -> Process {
        let mut command = fulgurite_testkit::again(module_path!(), "be_the_device");
        command.env(SOCKET, socket);
        Process(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }
    fn signal(&self, name: &str) {
        let told = Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap();
        assert!(told.success());
    }
    /// Stops it; returns when all of its threads have stopped.
    fn stop(&self) {
        self.signal("-STOP");
        let begun = Instant::now();
        let stopped = |task: std::fs::DirEntry| {
            let state = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        while !std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap().all(|task| stopped(task.unwrap())) {
            assert!(begun.elapsed() < FOREVER, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_timed_out(error: &AccessError) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<FlashError>() == Some(&FlashError::TimedOut) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Again where it has taken too long: the device may not have had a core.
fn patiently<T>(mut work: impl FnMut() -> Result<T, AccessError>) -> T {
    let begun = Instant::now();
    loop {
        match work() {
            Ok(done) => return done,
            Err(error) => assert!(has_timed_out(&error) && begun.elapsed() < FOREVER, "{error:?}"),
        }
    }
}

/// Says of the first subpage that holds neither what is expected nor what may be there instead.
fn wrong(
    memory: &Fulgurite,
    array: Array<u64>,
    round: u64,
    also: Option<u64>,
) -> Result<Option<(u64, u64)>, AccessError> {
    memory.run(move |m| {
        let mut wrong = None;
        for i in (0..WORDS).step_by(STEP) {
            let found = array.get(m, i)?;
            let is = |round| found == round * WORDS + i;
            wrong = wrong.or((!is(round) && !also.is_some_and(is)).then_some((i, found)));
        }
        Ok(wrong)
    })
}

fn write(memory: &Fulgurite, array: Array<u64>, round: u64) -> Result<(), AccessError> {
    memory.run(move |m| (0..WORDS).step_by(STEP).try_for_each(|i| array.set(m, i, round * WORDS + i)))
}

#[test]
fn jobs_get_errors_from_a_stopped_device_that_has_their_frames_and_go_on_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("device.sock");
    let process = Process::start(&socket);
    let begun = Instant::now();
    let memory = loop {
        let builder = Fulgurite::builder(Medium::device(socket.clone()).share_frames(true));
        let builder = builder.dram("8M").workers(1);
        match builder.with(|runtime| runtime.device_timeout(TIMEOUT)).start() {
            Ok(memory) => break memory,
            Err(error) => assert!(matches!(error, Error::Device(_)) && begun.elapsed() < FOREVER, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let region = memory.region(Array::<u64>::bytes_needed(WORDS)).unwrap();
    let array = patiently(|| memory.run(move |m| Array::create(m, region, WORDS, |_| 0)));
    for round in 1..=3 {
        patiently(|| write(&memory, array, 2 * round));
        process.stop();
        let told = [wrong(&memory, array, 2 * round, None).map(drop), write(&memory, array, 2 * round + 1)];
        for told in told {
            let error = told.expect_err("it is stopped, and not all is in DRAM");
            assert!(has_timed_out(&error), "{error:?}");
        }
        process.signal("-CONT");
        // Of the job that failed, each subpage has what it wrote, or what was there.
        let found = patiently(|| wrong(&memory, array, 2 * round, Some(2 * round + 1)));
        assert_eq!(found, None, "round {round}");
    }
    drop(memory);
}
