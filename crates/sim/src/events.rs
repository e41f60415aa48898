//! The events that are still to happen, in their order.
//!
//! The order is (time, rank, sequence): what happens at one time happens by rank, and what has the
//! same rank in the order in which it was scheduled. So the order is total, and a run repeats.
//!
//! ```text
//!   heap of keys, four children each        payloads
//!   [time | rank, sequence | slot] ------>  [ .. | payload | .. ]
//! ```
//!
//! Keys are small and move; payloads stay in their slots, which are used again. Four children
//! halve the height of the heap, and one node's children share a cache line or two.
//!
//! Invariants ([`Events::check`]): no key comes before its parent, each key has a payload, and each
//! slot is in use or free.

use crate::time::Time;

/// Children of a node.
const CHILDREN: usize = 4;
/// Bits of the order that the sequence has. The rank has the 8 above.
const SEQUENCE_BITS: u32 = 56;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    time: Time,
    order: u64,
    slot: u32,
}

/// The events that are still to happen, and the time of the last one that happened.
#[derive(Debug)]
pub struct Events<P> {
    heap: Vec<Key>,
    payloads: Vec<Option<P>>,
    free: Vec<u32>,
    sequence: u64,
    now: Time,
    happened: u64,
}

impl<P> Default for Events<P> {
    fn default() -> Self {
        Events { heap: Vec::new(), payloads: Vec::new(), free: Vec::new(), sequence: 0, now: Time::ZERO, happened: 0 }
    }
}

impl<P> Events<P> {
    /// No event is to happen, and the time is zero.
    pub fn new() -> Events<P> {
        Events::default()
    }
    /// The time of the last event that happened.
    pub fn now(&self) -> Time {
        self.now
    }
    /// How many are still to happen.
    pub fn len(&self) -> usize {
        self.heap.len()
    }
    /// Whether none is still to happen.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
    /// How many have happened.
    pub fn happened(&self) -> u64 {
        self.happened
    }
    /// The time of the next one.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.first().map(|key| key.time)
    }

    /// Adds an event. Of those at one time, the lower rank happens first.
    ///
    /// # Panics
    /// If its time has passed.
    pub fn schedule(&mut self, at: Time, rank: u8, payload: P) {
        assert!(at >= self.now, "an event at {at}, and it is {}", self.now);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.payloads[slot as usize] = Some(payload);
                slot
            }
            None => {
                self.payloads.push(Some(payload));
                u32::try_from(self.payloads.len() - 1).expect("fewer than 2^32 events are pending")
            }
        };
        self.sequence += 1;
        let order = (u64::from(rank) << SEQUENCE_BITS) | self.sequence;
        self.heap.push(Key { time: at, order, slot });
        self.rise(self.heap.len() - 1);
    }
    /// Adds an event of rank 0, at this time from now.
    pub fn after(&mut self, span: Time, payload: P) {
        self.schedule(self.now + span, 0, payload);
    }

    /// Takes the next event. Its time is now.
    #[expect(clippy::should_implement_trait, reason = "events are scheduled between two calls, as in no iterator")]
    pub fn next(&mut self) -> Option<P> {
        let first = *self.heap.first()?;
        let last = self.heap.pop().expect("there is a first");
        if !self.heap.is_empty() {
            self.heap[0] = last;
            self.sink(0);
        }
        self.free.push(first.slot);
        self.now = first.time;
        self.happened += 1;
        self.payloads[first.slot as usize].take()
    }

    fn rise(&mut self, mut at: usize) {
        let key = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.heap[parent] <= key {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = key;
    }

    fn sink(&mut self, mut at: usize) {
        let key = self.heap[at];
        loop {
            let first = at * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { break };
            if key <= self.heap[least] {
                break;
            }
            self.heap[at] = self.heap[least];
            at = least;
        }
        self.heap[at] = key;
    }

    /// Asserts the invariants. Takes time in proportion to the events.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        for (at, key) in self.heap.iter().enumerate() {
            assert!(at == 0 || self.heap[(at - 1) / CHILDREN] <= *key, "a key before its parent");
            assert!(self.payloads[key.slot as usize].is_some(), "a key without its payload");
            assert!(key.time >= self.now, "an event in the past");
        }
        assert_eq!(self.heap.len() + self.free.len(), self.payloads.len(), "each slot is in use or free");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::random::Random;

    #[test]
    fn events_happen_by_time_then_rank_then_sequence() {
        let mut events = Events::new();
        for (at, rank, name) in [(5, 0, "c"), (3, 1, "b"), (3, 0, "a"), (5, 0, "d"), (5, 0, "e")] {
            events.schedule(Time(at), rank, name);
        }
        let order: Vec<_> = std::iter::from_fn(|| events.next()).collect();
        assert_eq!(order, ["a", "b", "c", "d", "e"]);
        assert_eq!((events.now(), events.happened()), (Time(5), 5));
    }
    #[test]
    fn the_order_is_that_of_a_sorted_map() {
        let mut random = Random::new(3, 0);
        let (mut events, mut model) = (Events::new(), BTreeMap::new());
        for number in 0..20_000u64 {
            if random.below(5) < 3 {
                let (at, rank) = (events.now() + Time(random.below(50)), random.below(3) as u8);
                events.schedule(at, rank, number);
                model.insert((at, rank, number), number);
            } else {
                let expected = model.pop_first().map(|(_, number)| number);
                assert_eq!(events.next(), expected);
            }
            if number.is_multiple_of(1000) {
                events.check();
            }
        }
        assert!(events.happened() > 5000 && !events.is_empty());
    }
    #[test]
    #[should_panic(expected = "an event at")]
    fn the_past_is_refused() {
        let mut events = Events::new();
        events.schedule(Time(5), 0, ());
        events.next();
        events.schedule(Time(4), 0, ());
    }
}
