//! A run: requests through the link, the map and the device.

use fulgurite_nand::{Command, Done, Nand, NandCounters, NandOp, Profile, Status};
use serde::Serialize;

use super::map::{Map, Reclaimed};
use super::requests::{Arrivals, Asked, Pattern, Requests, Source};
use crate::events::Events;
use crate::planted::Planted;
use crate::random::Random;
use crate::report::{Counted, RunError, held, in_time, percent, steady, times};
use crate::slots::Slots;
use crate::stages::{Split, Stages};
use crate::statistics::{Distribution, Law, Population, Times};
use crate::system::{Document, SystemError};
use crate::time::Time;
use crate::trace::Record;

/// Requests of NAND that reclaim may have under way in addition to the others.
const RECLAIM_MOST: usize = 1 << 20;
/// Marks a command of reclaim. Below it, a tag is a request.
const RECLAIM: u64 = 1 << 63;

/// The stages of a read, as `explain` names them.
const READ_STAGES: [&str; 7] =
    ["command on the link", "queues of the device", "command on the bus", "array", "wait for the bus", "bus", "link"];
const WRITE_STAGES: [&str; 4] = ["data on the link", "queues of the device", "bus", "array"];

/// A flash device behind a link, with what is asked of it.
#[derive(Clone, Debug)]
pub struct FlashSystem {
    /// The device.
    pub nand: Profile,
    /// The share of its pages that can be written.
    pub filled: f64,
    /// How often each page was overwritten before the run.
    pub aged: u64,
    /// What a command takes on the link.
    pub link_command: Time,
    /// Bytes a second in each direction of the link.
    pub link_rate: f64,
    /// What is asked.
    pub requests: Requests,
    /// The trace, if requests are of one.
    pub trace: Option<Vec<Record>>,
    /// Keeps each request's stages, so that percentiles can be split.
    pub explain: bool,
    /// A bug, for the tests of the suite.
    pub planted: Planted,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlashReport {
    /// Reads, from their arrival to their data.
    pub reads: Distribution,
    /// Writes, from their arrival to their end.
    pub writes: Distribution,
    /// Requests that ended, a second of simulated time.
    pub requests_per_s: f64,
    /// Bytes that these read, a second.
    pub read_bytes_per_s: f64,
    /// Bytes that these wrote, a second.
    pub write_bytes_per_s: f64,
    /// Little's law over the requests.
    pub law: Law,
    /// What the time of reads is spent on.
    pub read_stages: Option<Split>,
    /// What the time of writes is spent on.
    pub write_stages: Option<Split>,
    /// Share of the buses' time in which they were busy.
    pub bus_busy: f64,
    /// Share of the arrays' time in which they were busy.
    pub array_busy: f64,
    /// Pages written to NAND for each that was asked for. None without writes.
    pub write_amplification: Option<f64>,
    /// Blocks that reclaim has erased.
    pub erased_blocks: u64,
    /// Share of the pages read for requests that found reclaim of their plane before them. None
    /// without any.
    pub reads_behind_reclaim: Option<f64>,
    /// Energy in joules.
    pub energy_j: f64,
    /// Mean power: the energy over the time.
    pub power_w: f64,
    /// Requests that NAND answered with an error.
    pub failed: u64,
    /// Simulated seconds of the measurement.
    pub simulated_s: f64,
    /// Requests and events of the whole run.
    pub counted: Counted,
    /// What a reader has to know.
    pub warnings: Vec<String>,
}

impl FlashReport {
    /// What a reader is shown.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("requests/s", format!("{:.0}", self.requests_per_s)),
            ("read MB/s", format!("{:.1}", self.read_bytes_per_s / 1e6)),
            ("written MB/s", format!("{:.1}", self.write_bytes_per_s / 1e6)),
        ];
        let names = ["reads", "read mean us", "read p50 us", "read p99 us", "read p99.99 us"];
        times(&mut rows, names, &self.reads);
        let names = ["writes", "write mean us", "write p50 us", "write p99 us", "write p99.99 us"];
        times(&mut rows, names, &self.writes);
        rows.push(("under way", format!("{:.2}", self.law.mean_present)));
        rows.push(("buses busy", percent(self.bus_busy)));
        rows.push(("arrays busy", percent(self.array_busy)));
        rows.extend(self.write_amplification.map(|factor| ("write amplification", format!("{factor:.3}"))));
        rows.extend(self.reads_behind_reclaim.map(|share| ("reads behind reclaim", percent(share))));
        rows.push(("power W", format!("{:.3}", self.power_w)));
        rows
    }
}

