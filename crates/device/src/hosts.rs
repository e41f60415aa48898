//! Which hosts have queue pairs of a device, which may have them at the same time, and whether
//! others have been there since it started.
//!
//! A host is one driver, with all its queue pairs. After its device died and returned, it may
//! replay what it had acknowledged only while no other host can have written: what another host has
//! flushed is newer. So each region says whether other hosts have had queue pairs at the same time
//! as its host, which the host reads even after the device's death. A replay is by the first host
//! since the start, alone until it has ended. A host that left before this one came does not
//! concern its copies, which are newer; another word of the region says that there was one.
//!
//! A program that names the states of a store has it for a session ([`Session`]), from its first
//! queue pair to its last. No host is let in while what it left is rolled back.
//!
//! Invariant: another host is let in only after all open regions say so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::region::Region;
use crate::session::Session;

/// A host that wants a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostIdentity {
    /// A number that no other host has.
    pub host: u64,
    /// Its program's number, where that wants the device for itself; else 0.
    pub program: u64,
    /// It is to write once more what a device that has died had acknowledged.
    pub restores: bool,
    /// Its program names the states of the store, and nobody else does.
    pub names_states: bool,
    /// Of such a program that returns: the newest token when it began and that it kept, else 0.
    pub since: u64,
}

/// Why it gets none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It, or one that is there, wants the device for itself.
    #[error("another program uses the device, and one of the two needs exclusive use; end that program first")]
    Occupied,
    /// Another host writes once more what it had lost.
    #[error("another program is repeating writes that were lost when the device died; retry")]
    Restoring,
    /// It would write once more, and others have been there since the start.
    #[error("other programs have used it since it started; earlier writes may be older than theirs")]
    Shared,
    /// There are as many queue pairs as there may be.
    #[error("it has no room for more")]
    Full,
    /// A session begins, or what one has left is being taken back.
    #[error("it is rolling back to the last named state; retry")]
    TakingBack,
    /// That could not be done.
    #[error("unnamed changes of a program could not be rolled back ({0}); end the device, and start it again")]
    NotTakenBack(String),
    /// Its store has panicked.
    #[error("a memory operation has panicked, and nothing more is written; end the device, and start it again")]
    Spoilt,
    /// It would name states where there are none.
    #[error("it keeps no states; serve a store (`device serve --nand`, or `--store`)")]
    NoStates,
    /// It would name states, and does not want the device for itself.
    #[error("a program that names the states of a device needs exclusive use of it")]
    NotAlone,
    /// What is there has no name, and gets none.
    #[error("its contents cannot be named: {0}")]
    Unnamed(String),
}

/// Where the session stands.
#[derive(Clone, Debug, Default)]
enum Stage {
    #[default]
    None,
    /// It begins or ends; nobody is let in.
    Changes,
    Open,
    /// What was not named is still there.
    Failed(String),
}

#[derive(Debug)]
struct Open {
    id: u64,
    identity: HostIdentity,
    region: Weak<Region>,
    /// Another host has had a place at the same time as it, or at the same time as one of the same
    /// host that was open with it.
    others: bool,
}

#[derive(Debug, Default)]
struct Known {
    open: Vec<Open>,
    next: u64,
    /// The first host since the start, and whether another one has come since.
    first: Option<u64>,
    several: bool,
    /// The host that replays.
    restoring: Option<u64>,
    stage: Stage,
    /// Hosts have been there that may have written what has no name.
    touched: bool,
}

/// The hosts of a device.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    known: Mutex<Known>,
    /// Where there is a store.
    session: Option<Arc<Session>>,
}

/// A queue pair's place among those that are open. Dropping it, with nothing of the pair under way,
/// gives it up. The last one of a session waits until what was not named is gone.
#[derive(Debug)]
pub(crate) struct OpenPair {
    hosts: Arc<Hosts>,
    id: u64,
}

