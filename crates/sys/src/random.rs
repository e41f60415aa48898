//! Random bytes, for names that nothing else has. Not for keys: nothing here is erased.

use std::fs::File;
use std::io::{self, Read};

/// `N` bytes from `/dev/urandom`.
///
/// # Errors
/// When it cannot be read.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        let [one, other] = [random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap()];
        assert_ne!(one, other);
    }
}
