//! What holds the pool of the computation: a medium of this process, or the store of a served
//! device.
//!
//! A device's store is used for one session at a time, in which this program alone names its states
//! ([`fulgurite_device::SocketLink::names_states`]). Only what was named outlives a session, and is
//! read back in the next.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use fulgurite_device::{DeviceFlash, Features, SocketLink};
use fulgurite_flash::{Backing, Flash};
use fulgurite_format::{PAGE_BYTES, SUBPAGE_BYTES};
use fulgurite_store::{Geometry, Pool, StoreConfig};

use super::job::Job;
use crate::medium::{self, Holds, TestBed};
use crate::values::FlashChoice;
use fulgurite_flash::Mover;
use fulgurite_harness::checks::{self, Wanted};
use fulgurite_harness::child::pool::EXTENT_PAGES;
use fulgurite_harness::child::pool::benchmark_id;
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::machine::Machine;

/// Bytes of a pool for `data_bytes` of data, with room for a token's versions and for reclaim.
pub fn pool_bytes(data_bytes: u64) -> u64 {
    data_bytes * 2 + (256 << 20)
}

pub enum CheckedTarget {
    /// A medium for a pool of this process.
    Medium(Box<medium::CheckedMedium>, u64),
    Store(Served),
}

/// A device of another process whose store is the pool.
pub struct Served {
    socket: PathBuf,
    share_frames: bool,
    /// A part of it holds copies of what has no name yet.
    dram_bytes: u64,
}

/// What holds the pools, one after the other.
pub enum Target {
    /// A medium that stays open: a device of another process would have to be attached to again.
    Medium {
        /// What it is stored on. A file that was made is removed with it.
        _made: TestBed,
        flash: Arc<dyn Flash>,
    },
    Store(Served),
}

impl CheckedTarget {
    /// Checks it, with `dram_bytes` of DRAM before it. Nothing is made yet.
    pub fn new(wanted: Wanted<'_>, data_bytes: u64, dram_bytes: u64, machine: &Machine) -> Result<CheckedTarget> {
        // The memory, its copy (of a fork, or read back), and the DRAM before the pool.
        let beside = data_bytes * 3 + dram_bytes;
        if let FlashChoice::Device(socket) = wanted.flash
            && checks::device_features(socket)?.has(Features::PAGES)
        {
            // A store's reserve is not part of its size. Twice the data: what a token keeps, and
            // what has changed since.
            checks::flash(wanted, 1, data_bytes * 2)?;
            checks::memory(beside, data_bytes, machine)?;
            let served = Served { socket: socket.clone(), share_frames: wanted.share_frames, dram_bytes };
            if let Err(error) = served.link() {
                bad_input!("--flash {}: {error}", wanted.flash);
            }
            return Ok(CheckedTarget::Store(served));
        }
        let bytes = pool_bytes(data_bytes);
        let holds = Holds::Pool { extent_pages: EXTENT_PAGES };
        let judged = medium::CheckedMedium::new(wanted, holds, bytes, beside, machine)?;
        Ok(CheckedTarget::Medium(Box::new(judged), bytes))
    }
    /// Makes it.
    pub fn make(self, interrupt: &Interrupt) -> Result<Target> {
        Ok(match self {
            CheckedTarget::Medium(judged, bytes) => {
                let medium = judged.make(interrupt)?;
                let flash = medium.open(bytes)?;
                Target::Medium { _made: medium, flash }
            }
            CheckedTarget::Store(served) => {
                // A device that is in use is met before anything is measured.
                served.open()?;
                Target::Store(served)
            }
        })
    }
}

impl Served {
    /// A link to it, as the only program.
    fn link(&self) -> Result<SocketLink> {
        Ok(SocketLink::connect(&self.socket, self.share_frames)?.names_states()?)
    }
    /// Its store, in a session of its own.
    fn open(&self) -> Result<Arc<DeviceFlash>> {
        Ok(fulgurite_backing::names_states(&self.socket, self.share_frames, self.dram_bytes)?)
    }
}

/// Names the state of a device's store as it is, and waits until that is durable.
fn name(device: &DeviceFlash) -> Result<()> {
    let versions = device.versions().context("the device keeps no states any more")?;
    let token = versions.name_state()?;
    Ok(versions.wait_durable(token)?)
}

impl Target {
    /// A new pool, with the job's first state in it, which has a name.
    pub fn filled(&self, job: &Job) -> Result<Arc<dyn Flash>> {
        let subpages = u32::try_from(job.pages)?;
        let fill = |flash: &dyn Flash| {
            let mut rest = 0..subpages;
            Mover::new(flash)?.write(|bytes| {
                let page = rest.next();
                if let Some(page) = page {
                    job.fill(page.into(), bytes);
                }
                anyhow::Ok(page)
            })
        };
        match self {
            Target::Medium { flash: medium, .. } => {
                let flash_pages = u32::try_from(pool_bytes(job.bytes() as u64) / SUBPAGE_BYTES as u64)?;
                let geometry = Geometry::new(medium.subpages().min(flash_pages), EXTENT_PAGES, Some(subpages))?;
                Pool::format(medium, geometry, benchmark_id()?, 0)?;
                let flash = Pool::open(medium.clone(), StoreConfig::default())?.0.into_flash();
                fill(&flash)?;
                flash.layer().sync()?;
                Ok(Arc::new(flash))
            }
            Target::Store(served) => {
                let device = served.open()?;
                // The old pages go first: there might be no room for both.
                device.delete_pages(0..(job.bytes() / PAGE_BYTES) as u32)?;
                name(&device)?;
                fill(&*device)?;
                name(&device)?;
                Ok(device)
            }
        }
    }
    /// The pool as a later program finds it.
    pub fn again(&self) -> Result<Arc<dyn Flash>> {
        match self {
            Target::Medium { flash: medium, .. } => {
                Ok(Arc::new(Pool::open(medium.clone(), StoreConfig::default())?.0.into_flash()))
            }
            Target::Store(served) => Ok(served.open()?),
        }
    }
    /// Bytes written to the medium until now, by anything.
    pub fn written(&self, pool: &Arc<dyn Flash>) -> u64 {
        let medium = match self {
            Target::Medium { flash: medium, .. } => medium,
            Target::Store(_) => pool,
        };
        medium.counters().writes * SUBPAGE_BYTES as u64
    }
    /// Whether the pool is the store of a device of another process.
    pub fn is_served(&self) -> bool {
        matches!(self, Target::Store(_))
    }
    pub fn describe(&self) -> String {
        match self {
            Target::Medium { flash: medium, .. } => medium.describe(),
            Target::Store(served) => format!("the store of the device at {}", served.socket.display()),
        }
    }
    pub fn sentence(&self) -> String {
        match self {
            Target::Medium { .. } => format!("The pool of fulgurite and sync is on: {}.", self.describe()),
            Target::Store(_) => {
                format!("The pool of fulgurite and sync is {}, whose own a sync is.", self.describe())
            }
        }
    }
}
