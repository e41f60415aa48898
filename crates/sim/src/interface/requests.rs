//! Threads that ask for one request each and wait for it, and what is counted of them.

use super::system::InterfaceSystem;
use crate::report::{RunError, held};
use crate::statistics::{Distribution, Law, Population};
use crate::time::Time;

#[derive(Clone, Copy)]
struct Thread {
    begun: Time,
    /// Commands of its request that have not ended.
    left: u32,
}

/// When the requests that are under way were asked for.
fn entered(threads: &[Thread]) -> impl Iterator<Item = Time> + '_ {
    threads.iter().filter(|thread| thread.left > 0).map(|thread| thread.begun)
}

/// The requests of all threads.
pub struct Requests {
    threads: Vec<Thread>,
    inside: Population,
    bytes: u64,
    /// The most bytes of a command.
    most: u64,
    /// Requests that run first, and all.
    warm_up: u64,
    all: u64,
    ended: u64,
    /// When the measurement began.
    begun: Time,
}

/// What the end of a command is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Its request has others.
    Command,
    /// Its request has ended, and the thread asks for the next one.
    Request,
    /// Its request has ended as well, and the measurement begins.
    WarmUp,
}

/// What was measured.
pub struct Measured {
    pub bytes_per_s: f64,
    pub times: Distribution,
    pub law: Law,
    pub span: f64,
}

impl Requests {
    /// Of a system. No thread has asked yet.
    pub fn new(system: &InterfaceSystem) -> Requests {
        Requests {
            threads: vec![Thread { begun: Time::ZERO, left: 0 }; system.threads as usize],
            inside: Population::default(),
            bytes: system.request,
            most: system.command_bytes(),
            warm_up: system.warm_up,
            all: system.warm_up + system.count,
            ended: 0,
            begun: Time::ZERO,
        }
    }
    /// Whether all have ended.
    pub fn is_done(&self) -> bool {
        self.ended >= self.all
    }
    /// Bytes that were asked for in the measurement so far.
    pub fn asked_bytes(&self) -> u64 {
        self.ended.saturating_sub(self.warm_up) * self.bytes
    }
    /// A thread asks. Returns the bytes of each command.
    pub fn ask(&mut self, thread: u32, now: Time) -> impl Iterator<Item = u64> + use<> {
        self.inside.enter(now);
        let (bytes, most) = (self.bytes, self.most);
        let count = bytes.div_ceil(most);
        self.threads[thread as usize] = Thread { begun: now, left: count as u32 };
        (0..count).map(move |turn| most.min(bytes - turn * most))
    }
    /// A command of a thread has ended.
    pub fn end(&mut self, thread: u32, now: Time) -> Ended {
        let of = &mut self.threads[thread as usize];
        of.left -= 1;
        if of.left > 0 {
            return Ended::Command;
        }
        self.inside.leave(of.begun, now);
        self.ended += 1;
        if self.ended != self.warm_up {
            return Ended::Request;
        }
        self.inside.measure_from(now, entered(&self.threads));
        self.begun = now;
        Ended::WarmUp
    }
    /// What was measured until now.
    pub fn measured(&mut self, now: Time) -> Result<Measured, RunError> {
        let law = held(self.inside.law(now, entered(&self.threads)), now)?;
        let span = (now - self.begun).as_s();
        let bytes_per_s = self.asked_bytes() as f64 / span;
        Ok(Measured { bytes_per_s, times: self.inside.times().distribution(), law, span })
    }
}
