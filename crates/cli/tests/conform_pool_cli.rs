//! Goal: `fulgurite pool` does what it says and nothing else, and every bad input gets a sentence
//! and exit code 2. Method: run it on small pools in an empty directory, compare files byte by
//! byte, damage bytes at places computed from the layout, and kill it in the middle.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use fulgurite_format::{Header, Kind, SUBPAGE_BYTES};
use fulgurite_sys::{Arena, Backed, DirectFile};
use rustix::fs::FlockOperation;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fulgurite");
/// Flash pages of an extent of the pools here.
const EXTENT_PAGES: u32 = 32;
/// The first extent that may hold anything; the journal begins there.
const FIRST_EXTENT: u32 = 3;

fn command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("pool").args(words).current_dir(directory).env("TMPDIR", directory);
    command
}
fn run(directory: &Path, words: &[&str]) -> Output {
    command(directory, words).output().expect("the program starts")
}
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
/// Its standard output; it must end well.
fn well(directory: &Path, words: &[&str]) -> String {
    let output = run(directory, words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
/// What it says when it ends with this code, which must hold all of `parts`.
fn ends(directory: &Path, code: i32, words: &[&str], parts: &[&str]) -> String {
    let output = run(directory, words);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{words:?}: it does not say \"{part}\": {said}");
    }
    said
}
/// Refused with a sentence, and no file was made, changed or taken away.
fn refused(directory: &Path, words: &[&str], parts: &[&str]) {
    let before = contents(directory);
    let said = ends(directory, 2, words, parts);
    assert!(!said.contains("panicked"), "{said}");
    assert!(contents(directory) == before, "{words:?} changed something");
}
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() }))
        .collect();
    files.sort();
    files
}
/// Bytes that look like nothing, the same every time; no subpage of them is like another.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    fulgurite_testkit::Random(seed).bytes(bytes)
}
/// A directory with a pool of 16 MiB.
fn pool() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    well(directory.path(), &["create", "a.pool", "--size", "16M"]);
    directory
}
fn json(directory: &Path, words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&well(directory, words)).expect("JSON")
}
fn tokens(directory: &Path) -> Vec<u64> {
    let json = json(directory, &["tokens", "a.pool", "--json"]);
    json["tokens"].as_array().unwrap().iter().map(|t| t["token"].as_u64().unwrap()).collect()
}
/// Changes one byte of a file.
fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}
/// Writes a page of a pool over, while nobody has it open.
fn overwrite(pool: &Path, at: u64, page: &[u8]) {
    File::options().write(true).open(pool).unwrap().write_all_at(page, at).unwrap();
}
/// Where the pages of metadata of a kind are in a pool.
fn metadata(pool: &Path, kind: Kind) -> Vec<u64> {
    let bytes = fs::read(pool).unwrap();
    let is = |page: &[u8]| Header::open(page.try_into().unwrap()).is_ok_and(|(header, ..)| header.kind == kind);
    let pages = bytes.chunks(SUBPAGE_BYTES).zip(0..).filter(|(page, _)| is(page));
    pages.map(|(_, place)| place * SUBPAGE_BYTES as u64).collect()
}
/// Where the content of a subpage is in a pool.
fn find(pool: &Path, content: &[u8]) -> u64 {
    let bytes = fs::read(pool).unwrap();
    let place = bytes.chunks(SUBPAGE_BYTES).position(|page| page == content).expect("it is in the pool");
    (place * SUBPAGE_BYTES) as u64
}

