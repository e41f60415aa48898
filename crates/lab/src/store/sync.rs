//! `store --sync`: the time until dirty bytes are durable, under a token that names them.
//!
//! In every round the medium itself also writes as many bytes behind the pool, and flushes, which
//! is the least possible price. The difference is the store's: writes of a subpage each, the
//! journal, a second flush. A program's sync is measured as well ([`super::programs`]): a runtime's
//! sync, alone and under load, and how long its gate is closed.
//!
//! Room for a round's writes is made before it, untimed: reclaim has its own figure (`bench
//! store`).

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fulgurite_flash::Flash;
use fulgurite_format::{SUBPAGE_BYTES, format_bytes};
use fulgurite_store::{Pool, StoreConfig};
use fulgurite_sys::{Arena, Backed, DirectFile, affinity};
use serde::Serialize;

use super::content::{self, Shuffled};
use super::drive::Driver;
use super::medium::{self, CheckedPoolMedium, Otherwise};
use super::programs::{self, Program};
use crate::args::StoreArgs;
use crate::medium::TestBed;
use fulgurite_flash::Mover;
use fulgurite_harness::Spread;
use fulgurite_harness::checks;
use fulgurite_term::bad_input::bad_input;
use fulgurite_term::interrupt::{Interrupt, until_interrupted};
use fulgurite_term::machine::Machine;
use fulgurite_term::progress;
use fulgurite_term::report::charts::{Axis, Curve, Curves, stack};
use fulgurite_term::report::table::{Columns, or_dash};
use fulgurite_term::report::{self, Report};

/// How full the pool is, in percent of what is not reserve.
const FULL: f64 = 60.0;
/// What is written before each sync.
const DIRTY_BYTES: [u64; 6] = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20];
const QUICK_DIRTY_BYTES: [u64; 3] = [4 << 10, 1 << 20, 4 << 20];
/// Bytes of one plain write, and how many are under way at once.
const PLAIN: (usize, usize) = (1 << 20, 4);
/// Writes of the store under way, as many as of a runtime's sync.
const STORE_DEPTH: usize = 128;
const MOST_WORKERS: usize = 2;
/// Extents that may be opened for data of other heat in addition to what a round fills.
const OPEN_EXTENTS: u64 = 8;
/// Up to this number of bytes there are ten times as many rounds: a p99 of a few is none.
const SMALL_BYTES: u64 = 1 << 20;
const MORE_ROUNDS: u32 = 10;

/// One amount of dirty data by one method.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// `device`: plain writes. `store`: subpages through the pool. `sync, ..`: a runtime's sync.
    way: String,
    flash: String,
    pool_bytes: u64,
    dirty_bytes: u64,
    rounds: usize,
    /// From the first write to the end.
    total_ms: Spread,
    p99_ms: f64,
    /// What it took longer than the device in the same round.
    beyond_device_ms: Option<Spread>,
    /// Bytes of a request that wrote, where the medium counts these.
    request_bytes: Option<f64>,
    /// Of a runtime's sync: how long the gate was closed.
    gate_ms: Option<Spread>,
}

/// How long one round took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    pub total_ns: u64,
    /// Of a program: how long no write section could begin.
    pub gate_ns: Option<u64>,
}

/// A method to make dirty bytes durable.
pub trait SyncMethod {
    fn name(&self) -> &str;
    /// Writes this number of bytes and makes them durable.
    fn time(&mut self, bytes: u64) -> Result<Took>;
}

/// Writes of the medium itself, in order, to what is behind the pool.
enum Device {
    File { file: DirectFile, from: u64, memory: Arena },
    Queue { driver: Driver, from: u32 },
}

impl Device {
    fn new(medium: &TestBed, flash: &Arc<dyn Flash>, from: u64) -> Result<Device> {
        if let Some(path) = medium.path() {
            let file = DirectFile::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
            let memory = Arena::anonymous(PLAIN.0, Backed::HugePages)?;
            memory.write(0, &vec![0xa5; PLAIN.0]);
            return Ok(Device::File { file, from, memory });
        }
        Ok(Device::Queue { driver: Driver::new(&**flash)?, from: (from / SUBPAGE_BYTES as u64) as u32 })
    }
}

