//! NAND in real time: the times, the order and the failures of the model, over a medium that holds
//! the data.
//!
//! It has the constraints of NAND: a writer keeps the order that [`fulgurite_nand::Fil`] states, as
//! the journaled store does. Another order is not refused. Its programs, erases and log are the
//! model's, while the data is what was written last.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_format::format_duration;
use fulgurite_nand::{Fil, FilConfig, FilCounters, FilError, FlashDone, FlashRequest, NandCounters, Profile};
use fulgurite_sys::Clock;

use super::{Latency, Refused, Times};
use crate::{Flash, OpenError, lock};

/// The NAND model in real time, over a medium that holds the data.
pub type NandFlash = Latency<Fil>;

/// What the device did, and what it costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NandReport {
    /// Of the flash interface layer.
    pub fil: FilCounters,
    /// Of the NAND below it.
    pub nand: NandCounters,
    /// Flash pages of a page of NAND.
    pub flash_pages_per_page: u32,
    /// DRAM of the model's tables in this process, no part of a program's budget.
    pub model_bytes: usize,
}

impl Times for Fil {
    fn submit(&mut self, now_ns: u64, request: FlashRequest) -> Result<(), Refused> {
        Fil::submit(self, now_ns, request).map_err(|error| match error {
            FilError::Full => Refused::Full,
            _ => Refused::NoSuchPage,
        })
    }
    fn advance(&mut self, now_ns: u64, done: &mut Vec<FlashDone>) {
        Fil::advance(self, now_ns, done);
    }
    fn next_event_ns(&self) -> Option<u64> {
        Fil::next_event_ns(self)
    }
    fn gathers(&self) -> usize {
        self.nand().geometry().flash_pages_per_page() as usize
    }
    fn describe(&self, inner: String) -> String {
        let (timing, geometry) = (self.nand().profile().timing, self.nand().geometry());
        let [read, program, erase] = [timing.read_ns, timing.program_ns, timing.erase_ns].map(Duration::from_nanos);
        format!(
            "NAND, {} planes on {} channels of {} MB/s, read {}, program {}, erase {}, over {inner}",
            geometry.planes(),
            geometry.channels(),
            timing.bus_bytes_per_second / 1_000_000,
            format_duration(read),
            format_duration(program),
            format_duration(erase),
        )
    }
}

impl NandFlash {
    /// NAND by a profile, whose data is in `inner`: flash page i of the device is subpage i of it.
    ///
    /// # Errors
    /// When the profile cannot be divided as the configuration says, or `inner` is smaller than the
    /// device.
    pub fn new(inner: Arc<dyn Flash>, profile: Profile, config: FilConfig) -> Result<NandFlash, OpenError> {
        let fil = Fil::new(profile, config)?;
        let subpages = fil.flash_pages();
        if inner.subpages() < subpages {
            return Err(OpenError::Storage { bytes: inner.subpages() as usize * 4096, subpages });
        }
        Ok(Latency::of(inner, fil, subpages, Clock::get()))
    }
    /// A device that is opened again: all of `inner` counts as written, so reads take their time,
    /// and writes begin extents anew. Wear begins with the model.
    ///
    /// # Errors
    /// As [`NandFlash::new`].
    pub fn reopened(inner: Arc<dyn Flash>, profile: Profile, config: FilConfig) -> Result<NandFlash, OpenError> {
        NandFlash::reopened_with(inner, profile, config, None)
    }
    /// A device that continues from a [`NandFlash::state`]: wear, failed and spare blocks and the
    /// log are as they were then. Later writes and erases are unknown.
    ///
    /// # Errors
    /// As [`NandFlash::new`], and [`OpenError::System`] for a state of another device.
    pub fn reopened_with(
        inner: Arc<dyn Flash>,
        profile: Profile,
        config: FilConfig,
        state: Option<&[u8]>,
    ) -> Result<NandFlash, OpenError> {
        let flash = NandFlash::new(inner, profile, config)?;
        {
            let fil = &mut lock(&flash.shared.model).times;
            if let Some(state) = state {
                fil.restore(state).map_err(|error| OpenError::System {
                    what: "go on from the state of the NAND",
                    source: std::io::Error::other(error),
                })?;
            }
            (0..fil.extents()).try_for_each(|extent| fil.assume_written(extent, fil.extent_pages()))?;
        }
        Ok(flash)
    }
    /// What of the NAND outlives this process, as bytes, for [`NandFlash::reopened_with`].
    #[must_use]
    pub fn state(&self) -> Vec<u8> {
        lock(&self.shared.model).times.state()
    }
    /// Flash pages of an extent, which a store over it must have as well.
    #[must_use]
    pub fn extent_pages(&self) -> u32 {
        lock(&self.shared.model).times.extent_pages()
    }
    /// What it has done so far.
    #[must_use]
    pub fn report(&self) -> NandReport {
        let model = lock(&self.shared.model);
        let fil = &model.times;
        NandReport {
            fil: *fil.counters(),
            nand: *fil.nand().counters(),
            flash_pages_per_page: fil.nand().geometry().flash_pages_per_page(),
            model_bytes: fil.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_format::{FrameIndex, SubpageIndex};
    use fulgurite_sys::{Arena, Notifier};

    use super::*;
    use crate::{Flash, MemoryFlash, Op, Request};

    #[test]
    fn ports_of_queues_that_are_gone_are_used_again_once_nothing_of_theirs_is_under_way() {
        let profile = Profile::built_in("mlc").unwrap().scaled(64 << 20, 4).unwrap();
        let pages = Fil::new(profile, FilConfig::default()).unwrap().flash_pages();
        let inner = Arc::new(MemoryFlash::new(pages).unwrap());
        let nand = NandFlash::new(inner, profile, FilConfig::default()).unwrap();
        let frames = Arc::new(Arena::anonymous(16 * 4096, fulgurite_sys::Backed::BasePages).unwrap());
        let open = || nand.open_queue(frames.clone(), 8, Arc::new(Notifier::new().unwrap())).unwrap();
        let ports = || lock(&nand.shared.model).ports.len();
        (0..100).for_each(|_| drop(open()));
        assert_eq!(ports(), 1);
        // Gone with a program of more than a millisecond under way: the next queue must not see its
        // end.
        let mut gone = open();
        let subpage = SubpageIndex(nand.extent_pages());
        for tag in 0..4 {
            let subpage = SubpageIndex(subpage.0 + tag as u32);
            gone.submit(Request { tag, op: Op::Write, subpage, frame: FrameIndex(tag as u32) }).unwrap();
        }
        gone.flush().unwrap();
        assert_eq!(lock(&nand.shared.model).ports[0].under_way, 4);
        drop(gone);
        let mut next = open();
        assert_eq!(ports(), 2);
        let mut completions = Vec::new();
        next.submit(Request { tag: 77, op: Op::Flush, subpage, frame: FrameIndex(0) }).unwrap();
        while completions.is_empty() {
            next.wait(None);
            next.poll(&mut completions);
        }
        assert_eq!(completions.iter().map(|c| c.tag).collect::<Vec<_>>(), [77]);
        assert!(lock(&nand.shared.model).ports[0].is_free());
        let _third = open();
        assert_eq!(ports(), 2);
    }
}
