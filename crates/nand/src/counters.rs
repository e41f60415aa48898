//! What a device and its flash interface layer have done.

/// What a [`crate::Nand`] has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NandCounters {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed, those that failed included.
    pub programs: u64,
    /// Blocks erased, those that failed included.
    pub erases: u64,
    /// Bytes sent on the buses, in both directions. Commands not among them.
    pub bus_bytes: u64,
    /// Nanoseconds in which buses were busy, in sum over the channels.
    pub bus_busy_ns: u64,
    /// Nanoseconds in which arrays were busy, in sum over the planes.
    pub array_busy_ns: u64,
    /// Reads with more wrong bits than are corrected.
    pub uncorrectable: u64,
    /// Programs that failed.
    pub program_failures: u64,
    /// Blocks that went bad since the device was made.
    pub grown_bad_blocks: u64,
    /// Requests refused because they break a rule of NAND: an error of their sender.
    pub violations: u64,
    /// Reads that found an erase, or a request of reclaim, of their own plane before them.
    pub reads_blocked_by_reclaim: u64,
    /// Nanoseconds between the submission of a read and its place in its die's queue, in sum.
    pub read_ftl_queue_ns: u64,
    /// Times that the head of the FTL queue had to wait for its die's queue.
    pub head_blocked: u64,
    /// Energy of reads from arrays, in picojoules.
    pub read_pj: u64,
    /// Energy of programs, in picojoules.
    pub program_pj: u64,
    /// Energy of erases, in picojoules.
    pub erase_pj: u64,
    /// Energy of the buses, in picojoules.
    pub transfer_pj: u64,
}

impl NandCounters {
    /// Energy in all, in picojoules.
    #[must_use]
    pub fn energy_pj(&self) -> u64 {
        self.read_pj + self.program_pj + self.erase_pj + self.transfer_pj
    }
}

/// What a [`crate::Fil`] has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FilCounters {
    /// Flash pages read.
    pub reads: u64,
    /// Of these, from the buffer of what was not yet programmed.
    pub buffer_reads: u64,
    /// Of these, of flash pages where nothing is.
    pub empty_reads: u64,
    /// Flash pages written.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Pages of NAND programmed at their own places.
    pub home_programs: u64,
    /// Flash pages of these that stayed empty, because something behind them had to be programmed.
    pub padded: u64,
    /// Pages of NAND programmed in the log.
    pub log_programs: u64,
    /// Flash pages in these.
    pub logged: u64,
    /// Flash pages of these that came after their own place had been left out, or whose place
    /// failed: they stay in the log.
    pub late: u64,
    /// Flash pages that were read from the log, to be moved within it.
    pub log_moves: u64,
    /// Extents that began anew.
    pub extents_begun: u64,
    /// Blocks that were replaced by spare ones.
    pub replaced_blocks: u64,
    /// Writes that failed.
    pub write_failures: u64,
    /// Reads that failed.
    pub read_failures: u64,
    /// Reads that found an erase, or something else of reclaim, of their plane before them.
    pub reads_blocked_by_reclaim: u64,
    /// Of the reads that reached NAND, those that were themselves part of reclaim
    /// ([`crate::FlashRequest::reclaim`]): no host waits for them.
    pub reclaim_reads: u64,
    /// Of the blocked ones, these.
    pub reclaim_reads_blocked: u64,
}
