//! NVMM's operations on pages of a pool: `alloc`, `delete`, `setperms`. Accesses are `read` and
//! `write`. [`Fulgurite::sync`] and [`Fulgurite::roll_back`] are `sync` and `rollback`.

use std::sync::Arc;

use fulgurite_format::{Address, Controller, PAGE_BYTES};
use fulgurite_memory::{AccessError, Directory, Region, RootError};
use fulgurite_runtime::{Context, Durable, StateHeld};
use fulgurite_store::Permissions;

use crate::registry::Registry;
use crate::store::{Store, pages_of};
use crate::{Error, Fulgurite};

const PAGE: u64 = PAGE_BYTES as u64;

impl Fulgurite {
    /// The controllers of this memory's pages. There is one, whatever the pool spans, and addresses
    /// carry its number.
    pub const CONTROLLERS: &[Controller] = &[Controller::FIRST];

    /// As [`Fulgurite::alloc`], on a controller. Changes on one controller have one order for all
    /// observers (NVMM). A process has one. In addition to its number it has NVMM's two names for
    /// the local one, 0 and 0xFFFFF ([`Controller::is_local`]). Addresses always carry its number,
    /// because address 0 is null.
    ///
    /// # Errors
    /// [`Error::NoController`], which lists those there are: nothing was allocated. Else as
    /// [`Fulgurite::alloc`].
    pub fn alloc_on(&self, controller: Controller, pages: u32, permissions: Permissions) -> Result<Region, Error> {
        if !controller.is_local() && !Self::CONTROLLERS.contains(&controller) {
            return Err(Error::NoController { controller, there: Self::CONTROLLERS });
        }
        self.alloc(pages, permissions)
    }

    /// Allocates `pages` pages of 64 KiB, side by side, which read as zeros until they are written.
    /// Temporary ones go when this process ends, however it ends, and free their addresses.
    ///
    /// # Errors
    /// [`Error::Root`] when too few are free. [`Error::Pool`] when it cannot be recorded.
    /// [`Error::NoPool`]. [`Error::Sync`] when a job without a right to them holds them in DRAM, or
    /// an abandoned sync is still being written.
    pub fn alloc(&self, pages: u32, permissions: Permissions) -> Result<Region, Error> {
        self.reserve_clean("alloc", u64::from(pages) * PAGE, Some(permissions))
    }

    /// Hands out addresses of whole pages, without earlier contents: any address of the pool may be
    /// stored to. No state is named in between.
    pub(crate) fn reserve_clean(
        &self,
        what: &'static str,
        bytes: u64,
        permissions: Option<Permissions>,
    ) -> Result<Region, Error> {
        let held = self.runtime.hold_state()?;
        let region = self.on_pages(&held, what, move |m, _, directory| Ok(directory.reserve(m, bytes)?))?;
        let pool = self.kept(what)?.pool.clone();
        let narrowed = permissions.map(|permissions| pool.narrow(pages_of(region), permissions));
        let cleaned = held.take_out(region.base, region.bytes, false).map_err(Error::from);
        let done = cleaned.and_then(|()| {
            self.on_pages(&held, what, move |_, pool, _| {
                let pages = pages_of(region);
                pool.clear_pages(pages.clone(), permissions.is_some())?;
                permissions.map_or(Ok(()), |permissions| Ok(pool.set_permissions(pages, permissions)?))
            })
        });
        match (&done, narrowed) {
            (Ok(()), Some(narrowed)) => narrowed.changed(),
            (_, narrowed) => drop(narrowed),
        }
        if done.is_err() {
            // What cannot be given back is lost, and nothing else.
            let _ = self.on_pages(&held, what, move |m, _, directory| Ok(directory.give_back(m, region)?));
        }
        done.map(|()| region)
    }

    /// Deletes pages from `alloc` or [`Fulgurite::region`]: their data is gone with the next sync,
    /// and their addresses are free. No job may use them any more.
    ///
    /// # Errors
    /// [`Error::Root`] when they were not handed out, or a root is in them. [`Error::Pool`] when
    /// one is read-only, or there is no room for the change before the next sync. That is so after
    /// each sync where they are more than a sixteenth of the DRAM remembers
    /// ([`Named::remove`](crate::Named::remove)): delete parts, and sync in between.
    /// [`Error::NoPool`]. Nothing is deleted then.
    pub fn delete(&self, region: Region) -> Result<(), Error> {
        let held = self.runtime.hold_state()?;
        // What is under way goes first, so that nothing of it is written when the pages are gone.
        held.take_out(region.base, region.bytes, true)?;
        self.on_pages(&held, "delete", move |m, pool, directory| {
            check(m, directory, region)?;
            pool.delete_pages(pages_of(region))?;
            Ok(directory.give_back(m, region)?)
        })?;
        Ok(held.take_out(region.base, region.bytes, false)?)
    }

