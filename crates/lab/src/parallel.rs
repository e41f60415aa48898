//! Work in numbered pieces on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use fulgurite_term::interrupt::Interrupt;

/// Runs `code` for each of 0..`count`. Returns the results in their order, and why not all are
/// there: the first failure, or an interruption. What was under way at an interruption is left
/// out, as it may have stopped in the middle.
pub fn run<T: Send>(
    threads: usize,
    count: usize,
    interrupt: &Interrupt,
    code: impl Fn(usize) -> Result<T> + Sync,
) -> (Vec<T>, Result<()>) {
    let (next, made, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(None));
    let work = || {
        while !interrupt.asked() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            match code(number) {
                Ok(_) if interrupt.asked() => return,
                Ok(one) => made.lock().expect("nobody panics with it").push((number, one)),
                Err(error) => {
                    failed.lock().expect("nobody panics with it").get_or_insert(error);
                    // The others end, too.
                    next.store(count, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(work);
        }
    });
    let mut made = made.into_inner().expect("nobody panics with it");
    made.sort_by_key(|(number, _)| *number);
    let failed = failed.into_inner().expect("nobody panics with it");
    (made.into_iter().map(|(_, one)| one).collect(), failed.map_or_else(|| interrupt.check(), Err))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_a_failure_ends_it() {
        let interrupt = Interrupt::default();
        let (all, ended) = run(3, 100, &interrupt, Ok);
        assert!(all.into_iter().eq(0..100) && ended.is_ok());
        let (some, ended) = run(2, 1000, &interrupt, |i| if i == 5 { anyhow::bail!("five") } else { Ok(i) });
        assert!(some.len() >= 5 && !some.contains(&5) && ended.unwrap_err().to_string() == "five");
    }
}
