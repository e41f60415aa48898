//! Goal: a pool of several files is one pool by any of them, and what does not belong is refused by
//! name. Pools change their size and lose nothing. `check` finds and mends what it says. Method:
//! run the program on small pools in an empty directory, take files away, swap, copy, cut and
//! lengthen them, damage bytes at places computed from the layout, and kill it in the middle.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fulgurite_format::{Header, Kind, MEMBER_PAGES, SUBPAGE_BYTES};
use rustix::fs::FlockOperation;

const PROGRAM: &str = env!("CARGO_BIN_EXE_fulgurite");
const NAMES: [&str; 3] = ["a", "b", "c"];

fn command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("pool").args(words).current_dir(directory).env("TMPDIR", directory);
    command
}
fn run(directory: &Path, words: &[&str]) -> Output {
    command(directory, words).output().expect("the program starts")
}
/// Whether a check finds nothing, and what it says.
fn checked(directory: &Path, pool: &str) -> (bool, String) {
    let check = run(directory, &["check", pool]);
    let logged = String::from_utf8_lossy(&check.stdout).into_owned() + &String::from_utf8_lossy(&check.stderr);
    (check.status.success(), logged)
}
/// What it says when it ends with this code, which must hold all of `parts`.
fn ends(directory: &Path, code: i32, words: &[&str], parts: &[&str]) -> String {
    let output = run(directory, words);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{words:?}: it does not say \"{part}\": {said}");
    }
    said
}
fn well(directory: &Path, words: &[&str]) -> String {
    ends(directory, 0, words, &[])
}
fn json(directory: &Path, code: i32, words: &[&str]) -> serde_json::Value {
    let output = run(directory, words);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}
/// Bytes that no two seeds have in common.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    fulgurite_testkit::Random(seed).bytes(bytes)
}
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(Path::new(PROGRAM).parent().unwrap()).unwrap()
}
/// A directory with a pool of three files that holds 2 MiB.
fn striped() -> tempfile::TempDir {
    let directory = directory();
    well(directory.path(), &["create", "a", "b", "c", "--size", "24M"]);
    fs::write(directory.path().join("source"), noise(2 << 20, 1)).unwrap();
    well(directory.path(), &["import", "a", "source"]);
    directory
}
fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}
fn holds(directory: &Path, pool: &str, content: &[u8]) {
    let _ = fs::remove_file(directory.join("out"));
    well(directory, &["export", pool, "out"]);
    assert!(fs::read(directory.join("out")).unwrap()[..content.len()] == *content, "{pool} holds something else");
}

