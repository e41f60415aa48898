//! Goal: the summary of an extent whose write ends late destroys nothing. A store once used the
//! extent again before that, and the summary replaced a durable page of the journal. Method: the
//! first summary is held back while everything else continues, for longer than it takes to use
//! every extent again. What the store writes meanwhile is stored elsewhere. Afterwards the extent
//! is used again, and the pool opens in its last state.

use crate::world;

use std::rc::Rc;

use fulgurite_format::{Header, Kind, PageBuffer};
use fulgurite_store::{Io, IoId, Outcome, ReadPages, Store, StoreConfig, recover};
use world::{Content, ForgetfulFlash, POOL, bytes_of, checksum_of, tiny};

struct Run {
    store: Store,
    flash: ForgetfulFlash,
    late: Option<(IoId, u32, PageBuffer)>,
    /// Where was written.
    places: Vec<u32>,
    number: u64,
}

impl Run {
    fn put(&mut self, place: u32, content: Content) {
        self.places.push(place);
        self.flash.write(place, content);
    }
    /// Does what the store wants, but for its first summary where `hold` says so.
    fn turn(&mut self, hold: bool) {
        while let Some((id, io)) = self.store.next_io() {
            let outcome = match io {
                Io::Write { place, page } => {
                    let summary = Header::open(&page).is_ok_and(|(header, ..)| header.kind == Kind::Summary);
                    if hold && summary && self.late.is_none() {
                        self.late = Some((id, place, page));
                        continue;
                    }
                    self.put(place, Content::Metadata(Rc::new(page)));
                    Outcome::Done
                }
                Io::Read { place } => Outcome::Read(self.flash.read(place, 0).unwrap()),
                Io::Copy { from, to } => {
                    let content = self.flash.content(from).cloned().unwrap();
                    let Content::Data(number) = content else { panic!("{content:?} is copied") };
                    self.put(to, content);
                    Outcome::Copied(checksum_of(number))
                }
                Io::Flush => {
                    self.flash.flush();
                    Outcome::Done
                }
            };
            self.store.done(id, outcome);
        }
    }
    /// Writes the same subpages again, and makes that durable.
    fn round(&mut self, hold: bool) {
        let mut left: Vec<u32> = (0..7).collect();
        while !left.is_empty() {
            let mut places = Vec::new();
            self.store.place(&left, &mut places).unwrap();
            let rest = left.split_off(places.len());
            let mut writes = Vec::new();
            for (subpage, place) in std::mem::replace(&mut left, rest).into_iter().zip(places) {
                self.number += 1;
                self.put(place, Content::Data(self.number));
                writes.push((subpage, place, checksum_of(self.number)));
            }
            self.store.written(&mut writes).unwrap();
            self.turn(hold);
        }
        let token = self.store.sync().unwrap();
        self.turn(hold);
        assert_eq!(self.store.durable_token(), token);
    }
}

#[test]
fn an_extent_is_not_used_again_before_its_summary_has_ended() {
    let geometry = tiny(32);
    let mut flash = ForgetfulFlash::default();
    flash.pages = geometry.flash_pages();
    Store::format(geometry, POOL, 0)
        .into_iter()
        .for_each(|(place, page)| flash.write(place, Content::Metadata(Rc::new(page))));
    flash.flush();
    let (store, _) = recover(&mut flash, StoreConfig::default()).unwrap();
    let mut run = Run { store, flash, late: None, places: Vec::new(), number: 0 };
    for _ in 0..20 {
        run.round(true);
    }
    let extent = geometry.extent_of(run.late.as_ref().expect("an extent was filled").1);
    // Each round fills as many flash pages as an extent has for data.
    let rounds = 3 * geometry.extents;
    run.places.clear();
    for _ in 0..rounds {
        run.round(true);
    }
    let used = |run: &Run| run.places.iter().any(|place| geometry.extent_of(*place) == extent);
    assert!(!used(&run), "extent {extent} was used again");
    let (id, place, page) = run.late.take().unwrap();
    run.flash.write(place, Content::Metadata(Rc::new(page)));
    run.store.done(id, Outcome::Done);
    for _ in 0..rounds {
        run.round(false);
    }
    assert!(used(&run), "extent {extent} is never used again");

    let promised = run.store.durable_token();
    let (store, report) = recover(&mut run.flash, StoreConfig::default()).unwrap();
    assert_eq!(report.token, promised);
    for subpage in 0..7 {
        let found = store.map().get(subpage).unwrap();
        let number = run.number - 6 + u64::from(subpage);
        assert_eq!(
            (found.checksum, *run.flash.read(found.place, 0).unwrap()),
            (checksum_of(number), *bytes_of(number))
        );
    }
}
