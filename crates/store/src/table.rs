//! The page table of NVMM: a direct table of entries by page number, and above it the entries of
//! earlier versions.
//!
//! Invariants: a page's chain descends in time. An entry is in one chain or free. A page without
//! versions has the empty entry. Parts of the direct table that were never used are not there.

use fulgurite_format::{ENTRY_INDEX_BITS, EntryIndex, FlashPage, PageEntry, Status};

use crate::chunked::Chunked;

/// No entry can be had: as many versions exist as indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the page table is full; drop tokens, so that old versions can go")]
pub struct TableFull;

/// Indices that entries can have; the last number stands for none.
pub const INDICES: u32 = (1 << ENTRY_INDEX_BITS) - 1;

/// The entry of a page that holds nothing.
pub const EMPTY: PageEntry = PageEntry::new(
    FlashPage(0),
    EntryIndex::NONE,
    0,
    0,
    match Status::from_bits(0) {
        Some(status) => status,
        None => unreachable!(),
    },
);

/// The table.
#[derive(Debug)]
pub struct Table {
    heads: Chunked<PageEntry>,
    /// The entries of earlier versions: the index counts on from the pages.
    earlier: Vec<PageEntry>,
    pages: u32,
    /// First of the free entries, chained as versions are.
    free: EntryIndex,
    /// Entries above the direct ones that are in chains.
    used: u32,
    /// Entries that the writers of new versions may bring the table to.
    limit: u32,
    /// Entries that there can be at all.
    indices_max: u32,
    /// Kept for its memory.
    indices: Vec<EntryIndex>,
}

impl Table {
    /// A table of `pages` empty pages. [`Table::room`] counts to `limit`. Other changes than new
    /// versions may go beyond, up to the 2^30 - 1 of the index.
    pub fn new(pages: u32, limit: u32) -> Table {
        assert!(pages < INDICES, "{pages} pages do not fit in a table of {INDICES} entries");
        Table {
            heads: Chunked::new(pages),
            earlier: Vec::new(),
            pages,
            free: EntryIndex::NONE,
            used: 0,
            limit,
            indices_max: INDICES,
            indices: Vec::new(),
        }
    }
    /// Changes the limit.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }
    /// Sets how many entries there can be at all, fewer than the index has room for, for tests of
    /// its end.
    pub fn set_indices(&mut self, indices: u32) {
        self.indices_max = indices.clamp(self.pages, INDICES);
    }
    /// Pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }
    /// Entries of earlier versions.
    pub fn versions(&self) -> u32 {
        self.used
    }
    /// How many more entries new versions may take.
    pub fn room(&self) -> u32 {
        self.limit.min(self.indices_max).saturating_sub(self.pages + self.used)
    }
    /// How many more there can be at all.
    pub fn indices_left(&self) -> u32 {
        self.indices_max.saturating_sub(self.pages + self.used)
    }
    /// DRAM of the table.
    pub fn bytes(&self) -> usize {
        self.heads.bytes() + self.history_bytes()
    }
    /// DRAM when all pages have a version, without that for earlier ones.
    pub fn bytes_max(&self) -> usize {
        self.heads.bytes_max()
    }
    /// The part of it for earlier versions.
    pub fn history_bytes(&self) -> usize {
        self.earlier.capacity() * size_of::<PageEntry>()
    }
    /// The newest version of a page.
    #[inline]
    pub fn head(&self, page: u32) -> PageEntry {
        self.heads.get(page).copied().unwrap_or(EMPTY)
    }
    /// Starts loading the newest version of a page.
    #[inline]
    pub fn prefetch(&self, page: u32) {
        if page < self.pages
            && let Some(entry) = self.heads.get(page)
        {
            fulgurite_sys::arch::prefetch(std::ptr::from_ref(entry).cast());
        }
    }
    fn put_head(&mut self, page: u32, entry: PageEntry) {
        match self.heads.get_mut(page) {
            Some(head) => *head = entry,
            None if entry == EMPTY => {}
            None => {
                self.heads.make(page, || EMPTY);
                *self.heads.get_mut(page).expect("made above") = entry;
            }
        }
    }
    fn earlier(&mut self, index: EntryIndex) -> &mut PageEntry {
        &mut self.earlier[(index.0 - self.pages) as usize]
    }
    /// Changes the newest version of a page, which has one, and leaves the older ones.
    pub fn set_head(&mut self, page: u32, entry: PageEntry) {
        self.put_head(page, entry.after(self.head(page).previous()));
    }
    /// All versions of a page, newest first; none when it is empty.
    pub fn chain(&self, page: u32) -> impl Iterator<Item = PageEntry> {
        let head = self.head(page);
        std::iter::successors((head != EMPTY).then_some(head), |entry| match entry.previous() {
            EntryIndex::NONE => None,
            EntryIndex(index) => Some(self.earlier[(index - self.pages) as usize]),
        })
    }

