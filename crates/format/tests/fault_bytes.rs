//! Goal: no bytes make a decoder panic.
//! Method: random bytes, sparse bytes, and encoded structures with a few bytes changed, a million
//! times in all.

use fulgurite_testkit as trials;
use fulgurite_testkit::Random;

use fulgurite_format::{
    Anchor, Band, Checksums, EntryIndex, FlashPage, HEADER_BYTES, Header, History, KeptToken, Kind, Member, MemberName,
    NO_EXTENT, ObjectMoved, ObjectWritten, ObjectsMoved, ObjectsWritten, Owner, PAYLOAD_BYTES, PageBuffer, PageEntry,
    PageRange, PoolId, ROOT_ENTRY_BYTES, Reader, Record, RootEntry, SUBPAGE_BYTES, Space, Status, Superblock, TypePart,
    crc32c, zero_page,
};

/// What a sound payload of each kind looks like.
fn samples() -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(); 6];
    let sizes = Superblock { extent_pages: 64, extents: 99, subpages: 1600, subpage_bytes: 4096, made: 1, features: 0 };
    sizes.encode(&mut all[0]);
    let tokens = (1..9).map(|token| KeptToken { token, pinned: token == 3 }).collect();
    Anchor { next_token: 9, tokens, ..Anchor::default() }.encode(&mut all[1]);
    let mut checksums = Checksums::EMPTY;
    (0..3).for_each(|i| checksums.push(i));
    let status = Status::ALLOCATED.with(Status::PACKED);
    let mut written = ObjectsWritten::new(12, status);
    let mut moved = ObjectsMoved::new(13);
    for (subpage, offset) in [(3, 0), (40, 128), (41, 3072)] {
        written.push(ObjectWritten { subpage, offset, length: 100 + subpage as u16, checksum: subpage });
        moved.push(ObjectMoved { subpage, from: 12, from_offset: offset, offset: 3072 - offset });
    }
    written.push(ObjectWritten { subpage: 7, offset: 0, length: 0, checksum: 0 });
    for record in [
        Record::Write { page: 3, start: FlashPage(77), valid: 0b1011, status, checksums },
        Record::Status { page: 3, status },
        Record::Move { page: 3, subpages: 2, from: FlashPage(78), to: FlashPage(90) },
        Record::Token { token: 5 },
        Record::Pin { token: 5, pinned: true },
        Record::RollBack { token: 5 },
        Record::Restamp { token: 5 },
        Record::Bad { place: FlashPage(9) },
        Record::Wear { extent: 3, fills: checksums },
        Record::Time { token: 5, age: 70, clock: 1_700_000_000 },
        Record::Drop { token: 4 },
        Record::Objects(written),
        Record::MoveObjects(moved),
    ] {
        record.encode(&mut all[2]);
    }
    let entry = PageEntry::new(FlashPage(9), EntryIndex::NONE, 0b101, 3, status);
    History { page: 4, versions: vec![(entry, vec![1, 2]), (entry.at_time(2), vec![3, 4])] }.encode(&mut all[3]);
    // Of objects, in addition to plain subpages: three words for each.
    let objects = PageEntry::new(FlashPage(9), EntryIndex::NONE, 0b110, 2, status.with(Status::OBJECTS));
    let versions = vec![(objects, vec![12, 0x80_0100, 5, 13, 0x40_0000, 6]), (entry.at_time(1), vec![1, 2])];
    History { page: 5, versions }.encode(&mut all[3]);
    (0..40).for_each(|i| Owner { subpage: i, checksum: i }.encode(&mut all[4]));
    let name = |n: u8| MemberName { id: PoolId([n; 16]), path: b"/a/b".to_vec() };
    let bands = vec![Band { rows: 7, members: 0b111 }, Band { rows: 2, members: 0b101 }];
    let list = Member { position: 1, extent_pages: 8, members: (0..3).map(name).collect(), bands };
    assert!(list.encode(&mut all[5]));
    all
}

#[test]
fn samples_are_sound() {
    let samples = samples();
    let mut r = Reader(&samples[2]);
    let mut kinds: Vec<_> = Vec::new();
    while !r.0.is_empty() {
        kinds.push(std::mem::discriminant(&Record::decode(&mut r).unwrap()));
    }
    assert_eq!(kinds.len(), 13, "one of each kind of record");
    let mut r = Reader(&samples[3]);
    let objects = |r: &mut Reader<'_>| {
        let history = History::decode(r, 16).unwrap();
        history.versions.iter().filter(|(entry, _)| entry.status().has(Status::OBJECTS)).count()
    };
    assert_eq!((objects(&mut r), objects(&mut r), r.0.len()), (0, 1, 0));
}

/// All decoders of payloads. What they accept must be encoded again without a panic, too.
fn decode(payload: &[u8]) -> u64 {
    let mut bytes = Vec::new();
    let mut executions = 6;
    if let Ok(member) = Member::decode(payload) {
        assert!(member.encode(&mut bytes), "what was read fits");
    }
    if let Ok(block) = Superblock::decode(payload) {
        block.encode(&mut bytes);
    }
    if let Ok(anchor) = Anchor::decode(payload) {
        anchor.encode(&mut bytes);
    }
    let mut r = Reader(payload);
    while let Ok(record) = Record::decode(&mut r) {
        bytes.clear();
        record.encode(&mut bytes);
        assert!(bytes.len() <= Record::BYTES_MAX);
        executions += 1;
    }
    for n in [8, 16, 32] {
        let mut r = Reader(payload);
        while let Ok(history) = History::decode(&mut r, n) {
            for (entry, _) in &history.versions {
                for s in 0..n {
                    std::hint::black_box(entry.place(s, n));
                }
            }
            history.encode(&mut bytes);
            executions += 1;
        }
    }
    let mut owners = Vec::new();
    if Owner::decode_all(payload, &mut owners).is_ok() {
        owners.iter().for_each(|owner| owner.encode(&mut bytes));
    }
    executions
}

