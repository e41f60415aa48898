//! One seed after the other, for as long as there is time.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::common::{Random, seed, trials};

/// No seed takes so long on any machine: it hangs.
const FOREVER: Duration = Duration::from_secs(120);

/// Runs it with one seed after the other for `FULGURITE_FUZZ_SECONDS`, 2 unless set. The first seed
/// is the seed of the run, and a failing one can be given as `FULGURITE_SEED`. Reports how often it
/// did `what`.
pub fn fuzz(what: &str, once: fn(u64) -> u64) {
    let seconds = std::env::var("FULGURITE_FUZZ_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let (begun, mut seed, mut rounds, mut did) = (Instant::now(), seed(), 0, 0);
    while rounds == 0 || begun.elapsed() < Duration::from_secs(seconds) {
        println!("seed {seed}");
        let (says, said) = channel();
        let thread = std::thread::spawn(move || {
            // Whether anybody hears of it is not this thread's affair.
            let _ = says.send(once(seed));
        });
        match said.recv_timeout(FOREVER) {
            Ok(count) => did += count,
            Err(RecvTimeoutError::Timeout) => panic!("seed {seed} has not come to its end in {FOREVER:?}"),
            Err(RecvTimeoutError::Disconnected) => {
                std::panic::resume_unwind(thread.join().expect_err("it has said nothing"))
            }
        }
        (seed, rounds) = (Random(seed).next(), rounds + 1);
    }
    println!("{rounds} rounds");
    trials::figure(12, what, did);
}
