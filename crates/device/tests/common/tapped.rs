//! A connection to a device whose shared memory the test can reach.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fulgurite_device::*;
use fulgurite_flash::{DeviceCounters, OpenError};

/// Any connection to a device, and all regions that were opened by it.
pub struct Tapped {
    link: Box<dyn Link>,
    pub regions: Mutex<Vec<Arc<Region>>>,
    pub opened: AtomicU64,
}

impl Tapped {
    pub fn new(link: impl Link + 'static) -> Arc<Tapped> {
        Arc::new(Tapped { link: Box::new(link), regions: Mutex::default(), opened: AtomicU64::new(0) })
    }
}

impl Link for Tapped {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        let linked = self.link.open(want)?;
        let mut regions = self.regions.lock().unwrap();
        // Those that nobody has any more but this.
        regions.retain(|region| Arc::strong_count(region) > 1);
        regions.push(linked.region.clone());
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(linked)
    }
    fn describe(&self) -> String {
        self.link.describe()
    }
    fn sectors(&self) -> u32 {
        self.link.sectors()
    }
    fn features(&self) -> Features {
        self.link.features()
    }
    fn counters(&self) -> DeviceCounters {
        self.link.counters()
    }
    fn has_own_core(&self) -> bool {
        self.link.has_own_core()
    }
    fn takes_frames(&self) -> bool {
        self.link.takes_frames()
    }
    fn may_forget(&self) -> bool {
        self.link.may_forget()
    }
    fn is_alone(&self) -> bool {
        self.link.is_alone()
    }
    fn names_states(&self) -> bool {
        self.link.names_states()
    }
    fn dram_bytes(&self) -> usize {
        self.link.dram_bytes()
    }
}
