//! Goal: heat gives the degrees that plain counters would. Method: random writes to the heat and to
//! counters in a vector that fade in the same order. All degrees are compared after each.

use fulgurite_policy::Heat;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_same_degrees_as_plain_counters(things in 1..40u32, touches in proptest::collection::vec(any::<u32>(), 0..2000)) {
        let mut heat = Heat::new(things);
        let mut plain = vec![0u32; things as usize];
        let mut pair = 0;
        for (i, thing) in touches.into_iter().map(|t| t % things).enumerate() {
            heat.touch(thing);
            plain[thing as usize] = (plain[thing as usize] + 1).min(15);
            if i % 2 == 1 {
                plain.iter_mut().skip(2 * pair).take(2).for_each(|c| *c /= 2);
                pair = (pair + 1) % (things as usize).div_ceil(2);
            }
            for (thing, count) in plain.iter().enumerate() {
                let degree = (0..).find(|d| *count < 1 << d).unwrap();
                prop_assert_eq!(heat.degree(thing as u32), degree);
            }
        }
    }
}
