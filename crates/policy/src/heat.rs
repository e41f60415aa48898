//! How often things are written, roughly: four bits each, which fade.
//!
//! Data that is overwritten about as often belongs in the same extent of a log: that one then
//! empties by itself, and reclaim has less to copy. Last write times say less than counts do: with
//! Zipf keys one short interval is mostly chance.
//!
//! Fading is part of each count and not a pass of its own: while n things are written n times, each
//! counter is halved once.
//!
//! What is written for the first time need not be counted: until something near it is written
//! again, there are no counters of it, which is to say that they are zero. So data that is written
//! once costs no memory here.

/// Counters of writes.
#[derive(Clone, Debug)]
pub struct Heat {
    /// Two counters a byte. Parts of which all are zero may be missing.
    parts: Box<[Option<Box<[u8; PART_BYTES]>>]>,
    /// Bytes that there are, or would be.
    bytes: usize,
    /// The byte that fades next.
    fades: usize,
    /// Writes since the last byte faded.
    since: u32,
}

/// Writes after which a byte of two counters fades.
const FADE_EVERY: u32 = 2;
const MOST: u8 = 15;
/// Bytes of counters that are allocated at once: few compared with what is overwritten near each
/// other, many compared with their pointer.
const PART_BYTES: usize = 1024;

impl Heat {
    /// How many degrees there are: 0 for what is new or was not written for long, then one for each
    /// doubling.
    pub const DEGREES: usize = 5;

    /// The heat of `things` things, none of them written.
    pub fn new(things: u32) -> Heat {
        let bytes = (things as usize).div_ceil(2);
        Heat { parts: vec![None; bytes.div_ceil(PART_BYTES)].into(), bytes, fades: 0, since: 0 }
    }
    /// Bytes of the counters that there are.
    pub fn bytes(&self) -> usize {
        self.bytes_with(self.parts.iter().flatten().count())
    }
    /// Bytes when all there can be are there.
    pub fn bytes_max(&self) -> usize {
        self.bytes_with(self.parts.len())
    }
    fn bytes_with(&self, parts: usize) -> usize {
        size_of_val(&*self.parts) + parts * PART_BYTES
    }
    /// The place of a counter, for loads ahead of [`Heat::degree`]. None where it does not exist
    /// yet.
    ///
    /// # Panics
    /// When there is no such thing.
    #[inline]
    pub fn counter_byte(&self, thing: u32) -> Option<&u8> {
        let byte = thing as usize / 2;
        self.parts[byte / PART_BYTES].as_ref().map(|part| &part[byte % PART_BYTES])
    }
    fn counter(&self, thing: u32) -> u8 {
        self.counter_byte(thing).map_or(0, |pair| (pair >> (thing % 2 * 4)) & MOST)
    }
    /// How hot a thing is: 0 to [`Heat::DEGREES`] - 1.
    ///
    /// # Panics
    /// When there is no such thing.
    pub fn degree(&self, thing: u32) -> usize {
        self.counter(thing).checked_ilog2().map_or(0, |log| log as usize + 1)
    }
    /// A thing is written.
    ///
    /// # Panics
    /// When there is no such thing.
    pub fn touch(&mut self, thing: u32) {
        let byte = thing as usize / 2;
        let part = self.parts[byte / PART_BYTES].get_or_insert_with(|| Box::new([0; PART_BYTES]));
        let pair = &mut part[byte % PART_BYTES];
        if (*pair >> (thing % 2 * 4)) & MOST < MOST {
            *pair += 1 << (thing % 2 * 4);
        }
        self.fade();
    }
    /// A thing is written that never was before: counted only where there are counters.
    ///
    /// # Panics
    /// When there is no such thing.
    pub fn touch_first(&mut self, thing: u32) {
        if self.counter_byte(thing).is_some() { self.touch(thing) } else { self.fade() }
    }
    fn fade(&mut self) {
        self.since += 1;
        if self.since == FADE_EVERY {
            self.since = 0;
            if let Some(part) = &mut self.parts[self.fades / PART_BYTES] {
                let pair = &mut part[self.fades % PART_BYTES];
                *pair = (*pair >> 1) & 0x77;
            }
            self.fades = (self.fades + 1) % self.bytes;
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
    fn first_writes_take_no_memory() {
        let mut heat = Heat::new(100_000);
        let empty = heat.bytes();
        (0..100_000).for_each(|i| heat.touch_first(i));
        assert_eq!((heat.bytes(), heat.degree(50_000)), (empty, 0));
        heat.touch(50_000);
        heat.touch_first(50_001);
        assert_eq!([50_000, 50_001, 50_002].map(|i| heat.degree(i)), [1, 1, 0]);
        assert_eq!(heat.bytes(), empty + PART_BYTES);
        (0..100_000).for_each(|i| heat.touch(i));
        assert_eq!(heat.bytes(), heat.bytes_max());
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
