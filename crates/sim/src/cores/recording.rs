//! Recordings: the jobs of a run as its threads did them, before any cache, for other systems.
//!
//! A recording is a list of jobs in the order in which they began. A thread that takes a new job
//! takes the next one of the list, on every system. So all systems do the same jobs, and each
//! pollutes its own caches. A block of the thread's own is noted by its number alone, and stands
//! for the block with this number of the thread which replays the job.
//!
//! ```text
//!     0  magic                         8        80  jobs                             8
//!     8  version of the format         4        88  requests of the warm-up          8
//!    12  front: 0 modelled, 1 executed 4        96  bytes of the warm-up             8
//!    16  name of the workload         16       104  bytes of the jobs                8
//!    32  Zipf's exponent               8       112  zeros                           16
//!    40  seed                          8       128  CRC32C of warm-up and jobs       4
//!    48  pages of data                 8       132  CRC32C of all above              4
//!    56  pages of DRAM to warm up      8       136  warm-up: of each request, how many
//!    64  cores, threads of each    4 + 4            pages, and their differences
//!    72  instructions, own blocks  4 + 4            jobs: steps
//! ```
//!
//! Numbers of the header are little endian. A step is a number of 7 bits a byte (LEB128), whose
//! lowest 3 bits are the kind. The rest is a count of instructions, or the difference to the block
//! before, with the sign in the lowest bit. A job ends with its last step.
//!
//! Invariants: whatever [`Recording::read`] returns has been decoded to its end, so that a replay
//! meets no error. Equal runs give equal bytes.

use std::ops::Range;

use fulgurite_format::crc32c;
use serde::Serialize;
use thiserror::Error;

use super::work::{BLOCK, OWN_BLOCKS, PAGE, Space, Step, Workload};
use crate::fnv::Fnv;
use crate::trace::{Format, Record, Trace};

const MAGIC: [u8; 8] = *b"FULGJOBS";
/// The version of the format that is written and read.
const VERSION: u32 = 1;

/// The places of the header's fields.
mod field {
    use std::ops::Range;

    pub const MAGIC: Range<usize> = 0..8;
    pub const VERSION: Range<usize> = 8..12;
    pub const FRONT: Range<usize> = 12..16;
    pub const NAME: Range<usize> = 16..32;
    pub const EXPONENT: Range<usize> = 32..40;
    pub const SEED: Range<usize> = 40..48;
    pub const PAGES: Range<usize> = 48..56;
    pub const FRAMES: Range<usize> = 56..64;
    pub const CORES: Range<usize> = 64..68;
    pub const THREADS: Range<usize> = 68..72;
    pub const INSTRUCTIONS: Range<usize> = 72..76;
    pub const OWN: Range<usize> = 76..80;
    pub const JOBS: Range<usize> = 80..88;
    pub const REQUESTS: Range<usize> = 88..96;
    pub const WARM_BYTES: Range<usize> = 96..104;
    pub const JOB_BYTES: Range<usize> = 104..112;
    pub const ZEROS: Range<usize> = 112..128;
    pub const BODY_SUM: Range<usize> = 128..132;
    pub const HEADER_SUM: Range<usize> = 132..136;
    pub const END: usize = 136;
}

/// What an executed front may have between two accesses: instructions, and blocks of its own.
pub const INSTRUCTIONS: Range<u32> = 1..(1 << 20) + 1;
pub const OWN: Range<u32> = 0..OWN_BLOCKS as u32 + 1;
/// The most instructions of a step. Fronts make 1.5 times 2^20 at most.
const COMPUTE_MAX: u64 = 1 << 21;

/// Bytes of an access in a trace.
const WORD: u64 = 8;

// The kinds of steps.
const END: u64 = 0;
const COMPUTE: u64 = 1;
const LOAD: u64 = 2;
const DEPENDENT_LOAD: u64 = 3;
const STORE: u64 = 4;
const OWN_LOAD: u64 = 5;
const OWN_DEPENDENT_LOAD: u64 = 6;
const OWN_STORE: u64 = 7;

