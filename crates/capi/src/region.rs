//! Regions: bytes that are read and written at offsets, as of a file or an array.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use fulgurite::pool::{PAGE_BYTES, Permissions};
use fulgurite::{Address, Fulgurite, Memory, Region, views::Ptr};

use crate::argument::{self, give};
use crate::context::{fulgurite_context, run};
use crate::failure::{Failure, guard};
use crate::open::Open;
use crate::pool::fulgurite_pool;
use crate::status::fulgurite_status::{self, *};
use crate::watched_root::{Extent, WatchedRoot, entry};

/// Bytes that read as zeros until they are written. Any thread and any job may use it. It orders
/// neither readers nor writers: a reader that overlaps a writer may see some of the new bytes. A
/// token has each write whole, or not at all.
pub struct fulgurite_region {
    pool: Arc<Open>,
    extent: Extent,
    /// Of a pool: where its root is.
    watched_root: Option<Arc<WatchedRoot>>,
}

/// Where the region of this name is. None if the name leads to something else, or nowhere.
pub(crate) fn extent_of(memory: &Fulgurite, name: &str) -> Result<Option<Extent>, Failure> {
    let root = entry(memory, name)?;
    let is_region = |root: &fulgurite::containers::RootEntry| root.type_name == <Extent as fulgurite::Stored>::TYPE;
    let Some(root) = root.filter(is_region) else { return Ok(None) };
    let at = Ptr::<Extent>::new(root.address);
    Ok(Some(memory.run(move |m| m.load(at))?))
}

/// Frees the pages of a region without a root.
pub(crate) fn delete(memory: &Fulgurite, extent: Extent) -> Result<(), Failure> {
    Ok(memory.delete(pages(extent))?)
}

/// The whole pages that it was given.
fn pages(extent: Extent) -> Region {
    Region { base: extent.base, bytes: extent.bytes.next_multiple_of(PAGE_BYTES as u64) }
}

fn open(pool: &Arc<Open>, memory: &Fulgurite, name: Option<&str>, bytes: u64) -> Result<fulgurite_region, Failure> {
    if bytes == 0 || bytes > 1 << 44 {
        let message = format!("a region has 1 byte to 16 TiB, and {bytes} were asked for");
        return Err(Failure::new(FULGURITE_OUT_OF_RANGE, message));
    }
    let Some(name) = name else {
        let extent = Extent { base: memory.region(bytes)?.base, bytes };
        return Ok(fulgurite_region { pool: pool.clone(), extent, watched_root: None });
    };
    let found = entry(memory, name)?;
    let at: Ptr<Extent> = match found {
        // Another type under this name is refused here.
        Some(_) => memory.named(name).value(Extent { base: Address::NULL, bytes: 0 })?,
        None => {
            let made = Extent { base: memory.region(bytes)?.base, bytes };
            let at = memory.named(name).value(made);
            let lost = match &at {
                Ok(at) => {
                    let at = *at;
                    memory.run(move |m| m.load(at))? != made
                }
                Err(_) => true,
            };
            if lost {
                // It could not be named, or another thread has named one meanwhile.
                delete(memory, made)?;
            }
            at?
        }
    };
    let extent = memory.run(move |m| m.load(at))?;
    let lost = || Failure::new(FULGURITE_NOT_FOUND, "the region was removed while it was opened; open it again");
    let entry = entry(memory, name)?.ok_or_else(lost)?;
    Ok(fulgurite_region {
        pool: pool.clone(),
        extent,
        watched_root: Some(pool.watch(WatchedRoot::new(entry, Some(extent)))),
    })
}

/// Opens the region of this name, or makes one of `bytes` where the name is new. A region that
/// exists keeps its size. In memory that keeps nothing, `name` is NULL.
///
/// Fails with FULGURITE_WRONG_TYPE when the name leads to something else, with FULGURITE_NO_SPACE,
/// FULGURITE_OUT_OF_RANGE, FULGURITE_NO_POOL and FULGURITE_IN_A_JOB. Then `*region` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_region_open(
    pool: *mut fulgurite_pool,
    name: *const c_char,
    bytes: u64,
    region: *mut *mut fulgurite_region,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        unsafe {
            let region = argument::out(region, "region")?;
            region.write(std::ptr::null_mut());
            let pool = &argument::handle(pool, "pool")?.0;
            let name = argument::name(name, pool.keeps)?;
            region.write(give(pool.with(|memory| open(pool, memory, name, bytes))?));
        }
        Ok(())
    })
}

/// Frees a handle. The region stays in its pool. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_region_free(region: *mut fulgurite_region) {
    // SAFETY: the contract of the module `lib`. There is nothing to return an error by.
    let _ = guard(|| unsafe { argument::free(region, "region") });
}

/// Returns how many bytes a region has. NULL has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_region_bytes(region: *const fulgurite_region) -> u64 {
    // SAFETY: the contract of the module `lib`.
    unsafe { argument::handle(region, "region") }.map_or(0, |region| region.extent.bytes)
}

/// Where `len` bytes from `offset` on are, when a region has them.
fn inside(region: &fulgurite_region, offset: u64, len: usize) -> Result<Address, Failure> {
    let end = offset.checked_add(len as u64);
    if end.is_none_or(|end| end > region.extent.bytes) {
        let message = format!("{len} bytes at {offset} are outside of a region of {} bytes", region.extent.bytes);
        return Err(Failure::new(FULGURITE_OUT_OF_RANGE, message));
    }
    Ok(region.extent.base.add(offset))
}

