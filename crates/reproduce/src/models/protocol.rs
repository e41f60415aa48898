//! Two parts of the DRAM interface that take no simulated time: conflicts in the buffer's banks,
//! and the orders in which stores may become visible. All else of the device is
//! [`fulgurite_sim::interface`].

use fulgurite_sim::Random;

/// The share of a controller's accesses to a buffer of banks that find their bank taken by the
/// host, which comes first. Each side asks in each cycle with the given probability.
pub fn conflicts(banks: u64, host: f64, controller: f64, cycles: u64, seed: u64) -> f64 {
    let mut random = Random::new(seed, 5);
    let (mut asked, mut refused) = (0_u64, 0_u64);
    for _ in 0..cycles {
        let taken = (random.unit() < host).then(|| random.below(banks));
        if random.unit() < controller {
            asked += 1;
            refused += u64::from(taken == Some(random.below(banks)));
        }
    }
    refused as f64 / asked.max(1) as f64
}

/// A write as stores to the shared memory: the data's words, then the command's. Without a barrier
/// a memory controller may make a later one visible first. Returns in how many of the possible
/// orders the device finds the command and not yet its data.
pub fn stale_orders(data_words: u32, command_words: u32, barrier: bool) -> u64 {
    let words = data_words + command_words;
    let mut stale = 0;
    for set in 0..1_u64 << words {
        // What is visible at one moment.
        let data = (0..data_words).filter(|word| set & 1 << word != 0).count() as u32;
        let command = (data_words..words).filter(|word| set & 1 << word != 0).count() as u32;
        let possible = !barrier || command == 0 || data == data_words;
        stale += u64::from(possible && command == command_words && data < data_words);
    }
    stale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_leaves_no_stale_order() {
        assert_eq!(stale_orders(4, 2, true), 0);
        // The whole command, and any part of the data but all of it.
        assert_eq!(stale_orders(4, 2, false), 15);
    }
    #[test]
    fn conflicts_are_the_hosts_share_of_one_bank() {
        let share = conflicts(8, 0.4, 0.5, 400_000, 1);
        assert!((share / (0.4 / 8.0) - 1.0).abs() < 0.03, "{share}");
    }
}
