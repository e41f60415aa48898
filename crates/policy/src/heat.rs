//! How often things are written, roughly: four bits each, which fade.
//!
//! Data that is overwritten about as often belongs in the same extent of a log: that one then empties by itself, and reclaim has
//! less to copy. Last write times say less than counts do: with Zipf keys one short interval is mostly chance.
//!
//! Fading is part of each count and not a pass of its own: while n things are written n times, each counter is halved once.

/// Counters of writes.
#[derive(Clone, Debug)]
pub struct Heat {
    /// Two counters a byte.
    counters: Box<[u8]>,
    /// The byte that fades next.
    fades: usize,
    /// Writes since the last byte faded.
    since: u32,
}

/// Writes after which a byte of two counters fades.
const FADE_EVERY: u32 = 2;
const MOST: u8 = 15;

impl Heat {
    /// How many degrees there are: 0 for what is new or was not written for long, then one for each doubling.
    pub const DEGREES: usize = 5;

    /// Of so many things, none of them written.
    #[must_use]
    pub fn new(things: u32) -> Heat {
        Heat { counters: vec![0; (things as usize).div_ceil(2)].into(), fades: 0, since: 0 }
    }
    /// Bytes of the counters.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.counters.len()
    }
    /// Where the counter of a thing is, for whoever loads it ahead of [`Heat::degree`].
    ///
    /// # Panics
    /// When there is no such thing.
    #[inline]
    #[must_use]
    pub fn lies_at(&self, thing: u32) -> &u8 {
        &self.counters[thing as usize / 2]
    }
    fn counter(&self, thing: u32) -> u8 {
        (self.counters[thing as usize / 2] >> (thing % 2 * 4)) & MOST
    }
    /// How hot a thing is: 0 to [`Heat::DEGREES`] - 1.
    ///
    /// # Panics
    /// When there is no such thing.
    #[must_use]
    pub fn degree(&self, thing: u32) -> usize {
        self.counter(thing).checked_ilog2().map_or(0, |log| log as usize + 1)
    }
    /// A thing is written.
    ///
    /// # Panics
    /// When there is no such thing.
    pub fn touch(&mut self, thing: u32) {
        if self.counter(thing) < MOST {
            self.counters[thing as usize / 2] += 1 << (thing % 2 * 4);
        }
        self.since += 1;
        if self.since == FADE_EVERY {
            self.since = 0;
            let pair = &mut self.counters[self.fades];
            *pair = (*pair >> 1) & 0x77;
            self.fades = (self.fades + 1) % self.counters.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_double() {
        let mut heat = Heat::new(1000);
        let degrees: Vec<usize> = (0..17)
            .map(|_| {
                heat.touch(900);
                heat.degree(900)
            })
            .collect();
        assert_eq!(degrees, [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]);
        assert_eq!(heat.degree(901), 0);
        assert!(degrees.iter().all(|d| *d < Heat::DEGREES));
    }
    #[test]
    fn what_is_not_written_cools() {
        let mut heat = Heat::new(100);
        (0..8).for_each(|_| heat.touch(40));
        assert_eq!(heat.degree(40), 4);
        // As many writes as things halve each counter once.
        for round in 1..=4 {
            (0..100).for_each(|i| heat.touch(50 + i % 50));
            assert_eq!(heat.degree(40), 4 - round);
        }
    }
}
