//! Which requests of a batch go to the kernel as one: those whose places follow one another.
//!
//! A log gives consecutive places to what is written together, and a disk writes 64 KiB at about
//! the price of 4 KiB. Reads are gathered only on request, because a program reads from anywhere,
//! and the search would cost each read.
//!
//! Invariant: every request of the batch is in exactly one run. Within a run each place is the one
//! before it plus one.

use fulgurite_sys::direct_file::GATHERED_MAX;

/// The most subpages of one request: 256 KiB. Four of these under way saturate a virtual disk, four
/// of 128 KiB do half of it. Larger ones gain nothing, and delay reads behind them.
pub(super) const RUN_MAX: usize = 64;
const _: () = assert!(RUN_MAX <= GATHERED_MAX);

/// Sorts a batch by place and cuts it into runs. Two requests for one place never share one.
pub(super) fn runs<T>(batch: &mut [T], place: impl Fn(&T) -> u32) -> impl Iterator<Item = &[T]> {
    batch.sort_unstable_by_key(&place);
    batch.chunk_by(move |a, b| place(a).checked_add(1) == Some(place(b))).flat_map(|run| run.chunks(RUN_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First place and length of each run.
    fn cut(places: &[u32]) -> Vec<(u32, usize)> {
        let mut batch = places.to_vec();
        runs(&mut batch, |place| *place).map(|run| (run[0], run.len())).collect()
    }

    #[test]
    fn neighbours_meet_whatever_the_order() {
        assert_eq!(cut(&[]), []);
        assert_eq!(cut(&[7]), [(7, 1)]);
        assert_eq!(cut(&[3, 2, 1, 0]), [(0, 4)]);
        assert_eq!(cut(&[10, 20, 11, 21, 5]), [(5, 1), (10, 2), (20, 2)]);
        assert_eq!(cut(&[u32::MAX, 0, u32::MAX - 1]), [(0, 1), (u32::MAX - 1, 2)]);
    }
    #[test]
    fn a_place_that_is_written_twice_is_in_two_runs() {
        assert_eq!(cut(&[4, 5, 4]), [(4, 1), (4, 2)]);
        assert_eq!(cut(&[1, 1, 1]), [(1, 1), (1, 1), (1, 1)]);
    }
    #[test]
    fn a_run_has_an_end() {
        let places: Vec<u32> = (0..2 * RUN_MAX as u32 + 3).rev().collect();
        assert_eq!(cut(&places), [(0, RUN_MAX), (RUN_MAX as u32, RUN_MAX), (2 * RUN_MAX as u32, 3)]);
    }
    #[test]
    fn model_every_write_is_in_one_run() {
        let mut state = fulgurite_testkit::Random(0x9E37_79B9_7F4A_7C15);
        let mut below = |n: u64| state.below(n);
        for round in 0..2000 {
            let (count, range) = (below(100), 1 + below(120));
            let mut batch: Vec<(u32, u64)> = (0..count).map(|i| (below(range) as u32, i)).collect();
            let mut expected = batch.clone();
            let mut seen = Vec::new();
            let (mut neighbours, mut number) = (0, 0);
            for run in runs(&mut batch, |write| write.0) {
                assert!(!run.is_empty() && run.len() <= RUN_MAX, "round {round}");
                assert!(run.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0), "round {round}: {run:?}");
                neighbours += run.len() - 1;
                number += 1;
                seen.extend_from_slice(run);
            }
            assert_eq!(number + neighbours, count as usize);
            seen.sort_unstable();
            expected.sort_unstable();
            assert_eq!(seen, expected, "round {round}");
        }
    }
}
