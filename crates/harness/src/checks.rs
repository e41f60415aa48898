//! Checks before anything is created: sizes against this machine, paths, cores. Each failure is one
//! sentence ([`fulgurite_term::bad_input::BadInput`], exit code 2).

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fulgurite_device::{Features, Link as _, SocketLink};
use fulgurite_format::format_bytes;
use fulgurite_runtime::Needs;
use fulgurite_store::Head;
pub use fulgurite_term::checks::*;

use crate::args::FlashArgs;
use crate::values::{FlashChoice, Size};
use fulgurite_term::bad_input::{OrBadInput, bad_input};
use fulgurite_term::machine::Machine;
use fulgurite_term::media::of_a_benchmark;

/// Workers have cores, each its own.
pub fn workers(workers: u32, machine: &Machine) -> Result<()> {
    if workers as usize > machine.cores {
        let cores = machine.cores;
        bad_input!(
            "--workers {workers} is more than the {cores} cores that this process may use; choose at most {cores}"
        );
    }
    Ok(())
}

/// DRAM of the guarded path: the runtime's tables, stacks, queues, and each request's frames.
pub fn least_dram(data_bytes: u64, workers: u32, fibers: u32) -> u64 {
    let needs = Needs::of(data_bytes, workers as usize, fibers as usize);
    needs.fixed_bytes + u64::from(workers) * u64::from(fibers) * REQUEST_FRAMES * needs.per_frame_bytes
}

/// Frames that a request in the middle of its work keeps busy, about.
const REQUEST_FRAMES: u64 = 4;

/// The DRAM budget is within the machine, as far as can be said without the data.
fn dram_of_machine(args: &FlashArgs, machine: &Machine) -> Result<()> {
    if let Size::Bytes(bytes) = args.dram
        && bytes > machine.memory_bytes
    {
        let has = format_bytes(machine.memory_bytes);
        bad_input!("--dram {} is more than this machine has ({has}); choose less", format_bytes(bytes));
    }
    Ok(())
}

/// Checks the flash and the machine as far as the size of the data does not matter. `on_flash`
/// processes use the flash at the same time.
pub fn before_data(args: &FlashArgs, on_flash: u64, machine: &Machine) -> Result<()> {
    workers(args.workers, machine)?;
    dram_of_machine(args, machine)?;
    flash(args.wanted(), on_flash, 0)?;
    scratch(args).map(|_| ())
}

/// Bytes that the file or device of --flash can hold. None for new files and memory.
pub fn flash_bytes(args: &FlashArgs) -> Result<Option<u64>> {
    match args.choice() {
        FlashChoice::File(path) if !args.on.create => Ok(Some(fulgurite_flash::claim(path)?.bytes()?)),
        FlashChoice::Device(socket) => {
            let link = SocketLink::connect(socket, args.on.share_frames)?;
            Ok(Some(u64::from(link.sectors()) << 12))
        }
        _ => Ok(None),
    }
}

/// What the device that listens at a socket can do.
///
/// # Errors
/// [`fulgurite_term::bad_input::BadInput`] where none does.
pub fn device_features(socket: &Path) -> Result<Features> {
    Ok(connect(socket, false)?.features())
}
/// The device of --flash.
fn connect(socket: &Path, frames: bool) -> Result<SocketLink> {
    SocketLink::connect(socket, frames).or_bad_input(|error| format!("--flash device:{}: {error}", socket.display()))
}
/// A device listens there, with room for the data of each of the processes that have a part of it.
fn device(socket: &Path, frames: bool, on_flash: u64, data_bytes: u64) -> Result<()> {
    let link = connect(socket, frames)?;
    if frames && !link.takes_frames() {
        bad_input!(
            "the device at {} takes no frames, as its data are in a file that the kernel moves them from and to; leave out --share-frames",
            socket.display()
        );
    }
    let has = u64::from(link.sectors()) << 12;
    if part_of_device(has, on_flash) < data_bytes {
        let needed = on_flash.max(1).saturating_mul(data_bytes.next_multiple_of(fulgurite_format::PAGE_BYTES as u64));
        let configurations = match on_flash {
            0 | 1 => String::new(),
            more => format!(" for each of {more} configurations that run at the same time"),
        };
        bad_input!(
            "the device at {} has {}, and {} of data{configurations} take {}; serve a larger one, or choose less --data{}",
            socket.display(),
            format_bytes(has),
            format_bytes(data_bytes),
            format_bytes(needed),
            if on_flash > 1 { " or fewer --config" } else { "" }
        );
    }
    Ok(())
}
/// Bytes of a device for each of `on_flash` processes: whole pages, so that each trims only its
/// own.
pub fn part_of_device(device_bytes: u64, on_flash: u64) -> u64 {
    let page = fulgurite_format::PAGE_BYTES as u64;
    match on_flash {
        0 | 1 => device_bytes,
        more => device_bytes / more / page * page,
    }
}
/// What is asked for by `--flash`, and what else is said of it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'w> {
    /// Which.
    pub flash: &'w FlashChoice,
    /// A file is to be made.
    pub create: bool,
    /// Whatever a file or block device holds.
    pub force: bool,
    /// The device of another process is given the frames.
    pub share_frames: bool,
}

