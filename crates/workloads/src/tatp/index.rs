//! The unique index on `Subscriber.sub_nbr`.
//!
//! Numbers are given out in order and padded with zeros, so the index is computed; `check` still compares each row's.

use super::schema::SubNbr;

/// The subscriber with this number, if there are more than that many.
#[inline]
pub(super) fn find(sub_nbr: &SubNbr, subscribers: u64) -> Option<u32> {
    let mut s_id = 0u64;
    for &digit in sub_nbr {
        s_id = s_id * 10 + u64::from(digit.wrapping_sub(b'0'));
    }
    (s_id < subscribers).then_some(s_id as u32)
}
