//! What the command *identify* answers: one sector that says what the device is.
//!
//! The registers say the same numbers. A host that attached by commands alone (the paper's driver,
//! 5.3) finds them here, with the medium's description and the DRAM that the firmware keeps.

use crate::entry::SECTOR_BYTES;
use crate::region::{Capability, Features};

/// Most bytes of the description.
const TEXT_MAX: usize = 1024;
const TEXT: usize = 64;

/// The answer to *identify*.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Capacity, in sectors of 4 KiB.
    pub sectors: u32,
    /// The largest number of sectors that one command may name.
    pub command_sectors: u32,
    /// What it can do.
    pub features: Features,
    /// Another number each time the device starts.
    pub instance: u64,
    /// DRAM of the firmware: the translation layer's tables and buffers, in bytes.
    pub dram_bytes: u64,
    /// One line about the medium.
    pub description: String,
}

impl Identity {
    pub(crate) fn new(capability: &Capability, description: &str, dram_bytes: usize) -> Identity {
        let mut end = description.len().min(TEXT_MAX);
        while !description.is_char_boundary(end) {
            end -= 1;
        }
        Identity {
            sectors: capability.sectors,
            command_sectors: capability.command_sectors,
            features: capability.features,
            instance: capability.instance,
            dram_bytes: dram_bytes as u64,
            description: description[..end].to_owned(),
        }
    }
    /// The sector: six little-endian words of 8 bytes, and from byte 64 on the description.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        let text = &self.description.as_bytes()[..self.description.len().min(TEXT_MAX)];
        let words = [
            self.sectors.into(),
            self.command_sectors.into(),
            self.features.0,
            self.instance,
            self.dram_bytes,
            text.len() as u64,
        ];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes[TEXT..TEXT + text.len()].copy_from_slice(text);
        bytes
    }
    /// The inverse; none when that cannot be an answer.
    #[must_use]
    pub fn of(bytes: &[u8; SECTOR_BYTES]) -> Option<Identity> {
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        let length = usize::try_from(word(5)).ok().filter(|&length| length <= TEXT_MAX)?;
        Some(Identity {
            sectors: u32::try_from(word(0)).ok().filter(|&sectors| sectors > 0)?,
            command_sectors: u32::try_from(word(1)).ok()?,
            features: Features(word(2)),
            instance: word(3),
            dram_bytes: word(4),
            description: std::str::from_utf8(&bytes[TEXT..TEXT + length]).ok()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_nonsense_does_not() {
        let capability = Capability {
            sectors: 5,
            pairs: 1,
            depth: 1,
            buffer_sectors: 0,
            boot_sectors: 0,
            features: Features::PAGES,
            instance: 9,
            command_sectors: 7,
        };
        let identity = Identity::new(&capability, &"µ".repeat(600), 3);
        assert_eq!(identity.description.len(), TEXT_MAX);
        assert_eq!(Identity::of(&identity.to_bytes()), Some(identity.clone()));
        let mut bytes = identity.to_bytes();
        bytes[40..48].fill(0xFF);
        assert_eq!(Identity::of(&bytes), None);
        assert_eq!(Identity::of(&[0; SECTOR_BYTES]), None);
        assert_eq!(Identity::of(&[0xFF; SECTOR_BYTES]), None);
    }
}
