//! A controller's DRAM and the device behind it.

use std::collections::VecDeque;

use fulgurite_policy::{PrefetchPolicy, Prefetcher, Replacement};

use super::device::{Device, Rated};
use super::frames::Frames;
use super::log::Log;
use super::system::{Backend, DeviceKind, PagingSystem, Slots, swap_slots};
use crate::memory::FlashPages;

pub(super) const NONE: u32 = u32::MAX;
/// Requests of NAND that may be under way at once, at most.
const FLASH_DEPTH: u64 = 1 << 20;

/// Which page is in which slot of swap.
pub(super) struct SwapMap {
    pub of_page: Vec<u32>,
    pub page_in: Vec<u32>,
    pub next: u32,
}

impl SwapMap {
    pub fn new(pages: u32) -> SwapMap {
        let slots = swap_slots(u64::from(pages)) as u32;
        let page_in = (0..slots).map(|slot| if slot < pages { slot } else { NONE }).collect();
        SwapMap { of_page: (0..pages).collect(), page_in, next: pages }
    }
    /// A page leaves: it gets the next free slot.
    pub fn leave(&mut self, page: u32) -> u32 {
        self.page_in[self.of_page[page as usize] as usize] = NONE;
        while self.page_in[self.next as usize] != NONE {
            self.next = (self.next + 1) % self.page_in.len() as u32;
        }
        (self.of_page[page as usize], self.page_in[self.next as usize]) = (self.next, page);
        self.next
    }
}

/// A controller's DRAM and its device.
pub(super) struct Home<R> {
    pub frames: Frames<R>,
    pub prefetcher: Prefetcher,
    /// Threads that wait, and parts that are on their way, by frame.
    pub waiting: Vec<Vec<u32>>,
    pub left: Vec<u32>,
    pub device: Device,
    pub log: Option<Log>,
    pub swap: Option<SwapMap>,
    /// Pages in the evict buffer.
    pub writing: u32,
    pub throttled: VecDeque<u32>,
}

impl PagingSystem {
    /// Requests of NAND that may be under way at once. A read has a frame. A write may reclaim a
    /// block, and an evict buffer that had room takes what one miss displaces.
    fn depth(&self, parts: u64, pages_per_block: u64) -> usize {
        let of_a_miss = match self.backend {
            Backend::System(costs) => u64::from(costs.cluster) + u64::from(costs.batch),
            Backend::Controller { .. } => 1,
            // A log may clean several segments.
            Backend::Runtime(_) | Backend::Flat { .. } => FLASH_DEPTH,
        };
        let writes = (u64::from(self.buffer) + of_a_miss) * (2 * pages_per_block + 2);
        ((self.frames() + writes) * parts).min(FLASH_DEPTH) as usize
    }
    pub(super) fn home<R: Replacement>(
        &self,
        number: u32,
        seed: u64,
        policy: &mut impl FnMut(usize) -> R,
    ) -> Option<Home<R>> {
        let (frames, units) = (self.frames().min(self.units()) as u32, self.units() as u32);
        let device = match self.device? {
            DeviceKind::Rated(shape) => Device::Rated(Rated::new(shape, self.page)),
            DeviceKind::Nand(profile, filled) => {
                let parts = self.page / u64::from(profile.geometry.page_bytes());
                let depth = self.depth(parts, u64::from(profile.geometry.pages_per_block()));
                let flash = FlashPages::new(profile, filled, depth, seed ^ u64::from(number) << 32).ok()?;
                Device::Nand(Box::new(flash), parts as u32)
            }
        };
        let prefetch = match self.backend {
            Backend::Controller { prefetch, .. } => prefetch,
            _ => PrefetchPolicy::Off,
        };
        Some(Home {
            frames: Frames::new(policy(frames as usize), units),
            prefetcher: Prefetcher::new(prefetch),
            waiting: vec![Vec::new(); frames as usize],
            left: vec![0; frames as usize],
            device,
            log: match self.backend {
                Backend::Runtime(costs) => Some(self.new_log(costs)),
                _ => None,
            },
            swap: match self.backend {
                Backend::System(costs) if costs.slots == Slots::Swap => Some(SwapMap::new(units)),
                _ => None,
            },
            writing: 0,
            throttled: VecDeque::new(),
        })
    }
}
