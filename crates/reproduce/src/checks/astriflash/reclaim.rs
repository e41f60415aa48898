//! A14: requests that wait behind reclaim of their plane.
//!
//! A plane that reclaims blocks its own requests. With the same traffic over four times the planes,
//! each plane reclaims a fourth as often, and its requests meet that a fourth as often. The text
//! gives no rate of writes: it is fitted to the smaller device, and the larger one is predicted.

use fulgurite_sim::Time;
use fulgurite_sim::flash::{Arrivals, FlashReport, Pattern};

use super::cores::flash_of;
use crate::check::{CheckError, Finding, Found, Inputs};
use crate::models::flash::asked;
use crate::units::Dimension;

/// Requests of a run that is reported. Fewer have too few reclaims.
const REQUESTS: u64 = 1_200_000;

fn device(inputs: &Inputs<'_>, planes: u32, more: f64) -> Result<FlashReport, CheckError> {
    let reads = inputs.number("reclaim.reads", Dimension::Count)?;
    let writes = inputs.number("reclaim.writes", Dimension::Count)? * more;
    let count = inputs.volume(REQUESTS).max(600_000);
    let aged = (flash_of(inputs, planes)?, 1.0 - inputs.share("flash.spare")?, 3);
    let between = Time((1e12 / (reads + writes)) as u64);
    let requests = (Arrivals::Poisson(between), Pattern::Random, reads / (reads + writes));
    Ok(asked(aged, requests, count, inputs.seed)?)
}

pub fn run(inputs: &Inputs<'_>) -> Found {
    let (small, plane) = (inputs.bytes("system.flash")?, inputs.bytes("flash.plane")?);
    let large = inputs.bytes("reclaim.large")?;
    let planes = |bytes: f64| ((bytes / plane) as u32).max(8);
    let blocked = |report: &FlashReport| 100.0 * report.reads_behind_reclaim.unwrap_or(0.0);
    let four = device(inputs, planes(small), 1.0)?;
    let one = device(inputs, planes(large), 1.0)?;
    let more = device(inputs, planes(large), large / small)?;
    let of = "% of reads";
    let longest_ms = four.reads.max_ns.ok_or_else(|| CheckError::no_answer("no read has ended"))? / 1e6;
    let erase_ms = inputs.time("flash.erase")?.as_s() * 1e3;
    Ok(vec![
        Finding::of("small", "4% of requests at 256 GB")
            .within(blocked(&four), of, (3.0, 5.0))
            .by("plane-blocking reclaim: its share of a plane's time")
            .also("pages written for each asked for", four.write_amplification.unwrap_or(1.0)),
        Finding::of("large", "under 1% at 1 TB")
            .within(blocked(&one), of, (0.5, 1.2))
            .by("four times the planes share the same writes")
            .also("with four times the writes", blocked(&more)),
        Finding::of("planes", "more chips block fewer requests")
            .trend(blocked(&one) < blocked(&four), blocked(&four) / blocked(&one).max(1e-9), "times fewer")
            .by("each plane reclaims as often as it is written"),
        Finding::of("longest", "garbage collection incurs up to 100 ms of latency")
            .trend(longest_ms > erase_ms && longest_ms <= 100.0, longest_ms, "ms, the longest read at 256 GB")
            .by(
                "a read waits for the pages that are moved and the erase of a block, and for other reads of its plane. \
                 The text cites its 100 ms, and gives no size of a block and no rate of writes",
            ),
    ])
}
