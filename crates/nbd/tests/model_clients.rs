//! Goal: what several clients write at once, in ranges of any alignment that touch the same
//! subpages, is all there, and nothing else.
//! Method: each client owns every n-th run of bytes, much smaller than a subpage, and keeps a model
//! of its own bytes. With many commands in flight it writes and zeroes ranges of its own that do
//! not overlap each other, and at times reads back. At the end the medium is compared with the
//! models. The medium reorders. Seeds are printed.

use crate::common;

use std::collections::HashMap;
use std::sync::Arc;

use common::*;
use fulgurite_flash::{FaultPlan, FaultyFlash, MemoryFlash};

const SUBPAGES: u32 = 8;
const CLIENTS: u64 = 4;
/// A client's run of bytes. Every fourth is its own. Odd, so that runs are not aligned to subpages.
const RUN: u64 = 701;

fn runs_of(client: u64) -> Vec<(u64, u64)> {
    let bytes = u64::from(SUBPAGES) << 12;
    (0..bytes.div_ceil(RUN)).filter(|r| r % CLIENTS == client).map(|r| (r * RUN, RUN.min(bytes - r * RUN))).collect()
}

/// Commands in batches, each on runs of its own, all in flight at once.
fn work(client: &mut Client, id: u64, model: &mut [u8], random: &mut Random, batches: u64) {
    let runs = runs_of(id);
    for _ in 0..batches {
        let mut reads = HashMap::new();
        let mut expected = 0;
        let first = random.below(runs.len() as u64) as usize;
        for i in 0..1 + random.below(runs.len() as u64) as usize {
            let (start, length) = runs[(first + i) % runs.len()];
            let from = random.below(length);
            let (offset, count) = (start + from, 1 + random.below(length - from));
            let range = offset as usize..(offset + count) as usize;
            let flags = if random.below(20) == 0 { FUA } else { 0 };
            match random.below(4) {
                0 => {
                    let cookie = client.send(READ, 0, offset, count as u32);
                    reads.insert(cookie, model[range].to_vec());
                }
                1 => {
                    client.send(WRITE_ZEROES, flags, offset, count as u32);
                    model[range].fill(0);
                }
                _ => {
                    let data = random.bytes(count as usize);
                    client.send(WRITE, flags, offset, count as u32);
                    client.put(&data);
                    model[range].copy_from_slice(&data);
                }
            }
            expected += 1;
        }
        for _ in 0..expected {
            let (cookie, error, data) = client.reply(|c| reads.get(&c).map_or(0, Vec::len));
            assert_eq!(error, 0);
            if let Some(model) = reads.remove(&cookie) {
                assert_eq!(data, model);
            }
        }
    }
}

#[test]
fn neighbours_lose_nothing() {
    let seed = seed();
    for (depth, reorder) in [(1, false), (3, true), (64, true)] {
        let medium = MemoryFlash::new(SUBPAGES).unwrap();
        let plan = FaultPlan { seed, reorder, ..FaultPlan::default() };
        let flash = Arc::new(FaultyFlash::new(medium, plan));
        let served =
            serve(flash.clone(), |c| (c.depth, c.request_bytes_max, c.buffer_bytes) = (depth, 64 << 10, 128 << 10));
        let bytes = (SUBPAGES as usize) << 12;
        let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let path = &served.path;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|id| {
                    scope.spawn(move || {
                        let (mut client, _) = Client::open(path, id % 2 == 0);
                        let mut model = vec![0; bytes];
                        let mut random = Random(seed ^ id << 40 ^ depth as u64);
                        work(&mut client, id, &mut model, &mut random, 60);
                        model
                    })
                })
                .collect();
            clients.into_iter().map(|c| c.join().unwrap()).collect()
        });
        let (mut client, _) = Client::open(&served.path, false);
        let found = client.read(0, bytes as u32);
        for (id, model) in models.iter().enumerate() {
            for (start, length) in runs_of(id as u64) {
                let range = start as usize..(start + length) as usize;
                assert_eq!(
                    found[range.clone()],
                    model[range],
                    "client {id}, run at {start}, depth {depth}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn an_acknowledged_write_is_seen_by_all() {
    let seed = seed();
    let mut random = Random(seed);
    let served = serve(memory(16), |_| {});
    let mut clients: Vec<Client> = (0..3).map(|i| Client::open(&served.path, i == 1).0).collect();
    let mut model = vec![0u8; 16 << 12];
    for _ in 0..600 {
        let offset = random.below(model.len() as u64);
        let count = 1 + random.below((model.len() as u64 - offset).min(20_000));
        let range = offset as usize..(offset + count) as usize;
        let client = &mut clients[random.below(3) as usize];
        if random.below(2) == 0 {
            let data = random.bytes(count as usize);
            client.write(offset, &data);
            model[range].copy_from_slice(&data);
        } else {
            assert_eq!(client.read(offset, count as u32), model[range], "seed {seed}");
        }
    }
}
