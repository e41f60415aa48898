//! The corpus: which text files under a directory are indexed, in which order.
//!
//! Scanning reads every file once, to tell text from data and to find duplicates, and keeps paths,
//! sizes and hashes, never the text. Invariants: files are in the order of a depth-first walk
//! sorted by name, so the same tree gives the same corpus. Each inode and each content is there
//! once. It follows no symlinks and enters no pseudo file systems and no directories for temporary
//! files (other than the directory it was given).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use super::word::{DocumentWords, hash_bytes};

/// Bytes of the largest file that is indexed. Larger ones are data more often than text. A check
/// needs memory for a whole one, and a process in a cgroup has little.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes at the front of a file that decide whether it may be text.
const PROBE_BYTES: usize = 64 << 10;
/// Below this much text in `/usr`, [`Corpus::of_this_machine`] takes all of `/`.
pub const ENOUGH_TEXT_BYTES: u64 = 512 << 20;
/// Never entered from above: not files, or gone tomorrow.
const SKIPPED: [&str; 7] = ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/var/run"];
/// File systems without files of their own (proc(5), mountinfo's type field), not entered from
/// above either.
const PSEUDO: [&str; 20] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "proc",
    "pstore",
    "ramfs",
    "securityfs",
    "sysfs",
    "tmpfs",
    "tracefs",
];

/// Why there is no corpus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// The directory cannot be opened.
    #[error(
        "cannot read the directory {dir}: {source}; name an existing, readable one",
        dir = .dir.display()
    )]
    Unreadable {
        /// Which directory.
        dir: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{path} is not a directory; name the directory that holds the text", path = .path.display())]
    NotADirectory {
        /// What it is called.
        path: PathBuf,
    },
    /// No text in it.
    #[error(
        "no text under {dir} ({files} files: {binary} not UTF-8 text, {large} larger than 1 MiB, {unreadable} not \
         readable); name a directory with text files",
        dir = .dir.display(), files = .skipped.total(), binary = .skipped.binary, large = .skipped.large,
        unreadable = .skipped.unreadable
    )]
    NoText {
        /// Which directory.
        dir: PathBuf,
        /// What was there instead.
        skipped: Skipped,
    },
}

/// How many files were left out, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Not UTF-8, or with NULs or too many control characters at the front, or without a word.
    /// Empty files too.
    pub binary: u64,
    /// Larger than [`FILE_BYTES_MAX`].
    pub large: u64,
    /// They have the inode or the content of an earlier file.
    pub duplicate: u64,
    /// Files and directories that could not be read.
    pub unreadable: u64,
}

impl Skipped {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.binary + self.large + self.duplicate + self.unreadable
    }
}

/// A file of the corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorpusFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length when it was scanned.
    pub bytes: u32,
    /// How many distinct words it has.
    pub distinct_words: u32,
}

/// The files to index, in order.
#[derive(Clone, Debug)]
pub struct Corpus {
    dir: PathBuf,
    files: Vec<CorpusFile>,
    text_bytes: u64,
    distinct_words: u64,
    skipped: Skipped,
    complete: bool,
}

