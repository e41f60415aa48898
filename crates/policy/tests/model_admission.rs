//! Goal: jobs are turned away when the oldest wait has been above the target for a whole interval,
//! or when an overload returns within an interval of the last refusal, and never otherwise. Clocks
//! that stand still or go back a little break nothing.
//! Method: random calls on the policy and on a model that keeps the whole history and reads the
//! answer off it. Times and waits are of the size of target and interval, so that every comparison
//! is met from both sides and with equality.

use fulgurite_policy::{Admission, AdmissionPolicy, Overloaded};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// One call, and what came of it.
struct Call {
    now_ns: u64,
    above: bool,
    refused: bool,
}

/// Whether to refuse, by the whole history.
fn refuses(history: &[Call], now_ns: u64, above: bool, interval_ns: u64) -> bool {
    let ago = |then_ns: u64| now_ns.saturating_sub(then_ns);
    // The first of the unbroken row of calls above the target that this one ends.
    let row = history.iter().rev().take_while(|call| call.above).last();
    let standing = ago(row.map_or(now_ns, |call| call.now_ns)) >= interval_ns;
    let refused = history.iter().rev().find(|call| call.refused);
    above && (standing || refused.is_some_and(|call| ago(call.now_ns) < interval_ns))
}

/// (time that passes, or goes back, the oldest wait)
fn call() -> impl Strategy<Value = (i64, u64)> {
    let passes = prop_oneof![6 => 0_i64..12, 2 => 20_i64..60, 1 => 90_i64..110, 1 => 300_i64..400, 1 => -5_i64..0];
    let wait = prop_oneof![4 => 0_u64..25, 2 => Just(10), 2 => Just(11), 1 => Just(u64::MAX)];
    (passes, wait)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn as_the_history_says(
        target_ns in prop_oneof![Just(0_u64), Just(10), Just(u64::MAX)],
        interval_ns in prop_oneof![Just(0_u64), 1_u64..40, Just(100), Just(u64::MAX)],
        start_ns in prop_oneof![Just(0_u64), Just(1 << 40), Just(u64::MAX - 1_000)],
        calls in prop::collection::vec(call(), 1..3_000),
    ) {
        let mut admission = Admission::new(AdmissionPolicy::QueueDelay { target_ns, interval_ns });
        let mut unlimited = Admission::new(AdmissionPolicy::Unlimited);
        let (mut history, mut now_ns) = (Vec::new(), start_ns);
        for (passes, wait_ns) in calls {
            now_ns = now_ns.saturating_add_signed(passes);
            let above = wait_ns > target_ns;
            let refused = refuses(&history, now_ns, above, interval_ns);
            let expected = if refused { Err(wait_ns) } else { Ok(()) };
            let found = admission.admit(now_ns, wait_ns).map_err(|Overloaded { wait_ns, .. }| wait_ns);
            prop_assert_eq!(found, expected, "at {} with a wait of {}", now_ns, wait_ns);
            prop_assert_eq!(unlimited.admit(now_ns, wait_ns), Ok(()));
            history.push(Call { now_ns, above, refused });
        }
    }

    /// What the policy is for: a burst that ends within an interval costs no job anything, however
    /// the calls fall.
    #[test]
    fn a_burst_within_an_interval_passes(
        gaps in prop::collection::vec(0_u64..10, 1..300),
        waits in prop::collection::vec(0_u64..1_000, 300),
    ) {
        let interval_ns = 1 + gaps.iter().sum::<u64>();
        let mut admission = Admission::new(AdmissionPolicy::QueueDelay { target_ns: 10, interval_ns });
        let mut now_ns = 0;
        for (gap, wait_ns) in gaps.into_iter().zip(waits) {
            now_ns += gap;
            prop_assert_eq!(admission.admit(now_ns, wait_ns), Ok(()));
        }
    }
}
