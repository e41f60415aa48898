//! Goal: of pages that are given other permissions, or deleted, in one call, all are changed or
//! none, also when there is no room for what that makes older versions. Method: a page table that
//! has room for some of them; a bound for DRAM that remembers some of what they hold. Each call is
//! refused, and then made in parts, or after a sync, or with the tokens gone. With DRAM for few of
//! the places of objects, objects are written after a refused deletion: it keeps no places there.

use std::sync::Arc;

use fulgurite_flash::{Flash, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Permissions, Pool, PoolError, StoreConfig, TableFull, WriteError};

const ONLY_READ: Permissions = Permissions { read: true, write: false, permanent: true };

fn open(geometry: Geometry, config: StoreConfig) -> Pool {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(geometry.flash_pages()).unwrap());
    Pool::format(&medium, geometry, PoolId([7; 16]), 0).unwrap();
    Pool::open(medium, config).unwrap().0
}
fn all(pool: &Pool, pages: u32) -> Vec<Option<Permissions>> {
    (0..pages).map(|page| pool.permissions(page)).collect()
}

#[test]
fn a_page_table_that_has_room_for_some_of_them() {
    const PAGES: u32 = 24;
    let geometry = Geometry::new(4096, 64, Some(PAGES * 16)).unwrap();
    let mut config = StoreConfig::default();
    config.table_limit = PAGES + 45;
    let pool = open(geometry, config);
    // New ones take no more room than the table has anyway.
    pool.set_permissions(0..PAGES, Permissions::DEFAULT).unwrap();
    let before = all(&pool, PAGES);
    assert!(before.iter().all(|permissions| *permissions == Some(Permissions::DEFAULT)));
    let token = pool.sync().unwrap();
    // From now on each change of one is a version more.
    for refused in [pool.set_permissions(0..PAGES, ONLY_READ), pool.delete_pages(0..PAGES)] {
        assert!(matches!(refused, Err(PoolError::Write(WriteError::Table(TableFull)))), "{refused:?}");
        assert!(all(&pool, PAGES) == before, "some were changed");
    }
    pool.set_permissions(0..6, ONLY_READ).unwrap();
    pool.delete_pages(6..12).unwrap();
    let now = all(&pool, PAGES);
    assert_eq!((now[5], now[6], now[12]), (Some(ONLY_READ), None, before[12]));
    let refused = pool.delete_pages(12..PAGES);
    assert!(matches!(refused, Err(PoolError::Write(WriteError::Table(TableFull)))), "{refused:?}");
    assert!(all(&pool, PAGES) == now, "some were deleted");
    // A sync lets go of what was before it.
    assert!(pool.sync().unwrap() > token);
    pool.delete_pages(12..PAGES).unwrap();
    assert_eq!(pool.permissions(PAGES - 1), None);
    assert_eq!(pool.audit(), Vec::<String>::new());
}

#[test]
fn a_bound_for_dram_that_remembers_some_of_what_they_hold() {
    const PAGES: u32 = 600;
    let geometry = Geometry::with_objects(16_384, 64, PAGES * 16).unwrap();
    let mut config = StoreConfig::default();
    config.history_bytes = 512 << 10;
    let pool = open(geometry, config);
    for first in (0..PAGES * 16).step_by(64) {
        let objects: Vec<(u32, &[u8])> = (first..first + 64).map(|subpage| (subpage, &[1, 2, 3][..])).collect();
        pool.write_objects(&objects).unwrap();
        if first % 1024 == 0 {
            pool.sync().unwrap();
        }
    }
    let token = pool.sync().unwrap();
    pool.pin(token, true).unwrap();
    let before = all(&pool, PAGES);
    let refused = pool.delete_pages(0..PAGES);
    assert!(matches!(refused, Err(PoolError::Write(WriteError::NoSpace { .. } | WriteError::Table(_)))), "{refused:?}");
    assert!(all(&pool, PAGES) == before, "some were deleted");
    // Nor are pages of several ranges deleted, of which each but the last would have room.
    let ranges: Vec<_> = (0..PAGES).step_by(50).map(|first| first..first + 50).collect();
    let refused = pool.delete_all(&ranges);
    assert!(matches!(refused, Err(PoolError::Write(WriteError::NoSpace { .. } | WriteError::Table(_)))), "{refused:?}");
    assert!(all(&pool, PAGES) == before, "some were deleted");
    pool.set_permissions(60..61, ONLY_READ).unwrap();
    let refused = pool.delete_all(&[0..20, 55..65]);
    assert!(matches!(refused, Err(PoolError::NotPermitted { page: 60 })), "{refused:?}");
    pool.set_permissions(60..61, Permissions::DEFAULT).unwrap();
    assert!(all(&pool, PAGES) == before, "some were deleted");
    pool.delete_all(&[30..50, 0..20, 20..30]).unwrap();
    assert_eq!((pool.permissions(49), pool.permissions(50)), (None, Some(Permissions::DEFAULT)));
    // What no token needs is gone at once, however much it is.
    pool.sync().unwrap();
    pool.pin(token, false).unwrap();
    pool.sync().unwrap();
    assert_eq!(pool.permissions(PAGES - 1), Some(Permissions::DEFAULT));
    pool.delete_pages(50..100).unwrap();
    assert_eq!(pool.audit(), Vec::<String>::new());
}

#[test]
fn a_refused_deletion_leaves_room_for_places_of_objects() {
    const PAGES: u32 = 600;
    let geometry = Geometry::with_objects(16_384, 64, PAGES * 16).unwrap();
    let mut config = StoreConfig::default();
    (config.history_bytes, config.leaf_bytes) = (512 << 10, 64 * 320);
    let pool = open(geometry, config);
    let write = |first: u32, byte: u8| {
        let bytes = [byte; 3];
        let objects: Vec<(u32, &[u8])> = (first..first + 64).map(|subpage| (subpage, &bytes[..])).collect();
        pool.write_objects(&objects)
    };
    for first in (0..PAGES * 16).step_by(64) {
        write(first, 1).unwrap();
        pool.sync().unwrap();
    }
    let token = pool.sync().unwrap();
    pool.pin(token, true).unwrap();
    assert!(pool.info().pages_out > PAGES / 2, "{:?}", pool.info());
    for round in 0..3 {
        let before = all(&pool, PAGES);
        let refused = pool.delete_pages(0..PAGES);
        let is_refused = matches!(refused, Err(PoolError::Write(WriteError::NoSpace { .. } | WriteError::Table(_))));
        assert!(is_refused, "{refused:?}");
        assert!(all(&pool, PAGES) == before, "some were deleted");
        // Always the same pages, as the pinned token keeps the places of those that change.
        write(0, 2 + round).unwrap();
        pool.sync().unwrap();
    }
    let mut bytes = [0; 4096];
    assert_eq!(pool.read_object(63, &mut bytes).unwrap(), 3);
    assert_eq!(bytes[..3], [4; 3]);
    assert_eq!(pool.audit(), Vec::<String>::new());
}
