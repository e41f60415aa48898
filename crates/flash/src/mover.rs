//! Moves many subpages through a queue of a medium, as many at a time as a device likes.

use std::sync::Arc;
use std::time::Duration;

use fulgurite_format::{FrameIndex, SUBPAGE_BYTES, SubpageIndex};
use fulgurite_sys::{Arena, Backed, Notifier};

use crate::{Completion, Flash, FlashError, Op, OpenError, Queue, Request};

/// Requests in flight.
const DEPTH: usize = 64;
/// How long a completion is waited for at a time.
const LOOK: Duration = Duration::from_millis(10);

/// A queue and its frames.
pub struct Mover {
    queue: Box<dyn Queue>,
    frames: Arc<Arena>,
    free: Vec<u32>,
    /// By frame: what it is in use for.
    subpages: Vec<u32>,
    completions: Vec<Completion>,
}

/// The end of a read: which subpage, and its content.
pub type Read<'r> = (u32, Result<&'r [u8], FlashError>);

impl Mover {
    /// Over a medium.
    ///
    /// # Errors
    /// When there is no memory, or the medium has no queue.
    pub fn new(flash: &dyn Flash) -> Result<Mover, OpenError> {
        let frames = Arc::new(Arena::anonymous(DEPTH * SUBPAGE_BYTES, Backed::BasePages)?);
        let wake = Notifier::new().map_err(|source| OpenError::System { what: "make a notifier", source })?;
        let queue = flash.open_queue(frames.clone(), DEPTH, Arc::new(wake))?;
        Ok(Mover {
            queue,
            frames,
            free: (0..DEPTH as u32).collect(),
            subpages: vec![0; DEPTH],
            completions: Vec::with_capacity(DEPTH),
        })
    }
    fn submit(&mut self, op: Op, subpage: u32, frame: u32) {
        self.subpages[frame as usize] = subpage;
        let request = Request { tag: frame.into(), op, subpage: SubpageIndex(subpage), frame: FrameIndex(frame) };
        self.queue.submit(request).expect("a queue as deep as there are frames");
    }
    /// Polls, and sleeps when nothing was there.
    fn poll(&mut self) -> Vec<Completion> {
        let mut completions = std::mem::take(&mut self.completions);
        completions.clear();
        if self.queue.poll(&mut completions) == 0 && self.queue.in_flight() > 0 {
            self.queue.wait(Some(LOOK));
        }
        completions
    }

    /// Reads subpages; `each` is told of them in the order in which they arrive.
    ///
    /// # Errors
    /// When the medium takes no more requests, and those of `each`.
    pub fn read<E: From<FlashError>>(
        &mut self,
        subpages: impl Iterator<Item = u32>,
        mut each: impl FnMut(Read<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut subpages = subpages.fuse();
        let mut page = vec![0; SUBPAGE_BYTES];
        loop {
            while let Some(frame) = self.free.pop() {
                let Some(subpage) = subpages.next() else {
                    self.free.push(frame);
                    break;
                };
                self.submit(Op::Read, subpage, frame);
            }
            if self.queue.in_flight() == 0 {
                return Ok(());
            }
            self.queue.flush()?;
            let completions = self.poll();
            for completion in &completions {
                let frame = completion.tag as u32;
                self.free.push(frame);
                self.frames.read(frame as usize * SUBPAGE_BYTES, &mut page);
                each((self.subpages[frame as usize], completion.result.map(|()| &page[..])))?;
            }
            self.completions = completions;
        }
    }

    /// Writes subpages: `next` fills a page and says which subpage it is, until there is none.
    ///
    /// # Errors
    /// The medium's, and those of `next`.
    pub fn write<E: From<FlashError>>(
        &mut self,
        mut next: impl FnMut(&mut [u8]) -> Result<Option<u32>, E>,
    ) -> Result<(), E> {
        let mut page = vec![0; SUBPAGE_BYTES];
        let mut more = true;
        loop {
            while more && let Some(frame) = self.free.pop() {
                match next(&mut page)? {
                    Some(subpage) => {
                        self.frames.write(frame as usize * SUBPAGE_BYTES, &page);
                        self.submit(Op::Write, subpage, frame);
                    }
                    None => {
                        self.free.push(frame);
                        more = false;
                    }
                }
            }
            if self.queue.in_flight() == 0 {
                return Ok(());
            }
            self.queue.flush()?;
            let completions = self.poll();
            for completion in &completions {
                self.free.push(completion.tag as u32);
                completion.result?;
            }
            self.completions = completions;
        }
    }
}
