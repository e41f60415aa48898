//! Time, with a seam: from the processor's counter, or simulated.
//!
//! The counter takes a few nanoseconds a reading, against about 20-40 for `clock_gettime`. A
//! simulated clock stands still until its [`SimulatedTime`] is moved, or something sleeps by it.
//! The crates above read time, sleep and wait for a time through a [`Clock`] that they were made
//! with, and in no other way. `crates/house/tests/conform_layers.rs` checks that.
//!
//! Invariants: a clock never goes back. A simulated one starts above zero, so that 0 may stand for
//! "not yet".

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::gate::nap;
use crate::{Notifier, arch};

/// What a simulated clock says first.
const SIMULATED_START_NS: u64 = 1_000_000_000;
/// What waits for longer than this may sleep. Below, waking up takes as long as the wait.
const SLEEP_NS: u64 = 100_000;
/// How much of a wait is not slept, because the kernel's timers come so late.
const SLACK_NS: u64 = 60_000;
/// What a round of a loop that polls takes of simulated time.
const ROUND: Duration = Duration::from_nanos(100);
/// How long a wait for another thread under a simulated clock takes before it checks the time
/// again.
const CHECK: Duration = Duration::from_millis(1);

/// Tells the time in nanoseconds: the processor's, or a simulated one.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Nanoseconds per tick of the processor's counter, as a 32.32 fixed-point number.
    ns_per_tick_q32: u64,
    /// None: the counter is what counts.
    simulated: Option<Arc<Simulated>>,
}

/// Moves the clocks that were made with it. See [`Clock::simulated`].
#[derive(Debug)]
pub struct SimulatedTime(Arc<Simulated>);

#[derive(Debug)]
struct Simulated {
    now_ns: AtomicU64,
    /// What the wall clock says more than that. Wraps.
    wall_ahead_ns: AtomicU64,
}

impl Simulated {
    /// Out of line, so that a reading of the processor's clock costs one branch that is never
    /// taken.
    #[cold]
    #[inline(never)]
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Acquire)
    }
    fn advance_to(&self, ns: u64) {
        self.now_ns.fetch_max(ns, Ordering::AcqRel);
    }
    fn advance(&self, by: Duration) {
        self.advance_to(self.now_ns().saturating_add(nanos(by)));
    }
}

