//! The tables of TPC-C (standard specification 5.11, clause 1.3) as rows of plain data, and where
//! they are stored.
//!
//! ```text
//! item                dense                     stock      dense: warehouse * items + item
//! warehouse           dense                     customer   dense: district * customers + customer
//! ten districts       dense: warehouse          latest     dense like customer: the number of its latest order
//! order and its lines ring per district: (number - 1) % ring
//! history             ring per district: count % ring
//! names               sorted per district: customers by last name, then first name (clause 2.5.2.2)
//! ```
//!
//! Widths are the standard's, at an alignment of eight, so that rows are copied by words. Money is
//! in cents. Taxes and discounts are in hundredths of a percent. The key of a row is its address.
//! Columns that would only repeat it are left out.
//!
//! An order's lines are stored with it (an interleaved table, as stores for such data offer), and
//! the row of NEW-ORDER is the order's own `carrier` that is still null: from `first_undelivered`
//! on, all are. Orders and history are rings, because a benchmark of millions of requests must not
//! grow: the newest replaces the oldest. An order that is not yet delivered when its slot is needed
//! leaves NEW-ORDER as if it had been. The district counts those.

use fulgurite_memory::{Address, Array, Ptr, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::rows::Rows;

/// Districts of a warehouse (clause 1.2.1).
pub(crate) const DISTRICTS: u64 = 10;
/// Most lines of an order (clause 2.4.1.3).
pub(crate) const LINES_MAX: usize = 15;
/// Fewest lines of an order.
pub(crate) const LINES_MIN: u64 = 5;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Warehouse {
    pub ytd_cents: u64,
    pub tax: u32,
    pub name: [u8; 10],
    pub street_1: [u8; 20],
    pub street_2: [u8; 20],
    pub city: [u8; 20],
    pub state: [u8; 2],
    pub zip: [u8; 9],
    pub unused: [u8; 3],
}

/// One of DISTRICT, with the ends of its rings.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct District {
    /// The number of the next order, from 1.
    pub next_order: u32,
    /// The oldest order in NEW-ORDER. `next_order` when there is none.
    pub first_undelivered: u32,
    pub ytd_cents: u64,
    /// Rows ever put into HISTORY.
    pub history_count: u64,
    /// Sum of the amounts of the rows of HISTORY that gave their place to newer ones.
    pub history_retired_cents: u64,
    /// Sum of the amounts that deliveries have put on the balances of this district's customers.
    pub delivered_cents: u64,
    /// Orders that gave their place to newer ones without having been delivered.
    pub retired_undelivered: u32,
    pub tax: u32,
    pub name: [u8; 10],
    pub street_1: [u8; 20],
    pub street_2: [u8; 20],
    pub city: [u8; 20],
    pub state: [u8; 2],
    pub zip: [u8; 9],
    pub unused: [u8; 7],
}

/// The columns of CUSTOMER that transactions read, together.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct CustomerHead {
    pub balance_cents: i64,
    pub ytd_payment_cents: u64,
    pub payment_count: u32,
    pub delivery_count: u32,
    pub discount: u32,
    pub credit_limit_cents: u32,
    pub since: u64,
    pub first: [u8; 16],
    pub middle: [u8; 2],
    pub last: [u8; 16],
    pub credit: [u8; 2],
    pub unused: [u8; 4],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Customer {
    pub head: CustomerHead,
    pub street_1: [u8; 20],
    pub street_2: [u8; 20],
    pub city: [u8; 20],
    pub state: [u8; 2],
    pub zip: [u8; 9],
    pub phone: [u8; 16],
    pub unused: [u8; 1],
    pub data: [u8; 500],
    pub unused_2: [u8; 4],
}

/// The columns of STOCK that change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(8))]
pub(crate) struct StockCounts {
    pub quantity: u32,
    pub ytd: u32,
    pub order_count: u32,
    pub remote_count: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Stock {
    pub counts: StockCounts,
    pub districts: [[u8; 24]; DISTRICTS as usize],
    pub data: [u8; 50],
    pub unused: [u8; 6],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(8))]
