//! The lines of each format of text.

use super::{Format, Record};
use crate::time::Time;

const SECTOR: u64 = 512;
/// A page of the traces of Megiddo and Modha.
const LIS_PAGE: u64 = 512;
/// What an access of a memory's trace moves: a block of the caches.
const BLOCK: u64 = 64;

/// The unit of a format's times.
pub fn unit(format: Format, cycle: Option<Time>) -> Time {
    match format {
        // Windows' file times.
        Format::Msr => Time::ns(100),
        Format::Mqsim | Format::Blkparse => Time::ns(1),
        Format::Fio => Time::us(1000),
        Format::Dramsim3 | Format::Hybridsim => cycle.unwrap_or_default(),
        Format::Ramulator2 | Format::Champsim | Format::Lis => Time::ZERO,
    }
}

/// What a line says.
pub struct ParsedLine {
    /// In the format's unit.
    pub at: Option<u64>,
    pub writes: bool,
    pub offset: u64,
    pub bytes: u64,
}

type Read = Result<Option<ParsedLine>, &'static str>;

/// What a line says, in a format of text. None where it says nothing of an access.
pub fn line(format: Format, text: &str) -> Read {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    match format {
        Format::Msr => msr(text),
        Format::Mqsim => mqsim(text),
        Format::Dramsim3 => dramsim3(text),
        Format::Hybridsim => hybridsim(text),
        Format::Ramulator2 => ramulator2(text),
        Format::Lis => lis(text),
        Format::Blkparse => blkparse(text),
        Format::Fio => fio(text),
        Format::Champsim => Err("it is not text"),
    }
}

