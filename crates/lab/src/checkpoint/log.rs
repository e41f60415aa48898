//! What a program with a checkpoint thread would write: changed pages, appended to a log behind an
//! image.
//!
//! ```text
//!  segment | head: magic 8, number 8, pages 8, CRC32C of the list 4, 0 4 | list: page 4, CRC32C of it 4, .. | 0.. | pages |
//!          |<------------------------------ whole pages of 4 KiB --------------------------------------->|
//! ```
//!
//! Invariants: a segment is valid when its checksums match and its number is the next one. A crash
//! leaves the last one out, or has it whole. The computation and the thread use the buffer in
//! turns. The log is never folded into the image, and the price of that is not counted.

use std::io;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use fulgurite_format::{SUBPAGE_BYTES, crc32c};
use fulgurite_sys::{Arena, Backed, DirectFile};

use super::job::Job;

const MAGIC: u64 = u64::from_le_bytes(*b"changed\0");
const HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 8;
const WRITE_BYTES: usize = 8 << 20;

fn list_bytes(pages: usize) -> usize {
    (HEAD_BYTES + pages * ENTRY_BYTES).next_multiple_of(SUBPAGE_BYTES)
}

pub fn segment_bytes(pages: usize) -> usize {
    list_bytes(pages) + pages * SUBPAGE_BYTES
}

/// The pages that have changed since the last checkpoint: what a program must know of itself.
#[derive(Debug)]
pub struct Changed {
    marked: Vec<bool>,
    /// In the order in which they changed.
    pages: Vec<u32>,
}

impl Changed {
    pub fn none_of(pages: u64) -> Changed {
        Changed { marked: vec![false; pages as usize], pages: Vec::with_capacity(pages as usize) }
    }
    #[inline]
    pub fn mark(&mut self, page: u32) {
        if !std::mem::replace(&mut self.marked[page as usize], true) {
            self.pages.push(page);
        }
    }
    /// Those that have changed; from now on none have.
    pub fn take(&mut self) -> Vec<u32> {
        let taken = self.pages.clone();
        self.pages.iter().for_each(|page| self.marked[*page as usize] = false);
        self.pages.clear();
        taken
    }
}

/// The log, and the buffer of its next segment.
#[derive(Debug)]
pub struct Log {
    file: DirectFile,
    buffer: Arena,
}

impl Log {
    /// Creates it, with room for the pages that change in each of the job's turns.
    pub fn create(path: &Path, job: &Job) -> Result<Log> {
        let file = DirectFile::create(path).with_context(|| format!("{} cannot be created", path.display()))?;
        let room = log_bytes(job);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, room)
            .with_context(|| format!("there is no room for {room} bytes in {}", path.display()))?;
        let buffer = Arena::anonymous(segment_bytes(job.pages as usize), Backed::HugePages)?;
        // Resident as far as a turn reaches; turns that are put off may reach further.
        buffer.zero(0, segment_bytes(job.dirty_pages as usize).min(buffer.len()));
        file.sync_all()?;
        Ok(Log { file, buffer })
    }
    /// Copies these pages: all that the computation waits for.
    pub fn copy(&self, memory: &Arena, pages: &[u32]) {
        let from = list_bytes(pages.len());
        for (index, page) in pages.iter().enumerate() {
            let (at, to) = (*page as usize * SUBPAGE_BYTES, from + index * SUBPAGE_BYTES);
            Arena::copy(memory, at, &self.buffer, to, SUBPAGE_BYTES);
        }
    }
    /// Writes what was copied as a numbered segment at this place. Returns its durable bytes.
    pub fn append(&self, number: u64, at: u64, pages: &[u32]) -> io::Result<u64> {
        let (list, bytes) = (list_bytes(pages.len()), segment_bytes(pages.len()));
        let mut head = vec![0; list];
        let mut page_bytes = [0; SUBPAGE_BYTES];
        for (index, page) in pages.iter().enumerate() {
            self.buffer.read(list + index * SUBPAGE_BYTES, &mut page_bytes);
            let entry = &mut head[HEAD_BYTES + index * ENTRY_BYTES..][..ENTRY_BYTES];
            entry[..4].copy_from_slice(&page.to_le_bytes());
            entry[4..].copy_from_slice(&crc32c(&page_bytes).to_le_bytes());
        }
        let crc = crc32c(&head[HEAD_BYTES..]);
        head[..8].copy_from_slice(&MAGIC.to_le_bytes());
        head[8..16].copy_from_slice(&number.to_le_bytes());
        head[16..24].copy_from_slice(&(pages.len() as u64).to_le_bytes());
        head[24..28].copy_from_slice(&crc.to_le_bytes());
        self.buffer.write(0, &head);
        let mut done = 0;
        while done < bytes {
            done += self.file.write_at(at + done as u64, &self.buffer, done, WRITE_BYTES.min(bytes - done))?;
        }
        self.file.sync_data()?;
        Ok(bytes as u64)
    }
}