#[test]
fn data_goes_in_and_comes_out() {
    let directory = pool();
    let at = |name: &str| directory.path().join(name);
    let mode = fs::metadata(at("a.pool")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let info = json(directory.path(), &["info", "a.pool", "--json"]);
    assert_eq!((info["size_bytes"].as_u64(), info["written_bytes"].as_u64()), (Some(16 << 20), Some(0)));
    assert!(well(directory.path(), &["tokens", "a.pool"]).contains("no tokens"));
    // Not a whole number of subpages, and with a hole.
    let mut source = noise(3_000_001, 1);
    source[400_000..800_000].fill(0);
    fs::write(at("source"), &source).unwrap();
    well(directory.path(), &["import", "a.pool", "source"]);
    well(directory.path(), &["export", "a.pool", "out"]);
    let out = fs::read(at("out")).unwrap();
    let data_bytes = info["data_bytes"].as_u64().unwrap();
    assert_eq!(out.len() as u64, data_bytes);
    assert!(out[..source.len()] == source && out[source.len()..].iter().all(|b| *b == 0));
    let info = json(directory.path(), &["info", "a.pool", "--json"]);
    let written = info["written_bytes"].as_u64().unwrap();
    assert!(written < 3_000_001 - 300_000, "holes are not written: {written}");
    // What comes out goes in, and a smaller file leaves alone what is behind it.
    well(directory.path(), &["import", "a.pool", "out"]);
    fs::write(at("small"), noise(4096, 2)).unwrap();
    well(directory.path(), &["import", "a.pool", "small"]);
    well(directory.path(), &["export", "a.pool", "again"]);
    let again = fs::read(at("again")).unwrap();
    assert!(again[..4096] == noise(4096, 2) && again[4096..] == out[4096..]);
    ends(directory.path(), 0, &["check", "a.pool"], &["is whole"]);
    let text = well(directory.path(), &["info", "a.pool"]);
    assert!(text.contains("token 3") && text.contains("16.0 MiB"), "{text}");
    well(directory.path(), &["info", "a.pool", "--json", "info.json"]);
    assert!(fs::read_to_string(at("info.json")).unwrap().contains("\"dram_bytes\""));
}

#[test]
fn tokens_are_kept_pinned_returned_to_and_dropped() {
    let directory = pool();
    let path = directory.path();
    for seed in 1..=4 {
        fs::write(path.join(seed.to_string()), noise(1 << 20, seed)).unwrap();
        well(path, &["import", "a.pool", &seed.to_string()]);
    }
    assert_eq!(tokens(path), [1, 2, 3, 4]);
    let is = |file: &str, seed: u64| fs::read(path.join(file)).unwrap()[..1 << 20] == noise(1 << 20, seed);
    well(path, &["export", "a.pool", "second", "--token", "2"]);
    assert!(is("second", 2));
    well(path, &["pin", "a.pool", "2"]);
    assert!(well(path, &["pin", "a.pool", "2"]).contains("already"));
    let listed = well(path, &["tokens", "a.pool"]);
    assert!(listed.contains("pinned") && listed.contains("made"), "{listed}");
    // When they were made: in order, within the last minutes, and the same for people.
    let known = json(path, &["tokens", "a.pool", "--json"]);
    let made: Vec<u64> = known["tokens"].as_array().unwrap().iter().map(|t| t["made_ms"].as_u64().unwrap()).collect();
    let now = fulgurite_sys::Clock::get().wall_ms();
    assert!(made.is_sorted() && made.len() == 4 && made[0] > now - 600_000 && made[3] <= now, "{made:?}, now {now}");
    let said: Vec<&str> = listed.split_whitespace().filter(|word| word.ends_with('Z') && word.len() == 20).collect();
    assert_eq!(said.len(), 4, "{listed}");
    let seconds = |word: &str| word[17..19].parse::<u64>().unwrap();
    assert!(said.iter().zip(&made).all(|(word, ms)| seconds(word) == ms / 1000 % 60), "{listed}{made:?}");
    // Without --yes; past a pinned one; to one that is not there.
    refused(path, &["rollback", "a.pool", "3"], &["takes away the newer 4", "--yes"]);
    refused(path, &["rollback", "a.pool", "1", "--yes"], &["pinned 2", "unpin"]);
    refused(path, &["rollback", "a.pool", "9", "--yes"], &["no token 9", "1, 2, 3, 4"]);
    for words in [&["pin", "a.pool", "9"][..], &["unpin", "a.pool", "9"], &["export", "a.pool", "x", "--token", "9"]] {
        refused(path, words, &["no token 9", "1, 2, 3, 4"]);
    }
    // A refusal writes nothing, not even what opening for changes would mend.
    File::create(path.join("large")).unwrap().set_len(14 << 20).unwrap();
    flip(&path.join("a.pool"), 70);
    refused(path, &["pin", "a.pool", "9"], &["no token 9"]);
    refused(path, &["rollback", "a.pool", "3"], &["--yes"]);
    refused(path, &["rollback", "a.pool", "1", "--yes"], &["pinned 2"]);
    refused(path, &["rollback", "a.pool", "9", "--yes"], &["no token 9"]);
    refused(path, &["import", "a.pool", "large"], &["14.0 MiB", "for data"]);
    flip(&path.join("a.pool"), 70);
    well(path, &["rollback", "a.pool", "3", "--yes"]);
    assert_eq!(tokens(path), [1, 2, 3]);
    well(path, &["export", "a.pool", "third"]);
    assert!(is("third", 3));
    ends(path, 0, &["check", "a.pool"], &["is whole"]);
    let free = || json(path, &["info", "a.pool", "--json"])["extents_free"].as_u64().unwrap();
    let before = free();
    // All stay, unless it is said how many.
    let said = well(path, &["compact", "a.pool"]);
    assert!(said.starts_with("0 tokens dropped") && said.contains("1 older ones are not pinned"), "{said}");
    assert_eq!(tokens(path), [1, 2, 3]);
    let said = well(path, &["compact", "a.pool", "--keep", "1"]);
    assert!(said.starts_with("1 tokens dropped") && !said.contains("older ones"), "{said}");
    assert_eq!(tokens(path), [2, 3], "the pinned one and the newest stay");
    let after = free();
    assert!(after > before + 4, "{after} and {before}");
    well(path, &["unpin", "a.pool", "2"]);
    well(path, &["rollback", "a.pool", "2", "--yes"]);
    well(path, &["export", "a.pool", "back"]);
    assert!(is("back", 2));
    ends(path, 0, &["check", "a.pool"], &["is whole"]);
}

#[test]
fn reading_changes_nothing() {
    let directory = pool();
    let path = directory.path();
    // Written and unsynced data, and a journal that recovery goes back in: it would write most
    // then.
    fs::write(path.join("source"), noise(6 << 20, 1)).unwrap();
    well(path, &["import", "a.pool", "source", "--sync-every", "1M"]);
    let mut child = command(path, &["import", "a.pool", "source"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(60));
    child.kill().unwrap();
    child.wait().unwrap();
    let before = fs::read(path.join("a.pool")).unwrap();
    let newest = *tokens(path).last().unwrap();
    for (i, words) in [
        &["info", "a.pool"][..],
        &["info", "a.pool", "--json"],
        &["tokens", "a.pool"],
        &["check", "a.pool"],
        &["export", "a.pool", "x"],
        &["export", "a.pool", "y", "--token", "2"],
    ]
    .iter()
    .enumerate()
    {
        well(path, words);
        assert!(fs::read(path.join("a.pool")).unwrap() == before, "{words:?} ({i}) changed the pool");
    }
    assert_eq!(*tokens(path).last().unwrap(), newest);
    assert!(fs::read(path.join("x")).unwrap()[..6 << 20] == noise(6 << 20, 1));
    assert!(fs::read(path.join("y")).unwrap()[2 << 20..].iter().all(|b| *b == 0), "the second token has 2 MiB");
}

#[test]
fn a_kill_leaves_what_was_synced_last() {
    const STEP: usize = 64 << 10;
    let directory = pool();
    let path = directory.path();
    let bytes = 12 << 20;
    let source = noise(bytes, 1);
    fs::write(path.join("source"), &source).unwrap();
    let mut killed = 0;
    for (round, wait) in [5, 40, 120, 250].into_iter().enumerate() {
        let _ = fs::remove_file(path.join("a.pool"));
        well(path, &["create", "a.pool", "--size", "24M"]);
        let words = ["import", "a.pool", "source", "--sync-every", "64K", "--keep", "2"];
        let mut child = command(path, &words).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        let out = format!("out{round}");
        well(path, &["export", "a.pool", &out]);
        // One token for each step, so the newest says how much is there.
        let steps = tokens(path).last().copied().unwrap_or(0) as usize;
        println!("killed after {wait} ms: {steps} steps");
        let out = fs::read(path.join(out)).unwrap();
        let synced = (steps * STEP).min(bytes);
        assert!(out[..synced] == source[..synced] && out[synced..].iter().all(|b| *b == 0), "after {wait} ms");
        ends(path, 0, &["check", "a.pool"], &["is whole"]);
    }
    assert!(killed > 0, "every import ended before it was killed");
    // Without --sync-every it is all or nothing.
    well(path, &["import", "a.pool", "source", "--sync-every", "256K", "--keep", "1"]);
    let other = noise(2 << 20, 2);
    fs::write(path.join("other"), &other).unwrap();
    let mut child = command(path, &["import", "a.pool", "other"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(30));
    child.kill().unwrap();
    child.wait().unwrap();
    well(path, &["export", "a.pool", "now"]);
    let now = fs::read(path.join("now")).unwrap();
    assert!(now[..2 << 20] == source[..2 << 20] || now[..2 << 20] == other, "a part of an import was left");
    assert!(now[2 << 20..bytes] == source[2 << 20..]);
}

#[test]
fn what_does_not_fit_leaves_the_pool_as_it_was() {
    let directory = pool();
    let path = directory.path();
    let most = json(path, &["info", "a.pool", "--json"])["data_bytes"].as_u64().unwrap() as usize;
    let (old, new) = (noise(most, 1), noise(most, 2));
    fs::write(path.join("old"), &old).unwrap();
    fs::write(path.join("new"), &new).unwrap();
    well(path, &["import", "a.pool", "old"]);
    ends(path, 1, &["import", "a.pool", "new"], &["as it was before", "--sync-every"]);
    well(path, &["export", "a.pool", "out"]);
    assert!(fs::read(path.join("out")).unwrap() == old);
    well(path, &["import", "a.pool", "new", "--sync-every", "256K", "--keep", "1"]);
    well(path, &["export", "a.pool", "out2"]);
    assert!(fs::read(path.join("out2")).unwrap() == new);
    ends(path, 0, &["check", "a.pool"], &["is whole"]);
}

#[test]
fn damage_is_named() {
    let directory = pool();
    let path = directory.path();
    let pool = path.join("a.pool");
    let (first, second) = (noise(1 << 20, 1), noise(1 << 20, 2));
    fs::write(path.join("first"), &first).unwrap();
    fs::write(path.join("second"), &second).unwrap();
    well(path, &["import", "a.pool", "first"]);
    well(path, &["import", "a.pool", "second"]);
    ends(path, 0, &["check", "a.pool"], &["is whole"]);
    // Current content: named, not exported, or exported around it.
    let at = find(&pool, &second[17 * SUBPAGE_BYTES..18 * SUBPAGE_BYTES]);
    flip(&pool, at + 99);
    let place = format!("flash page {}", at / SUBPAGE_BYTES as u64);
    ends(path, 1, &["check", "a.pool"], &["subpage 17 (bytes 69632 to 73727", &place, "1 damaged thing"]);
    ends(path, 1, &["export", "a.pool", "x"], &["subpage 17 ", "--skip-damaged"]);
    assert!(!path.join("x").exists());
    ends(path, 1, &["export", "a.pool", "x", "--skip-damaged"], &["subpage 17 "]);
    let x = fs::read(path.join("x")).unwrap();
    assert!(x[..17 * SUBPAGE_BYTES] == second[..17 * SUBPAGE_BYTES]);
    assert!(x[17 * SUBPAGE_BYTES..18 * SUBPAGE_BYTES].iter().all(|b| *b == 0));
    assert!(x[18 * SUBPAGE_BYTES..1 << 20] == second[18 * SUBPAGE_BYTES..]);
    flip(&pool, at + 99);
    // What a token keeps.
    let at = find(&pool, &first[5 * SUBPAGE_BYTES..6 * SUBPAGE_BYTES]);
    flip(&pool, at);
    ends(path, 1, &["check", "a.pool"], &["older version of subpage 5 ", "token"]);
    flip(&pool, at);
    // A summary: nothing is lost.
    let at = metadata(&pool, Kind::Summary)[0];
    flip(&pool, at + 100);
    ends(path, 1, &["check", "a.pool"], &["the summary of extent", "no data is lost"]);
    flip(&pool, at + 100);
    // The rest of a page without a valid beginning or sum, in a full extent: it was there. It is
    // made anew.
    let whole = fs::read(&pool).unwrap();
    overwrite(&pool, at, &noise(SUBPAGE_BYTES, 9));
    ends(path, 1, &["check", "a.pool"], &["the summary of extent", "its extent is full", "1 damaged thing"]);
    ends(path, 0, &["check", "a.pool", "--repair", "--force"], &["repaired: the summary of extent", "is whole"]);
    fs::write(&pool, whole).unwrap();
    // A copy of an anchor that is none any more has a twin, and is made of that.
    let whole = fs::read(&pool).unwrap();
    for at in metadata(&pool, Kind::Anchor) {
        overwrite(&pool, at, &noise(SUBPAGE_BYTES, 9));
        ends(path, 1, &["check", "a.pool"], &["an anchor", "its other copy is", "1 damaged thing"]);
        ends(path, 0, &["check", "a.pool", "--repair", "--force"], &["written again from its other copy", "is whole"]);
        // Nothing was ever written there, as it seems: that may be a crash.
        fs::write(&pool, &whole).unwrap();
        overwrite(&pool, at, &[0; SUBPAGE_BYTES]);
        ends(path, 0, &["check", "a.pool"], &["note: of the newest anchor there is one copy", "is whole"]);
        let found = json(path, &["check", "a.pool", "--json"]);
        assert_eq!((found["sound"].as_bool(), found["torn"].as_bool()), (Some(true), Some(false)));
        assert!(found["notes"][0].as_str().unwrap().contains("newest anchor") && found["token"].as_u64() == Some(2));
        fs::write(&pool, &whole).unwrap();
    }
    // A page of the journal.
    let journal = u64::from(FIRST_EXTENT * EXTENT_PAGES) * SUBPAGE_BYTES as u64;
    flip(&pool, journal + 80);
    ends(path, 1, &["check", "a.pool"], &["journal", &format!("flash page {}", FIRST_EXTENT * EXTENT_PAGES)]);
    flip(&pool, journal + 80);
    // All anchors: it cannot be opened, and is a pool nevertheless.
    let anchors = metadata(&pool, Kind::Anchor);
    anchors.iter().for_each(|at| flip(&pool, at + 70));
    ends(path, 1, &["check", "a.pool"], &["no anchor"]);
    ends(path, 1, &["info", "a.pool"], &["no anchor", "restore"]);
    // Where one of several suffices, the others are named.
    flip(&pool, anchors[0] + 70);
    if anchors.len() > 1 {
        ends(path, 1, &["check", "a.pool"], &["an anchor"]);
    }
    anchors[1..].iter().for_each(|at| flip(&pool, at + 70));
    ends(path, 0, &["check", "a.pool"], &["is whole"]);
}

#[test]
fn a_copy_of_the_superblock_is_repaired_and_nothing_else() {
    let directory = pool();
    let path = directory.path();
    let pool = path.join("a.pool");
    let whole = fs::read(&pool).unwrap();
    for place in [0, 1] {
        for at in [0, 9, 70, 4095] {
            flip(&pool, place * SUBPAGE_BYTES as u64 + at);
            let copy = format!("copy {place} of the superblock");
            ends(path, 1, &["check", "a.pool"], &[&copy, "1 damaged thing"]);
            // The other copy suffices.
            well(path, &["info", "a.pool"]);
            refused(path, &["check", "a.pool", "--repair"], &["--force"]);
            refused(path, &["check", "a.pool", "--force"], &["--repair"]);
            ends(path, 0, &["check", "a.pool", "--repair", "--force"], &["repaired: ", &copy, "is whole"]);
            assert!(fs::read(&pool).unwrap() == whole, "copy {place}, byte {at}");
        }
    }
    ends(path, 0, &["check", "a.pool", "--repair", "--force"], &["nothing to repair"]);
    // Another page in the place of the first copy, whole in itself, is not taken for a superblock.
    let (header, ..) = Header::open((&whole[..SUBPAGE_BYTES]).try_into().unwrap()).unwrap();
    let mut other = whole.clone();
    other[..SUBPAGE_BYTES].copy_from_slice(&*Header { kind: Kind::Summary, ..header }.page(b"something").0);
    fs::write(&pool, &other).unwrap();
    ends(path, 1, &["check", "a.pool"], &["copy 0 of the superblock", "another page of metadata", "1 damaged thing"]);
    ends(path, 0, &["check", "a.pool", "--repair", "--force"], &["repaired: copy 0 of the superblock", "is whole"]);
    assert!(fs::read(&pool).unwrap() == whole);
    flip(&pool, 70);
    flip(&pool, SUBPAGE_BYTES as u64 + 70);
    refused(path, &["check", "a.pool", "--repair", "--force"], &["no copy of its superblock"]);
    refused(path, &["info", "a.pool"], &["no copy of its superblock"]);
}

#[test]
fn a_loss_is_named_inspected_and_accepted() {
    let directory = pool();
    let path = directory.path();
    let pool = path.join("a.pool");
    let (first, second) = (noise(64 << 10, 1), noise(64 << 10, 2));
    fs::write(path.join("first"), &first).unwrap();
    fs::write(path.join("second"), &second).unwrap();
    well(path, &["import", "a.pool", "first"]);
    let kept = tokens(path);
    well(path, &["import", "a.pool", "second"]);
    let lost = *tokens(path).last().unwrap();
    let accept = ["check", "a.pool", "--repair", "--force", "--accept-loss"];
    refused(path, &["check", "a.pool", "--accept-loss"], &["--repair"]);
    refused(path, &["info", "a.pool", "--endurance", "0"], &["--endurance"]);
    assert!(well(path, &["info", "a.pool", "--endurance", "3000"]).contains("extents were filled"));
    // The page of the journal with the token of the second.
    let record = [&[4][..], &lost.to_le_bytes()].concat();
    let bytes = fs::read(&pool).unwrap();
    let journal = metadata(&pool, Kind::Journal);
    let is_it = |at: &&u64| bytes[**at as usize..][..SUBPAGE_BYTES].windows(9).any(|w| w == record);
    let at = *journal.iter().find(is_it).expect("a token is in the journal");
    flip(&pool, at + 70);
    let place = format!("flash page {}", at / SUBPAGE_BYTES as u64);
    let (lost, back) = (format!("token {lost} is lost"), format!("the state of token {}", kept.last().unwrap()));
    let before = fs::read(&pool).unwrap();
    ends(path, 1, &["pin", "a.pool", "1"], &[&place, &lost, &back, "--accept-loss"]);
    ends(path, 1, &["check", "a.pool"], &[&place, &lost, &back, "lost: "]);
    ends(path, 0, &["info", "a.pool"], &[&lost]);
    ends(path, 0, &["export", "a.pool", "rescued"], &[&lost]);
    assert!(fs::read(path.join("rescued")).unwrap()[..first.len()] == first);
    assert!(fs::read(&pool).unwrap() == before, "looking changes nothing");
    ends(path, 1, &["check", "a.pool", "--repair", "--force"], &["nothing to repair", &lost]);
    let said = run(path, &accept);
    assert!(text(&said.stdout).contains("accepted: ") && text(&said.stdout).contains(&lost), "{said:?}");
    assert_eq!(tokens(path), kept);
    well(path, &["import", "a.pool", "second"]);
    well(path, &["export", "a.pool", "again"]);
    assert!(fs::read(path.join("again")).unwrap()[..second.len()] == second);
    ends(path, 0, &accept, &["nothing that was promised is lost"]);
}

const ALL: [&[&str]; 9] = [
    &["info", "X"],
    &["check", "X"],
    &["check", "X", "--repair", "--force"],
    &["tokens", "X"],
    &["pin", "X", "1"],
    &["rollback", "X", "1", "--yes"],
    &["compact", "X"],
    &["export", "X", "out"],
    &["import", "X", "source"],
];
/// Every command refuses this path with these words.
fn all_refuse(directory: &Path, name: &str, parts: &[&str]) {
    for words in ALL {
        let words: Vec<&str> = words.iter().map(|word| if *word == "X" { name } else { word }).collect();
        refused(directory, &words, parts);
    }
}

#[test]
fn paths_that_are_no_pool() {
    let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let path = directory.path();
    fs::write(path.join("source"), "something").unwrap();
    all_refuse(path, "missing", &["missing does not exist"]);
    fs::create_dir(path.join("folder")).unwrap();
    all_refuse(path, "folder", &["is a directory"]);
    fs::write(path.join("text"), "a letter to a friend\n").unwrap();
    all_refuse(path, "text", &["is no pool", "text", "pool create"]);
    fs::write(path.join("zeros"), vec![0; 1 << 16]).unwrap();
    all_refuse(path, "zeros", &["is no pool", "zeros"]);
    fs::write(path.join("empty"), "").unwrap();
    all_refuse(path, "empty", &["is no pool", "empty"]);
    symlink("zeros", path.join("link")).unwrap();
    all_refuse(path, "link", &["symbolic link"]);
    all_refuse(path, "/dev/null", &["character device"]);
}

/// Makes a pool one of another version of the format.
fn rewrite_version(pool: &Path, version: u16) {
    for place in [0, 1] {
        let file = File::options().read(true).write(true).open(pool).unwrap();
        let mut page = [0; SUBPAGE_BYTES];
        file.read_exact_at(&mut page, place * SUBPAGE_BYTES as u64).unwrap();
        page[8..10].copy_from_slice(&version.to_le_bytes());
        page[60..64].fill(0);
        let crc = fulgurite_format::crc32c(&page);
        page[60..64].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&page, place * SUBPAGE_BYTES as u64).unwrap();
    }
}

#[test]
fn info_and_tokens_of_a_pool_that_is_changed_meanwhile() {
    let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let path = directory.path();
    let medium = fulgurite::Medium::new_pool(path.join("a.pool"), "24M");
    let memory = fulgurite::Fulgurite::builder(medium).dram("8M").start().unwrap();
    let map = memory.named("map").hash_map::<u64, [u64; 60]>(20_000).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Overwrites everything again and again, so that extents, journal and checkpoints move.
        let writer = scope.spawn(|| {
            let mut last = 0;
            for round in 0.. {
                for first in (0..10_000).step_by(500) {
                    memory
                        .run(|m| (first..first + 500).try_for_each(|key| map.insert(m, &key, [round; 60]).map(drop)))
                        .unwrap();
                    last = memory.sync().unwrap();
                }
                if ended.load(std::sync::atomic::Ordering::SeqCst) {
                    break;
                }
            }
            last
        });
        let mut seen = 0;
        // Each waits half a second for the pool before it reads next to its user.
        for _ in 0..3 {
            ends(path, 0, &["info", "a.pool"], &["a.pool is in use"]);
            let newest = tokens(path).last().copied().unwrap_or(0);
            assert!(newest > seen, "{newest} after {seen}");
            seen = newest;
        }
        ended.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(writer.join().unwrap() >= seen);
    });
}

