//! TATP's tables, its index and its seven transactions.
//!
//! Invariants, under any interleaving and after any error:
//! * every subscriber's `updated` is the sum of `updated` of its special facilities, and
//!   `forwardings` the number of its rows in `Call_Forwarding`: transactions are whole;
//! * every call forwarding belongs to a special facility, starts at 0, 8 or 16 and ends 1 to 8
//!   hours later;
//! * what no transaction changes is as it was loaded, and the index finds every subscriber by its
//!   number;
//! * `updated` and `moved` are sums over the requests, so their hash does not depend on the order.
//!
//! A latch stands for all rows of a subscriber. Readers take none and validate. Writers pin what
//! they will change, then lock, then write, so that no task waits for flash while holding a latch
//! and nothing can fail once it is held.

use std::mem::offset_of;

use fulgurite_memory::{
    AccessError, Address, Array, Latch, LatchTable, Memory, Pinned, Plain, Ptr, Region, SUBPAGE_BYTES, ViewMut,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::UpdateRequest;
use super::index::{self, Index, IndexRoot};
use super::schema::{self, AccessInfo, CallForwarding, START_HOURS, STARTS, SpecialFacility, Subscriber, TYPES};
use crate::keys::{Random, ZipfKeys, mix};
use crate::{Params, WorkloadError, header};

/// Latches, shared by hash of the subscriber.
const LATCH_COUNT: usize = 4096;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    subscribers: u64,
    seed: u64,
    index: IndexRoot,
}

/// The tables and their latches.
#[derive(Debug)]
pub(super) struct Database<L> {
    seed: u64,
    tables: Tables,
    index: Index<L>,
    keys: ZipfKeys,
    latches: LatchTable<L>,
}

/// Where the tables are stored: one row, or one row of rows, for each subscriber.
#[derive(Clone, Copy, Debug)]
struct Tables {
    subscribers: Array<Subscriber>,
    access_info: Array<[AccessInfo; TYPES]>,
    facilities: Array<[SpecialFacility; TYPES]>,
    forwardings: Array<[[CallForwarding; STARTS]; TYPES]>,
}

impl Tables {
    /// Bytes that each table takes.
    fn bytes(count: u64) -> [u64; 4] {
        [
            Array::<Subscriber>::bytes_needed(count),
            Array::<[AccessInfo; TYPES]>::bytes_needed(count),
            Array::<[SpecialFacility; TYPES]>::bytes_needed(count),
            Array::<[[CallForwarding; STARTS]; TYPES]>::bytes_needed(count),
        ]
    }
    /// The part of the region that each table takes, and the rest.
    fn cut(region: Region, count: u64) -> Result<([Region; 4], Region), AccessError> {
        let requested = Self::bytes(count).iter().sum();
        if requested > region.bytes {
            return Err(AccessError::NoSpace { requested, free: region.bytes });
        }
        let mut rest = region;
        let regions = Self::bytes(count).map(|bytes| {
            let (cut, left) = rest.split(bytes);
            rest = left;
            cut
        });
        Ok((regions, rest))
    }
    fn open(
        [subscribers, access_info, facilities, forwardings]: [Region; 4],
        count: u64,
    ) -> Result<Tables, AccessError> {
        Ok(Tables {
            subscribers: Array::open(subscribers, count)?,
            access_info: Array::open(access_info, count)?,
            facilities: Array::open(facilities, count)?,
            forwardings: Array::open(forwardings, count)?,
        })
    }
    /// Writes all rows of subscribers `0..count`.
    fn fill<M: Memory>(
        &self,
        memory: &mut M,
        count: u64,
        seed: u64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), AccessError> {
        for s_id in 0..count {
            if s_id.is_multiple_of(header::PROGRESS_EVERY) {
                progress(s_id as f64 / count as f64);
            }
            let rows = schema::load(seed, s_id as u32);
            self.subscribers.set(memory, s_id, rows.subscriber)?;
            self.access_info.set(memory, s_id, rows.access_info)?;
            self.facilities.set(memory, s_id, rows.special_facility)?;
            self.forwardings.set(memory, s_id, rows.call_forwarding)?;
        }
        Ok(())
    }
}