#[test]
fn a_pool_of_several_files_is_one_by_any_of_them() {
    let directory = striped();
    let path = directory.path();
    for name in NAMES {
        holds(path, name, &noise(2 << 20, 1));
        assert!(well(path, &["info", name]).contains("striped over 3"));
        well(path, &["check", name]);
    }
    // Each has its share of the data.
    for name in NAMES {
        let used = fs::read(path.join(name)).unwrap();
        let pages = used.chunks(SUBPAGE_BYTES).filter(|page| page.iter().any(|byte| *byte != 0)).count();
        assert!(pages > 100, "{name}: {pages}");
    }
    let info = json(path, 0, &["info", "b", "--json"]);
    assert_eq!(info["members"].as_array().unwrap().len(), 3);
    // All of it in another place; one of it in another place.
    fs::create_dir(path.join("moved")).unwrap();
    NAMES.iter().for_each(|name| fs::rename(path.join(name), path.join("moved").join(name)).unwrap());
    well(path, &["check", "moved/c"]);
    fs::rename(path.join("moved/b"), path.join("elsewhere")).unwrap();
    ends(path, 2, &["info", "moved/a"], &["member 2", "is missing", "--member"]);
    well(path, &["pin", "moved/a", "1", "--member", "elsewhere"]);
    // It was written down where that is, in words that lead there from anywhere.
    well(path, &["check", "moved/c"]);
    well(&path.join("moved"), &["check", "c"]);
    ends(path, 2, &["info", "moved/a", "--member", "elsewhere", "--member", "elsewhere"], &["same member"]);
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let directory = striped();
    let path = directory.path();
    let whole: Vec<Vec<u8>> = NAMES.iter().map(|name| fs::read(path.join(name)).unwrap()).collect();
    let restore = || NAMES.iter().zip(&whole).for_each(|(name, bytes)| fs::write(path.join(name), bytes).unwrap());
    let all_refuse = |parts: &[&str]| {
        for words in [&["info", "a"][..], &["check", "a"], &["pin", "a", "1"], &["resize", "a", "--size", "48M"]] {
            ends(path, 2, words, parts);
        }
    };
    // Missing; something else; another pool; a pool of one file.
    fs::rename(path.join("c"), path.join("away")).unwrap();
    all_refuse(&["member 3", "missing", "c does not exist"]);
    fs::write(path.join("c"), "words").unwrap();
    all_refuse(&["c", "4 KiB"]);
    fs::write(path.join("c"), vec![7; 1 << 20]).unwrap();
    all_refuse(&["c is no member of the pool"]);
    fs::remove_file(path.join("c")).unwrap();
    well(path, &["create", "c", "--size", "8M"]);
    all_refuse(&["c is no member of the pool", "no part of any"]);
    fs::remove_file(path.join("c")).unwrap();
    well(path, &["create", "x", "y", "c", "--size", "24M"]);
    all_refuse(&["c is no member of the pool", "another pool"]);
    restore();
    // Two changed places; one is there twice.
    fs::write(path.join("b"), &whole[2]).unwrap();
    fs::write(path.join("c"), &whole[1]).unwrap();
    all_refuse(&["b is member 3", "member 2 was expected", "swapped"]);
    well(path, &["info", "a", "--member", "c", "--member", "b"]);
    restore();
    fs::write(path.join("b"), &whole[2]).unwrap();
    all_refuse(&["b is member 3", "member 2 was expected"]);
    restore();
    fs::copy(path.join("b"), path.join("twin")).unwrap();
    ends(path, 2, &["info", "b", "--member", "twin"], &["same member", "copy"]);
    // A copy elsewhere does not find the others where the original has them.
    fs::create_dir(path.join("copy")).unwrap();
    fs::copy(path.join("a"), path.join("copy/a")).unwrap();
    ends(path, 2, &["info", "copy/a"], &["same member", "copy"]);
    // An older copy of one.
    well(path, &["pin", "a", "1"]);
    fs::write(path.join("b"), &whole[1]).unwrap();
    ends(path, 2, &["info", "a"], &["b is an old copy of member 2"]);
    ends(path, 2, &["info", "b"], &["b is an old copy of member 2"]);
    // Old copies of all of them are the old pool.
    restore();
    holds(path, "c", &noise(2 << 20, 1));
    // Cut; longer.
    fs::write(path.join("b"), &whole[1][..5 << 20]).unwrap();
    all_refuse(&["b is truncated", "member 2", "restore"]);
    fs::write(path.join("b"), [&whole[1][..], &[7; 10_000]].concat()).unwrap();
    well(path, &["check", "a"]);
    restore();
    // Any of them in use by another process.
    for name in NAMES {
        let held = File::open(path.join(name)).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        ends(path, 2, &["check", "a"], &[name, "in use by another process"]);
        ends(path, 0, &["info", "a"], &["a is in use"]);
    }
    ends(path, 2, &["create", "d", "d", "--size", "24M"], &["named twice"]);
    ends(path, 2, &["create", "d", "a", "--size", "24M"], &["a is a pool already"]);
    ends(path, 2, &["create", "d", "e", "--size", "100K"], &["less than"]);
    assert!(!path.join("d").exists());
    ends(path, 2, &["info", "x", "--member", "a"], &["another pool"]);
    well(path, &["create", "alone", "--size", "8M"]);
    ends(path, 2, &["info", "alone", "--member", "a"], &["pool of one file", "--member"]);
}

/// What a pool holds, by whichever of its files is named.
fn content(directory: &Path, pool: &str, bytes: usize) -> Vec<u8> {
    let _ = fs::remove_file(directory.join("out"));
    well(directory, &["export", pool, "out"]);
    let mut out = fs::read(directory.join("out")).unwrap();
    out.truncate(bytes);
    out
}