impl Hosts {
    pub fn of(session: Option<Arc<Session>>) -> Arc<Hosts> {
        Arc::new(Hosts { known: Mutex::default(), session })
    }
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
    #[cfg(test)]
    fn open(&self) -> usize {
        self.known().open.len()
    }
    /// Whether others than a program that has named all may have written something.
    pub fn were_there(&self) -> bool {
        self.known().touched
    }
    /// Reserves a place for a queue pair in addition to the others, of which `most` may exist. The
    /// first of a session waits until that has begun.
    pub fn admit(self: &Arc<Self>, identity: HostIdentity, most: usize) -> Result<OpenPair, Refusal> {
        if self.is_spoilt() {
            return Err(Refusal::Spoilt);
        }
        let mut known = self.known();
        match &known.stage {
            Stage::Changes => return Err(Refusal::TakingBack),
            Stage::Failed(why) => return Err(Refusal::NotTakenBack(why.clone())),
            Stage::None | Stage::Open => {}
        }
        if known.open.len() >= most {
            return Err(Refusal::Full);
        }
        let is_beside = |open: &Open| {
            (open.identity.program, open.identity.names_states) != (identity.program, identity.names_states)
        };
        if known.open.iter().any(is_beside) {
            return Err(Refusal::Occupied);
        }
        if known.restoring.is_some_and(|host| host != identity.host) {
            return Err(Refusal::Restoring);
        }
        let is_other = known.first.is_some_and(|first| first != identity.host);
        if identity.restores && (known.several || is_other) {
            return Err(Refusal::Shared);
        }
        if identity.names_states && matches!(known.stage, Stage::None) {
            drop(known);
            known = self.begin_session(identity)?;
        }
        if !identity.names_states {
            let dropped = self.session.as_ref().map_or(Ok(()), |session| session.drop_strange_temporary());
            dropped.map_err(|error| Refusal::NotTakenBack(error.to_string()))?;
            known.touched = true;
        }
        known.first.get_or_insert(identity.host);
        known.several |= is_other;
        let mut others = false;
        for open in &mut known.open {
            if open.identity.host != identity.host {
                (others, open.others) = (true, true);
                open.region.upgrade().inspect(|region| region.mark_others());
            }
            others |= open.others;
        }
        if identity.restores {
            known.restoring = Some(identity.host);
        }
        let id = known.next;
        known.next += 1;
        known.open.push(Open { id, identity, region: Weak::new(), others });
        Ok(OpenPair { hosts: self.clone(), id })
    }
    /// Begins a session. Nobody has been let in since the store was checked.
    fn begin_session(&self, identity: HostIdentity) -> Result<MutexGuard<'_, Known>, Refusal> {
        let session = self.session.as_ref().ok_or(Refusal::NoStates)?;
        if identity.program == 0 {
            return Err(Refusal::NotAlone);
        }
        let touched = {
            let mut known = self.known();
            // Between the two checks another caller may have been faster.
            match known.stage {
                Stage::None if known.open.is_empty() => {}
                Stage::None => return Err(Refusal::Occupied),
                _ => return Err(Refusal::TakingBack),
            }
            known.stage = Stage::Changes;
            known.touched
        };
        let begun = session.begin(touched, identity.since);
        let mut known = self.known();
        match begun {
            Ok(()) => (known.stage, known.touched) = (Stage::Open, false),
            Err(error) => {
                known.stage = Stage::None;
                return Err(Refusal::Unnamed(error.to_string()));
            }
        }
        Ok(known)
    }
    fn is_spoilt(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_spoilt())
    }
    /// The last queue pair of a session has gone, and nothing of it is under way any more.
    fn end_session(&self) {
        if self.is_spoilt() {
            // What was not named is gone when the store is opened anew.
            self.known().stage = Stage::Failed(Refusal::Spoilt.to_string());
            return;
        }
        let ended = self.session.as_ref().map_or(Ok(()), |session| session.end());
        self.known().stage = ended.map_or_else(|error| Stage::Failed(error.to_string()), |()| Stage::None);
    }
}

impl OpenPair {
    /// Says which region it is, before that is handed to its host.
    pub fn set_region(&self, region: &Arc<Region>) {
        let mut known = self.hosts.known();
        if known.several {
            region.mark_predecessors();
        }
        if let Some(open) = known.open.iter_mut().find(|open| open.id == self.id) {
            open.region = Arc::downgrade(region);
            if open.others {
                region.mark_others();
            }
        }
    }
}

