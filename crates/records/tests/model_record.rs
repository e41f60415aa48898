//! Goal: a record that was written is parsed as it was, with every combination of fields and every
//! length. Method: random records through a slice and through a vector, with bytes behind them, and
//! their heads alone.

use fulgurite_records::{
    BadRecord, Expiry, Head, KEY_BYTES_MAX, Record, Seed, TableId, VALUE_BYTES_MAX, bytes_of, reseed,
};
use fulgurite_testkit::{Random, each_seed};

/// A length, mostly short, sometimes at an edge of the encoding.
fn length(random: &mut Random, most: usize) -> usize {
    let edges = [0, 1, 127, 128, 16_383, 16_384, 65_535, 65_536];
    match random.below(4) {
        0 => edges[random.below(edges.len())].min(most),
        1 => random.below(most.min(70_000) + 1),
        _ => random.below(200),
    }
}

pub fn any<'a>(random: &mut Random, key: &'a [u8], value: &'a [u8]) -> Record<'a> {
    let removed = random.one_in(4);
    let wide = random.next();
    Record {
        table: TableId([0, 1, 127, 128, u32::MAX, wide as u32][random.below(6)]),
        key,
        value: if removed { &[] } else { value },
        removed,
        parts: random.one_in(2),
        flags: random.one_in(2).then_some(wide as u32),
        expiry: if random.one_in(2) { Expiry::new(wide >> 16) } else { None },
        version: random.one_in(2).then_some(wide),
    }
}

#[test]
fn what_was_written_is_parsed() {
    each_seed(1, 2000, |seed| {
        let mut random = Random(seed);
        let (key_bytes, value_bytes) = (length(&mut random, KEY_BYTES_MAX), length(&mut random, 1 << 20));
        let (key, value) = (random.bytes(key_bytes), random.bytes(value_bytes));
        let record = any(&mut random, &key, &value);
        let seed = Seed(random.next());

        let mut bytes = random.bytes(random.0 as usize % 5);
        let start = bytes.len();
        assert_eq!(record.append(seed, &mut bytes), Ok(record.bytes()));
        assert_eq!(bytes.len(), start + record.bytes());
        assert_eq!(bytes_of(&record, record.key.len(), record.value.len()), record.bytes());
        let mut page = vec![0xA5; record.bytes() + random.below(100)];
        assert_eq!(record.write(seed, &mut page), Ok(record.bytes()));
        assert_eq!(page[..record.bytes()], bytes[start..]);
        assert!(page[record.bytes()..].iter().all(|byte| *byte == 0xA5));

        assert_eq!(Record::parse(seed, &page), Ok(record));
        assert_eq!(Record::view(&page), Ok(record));
        let head = Head::read(&page).unwrap();
        assert_eq!(Head::read(&page[..head.head_bytes]), Ok(head));
        assert_eq!((head.table, head.bytes()), (record.table, record.bytes()));

        let short = record.bytes() - 1;
        let refused = Err(BadRecord::Short { expected: record.bytes(), got: short });
        assert_eq!(record.write(seed, &mut vec![0; short]), refused);

        let other = Seed(random.next());
        reseed(&mut page, seed, other);
        assert_eq!(Record::parse(other, &page), Ok(record));
    });
}

#[test]
fn what_is_too_long_is_not_written() {
    let key = vec![0; KEY_BYTES_MAX + 1];
    let long = Record::new(TableId(1), &key, b"");
    let expected = Err(BadRecord::TooLong { what: "key", expected: KEY_BYTES_MAX, got: key.len() });
    let mut bytes = Vec::new();
    assert_eq!((long.append(Seed(1), &mut bytes), bytes.len()), (expected, 0));
    let removed = Record { value: b"v", ..Record::removal(TableId(1), b"k") };
    assert_eq!(removed.append(Seed(1), &mut bytes), Err(BadRecord::RemovedWithValue { got: 1 }));
    // A head that claims more than any record has.
    let head = [0, 0, 0, 0, 0, 1, 1, 0x81, 0x80, 0x80, 0x80, 4];
    let expected = BadRecord::TooLong { what: "value", expected: VALUE_BYTES_MAX, got: VALUE_BYTES_MAX + 1 };
    assert_eq!(Head::read(&head), Err(expected));
    assert_eq!(
        (Expiry::new(1 << 48), Expiry::new((1 << 48) - 1).map(Expiry::milliseconds)),
        (None, Some((1 << 48) - 1))
    );
}