/// A row of a table, or [`AccessError::OutOfRange`].
#[inline(always)]
fn row<T: Plain>(table: &Array<T>, s_id: u32) -> Result<Ptr<T>, AccessError> {
    table.ptr(u64::from(s_id)).ok_or(AccessError::OutOfRange { at: Address::NULL })
}

/// Adds to a sum that does not depend on the order of its parts.
#[inline(always)]
fn add(row: &ViewMut<'_>, offset: usize, weight: u64) {
    row.store(offset, row.load::<u64>(offset).wrapping_add(weight));
}

/// The bytes of `at` in the subpage that `pin` holds.
#[inline(always)]
fn pinned<P: Pinned, T>(pin: &P, at: Ptr<T>) -> ViewMut<'_> {
    pin.view_mut(at.address().subpage_offset(), size_of::<T>())
}

impl<L: Latch> Database<L> {
    pub(super) fn build<M: Memory>(
        workload: &'static str,
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        let (at, data) = header::split(workload, region, params.bytes, 32 * SUBPAGE_BYTES as u64)?;
        let bytes = |count| Tables::bytes(count).iter().sum::<u64>() + index::bytes::<L>(count);
        let count = header::most(data.bytes, bytes).min(u64::from(u32::MAX));
        let (regions, rest) = Tables::cut(data, count)?;
        let tables = Tables::open(regions, count)?;
        tables.fill(memory, count, params.seed, &mut |share| progress(0.7 * share))?;
        let index = Index::<L>::build(memory, rest, count, &mut |share| progress(0.7 + 0.3 * share))?;
        header::write(memory, workload, at, Header { subscribers: count, seed: params.seed, index })?;
        progress(1.0);
        Ok(())
    }

    pub(super) fn open<M: Memory>(
        workload: &'static str,
        memory: &mut M,
        region: Region,
        params: &Params,
    ) -> Result<Self, WorkloadError> {
        let Header { subscribers: count, seed, index } = header::read(memory, workload, region)?;
        let (regions, _) = Tables::cut(header::data(region), count)?;
        Ok(Database {
            seed,
            tables: Tables::open(regions, count)?,
            index: Index::open(memory, index)?,
            keys: ZipfKeys::new(workload, count, params.zipf)?,
            latches: LatchTable::new(LATCH_COUNT),
        })
    }

    #[inline(always)]
    pub(super) fn sample(&self, random: &mut Random) -> u32 {
        self.keys.sample(random) as u32
    }
    pub(super) fn dram_bytes(&self) -> u64 {
        self.latches.bytes() as u64 + self.index.dram_bytes()
    }

    #[inline(always)]
    fn latch(&self, s_id: u32) -> &L {
        self.latches.of(u64::from(s_id))
    }
    #[inline(always)]
    fn subscriber(&self, s_id: u32) -> Result<Ptr<Subscriber>, AccessError> {
        row(&self.tables.subscribers, s_id)
    }
    /// The row of a type from 1 to 4.
    #[inline(always)]
    fn facility(&self, s_id: u32, sf_type: u8) -> Result<Ptr<SpecialFacility>, AccessError> {
        Ok(row(&self.tables.facilities, s_id)?.cast::<SpecialFacility>().offset(u64::from(sf_type) - 1))
    }

