//! AstriFlash (A) and its slides (AS).

pub(crate) mod arithmetic;
mod controllers;
pub mod cores;
mod overhead;
mod paging;
mod progress;
mod reclaim;
mod scheduler;
mod service;
mod slo;
mod tables;
pub(crate) mod tail;

use crate::check::Check;
use crate::paper::Paper;

const fn check(
    id: &'static str,
    about: &'static str,
    simulated: bool,
    run: fn(&crate::check::Inputs<'_>) -> Result<Vec<crate::check::Finding>, crate::check::CheckError>,
) -> Check {
    Check { id, about, paper: Paper::AstriFlash, simulated, run }
}

/// The checks.
pub static CHECKS: [Check; 18] = [
    check("A1", "flash bandwidth that a miss rate needs (equation 1)", false, arithmetic::bandwidth),
    check("A2", "cost of memory", false, arithmetic::cost),
    check("A3", "size of the tags", false, arithmetic::tags),
    check("A4", "paging on a core (figure 2)", false, arithmetic::paging),
    check("A5", "load at a service-level objective (figure 3)", true, slo::run),
    check("A6", "the system (table I)", false, tables::system),
    check("A7", "the controllers of the DRAM cache (figure 5)", false, controllers::run),
    check("A8", "a switch at a miss, and progress (figure 6)", true, progress::run),
    check("A9", "silicon for speculative stores (figure 7)", false, tables::silicon),
    check("A10", "priorities with aging (figure 8)", true, scheduler::run),
    check("A11", "throughput beside DRAM-only (figure 9)", true, cores::run),
    check("A12", "p99 service time beside Flash-Sync (table II)", true, service::run),
    check("A13", "p99 response time at equal loads (figure 10)", true, tail::run),
    check("A14", "requests behind reclaim", true, reclaim::run),
    check("A15", "what the system adds, and what switching saves", true, paging::run),
    check("AS1", "an access by the system and by the hardware", false, arithmetic::access),
    check("AS2", "latencies of DRAM and flash, and what fits into an objective", false, arithmetic::latencies),
    check("AS3", "prices of servers, and DRAM beside flash at high loads", false, arithmetic::prices),
];
