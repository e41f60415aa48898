//! The files or devices of a pool, locked, and the pool on them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite_flash::{FileConfig, FileFlash, FileMode, Flash, Layered, OpenError, claim};
use fulgurite_format::{PoolId, SUBPAGE_BYTES, Superblock};

use super::error::AdminError;
use crate::driver::Driver;
use crate::geometry::Geometry;
use crate::head::Head;
use crate::members::{MemberError, Members};
use crate::pool::{Pool, PoolError};
use crate::recover::{RecoverReport, superblock};
use crate::store::StoreConfig;

/// The files or devices that hold a pool. They are locked until this, or what was opened on them,
/// is dropped.
pub struct PoolFiles {
    /// The one that was named.
    pub path: PathBuf,
    /// All of it.
    pub flash: Arc<dyn Flash>,
    /// The files or devices that it spans, if there are several.
    pub members: Option<Members>,
}

/// A pool that was opened.
pub struct OpenedPool {
    /// The medium that holds it.
    pub medium: Arc<dyn Flash>,
    /// By this path.
    pub path: PathBuf,
    /// The files or devices that it spans, if there are several.
    pub members: Option<Members>,
    /// Its data as a medium.
    pub flash: Layered<Pool>,
    /// What recovery read.
    pub report: RecoverReport,
    /// When and with which geometry it was made.
    pub superblock: Superblock,
}

/// Opens one file or device, all of it.
fn whole(path: &Path, bytes: u64) -> Result<Arc<dyn Flash>, OpenError> {
    // One that was cut anywhere is judged by its geometry.
    let bytes = bytes - bytes % SUBPAGE_BYTES as u64;
    let config = FileConfig { mode: FileMode::Existing { bytes: Some(bytes) }, ..FileConfig::existing(path) };
    Ok(Arc::new(FileFlash::open(&config)?))
}

impl PoolFiles {
    /// Claims a path, and finds that it begins like a pool, and all that this spans. `elsewhere`:
    /// members that are not where they were.
    ///
    /// # Errors
    /// [`AdminError::Open`], [`AdminError::NotAPool`], [`AdminError::Truncated`],
    /// [`AdminError::Member`].
    pub fn find(path: &Path, elsewhere: &[PathBuf]) -> Result<PoolFiles, AdminError> {
        let head = Head::of(&claim(path)?)?;
        if head.pool().is_none() {
            return Err(AdminError::NotAPool { path: path.into(), holds: head.looks_like() });
        }
        if head.bytes < SUBPAGE_BYTES as u64 {
            return Err(AdminError::Truncated { path: path.into(), bytes: head.bytes });
        }
        let flash = whole(path, head.bytes)?;
        let mut open = |path: &Path| {
            let size = |source| OpenError::System { what: "find the size of a member", source };
            // Let go of before it is opened.
            let bytes = claim(path)?.bytes().map_err(size)?;
            whole(path, bytes)
        };
        let members = Members::find((path, &flash), elsewhere, &mut open)?;
        Ok(PoolFiles { path: path.into(), flash: members.as_ref().map_or(flash, Members::flash), members })
    }
    /// Finds the files of a pool while another process uses it: nothing is claimed, and nothing may
    /// be written. What is read may be of different moments, so that it may seem damaged. Then read
    /// again.
    ///
    /// # Errors
    /// As [`PoolFiles::find`].
    pub fn find_unlocked(path: &Path, elsewhere: &[PathBuf]) -> Result<PoolFiles, AdminError> {
        let mut open = |path: &Path| -> Result<Arc<dyn Flash>, OpenError> {
            let config = FileConfig { mode: FileMode::Look { bytes: None }, ..FileConfig::existing(path) };
            Ok(Arc::new(FileFlash::open(&config)?))
        };
        let flash = open(path)?;
        let members = Members::find((path, &flash), elsewhere, &mut open)?;
        Ok(PoolFiles { path: path.into(), flash: members.as_ref().map_or(flash, Members::flash), members })
    }
    fn error(&self) -> impl Fn(PoolError) -> AdminError + use<> {
        let path = self.path.clone();
        move |source| AdminError::Pool { path: path.clone(), source }
    }
    /// Which pool that is, its geometry, and when it was made.
    pub fn superblock(&self) -> Result<(PoolId, Geometry, Superblock), AdminError> {
        superblock(&mut Driver::new(&*self.flash, 4)?).map_err(|e| self.error()(e.into()))
    }
    /// Refuses to go on with what was judged when the pool was another one, or of another size:
    /// nothing was locked since then.
    ///
    /// # Errors
    /// [`AdminError::Changed`], and the errors of [`PoolFiles::superblock`].
    pub fn is_still(&self, was: (PoolId, Geometry)) -> Result<(), AdminError> {
        let (id, geometry, _) = self.superblock()?;
        if was == (id, geometry) { Ok(()) } else { Err(AdminError::Changed { path: self.path.clone() }) }
    }
    /// Opens the pool on it read-only, in its newest state or in a token's state. Writes nothing.
    pub fn inspect(self, config: StoreConfig, token: Option<u64>) -> Result<OpenedPool, AdminError> {
        self.opened(false, |medium| Pool::inspect(medium, config, token))
    }
    /// The pool on it, for changes.
    pub fn open(self, config: StoreConfig) -> Result<OpenedPool, AdminError> {
        self.opened(true, |medium| Pool::open(medium, config))
    }
    fn opened(
        mut self,
        changes: bool,
        how: impl FnOnce(Arc<dyn Flash>) -> Result<(Pool, RecoverReport), PoolError>,
    ) -> Result<OpenedPool, AdminError> {
        let (id, _, superblock) = self.superblock()?;
        let error = self.error();
        if let Some(members) = &mut self.members {
            if members.pool() != id {
                return Err(MemberError::OfAnotherPool { path: self.path }.into());
            }
            if changes {
                members.begin_changes()?;
            }
        }
        let PoolFiles { path, flash: medium, members } = self;
        let (pool, report) = how(medium.clone()).map_err(error)?;
        Ok(OpenedPool { path, medium, members, flash: pool.into_flash(), report, superblock })
    }
}

impl OpenedPool {
    /// The pool.
    pub fn pool(&self) -> &Pool {
        self.flash.layer()
    }
    /// Bytes that programs may fill.
    pub fn data_bytes(&self) -> u64 {
        u64::from(self.flash.subpages()) * SUBPAGE_BYTES as u64
    }
    /// The files that hold it, still locked: what was seen stays so until whatever is opened on
    /// them is closed.
    #[must_use]
    pub fn into_files(self) -> PoolFiles {
        PoolFiles { path: self.path, flash: self.medium, members: self.members }
    }
    /// Refuses to go on, as [`PoolFiles::is_still`].
    ///
    /// # Errors
    /// [`AdminError::Changed`].
    pub fn is_still(&self, was: (PoolId, Geometry)) -> Result<(), AdminError> {
        let is = (self.pool().id(), self.pool().geometry());
        if was == is { Ok(()) } else { Err(AdminError::Changed { path: self.path.clone() }) }
    }
}
