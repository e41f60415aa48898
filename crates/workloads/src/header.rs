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

/// Where the header's own words begin.
const BODY: u64 = 16;

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
    use crate::{Params, Site};
    use fulgurite_memory::PlainMemory;
    use fulgurite_sys::Backed;

    #[test]
    fn only_its_own_workload_opens_it() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 3 * 4096);
        assert!(matches!(read::<_, u64>(&mut memory, "a", region), Err(WorkloadError::Unusable { .. })));
        let split = |bytes, least| {
            let params = Params { bytes, ..Params::default() };
            Site::new(region, &params, &mut |_| ()).split("a", least)
        };
        let (at, data) = split(1 << 30, 8192).unwrap();
        assert_eq!((data.base.linear(), data.bytes), (4096, 8192));
        write(&mut memory, "a", at, [7u64, 8]).unwrap();
        assert_eq!(read::<_, [u64; 2]>(&mut memory, "a", region).unwrap(), [7, 8]);
        assert!(matches!(read::<_, u64>(&mut memory, "b", region), Err(WorkloadError::Unusable { .. })));
        assert!(matches!(split(1 << 30, 8193), Err(WorkloadError::Unusable { .. })));
        assert!(matches!(split(4096, 1), Err(WorkloadError::Unusable { .. })));
    }
}
