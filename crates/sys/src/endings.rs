//! Memories whose last handle was dropped where nothing may wait, so that another thread ends them.
//!
//! A process that exits meanwhile waits until what they hold is durable, as it would have waited
//! in the drop itself. A child after `fork` has none of these threads, and does not wait.
//!
//! ```text
//!  63          32 31          16 15           0
//! +--------------+--------------+--------------+
//! |   process    |  under way   | not durable  |
//! +--------------+--------------+--------------+
//! ```

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// See the drawing. One word, because a lock could be held for good in a child after `fork`.
static ENDINGS: AtomicU64 = AtomicU64::new(0);

const UNDER_WAY: u64 = 1 << 16;
const NOT_DURABLE: u64 = 1;

/// How often an exit checks whether it still has to wait.
const CHECK: Duration = Duration::from_millis(1);

/// The word of this process. One of its parent counts nothing here.
fn of_this_process(word: u64) -> u64 {
    let process = u64::from(std::process::id()) << 32;
    if word >> 32 << 32 == process { word } else { process }
}

fn change(change: impl Fn(u64) -> u64) {
    let changed = |word| Some(change(of_this_process(word)));
    let _ = ENDINGS.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
}

/// A memory that another thread ends. Dropped when it has ended, and its file is closed.
#[derive(Debug)]
pub struct Ending {
    process: u32,
    durable: bool,
}

impl Ending {
    /// The end of a memory begins, on another thread.
    #[must_use]
    pub fn begin() -> Ending {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            // SAFETY: the function has no arguments and does not unwind. Where the table of such
            // functions is full, an exit does not wait, and nothing else changes.
            unsafe { libc::atexit(wait_until_durable) };
        });
        change(|word| word + UNDER_WAY + NOT_DURABLE);
        Ending { process: std::process::id(), durable: false }
    }

    /// All that it held is durable, or cannot be made so: an exit need not wait any more.
    pub fn made_durable(&mut self) {
        if !std::mem::replace(&mut self.durable, true) && self.process == std::process::id() {
            change(|word| word - NOT_DURABLE);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.made_durable();
        if self.process == std::process::id() {
            change(|word| word - UNDER_WAY);
        }
    }
}

/// Whether another thread of this process ends a memory: what is in use now may soon be free.
#[must_use]
pub fn are_under_way() -> bool {
    of_this_process(ENDINGS.load(Ordering::Acquire)) as u32 >= UNDER_WAY as u32
}

extern "C" fn wait_until_durable() {
    // A worker that exits would wait for itself.
    let waits = || of_this_process(ENDINGS.load(Ordering::Acquire)) as u16 > 0;
    while !crate::workers::is_here() && waits() {
        std::thread::sleep(CHECK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_waits_until_all_is_durable() {
        let mut ending = Ending::begin();
        assert!(are_under_way());
        let waits = std::thread::spawn(|| wait_until_durable());
        std::thread::sleep(20 * CHECK);
        assert!(!waits.is_finished());
        ending.made_durable();
        waits.join().unwrap();
        assert!(are_under_way(), "its file may still be open");
        drop(ending);
        assert!(!are_under_way());
        ENDINGS.store(5 << 32 | UNDER_WAY | NOT_DURABLE, Ordering::Release);
        assert!(!are_under_way(), "a parent's");
        wait_until_durable();
    }
}
