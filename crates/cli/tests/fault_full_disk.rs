//! Goal: on a full file system, a command that needs space says so and leaves nothing behind, what
//! is there stays whole, and with space all goes on. Method: a file system of 64 MiB (ext4 on a
//! loop device, else tmpfs), filled to a random rest. Pools are made, enlarged and exported with
//! too little space, then with enough. Without the right to mount it says so and does nothing.
//! `FULGURITE_RUNS` rounds (20), `FULGURITE_SEED` replays.

use fulgurite_testkit as trials;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fulgurite");
const MIB: u64 = 1 << 20;

/// The file system, as long as it lives.
struct Mounted {
    /// Holds the image, and the directory that it is mounted on.
    directory: tempfile::TempDir,
    device: Option<String>,
    kind: &'static str,
}
impl Mounted {
    /// One of 64 MiB: ext4 on a loop device, else tmpfs. The error says why neither can be had.
    fn new() -> Result<Mounted, String> {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("mount")).unwrap();
        let mut mounted = Mounted { directory, device: None, kind: "ext4 on a loop device" };
        let Err(no_loop) = mounted.over_a_loop_device() else { return Ok(mounted) };
        println!("ON TMPFS, as there is no loop device with ext4: {no_loop}");
        mounted.detach();
        mounted.kind = "tmpfs";
        let at = mounted.path();
        tool(&["mount", "-t", "tmpfs", "-o", "size=64M", "fulgurite-test", at.to_str().expect("a plain name")])?;
        Ok(mounted)
    }
    fn over_a_loop_device(&mut self) -> Result<(), String> {
        let (image, at) = (self.directory.path().join("image"), self.path());
        // 64 MiB for files and the file system's own needs. No reserve for root, and files are
        // written through.
        fs::File::create(&image).and_then(|file| file.set_len(64 * MIB)).map_err(|e| e.to_string())?;
        let image = image.to_str().expect("a plain name");
        tool(&["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image])?;
        let device = tool(&["losetup", "--find", "--show", image])?;
        self.device = Some(device.clone());
        tool(&["mount", "-t", "ext4", &device, at.to_str().expect("a plain name")]).map(drop)
    }
    fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }
    /// What is free, in bytes, as df has it.
    fn free(&self) -> u64 {
        let path = self.path();
        let said = tool(&["df", "--output=avail", "-B1", path.to_str().expect("a plain name")]).unwrap();
        said.lines().last().and_then(|line| line.trim().parse().ok()).unwrap_or_else(|| panic!("df says {said:?}"))
    }
    fn detach(&mut self) {
        if let Some(device) = self.device.take() {
            let _ = tool(&["losetup", "--detach", &device]);
        }
    }
}
impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
        self.detach();
    }
}

/// Runs a tool of the system; its output, or why it cannot be had.
fn tool(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0]).args(&words[1..]).output().map_err(|e| format!("{}: {e}", words[0]))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// A file that takes `bytes` bytes, which need not be written for that.
fn fill(path: &Path, bytes: u64) {
    let name = path.to_str().expect("a plain name");
    if tool(&["fallocate", "--length", &bytes.to_string(), name]).is_err() {
        fs::write(path, vec![1; bytes as usize]).unwrap();
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
fn reports(directory: &Path, words: &[&str]) {
    let output = run(directory, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{words:?}: {:?}: {said}", output.status);
    assert!(["free", "space"].iter().any(|word| said.contains(word)), "{words:?}: {said}");
}

#[test]
fn a_full_file_system_is_reported_and_space_that_is_made_is_used() {
    const WHAT: &str = "times a file system was full";
    let (seed, rounds) = (trials::first_seed(std::process::id().into()), trials::runs(20));
    println!("seed {seed}; replay with FULGURITE_SEED={seed} FULGURITE_RUNS={rounds}");
    let mounted = match Mounted::new() {
        Ok(mounted) => mounted,
        Err(why) => {
            println!("skipped: no file system can be mounted: {why}");
            return trials::cannot(10, WHAT, &why);
        }
    };
    let path = &mounted.path();
    // What is not free of the 64 MiB from the beginning.
    let taken = 64 * MIB - mounted.free();
    let mut random = trials::Random(seed);
    for round in 0..rounds {
        // Between 1 and 11 MiB are left; a pool of 12 has no room.
        let left = MIB + random.below(10 * MIB);
        let filler = path.join("filler");
        let content = vec![round as u8 + 1; 3 << 20];
        fs::write(path.join("source"), &content).unwrap();
        fill(&filler, 61 * MIB - taken - left);
        reports(path, &["create", "pool", "--size", "12M"]);
        assert!(!path.join("pool").exists(), "round {round}: something is left of what could not be made");
        fs::remove_file(&filler).unwrap();
        well(path, &["create", "pool", "--size", "12M"]);
        well(path, &["import", "pool", "source"]);
        // The pool is there, and the rest is full again.
        let left = left % (2 * MIB);
        fill(&filler, 48 * MIB - taken - left);
        reports(path, &["resize", "pool", "--size", "24M"]);
        reports(path, &["add-member", "pool", "more", "--size", "8M"]);
        assert!(!path.join("more").exists(), "round {round}: something is left of a member");
        reports(path, &["export", "pool", "out"]);
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
    trials::figure(10, &format!("{WHAT}, {}", mounted.kind), rounds);
}
