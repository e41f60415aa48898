//! Memory operations: what a store can do beyond sectors. A thread of their own runs them.
//!
//! A sync waits for the medium, a roll back for much more, and a trim may name every page. The
//! firmware's turn must not wait, so these commands go to a thread, in order, and their ends come
//! back to their queue pair. They are so rare that the cost of waking a thread does not matter.
//!
//! A job keeps its queue pair's memory in use ([`super::port::ReleaseNotice`]) until it has ended.
//!
//! Invariant: each job is answered once. After a panic, that job and all behind it are answered by
//! [`Status::INTERNAL`], and then the device ends, as the state of its store is unknown. Recovery
//! knows what is on the medium.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use fulgurite_flash::{OpenError, VersionError, Versions};
use fulgurite_store::{Permissions, Pool, PoolError, SUBPAGES_PER_PAGE, View, WriteError};
use fulgurite_sys::{Arena, Notifier, planted};

use super::port::ReleaseNotice;
use crate::entry::{Command, Opcode, SECTOR_BYTES, Status};
use crate::planted::PlantedPanic;
use crate::session::Session;
use crate::standing::Standing;

/// Tokens that one queue pair may hold at a time.
const HELD_MAX: usize = 64;
/// Pages that are checked under one lock.
const PAGES_AT_A_TIME: u32 = 4096;

/// Jobs of one queue pair that have ended, and what it holds.
#[derive(Debug, Default)]
pub(super) struct Ends {
    any: AtomicBool,
    list: Mutex<Vec<(u16, Status, u64)>>,
    /// Tokens that stay for as long as this does.
    held: Mutex<Vec<View>>,
}

impl Ends {
    fn push(&self, id: u16, (status, result): (Status, u64)) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push((id, status, result));
        self.any.store(true, Ordering::Release);
    }
    /// Takes those that there are.
    pub(super) fn take(&self) -> Vec<(u16, Status, u64)> {
        if !self.any.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Holds a token from now on.
    fn hold(&self, pool: &Arc<Pool>, token: u64) -> Result<(), (Status, u64)> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.iter().any(|view| view.token() == token) {
            return Ok(());
        }
        if held.len() >= HELD_MAX {
            return Err((Status::INVALID_FIELD, 0));
        }
        held.push(pool.view(token).map_err(|error| of_pool(&error))?);
        Ok(())
    }
}

/// A command for the thread. Its ranges were checked. Dropped without an answer, it has failed.
pub(super) struct Job {
    pub(super) command: Command,
    pub(super) opcode: Opcode,
    /// Where its data buffer begins.
    pub(super) arena: Arc<Arena>,
    pub(super) at: usize,
    pub(super) ends: Arc<Ends>,
    pub(super) answered: bool,
    /// The last field, because it is dropped when nothing else of the job is used any more.
    pub(super) _held: Arc<ReleaseNotice>,
}

impl Job {
    fn answer(mut self, end: (Status, u64)) {
        self.answered = true;
        self.ends.push(self.command.id, end);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.answered {
            self.ends.push(self.command.id, (Status::INTERNAL, 0));
        }
    }
}

/// Says that the thread has panicked, after all of its jobs were answered.
struct Failing {
    failed: Arc<AtomicBool>,
    session: Option<Arc<Session>>,
    device: Arc<Notifier>,
}

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.session.as_ref().inspect(|session| session.mark_spoilt());
            self.failed.store(true, Ordering::Release);
            self.device.notify();
        }
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Memory {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<AtomicBool>,
}

