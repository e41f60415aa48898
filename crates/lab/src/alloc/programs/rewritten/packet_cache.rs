//! The packet cache: a blob for each place of a ring. What is where is known in DRAM, as before.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context as _, Result, ensure};
use fulgurite::Context;
use fulgurite::latches::{Latch, VersionLatch};
use fulgurite_workloads::mix;

use super::flash::{Flash, Rewritten};
use crate::alloc::memory::MemoryPlan;
use crate::alloc::program::Request;
use crate::alloc::programs::packet_cache::{PACKET_BYTES, PARTS, contents, dram, fill};

/// Contents of a part, in a ring: the next one replaces the oldest.
struct Part {
    /// Held while a packet is read or written, when the job may switch.
    turn: VersionLatch,
    known: Mutex<Known>,
}

struct Known {
    ring: Vec<Option<u64>>,
    next: usize,
    found: HashMap<u64, u32>,
}

struct Cache {
    parts: Vec<Part>,
    /// Places of each part.
    packets: usize,
}

pub fn open(plan: &MemoryPlan, bytes: u64) -> Result<(Flash, Box<dyn Rewritten>)> {
    let packets = usize::try_from(bytes)? / PACKET_BYTES / PARTS;
    let room = (packets * PARTS) as u64;
    let flash = Flash::make(plan, room, PACKET_BYTES, dram(bytes))?;
    let part = |_| {
        let known = Known { ring: vec![None; packets], next: 0, found: HashMap::with_capacity(packets) };
        Part { turn: VersionLatch::default(), known: Mutex::new(known) }
    };
    let cache = Cache { parts: (0..PARTS).map(part).collect(), packets };
    flash.job(|m| (0..room).try_for_each(|content| cache.receive(&flash, m, content, false)))?;
    Ok((flash, Box::new(cache)))
}

/// The bytes of a packet: its content, and what is made of that.
fn packet(content: u64) -> Vec<u8> {
    let mut bytes = vec![0; PACKET_BYTES];
    bytes[..8].copy_from_slice(&content.to_ne_bytes());
    fill(content, &mut bytes[8..]);
    bytes
}

impl Part {
    fn known(&self) -> Result<MutexGuard<'_, Known>> {
        self.known.lock().ok().context("another thread failed")
    }
}

impl Cache {
    fn receive(&self, flash: &Flash, m: &mut Context, content: u64, renews: bool) -> Result<()> {
        let came = packet(content);
        let hash = mix(content ^ 2);
        let at = hash as usize % PARTS;
        let (part, base) = (&self.parts[at], (at * self.packets) as u64);
        let _turn = part.turn.lock(m)?;
        let found = part.known()?.found.get(&hash).copied();
        if let Some(at) = found {
            let mut known = Vec::new();
            flash.get(m, base + u64::from(at), &mut known)?;
            ensure!(known == came, "packet {content} holds something else");
            if !renews {
                return Ok(());
            }
            part.known()?.ring[at as usize] = None;
        }
        let at = {
            let mut known = part.known()?;
            let at = known.next;
            known.next = (at + 1) % self.packets;
            if let Some(oldest) = known.ring[at].replace(content) {
                known.found.remove(&mix(oldest ^ 2));
            }
            known.found.insert(hash, at as u32);
            at
        };
        flash.blobs.put(m, &(base + at as u64), &came)?;
        Ok(())
    }
}

impl Rewritten for Cache {
    fn keys(&self) -> u64 {
        contents((self.packets * PARTS) as u64)
    }
    fn execute(&self, flash: &Flash, m: &mut Context, Request { key, writes, .. }: Request) -> Result<()> {
        self.receive(flash, m, key, writes)
    }
    fn check(&self, flash: &Flash, m: &mut Context) -> Result<u64> {
        let (mut places, mut value) = (0, Vec::new());
        for (part, base) in self.parts.iter().zip((0..).step_by(self.packets)) {
            let ring = part.known()?.ring.clone();
            places += ring.len() as u64;
            for (at, content) in ring.iter().enumerate().filter_map(|(at, content)| Some((at, (*content)?))) {
                flash.get(m, (base + at) as u64, &mut value)?;
                ensure!(value == packet(content), "a packet is another one");
            }
        }
        Ok(mix(places))
    }
}
