//! Recorded workloads on cores: threads that replay jobs, and threads whose jobs are noted.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::recording::{Reading, Recorder, Recording, Trail};
use super::work::{Space, Step};

/// One thread that replays a recording. Each job is the next one that no thread has taken.
#[derive(Debug)]
pub struct Player {
    recording: Arc<Recording>,
    taken: Rc<Cell<u64>>,
    space: Space,
    thread: u64,
    reading: Option<Reading>,
}

impl Player {
    /// A thread, by its number among all of them. `taken` is how many jobs all have taken.
    pub fn new(recording: Arc<Recording>, taken: Rc<Cell<u64>>, space: Space, thread: u64) -> Player {
        Player { recording, taken, space, thread, reading: None }
    }
    /// The next step.
    pub fn next(&mut self) -> Step {
        let Player { recording, taken, space, thread, reading } = self;
        let mut at = match *reading {
            Some(at) => at,
            None => {
                let job = recording.job(taken.replace(taken.get() + 1));
                job.expect("a system is refused that may begin more jobs than there are")
            }
        };
        let step = recording.step(&mut at, *space, *thread);
        *reading = (step != Step::End).then_some(at);
        step
    }
}

/// What notes the jobs of one thread.
#[derive(Debug)]
pub struct Pen {
    recorder: Rc<RefCell<Recorder>>,
    thread: u64,
    job: Option<(usize, Trail)>,
}

impl Pen {
    /// Of a thread, by its number among all of them.
    pub fn new(recorder: Rc<RefCell<Recorder>>, thread: u64) -> Pen {
        Pen { recorder, thread, job: None }
    }
    /// Notes the next step.
    pub fn note(&mut self, step: Step) {
        let mut recorder = self.recorder.borrow_mut();
        let (job, mut trail) = self.job.take().unwrap_or_else(|| (recorder.begin(), Trail::default()));
        recorder.note(job, &mut trail, self.thread, step);
        self.job = (step != Step::End).then_some((job, trail));
    }
    /// Whether a job has begun and not ended.
    pub fn within_job(&self) -> bool {
        self.job.is_some()
    }
}
