//! Goal: a program whose memory is in the store of a device finds what it has synced last, or the
//! state whose sync was under way, whole. This holds when it was killed at any moment, when the
//! device was, and when both were. When the device alone is killed and comes back, the program goes
//! on. A kill in the middle of a roll back leaves the state before or the one that was gone back
//! to, whole, and no token whose pin was acknowledged is lost. Method: this program starts itself
//! as a device over the store in a file, and as a program over that device, which changes a map and
//! an array in rounds, notes the round under a root, syncs, and says so. One of the two or both are
//! killed with SIGKILL at random moments. Each start of the program compares all that it finds with
//! what the rounds make by the same seed, computed anew. Once more with a program that also pins
//! tokens, unpins them and goes back two rounds, which it says before and after, and makes the same
//! rounds again from there. Seeds are printed; `FULGURITE_RUNS` says how many kills.

use std::collections::{BTreeMap, BTreeSet, HashMap as Model, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fulgurite::{Durability, Error, Fulgurite, Medium, Memory, pool::Permissions, views::Ptr};
use fulgurite_device::{Device, DeviceConfig, Server, ServerConfig};
use fulgurite_flash::{FileConfig, FileFlash, Flash, OpenError};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};

use fulgurite_testkit as trials;

use trials::Random;

const SOCKET: &str = "FULGURITE_TEST_SOCKET";
const DATA: &str = "FULGURITE_TEST_DATA";
const SEED: &str = "FULGURITE_TEST_SEED";
/// Set where the program also pins tokens and rolls back.
const GOES_BACK: &str = "FULGURITE_TEST_GOES_BACK";
/// Tokens that the device keeps then.
const KEPT: usize = 8;
/// Flash pages: 48 MiB.
const PAGES: u32 = 12 << 10;
/// Words of the array: 8 MiB, more than fits in DRAM.
const WORDS: u64 = 1 << 20;
const KEYS: u64 = 3000;
/// Changes of a round.
const CHANGES: u64 = 120;
/// No step takes longer on any machine.
const FOREVER: Duration = Duration::from_secs(120);

/// What a round changes: words of the array, then keys of the map.
fn changes(seed: u64, round: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let mut random = Random(seed ^ round.wrapping_mul(0x0101_0101_0101));
    (0..CHANGES).map(move |_| (random.below(WORDS), random.below(KEYS), random.next() | 1))
}

