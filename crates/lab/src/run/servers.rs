//! redis-server and memcached as Debian has them: words to start them, rounds of clients.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::args::RunBenchArgs;
use super::client::{Keys, Plan};
use super::contest::{Contest, Contestant};
use super::protocol::Protocol;
use super::series::{Row, Work, note_peaks, take_turns};
use super::touch::time_of;
use crate::values::Under;
use fulgurite_term::progress;

/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a value.
pub const VALUE_BYTES: u32 = 1024;
/// Exponent of the Zipf distribution of keys.
pub const ZIPF: f64 = 0.99;
/// Keys that are checked in the end. Each may be a read of the disk.
const CHECKED: u64 = 20_000;
/// Threads of memcached, its default.
const THREADS: &str = "4";

/// Which server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    Redis,
    Memcached,
}

impl Server {
    /// Its name, for rows.
    pub fn name(self) -> &'static str {
        match self {
            Server::Redis => "redis",
            Server::Memcached => "memcached",
        }
    }
    fn program(self) -> &'static str {
        match self {
            Server::Redis => "redis-server",
            Server::Memcached => "memcached",
        }
    }
    /// Its protocol.
    pub fn protocol(self) -> Protocol {
        match self {
            Server::Redis => Protocol::Resp,
            Server::Memcached => Protocol::Memcached,
        }
    }
    /// Whether it is there. Where it is not, a note says so.
    ///
    /// # Errors
    /// The kernel's.
    pub fn find(self, contest: &mut Contest) -> Result<bool> {
        let program = self.program();
        let tried = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        match tried {
            Ok(output) if output.status.success() => Ok(true),
            Ok(output) => {
                let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                contest
                    .experiment
                    .note(format!("Rows of {} are left out: {program} does not start ({told}).", self.name()));
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let name = self.name();
                contest
                    .experiment
                    .note(format!("Rows of {name} are left out: there is no {program} (apt-get install {program})."));
                Ok(false)
            }
            Err(error) => Err(error).with_context(|| format!("{program} cannot be started")),
        }
    }
    /// Its command line: no files, but those that are asked for.
    fn words(self, args: &RunBenchArgs, port: u16, directory: &std::path::Path) -> Vec<OsString> {
        let port = port.to_string();
        let words: Vec<String> = match self {
            Server::Redis => {
                let fixed = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--rdbcompression", "no"];
                let named = ["--enable-debug-command", "local", "--port", &port, "--dir"];
                fixed.iter().chain(&named).map(ToString::to_string).collect()
            }
            Server::Memcached => {
                // It rounds values up, and must not evict any.
                let mib = ((args.data_bytes() * 2) >> 20).max(64).to_string();
                let most = (args.clients + 64).to_string();
                let mut words = vec!["-l", "127.0.0.1", "-U", "0", "-t", THREADS, "-m", &mib, "-c", &most, "-p", &port];
                if rustix::process::getuid().is_root() {
                    words.extend(["-u", "root"]);
                }
                words.iter().map(ToString::to_string).collect()
            }
        };
        let directory = (self == Server::Redis).then(|| directory.as_os_str().to_owned());
        let program = OsString::from(self.program());
        std::iter::once(program).chain(words.into_iter().map(OsString::from)).chain(directory).collect()
    }
}

/// A server that runs, its keys, and where it is.
pub struct Serving {
    pub one: Contestant,
    pub setup: ServerSetup,
}

/// Where a server is.
pub struct ServerSetup {
    pub under: Under,
    pub port: u16,
    pub keys: Keys,
    pub directory: std::path::PathBuf,
}

/// Starts a server, and fills it.
///
/// # Errors
/// Interrupted. What else fails is noted, and there is none.
pub fn begin(contest: &mut Contest, server: Server, under: Under, forks: bool) -> Result<Option<Serving>> {
    let directory = contest.new_directory()?;
    let port = free_port()?;
    let words = server.words(&contest.args, port, &directory);
    let Some(mut one) = contest.begin_server(under, &words, forks)? else { return Ok(None) };
    let keys = Keys::new(contest.args.data_bytes() / u64::from(VALUE_BYTES), VALUE_BYTES);
    let bar = progress::waiting(&format!("{}, {under}: it is filled", server.name()));
    let answers = wait_for(contest, &mut one, port);
    let interrupt = contest.experiment.interrupt.clone();
    let filled = contest.ask(&mut one, |_| {
        answers?;
        keys.fill(server.protocol(), port, || interrupt.check())
    });
    bar.finish_and_clear();
    Ok(filled?.map(|()| Serving { one, setup: ServerSetup { under, port, keys, directory } }))
}

/// A port that nobody has just now.
///
/// # Errors
/// The kernel's.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// Waits until a server takes connections.
fn wait_for(contest: &Contest, one: &mut Contestant, port: u16) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        contest.experiment.interrupt.check()?;
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        if !one.poll_alive() {
            bail!("the server ended by itself");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the server takes no connection for {PATIENCE:?}")
}

/// Has a server run under each configuration, and clients ask it.
///
/// # Errors
/// Interrupted.
pub fn run(contest: &mut Contest, server: Server, rows: &mut Vec<Row>) -> Result<()> {
    if !server.find(contest)? {
        return Ok(());
    }
    let (mut all, mut setups) = (Vec::new(), Vec::new());
    for under in contest.under.clone() {
        if let Some(serving) = begin(contest, server, under, false)? {
            all.push(serving.one);
            setups.push(serving.setup);
        }
    }
    let first = rows.len();
    let taken = turns(contest, server, (&mut all, &setups), rows);
    let interrupt = contest.experiment.interrupt.clone();
    for (one, setup) in all.iter_mut().zip(&setups) {
        let check = |_: &mut _| setup.keys.check(server.protocol(), setup.port, CHECKED, || interrupt.check());
        // Where the run was interrupted, that is already reported.
        let _ = contest.ask(one, check);
        contest.end(one);
        let _ = std::fs::remove_dir_all(&setup.directory);
    }
    note_peaks(rows, first, &all);
    taken
}

fn turns(
    contest: &mut Contest,
    server: Server,
    (all, setups): (&mut [Contestant], &[ServerSetup]),
    rows: &mut Vec<Row>,
) -> Result<()> {
    let args = contest.args.clone();
    let steps = args.gets.len() * all.len() * (args.rounds() as usize + 1);
    let bar = progress::steps(server.name(), steps as u64);
    for (at, gets) in args.gets.iter().copied().enumerate() {
        let workload = format!("{} {gets}/{}", server.name(), 100 - gets);
        let work = Work { workload, threads: args.clients as usize, share_of_fio: false };
        let mut ask = |contest: &mut Contest, one: &mut Contestant, round: u32| {
            let Some(setup) = setups.iter().find(|setup| setup.under == one.under) else { return Ok(None) };
            let plan = Plan {
                protocol: server.protocol(),
                port: setup.port,
                clients: args.clients,
                gets,
                zipf: ZIPF,
                time: time_of(args.round_time(), round),
                seed: args.output.seed.wrapping_add((at as u64) << 32 | u64::from(round) << 16),
            };
            contest.turn(one, |_| setup.keys.run(&plan, &AtomicBool::new(false)))
        };
        take_turns(contest, all, &work, &bar, &mut ask, rows)?;
    }
    bar.finish_and_clear();
    Ok(())
}
