//! A pool made larger or smaller. When it grows, first the flash under it changes and then the
//! pool; when it shrinks, first the pool.
//!
//! At every moment the pool is whole in its old size or in its new one, because the flash beyond
//! the pool belongs to nothing. When the change is stopped or fails, the pool has its old size, and
//! a file that was made longer is cut again. When the process is killed, or the flash fails while
//! the new size is written, it has one of the two, and the file stays as long as it is. When that
//! size is requested again, the change makes the copies of the superblock equal and gives back what
//! is behind the end.

use std::io;
use std::path::{Path, PathBuf};

use fulgurite_flash::{OpenError, claim};
use fulgurite_format::{PoolId, SUBPAGE_BYTES};
use fulgurite_sys::{Arena, Backed};

use super::error::AdminError;
use super::files::{OpenedPool, PoolFiles};
use super::{Step, Watch, report};
use crate::geometry::Geometry;
use crate::members::{MemberError, Members};
use crate::pool::{Pool, PoolError};
use crate::store::StoreConfig;

/// Written at a time.
const CHUNK_BYTES: usize = 1 << 20;
const SUBPAGE: u64 = SUBPAGE_BYTES as u64;

/// What one file or device of the pool must have.
#[derive(Debug)]
pub struct Target {
    /// Which.
    pub path: PathBuf,
    /// Bytes that it has now.
    pub found: u64,
    /// It is a file, which can have more.
    pub is_file: bool,
    /// Bytes that are needed.
    pub needed: u64,
}

/// What the kernel said of a file.
fn io<'p>(what: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> AdminError + use<'p> {
    move |source| AdminError::Io { what, path: path.into(), source }
}

/// What the flash must have for that, file by file.
fn targets(files: &PoolFiles, to: Geometry) -> Result<Vec<Target>, AdminError> {
    let path = &files.path;
    let extent_bytes = u64::from(to.extent_pages) * SUBPAGE;
    let measure = |path: &Path| -> Result<(u64, bool), AdminError> {
        let metadata = path.metadata().map_err(io("look at", path))?;
        // A device has no length of its own; what was opened of it is all of it.
        Ok((metadata.len(), metadata.is_file()))
    };
    let Some(members) = &files.members else {
        let (length, is_file) = measure(path)?;
        let found = if is_file { length } else { u64::from(files.flash.subpages()) * SUBPAGE };
        return Ok(vec![Target { path: path.clone(), found, is_file, needed: u64::from(to.extents) * extent_bytes }]);
    };
    let paths: Vec<PathBuf> = members.paths().map(PathBuf::from).collect();
    let found: Vec<(u64, bool)> = paths
        .iter()
        .zip(members.bytes())
        .map(|(path, opened)| measure(path).map(|(length, is_file)| (if is_file { length } else { opened }, is_file)))
        .collect::<Result<_, AdminError>>()?;
    let most: Vec<u32> = found
        .iter()
        .map(
            |(found, is_file)| {
                if *is_file { u32::MAX } else { u32::try_from(found / extent_bytes).unwrap_or(u32::MAX) }
            },
        )
        .collect();
    let missing = to.extents.saturating_sub(files.flash.subpages() / to.extent_pages);
    let Some(extents) = members.grown(missing, &most) else {
        return Err(AdminError::NoRoom);
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
fn extend(target: &Target, watch: Watch<'_>) -> Result<(), AdminError> {
    let file = claim(&target.path)?;
    let zeros = Arena::anonymous(CHUNK_BYTES, Backed::BasePages).map_err(OpenError::from)?;
    let failed = io("make larger", &target.path);
    let from = target.found / SUBPAGE * SUBPAGE;
    let mut done = from;
    while done < target.needed {
        report(watch, Step::Extending, done - from, target.needed - from)?;
        match file.write_at(done, &zeros, 0, (target.needed - done).min(CHUNK_BYTES as u64) as usize) {
            Ok(n) if n >= SUBPAGE_BYTES => done += (n - n % SUBPAGE_BYTES) as u64,
            Ok(_) => return Err(failed(io::ErrorKind::WriteZero.into())),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(e)),
        }
    }
    file.sync_all().map_err(failed)
}

/// A file that was made longer: the bytes that it had, and the most that it was given.
struct Longer {
    path: PathBuf,
    had: u64,
    given: u64,
}

/// Files that were made longer, and are cut again if the pool has its old size for certain.
struct Extended<'p> {
    pool: &'p Path,
    elsewhere: &'p [PathBuf],
    left: &'p mut dyn FnMut(AdminError),
    files: Vec<Longer>,
}