/// All of a range, from memory that may be shorter.
fn write_range(file: &DirectFile, mut at: u64, mut bytes: u64, memory: &Arena) -> Result<()> {
    while bytes > 0 {
        let len = bytes.min(memory.len() as u64) as usize;
        match file.write_at(at, memory, 0, len) {
            Ok(0) => anyhow::bail!("the file cannot be written behind the pool"),
            Ok(n) => (at, bytes) = (at + n as u64, bytes - n as u64),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e).context("the file cannot be written behind the pool"),
        }
    }
    Ok(())
}

impl SyncMethod for Device {
    fn name(&self) -> &str {
        "device"
    }
    fn time(&mut self, bytes: u64) -> Result<Took> {
        let begun = Instant::now();
        match self {
            Device::File { file, from, memory } => {
                if bytes <= PLAIN.0 as u64 {
                    write_range(file, *from, bytes, memory)?;
                } else {
                    // In parts side by side, each in order.
                    let part = bytes.div_ceil(PLAIN.1 as u64).next_multiple_of(SUBPAGE_BYTES as u64);
                    let (file, memory, from) = (&*file, &*memory, *from);
                    std::thread::scope(|scope| {
                        let parts = (0..bytes).step_by(part as usize);
                        let writing: Vec<_> = parts
                            .map(|at| scope.spawn(move || write_range(file, from + at, part.min(bytes - at), memory)))
                            .collect();
                        writing.into_iter().try_for_each(|one| one.join().expect("it does not panic"))
                    })?;
                }
                file.sync_data().context("the file cannot be flushed")?;
            }
            Device::Queue { driver, from } => {
                driver.write(*from..*from + (bytes / SUBPAGE_BYTES as u64) as u32)?;
                driver.flush()?;
            }
        }
        Ok(Took { total_ns: begun.elapsed().as_nanos() as u64, gate_ns: None })
    }
}

/// Subpages at random through a pool, and its sync.
struct Store {
    pool: Arc<Pool>,
    driver: Driver,
    order: Shuffled,
    live: u32,
    next: u32,
}

impl SyncMethod for Store {
    fn name(&self) -> &str {
        "store"
    }
    fn time(&mut self, bytes: u64) -> Result<Took> {
        let count = (bytes / SUBPAGE_BYTES as u64) as u32;
        let (first, live, order) = (self.next, self.live, &self.order);
        self.next = (first + count) % live;
        let begun = Instant::now();
        self.driver.write((0..count).map(|i| order.at((first + i) % live)))?;
        self.pool.sync()?;
        Ok(Took { total_ns: begun.elapsed().as_nanos() as u64, gate_ns: None })
    }
}

