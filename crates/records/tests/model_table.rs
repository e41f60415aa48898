//! Goal: a table has the words that were inserted and no others, at every size, and a scan returns
//! each word that stays exactly once. Method: random inserts, removals and replacements on a table
//! and on a list of words, with tags of few values and of many, and with limits on the DRAM. All
//! invariants are checked after each step. Scans go on between the steps. Each planted bug is
//! found.

use std::collections::HashMap;

use fulgurite_records::{Location, LogPage, NoDram, Planted, Slot, Span, Table, Tag, Word};
use fulgurite_testkit::{Random, each_seed};

fn word(tag: u32, page: u32) -> Word {
    let location = Location { page: LogPage::new(page).unwrap(), span: Span::One };
    Word::cold(Tag::new(tag).unwrap(), location)
}

/// A scan that is under way.
struct Scan {
    from: Option<Tag>,
    /// Words that were there when it began and have stayed, and how often each was returned.
    stayed: HashMap<Word, usize>,
}

struct World {
    table: Table,
    random: Random,
    words: Vec<Word>,
    /// Only these bits of a tag vary.
    tags: u32,
    next_page: u32,
    scan: Option<Scan>,
    scans: u64,
    refused: u64,
}

impl World {
    fn new(seed: u64, bug: Option<Planted>) -> World {
        let mut random = Random(seed);
        let mut table = Table::new();
        table.plant(bug);
        let tags = [0x0FFF_FFFF, 0x0FFF_FFFF, 0x0FFF_0000, 0x0F, 0x0C00_0003, 0][random.below(6)];
        World { table, random, words: Vec::new(), tags, next_page: 0, scan: None, scans: 0, refused: 0 }
    }
    fn slot(&self, word: Word) -> Result<Slot, String> {
        let mut found = self.table.find(word.tag()).filter(|(_, found)| *found == word);
        let slot = found.next().ok_or_else(|| format!("{word:?} is not found"))?.0;
        if found.next().is_some() { Err(format!("{word:?} is there twice")) } else { Ok(slot) }
    }
    fn insert(&mut self) -> Result<(), String> {
        self.next_page += 1;
        let word = word(self.random.next() as u32 & self.tags, self.next_page);
        let bytes_max = if self.random.one_in(8) { self.table.bytes() } else { usize::MAX };
        let needed = self.table.bytes_after_insert();
        match self.table.insert(word, bytes_max) {
            Ok(slot) if self.table.word(slot) == word => self.words.push(word),
            Err(NoDram { needed: n, allowed }) if n == needed && allowed == bytes_max => self.refused += 1,
            other => return Err(format!("{other:?} for {word:?}")),
        }
        if needed != self.table.bytes() && bytes_max == usize::MAX {
            return Err(format!("{needed} bytes were announced, {} taken", self.table.bytes()));
        }
        Ok(())
    }
    fn take(&mut self) -> Option<Word> {
        let at = self.random.below(self.words.len().max(1));
        (at < self.words.len()).then(|| self.words.swap_remove(at))
    }
    fn changed(&mut self, word: Word) {
        if let Some(scan) = &mut self.scan {
            scan.stayed.remove(&word);
        }
    }
    fn remove(&mut self) -> Result<(), String> {
        let Some(word) = self.take() else { return Ok(()) };
        let slot = self.slot(word)?;
        self.table.remove(slot);
        self.changed(word);
        Ok(())
    }
    fn replace(&mut self) -> Result<(), String> {
        let Some(old) = self.take() else { return Ok(()) };
        self.next_page += 1;
        let new = word(old.tag().number(), self.next_page);
        let slot = self.slot(old)?;
        self.table.replace(slot, new);
        self.words.push(new);
        self.changed(old);
        Ok(())
    }
    fn scan(&mut self) -> Result<(), String> {
        let Some(Scan { from: Some(from), stayed }) = &mut self.scan else {
            if let Some(scan) = self.scan.take() {
                if let Some((word, times)) = scan.stayed.iter().find(|(_, times)| **times != 1) {
                    return Err(format!("{word:?} was scanned {times} times"));
                }
                self.scans += 1;
            }
            let stayed = self.words.iter().map(|word| (*word, 0)).collect();
            self.scan = Some(Scan { from: Some(Tag::FIRST), stayed });
            return Ok(());
        };
        let mut words = Vec::new();
        let next = self.table.scan(*from, &mut words);
        for word in &words {
            if word.tag() < *from || next.is_some_and(|next| word.tag() >= next) {
                return Err(format!("{word:?} came in the turn from {from:?} to {next:?}"));
            }
            if let Some(times) = stayed.get_mut(word) {
                *times += 1;
            }
        }
        if !words.is_sorted_by_key(|word| word.tag()) {
            return Err(format!("not in the order of tags: {words:?}"));
        }
        self.scan.as_mut().expect("it is under way").from = next;
        Ok(())
    }
    fn check(&self) -> Result<(), String> {
        self.table.check()?;
        if self.table.len() != self.words.len() {
            return Err(format!("{} words, expected {}", self.table.len(), self.words.len()));
        }
        Ok(())
    }
    fn run(&mut self, steps: u64) -> Result<(), String> {
        let mut grows = true;
        for step in 0..steps {
            if step % 500 == 0 {
                grows = self.random.below(2) == 0;
            }
            match self.random.below(16) {
                0..7 => self.insert()?,
                7..9 if grows => self.insert()?,
                7..13 if !grows => self.remove()?,
                9..11 => self.remove()?,
                11..14 => self.replace()?,
                _ => self.scan()?,
            }
            self.check()?;
        }
        for word in &self.words {
            self.slot(*word)?;
        }
        while let Some(word) = self.take() {
            let slot = self.slot(word)?;
            self.table.remove(slot);
            self.table.check()?;
        }
        if self.table.bytes() > 2 * Table::BYTES_MIN {
            return Err(format!("an empty table has {} bytes", self.table.bytes()));
        }
        Ok(())
    }
}

