//! A device of Fulgurite's for a run: firmware with the store over the NAND model.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use fulgurite_backing::{Base, NandBase, NandHistory};
use fulgurite_device::DeviceFlash;
use fulgurite_flash::{Flash, NandFlash, PartOfFlash};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_sys::Arena;

use super::handle::open_shared;
use super::pool;
use super::protocol::PoolSpec;
use fulgurite_term::media::nand::NandSpec;
use fulgurite_term::media::nand::fitted;

/// Opens the device at a socket, or a part of it. Data are copied, or frames are shared.
///
/// # Errors
/// When nobody listens there, or it has less room than `subpages`.
pub fn attached(socket: &Path, frames: bool, part: Option<(u32, u32)>, subpages: u32) -> Result<Arc<dyn Flash>> {
    let base = Base::Served { socket: socket.to_owned(), share_frames: frames, alone: false };
    let mut device = base.open()?.flash;
    if let Some((first, count)) = part {
        let part = PartOfFlash::new(device, first, count);
        device = Arc::new(part.context("the device has become smaller than it was")?);
    }
    if device.subpages() < subpages {
        bail!(
            "the device at {} has {} for each configuration, and the data with what a pool needs in addition takes {}; serve a larger one, or \
             choose less --data",
            socket.display(),
            format_bytes(u64::from(device.subpages()) << 12),
            format_bytes(u64::from(subpages) << 12)
        );
    }
    Ok(device)
}

/// A device that was filled: the driver that the runtime sees, and the NAND under it.
pub struct Made {
    pub device: Arc<DeviceFlash>,
    pub nand: Arc<NandFlash>,
}

/// NAND over memory that is there, as large as `flash_pages` flash pages need.
pub fn flash(spec: &NandSpec, flash_pages: u32) -> Result<Arc<NandFlash>> {
    let (profile, config) = fitted(spec, flash_pages, None)?;
    let storage = Arc::new(Arena::shared(open_shared(&spec.storage)?)?);
    let pages = u32::try_from(storage.len() / SUBPAGE_BYTES).context("more memory than a flash can have")?;
    let cells = Base::Memory { subpages: pages, storage: Some(storage) };
    let laid = Base::Nand(Box::new(NandBase { cells, profile, config, history: NandHistory::New })).open()?;
    laid.nand.context("NAND was opened as something else")
}

/// Makes a device over it, with the data in it.
///
/// # Errors
/// When it cannot be made, or its data not be written.
pub fn made(spec: &NandSpec, pool: &PoolSpec, region_bytes: u64, core: Option<usize>) -> Result<Made> {
    let nand = flash(spec, pool.flash_pages)?;
    let below: Arc<dyn Flash> = nand.clone();
    let store = pool::filled(&below, pool, region_bytes, nand.extent_pages())?;
    Ok(Made { device: fulgurite_backing::on_device(store, core)?, nand })
}