impl Memory {
    /// Starts it. `device` is what wakes the firmware when a job has ended.
    pub(super) fn start(
        pool: Arc<Pool>,
        session: Option<Arc<Session>>,
        device: Arc<Notifier>,
        planted: Option<PlantedPanic>,
    ) -> Result<Memory, OpenError> {
        let (jobs, taken) = mpsc::channel::<Job>();
        let failed = Arc::new(AtomicBool::new(false));
        let failing = Failing { failed: failed.clone(), session, device };
        let start = |source| OpenError::System { what: "start the thread for memory operations", source };
        planted::start_thread().map_err(start)?;
        let thread = std::thread::Builder::new()
            .name("device-memory".into())
            .spawn(move || {
                // Dropped after the jobs that nobody has taken.
                let failing = failing;
                for job in taken {
                    assert!(planted != Some(PlantedPanic(job.opcode)), "planted: {:?} panics", job.opcode);
                    let end = run(&pool, &job);
                    job.answer(end);
                    failing.device.notify();
                }
            })
            .map_err(start)?;
        Ok(Memory { jobs: Some(jobs), thread: Some(thread), failed })
    }
    /// Runs a job, some time later; one that comes after the thread has ended has failed.
    pub(super) fn send(&self, job: Job) {
        // What is not sent is dropped, and so answered.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
    }
    /// Whether the thread has panicked. All its jobs are answered then, and so are later ones.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Permissions in the argument of a command: bits 0 to 2. None when it says anything else.
pub(crate) fn permissions_of(argument: u64) -> Option<Permissions> {
    let has = |bit: u64| argument & bit != 0;
    (argument < 8).then(|| Permissions { read: has(1), write: has(2), permanent: has(4) })
}

/// The permissions of a page in [`Opcode::Pages`]. None where it is not allocated, or for a bad
/// byte.
pub(crate) fn permissions_of_page(byte: u8) -> Option<Permissions> {
    (byte & ALLOCATED != 0).then(|| permissions_of(u64::from(byte & !ALLOCATED))).flatten()
}

/// Of a page's byte: it is allocated.
const ALLOCATED: u8 = 8;

/// The inverse.
pub(crate) fn argument_of(permissions: Permissions) -> u64 {
    u64::from(permissions.read) | u64::from(permissions.write) << 1 | u64::from(permissions.permanent) << 2
}

fn run(pool: &Arc<Pool>, job: &Job) -> (Status, u64) {
    let result = match job.opcode {
        Opcode::Allocate | Opcode::SetPermissions | Opcode::Delete => pages(pool, job).map(|()| 0),
        Opcode::Trim => trim(pool, &job.command).map(|()| 0),
        Opcode::ReadAt => read_at(pool, job).map(|()| 0),
        Opcode::Tokens => Ok(tokens(job, &Versions::tokens(&**pool))),
        Opcode::Pinned => {
            let pinned = pool
                .tokens()
                .as_slice()
                .iter()
                .filter(|token| token.pinned)
                .map(|token| token.token)
                .collect::<Vec<_>>();
            Ok(tokens(job, &pinned))
        }
        Opcode::Standing => {
            job.arena.write(job.at, &Standing::of_pool(pool).to_bytes());
            Ok(0)
        }
        Opcode::Pages => Ok(pages_from(pool, job)),
        Opcode::Hold => job.ends.hold(pool, job.command.argument).map(|()| 0),
        Opcode::Dropped => Ok(dropped(pool, job)),
        Opcode::Pin | Opcode::Unpin => {
            pool.pin(job.command.argument, job.opcode == Opcode::Pin).map(|()| 0).map_err(|error| of_pool(&error))
        }
        _ => versions(pool, job),
    };
    match result {
        Ok(result) => (Status::SUCCESS, result),
        Err(end) => end,
    }
}

fn versions(pool: &Pool, job: &Job) -> Result<u64, (Status, u64)> {
    let token = job.command.argument;
    let result = match job.opcode {
        Opcode::Name => {
            pool.tick();
            pool.name_state()
        }
        Opcode::Sync => {
            pool.tick();
            let token = if token == 0 { pool.name_state() } else { known(pool, token) };
            token.and_then(|token| pool.wait_durable(token).map(|()| token))
        }
        Opcode::RollBack => Versions::roll_back(pool, token).map(|()| token),
        Opcode::MayRollBack => Versions::can_roll_back(pool, token).map(|()| token),
        _ => return Err((Status::INVALID_OPCODE, 0)),
    };
    result.map_err(|error| of_versions(&error))
}

/// To wait for a token that nobody named would be to wait for ever.
fn known(pool: &Pool, token: u64) -> Result<u64, VersionError> {
    let kept = Versions::tokens(pool);
    // One that was dropped since is durable, or covered by one that is.
    if kept.last().is_some_and(|&newest| token <= newest) {
        Ok(token)
    } else {
        Err(VersionError::no_token(token, &kept))
    }
}

fn of_versions(error: &VersionError) -> (Status, u64) {
    match error {
        VersionError::NoToken { .. } => (Status::NO_TOKEN, 0),
        VersionError::InUse { read, .. } => (Status::TOKEN_IN_USE, *read),
        VersionError::Pinned { pinned, .. } => (Status::TOKEN_PINNED, *pinned),
        VersionError::Flash(error) => (Status::of(Err(*error)), 0),
        _ => (Status::INTERNAL, 0),
    }
}

fn of_pool(error: &PoolError) -> (Status, u64) {
    let status = match error {
        PoolError::NoToken { .. } => Status::NO_TOKEN,
        PoolError::TokenInUse { read, .. } => return (Status::TOKEN_IN_USE, *read),
        PoolError::TokenPinned { pinned, .. } => return (Status::TOKEN_PINNED, *pinned),
        PoolError::Flash(error) => Status::of(Err(*error)),
        PoolError::Write(error) => of_write(error),
        PoolError::NotPermitted { .. } => Status::ACCESS_DENIED,
        PoolError::NoSuchPages { .. } => Status::SECTOR_RANGE,
        PoolError::ReadOnly | PoolError::MustCheck => Status::READ_ONLY,
        _ => Status::INTERNAL,
    };
    (status, 0)
}

fn of_write(error: &WriteError) -> Status {
    match error {
        WriteError::NoSpace { .. } | WriteError::Table(_) | WriteError::TokenTooOld(_) => Status::NO_SPACE,
        WriteError::Flash(error) | WriteError::Poisoned(error) => Status::of(Err(*error)),
        WriteError::NoObjects | WriteError::NotAnObject { .. } => Status::INVALID_FIELD,
        _ => Status::INTERNAL,
    }
}

/// Allocates or deletes pages, or changes their permissions. The range is one of whole pages.
fn pages(pool: &Pool, job: &Job) -> Result<(), (Status, u64)> {
    let Command { sector, count, argument, .. } = job.command;
    let first = sector as u32;
    if !first.is_multiple_of(SUBPAGES_PER_PAGE) || !count.is_multiple_of(SUBPAGES_PER_PAGE) {
        return Err((Status::INVALID_FIELD, 0));
    }
    let range = first / SUBPAGES_PER_PAGE..(first + count) / SUBPAGES_PER_PAGE;
    let done = if job.opcode == Opcode::Delete {
        pool.delete_pages(range)
    } else {
        let permissions = permissions_of(argument).ok_or((Status::INVALID_FIELD, 0))?;
        if job.opcode == Opcode::Allocate
            && let Some(page) = range.clone().find(|&page| pool.permissions(page).is_some())
        {
            return Err((Status::ALLOCATED, page.into()));
        }
        pool.set_permissions(range, permissions)
    };
    done.map_err(|error| of_pool(&error))
}

/// Deletes the pages that are wholly inside a range. A trim is advice, so the sectors at the ends
/// of the range stay.
fn trim(pool: &Pool, command: &Command) -> Result<(), (Status, u64)> {
    let (first, end) = (command.sector, command.sector + u64::from(command.count));
    let page = u64::from(SUBPAGES_PER_PAGE);
    let range = first.div_ceil(page) as u32..(end / page) as u32;
    if range.is_empty() {
        return Ok(());
    }
    pool.delete_pages(range).map_err(|error| of_pool(&error))
}

fn read_at(pool: &Pool, job: &Job) -> Result<(), (Status, u64)> {
    let Command { sector, count, argument, .. } = job.command;
    let mut bytes = [0; SECTOR_BYTES];
    for i in 0..count {
        let length = match pool.read_object_at(sector as u32 + i, argument, &mut bytes) {
            Ok(length) => length,
            Err(error) => return Err(of_pool(&error)),
        };
        // What was never written, and what is behind an object, is zeros.
        bytes[length..].fill(0);
        job.arena.write(job.at + i as usize * SECTOR_BYTES, &bytes);
    }
    Ok(())
}

/// Writes the newest of these, as many as fit. Returns how many there are.
fn tokens(job: &Job, tokens: &[u64]) -> u64 {
    let room = job.command.count as usize * SECTOR_BYTES / 8;
    let newest = &tokens[tokens.len().saturating_sub(room)..];
    let bytes: Vec<u8> = newest.iter().flat_map(|token| token.to_le_bytes()).collect();
    job.arena.write(job.at, &bytes);
    tokens.len() as u64
}

fn pages_from(pool: &Pool, job: &Job) -> u64 {
    let first = job.command.sector as u32 / SUBPAGES_PER_PAGE;
    let room = u32::try_from(u64::from(job.command.count) * SECTOR_BYTES as u64).unwrap_or(u32::MAX);
    let end = pool.geometry().pages().min(first.saturating_add(room));
    let byte = |permissions: Option<Permissions>| permissions.map_or(0, |may| ALLOCATED | argument_of(may) as u8);
    let mut from = first;
    while from < end {
        // Waiters for the store come in between.
        let to = end.min(from + PAGES_AT_A_TIME);
        let bytes: Vec<u8> = pool.permissions_of(from..to).into_iter().map(byte).collect();
        job.arena.write(job.at + (from - first) as usize, &bytes);
        from = to;
    }
    u64::from(end - first)
}

fn dropped(pool: &Pool, job: &Job) -> u64 {
    let pages = pool.take_some_dropped_temporary(job.command.count as usize * SECTOR_BYTES / 8);
    let bytes: Vec<u8> = pages.iter().flat_map(|&page| u64::from(page).to_le_bytes()).collect();
    job.arena.write(job.at, &bytes);
    pages.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_travel_in_three_bits() {
        for argument in 0..8 {
            assert_eq!(permissions_of(argument).map(argument_of), Some(argument));
        }
        for argument in [8, 9, u64::MAX] {
            assert_eq!(permissions_of(argument), None);
        }
        for byte in 0..=u8::MAX {
            let expected = if (8..16).contains(&byte) { permissions_of(u64::from(byte - 8)) } else { None };
            assert_eq!(permissions_of_page(byte), expected, "{byte}");
        }
    }
}