    /// `UPDATE Subscriber SET bit_1 WHERE s_id; UPDATE Special_Facility SET data_a WHERE s_id,
    /// sf_type`. Changes nothing without such a facility, as for three in eight.
    #[inline]
    pub(super) fn update_subscriber_data<M: Memory>(
        &self,
        memory: &mut M,
        request: &UpdateRequest,
    ) -> Result<u64, AccessError> {
        let subscriber = self.subscriber(request.s_id)?;
        let facility = self.facility(request.s_id, request.sf_type)?;
        let facility_pin = memory.pin(facility.address())?;
        // Facilities come and go only with their subscriber.
        let place = facility.address().subpage_offset() + offset_of!(SpecialFacility, sf_type);
        if facility_pin.view(place, 1).load::<u8>(0) == 0 {
            return Ok(0);
        }
        let subscriber_pin = memory.pin(subscriber.address())?;
        let _section = memory.write_section()?;
        let _held = self.latch(request.s_id).lock(memory)?;
        let (subscriber, facility) = (pinned(&subscriber_pin, subscriber), pinned(&facility_pin, facility));
        let bits: u16 = subscriber.load(offset_of!(Subscriber, bits));
        subscriber.store(offset_of!(Subscriber, bits), bits & !1 | u16::from(request.bit));
        add(&subscriber, offset_of!(Subscriber, updated), request.weight);
        facility.store(offset_of!(SpecialFacility, data_a), request.data_a);
        add(&facility, offset_of!(SpecialFacility, updated), request.weight);
        Ok(1 + u64::from(bits))
    }

    /// Walks all tables and checks the invariants. Returns the hash of the sums.
    pub(super) fn check<M: Memory>(&self, workload: &'static str, memory: &mut M) -> Result<u64, WorkloadError> {
        let broken = |what| WorkloadError::Inconsistent { workload, what };
        let mut sum = 0u64;
        for s_id in 0..self.keys.count() as u32 {
            let loaded = schema::load(self.seed, s_id);
            let subscriber = self.tables.subscribers.get(memory, u64::from(s_id))?;
            let access_info = self.tables.access_info.get(memory, u64::from(s_id))?;
            let facilities = self.tables.facilities.get(memory, u64::from(s_id))?;
            let forwardings = self.tables.forwardings.get(memory, u64::from(s_id))?;
            check_subscriber(&loaded, &subscriber).map_err(broken)?;
            if access_info != loaded.access_info {
                return Err(broken(format!("the access info of subscriber {s_id} is not what was loaded")));
            }
            let updated = check_facilities(&loaded, &facilities).map_err(broken)?;
            if updated != subscriber.updated {
                return Err(broken(format!("half an update: subscriber {s_id} and its facilities differ")));
            }
            let count = check_forwardings(s_id, &facilities, &forwardings).map_err(broken)?;
            if count != subscriber.forwardings {
                let counted = subscriber.forwardings;
                return Err(broken(format!("subscriber {s_id} has {count} call forwardings and counted {counted}")));
            }
            sum = sum.wrapping_add(mix(mix(u64::from(s_id)) ^ subscriber.updated).wrapping_mul(3));
            sum = sum.wrapping_add(mix(mix(u64::from(s_id)).wrapping_add(subscriber.moved)));
        }
        self.index.check(workload, memory, self.keys.count())?;
        Ok(sum)
    }
}

fn check_subscriber(loaded: &schema::Loaded, now: &Subscriber) -> Result<(), String> {
    let was = &loaded.subscriber;
    let (bits, forwardings) = (was.bits & !1 | now.bits & 1, now.forwardings);
    let may_be = Subscriber {
        updated: now.updated,
        moved: now.moved,
        vlr_location: now.vlr_location,
        bits,
        forwardings,
        ..*was
    };
    if *now != may_be {
        return Err(format!("subscriber {} is {now:?}, loaded as {was:?}", was.s_id));
    }
    if now.moved == 0 && now.updated == 0 && (now.vlr_location, now.bits) != (was.vlr_location, was.bits) {
        return Err(format!("subscriber {} was changed by nobody", was.s_id));
    }
    Ok(())
}

