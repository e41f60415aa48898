//! `pool resize`: the flash under a pool first, then the pool, when it grows; the other way round when it shrinks.
//!
//! At every moment the pool is whole in its old size or in its new one: what the flash has beyond the pool is nobody's. Interrupted, or
//! failing, it has its old size, and a file that was made longer is cut again. Killed, or when the flash fails while the new size is
//! written, it has one of the two, and the file stays as long as it is; asked for that size again, it makes the copies of the superblock
//! equal and gives back what lies behind the end.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fulgurite_bench::bad_input::BadInput;
use fulgurite_bench::bad_input::open_error;
use fulgurite_bench::report;
use fulgurite_flash::claim;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Geometry, MemberError, Members, Pool, PoolError, ResizeError};
use fulgurite_sys::{Arena, Backed};

use super::args::{PoolArgs, ResizeArgs};
use super::open::{self, Medium, config, to_change, to_look_at};
use fulgurite_bench::bad_input;
use fulgurite_bench::interrupt::Interrupt;
use fulgurite_bench::{checks, progress};

/// Written at a time.
const CHUNK_BYTES: usize = 1 << 20;
const SUBPAGE: u64 = SUBPAGE_BYTES as u64;

/// What one file or device of the pool must have.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    /// Bytes that it has now, and whether it is a file, which can have more.
    found: u64,
    is_file: bool,
    /// Bytes that are needed.
    needed: u64,
}

fn flash_pages(option: &str, bytes: u64) -> Result<u32> {
    match u32::try_from(bytes / SUBPAGE) {
        Ok(pages) => Ok(pages),
        Err(_) => bad_input!("{option}: a pool has less than 16 TiB; choose less"),
    }
}

/// The geometry that was asked for.
fn geometry(args: &ResizeArgs, now: Geometry) -> Result<Geometry> {
    let all = args.size.map_or(Ok(now.flash_pages()), |size| flash_pages("--size", size))?;
    let data = args.data.map(|data| flash_pages("--data", data.next_multiple_of(SUBPAGE))).transpose()?;
    let geometry = if now.objects {
        // How much can be addressed does not follow from how much there is.
        Geometry::with_objects(all, now.extent_pages, data.unwrap_or(now.subpages))
    } else {
        Geometry::new(all, now.extent_pages, data)
    };
    match geometry {
        Ok(geometry) => Ok(geometry),
        Err(e) => bad_input!("{e}"),
    }
}

/// What the flash must have for that, file by file.
fn targets(path: &Path, medium: &Medium, to: Geometry) -> Result<Vec<Target>> {
    let extent_bytes = u64::from(to.extent_pages) * SUBPAGE;
    let look = |path: &Path| -> Result<(u64, bool)> {
        let metadata = path.metadata().with_context(|| format!("{} cannot be looked at", path.display()))?;
        // A device has no length of its own; what was opened of it is all of it.
        Ok((metadata.len(), metadata.is_file()))
    };
    let Some(members) = &medium.members else {
        let (length, is_file) = look(path)?;
        let found = if is_file { length } else { u64::from(medium.flash.subpages()) * SUBPAGE };
        return Ok(vec![Target { path: path.into(), found, is_file, needed: u64::from(to.extents) * extent_bytes }]);
    };
    let paths: Vec<PathBuf> = members.paths().map(PathBuf::from).collect();
    let found: Vec<(u64, bool)> = paths
        .iter()
        .zip(members.bytes())
        .map(|(path, opened)| look(path).map(|(length, is_file)| (if is_file { length } else { opened }, is_file)))
        .collect::<Result<_>>()?;
    let most: Vec<u32> = found
        .iter()
        .map(
            |(found, is_file)| {
                if *is_file { u32::MAX } else { u32::try_from(found / extent_bytes).unwrap_or(u32::MAX) }
            },
        )
        .collect();
    let missing = to.extents.saturating_sub(medium.flash.subpages() / to.extent_pages);
    let Some(extents) = members.grown(missing, &most) else {
        bad_input!("the devices of the pool have no room for that; ask for less");
    };
    let each = paths.into_iter().zip(found).zip(extents);
    Ok(each
        .map(|((path, (found, is_file)), extents)| Target {
            path,
            found,
            is_file,
            needed: u64::from(extents) * extent_bytes,
        })
        .collect())
}