/// Bounds the log: each turn changes no more than its pages, whichever checkpoint they go to.
pub fn log_bytes(job: &Job) -> u64 {
    job.checkpoints * segment_bytes(job.dirty_pages as usize) as u64 + SUBPAGE_BYTES as u64
}

/// Reads the beginning of a file, or a part of it, past the page cache.
pub fn read_whole(file: &DirectFile, at: u64, into: &Arena, len: usize) -> Result<()> {
    let mut done = 0;
    while done < len {
        let n = file.read_at(at + done as u64, into, done, WRITE_BYTES.min(len - done))?;
        ensure!(n > 0, "the file ends after {} bytes", at + done as u64);
        done += n;
    }
    Ok(())
}

/// Brings an image up to date by what is in the log. Returns how many segments there were.
pub fn replay(path: &Path, image: &Arena, job: &Job) -> Result<u64> {
    let file = DirectFile::open(path)?;
    let end = file.bytes()?;
    let scratch = Arena::anonymous(segment_bytes(job.pages as usize), Backed::BasePages)?;
    let (mut number, mut at) = (0, 0);
    let mut head = [0; HEAD_BYTES];
    while at + SUBPAGE_BYTES as u64 <= end {
        read_whole(&file, at, &scratch, SUBPAGE_BYTES)?;
        scratch.read(0, &mut head);
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let pages = word(16);
        if word(0) != MAGIC || word(8) != number || pages > job.pages {
            break;
        }
        let pages = pages as usize;
        let (list, bytes) = (list_bytes(pages), segment_bytes(pages));
        if at + bytes as u64 > end {
            break;
        }
        read_whole(&file, at, &scratch, bytes)?;
        let mut entries = vec![0; list];
        scratch.read(0, &mut entries);
        if u64::from(crc32c(&entries[HEAD_BYTES..])) != word(24) {
            break;
        }
        let mut page_bytes = [0; SUBPAGE_BYTES];
        let mut places = Vec::with_capacity(pages);
        for (index, entry) in entries[HEAD_BYTES..].chunks_exact(ENTRY_BYTES).take(pages).enumerate() {
            scratch.read(list + index * SUBPAGE_BYTES, &mut page_bytes);
            let half = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes"));
            if crc32c(&page_bytes) != half(4) || u64::from(half(0)) >= job.pages {
                break;
            }
            places.push(half(0) as usize * SUBPAGE_BYTES);
        }
        if places.len() < pages {
            break;
        }
        for (index, place) in places.into_iter().enumerate() {
            Arena::copy(&scratch, list + index * SUBPAGE_BYTES, image, place, SUBPAGE_BYTES);
        }
        (number, at) = (number + 1, at + bytes as u64);
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const JOB: Job = Job { seed: 7, pages: 2000, dirty_pages: 900, updates: 1, checkpoints: 2, iterations: 0 };

    #[test]
    fn a_log_has_whole_segments() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let memory = Arena::anonymous(JOB.bytes(), Backed::BasePages).unwrap();
        let log = Log::create(&path, &JOB).unwrap();
        let mut changed = Changed::none_of(JOB.pages);
        let (mut at, mut written) = (0, Vec::new());
        for turn in 0..2u32 {
            // More than one page of the list, and some pages in both turns.
            for page in (0..900).map(|i| (i * 7 + turn * 350) % 2000).chain([3, 3, 3]) {
                memory.write(page as usize * SUBPAGE_BYTES + 5, &[turn as u8 + 1; 2000]);
                changed.mark(page);
            }
            let pages = changed.take();
            assert!(pages.len() <= 901 && changed.take().is_empty());
            log.copy(&memory, &pages);
            // Written after the copy: not in the segment.
            memory.write(0, &[0xEE; 3]);
            written.push((at, pages.len()));
            at += log.append(turn.into(), at, &pages).unwrap();
            memory.write(0, &[0; 3]);
        }
        let replayed = |expected: u64| {
            let image = Arena::anonymous(JOB.bytes(), Backed::BasePages).unwrap();
            assert_eq!(replay(&path, &image, &JOB).unwrap(), expected);
            let (mut is, mut was) = (vec![0; JOB.bytes()], vec![0; JOB.bytes()]);
            image.read(0, &mut is);
            memory.read(0, &mut was);
            is == was
        };
        assert!(replayed(2));
        // A page of the last segment that did not arrive: it is not there at all.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let (second, pages) = written[1];
        let last = second + segment_bytes(pages) as u64 - 100;
        file.write_all_at(&[0x55; 100], last).unwrap();
        assert!(!replayed(1));
        // The first one's list.
        file.write_all_at(&[0x55], HEAD_BYTES as u64 + 1).unwrap();
        assert!(!replayed(0));
    }
}
