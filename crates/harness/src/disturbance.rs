//! Other work on the cores of a run: it is detected, waited for, and reported.
//!
//! A disturbed round is run again after a quiet moment, as long as the run's patience lasts. Rounds
//! that stay disturbed are counted next to their figure.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::child::protocol::{Batch, Outcome};
use crate::kernel_threads;
use crate::session::{Running, Session};
use crate::values::Config;
use fulgurite_term::interrupt::Interrupt;

/// The share of a round that other work may take from a thread, and so the error of a throughput.
pub const OF_ROUND: f64 = 0.05;
/// The limit where a p99 is asked for, which one request in a hundred decides.
pub const OF_TAIL: f64 = 0.01;
/// `USER_HZ`: the unit of `/proc/stat`, 10 ms on every Linux for x86-64 and aarch64.
const TICK: Duration = Duration::from_millis(10);
/// How long the cores are watched for a quiet moment, and the share that other work may have then.
const POLL_EVERY: Duration = Duration::from_millis(200);
const QUIET: f64 = 0.1;

/// Time that a set of cores has spent so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Spent {
    busy: Duration,
    /// With other guests of the same host, as far as the hypervisor says so.
    stolen: Duration,
}

impl Spent {
    fn of(cores: &[usize]) -> Spent {
        parse(&fs::read_to_string("/proc/stat").unwrap_or_default(), cores)
    }
    fn since(self, before: Spent) -> Spent {
        Spent { busy: self.busy.saturating_sub(before.busy), stolen: self.stolen.saturating_sub(before.stolen) }
    }
}

/// proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
fn parse(stat: &str, cores: &[usize]) -> Spent {
    let mut spent = Spent::default();
    for line in stat.lines() {
        let Some((core, times)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' ')) else { continue };
        if !core.parse().is_ok_and(|core: usize| cores.contains(&core)) {
            continue;
        }
        let ticks: Vec<u32> = times.split_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
        let sum = |fields: &[usize]| fields.iter().filter_map(|field| ticks.get(*field)).sum::<u32>();
        spent.busy += TICK * sum(&[0, 1, 2, 5, 6]);
        spent.stolen += TICK * sum(&[7]);
    }
    spent
}

/// Cores that the threads of a configuration have.
fn cores_of(session: &Session, running: &Running) -> Vec<usize> {
    let setup = running.setup;
    if setup.config.paged_by_kernel() {
        return session.cores.clone();
    }
    let mut cores = session.cores[..setup.threads.min(session.cores.len())].to_vec();
    cores.extend(session.device_core.filter(|_| setup.config.guarded()));
    cores
}

/// Executes a batch. Adds the kernel's own threads, and what was taken from the cores.
pub fn run(session: &Session, running: &mut Running, batch: &Batch) -> Result<Outcome> {
    let cores = cores_of(session, running);
    let before = Spent::of(&cores);
    let (outcome, kernel_threads_ns) = kernel_threads::during(|| running.child.run(batch))?;
    let spent = Spent::of(&cores).since(before);
    let mut outcome = Outcome { kernel_threads_ns, ..outcome };
    outcome.stolen_ns = nanoseconds(spent.stolen);
    if running.setup.config.paged_by_kernel() {
        outcome.taken_ns = Some(by_others(spent.busy, outcome.all_cpu_ns()));
    }
    Ok(outcome)
}

