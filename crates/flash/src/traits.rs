//! What a medium is like, and how a queue is used: plain values that a decorator copies and
//! changes.
//!
//! A decorator begins with the traits of the medium within
//! (`Traits { trims: false, ..inner.traits() }`), so that a field that is added later passes
//! through it unless it says otherwise. No method of [`Flash`](crate::Flash) or
//! [`Queue`](crate::Queue) that a medium implements has a default, for the same reason.

use std::time::Duration;

/// What holds for a medium as long as it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traits {
    /// DRAM that the medium itself keeps in this process for its work, in addition to its queues:
    /// it counts against the budget.
    pub dram_bytes: usize,
    /// Frames should be memory that can be handed to another process
    /// ([`fulgurite_sys::Arena::sealed_memfd`]): the medium is one, and moves data straight from
    /// and to them then. Read once, before there are frames.
    pub shares_frames: bool,
    /// How long a request may wait in the medium although nothing is wrong with it: a device of
    /// another process that is away is waited for. A time-out for requests adds this to the time
    /// that they may take.
    pub patience: Duration,
    /// The largest number of neighbouring subpages of a batch that become one request. Where that
    /// is more than one, writes cost less the more of them are handed over together.
    pub gathers: usize,
    /// The largest number of writes that a queue keeps back, where it is allowed to
    /// ([`Switches::hold_writes`]), so that more of them go out as one request.
    pub holds_writes: usize,
    /// Whether [`Flash::trim`](crate::Flash::trim) does anything.
    pub trims: bool,
    /// Whether [`QueueUser::Caller`] is more than [`QueueUser::AnyThread`].
    pub serves_callers: bool,
    /// How a worker drives its queue, unless other settings are given.
    pub tuning: Tuning,
}

/// How a worker drives its queue on a medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// How many requests a worker collects before it hands them over.
    pub submit_batch: usize,
    /// How long a worker that has nothing to run polls before it sleeps.
    pub spin: Duration,
}

impl Tuning {
    /// A request costs a few stores, and its completion comes sooner than a thread wakes up.
    pub const MEMORY: Tuning = Tuning { submit_batch: 1, spin: Duration::from_micros(100) };
    /// A hand-over is a system call, worth gathering a few requests for. A disk's completions are
    /// worth sleeping for: compared with 100 µs of polling, 20 µs took 6% less CPU a request
    /// (`fulgurite-lab live --flash FILE --create --workload array-swap`, four pairs of runs on a
    /// busy machine), and their throughputs did not differ.
    pub const FILE: Tuning = Tuning { submit_batch: 4, spin: Duration::from_micros(20) };
}

impl Traits {
    /// Of plain memory: nothing is kept, gathered or waited for.
    pub const PLAIN: Traits = Traits {
        dram_bytes: 0,
        shares_frames: false,
        patience: Duration::ZERO,
        gathers: 1,
        holds_writes: 0,
        trims: false,
        serves_callers: false,
        tuning: Tuning::MEMORY,
    };
}

/// Which threads use a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueUser {
    /// The thread that uses it first, and no other one.
    OneThread,
    /// Threads in turns. It may cost more. What a thread has under way when it ends may fail. When
    /// a request ends, a system call in which the thread waits that handed it over may end early,
    /// as by a signal.
    AnyThread,
    /// Threads in turns, each of which waits for what it hands over. So it does that itself
    /// ([`Queue::flush`](crate::Queue::flush)) and no other thread is woken. Such a queue has no
    /// descriptors.
    Caller,
}

/// What a queue does in addition to moving subpages. All are off in a queue that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Switches {
    /// Reads, too, wait for the end of the batch, and reads of neighbouring places go out as one
    /// request.
    pub gather_reads: bool,
    /// Completions say the checksum of what was moved, made by what moves it.
    pub checksums: bool,
    /// Writes may be kept back for a while ([`Traits::holds_writes`]): nothing waits for them but
    /// the need for their frames.
    pub hold_writes: bool,
    /// Each completion notifies the queue's `wake`, whether or not a thread is in
    /// [`Queue::wait`](crate::Queue::wait). So a thread can wait that does not have the queue.
    pub notifies: bool,
    /// What is submitted is a store's own work: its journal, its copies. A medium that counts what
    /// waits for what tells it from what programs asked for.
    pub own_work: bool,
}
