//! Opens a pool by its path, and says in words why that cannot be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Error, Result, anyhow, bail};
use fulgurite_bench::bad_input::open_error;
use fulgurite_flash::{FileConfig, FileFlash, FileMode, Flash, Layered, OpenError, claim};
use fulgurite_format::{NotMetadata, PoolId, SUBPAGE_BYTES, Superblock, format_bytes};
use fulgurite_store::{
    Driver, Geometry, Head, MemberError, Members, Pool, PoolError, RecoverError, RecoverReport, StoreConfig, Victims,
    superblock,
};

use super::args::PoolArgs;
use fulgurite_bench::bad_input;
use fulgurite_bench::bad_input::BadInput;

/// A pool that was opened.
pub struct Opened {
    /// By this path.
    pub path: PathBuf,
    /// What it lies on.
    pub medium: Arc<dyn Flash>,
    /// The files or devices that it spans, if there are several.
    pub members: Option<Members>,
    /// Its data as a medium.
    pub flash: Layered<Pool>,
    /// What recovery read.
    pub report: RecoverReport,
    /// When and with which geometry it was made.
    pub superblock: Superblock,
}

impl Opened {
    /// The pool.
    pub fn pool(&self) -> &Pool {
        self.flash.layer()
    }
    /// Bytes that programs may fill.
    pub fn data_bytes(&self) -> u64 {
        u64::from(self.flash.subpages()) * SUBPAGE_BYTES as u64
    }
    /// What it lies on, still locked: what was seen is so until whatever is opened on it is closed.
    pub fn into_medium(self) -> Medium {
        Medium { flash: self.medium, members: self.members }
    }
}

