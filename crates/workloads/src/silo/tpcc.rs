//! "silo-tpcc": TPC-C's new orders (the workload of Silo in Tailbench, and so AstriFlash's) as Silo
//! transactions.
//!
//! The tables are those of [`crate::Tpcc`] that new orders use, each row a record, each table under
//! an index. Orders are a ring of records per district. Their index has a key for each order that
//! is kept, which comes with the order and goes after its place was taken: changes of the index
//! that mean nothing until, or once, the district's record says so. A key without its order is
//! harmless, as the record says which order it is, and is removed by a later new order of the
//! district.

use std::ops::ControlFlow;
use std::sync::Arc;

use fulgurite_memory::{AccessError, Address, BPlusTreeRoot, Heap, Latch, Memory, Ptr, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::index::{self, Index};
use super::{Record, Silo, Stop, Tid, Transaction};
use crate::tpcc::check::consistent;
use crate::tpcc::new_order::{NO_LINE, ROLLED_BACK, take, total_cents};
use crate::tpcc::populate::{self, is_original};
use crate::tpcc::request::{NO_ITEM, NewOrder, Skew};
use crate::tpcc::rows::Rows;
use crate::tpcc::schema::{
    Customer, CustomerHead, DISTRICTS, District, Item, LINES_MAX, LINES_MIN, Order, OrderHead, Shape, Stock,
    StockCounts, Warehouse,
};
use crate::{Params, Random, Workload, WorkloadError, header, mix};

/// Latches of records, 512 KiB: a transaction holds a dozen, and remembers thirty.
const LATCHES: usize = 1 << 16;
/// The epoch that built the records.
const FIRST_EPOCH: u32 = 1;
/// Keys of orders that are no longer kept that one new order removes at most. Each brings one.
const SWEEP_MAX: u32 = 2;

#[derive(Clone, Copy, Debug)]
struct Tables {
    shape: Shape,
    epoch: Ptr<u32>,
    items: Rows<Record<Item>>,
    warehouses: Rows<Record<Warehouse>>,
    districts: Rows<Record<District>>,
    customers: Rows<Record<Customer>>,
    stock: Rows<Record<Stock>>,
    orders: Rows<Record<Order>>,
}

impl Tables {
    fn heap_bytes(shape: &Shape) -> u64 {
        let customers = shape.districts() * shape.customers;
        let fixed = shape.items + shape.warehouses + shape.districts() + customers + shape.warehouses * shape.items;
        index::heap_bytes(5, fixed, shape.districts() * shape.ring())
    }
    fn table_bytes(shape: &Shape) -> u64 {
        Rows::<u32>::bytes(1)
            + Rows::<Record<Item>>::bytes(shape.items)
            + Rows::<Record<Warehouse>>::bytes(shape.warehouses)
            + Rows::<Record<District>>::bytes(shape.districts())
            + Rows::<Record<Customer>>::bytes(shape.districts() * shape.customers)
            + Rows::<Record<Stock>>::bytes(shape.warehouses * shape.items)
            + Rows::<Record<Order>>::bytes(shape.districts() * shape.ring())
    }
    fn bytes(shape: &Shape) -> u64 {
        Self::heap_bytes(shape) + Self::table_bytes(shape)
    }
    fn new(shape: Shape, data: Region) -> (Region, Tables) {
        let (heap, mut rest) = data.split(Self::heap_bytes(&shape));
        let rest = &mut rest;
        let tables = Tables {
            shape,
            epoch: Rows::take(rest, 1).at(0),
            items: Rows::take(rest, shape.items),
            warehouses: Rows::take(rest, shape.warehouses),
            districts: Rows::take(rest, shape.districts()),
            customers: Rows::take(rest, shape.districts() * shape.customers),
            stock: Rows::take(rest, shape.warehouses * shape.items),
            orders: Rows::take(rest, shape.districts() * shape.ring()),
        };
        (heap, tables)
    }
    /// Where order `number` of a district lies, or lay, or will lie.
    fn order(&self, district: u64, number: u32) -> Ptr<Record<Order>> {
        let ring = self.shape.ring();
        self.orders.at(district * ring + u64::from(number.wrapping_sub(1)) % ring)
    }
}

fn order_key(district: u64, number: u32) -> u64 {
    district << 32 | u64::from(number)
}
/// Key of a customer, or of a row of stock: what it belongs to, and its number there.
fn pair_key(owner: u64, number: u64) -> u64 {
    owner << 32 | number
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Root {
    shape: Shape,
    seed: u64,
    items: BPlusTreeRoot,
    warehouses: BPlusTreeRoot,
    districts: BPlusTreeRoot,
    customers: BPlusTreeRoot,
    stock: BPlusTreeRoot,
    orders: BPlusTreeRoot,
}

#[derive(Debug)]
struct Indexes<L> {
    items: Index<L>,
    warehouses: Index<L>,
    districts: Index<L>,
    customers: Index<L>,
    stock: Index<L>,
    orders: Index<L>,
}

/// Silo under TPC-C's new orders. One of a hundred is rolled back.
#[derive(Debug)]
pub struct SiloTpcc<L> {
    silo: Silo<L>,
    tables: Tables,
    indexes: Indexes<L>,
    heap: Arc<Heap>,
    skew: Skew,
    seed: u64,
}

impl<L: Latch> Workload for SiloTpcc<L> {
    const NAME: &'static str = "silo-tpcc";
    /// District, order, and a row of stock for each line. The index changes before that, with
    /// fewer.
    const PINS: u32 = 2 + LINES_MAX as u32;
    type Request = NewOrder;

    fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        let (at, data) = header::split(Self::NAME, region, params.bytes, SUBPAGE_BYTES as u64)?;
        let shape = Shape::fitting(data.bytes, Tables::bytes).ok_or_else(|| WorkloadError::Unusable {
            workload: Self::NAME,
            what: "not even two small warehouses fit; give it at least 1 MiB".to_owned(),
        })?;
        let (heap, tables) = Tables::new(shape, data);
        memory.store(tables.epoch, FIRST_EPOCH)?;
        fill(memory, &tables, params.seed, progress)?;
        let heap = Arc::new(Heap::create(memory, heap)?);
        let (customers, items, ring) = (shape.customers, shape.items, shape.ring());
        let root = Root {
            shape,
            seed: params.seed,
            items: index::build(memory, &heap, &tables.items, 1.0, |i| i)?,
            warehouses: index::build(memory, &heap, &tables.warehouses, 1.0, |i| i)?,
            districts: index::build(memory, &heap, &tables.districts, 1.0, |i| i)?,
            customers: index::build(memory, &heap, &tables.customers, 1.0, |i| pair_key(i / customers, i % customers))?,
            stock: index::build(memory, &heap, &tables.stock, 1.0, |i| pair_key(i / items, i % items))?,
            orders: index::build(memory, &heap, &tables.orders, 0.7, |i| order_key(i / ring, (i % ring) as u32 + 1))?,
        };
        heap.save(memory)?;
        progress(1.0);
        header::write(memory, Self::NAME, at, root)
    }

    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        let root: Root = header::read(memory, Self::NAME, region)?;
        let data = header::data(region);
        if Tables::bytes(&root.shape) > data.bytes {
            let what = "its tables do not fit in this region; open all of the region it was built in".to_owned();
            return Err(WorkloadError::Unusable { workload: Self::NAME, what });
        }
        let (heap, tables) = Tables::new(root.shape, data);
        let heap = Arc::new(Heap::open(memory, heap)?);
        Ok(SiloTpcc {
            silo: Silo::open(memory, tables.epoch, LATCHES)?,
            indexes: Indexes {
                items: index::open(memory, &heap, root.items)?,
                warehouses: index::open(memory, &heap, root.warehouses)?,
                districts: index::open(memory, &heap, root.districts)?,
                customers: index::open(memory, &heap, root.customers)?,
                stock: index::open(memory, &heap, root.stock)?,
                orders: index::open(memory, &heap, root.orders)?,
            },
            tables,
            heap,
            skew: Skew::new(Self::NAME, root.shape, params.zipf)?,
            seed: root.seed,
        })
    }

    #[inline]
    fn request(&self, seed: u64, number: u64) -> NewOrder {
        self.skew.new_order(&mut Random::new(seed, number), number)
    }

    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &NewOrder) -> Result<u64, AccessError> {
        self.silo.run(memory, |transaction, memory| self.new_order(transaction, memory, request))
    }

    /// What an order costs: prices, discounts and taxes never change.
    #[inline]
    fn answer_is_fixed(&self, _: &NewOrder) -> bool {
        true
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        let mut sum = 0;
        for district in 0..self.tables.shape.districts() {
            sum = mix_in(sum, district, self.check_district(memory, district)?);
        }
        for row in 0..self.tables.stock.count() {
            let (tid, stock) = index::read(memory, self.tables.stock.at(row))?;
            let (built, counts) = (populate::stock(self.seed, row), stock.counts);
            let same = stock.districts == built.districts && stock.data == built.data;
            self.expect(same && consistent(&counts, &built.counts), || {
                format!("stock row {row} has {counts:?}, and began with {:?}", built.counts)
            })?;
            self.expect(self.is_sane(tid), || format!("stock row {row} is of {tid:?}"))?;
            let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
            sum = mix_in(sum, !row, pair(counts.quantity, counts.ytd));
            sum = mix_in(sum, !row, pair(counts.order_count, counts.remote_count));
        }
        self.check_indexes(memory)?;
        Ok(sum)
    }

    fn save<M: Memory>(&self, memory: &mut M) -> Result<(), WorkloadError> {
        Ok(self.heap.save(memory)?)
    }

    fn dram_bytes(&self) -> u64 {
        let i = &self.indexes;
        let trees = [&i.items, &i.warehouses, &i.districts, &i.customers, &i.stock, &i.orders];
        let trees: usize = trees.iter().map(|tree| tree.dram_bytes()).sum();
        self.silo.dram_bytes() + (trees + self.heap.dram_bytes()) as u64
    }
}

