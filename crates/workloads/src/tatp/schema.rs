//! The tables of TATP ("Telecom Application Transaction Processing Benchmark", version 1.0): their
//! rows as plain data, with the standard's fields and widths, and the rows that the standard's
//! rules make of a seed.
//!
//! Tables are clustered by their keys, which are dense: row (s_id, type) has a place of its own
//! whether it is present or not, so that a primary key is an index. `updated` is ours: with it
//! `check` sees lost and half-done transactions.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::keys::Random;

/// A subscriber's number: `s_id` in 15 decimal digits.
pub(super) type SubNbr = [u8; 15];

/// One row of `Subscriber`, a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Subscriber {
    /// Sum of the weights of the updates of subscriber data.
    pub updated: u64,
    pub s_id: u32,
    pub msc_location: u32,
    pub vlr_location: u32,
    /// `bit_1` to `bit_10`.
    pub bits: u16,
    /// `hex_1` to `hex_10`, two to a byte.
    pub hex: [u8; 5],
    /// `byte2_1` to `byte2_10`.
    pub byte2: [u8; 10],
    pub sub_nbr: SubNbr,
    pub unused: [u8; 12],
}

/// One row of `Access_Info`. Absent when `ai_type` is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct AccessInfo {
    pub s_id: u32,
    pub ai_type: u8,
    pub data1: u8,
    pub data2: u8,
    pub data3: [u8; 3],
    pub data4: [u8; 5],
    pub unused: [u8; 1],
}

/// One row of `Special_Facility`. Absent when `sf_type` is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct SpecialFacility {
    /// Sum of the weights of the updates.
    pub updated: u64,
    pub s_id: u32,
    pub sf_type: u8,
    pub is_active: u8,
    pub error_cntrl: u8,
    pub data_a: u8,
    pub data_b: [u8; 5],
    pub unused: [u8; 3],
}

/// One row of `Call_Forwarding`. Absent when `end_time` is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct CallForwarding {
    pub s_id: u32,
    pub sf_type: u8,
    pub start_time: u8,
    pub end_time: u8,
    pub numberx: [u8; 15],
    pub unused: [u8; 2],
}

const _: () = assert!(
    size_of::<Subscriber>() == 64
        && size_of::<AccessInfo>() == 16
        && size_of::<SpecialFacility>() == 24
        && size_of::<CallForwarding>() == 24
);

impl CallForwarding {
    const ABSENT: CallForwarding =
        CallForwarding { s_id: 0, sf_type: 0, start_time: 0, end_time: 0, numberx: [0; 15], unused: [0; 2] };
}

/// Types of access info and of special facility: 1 to 4.
pub(super) const TYPES: usize = 4;
/// Times at which a forwarding may start: 0, 8 and 16 o'clock.
pub(super) const STARTS: usize = 3;
/// Hours from one start to the next, and the longest forwarding.
const START_HOURS: u8 = 8;
/// Share of special facilities that are active, of 100.
const ACTIVE_PERCENT: u64 = 85;

