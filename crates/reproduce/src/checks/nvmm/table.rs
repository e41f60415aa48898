//! D3: the page table's update on a write, with `store::Table` as it is, compared with lists of
//! versions.

use fulgurite_format::{EntryIndex, FlashPage, PageEntry, Status};
use fulgurite_sim::Random;
use fulgurite_store::Table;

use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::Planted;

const PAGES: u32 = 64;
const STEPS: u32 = 20_000;

/// Writes, roll backs and deletions at random. Returns how many of the pages' chains differ from
/// the lists, how many versions were made, and how many entries the longest chain had.
fn differing(inputs: &Inputs<'_>, versions: usize) -> Result<(u32, u32, usize), CheckError> {
    let full = |_| CheckError::no_answer("the page table is full");
    let mut table = Table::new(PAGES, PAGES * (versions as u32 + 1));
    let mut lists: Vec<Vec<PageEntry>> = vec![Vec::new(); PAGES as usize];
    let mut random = Random::new(inputs.seed, 10);
    let (mut wrong, mut written, mut longest) = (0, 0, 0);
    for now in 1..=STEPS {
        let page = random.below(u64::from(PAGES)) as u32;
        let list = &mut lists[page as usize];
        match random.below(20) {
            // Deletes the page.
            0 => list.clear(),
            // Rolls it back to the version before.
            1 if list.len() > 1 => drop(list.remove(0)),
            _ => {
                let valid = random.bits() as u32 | 1;
                let status = Status::from_bits(0).expect("no bit is set");
                list.insert(0, PageEntry::new(FlashPage(u64::from(now)), EntryIndex::NONE, valid, now, status));
                // The oldest is removed where more are kept than the table has room for.
                list.truncate(versions + 1);
                written += 1;
            }
        }
        let kept: &[PageEntry] =
            if inputs.planted == Some(Planted::VersionLost) { &list[..list.len().min(1)] } else { list };
        table.replace(page, kept).map_err(full)?;
        longest = longest.max(list.len());
        let chain: Vec<PageEntry> = table.chain(page).map(|entry| entry.after(EntryIndex::NONE)).collect();
        let descends = chain.windows(2).all(|pair| pair[0].time() > pair[1].time());
        wrong += u32::from(chain != *list || !descends);
    }
    Ok((wrong, written, longest))
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let entries = inputs.count("table.entries")?;
    // What D2 finds: this number of old versions for every page.
    let versions = (entries >> fulgurite_format::PAGE_BITS) as usize - 1;
    let (wrong, written, longest) = differing(inputs, versions)?;
    Ok(vec![
        Finding::of("chains", "the old mapping moves to a free entry, and the new one points to it")
            .within(f64::from(wrong), "chains that differ from a list", (0.0, 0.0))
            .by("store::Table under writes, roll backs and deletions at random")
            .also("versions written", f64::from(written)),
        Finding::of("versions", "three old versions and the newest")
            .within(longest as f64, "entries of the longest chain", (4.0, 4.0))
            .by("a table of as many entries for each page as the paper's"),
    ])
}
