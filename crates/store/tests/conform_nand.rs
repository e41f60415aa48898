//! Goal: the store, as it is, runs on NAND: what it writes, in the order in which it does, keeps
//! the rules of NAND through the flash interface layer, and is all there afterwards. Method: the
//! store's state machine over the model of a small device, its requests ending when the model says.
//! Data is written in batches that overtake each other, synced, overwritten until reclaim,
//! checkpoints and anchors have gone round; now and then the pool is recovered from what was
//! written. Pages of NAND of 4 and of 16 KiB, writes that end in the buffer and in the array.

use fulgurite_testkit as trials;

use std::collections::HashMap;

use fulgurite_flash::FlashError;
use fulgurite_format::{PageBuffer, PoolId, zero_page};
use fulgurite_nand::{
    Fil, FilConfig, FilError, FlashDone, FlashOp, FlashRequest, FlashStatus, Geometry as Division, Parts, Profile,
};
use fulgurite_store::{Geometry, Io, IoId, Outcome, ReadPages, Store, StoreConfig, WriteError, recover};

/// What a request was for.
enum Purpose {
    Store(IoId, Io),
    /// The reading of a copy has ended; this is its writing.
    Copy(IoId, Io),
    Data {
        subpage: u32,
        place: u32,
        content: u32,
    },
}

/// What flash holds: pages of metadata, and of data only a number.
#[derive(Default, Clone)]
struct FlashContent {
    pages: HashMap<u32, PageBuffer>,
    data: HashMap<u32, u32>,
    flash_pages: u32,
}

impl ReadPages for FlashContent {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, FlashError> {
        Ok(self.pages.get(&place).cloned().unwrap_or_else(zero_page))
    }
    fn flash_pages(&self) -> u32 {
        self.flash_pages
    }
}

struct World {
    fil: Fil,
    content: FlashContent,
    now: u64,
    tag: u64,
    under_way: HashMap<u64, Purpose>,
    data_under_way: usize,
    done: Vec<FlashDone>,
}

impl World {
    fn submit(&mut self, store: &mut Store, op: FlashOp, flash_page: u32, purpose: Purpose) {
        self.tag += 1;
        self.under_way.insert(self.tag, purpose);
        let request = FlashRequest { tag: self.tag, op, flash_page, reclaim: false };
        while let Err(error) = self.fil.submit(self.now, request) {
            assert_eq!(error, FilError::Full);
            self.step(store);
        }
    }
    /// Hands over what the store wants.
    fn serve(&mut self, store: &mut Store) {
        while let Some((id, io)) = store.next_io() {
            let (op, place) = match &io {
                Io::Write { place, .. } => (FlashOp::Write, *place),
                Io::Read { place } | Io::Copy { from: place, .. } => (FlashOp::Read, *place),
                Io::Flush => (FlashOp::Flush, 0),
            };
            self.submit(store, op, place, Purpose::Store(id, io));
        }
    }
    /// Goes on to the next thing that happens.
    fn step(&mut self, store: &mut Store) -> bool {
        let Some(next) = self.fil.next_event_ns() else { return false };
        self.now = self.now.max(next);
        let mut done = std::mem::take(&mut self.done);
        self.fil.advance(self.now, &mut done);
        for ended in done.drain(..) {
            assert!(matches!(ended.status, FlashStatus::Ok | FlashStatus::Corrected(_)), "{:?}", ended.status);
            match self.under_way.remove(&ended.tag).expect("each ends once") {
                Purpose::Store(id, Io::Copy { from, to }) => {
                    let io = Io::Copy { from, to };
                    self.submit(store, FlashOp::Write, to, Purpose::Copy(id, io));
                }
                Purpose::Copy(id, Io::Copy { from, to }) => {
                    let content = *self.content.data.get(&from).expect("what is copied was written");
                    self.content.pages.remove(&to);
                    self.content.data.insert(to, content);
                    store.done(id, Outcome::Copied(content));
                }
                Purpose::Store(id, Io::Write { place, page }) | Purpose::Copy(id, Io::Write { place, page }) => {
                    self.content.data.remove(&place);
                    self.content.pages.insert(place, page);
                    store.done(id, Outcome::Done);
                }
                Purpose::Store(id, Io::Read { place }) | Purpose::Copy(id, Io::Read { place }) => {
                    let page = self.content.pages.get(&place).cloned().unwrap_or_else(zero_page);
                    store.done(id, Outcome::Read(page));
                }
                Purpose::Store(id, Io::Flush) | Purpose::Copy(id, Io::Flush) => store.done(id, Outcome::Done),
                Purpose::Data { subpage, place, content } => {
                    self.data_under_way -= 1;
                    self.content.pages.remove(&place);
                    self.content.data.insert(place, content);
                    store.written(&mut [(subpage, place, content)]).expect("it is recorded");
                }
            }
        }
        self.done = done;
        self.serve(store);
        true
    }
    fn settle(&mut self, store: &mut Store) {
        self.serve(store);
        while self.step(store) || !store.is_quiet() {}
        assert!(self.under_way.is_empty());
    }
}

