//! The boot region of a device: its image, and `device boot`, which reads it by plain loads.

use std::io::{IsTerminal, Read, stdout};
use std::path::Path;

use anyhow::{Context, Error, Result, ensure};
use fulgurite_device::{BootImage, SECTOR_BYTES, SocketLink};
use fulgurite_format::format_bytes;

use super::args::BootArgs;
use fulgurite_term::bad_input::{BadInput, bad_input, socket_error};
use fulgurite_term::report;

/// Reads the image that `--boot` names.
///
/// # Errors
/// `BadInput` when there is none, it is no file, has no bytes, or has too many.
pub fn image(path: &Path) -> Result<BootImage> {
    let shown = path.display();
    let said = |error: std::io::Error| Error::new(BadInput(format!("--boot {shown}: {error}")));
    if !std::fs::metadata(path).map_err(said)?.is_file() {
        bad_input!("--boot {shown} is no regular file; name an image");
    }
    let mut bytes = Vec::new();
    // One more than an image may have shows one that has too many.
    let most = BootImage::BYTES_MAX as u64 + 1;
    std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(said)?;
    if bytes.is_empty() {
        bad_input!("--boot {shown} is empty; name an image");
    }
    match BootImage::new(bytes) {
        Ok(image) => Ok(image),
        Err(_) => {
            bad_input!(
                "--boot {shown} has more than {}; name a smaller image",
                format_bytes(BootImage::BYTES_MAX as u64)
            )
        }
    }
}

/// Writes a device's boot region to standard output.
pub fn run(args: &BootArgs) -> Result<()> {
    if stdout().is_terminal() {
        bad_input!("an image is not for a terminal; write it to a file: fulgurite device boot --socket PATH > FILE");
    }
    let region = SocketLink::boot(&args.socket).map_err(|error| socket_error("--socket", error))?;
    let mut bytes = vec![0; region.capability().boot_sectors as usize * SECTOR_BYTES];
    ensure!(region.read_boot(0, &mut bytes), "the boot region is not there");
    report::write_stdout(&bytes).context("the image could not be written")
}
