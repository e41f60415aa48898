//! Goal: a pool with a crafted journal makes no command and no writer hang. Method: a pool of 2,000
//! objects in a file, after some rounds of changes. In its journal, one object gets the length
//! 0x7fffffff, or a subpage is put among objects, and checksums and chain are made right again.
//! `pool compact --keep 1` and a writer that fills the pool must end.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use fulgurite_flash::{FileConfig, FileFlash, Flash};
use fulgurite_format::{Checksums, FlashPage, PAYLOAD_BYTES, Record};
use fulgurite_store::{Pool, StoreConfig};

use crate::runs::{FULGURITE, text};
use crate::world::{Random, crafted};

fn open(path: &Path) -> Result<Pool, String> {
    let flash: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::existing(path)).unwrap());
    Pool::open(flash, StoreConfig::default()).map(|(pool, _)| pool).map_err(|error| error.to_string())
}
/// What `fulgurite pool` says, and its exit code. It is killed after 30 s, with code 124.
fn pool(words: &[&str], path: &Path) -> (Option<i32>, String) {
    let output =
        Command::new("timeout").args(["30", FULGURITE, "pool"]).args(words).arg(path).output().expect("it starts");
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert!(!printed.contains("panicked"), "{words:?}: {printed}");
    (output.status.code(), printed)
}
/// The file of a pool of objects after some rounds of changes.
fn image(path: &Path) -> Vec<u8> {
    let (code, printed) = pool(&["create", "--size", "24M", "--objects", "--data", "64M"], path);
    assert_eq!(code, Some(0), "{printed}");
    let made = open(path).unwrap();
    let mut random = Random(1);
    for round in 0..6u8 {
        let value = [round; 400];
        let length = |subpage: u32| 1 + (subpage as usize * 7 + usize::from(round)) % 400;
        let all: Vec<(u32, &[u8])> = (0..2000).map(|subpage| (subpage, &value[..length(subpage)])).collect();
        let changed: Vec<(u32, &[u8])> = (0..300).map(|_| all[random.below(2000) as usize]).collect();
        made.write_objects(if round == 0 { &all } else { &changed }).unwrap();
        made.sync().unwrap();
    }
    drop(made);
    std::fs::read(path).unwrap()
}

#[test]
fn a_crafted_journal_makes_nothing_hang() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("crafted.pool");
    let image = image(&path);
    let pages = crafted::journal(&image).into_iter().map(|place| (place, crafted::payload(&image, place)));
    // One that has room for another record.
    let pages = pages.filter(|(_, payload)| payload.len() + Record::BYTES_MAX < PAYLOAD_BYTES);
    let of_objects = |(place, payload): (u32, Vec<u8>)| {
        let records = crafted::records(&payload);
        let found = records.into_iter().find(|(_, record)| matches!(record, Record::Objects(_)));
        found.map(|(at, record)| (place, payload, at, record))
    };
    let (place, payload, at, record) = pages.filter_map(of_objects).next().expect("objects in the journal");
    let Record::Objects(written) = record else { unreachable!("found as such") };

    // Behind the kind, status, flash page, count and subpage.
    let mut length = payload.clone();
    length[at + 11..at + 15].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());

    let mut checksums = Checksums::EMPTY;
    checksums.push(77);
    let start = FlashPage(u64::from(written.flash_page));
    let mut among = payload[..at].to_vec();
    Record::Write { page: 900, start, valid: 1, status: written.status, checksums }.encode(&mut among);
    among.extend_from_slice(&payload[at..]);

    for (what, payload, is_refused) in [("a length", length, true), ("a subpage among objects", among, false)] {
        let mut image = image.clone();
        crafted::replace(&mut image, place, &payload);
        std::fs::write(&path, &image).unwrap();
        let (code, printed) = pool(&["compact", "--keep", "1"], &path);
        println!("{what}: {code:?}, {printed}");
        if is_refused {
            assert!(code == Some(1) && printed.contains("holds invalid records"), "{what}: {code:?}, {printed}");
            assert!(printed.contains(&format!("flash page {place} of the journal")), "{printed}");
        } else {
            assert!(matches!(code, Some(0 | 1)), "{what}: {code:?}, {printed}");
        }
        let path = path.clone();
        let opened = crafted::within(what, move || open(&path).map(|pool| crafted::fill(&pool)));
        assert_eq!(opened.is_err(), is_refused, "{what}: {opened:?}");
    }
}
