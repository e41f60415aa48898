//! TATP: the location register of a mobile network.
//!
//! `tatp` executes "update subscriber data" alone, as AstriFlash does (section V-A); `tatp-mix` the
//! standard's seven transactions with the standard's shares. Both run on the full schema, with the
//! standard's non-uniform choice of subscribers replaced by Zipf keys, as in the paper. The
//! standard's transactions that find no row count as executed.
//!
//! Invariants, under any interleaving and after any error: see `database`.

mod database;
mod index;
mod schema;

use fulgurite_memory::{AccessError, Latch, Memory, Region};

use crate::keys::Random;
use crate::{Params, Workload, WorkloadError};
use database::Database;
use schema::{CallForwarding, START_HOURS, STARTS, SubNbr, TYPES, digits, sub_nbr};

/// "Update subscriber data", and nothing else.
#[derive(Debug)]
pub struct Tatp<L>(Database<L>);

/// The standard's mix of seven transactions.
#[derive(Debug)]
pub struct TatpMix<L>(Database<L>);

/// UPDATE_SUBSCRIBER_DATA: one bit of a subscriber and a byte of one of its special facilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpdateRequest {
    pub(crate) weight: u64,
    pub(crate) s_id: u32,
    pub(crate) sf_type: u8,
    pub(crate) bit: bool,
    pub(crate) data_a: u8,
}

/// One transaction of the mix, with the parameters that a client would send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TatpRequest(Transaction);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transaction {
    GetSubscriberData { s_id: u32 },
    GetNewDestination { s_id: u32, sf_type: u8, start_time: u8, end_time: u8 },
    GetAccessData { s_id: u32, ai_type: u8 },
    UpdateSubscriberData(UpdateRequest),
    UpdateLocation { sub_nbr: SubNbr, vlr_location: u32, weight: u64 },
    InsertCallForwarding { sub_nbr: SubNbr, sf_type: u8, start_time: u8, end_time: u8, numberx: [u8; 15] },
    DeleteCallForwarding { sub_nbr: SubNbr, sf_type: u8, start_time: u8 },
}

/// One of the four types of access info and special facility.
fn any_type(random: &mut Random) -> u8 {
    random.between(1, TYPES as u64) as u8
}
/// One of the three start times.
fn any_start(random: &mut Random) -> u8 {
    random.below(STARTS as u64) as u8 * START_HOURS
}
fn update(random: &mut Random, s_id: u32) -> UpdateRequest {
    let bits = random.next();
    UpdateRequest {
        weight: random.next(),
        s_id,
        sf_type: (bits & 3) as u8 + 1,
        bit: bits & 4 != 0,
        data_a: (bits >> 8) as u8,
    }
}

impl<L: Latch> Workload for Tatp<L> {
    const NAME: &'static str = "tatp";
    const PINS: u32 = 2;
    type Request = UpdateRequest;

    fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        Database::<L>::build(Self::NAME, memory, region, params, progress)
    }
    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        Ok(Tatp(Database::open(Self::NAME, memory, region, params)?))
    }
    #[inline]
    fn request(&self, seed: u64, number: u64) -> UpdateRequest {
        let mut random = Random::new(seed, number);
        let s_id = self.0.sample(&mut random);
        update(&mut random, s_id)
    }
    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &UpdateRequest) -> Result<u64, AccessError> {
        self.0.update_subscriber_data(memory, request)
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        self.0.check(Self::NAME, memory)
    }
    fn dram_bytes(&self) -> u64 {
        self.0.dram_bytes()
    }
}

impl<L: Latch> Workload for TatpMix<L> {
    const NAME: &'static str = "tatp-mix";
    const PINS: u32 = 2;
    type Request = TatpRequest;