pub(crate) struct Item {
    pub price_cents: u32,
    pub image: u32,
    pub name: [u8; 24],
    pub data: [u8; 50],
    pub unused: [u8; 6],
}

/// One of ORDER. With `carrier` 0 (null) it is in NEW-ORDER too.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct OrderHead {
    pub number: u32,
    /// Which customer of the district.
    pub customer: u32,
    pub entry_date: u64,
    pub carrier: u32,
    pub line_count: u32,
    pub all_local: u32,
    pub unused: u32,
}

/// One of ORDER-LINE. `item` 0 means that there is no such line.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct OrderLine {
    /// 0 (null) until delivered.
    pub delivery_date: u64,
    /// The item's number, from 1.
    pub item: u32,
    pub supply_warehouse: u32,
    pub quantity: u32,
    pub amount_cents: u32,
    pub district_info: [u8; 24],
}

/// An order and its lines.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Order {
    pub head: OrderHead,
    pub lines: [OrderLine; LINES_MAX],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct History {
    pub date: u64,
    pub customer: u32,
    pub customer_warehouse: u32,
    pub customer_district: u32,
    pub amount_cents: u32,
    pub data: [u8; 24],
}

/// The customers of one district with one last name: a range of the sorted ones.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct NameRange {
    pub start: u32,
    pub count: u32,
}

const _: () = assert!(size_of::<Warehouse>() == 96 && size_of::<[District; 10]>() == 1360);
const _: () = assert!(size_of::<Customer>() == 672 && size_of::<Stock>() == 312 && size_of::<Item>() == 88);
const _: () = assert!(size_of::<Order>() == 752 && size_of::<History>() == 48);

/// How many rows there are. Full size is the standard's clause 1.2.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Shape {
    pub warehouses: u64,
    pub items: u64,
    /// Customers of a district, as many orders and rows of history are kept.
    pub customers: u64,
    pub names: u64,
}

impl Shape {
    const ITEMS: u64 = 100_000;
    const CUSTOMERS: u64 = 3_000;
    const NAMES: u64 = 1_000;
    const ITEMS_MIN: u64 = 100;
    const CUSTOMERS_MIN: u64 = 20;

    /// As much as fits in `bytes`, by `size` (the bytes that a shape takes): full-size warehouses,
    /// or, where not two fit, two warehouses with fewer items and customers (so that some orders
    /// are still supplied by another warehouse).
    pub fn fitting(bytes: u64, size: impl Fn(&Shape) -> u64) -> Option<Shape> {
        let full =
            |warehouses| Shape { warehouses, items: Self::ITEMS, customers: Self::CUSTOMERS, names: Self::NAMES };
        let parts = |part: u64| {
            let customers = (Self::CUSTOMERS * part / 1024).max(Self::CUSTOMERS_MIN);
            let items = (Self::ITEMS * part / 1024).max(Self::ITEMS_MIN);
            Shape { warehouses: 2, items, customers, names: customers.min(Self::NAMES) }
        };
        // Bit by bit. Requests name a warehouse in 16 bits, which is 5 TiB of them.
        let most = (0..16).rev().fold(0u64, |w, bit| if size(&full(w | 1 << bit)) <= bytes { w | 1 << bit } else { w });
        if most >= 2 {
            return Some(full(most));
        }
        (0..1024).rev().map(parts).find(|shape| size(shape) <= bytes)
    }
    pub fn districts(&self) -> u64 {
        self.warehouses * DISTRICTS
    }
    /// Orders and rows of history that a district keeps.
    pub fn ring(&self) -> u64 {
        self.customers
    }
    /// Orders that a district has delivered at first: 2,100 of 3,000 (clause 4.3.3.1).
    pub fn delivered(&self) -> u64 {
        self.customers * 7 / 10
    }
}