/// Copies `length` bytes from `offset` on into a buffer.
///
/// Fails with FULGURITE_OUT_OF_RANGE when they are not all inside, and with FULGURITE_POISONED when
/// the region was rolled back or removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_region_read_at(
    context: *mut fulgurite_context,
    region: *mut fulgurite_region,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (context, region, buffer): (_, &fulgurite_region, &'static mut [u8]) = unsafe {
            let context = argument::handle_or_null(context, "context")?;
            (context, argument::handle(region, "region")?, argument::buffer(buffer, length, "buffer")?)
        };
        let (at, watched_root) = (inside(region, offset, length)?, region.watched_root.clone());
        run(context, &region.pool, move |m| {
            watched_root.map_or(Ok(()), |watched_root| watched_root.check())?;
            m.read_bytes(at, buffer)
        })
    })
}

/// Copies `length` bytes of a buffer to `offset`.
///
/// Fails as fulgurite_region_read_at(), and with FULGURITE_NO_SPACE. After the latter some of the
/// bytes may have been written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_region_write_at(
    context: *mut fulgurite_context,
    region: *mut fulgurite_region,
    offset: u64,
    bytes: *const c_void,
    length: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (context, region, bytes): (_, &fulgurite_region, &'static [u8]) = unsafe {
            let context = argument::handle_or_null(context, "context")?;
            (context, argument::handle(region, "region")?, argument::bytes(bytes, length, "bytes")?)
        };
        let (at, watched_root) = (inside(region, offset, length)?, region.watched_root.clone());
        run(context, &region.pool, move |m| {
            watched_root.map_or(Ok(()), |watched_root| watched_root.check())?;
            m.write_bytes(at, bytes)
        })
    })
}

/// Pages may be read. A bit of fulgurite_region_set_permissions().
pub const FULGURITE_MAY_READ: u32 = 1;
/// Pages may be written.
pub const FULGURITE_MAY_WRITE: u32 = 2;

/// Changes what may be done with pages of a region. `offset` is a multiple of 65536, and so is
/// `bytes`, unless they end with the region. `permissions` is a sum of FULGURITE_MAY_READ and
/// FULGURITE_MAY_WRITE. Pages have both until others are set. They are part of the state: the next
/// sync keeps them, and a roll back takes them back. What they do not allow fails with
/// FULGURITE_NOT_PERMITTED.
///
/// Fails with FULGURITE_INVALID_ARGUMENT for other bits and for parts of pages, with
/// FULGURITE_OUT_OF_RANGE, FULGURITE_NO_POOL in memory that keeps nothing, FULGURITE_NO_SPACE,
/// FULGURITE_POISONED when the region was rolled back or removed, and with FULGURITE_BUSY while a
/// job holds some of the pages. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_region_set_permissions(
    region: *mut fulgurite_region,
    offset: u64,
    bytes: u64,
    permissions: u32,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let region = unsafe { argument::handle(region, "region") }?;
        let (part, wanted) = (part(region, offset, bytes)?, permissions_of(permissions)?);
        region.pool.with(|memory| {
            region.watched_root.as_ref().map_or(Ok(()), |watched_root| watched_root.check())?;
            Ok(memory.set_permissions(part, wanted)?)
        })
    })
}

/// Stores in `*permissions` what may be done with the page at an offset of a region, as
/// fulgurite_region_set_permissions() takes it.
///
/// Fails with FULGURITE_OUT_OF_RANGE, FULGURITE_NO_POOL in memory that keeps nothing, and
/// FULGURITE_POISONED when the region was rolled back or removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_region_permissions(
    region: *mut fulgurite_region,
    offset: u64,
    permissions: *mut u32,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (region, permissions) =
            unsafe { (argument::handle(region, "region")?, argument::out(permissions, "permissions")?) };
        let at = inside(region, offset, 1)?;
        permissions.write(region.pool.with(|memory| {
            region.watched_root.as_ref().map_or(Ok(()), |watched_root| watched_root.check())?;
            // A page that holds nothing is made by a write to it.
            Ok(bits_of(memory.permissions(at)?.unwrap_or(Permissions::DEFAULT)))
        })?);
        Ok(())
    })
}

/// Whole pages of a region.
fn part(region: &fulgurite_region, offset: u64, bytes: u64) -> Result<Region, Failure> {
    let (base, page) = (region.extent.base, PAGE_BYTES as u64);
    let end = offset.checked_add(bytes).filter(|end| *end <= region.extent.bytes);
    let Some(end) = end else {
        let message = format!("{bytes} bytes at {offset} are outside of a region of {} bytes", region.extent.bytes);
        return Err(Failure::new(FULGURITE_OUT_OF_RANGE, message));
    };
    let is_whole = offset.is_multiple_of(page) && (end.is_multiple_of(page) || end == region.extent.bytes);
    if !is_whole || bytes == 0 {
        let message = format!("{bytes} bytes at {offset} are no whole pages of {page} bytes; choose multiples of that");
        return Err(Failure::new(FULGURITE_INVALID_ARGUMENT, message));
    }
    Ok(Region { base: base.add(offset), bytes: end.next_multiple_of(page) - offset })
}

fn permissions_of(bits: u32) -> Result<Permissions, Failure> {
    if bits & !(FULGURITE_MAY_READ | FULGURITE_MAY_WRITE) != 0 {
        let message = format!("{bits:#x} has bits that are no permissions; add FULGURITE_MAY_READ and its relatives");
        return Err(Failure::new(FULGURITE_INVALID_ARGUMENT, message));
    }
    let has = |bit| bits & bit != 0;
    // The addresses of temporary pages are free at the next opening, and the region is not.
    Ok(Permissions { read: has(FULGURITE_MAY_READ), write: has(FULGURITE_MAY_WRITE), permanent: true })
}

fn bits_of(permissions: Permissions) -> u32 {
    let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    bit(permissions.read, FULGURITE_MAY_READ) | bit(permissions.write, FULGURITE_MAY_WRITE)
}
