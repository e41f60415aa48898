//! The permissions of a device's pages, known to the host.
//!
//! The firmware refuses what a page's permissions forbid, but a runtime has to know before it hands
//! a frame out. So the host of a program that has the store for itself asks when it begins and
//! after each roll back, and notes its own changes. No other host changes anything meanwhile.
//!
//! Invariants: runs do not overlap, none is empty, neighbours differ, and none has
//! [`Permissions::DEFAULT`]. Pages with these, and those that are not allocated, are in the gaps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fulgurite_store::{Permissions, SUBPAGES_PER_PAGE};

/// By the first page: the page behind the last one, and what may be done with all of them.
type Runs = BTreeMap<u32, (u32, Permissions)>;

/// See the top of the file.
#[derive(Debug, Default)]
pub(super) struct Restrictions {
    /// There are runs: one load where there are none.
    any: AtomicBool,
    runs: RwLock<Runs>,
}

impl Restrictions {
    fn read(&self) -> RwLockReadGuard<'_, Runs> {
        self.runs.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write(&self) -> RwLockWriteGuard<'_, Runs> {
        self.runs.write().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether a sector may be read, or written.
    pub(super) fn may(&self, sector: u32, write: bool) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return true;
        }
        let page = sector / SUBPAGES_PER_PAGE;
        let runs = self.read();
        let run = runs.range(..=page).next_back().filter(|(_, (end, _))| page < *end);
        run.is_none_or(|(_, (_, may))| if write { may.write } else { may.read })
    }
    /// Whether there are temporary pages.
    pub(super) fn has_temporary(&self) -> bool {
        self.any.load(Ordering::Acquire) && self.read().values().any(|(_, may)| !may.permanent)
    }
    /// From now on this may be done with these pages.
    pub(super) fn set(&self, pages: Range<u32>, permissions: Permissions) {
        let mut runs = self.write();
        set(&mut runs, pages, permissions);
        self.any.store(!runs.is_empty(), Ordering::Release);
    }
    /// Replaces the permissions of all pages: only what these runs say holds.
    pub(super) fn replace(&self, with: impl IntoIterator<Item = (Range<u32>, Permissions)>) {
        let mut runs = self.write();
        runs.clear();
        with.into_iter().for_each(|(pages, permissions)| set(&mut runs, pages, permissions));
        self.any.store(!runs.is_empty(), Ordering::Release);
    }
    /// From now on this also forbids its part for these pages. Returns the permissions until now.
    pub(super) fn narrow(&self, pages: Range<u32>, to: Permissions) -> Vec<(Range<u32>, Permissions)> {
        let mut runs = self.write();
        let before = pieces(&runs, pages);
        for (pages, was) in &before {
            let both = Permissions { read: was.read && to.read, write: was.write && to.write, ..*was };
            set(&mut runs, pages.clone(), both);
        }
        self.any.store(!runs.is_empty(), Ordering::Release);
        before
    }
}

/// All of a range, the gaps included.
fn pieces(runs: &Runs, pages: Range<u32>) -> Vec<(Range<u32>, Permissions)> {
    let (mut pieces, mut from) = (Vec::new(), pages.start);
    let begins = runs.range(..=pages.start).next_back().map_or(pages.start, |(&start, _)| start);
    for (&start, &(end, permissions)) in runs.range(begins..pages.end.max(begins)) {
        if end <= from {
            continue;
        }
        if from < start {
            pieces.push((from..start, Permissions::DEFAULT));
        }
        let to = end.min(pages.end);
        pieces.push((from.max(start)..to, permissions));
        from = to;
    }
    if from < pages.end {
        pieces.push((from..pages.end, Permissions::DEFAULT));
    }
    pieces
}

fn set(runs: &mut Runs, pages: Range<u32>, permissions: Permissions) {
    if pages.is_empty() {
        return;
    }
    let mut pages = pages;
    // Neighbours that are alike become one with it; of others that it overlaps the ends stay.
    let begins = runs.range(..pages.start).next_back().map_or(pages.start, |(&start, _)| start);
    let met: Vec<_> = runs
        .range(begins..=pages.end)
        .map(|(&start, &(end, is))| (start..end, is))
        .filter(|(run, _)| run.end >= pages.start)
        .collect();
    for (run, is) in met {
        runs.remove(&run.start);
        if is == permissions {
            pages = pages.start.min(run.start)..pages.end.max(run.end);
            continue;
        }
        if run.start < pages.start {
            runs.insert(run.start, (run.end.min(pages.start), is));
        }
        if run.end > pages.end {
            runs.insert(run.start.max(pages.end), (run.end, is));
        }
    }
    if permissions != Permissions::DEFAULT {
        runs.insert(pages.start, (pages.end, permissions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 24;

    fn any(random: &mut u64) -> u32 {
        *random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (*random >> 33) as u32
    }
    fn permissions(random: &mut u64) -> Permissions {
        let bits = any(random);
        // The default often, so that runs go again.
        let bits = if bits & 8 == 0 { 7 } else { bits };
        Permissions { read: bits & 1 != 0, write: bits & 2 != 0, permanent: bits & 4 != 0 }
    }
    fn check(restrictions: &Restrictions, model: &[Permissions]) {
        let runs = restrictions.read().clone();
        let mut last = None;
        for (&start, &(end, is)) in &runs {
            assert!(start < end && is != Permissions::DEFAULT, "{runs:?}");
            assert!(last.is_none_or(|(before, was)| before < start || before == start && was != is), "{runs:?}");
            last = Some((end, is));
        }
        for (page, is) in (0..).zip(model) {
            for sector in [page * SUBPAGES_PER_PAGE, page * SUBPAGES_PER_PAGE + SUBPAGES_PER_PAGE - 1] {
                let may = (restrictions.may(sector, false), restrictions.may(sector, true));
                assert_eq!(may, (is.read, is.write), "page {page} of {runs:?}");
            }
        }
        assert_eq!(restrictions.has_temporary(), model.iter().any(|is| !is.permanent));
    }

    #[test]
    fn runs_are_what_each_page_is() {
        let (restrictions, mut random) = (Restrictions::default(), 7);
        let mut model = vec![Permissions::DEFAULT; PAGES as usize];
        for _ in 0..5000 {
            let (a, b) = (any(&mut random) % (PAGES + 1), any(&mut random) % (PAGES + 1));
            let (pages, to) = (a.min(b)..a.max(b), permissions(&mut random));
            let of_model = pages.start as usize..pages.end as usize;
            match any(&mut random) % 4 {
                0 => {
                    let before = restrictions.narrow(pages.clone(), to);
                    let narrowed =
                        |is: &Permissions| Permissions { read: is.read && to.read, write: is.write && to.write, ..*is };
                    let was = model.clone();
                    model[of_model.clone()].iter_mut().for_each(|is| *is = narrowed(is));
                    check(&restrictions, &model);
                    // And back.
                    assert_eq!(before.iter().map(|(run, _)| run.len()).sum::<usize>(), pages.len());
                    before.into_iter().for_each(|(run, is)| restrictions.set(run, is));
                    model = was;
                }
                1 => {
                    let runs: Vec<_> = (0..).zip(&model).map(|(page, &is)| (page..page + 1, is)).collect();
                    restrictions.replace(runs);
                }
                _ => {
                    restrictions.set(pages, to);
                    model[of_model].fill(to);
                }
            }
            check(&restrictions, &model);
        }
    }
}