/// The flash can hold `data_bytes` for each of `on_flash` processes. Returns a path's kind.
pub fn flash(wanted: Wanted<'_>, on_flash: u64, data_bytes: u64) -> Result<Option<FlashPath>> {
    if wanted.share_frames && !matches!(wanted.flash, FlashChoice::Device(_)) {
        bad_input!("--share-frames needs --flash device:SOCKET");
    }
    let FlashChoice::File(path) = wanted.flash else {
        if wanted.create {
            bad_input!("--create needs --flash FILE");
        }
        match wanted.flash {
            FlashChoice::Nand(choice) => drop(fulgurite_term::media::nand_profile(choice)?),
            FlashChoice::Device(socket) => device(socket, wanted.share_frames, on_flash, data_bytes)?,
            _ => {}
        }
        return Ok(None);
    };
    let found = flash_path(path, wanted.create, wanted.force, data_bytes, on_flash)?;
    if found == FlashPath::Device && on_flash > 1 {
        bad_input!(
            "--flash names a device, which one process at a time can use, and {on_flash} are to run at the same time; choose for \
             example --config fulgurite, and one of the --workers"
        );
    }
    Ok(Some(found))
}

/// The DRAM budget: within the machine, above the metadata.
pub fn dram(args: &FlashArgs, data_bytes: u64, machine: &Machine) -> Result<u64> {
    dram_of_machine(args, machine)?;
    let bytes = args.dram.of(data_bytes);
    let least = least_dram(data_bytes, args.workers, args.fibers);
    if bytes < least {
        let (has, more) = match args.dram {
            Size::Bytes(_) => (format!("--dram {}", format_bytes(bytes)), "give more"),
            // Of little data any share is little: the share is not what was wrong.
            Size::Percent(_) => {
                (format!("--dram {}, which is {},", args.dram, format_bytes(bytes)), "choose more --data or --dram")
            }
        };
        bad_input!(
            "{has} is too little: {} of data, {} workers and {} fibers need at least {} for tables, stacks and a few frames; \
             {more}, or use fewer --fibers",
            format_bytes(data_bytes),
            args.workers,
            args.fibers,
            format_bytes(least)
        );
    }
    Ok(bytes)
}

/// The machine's memory holds what will be in it at once.
pub fn memory(needed_bytes: u64, data_bytes: u64, machine: &Machine) -> Result<()> {
    // A tenth is left for everybody else.
    if needed_bytes > machine.available_bytes / 10 * 9 {
        bad_input!(
            "{} of data in these configurations needs about {} of memory at once, and {} is available; choose less --data or \
             fewer --config",
            format_bytes(data_bytes),
            format_bytes(needed_bytes),
            format_bytes(machine.available_bytes)
        );
    }
    Ok(())
}

/// What a flash path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlashPath {
    /// A regular file that exists.
    File,
    /// A block device.
    Device,
    /// Nothing yet; it will be created.
    New,
}

