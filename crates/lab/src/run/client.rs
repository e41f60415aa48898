//! Clients of a server of keys and values: a connection and a thread each, one request at a time.
//!
//! A value carries its key and a version. For each key two numbers are kept: the last version that
//! was begun, and the last that was stored. Writes of one key exclude each other. So a read must
//! find a version between what was stored before it began and what was begun before it ended.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fulgurite_workloads::{Random, ZipfKeys, mix};

use super::contest::Outcome;
use super::protocol::{Connection, Protocol};
use fulgurite_harness::Latencies;

/// The keys of one server, and what is known of their values.
pub struct Keys {
    begun: Vec<AtomicU32>,
    stored: Vec<AtomicU32>,
    /// A key's writers, by a part of its number.
    writers: Vec<Mutex<()>>,
    value_bytes: usize,
    noise: Vec<u8>,
}

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub protocol: Protocol,
    pub port: u16,
    pub clients: u32,
    /// Percent of the requests that read.
    pub gets: u32,
    pub zipf: f64,
    pub time: Duration,
    pub seed: u64,
}

const WRITERS: usize = 4096;
/// Places where the noise of a value may begin.
const NOISE: usize = 4096;
/// The key and the version, 16 digits each.
const HEAD: usize = 32;
/// Requests that are under way at a time while a server is filled.
const FILLED_AT_ONCE: u64 = 32;

fn name(key: u64) -> String {
    format!("key:{key:012}")
}

impl Keys {
    /// `count` keys.
    pub fn new(count: u64, value_bytes: u32) -> Keys {
        let value_bytes = (value_bytes as usize).max(HEAD);
        let mut random = Random::new(7, 7);
        let zeros = || (0..count).map(|_| AtomicU32::new(0)).collect();
        Keys {
            begun: zeros(),
            stored: zeros(),
            writers: (0..WRITERS).map(|_| Mutex::new(())).collect(),
            value_bytes,
            noise: (0..NOISE + value_bytes).map(|_| b'a' + random.below(26) as u8).collect(),
        }
    }
    /// How many.
    pub fn count(&self) -> u64 {
        self.begun.len() as u64
    }
    fn value(&self, key: u64, version: u32, into: &mut Vec<u8>) {
        into.clear();
        into.extend(format!("{key:016x}{version:016x}").bytes());
        let from = mix(key ^ mix(version.into())) as usize % NOISE;
        into.extend_from_slice(&self.noise[from..from + self.value_bytes - HEAD]);
    }
    /// The version of a value, if it is whole and of this key.
    fn version(&self, key: u64, value: &[u8]) -> Option<u32> {
        let head = std::str::from_utf8(value.get(HEAD / 2..HEAD)?).ok()?;
        let version = u32::try_from(u64::from_str_radix(head, 16).ok()?).ok()?;
        let mut expected = Vec::with_capacity(self.value_bytes);
        self.value(key, version, &mut expected);
        (expected == value).then_some(version)
    }

