//! What a miss costs a core, from A11's cores.
//!
//! A12 and A13 are queues of jobs on one core. What a miss takes of that core is not assumed there.
//! The cores of A11 run the workloads with their caches, and the time that they lose compared with
//! DRAM-only is divided by their misses.

use fulgurite_sim::Time;

use super::cores::OfWorkload;
use crate::check::{CheckError, Inputs};

/// A miss's parts.
#[derive(Clone, Copy, Debug)]
pub struct MissCost {
    /// From the access to the signal: the tags do not match.
    pub signal: Time,
    /// The flush of the reorder buffer, until the handler's first instruction.
    pub flush: Time,
    /// All else: tags before hits, and L1 and TLB that other threads have used.
    pub rest: Time,
    /// The threads' switch.
    pub switch: Time,
}

impl MissCost {
    /// As the cores have found it, with the text's switch.
    pub fn of(inputs: &Inputs<'_>, workloads: &[&OfWorkload]) -> Result<MissCost, CheckError> {
        let mean = |of: fn(&OfWorkload) -> f64| {
            workloads.iter().map(|workload| of(workload)).sum::<f64>() / workloads.len().max(1) as f64
        };
        let (signal, flush) = (mean(|of| of.parts.signal_ns), mean(|of| of.parts.flush_ns));
        let rest = mean(|of| of.cost_ns) - signal - flush - mean(|of| of.parts.switch_ns);
        let time = |ns: f64| Time::from_ns(ns.max(0.0));
        Ok(MissCost { signal: time(signal), flush: time(flush), rest: time(rest), switch: inputs.time("miss.switch")? })
    }
    /// All parts.
    pub fn parts(&self) -> [Time; 4] {
        [self.signal, self.flush, self.rest, self.switch]
    }
    /// What the core loses without the switch.
    pub fn without_switch(&self) -> Time {
        self.signal + self.flush + self.rest
    }
}
