//! A device in a process of its own, for the tests that use one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A device that is served in a directory. Killed when dropped.
pub struct Served {
    /// Its process.
    pub child: Child,
    /// What it says from now on.
    pub logged: BufReader<std::process::ChildStdout>,
}

impl Served {
    /// Starts it, and waits until it says that it serves.
    pub fn start(directory: &Path, words: &[&str]) -> Served {
        let mut child = Command::new(crate::fulgurite())
            .args(["device", "serve", "--socket", "dev.sock"])
            .args(words)
            .current_dir(directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut logged = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        logged.read_line(&mut line).unwrap();
        assert!(line.starts_with("dev.sock: "), "{line}");
        Served { child, logged }
    }
    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
