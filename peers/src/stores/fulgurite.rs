//! Fulgurite by its public crate: a map in a pool in a file. Clients are OS threads that execute
//! their requests themselves, or fibers, whose job goes on.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::fulgurite::{
    AccessError, Context, Durability, Fulgurite as Memory, HashMap, JobOptions, Map, Medium, Memory as FlashMemory,
    Rooted, Store as Maps, Transactions,
};
use anyhow::{Context as _, Result, anyhow};
use fulgurite_format::format_bytes;

use super::{ACCOUNT_BYTES, Client, Look, Name, Spec, Store, account, balance, parts};
use crate::drive::{Plan, Taken, drive};

/// What the process needs in addition to the budget: its binary, its clients, page tables.
const PROCESS_BYTES: u64 = 20 << 20;
/// Jobs that load at the same time, and jobs that check all keys.
const LOADERS: u64 = 16;
const READERS: u64 = 64;
/// Puts that a transaction's job may hold pinned.
const PINS: u32 = 32;

type Accounts = HashMap<u64, [u8; ACCOUNT_BYTES], ::fulgurite::latches::VersionLatch>;

/// What tables, stacks, rings and the frames of the index take, about.
const OTHER_BYTES: u64 = 48 << 20;
/// What each key takes in addition: its place in the pool's tables, and in the index.
const OTHER_KEY_BYTES: u64 = 0;

/// Of the pool, for each key, what its index takes and what is rewritten of it between two syncs.
const INDEX_KEY_BYTES: u64 = 64;

/// The part of `dram` that caches objects: most of what the tables and the index leave.
fn objects_of(dram: u64, keys: u64) -> u64 {
    dram.saturating_sub(OTHER_BYTES + keys * OTHER_KEY_BYTES).max(4 << 20)
}

enum Data {
    Values(Arc<Map<u64, [u8]>>),
    Bank(Arc<Rooted<Accounts>>),
}

impl Clone for Data {
    fn clone(&self) -> Data {
        match self {
            Data::Values(values) => Data::Values(values.clone()),
            Data::Bank(accounts) => Data::Bank(accounts.clone()),
        }
    }
}

pub struct Fulgurite {
    // Before the memory, which ends with a sync.
    data: Data,
    transactions: Arc<Transactions>,
    memory: Maps,
    settings: String,
}

impl Fulgurite {
    pub fn open(spec: &Spec) -> Result<Fulgurite> {
        let left = spec.memory_bytes.checked_sub(PROCESS_BYTES).context("too little memory for a process")?;
        let dram = spec.dram.map_or(left, |dram| dram.total);
        let objects = spec.name == Name::Fulgurite && !spec.bank;
        let index_bytes = spec.keys * INDEX_KEY_BYTES;
        // A quarter of room for reclaim, and a fixed part for journal and checkpoints.
        let room = spec.data_bytes() + spec.data_bytes() / 2 + index_bytes + (192 << 20);
        let pool_bytes = room.next_multiple_of(1 << 20);
        let path = spec.directory.join("values.pool");
        let medium = Medium::new_pool(&path, pool_bytes);
        let cache = if objects { spec.dram.map_or(objects_of(dram, spec.keys), |dram| dram.objects) } else { 0 };
        let durability = Durability::Lazy { every: Duration::from_secs(1), bytes: dram / 4 };
        let workers = spec.workers;
        let builder = Memory::builder(medium).dram(dram);
        let builder = if cache > 0 { builder.record_cache(cache) } else { builder };
        let memory: Maps = builder
            .workers(workers)
            .durability(durability)
            // Clients are jobs that run as long as a round.
            .with(|runtime| runtime.run_limit(Duration::from_secs(600)))
            .start()?
            .into();
        let data = if spec.bank {
            Data::Bank(memory.named("accounts").hash_map(spec.keys + spec.keys / 8)?)
        } else {
            Data::Values(memory.map("values")?)
        };
        let objects = if cache > 0 { format!(", {} of it for objects", format_bytes(cache)) } else { String::new() };
        let settings = format!(
            "fulgurite {}: DRAM {}{objects}, pool {}, {workers} workers; Durability::Lazy, a second",
            env!("CARGO_PKG_VERSION"),
            format_bytes(dram),
            format_bytes(pool_bytes),
        );
        Ok(Fulgurite { data, transactions: memory.transactions(), memory, settings })
    }
    fn fiber<'m>(&self, m: &'m mut Context) -> Fiber<'m> {
        Fiber { m, data: self.data.clone(), transactions: self.transactions.clone(), value: Vec::new() }
    }
}

