//! What the examples that count share: a medium that answers at once, and random numbers.

use std::collections::HashMap;

use fulgurite_flash::FlashError;
use fulgurite_format::{PageBuffer, zero_page};
use fulgurite_store::{Io, Outcome, ReadPages, Store};

/// A medium that keeps what is written to it, copies aside, and answers at once.
pub struct Pages {
    pub pages: HashMap<u32, PageBuffer>,
    pub flash_pages: u32,
}

impl ReadPages for Pages {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, FlashError> {
        Ok(self.pages.get(&place).cloned().unwrap_or_else(zero_page))
    }
    fn flash_pages(&self) -> u32 {
        self.flash_pages
    }
}

impl Pages {
    /// Does all that the store asks for.
    pub fn serve(&mut self, store: &mut Store) {
        while let Some((id, io)) = store.next_io() {
            let outcome = match io {
                Io::Write { place, page } => {
                    self.pages.insert(place, page);
                    Outcome::Done
                }
                Io::Read { place } => Outcome::Read(self.pages.get(&place).cloned().unwrap_or_else(zero_page)),
                Io::Copy { .. } => Outcome::Copied(0),
                Io::Flush => Outcome::Done,
            };
            store.done(id, outcome);
        }
    }
}

/// xorshift64 (Marsaglia, 2003).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