#[test]
fn what_was_inserted_is_found_and_scanned_once() {
    let (mut scans, mut refused) = (0, 0);
    each_seed(1, 60, |seed| {
        let mut world = World::new(seed, None);
        world.run(4000).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        (scans, refused) = (scans + world.scans, refused + world.refused);
    });
    assert!(scans > 10 && refused > 10, "{scans} scans, {refused} refused");
}

#[test]
fn a_planted_bug_of_removal_is_found() {
    let found = (1..=8).find_map(|seed| World::new(seed, Some(Planted::RemovalLeavesHole)).run(4000).err());
    assert!(found.is_some());
}

#[test]
fn a_key_costs_at_most_ten_and_a_half_bytes_while_a_table_grows() {
    let mut random = Random::seeded("growth", 5);
    let mut table = Table::new();
    let (mut grown, mut last) = (0, table.bytes());
    for count in 1..=300_000u32 {
        table.insert(word(random.next() as u32 & 0x0FFF_FFFF, count), usize::MAX).unwrap();
        if table.bytes() != last {
            // The first steps are from one bucket to two, and so on.
            assert!(table.bytes() <= last + (last / 8).max(64), "{last} to {}", table.bytes());
            (grown, last) = (grown + 1, table.bytes());
        }
        if count > 64 {
            let each = table.bytes() as f64 / f64::from(count);
            assert!((8.0..=10.5).contains(&each), "{each:.2} bytes a key at {count} keys");
        }
    }
    table.check().unwrap();
    assert!(grown > 60 && table.longest_search() < 64, "{grown} steps, {} buckets", table.longest_search());
    let scanned = scanned(&table);
    let found = scanned.iter().map(|word| table.find(word.tag()).filter(|(_, other)| other == word).count());
    assert_eq!((scanned.len(), found.sum::<usize>()), (300_000, 300_000));
}

fn scanned(table: &Table) -> Vec<Word> {
    let (mut words, mut from) = (Vec::new(), Some(Tag::FIRST));
    while let Some(tag) = from {
        from = table.scan(tag, &mut words);
    }
    words
}

#[test]
fn words_that_come_and_leave_in_order_are_found_soon() {
    const COUNT: usize = 40_000;
    let mut random = Random::seeded("order", 6);
    let mut table = Table::new();
    for page in 1..=COUNT as u32 {
        table.insert(word(random.next() as u32 & 0x0FFF_FFFF, page), usize::MAX).unwrap();
    }
    let words = scanned(&table);
    let mut other = Table::new();
    assert!(matches!(other.reserve(COUNT, 300_000), Err(NoDram { allowed: 300_000, .. })));
    other.reserve(COUNT, usize::MAX).unwrap();
    let bytes = other.bytes();
    assert!(bytes < 8 * 8 * COUNT / 7 + 4096, "{bytes} bytes");
    for (i, word) in words.iter().enumerate() {
        other.insert(*word, bytes).unwrap();
        assert!(i % 2500 > 0 || other.longest_search() < 64, "{} buckets", other.longest_search());
    }
    other.check().unwrap();
    assert_eq!(scanned(&other), words);
    for (i, word) in words.iter().enumerate() {
        let slot = other.find(word.tag()).find(|(_, found)| found == word).unwrap().0;
        other.remove(slot);
        assert!(i % 2500 > 0 || other.longest_search() < 64, "{} buckets", other.longest_search());
    }
    assert_eq!((other.len(), other.bytes()), (0, Table::BYTES_MIN));
    // In no order, it shrinks step by step.
    let mut words = words;
    for left in (0..COUNT).rev() {
        let word = words.swap_remove(random.below(left + 1));
        let slot = table.find(word.tag()).find(|(_, found)| *found == word).unwrap().0;
        table.remove(slot);
        assert!(left < 64 || table.bytes() <= 17 * left, "{} bytes for {left} words", table.bytes());
    }
}
