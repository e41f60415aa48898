//! Which requests come to a flash device, and when.

use std::collections::VecDeque;

use crate::random::Random;
use crate::system::{Document, SystemError};
use crate::time::Time;
use crate::trace::Record;

/// When requests come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrivals {
    /// This number is under way at all times: each that ends makes place for the next.
    Closed(u32),
    /// By a Poisson process with this mean time between two.
    Poisson(Time),
    /// As a trace says.
    Trace,
}

/// Which pages requests are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Uniformly at random.
    Random,
    /// One after the other, and from the start again.
    Sequential,
    /// As a trace says.
    Trace,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Requests {
    /// When.
    pub arrivals: Arrivals,
    /// Where. A trace says so itself.
    pub pattern: Pattern,
    /// The share that reads.
    pub reads: f64,
    /// Bytes of each.
    pub bytes: u64,
    /// Requests that run first and are not measured.
    pub warm_up: u64,
    /// Requests that are measured.
    pub count: u64,
}

/// Keys of requests that are made, which a trace makes void.
const MADE: [&str; 5] = ["requests.depth", "requests.between", "requests.reads", "requests.size", "requests.count"];
/// The most requests that may be under way at once.
const DEPTH_MAX: u64 = 1 << 20;
/// The most requests of a run.
const COUNT_MAX: u64 = 1 << 40;

impl Requests {
    /// Reads `[requests]`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(document: &Document, trace: bool) -> Result<Requests, SystemError> {
        let arrivals = match document.word("requests.arrivals", &[("closed", 0), ("poisson", 1), ("trace", 2)])? {
            0 => Arrivals::Closed(document.count("requests.depth", 1, DEPTH_MAX)? as u32),
            1 => Arrivals::Poisson(document.time("requests.between")?),
            _ => Arrivals::Trace,
        };
        let pattern = document.word(
            "requests.pattern",
            &[("random", Pattern::Random), ("sequential", Pattern::Sequential), ("trace", Pattern::Trace)],
        )?;
        match (pattern, trace) {
            (Pattern::Trace, false) => {
                return Err(document.refuse("requests.pattern", "give the trace's file with --trace"));
            }
            (Pattern::Random | Pattern::Sequential, true) => {
                return Err(document.refuse("requests.pattern", "write \"trace\" to use the trace that was given"));
            }
            (Pattern::Trace, true) if matches!(arrivals, Arrivals::Poisson(_)) => {
                return Err(document.refuse("requests.arrivals", "a trace has \"trace\", or \"closed\""));
            }
            _ if arrivals == Arrivals::Trace && pattern != Pattern::Trace => {
                return Err(document.refuse("requests.arrivals", "only with pattern = \"trace\""));
            }
            _ => {}
        }
        let warm_up = document.count("requests.warm_up", 0, COUNT_MAX)?;
        if pattern == Pattern::Trace {
            // The trace has the rest. A file of made requests runs a trace by two values of --set.
            document.void(&MADE);
            return Ok(Requests { arrivals, pattern, reads: 0.0, bytes: 0, warm_up, count: 0 });
        }
        Ok(Requests {
            arrivals,
            pattern,
            reads: document.share("requests.reads")?,
            bytes: document.bytes("requests.size")?,
            warm_up,
            count: document.count("requests.count", 1, COUNT_MAX)?,
        })
    }
}

/// One request: when it comes, what for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    /// None: at once.
    pub at: Option<Time>,
    pub writes: bool,
    /// The first logical page, and how many.
    pub page: u64,
    pub pages: u32,
    /// Bytes that cross the link.
    pub bytes: u64,
}

/// Where requests come from.
pub(crate) enum Source {
    Made { requests: Requests, page_bytes: u64, pages: u64, next: u64, clock: Time, random: Random, times: Random },
    Trace { records: VecDeque<Record>, timed: bool, page_bytes: u64 },
}

impl Source {
    pub fn made(requests: Requests, page_bytes: u64, pages: u64, seed: u64) -> Source {
        let (random, times) = (Random::new(seed, 0), Random::new(seed, 1));
        Source::Made { requests, page_bytes, pages, next: 0, clock: Time::ZERO, random, times }
    }
    /// Records that are within the device, in the order of time if it is `timed`.
    pub fn trace(records: Vec<Record>, timed: bool, page_bytes: u64) -> Source {
        Source::Trace { records: records.into(), timed, page_bytes }
    }
    pub fn next(&mut self) -> Option<Asked> {
        match self {
            Source::Made { requests, page_bytes, pages, next, clock, random, times } => {
                let at = match requests.arrivals {
                    Arrivals::Poisson(between) => {
                        *clock += times.exponential(between);
                        Some(*clock)
                    }
                    Arrivals::Closed(_) | Arrivals::Trace => None,
                };
                let of_one = requests.bytes.div_ceil(*page_bytes).max(1);
                let places = *pages / of_one;
                let place = match requests.pattern {
                    Pattern::Random | Pattern::Trace => random.below(places),
                    Pattern::Sequential => {
                        *next = (*next + 1) % places;
                        (*next + places - 1) % places
                    }
                };
                // Without a draw where there is nothing to choose.
                let writes = requests.reads < 1.0 && random.unit() >= requests.reads;
                Some(Asked { at, writes, page: place * of_one, pages: of_one as u32, bytes: requests.bytes })
            }
            Source::Trace { records, timed, page_bytes } => {
                let record = records.pop_front()?;
                let first = record.offset / *page_bytes;
                let last = (record.offset + record.bytes.max(1) - 1) / *page_bytes;
                Some(Asked {
                    at: record.at.filter(|_| *timed),
                    writes: record.writes,
                    page: first,
                    pages: (last - first + 1) as u32,
                    bytes: record.bytes,
                })
            }
        }
    }
}
