//! Goal: on a full file system, whatever needs space says so and leaves nothing behind; what is there stays whole; and when space is
//! made, all goes on.
//! Method: a file system of 64 MiB in memory, filled to a random rest; pools are made, enlarged, exported on it with less space than they need,
//! then with enough. Needs the right to mount; without it, it says so and does nothing. `FULGURITE_RUNS` rounds, 20 unless said
//! otherwise; `FULGURITE_SEED` replays.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fulgurite");
const MIB: u64 = 1 << 20;

/// The file system, as long as it lives.
struct Mounted(tempfile::TempDir);
impl Mounted {
    fn new() -> Option<Mounted> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64M", "fulgurite-test"]).arg(directory.path());
        match mount.output() {
            Ok(output) if output.status.success() => Some(Mounted(directory)),
            Ok(output) => {
                println!("skipped: no file system can be mounted: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(e) => {
                println!("skipped: there is no mount(8): {e}");
                None
            }
        }
    }
}
impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn run(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("pool").args(words).current_dir(directory).output().expect("the program starts")
}
fn well(directory: &Path, words: &[&str]) {
    let output = run(directory, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
/// It fails in good order, and says that there is no space.
fn told(directory: &Path, words: &[&str]) {
    let output = run(directory, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{words:?}: {:?}: {said}", output.status);
    assert!(["free", "space"].iter().any(|word| said.contains(word)), "{words:?}: {said}");
}

#[test]
fn a_full_file_system_is_told_and_space_that_is_made_is_used() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (seed, rounds) = (number("FULGURITE_SEED", std::process::id().into()), number("FULGURITE_RUNS", 20));
    println!("seed {seed}; replay with FULGURITE_SEED={seed}");
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.0.path();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for round in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Between 1 and 11 MiB are left; a pool of 12 has no room.
        let left = MIB + state % (10 * MIB);
        let filler = path.join("filler");
        let content = vec![round as u8 + 1; 3 << 20];
        fs::write(path.join("source"), &content).unwrap();
        fs::write(&filler, vec![1; (61 * MIB - left) as usize]).unwrap();
        told(path, &["create", "pool", "--size", "12M"]);
        assert!(!path.join("pool").exists(), "round {round}: something is left of what could not be made");
        fs::remove_file(&filler).unwrap();
        well(path, &["create", "pool", "--size", "12M"]);
        well(path, &["import", "pool", "source"]);
        // The pool is there, and the rest is full again.
        let left = left % (2 * MIB);
        fs::write(&filler, vec![1; (48 * MIB - left) as usize]).unwrap();
        told(path, &["resize", "pool", "--size", "24M"]);
        told(path, &["add-member", "pool", "more", "--size", "8M"]);
        assert!(!path.join("more").exists(), "round {round}: something is left of a member");
        told(path, &["export", "pool", "out"]);
        // What it has was written once, so it needs none.
        well(path, &["import", "pool", "source"]);
        well(path, &["check", "pool"]);
        fs::remove_file(&filler).unwrap();
        let _ = fs::remove_file(path.join("out"));
        well(path, &["resize", "pool", "--size", "16M"]);
        well(path, &["add-member", "pool", "more", "--size", "8M"]);
        well(path, &["export", "pool", "out"]);
        assert!(fs::read(path.join("out")).unwrap()[..content.len()] == *content, "round {round}");
        for name in ["pool", "more", "out", "source"] {
            fs::remove_file(path.join(name)).unwrap();
        }
    }
    println!("{rounds} times full, 0 violations");
}