pub(super) fn sub_nbr(s_id: u32) -> SubNbr {
    let mut rest = s_id;
    let mut digits = [b'0'; 15];
    for digit in digits.iter_mut().rev().take(10) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// `N` random bytes.
fn bytes<const N: usize>(random: &mut Random) -> [u8; N] {
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// `N` upper-case letters.
fn letters<const N: usize>(random: &mut Random) -> [u8; N] {
    bytes(random).map(|byte| b'A' + ((u16::from(byte) * 26) >> 8) as u8)
}

fn digits(random: &mut Random) -> [u8; 15] {
    let mut number = random.below(1_000_000_000_000_000);
    std::array::from_fn(|_| {
        let digit = b'0' + (number % 10) as u8;
        number /= 10;
        digit
    })
}

/// Which of the types 1 to 4 a subscriber has: one to four of them, each number as likely, as a
/// mask of bits 0 to 3.
fn types(random: &mut Random) -> u8 {
    let count = random.between(1, TYPES as u64) as u32;
    loop {
        // Most masks of `count` bits are found in two or three tries, each as likely as the others.
        let mask = random.below(1 << TYPES) as u8;
        if mask.count_ones() == count {
            return mask;
        }
    }
}

/// All rows of one subscriber as the load makes them: a function of seed and `s_id`.
pub(super) struct Loaded {
    pub subscriber: Subscriber,
    pub access_info: [AccessInfo; TYPES],
    pub special_facility: [SpecialFacility; TYPES],
    pub call_forwarding: [[CallForwarding; STARTS]; TYPES],
}

/// Which table a stream of random numbers is for, so that each can be made alone.
#[derive(Clone, Copy)]
enum Stream {
    Subscriber,
    AccessInfo,
    Facility,
}

fn random(seed: u64, s_id: u32, stream: Stream) -> Random {
    Random::new(seed ^ 0x7A79_0000, u64::from(s_id) * 4 + stream as u64)
}

fn subscriber(seed: u64, s_id: u32) -> Subscriber {
    let random = &mut random(seed, s_id, Stream::Subscriber);
    Subscriber {
        updated: 0,
        s_id,
        msc_location: random.between(1, u64::from(u32::MAX)) as u32,
        vlr_location: random.between(1, u64::from(u32::MAX)) as u32,
        bits: random.below(1 << 10) as u16,
        hex: bytes(random),
        byte2: bytes(random),
        sub_nbr: sub_nbr(s_id),
        unused: [0; 12],
    }
}

fn access_info(seed: u64, s_id: u32) -> [AccessInfo; TYPES] {
    let random = &mut random(seed, s_id, Stream::AccessInfo);
    let present = types(random);
    std::array::from_fn(|i| {
        let [data1, data2] = bytes(random);
        let row = AccessInfo {
            s_id,
            ai_type: i as u8 + 1,
            data1,
            data2,
            data3: letters(random),
            data4: letters(random),
            unused: [0],
        };
        let absent = AccessInfo { s_id: 0, ai_type: 0, data1: 0, data2: 0, data3: [0; 3], data4: [0; 5], unused: [0] };
        if present >> i & 1 != 0 { row } else { absent }
    })
}

/// The special facilities and their call forwardings.
fn facilities(seed: u64, s_id: u32) -> ([SpecialFacility; TYPES], [[CallForwarding; STARTS]; TYPES]) {
    let random = &mut random(seed, s_id, Stream::Facility);
    let present = types(random);
    let mut forwardings = [[CallForwarding::ABSENT; STARTS]; TYPES];
    let facilities = std::array::from_fn(|i| {
        if present >> i & 1 == 0 {
            let (sf_type, is_active, error_cntrl, data_a) = (0, 0, 0, 0);
            let (data_b, unused) = ([0; 5], [0; 3]);
            return SpecialFacility { updated: 0, s_id: 0, sf_type, is_active, error_cntrl, data_a, data_b, unused };
        }
        let sf_type = i as u8 + 1;
        // None to three forwardings, each number as likely.
        let mut count = random.below(STARTS as u64 + 1) as usize;
        for (start, forwarding) in forwardings[i].iter_mut().enumerate() {
            // Choose `count` of the starts that are left.
            if random.below((STARTS - start) as u64) < count as u64 {
                count -= 1;
                let start_time = start as u8 * START_HOURS;
                let end_time = start_time + random.between(1, u64::from(START_HOURS)) as u8;
                let numberx = digits(random);
                *forwarding = CallForwarding { s_id, sf_type, start_time, end_time, numberx, unused: [0; 2] };
            }
        }
        let is_active = u8::from(random.percent(ACTIVE_PERCENT));
        let ([error_cntrl, data_a], data_b) = (bytes(random), letters(random));
        SpecialFacility { updated: 0, s_id, sf_type, is_active, error_cntrl, data_a, data_b, unused: [0; 3] }
    });
    (facilities, forwardings)
}

/// All rows of `s_id`.
pub(super) fn load(seed: u64, s_id: u32) -> Loaded {
    let (special_facility, call_forwarding) = facilities(seed, s_id);
    let (subscriber, access_info) = (subscriber(seed, s_id), access_info(seed, s_id));
    Loaded { subscriber, access_info, special_facility, call_forwarding }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_standards() {
        assert_eq!(&sub_nbr(1_234_567), b"000000001234567");
        assert_eq!(&sub_nbr(u32::MAX), b"000004294967295");
        let n = 20_000u32;
        let (mut info, mut facility, mut active, mut forwarding) = (0, 0, 0, 0);
        for s_id in 0..n {
            let rows = load(3, s_id);
            info += rows.access_info.iter().filter(|r| r.ai_type != 0).count();
            facility += rows.special_facility.iter().filter(|r| r.sf_type != 0).count();
            active += rows.special_facility.iter().filter(|r| r.is_active != 0).count();
            forwarding += rows.call_forwarding.iter().flatten().filter(|row| row.end_time != 0).count();
        }
        // 2.5 of each kind to a subscriber, 85% of them active, 1.5 forwardings to a facility.
        // Within 3%.
        for (got, expected) in [
            (info as f64 / f64::from(n), 2.5),
            (facility as f64 / f64::from(n), 2.5),
            (active as f64 / facility as f64, 0.85),
            (forwarding as f64 / facility as f64, 1.5),
        ] {
            assert!((got / expected - 1.0).abs() < 0.03, "{got} for {expected}");
        }
    }
}
