//! NAND of which only the times count, and requests for it.

use fulgurite_nand::{Ecc, Energy, Geometry, GeometryError, Parts, Profile, Queues, Timing, Wear};
use fulgurite_sim::flash::{Arrivals, FlashReport, FlashSystem, Pattern, Requests};
use fulgurite_sim::{Planted, RunError, Time};

/// NAND in which wear, errors and energy play no part.
///
/// # Errors
/// When no device divides like that.
pub fn timed(parts: Parts, timing: Timing, queues: Queues) -> Result<Profile, GeometryError> {
    Ok(Profile {
        geometry: Geometry::new(parts)?,
        timing,
        queues,
        wear: Wear { endurance: 1_000_000, failure: 2_000_000, spread: 0.0, factory_bad: 0.0 },
        ecc: Ecc { codeword_bytes: 1024, corrects: 40, bit_errors_fresh: 0.0, bit_errors_worn: 0.0 },
        energy: Energy { read_pj: 0, program_pj: 0, erase_pj: 0, transfer_pj: 0 },
    })
}

/// What comes of `count` requests for pages, after a tenth as many that are not measured, over a
/// link that takes no time. The device is filled to a share, and has been overwritten a number of
/// times.
///
/// # Errors
/// What the run returns.
pub fn asked(
    (nand, filled, aged): (Profile, f64, u64),
    (arrivals, pattern, reads): (Arrivals, Pattern, f64),
    count: u64,
    seed: u64,
) -> Result<FlashReport, RunError> {
    let bytes = u64::from(nand.geometry.page_bytes());
    let system = FlashSystem {
        nand,
        filled,
        aged,
        link_command: Time::ZERO,
        link_rate: 1e12,
        requests: Requests { arrivals, pattern, reads, bytes, warm_up: count / 10, count },
        trace: None,
        explain: false,
        planted: Planted::None,
    };
    system.run(seed)
}
