//! Statistics: what a memory has counted, as numbers and as Prometheus text.

use std::ffi::c_char;

use crate::argument;
use crate::failure::{Failure, guard};
use crate::pool::fulgurite_pool;
use crate::status::fulgurite_status::{self, *};

/// What a memory has counted since it was opened, over all workers. Later versions add members at
/// the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fulgurite_statistics {
    /// The DRAM budget, in bytes.
    pub dram_bytes: u64,
    /// Frames of 4 KiB that it leaves to data.
    pub frames: u64,
    /// Of these, free ones.
    pub frames_free: u64,
    /// Accesses of jobs that have ended.
    pub accesses: u64,
    /// Accesses that started a read of flash.
    pub misses: u64,
    /// Accesses that joined a read or write-back under way.
    pub misses_joined: u64,
    /// Frames freed without a write.
    pub evicted_clean: u64,
    /// Frames written back.
    pub evicted_dirty: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Write-backs that failed. The data stayed in DRAM.
    pub write_errors: u64,
    /// Jobs and blocking calls begun.
    pub jobs_started: u64,
    /// Jobs that panicked or used up their stacks.
    pub jobs_died: u64,
    /// The median from a miss to the job's being able to go on, in nanoseconds.
    pub miss_p50_ns: u64,
    /// The 99th percentile of that time, in nanoseconds.
    pub miss_p99_ns: u64,
}

/// Stores what a memory has counted. `size` is sizeof(fulgurite_statistics): a program that was
/// built with an older header gets the members that it knows.
///
/// Fails with FULGURITE_IN_A_JOB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_get_statistics(
    pool: *mut fulgurite_pool,
    statistics: *mut fulgurite_statistics,
    size: usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let pool = &unsafe { argument::handle(pool, "pool") }?.0;
        let counted = pool.with(|memory| Ok(memory.statistics()))?;
        let total = counted.total();
        let counts = total.counts;
        let told = fulgurite_statistics {
            dram_bytes: counted.dram_bytes,
            frames: counts.frames,
            frames_free: counts.frames_free,
            accesses: counts.accesses,
            misses: counts.misses,
            misses_joined: counts.misses_joined,
            evicted_clean: counts.evicted_clean,
            evicted_dirty: counts.evicted_dirty,
            read_errors: counts.read_errors,
            write_errors: counts.write_errors,
            jobs_started: counts.jobs_started,
            jobs_died: counts.jobs_died,
            miss_p50_ns: total.miss_ns.value_at_quantile(0.5),
            miss_p99_ns: total.miss_ns.value_at_quantile(0.99),
        };
        // SAFETY: as above. The structure has numbers only, and no padding.
        unsafe { argument::copy_out(&told, statistics, size, "statistics") }
    })
}

/// Copies what a memory has counted as Prometheus text (version 0.0.4), with a 0 at its end, and
/// stores its length without that in `*length`.
///
/// Fails with FULGURITE_BUFFER_TOO_SMALL when it and the 0 do not fit: `*length` is stored. Fails
/// with FULGURITE_IN_A_JOB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fulgurite_prometheus(
    pool: *mut fulgurite_pool,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> fulgurite_status {
    guard(|| {
        // SAFETY: the contract of the module `lib`.
        let (pool, into, length) = unsafe {
            let into = argument::buffer(buffer.cast(), capacity, "buffer")?;
            (&argument::handle(pool, "pool")?.0, into, argument::out(length, "length")?)
        };
        let text = pool.with(|memory| Ok(memory.statistics().prometheus()))?;
        length.write(text.len());
        let Some((into, end)) = into.get_mut(..=text.len()).and_then(|into| into.split_at_mut_checked(text.len()))
        else {
            let message = format!("the text has {} bytes, and the buffer {capacity}", text.len());
            return Err(Failure::new(FULGURITE_BUFFER_TOO_SMALL, message));
        };
        into.copy_from_slice(text.as_bytes());
        end[0] = 0;
        Ok(())
    })
}
