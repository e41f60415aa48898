//! The connection to a device of this process.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use fulgurite_flash::{DeviceCounters, OpenError};
use fulgurite_sys::Clock;

use super::link::{Hold, Link, Linked, Want};
use crate::device::{Attachment, Device};
use crate::firmware::Wake;
use crate::hosts::{OpenPair, Refusal};
use crate::region::{Capability, Features, Region};

/// A queue pair of a device in this process.
struct LocalPair {
    attachment: Attachment,
    clock: Clock,
    /// Until the device has let go of the pair.
    _open: OpenPair,
}

impl Hold for LocalPair {
    fn close(&mut self) {
        self.attachment.close();
    }
    fn has_let_go(&self) -> bool {
        self.attachment.has_let_go()
    }
}

impl Drop for LocalPair {
    fn drop(&mut self) {
        self.attachment.close();
        // Until then something of it may be written, and the next host must find that.
        while !self.attachment.has_let_go() {
            self.clock.sleep(Duration::from_micros(50));
        }
    }
}

impl Link for Device {
    fn open(&self, want: &Want<'_>) -> Result<Linked, OpenError> {
        let frames = want.frames.cloned();
        let buffer = if frames.is_some() { 0 } else { want.buffer_sectors };
        // Nobody boots from a device of its own process.
        let capability = Capability { boot_sectors: 0, ..self.backend().capability(1, want.depth, buffer) };
        let place = self.admit(want.identity, usize::MAX).map_err(|refusal| {
            let kind = match refusal {
                Refusal::Restoring | Refusal::TakingBack => ErrorKind::NotConnected,
                Refusal::Shared => ErrorKind::ResourceBusy,
                _ => ErrorKind::Other,
            };
            OpenError::System { what: "attach to the device", source: io::Error::new(kind, refusal) }
        })?;
        let refused = |error| OpenError::System { what: "make a region", source: io::Error::other(error) };
        let region = Arc::new(Region::create(capability, false).map_err(refused)?);
        place.set_region(&region);
        let shares_frames = frames.is_some();
        let attachment = self.attach(&region, 0, frames, want.wake.clone())?;
        let (doorbell, life): (Arc<dyn Wake>, _) = (attachment.doorbell().clone(), attachment.life().clone());
        let device_bytes = attachment.bytes();
        let hold = Box::new(LocalPair { attachment, clock: self.clock().clone(), _open: place });
        Ok(Linked {
            region,
            pair: 0,
            doorbell,
            life,
            shares_frames,
            newest_token: 0,
            has_temporary: false,
            device_bytes,
            hold,
        })
    }
    fn has_own_core(&self) -> bool {
        Device::has_own_core(self)
    }
    fn may_forget(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        self.flash().describe()
    }
    fn sectors(&self) -> u32 {
        self.flash().subpages()
    }
    fn features(&self) -> Features {
        self.backend().features()
    }
    fn counters(&self) -> DeviceCounters {
        let mut counters = self.flash().counters();
        counters.device_cpu_ns += u64::try_from(self.cpu().as_nanos()).unwrap_or(u64::MAX);
        counters
    }
    fn dram_bytes(&self) -> usize {
        self.flash().traits().dram_bytes
    }
}
