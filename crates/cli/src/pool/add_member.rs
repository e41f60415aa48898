//! `pool add-member`: one more file or device under a pool, and the pool larger by what it has.
//!
//! All is judged first. Then the new one is written from end to end, becomes a member by the lists of all members, and then the pool
//! grows into it. A crash leaves the pool as it was, or with the new member; what is left of one that did not become a member is a file
//! that nothing refers to, and stays where it is.

use std::path::PathBuf;

use anyhow::Result;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Geometry, Members};

use super::args::AddMemberArgs;
use super::create::{Made, Place, check_room, existing, random_id, written};
use super::open::{self, Medium, config, member_error, to_change, to_look_at};
use super::resize::resize_error;
use crate::bad_input::bad_input;
use crate::interrupt::Interrupt;
use crate::pages;

const SUBPAGE: u64 = SUBPAGE_BYTES as u64;

fn absolute(path: &std::path::Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// `pool add-member`.
pub fn run(args: &AddMemberArgs) -> Result<()> {
    let (path, new) = (&args.pool.path, &args.new);
    // All that can be judged is judged before anything is touched, while nobody else can change the pool.
    let opened = to_look_at(&args.pool, None)?;
    let (id, now) = (opened.pool().id(), opened.pool().geometry());
    let mut alone = None;
    let members = match &opened.members {
        Some(members) => members,
        None => &*alone.insert(Members::alone((absolute(path), opened.medium.clone()), random_id()?, id, now)),
    };
    let same = |member: &std::path::Path| match (member.canonicalize(), new.canonicalize()) {
        (Ok(member), Ok(new)) => member == new,
        _ => absolute(member) == absolute(new),
    };
    if members.paths().any(same) {
        bad_input!("{} is a member of the pool already; name another one", new.display());
    }
    let place = Place { path: new.clone(), existing: existing(new, args.force)? };
    let extent_bytes = u64::from(now.extent_pages) * SUBPAGE;
    let Some(bytes) = args.size.or(place.existing.as_ref().map(|(_, bytes)| *bytes)) else {
        bad_input!("a new file needs --size; write for example --size 16G");
    };
    let bytes = bytes / extent_bytes * extent_bytes;
    let flash_pages = u32::try_from(bytes / SUBPAGE).unwrap_or(u32::MAX);
    members.may_add(&absolute(new), flash_pages).map_err(member_error)?;
    let more = flash_pages - now.extent_pages;
    let Some(all) = (members.flash().subpages() / now.extent_pages * now.extent_pages).checked_add(more) else {
        bad_input!("--size: a pool has less than 16 TiB; choose less");
    };
    let to = if now.objects {
        Geometry::with_objects(all, now.extent_pages, now.subpages)
    } else {
        Geometry::new(all, now.extent_pages, None)
    };
    let to = match to {
        Ok(to) => to,
        Err(e) => bad_input!("{e}"),
    };
    check_room(&place, bytes)?;
    // Whoever has it open keeps it locked.
    drop(opened);
    drop(alone);

    let interrupt = Interrupt::catch()?;
    let is_new = place.existing.is_none();
    let mut made = Made::default();
    let flash = written(place, bytes, &interrupt)?;
    if is_new {
        made.0.push(new.clone());
    }
    interrupt.check()?;
    let Medium { flash: medium, members } = open::medium(&args.pool)?;
    let mut members = match members {
        Some(members) => members,
        None => Members::alone((absolute(path), medium.clone()), random_id()?, id, now),
    };
    // From here on others may refer to it.
    made.0.clear();
    members.add(absolute(new), flash, random_id()?).map_err(member_error)?;
    drop((members, medium));
    let opened = to_change(&args.pool, config(None))?;
    opened.pool().resize(to, &mut || true).map_err(|e| resize_error(path, e))?;
    let count = opened.members.as_ref().map_or(1, |members| members.paths().count());
    let [size, data, had] =
        [to.flash_pages(), to.subpages, now.flash_pages()].map(|n| format_bytes(u64::from(n) * SUBPAGE));
    pages::write_stdout(
        format!(
            "{} is member {count} of pool {}: {size} on {count} files or devices, {data} for data; it had {had}\n",
            new.display(),
            open::name_of(id)
        )
        .as_bytes(),
    )
}