/// Writes zeros behind the end of a file, so that later writes never have to find space.
fn extend(target: &Target, interrupt: &Interrupt) -> Result<()> {
    let shown = target.path.display();
    let file = claim(&target.path).map_err(open_error)?;
    let zeros = Arena::anonymous(CHUNK_BYTES, Backed::BasePages)?;
    let what = || format!("{shown} cannot be made larger");
    let bar = progress::share(&format!("extending {shown}"));
    let from = target.found / SUBPAGE * SUBPAGE;
    let mut done = from;
    while done < target.needed {
        interrupt.check()?;
        match file.write_at(done, &zeros, 0, (target.needed - done).min(CHUNK_BYTES as u64) as usize) {
            Ok(n) if n >= SUBPAGE_BYTES => done += (n - n % SUBPAGE_BYTES) as u64,
            Ok(_) => return Err(io::Error::from(io::ErrorKind::WriteZero)).with_context(what),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).with_context(what),
        }
        progress::set_share(&bar, (done - from) as f64 / (target.needed - from) as f64);
    }
    file.sync_all().with_context(what)?;
    bar.finish_and_clear();
    Ok(())
}

/// A file that was made longer: the bytes that it had, and the most that it was given.
struct Longer {
    path: PathBuf,
    had: u64,
    given: u64,
}

/// Files that were made longer, and are cut again if the pool has its old size for certain.
struct Extended<'p> {
    pool: &'p PoolArgs,
    files: Vec<Longer>,
}