#[test]
fn copies_made_while_it_is_open_are_whole_or_refused() {
    const BYTES: usize = 2 << 20;
    const STEP: usize = 64 << 10;
    for names in [vec!["one"], NAMES.to_vec()] {
        let directory = directory();
        let path = directory.path();
        well(path, &[&["create"], &names[..], &["--size", "24M"]].concat());
        let mut held = noise(BYTES, 100);
        fs::write(path.join("source"), &held).unwrap();
        well(path, &["import", names[0], "source"]);
        fs::create_dir(path.join("copy")).unwrap();
        let copy = || {
            for name in &names {
                fs::copy(path.join(name), path.join("copy").join(name)).unwrap();
            }
        };
        // All that a pool can hold while the new is imported over the old, a sync for each step.
        let is_a_state = |content: &[u8], old: &[u8], new: &[u8]| {
            (0..=BYTES / STEP).any(|n| content[..n * STEP] == new[..n * STEP] && content[n * STEP..] == old[n * STEP..])
        };
        let (mut opened, mut refused) = (0, 0);
        for round in 0..12u64 {
            let new = noise(BYTES, 101 + round);
            fs::write(path.join("source"), &new).unwrap();
            let words = ["import", names[0], "source", "--sync-every", "64K", "--keep", "1"];
            let mut child = command(path, &words).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(3 + 9 * round));
            // Every second one is held meanwhile: what is copied then is what a crash would leave.
            let is_held = round % 2 == 1;
            let pid = rustix::process::Pid::from_child(&child);
            if is_held {
                rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
            }
            copy();
            child.kill().unwrap();
            child.wait().unwrap();
            // What was open is whole; the copy is whole, or somebody says what is not.
            well(path, &["check", names[names.len() - 1]]);
            let output = run(path, &["check", &format!("copy/{}", names[0])]);
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => {
                    opened += 1;
                    let copied = content(path, &format!("copy/{}", names[names.len() - 1]), BYTES);
                    assert!(
                        is_a_state(&copied, &held, &new),
                        "round {round}: the copy is whole, and no state there was"
                    );
                }
                Some(1 | 2) if !is_held => refused += 1,
                code => panic!("round {round}: {code:?}: {said}"),
            }
            assert!(!said.contains("panicked"), "{said}");
            let left = content(path, names[0], BYTES);
            assert!(is_a_state(&left, &held, &new), "round {round}: what is left is no state there was");
            held = left;
        }
        println!("{names:?}: {opened} copies were whole, {refused} were refused or named as damaged");
        // Of one that nobody has open they are always whole.
        copy();
        assert!(content(path, &format!("copy/{}", names[0]), BYTES) == held);
    }
}

/// A device is served from one file: a member would lack the others, or be made over.
#[test]
fn one_of_several_files_is_not_served() {
    let directory = striped();
    let path = directory.path();
    let before: Vec<Vec<u8>> = NAMES.iter().map(|name| fs::read(path.join(name)).unwrap()).collect();
    for name in NAMES {
        let mut command = Command::new(PROGRAM);
        command.args(["device", "serve", "--socket", "s", "--store", "--data", name]).current_dir(path);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            // One that serves does not end.
            if path.join("s").exists() && begun.elapsed() > Duration::from_secs(20) {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains("one file of several") && !said.contains("panicked"), "{name}: {said}");
    }
    assert!(before == NAMES.map(|name| fs::read(path.join(name)).unwrap()), "something was touched");
    holds(path, "b", &noise(2 << 20, 1));
}

