//! Goal: a pool whose change of size was stopped, and which was used and made smaller after that by
//! the same program, can be opened again. (That everything recorded is in a checkpoint, so that
//! nothing replayed speaks of what is behind the new end, was remembered from before the stop: the
//! next opening refused the journal.) Method: stop before each step; then write a page that the
//! smaller pool does not have, delete it, and go on to the end.

use std::sync::Arc;

use fulgurite_flash::{Flash, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Permissions, Pool, StoreConfig};

#[test]
fn regression_a_pool_is_used_between_a_stop_and_the_next_try() {
    let geometry = |extents: u32, subpages| Geometry::new(extents * 8, 8, Some(subpages)).unwrap();
    let (large, small) = (geometry(100, 96), geometry(60, 64));
    let mut stops = 0;
    for steps in 0.. {
        let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(large.flash_pages()).unwrap());
        Pool::format(&medium, large, PoolId([1; 16]), 0).unwrap();
        let open = || Pool::open(medium.clone(), StoreConfig::default()).unwrap().0;
        let pool = open();
        pool.set_permissions(2..3, Permissions::DEFAULT).unwrap();
        pool.sync().unwrap();
        let mut left = steps;
        let mut go_on = || {
            left -= 1;
            left >= 0
        };
        if pool.resize(small, &mut go_on).unwrap() {
            break;
        }
        stops += 1;
        // All of the flash is there as before.
        let uses = pool.uses();
        assert_eq!(pool.info().free_extents as usize, uses.free.len());
        // Page 5 is behind the end to be. One token is kept, so that nothing is left of the page.
        pool.set_permissions(5..6, Permissions::DEFAULT).unwrap();
        pool.sync().unwrap();
        pool.delete_pages(5..6).unwrap();
        pool.sync().unwrap();
        assert!(pool.resize(small, &mut || true).unwrap());
        drop(pool);
        let pool = open();
        assert_eq!((pool.geometry(), pool.audit()), (small, Vec::<String>::new()), "stopped after {steps} steps");
        assert_eq!(pool.permissions(2), Some(Permissions::DEFAULT));
    }
    assert!(stops >= 2, "{stops}");
}