impl Extended<'_> {
    /// Others may have had the pool since: what it has behind the old end of a file is looked up under the lock under which that is cut.
    fn cut_back(&self) -> Result<()> {
        let pool = &self.pool.path;
        let medium = open::medium(self.pool)?;
        let (_, geometry, _) = medium.superblock(pool)?;
        let extent_bytes = u64::from(geometry.extent_pages) * SUBPAGE;
        for Longer { path, had, given } in &self.files {
            let extents = match &medium.members {
                None => Some(geometry.extents),
                Some(members) => members.paths().position(|at| at == path).map(|at| members.extents_of(at as u32)),
            };
            let is_nobodys = extents.is_some_and(|extents| u64::from(extents) * extent_bytes <= *had);
            let length = path.metadata().with_context(|| format!("{} cannot be looked at", path.display()))?.len();
            if is_nobodys && (had + 1..=*given).contains(&length) {
                cut(path, *had).with_context(|| format!("{} cannot be cut to the size that it had", path.display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Extended<'_> {
    fn drop(&mut self) {
        if !self.files.is_empty()
            && let Err(e) = self.cut_back()
        {
            eprintln!("fulgurite: what was added behind the end of the pool stays for now: {e:#}");
        }
    }
}

/// Gives the pool its new size. From the moment at which it may have that, the files stay as long as they are.
fn resize(pool: &Pool, to: Geometry, extended: &mut Extended<'_>, interrupt: &Interrupt) -> Result<bool, PoolError> {
    let done = pool.resize(to, &mut || !interrupt.asked());
    let unsure = matches!(&done, Err(PoolError::Resize(error)) if error.is_unsure());
    if unsure || matches!(done, Ok(true)) {
        extended.files.clear();
    }
    done
}

/// Whether this is something to be told as a bad input.
pub(super) fn resize_error(path: &Path, error: PoolError) -> anyhow::Error {
    match error {
        PoolError::Resize(e @ (ResizeError::Damaged(_) | ResizeError::NoRoom)) => {
            anyhow::anyhow!(
                "{}: {e} (`fulgurite pool check`, `fulgurite pool compact --keep 1`); it has its old size",
                path.display()
            )
        }
        PoolError::Resize(e @ ResizeError::Unsure(_)) => {
            anyhow::anyhow!("{}: {e} (`fulgurite pool info`)", path.display())
        }
        PoolError::Resize(e) => BadInput(format!("{}: {e}", path.display())).into(),
        error => open::pool_error(path, error),
    }
}

/// `pool resize`.
pub fn run(args: &ResizeArgs) -> Result<()> {
    let path = &args.pool.path;
    if args.size.is_none() && args.data.is_none() {
        bad_input!("say what the pool should have: --size, --data, or both");
    }
    // All that can be judged is judged before anything is touched.
    let (id, now, to, targets) = {
        let opened = to_look_at(&args.pool, None)?;
        let (id, now) = (opened.pool().id(), opened.pool().geometry());
        let to = geometry(args, now)?;
        if to.extents < now.extents || to.subpages < now.subpages {
            opened.pool().may_shrink(to).map_err(|e| resize_error(path, e))?;
        }
        (id, now, to, targets(path, &opened.into_medium(), to)?)
    };
    let said = |geometry: Geometry| {
        let (all, data) = (u64::from(geometry.flash_pages()) * SUBPAGE, u64::from(geometry.subpages) * SUBPAGE);
        format!("{} in {} extents, {} for data", format_bytes(all), geometry.extents, format_bytes(data))
    };
    for target in targets.iter().filter(|target| target.needed > target.found) {
        let shown = target.path.display();
        if !target.is_file {
            bad_input!(
                "{shown} has {}, and {} are needed; ask for less",
                format_bytes(target.found),
                format_bytes(target.needed)
            );
        }
        checks::space("--size", &checks::parent_of(&target.path), target.needed - target.found)?;
    }
    let interrupt = Interrupt::catch()?;
    let mut extended = Extended { pool: &args.pool, files: Vec::new() };
    for target in targets.iter().filter(|target| target.needed > target.found) {
        extended.files.push(Longer { path: target.path.clone(), had: target.found, given: target.needed });
        extend(target, &interrupt)?;
    }
    if to.extents > now.extents {
        let medium = open::medium(&args.pool)?;
        let (found, geometry, _) = medium.superblock(path)?;
        open::unchanged(path, (id, now), (found, geometry))?;
        if let Some(mut members) = medium.members {
            let extent_bytes = u64::from(to.extent_pages) * SUBPAGE;
            let extents: Vec<u32> = targets.iter().map(|target| (target.needed / extent_bytes) as u32).collect();
            let grown = members.grow(&extents);
            // From here on the files are needed as long as they are, also when only some say so: but for a list that has no room,
            // nothing fails before one of them may.
            if !matches!(grown, Err(MemberError::Bands)) {
                extended.files.clear();
            }
            grown.map_err(open::member_error)?;
        }
    }
    let mut opened = to_change(&args.pool, config(None))?;
    open::unchanged(path, (id, now), (opened.pool().id(), opened.pool().geometry()))?;
    let bar = progress::waiting("moving live data");
    let done = resize(opened.pool(), to, &mut extended, &interrupt);
    bar.finish_and_clear();
    if !done.map_err(|e| resize_error(path, e))? {
        drop(opened);
        return interrupt.check();
    }
    // Also where the pool has its size already: a change that was cut off may have left what lies behind its end.
    if to.extents <= now.extents {
        give_back(&mut opened.members, path, to, &targets)?;
    }
    if to.extents <= now.extents && targets.len() == 1 && targets[0].is_file && targets[0].needed < targets[0].found {
        // Before it is closed: whoever opened it between could make it longer, and would lose what they wrote there.
        cut(path, targets[0].needed).with_context(|| not_cut(path, path))?;
    }
    drop(opened);
    let answer = if to == now {
        format!("{} has {} already\n", path.display(), said(now))
    } else {
        format!("{} has {}; it had {}\n", path.display(), said(to), said(now))
    };
    report::write_stdout(answer.as_bytes())
}

/// Cuts a file of a pool that is open and locked: nobody else can be at it, and nothing is read behind the end.
fn cut(file: &Path, bytes: u64) -> io::Result<()> {
    let file = std::fs::OpenOptions::new().write(true).open(file)?;
    file.set_len(bytes).and_then(|()| file.sync_all())
}

fn not_cut(file: &Path, pool: &Path) -> String {
    format!("{} cannot be cut to its new size; the pool {} has it all the same", file.display(), pool.display())
}

/// Forgets the bands behind the end of a pool of several files; what they need no more is cut off when the pool is closed.
fn give_back(members: &mut Option<Members>, path: &Path, to: Geometry, targets: &[Target]) -> Result<()> {
    let Some(members) = members else { return Ok(()) };
    let extents = members.shrink(to.extents).map_err(open::member_error)?;
    for (target, extents) in targets.iter().zip(extents).filter(|(target, _)| target.is_file) {
        let bytes = u64::from(extents) * u64::from(to.extent_pages) * SUBPAGE;
        cut(&target.path, bytes).with_context(|| not_cut(&target.path, path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FileConfig, FileFlash, Flash, FlashError, Op, When};
    use fulgurite_format::PoolId;
    use fulgurite_store::StoreConfig;

    use super::*;

    fn longer(pool: &PoolArgs, had: u64, given: u64) -> Extended<'_> {
        Extended { pool, files: vec![Longer { path: pool.path.clone(), had, given }] }
    }
    /// While a file was made longer, or since, nobody had the pool locked: what another command has put there is not cut off.
    #[test]
    fn a_file_that_others_have_made_longer_is_not_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let args = PoolArgs { path: path.clone(), members: Vec::new() };
        let geometry = |extents: u32| Geometry::new(extents * 8, 8, Some(64)).unwrap();
        let bytes = |extents: u32| u64::from(geometry(extents).flash_pages()) * SUBPAGE;
        // The pool's extents when the change is given up, those that the file had room for and was given, those that it has room for then.
        for (has, had, given, found, left) in [
            (60, 60, 90, 90, 60),
            (60, 60, 90, 75, 60),
            (90, 60, 90, 90, 90),
            (61, 60, 90, 90, 90),
            (60, 60, 90, 91, 91),
            (60, 75, 90, 90, 75),
            (60, 75, 90, 70, 70),
        ] {
            let _ = std::fs::remove_file(&path);
            let flash: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::create(&path, bytes(found))).unwrap());
            Pool::format(&flash, geometry(has), PoolId([7; 16]), 0).unwrap();
            drop(flash);
            drop(longer(&args, bytes(had), bytes(given)));
            let is = path.metadata().unwrap().len();
            assert_eq!(is, bytes(left), "a pool of {has} in a file for {found} that had {had} and was given {given}");
        }
        // In use, it is not known what it needs.
        let held = FileFlash::open(&FileConfig::existing(&path)).unwrap();
        drop(longer(&args, bytes(60), bytes(90)));
        drop(held);
        assert_eq!(path.metadata().unwrap().len(), bytes(70));
    }
    /// A file is cut again only where the pool has its old size: not where a copy of its superblock may say the new one.
    #[test]
    fn a_file_stays_long_when_the_pool_may_have_its_new_size() {
        let directory = tempfile::tempdir().unwrap();
        let geometry = |extents: u32| Geometry::new(extents * 8, 8, Some(64)).unwrap();
        let (small, large) = (geometry(60), geometry(90));
        let bytes = |geometry: Geometry| u64::from(geometry.flash_pages()) * SUBPAGE;
        for (op, nth, stays) in
            [(None, 0, true), (Some(Op::Write), 2, true), (Some(Op::Flush), 1, true), (Some(Op::Read), 1, false)]
        {
            let path = directory.path().join(format!("{op:?}"));
            let config = FileConfig::create(&path, bytes(large));
            let medium = Arc::new(FaultyFlash::new(FileFlash::open(&config).unwrap(), FaultPlan::default()));
            let flash: Arc<dyn Flash> = medium.clone();
            Pool::format(&flash, small, PoolId([7; 16]), 0).unwrap();
            let (pool, _) = Pool::open(flash, StoreConfig::default()).unwrap();
            let from = if op == Some(Op::Read) { When::From(nth) } else { When::Nth(nth) };
            medium.set_plan(FaultPlan::rule(op, from, Fault::Fails(FlashError::Io(5))));
            let args = PoolArgs { path: path.clone(), members: Vec::new() };
            let mut extended = longer(&args, bytes(small), bytes(large));
            let done = resize(&pool, large, &mut extended, &Interrupt::default());
            assert_eq!(done.is_ok(), op.is_none(), "{op:?}: {done:?}");
            drop((pool, medium));
            drop(extended);
            let expected = if stays { bytes(large) } else { bytes(small) };
            assert_eq!(path.metadata().unwrap().len(), expected, "{op:?}");
            let flash: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::existing(&path)).unwrap());
            let opened = Pool::open(flash, StoreConfig::default()).map(|(pool, _)| pool.geometry());
            assert_eq!(opened.unwrap(), if stays { large } else { small }, "{op:?}");
        }
    }
}
