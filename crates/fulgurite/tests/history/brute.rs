//! The question of `check.rs`, answered by trying all orders: for histories of a few operations,
//! and to say whether the other answer is right.

use std::collections::HashSet;

use super::check::{INITIAL, Kind, NEVER, Operation};

/// What the key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    Register,
    Counter,
}

impl Model {
    /// The value behind an operation that comes when the key has `value`; none where it cannot come
    /// then.
    fn step(self, value: u64, op: &Operation) -> Option<u64> {
        let fits = match (op.kind, self) {
            (Kind::Read, _) => value == op.value,
            (Kind::Write, Model::Counter) => value + 1 == op.value,
            (Kind::Write, Model::Register) => true,
        };
        fits.then_some(op.value)
    }
}

/// Whether there is an order. Of at most 16 operations.
pub fn possible(history: &[Operation], model: Model) -> bool {
    assert!(history.len() <= 16, "trying all orders of {} operations takes for ever", history.len());
    let all = (1 << history.len()) - 1;
    go_on(history, model, all, INITIAL, &mut HashSet::new())
}

fn go_on(history: &[Operation], model: Model, left: u32, value: u64, tried: &mut HashSet<(u32, u64)>) -> bool {
    let is_left = |i: &usize| left & (1 << i) != 0;
    let mut remaining = (0..history.len()).filter(is_left);
    // An operation that never returned may come later, or not at all.
    if remaining.all(|i| history[i].responded == NEVER) {
        return true;
    }
    if !tried.insert((left, value)) {
        return false;
    }
    let first_return = (0..history.len()).filter(is_left).map(|i| history[i].responded).min().unwrap_or(NEVER);
    (0..history.len()).filter(is_left).filter(|i| history[*i].invoked <= first_return).any(|i| {
        let next = model.step(value, &history[i]);
        next.is_some_and(|next| go_on(history, model, left & !(1 << i), next, tried))
    })
}
