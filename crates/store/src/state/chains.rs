//! What changes of the state report to the counts of chains ([`Chains`]), for reclaim by them.

use super::State;
use crate::chains::Chains;
use crate::objects::{PAGE_WEIGHT, weight};

impl State {
    /// Counts from now on how long chains would be as NVMM keeps them.
    pub fn count_chains(&mut self) {
        self.chains = Some(Chains::new(self.geometry.pages(), self.geometry.extents));
    }
    /// How long the chains are that an extent has parts of; 0 where that is not counted.
    pub fn chains_of(&self, extent: u32) -> u64 {
        self.chains.as_ref().map_or(0, |chains| chains.of(extent))
    }
    /// An extent is written from its beginning.
    pub fn extent_begun(&mut self, extent: u32) {
        if let Some(chains) = &mut self.chains {
            chains.begun(extent);
        }
    }

    /// A version is not needed any more that has a subpage there.
    pub(super) fn supersede(&mut self, page: u32, place: u32) {
        if let Some(chains) = &mut self.chains {
            let (at, its) = match self.objects.get(place) {
                Some(object) => (object.flash_page, weight(object.length.into())),
                None => (place, PAGE_WEIGHT),
            };
            chains.superseded(page, self.geometry.extent_of(at), its);
        }
        self.lose(place);
    }
    /// A page is written.
    pub(super) fn note_version(&mut self, page: u32) {
        if let Some(chains) = &mut self.chains {
            chains.added(page);
        }
    }
    /// Reclaim moves part of a page.
    pub(super) fn note_moved(&mut self, page: u32) {
        if let Some(chains) = &mut self.chains {
            chains.consolidated(page);
        }
    }
}