pub fn run(args: &StoreArgs, interrupt: &Interrupt) -> Result<()> {
    let machine = Machine::describe();
    let quick = args.output.quick;
    let dirty = if quick { &QUICK_DIRTY_BYTES[..] } else { &DIRTY_BYTES };
    let size = args.size.unwrap_or(if quick { 256 << 20 } else { 2 << 30 });
    let geometry = medium::geometry(size)?;
    let live = medium::subpages_at(geometry, FULL);
    let most = u64::from(live / 2) * SUBPAGE_BYTES as u64;
    let largest = dirty.iter().copied().max().unwrap_or(0);
    if largest > most {
        bad_input!(
            "--size {} is too little: a sync of {} finds no room for all versions; choose a larger --size",
            format_bytes(size),
            format_bytes(largest)
        );
    }
    checks::memory(MOST_WORKERS as u64 * programs::dram_bytes(live, largest), largest, &machine)?;
    let medium = CheckedPoolMedium::new(args, Otherwise::File, size + largest, &machine)?.make(interrupt)?;
    // As many as cores are left: an emulated device takes one.
    let workers = 1..=affinity::cores().len().clamp(1, MOST_WORKERS);
    let flash = medium.open(size + largest)?;
    medium::format(&flash, geometry)?;
    let layered = Arc::new(Pool::open(flash.clone(), StoreConfig::default())?.0.into_flash());
    content::write(&mut Mover::new(&*layered)?, 0..live, 0, interrupt)?;
    let driver = Driver::with_depth(&*layered, STORE_DEPTH)?;
    let pool = layered.layer().clone();
    pool.sync()?;
    pool.checkpoint()?;
    let mut methods: Vec<Box<dyn SyncMethod>> = vec![
        Box::new(Device::new(&medium, &flash, size)?),
        Box::new(Store { pool: pool.clone(), driver, order: Shuffled::new(live)?, live, next: 0 }),
    ];
    let layered: Arc<dyn Flash> = layered;
    for workers in workers.clone() {
        let program = Program::new(&layered, (live, largest), workers)?;
        methods.extend(program.methods().map(|method| Box::new(method) as Box<dyn SyncMethod>));
    }
    let rounds = args.repeat.rounds.unwrap_or(if quick { 3 } else { 9 });
    let bar = progress::steps("syncs", dirty.len() as u64);
    let (rows, interrupted) = until_interrupted(dirty, |bytes| {
        let rounds = if *bytes <= SMALL_BYTES { rounds * MORE_ROUNDS } else { rounds };
        let mut room = || make_room(&pool, *bytes, interrupt);
        let rows = measure(&mut methods, (&*flash, size, *bytes, rounds), &mut room, interrupt);
        bar.inc(1);
        rows
    })?;
    bar.finish_and_clear();
    let rows = rows.concat();
    drop(methods);
    let wrong = pool.audit();
    ensure!(wrong.is_empty(), "the store's tables disagree: {}", wrong.join("; "));
    report::print(&args.output, &machine.line())?;
    report::print(&args.output, &lines(&rows))?;
    let setting = serde_json::json!({
        "mode": "sync", "full_percent": FULL, "depth": STORE_DEPTH, "workers": workers.collect::<Vec<_>>(), "plain_write_bytes": PLAIN.0, "plain_writes_at_once": PLAIN.1,
    });
    Report { interrupted, ..Report::new(&machine, setting, &rows) }
        .finish(&args.output, || stack(&[curves(&rows).draw()]))
}

/// All methods in turns. The first is the one that the others are compared with.
fn measure(
    methods: &mut [Box<dyn SyncMethod>],
    (flash, pool_bytes, dirty_bytes, rounds): (&dyn Flash, u64, u64, u32),
    room: &mut dyn FnMut() -> Result<()>,
    interrupt: &Interrupt,
) -> Result<Vec<Row>> {
    let mut took = vec![Vec::with_capacity(rounds as usize); methods.len()];
    let mut requests = vec![(0, 0); methods.len()];
    // The first round is not counted: what was never written before is slower on some file systems.
    for round in 0..=rounds as usize {
        interrupt.check()?;
        for turn in 0..methods.len() {
            let method = (round + turn) % methods.len();
            room()?;
            let before = flash.counters();
            let one = methods[method].time(dirty_bytes)?;
            if round > 0 {
                took[method].push(one);
                let after = flash.counters();
                requests[method].0 += after.writes - before.writes;
                requests[method].1 += after.write_requests - before.write_requests;
            }
        }
    }
    let ms = |took: &[Took]| took.iter().map(|t| t.total_ns as f64 / 1e6).collect::<Vec<_>>();
    let first = ms(&took[0]);
    let rows = methods.iter().zip(&took).enumerate().map(|(number, (method, took))| {
        let (writes, requests) = requests[number];
        let total = ms(took);
        let beyond = total.iter().zip(&first).map(|(one, device)| one - device);
        Row {
            way: method.name().to_owned(),
            flash: flash.describe(),
            pool_bytes,
            dirty_bytes,
            rounds: total.len(),
            total_ms: Spread::of(total.iter().copied()),
            p99_ms: percentile(&total, 99.0),
            beyond_device_ms: Spread::of_any(beyond).filter(|_| number > 0),
            request_bytes: (requests > 0).then(|| (writes * SUBPAGE_BYTES as u64) as f64 / requests as f64),
            gate_ms: Spread::of_any(took.iter().filter_map(|t| Some(t.gate_ns? as f64 / 1e6))),
        }
    });
    Ok(rows.collect())
}

