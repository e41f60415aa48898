//! Cores: how many there are, and pinning a thread to one.

use std::io;

/// The cores that this process may run on, in ascending order.
#[must_use]
pub fn cores() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&c| set.is_set(c)).collect()
}

/// Pins the calling thread to one core.
///
/// # Errors
/// When the core does not exist or is not allowed to this process.
pub fn pin(core: usize) -> io::Result<()> {
    pin_to(&[core])
}

/// Lets the calling thread run on these cores only.
///
/// # Errors
/// When none of the cores exists or is allowed to this process.
pub fn pin_to(cores: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for &core in cores.iter().filter(|&&c| c < rustix::thread::CpuSet::MAX_CPU) {
        set.set(core);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_can_be_pinned() {
        let core = *super::cores().last().unwrap();
        std::thread::spawn(move || {
            super::pin(core).unwrap();
            assert_eq!(super::cores(), [core]);
            assert!(super::pin(100_000).is_err());
        })
        .join()
        .unwrap();
    }
}
