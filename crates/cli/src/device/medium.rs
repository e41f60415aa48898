//! What lies behind the firmware of a device that this program runs: judged before anything is created, then opened.
//!
//! Invariant: [`Plan::of`] creates and changes nothing; after it, [`Plan::open`] fails only by the kernel's word, or because somebody
//! was faster.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use fulgurite_flash::{FileConfig, FileFlash, FileMode, Flash, MemoryFlash};
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_nand::Profile;
use fulgurite_sys::affinity;

use crate::bad_input::bad_input;
use crate::checks;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::pool::open::open_error;
use crate::progress;

/// Which NAND.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NandChoice {
    /// No model: the data alone.
    None,
    /// One that is built in.
    Named(String),
    /// One in a file.
    File(PathBuf),
}

impl NandChoice {
    /// Reads one: `none`, the name of a profile, or else a path.
    pub fn parse(text: &str) -> Result<NandChoice, String> {
        if text == "none" {
            return Ok(NandChoice::None);
        }
        if Profile::built_in_names().any(|name| name == text) {
            return Ok(NandChoice::Named(text.to_owned()));
        }
        // A bare word that is no file is a slip in a name.
        if !text.contains(['/', '.']) && !Path::new(text).exists() {
            let names: Vec<&str> = Profile::built_in_names().chain(["none"]).collect();
            return Err(format!(
                "there is no NAND profile of that name; there are {}, or write the path of a TOML file",
                names.join(", ")
            ));
        }
        Ok(NandChoice::File(text.into()))
    }
    /// The profile, checked.
    ///
    /// # Errors
    /// `BadInput` for a file that cannot be read, or is no device: the message names the key.
    pub fn profile(&self) -> Result<Option<Profile>> {
        let profile = match self {
            NandChoice::None => return Ok(None),
            NandChoice::Named(name) => Profile::built_in(name),
            NandChoice::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Profile::parse(&text),
                Err(e) => bad_input!("--nand {} cannot be read: {e}", path.display()),
            },
        };
        match profile {
            Ok(profile) => Ok(Some(profile)),
            Err(e) => bad_input!("--nand {self}: {e}"),
        }
    }
}

impl std::fmt::Display for NandChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NandChoice::None => f.write_str("none"),
            NandChoice::Named(name) => f.write_str(name),
            NandChoice::File(path) => path.display().fmt(f),
        }
    }
}

/// What is to be opened.
#[derive(Debug)]
pub struct Plan {
    bytes: u64,
    data: Option<(PathBuf, FileMode)>,
}

impl Plan {
    /// Judges it. Nothing is created.
    ///
    /// # Errors
    /// `BadInput`.
    pub fn of(nand: &NandChoice, size: Option<u64>, data: Option<&Path>, machine: &Machine) -> Result<Plan> {
        let profile = nand.profile()?;
        if let Some(size) = size {
            if !size.is_multiple_of(SUBPAGE_BYTES as u64) {
                bad_input!("--size {size} is no multiple of 4096; choose for example 8G");
            }
            if size / SUBPAGE_BYTES as u64 >= u64::from(u32::MAX) {
                bad_input!("--size {} is more than a device can have; choose less than 16T", format_bytes(size));
            }
        }
        // The place of the model in real time: its geometry decides what `data` must be, and `open` makes it the medium.
        if profile.is_some() {
            bad_input!("--nand {nand}: a NAND model cannot be served in real time by this build; use --nand none");
        }
        let (bytes, data) = match (data, size) {
            (None, None) => bad_input!("a device without --data needs --size; write for example --size 8G"),
            (None, Some(size)) => {
                checks::memory(size, size, machine)?;
                (size, None)
            }
            (Some(path), size) => {
                let (bytes, mode) = file(path, size)?;
                (bytes, Some((path.to_owned(), mode)))
            }
        };
        Ok(Plan { bytes, data })
    }
    /// Bytes of the device.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Whether what is written survives this process.
    pub fn keeps_writes(&self) -> bool {
        self.data.is_some()
    }
    /// Opens it; makes the file first, if there is none.
    ///
    /// # Errors
    /// The medium's.
    pub fn open(&self, interrupt: &Interrupt) -> Result<Arc<dyn Flash>> {
        let Some((path, mode)) = &self.data else {
            return Ok(Arc::new(MemoryFlash::new((self.bytes / SUBPAGE_BYTES as u64) as u32)?));
        };
        let config = FileConfig { mode: *mode, ..FileConfig::existing(path) };
        let bar = progress::share(&format!("writing {}", path.display()));
        let flash = FileFlash::open_with_progress(&config, &mut |done, all| {
            progress::set_share(&bar, done as f64 / all as f64);
            if interrupt.asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.finish_and_clear();
        Ok(Arc::new(flash.map_err(open_error)?))
    }
}

/// The file of a device: how many bytes of it, and whether it is to be made.
fn file(path: &Path, size: Option<u64>) -> Result<(u64, FileMode)> {
    let shown = path.display();
    if matches!(std::fs::symlink_metadata(path), Err(e) if e.kind() == std::io::ErrorKind::NotFound) {
        let Some(size) = size else {
            bad_input!("--data {shown} does not exist; add --size to make it, or name an existing file")
        };
        let parent = checks::parent_of(path);
        if !parent.is_dir() {
            bad_input!("--data {shown}: the directory {} does not exist", parent.display());
        }
        if rustix::fs::access(&parent, rustix::fs::Access::WRITE_OK).is_err() {
            bad_input!("--data {shown} cannot be created: no right to write in {}", parent.display());
        }
        checks::space("--data", &parent, size)?;
        return Ok((size, FileMode::Create { bytes: size }));
    }
    // Judged, opened and locked as whoever writes to it does; it is let go of until then.
    let found = match fulgurite_flash::claim(path) {
        Ok(file) => file.bytes()?,
        Err(e) => bad_input!("--data {e}"),
    };
    let bytes = size.unwrap_or(found);
    if found < bytes {
        let (found, bytes) = (format_bytes(found), format_bytes(bytes));
        bad_input!("--data {shown} has {found}, and --size asks for {bytes}; make it larger, or ask for less");
    }
    if bytes == 0 || !bytes.is_multiple_of(SUBPAGE_BYTES as u64) {
        bad_input!("--data {shown} has {bytes} bytes, no whole number of sectors of 4 KiB; add --size");
    }
    Ok((bytes, FileMode::Existing { bytes: Some(bytes) }))
}

/// The core that the firmware runs on: the one asked for, else the last, where the host has another.
///
/// # Errors
/// `BadInput` for a core that this process may not use.
pub fn core(asked: Option<usize>) -> Result<Option<usize>> {
    let cores = affinity::cores();
    match asked {
        Some(core) if !cores.contains(&core) => {
            let all: Vec<String> = cores.iter().map(ToString::to_string).collect();
            bad_input!("--core {core} is none that this process may use; choose one of {}", all.join(", "))
        }
        Some(core) => Ok(Some(core)),
        None => Ok(cores.last().copied().filter(|_| cores.len() > 1)),
    }
}