#[test]
fn pools_that_cannot_be_used() {
    let directory = pool();
    let path = directory.path();
    fs::write(path.join("source"), noise(1 << 20, 1)).unwrap();
    let whole = fs::read(path.join("a.pool")).unwrap();
    // In use.
    let held = File::open(path.join("a.pool")).unwrap();
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    for words in ALL {
        let words: Vec<&str> = words.iter().map(|word| if *word == "X" { "a.pool" } else { word }).collect();
        match words[0] {
            "info" | "tokens" => drop(ends(path, 0, &words, &["a.pool is in use"])),
            _ => refused(path, &words, &["in use by another process"]),
        }
    }
    drop(held);
    fs::set_permissions(path.join("a.pool"), fs::Permissions::from_mode(0o444)).unwrap();
    all_refuse(path, "a.pool", &["change its permissions"]);
    fs::set_permissions(path.join("a.pool"), fs::Permissions::from_mode(0o600)).unwrap();
    // Of a later program.
    rewrite_version(&path.join("a.pool"), 7);
    all_refuse(path, "a.pool", &["later program", "version 7"]);
    fs::write(path.join("a.pool"), &whole).unwrap();
    // Cut anywhere.
    for bytes in [100, 4096, 5000, 1 << 20, (16 << 20) - 1] {
        fs::write(path.join("a.pool"), &whole[..bytes]).unwrap();
        refused(path, &["info", "a.pool"], &["truncated"]);
        refused(path, &["import", "a.pool", "source"], &["truncated"]);
    }
    ends(path, 1, &["check", "a.pool"], &["truncated", "restore"]);
    // Longer than it was: the rest is nobody's.
    let longer = [&whole[..], &[7; 10_000]].concat();
    fs::write(path.join("a.pool"), longer).unwrap();
    ends(path, 0, &["check", "a.pool"], &["is whole"]);
}