/// The flash path can be used for `bytes` in `copies` files (on a device in turn).
pub fn flash_path(path: &Path, create: bool, force: bool, bytes: u64, copies: u64) -> Result<FlashPath> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if !create {
                bad_input!("--flash {shown} does not exist; name an existing file or block device, or add --create");
            }
            let parent = parent_of(path);
            if !parent.is_dir() {
                bad_input!("--flash {shown}: the directory {} does not exist", parent.display());
            }
            if rustix::fs::access(&parent, rustix::fs::Access::WRITE_OK).is_err() {
                bad_input!("--flash {shown} cannot be created: no right to write in {}", parent.display());
            }
            space("--flash", &parent, bytes.saturating_mul(copies))?;
            return Ok(FlashPath::New);
        }
        Err(e) => bad_input!("--flash {shown} cannot be read: {e}"),
        Ok(_) => {}
    }
    if create {
        bad_input!("--create: {shown} exists and is not overwritten; name another path, or leave --create out");
    }
    // Checked, opened and locked as for writing: no other process has it.
    let file = fulgurite_flash::claim(path).or_bad_input(|e| format!("--flash {e}"))?;
    let head = Head::of(&file)?;
    let has = head.bytes;
    // Leftovers of a benchmark are reused in silence. Other pools are refused.
    if !force && head.pool().is_some_and(|pool| !pool.is_ok_and(of_a_benchmark)) {
        bad_input!("--flash {shown} is a pool; name another path, or add --force to overwrite that pool");
    }
    if !force && let Some(what) = head.known_as() {
        bad_input!("--flash {shown} holds {what}; name another path, or add --force to overwrite it");
    }
    if has < bytes {
        let (has, needed) = (format_bytes(has), format_bytes(bytes));
        bad_input!("--flash {shown} has {has} and {needed} are needed; make it larger, or choose less --data");
    }
    if file.metadata()?.file_type().is_block_device() {
        return Ok(FlashPath::Device);
    }
    space("--flash", &parent_of(path), bytes.saturating_mul(copies.saturating_sub(1)))?;
    Ok(FlashPath::File)
}

/// The directory of swap files and mapped files.
pub fn scratch(args: &FlashArgs) -> Result<PathBuf> {
    scratch_directory(args.place.dir.as_deref(), Some(args.choice()))
}

/// The directory that was named, else the directory of the flash file, else the temporary one.
pub fn scratch_directory(named: Option<&Path>, flash: Option<&FlashChoice>) -> Result<PathBuf> {
    // Without --dir, the message names the option that chose the directory.
    let (directory, from) = match (named, flash) {
        (Some(directory), _) => (directory.to_owned(), "--dir".to_owned()),
        (None, Some(FlashChoice::File(path))) if !path.starts_with("/dev") => {
            (parent_of(path), format!("--flash {}: the directory", path.display()))
        }
        _ => (std::env::temp_dir(), "the temporary directory".to_owned()),
    };
    if !directory.is_dir() {
        let shown = directory.display();
        match named {
            Some(_) => bad_input!("{from} {shown} is not a directory; create it, or name another one"),
            None => bad_input!("{from} {shown} does not exist; make it, or name another with --dir"),
        }
    }
    Ok(directory)
}

/// A directory with at least one file of text.
pub fn input(directory: &Path) -> Result<()> {
    let shown = directory.display();
    if !directory.exists() {
        bad_input!("--input {shown} does not exist; name a directory with text");
    }
    if !directory.is_dir() {
        bad_input!("--input {shown} is not a directory; name the directory that it is in");
    }
    if !has_text(directory) {
        bad_input!("--input {shown} holds no readable text; name another directory");
    }
    Ok(())
}

/// Whether this directory or one below it has a file of text. Symbolic links are not followed.
fn has_text(directory: &Path) -> bool {
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() && is_text(&entry.path()) => return true,
                _ => {}
            }
        }
    }
    false
}

/// Whether the beginning of a file is text with a word in it: UTF-8 without control characters.
fn is_text(path: &Path) -> bool {
    use io::Read;
    let mut head = Vec::new();
    let Ok(file) = fs::File::open(path) else { return false };
    if file.take(4096).read_to_end(&mut head).is_err() {
        return false;
    }
    let text = match std::str::from_utf8(&head) {
        Ok(text) => text,
        // Cut inside a character.
        Err(e) if e.error_len().is_none() => std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or_default(),
        Err(_) => return false,
    };
    text.chars().any(char::is_alphanumeric) && !text.chars().any(|c| c.is_control() && !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_distinguished_from_noise() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        assert!(is_text(&at("a", b"some words\n")));
        assert!(is_text(&at("b", "é".repeat(3000).as_bytes())));
        assert!(!is_text(&at("c", b"\x7fELF\x02\x01\x00")));
        assert!(!is_text(&at("d", b"")));
        assert!(!is_text(&at("e", &[0xff, 0xfe, 65])));
    }
    #[test]
    fn more_of_anything_needs_more_dram() {
        let least = least_dram(1 << 30, 1, 64);
        assert!(least_dram(2 << 30, 1, 64) > least && least_dram(1 << 30, 2, 64) > least);
        assert!(least < (1 << 30) * 3 / 100);
    }
}
