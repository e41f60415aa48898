//! Goal: of programs that use a pool one after the other, each leaves what it has named and what it
//! has made to stay, and nothing else. Every page that was deleted is reported, once. Method: pages
//! of all kinds, named or not, and processes that begin and end, with roll backs over their
//! beginning, compared with what is expected.

use std::sync::Arc;

use fulgurite_flash::{Backing, Flash, MemoryFlash};
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Permissions, Pool, PoolError, StoreConfig};

const TEMPORARY: Permissions = Permissions { permanent: false, ..Permissions::DEFAULT };

fn medium() -> Arc<dyn Flash> {
    let geometry = Geometry::new(1024, 16, Some(320)).unwrap();
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(1024).unwrap());
    Pool::format(&medium, geometry, PoolId([5; 16]), 0).unwrap();
    medium
}
fn open(medium: &Arc<dyn Flash>, temporary_stays: bool) -> Pool {
    let mut config = StoreConfig::default();
    config.keep_tokens = 9;
    config.temporary_stays = temporary_stays;
    let pool = Pool::open(medium.clone(), config).unwrap().0;
    assert_eq!(pool.temporary_stays(), temporary_stays);
    pool
}
fn make(pool: &Pool, page: u32, permissions: Permissions) {
    pool.set_permissions(page..page + 1, permissions).unwrap();
}
/// The pages that there are.
fn there(pool: &Pool) -> Vec<u32> {
    assert_eq!(pool.audit(), Vec::<String>::new());
    (0..20).filter(|page| pool.permissions(*page).is_some()).collect()
}

#[test]
fn temporary_pages_go_when_a_pool_is_opened_unless_they_are_to_stay() {
    let medium = medium();
    let pool = open(&medium, false);
    for (page, permissions) in [(9, TEMPORARY), (2, TEMPORARY), (5, Permissions::DEFAULT), (14, TEMPORARY)] {
        make(&pool, page, permissions);
    }
    pool.sync().unwrap();
    make(&pool, 6, TEMPORARY);
    assert_eq!(pool.take_dropped_temporary(), []);
    drop(pool);
    let pool = open(&medium, true);
    assert_eq!((there(&pool), pool.take_dropped_temporary()), (vec![2, 5, 9, 14], vec![]));
    drop(pool);
    let pool = open(&medium, false);
    assert_eq!(there(&pool), [5]);
    // As many as are asked for, each once.
    assert_eq!(pool.take_some_dropped_temporary(0), []);
    assert_eq!((pool.take_some_dropped_temporary(2), pool.take_some_dropped_temporary(2)), (vec![2, 9], vec![14]));
    assert_eq!(pool.take_dropped_temporary(), []);
}
#[test]
fn a_process_that_ends_leaves_what_it_has_named_and_made_to_stay() {
    let medium = medium();
    let pool = open(&medium, true);
    make(&pool, 1, Permissions::DEFAULT);
    let before = pool.sync().unwrap();
    pool.process_begins(before);
    make(&pool, 2, Permissions::DEFAULT);
    make(&pool, 3, TEMPORARY);
    let named = pool.sync().unwrap();
    make(&pool, 4, Permissions::DEFAULT);
    make(&pool, 6, TEMPORARY);
    pool.process_ends(named).unwrap();
    assert_eq!((there(&pool), pool.uncommitted()), (vec![1, 2], 0));
    assert_eq!(pool.take_dropped_temporary(), [3]);
    // What it has named is there, and its temporary pages are so in that state: the next token is
    // without them.
    pool.process_begins(named);
    let next = pool.sync().unwrap();
    drop(pool);
    let pool = open(&medium, true);
    assert_eq!((there(&pool), pool.tokens().newest()), (vec![1, 2], Some(next)));
}
#[test]
fn pages_that_were_not_reported_are_not_forgotten() {
    let medium = medium();
    let pool = open(&medium, true);
    make(&pool, 7, TEMPORARY);
    make(&pool, 3, TEMPORARY);
    pool.drop_temporary().unwrap();
    assert_eq!(there(&pool), []);
    // Again, one of them anew and one more: each is reported once, in order.
    make(&pool, 7, TEMPORARY);
    make(&pool, 5, TEMPORARY);
    make(&pool, 8, Permissions::DEFAULT);
    pool.drop_temporary().unwrap();
    assert_eq!(there(&pool), [8]);
    make(&pool, 1, TEMPORARY);
    make(&pool, 5, TEMPORARY);
    let token = pool.sync().unwrap();
    pool.process_ends(token).unwrap();
    assert_eq!(pool.take_dropped_temporary(), [1, 3, 5, 7]);
    // A process whose beginning no roll back can pass leaves what is to be reported as it is.
    make(&pool, 4, TEMPORARY);
    pool.drop_temporary().unwrap();
    let newer = pool.sync().unwrap();
    pool.pin(newer, true).unwrap();
    let refused = pool.process_ends(token);
    assert!(matches!(refused, Err(PoolError::TokenPinned { pinned, .. }) if pinned == newer), "{refused:?}");
    assert_eq!(pool.take_dropped_temporary(), [4]);
    // With nothing temporary nothing is to be reported.
    pool.pin(newer, false).unwrap();
    pool.drop_temporary().unwrap();
    assert_eq!(pool.take_dropped_temporary(), []);
}
#[test]
fn a_roll_back_behind_the_beginning_of_a_process_takes_temporary_pages_away() {
    for (begins_after, goes) in [(0, true), (1, false)] {
        let medium = medium();
        let pool = open(&medium, true);
        make(&pool, 2, TEMPORARY);
        make(&pool, 3, Permissions::DEFAULT);
        let first = pool.sync().unwrap();
        // Up to this one tokens are of processes that have ended.
        pool.process_begins(first - begins_after);
        make(&pool, 4, TEMPORARY);
        let second = pool.sync().unwrap();
        make(&pool, 5, TEMPORARY);
        pool.roll_back(second).unwrap();
        assert_eq!((there(&pool), pool.take_dropped_temporary()), (vec![2, 3, 4], vec![]));
        pool.roll_back(first).unwrap();
        let (left, told) = if goes { (vec![3], vec![2]) } else { (vec![2, 3], vec![]) };
        assert_eq!((there(&pool), pool.take_dropped_temporary()), (left, told), "{begins_after}");
    }
}
/// Going back to a state with pages that may not be written is going back to that, also where none
/// was when the pool was opened.
#[test]
fn what_may_not_be_touched_may_not_be_after_a_roll_back() {
    for temporary in [false, true] {
        let medium = medium();
        let pool = open(&medium, true);
        make(&pool, 2, Permissions { write: false, permanent: !temporary, ..Permissions::DEFAULT });
        make(&pool, 3, Permissions { read: false, ..Permissions::DEFAULT });
        let restricted = pool.sync().unwrap();
        make(&pool, 2, Permissions::DEFAULT);
        make(&pool, 3, Permissions::DEFAULT);
        pool.sync().unwrap();
        drop(pool);
        let pool = open(&medium, true);
        assert!([32, 48].into_iter().all(|subpage| pool.may(subpage, true) && pool.may(subpage, false)));
        if temporary {
            // Then the state belongs to a process of the present.
            pool.process_begins(restricted - 1);
        }
        pool.roll_back(restricted).unwrap();
        let may = [(32, false), (32, true), (48, false), (48, true)].map(|(subpage, write)| pool.may(subpage, write));
        assert_eq!(may, [true, false, false, true], "{temporary}");
        assert!(Backing::may(&pool, 64, true) && !Backing::may(&pool, 47, true));
    }
}