/// Busy time of the cores beyond the process's own. Two coarse ticks do not count.
fn by_others(busy: Duration, own_ns: u64) -> u64 {
    nanoseconds(busy.saturating_sub(2 * TICK)).saturating_sub(own_ns)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The share of a batch that other work took. A late device was kept from its core.
pub fn share(outcome: &Outcome, config: Config, latency: Duration) -> f64 {
    let taken = outcome.taken_ns.unwrap_or(0) + outcome.stolen_ns;
    let share = taken as f64 / outcome.elapsed_ns.max(1) as f64;
    let late =
        config.guarded() && outcome.device_late > 0 && u128::from(outcome.device_lateness_ns) > latency.as_nanos();
    if late { share.max(OF_ROUND * 2.0) } else { share }
}

/// How much a run does about other work.
#[derive(Clone, Debug)]
pub struct Patience {
    repeats: u32,
    waits: Duration,
    interrupt: Interrupt,
    cores: Vec<usize>,
}

impl Patience {
    /// For a run that may repeat `repeats` of its rounds.
    pub fn new(session: &Session, repeats: u32, quick: bool) -> Patience {
        let mut cores = session.cores.clone();
        cores.extend(session.device_core);
        let waits = Duration::from_secs(if quick { 3 } else { 30 });
        Patience { repeats, waits, interrupt: session.experiment.interrupt.clone(), cores }
    }
    /// After a round that was disturbed: whether to run it again. Waits for a quiet moment first.
    pub fn repeats(&mut self, waits: impl FnOnce()) -> Result<bool> {
        if self.repeats == 0 {
            return Ok(false);
        }
        self.repeats -= 1;
        waits();
        let begun = Instant::now();
        while begun.elapsed() < self.waits {
            self.interrupt.check()?;
            let before = Spent::of(&self.cores);
            std::thread::sleep(POLL_EVERY);
            let busy = Spent::of(&self.cores).since(before).busy.as_secs_f64();
            if busy <= POLL_EVERY.as_secs_f64() * self.cores.len() as f64 * QUIET {
                break;
            }
        }
        self.waits = self.waits.saturating_sub(begun.elapsed());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  30 1 2 900 9 1 1 7 0 0\ncpu0 10 1 2 400 5 1 1 3 0 0\ncpu1 20 0 0 500 4 0 0 4 0 0\nintr 5\n";

    #[test]
    fn only_the_cores_of_the_run_count() {
        let ticks = |ticks: u32| TICK * ticks;
        assert_eq!(parse(STAT, &[0]), Spent { busy: ticks(15), stolen: ticks(3) });
        assert_eq!(parse(STAT, &[0, 1]), Spent { busy: ticks(35), stolen: ticks(7) });
        assert_eq!(parse(STAT, &[12]), Spent::default());
        assert_eq!(parse("", &[0]), Spent::default());
    }
    #[test]
    fn what_the_process_used_itself_was_not_taken_from_it() {
        let busy = Duration::from_millis(500);
        assert_eq!(by_others(busy, 480_000_000), 0);
        assert_eq!(by_others(busy, 600_000_000), 0);
        assert_eq!(by_others(busy, 80_000_000), 400_000_000);
    }
    #[test]
    fn a_share_counts_other_tasks_other_guests_and_late_devices() {
        let outcome = |taken_ns, stolen_ns, device_late, device_lateness_ns| Outcome {
            elapsed_ns: 100,
            taken_ns,
            stolen_ns,
            device_late,
            device_lateness_ns,
            ..Outcome::default()
        };
        let share = |outcome| share(&outcome, Config::Fulgurite, Duration::from_nanos(50));
        assert_eq!(share(outcome(None, 0, 0, 0)), 0.0);
        assert_eq!(share(outcome(Some(3), 4, 0, 0)), 0.07);
        assert_eq!(share(outcome(Some(3), 0, 9, 40)), 0.03);
        assert!(share(outcome(Some(3), 0, 9, 60)) > OF_ROUND);
    }
    #[test]
    fn cores_that_spin_are_busy() {
        let core = fulgurite_sys::affinity::cores()[0];
        let spins = std::thread::spawn(move || {
            fulgurite_sys::affinity::pin_to(&[core]).unwrap();
            let before = Spent::of(&[core]);
            fulgurite_sys::Clock::get().spin(200_000_000);
            Spent::of(&[core]).since(before)
        });
        let spent = spins.join().unwrap();
        assert!(spent.busy + spent.stolen >= Duration::from_millis(50), "{spent:?}");
    }
}
