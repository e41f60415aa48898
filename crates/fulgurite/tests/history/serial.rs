//! Whether a history of transactions is serializable, and in the order of real time. It is if there
//! is an order of all of them, in which one that ended before another began comes first, and in
//! which each read finds what was written last before it.
//!
//! A transaction reads what it writes, and every written value is written once: it is the number of
//! its transaction. So the versions of a key are a chain, and nothing is left to be guessed. Each
//! transaction comes after the writer of what it read, and before the one that overwrote that
//! (Adya's direct serialization graph: Adya, Liskov and O'Neil, "Generalized Isolation Level
//! Definitions", ICDE 2000). The history is serializable if and only if these edges have no circle.
//! Real time adds a chain of moments.

use std::collections::{BTreeMap, HashMap};

/// What a key holds before anything was written.
pub const INITIAL: u64 = 0;

/// A transaction that has committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Its number, which is what it writes. None has [`INITIAL`].
    pub number: u64,
    /// Keys, and what it found there before it wrote.
    pub reads: Vec<(u64, u64)>,
    /// Some of the keys that it read.
    pub writes: Vec<u64>,
    /// Not later than its begin.
    pub begun: u64,
    /// Not earlier than its end.
    pub ended: u64,
}

/// Why a history is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A transaction found a value that no transaction which committed has written there.
    NeverWritten { reader: u64, key: u64, value: u64 },
    /// Two transactions overwrote the same value: the update of one is lost.
    LostUpdate { first: u64, second: u64, key: u64 },
    /// These cannot be brought into an order.
    Circle { among: Vec<u64> },
}

/// Decides.
pub fn serializable(history: &[Committed]) -> Result<(), Violation> {
    let index: HashMap<u64, usize> = history.iter().enumerate().map(|(i, t)| (t.number, i)).collect();
    // The transaction that overwrote a value of a key.
    let mut overwritten: HashMap<(u64, u64), usize> = HashMap::new();
    for (i, transaction) in history.iter().enumerate() {
        for &(key, value) in &transaction.reads {
            let written = index.get(&value).is_some_and(|writer| history[*writer].writes.contains(&key));
            if value != INITIAL && !written {
                return Err(Violation::NeverWritten { reader: transaction.number, key, value });
            }
            if transaction.writes.contains(&key)
                && let Some(first) = overwritten.insert((key, value), i)
            {
                let first = history[first].number;
                return Err(Violation::LostUpdate { first, second: transaction.number, key });
            }
        }
    }
    // Behind the transactions, a moment for each of their ends.
    let mut ends: Vec<u64> = history.iter().map(|t| t.ended).collect();
    ends.sort_unstable();
    ends.dedup();
    let moment = |end: u64| history.len() + ends.partition_point(|&other| other < end);
    let mut edges: Vec<Vec<usize>> = vec![Vec::new(); history.len() + ends.len()];
    (1..ends.len()).for_each(|end| edges[history.len() + end - 1].push(history.len() + end));
    for (i, transaction) in history.iter().enumerate() {
        edges[i].push(moment(transaction.ended));
        let before = ends.partition_point(|&end| end < transaction.begun);
        if before > 0 {
            edges[history.len() + before - 1].push(i);
        }
        for (key, value) in &transaction.reads {
            if let Some(writer) = index.get(value) {
                edges[*writer].push(i);
            }
            if let Some(next) = overwritten.get(&(*key, *value)).filter(|next| **next != i) {
                edges[i].push(*next);
            }
        }
    }
    let mut incoming = vec![0u32; edges.len()];
    edges.iter().flatten().for_each(|to| incoming[*to] += 1);
    let mut free: Vec<usize> = (0..edges.len()).filter(|i| incoming[*i] == 0).collect();
    let mut left: BTreeMap<usize, ()> = (0..edges.len()).map(|i| (i, ())).collect();
    while let Some(i) = free.pop() {
        left.remove(&i);
        for &to in &edges[i] {
            incoming[to] -= 1;
            if incoming[to] == 0 {
                free.push(to);
            }
        }
    }
    let among: Vec<u64> = left.into_keys().filter_map(|i| history.get(i)).map(|t| t.number).take(10).collect();
    if among.is_empty() { Ok(()) } else { Err(Violation::Circle { among }) }
}
