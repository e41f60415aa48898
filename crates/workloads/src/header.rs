//! The header of a workload's data: the first subpage of its region, written last, so that a region
//! whose build was cut short does not open.
//!
//! ```text
//! +-------+-----------+----------------+
//! | magic | of `NAME` | words[0..N]    |
//! +-------+-----------+----------------+
//! ```

use fulgurite_memory::{Address, Memory, Plain, Ptr, Region, SUBPAGE_BYTES};

use crate::WorkloadError;
use crate::keys::mix;

/// "Fulgwork" and the version of the layouts.
const MAGIC: u64 = u64::from_le_bytes(*b"Fulgwrk1");

/// A number for a workload's name.
fn number_of(workload: &str) -> u64 {
    workload.bytes().fold(MAGIC, |sum, byte| mix(sum ^ u64::from(byte)))
}

/// Rows between two calls of `progress`.
pub(crate) const PROGRESS_EVERY: u64 = 1 << 16;

/// Where the header's own words begin.
const BODY: u64 = 16;

/// Cuts the region into header and data. Data is at most `bytes` and at most what the region has
/// left.
///
/// # Errors
/// [`WorkloadError::Unusable`] when that is less than `least`.
pub(crate) fn split(
    workload: &'static str,
    region: Region,
    bytes: u64,
    least: u64,
) -> Result<(Address, Region), WorkloadError> {
    let subpage = SUBPAGE_BYTES as u64;
    let data = bytes.min(region.bytes).saturating_sub(subpage) / subpage * subpage;
    if data < least {
        let least = fulgurite_format::format_bytes(least + subpage);
        let got = fulgurite_format::format_bytes(bytes.min(region.bytes));
        return Err(WorkloadError::Unusable { workload, what: format!("{got} of data; it needs at least {least}") });
    }
    let (header, rest) = region.split(subpage);
    Ok((header.base, Region::new(rest.base, data)))
}

/// The largest count that takes at most `bytes`, where `needed` says what a count takes, and grows
/// with it.
pub(crate) fn most(bytes: u64, needed: impl Fn(u64) -> u64) -> u64 {
    let (mut fits, mut too_many) = (0, bytes + 1);
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if needed(middle) <= bytes { fits = middle } else { too_many = middle }
    }
    fits
}

/// What of the region is not header.
///
/// # Panics
/// When the region is empty.
pub(crate) fn data(region: Region) -> Region {
    region.split(SUBPAGE_BYTES as u64).1
}

/// Writes the header: the build is complete.
pub(crate) fn write<M: Memory, T: Plain>(
    memory: &mut M,
    workload: &'static str,
    at: Address,
    words: T,
) -> Result<(), WorkloadError> {
    memory.store(Ptr::new(at.add(8)), number_of(workload))?;
    memory.store(Ptr::new(at.add(BODY)), words)?;
    memory.store(Ptr::new(at), MAGIC)?;
    Ok(())
}

/// Reads the header of the workload that is stored in `region`.
///
/// # Errors
/// [`WorkloadError::Unusable`] when another workload, or none, is stored there.
pub(crate) fn read<M: Memory, T: Plain>(
    memory: &mut M,
    workload: &'static str,
    region: Region,
) -> Result<T, WorkloadError> {
    let (magic, name): (u64, u64) = (memory.load(Ptr::new(region.base))?, memory.load(Ptr::new(region.base.add(8)))?);
    if (magic, name) != (MAGIC, number_of(workload)) {
        let what = "its data is not in this region; build it there first".to_owned();
        return Err(WorkloadError::Unusable { workload, what });
    }
    Ok(memory.load(Ptr::new(region.base.add(BODY)))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_memory::PlainMemory;
    use fulgurite_sys::Backed;

    #[test]
    fn only_its_own_workload_opens_it() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 3 * 4096);
        assert!(matches!(read::<_, u64>(&mut memory, "a", region), Err(WorkloadError::Unusable { .. })));
        let (at, data) = split("a", region, 1 << 30, 8192).unwrap();
        assert_eq!((data.base.linear(), data.bytes), (4096, 8192));
        write(&mut memory, "a", at, [7u64, 8]).unwrap();
        assert_eq!(read::<_, [u64; 2]>(&mut memory, "a", region).unwrap(), [7, 8]);
        assert!(matches!(read::<_, u64>(&mut memory, "b", region), Err(WorkloadError::Unusable { .. })));
        assert!(matches!(split("a", region, 1 << 30, 8193), Err(WorkloadError::Unusable { .. })));
        assert!(matches!(split("a", region, 4096, 1), Err(WorkloadError::Unusable { .. })));
    }
}
