//! A cache of values in the manner of memcached: slabs of a few sizes, and a hash table whose
//! chains lead through the items.

use std::sync::Mutex;

use allocator_api2::boxed::Box as AnyBox;
use anyhow::{Context, Result, ensure};
use fulgurite_workloads::mix;

use crate::alloc::memory::Slab;
use crate::alloc::program::{Plain, Request};
use crate::alloc::walk::walk;

/// Bytes of the values of each size, header excluded: slab classes.
pub const SIZES: [usize; 4] = [64, 192, 448, 960];
/// Of ten items, how many have each size.
const OF_TEN: [usize; 4] = [4, 3, 2, 1];
const LOCKS: usize = 256;

/// An item. What follows in the chain is behind it.
struct Item<const N: usize> {
    key: u64,
    number: u64,
    next: Option<AnyItem>,
    value: [u8; N],
}

type Boxed<const N: usize> = AnyBox<Item<N>, Slab>; // allocator

/// An item of any size.
enum AnyItem {
    Small(Boxed<64>),
    Medium(Boxed<192>),
    Large(Boxed<448>),
    Largest(Boxed<960>),
}

/// What an item shows, whatever its size.
struct Shown<'i> {
    key: u64,
    number: u64,
    value: &'i [u8],
    next: Option<&'i AnyItem>,
}

impl AnyItem {
    fn new(key: u64, number: u64, next: Option<AnyItem>) -> Result<AnyItem> {
        fn new<const N: usize>(key: u64, number: u64, next: Option<AnyItem>) -> Result<Boxed<N>> {
            let mut item = Item { key, number, next, value: [0; N] };
            fill(key, number, &mut item.value);
            AnyBox::try_new_in(item, Slab).ok().context("the memory is full") // allocator
        }
        Ok(match class(key) {
            0 => AnyItem::Small(new(key, number, next)?),
            1 => AnyItem::Medium(new(key, number, next)?),
            2 => AnyItem::Large(new(key, number, next)?),
            _ => AnyItem::Largest(new(key, number, next)?),
        })
    }
    fn show(&self) -> Shown<'_> {
        fn shown<const N: usize>(item: &Item<N>) -> Shown<'_> {
            Shown { key: item.key, number: item.number, value: &item.value, next: item.next.as_ref() }
        }
        match self {
            AnyItem::Small(item) => shown(item),
            AnyItem::Medium(item) => shown(item),
            AnyItem::Large(item) => shown(item),
            AnyItem::Largest(item) => shown(item),
        }
    }
    fn next(&mut self) -> &mut Option<AnyItem> {
        match self {
            AnyItem::Small(item) => &mut item.next,
            AnyItem::Medium(item) => &mut item.next,
            AnyItem::Large(item) => &mut item.next,
            AnyItem::Largest(item) => &mut item.next,
        }
    }
    /// Overwrites the value, where it is the item of this key.
    fn set(&mut self, number: u64) {
        fn set<const N: usize>(item: &mut Item<N>, number: u64) {
            item.number = number;
            fill(item.key, number, &mut item.value);
        }
        match self {
            AnyItem::Small(item) => set(item, number),
            AnyItem::Medium(item) => set(item, number),
            AnyItem::Large(item) => set(item, number),
            AnyItem::Largest(item) => set(item, number),
        }
    }
}

struct Cache {
    /// Heads of chains, in parts with a lock each.
    parts: Vec<Mutex<Vec<Option<AnyItem>>>>,
    keys: u64,
}

pub fn fill(key: u64, number: u64, value: &mut [u8]) {
    let mut word = mix(key ^ mix(number));
    for bytes in value.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(1);
    }
}
pub fn is_filled(key: u64, number: u64, value: &[u8]) -> bool {
    let word = mix(key ^ mix(number));
    let last = word.wrapping_add(value.len() as u64 / 8 - 1);
    value[..8] == word.to_le_bytes() && value[value.len() - 8..] == last.to_le_bytes()
}