/// Bytes that a controller addresses: more than any tables have.
const ADDRESSED_BYTES: u64 = 1 << 44;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    pub shape: Shape,
    pub items: Array<Item>,
    pub warehouses: Array<Warehouse>,
    /// All districts of one warehouse are in one subpage.
    pub districts: Array<[District; DISTRICTS as usize]>,
    pub customers: Array<Customer>,
    pub stock: Array<Stock>,
    pub orders: Array<Order>,
    pub latest: Array<u32>,
    pub history: Array<History>,
    pub names: Array<NameRange>,
    pub sorted: Array<u32>,
}

impl Tables {
    /// How many bytes the tables take.
    pub fn bytes(shape: &Shape) -> u64 {
        let mut rest = Region::new(Address::from_linear(0), ADDRESSED_BYTES);
        Tables::take(*shape, &mut rest);
        ADDRESSED_BYTES - rest.bytes
    }
    /// Row of a district, counted over all warehouses.
    #[inline(always)]
    pub fn district(&self, district: u64) -> Ptr<District> {
        self.districts.at(district / DISTRICTS).cast::<District>().offset(district % DISTRICTS)
    }
    /// The slot of order `number` of a district, whether the order is there, was there, or is still
    /// to come.
    #[inline(always)]
    pub fn order(&self, district: u64, number: u32) -> Ptr<Order> {
        let ring = self.shape.ring();
        self.orders.at(district * ring + u64::from(number.wrapping_sub(1)) % ring)
    }
    /// The slot of row `count` (from 0) of a district's history, whether the row is there, was
    /// there, or is still to come.
    #[inline(always)]
    pub fn history(&self, district: u64, count: u64) -> Ptr<History> {
        let ring = self.shape.ring();
        self.history.at(district * ring + count % ring)
    }
    /// Lays them out from the start of `rest`, and takes them from it.
    ///
    /// # Panics
    /// When it is smaller than [`Tables::bytes`].
    pub fn take(shape: Shape, rest: &mut Region) -> Tables {
        let customers = shape.districts() * shape.customers;
        let kept = shape.districts() * shape.ring();
        Tables {
            shape,
            items: Array::take(rest, shape.items),
            warehouses: Array::take(rest, shape.warehouses),
            districts: Array::take(rest, shape.warehouses),
            customers: Array::take(rest, customers),
            stock: Array::take(rest, shape.warehouses * shape.items),
            orders: Array::take(rest, kept),
            latest: Array::take(rest, customers),
            history: Array::take(rest, kept),
            names: Array::take(rest, shape.districts() * shape.names),
            sorted: Array::take(rest, customers),
        }
    }
}

/// The least data that makes sense.
pub(crate) const BYTES_MIN: u64 = SUBPAGE_BYTES as u64 * 16;

/// Last names: three syllables, one for each digit (clause 4.3.2.3).
pub(crate) fn last_name(number: u64) -> [u8; 16] {
    const SYLLABLES: [&[u8]; 10] =
        [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];
    let (mut name, mut len) = ([0; 16], 0);
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize];
        name[len..len + syllable.len()].copy_from_slice(syllable);
        len += syllable.len();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fit_and_fill() {
        for bytes in [1u64 << 20, 1 << 24, 1 << 28, 1 << 31, 1 << 33] {
            let shape = Shape::fitting(bytes, Tables::bytes).unwrap();
            let used = Tables::bytes(&shape);
            assert!(used <= bytes && used * 10 > bytes * 6, "{shape:?} uses {used} of {bytes}");
        }
        let two_gib = Shape::fitting(1 << 31, Tables::bytes).unwrap();
        assert_eq!((two_gib.items, two_gib.customers), (100_000, 3_000));
        assert!((20..30).contains(&two_gib.warehouses), "{two_gib:?}");
        assert_eq!(Shape::fitting(4096, Tables::bytes), None);
    }
    #[test]
    fn names_are_the_standards() {
        assert_eq!(&last_name(371)[..13], b"PRICALLYOUGHT");
        assert_eq!(&last_name(40)[..10], b"BARPRESBAR");
    }
}
