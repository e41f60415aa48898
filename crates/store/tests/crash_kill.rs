//! Goal: what was acknowledged to a process as durable is there after it was killed, at any moment.
//! Method: a process of its own writes numbered batches to a pool on a file and sends each token
//! through a pipe. It is killed with SIGKILL at random moments. The pool is opened, and compared
//! with what the batches up to the one found must have left.

use fulgurite_testkit as trials;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fulgurite_flash::{FileConfig, FileFlash, Flash, Op, Queue, Request};
use fulgurite_format::{FrameIndex, PoolId, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, Notifier};

const SUBPAGES: u32 = 256;
const BATCH: usize = 12;
const CHILD: &str = "FULGURITE_TEST_POOL";

fn geometry() -> Geometry {
    Geometry::new(1024, 16, Some(SUBPAGES)).unwrap()
}
fn open(path: &Path) -> (Pool, u64) {
    let mut config = StoreConfig::default();
    config.checkpoint_after = 16;
    config.commit_after = 4;
    let medium: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::existing(path)).unwrap());
    let (pool, report) = Pool::open(medium, config).unwrap();
    (pool, report.token)
}
/// The subpages of a batch: the first holds the number of the newest, the others are as good as
/// random.
fn batch(number: u64) -> Vec<u32> {
    let mut subpages: Vec<u32> = (1..BATCH as u64)
        .map(|i| 1 + ((number * 31 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u32 % (SUBPAGES - 1))
        .collect();
    subpages.push(0);
    subpages.sort_unstable();
    subpages.dedup();
    subpages
}

struct User {
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
}
impl User {
    fn new(flash: &dyn Flash) -> User {
        let frames = Arc::new(Arena::anonymous(BATCH * SUBPAGE_BYTES, Backed::BasePages).unwrap());
        let queue = flash.open_queue(frames.clone(), BATCH, Arc::new(Notifier::new().unwrap())).unwrap();
        User { queue, frames }
    }
    /// All of these at once, to their ends.
    fn all(&mut self, op: Op, subpages: &[u32]) {
        for (frame, subpage) in subpages.iter().enumerate() {
            let (subpage, frame_index) = (SubpageIndex(*subpage), FrameIndex(frame as u32));
            self.queue.submit(Request { tag: frame as u64, op, subpage, frame: frame_index }).unwrap();
        }
        self.queue.flush().unwrap();
        let (mut left, mut completions) = (subpages.len(), Vec::new());
        while left > 0 {
            completions.clear();
            self.queue.poll(&mut completions);
            for c in &completions {
                c.result.unwrap();
                left -= 1;
            }
            if left > 0 && completions.is_empty() {
                self.queue.wait(Some(Duration::from_millis(1)));
            }
        }
    }
    fn write(&mut self, subpages: &[u32], number: u64) {
        for frame in 0..subpages.len() {
            self.frames.write(frame * SUBPAGE_BYTES, &number.to_le_bytes().repeat(SUBPAGE_BYTES / 8));
        }
        self.all(Op::Write, subpages);
    }
    fn read(&mut self, subpage: u32) -> u64 {
        self.all(Op::Read, &[subpage]);
        let mut page = [0; SUBPAGE_BYTES];
        self.frames.read(0, &mut page);
        let number = u64::from_le_bytes(*page.first_chunk().unwrap());
        assert!(page.chunks_exact(8).all(|c| c == number.to_le_bytes()), "subpage {subpage} is torn");
        number
    }
}

/// The process that is killed.
#[test]
#[ignore = "started by the test below"]
fn writer() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let (pool, _) = open(Path::new(&path));
    let flash = pool.into_flash();
    let mut user = User::new(&flash);
    let first = user.read(0) + 1;
    for number in first.. {
        user.write(&batch(number), number);
        let token = flash.layer().sync().unwrap();
        println!("\nbatch {number} token {token}");
    }
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let (seed, kills) = (trials::first_seed(1), trials::runs(100));
    println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS={kills}");
    let since = Instant::now();
    // The directory of the build is more likely on a disk than the one of temporary files.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("pool");
    let medium: Arc<dyn Flash> =
        Arc::new(FileFlash::open(&FileConfig::create(&path, u64::from(geometry().flash_pages()) << 12)).unwrap());
    Pool::format(&medium, geometry(), PoolId([9; 16]), 0).unwrap();
    drop(medium);
    let mut random = trials::Random(seed);
    // (newest batch, token) that was acknowledged, and what all batches so far have left.
    let (mut acknowledged, mut acknowledged_token) = (0, 0);
    let (mut applied, mut expected) = (0, vec![0u64; SUBPAGES as usize]);
    for kill in 0..kills {
        let mut child = fulgurite_testkit::again(module_path!(), "writer")
            .env(CHILD, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut newest = None;
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                if let ["batch", number, "token", token] = words[..]
                    && let (Ok(number), Ok(token)) = (number.parse::<u64>(), token.parse::<u64>())
                {
                    newest = Some((number, token));
                }
            }
            newest
        });
        std::thread::sleep(Duration::from_micros(10_000 + random.below(90_000_u64)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "kill {kill}: the writer ended by itself: {status}");
        if let Some(newest) = reader.join().unwrap() {
            (acknowledged, acknowledged_token) = newest;
        }
        let (pool, token) = open(&path);
        assert!(token >= acknowledged_token, "kill {kill}: token {acknowledged_token} was promised, {token} came back");
        assert_eq!(pool.audit(), Vec::<String>::new());
        let flash = pool.into_flash();
        let mut user = User::new(&flash);
        let found = user.read(0);
        assert!(found >= acknowledged, "kill {kill}: batch {acknowledged} was acknowledged, {found} came back");
        while applied < found {
            applied += 1;
            batch(applied).into_iter().for_each(|s| expected[s as usize] = applied);
        }
        for (subpage, expected) in (0..).zip(&expected) {
            assert_eq!(user.read(subpage), *expected, "kill {kill}: subpage {subpage}");
        }
    }
    println!("kill -9: {kills} times, {applied} batches, 0 violations, {:.1} s", since.elapsed().as_secs_f64());
    assert!(applied > 0, "the writer never came to write");
    let kind = trials::file_system_of(directory.path());
    trials::figure(9, &format!("kills of a process that writes, on {kind}"), kills);
}