    fn build<M: Memory>(
        memory: &mut M,
        region: Region,
        params: &Params,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), WorkloadError> {
        Database::<L>::build(Self::NAME, memory, region, params, progress)
    }
    fn open<M: Memory>(memory: &mut M, region: Region, params: &Params) -> Result<Self, WorkloadError> {
        Ok(TatpMix(Database::open(Self::NAME, memory, region, params)?))
    }
    #[inline]
    fn request(&self, seed: u64, number: u64) -> TatpRequest {
        let random = &mut Random::new(seed, number);
        let s_id = self.0.sample(random);
        // Shares of the standard: 80% of the transactions only read.
        TatpRequest(match random.below(100) {
            0..35 => Transaction::GetSubscriberData { s_id },
            35..45 => {
                let (sf_type, start_time) = (any_type(random), any_start(random));
                let end_time = random.between(1, 24) as u8;
                Transaction::GetNewDestination { s_id, sf_type, start_time, end_time }
            }
            45..80 => Transaction::GetAccessData { s_id, ai_type: any_type(random) },
            80..82 => Transaction::UpdateSubscriberData(update(random, s_id)),
            82..96 => Transaction::UpdateLocation {
                sub_nbr: sub_nbr(s_id),
                vlr_location: random.between(1, u64::from(u32::MAX)) as u32,
                weight: random.next(),
            },
            96..98 => {
                let (sf_type, start_time) = (any_type(random), any_start(random));
                let end_time = start_time + random.between(1, u64::from(START_HOURS)) as u8;
                let (sub_nbr, numberx) = (sub_nbr(s_id), digits(random));
                Transaction::InsertCallForwarding { sub_nbr, sf_type, start_time, end_time, numberx }
            }
            _ => {
                let (sf_type, start_time) = (any_type(random), any_start(random));
                Transaction::DeleteCallForwarding { sub_nbr: sub_nbr(s_id), sf_type, start_time }
            }
        })
    }
    #[inline]
    fn execute<M: Memory>(&self, memory: &mut M, request: &TatpRequest) -> Result<u64, AccessError> {
        match &request.0 {
            &Transaction::GetSubscriberData { s_id } => self.0.get_subscriber_data(memory, s_id),
            &Transaction::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                self.0.get_new_destination(memory, s_id, sf_type, start_time, end_time)
            }
            &Transaction::GetAccessData { s_id, ai_type } => self.0.get_access_data(memory, s_id, ai_type),
            Transaction::UpdateSubscriberData(request) => self.0.update_subscriber_data(memory, request),
            Transaction::UpdateLocation { sub_nbr, vlr_location, weight } => {
                self.0.update_location(memory, sub_nbr, *vlr_location, *weight)
            }
            &Transaction::InsertCallForwarding { ref sub_nbr, sf_type, start_time, end_time, numberx } => {
                let row = CallForwarding { s_id: 0, sf_type, start_time, end_time, numberx, unused: [0; 2] };
                self.0.insert_call_forwarding(memory, sub_nbr, row)
            }
            &Transaction::DeleteCallForwarding { ref sub_nbr, sf_type, start_time } => {
                self.0.delete_call_forwarding(memory, sub_nbr, sf_type, start_time)
            }
        }
    }
    /// The recorded accesses do not change.
    #[inline]
    fn answer_is_fixed(&self, request: &TatpRequest) -> bool {
        matches!(request.0, Transaction::GetAccessData { .. })
    }
    fn check<M: Memory>(&self, memory: &mut M) -> Result<u64, WorkloadError> {
        self.0.check(Self::NAME, memory)
    }
    fn dram_bytes(&self) -> u64 {
        self.0.dram_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_memory::{Address, NoLatch, PlainMemory};
    use fulgurite_sys::Backed;

    #[test]
    fn the_mix_is_the_standards() {
        let mut memory = PlainMemory::new(Backed::BasePages).unwrap();
        let region = Region::new(Address::from_linear(0), 1 << 20);
        let params = Params { bytes: 1 << 20, zipf: 0.9, seed: 4, input: None };
        TatpMix::<NoLatch>::build(&mut memory, region, &params, &mut |_| ()).unwrap();
        let tatp = TatpMix::<NoLatch>::open(&mut memory, region, &params).unwrap();
        let (mut counts, mut found, total) = ([0u64; 7], [0u64; 7], 100_000);
        for number in 0..total {
            let request = tatp.request(4, number);
            let kind = match request.0 {
                Transaction::GetSubscriberData { .. } => 0,
                Transaction::GetNewDestination { .. } => 1,
                Transaction::GetAccessData { .. } => 2,
                Transaction::UpdateSubscriberData(_) => 3,
                Transaction::UpdateLocation { .. } => 4,
                Transaction::InsertCallForwarding { .. } => 5,
                Transaction::DeleteCallForwarding { .. } => 6,
            };
            counts[kind] += 1;
            found[kind] += u64::from(tatp.execute(&mut memory, &request).unwrap() != 0);
        }
        println!("{counts:?}, of which found something {found:?}");
        tatp.check(&mut memory).unwrap();
        // The standard's shares, and how many find their row: 2.5 of 4 types are there, 85% of the
        // facilities active, and half of the forwardings present, for inserts and deletes balance.
        // Of the times asked for, 30% are in one.
        let expected = [(35, 100.0), (10, 16.0), (35, 62.5), (2, 62.5), (14, 100.0), (2, 31.25), (2, 31.25)];
        for (kind, (share, success)) in expected.into_iter().enumerate() {
            let got = counts[kind] as f64 * 100.0 / total as f64;
            assert!((got - f64::from(share)).abs() < 0.5, "transaction {kind}: {got}% for {share}%");
            let got = found[kind] as f64 * 100.0 / counts[kind] as f64;
            assert!((got - success).abs() < 8.0, "transaction {kind}: {got}% succeed for {success}%");
        }
    }
}
