//! TATP: the location register of a mobile network.
//!
//! It executes "update subscriber data" alone, as AstriFlash does (section V-A), on the full
//! schema, with the standard's non-uniform choice of subscribers replaced by Zipf keys, as in the
//! paper. A transaction that finds no row counts as executed.
//!
//! Invariants, under any interleaving and after any error: see `database`.

mod database;
mod index;
mod schema;

use fulgurite_memory::{AccessError, Latch, Memory, Region};

use crate::keys::Random;
use crate::{Params, Site, Workload, WorkloadError};
use database::Database;

/// "Update subscriber data", and nothing else.
#[derive(Debug)]
pub struct Tatp<L>(Database<L>);

/// UPDATE_SUBSCRIBER_DATA: one bit of a subscriber and a byte of one of its special facilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpdateRequest {
    pub(crate) weight: u64,
    pub(crate) s_id: u32,
    pub(crate) sf_type: u8,
    pub(crate) bit: bool,
    pub(crate) data_a: u8,
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

    fn build<M: Memory>(memory: &mut M, site: Site<'_>) -> Result<(), WorkloadError> {
        Database::<L>::build(Self::NAME, memory, site)
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