#[test]
fn what_cannot_be_created() {
    let directory = pool();
    let path = directory.path();
    refused(path, &["create", "b.pool"], &["--size"]);
    refused(path, &["create", "b.pool", "--size", "0"], &["zero"]);
    refused(path, &["create", "b.pool", "--size", "many"], &["does not start with a number"]);
    refused(path, &["create", "b.pool", "--size", "64K"], &["too little for a pool", "needs"]);
    refused(path, &["create", "b.pool", "--size", "900T"], &["16 TiB"]);
    refused(path, &["create", "b.pool", "--size", "15T"], &["free"]);
    refused(path, &["create", "b.pool", "--size", "16M", "--data", "16M"], &["cannot hold", "the most"]);
    refused(path, &["create", "b.pool", "--size", "16M", "--extent", "5000"], &["no multiple of 4096"]);
    refused(path, &["create", "b.pool", "--size", "16M", "--extent", "4K"], &["8 to 65536"]);
    refused(path, &["create", "no/such/b.pool", "--size", "16M"], &["does not exist"]);
    refused(path, &["create", "a.pool", "--size", "16M"], &["a pool already", "--force"]);
    fs::write(path.join("text"), "words\n").unwrap();
    refused(path, &["create", "text", "--size", "16M"], &["holds text", "--force"]);
    symlink("nowhere", path.join("dangling")).unwrap();
    fs::create_dir(path.join("folder")).unwrap();
    for force in [&["--size", "16M"][..], &["--size", "16M", "--force"]] {
        let with = |name: &'static str| [&["create", name], force].concat();
        refused(path, &with("dangling"), &["symbolic link"]);
        refused(path, &with("folder"), &["is a directory"]);
        refused(path, &with("/dev/null"), &["character device"]);
        let held = File::open(path.join("text")).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        refused(path, &with("text"), &["in use"]);
    }
    // What is meant is done.
    let id = |path: &Path| json(path, &["info", "a.pool", "--json"])["id"].as_str().unwrap().to_owned();
    let before = id(path);
    well(path, &["create", "a.pool", "--force"]);
    assert_ne!(id(path), before);
    well(path, &["create", "text", "--size", "8M", "--data", "4M", "--extent", "64K", "--force"]);
    let info = json(path, &["info", "text", "--json"]);
    let sizes = ["size_bytes", "data_bytes", "extent_bytes"].map(|key| info[key].as_u64().unwrap());
    assert_eq!(sizes, [8 << 20, 4 << 20, 64 << 10]);
    ends(path, 0, &["check", "text"], &["is whole"]);
}