/// Adds the hash of a row's place and value to an order-free sum.
fn mix_in(sum: u64, row: u64, value: u64) -> u64 {
    sum.wrapping_add(mix(mix(row) ^ value))
}

fn fill<M: Memory>(
    memory: &mut M,
    tables: &Tables,
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<(), WorkloadError> {
    let (shape, tid) = (&tables.shape, Tid::new(FIRST_EPOCH, 0));
    let total = (Tables::table_bytes(shape) / SUBPAGE_BYTES as u64) as f64;
    let tell = &mut |done: u64| progress((done as f64 / total * 0.9).min(0.9));
    let mut done = 0;
    index::fill(memory, &tables.items, tid, &mut done, tell, |i| populate::item(seed, i))?;
    index::fill(memory, &tables.warehouses, tid, &mut done, tell, |i| populate::warehouse(seed, shape, i))?;
    index::fill(memory, &tables.districts, tid, &mut done, tell, |i| populate::district(seed, shape, i))?;
    index::fill(memory, &tables.customers, tid, &mut done, tell, |i| populate::customer(seed, shape, i))?;
    index::fill(memory, &tables.stock, tid, &mut done, tell, |i| populate::stock(seed, i))?;
    let mut buyers = Vec::new();
    index::fill(memory, &tables.orders, tid, &mut done, tell, |i| {
        let (district, number) = (i / shape.ring(), i % shape.ring() + 1);
        if number == 1 {
            buyers = populate::order_customers(seed, shape, district);
        }
        populate::order(seed, shape, district, number, buyers[number as usize - 1])
    })
}

impl<L: Latch> SiloTpcc<L> {
    fn new_order<M: Memory>(
        &self,
        transaction: &mut Transaction<'_, L>,
        memory: &mut M,
        order: &NewOrder,
    ) -> Result<u64, Stop> {
        let (warehouse, indexes) = (u64::from(order.warehouse), &self.indexes);
        let district = warehouse * DISTRICTS + u64::from(order.district);
        let warehouse: Ptr<Record<Warehouse>> = index::find(memory, &indexes.warehouses, warehouse)?;
        let warehouse_tax: u32 = transaction.read_part(memory, warehouse, std::mem::offset_of!(Warehouse, tax))?;
        let customer = pair_key(district, u64::from(order.customer));
        let customer: Ptr<Record<Customer>> = index::find(memory, &indexes.customers, customer)?;
        let customer: CustomerHead = transaction.read_part(memory, customer, 0)?;

        let count = usize::from(order.line_count);
        let mut written = Order {
            head: OrderHead {
                number: 0,
                customer: order.customer,
                entry_date: order.date,
                carrier: 0,
                line_count: count as u32,
                all_local: 1,
                unused: 0,
            },
            lines: [NO_LINE; LINES_MAX],
        };
        let (mut sum, mut generic) = (0, 0);
        for (line, into) in order.lines[..count].iter().zip(&mut written.lines) {
            if line.item == NO_ITEM {
                transaction.roll_back();
                return Ok(ROLLED_BACK);
            }
            let item: Ptr<Record<Item>> = index::find(memory, &indexes.items, u64::from(line.item))?;
            let item = transaction.read(memory, item)?;
            let stock = pair_key(u64::from(line.supply), u64::from(line.item));
            let stock: Ptr<Record<Stock>> = index::find(memory, &indexes.stock, stock)?;
            let row = transaction.read(memory, stock)?;
            let remote = line.supply != order.warehouse;
            transaction.write_part(stock, 0, &take(row.counts, u32::from(line.quantity), remote));
            into.item = line.item + 1;
            into.supply_warehouse = u32::from(line.supply);
            into.quantity = u32::from(line.quantity);
            into.amount_cents = item.price_cents * u32::from(line.quantity);
            into.district_info = row.districts[usize::from(order.district)];
            written.head.all_local &= u32::from(!remote);
            sum += u64::from(into.amount_cents);
            generic += u64::from(!(is_original(&data_words(&item.data)) && is_original(&data_words(&row.data))));
        }

        // The district last, and what depends on it brought in before: all its orders pass through
        // this record, so the time between reading and writing it must not hold a miss.
        let row: Ptr<Record<District>> = index::find(memory, &indexes.districts, district)?;
        let guess: u32 = memory.load(Record::row(row).field(std::mem::offset_of!(District, next_order)))?;
        self.make_room(memory, district, guess)?;
        let mut place = self.place(memory, district, guess)?;
        let _: u32 = memory.load(place.cast())?;
        let mut district_row = transaction.read(memory, row)?;
        let number = district_row.next_order;
        if number != guess {
            place = self.place(memory, district, number)?;
        }
        if u64::from(number.wrapping_sub(district_row.first_undelivered)) >= self.tables.shape.ring() {
            district_row.first_undelivered = district_row.first_undelivered.wrapping_add(1);
            district_row.retired_undelivered = district_row.retired_undelivered.wrapping_add(1);
        }
        district_row.next_order = number.wrapping_add(1);
        written.head.number = number;
        transaction.write(row, &district_row);
        transaction.write(place, &written);
        Ok(total_cents(sum, customer.discount, warehouse_tax, district_row.tax) + generic)
    }

    /// Gives an order a key, and says where it goes.
    fn place<M: Memory>(&self, memory: &mut M, district: u64, number: u32) -> Result<Ptr<Record<Order>>, AccessError> {
        let place = self.tables.order(district, number);
        self.indexes.orders.insert(memory, order_key(district, number), place.address())?;
        Ok(place)
    }

    /// Removes keys of orders whose place has been taken, when order `next` is the next.
    fn make_room<M: Memory>(&self, memory: &mut M, district: u64, next: u32) -> Result<(), AccessError> {
        let kept_from = u64::from(next).saturating_sub(self.tables.shape.ring());
        for _ in 0..SWEEP_MAX {
            match self.indexes.orders.first_at_or_after(memory, order_key(district, 0))? {
                Some((key, _)) if key < order_key(district, 0) + kept_from => {
                    self.indexes.orders.remove(memory, key)?;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn expect(&self, holds: bool, what: impl FnOnce() -> String) -> Result<(), WorkloadError> {
        if holds { Ok(()) } else { Err(WorkloadError::Inconsistent { workload: Self::NAME, what: what() }) }
    }

    fn is_sane(&self, tid: Tid) -> bool {
        (FIRST_EPOCH..=self.silo.epoch()).contains(&tid.epoch())
    }

    /// Checks a district and its orders. Returns the number of the next one.
    fn check_district<M: Memory>(&self, memory: &mut M, district: u64) -> Result<u64, WorkloadError> {
        let (shape, orders) = (&self.tables.shape, &self.indexes.orders);
        let (tid, row) = index::read(memory, self.tables.districts.at(district))?;
        let (oldest, next) = (row.next_order.wrapping_sub(shape.ring() as u32), row.next_order);
        let queue_is_kept = (oldest..=next).contains(&row.first_undelivered);
        self.expect(self.is_sane(tid) && next > shape.ring() as u32 && queue_is_kept, || {
            format!("district {district} is of {tid:?}, its next order {next}, its oldest {}", row.first_undelivered)
        })?;
        for number in oldest..next {
            let place = self.tables.order(district, number);
            let (tid, order) = index::read(memory, place)?;
            let (head, lines) = (&order.head, order.lines.iter().take_while(|line| line.item != 0).count());
            let undelivered = number >= row.first_undelivered;
            let whole = head.line_count as usize == lines
                && (LINES_MIN as usize..=LINES_MAX).contains(&lines)
                && order.lines[lines..].iter().all(|line| line.item == 0)
                && order.lines[..lines].iter().all(|line| (line.delivery_date == 0) == undelivered);
            self.expect(head.number == number && (head.carrier == 0) == undelivered && whole, || {
                format!("order {number} of district {district} is {head:?}, with {lines} lines (conditions 2 to 7)")
            })?;
            self.expect(self.is_sane(tid), || format!("order {number} of district {district} is of {tid:?}"))?;
            let found = orders.get(memory, order_key(district, number))?;
            self.expect(found == Some(place.address()), || {
                format!("the index leads to {found:?} for order {number} of district {district}")
            })?;
        }
        let (mut stale, mut early) = (0u64, 0u64);
        let (first, last) = (order_key(district, 0), order_key(district, u32::MAX));
        orders.scan(memory, first, last, |key, _: &Address| {
            stale += u64::from(key < order_key(district, oldest));
            early += u64::from(key > order_key(district, next));
            ControlFlow::Continue(())
        })?;
        self.expect(stale <= shape.ring() && early == 0, || {
            format!(
                "the index has {stale} keys of orders that are gone and {early} of orders to come, district {district}"
            )
        })?;
        Ok(u64::from(next))
    }

    fn check_indexes<M: Memory>(&self, memory: &mut M) -> Result<(), WorkloadError> {
        let (tables, indexes) = (&self.tables, &self.indexes);
        let (customers, items) = (tables.shape.customers, tables.shape.items);
        let complete = [
            index::is_complete(memory, &indexes.items, &tables.items, |i| i)?,
            index::is_complete(memory, &indexes.warehouses, &tables.warehouses, |i| i)?,
            index::is_complete(memory, &indexes.districts, &tables.districts, |i| i)?,
            index::is_complete(memory, &indexes.customers, &tables.customers, |i| {
                pair_key(i / customers, i % customers)
            })?,
            index::is_complete(memory, &indexes.stock, &tables.stock, |i| pair_key(i / items, i % items))?,
        ];
        self.expect(complete == [true; 5], || format!("indexes are complete: {complete:?}"))?;
        indexes.orders.check(memory)?;
        Ok(())
    }
}

/// The data of an item or a row of stock as words, the last six bytes unused.
fn data_words(data: &[u8; 50]) -> [u64; 7] {
    let mut bytes = [0; 56];
    bytes[..50].copy_from_slice(data);
    zerocopy::transmute!(bytes)
}

const _: () = assert!(std::mem::offset_of!(Stock, counts) == 0 && size_of::<StockCounts>() == 16);
