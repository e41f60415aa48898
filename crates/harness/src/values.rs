//! The names that options of what is compared take.

use std::fmt;
use std::path::PathBuf;

use fulgurite_term::media::{NandChoice, nand_choice as nand};
use fulgurite_term::named;
pub use fulgurite_term::values::*;

/// What plays the flash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlashChoice {
    /// A device thread on another core.
    Emulated,
    /// Plain memory: completes at once.
    Memory,
    /// A device of Fulgurite's in this process: firmware with the journaled store over the NAND
    /// model.
    Nand(NandChoice),
    /// An emulated device in a process of its own: the socket of `fulgurite device serve`.
    Device(PathBuf),
    /// A file or block device.
    File(PathBuf),
}

impl fmt::Display for FlashChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashChoice::Emulated => f.write_str("emulated"),
            FlashChoice::Memory => f.write_str("memory"),
            FlashChoice::Nand(nand) => write!(f, "nand:{nand}"),
            FlashChoice::Device(socket) => write!(f, "device:{}", socket.display()),
            FlashChoice::File(path) => path.display().fmt(f),
        }
    }
}

/// Reads [`FlashChoice`]. A bare word near `emulated` or `memory` that is no path is a slip.
pub fn flash(text: &str) -> Result<FlashChoice, String> {
    if let Some(profile) = text.strip_prefix("nand:") {
        return nand(profile).map(FlashChoice::Nand);
    }
    match text {
        "" => Err(
            "an empty name; write emulated, memory, nand:PROFILE, device:SOCKET, or the path of a file or block device"
                .to_owned(),
        ),
        "device:" => Err("no socket; write device:PATH, the socket of fulgurite device serve".to_owned()),
        "emulated" => Ok(FlashChoice::Emulated),
        "memory" => Ok(FlashChoice::Memory),
        path => {
            if let Some(socket) = path.strip_prefix("device:") {
                return Ok(FlashChoice::Device(socket.into()));
            }
            let slip = !path.contains(['/', '.']) && !std::path::Path::new(path).exists();
            match nearest(path, ["emulated", "memory"].into_iter()) {
                Some(word) if slip && strsim::damerau_levenshtein(path, word) <= 3 => {
                    Err(format!("no such file; did you mean \"{word}\"?"))
                }
                _ => Ok(FlashChoice::File(path.into())),
            }
        }
    }
}

/// Reads a Zipf exponent.
pub fn zipf(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(exponent) if (0.0..=4.0).contains(&exponent) => Ok(exponent),
        Ok(_) => Err("the exponent must be 0 (uniform) to 4".to_owned()),
        Err(_) => Err("not a number; write for example 0.99".to_owned()),
    }
}

named! {
    /// What is behind a workload's memory.
    Config, "configuration", config {
        /// Plain references in huge pages: the denominator.
        DramOnly = "dram-only",
        /// The guarded path with all data in frames.
        Resident = "resident",
        /// The guarded path.
        Fulgurite = "fulgurite",
        /// The guarded path with requests that a device of Fulgurite's makes: its core pays for
        /// system calls.
        OnDevice = "on-device",
        /// The guarded path over a journaled pool.
        Pool = "pool",
        /// That pool without checksums, which shows what they cost.
        PoolUnchecked = "pool-unchecked",
        /// The pool with its store in a device of Fulgurite's, whose firmware pays for it.
        PoolOnDevice = "pool-on-device",
        /// The guarded path with AstriFlash's scheduling.
        PriorityAging = "priority-aging",
        /// The guarded path, first come first served.
        Fifo = "fifo",
        /// The guarded path over fixed latencies, whatever `--flash` is, to compare NAND with.
        FixedLatency = "fixed-latency",
        /// The guarded path, waiting for every miss.
        FlashSync = "flash-sync",
        /// Plain memory under kernel swap.
        OsSwap = "os-swap",
        /// Plain memory mapped from a file.
        Mmap = "mmap",
    }
}

impl Config {
    /// Whether the data is reached through guarded pointers.
    pub const fn guarded(self) -> bool {
        !matches!(self, Config::DramOnly | Config::OsSwap | Config::Mmap)
    }
    /// Whether its data is on the flash that `--flash` names.
    pub const fn on_named_flash(self) -> bool {
        self.guarded() && !matches!(self, Config::FixedLatency)
    }
    /// Whether it runs with less DRAM than data, in a cgroup where that can be had.
    pub const fn capped(self) -> bool {
        !matches!(self, Config::DramOnly | Config::Resident)
    }
    /// Whether its data is in a journaled pool, which is made for the run.
    pub const fn pooled(self) -> bool {
        matches!(self, Config::Pool | Config::PoolUnchecked | Config::PoolOnDevice)
    }
    /// Whether a device of Fulgurite's, in the same process, is between the workers and the medium.
    pub const fn on_device(self) -> bool {
        matches!(self, Config::OnDevice | Config::PoolOnDevice)
    }
    /// Whether it is plain memory that the kernel pages. It makes no sense without a memory cgroup.
    pub const fn paged_by_kernel(self) -> bool {
        matches!(self, Config::OsSwap | Config::Mmap)
    }
}
