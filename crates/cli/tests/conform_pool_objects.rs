//! Goal: `fulgurite pool` makes pools of objects, names the damaged object and no other, gives it
//! up when asked to, and resizes them. Method: make one, write objects with the library, flip a bit
//! of one, and read what the program says. Resize it, and read the objects.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use fulgurite_flash::{FileConfig, FileFlash, Flash};
use fulgurite_store::{Pool, StoreConfig};

/// What the program says, when it ends with this code.
fn says(directory: &Path, code: i32, words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .arg("pool")
        .args(words)
        .current_dir(directory)
        .env("TMPDIR", directory)
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}
fn open(path: &Path) -> Pool {
    let flash: Arc<dyn Flash> = Arc::new(FileFlash::open(&FileConfig::existing(path)).unwrap());
    Pool::open(flash, StoreConfig::default()).unwrap().0
}

#[test]
fn a_damaged_object_is_named() {
    let directory = std::env::temp_dir().join(format!("fulgurite-objects-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (path, made) =
        (directory.join("a.pool"), says(&directory, 2, &["create", "a.pool", "--size", "16M", "--objects"]));
    assert!(made.contains("--data") && !path.exists(), "{made}");
    let made = says(&directory, 0, &["create", "a.pool", "--size", "16M", "--objects", "--data", "256M"]);
    assert!(made.contains("256.0 MiB for data"), "{made}");
    let pool = open(&path);
    let objects: Vec<(u32, Vec<u8>)> = (0..500).map(|i| (i * 7, vec![i as u8; 60 + i as usize])).collect();
    let batch: Vec<(u32, &[u8])> = objects.iter().map(|(subpage, bytes)| (*subpage, &bytes[..])).collect();
    pool.write_objects(&batch).unwrap();
    pool.sync().unwrap();
    // Older versions, which a token keeps.
    let again: Vec<(u32, &[u8])> = (0..100).map(|i| (i * 7, &b"other"[..])).collect();
    pool.write_objects(&again).unwrap();
    let at = pool.locate_object(200 * 7).unwrap().unwrap().at;
    drop(pool);
    says(&directory, 0, &["check", "a.pool"]);
    let mut file = fs::read(&path).unwrap();
    file[at.flash_page as usize * 4096 + usize::from(at.offset) + 5] ^= 4;
    fs::write(&path, &file).unwrap();
    let said = says(&directory, 1, &["check", "a.pool"]);
    let object = format!("an object of 260 bytes at byte {} of flash page {}", at.offset, at.flash_page);
    assert!(said.contains("damaged: subpage 1400 ") && said.contains(&object), "{said}");
    assert_eq!(said.matches("damaged: subpage").count(), 1, "{said}");
    says(&directory, 0, &["info", "a.pool"]);
    let said = says(&directory, 1, &["check", "a.pool", "--repair", "--force"]);
    assert!(said.contains("lost: subpage 1400"), "{said}");
    assert!(says(&directory, 1, &["check", "a.pool"]).contains("given up by a repair"));
    let pool = open(&path);
    pool.write_objects(&[(1400, b"again")]).unwrap();
    pool.sync().unwrap();
    drop(pool);
    says(&directory, 0, &["check", "a.pool"]);
    let all_there = |pool: &Pool| {
        let mut bytes = [0; 4096];
        for (subpage, expected) in objects.iter().skip(100).filter(|(subpage, _)| *subpage != 1400) {
            let length = pool.read_object(*subpage, &mut bytes).unwrap();
            assert_eq!(bytes[..length], expected[..], "subpage {subpage}");
        }
    };
    for (size, said) in [("32M", "32.0 MiB in 256"), ("8M", "8.0 MiB in 64"), ("16M", "16.0 MiB in 128")] {
        let resized = says(&directory, 0, &["resize", "a.pool", "--size", size]);
        assert!(resized.contains(said) && resized.contains("256.0 MiB for data"), "{resized}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 4096 * u64::from(open(&path).geometry().flash_pages()));
        says(&directory, 0, &["check", "a.pool"]);
        all_there(&open(&path));
    }
    let small = says(&directory, 2, &["resize", "a.pool", "--size", "2M"]);
    assert!(small.contains("are live") || small.contains("too little"), "{small}");
    let added = says(&directory, 0, &["add-member", "a.pool", "b.pool", "--size", "16M"]);
    assert!(added.contains("member 2") && added.contains("256.0 MiB for data"), "{added}");
    says(&directory, 0, &["check", "a.pool"]);
    assert_eq!(directory.join("b.pool").metadata().unwrap().len(), 16 << 20);
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_pool_that_was_made_without_begins_to_pack_them() {
    let directory = std::env::temp_dir().join(format!("fulgurite-begin-objects-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    says(&directory, 0, &["create", "a.pool", "--size", "16M"]);
    let said = says(&directory, 0, &["resize", "a.pool", "--objects", "--data", "64M"]);
    assert!(said.contains("64.0 MiB for data and objects; it had"), "{said}");
    let pool = open(&directory.join("a.pool"));
    pool.write_objects(&[(16_000, b"packed")]).unwrap();
    pool.sync().unwrap();
    drop(pool);
    says(&directory, 0, &["check", "a.pool"]);
    let said = says(&directory, 0, &["resize", "a.pool", "--objects"]);
    assert!(said.contains("already"), "{said}");
    fs::remove_dir_all(&directory).unwrap();
}
