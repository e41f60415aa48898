//! BGSAVE of redis while a client writes: what is saved is the state at its begin.
//!
//! Method: take redis' own digest of all its data before the save, and the digest of a second
//! server that reads the file by itself. Both must be equal.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fulgurite_format::format_bytes;
use serde::Serialize;

use super::client::Plan;
use super::contest::{Contest, Outcome};
use super::protocol::{Connection, Protocol};
use super::servers::{Server, ServerSetup, ZIPF, begin, free_port};
use crate::values::Under;
use fulgurite_harness::rows::Percentiles;
use fulgurite_term::interrupt::{Interrupt, go_on};
use fulgurite_term::report::table::{Columns, number, or_dash};

/// A save that takes longer has hung.
const PATIENCE: Duration = Duration::from_secs(1800);

/// A save.
#[derive(Clone, Debug, Serialize)]
pub struct Save {
    pub config: Under,
    /// What swap reads at a fault, as a power of two of pages. None for the others.
    pub page_cluster: Option<u32>,
    pub data_bytes: u64,
    pub file_bytes: u64,
    /// From the request until redis says that the file is whole.
    pub seconds: f64,
    /// How long redis held its own thread for the fork.
    pub fork_ms: f64,
    /// Writes of the client meanwhile, and how long they took.
    pub writes: u64,
    pub writes_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    /// Highest use of the cgroup, the child's included.
    pub peak_bytes: Option<u64>,
    pub cap_bytes: Option<u64>,
    /// The file held the state at the begin.
    pub equal: bool,
}

impl Save {
    /// What it ran under, with what swap reads at a fault.
    fn shown(&self) -> String {
        let pages = self.page_cluster.map_or_else(String::new, |cluster| format!(", {} a fault", 1u32 << cluster));
        format!("{}{pages}", self.config)
    }
}

/// Has redis save under each configuration, one after the other.
///
/// # Errors
/// Interrupted.
pub fn run(contest: &mut Contest, saves: &mut Vec<Save>) -> Result<()> {
    if !Server::Redis.find(contest)? {
        return Ok(());
    }
    let mut turns = contest.under.clone().into_iter().flat_map(|under| match under {
        Under::Swap => CLUSTERS.map(|cluster| (under, Some(cluster))).to_vec(),
        _ => vec![(under, None)],
    });
    let saved = turns.try_for_each(|(under, cluster)| {
        if let Some(value) = cluster {
            contest.set_page_cluster(value)?;
        }
        save(contest, under, cluster, saves)
    });
    if contest.under.contains(&Under::Swap) {
        contest.set_page_cluster(CLUSTERS[0])?;
    }
    saved
}

/// Powers of two of pages that swap reads at a fault: one page, which is best for the writes
/// meanwhile, and the kernel's default, as a save reads in order.
const CLUSTERS: [u32; 2] = [0, 3];

fn save(contest: &mut Contest, under: Under, page_cluster: Option<u32>, saves: &mut Vec<Save>) -> Result<()> {
    let Some(mut serving) = begin(contest, Server::Redis, under, true)? else { return Ok(()) };
    let (interrupt, args) = (contest.experiment.interrupt.clone(), contest.args.clone());
    let plan = Plan {
        protocol: Protocol::Resp,
        port: serving.setup.port,
        clients: 1,
        gets: 0,
        zipf: ZIPF,
        time: PATIENCE,
        seed: args.output.seed,
    };
    let setup = &serving.setup;
    let saved = contest.ask(&mut serving.one, |_| saved(setup, &plan, &interrupt))?;
    contest.end(&mut serving.one);
    if let Some(saved) = saved.filter(|_| !serving.one.left_out) {
        let compared = reread(setup, &interrupt);
        let failed = |error| contest.experiment.failed.push(format!("save, {under}: {error:#}"));
        let Some((digest, file_bytes)) = go_on(compared, failed)? else { return Ok(()) };
        let equal = digest == saved.digest;
        if !equal {
            contest
                .experiment
                .failed
                .push(format!("save, {under}: the file is not the state at the begin of the save"));
        }
        let mut latency = Percentiles::default();
        latency.add(&saved.outcome.latency);
        saves.push(Save {
            config: under,
            page_cluster,
            data_bytes: args.data_bytes(),
            file_bytes,
            seconds: saved.time.as_secs_f64(),
            fork_ms: saved.fork_ms,
            writes: saved.outcome.operations,
            writes_per_s: saved.outcome.operations as f64 / saved.time.as_secs_f64().max(1e-9),
            p50_us: latency.us(50.0),
            p99_us: latency.us(99.0),
            max_us: latency.us(100.0),
            peak_bytes: serving.one.one.group.peak_bytes,
            cap_bytes: serving.one.one.group.limit_bytes,
            equal,
        });
    }
    let _ = std::fs::remove_dir_all(&setup.directory);
    Ok(())
}

