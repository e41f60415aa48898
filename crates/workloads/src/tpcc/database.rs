//! The open database: tables, latches, and what several transactions need.
//!
//! A transaction first reads what never changes and pins what it will change, all of which may wait
//! for flash. Then it takes its latches, which are never held across flash. Then it reads what may
//! have changed and writes, in pinned subpages, where nothing can fail. So an error changes
//! nothing, and a popular district is held for a microsecond, not for a miss.
//!
//! Latches are taken in one order: warehouse, districts (ascending), customers (by latch), stock
//! (by latch). Where the address of a row depends on what a latch protects (the slot of the next
//! order), it is guessed before and checked under the latch. A wrong guess releases the latches and
//! begins again, which only happens when another transaction has gone ahead.

use fulgurite_memory::{AccessError, Exclusive, Latch, LatchTable, Memory};

use super::request::Who;
use super::schema::{NameRange, Shape, Tables};
use crate::rows::Rows;

/// Latches of customers, shared by hash.
const CUSTOMER_LATCHES: usize = 1 << 12;
/// Latches of stock rows, shared by hash: a new order holds ten at once.
const STOCK_LATCHES: usize = 1 << 14;

#[derive(Debug)]
pub(crate) struct Database<L> {
    pub tables: Tables,
    pub warehouses: LatchTable<L>,
    pub districts: LatchTable<L>,
    pub customers: LatchTable<L>,
    pub stock: LatchTable<L>,
}

impl<L: Latch> Database<L> {
    pub fn new(tables: Tables) -> Self {
        Database {
            warehouses: LatchTable::new(tables.shape.warehouses as usize),
            districts: LatchTable::new(tables.shape.districts() as usize),
            customers: LatchTable::new(CUSTOMER_LATCHES),
            stock: LatchTable::new(STOCK_LATCHES),
            tables,
        }
    }
    pub fn shape(&self) -> &Shape {
        &self.tables.shape
    }
    pub fn latch_bytes(&self) -> u64 {
        (self.warehouses.bytes() + self.districts.bytes() + self.customers.bytes() + self.stock.bytes()) as u64
    }
    /// A customer's number in the district, by number or by last name (clause 2.5.2.2: the one at
    /// n/2, rounded up).
    pub fn find<M: Memory>(&self, memory: &mut M, district: u64, who: Who) -> Result<u64, AccessError> {
        let shape = self.shape();
        match who {
            Who::Number(number) => Ok(u64::from(number)),
            Who::Name(name) => {
                let place = self.tables.names.checked(district * shape.names + u64::from(name))?;
                let NameRange { start, count } = memory.load(place)?;
                let middle = u64::from(start) + u64::from(count).div_ceil(2).saturating_sub(1);
                let place = self.tables.sorted.checked(district * shape.customers + middle)?;
                Ok(u64::from(memory.load(place)?))
            }
        }
    }
}

/// Holds the latches with these indexes, each once, in ascending order. Sorts `indexes`.
#[inline]
pub(crate) fn lock_all<'l, L: Latch, M: Memory, const N: usize>(
    latches: &'l LatchTable<L>,
    memory: &mut M,
    indexes: &mut [usize],
) -> Result<[Option<Exclusive<'l, L, M>>; N], AccessError> {
    indexes.sort_unstable();
    let mut held = [const { None }; N];
    let mut last = usize::MAX;
    for (slot, &index) in held.iter_mut().zip(indexes.iter()) {
        if index != last {
            *slot = Some(latches.get(index).lock(memory)?);
            last = index;
        }
    }
    Ok(held)
}