/// What is checked of a value, in addition to its bytes.
pub fn sum_of(key: u64, value: &[u8]) -> u64 {
    mix(key ^ value.len() as u64)
}

/// The class of a key's value.
pub fn class(key: u64) -> usize {
    let of_ten = (mix(key ^ 3) % 10) as usize;
    let mut sum = 0;
    OF_TEN.iter().position(|share| (sum += share, of_ten < sum).1).unwrap_or(SIZES.len() - 1)
}

/// Items that take `bytes` bytes together.
pub fn items(bytes: u64) -> u64 {
    let item = |size: usize| (size + size_of::<Item<0>>()) as u64;
    let ten: u64 = SIZES.iter().zip(OF_TEN).map(|(size, share)| item(*size) * share as u64).sum();
    bytes * 10 / ten
}

/// DRAM for `bytes` bytes of items: the heads of chains.
pub fn dram(bytes: u64) -> u64 {
    items(bytes) * size_of::<Option<AnyItem>>() as u64
}

pub fn open(bytes: u64) -> Result<Box<dyn Plain>> {
    let keys = items(bytes);
    let chains = keys as usize / LOCKS + 1;
    let part = |_| Mutex::new((0..chains).map(|_| None).collect());
    let cache = Cache { parts: (0..LOCKS).map(part).collect(), keys };
    for key in 0..keys {
        cache.with(key, |head| cache.put(head, key, 0))?;
    }
    Ok(Box::new(cache))
}

impl Cache {
    fn with<R>(&self, key: u64, act: impl FnOnce(&mut Option<AnyItem>) -> Result<R>) -> Result<R> {
        let hash = mix(key ^ 2);
        let (part, rest) = (hash as usize % LOCKS, hash as usize / LOCKS);
        let mut part = self.parts[part].lock().ok().context("another thread failed")?;
        let chain = rest % part.len();
        act(&mut part[chain])
    }
    fn set(&self, key: u64, number: u64) -> Result<()> {
        self.with(key, |head| {
            let mut link = &mut *head;
            while let Some(item) = link {
                if item.show().key == key {
                    item.set(number);
                    return Ok(());
                }
                link = item.next();
            }
            self.put(head, key, number)
        })
    }
    /// Puts an item that is not there yet.
    fn put(&self, head: &mut Option<AnyItem>, key: u64, number: u64) -> Result<()> {
        *head = Some(AnyItem::new(key, number, head.take())?);
        Ok(())
    }
}

impl Plain for Cache {
    fn keys(&self) -> u64 {
        self.keys
    }
    fn execute(&self, Request { key, writes, number }: Request) -> Result<()> {
        if writes {
            return self.set(key, number);
        }
        self.with(key, |head| {
            let mut link = head.as_ref();
            while let Some(item) = link {
                let shown = item.show();
                if shown.key == key {
                    ensure!(is_filled(key, shown.number, shown.value), "the value of {key} is not what was set");
                    return Ok(());
                }
                link = shown.next;
            }
            anyhow::bail!("{key} was set and is not there")
        })
    }
    fn check(&self) -> Result<u64> {
        let found = walk(self.parts.len(), |parts| {
            let (mut count, mut sum) = (0, 0u64);
            for part in &self.parts[parts] {
                let part = part.lock().ok().context("another thread failed")?;
                for head in part.iter() {
                    let mut link = head.as_ref();
                    while let Some(item) = link {
                        let shown = item.show();
                        ensure!(is_filled(shown.key, shown.number, shown.value), "the value of {} is wrong", shown.key);
                        (count, sum) = (count + 1, sum.wrapping_add(sum_of(shown.key, shown.value)));
                        link = shown.next;
                    }
                }
            }
            Ok((count, sum))
        })?;
        let (count, sum) =
            found.iter().fold((0, 0u64), |(count, sum), more| (count + more.0, sum.wrapping_add(more.1)));
        ensure!(count == self.keys, "{count} items of {} are there", self.keys);
        Ok(sum)
    }
}
