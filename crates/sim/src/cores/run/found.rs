//! What a run of cores has found.

use super::super::chip::Coherence;
use super::super::report::{CoresReport, MissCost};
use super::{Run, entered};
use crate::memory::DramCache;
use crate::planted::Planted;
use crate::report::{Counted, RunError, held};

impl Run<'_> {
    pub(super) fn report(&mut self) -> Result<CoresReport, RunError> {
        self.caches.iter().for_each(DramCache::check);
        // A bug that is planted there has to show in the numbers.
        if self.system.planted != Planted::ForgottenInvalidation {
            self.chip.check();
        }
        let Coherence { forwards, invalidations } = self.chip.counted();
        let now = self.events.now();
        let law = held(self.inside.law(now, entered(&self.cores)), now)?;
        let span = (now - self.begun.0).as_s();
        let links_busy = self.chip.links_busy(now - self.begun.0);
        let core_ns = span * 1e9 * f64::from(self.system.cores);
        let jobs = (self.ended - self.system.warm_up) as f64;
        let counted = self.caches.iter().map(DramCache::counters);
        let sums = counted.fold((0, 0), |sums, of| (sums.0 + of.stalls, sums.1 + of.evict_waits));
        let (frontside_stalls, evict_waits) = sums;
        let reclaim = self.flash.as_ref().and_then(|flash| flash.reclaimed().warning("run longer"));
        let energy_j = self.flash.as_ref().map(|flash| flash.energy_j() - self.energy_before);
        Ok(CoresReport {
            jobs_per_s: law.rate_per_s,
            service: self.inside.times().distribution(),
            law,
            interval_ns: (self.misses > 0).then(|| core_ns / self.misses as f64),
            misses: self.misses,
            table_misses: self.table_misses,
            duplicates: self.duplicates,
            memory_accesses_per_job: (self.accesses - self.begun.1) as f64 / jobs,
            blocked: self.blocked,
            resumed: self.resumed,
            switched_again: self.switched_again,
            miss_cost: (self.switched > 0).then(|| {
                let [signal_ns, flush_ns, switch_ns] = self.lost.map(|sum| sum.as_ns() / self.switched as f64);
                MissCost { signal_ns, flush_ns, switch_ns }
            }),
            written_back: self.written_back,
            dram: self.system.energy.power(self.system.dram_bytes(), self.moved, span),
            energy_j,
            power_w: energy_j.map(|energy_j| energy_j / span),
            forwards,
            invalidations,
            links_busy,
            links_wait_ns: self.chip.links_wait_ns(),
            miss_stages: self.stages.split(),
            coherence_stages: self.chip.stages(),
            simulated_s: span,
            counted: Counted { requests: self.accesses, events: self.events.happened() },
            frontside_stalls,
            evict_waits,
            warnings: reclaim.into_iter().collect(),
        })
    }
}
