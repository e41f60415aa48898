//! Goal: a block device or file system that must not be written to stays as it was, and a free one
//! works. Method: a loop device over a file, and a small tmpfs, mounted and not. The program is run
//! on each. Needs root and loop devices, else it is skipped with a sentence.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(directory: &Path, words: &[&str]) -> Output {
    Command::new(crate::PROGRAM)
        .args(["live", "--quick", "--data=16M", "--dram=8M", "--workload=array-swap", "--config=fulgurite"])
        .arg("--work=0")
        .args(words)
        .current_dir(directory)
        .output()
        .expect("the program starts")
}

/// Runs a tool of the system; its output, or why it cannot be had.
fn tool(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0]).args(&words[1..]).output().map_err(|e| format!("{}: {e}", words[0]))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// What is undone at the end, however the test ends.
struct Undo(Vec<Vec<String>>);
impl Undo {
    fn push(&mut self, words: &[&str]) {
        self.0.push(words.iter().map(|w| (*w).to_owned()).collect());
    }
}
impl Drop for Undo {
    fn drop(&mut self) {
        while let Some(words) = self.0.pop() {
            let _ = tool(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}

/// A loop device with a file system on it.
fn device(image: &Path, undo: &mut Undo) -> Result<String, String> {
    std::fs::File::create(image).and_then(|f| f.set_len(32 << 20)).map_err(|e| e.to_string())?;
    let image = image.to_str().expect("a plain name");
    tool(&["mkfs.ext4", "-q", "-F", image])?;
    let device = tool(&["losetup", "--find", "--show", image])?;
    undo.push(&["losetup", "--detach", &device]);
    Ok(device)
}

/// A directory that is gone last.
fn scratch() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let mount = directory.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    (directory, mount)
}

#[test]
fn a_mounted_device_is_refused_and_as_it_was() {
    let (directory, mount) = scratch();
    let mut undo = Undo(Vec::new());
    let image = directory.path().join("image");
    let device = match device(&image, &mut undo) {
        Ok(device) => device,
        Err(missing) => return eprintln!("SKIPPED: no loop device: {missing}"),
    };
    let mount = mount.to_str().unwrap();
    // Read-only, so that the file system itself changes nothing meanwhile.
    if let Err(missing) = tool(&["mount", "-o", "ro", &device, mount]) {
        return eprintln!("SKIPPED: {missing}");
    }
    undo.push(&["umount", mount]);
    let before = std::fs::read(&image).unwrap();
    let flash = format!("--flash={device}");
    let output = run(directory.path(), &[&flash]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("in use"), "{message}");
    tool(&["sync"]).unwrap();
    assert!(std::fs::read(&image).unwrap() == before, "something was written to a mounted device");

    tool(&["umount", mount]).unwrap();
    let output = run(directory.path(), &[&flash]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("ext4 file system") && message.contains("--force"), "{message}");
    assert!(std::fs::read(&image).unwrap() == before, "something was written to a file system");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("SKIPPED: two workers need two cores");
    } else {
        // Two workers are also compared with one in a second process, and the device is one.
        let output = run(directory.path(), &[&flash, "--force", "--workers=2", "--fibers=16"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("one process at a time") && message.contains("--workers"), "{message}");
        assert!(std::fs::read(&image).unwrap() == before, "something was written to a device that was refused");
    }
    // In a full run several times: the device's own measurement writes between rounds, while the
    // runtime has cold frames to write.
    for _ in 0..if fulgurite_testkit::is_full() { 4 } else { 1 } {
        let output = run(directory.path(), &[&flash, "--force"]);
        assert!(output.status.success(), "unmounted: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(std::fs::read(&image).unwrap() != before, "nothing was written");
}

#[test]
fn a_full_file_system_is_refused() {
    let (directory, mount) = scratch();
    let mut undo = Undo(Vec::new());
    let at = mount.to_str().unwrap();
    if let Err(missing) = tool(&["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", at]) {
        return eprintln!("SKIPPED: {missing}");
    }
    undo.push(&["umount", at]);
    let flash = format!("--flash={at}/flash");
    let output = run(directory.path(), &["--create", &flash]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("are free"), "{message}");
    assert_eq!(mount.read_dir().unwrap().count(), 0, "a file was left");
}
