//! The files or devices that a pool spans: finds all of them by one, and refuses those that do not
//! belong together.
//!
//! Each member says which pool it belongs to, its position, and the others with their last paths.
//! Its page is stored there twice. The copies are written in turns, all second copies before any
//! first one. So when one first copy names a generation, all members have reached it, and a member
//! that has not is an old copy.
//!
//! Invariants: every member is there once, at its own position. An older list of bands and a newer
//! one agree on each flash page that both have.
//!
//! There is no redundancy. A member is looked for only at its last path, and in the directory of
//! the named one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulgurite_flash::{Column, Flash, FlashError, OpenError, StripeLayout, StripedFlash};
use fulgurite_format::{
    BANDS_MAX, Band, Header, Kind, MEMBER_PAGES, MEMBERS_MAX, Malformed, Member, MemberName, PageBuffer, PoolId,
    SUBPAGE_BYTES, format_bytes, zero_page,
};

use crate::driver::{Driver, DriverError};
use crate::geometry::Geometry;
use crate::recover::ReadPages;

/// Why the members of a pool cannot be put together. Nothing was changed. Positions count from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum MemberError {
    /// One of them cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{}: {source}", path.display())]
    Driver { path: PathBuf, source: DriverError },
    #[error("{}: {source}", path.display())]
    Flash { path: PathBuf, source: FlashError },
    #[error(
        "member {} of the pool is missing: {} does not exist; restore it, or give its path with --member",
        position + 1, path.display()
    )]
    Missing { position: u32, path: PathBuf },
    #[error("{} is no member of the pool: {what}; restore member {}, or give its path with --member", path.display(), position + 1)]
    Foreign { path: PathBuf, what: &'static str, position: u32 },
    #[error(
        "{} is member {} of the pool, and member {} was expected there: were the two swapped? Restore their names, \
         or name all of them with --member", path.display(), found + 1, position + 1
    )]
    Swapped { path: PathBuf, found: u32, position: u32 },
    #[error(
        "{} and {} are the same member of the pool: one is a copy of the other; name only the members that belong together",
        path.display(), other.display()
    )]
    Duplicate { path: PathBuf, other: PathBuf },
    #[error(
        "{} is an old copy of member {}: the other members were changed since it was made; restore the current one, \
         or old copies of all of them",
        path.display(), position + 1
    )]
    Old { path: PathBuf, position: u32 },
    #[error(
        "{} is truncated: member {} of the pool has {}, and {} are there; restore it from a copy",
        path.display(), position + 1, format_bytes(*needed), format_bytes(*found)
    )]
    Truncated { path: PathBuf, position: u32, needed: u64, found: u64 },
    #[error("the list of members in {} is invalid; restore it from a copy", path.display())]
    Malformed { path: PathBuf },
    #[error("{} belongs to another pool than its first member says; restore it from a copy", path.display())]
    OfAnotherPool { path: PathBuf },
    #[error("{} is a pool of one file; leave --member out", path.display())]
    Alone { path: PathBuf },
    #[error("{} has {}, and a member of this pool needs {} at least; choose more", path.display(), format_bytes(*found), format_bytes(*needed))]
    TooSmall { path: PathBuf, needed: u64, found: u64 },
    #[error("a pool spans at most {MEMBERS_MAX} files or devices; name fewer")]
    TooMany,
    #[error("the paths of the members are too long together; use shorter ones")]
    Paths,
    #[error("the pool has grown {BANDS_MAX} times; export its data, and import it into a new one")]
    Bands,
}

/// What a member says, in its two copies: the generation of each, and what it says there.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Head {
    pool: PoolId,
    copies: [Option<(u64, Member)>; 2],
}

impl Head {
    fn newest(&self) -> Option<&(u64, Member)> {
        self.copies.iter().flatten().max_by_key(|(generation, _)| *generation)
    }
    /// Reads the two copies of a member's page. None when neither is one.
    fn of(pages: [&PageBuffer; 2]) -> Result<Option<Head>, Malformed> {
        let mut head: Option<Head> = None;
        for (copy, page) in pages.into_iter().enumerate() {
            let Ok((header, _, payload)) = Header::open(page) else { continue };
            if header.kind != Kind::Member || header.place != MEMBER_PAGES[copy] {
                continue;
            }
            let member = Member::decode(payload)?;
            let head = head.get_or_insert(Head { pool: header.pool, copies: [None, None] });
            if head.pool == header.pool {
                head.copies[copy] = Some((header.sequence, member));
            }
        }
        Ok(head)
    }
}

