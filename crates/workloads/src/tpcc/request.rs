//! Requests: what a terminal would have typed, as a function of (seed, number).

use super::schema::{DISTRICTS, LINES_MAX, LINES_MIN, Shape};
use crate::{Random, WorkloadError, ZipfKeys};

/// The item that does not exist: one of a hundred new orders names it last and is rolled back
/// (clause 2.4.1.4).
pub(crate) const NO_ITEM: u32 = u32::MAX;

/// One line of a new order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Which item.
    pub item: u32,
    /// From which warehouse.
    pub supply: u16,
    /// How many.
    pub quantity: u16,
}

/// A new order (clause 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// When.
    pub date: u64,
    /// Which customer of the district.
    pub customer: u32,
    /// At which warehouse.
    pub warehouse: u16,
    /// At which of its districts.
    pub district: u8,
    /// How many of `lines` there are.
    pub line_count: u8,
    /// What is ordered.
    pub lines: [Line; LINES_MAX],
}

/// How a customer is identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// By number.
    Number(u32),
    /// By the number of the last name, of several, the one in the middle by first name.
    Name(u16),
}

/// A payment (clause 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payment {
    /// When.
    pub date: u64,
    /// How much.
    pub amount_cents: u32,
    /// Where it is paid.
    pub warehouse: u16,
    /// In which district.
    pub district: u8,
    /// Where the customer lives.
    pub customer_warehouse: u16,
    /// In which district.
    pub customer_district: u8,
    /// The paying customer.
    pub who: Who,
}

/// A question for a customer's last order (clause 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatus {
    /// Where the customer lives.
    pub warehouse: u16,
    /// In which district.
    pub district: u8,
    /// The asking customer.
    pub who: Who,
}

/// The delivery of the oldest order of each district (clause 2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When.
    pub date: u64,
    /// Of which warehouse.
    pub warehouse: u16,
    /// The carrier.
    pub carrier: u8,
}

/// A question for the items that were sold lately and run out (clause 2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockLevel {
    /// Where.
    pub warehouse: u16,
    /// Lately sold in which district.
    pub district: u8,
    /// Below how many.
    pub threshold: u8,
}

/// One of the five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixRequest {
    /// 45%.
    NewOrder(NewOrder),
    /// 43%.
    Payment(Payment),
    /// 4%.
    OrderStatus(OrderStatus),
    /// 4%.
    Delivery(Delivery),
    /// 4%.
    StockLevel(StockLevel),
}

/// How unevenly warehouses, customers, names and items are asked for.
///
/// With exponent 0 as the standard says: warehouses alike, the rest by NURand (clause 2.1.6), whose
/// constant A is the standard's or, where there are fewer rows than the standard has, about as
/// large a part of them. With another exponent, all four have a Zipf distribution with it
/// (AstriFlash, section V-A), their popular keys scattered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skew {
    shape: Shape,
    zipf: Option<Zipf>,
    customer_or: u64,
    item_or: u64,
}

#[derive(Clone, Copy, Debug)]
struct Zipf {
    warehouses: ZipfKeys,
    customers: ZipfKeys,
    names: ZipfKeys,
    items: ZipfKeys,
}

/// NURand(A, 0, count - 1) with the constant C.
fn nurand(random: &mut Random, or: u64, count: u64, constant: u64) -> u64 {
    ((random.below(or + 1) | random.below(count)) + constant) % count
}

/// The standard's constant A for a table with `standard` rows, scaled to `count`.
fn or_of(a: u64, standard: u64, count: u64) -> u64 {
    if count >= standard { a } else { ((a + 1) * count / standard).next_power_of_two().max(2) - 1 }
}

impl Skew {
    /// The constants C (clause 2.1.6.1). The two for last names, at load and at run, differ by 66,
    /// as they must by 65 to 119.
    const C_NAME_BUILD: u64 = 157;
    const C_NAME_RUN: u64 = 223;
    const C_CUSTOMER: u64 = 259;
    const C_ITEM: u64 = 7911;

    pub fn new(workload: &'static str, shape: Shape, exponent: f64) -> Result<Skew, WorkloadError> {
        let keys = |count| ZipfKeys::new(workload, count, exponent);
        let zipf = Zipf {
            warehouses: keys(shape.warehouses)?,
            customers: keys(shape.customers)?,
            names: keys(shape.names)?,
            items: keys(shape.items)?,
        };
        Ok(Skew {
            shape,
            zipf: (exponent > 0.0).then_some(zipf),
            customer_or: or_of(1023, 3_000, shape.customers),
            item_or: or_of(8191, 100_000, shape.items),
        })
    }
    /// A last name's number at build time.
    pub fn name_at_build(random: &mut Random, names: u64) -> u64 {
        nurand(random, or_of(255, 1_000, names), names, Self::C_NAME_BUILD)
    }
    #[inline]
    fn warehouse(&self, r: &mut Random) -> u16 {
        match &self.zipf {
            Some(zipf) => zipf.warehouses.sample(r) as u16,
            None => r.below(self.shape.warehouses) as u16,
        }
    }
    #[inline]
    fn customer(&self, r: &mut Random) -> u32 {
        match &self.zipf {
            Some(zipf) => zipf.customers.sample(r) as u32,
            None => nurand(r, self.customer_or, self.shape.customers, Self::C_CUSTOMER) as u32,
        }
    }
    #[inline]
    fn item(&self, r: &mut Random) -> u32 {
        match &self.zipf {
            Some(zipf) => zipf.items.sample(r) as u32,
            None => nurand(r, self.item_or, self.shape.items, Self::C_ITEM) as u32,
        }
    }
    fn name(&self, r: &mut Random) -> u16 {
        match &self.zipf {
            Some(zipf) => zipf.names.sample(r) as u16,
            None => nurand(r, or_of(255, 1_000, self.shape.names), self.shape.names, Self::C_NAME_RUN) as u16,
        }
    }
    /// 60% by name (clauses 2.5.1.2 and 2.6.1.2).
    fn who(&self, r: &mut Random) -> Who {
        if r.percent(60) { Who::Name(self.name(r)) } else { Who::Number(self.customer(r)) }
    }
    /// Any warehouse but `home`.
    fn other(&self, r: &mut Random, home: u16) -> u16 {
        let other = r.below(self.shape.warehouses - 1) as u16;
        other + u16::from(other >= home)
    }