/// What a save did, as far as its server tells.
struct Saved {
    digest: String,
    time: Duration,
    fork_ms: f64,
    outcome: Outcome,
}

fn digest(to: &mut Connection) -> Result<String> {
    let digest = to.ask(&[b"DEBUG", b"DIGEST"])?;
    // A status of 40 digits.
    ensure!(digest.len() == 41 && digest.starts_with('+'), "redis tells no digest: {digest}");
    Ok(digest)
}

fn saved(setup: &ServerSetup, plan: &Plan, interrupt: &Interrupt) -> Result<Saved> {
    let mut to = Connection::open(Protocol::Resp, setup.port)?;
    let before = digest(&mut to)?;
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let answer = to.ask(&[b"BGSAVE"])?;
    ensure!(answer.starts_with("+Background saving started"), "redis does not save: {answer}");
    thread::scope(|scope| {
        let writes = scope.spawn(|| setup.keys.run(plan, &over));
        let ended = wait_for_end(&mut to, begun, interrupt);
        over.store(true, Ordering::Relaxed);
        let outcome = writes.join().ok().context("the client panicked")?;
        let (time, fork_ms) = ended?;
        Ok(Saved { digest: before, time, fork_ms, outcome: outcome? })
    })
}

fn wait_for_end(to: &mut Connection, begun: Instant, interrupt: &Interrupt) -> Result<(Duration, f64)> {
    loop {
        interrupt.check()?;
        let info = to.ask(&[b"INFO", b"persistence"])?;
        let time = begun.elapsed();
        if info.contains("rdb_bgsave_in_progress:0") {
            ensure!(info.contains("rdb_last_bgsave_status:ok"), "redis could not save: {info}");
            let stats = to.ask(&[b"INFO", b"stats"])?;
            let fork =
                stats.lines().find_map(|line| line.strip_prefix("latest_fork_usec:")?.trim().parse::<f64>().ok());
            return Ok((time, fork.unwrap_or(0.0) / 1000.0));
        }
        ensure!(time < PATIENCE, "redis does not end its save");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A server that is ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The digest of what is in the file, by a server in enough DRAM, and the file's length.
fn reread(setup: &ServerSetup, interrupt: &Interrupt) -> Result<(String, u64)> {
    let file = setup.directory.join("dump.rdb");
    let file_bytes = std::fs::metadata(&file).with_context(|| format!("{} is not there", file.display()))?.len();
    let port = free_port()?;
    let server = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "local", "--port", &port.to_string()])
        .arg("--dir")
        .arg(&setup.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut server = Ended(server.context("redis-server cannot be started")?);
    let begun = Instant::now();
    loop {
        interrupt.check()?;
        ensure!(matches!(server.0.try_wait(), Ok(None)), "redis-server ends when it reads the file");
        ensure!(begun.elapsed() < PATIENCE, "redis-server does not end to read the file");
        // It answers before it has read its file.
        if let Ok(mut to) = Connection::open(Protocol::Resp, port)
            && to.ask(&[b"PING"])? == "+PONG"
        {
            return Ok((digest(&mut to)?, file_bytes));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The saves for people.
pub fn table(saves: &[Save]) -> String {
    Columns::of(saves)
        .left("BGSAVE of redis", |save: &Save| save.shown())
        .right("file", |save| format_bytes(save.file_bytes))
        .right("seconds", |save| format!("{:.2}", save.seconds))
        .right("fork ms", |save| number(save.fork_ms))
        .right("writes/s", |save| number(save.writes_per_s))
        .right("p50 µs", |save| number(save.p50_us))
        .right("p99 µs", |save| number(save.p99_us))
        .right("longest µs", |save| number(save.max_us))
        .right("peak", |save| or_dash(save.peak_bytes, format_bytes))
        .right("cap", |save| or_dash(save.cap_bytes, format_bytes))
        .right("is the state at its begin", |save| if save.equal { "yes" } else { "NO" })
        .table()
}