/// The pool whose member begins like this. None when it is no member.
#[must_use]
pub fn member_in(head: &[u8]) -> Option<PoolId> {
    let page = |place: u32| {
        let mut page = zero_page();
        page.copy_from_slice(head.get(place as usize * SUBPAGE_BYTES..)?.get(..SUBPAGE_BYTES)?);
        Some(page)
    };
    let pages = [page(MEMBER_PAGES[0])?, page(MEMBER_PAGES[1])?];
    Head::of([&pages[0], &pages[1]]).ok().flatten().map(|head| head.pool)
}

/// A member that was opened.
struct Opened {
    path: PathBuf,
    flash: Arc<dyn Flash>,
    head: Head,
}

/// What opens a path.
pub type OpenMember<'o> = &'o mut dyn FnMut(&Path) -> Result<Arc<dyn Flash>, OpenError>;

fn driver(path: &Path, flash: &Arc<dyn Flash>) -> Result<Driver, MemberError> {
    Driver::new(&**flash, 4).map_err(|source| MemberError::Driver { path: path.into(), source })
}

/// What a file says of itself as a member. None when it says nothing.
fn head_of(path: &Path, flash: &Arc<dyn Flash>) -> Result<Option<Head>, MemberError> {
    if flash.subpages() <= MEMBER_PAGES[1] {
        return Ok(None);
    }
    let mut driver = driver(path, flash)?;
    // What cannot be read says nothing; the other copy may.
    let pages = MEMBER_PAGES.map(|place| driver.read(place, 0).unwrap_or_else(|_| zero_page()));
    Head::of([&pages[0], &pages[1]]).map_err(|_| MemberError::Malformed { path: path.into() })
}

/// Where the extents are by a list of bands. Before its first band a member has its own page. The
/// first member's page is in the pool's first extent.
fn layout_of(member: &Member) -> StripeLayout {
    let mut layout = StripeLayout::new(member.extent_pages);
    let mut next: Vec<u32> = (0..member.members.len()).map(|position| u32::from(position > 0)).collect();
    for band in &member.bands {
        let mut columns = Vec::new();
        for (position, next) in (0..).zip(&mut next).filter(|(position, _)| band.members & (1 << position) != 0) {
            columns.push(Column { member: position, first: *next });
            *next += band.rows;
        }
        layout.push(band.rows, columns);
    }
    layout
}

/// Bands that use all of the `extents` of each member, behind those in `used`, each member at most
/// to its number.
fn bands_for(extents: &[u32], used: &[u32]) -> Vec<Band> {
    let mut used = used.to_vec();
    let mut bands = Vec::new();
    loop {
        let room: Vec<u32> = extents.iter().zip(&used).map(|(all, used)| all.saturating_sub(*used)).collect();
        let Some(rows) = room.iter().copied().filter(|room| *room > 0).min() else { return bands };
        let with_room = room.iter().enumerate().filter(|(_, room)| **room > 0);
        let members = with_room.fold(0, |members, (position, _)| members | (1 << position));
        bands.push(Band { rows, members });
        (0..).zip(&mut used).filter(|(at, _)| members & (1u32 << at) != 0).for_each(|(_, used)| *used += rows);
    }
}

/// The members of a pool, put together.
pub struct Members {
    pool: PoolId,
    generation: u64,
    /// As the member at position 0 would say it.
    list: Member,
    members: Vec<(PathBuf, Arc<dyn Flash>)>,
    flash: Arc<StripedFlash>,
    /// Copies that cannot be used.
    damaged: Vec<(u32, u32)>,
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members")
            .field("generation", &self.generation)
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

impl Members {
    /// Puts the members of a new pool together, and writes to each what it is. Their earlier
    /// contents are gone.
    ///
    /// `paths` are where they are, absolute; `ids` are random.
    ///
    /// # Errors
    /// When there are too many, or one fails.
    pub fn create(
        members: Vec<(PathBuf, Arc<dyn Flash>)>,
        ids: &[PoolId],
        extent_pages: u32,
        pool: PoolId,
    ) -> Result<Members, MemberError> {
        assert_eq!(members.len(), ids.len(), "each member has an identity");
        if !(1..=MEMBERS_MAX).contains(&members.len()) {
            return Err(MemberError::TooMany);
        }
        let extents: Vec<u32> = members.iter().map(|(_, flash)| flash.subpages() / extent_pages).collect();
        let used: Vec<u32> = (0..members.len()).map(|position| u32::from(position > 0)).collect();
        let name = |((path, _), id): (&(PathBuf, _), &PoolId)| MemberName { id: *id, path: bytes_of(path) };
        let names = members.iter().zip(ids).map(name).collect();
        let bands = bands_for(&extents, &used);
        let list = Member { position: 0, extent_pages, members: names, bands };
        let flash = striped(&members, &list);
        let mut made = Members { pool, generation: 0, list, members, flash, damaged: Vec::new() };
        made.write_generation()?;
        Ok(made)
    }