/// What is wrong with a recording.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// There are no bytes.
    #[error("the recording is empty")]
    Empty,
    /// It does not begin as one.
    #[error("this is no recording of a run")]
    Other,
    /// It is of another version of the format.
    #[error("the recording is of version {found}, and this program reads {}; record it again", VERSION)]
    Version {
        /// Its version.
        found: u32,
    },
    /// Its end is missing.
    #[error("the recording is truncated: {expected} B are expected, and there are {got}")]
    Truncated {
        /// Bytes that the header announces, or the header's own.
        expected: u64,
        /// Bytes that are there.
        got: u64,
    },
    /// Something follows its end.
    #[error("{surplus} B follow the end of the recording")]
    Surplus {
        /// How many.
        surplus: u64,
    },
    /// Its bytes are not those that were written.
    #[error("the {part} of the recording is damaged: its checksum is {expected:08x}, and it has {got:08x}")]
    Checksum {
        /// Header or body.
        part: &'static str,
        /// What is written.
        expected: u32,
        /// What its bytes give.
        got: u32,
    },
    /// A field of the header says what cannot be.
    #[error("the header of the recording has {0}")]
    Header(&'static str),
    /// The warm-up cannot be decoded.
    #[error("request {request} of the recording's warm-up: {told}")]
    WarmUp {
        /// Which, from 1 on.
        request: u64,
        /// What is wrong.
        told: &'static str,
    },
    /// A job cannot be decoded.
    #[error("job {job} of the recording, byte {at}: {told}")]
    Job {
        /// Which, from 1 on.
        job: u64,
        /// The byte of the file after which it is wrong.
        at: u64,
        /// What is wrong.
        told: &'static str,
    },
}

/// What was recorded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Origin {
    /// The workload.
    pub workload: Workload,
    /// Zipf's exponent of its records.
    pub exponent: f64,
    /// Pages of its data.
    pub pages: u64,
    /// Instructions, and blocks of the thread's own, between two accesses of an executed workload.
    /// None: it was modelled.
    pub executed: Option<(u32, u32)>,
    /// The seed.
    pub seed: u64,
    /// Cores of the system that ran it.
    pub cores: u32,
    /// Threads of each.
    pub threads: u32,
    /// Pages of DRAM that the warm-up of an executed workload is for.
    pub frames: u64,
}

/// A recording's contents in numbers, before it is replayed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RecordingSummary {
    /// `recording`.
    pub format: &'static str,
    /// The version of the format.
    pub version: u32,
    /// The workload.
    pub workload: &'static str,
    /// `modelled` or `executed`.
    pub front: &'static str,
    /// Zipf's exponent of its records.
    pub exponent: f64,
    /// Bytes of its data.
    pub data_bytes: u64,
    /// The seed.
    pub seed: u64,
    /// Cores of the system that ran it.
    pub cores: u32,
    /// Threads of each.
    pub threads: u32,
    /// Jobs.
    pub jobs: u64,
    /// Instructions of all jobs, loads and stores among them.
    pub instructions: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Requests that only warm DRAM up.
    pub warm_up_requests: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// What the steps of a job differ from: the block before, and the next of the thread's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trail {
    block: u64,
    own: u64,
}

impl Trail {
    /// Appends a step of a thread.
    pub fn write(&mut self, step: Step, space: Space, thread: u64, into: &mut Vec<u8>) {
        let ([shared, own], address) = match step {
            Step::End => return put(END, into),
            Step::Compute(count) => return put(u64::from(count) << 3 | COMPUTE, into),
            Step::Load { address, depends: false } => ([LOAD, OWN_LOAD], address),
            Step::Load { address, depends: true } => ([DEPENDENT_LOAD, OWN_DEPENDENT_LOAD], address),
            Step::Store { address } => ([STORE, OWN_STORE], address),
        };
        debug_assert!(address.is_multiple_of(BLOCK), "fronts touch whole blocks");
        let (kind, by) = match space.own_block(thread, address) {
            Some(block) => (own, difference(std::mem::replace(&mut self.own, block + 1), block)),
            None => (shared, difference(std::mem::replace(&mut self.block, address / BLOCK), address / BLOCK)),
        };
        put(by << 3 | kind, into);
    }
    /// Reads the step at a place, as one of a thread.
    fn read(&mut self, bytes: &[u8], at: &mut usize, space: Space, thread: u64) -> Result<Step, &'static str> {
        let token = number(bytes, at)?;
        let (kind, value) = (token & 7, token >> 3);
        let address = match kind {
            END if value == 0 => return Ok(Step::End),
            END => return Err("its end has a value"),
            COMPUTE if value <= COMPUTE_MAX => return Ok(Step::Compute(value as u32)),
            COMPUTE => return Err("it computes for too long at once"),
            LOAD | DEPENDENT_LOAD | STORE => {
                let block = moved(self.block, value).filter(|block| *block < space.shared_blocks());
                self.block = block.ok_or("an address is beyond the data")?;
                self.block * BLOCK
            }
            _ => {
                let block = moved(self.own, value).filter(|block| *block < OWN_BLOCKS);
                let block = block.ok_or("an address is beyond the thread's own")?;
                self.own = block + 1;
                space.own(thread, block)
            }
        };
        Ok(match kind {
            STORE | OWN_STORE => Step::Store { address },
            _ => Step::Load { address, depends: matches!(kind, DEPENDENT_LOAD | OWN_DEPENDENT_LOAD) },
        })
    }
}