#[derive(Debug)]
enum Event {
    /// A request comes.
    Comes(Asked),
    /// A write's data has crossed the link, or a read's command.
    Reaches(u32),
    /// A request has ended.
    Ends(u32),
}

#[derive(Clone, Copy)]
struct Request {
    came: Time,
    reached: Time,
    writes: bool,
    page: u64,
    pages: u32,
    left: u32,
    bytes: u64,
    /// Of its last page.
    last: Done,
}

impl FlashSystem {
    /// Reads a system.
    ///
    /// # Errors
    /// What is wrong with it, with the line.
    pub fn read(document: &Document, trace: Option<&[Record]>) -> Result<FlashSystem, SystemError> {
        let (nand, filled) = document.filled_nand()?;
        let requests = Requests::read(document, trace.is_some())?;
        let page_bytes = u64::from(nand.geometry.page_bytes());
        let capacity = Map::new(nand.geometry, filled).map_or(0, |map| map.pages()) * page_bytes;
        if requests.pattern != Pattern::Trace && !(1..=capacity).contains(&requests.bytes) {
            return Err(document.refuse(
                "requests.size",
                format!("the device holds {capacity} B; write 1 B or more, and no more than that"),
            ));
        }
        if let Some(records) = trace {
            check_trace(document, records, requests, capacity)?;
        }
        Ok(FlashSystem {
            nand,
            filled,
            aged: document.count("flash.aged", 0, 1000)?,
            link_command: document.time("link.command")?,
            link_rate: document.rate("link.rate")?,
            requests,
            trace: trace.map(<[Record]>::to_vec),
            explain: false,
            planted: Planted::None,
        })
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the statistics contradict each other, or nothing was measured.
    pub fn run(&self, seed: u64) -> Result<FlashReport, RunError> {
        let page_bytes = u64::from(self.nand.geometry.page_bytes());
        let mut map = Map::new(self.nand.geometry, self.filled).map_err(|_| RunError::Nothing)?;
        if self.aged > 0 {
            map.age(self.aged, &mut Random::new(seed, 2));
        }
        let source = match &self.trace {
            Some(records) => Source::trace(records.clone(), self.requests.arrivals == Arrivals::Trace, page_bytes),
            None => Source::made(self.requests, page_bytes, map.pages(), seed),
        };
        let depth = match self.requests.arrivals {
            Arrivals::Closed(depth) => depth as usize,
            Arrivals::Poisson(_) | Arrivals::Trace => 1 << 20,
        };
        let most = self.requests.bytes.max(self.trace.iter().flatten().map(|record| record.bytes).max().unwrap_or(0));
        let pages_of_one = (most / page_bytes + 2) as usize;
        // The device's table is as large as what may be under way, within reason.
        let table = depth.saturating_mul(pages_of_one).min(1 << 24) + if self.writes() { RECLAIM_MOST } else { 0 };
        let mut nand = Nand::new(self.nand, table, seed);
        map.settle(&mut nand);
        let count = self
            .trace
            .as_ref()
            .map_or(self.requests.count, |records| (records.len() as u64).saturating_sub(self.requests.warm_up));
        Run {
            system: self,
            nand,
            map,
            source,
            count,
            events: Events::new(),
            requests: Slots::new(),
            commands: Vec::new(),
            down_free: Time::ZERO,
            up_free: Time::ZERO,
            inside: Population::default(),
            reads: Times::new(),
            writes: Times::new(),
            read_stages: Stages::new(READ_STAGES, self.explain),
            write_stages: Stages::new(WRITE_STAGES, self.explain),
            read_bytes: 0,
            written_bytes: 0,
            ended: 0,
            failed: 0,
            pages_read: 0,
            behind: 0,
            begun: Time::ZERO,
            before: NandCounters::default(),
        }
        .drive()
    }
    fn writes(&self) -> bool {
        self.trace.iter().flatten().any(|record| record.writes) || (self.trace.is_none() && self.requests.reads < 1.0)
    }
}

/// Whether a trace can be run on a device.
pub(crate) fn check_trace(
    document: &Document,
    records: &[Record],
    requests: Requests,
    capacity: u64,
) -> Result<(), SystemError> {
    let count = records.len() as u64;
    if count <= requests.warm_up {
        let told = format!("the trace has {count} requests, so that none is left to measure; write less");
        return Err(document.refuse("requests.warm_up", told));
    }
    if let Some(record) = records.iter().find(|record| record.offset.saturating_add(record.bytes) > capacity) {
        let told = format!(
            "line {} of the trace is for {} B at {}, and the device holds {capacity} B",
            record.line, record.bytes, record.offset
        );
        return Err(document.impossible(if document.has("flash.filled") { "flash.filled" } else { "dram.rows" }, told));
    }
    if requests.arrivals == Arrivals::Trace {
        if let Some(record) = records.iter().find(|record| record.at.is_none()) {
            let told = format!("line {} of the trace has no time: write arrivals = \"closed\"", record.line);
            return Err(document.impossible("requests.arrivals", told));
        }
        if let Some(pair) = records.windows(2).find(|pair| pair[0].at > pair[1].at) {
            let told = format!("line {} of the trace comes before the line above it: sort it by time", pair[1].line);
            return Err(document.impossible("requests.arrivals", told));
        }
    }
    Ok(())
}

struct Run<'s> {
    system: &'s FlashSystem,
    nand: Nand,
    map: Map,
    source: Source,
    count: u64,
    events: Events<Event>,
    requests: Slots<Request>,
    commands: Vec<NandOp>,
    down_free: Time,
    up_free: Time,
    inside: Population,
    reads: Times,
    writes: Times,
    read_stages: Stages<7>,
    write_stages: Stages<4>,
    read_bytes: u64,
    written_bytes: u64,
    ended: u64,
    failed: u64,
    /// Pages that were read for requests, and of them those that found reclaim before them.
    pages_read: u64,
    behind: u64,
    begun: Time,
    before: NandCounters,
}