    /// A pool of one file or device as its only member, so that others can be added. Nothing is
    /// written yet.
    #[must_use]
    pub fn alone(member: (PathBuf, Arc<dyn Flash>), id: PoolId, pool: PoolId, geometry: Geometry) -> Members {
        let names = vec![MemberName { id, path: bytes_of(&member.0) }];
        let bands = vec![Band { rows: geometry.extents, members: 1 }];
        let list = Member { position: 0, extent_pages: geometry.extent_pages, members: names, bands };
        let members = vec![member];
        let flash = striped(&members, &list);
        Members { pool, generation: 0, list, members, flash, damaged: Vec::new() }
    }
    /// Finds all members of the pool that `path` belongs to. `others` are members given by path.
    /// The rest are looked for in the same directory, if they were there once, and at their last
    /// paths. None: it is no member of anything.
    ///
    /// # Errors
    /// When one is missing, or something else is there in its place.
    pub fn find(
        (path, flash): (&Path, &Arc<dyn Flash>),
        others: &[PathBuf],
        open: OpenMember<'_>,
    ) -> Result<Option<Members>, MemberError> {
        let Some(head) = head_of(path, flash)? else {
            return if others.is_empty() { Ok(None) } else { Err(MemberError::Alone { path: path.into() }) };
        };
        let Some((_, first)) = head.newest().cloned() else { return Ok(None) };
        let pool = head.pool;
        let mut slots: Vec<Option<Opened>> = first.members.iter().map(|_| None).collect();
        // By the older list, this number of members is certain.
        let settled = head.copies.iter().flatten().map(|(_, member)| member.members.len()).min().unwrap_or(0);
        let named = Opened { path: path.into(), flash: flash.clone(), head };
        place(&mut slots, &first, pool, named, first.position)?;
        for other in others {
            let free = slots.iter().position(Option::is_none).unwrap_or(0) as u32;
            // One file by one name is itself, not a copy.
            if slots.iter().flatten().any(|opened| same_file(&opened.path, other)) {
                return Err(MemberError::Duplicate { path: other.clone(), other: path.into() });
            }
            let flash = open(other)?;
            let head = head_of(other, &flash)?;
            let what = "it is no part of any pool of several files";
            let head = head.ok_or(MemberError::Foreign { path: other.clone(), what, position: free })?;
            let position = head.newest().map_or(free, |(_, member)| member.position);
            place(&mut slots, &first, pool, Opened { path: other.clone(), flash, head }, position)?;
        }
        let from = (path, PathBuf::from(name_of(&first, first.position)));
        for position in 0..slots.len() as u32 {
            if slots[position as usize].is_some() {
                continue;
            }
            let Some(found) = likely_path(&first, position, &from) else {
                // One that was only being added is not missed. Whether it is a member shows when
                // all others are there.
                if position as usize >= settled {
                    continue;
                }
                return Err(MemberError::Missing { position, path: PathBuf::from(name_of(&first, position)) });
            };
            if found.parent() != from.0.parent() && !same_file(from.0, &from.1) && peek(&from.1, pool, first.position) {
                return Err(MemberError::Duplicate { path: from.0.into(), other: from.1 });
            }
            let flash = open(&found)?;
            let what = "it is no part of any pool of several files";
            let Some(head) = head_of(&found, &flash)? else {
                if position as usize >= settled {
                    continue;
                }
                return Err(MemberError::Foreign { path: found.clone(), what, position });
            };
            place(&mut slots, &first, pool, Opened { path: found, flash, head }, position)?;
        }
        Self::checked(pool, slots.into_iter().map_while(|slot| slot).collect()).map(Some)
    }