impl SimulatedTime {
    /// Nanoseconds, as its clocks say.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
    /// Lets the time `by` pass.
    pub fn advance(&self, by: Duration) {
        self.0.advance(by);
    }
    /// Lets time pass up to `ns`. A time that has passed already changes nothing.
    pub fn advance_to(&self, ns: u64) {
        self.0.advance_to(ns);
    }
    /// Sets the wall clock, forward or back, to milliseconds since 1970. It goes on from there as
    /// time passes.
    pub fn set_wall_ms(&self, ms: u64) {
        let ahead = ms.wrapping_mul(1_000_000).wrapping_sub(self.now_ns());
        self.0.wall_ahead_ns.store(ahead, Ordering::Release);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Clock {
    fn default() -> Self {
        Clock::get()
    }
}

impl Clock {
    /// The processor's clock. The first call takes about 10 ms to measure the counter's rate.
    #[must_use]
    pub fn get() -> Clock {
        static RATE: OnceLock<u64> = OnceLock::new();
        let ns_per_tick_q32 = *RATE.get_or_init(|| {
            let (start, start_ticks) = (Instant::now(), arch::ticks());
            std::thread::sleep(Duration::from_millis(10));
            let (end, end_ticks) = (Instant::now(), arch::ticks());
            let ns = (end - start).as_nanos() as f64 / (end_ticks - start_ticks).max(1) as f64;
            (ns * 4_294_967_296.0) as u64
        });
        Clock { ns_per_tick_q32, simulated: None }
    }
    /// A clock that stands still, and what moves it. All clones show the same time.
    ///
    /// What sleeps by it, or waits for nothing but a time, moves it that far. What waits for
    /// another thread does not: the waits of threads for each other take real time and no simulated
    /// one.
    #[must_use]
    pub fn simulated() -> (Clock, SimulatedTime) {
        let (now_ns, wall_ahead_ns) = (AtomicU64::new(SIMULATED_START_NS), AtomicU64::new(0));
        let simulated = Arc::new(Simulated { now_ns, wall_ahead_ns });
        (Clock { ns_per_tick_q32: 0, simulated: Some(simulated.clone()) }, SimulatedTime(simulated))
    }
    /// Nanoseconds since some fixed point before the clock was made.
    #[inline(always)]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match &self.simulated {
            None => self.to_ns(arch::ticks()),
            Some(simulated) => simulated.now_ns(),
        }
    }
    /// Converts a count of the processor's ticks.
    #[inline(always)]
    fn to_ns(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_per_tick_q32)) >> 32) as u64
    }
    /// When the time `time` will have passed. `u64::MAX`, which is never, where that is beyond the
    /// clock's end.
    #[must_use]
    pub fn after(&self, time: Duration) -> u64 {
        self.now_ns().saturating_add(nanos(time))
    }
    /// How long it is until then. Nothing when that time has come.
    #[must_use]
    pub fn until(&self, ns: u64) -> Duration {
        Duration::from_nanos(ns.saturating_sub(self.now_ns()))
    }
    /// How long ago that was.
    #[must_use]
    pub fn since(&self, ns: u64) -> Duration {
        Duration::from_nanos(self.now_ns().saturating_sub(ns))
    }
    /// Time since 1970 by the system's clock, which may be set back. None for a time before that.
    #[must_use]
    pub fn wall(&self) -> Duration {
        match &self.simulated {
            None => std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default(),
            Some(simulated) => {
                let ahead = simulated.wall_ahead_ns.load(Ordering::Acquire);
                Duration::from_nanos(simulated.now_ns().wrapping_add(ahead))
            }
        }
    }
    /// As [`Clock::wall`], in milliseconds.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        u64::try_from(self.wall().as_millis()).unwrap_or(u64::MAX)
    }
    /// Sleeps. Simulated time moves on at once, and other threads get their turn.
    pub fn sleep(&self, time: Duration) {
        match &self.simulated {
            None => nap(time),
            Some(simulated) => {
                simulated.advance(time);
                std::thread::yield_now();
            }
        }
    }
    /// Sleeps until notified or until `timeout`. Returns whether it was notified. Takes the
    /// notification. Simulated time moves on by the time-out at once, unless it was notified,
    /// without a time-out the wait is for another thread.
    pub fn wait(&self, wake: &Notifier, timeout: Option<Duration>) -> bool {
        match (&self.simulated, timeout) {
            (Some(simulated), Some(timeout)) => {
                let notified = wake.take();
                if !notified {
                    simulated.advance(timeout);
                }
                notified
            }
            _ => wake.wait(timeout),
        }
    }
    /// How long to sleep for something that is due at `due_ns`, at most `timeout`. None where it is
    /// so near that to spin is better. The kernel's timers come late, so the last stretch is to be
    /// spun for. By a simulated clock the last stretch is slept, too.
    #[must_use]
    pub fn nap(&self, due_ns: u64, timeout: Option<Duration>) -> Option<Duration> {
        let until = due_ns.saturating_sub(self.now_ns());
        let sleep = match self.simulated {
            Some(_) => until,
            None if until > SLEEP_NS => until - SLACK_NS,
            None => return None,
        };
        let sleep = Duration::from_nanos(sleep);
        Some(timeout.map_or(sleep, |timeout| timeout.min(sleep)))
    }
    /// Receives what another thread sends, waiting at most until `ns`.
    ///
    /// # Errors
    /// As [`Receiver::recv_timeout`].
    pub fn receive_until<T>(&self, from: &Receiver<T>, ns: u64) -> Result<T, RecvTimeoutError> {
        loop {
            let left = self.until(ns);
            let turn = if self.simulated.is_some() { left.min(CHECK) } else { left };
            match from.recv_timeout(turn) {
                Err(RecvTimeoutError::Timeout) if self.now_ns() < ns => {}
                received => return received,
            }
        }
    }
    /// One round of a loop that polls until a time. It takes a little simulated time, so that the
    /// loop ends.
    #[inline]
    pub fn relax(&self) {
        arch::relax();
        if let Some(simulated) = &self.simulated {
            simulated.advance(ROUND);
        }
    }
    /// Computes (spins) for `ns` nanoseconds.
    #[inline]
    pub fn spin(&self, ns: u64) {
        let end = self.now_ns() + ns;
        while self.now_ns() < end {
            self.relax();
        }
    }
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
    fn a_simulated_clock_moves_by_its_handle_and_by_what_sleeps_and_by_nothing_else() {
        let (clock, time) = Clock::simulated();
        let begun = clock.now_ns();
        let hour = Duration::from_secs(3600);
        assert!(begun > 0 && clock.clone().now_ns() == begun);
        time.advance(hour);
        clock.sleep(hour);
        // A round that is polled takes some of it.
        clock.spin(1_000_000);
        clock.sleep(hour - Duration::from_millis(1));
        assert_eq!(clock.since(begun), 3 * hour);
        assert_eq!(clock.until(clock.after(hour)), hour);
        // A time that has passed, and one that never comes.
        time.advance_to(begun);
        assert_eq!(
            (clock.since(begun), clock.until(begun), clock.after(Duration::MAX)),
            (3 * hour, Duration::ZERO, u64::MAX)
        );
        // What is notified has not waited.
        let wake = Notifier::new().unwrap();
        wake.notify();
        assert!(clock.wait(&wake, Some(hour)) && clock.since(begun) == 3 * hour);
        assert!(!clock.wait(&wake, Some(hour)) && clock.since(begun) == 4 * hour);
        // To the nanosecond, also where the processor's clock would leave the rest to be spun for.
        for ns in [0, 1, 10_000_000] {
            assert_eq!(clock.nap(clock.now_ns() + ns, Some(hour)), Some(Duration::from_nanos(ns)));
        }
        assert_eq!(clock.nap(u64::MAX, Some(hour)), Some(hour));
        let real = Clock::get();
        assert_eq!(real.nap(real.now_ns() + SLEEP_NS, None), None);
        let slept = real.nap(real.now_ns() + 100 * SLEEP_NS, None).unwrap();
        assert!(slept > Duration::ZERO && slept <= Duration::from_nanos(100 * SLEEP_NS - SLACK_NS), "{slept:?}");
    }
    #[test]
    fn a_simulated_wait_for_another_thread_ends_by_its_word_or_when_its_time_has_come() {
        let (clock, time) = Clock::simulated();
        let (send, receive) = std::sync::mpsc::channel();
        let deadline = clock.after(Duration::from_secs(3600));
        send.send(7).unwrap();
        assert_eq!(clock.receive_until(&receive, deadline), Ok(7));
        assert_eq!(clock.now_ns() + 3_600_000_000_000, deadline);
        std::thread::scope(|scope| {
            let begun = Instant::now();
            scope.spawn(|| {
                std::thread::sleep(5 * CHECK);
                time.advance_to(deadline);
            });
            assert_eq!(clock.receive_until(&receive, deadline), Err(RecvTimeoutError::Timeout));
            assert!(begun.elapsed() >= 5 * CHECK, "not before its time had come");
        });
        // The processor's clock waits for as long as it says.
        let clock = Clock::get();
        let begun = clock.now_ns();
        assert!(clock.receive_until(&receive, clock.after(Duration::from_millis(5))).is_err());
        assert!(clock.since(begun) >= Duration::from_millis(5));
        drop(send);
        assert_eq!(clock.receive_until(&receive, u64::MAX), Err(RecvTimeoutError::Disconnected));
    }
    #[test]
    fn the_wall_clock_may_be_set_back_and_goes_on_from_there() {
        let (clock, time) = Clock::simulated();
        for set in [1_700_000_000_000, 5] {
            time.set_wall_ms(set);
            assert_eq!(clock.wall_ms(), set);
            time.advance(Duration::from_secs(2));
            assert_eq!(clock.wall_ms(), set + 2000);
        }
        assert!(
            Clock::get().wall() > Duration::from_secs(1_700_000_000),
            "by the system's clock it is later than 2023"
        );
    }
    #[test]
    fn cpu_time_grows() {
        let before = thread_cpu();
        Clock::get().spin(2_000_000);
        assert!(thread_cpu() > before && process_cpu() >= thread_cpu());
    }
}
