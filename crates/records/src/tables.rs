//! The tables of a shard by their numbers, and the DRAM that all of them may have.

use crate::record::TableId;
use crate::table::{NoDram, Slot, Table};
use crate::word::Word;

/// Where a table is, until one is added or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableIndex(usize);

/// Bytes of a table in addition to its words.
const ENTRY_BYTES: usize = size_of::<TableId>() + size_of::<Table>();

#[derive(Debug)]
pub struct Tables {
    /// In order.
    ids: Vec<TableId>,
    tables: Vec<Table>,
    /// Of all words and tables.
    bytes: usize,
    bytes_max: usize,
}

impl Tables {
    pub fn new(bytes_max: usize) -> Tables {
        Tables { ids: Vec::new(), tables: Vec::new(), bytes: 0, bytes_max }
    }
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }
    pub fn set_bytes_max(&mut self, bytes: usize) {
        self.bytes_max = bytes;
    }
    #[inline]
    pub fn index(&self, id: TableId) -> Option<TableIndex> {
        self.ids.binary_search(&id).ok().map(TableIndex)
    }
    #[inline]
    pub fn get(&self, index: TableIndex) -> &Table {
        &self.tables[index.0]
    }
    #[inline]
    pub fn replace(&mut self, index: TableIndex, slot: Slot, word: Word) {
        self.tables[index.0].replace(slot, word);
    }
    pub fn ids(&self) -> &[TableId] {
        &self.ids
    }
    pub fn all(&self) -> impl Iterator<Item = (TableId, &Table)> {
        self.ids.iter().copied().zip(&self.tables)
    }
    /// Adds an empty table, unless it is there.
    pub fn add(&mut self, id: TableId) -> Result<(), NoDram> {
        let Err(at) = self.ids.binary_search(&id) else { return Ok(()) };
        let needed = self.bytes + ENTRY_BYTES + Table::BYTES_MIN;
        if needed > self.bytes_max {
            return Err(NoDram { needed, allowed: self.bytes_max });
        }
        self.ids.insert(at, id);
        self.tables.insert(at, Table::new());
        self.bytes = needed;
        Ok(())
    }
    pub fn drop(&mut self, index: TableIndex) -> Table {
        self.ids.remove(index.0);
        let table = self.tables.remove(index.0);
        self.bytes -= ENTRY_BYTES + table.bytes();
        table
    }
    /// Whether another word would be taken.
    pub fn has_room(&self, index: TableIndex) -> bool {
        let table = &self.tables[index.0];
        self.bytes - table.bytes() + table.bytes_after_insert() <= self.bytes_max
    }
    pub fn insert(&mut self, index: TableIndex, word: Word) -> Result<Slot, NoDram> {
        self.grow(index, |table, bytes_max| table.insert(word, bytes_max))
    }
    pub fn reserve(&mut self, index: TableIndex, words: usize) -> Result<(), NoDram> {
        self.grow(index, |table, bytes_max| table.reserve(words, bytes_max))
    }
    fn grow<R>(
        &mut self,
        index: TableIndex,
        change: impl FnOnce(&mut Table, usize) -> Result<R, NoDram>,
    ) -> Result<R, NoDram> {
        let table = &mut self.tables[index.0];
        let others = self.bytes - table.bytes();
        let done = change(table, self.bytes_max.saturating_sub(others))
            .map_err(|NoDram { needed, .. }| NoDram { needed: others + needed, allowed: self.bytes_max })?;
        self.bytes = others + table.bytes();
        Ok(done)
    }
    pub fn remove(&mut self, index: TableIndex, slot: Slot) {
        let table = &mut self.tables[index.0];
        let others = self.bytes - table.bytes();
        table.remove(slot);
        self.bytes = others + table.bytes();
    }
    pub fn check(&self) -> Result<(), String> {
        if !self.ids.is_sorted() || self.ids.len() != self.tables.len() {
            return Err(format!("{} tables, of {:?}", self.tables.len(), self.ids));
        }
        self.tables.iter().try_for_each(Table::check)?;
        let bytes: usize = self.tables.iter().map(|table| ENTRY_BYTES + table.bytes()).sum();
        if bytes != self.bytes {
            return Err(format!("tables have {bytes} bytes, and {} are counted", self.bytes));
        }
        Ok(())
    }
}