#[test]
fn what_cannot_be_copied() {
    let directory = pool();
    let path = directory.path();
    fs::write(path.join("there"), "x").unwrap();
    fs::create_dir(path.join("folder")).unwrap();
    refused(path, &["export", "a.pool", "there"], &["exists and is not overwritten"]);
    refused(path, &["export", "a.pool", "a.pool"], &["exists and is not overwritten"]);
    refused(path, &["export", "a.pool", "no/such/file"], &["does not exist"]);
    refused(path, &["export", "a.pool", "/proc/x"], &["cannot be written"]);
    refused(path, &["import", "a.pool", "missing"], &["missing does not exist"]);
    refused(path, &["import", "a.pool", "folder"], &["no regular file"]);
    refused(path, &["import", "a.pool", "a.pool"], &["the pool itself"]);
    fs::write(path.join("empty"), "").unwrap();
    refused(path, &["import", "a.pool", "empty"], &["empty"]);
    File::create(path.join("large")).unwrap().set_len(14 << 20).unwrap();
    let before = fs::read(path.join("a.pool")).unwrap();
    ends(path, 2, &["import", "a.pool", "large"], &["14.0 MiB", "for data"]);
    assert!(fs::read(path.join("a.pool")).unwrap() == before);
    refused(path, &["import", "a.pool", "there", "--sync-every", "0"], &["--sync-every"]);
    refused(path, &["import", "a.pool", "there", "--keep", "0"], &["--keep"]);
    refused(path, &["info", "a.pool", "--json", "no/such.json"], &["--json", "does not exist"]);
    refused(path, &["info", "a.pool", "--json", "a.pool"], &["the pool itself"]);
    refused(path, &["pin", "a.pool", "newest"], &["TOKEN"]);
    refused(path, &["pin", "a.pool", "1"], &["no token 1", "kept are none"]);
}

