//! Pools whose journal says what no store wrote, under right checksums, and what a program may do
//! with such a pool.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use fulgurite_flash::Flash;
use fulgurite_format::{Anchor, Header, Kind, Reader, Record, SUBPAGE_BYTES};
use fulgurite_store::{Pool, StoreConfig};

use super::Random;

fn page(image: &[u8], place: u32) -> &[u8; SUBPAGE_BYTES] {
    image[place as usize * SUBPAGE_BYTES..].first_chunk().expect("a flash page of the pool")
}
/// Metadata of a kind: sequence numbers and flash pages, in this order.
fn metadata(image: &[u8], kind: Kind) -> Vec<(u64, u32)> {
    let header = |place| Header::open(page(image, place)).ok().map(|(header, ..)| (header, place));
    let all = (0..(image.len() / SUBPAGE_BYTES) as u32).filter_map(header);
    let mut found: Vec<(u64, u32)> = all
        .filter(|(header, place)| header.kind == kind && header.place == *place)
        .map(|(header, place)| (header.sequence, place))
        .collect();
    found.sort_unstable();
    found
}
/// The flash pages of the journal that an opening reads, in order.
pub fn journal(image: &[u8]) -> Vec<u32> {
    let (_, newest) = *metadata(image, Kind::Anchor).last().expect("an anchor");
    let anchor = Anchor::decode(Header::open(page(image, newest)).unwrap().2).unwrap();
    let read = |(sequence, _): &(u64, u32)| *sequence >= anchor.journal.sequence;
    metadata(image, Kind::Journal).into_iter().filter(read).map(|(_, place)| place).collect()
}
/// The payload of a page of metadata.
pub fn payload(image: &[u8], place: u32) -> Vec<u8> {
    Header::open(page(image, place)).unwrap().2.to_vec()
}
/// The records of a payload, each with the byte at which it begins.
pub fn records(payload: &[u8]) -> Vec<(usize, Record)> {
    let (mut reader, mut found) = (Reader(payload), Vec::new());
    while !reader.is_empty() {
        let at = payload.len() - reader.0.len();
        found.push((at, Record::decode(&mut reader).unwrap()));
    }
    found
}
/// Replaces the payload of a page of the journal, and makes its checksum and the chain of those
/// behind it right.
pub fn replace(image: &mut [u8], mut place: u32, payload: &[u8]) {
    let (mut header, mut old, _) = Header::open(page(image, place)).unwrap();
    let mut payload = payload.to_vec();
    loop {
        let (sealed, new) = header.page(&payload);
        image[place as usize * SUBPAGE_BYTES..][..SUBPAGE_BYTES].copy_from_slice(&sealed[..]);
        let next = metadata(image, Kind::Journal).into_iter().find_map(|(_, place)| {
            let (next, checksum, payload) = Header::open(page(image, place)).unwrap();
            let is_next = (next.sequence, next.before) == (header.sequence + 1, old);
            is_next.then(|| (place, Header { before: new, ..next }, checksum, payload.to_vec()))
        });
        let Some(next) = next else { return };
        (place, header, old, payload) = next;
    }
}

/// Opens a pool of objects, reads them, compacts it as `pool compact --keep 1` does, and fills it.
/// Returns whether it could be opened. Errors end a step, and are no failures.
pub fn use_all(medium: Arc<dyn Flash>, config: StoreConfig) -> bool {
    let Ok((pool, _)) = Pool::open(medium, config) else { return false };
    let subpages = pool.geometry().subpages;
    let mut bytes = [0; SUBPAGE_BYTES];
    for subpage in 0..subpages.min(2000) {
        let _ = pool.read_object(subpage, &mut bytes);
    }
    compact(&pool);
    fill(&pool);
    compact(&pool);
    true
}
fn compact(pool: &Pool) {
    let _ = pool.drop_tokens(1);
    for _ in 0..pool.uses().data.len() {
        if !matches!(pool.reclaim_one(), Ok(true)) {
            break;
        }
    }
    let _ = pool.checkpoint();
}
/// Writes objects until one is refused, frees all of them, and writes some again.
pub fn fill(pool: &Pool) {
    let (mut random, subpages) = (Random(1), pool.geometry().subpages);
    let value = [7; 3000];
    for length in [3000, 0, 100] {
        for _ in 0..pool.geometry().flash_pages() / 16 {
            let batch: Vec<(u32, &[u8])> = (0..32).map(|_| (random.below(subpages), &value[..length])).collect();
            if pool.write_objects(&batch).and_then(|()| pool.sync()).is_err() {
                break;
            }
        }
    }
}
/// What `work` returns, which must end within half a minute.
pub fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, has_ended) = mpsc::channel();
    std::thread::spawn(move || ended.send(work()));
    // The channel is closed when it panics.
    has_ended.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|error| panic!("{what}: {error}"))
}
