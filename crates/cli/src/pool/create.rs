//! `pool create`: judged first, then written from end to end, then formatted, then opened once.

use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use fulgurite_flash::{FileConfig, FileFlash, FileMode, Flash, claim};
use fulgurite_format::{PoolId, SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Geometry, Pool};
use fulgurite_sys::{Arena, Backed, DirectFile};

use super::args::CreateArgs;
use super::open::{self, head, looks_like, name_of, open_error, pool_in};
use crate::bad_input::bad_input;
use crate::interrupt::Interrupt;
use crate::{checks, pages, progress};

const EXTENT_BYTES: u64 = 2 << 20;
const EXTENT_BYTES_MIN: u64 = 32 << 10;
/// A pool gets at least so many extents where nobody says how large they are: some are kept for reclaim and metadata.
const EXTENTS: u64 = 128;
/// Written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The extent of a pool of so many bytes.
fn default_extent(bytes: u64) -> u64 {
    let mut extent = EXTENT_BYTES;
    while extent > EXTENT_BYTES_MIN && bytes / extent < EXTENTS {
        extent /= 2;
    }
    extent
}

/// The geometry that was asked for.
fn geometry(args: &CreateArgs, bytes: u64) -> Result<Geometry> {
    let subpage = SUBPAGE_BYTES as u64;
    let pages = |option: &str, bytes: u64| match u32::try_from(bytes) {
        Ok(pages) => Ok(pages),
        Err(_) => Err(crate::bad_input::BadInput(format!("{option}: a pool has less than 16 TiB; choose less"))),
    };
    let extent = args.extent.unwrap_or_else(|| default_extent(bytes));
    if !extent.is_multiple_of(subpage) {
        bad_input!("--extent {extent} is no multiple of 4096; write for example 2M");
    }
    let extent = pages("--extent", extent / subpage)?;
    let data = args.data.map(|data| pages("--data", data.div_ceil(subpage))).transpose()?;
    match Geometry::new(pages("--size", bytes / subpage)?, extent, data) {
        Ok(geometry) => Ok(geometry),
        Err(e) => bad_input!("{e}"),
    }
}

/// What exists at the path, if it may be used up.
fn existing(args: &CreateArgs) -> Result<Option<(DirectFile, u64)>> {
    let (path, shown) = (&args.path, args.path.display());
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => bad_input!("{shown} cannot be looked at: {e}"),
        Ok(_) => {}
    }
    let file = claim(path).map_err(open_error)?;
    let (bytes, head) = head(&file, path)?;
    if args.force {
        return Ok(Some((file, bytes)));
    }
    match pool_in(&head) {
        Some(Ok(id)) => bad_input!(
            "{shown} is a pool already ({}); name another path, or add --force, and everything in that pool is gone",
            name_of(id)
        ),
        Some(Err(_)) => bad_input!(
            "{shown} is a pool already, a damaged one or of a later program; name another path, or add --force, and it is gone"
        ),
        None => bad_input!(
            "{shown} exists and holds {}; name another path, or add --force, and what it holds is gone",
            looks_like(&head, bytes)
        ),
    }
}

/// Writes the whole of what exists once.
fn overwrite(file: &DirectFile, path: &Path, bytes: u64, interrupt: &Interrupt) -> Result<()> {
    let what = || format!("{} cannot be written", path.display());
    if !file.metadata().with_context(what)?.file_type().is_block_device() {
        rustix::fs::ftruncate(file, bytes).with_context(what)?;
    }
    let zeros = Arena::anonymous(CHUNK_BYTES, Backed::BasePages)?;
    let bar = progress::share(&format!("writing {}", path.display()));
    let mut done = 0;
    while done < bytes {
        interrupt.check()?;
        match file.write_at(done, &zeros, 0, (bytes - done).min(CHUNK_BYTES as u64) as usize) {
            Ok(n) if n >= SUBPAGE_BYTES => done += (n - n % SUBPAGE_BYTES) as u64,
            Ok(_) => return Err(io::Error::from(io::ErrorKind::WriteZero)).with_context(what),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).with_context(what),
        }
        progress::set_share(&bar, done as f64 / bytes as f64);
    }
    file.sync_all().with_context(what)?;
    bar.finish_and_clear();
    Ok(())
}

/// An identity that no other pool has.
fn random_id() -> Result<PoolId> {
    let mut id = PoolId::default();
    let random = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut id.0));
    random.context("no random numbers can be had from /dev/urandom")?;
    Ok(id)
}

/// Makes a pool.
pub fn run(args: &CreateArgs) -> Result<()> {
    let (path, shown) = (&args.path, args.path.display());
    let existing = existing(args)?;
    let is_new = existing.is_none();
    let Some(bytes) = args.size.or(existing.as_ref().map(|(_, bytes)| *bytes)) else {
        bad_input!("a new pool needs --size; write for example --size 16G");
    };
    let geometry = geometry(args, bytes)?;
    let bytes = u64::from(geometry.flash_pages()) * SUBPAGE_BYTES as u64;
    if let Some((file, found)) = &existing {
        let metadata = file.metadata().with_context(|| format!("{shown} cannot be looked at"))?;
        if metadata.file_type().is_block_device() && *found < bytes {
            bad_input!("{shown} has {}, less than --size; ask for less", format_bytes(*found));
        }
        if metadata.is_file() {
            checks::space("--size", &checks::parent_of(path), bytes.saturating_sub(metadata.blocks() * 512))?;
        }
    } else {
        let parent = checks::parent_of(path);
        if !parent.is_dir() {
            bad_input!("the directory {} does not exist; make it first", parent.display());
        }
    }
    let id = random_id()?;
    let interrupt = Interrupt::catch()?;
    let config = if let Some((file, _)) = existing {
        overwrite(&file, path, bytes, &interrupt)?;
        FileConfig { mode: FileMode::Existing { bytes: Some(bytes) }, ..FileConfig::existing(path) }
    } else {
        FileConfig::create(path, bytes)
    };
    let bar = progress::share(&format!("writing {shown}"));
    let flash = FileFlash::open_with_progress(&config, &mut |done, all| {
        progress::set_share(&bar, done as f64 / all as f64);
        if interrupt.asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let medium: Arc<dyn Flash> = Arc::new(flash.map_err(open_error)?);
    let made = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if let Err(error) = Pool::format(&medium, geometry, id, made) {
        drop(medium);
        if is_new {
            let _ = fs::remove_file(path);
        }
        return Err(open::pool_error(path, error));
    }
    drop(medium);
    let opened = open::to_look_at(path, None)?;
    let (size, data) = (format_bytes(bytes), format_bytes(opened.data_bytes()));
    let extent = format_bytes(u64::from(geometry.extent_pages) * SUBPAGE_BYTES as u64);
    let name = name_of(opened.pool().id());
    pages::write_stdout(format!("{shown} is pool {name}: {size} in extents of {extent}, {data} for data\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pools_have_small_extents() {
        assert_eq!(default_extent(16 << 30), 2 << 20);
        assert_eq!(default_extent(256 << 20), 2 << 20);
        assert_eq!(default_extent(16 << 20), 128 << 10);
        assert_eq!(default_extent(1 << 20), 32 << 10);
    }
}
