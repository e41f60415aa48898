//! Whether a history of one key is one that a register, or a counter, can have had. It can if there
//! is an order of its operations, each at some moment between its call and its return, in which
//! every read finds what was written last.
//!
//! For a register whose writes all have values of their own, that is decided in O(n log n): Gibbons
//! & Korach, "Testing Shared Memories" (SIAM Journal on Computing 26, 1997). A write and the reads
//! that found its value are a *cluster*, and are neighbours in any order that will do. From the
//! first return of a cluster to its last call is its *zone*. A forward zone is a time in which the
//! register certainly had this value. A backward zone (the last call comes before the first return)
//! has a moment in it at which the whole cluster fits. So two forward zones must not overlap, a
//! backward one must not be within a forward one, and no read returns before its write is called.
//! That is all.
//!
//! For a counter, the values are the order: reading them in turn decides.
//!
//! The method that tries all orders instead of analysing histories in this manner is in `brute.rs`.
//! The two must agree.

use std::fmt;

/// What an operation did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// It made this the value; of a counter, it found one less.
    Write,
    /// It found this value.
    Read,
}

/// One operation on one key. Stamps are of one clock, and above 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub kind: Kind,
    pub value: u64,
    /// Not later than the call.
    pub invoked: u64,
    /// Not earlier than the return; [`NEVER`] for a write of which nobody knows whether it will
    /// happen.
    pub responded: u64,
}

/// The operation has not returned, or not said whether it was done.
pub const NEVER: u64 = u64::MAX;

/// What a key holds before anything was written. No write has this value.
pub const INITIAL: u64 = 0;

/// From the first return to the last call of the operations on one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    pub value: u64,
    first_return: u64,
    last_call: u64,
}

impl Zone {
    /// Whether something of this one returned before something of the other was called.
    fn is_partly_before(&self, other: &Zone) -> bool {
        self.first_return < other.last_call
    }
    fn is_forward(&self) -> bool {
        self.first_return < self.last_call
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Zone { value, first_return, last_call } = self;
        write!(f, "{value:#x} (first return {first_return}, last call {last_call})")
    }
}

/// Why there is no such order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    #[error("{value:#x} was found by a read that began at {invoked}, and nobody wrote it")]
    NeverWritten { value: u64, invoked: u64 },
    #[error("{value:#x} was found by a read that ended at {read}, before its write began at {written}")]
    FromTheFuture { value: u64, read: u64, written: u64 },
    #[error("{value:#x} was written twice: an update is lost")]
    WrittenTwice { value: u64 },
    #[error("{0} is in part before and in part after {1}")]
    Entangled(Zone, Zone),
    #[error(
        "{value:#x} had been reached by an operation that returned at {responded}, and one on what comes before it began only at {invoked}"
    )]
    Backwards { value: u64, invoked: u64, responded: u64 },
}

impl Violation {
    /// The values that it is about.
    pub fn values(&self) -> [u64; 2] {
        match *self {
            Violation::NeverWritten { value, .. }
            | Violation::FromTheFuture { value, .. }
            | Violation::WrittenTwice { value }
            | Violation::Backwards { value, .. } => [value; 2],
            Violation::Entangled(a, b) => [a.value, b.value],
        }
    }
}

/// Whether a register can have had this history, in any order given. Each value is written at most
/// once, and never [`INITIAL`].
pub fn register(history: &mut [Operation]) -> Result<(), Violation> {
    // Clusters side by side, the write at the head.
    history.sort_unstable_by_key(|op| (op.value, op.kind));
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for cluster in history.chunk_by(|a, b| a.value == b.value) {
        match zone(cluster)? {
            Some(zone) if zone.is_forward() => forward.push(zone),
            Some(zone) => backward.push(zone),
            None => {}
        }
    }
    forward.sort_unstable_by_key(|zone| zone.first_return);
    for pair in forward.windows(2) {
        if pair[1].is_partly_before(&pair[0]) {
            return Err(Violation::Entangled(pair[0], pair[1]));
        }
    }
    for inner in backward {
        // Forward zones do not overlap, so that only the last one that begins before it may hold
        // it.
        let before = forward.partition_point(|zone| zone.is_partly_before(&inner));
        if let Some(outer) = forward[..before].last().filter(|outer| inner.is_partly_before(outer)) {
            return Err(Violation::Entangled(*outer, inner));
        }
    }
    Ok(())
}

/// The zone of the operations on one value, the write at the head. None for a write that nobody has
/// seen, and may never come.
fn zone(cluster: &[Operation]) -> Result<Option<Zone>, Violation> {
    let value = cluster[0].value;
    assert!(
        cluster.iter().all(|op| 0 < op.invoked && op.invoked <= op.responded),
        "stamps of {value:#x} make no sense"
    );
    let (mut first_return, mut last_call) = (NEVER, 0);
    if value == INITIAL {
        assert!(cluster[0].kind == Kind::Read, "the first value is written");
        first_return = 0;
    } else if cluster[0].kind == Kind::Read {
        return Err(Violation::NeverWritten { value, invoked: cluster[0].invoked });
    }
    let written = if value == INITIAL { 0 } else { cluster[0].invoked };
    for (i, op) in cluster.iter().enumerate() {
        if op.kind == Kind::Write && i > 0 {
            return Err(Violation::WrittenTwice { value });
        }
        if op.responded < written {
            return Err(Violation::FromTheFuture { value, read: op.responded, written });
        }
        first_return = first_return.min(op.responded);
        last_call = last_call.max(op.invoked);
    }
    Ok((first_return < NEVER).then_some(Zone { value, first_return, last_call }))
}

/// Whether a counter that begins at 0 can have had this history, in any order given. Every write is
/// there and has ended.
pub fn counter(history: &mut [Operation]) -> Result<(), Violation> {
    history.sort_unstable_by_key(|op| (op.value, op.kind, op.invoked));
    // The value so far, and the last call of all that is on it or on an earlier one.
    let (mut value, mut last_call) = (INITIAL, 0);
    for same in history.chunk_by(|a, b| (a.value, a.kind) == (b.value, b.kind)) {
        let op = &same[0];
        match op.kind {
            Kind::Write if op.value != value + 1 => {
                return Err(Violation::NeverWritten { value: op.value - 1, invoked: op.invoked });
            }
            Kind::Write if same.len() > 1 => return Err(Violation::WrittenTwice { value: op.value }),
            Kind::Write => value = op.value,
            Kind::Read if op.value != value => {
                return Err(Violation::NeverWritten { value: op.value, invoked: op.invoked });
            }
            Kind::Read => {}
        }
        if let Some(early) = same.iter().find(|op| op.responded < last_call) {
            let (value, responded) = (early.value, early.responded);
            return Err(Violation::Backwards { value, invoked: last_call, responded });
        }
        last_call = same.iter().map(|op| op.invoked).fold(last_call, u64::max);
    }
    Ok(())
}

/// How many reads of a history overlap a write, so that there is more than one right answer.
pub fn overlapping(history: &[Operation]) -> u64 {
    let writes = || history.iter().filter(|op| op.kind == Kind::Write);
    let mut calls: Vec<u64> = writes().map(|op| op.invoked).collect();
    let mut returns: Vec<u64> = writes().map(|op| op.responded).collect();
    calls.sort_unstable();
    returns.sort_unstable();
    let overlaps = |read: &&Operation| {
        let called = calls.partition_point(|call| *call <= read.responded);
        let returned = returns.partition_point(|at| *at < read.invoked);
        called > returned
    };
    history.iter().filter(|op| op.kind == Kind::Read).filter(overlaps).count() as u64
}
