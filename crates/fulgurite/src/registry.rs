//! The directory of a pool, and the containers under its roots that are open: each once in a
//! process.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite_memory::{AccessError, Container, Directory, Heap, Region, RootError, Rooted};
use fulgurite_runtime::{Context, Durable, Runtime};

use crate::error::{Error, access_error};

/// Latches of a container: 32 KiB of DRAM.
pub(crate) const LATCHES: usize = 1 << 12;

/// An open container.
pub(crate) type Handle<C> = Arc<Rooted<C>>;

/// Takes all shared addresses from the runtime; returns how many bytes there are.
pub(crate) fn take_all(runtime: &Runtime) -> Result<u64, AccessError> {
    let Err(AccessError::NoSpace { free, .. }) = runtime.reserve_shared(u64::MAX) else { return Ok(0) };
    runtime.reserve_shared(free)?;
    Ok(free)
}

/// An open container, whatever it holds.
pub(crate) trait Open: Send + Sync {
    fn save(&self, context: &mut Context) -> Result<(), AccessError>;
    fn reload(&self, context: &mut Context, directory: &Directory) -> Result<bool, RootError>;
    fn disturb(&self);
    fn abandon(&self);
    fn heap(&self) -> Arc<Heap>;
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<C: Container + Send + Sync + 'static> Open for Rooted<C> {
    fn save(&self, context: &mut Context) -> Result<(), AccessError> {
        Rooted::save(self, context)
    }
    fn reload(&self, context: &mut Context, directory: &Directory) -> Result<bool, RootError> {
        Rooted::reload(self, context, directory)
    }
    fn disturb(&self) {
        Rooted::disturb(self);
    }
    fn abandon(&self) {
        Rooted::abandon(self);
    }
    fn heap(&self) -> Arc<Heap> {
        Rooted::heap(self).clone()
    }
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// An open container, and when it was made.
struct Known {
    container: Arc<dyn Open>,
    /// The newest token of the time when this process made it: no state up to it has it.
    made: Option<u64>,
}

/// The directory of a pool, and the containers under its roots that are open.
pub(crate) struct Registry {
    pub directory: Arc<Directory>,
    /// By name. Never held across an access.
    open: Mutex<BTreeMap<String, Known>>,
    /// By name, what could not be saved at the last sync, and why.
    pub unsaved: Mutex<BTreeMap<String, AccessError>>,
    /// Opening and making wait for each other. Never taken inside a job.
    pub turn: Mutex<()>,
    /// Something may be leaving ([`Directory::leave`]), as far as is known.
    pub leaving: AtomicBool,
}

pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panicked while it held one left whole values.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub fn new(directory: Directory) -> Registry {
        Registry {
            directory: Arc::new(directory),
            open: Mutex::default(),
            unsaved: Mutex::default(),
            turn: Mutex::default(),
            leaving: AtomicBool::new(true),
        }
    }
    /// The heaps of what is open.
    pub fn heaps(&self) -> Vec<Arc<Heap>> {
        hold(&self.open).values().map(|known| known.container.heap()).collect()
    }
    fn all(&self) -> Vec<(String, Arc<dyn Open>)> {
        hold(&self.open).iter().map(|(name, known)| (name.clone(), known.container.clone())).collect()
    }
}

impl Durable for Registry {
    fn save(&self, context: &mut Context) -> Result<(), AccessError> {
        let mut unsaved = BTreeMap::new();
        for (name, open) in self.all() {
            match open.save(context) {
                Ok(()) => {}
                // One that is damaged does not keep all others from being durable.
                Err(error) if error.is_damage() => {
                    unsaved.insert(name, error);
                }
                Err(error) => return Err(error),
            }
        }
        *hold(&self.unsaved) = unsaved;
        Ok(())
    }
    fn rolled_back(&self, token: u64) {
        self.directory.disturb();
        hold(&self.open).retain(|_, known| {
            let is_there = known.made.is_none_or(|made| token > made);
            if is_there {
                known.container.disturb();
            } else {
                // Readers would take for empty what is not there. Another one may have had the
                // name, at the same addresses.
                known.container.abandon();
            }
            is_there
        });
    }
    fn reload(&self, context: &mut Context) -> Result<(), AccessError> {
        // The state may be one in which something was.
        self.leaving.store(true, Ordering::Release);
        let mut result = self.directory.reload(context).map_err(access_error);
        let mut unsaved = BTreeMap::new();
        for (name, open) in self.all() {
            match open.reload(context, &self.directory).map_err(access_error) {
                Ok(true) => continue,
                Ok(false) => {}
                // Nor does it keep all others from being rolled back.
                Err(error) if error.is_damage() => {
                    unsaved.insert(name.clone(), error);
                }
                Err(error) => result = result.and(Err(error)),
            }
            hold(&self.open).remove(&name);
        }
        *hold(&self.unsaved) = unsaved;
        result
    }
}

impl Registry {
    /// Takes the open container with this name, whose root is about to be removed.
    pub fn take(&self, name: &str) -> Option<Arc<dyn Open>> {
        hold(&self.open).remove(name).map(|known| known.container)
    }
    /// Opens a container, or makes it. No state up to and including `newest` has what is made.
    pub fn open_or_make<C: Container + Send + Sync + 'static>(
        &self,
        m: &mut Context,
        (name, newest): (String, u64),
        bytes: (u64, u64),
        make: impl FnOnce(&mut Context, &Arc<Heap>, Region) -> Result<C, AccessError>,
    ) -> Result<Handle<C>, Error> {
        // Between what is found in the directory and what is noted here, no roll back comes.
        let _section = m.write_section()?;
        let known = hold(&self.open).get(&name).map(|known| known.container.clone());
        if let Some(known) = known {
            // Of another type? The directory has the words for it.
            self.directory.find_as(m, &name, &C::type_name(), C::parts())?;
            return known.any().downcast().map_err(|_| Error::OpenOtherwise { name });
        }
        let (rooted, is_new) = match Rooted::<C>::open(m, &self.directory, &name, LATCHES) {
            Err(RootError::Unknown { .. }) => (Rooted::create(m, &self.directory, &name, bytes, make)?, true),
            opened => (opened?, false),
        };
        rooted.grow_in(&self.directory);
        let rooted = Arc::new(rooted);
        let known = Known { container: rooted.clone(), made: is_new.then_some(newest) };
        hold(&self.open).insert(name, known);
        Ok(rooted)
    }
}
