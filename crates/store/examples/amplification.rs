//! Write amplification of the store at a given fill, beside a simulation of the same policy that has nothing but counts.
//!
//! `cargo run --release -p fulgurite-store --example amplification -- FULL_PERCENT zipf|uniform|sequential greedy|cost-benefit`

use std::collections::HashMap;

use fulgurite_format::{PageBuffer, PoolId, zero_page};
use fulgurite_store::{Geometry, Io, Outcome, ReadPages, Store, StoreConfig, Victims, recover};

struct Memory(HashMap<u32, PageBuffer>, u32);
impl ReadPages for Memory {
    fn read(&mut self, place: u32, _: u32) -> Result<PageBuffer, fulgurite_flash::FlashError> {
        Ok(self.0.get(&place).cloned().unwrap_or_else(zero_page))
    }
    fn flash_pages(&self) -> u32 {
        self.1
    }
}

struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

enum Keys {
    Uniform,
    Sequential(u32),
    Zipf(Vec<f64>, Vec<u32>),
}
impl Keys {
    fn new(kind: &str, n: u32, random: &mut Random) -> Keys {
        match kind {
            "uniform" => Keys::Uniform,
            "sequential" => Keys::Sequential(0),
            _ => {
                let mut sum = 0.0;
                let mut table: Vec<f64> = (1..=n)
                    .map(|rank| {
                        sum += f64::from(rank).powf(-0.99);
                        sum
                    })
                    .collect();
                table.iter_mut().for_each(|x| *x /= sum);
                let mut order: Vec<u32> = (0..n).collect();
                for i in (1..n as usize).rev() {
                    order.swap(i, (random.next() % (i as u64 + 1)) as usize);
                }
                Keys::Zipf(table, order)
            }
        }
    }
    fn next(&mut self, n: u32, random: &mut Random) -> u32 {
        match self {
            Keys::Uniform => (random.next() % u64::from(n)) as u32,
            Keys::Sequential(at) => {
                *at = (*at + 1) % n;
                *at
            }
            Keys::Zipf(table, order) => {
                let u = random.unit();
                order[table.partition_point(|x| *x < u).min(n as usize - 1)]
            }
        }
    }
}

fn turn(store: &mut Store, memory: &mut Memory) -> bool {
    let mut any = false;
    while let Some((id, io)) = store.next_io() {
        any = true;
        let outcome = match io {
            Io::Write { place, page } => {
                memory.0.insert(place, page);
                Outcome::Done
            }
            Io::Read { place } => Outcome::Read(memory.read(place, 0).unwrap()),
            Io::Copy { .. } => Outcome::Copied(0),
            Io::Flush => Outcome::Done,
        };
        store.done(id, outcome);
    }
    any
}

