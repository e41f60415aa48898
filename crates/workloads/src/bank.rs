//! Bank: transfers between accounts, each a transaction of the library (`Transactions`). One
//! request in ten only reads the two accounts.
//!
//! ```text
//! account --> hash map: | balance | touched | payload[0..4] |   48 bytes
//! ```
//!
//! Invariants, under any interleaving and after any error: the balances have the sum that they were
//! made with, modulo 2^64; each payload is that of its account and balance (nothing is torn).
//! Amounts are added and subtracted, so the balances do not depend on the order of transfers, and
//! `check` hashes them.

use std::marker::PhantomData;
use std::sync::Arc;

use fulgurite_memory::{
    AccessError, HashMap, HashMapRoot, Heap, Latch, Memory, Region, SUBPAGE_BYTES, Transactions, VersionLatch,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::keys::{Random, ZipfKeys, mix};
use crate::{Params, Workload, WorkloadError, header};

/// An account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Account {
    balance: u64,
    /// The weights of the transfers that named it, added up.
    touched: u64,
    payload: [u64; 4],
}

impl Account {
    #[inline]
    fn new(key: u64, balance: u64, touched: u64) -> Account {
        let first = mix(key ^ balance.rotate_left(32));
        Account { balance, touched, payload: std::array::from_fn(|i| first.wrapping_mul(2 * i as u64 + 1)) }
    }
}

type Accounts = HashMap<u64, Account, VersionLatch>;

/// What an account has at first.
const FIRST: u64 = 1_000_000;
/// Latches of the map. A transaction holds two of them, for as long as it takes to copy two
/// accounts.
const LATCHES: usize = 1 << 14;
/// Transactions that are expected to be under way at once, and what the buffers of one take.
const BUFFER_BYTES: u64 = 64 * 12_000;

/// Bytes of the heap of the blocks that overflow, a third of the buckets.
fn heap_bytes(count: u64) -> u64 {
    (Accounts::bytes_needed(count) / 3 + (256 << 10)).next_multiple_of(SUBPAGE_BYTES as u64)
}
fn bytes_of(count: u64) -> u64 {
    heap_bytes(count) + Accounts::bytes_needed(count)
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Root {
    count: u64,
    map: HashMapRoot,
}

/// The accounts, open. The latches are those of the library, whatever `L` is.
#[derive(Debug)]
pub struct Bank<L> {
    accounts: Arc<Accounts>,
    keys: ZipfKeys,
    transactions: Transactions,
    latches: PhantomData<fn() -> L>,
}

/// One transfer, or one look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferRequest {
    /// Where the amount is taken.
    pub from: u64,
    /// Where it is put; never the same account.
    pub to: u64,
    /// How much; nothing for a look.
    pub amount: u64,
}

impl<L: Latch> Bank<L> {
    fn account<M: Memory>(
        &self,
        t: &mut fulgurite_memory::Transaction<'_, M>,
        key: u64,
    ) -> Result<Account, AccessError> {
        let missing = AccessError::Corrupt {
            what: "bank (an account that it must have)",
            at: self.accounts.root().region.base,
            expected: key,
            got: 0,
        };
        t.get(&self.accounts, &key)?.ok_or(missing)
    }
}

impl<L: Latch> Workload for Bank<L> {
    const NAME: &'static str = "bank";
    const PINS: u32 = 2;
    type Request = TransferRequest;

    fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        let (at, data) = header::split(Self::NAME, region, params.bytes, bytes_of(2))?;
        let count = header::most(data.bytes, bytes_of);
        let (heap, buckets) = data.split(heap_bytes(count));
        let heap = Arc::new(Heap::create(memory, heap)?);
        let map = Accounts::create(memory, buckets, heap.clone(), count, 1)?;
        for key in 0..count {
            if key.is_multiple_of(header::PROGRESS_EVERY) {
                progress(key as f64 / count as f64);
            }
            map.insert(memory, &key, Account::new(key, FIRST, 0))?;
        }
        heap.save(memory)?;
        progress(1.0);
        header::write(memory, Self::NAME, at, Root { count, map: map.root() })
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let root: Root = header::read(memory, Self::NAME, region)?;
        let data = header::data(region);
        if root.count > data.bytes || bytes_of(root.count) > data.bytes {
            let what = format!("{} accounts do not fit into its region", root.count);
            return Err(WorkloadError::Inconsistent { workload: Self::NAME, what });
        }
        let heap = Arc::new(Heap::open(memory, data.split(heap_bytes(root.count)).0)?);
        Ok(Bank {
            accounts: Accounts::open(root.map, heap, LATCHES)?.into(),
            keys: ZipfKeys::new(Self::NAME, root.count, params.zipf)?,
            transactions: Transactions::new(),
            latches: PhantomData,
        })
    }

    #[inline]
    fn request(&self, seed: u64, number: u64) -> TransferRequest {
        let mut random = Random::new(seed, number);
        let (from, to) = (self.keys.sample(&mut random), self.keys.sample(&mut random));
        let to = if to != from { to } else { (to + 1) % self.keys.count() };
        let what = random.next();
        TransferRequest { from, to, amount: if what.is_multiple_of(10) { 0 } else { 1 + (what >> 32) % 1000 } }
    }

    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &TransferRequest) -> Result<u64, AccessError> {
        let &TransferRequest { from, to, amount } = request;
        self.transactions.run(memory, |t| {
            let (payer, payee) = (self.account(t, from)?, self.account(t, to)?);
            if amount > 0 {
                let weight = mix(amount ^ from << 32);
                let (less, more) = (payer.balance.wrapping_sub(amount), payee.balance.wrapping_add(amount));
                t.put(&self.accounts, &from, &Account::new(from, less, payer.touched.wrapping_add(weight)))?;
                t.put(&self.accounts, &to, &Account::new(to, more, payee.touched.wrapping_add(weight)))?;
            }
            Ok(payer.payload[0] ^ payee.payload[1])
        })
    }

    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let broken = |what| Err(WorkloadError::Inconsistent { workload: Self::NAME, what });
        let (mut sum, mut hash, mut torn, mut count) = (0u64, 0u64, None, 0u64);
        self.accounts.check(memory)?;
        self.accounts.for_each(memory, |&key, account| {
            count += 1;
            sum = sum.wrapping_add(account.balance);
            hash = hash.wrapping_add(mix(account.balance ^ mix(account.touched ^ mix(key))));
            if *account != Account::new(key, account.balance, account.touched) {
                torn = Some(key);
            }
        })?;
        let expected = self.keys.count().wrapping_mul(FIRST);
        match torn {
            Some(key) => broken(format!("account {key} is torn")),
            None if count != self.keys.count() => broken(format!("{count} accounts of {}", self.keys.count())),
            None if sum != expected => broken(format!("the accounts have {sum} together, not {expected}")),
            None => Ok(hash),
        }
    }

    fn dram_bytes(&self) -> u64 {
        self.accounts.dram_bytes() as u64 + self.transactions.dram_bytes() as u64 + BUFFER_BYTES
    }
}
