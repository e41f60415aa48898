//! Goal: a key has the record that was put last, or none, whatever is cached, leaves, is read late,
//! moved by reclaim or removed meanwhile, with many keys of one tag, and at every size of the
//! cache. Method: random operations on a shard, on a map of what must be there, and on pages of
//! records as a driver packs them. Pages are used again at once. Reads of flash are handed in late,
//! also those that a put waits for. All invariants are checked after each step. Each planted bug is
//! found.

use std::collections::HashMap;

use fulgurite_records::{
    CACHE_BYTES_MIN, Candidate, Changed, Cold, Found, KeyHash, KeyRef, Location, LogPage, Planted, Record, Refused,
    Seed, Shard, Span, TableId, Tag, Verified,
};
use fulgurite_testkit::{Random, each_seed};

type Key = (TableId, Vec<u8>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Current {
    record: Vec<u8>,
    page: u32,
}

/// What was read from flash for a key, and is handed in later.
struct Late {
    key: Key,
    cold: Cold,
    own: Option<Candidate>,
    bytes: Vec<u8>,
}

struct World {
    shard: Shard,
    random: Random,
    /// Of the hash.
    mask: u64,
    keys: u32,
    /// The most that the cache is resized to.
    bytes_max: usize,
    /// It forgets all records now and then.
    forgets: bool,
    tables: Vec<TableId>,
    current: HashMap<Key, Current>,
    pages: HashMap<u32, Vec<(Key, Vec<u8>)>>,
    open: u32,
    late: Vec<Late>,
    version: u64,
    counts: Seen,
}

/// How often the rarer things happened.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    moved: u64,
    stale: u64,
    shared: u64,
    refused: u64,
    unverified: u64,
    again: u64,
    admitted: u64,
    late: u64,
    evicted: u64,
    returned: u64,
    hits: u64,
}

fn page(number: u32) -> LogPage {
    LogPage::new(number).unwrap()
}