    /// A new order (clause 2.4.1).
    #[inline]
    pub fn new_order(&self, r: &mut Random, number: u64) -> NewOrder {
        let warehouse = self.warehouse(r);
        let mut order = NewOrder {
            date: number + 2,
            customer: self.customer(r),
            warehouse,
            district: r.below(DISTRICTS) as u8,
            line_count: r.between(LINES_MIN, LINES_MAX as u64) as u8,
            lines: [Line::default(); LINES_MAX],
        };
        for line in &mut order.lines[..usize::from(order.line_count)] {
            // Bits of one draw: which percent, and how many.
            let draw = r.next();
            let remote = self.shape.warehouses > 1 && (draw & 0xFFFF) * 100 < 1 << 16;
            *line = Line {
                item: self.item(r),
                supply: if remote { self.other(r, warehouse) } else { warehouse },
                quantity: (((draw >> 32) * 10) >> 32) as u16 + 1,
            };
        }
        if r.percent(1) {
            order.lines[usize::from(order.line_count) - 1].item = NO_ITEM;
        }
        order
    }

    fn payment(&self, r: &mut Random, number: u64) -> Payment {
        let (warehouse, district) = (self.warehouse(r), r.below(DISTRICTS) as u8);
        let away = self.shape.warehouses > 1 && r.percent(15);
        Payment {
            date: number + 2,
            amount_cents: r.between(100, 500_000) as u32,
            warehouse,
            district,
            customer_warehouse: if away { self.other(r, warehouse) } else { warehouse },
            customer_district: if away { r.below(DISTRICTS) as u8 } else { district },
            who: self.who(r),
        }
    }

    /// One of the five, with the shares of clause 5.2.3 (the least of each, and new orders for the
    /// rest).
    pub fn mix(&self, r: &mut Random, number: u64) -> MixRequest {
        match r.below(100) {
            0..45 => MixRequest::NewOrder(self.new_order(r, number)),
            45..88 => MixRequest::Payment(self.payment(r, number)),
            88..92 => MixRequest::OrderStatus(OrderStatus {
                warehouse: self.warehouse(r),
                district: r.below(DISTRICTS) as u8,
                who: self.who(r),
            }),
            92..96 => MixRequest::Delivery(Delivery {
                date: number + 2,
                warehouse: self.warehouse(r),
                carrier: r.between(1, 10) as u8,
            }),
            _ => MixRequest::StockLevel(StockLevel {
                warehouse: self.warehouse(r),
                district: r.below(DISTRICTS) as u8,
                threshold: r.between(10, 20) as u8,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_the_standards() {
        let shape = Shape { warehouses: 3, items: 1000, customers: 30, names: 30 };
        for exponent in [0.0, 1.1] {
            let skew = Skew::new("test", shape, exponent).unwrap();
            let (mut kinds, mut rolled_back, mut lines, mut remote) = ([0u32; 5], 0, 0u32, 0);
            for number in 0..100_000 {
                let kind = match skew.mix(&mut Random::new(1, number), number) {
                    MixRequest::NewOrder(order) => {
                        assert!(order.warehouse < 3 && order.district < 10 && order.customer < 30);
                        for line in &order.lines[..usize::from(order.line_count)] {
                            assert!(line.supply < 3 && (1..=10).contains(&line.quantity));
                            rolled_back += u32::from(line.item == NO_ITEM);
                            assert!(line.item < 1000 || line.item == NO_ITEM);
                            lines += 1;
                            remote += u32::from(line.supply != order.warehouse);
                        }
                        0
                    }
                    MixRequest::Payment(p) => {
                        assert!(p.customer_warehouse < 3 && p.customer_district < 10);
                        1
                    }
                    MixRequest::OrderStatus(_) => 2,
                    MixRequest::Delivery(_) => 3,
                    MixRequest::StockLevel(_) => 4,
                };
                kinds[kind] += 1;
            }
            let near = |got: u32, expected: f64| (f64::from(got) - expected).abs() < 5.0 * expected.sqrt();
            let expected = [45_000.0, 43_000.0, 4_000.0, 4_000.0, 4_000.0];
            assert!(kinds.iter().zip(expected).all(|(&k, e)| near(k, e)), "{kinds:?}");
            assert!(near(rolled_back, f64::from(kinds[0]) / 100.0) && near(lines, f64::from(kinds[0]) * 10.0));
            assert!(near(remote, f64::from(lines) / 100.0), "{remote} of {lines}");
        }
    }
}