fn put(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}
fn number(bytes: &[u8], at: &mut usize) -> Result<u64, &'static str> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *bytes.get(*at).ok_or("it ends within a number")?;
        *at += 1;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            break;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number has more than 64 bits")
}
/// From one number to another, with the sign in the lowest bit.
fn difference(from: u64, to: u64) -> u64 {
    let by = to.wrapping_sub(from) as i64;
    ((by << 1) ^ (by >> 63)) as u64
}
fn moved(from: u64, by: u64) -> Option<u64> {
    from.checked_add_signed((by >> 1) as i64 ^ -((by & 1) as i64))
}

/// Appends the pages of a request. `last` is the last one of the request before.
fn put_pages(pages: &[u64], last: &mut u64, into: &mut Vec<u8>) {
    // A page that was just touched is the last one anyway.
    let mut kept = pages.to_vec();
    kept.dedup();
    put(kept.len() as u64, into);
    for page in kept {
        put(difference(std::mem::replace(last, page), page), into);
    }
}

/// A recording that is being made.
#[derive(Debug)]
pub struct Recorder {
    origin: Origin,
    jobs: Vec<Vec<u8>>,
    warm: Vec<u8>,
    requests: u64,
    page: u64,
}

impl Recorder {
    /// Nothing yet.
    pub fn new(origin: Origin) -> Recorder {
        Recorder { origin, jobs: Vec::new(), warm: Vec::new(), requests: 0, page: 0 }
    }
    /// Begins a job. Returns its number.
    pub fn begin(&mut self) -> usize {
        self.jobs.push(Vec::new());
        self.jobs.len() - 1
    }
    /// Jobs that have begun.
    pub fn jobs(&self) -> u64 {
        self.jobs.len() as u64
    }
    /// Appends a step to a job.
    pub fn note(&mut self, job: usize, trail: &mut Trail, thread: u64, step: Step) {
        let space = Space { pages: self.origin.pages };
        trail.write(step, space, thread, &mut self.jobs[job]);
    }
    /// Appends a request of the warm-up.
    pub fn warm(&mut self, pages: &[u64]) {
        put_pages(pages, &mut self.page, &mut self.warm);
        self.requests += 1;
    }
    /// The recording. Each job must have ended.
    ///
    /// # Errors
    /// When a run has done what recordings do not hold.
    pub fn finish(self) -> Result<Recording, RecordingError> {
        let Recorder { origin, jobs, warm, requests, .. } = self;
        let (warm_bytes, count) = (warm.len() as u64, jobs.len() as u64);
        let mut bytes = vec![0; field::END];
        bytes.extend(warm);
        // Each job is freed as its bytes are added, so that they are there about once.
        jobs.into_iter().for_each(|job| bytes.extend(job));
        let job_bytes = (bytes.len() - field::END) as u64 - warm_bytes;
        let body = crc32c(&bytes[field::END..]);
        let mut set = |at: Range<usize>, value: &[u8]| bytes[at][..value.len()].copy_from_slice(value);
        let (instructions, own) = origin.executed.unwrap_or_default();
        set(field::MAGIC, &MAGIC);
        set(field::VERSION, &VERSION.to_le_bytes());
        set(field::FRONT, &u32::from(origin.executed.is_some()).to_le_bytes());
        set(field::NAME, origin.workload.name().as_bytes());
        set(field::EXPONENT, &origin.exponent.to_bits().to_le_bytes());
        set(field::SEED, &origin.seed.to_le_bytes());
        set(field::PAGES, &origin.pages.to_le_bytes());
        set(field::FRAMES, &origin.frames.to_le_bytes());
        set(field::CORES, &origin.cores.to_le_bytes());
        set(field::THREADS, &origin.threads.to_le_bytes());
        set(field::INSTRUCTIONS, &instructions.to_le_bytes());
        set(field::OWN, &own.to_le_bytes());
        set(field::JOBS, &count.to_le_bytes());
        set(field::REQUESTS, &requests.to_le_bytes());
        set(field::WARM_BYTES, &warm_bytes.to_le_bytes());
        set(field::JOB_BYTES, &job_bytes.to_le_bytes());
        set(field::BODY_SUM, &body.to_le_bytes());
        let sum = crc32c(&bytes[..field::HEADER_SUM.start]);
        bytes[field::HEADER_SUM].copy_from_slice(&sum.to_le_bytes());
        Recording::read(bytes)
    }
}