/// Reclaims until a round's writes find room without.
fn make_room(pool: &Pool, bytes: u64, interrupt: &Interrupt) -> Result<()> {
    let geometry = pool.geometry();
    let data_bytes = u64::from(geometry.data_pages()) * SUBPAGE_BYTES as u64;
    let enough = u64::from(geometry.reserved_extents()) + bytes.div_ceil(data_bytes) + OPEN_EXTENTS;
    while u64::from(pool.info().free_extents) < enough {
        interrupt.check()?;
        if !pool.reclaim_one()? {
            break;
        }
    }
    Ok(())
}

/// The value that `percent` percent do not exceed.
fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn lines(rows: &[Row]) -> String {
    let ms = |value: f64| format!("{value:.2} ms");
    Columns::of(rows)
        .left("dirty", |row| format_bytes(row.dirty_bytes))
        .left("method", |row| &row.way)
        .right("rounds", |row| row.rounds)
        .right("median", |row| ms(row.total_ms.median))
        .right("p99", |row| ms(row.p99_ms))
        .right("beyond the device", |row| or_dash(row.beyond_device_ms, |s| ms(s.median)))
        .right("(lowest-highest)", |row| or_dash(row.beyond_device_ms, |s| format!("{:.2} to {:.2}", s.min, s.max)))
        .right("gate closed", |row| or_dash(row.gate_ms, |s| ms(s.median)))
        .right("a write", |row| or_dash(row.request_bytes, |bytes| format_bytes(bytes as u64)))
        .table()
}

/// Medians: as many curves as can be distinguished by their colours. The table has the rest.
fn curves(rows: &[Row]) -> Curves {
    let curve = |way: &&str| {
        let of = rows.iter().filter(|r| r.way == **way);
        let points = of.map(|r| (r.dirty_bytes as f64 / 1024.0, r.total_ms.median)).collect();
        Curve { name: (*way).to_owned(), points }
    };
    let methods = report::distinct(rows.iter().map(|row| row.way.as_str()));
    let subtitle = rows.first().map_or("", |row| &row.flash);
    let (x, y) = (Axis::logarithmic("dirty KiB"), Axis::logarithmic("ms"));
    Curves::new("Until dirty data is written and synced, median", subtitle, x, y, methods.iter().map(curve).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(
            (percentile(&values, 99.0), percentile(&values, 50.0), percentile(&[7.0], 99.0)),
            (198.0, 100.0, 7.0)
        );
        assert_eq!(percentile(&[], 99.0), 0.0);
    }

    /// Takes as long as it is set to.
    struct Fixed(u64);
    impl SyncMethod for Fixed {
        fn name(&self) -> &str {
            "fixed"
        }
        fn time(&mut self, _: u64) -> Result<Took> {
            self.0 += 1_000_000;
            Ok(Took { total_ns: self.0, gate_ns: None })
        }
    }

    #[test]
    fn a_way_is_held_against_the_first_of_its_round() {
        let mut methods: Vec<Box<dyn SyncMethod>> = vec![Box::new(Fixed(0)), Box::new(Fixed(5_000_000))];
        let flash = fulgurite_flash::MemoryFlash::new(1).unwrap();
        let rows = measure(&mut methods, (&flash, 1, 1, 3), &mut || Ok(()), &Interrupt::default()).unwrap();
        assert_eq!(rows[0].total_ms, Spread { median: 3.0, min: 2.0, max: 4.0 });
        assert_eq!(rows[0].beyond_device_ms, None);
        assert_eq!(rows[1].beyond_device_ms, Some(Spread { median: 5.0, min: 5.0, max: 5.0 }));
    }
}
