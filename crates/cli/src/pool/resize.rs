//! `pool resize`: judged first, then done by [`fulgurite_store::admin::Resizing`].

use std::path::Path;

use anyhow::Result;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::admin::{AdminError, Resizing};
use fulgurite_store::{Geometry, PoolError, ResizeError};
use fulgurite_term::bad_input;
use fulgurite_term::bad_input::{BadInput, OrBadInput};
use fulgurite_term::interrupt::Interrupt;
use fulgurite_term::stderr::log;
use fulgurite_term::{checks, report};

use super::args::ResizeArgs;
use super::open::{self, Watched, admin_error, config, to_read};

const SUBPAGE: u64 = SUBPAGE_BYTES as u64;

fn flash_pages(option: &str, bytes: u64) -> Result<u32> {
    u32::try_from(bytes / SUBPAGE).or_bad_input(|_| format!("{option}: a pool has less than 16 TiB; choose less"))
}

/// The geometry that was asked for.
fn geometry(args: &ResizeArgs, now: Geometry) -> Result<Geometry> {
    let all = args.size.map_or(Ok(now.flash_pages()), |size| flash_pages("--size", size))?;
    let data = args.data.map(|data| flash_pages("--data", data.next_multiple_of(SUBPAGE))).transpose()?;
    let geometry = if now.objects || args.objects {
        // How much can be addressed does not follow from how much there is.
        Geometry::with_objects(all, now.extent_pages, data.unwrap_or(now.subpages))
    } else {
        Geometry::new(all, now.extent_pages, data)
    };
    geometry.or_bad_input(|e| e.to_string())
}

/// Turns an error into a bad input, where it is one.
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
    if args.size.is_none() && args.data.is_none() && !args.objects {
        bad_input!("say what the pool should have: --size, --data, --objects, or several of them");
    }
    let error = |error| match error {
        AdminError::Pool { path, source } => resize_error(&path, source),
        error => admin_error(error),
    };
    // All that can be judged is judged before anything is touched.
    let opened = to_read(&args.pool, None)?;
    let now = opened.pool().geometry();
    let to = geometry(args, now)?;
    let resizing = Resizing::of(opened, &args.pool.members, to).map_err(error)?;
    for target in resizing.targets().iter().filter(|target| target.needed > target.found) {
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
    let mut watched = Watched::by(&interrupt);
    let left = &mut |error| {
        log(format_args!(
            "fulgurite: what was added behind the end of the pool stays for now: {:#}",
            admin_error(error)
        ));
    };
    let done = resizing.run(config(None), &mut |step, share| watched.at(step, share), left);
    drop(watched);
    done.map_err(error)?;
    let said = |geometry: Geometry| {
        let (all, data) = (u64::from(geometry.flash_pages()) * SUBPAGE, u64::from(geometry.subpages) * SUBPAGE);
        let packs = if geometry.objects { " and objects" } else { "" };
        format!("{} in {} extents, {} for data{packs}", format_bytes(all), geometry.extents, format_bytes(data))
    };
    let answer = if to == now {
        format!("{} has {} already", path.display(), said(now))
    } else {
        format!("{} has {}; it had {}", path.display(), said(to), said(now))
    };
    report::say(&answer)
}