impl Extended<'_> {
    /// Others may have had the pool since: what it has behind the old end of a file is looked up
    /// under the lock under which that is cut.
    fn cut_back(&self) -> Result<(), AdminError> {
        let files = PoolFiles::find(self.pool, self.elsewhere)?;
        let (_, geometry, _) = files.superblock()?;
        let extent_bytes = u64::from(geometry.extent_pages) * SUBPAGE;
        for Longer { path, had, given } in &self.files {
            let extents = match &files.members {
                None => Some(geometry.extents),
                Some(members) => members.paths().position(|at| at == path).map(|at| members.extents_of(at as u32)),
            };
            let is_nobodys = extents.is_some_and(|extents| u64::from(extents) * extent_bytes <= *had);
            let length = path.metadata().map_err(io("look at", path))?.len();
            if is_nobodys && (had + 1..=*given).contains(&length) {
                cut(path, *had).map_err(io("cut to the size that it had", path))?;
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
            (self.left)(e);
        }
    }
}

/// Gives the pool its new size. From the moment at which it may have that, the files stay as long
/// as they are.
fn resize(pool: &Pool, to: Geometry, extended: &mut Extended<'_>, watch: Watch<'_>) -> Result<bool, PoolError> {
    let done = pool.resize(to, &mut || watch(Step::Moving, 0.0).is_continue());
    let unsure = matches!(&done, Err(PoolError::Resize(error)) if error.is_unsure());
    if unsure || matches!(done, Ok(true)) {
        extended.files.clear();
    }
    done
}

/// A change of size, judged: nothing was touched, and nothing keeps the pool locked.
#[derive(Debug)]
pub struct Resizing {
    path: PathBuf,
    elsewhere: Vec<PathBuf>,
    was: (PoolId, Geometry),
    to: Geometry,
    targets: Vec<Target>,
}

impl Resizing {
    /// Judges it. `elsewhere`: the members that are not where they were, as the pool was opened
    /// with.
    ///
    /// # Errors
    /// [`AdminError::NoRoom`], [`AdminError::Io`], and [`AdminError::Pool`] when the live data has
    /// no room in the new size.
    pub fn of(opened: OpenedPool, elsewhere: &[PathBuf], to: Geometry) -> Result<Resizing, AdminError> {
        let (path, was) = (opened.path.clone(), (opened.pool().id(), opened.pool().geometry()));
        if to.extents < was.1.extents || to.subpages < was.1.subpages {
            opened.pool().may_shrink(to).map_err(|source| AdminError::Pool { path: path.clone(), source })?;
        }
        let targets = targets(&opened.into_files(), to)?;
        Ok(Resizing { path, elsewhere: elsewhere.to_vec(), was, to, targets })
    }
    /// What each file or device must have. A device that has less cannot be made larger.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }
    /// Changes the size. If the pool keeps its old size and a file that was made longer could not
    /// be cut again, `left` is called with the error.
    ///
    /// # Errors
    /// Any [`AdminError`]; [`AdminError::Stopped`] when the watch says stop, and the pool has its
    /// old size.
    pub fn run(
        &self,
        config: StoreConfig,
        watch: Watch<'_>,
        left: &mut dyn FnMut(AdminError),
    ) -> Result<(), AdminError> {
        let (path, now, to) = (&self.path, self.was.1, self.to);
        let find = || PoolFiles::find(path, &self.elsewhere);
        let mut extended = Extended { pool: path, elsewhere: &self.elsewhere, left, files: Vec::new() };
        for target in self.targets.iter().filter(|target| target.needed > target.found) {
            extended.files.push(Longer { path: target.path.clone(), had: target.found, given: target.needed });
            extend(target, watch)?;
        }
        if to.extents > now.extents {
            let files = find()?;
            files.is_still(self.was)?;
            if let Some(mut members) = files.members {
                let extent_bytes = u64::from(to.extent_pages) * SUBPAGE;
                let extents: Vec<u32> = self.targets.iter().map(|t| (t.needed / extent_bytes) as u32).collect();
                let grown = members.grow(&extents);
                // From here on the files are needed as long as they are, also when only some say
                // so: but for a list that has no room, nothing fails before one of them may.
                if !matches!(grown, Err(MemberError::Bands)) {
                    extended.files.clear();
                }
                grown?;
            }
        }
        let mut opened = find()?.open(config)?;
        opened.is_still(self.was)?;
        let done = resize(opened.pool(), to, &mut extended, watch);
        if !done.map_err(|source| AdminError::Pool { path: path.clone(), source })? {
            return Err(AdminError::Stopped);
        }
        // Also where the pool has its size already: a change that was cut off may have left
        // something behind its end.
        if to.extents <= now.extents {
            give_back(&mut opened.members, path, to, &self.targets)?;
            if let [only] = &self.targets[..]
                && only.is_file
                && only.needed < only.found
            {
                // Before it is closed: after that, another program could make it longer and lose
                // its writes there.
                cut(path, only.needed).map_err(|source| not_cut(path, path, source))?;
            }
        }
        Ok(())
    }
}