/// Identity of a pool as people see it.
pub fn name_of(id: PoolId) -> String {
    id.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How these commands behave as a user of a pool: they let no token go that they were not told to.
pub fn config(keep: Option<u32>) -> StoreConfig {
    let mut config = StoreConfig::default();
    config.keep_tokens = keep.map_or(usize::MAX, |keep| keep as usize);
    config.victims = Victims::Greedy;
    config
}

/// Why a pool at this path cannot be used, for people.
pub fn pool_error(path: &Path, error: PoolError) -> Error {
    let shown = path.display();
    let bytes = |pages: u32| format_bytes(u64::from(pages) * SUBPAGE_BYTES as u64);
    let said = match error {
        PoolError::Recover(RecoverError::NotAPool(e @ NotMetadata::Newer(_))) => {
            format!("{shown} is a pool of a later program: {e}")
        }
        PoolError::Recover(RecoverError::NotAPool(e)) => {
            format!("{shown} was a pool, but no copy of its superblock can be used ({e}); restore it from a copy")
        }
        PoolError::Recover(RecoverError::Truncated { needed, found }) => format!(
            "{shown} is truncated: the pool has {}, and {} are there; restore it from a copy",
            bytes(needed),
            bytes(found)
        ),
        PoolError::Recover(RecoverError::Geometry(e)) => format!("{shown}: {e}"),
        PoolError::NoToken { .. } => format!("{shown}: {error}"),
        PoolError::Recover(RecoverError::Lost(loss)) => {
            return anyhow!(
                "{shown} has lost promised data: {loss}; inspect the remaining data with `fulgurite pool export`, or \
                 accept the loss with `fulgurite pool check {shown} --repair --force --accept-loss`"
            );
        }
        PoolError::Recover(e @ RecoverError::Newer { .. }) => format!("{shown} is a pool of a later program: {e}"),
        PoolError::Recover(
            e @ (RecoverError::NoAnchor(_) | RecoverError::Checkpoint(_) | RecoverError::Journal(_)),
        ) => {
            return anyhow!("{shown} is a pool that cannot be opened: {e}");
        }
        PoolError::Recover(e @ RecoverError::Flash { .. }) => {
            return anyhow!("{shown} is a pool that cannot be opened: {e}; restore it from a copy");
        }
        error => return Error::new(error).context(shown.to_string()),
    };
    BadInput(said).into()
}

/// Why the files of a pool cannot be put together, for people.
pub fn member_error(error: MemberError) -> Error {
    match error {
        MemberError::Open(e) => open_error(e),
        e @ (MemberError::Driver { .. } | MemberError::Flash { .. }) => e.into(),
        e => BadInput(e.to_string()).into(),
    }
}

/// What a pool lies on.
pub struct Medium {
    /// All of it.
    pub flash: Arc<dyn Flash>,
    /// The files or devices that it spans, if there are several.
    pub members: Option<Members>,
}

impl Medium {
    /// Which pool that is, its geometry, and when it was made.
    pub fn superblock(&self, path: &Path) -> Result<(PoolId, Geometry, Superblock)> {
        superblock(&mut Driver::new(&*self.flash, 4)?).map_err(|e| pool_error(path, e.into()))
    }
    /// The pool on it, to be looked at, in its newest state or that of a token. Writes nothing.
    pub fn inspect(self, path: &Path, token: Option<u64>) -> Result<Opened> {
        self.opened(path, false, |medium| Pool::inspect(medium, config(None), token))
    }
    /// The pool on it, for changes.
    pub fn open(self, path: &Path, config: StoreConfig) -> Result<Opened> {
        self.opened(path, true, |medium| Pool::open(medium, config))
    }
    fn opened(
        mut self,
        path: &Path,
        changes: bool,
        how: impl FnOnce(Arc<dyn Flash>) -> Result<(Pool, RecoverReport), PoolError>,
    ) -> Result<Opened> {
        let (id, _, superblock) = self.superblock(path)?;
        if let Some(members) = &mut self.members {
            if members.pool() != id {
                return Err(member_error(MemberError::OfAnotherPool { path: path.into() }));
            }
            if changes {
                members.begin_changes().map_err(member_error)?;
            }
        }
        let Medium { flash: medium, members } = self;
        let (pool, report) = how(medium.clone()).map_err(|e| pool_error(path, e))?;
        if let Some(loss) = report.lost {
            eprintln!("fulgurite: {}: {loss}", path.display());
        }
        Ok(Opened { path: path.into(), medium, members, flash: pool.into_flash(), report, superblock })
    }
}

/// Refuses to go on with what was judged when the pool was another one, or of another size: nothing was locked since then.
pub fn unchanged(path: &Path, was: (PoolId, Geometry), is: (PoolId, Geometry)) -> Result<()> {
    if was != is {
        bail!("{} was changed by another command meanwhile; inspect it, and try again", path.display());
    }
    Ok(())
}

/// Opens one file or device, all of it.
fn whole(path: &Path, bytes: u64) -> Result<Arc<dyn Flash>, OpenError> {
    // One that was cut anywhere is judged by its geometry.
    let bytes = bytes - bytes % SUBPAGE_BYTES as u64;
    let config = FileConfig { mode: FileMode::Existing { bytes: Some(bytes) }, ..FileConfig::existing(path) };
    Ok(Arc::new(FileFlash::open(&config)?))
}

/// What a pool lies on: claimed, and found to begin like a pool; with all that it spans.
pub fn medium(pool: &PoolArgs) -> Result<Medium> {
    let path = &pool.path;
    let head = Head::of(&claim(path).map_err(open_error)?)?;
    let bytes = head.bytes;
    if head.pool().is_none() {
        let shown = path.display();
        bad_input!(
            "{shown} is no pool: it holds {}; name a pool, or create one with `fulgurite pool create`",
            head.looks_like()
        );
    }
    if bytes < SUBPAGE_BYTES as u64 {
        bad_input!("{} is truncated: of a pool {bytes} bytes are there; restore it from a copy", path.display());
    }
    let flash = whole(path, bytes).map_err(open_error)?;
    let mut open = |path: &Path| {
        let bytes =
            claim(path)?.bytes().map_err(|source| OpenError::System { what: "find the size of a member", source })?;
        whole(path, bytes)
    };
    let members = Members::find((path, &flash), &pool.members, &mut open).map_err(member_error)?;
    Ok(Medium { flash: members.as_ref().map_or(flash, Members::flash), members })
}

/// Opens a pool to look at it, in its newest state or that of a token. Writes nothing.
pub fn to_look_at(pool: &PoolArgs, token: Option<u64>) -> Result<Opened> {
    medium(pool)?.inspect(&pool.path, token)
}

/// Opens a pool for changes.
pub fn to_change(pool: &PoolArgs, config: StoreConfig) -> Result<Opened> {
    medium(pool)?.open(&pool.path, config)
}
