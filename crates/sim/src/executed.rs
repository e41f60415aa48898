//! Executed workloads: requests of crate `workloads`, run as they are, whose accesses are noted.
//!
//! ```text
//!   request n --> workload --> Noted memory --> plain memory (the data)
//!                                   |
//!                                   +--> the accesses of request n --> a simulated core or worker
//! ```
//!
//! A request runs to its end when a simulated thread takes it. The simulated thread then repeats
//! its accesses in simulated time. So requests change the data in the order in which they are
//! taken, and timing decides nothing but time.
//!
//! Invariants: what is noted is a function of (workload, data, exponent, seed, number), whatever
//! the simulated system is.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use fulgurite_memory::{
    AccessError, Address, FiberLatch, PAGE_BYTES, Pinned, PlainMemory, PlainPin, RawMemory, Region, SUBPAGE_BYTES,
    View, ViewMut,
};
use fulgurite_sys::{ArenaError, Backed};
use fulgurite_workloads::{Params, Site, Visitor, Workload, WorkloadError};
use thiserror::Error;

/// One access of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// Its first byte, from the start of the data.
    pub at: u64,
    /// How many bytes.
    pub bytes: u32,
    /// It may write them.
    pub writes: bool,
    /// Through a pin: the subpage is at hand, and nothing is looked up.
    pub pinned: bool,
}

impl Touch {
    /// The subpage that it is in.
    pub fn subpage(&self) -> u32 {
        (self.at / SUBPAGE_BYTES as u64) as u32
    }
}

/// Why a workload cannot be executed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecutedError {
    /// There is none of this name, or it needs more than a seed.
    #[error("{0} cannot be simulated: it needs an input of its own")]
    NeedsInput(String),
    /// There is none of this name.
    #[error(transparent)]
    Unknown(#[from] fulgurite_workloads::UnknownWorkload),
    /// There is no memory.
    #[error("no memory for the workload's data: {0}")]
    Memory(#[from] ArenaError),
    /// It could not be built, or a request failed.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
}

type Notes = Rc<RefCell<Vec<Touch>>>;

/// Plain memory that notes what is touched.
#[derive(Debug)]
struct Noted {
    memory: PlainMemory,
    notes: Notes,
}

impl Noted {
    fn note(&self, at: Address, bytes: usize, writes: bool) {
        let touch = Touch { at: at.linear(), bytes: bytes as u32, writes, pinned: false };
        self.notes.borrow_mut().push(touch);
    }
}

impl RawMemory for Noted {
    type Pin = NotedPin;
    type Section = ();
    type Inner = Self;
    fn identity(&self) -> fulgurite_memory::Identity<'_> {
        self.memory.identity()
    }

    fn view(&mut self, at: Address, len: usize) -> Result<View<'_>, AccessError> {
        self.note(at, len, false);
        self.memory.view(at, len)
    }
    fn view_mut(&mut self, at: Address, len: usize) -> Result<ViewMut<'_>, AccessError> {
        self.note(at, len, true);
        self.memory.view_mut(at, len)
    }
    fn pin(&mut self, at: Address) -> Result<NotedPin, AccessError> {
        self.note(at, 0, false);
        Ok(NotedPin { pin: self.memory.pin(at)?, notes: self.notes.clone() })
    }
    fn park(&mut self, word: &AtomicU64, expected: u64) -> Result<(), AccessError> {
        self.memory.park(word, expected)
    }
    fn write_section(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
    fn yield_now(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
}

/// A pin of it.
#[derive(Debug)]
struct NotedPin {
    pin: PlainPin,
    notes: Notes,
}

impl NotedPin {
    fn note(&self, offset: usize, bytes: usize, writes: bool) {
        let at = self.pin.address().linear() + offset as u64;
        self.notes.borrow_mut().push(Touch { at, bytes: bytes as u32, writes, pinned: true });
    }
}

impl Pinned for NotedPin {
    fn address(&self) -> Address {
        self.pin.address()
    }
    fn view(&self, offset: usize, len: usize) -> View<'_> {
        self.note(offset, len, false);
        self.pin.view(offset, len)
    }
    fn view_mut(&self, offset: usize, len: usize) -> ViewMut<'_> {
        self.note(offset, len, true);
        self.pin.view_mut(offset, len)
    }
}

/// A workload whose type is forgotten.
trait Requests {
    fn run(&mut self, number: u64) -> Result<(), AccessError>;
    fn dram_bytes(&self) -> u64;
}

struct Opened<W> {
    memory: Noted,
    workload: W,
    seed: u64,
}

