//! The file that holds the pools of the computation, one after the other.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use fulgurite_flash::Flash;
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_store::{Geometry, Pool, StoreConfig};

use super::job::Job;
use crate::medium::{CheckedMedium, Holds, TestBed};
use crate::values::FlashChoice;
use fulgurite_flash::Mover;
use fulgurite_harness::checks::Wanted;
use fulgurite_harness::child::pool::{EXTENT_PAGES, benchmark_id};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::machine::Machine;

/// Bytes of a pool for `data_bytes` of data, with room for a token's versions and for reclaim.
pub fn pool_bytes(data_bytes: u64) -> u64 {
    data_bytes * 2 + (256 << 20)
}

pub struct Target {
    /// What it is stored on. The file is removed with it.
    _made: TestBed,
    flash: Arc<dyn Flash>,
}

/// Checks a file in a directory, with `dram_bytes` of DRAM before it. Nothing is made yet.
pub fn check(directory: &Path, data_bytes: u64, dram_bytes: u64, machine: &Machine) -> Result<CheckedMedium> {
    let file = FlashChoice::File(directory.join(format!("fulgurite-checkpoint-{}.flash", std::process::id())));
    let wanted = Wanted { flash: &file, create: true, force: false, share_frames: false };
    // The memory, its copy (of a fork, or read back), and the DRAM before the pool.
    let beside = data_bytes * 3 + dram_bytes;
    CheckedMedium::new(wanted, Holds::Pool { extent_pages: EXTENT_PAGES }, pool_bytes(data_bytes), beside, machine)
}

impl Target {
    /// Makes it.
    pub fn make(checked: CheckedMedium, data_bytes: u64, interrupt: &Interrupt) -> Result<Target> {
        let made = checked.make(interrupt)?;
        let flash = made.open(pool_bytes(data_bytes))?;
        Ok(Target { _made: made, flash })
    }
    /// A new pool, with the job's first state in it, which is durable.
    pub fn filled(&self, job: &Job) -> Result<Arc<dyn Flash>> {
        let subpages = u32::try_from(job.pages)?;
        let geometry = Geometry::new(self.flash.subpages(), EXTENT_PAGES, Some(subpages))?;
        Pool::format(&self.flash, geometry, benchmark_id()?, 0)?;
        let pool = Pool::open(self.flash.clone(), StoreConfig::default())?.0.into_flash();
        let mut rest = 0..subpages;
        Mover::new(&pool)?.write(|bytes| {
            let page = rest.next();
            if let Some(page) = page {
                job.fill(page.into(), bytes);
            }
            anyhow::Ok(page)
        })?;
        pool.layer().sync()?;
        Ok(Arc::new(pool))
    }
    /// The pool as a later program finds it.
    pub fn again(&self) -> Result<Arc<dyn Flash>> {
        Ok(Arc::new(Pool::open(self.flash.clone(), StoreConfig::default())?.0.into_flash()))
    }
    /// Bytes written to the file until now, by anything.
    pub fn written(&self) -> u64 {
        self.flash.counters().writes * SUBPAGE_BYTES as u64
    }
    pub fn describe(&self) -> String {
        self.flash.describe()
    }
}