    /// Stores a first version of all keys.
    ///
    /// # Errors
    /// The server's.
    pub fn fill(&self, protocol: Protocol, port: u16, go_on: impl Fn() -> Result<()>) -> Result<()> {
        let mut to = Connection::open(protocol, port)?;
        let mut value = Vec::new();
        for first in (0..self.count()).step_by(FILLED_AT_ONCE as usize) {
            go_on()?;
            let some = first..(first + FILLED_AT_ONCE).min(self.count());
            for key in some.clone() {
                self.begun[key as usize].store(1, Ordering::Relaxed);
                self.value(key, 1, &mut value);
                to.put_set(&name(key), &value);
            }
            to.go()?;
            for key in some {
                to.stored()?;
                self.stored[key as usize].store(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
    /// Writes a key's next version. Returns how long that took once no other client wrote the key.
    fn set(&self, to: &mut Connection, key: u64, value: &mut Vec<u8>) -> Result<Duration> {
        let writer = &self.writers[mix(key) as usize % WRITERS];
        let _writes = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = Instant::now();
        let version = self.begun[key as usize].load(Ordering::Relaxed) + 1;
        self.begun[key as usize].store(version, Ordering::SeqCst);
        self.value(key, version, value);
        to.put_set(&name(key), value);
        to.go()?;
        to.stored()?;
        self.stored[key as usize].store(version, Ordering::SeqCst);
        Ok(asked.elapsed())
    }
    /// Reads a key. False when what comes cannot be its value.
    fn get(&self, from: &mut Connection, key: u64, value: &mut Vec<u8>) -> Result<bool> {
        let least = self.stored[key as usize].load(Ordering::SeqCst);
        let found = from.get(&name(key), value)?;
        let most = self.begun[key as usize].load(Ordering::SeqCst);
        Ok(found && self.version(key, value).is_some_and(|version| (least..=most).contains(&version)))
    }

    /// Has clients make requests for a time, or until `over` is set.
    ///
    /// # Errors
    /// The server's.
    pub fn run(&self, plan: &Plan, over: &AtomicBool) -> Result<Outcome> {
        let keys = ZipfKeys::new("run", self.count(), plan.zipf)?;
        let begun = Instant::now();
        let ended = thread::scope(|scope| -> Result<Vec<Done>> {
            let one = |number: u32| {
                let to = Connection::open(plan.protocol, plan.port)?;
                let random = Random::new(plan.seed, number.into());
                Ok(scope.spawn(move || self.client(to, &keys, plan, over, begun, random)))
            };
            let running = (0..plan.clients).map(one).collect::<Result<Vec<_>>>()?;
            running.into_iter().map(|one| one.join().ok().context("a client panicked")?).collect()
        })?;
        let (mut latency, mut outcome) = (Latencies::new(), Outcome::default());
        for mut done in ended {
            latency.add(&mut done.latency);
            outcome.operations += done.operations;
            outcome.wrong += done.wrong;
            outcome.elapsed_ns = outcome.elapsed_ns.max(done.elapsed.as_nanos() as u64);
        }
        outcome.latency = latency.pairs();
        Ok(outcome)
    }
    fn client(
        &self,
        mut to: Connection,
        keys: &ZipfKeys,
        plan: &Plan,
        over: &AtomicBool,
        begun: Instant,
        mut random: Random,
    ) -> Result<Done> {
        let mut done = Done { operations: 0, wrong: 0, latency: Latencies::new(), elapsed: Duration::ZERO };
        let mut value = Vec::new();
        while done.elapsed < plan.time && !over.load(Ordering::Relaxed) {
            let key = keys.sample(&mut random);
            let took = if random.percent(plan.gets.into()) {
                let asked = Instant::now();
                done.wrong += u64::from(!self.get(&mut to, key, &mut value)?);
                asked.elapsed()
            } else {
                self.set(&mut to, key, &mut value)?
            };
            done.latency.record(took.as_nanos() as u64);
            done.operations += 1;
            done.elapsed = begun.elapsed();
        }
        Ok(done)
    }
    /// Reads keys, at most as many as asked for, each of which must have its last version.
    ///
    /// # Errors
    /// The first that has not; the server's.
    pub fn check(&self, protocol: Protocol, port: u16, at_most: u64, go_on: impl Fn() -> Result<()>) -> Result<()> {
        let mut from = Connection::open(protocol, port)?;
        let mut value = Vec::new();
        for key in (0..self.count()).step_by(self.count().div_ceil(at_most).max(1) as usize) {
            go_on()?;
            ensure!(self.get(&mut from, key, &mut value)?, "the value of key {key} is lost, old or damaged");
        }
        Ok(())
    }
}

/// What a client did.
struct Done {
    operations: u64,
    wrong: u64,
    latency: Latencies,
    elapsed: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_its_keys_and_whole() {
        let keys = Keys::new(4, 100);
        let mut value = Vec::new();
        keys.value(3, 9, &mut value);
        assert_eq!((value.len(), keys.version(3, &value), keys.version(2, &value)), (100, Some(9), None));
        value[70] ^= 1;
        assert_eq!((keys.version(3, &value), keys.version(3, b"short")), (None, None));
    }
}
