//! Traces of other programs, read and written: an error names its line by number.
//!
//! | format | a line |
//! |---|---|
//! | `msr` | `time,host,disk,Read|Write,offset,size,response`: times in units of 100 ns |
//! | `mqsim` | `time device sector sectors type`: nanoseconds, sectors of 512 B, 0 writes and 1 reads |
//! | `dramsim3` | `address READ|WRITE cycle`: addresses in hexadecimal |
//! | `hybridsim` | `cycle type address`: 1 writes and 0 reads |
//! | `ramulator2` | `LD|ST address`, and no other kind of its traces |
//! | `champsim` | 64 bytes for each instruction, not text |
//! | `lis` | `first-page pages 0 number`: pages of 512 B, reads only |
//! | `blkparse` | `disk cpu number seconds process action type sector + sectors [name]` |
//! | `fio` | `milliseconds, value, type, size, offset, priority`: 0 reads, 1 writes |
//!
//! The summary that ends what blkparse prints is skipped, and accesses behind it are refused. Where
//! fio has no offsets, or Ramulator 2's trace is of another kind, the error says so.
//!
//! What a format does not say is not made up: `ramulator2`, `champsim` and `lis` have no times.
//! Cycles are times only with the clock of the system that recorded them.
//!
//! A trace is read piece by piece, also where gzip or xz has compressed it. Bounds hold for the
//! accesses, a line, and the memory that xz takes, so that small files do not become large ones.

mod champsim;
mod compressed;
mod formats;

use std::io::{self, BufRead, BufReader, Read};

use serde::Serialize;
use thiserror::Error;

pub use self::compressed::CompressedError;
use self::compressed::Source;
use crate::time::Time;

/// One access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its line in the file, from 1 on. In a file that is not text, the number of its instruction.
    pub line: u64,
    /// When, from the first one on.
    pub at: Option<Time>,
    /// It writes.
    pub writes: bool,
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// How a trace is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Of Microsoft Research Cambridge (Narayanan et al., FAST 2008).
    Msr,
    /// Of MQSim.
    Mqsim,
    /// Of DRAMsim3.
    Dramsim3,
    /// Of HybridSim.
    Hybridsim,
    /// Of Ramulator 2: loads and stores.
    Ramulator2,
    /// Of ChampSim.
    Champsim,
    /// Of Megiddo and Modha (ARC, FAST 2003).
    Lis,
    /// What blkparse prints.
    Blkparse,
    /// A log of fio, with offsets.
    Fio,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 9] = [
        Format::Msr,
        Format::Mqsim,
        Format::Dramsim3,
        Format::Hybridsim,
        Format::Ramulator2,
        Format::Champsim,
        Format::Lis,
        Format::Blkparse,
        Format::Fio,
    ];
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Msr => "msr",
            Format::Mqsim => "mqsim",
            Format::Dramsim3 => "dramsim3",
            Format::Hybridsim => "hybridsim",
            Format::Ramulator2 => "ramulator2",
            Format::Champsim => "champsim",
            Format::Lis => "lis",
            Format::Blkparse => "blkparse",
            Format::Fio => "fio",
        }
    }
    /// Whether its times are cycles of a clock that it does not name.
    pub const fn counts_cycles(self) -> bool {
        matches!(self, Format::Dramsim3 | Format::Hybridsim)
    }
    /// Whether the line of a record is the number of its instruction, so that a trace tells how
    /// many instructions are between two accesses.
    pub const fn counts_instructions(self) -> bool {
        matches!(self, Format::Champsim)
    }
    /// The format of a name.
    pub fn named(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// It has no accesses.
    #[error("the trace has no accesses")]
    Empty,
    /// It is of none of the formats.
    #[error("line {line} is of no known format; name a trace's: {}", Format::ALL.map(Format::name).join(", "))]
    Unknown {
        /// The first line that says something.
        line: u64,
    },
    /// It is compressed, and damaged or by a method that is not read.
    #[error(transparent)]
    Compressed(#[from] CompressedError),
    /// It cannot be read.
    #[error("the trace cannot be read: {0}")]
    Unread(String),
    /// It has too many accesses.
    #[error("line {line} is beyond the {most} accesses that a trace may have; cut the trace there")]
    Long {
        /// The first line that is too many.
        line: u64,
        /// The most.
        most: u64,
    },
    /// A line that is not of the format.
    #[error("line {line} is not of the format {}: {told}", .format.name())]
    Line {
        /// Which.
        line: u64,
        /// The format.
        format: Format,
        /// What is wrong.
        told: &'static str,
    },
    /// Times are cycles, and the clock is not known.
    #[error("times of {} are cycles; give the clock with --clock", .0.name())]
    Clock(Format),
    /// A record cannot be written in a format.
    #[error("{} cannot say this: {told}", .format.name())]
    Unsaid {
        /// The format.
        format: Format,
        /// What it lacks.
        told: &'static str,
    },
}

impl TraceError {
    /// Of an error that reading gave.
    fn of(error: io::Error) -> TraceError {
        match error.downcast::<CompressedError>() {
            Ok(own) => TraceError::Compressed(own),
            Err(error) => TraceError::Unread(error.to_string()),
        }
    }
}

/// What a trace holds, before it is used.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Its format.
    pub format: Format,
    /// Accesses.
    pub accesses: u64,
    /// Of them, those that write.
    pub writes: u64,
    /// Bytes of all accesses.
    pub bytes: u64,
    /// One byte beyond the last that is touched.
    pub end: u64,
    /// From the first access to the last, in seconds. None without times.
    pub span_s: Option<f64>,
    /// Whether times never go back. None without times.
    pub sorted: Option<bool>,
}