impl Fulgurite {
    /// Executes parts of the keys by several jobs at once.
    fn in_parts(
        &self,
        (keys, jobs): (Range<u64>, u64),
        execute: impl Fn(&mut Fiber, Range<u64>) -> Result<()> + Sync,
    ) -> Result<()> {
        let options = JobOptions::new().name("part").pins(PINS);
        let job = |part| self.memory.run_as(&options, |m| execute(&mut self.fiber(m), part));
        std::thread::scope(|scope| {
            let jobs: Vec<_> = parts(keys, jobs).map(|part| scope.spawn(|| job(part))).collect();
            let ended = jobs.into_iter().map(|job| job.join().map_err(|_| anyhow!("a job panicked")));
            ended.into_iter().try_for_each(|ended| ended?)
        })
    }
    /// Puts keys by several jobs at once.
    fn load_some(&self, keys: Range<u64>, value: &(dyn Fn(u64, &mut Vec<u8>) + Sync)) -> Result<()> {
        self.in_parts((keys, LOADERS), |fiber, part| {
            let mut bytes = Vec::new();
            for key in part {
                value(key, &mut bytes);
                match &self.data {
                    Data::Values(values) => values.within(fiber.m).put(&key, &bytes).map(|()| false)?,
                    Data::Bank(accounts) => {
                        let bytes = bytes.first_chunk().expect("an account");
                        accounts.insert(fiber.m, &key, *bytes)?.is_some()
                    }
                };
            }
            Ok(())
        })
    }
}

impl Store for Fulgurite {
    fn settings(&self) -> String {
        self.settings.clone()
    }
    fn load(&self, keys: Range<u64>, value: &(dyn Fn(u64, &mut Vec<u8>) + Sync)) -> Result<()> {
        self.load_some(keys, value)?;
        self.sync()
    }
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(Thread { store: self, value: Vec::new() })
    }
    fn sync(&self) -> Result<()> {
        self.memory.sync()?;
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn flash_reads(&self) -> Option<u64> {
        Some(self.memory.statistics().device.reads)
    }
    fn warm(&self, keys: u64) -> Result<()> {
        Ok(self.memory.run_with(&JobOptions::new().name("warm").pins(PINS), |m| {
            let Data::Values(values) = &self.data else { return Ok(()) };
            let mut value = Vec::new();
            (0..keys).try_for_each(|key| values.within(m).get_into(&key, &mut value).map(drop))
        })?)
    }
    fn each(&self, keys: Range<u64>, look: Look) -> Result<()> {
        self.in_parts((keys, READERS), |fiber, part| {
            for key in part {
                if !fiber.get(key, &mut |bytes| look(key, Some(bytes)))? {
                    look(key, None);
                }
            }
            Ok(())
        })
    }
    fn run(&self, plan: &Plan) -> Result<Vec<Taken>> {
        let taken = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..plan.clients {
                let taken = &taken;
                scope.spawn(move || {
                    let one = if plan.fibers {
                        let options = JobOptions::new().name("client").pins(PINS);
                        self.memory.run_as(&options, |m| drive(&mut self.fiber(m), plan, number))
                    } else {
                        drive(&mut *self.client(), plan, number)
                    };
                    taken.lock().expect("no client panics with it").push(one);
                });
            }
        });
        taken.into_inner().expect("no client panics with it").into_iter().collect()
    }
}

/// What clients do with the memory of a job or of a thread.
impl Data {
    fn get<M: FlashMemory>(
        &self,
        m: &mut M,
        key: u64,
        value: &mut Vec<u8>,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, AccessError> {
        match self {
            Data::Values(values) => {
                let found = values.within(m).get_into(&key, value)?;
                if found {
                    look(value);
                }
                Ok(found)
            }
            Data::Bank(accounts) => {
                let found = accounts.get(m, &key)?;
                if let Some(account) = &found {
                    look(account);
                }
                Ok(found.is_some())
            }
        }
    }
    fn put<M: FlashMemory>(&self, m: &mut M, key: u64, value: &[u8]) -> Result<()> {
        let Data::Values(values) = self else { return Err(anyhow!("a bank has no values")) };
        values.within(m).put(&key, value)?;
        Ok(())
    }
    fn transfer<M: FlashMemory>(
        &self,
        m: &mut M,
        transactions: &Transactions,
        (from, to, amount): (u64, u64, u64),
    ) -> Result<()> {
        let Data::Bank(accounts) = self else { return Err(anyhow!("there is no bank")) };
        transactions.run(m, |t| {
            let mut has = |key| balance(&t.get(accounts, &key)?.context("an account")?);
            let (less, more) = (has(from)?.wrapping_sub(amount), has(to)?.wrapping_add(amount));
            t.put(accounts, &from, &account(less))?;
            t.put(accounts, &to, &account(more))?;
            Ok(())
        })
    }
}

/// A client that is a fiber.
struct Fiber<'m> {
    m: &'m mut Context,
    data: Data,
    transactions: Arc<Transactions>,
    value: Vec<u8>,
}

impl Client for Fiber<'_> {
    fn get(&mut self, key: u64, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.data.get(self.m, key, &mut self.value, look)?)
    }
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.data.put(self.m, key, value)
    }
    fn transfer(&mut self, from: u64, to: u64, amount: u64) -> Result<()> {
        self.data.transfer(self.m, &self.transactions, (from, to, amount))
    }
}

/// A client that is an OS thread, and executes its requests itself.
struct Thread<'s> {
    store: &'s Fulgurite,
    value: Vec<u8>,
}

impl Client for Thread<'_> {
    fn get(&mut self, key: u64, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.store.memory.run_here(|m| self.store.data.get(m, key, &mut self.value, look))?)
    }
    fn put(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.store.memory.run_here(|m| self.store.data.put(m, key, value))
    }
    fn transfer(&mut self, from: u64, to: u64, amount: u64) -> Result<()> {
        self.store.memory.run_here(|m| self.store.data.transfer(m, &self.store.transactions, (from, to, amount)))
    }
}