    /// All are there: are they of one time, and whole?
    fn checked(pool: PoolId, mut opened: Vec<Opened>) -> Result<Members, MemberError> {
        let first_copies = opened.iter().filter_map(|o| o.head.copies[0].as_ref());
        let newest = first_copies.max_by_key(|(generation, _)| *generation);
        let newest =
            newest.or_else(|| opened.iter().filter_map(|o| o.head.newest()).max_by_key(|(generation, _)| *generation));
        let Some((generation, list)) = newest.cloned() else {
            unreachable!("each was found by a copy that can be used")
        };
        let list = Member { position: 0, ..list };
        if let Some(missing) = (opened.len()..list.members.len()).next() {
            let position = missing as u32;
            return Err(MemberError::Missing { position, path: PathBuf::from(name_of(&list, position)) });
        }
        // What is written next has a higher generation than all that was seen, in effect or not.
        let seen = opened.iter().filter_map(|o| o.head.newest()).map(|(seen, _)| *seen).max().unwrap_or(generation);
        // One that was being added is no member yet.
        opened.truncate(list.members.len());
        for (position, member) in (0..).zip(&opened) {
            if member.head.newest().is_none_or(|(reached, _)| *reached < generation) {
                return Err(MemberError::Old { path: member.path.clone(), position });
            }
        }
        let layout = layout_of(&list);
        for (position, member) in (0..).zip(&opened) {
            let bytes = |extents: u64| extents * u64::from(list.extent_pages) * SUBPAGE_BYTES as u64;
            let needed = bytes(layout.extents_of(position).into());
            let found = u64::from(member.flash.subpages()) * SUBPAGE_BYTES as u64;
            if found < needed {
                return Err(MemberError::Truncated { path: member.path.clone(), position, needed, found });
            }
        }
        let damaged = (0..).zip(&opened).flat_map(|(position, member)| {
            let bad = MEMBER_PAGES.iter().zip(&member.head.copies).filter(|(_, copy)| copy.is_none());
            bad.map(move |(place, _)| (position, *place))
        });
        let damaged = damaged.collect();
        let members: Vec<_> = opened.into_iter().map(|o| (o.path, o.flash)).collect();
        let flash = striped(&members, &list);
        Ok(Members { pool, generation: seen, list, members, flash, damaged })
    }

    /// The pool.
    pub fn pool(&self) -> PoolId {
        self.pool
    }
    /// All of them as one medium.
    pub fn flash(&self) -> Arc<dyn Flash> {
        self.flash.clone()
    }
    /// Their paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.members.iter().map(|(path, _)| path.as_path())
    }
    /// Bytes that were opened of each.
    pub fn bytes(&self) -> impl Iterator<Item = u64> {
        self.members.iter().map(|(_, flash)| u64::from(flash.subpages()) * SUBPAGE_BYTES as u64)
    }
    /// The identity of each.
    pub fn ids(&self) -> impl Iterator<Item = PoolId> {
        self.list.members.iter().map(|member| member.id)
    }
    /// Extents of all of them.
    pub fn extents(&self) -> u32 {
        self.flash.layout().extents()
    }
    /// Extents that a member has, its own page's included.
    pub fn extents_of(&self, position: u32) -> u32 {
        self.flash.layout().extents_of(position)
    }
    /// The member that holds a flash page of the pool.
    pub fn member_of(&self, place: u32) -> Option<u32> {
        self.flash.layout().find(place).map(|(member, _)| member)
    }
    /// Unusable copies of a member's list: (member, its flash page). Opening the pool for changes
    /// writes them again.
    pub fn damaged(&self) -> &[(u32, u32)] {
        &self.damaged
    }