/// Jobs that any system can replay.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    origin: Origin,
    bytes: Vec<u8>,
    /// Where each job begins.
    jobs: Vec<u64>,
    requests: u64,
    instructions: u64,
    loads: u64,
    stores: u64,
    identity: u64,
}

impl Recording {
    /// Whether bytes begin as a recording's.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it. Each step has been decoded where there is no error.
    pub fn read(bytes: Vec<u8>) -> Result<Recording, RecordingError> {
        let got = bytes.len() as u64;
        if bytes.is_empty() {
            return Err(RecordingError::Empty);
        }
        if !MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
            return Err(RecordingError::Other);
        }
        let truncated = |expected: u64| RecordingError::Truncated { expected, got };
        if bytes.len() < field::VERSION.end {
            return Err(truncated(field::END as u64));
        }
        let u32_at = |at: Range<usize>| u32::from_le_bytes(bytes[at].try_into().expect("four bytes"));
        let u64_at = |at: Range<usize>| u64::from_le_bytes(bytes[at].try_into().expect("eight bytes"));
        // Another version may have another header.
        let found = u32_at(field::VERSION);
        if found != VERSION {
            return Err(RecordingError::Version { found });
        }
        if bytes.len() < field::END {
            return Err(truncated(field::END as u64));
        }
        let summed = |part, expected: u32, of: &[u8]| {
            let got = crc32c(of);
            if got == expected { Ok(()) } else { Err(RecordingError::Checksum { part, expected, got }) }
        };
        summed("header", u32_at(field::HEADER_SUM), &bytes[..field::HEADER_SUM.start])?;
        let origin = origin(&bytes)?;
        let [warm_bytes, job_bytes] = [field::WARM_BYTES, field::JOB_BYTES].map(u64_at);
        let expected = warm_bytes.checked_add(job_bytes).and_then(|body| body.checked_add(field::END as u64));
        let expected = expected.ok_or(RecordingError::Header("lengths of more than 2^64 bytes"))?;
        if got < expected {
            return Err(truncated(expected));
        }
        if got > expected {
            return Err(RecordingError::Surplus { surplus: got - expected });
        }
        summed("body", u32_at(field::BODY_SUM), &bytes[field::END..])?;
        let [count, requests] = [field::JOBS, field::REQUESTS].map(u64_at);
        // Each takes a byte at least.
        if count == 0 || count > job_bytes || requests > warm_bytes {
            return Err(RecordingError::Header("another number of jobs or requests than its lengths allow"));
        }
        let (mut instructions, mut loads, mut stores) = (0u64, 0, 0);
        let mut jobs = Vec::with_capacity(count as usize);
        let (space, mut at) = (Space { pages: origin.pages }, field::END + warm_bytes as usize);
        while jobs.len() as u64 != count {
            jobs.push(at as u64);
            let mut trail = Trail::default();
            loop {
                let step = trail.read(&bytes, &mut at, space, 0).map_err(|told| RecordingError::Job {
                    job: jobs.len() as u64,
                    at: at as u64,
                    told,
                })?;
                match step {
                    Step::Compute(count) => instructions += u64::from(count),
                    Step::Load { .. } => loads += 1,
                    Step::Store { .. } => stores += 1,
                    Step::End => break,
                }
            }
        }
        if at != bytes.len() {
            return Err(RecordingError::Header("fewer jobs than its lengths hold"));
        }
        instructions += loads + stores;
        let mut hash = Fnv::default();
        hash.add(&bytes);
        let recording = Recording { origin, bytes, jobs, requests, instructions, loads, stores, identity: hash.0 };
        recording.check_warm_up()?;
        Ok(recording)
    }
    fn check_warm_up(&self) -> Result<(), RecordingError> {
        let (mut warm_up, mut pages) = (self.warm_up(), Vec::new());
        for request in 1..=self.requests {
            let told = |told| RecordingError::WarmUp { request, told };
            warm_up.try_next(&mut pages).map_err(told)?;
            if pages.iter().any(|page| *page >= self.origin.pages) {
                return Err(told("a page is beyond the data"));
            }
        }
        if warm_up.at == warm_up.bytes.len() {
            Ok(())
        } else {
            Err(RecordingError::Header("fewer requests of the warm-up than its lengths hold"))
        }
    }
    /// Its bytes, as they are kept in a file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// What was recorded.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
    /// How many jobs it has.
    pub fn jobs(&self) -> u64 {
        self.jobs.len() as u64
    }
    /// A number that tells recordings apart: FNV-1a of all bytes.
    pub fn identity(&self) -> u64 {
        self.identity
    }
    /// What it holds.
    pub fn summary(&self) -> RecordingSummary {
        let Origin { workload, exponent, pages, executed, seed, cores, threads, .. } = self.origin;
        RecordingSummary {
            format: "recording",
            version: VERSION,
            workload: workload.name(),
            front: if executed.is_some() { "executed" } else { "modelled" },
            exponent,
            data_bytes: pages * PAGE,
            seed,
            cores,
            threads,
            jobs: self.jobs(),
            instructions: self.instructions,
            loads: self.loads,
            stores: self.stores,
            warm_up_requests: self.requests,
            bytes: self.bytes.len() as u64,
        }
    }
    /// Its accesses as a trace of one thread, with as many instructions between them. Addresses
    /// begin with the second page, as a format may have no address 0. Where jobs end, and which
    /// loads depend on others, is not said by any format.
    pub fn trace(&self) -> Trace {
        let (space, mut line) = (Space { pages: self.origin.pages }, 0);
        let mut records = Vec::with_capacity((self.loads + self.stores) as usize);
        for mut reading in (0..self.jobs()).filter_map(|number| self.job(number)) {
            loop {
                let (address, writes) = match self.step(&mut reading, space, 0) {
                    Step::End => break,
                    Step::Compute(count) => {
                        line += u64::from(count);
                        continue;
                    }
                    Step::Load { address, .. } => (address, false),
                    Step::Store { address } => (address, true),
                };
                line += 1;
                records.push(Record { line, at: None, writes, offset: PAGE + address, bytes: WORD });
            }
        }
        Trace { format: Format::Champsim, records }
    }
    /// The first step of a job, from 0 on. None: there are fewer.
    pub(super) fn job(&self, number: u64) -> Option<Reading> {
        let at = *self.jobs.get(number as usize)? as usize;
        Some(Reading { at, trail: Trail::default() })
    }
    /// The next step of a job, as one of a thread.
    pub(super) fn step(&self, reading: &mut Reading, space: Space, thread: u64) -> Step {
        let step = reading.trail.read(&self.bytes, &mut reading.at, space, thread);
        step.expect("each step was decoded when the recording was read")
    }
    /// The requests of its warm-up.
    pub(super) fn warm_up(&self) -> WarmUp<'_> {
        let bytes = self.jobs.first().map_or(&[][..], |first| &self.bytes[field::END..*first as usize]);
        WarmUp { bytes, at: 0, page: 0 }
    }
}