/// When the requests that are under way came.
fn entered(requests: &Slots<Request>) -> impl Iterator<Item = Time> + '_ {
    requests.under_way().map(|request| request.came)
}

impl Run<'_> {
    fn drive(mut self) -> Result<FlashReport, RunError> {
        match self.system.requests.arrivals {
            Arrivals::Closed(depth) => (0..depth).for_each(|_| self.comes_next(Time::ZERO)),
            Arrivals::Poisson(_) | Arrivals::Trace => self.comes_next(Time::ZERO),
        }
        let mut done = Vec::new();
        let last = self.system.requests.warm_up + self.count;
        while self.ended < last {
            let next = self.events.next_at();
            let device = self.nand.next_event_ns();
            // What the kernel has comes first, so that a request which comes now is seen now.
            match (next, device) {
                (Some(at), Some(device)) if Time::ns(device) < at => {
                    done.clear();
                    self.nand.advance_to_next(at.0.div_ceil(1000) - 1, &mut done);
                    done.iter().for_each(|done| self.answers(*done));
                }
                (None, Some(device)) => {
                    in_time(Time::ns(device))?;
                    done.clear();
                    self.nand.advance_to_next(u64::MAX / 1000, &mut done);
                    done.iter().for_each(|done| self.answers(*done));
                }
                (Some(_), _) => match self.events.next().expect("one is pending") {
                    Event::Comes(asked) => self.comes(asked),
                    Event::Reaches(number) => self.reaches(number),
                    Event::Ends(number) => self.ends(number),
                },
                // A trace that is shorter than the warm-up.
                (None, None) => break,
            }
        }
        self.report()
    }

    /// Lets the source's next request come, now or when it says.
    fn comes_next(&mut self, now: Time) {
        if let Some(asked) = self.source.next() {
            self.events.schedule(asked.at.unwrap_or(now).max(now), 0, Event::Comes(asked));
        }
    }
    fn comes(&mut self, asked: Asked) {
        let now = self.events.now();
        if asked.at.is_some() {
            self.comes_next(now);
        }
        self.inside.enter(now);
        let nothing =
            Done { tag: 0, status: Status::Ok, submitted_ns: 0, issued_ns: 0, done_ns: 0, blocked_by_reclaim: false };
        let request = Request {
            came: now,
            reached: now,
            writes: asked.writes,
            page: asked.page,
            pages: asked.pages,
            left: asked.pages,
            bytes: asked.bytes,
            last: nothing,
        };
        let number = self.requests.add(request);
        let data = if asked.writes { self.on_link(asked.bytes) } else { Time::ZERO };
        let reaches = self.down_free.max(now) + self.system.link_command + data;
        self.down_free = reaches;
        self.events.schedule(reaches, 0, Event::Reaches(number));
    }
    fn on_link(&self, bytes: u64) -> Time {
        if self.system.planted == Planted::FreeLink {
            return Time::ZERO;
        }
        Time((bytes as f64 * 1e12 / self.system.link_rate + 0.5) as u64)
    }
    fn reaches(&mut self, number: u32) {
        let now = self.events.now();
        let request = &mut self.requests[number];
        request.reached = now;
        let Request { page, pages, bytes, writes, .. } = *request;
        let at = now.0.div_ceil(1000);
        let page_bytes = self.system.nand.geometry.page_bytes();
        let mut left = bytes;
        for logical in page..page + u64::from(pages) {
            if writes {
                self.commands.clear();
                self.map.write(logical, &mut self.commands);
                let last = self.commands.len() - 1;
                for turn in 0..=last {
                    let (op, reclaim) = (self.commands[turn], turn < last);
                    self.submit(at, op, if reclaim { RECLAIM } else { u64::from(number) }, reclaim);
                }
            } else {
                let of_this = left.clamp(1, u64::from(page_bytes)) as u32;
                left = left.saturating_sub(u64::from(of_this));
                let op = NandOp::Read { page: self.map.place(logical), offset: 0, bytes: of_this };
                self.submit(at, op, u64::from(number), false);
            }
        }
    }
    fn submit(&mut self, at: u64, op: NandOp, tag: u64, reclaim: bool) {
        let taken = self.nand.submit(at, Command { tag, op, reclaim });
        // The map keeps to the rules, and the table has room for all that may be under way.
        taken.unwrap_or_else(|error| panic!("the map or the size of the table is wrong: {error}"));
    }
    fn answers(&mut self, done: Done) {
        self.failed += u64::from(!matches!(done.status, Status::Ok | Status::Corrected(_)));
        if done.tag == RECLAIM {
            return;
        }
        let number = done.tag as u32;
        let request = &mut self.requests[number];
        if !request.writes {
            self.pages_read += 1;
            self.behind += u64::from(done.blocked_by_reclaim);
        }
        request.left -= 1;
        request.last = done;
        if request.left > 0 {
            return;
        }
        let at = Time::ns(done.done_ns);
        let Request { writes, bytes, .. } = *request;
        let ends = if writes {
            at
        } else {
            let ends = self.up_free.max(at) + self.on_link(bytes);
            self.up_free = ends;
            ends
        };
        self.events.schedule(ends, 0, Event::Ends(number));
    }
    fn ends(&mut self, number: u32) {
        let now = self.events.now();
        let request = self.requests[number];
        self.requests.ends(number);
        self.inside.leave(request.came, now);
        self.record(&request, now);
        self.ended += 1;
        if self.ended == self.system.requests.warm_up {
            self.measure_from(now);
        }
        if let Arrivals::Closed(_) = self.system.requests.arrivals
            && let Some(asked) = self.source.next()
        {
            self.comes(asked);
        }
    }
    fn record(&mut self, request: &Request, now: Time) {
        let timing = self.system.nand.timing;
        let (issued, done) = (Time::ns(request.last.issued_ns), Time::ns(request.last.done_ns));
        let command = Time::ns(timing.command_ns);
        let link = request.reached - request.came;
        let queue = issued - request.reached;
        if request.writes {
            self.writes.record(now - request.came);
            self.written_bytes += request.bytes;
            let bus = command + Time::ns(timing.transfer_ns(self.system.nand.geometry.page_bytes()));
            let array = (done - issued) - bus;
            self.write_stages.record(now, [link, queue, bus, array]);
        } else {
            let began = if self.system.planted == Planted::LateClock { request.reached } else { request.came };
            self.reads.record(now - began);
            self.read_bytes += request.bytes;
            let array = Time::ns(timing.read_ns);
            // The last page may be a part: what it takes on the bus follows from its bytes.
            let page_bytes = u64::from(self.system.nand.geometry.page_bytes());
            let whole = request.bytes.min(page_bytes);
            let bus = Time::ns(timing.transfer_ns(whole as u32)).min((done - issued) - command - array);
            let waits = (done - issued) - command - array - bus;
            self.read_stages.record(now, [link, queue, command, array, waits, bus, now - done]);
        }
    }
    fn measure_from(&mut self, now: Time) {
        let entered = entered(&self.requests);
        self.inside.measure_from(now, entered);
        (self.reads, self.writes) = (Times::new(), Times::new());
        self.read_stages.clear();
        self.write_stages.clear();
        (self.read_bytes, self.written_bytes, self.failed) = (0, 0, 0);
        (self.pages_read, self.behind) = (0, 0);
        self.map.measure_from_here();
        (self.begun, self.before) = (now, *self.nand.counters());
    }

    fn report(mut self) -> Result<FlashReport, RunError> {
        if self.ended <= self.system.requests.warm_up {
            return Err(RunError::Nothing);
        }
        let now = self.events.now();
        let entered = entered(&self.requests);
        let law = held(self.inside.law(now, entered), now)?;
        if let Arrivals::Poisson(_) = self.system.requests.arrivals {
            steady(law)?;
        }
        let span = (now - self.begun).as_s();
        let (after, before) = (*self.nand.counters(), self.before);
        let geometry = self.system.nand.geometry;
        let busy = |ns: u64, of: u32| ns as f64 / 1e9 / span / f64::from(of);
        let energy_j = (after.energy_pj() - before.energy_pj()) as f64 / 1e12;
        let reclaimed: Reclaimed = self.map.reclaimed();
        let mut warnings: Vec<String> = reclaimed.warning("run longer, or set flash.aged").into_iter().collect();
        if self.failed > 0 {
            warnings.push(format!("{} requests of NAND failed or were uncorrectable", self.failed));
        }
        Ok(FlashReport {
            reads: self.reads.distribution(),
            writes: self.writes.distribution(),
            requests_per_s: law.rate_per_s,
            read_bytes_per_s: self.read_bytes as f64 / span,
            write_bytes_per_s: self.written_bytes as f64 / span,
            law,
            read_stages: self.read_stages.split(),
            write_stages: self.write_stages.split(),
            bus_busy: busy(after.bus_busy_ns - before.bus_busy_ns, geometry.channels()),
            array_busy: busy(after.array_busy_ns - before.array_busy_ns, geometry.planes()),
            write_amplification: reclaimed.amplification(),
            erased_blocks: reclaimed.erased,
            reads_behind_reclaim: (self.pages_read > 0).then(|| self.behind as f64 / self.pages_read as f64),
            energy_j,
            power_w: energy_j / span,
            failed: self.failed,
            simulated_s: span,
            counted: Counted { requests: self.ended, events: self.events.happened() },
            warnings,
        })
    }
}
