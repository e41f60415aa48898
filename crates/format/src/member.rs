//! A pool that spans several files or devices: what each of them says of itself and of the others.
//!
//! The first member begins as a pool of one file does. The page of a member follows its superblock,
//! at its flash pages 2 and 3. The others have it there too, and nothing else in their first
//! extent. Both copies are written in turns, never at once.

use crate::metadata::{Malformed, PAYLOAD_BYTES, PoolId, Reader};

/// The most files or devices that a pool may span.
pub const MEMBERS_MAX: usize = 16;
/// The most bands of a pool: one, and one more for each time it has grown.
pub const BANDS_MAX: usize = 64;
/// The flash pages of a member that hold its page, twice.
pub const MEMBER_PAGES: [u32; 2] = [2, 3];

/// One of the files or devices of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberName {
    /// Its identity: 16 random bytes.
    pub id: PoolId,
    /// Where it was when this was written: an absolute path.
    pub path: Vec<u8>,
}

/// Extents that are stored in turns on some of the members, one on each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Band {
    /// Extents on each of its members.
    pub rows: u32,
    /// Its members, a bit each.
    pub members: u32,
}

/// What is stored at [`MEMBER_PAGES`] of each member. The number of the page is the generation.
///
/// ```text
/// offset  bytes
///      0      4  which member this is, from 0 on
///      4      4  flash pages in an extent
///      8      4  members, m
///     12      4  bands, b
///     16    8 b  each: extents on each of its members 4, its members 4 (a bit each)
///              m  each: identity 16, bytes of its path 2, its path
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which member this is.
    pub position: u32,
    /// Flash pages in an extent.
    pub extent_pages: u32,
    /// All members, this one included.
    pub members: Vec<MemberName>,
    /// Where the pool's extents are stored, in order.
    pub bands: Vec<Band>,
}

impl Member {
    /// Appends the payload. Returns false when it does not fit: the paths are too long.
    #[must_use]
    pub fn encode(&self, into: &mut Vec<u8>) -> bool {
        let before = into.len();
        for word in [self.position, self.extent_pages, self.members.len() as u32, self.bands.len() as u32] {
            into.extend_from_slice(&word.to_le_bytes());
        }
        for band in &self.bands {
            into.extend_from_slice(&band.rows.to_le_bytes());
            into.extend_from_slice(&band.members.to_le_bytes());
        }
        for member in &self.members {
            into.extend_from_slice(&member.id.0);
            into.extend_from_slice(&(member.path.len().min(usize::from(u16::MAX)) as u16).to_le_bytes());
            into.extend_from_slice(&member.path);
        }
        into.len() - before <= PAYLOAD_BYTES
    }
    /// Reads a payload.
    ///
    /// # Errors
    /// When it is too short, or says what cannot be.
    pub fn decode(payload: &[u8]) -> Result<Member, Malformed> {
        let mut r = Reader(payload);
        let (position, extent_pages) = (r.u32()?, r.u32()?);
        let (members, bands) = (r.u32()? as usize, r.u32()? as usize);
        if !(1..=MEMBERS_MAX).contains(&members) || bands > BANDS_MAX || position as usize >= members {
            return Err(Malformed);
        }
        if extent_pages <= MEMBER_PAGES[1] {
            return Err(Malformed);
        }
        let band = |r: &mut Reader<'_>| {
            let band = Band { rows: r.u32()?, members: r.u32()? };
            let all = (1u32 << members) - 1;
            if band.members == 0 || band.members & !all != 0 { Err(Malformed) } else { Ok(band) }
        };
        let bands = (0..bands).map(|_| band(&mut r)).collect::<Result<Vec<Band>, Malformed>>()?;
        let extents: u64 = bands.iter().map(|b| u64::from(b.rows) * u64::from(b.members.count_ones())).sum();
        if extents * u64::from(extent_pages) > u64::from(u32::MAX) {
            return Err(Malformed);
        }
        let member = |r: &mut Reader<'_>| {
            let id = PoolId(r.bytes::<16>()?);
            let bytes = usize::from(u16::from_le_bytes(r.bytes::<2>()?));
            let (path, rest) = r.0.split_at_checked(bytes).ok_or(Malformed)?;
            r.0 = rest;
            Ok(MemberName { id, path: path.to_vec() })
        };
        let members = (0..members).map(|_| member(&mut r)).collect::<Result<Vec<MemberName>, Malformed>>()?;
        Ok(Member { position, extent_pages, members, bands })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(paths: usize) -> Member {
        let name = |n: u8| MemberName { id: PoolId([n; 16]), path: vec![b'x'; paths] };
        Member {
            position: 1,
            extent_pages: 8,
            members: (0..3).map(name).collect(),
            bands: vec![Band { rows: 7, members: 0b111 }, Band { rows: 2, members: 0b101 }],
        }
    }
    #[test]
    fn members_come_back() {
        let mut bytes = Vec::new();
        assert!(member(20).encode(&mut bytes));
        assert_eq!(Member::decode(&bytes), Ok(member(20)));
        let most = Member { bands: vec![Band { rows: 1, members: 1 }; BANDS_MAX], ..member(1) };
        let mut full = Vec::new();
        assert!(most.encode(&mut full));
        assert_eq!(Member::decode(&full), Ok(most), "as many bands as there may be");
        for cut in 0..bytes.len() {
            assert_eq!(Member::decode(&bytes[..cut]), Err(Malformed), "{cut} bytes");
        }
        assert!(!member(2000).encode(&mut Vec::new()), "paths that do not fit");
        assert!(member(20).encode(&mut vec![0; PAYLOAD_BYTES]), "behind something else");
        // As many flash pages as there may be: 257 x 16711935 are 2^32 - 1.
        let largest = Member { extent_pages: 257, bands: vec![Band { rows: 16_711_935, members: 1 }], ..member(1) };
        bytes.clear();
        assert!(largest.encode(&mut bytes));
        assert_eq!(Member::decode(&bytes), Ok(largest));
    }
    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [
            Member { position: 3, ..member(1) },
            Member { extent_pages: 3, ..member(1) },
            Member { extent_pages: u32::MAX, ..member(1) },
            Member { bands: vec![Band { rows: 1, members: 8 }], ..member(1) },
            Member { bands: vec![Band { rows: 1, members: 0 }], ..member(1) },
            Member { bands: vec![Band { rows: 1, members: 1 }; BANDS_MAX + 1], ..member(1) },
            Member { members: Vec::new(), ..member(1) },
            Member { bands: vec![Band { rows: u32::MAX / 8 - 100, members: 0b111 }], ..member(1) },
            Member { extent_pages: 257, bands: vec![Band { rows: 16_711_936, members: 1 }], ..member(1) },
        ] {
            let mut bytes = Vec::new();
            assert!(wrong.encode(&mut bytes));
            assert_eq!(Member::decode(&bytes), Err(Malformed), "{wrong:?}");
        }
    }
}
