//! `device serve`: a device in a process of its own, that other programs attach to.
//!
//! Everything is judged before anything is created: the NAND file, the boot image, the socket, the address for NBD, the data file, the core.
//! Then the socket is made, where the boot region can be read and all else is told to wait; the medium is opened, which may take a
//! while, and the firmware started over it: from then on there is a device, and NBD. It runs until it is interrupted; then the sockets go
//! first, and the medium last, flushed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use fulgurite_device::{
    BootImage, Device, DeviceConfig, DeviceFlash, FirmwareConfig, HostConfig, Link, Listening, ServerConfig,
    SocketError,
};
use fulgurite_flash::{Flash, NandFlash, Op, Request};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex, format_bytes};
use fulgurite_nbd::{NbdAddress, NbdConfig, NbdServer};
use fulgurite_sys::{Arena, Backed, Notifier};

use super::args::ServeArgs;
use super::boot;
use super::medium::{self, Below, Kept, Plan};
use super::wear;
use crate::bad_input::BadInput;
use crate::checks;
use crate::child::nand::NandCounts;
use crate::interrupt::Interrupt;
use crate::machine::Machine;
use crate::pages;

/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Runs it.
pub fn run(args: &ServeArgs) -> Result<()> {
    let machine = Machine::describe();
    // Nothing is created before all of this holds.
    let kept = Kept { data: args.data.as_deref(), wear: args.wear.as_deref(), force: args.force };
    let below = if args.store { Below::Store.instead_of(&args.nand)? } else { args.nand.clone() };
    let plan = Plan::of(&below, args.size, kept, &machine)?;
    let mut store = plan.store(args.keep_tokens, args.keep_age)?;
    let write_cache = args.write_cache.map_or(Ok(0), |bytes| plan.write_cache(bytes))?;
    let boot = args.boot.as_deref().map_or(Ok(BootImage::default()), boot::image)?;
    if let Some(dram) = args.dram {
        plan.keep_to(dram, &mut store, u64::from(write_cache) * SUBPAGE_BYTES as u64 + boot.bytes() as u64)?;
    }
    let core = medium::core(args.core)?;
    free_for_a_socket("--socket", &NbdAddress::Unix(args.socket.clone()))?;
    if let Some(address) = &args.nbd {
        free_for_a_socket("--nbd", address)?;
        if matches!(address, NbdAddress::Unix(nbd) if place(nbd) == place(&args.socket)) {
            return Err(BadInput("--socket and --nbd name the same path; name two".to_owned()).into());
        }
    }
    let interrupt = Interrupt::catch()?;
    let server = ServerConfig { connections_max: args.queues as usize, ..ServerConfig::default() };
    let listening = Listening::at(&args.socket, boot.clone(), server).map_err(|error| match error {
        // Somebody was faster than the check.
        SocketError::InUse { .. } | SocketError::NotASocket { .. } => {
            Error::new(BadInput(format!("--socket: {error}")))
        }
        error => Error::new(error),
    })?;
    let medium = plan.open(store, &interrupt)?;
    let (keeps_writes, forgets) = (plan.keeps_writes(), plan.forgets());
    let moves_by_cpu = plan.moves_by_cpu();
    let firmware =
        FirmwareConfig { keeps_writes, forgets, moves_by_cpu, write_cache, boot, ..FirmwareConfig::default() };
    let dram_bytes = args.dram.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let config = DeviceConfig { core, firmware, dram_bytes, ..DeviceConfig::default() };
    let nand = medium.nand();
    let device = medium.start(config)?;
    let medium = device.flash().clone();
    let server = listening.serve(device.clone());
    let nbd = args.nbd.as_ref().map(|address| export(&device, address)).transpose()?;

    let mut lines = format!(
        "{}: {}, {}, the firmware on {}\n",
        args.socket.display(),
        format_bytes(u64::from(medium.subpages()) * SUBPAGE_BYTES as u64),
        medium.describe(),
        core.map_or("any core".to_owned(), |core| format!("core {core}"))
    );
    if let Some(nbd) = &nbd {
        lines.push_str(&format!("NBD: {}\n", nbd.uri()));
    }
    pages::write_stdout(lines.as_bytes())?;
    let worn = plan.worn().zip(nand.as_deref());
    let keep = || worn.map_or(Ok(()), |(path, nand)| wear::write(path, &nand.state()));
    keep()?;
    let (mut kept, mut keeper) = (Instant::now(), wear::Keeper::default());
    while !interrupt.asked() {
        std::thread::sleep(LOOK);
        if kept.elapsed() >= wear::EVERY {
            if let Some(words) = keeper.tried(keep()) {
                eprintln!("{words}");
            }
            kept = Instant::now();
        }
        ensure!(!device.has_ended(), "the firmware has ended");
    }
    // What comes to an end first is what others reach it by.
    drop(server);
    end(&device, nbd, &*medium, nand.as_deref())?;
    keep()
}