/// Accesses in the order of the file.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// How it was written.
    pub format: Format,
    /// The accesses.
    pub records: Vec<Record>,
}

impl Trace {
    /// Reads a trace that is in memory: [`Trace::read_from`].
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(bytes: &[u8], format: Option<Format>, cycle: Option<Time>) -> Result<Trace, TraceError> {
        Trace::read_from(bytes, format, cycle)
    }
    /// Reads a trace, compressed by gzip or xz or not, piece by piece. Without a `format` the first
    /// line decides. `cycle` is the time of a cycle, where times are cycles.
    ///
    /// # Errors
    /// What is wrong with it, with the line. Where compressed bytes are damaged, with their place.
    pub fn read_from(reader: impl BufRead, format: Option<Format>, cycle: Option<Time>) -> Result<Trace, TraceError> {
        Trace::read_within(reader, format, cycle, ACCESSES_MAX)
    }
    /// Reads a trace of at most a number of accesses.
    fn read_within(
        reader: impl BufRead,
        format: Option<Format>,
        cycle: Option<Time>,
        most: usize,
    ) -> Result<Trace, TraceError> {
        let mut source = Source::open(reader).map_err(TraceError::of)?;
        let head = filled(&mut source, HEAD_BYTES)?;
        let format = match format {
            Some(format) => format,
            None => detect(&head, head.len() < HEAD_BYTES)?,
        };
        if format.counts_cycles() && cycle.is_none() {
            return Err(TraceError::Clock(format));
        }
        let mut records = Records { all: Vec::new(), most };
        let bytes = head.as_slice().chain(BufReader::with_capacity(HEAD_BYTES, source));
        if format == Format::Champsim {
            champsim::read(bytes, &mut records)?;
        } else {
            read_lines(bytes, format, cycle, &mut records)?;
        }
        let Records { all: records, .. } = records;
        if records.is_empty() {
            return Err(TraceError::Empty);
        }
        Ok(Trace { format, records })
    }
    /// Writes it in a format. `cycle` is the time of a cycle, where times are cycles.
    ///
    /// # Errors
    /// When the format cannot say what a record says.
    pub fn write(&self, format: Format, cycle: Option<Time>) -> Result<Vec<u8>, TraceError> {
        if format.counts_cycles() && cycle.is_none() {
            return Err(TraceError::Clock(format));
        }
        let unsaid = |told| TraceError::Unsaid { format, told };
        let mut out = Vec::new();
        if format == Format::Champsim {
            champsim::write(&self.records, self.format.counts_instructions(), &mut out).map_err(unsaid)?;
            return Ok(out);
        }
        for (number, record) in self.records.iter().enumerate() {
            out.extend(formats::show(format, number as u64, record, cycle).map_err(unsaid)?.bytes());
            out.push(b'\n');
        }
        Ok(out)
    }
    /// What it holds.
    pub fn summary(&self) -> Summary {
        let of = || self.records.iter();
        let times: Vec<Time> = of().filter_map(|record| record.at).collect();
        let span = times.iter().max().zip(times.iter().min());
        Summary {
            format: self.format,
            accesses: self.records.len() as u64,
            writes: of().filter(|record| record.writes).count() as u64,
            bytes: of().fold(0, |sum, record| sum.saturating_add(record.bytes)),
            end: of().map(|record| record.offset + record.bytes).max().unwrap_or(0),
            span_s: span.map(|(last, first)| (*last - *first).as_s()),
            sorted: span.map(|_| times.is_sorted()),
        }
    }
}

