//! TATP's tables, its index and its transaction.
//!
//! Invariants, under any interleaving and after any error:
//! * every subscriber's `updated` is the sum of `updated` of its special facilities: transactions
//!   are whole;
//! * what no transaction changes is as it was loaded, and the index finds every subscriber by its
//!   number;
//! * `updated` is a sum over the requests, so its hash does not depend on the order.
//!
//! A latch stands for all rows of a subscriber. Readers take none and validate. Writers pin what
//! they will change, then lock, then write, so that no task waits for flash while holding a latch
//! and nothing can fail once it is held.

use std::mem::offset_of;

use fulgurite_memory::{AccessError, Array, Latch, LatchTable, Memory, Ptr, Region, SUBPAGE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::UpdateRequest;
use super::index::{self, Index};
use super::schema::{self, AccessInfo, CallForwarding, STARTS, SpecialFacility, Subscriber, TYPES};
use crate::hashed::HashedRoot;
use crate::keys::{Random, ZipfKeys, mix};
use crate::rows::{Rows, add, load, pin, store};
use crate::{Params, Site, WorkloadError, header};

/// Latches, shared by hash of the subscriber.
const LATCH_COUNT: usize = 4096;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    subscribers: u64,
    seed: u64,
    index: HashedRoot,
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
    /// Bytes that the tables take.
    fn bytes(count: u64) -> u64 {
        Array::<Subscriber>::bytes_needed(count)
            + Array::<[AccessInfo; TYPES]>::bytes_needed(count)
            + Array::<[SpecialFacility; TYPES]>::bytes_needed(count)
            + Array::<[[CallForwarding; STARTS]; TYPES]>::bytes_needed(count)
    }
    /// The tables at the front of a region, which are cut off it.
    fn take(rest: &mut Region, count: u64) -> Result<Tables, AccessError> {
        let requested = Self::bytes(count);
        if requested > rest.bytes {
            return Err(AccessError::NoSpace { requested, free: rest.bytes });
        }
        Ok(Tables {
            subscribers: Array::take(rest, count),
            access_info: Array::take(rest, count),
            facilities: Array::take(rest, count),
            forwardings: Array::take(rest, count),
        })
    }
    /// Writes all rows of subscribers `0..count`.
    fn fill<M: Memory>(&self, memory: &mut M, count: u64, site: &mut Site<'_>) -> Result<(), AccessError> {
        for s_id in 0..count {
            site.tick(s_id, count);
            let rows = schema::load(site.params.seed, s_id as u32);
            self.subscribers.set(memory, s_id, rows.subscriber)?;
            self.access_info.set(memory, s_id, rows.access_info)?;
            self.facilities.set(memory, s_id, rows.special_facility)?;
            self.forwardings.set(memory, s_id, rows.call_forwarding)?;
        }
        Ok(())
    }
}

impl<L: Latch> Database<L> {
    pub(super) fn build<M: Memory>(
        workload: &'static str,
        memory: &mut M,
        mut site: Site<'_>,
    ) -> Result<(), WorkloadError> {
        let (at, mut rest) = site.split(workload, 32 * SUBPAGE_BYTES as u64)?;
        let count = header::most(rest.bytes, |count| Tables::bytes(count) + Index::<L>::bytes(count));
        let (count, seed) = (count.min(u64::from(u32::MAX)), site.params.seed);
        let tables = Tables::take(&mut rest, count)?;
        site.part(0.0, 0.7);
        tables.fill(memory, count, &mut site)?;
        site.part(0.7, 1.0);
        let index = index::build::<L, M>(memory, rest, count, &mut site)?;
        site.finish(memory, workload, at, Header { subscribers: count, seed, index })
    }

    pub(super) fn open<M: Memory>(
        workload: &'static str,
        memory: &mut M,
        region: Region,
        params: &Params,
    ) -> Result<Self, WorkloadError> {
        let Header { subscribers: count, seed, index } = header::read(memory, workload, region)?;
        Ok(Database {
            seed,
            tables: Tables::take(&mut header::data(region), count)?,
            index: Index::open(memory, index, index::LATCH_COUNT)?,
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
        self.tables.subscribers.checked(u64::from(s_id))
    }
    /// The row of a type from 1 to 4.
    #[inline(always)]
    fn facility(&self, s_id: u32, sf_type: u8) -> Result<Ptr<SpecialFacility>, AccessError> {
        Ok(self.tables.facilities.checked(u64::from(s_id))?.cast::<SpecialFacility>().offset(u64::from(sf_type) - 1))
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
        let facility_pin = pin(memory, facility)?;
        // Facilities come and go only with their subscriber.
        if load::<_, u8>(&facility_pin, facility.field(offset_of!(SpecialFacility, sf_type))) == 0 {
            return Ok(0);
        }
        let subscriber_pin = pin(memory, subscriber)?;
        let _section = memory.write_section()?;
        let _held = self.latch(request.s_id).lock(memory)?;
        let bits_at = subscriber.field(offset_of!(Subscriber, bits));
        let bits: u16 = load(&subscriber_pin, bits_at);
        store(&subscriber_pin, bits_at, bits & !1 | u16::from(request.bit));
        add(&subscriber_pin, subscriber.field(offset_of!(Subscriber, updated)), request.weight);
        store(&facility_pin, facility.field(offset_of!(SpecialFacility, data_a)), request.data_a);
        add(&facility_pin, facility.field(offset_of!(SpecialFacility, updated)), request.weight);
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
            check_subscriber(&loaded.subscriber, &subscriber).map_err(broken)?;
            if (access_info, forwardings) != (loaded.access_info, loaded.call_forwarding) {
                let what = format!("the access info or a call forwarding of subscriber {s_id} is not what was loaded");
                return Err(broken(what));
            }
            let updated = check_facilities(&loaded, &facilities).map_err(broken)?;
            if updated != subscriber.updated {
                return Err(broken(format!("half an update: subscriber {s_id} and its facilities differ")));
            }
            sum = sum.wrapping_add(mix(mix(u64::from(s_id)) ^ subscriber.updated));
        }
        index::check(&self.index, workload, memory, self.keys.count())?;
        Ok(sum)
    }
}

fn check_subscriber(was: &Subscriber, now: &Subscriber) -> Result<(), String> {
    let bits = if now.updated == 0 { was.bits } else { was.bits & !1 | now.bits & 1 };
    if *now != (Subscriber { updated: now.updated, bits, ..*was }) {
        return Err(format!("subscriber {} is {now:?}, loaded as {was:?}", was.s_id));
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

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_memory::{Address, NoLatch, PlainMemory};
    use fulgurite_sys::Backed;

    #[test]
    fn damage_is_found() {
        let mut m = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 1 << 19);
        let params = Params { bytes: 1 << 19, zipf: 0.9, seed: 3, ..Params::default() };
        Database::<NoLatch>::build("tatp", &mut m, Site::new(region, &params, &mut |_| ())).unwrap();
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
            Subscriber { bits: !good.bits, ..good },
            Subscriber { vlr_location: !good.vlr_location, ..good },
            Subscriber { msc_location: !good.msc_location, updated: 1, ..good },
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