fn patiently<T>(what: &str, mut work: impl FnMut() -> Result<T, Error>, passes: impl Fn(&Error) -> bool) -> T {
    let begun = Instant::now();
    loop {
        match work() {
            Ok(done) => return done,
            Err(error) => assert!(passes(&error) && begun.elapsed() < FOREVER, "{what}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Not a test: what this program does as a device. It ends by being killed, or with its parent.
#[test]
#[ignore = "the device's process; the test starts it"]
fn be_the_device() {
    let (Ok(socket), Ok(data)) = (std::env::var(SOCKET), std::env::var(DATA)) else { return };
    // The kernel may hold the lock of the one that was killed until its ring is taken down.
    let begun = Instant::now();
    let medium: std::sync::Arc<dyn Flash> = loop {
        match FileFlash::open(&FileConfig::existing(&data)) {
            Err(OpenError::InUse { .. }) if begun.elapsed() < FOREVER => std::thread::sleep(Duration::from_millis(1)),
            opened => break std::sync::Arc::new(opened.unwrap()),
        }
    };
    let mut config = StoreConfig::default();
    config.temporary_stays = true;
    if std::env::var(GOES_BACK).is_ok() {
        config.keep_tokens = KEPT;
    }
    let (pool, _) = Pool::open(medium, config).unwrap();
    let config = DeviceConfig { spin: Duration::from_micros(50), ..DeviceConfig::default() };
    let device = Device::start_store(pool.into_flash(), config).unwrap();
    let _server = Server::start(std::sync::Arc::new(device), Path::new(&socket), ServerConfig::default()).unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

/// Not a test: what this program does over the device.
#[test]
#[ignore = "the program's process; the test starts it"]
fn be_the_program() {
    let (Ok(socket), Ok(seed)) = (std::env::var(SOCKET), std::env::var(SEED)) else { return };
    let seed = seed.parse::<u64>().unwrap();
    // Its predecessor may have to be gone first, and the device may be away, too.
    let memory = patiently(
        "start",
        || {
            let medium = Medium::device_pool(PathBuf::from(&socket));
            let builder = Fulgurite::builder(medium).dram("8M").durability(Durability::Sync);
            builder.with(|runtime| runtime.fibers(8)).start()
        },
        |error| matches!(error, Error::Device(_) | Error::Open(_)),
    );
    let map = memory.named("map").hash_map::<u64, u64>(KEYS).unwrap();
    let array = memory.named("array").array::<u64>(WORDS, |_| 0).unwrap();
    let round = memory.named("round").value::<u64>(0).unwrap();
    let checked = map.clone();
    let found = memory.run(move |m| {
        let found = m.load(round)?;
        let (mut words, mut keys) = (Model::new(), BTreeMap::new());
        for (at, key, value) in (1..=found).flat_map(|round| changes(seed, round)) {
            words.insert(at, value);
            keys.insert(key, value);
        }
        let mut entries = BTreeMap::new();
        checked.check(m)?;
        checked.for_each(m, |&key, &value| entries.extend([(key, value)]))?;
        assert_eq!(entries, keys, "the map after round {found}");
        for at in 0..WORDS {
            assert_eq!(array.get(m, at)?, words.get(&at).copied().unwrap_or(0), "word {at} after round {found}");
        }
        Ok(found)
    });
    let mut newest = found.unwrap();
    // Pages of this program alone: nothing of the one before is in them, and their addresses are
    // free, however that ended.
    let temporary = memory.alloc(2, Permissions { permanent: false, ..Permissions::DEFAULT }).unwrap();
    let known = memory.named("temporary").value(temporary.base.linear()).unwrap();
    let words = move || (0..temporary.bytes / 4096).map(move |n| Ptr::<u64>::new(temporary.base.add(n * 4096)));
    let checked = memory.run(move |m| {
        assert_eq!(m.load(known)?, temporary.base.linear(), "the addresses of a program that was killed are free");
        for word in words() {
            assert_eq!(m.load(word)?, 0, "what a program that was killed had for itself");
            m.store(word, u64::MAX)?;
        }
        Ok(())
    });
    checked.unwrap();
    let mut last = u64::MAX;
    // Tokens and what round each is of, the newest last, as far as the device keeps them; the one
    // that is pinned.
    let (mut named, mut pinned) = (VecDeque::new(), None);
    println!();
    memory.tokens().unwrap().iter().for_each(|token| println!("kept {token}"));
    println!("found {newest}");
    for turn in 1.. {
        newest += 1;
        let map = map.clone();
        let changed = memory.run(move |m| {
            for (at, key, value) in changes(seed, newest) {
                array.set(m, at, value)?;
                map.insert(m, &key, value)?;
            }
            for word in words() {
                assert_eq!(m.load(word)?, last, "what this program has for itself, before round {newest}");
                m.store(word, newest)?;
            }
            m.store(round, newest)
        });
        changed.unwrap();
        last = newest;
        // Half of it is on its way before the state has a name.
        let token = memory.sync().unwrap();
        println!("synced {newest}");
        assert!(memory.tokens().unwrap().contains(&token));
        if std::env::var(GOES_BACK).is_err() {
            continue;
        }
        named.push_back((token, newest));
        if named.len() > KEPT / 2 {
            named.pop_front();
        }
        match turn % 5 {
            1 => {
                if let Some(before) = pinned.replace(token) {
                    println!("unpins {before}");
                    memory.pin_token(before, false).unwrap();
                }
                memory.pin_token(token, true).unwrap();
                println!("pinned {token}");
            }
            // Never behind what is pinned: a roll back is refused there.
            4 => {
                named.truncate(named.len() - 2);
                let &(token, round) = named.back().expect("at least three turns before");
                println!("returns {round}");
                memory.roll_back(token).unwrap();
                println!("returned {round}");
                (newest, last) = (round, round);
            }
            _ => {}
        }
    }
}

fn start(test: &str, directory: &Path, seed: u64, goes_back: bool) -> Child {
    let mut command = fulgurite_testkit::again(module_path!(), test);
    if goes_back {
        command.env(GOES_BACK, "1");
    }
    command.env(SOCKET, directory.join("socket")).env(DATA, directory.join("data")).env(SEED, seed.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// A program's process, and what it says.
struct Program {
    child: Child,
    said: Receiver<String>,
}

impl Program {
    fn start(directory: &Path, seed: u64, goes_back: bool) -> Program {
        let mut child = start("be_the_program", directory, seed, goes_back);
        let (says, said) = channel();
        let output = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| says.send(line))
        });
        Program { child, said }
    }
    /// The next line; none when it has ended.
    fn line(&self) -> Option<String> {
        match self.said.recv_timeout(FOREVER) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the program has said nothing for {FOREVER:?}"),
        }
    }
    /// The next number that it says after this word; none when it has ended.
    fn next(&self, word: &str) -> Option<u64> {
        loop {
            if let Some(number) = self.line()?.strip_prefix(word) {
                return Some(number.trim().parse().unwrap());
            }
        }
    }
    /// Kills it; returns the newest round of which it had said that it is synced.
    fn kill(&mut self, synced: u64) -> u64 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut synced = synced;
        while let Some(newer) = self.next("synced ") {
            synced = newer;
        }
        synced
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct DeviceProcess(Child);

impl DeviceProcess {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for DeviceProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kills() -> u64 {
    // One of the device, one of the program, one of both.
    trials::runs(10).max(3)
}

/// A directory with a pool in `data`.
fn with_a_pool() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let create = FileConfig::create(directory.path().join("data"), u64::from(PAGES) * 4096);
    let medium: std::sync::Arc<dyn Flash> = std::sync::Arc::new(FileFlash::open(&create).unwrap());
    Pool::format(&medium, Geometry::new(PAGES, 64, None).unwrap(), PoolId([3; 16]), 0).unwrap();
    directory
}

#[test]
fn a_killed_program_a_killed_device_and_both_leave_the_last_synced_state() {
    let seed = trials::first_seed(u64::from(std::process::id()) << 8 | 5);
    let kills = kills();
    println!("seed {seed}; FULGURITE_SEED={seed} FULGURITE_RUNS={kills} repeats it");
    let directory = with_a_pool();
    let directory = directory.path();
    let mut random = Random(seed);
    let mut device = DeviceProcess(start("be_the_device", directory, seed, false));
    let mut program = Program::start(directory, seed, false);
    // The newest round of which it has said that it is synced.
    let mut synced = program.next("found ").expect("it starts");
    assert_eq!(synced, 0);
    for kill in 0..kills {
        let (kills_device, kills_program) = [(true, false), (false, true), (true, true)][(kill % 3) as usize];
        // Some rounds, and a part of one. What is made before the first is more than there are
        // copies of: a program that lives would get an error.
        for _ in 0..u64::from(!kills_program).max(random.below(4)) {
            synced = program.next("synced ").expect("it goes on");
        }
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        if kills_device {
            device.kill();
        }
        if kills_program {
            synced = program.kill(synced);
        }
        if kills_device {
            device = DeviceProcess(start("be_the_device", directory, seed, false));
        }
        if !kills_program {
            // It notices nothing; of two more rounds one was not under way.
            for _ in 0..2 {
                synced = program.next("synced ").expect("it goes on over the device that has returned");
            }
            continue;
        }
        program = Program::start(directory, seed, false);
        let found = program.next("found ").expect("it finds a whole state");
        assert!(found == synced || found == synced + 1, "round {found} after round {synced} was synced, kill {kill}");
        synced = found;
    }
    assert!(synced > 0 || kills < 3, "no round was ever synced");
}

/// What a program that goes back has said of its state.
#[derive(Default)]
struct Reported {
    /// The round that is synced, or was gone back to.
    round: u64,
    /// The one that it was going back to.
    returns: Option<u64>,
    /// Tokens whose pin was acknowledged, and not to be given up.
    pinned: BTreeSet<u64>,
    turns: u64,
}

impl Reported {
    fn hear(&mut self, line: &str) {
        let Some((word, number)) = line.split_once(' ') else { return };
        let Ok(number) = number.parse::<u64>() else { return };
        match word {
            "synced" => (self.round, self.turns) = (number, self.turns + 1),
            "returns" => self.returns = Some(number),
            "returned" => (self.round, self.returns) = (number, None),
            "pinned" => drop(self.pinned.insert(number)),
            "unpins" => drop(self.pinned.remove(&number)),
            _ => {}
        }
    }
}

#[test]
fn a_kill_in_a_roll_back_leaves_one_of_the_two_states_and_what_is_pinned() {
    let seed = trials::first_seed(u64::from(std::process::id()) << 8 | 6);
    let kills = kills();
    println!("seed {seed}; FULGURITE_SEED={seed} FULGURITE_RUNS={kills} repeats it");
    let directory = with_a_pool();
    let directory = directory.path();
    let mut random = Random(seed);
    let start_device = || DeviceProcess(start("be_the_device", directory, seed, true));
    let mut device = start_device();
    let mut told = Reported::default();
    let mut in_roll_backs = 0;
    for kill in 0..kills {
        let mut program = Program::start(directory, seed, true);
        let mut kept = BTreeSet::new();
        let found = loop {
            let line = program.line().expect("it finds a whole state");
            match line.split_once(' ') {
                Some(("kept", token)) => drop(kept.insert(token.parse::<u64>().unwrap())),
                Some(("found", round)) => break round.parse::<u64>().unwrap(),
                _ => {}
            }
        };
        let may_be = told.returns.map_or([told.round, told.round + 1], |round| [told.round, round]);
        assert!(may_be.contains(&found), "round {found}, kill {kill}; it may be {may_be:?}");
        assert!(told.pinned.is_subset(&kept), "kept are {kept:?}, pinned were {:?}, kill {kill}", told.pinned);
        told = Reported { round: found, pinned: told.pinned, ..Reported::default() };
        // Just before one, or while it is going back; or anywhere.
        let turns = 1 + random.below(9);
        while told.turns < turns || (kill % 3 != 2 && told.returns.is_none()) {
            told.hear(&program.line().expect("it goes on"));
        }
        std::thread::sleep(Duration::from_micros(random.below(if kill % 3 == 2 { 20_000 } else { 2_000 })));
        let both = random.below(2) == 0;
        if both {
            device.kill();
        }
        program.child.kill().unwrap();
        program.child.wait().unwrap();
        while let Some(line) = program.line() {
            told.hear(&line);
        }
        in_roll_backs += u64::from(told.returns.is_some());
        if both {
            device = start_device();
        }
    }
    println!("{in_roll_backs} of {kills} kills in the middle of a roll back");
    assert!(in_roll_backs > 0 || kills < 10, "no kill met a roll back");
}