#[test]
fn an_open_pool_is_not_in_anybodys_way_for_long() {
    // The program that holds a pool is killed: the next one waits for the kernel, and gets it.
    let directory = pool();
    let path = directory.path();
    let file = DirectFile::open(&path.join("a.pool")).unwrap();
    assert!(file.lock().unwrap());
    let arena = Arena::anonymous(SUBPAGE_BYTES, Backed::BasePages).unwrap();
    file.read_at(0, &arena, 0, SUBPAGE_BYTES).unwrap();
    let child = command(path, &["info", "a.pool"]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(file);
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn an_interrupted_creation_leaves_nothing() {
    let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
    let path = directory.path();
    let child = command(path, &["create", "a.pool", "--size", "2G"]).stderr(Stdio::piped()).spawn().unwrap();
    // Some of it is written, under the name of what is not finished.
    let written = |name: &str| fs::metadata(path.join(name)).is_ok_and(|metadata| metadata.len() > 4 << 20);
    while !written("a.pool.unfinished") {
        assert!(!written("a.pool"), "it was made under its own name");
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(contents(path).is_empty());
}

#[test]
fn a_creation_that_is_killed_at_any_step_is_done_again() {
    // A creation that was killed between two names leaves members that are there already.
    let words = ["pool create a.pool --size 24M", "pool create a.pool b.pool --size 48M --force"];
    let kills = words.map(|create| {
        let directory = tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap();
        fulgurite_testkit::kill_makers(create, directory.path(), |directory| {
            let script = format!("cd data && if [ -e a.pool ]; then exec $0 pool check a.pool; fi; exec $0 {create}");
            let mut child = Command::new("sh");
            child.args(["-c", &script, PROGRAM]).current_dir(directory).stderr(Stdio::null());
            child
        })
    });
    fulgurite_testkit::figure(26, "kills of makers of pools", kills.iter().sum());
}

#[test]
fn a_byte_that_changes_anywhere_is_found() {
    let directory = pool();
    let path = directory.path();
    let pool = path.join("a.pool");
    fs::write(path.join("source"), noise(1 << 20, 1)).unwrap();
    well(path, &["import", "a.pool", "source", "--sync-every", "128K"]);
    // All that is not zero is needed.
    let used = |page: &[u8]| page.iter().any(|byte| *byte != 0);
    let bytes = fs::read(&pool).unwrap();
    let places: Vec<u64> = bytes.chunks(SUBPAGE_BYTES).zip(0..).filter(|(p, _)| used(p)).map(|(_, at)| at).collect();
    for (i, place) in places.iter().enumerate() {
        let at = place * SUBPAGE_BYTES as u64 + (i * 61 % SUBPAGE_BYTES) as u64;
        flip(&pool, at);
        ends(path, 1, &["check", "a.pool"], &[]);
        let output = run(path, &["info", "a.pool"]);
        assert!(matches!(output.status.code(), Some(0..=1)), "byte {at}: {}", text(&output.stderr));
        flip(&pool, at);
        // Where a page of metadata begins, and would be taken for none.
        let page = &bytes[*place as usize * SUBPAGE_BYTES..][..SUBPAGE_BYTES];
        if let Ok((header, ..)) = Header::open(page.try_into().unwrap()) {
            for index in [i % 8, 8 + i % 8] {
                let at = place * SUBPAGE_BYTES as u64 + index as u64;
                flip(&pool, at);
                ends(path, 1, &["check", "a.pool"], &[]);
                flip(&pool, at);
            }
            // More than a bit of a page that no power failure can have cut off there.
            if matches!(header.kind, Kind::Superblock | Kind::Anchor | Kind::Summary) && header.used < 448 {
                let both = [70, 71 + i as u64 % 8].map(|index| place * SUBPAGE_BYTES as u64 + index);
                both.iter().for_each(|at| flip(&pool, *at));
                ends(path, 1, &["check", "a.pool"], &["damaged"]);
                both.iter().for_each(|at| flip(&pool, *at));
            }
        }
    }
    ends(path, 0, &["check", "a.pool"], &["is whole"]);
}

#[test]
fn help_completions_and_pages() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "create",
        "info",
        "check",
        "tokens",
        "pin",
        "unpin",
        "rollback",
        "compact",
        "resize",
        "add-member",
        "export",
        "import",
    ] {
        let help = well(directory.path(), &[name, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("fulgurite pool {name}")), "{help}");
        // What refuses the store of a device does not offer it.
        let takes_devices = ["info", "tokens", "pin", "unpin", "rollback"].contains(&name);
        assert_eq!(help.contains("device:SOCKET"), takes_devices, "{help}");
    }
    let program = |words: &[&str]| {
        let output = Command::new(PROGRAM).args(words).current_dir(directory.path()).output().unwrap();
        assert!(output.status.success());
        text(&output.stdout)
    };
    assert!(program(&["completions", "bash"]).contains("rollback"));
    program(&["man", "."]);
    assert!(directory.path().join("fulgurite-pool-create.1").exists());
}
