//! Goal: AstriFlash's configurations differ in what the paper says, and in nothing else. Method:
//! compare the keys of their files with the keys of `astriflash.toml`.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_sim::system::{RunInput, System};

/// The keys of a system with their values, as they are resolved.
fn keys(name: &str) -> BTreeMap<String, String> {
    let file = format!("{}/../../systems/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap();
    let printed = System::resolved(&file, &text, &[], RunInput::Nothing).unwrap();
    let pairs = printed.lines().filter_map(|line| line.split_once(" = "));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn configurations_differ_in_their_keys_only() {
    let base = keys("astriflash");
    let threads = ["threads.count", "threads.policy", "threads.switch"];
    let tags = ["cache.backside_command", "cache.evict_pages", "cache.queue", "cache.status_entries"];
    let faults = ["system.paging", "threads.fault", "threads.policy", "threads.switch"];
    let waits = [&["system.paging"][..], &threads].concat();
    // DRAM-only has no flash.
    let device = |key: &&str| key.starts_with("flash.") || key.starts_with("nand.");
    let device: Vec<&str> = base.keys().map(String::as_str).filter(device).collect();
    let os_swap = [&tags[..], &faults].concat();
    let flash_sync = [&tags[..], &waits].concat();
    let dram_only = [&tags[..], &device, &waits].concat();
    let configurations: [(&str, &[&str]); 6] = [
        ("astriflash-ideal", &["threads.switch"]),
        ("astriflash-nops", &["threads.policy"]),
        ("astriflash-nodp", &["dram.tables"]),
        ("os-swap", &os_swap),
        ("flash-sync", &flash_sync),
        ("dram-only", &dram_only),
    ];
    for (name, differ) in configurations {
        let other = keys(name);
        let all: BTreeSet<&String> = base.keys().chain(other.keys()).collect();
        let differs = |key: &&String| base.get(*key) != other.get(*key);
        let found: Vec<&str> = all.into_iter().filter(differs).map(String::as_str).collect();
        assert_eq!(found, [&["about"][..], differ].concat(), "{name}");
    }
}