#[test]
fn sizes_change_and_nothing_is_lost() {
    for (names, create) in [(vec!["one"], "24M"), (NAMES.to_vec(), "24M")] {
        let directory = directory();
        let path = directory.path();
        well(path, &[&["create"], &names[..], &["--size", create]].concat());
        let (pool, content) = (names[names.len() - 1], noise(6 << 20, 3));
        fs::write(path.join("source"), &content).unwrap();
        well(path, &["import", pool, "source"]);
        let bytes = || -> u64 { names.iter().map(|name| fs::metadata(path.join(name)).unwrap().len()).sum() };
        for size in ["48M", "64M", "20M", "15M", "40M"] {
            well(path, &["resize", pool, "--size", size]);
            holds(path, pool, &content);
            ends(path, 0, &["check", pool], &["is whole"]);
            let asked = size.trim_end_matches('M').parse::<u64>().unwrap() << 20;
            assert!((asked - (1 << 20)..=asked + (2 << 20)).contains(&bytes()), "{size}: {}", bytes());
            well(path, &["import", pool, "source", "--keep", "1"]);
        }
        assert!(well(path, &["resize", pool, "--size", "40M"]).contains("already"));
        well(path, &["resize", pool, "--data", "8M"]);
        holds(path, pool, &content);
        let before = bytes();
        ends(path, 2, &["resize", pool], &["--size, --data"]);
        ends(path, 2, &["resize", pool, "--data", "2M"], &["the data reaches to byte 6291456"]);
        ends(path, 2, &["resize", pool, "--size", "8M", "--data", "8M"], &["cannot hold"]);
        ends(path, 2, &["resize", pool, "--size", "64K"], &["too little"]);
        ends(path, 2, &["resize", pool, "--size", "15T"], &["free"]);
        ends(path, 2, &["resize", pool, "--size", "900T"], &["16 TiB"]);
        assert_eq!(bytes(), before);
        // Data fits, and what tokens keep does not.
        for seed in 4..9 {
            fs::write(path.join("other"), noise(6 << 20, seed)).unwrap();
            well(path, &["import", pool, "other", "--keep", "100"]);
            if seed == 6 {
                break;
            }
        }
        ends(path, 2, &["resize", pool, "--size", "14M"], &["are live", "drop old tokens"]);
        well(path, &["compact", pool, "--keep", "1"]);
        well(path, &["resize", pool, "--size", "15M"]);
        holds(path, pool, &noise(6 << 20, 6));
    }
}

#[test]
fn members_are_added_and_nothing_is_lost() {
    for (names, create) in [(vec!["one"], "24M"), (NAMES.to_vec(), "24M")] {
        let directory = directory();
        let path = directory.path();
        well(path, &[&["create"], &names[..], &["--size", create]].concat());
        let (pool, content) = (names[names.len() - 1], noise(6 << 20, 3));
        fs::write(path.join("source"), &content).unwrap();
        well(path, &["import", pool, "source"]);
        let size = |pool: &str| json(path, 0, &["info", pool, "--json"])["size_bytes"].as_u64().unwrap();
        let before = size(pool);
        // What cannot be is reported before anything is touched.
        well(path, &["create", "other", "--size", "8M"]);
        std::os::unix::fs::symlink("other", path.join("link")).unwrap();
        fs::write(path.join("text"), "words").unwrap();
        let files = || fs::read_dir(path).unwrap().count();
        let there = files();
        ends(path, 2, &["add-member", pool, "new"], &["--size"]);
        ends(path, 2, &["add-member", pool, "new", "--size", "64K"], &["needs", "at least"]);
        ends(path, 2, &["add-member", pool, "new", "--size", "15T"], &["free"]);
        ends(path, 2, &["add-member", pool, "new", "--size", "900T"], &["16 TiB"]);
        ends(path, 2, &["add-member", pool, "other", "--size", "8M"], &["is a pool already"]);
        ends(path, 2, &["add-member", pool, "text", "--size", "8M"], &["exists and holds text"]);
        ends(path, 2, &["add-member", pool, "link", "--size", "8M", "--force"], &["link"]);
        ends(path, 2, &["add-member", pool, "nowhere/new", "--size", "8M"], &["does not exist"]);
        for name in &names {
            ends(path, 2, &["add-member", pool, name, "--size", "8M", "--force"], &["is a member of the pool already"]);
        }
        ends(path, 2, &["add-member", "text", "new", "--size", "8M"], &["is no pool"]);
        assert_eq!((files(), size(pool)), (there, before));
        holds(path, pool, &content);
        for (at, new) in ["new", "second"].into_iter().enumerate() {
            let said = well(path, &["add-member", pool, new, "--size", "16M"]);
            assert!(said.contains(&format!("member {}", names.len() + at + 1)), "{said}");
            holds(path, new, &content);
            ends(path, 0, &["check", names[0]], &["is whole"]);
            well(path, &["import", new, "source", "--keep", "1"]);
        }
        assert!(size(pool) > before + (30 << 20), "{before} and {}", size(pool));
        // Much more than there was room for before.
        let content = noise(30 << 20, 4);
        fs::write(path.join("source"), &content).unwrap();
        well(path, &["import", "new", "source", "--keep", "1"]);
        holds(path, pool, &content);
        ends(path, 0, &["check", "second"], &["is whole"]);
        fs::rename(path.join("new"), path.join("away")).unwrap();
        ends(path, 2, &["info", pool], &["is missing"]);
    }
}

