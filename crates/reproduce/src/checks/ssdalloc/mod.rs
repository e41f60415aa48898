//! SSDAlloc (B).

mod backends;
mod gains;
mod overhead;
mod techniques;

use crate::check::Check;
use crate::paper::Paper;

/// The checks.
pub static CHECKS: [Check; 7] = [
    Paper::SsdAlloc.check("B1", "overhead of the runtime", false, overhead::overhead),
    Paper::SsdAlloc.check("B2", "gains over swap and over pages", true, gains::programs),
    Paper::SsdAlloc.check("B3", "bytes written beside swap", false, overhead::written),
    Paper::SsdAlloc.check("B4", "share of the SSD's random reads", true, gains::shares),
    Paper::SsdAlloc.check("B5", "microbenchmark: an array of objects", true, gains::array),
    Paper::SsdAlloc.check("B6", "memcached, half of it writes", true, gains::memcached),
    Paper::SsdAlloc.check("B7", "techniques of the four ways", true, techniques::run),
];
