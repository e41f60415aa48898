//! A device that a test plays: it makes regions, and completes nothing by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fulgurite_device::*;
use fulgurite_flash::{DeviceCounters, OpenError};
use fulgurite_sys::Notifier;

/// A device that the test plays, with each queue pair that is opened.
pub struct Played {
    pub opened: Mutex<Vec<Arc<Region>>>,
    pub sectors: u32,
    pub open: AtomicU64,
    pub features: Features,
    /// By region: it was opened to write once more what a device had lost.
    pub restoring: Mutex<Vec<bool>>,
    /// Of the regions that are opened from now on.
    pub instance: AtomicU64,
    /// The sectors in the registers of later regions, where that is not `sectors`; else 0.
    pub said_sectors: AtomicU64,
}

pub struct Held;
impl Hold for Held {
    fn close(&mut self) {}
    fn has_let_go(&self) -> bool {
        true
    }
}

impl Link for Played {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        self.open.fetch_add(1, Ordering::Relaxed);
        let said = self.said_sectors.load(Ordering::Relaxed) as u32;
        let capability = Capability {
            sectors: if said == 0 { self.sectors } else { said },
            pairs: 1,
            depth: want.depth as u32,
            buffer_sectors: want.buffer_sectors,
            boot_sectors: 0,
            features: self.features,
            instance: self.instance.load(Ordering::Relaxed),
            command_sectors: 8,
        };
        let region = Arc::new(Region::create(capability, false).unwrap());
        let mut opened = self.opened.lock().unwrap();
        opened.push(region.clone());
        self.restoring.lock().unwrap().push(want.identity.restores);
        drop(opened);
        let doorbell: Arc<dyn Wake> = Arc::new(Notifier::new().unwrap());
        Ok(Linked {
            region,
            pair: 0,
            doorbell,
            life: Arc::default(),
            shares_frames: false,
            newest_token: 0,
            has_temporary: false,
            device_bytes: 0,
            hold: Box::new(Held),
        })
    }
    fn describe(&self) -> String {
        "played".to_owned()
    }
    fn sectors(&self) -> u32 {
        self.sectors
    }
    fn features(&self) -> Features {
        self.features
    }
    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

/// One that keeps what was written, and has no pages.
pub fn played() -> Arc<Played> {
    played_with(Features::KEEPS_WRITES)
}

pub fn played_with(features: Features) -> Arc<Played> {
    played_of(features, 100)
}

pub fn played_of(features: Features, sectors: u32) -> Arc<Played> {
    Arc::new(Played {
        opened: Mutex::default(),
        restoring: Mutex::default(),
        sectors,
        open: AtomicU64::new(0),
        features,
        instance: AtomicU64::new(1),
        said_sectors: AtomicU64::new(0),
    })
}
