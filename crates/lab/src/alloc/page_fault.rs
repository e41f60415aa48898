//! What a fault of the page buffer costs where nothing is read or written, compared with the same
//! primitives alone.
//!
//! Each touch is of a page that was never written to. So it is a signal, a page of zeros that
//! comes, and one that leaves unchanged. The thread that touches resolves it.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use fulgurite_backing::Medium;
use fulgurite_fault::{Access, Fault, FaultOutcome, PageBuffer, Settings, Wanted};
use fulgurite_sys::faults::{HandlerStack, handle_by};
use serde::{Deserialize, Serialize};

use super::bare::{Bare, Content, PAGE_BYTES, PLACES, STEP};
use crate::kernel;

/// Bytes of the file that it needs.
pub const FILE_BYTES: u64 = 64 << 20;
/// DRAM in addition to what the process has: tables, what stays free, and a few hundred pages.
const EXTRA_BYTES: u64 = 4 << 20;
/// The handler thread has published its counts by then.
const PUBLISHED_AFTER: Duration = Duration::from_millis(250);

/// Time of a fault, in ns.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct FaultCosts {
    /// Of the page buffer.
    pub buffer_ns: f64,
    /// Of the primitives alone.
    pub bare_ns: f64,
}

static BUFFER: OnceLock<PageBuffer> = OnceLock::new();

fn handle_fault(fault: &Fault) -> FaultOutcome {
    BUFFER.get().map_or(FaultOutcome::NotMine, |buffer| buffer.handle_fault(fault))
}

/// A page buffer, and the primitives.
pub struct PageFaults {
    bare: &'static Bare,
    buffer: &'static PageBuffer,
    base: usize,
}

impl PageFaults {
    /// Starts both, once in a process, and checks that faults neither read nor write.
    ///
    /// # Errors
    /// When there is no userfaultfd for this user, or no file.
    pub fn start(file: &Path) -> Result<PageFaults> {
        let bare = Bare::start(Content::Zeros)?;
        // Its pages are this process' as well.
        bare.faults(0);
        let dram_bytes = kernel::resident_bytes()? + EXTRA_BYTES;
        let opened = Medium::new_file(file, FILE_BYTES)
            .open(&fulgurite_backing::Settings { dram_bytes, ..Default::default() })?;
        let notices = Arc::default();
        let settings = Settings { opened, dram_bytes, backend: Wanted::InLine, notices, json: false, stats_ms: 0 };
        ensure!(BUFFER.set(PageBuffer::start(&settings)?).is_ok(), "it was measured before");
        let buffer = BUFFER.get().ok_or_else(|| anyhow!("it was set just now"))?;
        handle_by(buffer.signal(), handle_fault, HandlerStack::Own)?;
        let mapped = buffer.map(PLACES * PAGE_BYTES, None, Access::ReadWrite);
        let base = mapped.map_err(|errno| anyhow!(std::io::Error::from_raw_os_error(errno)))?;
        let faults = PageFaults { bare, buffer, base };
        faults.touch();
        let before = faults.settled();
        faults.touch();
        let after = faults.settled();
        let (count, moved) = (after.faults - before.faults, after.reads + after.evicted_dirty);
        ensure!(moved == 0, "{moved} pages were read or written");
        ensure!(count as usize * 10 > PLACES * 9, "{count} faults of {PLACES} touches: too few pages leave");
        Ok(faults)
    }
    /// Touches each page once. Returns the time of a touch, in ns.
    fn touch(&self) -> f64 {
        let begun = Instant::now();
        kernel::touch_pages(self.buffer, self.base, PLACES, STEP);
        begun.elapsed().as_nanos() as f64 / PLACES as f64
    }
    fn settled(&self) -> fulgurite_fault::Summary {
        std::thread::sleep(PUBLISHED_AFTER);
        self.buffer.statistics().summary()
    }
    /// Measures both, in turns.
    pub fn measure(&self) -> FaultCosts {
        const TURNS: u32 = 3;
        let mut costs = FaultCosts { buffer_ns: 0.0, bare_ns: 0.0 };
        for _ in 0..TURNS {
            costs.bare_ns += self.bare.faults(0).median / f64::from(TURNS);
            costs.buffer_ns += self.touch() / f64::from(TURNS);
        }
        costs
    }
}
