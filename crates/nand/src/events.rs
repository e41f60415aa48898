//! What will happen when: events in the order of their times, and of equals in the order in which
//! they were made.
//!
//! Most things take the same time whenever they happen: a read from the array, a program, the
//! transfer of a page. So what is made for a kind of event mostly comes after all of that kind that
//! was made before, and a first-come queue for each kind is in order by itself. To add is to
//! append, and the next event is the earliest of a few heads, which is known until it is taken.
//! What does not come after the last of its kind goes to a heap.
//!
//! Invariants: each queue ascends, and `heads` has the first of each. `next` is the smallest of all
//! heads and the heap's top.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Something that happens to a plane or a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventKind {
    /// A plane's array has finished a read.
    ReadDone,
    /// A plane's array has finished a program.
    ProgramDone,
    /// A plane's array has finished an erase.
    EraseDone,
    /// What a plane is to program has arrived in its register.
    Loaded,
    /// What a plane has read has left its register.
    Sent,
    /// A channel's bus is free.
    BusFree,
}

impl EventKind {
    const ALL: [EventKind; 6] = [
        EventKind::ReadDone,
        EventKind::ProgramDone,
        EventKind::EraseDone,
        EventKind::Loaded,
        EventKind::Sent,
        EventKind::BusFree,
    ];
}

/// An event as a number that is smaller the earlier it comes: 64 bits of time, 42 of its number, 3
/// of what, 16 of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Event(u128);

const TO_BITS: u32 = 16;
const WHAT_BITS: u32 = 3;
const MADE_BITS: u32 = 64 - TO_BITS - WHAT_BITS;

impl Event {
    /// Later than all that happens.
    const NEVER: Event = Event(u128::MAX);

    fn time(self) -> u64 {
        (self.0 >> 64) as u64
    }
    fn what(self) -> EventKind {
        EventKind::ALL[(self.0 >> TO_BITS) as usize % (1 << WHAT_BITS)]
    }
    fn to(self) -> u32 {
        self.0 as u32 & ((1 << TO_BITS) - 1)
    }
}

/// All that will happen.
#[derive(Debug)]
pub(crate) struct Events {
    queues: [VecDeque<Event>; EventKind::ALL.len()],
    /// The first of each queue, side by side.
    heads: [Event; EventKind::ALL.len()],
    heap: BinaryHeap<Reverse<Event>>,
    made: u64,
    /// The earliest.
    next: Event,
}

impl Events {
    pub fn with_capacity(capacity: usize) -> Events {
        // Where there are very many planes, few of them work at a time. The queues grow to what is
        // needed.
        let capacity = capacity.min(512);
        Events {
            queues: std::array::from_fn(|_| VecDeque::with_capacity(capacity)),
            heads: [Event::NEVER; EventKind::ALL.len()],
            heap: BinaryHeap::with_capacity(capacity),
            made: 0,
            next: Event::NEVER,
        }
    }
    /// DRAM that it takes.
    pub fn bytes(&self) -> usize {
        (self.queues.iter().map(VecDeque::capacity).sum::<usize>() + self.heap.capacity()) * size_of::<Event>()
    }
    /// That will happen to a plane or a channel, the number of which has 16 bits.
    pub fn at(&mut self, time: u64, what: EventKind, to: u32) {
        debug_assert!(to < 1 << TO_BITS, "there are no more planes than that");
        if self.next == Event::NEVER {
            // Numbers only tell which of those that are there was made first.
            self.made = 0;
        }
        self.made = (self.made + 1) % (1 << MADE_BITS);
        let low = self.made << (TO_BITS + WHAT_BITS) | (what as u64) << TO_BITS | u64::from(to);
        let event = Event(u128::from(time) << 64 | u128::from(low));
        let (queue, head) = (&mut self.queues[what as usize], &mut self.heads[what as usize]);
        if queue.back().is_none_or(|last| *last < event) {
            *head = event.min(*head);
            queue.push_back(event);
        } else {
            self.heap.push(Reverse(event));
        }
        self.next = self.next.min(event);
    }
    pub fn next_time(&self) -> Option<u64> {
        (self.next != Event::NEVER).then(|| self.next.time())
    }
    /// The next event that is not later than that.
    pub fn pop_until(&mut self, limit: u64) -> Option<(u64, EventKind, u32)> {
        let event = self.next;
        if event == Event::NEVER || event.time() > limit {
            return None;
        }
        let (queue, head) = (&mut self.queues[event.what() as usize], &mut self.heads[event.what() as usize]);
        if *head == event {
            queue.pop_front();
            *head = queue.front().copied().unwrap_or(Event::NEVER);
        } else {
            self.heap.pop();
        }
        let top = self.heap.peek().map_or(Event::NEVER, |top| top.0);
        self.next = self.heads.into_iter().fold(top, Event::min);
        Some((event.time(), event.what(), event.to()))
    }
}

const _: () = assert!(crate::geometry::PLANES_MAX <= 1 << TO_BITS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn events_come_by_time_and_then_as_they_were_made() {
        let (mut random, mut events) = (Random::of(3, 0), Events::with_capacity(4));
        let mut model: Vec<(u64, u64, EventKind, u32)> = Vec::new();
        let (mut now, mut made) = (0, 0);
        for _ in 0..20_000 {
            if random.next() % 5 < 3 && model.len() < 40 {
                let what = EventKind::ALL[(random.next() % 6) as usize];
                // Few times, so that many are equal, of one kind, all after the same time.
                let after = if what == EventKind::Sent { random.next() % 4 } else { 2 * what as u64 };
                let to = (random.next() % (1 << TO_BITS)) as u32;
                made += 1;
                events.at(now + after, what, to);
                model.push((now + after, made, what, to));
            } else {
                let limit = now + random.next() % 3;
                let first = model.iter().enumerate().min_by_key(|(_, event)| (event.0, event.1)).map(|(i, _)| i);
                let expected = first.filter(|i| model[*i].0 <= limit).map(|i| model.remove(i));
                assert_eq!(events.pop_until(limit), expected.map(|(time, _, what, to)| (time, what, to)));
                now = expected.map_or(limit, |event| event.0.max(now));
            }
            assert_eq!(events.next_time(), model.iter().map(|event| event.0).min());
        }
    }
}