/// Accesses as they are read.
struct Records {
    all: Vec<Record>,
    most: usize,
}

impl Records {
    fn push(&mut self, record: Record) -> Result<(), TraceError> {
        if self.all.len() >= self.most {
            return Err(TraceError::Long { line: record.line, most: self.most as u64 });
        }
        self.all.push(record);
        Ok(())
    }
}

/// The next `most` bytes, or all that are left.
fn filled(source: &mut impl Read, most: usize) -> Result<Vec<u8>, TraceError> {
    let mut bytes = Vec::new();
    source.take(most as u64).read_to_end(&mut bytes).map_err(TraceError::of)?;
    Ok(bytes)
}

fn read_lines(
    mut bytes: impl BufRead,
    format: Format,
    cycle: Option<Time>,
    records: &mut Records,
) -> Result<(), TraceError> {
    let (mut line, mut number, mut summary) = (Vec::new(), 0, false);
    loop {
        line.clear();
        (&mut bytes).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line).map_err(TraceError::of)?;
        if line.is_empty() {
            break;
        }
        number += 1;
        let wrong = |told| TraceError::Line { line: number, format, told };
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err(wrong("it is longer than 64 KiB"));
        }
        let text = std::str::from_utf8(bare(&line)).map_err(|_| wrong("it is not text"))?;
        summary |= format == Format::Blkparse && formats::begins_summary(text);
        let said = match formats::line(format, text) {
            Ok(Some(_)) if summary => return Err(wrong("it is behind the summary: read one output at a time")),
            _ if summary => None,
            said => said.map_err(wrong)?,
        };
        if let Some(formats::ParsedLine { at, writes, offset, bytes }) = said {
            if offset.checked_add(bytes).is_none() {
                return Err(wrong("it ends beyond 2^64 bytes"));
            }
            // In the format's unit for now.
            records.push(Record { line: number, at: at.map(Time), writes, offset, bytes })?;
        }
    }
    // Times begin with the first access, whatever a format counts from.
    let first = records.all.iter().filter_map(|record| record.at).min().unwrap_or_default();
    let unit = formats::unit(format, cycle);
    for record in &mut records.all {
        let wrong = TraceError::Line { line: record.line, format, told: "it is more than 100 days after the first" };
        let scaled = |at: Time| (at.0 - first.0).checked_mul(unit.0).filter(|ps| *ps <= LONGEST_PS).ok_or(wrong);
        record.at = record.at.map(scaled).transpose()?.map(Time);
    }
    Ok(())
}

/// The longest trace: 100 days, half of what a time holds.
const LONGEST_PS: u64 = 100 * 24 * 3600 * 1_000_000_000_000;
/// The most accesses of a trace: 6 GiB of records.
const ACCESSES_MAX: usize = 1 << 27;
/// The most bytes of a line. Compressed, one of gigabytes would be small.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Bytes by which a format is recognised: 1024 of ChampSim's records.
const HEAD_BYTES: usize = 64 << 10;

