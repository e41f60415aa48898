//! Frames of the simulated worker: what is in each, and whether it may be evicted.

use fulgurite_format::LocalFrame;
use fulgurite_policy::FrameView;

/// Where a frame is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    Free,
    /// A read into it is under way.
    Reading,
    /// It holds its subpage, and is in the replacement policy.
    Resident,
    /// It is being written back, and free then.
    Leaving,
    /// Nobody waits for the read into it any more; it is the device's until that ends.
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub life: Life,
    pub subpage: u32,
    /// It differs from flash.
    pub dirty: bool,
    pub referenced: bool,
    /// Somebody asked for it since it came.
    pub touched: bool,
    pub pins: u32,
    /// What differs belongs to the token that is being made, and is not on flash yet.
    pub before_cut: bool,
    /// It is being written where it lies, and must not change.
    pub in_place: bool,
}
impl Frame {
    pub const FREE: Frame = Frame {
        life: Life::Free,
        subpage: 0,
        dirty: false,
        referenced: false,
        touched: false,
        pins: 0,
        before_cut: false,
        in_place: false,
    };
}

/// Where a subpage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// On flash, or nowhere.
    Absent,
    Resident(u32),
    /// On its way: see the miss status table.
    Moving,
}

/// What the replacement policy may ask.
pub struct View<'a> {
    pub frames: &'a mut [Frame],
    /// What was written since a cut must not reach flash yet.
    pub holds_back: bool,
    /// Write-backs that may still be begun.
    pub writes_left: usize,
}

impl FrameView for View<'_> {
    fn take_referenced(&mut self, frame: LocalFrame) -> bool {
        std::mem::take(&mut self.frames[frame.index()].referenced)
    }
    fn evictable(&mut self, frame: LocalFrame) -> bool {
        let frame = &self.frames[frame.index()];
        assert_eq!(frame.life, Life::Resident, "the policy asks of a frame that is not in it: {frame:?}");
        if frame.pins > 0 {
            return false;
        }
        if !frame.dirty {
            return true;
        }
        if self.writes_left == 0 || self.holds_back && !frame.before_cut {
            return false;
        }
        self.writes_left -= 1;
        true
    }
}
