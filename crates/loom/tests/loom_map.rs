//! Goal: what a reader of the map gets is the location and checksum of one write to its subpage, in
//! every order that the memory model allows. That also holds when the block that it is about to
//! read is freed and used for another page meanwhile. Method: loom runs all interleavings of the
//! very code that runs in production. One writer takes two pages through their kinds, so that each
//! block changes hands; a reader reads twice. Then the model runs with a reader that does not check
//! whether blocks were used again, which must be found to be wrong, or the model proves nothing.
use fulgurite_loom::map::{Find, Located, Map, MapWriter, PageLocations};
use loom::thread;

const N: u32 = 16;

/// The checksum that belongs to a place of a subpage here.
fn at(subpage: u32, place: u32) -> Located {
    Located { place, checksum: (place << 8) | subpage }
}
fn run(page: u32, start: u32) -> PageLocations {
    let mut places = PageLocations::NONE;
    (0..N).for_each(|s| places.set(s, Some(at(page * N + s, start + s))));
    places
}
fn few(page: u32, subpages: &[u32], place: u32) -> PageLocations {
    let mut places = PageLocations::NONE;
    subpages.iter().for_each(|s| places.set(*s, Some(at(page * N + s, place + 2 * s))));
    places
}

/// Whether a location is one that the subpage has had.
fn is_its_own(subpage: u32, located: Option<Located>) -> bool {
    located.is_none_or(|l| l == at(subpage, l.place))
}

/// What one writer does to two pages, the first of which is being read.
fn changes(writer: &mut MapWriter, kinds: &[PageLocations; 2]) {
    writer.set_page(0, &kinds[0]);
    // Takes the block that page 0 has let go.
    writer.set_page(1, &kinds[1]);
}

fn model(
    before: fn() -> PageLocations,
    after: fn() -> [PageLocations; 2],
    look: fn(&Map, u32) -> Option<Located>,
    subpage: u32,
) {
    loom::model(move || {
        let mut writer = MapWriter::new(2);
        writer.set_page(0, &before());
        let map = writer.map().clone();
        let reader = thread::spawn(move || {
            let (first, second) = (look(&map, subpage), look(&map, subpage));
            assert!(is_its_own(subpage, first) && is_its_own(subpage, second), "{first:?}, {second:?}");
            // Each change of this subpage goes to a higher place.
            assert!(first.map_or(0, |l| l.place) <= second.map_or(u32::MAX, |l| l.place), "{first:?}, {second:?}");
        });
        changes(&mut writer, &after());
        reader.join().unwrap();
        assert!(writer.audit().is_empty());
    });
}

#[test]
fn a_run_moves_and_another_page_takes_its_block() {
    model(|| run(0, 100), || [run(0, 200), run(1, 300)], Map::get, 5);
}
#[test]
fn a_run_falls_apart() {
    model(|| run(0, 100), || [few(0, &[5, 6], 400), run(1, 300)], Map::get, 5);
}
#[test]
fn few_become_more() {
    model(|| few(0, &[5, 9], 100), || [few(0, &[2, 5, 9], 200), few(1, &[0, 1, 2], 300)], Map::get, 9);
}
#[test]
fn a_scattered_page_becomes_a_run() {
    let scattered = || few(0, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], 100);
    model(scattered, || [run(0, 200), run(1, 300)], Map::get, 9);
}
/// What is known of a page leaves DRAM, another page takes its block, and it comes back.
#[test]
fn a_page_goes_out_and_comes_in_again() {
    loom::model(|| {
        let mut writer = MapWriter::new(2);
        let places = few(0, &[5, 9], 100);
        writer.set_page(0, &places);
        let map = writer.map().clone();
        let reader = thread::spawn(move || {
            for _ in 0..2 {
                let found = map.find(5);
                assert!(found == Find::Out || found == Find::At(at(5, 110)), "{found:?}");
            }
        });
        writer.set_out(0);
        writer.set_page(1, &few(1, &[0, 1], 300));
        writer.set_page(0, &places);
        reader.join().unwrap();
        assert!(writer.audit().is_empty());
    });
}
#[test]
#[should_panic(expected = "Some(Located")]
fn without_the_second_check_it_is_wrong() {
    model(|| run(0, 100), || [run(0, 200), run(1, 300)], Map::get_and_trust, 5);
}
#[test]
#[should_panic(expected = "Some(Located")]
fn without_the_second_check_few_are_wrong() {
    model(|| few(0, &[5, 9], 100), || [few(0, &[2, 5, 9], 200), few(1, &[0, 1, 2], 300)], Map::get_and_trust, 9);
}
