//! `pool add-member`: one more file or device under a pool, and the pool larger by what it has.
//!
//! All is judged first. Then the new one is written, becomes a member by the lists of all members,
//! and the pool grows into it. A crash leaves the pool with or without it. A file that did not
//! become a member stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use fulgurite_flash::{FileFlash, Flash};
use fulgurite_format::{PoolId, SUBPAGE_BYTES, format_bytes};
use fulgurite_store::admin::PoolFiles;
use fulgurite_store::{Geometry, Members, random_id};

use super::args::AddMemberArgs;
use super::create::{MemberPath, check_room, existing, written};
use super::open::{self, admin_error, config, member_error, to_read};
use super::resize::resize_error;
use fulgurite_term::bad_input;
use fulgurite_term::bad_input::{OrBadInput, open_error};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::report;

const SUBPAGE: u64 = SUBPAGE_BYTES as u64;

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// The members of a pool, the only one of a pool of one file too.
fn members_of(path: &Path, files: PoolFiles, pool: (PoolId, Geometry)) -> Result<Members> {
    match files.members {
        Some(members) => Ok(members),
        None => Ok(Members::alone((absolute(path), files.flash), random_id()?, pool.0, pool.1)),
    }
}

/// The geometry with `more` flash pages more.
fn larger(members: &Members, now: Geometry, more: u32) -> Result<Geometry> {
    let Some(all) = (members.flash().subpages() / now.extent_pages * now.extent_pages).checked_add(more) else {
        bad_input!("--size: a pool has less than 16 TiB; choose less");
    };
    let to = if now.objects {
        Geometry::with_objects(all, now.extent_pages, now.subpages)
    } else {
        Geometry::new(all, now.extent_pages, None)
    };
    to.or_bad_input(|e| e.to_string())
}

/// What is to be done, judged.
struct Addition {
    place: MemberPath,
    bytes: u64,
    /// The pool as judged. It is not locked until the new member is written.
    pool: (PoolId, Geometry),
}

/// Judges all that can be before anything is touched, while nobody else can change the pool.
fn judged(args: &AddMemberArgs) -> Result<Addition> {
    let (path, new) = (&args.pool.path, &args.new);
    let opened = to_read(&args.pool, None)?;
    let (id, now) = (opened.pool().id(), opened.pool().geometry());
    let members = members_of(path, opened.into_files(), (id, now))?;
    let same = |member: &Path| match (member.canonicalize(), new.canonicalize()) {
        (Ok(member), Ok(new)) => member == new,
        _ => absolute(member) == absolute(new),
    };
    if members.paths().any(same) {
        bad_input!("{} is a member of the pool already; name another one", new.display());
    }
    let place = MemberPath { path: new.clone(), existing: existing(new, args.force)? };
    let extent_bytes = u64::from(now.extent_pages) * SUBPAGE;
    let Some(bytes) = args.size.or(place.existing.as_ref().map(|(_, bytes)| *bytes)) else {
        bad_input!("a new file needs --size; write for example --size 16G");
    };
    let bytes = bytes / extent_bytes * extent_bytes;
    let flash_pages = u32::try_from(bytes / SUBPAGE).unwrap_or(u32::MAX);
    members.may_add(&absolute(new), flash_pages).map_err(member_error)?;
    larger(&members, now, flash_pages - now.extent_pages)?;
    check_room(&place, bytes)?;
    // An open pool is locked by its program.
    Ok(Addition { place, bytes, pool: (id, now) })
}

/// Makes the written file a member, which it stays, and the pool larger. Returns what to say.
fn join(args: &AddMemberArgs, pool: (PoolId, Geometry), file: Arc<FileFlash>) -> Result<String> {
    let (path, new, (id, now)) = (&args.pool.path, &args.new, pool);
    // Locked from here to the end.
    let files = open::files(&args.pool)?;
    files.is_still(pool).map_err(admin_error)?;
    let mut members = members_of(path, files, pool)?;
    let to = larger(&members, now, file.subpages() - now.extent_pages)?;
    file.finish().map_err(open_error)?;
    members.add(absolute(new), file, random_id()?).map_err(member_error)?;
    let files = PoolFiles { path: path.clone(), flash: members.flash(), members: Some(members) };
    let opened = files.open(config(None)).map_err(admin_error)?;
    opened.pool().resize(to, &mut || true).map_err(|e| resize_error(path, e))?;
    let count = opened.members.as_ref().map_or(1, |members| members.paths().count());
    let [size, data, had] =
        [to.flash_pages(), to.subpages, now.flash_pages()].map(|n| format_bytes(u64::from(n) * SUBPAGE));
    Ok(format!(
        "{} is member {count} of pool {}: {size} on {count} files or devices, {data} for data; it had {had}\n",
        new.display(),
        open::name_of(id)
    ))
}

/// `pool add-member`.
pub fn run(args: &AddMemberArgs) -> Result<()> {
    let Addition { place, bytes, pool } = judged(args)?;
    let interrupt = Interrupt::catch()?;
    let file = written(place, bytes, &interrupt)?;
    interrupt.check()?;
    let said = join(args, pool, file)?;
    report::write_stdout(said.as_bytes())
}

#[cfg(test)]
mod tests {
    use fulgurite_flash::FileConfig;
    use fulgurite_store::Pool;

    use super::*;
    use crate::pool::args::PoolArgs;
    use crate::pool::open::to_change;

    /// The pool is not locked while the new member is written. One that was resized meanwhile is
    /// left alone: the new member would be searched for data behind the old end.
    #[test]
    fn a_pool_that_was_resized_meanwhile_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one");
        let geometry = |extents: u32| Geometry::new(extents * 8, 8, None).unwrap();
        let (small, large) = (geometry(60), geometry(90));
        let bytes = |geometry: Geometry| u64::from(geometry.flash_pages()) * SUBPAGE;
        for resized in [true, false] {
            let _ = std::fs::remove_file(&path);
            let flash: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::create(&path, bytes(large))).unwrap());
            Pool::format(&flash, small, PoolId([7; 16]), 0).unwrap();
            drop(flash);
            let args = AddMemberArgs {
                pool: PoolArgs { path: path.clone(), members: Vec::new() },
                new: directory.path().join(format!("new, {resized}")),
                size: Some(bytes(small)),
                force: false,
            };
            let addition = judged(&args).unwrap();
            let file = written(addition.place, addition.bytes, &Interrupt::default()).unwrap();
            if resized {
                let opened = to_change(&args.pool, config(None)).unwrap();
                assert!(opened.pool().resize(large, &mut || true).unwrap());
            }
            let joined = join(&args, addition.pool, file);
            let opened = to_read(&args.pool, None).unwrap();
            assert_eq!((joined.is_ok(), args.new.exists()), (!resized, !resized), "{joined:?}");
            if resized {
                assert!(joined.unwrap_err().to_string().contains("was changed by another command"));
                assert_eq!(opened.pool().geometry(), large);
                assert!(opened.members.is_none());
            } else {
                assert_eq!(opened.pool().geometry().extents, 2 * 60 - 1);
            }
        }
    }
}
