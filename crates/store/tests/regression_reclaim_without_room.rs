//! Goal: a writer with few syncs gets an error that there is no space until a sync. It never waits
//! for a reclaim that itself waits for room. Method: random overwrites of a pool that is 80% full,
//! its own requests answered at once, without a sync until none is accepted. Whenever the store has
//! no place for a write, it has a request for the flash, or an error. After a sync it takes writes
//! again.

use std::collections::HashMap;

use fulgurite_flash::FlashError;
use fulgurite_format::{PageBuffer, PoolId, zero_page};
use fulgurite_store::{Geometry, Io, Outcome, ReadPages, Store, StoreConfig, WriteError, recover};

struct Metadata(HashMap<u32, PageBuffer>, u32);

impl ReadPages for Metadata {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, FlashError> {
        Ok(self.0.get(&place).cloned().unwrap_or_else(zero_page))
    }
    fn flash_pages(&self) -> u32 {
        self.1
    }
}

impl Metadata {
    /// Answers what the store asks for; returns how much that was.
    fn serve(&mut self, store: &mut Store) -> u64 {
        let mut served = 0;
        while let Some((id, io)) = store.next_io() {
            served += 1;
            let outcome = match io {
                Io::Write { place, page } => {
                    self.0.insert(place, page);
                    Outcome::Done
                }
                Io::Read { place } => Outcome::Read(self.read(place, 0).unwrap()),
                Io::Copy { .. } => Outcome::Copied(0),
                Io::Flush => Outcome::Done,
            };
            store.done(id, outcome);
        }
        assert_eq!(store.poisoned(), None);
        served
    }
}

/// Writes one subpage; false where there is no space.
fn write(store: &mut Store, flash: &mut Metadata, subpage: u32, what: &str) -> bool {
    let mut places = Vec::new();
    loop {
        match store.place(&[subpage], &mut places) {
            Ok(()) if !places.is_empty() => break,
            Ok(()) => assert!(flash.serve(store) > 0, "{what}: it waits for nothing: {:?}", store.info()),
            Err(WriteError::NoSpace { uncommitted }) => {
                assert!(uncommitted > 0, "{what}: a sync would not help: {:?}", store.info());
                return false;
            }
            Err(e) => panic!("{what}: {e}"),
        }
    }
    store.written(&mut [(subpage, places[0], 0)]).unwrap();
    flash.serve(store);
    true
}

#[test]
fn a_writer_that_must_sync_gets_an_error() {
    let (mut refused, mut reclaimed) = (0, 0);
    for seed in 1..=12u64 {
        // Few extents, and as many as are sorted by heat.
        let geometry = Geometry::new(if seed % 2 == 0 { 64 * 32 } else { 160 * 32 }, 32, None).unwrap();
        let what = format!("seed {seed}, {geometry:?}");
        let mut flash = Metadata(HashMap::new(), geometry.flash_pages());
        flash.0.extend(Store::format(geometry, PoolId(*b"room for reclaim"), 0));
        let (mut store, _) = recover(&mut flash, StoreConfig::default()).unwrap();
        let data = (geometry.extents - geometry.fixed_extents() - geometry.reserved_extents()) * geometry.data_pages();
        let subpages = (data * 4 / 5).min(geometry.subpages);
        for subpage in 0..subpages {
            assert!(write(&mut store, &mut flash, subpage, &what), "{what}: it fills without a sync");
        }
        let mut random = fulgurite_testkit::Random(seed);
        for _ in 0..8 {
            store.sync().unwrap();
            flash.serve(&mut store);
            let mut written = 0;
            loop {
                if !write(&mut store, &mut flash, random.below(subpages), &what) {
                    break;
                }
                written += 1;
                assert!(written < 4 * subpages, "{what}: old versions of all that was synced must be kept");
            }
            refused += 1;
        }
        reclaimed += store.counters().reclaimed;
        assert_eq!(store.state().audit(), Vec::<String>::new(), "{what}");
    }
    println!("writers that had to sync: {refused}, {reclaimed} extents reclaimed, 0 stalls");
    assert!(refused > 0 && reclaimed > 0);
}
