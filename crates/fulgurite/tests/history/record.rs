//! What jobs note of what they did: stamps, values that nobody else writes, and contents that show
//! when they are torn.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::time::Instant;

use super::check::{INITIAL, Kind, Operation};
pub use fulgurite_testkit::Random;

/// Where stamps come from.
#[derive(Debug)]
pub enum Stamps {
    /// One number for all, counted up at each call and return. No two are equal, and nothing is
    /// between an operation and its stamps; but counting is a full barrier for the processor,
    /// behind which a store that came too late may have been in time.
    Counted(AtomicU64),
    /// The system's clock, which is read without a barrier on what was stored. A store may be seen
    /// by others when it has left its processor, some hundred nanoseconds after the instruction; so
    /// an operation is taken to be [`SLACK_NS`] longer on either side.
    Clock(Instant),
}

/// Far more than a store takes to leave a processor that runs; one that stops running for an
/// interrupt lets go of its stores.
const SLACK_NS: u64 = 1_000;

impl Stamps {
    pub fn counted() -> Stamps {
        Stamps::Counted(AtomicU64::new(1))
    }
    pub fn clock() -> Stamps {
        Stamps::Clock(Instant::now())
    }
    /// Before the call.
    pub fn invoked(&self) -> u64 {
        let stamp = match self {
            Stamps::Counted(count) => count.fetch_add(1, Ordering::SeqCst),
            // Not less the slack, but all others more: no stamp is below 1.
            Stamps::Clock(begin) => begin.elapsed().as_nanos() as u64 + 1,
        };
        // The compiler must not move the operation to the wrong side; the processor may, but for
        // less than the slack.
        compiler_fence(Ordering::SeqCst);
        stamp
    }
    /// After the return.
    pub fn responded(&self) -> u64 {
        compiler_fence(Ordering::SeqCst);
        match self {
            Stamps::Counted(count) => count.fetch_add(1, Ordering::SeqCst),
            Stamps::Clock(begin) => begin.elapsed().as_nanos() as u64 + 1 + 2 * SLACK_NS,
        }
    }
}

/// An operation, and the key that it was on.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub key: u32,
    pub op: Operation,
}

/// A value that is written once: its writer, its key, and which of its writes.
pub fn value(key: u32, job: u64, sequence: u64) -> u64 {
    u64::from(key + 1) << 44 | job << 32 | sequence
}

/// The key that a value was written to; none for what was there before.
pub fn key_of(value: u64) -> Option<u32> {
    (value != INITIAL).then(|| ((value >> 44) as u32).wrapping_sub(1))
}

/// Word `i` of contents that stand for `value`: each word depends on the value, and no word is like
/// another.
fn word(value: u64, i: usize) -> u64 {
    value.rotate_left(i as u32) ^ (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Fills a subpage with what stands for `value`.
pub fn fill(value: u64, bytes: &mut [u8]) {
    for (i, bytes) in bytes.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(value, i).to_le_bytes());
    }
}

/// The value that a subpage stands for; zeros stand for what was there before.
///
/// # Errors
/// Where it is torn, in words.
pub fn value_of(bytes: &[u8]) -> Result<u64, String> {
    let words = || bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
    let value = words().next().expect("contents are not empty");
    let expected = |i| if value == INITIAL { 0 } else { word(value, i) };
    match words().enumerate().find(|(i, found)| *found != expected(*i)) {
        None => Ok(value),
        Some((i, found)) => {
            Err(format!("torn: begins as {value:#x}, and at byte {} has {found:#x}, not {:#x}", 8 * i, expected(i)))
        }
    }
}

/// What a job has noted.
#[derive(Debug, Default)]
pub struct Log {
    pub events: Vec<Event>,
    /// Operations that the medium failed; they have done nothing, but for those in `unfinished`.
    pub failed: u64,
    /// Values of writes over two subpages that failed: the first one may have got it.
    pub unfinished: Vec<u64>,
    /// Reads of two subpages that found two values.
    pub unequal: Vec<[u64; 2]>,
    /// What no order of operations explains: torn contents, contents of another key.
    pub wrong: Vec<String>,
}

impl Log {
    pub fn note(&mut self, key: u32, kind: Kind, value: u64, (invoked, responded): (u64, u64)) {
        self.events.push(Event { key, op: Operation { kind, value, invoked, responded } });
    }
    /// Adds another's.
    pub fn append(&mut self, mut other: Log) {
        self.events.append(&mut other.events);
        self.failed += other.failed;
        self.unfinished.append(&mut other.unfinished);
        self.unequal.append(&mut other.unequal);
        self.wrong.append(&mut other.wrong);
    }
}
