//! A wrapper that makes any medium misbehave, by plan and by seed, for tests.
//!
//! Rules count the requests they apply to, over all queues of the medium, in order of submission.
//! So a test with one worker is deterministic. A request that is made to fail never reaches the
//! medium within. A flush that is made to fail poisons the wrapper as a real one poisons a file.
//!
//! Invariant: each request is completed exactly once. Those that a rule makes to hang stay in
//! flight until the queue is dropped.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fulgurite_format::SubpageIndex;
use fulgurite_sys::{Arena, Notifier};

use crate::slots::Slots;
use crate::{
    Backing, Completion, DeviceCounters, Flash, FlashError, Op, OpenedQueue, Queue, QueueFull, QueueUser, Request,
    Switches, Traits, check_depth, lock,
};

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It fails with this error; its data does not move. `FlashError::Io(5)` is EIO, 11 EAGAIN, 28
    /// ENOSPC.
    Fails(FlashError),
    /// It never completes: the device has stopped answering.
    Hangs,
    /// It succeeds, and its completion is found this many polls later.
    Late {
        /// Polls that do not find it yet.
        polls: u32,
    },
}

/// Which of the requests that a rule applies to are hit, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// This one alone.
    Nth(u64),
    /// This one and all after it.
    From(u64),
    /// Every n-th request.
    Every(u64),
    /// One request in n, chosen by the plan's seed.
    OneIn(u64),
}

/// One rule of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The operation it applies to; none for all.
    pub op: Option<Op>,
    /// Which of them are hit.
    pub when: When,
    /// What happens to these. The first rule of a plan that hits decides.
    pub fault: Fault,
}

/// Which faults happen, and what is written down.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// Decides everything that the rules leave open.
    pub seed: u64,
    /// The faults that happen.
    pub rules: Vec<Rule>,
    /// Completions come in random order, and some a few polls late.
    pub reorder: bool,
    /// Submissions are kept for [`FaultyFlash::record`].
    pub record: bool,
}

impl FaultPlan {
    /// The plan of a single rule.
    #[must_use]
    pub fn rule(op: Option<Op>, when: When, fault: Fault) -> FaultPlan {
        FaultPlan { rules: vec![Rule { op, when, fault }], ..FaultPlan::default() }
    }
}

/// A medium that misbehaves.
#[derive(Debug)]
pub struct FaultyFlash<F> {
    inner: F,
    state: Arc<Mutex<State>>,
}

