//! Goal: a setting that a medium cannot honour, and a size that is none, are refused by name,
//! before anything is created or changed; all others are accepted. Method: every setting with every
//! medium, against a table of what each can honour; the directory is listed afterwards.

use std::path::Path;
use std::time::Duration;

use fulgurite_backing::{Error, Medium, Settings};
use fulgurite_store::Durability;

const DRAM: u64 = 8 << 20;

/// Each medium that a program can name, where there is nothing yet.
fn media(directory: &Path) -> [Medium; 9] {
    let at = |name: &str| directory.join(name);
    [
        Medium::memory("1M"),
        Medium::emulated("1M"),
        Medium::file(at("file")),
        Medium::new_file(at("new"), "1M"),
        Medium::pool(at("pool")),
        Medium::new_pool(at("new pool"), "16M"),
        Medium::device(at("socket")),
        Medium::device_pool(at("socket")),
        Medium::pool_or_new(at("either"), "16M"),
    ]
}

/// A setting by its name, and the media that honour it, by their places in [`media`].
fn settings() -> Vec<(&'static str, Settings, &'static [usize])> {
    let none = Settings { dram_bytes: DRAM, ..Settings::default() };
    vec![
        ("none", none, &[0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("durability", Settings { durability: Some(Durability::Sync), ..none }, &[4, 5, 7, 8]),
        ("keep_tokens", Settings { keep_tokens: Some(1), ..none }, &[4, 5, 8]),
        ("keep_age", Settings { keep_age: Some(Duration::from_secs(1)), ..none }, &[4, 5, 8]),
        ("keep_space", Settings { keep_space: Some(0), ..none }, &[4, 5, 8]),
        ("growing", Settings { growing: Some(64 << 20), ..none }, &[4, 5, 8]),
        ("on_device", Settings { on_device: Some(None), ..none }, &[0, 1, 2, 3, 4, 5, 8]),
    ]
}

#[test]
fn each_medium_refuses_by_name_what_it_cannot_honour() {
    let directory = tempfile::tempdir().unwrap();
    for (index, medium) in media(directory.path()).into_iter().enumerate() {
        for (name, asked, honour) in settings() {
            if honour.contains(&index) {
                assert!(medium.check_settings(&asked).is_ok(), "{name} on {}", medium.name());
                continue;
            }
            let refused = medium.open(&asked).err();
            match &refused {
                Some(Error::NotHonoured { setting, medium: of, .. }) => {
                    assert_eq!((*setting, *of), (name, medium.name()));
                }
                other => panic!("{name} on {}: {other:?}", medium.name()),
            }
            let text = refused.unwrap().to_string();
            assert!(text.contains(name) && text.contains(medium.name()), "{text}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?} was made");
}

#[test]
fn a_device_keeps_its_states_and_only_a_device_takes_frames() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Settings { durability: Some(Durability::Cache), dram_bytes: DRAM, ..Settings::default() };
    let refused = Medium::device_pool(directory.path().join("socket")).open(&cache).err();
    assert!(matches!(refused, Some(Error::NotHonoured { setting: "Durability::Cache", .. })), "{refused:?}");
    let none = Settings { dram_bytes: DRAM, ..Settings::default() };
    for (index, medium) in media(directory.path()).into_iter().enumerate() {
        let checked = medium.share_frames(true).check_settings(&none);
        let refused = matches!(checked, Err(Error::NotHonoured { setting: "share_frames", .. }));
        assert_eq!((checked.is_ok(), refused), ((6..8).contains(&index), !(6..8).contains(&index)));
    }
}

#[test]
fn sizes_that_are_none_are_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let none = Settings { dram_bytes: DRAM, ..Settings::default() };
    let path = directory.path().join("new");
    for medium in
        [Medium::memory("much"), Medium::emulated("-1M"), Medium::new_file(&path, "1Q"), Medium::new_pool(&path, "")]
    {
        assert!(matches!(medium.open(&none), Err(Error::Unit(_))), "{}", medium.name());
    }
    assert!(!path.exists());
}

#[test]
fn sizes_are_the_same_as_numbers_and_as_text() {
    let none = Settings { dram_bytes: DRAM, ..Settings::default() };
    for medium in [Medium::memory(3 << 20), Medium::memory("3M"), Medium::memory(String::from("3072K"))] {
        assert_eq!(medium.open(&none).unwrap().flash.subpages(), 768);
    }
}

/// The medium's own tuning is what every program gets, whatever is between them.
#[test]
fn a_file_is_driven_in_one_way_and_a_device_before_it_in_another() {
    use fulgurite_flash::Tuning;
    let directory = tempfile::tempdir().unwrap();
    let none = Settings { dram_bytes: DRAM, ..Settings::default() };
    let device = Settings { on_device: Some(None), ..none };
    let tuning = |medium: Medium, settings| medium.open(settings).unwrap().flash.traits().tuning;
    let at = |name: &str| directory.path().join(name);
    assert_eq!(tuning(Medium::new_file(at("flat"), "1M"), &none), Tuning::FILE);
    assert_eq!(tuning(Medium::file(at("flat")), &none), Tuning::FILE);
    assert_eq!(tuning(Medium::new_pool(at("pool"), "16M"), &none), Tuning::FILE);
    assert_eq!(tuning(Medium::pool(at("pool")), &none), Tuning::FILE);
    assert_eq!(tuning(Medium::pool(at("pool")), &device), Tuning::MEMORY);
    assert_eq!(tuning(Medium::file(at("flat")), &device), Tuning::MEMORY);
    assert_eq!(tuning(Medium::memory("1M"), &none), Tuning::MEMORY);
}
