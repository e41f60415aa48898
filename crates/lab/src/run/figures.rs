//! What a program used, seen from outside: `/proc`, and what `fulgurite run` tells about it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::ChildStderr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

/// How often `fulgurite run` is asked to tell.
pub const FIGURES_EVERY: &str = "50ms";
/// How long to wait for what it prints. It checks figures 50 times a second.
const PATIENCE: Duration = Duration::from_millis(500);

/// A line of `fulgurite run --json`, as far as it is needed here.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Figures {
    pid: u32,
    pub faults: u64,
    /// Faults that read.
    pub reads: u64,
    pub bytes_written: u64,
}

/// The standard error output of a program, which a thread reads.
#[derive(Clone, Debug, Default)]
pub struct FigureReader(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    last: Option<(Instant, Figures)>,
    /// What was no figures, for messages.
    words: String,
}

/// Most bytes of words that are kept.
const WORDS_MAX: usize = 4096;

impl FigureReader {
    /// Begins to read. Children of the process tell figures as well, which are not its own.
    pub fn of(output: ChildStderr, pid: u32) -> FigureReader {
        let reader = FigureReader::default();
        let to = reader.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut state = to.state();
                match serde_json::from_str::<Figures>(&line) {
                    Ok(figures) if figures.pid == pid => state.last = Some((Instant::now(), figures)),
                    Ok(_) => {}
                    Err(_) if state.words.len() + line.len() < WORDS_MAX => {
                        state.words.push_str(line.trim());
                        state.words.push_str("; ");
                    }
                    Err(_) => {}
                }
            }
        });
        reader
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What the program said.
    pub fn words(&self) -> String {
        self.state().words.trim_end_matches("; ").to_owned()
    }
    /// The figures of now, or the last ones when none come.
    fn after(&self, moment: Instant) -> Option<Figures> {
        loop {
            let last = self.state().last;
            match last {
                Some((at, figures)) if at > moment => return Some(figures),
                last if moment.elapsed() > PATIENCE => return last.map(|(_, figures)| figures),
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// Counters, of which only differences mean anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub cpu_ns: u64,
    pub faults: u64,
    /// Reads of the disk that a thread waited for, without what was read ahead.
    pub reads: u64,
    pub written_bytes: u64,
}

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// proc_pid_stat(5): times are in ticks, of which Linux tells programs that a second has 100.
const TICK_NS: u64 = 10_000_000;

impl Counters {
    /// Of a process, until now. With `ours`, of what `fulgurite run` tells.
    pub fn of(pid: u32, reader: &FigureReader, ours: bool) -> Counters {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // proc_pid_stat(5): `majflt` is field 12, `utime` and `stime` are 14 and 15. The first one
        // after the name in parentheses is the third.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| rest.split(' ').collect());
        let field = |number: usize| fields.get(number - 2).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let cpu_ns = (field(14) + field(15)) * TICK_NS;
        if ours {
            let figures = reader.after(Instant::now()).unwrap_or_default();
            let Figures { faults, reads, bytes_written, .. } = figures;
            return Counters { cpu_ns, faults, reads, written_bytes: bytes_written };
        }
        let vm = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let pages =
            |key: &str| -> u64 { vm.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0) };
        let (faults, swapped_out) = (field(12), pages("pswpout "));
        Counters { cpu_ns, faults, reads: faults, written_bytes: swapped_out * PAGE_BYTES }
    }
    /// What was used since `before`.
    pub fn since(self, before: Counters) -> Counters {
        Counters {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            faults: self.faults.saturating_sub(before.faults),
            reads: self.reads.saturating_sub(before.reads),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_computed() {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(40) {
            std::hint::black_box(begun);
        }
        let now = Counters::of(std::process::id(), &FigureReader::default(), false);
        assert!(now.cpu_ns >= 10_000_000, "{now:?}");
        assert_eq!(now.since(now).cpu_ns, 0);
    }
}
