//! The cap on the memory of the process: how many frames it leaves.
//!
//! The kernel's count is what holds: all resident pages and page tables. What is not
//! frames (the program's own code, stacks and small objects, the cache's tables) is the difference.
//! Frames get the rest, and more of them only as they are needed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_sys::descriptors::above_standard;

/// The fewest frames. With fewer, one instruction's pages might not all be there at once.
pub const FRAMES_LEAST: u32 = 128;
/// The least number of frames that are added at a time.
const STEP: u32 = 1024;

/// See the module.
#[derive(Debug)]
pub struct Budget {
    cap: u64,
    /// Kept free: what the process may grow by between two checks.
    margin: u64,
    statm: File,
    status: File,
    peak: u64,
}

impl Budget {
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn new(cap: u64) -> io::Result<Budget> {
        let [statm, status] = files()?;
        Ok(Budget { cap, margin: margin(cap), statm, status, peak: 0 })
    }
    /// Measures by the calling thread from now on. The kernel says nothing of the memory by a
    /// thread that has ended, and the first thread of a program may end before the others do.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn measure_by_this_thread(&mut self) -> io::Result<()> {
        [self.statm, self.status] = files()?;
        Ok(())
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
        let kib = |name| kib_of(&text[..length], name).ok_or(io::ErrorKind::InvalidData);
        let (tables, most) = (kib("VmPTE:")? * 1024, kib("VmHWM:")? * 1024);
        let used = resident * SUBPAGE_BYTES as u64 + tables;
        // The kernel keeps the most resident pages between two checks, too.
        self.peak = self.peak.max(used).max(most + tables);
        Ok(used)
    }

    /// The most that there was, as far as [`Budget::used`] can tell.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// What is not left for frames, in addition to what is used already.
    pub fn margin(&self) -> u64 {
        self.margin
    }

    /// Sets the cap: it changes as children come and go.
    pub fn set_cap(&mut self, cap: u64) {
        (self.cap, self.margin) = (cap, margin(cap));
    }
    /// The cap.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Whether hardly more than the margin is left.
    pub fn is_near(&self, used: u64) -> bool {
        used.saturating_add(2 * self.margin) >= self.cap
    }

    /// Memory other than the pages of frames, if it and the fewest frames are more than the cap.
    pub fn outgrown(&self, used: u64, with_pages: u32) -> Option<u64> {
        let others = others(used, with_pages);
        let least = u64::from(FRAMES_LEAST) * SUBPAGE_BYTES as u64;
        (used > self.cap && others + least > self.cap).then_some(others)
    }

    /// How many frames there may be, where `with_pages` have pages and `used` bytes are used.
    pub fn frames(&self, used: u64, with_pages: u32, limit: u32, most: u32) -> u32 {
        let room = self.cap.saturating_sub(self.margin).saturating_sub(others(used, with_pages)) / SUBPAGE_BYTES as u64;
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        // Only as they are needed, with a check after each step.
        let next = if with_pages + STEP / 2 >= limit { limit.saturating_add(STEP.max(limit / 8)) } else { limit };
        room.min(next).min(most).max(FRAMES_LEAST.min(most))
    }
}

/// The files of the calling thread.
fn files() -> io::Result<[File; 2]> {
    let open = |path| above_standard(|| File::open(path));
    Ok([open("/proc/thread-self/statm")?, open("/proc/thread-self/status")?])
}

/// What other memory may grow by between two checks: `import numpy.random` maps 2.6 MiB of a
/// library in 6 ms. Of small caps it is a sixteenth.
fn margin(cap: u64) -> u64 {
    (cap / 64).max((cap / 16).min(4 << 20)).max(1 << 20)
}

/// Memory other than the pages of frames.
fn others(used: u64, with_pages: u32) -> u64 {
    used.saturating_sub(u64::from(with_pages) * SUBPAGE_BYTES as u64)
}

/// A number in a line of numbers.
pub fn field(text: &[u8], index: usize) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_whitespace().nth(index)?.parse().ok()
}

/// KiB in a line of the status with this name.
pub fn kib_of(text: &[u8], name: &str) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
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
        let frames = |used_mib: u64, with_pages, limit| budget.frames(used_mib << 20, with_pages, limit, 1 << 20);
        // 10 MiB of others, 4 MiB of margin.
        assert_eq!(frames(10, 0, 1024), 1024, "not needed yet");
        assert_eq!(frames(14, 1024, 1024), 2048);
        assert_eq!(frames(10 + 49, 49 << 8, 49 << 8), 50 << 8);
        assert_eq!(frames(20 + 50, 50 << 8, 50 << 8), 40 << 8, "the others have grown");
        assert_eq!(frames(200, 100, 128), FRAMES_LEAST);
        assert_eq!(budget.frames(10 << 20, 64, 64, 64), 64);
        assert_eq!((budget.outgrown(66 << 20, 4 << 8), budget.outgrown(64 << 20, 0)), (None, None));
        assert_eq!(budget.outgrown(66 << 20, 1 << 8), Some(65 << 20));
        assert!(budget.is_near(56 << 20) && !budget.is_near(55 << 20));
    }
}