    fn take(&mut self) -> Result<EntryIndex, TableFull> {
        let index = if self.free != EntryIndex::NONE {
            let index = self.free;
            self.free = self.earlier(index).previous();
            index
        } else if self.pages + (self.earlier.len() as u32) < self.indices_max {
            if self.earlier.len() == self.earlier.capacity() {
                // By an eighth: what is counted against a budget must not double.
                self.earlier.reserve_exact((self.earlier.len() / 8).max(64));
            }
            self.earlier.push(EMPTY);
            EntryIndex(self.pages + self.earlier.len() as u32 - 1)
        } else {
            return Err(TableFull);
        };
        self.used += 1;
        Ok(index)
    }
    fn give_back(&mut self, index: EntryIndex) {
        *self.earlier(index) = EMPTY.after(self.free);
        self.free = index;
        self.used -= 1;
    }

    /// Replaces all versions of a page, the newest first. That is the head, at the page's own
    /// index, and the others are above all pages (the paper's update). Changes nothing when there
    /// is no room.
    pub fn replace(&mut self, page: u32, versions: &[PageEntry]) -> Result<(), TableFull> {
        let at = self.head(page).previous();
        if at == EntryIndex::NONE && versions.len() <= 1 {
            // Most pages: one version before, one afterwards.
            self.put_head(page, versions.first().map_or(EMPTY, |head| head.after(EntryIndex::NONE)));
            return Ok(());
        }
        let mut indices = std::mem::take(&mut self.indices);
        indices.clear();
        let result = self.replace_chain(page, at, versions, &mut indices);
        self.indices = indices;
        result
    }
    fn replace_chain(
        &mut self,
        page: u32,
        mut at: EntryIndex,
        versions: &[PageEntry],
        indices: &mut Vec<EntryIndex>,
    ) -> Result<(), TableFull> {
        while at != EntryIndex::NONE {
            indices.push(at);
            at = self.earlier(at).previous();
        }
        let needed = versions.len().saturating_sub(1);
        if needed > indices.len() && needed - indices.len() > self.indices_left() as usize {
            return Err(TableFull);
        }
        while indices.len() > needed {
            let index = indices.pop().expect("longer than needed");
            self.give_back(index);
        }
        while indices.len() < needed {
            indices.push(self.take()?);
        }
        let next = |i: usize| indices.get(i).copied().unwrap_or(EntryIndex::NONE);
        let head = versions.first().map_or(EMPTY, |head| head.after(next(0)));
        for (i, entry) in versions.iter().skip(1).enumerate() {
            *self.earlier(indices[i]) = entry.after(next(i + 1));
        }
        self.put_head(page, head);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(time: u32) -> PageEntry {
        PageEntry::new(FlashPage(u64::from(time)), EntryIndex::NONE, 1, time, Status::ALLOCATED)
    }
    fn times(table: &Table, page: u32) -> Vec<u32> {
        table.chain(page).map(PageEntry::time).collect()
    }

    #[test]
    fn the_head_moves_up_and_the_chain_stays() {
        let mut table = Table::new(4, 100);
        for newest in 1..=4 {
            let versions: Vec<PageEntry> = (1..=newest).rev().map(entry).collect();
            table.replace(2, &versions).unwrap();
        }
        assert_eq!(times(&table, 2), [4, 3, 2, 1]);
        assert_eq!(times(&table, 1), []);
        // As in the paper's figure: the head is at the page's own index, earlier versions above all
        // pages.
        assert_eq!(table.head(2).time(), 4);
        assert!(table.head(2).previous().0 >= 4);
    }
    #[test]
    fn entries_are_used_again() {
        let mut table = Table::new(2, 6);
        table.replace(0, &[5, 4, 3, 2, 1].map(entry)).unwrap();
        assert_eq!(table.room(), 0);
        table.replace(0, &[entry(5), entry(1)]).unwrap();
        assert_eq!((times(&table, 0), table.room()), (vec![5, 1], 3));
        table.replace(1, &[entry(9), entry(8), entry(7), entry(6)]).unwrap();
        assert_eq!((times(&table, 1), table.room()), (vec![9, 8, 7, 6], 0));
        // What makes fewer of others may take more for a while.
        table.replace(0, &[entry(3), entry(2), entry(1)]).unwrap();
        assert_eq!(table.room(), 0);
        table.replace(0, &[]).unwrap();
        assert_eq!((times(&table, 0), table.room()), (vec![], 1));
    }
    /// Any replaced chain reads as it was made last, and entries are counted and reused.
    #[test]
    fn model_chains_are_what_they_were_made() {
        const PAGES: u32 = 5;
        let mut state = fulgurite_testkit::Random(9);
        let mut random = |below: u64| state.below(below) as u32;
        let mut table = Table::new(PAGES, 30);
        table.set_indices(25);
        let mut model = vec![Vec::new(); PAGES as usize];
        let (mut full, mut most) = (0, 0);
        for round in 0..3000 {
            let page = random(u64::from(PAGES));
            let versions: Vec<u32> = (0..random(9)).map(|i| 1000 + 10 * round + i).rev().collect();
            let used = |model: &[Vec<u32>]| model.iter().map(|v| v.len().saturating_sub(1)).sum::<usize>() as u32;
            let mut after = model.clone();
            after[page as usize] = versions.clone();
            let fits = used(&after) <= 20;
            if round % 7 == 0 && !versions.is_empty() && !model[page as usize].is_empty() {
                // The newest alone, and what is below stays.
                table.set_head(page, entry(versions[0]));
                model[page as usize][0] = versions[0];
            } else {
                let result = table.replace(page, &versions.iter().copied().map(entry).collect::<Vec<_>>());
                assert_eq!(result, if fits { Ok(()) } else { Err(TableFull) }, "round {round}");
                full += u32::from(!fits);
                if fits {
                    model = after;
                }
            }
            for page in 0..PAGES {
                assert_eq!(times(&table, page), model[page as usize], "round {round}, page {page}");
            }
            let used = used(&model);
            assert_eq!((table.versions(), table.indices_left(), table.room()), (used, 20 - used, 20 - used));
            most = most.max(table.earlier.len());
        }
        assert!(full > 50 && most == 20, "{full}, {most}");
        // The limit is another thing than what there can be.
        let used = table.versions();
        for (limit, room) in [(30, 20 - used), (24, 19 - used), (5, 0), (0, 0)] {
            table.set_limit(limit);
            assert_eq!((table.room(), table.indices_left()), (room, 20 - used), "{limit}");
        }
        table.set_indices(0);
        assert_eq!((table.pages(), table.indices_left(), table.indices_max), (PAGES, 0, PAGES));
        table.set_indices(u32::MAX);
        assert_eq!(table.indices_max, INDICES);
    }
    #[test]
    fn what_was_never_written_takes_nothing() {
        let mut table = Table::new(1 << 16, 1 << 20);
        let empty = table.bytes();
        table.replace(7, &[]).unwrap();
        assert_eq!((table.bytes(), table.history_bytes(), table.head(7)), (empty, 0, EMPTY));
        table.replace(7, &[entry(1)]).unwrap();
        assert!(table.bytes() > empty && table.bytes() <= table.bytes_max() && table.history_bytes() == 0);
        // Entries of earlier versions come by 64, and then by an eighth.
        table.replace(7, &[2, 1].map(entry)).unwrap();
        assert_eq!(table.history_bytes(), 64 * 16);
        table.replace(7, &(1..=66).rev().map(entry).collect::<Vec<_>>()).unwrap();
        assert_eq!(table.history_bytes(), 128 * 16);
        table.replace(7, &(1..=1100).rev().map(entry).collect::<Vec<_>>()).unwrap();
        assert!(table.history_bytes() < 1100 * 9 / 8 * 16 + 1024, "{}", table.history_bytes());
    }
}