/// A path by the directory that it is in, however that is written.
fn place(path: &Path) -> PathBuf {
    let parent = checks::parent_of(path);
    parent.canonicalize().unwrap_or(parent).join(path.file_name().unwrap_or_default())
}

/// Whether a server could listen there; in words, if not.
fn free_for_a_socket(option: &str, address: &NbdAddress) -> Result<()> {
    address.check().map_err(|error| BadInput(format!("{option}: {error}")).into())
}

/// The device as a block device, by a queue pair of its own for each client.
fn export(device: &Arc<Device>, address: &NbdAddress) -> Result<NbdServer> {
    let link: Arc<dyn Link> = device.clone();
    let flash = Arc::new(DeviceFlash::over(link, HostConfig::default()));
    NbdServer::start(flash, NbdConfig::new(address.clone())).context("the NBD server cannot be started")
}

/// Sockets, firmware, medium, in this order; and what was done.
fn end(device: &Arc<Device>, nbd: Option<NbdServer>, medium: &dyn Flash, nand: Option<&NandFlash>) -> Result<()> {
    let counters = nbd.map(|server| server.counters());
    let backend = device.backend();
    let did = backend.counters();
    let mut lines = format!(
        "commands {}, failed {}; sectors read {}, written {}; flushes {}; entries that broke the protocol {}\n",
        did.commands(),
        did.failed(),
        did.sectors_read(),
        did.sectors_written(),
        did.flushes(),
        did.broken()
    );
    if let Some(nbd) = counters {
        lines.push_str(&format!(
            "NBD: clients {}, turned away {}; commands {}; read {}, written {}; connections ended for breaking the protocol {}, \
             for silence {}\n",
            nbd.clients,
            nbd.refused,
            nbd.commands,
            format_bytes(nbd.read_bytes),
            format_bytes(nbd.written_bytes),
            nbd.broken,
            nbd.stalled
        ));
    }
    if let Some(nand) = nand {
        lines.push_str(&format!("NAND: {}\n", NandCounts::of(&nand.report()).sentence()));
    }
    device.stop();
    // What a program that names its states has not named is gone, and nothing is named beside.
    if device.wants_last_flush() {
        flush(medium).context("the medium could not be flushed at the end")?;
    }
    pages::write_stdout(lines.as_bytes())
}

/// Makes all that was written durable.
fn flush(medium: &dyn Flash) -> Result<()> {
    let frames = Arc::new(Arena::anonymous(SUBPAGE_BYTES, Backed::BasePages)?);
    let mut queue = medium.open_queue(frames, 1, Arc::new(Notifier::new()?))?;
    queue.submit(Request { tag: 0, op: Op::Flush, subpage: SubpageIndex(0), frame: FrameIndex(0) })?;
    let mut completions = Vec::new();
    while completions.is_empty() {
        queue.flush()?;
        queue.poll(&mut completions);
        queue.wait(Some(LOOK));
    }
    Ok(completions[0].result?)
}
