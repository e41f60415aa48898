//! The kernel's primitives of a page fault that its thread resolves, and nothing else: a signal, a
//! page moved out, its contents, a page moved in. What an allocator or a page buffer costs is
//! compared with them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use fulgurite_fault::{Access, Fault, FaultOutcome, Signal};
use fulgurite_sys::faults::{HandlerStack, handle_by};
use fulgurite_sys::{Arena, Backed, Region, Userfault};

use crate::kernel;
use fulgurite_harness::Spread;

/// Pages of addresses, and pages that are there at a time.
pub const PLACES: usize = 1 << 12;
pub const PAGES: usize = 256;
pub const PAGE_BYTES: usize = 4096;
/// Words and bytes of an object.
pub const WORDS: usize = 16;
pub const OBJECT_BYTES: usize = WORDS * 8;
/// A step over all places that never comes near: odd, and the count is a power of two.
pub const STEP: usize = 7919;
pub const REPEATS: usize = 5;

/// Time of one of `count` calls, in ns, a few times over and once before. Each gets an index, far
/// from the one before.
pub fn repeated(count: usize, mut act: impl FnMut(usize)) -> Spread {
    let mut once = || {
        let begun = Instant::now();
        (0..count).for_each(|index| act(index * STEP % count));
        begun.elapsed().as_nanos() as f64 / count as f64
    };
    once();
    Spread::of((0..REPEATS).map(|_| once()))
}

/// What a fault does with the page that comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// The bytes of an object are copied out of it and in.
    Object,
    /// It is zeroed.
    Zeros,
}

/// Pages that are moved at faults, and nothing else.
pub struct Bare {
    userfault: Userfault,
    region: Region,
    frames: Arena,
    content: Content,
    /// Which page of the region has a frame's page, plus one.
    holds: Box<[AtomicUsize]>,
    next: AtomicUsize,
    /// Signals that this access still gets in vain.
    extra: AtomicUsize,
}

static BARE: OnceLock<Bare> = OnceLock::new();

/// Resolves a fault of the bare region.
fn handle_fault(fault: &Fault) -> FaultOutcome {
    let Some(bare) = BARE.get() else { return FaultOutcome::NotMine };
    let Some(offset) = bare.region.offset_of(fault.address) else { return FaultOutcome::NotMine };
    let left = bare.extra.load(Ordering::Relaxed);
    if left > 0 {
        bare.extra.store(left - 1, Ordering::Relaxed);
        return FaultOutcome::Again;
    }
    match bare.resolve(offset / PAGE_BYTES) {
        true => FaultOutcome::Again,
        false => FaultOutcome::Failed,
    }
}

impl Bare {
    /// Takes memory for it. A process has one, and handles `SIGBUS` from then on.
    ///
    /// # Errors
    /// When there is no userfaultfd for this user.
    pub fn start(content: Content) -> Result<&'static Bare> {
        let userfault = Userfault::open_in_line()?;
        let region = Region::reserve(PLACES * PAGE_BYTES)?;
        userfault.watch(&region)?;
        region.allow(0, region.len(), Access::ReadWrite)?;
        let frames = Arena::anonymous(PAGES * PAGE_BYTES, Backed::BasePages)?;
        userfault.take_back_to(&frames)?;
        let holds = (0..PAGES).map(|_| AtomicUsize::new(0)).collect();
        let (next, extra) = (AtomicUsize::new(0), AtomicUsize::new(0));
        ensure!(
            BARE.set(Bare { userfault, region, frames, content, holds, next, extra }).is_ok(),
            "it was measured before"
        );
        handle_by(Signal::Bus, handle_fault, HandlerStack::Own)?;
        BARE.get().ok_or_else(|| anyhow!("it was set just now"))
    }
    /// The oldest page leaves, and this one comes.
    fn resolve(&self, page: usize) -> bool {
        let frame = self.next.load(Ordering::Relaxed);
        self.next.store((frame + 1) % PAGES, Ordering::Relaxed);
        let at = frame * PAGE_BYTES;
        let before = self.holds[frame].swap(page + 1, Ordering::Relaxed);
        let has_left =
            before == 0 || self.userfault.move_out(&self.region, (before - 1) * PAGE_BYTES, &self.frames, at).is_ok();
        match self.content {
            Content::Object => {
                let mut bytes = [0; OBJECT_BYTES];
                self.frames.read(at, &mut bytes);
                bytes[0] = bytes[0].wrapping_add(1);
                self.frames.write(at, &bytes);
            }
            Content::Zeros => self.frames.zero(at, PAGE_BYTES),
        }
        has_left && self.userfault.move_in(&self.frames, at, &self.region, page * PAGE_BYTES).is_ok()
    }
    /// Time of a fault, in ns, with `extra` signals in vain before it.
    pub fn faults(&self, extra: usize) -> Spread {
        repeated(PLACES, |page| {
            self.extra.store(extra, Ordering::Relaxed);
            kernel::touch(&self.region, page * PAGE_BYTES);
        })
    }
    /// Moves without a fault, in and out. It leaves no page in the region.
    ///
    /// # Errors
    /// When a page does not move.
    pub fn moves(&self) -> Result<(Spread, Spread)> {
        let (mut ins, mut outs, mut failed) = (Vec::new(), Vec::new(), 0);
        for frame in 0..PAGES {
            self.frames.write(frame * PAGE_BYTES, &[1; OBJECT_BYTES]);
        }
        for _ in 0..REPEATS {
            let mut timed = |act: &dyn Fn(usize) -> bool| {
                let begun = Instant::now();
                failed += (0..PAGES).filter(|page| !act(page * PAGE_BYTES)).count();
                begun.elapsed().as_nanos() as f64 / PAGES as f64
            };
            ins.push(timed(&|at| self.userfault.move_in(&self.frames, at, &self.region, at).is_ok()));
            outs.push(timed(&|at| self.userfault.move_out(&self.region, at, &self.frames, at).is_ok()));
        }
        ensure!(failed == 0, "{failed} pages were not moved");
        Ok((Spread::of(ins), Spread::of(outs)))
    }
}
