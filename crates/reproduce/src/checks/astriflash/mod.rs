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

/// The checks.
pub static CHECKS: [Check; 18] = [
    Paper::AstriFlash.check("A1", "flash bandwidth that a miss rate needs (equation 1)", false, arithmetic::bandwidth),
    Paper::AstriFlash.check("A2", "cost of memory", false, arithmetic::cost),
    Paper::AstriFlash.check("A3", "size of the tags", false, arithmetic::tags),
    Paper::AstriFlash.check("A4", "paging on a core (figure 2)", false, arithmetic::paging),
    Paper::AstriFlash.check("A5", "load at a service-level objective (figure 3)", true, slo::run),
    Paper::AstriFlash.check("A6", "the system (table I)", false, tables::system),
    Paper::AstriFlash.check("A7", "the controllers of the DRAM cache (figure 5)", false, controllers::run),
    Paper::AstriFlash.check("A8", "a switch at a miss, and progress (figure 6)", true, progress::run),
    Paper::AstriFlash.check("A9", "silicon for speculative stores (figure 7)", false, tables::silicon),
    Paper::AstriFlash.check("A10", "priorities with aging (figure 8)", true, scheduler::run),
    Paper::AstriFlash.check("A11", "throughput beside DRAM-only (figure 9)", true, cores::run),
    Paper::AstriFlash.check("A12", "p99 service time beside Flash-Sync (table II)", true, service::run),
    Paper::AstriFlash.check("A13", "p99 response time at equal loads (figure 10)", true, tail::run),
    Paper::AstriFlash.check("A14", "requests behind reclaim", true, reclaim::run),
    Paper::AstriFlash.check("A15", "what the system adds, and what switching saves", true, paging::run),
    Paper::AstriFlash.check("AS1", "an access by the system and by the hardware", false, arithmetic::access),
    Paper::AstriFlash.check(
        "AS2",
        "latencies of DRAM and flash, and what fits into an objective",
        false,
        arithmetic::latencies,
    ),
    Paper::AstriFlash.check("AS3", "prices of servers, and DRAM beside flash at high loads", false, arithmetic::prices),
];
