//! Timers: waits that end at a time, be it the one that the job asked for or its deadline.

use std::cmp::Reverse;

use super::Fibers;
use crate::mailbox::Wake;
use crate::state::WaitsFor;

impl Fibers {
    /// Notes that a fiber is about to sleep until then. Returns the ticket of this wait.
    pub(crate) fn will_sleep(&mut self, fiber: u32, until_ns: u64) -> u32 {
        let ticket = self.will_wait(fiber, WaitsFor::Outside, self.shared.clock.now_ns());
        self.timers.push(Reverse((until_ns, fiber, ticket)));
        ticket
    }

    /// Ends the wait that has just begun with the job's deadline, if it has one.
    pub(crate) fn until_deadline(&mut self, fiber: u32, ticket: u32) {
        if let Some(deadline_ns) = self.states[fiber as usize].deadline_ns() {
            // Most waits end before that: their timers must not pile up.
            if self.timers.len() > 4 * self.states.len() {
                let states = &self.states;
                self.timers.retain(|Reverse((_, fiber, ticket))| {
                    let state = &states[*fiber as usize];
                    state.waiting.get() && state.ticket.get() == *ticket
                });
            }
            self.timers.push(Reverse((deadline_ns + 1, fiber, ticket)));
        }
    }

    /// Whether a timer has run out. Timers of ended waits are removed as they come up. Otherwise
    /// the clock would be read for them until they are due.
    #[inline]
    pub(crate) fn timer_is_due(&mut self) -> bool {
        while let Some(&Reverse((at, fiber, ticket))) = self.timers.peek() {
            let state = &self.states[fiber as usize];
            if state.waiting.get() && state.ticket.get() == ticket {
                return at <= self.shared.clock.now_ns();
            }
            self.timers.pop();
        }
        false
    }

    /// Ends the waits whose time has come.
    pub(crate) fn ring_timers(&mut self) {
        let now = self.shared.clock.now_ns();
        while let Some(&Reverse((at, fiber, ticket))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            self.wake_ticket(fiber, ticket, Wake::Retry);
        }
    }
}
