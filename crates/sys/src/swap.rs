//! Swap space of the kernel: a file is given to it, and taken back.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `SWAP_FLAG_PREFER` with priority 100 (swapon(2)): before the machine's own swap.
const PREFERRED: libc::c_int = 0x8000 | 100;

/// Lets the kernel swap to this file, before any other swap space.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` for holes or a missing swap header.
pub fn on(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a string that ends in zero and outlives the call.
    if unsafe { libc::swapon(path.as_ptr(), PREFERRED) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes the file back; returns when all that was swapped to it is in memory again.
///
/// # Errors
/// The kernel's: `EINVAL` when it is no swap space, `ENOMEM` when memory does not suffice.
pub fn off(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: as above.
    if unsafe { libc::swapoff(path.as_ptr()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_swap_space_is_refused() {
        let path = std::env::temp_dir().join(format!("fulgurite-no-swap-{}", std::process::id()));
        std::fs::write(&path, [0; 8192]).unwrap();
        assert!(on(&path).is_err() && off(&path).is_err());
        assert!(on(Path::new("with\0zero")).is_err());
    }
}
