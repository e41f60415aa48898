//! What a client does: requests that are a function of (seed, number), one after the other, until
//! the time is over.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fulgurite_harness::Latencies;
use fulgurite_workloads::{Random, ZipfKeys, value};
use serde::{Deserialize, Serialize};

use crate::stores::Client;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum What {
    /// Gets, in percent. The other requests put.
    Values { gets: u32 },
    /// A transfer between two accounts. One in ten only reads one.
    Bank,
}

impl What {
    /// Percent of the requests that are gets.
    pub fn gets(self) -> u32 {
        match self {
            What::Values { gets } => gets,
            What::Bank => 10,
        }
    }
    /// Whether anything is written.
    pub fn writes(self) -> bool {
        self != What::Values { gets: 100 }
    }
}

/// What clients execute in a round.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub what: What,
    pub clients: usize,
    /// Clients are fibers instead of OS threads. Only ours has these.
    pub fibers: bool,
    pub time: Duration,
    /// The first number of its requests. Client c takes each `clients`-th from there plus c.
    pub first: u64,
    pub seed: u64,
    pub zipf: f64,
    pub keys: u64,
    pub value_bytes: usize,
}

/// What one client did.
#[derive(Debug, Default)]
pub struct Taken {
    pub gets: u64,
    pub puts: u64,
    /// Gets that found no key.
    pub lost: u64,
    pub latency: Latencies,
    pub ended: Option<Instant>,
}

/// Executes the requests of one client.
///
/// # Errors
/// What the store says. A value that is torn, damaged or another key's.
pub fn drive(client: &mut dyn Client, plan: &Plan, number: usize) -> Result<Taken> {
    let keys = ZipfKeys::new("peers", plan.keys, plan.zipf)?;
    let mut buffer = vec![0; plan.value_bytes];
    let mut taken = Taken::default();
    let end = Instant::now() + plan.time;
    for request in (plan.first + number as u64..).step_by(plan.clients) {
        let mut random = Random::new(plan.seed, request);
        let key = keys.sample(&mut random);
        let what = random.next();
        // What the client makes of its request is not the store's time.
        let put = match plan.what {
            What::Values { gets } => what % 100 >= u64::from(gets),
            What::Bank => !what.is_multiple_of(10),
        };
        if put && plan.what != What::Bank {
            value::fill(&mut buffer, key, request);
        }
        let begun = Instant::now();
        if begun >= end {
            break;
        }
        match (plan.what, put) {
            (What::Values { .. }, true) => client.put(key, &buffer)?,
            (What::Values { .. }, false) => {
                let mut whole = true;
                let found = client.get(key, &mut |bytes| whole = value::version_of(bytes, key).is_some())?;
                if !whole {
                    bail!("the value of key {key} is torn, damaged or another key's");
                }
                taken.lost += u64::from(!found);
            }
            (What::Bank, true) => {
                let to = keys.sample(&mut random);
                let to = if to == key { (to + 1) % plan.keys } else { to };
                client.transfer(key, to, 1 + what / 10 % 1000)?;
            }
            (What::Bank, false) => {
                if !client.get(key, &mut |_| {})? {
                    bail!("account {key} is missing");
                }
            }
        }
        taken.latency.record(begun.elapsed().as_nanos() as u64);
        if put {
            taken.puts += 1;
        } else {
            taken.gets += 1;
        }
    }
    taken.ended = Some(Instant::now());
    Ok(taken)
}
