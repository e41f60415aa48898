//! Power and energy of DRAM.
//!
//! DRAM takes power for each GiB that there is, whether it is used or not (standby and refresh),
//! and energy for each byte that crosses its bus, with what its array takes for that.

use serde::Serialize;

use crate::system::{Document, SystemError};

const GIB: f64 = (1u64 << 30) as f64;

/// What DRAM takes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DramEnergy {
    /// Watts of a GiB in standby.
    pub standby_w: f64,
    /// Watts of a GiB that refresh adds to that.
    pub refresh_w: f64,
    /// Joules of a byte that crosses the bus, with the array's part.
    pub byte_j: f64,
}

/// Its average power in a measurement in watts, and its energy.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DramPower {
    /// Standby.
    pub standby_w: f64,
    /// Refresh.
    pub refresh_w: f64,
    /// Data that was moved.
    pub access_w: f64,
    /// Joules of all of them: power times time.
    pub energy_j: f64,
}

impl DramEnergy {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document) -> Result<DramEnergy, SystemError> {
        Ok(DramEnergy {
            standby_w: document.power("energy.standby")?,
            refresh_w: document.power("energy.refresh")?,
            byte_j: document.energy("energy.byte")?,
        })
    }
    /// What `bytes` bytes of DRAM take that move `moved` bytes in `seconds` seconds.
    pub fn power(&self, bytes: u64, moved: u64, seconds: f64) -> DramPower {
        let gib = bytes as f64 / GIB;
        let (standby_w, refresh_w) = (gib * self.standby_w, gib * self.refresh_w);
        let access_w = moved as f64 * self.byte_j / seconds;
        DramPower { standby_w, refresh_w, access_w, energy_j: (standby_w + refresh_w + access_w) * seconds }
    }
}

impl DramPower {
    /// All of it, in watts.
    pub fn total_w(&self) -> f64 {
        self.standby_w + self.refresh_w + self.access_w
    }
    /// What a reader is shown.
    pub fn rows(&self) -> [(&'static str, String); 3] {
        [
            ("DRAM standby W", format!("{:.3}", self.standby_w)),
            ("DRAM refresh W", format!("{:.3}", self.refresh_w)),
            ("DRAM access W", format!("{:.3}", self.access_w)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_power_times_time() {
        let energy = DramEnergy { standby_w: 0.06, refresh_w: 0.02, byte_j: 500e-12 };
        let power = energy.power(8 << 30, 20_000_000_000, 2.0);
        assert!((power.standby_w - 0.48).abs() < 1e-12 && (power.refresh_w - 0.16).abs() < 1e-12);
        assert!((power.access_w - 5.0).abs() < 1e-12);
        assert!((power.energy_j - power.total_w() * 2.0).abs() < 1e-12);
    }
}
