//! Permanent objects: arrays and pools under names, and the states that are named of them.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use fulgurite_flash::FlashError;
use fulgurite_store::PoolError;

use super::allocator::{ObjectAllocator, ObjectArray, ObjectPool};
use super::kept::{self, KeptPool};
use super::lock;
use super::names::{Entry, Names};
use super::numbers::{CHUNK, NOBODY};
use super::packed::OBJECT_BYTES_MAX;
use super::records::{NAME_BYTES_MAX, NAMES_MAX, Target, is_name};

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Named {
    /// An array.
    Array {
        /// How many objects it has.
        count: u32,
        /// Bytes of each.
        object_bytes: usize,
    },
    /// A pool.
    Pool {
        /// Bytes of its objects.
        object_bytes: usize,
    },
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Named::Array { count, object_bytes } => write!(f, "an array of {count} objects of {object_bytes} bytes"),
            Named::Pool { object_bytes } => write!(f, "a pool of objects of {object_bytes} bytes"),
        }
    }
}

impl Entry {
    fn described(&self) -> Named {
        let object_bytes = self.size.into();
        match self.target {
            Target::Array { count, .. } => Named::Array { count, object_bytes },
            Target::Pool { .. } => Named::Pool { object_bytes },
        }
    }
}

/// Why objects are not made permanent, or not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The flash keeps nothing.
    #[error("these objects end with the process, as their flash keeps nothing; start the allocator over a pool")]
    NotKept,
    /// Nothing has this name.
    #[error("nothing permanent has the name \"{name}\"; a state that has it may not have been synced")]
    Unknown {
        /// The name.
        name: String,
    },
    /// Something has it.
    #[error("the name \"{name}\" leads to {found} already; choose another one, or make that temporary")]
    Exists {
        /// The name.
        name: String,
        /// What has it.
        found: Named,
    },
    /// It leads to something else.
    #[error("the name \"{name}\" leads to {found}, and not to {wanted}")]
    Differs {
        /// The name.
        name: String,
        /// What it leads to.
        found: Named,
        /// What was asked for.
        wanted: Named,
    },
    /// No name.
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes, and not {bytes}")]
    BadName {
        /// Its bytes.
        bytes: usize,
    },
    /// There are as many names as there may be.
    #[error(
        "the pool has {NAMES_MAX} names, and no room for \"{name}\"; make something temporary, or use a pool of objects"
    )]
    Full {
        /// The name.
        name: String,
    },
    /// No object has this size.
    #[error(transparent)]
    BadSize(#[from] crate::BadSize),
    /// No array in use begins there.
    #[error("no array in use begins at {0:#x}; objects of a pool are permanent when it has a name")]
    NotAnArray(usize),
    /// The array has a name.
    #[error("this array is permanent under the name \"{name}\" already")]
    Named {
        /// The name.
        name: String,
    },
    /// It is no object of this pool.
    #[error("{0:#x} is no object in use of this pool, which can have it as its root only then")]
    NotOfPool(usize),
    /// The pool has no name.
    #[error("a pool of temporary objects has no root; open one by a name")]
    NoName,
    /// There is no room for an array.
    #[error("the pool has no room for {wanted}; free something, or make it larger")]
    NoRoom {
        /// What was asked for.
        wanted: Named,
    },
    /// The pool does not take the change.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Why no state is named.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The flash keeps nothing.
    #[error("these objects end with the process, as their flash keeps nothing; start the allocator over a pool")]
    NotKept,
    /// This process is a child, by `fork`, of the one that started the allocator.
    #[error("this process is a child, by fork, of the one that started the allocator; sync in the parent")]
    Forked,
    /// Objects cannot be written. They are in DRAM as before.
    #[error("objects cannot be written, and the last state stays: {0}")]
    Objects(#[from] FlashError),
    /// The pool names no state.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl ObjectAllocator {
    fn kept(&self) -> Result<&KeptPool, NameError> {
        self.pager.kept.as_ref().ok_or(NameError::NotKept)
    }
    /// Whether objects can be permanent: the allocator was started over a pool.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.pager.kept.is_some()
    }

    /// Makes an array permanent, under a name by which other processes find it
    /// ([`ObjectAllocator::array_named`]). It is so in the states that [`ObjectAllocator::sync`]
    /// names from now on. NVMM's `setperms` does the same with pages.
    ///
    /// # Errors
    /// [`NameError`]: nothing has changed.
    pub fn set_permanent(&self, first: NonNull<u8>, name: &str) -> Result<(), NameError> {
        let kept = self.kept()?;
        let mut names = lock(&kept.names);
        kept::forget_gone(&mut names, &lock(&self.pager.numbers));
        if !is_name(name) {
            return Err(NameError::BadName { bytes: name.len() });
        }
        if let Some(entry) = names.get(name) {
            return Err(NameError::Exists { name: name.to_owned(), found: entry.described() });
        }
        let none = NameError::NotAnArray(first.as_ptr() as usize);
        let Ok(first) = self.number_of(first) else { return Err(none) };
        let (count, size) = {
            let numbers = lock(&self.pager.numbers);
            let Some(count) = numbers.array_at(first) else { return Err(none) };
            let Some(size) = numbers.chunk_size(first) else { return Err(none) };
            (count, size)
        };
        let is_it = |(_, entry): &(&str, Entry)| entry.target == Target::Array { first, count };
        if let Some((name, _)) = names.all().find(is_it) {
            return Err(NameError::Named { name: name.to_owned() });
        }
        if names.is_full() {
            return Err(NameError::Full { name: name.to_owned() });
        }
        let chunks = first / CHUNK..first / CHUNK + count.div_ceil(CHUNK);
        kept.make_permanent(&self.pager, &mut names, chunks, |numbers| _ = numbers.set_array_permanent(first, true))?;
        let is_named = names.set(name, size, Target::Array { first, count });
        assert!(is_named, "there was room for a name, and the names are locked");
        Ok(())
    }

    /// Makes what has a name temporary, and frees the name. The objects stay until they are freed
    /// or this process ends. States that are named from now on do not have them.
    ///
    /// # Errors
    /// [`NameError::NotKept`], and [`NameError::Unknown`] where nothing has the name.
    pub fn set_temporary(&self, name: &str) -> Result<(), NameError> {
        let kept = self.kept()?;
        let mut names = lock(&kept.names);
        let entry = self.find(&mut names, name)?;
        names.remove(name);
        kept.make_temporary(&self.pager, |numbers| match entry.target {
            Target::Array { first, .. } => {
                numbers.set_array_permanent(first, false).map_or(Vec::new(), |chunks| chunks.collect())
            }
            Target::Pool { owner, .. } => numbers.set_owner_permanent(owner, false),
        });
        Ok(())
    }
    /// An array is about to be freed, object by object. States do not have it from now on.
    pub(super) fn unname(&self, first: u32) {
        let Some(kept) = &self.pager.kept else { return };
        if !lock(&self.pager.numbers).is_permanent(first) {
            return;
        }
        let mut names = lock(&kept.names);
        let is_it =
            |(_, entry): &(&str, Entry)| matches!(entry.target, Target::Array { first: its, .. } if its == first);
        let name = names.all().find(is_it).map(|(name, _)| name.to_owned());
        if let Some(name) = name {
            names.remove(&name);
        }
        // Its pages are deleted with its objects.
        let _ = lock(&self.pager.numbers).set_array_permanent(first, false);
    }

    fn find(&self, names: &mut Names, name: &str) -> Result<Entry, NameError> {
        kept::forget_gone(names, &lock(&self.pager.numbers));
        names.get(name).ok_or_else(|| NameError::Unknown { name: name.to_owned() })
    }

    /// All names, and what they lead to.
    ///
    /// # Errors
    /// [`NameError::NotKept`].
    pub fn names(&self) -> Result<Vec<(String, Named)>, NameError> {
        let mut names = lock(&self.kept()?.names);
        kept::forget_gone(&mut names, &lock(&self.pager.numbers));
        Ok(names.all().map(|(name, entry)| (name.to_owned(), entry.described())).collect())
    }

    /// The permanent array of a name, of `count` objects of `bytes` each. In another process it
    /// has other addresses. References between objects are [`ObjectAllocator::reference`].
    ///
    /// Objects of it that were freed one by one ([`ObjectAllocator::free`]) are holes: an access
    /// gets `SIGBUS`. [`ObjectAllocator::size_of`] distinguishes them.
    ///
    /// # Errors
    /// [`NameError::Unknown`]. [`NameError::Differs`] when the name leads to anything else.
    pub fn array_named(&self, name: &str, count: u32, bytes: usize) -> Result<ObjectArray, NameError> {
        let kept = self.kept()?;
        let entry = self.find(&mut lock(&kept.names), name)?;
        let (found, wanted) = (entry.described(), Named::Array { count, object_bytes: bytes });
        let (Target::Array { first, .. }, true) = (entry.target, found == wanted) else {
            return Err(NameError::Differs { name: name.to_owned(), found, wanted });
        };
        Ok(self.array_of(first, count, bytes))
    }

    /// The array of that name, which is made if nothing has the name. Its objects read as zeros
    /// then.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn array_named_or_new(&self, name: &str, count: u32, bytes: usize) -> Result<ObjectArray, NameError> {
        loop {
            match self.array_named(name, count, bytes) {
                Err(NameError::Unknown { .. }) => {}
                found => return found,
            }
            if !(1..=OBJECT_BYTES_MAX).contains(&bytes) {
                return Err(crate::BadSize(bytes).into());
            }
            let wanted = Named::Array { count, object_bytes: bytes };
            let array = self.array(count, bytes).ok_or(NameError::NoRoom { wanted })?;
            match self.set_permanent(array.first(), name) {
                Ok(()) => return Ok(array),
                Err(error) => {
                    // SAFETY: nobody knows the array.
                    let _ = unsafe { self.free_array(array.first()) };
                    // Another thread was first.
                    if !matches!(error, NameError::Exists { .. }) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The permanent pool of a name, whose objects are permanent from their allocation on. It is
    /// made where nothing has the name. Its objects are found by its root
    /// ([`ObjectPool::root`]), or all of them ([`ObjectPool::objects`]).
    ///
    /// # Errors
    /// [`NameError`].
    pub fn pool_named(&'static self, name: &str, bytes: usize) -> Result<ObjectPool, NameError> {
        let kept = self.kept()?;
        let mut names = lock(&kept.names);
        kept::forget_gone(&mut names, &lock(&self.pager.numbers));
        let wanted = Named::Pool { object_bytes: bytes };
        if let Some(entry) = names.get(name) {
            return match entry.target {
                Target::Pool { owner, .. } if usize::from(entry.size) == bytes => Ok(self.pool_of(owner, entry.size)),
                _ => Err(NameError::Differs { name: name.to_owned(), found: entry.described(), wanted }),
            };
        }
        if !is_name(name) {
            return Err(NameError::BadName { bytes: name.len() });
        }
        let size = self.pool(bytes)?.object_bytes() as u16;
        let owner = {
            let mut numbers = lock(&self.pager.numbers);
            let owner = numbers.make_owner();
            numbers.set_owner_permanent(owner, true);
            owner
        };
        if !names.set(name, size, Target::Pool { owner, root: None }) {
            lock(&self.pager.numbers).set_owner_permanent(owner, false);
            return Err(NameError::Full { name: name.to_owned() });
        }
        Ok(self.pool_of(owner, size))
    }

    /// Names the state of all permanent objects, and waits until it is durable. Returns its token.
    /// Whatever ends this process then, the next one finds this state, or a later one that the
    /// allocator has named by itself ([`ObjectSettings::syncs_itself`](super::ObjectSettings)).
    ///
    /// Each object is as it was at one moment of the call. A program whose threads change several
    /// that belong together has them pause. Objects leave the page buffer, and come back at the
    /// next access.
    ///
    /// # Errors
    /// [`SyncError`]. The last state stays.
    pub fn sync(&self) -> Result<u64, SyncError> {
        let kept = self.pager.kept.as_ref().ok_or(SyncError::NotKept)?;
        // A child would write to its parent's pool, or wait for threads that it does not have.
        if !kept.process.is_current() {
            return Err(SyncError::Forked);
        }
        loop {
            let before = kept.made_permanent.load(Ordering::Acquire);
            self.pager.put_permanent()?;
            self.pager.wanted.all()?;
            let mut names = lock(&kept.names);
            // Objects of an array that became permanent meanwhile may not have left their pages.
            if kept.made_permanent.load(Ordering::Acquire) == before {
                return Ok(kept.name_state(&self.pager, &mut names)?);
            }
        }
    }

    /// A number for an object in use that stays the same in every process, for references between
    /// permanent objects: their addresses do not. When the object is freed, its number is handed
    /// out again. A reference that was left over leads to another object then.
    ///
    /// # Errors
    /// [`FreeError`](crate::FreeError) when it is no object in use.
    pub fn reference(&self, object: NonNull<u8>) -> Result<u32, crate::FreeError> {
        self.size_of(object)?;
        self.number_of(object)
    }
    /// The object of such a number. None when none in use has it.
    #[must_use]
    pub fn object_of(&self, reference: u32) -> Option<NonNull<u8>> {
        lock(&self.pager.numbers).size_of(reference)?;
        NonNull::new(self.pager.address(reference) as *mut u8)
    }
}

impl ObjectPool {
    /// The root of a permanent pool: the object that was set as such last. A program that frees it
    /// sets another one before.
    #[must_use]
    pub fn root(&self) -> Option<NonNull<u8>> {
        let kept = self.allocator.pager.kept.as_ref()?;
        let root = lock(&kept.names).all().find_map(|(_, entry)| match entry.target {
            Target::Pool { owner, root } if owner == self.owner => Some(root),
            Target::Pool { .. } | Target::Array { .. } => None,
        });
        let root = root.flatten()?;
        let is_its = lock(&self.allocator.pager.numbers).owner_of(root) == Some(self.owner);
        if is_its { self.allocator.object_of(root) } else { None }
    }
    /// Sets the root of a permanent pool, by which another process finds its objects. It is so in
    /// the states that are named from now on.
    ///
    /// # Errors
    /// [`NameError::NotOfPool`], [`NameError::NoName`], [`NameError::NotKept`].
    pub fn set_root(&self, root: Option<NonNull<u8>>) -> Result<(), NameError> {
        let kept = self.allocator.kept()?;
        let root = match root {
            Some(object) => {
                let none = NameError::NotOfPool(object.as_ptr() as usize);
                let Ok(number) = self.allocator.reference(object) else { return Err(none) };
                if lock(&self.allocator.pager.numbers).owner_of(number) != Some(self.owner) {
                    return Err(none);
                }
                Some(number)
            }
            None => None,
        };
        let mut names = lock(&kept.names);
        let is_its = |target| matches!(target, Target::Pool { owner, .. } if owner == self.owner);
        let name = names.all().find(|(_, entry)| is_its(entry.target)).map(|(name, _)| name.to_owned());
        let name = name.filter(|_| self.owner != NOBODY).ok_or(NameError::NoName)?;
        names.set(&name, self.size, Target::Pool { owner: self.owner, root });
        Ok(())
    }
    /// All objects of a pool that has, or had, a name, in the order of their references.
    #[must_use]
    pub fn objects(&self) -> Vec<NonNull<u8>> {
        if self.owner == NOBODY {
            return Vec::new();
        }
        let all = lock(&self.allocator.pager.numbers).objects_of(self.owner);
        all.into_iter().filter_map(|number| self.allocator.object_of(number)).collect()
    }
}