struct Watch(Box<dyn FnMut(&Request) + Send>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

#[derive(Debug)]
struct State {
    plan: FaultPlan,
    watch: Option<Watch>,
    /// Requests that each rule has seen.
    seen: Vec<u64>,
    random: u64,
    poisoned: bool,
    submitted: u64,
    errors: u64,
    record: Vec<(Op, SubpageIndex)>,
    /// Counts [`FaultyFlash::end_late`].
    released: u64,
}

impl<F: Flash> FaultyFlash<F> {
    /// Wraps a medium.
    pub fn new(inner: F, plan: FaultPlan) -> FaultyFlash<F> {
        let state = State {
            seen: vec![0; plan.rules.len()],
            random: plan.seed,
            plan,
            watch: None,
            poisoned: false,
            submitted: 0,
            errors: 0,
            record: Vec::new(),
            released: 0,
        };
        FaultyFlash { inner, state: Arc::new(Mutex::new(state)) }
    }
    /// Goes on by another plan; its counts start at 0. Poison and record stay.
    pub fn set_plan(&self, plan: FaultPlan) {
        let mut state = lock(&self.state);
        (state.seen, state.random, state.plan) = (vec![0; plan.rules.len()], plan.seed, plan);
    }
    /// What was submitted so far while the plan said `record`, in order.
    #[must_use]
    pub fn record(&self) -> Vec<(Op, SubpageIndex)> {
        lock(&self.state).record.clone()
    }
    /// Calls this before each request that reaches the medium, in order.
    pub fn watch(&self, watch: impl FnMut(&Request) + Send + 'static) {
        lock(&self.state).watch = Some(Watch(Box::new(watch)));
    }
    /// What is late by now ([`Fault::Late`]) is found by the next poll.
    pub fn end_late(&self) {
        lock(&self.state).released += 1;
    }
    /// Requests submitted so far, hit or not.
    #[must_use]
    pub fn submitted(&self) -> u64 {
        lock(&self.state).submitted
    }
    /// The medium within.
    pub fn inner(&self) -> &F {
        &self.inner
    }
}

impl<F: Flash> Flash for FaultyFlash<F> {
    fn subpages(&self) -> u32 {
        self.inner.subpages()
    }
    fn describe(&self) -> String {
        format!("{}, with faults", self.inner.describe())
    }
    fn traits(&self) -> Traits {
        self.inner.traits()
    }
    fn staging_bytes(&self, frames: u32) -> usize {
        self.inner.staging_bytes(frames)
    }
    fn open_queue_for(&self, user: QueueUser, frames: Arc<Arena>, depth: usize, wake: Arc<Notifier>) -> OpenedQueue {
        check_depth(depth)?;
        let inner = self.inner.open_queue_for(user, frames, depth, wake)?;
        Ok(Box::new(FaultyQueue::new(inner, self.state.clone(), depth)))
    }
    fn trim(&self, first: SubpageIndex, count: u32) -> Result<(), FlashError> {
        self.inner.trim(first, count)
    }
    fn backing(&self) -> Option<&dyn Backing> {
        self.inner.backing()
    }
    fn counters(&self) -> DeviceCounters {
        let mut counters = self.inner.counters();
        counters.errors += lock(&self.state).errors;
        counters
    }
}

impl State {
    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// Counts a request, and says what happens to it.
    fn decide(&mut self, request: &Request) -> Option<Fault> {
        self.submitted += 1;
        if self.plan.record {
            self.record.push((request.op, request.subpage));
        }
        let mut hit = None;
        for index in 0..self.plan.rules.len() {
            let rule = self.plan.rules[index];
            if rule.op.is_some_and(|op| op != request.op) {
                continue;
            }
            self.seen[index] += 1;
            let (count, random) = (self.seen[index], self.random());
            let hits = match rule.when {
                When::Nth(n) => count == n,
                When::From(n) => count >= n,
                When::Every(n) => count.is_multiple_of(n.max(1)),
                When::OneIn(n) => random.is_multiple_of(n.max(1)),
            };
            if hits && hit.is_none() {
                hit = Some(rule.fault);
            }
        }
        if self.poisoned && request.op != Op::Read {
            hit = Some(Fault::Fails(FlashError::Poisoned));
        }
        if let Some(Fault::Fails(_)) = hit {
            self.errors += 1;
            self.poisoned |= request.op == Op::Flush;
        }
        hit
    }
}

struct FaultyQueue {
    inner: Box<dyn Queue>,
    state: Arc<Mutex<State>>,
    /// The caller's tags; the medium within sees slots.
    slots: Slots,
    /// By slot: polls that do not find its completion yet.
    late: Box<[u32]>,
    /// Failed at submission, not handed over yet.
    batch: Vec<(u32, FlashError)>,
    /// Ended, and the polls until they are found.
    held: Vec<(Completion, u32)>,
    arrived: Vec<Completion>,
    /// As [`State::released`], at this queue's last poll.
    released: u64,
}

impl FaultyQueue {
    fn new(inner: Box<dyn Queue>, state: Arc<Mutex<State>>, depth: usize) -> FaultyQueue {
        FaultyQueue {
            inner,
            state,
            slots: Slots::new(depth),
            late: vec![0; depth].into(),
            batch: Vec::new(),
            held: Vec::new(),
            arrived: Vec::new(),
            released: 0,
        }
    }
}

impl Queue for FaultyQueue {
    fn will_poll(&self) {
        self.inner.will_poll();
    }
    fn submit(&mut self, request: Request) -> Result<(), QueueFull> {
        let slot = self.slots.take(request.tag).ok_or(QueueFull)?;
        let fault = lock(&self.state).decide(&request);
        self.late[slot as usize] = match fault {
            Some(Fault::Late { polls }) => polls,
            _ => 0,
        };
        match fault {
            Some(Fault::Fails(error)) => self.batch.push((slot, error)),
            Some(Fault::Hangs) => {}
            Some(Fault::Late { .. }) | None => {
                if let Some(Watch(watch)) = &mut lock(&self.state).watch {
                    watch(&request);
                }
                let inner = Request { tag: slot.into(), ..request };
                self.inner.submit(inner).expect("the queue within is as deep and has no more in flight");
            }
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), FlashError> {
        let failed = |(slot, error): (u32, _)| Completion { tag: slot.into(), result: Err(error), checksum: 0 };
        self.held.extend(self.batch.drain(..).map(|batched| (failed(batched), 0)));
        self.inner.flush()
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.inner.poll(&mut self.arrived);
        let mut state = lock(&self.state);
        let reorder = state.plan.reorder;
        for completion in self.arrived.drain(..) {
            let slot = completion.tag as u32;
            let extra = if reorder && state.random().is_multiple_of(4) { state.random() % 4 } else { 0 };
            self.held.push((completion, self.late[slot as usize].saturating_add(extra as u32)));
        }
        if std::mem::replace(&mut self.released, state.released) != state.released {
            self.held.iter_mut().for_each(|(_, polls)| *polls = 0);
            // Of those as well that the medium within has not ended yet.
            self.late.fill(0);
        }
        let slots = &mut self.slots;
        self.held.retain_mut(|(completion, polls)| {
            let due = *polls == 0;
            if due {
                completions.push(Completion { tag: slots.release(completion.tag as u32), ..*completion });
            }
            *polls = polls.saturating_sub(1);
            !due
        });
        if reorder {
            let found = &mut completions[before..];
            for i in (1..found.len()).rev() {
                found.swap(i, (state.random() % (i as u64 + 1)) as usize);
            }
        }
        completions.len() - before
    }
    fn switch(&mut self, to: Switches) -> Switches {
        self.inner.switch(to)
    }
    fn use_frames(&mut self, frames: std::ops::Range<u32>) {
        self.inner.use_frames(frames);
    }
    fn wait(&mut self, timeout: Option<Duration>) {
        let _ = self.flush();
        // What is held comes by polling, not by sleeping.
        if self.held.is_empty() {
            self.inner.wait(timeout);
        }
    }
    fn in_flight(&self) -> usize {
        self.slots.in_use()
    }
    fn depth(&self) -> usize {
        self.slots.depth()
    }
    fn bytes(&self) -> usize {
        self.inner.bytes() + self.slots.bytes() + self.late.len() * 4
    }
}