impl<W: Workload> Requests for Opened<W> {
    fn run(&mut self, number: u64) -> Result<(), AccessError> {
        let request = self.workload.request(self.seed, number);
        self.workload.execute(&mut self.memory, &request).map(|_| ())
    }
    fn dram_bytes(&self) -> u64 {
        self.workload.dram_bytes()
    }
}

struct Open {
    params: Params,
    notes: Notes,
}

impl Visitor for Open {
    type Output = Result<Box<dyn Requests>, ExecutedError>;
    fn visit<W: Workload>(self) -> Self::Output {
        let mut plain = PlainMemory::new(Backed::BasePages)?;
        let region = Region::new(Address::from_linear(0), region_bytes(self.params.bytes));
        W::build(&mut plain, Site::new(region, &self.params, &mut |_| ()))?;
        let seed = self.params.seed;
        let mut memory = Noted { memory: plain, notes: self.notes };
        let workload = W::open(&mut memory, region, &self.params)?;
        memory.notes.borrow_mut().clear();
        Ok(Box::new(Opened { memory, workload, seed }))
    }
}

/// Bytes of the region for `bytes` of data: whole pages, as in the benchmarks.
fn region_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES as u64)
}

/// A workload with its data, and the number of its next request.
pub struct Executed {
    requests: Box<dyn Requests>,
    notes: Notes,
    next: u64,
    subpages: u32,
}

impl std::fmt::Debug for Executed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executed").field("next", &self.next).field("subpages", &self.subpages).finish_non_exhaustive()
    }
}

impl Executed {
    /// The names of workloads that need nothing but data, an exponent and a seed.
    pub fn names() -> impl Iterator<Item = &'static str> {
        fulgurite_workloads::names().iter().copied().filter(|name| *name != "search")
    }
    /// Builds `bytes` of data of the workload of this name. Keys are chosen by Zipf with this
    /// exponent.
    ///
    /// # Errors
    /// When there is no such workload, it cannot have this amount of data, or there is no memory.
    pub fn build(name: &str, bytes: u64, exponent: f64, seed: u64) -> Result<Executed, ExecutedError> {
        if name == "search" {
            return Err(ExecutedError::NeedsInput(name.to_owned()));
        }
        let notes = Notes::default();
        let open = Open { params: Params { bytes, zipf: exponent, seed, ..Params::default() }, notes: notes.clone() };
        let requests = fulgurite_workloads::dispatch::<FiberLatch, _>(name, open)??;
        let subpages = (region_bytes(bytes) / SUBPAGE_BYTES as u64) as u32;
        Ok(Executed { requests, notes, next: 0, subpages })
    }
    /// Subpages of its data.
    pub fn subpages(&self) -> u32 {
        self.subpages
    }
    /// DRAM that the workload itself uses: latches and the like.
    pub fn dram_bytes(&self) -> u64 {
        self.requests.dram_bytes()
    }
    /// Runs the next request. Its accesses replace what `into` has, in their order.
    ///
    /// # Errors
    /// When it fails. It has changed nothing then.
    pub fn request(&mut self, into: &mut Vec<Touch>) -> Result<(), ExecutedError> {
        let number = self.next;
        self.next += 1;
        into.clear();
        self.requests.run(number).map_err(WorkloadError::from)?;
        into.append(&mut self.notes.borrow_mut());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_touch_the_same_each_time() {
        for name in fulgurite_workloads::THE_SEVEN {
            let mut all = [Vec::new(), Vec::new()];
            for touches in &mut all {
                let mut workload = Executed::build(name, 8 << 20, 0.99, 3).unwrap();
                let mut one = Vec::new();
                for _ in 0..50 {
                    workload.request(&mut one).unwrap();
                    assert!(!one.is_empty(), "{name}");
                    assert!(one.iter().all(|touch| touch.subpage() < workload.subpages()), "{name}");
                    touches.append(&mut one);
                }
            }
            assert_eq!(all[0], all[1], "{name}");
            assert!(all[0].iter().any(|touch| touch.writes), "{name} writes nothing");
        }
    }
    #[test]
    fn what_cannot_be_executed_is_reported() {
        let told = |name, bytes| Executed::build(name, bytes, 0.99, 1).map(|_| ()).unwrap_err().to_string();
        assert!(told("search", 8 << 20).contains("input"));
        assert!(told("tapt", 8 << 20).contains("did you mean \"tatp\"?"));
        assert!(!told("tpcc", 4096).is_empty());
        assert!(Executed::names().all(|name| name != "search") && Executed::names().count() > 7);
    }
}