    /// Changes permissions and lifetime of pages, as part of the state, so that it rolls back with
    /// the data. Pages of roots, and those not handed out, are refused. Read-only pages are not,
    /// because their owner may make them writable again.
    ///
    /// # Errors
    /// [`Error::Root`] when they were not handed out, or a root is in them. [`Error::Pool`] when it
    /// cannot be recorded. [`Error::NoPool`]. [`Error::Sync`] when a job holds some of them in
    /// DRAM.
    pub fn set_permissions(&self, region: Region, permissions: Permissions) -> Result<(), Error> {
        let held = self.runtime.hold_state()?;
        let pool = self.kept("set_permissions")?.pool.clone();
        self.on_pages(&held, "set_permissions", move |m, _, directory| Ok(check(m, directory, region)?))?;
        let narrowed = pool.narrow(pages_of(region), permissions);
        held.take_out(region.base, region.bytes, true)?;
        self.on_pages(&held, "set_permissions", move |m, pool, directory| {
            check(m, directory, region)?;
            Ok(pool.set_permissions(pages_of(region), permissions)?)
        })?;
        narrowed.changed();
        // Accesses in between found the old permissions.
        Ok(held.take_out(region.base, region.bytes, true)?)
    }

    /// What may be done with the page of an address; none when it is not allocated.
    ///
    /// # Errors
    /// [`Error::NoPool`]; [`Error::Pool`] when a device does not say.
    pub fn permissions(&self, at: Address) -> Result<Option<Permissions>, Error> {
        let kept = self.kept("permissions")?;
        let page = pages_of(Region::new(Address::from_linear(at.linear() / PAGE * PAGE), PAGE)).start;
        let there = at.controller() == Address::FIRST_CONTROLLER && page < kept.pool.pages();
        if there { Ok(kept.pool.permissions(page)?) } else { Ok(None) }
    }

    fn on_pages<T: Send + 'static>(
        &self,
        held: &StateHeld<'_>,
        what: &'static str,
        code: impl FnOnce(&mut Context, &Store, &Directory) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let kept = self.kept(what)?;
        let (pool, named) = (kept.pool.clone(), kept.named.clone());
        held.run(move |m| {
            // The directory and the pages' status change together.
            let _section = m.write_section()?;
            Ok(code(m, &pool, &named.directory))
        })?
    }
}

/// Whether a region is handed out, whole, and not a root's.
fn check(m: &mut Context, directory: &Directory, region: Region) -> Result<(), RootError> {
    let handed_out = directory.has_handed_out(m, region)?;
    if !handed_out || holds_a_root(m, directory, region)? {
        return Err(RootError::NotHandedOut { at: region.base, bytes: region.bytes });
    }
    Ok(())
}
fn holds_a_root(m: &mut Context, directory: &Directory, region: Region) -> Result<bool, RootError> {
    let end = |base: Address, bytes: u64| base.linear().saturating_add(bytes);
    let mut roots = directory.roots(m)?;
    roots.extend(directory.leaving(m)?);
    Ok(roots.iter().any(|root| {
        root.address.linear() < end(region.base, region.bytes) && region.base.linear() < end(root.address, root.bytes)
    }))
}

/// Temporary pages that a roll back removes. Their addresses are given back before anything is
/// written or named.
pub(crate) struct Temporary {
    pool: Store,
    named: Arc<Registry>,
}

impl Temporary {
    pub fn new(pool: Store, named: Arc<Registry>) -> Temporary {
        Temporary { pool, named }
    }
}

impl Durable for Temporary {
    fn save(&self, _: &mut Context) -> Result<(), AccessError> {
        Ok(())
    }
    fn reload(&self, context: &mut Context) -> Result<(), AccessError> {
        give_temporary_back(context, &self.pool, &self.named)
    }
}

/// Gives the addresses of temporary pages back that went with an earlier process.
pub(crate) fn give_temporary_back(m: &mut Context, pool: &Store, named: &Registry) -> Result<(), AccessError> {
    let _section = m.write_section()?;
    let dropped = pool.take_dropped_temporary().map_err(|source| AccessError::Flash { at: Address::NULL, source })?;
    for run in dropped.chunk_by(|a, b| a + 1 == *b) {
        let region = Region::new(Address::from_linear(u64::from(run[0]) * PAGE), run.len() as u64 * PAGE);
        match check(m, &named.directory, region).and_then(|()| named.directory.give_back(m, region)) {
            // Never handed out, or a root's page that was made temporary: nothing to give back.
            Ok(()) | Err(RootError::NotHandedOut { .. }) => {}
            Err(error) => return Err(crate::error::access_error(error)),
        }
    }
    Ok(())
}
