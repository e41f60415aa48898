//! Traces of other programs, read and written: which line is wrong is told by its number.
//!
//! | format | a line |
//! |---|---|
//! | `msr` | `time,host,disk,Read|Write,offset,size,response`: times in units of 100 ns |
//! | `mqsim` | `time device sector sectors type`: nanoseconds, sectors of 512 B, 0 writes and 1 reads |
//! | `dramsim3` | `address READ|WRITE cycle`: addresses in hexadecimal |
//! | `hybridsim` | `cycle type address`: 1 writes and 0 reads |
//! | `ramulator2` | `LD|ST address` or `R|W address` |
//! | `champsim` | 64 bytes for each instruction, not text |
//! | `lis` | `first-page pages 0 number`: pages of 512 B, reads only |
//! | `blkparse` | `disk cpu number seconds process action type sector + sectors [name]` |
//! | `fio` | `milliseconds, value, type, size, offset[, priority]`: 0 reads, 1 writes |
//!
//! What a format does not say is not made up: `ramulator2`, `champsim` and `lis` have no times.
//! Cycles are times only with the clock of the system that recorded them.

mod champsim;
mod formats;

use serde::Serialize;
use thiserror::Error;

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
    /// Of Ramulator 2: loads and stores, or reads and writes.
    Ramulator2,
    /// Of ChampSim.
    Champsim,
    /// Of Megiddo and Modha (ARC, FAST 2003).
    Lis,
    /// What blkparse prints.
    Blkparse,
    /// A log of fio.
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
    /// many instructions lie between two accesses.
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
    /// It is compressed.
    #[error("the trace is compressed; give what {0} prints")]
    Compressed(&'static str),
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
    /// Reads a trace. Without a `format` the first line decides. `cycle` is the time of a cycle,
    /// where times are cycles.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(bytes: &[u8], format: Option<Format>, cycle: Option<Time>) -> Result<Trace, TraceError> {
        match bytes {
            [0x1f, 0x8b, ..] => return Err(TraceError::Compressed("gzip -dc")),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => return Err(TraceError::Compressed("xz -dc")),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => return Err(TraceError::Compressed("zstd -dc")),
            _ => {}
        }
        let format = match format {
            Some(format) => format,
            None => detect(bytes)?,
        };
        if format.counts_cycles() && cycle.is_none() {
            return Err(TraceError::Clock(format));
        }
        let mut records = Vec::new();
        if format == Format::Champsim {
            champsim::read(bytes, &mut records)?;
        } else {
            read_lines(bytes, format, cycle, &mut records)?;
        }
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

fn read_lines(bytes: &[u8], format: Format, cycle: Option<Time>, records: &mut Vec<Record>) -> Result<(), TraceError> {
    let mut times = Vec::new();
    for (at, line) in lines(bytes).enumerate() {
        let number = at as u64 + 1;
        let wrong = |told| TraceError::Line { line: number, format, told };
        let text = std::str::from_utf8(line).map_err(|_| wrong("it is not text"))?;
        if let Some(formats::Said { at, writes, offset, bytes }) = formats::line(format, text).map_err(wrong)? {
            if offset.checked_add(bytes).is_none() {
                return Err(wrong("it ends beyond 2^64 bytes"));
            }
            records.push(Record { line: number, at: None, writes, offset, bytes });
            times.push(at);
        }
    }
    // Times begin with the first access, whatever a format counts from.
    let (first, unit) = (times.iter().flatten().min().copied().unwrap_or(0), formats::unit(format, cycle));
    for (record, at) in records.iter_mut().zip(times) {
        let wrong = TraceError::Line { line: record.line, format, told: "it is more than 100 days after the first" };
        let scaled = |at: u64| (at - first).checked_mul(unit.0).filter(|ps| *ps <= LONGEST_PS).ok_or(wrong);
        record.at = at.map(scaled).transpose()?.map(Time);
    }
    Ok(())
}

/// The longest trace: 100 days, half of what a time holds.
const LONGEST_PS: u64 = 100 * 24 * 3600 * 1_000_000_000_000;

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// The format of the first line that says something. A line that two formats read is of the first
/// in the order of [`Format::ALL`], which asks for most comes first.
fn detect(bytes: &[u8]) -> Result<Format, TraceError> {
    if bytes.is_empty() {
        return Err(TraceError::Empty);
    }
    let text: Vec<&[u8]> = lines(bytes).take(64).collect();
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
    if champsim::looks_like(bytes) {
        return Ok(Format::Champsim);
    }
    let at = text.iter().position(|line| !line.trim_ascii().is_empty());
    at.map_or(Err(TraceError::Empty), |at| Err(TraceError::Unknown { line: at as u64 + 1 }))
}
