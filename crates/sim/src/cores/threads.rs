//! The work of a thread, wherever it comes from.

use std::cell::RefCell;
use std::rc::Rc;

use super::executed::{Replay, Shared};
use super::recorded::{Pen, Player};
use super::recording::Recorder;
use super::traced::Tracer;
use super::work::{Step, Work};
use crate::report::RunError;

/// The work of a thread.
#[derive(Debug)]
pub enum ThreadWork {
    Modelled(Work),
    Executed(Replay),
    Recorded(Player),
    Traced(Tracer),
    /// Any of these, whose jobs are noted.
    Noted(Box<ThreadWork>, Pen),
}

impl ThreadWork {
    /// The next step.
    pub fn next(&mut self) -> Step {
        match self {
            ThreadWork::Modelled(work) => work.next(),
            ThreadWork::Executed(replay) => replay.next(),
            ThreadWork::Recorded(player) => player.next(),
            ThreadWork::Traced(tracer) => tracer.next(),
            ThreadWork::Noted(work, pen) => {
                let step = work.next();
                pen.note(step);
                step
            }
        }
    }
    /// Does what is left of a job that has begun.
    pub fn end_job(&mut self) {
        while matches!(self, ThreadWork::Noted(_, pen) if pen.within_job()) {
            self.next();
        }
    }
    /// Does a whole job.
    pub fn do_job(&mut self) {
        while self.next() != Step::End {}
    }
}

/// Ends the jobs of a recorded run, and does more until there are as many as other systems may
/// begin.
pub fn complete<'w>(threads: impl Iterator<Item = &'w mut ThreadWork>, recorder: &RefCell<Recorder>, wanted: u64) {
    let mut threads: Vec<&mut ThreadWork> = threads.collect();
    threads.iter_mut().for_each(|thread| thread.end_job());
    let (mut turn, count) = (0, threads.len());
    while recorder.borrow().jobs() < wanted {
        threads[turn % count].do_job();
        turn += 1;
    }
}

/// Puts the pages of a workload's next request in the place of others, and notes them. Returns
/// that there is one.
pub fn next_pages(
    shared: &RefCell<Shared>,
    recorder: Option<&Rc<RefCell<Recorder>>>,
    pages: &mut Vec<u64>,
) -> Result<bool, RunError> {
    pages.clear();
    pages.extend(shared.borrow_mut().pages().map_err(|error| RunError::Workload(error.to_string()))?);
    if let Some(recorder) = recorder {
        recorder.borrow_mut().warm(pages);
    }
    Ok(true)
}