#[test]
fn no_bytes_make_a_decoder_panic() {
    let samples = samples();
    let (mut executions, mut opened) = (0, 0);
    trials::each_seed(1, 1, |seed| {
        let (tried, found) = a_million(&samples, seed);
        (executions, opened) = (executions + tried, opened + found);
    });
    println!("decoders: {executions} executions, {opened} pages opened, no panic");
    trials::figure(12, "executions of decoders", executions);
}

/// Returns the executions, and the pages that were opened.
fn a_million(samples: &[Vec<u8>], seed: u64) -> (u64, u64) {
    let mut random = Random(seed);
    let (mut executions, mut opened) = (0u64, 0u64);
    let kinds = [Kind::Superblock, Kind::Anchor, Kind::Journal, Kind::Checkpoint, Kind::Summary, Kind::Member];
    while executions < 1_000_000 {
        // A payload: noise, sparse noise, or something sound with a few bytes changed or cut off.
        let mut payload = match random.below(4) {
            0 => (0..random.below(200)).map(|_| random.next() as u8).collect(),
            1 => (0..random.below(400)).map(|_| if random.below(8) == 0 { random.next() as u8 } else { 0 }).collect(),
            _ => samples[random.below(samples.len())].clone(),
        };
        for _ in 0..random.below(4) {
            if !payload.is_empty() {
                let at = random.below(payload.len());
                payload[at] = [0, 1, 0x7F, 0x80, 0xFF, random.next() as u8][random.below(6)];
            }
        }
        if random.below(4) == 0 {
            payload.truncate(random.below(payload.len() + 1));
        }
        executions += decode(&payload);
        // These bytes behind a header, sealed or not, of which a few bytes are changed.
        if random.below(8) == 0 {
            let mut page: PageBuffer = zero_page();
            page[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(&payload);
            let header = Header {
                kind: kinds[random.below(6)],
                used: payload.len().min(PAYLOAD_BYTES),
                commit_offset: random.next() as u16,
                pool: PoolId([7; 16]),
                place: random.next() as u32,
                next_extent: NO_EXTENT,
                sequence: random.next(),
                next_token: random.next(),
                before: random.next() as u32,
            };
            header.seal(&mut page);
            for _ in 0..random.below(3) {
                let at = random.below(HEADER_BYTES);
                page[at] = random.next() as u8;
            }
            if random.below(16) == 0 {
                page.iter_mut().for_each(|b| *b = random.next() as u8);
            }
            // What opens without a check of the checksum opens with one, or is refused. Neither
            // panics.
            for result in [Header::open(&page), Header::open_unchecked(&page)] {
                executions += 1;
                if let Ok((_, _, payload)) = result {
                    opened += 1;
                    executions += decode(payload);
                }
            }
        }
        let entry: [u8; 16] = std::array::from_fn(|_| random.next() as u8);
        if let Some(entry) = PageEntry::from_bytes(entry) {
            assert_eq!(PageEntry::from_bytes(entry.to_bytes()), Some(entry));
            let _ = (format!("{entry} {entry:?}"), entry.subpages(16), entry.place(15, 16));
        }
        executions += 1;
    }
    (executions, opened)
}

#[test]
fn directories() {
    let mut random = Random(0xD1);
    let space = Space {
        pages: 900,
        next: 400,
        free: vec![PageRange { first: 7, count: 3 }, PageRange { first: 90, count: 1 }],
    };
    let root = RootEntry {
        name: "a name".into(),
        type_name: "a type".into(),
        parts: [TypePart::of::<u64>(), TypePart::default()],
        address: fulgurite_format::Address::from_linear(1 << 20),
        bytes: 1 << 16,
    };
    let (mut accepted, mut roots) = (0, 0);
    for _ in 0..20_000 {
        let mut header: [u8; SUBPAGE_BYTES] = *space.encode();
        let mut entry: [u8; ROOT_ENTRY_BYTES] = root.encode();
        for _ in 0..random.below(4) {
            header[8 + random.below(80)] = random.next() as u8;
            entry[4 + random.below(ROOT_ENTRY_BYTES - 4)] = random.next() as u8;
        }
        // A defective writer writes a right checksum, too.
        header[12..16].fill(0);
        let sum = crc32c(&header);
        header[12..16].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32c(&entry[4..]);
        entry[..4].copy_from_slice(&sum.to_le_bytes());
        if let Ok(Some(mut space)) = Space::decode(&header) {
            accepted += 1;
            let _ = space.has_handed_out(PageRange { first: random.next() as u32, count: random.next() as u32 });
            space.give_back(PageRange { first: random.next() as u32 % 500, count: random.next() as u32 % 500 });
            space.give_back(PageRange { first: u32::MAX, count: u32::MAX });
            space.take(1 + random.next() as u32 % 50);
            assert_eq!(Space::decode(&space.encode()), Ok(Some(space)));
        }
        if let Ok(Some(root)) = RootEntry::decode(&entry) {
            roots += 1;
            assert_eq!(root.encode(), entry);
        }
    }
    assert!(accepted > 1000 && roots > 1000, "{accepted} headers and {roots} roots made sense");
}
