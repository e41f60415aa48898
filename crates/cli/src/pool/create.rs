//! `pool create`: judged first, then written from end to end, then formatted, then opened once.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use fulgurite_backing::Base;
use fulgurite_flash::{FileConfig, FileFlash, FileMode, Flash, claim};
use fulgurite_format::{MEMBERS_MAX, PoolId, SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Geometry, Head, Members, Pool, random_id};
use fulgurite_sys::{Arena, Backed, DirectFile};
use fulgurite_term::bad_input::{OrBadInput, open_error};
use fulgurite_term::media::open_base;
use fulgurite_term::report;

use super::args::{CreateArgs, PoolArgs};
use super::open::{self, name_of};
use fulgurite_term::bad_input;
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::{checks, progress};

const CHUNK_BYTES: usize = 1 << 20;

/// The extent of a pool of `bytes` bytes.
fn default_extent(bytes: u64) -> u64 {
    let pages = u32::try_from(bytes / SUBPAGE_BYTES as u64).unwrap_or(u32::MAX);
    u64::from(Geometry::usual_extent_pages(pages)) * SUBPAGE_BYTES as u64
}

/// The geometry that was asked for.
fn geometry(args: &CreateArgs, bytes: u64) -> Result<Geometry> {
    let subpage = SUBPAGE_BYTES as u64;
    let pages = |option: &str, bytes: u64| {
        u32::try_from(bytes).or_bad_input(|_| format!("{option}: a pool has less than 16 TiB; choose less"))
    };
    let extent = args.extent.unwrap_or_else(|| default_extent(bytes));
    if !extent.is_multiple_of(subpage) {
        bad_input!("--extent {extent} is no multiple of 4096; write for example 2M");
    }
    let extent = pages("--extent", extent / subpage)?;
    let data = args.data.map(|data| pages("--data", data.div_ceil(subpage))).transpose()?;
    let size = pages("--size", bytes / subpage)?;
    let geometry = match data {
        Some(data) if args.objects => Geometry::with_objects(size, extent, data),
        data => Geometry::new(size, extent, data),
    };
    geometry.or_bad_input(|e| e.to_string())
}

pub(super) struct MemberPath {
    pub path: PathBuf,
    /// What exists there, and its bytes.
    pub existing: Option<(DirectFile, u64)>,
}

