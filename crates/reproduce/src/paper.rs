//! The four publications, each with its calibration.

use crate::calibration::{Calibration, CalibrationError};

/// One of the four.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Paper {
    /// Gupta et al., AstriFlash: a flash-based system for online services, and its slides.
    AstriFlash,
    /// Badam and Pai, SSDAlloc: the slides.
    SsdAlloc,
    /// Storage on the DRAM interface.
    DramInterface,
    /// Nonvolatile main memory.
    Nvmm,
}

impl Paper {
    /// All of them, in the order of the checks.
    pub const ALL: [Paper; 4] = [Paper::AstriFlash, Paper::SsdAlloc, Paper::DramInterface, Paper::Nvmm];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Paper::AstriFlash => "AstriFlash",
            Paper::SsdAlloc => "SSDAlloc",
            Paper::DramInterface => "DRAM interface",
            Paper::Nvmm => "NVMM",
        }
    }
    /// The name and the text of its calibration.
    pub fn text(self) -> (&'static str, &'static str) {
        match self {
            Paper::AstriFlash => ("astriflash.toml", include_str!("../calibrations/astriflash.toml")),
            Paper::SsdAlloc => ("ssdalloc.toml", include_str!("../calibrations/ssdalloc.toml")),
            Paper::DramInterface => ("dram-interface.toml", include_str!("../calibrations/dram-interface.toml")),
            Paper::Nvmm => ("nvmm.toml", include_str!("../calibrations/nvmm.toml")),
        }
    }
    /// Its calibration.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn calibration(self) -> Result<Calibration, CalibrationError> {
        let (file, text) = self.text();
        Calibration::read(file, text)
    }
}
