//! ChampSim's records: 64 bytes for each instruction, little endian.
//!
//! ```text
//!   0   ip                      8
//!   8   is branch, was taken    1 + 1
//!  10   registers written       2
//!  12   registers read          4
//!  16   addresses written       2 x 8    0: none
//!  32   addresses read          4 x 8    0: none
//! ```

use std::io::Read;

use super::{Format, Record, Records, TraceError, filled};

const RECORD: usize = 64;
/// Bytes that are read at a time: whole records.
const PIECE: usize = 1024 * RECORD;
const WRITTEN: std::ops::Range<usize> = 16..32;
const READ: std::ops::Range<usize> = 32..64;
/// Bytes of an access: the format does not say them, and caches fetch blocks of 64.
const ACCESS: u64 = 8;
/// The most bytes of an access that is written: a cache block's.
const ACCESS_MAX: u64 = 64;

fn addresses(part: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let all = part.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    all.filter(|address| *address != 0)
}

/// Whether bytes, of which the last ones may be missing, could be such records.
pub fn looks_like(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.len().is_multiple_of(RECORD)
        && bytes.chunks_exact(RECORD).all(|record| record[8] <= 1 && record[9] <= 1)
}

/// Reads records.
pub fn read(mut bytes: impl Read, records: &mut Records) -> Result<(), TraceError> {
    let mut line = 0;
    loop {
        let piece = filled(&mut bytes, PIECE)?;
        let (whole, rest) = piece.as_chunks::<RECORD>();
        for record in whole {
            line += 1;
            instruction(record, line, records)?;
        }
        if !rest.is_empty() {
            return Err(TraceError::Line { line: line + 1, format: Format::Champsim, told: "the record is not whole" });
        }
        if piece.len() < PIECE {
            return Ok(());
        }
    }
}

fn instruction(record: &[u8; RECORD], line: u64, records: &mut Records) -> Result<(), TraceError> {
    let wrong = |told| TraceError::Line { line, format: Format::Champsim, told };
    if record[8] > 1 || record[9] > 1 {
        return Err(wrong("whether it is a branch is neither 0 nor 1"));
    }
    // An instruction reads before it writes.
    for (part, writes) in [(&record[READ], false), (&record[WRITTEN], true)] {
        for offset in addresses(part) {
            if offset.checked_add(ACCESS).is_none() {
                return Err(wrong("it ends beyond 2^64 bytes"));
            }
            records.push(Record { line, at: None, writes, offset, bytes: ACCESS })?;
        }
    }
    Ok(())
}

/// Writes accesses. With `lines`, each goes to the instruction of its line, and those that access
/// nothing are written, too. An access for which that instruction has no room goes to one behind.
/// Without `lines`, each access is an instruction of its own.
///
/// # Errors
/// What a record cannot say.
pub fn write(records: &[Record], lines: bool, out: &mut Vec<u8>) -> Result<(), &'static str> {
    for record in records {
        if record.offset == 0 {
            return Err("address 0 stands for no access");
        }
        if record.bytes > ACCESS_MAX {
            return Err("an access has 64 B at most");
        }
        let written = (out.len() / RECORD) as u64;
        if lines && record.line == written {
            let (whole, _) = out.as_chunks_mut::<RECORD>();
            if whole.last_mut().is_some_and(|last| put(record, last)) {
                continue;
            }
        }
        if lines {
            let before = record.line.saturating_sub(1) as usize * RECORD;
            out.resize(out.len().max(before), 0);
        }
        let mut bytes = [0; RECORD];
        put(record, &mut bytes);
        out.extend(bytes);
    }
    Ok(())
}

/// Puts an access into an instruction. Returns whether it has room.
fn put(record: &Record, bytes: &mut [u8; RECORD]) -> bool {
    // It reads before it writes.
    if !record.writes && bytes[WRITTEN].iter().any(|byte| *byte != 0) {
        return false;
    }
    let part = &mut bytes[if record.writes { WRITTEN } else { READ }];
    match part.chunks_exact_mut(8).find(|place| place.iter().all(|byte| *byte == 0)) {
        Some(place) => {
            place.copy_from_slice(&record.offset.to_le_bytes());
            true
        }
        None => false,
    }
}
