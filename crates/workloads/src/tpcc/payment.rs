//! The payment transaction (clause 2.5): adds to the year's sums of warehouse and district, takes
//! from the customer's balance, writes a row of history.

use std::mem::offset_of;

use fulgurite_memory::{AccessError, Latch, Memory, Pinned, Ptr};
use zerocopy::IntoBytes;

use super::database::Database;
use super::request::Payment;
use super::schema::{Customer, CustomerHead, DISTRICTS, District, History, Warehouse};
use crate::rows::{Rows, add, load, pin, store};

/// Most pins at once: warehouse, district, customer, history.
pub(crate) const PINS: u32 = 4;

/// Words of a customer's data.
const DATA_WORDS: usize = 63;
/// Bytes that a payment puts before the data of a customer with bad credit.
const NOTE_BYTES: usize = 6 * 7;

impl<L: Latch> Database<L> {
    pub fn payment<M: Memory>(&self, memory: &mut M, payment: &Payment) -> Result<u64, AccessError> {
        let tables = &self.tables;
        let district = u64::from(payment.warehouse) * DISTRICTS + u64::from(payment.district);
        let home = u64::from(payment.customer_warehouse) * DISTRICTS + u64::from(payment.customer_district);
        let number = self.find(memory, home, payment.who)?;
        let customer_index = home * tables.shape.customers + number;

        let customer = tables.customers.checked(customer_index)?;
        let customer_pin = pin(memory, customer)?;
        let warehouse = tables.warehouses.at(u64::from(payment.warehouse));
        let warehouse_pin = pin(memory, warehouse)?;
        let row = tables.district(district);
        let row_pin = pin(memory, row)?;
        let mut history = History {
            date: payment.date,
            customer: number as u32,
            customer_warehouse: u32::from(payment.customer_warehouse),
            customer_district: u32::from(payment.customer_district),
            amount_cents: payment.amount_cents,
            data: [b' '; 24],
        };
        let warehouse_name: [u8; 10] = load(&warehouse_pin, warehouse.field(offset_of!(Warehouse, name)));
        let district_name: [u8; 10] = load(&row_pin, row.field(offset_of!(District, name)));
        history.data[..10].copy_from_slice(&warehouse_name);
        history.data[14..].copy_from_slice(&district_name);

        loop {
            let count_at = row.field::<u64>(offset_of!(District, history_count));
            let guess = tables.history(district, load(&row_pin, count_at));
            let history_pin = pin(memory, guess)?;
            let _section = memory.write_section()?;
            let _warehouse = self.warehouses.get(usize::from(payment.warehouse)).lock(memory)?;
            let _district = self.districts.get(district as usize).lock(memory)?;
            let count: u64 = load(&row_pin, count_at);
            let place = tables.history(district, count);
            if place.address().subpage() != guess.address().subpage() {
                continue;
            }
            let _customer = self.customers.of(customer_index).lock(memory)?;

            // Nothing below can fail.
            let amount = u64::from(payment.amount_cents);
            add(&warehouse_pin, warehouse.field(offset_of!(Warehouse, ytd_cents)), amount);
            add(&row_pin, row.field(offset_of!(District, ytd_cents)), amount);
            if count >= tables.shape.ring() {
                let oldest: History = load(&history_pin, place);
                let retired = row.field(offset_of!(District, history_retired_cents));
                add(&row_pin, retired, u64::from(oldest.amount_cents));
            }
            store(&row_pin, count_at, count.wrapping_add(1));
            store(&history_pin, place, history);
            let mut head: CustomerHead = load(&customer_pin, customer.cast());
            head.balance_cents = head.balance_cents.wrapping_sub(amount as i64);
            head.ytd_payment_cents = head.ytd_payment_cents.wrapping_add(amount);
            head.payment_count = head.payment_count.wrapping_add(1);
            store(&customer_pin, customer.cast(), head);
            if head.credit == *b"BC" {
                note(&customer_pin, customer, payment, number);
            }
            return Ok(head.balance_cents as u64);
        }
    }
}

/// Puts the payment before what is known of a customer with bad credit, and drops what no longer
/// fits (clause 2.5.2.2).
fn note<P: Pinned>(pinned: &P, customer: Ptr<Customer>, payment: &Payment, number: u64) {
    let at = customer.field::<[u64; DATA_WORDS]>(offset_of!(Customer, data));
    let old = load(pinned, at);
    let mut new = [0u64; DATA_WORDS];
    let bytes = new.as_mut_bytes();
    let fields = [
        number,
        u64::from(payment.customer_district),
        u64::from(payment.customer_warehouse),
        u64::from(payment.district),
        u64::from(payment.warehouse),
        u64::from(payment.amount_cents),
    ];
    bytes[..NOTE_BYTES].fill(b' ');
    for (field, into) in fields.into_iter().zip(bytes[..NOTE_BYTES].chunks_mut(7)) {
        decimal(field, &mut into[..6]);
    }
    bytes[NOTE_BYTES..500].copy_from_slice(&old.as_bytes()[..500 - NOTE_BYTES]);
    store(pinned, at, new);
}

/// Writes the last digits of a number, right-aligned.
fn decimal(mut number: u64, into: &mut [u8]) {
    for byte in into.iter_mut().rev() {
        *byte = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