    /// Notes on all members that the pool is changed from now on, so that earlier copies are known
    /// as old. Before any change.
    ///
    /// # Errors
    /// When one fails; what was there can still be opened.
    pub fn begin_changes(&mut self) -> Result<(), MemberError> {
        for (name, (path, _)) in self.list.members.iter_mut().zip(&self.members) {
            name.path = bytes_of(path);
        }
        self.write_generation()
    }
    /// What the members must have, each in extents, for the pool to have `extents` more, shared out
    /// evenly among those that may grow to `most`. None when they cannot.
    #[must_use]
    pub fn grown(&self, extents: u32, most: &[u32]) -> Option<Vec<u32>> {
        let now: Vec<u32> = (0..self.members.len() as u32).map(|position| self.extents_of(position)).collect();
        let up_to = |level: u32| now.iter().zip(most).map(move |(now, most)| level.min(*most).max(*now));
        let more = |level| up_to(level).zip(&now).map(|(then, now)| u64::from(then - now)).sum::<u64>();
        // The highest level up to which there are enough for all, and one more for the first ones.
        let (mut level, mut above) = (0, u32::MAX);
        while level + 1 < above {
            let middle = level + (above - level) / 2;
            *if more(middle) <= extents.into() { &mut level } else { &mut above } = middle;
        }
        let mut grown: Vec<u32> = up_to(level).collect();
        let mut left = u64::from(extents) - more(level);
        for (at, most) in (0..).zip(most) {
            if left > 0 && grown[at] == level && level < *most {
                (grown[at], left) = (level + 1, left - 1);
            }
        }
        (left == 0).then_some(grown)
    }
    /// The members were made larger: the pool continues in the new extents, up to `extents` of each
    /// member. Nothing moves. The medium ([`Members::flash`]) has them from then on.
    ///
    /// # Errors
    /// [`MemberError::Bands`] when the list has no room, and nothing was changed. When a member
    /// fails, the old state can still be opened, as long as no member shrinks: some may already
    /// name their new size. The medium goes on as it was, and another attempt may follow.
    ///
    /// # Panics
    /// When one has less than that.
    pub fn grow(&mut self, extents: &[u32]) -> Result<(), MemberError> {
        let used: Vec<u32> = (0..self.members.len() as u32).map(|position| self.extents_of(position)).collect();
        let used: Vec<u32> = used.iter().enumerate().map(|(at, used)| (*used).max(u32::from(at > 0))).collect();
        let mut new = bands_for(extents, &used);
        let mut bands = self.list.bands.clone();
        // More rows of the last band move nothing either.
        if let (Some(last), Some(first)) = (bands.last_mut(), new.first())
            && last.members == first.members
        {
            last.rows += first.rows;
            new.remove(0);
        }
        if bands.len() + new.len() > BANDS_MAX {
            return Err(MemberError::Bands);
        }
        bands.extend(new);
        let before = std::mem::replace(&mut self.list.bands, bands);
        self.begin_changes().inspect_err(|_| self.list.bands = before)?;
        self.flash.grow(layout_of(&self.list));
        Ok(())
    }
    /// Adds a file or device as the last member. The pool can continue in what it has beyond an
    /// extent of its own. `path` is absolute, and `id` random. Its earlier contents are gone. A
    /// crash leaves the members as they were, or this one among them.
    ///
    /// # Errors
    /// When there are too many, it is too small, or one fails; what was there can still be opened.
    pub fn add(&mut self, path: PathBuf, flash: Arc<dyn Flash>, id: PoolId) -> Result<(), MemberError> {
        let list = self.with(&path, flash.subpages(), id)?;
        let position = self.members.len();
        self.list = list;
        self.members.push((path, flash));
        self.flash = striped(&self.members, &self.list);
        self.generation += 1;
        let second = self.page(position, 1)?;
        self.generation -= 1;
        // An old page there must not count, and its new one is there before anything looks for it.
        let (path, flash) = &self.members[position];
        let written = driver(path, flash)?.write_all(vec![(MEMBER_PAGES[0], zero_page()), second]);
        written.map_err(|source| MemberError::Flash { path: path.clone(), source })?;
        self.write_generation()
    }
    /// Whether a member of `flash_pages` flash pages could be added.
    pub fn may_add(&self, path: &Path, flash_pages: u32) -> Result<(), MemberError> {
        self.with(path, flash_pages, PoolId::default()).map(|_| ())
    }
    /// The list with one more member.
    fn with(&self, path: &Path, flash_pages: u32, id: PoolId) -> Result<Member, MemberError> {
        if self.members.len() == MEMBERS_MAX {
            return Err(MemberError::TooMany);
        }
        let extents = flash_pages / self.list.extent_pages;
        if extents < 2 {
            let bytes = |pages: u32| u64::from(pages) * SUBPAGE_BYTES as u64;
            let (needed, found) = (2 * bytes(self.list.extent_pages), bytes(flash_pages));
            return Err(MemberError::TooSmall { path: path.into(), needed, found });
        }
        let mut list = self.list.clone();
        for (name, (path, _)) in list.members.iter_mut().zip(&self.members) {
            name.path = bytes_of(path);
        }
        let position = list.members.len();
        list.members.push(MemberName { id, path: bytes_of(path) });
        list.bands.push(Band { rows: extents - 1, members: 1 << position });
        if list.bands.len() > BANDS_MAX {
            return Err(MemberError::Bands);
        }
        if list.encode(&mut Vec::new()) { Ok(list) } else { Err(MemberError::Paths) }
    }
    /// The pool has only its first `extents` extents: forgets where the others were. Returns how
    /// many extents each member needs from now on, perhaps one or a few more than asked for.
    ///
    /// # Errors
    /// When one fails; what was there can still be opened.
    pub fn shrink(&mut self, extents: u32) -> Result<Vec<u32>, MemberError> {
        let mut first = 0;
        for band in &mut self.list.bands {
            let wide = band.members.count_ones();
            band.rows = band.rows.min(extents.saturating_sub(first).div_ceil(wide));
            first += band.rows * wide;
        }
        self.list.bands.retain(|band| band.rows > 0);
        self.begin_changes()?;
        let layout = layout_of(&self.list);
        Ok((0..self.members.len() as u32).map(|at| layout.extents_of(at).max(1)).collect())
    }