/// What exists at a path, if it may be used up.
pub(super) fn existing(path: &Path, force: bool) -> Result<Option<(DirectFile, u64)>> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => bad_input!("{shown} cannot be checked: {e}"),
        Ok(_) => {}
    }
    let file = claim(path).map_err(open_error)?;
    let head = Head::of(&file)?;
    if force {
        return Ok(Some((file, head.bytes)));
    }
    match head.pool() {
        Some(Ok(id)) => bad_input!(
            "{shown} is a pool already ({}); name another path, or add --force to overwrite that pool",
            name_of(id)
        ),
        Some(Err(_)) => bad_input!(
            "{shown} is a pool already, a damaged one or of a later program; name another path, or add --force to \
             overwrite it"
        ),
        None => bad_input!(
            "{shown} exists and holds {}; name another path, or add --force to overwrite it",
            head.looks_like()
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

/// Whether `bytes` bytes can be had at a path.
pub(super) fn check_room(place: &MemberPath, bytes: u64) -> Result<()> {
    let (path, shown) = (&place.path, place.path.display());
    let Some((file, found)) = &place.existing else {
        let parent = checks::parent_of(path);
        if !parent.is_dir() {
            bad_input!("the directory {} does not exist; make it first", parent.display());
        }
        return Ok(());
    };
    let metadata = file.metadata().with_context(|| format!("{shown} cannot be checked"))?;
    if metadata.file_type().is_block_device() && *found < bytes {
        bad_input!("{shown} has {}, less than its part of --size; ask for less", format_bytes(*found));
    }
    if metadata.is_file() {
        checks::space("--size", &checks::parent_of(path), bytes.saturating_sub(metadata.blocks() * 512))?;
    }
    Ok(())
}

/// Makes a file, or overwrites what exists; and opens it. A new one has its name only when it is
/// finished, and is removed if it is not.
pub(super) fn written(place: MemberPath, bytes: u64, interrupt: &Interrupt) -> Result<Arc<FileFlash>> {
    let path = &place.path;
    let config = if let Some((file, _)) = place.existing {
        overwrite(&file, path, bytes, interrupt)?;
        FileConfig { mode: FileMode::Existing { bytes: Some(bytes) }, ..FileConfig::existing(path) }
    } else {
        FileConfig::create_aside(path, bytes)
    };
    Ok(open_base(&Base::File(config), interrupt)?.file.expect("it is a file"))
}

/// Bytes of each place: what was asked for in equal parts, or all of what exists.
fn shares(args: &CreateArgs, places: &[MemberPath]) -> Result<Vec<u64>> {
    let count = places.len() as u64;
    if let Some(size) = args.size {
        return Ok(vec![size / count / SUBPAGE_BYTES as u64 * SUBPAGE_BYTES as u64; places.len()]);
    }
    let found: Option<Vec<u64>> = places.iter().map(|place| place.existing.as_ref().map(|(_, bytes)| *bytes)).collect();
    match found {
        Some(found) => Ok(found),
        None => bad_input!("a new pool needs --size; write for example --size 16G"),
    }
}

pub fn run(args: &CreateArgs) -> Result<()> {
    if args.paths.len() > MEMBERS_MAX {
        bad_input!("a pool spans at most {MEMBERS_MAX} files or devices; name fewer");
    }
    let places =
        args.paths.iter().map(|path| Ok(MemberPath { path: path.clone(), existing: existing(path, args.force)? }));
    let places = places.collect::<Result<Vec<MemberPath>>>()?;
    for (at, place) in places.iter().enumerate() {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
        if places[..at].iter().any(|other| absolute(&other.path) == absolute(&place.path)) {
            bad_input!("{} is named twice; name each file once", place.path.display());
        }
    }
    let mut shares = shares(args, &places)?;
    let alone = places.len() == 1;
    let geometry = if alone {
        geometry(args, shares[0])?
    } else {
        // The members' own pages take an extent each, but for the first.
        let extent = args.extent.unwrap_or_else(|| default_extent(shares.iter().sum()));
        if !extent.is_multiple_of(SUBPAGE_BYTES as u64) || extent == 0 {
            bad_input!("--extent {extent} is no multiple of 4096; write for example 2M");
        }
        shares.iter_mut().for_each(|share| *share = *share / extent * extent);
        if let Some(at) = shares.iter().position(|share| *share < 2 * extent) {
            let needed = format_bytes(2 * extent);
            bad_input!("{} gets less than {needed}, two extents; ask for more", places[at].path.display());
        }
        let all = shares.iter().sum::<u64>() - extent * (shares.len() as u64 - 1);
        geometry(&CreateArgs { extent: Some(extent), paths: Vec::new(), ..*args }, all)?
    };
    let extent_bytes = u64::from(geometry.extent_pages) * SUBPAGE_BYTES as u64;
    if alone {
        shares[0] = u64::from(geometry.extents) * extent_bytes;
    }
    for (place, bytes) in places.iter().zip(&shares) {
        check_room(place, *bytes)?;
    }
    let id = random_id()?;
    let interrupt = Interrupt::catch()?;
    let mut files = Vec::new();
    for (place, bytes) in places.into_iter().zip(&shares) {
        files.push(written(place, *bytes, &interrupt)?);
    }
    let path = &args.paths[0];
    let medium: Arc<dyn Flash> = if alone {
        files[0].clone()
    } else {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
        let media: Vec<(PathBuf, Arc<dyn Flash>)> =
            files.iter().map(|file| (absolute(file.path()), file.clone() as Arc<dyn Flash>)).collect();
        let ids = media.iter().map(|_| random_id()).collect::<std::io::Result<Vec<PoolId>>>()?;
        Members::create(media, &ids, geometry.extent_pages, id).map_err(open::member_error)?.flash()
    };
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Pool::format(&medium, geometry, id, since).map_err(|error| open::pool_error(path, error))?;
    // The one that opens the pool is last, so a kill here leaves no pool that lacks a member.
    files.iter().rev().try_for_each(|file| file.finish()).map_err(open_error)?;
    drop((medium, files));
    let opened = open::to_read(&PoolArgs { path: path.clone(), members: Vec::new() }, None)?;
    let (size, data) = (format_bytes(u64::from(geometry.extents) * extent_bytes), format_bytes(opened.data_bytes()));
    let extent = format_bytes(extent_bytes);
    let name = name_of(opened.pool().id());
    let shown: Vec<String> = args.paths.iter().map(|path| path.display().to_string()).collect();
    let (shown, are) = (shown.join(", "), if alone { "is" } else { "are" });
    report::say(&format!("{shown} {are} pool {name}: {size} in extents of {extent}, {data} for data"))
}
