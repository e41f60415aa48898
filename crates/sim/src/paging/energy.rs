//! Power and energy of a memory system: DRAM, controllers, and the device behind them.
//!
//! DRAM takes what [`DramEnergy`] says. A controller takes power and energy for each
//! request. NAND counts its own energy by operation (`crates/nand`). A drive is idle or busy.

use serde::Serialize;

use crate::energy::DramEnergy;
use crate::system::{Document, SystemError};

/// What parts take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Energy {
    /// DRAM.
    pub dram: DramEnergy,
    /// Watts of each controller.
    pub controller_w: f64,
    /// Joules of each request that a controller serves.
    pub request_j: f64,
    /// Watts of the device while it is idle: for NAND, what its counters do not have.
    pub idle_w: f64,
    /// Watts more while a drive is busy. None with NAND, whose operations are counted.
    pub busy_w: Option<f64>,
}

/// What a run has done, in what energy is spent on.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Simulated seconds.
    pub seconds: f64,
    /// Bytes of DRAM.
    pub dram: u64,
    /// Bytes that crossed its bus.
    pub moved: u64,
    /// Controllers, and requests that they served.
    pub controllers: u32,
    /// Requests.
    pub requests: u64,
    /// Devices, and joules that NAND has counted.
    pub devices: u32,
    /// Joules.
    pub nand_j: f64,
    /// Seconds in which drives were busy.
    pub busy_s: f64,
}

/// Average power of the measurement in watts, and its energy.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Power {
    /// DRAM in standby.
    pub dram_standby_w: f64,
    /// Its refresh.
    pub dram_refresh_w: f64,
    /// Data that it moved.
    pub dram_access_w: f64,
    /// Controllers.
    pub controllers_w: f64,
    /// The device, or the devices.
    pub device_w: f64,
    /// All of it.
    pub total_w: f64,
    /// Joules: power times time.
    pub energy_j: f64,
    /// Nanojoules of an access.
    pub access_nj: f64,
}

impl Energy {
    /// Reads it. `drive`: the device is no NAND.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document, device: bool, drive: bool) -> Result<Energy, SystemError> {
        Ok(Energy {
            dram: DramEnergy::read(document)?,
            controller_w: document.power("energy.controller")?,
            request_j: document.energy("energy.request")?,
            idle_w: if device { document.power("energy.idle")? } else { 0.0 },
            busy_w: if drive { Some(document.power("energy.busy")?) } else { None },
        })
    }
    /// What this work takes, of `accesses` accesses.
    pub fn power(&self, work: &Work, accesses: u64) -> Power {
        let dram = self.dram.power(work.dram, work.moved, work.seconds);
        let each = |joules: f64| joules / work.seconds;
        let busy_j = self.busy_w.unwrap_or(0.0) * work.busy_s;
        let mut power = Power {
            dram_standby_w: dram.standby_w,
            dram_refresh_w: dram.refresh_w,
            dram_access_w: dram.access_w,
            controllers_w: f64::from(work.controllers) * self.controller_w
                + each(work.requests as f64 * self.request_j),
            device_w: f64::from(work.devices) * self.idle_w + each(work.nand_j + busy_j),
            total_w: 0.0,
            energy_j: 0.0,
            access_nj: 0.0,
        };
        power.total_w =
            power.dram_standby_w + power.dram_refresh_w + power.dram_access_w + power.controllers_w + power.device_w;
        power.energy_j = power.total_w * work.seconds;
        power.access_nj = power.energy_j * 1e9 / accesses as f64;
        power
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_power_times_time() {
        let energy = Energy {
            dram: DramEnergy { standby_w: 0.06, refresh_w: 0.02, byte_j: 500e-12 },
            controller_w: 1.0,
            request_j: 1e-9,
            idle_w: 0.5,
            busy_w: Some(2.0),
        };
        let work = Work {
            seconds: 2.0,
            dram: 8 << 30,
            moved: 20_000_000_000,
            controllers: 2,
            requests: 1_000_000_000,
            devices: 2,
            nand_j: 3.0,
            busy_s: 0.5,
        };
        let power = energy.power(&work, 1000);
        assert!((power.dram_standby_w - 0.48).abs() < 1e-12 && (power.dram_refresh_w - 0.16).abs() < 1e-12);
        assert!((power.dram_access_w - 5.0).abs() < 1e-12 && (power.controllers_w - 2.5).abs() < 1e-12);
        assert!((power.device_w - (1.0 + 2.0)).abs() < 1e-12);
        assert!((power.energy_j - power.total_w * 2.0).abs() < 1e-12);
        assert!((power.access_nj - power.energy_j * 1e6).abs() < 1e-3);
    }
}