#[test]
fn a_kill_leaves_the_members_or_one_more() {
    for names in [vec!["one"], NAMES.to_vec()] {
        let directory = directory();
        let path = directory.path();
        well(path, &[&["create"], &names[..], &["--size", "24M"]].concat());
        let content = noise(2 << 20, 1);
        fs::write(path.join("source"), &content).unwrap();
        well(path, &["import", names[0], "source"]);
        let mut members = names.len();
        let (mut killed, mut grown) = (0, 0);
        for round in 0..12u64 {
            let new = format!("new{round}");
            let words = ["add-member", names[0], &new, "--size", "1M"];
            let mut child = command(path, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(2 + round * 4));
            let _ = child.kill();
            killed += usize::from(!child.wait().unwrap().success());
            let info = json(path, 0, &["info", names[names.len() - 1], "--json"]);
            let now = info["members"].as_array().map_or(0, Vec::len).max(1);
            assert!(now == members || now == members + 1, "round {round}: {now} members after {members}");
            grown += now - members;
            if now == members {
                // What is left of the attempt is nobody's.
                let _ = fs::remove_file(path.join(&new));
            }
            members = now;
            holds(path, names[0], &content);
            // Half way, some copies of the superblock or the member list are old. Opening for
            // changes makes them equal.
            let (whole, logged) = checked(path, names[0]);
            let copy = |l: &str| l.contains("a copy of the list of members") || l.contains("copy 1 of the superblock");
            assert!(whole || logged.lines().filter(|l| l.starts_with("damaged:")).all(copy), "round {round}: {logged}");
            well(path, &["compact", names[0]]);
            ends(path, 0, &["check", names[0]], &["is whole"]);
        }
        println!("{killed} of 12 killed, {grown} members more");
    }
}

#[test]
fn a_kill_leaves_one_size_or_the_other() {
    let directory = striped();
    let path = directory.path();
    let content = noise(2 << 20, 1);
    let sizes = || json(path, 0, &["info", "a", "--json"])["size_bytes"].as_u64().unwrap();
    let mut killed = 0;
    for round in 0..16 {
        let to = if round % 2 == 0 { "96M" } else { "24M" };
        let before = sizes();
        let mut child = command(path, &["resize", "b", "--size", to]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(2 + round * 7));
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        let after = sizes();
        holds(path, "c", &content);
        // One of the two superblocks has the old size. Opening for changes makes them equal.
        let (whole, logged) = checked(path, "a");
        let half_way = logged.contains("copy 1 of the superblock") && logged.contains("1 damaged thing");
        assert!(whole || half_way, "{logged}");
        well(path, &["resize", "c", "--size", to]);
        ends(path, 0, &["check", "a"], &["is whole"]);
        let bytes: u64 = NAMES.iter().map(|name| path.join(name).metadata().unwrap().len()).sum();
        assert!((sizes()..sizes() + (4 << 20)).contains(&bytes), "{} in {bytes} bytes", sizes());
        assert!([before, sizes()].contains(&after), "{before} became {after} on the way to {}", sizes());
        holds(path, "a", &content);
    }
    println!("{killed} of 16 were killed before their end");
}

