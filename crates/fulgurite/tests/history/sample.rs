//! Histories that a register or a counter has had, made by playing one, and the same with something
//! changed.

use super::brute::Model;
use super::check::{INITIAL, Kind, NEVER, Operation};
use super::record::Random;

/// A history of `count` operations, each called up to `spread` before and returned up to `spread`
/// after the moment at which it was done; some writes to a register return never.
pub fn played(model: Model, random: &mut Random, count: u64, spread: u64) -> Vec<Operation> {
    let (mut value, mut last, mut now) = (INITIAL, INITIAL, spread);
    let mut history = Vec::new();
    for _ in 0..count {
        now += 1 + random.below(4);
        let write = random.one_in(2);
        if write {
            last += 1;
            // Writes to a register need not be in the order of their values.
            value = if model == Model::Counter { last } else { last.reverse_bits() };
        }
        let lost = write && model == Model::Register && random.one_in(8);
        history.push(Operation {
            kind: if write { Kind::Write } else { Kind::Read },
            value,
            invoked: now - random.below(spread),
            responded: if lost { NEVER } else { now + random.below(spread) },
        });
    }
    history
}

/// Changes an operation: what a read found, or when it was called or returned; of a counter's, also
/// what was written.
pub fn change(history: &mut [Operation], model: Model, random: &mut Random) {
    let other = history[random.below(history.len() as u64) as usize];
    let op = &mut history[random.below(history.len() as u64) as usize];
    match random.below(4) {
        0 if op.responded != NEVER => (op.invoked, op.responded) = (op.invoked + 5, op.responded + 5),
        1 if op.invoked > 5 && op.responded != NEVER => {
            (op.invoked, op.responded) = (op.invoked - 5, op.responded - 5);
        }
        2 if op.responded != NEVER => op.responded = op.responded.min(op.invoked + 1),
        _ if op.kind == Kind::Read => op.value = if random.one_in(4) { INITIAL } else { other.value },
        _ if model == Model::Counter && other.value != INITIAL => op.value = other.value,
        _ => {}
    }
}
