//! The directory of a pool, in its first page: the address space handed out, and the roots by which
//! a restarted program finds its data. `docs/format.md` draws it.
//!
//! Its only state in DRAM is a latch, so it rolls back with the data. There is one for each pool
//! and process. Addresses from elsewhere (`Runtime::reserve_shared`) would be handed out twice.
//!
//! Invariants: each change writes one subpage, in a write section and under the latch. Names are
//! unique.

use fulgurite_format::{
    NotDirectory, PAGE_BYTES, PageRange, ROOT_ENTRY_BYTES, ROOT_NAME_MAX, ROOT_TYPE_MAX, ROOTS_MAX, RootEntry,
    SUBPAGE_BYTES, Space, TypePart, zero_page,
};
use fulgurite_runtime::AccessError;

use crate::{Address, Latch, Memory, MemoryId, Ptr, Region, Stored, VersionLatch, optimistic};

const PER_SUBPAGE: usize = SUBPAGE_BYTES / ROOT_ENTRY_BYTES;
const PAGE: u64 = PAGE_BYTES as u64;

/// Why a root cannot be had or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum RootError {
    /// An access failed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// There is no such root.
    #[error("there is no root \"{name}\" in this pool; create it first")]
    Unknown { name: String },
    /// There is one already.
    #[error("there is a root \"{name}\" already; open it, or remove it first")]
    Exists { name: String },
    /// It leads to something else.
    #[error(
        "root \"{name}\" is of type \"{found}\", and was asked for as \"{wanted}\"; ask for what it is, or use another name"
    )]
    WrongType { name: String, wanted: String, found: String },
    /// The type has another size or alignment than when the root was made.
    #[error(
        "root \"{name}\" of type \"{type_name}\" was made with {found}, and the type now has {wanted}; \
         give a changed type another name"
    )]
    WrongLayout { name: String, type_name: String, wanted: String, found: String },
    /// No name, or one that is too long.
    #[error("a root's name has 1 to {ROOT_NAME_MAX} bytes, and \"{name}\" has {}", .name.len())]
    BadName { name: String },
    /// The name of the type does not fit.
    #[error("the name of a root's type has 1 to {ROOT_TYPE_MAX} bytes, and \"{type_name}\" has {}; choose shorter ones", .type_name.len())]
    BadTypeName { type_name: String },
    /// There are as many roots as there can be.
    #[error(
        "the pool has {ROOTS_MAX} roots, and no room for \"{name}\"; remove one, or keep several things under one root"
    )]
    Full { name: String },
    /// The address space is handed out.
    #[error(
        "{pages} pages of 64 KiB asked for, {free} free and not always side by side; remove something, or use a larger pool"
    )]
    NoSpace { pages: u64, free: u32 },
    /// The range is not handed out.
    #[error("{bytes} bytes at {at} are not whole pages that were handed out")]
    NotHandedOut { at: Address, bytes: u64 },
    /// The directory cannot be read.
    #[error(
        "the directory of the pool is damaged at {at}: {source}; roll back to an older token, or restore the pool \
         from a copy"
    )]
    Damaged { at: Address, source: NotDirectory },
    /// The pool is smaller than what was handed out of it.
    #[error("{next} pages of the pool are handed out, and it has {pages}; open all of it")]
    TooSmall { next: u32, pages: u32 },
}

/// Sizes and alignments, for people.
fn describe(parts: [TypePart; 2]) -> String {
    let one = |part: TypePart| format!("{} bytes aligned to {}", part.size, part.align);
    match parts {
        [first, second] if second.align == 0 => one(first),
        [first, second] => format!("{} and {}", one(first), one(second)),
    }
}

/// What a root is called whose pages are being deleted, before its address, and its type. Names of
/// programs hardly begin with a zero byte, and nothing of theirs has such a type.
const LEAVING_NAME: &str = "\0leaving ";
const LEAVING_TYPE: &str = "\0leaving";

fn is_leaving(entry: &RootEntry) -> bool {
    entry.type_name == LEAVING_TYPE && entry.name.starts_with(LEAVING_NAME)
}