impl World {
    fn new(seed: u64, bug: Option<Planted>) -> World {
        let mut random = Random(seed);
        let bytes_max = CACHE_BYTES_MIN << (1 + random.below(5));
        let mut shard = Shard::new(bytes_max, 1 << 20);
        shard.plant(bug);
        // All bits of the tag, its upper ones, its lower ones, one, or none.
        let mask = [!0, 7 << 55, 7 << 30, 1 << 57, 0][random.below(5)];
        let keys = [20, 100, 400][random.below(3)];
        World {
            shard,
            random,
            mask,
            keys: if mask == 0 { 20 } else { keys },
            bytes_max,
            forgets: seed.is_multiple_of(2),
            tables: Vec::new(),
            current: HashMap::new(),
            pages: HashMap::new(),
            open: 1,
            late: Vec::new(),
            version: 0,
            counts: Seen::default(),
        }
    }
    fn hash(&self, key: &Key) -> KeyHash {
        let number = key.1.iter().fold(7u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
        KeyHash(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & self.mask)
    }
    fn tag(&self, key: &Key) -> Tag {
        self.hash(key).tag()
    }
    fn table(&mut self) -> TableId {
        TableId(self.random.below(3u32) * 1000)
    }
    fn key(&mut self) -> Key {
        let table = self.table();
        // Half of the accesses go to a tenth.
        let below = if self.random.one_in(2) { self.keys / 10 } else { self.keys };
        let number = self.random.below(below);
        (table, format!("{number}").into_bytes())
    }
    fn key_ref<'a>(&self, key: &'a Key) -> KeyRef<'a> {
        KeyRef { table: key.0, hash: self.hash(key), bytes: &key.1 }
    }
    fn record(&mut self, key: &Key) -> Vec<u8> {
        self.version += 1;
        let length = match self.random.below(10) {
            0 => self.random.below(3000),
            1 => 0,
            2..5 => self.random.below(100),
            _ => 40 + key.1.len(),
        };
        let value = vec![self.version as u8; length];
        let record = Record { version: Some(self.version), ..Record::new(key.0, &key.1, &value) };
        let mut bytes = Vec::new();
        record.append(Seed(0), &mut bytes).unwrap();
        bytes
    }
    /// A page for the next record, by the rules of packing.
    fn page_for(&mut self, key: &Key, is_copy: bool, not: u32) -> u32 {
        let fits = |world: &World, page: u32| {
            let records = world.pages.get(&page).map_or(&[][..], Vec::as_slice);
            let clashes =
                |other: &Key| other.0 == key.0 && world.tag(other) == world.tag(key) && (is_copy || other != key);
            page != not && records.len() < 6 && !records.iter().any(|(other, _)| clashes(other))
        };
        if !fits(self, self.open) {
            // The first that is free, so that pages are used again soon.
            self.open = (1..).find(|page| *page != not && !self.pages.contains_key(page)).unwrap();
        }
        self.open
    }
    fn append(&mut self, at: u32, key: &Key, record: &[u8]) {
        self.pages.entry(at).or_default().push((key.clone(), record.to_vec()));
    }
    fn location(at: u32) -> Location {
        Location { page: page(at), span: Span::of(at as usize % 6) }
    }
    /// What a page says of a key: its last record.
    fn read(&self, at: LogPage, key: &Key) -> Option<&Vec<u8>> {
        let records = self.pages.get(&at.number())?;
        records.iter().rev().find(|(other, _)| other == key).map(|(_, record)| record)
    }
    /// Reads all candidates, and checks that they say what must be there.
    fn read_all(&self, key: &Key, cold: Cold) -> Result<Late, String> {
        let found: Vec<_> = cold
            .candidates()
            .filter_map(|candidate| Some((candidate, self.read(candidate.location().page, key)?)))
            .collect();
        let expected = self.current.get(key);
        if found.len() != usize::from(expected.is_some()) || found.iter().any(|(_, r)| **r != expected.unwrap().record)
        {
            return Err(format!("{key:?}: {found:?} in flash, expected {expected:?}"));
        }
        let own = found.first().map(|(candidate, _)| *candidate);
        let bytes = found.first().map_or(Vec::new(), |(_, record)| (*record).clone());
        Ok(Late { key: key.clone(), cold, own, bytes })
    }

    fn get(&mut self) -> Result<(), String> {
        let key = self.key();
        let found = self.shard.get(self.key_ref(&key), |record| {
            let mut bytes = Vec::new();
            record.append(Seed(0), &mut bytes).unwrap();
            bytes
        });
        let expected = self.current.get(&key);
        match found {
            Found::Here(record) if expected.is_some_and(|current| current.record == record) => Ok(()),
            Found::Absent if expected.is_none() => Ok(()),
            Found::Cold(cold) => {
                let late = self.read_all(&key, cold)?;
                if late.own.is_none() && !self.shard.is_absent(self.key_ref(&key), &late.cold) {
                    return Err(format!("{key:?} may be there, and was not found"));
                }
                if self.random.one_in(2) {
                    self.late.push(late);
                    Ok(())
                } else {
                    self.admit(&late, true)
                }
            }
            other => Err(format!("{key:?} is {other:?}, expected {expected:?}")),
        }
    }
    /// Hands in what was read for a get.
    fn admit(&mut self, late: &Late, at_once: bool) -> Result<(), String> {
        let key = self.key_ref(&late.key);
        if let Some(own) = late.own {
            // Another key with the tag, which was looked up and read.
            let other = (late.key.0, [&late.key.1[..], b"x"].concat());
            if self.shard.admit(KeyRef { bytes: &other.1, ..key }, own, &late.bytes) {
                return Err(format!("{other:?} was admitted with another key's record"));
            }
            let fits = 4 * (late.bytes.len() + 28) < self.shard.cache_bytes() / 2;
            let admitted = self.shard.admit(key, own, &[&late.bytes[..], b"rest of a page"].concat());
            self.counts.admitted += u64::from(admitted);
            self.counts.late += u64::from(!admitted);
            if at_once && fits && !admitted {
                return Err(format!("{:?} is not admitted", late.key));
            }
            // The next look-up checks what entered.
            if admitted && self.current.get(&late.key).is_none_or(|current| current.record != late.bytes) {
                return Err(format!("{:?} was admitted and is old", late.key));
            }
        }
        Ok(())
    }

    fn put(&mut self, verified: Option<&Late>) -> Result<(), String> {
        let key = verified.map_or_else(|| self.key(), |late| late.key.clone());
        let record = self.record(&key);
        let at = self.page_for(&key, false, 0);
        let hash = self.hash(&key);
        let before = self.current.get(&key).cloned();
        // A driver that breaks the rules.
        let shared = self.shared_page(&key).filter(|_| self.random.one_in(4));
        let at = shared.unwrap_or(at);
        let to = World::location(at);
        let changed = match verified {
            None => self.shard.put(hash, &record, to),
            Some(Late { cold, own, .. }) => {
                let verified = Verified { cold, own: *own };
                let announced = self.shard.replaces(self.key_ref(&key), Some(verified));
                let changed = self.shard.put_verified(hash, &record, to, verified);
                if changed.as_ref().is_ok_and(|changed| *changed != announced) {
                    return Err(format!("{announced:?} was announced, {changed:?} came"));
                }
                changed
            }
        };
        match changed {
            Ok(Changed::Unverified(cold)) => {
                self.counts.unverified += 1;
                self.counts.again += u64::from(verified.is_some());
                let late = self.read_all(&key, cold)?;
                self.late.push(late);
                return Ok(());
            }
            Ok(Changed::Absent) if before.is_none() && shared.is_none() => {}
            Ok(Changed::Replaced(old)) if shared.is_none() => {
                let Some(before) = before else { return Err(format!("{key:?} was absent, not {old:?}")) };
                let bytes = old.bytes.is_none_or(|bytes| bytes == before.record.len());
                if old.location != World::location(before.page) || !bytes {
                    return Err(format!("{key:?} replaced {old:?}, expected {before:?}"));
                }
            }
            Err(Refused::SharesPage(refused)) if shared == Some(refused.number()) => {
                self.counts.shared += 1;
                return Ok(());
            }
            Err(Refused::NoTable(table)) if table == key.0 && !self.tables.contains(&table) => return Ok(()),
            Err(Refused::NoDram(_)) if before.is_none() => {
                self.counts.refused += 1;
                return Ok(());
            }
            other => return Err(format!("a put of {key:?} to {at}: {other:?}, expected {before:?}")),
        }
        self.append(at, &key, &record);
        self.current.insert(key, Current { record, page: at });
        Ok(())
    }
    /// A page that another key's word of the same tag leads to.
    fn shared_page(&self, key: &Key) -> Option<u32> {
        let twin = |other: &Key| other != key && other.0 == key.0 && self.tag(other) == self.tag(key);
        self.current.iter().filter(|(other, _)| twin(other)).map(|(_, current)| current.page).min()
    }
    fn remove(&mut self) -> Result<(), String> {
        let key = self.key();
        let mut changed = self.shard.remove(self.key_ref(&key));
        if let Changed::Unverified(cold) = changed {
            let late = self.read_all(&key, cold)?;
            changed = self.shard.remove_verified(self.key_ref(&key), Verified { cold: &late.cold, own: late.own });
        }
        match (changed, self.current.remove(&key)) {
            (Changed::Absent, None) => Ok(()),
            (Changed::Replaced(old), Some(before)) if old.location == World::location(before.page) => Ok(()),
            (changed, before) => Err(format!("removing {key:?}: {changed:?}, expected {before:?}")),
        }
    }
    /// Copies what lives out of a page, which is free then.
    fn reclaim(&mut self) -> Result<(), String> {
        let Some(from) = self.pages.keys().copied().min_by_key(|_| self.random.next()) else { return Ok(()) };
        let records = self.pages[&from].clone();
        for (i, (key, record)) in records.iter().enumerate() {
            if records[i + 1..].iter().any(|(other, _)| other == key) {
                continue;
            }
            let at = self.page_for(key, true, from);
            let moved = self.shard.moved(key.0, self.hash(key), page(from), World::location(at));
            let expected = self.current.get(key).is_some_and(|current| current.page == from);
            if moved != Ok(expected) {
                return Err(format!("{key:?} moved from {from} to {at}: {moved:?}, expected {expected}"));
            }
            self.counts.moved += u64::from(expected);
            self.counts.stale += u64::from(!expected);
            if expected {
                self.append(at, key, record);
                self.current.get_mut(key).unwrap().page = at;
            }
        }
        self.pages.remove(&from);
        Ok(())
    }
    /// A checkpoint of a table has the page of each key, and another shard is made of it.
    fn checkpoint(&mut self) -> Result<(), String> {
        let table = self.table();
        let (mut words, mut from) = (Vec::new(), Some(Tag::FIRST));
        while let Some(tag) = from {
            from = self.shard.words(table, tag, &mut words);
        }
        let mut found: Vec<_> = words.iter().map(|word| (word.tag(), word.location().unwrap())).collect();
        let current = self.current.iter().filter(|(key, _)| key.0 == table);
        let mut expected: Vec<_> =
            current.map(|(key, current)| (self.tag(key), World::location(current.page))).collect();
        let by = |(tag, location): &(Tag, Location)| (*tag, location.page);
        found.sort_by_key(by);
        expected.sort_by_key(by);
        if found != expected {
            return Err(format!("words {found:?}, expected {expected:?}"));
        }
        let mut other = Shard::new(CACHE_BYTES_MIN, 1 << 20);
        other.add_table(table).unwrap();
        if self.random.one_in(2) {
            other.reserve(table, words.len()).unwrap();
        }
        for word in words {
            other.restore(table, word).unwrap();
        }
        other.check()
    }
    fn drop_table(&mut self) -> Result<(), String> {
        let table = self.table();
        let keys = self.current.keys().filter(|key| key.0 == table).count();
        let dropped = self.shard.drop_table(table);
        if dropped != self.tables.contains(&table).then_some(keys) {
            return Err(format!("{dropped:?} keys were dropped, expected {keys}"));
        }
        self.tables.retain(|id| *id != table);
        self.current.retain(|key, _| key.0 != table);
        Ok(())
    }
    fn add_table(&mut self) {
        let table = self.table();
        if self.shard.add_table(table).is_ok() && !self.tables.contains(&table) {
            self.tables.push(table);
        }
    }
    fn resize(&mut self) -> Result<(), String> {
        let (records, before) = (self.shard.records(), self.shard.cache_bytes());
        let bytes = CACHE_BYTES_MIN + self.random.below(self.bytes_max - CACHE_BYTES_MIN + 1);
        self.shard.resize(bytes);
        // What fits stays, also where some of it is for more of the ghost.
        if bytes > before * 2 && self.shard.records() < records {
            return Err(format!("{} of {records} records in {bytes} bytes, from {before}", self.shard.records()));
        }
        Ok(())
    }
    fn step(&mut self) -> Result<(), String> {
        match self.random.below(100) {
            0..40 => self.get(),
            40..65 => self.put(None),
            65..78 if !self.late.is_empty() => {
                let at = self.random.below(self.late.len());
                let late = self.late.swap_remove(at);
                if self.random.one_in(2) { self.admit(&late, false) } else { self.put(Some(&late)) }
            }
            78..84 => self.remove(),
            84..92 => self.reclaim(),
            92 => self.checkpoint(),
            93 if self.random.one_in(8) => self.drop_table(),
            94 => {
                self.add_table();
                Ok(())
            }
            95 if self.random.one_in(4) => self.resize(),
            96 if self.forgets && self.random.one_in(2) => {
                self.shard.forget();
                if self.shard.records() > 0 { Err("records after all were forgotten".into()) } else { Ok(()) }
            }
            97 => {
                let bytes = if self.random.one_in(2) { self.shard.index_bytes() } else { 1 << 20 };
                self.shard.set_index_bytes_max(bytes);
                Ok(())
            }
            _ => Ok(()),
        }
    }
    fn run(&mut self, steps: u64) -> Result<(), String> {
        for table in [0, 1000, 2000] {
            self.shard.add_table(TableId(table)).unwrap();
            self.tables.push(TableId(table));
        }
        for step in 0..steps {
            self.step().map_err(|error| format!("step {step}: {error}"))?;
            self.shard.check().map_err(|error| format!("step {step}: {error}"))?;
            let keys: usize = self.tables.iter().filter_map(|table| self.shard.keys(*table)).sum();
            if keys != self.current.len() {
                return Err(format!("step {step}: {keys} keys, expected {}", self.current.len()));
            }
            if self.late.len() > 8 {
                self.late.remove(0);
            }
        }
        let counts = self.shard.counts();
        (self.counts.evicted, self.counts.returned, self.counts.hits) = (counts.evicted, counts.returned, counts.hits);
        Ok(())
    }
}

