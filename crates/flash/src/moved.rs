//! The queue of a medium whose subpages are stored elsewhere in the medium within. All else is
//! passed on.

use std::time::Duration;

use fulgurite_format::SubpageIndex;

use crate::{Completion, FlashError, Op, Queue, QueueFull, Request, Switches};

/// `to` says where a subpage is stored, or that it is stored nowhere. It is not asked about a
/// flush, which is of the whole medium.
pub(crate) struct MovedQueue<F> {
    pub inner: Box<dyn Queue>,
    pub to: F,
}

impl<F: Fn(u32) -> Option<u32> + Send> Queue for MovedQueue<F> {
    #[inline]
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        // No medium has the last one.
        let nowhere = SubpageIndex(u32::MAX);
        let subpage = match request.op {
            Op::Flush => request.subpage,
            _ => (self.to)(request.subpage.0).map_or(nowhere, SubpageIndex),
        };
        self.inner.submit(Request { subpage, ..request })
    }
    #[inline]
    fn flush(&mut self) -> Result<(), FlashError> {
        self.inner.flush()
    }
    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.inner.poll(completions)
    }
    #[inline]
    fn will_poll(&self) {
        self.inner.will_poll();
    }
    fn switch(&mut self, to: Switches) -> Switches {
        self.inner.switch(to)
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        self.inner.use_frames(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        self.inner.wait(timeout);
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}
