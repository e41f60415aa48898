//! Services: requests made inside a worker, for servers that poll and for load generators.

use std::rc::Rc;

use crate::context::Context;
use crate::job::SubmitError;

/// What a service has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// A request is there.
    Ready,
    /// The next one comes at this time, in nanoseconds of [`fulgurite_sys::Clock`].
    At(u64),
    /// There will be no more.
    Finished,
}

/// A source of requests and what is done with them. Lives in one worker; all of its fibers run it.
pub trait Service {
    /// What there is to do. Called at every scheduling point and after every request: a few
    /// nanoseconds at most.
    fn next(&self) -> Next;
    /// Takes and serves one request that `next` announced. Runs on a fiber. Several may be inside
    /// at a time, in turns where they wait.
    fn run(&self, context: &mut Context);
    /// The name by which its requests are reported.
    fn name(&self) -> &'static str {
        "service"
    }
    /// How many pins one request may hold at once.
    fn pins(&self) -> u32 {
        4
    }
}

/// Makes a service inside its worker.
pub(crate) struct ServiceFactory {
    pub(crate) make: Box<dyn FnOnce() -> Rc<dyn Service> + Send>,
    /// Notified when the service has finished and its last request was served, or why it could not.
    pub(crate) done: std::sync::mpsc::Sender<Result<(), ServiceEnd>>,
}

/// Why a service ended before it had finished.
#[derive(Debug)]
pub(crate) enum ServiceEnd {
    /// It panicked or overflowed its stack; the text.
    Died(String),
    /// It could not begin.
    Refused(SubmitError),
}
