//! Opens a pool by its path, and says in words why that cannot be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow, bail};
use fulgurite_flash::{FileConfig, FileFlash, FileMode, Flash, Layered, OpenError, claim};
use fulgurite_format::{Header, Kind, NotMetadata, PoolId, SUBPAGE_BYTES, Superblock, format_bytes};
use fulgurite_store::{
    Driver, Geometry, MemberError, Members, Pool, PoolError, RecoverError, RecoverReport, StoreConfig, Victims,
    member_in, superblock,
};
use fulgurite_sys::{Arena, Backed, DirectFile};

use super::args::PoolArgs;
use super::create::random_id;
use crate::bad_input::{BadInput, bad_input};
use crate::interrupt::Interrupted;

/// Bytes in which the signatures of file systems and formats lie.
const HEAD_BYTES: usize = 72 << 10;

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

/// The beginning of a file or device: its size, and its first bytes, zeros behind its end.
pub fn head(file: &DirectFile, path: &Path) -> Result<(u64, Vec<u8>)> {
    let bytes = file.bytes().with_context(|| format!("the size of {} cannot be found", path.display()))?;
    let arena = Arena::anonymous(HEAD_BYTES, Backed::BasePages)?;
    let mut done = 0;
    while done < HEAD_BYTES && (done as u64) < bytes {
        match file.read_at(done as u64, &arena, done, HEAD_BYTES - done) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            // A damaged beginning: what follows may still be read.
            Err(_) => done += SUBPAGE_BYTES - done % SUBPAGE_BYTES,
        }
        // Past the page cache, only whole blocks can follow.
        if !done.is_multiple_of(SUBPAGE_BYTES) {
            break;
        }
    }
    let mut head = vec![0; HEAD_BYTES];
    arena.read(0, &mut head);
    Ok((bytes, head))
}

/// How the names of pools begin that a benchmark makes; the rest is drawn at random. All of the name of a pool that is kept is.
const OF_A_BENCHMARK: [u8; 8] = *b"of bench";

/// A name for a pool that a benchmark makes. Another one each time: a pool takes journals and data of its name for its own, also those
/// that a run before it has left on the same medium.
///
/// # Errors
/// When no random numbers can be had.
pub fn benchmark_id() -> Result<PoolId> {
    let mut id = random_id()?;
    id.0[..OF_A_BENCHMARK.len()].copy_from_slice(&OF_A_BENCHMARK);
    Ok(id)
}

/// Whether a benchmark has made this pool, so that nobody misses it.
pub fn of_a_benchmark(pool: PoolId) -> bool {
    pool.0.starts_with(&OF_A_BENCHMARK)
}

/// Which pool begins like this, if one does. One of the two copies of the superblock suffices.
pub fn pool_in(head: &[u8]) -> Option<Result<PoolId, NotMetadata>> {
    let mut found = None;
    for place in [0, 1] {
        let page = head[place * SUBPAGE_BYTES..][..SUBPAGE_BYTES].try_into().expect("a page");
        match Header::open(page) {
            Ok((header, ..)) if header.kind == Kind::Superblock && header.place as usize == place => {
                return Some(Ok(header.pool));
            }
            Ok(_) | Err(NotMetadata::Magic) => {}
            Err(e) => found = found.or(Some(Err(e))),
        }
    }
    // Of several files, only the first begins with a superblock.
    found.or_else(|| member_in(head).map(Ok))
}

/// What begins like this, where that is something that people know by name, and no pool.
pub fn known_as(head: &[u8], bytes: u64) -> Option<&'static str> {
    let at = |offset: usize, magic: &[u8]| head.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    // Each by what its tools look for; ZFS by the trailer of a label's boot block, in either order of bytes, or by the list of names behind it
    // (vdev_label.c: VDEV_PAD_SIZE, ZEC_MAGIC).
    let known: [(usize, &[u8], &str); 21] = [
        (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
        (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
        (0x8001, b"CD001", "an ISO-9660 file system"),
        (0x3fd8, b"\x11\x7a\x0c\xb1\x7a\xda\x10\x02", "a part of a ZFS pool"),
        (0x3fd8, b"\x02\x10\xda\x7a\xb1\x0c\x7a\x11", "a part of a ZFS pool"),
        (0x4014, b"\0\0\0\x07version\0", "a part of a ZFS pool"),
        (4086, b"SWAPSPACE2", "swap space"),
        (0x200, b"LABELONE", "a volume of LVM"),
        (0x200, b"EFI PART", "a partition table"),
        (0, b"LUKS\xba\xbe", "an encrypted volume"),
        (0x1fe, b"\x55\xaa", "a boot sector or partition table"),
        (0, b"\x7fELF", "a program"),
        (0, b"\x1f\x8b", "a gzip archive"),
        (0, b"PK\x03\x04", "a zip archive"),
        (0, b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (0, b"\xfd7zXZ", "an xz archive"),
        (0x101, b"ustar", "a tar archive"),
        (0, b"SQLite format 3", "an SQLite database"),
        (0, b"%PDF", "a PDF document"),
    ];
    let used = &head[..head.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))];
    if let Some((.., what)) = known.iter().find(|(offset, magic, _)| at(*offset, magic)) {
        return Some(what);
    }
    let start = &used[..used.len().min(512)];
    let text = match std::str::from_utf8(start) {
        Ok(_) => true,
        Err(e) => e.error_len().is_none(),
    };
    let control = |byte: &u8| *byte < 32 && !b"\t\n\r\x0c".contains(byte);
    (!start.is_empty() && text && !start.iter().any(control)).then_some("text")
}

/// What a file that is no pool begins like.
pub fn looks_like(head: &[u8], bytes: u64) -> &'static str {
    match known_as(head, bytes) {
        Some(what) => what,
        None if bytes == 0 => "nothing: it is empty",
        None if head.iter().all(|byte| *byte == 0) => "zeros",
        None => "data of an unknown kind",
    }
}

/// What cannot be opened, as a bad input where it is one.
pub fn open_error(error: OpenError) -> Error {
    match error {
        OpenError::Stopped { .. } => Interrupted.into(),
        OpenError::Memory(_) | OpenError::System { .. } => error.into(),
        error => BadInput(error.to_string()).into(),
    }
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
                "{shown} has lost something that was promised: {loss}; look at what is left with `fulgurite pool export`, or \
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
        bail!(
            "{} was changed by another command meanwhile, and is as that has left it; look at it, and try again",
            path.display()
        );
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
    let (bytes, head) = head(&claim(path).map_err(open_error)?, path)?;
    if pool_in(&head).is_none() {
        let shown = path.display();
        bad_input!(
            "{shown} is no pool: it holds {}; name a pool, or make one with `fulgurite pool create`",
            looks_like(&head, bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_pool_is_named() {
        let look = |bytes: &[u8]| {
            let mut head = vec![0; HEAD_BYTES];
            head[..bytes.len()].copy_from_slice(bytes);
            assert!(pool_in(&head).is_none());
            looks_like(&head, bytes.len() as u64)
        };
        assert_eq!(look(b""), "nothing: it is empty");
        assert_eq!(look(&[0; 9000]), "zeros");
        assert_eq!(look("grüße\n".as_bytes()), "text");
        assert_eq!(look(b"\x1f\x8b\x08"), "a gzip archive");
        assert_eq!(look(&[1, 2, 255]), "data of an unknown kind");
    }
}
