//! What holds the data, below any store and any device of this process.
//!
//! [`Base::open`] opens it for the library, the benchmarks, and what a device serves. The files
//! that a pool spans and the administration of pools are opened by functions of their own. A base
//! describes all of a medium, where [`crate::Medium`] names what users choose.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite_flash::{
    EmulatedConfig, EmulatedFlash, FileConfig, FileFlash, Flash, MemoryFlash, NandFlash, TimedFlash,
};
use fulgurite_nand::{FilConfig, Profile};
use fulgurite_sys::Arena;

use crate::{Error, devices};

/// What holds the data.
#[derive(Clone, Debug)]
pub enum Base {
    /// Plain memory.
    Memory {
        /// Its size.
        subpages: u32,
        /// Where the data is; none takes fresh memory, all zero.
        storage: Option<Arc<Arena>>,
    },
    /// A device with the latencies of flash, played by a thread of its own.
    Emulated(EmulatedConfig),
    /// A device with the latencies of flash, played by the thread that drives it. A device of this
    /// process uses it.
    Timed(EmulatedConfig),
    /// A model of NAND, in real time.
    Nand(Box<NandBase>),
    /// A file or a block device.
    File(FileConfig),
    /// A device of another process, by the socket that it listens at.
    Served {
        /// Where it listens.
        socket: PathBuf,
        /// This program's frames are handed to it.
        share_frames: bool,
        /// No other program may use it at the same time.
        alone: bool,
    },
}

/// NAND by a model.
#[derive(Clone, Debug)]
pub struct NandBase {
    /// What has its data.
    pub cells: Base,
    /// Its geometry and timing.
    pub profile: Profile,
    /// How it is divided.
    pub config: FilConfig,
    /// Whether it is new.
    pub history: NandHistory,
}

/// What was done with NAND before it is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NandHistory {
    /// Nothing: it is erased.
    New,
    /// It was written, with this state ([`NandFlash::state`]) at the end where that is known.
    Used(Option<Vec<u8>>),
}

/// A base that was opened. Its kind is there a second time where more than a flash can be asked.
#[derive(Clone)]
pub struct OpenBase {
    /// The medium.
    pub flash: Arc<dyn Flash>,
    /// The file that it is, or that has the data of its NAND.
    pub file: Option<Arc<FileFlash>>,
    /// The NAND that it is.
    pub nand: Option<Arc<NandFlash>>,
}

impl OpenBase {
    /// Gives a file that was created aside its name.
    ///
    /// # Errors
    /// What the kernel says, and that something else has the name by now.
    pub fn finish(&self) -> Result<(), Error> {
        Ok(self.file.iter().try_for_each(|file| file.finish())?)
    }
}

impl Base {
    /// Fresh memory of this size.
    #[must_use]
    pub fn memory(subpages: u32) -> Base {
        Base::Memory { subpages, storage: None }
    }
    /// Opens it.
    ///
    /// # Errors
    /// [`Error::Open`] and [`Error::Device`], before anything is created or changed.
    pub fn open(&self) -> Result<OpenBase, Error> {
        self.open_with_progress(&mut |_, _, _| ControlFlow::Continue(()))
    }
    /// Opens the base like [`Base::open`]. While a file is created, `progress` gets its path, the
    /// bytes written and the bytes in all, and may stop it.
    ///
    /// # Errors
    /// As [`Base::open`], and [`fulgurite_flash::OpenError::Stopped`].
    pub fn open_with_progress(
        &self,
        progress: &mut dyn FnMut(&Path, u64, u64) -> ControlFlow<()>,
    ) -> Result<OpenBase, Error> {
        let flash: Arc<dyn Flash> = match self {
            Base::Memory { subpages, storage: None } => Arc::new(MemoryFlash::new(*subpages)?),
            Base::Memory { subpages, storage: Some(storage) } => {
                Arc::new(MemoryFlash::over(storage.clone(), *subpages)?)
            }
            Base::Emulated(config) => Arc::new(EmulatedFlash::new(config.clone())?),
            Base::Timed(config) => Arc::new(TimedFlash::new(config.clone())?),
            Base::Served { socket, share_frames, alone: true } => devices::alone(socket, *share_frames)?,
            Base::Served { socket, share_frames, alone: false } => devices::open_shared(socket, *share_frames)?,
            Base::Nand(nand) => {
                let NandBase { cells, profile, config, history } = &**nand;
                let OpenBase { flash: cells, file, .. } = cells.open_with_progress(progress)?;
                let nand = Arc::new(match history {
                    NandHistory::New => NandFlash::new(cells, *profile, *config)?,
                    NandHistory::Used(state) => NandFlash::reopened_with(cells, *profile, *config, state.as_deref())?,
                });
                return Ok(OpenBase { flash: nand.clone(), file, nand: Some(nand) });
            }
            Base::File(config) => {
                let file = Arc::new(FileFlash::open_with_progress(config, &mut |done, all| {
                    progress(&config.path, done, all)
                })?);
                return Ok(OpenBase { flash: file.clone(), file: Some(file), nand: None });
            }
        };
        Ok(OpenBase { flash, file: None, nand: None })
    }
}