#[test]
fn repairs_name_what_is_lost_and_leave_the_rest_whole() {
    let directory = directory();
    let path = directory.path();
    well(path, &["create", "a", "b", "--size", "16M"]);
    let (first, second) = (noise(1 << 20, 1), noise(1 << 20, 2));
    fs::write(path.join("first"), &first).unwrap();
    fs::write(path.join("second"), &second).unwrap();
    well(path, &["import", "a", "first"]);
    well(path, &["import", "a", "second", "--sync-every", "128K"]);
    let pages = |name: &str, is: &dyn Fn(&[u8]) -> bool| -> Vec<u64> {
        let bytes = fs::read(path.join(name)).unwrap();
        let all = bytes.chunks(SUBPAGE_BYTES).zip(0u64..).filter(|(page, _)| is(page));
        all.map(|(_, at)| at * SUBPAGE_BYTES as u64).collect()
    };
    let of_kind = |kind: Kind| {
        move |page: &[u8]| Header::open(page.try_into().unwrap()).is_ok_and(|(header, ..)| header.kind == kind)
    };
    let damage = |name: &str, at: u64| flip(&path.join(name), at + 77);
    // One of each: a current subpage, an older one, a summary, an anchor's copy, the journal,
    // member lists, the superblock.
    let find = |content: &[u8]| {
        NAMES[..2].iter().find_map(|name| Some((*name, *pages(name, &|page: &[u8]| page == content).first()?))).unwrap()
    };
    let (name, at) = find(&second[17 * SUBPAGE_BYTES..18 * SUBPAGE_BYTES]);
    damage(name, at);
    let (name, at) = find(&first[5 * SUBPAGE_BYTES..6 * SUBPAGE_BYTES]);
    damage(name, at);
    let mut metadata = 0;
    for name in &NAMES[..2] {
        for kind in [Kind::Summary, Kind::Anchor] {
            if let Some(at) = pages(name, &of_kind(kind)).first() {
                damage(name, *at);
                metadata += 1;
            }
        }
    }
    assert!(metadata >= 2, "there were {metadata} pages of metadata to damage");
    for (name, place) in [("a", MEMBER_PAGES[0]), ("b", MEMBER_PAGES[1])] {
        damage(name, u64::from(place) * SUBPAGE_BYTES as u64);
    }
    damage("a", 0);
    let found = json(path, 1, &["check", "b", "--json"]);
    let kinds: Vec<&str> = found["damaged"].as_array().unwrap().iter().map(|d| d["kind"].as_str().unwrap()).collect();
    for kind in ["superblock", "member", "anchor", "summary", "data", "older-data"] {
        assert!(kinds.contains(&kind), "{kind} is not among {kinds:?}");
    }
    assert_eq!((found["sound"].as_bool(), kinds.len()), (Some(false), 5 + metadata));
    ends(path, 2, &["check", "a", "--repair"], &["--force"]);
    let lost = "lost: subpage 17 (bytes 69632 to 73727 of the data): reads of it fail";
    let said = ends(
        path,
        1,
        &["check", "a", "--repair", "--force"],
        &[lost, "an older version of subpage 5 ", "2 damaged things"],
    );
    assert!(said.contains("repaired: copy 0 of the superblock") && said.contains("the summary of extent"), "{said}");
    // What is left is what is lost, and it is not repaired again.
    let left = json(path, 1, &["check", "a", "--json"]);
    let left = left["damaged"].as_array().unwrap();
    assert!(left.len() == 2 && left.iter().all(|d| d["given_up"].as_bool() == Some(true)), "{left:?}");
    ends(path, 1, &["export", "b", "out"], &["subpage 17 "]);
    // An extent with such a page is emptied like any other, and the subpage can be written again.
    well(path, &["compact", "a", "--keep", "1"]);
    ends(path, 1, &["check", "a"], &["subpage 17", "given up by a repair", "1 damaged thing"]);
    well(path, &["import", "a", "second"]);
    well(path, &["compact", "a", "--keep", "1"]);
    ends(path, 0, &["check", "a"], &["is whole"]);
    holds(path, "b", &second);
    // A page of the journal that is not the newest: the pool cannot be opened, and nothing is
    // overwritten.
    let before = fs::read(path.join("a")).unwrap();
    assert!(json(path, 0, &["check", "a", "--json"])["sound"].as_bool().unwrap());
    assert!(fs::read(path.join("a")).unwrap() == before, "a check wrote something");
}

#[test]
fn maps_are_drawn() {
    let directory = striped();
    let path = directory.path();
    well(path, &["info", "a", "--maps", "maps.svg"]);
    let drawn = fs::read_to_string(path.join("maps.svg")).unwrap();
    for part in [
        "What the extents are used for",
        "Live data",
        "Age",
        "Older versions",
        "How full",
        "flash pages live",
        "</svg>",
    ] {
        assert!(drawn.contains(part), "{part}");
    }
    assert!(!drawn.contains("NaN") && !drawn.contains("<script") && !drawn.contains("href"));
    ends(path, 2, &["info", "a", "--maps", "maps.png"], &[".svg"]);
    ends(path, 2, &["info", "a", "--maps", "no/such.svg"], &["--maps", "does not exist"]);
}
