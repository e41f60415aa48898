//! Subpages in memory: what plain memory and the emulated devices store in.

use std::sync::Arc;

use fulgurite_format::{SUBPAGE_BYTES, crc32c};
use fulgurite_sys::{Arena, Backed};

use crate::{Op, OpenError, check_depth};

/// Subpage i is the 4096 bytes at i x 4096.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) memory: Arc<Arena>,
    pub(crate) subpages: u32,
}

impl Cells {
    /// Over memory that is there, or over fresh memory that is all zero.
    pub(crate) fn new(subpages: u32, memory: Option<Arc<Arena>>, fresh: Backed) -> Result<Cells, OpenError> {
        let bytes = u64::from(subpages) * SUBPAGE_BYTES as u64;
        if subpages == 0 {
            return Err(OpenError::Size { bytes });
        }
        let memory = match memory {
            Some(memory) if (memory.len() as u64) < bytes => {
                return Err(OpenError::Storage { bytes: memory.len(), subpages });
            }
            Some(memory) => memory,
            None => Arc::new(Arena::anonymous(bytes as usize, fresh)?),
        };
        Ok(Cells { memory, subpages })
    }
    /// Refuses queues that there cannot be.
    pub(crate) fn check_queue(&self, frames: &Arc<Arena>, depth: usize) -> Result<(), OpenError> {
        check_depth(depth)?;
        if Arc::ptr_eq(frames, &self.memory) { Err(OpenError::SameArena) } else { Ok(()) }
    }
    /// Moves the data of a request between a subpage and a frame. Returns the checksum of the very
    /// bytes that were moved, if that is asked for.
    #[inline]
    pub(crate) fn serve(&self, op: Op, subpage: u32, frames: &Arena, frame: u32, checked: bool) -> u32 {
        let cell = (&*self.memory, subpage as usize * SUBPAGE_BYTES);
        let frame = (frames, frame as usize * SUBPAGE_BYTES);
        match op {
            Op::Read => transfer(cell, frame, checked),
            Op::Write => transfer(frame, cell, checked),
            Op::Flush => 0,
        }
    }
}

fn transfer(from: (&Arena, usize), to: (&Arena, usize), checked: bool) -> u32 {
    if !checked {
        Arena::copy(from.0, from.1, to.0, to.1, SUBPAGE_BYTES);
        return 0;
    }
    let mut page = Aligned([0; SUBPAGE_BYTES]);
    from.0.read(from.1, &mut page.0);
    to.0.write(to.1, &page.0);
    crc32c(&page.0)
}

/// A subpage on the stack.
#[repr(align(64))]
struct Aligned([u8; SUBPAGE_BYTES]);
