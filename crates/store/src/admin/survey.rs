//! How a pool stands: what its extents hold, which tokens there are, how long its flash will last.
//! Nothing is written.

use std::collections::BTreeSet;

use fulgurite_flash::{Flash, Layer};
use fulgurite_format::{OBJECT_ALIGNMENT, SUBPAGE_BYTES};

use super::files::OpenedPool;

/// A token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenKept {
    /// Its number.
    pub token: u64,
    /// It stays whatever comes.
    pub is_pinned: bool,
    /// There is no newer one.
    pub is_newest: bool,
    /// Milliseconds since 1970, by the clock of its maker, where that was known.
    pub made_ms: Option<u64>,
}

/// What an extent is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentUse {
    /// Superblock and anchors.
    Fixed,
    /// Journal and checkpoint.
    Metadata,
    /// Data of programs.
    Data,
    /// Nothing.
    Free,
}

/// What an extent holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurveyedExtent {
    /// What it is used for.
    pub used_for: ExtentUse,
    /// Flash pages that are needed; objects count as the flash pages that they would fill.
    pub live: u64,
    /// Of those, the ones that only tokens see.
    pub older: u64,
    /// Syncs since each of them was written, in sum.
    pub age: u64,
    /// How often it was filled.
    pub fills: u64,
}

/// All extents of a pool, and how many versions its pages have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    /// In their order.
    pub extents: Vec<SurveyedExtent>,
    /// Pages with N versions, from N = 1 on.
    pub versions: Vec<u64>,
    /// Flash pages of an extent that hold data.
    pub data_pages: u64,
}

impl OpenedPool {
    /// Bytes of data that were ever written and not deleted.
    pub fn written_bytes(&self) -> u64 {
        let layer = self.flash.layer();
        let written = (0..layer.geometry().subpages).filter(|subpage| layer.locate(*subpage).place().is_some()).count();
        written as u64 * SUBPAGE_BYTES as u64
    }
    /// The tokens that are kept, oldest first.
    pub fn tokens(&self) -> Vec<TokenKept> {
        let tokens = self.pool().tokens();
        let (newest, times) = (tokens.newest(), tokens.times());
        // A clock that said 0 was not set.
        let made = |token: u64| times.iter().find(|t| t.token == token).map(|t| t.clock).filter(|clock| *clock > 0);
        let token = |t: &fulgurite_format::KeptToken| TokenKept {
            token: t.token,
            is_pinned: t.pinned,
            is_newest: Some(t.token) == newest,
            made_ms: made(t.token),
        };
        tokens.as_slice().iter().map(token).collect()
    }
    /// DRAM in bytes that the pool takes as it is, and when all of it is written.
    pub fn dram_bytes(&self) -> (u64, u64) {
        let (info, most) = (self.pool().info(), self.flash.traits().dram_bytes);
        ((most - info.dram_bytes_max + info.dram_bytes) as u64, most as u64)
    }
    /// Seconds until the flash is worn out, when each extent bears `endurance` fills, and all go on
    /// being filled as often as since the pool was made. None when nothing was written, or the
    /// clock (`now`, seconds since 1970) went back.
    pub fn lifetime_left(&self, endurance: u32, now: u64) -> Option<u64> {
        let (info, uses) = (self.pool().info(), self.pool().uses());
        let extents = info.extents - uses.retired.len() as u32 - self.pool().geometry().fixed_extents();
        lifetime_left(info.fills.sum, extents.into(), endurance, now.saturating_sub(self.superblock.made))
    }
    /// What its extents hold.
    pub fn survey(&self) -> Survey {
        let (pool, g) = (self.pool(), self.pool().geometry());
        let free = SurveyedExtent { used_for: ExtentUse::Free, live: 0, older: 0, age: 0, fills: 0 };
        let mut extents = vec![free; g.extents as usize];
        let uses = pool.uses();
        for (all, used_for) in
            [(&uses.fixed, ExtentUse::Fixed), (&uses.metadata, ExtentUse::Metadata), (&uses.data, ExtentUse::Data)]
        {
            all.iter().for_each(|extent| extents[*extent as usize].used_for = used_for);
        }
        extents.iter_mut().zip(pool.fills()).for_each(|(extent, fills)| extent.fills = fills.into());
        let now = pool.tokens().newest().unwrap_or(0);
        let (mut versions, mut live) = (Vec::new(), Vec::new());
        let mut units = vec![0; extents.len()];
        for page in 0..g.pages() {
            live.clear();
            pool.live_pages(page, &mut live).expect("all tables are in DRAM here");
            let times: BTreeSet<u64> = live.iter().map(|l| l.time).collect();
            if !times.is_empty() {
                versions.resize(versions.len().max(times.len()), 0);
                versions[times.len() - 1] += 1;
            }
            for l in &live {
                let extent = &mut extents[g.extent_of(l.place) as usize];
                extent.live += u64::from(l.object.is_none());
                extent.older += u64::from(!l.current);
                extent.age += now.saturating_sub(l.time);
                if let Some(at) = l.object {
                    units[g.extent_of(l.place) as usize] += u64::from(at.units());
                }
            }
        }
        for (extent, units) in extents.iter_mut().zip(units) {
            extent.live += u64::div_ceil(units, (SUBPAGE_BYTES / OBJECT_ALIGNMENT) as u64);
        }
        Survey { extents, versions, data_pages: g.data_pages().into() }
    }
}

/// What is left of `extents` extents that bear `endurance` fills each, at the rate so far.
fn lifetime_left(fills: u64, extents: u64, endurance: u32, age: u64) -> Option<u64> {
    let left = (extents * u64::from(endurance)).saturating_sub(fills);
    let seconds = (u128::from(left) * u128::from(age)).checked_div(fills.into())?;
    (age > 0).then(|| seconds.try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes() {
        // A hundred extents filled ten times each in a day, of a thousand times that they bear.
        assert_eq!(lifetime_left(1000, 100, 1000, 86_400), Some(99 * 86_400));
        assert_eq!(lifetime_left(1000, 100, 5, 86_400), Some(0));
        assert_eq!((lifetime_left(0, 100, 5, 86_400), lifetime_left(7, 100, 5, 0)), (None, None));
        assert_eq!(lifetime_left(1, u64::from(u32::MAX), u32::MAX, u64::MAX), Some(u64::MAX));
    }
}
