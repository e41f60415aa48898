//! The ways to use an SSD as memory: what each costs an access, on each SSD.
//!
//! | way | DRAM holds | a changed entry that goes |
//! |---|---|---|
//! | objects | objects | an object, to a log |
//! | pages | pages | a page, to a log |
//! | swap | pages | a page, in place |
//!
//! Reads of the flash take their turns, as the programs' threads do. What the log writes for each
//! byte is the store's.

use crate::check::{CheckError, Inputs};
use crate::models::Planted;
use crate::models::objects::{Program, Traffic, written_for_each_byte};
use crate::units::Dimension;

/// Accesses of a run that is reported.
const ACCESSES: u64 = 400_000;

/// One SSD.
#[derive(Clone, Copy, Debug)]
pub struct Ssd {
    /// Microseconds of a random read of a page.
    pub read: f64,
    /// Microseconds of a random write of a page.
    pub write: f64,
    /// Microseconds of a byte that is written in order.
    pub log_byte: f64,
    /// Microseconds of a byte that is read in order.
    pub read_byte: f64,
}

/// Microseconds of an access, and what share of it reads the flash.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// In all.
    pub access: f64,
    /// Of the SSD's reads.
    pub reads: f64,
    /// Bytes written.
    pub written: f64,
}

impl Cost {
    /// The share of the SSD's raw random reads that a program gets.
    pub fn of_raw(&self) -> f64 {
        self.reads / self.access
    }
}

/// What the ways have in common for a program.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    objects: Traffic,
    pages: Traffic,
    object: f64,
    page: f64,
    /// Bytes that the log writes for each byte of an object, and of a page.
    packed: f64,
    paged: f64,
    runtime: f64,
    fault: f64,
    /// Bytes that a fault of the native pager reads beside its page.
    beside: f64,
}

/// The SSDs of the calibration whose data sheets say what is needed.
pub fn ssds(inputs: &Inputs<'_>) -> Result<Vec<(String, Ssd)>, CheckError> {
    let names: Vec<String> = inputs.text("ssd.names")?.split(", ").map(str::to_owned).collect();
    let reads = inputs.numbers("ssd.reads", Dimension::Frequency)?;
    let writes = inputs.numbers("ssd.writes", Dimension::Frequency)?;
    let logs = inputs.numbers("ssd.sequential_writes", Dimension::Rate)?;
    let streams = inputs.numbers("ssd.sequential_reads", Dimension::Rate)?;
    if [reads.len(), writes.len(), logs.len(), streams.len()] != [names.len(); 4] {
        return Err(CheckError::NoAnswer("each SSD needs its reads and writes, random and sequential".to_owned()));
    }
    let of = |at: usize| Ssd {
        read: 1e6 / reads[at],
        write: 1e6 / writes[at],
        log_byte: 1e6 / logs[at],
        read_byte: 1e6 / streams[at],
    };
    Ok(names.into_iter().enumerate().map(|(at, name)| (name, of(at))).collect())
}

/// A program: DRAM as a share of the data, and how skewed its accesses are.
pub fn program(inputs: &Inputs<'_>, in_dram: f64, writes: f64, skew: f64) -> Result<Program, CheckError> {
    Ok(Program {
        objects: 1 << 15,
        on_a_page: (inputs.bytes("page.size")? / inputs.bytes("object.size")?) as u32,
        in_dram,
        writes,
        accesses: inputs.volume(ACCESSES).max(100_000),
        skew,
        seed: inputs.seed,
    })
}

impl Ways {
    /// Of a program.
    pub fn of(inputs: &Inputs<'_>, program: Program) -> Result<Ways, CheckError> {
        let full = inputs.share("log.full")?;
        let (object, page) = (inputs.bytes("object.size")?, inputs.bytes("page.size")?);
        let packs = inputs.planted != Some(Planted::Unpacked);
        let count =
            |bytes: f64, packed| written_for_each_byte(bytes as usize, packed, full).map_err(CheckError::NoAnswer);
        Ok(Ways {
            objects: program.traffic(true),
            pages: program.traffic(false),
            object,
            page,
            packed: count(object, packs)?,
            paged: count(page, false)?,
            runtime: inputs.time("overhead.combined")?.as_us(),
            fault: inputs.time("swap.fault")?.as_us(),
            beside: (inputs.count("swap.around")? - 1) as f64 * page,
        })
    }
    /// Bytes that the log writes for each byte of an object.
    pub fn packed(&self) -> f64 {
        self.packed
    }
    /// Misses for each access: of objects, and of pages.
    pub fn misses(&self) -> (f64, f64) {
        (self.objects.misses, self.pages.misses)
    }
    fn cost(traffic: Traffic, ssd: Ssd, software: f64, write: f64, bytes: f64) -> Cost {
        let reads = traffic.misses * ssd.read;
        let access = reads + traffic.misses * software + traffic.written * write;
        Cost { access, reads, written: traffic.written * bytes }
    }
    /// A page for each object, over an object cache and a log of objects.
    pub fn objects(&self, ssd: Ssd) -> Cost {
        let bytes = self.object * self.packed;
        Ways::cost(self.objects, ssd, self.runtime, bytes * ssd.log_byte, bytes)
    }
    /// Pages, over a log of pages.
    pub fn pages(&self, ssd: Ssd) -> Cost {
        let bytes = self.page * self.paged;
        Ways::cost(self.pages, ssd, self.runtime, bytes * ssd.log_byte, bytes)
    }
    /// Swap, in place, by a pager that was made for disks: it reads the pages beside the one that
    /// is missed, which are of no use to random accesses.
    pub fn swap(&self, ssd: Ssd) -> Cost {
        Ways::cost(self.pages, ssd, self.fault + self.beside * ssd.read_byte, ssd.write, self.page)
    }
    /// The same, if it read the page that is missed alone.
    pub fn swap_of_one(&self, ssd: Ssd) -> Cost {
        Ways::cost(self.pages, ssd, self.fault, ssd.write, self.page)
    }
    /// A pager of the operating system that writes to a log.
    pub fn logged_swap(&self, ssd: Ssd) -> Cost {
        let bytes = self.page * self.paged;
        Ways::cost(self.pages, ssd, self.fault, bytes * ssd.log_byte, bytes)
    }
}