#[test]
fn a_key_has_the_record_that_was_put_last() {
    let mut all = Seen::default();
    each_seed(1, 100, |seed| {
        let mut world = World::new(seed, None);
        world.run(4000).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let seen = world.counts;
        all = Seen {
            moved: all.moved + seen.moved,
            stale: all.stale + seen.stale,
            shared: all.shared + seen.shared,
            refused: all.refused + seen.refused,
            unverified: all.unverified + seen.unverified,
            again: all.again + seen.again,
            admitted: all.admitted + seen.admitted,
            late: all.late + seen.late,
            evicted: all.evicted + seen.evicted,
            returned: all.returned + seen.returned,
            hits: all.hits + seen.hits,
        };
    });
    println!("{all:?}");
    let Seen { moved, stale, shared, refused, unverified, again, admitted, late, evicted, returned, hits } = all;
    let counts = [moved, stale, shared, refused, unverified, again, admitted, late, evicted, returned, hits];
    assert!(counts.iter().all(|count| *count > 20), "{all:?}");
}

#[test]
fn planted_bugs_are_found() {
    let bugs = [
        Planted::OldReadEnters,
        Planted::StampsAreIgnored,
        Planted::OtherKeyEnters,
        Planted::MoveIsForgotten,
        Planted::NewWordsAreIgnored,
    ];
    for bug in bugs {
        let run = |seed| std::panic::catch_unwind(|| World::new(seed, Some(bug)).run(4000));
        let found = (1..=30).find(|seed| !matches!(run(*seed), Ok(Ok(()))));
        println!("{bug:?}: seed {found:?}");
        assert!(found.is_some(), "{bug:?} was not found");
    }
}