/// Where the root with some name is, and the first free place.
type Search = (Option<(usize, RootEntry)>, Option<usize>);

/// The directory, open.
#[derive(Debug)]
pub struct Directory {
    /// Pages that there are to hand out.
    pages: u32,
    memory: MemoryId,
    latch: VersionLatch,
}

impl Directory {
    /// Bytes at the front of the pool that are the directory's.
    pub const BYTES: u64 = PAGE;

    /// Opens the directory of an address space of `bytes`, or makes one in a new pool.
    ///
    /// # Errors
    /// [`RootError::Damaged`] when something else is there, [`RootError::TooSmall`], and the
    /// memory's errors.
    pub fn open<M: Memory>(memory: &mut M, bytes: u64) -> Result<Directory, RootError> {
        let directory = Self::of(memory.id(), bytes)?;
        let _section = memory.write_section()?;
        if directory.stored_space(memory)?.is_none() {
            directory.write_space(memory, &Space::new(directory.pages))?;
        }
        Ok(directory)
    }
    /// As [`Directory::open`], without writing. A new pool has no roots.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn open_read_only<M: Memory>(memory: &mut M, bytes: u64) -> Result<Directory, RootError> {
        let directory = Self::of(memory.id(), bytes)?;
        directory.stored_space(memory)?;
        Ok(directory)
    }
    fn of(memory: MemoryId, bytes: u64) -> Result<Directory, RootError> {
        let pages = u32::try_from(bytes / PAGE).unwrap_or(u32::MAX).min(1 << 28);
        if pages == 0 {
            return Err(RootError::NoSpace { pages: 1, free: 0 });
        }
        Ok(Directory { pages, memory, latch: VersionLatch::default() })
    }

    fn subpage(index: usize) -> Address {
        Address::from_linear((index * SUBPAGE_BYTES) as u64)
    }
    fn entry_address(index: usize) -> Address {
        Self::subpage(1 + index / PER_SUBPAGE).add((index % PER_SUBPAGE * ROOT_ENTRY_BYTES) as u64)
    }

    // ---- the address space ----

    /// The header, with as many pages as there are now. None in a new pool.
    fn stored_space<M: Memory>(&self, memory: &mut M) -> Result<Option<Space>, RootError> {
        let mut bytes = zero_page();
        memory.read_bytes(Self::subpage(0), &mut *bytes)?;
        let damaged = |source| RootError::Damaged { at: Self::subpage(0), source };
        let Some(mut space) = Space::decode(&bytes).map_err(damaged)? else { return Ok(None) };
        if space.next > self.pages {
            return Err(RootError::TooSmall { next: space.next, pages: self.pages });
        }
        space.pages = self.pages;
        Ok(Some(space))
    }
    fn read_space<M: Memory>(&self, memory: &mut M) -> Result<Space, RootError> {
        // A state from before the directory was made has none; nothing is handed out in it.
        Ok(self.stored_space(memory)?.unwrap_or_else(|| Space::new(self.pages)))
    }
    fn write_space<M: Memory>(&self, memory: &mut M, space: &Space) -> Result<(), AccessError> {
        memory.view_mut(Self::subpage(0), SUBPAGE_BYTES)?.copy_from(0, &*space.encode());
        Ok(())
    }

    /// Hands out `bytes`, rounded up to pages of 64 KiB. Their contents are whatever lay there
    /// before.
    ///
    /// # Errors
    /// [`RootError::NoSpace`], [`RootError::Damaged`]; what the memory says.
    pub fn reserve<M: Memory>(&self, memory: &mut M, bytes: u64) -> Result<Region, RootError> {
        self.memory.check(memory.id())?;
        let pages = bytes.div_ceil(PAGE).max(1);
        let _section = memory.write_section()?;
        let _held = self.latch.lock(memory)?;
        let mut space = self.read_space(memory)?;
        let taken = u32::try_from(pages).ok().and_then(|count| space.take(count));
        let Some(PageRange { first, count }) = taken else {
            return Err(RootError::NoSpace { pages, free: space.free_pages() });
        };
        self.write_space(memory, &space)?;
        Ok(Region::new(Address::from_linear(u64::from(first) * PAGE), u64::from(count) * PAGE))
    }

    fn pages_of(region: Region) -> Option<PageRange> {
        let whole = region.base.linear().is_multiple_of(PAGE) && region.bytes.is_multiple_of(PAGE);
        let first = u32::try_from(region.base.linear() / PAGE).ok();
        let range = first.zip(u32::try_from(region.bytes / PAGE).ok()).filter(|_| whole);
        range.map(|(first, count)| PageRange { first, count })
    }

    /// Takes pages back. Their contents are not touched.
    ///
    /// # Errors
    /// [`RootError::NotHandedOut`], [`RootError::Damaged`]; what the memory says.
    pub fn give_back<M: Memory>(&self, memory: &mut M, region: Region) -> Result<(), RootError> {
        self.memory.check(memory.id())?;
        let not_handed_out = || RootError::NotHandedOut { at: region.base, bytes: region.bytes };
        let range = Self::pages_of(region).ok_or_else(not_handed_out)?;
        let _section = memory.write_section()?;
        let _held = self.latch.lock(memory)?;
        let mut space = self.read_space(memory)?;
        if !space.give_back(range) {
            return Err(not_handed_out());
        }
        Ok(self.write_space(memory, &space)?)
    }

    /// Whether these are whole pages, all of them handed out.
    ///
    /// # Errors
    /// [`RootError::Damaged`]; what the memory says.
    pub fn has_handed_out<M: Memory>(&self, memory: &mut M, region: Region) -> Result<bool, RootError> {
        self.memory.check(memory.id())?;
        let space = self.read_whole(memory, |memory| self.read_space(memory))?;
        Ok(Self::pages_of(region).is_some_and(|range| space.has_handed_out(range)))
    }

    /// What `look` sees in one state of the directory.
    fn read_whole<M: Memory, T>(
        &self,
        memory: &mut M,
        mut look: impl FnMut(&mut M) -> Result<T, RootError>,
    ) -> Result<T, RootError> {
        // What was seen partially is read again, also when it seemed to be damaged.
        optimistic::read(&self.latch, memory, |memory, _| match look(memory) {
            Err(RootError::Access(error)) => Err(error),
            other => Ok(other),
        })?
    }

    // ---- roots ----

    fn entry<M: Memory>(memory: &mut M, index: usize) -> Result<Result<Option<RootEntry>, RootError>, AccessError> {
        let mut bytes = [0; ROOT_ENTRY_BYTES];
        let at = Self::entry_address(index);
        memory.view(at, ROOT_ENTRY_BYTES)?.copy_to(0, &mut bytes);
        Ok(RootEntry::decode(&bytes).map_err(|source| RootError::Damaged { at, source }))
    }
    /// Where the root with this name is, and the first free place. A damaged entry is an error only
    /// if the name is not found, because it may have been its.
    fn search<M: Memory>(memory: &mut M, name: &str) -> Result<Search, RootError> {
        let (mut free, mut damaged) = (None, None);
        for index in 0..ROOTS_MAX {
            match Self::entry(memory, index)? {
                Ok(Some(entry)) if entry.name == name => return Ok((Some((index, entry)), free)),
                Ok(Some(_)) => {}
                Ok(None) => free = free.or(Some(index)),
                Err(error) => damaged = damaged.or(Some(error)),
            }
        }
        damaged.map_or(Ok((None, free)), Err)
    }

    fn check_name(name: &str) -> Result<(), RootError> {
        let fits = (1..=ROOT_NAME_MAX).contains(&name.len());
        if fits { Ok(()) } else { Err(RootError::BadName { name: name.to_owned() }) }
    }

    /// What is known of the root with this name.
    ///
    /// # Errors
    /// [`RootError::Unknown`], [`RootError::BadName`], [`RootError::Damaged`], and the memory's
    /// errors.
    pub fn find<M: Memory>(&self, memory: &mut M, name: &str) -> Result<RootEntry, RootError> {
        self.memory.check(memory.id())?;
        Self::check_name(name)?;
        let found = self.read_whole(memory, |memory| Self::search(memory, name))?;
        found.0.map(|(_, entry)| entry).ok_or_else(|| RootError::Unknown { name: name.to_owned() })
    }

    /// As [`Directory::find`], and it must be of this type.
    ///
    /// # Errors
    /// As [`Directory::find`], [`RootError::WrongType`], [`RootError::WrongLayout`].
    pub fn find_as<M: Memory>(
        &self,
        memory: &mut M,
        name: &str,
        type_name: &str,
        parts: [TypePart; 2],
    ) -> Result<RootEntry, RootError> {
        let entry = self.find(memory, name)?;
        let name = name.to_owned();
        if entry.type_name != type_name {
            return Err(RootError::WrongType { name, wanted: type_name.to_owned(), found: entry.type_name });
        }
        if entry.parts != parts {
            let (wanted, found) = (describe(parts), describe(entry.parts));
            return Err(RootError::WrongLayout { name, type_name: entry.type_name, wanted, found });
        }
        let sound = entry.bytes <= (1 << 44) - entry.address.linear()
            && entry.address.controller() == Address::FIRST_CONTROLLER
            && entry.address.linear().is_multiple_of(PAGE)
            && entry.bytes.is_multiple_of(PAGE)
            && entry.bytes > 0;
        if !sound {
            return Err(RootError::Damaged { at: entry.address, source: NotDirectory::Malformed });
        }
        Ok(entry)
    }

    /// All roots, in no order. Damaged entries are left out, and those that are leaving.
    ///
    /// # Errors
    /// What the memory says.
    pub fn roots<M: Memory>(&self, memory: &mut M) -> Result<Vec<RootEntry>, RootError> {
        self.those(memory, |entry| !is_leaving(entry))
    }
    /// The roots that are leaving ([`Directory::leave`]), in no order.
    ///
    /// # Errors
    /// What the memory says.
    pub fn leaving<M: Memory>(&self, memory: &mut M) -> Result<Vec<RootEntry>, RootError> {
        self.those(memory, is_leaving)
    }
    fn those<M: Memory>(
        &self,
        memory: &mut M,
        wanted: impl Fn(&RootEntry) -> bool,
    ) -> Result<Vec<RootEntry>, RootError> {
        self.memory.check(memory.id())?;
        self.read_whole(memory, |memory| {
            let mut roots = Vec::new();
            for index in 0..ROOTS_MAX {
                roots.extend(Self::entry(memory, index)?.ok().flatten().filter(&wanted));
            }
            Ok(roots)
        })
    }

    /// Whether a root of this name and type could be made.
    pub(crate) fn is_free<M: Memory>(&self, memory: &mut M, name: &str, type_name: &str) -> Result<(), RootError> {
        if !(1..=ROOT_TYPE_MAX).contains(&type_name.len()) {
            return Err(RootError::BadTypeName { type_name: type_name.to_owned() });
        }
        match self.find(memory, name) {
            Ok(_) => Err(RootError::Exists { name: name.to_owned() }),
            Err(RootError::Unknown { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Adds a root that leads to what is there already.
    ///
    /// # Errors
    /// [`RootError::Exists`], [`RootError::Full`], [`RootError::BadName`],
    /// [`RootError::BadTypeName`], [`RootError::Damaged`], and the memory's errors. Nothing was
    /// changed then.
    pub fn add<M: Memory>(&self, memory: &mut M, entry: &RootEntry) -> Result<(), RootError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        self.is_free(memory, &entry.name, &entry.type_name)?;
        let _held = self.latch.lock(memory)?;
        let name = || entry.name.clone();
        match Self::search(memory, &entry.name)? {
            (Some(_), _) => Err(RootError::Exists { name: name() }),
            (None, None) => Err(RootError::Full { name: name() }),
            (None, Some(index)) => {
                memory.view_mut(Self::entry_address(index), ROOT_ENTRY_BYTES)?.copy_from(0, &entry.encode());
                Ok(())
            }
        }
    }

    /// Takes the name from a root, and leaves it its pages: they stay handed out, and
    /// [`Directory::leaving`] lists them, until [`Directory::remove`] of the entry that this
    /// returns. The name is free for something else.
    ///
    /// # Errors
    /// As [`Directory::find`]. Nothing was changed then.
    pub fn leave<M: Memory>(&self, memory: &mut M, name: &str) -> Result<RootEntry, RootError> {
        self.memory.check(memory.id())?;
        Self::check_name(name)?;
        let _section = memory.write_section()?;
        let _held = self.latch.lock(memory)?;
        let (found, _) = Self::search(memory, name)?;
        let (index, entry) = found.ok_or_else(|| RootError::Unknown { name: name.to_owned() })?;
        let name = format!("{LEAVING_NAME}{:#x}", entry.address.linear());
        let entry = RootEntry { name, type_name: LEAVING_TYPE.to_owned(), ..entry };
        memory.view_mut(Self::entry_address(index), ROOT_ENTRY_BYTES)?.copy_from(0, &entry.encode());
        Ok(entry)
    }

    /// Removes a root and gives its pages back; returns what was known of it.
    ///
    /// # Errors
    /// As [`Directory::find`]. If the pages cannot be given back, the root is gone all the same,
    /// and their addresses are lost.
    pub fn remove<M: Memory>(&self, memory: &mut M, name: &str) -> Result<RootEntry, RootError> {
        self.memory.check(memory.id())?;
        Self::check_name(name)?;
        let _section = memory.write_section()?;
        let entry = {
            let _held = self.latch.lock(memory)?;
            let (found, _) = Self::search(memory, name)?;
            let (index, entry) = found.ok_or_else(|| RootError::Unknown { name: name.to_owned() })?;
            memory.view_mut(Self::entry_address(index), ROOT_ENTRY_BYTES)?.copy_from(0, &[0; ROOT_ENTRY_BYTES]);
            entry
        };
        if entry.bytes.is_multiple_of(PAGE) && entry.address.linear().is_multiple_of(PAGE) {
            self.give_back(memory, Region::new(entry.address, entry.bytes))?;
        }
        Ok(entry)
    }

    /// The address of the value with this name.
    ///
    /// # Errors
    /// As [`Directory::find_as`].
    pub fn root<M: Memory, T: Stored>(&self, memory: &mut M, name: &str) -> Result<Ptr<T>, RootError> {
        let entry = self.find_as(memory, name, &T::type_name(), [TypePart::of::<T>(), TypePart::default()])?;
        Ok(Ptr::new(entry.address))
    }

    /// Makes a value with a name, in a page of its own.
    ///
    /// # Errors
    /// As [`Directory::add`] and [`Directory::reserve`]. [`AccessError::Straddles`] for a type
    /// larger than a subpage.
    pub fn create_root<M: Memory, T: Stored>(&self, memory: &mut M, name: &str, value: T) -> Result<Ptr<T>, RootError> {
        self.memory.check(memory.id())?;
        let _section = memory.write_section()?;
        self.is_free(memory, name, &T::type_name())?;
        let region = self.reserve(memory, size_of::<T>() as u64)?;
        let at = Ptr::new(region.base);
        let entry = RootEntry {
            name: name.to_owned(),
            type_name: T::type_name(),
            parts: [TypePart::of::<T>(), TypePart::default()],
            address: region.base,
            bytes: region.bytes,
        };
        let made = memory.store(at, value).map_err(RootError::from).and_then(|()| self.add(memory, &entry));
        if let Err(error) = made {
            // What cannot be given back is lost, and nothing else.
            let _ = self.give_back(memory, region);
            return Err(error);
        }
        Ok(at)
    }

    /// At a roll back, before jobs go on: makes readers read again.
    pub fn disturb(&self) {
        self.latch.disturb(false);
    }
    /// After a roll back: checks that the state has a readable directory, and makes readers read
    /// again.
    ///
    /// # Errors
    /// [`RootError::Damaged`], [`RootError::TooSmall`]; what the memory says.
    pub fn reload<M: Memory>(&self, memory: &mut M) -> Result<(), RootError> {
        self.memory.check(memory.id())?;
        self.disturb();
        self.stored_space(memory).map(drop)
    }
}
