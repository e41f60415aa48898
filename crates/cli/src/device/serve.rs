//! `device serve`: a device in a process of its own, that other programs attach to.
//!
//! Everything is judged before anything is created. Then comes the socket, where the boot region
//! can be read, then the medium, the firmware over it, and NBD. An interruption ends the sockets
//! first, and the medium last, flushed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use fulgurite_device::{
    BootImage, Device, DeviceConfig, DeviceFlash, Features, FirmwareConfig, HostConfig, Link, Listening, ServerConfig,
};
use fulgurite_flash::{Flash, NandFlash, Op, Request};
use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex, format_bytes};
use fulgurite_nbd::{NbdAddress, NbdConfig, NbdServer};
use fulgurite_sys::{Arena, Backed, Notifier};

use super::args::ServeArgs;
use super::boot;
use fulgurite_term::bad_input::{BadInput, bad_input, socket_error};
use fulgurite_term::checks;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::machine::Machine;
use fulgurite_term::media::NandChoice;
use fulgurite_term::media::NandCounts;
use fulgurite_term::media::device::{self as medium, Below, Kept, Plan};
use fulgurite_term::media::file_identity::{self, FileIdentity};
use fulgurite_term::media::wear;
use fulgurite_term::report;
use fulgurite_term::stderr::log;

/// How often the end is looked for.
const CHECK: Duration = Duration::from_millis(100);

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
    if let Some(wear) = plan.worn() {
        file_identity::apart_from_wear(wear, &named(args))?;
    }
    free_for_a_socket("--socket", &NbdAddress::Unix(args.socket.clone()))?;
    if let Some(address) = &args.nbd {
        free_for_a_socket("--nbd", address)?;
        if matches!(address, NbdAddress::Unix(nbd) if FileIdentity::of(nbd) == FileIdentity::of(&args.socket)) {
            return Err(BadInput("--socket and --nbd name the same path; name two".to_owned()).into());
        }
    }
    let interrupt = Interrupt::catch()?;
    let server = ServerConfig { connections_max: args.queues as usize, ..ServerConfig::default() };
    let listening =
        Listening::at(&args.socket, boot.clone(), server).map_err(|error| socket_error("--socket", error))?;
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
    report::write_stdout(lines.as_bytes())?;
    let worn = plan.worn().zip(nand.as_deref());
    let keep = || worn.map_or(Ok(()), |(path, nand)| wear::write(path, &nand.state()));
    keep()?;
    let (mut kept, mut keeper) = (Instant::now(), wear::Keeper::default());
    while !interrupt.asked() && !device.has_ended() {
        std::thread::sleep(CHECK);
        if kept.elapsed() >= wear::EVERY {
            if let Some(words) = keeper.tried(keep()) {
                log(words);
            }
            kept = Instant::now();
        }
    }
    // What comes to an end first is what others reach it by.
    drop(server);
    if device.has_ended() {
        drop(nbd);
        return Err(ended_early(&device, keep()));
    }
    end(&device, nbd, &*medium, nand.as_deref())?;
    keep()
}

/// The firmware's thread has panicked. A flat medium is flushed. A store stays at its last flush,
/// as it may be the cause, and hosts have the rest.
fn ended_early(device: &Device, kept: Result<()>) -> Error {
    device.stop();
    let has_store = device.backend().features().has(Features::TOKENS);
    let flushed = if has_store { Ok(()) } else { flush(&**device.flash()) };
    let mut reported = "the firmware has ended by itself; start the device again, with the same options: its hosts repeat what was not flushed"
        .to_owned();
    for (what, result) in [("what was written could not be flushed", flushed), ("the NAND's state is older", kept)] {
        if let Err(error) = result {
            reported.push_str(&format!("; {what}: {error:#}"));
        }
    }
    Error::msg(reported)
}

/// The files that are named in addition to the data and the wear.
fn named(args: &ServeArgs) -> Vec<(&'static str, &Path)> {
    let mut named: Vec<(&'static str, &Path)> = vec![("--socket", args.socket.as_path())];
    if let Some(NbdAddress::Unix(nbd)) = &args.nbd {
        named.push(("--nbd", nbd.as_path()));
    }
    if let Below::Nand(NandChoice::File(nand)) = &args.nand {
        named.push(("--nand", nand.as_path()));
    }
    named.extend(args.boot.as_deref().map(|boot| ("--boot", boot)));
    named
}

/// Whether a server could listen there; in words, if not.
fn free_for_a_socket(option: &str, address: &NbdAddress) -> Result<()> {
    if let NbdAddress::Unix(path) = address {
        let parent = checks::parent_of(path);
        if !parent.is_dir() {
            bad_input!("{option} {}: the directory {} does not exist", path.display(), parent.display());
        }
    }
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
    // What a program that names its states has not named is gone, and no other state is named.
    if device.wants_last_flush() {
        flush(medium).context("the medium could not be flushed at the end")?;
    }
    report::write_stdout(lines.as_bytes())
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
        queue.wait(Some(CHECK));
    }
    Ok(completions[0].result?)
}

#[cfg(test)]
mod tests {
    use fulgurite_flash::MemoryFlash;

    use super::*;

    /// A firmware that ended by itself: its medium is flushed, and the words name the remedy.
    #[test]
    fn what_can_be_is_flushed_where_the_firmware_has_ended_by_itself() {
        let device = Device::start(Arc::new(MemoryFlash::new(64).unwrap()), DeviceConfig::default()).unwrap();
        device.stop();
        assert!(device.has_ended());
        let flushes = || device.flash().counters().flushes;
        let (before, reported) = (flushes(), ended_early(&device, Ok(())).to_string());
        assert_eq!(flushes(), before + 1);
        assert!(
            reported.contains("start the device again") && reported.contains("hosts repeat what was not flushed"),
            "{reported}"
        );
        assert!(!reported.contains("could not"), "{reported}");
        let reported = ended_early(&device, Err(Error::msg("no space left"))).to_string();
        assert!(reported.contains("the NAND's state is older: no space left"), "{reported}");
    }
}
