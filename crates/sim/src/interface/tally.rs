//! What both interfaces count of their commands.

use super::media::Media;
use super::requests::{Measured, Requests};
use super::system::InterfaceReport;
use crate::report::{Counted, RunError};
use crate::stages::Stages;
use crate::time::Time;

/// What a command's time is spent on.
#[derive(Clone, Copy)]
pub struct Spent<const N: usize> {
    /// When it came to where it is.
    since: Time,
    stages: [Time; N],
}

impl<const N: usize> Spent<N> {
    /// Of a command that comes now.
    pub fn new(now: Time) -> Spent<N> {
        Spent { since: now, stages: [Time::ZERO; N] }
    }
    /// The time since the last step was spent in a stage.
    pub fn waited(&mut self, stage: usize, now: Time) {
        self.stages[stage] += now - self.since;
        self.since = now;
    }
}

/// The time that an interface was busy, and the processors.
#[derive(Clone, Copy)]
pub struct Busy {
    pub interface: Time,
    pub processors: Time,
}

/// What is counted of the commands.
pub struct Tally<const N: usize> {
    stages: Stages<N>,
    first_steps: Vec<(u8, f64)>,
    /// Bytes that have crossed the DRAM bus.
    crossed: u64,
    ended: u64,
    /// When the measurement began.
    before: Busy,
}

impl<const N: usize> Tally<N> {
    /// With the names of the stages. With `explain`, their percentiles are split.
    pub fn new(stages: [&'static str; N], explain: bool) -> Tally<N> {
        let before = Busy { interface: Time::ZERO, processors: Time::ZERO };
        Tally { stages: Stages::new(stages, explain), first_steps: Vec::new(), crossed: 0, ended: 0, before }
    }
    /// A command comes to a step of the protocol. The first one's steps are kept.
    pub fn comes(&mut self, number: u32, step: u8, now: Time) {
        if self.ended == 0 && number == 0 && self.first_steps.iter().all(|(other, _)| *other != step) {
            self.first_steps.push((step, now.as_ns()));
        }
    }
    /// Bytes cross the DRAM bus.
    pub fn crosses(&mut self, bytes: u64) {
        self.crossed += bytes;
    }
    /// A command has ended.
    pub fn ends(&mut self, spent: Spent<N>) {
        self.stages.record(spent.since, spent.stages);
        self.ended += 1;
    }
    /// The measurement begins.
    pub fn measure(&mut self, before: Busy, media: &mut Media) {
        self.stages.clear();
        self.crossed = 0;
        self.before = before;
        media.measure();
    }
    /// What was measured until now. The share of the time that the interface was busy is where
    /// `place` says.
    pub fn report(
        self,
        requests: &mut Requests,
        media: &Media,
        busy: Busy,
        (now, events): (Time, u64),
        place: impl FnOnce(&mut InterfaceReport) -> &mut Option<f64>,
    ) -> Result<InterfaceReport, RunError> {
        let Measured { bytes_per_s, times, law, span } = requests.measured(now)?;
        let share = |busy: Time, before: Time| ((busy - before).as_s() / span).min(1.0);
        let mut report = InterfaceReport {
            bytes_per_s,
            requests: times,
            law,
            stages: self.stages.split(),
            dma_busy: None,
            link_busy: None,
            processors_busy: share(busy.processors, self.before.processors),
            bus_crossings: self.crossed as f64 / requests.asked_bytes() as f64,
            first_steps: self.first_steps,
            nand_began_ns: media.began().map(Time::as_ns),
            energy_j: media.energy_j(),
            power_w: media.energy_j() / span,
            simulated_s: span,
            counted: Counted { requests: self.ended, events },
            warnings: media.warning().into_iter().collect(),
        };
        *place(&mut report) = Some(share(busy.interface, self.before.interface));
        Ok(report)
    }
}
