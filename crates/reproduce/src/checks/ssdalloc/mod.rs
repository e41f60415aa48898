//! SSDAlloc (B).

mod backends;
mod gains;
mod overhead;
mod techniques;

use crate::check::{Check, Found, Inputs};
use crate::paper::Paper;

const fn check(id: &'static str, about: &'static str, simulated: bool, run: fn(&Inputs<'_>) -> Found) -> Check {
    Check { id, about, paper: Paper::SsdAlloc, simulated, run }
}

/// The checks.
pub static CHECKS: [Check; 7] = [
    check("B1", "overhead of the runtime", false, overhead::overhead),
    check("B2", "gains over swap and over pages", true, gains::programs),
    check("B3", "bytes written beside swap", false, overhead::written),
    check("B4", "share of the SSD's random reads", true, gains::shares),
    check("B5", "microbenchmark: an array of objects", true, gains::array),
    check("B6", "memcached, half of it writes", true, gains::memcached),
    check("B7", "techniques of the four ways", true, techniques::run),
];
