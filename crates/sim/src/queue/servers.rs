//! M/M/k: servers of one queue, first come first served.

use std::collections::VecDeque;

use serde::Serialize;

use crate::events::Events;
use crate::random::Random;
use crate::report::{RunError, held, steady};
use crate::statistics::{Distribution, Law, Population};
use crate::time::Time;

/// Servers of one queue: Poisson arrivals, exponential service.
#[derive(Clone, Copy, Debug)]
pub struct Servers {
    /// How many servers.
    pub servers: u32,
    /// The mean of a service.
    pub service: Time,
    /// The mean time between arrivals.
    pub between: Time,
    /// Jobs that are measured. A tenth as many run before them.
    pub jobs: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ServersReport {
    /// From arrival to end.
    pub response: Distribution,
    /// Little's law.
    pub law: Law,
    /// The share of the servers' time in which they served.
    pub load: f64,
}

#[derive(Debug)]
enum Event {
    Arrives,
    Ends { arrived: Time },
}

impl Servers {
    /// Runs it.
    ///
    /// # Errors
    /// When the statistics contradict each other.
    pub fn run(&self, seed: u64) -> Result<ServersReport, RunError> {
        let (mut arrivals, mut services) = (Random::new(seed, 0), Random::new(seed, 1));
        let mut events = Events::new();
        let (mut inside, mut waiting) = (Population::default(), VecDeque::new());
        // When each that is served has arrived.
        let mut at_servers: Vec<Time> = Vec::new();
        let (mut busy, mut served) = (0, Time::ZERO);
        let before = self.jobs / 10;
        let (mut ended, mut begun) = (0, Time::ZERO);
        events.after(arrivals.exponential(self.between), Event::Arrives);
        while ended < before + self.jobs {
            let event = events.next().expect("the next arrival is pending");
            let now = events.now();
            match event {
                Event::Arrives => {
                    inside.enter(now);
                    events.after(arrivals.exponential(self.between), Event::Arrives);
                    waiting.push_back(now);
                }
                Event::Ends { arrived } => {
                    inside.leave(arrived, now);
                    let place = at_servers.iter().position(|other| *other == arrived);
                    at_servers.swap_remove(place.expect("it was served"));
                    busy -= 1;
                    ended += 1;
                    if ended == before {
                        inside.measure_from(now, at_servers.iter().chain(&waiting).copied());
                        (begun, served) = (now, Time::ZERO);
                    }
                }
            }
            if busy < self.servers
                && let Some(arrived) = waiting.pop_front()
            {
                busy += 1;
                at_servers.push(arrived);
                let service = services.exponential(self.service);
                served += service;
                events.after(service, Event::Ends { arrived });
            }
        }
        let now = events.now();
        let law = steady(held(inside.law(now, at_servers.iter().chain(&waiting).copied()), now)?)?;
        let load = served.as_s() / (now - begun).as_s() / f64::from(self.servers);
        Ok(ServersReport { response: inside.times().distribution(), law, load })
    }
}