/// A line without its end.
fn bare(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The format of the first line that says something. A line that two formats read is of the first
/// in the order of [`Format::ALL`], which asks for most comes first. Of a trace that goes on behind
/// `head`, the last line and the last record may be cut.
fn detect(head: &[u8], whole: bool) -> Result<Format, TraceError> {
    if head.is_empty() {
        return Err(TraceError::Empty);
    }
    let cut = |line: &&[u8]| whole || line.ends_with(b"\n");
    let text: Vec<&[u8]> = head.split_inclusive(|byte| *byte == b'\n').filter(cut).map(bare).take(64).collect();
    let of = |format: Format| {
        text.iter().find_map(|line| {
            let line = std::str::from_utf8(line).ok()?;
            formats::line(format, line).transpose().map(|said| said.is_ok())
        })
    };
    let texts = Format::ALL.into_iter().filter(|format| *format != Format::Champsim);
    if let Some(format) = texts.into_iter().find(|format| of(*format) == Some(true)) {
        return Ok(format);
    }
    if champsim::looks_like(head) {
        return Ok(Format::Champsim);
    }
    let at = text.iter().position(|line| !line.trim_ascii().is_empty());
    let first = at.and_then(|at| std::str::from_utf8(text[at]).ok());
    match (first.and_then(formats::known), at) {
        (Some(format), _) => Ok(format),
        (None, Some(at)) => Err(TraceError::Unknown { line: at as u64 + 1 }),
        (None, None) if whole => Err(TraceError::Empty),
        (None, None) => Err(TraceError::Unknown { line: text.len() as u64 + 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_reported_with_the_line() {
        let text = b"LD 0x40\n\nST 0x80\nLD 0xc0\n";
        let read = |most| Trace::read_within(text.as_slice(), None, None, most);
        assert_eq!(read(3).unwrap().records.len(), 3);
        assert_eq!(read(2).unwrap_err(), TraceError::Long { line: 4, most: 2 });
        let record = [[0; 32].as_slice(), &64u64.to_le_bytes(), &128u64.to_le_bytes(), &[0; 16]].concat();
        let read = |most| Trace::read_within(record.as_slice(), Some(Format::Champsim), None, most);
        assert_eq!(read(2).unwrap().records.len(), 2);
        assert_eq!(read(1).unwrap_err(), TraceError::Long { line: 1, most: 1 });
        let long = [b"LD 0x40\n".as_slice(), &[b' '; LINE_BYTES_MAX as usize], b"\n"].concat();
        let told = Trace::read(&long, None, None).unwrap_err().to_string();
        assert!(told.contains("line 2") && told.contains("64 KiB"), "{told}");
    }
    #[test]
    fn what_crosses_the_end_of_the_head_is_read() {
        const COUNT: usize = 2 * HEAD_BYTES / 9;
        // Lines of 9 bytes, the last one without an end, from a reader that gives 37 at a time.
        let lines: Vec<u8> = b"LD 40960\n".repeat(COUNT);
        let pieces = |bytes| Trace::read_from(BufReader::with_capacity(37, bytes), None, None).unwrap();
        let trace = pieces(&lines[..lines.len() - 1]);
        assert_eq!((trace.format, trace.records.len()), (Format::Ramulator2, COUNT));
        assert!(trace.records.iter().zip(1..).all(|(record, line)| record.line == line && record.offset == 40960));
        let records = trace.records.into_iter().map(|record| Record { bytes: 8, ..record }).collect();
        let trace = Trace { format: Format::Champsim, records };
        let written = trace.write(Format::Champsim, None).unwrap();
        assert_eq!((written.len(), pieces(&written)), (COUNT * 64, trace));
        // A comment that fills the head says nothing of a format.
        let comment = [&[b'#'; HEAD_BYTES][..], b"\nLD 4096\n"].concat();
        assert_eq!(Trace::read(&comment, None, None).unwrap_err(), TraceError::Unknown { line: 1 });
    }
}
