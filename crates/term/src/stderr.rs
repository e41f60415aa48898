//! Standard error, which may have no reader any more.

use std::fmt::Display;
use std::io::Write;

/// Writes a line to standard error. A reader that went away (`2>&1 | head`) is no error, and there
/// is no other place for what cannot be written there.
pub fn log(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