impl Drop for OpenPair {
    fn drop(&mut self) {
        let mut known = self.hosts.known();
        let Some(at) = known.open.iter().position(|open| open.id == self.id) else { return };
        let identity = known.open.swap_remove(at).identity;
        if identity.restores {
            known.restoring = None;
        }
        if identity.names_states && known.open.is_empty() {
            known.stage = Stage::Changes;
            drop(known);
            self.hosts.end_session();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Capability, Features};

    fn region() -> Arc<Region> {
        let capability = Capability {
            sectors: 1,
            pairs: 1,
            depth: 1,
            buffer_sectors: 1,
            boot_sectors: 0,
            features: Features::default(),
            instance: 1,
            command_sectors: 1,
        };
        Arc::new(Region::create(capability, false).unwrap())
    }
    fn host(host: u64) -> HostIdentity {
        HostIdentity { host, ..HostIdentity::default() }
    }

    #[test]
    fn every_region_says_that_others_have_come() {
        let hosts = Arc::<Hosts>::default();
        let (first, second) = (hosts.admit(host(1), usize::MAX).unwrap(), hosts.admit(host(1), usize::MAX).unwrap());
        let regions = [region(), region()];
        first.set_region(&regions[0]);
        second.set_region(&regions[1]);
        assert!(regions.iter().all(|region| !region.has_others()));
        // It is said before the other one has a region, and stays when that has gone.
        let other = hosts.admit(host(2), usize::MAX).unwrap();
        assert!(regions.iter().all(|region| region.has_others()));
        drop((first, second, other));
        assert!(regions.iter().all(|region| region.has_others()));
        assert_eq!(hosts.open(), 0);
    }
    #[test]
    fn a_region_says_nothing_of_who_had_gone_before_its_host_came() {
        let hosts = Arc::<Hosts>::default();
        let opens = |of| {
            let (place, region) = (hosts.admit(host(of), usize::MAX).unwrap(), region());
            place.set_region(&region);
            (place, region)
        };
        let others = |of: &(OpenPair, Arc<Region>)| (of.1.has_others(), of.1.had_predecessors());
        let gone = opens(1);
        assert_eq!(others(&gone), (false, false));
        drop(gone);
        let first = opens(2);
        assert_eq!(others(&first), (false, true));
        // Another host comes and leaves: this host's writes may be older than that host's, also
        // where its next queue pair replays them.
        drop(opens(3));
        let second = opens(2);
        drop(first);
        let third = opens(2);
        drop(second);
        assert_eq!([others(&third), others(&opens(2))], [(true, true); 2]);
        // A place that is taken before the other one comes, and has its region afterwards.
        drop(third);
        let (early, other, late) = (hosts.admit(host(2), usize::MAX).unwrap(), opens(1), region());
        early.set_region(&late);
        assert!(late.has_others() && other.1.has_others());
    }
    #[test]
    fn who_wants_a_device_for_itself_is_alone() {
        let hosts = Arc::<Hosts>::default();
        let alone = |host, program| hosts.admit(HostIdentity { host, program, ..HostIdentity::default() }, usize::MAX);
        let shared = hosts.admit(host(1), usize::MAX).unwrap();
        assert_eq!(alone(2, 9).unwrap_err(), Refusal::Occupied);
        drop(shared);
        let pairs = [alone(2, 9).unwrap(), alone(2, 9).unwrap()];
        assert_eq!(alone(3, 8).unwrap_err(), Refusal::Occupied);
        assert_eq!(hosts.admit(host(1), usize::MAX).unwrap_err(), Refusal::Occupied);
        drop(pairs);
        alone(3, 8).unwrap();
    }
    #[test]
    fn a_session_is_had_alone_and_nobody_comes_while_it_changes() {
        let names = |hosts: &Arc<Hosts>, host, program| {
            hosts.admit(HostIdentity { host, program, names_states: true, ..HostIdentity::default() }, usize::MAX)
        };
        assert_eq!(names(&Arc::default(), 1, 9).unwrap_err(), Refusal::NoStates);
        let hosts = Hosts::of(Some(Arc::new(Session::over_memory())));
        assert_eq!(names(&hosts, 1, 0).unwrap_err(), Refusal::NotAlone);
        let beside = hosts.admit(host(1), usize::MAX).unwrap();
        assert_eq!(names(&hosts, 2, 9).unwrap_err(), Refusal::Occupied);
        drop(beside);
        assert!(hosts.were_there());
        let pairs = [names(&hosts, 2, 9).unwrap(), names(&hosts, 2, 9).unwrap()];
        assert!(!hosts.were_there());
        // Also a queue pair of the same program that does not know of it.
        let plain = |program| hosts.admit(HostIdentity { host: 2, program, ..HostIdentity::default() }, usize::MAX);
        assert_eq!([plain(9).unwrap_err(), plain(0).unwrap_err()], [Refusal::Occupied, Refusal::Occupied]);
        drop(pairs);
        hosts.known().stage = Stage::Changes;
        assert_eq!(
            [plain(0).unwrap_err(), names(&hosts, 3, 7).unwrap_err()],
            [Refusal::TakingBack, Refusal::TakingBack]
        );
        hosts.known().stage = Stage::Failed("no".to_owned());
        assert_eq!(plain(0).unwrap_err(), Refusal::NotTakenBack("no".to_owned()));
        hosts.known().stage = Stage::None;
        plain(0).unwrap();
    }
    #[test]
    fn there_are_no_more_places_than_there_may_be() {
        let hosts = Arc::<Hosts>::default();
        let places = [0, 1].map(|of| hosts.admit(host(of), 2).unwrap());
        assert_eq!(hosts.admit(host(0), 2).unwrap_err(), Refusal::Full);
        drop(places);
        hosts.admit(host(0), 2).unwrap();
    }
    #[test]
    fn who_writes_once_more_is_alone_and_comes_first() {
        let hosts = Arc::<Hosts>::default();
        let restores = |host| hosts.admit(HostIdentity { host, restores: true, ..HostIdentity::default() }, usize::MAX);
        let own = hosts.admit(host(1), usize::MAX).unwrap();
        let place = restores(1).unwrap();
        // Its own queues may be opened meanwhile, queues of other hosts may not.
        drop(hosts.admit(host(1), usize::MAX).unwrap());
        assert_eq!(hosts.admit(host(2), usize::MAX).unwrap_err(), Refusal::Restoring);
        drop(place);
        let other = hosts.admit(host(2), usize::MAX).unwrap();
        assert_eq!(restores(1).unwrap_err(), Refusal::Shared);
        assert_eq!(restores(2).unwrap_err(), Refusal::Shared);
        drop((own, other));
        // What was written by one that has gone is there.
        assert_eq!(restores(1).unwrap_err(), Refusal::Shared);
    }
}
