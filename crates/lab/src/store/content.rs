//! Contents of a pool under measurement: a subpage's number and version, to be checked.

use std::sync::Arc;

use anyhow::{Result, ensure};
use fulgurite_flash::Flash;
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_workloads::{ZipfKeys, mix};

use fulgurite_flash::Mover;
use fulgurite_term::interrupt::Interrupt;

const WORDS: usize = SUBPAGE_BYTES / 8;

fn word(subpage: u32, version: u32) -> u64 {
    mix(u64::from(version) << 32 | u64::from(subpage))
}

/// Fills a page with a version of a subpage.
pub fn fill(page: &mut [u8], subpage: u32, version: u32) {
    let word = word(subpage, version).to_le_bytes();
    page.chunks_exact_mut(8).for_each(|into| into.copy_from_slice(&word));
}

/// Whether a page is that version of the subpage.
pub fn is(page: &[u8], subpage: u32, version: u32) -> bool {
    let word = word(subpage, version).to_le_bytes();
    page.len() == WORDS * 8 && page.chunks_exact(8).all(|found| found == word)
}

/// The subpages of a pool in a fixed order that seems random. Each is named once.
pub struct Shuffled(ZipfKeys);

impl Shuffled {
    /// Of `subpages` subpages.
    pub fn new(subpages: u32) -> Result<Shuffled> {
        Ok(Shuffled(ZipfKeys::new("store", subpages.into(), 0.0)?))
    }
    /// Number `i` of them.
    pub fn at(&self, i: u32) -> u32 {
        self.0.key(i.into()) as u32
    }
}

/// Writes a version of subpages; all are written when it returns, and none need be durable.
pub fn write(
    mover: &mut Mover,
    mut subpages: impl Iterator<Item = u32>,
    version: u32,
    interrupt: &Interrupt,
) -> Result<()> {
    mover.write(|page| {
        let next = subpages.next();
        if let Some(subpage) = next {
            if subpage.is_multiple_of(1024) {
                interrupt.check()?;
            }
            fill(page, subpage, version);
        }
        Ok(next)
    })
}

/// Reads subpages, and checks that they are as they should be: (subpage, version).
pub fn check(flash: &Arc<dyn Flash>, expected: impl Fn(u32) -> u32, subpages: impl Iterator<Item = u32>) -> Result<()> {
    Mover::new(&**flash)?.read(subpages, |(subpage, page)| {
        let version = expected(subpage);
        ensure!(is(page?, subpage, version), "subpage {subpage} does not hold its version {version}: data was lost");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_subpages_are_distinguished() {
        let mut page = vec![0; SUBPAGE_BYTES];
        fill(&mut page, 7, 1);
        assert!(is(&page, 7, 1) && !is(&page, 7, 0) && !is(&page, 6, 1));
        page[4000] ^= 1;
        assert!(!is(&page, 7, 1));
    }
    #[test]
    fn each_subpage_comes_once() {
        let order = Shuffled::new(1000).unwrap();
        let mut all: Vec<u32> = (0..1000).map(|i| order.at(i)).collect();
        assert!(!all.is_sorted());
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000));
    }
}
