//! Pages of metadata, past recovery: which of them are damaged.
//!
//! A page counts as damaged when its checksum does not match, or would if it began as such a page
//! does. A page that lost its beginning and more cannot be recognised as metadata. So the check
//! looks for it where there must be one: a copy of an anchor has a twin next to it, and an extent
//! that is full ends with its summary.
//!
//! What this file does not do: a summary or a copy of an anchor of which nothing was ever written
//! is no damage, because a crash may have come before it. For the newest anchor it is reported
//! nevertheless. What a power failure may have cut off is no damage either ([`cut_off`]). Such a
//! page lacks whole sectors, and it was not certainly durable before the state that is checked.
//! Nothing needs it, and a note says where it is.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_flash::FlashError;
use fulgurite_format::{Header, Kind, MEMBER_PAGES, NotMetadata, PageBuffer, PoolId, crc32c, zero_page};

use super::error::AdminError;
use super::files::OpenedPool;
use super::finding::{Damage, Finding, SUPERBLOCKS, read_raw};
use super::{Step, Watch};
use crate::geometry::Geometry;

fn page_of(content: &[u8]) -> PageBuffer {
    let mut page = zero_page();
    page.copy_from_slice(content);
    page
}

/// Why this is no page of metadata any more, where it certainly was one.
pub fn broken(content: &[u8]) -> Option<&'static str> {
    let page = page_of(content);
    match Header::open(&page) {
        Err(NotMetadata::Checksum) => Some("its checksum does not match its content"),
        Err(NotMetadata::Magic) if Header::lacks_magic(&page) => Some("it does not begin as a page of metadata does"),
        _ => None,
    }
}

/// The fewest bytes that a device writes atomically.
const SECTOR_BYTES: usize = 512;

/// Whether a power failure may have left a page like this: sectors of what was to be written, and
/// of what was there before. A page that lacks a single bit, or its first eight bytes alone, was
/// written whole. So was a page that ends in its first sector, if that sector is wrong.
pub fn cut_off(content: &[u8]) -> bool {
    let page = page_of(content);
    match Header::open(&page) {
        Err(NotMetadata::Checksum) => !Header::is_one_bit_off(&page) && !Header::begins_wrong(&page, SECTOR_BYTES),
        Err(NotMetadata::Magic) => begins_blank(content) && !Header::lacks_magic(&page),
        _ => false,
    }
}
/// Whether the first sector was never written.
fn begins_blank(content: &[u8]) -> bool {
    content[..SECTOR_BYTES].iter().all(|byte| *byte == 0)
}

/// The pages that may hold metadata, each with what it would be.
fn places(opened: &OpenedPool) -> Vec<(u32, Damage, String)> {
    let (uses, g) = (opened.pool().uses(), opened.pool().geometry());
    let mut pages = Vec::new();
    let whole = |extent: u32| g.first_of(extent)..g.first_of(extent) + g.extent_pages;
    for extent in &uses.fixed {
        let anchors = whole(*extent).filter(|place| !SUPERBLOCKS.contains(place) && !MEMBER_PAGES.contains(place));
        pages.extend(anchors.map(|at| (at, Damage::Anchor, "an anchor, from which the pool is opened".to_owned())));
    }
    for extent in &uses.metadata {
        pages.extend(
            whole(*extent).map(|at| (at, Damage::Journal, "a page of the journal or of a checkpoint".to_owned())),
        );
    }
    for extent in &uses.data {
        let summary = whole(*extent).skip(g.data_pages() as usize);
        let what = format!("the summary of extent {extent}; no data is lost by it");
        pages.extend(summary.map(|at| (at, Damage::Summary, what.clone())));
    }
    pages.sort_unstable_by_key(|(at, ..)| *at);
    pages
}

/// What a flash page says as a copy of an anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AnchorCopy {
    /// An anchor: its header but for its place, and a checksum of what it says.
    Anchor(Header, u32),
    /// Nothing was written to it, or something else of this pool: the anchor is not there, and may
    /// never have been.
    Absent,
    /// Something that no pool writes there.
    Foreign,
}

impl AnchorCopy {
    /// A copy of an anchor that is not broken.
    fn of(content: &[u8], pool: PoolId, place: u32) -> AnchorCopy {
        match Header::open(&page_of(content)) {
            Ok((header, _, payload)) if (header.kind, header.pool, header.place) == (Kind::Anchor, pool, place) => {
                AnchorCopy::Anchor(Header { place: 0, ..header }, crc32c(payload))
            }
            Ok(_) => AnchorCopy::Absent,
            Err(_) if cut_off(content) || begins_blank(content) => AnchorCopy::Absent,
            Err(_) => AnchorCopy::Foreign,
        }
    }
    fn sequence(self) -> Option<u64> {
        match self {
            AnchorCopy::Anchor(header, _) => Some(header.sequence),
            AnchorCopy::Absent | AnchorCopy::Foreign => None,
        }
    }
}

