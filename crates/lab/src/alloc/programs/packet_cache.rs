//! A packet cache, as in a WAN accelerator: the newest packets, found by a hash of what they hold,
//! so that a packet that was sent before is not sent again. The oldest one leaves.

use std::collections::HashMap;
use std::sync::Mutex;

use allocator_api2::boxed::Box as AnyBox;
use anyhow::{Context, Result, ensure};
use fulgurite_workloads::mix;

use crate::alloc::memory::Slab;
use crate::alloc::program::{Plain, Request};

pub const PACKET_BYTES: usize = 1024;
pub const PARTS: usize = 64;

/// A packet.
struct Packet {
    content: u64,
    bytes: [u8; PACKET_BYTES - 8],
}

/// Packets of some hashes, in a ring: the next one replaces the oldest.
struct Part {
    ring: Vec<Option<AnyBox<Packet, Slab>>>, // allocator
    next: usize,
    found: HashMap<u64, u32>,
}

struct Cache {
    parts: Vec<Mutex<Part>>,
    contents: u64,
}

/// Contents that come: a quarter more than there is room for.
pub fn contents(room: u64) -> u64 {
    room / 4 * 5
}
/// DRAM for `bytes` bytes of packets: rings, and hash tables as the standard library makes them.
pub fn dram(bytes: u64) -> u64 {
    bytes / PACKET_BYTES as u64 * 48
}

pub fn open(bytes: u64) -> Result<Box<dyn Plain>> {
    let packets = usize::try_from(bytes)? / PACKET_BYTES / PARTS;
    let part = |_| {
        let ring = (0..packets).map(|_| None).collect();
        Mutex::new(Part { ring, next: 0, found: HashMap::with_capacity(packets) })
    };
    let room = (packets * PARTS) as u64;
    let cache = Cache { parts: (0..PARTS).map(part).collect(), contents: contents(room) };
    for content in 0..room {
        cache.receive(content, false)?;
    }
    Ok(Box::new(cache))
}

pub fn fill(content: u64, bytes: &mut [u8]) {
    let mut word = mix(content);
    for bytes in bytes.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    }
}

impl Cache {
    /// A packet comes. Was it there? Also then it is compared, byte by byte. `renews`: it is stored
    /// again, as the newest.
    fn receive(&self, content: u64, renews: bool) -> Result<bool> {
        let mut came = Packet { content, bytes: [0; PACKET_BYTES - 8] };
        fill(content, &mut came.bytes);
        let hash = mix(content ^ 2);
        let mut part = self.parts[hash as usize % PARTS].lock().ok().context("another thread failed")?;
        if let Some(at) = part.found.get(&hash).copied() {
            let known = part.ring[at as usize].as_ref().context("the index leads nowhere")?;
            ensure!(known.content == content && known.bytes == came.bytes, "packet {content} holds something else");
            if !renews {
                return Ok(true);
            }
            part.ring[at as usize] = None;
        }
        let at = part.next;
        part.next = (at + 1) % part.ring.len();
        if let Some(oldest) = part.ring[at].take() {
            part.found.remove(&mix(oldest.content ^ 2));
        }
        let packet = AnyBox::try_new_in(came, Slab).ok().context("the memory is full")?; // allocator
        part.ring[at] = Some(packet);
        part.found.insert(hash, at as u32);
        Ok(false)
    }
}

impl Plain for Cache {
    fn keys(&self) -> u64 {
        self.contents
    }
    fn execute(&self, Request { key, writes, .. }: Request) -> Result<()> {
        self.receive(key, writes).map(drop)
    }
    fn check(&self) -> Result<u64> {
        let mut sum = 0u64;
        for part in &self.parts {
            let part = part.lock().ok().context("another thread failed")?;
            for (hash, at) in &part.found {
                let packet = part.ring[*at as usize].as_ref().context("the index leads nowhere")?;
                let mut wanted = [0; PACKET_BYTES - 8];
                fill(packet.content, &mut wanted);
                ensure!(mix(packet.content ^ 2) == *hash && packet.bytes == wanted, "a packet is another one");
            }
            // Which are there depends on their order.
            sum += part.ring.len() as u64;
        }
        Ok(mix(sum))
    }
}