/// Where in a job a replay is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    at: usize,
    trail: Trail,
}

/// Requests of a warm-up, one after the other.
#[derive(Debug)]
pub(super) struct WarmUp<'r> {
    bytes: &'r [u8],
    at: usize,
    page: u64,
}

impl WarmUp<'_> {
    /// Puts the pages of the next request in the place of others. Returns whether there is one.
    pub fn next(&mut self, pages: &mut Vec<u64>) -> bool {
        self.at < self.bytes.len() && self.try_next(pages).is_ok()
    }
    fn try_next(&mut self, pages: &mut Vec<u64>) -> Result<(), &'static str> {
        pages.clear();
        for _ in 0..number(self.bytes, &mut self.at)? {
            let by = number(self.bytes, &mut self.at)?;
            self.page = moved(self.page, by).ok_or("a page is below the first one")?;
            pages.push(self.page);
        }
        Ok(())
    }
}

/// The origin in a header whose checksum is right.
fn origin(bytes: &[u8]) -> Result<Origin, RecordingError> {
    let wrong = RecordingError::Header;
    let u32_at = |at: Range<usize>| u32::from_le_bytes(bytes[at].try_into().expect("four bytes"));
    let u64_at = |at: Range<usize>| u64::from_le_bytes(bytes[at].try_into().expect("eight bytes"));
    let name = bytes[field::NAME].split(|byte| *byte == 0).next().unwrap_or_default();
    let workload = Workload::ALL.into_iter().find(|workload| workload.name().as_bytes() == name);
    let workload = workload.ok_or(wrong("an unknown workload"))?;
    let exponent = f64::from_bits(u64_at(field::EXPONENT));
    if !(0.1..=4.0).contains(&exponent) {
        return Err(wrong("an exponent that is not from 0.1 to 4"));
    }
    let pages = u64_at(field::PAGES);
    if !pages.is_power_of_two() || !(1 << 10..=1 << 28).contains(&pages) {
        return Err(wrong("another size of data than a power of two from 4M to 1T"));
    }
    let [cores, threads] = [field::CORES, field::THREADS].map(u32_at);
    if cores == 0 || threads == 0 {
        return Err(wrong("no cores or no threads"));
    }
    let executed = match u32_at(field::FRONT) {
        0 => None,
        1 => {
            let (instructions, own) = (u32_at(field::INSTRUCTIONS), u32_at(field::OWN));
            if !INSTRUCTIONS.contains(&instructions) || !OWN.contains(&own) {
                return Err(wrong("more instructions or blocks between two accesses than there may be, or none"));
            }
            Some((instructions, own))
        }
        _ => return Err(wrong("an unknown front end")),
    };
    if bytes[field::ZEROS].iter().any(|byte| *byte != 0) {
        return Err(wrong("something where zeros are"));
    }
    let (seed, frames) = (u64_at(field::SEED), u64_at(field::FRAMES));
    Ok(Origin { workload, exponent, pages, executed, seed, cores, threads, frames })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_differences_come_back() {
        for wanted in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let (mut bytes, mut at) = (Vec::new(), 0);
            put(wanted, &mut bytes);
            assert_eq!((number(&bytes, &mut at), at), (Ok(wanted), bytes.len()));
            bytes.pop();
            assert!(number(&bytes, &mut 0).is_err(), "{wanted}");
        }
        assert!(number(&[0xff; 10], &mut 0).is_err());
        for (from, to) in [(0, 0), (5, 3), (3, 5), (0, 1 << 60), (1 << 60, 0)] {
            assert_eq!(moved(from, difference(from, to)), Some(to));
        }
        assert_eq!(moved(0, difference(1, 0)), None);
    }
    #[test]
    fn steps_come_back_for_another_thread() {
        let space = Space { pages: 1 << 10 };
        let steps = |thread| {
            [
                Step::Compute(300),
                Step::Load { address: space.own(thread, 0), depends: false },
                Step::Load { address: space.own(thread, 7), depends: true },
                Step::Load { address: 64 * 1000, depends: true },
                Step::Store { address: 64 * 1000 },
                Step::Load { address: 64, depends: false },
                Step::Store { address: space.own(thread, 1) },
                Step::End,
            ]
        };
        let mut bytes = Vec::new();
        let mut trail = Trail::default();
        steps(3).into_iter().for_each(|step| trail.write(step, space, 3, &mut bytes));
        let (mut trail, mut at) = (Trail::default(), 0);
        let read = steps(9).map(|_| trail.read(&bytes, &mut at, space, 9).unwrap());
        assert_eq!((read, at), (steps(9), bytes.len()));
    }
    #[test]
    fn requests_of_the_warm_up_come_back() {
        let (mut bytes, mut last, mut pages) = (Vec::new(), 0, Vec::new());
        for request in [&[5, 5, 9, 2, 2][..], &[], &[2, 1]] {
            put_pages(request, &mut last, &mut bytes);
        }
        let mut warm_up = WarmUp { bytes: &bytes, at: 0, page: 0 };
        for wanted in [&[5, 9, 2][..], &[], &[2, 1]] {
            assert!(warm_up.next(&mut pages));
            assert_eq!(pages, wanted);
        }
        assert!(!warm_up.next(&mut pages));
    }
}