impl Corpus {
    /// The text under `dir`, up to `limit` bytes of it: the walk ends before the file that would
    /// pass the limit. `progress` is called with the number of files and bytes of text found so
    /// far, after each file taken.
    ///
    /// # Errors
    /// When `dir` is not a directory that can be read, or holds no text. Files inside that cannot
    /// be read are counted in [`Corpus::skipped`].
    pub fn scan(dir: &Path, limit: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<Corpus, CorpusError> {
        let unreadable = |source| CorpusError::Unreadable { dir: dir.to_owned(), source };
        // The directory itself may be a symlink. Below it none is followed.
        let root = dir.canonicalize().map_err(unreadable)?;
        if !root.is_dir() {
            return Err(CorpusError::NotADirectory { path: dir.to_owned() });
        }
        std::fs::read_dir(&root).map_err(unreadable)?;
        let mut corpus = Corpus {
            dir: root.clone(),
            files: Vec::new(),
            text_bytes: 0,
            distinct_words: 0,
            skipped: Skipped::default(),
            complete: true,
        };
        let mut scanner = Scanner::default();
        for entry in walk(&root) {
            let Ok(entry) = entry else {
                corpus.skipped.unreadable += 1;
                continue;
            };
            if !entry.file_type().is_some_and(|t| t.is_file()) {
                continue;
            }
            match scanner.take(entry.path()) {
                Err(reason) => reason(&mut corpus.skipped),
                Ok(_) if corpus.text_bytes + scanner.text.len() as u64 > limit => {
                    corpus.complete = false;
                    break;
                }
                Ok(distinct_words) => {
                    scanner.words.iter().for_each(|(word, _)| scanner.distinct.add(word.hash()));
                    corpus.text_bytes += scanner.text.len() as u64;
                    let bytes = scanner.text.len() as u32;
                    corpus.files.push(CorpusFile { path: entry.into_path(), bytes, distinct_words });
                    progress(corpus.files.len() as u64, corpus.text_bytes);
                }
            }
        }
        if corpus.files.is_empty() && corpus.complete {
            return Err(CorpusError::NoText { dir: root, skipped: corpus.skipped });
        }
        corpus.distinct_words = scanner.distinct.estimate();
        Ok(corpus)
    }

    /// The default directory of the index: `/usr`, or all of `/` where that has less than
    /// [`ENOUGH_TEXT_BYTES`] of text.
    ///
    /// # Errors
    /// As [`Corpus::scan`].
    pub fn of_this_machine(limit: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<Corpus, CorpusError> {
        match Corpus::scan(Path::new("/usr"), limit, progress) {
            Ok(corpus) if corpus.text_bytes >= ENOUGH_TEXT_BYTES || !corpus.complete => Ok(corpus),
            _ => Corpus::scan(Path::new("/"), limit, progress),
        }
    }

    /// Where it was found, without symlinks.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// The files, in order.
    #[must_use]
    pub fn files(&self) -> &[CorpusFile] {
        &self.files
    }
    /// The sum of their lengths.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }
    /// About how many distinct words there are (from a sketch, within a few percent).
    #[must_use]
    pub fn distinct_words(&self) -> u64 {
        self.distinct_words
    }
    /// What was left out.
    #[must_use]
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }
    /// Whether the limit cut nothing off.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Keeps only the first files, up to `limit` bytes of text.
    pub fn truncate(&mut self, limit: u64) {
        while self.text_bytes > limit {
            let Some(file) = self.files.pop() else { break };
            self.text_bytes -= u64::from(file.bytes);
            self.complete = false;
        }
    }
}

fn walk(root: &Path) -> ignore::Walk {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut skipped: HashSet<PathBuf> = pseudo_mounts(&mounts);
    skipped.extend(SKIPPED.map(PathBuf::from));
    WalkBuilder::new(root)
        .standard_filters(false)
        .follow_links(false)
        .sort_by_file_name(OsStr::cmp)
        .filter_entry(move |entry| entry.depth() == 0 || !skipped.contains(entry.path()))
        .build()
}

/// Where file systems without files are mounted, from the text of `/proc/self/mountinfo` (proc(5)):
/// the fifth field is the mount point, with odd bytes as three octal digits, and the type is the
/// first field after a lone `-`.
fn pseudo_mounts(mountinfo: &str) -> HashSet<PathBuf> {
    let mount_point = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        PSEUDO.contains(&kind.split(' ').next()?).then(|| unescape(mount.split(' ').nth(4).unwrap_or_default()))
    };
    mountinfo.lines().filter_map(mount_point).collect()
}

fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

/// Says in which count a file belongs that is not taken.
type Reason = fn(&mut Skipped);

/// Tells text from what is not indexed, and knows what has been seen.
#[derive(Default)]
struct Scanner {
    inodes: HashSet<(u64, u64)>,
    contents: HashSet<(u64, u32)>,
    words: DocumentWords,
    distinct: Sketch,
    text: String,
}