/// Cuts a file of a pool that is open and locked, so that no other command uses it, and nothing is
/// read behind the end.
fn cut(file: &Path, bytes: u64) -> io::Result<()> {
    let file = fulgurite_sys::descriptors::above_standard(|| std::fs::OpenOptions::new().write(true).open(file))?;
    file.set_len(bytes).and_then(|()| file.sync_all())
}

fn not_cut(file: &Path, pool: &Path, source: io::Error) -> AdminError {
    AdminError::NotCut { path: file.into(), pool: pool.into(), source }
}

/// Forgets the bands behind the end of a pool of several files; what they need no more is cut off
/// when the pool is closed.
fn give_back(members: &mut Option<Members>, path: &Path, to: Geometry, targets: &[Target]) -> Result<(), AdminError> {
    let Some(members) = members else { return Ok(()) };
    let extents = members.shrink(to.extents)?;
    for (target, extents) in targets.iter().zip(extents).filter(|(target, _)| target.is_file) {
        let bytes = u64::from(extents) * u64::from(to.extent_pages) * SUBPAGE;
        cut(&target.path, bytes).map_err(|source| not_cut(&target.path, path, source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use fulgurite_flash::{Fault, FaultPlan, FaultyFlash, FileConfig, FileFlash, Flash, FlashError, Op, When};
    use fulgurite_format::PoolId;

    use super::*;

    fn longer<'p>(pool: &'p Path, left: &'p mut dyn FnMut(AdminError), had: u64, given: u64) -> Extended<'p> {
        Extended { pool, elsewhere: &[], left, files: vec![Longer { path: pool.into(), had, given }] }
    }
    /// While a file was made longer, or since, the pool was not locked, so what another command has
    /// put there is not cut off.
    #[test]
    fn a_file_that_others_have_made_longer_is_not_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let geometry = |extents: u32| Geometry::new(extents * 8, 8, Some(64)).unwrap();
        let bytes = |extents: u32| u64::from(geometry(extents).flash_pages()) * SUBPAGE;
        // The pool's extents when the change is given up, those that the file had room for and was
        // given, those that it has room for then.
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
            drop(longer(&path, &mut |error| panic!("{error}"), bytes(had), bytes(given)));
            let is = path.metadata().unwrap().len();
            assert_eq!(is, bytes(left), "a pool of {has} in a file for {found} that had {had} and was given {given}");
        }
        // In use, it is not known what it needs.
        let held = FileFlash::open(&FileConfig::existing(&path)).unwrap();
        let mut reported = 0;
        drop(longer(&path, &mut |_| reported += 1, bytes(60), bytes(90)));
        assert_eq!(reported, 1);
        drop(held);
        assert_eq!(path.metadata().unwrap().len(), bytes(70));
    }
    /// A file is cut again only where the pool has its old size: not where a copy of its superblock
    /// may say the new one.
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
            let left = &mut |error: AdminError| panic!("{error}");
            let mut extended = longer(&path, left, bytes(small), bytes(large));
            let done = resize(&pool, large, &mut extended, &mut |_, _| ControlFlow::Continue(()));
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