/// The policy alone: (copied + written) / written over the second half.
fn simulate(
    n: u32,
    extents: u32,
    pages: u32,
    low: u32,
    victims: Victims,
    keys: &mut Keys,
    random: &mut Random,
    writes: u64,
) -> f64 {
    let mut at = vec![u32::MAX; n as usize];
    let mut owner: Vec<Vec<u32>> = vec![Vec::new(); extents as usize];
    let mut live = vec![0u32; extents as usize];
    let mut filled = vec![0u64; extents as usize];
    let mut clock = 0;
    let mut free: std::collections::VecDeque<u32> = (0..extents).collect();
    let mut open = [None, None];
    let (mut written, mut copied) = (0u64, 0u64);
    let put = |s: u32,
               stream: usize,
               at: &mut Vec<u32>,
               owner: &mut Vec<Vec<u32>>,
               live: &mut Vec<u32>,
               open: &mut [Option<u32>; 2],
               free: &mut std::collections::VecDeque<u32>,
               filled: &mut Vec<u64>,
               clock: &mut u64| {
        let extent = open[stream].unwrap_or_else(|| free.pop_front().unwrap());
        open[stream] = Some(extent);
        if at[s as usize] != u32::MAX {
            live[at[s as usize] as usize] -= 1;
        }
        at[s as usize] = extent;
        live[extent as usize] += 1;
        owner[extent as usize].push(s);
        if owner[extent as usize].len() as u32 == pages {
            open[stream] = None;
            *clock += 1;
            filled[extent as usize] = *clock;
        }
    };
    for i in 0..writes + u64::from(n) {
        let s = if i < u64::from(n) { i as u32 } else { keys.next(n, random) };
        put(s, 0, &mut at, &mut owner, &mut live, &mut open, &mut free, &mut filled, &mut clock);
        if i > u64::from(n) + writes / 2 {
            written += 1;
        }
        while (free.len() as u32) < low {
            let victim = (0..extents)
                .filter(|e| owner[*e as usize].len() as u32 == pages)
                .max_by_key(|e| {
                    let l = live[*e as usize];
                    match victims {
                        Victims::Greedy => u64::from(pages - l),
                        Victims::CostBenefit => {
                            u64::from(pages - l) * 1024 / u64::from(l + 1) * (clock - filled[*e as usize] + 1)
                        }
                    }
                })
                .unwrap();
            for s in std::mem::take(&mut owner[victim as usize]) {
                if at[s as usize] == victim {
                    put(s, 1, &mut at, &mut owner, &mut live, &mut open, &mut free, &mut filled, &mut clock);
                    if i > u64::from(n) + writes / 2 {
                        copied += 1;
                    }
                }
            }
            free.push_back(victim);
        }
    }
    (written + copied) as f64 / written as f64
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let full: f64 = args[1].parse().unwrap();
    let kind = args[2].clone();
    let victims = if args[3] == "greedy" { Victims::Greedy } else { Victims::CostBenefit };
    let geometry = Geometry::new(1 << 18, 512, None).unwrap();
    let mut memory = Memory(HashMap::new(), 1 << 18);
    for (place, page) in Store::format(geometry, PoolId([1; 16]), 0) {
        memory.0.insert(place, page);
    }
    let mut config = StoreConfig::default();
    config.victims = victims;
    let (mut store, _) = recover(&mut memory, config).unwrap();
    // Extents that data can be in, of which reclaim keeps so many free.
    let low = 8 + 2 + geometry.extents / 64;
    let data_extents = geometry.extents - low - 3 - 8;
    let n = (f64::from(data_extents) * f64::from(geometry.data_pages()) * full / 100.0) as u32;
    let mut random = Random(88172645463325252);
    let mut keys = Keys::new(&kind, n, &mut random);
    let writes = 4 * u64::from(n);
    let begun = std::time::Instant::now();
    let (mut done, mut before) = (0u64, store.counters());
    let mut batch = Vec::new();
    let mut since_sync = 0;
    while done < writes + u64::from(n) {
        batch.clear();
        while batch.len() < 64 {
            batch.push(if done < u64::from(n) { (done as u32).min(n - 1) } else { keys.next(n, &mut random) });
            done += 1;
            if done == u64::from(n) + writes / 2 {
                before = store.counters();
            }
        }
        batch.sort_unstable();
        batch.dedup();
        let mut rest = &batch[..];
        while !rest.is_empty() {
            let mut places = Vec::new();
            store.place(rest, &mut places).unwrap();
            let mut w: Vec<_> = rest.iter().zip(&places).map(|(s, p)| (*s, *p, 0)).collect();
            store.written(&mut w).unwrap();
            rest = &rest[places.len()..];
            turn(&mut store, &mut memory);
        }
        since_sync += 64;
        if since_sync > n / 200 {
            since_sync = 0;
            store.sync().unwrap();
            turn(&mut store, &mut memory);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let c = store.counters();
    let (w, m, meta) = (c.written - before.written, c.copied - before.copied, c.metadata - before.metadata);
    let ours = (w + m) as f64 / w as f64;
    let mut random = Random(1234567);
    let simulated =
        simulate(n, geometry.extents - 3 - 8, geometry.data_pages(), low, victims, &mut keys, &mut random, writes);
    println!(
        "{kind} {full}% {victims:?}: {ours:.3}, simulated {simulated:.3}, ratio {:.3}; metadata {:.4} a write; {:.0} ns a write; info {:?}",
        ours / simulated,
        meta as f64 / w as f64,
        seconds * 1e9 / done as f64,
        store.info()
    );
}
