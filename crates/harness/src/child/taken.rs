//! Processor time that other work took from the measured threads of this process: the time that
//! each was runnable and waited for a core.
//!
//! It is the second number of `/proc/PID/task/TID/schedstat`, in nanoseconds (sched_info). What a
//! hypervisor takes is not in it.

use std::collections::HashMap;
use std::fs;

/// Names of the threads that spin on a core of their own: workers, and threads that play a device.
const SPINNING: [&str; 3] = ["fulgurite-", "flash-device", "device"];

/// Nanoseconds that each thread has waited so far, by its number.
#[derive(Clone, Debug, Default)]
pub struct Waits(HashMap<u64, u64>);

impl Waits {
    /// The waits of the threads with a core of their own. Empty where the kernel does not count.
    pub fn of_spinning_threads() -> Waits {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let spinning = tasks.filter(|task| {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            spins(name.trim_end())
        });
        Waits(spinning.filter_map(|task| wait_of(&task.path())).collect())
    }
    pub fn of_this_thread() -> Waits {
        Waits(wait_of("/proc/thread-self".as_ref()).into_iter().collect())
    }
    /// The longest wait of a thread since `before`. None where no thread is in both.
    pub fn longest_since(&self, before: &Waits) -> Option<u64> {
        self.0.iter().filter_map(|(thread, ns)| Some(ns.saturating_sub(*before.0.get(thread)?))).max()
    }
}

fn spins(name: &str) -> bool {
    let numbered = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    SPINNING.iter().any(|spinning| match name.strip_prefix(spinning) {
        Some("") => !spinning.ends_with('-'),
        Some(rest) => spinning.ends_with('-') && numbered(rest),
        None => false,
    })
}

/// A thread's number and its wait.
fn wait_of(directory: &std::path::Path) -> Option<(u64, u64)> {
    let thread = fs::canonicalize(directory).ok()?.file_name()?.to_str()?.parse().ok()?;
    let schedstat = fs::read_to_string(directory.join("schedstat")).ok()?;
    Some((thread, schedstat.split_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_sys::{Clock, affinity};

    #[test]
    fn workers_and_devices_spin_and_nothing_else() {
        for (name, is_one) in [
            ("fulgurite-0", true),
            ("fulgurite-12", true),
            ("flash-device", true),
            ("device", true),
            ("fulgurite-watch", false),
            ("device-accept", false),
            ("fulgurite-", false),
            ("fulgurite", false),
        ] {
            assert_eq!(spins(name), is_one, "{name}");
        }
    }
    #[test]
    fn two_threads_on_one_core_take_it_from_each_other() {
        let core = affinity::cores()[0];
        let spin = move || {
            affinity::pin_to(&[core]).unwrap();
            let before = Waits::of_this_thread();
            Clock::get().spin(60_000_000);
            Waits::of_this_thread().longest_since(&before)
        };
        let (one, other) = (std::thread::spawn(spin), std::thread::spawn(spin));
        let (one, other) = (one.join().unwrap(), other.join().unwrap());
        // Spinning is by the clock: of about 60 ms each thread had about half.
        let Some((one, other)) = one.zip(other) else { return };
        assert!(one + other > 20_000_000, "{one} and {other} ns");
    }
    #[test]
    fn a_thread_that_was_not_there_before_does_not_count() {
        let (before, after) = (Waits([(1, 5), (2, 5)].into()), Waits([(2, 9), (3, 900)].into()));
        assert_eq!(after.longest_since(&before), Some(4));
        assert_eq!(Waits::default().longest_since(&before), None);
    }
}
