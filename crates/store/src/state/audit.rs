//! The state computed by other means, to be compared with the state that is kept.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use fulgurite_format::History;

use super::{N, State};
use crate::objects::Needed;

impl State {
    /// Computes by other means what the state should be, for tests and `check`. Returns sentences
    /// about what is wrong. What is on flash alone is counted, and not read.
    pub fn audit(&self) -> Vec<String> {
        let mut wrong = self.map.audit();
        let mut live = vec![0u32; self.live.len()];
        let (mut needed, mut objects) = (vec![Needed::default(); self.live.len()], 0);
        let mut owner: HashMap<u32, u32, FixedState> = HashMap::default();
        for page in (0..self.geometry.pages()).filter(|page| !self.is_out(*page)) {
            let mut newest: [Option<u32>; N as usize] = [None; N as usize];
            let (mut before, mut deleted) = (u64::MAX, false);
            for version in self.versions_of(page) {
                if version.time > before {
                    wrong.push(format!("page {page}: a version is newer than the one before it"));
                }
                before = version.time;
                for h in version.held() {
                    if let Some(at) = self.objects.get(h.place) {
                        needed[self.geometry.extent_of(at.flash_page) as usize].add(at);
                        objects += 1;
                    } else if h.place >= self.geometry.flash_pages() {
                        wrong.push(format!("page {page}: flash page {} does not exist", h.place));
                        continue;
                    } else {
                        live[self.geometry.extent_of(h.place) as usize] += 1;
                    }
                    if owner.insert(h.place, page).is_some() {
                        wrong.push(format!("page {page}: flash page {} belongs to another version too", h.place));
                    }
                    if self.checksum(page, h).is_none() {
                        wrong.push(format!("page {page}: no checksum of flash page {}", h.place));
                    }
                    if !deleted {
                        newest[h.subpage as usize].get_or_insert(h.place);
                    }
                }
                deleted |= version.deletes();
            }
            let (mut short, mut long, versions) = (Vec::new(), Vec::new(), self.history_of(page));
            if self.append_history(page, usize::MAX, &mut Vec::new(), &mut short) {
                if !versions.is_empty() {
                    History { page, versions }.encode(&mut long);
                }
                if short != long {
                    wrong.push(format!("page {page}: a checkpoint would depend on how it is made"));
                }
            }
            for (subpage, place) in (page * N..).zip(newest) {
                if self.map.get(subpage).map(|l| l.place) != place {
                    wrong.push(format!("subpage {subpage}: the map and the page table disagree"));
                }
            }
        }
        for (extent, (found, counted)) in self.live.iter().zip(&live).enumerate() {
            if found != counted {
                wrong.push(format!("extent {extent}: {found} live flash pages counted, {counted} found"));
            }
        }
        if live.iter().map(|n| u64::from(*n)).sum::<u64>() != self.live_in_all {
            wrong.push(format!("{} live flash pages counted in all", self.live_in_all));
        }
        let out = self.audit_leaves(&mut wrong);
        self.objects.audit(&needed, objects, out, &mut wrong);
        wrong
    }
}
