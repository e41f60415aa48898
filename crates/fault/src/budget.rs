//! The cap on the memory of the process: how many frames it leaves.
//!
//! The kernel's count is what holds: all resident pages and page tables. What is not
//! frames (the program's own code, stacks and small objects, the cache's tables) is the difference.
//! Frames get the rest, and more of them only as they are needed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use fulgurite_format::SUBPAGE_BYTES;

/// The fewest frames. With fewer, one instruction's pages might not all be there at once.
pub const FRAMES_LEAST: u32 = 128;
/// Frames that are added at a time, at the least.
const STEP: u32 = 1024;

/// See the module.
#[derive(Debug)]
pub struct Budget {
    cap: u64,
    /// Kept free: what the process may grow by between two looks.
    margin: u64,
    statm: File,
    status: File,
    peak: u64,
}

impl Budget {
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn new(cap: u64) -> io::Result<Budget> {
        let (statm, status) = (File::open("/proc/self/statm")?, File::open("/proc/self/status")?);
        Ok(Budget { cap, margin: (cap / 64).max(1 << 20), statm, status, peak: 0 })
    }

    /// Memory of the process now: resident pages, and page tables.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn used(&mut self) -> io::Result<u64> {
        let mut text = [0; 4096];
        let length = self.statm.read_at(&mut text, 0)?;
        let resident = field(&text[..length], 1).ok_or(io::ErrorKind::InvalidData)?;
        let length = self.status.read_at(&mut text, 0)?;
        let tables = table_kib(&text[..length]).ok_or(io::ErrorKind::InvalidData)?;
        let used = resident * SUBPAGE_BYTES as u64 + tables * 1024;
        self.peak = self.peak.max(used);
        Ok(used)
    }

    /// The most that [`Budget::used`] has seen.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// What is not left for frames, beside what is used already.
    pub fn margin(&self) -> u64 {
        self.margin
    }

    /// How many frames there may be, where `with_pages` have pages. With a look that fails, as many
    /// as there are.
    pub fn frames(&mut self, with_pages: u32, limit: u32, most: u32) -> u32 {
        let Ok(used) = self.used() else { return limit };
        self.frames_beside(used, with_pages, limit, most)
    }

    fn frames_beside(&self, used: u64, with_pages: u32, limit: u32, most: u32) -> u32 {
        let others = used.saturating_sub(u64::from(with_pages) * SUBPAGE_BYTES as u64);
        let room = self.cap.saturating_sub(self.margin).saturating_sub(others) / SUBPAGE_BYTES as u64;
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        // Only as they are needed: a look behind each step.
        let next = if with_pages + STEP / 2 >= limit { limit.saturating_add(STEP.max(limit / 8)) } else { limit };
        room.min(next).min(most).max(FRAMES_LEAST.min(most))
    }
}

/// A number in a line of numbers.
fn field(text: &[u8], index: usize) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_whitespace().nth(index)?.parse().ok()
}

/// KiB of page tables.
fn table_kib(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmPTE:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_measured() {
        let mut budget = Budget::new(1 << 30).unwrap();
        let before = budget.used().unwrap();
        assert!(before > 1 << 20, "{before}");
        let more = vec![1u8; 64 << 20];
        let after = budget.used().unwrap();
        assert!(after >= before + (60 << 20) && more[12345] == 1, "{before}, {after}");
        drop(more);
        assert!(budget.peak() >= after);
    }
    #[test]
    fn frames_get_what_the_others_leave() {
        let budget = Budget::new(64 << 20).unwrap();
        let frames =
            |used_mib: u64, with_pages, limit| budget.frames_beside(used_mib << 20, with_pages, limit, 1 << 20);
        // 10 MiB of others, 1 MiB of margin.
        assert_eq!(frames(10, 0, 1024), 1024, "not needed yet");
        assert_eq!(frames(14, 1024, 1024), 2048);
        assert_eq!(frames(10 + 52, 52 << 8, 52 << 8), 53 << 8);
        assert_eq!(frames(20 + 53, 53 << 8, 53 << 8), 43 << 8, "the others have grown");
        assert_eq!(frames(200, 100, 128), FRAMES_LEAST);
        assert_eq!(budget.frames_beside(10 << 20, 64, 64, 64), 64);
    }
}