/// What is wrong with the two copies of anchors, of those that are not broken: places, each with
/// why. And the place of the newest anchor's only copy, if it has but one.
fn pairs(copies: &BTreeMap<u32, AnchorCopy>, g: Geometry) -> (Vec<(u32, &'static str)>, Option<u32>) {
    const FOREIGN: &str = "it is no page of metadata, and its other copy is";
    let mut damaged = Vec::new();
    let mut newest: Option<(u64, Option<u32>)> = None;
    // The two copies of one are at an even number in the extent and at the next number.
    let firsts: BTreeSet<u32> =
        copies.keys().map(|place| place - (place - g.first_of(g.extent_of(*place))) % 2).collect();
    for (first, second) in firsts.into_iter().map(|first| (first, first + 1)) {
        let [one, other] = [first, second].map(|place| copies.get(&place).copied());
        match (one, other) {
            (Some(AnchorCopy::Anchor(..)), Some(AnchorCopy::Foreign)) => damaged.push((second, FOREIGN)),
            (Some(AnchorCopy::Foreign), Some(AnchorCopy::Anchor(..))) => damaged.push((first, FOREIGN)),
            (Some(AnchorCopy::Anchor(one, says)), Some(AnchorCopy::Anchor(other, also)))
                if one.sequence == other.sequence && (one, says) != (other, also) =>
            {
                damaged.push((second, "it says something else than its other copy"));
            }
            _ => {}
        }
        let [here, there] = [one, other].map(|copy| copy.and_then(AnchorCopy::sequence));
        // A copy that is broken, or no page of metadata, was reported already.
        let is_known = |copy: Option<AnchorCopy>| copy.is_some_and(|copy| copy != AnchorCopy::Foreign);
        let alone = here != there && is_known(one) && is_known(other);
        let place = if here > there { first } else { second };
        newest = newest.max(here.max(there).map(|sequence| (sequence, alone.then_some(place))));
    }
    (damaged, newest.and_then(|(_, alone)| alone))
}

/// All that is damaged, with a note of what is not and could be meant to be known. `full` are the
/// extents of which the last flash page for data is needed.
pub fn damaged(
    opened: &OpenedPool,
    full: &BTreeSet<u32>,
    watch: Watch<'_>,
) -> Result<(Vec<Finding>, Vec<String>), AdminError> {
    let (pool, g) = (opened.pool().id(), opened.pool().geometry());
    let metadata = places(opened);
    let what = |place: u32| {
        let at = metadata.binary_search_by_key(&place, |(at, ..)| *at).expect("one of them");
        (metadata[at].1, &metadata[at].2)
    };
    let all: Vec<u32> = metadata.iter().map(|(place, ..)| *place).collect();
    let mut found: Vec<(u32, String)> = Vec::new();
    let mut copies = BTreeMap::new();
    let mut partly = Vec::new();
    let mut each = |place: u32, content: Result<&[u8], FlashError>| {
        let content = match content {
            Ok(content) => content,
            Err(error) => return found.push((place, error.to_string())),
        };
        if broken(content).is_some() && cut_off(content) && !opened.pool().was_durable(place) {
            match what(place).0 {
                Damage::Anchor => {
                    copies.insert(place, AnchorCopy::Absent);
                }
                _ => partly.push(place),
            }
            return;
        }
        if let Some(why) = broken(content) {
            return found.push((place, why.to_owned()));
        }
        match what(place).0 {
            Damage::Anchor => {
                copies.insert(place, AnchorCopy::of(content, pool, place));
            }
            // Programs' data is never stored there, and journals that were are still what they
            // were.
            Damage::Summary
                if full.contains(&g.extent_of(place))
                    && !begins_blank(content)
                    && Header::open(&page_of(content)) == Err(NotMetadata::Magic) =>
            {
                found.push((place, "it is no page of metadata, and its extent is full".to_owned()));
            }
            _ => {}
        }
    };
    read_raw(&opened.medium, Step::Metadata, &all, watch, &mut each)?;
    let (unlike, alone) = pairs(&copies, g);
    found.extend(unlike.into_iter().map(|(place, why)| (place, why.to_owned())));
    found.sort_unstable();
    let finding = |(place, why): (u32, String)| {
        let (kind, what) = what(place);
        Finding::at(kind, place, format!("damaged: metadata on flash page {place} ({what}): {why}"))
    };
    let note = |place: u32| {
        format!(
            "note: of the newest anchor there is one copy and not two, on flash page {place}: a crash came before the other was written, or \
             that was lost; the next checkpoint writes both"
        )
    };
    let mut notes: Vec<String> = alone.map(note).into_iter().collect();
    if !partly.is_empty() {
        partly.sort_unstable();
        let places: Vec<String> = partly.iter().map(u32::to_string).collect();
        notes.push(format!(
            "note: pages of metadata that nothing needs are there in part, on flash page {}: a crash came while they were written, or they were \
             damaged",
            places.join(", ")
        ));
    }
    Ok((found.into_iter().map(finding).collect(), notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: Geometry = Geometry { extent_pages: 8, extents: 40, subpages: 64, objects: false };
    const POOL: PoolId = PoolId([7; 16]);

    fn anchor(place: u32, sequence: u64, says: &[u8]) -> PageBuffer {
        let header = Header { sequence, ..Header::new(Kind::Anchor, POOL, place) };
        header.page(says).0
    }
    /// Checks contiguous pages, the first of them the first of the anchors.
    fn looked(pages: &[PageBuffer]) -> (Vec<u32>, Option<u32>) {
        let whole = (8..).zip(pages).filter(|(_, page)| broken(&page[..]).is_none());
        let copies = whole.map(|(place, page)| (place, AnchorCopy::of(&page[..], POOL, place))).collect();
        let (damaged, alone) = pairs(&copies, G);
        (damaged.into_iter().map(|(place, _)| place).collect(), alone)
    }

    #[test]
    fn a_copy_of_an_anchor_has_a_twin() {
        let pair = |at: u32, sequence| [anchor(at, sequence, b"x"), anchor(at + 1, sequence, b"x")];
        let [a, b, c, d] = [pair(8, 5), pair(10, 6)].concat().try_into().unwrap();
        let all = |b: &PageBuffer, d: &PageBuffer| looked(&[a.clone(), b.clone(), c.clone(), d.clone()]);
        let garbage: PageBuffer = Box::new([0xA5; 4096]);
        assert_eq!(all(&b, &d), (vec![], None));
        // For the newest, a copy is reported when nothing was written, or when it is an older one;
        // for others it does not matter.
        assert_eq!(all(&b, &zero_page()), (vec![], Some(10)));
        assert_eq!(all(&b, &anchor(11, 3, b"x")), (vec![], Some(10)));
        assert_eq!(all(&zero_page(), &d), (vec![], None));
        assert_eq!(looked(&[a.clone(), b.clone(), zero_page(), d.clone()]), (vec![], Some(11)));
        // What cannot have been written is damage, also of older ones.
        assert_eq!(all(&b, &garbage), (vec![11], None));
        assert_eq!(all(&garbage, &d), (vec![9], None));
        assert_eq!(looked(&[garbage.clone(), b.clone(), c.clone(), d.clone()]), (vec![8], None));
        assert_eq!(all(&b, &anchor(11, 6, b"y")), (vec![11], None));
        // Where nothing is an anchor, there may be anything.
        assert_eq!(
            looked(&[a.clone(), b.clone(), c.clone(), d.clone(), garbage.clone(), garbage.clone()]),
            (vec![], None)
        );
        let mut torn = c.clone();
        torn[100] ^= 1;
        let older = anchor(9, 3, b"x");
        assert_eq!(
            looked(&[a.clone(), older, torn, d.clone()]),
            (vec![], None),
            "the newest has a second, if a broken one"
        );
        // One that is broken is named for that.
        let mut torn = d.clone();
        torn[100] ^= 1;
        assert_eq!(
            (all(&b, &torn), broken(&torn[..])),
            ((vec![], None), Some("its checksum does not match its content"))
        );
        // An anchor of another pool, or a misplaced one, is no anchor here.
        assert_eq!(all(&b, &anchor(12, 6, b"x")), (vec![], Some(10)));
    }
    #[test]
    fn a_page_that_lost_its_beginning_is_known_by_the_rest() {
        let page = anchor(8, 5, b"x");
        let mut cut = page.clone();
        cut[..8].fill(0);
        assert!(broken(&page[..]).is_none() && broken(&cut[..]).is_some() && broken(&zero_page()[..]).is_none());
    }
    #[test]
    fn a_page_that_ends_in_its_first_sector_is_not_cut_off_there() {
        let short = anchor(8, 5, &[7; 80]);
        let long = anchor(8, 5, &[7; 3000]);
        for (what, at) in [("two bytes", 100..102), ("16 bytes", 70..86), ("all behind the header", 64..512)] {
            let mut rotten = short.clone();
            rotten[at].iter_mut().for_each(|byte| *byte ^= 0x5A);
            assert!(broken(&rotten[..]).is_some() && !cut_off(&rotten[..]), "{what}");
        }
        // The new first sector before what was there, and a longer page of which sectors are
        // missing.
        let mut over_data = short.clone();
        over_data[512..].fill(9);
        assert!(broken(&over_data[..]).is_some() && cut_off(&over_data[..]));
        for sector in 1..6 {
            let mut torn = long.clone();
            torn[512 * sector..][..512].fill(0);
            assert!(broken(&torn[..]).is_some() && cut_off(&torn[..]), "sector {sector}");
        }
    }
}
