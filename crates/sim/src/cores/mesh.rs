//! The mesh between tiles: a link in each direction between neighbours, which carries one message
//! at a time.
//!
//! ```text
//!   0 <=> 1 <=> 2      a message from 3 to 2 goes along its row, then along its column:
//!   ||    ||    ||     3 -> 4 -> 5 -> 2
//!   3 <=> 4 <=> 5
//! ```
//!
//! A message takes each link for as many cycles as its bytes need. Its head is at the next tile a
//! hop later, and a message has come when its head has: a core needs the first word of a block.
//!
//! Messages are not sent in the order of time, as cores run ahead and answers are known before they
//! are there. So a link knows for which times it is taken, and a message takes it when it is first
//! free for long enough.
//!
//! Invariant: no link carries two messages at a time ([`Mesh::check`]).

use std::collections::VecDeque;

use super::system::CoreParts;
use crate::planted::Planted;
use crate::time::Time;

/// Messages of a link that are remembered. Those that came before are over when the next ones are
/// sent.
const KEPT: usize = 64;
/// Links that leave a tile: to the right, left, down and up.
const SIDES: usize = 4;

/// Tiles in rows, with links between neighbours.
#[derive(Clone, Debug)]
pub struct Mesh {
    row: u32,
    tiles: u32,
    hop: Time,
    cycle: Time,
    /// Bytes that a link carries in a cycle. 0: any number, in no time.
    link: u64,
    /// When each link is taken, in order.
    links: Vec<VecDeque<(Time, Time)>>,
    counted: Counted,
    planted: Planted,
}

/// What messages came to.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Cycles of all links together.
    carried: u64,
    messages: u64,
    waited: Time,
}

impl Mesh {
    /// A mesh of `tiles` tiles, on which nothing is sent yet.
    pub fn new(parts: &CoreParts, tiles: u32, planted: Planted) -> Mesh {
        // The last row may not be full.
        let all = tiles.next_multiple_of(parts.row) as usize * SIDES;
        let (row, hop, cycle, link) = (parts.row, parts.cycle * parts.hop, parts.cycle, parts.link);
        let links = vec![VecDeque::new(); all];
        Mesh { row, tiles, hop, cycle, link, links, counted: Counted::default(), planted }
    }
    /// How many tiles there are, and how many in a row.
    pub fn tiles(&self) -> (u32, u32) {
        (self.tiles, self.row)
    }
    /// The side on which a message leaves a tile, and the tile where it is then.
    fn step(&self, at: u32, to: u32) -> (usize, u32) {
        let (column, wanted) = (at % self.row, to % self.row);
        if column < wanted && at + 1 < self.tiles {
            (0, at + 1)
        } else if column > wanted {
            (1, at - 1)
        } else if at / self.row < to / self.row {
            (2, at + self.row)
        } else {
            (3, at - self.row)
        }
    }
    /// A message of `bytes` bytes leaves a tile at a time. Returns when it is at another one.
    pub fn sends(&mut self, from: u32, to: u32, bytes: u64, mut at: Time) -> Time {
        let cycles = if self.link == 0 { 0 } else { bytes.div_ceil(self.link) };
        let (mut tile, takes) = (from, self.cycle * cycles);
        self.counted.messages += u64::from(from != to);
        while tile != to {
            let (side, next) = self.step(tile, to);
            if cycles > 0 && self.planted != Planted::FreeLinks {
                let begins = take(&mut self.links[tile as usize * SIDES + side], at, takes);
                self.counted.waited += begins - at;
                at = begins;
            }
            self.counted.carried += cycles;
            (at, tile) = (at + self.hop, next);
        }
        at
    }
    /// The time of a message that waits for no link.
    pub fn path_time(&self, from: u32, to: u32) -> Time {
        let row = self.row;
        self.hop * u64::from((from % row).abs_diff(to % row) + (from / row).abs_diff(to / row))
    }
    /// Links in both directions.
    fn links(&self) -> u64 {
        let right = (1..self.tiles).filter(|tile| tile % self.row > 0).count();
        2 * (right as u64 + u64::from(self.tiles.saturating_sub(self.row)))
    }
    /// The share of their time that links are busy, of this time since the counts were cleared.
    /// What L1s drop counts as if all of it were written. None: there is one tile.
    pub fn busy(&self, span: Time) -> Option<f64> {
        let links = self.links();
        (links > 0).then(|| (self.cycle * self.counted.carried).as_s() / (links as f64 * span.as_s()))
    }
    /// What a message waits for links on average, in nanoseconds. None: there was no message.
    pub fn wait_ns(&self) -> Option<f64> {
        let Counted { messages, waited, .. } = self.counted;
        (messages > 0).then(|| waited.as_ns() / messages as f64)
    }
    /// Forgets counts.
    pub fn clear(&mut self) {
        self.counted = Counted::default();
    }
    /// Checks that no link carries two messages at a time.
    ///
    /// # Panics
    /// When one does.
    pub fn check(&self) {
        for taken in &self.links {
            let in_order = |(a, b): (&(Time, Time), &(Time, Time))| a.1 <= b.0;
            assert!(taken.iter().zip(taken.iter().skip(1)).all(in_order), "{taken:?}");
        }
    }
}

