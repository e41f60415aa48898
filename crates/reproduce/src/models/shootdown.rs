//! TLB shootdowns: one core takes the lock, interrupts all others, and waits for their answers.
//!
//! ```text
//!   waits for the lock | interrupt to core 1 | to core 2 | .. | to core n-1 | the last one answers
//! ```
//!
//! An interrupted core answers after `interrupt`, in which it does nothing else. One shootdown at a
//! time holds the lock, as each changes the page table. So the latency is linear in the cores, and
//! grows further where cores wait for each other.

use fulgurite_sim::{Random, Time};

/// Cores that shoot down translations in turn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shootdown {
    /// How many.
    pub cores: u32,
    /// To send one interrupt.
    pub send: Time,
    /// From an interrupt until its core has answered.
    pub interrupt: Time,
    /// Mean computing of a core between two shootdowns of its own.
    pub between: Time,
    /// Shootdowns of all cores together.
    pub count: u64,
    /// Of the spans between them.
    pub seed: u64,
}

impl Shootdown {
    /// With the lock at hand: the closed form.
    pub fn alone(&self) -> Time {
        self.send * u64::from(self.cores.saturating_sub(1)) + self.interrupt
    }
    /// The mean latency, with the wait for the lock.
    pub fn latency(&self) -> Time {
        let mut random = Random::new(self.seed, 11);
        // When each core comes to its next one.
        let mut due: Vec<Time> = (0..self.cores).map(|_| random.exponential(self.between)).collect();
        let (mut free, mut sum) = (Time::ZERO, Time::ZERO);
        for _ in 0..self.count {
            let at = (0..due.len()).min_by_key(|at| (due[*at], *at)).expect("there is a core");
            let begins = due[at].max(free);
            free = begins + self.alone();
            sum += free - due[at];
            // The others lose the time of an interrupt, unless they wait for the lock.
            due.iter_mut().filter(|due| **due > begins).for_each(|due| *due += self.interrupt);
            due[at] = free + random.exponential(self.between);
        }
        Time(sum.0 / self.count.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIXTEEN: Shootdown = Shootdown {
        cores: 16,
        send: Time::ns(200),
        interrupt: Time::us(1),
        between: Time::us(100_000),
        count: 5_000,
        seed: 1,
    };

    #[test]
    fn seldom_enough_each_is_alone() {
        assert_eq!(SIXTEEN.alone(), Time::us(4));
        let ratio = SIXTEEN.latency().as_us() / SIXTEEN.alone().as_us();
        assert!((1.0..1.02).contains(&ratio), "{ratio}");
    }
    #[test]
    fn cores_wait_for_each_other() {
        // More than the lock can take: all but one wait at all times.
        let flood = Shootdown { between: Time::us(1), ..SIXTEEN };
        let ratio = flood.latency().as_us() / flood.alone().as_us();
        assert!((15.0..16.1).contains(&ratio), "{ratio}");
    }
}
