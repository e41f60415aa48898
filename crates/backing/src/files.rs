//! The files or devices that hold a pool of this process, and how they become larger while it is
//! open.
//!
//! Invariant: the pool uses nothing of what is added before its superblock says so, which its store
//! writes last ([`fulgurite_store::Pool::grow`]). So a change that is cut off, or fails, leaves a
//! pool of its old size, perhaps in longer files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite_flash::{FileConfig, FileFlash, Flash, OpenError};
use fulgurite_format::SUBPAGE_BYTES;
use fulgurite_store::{Driver, MemberError, Members, PoolError, superblock};

use crate::Error;

/// See the top of the file.
pub struct Files {
    /// The one that was named.
    path: PathBuf,
    /// In the order of the members.
    files: Vec<Arc<FileFlash>>,
    /// How they belong together. None: there is one, and it is all of the pool.
    members: Option<Mutex<Members>>,
}

/// What each file is to have, in extents.
type Targets = Vec<u32>;

impl Files {
    pub(crate) fn one(path: &Path, file: Arc<FileFlash>) -> Files {
        Files { path: path.into(), files: vec![file], members: None }
    }
    /// The file or device of a pool, or all those that it spans, of which `path` is any. They say
    /// from then on that the pool is changed, so that a copy of one that was made before is known
    /// as old.
    pub(crate) fn of_pool(path: &Path) -> Result<Files, Error> {
        let file = Arc::new(FileFlash::open(&FileConfig::existing(path))?);
        let mut opened = vec![(path.to_path_buf(), file.clone())];
        let mut open = |path: &Path| -> Result<Arc<dyn Flash>, OpenError> {
            let file = Arc::new(FileFlash::open(&FileConfig::existing(path))?);
            opened.push((path.into(), file.clone()));
            Ok(file)
        };
        let error = |source| Error::Members { path: path.into(), source };
        let flash: Arc<dyn Flash> = file.clone();
        let Some(mut members) = Members::find((path, &flash), &[], &mut open).map_err(error)? else {
            return Ok(Files::one(path, file));
        };
        let first = Driver::new(&*members.flash(), 4).map_err(PoolError::from);
        let first = first.and_then(|mut driver| Ok(superblock(&mut driver)?));
        let (id, ..) = first.map_err(|source| Error::Pool { path: path.into(), source })?;
        if id != members.pool() {
            return Err(error(MemberError::OfAnotherPool { path: path.into() }));
        }
        members.begin_changes().map_err(error)?;
        let of = |path: &Path| {
            let found = opened.iter().find(|(opened, _)| opened == path);
            found.expect("each member was opened").1.clone()
        };
        let files = members.paths().map(of).collect();
        Ok(Files { path: path.into(), files, members: Some(Mutex::new(members)) })
    }
    /// Gives files that were created their names.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        Ok(self.files.iter().try_for_each(|file| file.finish())?)
    }
    /// All of them as one medium.
    #[must_use]
    pub fn flash(&self) -> Arc<dyn Flash> {
        match self.members() {
            Some(members) => members.flash(),
            None => self.files[0].clone(),
        }
    }
    fn members(&self) -> Option<MutexGuard<'_, Members>> {
        Some(self.members.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Whether they can have that many extents, as far as is known beforehand.
    ///
    /// # Errors
    /// [`OpenError::FixedSize`] for block devices that have less.
    pub fn may_grow(&self, extents: u32, extent_pages: u32) -> Result<(), Error> {
        match self.members() {
            Some(members) => self.targets(&members, extents, extent_pages).map(|_| ()),
            None => Ok(self.files[0].may_grow(bytes(extents, extent_pages))?),
        }
    }
    /// Makes them larger, so that the pool's medium has `extents` extents. Of several members, each
    /// gets about the same number.
    ///
    /// # Errors
    /// [`Error::Open`] when one of them cannot have as much, and [`Error::Members`] when they
    /// cannot note what they have. The medium goes on as it was then.
    pub fn grow(&self, extents: u32, extent_pages: u32) -> Result<(), Error> {
        let Some(mut members) = self.members() else {
            return Ok(self.files[0].grow(bytes(extents, extent_pages))?);
        };
        if members.extents() >= extents {
            return Ok(());
        }
        let targets = self.targets(&members, extents, extent_pages)?;
        for (file, extents) in self.files.iter().zip(&targets) {
            file.grow(bytes(*extents, extent_pages))?;
        }
        members.grow(&targets).map_err(|source| Error::Members { path: self.path.clone(), source })
    }
    /// Whole rows where that is possible, so that the list of members stays short.
    fn targets(&self, members: &Members, extents: u32, extent_pages: u32) -> Result<Targets, Error> {
        let each = bytes(1, extent_pages);
        let most = |file: &Arc<FileFlash>| -> Result<u32, Error> {
            Ok(file.most_bytes()?.map_or(u32::MAX, |bytes| u32::try_from(bytes / each).unwrap_or(u32::MAX)))
        };
        let most: Vec<u32> = self.files.iter().map(most).collect::<Result<_, Error>>()?;
        let missing = extents.saturating_sub(members.extents());
        let rows = missing.checked_next_multiple_of(self.files.len() as u32).unwrap_or(missing);
        let targets = members.grown(rows, &most).or_else(|| members.grown(missing, &most));
        targets.ok_or_else(|| {
            let (file, most) = self.files.iter().zip(most).min_by_key(|(_, most)| *most).expect("there are some");
            OpenError::FixedSize { path: file.path().into(), bytes: u64::from(most) * each }.into()
        })
    }
}

fn bytes(extents: u32, extent_pages: u32) -> u64 {
    u64::from(extents) * u64::from(extent_pages) * SUBPAGE_BYTES as u64
}