impl Scanner {
    /// Reads the file into `text` and counts its words. Returns how many are distinct, or why it is
    /// left out.
    fn take(&mut self, path: &Path) -> Result<u32, Reason> {
        let metadata = path.symlink_metadata().map_err(|_| -> Reason { |s| s.unreadable += 1 })?;
        if metadata.nlink() > 1 && !self.inodes.insert((metadata.dev(), metadata.ino())) {
            return Err(|s| s.duplicate += 1);
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(|s| s.large += 1);
        }
        match read_text(path, &mut self.text) {
            Ok(true) => {}
            Ok(false) => return Err(|s| s.binary += 1),
            Err(_) => return Err(|s| s.unreadable += 1),
        }
        if !self.contents.insert((hash_bytes(self.text.as_bytes()), self.text.len() as u32)) {
            return Err(|s| s.duplicate += 1);
        }
        self.words.count(&self.text);
        match self.words.iter().len() {
            0 => Err(|s| s.binary += 1),
            distinct => Ok(distinct as u32),
        }
    }
}

/// Reads a whole file into `text` if it is text: `false` when it is empty, too large, not UTF-8, or
/// looks like data.
pub(super) fn read_text(path: &Path, text: &mut String) -> std::io::Result<bool> {
    let mut bytes = std::mem::take(text).into_bytes();
    bytes.clear();
    let mut file = File::open(path)?;
    file.by_ref().take(PROBE_BYTES as u64).read_to_end(&mut bytes)?;
    if bytes.is_empty() || !looks_like_text(&bytes) {
        return Ok(false);
    }
    file.take(FILE_BYTES_MAX + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Ok(false);
    }
    match String::from_utf8(bytes) {
        Ok(whole) => {
            *text = whole;
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

/// No NULs, and at most one byte in a hundred a control character that text does not use.
fn looks_like_text(front: &[u8]) -> bool {
    let odd = |b: &u8| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0C | 0x08 | 0x1B);
    !front.contains(&0) && front.iter().filter(|b| odd(b)).count() * 100 <= front.len()
}

/// Counts distinct hashes in 4 KiB, within about 1.6% (HyperLogLog, Flajolet, Fusy, Gandouet,
/// Meunier 2007).
struct Sketch {
    registers: Box<[u8; Sketch::REGISTERS]>,
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch { registers: Box::new([0; Sketch::REGISTERS]) }
    }
}

impl Sketch {
    const BITS: u32 = 12;
    const REGISTERS: usize = 1 << Sketch::BITS;

    fn add(&mut self, hash: u64) {
        let register = &mut self.registers[(hash >> (64 - Self::BITS)) as usize];
        let rank = ((hash << Self::BITS) | (1 << (Self::BITS - 1))).leading_zeros() + 1;
        *register = (*register).max(rank as u8);
    }
    fn estimate(&self) -> u64 {
        let m = Self::REGISTERS as f64;
        let sum: f64 = self.registers.iter().map(|&r| 2f64.powi(-i32::from(r))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let free = self.registers.iter().filter(|&&r| r == 0).count();
        // Few words: the number of registers still free says more (linear counting, section 4 of
        // the paper).
        let estimate = if raw <= 2.5 * m && free > 0 { m * (m / free as f64).ln() } else { raw };
        estimate.ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sketch_counts_within_a_few_percent() {
        for count in [0u64, 1, 100, 3000, 20_000, 500_000] {
            let mut sketch = Sketch::default();
            for i in 0..count {
                sketch.add(super::super::word::mix(i, 7));
                sketch.add(super::super::word::mix(i, 7));
            }
            let off = (sketch.estimate() as f64 - count as f64).abs();
            assert!(off <= 2.0 + 0.06 * count as f64, "{count}: {}", sketch.estimate());
        }
    }
    #[test]
    fn pseudo_file_systems_are_found_by_type() {
        let info = "22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
                    23 22 0:5 / /a\\040b rw - proc proc rw\n\
                    24 22 0:6 / /big rw,x shared:3 master:1 - tmpfs none rw\nnonsense\n";
        let expected: HashSet<PathBuf> = ["/a b", "/big"].map(PathBuf::from).into();
        assert_eq!(pseudo_mounts(info), expected);
        assert_eq!(unescape("\\9\\04"), PathBuf::from("\\9\\04"));
    }
    #[test]
    fn control_characters_and_nuls_are_not_text() {
        assert!(looks_like_text(b"plain\r\n\ttext \x1b[1mbold"));
        assert!(!looks_like_text(b"nul \0 inside a long enough line"));
        assert!(!looks_like_text(b"\x01\x02\x03"));
    }
}
