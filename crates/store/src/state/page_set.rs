//! A set of pages: a bit each.

/// A bit for each page.
#[derive(Debug)]
pub(super) struct PageSet(pub Vec<u64>);

impl PageSet {
    pub fn set(&mut self, page: u32, member: bool) {
        let (word, bit) = (&mut self.0[page as usize / 64], 1 << (page % 64));
        *word = if member { *word | bit } else { *word & !bit };
    }
    pub fn has(&self, page: u32) -> bool {
        self.0[page as usize / 64] & (1 << (page % 64)) != 0
    }
    pub fn next(&self, from: u32) -> Option<u32> {
        let mut at = from as usize / 64;
        let mut word = self.0.get(at)? & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.0.get(at)?;
        }
        Some(at as u32 * 64 + word.trailing_zeros())
    }
}
