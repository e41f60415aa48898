//! Time from the processor's counter: a few nanoseconds a reading, against about 20-40 for `clock_gettime`.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::arch;

/// Turns ticks of the processor's counter into nanoseconds. Measured once per process, copied freely.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Nanoseconds per tick, as a 32.32 fixed-point number.
    ns_per_tick_q32: u64,
}

impl Clock {
    /// The process's clock; the first call takes about 10 ms to measure the counter's rate.
    #[must_use]
    pub fn get() -> Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| {
            let (start, start_ticks) = (Instant::now(), arch::ticks());
            std::thread::sleep(Duration::from_millis(10));
            let (end, end_ticks) = (Instant::now(), arch::ticks());
            let ns = (end - start).as_nanos() as f64 / (end_ticks - start_ticks).max(1) as f64;
            Clock { ns_per_tick_q32: (ns * 4_294_967_296.0) as u64 }
        })
    }
    /// Nanoseconds since some fixed point before the process started.
    #[inline(always)]
    #[must_use]
    pub fn now_ns(self) -> u64 {
        self.to_ns(arch::ticks())
    }
    /// Converts a count of ticks.
    #[inline(always)]
    #[must_use]
    pub fn to_ns(self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_per_tick_q32)) >> 32) as u64
    }
    /// Computes (spins) for `ns` nanoseconds.
    #[inline]
    pub fn spin(self, ns: u64) {
        let end = self.now_ns() + ns;
        while self.now_ns() < end {
            arch::relax();
        }
    }
}

/// Milliseconds since 1970 by the system's clock, which may be set back; 0 for one before that.
#[must_use]
pub fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// CPU time that the calling thread has used, user and kernel.
#[must_use]
pub fn thread_cpu() -> Duration {
    cpu(rustix::time::ClockId::ThreadCPUTime)
}

/// CPU time that all threads of the process have used, user and kernel.
#[must_use]
pub fn process_cpu() -> Duration {
    cpu(rustix::time::ClockId::ProcessCPUTime)
}

fn cpu(id: rustix::time::ClockId) -> Duration {
    let t = rustix::time::clock_gettime(id);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_the_kernel() {
        let clock = Clock::get();
        let (kernel, ours) = (Instant::now(), clock.now_ns());
        std::thread::sleep(Duration::from_millis(30));
        let (kernel, ours) = (kernel.elapsed().as_nanos() as f64, (clock.now_ns() - ours) as f64);
        assert!((ours / kernel - 1.0).abs() < 0.05, "{ours} ns, the kernel says {kernel}");
    }
    #[test]
    fn cpu_time_grows() {
        let before = thread_cpu();
        Clock::get().spin(2_000_000);
        assert!(thread_cpu() > before && process_cpu() >= thread_cpu());
    }
}
