//! What a test has the kernel say, for results by their number.

use crate::Op;

/// Results from this one on, before that one, are replaced.
#[derive(Debug, Default)]
pub(super) struct Nth {
    pub plan: Option<Plan>,
    pub seen: u64,
    pub hit: u64,
}
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub from: u64,
    pub until: u64,
    pub only_flushes: bool,
    pub says: i32,
}

impl Nth {
    /// Whether anything is replaced: then pauses are left out, as the clock is not what is tested.
    pub fn has_plan(&self) -> bool {
        self.plan.is_some()
    }
    /// What the kernel is made to have said. No operation: a run of several.
    pub fn say(&mut self, result: i32, op: Option<Op>) -> i32 {
        let Some(plan) = self.plan else { return result };
        if plan.only_flushes && op != Some(Op::Flush) {
            return result;
        }
        let number = self.seen;
        self.seen += 1;
        // A flush moves nothing.
        if !(plan.from..plan.until).contains(&number) || (op == Some(Op::Flush) && plan.says >= 0) {
            return result;
        }
        self.hit += 1;
        plan.says
    }
}