    fn page(&self, position: usize, copy: usize) -> Result<(u32, PageBuffer), MemberError> {
        let mut payload = Vec::new();
        if !(Member { position: position as u32, ..self.list.clone() }).encode(&mut payload) {
            return Err(MemberError::Paths);
        }
        let place = MEMBER_PAGES[copy];
        let header = Header { sequence: self.generation, next_token: 0, ..Header::new(Kind::Member, self.pool, place) };
        Ok((place, header.page(&payload).0))
    }
    /// Writes the list as the next generation: all second copies, then all first ones, each
    /// flushed.
    fn write_generation(&mut self) -> Result<(), MemberError> {
        self.generation += 1;
        for copy in [1, 0] {
            for (position, (path, flash)) in self.members.iter().enumerate() {
                let page = self.page(position, copy)?;
                let written = driver(path, flash)?.write_all(vec![page]);
                written.map_err(|source| MemberError::Flash { path: path.clone(), source })?;
            }
        }
        self.damaged.clear();
        Ok(())
    }
}

fn striped(members: &[(PathBuf, Arc<dyn Flash>)], list: &Member) -> Arc<StripedFlash> {
    Arc::new(StripedFlash::new(members.iter().map(|(_, flash)| flash.clone()).collect(), layout_of(list)))
}

/// A path as it is written down: it must lead there from any directory.
fn bytes_of(path: &Path) -> Vec<u8> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
}
/// Where a member was last.
fn name_of(list: &Member, position: u32) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(&list.members[position as usize].path)
}
/// Whether two paths lead to the same.
fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Takes one in at its position.
fn place(
    slots: &mut [Option<Opened>],
    list: &Member,
    pool: PoolId,
    opened: Opened,
    position: u32,
) -> Result<(), MemberError> {
    let path = opened.path.clone();
    let Some((_, says)) = opened.head.newest() else { return Err(MemberError::Malformed { path }) };
    let found = says.position;
    if opened.head.pool != pool {
        return Err(MemberError::Foreign { path, what: "it belongs to another pool", position });
    }
    if found as usize >= slots.len() || says.members[found as usize].id != list.members[found as usize].id {
        return Err(MemberError::Foreign { path, what: "it belongs to another pool of the same name", position });
    }
    if let Some(other) = &slots[found as usize] {
        return Err(MemberError::Duplicate { path, other: other.path.clone() });
    }
    if found != position {
        return Err(MemberError::Swapped { path, found, position });
    }
    slots[found as usize] = Some(opened);
    Ok(())
}

/// Where a member may be: in the directory of the named one, if both were in one directory when it
/// was written, or at its last path.
fn likely_path(list: &Member, position: u32, (named, was): &(&Path, PathBuf)) -> Option<PathBuf> {
    let last = PathBuf::from(name_of(list, position));
    let sibling = (last.parent() == was.parent()).then(|| named.with_file_name(last.file_name().unwrap_or_default()));
    sibling.into_iter().chain([last]).find(|path| path.symlink_metadata().is_ok())
}

/// Whether there is a member of this pool at a path: read without a lock.
fn peek(path: &Path, pool: PoolId, position: u32) -> bool {
    let mut head = vec![0; (MEMBER_PAGES[1] as usize + 1) * SUBPAGE_BYTES];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head));
    let page = |place: u32| {
        let mut page = zero_page();
        page.copy_from_slice(&head[place as usize * SUBPAGE_BYTES..][..SUBPAGE_BYTES]);
        page
    };
    let found =
        read.is_ok().then(|| Head::of([&page(MEMBER_PAGES[0]), &page(MEMBER_PAGES[1])]).ok().flatten()).flatten();
    found.is_some_and(|head| head.pool == pool && head.newest().is_some_and(|(_, member)| member.position == position))
}

#[cfg(test)]
mod tests;