fn fields<const N: usize>(text: &str) -> Result<[&str; N], &'static str> {
    let mut parts = text.split_whitespace();
    let all: [Option<&str>; N] = std::array::from_fn(|_| parts.next());
    if parts.next().is_some() || all.contains(&None) {
        return Err("it has another number of fields");
    }
    Ok(all.map(|part| part.expect("all are there")))
}
fn number(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "a number is needed, and there is something else")
}
fn address(text: &str) -> Result<u64, &'static str> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "an address is needed, and there is something else")
}
/// Whether an access writes, by the words of its format.
fn writes(what: &str, read: &[&str], write: &[&str], told: &'static str) -> Result<bool, &'static str> {
    if write.contains(&what) { Ok(true) } else { read.contains(&what).then_some(false).ok_or(told) }
}
/// What an access is for, which is more than nothing.
fn some(bytes: u64, told: &'static str) -> Result<u64, &'static str> {
    if bytes > 0 { Ok(bytes) } else { Err(told) }
}
fn times(a: u64, b: u64) -> Result<u64, &'static str> {
    a.checked_mul(b).ok_or("a number is too large")
}

fn msr(text: &str) -> Read {
    let mut parts = text.split(',').map(str::trim);
    let all: [Option<&str>; 7] = std::array::from_fn(|_| parts.next());
    let [Some(at), Some(_), Some(disk), Some(what), Some(offset), Some(size), Some(response)] = all else {
        return Err("it has fewer than seven fields");
    };
    if parts.next().is_some() {
        return Err("it has more than seven fields");
    }
    number(disk)?;
    number(response)?;
    let writes = writes(what, &["Read"], &["Write"], "an access is Read or Write")?;
    let (at, bytes) = (number(at)?, some(number(size)?, "it is of 0 bytes")?);
    Ok(Some(ParsedLine { at: Some(at), writes, offset: number(offset)?, bytes }))
}

fn mqsim(text: &str) -> Read {
    let [at, device, sector, sectors, what] = fields::<5>(text)?;
    number(device)?;
    let writes = writes(what, &["1"], &["0"], "the type is 0 (write) or 1 (read)")?;
    let bytes = some(times(number(sectors)?, SECTOR)?, "it is of 0 sectors")?;
    Ok(Some(ParsedLine { at: Some(number(at)?), writes, offset: times(number(sector)?, SECTOR)?, bytes }))
}

fn dramsim3(text: &str) -> Read {
    let [at, what, cycles] = fields::<3>(text)?;
    let writes = writes(what, &["READ", "P_MEM_RD"], &["WRITE", "P_MEM_WR"], "an access is READ or WRITE")?;
    Ok(Some(ParsedLine { at: Some(number(cycles)?), writes, offset: address(at)?, bytes: BLOCK }))
}

fn hybridsim(text: &str) -> Read {
    let [cycles, what, at] = fields::<3>(text)?;
    let writes = writes(what, &["0"], &["1"], "the type is 0 (read) or 1 (write)")?;
    Ok(Some(ParsedLine { at: Some(number(cycles)?), writes, offset: address(at)?, bytes: BLOCK }))
}

/// Of Ramulator 2's kinds of traces this is the one that has addresses and nothing else.
fn ramulator2(text: &str) -> Read {
    const EXPECTED: &str = "loads and stores are read (LD 0x40), and neither vectors of addresses (R 0,1,2,3) nor \
                        processor traces (bubbles load [store])";
    let (what, at) = text.split_once(char::is_whitespace).ok_or(EXPECTED)?;
    let writes = writes(what, &["LD"], &["ST"], EXPECTED)?;
    let at = at.trim_start();
    Ok(Some(ParsedLine { at: None, writes, offset: address(at)?, bytes: BLOCK }))
}

fn lis(text: &str) -> Read {
    let [first, count, zero, sequence] = fields::<4>(text)?;
    number(sequence)?;
    if zero != "0" {
        return Err("the third field is 0");
    }
    let bytes = some(times(number(count)?, LIS_PAGE)?, "it is of 0 pages")?;
    Ok(Some(ParsedLine { at: None, writes: false, offset: times(number(first)?, LIS_PAGE)?, bytes }))
}

/// Only requests that the driver was given (D): what waited, was merged or has ended is the same
/// request again. Names of files that were opened come before them.
fn blkparse(text: &str) -> Read {
    if text.starts_with("Input file ") {
        return Ok(None);
    }
    let mut parts = text.split_whitespace();
    let mut next = || parts.next().ok_or("it has too few fields");
    let (device, _, _, seconds, _, action, what) = (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
    if !device.split_once(',').is_some_and(|(major, minor)| number(major).is_ok() && number(minor).is_ok()) {
        return Err("it does not begin with a device");
    }
    if action != "D" {
        return Ok(None);
    }
    let (whole, part) = seconds.split_once('.').ok_or("its time has no point")?;
    if part.len() != 9 {
        return Err("its time has not nine digits after the point");
    }
    let ns = times(number(whole)?, 1_000_000_000)?.checked_add(number(part)?).ok_or("a number is too large")?;
    let writes = match (what.contains('R'), what.contains('W')) {
        (true, false) => false,
        (false, true) => true,
        // Flushes and discards move no data.
        _ => return Ok(None),
    };
    let (sector, plus, sectors) = (next()?, next()?, next()?);
    if plus != "+" {
        return Err("there is no + before its sectors");
    }
    let bytes = times(number(sectors)?, SECTOR)?;
    if bytes == 0 {
        return Ok(None);
    }
    Ok(Some(ParsedLine { at: Some(ns), writes, offset: times(number(sector)?, SECTOR)?, bytes }))
}

/// Without offsets fio writes five fields, of which the last is the priority.
fn fio(text: &str) -> Read {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [at, value, what, size, offset, priority] = parts[..] else {
        return Err("it has not six fields: fio writes offsets with log_offset=1, and an old fio no priority \
                    behind them, for which \", 0\" can stand");
    };
    address(priority)?;
    number(value)?;
    if what == "2" {
        return Ok(None);
    }
    let writes = writes(what, &["0"], &["1"], "the type is 0 (read), 1 (write) or 2 (trim)")?;
    let bytes = some(number(size)?, "it is of 0 bytes")?;
    Ok(Some(ParsedLine { at: Some(number(at)?), writes, offset: address(offset)?, bytes }))
}

/// The format of a line that its program writes and that says too little: [`line`] tells what.
pub fn known(text: &str) -> Option<Format> {
    let numbers = |text: &str| text.split(',').filter(|part| address(part.trim()).is_ok()).count();
    let commas = text.split(',').count();
    match text.trim().split_once(' ') {
        _ if matches!(commas, 4 | 5) && numbers(text) == commas => Some(Format::Fio),
        Some(("R" | "W", vector)) if numbers(vector) == commas => Some(Format::Ramulator2),
        _ => None,
    }
}

/// Whether a line is of the summary that ends what blkparse prints: for each processor, then for
/// all of them.
pub fn begins_summary(text: &str) -> bool {
    let of = |text: &str| text.starts_with(" (") && text.trim_end().ends_with("):");
    match (text.strip_prefix("CPU"), text.strip_prefix("Total")) {
        (Some(number), _) => of(number.trim_start_matches(|c: char| c.is_ascii_digit())),
        (None, total) => total.is_some_and(of),
    }
}

/// A record as a line.
pub fn show(format: Format, number: u64, record: &Record, cycle: Option<Time>) -> Result<String, &'static str> {
    let Record { at, writes, offset, bytes, .. } = *record;
    let at = || {
        let at = at.ok_or("a time is needed, and the access has none")?;
        let unit = unit(format, cycle).0.max(1);
        Ok::<u64, &'static str>((at.0 + unit / 2) / unit)
    };
    let sectors = || {
        let whole = offset.is_multiple_of(SECTOR) && bytes.is_multiple_of(SECTOR);
        if whole { Ok((offset / SECTOR, bytes / SECTOR)) } else { Err("it is not of whole sectors") }
    };
    let block = || if bytes <= BLOCK { Ok(()) } else { Err("an access has 64 B at most") };
    Ok(match format {
        Format::Msr => {
            let what = if writes { "Write" } else { "Read" };
            format!("{},host,0,{what},{offset},{bytes},0", at()?)
        }
        Format::Mqsim => {
            let (first, count) = sectors()?;
            format!("{} 0 {first} {count} {}", at()?, u8::from(!writes))
        }
        Format::Dramsim3 => {
            block()?;
            format!("0x{offset:x} {} {}", if writes { "WRITE" } else { "READ" }, at()?)
        }
        Format::Hybridsim => {
            block()?;
            format!("{} {} {offset}", at()?, u8::from(writes))
        }
        Format::Ramulator2 => {
            block()?;
            format!("{} 0x{offset:x}", if writes { "ST" } else { "LD" })
        }
        Format::Lis => {
            if writes {
                return Err("it has reads only");
            }
            let (first, count) = sectors()?;
            format!("{first} {count} 0 {number}")
        }
        Format::Blkparse => {
            let ((first, count), ns) = (sectors()?, at()?);
            let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
            let what = if writes { "W" } else { "R" };
            format!("8,0 0 {number} {whole}.{part:09} 1 D {what} {first} + {count} [sim]")
        }
        Format::Fio => {
            format!("{}, 0, {}, {bytes}, {offset}, 0", at()?, u8::from(writes))
        }
        Format::Champsim => return Err("it is not text"),
    })
}