fn run(seed: u64, page_bytes: u64, width: u32, cached_writes: bool) {
    println!("seed {seed}, pages of {page_bytes}, {width} planes to an extent, cached {cached_writes}");
    let mut profile = Profile::built_in("mlc").unwrap();
    profile.geometry = Division::new(Parts {
        channels: 2,
        packages_per_channel: 1,
        dies_per_package: 2,
        planes_per_die: 2,
        blocks_per_plane: 64,
        pages_per_block: 64 * 4096 / page_bytes as u32 / width,
        page_bytes,
    })
    .unwrap();
    profile.wear.endurance = 1_000_000;
    let fil = Fil::new(profile, FilConfig { planes_per_extent: width, cached_writes, seed, ..FilConfig::default() });
    let fil = fil.unwrap();
    assert_eq!(fil.extent_pages(), 64);
    let (flash_pages, pool) = (fil.flash_pages(), PoolId([7; 16]));
    let subpages = flash_pages / 2;
    let geometry = Geometry::new(flash_pages, 64, Some(subpages)).unwrap();
    let content = FlashContent { flash_pages, ..FlashContent::default() };
    let under_way = HashMap::new();
    let mut world = World { fil, content, now: 0, tag: 0, under_way, data_under_way: 0, done: Vec::new() };
    let mut ended = Vec::new();
    for (place, page) in Store::format(geometry, pool, 0) {
        let request = FlashRequest { tag: 0, op: FlashOp::Write, flash_page: place, reclaim: false };
        world.fil.submit(world.now, request).unwrap();
        while let Some(next) = world.fil.next_event_ns() {
            world.now = world.now.max(next);
            world.fil.advance(world.now, &mut ended);
        }
        world.content.pages.insert(place, page);
    }
    let config = StoreConfig::default();
    let (mut store, _) = recover(&mut world.content.clone(), config).unwrap();
    let (mut random, mut contents) = (trials::Random(seed), HashMap::new());
    let mut places = Vec::new();
    for round in 0..1500_u32 {
        let first = random.below(subpages);
        let mut batch: Vec<u32> = (0..1 + random.below(40)).map(|i| (first + i * (1 + round % 3)) % subpages).collect();
        batch.sort_unstable();
        batch.dedup();
        let mut rest = &batch[..];
        while !rest.is_empty() {
            places.clear();
            match store.place(rest, &mut places) {
                Ok(()) => {}
                Err(WriteError::NoSpace { .. }) => {
                    store.sync().expect("it is recorded");
                }
                Err(error) => panic!("{error}"),
            }
            let (now, later) = rest.split_at(places.len());
            let mut writes: Vec<(u32, u32)> = now.iter().copied().zip(places.iter().copied()).collect();
            // Workers overtake each other.
            for at in 1..writes.len() {
                let with = at - 1 + random.below(2);
                writes.swap(at, with);
            }
            for (subpage, place) in writes {
                let content = round * 64 + subpage % 64 + 1;
                contents.insert(subpage, content);
                world.data_under_way += 1;
                world.submit(&mut store, FlashOp::Write, place, Purpose::Data { subpage, place, content });
            }
            rest = later;
            world.serve(&mut store);
            // One subpage is written by one writer at a time.
            while world.data_under_way > 0 || (!rest.is_empty() && places.is_empty()) {
                if !world.step(&mut store) {
                    break;
                }
            }
        }
        if round % 9 == 0 {
            store.sync().expect("it is recorded");
            world.serve(&mut store);
        }
        if round % 300 == 299 {
            store.sync().expect("it is recorded");
            store.begin_checkpoint();
            world.settle(&mut store);
            world.fil.check();
            let (again, _) = recover(&mut world.content.clone(), config).expect("all that was synced is there");
            for (subpage, content) in &contents {
                let located = again.map().get(*subpage).expect("it was written");
                assert_eq!((world.content.data[&located.place], located.checksum), (*content, *content), "{subpage}");
            }
        }
    }
    let (f, s) = (*world.fil.counters(), store.counters());
    println!("{f:?}\n{s:?}");
    assert!(s.reclaimed > 0 && s.checkpoints > 0, "{s:?}");
    assert!(f.extents_begun > u64::from(world.fil.extents()), "extents were used again: {f:?}");
    assert_eq!((f.write_failures, f.read_failures), (0, 0));
    // What comes late is what overtook each other by more than the buffer holds: next to nothing of
    // what the store writes.
    assert!(f.late * 1000 <= f.writes, "{f:?}");
}

#[test]
fn the_store_runs_on_nand() {
    for seed in trials::seeds(1, 4) {
        println!("replay with FULGURITE_SEED={seed} FULGURITE_RUNS=1");
        let (page_bytes, width) = [(4096, 8), (16_384, 4), (8192, 2), (16_384, 8)][seed as usize % 4];
        run(seed, page_bytes, width, seed % 2 == 0);
    }
}