/// Returns the sum of the facilities' updates.
fn check_facilities(loaded: &schema::Loaded, now: &[SpecialFacility; TYPES]) -> Result<u64, String> {
    let mut updated = 0u64;
    for (was, now) in loaded.special_facility.iter().zip(now) {
        let may_be = SpecialFacility { updated: now.updated, data_a: now.data_a, ..*was };
        let untouched = now.sf_type == 0 || now.updated == 0;
        if *now != may_be || untouched && now != was {
            return Err(format!("a special facility of {} is {now:?}, loaded as {was:?}", loaded.subscriber.s_id));
        }
        updated = updated.wrapping_add(now.updated);
    }
    Ok(updated)
}

/// Returns how many there are.
fn check_forwardings(
    s_id: u32,
    facilities: &[SpecialFacility; TYPES],
    rows: &[[CallForwarding; STARTS]; TYPES],
) -> Result<u16, String> {
    for (i, (facility, rows)) in facilities.iter().zip(rows).enumerate() {
        for (start, row) in rows.iter().enumerate() {
            let start_time = start as u8 * START_HOURS;
            let whole = (row.s_id, row.sf_type, row.start_time) == (s_id, i as u8 + 1, start_time)
                && (start_time + 1..=start_time + START_HOURS).contains(&row.end_time)
                && row.numberx.iter().all(u8::is_ascii_digit);
            if *row != CallForwarding::ABSENT && !whole {
                return Err(format!("call forwarding {} of subscriber {s_id} from {start_time}: {row:?}", i + 1));
            }
            if row.end_time != 0 && facility.sf_type == 0 {
                return Err(format!("subscriber {s_id} forwards calls by a facility {} that it has not", i + 1));
            }
        }
    }
    Ok(schema::count(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_memory::{NoLatch, PlainMemory};
    use fulgurite_sys::Backed;

    #[test]
    fn damage_is_found() {
        let mut m = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 1 << 19);
        let params = Params { bytes: 1 << 19, zipf: 0.9, seed: 3, ..Params::default() };
        Database::<NoLatch>::build("tatp", &mut m, region, &params, &mut |_| ()).unwrap();
        let tatp = Database::<NoLatch>::open("tatp", &mut m, region, &params).unwrap();
        tatp.check("tatp", &mut m).unwrap();

        // A subscriber with a facility and without another.
        let (s_id, facilities) = (0..100)
            .map(|s_id| (s_id, schema::load(3, s_id).special_facility))
            .find(|(_, f)| f[0].sf_type != 0 && f[1].sf_type == 0)
            .unwrap();
        let place = u64::from(s_id);
        let (tables, mut half) = (&tatp.tables, facilities);
        half[0].updated += 1;
        let mut other = facilities;
        other[0].data_b[0] ^= 1;
        for bad in [half, other] {
            tables.facilities.set(&mut m, place, bad).unwrap();
            assert!(matches!(tatp.check("tatp", &mut m), Err(WorkloadError::Inconsistent { .. })));
        }
        tables.facilities.set(&mut m, place, facilities).unwrap();

        let good = tables.subscribers.get(&mut m, place).unwrap();
        for bad in [
            Subscriber { forwardings: good.forwardings + 1, ..good },
            Subscriber { vlr_location: !good.vlr_location, ..good },
            Subscriber { msc_location: !good.msc_location, moved: 1, ..good },
            Subscriber { s_id: s_id + 1, ..good },
        ] {
            tables.subscribers.set(&mut m, place, bad).unwrap();
            assert!(matches!(tatp.check("tatp", &mut m), Err(WorkloadError::Inconsistent { .. })), "{bad:?}");
        }
        tables.subscribers.set(&mut m, place, good).unwrap();
        tatp.check("tatp", &mut m).unwrap();

        // A forwarding by a facility that is not there.
        let mut rows = tables.forwardings.get(&mut m, place).unwrap();
        rows[1][0] =
            CallForwarding { s_id, sf_type: 2, start_time: 0, end_time: 5, numberx: [b'7'; 15], unused: [0; 2] };
        tables.forwardings.set(&mut m, place, rows).unwrap();
        assert!(matches!(tatp.check("tatp", &mut m), Err(WorkloadError::Inconsistent { .. })));
    }
}