/// Takes a link for a time, when it is first free for that time from `at` on. Returns when.
fn take(taken: &mut VecDeque<(Time, Time)>, at: Time, takes: Time) -> Time {
    let mut place = taken.partition_point(|(_, ends)| *ends <= at);
    let mut begins = at;
    while let Some((from, to)) = taken.get(place)
        && begins + takes > *from
    {
        begins = begins.max(*to);
        place += 1;
    }
    taken.insert(place, (begins, begins + takes));
    if taken.len() > KEPT {
        taken.pop_front();
    }
    begins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A hop of three cycles of 1 ns, links of 16 bytes a cycle.
    fn mesh(tiles: u32, row: u32) -> Mesh {
        let links = vec![VecDeque::new(); tiles.next_multiple_of(row) as usize * SIDES];
        let (hop, cycle) = (Time::ns(3), Time::ns(1));
        Mesh { row, tiles, hop, cycle, link: 16, links, counted: Counted::default(), planted: Planted::None }
    }

    #[test]
    fn a_message_alone_takes_its_hops() {
        for (tiles, row) in [(16, 4), (5, 3), (1, 1), (7, 2)] {
            let mut mesh = mesh(tiles, row);
            for (from, to) in (0..tiles).flat_map(|from| (0..tiles).map(move |to| (from, to))) {
                let sent = Time::us(u64::from(from * tiles + to));
                let way = mesh.path_time(from, to);
                assert_eq!(mesh.sends(from, to, 72, sent), sent + way, "{from} to {to} of {tiles}");
            }
            mesh.check();
        }
    }
    #[test]
    fn messages_wait_for_a_link_that_is_taken() {
        let mut mesh = mesh(16, 4);
        // 72 bytes are five cycles. The second one is as long behind. Another direction is free.
        assert_eq!(mesh.sends(0, 2, 72, Time::ns(10)), Time::ns(16));
        assert_eq!(mesh.sends(0, 2, 72, Time::ns(10)), Time::ns(21));
        assert_eq!(mesh.sends(2, 0, 72, Time::ns(10)), Time::ns(16));
        // A third one takes the second link only, and waits there for both.
        assert_eq!(mesh.sends(1, 2, 8, Time::ns(14)), Time::ns(26));
        // One that was sent earlier passes before them, if it fits.
        assert_eq!(mesh.sends(0, 1, 72, Time::ns(4)), Time::ns(7));
        assert_eq!(mesh.sends(0, 1, 72, Time::ns(6)), Time::ns(23));
        assert_eq!(mesh.wait_ns(), Some((5.0 + 9.0 + 14.0) / 6.0));
        mesh.check();
    }
    #[test]
    fn no_link_carries_two_at_a_time() {
        let (mut mesh, mut random) = (mesh(9, 3), Random::new(1, 0));
        for number in 0..20_000 {
            let at = Time::ns(number * 2 + random.below(60));
            let (from, to) = (random.below(9) as u32, random.below(9) as u32);
            let came = mesh.sends(from, to, 8 + 64 * random.below(2), at);
            assert!(came >= at);
            mesh.check();
        }
        // 24 links, a message each 2 ns, of 3 cycles and 16 / 9 hops on average.
        let (busy, theory) = (mesh.busy(Time::us(40)).unwrap(), 3.0 * 16.0 / 9.0 / 2.0 / 24.0);
        assert!((busy / theory - 1.0).abs() < 0.05, "{busy} and not {theory}");
        assert!(mesh.wait_ns().unwrap() > 0.1);
    }
}
